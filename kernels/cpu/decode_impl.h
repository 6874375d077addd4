/* Decoding of float-class weights in C over numerics.h, for the instruction sets that have no code
 * of their own for it. */
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
