/* Smoothing (SmoothQuant, arXiv 2211.10438): how much of each input channel's size moves from the
 * activation into the weight. */
#include "quant/quant.h"
#include <math.h>

void columns_amax(FormatId src_fmt, const void *src, int64_t rows, int64_t cols, float *ret)
{
    float part[1024];
    const char *at = src;
    int64_t bytes = (int64_t)format_row_bytes(src_fmt, 1);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c += (int64_t)COUNT_OF(part)) {
            int64_t len = cols - c < (int64_t)COUNT_OF(part) ? cols - c : (int64_t)COUNT_OF(part);
            format_to_f32(src_fmt, at + (r * cols + c) * bytes, part, (uint64_t)len);
            for (int64_t i = 0; i < len; i++) {
                float a = num_abs(part[i]);
                ret[c + i] = a > ret[c + i] ? a : ret[c + i];
            }
        }
}

void smooth_scales(const float *x_amax, const float *w_amax, int64_t cols, double alpha, float *ret)
{
    for (int64_t c = 0; c < cols; c++) {
        double s = pow((double)x_amax[c], alpha) / pow((double)w_amax[c], 1 - alpha);
        bool usable = x_amax[c] > 0 && w_amax[c] > 0 && isfinite(x_amax[c]) && isfinite(w_amax[c]);
        s = s < 1e-5 ? 1e-5 : s > 1e5 ? 1e5 : s;
        ret[c] = usable ? (float)s : 1.0f;
    }
}
