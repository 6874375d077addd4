/* GEMM for compute capability 9.0 (wgmma, TMA):
 *
 *   c[m, n] = sum over k of a[m, k] * w[n, k], then the fused epilogue.
 *
 * a: [M, K] row-major, read through the tensor map p.map[0] in boxes of kBM rows by 128 bytes. w:
 * packed as `panels` (pack.h): for each 128 bytes of K all kN rows, 8 rows by 128 bytes at a time
 * as wgmma reads them, so that any run of rows is one bulk copy. Rows are permuted inside each 32:
 * what the fragments of a thread hold of 32 columns are 8 neighbours (PTX ISA, "wgmma.mma_async",
 * fragment of D). With kParts = 2 runs of 32 rows alternate between the parts.
 *
 * Blocks stay and take tile after tile. Warpgroups 0 and 1 multiply, 64 rows of the left operand
 * each. Of warpgroup 2 one thread fills a ring of kStages stages of 128 bytes of K (a unit), and
 * one warp copies the scales that belong to them. With kSwap w is the left operand: 128 rows of w
 * by few rows of a, for which the tile is transposed in shared memory.
 *
 * kCluster = 2: two blocks take tiles one below the other and copy half of their rows of w each,
 * for both.
 *
 * kPromote > 0: after so many instructions (of 32 bytes of K) their sums are added to f32 sums: for
 * floats of 8 bits, whose products the tensor cores add with about 14 bits, every 128 bytes; and
 * with kMainloop where scales change along K, f = fma((float)block, sa * sw, f), blocks ascending.
 * Else sums stay where they are: integers are exact, 16-bit floats are added in f32.
 *
 * kPartsOfK > 1: a block adds up as many equal parts of K, each from zero, and then the parts, in
 * the order of blocks that share a tile evenly (hopper_tiles.cuh: kShare).
 *
 * Cfg: kA kW kK kN (packed rows) kBM kBN kStages kBand kCluster kParts kSwap kShare kPartsOfK
 * kPromote kMainloop kBlockK kABlockRows kABlockK kWBlockK kWScaleAt kWDecoded (an
 * earlier launch made w) kWUniform (128 rows share a
 * scale of w:
 * the grid is [blocks of K][parts][kN / kParts / 128, rounded up]; else [blocks of K][kN])
 * kOperandA kOperandW kOperandSplit kSplitSums kSmemBytes. Product::add(d, left, right, keep): one
 * wgmma of 64 by Product::kN, d = left * right + (keep ? d : 0). */
#ifndef SINTER_CUDA_HOPPER
#define SINTER_CUDA_HOPPER

#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/gemm_shape.cuh"
#include "kernels/cuda/hopper_tiles.cuh"

