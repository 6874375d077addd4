/* Sums of x x^T over many rows x, for the second moments of a layer's input. */
#ifndef SINTER_QUANT_PRODUCTS_H
#define SINTER_QUANT_PRODUCTS_H

#include <stdbool.h>
#include <stdint.h>

/* Rows that wait until there are enough to add at once. */
typedef struct Products {
    int64_t cols;
    int filled;    /* rows held */
    float amax;    /* largest magnitude among them */
    float *panels; /* [panels of columns][rows][columns of a panel] */
} Products;

bool products_init(Products *p, int64_t cols); /* false: out of memory, or too large */
void products_free(Products *p);

/* Takes a finite row x [cols] whose largest magnitude is amax. The lower half of sum [cols, cols]
 * gets the products of rows held before, when their number is full.
 * Products are f32 and summed in f32 over 64 rows, then in f64: an element (i, j) is within
 * 2^-18 sqrt(sum_ii sum_jj) of the exact sum, and does not depend on threads, on vector widths or
 * on how rows were spread over calls. */
void products_add(Products *p, const float *x, float amax, double *sum);
/* The same for all rows still held. */
void products_flush(Products *p, double *sum);

#endif
