/* codegen/tensors: the plan's tensors behind IR values: constants (plain, packed, parameters),
 * views that cost nothing (reshape, columns), results in the arena or directly in the model's
 * outputs. */
#include "codegen/build.h"

#include <string.h>

void ptrmap_init(PtrMap *map, Arena *arena)
{
    *map = (PtrMap){.arena = arena};
}

static struct PtrSlot *ptrmap_slot(const PtrMap *map, const void *key)
{
    uint64_t at = hash_bytes(&key, sizeof key, 0) & (uint64_t)(map->num_slots - 1);
    while (map->slot[at].key && map->slot[at].key != key)
        at = (at + 1) & (uint64_t)(map->num_slots - 1);
    return &map->slot[at];
}

int ptrmap_get(const PtrMap *map, const void *key)
{
    return map->num_slots ? ptrmap_slot(map, key)->value : 0;
}

void ptrmap_put(PtrMap *map, const void *key, int value)
{
    if (2 * map->num >= map->num_slots) {
        PtrMap old = *map;
        map->num_slots = old.num_slots ? old.num_slots * 2 : 64;
        map->slot = ARENA_NEW_ARRAY(map->arena, struct PtrSlot, (size_t)map->num_slots);
        for (int i = 0; i < old.num_slots; i++)
            if (old.slot[i].key)
                *ptrmap_slot(map, old.slot[i].key) = old.slot[i];
    }
    struct PtrSlot *slot = ptrmap_slot(map, key);
    map->num += !slot->key;
    *slot = (struct PtrSlot){key, value};
}

PlanDim plan_dim(Dim d)
{
    PlanDim ret = {.mul = d.mul, .add = d.add, .sym = {-1, -1}};
    for (int i = 0; i < 2 && d.mul != 0; i++)
        if (d.sym[i])
            ret.sym[i] = d.sym[i]->index;
    return ret;
}

/* Each op is asked once; its operands stand before it. */
bool build_is_constant(Builder *b, const Value *value)
{
    const Op *op = value->def;
    int known = ptrmap_get(&b->constness, op);
    if (known)
        return known == 1;
    bool ok = op->kind == OP_CONST ||
              (op_info[op->kind].flags & OPF_PURE && op->kind != OP_ARG && op->num_in > 0);
    for (int i = 0; ok && i < op->num_in; i++)
        ok = build_is_constant(b, op_in(op, i));
    ptrmap_put(&b->constness, op, ok ? 1 : 2);
    return ok;
}

const Value *build_outer(const Builder *b, const Value *value)
{
    return value->def->kind == OP_ARG ? op_in(b->kernel, (int)value->def->mark) : value;
}

/* Making -------------------------------------------------------------------------------------- */

static const char *value_text(const Value *value)
{
    const Op *op = value->def;
    if (value->name)
        return value->name;
    if (op->kind == OP_CONST && op->constant && op->constant->name)
        return op->constant->name;
    if (op->kind == OP_INNER || op->kind == OP_WIDEN ||
        (op->kind == OP_CONCAT && value->type->scheme)) /* a weight */
        return value_text(op_in(op, 0));
    return op->attr.layer ? op->attr.layer : op_info[op->kind].name;
}

int tensor_add(Builder *b, const char *name, const Type *type, PlanStorage storage)
{
    PlanTensor t = {.name = name,
                    .fmt = type->fmt,
                    .quantised = type->scheme != NULL,
                    .rank = type->rank,
                    .storage = storage,
                    .index = -1,
                    .params = -1};
    if (type->scheme)
        t.scheme = *type->scheme;
    for (int i = 0; i < type->rank; i++)
        t.dim[i] = plan_dim(type->dim[i]);
    TensorInfo info = {type, type_last(type), false};
    ARRAY_PUSH(b->arena, &b->tensors, t);
    ARRAY_PUSH(b->arena, &b->infos, info);
    return b->tensors.num - 1;
}

/* bytes: of a packed weight 0, which each target packs in its own way. */
static void add_const(Builder *b, int tensor, uint64_t bytes, const PlanConst *like)
{
    PlanConst c = *like;
    c.tensor = tensor;
    c.group = b->group;
    b->tensors.elem[tensor].bytes = bytes;
    ARRAY_PUSH(b->arena, &b->target->consts, c);
}

