/* GEMM for compute capability 9.0 whose weights are decoded on their way to
 * wgmma:
 *
 *   c[m, n] = sum over k of a[m, k] * w[n, k], then the fused epilogue.
 *
 * a: [M, K] row-major, 16-bit floats or bytes, read through the tensor map
 * p.map[0] in boxes of kBM rows by 128 bytes. w: packed as `fragments` or
 * `records` (pack.h); it is the left operand, which wgmma takes from registers
 * (PTX ISA, "wgmma.mma_async", register fragments of A: those of mma.m16n8k16
 * and m16n8k32 for each warp). The codes of a fragment are decoded as they lie
 * (format.cuh); what a lane reads of a record, eight neighbours (kNeighbours),
 * is first passed round among the four lanes of a row, so that each has the
 * columns of its fragment.
 *
 * Blocks stay and take tile after tile (hopper_tiles.cuh): kBN rows of w by kBM
 * rows of a. Each of the first kTeams warpgroups multiplies kSlabs slabs of 64
 * rows of w. The warps behind them take turns to fill a ring of kStages stages,
 * each 128 of K (a unit): boxes of a, a record of each 64 rows of w; where a's
 * scales belong to the main loop and change along K, one of them copies those
 * instead (scales of whole rows are read once a tile). Two blocks of one
 * warpgroup share a processor, and hide what the other waits for.
 *
 * kCluster = 2: two blocks take tiles side by side and copy half of their rows
 * of a each, for both.
 *
 * kTurns > 1: so many warpgroups have the same slabs and a part of the units
 * each, of which they take one in turn; their sums of a tile are added at its
 * end, in the order of parts. (A block of few rows of a waits less where more
 * warps multiply.)
 *
 * kMainloop: the sums of a block of K are scaled and added to f32 sums, f =
 * fma((float)block, sa * sw, f), blocks ascending; those of floats at the end
 * of every unit at least, of 8-bit floats without kMainloop too. Else sums stay
 * where they are.
 *
 * kGather > 1: so many blocks of a cluster have a part of K of the tile each (hopper_tiles.cuh).
 *
 * kRest > 0: mixed_rest.cuh. Groups of rows: hopper_tiles.cuh.
 *
 * kPartsOfK > 1: so many equal parts of K are added up, each from zero, and then
 * the parts, in the order of blocks that share a tile evenly: by one block, whose
 * total lies in shared memory meanwhile, or with kShare by blocks that have
 * several parts each and leave them in the workspace.
 *
 * Cfg: what Record wants (gemm_shape.cuh), and kNeighbours kA kHome kN (packed
 * rows) kBM kBN kTeams kTurns kSlabs kStages kBand kParts kShare kPartsOfK
 * kGather kInPlace kPromotes kRest kRestRounds kRestFrom kRestGroups kMainloop
 * kBlockK (0: all of K) kExact kWFold kAScale kABlockRows kABlockK kCols kPassRows (of a, staged at
 * once) kOperandA kOperandW kOperandSplit kSplitSums kSmemBytes
 * kCodebookPieces kApart, kTinyAt (where w says that some scale of i4 is tiny: pack.h; 0: it does
 * not). Product::add(d, left, right, keep): one wgmma of 64 by kBM,
 * d = left * right + (keep ? d : 0); left: four registers. */
#ifndef SINTER_CUDA_MIXED
#define SINTER_CUDA_MIXED

#include "kernels/cuda/mixed_rest.cuh"

/* Copies --------------------------------------------------------------------------------------- */

/* A thread of each of kCopiers warps, this one of number `mine`: fills the stages of every
 * kCopiers-th unit, in the order in which they are read. (A unit has up to six copies: one thread
 * alone was slower than the memory.) Weights do not depend on earlier kernels: those of the first
 * stages are on their way before it waits for the producer of a. (Not all: what all blocks ask for
 * at once comes at once, so that none had its first unit before most of it had come, and the
 * producer waited for memory, too.) */