template <class Cfg, class Product> struct HopperShape {
    static constexpr bool kInt = Cfg::kA == FMT_I8 || Cfg::kA == FMT_U8;
    typedef typename AccumulatorOf<kInt>::Type Acc;                      /* of an instruction */
    typedef typename AccumulatorOf<kInt && !Cfg::kMainloop>::Type Sum;   /* of the tile */
    static constexpr int kElements = 1024 / Bits<Cfg::kA>::kBits;        /* in 128 bytes */
    static constexpr int kUnits = (Cfg::kK + kElements - 1) / kElements; /* along K */
    static constexpr int kClusterM = Cfg::kCluster, kClusterN = 1;
    static constexpr int kTilesN = (Cfg::kN + Cfg::kBN - 1) / Cfg::kBN;
    static constexpr int kABytes = Cfg::kBM * 128, kWBytes = Cfg::kBN * 128;
    static constexpr int kSubs = Cfg::kPromote ? 4 / Cfg::kPromote : 1; /* promotions of a unit */
    static constexpr bool kScales = Cfg::kMainloop;
    /* Columns of the tile that one scale of w serves: its runs of 64, or the runs of 32 of a part.
     */
    static constexpr int kWScales = !Cfg::kWUniform    ? Cfg::kBN
                                    : Cfg::kSwap       ? Cfg::kParts
                                    : Cfg::kParts == 1 ? (Cfg::kBN + 63) / 64
                                                       : Cfg::kParts;
    static constexpr int kScaleBytes = kScales ? kSubs * (Cfg::kBM + kWScales) * 4 : 0;
    static constexpr int kStageBytes = (kABytes + kWBytes + kScaleBytes + 1023) / 1024 * 1024;
    static constexpr int kRight = Cfg::kSwap ? Cfg::kBM : Cfg::kBN; /* rows of the right operand */
    static constexpr int kHalves = kRight / Product::kN;
    static constexpr int kSums = kRight / 2;             /* of a thread */
    static constexpr int kCols = Cfg::kBN / Cfg::kParts; /* of one part */
    static constexpr int kPitch = Cfg::kBN + 4;          /* words of a staged row */
    static constexpr int kRingBytes = kStageBytes * Cfg::kStages;
    static constexpr int kStagedRows = Cfg::kSwap ? Cfg::kBM : 8 * 8; /* 8 of each warp, or all */
    static constexpr int kThreads = 256;                              /* that multiply */
    static constexpr int kPieceBytes = kThreads * kSums * 4;
    static constexpr int kPartUnits = kUnits / Cfg::kPartsOfK; /* along K */
    static_assert(Cfg::kBM % 8 == 0 && Cfg::kBN % 32 == 0, "whole atoms of rows");
    static_assert(kUnits % Cfg::kPartsOfK == 0 && (Cfg::kPartsOfK == 1 || !Cfg::kShare),
                  "equal parts of K, by one block");
    static_assert(Cfg::kSwap ? Cfg::kBN == 128 : Cfg::kBM == 128, "two warpgroups, 64 rows each");
    static_assert(kRight % Product::kN == 0 && Product::kN <= 256, "whole instructions");
    static_assert(!Cfg::kMainloop || Cfg::kBlockK % (kElements / kSubs) == 0,
                  "scales change between promotions");
};

/* What the fragments of a thread hold of one row of the tile, for the columns of a part: eight
 * neighbours of every 32. row_acc(row, .., dst): columns of the tile's part from `from` on. */
template <class Sum, int PARTS> struct HeldSums {
    const Sum *sums; /* of the thread; + 2 for the lower of its two rows */
    int from;        /* a multiple of 32, known when compiled */
    int part_of;

    __device__ __forceinline__ HeldSums part(int part) const
    {
        return {sums, from, part};
    }
};
template <class Sum, int PARTS, class S>
__device__ __forceinline__ void row_acc(const Row<S> &, const HeldSums<Sum, PARTS> &held,
                                        Sum (&dst)[S::kE])
{
    static_assert(S::kT == 4 && S::kV == 8, "as the fragments lie");
    SINTER_EACH(e)
    {
        const int block = (held.from / 32 + e / 8) * PARTS + held.part_of; /* of 32 packed rows */
        dst[e] = held.sums[(block * 4 + e % 8 / 2) * 4 + e % 2];
    }
}

