/* How products for compute capability 9.0 (hopper.cuh, mixed.cuh) go through their tiles.
 *
 * kShare: blocks share out the units of all tiles, each a contiguous run of them. Sums of a tile
 * that several blocks have a share in go to a workspace (kOperandSplit: one counter a tile, zero
 * between launches; from kSplitSums on, two places a block); the last to arrive adds them,
 * ascending along K. Nobody waits for anybody.
 *
 * Clusters of kClusterM by kClusterN blocks take tiles that lie side by side, of one size: what
 * they have in common each copies a part of, for all.
 *
 * kGather > 1: the blocks of a cluster, so many, have a part of the units of one tile each, in
 * order, and send each other sums: of some rows of the tile each block gets those of all, which it
 * adds ascending along K. There are no more tiles than clusters.
 *
 * Groups of rows (group.cuh; Cfg has kGroups, kGroupBytes and kOperandEnds): blocks take the tiles
 * of one group after those of the one before; kGroupBytes is from weight to weight, kCounted
 * group_rows' argument.
 *
 * Cfg: kBM kBN kBand kShare kSplitSums. S: kClusterM, kClusterN, kGather, kTilesN (of a
 * block), kUnits (of K), kSums (of each of the
 * kThreads that multiply), kPieceBytes (of all of them). */
#ifndef SINTER_CUDA_HOPPER_TILES
#define SINTER_CUDA_HOPPER_TILES

#include "kernels/cuda/ahead.cuh"
#include "kernels/cuda/async.cuh"
#include "kernels/cuda/group.cuh"

template <class Cfg, class = void> struct HopperGroups {
    static constexpr int kNum = 0; /* all rows have one weight */
    static __device__ __forceinline__ int64_t weight_at(int)
    {
        return 0;
    }
};
template <class Cfg> struct HopperGroups<Cfg, decltype((void)Cfg::kGroups)> {
    static constexpr int kNum = Cfg::kGroups;
    static __device__ __forceinline__ int64_t weight_at(int group)
    {
        return group * Cfg::kGroupBytes;
    }
    /* Of each group, and behind the last one: the first row, and the tiles before its own. */
    static __device__ __forceinline__ int2 *table()
    {
        __shared__ int2 first[Cfg::kGroups + 1];
        return first;
    }
    /* kCounted: the rows of each. Else those up to the next one's first. */
    static __device__ __forceinline__ int *counts()
    {
        __shared__ int num[Cfg::kCounted];
        return num;
    }
    static __device__ __forceinline__ int rows_of(int group)
    {
        if constexpr (Cfg::kCounted > 0)
            return counts()[group];
        return table()[group + 1].x - table()[group].x;
    }
    /* By all threads of a block, once an earlier launch has counted rows. ROWS: of a tile; TILES:
     * side by side. */
    template <int ROWS, int TILES, class Params>
    static __device__ __forceinline__ void count(const Params &p)
    {
        const int32_t *ends = (const int32_t *)p.op[Cfg::kOperandEnds].data;
        int2 *first = table();
        wait_for_producer();
        if (threadIdx.x < 32) {
            int tiles = 0;
#pragma unroll 1
            for (int base = 0; base <= Cfg::kGroups; base += 32) {
                const int group = base + threadIdx.x;
                GroupRows rows = {(int)p.dim[0], 0};
                if (group < Cfg::kGroups)
                    rows = group_rows<Cfg::kCounted>(ends, group, p.dim[0]);
                const int own = (int)((rows.num + ROWS - 1) / ROWS) * TILES;
                int upto = own;
#pragma unroll
                for (int step = 1; step < 32; step *= 2) {
                    const int other = __shfl_up_sync(0xFFFFFFFFu, upto, step);
                    upto += threadIdx.x >= step ? other : 0;
                }
                if constexpr (Cfg::kCounted > 0)
                    if (group < Cfg::kGroups)
                        counts()[group] = (int)rows.num;
                if (group <= Cfg::kGroups)
                    first[group] = {rows.first, tiles + upto - own};
                tiles += __shfl_sync(0xFFFFFFFFu, upto, 31);
            }
        }
        __syncthreads();
    }
};

