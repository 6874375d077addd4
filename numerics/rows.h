/* Row reductions of the numbers contract: sums in one fixed order, so that norms and softmax have
 * the same bits for every instruction set, tiling and number of threads. C only; device code sums
 * in the same order with its own loops.
 *
 * The order: NUM_LANES partial sums start at +0; element i is added to partial i % NUM_LANES, with
 * i ascending; then the upper half of the partials is added to the lower half, 512, 256, .. 1. (A
 * thread block of 128 keeps 8 neighbouring partials a thread, and halves across threads first.)
 * Partials that no element touched are +0, and so are neutral: levels without elements are skipped.
 */
#ifndef SINTER_ROWS_H
#define SINTER_ROWS_H

#include "numerics/numerics.h"

#define NUM_LANES 1024

NUM_FN float num_lanes_total(float *lane, int64_t num)
{
    int half = NUM_LANES / 2;
    while (half >= num && half > 0)
        half /= 2;
    for (; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] = lane[i] + lane[i + half];
    return lane[0];
}

/* How many of the lanes a row of num elements uses, rounded up to a power of two. */
NUM_FN int num_lanes_clear(float *lane, int64_t num)
{
    int used = 1;
    while (used < num && used < NUM_LANES)
        used *= 2;
    for (int i = 0; i < used; i++)
        lane[i] = 0.0f;
    return used;
}

/* The loop that all sums share; `term` is an expression of i, added by num_fma(.., .., lane) or +.
 */
#define NUM_ROW_SUM(total, num, step)                        \
    do {                                                     \
        float lane[NUM_LANES];                               \
        num_lanes_clear(lane, num);                          \
        int64_t base = 0;                                    \
        for (; base + NUM_LANES <= (num); base += NUM_LANES) \
            for (int l = 0; l < NUM_LANES; l++)              \
                lane[l] = step(base + l, lane[l]);           \
        for (int l = 0; l < (int)((num)-base); l++)          \
            lane[l] = step(base + l, lane[l]);               \
        total = num_lanes_total(lane, num);                  \
    } while (0)

NUM_FN float num_row_sum(const float *x, int64_t num)
{
    float total;
#define STEP(i, acc) (acc) + x[i]
    NUM_ROW_SUM(total, num, STEP);
#undef STEP
    return total;
}

NUM_FN float num_row_sum_sq(const float *x, float center, int64_t num)
{
    float total;
#define STEP(i, acc) num_fma(x[i] - center, x[i] - center, acc)
    NUM_ROW_SUM(total, num, STEP);
#undef STEP
    return total;
}

/* Largest element; NaN (or the largest other) when the row holds one. */
NUM_FN float num_row_max(const float *x, int64_t num)
{
    int max = num_order_key(x[0]);
    for (int64_t i = 1; i < num; i++) {
        int key = num_order_key(x[i]);
        max = key > max ? key : max;
    }
    return num_order_value(max);
}

/* dst may be x in all three. */

/* (x * 1 / sqrt(mean(x^2) + eps)) * weight */
NUM_FN void num_row_rmsnorm(float *dst, const float *x, const float *weight, float eps, int64_t num)
{
    float mean_sq = num_row_sum_sq(x, 0.0f, num) / (float)num;
    float r = 1.0f / num_sqrt(mean_sq + eps);
    for (int64_t i = 0; i < num; i++)
        dst[i] = x[i] * r * weight[i];
}

/* fma((x - mean) * 1 / sqrt(mean((x - mean)^2) + eps), weight, bias) */
NUM_FN void num_row_layernorm(float *dst, const float *x, const float *weight, const float *bias,
                              float eps, int64_t num)
{
    float mean = num_row_sum(x, num) / (float)num;
    float var = num_row_sum_sq(x, mean, num) / (float)num;
    float r = 1.0f / num_sqrt(var + eps);
    for (int64_t i = 0; i < num; i++)
        dst[i] = num_fma((x[i] - mean) * r, weight[i], bias[i]);
}

/* exp(x - max) / sum. A row that holds a NaN or +inf, or only -inf, becomes NaN. */
NUM_FN void num_row_softmax(float *dst, const float *x, int64_t num)
{
    float max = num_row_max(x, num);
    for (int64_t i = 0; i < num; i++)
        dst[i] = num_exp(x[i] - max);
    float sum = num_row_sum(dst, num);
    for (int64_t i = 0; i < num; i++)
        dst[i] = dst[i] / sum;
}

#endif
