/* Tests of the bounds that results of a GPU are held to (near.c). */
#include "tests/gpu/near.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* behind what it needs */
#include <cmocka.h>

enum { ROWS = 1, COLS = 231 };

static void make(float *value)
{
    for (int i = 0; i < COLS; i++)
        value[i] = (float)(i % 17 - 8) + 0.5f;
}

static bool near(const float *want, const float *got, double bound)
{
    Near n = {.bound = bound};
    const PlanTensor t = {.name = "t", .fmt = FMT_F32};
    const PlanLayout l = {.rows = ROWS, .cols = COLS, .pitch = 4 * COLS};
    return near_tensor(&n, &t, &l, (const uint8_t *)want, (const uint8_t *)got);
}

/* One value that was rounded to f16 the other way before it was stored as f32. */
static void test_cast_before_store(void **state)
{
    (void)state;
    float want[COLS], got[COLS];
    make(want);
    make(got);
    got[3] += 0x1p-8f; /* one step of f16 at -4.5 */
    assert_false(near(want, got, near_bound(FMT_F32)));
    assert_true(near(want, got, near_bound(FMT_F16)));
    for (int i = 0; i < COLS; i++) /* every value so: not what rounding does */
        got[i] = want[i] * 1.01f;
    assert_false(near(want, got, near_bound(FMT_F16)));
    assert_false(near(want, got, near_bound(FMT_BF16)));
}

static void test_not_finite(void **state)
{
    (void)state;
    float want[COLS], got[COLS];
    make(want);
    make(got);
    got[7] = INFINITY;
    assert_false(near(want, got, near_bound(FMT_BF16)));
    want[7] = INFINITY;
    assert_true(near(want, got, near_bound(FMT_F32)));
    got[7] = want[7] = NAN;
    assert_true(near(want, got, near_bound(FMT_F32)));
}

/* 65504 is the last number of f16: a sum beside it may be infinite in another order. */
static void test_next_to_overflow(void **state)
{
    (void)state;
    uint16_t want[COLS], got[COLS];
    const PlanTensor t = {.name = "t", .fmt = FMT_F16};
    const PlanLayout l = {.rows = ROWS, .cols = COLS, .pitch = 2 * COLS};
    Near n = {.bound = near_bound(FMT_F16)};
    for (int i = 0; i < COLS; i++)
        want[i] = got[i] = (uint16_t)(0x4000 + i);
    want[5] = 0x7bff, got[5] = 0x7c00; /* 65504, infinity */
    assert_true(near_tensor(&n, &t, &l, (const uint8_t *)want, (const uint8_t *)got));
    got[5] = 0xfc00; /* of the other sign */
    assert_false(near_tensor(&n, &t, &l, (const uint8_t *)want, (const uint8_t *)got));
    want[5] = 0x7000, got[5] = 0x7c00; /* 8192 */
    assert_false(near_tensor(&n, &t, &l, (const uint8_t *)want, (const uint8_t *)got));
    want[5] = 0x7c00, got[9] = 0x4400; /* an overflowing row: of use only where inputs are odd */
    assert_false(near_tensor(&n, &t, &l, (const uint8_t *)want, (const uint8_t *)got));
    n.is_odd = true;
    assert_true(near_tensor(&n, &t, &l, (const uint8_t *)want, (const uint8_t *)got));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cast_before_store),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_next_to_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