template <class Cfg, class Params>
__device__ __forceinline__ void mixed_copy(const Params &p, uint32_t ring, uint32_t full,
                                           uint32_t empty, int mine)
{
    typedef MixedShape<Cfg> S;
    typedef HopperGroups<Cfg> Groups;
    const char *w = (const char *)p.op[Cfg::kOperandW].data;
    const uint64_t policy = policy_evict_first();
    const MixedRest<Cfg> rest;
    auto load_w = [&](int slot, int k, int n0, int group) {
        if constexpr (Cfg::kRest > 0) {
            constexpr int kBlocks = S::kTilesN / (Cfg::kRestRounds > 0 ? Cfg::kRestRounds : 1);
            rest.load(w, ring + slot * S::kStageBytes + S::kABytes, full + slot * 8,
                      n0 / Cfg::kBN / kBlocks, k, policy);
            return;
        }
        const int all = (Cfg::kN + 63) / 64 - n0 / 64;
        const int groups = all < 0 ? 0 : all < S::kGroups ? all : S::kGroups;
        barrier_expect(full + slot * 8, S::kABytes + groups * Cfg::kRecord);
        const char *from =
            w + Groups::weight_at(group) + ((int64_t)(n0 / 64) * S::kUnits + k) * Cfg::kRecord;
        for (int i = 0; i < groups; i++)
            copy_bulk(ring + slot * S::kStageBytes + S::kABytes + i * Cfg::kRecord,
                      from + (int64_t)i * S::kUnits * Cfg::kRecord, Cfg::kRecord, full + slot * 8,
                      policy);
    };
    HopperWork<Cfg, S> work(p.dim[0]), early(p.dim[0]);
    int started = 0, m0, n0;
    while (started < S::kEarlyStages && early.next()) {
        early.place(&m0, &n0);
        for (int k = early.from; k < early.to && started < S::kEarlyStages; k++, started++)
            if (started % S::kCopiers == mine)
                load_w(started, unit_at<Cfg>(early.from, early.to, k), n0, early.group);
    }
    wait_for_producer();
    int filled = 0; /* units of the tiles before, by all */
    int next = mine, slot = mine;
    uint32_t parity = 1;
    while (work.next()) {
        work.place(&m0, &n0);
#pragma unroll 1
        for (int k = work.from + next - filled; k < work.to; k += S::kCopiers) {
            int unit = unit_at<Cfg>(work.from, work.to, k);
            if (next >= S::kEarlyStages) { /* else it is on its way */
                barrier_wait(empty + slot * 8, parity);
                load_w(slot, unit, n0, work.group);
            }
            if constexpr (Cfg::kRest > 0)
                unit = rest.unit(unit);
#pragma unroll
            for (int box = 0; box < S::kBoxes; box++) {
                const uint32_t to = ring + slot * S::kStageBytes + box * S::kBoxBytes;
                const int x = (unit * S::kBoxes + box) * 128,
                          half = blockIdx.x % 2 * (Cfg::kBM / 2);
                const int y = work.first + m0;
                if (Cfg::kCluster == 1)
                    copy_box(to, p.map[0], x, y, full + slot * 8);
                else /* half of its rows, for both blocks */
                    copy_box_both(to + half * 128, p.map[0], x, y + half, full + slot * 8);
            }
            next += S::kCopiers;
            slot += S::kCopiers;
            if (slot >= Cfg::kStages) {
                slot -= Cfg::kStages;
                parity ^= 1;
            }
        }
        filled += work.to - work.from;
    }
    if (mine == 0) { /* once its own weight is here; of no unit at once */
        const int last = filled + 2 * Cfg::kStages - 1;
        barrier_wait(full + last % Cfg::kStages * 8, last / Cfg::kStages & 1);
        fetch_ahead(p.ahead);
    }
}

/* One warp: the scales of a that belong to every stage, as copies that arrive
 * by themselves. */
