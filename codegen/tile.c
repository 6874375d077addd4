/* codegen/tile: kernels without a matmul: chains over whole tensors, and those that only move
 * elements. */
#include "codegen/build.h"

#include <string.h>

static int yield_tensor(Builder *b, Op *kernel, int index)
{
    const Value *value = op_in(kernel->body->last, index);
    return tensor_result(b, &kernel->out[index],
                         value->def->kind == OP_QUANTIZE ? value->def : NULL);
}

/* The tensor of the codes that a code sum adds up: a result of this kernel, or an operand. */
static int codes_tensor(Builder *b, const Op *kernel, const Store *store, int num,
                        const Value *codes)
{
    for (int i = 0; i < num; i++)
        if (store[i].value == codes)
            return store[i].tensor;
    if (codes->def->kind == OP_ARG)
        return tensor_get(b, build_outer(b, codes), kernel->span);
    build_fail(b, kernel->span, "the codes of a code sum are not stored");
    return -1;
}

void build_tile(Builder *b, Op *kernel)
{
    const Op *yield = kernel->body->last;
    Store *store = ARENA_NEW_ARRAY(b->arena, Store, (size_t)yield->num_in);
    Operands operands = {0};
    PtrMap inside;
    int num = 0;
    ptrmap_init(&inside, b->arena);
    for (int sums = 0; sums < 2; sums++) /* codes are stored before they are summed */
        for (int i = 0; i < yield->num_in; i++)
            if ((op_in(yield, i)->def->kind == OP_CODE_SUM) == sums)
                store[num++] = (Store){op_in(yield, i), 0, yield_tensor(b, kernel, i), -1};
    for (int i = 0; i < num; i++)
        if (store[i].value->def->kind == OP_CODE_SUM)
            store[i].codes = codes_tensor(b, kernel, store, num, op_in(store[i].value->def, 0));
    if (b->failed)
        return;
    /* operand 0 gives the rows and columns */
    int shape = store[0].codes >= 0 ? store[0].codes : store[0].tensor;
    const Type *domain = b->infos.elem[shape].type;
    operand_add(b, &operands, shape, domain);
    ProgramSpec spec = {.domain = domain,
                        .cols = type_last(domain),
                        .num_stores = num,
                        .store = store,
                        .inside = &inside};
    PlanProgram program;
    if (!program_build(b, &operands, &spec, &program))
        return;
    PlanLaunch *l = launch_add(b, kernel, LAUNCH_TILE);
    l->num_operands = operands.list.num;
    l->operand = operands.list.elem;
    launch_group(b, kernel, l);
    l->whole_rows = program_needs_rows(&program, b, &operands);
    l->program = program;
}

/* Moves ---------------------------------------------------------------------------------------- */

/* Elements from one index of an axis to the next. */
static bool axis_strides(Builder *b, int tensor, Dim *ret, Span span)
{
    const TensorInfo *info = &b->infos.elem[tensor];
    const Type *type = info->type;
    for (int i = type->rank - 1; i >= 0; i--) {
        if (i == type->rank - 1)
            ret[i] = dim_const(1);
        else if (i == type->rank - 2)
            ret[i] = info->pitch;
        else if (!dim_mul(ret[i + 1], type->dim[i + 1], &ret[i])) {
            diag_error(b->m->diag, span, E_LIMIT, "the strides of %s are not a product of two dims",
                       type_text(b->arena, type));
            b->failed = true;
            return false;
        }
    }
    return true;
}

/* A box of `dim` elements; strides and offsets in elements. */
typedef struct Box {
    int src, dst, rank;
    Dim dim[LIMIT_RANK], src_stride[LIMIT_RANK], dst_stride[LIMIT_RANK];
    Dim src_offset, dst_offset;
} Box;

static void add_box(Builder *b, const Op *op, const Box *box)
{
    if (b->tensors.elem[box->src].quantised) {
        build_fail(b, op->span, "%s of a computed quantised value is not supported",
                   op_info[op->kind].name);
        return;
    }
    PlanLaunch *l = launch_add(b, op, LAUNCH_MOVE);
    l->src = box->src;
    l->dst = box->dst;
    l->move_rank = box->rank;
    for (int i = 0; i < box->rank; i++) {
        l->move_dim[i] = plan_dim(box->dim[i]);
        l->move_src_stride[i] = plan_dim(box->src_stride[i]);
        l->move_dst_stride[i] = plan_dim(box->dst_stride[i]);
    }
    l->move_src_offset = plan_dim(box->src_offset);
    l->move_dst_offset = plan_dim(box->dst_offset);
}

void build_copy(Builder *b, int src, int dst, const Op *from)
{
    const Type *type = b->infos.elem[src].type;
    Box box = {.src = src, .dst = dst, .rank = type->rank};
    memcpy(box.dim, type->dim, sizeof box.dim);
    if (axis_strides(b, src, box.src_stride, from->span) &&
        axis_strides(b, dst, box.dst_stride, from->span))
        add_box(b, from, &box);
}

