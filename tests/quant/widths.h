/* The steps of numerics.h as loops, compiled once for each instruction set (widths.c). */
#ifndef SINTER_TESTS_QUANT_WIDTHS_H
#define SINTER_TESTS_QUANT_WIDTHS_H

#include <stdint.h>

typedef struct Width {
    const char *name;
    /* dst[i] = bits of function `which` of x[i] */
    void (*map)(int which, uint32_t *dst, const float *x, int num);
    /* rmsnorm 0, layernorm 1, softmax 2 of a row */
    void (*row)(int which, float *dst, const float *x, const float *w, const float *b, int num);
} Width;

#define NUM_MAPS 18
extern const Width width_base, width_avx2, width_avx512;

#endif
