/* Tile programs: every elementwise step with operands that vary along rows, columns, both or
 * neither; norms; integers; and whole epilogues of products. References in f64; and the same bits
 * under every instruction set. */
#include "check.h"
#include "numerics/tile.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum Shape { FULL, ROW, COLUMN, SCALAR } Shape;
static const FormatId plain[] = {FMT_F32, FMT_F16, FMT_BF16};

/* A random operand in memory, and its values as the launch sees them. */
typedef struct Input {
    CpuTensor tensor;
    double *value; /* [rows][cols] of the launch */
    float scale[64];
    int32_t zero[64];
} Input;

static CpuTensor tensor_make(FormatId fmt, int64_t rows, int64_t cols)
{
    int64_t size = ref_bits(fmt) >= 8 ? ref_bits(fmt) / 8 : 1, pitch = cols * size + 8;
    CpuTensor t = {.fmt = fmt,
                   .rows = rows,
                   .cols = cols,
                   .pitch = pitch,
                   .row_div = 1,
                   .row_mod = INT64_MAX,
                   .col_step = 1};
    t.data = guard_alloc((uint64_t)(rows * pitch));
    return t;
}

static double tensor_fill(Rng *rng, CpuTensor *t, int64_t row, int64_t col)
{
    char *at = (char *)t->data + row * t->pitch + col * ref_bits(t->fmt) / 8;
    if (t->fmt != FMT_I32)
        return (double)ref_random_element(rng, t->fmt, at);
    int32_t value = (int32_t)rng_next(rng);
    memcpy(at, &value, 4);
    return value;
}

static void input_make(Rng *rng, Input *in, FormatId fmt, Shape shape, int64_t rows, int64_t cols)
{
    int64_t div = 1, mod = INT64_MAX, stored = rows;
    if (shape == ROW || shape == SCALAR) {
        stored = 1;
        if (rng_range(rng, 0, 1))
            mod = 1;
    } else if (rng_range(rng, 0, 3) == 0) { /* leading dimensions that broadcast */
        div = rng_range(rng, 1, 3);
        mod = rng_range(rng, 1, 5);
        stored = mod;
    }
    bool by_col = shape == FULL || shape == ROW;
    in->tensor = tensor_make(fmt, stored, by_col ? cols : 1);
    in->tensor.col_step = by_col;
    in->tensor.row_div = div;
    in->tensor.row_mod = mod;
    double *seen = calloc((size_t)(stored * cols), sizeof *seen);
    for (int64_t r = 0; r < stored; r++)
        for (int64_t c = 0; c < in->tensor.cols; c++)
            seen[r * cols + c] = tensor_fill(rng, &in->tensor, r, c);
    in->value = calloc((size_t)(rows * cols), sizeof *in->value);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) {
            int64_t row = stored == 1 ? 0 : r / div % mod;
            in->value[r * cols + c] = seen[row * cols + (by_col ? c : 0)];
        }
    free(seen);
}

static void input_free(Input *in)
{
    guard_free(in->tensor.data);
    free(in->value);
}

static void run_tile(const TileStep *step, int num, CpuTensor *operand, int operands, int64_t rows,
                     int64_t cols, bool whole, int threads)
{
    CpuTile tile = {rows, cols, whole, {step, num}, operand, operands};
    void *scratch = guard_alloc(cpu_tile_scratch(&tile, threads));
    cpu_tile(&tile, scratch, threads);
    guard_free(scratch);
}

static double meaning(int op, double a, double b)
{
    (void)b;
    switch (op) {
#define ELEMENTWISE(ID, name, arity, f32_expr, f64_expr) \
    case TILE_##ID:                                      \
        return f64_expr;
#include "numerics/elementwise.def"
#undef ELEMENTWISE
    default: return NAN;
    }
}

static const char *op_name(int op)
{
    switch (op) {
#define ELEMENTWISE(ID, name, arity, f32_expr, f64_expr) \
    case TILE_##ID:                                      \
        return name;
#include "numerics/elementwise.def"
#undef ELEMENTWISE
    default: return "?";
    }
}

