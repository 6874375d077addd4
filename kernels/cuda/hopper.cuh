/* GEMM for compute capability 9.0 (wgmma, TMA):
 *
 *   c[m, n] = sum over k of a[m, k] * w[n, k], then the fused epilogue.
 *
 * a: [M, K] row-major, read through the tensor map p.map[0] in boxes of kBoxRows rows by 128 bytes:
 * kBM, or fewer where one tile has all rows; those behind them are what they are, and nobody's. w:
 * packed as `panels` (pack.h): for each 128 bytes of K all kN rows, 8 rows by 128 bytes at a time
 * as wgmma reads them, so that any run of rows is one bulk copy. Rows are permuted inside each 32:
 * what the fragments of a thread hold of 32 columns are 8 neighbours (PTX ISA, "wgmma.mma_async",
 * fragment of D). With kParts = 2 runs of 32 rows alternate between the parts.
 *
 * Blocks stay and take tile after tile. Two or three warpgroups (teams) multiply, 64 rows of the
 * left operand each: three keep the tensor cores busy where promotion holds each up as long as its
 * instructions. Of the last warpgroup one thread fills a ring of kStages stages of 128 bytes of K
 * (a unit), and one begins the copies of the scales that belong to them, or a warp copies them word
 * by word. With kSwap w is the left operand: 128 rows of w by few rows of a, for which the tile is
 * transposed in shared memory; or 64, by one team: two such blocks share a processor, and hide what
 * the other waits for; or by many, kPassRows of which are transposed at a time: where each row of w
 * has scales along K, a thread needs two of them for its sums, and else one for each column.
 *
 * kCluster = 2: two blocks take tiles one below the other and copy half of their rows of w each,
 * for both.
 *
 * Tiles whose parts have half a run of 32 columns beside whole ones (224 packed rows of two parts)
 * come in pairs that share a run of each part: one has the first 16 packed rows of it, which are
 * columns 8 q to 8 q + 3, the other the rest, both behind their whole runs.
 *
 * kPromote > 0: after so many instructions (of 32 bytes of K) their sums are added to f32 sums: for
 * floats of 8 bits, whose products the tensor cores add with about 14 bits, every 128 bytes; and
 * with kMainloop where scales change along K, f = fma((float)block, sa * sw, f), blocks ascending
 * (sa: with kAScale, where that of a changes, too). Else sums stay where they are: integers are
 * exact, 16-bit floats are added in f32.
 *
 * kGather > 1: so many blocks of a cluster have a part of K of the tile each (hopper_tiles.cuh).
 *
 * kPartsOfK > 1: a block adds up as many equal parts of K, each from zero, and then the parts, in
 * the order of blocks that share a tile evenly (hopper_tiles.cuh: kShare).
 *
 * Cfg: kA kW kK kN (packed rows) kBM kBoxRows kBN kPassRows kStages kBand kCluster kParts kSwap
 * kShare kGather kPartsOfK kPromote kMainloop kBlockK kAScale kABlockRows kABlockK kWBlockK
 * kWScaleAt kWDecoded (an earlier launch made w) kWUniform (128 rows share a scale of w: the grid
 * is [blocks of K][kN / 8], else [blocks of K][kN]) kAScaleBox (scales of a are boxes of p.map[1])
 * kOperandA kOperandW kOperandSplit kSplitSums kSmemBytes kLeaves (hopper_leave). Product::add(d,
 * left, right, keep): one wgmma of 64 by Product::kN, d = left * right + (keep ? d : 0). */
#ifndef SINTER_CUDA_HOPPER
#define SINTER_CUDA_HOPPER

#include "kernels/cuda/hopper_sums.cuh"

/* The stage that a thread reads next. What is known of it is kept, so that nothing is computed
 * between the end of one unit's products and the begin of the next one's. */
