/* Quantisation of the rows that threads hold, and back. */
#ifndef SINTER_CUDA_QUANTISE
#define SINTER_CUDA_QUANTISE

#include "kernels/cuda/reduce.cuh"

/* The scheme of a quantised operand, as constants. kBlock: columns that share a scale (0 = all);
 * kBlockRows likewise rows; kGridCols: blocks along a row. */
template <int FMT, int SCALE_FMT, bool ZERO, bool OUTER, int BLOCK_ROWS, int BLOCK, int GRID_COLS>
struct QuantOf {
    static constexpr int kFmt = FMT, kScaleFmt = SCALE_FMT, kBlockRows = BLOCK_ROWS, kBlock = BLOCK,
                         kGridCols = GRID_COLS;
    static constexpr bool kZero = ZERO, kOuter = OUTER;
    static constexpr bool kInt = FMT == FMT_I8 || FMT == FMT_U8 || FMT == FMT_I4 || FMT == FMT_U4;
    static constexpr bool kUnsigned = FMT == FMT_U8 || FMT == FMT_U4;
    static constexpr bool kNibble =
        FMT == FMT_I4 || FMT == FMT_U4 || FMT == FMT_E2M1 || FMT == FMT_NF4 || FMT == FMT_FP4;
    static constexpr bool kWholeTensor = BLOCK_ROWS == 0 && BLOCK == 0;
    static __device__ __forceinline__ int64_t grid_row(int64_t m)
    {
        return (BLOCK_ROWS == 0 ? 0 : m / (BLOCK_ROWS == 0 ? 1 : BLOCK_ROWS)) * GRID_COLS;
    }
    static __device__ __forceinline__ int grid_col(int col)
    {
        return BLOCK == 0 ? 0 : col / (BLOCK == 0 ? 1 : BLOCK);
    }
};

/* Ranges --------------------------------------------------------------------------------------- */

/* The larger and the smaller, NaN if one is. */
__device__ __forceinline__ float max_or_nan(float a, float b)
{
#if __CUDA_ARCH__ >= 800
    float d;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(d) : "f"(a), "f"(b));
    return d;
#else
    return a != a || a > b ? a : b;
#endif
}
__device__ __forceinline__ float min_or_nan(float a, float b)
{
#if __CUDA_ARCH__ >= 800
    float d;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(d) : "f"(a), "f"(b));
    return d;
#else
    return a != a || a < b ? a : b;
#endif
}

/* Of a block, as numerics.h gathers it: bits of the largest magnitude, or order keys of the
 * extremes (widened to hold 0, which changes no scale). */
struct Range {
    int32_t amax, lo, hi;
};

/* .. and of one thread's values, in floats: one instruction a value. A NaN counts where the format
 * has no code for it. */
template <class Q> struct Extremes {
    float amax, lo, hi;

    __device__ __forceinline__ void add(float x)
    {
        if (Q::kZero) {
            lo = min_or_nan(lo, x);
            hi = max_or_nan(hi, x);
        } else {
            amax = num_has_nan(Q::kFmt) ? fmaxf(amax, num_abs(x)) : max_or_nan(amax, num_abs(x));
        }
    }
    __device__ __forceinline__ Range range() const
    {
        return {(int32_t)num_bits(amax), num_order_key(lo), num_order_key(hi)};
    }
};

