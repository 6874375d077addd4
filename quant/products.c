/* Sums of x x^T: rows are kept in panels of 16 columns, so that both operands of a pair of panels
 * are read in order, and the pair's sums stay in registers over 64 rows.
 *
 * Rows are scaled by a power of two that brings the largest element of those held below 1, so no
 * product overflows, and what underflows is below 2^-126 of the largest. */
#include "quant/products.h"
#include "base/base.h"
#include "base/team.h"
#include "numerics/numerics.h"
#include "quant/engine.h"
#include "quant/versions.h"
#ifdef LOOP_LEVELS
#include <immintrin.h>
#endif
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PANEL 16            /* columns */
#define HELD  PRODUCTS_HELD /* rows of a panel: STRIP + 1 of them stay in the second cache */
#define STRIP 4             /* panels */
#define RUN   64            /* rows that are summed in f32 */
#define SHARE 4             /* columns of one panel that share the reading of the other */

#define WIDTH 8 /* floats in a register of AVX2 */

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

#ifdef LOOP_LEVELS

/* Sums of RUN rows: SHARE columns from *a on with all columns of b, in the registers that AVX2 has.
 */
TARGET_AVX2 static void add_run_avx2(const float *a, const float *b, double *sum)
{
    __m256 low[SHARE], high[SHARE];
    float out[2 * WIDTH];
    for (int c = 0; c < SHARE; c++)
        low[c] = high[c] = _mm256_setzero_ps();
    for (int r = 0; r < RUN; r++, a += PANEL, b += PANEL) {
        __m256 y = _mm256_loadu_ps(b), z = _mm256_loadu_ps(b + WIDTH);
        for (int c = 0; c < SHARE; c++) {
            __m256 x = _mm256_broadcast_ss(a + c);
            low[c] = _mm256_fmadd_ps(x, y, low[c]);
            high[c] = _mm256_fmadd_ps(x, z, high[c]);
        }
    }
    for (int c = 0; c < SHARE; c++) {
        _mm256_storeu_ps(out, low[c]);
        _mm256_storeu_ps(out + WIDTH, high[c]);
        for (int i = 0; i < PANEL; i++)
            sum[c * PANEL + i] += (double)out[i];
    }
}

#endif

/* The same on any machine. */
static void add_run_plain(const float *a, const float *b, double *sum)
{
    float acc[SHARE][PANEL] = {0};
    for (int r = 0; r < RUN; r++, a += PANEL, b += PANEL)
        for (int c = 0; c < SHARE; c++)
            for (int i = 0; i < PANEL; i++)
                acc[c][i] = num_fma(a[c], b[i], acc[c][i]);
    for (int c = 0; c < SHARE; c++)
        for (int i = 0; i < PANEL; i++)
            sum[c * PANEL + i] += (double)acc[c][i];
}

/* sum [PANEL, PANEL] = products of two panels over `rows` rows, whole runs. */
static void pair_sums(const float *a, const float *b, int rows, double *sum)
{
    void (*add_run)(const float *, const float *, double *) = add_run_plain;
#ifdef LOOP_LEVELS
    if (loop_level() >= 2)
        add_run = add_run_avx2;
#endif
    for (int i = 0; i < PANEL * PANEL; i++)
        sum[i] = 0;
    for (int r = 0; r < rows; r += RUN)
        for (int c = 0; c < PANEL; c += SHARE)
            add_run(a + r * PANEL + c, b + r * PANEL, sum + c * PANEL);
}

static void add_pair(const Products *p, int64_t i, int64_t j, int rows, double unit, double *dst)
{
    double sum[PANEL * PANEL];
    int64_t n = p->cols;
    pair_sums(p->panels + i * HELD * PANEL, p->panels + j * HELD * PANEL, rows, sum);
    for (int64_t row = i * PANEL; row < (i + 1) * PANEL && row < n; row++)
        for (int64_t col = j * PANEL; col < (j + 1) * PANEL && col <= row; col++)
            dst[row * n + col] += unit * sum[(row - i * PANEL) * PANEL + (col - j * PANEL)];
}

/* Panels begin.. with all panels up to them: each of those is read once into a near cache. */
static void add_strip(const Products *p, int64_t begin, int64_t panels, int rows, double unit,
                      double *dst)
{
    int64_t end = begin + STRIP < panels ? begin + STRIP : panels;
    for (int64_t j = 0; j < end; j++)
        for (int64_t i = j > begin ? j : begin; i < end; i++)
            add_pair(p, i, j, rows, unit, dst);
}

/* The work on held rows that threads share, by panels or strips of them. */
typedef struct HeldWork {
    Products *p;
    int rows;
    float scale, rest;
    double unit, *sum;
    const float *const *x;
    int num;
} HeldWork;

#define PANELS_AT_ONCE 8

static void scale_panels(void *user, int64_t begin, int64_t end, int thread)
{
    const HeldWork *w = user;
    const Products *p = w->p;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        float *x = p->panels + i * HELD * PANEL;
        for (int k = 0; k < p->filled * PANEL; k++)
            x[k] = x[k] * w->scale * w->rest;
        memset(x + p->filled * PANEL, 0, (size_t)(w->rows - p->filled) * PANEL * sizeof *x);
    }
}

/* The rows held, scaled, in whole runs; returns what undoes the scaling of products. */
static double scale_rows(Products *p, int rows)
{
    int exponent;
    frexpf(p->amax, &exponent);
    HeldWork w = {.p = p,
                  .rows = rows,
                  .scale = ldexpf(1, -exponent / 2),
                  .rest = ldexpf(1, -exponent - -exponent / 2)};
    team_run(0, num_panels(p), PANELS_AT_ONCE, scale_panels, &w);
    return ldexp(1, 2 * exponent);
}

/* Later strips meet more panels, so they come first. */
static void add_strips(void *user, int64_t begin, int64_t end, int thread)
{
    const HeldWork *w = user;
    int64_t panels = num_panels(w->p), last = (panels - 1) / STRIP;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        add_strip(w->p, (last - i) * STRIP, panels, w->rows, w->unit, w->sum);
}

static void flush(Products *p, double *sum)
{
    int rows = (p->filled + RUN - 1) / RUN * RUN;
    if (!p->filled)
        return;
    double unit = scale_rows(p, rows);
    if (p->engine) {
        p->failed = p->failed || !p->engine->moments_add(p->engine->user, p->moments, p->panels,
                                                         rows, HELD, unit);
    } else {
        HeldWork w = {.p = p, .rows = rows, .unit = unit, .sum = sum};
        team_run(0, (num_panels(p) - 1) / STRIP + 1, 1, add_strips, &w);
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

static void hold_panels(void *user, int64_t begin, int64_t end, int thread)
{
    const HeldWork *w = user;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        hold_panel(w->p, i, w->x, w->num);
}

void products_add(Products *p, const float *const *x, int num, float amax, double *sum)
{
    HeldWork w = {.p = p, .x = x, .num = num};
    team_run(0, num_panels(p), PANELS_AT_ONCE, hold_panels, &w);
    p->amax = amax > p->amax ? amax : p->amax;
    p->filled += num;
    if (p->filled == HELD)
        flush(p, sum);
}
