/* simplify: removes what changes no bit.
 *
 * Needs: nothing.
 * Leaves: no cast to the own format or through a wider one, no view or move that is the identity or
 * follows its like, no static quantise of what was dequantised from the same codes; equal ops once.
 *
 * Before                                        After
 *   %1 = cast %0 : f32[B, 4]                      output "y" %0
 *   %2 = cast %1 : bf16[B, 4]
 *   output "y" %2
 *   (%0 : bf16[B, 4])
 */
#include "passes/internal.h"

/* Does every value of format a also exist in format b, which a cast gave? */
static bool format_widens(FormatId a, FormatId b)
{
    const FormatInfo *x = &format_info[a], *y = &format_info[b];

    return x->family == FAMILY_FLOAT && x->exp_bits <= y->exp_bits && x->man_bits <= y->man_bits;
}

static Value *simplify_cast(Module *m, Op *op)
{
    Value *in = op_in(op, 0);
    const Type *type = op_out(op)->type;

    if (in->type == type)
        return in;
    if (in->def->kind != OP_CAST)
        return NULL;
    Value *source = op_in(in->def, 0);
    if (!format_widens(source->type->fmt, in->type->fmt))
        return NULL;
    return source->type == type ? source : rewrite_unary(m, op, OP_CAST, type, source, op->span);
}

static Value *simplify_reshape(Module *m, Op *op)
{
    Value *in = op_in(op, 0);

    if (in->type == op_out(op)->type)
        return in;
    if (in->def->kind != OP_RESHAPE)
        return NULL;
    Value *source = op_in(in->def, 0);
    return source->type == op_out(op)->type
               ? source
               : rewrite_unary(m, op, OP_RESHAPE, op_out(op)->type, source, op->span);
}

static bool is_identity(const Attr *attr)
{
    for (int i = 0; i < attr->num_perm; i++)
        if (attr->perm[i] != i)
            return false;
    return true;
}

static Value *simplify_transpose(Module *m, Op *op)
{
    Value *in = op_in(op, 0);
    Attr attr = op->attr;

    if (is_identity(&attr))
        return in;
    if (in->def->kind != OP_TRANSPOSE)
        return NULL;
    for (int i = 0; i < attr.num_perm; i++)
        attr.perm[i] = in->def->attr.perm[op->attr.perm[i]];
    Value *source = op_in(in->def, 0);
    return is_identity(&attr) ? source
                              : rewrite_op(m, op, OP_TRANSPOSE, &attr, NULL, 1, &source, op->span);
}

static Value *simplify_slice(Module *m, Op *op)
{
    Value *in = op_in(op, 0);
    Attr attr = op->attr;

    if (in->type == op_out(op)->type)
        return in;
    if (in->def->kind != OP_SLICE || in->def->attr.axis != attr.axis || in->type->scheme)
        return NULL;
    attr.start += in->def->attr.start;
    attr.stop += in->def->attr.start;
    Value *source = op_in(in->def, 0);
    return rewrite_op(m, op, OP_SLICE, &attr, NULL, 1, &source, op->span);
}

/* codes * scale / scale rounds to the codes again, because the two roundings err by far less than
 * half a step. With dynamic scales a second quantise may choose another scale. */
static Value *simplify_quantize(Op *op)
{
    const Op *from = op_in(op, 0)->def;

    if (from->kind != OP_DEQUANTIZE || op->num_in < 2)
        return NULL;
    Value *codes = op_in(from, 0);
    const Op *first = codes->def;
    if (first->kind != OP_QUANTIZE || codes->type != op_out(op)->type ||
        first->num_in != op->num_in)
        return NULL;
    for (int i = 1; i < op->num_in; i++)
        if (op_in(first, i) != op_in(op, i))
            return NULL;
    return codes;
}

static Value *simplify_op(Module *m, Op *op)
{
    switch (op->kind) {
    case OP_CAST: return simplify_cast(m, op);
    case OP_RESHAPE: return simplify_reshape(m, op);
    case OP_TRANSPOSE: return simplify_transpose(m, op);
    case OP_SLICE: return simplify_slice(m, op);
    case OP_QUANTIZE: return simplify_quantize(op);
    case OP_CONCAT: return op->num_in == 1 ? op_in(op, 0) : NULL;
    default: return NULL;
    }
}

bool pass_simplify(Module *m, PassContext *ctx)
{
    bool changed = block_share_equal(m, &m->body, ctx->scratch);

    /* operands stand above and are simple already, so one walk is enough for the chains */
    for_each_op(op, &m->body) {
        Value *by = simplify_op(m, op);
        if (!by)
            continue;
        value_replace(op_out(op), by);
        op_remove(op);
        changed = true;
    }
    if (changed)
        block_share_equal(m, &m->body, ctx->scratch);
    return changed;
}
