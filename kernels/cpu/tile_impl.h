/* Row steps in C over numerics.h, compiled once an instruction set: the loops vectorise and, as
 * every float operation is written out, give the same bits everywhere. */
#include "kernels/cpu/kernels.h"
#include "numerics/each.h"
#include "numerics/rows.h"
#include <string.h>

static void row_load(FormatId fmt, const void *src, float *dst, int64_t num)
{
    const uint16_t *half = src;
    switch (fmt) {
    case FMT_F32: memcpy(dst, src, (size_t)num * 4); break;
    case FMT_F16:
        for (int64_t i = 0; i < num; i++)
            dst[i] = num_from_f16(half[i]);
        break;
    case FMT_BF16:
        for (int64_t i = 0; i < num; i++)
            dst[i] = num_from_bf16(half[i]);
        break;
    default: memset(dst, 0, (size_t)num * 4); break;
    }
}

static void row_store(FormatId fmt, const float *src, void *dst, int64_t num)
{
    uint16_t *half = dst;
    switch (fmt) {
    case FMT_F32: memcpy(dst, src, (size_t)num * 4); break;
    case FMT_F16:
        for (int64_t i = 0; i < num; i++)
            half[i] = (uint16_t)num_to_f16(src[i]);
        break;
    case FMT_BF16:
        for (int64_t i = 0; i < num; i++)
            half[i] = (uint16_t)num_to_bf16(src[i]);
        break;
    default: break;
    }
}

static void row_round(FormatId fmt, const float *src, float *dst, int64_t num)
{
    switch (fmt) {
    case FMT_F16:
        for (int64_t i = 0; i < num; i++)
            dst[i] = num_round_f16(src[i]);
        break;
    case FMT_BF16:
        for (int64_t i = 0; i < num; i++)
            dst[i] = num_round_bf16(src[i]);
        break;
    default: memmove(dst, src, (size_t)num * 4); break;
    }
}

/* The result may take the place of an operand, element by element. */
#if defined(__clang__)
#define IN_PLACE_LOOP _Pragma("clang loop vectorize(assume_safety)")
#else
#define IN_PLACE_LOOP _Pragma("GCC ivdep")
#endif

/* One loop a pair of row and scalar operands, so that each vectorises. */
#define ELEMENTWISE_LOOPS(a_at, b_at, expr)         \
    IN_PLACE_LOOP for (int64_t i = 0; i < num; i++) \
    {                                               \
        float a = x.p[a_at], b = y.p[b_at];         \
        (void)b;                                    \
        dst[i] = (expr);                            \
    }
#define ELEMENTWISE(ID, name, arity, f32_expr, f64_expr)              \
    static void row_##ID(RowArg x, RowArg y, float *dst, int64_t num) \
    {                                                                 \
        if (x.is_scalar && y.is_scalar)                               \
            ELEMENTWISE_LOOPS(0, 0, f32_expr)                         \
        else if (x.is_scalar)                                         \
            ELEMENTWISE_LOOPS(0, i, f32_expr)                         \
        else if (y.is_scalar)                                         \
            ELEMENTWISE_LOOPS(i, 0, f32_expr)                         \
        else                                                          \
            ELEMENTWISE_LOOPS(i, i, f32_expr)                         \
    }
#include "numerics/elementwise.def"
#undef ELEMENTWISE

static void row_elementwise(int op, RowArg a, RowArg b, float *dst, int64_t num)
{
    switch (op) {
#define ELEMENTWISE(ID, name, arity, f32_expr, f64_expr) \
    case TILE_##ID:                                      \
        row_##ID(a, b, dst, num);                        \
        break;
#include "numerics/elementwise.def"
#undef ELEMENTWISE
    default: break;
    }
}

static void row_arith_i32(int op, RowArgI32 a, RowArgI32 b, int32_t *dst, int64_t num)
{
    const uint32_t *x = (const uint32_t *)a.p, *y = (const uint32_t *)b.p;
    int64_t dx = !a.is_scalar, dy = !b.is_scalar;
    switch (op) {
    case TILE_ADD_I32:
        for (int64_t i = 0; i < num; i++)
            dst[i] = (int32_t)(x[i * dx] + y[i * dy]);
        break;
    case TILE_SUB_I32:
        for (int64_t i = 0; i < num; i++)
            dst[i] = (int32_t)(x[i * dx] - y[i * dy]);
        break;
    default:
        for (int64_t i = 0; i < num; i++)
            dst[i] = (int32_t)(x[i * dx] * y[i * dy]);
        break;
    }
}

