/* TILE_QUANTIZE: the same bits as quant/, which shares only the scalar steps, for every format,
 * block, symmetry and way to find scales; and values near the input. */
#include "check.h"
#include "quant/quant.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const FormatId formats[] = {FMT_I8,   FMT_U8,   FMT_I4,  FMT_U4, FMT_E4M3,
                                   FMT_E5M2, FMT_E2M1, FMT_NF4, FMT_FP4};
static const FormatId scale_formats[] = {FMT_F32, FMT_F32, FMT_F16, FMT_BF16, FMT_E8M0, FMT_E4M3};

static void fill(Rng *rng, float *x, int64_t rows, int64_t cols)
{
    static const float special[] = {0, -0.0f, 1e-40f, -1e-42f, 3e38f, NAN, INFINITY, -INFINITY};
    for (int64_t r = 0; r < rows; r++) {
        int kind = (int)rng_range(rng, 0, 7);
        double size = kind == 0   ? 0
                      : kind == 1 ? 1e-41
                      : kind == 2 ? 1e37
                                  : pow(10, rng_real(rng, -3, 3));
        for (int64_t c = 0; c < cols; c++)
            x[r * cols + c] = (float)(size * rng_normal(rng));
        if (kind == 3 && cols)
            x[r * cols + rng_range(rng, 0, cols - 1)] = RNG_PICK(rng, special);
    }
}

static Scheme random_scheme(Rng *rng, FormatId fmt)
{
    static const int64_t groups[] = {1, 3, 16, 32, 100, 128};
    Scheme s = {.fmt = fmt, .scale_fmt = RNG_PICK(rng, scale_formats)};
    int kind = (int)rng_range(rng, 0, 3);
    s.block[0] = kind == 0 ? 0 : kind == 3 ? rng_range(rng, 2, 9) : 1;
    s.block[1] = kind >= 2 ? RNG_PICK(rng, groups) : 0;
    if (ref_is_int(fmt) && s.scale_fmt != FMT_E8M0 && rng_range(rng, 0, 1))
        s.zero = ZERO_INT;
    s.outer = s.scale_fmt == FMT_E4M3 && !s.zero;
    return s;
}

static bool same_scale(float a, float b)
{
    return (isnan(a) && isnan(b)) || !memcmp(&a, &b, 4);
}

static void compare(const QTensor *q, const CpuTensor *t)
{
    if (t->outer && !same_scale(*t->outer_scale, q->outer))
        check_fail("outer scale %a, not %a", (double)*t->outer_scale, (double)q->outer);
    for (int64_t i = 0; i < q->row_blocks * q->col_blocks; i++) {
        if (!same_scale(t->scale[i], q->scale[i]))
            check_fail("scale %lld is %a, not %a", (long long)i, (double)t->scale[i],
                       (double)q->scale[i]);
        if (t->has_zero && t->zero[i] != q->zero[i])
            check_fail("zero point %lld is %d, not %d", (long long)i, t->zero[i], q->zero[i]);
    }
    for (int64_t r = 0; r < q->rows; r++)
        for (int64_t c = 0; c < q->cols; c++) {
            uint32_t code = ((const uint8_t *)t->data)[r * t->pitch + c];
            if (code != qtensor_code(q, r, c))
                check_fail("code %lld,%lld is %u, not %u", (long long)r, (long long)c, code,
                           qtensor_code(q, r, c));
        }
}

/* A uniform grid leaves at most half a step between a finite value and what is stored for it. */
static void compare_values(const QTensor *q, const float *x)
{
    for (int64_t r = 0; r < q->rows && ref_is_int(q->scheme.fmt); r++)
        for (int64_t c = 0; c < q->cols; c++) {
            double value = x[r * q->cols + c], got = qtensor_value(q, r, c);
            int64_t br = q->scheme.block[0], bc = q->scheme.block[1];
            float scale = q->scale[(br ? r / br : 0) * q->col_blocks + (bc ? c / bc : 0)];
            bool plain =
                q->scheme.scale_fmt == FMT_F32 && fabs(value) < 1e30 && fabs(value) > 1e-30;
            bool negative = q->scheme.zero == ZERO_NONE && value < 0 &&
                            (q->scheme.fmt == FMT_U8 || q->scheme.fmt == FMT_U4);
            if (plain && !negative && !isnan(scale) && !q->scheme.outer &&
                fabs(got - value) > 0.501 * (double)scale)
                check_fail("%.9g is stored as %.9g with steps of %.9g", value, got, (double)scale);
        }
}