template <class Cfg, class Product> struct HopperSums {
    typedef HopperShape<Cfg, Product> S;
    typedef typename S::Acc Acc;
    typedef typename S::Sum Sum;

    /* Scales that meet this thread's sums, of one promotion: of its two rows of a (with kSwap, of
     * the columns of its fragments) and of w. They lie in the stage, those of a first. */
    static constexpr int kActs = Cfg::kSwap ? S::kSums / 2 : 2;
    static constexpr int kWeights = Cfg::kSwap ? 2 : Cfg::kWUniform ? S::kWScales : 1;
    struct Scales {
        float a[kActs], w[kWeights];
    };
    static __device__ __forceinline__ float scale_at(uint32_t scales, int i)
    {
        return num_float(load_shared4(scales + i * 4));
    }
    static __device__ __forceinline__ void read_scales(Scales &s, uint32_t scales, int row,
                                                       int lane)
    {
        const uint32_t of_w = scales + Cfg::kBM * 4;
#pragma unroll
        for (int i = 0; i < kActs; i++)
            s.a[i] = scale_at(scales, Cfg::kSwap ? i / 2 * 8 + lane % 4 * 2 + i % 2 : row + i * 8);
#pragma unroll
        for (int i = 0; i < kWeights; i++)
            if (Cfg::kSwap)
                s.w[i] = scale_at(of_w, Cfg::kWUniform ? row / 32 % Cfg::kParts : row + i * 8);
            else if (Cfg::kWUniform)
                s.w[i] = scale_at(of_w, i);
    }

    /* Adds an instruction's worth of sums, of columns half * Product::kN on, to the tile's. */
    static __device__ __forceinline__ void promote(Sum *sums, const Acc *block, int half,
                                                   const Scales &s, uint32_t scales, int lane)
    {
#pragma unroll
        for (int i = 0; i < Product::kN / 2; i++) {
            const int at = half * (Product::kN / 2) + i, eight = at / 4;
            if constexpr (!Cfg::kMainloop) {
                sums[at] = sums[at] + (Sum)block[i];
            } else {
                float w;
                if constexpr (Cfg::kSwap)
                    w = s.w[i / 2 % 2];
                else if constexpr (Cfg::kWUniform)
                    w = s.w[Cfg::kParts > 1 ? eight / 4 % Cfg::kParts : eight / 8];
                else
                    w = scale_at(scales + Cfg::kBM * 4, eight * 8 + lane % 4 * 2 + i % 2);
                const float a = s.a[Cfg::kSwap ? eight * 2 + i % 2 : i / 2 % 2];
                sums[at] = num_fma((float)block[i], a * w, sums[at]);
            }
        }
    }

    /* A part of K is whole: the total takes its sums, and the next part begins at zero. */
    static __device__ __forceinline__ void fold(Sum *total, Sum *sums)
    {
#pragma unroll
        for (int i = 0; i < S::kSums; i++) {
            total[i] = total[i] + sums[i];
            sums[i] = 0;
        }
    }

    /* Epilogues -------------------------------------------------------------------------------- */

    /* Eight neighbours of a row of the tile, in its place among the parts. */
    static __device__ __forceinline__ void stage_eight(char *row, const Sum *sums, int block,
                                                       int lane)
    {
        const int col = block % Cfg::kParts * S::kCols + block / Cfg::kParts * 32 + lane % 4 * 8;
        uint32_t word[8];
#pragma unroll
        for (int i = 0; i < 8; i++)
            word[i] = *(const uint32_t *)&sums[(block * 4 + i / 2) * 4 + i % 2];
        *(Bytes16 *)(row + col * 4) = Bytes16{word[0], word[1], word[2], word[3]};
        *(Bytes16 *)(row + col * 4 + 16) = Bytes16{word[4], word[5], word[6], word[7]};
    }
    /* kSwap: the fragments' columns are rows of c. */
    static __device__ __forceinline__ void stage_transposed(char *smem, const Sum *sums, int row,
                                                            int lane)
    {
#pragma unroll
        for (int i = 0; i < S::kSums; i++) {
            const int n = row + i / 2 % 2 * 8, in = n % 32, block = n / 32;
            const int col = block % Cfg::kParts * S::kCols + block / Cfg::kParts * 32 +
                            in % 8 / 2 * 8 + in / 8 * 2 + in % 2;
            const int m = i / 4 * 8 + lane % 4 * 2 + i % 2;
            *(Sum *)(smem + (m * S::kPitch + col) * 4) = sums[i];
        }
    }
};

/* One thread: fills the ring, in the order in which it is read. Weights do not depend on earlier
 * kernels, unless one decoded them (kWDecoded): those of the first stages are on their way before
 * it waits for the producer of a. */