template <class Cfg, class S> struct HopperStage {
    uint32_t at,
        full; /* its memory and its barrier; the one of its being empty is kEmpty further */
    uint32_t operands; /* its memory as the low word of an operand */
    uint32_t parity;
    int number;
    static constexpr uint32_t kEmpty = 8 * Cfg::kStages;

    __device__ __forceinline__ HopperStage(uint32_t ring, uint32_t barriers)
        : at(ring), full(barriers), operands((uint32_t)operand_at(ring)), parity(0), number(0)
    {
    }
    __device__ __forceinline__ void advance()
    {
        number++, at += S::kStageBytes, full += 8, operands += S::kStageBytes / 16;
        if (number == Cfg::kStages) {
            number = 0, at -= S::kRingBytes, full -= kEmpty, operands -= S::kRingBytes / 16;
            parity ^= 1;
        }
    }
    /* Rows of a (left, but for kSwap) and of w; further: in units of 16 bytes. */
    __device__ __forceinline__ uint64_t operand(bool left, int further) const
    {
        const bool of_a = left != (bool)Cfg::kSwap;
        return operand_at(0) & ~0xFFFFFFFFull | (operands + (of_a ? 0 : S::kABytes / 16) + further);
    }
    __device__ __forceinline__ bool is_full() const
    {
        return barrier_passed(full, parity);
    }
    __device__ __forceinline__ void wait() const
    {
        barrier_wait(full, parity);
    }
    __device__ __forceinline__ void wait_empty() const
    {
        barrier_wait(full + kEmpty, parity ^ 1);
    }
    /* Until the one before it is full, if there is one. */
    __device__ __forceinline__ void wait_last() const
    {
        barrier_wait(number ? full - 8 : full + kEmpty - 8, number ? parity : parity ^ 1);
    }
    /* This thread has read the stage whose barrier is `full`. */
    static __device__ __forceinline__ void release(uint32_t full, int lane)
    {
        __syncwarp(); /* all lanes have read what they read themselves */
        cluster_arrive<Cfg::kCluster>(full + kEmpty, lane);
    }
};

/* The box of scales of a (kABox) that a thread reads next. There are as many places as stages: what
 * is in the place that a unit's box takes belongs to units that were released before. */
template <class Cfg, class S> struct HopperBox {
    uint32_t at, left; /* its memory; places behind it */

    __device__ __forceinline__ HopperBox(uint32_t ring)
        : at(ring + S::kRingBytes - S::kBoxBytes), left(Cfg::kStages)
    {
    }
    __device__ __forceinline__ void advance()
    {
        at += S::kBoxBytes;
        if (left-- == 0)
            at -= S::kBoxesBytes, left = Cfg::kStages - 1;
    }
};

/* Rows of w of a tile from packed row n0 on, whose halves of runs lie behind the whole runs.
 * from: row n0. */
template <class Cfg, class S>
__device__ __forceinline__ void hopper_copy_halves(uint32_t to, const char *from, int n0,
                                                   uint32_t full, uint64_t policy)
{
    constexpr int kWhole = S::kRunCols * Cfg::kParts;
    const bool is_second = n0 / Cfg::kBN % 2;
    const char *half = from + (is_second ? -16 : kWhole) * 128;
    copy_bulk(to, from + (is_second ? 32 : 0) * 128, kWhole * 128, full, policy);
    copy_bulk(to + kWhole * 128, half, 16 * 128, full, policy);
    copy_bulk(to + (kWhole + 16) * 128, half + 32 * 128, 16 * 128, full, policy);
}

/* One thread, of number `mine` of kCopiers: fills the stages of every kCopiers-th unit, in the
 * order in which they are read. Weights do not depend on earlier kernels, unless one decoded them
 * (kWDecoded): those of the first stages are on their way before it waits for the producer of a. */
