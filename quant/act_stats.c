/* Statistics of an activation: its histogram, and the extremes and sums of each column. */
#include "quant/calib.h"
#include "quant/loops.h"
#include <stdlib.h>

void act_stats_free(ActStats *stats)
{
    free(stats->lo);
    free(stats->hi);
    free(stats->abs_sum);
    free(stats->square_sum);
    *stats = (ActStats){0};
}

bool act_stats_init(ActStats *stats, int64_t cols)
{
    *stats = (ActStats){.cols = cols};
    if (cols < 1 || cols > INT64_MAX / (int64_t)sizeof(double))
        return false;
    size_t num = (size_t)cols;
    stats->lo = calloc(num, sizeof(float));
    stats->hi = calloc(num, sizeof(float));
    stats->abs_sum = calloc(num, sizeof(double));
    stats->square_sum = calloc(num, sizeof(double));
    if (stats->lo && stats->hi && stats->abs_sum && stats->square_sum)
        return true;
    act_stats_free(stats);
    return false;
}

static void columns_add(ActStats *stats, const float *x)
{
    bool first = stats->rows == 0;
    for (int64_t c = 0; c < stats->cols; c++) {
        stats->lo[c] = first || x[c] < stats->lo[c] ? x[c] : stats->lo[c];
        stats->hi[c] = first || x[c] > stats->hi[c] ? x[c] : stats->hi[c];
        stats->abs_sum[c] += num_abs(x[c]);
        stats->square_sum[c] += (double)x[c] * x[c];
    }
}

void act_stats_observe(ActStats *stats, const float *x, int64_t rows)
{
    int64_t cols = stats->cols, begin = 0; /* of the run of good rows */
    for (int64_t r = 0; r < rows; r++) {
        int lo = 0, hi = 0;
        loop_range(RANGE_AMAX, x + r * cols, cols, &lo, &hi);
        if (hi < NUM_INF_BITS) {
            columns_add(stats, x + r * cols);
            stats->rows++;
            continue;
        }
        histogram_observe(&stats->whole, x + begin * cols, (uint64_t)((r - begin) * cols));
        begin = r + 1;
        stats->bad_rows++;
    }
    histogram_observe(&stats->whole, x + begin * cols, (uint64_t)((rows - begin) * cols));
}

int64_t act_stats_dead(const ActStats *stats)
{
    int64_t dead = 0;
    for (int64_t c = 0; c < stats->cols; c++)
        dead += stats->rows > 0 && stats->lo[c] == 0 && stats->hi[c] == 0;
    return dead;
}
