/* The invariants of ir.h, checked after every pass. A broken one is a bug of ours, not the user's:
 * it is reported on stderr with the op. */
#include "ir/internal.h"
#include <string.h>

typedef struct Verifier {
    Module *m;
    Arena *arena;
    const char *after;
    ValueMap *seen;      /* the blocks of the values defined so far */
    Map inputs, outputs; /* by name */
    bool ok;
} Verifier;

static void fail(Verifier *v, const Op *op, const char *fmt, ...) PRINTF_LIKE(3, 4);

static void fail(Verifier *v, const Op *op, const char *fmt, ...)
{
    Sb sb;
    sb_init(&sb, v->arena);
    if (op)
        op_print(&sb, op);
    fprintf(stderr, "verify after %s: ", v->after);
    va_list args;
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fprintf(stderr, "\n    %s\n", op ? sb.text : "");
    v->ok = false;
}

static void check_links(Verifier *v, const Block *block, const Op *op)
{
    if (op->block != block)
        fail(v, op, "the op's block is not the one that holds it");
    if ((op->prev ? op->prev->next : block->first) != op ||
        (op->next ? op->next->prev : block->last) != op)
        fail(v, op, "the list of ops is broken here");
    if ((op_info[op->kind].flags & OPF_BODY ? 1 : 0) != (op->body != NULL))
        fail(v, op, op->body ? "only kernels have a body" : "the kernel has no body");
    if (op->body && op->body->owner != op)
        fail(v, op, "the body has another owner");
}

static void check_in(Verifier *v, const Op *op, int slot)
{
    const Use *use = &op->in[slot];
    if (!use->value) {
        fail(v, op, "operand %d is missing", slot);
        return;
    }
    if (use->user != op || !use->link || *use->link != use)
        fail(v, op, "operand %d is not in its value's list of uses", slot);
    const Block *seen = valuemap_get(v->seen, use->value);
    if (!seen)
        fail(v, op, "operand %d is used before it is defined, or was removed", slot);
    else if (seen != op->block)
        fail(v, op, "operand %d is defined in another block", slot);
    if (!use->value->type)
        fail(v, op, "operand %d has no type", slot);
}

static void check_out(Verifier *v, const Op *op, int index)
{
    const Value *value = &op->out[index];
    if (value->def != op || value->index != index)
        fail(v, op, "result %d does not know its op", index);
    if (!value->type)
        fail(v, op, "result %d has no type", index);
    else if (type_make_same(v->m, value->type) != value->type)
        fail(v, op, "the type of result %d is not of this module", index);
    for (const Use *use = value->uses; use; use = use->next) {
        if (use->value != value || !use->user || use < use->user->in ||
            use >= use->user->in + use->user->num_in)
            fail(v, op, "result %d has a stale use", index);
        else if (!use->user->block)
            fail(v, op, "result %d is used by a removed op", index);
    }
    valuemap_put(v->seen, value, op->block);
}

bool const_bytes_fit(const Op *op)
{
    const Const *c = op->constant;
    const Type *type = op->out[0].type;
    if (c->kind == CONST_RANDOM || (c->kind == CONST_WEIGHT && !c->data))
        return !c->data;
    uint64_t num = 1;
    for (int i = 0; i < type->rank; i++) {
        if (!dim_is_const(type->dim[i]) || type->dim[i].add < 0 ||
            !checked_mul(num, (uint64_t)type->dim[i].add, &num))
            return false;
    }
    FormatId fmt = c->stored_fmt != FMT_NONE ? c->stored_fmt : type->fmt;
    return checked_mul(num, (uint64_t)format_info[fmt].bits, &num) && num % 8 == 0 &&
           c->bytes == num / 8 && (c->data || num == 0);
}

