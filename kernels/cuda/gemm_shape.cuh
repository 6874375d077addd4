/* What the tiled products on tensor cores (gemm_mma.cuh has their Cfg) are made of: sizes of stages
 * and tiles, one product, the scales of blocks of K. */
#ifndef SINTER_CUDA_GEMM_SHAPE
#define SINTER_CUDA_GEMM_SHAPE

#include "kernels/cuda/format.cuh"

template <bool IS_INT> struct AccumulatorOf {
    typedef float Type;
};
template <> struct AccumulatorOf<true> {
    typedef int32_t Type;
};

/* What the products on tensor cores share. */
template <class Cfg> struct GemmMma {
    static constexpr bool kInt = Cfg::kHome == HOME_I8;
    typedef typename AccumulatorOf<kInt>::Type Acc;

    static __device__ __forceinline__ void mma(Acc (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                               uint32_t b1, const Acc (&c)[4])
    {
        if constexpr (kInt)
            mma_i8<Bits<Cfg::kA>::kSigned, Bits<Cfg::kW>::kSigned>(d, a, b0, b1, c);
        else if (Cfg::kHome == HOME_F16)
            mma_f16(d, a, b0, b1, c);
        else
            mma_bf16(d, a, b0, b1, c);
    }
    /* 32 of K, of rows g (lo) and g + 8 (hi). */
    static __device__ __forceinline__ void multiply(Acc (&d)[4], const uint32_t (&lo)[4],
                                                    const uint32_t (&hi)[4], const uint32_t (&b)[4])
    {
#pragma unroll
        for (int half = 0; half < (kInt ? 1 : 2); half++) {
            uint32_t a[4] = {lo[2 * half], hi[2 * half], lo[2 * half + 1], hi[2 * half + 1]};
            mma(d, a, b[2 * half], b[2 * half + 1], d);
        }
    }

    static __device__ __forceinline__ float act_scale(const Operand &a, int64_t row, int block)
    {
        constexpr int kCols = Cfg::kABlockK ? (Cfg::kK + Cfg::kABlockK - 1) / Cfg::kABlockK : 1;
        int64_t r = Cfg::kABlockRows ? row / (Cfg::kABlockRows ? Cfg::kABlockRows : 1) : 0;
        int c = Cfg::kABlockK
                    ? (int)((int64_t)block * Cfg::kBlockK / (Cfg::kABlockK ? Cfg::kABlockK : 1))
                    : 0;
        float scale = a.scale[r * kCols + c];
        return a.outer ? num_scale_effective(scale, *a.outer) : scale;
    }

    /* Row of the weight's grid [blocks of K][kN] that block `block` of the main loop lies in. */
    static __device__ __forceinline__ int64_t w_grid(int block)
    {
        constexpr int kBlockOfW = Cfg::kWBlockK ? Cfg::kWBlockK : 1;
        return (Cfg::kWBlockK ? (int64_t)block * Cfg::kBlockK / kBlockOfW : 0) * Cfg::kN;
    }

    static __device__ __forceinline__ constexpr int shift()
    {
        if constexpr (kInt)
            return Decode<Cfg::kW, HOME_I8>::kShift + Decode<Cfg::kA, HOME_I8>::kShift;
        else
            return 0;
    }
};

template <class Cfg> struct GemmShape {
    static constexpr bool kInt = Cfg::kHome == HOME_I8;
    static constexpr int kABits = Bits<Cfg::kA>::kBits, kWBits = Bits<Cfg::kW>::kBits;
    static constexpr int kThreads = 32 * Cfg::kWarpsM * Cfg::kWarpsN;
    static constexpr int kSteps = Cfg::kBK / 32;
    static constexpr int kUnitSteps = 16 / kWBits; /* steps in a lane's 16 bytes of w */
    static constexpr int kTilesK = (Cfg::kK + Cfg::kBK - 1) / Cfg::kBK;
    static constexpr int kTilesN = (Cfg::kN + Cfg::kBN - 1) / Cfg::kBN;
    /* tiles of K of one block; whole scale blocks, so that none is shared */
    static constexpr int kAlignK =
        Cfg::kMainloop && Cfg::kBlockK > Cfg::kBK ? Cfg::kBlockK / Cfg::kBK : 1;
    static constexpr int kShare =
        ((kTilesK + Cfg::kSplitK - 1) / Cfg::kSplitK + kAlignK - 1) / kAlignK * kAlignK;
    static constexpr int kRowBytes = Cfg::kBK * kABits / 8; /* of a stage, a row of a */
    /* Both operands are at home already: ldmatrix puts them where the products want them. */
    static constexpr bool kMatrices = kABits == 16 && kWBits == 16;
    static constexpr int kPanelBytes = kRowBytes < 128 ? kRowBytes : 128;
    static constexpr int kRun = Cfg::kBK * kWBits; /* bytes of a stage, 8 rows of w */
    static constexpr int64_t kBlockBytes = (int64_t)(Cfg::kK + 127) / 128 * 128 * kWBits;
    static constexpr int kABytes = Cfg::kBM * kRowBytes;
    static constexpr int kStageBytes = kABytes + Cfg::kBN / 8 * kRun;
    static constexpr int kCols = Cfg::kBN / Cfg::kParts; /* of one part */
    /* Words of a row of the staged tile: room for the last lanes of an epilogue, and eight lanes'
     * pairs of 4 rows fall into all banks. */
    static constexpr int kTilePitch =
        ((Cfg::kParts - 1) * kCols + (kCols + 31) / 32 * 32 + 23) / 32 * 32 + 8;
    static constexpr int kPasses = Cfg::kBM * kTilePitch * 4 > 98304 ? 2 : 1; /* of the epilogue */
    static constexpr int kPassRows = Cfg::kBM / kPasses;
    static constexpr int kMFrags = Cfg::kBM / Cfg::kWarpsM / 16;
    static constexpr int kNFrags = Cfg::kBN / Cfg::kWarpsN / 8;
    static_assert(Cfg::kBM % (16 * Cfg::kWarpsM) == 0, "a warp computes multiples of 16 rows");
    static_assert(Cfg::kBN % (8 * Cfg::kWarpsN) == 0, "a warp computes multiples of 8 columns");
    static_assert(Cfg::kWarpsM % kPasses == 0, "a warp's rows lie in one pass");
    static_assert(Cfg::kBlockK % 32 == 0, "a scale's block of K is a multiple of 32");
    static_assert(Cfg::kBK % (32 * kUnitSteps) == 0 && (Cfg::kBK == 64 || Cfg::kBK == 128),
                  "a stage is whole units and divides a packed tile");
    static_assert(Cfg::kSplitK == 1 || !(kInt && Cfg::kMainloop),
                  "integer blocks keep their order");
};

#endif
