/* The evaluator: runs a module op by op in its order, or one constant expression. Every value has a
 * slot with its tensor, freed after its last use; bodies of kernels run in place. */
#include "ir/eval.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool eval_fail(Eval *e, const Op *op, const char *fmt, ...)
{
    int len = 0;
    if (op)
        len = snprintf(e->why, sizeof e->why, "%s%s%s: ", op_info[op->kind].name,
                       op->attr.layer ? " of layer "
                       : op->name     ? " "
                                      : "",
                       op->attr.layer ? op->attr.layer
                       : op->name     ? op->name
                                      : "");
    if (len < 0 || (size_t)len >= sizeof e->why)
        len = 0;
    va_list args;
    va_start(args, fmt);
    vsnprintf(e->why + len, sizeof e->why - (size_t)len, fmt, args);
    va_end(args);
    return false;
}

bool eval_no_memory(Eval *e, const Op *op)
{
    (void)e;
    (void)op;
    memory_exhausted();
}

Slot *eval_slot(Eval *e, const Value *value)
{
    Slot *slot = valuemap_get(e->slots, value);
    if (!slot) {
        slot = ARENA_NEW(e->arena, Slot);
        valuemap_put(e->slots, value, slot);
    }
    return slot;
}

Tensor *eval_result(Eval *e, const Op *op, int index)
{
    Tensor *t = &eval_slot(e, &op->out[index])->tensor;
    return tensor_make(e, op, op->out[index].type, t) ? t : NULL;
}

/* Running -------------------------------------------------------------------------------------- */

typedef bool EvalFn(Eval *e, const Op *op);
static EvalFn *const eval_fns[NUM_OPS] = {
#define OP(ID, name, min_in, max_in, flags, type_rule, eval, attrs) [OP_##ID] = eval_op_##eval,
#include "ir/ops.def"
#undef OP
};

static void release(Eval *e, const Op *op)
{
    for (int i = 0; i < op->num_in; i++) {
        Slot *slot = eval_slot(e, op->in[i].value);
        if (--slot->uses_left == 0)
            tensor_free(&slot->tensor);
    }
    for (int i = 0; i < op->num_out; i++) {
        Slot *slot = eval_slot(e, &op->out[i]);
        if (slot->uses_left == 0)
            tensor_free(&slot->tensor);
    }
}

static bool run_op(Eval *e, const Op *op)
{
    if (!eval_fns[op->kind](e, op))
        return false;
    for (int i = 0; e->observe && i < op->num_out; i++)
        e->observe(e->user, &op->out[i], &eval_slot(e, &op->out[i])->tensor);
    release(e, op);
    return true;
}

static void expect_uses(Eval *e, const Op *op)
{
    for (int i = 0; i < op->num_out; i++) {
        Slot *slot = eval_slot(e, &op->out[i]);
        tensor_free(&slot->tensor);
        slot->uses_left = value_num_uses(&op->out[i]);
    }
}

bool eval_block(Eval *e, const Block *block)
{
    for_each_op(op, block)
        if (!run_op(e, op))
            return false;
    return true;
}

bool eval_op_arg(Eval *e, const Op *op)
{
    (void)e, (void)op; /* the kernel has set it */
    return true;
}

/* The results live on outside of the body; the yield's own release frees what it did not take. */
bool eval_op_yield(Eval *e, const Op *op)
{
    const Op *kernel = op->block->owner;
    for (int i = 0; i < op->num_in; i++) {
        if (!tensor_take(e, op, i, &eval_slot(e, &kernel->out[i])->tensor))
            return false;
    }
    return true;
}

bool eval_op_kernel(Eval *e, const Op *op)
{
    int arg = 0;
    for_each_op(inner, op->body) {
        expect_uses(e, inner);
        if (inner->kind != OP_ARG)
            continue;
        Tensor alias = *eval_in(e, op, arg++);
        alias.owned = false;
        eval_slot(e, &inner->out[0])->tensor = alias;
    }
    return eval_block(e, op->body);
}

bool eval_op_input(Eval *e, const Op *op)
{
    const Tensor *bound = map_get(&e->inputs, op->name);
    if (!bound)
        return eval_fail(e, op, "nothing is bound to it");
    Tensor alias = *bound;
    alias.owned = false;
    eval_slot(e, &op->out[0])->tensor = alias;
    return true;
}

