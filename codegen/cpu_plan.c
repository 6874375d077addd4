/* codegen/cpu_plan: the CPU's plan is the launch list as it is, with weights packed for its
 * kernels.
 */
#include "codegen/codegen.h"

#include <string.h>

static bool pack(Module *m, const Plan *plan, const PlanConst *c, PlanTensor *t)
{
    const CpuPackSpec *spec = &t->pack_spec;
    const char *problem = cpu_pack_problem(spec);
    if (problem)
        diag_error(m->diag, c->span, E_KERNEL, "no CPU kernel multiplies %s by %s here: %s",
                   format_info[spec->act_fmt].name, format_info[spec->fmt].name, problem);
    else
        t->bytes = plan_weight_packed(plan, t);
    return !problem;
}

bool codegen_cpu(Module *m, Arena *arena, const CodegenTarget *list, CodegenTarget *ret)
{
    Plan *plan = ARENA_NEW(arena, Plan);
    PlanTensor *tensor = ARENA_NEW_ARRAY(arena, PlanTensor, (size_t)list->plan->num_tensors + 1);
    Placement placement;
    IoError err;
    *ret = *list;
    ret->plan = plan;
    *plan = *list->plan;
    plan->target = "cpu";
    if (plan->num_tensors) /* a module without outputs computes nothing */
        memcpy(tensor, plan->tensor, (size_t)plan->num_tensors * sizeof *tensor);
    plan->tensor = tensor;
    for (int i = 0; i < list->consts.num; i++) {
        const PlanConst *c = &list->consts.elem[i];
        if (tensor[c->tensor].packed && !pack(m, plan, c, &tensor[c->tensor]))
            return false;
    }
    if (!codegen_place(m, arena, 1, &ret, &placement))
        return false;
    if (plan_check(plan, placement.bytes, &err))
        return true;
    if (err.id != E_MEMORY)
        BUG("%s", err.text);
    diag_error(m->diag, (Span){0}, err.id, "%s", err.text);
    return false;
}

bool codegen_plan(Module *m, Arena *arena, CodegenTarget *ret)
{
    CodegenTarget list;
    return codegen_list(m, arena, &list) && codegen_cpu(m, arena, &list, ret);
}
