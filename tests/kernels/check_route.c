/* Steps of routing against references written here, with rows that are further apart than they are
 * long, and with indices and places that do not exist. */
#include "check.h"
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

/* Each choice has a place of its own; of some calls one has none. */
static CpuTensor random_places(Rng *rng, int64_t rows, int64_t num)
{
    CpuTensor places = ints(rng, rows, num);
    for (int64_t i = 0; i < rows * num; i++) {
        int64_t j = rng_range(rng, 0, i);
        *place(&places, i / num, i % num) = *place(&places, j / num, j % num);
        *place(&places, j / num, j % num) = (int32_t)i;
    }
    if (rows && rng_range(rng, 0, 3) == 0)
        *place(&places, rows - 1, 0) = (int32_t)(rng_range(rng, 0, 1) ? -1 : rows * num);
    return places;
}

static void check_dispatch(Rng *rng)
{
    int64_t rows = rng_range(rng, 0, 9), cols = rng_range(rng, 1, 300), num = rng_range(rng, 1, 4);
    CpuTensor x = floats(rng, rows, cols), places = random_places(rng, rows, num);
    CpuTensor to = tensor(rng, x.fmt, rows * num, cols);
    cpu_dispatch(&x, &places, &to, (int)rng_range(rng, 1, 2));
    for (int64_t i = 0; i < rows * num; i++) {
        int32_t row = *place(&places, i / num, i % num);
        size_t bytes = (size_t)(cols * ref_bits(x.fmt) / 8);
        if (row >= 0 && row < to.rows && memcmp(at(&to, row, 0), at(&x, i / num, 0), bytes))
            check_fail("row %d is not row %d of what was sent", row, (int)(i / num));
    }
    guard_free(x.data);
    guard_free(places.data);
    guard_free(to.data);
}

static void check_combine(Rng *rng)
{
    int64_t rows = rng_range(rng, 0, 9), cols = rng_range(rng, 1, 600), num = rng_range(rng, 1, 4);
    CpuTensor h = floats(rng, rows * num, cols), places = random_places(rng, rows, num);
    CpuTensor weights = floats(rng, rows, num), to = tensor(rng, FMT_F32, rows, cols);
    cpu_combine(&h, &places, &weights, &to, (int)rng_range(rng, 1, 2));
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < cols; k++) {
            float want = 0;
            for (int64_t c = 0; c < num; c++) {
                int32_t row = *place(&places, i, c);
                if (row >= 0 && row < h.rows)
                    want = fmaf((float)value(&weights, i, c), (float)value(&h, row, k), want);
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
        check_groups(rng);
        check_dispatch(rng);
        check_combine(rng);
    }
}

void check_route(void)
{
    check_all_isas("route", check_routes);
}