bool eval_op_output(Eval *e, const Op *op)
{
    Tensor *out = map_get(&e->outputs, op->name);
    if (!out) {
        out = ARENA_NEW(e->arena, Tensor);
        map_put(&e->outputs, op->name, out);
    }
    tensor_free(out);
    return tensor_take(e, op, 0, out);
}

/* Constants ------------------------------------------------------------------------------------ */

static uint64_t splitmix64(uint64_t state)
{
    uint64_t z = state;
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

/* The sum of the four 16-bit parts of splitmix64's draw i, centred, over its deviation: close to
 * normal, and the same numbers on every machine. */
static void fill_random(const Const *c, FormatId fmt, void *dst, uint64_t num)
{
    double step = c->scale / 37837.22746440151; /* sqrt(4 * (2^32 - 1) / 12) */
    size_t size = (size_t)format_info[fmt].bits / 8;
    for (uint64_t i = 0; i < num; i++) {
        uint64_t z = splitmix64(c->seed + (i + 1) * UINT64_C(0x9E3779B97F4A7C15));
        int sum =
            (int)(z & 0xFFFF) + (int)(z >> 16 & 0xFFFF) + (int)(z >> 32 & 0xFFFF) + (int)(z >> 48);
        float value = (float)((sum - 131070) * step);
        format_from_f32(fmt, &value, (char *)dst + i * size, 1);
    }
}

/* Fills dst with the constant's elements in the declared format. */
static bool read_const(Eval *e, const Op *op, FormatId fmt, void *dst, uint64_t num)
{
    const Const *c = op->constant;
    FormatId stored = c->stored_fmt != FMT_NONE ? c->stored_fmt : fmt;
    const ConstPart whole = {c->data, num * (uint64_t)format_info[stored].bits / 8};
    const ConstPart *part = c->reader ? c->reader->part : &whole;
    if (c->kind == CONST_RANDOM) {
        fill_random(c, fmt, dst, num);
        return true;
    }
    for (int i = 0; i < (c->reader ? c->reader->num_parts : 1); i++) {
        uint64_t here = part[i].bytes * 8 / (uint64_t)format_info[stored].bits;
        if (stored == fmt)
            memcpy(dst, part[i].data, part[i].bytes);
        else if (!convert_plain(stored, part[i].data, fmt, dst, here))
            return eval_fail(e, op, "an element of '%s' is too large for %s",
                             c->name ? c->name : "?", format_info[fmt].name);
        dst = (char *)dst + here * (uint64_t)format_info[fmt].bits / 8;
    }
    return true;
}

/* A weight that a checkpoint stores quantised. */
static bool read_stored(Eval *e, const Op *op)
{
    const ConstReader *reader = op->constant->reader;
    Tensor *out = eval_result(e, op, 0);
    if (!out)
        return false;
    if (!reader)
        return eval_fail(e, op, "weight '%s' is not bound to a file", op->constant->name);
    if (out->q.codes || out->fmt == FMT_F32) {
        const char *why = reader->read(reader, &out->q, out->data);
        return !why || eval_fail(e, op, "%s", why);
    }
    uint64_t num = tensor_elements(out);
    float *narrow = malloc(num ? num * sizeof *narrow : 1);
    if (!narrow)
        return eval_no_memory(e, op);
    const char *why = reader->read(reader, NULL, narrow);
    if (!why)
        convert_plain(FMT_F32, narrow, out->fmt, out->data, num);
    free(narrow);
    return !why || eval_fail(e, op, "%s", why);
}

bool eval_op_const(Eval *e, const Op *op)
{
    const Const *c = op->constant;
    const Type *type = op->out[0].type;
    if (type->scheme || (c->reader && c->reader->read))
        return read_stored(e, op);
    FormatId stored = c->stored_fmt != FMT_NONE ? c->stored_fmt : type->fmt;
    Tensor alias = {.fmt = type->fmt, .rank = type->rank, .data = (void *)c->data};
    if (!tensor_shape(e, op, type, alias.dim))
        return false;
    uint64_t num = tensor_elements(&alias);
    alias.bytes = num * (uint64_t)format_info[type->fmt].bits / 8;
    if (c->kind != CONST_RANDOM && !c->data && !c->reader && num)
        return eval_fail(e, op, "weight '%s' is not bound to a file", c->name ? c->name : "?");
    bool wide = e->mode == EVAL_F64 && format_info[type->fmt].family == FAMILY_FLOAT;
    if (c->kind != CONST_RANDOM && !c->reader && stored == type->fmt && !wide) {
        eval_slot(e, &op->out[0])->tensor = alias;
        return true;
    }
    Tensor *out = eval_result(e, op, 0);
    if (!out)
        return false;
    if (!wide)
        return read_const(e, op, type->fmt, out->data, num);
    void *narrow = malloc(alias.bytes ? alias.bytes : 1);
    bool ok = narrow ? read_const(e, op, type->fmt, narrow, num) : eval_no_memory(e, op);
    if (ok)
        convert_plain(type->fmt, narrow, FMT_F64, out->data, num);
    free(narrow);
    return ok;
}

/* Whole modules -------------------------------------------------------------------------------- */

Eval *eval_create(const Module *m, EvalMode mode, const int64_t *sym_size)
{
    Arena *arena = arena_new();
    Eval *e = ARENA_NEW(arena, Eval);
    int64_t *size = ARENA_NEW_ARRAY(arena, int64_t, (size_t)m->syms.num + 1);
    for (int i = 0; sym_size && i < m->syms.num; i++)
        size[i] = sym_size[i];
    e->m = m;
    e->mode = mode;
    e->arena = arena;
    e->size = sym_size ? size : NULL;
    e->slots = valuemap_create(arena);
    map_init(&e->inputs, arena);
    map_init(&e->outputs, arena);
    return e;
}

static void free_slots(Eval *e, const Block *block)
{
    for_each_op(op, block) {
        for (int i = 0; i < op->num_out; i++)
            tensor_free(&eval_slot(e, &op->out[i])->tensor);
        if (op->body)
            free_slots(e, op->body);
    }
}

void eval_destroy(Eval *e)
{
    if (!e)
        return;
    free_slots(e, &e->m->body);
    for (int i = 0; i < e->inputs.num; i++)
        tensor_free(e->inputs.entry[i].value);
    for (int i = 0; i < e->outputs.num; i++)
        tensor_free(e->outputs.entry[i].value);
    arena_destroy(e->arena);
}

static const Op *find_input(const Module *m, const char *name)
{
    for_each_op(op, &m->body) {
        if (op->kind == OP_INPUT && strcmp(op->name, name) == 0)
            return op;
    }
    return NULL;
}

bool eval_bind(Eval *e, const char *input, const Tensor *value)
{
    const Op *op = find_input(e->m, input);
    int64_t dim[LIMIT_RANK];
    Tensor t;
    if (!op || value->rank != op->out[0].type->rank || value->q.codes ||
        !tensor_shape(e, op, op->out[0].type, dim))
        return false;
    for (int i = 0; i < value->rank; i++) {
        if (value->dim[i] != dim[i])
            return false;
    }
    FormatId fmt = op->out[0].type->fmt;
    if (fmt == FMT_I32 ? value->fmt != FMT_I32 : !format_is_plain(value->fmt))
        return false;
    if (!tensor_make(e, op, op->out[0].type, &t))
        return false;
    uint64_t num = tensor_elements(&t);
    if (value->fmt == t.fmt)
        memcpy(t.data, value->data, t.bytes);
    else
        convert_plain(value->fmt, value->data, t.fmt, t.data, num);
    for (uint64_t i = 0; t.fmt == FMT_F64 && i < num; i++)
        ((double *)t.data)[i] = round_f64(fmt, ((double *)t.data)[i]);
    Tensor *bound = map_get(&e->inputs, op->name);
    if (!bound) {
        bound = ARENA_NEW(e->arena, Tensor);
        map_put(&e->inputs, op->name, bound);
    }
    tensor_free(bound);
    *bound = t;
    return true;
}

bool eval_run(Eval *e, EvalObserver observe, void *user, const char **ret_why)
{
    e->observe = observe;
    e->user = user;
    for_each_op(op, &e->m->body)
        expect_uses(e, op);
    bool ok = eval_block(e, &e->m->body);
    if (!ok && ret_why)
        *ret_why = arena_strdup(e->arena, e->why);
    return ok;
}

const Tensor *eval_output(const Eval *e, const char *output)
{
    const Tensor *t = map_get(&e->outputs, output);
    return t && (t->data || t->q.codes) ? t : NULL;
}

/* Constant expressions ------------------------------------------------------------------------- */

typedef struct Walk { /* the ops that a value needs, operands first */
    Arena *arena;
    ValueMap *seen;
    ARRAY(const Op *) order, stack;
} Walk;

static bool may_be_constant(const Op *op)
{
    return (op_info[op->kind].flags & OPF_PURE) && op->kind != OP_ARG;
}

/* False when the value depends on an input. */
static bool walk_value(Walk *w, const Value *value)
{
    static char entered, done;
    ARRAY_PUSH(w->arena, &w->stack, value->def);
    while (w->stack.num) {
        const Op *op = w->stack.elem[w->stack.num - 1];
        if (!may_be_constant(op))
            return false;
        void *state = valuemap_get(w->seen, &op->out[0]);
        if (state != &entered) {
            w->stack.num -= state == &done;
            if (state == &done)
                continue;
            valuemap_put(w->seen, &op->out[0], &entered);
            for (int i = 0; i < op->num_in; i++) {
                const Value *in = op->in[i].value;
                if (!valuemap_get(w->seen, &in->def->out[0]))
                    ARRAY_PUSH(w->arena, &w->stack, in->def);
            }
            continue;
        }
        valuemap_put(w->seen, &op->out[0], &done);
        ARRAY_PUSH(w->arena, &w->order, op);
        w->stack.num--;
    }
    return true;
}

bool value_is_constant(const Value *value)
{
    if (value->def->kind == OP_CONST)
        return true;
    if (!may_be_constant(value->def))
        return false;
    Walk w = {.arena = arena_new()};
    w.seen = valuemap_create(w.arena);
    bool ok = walk_value(&w, value);
    arena_destroy(w.arena);
    return ok;
}

static bool take_result(Eval *e, const Value *value, Tensor *ret)
{
    Slot *result = eval_slot(e, value);
    if (!result->tensor.owned)
        return tensor_copy(e, NULL, &result->tensor, ret);
    *ret = result->tensor;
    memset(&result->tensor, 0, sizeof result->tensor);
    return true;
}

static bool run_expressions(Eval *e, const Walk *w, int num, const Value *const *value, Tensor *ret)
{
    for (int i = 0; i < w->order.num; i++) { /* uses within the expressions only */
        const Op *op = w->order.elem[i];
        for (int j = 0; j < op->num_in; j++)
            eval_slot(e, op->in[j].value)->uses_left++;
    }
    for (int i = 0; i < num; i++)
        eval_slot(e, value[i])->uses_left++;
    bool ok = true;
    for (int i = 0; ok && i < w->order.num; i++)
        ok = run_op(e, w->order.elem[i]);
    for (int i = 0; ok && i < num; i++)
        ok = take_result(e, value[i], &ret[i]);
    for (int i = 0; i < w->order.num; i++) {
        const Op *op = w->order.elem[i];
        for (int j = 0; j < op->num_out; j++)
            tensor_free(&eval_slot(e, &op->out[j])->tensor);
        if (op->body)
            free_slots(e, op->body);
    }
    return ok;
}

bool eval_constants(const Module *m, int num, const Value *const *value, Tensor *ret,
                    const char **ret_why)
{
    memset(ret, 0, (size_t)num * sizeof *ret);
    Eval *e = eval_create(m, EVAL_CONTRACT, NULL);
    Walk w = {.arena = e->arena, .seen = valuemap_create(e->arena)};
    bool ok = true;
    for (int i = 0; ok && i < num; i++)
        ok = walk_value(&w, value[i]) || eval_fail(e, value[i]->def, "it depends on an input");
    ok = ok && run_expressions(e, &w, num, value, ret);
    if (!ok) {
        *ret_why = arena_strdup(m->arena, e->why);
        for (int i = 0; i < num; i++)
            tensor_free(&ret[i]);
    }
    arena_destroy(e->arena);
    return ok;
}

bool eval_constant(const Module *m, const Value *value, Tensor *ret, const char **ret_why)
{
    return eval_constants(m, 1, &value, ret, ret_why);
}
