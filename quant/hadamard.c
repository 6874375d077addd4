/* Rotation by Hadamard matrices: H = Paley(m) (x) Sylvester(2^k), over sqrt(n). Paley's matrix of
 * order m = p + 1, p prime, p mod 4 = 3, is I + S with S skew: the first row all ones beyond the
 * diagonal, the first column their negatives, and the Legendre symbol of i - j inside. */
#include "base/limits.h"
#include "quant/quant.h"
#include <math.h>
#include <stdlib.h>

#define MOST_PALEY 256 /* the dense part costs m operations an element */

static bool is_prime(int n)
{
    for (int d = 2; d * d <= n; d++)
        if (n % d == 0)
            return false;
    return n > 1;
}

/* The smallest order of the dense part: 1, or m with n = m * 2^k. 0: none is known. */
static int paley_order(int64_t n)
{
    int64_t odd = n;
    while (odd > 1 && odd % 2 == 0)
        odd /= 2;
    if (n < 1 || odd == 1)
        return n < 1 ? 0 : 1;
    for (int64_t m = odd; m <= MOST_PALEY && n % m == 0; m *= 2)
        if (m % 4 == 0 && is_prime((int)m - 1))
            return (int)m;
    return 0;
}

bool hadamard_exists(int64_t n)
{
    return paley_order(n) > 0;
}

static void paley_fill(signed char *h, int m)
{
    int p = m - 1;
    for (int i = 0; i < m * m; i++)
        h[i] = -1; /* no square */
    for (int i = 0; i < p; i++)
        for (int x = 1; x < p; x++) /* the rows i and j = i - x^2 differ by a square */
            h[(i + 1) * m + 1 + (i + p - x * x % p) % p] = 1;
    for (int i = 1; i < m; i++) {
        h[i] = 1;
        h[i * m] = -1;
    }
    for (int i = 0; i < m; i++)
        h[i * m + i] = 1;
}

/* row[0..m * size] viewed as [m, size]: times H_m on the left index, then butterflies on the right.
 */
static void rotate_row(double *row, double *tmp, const signed char *paley, int m, int64_t size)
{
    for (int64_t half = 1; half < size; half *= 2)
        for (int64_t at = 0; at < m * size; at += 2 * half)
            for (int64_t i = at; i < at + half; i++) {
                double a = row[i], b = row[i + half];
                row[i] = a + b;
                row[i + half] = a - b;
            }
    for (int j = 0; m > 1 && j < m; j++)
        for (int64_t i = 0; i < size; i++) {
            double sum = 0;
            for (int k = 0; k < m; k++)
                sum += paley[k * m + j] * row[k * size + i];
            tmp[j * size + i] = sum;
        }
    double by = 1 / sqrt((double)(m * size));
    for (int64_t i = 0; i < m * size; i++)
        row[i] = (m > 1 ? tmp[i] : row[i]) * by;
}

typedef struct Rotation {
    int m;
    signed char *paley;
    double *row, *tmp;
} Rotation;

static void rotation_free(Rotation *r)
{
    free(r->paley);
    free(r->row);
    free(r->tmp);
}

static bool rotation_init(Rotation *r, int64_t cols)
{
    *r = (Rotation){.m = paley_order(cols)};
    if (!r->m || cols > LIMIT_DIM)
        return false;
    r->paley = malloc((size_t)(r->m * r->m));
    r->row = malloc((size_t)cols * sizeof(double));
    r->tmp = malloc((size_t)cols * sizeof(double));
    if (r->paley && r->row && r->tmp) {
        paley_fill(r->paley, r->m);
        return true;
    }
    rotation_free(r);
    return false;
}

bool hadamard_rows(const float *src, float *dst, int64_t rows, int64_t cols)
{
    Rotation r;
    if (!rotation_init(&r, cols))
        return false;
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t c = 0; c < cols; c++)
            r.row[c] = src[i * cols + c];
        rotate_row(r.row, r.tmp, r.paley, r.m, cols / r.m);
        for (int64_t c = 0; c < cols; c++)
            dst[i * cols + c] = (float)r.row[c];
    }
    rotation_free(&r);
    return true;
}

bool hadamard_rows_f64(const double *src, double *dst, int64_t rows, int64_t cols)
{
    Rotation r;
    if (!rotation_init(&r, cols))
        return false;
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t c = 0; c < cols; c++)
            r.row[c] = src[i * cols + c];
        rotate_row(r.row, r.tmp, r.paley, r.m, cols / r.m);
        for (int64_t c = 0; c < cols; c++)
            dst[i * cols + c] = r.row[c];
    }
    rotation_free(&r);
    return true;
}
