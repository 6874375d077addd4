/* GEMM for every combination that the tensor cores have no exact home for: f32 activations, blocks
 * of K that are no multiple of 32, zero points inside integer blocks, codebooks against f32,
 * weights that are activations themselves. CUDA cores; 256 threads hold a tile of 4096 sums, kBN
 * columns wide, 4 x 4 a thread.
 *
 * Sums run along K in ascending order, block by block: integers exactly in int32, others in f32 by
 * fma; then f = fma((float)block, sa * sw, f).
 *
 * w: rows of codes, kWPitch bytes apart (4-bit: low nibble first), then scales and zero points
 * [blocks of K][kN] at kWScaleAt and kWZeroAt (bytes; 0 = none).
 * Cfg: kA kW kK kN kBN (64, 128 or 256) kParts kMainloop kBlockK (0 = K) kABlockRows kABlockK
 * kAPitch kAZero kWPitch kWBlockK kWScaleAt kWZeroAt kOperandA kOperandW kVaries. p.dim[0]: rows of
 * a; where kVaries, p.dim[1] to [4]: K, N and the bytes from row to row of a and of w, K and N at
 * most kK and kN. */
#ifndef SINTER_CUDA_GEMM_ANY
#define SINTER_CUDA_GEMM_ANY

#include "kernels/cuda/format.cuh"

template <class Cfg> struct GemmAny {
    static constexpr int kBN = Cfg::kBN, kBM = 4096 / kBN, kBK = 16, kThreads = 256;
    static constexpr bool is_int(int fmt)
    {
        return fmt == FMT_I8 || fmt == FMT_U8 || fmt == FMT_I4 || fmt == FMT_U4;
    }
    static constexpr bool kInt = is_int(Cfg::kA) && is_int(Cfg::kW);
    static constexpr int kBlock = Cfg::kBlockK ? Cfg::kBlockK : Cfg::kK;
    static constexpr int kTilePitch = kBN + 4;
    static constexpr int kCols = kBN / Cfg::kParts;

    template <int FMT>
    static __device__ __forceinline__ float value(const char *row, int k, bool unpacked)
    {
        if constexpr (FMT == FMT_F32)
            return ((const float *)row)[k];
        else if constexpr (FMT == FMT_F16 || FMT == FMT_BF16)
            return num_decode(FMT, ((const uint16_t *)row)[k]);
        else if constexpr (Bits<FMT>::kBits == 4)
            return num_decode(FMT, unpacked ? (uint8_t)row[k] & 15
                                            : ((uint8_t)row[k / 2] >> (k % 2 * 4)) & 15);
        else
            return num_decode(FMT, (uint8_t)row[k]);
    }

    /* Block of a, or of w, that column k of K lies in. */
    static __device__ __forceinline__ int64_t a_grid(int64_t m, int k)
    {
        constexpr int kGrid = Cfg::kABlockK ? (Cfg::kK + Cfg::kABlockK - 1) / Cfg::kABlockK : 1;
        constexpr int kRows = Cfg::kABlockRows ? Cfg::kABlockRows : 1;
        constexpr int kBlockOfA = Cfg::kABlockK ? Cfg::kABlockK : 1;
        return (Cfg::kABlockRows ? m / kRows : 0) * kGrid + (Cfg::kABlockK ? k / kBlockOfA : 0);
    }
    static __device__ __forceinline__ int64_t w_grid(int n, int k)
    {
        constexpr int kBlockOfW = Cfg::kWBlockK ? Cfg::kWBlockK : 1;
        return (int64_t)(Cfg::kWBlockK ? k / kBlockOfW : 0) * Cfg::kN + n;
    }
};

/* K, N and the pitches of a product, constants unless they vary. */
template <class Cfg> struct AnySizes {
    int k, n;
    int64_t a_pitch, w_pitch;
};
template <class Cfg, class Params>
__device__ __forceinline__ AnySizes<Cfg> any_sizes(const Params &p)
{
    if constexpr (Cfg::kVaries)
        return {(int)p.dim[1], (int)p.dim[2], p.dim[3], p.dim[4]};
    else
        return {Cfg::kK, Cfg::kN, Cfg::kAPitch, Cfg::kWPitch};
}

