/* Weight quantiser gptq (Frantar et al., arXiv 2210.17323): columns are quantised one after the
 * other, and each column's error is made good in those still to come, as far as the calibration
 * data lets them stand in for it.
 *
 * With the damped Hessian H and H^-1 = U^T U, U upper triangular, column j's error e = (w_j - q_j)
 * / U_jj is taken from each later column k as e * U_jk. U is the inverse of R, where H = R R^T with
 * R upper; turning the order of the columns around makes R a lower Cholesky factor, so everything
 * here runs from the last index to the first.
 *
 * Scales: a group's are taken from its columns as they are when the first one's turn comes; with
 * order=act (columns by falling diagonal of H) and for blocks of several rows, from the original
 * weight, so that groups stay where they are. Columns that calibration never saw are rounded to
 * nearest. All in f64; the same codes for any number of threads. */
#include "base/team.h"
#include "quant/engine.h"
#include "quant/linalg.h"
#include "quant/weights.h"
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define SPAN         128 /* columns between updates of all the rest */
#define DEFAULT_DAMP 0.01

typedef struct Gptq {
    QTensor *q;
    const float *w;     /* [rows, cols] */
    double *inverse;    /* [cols, cols], in turned order */
    int64_t *column;    /* of each turned index */
    bool moving_scales; /* a group's scale is chosen when it begins */
    atomic_bool failed; /* memory was exhausted */
} Gptq;

typedef struct Ranked {
    double value;
    int64_t column;
} Ranked;

/* Falling value, then rising column. */
static int ranked_order(const void *a, const void *b)
{
    const Ranked *x = a, *y = b;
    if (x->value != y->value)
        return x->value > y->value ? -1 : 1;
    return (x->column > y->column) - (x->column < y->column);
}

/* column[n - 1] comes first. */
static bool order_columns(int64_t *column, const double *hessian, int64_t n, bool by_activity)
{
    Ranked *rank = malloc((size_t)n * sizeof *rank);
    if (!rank)
        return false;
    for (int64_t j = 0; j < n; j++)
        rank[j] = (Ranked){hessian[j * n + j], j};
    if (by_activity)
        qsort(rank, (size_t)n, sizeof *rank, ranked_order);
    for (int64_t j = 0; j < n; j++)
        column[n - 1 - j] = rank[j].column;
    free(rank);
    return true;
}

/* The Hessian in turned order, damped; columns without data get a diagonal of their own. */
static void damp_hessian(double *dst, const double *hessian, const int64_t *column, int64_t n,
                         double damp)
{
    double mean = 0;
    for (int64_t j = 0; j < n; j++)
        mean += hessian[j * n + j] / (double)n;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            dst[i * n + j] = hessian[column[i] * n + column[j]];
    for (int64_t j = 0; j < n; j++) {
        double *diagonal = &dst[j * n + j];
        *diagonal = *diagonal == 0 ? (mean > 0 ? mean : 1) : *diagonal + damp * mean;
    }
}

/* The order of columns and the damped Hessian in it, from malloc; NULL: out of memory. */
static double *prepare(Gptq *g, const WeightStats *stats, const WeightArgs *args)
{
    int64_t n = stats->cols;
    double damp = args && args->damp > 0 ? args->damp : DEFAULT_DAMP;
    double *hessian = malloc((size_t)n * (size_t)n * sizeof *hessian);
    g->column = malloc((size_t)n * sizeof *g->column);
    if (!hessian || !g->column ||
        !order_columns(g->column, stats->hessian, n, args && args->act_order)) {
        free(hessian);
        return NULL;
    }
    damp_hessian(hessian, stats->hessian, g->column, n, damp);
    return hessian;
}

/* Tiles --------------------------------------------------------------------------------------- */

typedef struct Tile {
    int64_t row;
    int num_rows;
    double *w;   /* [cols][LINALG_TILE], in turned order */
    double *err; /* [SPAN][LINALG_TILE] */
} Tile;

static void group_begin(const Gptq *g, const Tile *tile, int64_t turned)
{
    QTensor *q = g->q;
    int64_t width = qtensor_block_cols(q), n = q->cols, first = g->column[turned];
    int64_t end = first + width < n ? first + width : n;
    for (int r = 0; r < tile->num_rows; r++) {
        float lo = 0, hi = 0;
        for (int64_t c = first; c < end; c++) { /* not sorted: turned index of c is n - 1 - c */
            float x = (float)tile->w[(n - 1 - c) * LINALG_TILE + r];
            lo = x < lo ? x : lo;
            hi = x > hi ? x : hi;
        }
        int64_t at = (tile->row + r) * q->col_blocks + first / width;
        int32_t zero;
        if (!isfinite(q->scale[at])) /* the block holds a NaN */
            continue;
        cell_of_range(q, lo, hi, &q->scale[at], &zero);
        if (q->zero)
            q->zero[at] = zero;
    }
}

