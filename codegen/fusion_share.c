/* codegen/fusion_share: how much of a model runs inside fused kernels, which do several of its
 * operations: by number, and by the bytes that launches move. */
#include "codegen/codegen.h"

int kernel_num_ops(const Op *kernel)
{
    int num = 0;
    for (const Op *op = kernel->body ? kernel->body->first : NULL; op; op = op->next)
        num += op->kind != OP_ARG && op->kind != OP_YIELD && op->kind != OP_CONST;
    return num;
}

static bool program_names(const PlanProgram *p, int operand)
{
    for (int i = 0; i < p->num_steps; i++)
        if (p->step[i].tensor == operand ||
            (p->step[i].op == TILE_CODE_SUM && p->step[i].tensor2 == operand))
            return true;
    return false;
}

bool launch_names(const PlanLaunch *l, int operand)
{
    bool ret = l->family == LAUNCH_ROUTE || program_names(&l->program, operand) ||
               program_names(&l->prologue, operand);
    for (int i = 0; i < l->num_segments; i++)
        ret = ret || program_names(&l->segment[i].epilogue, operand);
    return ret;
}

double launch_bytes(const Plan *plan, const PlanLaunch *l, const PlanLayout *layout)
{
    double bytes = 0;
    for (int i = 0; i < l->num_operands; i++)
        bytes += launch_names(l, i) ? plan_operand_bytes(l, i, layout) : 0;
    if (l->family == LAUNCH_GEMM && !l->prologue.num_steps)
        bytes += (double)layout[l->a].bytes;
    if (l->family == LAUNCH_GEMM && !plan->tensor[l->w].packed)
        bytes += (double)layout[l->w].bytes;
    if (l->family == LAUNCH_DECODE)
        bytes += (double)plan->tensor[l->src].bytes + (double)plan->tensor[l->dst].bytes;
    if (l->family == LAUNCH_MOVE)
        bytes += (double)layout[l->src].bytes + (double)layout[l->dst].bytes;
    return bytes;
}

static void add(FusionShare *c, int num_ops, double bytes)
{
    bool is_fused = num_ops > 1;
    c->launches++;
    c->ops += num_ops;
    c->bytes += bytes;
    c->fused_ops += is_fused ? num_ops : 0;
    c->fused_bytes += is_fused ? bytes : 0;
}

FusionShare fusion_share_of(const Plan *plan, const int *num_ops, Arena *arena, int bucket)
{
    FusionShare ret = {0};
    IoError err;
    PlanLayout *layout = ARENA_NEW_ARRAY(arena, PlanLayout, (size_t)plan->num_tensors + 1);
    if (!plan_bind(plan, bucket, plan_bucket(plan, bucket), layout, &err))
        return ret; /* sessions refuse such sizes */
    for (int i = 0; i < plan->num_launches; i++) {
        const PlanLaunch *l = &plan->launch[i];
        if (num_ops[i] < 0)
            continue;
        double bytes = launch_bytes(plan, l, layout);
        if (l->family == LAUNCH_GEMM && plan->tensor[l->w].packed)
            bytes += (double)plan->tensor[l->w].bytes;
        add(&ret, num_ops[i], bytes);
    }
    return ret;
}

FusionShare codegen_fusion_share(const CodegenTarget *target, Arena *arena, int bucket)
{
    const Plan *plan = target->plan;
    int *num_ops = ARENA_NEW_ARRAY(arena, int, (size_t)plan->num_launches + 1);
    for (int i = 0; i < plan->num_launches; i++)
        num_ops[i] = kernel_num_ops(target->launch_kernels.elem[i]);
    return fusion_share_of(plan, num_ops, arena, bucket);
}

void fusion_share_print(Sb *sb, const FusionShare *c)
{
    sb_printf(
        sb,
        "%d launch%s, %d of %d operations (%.0f %%) and %.0f of %.0f bytes moved (%.0f %%) in "
        "fused kernels",
        c->launches, c->launches == 1 ? "" : "es", c->fused_ops, c->ops,
        c->ops ? 100.0 * c->fused_ops / c->ops : 0, c->fused_bytes, c->bytes,
        c->bytes > 0 ? 100 * c->fused_bytes / c->bytes : 0);
}

void plan_bucket_print(Sb *sb, const Plan *plan, int bucket)
{
    for (int i = 0; i < plan->num_syms; i++)
        sb_printf(sb, "%s%s = %lld", i ? ", " : "", plan->sym[i].name,
                  (long long)plan_bucket(plan, bucket)[i]);
}
