/* The weights of a stream (stream.cuh): its shape, and each warp's ring of tiles in shared memory.
 */
#ifndef SINTER_CUDA_STREAM_RING
#define SINTER_CUDA_STREAM_RING

#include "kernels/cuda/gemm_mma.cuh"

template <class Cfg> struct StreamShape {
    static constexpr bool kInt = Cfg::kHome == HOME_I8;
    static constexpr bool kOrdered = kInt && Cfg::kMainloop && Cfg::kSplitK > 1;
    static constexpr bool kScales = Cfg::kMainloop && Cfg::kWScaleAt != 0;
    static constexpr int kWarps = Cfg::kSplitK * Cfg::kNWarps;
    static constexpr int kThreads = 32 * kWarps;
    static constexpr int kHalves = Cfg::kRows > 8 ? 2 : 1; /* of the 16 rows of one mma */
    static constexpr int kTilesK = (Cfg::kK + 127) / 128;
    static constexpr int kRounds = (kTilesK + Cfg::kSplitK - 1) / Cfg::kSplitK;
    static constexpr int kRun = 128 * Bits<Cfg::kW>::kBits;
    static constexpr int kUnits = kRun / 512;
    static constexpr int kUnitSteps = 4 / kUnits;
    static constexpr int kBlocks = Cfg::kNBlocks * Cfg::kNWarps; /* of 8 columns, of a unit */
    static constexpr int kBN = 8 * kBlocks;
    static constexpr int kUnitsN = (Cfg::kN + kBN - 1) / kBN;
    static constexpr int kCols = kBN / Cfg::kParts;
    static constexpr int kPitch = kBN + 4; /* words */
    /* ranges of a tile that have scales of their own; blocks that fit no tile: each step has */
    static constexpr int kBlockK = Cfg::kMainloop ? Cfg::kBlockK : 0;
    static constexpr int kSub = kBlockK == 0 || kBlockK % 128 == 0   ? 1
                                : 128 % (kBlockK ? kBlockK : 1) == 0 ? 128 / (kBlockK ? kBlockK : 1)
                                                                     : 4;
    static constexpr int kSubSteps = 4 / kSub;
    static constexpr int kLastBlock = kBlockK ? (Cfg::kK - 1) / (kBlockK ? kBlockK : 1) : 0;
    static constexpr int kTilesBlock = /* tiles of a block of more than one */
        kBlockK == 0    ? kTilesK
        : kBlockK > 128 ? kBlockK / 128
                        : 1;
    static constexpr int kParamWords = kSub * Cfg::kNBlocks * 8; /* of scales, of zero points */
    static constexpr int kWBytes = Cfg::kNBlocks * kRun;
    static constexpr int kStageBytes = kWBytes + 4 * kParamWords * (kScales + Cfg::kWZero);
    static constexpr int kRingBytes = kWarps * Cfg::kStages * kStageBytes;
    static constexpr int kSlices = kOrdered ? Cfg::kSplitK * kSub : Cfg::kSplitK;
    static constexpr int kStagedWords =
        kSlices * (Cfg::kRows * kPitch + (kOrdered && kScales ? kBN : 0));
    static constexpr int kTotalWords = kOrdered ? Cfg::kRows * kPitch : 0;
    static constexpr int kLocalAt =
        (kRingBytes + 4 * (Cfg::kBuffers * kStagedWords + kTotalWords) + 127) / 128 * 128;
    static_assert(!kInt || kBlockK == 0 || kBlockK % 128 == 0 || 128 % kBlockK == 0,
                  "blocks of integers lie inside tiles, or tiles inside blocks");
    static_assert(kLocalAt <= Cfg::kSmemBytes, "what the compiler asked for is enough");
};

