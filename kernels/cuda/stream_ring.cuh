/* The weights of a stream (stream.cuh): its shape, and each warp's ring of tiles in shared memory.
 */
#ifndef SINTER_CUDA_STREAM_RING
#define SINTER_CUDA_STREAM_RING

#include "kernels/cuda/ahead.cuh"
#include "kernels/cuda/async.cuh"
#include "kernels/cuda/gemm_mma.cuh"

template <class Cfg> struct StreamShape {
    static constexpr bool kInt = Cfg::kHome == HOME_I8;
    static constexpr bool kOrdered = Cfg::kExact && Cfg::kMainloop && Cfg::kSplitK > 1;
    static constexpr bool kScales = Cfg::kWScales && !Cfg::kWFold; /* on the sums */
    static constexpr int kWarps = Cfg::kSplitK * Cfg::kNWarps;
    static constexpr int kThreads = 32 * kWarps;
    static constexpr int kHalves = Cfg::kRows > 8 ? 2 : 1; /* of the 16 rows of one mma */
    static constexpr int kTilesK = (Cfg::kK + 127) / 128;
    static constexpr int kOwn = kTilesK / Cfg::kGather; /* tiles of a block */
    static constexpr int kRounds = (kOwn + Cfg::kSplitK - 1) / Cfg::kSplitK;
    /* The tile of K that a warp takes in a round, and from one to the next. */
    static constexpr int kStride = Cfg::kAsWgmma ? 1 : Cfg::kSplitK;
    /* Codes are passed round, for products of 16 columns: those of fragments lie so. */
    static constexpr bool kPasses = Cfg::kAsWgmma && Cfg::kNeighbours == 8;
    static __device__ __forceinline__ int first_tile() /* of the block's part of K */
    {
        return Cfg::kGather > 1 ? (int)(blockIdx.x % Cfg::kGather) * kOwn : 0;
    }
    static __device__ __forceinline__ int own_tile(int round, int slice) /* from there on */
    {
        return Cfg::kAsWgmma ? slice * kRounds + round : round * Cfg::kSplitK + slice;
    }
    static __device__ __forceinline__ int tile_of(int round, int slice)
    {
        return first_tile() + own_tile(round, slice);
    }
    static __device__ __forceinline__ bool has_tile(int round, int slice)
    {
        return kOwn % Cfg::kSplitK == 0 || own_tile(round, slice) < kOwn;
    }
    static __device__ __forceinline__ int first_unit()
    {
        return blockIdx.x / Cfg::kGather;
    }
    static __device__ __forceinline__ int unit_step()
    {
        return gridDim.x / Cfg::kGather;
    }
    static constexpr int kRun = Record<Cfg>::kRun;
    /* From one tile of K to the next: of `panels`, which hold bytes alone, all rows. */
    static constexpr int64_t kTileBytes = Cfg::kPanels ? (int64_t)Cfg::kN * 128 : Cfg::kRecord;
    static constexpr int kUnits = 128 * Bits<Cfg::kW>::kBits / 512; /* of 4 words, decoded */
    static constexpr int kBlocks = Cfg::kNBlocks * Cfg::kNWarps;    /* of 8 columns, of a unit */
    static constexpr int kBN = 8 * kBlocks;
    static constexpr int kUnitsN = (Cfg::kN + kBN - 1) / kBN;
    static constexpr int kCols = kBN / Cfg::kParts;
    static constexpr int kPitch = kBN + 4; /* words */
    /* ranges of a tile that have scales of their own; blocks that fit no tile: each step has */
    static constexpr int kBlockK = Cfg::kMainloop ? Cfg::kBlockK : 0;
    /* Operands are decoded in a unit of their own, or left raw for a scale to decode. */
    static constexpr bool kInUnit = Cfg::kMainloop && !kInt && !Cfg::kWFold;
    static constexpr bool kRaw =
        Cfg::kMainloop && !kInt && Cfg::kWFold && Cfg::kW == FMT_E2M1 && Cfg::kScaleFmt == FMT_E4M3;
    /* What makes up for that: what folded scales are multiplied by, and scales of sums. */
    static constexpr float kFoldTimes = kRaw ? RawE2m1<Cfg::kHome>::kScaleTimes : 1.0f;
    static constexpr float kSumsTimes =
        kRaw ? RawE2m1<Cfg::kHome>::kSumsTimes
             : 1.0f / (kInUnit ? DecodeInUnit<Cfg::kW, Cfg::kHome>::kUnit : 1.0f);
    typedef PairsOf<Record<Cfg>::kScaled, Cfg, typename Record<Cfg>::Table> Pairs;
    static constexpr int kSub = kBlockK == 0 || kBlockK % 128 == 0   ? 1
                                : 128 % (kBlockK ? kBlockK : 1) == 0 ? 128 / (kBlockK ? kBlockK : 1)
                                                                     : 4;
    static constexpr int kSubSteps = 4 / kSub;
    static constexpr int kLastBlock = kBlockK ? (Cfg::kK - 1) / (kBlockK ? kBlockK : 1) : 0;
    static constexpr int kTilesBlock = /* tiles of a block of more than one */
        kBlockK == 0    ? kTilesK
        : kBlockK > 128 ? kBlockK / 128
                        : 1;
    /* Blocks of K that end inside a step: each is multiplied alone, the other codes left out. */
    static constexpr bool kFine = kBlockK % 32 != 0;
    /* Scales of a tile's four blocks of K: of the four lanes of a column each reads and decodes
     * one, and passes it round when its block comes. (nf4's two in f32 took longer so.) */
    static constexpr bool kPassScales =
        kScales && !Cfg::kWZero && !kFine && kSub == 4 && Cfg::kSubs == kSub;
    /* Those of two blocks are read together: the tile's slot is free before its products. (Beside
     * more rows, rows in registers or zero points some shapes have no room for that.) */
    static constexpr bool kBothScales = kScales && !Cfg::kWZero && !kFine && !kInt && kSub == 2 &&
                                        Cfg::kSubs == kSub && Cfg::kLocalA && Cfg::kRows <= 8;
    /* .. or, of eight blocks whose scales are folded into codes, two. */
    static constexpr bool kPassFolds =
        Cfg::kWFold && !kInt && !Cfg::kWZero && Cfg::kSubs == 8 && Cfg::kWBlockK == 16;
    /* parameters of a warp's columns, for one of the tile's blocks of K */
    static constexpr int kScaleRun =
        Cfg::kWScales ? Cfg::kNBlocks * 8 * Record<Cfg>::kScaleBytes : 0;
    static constexpr int kZeroRun =
        Cfg::kWZero ? (Cfg::kNBlocks * Bits<Cfg::kW>::kBits + 15) / 16 * 16 : 0;
    static constexpr int kParamRun = kScaleRun + kZeroRun;
    static constexpr int kWBytes = Cfg::kNBlocks * kRun;
    static constexpr int kStageBytes = kWBytes + Cfg::kSubs * kParamRun;
    static_assert(8 % Cfg::kNBlocks == 0 && kScaleRun % 16 == 0,
                  "a warp's columns are of one group");
    static constexpr int kRingBytes = kWarps * Cfg::kStages * kStageBytes;
    /* Rounds of one turn of the loop over K, whose tiles lie in slots of their own. */
    static constexpr int kAtOnce =
        kRounds % Cfg::kStages == 0 && Cfg::kStages <= 2 ? Cfg::kStages : 1;
    static constexpr int kSlices = kOrdered ? Cfg::kSplitK * kSub : Cfg::kSplitK;
    static constexpr int kStagedWords =
        kSlices * (Cfg::kRows * kPitch + (kOrdered && kScales ? kBN : 0));
    static constexpr int kTotalWords = kOrdered ? Cfg::kRows * kPitch : 0;
    static constexpr int kPairsAt =
        (kRingBytes + 4 * (Cfg::kBuffers * kStagedWords + kTotalWords) + 127) / 128 * 128;
    /* Rows of a are copied in chunks, each the tiles of a round: all stay, or, kRefills, each goes
     * to the place of one that all warps have read. Barriers: of the places of chunks, then of the
     * buffers of staged sums, when they are full and when they are free. */
    static constexpr int kChunks = Cfg::kCopiesA ? kRounds : 0;
    static constexpr bool kRefills = Cfg::kHeld > 0;
    static constexpr int kPlaces = kRefills ? Cfg::kHeld : kChunks;
    static constexpr int kBarriers = kPlaces + (Cfg::kDecoupled ? 2 * Cfg::kBuffers : 0);
    static constexpr int kBarriersAt = kPairsAt + Pairs::kBytes;
    static constexpr int kLocalAt = kBarriersAt + (kBarriers * 8 + 127) / 128 * 128;
    static_assert(!Cfg::kPanels ||
                      (Cfg::kWBits == 8 && kParamRun == 0 && Cfg::kN % (8 * Cfg::kNBlocks) == 0 &&
                       kBN % (32 * Cfg::kParts) == 0 && Cfg::kNeighbours == 4),
                  "units of panels are whole runs of 32 columns of each part");
    static_assert(!Cfg::kExact || kBlockK == 0 || kBlockK % 128 == 0 || 128 % kBlockK == 0,
                  "blocks of integers lie inside tiles, or tiles inside blocks");
    static_assert(kLocalAt <= Cfg::kSmemBytes, "what the compiler asked for is enough");
    static_assert(Cfg::kGather == 1 || (!kOrdered && !Cfg::kAsWgmma && Cfg::kBuffers == 2 &&
                                        kTilesK % Cfg::kGather == 0),
                  "equal parts of K, whose sums are added in any place");
    static_assert(!kRefills || (Cfg::kCopiesA && kOrdered && Cfg::kK % 128 == 0 && kPlaces > 1),
                  "warps meet every round, and no tile has a tail");
    static_assert(!Cfg::kDecoupled || (!kOrdered && Cfg::kGather == 1 && Cfg::kBuffers > 1),
                  "sums of one unit are added while those of the next are staged");
    static_assert(!Cfg::kAsWgmma || (!kOrdered && !kFine && !Cfg::kWFold && Cfg::kK % 128 == 0 &&
                                     kTilesK % Cfg::kSplitK == 0 && ActBits<Cfg::kA>::kBits == 16 &&
                                     Bits<Cfg::kW>::kBits <= 8),
                  "equal parts of K, of what wgmma multiplies as one 16-bit float each");
};

