/* Weight quantiser awq (Lin et al., arXiv 2306.00978): input channels that matter are scaled up
 * before quantising. awq_search_scales finds the scales; a pass folds them into this weight and
 * into what produces its input. The quantiser itself then narrows each block's range to where the
 * error of what the block adds to the output is least; without second moments the error weighted by
 * how large each input is. */
#include "base/team.h"
#include "quant/linalg.h"
#include "quant/weights.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define STEPS       20
#define SAMPLE_ROWS 64 /* of the weight, on which scales are compared */
#define SPAN        64
#define STRIP       256 /* SPAN by STRIP elements of H stay in the second cache */

static const char *awq_run(QTensor *q, FormatId src_fmt, const void *src, const WeightStats *stats,
                           const WeightArgs *args)
{
    (void)args;
    const char *why = weight_stats_problem(stats, q->cols);
    if (why)
        return why;
    ClipTarget target = {stats->mean_square, stats->hessian, stats->cols};
    return weight_clip_search(q, src_fmt, src, &target);
}

/* Search of scales ---------------------------------------------------------------------------- */

typedef struct Search {
    const WeightStats *stats;
    QTensor q;             /* of the scaled weight */
    float *w, *scaled;     /* [rows, cols]; the same, scaled */
    double *w_mean;        /* [cols]: mean of |w| over the largest |w| of its block */
    double *off, *product; /* [SAMPLE_ROWS, cols]: errors of the weight; the same times H */
    float *scale;          /* [cols]: being tried */
} Search;

static void search_free(Search *s)
{
    qtensor_free(&s->q);
    free(s->w);
    free(s->scaled);
    free(s->w_mean);
    free(s->off);
    free(s->product);
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
    s->w_mean = calloc((size_t)cols, sizeof *s->w_mean);
    s->off = calloc((size_t)cols, SAMPLE_ROWS * sizeof *s->off);
    s->product = calloc((size_t)cols, SAMPLE_ROWS * sizeof *s->product);
    s->scale = calloc((size_t)cols, sizeof *s->scale);
    return s->scaled && s->w_mean && s->off && s->product && s->scale;
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

typedef struct RowsProduct {
    const Search *s;
    int64_t rows;
} RowsProduct;

/* Columns of -off H, whose strip of H serves all rows. */
static void product_columns(void *user, int64_t begin, int64_t end, int thread)
{
    const RowsProduct *p = user;
    const Search *s = p->s;
    const double *h = s->stats->hessian;
    int64_t n = s->q.cols;
    (void)thread;
    for (int64_t k = 0; k < n; k += SPAN)
        for (int64_t r = 0; r < p->rows; r++)
            linalg_subtract(s->product + r * n + begin, s->off + r * n + k, h + k * n + begin, n,
                            (int)(n - k < SPAN ? n - k : SPAN), end - begin);
}

/* The sum of off H off^T over `num` rows of s->off, or with a diagonal H of the mean magnitudes. */
static double rows_error(const Search *s, int64_t num)
{
    const double *h = s->stats->hessian;
    int64_t n = s->q.cols;
    double error = 0;
    if (!h) {
        for (int64_t i = 0; i < num * n; i++) {
            double x = s->off[i] * s->stats->mean_abs[i % n];
            error += x * x;
        }
        return error;
    }
    memset(s->product, 0, (size_t)(num * n) * sizeof *s->product);
    RowsProduct work = {s, num};
    team_run(0, n, STRIP, product_columns, &work);
    for (int64_t i = 0; i < num * n; i++)
        error -= s->product[i] * s->off[i];
    return error;
}

/* Output error with s->scale, over an even sample of the rows. */
static double search_error(Search *s)
{
    int64_t rows = s->q.rows, cols = s->q.cols;
    int64_t sample = rows < SAMPLE_ROWS ? rows : SAMPLE_ROWS;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            s->scaled[r * cols + c] = s->w[r * cols + c] * s->scale[c];
    quantize_rtn(&s->q, FMT_F32, s->scaled);
    for (int64_t k = 0; k < sample; k++) {
        int64_t row = k * rows / sample;
        for (int64_t c = 0; c < cols; c++)
            s->off[k * cols + c] =
                (double)qtensor_value(&s->q, row, c) / s->scale[c] - s->w[row * cols + c];
    }
    return rows_error(s, sample);
}

const char *awq_search_scales(const Scheme *scheme, FormatId src_fmt, const void *src, int64_t rows,
                              int64_t cols, const WeightStats *stats, float *ret)
{
    const char *why = weight_stats_problem(stats, cols);
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
    .describe =
        "input channels that matter are scaled up, ranges clipped by what they add to the output",
    .needs_stats = true,
    .takes_hessian = true,
    .row_by_row = true,
    .arg_names = no_args,
    .input_scales = awq_search_scales,
    .run = awq_run,
};
