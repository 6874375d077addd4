/* Element loops, one body each, compiled for the base machine, AVX2 and AVX-512. */
#include "quant/loops.h"
#include "numerics/each.h"
#include "quant/versions.h"
#include <stdatomic.h>

NUM_FN int int_max(int a, int b)
{
    return a > b ? a : b;
}

NUM_FN int int_min(int a, int b)
{
    return a < b ? a : b;
}

NUM_FN void loop_range_body(RangeKind kind, const float *x, int64_t num, int *ret_lo, int *ret_hi)
{
    int lo = *ret_lo, hi = *ret_hi;
    switch (kind) {
    case RANGE_AMAX:
        for (int64_t i = 0; i < num; i++)
            hi = int_max(hi, num_amax_bits(x[i], 0));
        break;
    case RANGE_AMAX_NAN:
        for (int64_t i = 0; i < num; i++)
            hi = int_max(hi, num_amax_bits(x[i], 1));
        break;
    case RANGE_FINITE:
        for (int64_t i = 0; i < num; i++)
            hi = int_max(hi, num_outer_bits(x[i]));
        break;
    case RANGE_BOTH:
        for (int64_t i = 0; i < num; i++) {
            int key = num_order_key(x[i]);
            lo = int_min(lo, key);
            hi = int_max(hi, key);
        }
        break;
    }
    *ret_lo = lo;
    *ret_hi = hi;
}
LOOP_VERSIONS(loop_range, (RangeKind kind, const float *x, int64_t num, int *lo, int *hi),
              (kind, x, num, lo, hi))

