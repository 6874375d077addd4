/* codegen/route: kernels that send rows to groups of them and bring their results back: a launch
 * each, over whole tensors. */
#include "codegen/build.h"

static RouteStep step_of(const Op *op)
{
    switch (op->kind) {
    case OP_TOPK: return ROUTE_TOPK;
    case OP_TAKE: return ROUTE_TAKE;
    case OP_GROUP_ENDS: return ROUTE_ENDS;
    case OP_GROUP_PLACES: return ROUTE_PLACES;
    case OP_DISPATCH: return ROUTE_DISPATCH;
    case OP_COMBINE: return ROUTE_COMBINE;
    default: BUG("%s is no step of routing", op_info[op->kind].name);
    }
}

void build_route(Builder *b, Op *kernel, Op *op)
{
    RouteStep step = step_of(op);
    int num = plan_route_operands(step), tensor[ROUTE_MAX_OPERANDS];
    for (int i = 0; i < op->num_in; i++) {
        tensor[i] = tensor_get(b, build_outer(b, op_in(op, i)), op->span);
        if (tensor[i] < 0)
            return;
    }
    int known = ptrmap_get(&b->tensor_of, &kernel->out[0]); /* its columns may be of a concat */
    tensor[num - 1] = known ? known - 1 : tensor_result(b, &kernel->out[0], NULL);
    PlanOperand *operand = ARENA_NEW_ARRAY(b->arena, PlanOperand, (size_t)num);
    for (int i = 0; i < num; i++)
        operand[i] = (PlanOperand){.tensor = tensor[i],
                                   .row_div = plan_dim(dim_const(1)),
                                   .row_mod = plan_dim(dim_const(0)),
                                   .col_step = 1};
    PlanLaunch *l = launch_add(b, kernel, LAUNCH_ROUTE);
    l->route = step;
    l->groups = step == ROUTE_ENDS || step == ROUTE_PLACES ? op->attr.count : 0;
    l->num_operands = num;
    l->operand = operand;
}
