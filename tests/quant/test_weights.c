/* Weight quantisers on a small layer against gen_weights.py (plain numpy), and what they are for:
 * less error at the layer's output than rounding to nearest. */
#include "quant/linalg.h"
#include "quant/quant.h"
#include "tests/quant/check.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct WeightCase {
    Scheme scheme;
    const char *by;
    bool act_order;
    double damp;
    uint64_t scales, zeros;
    const char *codes; /* two hexadecimal digits each */
} WeightCase;
#include "tests/quant/vectors_weights.h"

enum { ROWS = 21, COLS = 96, SAMPLES = 300 };
static float weight[ROWS * COLS], input[SAMPLES * COLS];
static LayerStats stats;
static double exact[COLS * COLS]; /* second moments */
static WeightStats seen;          /* of `stats`, with exact second moments as the references have */

static int make_layer(void **state)
{
    (void)state;
    for (int i = 0; i < ROWS * COLS; i++)
        weight[i] = random_value(11, (uint64_t)i);
    for (int i = 0; i < SAMPLES * COLS; i++)
        input[i] = random_value(12, (uint64_t)i);
    for (int r = 0; r < SAMPLES; r++) {
        float *x = input + r * COLS;
        for (int c = 1; c < COLS; c++)
            x[c] = x[c] + 0.5f * x[c - 1];
        for (int c = 0; c < COLS; c++)
            x[c] = c == 40 ? 0 : ldexpf(x[c], c % 5 - 2);
    }
    if (!layer_stats_init(&stats, COLS, true))
        return -1;
    layer_stats_observe(&stats, input, 100);
    layer_stats_observe(&stats, input + 100 * COLS, SAMPLES - 100);
    layer_stats_finish(&stats);
    for (int r = 0; r < SAMPLES; r++)
        for (int i = 0; i < COLS; i++)
            for (int j = 0; j < COLS; j++)
                exact[i * COLS + j] += (double)input[r * COLS + i] * input[r * COLS + j];
    seen = stats.seen;
    seen.hessian = exact;
    return 0;
}

static int drop_layer(void **state)
{
    (void)state;
    layer_stats_free(&stats);
    return 0;
}

static void statistics_match_plain_sums(void **state)
{
    (void)state;
    assert_int_equal(stats.seen.samples, SAMPLES);
    for (int i = 0; i < COLS; i++) {
        double mean = 0, max = 0;
        for (int r = 0; r < SAMPLES; r++) {
            double a = fabs((double)input[r * COLS + i]);
            mean += a / SAMPLES;
            max = a > max ? a : max;
        }
        assert_true(fabs(stats.seen.mean_abs[i] - mean) <= 1e-6 * mean);
        assert_true(stats.max_abs[i] == (float)max);
        for (int j = 0; j < COLS; j++) {
            double sum = exact[i * COLS + j],
                   most = sqrt(exact[i * COLS + i] * exact[j * COLS + j]);
            assert_true(fabs(stats.seen.hessian[i * COLS + j] - sum) <= 0x1p-18 * most);
        }
    }
}

static void statistics_skip_rows_that_are_not_finite(void **state)
{
    (void)state;
    const float x[3][2] = {{1, 2}, {NAN, 1}, {INFINITY, 1}};
    LayerStats s;
    assert_true(layer_stats_init(&s, 2, true));
    layer_stats_observe(&s, x[0], 3);
    layer_stats_finish(&s);
    assert_int_equal(s.seen.samples, 1);
    assert_true(s.seen.hessian[0] == 1 && s.seen.hessian[1] == 2 && s.seen.hessian[3] == 4);
    layer_stats_free(&s);
    layer_stats_free(&s);
    assert_false(layer_stats_init(&s, INT64_MAX, true));
}

/* One element as products.h promises it, step by step: 512 rows are scaled together, 64 summed in
 * f32. */
