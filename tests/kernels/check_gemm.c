/* Products: every pair of formats, scheme and symmetry, at small awkward shapes. Integer results
 * and their scaling in the main loop must be exact; float ones close to f64. */
#include "check.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const FormatId formats[] = {FMT_F32, FMT_F16, FMT_BF16, FMT_I8, FMT_U8, FMT_I4, FMT_U4,
                                   FMT_E4M3, FMT_E5M2, FMT_E2M1, FMT_NF4, FMT_FP4,
                                   /* of weights only */
                                   FMT_I2, FMT_I3, FMT_I5, FMT_I6, FMT_I7, FMT_U1, FMT_U2, FMT_U3,
                                   FMT_U5, FMT_U6, FMT_U7, FMT_TERNARY, FMT_BINARY};
#define NUM_KINDS ((int)(sizeof formats / sizeof *formats))
#define NUM_ACTS  12

/* One operand: elements or codes, a grid of scales, and what they mean. */
typedef struct Operand {
    FormatId fmt;
    int64_t rows, cols, block_rows, block_cols, grid_cols;
    bool quantised, has_zero, outer;
    FormatId scale_fmt;
    double *value;  /* [rows][cols] code or element as it is */
    double *plain;  /* [rows][cols] without the zero point */
    double *scaled; /* [rows][cols] that times the scale */
    uint32_t *code; /* [rows][cols] */
    float *scale;
    int32_t *zero;
    float outer_scale;
    TableKind kind; /* of a codebook: */
    float *table;   /* the values of its codes, a table after another */
} Operand;

static int64_t blocks(int64_t num, int64_t block)
{
    return block > 0 ? (num + block - 1) / block : 1;
}

static void *make(int64_t num, size_t size)
{
    void *memory = calloc((size_t)(num ? num : 1), size);
    if (!memory)
        abort();
    return memory;
}

static const FormatId scale_formats[] = {FMT_F32, FMT_F16, FMT_BF16, FMT_E4M3, FMT_E8M0};

/* A value of the format between about 1/64 and 1/2. */
static float random_scale(Rng *rng, FormatId fmt)
{
    switch (fmt) {
    case FMT_F16: return ldexpf((float)rng_range(rng, 1024, 2047), -(int)rng_range(rng, 11, 16));
    case FMT_BF16: return ldexpf((float)rng_range(rng, 128, 255), -(int)rng_range(rng, 9, 13));
    case FMT_E4M3: return ldexpf((float)rng_range(rng, 8, 15), -(int)rng_range(rng, 5, 9));
    case FMT_E8M0: return ldexpf(1, -(int)rng_range(rng, 1, 6));
    default: return (float)rng_real(rng, 0.01, 0.3);
    }
}

static Operand operand_random(Rng *rng, FormatId fmt, int64_t rows, int64_t cols, bool is_act)
{
    static const int64_t groups[] = {1, 3, 4, 8, 16, 32, 48, 64, 100, 128};
    Operand o = {.fmt = fmt, .rows = rows, .cols = cols, .outer_scale = 1};
    o.quantised = ref_bits(fmt) <= 8;
    if (o.quantised) {
        int kind = (int)rng_range(rng, 0, 3);
        o.block_rows = kind == 0 ? 0 : kind == 3 && !is_act ? rng_range(rng, 2, 20) : 1;
        o.block_cols = kind >= 2 ? RNG_PICK(rng, groups) : 0;
        o.has_zero = ref_is_int(fmt) && rng_range(rng, 0, 1);
        o.outer = is_act && rng_range(rng, 0, 7) == 0;
        o.scale_fmt = is_act ? FMT_F32 : RNG_PICK(rng, scale_formats);
    }
    if (o.outer)
        o.outer_scale = (float)rng_real(rng, 0.5, 2);
    o.grid_cols = blocks(cols, o.block_cols);
    int64_t grid = blocks(rows, o.block_rows) * o.grid_cols;
    o.value = make(rows * cols, sizeof *o.value);
    o.code = make(rows * cols, sizeof *o.code);
    o.scale = make(grid, sizeof *o.scale);
    o.zero = make(grid, sizeof *o.zero);
    bool is_usual = rng_range(rng, 0, 1);
    for (int64_t i = 0; i < rows * cols; i++) {
        if (o.quantised) {
            o.code[i] = ref_random_code(rng, fmt);
            o.value[i] = ref_decode(fmt, o.code[i]);
            continue;
        }
        do /* patterns of bits are mostly of tiny values */
            o.value[i] = ref_random_element(rng, fmt, &o.code[i]);
        while (is_usual && o.value[i] != 0 && fabs(o.value[i]) < 0x1p-20);
    }
    for (int64_t i = 0; i < grid; i++) {
        o.scale[i] = random_scale(rng, o.scale_fmt);
        if (ref_is_int(fmt)) /* one of its codes */
            o.zero[i] = (int32_t)ref_decode(fmt, ref_random_code(rng, fmt));
    }
    return o;
}

