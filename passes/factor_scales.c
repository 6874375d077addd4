/* factor-scales: decides where each scale of a quantised matmul applies.
 *
 * Needs: matmuls on dequantised operands (insert-quant).
 * Leaves: matmuls on codes. No scale varies along K: the matmul is `scales = epilogue` and the
 * scales multiply its result, ((float)acc * sa) * sw; for integers the zero points' terms are
 * explicit i32 ops before the cast. Some scale varies along K: `scales = mainloop`, the matmul
 * applies all of them but those of an activation that has one a row: they multiply its result.
 *
 * Before                                        After
 *   %2 = dequantize %1                            %5 = matmul %1, %3 {scales = epilogue}
 *   %4 = dequantize %3                            %6 = cast %5
 *   %y = matmul %2, %4                            %7 = mul %6, (scales %1 {axis = 0})
 *                                                 %y = mul %7, (scales %3 {axis = 1})
 *
 * Weights whose scales are whole multiples of one number a row are widened beside such integers:
 * their codes take in the multiples, and no scale varies.
 *
 * sum (x - zx)(w - zw) = acc - zx * (sum w - K * zw) - zw * sum x: everything that hangs on the
 * weight alone, and on a static zx, is a constant expression. */
#include "passes/internal.h"

typedef struct Side { /* one operand of a matmul */
    Value *value;     /* what the new matmul reads: codes, or the plain operand */
    const Scheme *scheme;
    int64_t axis; /* of the matmul's result, for scales and zeros */
    Value *ends;  /* of a weight for each group of rows: where the groups end; else NULL */
} Side;

static Side side_of(const Op *matmul, int slot)
{
    Value *value = op_in(matmul, slot);

    Value *ends = slot && matmul->num_in == 3 ? op_in(matmul, 2) : NULL;
    if (value->def->kind != OP_DEQUANTIZE)
        return (Side){value, NULL, slot, ends};
    value = op_in(value->def, 0);
    return (Side){value, value->type->scheme, slot, ends};
}

/* Beside integers of one scale a row, codes of whole multiples of a row's unit are integers, too.
 */
static void widen_weight(Module *m, Op *at, const Side *a, Side *b)
{
    if (!b->scheme || b->scheme->scale_fmt != FMT_I8 || !type_scale_varies(b->value->type) ||
        !value_is_constant(b->value) || !a->scheme || !scheme_is_integer(a->scheme) ||
        type_scale_varies(a->value->type))
        return;
    b->value = rewrite_unary(m, at, OP_WIDEN, NULL, b->value, at->span);
    b->scheme = b->value->type->scheme;
}

static bool side_varies(const Side *side)
{
    return type_scale_varies(side->value->type);
}

/* scales, zeros or code_sum of one side. A static scale or zero point is an operand already. */
static Value *side_part(Module *m, Op *at, const Side *side, OpKind kind)
{
    const Op *def = side->value->def;
    int slot = kind == OP_SCALES ? 1 : 2;
    Attr attr = {.axis = side->axis};
    Value *in = side->value;

    if (kind != OP_CODE_SUM && def->kind == OP_QUANTIZE && slot < def->num_in &&
        op_in(def, slot)->type->rank == 0 && !side->scheme->outer)
        return op_in(def, slot);
    return rewrite_op(m, at, kind, &attr, NULL, 1, &in, at->span);
}

/* What a weight gives to the product: one number a column, or a row of them for each group of rows,
 * which each row of the result finds by its group. */
static Value *spread_part(Module *m, Op *at, const Side *side, Value *part, const Value *result)
{
    if (!side->ends || part->type->rank != 2)
        return part;
    Value *in[2] = {part, side->ends};
    const Type *type = type_plain(m, part->type->fmt, result->type->rank, result->type->dim);
    return rewrite_op(m, at, OP_SPREAD, NULL, type, 2, in, at->span);
}

static Value *zero_point_terms(Module *m, Op *at, Value *acc, const Side *a, const Side *b)
{
    Value *result = acc;
    Value *zero_b = b->scheme->zero ? side_part(m, at, b, OP_ZEROS) : NULL;

    if (a->scheme->zero) {
        Value *zero_a = side_part(m, at, a, OP_ZEROS);
        Value *sum_b = side_part(m, at, b, OP_CODE_SUM);
        if (zero_b) {
            int32_t *k = ARENA_NEW(m->arena, int32_t);
            *k = (int32_t)type_cols(b->value->type);
            Value *num = rewrite_const(m, at, FMT_I32, 0, NULL, k, at->span);
            Value *all = rewrite_binary(m, at, OP_MUL, zero_b, num, at->span);
            sum_b = rewrite_binary(m, at, OP_SUB, sum_b, all, at->span);
        }
        sum_b = spread_part(m, at, b, sum_b, acc);
        Value *term = rewrite_binary(m, at, OP_MUL, sum_b, zero_a, at->span);
        result = rewrite_binary(m, at, OP_SUB, result, term, at->span);
    }
    if (zero_b) {
        Value *sum_a = side_part(m, at, a, OP_CODE_SUM);
        zero_b = spread_part(m, at, b, zero_b, acc);
        Value *term = rewrite_binary(m, at, OP_MUL, sum_a, zero_b, at->span);
        result = rewrite_binary(m, at, OP_SUB, result, term, at->span);
    }
    return result;
}

static Value *times_scales(Module *m, Op *at, Value *v, const Side *side)
{
    Value *scales = spread_part(m, at, side, side_part(m, at, side, OP_SCALES), v);

    return rewrite_binary(m, at, OP_MUL, v, scales, at->span);
}

static void matmul_factor(Module *m, Op *op)
{
    Side a = side_of(op, 0), b = side_of(op, 1);
    Attr attr = op->attr;

    if (!a.scheme && !b.scheme)
        return;
    widen_weight(m, op, &a, &b);
    Value *in[3] = {a.value, b.value, b.ends};
    attr.place = side_varies(&a) || side_varies(&b) ? PLACE_MAINLOOP : PLACE_EPILOGUE;
    Value *v = build_op(m, op->block, op, OP_MATMUL, &attr, NULL, op->num_in, in, op->span);
    if (!v) /* the type rule has said what does not fit */
        return;
    if (v->type->fmt == FMT_I32) {
        v = zero_point_terms(m, op, v, &a, &b);
        v = rewrite_unary(m, op, OP_CAST, type_plain(m, FMT_F32, v->type->rank, v->type->dim), v,
                          op->span);
    }
    if (a.scheme && !side_varies(&a))
        v = times_scales(m, op, v, &a);
    if (b.scheme && attr.place == PLACE_EPILOGUE)
        v = times_scales(m, op, v, &b);
    v->name = op_out(op)->name;
    value_replace(op_out(op), v);
    op_remove(op);
}

bool pass_factor_scales(Module *m, PassContext *ctx)
{
    int before = m->num_ops;

    (void)ctx;
    for_each_op(op, &m->body)
        if (op->kind == OP_MATMUL && op->attr.place == PLACE_NONE)
            matmul_factor(m, op);
    return m->num_ops != before;
}