template <class Cfg, class S, class Params>
__device__ __forceinline__ void hopper_copy(const Params &p, uint32_t ring, uint32_t full, int mine)
{
    typedef HopperStage<Cfg, S> Stage;
    typedef HopperGroups<Cfg> Groups;
    const char *weights = (const char *)p.op[Cfg::kOperandW].data;
    const uint64_t policy = policy_evict_first();
    auto load_w = [&](const Stage &stage, int k, int n0, int group) {
        const int left = Cfg::kN - n0, rows = left < Cfg::kBN ? left : Cfg::kBN;
        const uint32_t to = stage.at + S::kABytes;
        const char *from = weights + Groups::weight_at(group) + ((int64_t)k * Cfg::kN + n0) * 128;
        barrier_expect(stage.full, Cfg::kBoxRows * 128 + rows * 128);
        if constexpr (S::kHalf) {
            hopper_copy_halves<Cfg, S>(to, from, n0, stage.full, policy);
        } else if constexpr (Cfg::kCluster == 1) {
            copy_bulk(to, from, rows * 128, stage.full, policy);
        } else { /* half of them, for both blocks */
            const int first = blockIdx.x % 2 * (Cfg::kBN / 2);
            const int part = rows - first < Cfg::kBN / 2 ? rows - first : Cfg::kBN / 2;
            if (part > 0)
                copy_bulk_both(to + first * 128, from + first * 128, part * 128, stage.full,
                               policy);
        }
    };
    HopperWork<Cfg, S> work(p.dim[0]), early(p.dim[0]);
    Stage stage(ring, full), ahead(ring, full);
    int filled = 0, started = 0, m0, n0;
    if constexpr (Cfg::kWDecoded)
        wait_for_producer();
    while (started < Cfg::kStages && early.next()) {
        early.place(&m0, &n0);
        for (int k = early.from; k < early.to && started < Cfg::kStages; k++, started++) {
            if (S::kCopiers == 1 || started % S::kCopiers == mine)
                load_w(ahead, k, n0, early.group);
            ahead.advance();
        }
    }
    wait_for_producer();
    while (work.next()) {
        work.place(&m0, &n0);
#pragma unroll 1
        for (int k = work.from; k < work.to; k++, filled++) {
            if (S::kCopiers == 1 || filled % S::kCopiers == mine) {
                if (filled >= started) {
                    stage.wait_empty();
                    load_w(stage, k, n0, work.group);
                }
                copy_box(stage.at, p.map[0], k * 128, work.first + m0, stage.full);
            }
            stage.advance();
        }
    }
    if (mine == 0) { /* once its own weight is here */
        stage.wait_last();
        fetch_ahead(p.ahead);
    }
}

/* A warp: a word for each row of a, or scale of w, of a unit and promotion, as copies that arrive
 * by themselves. */
template <class Cfg, class S>
__device__ __forceinline__ void hopper_copy_row_scales(const float *of_a, uint32_t to, int k,
                                                       int m0, int last_row)
{
    constexpr int kBlock = Cfg::kABlockK ? Cfg::kABlockK : Cfg::kK;
    constexpr int kBlockRows = Cfg::kABlockRows ? Cfg::kABlockRows : 1;
    constexpr int kCols = (Cfg::kK + kBlock - 1) / kBlock;
    constexpr int kEach = (Cfg::kBM + 31) / 32; /* of a lane */
    const int lane = threadIdx.x % 32;
#pragma unroll(S::kSubs > 1 ? 1 : kEach)
    for (int j = 0; j < kEach; j++) {
        const int i = lane + 32 * j, row = m0 + i < last_row ? m0 + i : last_row;
        const int block = Cfg::kABlockRows ? row / kBlockRows : 0;
        const float *from = of_a + (int64_t)block * kCols;
#pragma unroll
        for (int sub = 0; sub < S::kSubs; sub++)
            if (Cfg::kBM % 32 == 0 || i < Cfg::kBM)
                copy_word(to + (sub * Cfg::kBM + i) * 4, from + S::first_of(k, sub) / kBlock);
    }
}
template <class Cfg, class S>
__device__ __forceinline__ void hopper_copy_weight_scales(const float *grid, uint32_t to, int k,
                                                          int n0)
{
    constexpr int kEach = (S::kWScales + 31) / 32; /* of a lane */
#pragma unroll(S::kSubs > 1 ? 1 : kEach)
    for (int j = 0; j < kEach; j++) {
        const int lane = threadIdx.x % 32, i = lane + 32 * j;
        const int column = n0 / S::kWRun + 32 * j + (S::kWRun > 1 ? lane : S::in_order(lane));
        const float *from = grid + (column < S::kGridCols ? column : S::kGridCols - 1);
#pragma unroll
        for (int sub = 0; sub < S::kSubs; sub++)
            if (S::kWScales % 32 == 0 || i < S::kWScales)
                copy_word(to + (sub * S::kWScales + i) * 4,
                          from + (int64_t)S::w_block(k, sub) * S::kGridCols);
    }
}

