/* Tests of the bounds that results of a GPU are held to (near.c). */
#include "tests/gpu/near.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
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

/* Where errors are random, the mean over few values strays from what it is over many: over 231 by
 * two thirds of itself. */
static void test_few_values(void **state)
{
    (void)state;
    float want[COLS], got[COLS];
    const PlanTensor t = {.name = "t", .fmt = FMT_F32};
    const PlanLayout l = {.rows = ROWS, .cols = COLS, .pitch = 4 * COLS};
    Near n = {.bound = 1e-6, .rounds = true};
    make(want);
    for (int i = 0; i < COLS; i++)
        got[i] = want[i] * (1 + sqrtf(1.5e-6f));
    assert_true(near_tensor(&n, &t, &l, (const uint8_t *)want, (const uint8_t *)got));
    assert_false(near(want, got, 1e-6)); /* they are not */
    for (int i = 0; i < COLS; i++)
        got[i] = want[i] * (1 + sqrtf(2e-6f));
    assert_false(near_tensor(&n, &t, &l, (const uint8_t *)want, (const uint8_t *)got));
}

/* Of few values of 16 bits one rounded the other way weighs more than the mean of many may be. */
static void test_flips(void **state)
{
    (void)state;
    enum { NUM = 21 };
    uint16_t want[NUM], got[NUM];
    const PlanTensor t = {.name = "t", .fmt = FMT_BF16};
    const PlanLayout l = {.rows = 1, .cols = NUM, .pitch = 2 * NUM};
    Near n = {.bound = near_bound(FMT_BF16)};
    for (int i = 0; i < NUM; i++)
        want[i] = got[i] = (uint16_t)((i % 3 ? 0x3d00 : 0xbd00) + 2 * i); /* 1/32 and more */
    want[7] = 0xbe08, got[7] = 0xbe09; /* -0.1328125, -0.1337890625 */
    assert_true(near_tensor(&n, &t, &l, (const uint8_t *)want, (const uint8_t *)got));
    got[7] = 0xbe0a;
    assert_false(near_tensor(&n, &t, &l, (const uint8_t *)want, (const uint8_t *)got));
    got[7] = 0xbe09;
    for (int i = 8; i < NUM; i++)
        got[i] ^= 1;
    assert_false(near_tensor(&n, &t, &l, (const uint8_t *)want, (const uint8_t *)got));
}

/* .. and so does one sum that is stored in all columns of a row, or one beside which many others
 * are next to nothing; but not all of many that differ. */
