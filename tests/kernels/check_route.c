/* Steps of routing, and tile programs that read rows by an index, against references written here,
 * with rows that are further apart than they are long, and with indices and places that do not
 * exist. */
#include "check.h"
#include "numerics/rows.h"
#include "numerics/tile.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static CpuTensor tensor(Rng *rng, FormatId fmt, int64_t rows, int64_t cols)
{
    int64_t bytes = ref_bits(fmt) / 8, pitch = cols * bytes + 4 * rng_range(rng, 0, 2);
    CpuTensor t = {
        .fmt = fmt, .rows = rows, .cols = cols, .pitch = pitch, .row_div = 1, .col_step = 1};
    t.data = guard_alloc((uint64_t)(rows ? rows * pitch : 1));
    return t;
}

static void *at(const CpuTensor *t, int64_t row, int64_t col)
{
    return (char *)t->data + row * t->pitch + col * (t->fmt == FMT_I32 ? 4 : ref_bits(t->fmt) / 8);
}

static int32_t *place(const CpuTensor *t, int64_t row, int64_t col)
{
    return at(t, row, col);
}

static double value(const CpuTensor *t, int64_t row, int64_t col)
{
    return ref_element(t->fmt, at(t, row, col));
}

static CpuTensor ints(Rng *rng, int64_t rows, int64_t cols)
{
    int64_t pitch = 4 * (cols + rng_range(rng, 0, 2));
    CpuTensor t = {
        .fmt = FMT_I32, .rows = rows, .cols = cols, .pitch = pitch, .row_div = 1, .col_step = 1};
    t.data = guard_alloc((uint64_t)(rows ? rows * pitch : 1));
    return t;
}

static CpuTensor floats(Rng *rng, int64_t rows, int64_t cols)
{
    static const FormatId formats[] = {FMT_F32, FMT_F16, FMT_BF16};
    CpuTensor t = tensor(rng, RNG_PICK(rng, formats), rows, cols);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < cols; k++)
            ref_random_element(rng, t.fmt, at(&t, i, k));
    return t;
}

/* Some equal numbers, both zeros, and NaN. */
static void make_even(Rng *rng, const CpuTensor *x)
{
    static const float some[] = {0.0f, -0.0f, 1.0f, -1.0f, INFINITY, -INFINITY, NAN};
    for (int64_t i = 0; i < x->rows && x->fmt == FMT_F32; i++)
        for (int64_t k = 0; k < x->cols; k++)
            if (rng_range(rng, 0, 1))
                *(float *)at(x, i, k) = RNG_PICK(rng, some);
}

/* Columns that are above this one: larger, or as large and before it. */
static int64_t rank_of(const CpuTensor *x, int64_t row, int64_t col)
{
    int64_t rank = 0;
    double own = value(x, row, col);
    for (int64_t k = 0; k < x->cols; k++) {
        double other = value(x, row, k);
        bool equal = isnan(own) ? isnan(other) : own == other;
        rank += equal ? k < col : isnan(own) || other > own;
    }
    return rank;
}

static void check_topk(Rng *rng)
{
    int64_t rows = rng_range(rng, 0, 9), cols = rng_range(rng, 1, 40);
    CpuTensor x = floats(rng, rows, cols), to = ints(rng, rows, rng_range(rng, 1, cols));
    make_even(rng, &x);
    cpu_topk(&x, &to, (int)rng_range(rng, 1, 2));
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < to.cols; k++) {
            int32_t col = *place(&to, i, k);
            if (col < 0 || col >= cols || rank_of(&x, i, col) != k)
                check_fail("row %d: column %d is not number %d", (int)i, col, (int)k);
        }
    guard_free(x.data);
    guard_free(to.data);
}

static void check_take(Rng *rng)
{
    int64_t rows = rng_range(rng, 0, 9), cols = rng_range(rng, 1, 9), num = rng_range(rng, 1, 5);
    CpuTensor x = floats(rng, rows, cols), index = ints(rng, rows, num);
    CpuTensor to = tensor(rng, FMT_F32, rows, num);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < num; k++)
            *place(&index, i, k) = (int32_t)rng_range(rng, -1, cols);
    cpu_take(&x, &index, &to);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < num; k++) {
            int32_t col = *place(&index, i, k);
            double want = col < 0 || col >= cols ? 0 : value(&x, i, col);
            if (value(&to, i, k) != want)
                check_fail("column %d is %g, not %g", col, value(&to, i, k), want);
        }
    guard_free(x.data);
    guard_free(index.data);
    guard_free(to.data);
}