/* The scales of every kScaleWarps-th unit from `mine` on: by one thread, or a warp that copies
 * words. */
template <class Cfg, class S, class Params>
__device__ __forceinline__ void hopper_copy_scales(const Params &p, uint32_t ring, uint32_t full,
                                                   int mine)
{
    typedef HopperGroups<Cfg> Groups;
    const char *weights = (const char *)p.op[Cfg::kOperandW].data;
    const uint64_t policy = policy_evict_first();
    const bool is_first = S::kScaleLanes == 0 || threadIdx.x % 32 == 0;
    HopperWork<Cfg, S> work(p.dim[0]);
    HopperStage<Cfg, S> stage(ring, full);
    HopperBox<Cfg, S> box(ring);
    int filled = 0, m0, n0;
    wait_for_producer();
    while (work.next()) {
        work.place(&m0, &n0);
        const int left = Cfg::kN - n0, bytes = (left < Cfg::kBN ? left : Cfg::kBN) * 4 / S::kWRun;
        const float *grid = S::grid(weights + Groups::weight_at(work.group));
        const int last_row = work.first + (int)work.rows - 1;
        m0 += work.first;
#pragma unroll 1
        for (int k = work.from; k < work.to; k++, filled++, stage.advance()) {
            if (S::kScaleWarps > 1 && filled % S::kScaleWarps != mine)
                continue;
            const uint32_t of_a = stage.at + S::kABytes + S::kWBytes, of_w = of_a + S::kAScaleBytes;
            if constexpr (S::kSubs == 1) /* addresses kept for the whole tile would spill */
                asm volatile("" : "+r"(m0), "+r"(n0));
            stage.wait_empty();
            if (S::kScalesBulk && is_first) {
                const bool boxes = S::kABox && S::begins_box(k, work.from);
                barrier_expect(stage.full,
                               (boxes ? S::kBoxBytes : 0) + (S::kWBulk ? S::kSubs * bytes : 0));
                if constexpr (S::kABox)
                    if (boxes) {
                        box.advance();
                        copy_box(box.at, p.map[1], S::a_block(k) / 4 * 4, m0, stage.full);
                    }
#pragma unroll
                for (int sub = 0; sub < (S::kWBulk ? S::kSubs : 0); sub++)
                    copy_bulk(of_w + sub * S::kWScales * 4,
                              grid + (int64_t)S::w_block(k, sub) * S::kGridCols + n0 / S::kWRun,
                              bytes, stage.full, policy);
            }
            if constexpr (S::kAEach)
                hopper_copy_row_scales<Cfg, S>(p.op[Cfg::kOperandA].scale, of_a, k, m0, last_row);
            if constexpr (S::kWEach)
                hopper_copy_weight_scales<Cfg, S>(grid, of_w, k, n0);
            if constexpr (S::kScaleLanes > 0)
                arrive_after_copies(stage.full);
        }
    }
}

/* kGather: the sums of a thread that are finished together: a run of columns, or rows. */
template <class Cfg, class S, class Epilogue> __device__ constexpr int hopper_dealt()
{
    if constexpr (Epilogue::kHeld)
        return Epilogue::kRun / 2 * Cfg::kParts;
    else
        return Cfg::kSwap ? S::kOwnRows / 2 : S::kSums;
}
template <class Cfg, class S, class Epilogue>
using HopperDealt = Dealt<S::kGather, S::kThreads, S::kSums, hopper_dealt<Cfg, S, Epilogue>()>;

/* Rows of results that a warp has left in shared memory, at `staged`, go to global memory as copies
 * that go on while the next tile is multiplied. */
template <class Cfg, class S, class Epilogue, class Params>
__device__ __forceinline__ void hopper_leave(const Params &p, const Operand &a, const char *staged,
                                             int64_t first_row, int64_t m, int n0, int lane)
{
    copies_see();
    __syncwarp();
    const int64_t row = first_row + lane;
    if (lane < 16 && row < m) {
        char *to = Epilogue::leave(p, a, row, n0);
        if (to)
            copy_bulk_out(to, smem_address(staged) + lane * S::kLeavePitch, S::kLeaveRow);
    }
    leaving_commit();
}

/* The epilogue of a tile with many rows on the right, kPassRows of them at a time, each of which
 * the lanes of four, or kRowLanes, have as if they were sums of w's columns. */