template <class Q> __device__ __forceinline__ void range_merge(Range &r, const Range &o)
{
    r.amax = Most()(r.amax, o.amax);
    r.lo = Least()(r.lo, o.lo);
    r.hi = Most()(r.hi, o.hi);
}
/* The range of the lane that differs in the bits of d. */
template <class Q> __device__ __forceinline__ Range range_of_lane(const Range &r, int d)
{
    Range o = {};
    if (Q::kZero) {
        o.lo = __shfl_xor_sync(0xFFFFFFFFu, r.lo, d);
        o.hi = __shfl_xor_sync(0xFFFFFFFFu, r.hi, d);
    } else {
        o.amax = __shfl_xor_sync(0xFFFFFFFFu, r.amax, d);
    }
    return o;
}
template <class Q> __device__ __forceinline__ Range range_of_warp(const Range &r)
{
    if (Q::kZero)
        return {0, Least().over_warp(r.lo), Most().over_warp(r.hi)};
    return {Most().over_warp(r.amax), 0, 0};
}
/* Shared or global memory <- the range. */
template <class Q>
__device__ __forceinline__ void range_gather(int32_t *amax, int32_t *lo, int32_t *hi,
                                             const Range &r)
{
    if (Q::kZero) {
        atomicMin(lo, r.lo);
        atomicMax(hi, r.hi);
    } else {
        atomicMax(amax, r.amax);
    }
}
template <class Q>
__device__ __forceinline__ float range_scale(const Range &r, float outer, int32_t *zero)
{
    *zero = 0;
    if (Q::kZero)
        return num_scale_asym(Q::kFmt, Q::kScaleFmt, r.lo, r.hi, zero);
    return num_scale_sym(Q::kFmt, Q::kScaleFmt, r.amax, outer);
}
template <class Q> __device__ __forceinline__ float scale_inverse(float scale, float outer)
{
    return num_inverse(Q::kOuter ? num_scale_effective(scale, outer) : scale);
}

/* Codes ---------------------------------------------------------------------------------------- */

/* Nearest integer, ties to even; beyond the range of int32 the nearest end, 0 for NaN. */
__device__ __forceinline__ int32_t nearest_int(float x)
{
    int32_t i;
    asm("cvt.rni.s32.f32 %0, %1;" : "=r"(i) : "f"(x));
    return i;
}
/* Four bytes, the first one low, each the nearest end where it is beyond the byte's range. */
template <bool UNSIGNED>
__device__ __forceinline__ uint32_t pack_bytes(int32_t a, int32_t b, int32_t c, int32_t d)
{
    uint32_t high, word;
    if (UNSIGNED) {
        asm("cvt.pack.sat.u8.s32.b32 %0, %1, %2, %3;" : "=r"(high) : "r"(d), "r"(c), "r"(0));
        asm("cvt.pack.sat.u8.s32.b32 %0, %1, %2, %3;" : "=r"(word) : "r"(b), "r"(a), "r"(high));
    } else {
        asm("cvt.pack.sat.s8.s32.b32 %0, %1, %2, %3;" : "=r"(high) : "r"(d), "r"(c), "r"(0));
        asm("cvt.pack.sat.s8.s32.b32 %0, %1, %2, %3;" : "=r"(word) : "r"(b), "r"(a), "r"(high));
    }
    return word;
}
/* num_to_int before its bytes are packed. */
template <class Q> __device__ __forceinline__ int32_t int_code(float t, int32_t zero)
{
    const int32_t low = num_code_min(Q::kFmt, Q::kZero) - zero;
    const int32_t high = num_code_max(Q::kFmt) - zero;
    int32_t i = nearest_int(t);
    if (Q::kZero || !Q::kUnsigned)
        i = i < low ? low : i;
    if (Q::kZero || Q::kNibble)
        i = i > high ? high : i;
    return i + zero;
}

/* A word whose low byte is the code of t's magnitude, saturated: over the values of e2m1 the codes
 * lie on lines of falling slope, so a code is the least of those that the lines give, each rounded
 * once, by the sum. 0 for NaN. */
__device__ __forceinline__ uint32_t e2m1_magnitude(float t)
{
    const float u = fmaxf(num_abs(t), 0.0f), ones = 0x1p23f; /* where a float's last bit is 1 */
    const float below_2 = num_fma(u, 2.0f, ones), below_4 = u + (ones + 2.0f);
    const float above = fminf(num_fma(u, 0.5f, ones + 4.0f), ones + 7.0f);
    return num_bits(fminf(fminf(below_2, below_4), above));
}
/* num_to_e2m1 of four products, whose NaNs have no sign; the first one low. */
__device__ __forceinline__ uint32_t e2m1_codes(float a, float b, float c, float d)
{
    const uint32_t low = __byte_perm(e2m1_magnitude(a), e2m1_magnitude(b), 0x0040);
    const uint32_t high = __byte_perm(e2m1_magnitude(c), e2m1_magnitude(d), 0x0040);
    const uint32_t low_signs = __byte_perm(num_bits(a), num_bits(b), 0x0073);
    const uint32_t high_signs = __byte_perm(num_bits(c), num_bits(d), 0x0073);
    const uint32_t signs = __byte_perm(low_signs, high_signs, 0x5410);
    return __byte_perm(low, high, 0x5410) | (signs >> 4 & 0x08080808u);
}

