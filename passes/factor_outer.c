/* factor-outer: takes the outer scale of a constant weight out of its product.
 *
 * Needs: explicit quantisation (insert-quant, quantise-weights), scales not yet placed.
 * Leaves: matmuls on weights without outer scales, multiplied by those: a product knows one kind of
 * scale less, and siblings whose outer scales differ can be stacked.
 *
 * Before                                        After
 *   %q = quantize %w : e2m1{.. outer}             %q = quantize %w : e2m1{.. outer}
 *   %d = dequantize %q                            %i = inner %q : e2m1{..}
 *   %y = matmul %x, %d                            %d = dequantize %i
 *                                                 %v = matmul %x, %d
 *                                                 %s = outer %q
 *                                                 %y = mul %v, %s
 */
#include "passes/internal.h"

static void outer_factor(Module *m, Op *op)
{
    const Op *dequantize = op_in(op, 1)->def;

    if (dequantize->kind != OP_DEQUANTIZE || !value_is_constant(op_in(op, 1)))
        return;
    Value *codes = op_in(dequantize, 0);
    if (!codes->type->scheme->outer)
        return;
    Value *inner = rewrite_unary(m, op, OP_INNER, NULL, codes, op->span);
    Value *in[3] = {op_in(op, 0),
                    rewrite_unary(m, op, OP_DEQUANTIZE, NULL, inner, dequantize->span)};
    if (op->num_in == 3)
        in[2] = op_in(op, 2);
    Value *v = rewrite_op(m, op, OP_MATMUL, &op->attr, NULL, op->num_in, in, op->span);
    Value *outer = rewrite_unary(m, op, OP_OUTER, NULL, codes, op->span);
    v = rewrite_binary(m, op, OP_MUL, v, outer, op->span);
    v->name = op_out(op)->name;
    value_replace(op_out(op), v);
    op_remove(op);
}

bool pass_factor_outer(Module *m, PassContext *ctx)
{
    int before = m->num_ops;

    (void)ctx;
    for_each_op(op, &m->body)
        if (op->kind == OP_MATMUL && op->attr.place == PLACE_NONE)
            outer_factor(m, op);
    return m->num_ops != before;
}