static void operand_set(Operand *o, int64_t row, int64_t col, uint32_t code)
{
    o->code[row * o->cols + col] = code;
    o->value[row * o->cols + col] = ref_decode(o->fmt, code);
}

/* The operand's codes become places in random tables. */
static void operand_tables(Rng *rng, Operand *o, TableKind kind, int64_t codes)
{
    int64_t grid_rows = blocks(o->rows, o->block_rows);
    int64_t tables = kind == TABLE_TENSOR ? 1
                     : kind == TABLE_ROW  ? o->rows
                                          : grid_rows * o->grid_cols;
    o->kind = kind;
    o->has_zero = o->outer = false;
    o->outer_scale = 1;
    o->table = make(tables * codes, sizeof *o->table);
    for (int64_t i = 0; i < tables * codes; i++)
        o->table[i] = (float)rng_real(rng, -2, 2);
    for (int64_t row = 0; row < o->rows; row++)
        for (int64_t col = 0; col < o->cols; col++) {
            int64_t grid = (o->block_rows > 0 ? row / o->block_rows : 0) * o->grid_cols +
                           (o->block_cols > 0 ? col / o->block_cols : 0);
            int64_t at = kind == TABLE_TENSOR ? 0 : kind == TABLE_ROW ? row : grid;
            uint32_t code = o->code[row * o->cols + col];
            o->value[row * o->cols + col] = (double)o->table[at * codes + code];
        }
}

static void operand_free(Operand *o)
{
    free(o->table);
    free(o->value);
    free(o->plain);
    free(o->scaled);
    free(o->code);
    free(o->scale);
    free(o->zero);
}

static int64_t operand_grid(const Operand *o, int64_t row, int64_t col)
{
    return (o->block_rows > 0 ? row / o->block_rows : 0) * o->grid_cols +
           (o->block_cols > 0 ? col / o->block_cols : 0);
}

static float operand_scale(const Operand *o, int64_t row, int64_t col)
{
    if (!o->quantised)
        return 1;
    float scale = o->scale[operand_grid(o, row, col)];
    return o->outer ? scale * o->outer_scale : scale;
}

static double operand_zero(const Operand *o, int64_t row, int64_t col)
{
    return o->has_zero ? o->zero[operand_grid(o, row, col)] : 0;
}

/* What the elements mean, once: finding grid cells takes longer than the sums of many elements. */
static void operand_decode(Operand *o)
{
    o->plain = make(o->rows * o->cols, sizeof *o->plain);
    o->scaled = make(o->rows * o->cols, sizeof *o->scaled);
    for (int64_t row = 0; row < o->rows; row++)
        for (int64_t col = 0; col < o->cols; col++) {
            int64_t at = row * o->cols + col;
            o->plain[at] = o->value[at] - operand_zero(o, row, col);
            o->scaled[at] = o->plain[at] * (double)operand_scale(o, row, col);
        }
}

/* The operand as the kernels take activations: one code a byte. */
static void *operand_as_act(const Operand *o, int64_t *pitch)
{
    int64_t size = ref_bits(o->fmt) >= 8 ? ref_bits(o->fmt) / 8 : 1;
    *pitch = o->cols * size + (o->fmt == FMT_F32 ? 4 : 3);
    if (size == 2)
        *pitch += *pitch % 2;
    char *data = guard_alloc((uint64_t)(o->rows * *pitch));
    for (int64_t r = 0; r < o->rows; r++)
        for (int64_t c = 0; c < o->cols; c++)
            memcpy(data + r * *pitch + c * size, &o->code[r * o->cols + c], (size_t)size);
    return data;
}

/* And as cpu_pack takes weights: nibbles packed low first. */
static void *operand_as_weight(const Operand *o, int64_t *pitch)
{
    if (!ref_is_nibble(o->fmt))
        return operand_as_act(o, pitch);
    *pitch = (o->cols + 1) / 2 + 1;
    uint8_t *data = guard_alloc((uint64_t)(o->rows * *pitch));
    memset(data, 0, (size_t)(o->rows * *pitch));
    for (int64_t r = 0; r < o->rows; r++)
        for (int64_t c = 0; c < o->cols; c++)
            data[r * *pitch + c / 2] |= (uint8_t)(o->code[r * o->cols + c] << (4 * (c % 2)));
    return data;
}

typedef struct Case {
    Operand a, w;
    Operand held; /* factored: what w is in memory */
    int64_t m, n, k;
    CpuPackSpec spec;
    bool is_int;
} Case;

