/* Calibration: what the activations of a model look like on data, and how a static range follows
 * from that. One pass over the data fills one ActStats an activation; every calibrator, smoothing
 * and the weight quantisers that only need columns read it. */
#ifndef SINTER_QUANT_CALIB_H
#define SINTER_QUANT_CALIB_H

#include "quant/quant.h"

/* histogram.c --------------------------------------------------------------------------------- */

/* Bins of equal width, a power of two, whose edges are multiples of it, so that 0 is always an
 * edge. When a value lies outside, bins merge in pairs until it fits: no count is ever placed again
 * by guess. All zero: nothing seen yet. */
#define HISTOGRAM_BINS 2048
typedef struct Histogram {
    uint64_t count[HISTOGRAM_BINS];
    uint64_t total;
    int exponent;  /* a bin is 2^exponent wide */
    int64_t first; /* bin 0 begins at first * 2^exponent */
    float lo, hi;  /* the exact extremes */
} Histogram;

void histogram_observe(Histogram *h, const float *x, uint64_t num); /* finite elements */
double histogram_width(const Histogram *h);
/* The value below which a share q of the data lies: linear inside its bin. */
float histogram_quantile(const Histogram *h, double q);
/* Counts of |x| in bins from 0 on, of the same width or wider; returns the number of bins up to the
 * last that holds something. */
int histogram_fold(const Histogram *h, uint64_t ret[HISTOGRAM_BINS], double *ret_width);
/* The share of the data outside lo..hi, by bins that lie outside as a whole. */
double histogram_outside(const Histogram *h, float lo, float hi);

/* act_stats.c --------------------------------------------------------------------------------- */

/* One activation of `cols` columns: the whole tensor and each column; a group's numbers are those
 * of its columns together. Rows that hold a NaN or an infinity are left out and counted. */
typedef struct ActStats {
    int64_t cols, rows, bad_rows; /* rows: without the bad ones */
    Histogram whole;
    float *lo, *hi;     /* [cols] extremes, 0 before any row */
    double *abs_sum;    /* [cols] sum of |x| */
    double *square_sum; /* [cols] sum of x^2 */
} ActStats;
bool act_stats_init(ActStats *stats, int64_t cols); /* false: no memory */
/* x [rows, cols], f32. Deterministic for any number of threads. */
void act_stats_observe(ActStats *stats, const float *x, int64_t rows);
void act_stats_free(ActStats *stats); /* accepts a zeroed one */
/* Columns that were 0 in every row. */
int64_t act_stats_dead(const ActStats *stats);

/* calib_*.c: the calibrators of this room, one a file; tables.c lists them. */
extern const Calibrator calib_minmax, calib_percentile, calib_mse, calib_kl;

#endif