/* Within the rounding of the stored format and a few of f32. */
static void expect_near(const char *what, const CpuTensor *t, int64_t r, int64_t c, double want,
                        double slack)
{
    double got =
        ref_element(t->fmt, (const char *)t->data + r * t->pitch + c * ref_bits(t->fmt) / 8);
    double unit = t->fmt == FMT_F32 ? 0x1p-24 : t->fmt == FMT_F16 ? 0x1.01p-11 : 0x1.01p-8;
    double least = t->fmt == FMT_F16 ? 0x1p-25 : t->fmt == FMT_BF16 ? 0x1p-134 : 0x1p-149;
    if (t->fmt == FMT_F16 && fabs(want) > 65504)
        return;
    /* beyond the largest float, or so near it that rounding may go either way */
    if (fabs(want) > 0x1.ffffep127 && isinf(got) && (got > 0) == (want > 0))
        return;
    if (isnan(want) ? !isnan(got)
                    : !(got == want || fabs(got - want) <= unit * fabs(want) + slack + least))
        check_fail("%s at %lld,%lld is %.9g, not %.9g", what, (long long)r, (long long)c, got,
                   want);
}

static int op_now;

static void check_elementwise(Rng *rng, const CheckOptions *options)
{
    for (int i = 0; i < (options->full ? 400 : 20) && !check_failed(); i++) {
        int64_t rows = rng_range(rng, 1, 20), cols = rng_range(rng, 1, i % 8 ? 60 : 1100);
        Input a, b;
        input_make(rng, &a, RNG_PICK(rng, plain), (Shape)rng_range(rng, 0, 3), rows, cols);
        input_make(rng, &b, RNG_PICK(rng, plain), (Shape)rng_range(rng, 0, 3), rows, cols);
        CpuTensor out = tensor_make(RNG_PICK(rng, plain), rows, cols);
        uint8_t dst = (uint8_t)rng_range(rng, 0, 2); /* may overwrite an operand */
        TileStep step[] = {{.op = TILE_LOAD, .dst = 0, .tensor = 0},
                           {.op = TILE_LOAD, .dst = 1, .tensor = 1},
                           {.op = (uint16_t)op_now, .dst = dst, .src = {0, 1}},
                           {.op = TILE_STORE, .src = {dst}, .tensor = 2}};
        CpuTensor operand[] = {a.tensor, b.tensor, out};
        run_tile(step, 4, operand, 3, rows, cols, false, (int)rng_range(rng, 1, 2));
        for (int64_t j = 0; j < rows * cols; j++) {
            double want = meaning(op_now, a.value[j], b.value[j]);
            expect_near(op_name(op_now), &out, j / cols, j % cols, want, 8e-7 * fabs(want));
        }
        check_same(out.data, (uint64_t)(rows * out.pitch));
        input_free(&a);
        input_free(&b);
        guard_free(out.data);
    }
}

static double row_mean(const double *x, int64_t num, double centre, bool square)
{
    double sum = 0;
    for (int64_t i = 0; i < num; i++)
        sum += square ? (x[i] - centre) * (x[i] - centre) : x[i];
    return sum / (double)num;
}

static void norm_want(int op, const double *x, const double *gain, const double *bias, double eps,
                      int64_t num, double *want)
{
    double most = x[0], sum = 0, mean = op == TILE_LAYERNORM ? row_mean(x, num, 0, false) : 0;
    double scale = 1 / sqrt(row_mean(x, num, mean, true) + eps);
    for (int64_t i = 0; i < num; i++)
        most = x[i] > most ? x[i] : most;
    for (int64_t i = 0; i < num; i++)
        sum += exp(x[i] - most);
    for (int64_t i = 0; i < num; i++) {
        if (op == TILE_SOFTMAX)
            want[i] = exp(x[i] - most) / sum;
        else
            want[i] = (x[i] - mean) * scale * gain[i] + (op == TILE_LAYERNORM ? bias[i] : 0);
    }
}

