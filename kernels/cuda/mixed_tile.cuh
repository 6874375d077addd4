/* What a thread of mixed (mixed.cuh, which says what Cfg is) has of a tile: its sizes, the codes of
 * its rows of w as operands of wgmma, and its sums, as they are scaled and staged. */
#ifndef SINTER_CUDA_MIXED_TILE
#define SINTER_CUDA_MIXED_TILE

#include "kernels/cuda/fragments.cuh"
#include "kernels/cuda/gemm_shape.cuh"
#include "kernels/cuda/hopper_tiles.cuh"
#include "kernels/cuda/staged.cuh"

template <class Cfg> struct MixedShape {
    static constexpr bool kInt = Cfg::kHome == HOME_I8;
    static constexpr bool kBytes = ActBits<Cfg::kA>::kBits == 8;
    /* Sums of a block of K, or of a unit, are added to f32 ones beside them; or these stay where
     * they are, in the unit that the scale of the block before left them in. */
    static constexpr bool kInPlace = Cfg::kInPlace;
    static constexpr bool kPromotes = Cfg::kPromotes;
    typedef typename AccumulatorOf<kInt>::Type Acc;               /* of an instruction */
    typedef typename AccumulatorOf<kInt && !kPromotes>::Type Sum; /* of the tile */
    static constexpr int kWBits = Bits<Cfg::kW>::kBits;
    static constexpr int kUnits = (Cfg::kK + 127) / 128;
    static constexpr int kClusterM = 1, kClusterN = Cfg::kCluster, kGather = Cfg::kGather;
    static constexpr int kTilesN = Cfg::kRest > 0 ? Cfg::kRestFrom / (Cfg::kTeams - 1)
                                                  : (Cfg::kN + Cfg::kBN - 1) / Cfg::kBN;
    static constexpr int kGroups = Cfg::kBN / 64; /* records of a stage */
    static constexpr bool kTurning = Cfg::kTurns > 1;
    static constexpr int kBoxes = kBytes ? 1 : 2; /* of a */
    static constexpr int kBoxBytes = Cfg::kBM * 128;
    static constexpr int kABytes = kBoxes * kBoxBytes;
    static constexpr bool kScales = Cfg::kAScale; /* of a, in every stage */
    /* Warps that copy, no more than stages, or one could be two rounds ahead; the one for scales.
     */
    static constexpr int kCopiers = Cfg::kStages < 4 ? 1 : kScales ? 3 : 4;
    static constexpr int kActSubs = /* of them, for each row */
        Cfg::kABlockK && Cfg::kABlockK < 128 ? 128 / Cfg::kABlockK : 1;
    static constexpr int kScalesAt = kABytes + kGroups * Cfg::kRecord;
    static constexpr int kStageBytes =
        (kScalesAt + (kScales ? kActSubs * Cfg::kBM * 4 : 0) + 1023) / 1024 * 1024;
    /* Filled before a is there. */
    static constexpr int kMostEarly = 49152 / (kGroups * Cfg::kRecord);
    static constexpr int kEarlyStages = kMostEarly < 1              ? 1
                                        : kMostEarly < Cfg::kStages ? kMostEarly
                                                                    : Cfg::kStages;
    static constexpr int kSlabSums = Cfg::kBM / 2; /* of a thread */
    static constexpr int kSums = Cfg::kSlabs * kSlabSums;
    static constexpr int kThreads = 128 * Cfg::kTeams; /* that multiply */
    static constexpr int kPieceBytes = kThreads * kSums * 4;
    static constexpr int kFewRegisters = Cfg::kTeams >= 3 ? 32 : 40;
    static constexpr int kManyRegisters = Cfg::kTeams == 4   ? 112
                                          : Cfg::kTeams == 3 ? 160
                                          : Cfg::kTeams == 2 ? 232
                                                             : 208;
    /* kRest: each of the warpgroups stages and ends its own columns. */
    static constexpr int kStagedCols = Cfg::kRest > 0 ? 64 : Cfg::kBN;
    static constexpr int kPitch = kStagedCols + 4; /* words of a staged row */
    static constexpr int kRingBytes = kStageBytes * Cfg::kStages;
    static constexpr int kPartUnits = kUnits / Cfg::kPartsOfK; /* along K */
    static constexpr int kTeamBytes = Cfg::kPassRows * kPitch * 4;
    static constexpr int kRowBytes = kTeamBytes * (Cfg::kBN / kStagedCols), /* staged rows, .. */
        kTotalBytes = Cfg::kPartsOfK > 1 && !Cfg::kShare ? kPieceBytes : 0, /* .. or totals, .. */
        kJoinBytes = kPieceBytes / Cfg::kTurns * (Cfg::kTurns - 1); /* .. or sums that are joined */
    static constexpr int kOtherBytes = kTotalBytes > kJoinBytes ? kTotalBytes : kJoinBytes;
    static constexpr int kStagedBytes = kRowBytes > kOtherBytes ? kRowBytes : kOtherBytes;
    static constexpr int kStagedEnd = kRingBytes + kStagedBytes;
    typedef PairsOf<Record<Cfg>::kScaled && !kBytes, Cfg, typename Record<Cfg>::Table> Pairs;
    static constexpr int kPairsAt = (kStagedEnd + 127) / 128 * 128;
    static constexpr int kBytesUsed = Pairs::kBytes > 0 ? kPairsAt + Pairs::kBytes : kStagedEnd;
    static constexpr int kProducts = kBytes ? 1 : 2; /* of a step of 32 */
    static constexpr int kPieces = Pieces<Cfg::kW, Cfg::kHome, Cfg::kCodebookPieces>::kNum;
    static constexpr bool kInUnit = !kBytes && !Cfg::kWFold; /* decoded in a unit of their own */
    static constexpr int kRawWords = 4 * (kWBits / 4);       /* of a lane, a row and a unit */
    /* Steps of 32 after which a block of K ends inside a unit; 4: only units end blocks. */
    static constexpr int kBlockSteps =
        Cfg::kMainloop && Cfg::kBlockK && Cfg::kBlockK < 128 ? Cfg::kBlockK / 32 : 4;
    /* Scales of a unit's four blocks of K: of the four lanes of a row each reads and decodes one,
     * or two of eight, and passes it round when its block comes. */
    static constexpr bool kPassScales = Cfg::kWScales && !Cfg::kWFold && Cfg::kSubs == 4;
    static constexpr bool kPassFolds =
        Cfg::kWFold && !kInt &&
        ((Cfg::kSubs == 4 && Cfg::kWBlockK == 32) || (Cfg::kSubs == 8 && Cfg::kWBlockK == 16));
    static constexpr int kOwnFolds = Cfg::kSubs == 8 ? 2 : 1; /* of a row, a lane's */
    /* Operands are left raw for a scale to decode; kWide: which may be too large for that. */
    static constexpr bool kWide = kPassFolds && Cfg::kScaleFmt == FMT_E8M0;
    static constexpr bool kRaw = Cfg::kMainloop && !kBytes && Cfg::kWFold && Cfg::kW == FMT_E2M1 &&
                                 (Cfg::kScaleFmt == FMT_E4M3 || kWide);
    /* Two units of operands have room beside the sums. */
    static constexpr int kHeld = kSums + (kPromotes ? kSlabSums : 0) + 2 * 16 * kProducts;
    static constexpr bool kAhead = !kInPlace && Cfg::kTeams < 4 && !kTurning && Cfg::kSlabs == 1 &&
                                   kBlockSteps == 4 && kPieces == 1 &&
                                   kHeld < (Cfg::kTeams == 3 ? 96 : 144);
    /* Few rows: units are decoded whole, the next one's codes read meanwhile where they have room.
     */
    static constexpr int kWholeHeld = kSums + (kPromotes ? kSlabSums : 0);
    static constexpr bool kWhole = !kAhead && Cfg::kSlabs == 1 && kBlockSteps == 4 &&
                                   kPieces == 1 && !kInt && Cfg::kBM <= (kInPlace ? 64 : 32) &&
                                   (kWholeHeld < 32 || !Cfg::kWFold || kGather == 1 || kTurning);
    /* Sums of two units have room beside the tile's, and a unit's operands. (Without scales of w,
     * and where codes are operands as they lie, ptxas would serialise the products.) */
    static constexpr int kPairsRoom =
        Cfg::kTeams == 3                                                     ? 96
        : Cfg::kTeams == 1                                                   ? 144
        : (Cfg::kWZero && Cfg::kNeighbours == 8) || (kScales && Cfg::kShare) ? 184
                                                                             : 192;
    static constexpr bool kPairs = kPromotes && kBytes && kWBits <= 4 && Cfg::kWScales &&
                                   !Cfg::kWFold && Cfg::kTeams < 4 && Cfg::kSlabs == 1 &&
                                   !kTurning && Cfg::kRest == 0 && kBlockSteps == 4 &&
                                   kPieces == 1 && kSums + 2 * kSlabSums <= kPairsRoom;
    static constexpr bool kReadsAhead = kWholeHeld <= (Cfg::kWFold ? 16 : 32);
    /* Units of one turn of the loop over K, in stages that do not wrap round. */
    static constexpr int kAtOnce = []() {
        constexpr int kSharers = kGather * Cfg::kTurns;
        constexpr bool kMay =
            (kWhole || (Cfg::kSlabs == 1 && Cfg::kBM <= 32 && !kInPlace && !kInt)) && !kAhead &&
            !Cfg::kShare && Cfg::kPartsOfK == 1;
        constexpr int kOwn = kUnits / (Cfg::kRest > 1 ? Cfg::kRest : 1);
        for (int n = 4; n > 1 && kMay; n--)
            if (kOwn % (kSharers * n) == 0 && Cfg::kStages % (Cfg::kTurns * n) == 0)
                return n;
        return 1;
    }();
    /* Few rows gain nothing by it: other warps hide what a unit's first step waits for. */
    static constexpr bool kAcross = Cfg::kBM > 64 && Cfg::kTeams < 3 && !kInt;
    static_assert(Cfg::kBN == 64 * Cfg::kSlabs * Cfg::kTeams / Cfg::kTurns, "slabs of 64 rows");
    static_assert(!kTurning || (Cfg::kStages % Cfg::kTurns == 0 && Cfg::kStages > Cfg::kTurns &&
                                Cfg::kStages % kCopiers == 0 && !(kInt && kPromotes) &&
                                Cfg::kCluster == 1 && Cfg::kPartsOfK == 1),
                  "a stage is always filled by one warp and read by one warpgroup of a slab");
    static_assert(!kInPlace || (Cfg::kMainloop && !kBytes && !Cfg::kAScale),
                  "sums in place are of 16-bit floats whose weights alone have scales");
    static_assert(Cfg::kBM % 8 == 0 && Cfg::kBM <= 256, "one instruction");
    static_assert(Cfg::kBM % Cfg::kPassRows == 0 && Cfg::kPassRows % 8 == 0, "whole passes");
    static_assert(Cfg::kRecord % 16 == 0, "records are copied");
    typedef Dealt<kGather, kThreads / Cfg::kTurns, kSlabSums, Cfg::kPassRows / 2> Passes;
    static_assert(kGather == 1 || (Cfg::kPartsOfK == 1 && Passes::kOwn == 1 &&
                                   kRingBytes >= Cfg::kSlabs * Passes::kBytes),
                  "each block of a cluster finishes at most one pass");
    static_assert(Cfg::kRest == 0 ||
                      (Cfg::kTeams > 1 && Cfg::kSlabs == 1 && !kTurning && !Cfg::kShare && !kInt &&
                       Cfg::kCluster == 1 && kGather == 1 && Cfg::kPartsOfK == 1 && !kAhead &&
                       !kScales && Cfg::kK % 128 == 0 &&
                       kUnits % (Cfg::kRest > 0 ? Cfg::kRest : 1) == 0),
                  "one of several warpgroups has a part of whole units of K");
    static_assert(kUnits % Cfg::kPartsOfK == 0 && (Cfg::kPartsOfK == 1 || !kInt),
                  "equal parts of K, of floats");
};

