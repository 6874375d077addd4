/* Changing modules; see modules.h. */
#include "modules.h"

#include <string.h>

static const FormatId plain_fmt[] = {FMT_F32, FMT_F16, FMT_BF16};
static const Scheme scheme_table[] = {
    {.fmt = FMT_I8, .scale_fmt = FMT_F32, .block = {0, 0}},
    {.fmt = FMT_I8, .scale_fmt = FMT_F32, .block = {1, 0}},
    {.fmt = FMT_I8, .scale_fmt = FMT_F32, .block = {1, 0}, .zero = ZERO_INT},
    {.fmt = FMT_U8, .scale_fmt = FMT_F32, .block = {0, 0}, .zero = ZERO_INT},
    {.fmt = FMT_I8, .scale_fmt = FMT_F16, .block = {1, 8}},
    {.fmt = FMT_I4, .scale_fmt = FMT_F32, .block = {1, 8}},
    {.fmt = FMT_I4, .scale_fmt = FMT_F32, .block = {1, 16}, .zero = ZERO_INT},
    {.fmt = FMT_U4, .scale_fmt = FMT_F32, .block = {1, 0}, .zero = ZERO_INT},
    {.fmt = FMT_I8, .scale_fmt = FMT_F32, .block = {2, 4}},
    {.fmt = FMT_E4M3, .scale_fmt = FMT_F32, .block = {1, 0}},
    {.fmt = FMT_E5M2, .scale_fmt = FMT_F32, .block = {0, 0}},
    {.fmt = FMT_E4M3, .scale_fmt = FMT_F32, .block = {8, 8}},
    {.fmt = FMT_E4M3, .scale_fmt = FMT_E8M0, .block = {1, 32}},
    {.fmt = FMT_E2M1, .scale_fmt = FMT_E4M3, .block = {1, 16}, .outer = true},
    {.fmt = FMT_E2M1, .scale_fmt = FMT_E8M0, .block = {1, 32}},
    {.fmt = FMT_NF4, .scale_fmt = FMT_F32, .block = {1, 16}},
    {.fmt = FMT_FP4, .scale_fmt = FMT_BF16, .block = {1, 64}},
};

static const Scheme *any_scheme(Module *m, Choices *c)
{
    return scheme_intern(m, &scheme_table[choose(c, COUNT_OF(scheme_table))]);
}

static Op *any_op(Module *m, Choices *c)
{
    uint64_t num = 0;
    for_each_op(op, &m->body)
        num++;
    uint64_t at = num ? choose(c, num) : 0;
    for_each_op(op, &m->body)
        if (!at--)
            return op;
    return NULL;
}

/* A result above an op: of the type that is asked for, where there is one nearby. */
static Value *any_value(Op *before, const Type *type, Choices *c)
{
    Value *found = NULL;
    uint64_t seen = 0;
    for (Op *op = before->prev; op; op = op->prev)
        for (int i = 0; i < op->num_out; i++)
            if ((!type || op->out[i].type == type) && !choose(c, ++seen))
                found = &op->out[i];
    return found;
}

/* Changes -------------------------------------------------------------------------------------- */

static void change_operand(Module *m, Op *op, Choices *c)
{
    (void)m;
    if (!op->num_in)
        return;
    int slot = (int)choose(c, (uint64_t)op->num_in);
    Value *value = any_value(op, choose(c, 4) ? op_in(op, slot)->type : NULL, c);
    if (value)
        op_set_in(op, slot, value);
}

static void change_kind(Module *m, Op *op, Choices *c)
{
    (void)m;
    OpKind kind = (OpKind)choose(c, NUM_OPS);
    const OpInfo *info = &op_info[kind];
    if (!(op_info[op->kind].flags & OPF_PURE) || op->kind == OP_CONST || kind == OP_CONST ||
        !(info->flags & OPF_PURE) || (info->flags & OPF_BODY) || op->num_in < info->min_in ||
        (info->max_in >= 0 && op->num_in > info->max_in))
        return;
    op->kind = kind;
    if (!(info->attrs & ATTR_EPS))
        return;
    op->attr.eps = 1e-5;
}