static void check_norms(Rng *rng, const CheckOptions *options)
{
    static const int ops[] = {TILE_RMSNORM, TILE_LAYERNORM, TILE_SOFTMAX};
    for (int i = 0; i < (options->full ? 300 : 24) && !check_failed(); i++) {
        int op = ops[i % 3];
        int64_t rows = rng_range(rng, 1, 9), cols = rng_range(rng, 1, i % 4 ? 90 : 2500);
        float eps = 1e-5f;
        Input x, gain, bias;
        input_make(rng, &x, RNG_PICK(rng, plain), FULL, rows, cols);
        input_make(rng, &gain, RNG_PICK(rng, plain), ROW, rows, cols);
        input_make(rng, &bias, RNG_PICK(rng, plain), ROW, rows, cols);
        CpuTensor out = tensor_make(FMT_F32, rows, cols);
        TileStep step[] = {{.op = TILE_LOAD, .dst = 0, .tensor = 0},
                           {.op = TILE_LOAD, .dst = 1, .tensor = 1},
                           {.op = TILE_LOAD, .dst = 2, .tensor = 2},
                           {.op = (uint16_t)op, .dst = 0, .src = {0, 1, 2}, .imm = eps},
                           {.op = TILE_STORE, .src = {0}, .tensor = 3}};
        CpuTensor operand[] = {x.tensor, gain.tensor, bias.tensor, out};
        run_tile(step, 5, operand, 4, rows, cols, true, 2);
        double *want = calloc((size_t)cols, sizeof *want);
        for (int64_t r = 0; r < rows; r++) {
            norm_want(op, x.value + r * cols, gain.value, bias.value, (double)eps, cols, want);
            for (int64_t c = 0; c < cols; c++)
                expect_near(
                    "norm", &out, r, c, want[c],
                    4e-6 * (fabs(want[c]) +
                            (op == TILE_SOFTMAX ? 0 : fabs(gain.value[c]) + fabs(bias.value[c]))));
        }
        check_same(out.data, (uint64_t)(rows * out.pitch));
        free(want);
        input_free(&x);
        input_free(&gain);
        input_free(&bias);
        guard_free(out.data);
    }
}

/* What is loaded stays as it was where a step writes over it, and what is stored can be loaded. */
static void check_in_place(Rng *rng, const CheckOptions *options)
{
    for (int i = 0; i < (options->full ? 200 : 20) && !check_failed(); i++) {
        int64_t rows = rng_range(rng, 1, 20), cols = rng_range(rng, 1, i % 4 ? 60 : 1100);
        CpuTensor x = tensor_make(FMT_F32, rows, cols), sum = x, y = x, z = x;
        y.data = guard_alloc((uint64_t)(rows * y.pitch));
        z.data = guard_alloc((uint64_t)(rows * z.pitch));
        double *was = calloc((size_t)(rows * cols), sizeof *was);
        for (int64_t j = 0; j < rows * cols; j++)
            was[j] = tensor_fill(rng, &x, j / cols, j % cols);
        TileStep step[] = {{.op = TILE_LOAD, .dst = 0, .tensor = 0},
                           {.op = TILE_ADD, .dst = 1, .src = {0, 0}},
                           {.op = TILE_STORE, .src = {1}, .tensor = 1},
                           {.op = TILE_ADD, .dst = 1, .src = {0, 1}},
                           {.op = TILE_STORE, .src = {1}, .tensor = 2},
                           {.op = TILE_LOAD, .dst = 2, .tensor = 1},
                           {.op = TILE_ADD, .dst = 0, .src = {2, 1}},
                           {.op = TILE_STORE, .src = {0}, .tensor = 3}};
        CpuTensor operand[] = {x, sum, y, z};
        run_tile(step, 8, operand, 4, rows, cols, false, (int)rng_range(rng, 1, 2));
        for (int64_t j = 0; j < rows * cols; j++) {
            double slack = 1e-6 * fabs(was[j]);
            expect_near("twice", &x, j / cols, j % cols, 2 * was[j], slack);
            expect_near("three times", &y, j / cols, j % cols, 3 * was[j], slack);
            expect_near("five times", &z, j / cols, j % cols, 5 * was[j], slack);
        }
        check_same(z.data, (uint64_t)(rows * z.pitch));
        guard_free(x.data);
        guard_free(y.data);
        guard_free(z.data);
        free(was);
    }
}

