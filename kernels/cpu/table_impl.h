/* Codes looked up in any tables, in C that each instruction set compiles. */
#ifndef SINTER_CPU_TABLE_IMPL_H
#define SINTER_CPU_TABLE_IMPL_H

#include "kernels/cpu/kernels.h"

/* Codes of nibbles and bytes by their tables. */
static inline void block_look_up(FormatId fmt, const uint8_t *src, int cols, int64_t units,
                                 const CodeTables *tables, float *dst)
{
    bool nibbles = format_is_nibble(fmt);
    const uint32_t *word = (const void *)src;
    for (int64_t k = 0; k < (nibbles ? 8 * units : units); k++)
        for (int c = 0; c < cols; c++) {
            uint32_t code =
                nibbles ? (word[k / 8 * cols + c] >> (4 * (k % 8))) & 15 : src[k * cols + c];
            dst[k * cols + c] = (tables->all ? tables->all : tables->column[c])[code];
        }
}

#endif
