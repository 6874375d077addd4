/* Model texts of one kernel, or two: what the checker of GPU kernels compiles. */
#ifndef SINTER_TESTS_GPU_CASES_H
#define SINTER_TESTS_GPU_CASES_H

#include "base/base.h"

/* The matrix: products of every format of weights (as words of a scheme, or plain) with every
 * format of activations, of K that tensor cores take and of K that they do not, each with several
 * schemes (granularities of both sides, symmetries, formats of scales, static and dynamic) and
 * epilogues; row programs; moves. Case i of the first cases_num() is one of them; further ones go
 * round again with other numbers. */
uint64_t cases_num(void);

typedef struct Case {
    const char *text_path; /* dir/model.sinter */
    const char *what;      /* "product i4 x bf16, aligned, gated" */
} Case;

/* Writes the text and its data into dir. False after printing why it cannot be written. */
bool case_make(Arena *arena, uint64_t number, const char *dir, Case *ret);

#endif
