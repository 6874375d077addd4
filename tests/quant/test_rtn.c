/* Quantised tensors: codes, scales and zero points of every format and granularity against
 * gen_vectors.py (numpy), and properties of the special blocks. */
#include "quant/quant.h"
#include "tests/quant/check.h"
#include <stdlib.h>
#include <string.h>

typedef struct RtnCase {
    Scheme scheme;
    int64_t rows, cols;
    FormatId src_fmt;
    int special;
    uint64_t seed, codes, scales, zeros;
    uint32_t outer;
} RtnCase;
#include "tests/quant/vectors_rtn.h"

/* Rows of zeros, denormals, extremes, NaN, infinities: one kind a row, as in gen_vectors.py. */
static float special_value(float x, int64_t row, int64_t col, int64_t cols)
{
    switch (row % 8) {
    case 1: return 0;
    case 2: return x * 0x1p-130f;
    case 3:
        if (col == cols - 1)
            return NUM_MAX_FINITE;
        return col == 0 ? -NUM_MAX_FINITE : x * NUM_MAX_FINITE;
    case 4: return col == 3 % cols ? NAN : x;
    case 5: return col == 2 % cols ? (row % 16 == 5 ? INFINITY : -INFINITY) : x;
    case 6: return col == 1 % cols ? -1000.0f : -0.0f;
    case 7: return x * 0x1p-124f;
    default: return x;
    }
}

static void *make_source(const RtnCase *c)
{
    size_t num = (size_t)(c->rows * c->cols);
    float *x = malloc(num * sizeof *x);
    void *src = malloc(num * 4);
    assert_true(x && src);
    for (size_t i = 0; i < num; i++) {
        int64_t row = (int64_t)i / c->cols, col = (int64_t)i % c->cols;
        x[i] = random_value(c->seed, i);
        if (c->special)
            x[i] = special_value(x[i], row, col, c->cols);
    }
    format_from_f32(c->src_fmt, x, src, num);
    free(x);
    return src;
}

static const char *case_name(const RtnCase *c)
{
    static char text[200];
    Arena *arena = arena_create();
    Sb sb;
    sb_init(&sb, arena);
    scheme_print(&sb, &c->scheme, false);
    sb_printf(&sb, ", %lld x %lld %s, seed %llu", (long long)c->rows, (long long)c->cols,
              format_info[c->src_fmt].name, (unsigned long long)c->seed);
    strncpy(text, sb.text, sizeof text - 1);
    arena_destroy(arena);
    return text;
}

static void check_case(const RtnCase *c)
{
    void *src = make_source(c);
    QTensor q;
    assert_null(scheme_problem(&c->scheme));
    assert_true(qtensor_init(&q, &c->scheme, c->rows, c->cols));
    quantize_rtn(&q, c->src_fmt, src);
    uint64_t scales = FNV_START, zeros = FNV_START;
    for (int64_t i = 0; i < q.row_blocks * q.col_blocks; i++) {
        uint32_t bits = plain_bits(q.scale[i]);
        int32_t zero = q.zero ? q.zero[i] : 0;
        scales = fnv_add(scales, &bits, 4);
        zeros = fnv_add(zeros, &zero, 4);
    }
    if (num_bits(q.outer) != c->outer)
        fail_msg("outer scale of %s", case_name(c));
    if (scales != c->scales)
        fail_msg("scales of %s", case_name(c));
    if (zeros != c->zeros)
        fail_msg("zero points of %s", case_name(c));
    if (fnv_add(FNV_START, q.codes, q.codes_bytes) != c->codes)
        fail_msg("codes of %s", case_name(c));
    qtensor_free(&q);
    free(src);
}

static void all_schemes_match_reference(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rtn_cases); i++)
        check_case(&rtn_cases[i]);
}

static bool has_infinity(const RtnCase *c, int64_t row)
{
    int kind = (int)(row % 8);
    return kind == 4 || kind == 5 || (kind == 3 && c->src_fmt == FMT_F16);
}

