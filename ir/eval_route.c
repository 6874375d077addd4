/* Routing: which rows go to which groups, and matrices that each group has of its own. Decisions
 * are taken on f32 in both modes: a reference that sent a row elsewhere would be of another model.
 */
#include "ir/eval.h"
#include <stdlib.h>
#include <string.h>

/* The column of the largest number that is not taken yet, the lowest of equal ones; NaN is below
 * all.
 */
static int64_t largest(const float *x, const bool *taken, int64_t cols)
{
    int64_t best = -1;
    for (int64_t i = 0; i < cols; i++)
        if (!taken[i] && (best < 0 || x[i] > x[best] || (x[best] != x[best] && x[i] == x[i])))
            best = i;
    return best;
}

bool eval_op_topk(Eval *e, const Op *op)
{
    const Tensor *in = eval_in(e, op, 0);
    Tensor *out = eval_result(e, op, 0);
    int64_t cols = tensor_cols(in), count = op->attr.count;
    float *tmp = NULL;
    const float *x = out ? tensor_f32(in, &tmp) : NULL;
    bool *taken = x ? malloc((size_t)cols) : NULL;
    for (int64_t row = 0; taken && row < tensor_rows(in); row++) {
        memset(taken, 0, (size_t)cols);
        for (int64_t i = 0; i < count; i++) {
            int64_t best = largest(x + row * cols, taken, cols);
            taken[best] = true;
            ((int32_t *)out->data)[row * count + i] = (int32_t)best;
        }
    }
    bool ok = taken != NULL;
    free(taken);
    free(tmp);
    return ok || (out && eval_no_memory(e, op));
}

bool eval_op_take(Eval *e, const Op *op)
{
    const Tensor *in = eval_in(e, op, 0), *index = eval_in(e, op, 1);
    Tensor *out = eval_result(e, op, 0);
    if (!out)
        return false;
    double *tmp = NULL;
    const double *x = tensor_f64(in, &tmp);
    int64_t cols = tensor_cols(in), count = tensor_cols(index), num = (int64_t)tensor_elements(out);
    for (int64_t i = 0; x && i < num; i++) {
        int32_t col = ((const int32_t *)index->data)[i];
        if (col < 0 || col >= cols) {
            free(tmp);
            return eval_fail(e, op, "column %d of %lld", col, (long long)cols);
        }
        double value = x[i / count * cols + col];
        if (out->fmt == FMT_F64)
            ((double *)out->data)[i] = value;
        else
            ((float *)out->data)[i] = (float)value;
    }
    free(tmp);
    return x || eval_no_memory(e, op);
}

static bool groups_exist(Eval *e, const Op *op, const Tensor *index)
{
    int64_t groups = op->attr.count;
    for (uint64_t i = 0; i < tensor_elements(index); i++) {
        int32_t group = ((const int32_t *)index->data)[i];
        if (group < 0 || group >= groups)
            return eval_fail(e, op, "group %d of %lld", group, (long long)groups);
    }
    return true;
}

bool eval_op_group_ends(Eval *e, const Op *op)
{
    const Tensor *index = eval_in(e, op, 0);
    Tensor *out = eval_result(e, op, 0);
    if (!out || !groups_exist(e, op, index))
        return false;
    int32_t *end = out->data;
    memset(end, 0, out->bytes);
    for (uint64_t i = 0; i < tensor_elements(index); i++)
        end[((const int32_t *)index->data)[i]]++;
    for (int64_t g = 1; g < op->attr.count; g++)
        end[g] += end[g - 1];
    return true;
}

static int ascending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Sorted by group, then by place: memory is that of the choices, however many groups are said. */
/* The choices of all rows in the order of groups, each below its group; NULL: memory is exhausted.
 */
static uint64_t *sort_choices(const Tensor *index)
{
    size_t num = tensor_elements(index);
    uint64_t *choice = malloc((num + 1) * sizeof *choice);
    for (size_t i = 0; choice && i < num; i++)
        choice[i] = (uint64_t)((const int32_t *)index->data)[i] << 32 | i;
    if (choice)
        qsort(choice, num, sizeof *choice, ascending);
    return choice;
}

static bool place_choices(Eval *e, const Op *op, bool sources)
{
    const Tensor *index = eval_in(e, op, 0);
    Tensor *out = eval_result(e, op, 0);
    if (!out || !groups_exist(e, op, index))
        return false;
    uint64_t *choice = sort_choices(index);
    if (!choice)
        return eval_no_memory(e, op);
    int32_t *to = out->data;
    for (size_t i = 0; i < tensor_elements(index); i++) {
        uint32_t at = (uint32_t)choice[i];
        if (sources)
            to[i] = (int32_t)(at / tensor_cols(index));
        else
            to[at] = (int32_t)i;
    }
    free(choice);
    return true;
}

bool eval_op_group_places(Eval *e, const Op *op)
{
    return place_choices(e, op, false);
}

bool eval_op_group_sources(Eval *e, const Op *op)
{
    return place_choices(e, op, true);
}

static bool place_exists(Eval *e, const Op *op, int32_t place, int64_t rows)
{
    return (place >= 0 && place < rows) ||
           eval_fail(e, op, "place %d of %lld", place, (long long)rows);
}