static int plain_constant(Builder *b, const Value *value, Span span)
{
    const Type *type = value->type;
    int64_t dim[LIMIT_RANK];
    uint64_t elements, bytes;
    if (type->scheme) {
        build_fail(b, span,
                   "a constant quantised value is read where only weights of a linear "
                   "layer can be");
        return -1;
    }
    for (int i = 0; i < type->rank; i++)
        dim[i] = type->dim[i].add;
    if (!checked_elements(dim, type->rank, &elements) ||
        !checked_mul(elements, (uint64_t)format_info[type->fmt].bits / 8, &bytes))
        bytes = LIMIT_BYTES;
    int tensor = tensor_add(b, value_text(value), type, STORAGE_CONST);
    add_const(b, tensor, bytes, &(PlanConst){.value = value, .params_of = -1, .span = span});
    return tensor;
}

/* The same bytes in another shape. Columns of a wider tensor are copied first. */
static int reshaped(Builder *b, const Value *value, Span span)
{
    int from = tensor_get(b, op_in(value->def, 0), span);
    if (from < 0)
        return -1;
    const Type *from_type = b->infos.elem[from].type;
    if (type_same_shape(from_type, value->type))
        return from;
    if (b->infos.elem[from].is_strided &&
        !dim_equal(type_last(from_type), type_last(value->type))) {
        int copy = tensor_add(b, b->tensors.elem[from].name, from_type, STORAGE_ARENA);
        build_copy(b, from, copy, value->def);
        from = copy;
    }
    /* all of the bytes of a view of all bytes: chains of them would nest deeper than plans allow */
    while (b->tensors.elem[from].storage == STORAGE_VIEW && !b->infos.elem[from].is_strided)
        from = b->tensors.elem[from].index;
    int tensor = tensor_add(b, value_text(value), value->type, STORAGE_VIEW);
    PlanTensor *t = &b->tensors.elem[tensor];
    const PlanTensor *of = &b->tensors.elem[from];
    t->index = from;
    t->is_static = of->is_static;
    t->params = of->params;
    b->infos.elem[tensor].is_strided = b->infos.elem[from].is_strided;
    if (b->infos.elem[from].is_strided)
        b->infos.elem[tensor].pitch = b->infos.elem[from].pitch;
    return tensor;
}

int tensor_get(Builder *b, const Value *value, Span span)
{
    int known = ptrmap_get(&b->tensor_of, value);
    if (known)
        return known - 1;
    int tensor = -1;
    const Op *op = value->def;
    if (build_is_constant(b, value)) {
        tensor = plain_constant(b, value, span);
    } else if (op->kind == OP_RESHAPE) {
        tensor = reshaped(b, value, span);
    } else if (op->kind == OP_SCALES || op->kind == OP_ZEROS) {
        int of = tensor_get(b, op_in(op, 0), span);
        PlanStorage part = op->kind == OP_SCALES ? STORAGE_SCALES : STORAGE_ZEROS;
        tensor = of < 0 ? -1 : tensor_part(b, of, part, value->type);
    } else {
        build_fail(b, span, "%s is not part of a kernel", op_info[op->kind].name);
    }
    if (tensor >= 0)
        ptrmap_put(&b->tensor_of, value, tensor + 1);
    return tensor;
}

int tensor_columns(Builder *b, int tensor, int64_t col, int64_t cols)
{
    TensorInfo from = b->infos.elem[tensor];
    Dim last = type_last(from.type);
    if (col == 0 && dim_is_const(last) && last.add == cols)
        return tensor;
    Dim dim[LIMIT_RANK];
    memcpy(dim, from.type->dim, sizeof dim);
    if (from.type->rank)
        dim[from.type->rank - 1] = dim_const(cols);
    const Type *type = type_plain(b->m, from.type->fmt, from.type->rank, dim);
    int recent = b->tensors.num - 256; /* the launch at hand has its views there */
    for (int i = tensor >= recent ? tensor + 1 : recent; i < b->tensors.num; i++) {
        const PlanTensor *t = &b->tensors.elem[i];
        if (t->storage == STORAGE_VIEW && t->index == tensor && t->view_col == col &&
            b->infos.elem[i].type == type)
            return i;
    }
    int view = tensor_add(b, b->tensors.elem[tensor].name, type, STORAGE_VIEW);
    b->tensors.elem[view].index = tensor;
    b->tensors.elem[view].view_col = col;
    b->infos.elem[view].pitch = from.pitch;
    b->infos.elem[view].is_strided = true;
    return view;
}

