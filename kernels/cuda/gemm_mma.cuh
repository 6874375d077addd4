/* GEMM on the tensor cores of any GPU from compute capability 8.0 (mma.sync, cp.async):
 *
 *   c[m, n] = sum over k of a[m, k] * w[n, k], then the fused epilogue on whole tiles.
 *
 * a: [M, K] row-major codes or 16-bit floats, rows kAPitch bytes apart, 16-byte aligned. w: packed
 * by cuda_pack (pack.h): in each 8 rows x 32 of K, lane 4 * g + t holds the eight codes of row g at
 * columns 8t .. 8t + 7. The lane reads the same columns of a, so the order of K inside a block of
 * 32 is the same for both operands and nothing is shuffled.
 *
 * A block of kWarpsM x kWarpsN warps computes a tile of kBM x kBN; 128 of K make a stage of a
 * cp.async pipeline. Integer operands accumulate exactly in
 * int32; the others in f32 with 16-bit operands that hold the codes exactly. Scales that vary along
 * K (kMainloop) are applied per block of kBlockK to the block's sum, blocks ascending:
 * f = fma((float)block, sa * sw, f).
 *
 * Cfg: kA kW (FormatId) kHome kK kN (packed rows) kBM kBN kWarpsM kWarpsN kStages kParts kMainloop
 * kBlockK (multiple of 32; 0: one block) kABlockRows kABlockK (rows, columns of a that share a
 * scale; 0 = all) kAPitch kWBlockK kWZero kWScaleAt kWZeroAt (byte offsets in packed w) kOperandA
 * kOperandW. */
#ifndef SINTER_CUDA_GEMM_MMA
#define SINTER_CUDA_GEMM_MMA

#include "kernels/cuda/format.cuh"

template <bool IS_INT> struct AccumulatorOf {
    typedef float Type;
};
template <> struct AccumulatorOf<true> {
    typedef int32_t Type;
};

template <class Cfg> struct GemmShape {
    static constexpr bool kInt = Cfg::kHome == HOME_I8;
    static constexpr int kThreads = 32 * Cfg::kWarpsM * Cfg::kWarpsN;
    static constexpr int kBK = 128, kSteps = 4; /* of 32 */
    static constexpr int kTilesK = (Cfg::kK + kBK - 1) / kBK;
    static constexpr int kPanels = Bits<Cfg::kA>::kBits / 8;     /* of 128 bytes a row of a */
    static constexpr int kRun = kBK * Bits<Cfg::kW>::kBits;      /* bytes of w: 8 rows x kBK */
    static constexpr int kUnitSteps = 16 / Bits<Cfg::kW>::kBits; /* steps in a lane's 16 bytes */
    static constexpr int kABytes = Cfg::kBM * 128 * kPanels;
    static constexpr int kWBytes = Cfg::kBN / 8 * kRun;
    static constexpr int kStageBytes = kABytes + kWBytes;
    static constexpr int kTilePitch = Cfg::kBN + 4; /* words */
    static constexpr int kTileBytes = Cfg::kBM * kTilePitch * 4;
    static constexpr int kSmemBytes =
        Cfg::kStages * kStageBytes > kTileBytes ? Cfg::kStages *kStageBytes : kTileBytes;
    static constexpr int kMFrags = Cfg::kBM / Cfg::kWarpsM / 16;
    static constexpr int kNFrags = Cfg::kBN / Cfg::kWarpsN / 8;
    static constexpr int kCols = Cfg::kBN / Cfg::kParts; /* of one part */
    static_assert(Cfg::kBM % (16 * Cfg::kWarpsM) == 0, "a warp computes multiples of 16 rows");
    static_assert(Cfg::kBN % (8 * Cfg::kWarpsN) == 0, "a warp computes multiples of 8 columns");
    static_assert(Cfg::kBlockK % 32 == 0, "a scale's block of K is a multiple of 32");
};

