/* Reductions along the rows that threads hold, and the norms that stand on them. */
#ifndef SINTER_CUDA_REDUCE
#define SINTER_CUDA_REDUCE

#include "kernels/cuda/columns.cuh"

/* Integer reductions, whose order does not matter; over_warp: over the lanes of the warp. */
#if __CUDA_ARCH__ >= 800
#define SINTER_REDUX(op, v) (int32_t) __reduce_##op##_sync(0xFFFFFFFFu, v)
#else
#define SINTER_REDUX(op, v) shuffled(v, *this)
#endif
template <class Combine> __device__ __forceinline__ int32_t shuffled(int32_t v, Combine combine)
{
#pragma unroll
    for (int d = 16; d > 0; d /= 2)
        v = combine(v, __shfl_xor_sync(0xFFFFFFFFu, v, d));
    return v;
}
struct Most {
    __device__ __forceinline__ int32_t operator()(int32_t a, int32_t b) const
    {
        return a > b ? a : b;
    }
    __device__ __forceinline__ int32_t over_warp(int32_t v) const
    {
        return SINTER_REDUX(max, v);
    }
};
struct Least {
    __device__ __forceinline__ int32_t operator()(int32_t a, int32_t b) const
    {
        return a < b ? a : b;
    }
    __device__ __forceinline__ int32_t over_warp(int32_t v) const
    {
        return SINTER_REDUX(min, v);
    }
};
struct Plus {
    __device__ __forceinline__ int32_t operator()(int32_t a, int32_t b) const
    {
        return (int32_t)((uint32_t)a + (uint32_t)b);
    }
    __device__ __forceinline__ int32_t over_warp(int32_t v) const
    {
        return SINTER_REDUX(add, v);
    }
};

template <class S, class Combine>
__device__ __forceinline__ int32_t row_reduce(const Row<S> &row, int32_t v, Combine combine)
{
    v = combine.over_warp(v);
    if (S::kT > 32) {
        row.sync();
        if (row.lane % 32 == 0)
            row.scratch[row.lane / 32] = v;
        row.sync();
        v = row.scratch[0];
#pragma unroll
        for (int w = 1; w < S::kT / 32; w++)
            v = combine(v, row.scratch[w]);
    }
    return v;
}

/* Sums in the order of numerics/rows.h. Column i belongs to partial i mod 1024, so a thread's
 * partials are kV neighbours of every (kT * kV)-th, and kT * kV <= 1024 (or the row has at most
 * kT * kV columns). */
template <class S> struct Partials {
    static constexpr int kTurns = 1024 / (S::kT * S::kV) < 1 ? 1 : 1024 / (S::kT * S::kV);
    static constexpr int kRuns = S::kRuns >= kTurns ? kTurns
                                 : S::kRuns > 4     ? (S::kRuns > 8 ? (S::kRuns > 16 ? 32 : 16) : 8)
                                                    : (S::kRuns == 3 ? 4 : S::kRuns);
    static constexpr int kNum = kRuns * S::kV;
    static_assert(S::kT * S::kV <= 1024 || S::kRuns == 1, "the order of sums");
    float part[kNum];

    __device__ __forceinline__ float &of(int e)
    {
        return part[e / S::kV % kRuns * S::kV + e % S::kV];
    }
};

/* The partials' total: upper halves are added to lower ones, so turns first, then warps, lanes, and
 * neighbours. scratch: kT * kV words if kT > 32. */
