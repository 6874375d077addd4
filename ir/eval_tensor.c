/* Tensors of the evaluator: memory, shapes, conversion between plain formats. */
#include "ir/eval.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK 4096 /* elements converted at a time */

void tensor_free(Tensor *t)
{
    if (t->owned) {
        free(t->data);
        qtensor_free(&t->q);
    }
    memset(t, 0, sizeof *t);
}

int64_t tensor_rows(const Tensor *t)
{
    int64_t rows = 1;
    for (int i = 0; i + 1 < t->rank; i++)
        rows *= t->dim[i];
    return rows;
}

int64_t tensor_cols(const Tensor *t)
{
    return t->rank ? t->dim[t->rank - 1] : 1;
}

uint64_t tensor_elements(const Tensor *t)
{
    return (uint64_t)tensor_rows(t) * (uint64_t)tensor_cols(t);
}

bool tensor_shape(Eval *e, const Op *op, const Type *type, int64_t *ret)
{
    uint64_t num;
    for (int i = 0; i < type->rank; i++) {
        if (!dim_is_const(type->dim[i]) && !e->size)
            return eval_fail(e, op, "%s has no fixed size", type_text(e->arena, type));
        if (!dim_eval(type->dim[i], e->size, &ret[i]))
            return eval_fail(e, op, "a dimension of %s is negative or too large",
                             type_text(e->arena, type));
    }
    if (!checked_elements(ret, type->rank, &num) || num > LIMIT_ELEMENTS)
        return eval_fail(e, op, "%s has too many elements", type_text(e->arena, type));
    return true;
}

static bool is_float_fmt(FormatId fmt)
{
    return format_info[fmt].family == FAMILY_FLOAT;
}

bool tensor_make(Eval *e, const Op *op, const Type *type, Tensor *ret)
{
    Tensor t = {.fmt = type->fmt, .rank = type->rank, .owned = true};
    if (!tensor_shape(e, op, type, t.dim))
        return false;
    if (type->scheme) {
        if (!qtensor_init(&t.q, type->scheme, tensor_rows(&t), tensor_cols(&t)))
            return eval_no_memory(e, op);
    } else {
        if (e->mode == EVAL_F64 && is_float_fmt(type->fmt))
            t.fmt = FMT_F64;
        t.bytes = tensor_elements(&t) * (uint64_t)format_info[t.fmt].bits / 8;
        t.data = malloc(t.bytes ? t.bytes : 1);
        if (!t.data)
            return eval_no_memory(e, op);
    }
    *ret = t;
    return true;
}

static bool qtensor_copy(const QTensor *from, QTensor *ret)
{
    if (!qtensor_init(ret, &from->scheme, from->rows, from->cols))
        return false;
    size_t blocks = (size_t)from->row_blocks * (size_t)from->col_blocks;
    if (from->codes_bytes)
        memcpy(ret->codes, from->codes, from->codes_bytes);
    if (blocks)
        memcpy(ret->scale, from->scale, blocks * sizeof *from->scale);
    if (blocks && from->zero)
        memcpy(ret->zero, from->zero, blocks * sizeof *from->zero);
    if (from->table)
        memcpy(ret->table, from->table, (size_t)qtensor_table_values(from) * sizeof *from->table);
    ret->outer = from->outer;
    return true;
}

bool tensor_copy(Eval *e, const Op *op, const Tensor *from, Tensor *ret)
{
    Tensor t = *from;
    t.owned = true;
    if (from->q.codes) {
        if (!qtensor_copy(&from->q, &t.q))
            return eval_no_memory(e, op);
    } else {
        t.data = malloc(t.bytes ? t.bytes : 1);
        if (!t.data)
            return eval_no_memory(e, op);
        memcpy(t.data, from->data, t.bytes);
    }
    *ret = t;
    return true;
}

bool tensor_take(Eval *e, const Op *op, int slot, Tensor *ret)
{
    Slot *from = eval_slot(e, op->in[slot].value);
    if (from->uses_left != 1 || !from->tensor.owned)
        return tensor_copy(e, op, &from->tensor, ret);
    *ret = from->tensor;
    memset(&from->tensor, 0, sizeof from->tensor);
    return true;
}

