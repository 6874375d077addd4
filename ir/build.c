/* Modules, ops and the lists of uses that tie them together. */
#include "ir/ir.h"
#include <string.h>

Module *module_create(Arena *arena, Diag *diag, const char *name)
{
    Module *m = ARENA_NEW(arena, Module);
    m->arena = arena;
    m->diag = diag;
    m->names = intern_create(arena);
    m->name = intern(m->names, name, strlen(name));
    return m;
}

LayerNames module_layers(const Module *m, const char *const *name)
{
    const LayerNames *known = m->joined ? map_get(m->joined, *name) : NULL;
    return known ? *known : (LayerNames){1, name};
}

void module_join_layers(Module *m, const char *name, const LayerNames *layers)
{
    if (!m->joined) {
        m->joined = ARENA_NEW(m->arena, Map);
        map_init(m->joined, m->arena);
    }
    LayerNames *copy = ARENA_NEW(m->arena, LayerNames);
    *copy = *layers;
    map_put(m->joined, name, copy);
}

const Sym *module_add_sym(Module *m, const char *name, int num_sizes, const int64_t *size,
                          Span span)
{
    Sym *sym = ARENA_NEW(m->arena, Sym);
    int64_t *copy = ARENA_NEW_ARRAY(m->arena, int64_t, (size_t)num_sizes);
    for (int i = 0; i < num_sizes; i++)
        copy[i] = size[i];
    sym->name = intern(m->names, name, strlen(name));
    sym->index = m->syms.num;
    sym->num_sizes = num_sizes;
    sym->size = copy;
    sym->span = span;
    ARRAY_PUSH(m->arena, &m->syms, sym);
    return sym;
}

const Sym *module_find_sym(const Module *m, const char *name)
{
    for (int i = 0; i < m->syms.num; i++) {
        if (strcmp(m->syms.elem[i]->name, name) == 0)
            return m->syms.elem[i];
    }
    return NULL;
}

/* Uses ---------------------------------------------------------------------------------------- */

static void use_link(Use *use, Value *value)
{
    use->value = value;
    use->next = value->uses;
    use->link = &value->uses;
    if (use->next)
        use->next->link = &use->next;
    value->uses = use;
}

static void use_unlink(Use *use)
{
    *use->link = use->next;
    if (use->next)
        use->next->link = use->link;
    use->next = NULL;
    use->link = NULL;
}

void op_set_in(Op *op, int slot, Value *value)
{
    use_unlink(&op->in[slot]);
    use_link(&op->in[slot], value);
}

void value_replace(Value *old, Value *by)
{
    if (old == by)
        return;
    for_each_use(use, old) {
        use_unlink(use);
        use_link(use, by);
    }
}

int value_num_uses(const Value *value)
{
    int num = 0;
    for (const Use *use = value->uses; use; use = use->next)
        num++;
    return num;
}

/* Ops ----------------------------------------------------------------------------------------- */

static void block_insert(Block *block, Op *op, Op *before)
{
    Op *after = before ? before->prev : block->last;
    op->block = block;
    op->prev = after;
    op->next = before;
    *(after ? &after->next : &block->first) = op;
    *(before ? &before->prev : &block->last) = op;
}

static void block_unlink(Op *op)
{
    *(op->prev ? &op->prev->next : &op->block->first) = op->next;
    *(op->next ? &op->next->prev : &op->block->last) = op->prev;
    op->prev = op->next = NULL;
    op->block = NULL;
}

Op *op_create(Module *m, Block *block, Op *before, OpKind kind, Span span, int num_in,
              Value *const *in, int num_out)
{
    if (m->num_ops++ == LIMIT_OPS)
        diag_error(m->diag, span, E_LIMIT, "the model has more than %d operations", LIMIT_OPS);
    Op *op = ARENA_NEW(m->arena, Op);
    op->kind = kind;
    op->span = span;
    op->num_in = num_in;
    op->num_out = num_out;
    op->in = ARENA_NEW_ARRAY(m->arena, Use, (size_t)num_in);
    op->out = ARENA_NEW_ARRAY(m->arena, Value, (size_t)num_out);
    for (int i = 0; i < num_in; i++) {
        op->in[i].user = op;
        use_link(&op->in[i], in[i]);
    }
    for (int i = 0; i < num_out; i++)
        op->out[i] = (Value){.def = op, .index = i};
    block_insert(block, op, before);
    return op;
}

void op_set_type(Op *op, int index, const Type *type)
{
    op->out[index].type = type;
}

void op_remove(Op *op)
{
    for (int i = 0; i < op->num_out; i++) {
        if (op->out[i].uses)
            BUG("removing %s, whose result is used", op_info[op->kind].name);
    }
    for (int i = 0; i < op->num_in; i++)
        use_unlink(&op->in[i]);
    op->num_in = 0;
    block_unlink(op);
}

void op_move_before(Op *op, Op *before)
{
    if (op == before)
        return;
    block_unlink(op);
    block_insert(before->block, op, before);
}

/* Builders ------------------------------------------------------------------------------------ */

/* Gives the op its type or takes it out again. */
static Value *finish(Module *m, Op *op, const Type *declared)
{
    const Type *type = op_infer_type(m, op, declared);
    if (!type) {
        op_remove(op);
        return NULL;
    }
    op->out[0].type = type;
    return &op->out[0];
}

Value *build_op(Module *m, Block *b, Op *before, OpKind kind, const Attr *attr,
                const Type *declared, int num_in, Value *const *in, Span span)
{
    Op *op = op_create(m, b, before, kind, span, num_in, in, 1);
    if (attr)
        op->attr = *attr;
    return finish(m, op, declared);
}

Value *build_input(Module *m, const char *name, const Type *type, Span span)
{
    Op *op = op_create(m, &m->body, NULL, OP_INPUT, span, 0, NULL, 1);
    op->name = intern(m->names, name, strlen(name));
    op->out[0].name = op->name;
    return finish(m, op, type);
}

void build_output(Module *m, const char *name, Value *value, Span span)
{
    Op *op = op_create(m, &m->body, NULL, OP_OUTPUT, span, 1, &value, 0);
    op->name = intern(m->names, name, strlen(name));
}

Value *build_const(Module *m, Block *b, Op *before, const Type *type, const Const *c, Span span)
{
    Op *op = op_create(m, b, before, OP_CONST, span, 0, NULL, 1);
    op->constant = ARENA_NEW(m->arena, Const);
    *op->constant = *c;
    return finish(m, op, type);
}

Value *build_const_f32(Module *m, Block *b, Op *before, float value, Span span)
{
    float *data = ARENA_NEW(m->arena, float);
    *data = value;
    Const c = {.kind = CONST_DENSE, .data = data, .bytes = sizeof *data};
    return build_const(m, b, before, type_plain(m, FMT_F32, 0, NULL), &c, span);
}

Op *kernel_create(Module *m, Block *block, Op *before, Span span, int num_in, Value *const *in,
                  int num_out)
{
    Op *op = op_create(m, block, before, OP_KERNEL, span, num_in, in, num_out);
    op->body = ARENA_NEW(m->arena, Block);
    op->body->owner = op;
    return op;
}

bool kernel_finish(Module *m, Op *kernel)
{
    if (!op_infer_type(m, kernel, NULL))
        return false;
    for (int i = 0; i < kernel->num_out; i++)
        kernel->out[i].type = kernel->body->last->in[i].value->type;
    return true;
}