bool eval_op_dispatch(Eval *e, const Op *op)
{
    const Tensor *in = eval_in(e, op, 0), *sources = eval_in(e, op, 1);
    Tensor *out = eval_result(e, op, 0);
    if (!out)
        return false;
    size_t row = (size_t)tensor_cols(in) * format_info[in->fmt].bits / 8;
    for (int64_t i = 0; i < tensor_rows(out); i++) {
        int32_t from = ((const int32_t *)sources->data)[i];
        if (!place_exists(e, op, from, tensor_rows(in)))
            return false;
        memcpy((char *)out->data + (size_t)i * row, (const char *)in->data + (size_t)from * row,
               row);
    }
    return true;
}

/* One element: its choices' rows of h, weighted. */
static void combine_element(const double *h, const int32_t *place, const double *weight,
                            int64_t count, int64_t cols, int64_t col, Tensor *out, int64_t at)
{
    double wide = 0;
    float sum = 0;
    for (int64_t i = 0; i < count; i++) {
        double value = h[place[i] * cols + col];
        float product = (float)weight[i] * (float)value;
        wide += weight[i] * value;
        sum = i ? sum + product : product;
    }
    if (out->fmt == FMT_F64)
        ((double *)out->data)[at] = wide;
    else
        ((float *)out->data)[at] = sum;
}

bool eval_op_combine(Eval *e, const Op *op)
{
    const Tensor *in = eval_in(e, op, 0), *places = eval_in(e, op, 1);
    Tensor *out = eval_result(e, op, 0);
    if (!out)
        return false;
    const int32_t *place = places->data;
    int64_t count = tensor_cols(places), cols = tensor_cols(in),
            num = (int64_t)tensor_elements(out);
    for (uint64_t i = 0; i < tensor_elements(places); i++)
        if (!place_exists(e, op, place[i], tensor_rows(in)))
            return false;
    double *tmp_h = NULL, *tmp_w = NULL;
    const double *h = tensor_f64(in, &tmp_h);
    const double *weight = h ? tensor_f64(eval_in(e, op, 2), &tmp_w) : NULL;
    for (int64_t i = 0; weight && i < num; i++) {
        int64_t first = i / cols * count;
        combine_element(h, place + first, weight + first, count, cols, i % cols, out, i);
    }
    free(tmp_h);
    free(tmp_w);
    return weight || eval_no_memory(e, op);
}

bool eval_ends_fit(Eval *e, const Op *op, const Tensor *ends, int64_t rows)
{
    const int32_t *end = ends->data;
    int64_t last = 0;
    for (uint64_t g = 0; g < tensor_elements(ends); g++) {
        if (end[g] < last || end[g] > rows)
            return eval_fail(e, op, "group %llu ends at %d, behind %lld of %lld rows",
                             (unsigned long long)g, end[g], (long long)last, (long long)rows);
        last = end[g];
    }
    return last == rows ||
           eval_fail(e, op, "%lld of %lld rows are in groups", (long long)last, (long long)rows);
}

GroupRows eval_group(const Op *op, const Tensor *ends, int64_t group, int64_t rows)
{
    const int32_t *end = ends->data;
    int64_t begin = group ? end[group - 1] : 0, each = rows / (int64_t)tensor_elements(ends);
    if (!op_is_counted(op))
        return (GroupRows){begin, end[group] - begin};
    int64_t num = end[group] < 0 ? 0 : end[group] < each ? end[group] : each;
    return (GroupRows){group * each, num};
}

bool eval_op_mask(Eval *e, const Op *op)
{
    const Tensor *in = eval_in(e, op, 0), *counts = eval_in(e, op, 1);
    Tensor *out = eval_result(e, op, 0);
    if (!out)
        return false;
    int64_t groups = (int64_t)tensor_elements(counts), rows = tensor_rows(in);
    size_t pitch = (size_t)tensor_cols(in) * (size_t)format_info[in->fmt].bits / 8;
    memset(out->data, 0, (size_t)rows * pitch);
    for (int64_t g = 0; g < groups; g++) {
        GroupRows of = eval_group(op, counts, g, rows);
        size_t at = (size_t)of.first * pitch;
        memcpy((char *)out->data + at, (const char *)in->data + at, (size_t)of.num * pitch);
    }
    return true;
}

bool eval_op_spread(Eval *e, const Op *op)
{
    const Tensor *in = eval_in(e, op, 0), *ends = eval_in(e, op, 1);
    Tensor *out = eval_result(e, op, 0);
    bool counted = op_is_counted(op);
    if (!out || (!counted && !eval_ends_fit(e, op, ends, tensor_rows(out))))
        return false;
    int64_t cols = tensor_cols(out), each = tensor_rows(out) / (int64_t)tensor_elements(ends);
    double *tmp = NULL; /* exact: i32, and every float format */
    const double *v = tensor_f64(in, &tmp);
    for (int64_t row = 0, group = 0; v && row < tensor_rows(out); row++) {
        while (counted ? (group + 1) * each <= row : ((const int32_t *)ends->data)[group] <= row)
            group++;
        for (int64_t col = 0; col < cols; col++) {
            double value = v[group * cols + col];
            int64_t at = row * cols + col;
            if (out->fmt == FMT_F64)
                ((double *)out->data)[at] = value;
            else if (out->fmt == FMT_I32)
                ((int32_t *)out->data)[at] = (int32_t)value;
            else
                ((float *)out->data)[at] = (float)value;
        }
    }
    free(tmp);
    return v || eval_no_memory(e, op);
}
