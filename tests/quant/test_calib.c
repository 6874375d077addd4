/* Calibrators against gen_calib.py (plain numpy); the histogram and the statistics of columns
 * against plain loops. */
#include "quant/calib.h"
#include "tests/quant/check.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct CalibCase {
    int data;
    const char *name;
    double arg;
    Scheme scheme;
    uint32_t lo, hi;
} CalibCase;
#include "tests/quant/vectors_calib.h"

enum { NUM = 20000, NUM_DATA = 8 };

static float value(int data, int at)
{
    float x = random_value(21, (uint64_t)at);
    switch (data) {
    case 0: return x * 3;
    case 1: return (x > 0 ? x : 0) * 7;
    case 2: return x * 5 > -0.17f ? x * 5 : -0.17f;
    case 3: return at == 77 ? 40 : x;
    case 4: return x + 11;
    case 5: return x * 0x1p-120f;
    case 6: return -2.5f;
    default: return x / (1.03125f - fabsf(x));
    }
}

static float *make_data(int data)
{
    float *x = malloc(NUM * sizeof *x);
    assert_non_null(x);
    for (int i = 0; i < NUM; i++)
        x[i] = value(data, i);
    return x;
}

static bool near(float got, uint32_t want, float size)
{
    return fabsf(got - num_float(want)) <= 1e-6f * size;
}

static void calibrators_match_reference(void **state)
{
    (void)state;
    for (int data = 0; data < NUM_DATA; data++) {
        Histogram *h = calloc(1, sizeof *h);
        float *x = make_data(data);
        assert_non_null(h);
        histogram_observe(h, x, NUM);
        for (size_t i = 0; i < COUNT_OF(calib_cases); i++) {
            const CalibCase *c = &calib_cases[i];
            const Calibrator *calibrator = calibrator_find(c->name);
            float lo, hi, size = fabsf(h->lo) > fabsf(h->hi) ? fabsf(h->lo) : fabsf(h->hi);
            assert_non_null(calibrator);
            if (c->data != data)
                continue;
            calibrator->range(h, c->arg, &c->scheme, &lo, &hi);
            if (!near(lo, c->lo, size) || !near(hi, c->hi, size))
                fail_msg("data %d, %s %g under %s: %.9g .. %.9g, the reference has %.9g .. %.9g",
                         data, c->name, c->arg, format_info[c->scheme.fmt].name, (double)lo,
                         (double)hi, (double)num_float(c->lo), (double)num_float(c->hi));
        }
        free(x);
        free(h);
    }
}

/* Whatever the order in which the range grew, each count lies in the bin of its value. */
static void histogram_grows_without_guesses(void **state)
{
    (void)state;
    static const float size[][4] = {{0x1p-100f, 1, -8, 0x1p60f},
                                    {1, -3, 5000, -1e9f},
                                    {3, 3, 3, 3},
                                    {1e30f, 1, -1e-30f, -1e38f},
                                    {0, 0, 2, 0x1p-149f}};
    for (size_t k = 0; k < COUNT_OF(size); k++) {
        Histogram *h = calloc(1, sizeof *h);
        uint64_t *want = calloc(HISTOGRAM_BINS, sizeof *want);
        float *x = malloc(4 * 500 * sizeof *x);
        assert_true(h && want && x);
        for (int i = 0; i < 2000; i++)
            x[i] = size[k][i / 500] * (1 + random_value(k, (uint64_t)i));
        for (int at = 0, part = 1; at < 2000; at += part, part = part * 3 % 700 + 1)
            histogram_observe(h, x + at, (uint64_t)(2000 - at < part ? 2000 - at : part));
        assert_int_equal(h->total, 2000);
        for (int i = 0; i < 2000; i++) {
            double bin = floor(ldexp(x[i], -h->exponent)) - (double)h->first;
            assert_true(bin >= 0 && bin < HISTOGRAM_BINS);
            want[(int)bin]++;
            assert_true(x[i] >= h->lo && x[i] <= h->hi);
        }
        assert_memory_equal(want, h->count, sizeof h->count);
        uint64_t folded[HISTOGRAM_BINS], sum = 0;
        double width;
        int num = histogram_fold(h, folded, &width);
        memset(want, 0, sizeof h->count);
        for (int i = 0; i < 2000; i++) { /* -w falls into the bin that ends at w */
            double bin = floor(x[i] / width);
            want[(int)(bin < 0 ? -1 - bin : bin)]++;
        }
        for (int i = 0; i < num; i++)
            sum += folded[i];
        assert_memory_equal(want, folded, sizeof folded);
        assert_int_equal(sum, 2000);
        free(h);
        free(want);
        free(x);
    }
}

