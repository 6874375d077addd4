/* Weight quantiser imatrix (after llama.cpp's importance matrix): each block's scale is searched so
 * that its weighted squared error is least. An element's weight is how large its input is, the mean
 * square of the column over the calibration data, times sqrt(sigma^2 + w^2), which lets large
 * elements count more; sigma^2 is the mean square of the block.
 *
 * Candidates: the block's range divided into top + k / 10 steps, k = -9 .. 9, top = 2^(bits - 1) -
 * 1; each is rounded, its scale fitted to the codes by weighted least squares, and rounded again.
 */
#include "quant/weights.h"
#include <math.h>
#include <stdlib.h>

#define REACH 9

typedef struct Fit {
    const WeightBlock *block;
    const double *importance;
    double sigma2;
} Fit;

static float fit_value(const Fit *f, int64_t i)
{
    return f->block->w[i / f->block->cols * f->block->pitch + i % f->block->cols];
}

static double fit_weight(const Fit *f, int64_t i, float x)
{
    return f->importance[f->block->col + i % f->block->cols] * sqrt(f->sigma2 + (double)x * x);
}

static double fit_error(const Fit *f, const Cell *cell)
{
    double error = 0;
    for (int64_t i = 0; i < f->block->rows * f->block->cols; i++) {
        float x = fit_value(f, i);
        double off = (double)x - cell_decode(cell, cell_encode(cell, x));
        error += fit_weight(f, i, x) * off * off;
    }
    return error;
}

/* The scale that fits the codes of `cell` best. */
static Cell refit(const QTensor *q, const Fit *f, const Cell *cell, float *scale)
{
    double along = 0, square = 0;
    int scale_fmt = (int)q->scheme.scale_fmt;
    for (int64_t i = 0; i < f->block->rows * f->block->cols; i++) {
        float x = fit_value(f, i);
        double steps = cell_steps(cell, cell_encode(cell, x)), w = fit_weight(f, i, x);
        along += w * x * steps;
        square += w * steps * steps;
    }
    if (!(along > 0 && square > 0) || scale_fmt == FMT_E8M0)
        return *cell;
    *scale = num_scale_round(scale_fmt, (float)(along / square / q->outer));
    *scale = num_scale_finite(scale_fmt, *scale, (float)(cell->qmax - cell->qmin));
    return cell_create(&q->scheme, *scale, cell->zero, q->outer);
}

static void imatrix_block(QTensor *q, const WeightBlock *block, const void *importance)
{
    Fit f = {.block = block, .importance = importance};
    int64_t num = block->rows * block->cols;
    float lo = 0, hi = 0;
    if (!isfinite(q->scale[block->at]))
        return;
    for (int64_t i = 0; i < num; i++) {
        float x = fit_value(&f, i);
        lo = x < lo ? x : lo;
        hi = x > hi ? x : hi;
        f.sigma2 += (double)x * x / (double)num;
    }
    Cell cell =
        cell_create(&q->scheme, q->scale[block->at], q->zero ? q->zero[block->at] : 0, q->outer);
    double best = fit_error(&f, &cell);
    int bits = format_info[q->scheme.fmt].bits;
    double top = bits > 2 ? (double)((1 << (bits - 1)) - 1) : 1;
    for (int k = -REACH; k <= REACH && (lo < 0 || hi > 0); k++) {
        float share = (float)(top / (top + k / 10.0)), scale;
        int32_t zero;
        cell = cell_of_range(q, lo * share, hi * share, &scale, &zero);
        cell = refit(q, &f, &cell, &scale);
        double error = fit_error(&f, &cell);
        if (error < best) {
            best = error;
            q->scale[block->at] = scale;
            if (q->zero)
                q->zero[block->at] = zero;
        }
    }
}

static const char *imatrix_run(QTensor *q, FormatId src_fmt, const void *src,
                               const WeightStats *stats, const WeightArgs *args)
{
    (void)args;
    const char *why = weight_stats_problem(stats, q->cols);
    if (why)
        return why;
    quantize_rtn(q, src_fmt, src);
    float *w = weight_to_f32(q, src_fmt, src);
    if (!w)
        return WEIGHT_NO_MEMORY;
    weight_each_block(q, w, imatrix_block, stats->mean_square);
    free(w);
    return NULL;
}

static const char *const no_args[] = {NULL};

const WeightQuantiser weight_imatrix = {
    .name = "imatrix",
    .describe = "scales searched so that columns with large inputs have small errors",
    .needs_stats = true,
    .row_by_row = true,
    .arg_names = no_args,
    .run = imatrix_run,
};
