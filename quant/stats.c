/* Statistics of a layer's input: mean and largest magnitude of each column, sum of x x^T. */
#include "base/team.h"
#include "quant/loops.h"
#include "quant/products.h"
#include "quant/quant.h"
#include <stdlib.h>
#include <string.h>

#define COLUMNS 64 /* that a thread takes */

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

typedef struct RowRanges {
    const float *x;
    int64_t cols;
    int hi[PRODUCTS_HELD];
} RowRanges;

static void range_rows(void *user, int64_t begin, int64_t end, int thread)
{
    RowRanges *rows = user;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        int lo = 0;
        loop_range(RANGE_AMAX, rows->x + r * rows->cols, rows->cols, &lo, &rows->hi[r]);
    }
}

/* Finite rows among `num`; their largest magnitude. */
static int finite_rows(const float *x, int num, int64_t cols, const float **ret, float *ret_amax)
{
    RowRanges rows = {.x = x, .cols = cols};
    int largest = 0, found = 0;
    team_run(0, num, TEAM_STEP(cols), range_rows, &rows);
    for (int r = 0; r < num; r++) {
        if (rows.hi[r] >= NUM_INF_BITS)
            continue;
        ret[found++] = x + r * cols;
        largest = rows.hi[r] > largest ? rows.hi[r] : largest;
    }
    *ret_amax = num_float((unsigned)largest);
    return found;
}

static void add_columns(LayerStatsMemory *m, const float *const *x, int num, int64_t begin,
                        int64_t end)
{
    for (int r = 0; r < num; r++)
        for (int64_t c = begin; c < end; c++) {
            float a = num_abs(x[r][c]);
            m->abs_sum[c] += a;
            m->mean_square[c] += (double)a * a;
            m->max_abs[c] = a > m->max_abs[c] ? a : m->max_abs[c];
        }
}

typedef struct ColumnWork {
    LayerStatsMemory *m;
    const float *const *x;
    int num;
} ColumnWork;

static void add_some_columns(void *user, int64_t begin, int64_t end, int thread)
{
    const ColumnWork *w = user;
    (void)thread;
    for (int64_t c = begin; c < end; c += COLUMNS)
        add_columns(w->m, w->x, w->num, c, c + COLUMNS < end ? c + COLUMNS : end);
}

void layer_stats_observe(LayerStats *stats, const float *x, int64_t rows)
{
    LayerStatsMemory *m = stats->memory;
    int64_t cols = stats->seen.cols;
    while (rows > 0) {
        const float *finite[PRODUCTS_HELD];
        float amax;
        int most = PRODUCTS_HELD - m->products.filled, num = rows < most ? (int)rows : most;
        int found = finite_rows(x, num, cols, finite, &amax);
        stats->seen.samples += found;
        ColumnWork work = {m, finite, found};
        team_run(cols > 256 ? 0 : 1, cols, COLUMNS, add_some_columns, &work);
        if (m->hessian)
            products_add(&m->products, finite, found, amax, m->hessian);
        x += num * cols;
        rows -= num;
    }
}

void layer_stats_use(LayerStats *stats, const QuantEngine *engine)
{
    if (stats->memory->hessian)
        products_use(&stats->memory->products, engine);
}

bool layer_stats_finish(LayerStats *stats)
{
    LayerStatsMemory *m = stats->memory;
    int64_t cols = stats->seen.cols;
    double samples = stats->seen.samples ? (double)stats->seen.samples : 1;
    for (int64_t c = 0; c < cols; c++) {
        m->mean_abs[c] = (float)(m->abs_sum[c] / samples);
        m->mean_square[c] /= samples;
    }
    bool ok = !m->hessian || products_finish(&m->products, m->hessian);
    for (int64_t i = 0; m->hessian && i < cols; i++)
        for (int64_t j = i + 1; j < cols; j++)
            m->hessian[i * cols + j] = m->hessian[j * cols + i];
    return ok;
}