template <class Cfg, class Product, class Epilogue, class Params, class Sums>
__device__ __forceinline__ void hopper_passes(const Params &p, const Operand &a, const Sums &sums,
                                              int64_t m, int64_t m0, int n0, int row0, char *staged)
{
    typedef HopperShape<Cfg, Product> S;
    typedef HopperSums<Cfg, Product> H;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll 1
    for (int pass = 0; pass * Cfg::kPassRows < Cfg::kBM; pass++, m0 += Cfg::kPassRows) {
        meet<1, S::kThreads>(); /* the rows before these have been read */
        H::template stage_pass<Epilogue::kHeld>(pass, staged, sums, row0, lane);
        meet<1, S::kThreads>();
        if constexpr (Epilogue::kHeld) {
            typedef StagedFragments<typename S::Sum, S::kCols, S::kPitch, true> Staged;
            static_assert(Cfg::kPassRows == 16 * S::kWarps, "16 of each warp");
            const int row = warp * 16 + lane / 4;
#pragma unroll
            for (int c = 0; c < S::kCols; c += Epilogue::kRun)
                Epilogue::held(p, a, Staged{staged + row * (S::kPitch * 4), c}, m0 + row, m,
                               n0 / Cfg::kParts + c, lane % 4, NULL);
        } else {
            constexpr int kAtOnce = 32 / Epilogue::kRowLanes; /* rows, by a warp */
#pragma unroll 1
            for (int i = warp * kAtOnce + lane / Epilogue::kRowLanes;
                 i < Cfg::kPassRows && m0 + i < m; i += S::kWarps * kAtOnce)
                Epilogue::row(p, a, staged + i * S::kPitch * 4, m0 + i, n0 / Cfg::kParts,
                              lane % Epilogue::kRowLanes);
        }
    }
}

/* The epilogue of a tile of `m` rows in all: in registers, or over rows staged in shared memory.
 * row0: the thread's first row of the tile. With kGather of some of its columns, or rows. */
