/* The measures of eval and report against gen_metrics.py (numpy, scipy), and at their edges. */
#include "quant/metrics.h"
#include "tests/cli/vectors_metrics.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void assert_near(double value, double expected)
{
    if (!(fabs(value - expected) <= 1e-12 * fmax(1, fabs(expected))))
        fail_msg("%.17g instead of %.17g", value, expected);
}

static void test_vectors(void **state)
{
    (void)state;
    Distance d = distance_measure(got, want, ROWS * COLS, 0.1, 0.05);
    assert_int_equal(d.num, ROWS * COLS);
    assert_near(d.max_abs, max_abs[0]);
    assert_near(d.mean_abs, mean_abs[0]);
    assert_near(d.worst, worst[0]);
    assert_near(d.cosine, cosine[0]);
    assert_near(d.sqnr, sqnr[0]);
    assert_near(logits_divergence(got, want, ROWS, COLS), divergence[0]);
    assert_near(logits_accuracy(got, labels, ROWS, COLS), accuracy[0]);
    assert_near(logits_agreement(got, want, ROWS, COLS), agreement[0]);
    assert_near(clip_share(got, ROWS * COLS, -1.5, 2), clipped[0]);
}

static void test_edges(void **state)
{
    const double zero[2] = {0, 0}, odd[2] = {NAN, 1}, large[2] = {1000, -1000};
    const double tie[3] = {1, 2, 2}, none[2] = {NAN, NAN}, least[2] = {-INFINITY, -INFINITY};
    const int64_t first[1] = {0};

    (void)state;
    Distance d = distance_measure(zero, zero, 2, 0, 0);
    assert_true(d.cosine == 1 && isinf(d.sqnr) && d.mean_abs == 0);
    d = distance_measure(odd, odd, 2, 0, 0); /* the same NaN is no error */
    assert_true(d.max_abs == 0 && d.cosine == 1);
    d = distance_measure(odd, zero, 2, 0, 0);
    assert_true(isinf(d.max_abs) && isinf(d.worst));
    d = distance_measure(tie, zero, 2, 0, 0); /* of zeros there is no direction, nor of a NaN's */
    assert_true(isnan(d.cosine) && !signbit(d.cosine) && d.sqnr == -INFINITY);
    d = distance_measure(zero, none, 2, 0, 0);
    assert_true(isnan(d.cosine) && !signbit(d.cosine) && isnan(d.sqnr) && !signbit(d.sqnr));
    assert_true(logits_divergence(large, large, 1, 2) == 0); /* exp does not overflow */
    assert_near(logits_divergence(zero, large, 1, 2), log(2));
    assert_int_equal(row_largest(tie, 3), 1);
    assert_int_equal(row_largest(odd, 2), 1);
    assert_int_equal(row_largest(least, 2), 0);
    assert_true(logits_accuracy(none, first, 1, 2) == 0); /* no value is the largest */
    assert_true(logits_accuracy(zero, first, 1, 2) == 1);
    assert_true(logits_agreement(none, zero, 1, 2) == 0);
    assert_true(logits_agreement(none, none, 1, 2) == 1); /* two NaNs are equal */
    assert_true(logits_divergence(none, none, 1, 2) == 0);
    assert_true(isinf(logits_divergence(zero, none, 1, 2)));
    assert_true(isinf(logits_divergence(none, zero, 1, 2)));
    assert_true(isinf(logits_divergence(odd, zero, 1, 2)));
    assert_near(clip_share(odd, 2, -1, 0.5), 1); /* the NaN is not counted */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_vectors),
                                       cmocka_unit_test(test_edges)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