const float *tensor_f32(const Tensor *t, float **tmp)
{
    *tmp = NULL;
    if (t->fmt == FMT_F32)
        return t->data;
    uint64_t num = tensor_elements(t);
    *tmp = malloc(num ? num * sizeof **tmp : 1);
    if (*tmp)
        format_to_f32(t->fmt, t->data, *tmp, num);
    return *tmp;
}

const double *tensor_f64(const Tensor *t, double **tmp)
{
    *tmp = NULL;
    if (t->fmt == FMT_F64)
        return t->data;
    uint64_t num = tensor_elements(t);
    *tmp = malloc(num ? num * sizeof **tmp : 1);
    if (*tmp)
        format_to_f64(t->fmt, t->data, *tmp, num);
    return *tmp;
}

static void widen(FormatId from, const void *src, double *dst, uint64_t num)
{
    if (from != FMT_I32) {
        format_to_f64(from, src, dst, num);
        return;
    }
    for (uint64_t i = 0; i < num; i++)
        dst[i] = ((const int32_t *)src)[i];
}

/* To f32 so that rounding further to fewer bits gives what rounding x at once would: inexact
 * results get an odd last bit. */
static float round_to_odd(double x)
{
    float f = (float)x;
    if ((double)f == x || isnan(x) || isinf(f))
        return f;
    if (fabs((double)f) > fabs(x))
        f = nextafterf(f, 0);
    return num_float(num_bits(f) | 1);
}

double round_f64(FormatId fmt, double x)
{
    switch (fmt) {
    case FMT_F32: return (float)x;
    case FMT_F16: return num_round_f16(round_to_odd(x));
    case FMT_BF16: return num_round_bf16(round_to_odd(x));
    default: return x;
    }
}

/* The smallest f32 that rounds to infinity in a format. */
static float overflow_at(FormatId fmt)
{
    return fmt == FMT_F16 ? 65520.0f : fmt == FMT_BF16 ? 0x1.ffp+127f : INFINITY;
}

/* Formats whose elements f32 holds: one rounding, from f32. */
static bool convert_narrow(FormatId from, const void *src, FormatId to, void *dst, uint64_t num)
{
    float x[CHUNK];
    float limit = overflow_at(to);
    int overflows = 0;
    for (uint64_t at = 0; at < num; at += CHUNK) {
        uint64_t n = num - at < CHUNK ? num - at : CHUNK;
        format_to_f32(from, (const char *)src + at * (uint64_t)format_info[from].bits / 8, x, n);
        for (uint64_t i = 0; i < n; i++)
            overflows += num_abs(x[i]) >= limit && num_abs(x[i]) < INFINITY;
        format_from_f32(to, x, (char *)dst + at * (uint64_t)format_info[to].bits / 8, n);
    }
    return overflows == 0;
}

static bool convert_wide(FormatId from, const void *src, FormatId to, void *dst, uint64_t num)
{
    double wide[CHUNK];
    float narrow[CHUNK];
    bool finite = true;
    for (uint64_t at = 0; at < num; at += CHUNK) {
        uint64_t n = num - at < CHUNK ? num - at : CHUNK;
        widen(from, (const char *)src + at * (uint64_t)format_info[from].bits / 8, wide, n);
        char *out = (char *)dst + at * (uint64_t)format_info[to].bits / 8;
        if (to == FMT_F64) {
            memcpy(out, wide, n * sizeof *wide);
            continue;
        }
        for (uint64_t i = 0; i < n; i++) {
            /* integers pass through f32, as the kernels' do */
            narrow[i] = from == FMT_I32 ? (float)wide[i] : (float)round_f64(to, wide[i]);
            finite = finite && (!isinf(narrow[i]) || isinf(wide[i]));
        }
        format_from_f32(to, narrow, out, n);
    }
    return finite;
}

bool convert_plain(FormatId from, const void *src, FormatId to, void *dst, uint64_t num)
{
    bool wide = from == FMT_F64 || from == FMT_I32 || to == FMT_F64;
    return wide ? convert_wide(from, src, to, dst, num) : convert_narrow(from, src, to, dst, num);
}
