/* Measures of error; see metrics.h. All in double precision, in the order of the elements. */
#include "quant/metrics.h"
#include <math.h>

typedef struct Sums {
    double dot, got2, want2, error2, error;
} Sums;

static inline void add(Distance *d, Sums *s, double got, double want, double atol, double rtol)
{
    bool both_nan = isnan(got) && isnan(want);
    double error = both_nan || got == want ? 0 : fabs(got - want);
    if (isnan(error))
        error = INFINITY;
    double over = error - atol - rtol * fabs(want);
    d->max_abs = error > d->max_abs ? error : d->max_abs;
    d->worst = !(over <= d->worst) ? over : d->worst;
    s->error += error;
    s->error2 += error * error;
    if (both_nan)
        return;
    s->dot += got * want;
    s->got2 += got * got;
    s->want2 += want * want;
}

/* One NaN, without the sign that processors give theirs, which would be printed. */
static double plain_nan(double x)
{
    return isnan(x) ? (double)NAN : x;
}

static void finish(Distance *d, const Sums *s)
{
    d->mean_abs = d->num ? s->error / (double)d->num : 0;
    d->cosine =
        s->got2 == 0 && s->want2 == 0 ? 1 : plain_nan(s->dot / (sqrt(s->got2) * sqrt(s->want2)));
    d->noise = s->error2 == 0 ? 0 : plain_nan(s->error2 / s->want2);
    d->sqnr = s->error2 == 0 ? INFINITY : plain_nan(10 * log10(s->want2 / s->error2));
}

Distance distance_measure(const double *got, const double *want, uint64_t num, double atol,
                          double rtol)
{
    Distance d = {.num = num, .worst = -INFINITY};
    Sums s = {0};
    for (uint64_t i = 0; i < num; i++)
        add(&d, &s, got[i], want[i], atol, rtol);
    finish(&d, &s);
    return d;
}

Distance distance_of_floats(const float *got, const float *want, uint64_t num)
{
    Distance d = {.num = num, .worst = -INFINITY};
    Sums s = {0};
    for (uint64_t i = 0; i < num; i++)
        add(&d, &s, (double)got[i], (double)want[i], 0, 0);
    finish(&d, &s);
    return d;
}

/* log of the sum of exp, which is what softmax divides by. */
static double log_sum(const double *row, int64_t cols)
{
    double most = -INFINITY, sum = 0;
    for (int64_t c = 0; c < cols; c++)
        most = row[c] > most ? row[c] : most;
    for (int64_t c = 0; c < cols; c++)
        sum += exp(row[c] - most);
    return most + log(sum);
}

double logits_divergence(const double *got, const double *want, int64_t rows, int64_t cols)
{
    double sum = 0;
    for (int64_t r = 0; r < rows; r++) {
        const double *p = want + r * cols, *q = got + r * cols;
        double of_p = log_sum(p, cols), of_q = log_sum(q, cols);
        if (isnan(of_p) || isnan(of_q)) { /* no softmax is one: no error where neither has one */
            sum += isnan(of_p) && isnan(of_q) ? 0 : INFINITY;
            continue;
        }
        for (int64_t c = 0; c < cols; c++) {
            double log_p = p[c] - of_p;
            if (exp(log_p) > 0)
                sum += exp(log_p) * (log_p - (q[c] - of_q));
        }
    }
    return rows ? sum / (double)rows : 0;
}

int64_t row_largest(const double *row, int64_t cols)
{
    int64_t best = -1;
    double most = -INFINITY;
    for (int64_t c = 0; c < cols; c++)
        if (row[c] > most || (best < 0 && row[c] == most)) {
            most = row[c];
            best = c;
        }
    return best;
}

double logits_accuracy(const double *logits, const int64_t *labels, int64_t rows, int64_t cols)
{
    int64_t right = 0;
    for (int64_t r = 0; r < rows; r++)
        right += row_largest(logits + r * cols, cols) == labels[r];
    return rows ? (double)right / (double)rows : 0;
}

double logits_agreement(const double *a, const double *b, int64_t rows, int64_t cols)
{
    int64_t same = 0;
    for (int64_t r = 0; r < rows; r++)
        same += row_largest(a + r * cols, cols) == row_largest(b + r * cols, cols);
    return rows ? (double)same / (double)rows : 0;
}

double clip_share(const double *x, uint64_t num, double lo, double hi)
{
    uint64_t seen = 0, clipped = 0;
    for (uint64_t i = 0; i < num; i++) {
        seen += !isnan(x[i]);
        clipped += x[i] < lo || x[i] > hi;
    }
    return seen ? (double)clipped / (double)seen : 0;
}
