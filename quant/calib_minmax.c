/* Calibrator minmax: the whole range of the data. */
#include "quant/calib.h"

static void minmax_range(const Histogram *h, double arg, const Scheme *scheme, float *ret_lo,
                         float *ret_hi)
{
    (void)arg;
    (void)scheme;
    *ret_lo = h->lo;
    *ret_hi = h->hi;
}

const Calibrator calib_minmax = {
    .name = "minmax",
    .describe = "the smallest and the largest value of the data",
    .range = minmax_range,
};
