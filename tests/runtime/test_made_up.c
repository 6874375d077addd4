/* test_made_up: what runs that are only timed read. */
#include "runtime/made_up.h"

#include "quant/quant.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { NUM = 5000 };

/* Near to normal: the variance of four uniform numbers that are 1/2 wide. */
static void test_numbers(void **state)
{
    (void)state;
    float *x = made_up(FMT_F32, NUM);
    double sum = 0, squares = 0;
    for (int i = 0; i < NUM; i++) {
        assert_true(fabsf(x[i]) < 1);
        assert_true(x[i] == 0 || fpclassify(x[i]) == FP_NORMAL);
        sum += x[i];
        squares += (double)x[i] * x[i];
    }
    assert_true(fabs(sum / NUM) < 0.02);
    assert_true(fabs(squares / NUM - 1.0 / 12) < 0.005);
    free(x);
}

static void test_formats_hold_the_same_numbers(void **state)
{
    static const FormatId formats[] = {FMT_F16, FMT_BF16};
    (void)state;
    float *x = made_up(FMT_F32, NUM);
    uint16_t want[NUM];
    for (int i = 0; i < 2; i++) {
        uint16_t *got = made_up(formats[i], NUM);
        format_from_f32(formats[i], x, want, NUM);
        assert_memory_equal(got, want, sizeof want);
        free(got);
    }
    free(x);
}

/* Whoever shows progress fills a part at a time, wherever it ends. */
static void test_parts_are_those_of_the_whole(void **state)
{
    static const int end[] = {1, 7, 1024, 1025, 3000, NUM};
    (void)state;
    float *x = made_up(FMT_F32, NUM), parts[NUM + 1] = {[NUM] = 7};
    for (int i = 0, at = 0; i < 6; at = end[i++])
        made_up_fill(FMT_F32, parts, (uint64_t)at, (uint64_t)(end[i] - at));
    assert_memory_equal(parts, x, NUM * sizeof *x);
    assert_true(parts[NUM] == 7);
    free(x);
}

static void test_all_rows_count(void **state)
{
    (void)state;
    int32_t counts[4] = {0, 0, 0, 5};
    made_up_fill(FMT_I32, counts, 0, 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(counts[i], INT32_MAX);
    assert_int_equal(counts[3], 5);
    int32_t *all = made_up(FMT_I32, NUM);
    for (int i = 0; i < NUM; i++)
        assert_int_equal(all[i], INT32_MAX);
    free(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers), cmocka_unit_test(test_formats_hold_the_same_numbers),
        cmocka_unit_test(test_parts_are_those_of_the_whole), cmocka_unit_test(test_all_rows_count)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
