/* Sums of x x^T: rows are kept in panels of 16 columns, so that both operands of a pair of panels
 * are read in order, and the pair's sums stay in registers over 64 rows.
 *
 * Rows are scaled by a power of two that brings the largest element of those held below 1, so no
 * product overflows, and what underflows is below 2^-126 of the largest. */
#include "quant/products.h"
#include "base/base.h"
#include "numerics/numerics.h"
#include "quant/engine.h"
#include "quant/versions.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PANEL 16            /* columns */
#define HELD  PRODUCTS_HELD /* rows of a panel: two of them stay in the second cache */
#define RUN   64            /* rows that are summed in f32 */
#define SHARE 4             /* columns of one panel that share the reading of the other */

#define PRAGMA(text) _Pragma(#text)
#ifdef _OPENMP
#define PARALLEL_DYNAMIC PRAGMA(omp parallel for schedule(dynamic) if (panels > 8))
#else
#define PARALLEL_DYNAMIC
#endif

/* What AVX2 has a register for: wider ones would be split through memory. */
#define WIDTH 8
typedef float Lanes __attribute__((vector_size(WIDTH * sizeof(float)), aligned(4)));

static int64_t num_panels(const Products *p)
{
    return (p->cols + PANEL - 1) / PANEL;
}

bool products_init(Products *p, int64_t cols)
{
    *p = (Products){.cols = cols};
    uint64_t num;
    if (cols < 1 || cols > INT64_MAX - PANEL ||
        !checked_mul((uint64_t)num_panels(p), PANEL * HELD * sizeof(float), &num) || num > SIZE_MAX)
        return false;
    p->panels = calloc((size_t)num, 1);
    return p->panels != NULL;
}

void products_use(Products *p, const QuantEngine *engine)
{
    p->moments = engine ? engine->moments_begin(engine->user, p->cols) : NULL;
    p->engine = p->moments ? engine : NULL;
}

void products_free(Products *p)
{
    if (p->engine)
        p->engine->moments_end(p->engine->user, p->moments, NULL);
    free(p->panels);
    *p = (Products){0};
}

/* Sums of RUN rows: columns first..first + SHARE of a with all columns of b. */
NUM_FN void add_run(const float *a, const float *b, double *sum)
{
    Lanes low[SHARE] = {0}, high[SHARE] = {0};
    for (int r = 0; r < RUN; r++, a += PANEL, b += PANEL) {
        Lanes y, z;
        memcpy(&y, b, sizeof y);
        memcpy(&z, b + WIDTH, sizeof z);
        for (int c = 0; c < SHARE; c++) {
            low[c] += a[c] * y;
            high[c] += a[c] * z;
        }
    }
    for (int c = 0; c < SHARE; c++)
        for (int i = 0; i < WIDTH; i++) {
            sum[c * PANEL + i] += (double)low[c][i];
            sum[c * PANEL + WIDTH + i] += (double)high[c][i];
        }
}

/* sum [PANEL, PANEL] = products of two panels over `rows` rows, whole runs. */
static void pair_sums(const float *a, const float *b, int rows, double *sum);

NUM_FN void pair_sums_body(const float *a, const float *b, int rows, double *sum)
{
    for (int i = 0; i < PANEL * PANEL; i++)
        sum[i] = 0;
    for (int r = 0; r < rows; r += RUN)
        for (int c = 0; c < PANEL; c += SHARE)
            add_run(a + r * PANEL + c, b + r * PANEL, sum + c * PANEL);
}
LOOP_VERSIONS(pair_sums, (const float *a, const float *b, int rows, double *sum), (a, b, rows, sum))

static void add_pair(const Products *p, int64_t i, int64_t j, int rows, double unit, double *dst)
{
    double sum[PANEL * PANEL];
    int64_t n = p->cols;
    pair_sums(p->panels + i * HELD * PANEL, p->panels + j * HELD * PANEL, rows, sum);
    for (int64_t row = i * PANEL; row < (i + 1) * PANEL && row < n; row++)
        for (int64_t col = j * PANEL; col < (j + 1) * PANEL && col <= row; col++)
            dst[row * n + col] += unit * sum[(row - i * PANEL) * PANEL + (col - j * PANEL)];
}

/* The rows held, scaled, in whole runs; returns what undoes the scaling of products. */
static double scale_rows(Products *p, int rows)
{
    int64_t panels = num_panels(p);
    int exponent;
    frexpf(p->amax, &exponent);
    float scale = ldexpf(1, -exponent / 2), rest = ldexpf(1, -exponent - -exponent / 2);
    PARALLEL_DYNAMIC
    for (int64_t i = 0; i < panels; i++) {
        float *x = p->panels + i * HELD * PANEL;
        for (int k = 0; k < p->filled * PANEL; k++)
            x[k] = x[k] * scale * rest;
        memset(x + p->filled * PANEL, 0, (size_t)(rows - p->filled) * PANEL * sizeof *x);
    }
    return ldexp(1, 2 * exponent);
}

static void flush(Products *p, double *sum)
{
    int64_t panels = num_panels(p);
    int rows = (p->filled + RUN - 1) / RUN * RUN;
    if (!p->filled)
        return;
    double unit = scale_rows(p, rows);
    if (p->engine) {
        p->failed = p->failed || !p->engine->moments_add(p->engine->user, p->moments, p->panels,
                                                         rows, HELD, unit);
    } else {
        PARALLEL_DYNAMIC
        for (int64_t i = panels - 1; i >= 0; i--)
            for (int64_t j = 0; j <= i; j++)
                add_pair(p, i, j, rows, unit, sum);
    }
    p->filled = 0;
    p->amax = 0;
}

bool products_finish(Products *p, double *sum)
{
    flush(p, sum);
    if (p->engine) {
        bool ok = p->engine->moments_end(p->engine->user, p->moments, p->failed ? NULL : sum);
        p->failed = p->failed || !ok;
        p->engine = NULL;
        p->moments = NULL;
    }
    return !p->failed;
}

/* Columns of panel i of some rows. */
static void hold_panel(Products *p, int64_t i, const float *const *x, int num)
{
    float *to = p->panels + (i * HELD + p->filled) * PANEL;
    int64_t left = p->cols - i * PANEL, width = left < PANEL ? left : PANEL;
    for (int r = 0; r < num; r++, to += PANEL)
        memcpy(to, x[r] + i * PANEL, (size_t)width * sizeof *to);
}

void products_add(Products *p, const float *const *x, int num, float amax, double *sum)
{
    int64_t panels = num_panels(p);
    PARALLEL_DYNAMIC
    for (int64_t i = 0; i < panels; i++)
        hold_panel(p, i, x, num);
    p->amax = amax > p->amax ? amax : p->amax;
    p->filled += num;
    if (p->filled == HELD)
        flush(p, sum);
}