/* The stored bytes of four values, each already times its inverse scale, and what their integers
 * add up to. The hardware's conversions give num_encode's codes (sm_89 and later have them). */
template <class Q>
__device__ __forceinline__ uint32_t codes_of(float a, float b, float c, float d, int32_t zero,
                                             int32_t *sum)
{
    if constexpr (Q::kInt) {
        uint32_t word = pack_bytes<Q::kUnsigned>(int_code<Q>(a, zero), int_code<Q>(b, zero),
                                                 int_code<Q>(c, zero), int_code<Q>(d, zero));
        if (Q::kUnsigned)
            asm("dp4a.u32.u32 %0, %1, %2, %0;" : "+r"(*sum) : "r"(word), "r"(0x01010101));
        else
            asm("dp4a.s32.s32 %0, %1, %2, %0;" : "+r"(*sum) : "r"(word), "r"(0x01010101));
        return word; /* of 4 bits as of 8, which is how products read them */
    }
#if __CUDA_ARCH__ >= 890
    if constexpr (Q::kFmt == FMT_E4M3 || Q::kFmt == FMT_E5M2) {
        uint16_t low, high;
        if (Q::kFmt == FMT_E4M3) {
            asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(low) : "f"(b), "f"(a));
            asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(high) : "f"(d), "f"(c));
        } else {
            asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(low) : "f"(b), "f"(a));
            asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(high) : "f"(d), "f"(c));
        }
        uint32_t word;
        asm("mov.b32 %0, {%1, %2};" : "=r"(word) : "h"(low), "h"(high));
        return word;
    }
#endif
    if (Q::kFmt == FMT_E2M1)
        return e2m1_codes(a, b, c, d);
    return num_encode(Q::kFmt, a) | num_encode(Q::kFmt, b) << 8 | num_encode(Q::kFmt, c) << 16 |
           num_encode(Q::kFmt, d) << 24;
}
/* The integer a stored byte stands for. */
template <class Q> __device__ __forceinline__ int32_t code_value(uint32_t byte)
{
    constexpr int kFlip = Q::kUnsigned ? 0 : 128;
    return (int32_t)(byte ^ kFlip) - kFlip;
}

/* Codes of the row under the inverse scale and zero point that `params(e)` gives; RUNS: neighbours
 * of a run share them. Returns the thread's sum of codes. */
template <class Q, bool RUNS, class S, class X, class Params>
__device__ __forceinline__ int32_t row_encode(const Row<S> &row, uint8_t *base, const X &x,
                                              Params params)
{
    int32_t sum = 0, zero;
    float inverse;
    uint8_t *p = row.first_of(base);
    if (RUNS && row.in_runs() && run_aligned<S::kV>(p)) {
#pragma unroll
        for (int r = 0; r < S::kRuns; r++) {
            if (!row.has_run(r))
                continue;
            params(r * S::kV, &inverse, &zero);
            uint32_t word[(S::kV + 3) / 4];
#pragma unroll
            for (int i = 0; i < S::kV; i += 4) {
                float t[4] = {};
#pragma unroll
                for (int j = 0; j < 4 && i + j < S::kV; j++)
                    t[j] = x[r * S::kV + i + j] * inverse;
                word[i / 4] = codes_of<Q>(t[0], t[1], t[2], t[3], zero, &sum);
                if (S::kV < 4 && Q::kZero) /* of nothing comes the zero point */
                    sum -= (4 - S::kV) * zero;
            }
            if (!row.absent)
                store_words<S::kV>(p + r * (S::kT * S::kV), word);
        }
        return sum;
    }
#pragma unroll
    for (int e = 0; e < S::kE; e++)
        if (row.has(e)) {
            params(e, &inverse, &zero);
            uint32_t word = codes_of<Q>(x[e] * inverse, 0.0f, 0.0f, 0.0f, zero, &sum);
            if (Q::kZero)
                sum -= 3 * zero;
            if (!row.absent)
                p[e / S::kV * (S::kT * S::kV) + e % S::kV] = (uint8_t)word;
        }
    return sum;
}

/* Statements ----------------------------------------------------------------------------------- */