static void row_i32_to_f32(const int32_t *src, float *dst, int64_t num)
{
    for (int64_t i = 0; i < num; i++)
        dst[i] = (float)src[i];
}

#define DEQUANTISE_CASE(ID)                                                  \
    case FMT_##ID:                                                           \
        for (int64_t i = 0; i < num; i++)                                    \
            dst[i] = (num_decode(FMT_##ID, codes[i]) - (float)zero) * scale; \
        break;

static void row_dequantise(FormatId fmt, const uint8_t *codes, float scale, int32_t zero,
                           float *dst, int64_t num)
{
    switch (fmt) {
        DEQUANTISE_CASE(I8)
        DEQUANTISE_CASE(U8)
        DEQUANTISE_CASE(I4)
        DEQUANTISE_CASE(U4)
#define FORMAT(ID, name, bits, family, ...) EACH_CODED(DEQUANTISE_CASE, ID, family)
#include "numerics/formats.def"
#undef FORMAT
    default: break;
    }
}

#define QUANTISE_CASE(ID)                                               \
    case FMT_##ID:                                                      \
        for (int64_t i = 0; i < num; i++)                               \
            codes[i] = (uint8_t)num_encode(FMT_##ID, src[i] * inverse); \
        break;

static void row_quantise(FormatId fmt, bool has_zero, float inverse, int32_t zero, const float *src,
                         uint8_t *codes, int64_t num)
{
    switch (fmt) {
#define FORMAT(ID, name, bits, family, ...) EACH_CODED(QUANTISE_CASE, ID, family)
#include "numerics/formats.def"
#undef FORMAT
    default: {
        int qmin = num_code_min((int)fmt, has_zero), qmax = num_code_max((int)fmt);
        int mask = format_is_nibble(fmt) ? 15 : 255;
        for (int64_t i = 0; i < num; i++)
            codes[i] = (uint8_t)(num_to_int(src[i] * inverse, zero, qmin, qmax) & mask);
        break;
    }
    }
}

static void row_range(const float *src, int64_t num, bool keeps_nan, RowRange *range)
{
    int32_t amax = range->amax, lo = range->lo, hi = range->hi;
    for (int64_t i = 0; i < num; i++) {
        int32_t bits = num_amax_bits(src[i], keeps_nan), key = num_order_key(src[i]);
        amax = bits > amax ? bits : amax;
        lo = key < lo ? key : lo;
        hi = key > hi ? key : hi;
    }
    *range = (RowRange){amax, lo, hi};
}

static int32_t row_outer_bits(const float *src, int64_t num)
{
    int32_t most = 0;
    for (int64_t i = 0; i < num; i++) {
        int32_t bits = num_outer_bits(src[i]);
        most = bits > most ? bits : most;
    }
    return most;
}

static int32_t row_code_sum(FormatId fmt, const uint8_t *codes, int64_t num)
{
    uint32_t sum = 0;
    int flip = fmt == FMT_I8 ? 128 : fmt == FMT_I4 ? 8 : 0;
    int mask = format_is_nibble(fmt) ? 15 : 255;
    for (int64_t i = 0; i < num; i++)
        sum += (uint32_t)(((codes[i] & mask) ^ flip) - flip);
    return (int32_t)sum;
}

static int32_t row_widen_codes(FormatId fmt, const uint8_t *codes, uint8_t *dst, int64_t num)
{
    uint32_t sum = 0;
    int flip = fmt == FMT_I8 ? 128 : fmt == FMT_I4 ? 8 : 0;
    int add = fmt == FMT_I4 ? 120 : 0;
    int mask = format_is_nibble(fmt) ? 15 : 255;
    for (int64_t i = 0; i < num; i++) {
        dst[i] = (uint8_t)(((codes[i] & mask) ^ flip) + add);
        sum += dst[i];
    }
    return (int32_t)sum;
}

static void row_rmsnorm(const float *x, const float *weight, float eps, float *dst, int64_t num)
{
    num_row_rmsnorm(dst, x, weight, eps, num);
}

static void row_layernorm(const float *x, const float *weight, const float *bias, float eps,
                          float *dst, int64_t num)
{
    num_row_layernorm(dst, x, weight, bias, eps, num);
}

static void row_softmax(const float *x, float *dst, int64_t num)
{
    num_row_softmax(dst, x, num);
}

/* Steps of the main loop that every instruction set shares ------------------------------------- */

static void block_decode_i4(const uint8_t *src, int cols, int64_t units, int8_t *dst)
{
    int64_t bytes = (int64_t)cols * 4;
    for (int64_t u = 0; u < units; u++, src += bytes, dst += 2 * bytes)
        for (int64_t i = 0; i < bytes; i++) {
            dst[i] = (int8_t)(src[i] & 15);
            dst[bytes + i] = (int8_t)(src[i] >> 4);
        }
}

/* Two codes at once: a byte has room for a code times its factor, and for what i8 has of that less
 * the zero point, 128 more. */
static void block_decode_factored(const uint8_t *src, const uint8_t *factor, int cols,
                                  int64_t units, int8_t *dst)
{
    uint32_t both[2][PANEL_COLS];
    uint16_t by[2 * PANEL_COLS], more[2 * PANEL_COLS];
    int pairs = 2 * cols;
    for (int c = 0; c < cols; c++) {
        uint32_t f = (uint32_t)factor_of_byte(factor[c]), zero = (uint32_t)factor_zero(factor[c]);
        both[0][c] = f * 0x00010001;
        both[1][c] = ((0x8080 - f * zero * 0x0101) & 0xFFFF) * 0x00010001;
    }
    memcpy(by, both[0], (size_t)cols * 4);
    memcpy(more, both[1], (size_t)cols * 4);
    const uint16_t *in = (const void *)src;
    uint16_t *restrict out = (void *)dst;
    for (int64_t u = 0; u < units; u++, in += pairs, out += 2 * pairs)
        for (int i = 0; i < pairs; i++) {
            out[i] = (uint16_t)(((in[i] & 0x0F0F) * by[i] + more[i]) ^ 0x8080);
            out[pairs + i] = (uint16_t)(((in[i] >> 4 & 0x0F0F) * by[i] + more[i]) ^ 0x8080);
        }
}

static void block_open_fields(int bits, const FieldsMap *map, const uint8_t *src, uint64_t num,
                              uint8_t *dst)
{
    fields_open(bits, map, src, num, dst);
}

#define SCALE_CASE(FMT, Elem)                                               \
    case FMT:                                                               \
        for (int i = 0; i < cols; i++)                                      \
            words->scale[i] = num_decode(FMT, ((const Elem *)b->scale)[i]); \
        break;

static void block_decode_words(const PackLayout *l, const PackBlock *b, int cols, BlockWords *words)
{
    const int32_t *sum = b->sum;
    const int16_t *short_sum = b->sum;
    const float *scale = b->scale;
    for (int i = 0; l->sum_bytes && i < cols; i++)
        words->sum[i] = l->sum_bytes == 2 ? short_sum[i] : sum[i];
    for (int i = 0; b->zero && i < cols; i++)
        words->zero[i] = b->zero[i];
    if (!scale)
        return;
    switch (l->scale_fmt) {
        SCALE_CASE(FMT_F16, uint16_t)
        SCALE_CASE(FMT_BF16, uint16_t)
        SCALE_CASE(FMT_E4M3, uint8_t)
        SCALE_CASE(FMT_E8M0, uint8_t)
    default: memcpy(words->scale, scale, (size_t)cols * sizeof *scale); break;
    }
}

#define CPU_KERNELS_SHARED                                                                  \
    .decode_i4 = block_decode_i4, .decode_factored = block_decode_factored,                 \
    .open_fields = block_open_fields, .decode_words = block_decode_words, .load = row_load, \
    .store = row_store, .round = row_round, .elementwise = row_elementwise,                 \
    .arith_i32 = row_arith_i32, .i32_to_f32 = row_i32_to_f32, .dequantise = row_dequantise, \
    .quantise = row_quantise, .range = row_range, .outer_bits = row_outer_bits,             \
    .code_sum = row_code_sum, .widen_codes = row_widen_codes, .rmsnorm = row_rmsnorm,       \
    .layernorm = row_layernorm, .softmax = row_softmax