/* Units [from, to) of K by kTurns warpgroups: each has a part, a run of them, and one of each part
 * comes after the other. Where part `part` begins, .. */
template <class Cfg> __device__ __forceinline__ int part_begin(int from, int to, int part)
{
    const uint32_t all = to - from, more = all % Cfg::kTurns;
    return from + part * (all / Cfg::kTurns) + ((uint32_t)part < more ? part : more);
}
/* .. and the unit that is `at` - `from`-th to come. */
template <class Cfg> __device__ __forceinline__ int unit_at(int from, int to, int at)
{
    if (Cfg::kTurns == 1)
        return at;
    const uint32_t turns = at - from;
    return part_begin<Cfg>(from, to, turns % Cfg::kTurns) + turns / Cfg::kTurns;
}

/* Decoding ------------------------------------------------------------------------------------- */

/* Nibbles, a byte each, as e4m3 of the value times kUnit. */
template <int FMT> struct DecodeE4m3;
template <> struct DecodeE4m3<FMT_U4> { /* 0 to 15 are its first codes */
    static constexpr float kUnit = 0x1p-9f;
    static __device__ __forceinline__ uint32_t four(uint32_t codes)
    {
        return codes;
    }
};
template <> struct DecodeE4m3<FMT_I4> {
    static constexpr float kUnit = 0x1p-9f;
    static __device__ __forceinline__ uint32_t four(uint32_t codes)
    {
        const uint32_t minus = codes >> 3 & 0x01010101u;
        return ((codes & 0x07070707u) ^ minus * 7) + minus * 0x81; /* no byte overflows */
    }
};
template <> struct DecodeE4m3<FMT_E2M1> {
    static constexpr float kUnit = 0x1p-6f;
    static __device__ __forceinline__ uint32_t four(uint32_t codes)
    {
        return (codes & 0x08080808u) << 4 | (codes & 0x07070707u) << 2;
    }
};
/* The fragments' eight codes of a row, from nibbles in the order of 16-bit
 * floats (pack.c). */