template <class Cfg, class Params>
__device__ __forceinline__ void mixed_copy_scales(const Params &p, uint32_t ring, uint32_t full,
                                                  uint32_t empty)
{
    typedef MixedShape<Cfg> S;
    constexpr int kBlock = Cfg::kABlockK;
    constexpr int kCols = (Cfg::kK + kBlock - 1) / kBlock;
    constexpr int kRows = (Cfg::kBM + 31) / 32; /* of a lane */
    const int lane = threadIdx.x % 32;
    HopperWork<Cfg, S> work(p.dim[0]);
    int filled = 0, m0, n0;
    wait_for_producer();
    while (work.next()) {
        work.place(&m0, &n0);
        m0 += work.first; /* of all rows; those of the next group are as good as none */
#pragma unroll 1
        for (int k = work.from; k < work.to; k++, filled++) {
            const int slot = filled % Cfg::kStages;
            const uint32_t to = ring + slot * S::kStageBytes + S::kScalesAt + lane * 4;
            asm volatile("" : "+r"(m0)); /* addresses for the whole tile would spill */
            barrier_wait(empty + slot * 8, (filled / Cfg::kStages & 1) ^ 1);
#pragma unroll
            for (int j = 0; j < kRows; j++) {
                const float *of_row = act_scale<Cfg>(p, m0 + lane + 32 * j, kCols, 0);
#pragma unroll
                for (int sub = 0; sub < S::kActSubs; sub++) {
                    const int at = k * 128 / kBlock + sub;
                    if (Cfg::kBM % 32 == 0 || lane + 32 * j < Cfg::kBM)
                        copy_word(to + (sub * Cfg::kBM + 32 * j) * 4,
                                  of_row + (Cfg::kK % 128 == 0 || at < kCols ? at : kCols - 1));
                }
            }
            arrive_after_copies(full + slot * 8);
        }
    }
}

/* The kernel ----------------------------------------------------------------------------------- */

/* One thread: the barriers of the ring. A lane of each warp that reads frees a stage. */
template <class Cfg, class Map>
__device__ __forceinline__ void mixed_begin(const Map &map, uint32_t full, uint32_t empty,
                                            uint32_t sent)
{
    typedef MixedShape<Cfg> S;
    map_prefetch(map);
    for (int i = 0; i < Cfg::kStages; i++) {
        barrier_init(full + i * 8, S::kScales ? 33 : 1);
        barrier_init(empty + i * 8, S::kThreads / 32 / Cfg::kTurns * Cfg::kCluster * kWarpArrivals);
    }
    if constexpr (S::kGather > 1)
        barrier_init_sent(sent, Cfg::kSlabs * S::Passes::bytes_for(HopperWork<Cfg, S>::rank()));
    barrier_init_done();
}

/* Parts of K ----------------------------------------------------------------------------------- */

/* What lies in shared memory added to four sums (as add_l2 of hopper_tiles.cuh, for the same
 * reason). */
__device__ __forceinline__ void add_total(int32_t *to, uint32_t from)
{
    asm volatile("{\n"
                 ".reg .s32 a, b, c, d;\n"
                 "ld.shared.v4.s32 {a, b, c, d}, [%4];\n"
                 "add.s32 %0, a, %0;\n"
                 "add.s32 %1, b, %1;\n"
                 "add.s32 %2, c, %2;\n"
                 "add.s32 %3, d, %3;\n"
                 "}"
                 : "+r"(to[0]), "+r"(to[1]), "+r"(to[2]), "+r"(to[3])
                 : "r"(from)
                 : "memory");
}
__device__ __forceinline__ void add_total(float *to, uint32_t from)
{
    asm volatile("{\n"
                 ".reg .f32 a, b, c, d;\n"
                 "ld.shared.v4.f32 {a, b, c, d}, [%4];\n"
                 "add.f32 %0, a, %0;\n"
                 "add.f32 %1, b, %1;\n"
                 "add.f32 %2, c, %2;\n"
                 "add.f32 %3, d, %3;\n"
                 "}"
                 : "+f"(to[0]), "+f"(to[1]), "+f"(to[2]), "+f"(to[3])
                 : "r"(from)
                 : "memory");
}