static void check_const(Verifier *v, const Op *op)
{
    if (!op->constant)
        fail(v, op, "the constant has no source");
    else if (op->constant->kind == CONST_WEIGHT && !op->constant->name)
        fail(v, op, "the weight has no name");
    else if (!const_bytes_fit(op))
        fail(v, op, "the constant's data do not have the size of its type");
}

/* The type rule must give the type that the result has. */
static void check_rule(Verifier *v, const Op *op)
{
    Diag quiet;
    diag_init(&quiet, v->arena);
    Diag *diag = v->m->diag;
    v->m->diag = &quiet;
    const Type *type = op_infer_type(v->m, op, op->num_out ? op->out[0].type : NULL);
    v->m->diag = diag;
    if (!type)
        fail(v, op, "%s", quiet.first ? quiet.first->text : "the type rule fails");
    else if (op->num_out == 1 && type != op->out[0].type)
        fail(v, op, "the type rule gives %s", type_text(v->arena, type));
}

const char *op_place_problem(const Op *op)
{
    bool inside = op->block->owner != NULL;
    bool port = op->kind == OP_INPUT || op->kind == OP_OUTPUT;
    if (inside && (port || op->kind == OP_KERNEL))
        return "cannot stand in a kernel's body";
    if (!inside && (op->kind == OP_ARG || op->kind == OP_YIELD))
        return "stands only in a kernel's body";
    if (op->prev && op->prev->kind == OP_YIELD)
        return "comes after the yield of its body";
    if (op->kind == OP_ARG && op->prev && op->prev->kind != OP_ARG)
        return "comes after other ops of its body; arguments are first";
    if (port && !op->name)
        return "has no name";
    return NULL;
}

int op_num_results(const Op *op)
{
    switch (op->kind) {
    case OP_YIELD:
    case OP_OUTPUT: return 0;
    case OP_KERNEL: return op->num_out < 1 ? 1 : op->num_out;
    default: return 1;
    }
}

static void check_name(Verifier *v, const Op *op)
{
    Map *names = op->kind == OP_INPUT ? &v->inputs : &v->outputs;
    if (!op->name)
        return;
    if (map_has(names, op->name))
        fail(v, op, "a second %s of this name", op_info[op->kind].name);
    map_put(names, op->name, (void *)op);
}

static void verify_block(Verifier *v, const Block *block)
{
    for_each_op(op, block) {
        check_links(v, block, op);
        bool before = v->ok;
        v->ok = true;
        for (int i = 0; i < op->num_in; i++)
            check_in(v, op, i);
        if (op->num_out != op_num_results(op))
            fail(v, op, "%d results instead of %d", op->num_out, op_num_results(op));
        if (op->body)
            verify_block(v, op->body);
        for (int i = 0; i < op->num_out; i++)
            check_out(v, op, i);
        if (op->kind == OP_INPUT || op->kind == OP_OUTPUT)
            check_name(v, op);
        if (op_place_problem(op))
            fail(v, op, "%s %s", op_info[op->kind].name, op_place_problem(op));
        if (v->ok) /* rules read operands and types, which must be there */
            check_rule(v, op);
        if (v->ok && op->kind == OP_KERNEL) {
            for (int i = 0; i < op->num_out; i++) {
                if (op->body->last->in[i].value->type != op->out[i].type)
                    fail(v, op, "result %d has not the type that the body yields", i);
            }
        }
        if (v->ok && op->kind == OP_CONST)
            check_const(v, op);
        v->ok = v->ok && before;
    }
}

bool module_verify(const Module *m, const char *after)
{
    /* Inference interns types, which adds nothing when all is well; the cast is for that table. */
    Verifier v = {.m = (Module *)m, .after = after, .ok = true};
    v.arena = arena_new();
    v.seen = valuemap_create(v.arena);
    valuemap_reserve(v.seen, (size_t)m->num_ops); /* most have one result */
    map_init(&v.inputs, v.arena);
    map_init(&v.outputs, v.arena);
    verify_block(&v, &m->body);
    arena_destroy(v.arena);
    return v.ok;
}
