/* Words of schemes, refusals, and the calibrators. */
#include "quant/calib.h"
#include "tests/quant/check.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void words_are_canonical(void **state)
{
    (void)state;
    const struct {
        Scheme scheme;
        bool is_act;
        const char *words;
    } want[] = {
        {{FMT_I8, FMT_F32, ZERO_NONE, false, TABLE_NONE, {1, 0}, false},
         false,
         "i8 sym per channel"},
        {{FMT_I8, FMT_F32, ZERO_NONE, false, TABLE_NONE, {1, 0}, false}, true, "i8 sym per token"},
        {{FMT_I8, FMT_F32, ZERO_INT, false, TABLE_NONE, {0, 0}, false}, true, "i8 asym per tensor"},
        {{FMT_I4, FMT_F32, ZERO_INT, false, TABLE_NONE, {1, 128}, false},
         false,
         "i4 asym group 128"},
        {{FMT_I4, FMT_F16, ZERO_NONE, false, TABLE_NONE, {1, 64}, false},
         false,
         "i4 sym group 64 scale f16"},
        {{FMT_E4M3, FMT_F32, ZERO_NONE, false, TABLE_NONE, {128, 128}, false},
         false,
         "e4m3 block 128x128"},
        {{FMT_E4M3, FMT_F32, ZERO_NONE, false, TABLE_NONE, {1, 128}, false},
         true,
         "e4m3 per token group 128"},
        {{FMT_NF4, FMT_F32, ZERO_NONE, false, TABLE_NONE, {1, 64}, false}, false, "nf4 group 64"},
        {{FMT_E2M1, FMT_E4M3, ZERO_NONE, true, TABLE_NONE, {1, 16}, false},
         false,
         "e2m1 group 16 scale e4m3 outer"},
    };
    Arena *arena = arena_create();
    for (size_t i = 0; i < COUNT_OF(want); i++) {
        Sb sb;
        sb_init(&sb, arena);
        scheme_print(&sb, &want[i].scheme, want[i].is_act);
        assert_string_equal(sb.text, want[i].words);
        assert_null(scheme_problem(&want[i].scheme));
    }
    arena_destroy(arena);
}

static void named_schemes(void **state)
{
    (void)state;
    Scheme s;
    const Scheme mxfp8 = {FMT_E4M3, FMT_E8M0, ZERO_NONE, false, TABLE_NONE, {1, 32}, false};
    const Scheme mxfp4 = {FMT_E2M1, FMT_E8M0, ZERO_NONE, false, TABLE_NONE, {1, 32}, false};
    const Scheme nvfp4 = {FMT_E2M1, FMT_E4M3, ZERO_NONE, true, TABLE_NONE, {1, 16}, false};
    assert_true(scheme_find("mxfp8", &s) && scheme_equal(&s, &mxfp8));
    assert_true(scheme_find("mxfp4", &s) && scheme_equal(&s, &mxfp4));
    assert_true(scheme_find("nvfp4", &s) && scheme_equal(&s, &nvfp4));
    assert_false(scheme_find("mxfp6", &s));
    assert_false(scheme_equal(&mxfp8, &mxfp4));
}

static void impossible_schemes_are_refused(void **state)
{
    (void)state;
    const Scheme bad[] = {
        {FMT_NONE, FMT_F32, ZERO_NONE, false, TABLE_NONE, {1, 0}, false},
        {FMT_F32, FMT_F32, ZERO_NONE, false, TABLE_NONE, {1, 0}, false},
        {FMT_I32, FMT_F32, ZERO_NONE, false, TABLE_NONE, {1, 0}, false},
        {FMT_E8M0, FMT_F32, ZERO_NONE, false, TABLE_NONE, {1, 0}, false},
        {FMT_I8, FMT_I8, ZERO_NONE, false, TABLE_NONE, {1, 0}, false},
        {FMT_I8, FMT_E5M2, ZERO_NONE, false, TABLE_NONE, {1, 0}, false},
        {FMT_U8, FMT_F32, ZERO_NONE, false, TABLE_NONE, {1, 0}, false},
        {FMT_E4M3, FMT_F32, ZERO_INT, false, TABLE_NONE, {1, 0}, false},
        {FMT_NF4, FMT_F32, ZERO_INT, false, TABLE_NONE, {1, 64}, false},
        {FMT_NF4, FMT_E8M0, ZERO_NONE, false, TABLE_NONE, {1, 64}, false},
        {FMT_I8, FMT_E8M0, ZERO_INT, false, TABLE_NONE, {1, 64}, false},
        {FMT_E2M1, FMT_F32, ZERO_NONE, true, TABLE_NONE, {1, 16}, false},
        {FMT_I4, FMT_F32, ZERO_NONE, false, TABLE_NONE, {1, -4}, false},
    };
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        assert_non_null(scheme_problem(&bad[i]));
}

