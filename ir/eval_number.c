/* Casts, elementwise operations with broadcasting, norms and softmax: f32 steps of the contract, or
 * their meaning in f64. */
#include "ir/eval.h"
#include "numerics/rows.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool eval_op_cast(Eval *e, const Op *op)
{
    const Tensor *in = eval_in(e, op, 0);
    Tensor *out = eval_result(e, op, 0);
    if (!out)
        return false;
    uint64_t num = tensor_elements(out);
    convert_plain(in->fmt, in->data, out->fmt, out->data, num);
    FormatId fmt = op->out[0].type->fmt;
    if (out->fmt != FMT_F64 || fmt == FMT_F32)
        return true;
    for (uint64_t i = 0; i < num; i++)
        ((double *)out->data)[i] = round_f64(fmt, ((double *)out->data)[i]);
    return true;
}

/* Elementwise --------------------------------------------------------------------------------- */

/* One row: dst[i] = f(a[i * step_a], b[i * step_b]); steps are 0 or 1. */
#define ELEMENTWISE(ID, name, arity, f32_expr, f64_expr)                                           \
    static void row_f32_##ID(float *dst, const float *pa, int step_a, const float *pb, int step_b, \
                             int64_t num)                                                          \
    {                                                                                              \
        for (int64_t i = 0; i < num; i++) {                                                        \
            float a = pa[i * step_a], b = pb[i * step_b];                                          \
            (void)b;                                                                               \
            dst[i] = f32_expr;                                                                     \
        }                                                                                          \
    }                                                                                              \
    static void row_f64_##ID(double *dst, const double *pa, int step_a, const double *pb,          \
                             int step_b, int64_t num)                                              \
    {                                                                                              \
        for (int64_t i = 0; i < num; i++) {                                                        \
            double a = pa[i * step_a], b = pb[i * step_b];                                         \
            (void)b;                                                                               \
            dst[i] = f64_expr;                                                                     \
        }                                                                                          \
    }
#include "numerics/elementwise.def"
#undef ELEMENTWISE

typedef void RowF32(float *dst, const float *a, int step_a, const float *b, int step_b,
                    int64_t num);
typedef void RowF64(double *dst, const double *a, int step_a, const double *b, int step_b,
                    int64_t num);
static RowF32 *const row_f32[NUM_OPS] = {
#define ELEMENTWISE(ID, name, arity, f32_expr, f64_expr) [OP_##ID] = row_f32_##ID,
#include "numerics/elementwise.def"
#undef ELEMENTWISE
};
static RowF64 *const row_f64[NUM_OPS] = {
#define ELEMENTWISE(ID, name, arity, f32_expr, f64_expr) [OP_##ID] = row_f64_##ID,
#include "numerics/elementwise.def"
#undef ELEMENTWISE
};

/* Integers wrap; the type rule lets only these three pass. */
static void row_i32(OpKind kind, int32_t *dst, const int32_t *a, int step_a, const int32_t *b,
                    int step_b, int64_t num)
{
    for (int64_t i = 0; i < num; i++) {
        uint32_t x = (uint32_t)a[i * step_a], y = (uint32_t)b[i * step_b];
        dst[i] = (int32_t)(kind == OP_ADD ? x + y : kind == OP_SUB ? x - y : x * y);
    }
}

/* Where row `row` of the result finds an operand's elements: offset of the first, step 0 or 1. */
static int64_t operand_row(const Tensor *in, const Tensor *out, int64_t row, int *ret_step)
{
    int64_t offset = 0, pitch = tensor_cols(in);
    *ret_step = in->rank > 0 && tensor_cols(in) != 1;
    for (int i = 1; i < out->rank; i++) {
        int64_t size = out->dim[out->rank - 1 - i];
        int64_t index = row % size;
        row /= size;
        if (i >= in->rank)
            continue;
        int64_t own = in->dim[in->rank - 1 - i];
        offset += own == 1 ? 0 : index * pitch;
        pitch *= own;
    }
    return offset;
}

typedef struct Operands { /* of one elementwise op, all in the format it computes in */
    const Tensor *in[2];
    const void *data[2];
    void *tmp[2];
} Operands;

static void run_row(const Op *op, Tensor *out, const Operands *in, int64_t row)
{
    int step[2] = {0, 0};
    int64_t at[2] = {0, 0}, cols = tensor_cols(out);
    for (int i = 0; i < op->num_in; i++)
        at[i] = operand_row(in->in[i], out, row, &step[i]);
    if (op->num_in == 1) {
        at[1] = at[0];
        step[1] = step[0];
    }
    if (out->fmt == FMT_I32)
        row_i32(op->kind, (int32_t *)out->data + row * cols, (const int32_t *)in->data[0] + at[0],
                step[0], (const int32_t *)in->data[1] + at[1], step[1], cols);
    else if (out->fmt == FMT_F64)
        row_f64[op->kind]((double *)out->data + row * cols, (const double *)in->data[0] + at[0],
                          step[0], (const double *)in->data[1] + at[1], step[1], cols);
    else
        row_f32[op->kind]((float *)out->data + row * cols, (const float *)in->data[0] + at[0],
                          step[0], (const float *)in->data[1] + at[1], step[1], cols);
}