static void case_describe(const Case *c, char *text, size_t size)
{
    snprintf(text, size, "%lldx%lldx%lld a %s{%lld,%lld}%s w %s{%lld,%lld}%s parts %d mainloop %d",
             (long long)c->m, (long long)c->n, (long long)c->k, ref_name(c->a.fmt),
             (long long)c->a.block_rows, (long long)c->a.block_cols, c->a.has_zero ? " asym" : "",
             ref_name(c->w.fmt), (long long)c->w.block_rows, (long long)c->w.block_cols,
             c->w.has_zero ? " asym" : "", c->spec.parts, c->spec.mainloop);
}

static bool varies(const Operand *o)
{
    return o->quantised && o->block_cols > 0 && o->block_cols < o->cols;
}

/* Blocks that neither divide the other are not a scheme that lowering makes: take one of them. */
static void blocks_agree(Operand *a, Operand *w)
{
    int64_t x = a->block_cols, y = w->block_cols;
    if (varies(a) && varies(w) && (x > y ? x % y : y % x)) {
        a->block_cols = 0;
        a->grid_cols = 1;
    }
}

static Case case_random(Rng *rng, FormatId fa, FormatId fw, int64_t m, int64_t n, int64_t k)
{
    int parts = n % 2 == 0 && rng_range(rng, 0, 3) == 0 ? 2 : 1;
    Case c = {operand_random(rng, fa, m, k, true),
              operand_random(rng, fw, n, k, false),
              {0},
              m,
              n,
              k,
              {0},
              ref_is_int(fa) && ref_is_int(fw)};
    blocks_agree(&c.a, &c.w);
    c.spec = (CpuPackSpec){.fmt = fw, .act_fmt = fa, .n = n, .k = k, .parts = parts};
    c.spec.mainloop = varies(&c.a) || varies(&c.w) ||
                      ((c.a.quantised || c.w.quantised) && rng_range(rng, 0, 3) == 0);
    c.spec.has_zero = c.w.has_zero;
    c.spec.block_rows = c.w.block_rows;
    c.spec.block_cols = c.w.block_cols;
    c.spec.act_block_cols = varies(&c.a) ? c.a.block_cols : 0;
    c.spec.scale_fmt = c.w.scale_fmt;
    return c;
}

static CpuTensor plain_tensor(FormatId fmt, void *data, int64_t rows, int64_t cols, int64_t pitch)
{
    return (CpuTensor){.fmt = fmt,
                       .data = data,
                       .rows = rows,
                       .cols = cols,
                       .pitch = pitch,
                       .row_div = 1,
                       .row_mod = INT64_MAX,
                       .col_step = 1};
}

/* c (f32 or i32 bits), all parts side by side: [m][n]. */
static void case_run(Case *c, int threads, int64_t first_row, int64_t m, uint32_t *out)
{
    int64_t pitch_a, pitch_w, n_part = c->n / c->spec.parts;
    const Operand *held = cpu_pack_factored(&c->spec) ? &c->held : &c->w;
    char *a = operand_as_act(&c->a, &pitch_a), *w = operand_as_weight(held, &pitch_w);
    uint64_t packed_bytes = cpu_pack_bytes(&c->spec);
    void *packed = guard_alloc(packed_bytes);
    cpu_pack(&c->spec, w, pitch_w, held->scale, held->zero, held->table, packed);
    bool is_i32 = c->is_int && !c->spec.mainloop;
    char *data = guard_alloc((uint64_t)(m * c->n) * 4);
    CpuTensor result[2];
    TileStep step[4] = {0};
    int num = 0;
    for (int part = 0; part < c->spec.parts; part++) {
        FormatId fmt = is_i32 ? FMT_I32 : FMT_F32;
        result[part] = plain_tensor(fmt, data + part * n_part * 4, m, n_part, c->n * 4);
        step[num++] = (TileStep){.op = TILE_ACC,
                                 .fmt = (uint8_t)fmt,
                                 .dst = (uint8_t)part,
                                 .part = (uint8_t)part,
                                 .tensor = TILE_NO_TENSOR};
        step[num++] =
            (TileStep){.op = TILE_STORE, .src = {(uint8_t)part}, .tensor = (uint16_t)part};
    }
    CpuSegment segment = {0, n_part, {step, num}};
    CpuGemm g = {.m = m,
                 .spec = c->spec,
                 .packed = packed,
                 .segment = &segment,
                 .num_segments = 1,
                 .operand = result,
                 .num_operands = c->spec.parts};
    g.a = plain_tensor(c->a.fmt, a + first_row * pitch_a, m, c->k, pitch_a);
    if (c->a.quantised) {
        g.a.quantised = true;
        g.a.has_zero = c->a.has_zero;
        g.a.block_rows = c->a.block_rows;
        g.a.block_cols = c->a.block_cols;
        int64_t skip = c->a.block_rows == 1 ? first_row * c->a.grid_cols : 0;
        g.a.scale = c->a.scale + skip;
        g.a.zero = c->a.has_zero ? c->a.zero + skip : NULL;
        g.a.outer = c->a.outer;
        g.a.outer_scale = &c->a.outer_scale;
    }
    uint64_t scratch_bytes = cpu_gemm_scratch(&g, threads);
    void *scratch = guard_alloc(scratch_bytes);
    cpu_gemm(&g, scratch, threads);
    memcpy(out, data, (size_t)(m * c->n) * 4);
    guard_free(a);
    guard_free(w);
    guard_free(packed);
    guard_free(data);
    guard_free(scratch);
}

