/* A copy of a module, for evaluating it before and after a pass. */
#include "ir/internal.h"
#include <string.h>

typedef struct Cloner {
    Module *to;
    ValueMap *copy; /* beside each old value, its copy */
} Cloner;

static const char *text_of(Module *m, const char *text)
{
    return text ? intern(m->names, text, strlen(text)) : NULL;
}

static Dim clone_dim(const Module *to, Dim dim)
{
    for (int i = 0; i < 2; i++) {
        if (dim.sym[i])
            dim.sym[i] = to->syms.elem[dim.sym[i]->index];
    }
    return dim;
}

static const Type *clone_type(Module *to, const Type *type)
{
    Dim dim[LIMIT_RANK];
    for (int i = 0; i < type->rank; i++)
        dim[i] = clone_dim(to, type->dim[i]);
    return type->scheme ? type_quantised(to, type->scheme, type->rank, dim)
                        : type_plain(to, type->fmt, type->rank, dim);
}

static const QuantSpec *clone_quant(Module *to, const QuantSpec *quant)
{
    if (!quant)
        return NULL;
    QuantSpec *copy = ARENA_NEW(to->arena, QuantSpec);
    *copy = *quant;
    copy->weight = quant->weight ? scheme_intern(to, quant->weight) : NULL;
    copy->act = quant->act ? scheme_intern(to, quant->act) : NULL;
    copy->by = text_of(to, quant->by);
    copy->calibrator = text_of(to, quant->calibrator);
    copy->scheme_name = text_of(to, quant->scheme_name);
    return copy;
}

static const ConstParts *clone_parts(Module *to, const ConstParts *parts)
{
    ConstParts *copy = parts ? ARENA_NEW(to->arena, ConstParts) : NULL;
    if (parts)
        *copy = (ConstParts){scheme_intern(to, parts->scheme), text_of(to, parts->scale),
                             text_of(to, parts->zero),         text_of(to, parts->offset),
                             text_of(to, parts->outer),        text_of(to, parts->table)};
    return copy;
}

static Const *clone_const(Module *to, const Const *c)
{
    Const *copy = ARENA_NEW(to->arena, Const);
    *copy = *c;
    copy->name = text_of(to, c->name);
    copy->parts = clone_parts(to, c->parts);
    if (c->kind == CONST_DENSE && c->bytes) {
        void *data = arena_alloc(to->arena, c->bytes);
        memcpy(data, c->data, c->bytes);
        copy->data = data;
    }
    return copy;
}

static void clone_block(Cloner *c, Block *to, const Block *from);

static void clone_op(Cloner *c, Block *to, const Op *op)
{
    Module *m = c->to;
    Value **in = ARENA_NEW_ARRAY(m->arena, Value *, (size_t)op->num_in);
    for (int i = 0; i < op->num_in; i++)
        in[i] = valuemap_get(c->copy, op->in[i].value);
    Op *copy = op->kind == OP_KERNEL
                   ? kernel_create(m, to, NULL, op->span, op->num_in, in, op->num_out)
                   : op_create(m, to, NULL, op->kind, op->span, op->num_in, in, op->num_out);
    copy->attr = op->attr;
    copy->attr.layer = text_of(m, op->attr.layer);
    copy->attr.family = text_of(m, op->attr.family);
    copy->attr.by.name = text_of(m, op->attr.by.name);
    copy->attr.range.calibrator = text_of(m, op->attr.range.calibrator);
    copy->attr.quant = clone_quant(m, op->attr.quant);
    copy->name = text_of(m, op->name);
    copy->mark = op->mark;
    if (op->constant)
        copy->constant = clone_const(m, op->constant);
    if (op->body)
        clone_block(c, copy->body, op->body);
    for (int i = 0; i < op->num_out; i++) {
        valuemap_put(c->copy, &op->out[i], &copy->out[i]);
        copy->out[i].name = text_of(m, op->out[i].name);
        copy->out[i].type = op->out[i].type ? clone_type(m, op->out[i].type) : NULL;
    }
}

static void clone_block(Cloner *c, Block *to, const Block *from)
{
    for_each_op(op, from)
        clone_op(c, to, op);
}

Module *module_clone(Arena *arena, const Module *m)
{
    Module *to = module_create(arena, m->diag, m->name);
    for (int i = 0; i < m->syms.num; i++) {
        const Sym *sym = m->syms.elem[i];
        module_add_sym(to, sym->name, sym->num_sizes, sym->size, sym->span);
    }
    for (int i = 0; i < m->weight_files.num; i++)
        ARRAY_PUSH(arena, &to->weight_files, text_of(to, m->weight_files.elem[i]));
    for (int i = 0; i < m->weight_spans.num; i++)
        ARRAY_PUSH(arena, &to->weight_spans, m->weight_spans.elem[i]);
    for (int i = 0; i < m->calibrate_spans.num; i++)
        ARRAY_PUSH(arena, &to->calibrate_spans, m->calibrate_spans.elem[i]);
    for (int i = 0; i < m->calibrate_files.num; i++)
        ARRAY_PUSH(arena, &to->calibrate_files, text_of(to, m->calibrate_files.elem[i]));
    for (int i = 0; i < m->expects.num; i++) {
        Expect e = m->expects.elem[i];
        e.input = text_of(to, e.input);
        e.output = text_of(to, e.output);
        ARRAY_PUSH(arena, &to->expects, e);
    }
    to->weights = m->weights;
    to->checkpoint = m->checkpoint;
    to->calibration_file = m->calibration_file ? text_of(to, m->calibration_file) : NULL;
    to->calibration_span = m->calibration_span;
    to->activations = m->activations;
    to->weight_stats = m->weight_stats;
    to->code_maker = m->code_maker;
    Cloner c = {.to = to, .copy = valuemap_create(arena)};
    clone_block(&c, &to->body, &m->body);
    return to;
}
