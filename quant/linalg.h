/* Dense linear algebra for weight quantisers, in f64, row-major. Own code by default: its results
 * do not depend on the machine or the number of threads. */
#ifndef SINTER_QUANT_LINALG_H
#define SINTER_QUANT_LINALG_H

#include <stdbool.h>
#include <stdint.h>

/* a [n, n], symmetric (the lower half is read): replaced by its lower Cholesky factor, the upper
 * half untouched. False when it is not positive definite. */
bool linalg_cholesky(double *a, int64_t n);
/* inv <- inverse of the lower triangle l; the upper half of inv is zero. */
void linalg_invert_lower(const double *l, double *inv, int64_t n);

/* dst[0..num] -= sum over k in 0..count of a[k] * b[k * pitch ..], k ascending. */
void linalg_subtract(double *dst, const double *a, const double *b, int64_t pitch, int count,
                     int64_t num);

/* A tile of LINALG_TILE rows of a matrix, element k of each beside one another. For j in
 * begin..end: w[j][..] -= sum over i from first down to last of err[first - i][..] * m[i * n + j].
 */
#define LINALG_TILE 16
void linalg_tile_update(const double *m, int64_t n, int64_t first, int64_t last, int64_t begin,
                        int64_t end, const double *err, double *w);

#endif