static int64_t block_end(const Case *c, int64_t k)
{
    int64_t end = c->k;
    if (c->a.quantised && c->a.block_cols > 0) {
        int64_t next = (k / c->a.block_cols + 1) * c->a.block_cols;
        end = next < end ? next : end;
    }
    if (c->w.quantised && c->w.block_cols > 0) {
        int64_t next = (k / c->w.block_cols + 1) * c->w.block_cols;
        end = next < end ? next : end;
    }
    return end;
}

static void check_exact_i32(const Case *c, int64_t m, int64_t n, uint32_t got)
{
    const double *a = c->a.value + m * c->k, *w = c->w.value + n * c->k;
    int64_t sum = 0;
    for (int64_t k = 0; k < c->k; k++)
        sum += (int64_t)(a[k] * w[k]);
    if ((int32_t)got != sum)
        check_fail("element %lld,%lld is %d, not %lld", (long long)m, (long long)n, (int)got,
                   (long long)sum);
}

/* Integer codes scaled in the main loop: exactly the chain of the definition. */
static void check_exact_f32(const Case *c, int64_t m, int64_t n, uint32_t got)
{
    const double *a = c->a.plain + m * c->k, *w = c->w.plain + n * c->k;
    float f = 0;
    for (int64_t k = 0; k < c->k;) {
        int64_t end = block_end(c, k), begin = k, sum = 0;
        for (; k < end; k++)
            sum += (int64_t)(a[k] * w[k]);
        float scale = operand_scale(&c->w, n, begin);
        if (c->spec.act_block_cols) /* one for all of K waits */
            scale = operand_scale(&c->a, m, begin) * scale;
        f = fmaf((float)sum, scale, f);
    }
    float value;
    memcpy(&value, &got, 4);
    if (memcmp(&f, &value, 4))
        check_fail("element %lld,%lld is %a, not %a", (long long)m, (long long)n, (double)value,
                   (double)f);
}

/* 4-bit weights with zero points against 16-bit activations, scaled in the main loop. */
static bool sums_cancel(const Case *c)
{
    return ref_is_nibble(c->w.fmt) && c->w.has_zero && c->spec.mainloop &&
           (c->a.fmt == FMT_BF16 || c->a.fmt == FMT_F16);
}

static void check_close(const Case *c, int64_t m, int64_t n, uint32_t got, double *err, double *all)
{
    const double *a = (c->spec.act_block_cols ? c->a.scaled : c->a.plain) + m * c->k;
    const double *w = (c->spec.mainloop ? c->w.scaled : c->w.plain) + n * c->k;
    double sum = 0, size = 0;
    for (int64_t k = 0; k < c->k; k++) {
        sum += a[k] * w[k];
        size += fabs(a[k] * w[k]);
    }
    for (int64_t k = 0; k < c->k && sums_cancel(c); k++) /* code and zero are multiplied apart */
        size += 16 * fabs(c->a.value[m * c->k + k] * (double)operand_scale(&c->w, n, k));
    float value;
    memcpy(&value, &got, 4);
    double diff = (double)value - sum;
    double each = 0x1p-23 * (4 + sqrt((double)c->k));
    if (!(fabs(diff) <= each * size + 1e-40))
        check_fail("element %lld,%lld is %.9g, not %.9g", (long long)m, (long long)n, (double)value,
                   sum);
    *err += diff * diff;
    *all += sum * sum;
}

static void case_check(Case *c, const uint32_t *out)
{
    double err = 0, all = 0;
    operand_decode(&c->a);
    operand_decode(&c->w);
    for (int64_t m = 0; m < c->m; m++)
        for (int64_t n = 0; n < c->n; n++) {
            uint32_t got = out[m * c->n + n];
            if (!c->is_int)
                check_close(c, m, n, got, &err, &all);
            else if (c->spec.mainloop)
                check_exact_f32(c, m, n, got);
            else
                check_exact_i32(c, m, n, got);
        }
    if (err > 1e-10 * all)
        check_fail("normalised mean square error %g", err / all);
}

