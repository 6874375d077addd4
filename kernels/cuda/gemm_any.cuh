/* GEMM of any elements on CUDA cores: of two activations, whose second operand no compiler packed,
 * and of weights with a codebook of their own (BITS of pack.h). 256 threads hold a tile of 4096
 * sums, kBN columns wide, 4 x 4 a thread. Sums run along K in ascending order, in f32 by fma; with
 * kMainloop those of each block of K, scaled, into f32 sums.
 *
 * w: rows kWPitch bytes apart. Cfg: kA kW kK kN kBN (64, 128 or 256) kParts kAPitch kWPitch
 * kOperandA kOperandW kVaries kCodebook; with it those of the schemes (gemm_mma.cuh), the grid of
 * scales (kWBlockRows kWBlockK kGridCols kScaleAt kScaleFmt kWScales), and kPartRows (of a part,
 * without padding) kTableAt kTableRows (a row has tables of its own) kTableGrid (an entry has one).
 * p.dim[0]: rows of a; where kVaries, p.dim[1] to [4]: K, N and the bytes from row to row of a and
 * of w, K and N at most kK and kN. */
#ifndef SINTER_CUDA_GEMM_ANY
#define SINTER_CUDA_GEMM_ANY

#include "kernels/cuda/gemm_shape.cuh"

template <class Cfg> struct GemmAny {
    static constexpr int kBN = Cfg::kBN, kBM = 4096 / kBN, kBK = 16, kThreads = 256;
    static constexpr int kTilePitch = kBN + 4;
    static constexpr int kCols = kBN / Cfg::kParts;

    template <int FMT> static __device__ __forceinline__ float value(const char *row, int k)
    {
        if constexpr (FMT == FMT_F32)
            return ((const float *)row)[k];
        else if constexpr (Bits<FMT>::kBits == 16)
            return num_decode(FMT, ((const uint16_t *)row)[k]);
        else
            return num_decode(FMT, ((const uint8_t *)row)[k]);
    }
};

/* A weight whose codes are places in tables. */
template <class Cfg> struct AnyCodebook {
    static constexpr int kBits = Bits<Cfg::kW>::kBits;

    /* Row of the weight that packed row n is, or -1: padding. */
    static __device__ __forceinline__ int row_of(int n)
    {
        int part = n / 8 % Cfg::kParts, row = n / 8 / Cfg::kParts * 8 + n % 8;
        return n < Cfg::kN && row < Cfg::kPartRows ? part * Cfg::kPartRows + row : -1;
    }
    static __device__ __forceinline__ int64_t entry(int row, int k) /* of the grid */
    {
        constexpr int kRows = Cfg::kWBlockRows ? Cfg::kWBlockRows : 1;
        constexpr int kBlock = Cfg::kWBlockK ? Cfg::kWBlockK : 1;
        return (Cfg::kWBlockRows ? row / kRows : 0) * (int64_t)Cfg::kGridCols +
               (Cfg::kWBlockK ? k / kBlock : 0);
    }
    static __device__ __forceinline__ uint32_t code(const char *w, int n, int k)
    {
        const uint32_t *words = (const uint32_t *)(w + n * Cfg::kWPitch);
        const int64_t bit = (int64_t)k * kBits;
        const int from = (int)(bit % 32);
        uint32_t code = words[bit / 32] >> from;
        if (32 % kBits && from + kBits > 32)
            code |= words[bit / 32 + 1] << (32 - from);
        return code & ((1u << kBits) - 1);
    }
    static __device__ __forceinline__ float value(const char *w, int n, int k)
    {
        const int row = row_of(n);
        if (row < 0)
            return 0.0f;
        const int64_t table = Cfg::kTableGrid ? entry(row, k) : Cfg::kTableRows ? row : 0;
        return ((const float *)(w + Cfg::kTableAt))[(table << kBits) + code(w, n, k)];
    }
    static __device__ __forceinline__ float scale(const char *w, int n, int k)
    {
        const int row = row_of(n);
        if (!Cfg::kWScales || row < 0)
            return 1.0f;
        const char *at = w + Cfg::kScaleAt + entry(row, k) * (Bits<Cfg::kScaleFmt>::kBits / 8);
        if constexpr (Bits<Cfg::kScaleFmt>::kBits == 32)
            return *(const float *)at;
        else if constexpr (Bits<Cfg::kScaleFmt>::kBits == 16)
            return scale_value<Cfg::kScaleFmt>(*(const uint16_t *)at);
        else
            return scale_value<Cfg::kScaleFmt>(*(const uint8_t *)at);
    }
    /* An element of the activation, less its zero point. */
    static __device__ __forceinline__ float act(const Operand &a, int64_t row, int k)
    {
        const char *at = (const char *)a.data + row * Cfg::kAPitch;
        float v = GemmAny<Cfg>::template value<Cfg::kA>(at, k);
        if constexpr (Cfg::kAZero)
            v -= (float)a.zero[GemmMma<Cfg>::act_at(row, k)];
        return v;
    }
    static __device__ __forceinline__ float act_scale(const Operand &a, int64_t row, int k)
    {
        if (!Cfg::kAScale)
            return 1.0f;
        float scale = a.scale[GemmMma<Cfg>::act_at(row, k)];
        return a.outer ? num_scale_effective(scale, *a.outer) : scale;
    }
    /* Adds the sums of the block of K that k lies in, scaled, and clears them. */
    static __device__ __forceinline__ void promote(float (&total)[4][4], float (&sum)[4][4],
                                                   const Operand &a, int64_t m, const char *w,
                                                   int64_t m0, int n0, int k)
    {
        float sw[4];
#pragma unroll
        for (int j = 0; j < 4; j++)
            sw[j] = scale(w, n0 + j, k);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float sa = act_scale(a, m0 + i < m ? m0 + i : 0, k);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                total[i][j] = num_fma(sum[i][j], Cfg::kAScale ? sa * sw[j] : sw[j], total[i][j]);
                sum[i][j] = 0.0f;
            }
        }
    }
};

