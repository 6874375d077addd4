/* Calibrator percentile p: lo and hi are the (100 - p)th and the pth percentile of the data, from
 * the cumulative counts of its histogram. */
#include "quant/calib.h"

static void percentile_range(const Histogram *h, double percent, const Scheme *scheme,
                             float *ret_lo, float *ret_hi)
{
    (void)scheme;
    *ret_lo = histogram_quantile(h, 1 - percent / 100);
    *ret_hi = histogram_quantile(h, percent / 100);
}

const Calibrator calib_percentile = {
    .name = "percentile",
    .describe = "clips the outermost values on each side, as `percentile 99.9`",
    .has_arg = true,
    .arg_min = 50,
    .arg_max = 100,
    .range = percentile_range,
};