/* Neither threads nor the other rows may change a bit of a row. */
static void case_check_rows(Case *c, const uint32_t *out)
{
    uint32_t *other = make(c->m * c->n, 4);
    case_run(c, 2, 0, c->m, other);
    if (memcmp(out, other, (size_t)(c->m * c->n) * 4))
        check_fail("two threads give other bits than one");
    if (c->m > 1 && c->a.block_rows <= 1) {
        case_run(c, 1, c->m - 1, 1, other);
        if (memcmp(out + (c->m - 1) * c->n, other, (size_t)c->n * 4))
            check_fail("the last row alone gives other bits");
    }
    free(other);
}

/* Runs the case, held to what `check` expects, and lets go of it. */
static void case_end(Case *c, void (*check)(Case *c, const uint32_t *out))
{
    uint32_t *out = make(c->m * c->n, 4);
    case_run(c, 1, 0, c->m, out);
    check(c, out);
    case_check_rows(c, out);
    free(out);
    operand_free(&c->a);
    operand_free(&c->w);
    operand_free(&c->held);
}

static void check_case(Case *c)
{
    if (cpu_pack_problem(&c->spec)) {
        check_fail("no kernel: %s", cpu_pack_problem(&c->spec));
    } else {
        uint32_t *out = make(c->m * c->n, 4);
        case_run(c, 1, 0, c->m, out);
        case_check(c, out);
        if (c->is_int)
            check_same(out, (uint64_t)(c->m * c->n) * 4);
        case_check_rows(c, out);
        free(out);
    }
    if (check_failed()) {
        char text[200];
        case_describe(c, text, sizeof text);
        printf("# in %s\n", text);
    }
    operand_free(&c->a);
    operand_free(&c->w);
    operand_free(&c->held);
}

/* Codes of 4 bits less a zero point times a whole number, in groups: as large as i8 may be. */
static void operand_widen(Rng *rng, Operand *held, Operand *w)
{
    int64_t grid = held->rows * held->grid_cols;
    for (int64_t i = 0; i < grid; i++) {
        int32_t zero = (int32_t)rng_range(rng, 0, 15), most = zero > 15 - zero ? zero : 15 - zero;
        held->zero[i] = zero;
        held->scale[i] = (float)rng_range(rng, 1, zero == 8 ? 16 : 127 / most);
    }
    for (int64_t row = 0; row < w->rows; row++)
        for (int64_t col = 0; col < w->cols; col++) {
            int64_t at = operand_grid(held, row, col);
            double code = held->value[row * w->cols + col] - held->zero[at];
            operand_set(w, row, col, (uint32_t)(int32_t)(code * (double)held->scale[at]) & 255);
        }
}

static Case case_factored(Rng *rng, FormatId fa, int64_t m, int64_t n, int64_t k, int64_t group)
{
    Case c = case_random(rng, fa, FMT_I8, m, n, k);
    c.spec.mainloop = c.spec.has_zero = c.a.has_zero = c.w.has_zero = false;
    c.spec.block_rows = 1;
    c.spec.block_cols = c.spec.act_block_cols = c.a.block_cols = 0;
    c.spec.factor_cols = group;
    c.held = operand_random(rng, FMT_U4, n, k, false);
    free(c.held.scale);
    free(c.held.zero);
    c.held.block_rows = 1;
    c.held.block_cols = group;
    c.held.grid_cols = blocks(k, group);
    c.held.scale = make(n * c.held.grid_cols, sizeof *c.held.scale);
    c.held.zero = make(n * c.held.grid_cols, sizeof *c.held.zero);
    operand_widen(rng, &c.held, &c.w);
    return c;
}

/* Whole scales: from memory of 4 bits the sums of i8. */
static void check_factored(Rng *rng, const CheckOptions *options)
{
    static const FormatId act[] = {FMT_I8, FMT_U8, FMT_I4, FMT_U4};
    static const int64_t groups[] = {8, 32, 40, 48, 64, 96, 128, 136, 256, 1024};
    for (int i = 0; i < (options->full ? 240 : 40) && !check_failed(); i++) {
        bool is_tall = i % 4 == 3;
        int64_t m = is_tall ? rng_range(rng, 17, 70) : rng_range(rng, 0, 16);
        Case c = case_factored(rng, act[i / 4 % 4], m, rng_range(rng, 1, 200),
                               rng_range(rng, 1, is_tall ? 1100 : 400), RNG_PICK(rng, groups));
        check_case(&c);
    }
    for (int i = 0; i < 2 && !check_failed(); i++) { /* the longest rows, largest codes */
        Case c = case_factored(rng, i ? FMT_U8 : FMT_I8, 2, 17, i ? 65793 : 131071, 128);
        for (int64_t j = 0; j < 2 * c.k; j++)
            c.a.value[j] = ref_decode(c.a.fmt, c.a.code[j] = i ? 255 : 128);
        for (int64_t j = 0; j < 17 * c.k; j++)
            c.held.value[j] = ref_decode(FMT_U4, c.held.code[j] = 0);
        operand_widen(rng, &c.held, &c.w);
        check_case(&c);
    }
}