/* The tiles of a block, or its shares of tiles: units [from, to) of K. */
template <class Cfg, class S> struct HopperWork {
    static constexpr int kBlocks = S::kClusterM * S::kClusterN;
    static constexpr int kGather = S::kGather;
    static constexpr int kRows = Cfg::kBM * S::kClusterM;
    static constexpr int kTilesN = (S::kTilesN + S::kClusterN - 1) / S::kClusterN;
    int tiles_m, tiles, at, end; /* of a cluster's tiles */
    int tile, from, to;
    typedef HopperGroups<Cfg> Groups;
    int group, first, before; /* of a group: rows and tiles before its own, .. */
    int64_t rows;             /* .. its rows */

    /* The group that tile `at` is of: the last one with no more tiles before it. */
    __device__ __forceinline__ void find_group()
    {
        const int2 *table = Groups::table();
        int low = 0, high = Groups::kNum - 1;
        while (low < high) {
            const int mid = (low + high + 1) / 2;
            if (table[mid].y <= at)
                low = mid;
            else
                high = mid - 1;
        }
        group = low;
        first = table[low].x;
        before = table[low].y;
        rows = Groups::rows_of(low);
        tiles_m = (int)((rows + kRows - 1) / kRows);
    }

    __device__ __forceinline__ HopperWork(int64_t m) : group(0), first(0), before(0), rows(m)
    {
        static_assert(!Cfg::kShare || kBlocks * kGather == 1, "clusters take whole tiles");
        static_assert(kBlocks == 1 || kGather == 1, "of one kind");
        tiles_m = (int)((m + kRows - 1) / kRows);
        tiles = tiles_m * kTilesN;
        if constexpr (Groups::kNum > 0)
            tiles = Groups::table()[Groups::kNum].y;
        if (Cfg::kShare) {
            at = (int)begin_of(blockIdx.x);
            end = (int)begin_of(blockIdx.x + 1);
        } else {
            at = blockIdx.x / (kBlocks * kGather);
            end = tiles;
        }
    }
    /* kGather: which of the tile's blocks this one is, and where the part of K of one begins. */
    static __device__ __forceinline__ int rank()
    {
        return blockIdx.x % kGather;
    }
    static __device__ __forceinline__ int part_of(int rank)
    {
        return S::kUnits * rank / kGather;
    }
    /* kShare: the first unit of a block, of all tiles' units. */
    __device__ __forceinline__ int64_t begin_of(int block) const
    {
        return (int64_t)tiles * S::kUnits * block / gridDim.x;
    }
    /* .. and the block that has this unit. */
    __device__ __forceinline__ int block_of(int64_t unit) const
    {
        return (int)(((unit + 1) * gridDim.x - 1) / ((int64_t)tiles * S::kUnits));
    }
    /* `next` gave the last one. (How many those of groups are is not kept in a register.) */
    __device__ __forceinline__ bool is_done() const
    {
        if constexpr (Groups::kNum > 0)
            return at >= Groups::table()[Groups::kNum].y;
        return at >= end;
    }
    __device__ __forceinline__ bool next()
    {
        if (is_done())
            return false;
        if constexpr (Groups::kNum > 0)
            find_group();
        tile = Cfg::kShare ? at / S::kUnits : Groups::kNum ? at - before : at;
        from = Cfg::kShare ? at % S::kUnits : kGather > 1 ? part_of(rank()) : 0;
        to = kGather > 1 ? part_of(rank() + 1) : S::kUnits;
        if (Cfg::kShare) {
            to = to - from < end - at ? to : from + end - at;
            at += to - from;
        } else {
            at += gridDim.x / (kBlocks * kGather);
        }
        return true;
    }
    /* The group of the tile that `next` gave, anew: so nothing of it is kept in registers. */
    __device__ __forceinline__ void find_again()
    {
        const int step = gridDim.x / (kBlocks * kGather);
        at -= step;
        find_group();
        tile = at - before;
        at += step;
    }
    /* Bands of kBand tiles along M, so that the tiles of a wave share rows and columns in L2. */
    __device__ __forceinline__ void place(int *ret_m, int *ret_n) const
    {
        const int in_band = tile % (Cfg::kBand * kTilesN);
        const int first = tile / (Cfg::kBand * kTilesN) * Cfg::kBand;
        const int height = tiles_m - first < Cfg::kBand ? tiles_m - first : Cfg::kBand;
        const int of_cluster = blockIdx.x % kBlocks;
        *ret_m = (first + in_band % height) * kRows + of_cluster % S::kClusterM * Cfg::kBM;
        *ret_n = (in_band / height * S::kClusterN + of_cluster / S::kClusterM) * Cfg::kBN;
    }
};

