/* Model texts of one kernel, or two: what the checker of GPU kernels compiles. */
#ifndef SINTER_TESTS_GPU_CASES_H
#define SINTER_TESTS_GPU_CASES_H

#include "codegen/cuda/target.h"

/* The matrix: products of every format of weights (as words of a scheme, or plain) with every
 * format of activations, of K that tensor cores take and of K that they do not, each with several
 * schemes (granularities of both sides, symmetries, formats of scales, static and dynamic) and
 * epilogues; row programs; moves; products of two activations. Case i of the first cases_num() is
 * one of them, in an order that visits all of the matrix again and again, weights of 1 to 3 bits
 * and of a file's codebooks behind all others, and behind these products of groups of rows, of
 * every pair of formats; further ones go round again with other numbers. */
uint64_t cases_num(void);
/* The numbers of `each` cases of every kind (products of few rows, of many, of formats for wgmma,
 * of odd K; row programs; moves; ..), from all over the matrix, at most `most` in all; how many
 * they are. only: of this kind ("few", "many", "wide", "odd", "rows", "moves", "pairs", "groups");
 * NULL: of all. */
uint64_t cases_pick(uint64_t each, const char *only, uint64_t most, uint64_t *ret);

typedef struct Case {
    const char *text_path;    /* dir/model.sinter */
    const CudaFamily *family; /* that products should take, if they can; NULL: the fastest */
    const char *wish;         /* .. and words of its candidate; NULL: any (CudaPlanOptions) */
    CudaDecode decode;        /* weights, by launches of their own */
    const CudaLayout *layout; /* of weights, where they can lie so; NULL: the fastest */
    const char *what;         /* "product i4 x bf16, aligned, gated" */
} Case;

/* Writes the text and its data into dir. False after printing why it cannot be written. */
bool case_make(Arena *arena, uint64_t number, const char *dir, Case *ret);

#endif
