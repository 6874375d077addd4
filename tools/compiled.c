/* What a compilation came to, in a line for each target: `compile --verbose`. */
#include "driver/work.h"

/* Of all launches of a bucket; negative: sizes overflow, which sessions refuse. */
static double bucket_us(const Work *w, const Plan *plan, const CudaTarget *cuda, int bucket)
{
    double us = 0;
    PlanLayout *layout = ARENA_NEW_ARRAY(w->arena, PlanLayout, (size_t)plan->num_tensors + 1);
    IoError err;
    if (!plan_bind(plan, bucket, plan_bucket(plan, bucket), layout, &err))
        return -1;
    for (int i = 0; i < plan->num_launches; i++) {
        const CudaChoice *choice = cuda ? &cuda->choice[i * plan->num_buckets + bucket] : NULL;
        if (choice)
            us += choice->text ? choice->us : 0;
        else
            us += cpu_launch_us(plan, &plan->launch[i], layout);
    }
    return us;
}

static void put_bucket(Sb *sb, const Work *w, const Plan *plan, const CudaTarget *cuda, int bucket)
{
    double us = bucket_us(w, plan, cuda, bucket);
    sb_printf(sb, us < 100 ? " %.3g us" : " %.0f us", us);
    for (int s = 0; s < plan->num_syms; s++)
        sb_printf(sb, "%s %s = %lld", s ? "," : " at", plan->sym[s].name,
                  (long long)plan_bucket(plan, bucket)[s]);
}

static void put_target(Sb *sb, const Work *w, const Plan *plan, const CudaTarget *cuda)
{
    int kernels = cuda ? cuda->num_sources : plan->num_launches, last = plan->num_buckets - 1;
    FusionShare c = cuda ? cuda_fusion_share(cuda, w->arena, last)
                         : codegen_fusion_share(&w->cpu, w->arena, last);
    sb_printf(sb, "%s for %s: %d kernel%s, %d of %d operations (%d %%) fused, ", w->module->name,
              plan->target, kernels, kernels == 1 ? "" : "s", c.fused_ops, c.ops,
              c.ops ? 100 * c.fused_ops / c.ops : 0);
    plan_put_weight_bytes(sb, plan);
    sb_put(sb, ", predicted");
    put_bucket(sb, w, plan, cuda, 0);
    if (plan->num_buckets > 1) {
        sb_put(sb, " to");
        put_bucket(sb, w, plan, cuda, plan->num_buckets - 1);
    }
    sb_putc(sb, '\n');
}

void work_summary(const Work *w, Sb *sb)
{
    if (w->has_cpu)
        put_target(sb, w, w->cpu.plan, NULL);
    for (int i = 0; i < w->num_gpus; i++)
        put_target(sb, w, w->gpu[i].cuda.target.plan, &w->gpu[i].cuda);
}