int build_expanded(Builder *b, int tensor, const Type *domain, const Op *from)
{
    const Type *type = b->infos.elem[tensor].type;
    for (int i = 0; i < b->expanded.num; i++)
        if (b->expanded.elem[i].tensor == tensor && b->expanded.elem[i].domain == domain)
            return b->expanded.elem[i].expanded;
    int rank = domain->rank, shift = rank - type->rank;
    Box box = {.src = tensor, .rank = rank};
    Dim stride[LIMIT_RANK];
    memcpy(box.dim, domain->dim, sizeof box.dim);
    box.dim[rank - 1] = type_last(type);
    box.dst = tensor_add(b, b->tensors.elem[tensor].name,
                         type_plain(b->m, type->fmt, rank, box.dim), STORAGE_ARENA);
    if (!axis_strides(b, tensor, stride, from->span) ||
        !axis_strides(b, box.dst, box.dst_stride, from->span))
        return -1;
    for (int i = 0; i < rank; i++) {
        bool repeats = i < shift || (i + 1 < rank && !dim_equal(type->dim[i - shift], box.dim[i]));
        box.src_stride[i] = repeats ? dim_const(0) : stride[i - shift];
    }
    add_box(b, from, &box);
    Expanded expanded = {tensor, box.dst, domain};
    ARRAY_PUSH(b->arena, &b->expanded, expanded);
    return b->failed ? -1 : box.dst;
}

static void build_transpose(Builder *b, const Op *op, int src, int dst)
{
    const Type *type = op->out[0].type;
    Box box = {.src = src, .dst = dst, .rank = type->rank};
    Dim stride[LIMIT_RANK];
    memcpy(box.dim, type->dim, sizeof box.dim);
    if (!axis_strides(b, src, stride, op->span) || !axis_strides(b, dst, box.dst_stride, op->span))
        return;
    for (int i = 0; i < type->rank; i++)
        box.src_stride[i] = stride[op->attr.perm[i]];
    add_box(b, op, &box);
}

static void build_slice(Builder *b, const Op *op, int src, int dst)
{
    const Type *type = op->out[0].type;
    Box box = {.src = src, .dst = dst, .rank = type->rank};
    memcpy(box.dim, type->dim, sizeof box.dim);
    if (!axis_strides(b, src, box.src_stride, op->span) ||
        !axis_strides(b, dst, box.dst_stride, op->span))
        return;
    if (dim_mul(box.src_stride[op->attr.axis], dim_const(op->attr.start), &box.src_offset))
        add_box(b, op, &box);
    else
        build_fail(b, op->span, "the offset of a slice overflows");
}

static void build_concat(Builder *b, const Op *op, int dst)
{
    Dim at = dim_const(0), stride[LIMIT_RANK];
    int64_t axis = op->attr.axis;
    if (!axis_strides(b, dst, stride, op->span))
        return;
    for (int i = 0; i < op->num_in && !b->failed; i++) {
        const Type *type = op_in(op, i)->type;
        int src = tensor_get(b, build_outer(b, op_in(op, i)), op->span);
        if (src < 0)
            return;
        Box box = {.src = src, .dst = dst, .rank = type->rank};
        bool is_there =
            b->tensors.elem[src].storage == STORAGE_VIEW && b->tensors.elem[src].index == dst;
        memcpy(box.dim, type->dim, sizeof box.dim);
        memcpy(box.dst_stride, stride, sizeof stride);
        if (!axis_strides(b, src, box.src_stride, op->span))
            return;
        if (!dim_mul(stride[axis], at, &box.dst_offset) || !dim_add(at, type->dim[axis], &at)) {
            build_fail(b, op->span, "the place of operand %d is not a product of two dims", i);
            return;
        }
        if (!is_there)
            add_box(b, op, &box);
    }
}

/* Columns of a tensor are a view, unless they become an output of the model. */
static bool slice_is_view(const Builder *b, const Op *kernel, const Op *op, int src)
{
    if (op->kind != OP_SLICE || op->attr.axis != op->out[0].type->rank - 1 ||
        b->tensors.elem[src].quantised)
        return false;
    for_each_use(use, &kernel->out[0])
        if (use->user->kind == OP_OUTPUT || use->user->kind == OP_RESHAPE)
            return false;
    return true;
}

void build_move(Builder *b, Op *kernel, Op *op)
{
    int src = tensor_get(b, build_outer(b, op_in(op, 0)), op->span);
    if (src < 0)
        return;
    if (slice_is_view(b, kernel, op, src)) {
        int view = tensor_columns(b, src, op->attr.start, op->attr.stop - op->attr.start);
        ptrmap_put(&b->tensor_of, &kernel->out[0], view + 1);
        return;
    }
    int known = ptrmap_get(&b->tensor_of, &kernel->out[0]); /* its operands may lie there */
    int dst = known ? known - 1 : tensor_result(b, &kernel->out[0], NULL);
    if (op->kind == OP_TRANSPOSE)
        build_transpose(b, op, src, dst);
    else if (op->kind == OP_SLICE)
        build_slice(b, op, src, dst);
    else
        build_concat(b, op, dst);
}