template <class Cfg, class S, class Params>
__device__ __forceinline__ void hopper_copy(const Params &p, uint32_t ring, uint32_t full,
                                            uint32_t empty)
{
    const char *w = (const char *)p.op[Cfg::kOperandW].data;
    const uint64_t policy = policy_evict_first();
    auto load_w = [&](int slot, int k, int n0) {
        const int left = Cfg::kN - n0, rows = left < Cfg::kBN ? left : Cfg::kBN;
        const uint32_t to = ring + slot * S::kStageBytes + S::kABytes;
        const char *from = w + ((int64_t)k * Cfg::kN + n0) * 128;
        barrier_expect(full + slot * 8, S::kABytes + rows * 128);
        if constexpr (Cfg::kCluster == 1) {
            copy_bulk(to, from, rows * 128, full + slot * 8, policy);
        } else { /* half of them, for both blocks */
            const int first = blockIdx.x % 2 * (Cfg::kBN / 2);
            const int part = rows - first < Cfg::kBN / 2 ? rows - first : Cfg::kBN / 2;
            if (part > 0)
                copy_bulk_both(to + first * 128, from + first * 128, part * 128, full + slot * 8,
                               policy);
        }
    };
    HopperWork<Cfg, S> work(p.dim[0]), early(p.dim[0]);
    int filled = 0, started = 0, m0, n0;
    if constexpr (Cfg::kWDecoded)
        wait_for_producer();
    while (started < Cfg::kStages && early.next()) {
        early.place(&m0, &n0);
        for (int k = early.from; k < early.to && started < Cfg::kStages; k++, started++)
            load_w(started, k, n0);
    }
    wait_for_producer();
    while (work.next()) {
        work.place(&m0, &n0);
#pragma unroll 1
        for (int k = work.from; k < work.to; k++, filled++) {
            const int slot = filled % Cfg::kStages;
            if (filled >= started) {
                barrier_wait(empty + slot * 8, (filled / Cfg::kStages & 1) ^ 1);
                load_w(slot, k, n0);
            }
            copy_box(ring + slot * S::kStageBytes, p.map[0], k * 128, m0, full + slot * 8);
        }
    }
}

/* One warp: the scales of every stage, in the same order, as copies that arrive by themselves. */
template <class Cfg, class S, class Params>
__device__ __forceinline__ void hopper_copy_scales(const Params &p, uint32_t ring, uint32_t full,
                                                   uint32_t empty)
{
    constexpr int kStep = S::kElements / S::kSubs; /* of K, that a promotion adds up */
    constexpr int kABlock = Cfg::kABlockK ? Cfg::kABlockK : Cfg::kK;
    constexpr int kWBlock = Cfg::kWBlockK ? Cfg::kWBlockK : Cfg::kK;
    constexpr int kACols = (Cfg::kK + kABlock - 1) / kABlock;
    constexpr int kEach = Cfg::kWUniform ? (Cfg::kN / Cfg::kParts + 127) / 128 : Cfg::kN;
    const int lane = threadIdx.x % 32;
    const Operand a = p.op[Cfg::kOperandA];
    const float *grid = (const float *)((const char *)p.op[Cfg::kOperandW].data + Cfg::kWScaleAt);
    HopperWork<Cfg, S> work(p.dim[0]);
    int filled = 0, m0, n0;
    wait_for_producer();
    while (work.next()) {
        work.place(&m0, &n0);
#pragma unroll 1
        for (int k = work.from; k < work.to; k++, filled++) {
            const int slot = filled % Cfg::kStages;
            const uint32_t scales = ring + slot * S::kStageBytes + S::kABytes + S::kWBytes;
            barrier_wait(empty + slot * 8, (filled / Cfg::kStages & 1) ^ 1);
#pragma unroll
            for (int sub = 0; sub < S::kSubs; sub++) {
                const uint32_t to = scales + sub * ((Cfg::kBM + S::kWScales) * 4);
                int at = (k * S::kSubs + sub) * kStep; /* padding of K has any scale */
                at = at < Cfg::kK ? at : Cfg::kK - 1;
#pragma unroll 1
                for (int i = lane; i < Cfg::kBM; i += 32) {
                    const int64_t row = m0 + i < p.dim[0] ? m0 + i : p.dim[0] - 1;
                    const int64_t block =
                        Cfg::kABlockRows ? row / (Cfg::kABlockRows ? Cfg::kABlockRows : 1) : 0;
                    copy_word(to + i * 4, a.scale + block * kACols + at / kABlock);
                }
#pragma unroll 1
                for (int i = lane; i < S::kWScales; i += 32) {
                    int column = n0 + i, of = at / kWBlock * (Cfg::kWUniform ? Cfg::kParts : 1);
                    if (Cfg::kWUniform) {
                        of += Cfg::kParts > 1 ? i : 0;
                        column = Cfg::kParts > 1 ? n0 / Cfg::kParts / 128 : (n0 + i * 64) / 128;
                    }
                    column = column < kEach ? column : kEach - 1;
                    copy_word(to + (Cfg::kBM + i) * 4, grid + (int64_t)of * kEach + column);
                }
            }
            arrive_after_copies(full + slot * 8);
        }
    }
}