template <class Cfg, class Product, class Epilogue, class Params, class Sums>
__device__ __forceinline__ void hopper_epilogue(const Params &p, const Operand &a, Sums &sums,
                                                int64_t m, int64_t m0, int n0, int row0,
                                                char *staged, uint32_t ring, uint32_t sent)
{
    typedef HopperShape<Cfg, Product> S;
    typedef HopperSums<Cfg, Product> H;
    typedef typename S::Sum Sum;
    typedef HopperDealt<Cfg, S, Epilogue> Handed;
    static_assert(S::kGather == 1 || S::kRingBytes >= Handed::kBytes, "what is sent has places");
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int rank = S::kGather > 1 ? HopperWork<Cfg, S>::rank() : 0;
    const uint32_t place = ring + threadIdx.x * 16;
    if constexpr (S::kGather > 1) { /* sums go through the ring, once all have read it */
        meet<1, S::kThreads>();
        meet_cluster();
        Handed::send(sums, place, sent, rank);
        if (rank < Handed::kParts)
            barrier_wait_sent(sent, 0);
    }
    if constexpr (S::kManyRows) {
        hopper_passes<Cfg, Product, Epilogue>(p, a, sums, m, m0, n0, row0, staged);
    } else if constexpr (Epilogue::kHeld && S::kGather > 1) {
        constexpr int kRuns = S::kCols / Epilogue::kRun, kSums = Epilogue::kRun / 2 * Cfg::kParts;
#pragma unroll
        for (int i = 0; i < kRuns; i += S::kGather) {
            const int run = i + rank, own = i / S::kGather;
            if (run >= kRuns)
                continue;
            Handed::template add_up<kSums>(sums + own * kSums, place, own);
            Epilogue::held(p, a, HeldSums<Sum, Cfg::kParts>{sums, own * Epilogue::kRun, 0},
                           m0 + row0, m, n0 / Cfg::kParts + run * Epilogue::kRun, lane % 4, NULL);
        }
    } else if constexpr (Epilogue::kHeld) {
        char *rows = staged + warp * (16 * S::kLeavePitch), *own = rows;
        if constexpr (Cfg::kLeaves) {
            leaving_read(); /* those of the tile before */
            __syncwarp();
            own += lane / 4 * S::kLeavePitch;
        }
        const bool is_second = S::kHalf && n0 / Cfg::kBN % 2;
        const int runs = (n0 + (is_second ? 32 : 0)) / Cfg::kParts;
#pragma unroll
        for (int c = 0; c < S::kRunCols; c += Epilogue::kRun)
            Epilogue::held(p, a, HeldSums<Sum, Cfg::kParts>{sums, c, 0}, m0 + row0, m, runs + c,
                           lane % 4, own);
        if constexpr (S::kHalf)
            Epilogue::half(p, a, HalfSums<Sum>{sums + S::kRunCols * Cfg::kParts / 2}, m0 + row0, m,
                           is_second ? runs - 32 : runs + S::kRunCols,
                           lane % 4 * 2 + (is_second ? 1 : 0));
        if constexpr (Cfg::kLeaves)
            hopper_leave<Cfg, S, Epilogue>(p, a, rows, m0 + warp * 16, m, n0 / Cfg::kParts, lane);
    } else if constexpr (Cfg::kSwap) {
        if constexpr (S::kGather > 1)
            Handed::template add_up<S::kOwnRows / 2>(sums, place, 0);
        meet<1, S::kThreads>(); /* the rows before these have been read */
        H::template stage_transposed<S::kOwnRows>(staged, sums, row0, lane);
        meet<1, S::kThreads>();
        const int own = rank * S::kOwnRows;
        const int rows =
            S::kGather > 1 && Cfg::kBM - own < S::kOwnRows ? Cfg::kBM - own : S::kOwnRows;
        m0 += own;
#pragma unroll 1
        for (int row = warp; row < rows && m0 + row < m; row += S::kWarps)
            Epilogue::row(p, a, staged + row * S::kPitch * 4, m0 + row, n0 / Cfg::kParts, lane);
    } else {
        char *rows = staged + warp * (8 * S::kPitch * 4);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            __syncwarp();
#pragma unroll
            for (int block = 0; block < Cfg::kBN / 32; block++)
                H::stage_eight(rows + lane / 4 * (S::kPitch * 4), sums + 2 * h, block, lane);
            __syncwarp();
#pragma unroll 1
            for (int row = 0; row < 8; row++) {
                const int64_t at = m0 + warp * 16 + h * 8 + row;
                if (at < m)
                    Epilogue::row(p, a, rows + row * S::kPitch * 4, at, n0 / Cfg::kParts, lane);
            }
        }
    }
}

/* A unit's products, whose sums stay where they are; the unit before it is then done. */
template <class Cfg, class Product, class Stage, class Sum>
__device__ __forceinline__ void hopper_add(Sum *sums, Stage &stage, uint32_t *used, int group,
                                           bool is_first, int lane)
{
    const uint64_t left = stage.operand(true, group * 512), right = stage.operand(false, 0);
    stage.wait();
    products_begin();
#pragma unroll
    for (int i = 0; i < 4; i++)
        Product::add(sums, left + 2 * i, right + 2 * i, i > 0 || !is_first);
    products_commit();
    if (!is_first) {
        products_wait<1>();
        Stage::release(*used, lane);
    }
    *used = stage.full;
    stage.advance();
}

/* .. and promoted, instruction by instruction of 32 columns and more. ready: the stage is known to
 * be full. */
