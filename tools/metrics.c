/* Measures of error; see metrics.h. All in double precision, in the order of the elements. */
#include "tools/metrics.h"
#include <math.h>

Distance distance_measure(const double *got, const double *want, uint64_t num, double atol,
                          double rtol)
{
    double dot = 0, got2 = 0, want2 = 0, error2 = 0, sum = 0;
    Distance d = {.num = num, .worst = -INFINITY};
    for (uint64_t i = 0; i < num; i++) {
        bool both_nan = isnan(got[i]) && isnan(want[i]);
        double error = both_nan || got[i] == want[i] ? 0 : fabs(got[i] - want[i]);
        if (isnan(error))
            error = INFINITY;
        double over = error - atol - rtol * fabs(want[i]);
        d.max_abs = error > d.max_abs ? error : d.max_abs;
        d.worst = !(over <= d.worst) ? over : d.worst;
        sum += error;
        error2 += error * error;
        if (both_nan)
            continue;
        dot += got[i] * want[i];
        got2 += got[i] * got[i];
        want2 += want[i] * want[i];
    }
    bool zeros = got2 == 0 && want2 == 0;
    d.mean_abs = num ? sum / (double)num : 0;
    d.cosine = zeros ? 1 : dot / (sqrt(got2) * sqrt(want2));
    d.sqnr = error2 == 0 ? INFINITY : 10 * log10(want2 / error2);
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
    int64_t best = 0;
    double most = -INFINITY;
    for (int64_t c = 0; c < cols; c++)
        if (row[c] > most) {
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
