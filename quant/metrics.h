/* How far results are from those of a reference, by the formulas of docs/eval.md. */
#ifndef SINTER_METRICS_H
#define SINTER_METRICS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct Distance {
    uint64_t num;             /* elements */
    double max_abs, mean_abs; /* of got - want; infinite where only one is a NaN */
    double worst;             /* largest |error| - atol - rtol |want| */
    double cosine;            /* 1 where both are all zeros */
    double noise;             /* sum error^2 / sum want^2; 0 when equal */
    double sqnr;              /* dB: 10 log10(sum want^2 / sum error^2); infinite when equal */
} Distance;

Distance distance_measure(const double *got, const double *want, uint64_t num, double atol,
                          double rtol);
Distance distance_of_floats(const float *got, const float *want, uint64_t num);

/* Mean over rows of the Kullback-Leibler divergence of softmax(got) from softmax(want), in nats;
 * infinite where only one of a row's two is a NaN. */
double logits_divergence(const double *got, const double *want, int64_t rows, int64_t cols);

/* Column of the largest value of a row, the first of equals; -1: all are NaN. */
int64_t row_largest(const double *row, int64_t cols);
/* Share of rows whose largest value is at labels[row]. */
double logits_accuracy(const double *logits, const int64_t *labels, int64_t rows, int64_t cols);
/* Share of rows whose largest values stand in the same column. */
double logits_agreement(const double *a, const double *b, int64_t rows, int64_t cols);

/* Share of x that lies outside lo .. hi; NaN is left out. */
double clip_share(const double *x, uint64_t num, double lo, double hi);

#endif
