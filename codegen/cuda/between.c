/* codegen/cuda/between: numbers of rows that were not measured of a product that was under others.
 * A candidate takes there what the cost model says, times what it took over what the model said
 * under the nearest sizes below and above, by the logarithm of the rows between them; beyond the
 * last that was measured by less the farther it is, and four times as far nothing (at 128 rows the
 * errors at 1,024 took a tile that shares out K for 30 us, which took 43: the model had said 41);
 * one that was measured under neither, as others of its tile. Where none of these was, the least of
 * many predictions would be one that errs most: it takes what all took, and the deviation of their
 * errors more. Few rows have tiles of as many rows, which others tell nothing of. */
#include "codegen/cuda/family.h"

#include <math.h>

#define MOST_OF_ONE_TILE 64 /* rows */
#define FAR_TIMES        4  /* as many or as few rows: their errors are others */

/* Sizes around one, and layouts of all tensors under them. */
typedef struct Around {
    int64_t rows[2]; /* 0: there is none */
    PlanLayout *layout[2];
} Around;

/* (A tensor that has as many rows for another reason moves the prediction little.) */
static PlanLayout *layouts_under(const CudaCandidates *c, int64_t rows)
{
    int num = c->like.plan->num_tensors;
    PlanLayout *ret = ARENA_NEW_ARRAY(c->arena, PlanLayout, (size_t)num + 1);
    for (int i = 0; i < num; i++) {
        ret[i] = c->like.layout[i];
        ret[i].rows = ret[i].rows == c->rows ? rows : ret[i].rows;
    }
    return ret;
}

/* What an error under one size alone counts. */
static double error_beyond(double error, int64_t size, int64_t rows)
{
    double way = fabs(log((double)rows / (double)size)) / log(FAR_TIMES);
    return way < 1 ? exp((1 - way) * log(error)) : 1;
}

/* What a candidate takes over what the model says; 0: it was measured under neither size. */
static double error_between(const CudaCandidates *c, const CudaCandidate *at,
                            const Timings *timings, const Around *around)
{
    const int64_t *size = around->rows;
    double error[2] = {0};
    TimingSource source;
    for (int i = 0; i < 2; i++) {
        const TimingRow *row =
            size[i] ? timings_find(timings, c->problem, size[i], at->text, &source) : NULL;
        CudaKernel under = at->kernel;
        under.layout = around->layout[i];
        if (row && row->us > 0)
            error[i] = row->us / cuda_cost(&under);
    }
    if (error[0] <= 0 && error[1] <= 0)
        return 0;
    if (error[0] <= 0 || error[1] <= 0)
        return error_beyond(error[0] > 0 ? error[0] : error[1], size[error[0] <= 0], c->rows);
    double way = log((double)c->rows / (double)size[0]) / log((double)size[1] / (double)size[0]);
    return exp((1 - way) * log(error[0]) + way * log(error[1]));
}

/* The mean error of those that were measured, of a tile as this one's alone if `like`, times so
 * many deviations from it; 0: none was. */
static double mean_error(const CudaCandidates *c, const double *error, const CudaKernel *like,
                         int deviations)
{
    double sum = 0, squares = 0;
    int num = 0;
    for (int i = 0; i < c->list.num; i++)
        if (error[i] > 0 && (!like || cuda_same_tile(&c->list.elem[i].kernel, like))) {
            sum += log(error[i]);
            squares += log(error[i]) * log(error[i]);
            num++;
        }
    if (!num)
        return 0;
    double mean = sum / num, variance = squares / num - mean * mean;
    return exp(mean + deviations * sqrt(variance > 0 ? variance : 0));
}

void cuda_scale_between(CudaCandidates *c, const Timings *timings)
{
    Around around = {0};
    if (c->rows <= MOST_OF_ONE_TILE || !timings_around(timings, c->problem, c->rows, around.rows))
        return;
    double *error = ARENA_NEW_ARRAY(c->arena, double, (size_t)c->list.num + 1);
    for (int i = 0; i < 2; i++)
        if (around.rows[i])
            around.layout[i] = layouts_under(c, around.rows[i]);
    for (int i = 0; i < c->list.num; i++)
        if (!c->list.elem[i].reason)
            error[i] = error_between(c, &c->list.elem[i], timings, &around);
    double all = mean_error(c, error, NULL, 1);
    for (int i = 0; i < c->list.num && all > 0; i++) {
        CudaCandidate *at = &c->list.elem[i];
        if (at->reason)
            continue;
        double own = error[i] > 0 ? error[i] : mean_error(c, error, &at->kernel, 0);
        at->us = at->predicted * (own > 0 ? own : all);
    }
}
