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

/* Over the 32 lanes, then the V neighbours of each: while there are neighbours to share out, each
 * of two lanes adds half of them up. */
template <int V, int NUM> __device__ __forceinline__ float lanes_total(int lane, float (&part)[NUM])
{
#pragma unroll
    for (int d = 16; d > 0; d /= 2) {
        const bool upper = lane & d;
        if (V * d / 32 > 0) {
#pragma unroll
            for (int i = 0; i < V * d / 32; i++) {
                const float low = part[i], high = part[i + V * d / 32];
                part[i] =
                    (upper ? high : low) + __shfl_xor_sync(0xFFFFFFFFu, upper ? low : high, d);
            }
        } else {
            part[0] = part[0] + __shfl_xor_sync(0xFFFFFFFFu, part[0], d);
        }
    }
    /* Neighbour i is in the lanes with its bits on top: kV / 2 apart are the lanes 16 apart. */
#pragma unroll
    for (int d = 16; d > 16 / V; d /= 2)
        part[0] = part[0] + __shfl_xor_sync(0xFFFFFFFFu, part[0], d);
    return part[0];
}

/* `finish` of the partials' total: upper halves are added to lower ones, so turns first, then
 * warps, lanes, and neighbours. One warp adds up what the others hold. scratch: kT * kV words if kT
 * > 32. */
template <class S, class Finish>
__device__ __forceinline__ float row_total(const Row<S> &row, Partials<S> &sums, Finish finish)
{
    constexpr int kWarps = S::kT / 32;
    float(&part)[Partials<S>::kNum] = sums.part;
#pragma unroll
    for (int half = Partials<S>::kNum / 2; half >= S::kV; half /= 2)
#pragma unroll
        for (int i = 0; i < half; i++)
            part[i] = part[i] + part[i + half];
    if constexpr (kWarps == 1)
        return finish(lanes_total<S::kV>(row.lane, part));
    uint32_t *all = (uint32_t *)row.scratch + row.lane % 32 * S::kV; /* [warp][lane][kV] */
    uint32_t word[S::kV];
#pragma unroll
    for (int i = 0; i < S::kV; i++)
        word[i] = num_bits(part[i]);
    row.sync();
    store_words<4 * S::kV>(all + row.lane / 32 * 32 * S::kV, word);
    row.sync();
    if (row.lane < 32) {
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
        const float total = finish(lanes_total<S::kV>(row.lane, of[0]));
        if (row.lane == 0)
            row.scratch[0] = (int32_t)num_bits(total);
    }
    row.sync();
    return num_float((unsigned)row.scratch[0]);
}

/* sums <- and the row's values, or the squares of their distances from `center`. */
template <class S, class X>
__device__ __forceinline__ void row_add(const Row<S> &row, Partials<S> &sums, const X &x)
{
#pragma unroll
    for (int e = 0; e < S::kE; e++)
        if (row.has(e))
            sums.of(e) = sums.of(e) + x[e];
}
template <class S, class X>
__device__ __forceinline__ void row_add_squares(const Row<S> &row, Partials<S> &sums, const X &x,
                                                float center)
{
#pragma unroll
    for (int e = 0; e < S::kE; e++)
        if (row.has(e))
            sums.of(e) = num_fma(x[e] - center, x[e] - center, sums.of(e));
}
template <class S, class X>
__device__ __forceinline__ int32_t row_most(const Row<S> &row, int32_t key, const X &x)
{
#pragma unroll
    for (int e = 0; e < S::kE; e++)
        if (row.has(e))
            key = Most()(key, num_order_key(x[e]));
    return key;
}
#define SINTER_LEAST_KEY ((int32_t)0x80000000)

/* What becomes of a total: the total, the mean, 1 / the root of the mean square. num: columns. */
struct Total {
    __device__ __forceinline__ float operator()(float total) const
    {
        return total;
    }
};
struct Mean {
    int num;
    __device__ __forceinline__ float operator()(float total) const
    {
        return total / (float)num;
    }
};
struct RootFactor {
    float eps;
    int num;
    __device__ __forceinline__ float operator()(float total) const
    {
        return 1.0f / num_sqrt(total / (float)num + eps);
    }
};

/* Norms ---------------------------------------------------------------------------------------- */

/* The last steps of the three norms of numerics/rows.h. */
template <class S, class X, class W>
__device__ __forceinline__ void rmsnorm_values(float (&dst)[S::kE], const X &x, const W &weight,
                                               float r)
{
    SINTER_EACH(e)
    dst[e] = x[e] * r * weight[e];
}
template <class S, class X, class W, class B>
__device__ __forceinline__ void layernorm_values(float (&dst)[S::kE], const X &x, const W &weight,
                                                 const B &bias, float mean, float r)
{
    SINTER_EACH(e)
    dst[e] = num_fma((x[e] - mean) * r, weight[e], bias[e]);
}
template <class S, class X>
__device__ __forceinline__ void exp_values(float (&dst)[S::kE], const X &x, float max)
{
    SINTER_EACH(e)
    dst[e] = num_exp(x[e] - max);
}

/* The norms of rows that the threads hold. */
template <class S, class X, class W>
__device__ __forceinline__ void row_rmsnorm(const Row<S> &row, float (&dst)[S::kE], const X &x,
                                            const W &weight, float eps, int num)
{
    Partials<S> sums = {};
    row_add_squares(row, sums, x, 0.0f);
    rmsnorm_values<S>(dst, x, weight, row_total(row, sums, RootFactor{eps, num}));
}
template <class S, class X, class W, class B>
__device__ __forceinline__ void row_layernorm(const Row<S> &row, float (&dst)[S::kE], const X &x,
                                              const W &weight, const B &bias, float eps, int num)
{
    Partials<S> sums = {}, squares = {};
    row_add(row, sums, x);
    const float mean = row_total(row, sums, Mean{num});
    row_add_squares(row, squares, x, mean);
    layernorm_values<S>(dst, x, weight, bias, mean, row_total(row, squares, RootFactor{eps, num}));
}
template <class S, class X>
__device__ __forceinline__ void row_softmax(const Row<S> &row, float (&dst)[S::kE], const X &x)
{
    const int32_t key = row_reduce(row, row_most(row, SINTER_LEAST_KEY, x), Most());
    exp_values<S>(dst, x, num_order_value(key));
    Partials<S> sums = {};
    row_add(row, sums, dst);
    const float sum = row_total(row, sums, Total());
    SINTER_EACH(e)
    dst[e] = dst[e] / sum;
}

#endif
