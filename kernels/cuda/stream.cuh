/* GEMM for few rows of a (M <= 16): streams the packed weights once through the tensor cores.
 *
 * A block computes all M rows of 8 * kNBlocks packed columns. kSplitK warps share K (tiles of 128,
 * contiguous runs), each with its own accumulators, which are added in the order of the warps; with
 * integer blocks along K (kMainloop and integers) kSplitK is 1 and kNWarps warps share the columns
 * instead, because there the order of blocks is part of the contract. Weights go straight from
 * global memory to registers, 16 bytes a lane, kBatch tiles ahead of use; a comes from L1/L2 or,
 * with kLocalA, from shared memory that the prologue filled.
 *
 * Cfg: that of gemm_mma.cuh, but kNBlocks (per warp) kSplitK kNWarps kBatch kRows (8 or 16) kLocalA
 * instead of tiles and stages. */
#ifndef SINTER_CUDA_STREAM
#define SINTER_CUDA_STREAM

#include "kernels/cuda/gemm_mma.cuh"

template <class Cfg> struct StreamShape {
    static constexpr bool kInt = Cfg::kHome == HOME_I8;
    static constexpr int kThreads = 32 * Cfg::kSplitK * Cfg::kNWarps;
    static constexpr int kTilesK = (Cfg::kK + 127) / 128;
    static constexpr int kRun = 128 * Bits<Cfg::kW>::kBits;
    static constexpr int kUnits = kRun / 512;
    static constexpr int kUnitSteps = 4 / kUnits;
    static constexpr int kBlocks = Cfg::kNBlocks * Cfg::kNWarps; /* of 8 columns, of a block */
    static constexpr int kBN = 8 * kBlocks;
    static constexpr int kCols = kBN / Cfg::kParts;
    static constexpr int kTilePitch = kBN + 4;
    /* tiles of K of one warp; whole scale blocks, so that none is shared */
    static constexpr int kAlignK = Cfg::kMainloop && Cfg::kBlockK > 128 ? Cfg::kBlockK / 128 : 1;
    static constexpr int kShare =
        ((kTilesK + Cfg::kSplitK - 1) / Cfg::kSplitK + kAlignK - 1) / kAlignK * kAlignK;
    static constexpr int kTileWords = 16 * kTilePitch;
    static_assert(Cfg::kSplitK == 1 || !(kInt && Cfg::kMainloop),
                  "integer blocks keep their order");
};

