/* The histogram behind the calibrators; see calib.h. */
#include "quant/calib.h"
#include <math.h>

#define MIN_EXPONENT (-160) /* of a bin's width: below it f32 has no neighbours left */
#define KEEP_EXACT   40     /* bits between the largest value and the width: edges stay exact */

double histogram_width(const Histogram *h)
{
    return ldexp(1, h->exponent);
}

static int64_t half(int64_t index) /* rounded down */
{
    return (index - (index & 1)) / 2;
}

/* Twice the width; room is made above, or when `down`, below. */
static void histogram_double(Histogram *h, bool down)
{
    uint64_t merged[HISTOGRAM_BINS] = {0};
    int64_t first = half(h->first) - (down ? HISTOGRAM_BINS / 2 - 1 : 0);
    for (int i = 0; i < HISTOGRAM_BINS; i++)
        merged[half(h->first + i) - first] += h->count[i];
    for (int i = 0; i < HISTOGRAM_BINS; i++)
        h->count[i] = merged[i];
    h->first = first;
    h->exponent++;
}

static void histogram_begin(Histogram *h, double lo, double hi)
{
    double biggest = fabs(lo) > fabs(hi) ? fabs(lo) : fabs(hi);
    h->exponent = hi > lo ? ilogb(hi - lo) - 10 : MIN_EXPONENT;
    if (h->exponent < MIN_EXPONENT)
        h->exponent = MIN_EXPONENT;
    if (biggest > 0 && h->exponent < ilogb(biggest) - KEEP_EXACT)
        h->exponent = ilogb(biggest) - KEEP_EXACT;
    h->first = (int64_t)floor(ldexp(lo, -h->exponent));
}

static void histogram_hold(Histogram *h, float lo, float hi)
{
    if (!h->total)
        histogram_begin(h, lo, hi);
    while (floor(ldexp(lo, -h->exponent)) < (double)h->first)
        histogram_double(h, true);
    while (floor(ldexp(hi, -h->exponent)) >= (double)(h->first + HISTOGRAM_BINS))
        histogram_double(h, false);
}

/* Extremes of the finite elements; returns their number. */
static uint64_t finite_range(const float *x, uint64_t num, float *lo, float *hi)
{
    uint64_t finite = 0;
    for (uint64_t i = 0; i < num; i++) {
        if (num_abs_bits(x[i]) >= NUM_INF_BITS)
            continue;
        *lo = !finite || x[i] < *lo ? x[i] : *lo;
        *hi = !finite || x[i] > *hi ? x[i] : *hi;
        finite++;
    }
    return finite;
}

void histogram_observe(Histogram *h, const float *x, uint64_t num)
{
    float lo = 0, hi = 0;
    uint64_t finite = finite_range(x, num, &lo, &hi);
    if (!finite)
        return;
    histogram_hold(h, lo, hi);
    h->lo = h->total == 0 || lo < h->lo ? lo : h->lo;
    h->hi = h->total == 0 || hi > h->hi ? hi : h->hi;
    double inv = ldexp(1, -h->exponent), first = (double)h->first; /* exact */
    for (uint64_t i = 0; i < num; i++)
        if (num_abs_bits(x[i]) < NUM_INF_BITS)
            h->count[(int)(floor(x[i] * inv) - first)]++;
    h->total += finite;
}

float histogram_quantile(const Histogram *h, double q)
{
    double want = q * (double)h->total, below = 0, width = histogram_width(h);
    for (int i = 0; i < HISTOGRAM_BINS; i++) {
        double here = (double)h->count[i];
        if (here > 0 && below + here >= want) {
            double value = ((double)(h->first + i) + (want - below) / here) * width;
            value = value < h->lo ? h->lo : value;
            return (float)(value > h->hi ? h->hi : value);
        }
        below += here;
    }
    return h->hi;
}

int histogram_fold(const Histogram *h, uint64_t ret[HISTOGRAM_BINS], double *ret_width)
{
    int64_t below = -h->first, above = h->first + HISTOGRAM_BINS;
    int shift = 0, num = 0;
    while ((below > above ? below : above) > (int64_t)HISTOGRAM_BINS << shift)
        shift++;
    for (int i = 0; i < HISTOGRAM_BINS; i++)
        ret[i] = 0;
    for (int i = 0; i < HISTOGRAM_BINS; i++) {
        int64_t index = h->first + i, at = (index < 0 ? -1 - index : index) >> shift;
        ret[at] += h->count[i];
        num = h->count[i] && at >= num ? (int)at + 1 : num;
    }
    *ret_width = ldexp(1, h->exponent + shift);
    return num;
}

double histogram_outside(const Histogram *h, float lo, float hi)
{
    double width = histogram_width(h), outside = 0;
    for (int i = 0; i < HISTOGRAM_BINS; i++) {
        double from = (double)(h->first + i) * width;
        bool below = lo > h->lo && from + width <= lo, above = hi < h->hi && from >= hi;
        outside += below || above ? (double)h->count[i] : 0;
    }
    return h->total ? outside / (double)h->total : 0;
}
