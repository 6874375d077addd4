/* fold: evaluates small constant expressions.
 *
 * Needs: bound weights; an expression of an unbound weight stays.
 * Leaves: no plain constant expression of at most FOLD_MAX elements but constants. Large ones and
 * quantised ones stay expressions, which codegen evaluates one layer at a time.
 *
 * Before                                        After
 *   %0 = const dense [1, 2] : f32[2]              %1 = const dense [2, 4] : f32[2]
 *   %1 = add %0, %0 : f32[2]                      %y = mul %x, %1 : f32[B, 2]
 *   %y = mul %x, %1 : f32[B, 2]
 */
#include "passes/internal.h"
#include <string.h>

enum { FOLD_MAX = 4096 };

static bool is_small(const Type *type)
{
    static const int64_t no_sizes[1] = {0};
    uint64_t elements = 1;

    for (int i = 0; i < type->rank; i++) {
        int64_t dim;
        if (!dim_is_const(type->dim[i]) || !dim_eval(type->dim[i], no_sizes, &dim) ||
            !checked_mul(elements, (uint64_t)dim, &elements))
            return false;
    }
    return elements <= FOLD_MAX;
}

static bool is_foldable(const Op *op)
{
    if (op->kind == OP_CONST || op->num_out != 1 || op->out[0].type->scheme ||
        !is_small(op->out[0].type))
        return false;
    for (int i = 0; i < op->num_in; i++) {
        const Value *in = op_in(op, i);
        bool stored = in->type->scheme && in->def->kind == OP_CONST; /* its layer wants the codes */
        if (stored || !is_small(in->type)) /* large operands: not worth reading now */
            return false;
    }
    return true;
}

static bool op_fold(Module *m, Op *op)
{
    Tensor t = {0};
    const char *why;

    if (!eval_constant(m, op_out(op), &t, &why))
        return false;
    uint8_t *data = arena_alloc(m->arena, t.bytes + 1);
    memcpy(data, t.data, t.bytes);
    Const constant = {.kind = CONST_DENSE, .data = data, .bytes = t.bytes};
    tensor_free(&t);
    Value *value = build_const(m, op->block, op, op_out(op)->type, &constant, op->span);
    value->name = op_out(op)->name;
    value_replace(op_out(op), value);
    op_remove(op);
    return true;
}

bool pass_fold(Module *m, PassContext *ctx)
{
    const bool *constant = block_constants(&m->body, ctx->scratch);
    bool changed = false;

    for_each_op(op, &m->body)
        if (constant[op->mark] && is_foldable(op))
            changed |= op_fold(m, op);
    return changed;
}