template <class Cfg> struct Stream {
    typedef StreamShape<Cfg> S;
    typedef typename AccumulatorOf<S::kInt>::Type Acc;
    static constexpr int kAWords = Codes8<Cfg::kA>::kWords;
    static constexpr int kWWords = Codes8<Cfg::kW>::kWords;
    static constexpr int kHalves = Cfg::kRows / 8;
    static constexpr int kShift = GemmMma<Cfg>::shift();

    struct State {
        Acc acc[Cfg::kNBlocks][4];
        float sum[Cfg::kMainloop ? Cfg::kNBlocks : 1][4];
        int zero[Cfg::kNBlocks];
    };

    static __device__ __forceinline__ void read_a(uint32_t (&out)[4], const char *a, int64_t row,
                                                  int64_t m, int k)
    {
        uint32_t raw[4] = {};
        if (row < m && k < Cfg::kK) {
            const char *p = a + row * (int64_t)Cfg::kAPitch + k * (Bits<Cfg::kA>::kBits / 8);
            if (k + 8 <= Cfg::kK && kAWords == 4) {
                Bytes16 v = *(const Bytes16 *)p;
                raw[0] = v.x, raw[1] = v.y, raw[2] = v.z, raw[3] = v.w;
            } else if (k + 8 <= Cfg::kK) {
                Bytes8 v = *(const Bytes8 *)p;
                raw[0] = v.x, raw[1] = v.y;
            } else {
                uint8_t byte[16] = {};
                for (int i = 0; i < (Cfg::kK - k) * (Bits<Cfg::kA>::kBits / 8); i++)
                    byte[i] = p[i];
                for (int i = 0; i < 16; i++)
                    raw[i / 4] |= (uint32_t)byte[i] << (i % 4 * 8);
            }
        }
        Decode<Cfg::kA, Cfg::kHome>::eight(raw, 0, out);
    }

    static __device__ __forceinline__ void multiply(Acc (&d)[4], const uint32_t (&lo)[4],
                                                    const uint32_t (&hi)[4], const uint32_t (&b)[4])
    {
        GemmMma<Cfg>::multiply(d, lo, hi, b);
    }

    static __device__ __forceinline__ void read_zeros(State &s, const char *w, int block, int b0,
                                                      int lane)
    {
        if constexpr (Cfg::kWZero) {
            const int32_t *z = (const int32_t *)(w + Cfg::kWZeroAt) + GemmMma<Cfg>::w_grid(block);
#pragma unroll
            for (int nb = 0; nb < Cfg::kNBlocks; nb++) {
                int n = (b0 + nb) * 8 + lane / 4;
                s.zero[nb] = n < Cfg::kN ? z[n] : 0;
            }
        }
    }

    static __device__ __forceinline__ void promote(State &s, const Operand &a, const char *w,
                                                   int block, int64_t m, int b0, int lane)
    {
        const float *sw = (const float *)(w + Cfg::kWScaleAt) + GemmMma<Cfg>::w_grid(block);
        float sa[2] = {1.0f, 1.0f};
        if (a.scale) {
            int row = lane / 4;
            sa[0] = GemmMma<Cfg>::act_scale(a, row < m ? row : 0, block);
            sa[1] =
                kHalves > 1 ? GemmMma<Cfg>::act_scale(a, row + 8 < m ? row + 8 : 0, block) : 1.0f;
        }
#pragma unroll
        for (int nb = 0; nb < Cfg::kNBlocks; nb++) {
            int n = (b0 + nb) * 8 + lane % 4 * 2;
            float sb[2] = {1.0f, 1.0f};
            if (Cfg::kWScaleAt && n < Cfg::kN)
                sb[0] = sw[n], sb[1] = sw[n + 1];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                Acc v = s.acc[nb][i];
                if constexpr (S::kInt)
                    v >>= kShift;
                float scale = a.scale ? sa[i / 2] * sb[i % 2] : sb[i % 2];
                s.sum[nb][i] = num_fma((float)v, scale, s.sum[nb][i]);
                s.acc[nb][i] = 0;
            }
        }
    }

    /* One tile of 128 of K whose weights are in raw. */
    static __device__ __forceinline__ void tile(State &s, const Operand &a, const char *w,
                                                const uint32_t (&raw)[Cfg::kNBlocks][S::kUnits][4],
                                                int64_t m, int tile_k, int b0, int lane)
    {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t lo[4], hi[4] = {};
            int k = tile_k * 128 + i * 32 + lane % 4 * 8;
            read_a(lo, (const char *)a.data, lane / 4, m, k);
            if (kHalves > 1)
                read_a(hi, (const char *)a.data, lane / 4 + 8, m, k);
#pragma unroll
            for (int nb = 0; nb < Cfg::kNBlocks; nb++) {
                const uint32_t *codes = raw[nb][i / S::kUnitSteps] + i % S::kUnitSteps * kWWords;
                uint32_t fb[4];
                Decode<Cfg::kW, Cfg::kHome>::eight(codes, Cfg::kWZero ? s.zero[nb] : 0, fb);
                multiply(s.acc[nb], lo, hi, fb);
                if constexpr (IsCodebook<Cfg::kW>::kYes) {
                    DecodeRest<Cfg::kW, Cfg::kHome>::eight(codes, fb);
                    multiply(s.acc[nb], lo, hi, fb);
                }
            }
            if constexpr (Cfg::kMainloop) {
                int end = tile_k * 128 + (i + 1) * 32;
                bool whole = Cfg::kBlockK && end % (Cfg::kBlockK ? Cfg::kBlockK : 1) == 0;
                bool last = end == S::kTilesK * 128;
                int block = Cfg::kBlockK ? (end - 1) / (Cfg::kBlockK ? Cfg::kBlockK : 1) : 0;
                if ((whole || last) && block * Cfg::kBlockK < Cfg::kK) {
                    promote(s, a, w, block, m, b0, lane);
                    if ((block + 1) * Cfg::kBlockK < Cfg::kK)
                        read_zeros(s, w, Cfg::kBlockK ? block + 1 : 0, b0, lane);
                }
            }
        }
    }
};

