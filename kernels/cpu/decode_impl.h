/* Decoding of float-class weights and the end of blocks in C over numerics.h, for the instruction
 * sets that have no code of their own for them. */
#include "kernels/cpu/kernels.h"
#include "numerics/each.h"
#include <string.h>

static void block_subtract_zero(const int32_t *zero, int cols, int64_t k, float *dst)
{
    for (int64_t i = 0; i < k; i++)
        for (int c = 0; c < cols; c++)
            dst[i * cols + c] -= (float)zero[c];
}

#define DECODE_CASE(FMT, Elem)                     \
    case FMT: {                                    \
        const Elem *in = (const void *)src;        \
        for (int64_t i = 0; i < units * cols; i++) \
            dst[i] = num_decode(FMT, in[i]);       \
        break;                                     \
    }

#define DECODE_BYTE(ID) DECODE_CASE(FMT_##ID, uint8_t)

/* Codes of nibbles and bytes by their tables. */
static void block_look_up(FormatId fmt, const uint8_t *src, int cols, int64_t units,
                          const CodeTables *tables, float *dst)
{
    bool nibbles = format_is_nibble(fmt);
    const uint32_t *word = (const void *)src;
    for (int64_t k = 0; k < (nibbles ? 8 * units : units); k++)
        for (int c = 0; c < cols; c++) {
            uint32_t code =
                nibbles ? (word[k / 8 * cols + c] >> (4 * (k % 8))) & 15 : src[k * cols + c];
            dst[k * cols + c] =
                (tables->all ? tables->all : tables->first + tables->offset[c])[code];
        }
}

static void block_decode_f32(FormatId fmt, const uint8_t *src, int cols, int64_t units,
                             const int32_t *zero, const CodeTables *tables, float *dst)
{
    int64_t k = format_is_nibble(fmt) ? 8 * units : units;
    if (tables) {
        block_look_up(fmt, src, cols, units, tables, dst);
        if (zero)
            block_subtract_zero(zero, cols, k, dst);
        return;
    }
    switch (fmt) {
        DECODE_CASE(FMT_F16, uint16_t)
        DECODE_CASE(FMT_BF16, uint16_t)
#define FORMAT(ID, name, bits, family, ...) EACH_BYTE(DECODE_BYTE, ID, bits, family)
#include "numerics/formats.def"
#undef FORMAT
        DECODE_CASE(FMT_I8, uint8_t)
        DECODE_CASE(FMT_U8, uint8_t)
    default: memcpy(dst, src, (size_t)units * (size_t)cols * 4); break;
    }
    if (zero)
        block_subtract_zero(zero, cols, k, dst);
}

static void block_finish_i32(const BlockFinish *f, int64_t rows, int cols, int32_t *c, int64_t ldc)
{
    const int32_t *restrict sum = f->sum, *restrict zero = f->zero;
    for (int64_t r = 0; r < rows; r++, c += ldc) {
        uint32_t *acc = (uint32_t *)c;
        uint32_t ra = (uint32_t)f->ra[r * f->step], rb = (uint32_t)f->rb[r * f->step];
        uint32_t all = (uint32_t)f->offset * rb;
        for (int i = 0; i < cols; i++)
            acc[i] -= ra * (uint32_t)sum[i] + (zero ? (uint32_t)zero[i] * rb : all);
        float sa = f->sa ? f->sa[r * f->step] : 1.0f, *out = f->out ? f->out + r * f->ld : NULL;
        for (int i = 0; out && i < cols; i++)
            out[i] = num_fma((float)c[i], sa * f->sb[i], out[i]);
    }
}

static void block_finish_f32(const BlockFinish *f, int64_t rows, int cols, const float *c,
                             int64_t ldc)
{
    for (int64_t r = 0; f->out && r < rows; r++, c += ldc) {
        float sa = f->sa ? f->sa[r * f->step] : 1.0f, *out = f->out + r * f->ld;
        float sum = f->zero ? f->rb_f32[r * f->step] : 0;
        for (int i = 0; i < cols; i++) {
            float whole = f->zero ? num_fma(-(float)f->zero[i], sum, c[i]) : c[i];
            out[i] = num_fma(whole, f->sb ? sa * f->sb[i] : sa, out[i]);
        }
    }
}
