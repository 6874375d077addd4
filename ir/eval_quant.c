/* Quantise, dequantise, and the parts of quantised values. */
#include "ir/eval.h"
#include <stdlib.h>
#include <string.h>

static size_t num_blocks(const QTensor *q)
{
    return (size_t)q->row_blocks * (size_t)q->col_blocks;
}

/* Scales and zero points given as operands, or from a calibrated range. */
static bool set_params(Eval *e, const Op *op, QTensor *q)
{
    float scale = 1;
    int32_t zero = 0;
    if (op->num_in == 1) {
        if (!op->attr.range.known)
            return eval_fail(e, op, "its static range has not been calibrated");
        scheme_params(&q->scheme, op->attr.range.lo, op->attr.range.hi, &scale, &zero);
    }
    const Tensor *scales = op->num_in > 1 ? eval_in(e, op, 1) : NULL;
    const Tensor *zeros = op->num_in > 2 ? eval_in(e, op, 2) : NULL;
    float *tmp = NULL;
    const float *given = scales ? tensor_f32(scales, &tmp) : NULL;
    if (scales && !given)
        return eval_no_memory(e, op);
    bool one = scales && scales->rank == 0; /* else the whole grid, in the grid's order */
    for (size_t i = 0; i < num_blocks(q); i++) {
        q->scale[i] = scales ? given[one ? 0 : i] : scale;
        if (q->zero)
            q->zero[i] = zeros ? ((const int32_t *)zeros->data)[zeros->rank ? i : 0] : zero;
    }
    q->outer = 1;
    free(tmp);
    return true;
}

static bool run_quantiser(Eval *e, const Op *op, QTensor *q, FormatId fmt, const void *src)
{
    const char *by = op->attr.by.name;
    if (op->num_in > 1 || op->attr.mode == MODE_STATIC) {
        if (!set_params(e, op, q))
            return false;
        quantize_static(q, fmt, src);
        return true;
    }
    if (!by || strcmp(by, "rtn") == 0) {
        quantize_rtn(q, fmt, src);
        return true;
    }
    const WeightQuantiser *quantiser = weight_quantiser_find(by);
    if (!quantiser)
        return eval_fail(e, op, "there is no weight quantiser '%s'", by);
    const WeightStats *stats =
        e->m->weight_stats && op->attr.layer ? map_get(e->m->weight_stats, op->attr.layer) : NULL;
    const CodeMaker *maker = quantiser->takes_hessian ? e->m->code_maker : NULL;
    if (quantiser->needs_stats && !stats)
        return eval_fail(e, op, "'%s' needs what calibration sees at the layer's input", by);
    const char *why =
        maker ? maker->run(maker->user, op->attr.layer, quantiser, &op->attr.by.args, q, fmt, src)
              : quantiser->run(q, fmt, src, stats, &op->attr.by.args);
    return !why || eval_fail(e, op, "%s: %s", by, why);
}

bool eval_op_quantize(Eval *e, const Op *op)
{
    const Tensor *in = eval_in(e, op, 0);
    Tensor *out = eval_result(e, op, 0);
    if (!out)
        return false;
    if (in->fmt != FMT_F64)
        return run_quantiser(e, op, &out->q, in->fmt, in->data);
    float *tmp;
    if (!tensor_f32(in, &tmp)) /* codes are always the contract's, of the value rounded to f32 */
        return eval_no_memory(e, op);
    bool ok = run_quantiser(e, op, &out->q, FMT_F32, tmp);
    free(tmp);
    return ok;
}

bool eval_op_dequantize(Eval *e, const Op *op)
{
    Tensor *out = eval_result(e, op, 0);
    if (!out)
        return false;
    const Tensor *in = eval_in(e, op, 0);
    if (out->fmt == FMT_F64)
        qtensor_dequantize_f64(&in->q, out->data);
    else
        qtensor_dequantize(&in->q, out->data);
    return true;
}

/* The grid's entry of a row whose scale does not vary along the columns. */
static size_t row_entry(const QTensor *q, int64_t row)
{
    int64_t block = q->scheme.block[0];
    return (size_t)((block ? row / block : 0) * q->col_blocks);
}

bool eval_op_scales(Eval *e, const Op *op)
{
    Tensor *out = eval_result(e, op, 0);
    if (!out)
        return false;
    const QTensor *q = &eval_in(e, op, 0)->q;
    uint64_t num = tensor_elements(out);
    for (uint64_t i = 0; i < num; i++) {
        float scale = num_blocks(q) ? q->scale[row_entry(q, (int64_t)i)] : 1;
        if (out->fmt == FMT_F64)
            ((double *)out->data)[i] = (double)scale * (double)q->outer;
        else
            ((float *)out->data)[i] = num_scale_effective(scale, q->outer);
    }
    return true;
}

bool eval_op_zeros(Eval *e, const Op *op)
{
    Tensor *out = eval_result(e, op, 0);
    if (!out)
        return false;
    const QTensor *q = &eval_in(e, op, 0)->q;
    uint64_t num = tensor_elements(out);
    for (uint64_t i = 0; i < num; i++)
        ((int32_t *)out->data)[i] = num_blocks(q) ? q->zero[row_entry(q, (int64_t)i)] : 0;
    return true;
}

bool eval_op_code_sum(Eval *e, const Op *op)
{
    Tensor *out = eval_result(e, op, 0);
    if (!out)
        return false;
    const QTensor *q = &eval_in(e, op, 0)->q;
    for (int64_t row = 0; row < q->rows; row++) {
        int64_t sum = 0;
        for (int64_t col = 0; col < q->cols; col++)
            sum += (int64_t)qtensor_code_value(q, row, col);
        ((int32_t *)out->data)[row] = (int32_t)sum;
    }
    return true;
}

bool eval_op_outer(Eval *e, const Op *op)
{
    Tensor *out = eval_result(e, op, 0);
    if (!out)
        return false;
    float outer = eval_in(e, op, 0)->q.outer;
    if (out->fmt == FMT_F64)
        *(double *)out->data = (double)outer;
    else
        *(float *)out->data = outer;
    return true;
}

bool eval_op_inner(Eval *e, const Op *op)
{
    Tensor t;
    if (!tensor_take(e, op, 0, &t))
        return false;
    t.q.outer = 1;
    t.q.scheme.outer = false;
    eval_slot(e, &op->out[0])->tensor = t;
    return true;
}

bool eval_op_widen(Eval *e, const Op *op)
{
    Tensor *out = eval_result(e, op, 0);
    if (!out)
        return false;
    return qtensor_widen(&eval_in(e, op, 0)->q, &out->q) || eval_no_memory(e, op);
}
