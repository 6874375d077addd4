/* place-masks: zeros in rows that do not count, where somebody reads them.
 *
 * Needs: quantisations are explicit (insert-quant).
 * Leaves: a mask between each counted product and whoever reads rows that do not count: an output,
 * what mixes rows, a scale of several rows. What these rows hold before it is nobody's concern, so
 * kernels need not compute them. Above -O0 there are no other masks, and they stand behind casts,
 * so that the kernel before can end with them.
 *
 * Before                                   After
 *   %1 = mask %x, %n                         %2 = matmul %x, %w, %n
 *   %2 = matmul %1, %w, %n                   %4 = relu %2
 *   %3 = mask %2, %n                         %5 = matmul %4, %v, %n
 *   %4 = relu %3                             %7 = cast %5 : bf16[4, M, 64]
 *   %5 = matmul %4, %v, %n                   %6 = mask %7, %n
 *   %6 = mask %5, %n                         output "y" %6
 *   %7 = cast %6 : bf16[4, M, 64]
 *   output "y" %7
 */
#include "passes/internal.h"

static bool same_rows(const Type *a, const Type *b)
{
    return a->rank == 3 && b->rank == 3 && dim_equal(a->dim[0], b->dim[0]) &&
           dim_equal(a->dim[1], b->dim[1]);
}

/* Each row of the result is made of the operand's row alone. */
static bool is_row_by_row(const Op *op, int slot)
{
    const Type *result = op->num_out == 1 ? op->out[0].type : NULL;
    unsigned flags = op_info[op->kind].flags;
    if (!result || !same_rows(op_in(op, slot)->type, result))
        return false;
    switch (op->kind) {
    case OP_QUANTIZE:
        return slot == 0 && !result->scheme->outer &&
               (result->scheme->block[0] == 1 || op->num_in > 1);
    case OP_DEQUANTIZE: return true;
    case OP_SPREAD:
    case OP_DISPATCH:
    case OP_COMBINE: return false;
    default: return flags & (OPF_POINTWISE | OPF_ROWWISE);
    }
}

/* Does the use read rows beyond these counts? Its user's results are marked already. */
static bool reads_others(const Use *use, const Value *counts)
{
    const Op *op = use->user;
    for (int slot = 0; slot < op->num_in; slot++) {
        if (&op->in[slot] != use)
            continue;
        if (slot == 0 && op_is_counted(op) && op->kind != OP_SPREAD && op_ends(op) == counts)
            return false;
        return !is_row_by_row(op, slot) || op->mark;
    }
    return true;
}

/* Marks ops of whose results somebody reads rows beyond these counts. */
static void mark_read(Module *m, const Value *counts)
{
    for (Op *op = m->body.last; op; op = op->prev) {
        op->mark = false;
        for (int i = 0; i < op->num_out; i++)
            for_each_use(use, &op->out[i])
                op->mark = op->mark || reads_others(use, counts);
    }
}

static bool drop_unread(Module *m, const Value *counts)
{
    bool changed = false;
    mark_read(m, counts);
    for_each_op(op, &m->body) {
        if (op->kind != OP_MASK || op_ends(op) != counts || op->mark)
            continue;
        value_replace(op_out(op), op_in(op, 0));
        op_remove(op);
        changed = true;
    }
    return changed;
}

/* cast(mask(x)) -> mask(cast(x)) */
static bool sink(Module *m, Op *mask)
{
    const Use *use = op_out(mask)->uses;
    Op *cast = use && !use->next ? use->user : NULL;
    if (!cast || cast->kind != OP_CAST || cast->block != &m->body)
        return false;
    Value *in[2] = {rewrite_unary(m, cast, OP_CAST, op_out(cast)->type, op_in(mask, 0), cast->span),
                    op_in(mask, 1)};
    value_replace(op_out(cast), rewrite_op(m, cast, OP_MASK, NULL, NULL, 2, in, mask->span));
    op_remove(cast);
    op_remove(mask);
    return true;
}

/* Of products that have none, which only a printed module may hold. */
static bool add_missing(Module *m, const Value *counts)
{
    bool changed = false;
    mark_read(m, counts);
    for_each_op(op, &m->body) {
        if (op->kind != OP_MATMUL || !op_is_counted(op) || op_ends(op) != counts || !op->mark)
            continue;
        Value *result = op_out(op), *in[2] = {result, op_ends(op)};
        Value *masked = rewrite_op(m, op->next, OP_MASK, NULL, NULL, 2, in, op->span);
        value_replace(result, masked);
        op_set_in(masked->def, 0, result);
        changed = true;
    }
    return changed;
}

bool pass_place_masks(Module *m, PassContext *ctx)
{
    bool changed = false;
    ARRAY(const Value *) seen = {0};
    ARRAY(Op *) left = {0};

    for_each_op(op, &m->body) {
        bool known = !op_is_counted(op);
        for (int i = 0; !known && i < seen.num; i++)
            known = seen.elem[i] == op_ends(op);
        if (!known)
            ARRAY_PUSH(ctx->scratch, &seen, op_ends(op));
    }
    for (int i = 0; i < seen.num; i++) {
        changed = add_missing(m, seen.elem[i]) || changed;
        changed = (ctx->options.opt_level > 0 && drop_unread(m, seen.elem[i])) || changed;
    }
    if (!ctx->options.opt_level)
        return changed;
    for_each_op(op, &m->body)
        if (op->kind == OP_MASK)
            ARRAY_PUSH(ctx->scratch, &left, op);
    for (int i = 0; i < left.num; i++)
        changed = sink(m, left.elem[i]) || changed;
    return changed;
}
