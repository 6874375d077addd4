/* simplify: removes what changes no bit.
 *
 * Needs: nothing.
 * Leaves: no cast to the own format or through a wider one, no view or move that is the identity or
 * follows its like, no static quantise of what was dequantised from the same codes, no narrowing
 * cast of the slices of a value one by one; equal ops once.
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

/* The narrower format to which all who read the value, or slices of it, cast it; its own: there is
 * none. *ret_slices: some do read slices. */
static FormatId read_as(const Value *value, bool *ret_slices)
{
    FormatId own = value->type->fmt, fmt = NUM_FORMATS;
    *ret_slices = false;
    for_each_use(use, value) {
        const Value *part = use->user->kind == OP_SLICE ? &use->user->out[0] : NULL;
        *ret_slices = *ret_slices || part;
        for (const Use *at = part ? part->uses : use; at; at = part ? at->next : NULL) {
            if (at->user->kind != OP_CAST ||
                (fmt != NUM_FORMATS && at->user->out[0].type->fmt != fmt))
                return own;
            fmt = at->user->out[0].type->fmt;
        }
    }
    return fmt < NUM_FORMATS && format_info[fmt].bits < format_info[own].bits ? fmt : own;
}

/* What is cast slice by slice is cast as a whole, by the kernel that makes it. */
static bool cast_whole(Module *m, Value *value)
{
    bool has_slices;
    const Type *type = value->type;
    FormatId fmt = type->scheme ? type->fmt : read_as(value, &has_slices);
    if (type->scheme || fmt == type->fmt || !has_slices)
        return false;
    const Type *narrow = type_plain(m, fmt, type->rank, type->dim);
    Value *cast = rewrite_unary(m, value->def->next, OP_CAST, narrow, value, value->def->span);
    for (Use *use = value->uses, *next; use; use = next) {
        Op *slice = use->user;
        next = use->next;
        if (slice->kind != OP_SLICE)
            continue;
        Value *part = rewrite_op(m, slice, OP_SLICE, &slice->attr, NULL, 1, &cast, slice->span);
        while (op_out(slice)->uses) {
            Op *narrowing = op_out(slice)->uses->user;
            value_replace(op_out(narrowing), part);
            op_remove(narrowing);
        }
    }
    return true;
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

#define MOST_JOINED 256 /* operands of one concat: chains of them are walked no further */

/* Read by this concat alone, along the same axis. */
static bool is_part_of(const Op *concat, const Value *value)
{
    const Op *def = value->def;
    return def->kind == OP_CONCAT && def->attr.axis == concat->attr.axis && !value->uses->next;
}

/* A concat of concats is one. */
static Value *simplify_concat(Module *m, Op *op, Arena *scratch)
{
    int num = 0;
    for (int i = 0; i < op->num_in; i++)
        num += is_part_of(op, op_in(op, i)) ? op_in(op, i)->def->num_in : 1;
    if (op->num_in == 1)
        return op_in(op, 0);
    if (num == op->num_in || num > MOST_JOINED)
        return NULL;
    Value **in = ARENA_NEW_ARRAY(scratch, Value *, (size_t)num);
    num = 0;
    for (int i = 0; i < op->num_in; i++) {
        Op *def = op_in(op, i)->def;
        if (is_part_of(op, op_in(op, i)))
            for (int k = 0; k < def->num_in; k++)
                in[num++] = op_in(def, k);
        else
            in[num++] = op_in(op, i);
    }
    return rewrite_op(m, op, OP_CONCAT, &op->attr, NULL, num, in, op->span);
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

static Value *simplify_op(Module *m, Op *op, Arena *scratch)
{
    switch (op->kind) {
    case OP_CAST: return simplify_cast(m, op);
    case OP_RESHAPE: return simplify_reshape(m, op);
    case OP_TRANSPOSE: return simplify_transpose(m, op);
    case OP_SLICE: return simplify_slice(m, op);
    case OP_QUANTIZE: return simplify_quantize(op);
    case OP_CONCAT: return simplify_concat(m, op, scratch);
    default: return NULL;
    }
}

bool pass_simplify(Module *m, PassContext *ctx)
{
    bool changed = block_share_equal(m, &m->body, ctx->scratch);

    for_each_op(op, &m->body)
        if (op->num_out == 1 && op->num_in > 0 &&
            !(op_info[op->kind].flags & (OPF_MOVE | OPF_ROUTE)))
            changed = cast_whole(m, op_out(op)) || changed;
    /* operands stand above and are simple already, so one walk is enough for the chains */
    for_each_op(op, &m->body) {
        Value *by = simplify_op(m, op, ctx->scratch);
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
