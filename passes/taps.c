/* taps: outputs that let a tool see what each linear layer gives, through the same kernels that the
 * compiled model uses. Smoothing looks through them and restores the scale of what they give; all
 * other passes treat them as the outputs that they are. */
#include "passes/internal.h"
#include <string.h>

/* The sum with the bias, where there is one. */
static Value *layer_result(Op *matmul)
{
    Value *value = op_out(matmul);
    Use *use = value->uses;

    if (!use || use->next || use->user->kind != OP_ADD || op_in(use->user, 0) != value)
        return value;
    const Value *bias = op_in(use->user, 1);
    return value_is_constant(bias) && bias->type->rank == 1 ? op_out(use->user) : value;
}

static void tap_add(Module *m, const char *name, Value *value, const Op *layer, Tap kind)
{
    build_output(m, name, value, layer->span);
    m->body.last->attr.layer = layer->attr.layer;
    m->body.last->attr.tap = kind;
}

void taps_add(Module *m)
{
    Map *seen = ARENA_NEW(m->arena, Map); /* a weight that is used twice is watched once */
    const Op *last = m->body.last;

    map_init(seen, m->arena);
    for_each_op(op, &m->body) {
        const char *layer = op->attr.layer;
        if (op->kind == OP_MATMUL && layer && !map_has(seen, layer)) {
            map_put(seen, layer, op);
            tap_add(m, layer, layer_result(op), op, TAP_RESULT);
            if (op->attr.quant && op->attr.quant->act && op->attr.quant->act_static &&
                !op->attr.quant->act_known)
                tap_add(m, arena_printf(m->arena, "%s input", layer), op_in(op, 0), op,
                        TAP_OPERAND);
        }
        if (op == last)
            break;
    }
}

static bool has_groups(const Module *m)
{
    for_each_op(op, &m->body)
        if (op->kind == OP_DISPATCH)
            return true;
    return false;
}

void taps_widen(Module *m, int64_t rows)
{
    for_each_op(op, &m->body) {
        const Type *type = op->kind == OP_INPUT ? op->out[0].type : NULL;
        Sym *sym = type && type->rank ? (Sym *)(uintptr_t)type->dim[0].sym[0] : NULL;
        if (!sym || rows <= sym->size[sym->num_sizes - 1] || !has_groups(m))
            continue;
        int64_t *size = ARENA_NEW_ARRAY(m->arena, int64_t, (size_t)sym->num_sizes);
        memcpy(size, sym->size, (size_t)sym->num_sizes * sizeof *size);
        size[sym->num_sizes - 1] = rows;
        sym->size = size;
    }
}

/* What the scheme can hold: symmetric ranges reach as far below zero as above. */
static void range_take(Op *tap, const Op *matmul)
{
    const Scheme *act = matmul->attr.quant->act;
    float lo = matmul->attr.range.lo, hi = matmul->attr.range.hi;

    lo = lo < 0 ? lo : 0;
    hi = hi > 0 ? hi : 0;
    if (act->zero == ZERO_NONE) {
        hi = hi > -lo ? hi : -lo;
        lo = -hi;
    }
    tap->attr.range = matmul->attr.range;
    tap->attr.range.lo = lo;
    tap->attr.range.hi = hi;
}

void taps_take_ranges(Module *m)
{
    for_each_op(tap, &m->body) {
        if (tap->kind != OP_OUTPUT || tap->attr.tap != TAP_OPERAND)
            continue;
        for_each_op(op, &m->body)
            if (op->kind == OP_MATMUL && op->attr.range.known && op->attr.layer &&
                !strcmp(op->attr.layer, tap->attr.layer))
                range_take(tap, op);
    }
}