/* Four sums as what they are: read as integers, they would be copied to those in the loop over K,
 * between a product and its wait, and ptxas then lets no two products overlap (C7514). */
__device__ __forceinline__ void leave_l2(char *to, const float *sums)
{
    asm volatile("st.global.cg.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(sums[0]),
                 "f"(sums[1]), "f"(sums[2]), "f"(sums[3])
                 : "memory");
}
__device__ __forceinline__ void leave_l2(char *to, const int32_t *sums)
{
    asm volatile("st.global.cg.v4.s32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(sums[0]),
                 "r"(sums[1]), "r"(sums[2]), "r"(sums[3])
                 : "memory");
}
/* One statement, so that no more is loaded ahead than there are registers for. */
__device__ __forceinline__ void add_l2(float *to, const char *from)
{
    asm volatile("{\n"
                 ".reg .f32 a, b, c, d;\n"
                 "ld.global.cg.v4.f32 {a, b, c, d}, [%4];\n"
                 "add.f32 %0, %0, a;\n"
                 "add.f32 %1, %1, b;\n"
                 "add.f32 %2, %2, c;\n"
                 "add.f32 %3, %3, d;\n"
                 "}"
                 : "+f"(to[0]), "+f"(to[1]), "+f"(to[2]), "+f"(to[3])
                 : "l"(from));
}
__device__ __forceinline__ void add_l2(int32_t *to, const char *from)
{
    asm volatile("{\n"
                 ".reg .s32 a, b, c, d;\n"
                 "ld.global.cg.v4.s32 {a, b, c, d}, [%4];\n"
                 "add.s32 %0, %0, a;\n"
                 "add.s32 %1, %1, b;\n"
                 "add.s32 %2, %2, c;\n"
                 "add.s32 %3, %3, d;\n"
                 "}"
                 : "+r"(to[0]), "+r"(to[1]), "+r"(to[2]), "+r"(to[3])
                 : "l"(from));
}
/* A share of a tile: leaves it in the workspace; the last of those that have a share in the
 * tile then holds the total and says true. */
template <class Cfg, class S, class Sum>
__device__ __forceinline__ bool hopper_gather(Sum *sums, const HopperWork<Cfg, S> &work,
                                              void *workspace)
{
    const int64_t begin = (int64_t)work.tile * S::kUnits;
    const int first = work.block_of(begin), last = work.block_of(begin + S::kUnits - 1);
    const int thread = threadIdx.x;
    char *places = (char *)workspace + Cfg::kSplitSums + thread * 16;
    char *mine = places + (int64_t)(2 * blockIdx.x + (work.from == 0)) * S::kPieceBytes;
#pragma unroll
    for (int i = 0; i < S::kSums / 4; i++)
        leave_l2(mine + i * S::kThreads * 16, sums + 4 * i);
    if (!is_last_block((uint32_t *)workspace + work.tile, last - first, thread == 0,
                       [] { meet<1, S::kThreads>(); }))
        return false;
#pragma unroll
    for (int i = 0; i < S::kSums; i++)
        sums[i] = 0;
#pragma unroll 1
    for (int block = first; block <= last; block++) {
        const char *from =
            places + (int64_t)(2 * block + (work.begin_of(block) <= begin)) * S::kPieceBytes;
#pragma unroll
        for (int i = 0; i < S::kSums / 4; i++)
            add_l2(sums + 4 * i, from + i * S::kThreads * 16);
    }
    return true;
}

/* Sums of a cluster's blocks ------------------------------------------------------------------- */

__device__ __forceinline__ void store_sums(uint32_t to, const float *sums)
{
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(sums[0]), "f"(sums[1]),
                 "f"(sums[2]), "f"(sums[3])
                 : "memory");
}
__device__ __forceinline__ void store_sums(uint32_t to, const int32_t *sums)
{
    asm volatile("st.shared.v4.s32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(sums[0]), "r"(sums[1]),
                 "r"(sums[2]), "r"(sums[3])
                 : "memory");
}
/* Four sums to this address of block `rank`, whose barrier at `barrier` counts their bytes (PTX
 * ISA, "st.async"). */
