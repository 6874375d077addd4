/* Smoothing (SmoothQuant, arXiv 2211.10438): how much of each input channel's size moves from the
 * activation into the weight. */
#include "quant/quant.h"
#include <math.h>
#include <stdlib.h>

#define ALPHAS      20
#define SAMPLE_ROWS 64 /* of the weight, on which alphas are compared */

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

/* Search of alpha ------------------------------------------------------------------------------ */

typedef struct Search {
    const SmoothSample *sample;
    const float *w;
    int64_t rows;           /* of the weight */
    QTensor qx, qw;         /* of the scaled operands */
    float *xs, *ws;         /* the scaled operands; then what their codes decode to */
    float *x_amax, *w_amax; /* [cols] */
    float *s;               /* [cols]: being tried */
} Search;

static void search_free(Search *s)
{
    qtensor_free(&s->qx);
    qtensor_free(&s->qw);
    free(s->xs);
    free(s->ws);
    free(s->x_amax);
    free(s->w_amax);
    free(s->s);
}

static bool search_init(Search *s, const Scheme *weight)
{
    const SmoothSample *sample = s->sample;
    size_t cols = (size_t)sample->cols;
    if ((sample->act && !qtensor_init(&s->qx, sample->act, sample->num, sample->cols)) ||
        !qtensor_init(&s->qw, weight, s->rows, sample->cols))
        return false;
    s->xs = calloc((size_t)sample->num * cols + 1, sizeof(float));
    s->ws = calloc((size_t)s->rows * cols + 1, sizeof(float));
    s->x_amax = calloc(cols, sizeof(float));
    s->w_amax = calloc(cols, sizeof(float));
    s->s = calloc(cols, sizeof(float));
    if (!s->xs || !s->ws || !s->x_amax || !s->w_amax || !s->s)
        return false;
    for (size_t c = 0; c < cols; c++)
        s->x_amax[c] = -sample->lo[c] > sample->hi[c] ? -sample->lo[c] : sample->hi[c];
    columns_amax(FMT_F32, s->w, s->rows, sample->cols, s->w_amax);
    return true;
}

/* The scaled activation, quantised and decoded, in s->xs. */
static void quantise_sample(Search *s)
{
    const SmoothSample *sample = s->sample;
    float lo = 0, hi = 0;
    for (int64_t i = 0; i < sample->num * sample->cols; i++)
        s->xs[i] = sample->x[i] / s->s[i % sample->cols];
    if (!sample->act)
        return;
    if (!sample->is_static) {
        quantize_rtn(&s->qx, FMT_F32, s->xs);
        qtensor_dequantize(&s->qx, s->xs);
        return;
    }
    for (int64_t c = 0; c < sample->cols; c++) {
        lo = sample->lo[c] / s->s[c] < lo ? sample->lo[c] / s->s[c] : lo;
        hi = sample->hi[c] / s->s[c] > hi ? sample->hi[c] / s->s[c] : hi;
    }
    float scale;
    int32_t zero;
    scheme_params(sample->act, lo, hi, &scale, &zero);
    for (int64_t i = 0; i < s->qx.row_blocks * s->qx.col_blocks; i++) {
        s->qx.scale[i] = scale;
        if (s->qx.zero)
            s->qx.zero[i] = zero;
    }
    s->qx.outer = 1;
    quantize_static(&s->qx, FMT_F32, s->xs);
    qtensor_dequantize(&s->qx, s->xs);
}

/* Squared error of the outputs of an even sample of the weight's rows. */
static double search_error(Search *s, double alpha)
{
    const SmoothSample *sample = s->sample;
    int64_t cols = sample->cols, most = s->rows < SAMPLE_ROWS ? s->rows : SAMPLE_ROWS;
    double error = 0;
    smooth_scales(s->x_amax, s->w_amax, cols, alpha, s->s);
    quantise_sample(s);
    for (int64_t i = 0; i < s->rows * cols; i++)
        s->ws[i] = s->w[i] * s->s[i % cols];
    quantize_rtn(&s->qw, FMT_F32, s->ws);
    qtensor_dequantize(&s->qw, s->ws);
    for (int64_t k = 0; k < most; k++) {
        const float *w = s->w + k * s->rows / most * cols, *back = s->ws + (w - s->w);
        for (int64_t r = 0; r < sample->num; r++) {
            const float *x = sample->x + r * cols, *xs = s->xs + r * cols;
            double off = 0;
            for (int64_t c = 0; c < cols; c++)
                off += (double)xs[c] * back[c] - (double)x[c] * w[c];
            error += off * off;
        }
    }
    return error;
}

const char *smooth_search_alpha(const SmoothSample *sample, const Scheme *weight, const float *w,
                                int64_t rows, double *ret_alpha)
{
    Search s = {.sample = sample, .w = w, .rows = rows};
    *ret_alpha = 0.5;
    if (sample->num < 1)
        return "calibration saw no usable row at this layer's input";
    if (!search_init(&s, weight)) {
        search_free(&s);
        return "memory is exhausted";
    }
    double best = search_error(&s, 0.5);
    for (int k = 1; k <= ALPHAS; k++) { /* 9/20, 11/20, 8/20, 12/20, .. */
        int at = k % 2 ? ALPHAS / 2 - (k + 1) / 2 : ALPHAS / 2 + k / 2;
        double error = search_error(&s, (double)at / ALPHAS);
        if (error < best) {
            best = error;
            *ret_alpha = (double)at / ALPHAS;
        }
    }
    search_free(&s);
    return NULL;
}
