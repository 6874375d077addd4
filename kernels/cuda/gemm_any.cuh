/* GEMM of two activations, whose second operand no compiler packed: plain formats on CUDA cores;
 * 256 threads hold a tile of 4096 sums, kBN columns wide, 4 x 4 a thread. Sums run along K in
 * ascending order, in f32 by fma.
 *
 * w: rows kWPitch bytes apart. Cfg: kA kW kK kN kBN (64, 128 or 256) kParts kAPitch kWPitch
 * kOperandA kOperandW kVaries. p.dim[0]: rows of a; where kVaries, p.dim[1] to [4]: K, N and the
 * bytes from row to row of a and of w, K and N at most kK and kN. */
#ifndef SINTER_CUDA_GEMM_ANY
#define SINTER_CUDA_GEMM_ANY

#include "kernels/cuda/format.cuh"

template <class Cfg> struct GemmAny {
    static constexpr int kBN = Cfg::kBN, kBM = 4096 / kBN, kBK = 16, kThreads = 256;
    static constexpr int kTilePitch = kBN + 4;
    static constexpr int kCols = kBN / Cfg::kParts;

    template <int FMT> static __device__ __forceinline__ float value(const char *row, int k)
    {
        if constexpr (FMT == FMT_F32)
            return ((const float *)row)[k];
        else
            return num_decode(FMT, ((const uint16_t *)row)[k]);
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

    float sum[4][4] = {};
    wait_for_producer();
#pragma unroll 1 /* small K would be unrolled whole, and its addresses would exceed the registers \
                  */
    for (int k0 = 0; k0 < size.k;) {
        const int k1 = k0 + G::kBK < size.k ? k0 + G::kBK : size.k;
        __syncthreads();
        for (int i = threadIdx.x; i < G::kBK * G::kBM; i += G::kThreads) {
            int k = k0 + i % G::kBK, r = i / G::kBK;
            float v = 0.0f;
            if (k < k1 && m0 + r < m)
                v = G::template value<Cfg::kA>((const char *)a.data + (m0 + r) * size.a_pitch, k);
            sa[i % G::kBK][r] = v;
        }
        for (int i = threadIdx.x; i < G::kBK * G::kBN; i += G::kThreads) {
            int k = k0 + i % G::kBK, r = i / G::kBK;
            float v = 0.0f;
            if (k < k1 && n0 + r < size.n)
                v = G::template value<Cfg::kW>(w + (n0 + r) * size.w_pitch, k);
            sw[i % G::kBK][r] = v;
        }
        __syncthreads();
        for (int k = 0; k < k1 - k0; k++)
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    sum[i][j] = num_fma(sa[k][ty * 4 + i], sw[k][tx * 4 + j], sum[i][j]);
        k0 = k1;
    }
    let_consumer_start();
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            int n = tx * 4 + j;
            int col = n / 8 % Cfg::kParts * G::kCols + n / 8 / Cfg::kParts * 8 + n % 8;
            tile[(ty * 4 + i) * G::kTilePitch + col] = sum[i][j];
        }
    __syncthreads();
    for (int r = threadIdx.x / 32; r < G::kBM && m0 + r < m; r += G::kThreads / 32)
        Epilogue::row(p, a, (const char *)&tile[r * G::kTilePitch], m0 + r, n0 / Cfg::kParts,
                      (int)threadIdx.x % 32);
}

#endif