/* Scales exist already (static, or gathered over rows first). Returns the thread's sum of codes. */
template <class Q, class S, class X>
__device__ __forceinline__ int32_t row_quantise_given(const Row<S> &row, const Operand &t,
                                                      int64_t m, int64_t pitch, const X &x)
{
    const float *scale = t.scale + Q::grid_row(m);
    const int32_t *zero = Q::kZero ? t.zero + Q::grid_row(m) : (const int32_t *)0;
    const float outer = Q::kOuter ? *t.outer : 1.0f;
    uint8_t *base = (uint8_t *)t.data + m * pitch;
    if (Q::kGridCols == 1) {
        const float inverse = scale_inverse<Q>(scale[0], outer);
        const int32_t z0 = Q::kZero ? zero[0] : 0;
        return row_encode<Q, true>(row, base, x, [&](int, float *i, int32_t *z) {
            *i = inverse;
            *z = z0;
        });
    }
    return row_encode<Q, Q::kBlock % S::kV == 0>(row, base, x,
                                                 [&](int e, float *inverse, int32_t *z) {
                                                     int g = Q::grid_col(row.col(e));
                                                     *inverse = scale_inverse<Q>(scale[g], outer);
                                                     *z = Q::kZero ? zero[g] : 0;
                                                 });
}

/* One scale for the whole row (kBlock 0): its range, then the scale, then codes. */
template <class Q, class S, class X>
__device__ __forceinline__ void row_extremes(const Row<S> &row, Extremes<Q> &all, const X &x)
{
#pragma unroll
    for (int e = 0; e < S::kE; e++)
        if (row.has(e))
            all.add(x[e]);
}
struct TokenScale {
    float inverse;
    int32_t zero;
};
template <class Q, class S>
__device__ __forceinline__ TokenScale row_token_scale(const Row<S> &row, const Operand &t,
                                                      int64_t m, const Extremes<Q> &all)
{
    Range r = all.range();
    if (Q::kZero) {
        r.lo = row_reduce(row, r.lo, Least());
        r.hi = row_reduce(row, r.hi, Most());
    } else {
        r.amax = row_reduce(row, r.amax, Most());
    }
    TokenScale found;
    const float outer = Q::kOuter ? *t.outer : 1.0f;
    const float scale = range_scale<Q>(r, outer, &found.zero);
    if (row.lane == 0) {
        t.scale[Q::grid_row(m)] = scale;
        if (Q::kZero)
            t.zero[Q::grid_row(m)] = found.zero;
    }
    found.inverse = scale_inverse<Q>(scale, outer);
    return found;
}
template <class Q, class S, class X>
__device__ __forceinline__ int32_t row_quantise_found(const Row<S> &row, const Operand &t,
                                                      int64_t m, int64_t pitch, const X &x,
                                                      const TokenScale &found)
{
    return row_encode<Q, true>(row, (uint8_t *)t.data + m * pitch, x,
                               [&](int, float *i, int32_t *z) {
                                   *i = found.inverse;
                                   *z = found.zero;
                               });
}
template <class Q, class S, class X>
__device__ __forceinline__ int32_t row_quantise_token(const Row<S> &row, const Operand &t,
                                                      int64_t m, int64_t pitch, const X &x)
{
    Extremes<Q> all = {};
    row_extremes<Q>(row, all, x);
    return row_quantise_found<Q>(row, t, m, pitch, x, row_token_scale<Q>(row, t, m, all));
}

/* Blocks of columns that THREADS neighbouring lanes hold, one of each lane's runs a block: each
 * lane ends with kLeft of the blocks, run `own` on, reduced over all lanes. While a lane has
 * several blocks, two lanes share them out, so that scales are computed once and not by every lane.
 */