__device__ __forceinline__ void send_sums(uint32_t to, uint32_t barrier, int rank,
                                          const float *sums)
{
    asm volatile("{\n"
                 ".reg .b32 there, counts;\n"
                 "mapa.shared::cluster.u32 there, %0, %2;\n"
                 "mapa.shared::cluster.u32 counts, %1, %2;\n"
                 "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [there], "
                 "{%3, %4, %5, %6}, [counts];\n"
                 "}" ::"r"(to),
                 "r"(barrier), "r"(rank), "f"(sums[0]), "f"(sums[1]), "f"(sums[2]), "f"(sums[3])
                 : "memory");
}
__device__ __forceinline__ void send_sums(uint32_t to, uint32_t barrier, int rank,
                                          const int32_t *sums)
{
    asm volatile("{\n"
                 ".reg .b32 there, counts;\n"
                 "mapa.shared::cluster.u32 there, %0, %2;\n"
                 "mapa.shared::cluster.u32 counts, %1, %2;\n"
                 "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.s32 [there], "
                 "{%3, %4, %5, %6}, [counts];\n"
                 "}" ::"r"(to),
                 "r"(barrier), "r"(rank), "r"(sums[0]), "r"(sums[1]), "r"(sums[2]), "r"(sums[3])
                 : "memory");
}
__device__ __forceinline__ void load_sums(float (&sums)[4], uint32_t from)
{
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(sums[0]), "=f"(sums[1]), "=f"(sums[2]), "=f"(sums[3])
                 : "r"(from)
                 : "memory");
}
__device__ __forceinline__ void load_sums(int32_t (&sums)[4], uint32_t from)
{
    asm volatile("ld.shared.v4.s32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(sums[0]), "=r"(sums[1]), "=r"(sums[2]), "=r"(sums[3])
                 : "r"(from)
                 : "memory");
}

/* TOTAL sums of each of a block's THREADS threads, in parts of SIZE, which the BLOCKS blocks of a
 * cluster finish in turn: each sends all of them, also its own, to whoever has the part. Their
 * places (kBytes) are free in all blocks when these have met. */
template <int BLOCKS, int THREADS, int TOTAL, int SIZE> struct Dealt {
    static constexpr int kParts = (TOTAL + SIZE - 1) / SIZE;
    static constexpr int kOwn = (kParts + BLOCKS - 1) / BLOCKS; /* of a block, at most */
    static constexpr int kStep = THREADS * 16;                  /* between fours of a thread */
    static constexpr int kSender = kOwn * (SIZE / 4) * kStep, kBytes = BLOCKS * kSender;
    static_assert(TOTAL % 4 == 0 && SIZE % 4 == 0, "four sums are sent at once");

    /* What is sent to block `rank`. */
    static __device__ __forceinline__ int bytes_for(int rank)
    {
        int sums = 0;
        for (int part = rank; part < kParts; part += BLOCKS)
            sums += TOTAL - part * SIZE < SIZE ? TOTAL - part * SIZE : SIZE;
        return BLOCKS * sums * 4 * THREADS;
    }
    /* place: of the thread, as in all blocks; rank: of its own. */
    template <class Sum>
    static __device__ __forceinline__ void send(const Sum *sums, uint32_t place, uint32_t barrier,
                                                int rank)
    {
        place += rank * kSender;
#pragma unroll
        for (int i = 0; i < TOTAL; i += 4) {
            const int part = i / SIZE;
            send_sums(place + (part / BLOCKS * SIZE + i % SIZE) / 4 * kStep, barrier, part % BLOCKS,
                      sums + i);
        }
    }
    /* The sums of all blocks, ascending along K, of this one's `own`-th part, NUM of them. */
    template <int NUM, class Sum>
    static __device__ __forceinline__ void add_up(Sum *to, uint32_t place, int own)
    {
#pragma unroll
        for (int i = 0; i < NUM; i += 4) {
            Sum each[BLOCKS][4];
#pragma unroll
            for (int block = 0; block < BLOCKS; block++)
                load_sums(each[block], place + block * kSender + (own * SIZE + i) / 4 * kStep);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                Sum sum = 0;
#pragma unroll
                for (int block = 0; block < BLOCKS; block++)
                    sum = sum + each[block][j];
                to[i + j] = sum;
            }
        }
    }
};

#endif