static void check_integers(Rng *rng, const CheckOptions *options)
{
    for (int i = 0; i < (options->full ? 300 : 30) && !check_failed(); i++) {
        int64_t rows = rng_range(rng, 1, 12), cols = rng_range(rng, 1, 80);
        int op = (int)rng_range(rng, TILE_ADD_I32, TILE_MUL_I32);
        Input a, b;
        input_make(rng, &a, FMT_I32, (Shape)rng_range(rng, 0, 3), rows, cols);
        input_make(rng, &b, FMT_I32, (Shape)rng_range(rng, 0, 3), rows, cols);
        CpuTensor raw = tensor_make(FMT_I32, rows, cols), out = tensor_make(FMT_F32, rows, cols);
        TileStep step[] = {{.op = TILE_LOAD, .dst = 4, .tensor = 0},
                           {.op = TILE_LOAD, .dst = 1, .tensor = 1},
                           {.op = (uint16_t)op, .dst = 1, .src = {4, 1}},
                           {.op = TILE_STORE, .src = {1}, .tensor = 2},
                           {.op = TILE_I32_TO_F32, .dst = 1, .src = {1}},
                           {.op = TILE_STORE, .src = {1}, .tensor = 3}};
        CpuTensor operand[] = {a.tensor, b.tensor, raw, out};
        run_tile(step, 6, operand, 4, rows, cols, false, 1);
        for (int64_t j = 0; j < rows * cols; j++) {
            int64_t x = (int64_t)a.value[j], y = (int64_t)b.value[j];
            int64_t want = op == TILE_ADD_I32 ? x + y : op == TILE_SUB_I32 ? x - y : x * y;
            int32_t got;
            memcpy(&got, (char *)raw.data + j / cols * raw.pitch + j % cols * 4, 4);
            if (got != (int32_t)(uint32_t)(uint64_t)want)
                check_fail("integer %lld is %d, not %lld", (long long)j, got, (long long)want);
            expect_near("conversion", &out, j / cols, j % cols, got, 0);
        }
        input_free(&a);
        input_free(&b);
        guard_free(raw.data);
        guard_free(out.data);
    }
}

/* Dequantising loads, and sums of codes. */
static void check_codes(Rng *rng, const CheckOptions *options)
{
    static const FormatId fmts[] = {FMT_I8,   FMT_U8,   FMT_I4,  FMT_U4, FMT_E4M3,
                                    FMT_E5M2, FMT_E2M1, FMT_NF4, FMT_FP4};
    for (int i = 0; i < (options->full ? 500 : 45) && !check_failed(); i++) {
        FormatId fmt = fmts[i % 9];
        int64_t rows = rng_range(rng, 1, 7), cols = rng_range(rng, 1, 90);
        float scale[8 * 96], outer = 0.75f;
        int32_t zero[8 * 96];
        CpuTensor q = tensor_make(fmt, rows, cols), out = tensor_make(FMT_F32, rows, cols);
        CpuTensor sum = tensor_make(FMT_I32, rows, 1);
        q.quantised = q.is_static = true;
        q.has_zero = ref_is_int(fmt) && rng_range(rng, 0, 1);
        q.block_rows = rng_range(rng, 0, 3);
        q.block_cols = rng_range(rng, 0, 40);
        q.outer = rng_range(rng, 0, 1);
        q.outer_scale = &outer;
        q.scale = scale;
        q.zero = zero;
        for (int j = 0; j < 8 * 96; j++) {
            scale[j] = (float)rng_real(rng, 0.01, 2);
            zero[j] = (int32_t)rng_range(rng, 0, 7);
        }
        for (int64_t j = 0; j < rows * cols; j++)
            ((uint8_t *)q.data)[j / cols * q.pitch + j % cols] = (uint8_t)ref_random_code(rng, fmt);
        /* the sums are of the codes that the step before stored: stored again by a program */
        TileStep step[] = {{.op = TILE_LOAD, .dst = 0, .tensor = 0},
                           {.op = TILE_STORE, .src = {0}, .tensor = 1},
                           {.op = TILE_CODE_SUM, .tensor = 2, .tensor2 = 0}};
        CpuTensor operand[] = {q, out, sum};
        run_tile(step, ref_is_int(fmt) ? 3 : 2, operand, 3, rows, cols, true, 1);
        int64_t grid_cols = q.block_cols ? (cols + q.block_cols - 1) / q.block_cols : 1;
        for (int64_t r = 0; r < rows; r++) {
            int64_t total = 0;
            for (int64_t c = 0; c < cols; c++) {
                double code = ref_decode(fmt, ((uint8_t *)q.data)[r * q.pitch + c]);
                int64_t at = (q.block_rows ? r / q.block_rows : 0) * grid_cols +
                             (q.block_cols ? c / q.block_cols : 0);
                double value = (code - (q.has_zero ? zero[at] : 0)) * (double)scale[at] *
                               (q.outer ? (double)outer : 1);
                expect_near("dequantised", &out, r, c, value, 2e-7 * fabs(value));
                total += (int64_t)code;
            }
            int32_t got;
            memcpy(&got, (char *)sum.data + r * sum.pitch, 4);
            if (ref_is_int(fmt) && got != total)
                check_fail("sum of row %lld is %d, not %lld", (long long)r, got, (long long)total);
        }
        guard_free(q.data);
        guard_free(out.data);
        guard_free(sum.data);
    }
}