static void histogram_of_nothing(void **state)
{
    (void)state;
    Histogram *h = calloc(1, sizeof *h);
    const float bad[] = {NAN, INFINITY, -INFINITY};
    const Scheme scheme = {.fmt = FMT_I8, .scale_fmt = FMT_F32};
    assert_non_null(h);
    histogram_observe(h, bad, 3);
    histogram_observe(h, bad, 0);
    assert_int_equal(h->total, 0);
    for (int i = 0; calibrators[i]; i++) {
        float lo = 1, hi = 1;
        calibrators[i]->range(h, calibrators[i]->arg_max, &scheme, &lo, &hi);
        assert_true(lo == 0 && hi == 0);
    }
    assert_true(histogram_outside(h, 0, 0) == 0);
    free(h);
}

static void share_outside_a_range(void **state)
{
    (void)state;
    Histogram *h = calloc(1, sizeof *h);
    float *x = make_data(0);
    int outside = 0;
    assert_non_null(h);
    histogram_observe(h, x, NUM);
    for (int i = 0; i < NUM; i++)
        outside += x[i] < -1 || x[i] >= 0.5f;
    assert_true(fabs(histogram_outside(h, -1, 0.5f) - (double)outside / NUM) < 1e-12);
    free(x);
    free(h);
}

static void statistics_of_columns(void **state)
{
    (void)state;
    enum { COLS = 7, ROWS = 100 };
    float x[ROWS * COLS];
    ActStats stats;
    for (int i = 0; i < ROWS * COLS; i++)
        x[i] = i % COLS == 4 ? 0 : random_value(3, (uint64_t)i) - (i % COLS == 2 ? 5 : 0);
    x[13 * COLS + 1] = NAN;
    x[57 * COLS + 6] = -INFINITY;
    assert_true(act_stats_init(&stats, COLS));
    act_stats_observe(&stats, x, 30);
    act_stats_observe(&stats, x + 30 * COLS, ROWS - 30);
    assert_int_equal(stats.rows, ROWS - 2);
    assert_int_equal(stats.bad_rows, 2);
    assert_int_equal(act_stats_dead(&stats), 1);
    assert_int_equal(stats.whole.total, (ROWS - 2) * COLS);
    for (int c = 0; c < COLS; c++) {
        float lo = INFINITY, hi = -INFINITY;
        double abs_sum = 0, square_sum = 0;
        for (int r = 0; r < ROWS; r++) {
            float v = x[r * COLS + c];
            if (r == 13 || r == 57)
                continue;
            lo = v < lo ? v : lo;
            hi = v > hi ? v : hi;
            abs_sum += fabs((double)v);
            square_sum += (double)v * v;
        }
        assert_true(stats.lo[c] == lo && stats.hi[c] == hi);
        assert_true(fabs(stats.abs_sum[c] - abs_sum) <= 1e-12 * abs_sum);
        assert_true(fabs(stats.square_sum[c] - square_sum) <= 1e-12 * square_sum);
    }
    act_stats_free(&stats);
    act_stats_free(&stats);
    assert_false(act_stats_init(&stats, INT64_MAX));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calibrators_match_reference),
        cmocka_unit_test(histogram_grows_without_guesses),
        cmocka_unit_test(histogram_of_nothing),
        cmocka_unit_test(share_outside_a_range),
        cmocka_unit_test(statistics_of_columns),
    };
    return cmocka_run_group_tests_name("calib", tests, NULL, NULL);
}
