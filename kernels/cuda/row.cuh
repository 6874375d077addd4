/* Rows of tiles on the device: what the statements of a tile program (numerics/tile.h) call.
 *
 * kT threads hold one row (or one tile of its columns): thread `lane` of them holds kE values, kV
 * neighbours at a time: value e is column n0 + (e / kV) * (kT * kV) + lane * kV + e % kV. In
 * epilogues a warp (kT = 32) holds a row of the block's tile; in row kernels kT is chosen so that
 * kV = 1024 / kT lanes of the fixed order of sums (numerics/rows.h) are neighbours, and the sums
 * have the bits that the CPU gets. */
#ifndef SINTER_CUDA_ROW
#define SINTER_CUDA_ROW

#include "kernels/cuda/prelude.cuh"

#define SINTER_EACH(e) _Pragma("unroll") for (int e = 0; e < S::kE; e++)

template <int T, int V, int E> struct RowShape {
    static constexpr int kT = T, kV = V, kE = E;
    static constexpr int kCols = T * E;
    static_assert(E % V == 0, "a thread holds whole runs");
};

/* Where a thread stands. end: one past the last valid column. scratch: shared memory of the kT
 * threads, kScratchWords words. */
template <class S> struct Row {
    int lane, n0, end;
    int32_t *scratch;

    __device__ __forceinline__ int col(int e) const
    {
        return n0 + e / S::kV * (S::kT * S::kV) + lane * S::kV + e % S::kV;
    }
    __device__ __forceinline__ bool has(int e) const
    {
        return col(e) < end;
    }
    __device__ __forceinline__ void sync() const
    {
        if (S::kT == 32)
            __syncwarp();
        else
            __syncthreads();
    }
};

/* Plain formats ------------------------------------------------------------------------------- */

template <int FMT> struct Plain;
template <> struct Plain<FMT_F32> {
    typedef float Element;
    static __device__ __forceinline__ float load(float x)
    {
        return x;
    }
    static __device__ __forceinline__ float store(float x)
    {
        return x;
    }
};
template <> struct Plain<FMT_F16> {
    typedef uint16_t Element;
    static __device__ __forceinline__ float load(uint16_t x)
    {
        float f;
        asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(x));
        return f;
    }
    static __device__ __forceinline__ uint16_t store(float x)
    {
        uint16_t h;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
        return h;
    }
};
template <> struct Plain<FMT_BF16> {
    typedef uint16_t Element;
    static __device__ __forceinline__ float load(uint16_t x)
    {
        return num_float((uint32_t)x << 16);
    }
    static __device__ __forceinline__ uint16_t store(float x)
    {
        return (uint16_t)pack_bf16x2(x, 0.0f);
    }
};

template <int BYTES> struct __align__(BYTES) Packet
{
    uint8_t byte[BYTES];
};

/* A run of V elements at p, valid ones only; whole: all are, and p is aligned to the run. */
template <int V, class Element>
__device__ __forceinline__ void load_run(Element (&dst)[V], const Element *p, int valid,
                                         bool aligned)
{
    constexpr int kBytes = V * (int)sizeof(Element);
    constexpr int kPacket = kBytes > 16 ? 16 : kBytes;
    if (aligned && valid >= V) {
#pragma unroll
        for (int i = 0; i < kBytes / kPacket; i++)
            ((Packet<kPacket> *)dst)[i] = ((const Packet<kPacket> *)p)[i];
        return;
    }
#pragma unroll
    for (int i = 0; i < V; i++)
        dst[i] = i < valid ? p[i] : (Element)0;
}
template <int V, class Element>
__device__ __forceinline__ void store_run(Element *p, const Element (&src)[V], int valid,
                                          bool aligned)
{
    constexpr int kBytes = V * (int)sizeof(Element);
    constexpr int kPacket = kBytes > 16 ? 16 : kBytes;
    if (aligned && valid >= V) {
#pragma unroll
        for (int i = 0; i < kBytes / kPacket; i++)
            ((Packet<kPacket> *)p)[i] = ((const Packet<kPacket> *)src)[i];
        return;
    }
#pragma unroll
    for (int i = 0; i < V; i++)
        if (i < valid)
            p[i] = src[i];
}