template <int FMT>
__device__ __forceinline__ void pass_e4m3(uint32_t raw, int lane, uint32_t (&out)[4])
{
    const int from = lane % 4 / 2, quad = lane & 28;
    const uint32_t low = __shfl_sync(0xFFFFFFFFu, raw, quad + from);
    const uint32_t high = __shfl_sync(0xFFFFFFFFu, raw, quad + 2 + from);
    const uint32_t mine = __byte_perm(low, high, lane % 2 ? 0x7531 : 0x6420);
    const uint32_t even = DecodeE4m3<FMT>::four(mine & 0x0F0F0F0Fu);
    const uint32_t odd = DecodeE4m3<FMT>::four(mine >> 4 & 0x0F0F0F0Fu);
    out[0] = __byte_perm(even, odd, 0x5410);
    out[1] = __byte_perm(even, odd, 0x7632);
}

template <class Cfg> struct MixedLeft {
    typedef MixedShape<Cfg> S;
    typedef Record<Cfg> R;
    typedef typename S::Pairs::Type Table;
    static constexpr int kWords = S::kWBits / 4; /* of eight codes */
    static constexpr bool kPasses = Cfg::kNeighbours == 8;

    /* A lane's codes of one unit, of rows `row` and `row + 8` of a slab. */
    uint32_t raw[2][S::kRawWords];
    /* kPassFolds: what multiplies codes of blocks lane % 4 and lane % 4 + 4 of the unit, halves of
     * a word for its two rows */
    uint32_t own[S::kInt ? 2 : S::kOwnFolds]; /* kInt: of a unit's only block, of its rows */
    static constexpr bool kOneFactor = S::kInt && Cfg::kWFold && Cfg::kSubs == 1;
    bool wide; /* kWide: codes are decoded before they are scaled, of the whole warp */

    /* Where they lie in a record. */
    static __device__ __forceinline__ int codes_at(int row, int lane)
    {
        return row / 8 * R::kRun + lane * (R::kThin ? 4 : 16);
    }
    __device__ __forceinline__ void read(const char *codes)
    {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const char *block = codes + h * R::kRun;
            if constexpr (R::kThin) {
                R::open(raw[h], [&](int i) { return ((const uint32_t *)block)[32 * i]; });
                continue;
            }
#pragma unroll
            for (int i = 0; i < S::kRawWords; i += 4) {
                const Bytes16 v = *(const Bytes16 *)(block + i * 128);
                raw[h][i] = v.x, raw[h][i + 1] = v.y;
                raw[h][i + 2] = v.z, raw[h][i + 3] = v.w;
            }
        }
    }

    static constexpr float kFoldTimes = S::kRaw ? RawE2m1<Cfg::kHome>::kScaleTimes : 1.0f;
    static_assert(RawE2m1<HOME_BF16>::kScaleTimes == 0x1p118f, "what is added to exponents");
    __device__ __forceinline__ void read_folds(const char *record, int row, int lane)
    {
        if constexpr (kOneFactor) {
#pragma unroll
            for (int h = 0; h < 2; h++)
                own[h] = R::scale_bits(record + Cfg::kScaleAt, 0, row + h * 8);
        }
        if constexpr (S::kPassFolds) {
            uint32_t bits[2][S::kOwnFolds], largest = 0;
#pragma unroll
            for (int h = 0; h < 2; h++)
#pragma unroll
                for (int j = 0; j < S::kOwnFolds; j++) {
                    bits[h][j] =
                        R::scale_bits(record + Cfg::kScaleAt, j * 4 + lane % 4, row + h * 8);
                    largest = bits[h][j] > largest ? bits[h][j] : largest;
                }
            wide = S::kRaw && S::kWide && __any_sync(0xFFFFFFFFu, largest > 127 + 9);
#pragma unroll
            for (int j = 0; j < S::kOwnFolds; j++)
                own[j] = fold_of(bits[0][j], bits[1][j], wide);
        }
    }
    /* What two scales multiply codes by. */
    static __device__ __forceinline__ uint32_t fold_of(uint32_t first, uint32_t second, bool wide)
    {
        if (S::kRaw && S::kWide && Cfg::kHome == HOME_BF16 && !wide) /* exponents, and so is this */
            return (first | second << 16) * 0x80u + (118 << 7) * 0x10001u;
        const float times = wide ? 1.0f : kFoldTimes;
        return scale_halves<Cfg::kHome>(times * scale_value<Cfg::kScaleFmt>(first),
                                        times * scale_value<Cfg::kScaleFmt>(second));
    }
    /* kPassFolds: those of the blocks of a step. */
    static constexpr int kFoldEighths = (Cfg::kWBlockK ? Cfg::kWBlockK : 32) / 8;
    __device__ __forceinline__ void pass_folds(uint32_t (&to)[4], int step, int lane) const
    {
        if constexpr (S::kPassFolds)
#pragma unroll
            for (int i = 0; i < 4; i += kFoldEighths) {
                const int sub = (step * 4 + i) / kFoldEighths;
                to[i / kFoldEighths] =
                    __shfl_sync(0xFFFFFFFFu, own[sub / 4], (lane & 28) + sub % 4);
            }
    }
    /* kRaw: codes as they are scaled. */
    static __device__ __forceinline__ void open_raw(bool wide, const uint32_t *codes,
                                                    uint32_t (&out)[4])
    {
        RawE2m1<Cfg::kHome>::template eight<InOwnOrder<Cfg>::kYes>(codes, out);
        if (wide)
#pragma unroll
            for (int i = 0; i < 4; i++)
                fold_pair<Cfg::kHome>(out[i], kFoldTimes);
    }

    /* Zero points of its two rows, those of column k of K. */
    static __device__ __forceinline__ void read_zeros(int (&zero)[2], const char *record, int row,
                                                      int k)
    {
#pragma unroll
        for (int h = 0; h < 2; h++)
            zero[h] = Cfg::kWZero ? R::zero(record + Cfg::kScaleAt, R::sub_of(k), row + h * 8) : 0;
    }

    /* The left operands of a step: of each product its four registers. */
    template <int PIECE>
    __device__ __forceinline__ void operands(uint32_t (&to)[S::kProducts][4], int step,
                                             const int (&zero)[2], const char *record, int row,
                                             int k, int lane, const Table &table) const
    {
        operands_of<PIECE>(S::kWide && wide, to, step, zero, record, row, k, lane, table);
    }
    template <int PIECE>
    __device__ __forceinline__ void operands_of(bool is_wide, uint32_t (&to)[S::kProducts][4],
                                                int step, const int (&zero)[2], const char *record,
                                                int row, int k, int lane, const Table &table) const
    {
        uint32_t scales[4];
        pass_folds(scales, step, lane);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint32_t codes[kWords], out[4];
            if constexpr (S::kBytes && !S::kInt && kPasses) {
                pass_e4m3<Cfg::kW>(raw[h][step * kWords], lane, out);
            } else if constexpr (S::kBytes && !S::kInt) {
                out[0] = DecodeE4m3<Cfg::kW>::four(raw[h][step] & 0x0F0F0F0Fu);
                out[1] = DecodeE4m3<Cfg::kW>::four(raw[h][step] >> 4 & 0x0F0F0F0Fu);
            } else {
                if constexpr (!kPasses)
#pragma unroll
                    for (int i = 0; i < kWords; i++)
                        codes[i] = raw[h][step * kWords + i];
                else if constexpr (S::kInt && kWords == 1)
                    codes[0] = pass_fours(raw[h][step * kWords], lane);
                else if constexpr (S::kInt)
                    pass_fours(raw[h] + step * kWords, codes, lane);
                else
                    pass_pairs<S::kWBits>(raw[h] + step * kWords, lane % 4, codes);
                if constexpr (S::kRaw)
                    open_raw(is_wide, codes, out);
                else
                    decode_weight<Cfg::kW, Cfg::kHome, Cfg::kWZero, PIECE, S::kInUnit,
                                  InOwnOrder<Cfg>::kYes>(codes, zero[h], table, out);
            }
            if constexpr (S::kPassFolds) {
#pragma unroll
                for (int i = 0; i < 4; i++)
                    fold_half<Cfg::kHome>(out[i], scales[i / kFoldEighths], h);
            } else if constexpr (Cfg::kWFold && S::kInt) {
                fold_scale<HOME_I8>(out, factor(h, record, row, k));
            } else if constexpr (Cfg::kWFold) {
                fold(out, record, row + h * 8, k);
            }
#pragma unroll
            for (int i = 0; i < S::kProducts; i++)
                to[i][h] = out[2 * i], to[i][2 + h] = out[2 * i + 1];
        }
    }
    /* kInt: what codes of row `row` + 8 * h are multiplied by at column k. */
    __device__ __forceinline__ uint32_t factor(int h, const char *record, int row, int k) const
    {
        if constexpr (kOneFactor)
            return own[h];
        return R::scale_bits(record + Cfg::kScaleAt, R::sub_of(k), row + h * 8);
    }
    /* Multiplies scales in, exactly; their blocks are whole eighths of columns. */
    static __device__ __forceinline__ void fold(uint32_t (&codes)[4], const char *record, int row,
                                                int k)
    {
        constexpr int kBlock = Cfg::kWBlockK ? Cfg::kWBlockK : 32;
        float scale = 0.0f;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (32 % kBlock || i * 8 % kBlock == 0)
                scale = kFoldTimes * R::scale(record + Cfg::kScaleAt, R::sub_of(k + i * 8), row);
            fold_pair<Cfg::kHome>(codes[i], scale);
        }
    }
};

