/* codegen/cuda/explain: which kernel, tile and grid every launch of the GPU's plan got for each
 * bucket, what was not taken, and why. */
#include "codegen/cuda/family.h"

#include <string.h>

const char *cuda_multiplied_by(const CudaKernel *k)
{
    static const char *const word[] = {[CUDA_HOME_I8] = ", mma.sync s8",
                                       [CUDA_HOME_F16] = ", mma.sync f16",
                                       [CUDA_HOME_BF16] = ", mma.sync bf16"};
    return word[k->packed.home];
}

void cuda_describe(Sb *sb, const CudaKernel *k)
{
    CudaGeometry g = cuda_geometry(k);
    sb_put(sb, cuda_family_name[k->family]);
    if (cuda_family[k->family]->describe)
        cuda_family[k->family]->describe(sb, k);
    sb_printf(sb, ": %lld block%s of %d threads, %lld bytes shared", (long long)g.grid,
              g.grid == 1 ? "" : "s", g.block, (long long)g.smem);
}

static bool same(const CudaChoice *a, const CudaChoice *b)
{
    return a->text && b->text && strcmp(a->text, b->text) == 0 &&
           strcmp(a->rejected, b->rejected) == 0 && a->us == b->us && a->source == b->source &&
           a->old == b->old;
}

static void put_bucket(Sb *sb, const Plan *plan, int bucket)
{
    for (int i = 0; i < plan->num_syms; i++)
        sb_printf(sb, "%s%s = %lld", i ? ", " : "", plan->sym[i].name,
                  (long long)plan_bucket(plan, bucket)[i]);
}

static void put_launch(Sb *sb, const CudaTarget *t, int launch)
{
    const Plan *plan = t->target.plan;
    const PlanLaunch *l = &plan->launch[launch];
    const CudaChoice *choice = &t->choice[launch * plan->num_buckets];
    sb_printf(sb, "%3d  %-4s  %s", launch, launch_family_name[l->family], l->layer);
    if (l->place[0])
        sb_printf(sb, "  (%s)", l->place);
    sb_printf(sb, "\n    %s\n", l->absorbed);
    if (l->family == LAUNCH_GEMM && plan->tensor[l->w].packed) {
        sb_put(sb, "    weight: ");
        plan_put_layout(sb, &plan->tensor[l->w].pack_spec);
        sb_putc(sb, '\n');
    }
    for (int b = 0; b < plan->num_buckets; b++) {
        if (!choice[b].text)
            continue;
        sb_put(sb, "    ");
        put_bucket(sb, plan, b);
        while (b + 1 < plan->num_buckets && same(&choice[b], &choice[b + 1])) {
            sb_put(sb, "; ");
            put_bucket(sb, plan, ++b);
        }
        sb_printf(sb, "%s%s  %.1f us [%s%s]\n", plan->num_syms ? ": " : "", choice[b].text,
                  choice[b].us, timing_source_name[choice[b].source],
                  choice[b].old ? ", older kernels" : "");
        for (const char *at = choice[b].rejected; *at;) {
            int len = (int)strcspn(at, "\n");
            sb_printf(sb, "      %.*s\n", len, at);
            at += len + (at[len] == '\n');
        }
    }
}

void cuda_explain(Sb *sb, const Module *m, const PassContext *ctx, const CudaTarget *t)
{
    const Plan *plan = t->target.plan;
    sb_printf(sb, "%d launches for %s by %d kernels, %llu bytes of weights\n", plan->num_launches,
              plan->target, t->num_sources, (unsigned long long)plan_weight_bytes(plan));
    for (int i = 0, at = 0; i < plan->num_launches; i++) {
        const Op *const *op = t->target.launch_kernels.elem;
        put_launch(sb, t, i);
        if (i + 1 == plan->num_launches || op[i + 1] != op[i])
            explain_stops(sb, m, ctx, op[i], &at);
    }
}