bool eval_op_elementwise(Eval *e, const Op *op)
{
    Tensor *out = eval_result(e, op, 0);
    if (!out)
        return false;
    Operands in = {0};
    bool ok = true;
    for (int i = 0; i < op->num_in; i++) {
        in.in[i] = eval_in(e, op, i);
        if (out->fmt == FMT_I32)
            in.data[i] = in.in[i]->data;
        else if (out->fmt == FMT_F64)
            in.data[i] = tensor_f64(in.in[i], (double **)&in.tmp[i]);
        else
            in.data[i] = tensor_f32(in.in[i], (float **)&in.tmp[i]);
        ok = ok && in.data[i];
    }
    if (op->num_in == 1)
        in.data[1] = in.data[0];
    int64_t rows = tensor_cols(out) ? tensor_rows(out) : 0;
    for (int64_t row = 0; ok && row < rows; row++)
        run_row(op, out, &in, row);
    free(in.tmp[0]);
    free(in.tmp[1]);
    return ok || eval_no_memory(e, op);
}

/* Whole rows ---------------------------------------------------------------------------------- */

static void rmsnorm_f64(double *dst, const double *x, const double *weight, const double *bias,
                        double eps, int64_t num)
{
    (void)bias;
    double sum = 0;
    for (int64_t i = 0; i < num; i++)
        sum += x[i] * x[i];
    double r = 1 / sqrt(sum / (double)num + eps);
    for (int64_t i = 0; i < num; i++)
        dst[i] = x[i] * r * weight[i];
}

static void layernorm_f64(double *dst, const double *x, const double *weight, const double *bias,
                          double eps, int64_t num)
{
    double sum = 0, var = 0;
    for (int64_t i = 0; i < num; i++)
        sum += x[i];
    double mean = sum / (double)num;
    for (int64_t i = 0; i < num; i++)
        var += (x[i] - mean) * (x[i] - mean);
    double r = 1 / sqrt(var / (double)num + eps);
    for (int64_t i = 0; i < num; i++)
        dst[i] = (x[i] - mean) * r * weight[i] + bias[i];
}

static void softmax_f64(double *dst, const double *x, const double *weight, const double *bias,
                        double eps, int64_t num)
{
    (void)weight, (void)bias, (void)eps;
    double max = x[0], sum = 0;
    for (int64_t i = 1; i < num; i++)
        max = x[i] > max || isnan(x[i]) ? x[i] : max;
    for (int64_t i = 0; i < num; i++)
        sum += dst[i] = exp(x[i] - max);
    for (int64_t i = 0; i < num; i++)
        dst[i] /= sum;
}

static void rmsnorm_f32(float *dst, const float *x, const float *weight, const float *bias,
                        float eps, int64_t num)
{
    (void)bias;
    num_row_rmsnorm(dst, x, weight, eps, num);
}

static void layernorm_f32(float *dst, const float *x, const float *weight, const float *bias,
                          float eps, int64_t num)
{
    num_row_layernorm(dst, x, weight, bias, eps, num);
}

static void softmax_f32(float *dst, const float *x, const float *weight, const float *bias,
                        float eps, int64_t num)
{
    (void)weight, (void)bias, (void)eps;
    num_row_softmax(dst, x, num);
}

typedef void RowsF32(float *dst, const float *x, const float *weight, const float *bias, float eps,
                     int64_t num);
typedef void RowsF64(double *dst, const double *x, const double *weight, const double *bias,
                     double eps, int64_t num);

static bool rowwise(Eval *e, const Op *op, RowsF32 *f32, RowsF64 *f64)
{
    Tensor *out = eval_result(e, op, 0);
    if (!out)
        return false;
    float *tmp32[3] = {0};
    double *tmp64[3] = {0};
    const float *in32[3] = {0};
    const double *in64[3] = {0};
    bool ok = true;
    for (int i = 0; i < op->num_in; i++) {
        if (out->fmt == FMT_F64)
            ok = (in64[i] = tensor_f64(eval_in(e, op, i), &tmp64[i])) && ok;
        else
            ok = (in32[i] = tensor_f32(eval_in(e, op, i), &tmp32[i])) && ok;
    }
    int64_t cols = tensor_cols(out), rows = cols ? tensor_rows(out) : 0;
    for (int64_t row = 0; ok && row < rows; row++) {
        if (out->fmt == FMT_F64)
            f64((double *)out->data + row * cols, in64[0] + row * cols, in64[1], in64[2],
                op->attr.eps, cols);
        else
            f32((float *)out->data + row * cols, in32[0] + row * cols, in32[1], in32[2],
                (float)op->attr.eps, cols);
    }
    for (int i = 0; i < 3; i++) {
        free(tmp32[i]);
        free(tmp64[i]);
    }
    return ok || eval_no_memory(e, op);
}

bool eval_op_rmsnorm(Eval *e, const Op *op)
{
    return rowwise(e, op, rmsnorm_f32, rmsnorm_f64);
}

bool eval_op_layernorm(Eval *e, const Op *op)
{
    return rowwise(e, op, layernorm_f32, layernorm_f64);
}

bool eval_op_softmax(Eval *e, const Op *op)
{
    return rowwise(e, op, softmax_f32, softmax_f64);
}

bool eval_op_hadamard(Eval *e, const Op *op)
{
    Tensor *out = eval_result(e, op, 0);
    if (!out)
        return false;
    const Tensor *in = eval_in(e, op, 0);
    int64_t cols = tensor_cols(out), rows = cols ? (int64_t)tensor_elements(out) / cols : 0;
    bool ok;
    if (out->fmt == FMT_F64) {
        double *tmp = NULL;
        const double *x = tensor_f64(in, &tmp);
        ok = x && hadamard_rows_f64(x, out->data, rows, cols);
        free(tmp);
    } else {
        float *tmp = NULL;
        const float *x = tensor_f32(in, &tmp);
        ok = x && hadamard_rows(x, out->data, rows, cols);
        free(tmp);
    }
    return ok || eval_no_memory(e, op);
}