/* Results -------------------------------------------------------------------------------------- */

/* What a kernel that masks the value alone makes, in place as nobody else reads the value. */
static const Value *masked(const Op *user, const Value *value)
{
    if (user->kind != OP_KERNEL || value->def->kind != OP_KERNEL || value_num_uses(value) > 1)
        return NULL;
    for_each_op(op, user->body)
        if (op->kind == OP_MASK && op_in(user, 0) == value)
            return &user->out[0];
    return NULL;
}

/* The output that a value becomes, maybe through reshapes and masks, if nothing is stored there
 * yet. */
static int output_of(const Builder *b, const Value *value, int depth)
{
    for_each_use(use, value) {
        const Op *user = use->user;
        if (user->kind == OP_OUTPUT && user->block == &b->m->body && !b->outputs_from[user->mark])
            return (int)user->mark;
        const Value *same = user->kind == OP_RESHAPE ? &user->out[0] : masked(user, value);
        if (same && user->block == &b->m->body && depth < LIMIT_NESTING) {
            int output = output_of(b, same, depth + 1);
            if (output >= 0)
                return output;
        }
    }
    return -1;
}

/* Static parameters: one constant with the tensor's own layout of scales and zero points. */
static bool add_params(Builder *b, int tensor, const Op *quantize)
{
    PlanTensor *t = &b->tensors.elem[tensor];
    PlanLayout layout;
    int64_t size[LIMIT_BUCKETS];
    for (int i = 0; i < b->m->syms.num; i++)
        size[i] = b->m->syms.elem[i]->size[0];
    t->is_static = true;
    if (t->scheme.outer)
        return build_fail(b, quantize->span,
                          "a static scheme with an outer scale is not supported");
    if (!plan_tensor_layout(t, size, &layout))
        return build_fail(b, quantize->span, "the size of the static parameters overflows");
    Dim floats = dim_const((int64_t)(layout.outer_at / 4));
    int params = tensor_add(b, t->name, type_plain(b->m, FMT_F32, 1, &floats), STORAGE_CONST);
    b->tensors.elem[tensor].params = params;
    const Value *scale = build_outer(b, op_in(quantize, 1));
    const Value *zero = quantize->num_in > 2 ? build_outer(b, op_in(quantize, 2)) : NULL;
    if (!build_is_constant(b, scale) || (zero && !build_is_constant(b, zero)))
        return build_fail(b, quantize->span, "the static scale is not a constant");
    add_const(
        b, params, layout.outer_at,
        &(PlanConst){.value = scale, .zero = zero, .params_of = tensor, .span = quantize->span});
    return true;
}

static void add_params_of(Builder *b, int tensor, const Op *quantize)
{
    if (!quantize)
        return;
    FormatId fmt = b->tensors.elem[tensor].fmt;
    if (format_is_narrow(fmt) || format_info[fmt].family == FAMILY_CODEBOOK)
        build_fail(b, quantize->span, "%s is a format of weights, and this value is computed",
                   format_info[fmt].name);
    else if (quantize->num_in > 1)
        add_params(b, tensor, quantize);
    else if (quantize->attr.mode == MODE_STATIC)
        build_fail(b, quantize->span,
                   "the range of this static quantisation is not known; name "
                   "calibration data with `calibrate`");
}

static const Op *arg_of(const Op *kernel, const Value *value)
{
    int at = 0;
    for_each_op(op, kernel->body)
        if (op->kind == OP_ARG && op_in(kernel, at++) == value)
            return op;
    return NULL;
}

/* The result of the concat along columns, of several values, that is all that reads this one; NULL:
 * there is none. *ret_col: the value's first column of it. */