/* In place, with the bits of a row of any kernel. */
static void check_weigh(Rng *rng)
{
    int64_t rows = rng_range(rng, 0, 9), cols = rng_range(rng, 1, 40);
    CpuTensor x = tensor(rng, FMT_F32, rows, cols);
    float want[9][40];
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t k = 0; k < cols; k++)
            ref_random_element(rng, x.fmt, at(&x, i, k));
        num_row_softmax(want[i], at(&x, i, 0), cols);
    }
    cpu_weigh(&x, (int)rng_range(rng, 1, 2));
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < cols; k++)
            if (value(&x, i, k) != (double)want[i][k])
                check_fail("weight %d is %g, not %g", (int)k, value(&x, i, k), (double)want[i][k]);
    guard_free(x.data);
}

/* Choices of lower groups, and those of the group at hand that stand before it. */
static int32_t place_of(const CpuTensor *index, int64_t choice, int64_t groups)
{
    int32_t before = 0, own = *place(index, choice / index->cols, choice % index->cols);
    for (int64_t i = 0; i < index->rows * index->cols; i++) {
        int32_t other = *place(index, i / index->cols, i % index->cols);
        before += other >= 0 && (other < own || (other == own && i < choice));
    }
    return own < 0 || own >= groups ? -1 : before;
}

/* What stands between rows of the tensor is as it was. */
static void check_gaps(const CpuTensor *t)
{
    static const uint8_t fresh[8] = {0xA5, 0xA5, 0xA5, 0xA5, 0xA5, 0xA5, 0xA5, 0xA5};
    for (int64_t i = 0; i < t->rows; i++)
        if (memcmp(at(t, i, t->cols), fresh, (size_t)(t->pitch - 4 * t->cols)))
            check_fail("what is behind row %d was written", (int)i);
}

static void check_sources(Rng *rng, const CpuTensor *places)
{
    CpuTensor to = ints(rng, places->rows * places->cols, 1);
    int32_t *want = calloc((size_t)to.rows + 1, sizeof *want); /* 0: nothing has this place */
    for (int64_t i = 0; i < to.rows; i++) {
        int32_t at = *place(places, i / places->cols, i % places->cols);
        if (at >= 0)
            want[at] = (int32_t)(i / places->cols);
    }
    cpu_group_sources(places, &to);
    for (int64_t i = 0; i < to.rows; i++)
        if (*place(&to, i, 0) != want[i])
            check_fail("routed row %d was %d, not %d", (int)i, *place(&to, i, 0), want[i]);
    check_gaps(&to);
    free(want);
    guard_free(to.data);
}

static void check_groups(Rng *rng)
{
    int64_t rows = rng_range(rng, 0, 20), num = rng_range(rng, 1, 4), groups = rng_range(rng, 1, 9);
    CpuTensor index = ints(rng, rows, num), to = ints(rng, rows, num), ends = ints(rng, 1, groups);
    void *scratch = guard_alloc(cpu_group_places_scratch(groups));
    bool wild = rng_range(rng, 0, 1);
    for (int64_t i = 0; i < rows * num; i++)
        *place(&index, i / num, i % num) = (int32_t)rng_range(rng, -wild, groups - 1 + wild);
    cpu_group_places(&index, groups, &to, scratch);
    cpu_group_ends(&index, groups, &ends);
    check_sources(rng, &to);
    check_gaps(&to);
    for (int64_t i = 0; i < rows * num; i++)
        if (*place(&to, i / num, i % num) != place_of(&index, i, groups))
            check_fail("the place of choice %d is %d", (int)i, *place(&to, i / num, i % num));
    for (int64_t g = 0; g < groups; g++) {
        int32_t end = 0;
        for (int64_t i = 0; i < rows * num; i++) {
            int32_t other = *place(&index, i / num, i % num);
            end += other >= 0 && other <= g;
        }
        if (*place(&ends, 0, g) != end)
            check_fail("group %d ends at %d, not %d", (int)g, *place(&ends, 0, g), end);
    }
    guard_free(index.data);
    guard_free(to.data);
    guard_free(ends.data);
    guard_free(scratch);
}

/* Rows [rows, num] of a tensor, some of which it does not have. */
static CpuTensor random_rows(Rng *rng, int64_t rows, int64_t num, int64_t of)
{
    CpuTensor index = ints(rng, rows, num);
    bool wild = rng_range(rng, 0, 2) == 0;
    for (int64_t i = 0; i < rows * num; i++) {
        int64_t row = rng_range(rng, wild ? -2 : 0, wild ? of + 1 : of - 1);
        *place(&index, i / num, i % num) =
            wild && rng_range(rng, 0, 9) == 0 ? (row & 1 ? INT32_MIN : INT32_MAX) : (int32_t)row;
    }
    return index;
}

/* The first row or the last one stands for those that there are not. */
static int64_t row_named(const CpuTensor *index, int64_t row, int64_t choice, int64_t of)
{
    int32_t at = *place(index, row, choice);
    return at < 0 ? 0 : at < of ? at : of - 1;
}