static double fused_sum(const float *x, int rows, int i, int j)
{
    double total = 0;
    for (int from = 0; from < rows; from += 512) {
        int end = from + 512 < rows ? from + 512 : rows, exponent;
        float amax = 0;
        double sum = 0;
        for (int k = from * COLS; k < end * COLS; k++)
            amax = fmaxf(amax, fabsf(x[k]));
        frexpf(amax, &exponent);
        for (int run = from; run < end; run += 64) {
            float acc = 0;
            for (int r = run; r < run + 64 && r < end; r++)
                acc = fmaf(ldexpf(x[r * COLS + i], -exponent), ldexpf(x[r * COLS + j], -exponent),
                           acc);
            sum += (double)acc;
        }
        total += ldexp(sum, 2 * exponent);
    }
    return total;
}

static void statistics_have_the_promised_bits(void **state)
{
    (void)state;
    static float many[1000 * COLS];
    LayerStats s;
    for (int i = 0; i < 1000 * COLS; i++)
        many[i] = input[i % (SAMPLES * COLS)] * (float)(1 + i / (SAMPLES * COLS));
    assert_true(layer_stats_init(&s, COLS, true));
    layer_stats_observe(&s, many, 1000);
    assert_true(layer_stats_finish(&s));
    for (int i = 0; i < COLS; i++)
        for (int j = 0; j <= i; j++)
            assert_true(s.seen.hessian[i * COLS + j] == fused_sum(many, 1000, i, j));
    layer_stats_free(&s);
}

/* The bits do not depend on how rows come, and large rows do not overflow. */
static void statistics_of_parts_and_of_large_values(void **state)
{
    (void)state;
    static float large[SAMPLES * COLS];
    LayerStats s, t;
    for (int i = 0; i < SAMPLES * COLS; i++)
        large[i] = ldexpf(input[i], 110);
    assert_true(layer_stats_init(&s, COLS, true) && layer_stats_init(&t, COLS, true));
    for (int r = 0; r < SAMPLES; r += 7)
        layer_stats_observe(&s, input + r * COLS, r + 7 < SAMPLES ? 7 : SAMPLES - r);
    layer_stats_observe(&t, large, SAMPLES);
    layer_stats_finish(&s);
    layer_stats_finish(&t);
    for (int i = 0; i < COLS * COLS; i++) {
        assert_true(s.seen.hessian[i] == stats.seen.hessian[i]);
        assert_true(ldexp(t.seen.hessian[i], -220) == stats.seen.hessian[i]);
    }
    layer_stats_free(&s);
    layer_stats_free(&t);
}

static void check_case(const WeightCase *c)
{
    const WeightQuantiser *by = weight_quantiser_find(c->by);
    assert_non_null(by);
    WeightArgs args = {.act_order = c->act_order, .damp = c->damp};
    QTensor q;
    assert_true(qtensor_init(&q, &c->scheme, ROWS, COLS));
    const char *why = by->run(&q, FMT_F32, weight, &seen, &args);
    assert_null(why);
    int differ = 0;
    for (int i = 0; i < ROWS * COLS; i++) {
        unsigned want;
        assert_int_equal(sscanf(c->codes + 2 * i, "%2x", &want), 1);
        differ += qtensor_code(&q, i / COLS, i % COLS) != want;
    }
    uint64_t scales = FNV_START, zeros = FNV_START;
    for (int64_t i = 0; i < q.row_blocks * q.col_blocks; i++) {
        int32_t zero = q.zero ? q.zero[i] : 0;
        scales = fnv_add(scales, &q.scale[i], 4);
        zeros = fnv_add(zeros, &zero, 4);
    }
    if (differ || scales != c->scales || zeros != c->zeros)
        fail_msg("%s %s%s: %d of %d codes differ; scales %s, zero points %s",
                 format_info[c->scheme.fmt].name, c->by, c->act_order ? " order=act" : "", differ,
                 ROWS * COLS, scales == c->scales ? "equal" : "differ",
                 zeros == c->zeros ? "equal" : "differ");
    qtensor_free(&q);
}