/* A block that has the whole tile: its total lies in shared memory until the last part is added. */
template <class Cfg, bool SHARE> struct MixedParts {
    typedef MixedShape<Cfg> S;
    uint32_t places; /* of the thread */

    __device__ __forceinline__ MixedParts(const HopperWork<Cfg, S> &, void *, uint32_t ring)
        : places(ring + S::kRingBytes + threadIdx.x * 16)
    {
    }
    /* Part [from, to) is whole; after the last one `sums` are the total. */
    __device__ __forceinline__ void add(float *sums, int from, int to) const
    {
        if (from == 0)
            meet<1, S::kThreads>(); /* the rows that lay here have been read */
#pragma unroll
        for (int i = 0; i < S::kSums; i += 4) {
            const uint32_t at = places + i * S::kThreads * 4;
            if (from > 0)
                add_total(sums + i, at);
            else
#pragma unroll
                for (int j = 0; j < 4; j++)
                    sums[i + j] = 0.0f + sums[i + j];
            if (to < S::kUnits)
                store_sums(at, sums + i);
        }
    }
};

/* One of several blocks that share the tile: its parts lie in the workspace, each in a place of its
 * own, where the last block to arrive reads all of them. */
template <class Cfg> struct MixedParts<Cfg, true> {
    typedef MixedShape<Cfg> S;
    char *places; /* of the thread and the tile */
    uint32_t *counter;
    int sharers;

    __device__ __forceinline__ MixedParts(const HopperWork<Cfg, S> &work, void *workspace, uint32_t)
        : places((char *)workspace + Cfg::kSplitSums +
                 (int64_t)work.tile * Cfg::kPartsOfK * S::kPieceBytes + threadIdx.x * 16),
          counter((uint32_t *)workspace + work.tile), sharers(gridDim.x / work.tiles)
    {
    }
    __device__ __forceinline__ void add(const float *sums, int from, int) const
    {
        char *mine = places + (int64_t)(from / S::kPartUnits) * S::kPieceBytes;
#pragma unroll
        for (int i = 0; i < S::kSums; i += 4)
            leave_l2(mine + i * S::kThreads * 4, sums + i);
    }
    /* The last block to arrive has the total then, and true. */
    __device__ __forceinline__ bool gather(float *sums) const
    {
        if (!is_last_block(counter, sharers - 1, threadIdx.x == 0, [] { meet<1, S::kThreads>(); }))
            return false;
#pragma unroll
        for (int i = 0; i < S::kSums; i++)
            sums[i] = 0;
#pragma unroll 1
        for (int part = 0; part < Cfg::kPartsOfK; part++)
#pragma unroll
            for (int i = 0; i < S::kSums; i += 4)
                add_l2(sums + i, places + (int64_t)part * S::kPieceBytes + i * S::kThreads * 4);
        return true;
    }
};

/* The sums of units [work.from, work.to) of a tile; with kPartsOfK those of part after part, each
 * given to `parts`. */
template <class Cfg, class Product, class Parts>
__device__ __forceinline__ void mixed_sums(
    typename MixedShape<Cfg>::Sum (&sums)[MixedShape<Cfg>::kSums], const Parts &parts,
    const MixedThread<Cfg> &at, HopperWork<Cfg, MixedShape<Cfg>> work, int &read, char *bytes,
    uint32_t ring, uint32_t full)
{
    typedef MixedShape<Cfg> S;
    const int end = work.to;
#pragma unroll 1
    do {
        if constexpr (Cfg::kPartsOfK > 1)
            work.to = work.from + S::kPartUnits;
        if constexpr (S::kPromotes || S::kInPlace || S::kTurning) { /* perhaps it has no unit */
#pragma unroll
            for (int i = 0; i < S::kSums; i++)
                sums[i] = 0;
        }
        MixedTile<Cfg, Product>::multiply_tile(sums, at, work, read, bytes, ring, full);
        if constexpr (Cfg::kPartsOfK > 1)
            parts.add(sums, work.from, work.to);
        work.from = work.to;
    } while (Cfg::kPartsOfK > 1 && work.from < end);
}