/* Is a run at column `col` of a row at `base` aligned to its packets? */
template <int V, class Element> __device__ __forceinline__ bool run_aligned(const Element *p)
{
    constexpr int kBytes = V * (int)sizeof(Element);
    return (uint64_t)p % (kBytes > 16 ? 16 : kBytes) == 0;
}

/* dst <- columns of the row at `base`. */
template <int FMT, class S>
__device__ __forceinline__ void row_load(const Row<S> &row, const void *base, float (&dst)[S::kE])
{
    typedef typename Plain<FMT>::Element Element;
#pragma unroll
    for (int c = 0; c < S::kE; c += S::kV) {
        __align__(16) Element run[S::kV];
        const Element *p = (const Element *)base + row.col(c);
        load_run<S::kV>(run, p, row.end - row.col(c), run_aligned<S::kV>(p));
#pragma unroll
        for (int i = 0; i < S::kV; i++)
            dst[c + i] = Plain<FMT>::load(run[i]);
    }
}
template <class S>
__device__ __forceinline__ void row_load_i32(const Row<S> &row, const void *base,
                                             int32_t (&dst)[S::kE])
{
#pragma unroll
    for (int e = 0; e < S::kE; e++)
        dst[e] = row.has(e) ? ((const int32_t *)base)[row.col(e)] : 0;
}
template <int FMT, class S>
__device__ __forceinline__ void row_store(const Row<S> &row, void *base, const float (&src)[S::kE])
{
    typedef typename Plain<FMT>::Element Element;
#pragma unroll
    for (int c = 0; c < S::kE; c += S::kV) {
        __align__(16) Element run[S::kV];
#pragma unroll
        for (int i = 0; i < S::kV; i++)
            run[i] = Plain<FMT>::store(src[c + i]);
        Element *p = (Element *)base + row.col(c);
        store_run<S::kV>(p, run, row.end - row.col(c), run_aligned<S::kV>(p));
    }
}
template <class S>
__device__ __forceinline__ void row_store_i32(const Row<S> &row, void *base,
                                              const int32_t (&src)[S::kE])
{
#pragma unroll
    for (int e = 0; e < S::kE; e++)
        if (row.has(e))
            ((int32_t *)base)[row.col(e)] = src[e];
}
/* Accumulators of an epilogue, staged in shared memory from the tile's first column on. */
template <class Acc, class S>
__device__ __forceinline__ void row_acc(const Row<S> &row, const char *acc, Acc (&dst)[S::kE])
{
#pragma unroll
    for (int c = 0; c < S::kE; c += S::kV) {
        const Acc *p = (const Acc *)acc + (row.col(c) - row.n0);
#pragma unroll
        for (int i = 0; i < S::kV; i++)
            dst[c + i] = p[i];
    }
}

/* Reductions over the row's threads ------------------------------------------------------------ */