/* The end of a step that begins at k: 16 columns further, or where K or a block of it ends. */
template <class Cfg> __device__ __forceinline__ int any_end(int k, int size)
{
    int end = k + GemmAny<Cfg>::kBK < size ? k + GemmAny<Cfg>::kBK : size;
    if constexpr (Cfg::kCodebook) {
        constexpr int kBlock = Cfg::kBlockK ? Cfg::kBlockK : 1;
        int block = (k / kBlock + 1) * kBlock;
        end = Cfg::kBlockK && block < end ? block : end;
    }
    return end;
}

/* Sums of blocks of K are scaled. */
template <class Cfg> constexpr bool any_has_blocks()
{
    if constexpr (Cfg::kCodebook)
        return Cfg::kMainloop;
    return false;
}

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

    constexpr bool kMainloop = any_has_blocks<Cfg>();
    float sum[4][4] = {}, total[4][4] = {}; /* total: of scaled blocks */
    wait_for_producer();
#pragma unroll 1 /* small K would be unrolled whole, and its addresses would exceed the registers \
                  */
    for (int k0 = 0; k0 < size.k;) {
        const int k1 = any_end<Cfg>(k0, size.k);
        __syncthreads();
        for (int i = threadIdx.x; i < G::kBK * G::kBM; i += G::kThreads) {
            int k = k0 + i % G::kBK, r = i / G::kBK;
            float v = 0.0f;
            if (k < k1 && m0 + r < m) {
                if constexpr (Cfg::kCodebook)
                    v = AnyCodebook<Cfg>::act(a, m0 + r, k);
                else
                    v = G::template value<Cfg::kA>((const char *)a.data + (m0 + r) * size.a_pitch,
                                                   k);
            }
            sa[i % G::kBK][r] = v;
        }
        for (int i = threadIdx.x; i < G::kBK * G::kBN; i += G::kThreads) {
            int k = k0 + i % G::kBK, r = i / G::kBK;
            float v = 0.0f;
            if (k < k1 && n0 + r < size.n) {
                if constexpr (Cfg::kCodebook)
                    v = AnyCodebook<Cfg>::value(w, n0 + r, k);
                else
                    v = G::template value<Cfg::kW>(w + (n0 + r) * size.w_pitch, k);
            }
            sw[i % G::kBK][r] = v;
        }
        __syncthreads();
        for (int k = 0; k < k1 - k0; k++)
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    sum[i][j] = num_fma(sa[k][ty * 4 + i], sw[k][tx * 4 + j], sum[i][j]);
        if constexpr (kMainloop)
            if (k1 == size.k || (Cfg::kBlockK && k1 % (Cfg::kBlockK ? Cfg::kBlockK : 1) == 0))
                AnyCodebook<Cfg>::promote(total, sum, a, m, w, m0 + ty * 4, n0 + tx * 4, k0);
        k0 = k1;
    }
    let_consumer_start();
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            int n = tx * 4 + j;
            int col = n / 8 % Cfg::kParts * G::kCols + n / 8 / Cfg::kParts * 8 + n % 8;
            tile[(ty * 4 + i) * G::kTilePitch + col] = kMainloop ? total[i][j] : sum[i][j];
        }
    __syncthreads();
    for (int r = threadIdx.x / 32; r < G::kBM && m0 + r < m; r += G::kThreads / 32)
        Epilogue::row(p, a, (const char *)&tile[r * G::kTilePitch], m0 + r, n0 / Cfg::kParts,
                      (int)threadIdx.x % 32);
}

#endif