/* Adds the sums of a tile's parts: whoever has the first then has all. */
template <class Cfg, class Sum>
__device__ __forceinline__ void mixed_join(Sum *sums, uint32_t staged, const MixedThread<Cfg> &at,
                                           int part)
{
    typedef MixedShape<Cfg> S;
    constexpr int kOthers = Cfg::kTurns - 1, kBytes = S::kThreads / Cfg::kTurns * 16;
    const int thread = at.slab0 / Cfg::kSlabs * 128 + threadIdx.x % 128;
    meet<1, S::kThreads>(); /* the rows that lay here have been read */
    if (part > 0)
#pragma unroll
        for (int i = 0; i < S::kSums; i += 4)
            store_sums(staged + (i / 4 * kOthers + part - 1) * kBytes + thread * 16, sums + i);
    meet<1, S::kThreads>();
    if (part > 0)
        return;
#pragma unroll
    for (int i = 0; i < S::kSums; i++)
        sums[i] = (Sum)0 + sums[i];
#pragma unroll
    for (int other = 0; other < kOthers; other++)
#pragma unroll
        for (int i = 0; i < S::kSums; i += 4)
            add_total(sums + i, staged + (i / 4 * kOthers + other) * kBytes + thread * 16);
}

/* kGather: the sums of all of the cluster's blocks for the pass that this one finishes, in the
 * places of the first pass. They go through the ring, which all have read. */
template <class Cfg, class Sum>
__device__ __forceinline__ void mixed_gather(Sum *sums, uint32_t ring, uint32_t sent,
                                             const MixedThread<Cfg> &at, int part, int rank)
{
    typedef MixedShape<Cfg> S;
    typedef typename S::Passes Passes;
    const uint32_t place = ring + (at.slab0 / Cfg::kSlabs * 128 + threadIdx.x % 128) * 16;
    meet<1, S::kThreads>();
    meet_cluster();
    if (part > 0)
        return;
#pragma unroll
    for (int slab = 0; slab < Cfg::kSlabs; slab++)
        Passes::send(sums + slab * S::kSlabSums, place + slab * Passes::kBytes, sent, rank);
    if (rank >= Passes::kParts)
        return;
    barrier_wait_sent(sent, 0);
#pragma unroll
    for (int slab = 0; slab < Cfg::kSlabs; slab++)
        Passes::template add_up<Cfg::kPassRows / 2>(sums + slab * S::kSlabSums,
                                                    place + slab * Passes::kBytes, 0);
}

/* The rows of a pass, as fragments: each warp has 16 of them, of all columns or a run. */
template <class Cfg, class Epilogue, class Params>
__device__ __forceinline__ void mixed_fragments(const Params &p, const Operand &a,
                                                const char *staged, const MixedThread<Cfg> &at,
                                                int64_t first, int n0)
{
    typedef MixedShape<Cfg> S;
    typedef StagedFragments<typename S::Sum, Cfg::kCols, S::kPitch, false> Staged;
    constexpr int kRows = Cfg::kPassRows / 16, kRuns = S::kThreads / 32 / kRows;
    constexpr int kColumns = Cfg::kCols / kRuns; /* of a warp, of each part */
    static_assert(kRows * kRuns == S::kThreads / 32 && kColumns % Epilogue::kRun == 0, "all");
    const int row = at.warp % kRows * 16 + at.lane / 4, from = at.warp / kRows * kColumns;
#pragma unroll
    for (int c = 0; c < kColumns; c += Epilogue::kRun)
        Epilogue::held(p, a, Staged{staged + row * (S::kPitch * 4), from + c}, first + row,
                       p.dim[0], n0 / Cfg::kParts + from + c, at.lane % 4, NULL);
}

