/* Functions against the C library in f64, in units of the last place; the same bits for every
 * instruction set; norms and softmax against f64. `test_numerics STEP` visits every STEPth float.
 */
#include "numerics/rows.h"
#include "tests/quant/check.h"
#include "tests/quant/widths.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned step = 40009;

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* Distance in units of the last place of want as an f32 (denormals: 2^-149). */
static double ulps(float got, double want)
{
    if (want != want || got != got)
        return want != want && got != got ? 0 : 1e30;
    if (isinf((float)want) || isinf(got))
        return isinf((float)want) && isinf(got) && !signbit(want) == !signbit(got) ? 0 : 1e20;
    int exponent = want == 0 ? -200 : ilogb(want);
    exponent = exponent < -126 ? -126 : exponent;
    return fabs((double)got - want) / ldexp(1, exponent - 23);
}

#define FUNCTION(name, f64_expr)                     \
    static float name##_got(float a)                 \
    {                                                \
        return num_##name(a);                        \
    }                                                \
    static double name##_want(double a)              \
    {                                                \
        return f64_expr;                             \
    }                                                \
    static void name##_is_within_4_ulp(void **state) \
    {                                                \
        (void)state;                                 \
        check_ulps(#name, name##_got, name##_want);  \
    }

static void check_ulps(const char *name, float (*got)(float), double (*want)(double))
{
    double worst = 0;
    float at = 0;
    for (uint64_t bits = 0; bits < UINT64_C(1) << 32; bits += step) {
        float x = num_float((uint32_t)bits);
        double off = ulps(got(x), want(x));
        if (off > worst) {
            worst = off;
            at = x;
        }
    }
    const float edge[] = {0,      -0.0f,    INFINITY,       -INFINITY,       NAN,
                          1,      -1,       NUM_MAX_FINITE, -NUM_MAX_FINITE, NUM_MIN_NORMAL,
                          1e-45f, 88.7228f, 88.7229f,       -87.34f,         -103.97f,
                          -104,   -120,     9.01f,          -9.01f,          0.625f,
                          15,     -13.2f,   -14.2f};
    for (size_t i = 0; i < COUNT_OF(edge); i++) {
        double off = ulps(got(edge[i]), want(edge[i]));
        if (off > worst) {
            worst = off;
            at = edge[i];
        }
    }
    fprintf(stderr, "# %-9s at most %.3f ulp, at %a\n", name, worst, (double)at);
    if (worst > 4)
        fail_msg("%s(%a) = %a, want %a", name, (double)at, (double)got(at), want((double)at));
}

FUNCTION(exp, exp(a))
FUNCTION(tanh, tanh(a))
FUNCTION(sigmoid, a < -700 ? 0.0 : 1 / (1 + exp(-a)))
FUNCTION(silu, a < -700 ? -0.0 : a / (1 + exp(-a)))
FUNCTION(gelu, a < -38 ? -0.0 : 0.5 * a * erfc(-a * 0.70710678118654752440))
FUNCTION(gelu_tanh,
         a < -30 ? -0.0 : a / (1 + exp(-2 * 0.79788456080286535588 * (a + 0.044715 * a * a * a))))
FUNCTION(relu, a > 0 || a != a ? a : 0)
FUNCTION(sqrt, sqrt(a))
FUNCTION(round, nearbyint(a))

/* elementwise.def's own f64 column stays meaningful at the infinities. */
static void f64_column_matches_f32_column(void **state)
{
    (void)state;
    const float edge[] = {0, -0.0f, 1.5f, -2.5f, INFINITY, -INFINITY, NAN, 1e30f, -1e30f, -50};
#define ELEMENTWISE(ID, text, arity, f32_expr, f64_expr)                         \
    for (size_t i = 0; i < COUNT_OF(edge); i++) {                                \
        float got, x = edge[i];                                                  \
        double want;                                                             \
        {                                                                        \
            float a = x, b = 3;                                                  \
            got = f32_expr;                                                      \
            (void)a, (void)b;                                                    \
        }                                                                        \
        {                                                                        \
            double a = (double)x, b = 3;                                         \
            want = f64_expr;                                                     \
            (void)a, (void)b;                                                    \
        }                                                                        \
        if (ulps(got, want) > 8)                                                 \
            fail_msg("%s(%a): %a, want %a", text, (double)x, (double)got, want); \
    }
#include "numerics/elementwise.def"
#undef ELEMENTWISE
}

/* Widths -------------------------------------------------------------------------------------- */

static const Width *other_widths[3]; /* what this machine can run beside width_base */

static void find_widths(void)
{
    int num = 0;
#ifdef WIDTHS_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        other_widths[num++] = &width_avx2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        other_widths[num++] = &width_avx512;
#endif
    other_widths[num] = NULL;
}

static int is_nan_bits(uint32_t bits)
{
    return (bits & 0x7fffffff) > 0x7f800000;
}

static void every_width_gives_the_same_bits(void **state)
{
    (void)state;
    enum { NUM = 1009 };
    float x[NUM];
    uint32_t base[NUM], other[NUM];
    uint64_t rounds = (UINT64_C(1) << 32) / step / NUM + 1;
    for (uint64_t round = 0; round < rounds; round++) {
        for (int i = 0; i < NUM; i++) /* half of them where functions are not flat */
            x[i] = i % 2 ? num_float((uint32_t)splitmix(round, (uint64_t)i))
                         : random_value(round, (uint64_t)i) * 20;
        for (int which = 0; which < NUM_MAPS; which++) {
            width_base.map(which, base, x, NUM);
            for (int w = 0; other_widths[w]; w++) {
                other_widths[w]->map(which, other, x, NUM);
                for (int i = 0; i < NUM; i++)
                    if (base[i] != other[i] && !(is_nan_bits(base[i]) && is_nan_bits(other[i])))
                        fail_msg("step %d of %a: 0x%08x, %s 0x%08x", which, (double)x[i], base[i],
                                 other_widths[w]->name, other[i]);
            }
        }
    }
}

/* Rows ---------------------------------------------------------------------------------------- */

enum { MAX_ROW = 5000 };
static const int row_sizes[] = {1, 2, 3, 17, 64, 300, 511, 512, 513, 1023, 1024, 1025, 2048, 4999};

static void fill(float *x, int num, uint64_t seed, float scale)
{
    for (int i = 0; i < num; i++)
        x[i] = random_value(seed, (uint64_t)i) * scale;
}

static void rows_do_not_depend_on_width(void **state)
{
    (void)state;
    static float x[MAX_ROW], w[MAX_ROW], b[MAX_ROW], base[MAX_ROW], other[MAX_ROW];
    for (size_t s = 0; s < COUNT_OF(row_sizes); s++) {
        int num = row_sizes[s];
        fill(x, num, 3 * s, 8);
        fill(w, num, 3 * s + 1, 2);
        fill(b, num, 3 * s + 2, 1);
        for (int which = 0; which < 3; which++) {
            width_base.row(which, base, x, w, b, num);
            for (int k = 0; other_widths[k]; k++) {
                other_widths[k]->row(which, other, x, w, b, num);
                assert_memory_equal(base, other, (size_t)num * sizeof *base);
            }
        }
    }
}

/* The order of docs/numerics.md, written down once more, plainly. */
static float plain_sum(const float *x, int num)
{
    float lane[1024] = {0};
    for (int i = 0; i < num; i++)
        lane[i % 1024] += x[i];
    for (int half = 512; half; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] += lane[i + half];
    return lane[0];
}

static void sums_keep_the_documented_order(void **state)
{
    (void)state;
    static float x[MAX_ROW], sq[MAX_ROW];
    for (size_t s = 0; s < COUNT_OF(row_sizes); s++) {
        int num = row_sizes[s];
        fill(x, num, 100 + s, 100);
        assert_true(num_row_sum(x, num) == plain_sum(x, num));
        for (int i = 0; i < num; i++) /* a power of two's square is exact: fma or not is the same */
            sq[i] = x[i] = ldexpf(x[i] < 0 ? -1 : 1, (int)(splitmix(s, (uint64_t)i) % 12));
        for (int i = 0; i < num; i++)
            sq[i] *= sq[i];
        assert_true(num_row_sum_sq(x, 0, num) == plain_sum(sq, num));
        float max = x[0];
        for (int i = 0; i < num; i++)
            max = x[i] > max ? x[i] : max;
        assert_true(num_row_max(x, num) == max);
    }
}

static void rows_are_near_f64(void **state)
{
    (void)state;
    static float x[MAX_ROW], w[MAX_ROW], b[MAX_ROW], got[3][MAX_ROW];
    for (size_t s = 0; s < COUNT_OF(row_sizes); s++) {
        int num = row_sizes[s];
        fill(x, num, 200 + s, 30);
        fill(w, num, 300 + s, 2);
        fill(b, num, 400 + s, 1);
        double sum = 0, sq = 0, var = 0, max = -INFINITY, total = 0;
        for (int i = 0; i < num; i++) {
            sum += x[i];
            sq += (double)x[i] * x[i];
            max = x[i] > max ? x[i] : max;
        }
        for (int i = 0; i < num; i++) {
            var += (x[i] - sum / num) * (x[i] - sum / num);
            total += exp(x[i] - max);
        }
        for (int which = 0; which < 3; which++)
            width_base.row(which, got[which], x, w, b, num);
        for (int i = 0; i < num; i++) {
            double rms = x[i] / sqrt(sq / num + (double)1e-5f) * w[i];
            double layer = (x[i] - sum / num) / sqrt(var / num + (double)1e-5f) * w[i] + b[i];
            double soft = exp(x[i] - max) / total;
            assert_true(fabs(got[0][i] - rms) <= 1e-6 * fabs(rms) + 1e-30);
            assert_true(fabs(got[1][i] - layer) <= 4e-6 * (fabs(layer) + fabs((double)b[i]) + 1));
            assert_true(fabs(got[2][i] - soft) <= 4e-6 * soft + 1e-44);
        }
    }
}

static void softmax_of_odd_rows(void **state)
{
    (void)state;
    float y[3];
    const float low[3] = {-INFINITY, 0, -INFINITY}, nan[3] = {0, NAN, 1};
    const float none[3] = {-INFINITY, -INFINITY, -INFINITY}, big[3] = {1e38f, -1e38f, 1e38f};
    num_row_softmax(y, low, 3);
    assert_true(y[0] == 0 && y[1] == 1 && y[2] == 0);
    num_row_softmax(y, big, 3);
    assert_true(y[0] == 0.5f && y[1] == 0 && y[2] == 0.5f);
    num_row_softmax(y, nan, 3);
    assert_true(isnan(y[0]) && isnan(y[1]) && isnan(y[2]));
    num_row_softmax(y, none, 3);
    assert_true(isnan(y[0]) && isnan(y[1]) && isnan(y[2]));
}

int main(int argc, char **argv)
{
    if (argc > 1)
        step = (unsigned)strtoul(argv[1], NULL, 10);
    find_widths();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp_is_within_4_ulp),
        cmocka_unit_test(tanh_is_within_4_ulp),
        cmocka_unit_test(sigmoid_is_within_4_ulp),
        cmocka_unit_test(silu_is_within_4_ulp),
        cmocka_unit_test(gelu_is_within_4_ulp),
        cmocka_unit_test(gelu_tanh_is_within_4_ulp),
        cmocka_unit_test(relu_is_within_4_ulp),
        cmocka_unit_test(round_is_within_4_ulp),
        cmocka_unit_test(sqrt_is_within_4_ulp),
        cmocka_unit_test(f64_column_matches_f32_column),
        cmocka_unit_test(every_width_gives_the_same_bits),
        cmocka_unit_test(rows_do_not_depend_on_width),
        cmocka_unit_test(sums_keep_the_documented_order),
        cmocka_unit_test(rows_are_near_f64),
        cmocka_unit_test(softmax_of_odd_rows),
    };
    return cmocka_run_group_tests_name("numerics", tests, NULL, NULL);
}
