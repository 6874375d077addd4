/* codegen/route: kernels that send rows to groups of them and bring their results back: a launch
 * each, over whole tensors. */
#include "codegen/build.h"

/* yield: of the kernel that the op is the first one of. */
static RouteStep step_of(const Op *op, const Op *yield)
{
    bool joined = yield->num_in > 1;
    switch (op->kind) {
    case OP_TOPK:
        for (int i = 0; i < yield->num_in; i++)
            if (op_in(yield, i)->def->kind == OP_SOFTMAX)
                return ROUTE_WEIGH;
        return joined ? ROUTE_CHOOSE : ROUTE_TOPK;
    case OP_TAKE: return ROUTE_TAKE;
    case OP_GROUP_ENDS: return joined ? ROUTE_SORT : ROUTE_ENDS;
    case OP_GROUP_PLACES: return joined ? ROUTE_SORT : ROUTE_PLACES;
    case OP_GROUP_SOURCES: return joined ? ROUTE_SORT : ROUTE_SOURCES;
    case OP_MASK: return ROUTE_CLEAR;
    default: BUG("%s is no step of routing", op_info[op->kind].name);
    }
}

/* The place of an op's result among those of the step. */
static int result_at(RouteStep step, const Op *op)
{
    if (plan_route_chooses(step))
        return op->kind != OP_TOPK;
    return step != ROUTE_SORT            ? 0
           : op->kind == OP_GROUP_ENDS   ? 0
           : op->kind == OP_GROUP_PLACES ? 1
                                         : 2;
}

static void add_step(Builder *b, const Op *kernel, const Op *first, RouteStep step,
                     const int *tensor)
{
    int num = plan_route_operands(step);
    PlanOperand *operand = ARENA_NEW_ARRAY(b->arena, PlanOperand, (size_t)num);
    for (int i = 0; i < num; i++)
        operand[i] = (PlanOperand){.tensor = tensor[i],
                                   .row_div = plan_dim(dim_const(1)),
                                   .row_mod = plan_dim(dim_const(0)),
                                   .col_step = 1};
    PlanLaunch *l = launch_add(b, kernel, LAUNCH_ROUTE);
    l->route = step;
    l->groups = plan_route_sorts(step) ? first->attr.count : 0;
    l->num_operands = num;
    l->operand = operand;
}

/* Nobody else reads what the kernel stored there: all of a tensor, or of an output's bytes. */
static bool is_own(const Builder *b, const Value *x, int tensor)
{
    const PlanTensor *t = &b->tensors.elem[tensor];
    if (x->def->kind != OP_KERNEL || value_num_uses(x) != 1 || b->infos.elem[tensor].is_strided)
        return false;
    if (t->storage == STORAGE_VIEW)
        t = &b->tensors.elem[t->index];
    return t->storage == STORAGE_ARENA || t->storage == STORAGE_OUTPUT;
}

/* Rows are cleared where they lie, if nobody else reads them; a copy of them otherwise. */
static void build_mask(Builder *b, const Op *kernel, const Op *mask)
{
    const Value *x = build_outer(b, op_in(mask, 0)), *result = &kernel->out[0];
    int from = tensor_get(b, x, mask->span);
    int tensor[2] = {tensor_get(b, build_outer(b, op_in(mask, 1)), mask->span)};
    if (from < 0 || tensor[0] < 0)
        return;
    int known = ptrmap_get(&b->tensor_of, result);
    if (!known && is_own(b, x, from)) {
        tensor[1] = from;
        ptrmap_put(&b->tensor_of, result, from + 1);
    } else {
        tensor[1] = known ? known - 1 : tensor_result(b, result, NULL);
        build_copy(b, from, tensor[1], mask);
    }
    add_step(b, kernel, mask, ROUTE_CLEAR, tensor);
}

/* first: the first op of the kernel, whose operands are the step's. */
void build_route(Builder *b, Op *kernel, Op *first)
{
    const Op *yield = kernel->body->last;
    RouteStep step = step_of(first, yield);
    int num = plan_route_operands(step), num_in = num - plan_route_results(step);
    int tensor[ROUTE_MAX_OPERANDS];
    if (step == ROUTE_CLEAR) {
        build_mask(b, kernel, first);
        return;
    }
    for (int i = 0; i < num_in; i++) {
        tensor[i] = tensor_get(b, build_outer(b, op_in(first, i)), first->span);
        if (tensor[i] < 0)
            return;
    }
    for (int i = 0; i < yield->num_in; i++) {
        int known = ptrmap_get(&b->tensor_of, &kernel->out[i]); /* columns of a concat, perhaps */
        tensor[num_in + result_at(step, op_in(yield, i)->def)] =
            known ? known - 1 : tensor_result(b, &kernel->out[i], NULL);
    }
    add_step(b, kernel, first, step, tensor);
}
