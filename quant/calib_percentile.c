/* Calibrator percentile p: lo and hi are the (100 - p)th and the pth percentile of the data, from
 * the cumulative counts of a histogram with 2048 bins. A bin's width is a power of two and its
 * edges are multiples of it; when a value lies outside, the bins merge in pairs until it fits, so
 * no count is ever placed again by guess. Elements that are not finite are skipped. */
#include "quant/calib.h"
#include "quant/loops.h"
#include <math.h>
#include <stdlib.h>

#define NUM_BINS     2048
#define MIN_EXPONENT (-160) /* of a bin's width: below it f32 has no neighbours left */

struct CalibState {
    double percent;
    uint64_t count[NUM_BINS];
    uint64_t total;
    double start, width; /* of bin 0; width 0: nothing seen yet */
    float lo, hi;        /* exact extremes */
};

static CalibState *percentile_create(double arg)
{
    CalibState *state = calloc(1, sizeof *state);
    if (state)
        state->percent = arg;
    return state;
}

/* Twice the width; bin 0 keeps its left edge, or when `down`, the last bin its right edge. */
static void histogram_double(CalibState *h, bool down)
{
    uint64_t merged[NUM_BINS] = {0};
    for (int i = 0; i < NUM_BINS / 2; i++)
        merged[i + (down ? NUM_BINS / 2 : 0)] = h->count[2 * i] + h->count[2 * i + 1];
    for (int i = 0; i < NUM_BINS; i++)
        h->count[i] = merged[i];
    if (down)
        h->start -= NUM_BINS * h->width;
    h->width *= 2;
}

static void histogram_hold(CalibState *h, float lo, float hi)
{
    if (h->width == 0) {
        double range = (double)hi - lo;
        int exponent = range > 0 ? ilogb(range) - 10 : MIN_EXPONENT;
        h->width = ldexp(1, exponent < MIN_EXPONENT ? MIN_EXPONENT : exponent);
        double biggest = fabs((double)lo) > fabs((double)hi) ? fabs((double)lo) : fabs((double)hi);
        /* keep edges exact in double */
        if (biggest > 0 && h->width < ldexp(1, ilogb(biggest) - 40))
            h->width = ldexp(1, ilogb(biggest) - 40);
        h->start = floor(lo / h->width) * h->width;
    }
    while (lo < h->start)
        histogram_double(h, true);
    while (hi >= h->start + NUM_BINS * h->width)
        histogram_double(h, false);
}

/* Extremes of the finite elements of a part; false when it has none. */
static bool finite_range(const float *x, uint64_t num, float *lo, float *hi)
{
    bool seen = false;
    *lo = *hi = 0;
    for (uint64_t i = 0; i < num; i++) {
        if (num_abs_bits(x[i]) >= NUM_INF_BITS)
            continue;
        *lo = !seen || x[i] < *lo ? x[i] : *lo;
        *hi = !seen || x[i] > *hi ? x[i] : *hi;
        seen = true;
    }
    return seen;
}

static bool percentile_observe(CalibState *h, const float *x, uint64_t num)
{
    float lo, hi;
    if (!finite_range(x, num, &lo, &hi))
        return true;
    h->lo = h->total == 0 || lo < h->lo ? lo : h->lo;
    h->hi = h->total == 0 || hi > h->hi ? hi : h->hi;
    histogram_hold(h, lo, hi);
    double inv = 1 / h->width; /* exact */
    for (uint64_t i = 0; i < num; i++) {
        if (num_abs_bits(x[i]) >= NUM_INF_BITS)
            continue;
        h->count[(int)((x[i] - h->start) * inv)]++;
        h->total++;
    }
    return true;
}

/* The value below which a share q of the data lies: linear inside its bin. */
static float histogram_quantile(const CalibState *h, double q)
{
    double want = q * (double)h->total, below = 0;
    for (int i = 0; i < NUM_BINS; i++) {
        double here = (double)h->count[i];
        if (here > 0 && below + here >= want) {
            double value = h->start + (i + (want - below) / here) * h->width;
            value = value < h->lo ? h->lo : value;
            return (float)(value > h->hi ? h->hi : value);
        }
        below += here;
    }
    return h->hi;
}

static void percentile_range(const CalibState *h, float *ret_lo, float *ret_hi)
{
    *ret_lo = histogram_quantile(h, 1 - h->percent / 100);
    *ret_hi = histogram_quantile(h, h->percent / 100);
}

static void percentile_destroy(CalibState *h)
{
    free(h);
}

const Calibrator calib_percentile = {
    .name = "percentile",
    .describe = "clips the outermost values on each side, as `percentile 99.9`",
    .has_arg = true,
    .arg_min = 50,
    .arg_max = 100,
    .create = percentile_create,
    .observe = percentile_observe,
    .range = percentile_range,
    .destroy = percentile_destroy,
};