template <class Cfg, class Epilogue, class Params>
__device__ __forceinline__ void gemm_any(const Params &p)
{
    const AnySizes<Cfg> size = any_sizes<Cfg>(p);
    typedef GemmAny<Cfg> G;
    __shared__ float sa[G::kBK][G::kBM], sw[G::kBK][G::kBN];
    __shared__ __align__(16) float tile[G::kBM * G::kTilePitch];
    const int64_t m = p.dim[0];
    const Operand a = p.op[Cfg::kOperandA];
    const char *w = (const char *)p.op[Cfg::kOperandW].data;
    constexpr int kTilesN = (Cfg::kN + G::kBN - 1) / G::kBN;
    const int64_t m0 = (int64_t)(blockIdx.x / kTilesN) * G::kBM;
    const int n0 = (int)(blockIdx.x % kTilesN) * G::kBN;
    const int tx = threadIdx.x % (G::kBN / 4), ty = threadIdx.x / (G::kBN / 4);
    const float *w_scale = (const float *)(w + Cfg::kWScaleAt);
    const int32_t *w_zero = (const int32_t *)(w + Cfg::kWZeroAt);

    float sum[4][4] = {}, acc[4][4] = {};
    int32_t exact[4][4] = {};
    wait_for_producer();
#pragma unroll 1 /* small K would be unrolled whole, and its addresses would exceed the registers \
                  */
    for (int k0 = 0; k0 < size.k;) {
        int block_end = (k0 / G::kBlock + 1) * G::kBlock;
        int k1 = k0 + G::kBK < block_end ? k0 + G::kBK : block_end;
        k1 = k1 < size.k ? k1 : size.k;
        __syncthreads();
        for (int i = threadIdx.x; i < G::kBK * G::kBM; i += G::kThreads) {
            int k = k0 + i % G::kBK, r = i / G::kBK;
            float v = 0.0f;
            if (k < k1 && m0 + r < m) {
                v = G::template value<Cfg::kA>((const char *)a.data + (m0 + r) * size.a_pitch, k,
                                               true);
                if (Cfg::kAZero)
                    v -= (float)a.zero[G::a_grid(m0 + r, k)];
            }
            sa[i % G::kBK][r] = v;
        }
        for (int i = threadIdx.x; i < G::kBK * G::kBN; i += G::kThreads) {
            int k = k0 + i % G::kBK, r = i / G::kBK;
            float v = 0.0f;
            if (k < k1 && n0 + r < size.n) {
                v = G::template value<Cfg::kW>(w + (n0 + r) * size.w_pitch, k, false);
                if (Cfg::kWZeroAt)
                    v -= (float)w_zero[G::w_grid(n0 + r, k)];
            }
            sw[i % G::kBK][r] = v;
        }
        __syncthreads();
        for (int k = 0; k < k1 - k0; k++)
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    if (G::kInt)
                        exact[i][j] += (int32_t)sa[k][ty * 4 + i] * (int32_t)sw[k][tx * 4 + j];
                    else
                        acc[i][j] = num_fma(sa[k][ty * 4 + i], sw[k][tx * 4 + j], acc[i][j]);
        if (Cfg::kMainloop && (k1 == block_end || k1 == size.k))
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    int64_t row = m0 + ty * 4 + i;
                    int n = n0 + tx * 4 + j;
                    float s = 1.0f;
                    if (a.scale && row < m) {
                        s = a.scale[G::a_grid(row, k0)];
                        s = a.outer ? num_scale_effective(s, *a.outer) : s;
                    }
                    float b = Cfg::kWScaleAt && n < Cfg::kN ? w_scale[G::w_grid(n, k0)] : 1.0f;
                    sum[i][j] = num_fma(G::kInt ? (float)exact[i][j] : acc[i][j], s * b, sum[i][j]);
                    acc[i][j] = 0.0f;
                    exact[i][j] = 0;
                }
        k0 = k1;
    }
    let_consumer_start();
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            int n = tx * 4 + j;
            int col = n / 8 % Cfg::kParts * G::kCols + n / 8 / Cfg::kParts * 8 + n % 8;
            float *dst = &tile[(ty * 4 + i) * G::kTilePitch + col];
            if (Cfg::kMainloop)
                *dst = sum[i][j];
            else if (G::kInt)
                *(int32_t *)dst = exact[i][j];
            else
                *dst = acc[i][j];
        }
    __syncthreads();
    for (int r = threadIdx.x / 32; r < G::kBM && m0 + r < m; r += G::kThreads / 32)
        Epilogue::row(p, a, (const char *)&tile[r * G::kTilePitch], m0 + r, n0 / Cfg::kParts,
                      (int)threadIdx.x % 32);
}

#endif