static void quantisers_match_reference(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(weight_cases); i++)
        check_case(&weight_cases[i]);
}

/* Squared error of the layer's output, or of the weight. */
static double layer_error(const char *name, const Scheme *scheme, bool at_output)
{
    static float back[ROWS * COLS];
    QTensor q;
    assert_true(qtensor_init(&q, scheme, ROWS, COLS));
    WeightArgs args = {0};
    assert_null(weight_quantiser_find(name)->run(&q, FMT_F32, weight, &seen, &args));
    qtensor_dequantize(&q, back);
    qtensor_free(&q);
    double error = 0;
    for (int r = 0; r < ROWS; r++) {
        const float *w = weight + r * COLS, *b = back + r * COLS;
        for (int s = 0; s < (at_output ? SAMPLES : COLS); s++) {
            double off = 0;
            for (int c = 0; c < COLS && at_output; c++)
                off += ((double)b[c] - w[c]) * input[s * COLS + c];
            if (!at_output)
                off = (double)b[s] - w[s];
            error += off * off;
        }
    }
    return error;
}

static void quantisers_lower_the_error(void **state)
{
    (void)state;
    const Scheme scheme = {.fmt = FMT_I4, .scale_fmt = FMT_F32, .zero = ZERO_INT, .block = {1, 32}};
    double rtn = layer_error("rtn", &scheme, true);
    double gptq = layer_error("gptq", &scheme, true);
    double awq = layer_error("awq", &scheme, true);
    fprintf(stderr, "# output error over rtn: gptq %.3f, awq %.3f\n", gptq / rtn, awq / rtn);
    assert_true(gptq < 0.8 * rtn);
    assert_true(awq < rtn);
    assert_true(layer_error("mse", &scheme, false) < layer_error("rtn", &scheme, false));
}

static void awq_scales_match_reference(void **state)
{
    (void)state;
    const Scheme scheme = {.fmt = FMT_I4, .scale_fmt = FMT_F32, .zero = ZERO_INT, .block = {1, 32}};
    float s[COLS];
    assert_null(awq_search_scales(&scheme, FMT_F32, weight, ROWS, COLS, &seen, s));
    for (int c = 0; c < COLS; c++) /* the mean itself may differ in its last bit */
        assert_true(fabsf(s[c] / num_float(awq_expected[c]) - 1) < 1e-5f);
}

static void smoothing_matches_reference(void **state)
{
    (void)state;
    float amax[COLS] = {0}, s[COLS];
    columns_amax(FMT_F32, weight, ROWS, COLS, amax);
    smooth_scales(stats.max_abs, amax, COLS, 0.5, s);
    for (int c = 0; c < COLS; c++)
        assert_true(fabsf(s[c] / num_float(smooth_expected[c]) - 1) < 1e-6f);
    assert_true(s[40] == 1); /* never any input */
}

static void missing_data_is_an_error(void **state)
{
    (void)state;
    const Scheme scheme = {.fmt = FMT_I4, .scale_fmt = FMT_F32, .block = {1, 32}};
    QTensor q;
    WeightArgs args = {0};
    WeightStats other = seen;
    other.cols = COLS - 1;
    assert_true(qtensor_init(&q, &scheme, ROWS, COLS));
    for (int i = 0; weight_quantisers[i]; i++) {
        const WeightQuantiser *by = weight_quantisers[i];
        const char *none = by->run(&q, FMT_F32, weight, NULL, &args);
        const char *wrong = by->run(&q, FMT_F32, weight, &other, &args);
        assert_true(by->needs_stats == (none != NULL));
        assert_true(by->needs_stats == (wrong != NULL));
    }
    double *bad = calloc(COLS * COLS, sizeof *bad);
    assert_non_null(bad);
    for (int i = 0; i < COLS; i++) /* no matrix of products has so large an off-diagonal */
        for (int j = 0; j < COLS; j++)
            bad[i * COLS + j] = i == j ? 1 : 3;
    other = seen;
    other.hessian = bad;
    assert_non_null(weight_quantiser_find("gptq")->run(&q, FMT_F32, weight, &other, &args));
    free(bad);
    qtensor_free(&q);
}

