/* How a block of mixed (mixed.cuh) takes its part of a weight whose groups of 64 rows are no
 * multiple of the processors: kRest > 0.
 *
 * In kRestRounds rounds all warpgroups but the last multiply a group of the block's own each, over
 * all of K; the groups that are left over (kRestGroups of them, from kRestFrom on) have kRest
 * blocks each, whose last warpgroups multiply an equal part of K of theirs in the first round. A
 * block begins with that part, wherever it lies along K: so both read the same rows of a from one
 * ring, and the sums of the rest, which go through the workspace (as in hopper_tiles.cuh: the last
 * to arrive adds them, ascending along K), are finished while the others multiply. There is one
 * tile of rows of a; each warpgroup stages and ends its own columns, kCols of each part. */
#ifndef SINTER_CUDA_MIXED_REST
#define SINTER_CUDA_MIXED_REST

#include "kernels/cuda/mixed_units.cuh"

/* The scale of row `row` of a, of block `at` of `cols` along K. */
template <class Cfg, class Params>
__device__ __forceinline__ const float *act_scale(const Params &p, int64_t row, int cols, int at)
{
    const int64_t in = row < p.dim[0] ? row : p.dim[0] - 1;
    const int64_t block = Cfg::kABlockRows ? in / (Cfg::kABlockRows ? Cfg::kABlockRows : 1) : 0;
    return p.op[Cfg::kOperandA].scale + block * cols + at;
}

/* The block's part of what is left over. */
template <class Cfg> struct MixedRest {
    typedef MixedShape<Cfg> S;
    static constexpr int kShares = Cfg::kRest > 0 ? Cfg::kRest : 1;
    static constexpr int kUnits = S::kUnits / kShares; /* of a part */
    static constexpr int kOwn = Cfg::kTeams - 1;       /* groups of the block alone, in a round */
    bool is_there;
    int index, share; /* of the group, and of the part of K */

    __device__ __forceinline__ MixedRest()
        : is_there((int)blockIdx.x < Cfg::kRestGroups * kShares), index(blockIdx.x / kShares),
          share(is_there ? blockIdx.x % kShares : 0)
    {
    }
    /* The unit of K that the block takes as its k-th. */
    __device__ __forceinline__ int unit(int k) const
    {
        const int at = share * kUnits + k;
        return at < S::kUnits ? at : at - S::kUnits;
    }
    __device__ __forceinline__ int own_group(int round, int team) const
    {
        return (blockIdx.x * Cfg::kRestRounds + round) * kOwn + team;
    }
    /* One thread: begins the copies of the weights of the k-th unit. */
    __device__ __forceinline__ void load(const char *w, uint32_t to, uint32_t full, int round,
                                         int k, uint64_t policy) const
    {
        const int groups = kOwn + (is_there && round == 0 && k < kUnits ? 1 : 0);
        barrier_expect(full, S::kABytes + groups * Cfg::kRecord);
        for (int i = 0; i < groups; i++) {
            const int group = i < kOwn ? own_group(round, i) : Cfg::kRestFrom + index;
            copy_bulk(to + i * Cfg::kRecord,
                      w + ((int64_t)group * S::kUnits + unit(k)) * Cfg::kRecord, Cfg::kRecord, full,
                      policy);
        }
    }
};

/* The threads of one warpgroup meet. */
__device__ __forceinline__ void meet_team(int team)
{
    asm volatile("bar.sync %0, 128;" ::"r"(2 + team) : "memory");
}

/* The last warpgroup: leaves the sums of its part; the last one of the group's to arrive has the
 * total then, and true. */
template <class Cfg, class Sum>
__device__ __forceinline__ bool rest_gather(Sum *sums, const MixedRest<Cfg> &rest, void *workspace,
                                            int team)
{
    typedef MixedShape<Cfg> S;
    constexpr int kBytes = 128 * S::kSums * 4; /* of a part */
    char *places = (char *)workspace + Cfg::kSplitSums +
                   (int64_t)rest.index * rest.kShares * kBytes + threadIdx.x % 128 * 16;
#pragma unroll
    for (int i = 0; i < S::kSums; i += 4)
        leave_l2(places + rest.share * kBytes + i * 512, sums + i);
    if (!is_last_block((uint32_t *)workspace + rest.index, rest.kShares - 1, threadIdx.x % 128 == 0,
                       [=] { meet_team(team); }))
        return false;
#pragma unroll
    for (int i = 0; i < S::kSums; i++)
        sums[i] = 0;
#pragma unroll 1
    for (int share = 0; share < rest.kShares; share++)
#pragma unroll
        for (int i = 0; i < S::kSums; i += 4)
            add_l2(sums + i, places + share * kBytes + i * 512);
    return true;
}

