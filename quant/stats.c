/* Statistics of a layer's input: mean and largest magnitude of each column, sum of x x^T. */
#include "quant/loops.h"
#include "quant/products.h"
#include "quant/quant.h"
#include <stdlib.h>
#include <string.h>

typedef struct LayerStatsMemory {
    double *hessian, *abs_sum, *mean_square; /* mean_square: the sum before finish */
    Products products;
    float *mean_abs, *max_abs;
    bool hessian_is_lent;
} LayerStatsMemory;

void layer_stats_free(LayerStats *stats)
{
    LayerStatsMemory *m = stats->memory;
    if (m) {
        if (!m->hessian_is_lent)
            free(m->hessian);
        free(m->abs_sum);
        free(m->mean_square);
        products_free(&m->products);
        free(m->mean_abs);
        free(m->max_abs);
        free(m);
    }
    *stats = (LayerStats){0};
}

static bool stats_init(LayerStats *stats, int64_t cols, bool with_hessian, double *lent)
{
    *stats = (LayerStats){.seen.cols = cols};
    uint64_t square;
    if (cols < 1 || !checked_mul((uint64_t)cols, (uint64_t)cols, &square) ||
        square > SIZE_MAX / sizeof(double))
        return false;
    LayerStatsMemory *m = stats->memory = calloc(1, sizeof *m);
    if (!m)
        return false;
    size_t num = (size_t)cols;
    m->abs_sum = calloc(num, sizeof(double));
    m->mean_square = calloc(num, sizeof(double));
    m->mean_abs = calloc(num, sizeof(float));
    m->max_abs = calloc(num, sizeof(float));
    bool ok = m->abs_sum && m->mean_square && m->mean_abs && m->max_abs;
    if (with_hessian) {
        m->hessian_is_lent = lent != NULL;
        m->hessian = lent ? lent : calloc((size_t)square, sizeof(double));
        ok = ok && m->hessian && products_init(&m->products, cols);
    }
    if (!ok) {
        layer_stats_free(stats);
        return false;
    }
    stats->seen.hessian = m->hessian;
    stats->seen.mean_abs = m->mean_abs;
    stats->seen.mean_square = m->mean_square;
    stats->max_abs = m->max_abs;
    return true;
}

bool layer_stats_init(LayerStats *stats, int64_t cols, bool with_hessian)
{
    return stats_init(stats, cols, with_hessian, NULL);
}

bool layer_stats_init_at(LayerStats *stats, int64_t cols, double *hessian)
{
    return stats_init(stats, cols, true, hessian);
}

void layer_stats_observe(LayerStats *stats, const float *x, int64_t rows)
{
    LayerStatsMemory *m = stats->memory;
    int64_t cols = stats->seen.cols;
    for (int64_t r = 0; r < rows; r++, x += cols) {
        int lo = 0, hi = 0;
        loop_range(RANGE_AMAX, x, cols, &lo, &hi);
        if (hi >= NUM_INF_BITS)
            continue;
        stats->seen.samples++;
        for (int64_t c = 0; c < cols; c++) {
            float a = num_abs(x[c]);
            m->abs_sum[c] += a;
            m->mean_square[c] += (double)a * a;
            m->max_abs[c] = a > m->max_abs[c] ? a : m->max_abs[c];
        }
        if (m->hessian)
            products_add(&m->products, x, num_float((unsigned)hi), m->hessian);
    }
}

void layer_stats_finish(LayerStats *stats)
{
    LayerStatsMemory *m = stats->memory;
    int64_t cols = stats->seen.cols;
    double samples = stats->seen.samples ? (double)stats->seen.samples : 1;
    for (int64_t c = 0; c < cols; c++) {
        m->mean_abs[c] = (float)(m->abs_sum[c] / samples);
        m->mean_square[c] /= samples;
    }
    if (m->hessian)
        products_flush(&m->products, m->hessian);
    for (int64_t i = 0; m->hessian && i < cols; i++)
        for (int64_t j = i + 1; j < cols; j++)
            m->hessian[i * cols + j] = m->hessian[j * cols + i];
}
