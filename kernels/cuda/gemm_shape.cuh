/* What the tiled products on tensor cores (gemm_mma.cuh has their Cfg) are made of: sizes of stages
 * and tiles, one product, the scales of blocks of K. */
#ifndef SINTER_CUDA_GEMM_SHAPE
#define SINTER_CUDA_GEMM_SHAPE

#include "kernels/cuda/format.cuh"

/* The records of a packed weight (pack.h). Cfg: kW kWBits (of a code) kWBinary kK kRecord (bytes of
 * one) kScaleAt kZeroAt (in it) kScaleFmt kWScales kWZero kSubs kWBlockK (of K that shares a scale;
 * 0: all) kOuterAt, kTableAt (0: there is none; else codes of kW, a codebook, are places in the
 * weight's own table) kCodebookPieces (1: values of a codebook are scaled by Table::kUnit). */
template <class Cfg> struct Record {
    static constexpr int kTilesK = (Cfg::kK + 127) / 128;
    static constexpr int kRun = 128 * Cfg::kWBits; /* bytes of 8 rows */
    static constexpr bool kThin = Cfg::kWBits < 4;
    static constexpr int64_t kGroup = (int64_t)kTilesK * Cfg::kRecord;
    static constexpr int kParams = Cfg::kRecord - Cfg::kScaleAt; /* bytes of scales, zero points */
    static constexpr int kScaleBytes = Bits<Cfg::kScaleFmt>::kBits / 8;
    static constexpr int kNibbles = Bits<Cfg::kW>::kBits == 4;
    static_assert(kParams % 16 == 0, "parameters are copied by 16 bytes");

    /* kThin: a lane's codes of 8 rows and a tile as nibbles. word(i): word i of all lanes. */
    template <class Word> static __device__ __forceinline__ void open(uint32_t (&out)[4], Word word)
    {
        uint32_t in[Cfg::kWBits];
#pragma unroll
        for (int i = 0; i < Cfg::kWBits; i++)
            in[i] = word(i);
        open_nibbles<Cfg::kWBits, Bits<Cfg::kW>::kSigned && !Cfg::kTableAt, Cfg::kWBinary>(in, out);
    }
    static constexpr bool kScaled = IsCodebook<Cfg::kW>::kYes && Cfg::kCodebookPieces == 1;
    typedef typename TableOf<Cfg::kW, Cfg::kHome, (Cfg::kTableAt > 0), kScaled>::Type Table;
    static __device__ __forceinline__ Table table(const char *w)
    {
        if constexpr (Cfg::kTableAt > 0)
            return Table{w + Cfg::kTableAt};
        else
            return Table{};
    }

    /* Which of a tile's blocks column k of K lies in. */
    static __device__ __forceinline__ int sub_of(int k)
    {
        constexpr int kBlock = Cfg::kWBlockK ? Cfg::kWBlockK : 1;
        if (Cfg::kSubs == 1)
            return 0;
        return 128 % kBlock == 0 ? k % 128 / kBlock : k / kBlock - k / 128 * 128 / kBlock;
    }
    /* Bits of the scale of a row of the group, from where its record's parameters lie. */
    static __device__ __forceinline__ uint32_t scale_bits(const char *params, int sub, int row)
    {
        const int at = sub * 64 + row;
        if constexpr (kScaleBytes == 4)
            return ((const uint32_t *)params)[at];
        else if constexpr (kScaleBytes == 2)
            return ((const uint16_t *)params)[at];
        else
            return ((const uint8_t *)params)[at];
    }
    static __device__ __forceinline__ float scale(const char *params, int sub, int row)
    {
        return scale_value<Cfg::kScaleFmt>(scale_bits(params, sub, row));
    }
    /* .. as codes are multiplied by it, kWFold. */
    typedef typename FoldOf<Cfg::kHome>::Type Fold;
    static __device__ __forceinline__ Fold fold_value(uint32_t bits)
    {
        if constexpr (Cfg::kHome == HOME_I8)
            return bits;
        else
            return scale_value<Cfg::kScaleFmt>(bits);
    }
    /* What sums of integers are shifted right by (Decode). */
    static constexpr int kShift = []() {
        if constexpr (Cfg::kHome == HOME_I8 && !Cfg::kWZero && !Cfg::kWFold)
            return Decode<Cfg::kW, HOME_I8>::kShift;
        else
            return 0;
    }();
    static __device__ __forceinline__ int zero(const char *params, int sub, int row)
    {
        const int at = sub * 64 + row;
        const uint8_t *p = (const uint8_t *)params + (Cfg::kZeroAt - Cfg::kScaleAt);
        if constexpr (kNibbles) {
            int code = p[at / 2] >> (row % 2 * 4) & 15;
            return Bits<Cfg::kW>::kSigned ? (code ^ 8) - 8 : code;
        } else {
            return Bits<Cfg::kW>::kSigned ? (int)(int8_t)p[at] : (int)p[at];
        }
    }
    /* What a scaled table's values are multiplied by, .. */
    static constexpr float kTableUnit = []() {
        if constexpr (kScaled)
            return Table::kUnit;
        else
            return 1.0f;
    }();
    /* .. and scales therefore. */
    static __device__ __forceinline__ float effective(float scale)
    {
        return kScaled ? num_scale_effective(scale, kTableUnit) : scale;
    }
};

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
            mma_i8<Bits<Cfg::kA>::kSigned, Bits<Cfg::kW>::kSigned || Cfg::kWZero || Cfg::kWFold>(
                d, a, b0, b1, c);
        else if (Cfg::kHome == HOME_F16)
            mma_f16(d, a, b0, b1, c);
        else
            mma_bf16(d, a, b0, b1, c);
    }
    /* Place in the activation's grids of a row and the block that column k of K lies in. */
    static __device__ __forceinline__ int64_t act_at(int64_t row, int k)
    {
        constexpr int kBlock = Cfg::kABlockK ? Cfg::kABlockK : 1;
        constexpr int kCols = Cfg::kABlockK ? (Cfg::kK + kBlock - 1) / kBlock : 1;
        int64_t r = Cfg::kABlockRows ? row / (Cfg::kABlockRows ? Cfg::kABlockRows : 1) : 0;
        return r * kCols + (Cfg::kABlockK ? k / kBlock : 0);
    }
    /* What the sums of block `block` of the main loop are multiplied by. */
    static __device__ __forceinline__ float act_scale(const Operand &a, int64_t row, int block)
    {
        if constexpr (Cfg::kAFold)
            return a.outer ? *a.outer : 1.0f;
        float scale = a.scale[act_at(row, block * Cfg::kBlockK)];
        return a.outer ? num_scale_effective(scale, *a.outer) : scale;
    }

    static __device__ __forceinline__ constexpr int shift()
    {
        return Record<Cfg>::kShift;
    }
};

