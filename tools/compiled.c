/* What a compilation came to, in a line for each target: `compile --verbose`. */
#include "driver/work.h"

/* Operations of the model, and how many of them share a kernel with others. */
static void count_ops(const Module *m, int *ret_all, int *ret_shared)
{
    *ret_all = *ret_shared = 0;
    for_each_op(kernel, &m->body) {
        int num = 0;
        for (const Op *op = kernel->body ? kernel->body->first : NULL; op; op = op->next)
            num += op->kind != OP_ARG && op->kind != OP_YIELD && op->kind != OP_CONST;
        *ret_all += num;
        *ret_shared += num > 1 ? num : 0;
    }
}

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
    int all, shared, kernels = cuda ? cuda->num_sources : plan->num_launches;
    count_ops(w->module, &all, &shared);
    sb_printf(sb,
              "%s for %s: %d kernel%s, %d of %d operations (%d %%) fused, %llu bytes of weights, ",
              w->module->name, plan->target, kernels, kernels == 1 ? "" : "s", shared, all,
              all ? 100 * shared / all : 0, (unsigned long long)plan_weight_bytes(plan));
    sb_put(sb, "predicted");
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
