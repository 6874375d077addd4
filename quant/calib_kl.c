/* Calibrator kl (TensorRT's entropy calibration): the limit of |x| at which the distribution of the
 * data and that of its quantised values differ least by Kullback-Leibler divergence.
 *
 * For i bins, from as many as there are levels to all: P is the first i bins, what lies beyond
 * added to the last of them; Q has the first i bins' counts joined into the levels, each level's
 * count spread evenly over those of its bins that are not empty. Both are normalised. The limit is
 * (i + 1/2) bins for the i with the least sum of P log(P / Q). Bin 0 counts as bin 1: exact zeros
 * say nothing about a range. A level count is half the format's codes: 128 for 8 bits. */
#include "quant/calib.h"
#include <math.h>

#define FEWEST_LEVELS 8

/* Spreads the counts of bins 0..num, joined into `levels`; returns their sum. */
static double spread(const uint64_t *count, int num, int levels, double *q)
{
    double all = 0;
    for (int level = 0, begin = 0; level < levels; level++) {
        int end = (int)((int64_t)(level + 1) * num / levels), filled = 0;
        double sum = 0;
        for (int b = begin; b < end; b++) {
            sum += (double)count[b];
            filled += count[b] != 0;
        }
        for (int b = begin; b < end; b++)
            q[b] = count[b] ? sum / filled : 0;
        all += sum;
        begin = end;
    }
    return all;
}

/* Infinite where P has values that Q cannot take. */
static double divergence(const uint64_t *count, int num, int levels, double beyond)
{
    double q[HISTOGRAM_BINS], kl = 0;
    double q_sum = spread(count, num, levels, q), p_sum = q_sum + beyond;
    if (q_sum == 0)
        return INFINITY;
    for (int b = 0; b < num; b++) {
        double p = ((double)count[b] + (b == num - 1 ? beyond : 0)) / p_sum;
        if (p > 0)
            kl += q[b] > 0 ? p * log(p / (q[b] / q_sum)) : INFINITY;
    }
    return kl;
}

static void kl_range(const Histogram *h, double arg, const Scheme *scheme, float *ret_lo,
                     float *ret_hi)
{
    uint64_t count[HISTOGRAM_BINS];
    double width, beyond = 0, best = INFINITY;
    int num = histogram_fold(h, count, &width), found = num;
    int levels = 1 << (format_info[scheme->fmt].bits - 1);
    (void)arg;
    *ret_lo = h->lo;
    *ret_hi = h->hi;
    levels = levels < FEWEST_LEVELS ? FEWEST_LEVELS : levels;
    if (num <= levels)
        return;
    count[0] = count[1];
    for (int i = num; i >= levels; i--) {
        double kl = divergence(count, i, levels, beyond);
        if (kl <= best) { /* of equal ones the narrowest, as the recipe's upward scan finds */
            best = kl;
            found = i;
        }
        beyond += (double)count[i - 1];
    }
    if (found == num)
        return;
    double limit = (found + 0.5) * width;
    *ret_lo = (float)(h->lo < -limit ? -limit : h->lo);
    *ret_hi = (float)(h->hi > limit ? limit : h->hi);
}

const Calibrator calib_kl = {
    .name = "kl",
    .describe = "the limit at which data and quantised data are distributed most alike",
    .range = kl_range,
};