/* .. or row by row, as many at once as a warp has lanes for. */
template <class Cfg, class Epilogue, class Params>
__device__ __forceinline__ void mixed_rows(const Params &p, const Operand &a, const char *staged,
                                           const MixedThread<Cfg> &at, int64_t first, int n0)
{
    typedef MixedShape<Cfg> S;
    constexpr int kAtOnce = 32 / Epilogue::kRowLanes; /* rows, by a warp */
    const int64_t m = p.dim[0];
    const int rows = m - first < Cfg::kPassRows ? (int)(m - first) : Cfg::kPassRows;
#pragma unroll 1
    for (int i = at.warp * kAtOnce + at.lane / Epilogue::kRowLanes; i < rows;
         i += S::kThreads / 32 * kAtOnce)
        Epilogue::row(p, a, staged + i * S::kPitch * 4, first + i, n0 / Cfg::kParts,
                      at.lane % Epilogue::kRowLanes);
}

/* Hands the sums of a tile to the epilogue, kPassRows rows of a at a time; with kGather the one
 * pass that the block has gathered. */
template <class Cfg, class Epilogue, class Params>
__device__ __forceinline__ void mixed_finish(const Params &p, const Operand &a,
                                             const typename MixedShape<Cfg>::Sum *sums,
                                             char *staged, const MixedThread<Cfg> &at, int part,
                                             int tile_m, int n0)
{
    typedef MixedShape<Cfg> S;
    const int own = S::kGather > 1 ? HopperWork<Cfg, S>::rank() : 0;
#pragma unroll 1
    for (int pass = own; pass * Cfg::kPassRows < Cfg::kBM && (S::kGather == 1 || pass == own);
         pass++) {
        meet<1, S::kThreads>(); /* the rows before these have been read */
        if (part == 0)
            MixedSums<Cfg>::template stage_pass<0>(S::kGather > 1 ? 0 : pass, staged, sums,
                                                   at.slab0, at.row, at.lane);
        meet<1, S::kThreads>();
        const int64_t first = (int64_t)tile_m + pass * Cfg::kPassRows;
        if constexpr (Epilogue::kHeld)
            mixed_fragments<Cfg, Epilogue>(p, a, staged, at, first, n0);
        else
            mixed_rows<Cfg, Epilogue>(p, a, staged, at, first, n0);
    }
}

/* .. of a group of rows as if these were all. */
template <class Cfg, class Epilogue, class Params, class Work>
__device__ __forceinline__ void mixed_end(const Params &p, const Operand &a, const Work &work,
                                          const typename MixedShape<Cfg>::Sum *sums, char *staged,
                                          const MixedThread<Cfg> &at, int part, int tile_m, int n0)
{
    if constexpr (HopperGroups<Cfg>::kNum > 0) {
        const auto of = p.of_group(work.group, work.first, work.rows);
        mixed_finish<Cfg, Epilogue>(of, of.op[Cfg::kOperandA], sums, staged, at, part, tile_m, n0);
    } else {
        mixed_finish<Cfg, Epilogue>(p, a, sums, staged, at, part, tile_m, n0);
    }
}

/* What the warpgroups do that multiply. */
template <class Cfg, class Product, class Epilogue, class Params>
__device__ __forceinline__ void mixed_multiply(const Params &p, char *bytes, uint32_t ring,
                                               uint32_t full, uint32_t sent)
{
    typedef MixedShape<Cfg> S;
    typedef typename S::Sum Sum;
    const Operand a = p.op[Cfg::kOperandA];
    const MixedThread<Cfg> at((const char *)p.op[Cfg::kOperandW].data, ring);
    HopperWork<Cfg, S> work(p.dim[0]);
    int read = 0; /* units so far */
#pragma unroll 1
    while (work.next()) {
        int tile_m, n0;
        work.place(&tile_m, &n0);
        Sum sums[S::kSums];
        const int part = at.part(read);
        MixedParts<Cfg, Cfg::kShare> parts(work, p.op[Cfg::kOperandSplit].data, ring);
        mixed_sums<Cfg, Product>(sums, parts, at, work, read, bytes, ring, full);
        if (work.is_done())
            let_consumer_start();
        if constexpr (Cfg::kShare && Cfg::kPartsOfK > 1) {
            if (!parts.gather(sums))
                continue;
        } else if constexpr (Cfg::kShare) {
            if (work.to - work.from < S::kUnits &&
                !hopper_gather<Cfg, S>(sums, work, p.op[Cfg::kOperandSplit].data))
                continue;
        }
        if constexpr (S::kTurning)
            mixed_join<Cfg>(sums, ring + S::kRingBytes, at, part);
        if constexpr (S::kGather > 1)
            mixed_gather<Cfg>(sums, ring, sent, at, part, work.rank());
        MixedSums<Cfg>::leave_unit(sums);
        if constexpr (HopperGroups<Cfg>::kNum > 0) { /* or ptxas spilled beside most sums */
            work.find_again();
            work.place(&tile_m, &n0);
        }
        /* or ptxas finds the places of its rows in the loop over K, and keeps them there */
        if constexpr (S::kInPlace || (Cfg::kPromotes && !S::kInt)) {
            MixedThread<Cfg> here = at;
            here.row = __shfl_sync(0xFFFFFFFFu, at.row, at.lane);
            here.lane = __shfl_sync(0xFFFFFFFFu, at.lane, at.lane);
            mixed_end<Cfg, Epilogue>(p, a, work, sums, bytes + S::kRingBytes, here, part, tile_m,
                                     n0);
            continue;
        }
        mixed_end<Cfg, Epilogue>(p, a, work, sums, bytes + S::kRingBytes, at, part, tile_m, n0);
    }
}