/* i8 x i8 with two segments: ((acc * sa) * sw + bias) -> gelu -> + residual -> bf16, and codes with
 * a static scale from the second. */
typedef struct Epilogue {
    int64_t m, n, k, cut;
    int8_t *a, *w;
    Input token, channel, bias, residual;
    CpuTensor out, codes;
    float step;
} Epilogue;

static void epilogue_check(const Epilogue *e)
{
    for (int64_t m = 0; m < e->m; m++)
        for (int64_t n = 0; n < e->n; n++) {
            int32_t sum = 0;
            for (int64_t k = 0; k < e->k; k++)
                sum += e->a[m * e->k + k] * e->w[n * e->k + k];
            double scaled = sum * e->token.value[m * e->n] * e->channel.value[n];
            if (n < e->cut) {
                double x = scaled + e->bias.value[n];
                double want = 0.5 * x * erfc(-x / sqrt(2)) + e->residual.value[m * e->cut + n];
                expect_near("epilogue", &e->out, m, n, want, 2e-6 * (fabs(x) + fabs(want)));
            } else {
                double units = scaled / (double)e->step;
                int8_t code = ((int8_t *)e->codes.data)[m * e->codes.pitch + n - e->cut];
                units = units > 127 ? 127 : units < -127 ? -127 : units;
                if (fabs(units - code) > 0.5001)
                    check_fail("code %lld,%lld is %d for %.9g", (long long)m, (long long)n, code,
                               units);
            }
        }
    check_same(e->out.data, (uint64_t)(e->m * e->out.pitch));
    check_same(e->codes.data, (uint64_t)(e->m * e->codes.pitch));
}