template <class S, class Combine>
__device__ __forceinline__ int32_t row_reduce(const Row<S> &row, int32_t v, Combine combine)
{
#pragma unroll
    for (int d = 16; d > 0; d /= 2)
        v = combine(v, __shfl_xor_sync(0xFFFFFFFFu, v, d));
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
struct Most {
    __device__ __forceinline__ int32_t operator()(int32_t a, int32_t b) const
    {
        return a > b ? a : b;
    }
};
struct Least {
    __device__ __forceinline__ int32_t operator()(int32_t a, int32_t b) const
    {
        return a < b ? a : b;
    }
};
struct Plus {
    __device__ __forceinline__ int32_t operator()(int32_t a, int32_t b) const
    {
        return (int32_t)((uint32_t)a + (uint32_t)b);
    }
};

/* Sum in the order of numerics/rows.h: kV partials a thread; halves across threads first. Needs
 * kT * kV = 1024 (or rows of at most kT * kV columns) and kT words of scratch for each partial. */
template <class S>
__device__ __forceinline__ float row_total(const Row<S> &row, float (&part)[S::kV])
{
    if (S::kT > 32) {
        float *all = (float *)row.scratch; /* [kT][kV] */
#pragma unroll
        for (int half = S::kT / 2; half >= 32; half /= 2) {
            row.sync();
            if (row.lane >= half && row.lane < 2 * half)
#pragma unroll
                for (int i = 0; i < S::kV; i++)
                    all[(row.lane - half) * S::kV + i] = part[i];
            row.sync();
            if (row.lane < half)
#pragma unroll
                for (int i = 0; i < S::kV; i++)
                    part[i] = part[i] + all[row.lane * S::kV + i];
        }
    }
#pragma unroll
    for (int half = 16; half > 0; half /= 2)
#pragma unroll
        for (int i = 0; i < S::kV; i++)
            part[i] = part[i] + __shfl_down_sync(0xFFFFFFFFu, part[i], half);
#pragma unroll
    for (int half = S::kV / 2; half > 0; half /= 2)
#pragma unroll
        for (int i = 0; i < half; i++)
            part[i] = part[i] + part[i + half];
    float total = __shfl_sync(0xFFFFFFFFu, part[0], 0);
    if (S::kT > 32) {
        row.sync();
        if (row.lane == 0)
            ((float *)row.scratch)[0] = total;
        row.sync();
        total = ((float *)row.scratch)[0];
    }
    return total;
}

template <class S>
__device__ __forceinline__ float row_sum(const Row<S> &row, const float (&x)[S::kE])
{
    float part[S::kV] = {};
#pragma unroll
    for (int e = 0; e < S::kE; e++)
        if (row.has(e))
            part[e % S::kV] = part[e % S::kV] + x[e];
    return row_total(row, part);
}
template <class S>
__device__ __forceinline__ float row_sum_sq(const Row<S> &row, const float (&x)[S::kE],
                                            float center)
{
    float part[S::kV] = {};
#pragma unroll
    for (int e = 0; e < S::kE; e++)
        if (row.has(e))
            part[e % S::kV] = num_fma(x[e] - center, x[e] - center, part[e % S::kV]);
    return row_total(row, part);
}

/* The three norms of numerics/rows.h; num: columns of the row. */
template <class S>
__device__ __forceinline__ void row_rmsnorm(const Row<S> &row, float (&dst)[S::kE],
                                            const float (&x)[S::kE], const float (&weight)[S::kE],
                                            float eps, int num)
{
    float mean_sq = row_sum_sq(row, x, 0.0f) / (float)num;
    float r = 1.0f / num_sqrt(mean_sq + eps);
#pragma unroll
    for (int e = 0; e < S::kE; e++)
        dst[e] = x[e] * r * weight[e];
}
template <class S>
__device__ __forceinline__ void row_layernorm(const Row<S> &row, float (&dst)[S::kE],
                                              const float (&x)[S::kE], const float (&weight)[S::kE],
                                              const float (&bias)[S::kE], float eps, int num)
{
    float mean = row_sum(row, x) / (float)num;
    float var = row_sum_sq(row, x, mean) / (float)num;
    float r = 1.0f / num_sqrt(var + eps);
#pragma unroll
    for (int e = 0; e < S::kE; e++)
        dst[e] = num_fma((x[e] - mean) * r, weight[e], bias[e]);
}
template <class S>
__device__ __forceinline__ void row_softmax(const Row<S> &row, float (&dst)[S::kE],
                                            const float (&x)[S::kE])
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

/* Quantisation --------------------------------------------------------------------------------- */

/* The scheme of a quantised operand, as constants. kBlock: columns that share a scale (0 = all);
 * kBlockRows likewise rows; kGridCols: blocks along a row. */
template <int FMT, int SCALE_FMT, bool ZERO, bool OUTER, int BLOCK_ROWS, int BLOCK, int GRID_COLS>
struct QuantOf {
    static constexpr int kFmt = FMT, kScaleFmt = SCALE_FMT, kBlockRows = BLOCK_ROWS, kBlock = BLOCK,
                         kGridCols = GRID_COLS;
    static constexpr bool kZero = ZERO, kOuter = OUTER;
    static constexpr bool kInt = FMT == FMT_I8 || FMT == FMT_U8 || FMT == FMT_I4 || FMT == FMT_U4;
    static constexpr bool kNibble =
        FMT == FMT_I4 || FMT == FMT_U4 || FMT == FMT_E2M1 || FMT == FMT_NF4 || FMT == FMT_FP4;
    static __device__ __forceinline__ int64_t grid_row(int64_t m)
    {
        return (BLOCK_ROWS == 0 ? 0 : m / (BLOCK_ROWS == 0 ? 1 : BLOCK_ROWS)) * GRID_COLS;
    }
    static __device__ __forceinline__ int grid_col(int col)
    {
        return BLOCK == 0 ? 0 : col / (BLOCK == 0 ? 1 : BLOCK);
    }
};

struct Range { /* of a block: bits of the largest magnitude, order keys of the extremes */
    int32_t amax, lo, hi;
};
#define SINTER_EMPTY_RANGE                 \
    Range                                  \
    {                                      \
        0, 0x7fffffff, (int32_t)0x80000000 \
    }

template <class Q> __device__ __forceinline__ void range_add(Range &r, float x)
{
    if (Q::kZero) {
        int32_t key = num_order_key(x);
        r.lo = Least()(r.lo, key);
        r.hi = Most()(r.hi, key);
    } else {
        r.amax = Most()(r.amax, num_amax_bits(x, num_has_nan(Q::kFmt)));
    }
}
template <class Q> __device__ __forceinline__ void range_merge(Range &r, const Range &o)
{
    r.amax = Most()(r.amax, o.amax);
    r.lo = Least()(r.lo, o.lo);
    r.hi = Most()(r.hi, o.hi);
}
template <class Q>
__device__ __forceinline__ float range_scale(const Range &r, float outer, int32_t *zero)
{
    *zero = 0;
    if (Q::kZero)
        return num_scale_asym(Q::kFmt, Q::kScaleFmt, r.lo, r.hi, zero);
    return num_scale_sym(Q::kFmt, Q::kScaleFmt, r.amax, outer);
}

/* The code of one value; the byte that is stored. */
template <class Q> __device__ __forceinline__ uint32_t code_of(float x, float inverse, int32_t zero)
{
    if (Q::kInt)
        return (uint32_t)num_to_int(x * inverse, zero, num_code_min(Q::kFmt, Q::kZero),
                                    num_code_max(Q::kFmt)) &
               (Q::kNibble ? 15 : 255);
    return num_encode(Q::kFmt, x * inverse);
}
/* The integer a stored byte stands for. */
template <class Q> __device__ __forceinline__ int32_t code_value(uint32_t byte)
{
    constexpr int kFlip = Q::kFmt == FMT_I8 ? 128 : Q::kFmt == FMT_I4 ? 8 : 0;
    return (int32_t)(byte ^ kFlip) - kFlip;
}

/* Codes of the row under the scale and zero point that `params(col)` gives each run of columns. */
template <class Q, class S, class Params>
__device__ __forceinline__ int32_t row_encode(const Row<S> &row, uint8_t *base,
                                              const float (&x)[S::kE], Params params)
{
    int32_t sum = 0;
#pragma unroll
    for (int c = 0; c < S::kE; c += S::kV) {
        __align__(16) uint8_t run[S::kV];
#pragma unroll
        for (int i = 0; i < S::kV; i++) {
            float inverse;
            int32_t zero;
            params(c + i, &inverse, &zero);
            uint32_t code = code_of<Q>(x[c + i], inverse, zero);
            run[i] = (uint8_t)code;
            if (Q::kInt && row.has(c + i))
                sum += code_value<Q>(code);
        }
        uint8_t *p = base + row.col(c);
        store_run<S::kV>(p, run, row.end - row.col(c), run_aligned<S::kV>(p));
    }
    return sum;
}

/* Scales exist already (static, or gathered over rows first). Returns the thread's sum of codes. */
template <class Q, class S>
__device__ __forceinline__ int32_t row_quantise_given(const Row<S> &row, const Operand &t,
                                                      int64_t m, int64_t pitch,
                                                      const float (&x)[S::kE])
{
    const float *scale = t.scale + Q::grid_row(m);
    const int32_t *zero = Q::kZero ? t.zero + Q::grid_row(m) : (const int32_t *)0;
    float outer = Q::kOuter ? *t.outer : 1.0f;
    if (Q::kGridCols == 1) {
        float one = num_inverse(Q::kOuter ? num_scale_effective(scale[0], outer) : scale[0]);
        int32_t z0 = Q::kZero ? zero[0] : 0;
        return row_encode<Q>(row, (uint8_t *)t.data + m * pitch, x, [&](int, float *i, int32_t *z) {
            *i = one;
            *z = z0;
        });
    }
    return row_encode<Q>(
        row, (uint8_t *)t.data + m * pitch, x, [&](int e, float *inverse, int32_t *z) {
            int col = row.col(e), g = Q::grid_col(col < row.end ? col : 0);
            *inverse = num_inverse(Q::kOuter ? num_scale_effective(scale[g], outer) : scale[g]);
            *z = Q::kZero ? zero[g] : 0;
        });
}

/* One scale for the whole row (kBlock 0), found here. */
template <class Q, class S>
__device__ __forceinline__ int32_t row_quantise_token(const Row<S> &row, const Operand &t,
                                                      int64_t m, int64_t pitch,
                                                      const float (&x)[S::kE])
{
    Range r = SINTER_EMPTY_RANGE;
#pragma unroll
    for (int e = 0; e < S::kE; e++)
        if (row.has(e))
            range_add<Q>(r, x[e]);
    if (Q::kZero) {
        r.lo = row_reduce(row, r.lo, Least());
        r.hi = row_reduce(row, r.hi, Most());
    } else {
        r.amax = row_reduce(row, r.amax, Most());
    }
    int32_t zero;
    float outer = Q::kOuter ? *t.outer : 1.0f;
    float scale = range_scale<Q>(r, outer, &zero);
    if (row.lane == 0) {
        t.scale[Q::grid_row(m)] = scale;
        if (Q::kZero)
            t.zero[Q::grid_row(m)] = zero;
    }
    float inverse = num_inverse(Q::kOuter ? num_scale_effective(scale, outer) : scale);
    return row_encode<Q>(row, (uint8_t *)t.data + m * pitch, x, [&](int, float *i, int32_t *z) {
        *i = inverse;
        *z = zero;
    });
}

/* One scale for every kBlock columns; blocks lie inside the tile. Blocks that a power-of-two number
 * of neighbouring threads hold are reduced by shuffles, others in shared memory. */
template <class Q, class S>
__device__ __forceinline__ int32_t row_quantise_group(const Row<S> &row, const Operand &t,
                                                      int64_t m, int64_t pitch,
                                                      const float (&x)[S::kE])
{
    constexpr int kThreads = Q::kBlock / S::kV; /* that share a block */
    constexpr bool kShuffle = Q::kBlock % S::kV == 0 && (kThreads & (kThreads - 1)) == 0 &&
                              kThreads <= 32 && (S::kT * S::kV) % Q::kBlock == 0;
    float *scales = t.scale + Q::grid_row(m);
    int32_t *zeros = Q::kZero ? t.zero + Q::grid_row(m) : (int32_t *)0;
    float outer = Q::kOuter ? *t.outer : 1.0f;
    if (kShuffle) {
        float inverse[S::kE / S::kV];
        int32_t zero[S::kE / S::kV];
#pragma unroll
        for (int c = 0; c < S::kE / S::kV; c++) {
            Range r = SINTER_EMPTY_RANGE;
#pragma unroll
            for (int i = 0; i < S::kV; i++)
                if (row.has(c * S::kV + i))
                    range_add<Q>(r, x[c * S::kV + i]);
#pragma unroll
            for (int d = kThreads / 2; d > 0; d /= 2) {
                Range o = {__shfl_xor_sync(0xFFFFFFFFu, r.amax, d),
                           __shfl_xor_sync(0xFFFFFFFFu, r.lo, d),
                           __shfl_xor_sync(0xFFFFFFFFu, r.hi, d)};
                range_merge<Q>(r, o);
            }
            float scale = range_scale<Q>(r, outer, &zero[c]);
            int col = row.col(c * S::kV);
            if (col < row.end && col % Q::kBlock == 0) {
                scales[col / Q::kBlock] = scale;
                if (Q::kZero)
                    zeros[col / Q::kBlock] = zero[c];
            }
            inverse[c] = num_inverse(Q::kOuter ? num_scale_effective(scale, outer) : scale);
        }
        return row_encode<Q>(row, (uint8_t *)t.data + m * pitch, x,
                             [&](int e, float *i, int32_t *z) {
                                 *i = inverse[e / S::kV];
                                 *z = zero[e / S::kV];
                             });
    }
    constexpr int kGroups = (S::kCols + Q::kBlock - 1) / Q::kBlock;
    int32_t *amax = row.scratch, *lo = amax + kGroups, *hi = lo + kGroups;
    row.sync();
    for (int g = row.lane; g < kGroups; g += S::kT) {
        Range r = SINTER_EMPTY_RANGE;
        amax[g] = r.amax, lo[g] = r.lo, hi[g] = r.hi;
    }
    row.sync();
#pragma unroll
    for (int e = 0; e < S::kE; e++)
        if (row.has(e)) {
            Range r = SINTER_EMPTY_RANGE;
            range_add<Q>(r, x[e]);
            int g = (row.col(e) - row.n0) / Q::kBlock;
            if (Q::kZero) {
                atomicMin(&lo[g], r.lo);
                atomicMax(&hi[g], r.hi);
            } else {
                atomicMax(&amax[g], r.amax);
            }
        }
    row.sync();
    float *found = (float *)amax; /* the scale takes the place of the range */
    for (int g = row.lane; g < kGroups && row.n0 + g * Q::kBlock < row.end; g += S::kT) {
        Range r = {amax[g], lo[g], hi[g]};
        int32_t zero;
        float scale = range_scale<Q>(r, outer, &zero);
        int at = row.n0 / Q::kBlock + g;
        scales[at] = scale;
        if (Q::kZero)
            zeros[at] = zero;
        found[g] = num_inverse(Q::kOuter ? num_scale_effective(scale, outer) : scale);
        lo[g] = zero;
    }
    row.sync();
    int32_t sum =
        row_encode<Q>(row, (uint8_t *)t.data + m * pitch, x, [&](int e, float *i, int32_t *z) {
            int col = row.col(e) < row.end ? row.col(e) : row.n0;
            *i = found[(col - row.n0) / Q::kBlock];
            *z = lo[(col - row.n0) / Q::kBlock];
        });
    row.sync();
    return sum;
}

/* Ranges of blocks that span rows, and of a whole tensor for its outer scale, gathered with integer
 * atomics (exact, so the order does not matter). span: per block amax, lo, hi (from 0: the range
 * holds 0), then the outer scale's bits. */
template <class Q, class S>
__device__ __forceinline__ void row_gather(const Row<S> &row, int32_t *span, int64_t num_blocks,
                                           int64_t m, const float (&x)[S::kE])
{
    int32_t outer = 0;
    if (Q::kBlockRows == 0 && Q::kBlock == 0) {
        Range r = SINTER_EMPTY_RANGE;
        r.lo = r.hi = 0;
#pragma unroll
        for (int e = 0; e < S::kE; e++)
            if (row.has(e)) {
                range_add<Q>(r, x[e]);
                outer = Most()(outer, num_outer_bits(x[e]));
            }
#pragma unroll
        for (int d = 16; d > 0; d /= 2) {
            Range o = {__shfl_xor_sync(0xFFFFFFFFu, r.amax, d),
                       __shfl_xor_sync(0xFFFFFFFFu, r.lo, d),
                       __shfl_xor_sync(0xFFFFFFFFu, r.hi, d)};
            range_merge<Q>(r, o);
            outer = Most()(outer, __shfl_xor_sync(0xFFFFFFFFu, outer, d));
        }
        if (row.lane % 32 == 0) {
            if (Q::kZero) {
                atomicMin(&span[1], r.lo);
                atomicMax(&span[2], r.hi);
            } else {
                atomicMax(&span[0], r.amax);
            }
        }
    } else {
#pragma unroll
        for (int e = 0; e < S::kE; e++)
            if (row.has(e)) {
                outer = Most()(outer, num_outer_bits(x[e]));
                if (Q::kBlockRows == 1)
                    continue;
                Range r = SINTER_EMPTY_RANGE;
                range_add<Q>(r, x[e]);
                int64_t at = Q::grid_row(m) + Q::grid_col(row.col(e));
                if (Q::kZero) {
                    atomicMin(&span[num_blocks + at], r.lo);
                    atomicMax(&span[2 * num_blocks + at], r.hi);
                } else {
                    atomicMax(&span[at], r.amax);
                }
            }
        if (Q::kOuter)
#pragma unroll
            for (int d = 16; d > 0; d /= 2)
                outer = Most()(outer, __shfl_xor_sync(0xFFFFFFFFu, outer, d));
    }
    if (Q::kOuter && row.lane % 32 == 0)
        atomicMax(&span[3 * num_blocks], outer);
}

/* The other half: scales and zero points of the blocks of this row from their gathered ranges, the
 * outer scale first. Every row of a block writes the same values; the row that stands first in its
 * block is enough, but the others must not wait for it. */
template <class Q, class S>
__device__ __forceinline__ void row_span_scales(const Row<S> &row, const Operand &t,
                                                const int32_t *span, int64_t num_blocks, int64_t m)
{
    float outer = 1.0f;
    if (Q::kOuter) {
        outer = num_outer(Q::kFmt, span[3 * num_blocks]);
        if (row.lane == 0)
            *t.outer = outer;
    }
    if (Q::kBlockRows != 1) {
        constexpr int kBlock = Q::kBlock ? Q::kBlock : 1;
        int first = Q::kBlock ? row.n0 / kBlock : 0;
        int last = Q::kBlock ? (row.end - 1) / kBlock : 0;
        for (int g = first + row.lane; g <= last; g += S::kT) {
            int64_t at = Q::grid_row(m) + g;
            Range r = {span[at], span[num_blocks + at], span[2 * num_blocks + at]};
            int32_t zero;
            t.scale[at] = range_scale<Q>(r, outer, &zero);
            if (Q::kZero)
                t.zero[at] = zero;
        }
    }
    __threadfence_block();
    row.sync();
}

/* The thread's sum of the codes of the row at `base`. */
template <class Q, class S>
__device__ __forceinline__ int32_t row_code_sum(const Row<S> &row, const char *base)
{
    int32_t sum = 0;
    SINTER_EACH(e)
    if (row.has(e))
        sum += code_value<Q>((uint8_t)base[row.col(e)]);
    return sum;
}

/* dst <- dequantised columns of row m. */
template <class Q, class S>
__device__ __forceinline__ void row_dequantise(const Row<S> &row, const Operand &t, int64_t m,
                                               int64_t pitch, float (&dst)[S::kE])
{
    const uint8_t *codes = (const uint8_t *)t.data + m * pitch;
    const float *scale = t.scale + Q::grid_row(m);
    const int32_t *zero = Q::kZero ? t.zero + Q::grid_row(m) : (const int32_t *)0;
    float outer = Q::kOuter ? *t.outer : 1.0f;
#pragma unroll
    for (int e = 0; e < S::kE; e++) {
        int col = row.has(e) ? row.col(e) : row.n0, g = Q::grid_col(col);
        float s = Q::kOuter ? num_scale_effective(scale[g], outer) : scale[g];
        dst[e] = (num_decode(Q::kFmt, codes[col]) - (float)(Q::kZero ? zero[g] : 0)) * s;
    }
}

#endif