/* The sums of a tile --------------------------------------------------------------------------- */

/* Of a scale, to about a unit in the last place (PTX ISA, "rcp"), with its sign: some checkpoints
 * have scales below 0. Of one that is 0, as rows have that pad a weight, a large number. */
__device__ __forceinline__ float scale_reciprocal(float scale)
{
    uint32_t ret;
    asm("{\n"
        ".reg .f32 least;\n"
        "abs.f32 least, %1;\n"
        "max.f32 least, least, 0f00800000;\n"
        "rcp.approx.ftz.f32 least, least;\n"
        "mov.b32 %0, least;\n"
        "}"
        : "=r"(ret)
        : "f"(scale));
    return num_float(ret ^ (num_bits(scale) & 0x80000000u));
}

template <class Cfg> struct MixedSums {
    typedef MixedShape<Cfg> S;
    typedef typename S::Acc Acc;
    typedef typename S::Sum Sum;
    typedef Record<Cfg> R;

    static constexpr int kShift = R::kShift;

    /* Codes are multiplied as 2^kShift times themselves. Where a scale of w alone multiplies their
     * sums, it takes that back, one operation less for each sum, but of weights in which some scale
     * is too small for it to be exact: tiny. Of groups of rows one such weight is enough: a block
     * asks once, and both ways give the others the same sums. */
    static constexpr bool kInScale = S::kPromotes && !S::kScales && kShift > 0;
    static __device__ __forceinline__ bool has_tiny(const char *w)
    {
        static_assert(!kInScale || Cfg::kTinyAt > 0, "w says it");
        typedef HopperGroups<Cfg> Groups;
        if constexpr (kInScale && Groups::kNum > 0) {
            bool is_tiny = false;
            for (int group = threadIdx.x % 32; group < Groups::kNum; group += 32)
                is_tiny |= *(const uint32_t *)(w + Groups::weight_at(group) + Cfg::kTinyAt) != 0;
            return __any_sync(0xFFFFFFFFu, is_tiny);
        } else {
            return kInScale && *(const uint32_t *)(w + Cfg::kTinyAt) != 0;
        }
    }

    static constexpr float kUnit = []() { /* of an instruction's sums, a power of two */
                                          if constexpr (S::kBytes && !S::kInt)
                                              return 1.0f / DecodeE4m3<Cfg::kW>::kUnit;
                                          else if constexpr (S::kRaw)
                                              return RawE2m1<Cfg::kHome>::kSumsTimes;
                                          else if constexpr (S::kInUnit)
                                              return 1.0f /
                                                     DecodeInUnit<Cfg::kW, Cfg::kHome>::kUnit;
                                          else
                                              return 1.0f;
    }();
    template <bool IN_SCALE> static constexpr float unit()
    {
        return IN_SCALE ? kUnit / (1 << kShift) : kUnit;
    }

    /* What the sums of a block of K are multiplied by, of a lane's two rows of w. */
    static __device__ __forceinline__ void weight_scales(float (&sw)[2], const char *record,
                                                         int row, int sub, float unit)
    {
#pragma unroll
        for (int h = 0; h < 2; h++)
            sw[h] = unit * (Cfg::kWScales && !Cfg::kWFold
                                ? R::effective(R::scale(record + Cfg::kScaleAt, sub, row + h * 8))
                                : R::kTableUnit);
    }
    /* .. of the block that column k lies in; own: what the lane has read, kPassScales. */
    static __device__ __forceinline__ void block_scales(float (&sw)[2], const float (&own)[2],
                                                        const char *record, int row, int k,
                                                        int lane, float unit)
    {
        const int sub = R::sub_of(k);
        if constexpr (!S::kPassScales)
            return weight_scales(sw, record, row, sub, unit);
#pragma unroll
        for (int h = 0; h < 2; h++)
            sw[h] = unit * __shfl_sync(0xFFFFFFFFu, own[h], (lane & 28) + sub);
    }
    /* Of a block's sums one as it is scaled; exact, as sums of a unit are below 2^24. */
    template <bool IN_SCALE> static __device__ __forceinline__ float value_of(Acc sum)
    {
        float v = (float)sum;
        if constexpr (kShift > 0 && !IN_SCALE)
            v *= 1.0f / (1 << kShift);
        return v;
    }
    /* Adds the sums of a block of K, scaled, to a slab's. */
    template <bool IN_SCALE>
    static __device__ __forceinline__ void promote(Sum *sums, const Acc *block,
                                                   const float (&sw)[2], uint32_t act_scales,
                                                   int lane)
    {
#pragma unroll
        for (int i = 0; i < S::kSlabSums; i += 4) {
            float sa[2] = {1.0f, 1.0f};
            if constexpr (S::kScales) {
                const Bytes8 v = load_shared8(act_scales + (i / 4 * 8 + lane % 4 * 2) * 4);
                sa[0] = num_float(v.x), sa[1] = num_float(v.y);
            }
#pragma unroll
            for (int j = 0; j < 4; j++)
                sums[i + j] =
                    num_fma(value_of<IN_SCALE>(block[i + j]), sa[j % 2] * sw[j / 2], sums[i + j]);
        }
    }

    /* Goes on to the unit of a block whose scales are `next`: what sums so far are multiplied by.
     * (Packing leaves no steps between scales of a row that sums do not survive: pack.h.) */
    static __device__ __forceinline__ void change_unit(float (&times)[2], float (&unit)[2],
                                                       const float (&next)[2])
    {
#pragma unroll
        for (int h = 0; h < 2; h++)
            times[h] = unit[h] * scale_reciprocal(next[h]), unit[h] = next[h];
    }
    static __device__ __forceinline__ void multiply(Sum *sums, const float (&times)[2])
    {
#pragma unroll
        for (int i = 0; i < S::kSlabSums; i++)
            sums[i] *= times[i / 2 % 2];
    }
    static __device__ __forceinline__ void leave_place(Sum *sums, const float (&unit)[2])
    {
        const float times[2] = {kUnit * unit[0], kUnit * unit[1]};
        multiply(sums, times);
    }

    /* In place: ptxas spilled where passes had products of their own. */
    static __device__ __forceinline__ void leave_unit(Sum *sums)
    {
        if constexpr (!S::kPromotes && !S::kInPlace && kUnit != 1.0f)
#pragma unroll
            for (int i = 0; i < S::kSums; i++)
                sums[i] *= kUnit;
    }

    /* Rows [PASS * kPassRows, ..) of a, row after row, the columns in their
     * places among the parts.
     */
    template <int PASS>
    static __device__ __forceinline__ void stage(char *smem, const Sum *sums, int slab0, int row,
                                                 int lane)
    {
#pragma unroll
        for (int slab = 0; slab < Cfg::kSlabs; slab++)
#pragma unroll
            for (int i = 0; i < Cfg::kPassRows / 2; i++) {
                const int n = (slab0 + slab) * 64 + row + i / 2 % 2 * 8, block = n / 8;
                const int col = block % Cfg::kParts * Cfg::kCols + block / Cfg::kParts * 8 + n % 8;
                const int m = i / 4 * 8 + lane % 4 * 2 + i % 2;
                Sum v = sums[slab * S::kSlabSums + PASS * (Cfg::kPassRows / 2) + i];
                if constexpr (S::kInt && !S::kPromotes)
                    v >>= kShift;
                *(Sum *)(smem + (m * S::kPitch + col) * 4) = v;
            }
    }
    template <int PASS>
    static __device__ __forceinline__ void stage_pass(int pass, char *smem, const Sum *sums,
                                                      int slab0, int row, int lane)
    {
        if (pass == PASS)
            stage<PASS>(smem, sums, slab0, row, lane);
        else if constexpr ((PASS + 1) * Cfg::kPassRows < Cfg::kBM)
            stage_pass<PASS + 1>(pass, smem, sums, slab0, row, lane);
    }
};

#endif