static void test_flips_of_many(void **state)
{
    (void)state;
    enum { ROWS_OF = 7, COLS_OF = 520, NUM = ROWS_OF * COLS_OF };
    uint16_t want[NUM], got[NUM];
    const PlanTensor t = {.name = "t", .fmt = FMT_BF16};
    const PlanLayout l = {.rows = ROWS_OF, .cols = COLS_OF, .pitch = 2 * COLS_OF};
    Near n = {.bound = near_bound(FMT_BF16)};
    for (int i = 0; i < NUM; i++)
        want[i] = got[i] = (uint16_t)(i / COLS_OF == 1 ? 0xc083 : 0x3c00 + i % 99); /* -4.09375 */
    for (int i = COLS_OF; i < 2 * COLS_OF; i++)
        got[i] = 0xc082;
    assert_true(near_tensor(&n, &t, &l, (const uint8_t *)want, (const uint8_t *)got));
    for (int i = COLS_OF; i < 2 * COLS_OF; i++)
        got[i] = 0xc081;
    assert_false(near_tensor(&n, &t, &l, (const uint8_t *)want, (const uint8_t *)got));
    for (int i = 0; i < NUM; i++)
        want[i] = (uint16_t)(0x3f80 + i % 1024), got[i] = want[i] ^ 1;
    assert_false(near_tensor(&n, &t, &l, (const uint8_t *)want, (const uint8_t *)got));
    for (int i = 0; i < NUM; i++)
        got[i] = want[i];
    want[520] = 0x5083, got[520] = 0x5082; /* 1.75e10 */
    assert_true(near_tensor(&n, &t, &l, (const uint8_t *)want, (const uint8_t *)got));
    got[520] = 0x5080;
    assert_false(near_tensor(&n, &t, &l, (const uint8_t *)want, (const uint8_t *)got));
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

enum { TOKENS = 60, PAIR = 2 };

/* Two values a token, the scale from the larger. */
typedef struct Tokens {
    int8_t code[TOKENS * PAIR];
    float scale[TOKENS];
} Tokens;

/* Every third token is small, as in the tail of gelu. */
static void make_tokens(Tokens *t)
{
    for (int i = 0; i < TOKENS; i++) {
        t->scale[i] = i % 3 ? 0.01f * (float)(1 + i % 7) : 1e-6f;
        t->code[PAIR * i] = 127;
        t->code[PAIR * i + 1] = (int8_t)(i - 30);
    }
}

static bool near_tokens(const Tokens *want, const Tokens *got)
{
    Near n = {.bound = near_bound(FMT_F32)};
    const PlanTensor t = {.name = "t",
                          .fmt = FMT_I8,
                          .quantised = true,
                          .scheme = {FMT_I8, FMT_F32, .block = {1, PAIR}}};
    const PlanLayout l = {
        .rows = TOKENS, .cols = PAIR, .pitch = PAIR, .scale_at = offsetof(Tokens, scale)};
    return near_tensor(&n, &t, &l, (const uint8_t *)want, (const uint8_t *)got);
}

/* The scales of every third token, the small ones from 0, times `by`. */
static void scale_third(Tokens *t, int from, float by)
{
    for (int i = from; i < TOKENS; i += 3)
        t->scale[i] *= by;
}

/* Errors of float sums are bounded beside the whole tensor: those of small tokens may be a larger
 * share of themselves, those of the others may not. */
static void test_scales(void **state)
{
    (void)state;
    Tokens want, got;
    make_tokens(&want);
    make_tokens(&got);
    scale_third(&got, 0, 1.0001f);
    assert_true(near_tokens(&want, &got));
    for (int i = 0; i < TOKENS; i += 3) /* and then their codes, too */
        got.code[PAIR * i + 1]++;
    assert_true(near_tokens(&want, &got));
    for (int i = 1; i < TOKENS; i += 3)
        got.code[PAIR * i + 1]++;
    assert_false(near_tokens(&want, &got));
    make_tokens(&got);
    for (int i = 0; i < TOKENS; i += 3)
        got.scale[i] = 2e-6f + 1e-5f;
    assert_false(near_tokens(&want, &got));
    make_tokens(&got);
    scale_third(&got, 1, 1.0002f);
    assert_false(near_tokens(&want, &got));
    make_tokens(&got);
    for (int i = 0; i < TOKENS; i++)
        got.scale[i] = i % 10 ? got.scale[i] : NAN;
    assert_false(near_tokens(&want, &got));
}

/* .. but not any share: a hundredth is wrong, 2.5e-7 of the usual scale though it is. What one
 * rounding of usual sums leaves where they cancel is of no scale at all. */
static void test_small_scales(void **state)
{
    (void)state;
    Tokens want, got;
    make_tokens(&want);
    make_tokens(&got);
    scale_third(&got, 0, 1.01f);
    assert_false(near_tokens(&want, &got));
    scale_third(&want, 0, 1e-4f);
    make_tokens(&got);
    scale_third(&got, 0, 3e-4f);
    assert_true(near_tokens(&want, &got));
    scale_third(&got, 0, 1e2f);
    assert_false(near_tokens(&want, &got));
}

/* Minus zero is a code of its own and no other number; what is none, either. In the last row of odd
 * inputs, static codes may be those of infinities on one side and of no numbers on the other. */
static void test_codes_of_floats(void **state)
{
    (void)state;
    enum { PLUS = 0x00, MINUS = 0x80, NO = 0x7f, ALSO_NO = 0xff };
    uint8_t want[4 * 60], got[4 * 60];
    const PlanTensor t = {.name = "t",
                          .fmt = FMT_E4M3,
                          .quantised = true,
                          .is_static = true,
                          .scheme = {FMT_E4M3, FMT_F32, .block = {0, 0}}};
    const PlanLayout l = {.rows = 4, .cols = 60, .pitch = 60};
    Near n = {.bound = near_bound(FMT_F32)};
    for (int i = 0; i < 4 * 60; i++)
        want[i] = got[i] = (uint8_t)(0x30 + i % 16);
    for (int i = 0; i < 60; i++)
        want[i] = i % 2 ? PLUS : NO, got[i] = i % 2 ? MINUS : ALSO_NO;
    assert_true(near_tensor(&n, &t, &l, want, got));
    for (int i = 180; i < 240; i++)
        got[i] = 0x7e;
    assert_false(near_tensor(&n, &t, &l, want, got));
    n.is_odd = true;
    assert_true(near_tensor(&n, &t, &l, want, got));
}

/* sigmoid of sums of 1e12: of two that cancel, one device keeps a residue and one none. */
static void test_cancelled(void **state)
{
    (void)state;
    float want[COLS], got[COLS];
    const PlanTensor t = {.name = "t", .fmt = FMT_F32};
    const PlanLayout l = {.rows = ROWS, .cols = COLS, .pitch = 4 * COLS};
    Near n = {.bound = 1e-6, .is_odd = true};
    for (int i = 0; i < COLS; i++)
        want[i] = got[i] = (float)(i % 2);
    want[9] = 0.9765625f;
    got[9] = 0.701660156f;
    assert_true(near_tensor(&n, &t, &l, (const uint8_t *)want, (const uint8_t *)got));
    assert_false(near(want, got, 1e-6)); /* of inputs of usual size */
    got[11] = 0;                         /* a limit that differs is wrong */
    assert_false(near_tensor(&n, &t, &l, (const uint8_t *)want, (const uint8_t *)got));
    got[11] = 0.5f; /* the GPU's cancelled: one of a row may */
    assert_true(near_tensor(&n, &t, &l, (const uint8_t *)want, (const uint8_t *)got));
    got[13] = 0.5f;
    assert_false(near_tensor(&n, &t, &l, (const uint8_t *)want, (const uint8_t *)got));
    got[13] = want[13];
    got[11] = want[11];
    want[12] = got[12] = 2; /* no activation with limits gave that */
    assert_false(near_tensor(&n, &t, &l, (const uint8_t *)want, (const uint8_t *)got));
    for (int i = 0; i < COLS; i++) /* nor is it what relu gave */
        want[i] = got[i] = i % 3 ? 0.0f : 0.5f;
    got[12] = 0.75f;
    assert_false(near_tensor(&n, &t, &l, (const uint8_t *)want, (const uint8_t *)got));
}

/* .. and of a gate, times another factor; not more of them, nor without a gate that has limits. */
static void test_cancelled_gates(void **state)
{
    (void)state;
    float want[COLS], got[COLS];
    const PlanTensor t = {.name = "t", .fmt = FMT_F32};
    const PlanLayout l = {.rows = ROWS, .cols = COLS, .pitch = 4 * COLS};
    Near n = {.bound = 1e-10, .is_odd = true, .is_gated = true};
    make(want);
    make(got);
    for (int i = 0; i < 5; i++)
        got[40 * i] = 0;
    assert_true(near_tensor(&n, &t, &l, (const uint8_t *)want, (const uint8_t *)got));
    got[7] = 0;
    assert_false(near_tensor(&n, &t, &l, (const uint8_t *)want, (const uint8_t *)got));
    got[7] = want[7];
    n.is_gated = false;
    assert_false(near_tensor(&n, &t, &l, (const uint8_t *)want, (const uint8_t *)got));
}

/* Rows of 1e12 of both operands meet in one sum, which is what cancellation left. */
static void test_cancelled_corner(void **state)
{
    (void)state;
    float want[COLS], got[COLS];
    const PlanTensor t = {.name = "t", .fmt = FMT_F32};
    const PlanLayout l = {.rows = ROWS, .cols = COLS, .pitch = 4 * COLS};
    Near n = {.bound = 1e-10, .is_odd = true};
    make(want);
    make(got);
    want[COLS - 1] = 2.31985983e+23f;
    got[COLS - 1] = 2.31921798e+23f;
    assert_true(near_tensor(&n, &t, &l, (const uint8_t *)want, (const uint8_t *)got));
    assert_false(near(want, got, 1e-10)); /* of inputs of usual size */
    got[3] += 0.01f;                      /* the others are held to the bound by themselves */
    assert_false(near_tensor(&n, &t, &l, (const uint8_t *)want, (const uint8_t *)got));
    got[3] = want[3];
    got[COLS - 1] = 2.31e+23f; /* too far off for what cancels */
    assert_false(near_tensor(&n, &t, &l, (const uint8_t *)want, (const uint8_t *)got));
}

/* Two of a few hundred codes of 4 bits may lie one step off, next to ties; not three, nor one by
 * two steps. */
static void test_flipped_codes(void **state)
{
    (void)state;
    enum { NUM = 384, STEP = 3 }; /* 1.5, and 2 next to it */
    uint8_t want[NUM], got[NUM];
    const PlanTensor t = {.name = "t",
                          .fmt = FMT_E2M1,
                          .quantised = true,
                          .is_static = true,
                          .scheme = {FMT_E2M1, FMT_F32, .block = {0, 0}}};
    const PlanLayout l = {.rows = 4, .cols = NUM / 4, .pitch = NUM / 4};
    Near n = {.bound = near_bound(FMT_F32)};
    for (int i = 0; i < NUM; i++)
        want[i] = got[i] = (uint8_t)(i % 4 ? 1 : 0);
    for (int i = 0; i < 3; i++)
        want[i] = got[i] = STEP;
    got[0]++;
    got[1]++;
    assert_true(near_tensor(&n, &t, &l, want, got));
    got[2]++;
    assert_false(near_tensor(&n, &t, &l, want, got));
    got[1] = got[2] = STEP;
    got[0] = STEP + 2;
    assert_false(near_tensor(&n, &t, &l, want, got));
}

/* Rows of codes begin at multiples of 16 bytes: what lies between is no code, and all rows count.
 */
static void test_padded_codes(void **state)
{
    (void)state;
    enum { COLUMNS = 60, PITCH = 64 };
    uint8_t want[4 * PITCH] = {0}, got[4 * PITCH] = {0};
    PlanTensor t = {.name = "t",
                    .fmt = FMT_I8,
                    .quantised = true,
                    .is_static = true,
                    .scheme = {FMT_I8, FMT_F32, .block = {0, 0}}};
    const PlanLayout l = {.rows = 4, .cols = COLUMNS, .pitch = PITCH};
    for (int exact = 0; exact < 2; exact++) {
        Near n = {.is_exact = exact, .bound = near_bound(FMT_F32)};
        memset(got, 0, sizeof got);
        for (int i = COLUMNS; i < PITCH; i++)
            got[2 * PITCH + i] = 100;
        assert_true(near_tensor(&n, &t, &l, want, got));
        for (int i = 0; i < COLUMNS; i++)
            got[3 * PITCH + i] = 100;
        got[3 * PITCH] = got[3 * PITCH + 1] = 0; /* those that lay inside rows without padding */
        assert_false(near_tensor(&n, &t, &l, want, got));
    }
}

/* A zero point next to a tie moves all codes of its block with it. */
static void test_moved_zero(void **state)
{
    (void)state;
    enum { NUM = 64 };
    struct {
        uint8_t code[NUM];
        float scale[1];
        int32_t zero[1];
    } want = {.scale = {0.02f}, .zero = {40}}, got = {.scale = {0.02f}, .zero = {41}};
    const PlanTensor t = {.name = "t",
                          .fmt = FMT_U8,
                          .quantised = true,
                          .scheme = {FMT_U8, FMT_F32, .zero = ZERO_INT, .block = {1, 0}}};
    const PlanLayout l = {
        .rows = 1, .cols = NUM, .pitch = NUM, .scale_at = NUM, .zero_at = NUM + sizeof want.scale};
    Near n = {.bound = near_bound(FMT_F32)};
    for (int i = 0; i < NUM; i++)
        want.code[i] = (uint8_t)(3 * i), got.code[i] = (uint8_t)(3 * i + 1);
    assert_true(near_tensor(&n, &t, &l, (const uint8_t *)&want, (const uint8_t *)&got));
    got.zero[0] = 40;
    assert_false(near_tensor(&n, &t, &l, (const uint8_t *)&want, (const uint8_t *)&got));
}

/* .. and where all columns have one sum, codes stay at a limit and the zero point moves alone. */
static void test_moved_zero_of_one_sum(void **state)
{
    (void)state;
    enum { ROWS_OF = 15, NUM = 64 };
    struct {
        uint8_t code[ROWS_OF * NUM];
        float scale[ROWS_OF];
        int32_t zero[ROWS_OF];
    } want = {.code = {0}}, got;
    const PlanTensor t = {.name = "t",
                          .fmt = FMT_U8,
                          .quantised = true,
                          .scheme = {FMT_U8, FMT_F32, .zero = ZERO_INT, .block = {1, 0}}};
    const PlanLayout l = {.rows = ROWS_OF,
                          .cols = NUM,
                          .pitch = NUM,
                          .scale_at = ROWS_OF * NUM,
                          .zero_at = ROWS_OF * NUM + sizeof want.scale};
    Near n = {.bound = near_bound(FMT_F32)};
    for (int i = 0; i < ROWS_OF; i++)
        want.scale[i] = 0.002f, want.zero[i] = 255;
    got = want;
    got.zero[14] = 254;
    assert_true(near_tensor(&n, &t, &l, (const uint8_t *)&want, (const uint8_t *)&got));
    for (int i = 0; i < NUM; i++) /* of sums that differ it would move them all */
        want.code[14 * NUM + i] = got.code[14 * NUM + i] = (uint8_t)i;
    assert_false(near_tensor(&n, &t, &l, (const uint8_t *)&want, (const uint8_t *)&got));
}

/* .. or it lies next to a tie itself. */
static void test_tie_of_one_sum(void **state)
{
    (void)state;
    enum { ROWS_OF = 2, NUM = 64 };
    struct {
        uint8_t code[ROWS_OF * NUM];
        float scale[ROWS_OF];
    } want, got;
    const PlanTensor t = {.name = "t",
                          .fmt = FMT_U8,
                          .quantised = true,
                          .scheme = {FMT_U8, FMT_F32, .block = {1, 0}}};
    const PlanLayout l = {.rows = ROWS_OF, .cols = NUM, .pitch = NUM, .scale_at = ROWS_OF * NUM};
    Near n = {.bound = near_bound(FMT_F32)};
    memset(want.code, 255, sizeof want.code);
    want.scale[0] = want.scale[1] = 0.00177f;
    got = want;
    memset(got.code, 254, NUM);
    assert_true(near_tensor(&n, &t, &l, (const uint8_t *)&want, (const uint8_t *)&got));
    want.code[NUM - 1] = got.code[NUM - 1] = 3; /* other sums in its row: each counts */
    assert_false(near_tensor(&n, &t, &l, (const uint8_t *)&want, (const uint8_t *)&got));
}

/* One sum in all columns of the one row may be what cancellation left: all its scales are off by
 * one share, of which a row of many sums would average. */
static void test_cancelled_sum(void **state)
{
    (void)state;
    enum { NUM = 64, BLOCKS = 4 };
    struct {
        uint8_t code[NUM];
        float scale[BLOCKS];
    } want, got;
    const PlanTensor t = {.name = "t",
                          .fmt = FMT_U8,
                          .quantised = true,
                          .scheme = {FMT_U8, FMT_F32, .block = {1, NUM / BLOCKS}}};
    const PlanLayout l = {.rows = 1, .cols = NUM, .pitch = NUM, .scale_at = NUM};
    Near n = {.bound = 1e-6};
    memset(want.code, 255, sizeof want.code);
    for (int i = 0; i < BLOCKS; i++)
        want.scale[i] = 6.38e-5f;
    got = want;
    for (int i = 0; i < BLOCKS; i++)
        got.scale[i] *= 1.0021f;
    assert_true(near_tensor(&n, &t, &l, (const uint8_t *)&want, (const uint8_t *)&got));
    for (int i = 0; i < BLOCKS; i++) /* by more than the values themselves may be */
        got.scale[i] *= 1.1f;
    assert_false(near_tensor(&n, &t, &l, (const uint8_t *)&want, (const uint8_t *)&got));
    for (int i = 0; i < BLOCKS; i++) /* another sum in each block */
        want.scale[i] = 6.38e-5f + 1e-7f * (float)i, got.scale[i] = want.scale[i] * 1.0021f;
    assert_false(near_tensor(&n, &t, &l, (const uint8_t *)&want, (const uint8_t *)&got));
}

static void put_softmax(float *to, double off)
{
    for (int row = 0; row < ROWS; row++) {
        double value[COLS], most = -1e9, sum = 0;
        for (int i = 0; i < COLS; i++) {
            int at = row * COLS + i;
            value[i] = at * 37 % 101 + 50 * off * (at % 2 ? 1 : -1);
            most = value[i] > most ? value[i] : most;
        }
        for (int i = 0; i < COLS; i++)
            sum += exp(value[i] - most);
        for (int i = 0; i < COLS; i++)
            to[row * COLS + i] = (float)(exp(value[i] - most) / sum);
    }
}

/* Sums between 0 and 100 before a softmax may be off as sums may; not by more, nor may values that
 * no softmax made. */
static void test_softmax(void **state)
{
    (void)state;
    float want[2 * ROWS * COLS], got[2 * ROWS * COLS];
    const PlanTensor t = {.name = "t", .fmt = FMT_F32};
    PlanLayout l = {.rows = ROWS, .cols = COLS, .pitch = 4 * COLS};
    Near n = {.bound = near_bound(FMT_F32), .logits = near_bound(FMT_F32)};
    put_softmax(want, 0);
    put_softmax(got, 0.3e-5);
    assert_true(near_tensor(&n, &t, &l, (const uint8_t *)want, (const uint8_t *)got));
    assert_false(near(want, got, near_bound(FMT_F32)));
    for (int i = ROWS * COLS; i < 2 * ROWS * COLS; i++)
        want[i] = got[i] = NAN; /* of numbers that were too large */
    l.rows = 2 * ROWS;
    assert_true(near_tensor(&n, &t, &l, (const uint8_t *)want, (const uint8_t *)got));
    put_softmax(got, 3e-5);
    assert_false(near_tensor(&n, &t, &l, (const uint8_t *)want, (const uint8_t *)got));
}

/* Codes of 4 rows by 32 columns in blocks of 16, of which the first three are of a tail. */
enum { TAIL_ROWS = 4, TAIL_COLS = 32, TAIL_BLOCKS = 8, TAIL = 3 };
typedef struct TailCodes {
    uint8_t code[TAIL_ROWS * TAIL_COLS];
    float scale[TAIL_BLOCKS];
} TailCodes;

static void put_tail(TailCodes *to, uint8_t code, float scale)
{
    memset(to->code, code, TAIL * TAIL_COLS / 2);
    for (int i = 0; i < TAIL; i++)
        to->scale[i] = scale;
}

static void make_tail(TailCodes *ret, uint8_t code, float scale)
{
    memset(ret->code, 127, sizeof ret->code);
    for (int i = 0; i < TAIL_BLOCKS; i++)
        ret->scale[i] = 0.03f;
    put_tail(ret, code, scale);
}

static bool tails_near(FormatId scale_fmt, const TailCodes *want, const TailCodes *got)
{
    const PlanTensor t = {.name = "t",
                          .fmt = FMT_I8,
                          .quantised = true,
                          .scheme = {FMT_I8, scale_fmt, .block = {1, TAIL_COLS / 2}}};
    const PlanLayout l = {.rows = TAIL_ROWS,
                          .cols = TAIL_COLS,
                          .pitch = TAIL_COLS,
                          .scale_at = TAIL_ROWS * TAIL_COLS};
    Near n = {.bound = near_bound(FMT_F32)};
    return near_tensor(&n, &t, &l, (const uint8_t *)want, (const uint8_t *)got);
}

/* The tail of an activation may be 2^-24 or 0: then its block is all zeros, of scale 1. */
static void test_scale_of_zeros(void **state)
{
    (void)state;
    TailCodes want, got;
    make_tail(&want, 127, 6e-10f);
    make_tail(&got, 0, 1.0f);
    assert_true(tails_near(FMT_F32, &want, &got));
    for (int i = 0; i < TAIL; i++) /* no block of zeros */
        got.code[i * TAIL_COLS / 2] = 1;
    assert_false(tails_near(FMT_F32, &want, &got));
}

/* .. or so small that the least scale of f16 has no code for it: the numbers of both blocks are
 * zeros. */
static void test_least_scales(void **state)
{
    (void)state;
    TailCodes want, got;
    make_tail(&want, 0, 1.0f);
    make_tail(&got, 0, 0x1p-24f);
    assert_true(tails_near(FMT_F16, &want, &got));
    put_tail(&got, 0, 0x1p-20f); /* a scale that has codes for it */
    assert_false(tails_near(FMT_F16, &want, &got));
    put_tail(&got, 0, 0x1p-24f);
    for (int i = 0; i < TAIL; i++) /* no block of zeros */
        got.code[i * TAIL_COLS / 2] = 1;
    assert_false(tails_near(FMT_F16, &want, &got));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cast_before_store),
        cmocka_unit_test(test_few_values),
        cmocka_unit_test(test_flips),
        cmocka_unit_test(test_flips_of_many),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_next_to_overflow),
        cmocka_unit_test(test_scales),
        cmocka_unit_test(test_small_scales),
        cmocka_unit_test(test_cancelled),
        cmocka_unit_test(test_cancelled_gates),
        cmocka_unit_test(test_cancelled_corner),
        cmocka_unit_test(test_codes_of_floats),
        cmocka_unit_test(test_flipped_codes),
        cmocka_unit_test(test_padded_codes),
        cmocka_unit_test(test_moved_zero),
        cmocka_unit_test(test_moved_zero_of_one_sum),
        cmocka_unit_test(test_tie_of_one_sum),
        cmocka_unit_test(test_cancelled_sum),
        cmocka_unit_test(test_softmax),
        cmocka_unit_test(test_scale_of_zeros),
        cmocka_unit_test(test_least_scales),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