static const Value *joined_by(const Value *value, int64_t *ret_col)
{
    const Use *use = value->uses;
    const Op *kernel = use ? use->user : NULL;
    int rank = value->type->rank;
    *ret_col = 0;
    if (!use || use->next || kernel->kind != OP_KERNEL || rank < 2 || value->type->scheme)
        return NULL;
    const Op *arg = arg_of(kernel, value), *concat = arg ? arg->out[0].uses->user : NULL;
    if (!concat || concat->kind != OP_CONCAT || concat->num_in == 1 ||
        concat->attr.axis != rank - 1 || arg->out[0].uses->next)
        return NULL;
    for (int i = 0; i < concat->num_in; i++) {
        Dim cols = type_last(op_in(concat, i)->type);
        if (!dim_is_const(cols))
            return NULL;
        if (op_in(concat, i)->def == arg)
            return &kernel->out[0];
        *ret_col += cols.add;
    }
    return NULL;
}

/* Columns of what a concat joins are stored where they are to be; -1: they are not. */
static int joined(Builder *b, const Value *value)
{
    int64_t col, of_whole;
    const Value *whole = joined_by(value, &col);
    if (!whole || joined_by(whole, &of_whole))
        return -1; /* views do not nest */
    int known = ptrmap_get(&b->tensor_of, whole);
    int tensor = known ? known - 1 : tensor_result(b, whole, NULL);
    if (b->tensors.elem[tensor].storage == STORAGE_VIEW)
        return -1;
    return tensor_columns(b, tensor, col, type_last(value->type).add);
}

int tensor_result(Builder *b, const Value *value, const Op *quantize)
{
    int output = value->type->scheme ? -1 : output_of(b, value, 0);
    int tensor = joined(b, value);
    if (tensor >= 0) {
        ptrmap_put(&b->tensor_of, value, tensor + 1);
        return tensor;
    }
    if (output < 0) {
        tensor = tensor_add(b, value_text(value), value->type, STORAGE_ARENA);
        add_params_of(b, tensor, quantize);
    } else {
        b->outputs_from[output] = value;
        tensor = b->num_inputs + output;
        if (!type_same_shape(b->infos.elem[tensor].type, value->type)) {
            int view = tensor_add(b, value_text(value), value->type, STORAGE_VIEW);
            b->tensors.elem[view].index = tensor;
            tensor = view;
        }
    }
    ptrmap_put(&b->tensor_of, value, tensor + 1);
    return tensor;
}

int tensor_inside(Builder *b, const char *name, const Value *value)
{
    int tensor = tensor_add(b, name ? name : value_text(value), value->type, STORAGE_ARENA);
    add_params_of(b, tensor, value->def->kind == OP_QUANTIZE ? value->def : NULL);
    return tensor;
}

int tensor_part(Builder *b, int tensor, PlanStorage part, const Type *type)
{
    const PlanTensor *of = &b->tensors.elem[tensor];
    Dim dim[LIMIT_RANK];
    memcpy(dim, type->dim, sizeof dim);
    int rank = type->rank;
    if (part == STORAGE_OUTER || of->scheme.block[0] == 0) {
        rank = 1;
        dim[0] = dim_const(1);
    }
    FormatId fmt = part == STORAGE_ZEROS ? FMT_I32 : FMT_F32;
    const Type *part_type = type_plain(b->m, fmt, rank, dim);
    int ret = tensor_add(b, of->name, part_type, part);
    b->tensors.elem[ret].index = tensor;
    return ret;
}

int tensor_packed(Builder *b, const Value *value, const CpuPackSpec *spec, int64_t groups,
                  Span span)
{
    int known = ptrmap_get(&b->packed_of, value);
    if (known && b->tensors.elem[known - 1].groups == groups &&
        pack_spec_equal(&b->tensors.elem[known - 1].pack_spec, spec))
        return known - 1;
    int tensor = tensor_add(b, value_text(value), value->type, STORAGE_CONST);
    b->tensors.elem[tensor].packed = true;
    b->tensors.elem[tensor].pack_spec = *spec;
    b->tensors.elem[tensor].groups = groups;
    add_const(b, tensor, 0, &(PlanConst){.value = value, .params_of = -1, .span = span});
    ptrmap_put(&b->packed_of, value, tensor + 1);
    return tensor;
}
