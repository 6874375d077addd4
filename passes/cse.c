/* passes/cse: one op for all equal pure ops of a block. Used by simplify and, so that siblings have
 * the same operand, by merge-siblings. */
#include "passes/internal.h"
#include <string.h>

static bool text_equal(const char *a, const char *b)
{
    return a == b || (a && b && !strcmp(a, b));
}

static bool parts_equal(const ConstParts *a, const ConstParts *b)
{
    return a == b || (a && b && a->scheme == b->scheme && text_equal(a->scale, b->scale) &&
                      text_equal(a->zero, b->zero) && text_equal(a->offset, b->offset) &&
                      text_equal(a->outer, b->outer) && text_equal(a->table, b->table));
}

static bool const_equal(const Const *a, const Const *b)
{
    if (a->kind != b->kind)
        return false;
    if (a->kind == CONST_WEIGHT)
        return text_equal(a->name, b->name) && parts_equal(a->parts, b->parts);
    if (a->kind == CONST_RANDOM)
        return a->seed == b->seed && a->scale == b->scale;
    return a->stored_fmt == b->stored_fmt && a->bytes == b->bytes &&
           (a->data == b->data || !memcmp(a->data, b->data, a->bytes));
}

/* The layer is a name for messages, except where it says whose statistics choose the codes. */
static bool attr_equal(const Op *x, const Op *y)
{
    const Attr *a = &x->attr, *b = &y->attr;
    unsigned attrs = op_info[x->kind].attrs;

    if (attrs & (ATTR_QUANT | ATTR_FAMILY) && (a->quant != b->quant || a->family != b->family))
        return false;
    if (attrs & ATTR_PERM && (a->num_perm != b->num_perm ||
                              memcmp(a->perm, b->perm, (size_t)a->num_perm * sizeof *a->perm)))
        return false;
    if (attrs & ATTR_BY &&
        (!text_equal(a->by.name, b->by.name) || a->by.args.act_order != b->by.args.act_order ||
         a->by.args.damp != b->by.args.damp || (a->by.name && !text_equal(a->layer, b->layer))))
        return false;
    if (attrs & ATTR_RANGE && (!text_equal(a->range.calibrator, b->range.calibrator) ||
                               a->range.arg != b->range.arg || a->range.known != b->range.known ||
                               a->range.lo != b->range.lo || a->range.hi != b->range.hi))
        return false;
    return a->eps == b->eps && a->axis == b->axis && a->start == b->start && a->stop == b->stop &&
           a->count == b->count && a->place == b->place && a->mode == b->mode;
}

static bool op_equal(const Op *a, const Op *b)
{
    if (a->kind != b->kind || a->num_in != b->num_in || a->out[0].type != b->out[0].type)
        return false;
    for (int i = 0; i < a->num_in; i++)
        if (op_in(a, i) != op_in(b, i))
            return false;
    if (a->kind == OP_CONST)
        return const_equal(a->constant, b->constant);
    return attr_equal(a, b);
}

static uint64_t op_hash(const Op *op)
{
    uint64_t hash = hash_bytes(&op->kind, sizeof op->kind, 1);

    hash = hash_bytes(&op->out[0].type, sizeof op->out[0].type, hash);
    for (int i = 0; i < op->num_in; i++) {
        const Value *in = op_in(op, i);
        hash = hash_bytes(&in, sizeof in, hash);
    }
    hash = hash_bytes(&op->attr.start, sizeof op->attr.start, hash);
    /* what the text says freely is hashed with a key, so that no text makes all of it collide */
    if (op->kind == OP_CONST && op->constant->kind == CONST_WEIGHT)
        hash ^= hash_keyed(op->constant->name, strlen(op->constant->name));
    if (op->kind == OP_CONST && op->constant->kind == CONST_RANDOM)
        hash ^= hash_keyed(&op->constant->seed, sizeof op->constant->seed);
    if (op->kind == OP_CONST && op->constant->kind == CONST_DENSE && op->constant->bytes <= 64)
        hash ^= hash_keyed(op->constant->data, op->constant->bytes);
    return hash_keyed(&hash, sizeof hash);
}

bool block_share_equal(Module *m, Block *block, Arena *scratch)
{
    size_t num = 0, cap = 64;
    bool changed = false;

    (void)m;
    for_each_op(op, block)
        num++;
    while (cap < 2 * num)
        cap *= 2;
    Op **slot = ARENA_NEW_ARRAY(scratch, Op *, cap);
    for_each_op(op, block) {
        if (!(op_info[op->kind].flags & OPF_PURE) || op->num_out != 1 || op->kind == OP_ARG ||
            op->body)
            continue;
        size_t at = op_hash(op) & (cap - 1);
        while (slot[at] && !op_equal(slot[at], op))
            at = (at + 1) & (cap - 1);
        if (slot[at]) {
            value_replace(op_out(op), op_out(slot[at]));
            op_remove(op);
            changed = true;
        } else {
            slot[at] = op;
        }
    }
    return changed;
}
