/* Sending rows to groups and bringing their results back. Rows are shared among threads; what
 * counts all choices is done by one: there are few, and each place hangs on those before it. */
#include "base/team.h"
#include "kernels/cpu/internal.h"
#include <string.h>

static char *row_at(const CpuTensor *t, int64_t row)
{
    return (char *)t->data + row * t->pitch;
}

static int32_t *ints_at(const CpuTensor *t, int64_t row)
{
    return (int32_t *)(void *)row_at(t, row);
}

static float float_at(FormatId fmt, const void *row, int64_t col)
{
    uint32_t bits = 0;
    if (fmt == FMT_F32)
        return ((const float *)row)[col];
    memcpy(&bits, (const uint16_t *)row + col, 2);
    return num_decode((int)fmt, bits);
}

typedef struct RouteArgs {
    const CpuTensor *in, *out;
} RouteArgs;

static int64_t rows_at_once(int64_t rows, int threads)
{
    return rows / (8 * (int64_t)threads) + 1;
}

/* The largest columns -------------------------------------------------------------------------- */

/* NaN is below all; equal ones keep their order. */
static bool is_above(float a, float b)
{
    return a > b || (b != b && a == a);
}

static void topk_row(FormatId fmt, const void *row, int64_t cols, int32_t *best, int64_t count)
{
    int64_t num = 0;
    for (int64_t col = 0; col < cols; col++) {
        float value = float_at(fmt, row, col);
        int64_t at = num;
        while (at > 0 && is_above(value, float_at(fmt, row, best[at - 1])))
            at--;
        if (at == count)
            continue;
        num += num < count;
        memmove(best + at + 1, best + at, (size_t)(num - 1 - at) * sizeof *best);
        best[at] = (int32_t)col;
    }
}

static void topk_rows(void *user, int64_t begin, int64_t end, int thread)
{
    const RouteArgs *a = user;
    (void)thread;
    for (int64_t row = begin; row < end; row++)
        topk_row(a->in->fmt, row_at(a->in, row), a->in->cols, ints_at(a->out, row), a->out->cols);
}

void cpu_topk(const CpuTensor *x, const CpuTensor *to, int threads)
{
    RouteArgs args = {.in = x, .out = to};
    team_run(threads, x->rows, rows_at_once(x->rows, threads), topk_rows, &args);
}

void cpu_take(const CpuTensor *x, const CpuTensor *index, const CpuTensor *to)
{
    for (int64_t row = 0; row < index->rows; row++) {
        float *out = (float *)(void *)row_at(to, row);
        for (int64_t i = 0; i < index->cols; i++) {
            int32_t col = ints_at(index, row)[i];
            bool exists = col >= 0 && col < x->cols;
            out[i] = exists ? float_at(x->fmt, row_at(x, row), col) : 0;
        }
    }
}

static void weigh_rows(void *user, int64_t begin, int64_t end, int thread)
{
    const RouteArgs *a = user;
    (void)thread;
    for (int64_t row = begin; row < end; row++) {
        float *weight = (float *)(void *)row_at(a->out, row);
        cpu_kernels()->softmax(weight, weight, a->out->cols);
    }
}

void cpu_weigh(const CpuTensor *weights, int threads)
{
    RouteArgs args = {.out = weights};
    team_run(threads, weights->rows, rows_at_once(weights->rows, threads), weigh_rows, &args);
}

/* Groups --------------------------------------------------------------------------------------- */

/* end[g] becomes the number of choices of groups up to g. */
static void count_groups(const CpuTensor *index, int64_t groups, int32_t *end)
{
    memset(end, 0, (size_t)groups * sizeof *end);
    for (int64_t row = 0; row < index->rows; row++)
        for (int64_t i = 0; i < index->cols; i++) {
            int32_t group = ints_at(index, row)[i];
            if (group >= 0 && group < groups)
                end[group]++;
        }
    for (int64_t g = 1; g < groups; g++)
        end[g] += end[g - 1];
}

void cpu_group_ends(const CpuTensor *index, int64_t groups, const CpuTensor *to)
{
    count_groups(index, groups, ints_at(to, 0));
}

uint64_t cpu_group_places_scratch(int64_t groups)
{
    return (uint64_t)groups * sizeof(int32_t);
}

void cpu_group_places(const CpuTensor *index, int64_t groups, const CpuTensor *to, void *scratch)
{
    int32_t *next = scratch;
    count_groups(index, groups, next);
    for (int64_t row = index->rows - 1; row >= 0; row--)
        for (int64_t i = index->cols - 1; i >= 0; i--) {
            int32_t group = ints_at(index, row)[i];
            bool exists = group >= 0 && group < groups;
            ints_at(to, row)[i] = exists ? --next[group] : -1;
        }
}

void cpu_group_sources(const CpuTensor *places, const CpuTensor *to)
{
    for (int64_t row = 0; row < to->rows; row++)
        *ints_at(to, row) = 0; /* where nothing chose the routed row */
    for (int64_t row = 0; row < places->rows; row++)
        for (int64_t i = 0; i < places->cols; i++) {
            int32_t place = ints_at(places, row)[i];
            if (place >= 0 && place < to->rows)
                *ints_at(to, place) = (int32_t)row;
        }
}

void cpu_clear(const CpuTensor *counts, const CpuTensor *to)
{
    int64_t groups = counts->cols, each = to->rows / groups;
    size_t bytes = (size_t)to->cols * (size_t)plain_bytes(to->fmt);
    for (int64_t row = 0; row < to->rows; row++)
        if (row % each >= ints_at(counts, 0)[row / each])
            memset(row_at(to, row), 0, bytes);
}