/* Every decoded element is near the element it came from; non-finite ones stay so. */
static void decoded_values_are_near(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rtn_cases); i++) {
        const RtnCase *c = &rtn_cases[i];
        size_t num = (size_t)(c->rows * c->cols);
        void *src = make_source(c);
        float *x = malloc(num * sizeof *x), *back = malloc(num * sizeof *back);
        double *wide = malloc(num * sizeof *wide);
        QTensor q;
        assert_true(x && back && wide && qtensor_init(&q, &c->scheme, c->rows, c->cols));
        format_to_f32(c->src_fmt, src, x, num);
        quantize_rtn(&q, c->src_fmt, src);
        qtensor_dequantize(&q, back);
        qtensor_dequantize_f64(&q, wide);
        for (size_t k = 0; k < num; k++) {
            int64_t row = (int64_t)k / c->cols, col = (int64_t)k % c->cols;
            assert_int_equal(plain_bits(back[k]), plain_bits(qtensor_value(&q, row, col)));
            if (isfinite(back[k]))
                assert_true(fabs(wide[k] - back[k]) <= 1e-6 * fabs(wide[k]) + 1e-44);
            bool alone = !c->special || (c->scheme.block[0] == 1 && !has_infinity(c, row));
            if (alone && !isfinite(back[k])) /* nothing but numbers from numbers */
                fail_msg("%s: %a became %a", case_name(c), (double)x[k], (double)back[k]);
            if (!isfinite(x[k]))
                assert_true(isnan(back[k])); /* no NaN or infinity becomes a number */
        }
        qtensor_free(&q);
        free(wide);
        free(back);
        free(x);
        free(src);
    }
}

static void quantise_row(QTensor *q, FormatId fmt, ZeroKind zero, const float *x, int64_t num)
{
    Scheme scheme = {.fmt = fmt, .scale_fmt = FMT_F32, .zero = zero, .block = {1, 0}};
    assert_true(qtensor_init(q, &scheme, 1, num));
    quantize_rtn(q, FMT_F32, x);
}

static void special_blocks(void **state)
{
    (void)state;
    const FormatId fmts[] = {FMT_I8, FMT_I4, FMT_E4M3, FMT_E5M2, FMT_E2M1, FMT_NF4, FMT_FP4};
    const float zeros[3] = {0, -0.0f, 0}, tiny[3] = {1e-40f, -1e-39f, 0};
    const float huge[3] = {NUM_MAX_FINITE, -NUM_MAX_FINITE, 1};
    for (size_t f = 0; f < COUNT_OF(fmts); f++) {
        QTensor q;
        quantise_row(&q, fmts[f], ZERO_NONE, zeros, 3);
        assert_true(q.scale[0] == 1);
        for (int i = 0; i < 3; i++)
            assert_true(qtensor_value(&q, 0, i) == 0);
        qtensor_free(&q);
        quantise_row(&q, fmts[f], ZERO_NONE, tiny, 3);
        assert_true(q.scale[0] == 1);
        assert_true(qtensor_value(&q, 0, 0) == 0);
        qtensor_free(&q);
        quantise_row(&q, fmts[f], ZERO_NONE, huge, 3);
        for (int i = 0; i < 2; i++)
            assert_true(fabsf(qtensor_value(&q, 0, i) / huge[i] - 1) < 1e-6f);
        qtensor_free(&q);
    }
}

static void asymmetric_range_holds_zero(void **state)
{
    (void)state;
    const float above[4] = {5, 6, 7, 9}, below[4] = {-5, -6, -7, -9}, both[4] = {-1, 0, 1, 3};
    const float *rows[] = {above, below, both};
    const FormatId fmts[] = {FMT_I8, FMT_U8, FMT_I4, FMT_U4};
    for (size_t f = 0; f < COUNT_OF(fmts); f++)
        for (int r = 0; r < 3; r++) {
            QTensor q;
            quantise_row(&q, fmts[f], ZERO_INT, rows[r], 4);
            int qmin = num_code_min((int)fmts[f], 1), qmax = num_code_max((int)fmts[f]);
            assert_in_range(q.zero[0] - qmin, 0, qmax - qmin);
            for (int i = 0; i < 4; i++) /* half a step, and half for the rounded zero point */
                assert_true(fabsf(qtensor_value(&q, 0, i) - rows[r][i]) <= q.scale[0] * 1.0001f);
            qtensor_free(&q);
        }
}