static FormatId act_now;

static void check_pairs(Rng *rng, const CheckOptions *options)
{
    int rounds = options->full ? 12 : 1;
    for (int w = 0; w < NUM_KINDS; w++)
        for (int round = 0; round < rounds && !check_failed(); round++) {
            int64_t m = rng_range(rng, 0, 9), n = rng_range(rng, 1, 90), k = rng_range(rng, 1, 140);
            if (options->full && round % 4 == 3) {
                m = rng_range(rng, 1, 70);
                n = rng_range(rng, 1, 400);
                k = rng_range(rng, 1, 400);
            }
            Case c = case_random(rng, act_now, formats[w], m, n, k);
            check_case(&c);
        }
}

/* Codes as places in tables, of every width and for whatever they belong to. */
static void check_codebooks(Rng *rng, const CheckOptions *options)
{
    static const FormatId weight[] = {FMT_U1, FMT_U2, FMT_U3, FMT_U4,
                                      FMT_U5, FMT_U6, FMT_U7, FMT_U8};
    for (int round = 0; round < (options->full ? 6 : 1); round++)
        for (int i = 0; i < 24 && !check_failed(); i++) {
            bool is_tall = i % 5 == 4;
            int64_t m = is_tall ? rng_range(rng, 10, 70) : rng_range(rng, 1, 6);
            int64_t k = is_tall ? rng_range(rng, 400, 900) : rng_range(rng, 1, 200);
            Case c = case_random(rng, formats[(i * 5 + round) % NUM_ACTS], weight[i % 8], m,
                                 rng_range(rng, 1, 150), k);
            operand_tables(rng, &c.w, (TableKind)(TABLE_TENSOR + i / 8), INT64_C(2) << i % 8);
            c.is_int = false;
            c.spec.table = c.w.kind;
            c.spec.has_zero = false;
            check_case(&c);
        }
}

/* The largest sums: at the end of what int32 holds, and of nibbles of what parts of sums hold. */
static void check_extremes(Rng *rng, const CheckOptions *options)
{
    (void)options;
    static const struct {
        FormatId a, w;
        uint32_t code_a, code_w;
        int64_t n, k;
    } pair[] = {{FMT_U8, FMT_U8, 255, 255, 17, 33025}, {FMT_I8, FMT_I8, 128, 128, 17, 131071},
                {FMT_U8, FMT_I8, 255, 128, 17, 65793}, {FMT_I8, FMT_U8, 128, 255, 17, 65793},
                {FMT_I8, FMT_U4, 128, 15, 80, 1100},   {FMT_I8, FMT_I4, 128, 7, 80, 1100},
                {FMT_U8, FMT_U4, 255, 15, 80, 1100},   {FMT_U8, FMT_I4, 255, 8, 80, 1100}};
    for (size_t i = 0; i < sizeof pair / sizeof *pair && !check_failed(); i++) {
        int64_t n = pair[i].n, k = pair[i].k;
        Case c = case_random(rng, pair[i].a, pair[i].w, 2, n, k);
        c.spec.mainloop = c.spec.has_zero = false;
        c.spec.block_cols = c.spec.act_block_cols = c.a.block_cols = c.w.block_cols = 0;
        c.a.has_zero = c.w.has_zero = false;
        for (int64_t j = 0; j < 2 * k; j++)
            c.a.value[j] = ref_decode(c.a.fmt, c.a.code[j] = pair[i].code_a);
        for (int64_t j = 0; j < n * k; j++)
            c.w.value[j] = ref_decode(c.w.fmt, c.w.code[j] = pair[i].code_w);
        check_case(&c);
    }
}

/* Rows, columns and K of several tiles, ranges and decoded chunks. */
static void check_tall(Rng *rng, const CheckOptions *options)
{
    static const FormatId pair[][2] = {
        {FMT_I8, FMT_I8},     {FMT_U8, FMT_I4},    {FMT_I8, FMT_U4},    {FMT_BF16, FMT_BF16},
        {FMT_BF16, FMT_I4},   {FMT_BF16, FMT_NF4}, {FMT_F16, FMT_E4M3}, {FMT_BF16, FMT_E2M1},
        {FMT_E4M3, FMT_E4M3}, {FMT_I8, FMT_I3},    {FMT_U8, FMT_U6},    {FMT_BF16, FMT_U2},
        {FMT_F32, FMT_I5},    {FMT_BF16, FMT_I3},  {FMT_I8, FMT_BINARY}};
    for (int round = 0; round < (options->full ? 8 : 1); round++)
        for (size_t i = 0; i < sizeof pair / sizeof *pair && !check_failed(); i++) {
            int64_t m = rng_range(rng, 10, 70), n = rng_range(rng, 33, 150);
            Case c = case_random(rng, pair[i][0], pair[i][1], m, n, rng_range(rng, 400, 1100));
            check_case(&c);
        }
}

