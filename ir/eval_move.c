/* Views and moves: elements keep their bits, only their places change. */
#include "ir/eval.h"
#include <string.h>

bool eval_op_reshape(Eval *e, const Op *op)
{
    Tensor t;
    int64_t dim[LIMIT_RANK] = {0};
    const Type *type = op->out[0].type;
    if (!tensor_shape(e, op, type, dim) || !tensor_take(e, op, 0, &t))
        return false;
    t.rank = type->rank;
    memcpy(t.dim, dim, sizeof dim);
    eval_slot(e, &op->out[0])->tensor = t;
    return true;
}

/* Elements between neighbours of each axis, row-major. */
static void strides_of(const Tensor *t, int64_t *ret)
{
    int64_t step = 1;
    for (int i = t->rank - 1; i >= 0; i--) {
        ret[i] = step;
        step *= t->dim[i];
    }
}

bool eval_op_transpose(Eval *e, const Op *op)
{
    const Tensor *in = eval_in(e, op, 0);
    Tensor *out = eval_result(e, op, 0);
    if (!out)
        return false;
    int64_t in_step[LIMIT_RANK], step[LIMIT_RANK], index[LIMIT_RANK] = {0};
    strides_of(in, in_step);
    for (int i = 0; i < out->rank; i++)
        step[i] = in_step[op->attr.perm[i]];
    size_t size = (size_t)format_info[in->fmt].bits / 8;
    const char *from = in->data;
    char *to = out->data;
    uint64_t num = tensor_elements(out);
    for (uint64_t n = 0; n < num; n++) {
        memcpy(to + n * size, from, size);
        for (int i = out->rank - 1; i >= 0; i--) { /* the next index, and its place in `in` */
            from += step[i] * (int64_t)size;
            if (++index[i] < out->dim[i])
                break;
            from -= step[i] * out->dim[i] * (int64_t)size;
            index[i] = 0;
        }
    }
    return true;
}

/* Those of so many rows, or entries of the grid; all have a common one. */
static void copy_tables(const QTensor *from, int64_t from_row, int64_t from_at, QTensor *to,
                        int64_t to_row, int64_t to_at, int64_t rows, int64_t entries)
{
    TableKind kind = to->scheme.table;
    if (!to->table)
        return;
    size_t bytes = (size_t)qtensor_table_codes(to) * sizeof *to->table;
    memcpy(to->table + codebook_at(kind, to_row, to_at) * qtensor_table_codes(to),
           from->table + codebook_at(kind, from_row, from_at) * qtensor_table_codes(from),
           (size_t)codebook_tables(kind, rows, entries) * bytes);
}

/* Copies rows [from_row, from_row + num) of the codes and their blocks of scales. Blocks begin at
 * both rows (the type rule sees to it). */
static void copy_rows(const QTensor *from, int64_t from_row, QTensor *to, int64_t to_row,
                      int64_t num)
{
    if (num == 0)
        return;
    memcpy(to->codes + (uint64_t)to_row * to->row_bytes,
           from->codes + (uint64_t)from_row * from->row_bytes, (uint64_t)num * to->row_bytes);
    int64_t block = to->scheme.block[0], cols = to->col_blocks;
    int64_t blocks = (num + block - 1) / block;
    size_t from_at = (size_t)(from_row / block * cols), to_at = (size_t)(to_row / block * cols);
    size_t count = (size_t)(blocks * cols);
    memcpy(to->scale + to_at, from->scale + from_at, count * sizeof *to->scale);
    if (to->zero)
        memcpy(to->zero + to_at, from->zero + from_at, count * sizeof *to->zero);
    copy_tables(from, from_row, (int64_t)from_at, to, to_row, (int64_t)to_at, num, blocks * cols);
}

/* The axis splits a tensor into outer runs of len[axis] * inner elements. */
static void around_axis(const Tensor *t, int64_t axis, uint64_t *ret_outer, uint64_t *ret_inner)
{
    *ret_outer = *ret_inner = 1;
    for (int i = 0; i < t->rank; i++) {
        if (i < axis)
            *ret_outer *= (uint64_t)t->dim[i];
        else if (i > axis)
            *ret_inner *= (uint64_t)t->dim[i];
    }
}

bool eval_op_slice(Eval *e, const Op *op)
{
    const Tensor *in = eval_in(e, op, 0);
    const Attr *attr = &op->attr;
    Tensor *out = eval_result(e, op, 0);
    if (!out)
        return false;
    int64_t len = attr->stop - attr->start;
    if (in->q.codes) {
        int64_t below = in->dim[0] ? in->q.rows / in->dim[0] : 0;
        out->q.outer = in->q.outer;
        copy_rows(&in->q, attr->start * below, &out->q, 0, len * below);
        return true;
    }
    uint64_t outer, inner, size = (uint64_t)format_info[in->fmt].bits / 8;
    around_axis(in, attr->axis, &outer, &inner);
    uint64_t run = (uint64_t)len * inner * size;
    uint64_t pitch = (uint64_t)in->dim[attr->axis] * inner * size;
    const char *from = (const char *)in->data + (uint64_t)attr->start * inner * size;
    for (uint64_t i = 0; i < outer && run; i++)
        memcpy((char *)out->data + i * run, from + i * pitch, run);
    return true;
}

bool eval_op_concat(Eval *e, const Op *op)
{
    Tensor *out = eval_result(e, op, 0);
    if (!out)
        return false;
    int64_t rows = 0;
    uint64_t outer, inner, at = 0, size = (uint64_t)format_info[out->fmt].bits / 8;
    around_axis(out, op->attr.axis, &outer, &inner);
    uint64_t pitch = (uint64_t)out->dim[op->attr.axis] * inner * size;
    for (int i = 0; i < op->num_in; i++) {
        const Tensor *in = eval_in(e, op, i);
        if (in->q.codes) {
            copy_rows(&in->q, 0, &out->q, rows, in->q.rows);
            rows += in->q.rows;
            continue;
        }
        uint64_t run = (uint64_t)in->dim[op->attr.axis] * inner * size;
        for (uint64_t j = 0; j < outer && run; j++)
            memcpy((char *)out->data + j * pitch + at, (const char *)in->data + j * run, run);
        at += run;
    }
    return true;
}