static void change_format(Module *m, Op *op, Choices *c)
{
    const Type *t = op->num_out == 1 ? op->out[0].type : NULL;
    if (!t)
        return;
    if (t->scheme || op->kind == OP_QUANTIZE)
        op_set_type(op, 0, type_quantised(m, any_scheme(m, c), t->rank, t->dim));
    else if (op->kind != OP_CONST || op->constant->kind == CONST_RANDOM)
        op_set_type(op, 0, type_plain(m, plain_fmt[choose(c, 3)], t->rank, t->dim));
}

/* Of what is declared; uses follow where they can. */
static void change_shape(Module *m, Op *op, Choices *c)
{
    const Type *t = op->num_out == 1 ? op->out[0].type : NULL;
    bool declared = op->kind == OP_INPUT || op->kind == OP_RESHAPE ||
                    (op->kind == OP_CONST && op->constant->kind == CONST_RANDOM);
    if (!t || !declared || !t->rank)
        return;
    Dim dim[LIMIT_RANK];
    int rank = t->rank, at = (int)choose(c, (uint64_t)rank);
    memcpy(dim, t->dim, sizeof dim);
    switch (choose(c, 5)) {
    case 0: dim[at] = dim_const((int64_t)choose(c, 70)); break;
    case 1: dim[at].add += dim[at].add > 1 && choose(c, 2) ? -1 : 1; break;
    case 2:
        if (m->syms.num && op->kind != OP_CONST)
            dim[at] = dim_sym(m->syms.elem[choose(c, (uint64_t)m->syms.num)]);
        break;
    case 3:
        if (rank < LIMIT_RANK)
            dim[rank++] = dim_const(1 + (int64_t)choose(c, 3));
        break;
    default: rank -= rank > 1;
    }
    op_set_type(op, 0, type_plain(m, t->fmt, rank, dim));
}

static void change_axes(Module *m, Op *op, Choices *c)
{
    (void)m;
    Attr *a = &op->attr;
    switch (choose(c, 5)) {
    case 0: a->axis = (int64_t)choose(c, 4); break;
    case 1: a->start = (int64_t)choose(c, 16); break;
    case 2: a->stop = a->start + (int64_t)choose(c, 33); break;
    case 3:
        if (a->num_perm > 1) {
            int x = (int)choose(c, (uint64_t)a->num_perm), y = a->perm[0];
            a->perm[0] = a->perm[x];
            a->perm[x] = y;
        }
        break;
    default: a->eps = choose(c, 2) ? 1e-5 : 0;
    }
}

static void change_quant(Module *m, Op *op, Choices *c)
{
    static const char *const by[] = {"rtn", "mse", "hqq"};
    if (op->kind == OP_QUANTIZE) {
        op->attr.mode = (QuantMode)choose(c, MODE_WEIGHT + 1);
        op->attr.range.known = choose(c, 2);
        op->attr.range.lo = -(float)choose(c, 5);
        op->attr.range.hi = (float)choose(c, 5);
        return;
    }
    if (op->kind != OP_MATMUL)
        return;
    QuantSpec *spec = ARENA_NEW(m->arena, QuantSpec);
    if (op->attr.quant)
        *spec = *op->attr.quant;
    switch (choose(c, 8)) {
    case 0: spec = NULL; break;
    case 1: spec->weight = choose(c, 6) ? any_scheme(m, c) : NULL; break;
    case 2: spec->act = choose(c, 6) ? any_scheme(m, c) : NULL; break;
    case 3: spec->act_fmt = choose(c, 2) ? plain_fmt[choose(c, 3)] : FMT_NONE; break;
    case 4: spec->by = by[choose(c, COUNT_OF(by))]; break;
    case 5: spec->keep = !spec->keep; break;
    case 6: spec->rotate = !spec->rotate; break;
    default:
        spec->act_static = op->attr.range.known = !spec->act_static;
        spec->calibrator = spec->act_static ? "minmax" : NULL;
        op->attr.range.calibrator = spec->calibrator;
        op->attr.range.lo = -(float)choose(c, 5);
        op->attr.range.hi = (float)choose(c, 5);
    }
    op->attr.quant = spec;
}