template <class Cfg> struct GemmMma {
    typedef GemmShape<Cfg> S;
    typedef typename AccumulatorOf<S::kInt>::Type Acc;
    static constexpr int kAWords = Codes8<Cfg::kA>::kWords;
    static constexpr int kWWords = Codes8<Cfg::kW>::kWords;

    /* Chunk of 16 bytes where logical chunk c of a row lies: spreads the rows that one access
     * phase reads over all banks. */
    static __device__ __forceinline__ int swizzle(int row, int c)
    {
        return Bits<Cfg::kA>::kBits == 16 ? c ^ ((row & 1) << 2) : c ^ ((row & 3) << 1);
    }

    static __device__ __forceinline__ void load_a(uint32_t smem, const char *a, int64_t m0,
                                                  int64_t m, int tile_k)
    {
        constexpr int kRowBytes = Cfg::kK * Bits<Cfg::kA>::kBits / 8;
        constexpr int kChunks = 8 * S::kPanels;
        for (int i = threadIdx.x; i < Cfg::kBM * kChunks; i += S::kThreads) {
            int row = i / kChunks, c = i % kChunks;
            int at = tile_k * 128 * S::kPanels + c * 16;
            int left = m0 + row < m ? kRowBytes - at : 0;
            left = left < 0 ? 0 : left > 16 ? 16 : left;
            const char *src = a + (left ? (m0 + row) * (int64_t)Cfg::kAPitch + at : 0);
            uint32_t dst = smem + c / 8 * (Cfg::kBM * 128) + row * 128 + swizzle(row, c % 8) * 16;
            copy_async16(dst, src, left);
        }
    }

    static __device__ __forceinline__ void load_w(uint32_t smem, const char *w, int n0, int tile_k)
    {
        constexpr int kChunks = S::kRun / 16;
        for (int i = threadIdx.x; i < Cfg::kBN / 8 * kChunks; i += S::kThreads) {
            int block = i / kChunks, c = i % kChunks;
            bool inside = n0 + block * 8 < Cfg::kN;
            const char *src =
                w + ((int64_t)(inside ? n0 / 8 + block : 0) * S::kTilesK + tile_k) * S::kRun +
                c * 16;
            copy_async16(smem + block * S::kRun + c * 16, src, inside ? 16 : 0);
        }
    }

    /* The eight elements of a row that this lane multiplies in one step, as operands. */
    static __device__ __forceinline__ void read_a(uint32_t (&out)[4], const char *tile, int row,
                                                  int step, int t)
    {
        uint32_t raw[4];
        int at = (step * 4 + t) * kAWords * 4;
        const char *p = tile + at / 128 * (Cfg::kBM * 128) + row * 128 +
                        swizzle(row, at / 16 % 8) * 16 + at % 16;
        if (kAWords == 4) {
            Bytes16 v = *(const Bytes16 *)p;
            raw[0] = v.x, raw[1] = v.y, raw[2] = v.z, raw[3] = v.w;
        } else {
            Bytes8 v = *(const Bytes8 *)p;
            raw[0] = v.x, raw[1] = v.y;
        }
        Decode<Cfg::kA, Cfg::kHome>::eight(raw, 0, out);
    }

    static __device__ __forceinline__ void multiply(Acc (&d)[4], const uint32_t (&lo)[4],
                                                    const uint32_t (&hi)[4], const uint32_t (&b)[4])
    {
        if constexpr (S::kInt) {
            uint32_t a[4] = {lo[0], hi[0], lo[1], hi[1]};
            mma_i8<Bits<Cfg::kA>::kSigned, Bits<Cfg::kW>::kSigned>(d, a, b[0], b[1]);
        } else {
#pragma unroll
            for (int half = 0; half < 2; half++) {
                uint32_t a[4] = {lo[2 * half], hi[2 * half], lo[2 * half + 1], hi[2 * half + 1]};
                if (Cfg::kHome == HOME_F16)
                    mma_f16(d, a, b[2 * half], b[2 * half + 1]);
                else
                    mma_bf16(d, a, b[2 * half], b[2 * half + 1]);
            }
        }
    }

    struct State {
        Acc acc[S::kMFrags][S::kNFrags][4];
        float sum[Cfg::kMainloop ? S::kMFrags : 1][Cfg::kMainloop ? S::kNFrags : 1][4];
        int zero[Cfg::kWZero ? S::kNFrags : 1];
    };

    /* The lane's 16 bytes of each 8 rows of w: kUnitSteps steps. */
    static __device__ __forceinline__ void read_w(uint32_t (&raw)[S::kNFrags][4], const char *w,
                                                  int unit, int block0, int lane)
    {
#pragma unroll
        for (int nf = 0; nf < S::kNFrags; nf++) {
            Bytes16 v = *(const Bytes16 *)(w + (block0 + nf) * S::kRun + (unit * 32 + lane) * 16);
            raw[nf][0] = v.x, raw[nf][1] = v.y, raw[nf][2] = v.z, raw[nf][3] = v.w;
        }
    }

    /* 32 of K. */
    static __device__ __forceinline__ void step(State &s, const char *a,
                                                const uint32_t (&raw)[S::kNFrags][4], int i,
                                                int row0, int lane)
    {
        uint32_t fa[S::kMFrags][2][4];
#pragma unroll
        for (int mf = 0; mf < S::kMFrags; mf++)
#pragma unroll
            for (int h = 0; h < 2; h++)
                read_a(fa[mf][h], a, row0 + mf * 16 + h * 8 + lane / 4, i, lane % 4);
#pragma unroll
        for (int nf = 0; nf < S::kNFrags; nf++) {
            uint32_t fb[4];
            Decode<Cfg::kW, Cfg::kHome>::eight(raw[nf] + i % S::kUnitSteps * kWWords,
                                               Cfg::kWZero ? s.zero[Cfg::kWZero ? nf : 0] : 0, fb);
#pragma unroll
            for (int mf = 0; mf < S::kMFrags; mf++)
                multiply(s.acc[mf][nf], fa[mf][0], fa[mf][1], fb);
            if constexpr (IsCodebook<Cfg::kW>::kYes) { /* what 16 bits left out */
                DecodeRest<Cfg::kW, Cfg::kHome>::eight(raw[nf] + i % S::kUnitSteps * kWWords, fb);
#pragma unroll
                for (int mf = 0; mf < S::kMFrags; mf++)
                    multiply(s.acc[mf][nf], fa[mf][0], fa[mf][1], fb);
            }
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

    /* Adds the block's sums, scaled, and clears them. */
    static __device__ __forceinline__ void promote(State &s, const Operand &a, const char *w,
                                                   int block, int64_t m0, int64_t m, int n0,
                                                   int lane)
    {
        const float *sw = (const float *)(w + Cfg::kWScaleAt) + w_grid(block);
        constexpr int kShift = shift();
#pragma unroll
        for (int mf = 0; mf < S::kMFrags; mf++) {
            int64_t row = m0 + mf * 16 + lane / 4;
            float sa[2] = {1.0f, 1.0f};
            if (a.scale) {
                sa[0] = act_scale(a, row < m ? row : 0, block);
                sa[1] = act_scale(a, row + 8 < m ? row + 8 : 0, block);
            }
#pragma unroll
            for (int nf = 0; nf < S::kNFrags; nf++) {
                int n = n0 + nf * 8 + lane % 4 * 2;
                float sb[2] = {1.0f, 1.0f};
                if (Cfg::kWScaleAt && n < Cfg::kN)
                    sb[0] = sw[n], sb[1] = sw[n + 1];
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    Acc v = s.acc[mf][nf][i];
                    if constexpr (S::kInt)
                        v >>= kShift;
                    float scale = a.scale ? sa[i / 2] * sb[i % 2] : sb[i % 2];
                    s.sum[mf][nf][i] = num_fma((float)v, scale, s.sum[mf][nf][i]);
                    s.acc[mf][nf][i] = 0;
                }
            }
        }
    }

    static __device__ __forceinline__ constexpr int shift()
    {
        if constexpr (S::kInt)
            return Decode<Cfg::kW, HOME_I8>::kShift + Decode<Cfg::kA, HOME_I8>::kShift;
        else
            return 0;
    }

    static __device__ __forceinline__ void read_zeros(State &s, const char *w, int block, int n0,
                                                      int lane)
    {
        if constexpr (Cfg::kWZero) {
            const int32_t *z = (const int32_t *)(w + Cfg::kWZeroAt) + w_grid(block);
#pragma unroll
            for (int nf = 0; nf < S::kNFrags; nf++) {
                int n = n0 + nf * 8 + lane / 4;
                s.zero[nf] = n < Cfg::kN ? z[n] : 0;
            }
        }
    }

    /* Accumulators to a tile of words in shared memory, the parts side by side. */
    static __device__ __forceinline__ void stage_tile(const State &s, char *smem, int row0,
                                                      int block0, int lane)
    {
        Acc *tile = (Acc *)smem;
#pragma unroll
        for (int mf = 0; mf < S::kMFrags; mf++)
#pragma unroll
            for (int nf = 0; nf < S::kNFrags; nf++) {
                int block = block0 + nf;
                int col = (block % Cfg::kParts) * S::kCols + block / Cfg::kParts * 8 + lane % 4 * 2;
                int row = row0 + mf * 16 + lane / 4;
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    Acc *dst = tile + (row + i / 2 * 8) * S::kTilePitch + col + i % 2;
                    if constexpr (Cfg::kMainloop)
                        *(float *)dst = s.sum[mf][nf][i];
                    else if constexpr (S::kInt)
                        *dst = s.acc[mf][nf][i] >> shift();
                    else
                        *dst = s.acc[mf][nf][i];
                }
            }
    }

    /* Tiles in bands of 8 along M, so that a wave of blocks shares rows and columns in L2. */
    static __device__ __forceinline__ void tile_of_block(int64_t m, int *ret_m, int *ret_n)
    {
        int tiles_m = (int)((m + Cfg::kBM - 1) / Cfg::kBM);
        constexpr int kTilesN = (Cfg::kN + Cfg::kBN - 1) / Cfg::kBN;
        int band = blockIdx.x / (8 * kTilesN), in_band = blockIdx.x % (8 * kTilesN);
        int height = tiles_m - band * 8 < 8 ? tiles_m - band * 8 : 8;
        *ret_m = band * 8 + in_band % height;
        *ret_n = in_band / height;
    }
};