template <class Cfg, class Product, class Stage, class Box, class Sum>
__device__ __forceinline__ void hopper_add_promoted(Sum *sums, Stage &stage, Box &box, bool *ready,
                                                    int k, int from, int group, int row0, int lane)
{
    typedef HopperShape<Cfg, Product> S;
    typedef HopperSums<Cfg, Product> H;
    const uint64_t left = stage.operand(true, group * 512), right = stage.operand(false, 0);
    const uint32_t of_stage = stage.at + S::kABytes + S::kWBytes, used = stage.full;
    if (!*ready)
        stage.wait();
#pragma unroll
    for (int sub = 0; sub < S::kSubs; sub++) {
        const uint32_t of_w = of_stage + S::kAScaleBytes + sub * (S::kWScales * 4);
        typename H::Scales of_sub;
#pragma unroll
        for (int half = 0; half < S::kHalves; half++) {
            const bool is_last = sub == S::kSubs - 1 && half == S::kHalves - 1;
            typename S::Acc block[Product::kN / 2];
            products_begin();
#pragma unroll
            for (int i = 0; i < Cfg::kPromote; i++) {
                const int at = 2 * (sub * Cfg::kPromote + i);
                Product::add(block, left + at, right + half * (Product::kN * 8) + at, i > 0);
            }
            products_commit();
            if (S::kScales && half == 0) {
                if (S::kABox && sub == 0 && S::begins_box(k, from))
                    box.advance();
                H::read_scales(of_sub,
                               S::kABox ? box.at + S::in_box(k, sub) * 4
                                        : of_stage + sub * (Cfg::kBM * 4),
                               of_w, row0, lane);
            }
            if (is_last) {
                stage.advance();
                *ready = stage.is_full();
            }
            products_wait<0>();
            if (is_last && !S::kEachScale)
                Stage::release(used, lane);
            H::promote(sums, block, half, of_sub, of_w, lane);
            if (is_last && S::kEachScale)
                Stage::release(used, lane);
        }
    }
}

/* The warps behind those that multiply. */
template <class Cfg, class S, class Params>
__device__ __forceinline__ void hopper_copies(const Params &p, uint32_t ring, uint32_t full)
{
    const int copier = threadIdx.x / 32 - S::kWarps, scaler = copier - S::kCopiers;
    if (copier < S::kCopiers && elect_one())
        hopper_copy<Cfg, S>(p, ring, full, copier);
    if (S::kScales && scaler >= 0 && scaler < S::kScaleWarps && (S::kScaleLanes || elect_one()))
        hopper_copy_scales<Cfg, S>(p, ring, full, scaler);
}

/* The sums of a tile's units of K. used: the barrier of the stage before this one. */
template <class Cfg, class Product, class Work, class Stage, class Box, class Sum>
__device__ __forceinline__ void hopper_sums(Sum *sums, Sum *total, const Work &work, Stage &stage,
                                            Box &box, uint32_t &used, bool &ready, int group,
                                            int row0, int lane)
{
    typedef HopperShape<Cfg, Product> S;
    typedef HopperSums<Cfg, Product> H;
#pragma unroll 1
    for (int k = work.from; k < work.to; k++) {
        bool is_first = k == work.from; /* of a part of K */
        if constexpr (Cfg::kPartsOfK > 1) {
            is_first = k % S::kPartUnits == 0;
            if (is_first && k > 0) {
                if constexpr (!Cfg::kPromote) {
                    products_wait<0>();
                    stage.release(used, lane);
                }
                H::fold(total, sums);
            }
        }
        if constexpr (Cfg::kPromote)
            hopper_add_promoted<Cfg, Product>(sums, stage, box, &ready, k, work.from, group, row0,
                                              lane);
        else
            hopper_add<Cfg, Product>(sums, stage, &used, group, is_first, lane);
    }
    if constexpr (!Cfg::kPromote) {
        products_wait<0>();
        stage.release(used, lane);
    }
    if constexpr (Cfg::kPartsOfK > 1)
        H::end(total, sums);
}

/* Epilogue::kHeld: held(p, a, sums, row, m, n0, lane, place): four lanes hold Epilogue::kRun
 * columns of each part of rows `row` and row + 8 of m, from column n0 of each part on, as HeldSums.
 * No branch depends on the row: loads of all columns may then be on their way at once. With
 * kLeaves results go to `place`, row `row`'s in shared memory, and leave(p, a, m, n0) is where
 * those of row m belong (NULL: nowhere). half(p, a, sums, row, m, n0, fours): the same for half a
 * run of 32 columns, of which a lane has the four from 4 * fours on. Else row(p, a, acc, m, n0,
 * lane) as for gemm_mma. */
