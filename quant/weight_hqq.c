/* Weight quantiser hqq (Badri and Shaji, half-quadratic quantisation): no data; each block's scale
 * and zero point are moved so that the sum of the square roots of the errors falls, which forgives
 * the few large errors of outliers.
 *
 * Each round: codes from the current scale; the error e of each element, in steps, is shrunk to
 * max(|e| - 1 / (beta sqrt|e|), 0), the part given up as an outlier's; scale (and zero point) are
 * fitted to the rest by least squares. Rounds go on while the error falls. Unlike the paper, errors
 * are in steps, so that the weight's unit does not matter, the scale is fitted too, and zero points
 * are integers. */
#include "quant/weights.h"
#include <math.h>
#include <stdlib.h>

#define ROUNDS      20
#define BETA        10.0
#define BETA_GROWTH 1.01

static float block_value(const WeightBlock *block, int64_t i)
{
    return block->w[i / block->cols * block->pitch + i % block->cols];
}

static double block_error(const WeightBlock *block, const Cell *cell)
{
    double error = 0;
    for (int64_t i = 0; i < block->rows * block->cols; i++) {
        float x = block_value(block, i);
        error += sqrt(fabs((double)x - cell_decode(cell, cell_encode(cell, x))));
    }
    return error;
}

/* x in units of the scale, without the part of its error that is given up. */
static double fitted_part(const Cell *cell, float x, double steps, double beta)
{
    double in_steps = (double)x / cell->scale, off = in_steps - steps, size = fabs(off);
    double given_up = size > 0 ? size - 1 / (beta * sqrt(size)) : 0;
    return given_up > 0 ? in_steps - copysign(given_up, off) : in_steps;
}

/* One round: the cell that fits the codes of `cell` best. */
static Cell fit_cell(const QTensor *q, const WeightBlock *block, const Cell *cell, double beta,
                     float *ret_scale)
{
    double to_zero = 0, along = 0, square = 0;
    int64_t num = block->rows * block->cols;
    int zero = cell->zero;
    for (int64_t i = 0; i < num && q->zero; i++) {
        float x = block_value(block, i);
        double steps = cell_steps(cell, cell_encode(cell, x));
        to_zero += steps + cell->zero - fitted_part(cell, x, steps, beta);
    }
    if (q->zero) {
        double mean = rint(to_zero / (double)num);
        mean = mean < cell->qmin ? cell->qmin : mean;
        zero = (int)(mean > cell->qmax ? cell->qmax : mean);
    }
    for (int64_t i = 0; i < num; i++) {
        float x = block_value(block, i);
        double steps = cell_steps(cell, cell_encode(cell, x));
        double fit = fitted_part(cell, x, steps, beta), moved = steps + cell->zero - zero;
        along += fit * moved;
        square += moved * moved;
    }
    double scale = square > 0 && along > 0 ? cell->scale * (along / square) : cell->scale;
    int scale_fmt = (int)q->scheme.scale_fmt;
    *ret_scale = num_scale_round(scale_fmt, (float)(scale / q->outer));
    *ret_scale = num_scale_finite(scale_fmt, *ret_scale, (float)(cell->qmax - cell->qmin));
    return cell_create(&q->scheme, *ret_scale, zero, q->outer);
}

static void hqq_block(QTensor *q, const WeightBlock *block, const void *user)
{
    (void)user;
    float scale = q->scale[block->at];
    Cell cell = cell_create(&q->scheme, scale, q->zero ? q->zero[block->at] : 0, q->outer);
    if (!isfinite(scale))
        return;
    double best = block_error(block, &cell), beta = BETA;
    for (int round = 0; round < ROUNDS && best > 0; round++, beta *= BETA_GROWTH) {
        cell = fit_cell(q, block, &cell, beta, &scale);
        double error = block_error(block, &cell);
        if (!(error < best))
            break;
        best = error;
        q->scale[block->at] = scale;
        if (q->zero)
            q->zero[block->at] = cell.zero;
    }
}

static const char *hqq_run(QTensor *q, FormatId src_fmt, const void *src, const WeightStats *stats,
                           const WeightArgs *args)
{
    (void)stats;
    (void)args;
    quantize_rtn(q, src_fmt, src);
    float *w = weight_to_f32(q, src_fmt, src);
    if (!w)
        return WEIGHT_NO_MEMORY;
    if (q->scheme.scale_fmt != FMT_E8M0) /* powers of two leave nothing to fit */
        weight_each_block(q, w, hqq_block, NULL);
    free(w);
    return NULL;
}

static const char *const no_args[] = {NULL};

const WeightQuantiser weight_hqq = {
    .name = "hqq",
    .describe = "fits each block's scale and zero point to all but its outliers, without data",
    .row_by_row = true,
    .arg_names = no_args,
    .run = hqq_run,
};