static void check_epilogue_one(Rng *rng)
{
    Epilogue e = {
        .m = rng_range(rng, 1, 60), .n = rng_range(rng, 2, 700), .k = rng_range(rng, 1, 90)};
    e.cut = rng_range(rng, 0, 2) ? rng_range(rng, 1, e.n - 1) : e.n / 2;
    e.a = guard_alloc((uint64_t)(e.m * e.k));
    e.w = guard_alloc((uint64_t)(e.n * e.k));
    for (int64_t i = 0; i < e.m * e.k; i++)
        e.a[i] = (int8_t)rng_next(rng);
    for (int64_t i = 0; i < e.n * e.k; i++)
        e.w[i] = (int8_t)rng_next(rng);
    e.step = 0.37f;
    input_make(rng, &e.token, FMT_F32, COLUMN, e.m, e.n);
    input_make(rng, &e.channel, FMT_F32, ROW, e.m, e.n);
    input_make(rng, &e.bias, FMT_BF16, ROW, e.m, e.cut);
    input_make(rng, &e.residual, FMT_BF16, FULL, e.m, e.cut);
    e.out = tensor_make(FMT_BF16, e.m, e.cut);
    e.codes = tensor_make(FMT_I8, e.m, e.n - e.cut);
    e.codes.quantised = e.codes.is_static = true;
    e.codes.scale = &e.step;
    CpuTensor second = e.channel.tensor; /* the columns of the second segment */
    second.data = (char *)second.data + 4 * e.cut;
    CpuTensor operand[] = {e.token.tensor, e.channel.tensor, e.bias.tensor, e.residual.tensor,
                           e.out,          second,           e.codes};
    TileStep first_steps[] = {
        {.op = TILE_ACC, .fmt = FMT_I32, .dst = 0}, {.op = TILE_I32_TO_F32, .dst = 0, .src = {0}},
        {.op = TILE_LOAD, .dst = 1, .tensor = 0},   {.op = TILE_MUL, .dst = 0, .src = {0, 1}},
        {.op = TILE_LOAD, .dst = 1, .tensor = 1},   {.op = TILE_MUL, .dst = 0, .src = {0, 1}},
        {.op = TILE_LOAD, .dst = 2, .tensor = 2},   {.op = TILE_ADD, .dst = 0, .src = {0, 2}},
        {.op = TILE_GELU, .dst = 0, .src = {0}},    {.op = TILE_LOAD, .dst = 2, .tensor = 3},
        {.op = TILE_ADD, .dst = 0, .src = {0, 2}},  {.op = TILE_STORE, .src = {0}, .tensor = 4}};
    TileStep second_steps[] = {{.op = TILE_ACC, .fmt = FMT_I32, .dst = 0},
                               {.op = TILE_I32_TO_F32, .dst = 0, .src = {0}},
                               {.op = TILE_LOAD, .dst = 1, .tensor = 0},
                               {.op = TILE_MUL, .dst = 0, .src = {0, 1}},
                               {.op = TILE_LOAD, .dst = 1, .tensor = 5},
                               {.op = TILE_MUL, .dst = 0, .src = {0, 1}},
                               {.op = TILE_QUANTIZE, .src = {0}, .tensor = 6}};
    CpuSegment segment[] = {{0, e.cut, {first_steps, 12}}, {e.cut, e.n, {second_steps, 7}}};
    CpuGemm g = {
        .m = e.m, .segment = segment, .num_segments = 2, .operand = operand, .num_operands = 7};
    g.spec = (CpuPackSpec){
        .fmt = FMT_I8, .act_fmt = FMT_I8, .n = e.n, .k = e.k, .parts = 1, .block_rows = 1};
    g.a = (CpuTensor){.fmt = FMT_I8,
                      .quantised = true,
                      .data = e.a,
                      .rows = e.m,
                      .cols = e.k,
                      .pitch = e.k,
                      .row_div = 1,
                      .row_mod = INT64_MAX,
                      .col_step = 1,
                      .block_rows = 1};
    void *packed = guard_alloc(cpu_pack_bytes(&g.spec));
    cpu_pack(&g.spec, e.w, e.k, NULL, NULL, NULL, packed);
    g.packed = packed;
    int threads = (int)rng_range(rng, 1, 2);
    void *scratch = guard_alloc(cpu_gemm_scratch(&g, threads));
    cpu_gemm(&g, scratch, threads);
    epilogue_check(&e);
    Input *inputs[] = {&e.token, &e.channel, &e.bias, &e.residual};
    for (int i = 0; i < 4; i++)
        input_free(inputs[i]);
    void *memory[] = {packed, scratch, e.out.data, e.codes.data, e.a, e.w};
    for (int i = 0; i < 6; i++)
        guard_free(memory[i]);
}

static void check_epilogues(Rng *rng, const CheckOptions *options)
{
    for (int i = 0; i < (options->full ? 200 : 10) && !check_failed(); i++)
        check_epilogue_one(rng);
}

void check_tile(void)
{
    char name[40];
#define ELEMENTWISE(ID, text, arity, f32_expr, f64_expr) \
    op_now = TILE_##ID;                                  \
    snprintf(name, sizeof name, "elementwise %s", text); \
    check_all_isas(name, check_elementwise);
#include "numerics/elementwise.def"
#undef ELEMENTWISE
    check_all_isas("norms", check_norms);
    check_all_isas("in place", check_in_place);
    check_all_isas("integers", check_integers);
    check_all_isas("codes", check_codes);
    check_all_isas("epilogues", check_epilogues);
}