/* A block with a NaN decodes to NaN under every quantiser; its neighbours are numbers. */
static void nan_stays_in_its_block(void **state)
{
    (void)state;
    const Scheme scheme = {.fmt = FMT_I4, .scale_fmt = FMT_F32, .block = {1, 32}};
    float keep = weight[3 * COLS + 70];
    weight[3 * COLS + 70] = NAN;
    for (int i = 0; weight_quantisers[i]; i++) {
        QTensor q;
        WeightArgs args = {0};
        assert_true(qtensor_init(&q, &scheme, ROWS, COLS));
        assert_null(weight_quantisers[i]->run(&q, FMT_F32, weight, &seen, &args));
        assert_true(isnan(qtensor_value(&q, 3, 64)));
        assert_true(isfinite(qtensor_value(&q, 3, 63)));
        assert_true(isfinite(qtensor_value(&q, 4, 70)));
        qtensor_free(&q);
    }
    weight[3 * COLS + 70] = keep;
}

/* Sizes around the block sizes: L L^T gives the matrix back, L times its inverse the identity. */
static void factor_and_inverse(void **state)
{
    (void)state;
    const int sizes[] = {1, 2, 63, 64, 65, 130, 300};
    for (size_t k = 0; k < COUNT_OF(sizes); k++) {
        int n = sizes[k];
        size_t bytes = (size_t)n * (size_t)n * sizeof(double);
        double *b = malloc(bytes), *a = malloc(bytes), *l = malloc(bytes), *inv = malloc(bytes);
        assert_true(b && a && l && inv);
        for (int i = 0; i < n * n; i++)
            b[i] = random_value(k, (uint64_t)i);
        for (int i = 0; i < n; i++)
            for (int j = 0; j < n; j++) {
                double sum = i == j ? 0.1 * n : 0;
                for (int p = 0; p < n; p++)
                    sum += b[i * n + p] * b[j * n + p];
                a[i * n + j] = l[i * n + j] = sum;
            }
        assert_true(linalg_cholesky(l, n));
        linalg_invert_lower(l, inv, n);
        for (int i = 0; i < n; i++)
            for (int j = 0; j < n; j++) {
                double product = 0, identity = 0;
                for (int p = 0; p <= (i < j ? i : j); p++)
                    product += l[i * n + p] * l[j * n + p];
                for (int p = j; p <= i; p++)
                    identity += l[i * n + p] * inv[p * n + j];
                assert_true(fabs(product - a[i * n + j]) < 1e-10 * n);
                assert_true(fabs(identity - (i == j)) < 1e-10 * n);
                assert_true(j <= i || inv[i * n + j] == 0);
            }
        l[0] = -1;
        assert_false(linalg_cholesky(l, n));
        free(b);
        free(a);
        free(l);
        free(inv);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statistics_match_plain_sums),
        cmocka_unit_test(statistics_skip_rows_that_are_not_finite),
        cmocka_unit_test(statistics_have_the_promised_bits),
        cmocka_unit_test(statistics_of_parts_and_of_large_values),
        cmocka_unit_test(factor_and_inverse),
        cmocka_unit_test(quantisers_match_reference),
        cmocka_unit_test(quantisers_lower_the_error),
        cmocka_unit_test(awq_scales_match_reference),
        cmocka_unit_test(smoothing_matches_reference),
        cmocka_unit_test(missing_data_is_an_error),
        cmocka_unit_test(nan_stays_in_its_block),
    };
    return cmocka_run_group_tests_name("weights", tests, make_layer, drop_layer);
}