template <class Cfg> struct StreamRing {
    typedef StreamShape<Cfg> S;
    typedef GemmMma<Cfg> G;
    /* A lane's codes of one tile. */
    struct Weights {
        uint32_t raw[Cfg::kNBlocks][S::kUnits][4];
    };

    static __device__ __forceinline__ int block_of(int tile_k, int sub)
    {
        constexpr int kBlock = S::kBlockK ? S::kBlockK : 1;
        int block = S::kBlockK ? (tile_k * 128 + sub * (128 / S::kSub)) / kBlock : 0;
        return Cfg::kK % 128 && block > S::kLastBlock ? S::kLastBlock : block;
    }

    /* Where the next copies come from and go to. */
    struct Ahead {
        const char *src; /* the lane's first bytes of the tile */
        int unit, round;
        uint32_t slot; /* of the ring, bytes */
    };

    static __device__ __forceinline__ void begin(Ahead &f, const char *w, int slice, int group,
                                                 int lane)
    {
        f.unit = blockIdx.x;
        f.round = 0;
        f.slot = 0;
        int64_t block = f.unit * S::kBlocks + group * Cfg::kNBlocks;
        f.src = w + (block * S::kTilesK + slice) * S::kRun + lane * 16;
    }

    /* Starts the copies of one tile to the next slot of the warp's ring. Past the last column the
     * last block is read again; nobody takes those columns. */
    static __device__ __forceinline__ void fetch(Ahead &f, uint32_t ring, const char *w, int slice,
                                                 int group, int lane)
    {
        const int tile_k = f.round * Cfg::kSplitK + slice;
        if (f.unit < S::kUnitsN && (S::kTilesK % Cfg::kSplitK == 0 || tile_k < S::kTilesK)) {
            const int b0 = f.unit * S::kBlocks + group * Cfg::kNBlocks;
            const uint32_t slot = ring + f.slot;
#pragma unroll
            for (int nb = 0; nb < Cfg::kNBlocks; nb++) {
                const char *src = f.src + (int64_t)nb * (S::kTilesK * S::kRun);
                if (Cfg::kN % S::kBN && b0 + nb >= Cfg::kN / 8)
                    src = f.src + (int64_t)(Cfg::kN / 8 - 1 - b0) * (S::kTilesK * S::kRun);
#pragma unroll
                for (int u = 0; u < S::kUnits; u++)
                    copy_stream16(slot + (nb * S::kUnits + u) * 512 + lane * 16, src + u * 512);
            }
            constexpr int kChunks = Cfg::kNBlocks * 2; /* of 4 columns */
            constexpr int kAll = S::kScales || Cfg::kWZero ? S::kSub * kChunks : 0;
#pragma unroll
            for (int i = 0; i < (kAll + 31) / 32; i++) {
                int c = lane + i * 32, n = b0 * 8 + c % kChunks * 4;
                if (Cfg::kN % S::kBN && n >= Cfg::kN)
                    n = Cfg::kN - 4;
                int64_t at = (G::w_grid(block_of(tile_k, c / kChunks)) + n) * 4;
                uint32_t to = slot + S::kWBytes + c * 16;
                if (S::kScales && c < kAll)
                    copy_stream16(to, w + Cfg::kWScaleAt + at);
                if (Cfg::kWZero && c < kAll)
                    copy_stream16(to + (S::kScales ? 4 * S::kParamWords : 0),
                                  w + Cfg::kWZeroAt + at);
            }
        } else if (f.unit >= S::kUnitsN) {
            let_consumer_start(); /* to fetch its weights, now that these are on their way */
        }
        copy_commit();
        f.slot =
            f.slot + S::kStageBytes == Cfg::kStages * S::kStageBytes ? 0 : f.slot + S::kStageBytes;
        f.src += Cfg::kSplitK * S::kRun;
        if (++f.round == S::kRounds) {
            f.round = 0;
            f.unit += gridDim.x;
            f.src += ((int64_t)gridDim.x * (S::kBlocks * S::kTilesK) - S::kRounds * Cfg::kSplitK) *
                     S::kRun;
        }
    }

    static __device__ __forceinline__ void read_weights(Weights &q, uint32_t slot, int lane)
    {
#pragma unroll
        for (int nb = 0; nb < Cfg::kNBlocks; nb++)
#pragma unroll
            for (int u = 0; u < S::kUnits; u++) {
                Bytes16 v = load_shared16(slot + (nb * S::kUnits + u) * 512 + lane * 16);
                q.raw[nb][u][0] = v.x, q.raw[nb][u][1] = v.y;
                q.raw[nb][u][2] = v.z, q.raw[nb][u][3] = v.w;
            }
    }

    /* Of the lane's columns, for range `sub` of the tile: s.scale and s.zero. */
    template <class State>
    static __device__ __forceinline__ void read_params(State &s, uint32_t slot, int sub, int lane)
    {
        const uint32_t params = slot + S::kWBytes + sub * Cfg::kNBlocks * 32 + lane / 4 * 4;
#pragma unroll
        for (int nb = 0; nb < Cfg::kNBlocks; nb++) {
            if constexpr (S::kScales)
                s.scale[nb] = num_float(load_shared4(params + nb * 32));
            if constexpr (Cfg::kWZero)
                s.zero[nb] =
                    (int)load_shared4(params + (S::kScales ? 4 * S::kParamWords : 0) + nb * 32);
        }
    }
};

#endif