/* Scales of e4m3 in short blocks. */
static void check_folded(Rng *rng, const CheckOptions *options)
{
    (void)options;
    static const FormatId weight[] = {FMT_E2M1, FMT_I4, FMT_E4M3};
    for (int i = 0; i < 9 && !check_failed(); i++) {
        Case c;
        do {
            c = case_random(rng, i < 6 ? FMT_BF16 : FMT_F16, weight[i % 3],
                            i % 2 ? rng_range(rng, 1, 40) : 3, rng_range(rng, 1, 100),
                            rng_range(rng, 17, 700));
            if (c.w.scale_fmt == FMT_E4M3 && c.w.block_cols % 16 == 0 && c.w.block_cols &&
                !c.w.has_zero)
                break;
            operand_free(&c.a);
            operand_free(&c.w);
        } while (true);
        check_case(&c);
    }
}

/* A column with a scale that is no number gives none; the others come close. */
static void case_check_scales(Case *c, const uint32_t *out)
{
    operand_decode(&c->a);
    operand_decode(&c->w);
    for (int64_t m = 0; m < c->m; m++)
        for (int64_t n = 0; n < c->n; n++) {
            bool is_nan = false;
            double err = 0, all = 0;
            float value;
            for (int64_t k = 0; k < c->k; k++)
                is_nan = is_nan || isnan(operand_scale(&c->w, n, k));
            memcpy(&value, &out[m * c->n + n], 4);
            if (!is_nan)
                check_close(c, m, n, out[m * c->n + n], &err, &all);
            else if (!isnan(value))
                check_fail("element %lld,%lld is %g, not NaN", (long long)m, (long long)n,
                           (double)value);
        }
}

/* Scales of a byte: every code but those above 2^40, down to the denormals, and a NaN at times. */
static void check_byte_scales(Rng *rng, const CheckOptions *options)
{
    static const FormatId weight[] = {FMT_E2M1, FMT_I4, FMT_E4M3, FMT_NF4};
    for (int i = 0; i < (options->full ? 96 : 24) && !check_failed(); i++) {
        FormatId scale_fmt = i % 2 ? FMT_E4M3 : FMT_E8M0;
        Case c = case_random(rng, FMT_BF16, weight[i / 2 % 4], rng_range(rng, 1, 6),
                             rng_range(rng, 64, 150), rng_range(rng, 32, 300));
        uint32_t nan = scale_fmt == FMT_E4M3 ? 127 : 255, most = scale_fmt == FMT_E4M3 ? 126 : 167;
        c.spec.scale_fmt = c.w.scale_fmt = scale_fmt;
        c.spec.mainloop = true;
        for (int64_t j = 0; j < blocks(c.n, c.w.block_rows) * c.w.grid_cols; j++)
            c.w.scale[j] = (float)ref_decode(
                scale_fmt, rng_range(rng, 0, 40) ? (uint32_t)rng_range(rng, 0, most) : nan);
        case_end(&c, case_check_scales);
    }
}

/* bf16 that matrix units do not take as they are, or that times 2^28 is infinite; f16; a NaN of
 * e4m3. */
static uint32_t special_code(Rng *rng, FormatId fmt, bool is_tiny)
{
    static const uint32_t bf16[] = {0x7f80, 0xff80, 0x7fc0,
                                    0x7f00, 0x7200, 0xf200}, /* 2^127, 2^101 */
        f16[] = {0x7c00, 0xfc00, 0x7e00, 0x7bff};
    if (fmt == FMT_E4M3)
        return 0x7f;
    if (is_tiny)
        return (uint32_t)(rng_next(rng) & (fmt == FMT_BF16 ? 0x80ff : 0x83ff));
    return fmt == FMT_BF16 ? RNG_PICK(rng, bf16) : RNG_PICK(rng, f16);
}

/* Rows whose exact results lie in f32 must come close, whatever there is in others. */
static void case_check_special(Case *c, const uint32_t *out)
{
    operand_decode(&c->a);
    operand_decode(&c->w);
    for (int64_t m = 0; m < c->m; m++)
        for (int64_t n = 0; n < c->n; n++) {
            double size = 0, err = 0, all = 0;
            float value;
            for (int64_t k = 0; k < c->k; k++)
                size += fabs(c->a.value[m * c->k + k]) *
                        (fabs(c->w.value[n * c->k + k]) + (c->w.has_zero ? 16 : 0));
            memcpy(&value, &out[m * c->n + n], 4);
            if (size < 1e36)
                check_close(c, m, n, out[m * c->n + n], &err, &all);
            else if (!isfinite(size) && isfinite(value))
                check_fail("element %lld,%lld is %g, not infinite or NaN", (long long)m,
                           (long long)n, (double)value);
        }
}