template <class Cfg> struct GemmShape {
    static constexpr bool kInt = Cfg::kHome == HOME_I8;
    static constexpr int kABits = ActBits<Cfg::kA>::kBits, kWBits = Bits<Cfg::kW>::kBits;
    static constexpr bool kThin = Record<Cfg>::kThin;
    static constexpr int kThreads = 32 * Cfg::kWarpsM * Cfg::kWarpsN;
    static constexpr int kSteps = Cfg::kBK / 32;
    static constexpr int kUnitSteps = kWBits > 16 ? 1 : 16 / kWBits; /* in a lane's 16 bytes of w */
    static constexpr int kUnitWords = kWBits > 16 ? 8 : 4; /* .. or in as many words as it takes */
    static constexpr int kTilesK = (Cfg::kK + Cfg::kBK - 1) / Cfg::kBK;
    static constexpr int kTilesN = (Cfg::kN + Cfg::kBN - 1) / Cfg::kBN;
    /* tiles of K of one block; whole scale blocks, so that none is shared */
    static constexpr int kAlignK =
        Cfg::kMainloop && Cfg::kBlockK > Cfg::kBK ? Cfg::kBlockK / Cfg::kBK : 1;
    static constexpr int kShare =
        ((kTilesK + Cfg::kSplitK - 1) / Cfg::kSplitK + kAlignK - 1) / kAlignK * kAlignK;
    static constexpr int kRowBytes = Cfg::kBK * kABits / 8; /* of a stage, a row of a */
    /* Both operands are at home already: ldmatrix puts them where the products want them. */
    static constexpr bool kMatrices = kABits == 16 && Cfg::kA == Cfg::kW;
    static constexpr int kPanelBytes = kRowBytes < 128 ? kRowBytes : 128;
    static constexpr int kRun = Cfg::kBK * Cfg::kWBits;  /* bytes of a stage, 8 rows of w */
    static constexpr int kGroups = (Cfg::kBN + 63) / 64; /* whose parameters a stage holds */
    static constexpr int kParams = kGroups * Record<Cfg>::kParams;
    static constexpr int kParamsAt = Cfg::kBM * kRowBytes + Cfg::kBN / 8 * kRun;
    static constexpr int kABytes = Cfg::kBM * kRowBytes;
    static constexpr int kStageBytes = kParamsAt + kParams;
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
    static_assert(kParams == 0 || (Cfg::kBN % 64 == 0 && 8 % kNFrags == 0),
                  "parameters are those of whole records, a warp's of one");
    /* Blocks of K that end inside a step: each is multiplied alone, the other codes left out. */
    static constexpr bool kFine = Cfg::kBlockK % 32 != 0;
    /* Integers as 16-bit floats: f32 holds the sums of 256 products exactly. */
    static constexpr bool kChunks =
        Cfg::kExact && !kInt && (Cfg::kBlockK == 0 || Cfg::kBlockK > 256);
    static_assert(Cfg::kBK % (32 * kUnitSteps) == 0 && (Cfg::kBK == 64 || Cfg::kBK == 128),
                  "a stage is whole units and divides a packed tile");
    static_assert(Cfg::kSplitK == 1 || !(Cfg::kExact && Cfg::kMainloop),
                  "integer blocks keep their order");
};

#endif