template <class Cfg> struct StreamRing {
    typedef StreamShape<Cfg> S;
    typedef Record<Cfg> R;
    /* A lane's codes of one tile. */
    struct Weights {
        uint32_t raw[Cfg::kNBlocks][S::kUnits * 4];
    };

    static __device__ __forceinline__ int block_of(int tile_k, int sub)
    {
        constexpr int kBlock = S::kBlockK ? S::kBlockK : 1;
        int block = S::kBlockK ? (tile_k * 128 + sub * (128 / S::kSub)) / kBlock : 0;
        return Cfg::kK % 128 && block > S::kLastBlock ? S::kLastBlock : block;
    }

    /* Where the next copies come from and go to. */
    struct Ahead {
        const char *codes; /* of the tile, the lane's */
        int params;        /* .. and from there to its first parameters */
        int unit, round;   /* of it */
        uint32_t slot;     /* of the ring, bytes; kAtOnce > 1: not kept */
    };
    static constexpr int kEach = S::kParamRun / 16, kAll = Cfg::kSubs * kEach; /* pieces */

    /* The first block of 8 columns of a warp; past the last group the last ones are read again,
     * nobody takes those columns. */
    static __device__ __forceinline__ int block_of_unit(int unit, int group)
    {
        constexpr int kAll = Cfg::kPanels ? Cfg::kN / 8 : (Cfg::kN + 63) / 64 * 8;
        constexpr int kLast = kAll - Cfg::kNBlocks;
        int block = unit * S::kBlocks + group * Cfg::kNBlocks;
        return block < kLast ? block : kLast;
    }

    static __device__ __forceinline__ void begin(Ahead &f, const char *w, int slice, int group,
                                                 int lane)
    {
        f.unit = S::first_unit();
        f.round = 0;
        f.slot = 0;
        find_record(f, w, slice, group, lane);
    }
    /* Where piece c of the parameters of a warp's columns lies in a record. row: the first of them.
     */
    static __device__ __forceinline__ int param_at(int c, int row)
    {
        const int sub = c / (kEach ? kEach : 1), at = (c - sub * kEach) * 16;
        row += sub * 64;
        if (Cfg::kWZero && at >= S::kScaleRun)
            return Cfg::kZeroAt + (row * Bits<Cfg::kW>::kBits / 8 & ~15) + at - S::kScaleRun;
        return Cfg::kScaleAt + row * R::kScaleBytes + at;
    }
    static __device__ __forceinline__ void find_record(Ahead &f, const char *w, int slice,
                                                       int group, int lane)
    {
        const int block = block_of_unit(f.unit, group), row = block % 8 * 8;
        if constexpr (Cfg::kPanels) {
            f.codes = w + S::tile_of(0, slice) * S::kTileBytes + block * 1024 + lane * 16;
            f.params = 0;
            return;
        }
        const int codes = row / 8 * S::kRun + lane * 16;
        f.codes = w + block / 8 * R::kGroup + (int64_t)S::tile_of(0, slice) * Cfg::kRecord + codes;
        f.params = param_at(lane, row) - codes;
    }

    /* Starts the copies of one tile to a slot of the warp's ring, the next one. */
    static __device__ __forceinline__ void fetch(Ahead &f, uint32_t to, const char *w, int slice,
                                                 int group, int lane)
    {
        if (f.unit < S::kUnitsN && S::has_tile(f.round, slice)) {
            const uint32_t slot = to + lane * 16;
#pragma unroll
            for (int i = 0; i < (S::kWBytes + 511) / 512; i++)
                if (S::kWBytes % 512 == 0 || i * 512 + lane * 16 < S::kWBytes)
                    copy_stream16(slot + i * 512, f.codes + i * 512);
#pragma unroll
            for (int i = 0; i < (kAll + 31) / 32; i++) {
                int from = f.params;
                if (i > 0) {
                    const int row = block_of_unit(f.unit, group) % 8 * 8;
                    from += param_at(lane + i * 32, row) - param_at(lane, row);
                }
                if (lane + i * 32 < kAll)
                    copy_stream16(slot + S::kWBytes + i * 512, f.codes + from);
            }
        } else if (f.unit >= S::kUnitsN) {
            let_consumer_start(); /* to fetch its weights, now that these are on their way */
        }
        copy_commit();
        if (S::kAtOnce == 1)
            f.slot = f.slot + S::kStageBytes == Cfg::kStages * S::kStageBytes
                         ? 0
                         : f.slot + S::kStageBytes;
        f.codes += S::kStride * S::kTileBytes;
        if (++f.round == S::kRounds) {
            f.round = 0;
            f.unit += S::unit_step();
            find_record(f, w, slice, group, lane);
        }
    }
    /* Chunk c of 16 bytes of row r lies at c ^ r: as matrices, so that a lane has what it has of
     * `fragments`. */
    static __device__ __forceinline__ void read_panels(Weights &q, uint32_t slot, int lane)
    {
        const int row = lane % 8;
#pragma unroll
        for (int nb = 0; nb < Cfg::kNBlocks; nb++)
#pragma unroll
            for (int u = 0; u < S::kUnits; u++) {
                uint32_t words[4];
                load_matrices(words,
                              slot + nb * S::kRun + row * 128 + ((u * 4 + lane / 8) ^ row) * 16);
#pragma unroll
                for (int i = 0; i < 4; i++)
                    q.raw[nb][4 * u + i] = words[i];
            }
    }
    static __device__ __forceinline__ void read_weights(Weights &q, uint32_t slot, int lane)
    {
        if constexpr (Cfg::kPanels) {
            read_panels(q, slot, lane);
            return;
        }
#pragma unroll
        for (int nb = 0; nb < Cfg::kNBlocks; nb++) {
            const uint32_t block = slot + nb * S::kRun;
            if constexpr (R::kThin) {
                R::open(q.raw[nb], [&](int i) { return load_shared4(block + i * 128 + lane * 4); });
                continue;
            }
#pragma unroll
            for (int u = 0; u < S::kUnits; u++) {
                Bytes16 v = load_shared16(block + u * 512 + lane * 16);
                q.raw[nb][4 * u] = v.x, q.raw[nb][4 * u + 1] = v.y;
                q.raw[nb][4 * u + 2] = v.z, q.raw[nb][4 * u + 3] = v.w;
            }
        }
        if constexpr (S::kPasses)
#pragma unroll
            for (int nb = 0; nb < Cfg::kNBlocks; nb++)
#pragma unroll
                for (int step = 0; step < 4; step++)
                    pass_halves(q.raw[nb] + step * S::kUnits, lane);
    }

    /* kPasses: the codes of a step, eight neighbours of each of four lanes, as halves of four: all
     * first ones of the first 16 columns, all second ones of the last 16. Lanes 2 and 3 hand over
     * their first halves for the second ones of lanes 0 and 1. */
    static __device__ __forceinline__ void pass_halves(uint32_t *raw, int lane)
    {
        const bool low = lane % 4 < 2;
        if constexpr (S::kUnits == 1) { /* nibbles, in the order of 16-bit floats */
            const uint32_t other = __shfl_xor_sync(0xFFFFFFFFu, raw[0], 2);
            raw[0] = __byte_perm(raw[0], other, low ? 0x6240 : 0x3715);
        } else {
            const uint32_t other = __shfl_xor_sync(0xFFFFFFFFu, low ? raw[1] : raw[0], 2);
            raw[0] = low ? raw[0] : other;
            raw[1] = low ? other : raw[1];
        }
    }

    /* Bits of a scale, or of zero points, of the lane's column of a block. */
    static __device__ __forceinline__ uint32_t param_bits(uint32_t at, int bytes)
    {
        return bytes == 4 ? load_shared4(at) : bytes == 2 ? load_shared2(at) : load_shared1(at);
    }

    /* What sums are multiplied by, of the scale that lies there. */
    static __device__ __forceinline__ float sums_scale(uint32_t at)
    {
        const float scale = scale_value<Cfg::kScaleFmt>(param_bits(at, R::kScaleBytes));
        return S::kSumsTimes * R::effective(scale);
    }
    /* Scales and zero points of the lane's columns, of block `sub` of the tile. row: the warp's
     * first one of its group. */
    template <class State>
    static __device__ __forceinline__ void read_params(State &s, uint32_t slot, int sub, int row,
                                                       int lane)
    {
        const uint32_t params = slot + S::kWBytes + sub * S::kParamRun;
#pragma unroll
        for (int nb = 0; nb < Cfg::kNBlocks; nb++) {
            const int at = nb * 8 + lane / 4;
            const uint32_t scale = params + at * R::kScaleBytes;
            if constexpr (S::kScales)
                (S::kPassScales ? s.own : s.scale)[nb] = sums_scale(scale);
            if constexpr (S::kBothScales)
                s.own[nb] = sums_scale(scale + S::kParamRun);
            if constexpr (Cfg::kWZero && R::kNibbles) {
                uint32_t from = params + S::kScaleRun + row / 2 % 16 + at / 2;
                int code = load_shared1(from) >> (at % 2 * 4) & 15;
                s.zero[nb] = Bits<Cfg::kW>::kSigned ? (code ^ 8) - 8 : code;
            } else if constexpr (Cfg::kWZero) {
                int code = load_shared1(params + S::kScaleRun + at);
                s.zero[nb] = Bits<Cfg::kW>::kSigned ? (int)(int8_t)code : code;
            }
        }
    }
    /* kBothScales: those of the tile's second block. */
    template <class State> static __device__ __forceinline__ void take_second(State &s)
    {
#pragma unroll
        for (int nb = 0; nb < Cfg::kNBlocks; nb++)
            s.scale[nb] = s.own[nb];
    }
    /* kPassScales: those of block `sub` of the tile, of which each lane has read its own. */
    template <class State>
    static __device__ __forceinline__ void pass_scales(State &s, int sub, int lane)
    {
#pragma unroll
        for (int nb = 0; nb < Cfg::kNBlocks; nb++)
            s.scale[nb] = __shfl_sync(0xFFFFFFFFu, s.own[nb], (lane & 28) + sub);
    }
    /* kPassFolds: what codes of blocks lane % 4 and lane % 4 + 4 of the tile are multiplied by,
     * halves of a word for a pair of blocks of columns, .. */
    template <class State>
    static __device__ __forceinline__ void read_folds(State &s, uint32_t slot, int lane)
    {
#pragma unroll
        for (int pair = 0; pair < Cfg::kNBlocks / 2; pair++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int k = (lane % 4 + 4 * i) * 16;
                s.fold[pair][i] = scale_halves<Cfg::kHome>(fold_of(slot, 2 * pair, k, lane),
                                                           fold_of(slot, 2 * pair + 1, k, lane));
            }
    }
    /* .. and, from the lane that has it, what those of half `half` of a step are. */
    template <class State>
    static __device__ __forceinline__ uint32_t pass_fold(const State &s, int pair, int step,
                                                         int half, int lane)
    {
        return __shfl_sync(0xFFFFFFFFu, s.fold[pair][step / 2], (lane & 28) + step % 2 * 2 + half);
    }
    /* The scale of the lane's codes at column k of K, of each block of columns. */
    static __device__ __forceinline__ typename R::Fold fold_of(uint32_t slot, int nb, int k,
                                                               int lane)
    {
        const uint32_t at = slot + S::kWBytes + lane / 4 * R::kScaleBytes;
        const typename R::Fold value = R::fold_value(
            param_bits(at + R::sub_of(k) * S::kParamRun + nb * 8 * R::kScaleBytes, R::kScaleBytes));
        if constexpr (S::kInt)
            return value;
        else
            return S::kFoldTimes * value;
    }
};

#endif
