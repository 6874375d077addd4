/* passes/util: small steps that several passes take when they rewrite a block. */
#include "passes/internal.h"

Value *rewrite_op(Module *m, Op *before, OpKind kind, const Attr *attr, const Type *declared,
                  int num_in, Value *const *in, Span span)
{
    Value *value = build_op(m, before->block, before, kind, attr, declared, num_in, in, span);

    if (!value)
        BUG("a pass built an ill-typed %s", op_info[kind].name);
    value->def->mark = before->mark;
    return value;
}

Value *rewrite_unary(Module *m, Op *before, OpKind kind, const Type *declared, Value *in, Span span)
{
    return rewrite_op(m, before, kind, NULL, declared, 1, &in, span);
}

Value *rewrite_binary(Module *m, Op *before, OpKind kind, Value *a, Value *b, Span span)
{
    Value *in[2] = {a, b};

    return rewrite_op(m, before, kind, NULL, NULL, 2, in, span);
}

Value *rewrite_const(Module *m, Op *before, FormatId fmt, int rank, const int64_t *dim,
                     const void *data, Span span)
{
    Dim dims[LIMIT_RANK];
    uint64_t elements, bytes;

    for (int i = 0; i < rank; i++)
        dims[i] = dim_const(dim[i]);
    if (!checked_elements(dim, rank, &elements) ||
        !checked_mul(elements, (uint64_t)format_info[fmt].bits / 8, &bytes))
        BUG("a pass built a constant that is too large");
    Const constant = {.kind = CONST_DENSE, .data = data, .bytes = bytes};
    Value *value =
        build_const(m, before->block, before, type_plain(m, fmt, rank, dims), &constant, span);
    if (!value)
        BUG("a pass built an ill-typed constant");
    value->def->mark = before->mark;
    return value;
}

/* By the numbers of block_number, which new ops inherit: walking the block would make passes over
 * long models quadratic. */
void constant_hoist(Value *value, Op *before)
{
    Op *op = value->def;

    if (op->mark <= before->mark)
        return;
    for (int i = 0; i < op->num_in; i++)
        constant_hoist(op_in(op, i), before);
    op_move_before(op, before);
    op->mark = before->mark;
}

void block_number(const Block *block)
{
    uint32_t at = 0;

    for_each_op(op, block)
        op->mark = ++at;
}

bool *block_constants(const Block *block, Arena *scratch)
{
    size_t num = 1;

    for_each_op(op, block)
        num++;
    bool *constant = ARENA_NEW_ARRAY(scratch, bool, num);
    block_number(block);
    for_each_op(op, block) {
        bool all = op_info[op->kind].flags & OPF_PURE && op->kind != OP_ARG;
        for (int i = 0; i < op->num_in && all; i++)
            all = constant[op_in(op, i)->def->mark];
        constant[op->mark] = all;
    }
    return constant;
}

int64_t type_cols(const Type *type)
{
    Dim last = type_last(type);

    return dim_is_const(last) ? last.add : -1;
}

const char *layer_name(const Op *op)
{
    return op->attr.layer ? op->attr.layer : op_info[op->kind].name;
}

bool scheme_is_per_tensor(const Scheme *scheme)
{
    return scheme->block[0] == 0 && scheme->block[1] == 0;
}

const char *path_resolve(Arena *arena, const char *base_dir, const char *path)
{
    if (path[0] == '/' || !base_dir || !base_dir[0])
        return path;
    return arena_printf(arena, "%s/%s", base_dir, path);
}