template <class Cfg, class Epilogue, class Params>
__device__ __forceinline__ void stream(const Params &p, const Operand &a)
{
    typedef Stream<Cfg> G;
    typedef StreamShape<Cfg> S;
    __shared__ __align__(16) typename G::Acc staged[Cfg::kSplitK][S::kTileWords];
    const int64_t m = p.dim[0];
    const char *w = (const char *)p.op[Cfg::kOperandW].data;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int slice = warp % Cfg::kSplitK, group = warp / Cfg::kSplitK;
    const int b0 = (int)blockIdx.x * S::kBlocks + group * Cfg::kNBlocks;
    const int first = slice * S::kShare;
    const int end = first + S::kShare < S::kTilesK ? first + S::kShare : S::kTilesK;

    typename G::State s = {};
    if (first < end)
        G::read_zeros(
            s, w,
            Cfg::kMainloop && Cfg::kBlockK ? first * 128 / (Cfg::kBlockK ? Cfg::kBlockK : 1) : 0,
            b0, lane);
    for (int k = first; k < end; k += Cfg::kBatch) {
        uint32_t raw[Cfg::kBatch][Cfg::kNBlocks][S::kUnits][4];
#pragma unroll
        for (int b = 0; b < Cfg::kBatch; b++)
#pragma unroll
            for (int nb = 0; nb < Cfg::kNBlocks; nb++)
#pragma unroll
                for (int u = 0; u < S::kUnits; u++) {
                    Bytes16 v = {};
                    if (k + b < end && (b0 + nb) * 8 < Cfg::kN)
                        v = load_stream16(w + ((int64_t)(b0 + nb) * S::kTilesK + k + b) * S::kRun +
                                          (u * 32 + lane) * 16);
                    raw[b][nb][u][0] = v.x, raw[b][nb][u][1] = v.y;
                    raw[b][nb][u][2] = v.z, raw[b][nb][u][3] = v.w;
                }
        if (!Cfg::kLocalA && k == first)
            wait_for_producer(); /* the first weights are on their way */
#pragma unroll
        for (int b = 0; b < Cfg::kBatch; b++)
            if (k + b < end)
                G::tile(s, a, w, raw[b], m, k + b, b0, lane);
    }
    if (!Cfg::kLocalA && first >= end)
        wait_for_producer();
    let_consumer_start();
#pragma unroll
    for (int nb = 0; nb < Cfg::kNBlocks; nb++) {
        int block = group * Cfg::kNBlocks + nb;
        int col = block % Cfg::kParts * S::kCols + block / Cfg::kParts * 8 + lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int at = (lane / 4 + i / 2 * 8) * S::kTilePitch + col + i % 2;
            if constexpr (Cfg::kMainloop)
                ((float *)staged[slice])[at] = s.sum[nb][i];
            else if constexpr (S::kInt)
                staged[slice][at] = s.acc[nb][i] >> G::kShift;
            else
                staged[slice][at] = s.acc[nb][i];
        }
    }
    __syncthreads();
    typedef typename AccumulatorOf<S::kInt && !Cfg::kMainloop>::Type Sum;
    Sum *total = (Sum *)staged[0];
    for (int i = threadIdx.x; i < S::kTileWords && Cfg::kSplitK > 1; i += S::kThreads) {
        if (i % S::kTilePitch >= S::kBN)
            continue;
        Sum v = total[i];
#pragma unroll
        for (int j = 1; j < Cfg::kSplitK; j++)
            v = v + ((Sum *)staged[j])[i];
        total[i] = v;
    }
    __syncthreads();
    for (int row = warp; row < Cfg::kRows && row < m; row += S::kThreads / 32)
        Epilogue::row(p, a, (const char *)(total + row * S::kTilePitch), row,
                      (int)blockIdx.x * S::kCols, lane);
}

#endif
