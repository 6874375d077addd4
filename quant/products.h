/* Sums of x x^T over many rows x, for the second moments of a layer's input. */
#ifndef SINTER_QUANT_PRODUCTS_H
#define SINTER_QUANT_PRODUCTS_H

#include <stdbool.h>
#include <stdint.h>

struct QuantEngine;

/* Rows that wait until there are enough to add at once. */
typedef struct Products {
    int64_t cols;
    int filled;                       /* rows held */
    float amax;                       /* largest magnitude among them */
    float *panels;                    /* [panels of columns][rows][columns of a panel] */
    const struct QuantEngine *engine; /* NULL: this processor */
    void *moments;                    /* the engine's */
    bool failed;                      /* the engine did */
} Products;

bool products_init(Products *p, int64_t cols); /* false: out of memory, or too large */
/* Has the engine add, where it has room; before the first row. */
void products_use(Products *p, const struct QuantEngine *engine);
void products_free(Products *p);

/* Takes `num` finite rows x [cols], the largest magnitude among them amax. When the number of rows
 * held is full, the lower half of sum [cols, cols] gets their products.
 * Products are added in f32 by fused steps over 64 rows, these sums in f64: an element (i, j) is
 * within 2^-18 sqrt(sum_ii sum_jj) of the exact sum, and does not depend on threads or vector
 * widths. */
#define PRODUCTS_HELD 512 /* rows at most; filled + num must not be more */
void products_add(Products *p, const float *const *x, int num, float amax, double *sum);
/* The same for all rows still held, and what the engine has. False: the engine failed. */
bool products_finish(Products *p, double *sum);

#endif