template <class Q, class S, int THREADS> struct Shared {
    static constexpr bool kSplits = (S::kRuns & (S::kRuns - 1)) == 0;
    static constexpr int kSplit = !kSplits ? 1 : S::kRuns < THREADS ? S::kRuns : THREADS;
    static constexpr int kLeft = S::kRuns / kSplit, kLanes = THREADS / kSplit;
    Range range[S::kRuns];

    __device__ __forceinline__ void reduce(int lane)
    {
#pragma unroll
        for (int d = THREADS / 2; d > 0; d /= 2) {
            constexpr int kRuns = S::kRuns;
            /* the runs that two lanes d apart have to share, and after them */
            const int num = kRuns / (THREADS / 2 / d) > 0 ? kRuns / (THREADS / 2 / d) : 1;
            if (kSplits && num > 1) {
                const bool upper = lane & d;
#pragma unroll
                for (int i = 0; i < num / 2; i++) {
                    const Range low = range[i], high = range[i + num / 2];
                    Range keep = upper ? high : low;
                    range_merge<Q>(keep, range_of_lane<Q>(upper ? low : high, d));
                    range[i] = keep;
                }
            } else {
#pragma unroll
                for (int i = 0; i < kLeft; i++)
                    range_merge<Q>(range[i], range_of_lane<Q>(range[i], d));
            }
        }
    }
    static __device__ __forceinline__ int own(int lane)
    {
        return lane % THREADS / kLanes * kLeft;
    }
    /* The lane that has the result of run r. */
    static __device__ __forceinline__ int owner(int lane, int r)
    {
        return lane % 32 / THREADS * THREADS + r / kLeft * kLanes;
    }
};

/* .. by shuffles: a power-of-two number of neighbouring lanes hold a block. */
template <class Q, class S, class X>
__device__ __forceinline__ int32_t group_by_lanes(const Row<S> &row, const Operand &t, int64_t m,
                                                  int64_t pitch, const X &x)
{
    typedef Shared<Q, S, Q::kBlock / S::kV> G;
    float *scales = t.scale + Q::grid_row(m);
    int32_t *zeros = Q::kZero ? t.zero + Q::grid_row(m) : (int32_t *)0;
    const float outer = Q::kOuter ? *t.outer : 1.0f;
    G g;
#pragma unroll
    for (int r = 0; r < S::kRuns; r++) {
        Extremes<Q> of = {};
#pragma unroll
        for (int i = 0; i < S::kV; i++)
            if (row.has(r * S::kV + i))
                of.add(x[r * S::kV + i]);
        g.range[r] = of.range();
    }
    g.reduce(row.lane);
    float inverse[G::kLeft];
    int32_t zero[G::kLeft];
#pragma unroll
    for (int i = 0; i < G::kLeft; i++) {
        const float scale = range_scale<Q>(g.range[i], outer, &zero[i]);
        const int col = row.col((G::own(row.lane) + i) * S::kV) / Q::kBlock * Q::kBlock;
        if (row.lane % G::kLanes == 0 && col < row.end) {
            scales[col / Q::kBlock] = scale;
            if (Q::kZero)
                zeros[col / Q::kBlock] = zero[i];
        }
        inverse[i] = scale_inverse<Q>(scale, outer);
    }
    float all_inverse[S::kRuns];
    int32_t all_zero[S::kRuns];
#pragma unroll
    for (int r = 0; r < S::kRuns; r++) {
        const int owner = G::owner(row.lane, r);
        all_inverse[r] = G::kSplit == 1 ? inverse[r % G::kLeft]
                                        : __shfl_sync(0xFFFFFFFFu, inverse[r % G::kLeft], owner);
        all_zero[r] = !Q::kZero        ? 0
                      : G::kSplit == 1 ? zero[r % G::kLeft]
                                       : __shfl_sync(0xFFFFFFFFu, zero[r % G::kLeft], owner);
    }
    return row_encode<Q, true>(row, (uint8_t *)t.data + m * pitch, x,
                               [&](int e, float *i, int32_t *z) {
                                   *i = all_inverse[e / S::kV];
                                   *z = all_zero[e / S::kV];
                               });
}

/* .. by the four lanes that hold a row in the registers of products (hopper.cuh), runs of eight
 * columns each: a block is whole runs of all of them, or lies in the runs of one, two or four. */