/* The epilogue of a tile of `m` rows in all: in registers, or over rows staged in shared memory.
 * row0: the thread's first row of the tile. */
template <class Cfg, class Product, class Epilogue, class Params, class Sums>
__device__ __forceinline__ void hopper_epilogue(const Params &p, const Operand &a, const Sums &sums,
                                                int64_t m, int64_t m0, int n0, int row0,
                                                char *staged)
{
    typedef HopperShape<Cfg, Product> S;
    typedef HopperSums<Cfg, Product> H;
    typedef typename S::Sum Sum;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if constexpr (Epilogue::kHeld) {
#pragma unroll
        for (int c = 0; c < S::kCols; c += Epilogue::kCols)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int64_t row = m0 + row0 + h * 8;
                if (row < m)
                    Epilogue::held(p, a, HeldSums<Sum, Cfg::kParts>{sums + 2 * h, c, 0}, row,
                                   n0 / Cfg::kParts + c, lane % 4);
            }
    } else if constexpr (Cfg::kSwap) {
        meet<1, 256>(); /* the rows before these have been read */
        H::stage_transposed(staged, sums, row0, lane);
        meet<1, 256>();
#pragma unroll 1
        for (int row = warp; row < Cfg::kBM && m0 + row < m; row += 8)
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

/* Epilogue::kHeld: held(p, a, sums, m, n0, lane): four lanes hold Epilogue::kCols columns of each
 * part of row m, from column n0 of each part on, as HeldSums. Else row(p, a, acc, m, n0, lane) as
 * for gemm_mma. */
template <class Cfg, class Product, class Epilogue, class Params>
__device__ __forceinline__ void hopper(const Params &p)
{
    typedef HopperShape<Cfg, Product> S;
    typedef HopperSums<Cfg, Product> H;
    typedef typename S::Acc Acc;
    typedef typename S::Sum Sum;
    static_assert(S::kRingBytes + (Epilogue::kHeld ? 0 : S::kStagedRows * S::kPitch * 4) + 1024 ==
                      Cfg::kSmemBytes,
                  "the shared memory that the launch asks for");
    extern __shared__ __align__(1024) char smem[];
    __shared__ __align__(8) uint64_t barriers[2 * Cfg::kStages];
    const uint32_t ring = (smem_address(smem) + 1023) / 1024 * 1024;
    const uint32_t full = smem_address(barriers), empty = full + 8 * Cfg::kStages;
    if (threadIdx.x == 0) {
        map_prefetch(p.map[0]);
        for (int i = 0; i < Cfg::kStages; i++) {
            barrier_init(full + i * 8, S::kScales ? 33 : 1);
            barrier_init(empty + i * 8, 8 * Cfg::kCluster); /* a lane of each warp that reads */
        }
        barrier_init_done();
    }
    cluster_begin<Cfg::kCluster>();
    if (threadIdx.x >= 256) {
        registers_give<40>();
        if (threadIdx.x == 256)
            hopper_copy<Cfg, S>(p, ring, full, empty);
        if (S::kScales && threadIdx.x / 32 == 9)
            hopper_copy_scales<Cfg, S>(p, ring, full, empty);
        return;
    }
    registers_take<232>();
    wait_for_producer();
    const Operand a = p.op[Cfg::kOperandA];
    const int64_t m = p.dim[0];
    const int group = threadIdx.x / 128, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row0 = warp * 16 + lane / 4; /* of the 128 rows of the left operand; and row0 + 8 */
    auto release = [&](int unit) {
        __syncwarp(); /* all lanes have read what they read themselves */
        cluster_arrive<Cfg::kCluster>(empty + unit % Cfg::kStages * 8, lane);
    };
    HopperWork<Cfg, S> work(m);
    int read = 0; /* units so far */
#pragma unroll 1
    while (work.next()) {
        int tile_m, n0;
        work.place(&tile_m, &n0);
        Sum sums[S::kSums], total[Cfg::kPartsOfK > 1 ? S::kSums : 1];
        if constexpr (Cfg::kPromote) {
#pragma unroll
            for (int i = 0; i < S::kSums; i++)
                sums[i] = 0;
        }
        if constexpr (Cfg::kPartsOfK > 1) {
#pragma unroll
            for (int i = 0; i < S::kSums; i++)
                total[i] = 0;
        }
#pragma unroll 1
        for (int k = work.from; k < work.to; k++, read++) {
            bool is_first = k == work.from; /* of a part of K */
            if constexpr (Cfg::kPartsOfK > 1) {
                is_first = k % S::kPartUnits == 0;
                if (is_first && k > 0) {
                    if constexpr (!Cfg::kPromote) {
                        products_wait<0>();
                        release(read - 1);
                    }
                    H::fold(total, sums);
                }
            }
            const uint32_t stage = ring + read % Cfg::kStages * S::kStageBytes;
            const uint64_t of_a = operand_at(stage), of_w = operand_at(stage + S::kABytes);
            const uint64_t left = (Cfg::kSwap ? of_w : of_a) + group * 512;
            const uint64_t right = Cfg::kSwap ? of_a : of_w;
            barrier_wait(full + read % Cfg::kStages * 8, read / Cfg::kStages & 1);
            if constexpr (!Cfg::kPromote) {
                products_begin();
#pragma unroll
                for (int i = 0; i < 4; i++)
                    Product::add(sums, left + 2 * i, right + 2 * i, i > 0 || !is_first);
                products_commit();
                if (!is_first) { /* the unit before this one is done */
                    products_wait<1>();
                    release(read - 1);
                }
            } else {
#pragma unroll
                for (int sub = 0; sub < S::kSubs; sub++) {
                    const uint32_t scales =
                        stage + S::kABytes + S::kWBytes + sub * ((Cfg::kBM + S::kWScales) * 4);
                    typename H::Scales of_sub;
                    if constexpr (S::kScales)
                        H::read_scales(of_sub, scales, row0, lane);
#pragma unroll
                    for (int half = 0; half < S::kHalves; half++) {
                        Acc block[Product::kN / 2];
                        products_begin();
#pragma unroll
                        for (int i = 0; i < Cfg::kPromote; i++)
                            Product::add(block, left + 2 * (sub * Cfg::kPromote + i),
                                         right + half * (Product::kN * 8) +
                                             2 * (sub * Cfg::kPromote + i),
                                         i > 0);
                        products_commit();
                        products_wait<0>();
                        const bool is_last = sub == S::kSubs - 1 && half == S::kHalves - 1;
                        constexpr bool kReads = S::kScales && !Cfg::kWUniform && !Cfg::kSwap;
                        if (is_last && !kReads)
                            release(read);
                        H::promote(sums, block, half, of_sub, scales, lane);
                        if (is_last && kReads)
                            release(read);
                    }
                }
            }
        }
        if constexpr (!Cfg::kPromote) {
            products_wait<0>();
            release(read - 1);
        }
        if constexpr (Cfg::kPartsOfK > 1) {
            H::fold(total, sums);
#pragma unroll
            for (int i = 0; i < S::kSums; i++)
                sums[i] = total[i];
        }
        if (work.at >= work.end)
            let_consumer_start();
        if constexpr (Cfg::kShare)
            if (work.to - work.from < S::kUnits &&
                !hopper_gather<Cfg, S>(sums, work, p.op[Cfg::kOperandSplit].data))
                continue;
        /* What the epilogue loads may be loaded before what it stores, but not before this. */
        asm volatile("" : "+r"(tile_m), "+r"(n0));
        hopper_epilogue<Cfg, Product, Epilogue>(p, a, sums, m, tile_m, n0, row0,
                                                smem + (ring - smem_address(smem)) + S::kRingBytes);
    }
    cluster_end<Cfg::kCluster>();
}

#endif
