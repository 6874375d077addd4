/* What kernels_amx.c and kernels_amx_few.c share. */
#ifndef SINTER_CPU_AMX_H
#define SINTER_CPU_AMX_H

#include "kernels/cpu/avx512_impl.h"

/* As tiles do with their sums: denormals are 0. */
#define DENORMALS_ARE_0 0x8040u

/* Both parts of the values of 4-bit codes, twice: the low five bits of an index count, of which the
 * fifth is another code's. Kept, as decoding is called often. */
typedef struct PairTable {
    FormatId fmt;
    uint16_t value[32], rest[32];
} PairTable;

static inline const PairTable *pair_table(FormatId fmt)
{
    static _Thread_local PairTable t;
    if (t.fmt == fmt)
        return &t;
    t.fmt = fmt;
    for (unsigned i = 0; i < 32; i++) {
        float x = num_decode((int)fmt, i % 16);
        t.value[i] = (uint16_t)num_to_bf16(x);
        t.rest[i] = (uint16_t)num_to_bf16(x - num_from_bf16(t.value[i]));
    }
    return &t;
}

/* CpuMatrix.few_rows */
bool amx_few_rows(const MatrixFew *f);

#endif