/* Infinities, NaNs, denormals and rows of nothing but tiny values, here and there. */
static void check_special(Rng *rng, const CheckOptions *options)
{
    static const FormatId pair[][2] = {{FMT_BF16, FMT_BF16}, {FMT_BF16, FMT_I4},
                                       {FMT_F16, FMT_F16},   {FMT_BF16, FMT_E4M3},
                                       {FMT_BF16, FMT_F16},  {FMT_F16, FMT_E2M1}};
    for (int i = 0; i < (options->full ? 240 : 72) && !check_failed(); i++) {
        int64_t m = i / 6 % 2 ? rng_range(rng, 3, 40) : rng_range(rng, 1, 4);
        Case c = case_random(rng, pair[i % 6][0], pair[i % 6][1], m, rng_range(rng, 1, 140),
                             rng_range(rng, 20, 300));
        for (int64_t row = 0; row < m; row++) {
            bool is_tiny = rng_range(rng, 0, 1);
            int64_t num = rng_range(rng, 0, 3) ? rng_range(rng, 0, 2) : is_tiny ? c.k : 1;
            for (int64_t j = 0; j < num; j++)
                operand_set(&c.a, row, num == c.k ? j : rng_range(rng, 0, c.k - 1),
                            special_code(rng, c.a.fmt, is_tiny));
        }
        for (int64_t j = rng_range(rng, 0, 2);
             (ref_bits(c.w.fmt) == 16 || c.w.fmt == FMT_E4M3) && j > 0; j--)
            operand_set(&c.w, rng_range(rng, 0, c.n - 1), rng_range(rng, 0, c.k - 1),
                        special_code(rng, c.w.fmt, j == 2));
        case_end(&c, case_check_special);
    }
}

/* A number whose exponent is `top` at most and that, as all others of this kind, is a whole number
 * of a unit of 2^(top - 14); with is_most about the largest, 32512 of them. */
static uint32_t whole_code(Rng *rng, FormatId fmt, int top, bool is_most)
{
    int bits = fmt == FMT_BF16 ? 7 : 10;
    int64_t exponent = is_most ? top : top - rng_range(rng, 0, 14 - bits);
    int64_t mantissa =
        is_most ? (1 << bits) - (1 << (bits - 6)) : rng_range(rng, 0, (1 << bits) - 1);
    int64_t sign = rng_range(rng, 0, 1) << 15;
    return (uint32_t)(rng_range(rng, 0, 9) || is_most ? sign | exponent << bits | mantissa : sign);
}

/* Activations that are whole numbers of a unit, but for one at times, beside e2m1: f32 rounds no
 * sum of a block, unless it grows too large. */
static void check_whole(Rng *rng, const CheckOptions *options)
{
    for (int i = 0; i < (options->full ? 240 : 60) && !check_failed(); i++) {
        FormatId fmt = i % 3 ? FMT_BF16 : FMT_F16;
        int top = fmt == FMT_F16 ? (int)rng_range(rng, 10, 30) : (int)rng_range(rng, 60, 194);
        bool grows = i % 4 == 3;
        Case c;
        do {
            c = case_random(rng, fmt, FMT_E2M1, rng_range(rng, 1, 9), rng_range(rng, 64, 200),
                            rng_range(rng, 8, 400));
            if (c.w.block_cols >= 8)
                break;
            operand_free(&c.a);
            operand_free(&c.w);
        } while (true);
        for (int64_t j = 0; j < c.m * c.k; j++) {
            bool is_most = grows && rng_range(rng, 0, 3), is_other = rng_range(rng, 0, 99) == 0;
            uint32_t code = whole_code(rng, fmt, top - 5 * is_other, is_most);
            operand_set(&c.a, j / c.k, j % c.k, grows ? code & 0x7fff : code);
        }
        for (int64_t j = 0; grows && j < c.n * c.k; j++)
            if (rng_range(rng, 0, 7))
                operand_set(&c.w, j / c.k, j % c.k, 7);
        check_case(&c);
    }
}

void check_gemm(void)
{
    for (int a = 0; a < NUM_ACTS; a++) {
        char name[32];
        act_now = formats[a];
        snprintf(name, sizeof name, "gemm %s by all", ref_name(act_now));
        check_all_isas(name, check_pairs);
    }
    check_all_isas("gemm extremes", check_extremes);
    check_all_isas("gemm tall", check_tall);
    check_all_isas("gemm factored", check_factored);
    check_all_isas("gemm codebooks", check_codebooks);
    check_all_isas("gemm folded scales", check_folded);
    check_all_isas("gemm scales of a byte", check_byte_scales);
    check_all_isas("gemm special values", check_special);
    check_all_isas("gemm whole numbers", check_whole);
}