/* Codes of one column of the tile, and its errors over the diagonal. */
static void quantise_column(const Gptq *g, const Tile *tile, int64_t turned, double *err)
{
    QTensor *q = g->q;
    int64_t col = g->column[turned], width = qtensor_block_cols(q);
    int64_t height = qtensor_block_rows(q);
    if (g->moving_scales && col % width == 0)
        group_begin(g, tile, turned);
    for (int r = 0; r < tile->num_rows; r++) {
        int64_t row = tile->row + r, at = row / height * q->col_blocks + col / width;
        Cell cell = cell_create(&q->scheme, q->scale[at], q->zero ? q->zero[at] : 0, q->outer);
        double w = tile->w[turned * LINALG_TILE + r];
        unsigned code = cell_encode(&cell, (float)w);
        qtensor_set_code(q, row, col, code);
        err[r] = (w - cell_decode(&cell, code)) / g->inverse[turned * q->cols + turned];
    }
}

static void quantise_tile(const Gptq *g, const Tile *tile)
{
    int64_t n = g->q->cols;
    for (int64_t j = 0; j < n; j++)
        for (int r = 0; r < tile->num_rows; r++)
            tile->w[j * LINALG_TILE + r] = g->w[(tile->row + r) * n + g->column[j]];
    for (int64_t first = n - 1; first >= 0; first -= SPAN) {
        int64_t last = first >= SPAN ? first - SPAN + 1 : 0;
        for (int64_t i = first; i >= last; i--) {
            double *err = tile->err + (first - i) * LINALG_TILE;
            quantise_column(g, tile, i, err);
            linalg_tile_update(g->inverse, n, i, i, last, i, err, tile->w);
        }
        linalg_tile_update(g->inverse, n, first, last, 0, last, tile->err, tile->w);
    }
}

static bool quantise_rows(const Gptq *g, int64_t row)
{
    int64_t left = g->q->rows - row;
    Tile tile = {.row = row, .num_rows = left < LINALG_TILE ? (int)left : LINALG_TILE};
    tile.w = calloc((size_t)(g->q->cols + SPAN) * LINALG_TILE, sizeof *tile.w);
    if (!tile.w)
        return false;
    tile.err = tile.w + g->q->cols * LINALG_TILE;
    quantise_tile(g, &tile);
    free(tile.w);
    return true;
}

static void quantise_tiles(void *user, int64_t begin, int64_t end, int thread)
{
    Gptq *g = user;
    (void)thread;
    for (int64_t row = begin; row < end; row += LINALG_TILE)
        if (!quantise_rows(g, row))
            g->failed = true;
}

static const char *run_here(Gptq *g, double *hessian)
{
    int64_t n = g->q->cols;
    g->inverse = malloc((size_t)n * (size_t)n * sizeof *g->inverse);
    if (!g->inverse)
        return WEIGHT_NO_MEMORY;
    if (!linalg_cholesky(hessian, n))
        return GPTQ_NOT_POSITIVE;
    linalg_invert_lower(hessian, g->inverse, n);
    team_run(0, g->q->rows, LINALG_TILE, quantise_tiles, g);
    return g->failed ? WEIGHT_NO_MEMORY : NULL;
}

static void set_codes(void *user, int64_t begin, int64_t end, int thread)
{
    const GptqWork *w = user;
    QTensor *q = w->q;
    (void)thread;
    for (int64_t row = begin; row < end; row++)
        for (int64_t col = 0; col < q->cols; col++)
            qtensor_set_code(q, row, col, w->code[col * q->rows + row]);
}

static const char *run_on_engine(Gptq *g, const double *hessian, const QuantEngine *engine)
{
    QTensor *q = g->q;
    GptqWork work = {.q = q,
                     .w = g->w,
                     .hessian = hessian,
                     .column = g->column,
                     .width = qtensor_block_cols(q),
                     .height = qtensor_block_rows(q),
                     .moving_scales = g->moving_scales,
                     .code = malloc((size_t)q->rows * (size_t)q->cols + 1)};
    const char *why = work.code ? engine->gptq(engine->user, &work) : WEIGHT_NO_MEMORY;
    if (!why)
        team_run(0, q->rows, TEAM_STEP(q->cols), set_codes, &work);
    free(work.code);
    return why;
}

static const char *gptq_run(QTensor *q, FormatId src_fmt, const void *src, const WeightStats *stats,
                            const WeightArgs *args)
{
    if (!stats || !stats->hessian)
        return "gptq needs calibration data: a `calibrate` line in the text";
    if (stats->cols != q->cols)
        return "gptq: the calibration data has another width than the weight";
    quantize_rtn(q, src_fmt, src); /* scales of fixed groups, and the outer one */
    Gptq g = {.q = q};
    /* (multiples of one number are all settled before the first column) */
    g.moving_scales = !(args && args->act_order) && q->scheme.block[0] == 1 && q->col_blocks > 1 &&
                      q->scheme.scale_fmt != FMT_I8;
    float *w = weight_to_f32(q, src_fmt, src);
    double *hessian = prepare(&g, stats, args);
    g.w = w;
    const char *why = !w || !hessian         ? WEIGHT_NO_MEMORY
                      : args && args->engine ? run_on_engine(&g, hessian, args->engine)
                                             : run_here(&g, hessian);
    free(w);
    free(hessian);
    free(g.inverse);
    free(g.column);
    return why;
}

static const char *const gptq_args[] = {"order", "damp", NULL};

const WeightQuantiser weight_gptq = {
    .name = "gptq",
    .describe = "each column's rounding error is made good in the columns after it",
    .needs_stats = true,
    .takes_hessian = true,
    .needs_hessian = true,
    .row_by_row = true,
    .arg_names = gptq_args,
    .run = gptq_run,
};