template <class Cfg, class Product, class Epilogue, class Params>
__device__ __forceinline__ void hopper(const Params &p)
{
    typedef HopperShape<Cfg, Product> S;
    typedef HopperSums<Cfg, Product> H;
    typedef typename S::Acc Acc;
    typedef typename S::Sum Sum;
    static_assert(S::kRingBytes + S::kBoxesBytes +
                          (Epilogue::kHeld && !S::kManyRows ? S::kLeftBytes
                                                            : S::kStagedRows * S::kPitch * 4) +
                          1024 ==
                      Cfg::kSmemBytes,
                  "the shared memory that the launch asks for");
    extern __shared__ __align__(1024) char smem[];
    __shared__ __align__(8) uint64_t barriers[2 * Cfg::kStages + (S::kGather > 1 ? 1 : 0)];
    const uint32_t ring = (smem_address(smem) + 1023) / 1024 * 1024;
    const uint32_t full = smem_address(barriers), empty = full + 8 * Cfg::kStages;
    const uint32_t sent = empty + 8 * Cfg::kStages;
    if (threadIdx.x == 0) {
        map_prefetch(p.map[0]);
        for (int i = 0; i < Cfg::kStages; i++) {
            barrier_init(full + i * 8, S::kFullArrivals);
            barrier_init(empty + i * 8, S::kWarps * Cfg::kCluster * kWarpArrivals);
        }
        if constexpr (S::kGather > 1)
            barrier_init_sent(sent,
                              HopperDealt<Cfg, S, Epilogue>::bytes_for(HopperWork<Cfg, S>::rank()));
        barrier_init_done();
    }
    cluster_begin<Cfg::kCluster>();
    if constexpr (HopperGroups<Cfg>::kNum > 0)
        HopperGroups<Cfg>::template count<HopperWork<Cfg, S>::kRows, HopperWork<Cfg, S>::kTilesN>(
            p);
    if (threadIdx.x >= S::kThreads) {
        registers_give<S::kFewRegisters>();
        hopper_copies<Cfg, S>(p, ring, full);
        return;
    }
    registers_take<S::kManyRegisters>();
    wait_for_producer();
    const Operand a = p.op[Cfg::kOperandA];
    const int64_t m = p.dim[0];
    /* (the same in all threads of a warp, as the compiler is told) */
    const int warp = __shfl_sync(0xFFFFFFFFu, threadIdx.x / 32, 0), group = warp / 4;
    const int lane = threadIdx.x % 32;
    const int row0 = warp * 16 + lane / 4; /* of the left operand; and row0 + 8 */
    HopperWork<Cfg, S> work(m);
    HopperStage<Cfg, S> stage(ring, full);
    HopperBox<Cfg, S> box(ring);
    uint32_t used = full; /* the barrier of the stage before this one */
    bool ready = false;
#pragma unroll 1
    while (work.next()) {
        int tile_m, n0;
        work.place(&tile_m, &n0);
        Sum sums[S::kSums], total[Cfg::kPartsOfK > 1 ? S::kSums : 1];
        if constexpr (Cfg::kPromote)
            H::clear(sums);
        if constexpr (Cfg::kPartsOfK > 1)
            H::clear(total);
        hopper_sums<Cfg, Product>(sums, total, work, stage, box, used, ready, group, row0, lane);
        if (work.is_done())
            let_consumer_start();
        if constexpr (Cfg::kShare)
            if (work.to - work.from < S::kUnits &&
                !hopper_gather<Cfg, S>(sums, work, p.op[Cfg::kOperandSplit].data))
                continue;
        /* What the epilogue loads may be loaded before what it stores, but not before this. */
        asm volatile("" : "+r"(tile_m), "+r"(n0));
        /* (found anew, or what depends on it is kept while units are multiplied) */
        const int own = Cfg::kPromote ? row0 : warp * 16 + __shfl_sync(0xFFFFFFFFu, lane, lane) / 4;
        char *staged = smem + (ring - smem_address(smem)) + S::kRingBytes + S::kBoxesBytes;
        if constexpr (HopperGroups<Cfg>::kNum > 0) {
            const auto of = p.of_group(work.group, work.first, work.rows);
            hopper_epilogue<Cfg, Product, Epilogue>(of, of.op[Cfg::kOperandA], sums, work.rows,
                                                    tile_m, n0, own, staged, ring, sent);
        } else {
            hopper_epilogue<Cfg, Product, Epilogue>(p, a, sums, m, tile_m, n0, own, staged, ring,
                                                    sent);
        }
    }
    if constexpr (Cfg::kLeaves)
        leaving_done();
    cluster_end<Cfg::kCluster>();
}

#endif