static void static_encoding_uses_given_scales(void **state)
{
    (void)state;
    Scheme scheme = {.fmt = FMT_I8, .scale_fmt = FMT_F32, .zero = ZERO_INT};
    float x[5] = {-1, 0, 0.5f, 100, NAN};
    QTensor q;
    assert_true(qtensor_init(&q, &scheme, 1, 5));
    scheme_params(&scheme, -1, 3, &q.scale[0], &q.zero[0]);
    assert_true(q.scale[0] == 4.0f / 255);
    assert_int_equal(q.zero[0], -64); /* -128 + 63.75 */
    quantize_static(&q, FMT_F32, x);
    const int want[5] = {-128, -64, -32, 127, -64}; /* a NaN cannot be kept: zero */
    for (int i = 0; i < 5; i++)
        assert_int_equal((int8_t)qtensor_code(&q, 0, i), want[i]);
    qtensor_free(&q);
}

static void sizes_are_checked(void **state)
{
    (void)state;
    Scheme scheme = {.fmt = FMT_I4, .scale_fmt = FMT_F32, .block = {1, 1}};
    QTensor q;
    assert_false(qtensor_init(&q, &scheme, INT64_MAX, INT64_MAX));
    assert_false(qtensor_init(&q, &scheme, -1, 4));
    assert_false(qtensor_init(&q, &scheme, INT64_C(1) << 40, INT64_C(1) << 22));
    assert_true(qtensor_init(&q, &scheme, 0, 7));
    assert_int_equal(q.codes_bytes, 0);
    quantize_rtn(&q, FMT_F32, NULL);
    qtensor_free(&q);
    Scheme whole = {.fmt = FMT_I8, .scale_fmt = FMT_F32};
    assert_true(qtensor_init(&q, &whole, 0, 7));
    quantize_rtn(&q, FMT_F32, NULL);
    assert_true(q.scale[0] == 1);
    qtensor_free(&q);
    qtensor_free(&q);
}

static void assert_same_values(const QTensor *a, const QTensor *b, const float *row_scale)
{
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t c = 0; c < a->cols; c++) {
            float want = qtensor_value(a, r, c);
            float got = qtensor_value(b, r, c) * (row_scale ? row_scale[r] : 1.0f);
            if (!(isnan(want) && isnan(got)))
                assert_float_equal(want, got, 0);
        }
}

/* Of all special rows, too: whole scales are taken into codes and out of them without a trace. */
static void whole_scales_go_in_and_out(void **state)
{
    (void)state;
    const int64_t width[] = {1, 1, 8, 8, 24, 24, 128, 128};
    for (size_t i = 0; i < COUNT_OF(width); i++) {
        Scheme sym = {.fmt = FMT_I4, .scale_fmt = FMT_I8, .block = {1, width[i]}}, asym = sym;
        asym.fmt = FMT_U4;
        asym.zero = ZERO_INT;
        RtnCase c = {.scheme = i % 2 ? asym : sym,
                     .rows = 48,
                     .cols = 200,
                     .src_fmt = FMT_F32,
                     .special = 1,
                     .seed = i};
        QTensor q, wide, narrow;
        void *src = make_source(&c);
        assert_true(qtensor_init(&q, &c.scheme, c.rows, c.cols));
        assert_true(qtensor_init(&wide, &whole_scales_wide, c.rows, c.cols));
        quantize_rtn(&q, FMT_F32, src);
        assert_true(qtensor_widen(&q, &wide));
        assert_same_values(&q, &wide, NULL);
        assert_true(qtensor_narrow(&wide, width[i], &narrow));
        for (int64_t at = 0; at < narrow.rows * narrow.col_blocks; at++)
            assert_true(narrow.scale[at] >= 1 && narrow.scale[at] <= WHOLE_SCALE_MOST);
        assert_same_values(&wide, &narrow, wide.scale);
        qtensor_free(&narrow);
        qtensor_free(&wide);
        qtensor_free(&q);
        free(src);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_schemes_match_reference),
        cmocka_unit_test(decoded_values_are_near),
        cmocka_unit_test(special_blocks),
        cmocka_unit_test(whole_scales_go_in_and_out),
        cmocka_unit_test(asymmetric_range_holds_zero),
        cmocka_unit_test(static_encoding_uses_given_scales),
        cmocka_unit_test(sizes_are_checked),
    };
    return cmocka_run_group_tests_name("rtn", tests, NULL, NULL);
}
