/* What a tile of hopper.cuh (which says what Cfg is) is made of, and the sums that a thread holds
 * of it: how they are scaled and added up, and how they lie for the epilogue. */
#ifndef SINTER_CUDA_HOPPER_SUMS
#define SINTER_CUDA_HOPPER_SUMS

#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/gemm_shape.cuh"
#include "kernels/cuda/hopper_tiles.cuh"
#include "kernels/cuda/staged.cuh"

template <class Cfg, class Product> struct HopperShape {
    static constexpr bool kInt = Cfg::kA == FMT_I8 || Cfg::kA == FMT_U8;
    typedef typename AccumulatorOf<kInt>::Type Acc;                      /* of an instruction */
    typedef typename AccumulatorOf<kInt && !Cfg::kMainloop>::Type Sum;   /* of the tile */
    static constexpr int kElements = 1024 / Bits<Cfg::kA>::kBits;        /* in 128 bytes */
    static constexpr int kUnits = (Cfg::kK + kElements - 1) / kElements; /* along K */
    static constexpr int kClusterM = Cfg::kCluster, kClusterN = 1, kGather = Cfg::kGather;
    static constexpr int kTeams = (Cfg::kSwap ? Cfg::kBN : Cfg::kBM) / 64;
    static constexpr bool kManyRows = Cfg::kSwap && Cfg::kBM > 64;     /* right ones */
    static constexpr int kWarps = 4 * kTeams, kThreads = 128 * kTeams; /* that multiply */
    /* Warps of which a lane begins copies, a unit each in turn: one took as long for a unit's as
     * the products of small tiles. */
    static constexpr int kCopiers = kTeams == 1 ? 2 : 1;
    /* Of a thread that copies (more where it copies scales), and of one that multiplies: what the
     * block starts with, a multiple of 8 for each thread, is shared out. */
    static constexpr int kShared = kTeams == 1 ? 256 : 512; /* two blocks have a processor */
    static constexpr int kStartRegisters = kShared / (kTeams + 1) / 8 * 8 * (kTeams + 1);
    static constexpr int kFewRegisters = Cfg::kMainloop ? 40 : 24;
    static constexpr int kManyRegisters = (kStartRegisters - kFewRegisters) / kTeams / 8 * 8;
    static constexpr int kTilesN = (Cfg::kN + Cfg::kBN - 1) / Cfg::kBN;
    static constexpr int kABytes = Cfg::kBM * 128, kWBytes = Cfg::kBN * 128;
    static constexpr int kSubs = Cfg::kPromote ? 4 / Cfg::kPromote : 1; /* promotions of a unit */
    static constexpr bool kScales = Cfg::kMainloop;
    static constexpr bool kAScales = kScales && Cfg::kAScale;
    /* Those of a lie [kBM][4], as boxes bring them behind the ring, or [kSubs][kBM] in a stage. */
    static constexpr bool kABox = kAScales && Cfg::kAScaleBox, kAEach = kAScales && !kABox;
    static constexpr int kARowStep = kABox ? 4 : 1;
    static constexpr int kAScaleBytes = kAEach ? kSubs * Cfg::kBM * 4 : 0; /* of a stage */
    static constexpr int kBoxBytes = Cfg::kBM * 16,
                         kBoxesBytes = kABox ? Cfg::kStages * kBoxBytes : 0;
    /* Packed rows of w that one scale in the grid serves (pack.h), and scales of a tile. */
    static constexpr int kWRun = Cfg::kWUniform ? 8 : 1, kWScales = Cfg::kBN / kWRun;
    static constexpr int kGridCols = Cfg::kN / kWRun;
    static constexpr int kScaleBytes = kScales ? kAScaleBytes + kSubs * kWScales * 4 : 0;
    /* Those of few rows are words that a warp copies: bulk copies of so few bytes take longer. */
    static constexpr bool kWBulk = kScales && (!Cfg::kSwap || kManyRows);
    static constexpr bool kWEach = kScales && !kWBulk;
    /* What arrives when a stage's scales are there: who begins bulk copies, .. */
    static constexpr bool kScalesBulk = kABox || kWBulk;
    /* .. and lanes whose copies are of words. */
    static constexpr int kScaleLanes = kAEach || kWEach ? 32 : 0;
    /* Warps that copy scales, a unit each in turn. */
    static constexpr int kScaleWarps = kWEach && !Cfg::kWUniform ? 2 : 1;
    static constexpr int kFullArrivals = 1 + kScalesBulk + kScaleLanes;
    static constexpr int kStageBytes = (kABytes + kWBytes + kScaleBytes + 1023) / 1024 * 1024;
    static constexpr int kRight = Cfg::kSwap ? Cfg::kBM : Cfg::kBN; /* rows of the right operand */
    static constexpr int kHalves = kRight / Product::kN;
    static constexpr int kSums = kRight / 2;             /* of a thread */
    static constexpr int kCols = Cfg::kBN / Cfg::kParts; /* of one part */
    static constexpr bool kHalf = kCols % 32 != 0;       /* of a run, behind whole ones */
    static constexpr int kRunCols = kCols - kCols % 32;
    static constexpr int kPitch = Cfg::kBN + 4; /* words of a staged row */
    static constexpr int kRingBytes = kStageBytes * Cfg::kStages;
    /* Rows of results of 16 bits that leave through shared memory, 16 of each warp; from row to row
     * there: two rows' accesses of 16 bytes a lane then meet no bank twice. */
    static constexpr int kLeaveRow = kCols * 2, kLeavePitch = (kLeaveRow + 127) / 128 * 128 + 64;
    static constexpr int kLeftBytes = Cfg::kLeaves ? kWarps * 16 * kLeavePitch : 0;
    /* 8 of each warp, or those of a pass. */
    static constexpr int kStagedRows = Cfg::kSwap ? Cfg::kPassRows : 8 * kWarps;
    static constexpr int kPieceBytes = kThreads * kSums * 4;
    /* With kSwap rows of the tile that a block finishes: all, or of a cluster that gathers sums its
     * share. */
    static constexpr int kOwnRows = kGather > 1 ? (Cfg::kBM / 8 + kGather - 1) / kGather * 8
                                                : Cfg::kBM;
    static constexpr int kPartUnits = kUnits / Cfg::kPartsOfK; /* along K */
    /* The first element of K of promotion `sub` of unit k. (Padding of K has any scale.) */
    static __device__ __forceinline__ int first_of(int k, int sub)
    {
        const int at = (k * kSubs + sub) * (kElements / kSubs);
        return Cfg::kK % kElements == 0 || at < Cfg::kK ? at : Cfg::kK - 1;
    }
    /* Each column has a scale of w, which a thread reads as it needs them. */
    static constexpr bool kEachScale = !Cfg::kSwap && !Cfg::kWUniform;
    /* Where each row of w has a scale, that of packed row `in` of 32 lies here among theirs, which
     * have the rows' own order. */
    static __device__ __forceinline__ int in_order(int in)
    {
        return in % 8 / 2 * 8 + in / 8 * 2 + in % 2;
    }
    /* The scales of w: [blocks of K][kGridCols]. */
    static __device__ __forceinline__ const float *grid(const void *w)
    {
        return (const float *)((const char *)w + Cfg::kWScaleAt);
    }
    /* The first column of unit k in the grid of a's scales. */
    static __device__ __forceinline__ int a_block(int k)
    {
        return Cfg::kABlockK ? first_of(k, 0) / Cfg::kABlockK : 0;
    }
    /* A box begins at a multiple of four columns (else the copy fails), and serves all units whose
     * columns it has; that of unit `from`, the first of a block's share, is copied in any case. */
    static __device__ __forceinline__ bool begins_box(int k, int from)
    {
        constexpr int kBoxUnits = Cfg::kABlockK > kElements / 4 ? Cfg::kABlockK * 4 / kElements : 1;
        return (k == from) | (k % kBoxUnits == 0);
    }
    /* Of the four scales of a row in a box, that of promotion `sub`. */
    static __device__ __forceinline__ int in_box(int k, int sub)
    {
        constexpr int kEach = Cfg::kABlockK ? Cfg::kABlockK : Cfg::kK;
        return a_block(k) % 4 + sub * (kElements / kSubs) / kEach;
    }
    /* The row of promotion `sub` of unit k in the grid of w's scales. */
    static __device__ __forceinline__ int w_block(int k, int sub)
    {
        return first_of(k, sub) / (Cfg::kWBlockK ? Cfg::kWBlockK : Cfg::kK);
    }
    static_assert(Cfg::kBM % 8 == 0 && Cfg::kBN % 32 == 0, "whole atoms of rows");
    static_assert(kGather == 1 || (!(Cfg::kMainloop && kInt) && Cfg::kPartsOfK == 1),
                  "floats, or integers of one scale");
    static_assert(kUnits % Cfg::kPartsOfK == 0 && (Cfg::kPartsOfK == 1 || !Cfg::kShare),
                  "equal parts of K, by one block");
    static_assert((Cfg::kSwap ? Cfg::kBN : Cfg::kBM) == 64 * kTeams && kTeams >= 1 && kTeams <= 4,
                  "warpgroups of 64 rows each");
    static_assert(Cfg::kStages >= 2, "who copies every other unit is at most a round ahead");
    static_assert(!kHalf || (Cfg::kParts == 2 && kCols % 32 == 16 && !kScales && !Cfg::kSwap &&
                             Cfg::kCluster == 1 && kGather == 1 && !Cfg::kLeaves &&
                             Cfg::kN % (2 * Cfg::kBN) == 0),
                  "halves of runs are those of gate and up, in pairs of whole tiles");
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
    /* .. `columns` further on, and of the lower row. */
    __device__ __forceinline__ HeldSums further(int columns, bool lower) const
    {
        return {sums + 2 * lower, from + columns, part_of};
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

/* .. of half a run of each of two parts, which lie one behind the other: four neighbours. */
template <class Sum> struct HalfSums {
    const Sum *sums;

    __device__ __forceinline__ HalfSums part(int part) const
    {
        return {sums + 8 * part};
    }
    __device__ __forceinline__ HalfSums further(int, bool lower) const
    {
        return {sums + 2 * lower};
    }
};
template <class Sum, class S>
__device__ __forceinline__ void row_acc(const Row<S> &, const HalfSums<Sum> &held,
                                        Sum (&dst)[S::kE])
{
    static_assert(S::kE == 4 && S::kV == 4, "as the fragments lie");
    SINTER_EACH(e) dst[e] = held.sums[e / 2 * 4 + e % 2];
}

template <class Cfg, class Product> struct HopperSums {
    typedef HopperShape<Cfg, Product> S;
    typedef typename S::Acc Acc;
    typedef typename S::Sum Sum;

    /* Scales that meet this thread's sums, of one promotion: of its two rows of a (with kSwap, of
     * the columns of its fragments) and of w, which lie in the stage, [kSubs][kWScales], behind
     * those of a that are no box. */
    static constexpr int kActs = !Cfg::kAScale ? 0 : Cfg::kSwap ? S::kSums / 2 : 2;
    static constexpr int kRun = Cfg::kBN % 128 ? 64 : 128; /* columns of a scale (kWUniform) */
    static constexpr int kWeights = Cfg::kSwap        ? 2
                                    : !Cfg::kWUniform ? 1
                                    : Cfg::kParts > 1 ? Cfg::kParts
                                                      : (Cfg::kBN + kRun - 1) / kRun;
    struct Scales {
        float a[kActs > 0 ? kActs : 1], w[kWeights];
    };
    static __device__ __forceinline__ float scale_at(uint32_t scales, int i)
    {
        return num_float(load_shared4(scales + i * 4));
    }
    static __device__ __forceinline__ void read_scales(Scales &s, uint32_t a, uint32_t w, int row,
                                                       int lane)
    {
#pragma unroll
        for (int i = 0; i < kActs; i++) {
            const int of = Cfg::kSwap ? i / 2 * 8 + lane % 4 * 2 + i % 2 : row + i * 8;
            s.a[i] = scale_at(a, of * S::kARowStep);
        }
#pragma unroll
        for (int i = 0; i < kWeights; i++)
            if (Cfg::kSwap && S::kWBulk && !Cfg::kWUniform) /* in the rows' own order */
                s.w[i] = scale_at(w, row / 32 * 32 + S::in_order(row % 32 + i * 8));
            else if (Cfg::kSwap)
                s.w[i] = scale_at(w, (row + i * 8) / S::kWRun);
            else if (Cfg::kWUniform)
                s.w[i] = scale_at(w, i * (Cfg::kParts > 1 ? 32 : kRun) / S::kWRun);
    }

    /* Those of the columns that this thread's fragments have of 32, side by side (pack.h). */
    static __device__ __forceinline__ void read_eight(float (&w)[8], uint32_t of_w, int block,
                                                      int lane)
    {
        const uint32_t at = of_w + (block * 32 + lane % 4 * 8) * 4;
        const Bytes16 low = load_shared16(at), high = load_shared16(at + 16);
        const uint32_t word[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
        for (int i = 0; i < 8; i++)
            w[i] = num_float(word[i]);
    }

    /* Adds an instruction's worth of sums, of columns half * Product::kN on, to the tile's. */
    static __device__ __forceinline__ void promote(Sum *sums, const Acc *block, int half,
                                                   const Scales &s, uint32_t of_w, int lane)
    {
        float eight_w[8];
#pragma unroll
        for (int i = 0; i < Product::kN / 2; i++) {
            const int at = half * (Product::kN / 2) + i, eight = at / 4;
            if constexpr (!Cfg::kMainloop) {
                sums[at] = sums[at] + (Sum)block[i];
            } else {
                /* (an instruction of 112 columns begins among those of 32) */
                if (S::kEachScale && (i == 0 || at % 16 == 0))
                    read_eight(eight_w, of_w, at / 16, lane);
                float w;
                if constexpr (Cfg::kSwap)
                    w = s.w[i / 2 % 2];
                else if constexpr (Cfg::kWUniform)
                    w = s.w[Cfg::kParts > 1 ? eight / 4 % Cfg::kParts : eight / (kRun / 8)];
                else
                    w = eight_w[eight % 4 * 2 + i % 2];
                if constexpr (Cfg::kAScale)
                    w = s.a[Cfg::kSwap ? eight * 2 + i % 2 : i / 2 % 2] * w;
                sums[at] = num_fma((float)block[i], w, sums[at]);
            }
        }
    }

    static __device__ __forceinline__ void clear(Sum *sums)
    {
#pragma unroll
        for (int i = 0; i < S::kSums; i++)
            sums[i] = 0;
    }
    /* .. and the last part, too: the sums are the total. */
    static __device__ __forceinline__ void end(Sum *total, Sum *sums)
    {
        fold(total, sums);
#pragma unroll
        for (int i = 0; i < S::kSums; i++)
            sums[i] = total[i];
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
    /* kSwap: the fragments' columns are rows of c, ROWS of them; PAIRS: as staged_column has them.
     */
    template <int ROWS, bool PAIRS = false>
    static __device__ __forceinline__ void stage_transposed(char *smem, const Sum *sums, int row,
                                                            int lane)
    {
#pragma unroll
        for (int i = 0; i < ROWS / 2; i++) {
            const int n = row + i / 2 % 2 * 8, in = n % 32, block = n / 32;
            const int col = block % Cfg::kParts * S::kCols + block / Cfg::kParts * 32 +
                            in % 8 / 2 * 8 + in / 8 * 2 + in % 2;
            const int m = i / 4 * 8 + lane % 4 * 2 + i % 2;
            *(Sum *)(smem + (m * S::kPitch + (PAIRS ? staged_column(m, col) : col)) * 4) = sums[i];
        }
    }
    /* .. kPassRows of them, of pass `pass`. */
    template <bool PAIRS, int PASS = 0>
    static __device__ __forceinline__ void stage_pass(int pass, char *smem, const Sum *sums,
                                                      int row, int lane)
    {
        if (pass == PASS)
            stage_transposed<Cfg::kPassRows, PAIRS>(smem, sums + PASS * (Cfg::kPassRows / 2), row,
                                                    lane);
        else if constexpr ((PASS + 1) * Cfg::kPassRows < Cfg::kBM)
            stage_pass<PAIRS, PASS + 1>(pass, smem, sums, row, lane);
    }
};

#endif
