/* Calibrator mse: the clipping range with the least squared error, the values of the histogram's
 * bins quantised by the scheme itself. Symmetric schemes try 125 limits of |x|, amax * k / 128, k
 * from 128 down to 4; asymmetric ones the same steps for the upper end, then the lower, then the
 * upper again, since both ends share the codes. */
#include "quant/calib.h"
#include "quant/weights.h"

#define STEPS 128
#define LEAST 4
#define TIE   1e-12 /* a gain this small is rounding: the wider range stays */

/* Squared error of the data when its range is lo..hi. */
static double range_error(const Histogram *h, const Scheme *scheme, float lo, float hi)
{
    float scale;
    int32_t zero;
    double width = histogram_width(h), error = 0;
    scheme_params(scheme, lo, hi, &scale, &zero);
    Cell cell = cell_create(scheme, scale, zero, 1);
    for (int i = 0; i < HISTOGRAM_BINS; i++) {
        if (!h->count[i])
            continue;
        double x = ((double)(h->first + i) + 0.5) * width;
        x = x < h->lo ? h->lo : x > h->hi ? h->hi : x;
        double off = x - cell_decode(&cell, cell_encode(&cell, (float)x));
        error += (double)h->count[i] * off * off;
    }
    return error;
}

/* Narrows the ends that are pointed to; NULL: this one stays. */
static void narrow(const Histogram *h, const Scheme *scheme, float *lo, float *hi, bool low,
                   bool high)
{
    float full_lo = *lo, full_hi = *hi;
    double best = range_error(h, scheme, *lo, *hi);
    for (int k = STEPS - 1; k >= LEAST; k--) {
        float share = (float)k / STEPS;
        float try_lo = low ? full_lo * share : *lo, try_hi = high ? full_hi * share : *hi;
        double error = range_error(h, scheme, try_lo, try_hi);
        if (error < best * (1 - TIE)) {
            best = error;
            *lo = try_lo;
            *hi = try_hi;
        }
    }
}

static void mse_range(const Histogram *h, double arg, const Scheme *scheme, float *ret_lo,
                      float *ret_hi)
{
    (void)arg;
    *ret_lo = h->lo < 0 ? h->lo : 0;
    *ret_hi = h->hi > 0 ? h->hi : 0;
    if (scheme->zero == ZERO_NONE) {
        float amax = -*ret_lo > *ret_hi ? -*ret_lo : *ret_hi;
        *ret_lo = -amax;
        *ret_hi = amax;
        narrow(h, scheme, ret_lo, ret_hi, true, true);
        return;
    }
    float full_hi = *ret_hi;
    narrow(h, scheme, ret_lo, ret_hi, false, true);
    narrow(h, scheme, ret_lo, ret_hi, true, false);
    *ret_hi = full_hi;
    narrow(h, scheme, ret_lo, ret_hi, false, true);
}

const Calibrator calib_mse = {
    .name = "mse",
    .describe = "the range whose clipping and rounding errors together are least",
    .range = mse_range,
};