#define ENCODE_CASE(ID)                                         \
    case FMT_##ID:                                              \
        for (int64_t i = 0; i < num; i++)                       \
            dst[i] = (uint8_t)num_encode(FMT_##ID, x[i] * inv); \
        break;

NUM_FN void loop_encode_body(const EncodeArgs *args, const float *restrict x, int64_t num,
                             uint8_t *restrict dst)
{
    float inv = args->inv;
    int zero = args->zero, qmin = args->qmin, qmax = args->qmax;
    switch (args->fmt == FMT_BINARY ? args->fmt : num_holder(args->fmt)) {
#define FORMAT(ID, name, bits, family, ...) EACH_CODED(ENCODE_CASE, ID, family)
#include "numerics/formats.def"
#undef FORMAT
    case FMT_I4:
        for (int64_t i = 0; i < num; i++)
            dst[i] = (uint8_t)(num_to_int(x[i] * inv, zero, qmin, qmax) & 15);
        break;
    case FMT_BINARY:
        for (int64_t i = 0; i < num; i++)
            dst[i] = (uint8_t)(num_int_code(FMT_BINARY, x[i] * inv, zero, qmin, qmax) & 15);
        break;
    default:
        for (int64_t i = 0; i < num; i++)
            dst[i] = (uint8_t)num_to_int(x[i] * inv, zero, qmin, qmax);
        break;
    }
}
LOOP_VERSIONS(loop_encode, (const EncodeArgs *args, const float *x, int64_t num, uint8_t *dst),
              (args, x, num, dst))

NUM_FN void loop_scale_body(float inv, const float *restrict x, int64_t num, float *restrict dst)
{
    for (int64_t i = 0; i < num; i++)
        dst[i] = x[i] * inv;
}
LOOP_VERSIONS(loop_scale, (float inv, const float *x, int64_t num, float *dst), (inv, x, num, dst))

NUM_FN void loop_pack4_body(const uint8_t *restrict src, int64_t num, uint8_t *restrict dst)
{
    for (int64_t i = 0; i < num / 2; i++)
        dst[i] = (uint8_t)(src[2 * i] | src[2 * i + 1] << 4);
    if (num % 2)
        dst[num / 2] = src[num - 1];
}
LOOP_VERSIONS(loop_pack4, (const uint8_t *src, int64_t num, uint8_t *dst), (src, num, dst))

#define TO_CASE(ID, Code)                                     \
    case FMT_##ID: {                                          \
        const Code *from = src;                               \
        for (int64_t i = 0; i < num; i++)                     \
            dst[i] = num_decode(FMT_##ID, (unsigned)from[i]); \
        break;                                                \
    }

#define TO_BYTE(ID) TO_CASE(ID, uint8_t)

NUM_FN void loop_to_f32_body(int fmt, const void *restrict src, float *restrict dst, int64_t num)
{
    switch (fmt) {
        TO_CASE(F16, uint16_t)
        TO_CASE(BF16, uint16_t)
#define FORMAT(ID, name, bits, family, ...) EACH_BYTE(TO_BYTE, ID, bits, family)
#include "numerics/formats.def"
#undef FORMAT
        TO_CASE(I8, uint8_t)
        TO_CASE(U8, uint8_t)
    case FMT_F32: {
        const float *from = src;
        for (int64_t i = 0; i < num; i++)
            dst[i] = from[i];
        break;
    }
    case FMT_F64: {
        const double *from = src;
        for (int64_t i = 0; i < num; i++)
            dst[i] = (float)from[i];
        break;
    }
    case FMT_I32: {
        const int32_t *from = src;
        for (int64_t i = 0; i < num; i++)
            dst[i] = (float)from[i];
        break;
    }
    default: break;
    }
}
LOOP_VERSIONS(loop_to_f32, (int fmt, const void *src, float *dst, int64_t num),
              (fmt, src, dst, num))

/* Nearest even, clamped to the symmetric range, NaN to 0. */
NUM_FN int32_t to_i32(float x)
{
    double d = x != x ? 0.0 : (double)x;
    d = d < -2147483647.0 ? -2147483647.0 : d;
    d = d > 2147483647.0 ? 2147483647.0 : d;
    return (int32_t)rint(d);
}

#define FROM_CASE(ID, Code)                             \
    case FMT_##ID: {                                    \
        Code *to = dst;                                 \
        for (int64_t i = 0; i < num; i++)               \
            to[i] = (Code)num_encode(FMT_##ID, src[i]); \
        break;                                          \
    }

#define FROM_BYTE(ID) FROM_CASE(ID, uint8_t)

NUM_FN void loop_from_f32_body(int fmt, const float *restrict src, void *restrict dst, int64_t num)
{
    switch (fmt) {
        FROM_CASE(F16, uint16_t)
        FROM_CASE(BF16, uint16_t)
#define FORMAT(ID, name, bits, family, ...) EACH_BYTE(FROM_BYTE, ID, bits, family)
#include "numerics/formats.def"
#undef FORMAT
    case FMT_I8: {
        int8_t *to = dst;
        for (int64_t i = 0; i < num; i++)
            to[i] = (int8_t)num_to_int(src[i], 0, -127, 127);
        break;
    }
    case FMT_U8: {
        uint8_t *to = dst;
        for (int64_t i = 0; i < num; i++)
            to[i] = (uint8_t)num_to_int(src[i], 0, 0, 255);
        break;
    }
    case FMT_F32: {
        float *to = dst;
        for (int64_t i = 0; i < num; i++)
            to[i] = src[i];
        break;
    }
    case FMT_F64: {
        double *to = dst;
        for (int64_t i = 0; i < num; i++)
            to[i] = src[i];
        break;
    }
    case FMT_I32: {
        int32_t *to = dst;
        for (int64_t i = 0; i < num; i++)
            to[i] = to_i32(src[i]);
        break;
    }
    default: break;
    }
}
LOOP_VERSIONS(loop_from_f32, (int fmt, const float *src, void *dst, int64_t num),
              (fmt, src, dst, num))

int loop_level(void)
{
#ifdef LOOP_LEVELS
    static atomic_int cached; /* 0: not yet known */
    int level = atomic_load_explicit(&cached, memory_order_relaxed);
    if (level)
        return level;
    __builtin_cpu_init();
    level = 1;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        level = 2;
    if (level == 2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        level = 3;
    atomic_store_explicit(&cached, level, memory_order_relaxed);
    return level;
#else
    return 1;
#endif
}
