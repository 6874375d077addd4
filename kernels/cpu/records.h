/* Reading the records of a panel in the order of memory, for kernels of x86's vectors. */
#ifndef SINTER_CPU_RECORDS_H
#define SINTER_CPU_RECORDS_H

#include "kernels/cpu/kernels.h"
#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))
/* Loops of constant length, unrolled so that their arrays are registers. */
#define for_each(i, num) _Pragma("GCC unroll 8") for (int i = 0; i < (num); i++)

/* A call of `block` with the number of its rows, at most 3, 4 or 6, as a constant. */
#define CASES_OF_3(rows, block, ...)       \
    switch (rows) {                        \
    case 1: block(1, __VA_ARGS__); break;  \
    case 2: block(2, __VA_ARGS__); break;  \
    default: block(3, __VA_ARGS__); break; \
    }
#define CASES_OF_4(rows, block, ...)       \
    switch (rows) {                        \
    case 1: block(1, __VA_ARGS__); break;  \
    case 2: block(2, __VA_ARGS__); break;  \
    case 3: block(3, __VA_ARGS__); break;  \
    default: block(4, __VA_ARGS__); break; \
    }
#define CASES_OF_6(rows, block, ...)       \
    switch (rows) {                        \
    case 1: block(1, __VA_ARGS__); break;  \
    case 2: block(2, __VA_ARGS__); break;  \
    case 3: block(3, __VA_ARGS__); break;  \
    case 4: block(4, __VA_ARGS__); break;  \
    case 5: block(5, __VA_ARGS__); break;  \
    default: block(6, __VA_ARGS__); break; \
    }

/* Weights that are met in the order of memory are fetched ahead. From several pages in turn: some
 * processors follow each page's lines for themselves and ask for few of one page at a time, so that
 * reading in order gets two thirds of what memory gives. */
#define FETCH_PAGE  4096
#define FETCH_TURNS 4 /* pages */
#define FETCH_AHEAD ((uintptr_t)FETCH_TURNS * FETCH_PAGE)
#define FETCH_FAR   8192 /* bytes, line after line */

/* For a run of memory, called once for each `lines` cache lines of it (1, 2 or 4) with any address
 * in them, this fetches each line of the run once, FETCH_AHEAD or FETCH_FAR bytes further on. */
INLINE void fetch_ahead(CpuFetch how, const void *at, int lines)
{
    uintptr_t a = (uintptr_t)at + FETCH_AHEAD, page = 64 * (uintptr_t)(FETCH_TURNS - lines);
    uintptr_t from =
        (a & ~(FETCH_AHEAD - 1)) + (a & page) * (FETCH_PAGE / 64) + (a / FETCH_TURNS & 0xfc0);
    if (how == FETCH_PAGES)
        for_each(i, lines)
            _mm_prefetch((const char *)(from + (uintptr_t)(i * FETCH_PAGE)), _MM_HINT_T0);
    else if (how == FETCH_LINES)
        for_each(i, lines)
            _mm_prefetch((const char *)at + FETCH_FAR + 64 * i, _MM_HINT_T0);
}

/* How records of a panel follow each other. */
typedef struct RecordSteps {
    int64_t record, codes; /* bytes; record 0: there is one */
} RecordSteps;

INLINE RecordSteps record_steps(const PackLayout *l, const uint8_t *panel, int cols)
{
    RecordSteps s = {0};
    if (l->blocks < 2)
        return s;
    s.record = layout_block(l, panel, cols, 1).codes - panel;
    s.codes = (int64_t)layout_codes_bytes(l, cols, l->block_units);
    return s;
}

/* The words behind the codes, which were fetched so many lines at a time. */
INLINE void record_fetch(CpuFetch how, const RecordSteps *s, const PackBlock *b, int lines)
{
    uintptr_t step = 64 * (uintptr_t)lines, codes = (uintptr_t)b->codes;
    uintptr_t end = how == FETCH_NONE ? 0 : (codes + (uintptr_t)s->record) / step;
    for (uintptr_t at = codes + (uintptr_t)s->codes; at / step < end; at += step)
        fetch_ahead(how, (const void *)at, lines);
}

/* The block after b, which is number i; the last may be shorter. */
INLINE void record_next(const RecordSteps *s, const PackLayout *l, const uint8_t *panel, int cols,
                        int64_t i, PackBlock *b)
{
    if (i + 2 >= l->blocks) {
        if (i + 1 < l->blocks)
            *b = layout_block(l, panel, cols, i + 1);
        return;
    }
    b->codes += s->record;
    b->sum = (const uint8_t *)b->sum + s->record;
    b->scale = b->scale ? (const uint8_t *)b->scale + s->record : NULL;
    b->zero = b->zero ? b->zero + s->record : NULL;
    b->factor = b->factor ? b->factor + s->record : NULL;
    b->k_begin += l->block;
}

#endif