template <class S> __device__ __forceinline__ float row_total(const Row<S> &row, Partials<S> &sums)
{
    constexpr int kWarps = S::kT / 32;
    float(&part)[Partials<S>::kNum] = sums.part;
#pragma unroll
    for (int half = Partials<S>::kNum / 2; half >= S::kV; half /= 2)
#pragma unroll
        for (int i = 0; i < half; i++)
            part[i] = part[i] + part[i + half];
    if (kWarps > 1) {                                                    /* each warp adds up all */
        uint32_t *all = (uint32_t *)row.scratch + row.lane % 32 * S::kV; /* [warp][lane][kV] */
        uint32_t word[S::kV];
#pragma unroll
        for (int i = 0; i < S::kV; i++)
            word[i] = num_bits(part[i]);
        row.sync();
        store_words<4 * S::kV>(all + row.lane / 32 * 32 * S::kV, word);
        row.sync();
        float of[kWarps][S::kV];
#pragma unroll
        for (int w = 0; w < kWarps; w++) {
            load_words<4 * S::kV>(word, all + w * 32 * S::kV);
#pragma unroll
            for (int i = 0; i < S::kV; i++)
                of[w][i] = num_float(word[i]);
        }
#pragma unroll
        for (int half = kWarps / 2; half > 0; half /= 2)
#pragma unroll
            for (int w = 0; w < half; w++)
#pragma unroll
                for (int i = 0; i < S::kV; i++)
                    of[w][i] = of[w][i] + of[w + half][i];
#pragma unroll
        for (int i = 0; i < S::kV; i++)
            part[i] = of[0][i];
    }
    /* Lanes: while there are neighbours to share out, each of two lanes adds half of them up. */
#pragma unroll
    for (int d = 16; d > 0; d /= 2) {
        const bool upper = row.lane & d;
        if (S::kV * d / 32 > 0) {
#pragma unroll
            for (int i = 0; i < S::kV * d / 32; i++) {
                const float low = part[i], high = part[i + S::kV * d / 32];
                part[i] =
                    (upper ? high : low) + __shfl_xor_sync(0xFFFFFFFFu, upper ? low : high, d);
            }
        } else {
            part[0] = part[0] + __shfl_xor_sync(0xFFFFFFFFu, part[0], d);
        }
    }
    /* Neighbour i is in the lanes with its bits on top: kV / 2 apart are the lanes 16 apart. */
#pragma unroll
    for (int d = 16; d > 16 / S::kV; d /= 2)
        part[0] = part[0] + __shfl_xor_sync(0xFFFFFFFFu, part[0], d);
    return part[0];
}

template <class S, class X> __device__ __forceinline__ float row_sum(const Row<S> &row, const X &x)
{
    Partials<S> sums = {};
#pragma unroll
    for (int e = 0; e < S::kE; e++)
        if (row.has(e))
            sums.of(e) = sums.of(e) + x[e];
    return row_total(row, sums);
}
template <class S, class X>
__device__ __forceinline__ float row_sum_sq(const Row<S> &row, const X &x, float center)
{
    Partials<S> sums = {};
#pragma unroll
    for (int e = 0; e < S::kE; e++)
        if (row.has(e))
            sums.of(e) = num_fma(x[e] - center, x[e] - center, sums.of(e));
    return row_total(row, sums);
}

/* The three norms of numerics/rows.h; num: columns of the row. */
template <class S, class X, class W>
__device__ __forceinline__ void row_rmsnorm(const Row<S> &row, float (&dst)[S::kE], const X &x,
                                            const W &weight, float eps, int num)
{
    float mean_sq = row_sum_sq(row, x, 0.0f) / (float)num;
    float r = 1.0f / num_sqrt(mean_sq + eps);
#pragma unroll
    for (int e = 0; e < S::kE; e++)
        dst[e] = x[e] * r * weight[e];
}
template <class S, class X, class W, class B>
__device__ __forceinline__ void row_layernorm(const Row<S> &row, float (&dst)[S::kE], const X &x,
                                              const W &weight, const B &bias, float eps, int num)
{
    float mean = row_sum(row, x) / (float)num;
    float var = row_sum_sq(row, x, mean) / (float)num;
    float r = 1.0f / num_sqrt(var + eps);
#pragma unroll
    for (int e = 0; e < S::kE; e++)
        dst[e] = num_fma((x[e] - mean) * r, weight[e], bias[e]);
}
template <class S, class X>
__device__ __forceinline__ void row_softmax(const Row<S> &row, float (&dst)[S::kE], const X &x)
{
    int32_t key = (int32_t)0x80000000;
#pragma unroll
    for (int e = 0; e < S::kE; e++)
        if (row.has(e))
            key = Most()(key, num_order_key(x[e]));
    float max = num_order_value(row_reduce(row, key, Most()));
#pragma unroll
    for (int e = 0; e < S::kE; e++)
        dst[e] = num_exp(x[e] - max);
    float sum = row_sum(row, dst);
#pragma unroll
    for (int e = 0; e < S::kE; e++)
        dst[e] = dst[e] / sum;
}

#endif