/* Epilogue::row(p, a, acc, m, n0, lane): warp-wide; acc = the row of the staged tile, n0 = its
 * first column in each part. */
template <class Cfg, class Epilogue, class Params>
__device__ __forceinline__ void gemm_mma(const Params &p)
{
    typedef GemmMma<Cfg> G;
    typedef GemmShape<Cfg> S;
    extern __shared__ __align__(128) char smem[];
    const int64_t m = p.dim[0];
    const Operand a = p.op[Cfg::kOperandA];
    const char *w = (const char *)p.op[Cfg::kOperandW].data;
    int tile_m, tile_n;
    G::tile_of_block(m, &tile_m, &tile_n);
    const int64_t m0 = (int64_t)tile_m * Cfg::kBM;
    const int n0 = tile_n * Cfg::kBN;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int row0 = warp / Cfg::kWarpsN * (S::kMFrags * 16);
    const int block0 = warp % Cfg::kWarpsN * S::kNFrags;
    const uint32_t base = smem_address(smem);

    auto load_stage = [&](int k, bool with_a, bool with_w) {
        uint32_t at = base + k % Cfg::kStages * S::kStageBytes;
        if (with_a && k < S::kTilesK)
            G::load_a(at, (const char *)a.data, m0, m, k);
        if (with_w && k < S::kTilesK)
            G::load_w(at + S::kABytes, w, n0, k);
    };
    /* Weights do not depend on earlier kernels: fetch them before waiting for the producer. */
    for (int k = 0; k < Cfg::kStages - 1; k++)
        load_stage(k, false, true);
    wait_for_producer();
    for (int k = 0; k < Cfg::kStages - 1; k++) {
        load_stage(k, true, false);
        copy_commit();
    }

    typename G::State s = {};
    int block = 0;
    G::read_zeros(s, w, 0, n0 + block0 * 8, lane);
    for (int k = 0; k < S::kTilesK; k++) {
        copy_wait<Cfg::kStages - 2>();
        __syncthreads();
        load_stage(k + Cfg::kStages - 1, true, true);
        copy_commit();
        const char *stage = smem + k % Cfg::kStages * S::kStageBytes;
        uint32_t raw[S::kNFrags][4];
#pragma unroll
        for (int i = 0; i < S::kSteps; i++) {
            if (i % S::kUnitSteps == 0)
                G::read_w(raw, stage + S::kABytes, i / S::kUnitSteps, block0, lane);
            G::step(s, stage, raw, i, row0, lane);
            if constexpr (Cfg::kMainloop) {
                int end = (k * S::kSteps + i + 1) * 32;
                bool last = end == S::kTilesK * S::kBK;
                if ((Cfg::kBlockK && end % (Cfg::kBlockK ? Cfg::kBlockK : 1) == 0 &&
                     end - Cfg::kBlockK < Cfg::kK) ||
                    (last && block * Cfg::kBlockK < Cfg::kK)) {
                    G::promote(s, a, w, block, m0 + row0, m, n0 + block0 * 8, lane);
                    block++;
                    if (block * Cfg::kBlockK < Cfg::kK)
                        G::read_zeros(s, w, block, n0 + block0 * 8, lane);
                }
            }
        }
    }
    copy_wait<0>();
    __syncthreads();
    let_consumer_start();
    G::stage_tile(s, smem, row0, block0, lane);
    __syncthreads();
    for (int row = warp; row < Cfg::kBM && m0 + row < m; row += S::kThreads / 32)
        Epilogue::row(p, a, smem + row * S::kTilePitch * 4, m0 + row, n0 / Cfg::kParts, lane);
}

#endif