/* Epilogue::row(p, a, acc, m, n0, lane) as for gemm_mma, but for kRowLanes
 * lanes of a warp: where they are fewer than 32, columns of a row do not meet.
 */
template <class Cfg, class Product, class Epilogue, class Params>
__device__ __forceinline__ void mixed(const Params &p)
{
    typedef MixedShape<Cfg> S;
    static_assert(S::kBytesUsed + 1024 == Cfg::kSmemBytes,
                  "the shared memory that the launch asks for");
    extern __shared__ __align__(1024) char smem[];
    __shared__ __align__(8) uint64_t barriers[2 * Cfg::kStages + (S::kGather > 1 ? 1 : 0)];
    const uint32_t ring = (smem_address(smem) + 1023) / 1024 * 1024;
    const uint32_t full = smem_address(barriers), empty = full + 8 * Cfg::kStages;
    const uint32_t sent = empty + 8 * Cfg::kStages;
    if (threadIdx.x == 0)
        mixed_begin<Cfg>(p.map[0], full, empty, sent);
    cluster_begin<Cfg::kCluster>();
    if constexpr (HopperGroups<Cfg>::kNum > 0)
        HopperGroups<Cfg>::template count<HopperWork<Cfg, S>::kRows, HopperWork<Cfg, S>::kTilesN>(
            p);
    if (threadIdx.x >= S::kThreads) {
        registers_give<S::kFewRegisters>();
        const int copier = threadIdx.x / 32 - S::kThreads / 32;
        if constexpr (S::kScales) {
            constexpr bool kAll = S::kCopiers == 3; /* of these warps have something to copy */
            if (copier == S::kCopiers)
                mixed_copy_scales<Cfg>(p, ring, full, empty);
            else if ((kAll || copier < S::kCopiers) && elect_one())
                mixed_copy<Cfg>(p, ring, full, empty, copier);
        } else if (copier < S::kCopiers && elect_one()) {
            mixed_copy<Cfg>(p, ring, full, empty, copier);
        }
        return;
    }
    registers_take<S::kManyRegisters>();
    if constexpr (S::Pairs::kBytes > 0) {
        const char *w = (const char *)p.op[Cfg::kOperandW].data;
        S::Pairs::Type::fill(ring + S::kPairsAt, Record<Cfg>::table(w), S::kThreads);
        meet<1, S::kThreads>();
    }
    wait_for_producer();
    if constexpr (Cfg::kRest > 0)
        mixed_multiply_rest<Cfg, Product, Epilogue>(p, smem + (ring - smem_address(smem)), ring,
                                                    full);
    else
        mixed_multiply<Cfg, Product, Epilogue>(p, smem + (ring - smem_address(smem)), ring, full,
                                               sent);
    cluster_end<Cfg::kCluster>();
}

#endif
