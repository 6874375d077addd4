/* Weight quantiser awq (Lin et al., arXiv 2306.00978): input channels that matter are scaled up
 * before quantising. awq_search_scales finds the scales; a pass folds them into this weight and
 * into what produces its input. The quantiser itself then narrows each block's range to where the
 * error, weighted by how large each input is, is least. */
#include "quant/weights.h"
#include <math.h>
#include <stdlib.h>

#define STEPS       20
#define SAMPLE_ROWS 64 /* of the weight, for errors under a full Hessian */

/* Mean square of each input: what an error of its column costs. NULL: out of memory. */
static double *column_importance(const WeightStats *stats)
{
    double *importance = malloc((size_t)stats->cols * sizeof *importance);
    for (int64_t c = 0; importance && c < stats->cols; c++)
        importance[c] = stats->hessian
                            ? stats->hessian[c * stats->cols + c] / (double)stats->samples
                            : (double)stats->mean_abs[c] * stats->mean_abs[c];
    return importance;
}

static const char *stats_problem(const WeightStats *stats, int64_t cols)
{
    if (!stats || !stats->mean_abs || stats->samples < 1)
        return "awq needs calibration data: a `calibrate` line in the text";
    if (stats->cols != cols)
        return "awq: the calibration data has another width than the weight";
    return NULL;
}

static const char *awq_run(QTensor *q, FormatId src_fmt, const void *src, const WeightStats *stats,
                           const WeightArgs *args)
{
    (void)args;
    const char *why = stats_problem(stats, q->cols);
    if (why)
        return why;
    double *importance = column_importance(stats);
    if (!importance)
        return WEIGHT_NO_MEMORY;
    why = weight_clip_search(q, src_fmt, src, importance);
    free(importance);
    return why;
}

/* Search of scales --------------------------------------------------------------------------------
 */

typedef struct Search {
    const WeightStats *stats;
    QTensor q;            /* of the scaled weight */
    float *w;             /* [rows, cols] */
    float *scaled, *back; /* the same, scaled; its decoded codes */
    double *w_mean;       /* [cols]: mean of |w| over the largest |w| of its block */
    double *off;          /* [cols]: one row's error */
    float *scale;         /* [cols]: being tried */
} Search;

static void search_free(Search *s)
{
    qtensor_free(&s->q);
    free(s->w);
    free(s->scaled);
    free(s->back);
    free(s->w_mean);
    free(s->off);
    free(s->scale);
}

static bool search_init(Search *s, const Scheme *scheme, FormatId src_fmt, const void *src,
                        int64_t rows, int64_t cols, const WeightStats *stats)
{
    *s = (Search){.stats = stats};
    if (!qtensor_init(&s->q, scheme, rows, cols))
        return false;
    size_t num = (size_t)rows * (size_t)cols;
    s->w = weight_to_f32(&s->q, src_fmt, src);
    s->scaled = s->w ? malloc(num * sizeof *s->scaled) : NULL;
    s->back = s->scaled ? malloc(num * sizeof *s->back) : NULL;
    s->w_mean = calloc((size_t)cols, sizeof *s->w_mean);
    s->off = calloc((size_t)cols, sizeof *s->off);
    s->scale = calloc((size_t)cols, sizeof *s->scale);
    return s->back && s->w_mean && s->off && s->scale;
}

static void search_weight_means(Search *s)
{
    const QTensor *q = &s->q;
    int64_t width = qtensor_block_cols(q);
    for (int64_t r = 0; r < q->rows; r++)
        for (int64_t first = 0; first < q->cols; first += width) {
            int64_t end = first + width < q->cols ? first + width : q->cols;
            const float *w = s->w + r * q->cols;
            double amax = 0;
            for (int64_t c = first; c < end; c++)
                amax = fabs((double)w[c]) > amax ? fabs((double)w[c]) : amax;
            for (int64_t c = first; c < end && amax > 0; c++)
                s->w_mean[c] += fabs((double)w[c]) / amax / (double)q->rows;
        }
}

/* x_mean^r / (w_mean^(1 - r) + 1e-4), brought around 1. Columns without data keep 1. */
static void search_scales(Search *s, double r)
{
    const float *x_mean = s->stats->mean_abs;
    double lo = INFINITY, hi = 0;
    for (int64_t c = 0; c < s->q.cols; c++) {
        double v = pow((double)x_mean[c], r) / (pow(s->w_mean[c], 1 - r) + 1e-4);
        v = v < 1e-4 ? 1e-4 : v;
        s->scale[c] = (float)v;
        if (x_mean[c] > 0) {
            lo = v < lo ? v : lo;
            hi = v > hi ? v : hi;
        }
    }
    double middle = hi > 0 ? sqrt(lo * hi) : 1;
    for (int64_t c = 0; c < s->q.cols; c++)
        s->scale[c] = x_mean[c] > 0 ? (float)(s->scale[c] / middle) : 1.0f;
}

/* off H off^T of the row in s->off, or its diagonal part. */
static double search_row_error(const Search *s)
{
    int64_t n = s->q.cols;
    double error = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!s->stats->hessian) {
            double x = s->off[i] * s->stats->mean_abs[i];
            error += x * x;
            continue;
        }
        double sum = 0;
        for (int64_t j = 0; j < n; j++)
            sum += s->stats->hessian[i * n + j] * s->off[j];
        error += sum * s->off[i];
    }
    return error;
}

/* Output error with s->scale, over all rows or an even sample of them. */
static double search_error(Search *s)
{
    int64_t rows = s->q.rows, cols = s->q.cols;
    int64_t sample = s->stats->hessian && rows > SAMPLE_ROWS ? SAMPLE_ROWS : rows;
    for (int64_t i = 0; i < rows * cols; i++)
        s->scaled[i] = s->w[i] * s->scale[i % cols];
    quantize_rtn(&s->q, FMT_F32, s->scaled);
    qtensor_dequantize(&s->q, s->back);
    double error = 0;
    for (int64_t k = 0; k < sample; k++) {
        int64_t row = k * rows / sample;
        for (int64_t c = 0; c < cols; c++)
            s->off[c] = (double)s->back[row * cols + c] / s->scale[c] - s->w[row * cols + c];
        error += search_row_error(s);
    }
    return error;
}

const char *awq_search_scales(const Scheme *scheme, FormatId src_fmt, const void *src, int64_t rows,
                              int64_t cols, const WeightStats *stats, float *ret)
{
    const char *why = stats_problem(stats, cols);
    if (why)
        return why;
    Search s;
    if (!search_init(&s, scheme, src_fmt, src, rows, cols, stats)) {
        search_free(&s);
        return WEIGHT_NO_MEMORY;
    }
    search_weight_means(&s);
    for (int64_t c = 0; c < cols; c++)
        ret[c] = s.scale[c] = 1;
    double best = search_error(&s);
    for (int step = 0; step < STEPS; step++) {
        search_scales(&s, (double)step / STEPS);
        double error = search_error(&s);
        if (error < best) {
            best = error;
            for (int64_t c = 0; c < cols; c++)
                ret[c] = s.scale[c];
        }
    }
    search_free(&s);
    return NULL;
}

static const char *const no_args[] = {NULL};

const WeightQuantiser weight_awq = {
    .name = "awq",
    .describe = "input channels that matter are scaled up, ranges clipped by their weight",
    .needs_stats = true,
    .arg_names = no_args,
    .run = awq_run,
};