/* Hands a warpgroup's sums to the epilogue, kPassRows rows of a at a time. */
template <class Cfg, class Epilogue, class Params>
__device__ __forceinline__ void rest_finish(const Params &p, const Operand &a,
                                            const typename MixedShape<Cfg>::Sum *sums, char *staged,
                                            const MixedThread<Cfg> &at, int team, int n0)
{
    typedef MixedShape<Cfg> S;
    constexpr int kAtOnce = 32 / Epilogue::kRowLanes; /* rows, by a warp */
    const int m = (int)p.dim[0];
#pragma unroll 1
    for (int pass = 0; pass * Cfg::kPassRows < Cfg::kBM; pass++) {
        meet_team(team); /* the rows before these have been read */
        MixedSums<Cfg>::template stage_pass<0>(pass, staged, sums, 0, at.row, at.lane);
        meet_team(team);
        const int first = pass * Cfg::kPassRows;
        const int rows = m - first < Cfg::kPassRows ? m - first : Cfg::kPassRows;
#pragma unroll 1
        for (int i = at.warp % 4 * kAtOnce + at.lane / Epilogue::kRowLanes; i < rows;
             i += 4 * kAtOnce)
            Epilogue::row(p, a, staged + i * S::kPitch * 4, first + i, n0 / Cfg::kParts,
                          at.lane % Epilogue::kRowLanes);
    }
}

/* What the warpgroups do that multiply. */
template <class Cfg, class Product, class Epilogue, class Params>
__device__ __forceinline__ void mixed_multiply_rest(const Params &p, char *bytes, uint32_t ring,
                                                    uint32_t full)
{
    typedef MixedShape<Cfg> S;
    const Operand a = p.op[Cfg::kOperandA];
    const MixedRest<Cfg> rest;
    MixedThread<Cfg> at((const char *)p.op[Cfg::kOperandW].data, ring);
    /* the same in all lanes, which the compiler cannot see */
    const int team = __shfl_sync(0xFFFFFFFFu, at.warp / 4, 0);
    const bool is_last = team == Cfg::kTeams - 1;
    const int part = rest.is_there ? rest.kUnits : 0;
    HopperWork<Cfg, S> work(p.dim[0]);
    work.from = 0;
    work.to = is_last ? part : S::kUnits;
    int read = 0;
#pragma unroll 1
    for (int round = 0; round < (is_last ? 1 : Cfg::kRestRounds); round++) {
        if (team == 0)
            at.alone = round == 0 ? part : 0;
        typename S::Sum sums[S::kSums];
#pragma unroll
        for (int i = 0; i < S::kSums; i++)
            sums[i] = 0;
        MixedTile<Cfg, Product>::multiply_tile(sums, at, work, read, bytes, ring, full);
        if (is_last || round == Cfg::kRestRounds - 1)
            let_consumer_start();
        if (is_last &&
            (!rest.is_there || !rest_gather<Cfg>(sums, rest, p.op[Cfg::kOperandSplit].data, team)))
            return;
        MixedSums<Cfg>::leave_unit(sums);
        MixedThread<Cfg> here = at;
        if constexpr (S::kInPlace) { /* or ptxas finds the places of its rows in the loop over K */
            here.row = __shfl_sync(0xFFFFFFFFu, at.row, at.lane);
            here.lane = __shfl_sync(0xFFFFFFFFu, at.lane, at.lane);
        }
        const int group = is_last ? Cfg::kRestFrom + rest.index : rest.own_group(round, team);
        rest_finish<Cfg, Epilogue>(p, a, sums, bytes + S::kRingBytes + team * S::kTeamBytes, here,
                                   team, group * 64);
    }
}

#endif