static void grids(void **state)
{
    (void)state;
    Scheme s = {FMT_I4, FMT_F32, ZERO_NONE, false, TABLE_NONE, {1, 128}, false};
    assert_int_equal(scheme_row_blocks(&s, 10), 10);
    assert_int_equal(scheme_col_blocks(&s, 300), 3);
    assert_true(scheme_varies_along_cols(&s, 129));
    assert_false(scheme_varies_along_cols(&s, 128));
    s.block[0] = s.block[1] = 0;
    assert_int_equal(scheme_row_blocks(&s, 10), 1);
    assert_int_equal(scheme_col_blocks(&s, 300), 1);
}

/* Calibrators --------------------------------------------------------------------------------- */

static int float_order(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

enum { NUM_DATA = 40000 };

static void calibrate(const char *name, double arg, const float *x, int num, int batch, float *lo,
                      float *hi)
{
    const Calibrator *c = calibrator_find(name);
    assert_non_null(c);
    const Scheme scheme = {.fmt = FMT_I8, .scale_fmt = FMT_F32};
    Histogram h = {0};
    for (int i = 0; i < num; i += batch)
        histogram_observe(&h, x + i, (uint64_t)(num - i < batch ? num - i : batch));
    c->range(&h, arg, &scheme, lo, hi);
}

static void minmax_is_exact(void **state)
{
    (void)state;
    const float x[6] = {3, NAN, -2, INFINITY, 1, -INFINITY};
    float lo, hi;
    calibrate("minmax", 0, x, 6, 2, &lo, &hi);
    assert_true(lo == -2 && hi == 3);
    calibrate("minmax", 0, x, 0, 1, &lo, &hi);
    assert_true(lo == 0 && hi == 0);
    assert_null(calibrator_find("mean"));
}

/* Against the sorted data, however it comes: small values first (the range grows by far), large
 * first, with an offset, one at a time. */
static void percentile_follows_sorted_data(void **state)
{
    (void)state;
    static float x[NUM_DATA], sorted[NUM_DATA];
    const struct {
        float scale, offset;
        int batch;
        bool ascending;
    } way[] = {{1, 0, NUM_DATA, false}, {1, 0, 100, true},    {1e-3f, 0, 1, true},
               {50, 1000, 777, false},  {1e30f, 0, 64, true}, {3, -2, 1000, true},
               {1e-30f, 0, 999, false}};
    const double percent[] = {99, 99.9, 99.99};
    for (size_t w = 0; w < COUNT_OF(way); w++) {
        for (int i = 0; i < NUM_DATA; i++)
            x[i] = random_value(w, (uint64_t)i) * way[w].scale + way[w].offset;
        memcpy(sorted, x, sizeof x);
        qsort(sorted, NUM_DATA, sizeof *sorted, float_order);
        if (way[w].ascending)
            memcpy(x, sorted, sizeof x);
        float bin = (sorted[NUM_DATA - 1] - sorted[0]) / 512; /* growth may leave a quarter used */
        for (size_t p = 0; p < COUNT_OF(percent); p++) {
            float lo, hi;
            calibrate("percentile", percent[p], x, NUM_DATA, way[w].batch, &lo, &hi);
            int cut = (int)(NUM_DATA * (1 - percent[p] / 100) + 0.5);
            assert_true(fabsf(lo - sorted[cut]) <= bin);
            assert_true(fabsf(hi - sorted[NUM_DATA - 1 - cut]) <= bin);
        }
        float lo, hi;
        calibrate("percentile", 100, x, NUM_DATA, way[w].batch, &lo, &hi);
        assert_true(lo == sorted[0] && hi == sorted[NUM_DATA - 1]);
    }
}

static void percentile_of_few_values(void **state)
{
    (void)state;
    const float same[3] = {2.5f, 2.5f, 2.5f}, zero[2] = {0, 0},
                far[2] = {-NUM_MAX_FINITE, NUM_MAX_FINITE};
    const float step[2] = {1e-44f, NUM_MAX_FINITE};
    float lo, hi;
    calibrate("percentile", 99.9, same, 3, 1, &lo, &hi);
    assert_true(lo == 2.5f && hi == 2.5f);
    calibrate("percentile", 99.9, zero, 2, 1, &lo, &hi);
    assert_true(lo == 0 && hi == 0);
    calibrate("percentile", 100, far, 2, 1, &lo, &hi);
    assert_true(lo == far[0] && hi == far[1]);
    calibrate("percentile", 100, step, 2, 1, &lo, &hi);
    assert_true(lo == step[0] && hi == step[1]);
    calibrate("percentile", 99.9, same, 0, 1, &lo, &hi);
    assert_true(lo == 0 && hi == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_are_canonical),
        cmocka_unit_test(named_schemes),
        cmocka_unit_test(impossible_schemes_are_refused),
        cmocka_unit_test(grids),
        cmocka_unit_test(minmax_is_exact),
        cmocka_unit_test(percentile_follows_sorted_data),
        cmocka_unit_test(percentile_of_few_values),
    };
    return cmocka_run_group_tests_name("schemes", tests, NULL, NULL);
}