static void check_one(Rng *rng, FormatId fmt)
{
    int64_t rows = rng_range(rng, 1, 12), cols = rng_range(rng, 1, 700);
    Scheme scheme = random_scheme(rng, fmt);
    bool is_static = rng_range(rng, 0, 3) == 0;
    if (scheme_problem(&scheme))
        return;
    float *x = guard_alloc((uint64_t)(rows * cols) * 4);
    fill(rng, x, rows, cols);
    QTensor q;
    if (!qtensor_init(&q, &scheme, rows, cols))
        abort();
    uint64_t grid = (uint64_t)(q.row_blocks * q.col_blocks);
    float *scale = guard_alloc(grid * 4), outer = 1;
    int32_t *zero = guard_alloc(grid * 4);
    quantize_rtn(&q, FMT_F32, x);
    compare_values(&q, x);
    if (is_static) { /* any scales serve: those of other data */
        float *y = malloc((size_t)(rows * cols) * 4);
        fill(rng, y, rows, cols);
        quantize_rtn(&q, FMT_F32, y);
        free(y);
        memcpy(scale, q.scale, grid * 4);
        if (scheme.zero)
            memcpy(zero, q.zero, grid * 4);
        outer = q.outer;
        quantize_static(&q, FMT_F32, x);
    }
    int64_t pitch = cols + 5;
    uint8_t *codes = guard_alloc((uint64_t)(rows * pitch));
    CpuTensor operand[2] = {{.fmt = FMT_F32,
                             .data = x,
                             .rows = rows,
                             .cols = cols,
                             .pitch = cols * 4,
                             .row_div = 1,
                             .row_mod = INT64_MAX,
                             .col_step = 1},
                            {.fmt = fmt,
                             .quantised = true,
                             .is_static = is_static,
                             .has_zero = scheme.zero != ZERO_NONE,
                             .scale_fmt = scheme.scale_fmt,
                             .outer = scheme.outer,
                             .data = codes,
                             .rows = rows,
                             .cols = cols,
                             .pitch = pitch,
                             .row_div = 1,
                             .row_mod = INT64_MAX,
                             .col_step = 1,
                             .block_rows = scheme.block[0],
                             .block_cols = scheme.block[1],
                             .scale = scale,
                             .zero = zero,
                             .outer_scale = &outer}};
    TileStep step[2] = {{.op = TILE_LOAD, .tensor = 0}, {.op = TILE_QUANTIZE, .tensor = 1}};
    CpuTile tile = {rows, cols, false, {step, 2}, operand, 2};
    int threads = (int)rng_range(rng, 1, 2);
    uint64_t bytes = cpu_tile_scratch(&tile, threads);
    void *scratch = guard_alloc(bytes);
    cpu_tile(&tile, scratch, threads);
    compare(&q, &operand[1]);
    check_same(codes, (uint64_t)(rows * pitch));
    if (check_failed())
        printf("# in %s %lldx%lld block {%lld,%lld} scale %s%s%s\n", ref_name(fmt), (long long)rows,
               (long long)cols, (long long)scheme.block[0], (long long)scheme.block[1],
               ref_name(scheme.scale_fmt), scheme.zero ? " asym" : "", is_static ? " static" : "");
    qtensor_free(&q);
    guard_free(x);
    guard_free(scale);
    guard_free(zero);
    guard_free(codes);
    guard_free(scratch);
}

static FormatId fmt_now;

static void check_format(Rng *rng, const CheckOptions *options)
{
    for (int i = 0; i < (options->full ? 1000 : 30) && !check_failed(); i++)
        check_one(rng, fmt_now);
}

void check_quantise(void)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        char name[32];
        fmt_now = formats[i];
        snprintf(name, sizeof name, "quantise %s", ref_name(fmt_now));
        check_all_isas(name, check_format);
    }
}