static void copy_op(Module *m, Op *op, Choices *c)
{
    Value *in[16];
    if (op->num_out != 1 || op->num_in > 16 || op->kind == OP_INPUT || op->body)
        return;
    for (int i = 0; i < op->num_in; i++)
        in[i] = op_in(op, i);
    Op *copy = op_create(m, &m->body, op->next, op->kind, op->span, op->num_in, in, 1);
    copy->attr = op->attr;
    copy->constant = op->constant;
    op_set_type(copy, 0, op->out[0].type);
    if (op->kind == OP_CONST && choose(c, 2)) {
        Const *other = ARENA_NEW(m->arena, Const);
        *other = *op->constant;
        other->seed++;
        copy->constant = other;
    }
    change_operand(m, copy, c);
    for_each_use(use, &op->out[0])
        if (use->user != copy && choose(c, 2))
            op_set_in(use->user, (int)(use - use->user->in), &copy->out[0]);
}

static void add_output(Module *m, Op *op, Choices *c)
{
    (void)c;
    if (op->num_out == 1 && !op->out[0].type->scheme && m->num_ops < 1000)
        build_output(m, arena_printf(m->arena, "o%d", m->num_ops), &op->out[0], op->span);
}

/* Uses get an operand, or another value, instead. */
static void drop_op(Module *m, Op *op, Choices *c)
{
    for (int i = 0; i < op->num_out; i++) {
        Value *by = any_value(op, op->out[i].type, c);
        by = by ? by : op->num_in ? op_in(op, 0) : any_value(op, NULL, c);
        if (!by && op->out[i].uses)
            return;
        if (by)
            value_replace(&op->out[i], by);
    }
    (void)m;
    op_remove(op);
}

/* Types ---------------------------------------------------------------------------------------- */

static const Type *declared_type(Module *m, const Op *op)
{
    const Type *t = op->num_out ? op->out[0].type : NULL;
    if (!op->num_in || !t || op->kind == OP_RESHAPE)
        return t;
    const Type *in = op_in(op, 0)->type;
    if (op->kind == OP_QUANTIZE && !t->scheme)
        return type_quantised(m, scheme_intern(m, &scheme_table[1]), in->rank, in->dim);
    if (op->kind == OP_CAST && t->scheme)
        return type_plain(m, FMT_F32, in->rank, in->dim);
    return t->scheme ? type_quantised(m, t->scheme, in->rank, in->dim)
                     : type_plain(m, t->fmt, in->rank, in->dim);
}

static bool has_kernel(const Module *m)
{
    for_each_op(op, &m->body)
        if (op->body)
            return true;
    return false;
}

/* What no longer fits goes, or its uses would not parse. */
static void infer_again(Module *m, Choices *c)
{
    for_each_op(op, &m->body) {
        if (op->kind == OP_OUTPUT)
            continue;
        const Type *type = op_infer_type(m, op, declared_type(m, op));
        if (type && op->num_out)
            op_set_type(op, 0, type);
        else
            drop_op(m, op, c);
    }
}

void module_mutate(Module *m, Choices *c)
{
    typedef void Change(Module *, Op *, Choices *);
    static Change *const change[] = {change_operand, change_operand, change_kind, change_kind,
                                     change_format,  change_shape,   change_axes, change_quant,
                                     change_quant,   change_quant,   copy_op,     add_output,
                                     drop_op};
    if (has_kernel(m))
        return;
    for (uint64_t num = 1 + choose(c, 4); num; num--) {
        Op *op = any_op(m, c);
        if (op)
            change[choose(c, COUNT_OF(change))](m, op, c);
    }
    infer_again(m, c);
}
