/* insert-quant: what the rules ask of a linear layer becomes ordinary ops.
 *
 * Needs: matmuls whose `quant` is settled (choose-scheme), static ranges known (calibrate).
 * Leaves: quantise and dequantise around the operands of each quantised matmul, a cast where a
 * plain activation has another format than the scheme says. The `quant` attribute stays until
 * quantise-weights has read it.
 *
 * Before                                        After
 *   %y = matmul %x, %w {quant = ..}               %1 = quantize %x {mode = dynamic}
 *                                                 %2 = dequantize %1
 *                                                 %3 = quantize %w {mode = weight}
 *                                                 %4 = dequantize %3
 *                                                 %y = matmul %2, %4 {quant = ..}
 *
 * A static outer scale s is taken off x ahead of its quantisation, by `mul %x, 1/s`, and put back
 * by `mul %y, s`: what is left between is dynamic in groups of one row, so that rows stay
 * independent and the quantisation can be part of the kernel before.
 */
#include "passes/internal.h"
#include <string.h>

/* The scale and zero point of a static scheme, from the range that calibrate found. Without a range
 * (check --no-weights) the quantize keeps its recipe instead. Returns the number of operands. */
static int static_params(Module *m, Op *matmul, const Scheme *scheme, Attr *attr, Value **in)
{
    float *scale = ARENA_NEW(m->arena, float);
    int32_t *zero = ARENA_NEW(m->arena, int32_t);

    const QuantSpec *spec = matmul->attr.quant;
    attr->mode = MODE_STATIC;
    if (!matmul->attr.range.known && !spec->act_known) {
        attr->range.calibrator = spec->calibrator;
        attr->range.arg = spec->calibrator_arg;
        return 1;
    }
    *scale = spec->act_scale;
    *zero = spec->act_zero;
    if (!spec->act_known)
        scheme_params(scheme, matmul->attr.range.lo, matmul->attr.range.hi, scale, zero);
    in[1] = rewrite_const(m, matmul, FMT_F32, 0, NULL, scale, matmul->span);
    if (scheme->zero == ZERO_NONE)
        return 2;
    in[2] = rewrite_const(m, matmul, FMT_I32, 0, NULL, zero, matmul->span);
    return 3;
}

/* The outer scale of an activation: given, or of the range that calibrate found. 1 without a range
 * (check --no-weights), where nothing is computed. */
static float static_outer(const Op *matmul, const Scheme *scheme)
{
    const QuantSpec *spec = matmul->attr.quant;
    int lo = num_abs_bits(matmul->attr.range.lo), hi = num_abs_bits(matmul->attr.range.hi);

    if (spec->act_known)
        return spec->act_scale;
    return matmul->attr.range.known ? num_outer((int)scheme->fmt, lo > hi ? lo : hi) : 1.0f;
}

/* The quant attribute then speaks of what is left. */
static void take_outer(Module *m, Op *matmul)
{
    QuantSpec *spec = ARENA_NEW(m->arena, QuantSpec);
    Scheme rest = *matmul->attr.quant->act;
    float *outer = ARENA_NEW(m->arena, float), *inverse = ARENA_NEW(m->arena, float);
    Value *result = op_out(matmul);

    *outer = static_outer(matmul, &rest);
    *inverse = 1.0f / *outer;
    Value *factor = rewrite_const(m, matmul, FMT_F32, 0, NULL, inverse, matmul->span);
    op_set_in(matmul, 0, rewrite_binary(m, matmul, OP_MUL, op_in(matmul, 0), factor, matmul->span));
    factor = rewrite_const(m, matmul->next, FMT_F32, 0, NULL, outer, matmul->span);
    Value *back = rewrite_binary(m, matmul->next->next, OP_MUL, result, factor, matmul->span);
    value_replace(result, back);
    op_set_in(back->def, 0, result);
    *spec = *matmul->attr.quant;
    rest.outer = false;
    spec->act = scheme_intern(m, &rest);
    spec->act_static = spec->act_known = false;
    spec->calibrator = NULL;
    matmul->attr.quant = spec;
}

static void quantise_operand(Module *m, Op *matmul, int slot, const Scheme *scheme, QuantMode mode)
{
    const QuantSpec *spec = matmul->attr.quant;
    Value *in[3] = {op_in(matmul, slot)};
    const Type *from = in[0]->type;
    Attr attr = {.mode = mode, .layer = matmul->attr.layer};
    int num_in = 1;

    if (slot == 0 && spec->act_static)
        num_in = static_params(m, matmul, scheme, &attr, in);
    if (slot == 0)
        memset(&matmul->attr.range, 0, sizeof matmul->attr.range);
    const Type *type = type_quantised(m, scheme, from->rank, from->dim);
    Value *codes =
        build_op(m, matmul->block, matmul, OP_QUANTIZE, &attr, type, num_in, in, matmul->span);
    if (codes) /* otherwise the type rule has reported why the scheme does not fit */
        op_set_in(matmul, slot, rewrite_unary(m, matmul, OP_DEQUANTIZE, NULL, codes, matmul->span));
}

static void cast_operand(Module *m, Op *matmul, FormatId fmt)
{
    Value *a = op_in(matmul, 0);

    if (fmt == FMT_NONE || a->type->fmt == fmt)
        return;
    const Type *type = type_plain(m, fmt, a->type->rank, a->type->dim);
    op_set_in(matmul, 0, rewrite_unary(m, matmul, OP_CAST, type, a, matmul->span));
}

/* Values that a checkpoint stores quantised come from a constant: they are for the rule to take. */
static bool is_done(const Op *matmul)
{
    const Op *weight = op_in(matmul, 1)->def;
    bool quantised = weight->kind == OP_DEQUANTIZE && op_in(weight, 0)->def->kind == OP_QUANTIZE;

    return quantised || op_in(matmul, 0)->def->kind == OP_DEQUANTIZE ||
           matmul->attr.place != PLACE_NONE;
}

bool pass_insert_quant(Module *m, PassContext *ctx)
{
    bool changed = false;

    (void)ctx;
    for_each_op(op, &m->body) {
        const QuantSpec *spec = op->attr.quant;
        if (op->kind != OP_MATMUL || !spec || spec->keep || is_done(op))
            continue;
        if (spec->act && spec->act->outer && spec->act_static)
            take_outer(m, op);
        spec = op->attr.quant;
        if (spec->act)
            quantise_operand(m, op, 0, spec->act, MODE_DYNAMIC);
        else
            cast_operand(m, op, spec->act_fmt);
        if (spec->weight && !spec->stored)
            quantise_operand(m, op, 1, spec->weight,
                             value_is_constant(op_in(op, 1)) ? MODE_WEIGHT : MODE_DYNAMIC);
        changed = true;
    }
    return changed;
}