template <class Q, class S, class X>
__device__ __forceinline__ int32_t group_by_quad(const Row<S> &row, const Operand &t, int64_t m,
                                                 int64_t pitch, const X &x)
{
    constexpr int kRun = S::kT * S::kV; /* of all lanes */
    constexpr int kLanes = Q::kBlock >= kRun ? S::kT : Q::kBlock > S::kV ? Q::kBlock / S::kV : 1;
    constexpr int kHeld = Q::kBlock / kLanes; /* of a block, by a lane */
    constexpr int kGroups = S::kE / kHeld;
    static_assert(kHeld * kLanes == Q::kBlock && kGroups * kHeld == S::kE &&
                      (kHeld % S::kV == 0 || S::kV % kHeld == 0),
                  "the lanes hold whole blocks");
    float *scales = t.scale + Q::grid_row(m);
    int32_t *zeros = Q::kZero ? t.zero + Q::grid_row(m) : (int32_t *)0;
    const float outer = Q::kOuter ? *t.outer : 1.0f;
    float inverse[kGroups];
    int32_t zero[kGroups];
#pragma unroll
    for (int g = 0; g < kGroups; g++) {
        Extremes<Q> of = {};
#pragma unroll
        for (int e = g * kHeld; e < (g + 1) * kHeld; e++)
            if (row.has(e))
                of.add(x[e]);
        Range r = of.range();
#pragma unroll
        for (int d = kLanes / 2; d > 0; d /= 2)
            range_merge<Q>(r, range_of_lane<Q>(r, d));
        const float scale = range_scale<Q>(r, outer, &zero[g]);
        const int col = row.col(g * kHeld) / Q::kBlock * Q::kBlock; /* of the block */
        if (row.lane % kLanes == g % kLanes && col < row.end && !row.absent) {
            scales[col / Q::kBlock] = scale;
            if (Q::kZero)
                zeros[col / Q::kBlock] = zero[g];
        }
        inverse[g] = scale_inverse<Q>(scale, outer);
    }
    return row_encode<Q, kHeld % S::kV == 0>(row, (uint8_t *)t.data + m * pitch, x,
                                             [&](int e, float *i, int32_t *z) {
                                                 *i = inverse[e / kHeld];
                                                 *z = zero[e / kHeld];
                                             });
}

/* .. in shared memory: any block. */
template <class Q, class S, class X>
__device__ __forceinline__ int32_t group_in_memory(const Row<S> &row, const Operand &t, int64_t m,
                                                   int64_t pitch, const X &x)
{
    constexpr int kGroups = (S::kCols + Q::kBlock - 1) / Q::kBlock;
    float *scales = t.scale + Q::grid_row(m);
    int32_t *zeros = Q::kZero ? t.zero + Q::grid_row(m) : (int32_t *)0;
    const float outer = Q::kOuter ? *t.outer : 1.0f;
    int32_t *amax = row.scratch, *lo = amax + kGroups, *hi = lo + kGroups;
    row.sync();
    for (int g = row.lane; g < kGroups; g += S::kT)
        amax[g] = lo[g] = hi[g] = 0;
    row.sync();
#pragma unroll
    for (int e = 0; e < S::kE; e++)
        if (row.has(e)) {
            Extremes<Q> of = {};
            of.add(x[e]);
            int g = (row.col(e) - row.n0) / Q::kBlock;
            range_gather<Q>(&amax[g], &lo[g], &hi[g], of.range());
        }
    row.sync();
    float *found = (float *)amax; /* the inverse scale takes the place of the range */
    for (int g = row.lane; g < kGroups && row.n0 + g * Q::kBlock < row.end; g += S::kT) {
        Range r = {amax[g], lo[g], hi[g]};
        int32_t zero;
        float scale = range_scale<Q>(r, outer, &zero);
        int at = row.n0 / Q::kBlock + g;
        scales[at] = scale;
        if (Q::kZero)
            zeros[at] = zero;
        found[g] = scale_inverse<Q>(scale, outer);
        lo[g] = zero;
    }
    row.sync();
    int32_t sum = row_encode<Q, Q::kBlock % S::kV == 0>(
        row, (uint8_t *)t.data + m * pitch, x, [&](int e, float *i, int32_t *z) {
            *i = found[(row.col(e) - row.n0) / Q::kBlock];
            *z = lo[(row.col(e) - row.n0) / Q::kBlock];
        });
    row.sync();
    return sum;
}