/* As operand: rows of `of` by a column of the index. */
static CpuTensor by_index(const CpuTensor *of, const CpuTensor *index, int64_t choice)
{
    CpuTensor t = *of;
    t.index = at(index, 0, choice);
    t.index_pitch = index->rows == 1 ? 0 : index->pitch;
    return t;
}

static void run_tile(Rng *rng, const TileStep *step, int num, CpuTensor *operand, int operands)
{
    CpuTile tile = {operand[0].rows, operand[0].cols, rng_range(rng, 0, 1),
                    {step, num},     operand,         operands};
    int threads = (int)rng_range(rng, 1, 2);
    void *scratch = guard_alloc(cpu_tile_scratch(&tile, threads));
    cpu_tile(&tile, scratch, threads);
    guard_free(scratch);
}

/* Rows as they are, and one column of them. */
static void check_dispatch(Rng *rng)
{
    static const TileStep step[] = {{.op = TILE_LOAD, .dst = 0, .tensor = 1},
                                    {.op = TILE_STORE, .src = {0}, .tensor = 0}};
    int64_t rows = rng_range(rng, 1, 40), cols = rng_range(rng, 1, 300), of = rng_range(rng, 1, 9);
    CpuTensor x = floats(rng, of, cols), sources = random_rows(rng, rows, 1, of);
    CpuTensor to = tensor(rng, x.fmt, rows, cols), operand[] = {to, by_index(&x, &sources, 0)};
    operand[1].col_step = rng_range(rng, 0, 3) > 0;
    run_tile(rng, step, 2, operand, 2);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < cols; k++) {
            int64_t row = row_named(&sources, i, 0, of);
            double want = value(&x, row, operand[1].col_step ? k : 0);
            if (value(&to, i, k) != want)
                check_fail("row %d is not row %d of what was sent", (int)i, (int)row);
        }
    check_same(to.data, (uint64_t)(rows * to.pitch));
    guard_free(x.data);
    guard_free(sources.data);
    guard_free(to.data);
}

#define MOST_CHOICES 4

/* Loads of choice i: rows by its places, and its weights. */
static int put_choice(TileStep *step, int num, int i)
{
    step[num++] = (TileStep){.op = TILE_LOAD, .dst = 0, .tensor = (uint16_t)(1 + 2 * i)};
    step[num++] = (TileStep){.op = TILE_LOAD, .dst = 1, .tensor = (uint16_t)(2 + 2 * i)};
    step[num++] = (TileStep){.op = TILE_MUL, .dst = i ? 3 : 2, .src = {1, 0}};
    if (i)
        step[num++] = (TileStep){.op = TILE_ADD, .dst = 2, .src = {2, 3}};
    return num;
}

static void check_combine(Rng *rng)
{
    int64_t rows = rng_range(rng, 1, 9), cols = rng_range(rng, 1, 600);
    int64_t num = rng_range(rng, 1, MOST_CHOICES), of = rng_range(rng, 1, rows * num);
    CpuTensor h = floats(rng, of, cols), places = random_rows(rng, rows, num, of);
    CpuTensor weights = floats(rng, rows, num), to = tensor(rng, FMT_F32, rows, cols);
    CpuTensor operand[1 + 2 * MOST_CHOICES] = {to};
    TileStep step[4 * MOST_CHOICES + 1];
    int steps = 0;
    for (int i = 0; i < (int)num; i++) {
        CpuTensor *weight = &operand[2 + 2 * i];
        operand[1 + 2 * i] = by_index(&h, &places, i);
        *weight = weights;
        weight->data = at(&weights, 0, i);
        weight->cols = 1;
        weight->col_step = 0;
        steps = put_choice(step, steps, i);
    }
    step[steps++] = (TileStep){.op = TILE_STORE, .src = {2}, .tensor = 0};
    run_tile(rng, step, steps, operand, 1 + 2 * (int)num);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < cols; k++) {
            float want = 0;
            for (int64_t c = 0; c < num; c++) {
                double of_h = value(&h, row_named(&places, i, c, of), k);
                float product = (float)(value(&weights, i, c) * of_h);
                want = c ? want + product : product;
            }
            if (memcmp(at(&to, i, k), &want, 4))
                check_fail("row %d, column %d: %g, not %g", (int)i, (int)k, value(&to, i, k),
                           (double)want);
        }
    guard_free(h.data);
    guard_free(places.data);
    guard_free(weights.data);
    guard_free(to.data);
}

static void check_routes(Rng *rng, const CheckOptions *options)
{
    for (int i = 0; i < (options->full ? 2000 : 60) && !check_failed(); i++) {
        check_topk(rng);
        check_take(rng);
        check_weigh(rng);
        check_groups(rng);
        check_dispatch(rng);
        check_combine(rng);
    }
}

void check_route(void)
{
    check_all_isas("route", check_routes);
}