/* One scale for every kBlock columns; blocks lie inside the tile. */
template <class Q, class S, class X>
__device__ __forceinline__ int32_t row_quantise_group(const Row<S> &row, const Operand &t,
                                                      int64_t m, int64_t pitch, const X &x)
{
    constexpr int kLanes = Q::kBlock / S::kV; /* that share a block */
    if constexpr (S::kT == 4)
        return group_by_quad<Q>(row, t, m, pitch, x);
    else if constexpr (Q::kBlock % S::kV == 0 && (kLanes & (kLanes - 1)) == 0 && kLanes <= 32 &&
                       (S::kT * S::kV) % Q::kBlock == 0)
        return group_by_lanes<Q>(row, t, m, pitch, x);
    else
        return group_in_memory<Q>(row, t, m, pitch, x);
}

/* Ranges over rows ----------------------------------------------------------------------------- */

/* Ranges of blocks that span rows, and of a whole tensor for its outer scale, are gathered with
 * integer atomics (exact, so the order does not matter). span: per block amax, lo, hi (from 0: the
 * range holds 0), then the outer scale's bits. What one thread finds of the whole tensor: */
struct Found {
    float amax, lo, hi, outer;
};

template <class Q, class S, class X>
__device__ __forceinline__ void row_gather(const Row<S> &row, Found &found, int32_t *span,
                                           int64_t num_blocks, int64_t m, const X &x)
{
    Extremes<Q> all = {found.amax, found.lo, found.hi};
#pragma unroll
    for (int e = 0; e < S::kE; e++) {
        if (!row.has(e))
            continue;
        if (Q::kOuter)
            found.outer = fmaxf(found.outer, num_float((unsigned)num_outer_bits(x[e])));
        if (Q::kWholeTensor) {
            all.add(x[e]);
        } else if (Q::kBlockRows != 1) {
            Extremes<Q> of = {};
            of.add(x[e]);
            int32_t *at = span + Q::grid_row(m) + Q::grid_col(row.col(e));
            range_gather<Q>(at, at + num_blocks, at + 2 * num_blocks, of.range());
        }
    }
    found.amax = all.amax, found.lo = all.lo, found.hi = all.hi;
}

/* A tensor of one row finds its outer scale by itself: the largest of `bits` and what the thread
 * holds, then all threads'. */
template <class S, class X>
__device__ __forceinline__ int32_t row_outer_bits(const Row<S> &row, int32_t bits, const X &x)
{
#pragma unroll
    for (int e = 0; e < S::kE; e++)
        if (row.has(e))
            bits = Most()(bits, num_outer_bits(x[e]));
    return bits;
}
template <class Q, class S>
__device__ __forceinline__ void row_store_outer(const Row<S> &row, const Operand &t, int32_t bits)
{
    const float outer = num_outer(Q::kFmt, row_reduce(row, bits, Most()));
    if (row.lane == 0)
        *t.outer = outer;
    __threadfence_block();
    row.sync();
}

/* Once a block has seen its rows. scratch: of all threads, 4 words. */
template <class Q>
__device__ __forceinline__ void gather_end(const Found &found, int32_t *span, int64_t num_blocks,
                                           int32_t *scratch)
{
    if (!Q::kWholeTensor && !Q::kOuter)
        return;
    __syncthreads();
    if (threadIdx.x < 4)
        scratch[threadIdx.x] = 0;
    __syncthreads();
    const Extremes<Q> all = {found.amax, found.lo, found.hi};
    const Range r = range_of_warp<Q>(all.range());
    const int32_t outer = Most().over_warp((int32_t)num_bits(found.outer));
    if (threadIdx.x % 32 == 0) {
        range_gather<Q>(scratch, scratch + 1, scratch + 2, r);
        atomicMax(scratch + 3, outer);
    }
    __syncthreads();
    if (threadIdx.x)
        return;
    if (Q::kWholeTensor)
        range_gather<Q>(span, span + 1, span + 2, {scratch[0], scratch[1], scratch[2]});
    if (Q::kOuter)
        atomicMax(&span[3 * num_blocks], scratch[3]);
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

/* Both for one range of the whole tensor: every thread computes its scale, the first stores it. */
template <class Q, class S, class X>
__device__ __forceinline__ int32_t row_quantise_span(const Row<S> &row, const Operand &t,
                                                     const int32_t *span, int64_t num_blocks,
                                                     int64_t m, int64_t pitch, const X &x)
{
    float outer = 1.0f;
    if (Q::kOuter)
        outer = num_outer(Q::kFmt, span[3 * num_blocks]);
    int32_t zero;
    const float scale = range_scale<Q>({span[0], span[1], span[2]}, outer, &zero);
    if (m == 0 && row.col(0) == 0) {
        if (Q::kOuter)
            *t.outer = outer;
        *t.scale = scale;
        if (Q::kZero)
            *t.zero = zero;
    }
    const float inverse = scale_inverse<Q>(scale, outer);
    return row_encode<Q, true>(row, (uint8_t *)t.data + m * pitch, x,
                               [&](int, float *i, int32_t *z) {
                                   *i = inverse;
                                   *z = zero;
                               });
}

/* And back ------------------------------------------------------------------------------------- */

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

/* The values of two codes of e2m1 as f16, which have no lower bytes: their upper ones are looked up
 * by the bits of a selector, whose other places look up 0. */
__device__ __forceinline__ uint32_t e2m1_halves(uint32_t bytes)
{
    const uint32_t value = __byte_perm(0x3e3c3800u, 0x46444240u, bytes << 4 & 0x7070);
    return value | (__byte_perm(bytes, 0, 0x1404) << 4 & 0x80008000u);
}

/* Of two stored bytes, the first one low, up to the bits of a NaN. */
template <class Q> __device__ __forceinline__ void decode_two(uint32_t bytes, float &a, float &b)
{
    uint32_t halves;
    if constexpr (Q::kFmt == FMT_E2M1)
        halves = e2m1_halves(bytes);
#if __CUDA_ARCH__ >= 890
    else if constexpr (Q::kFmt == FMT_E4M3)
        asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"((uint16_t)bytes));
    else if constexpr (Q::kFmt == FMT_E5M2)
        asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(halves) : "h"((uint16_t)bytes));
#endif
    else {
        a = num_decode(Q::kFmt, bytes & 255), b = num_decode(Q::kFmt, bytes >> 8 & 255);
        return;
    }
    a = Plain<FMT_F16>::unpack(halves, 0), b = Plain<FMT_F16>::unpack(halves, 1);
}

/* What this program quantised of the row is there for all threads that hold it. */
template <class S> __device__ __forceinline__ void row_quantised(const Row<S> &row)
{
    __threadfence_block();
    row.sync();
}

/* dst <- dequantised columns of row m. */
template <class Q, int ACCESS = ACCESS_ANY, class S>
__device__ __forceinline__ void row_dequantise(const Row<S> &row, const Operand &t, int64_t m,
                                               int64_t pitch, float (&dst)[S::kE])
{
    const uint8_t *codes = (const uint8_t *)t.data + m * pitch;
    const float *scale = t.scale + Q::grid_row(m);
    const int32_t *zero = Q::kZero ? t.zero + Q::grid_row(m) : (const int32_t *)0;
    float outer = Q::kOuter ? *t.outer : 1.0f;
    const uint8_t *p = row.first_of(codes);
    if (S::kV % 4 == 0 && !Q::kZero && Q::kBlock % S::kV == 0 && row.in_runs() &&
        (ACCESS & ACCESS_ALIGNED || run_aligned<S::kV>(p))) { /* neighbours share their scale */
#pragma unroll
        for (int r = 0; r < S::kRuns; r++) {
            const bool has = row.has_run(r);
            uint32_t word[(S::kV + 3) / 4];
            load_words<S::kV>(word, has ? p + r * (S::kT * S::kV) : codes + row.n0);
            const int g = Q::grid_col(has ? row.col(r * S::kV) : row.n0);
            const float s = Q::kOuter ? num_scale_effective(scale[g], outer) : scale[g];
#pragma unroll
            for (int i = 0; i < S::kV; i += 2) {
                float a, b;
                decode_two<Q>(word[i / 4] >> (i % 4 * 8), a, b);
                dst[r * S::kV + i] = a * s, dst[r * S::kV + (i + 1) % S::kV] = b * s;
            }
        }
        return;
    }
#pragma unroll
    for (int e = 0; e < S::kE; e++) {
        int col = row.has(e) ? row.col(e) : row.n0, g = Q::grid_col(col);
        float s = Q::kOuter ? num_scale_effective(scale[g], outer) : scale[g];
        dst[e] = (num_decode(Q::kFmt, codes[col]) - (float)(Q::kZero ? zero[g] : 0)) * s;
    }
}

#endif
