/* codegen/cuda/explain: which kernel, tile and grid every launch of the GPU's plan got for each
 * bucket, what was not taken, and why. */
#include "codegen/cuda/family.h"

#include <string.h>

/* mma.cuh does without the instruction. */
bool cuda_emulates(const CudaKernel *k)
{
    return k->packed.home == CUDA_HOME_BF16 && k->gpu->from < 80;
}

const char *cuda_multiplied_by(const CudaKernel *k)
{
    static const char *const word[] = {[CUDA_HOME_I8] = ", mma.sync s8",
                                       [CUDA_HOME_F16] = ", mma.sync f16",
                                       [CUDA_HOME_BF16] = ", mma.sync bf16"};
    return cuda_emulates(k) ? ", fma of f32" : word[k->packed.home];
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
           a->old == b->old && a->floor_us == b->floor_us;
}

static bool same_apart(const CudaChoice *a, const CudaChoice *b)
{
    return b->text && b->apart.text && strcmp(a->apart.text, b->apart.text) == 0;
}

/* Each reason why the launch is one of its own, with the buckets that it holds for. */
static void put_apart(Sb *sb, const CudaTarget *t, const Diag *diag, int launch)
{
    const Plan *plan = t->target.plan;
    const CudaChoice *choice = &t->choice[launch * plan->num_buckets];
    for (int b = 0; b < plan->num_buckets; b++) {
        const CudaApartWhy *why = &choice[b].apart;
        bool told = !choice[b].text || !why->text, all = true;
        for (int other = 0; other < b && !told; other++)
            told = same_apart(&choice[b], &choice[other]);
        if (told)
            continue;
        sb_put(sb, "    apart");
        if (why->at.file)
            sb_printf(sb, " at %s", span_text(diag, why->at));
        for (int other = b; other < plan->num_buckets; other++)
            all = all && same_apart(&choice[b], &choice[other]);
        for (int other = b; other < plan->num_buckets && (b || !all); other++)
            if (same_apart(&choice[b], &choice[other])) {
                sb_put(sb, other == b ? ", where " : "; ");
                plan_bucket_print(sb, plan, other);
            }
        sb_printf(sb, ": %s", why->text);
        sb_printf(sb, why->remedy ? " (%s)\n" : "\n", why->remedy);
    }
}

static void put_launch(Sb *sb, const CudaTarget *t, const Diag *diag, int launch)
{
    const Plan *plan = t->target.plan;
    const PlanLaunch *l = &plan->launch[launch];
    const CudaChoice *choice = &t->choice[launch * plan->num_buckets];
    sb_printf(sb, "%3d  %-4s  %s", launch, launch_family_name[l->family], l->layer);
    if (l->place[0])
        sb_printf(sb, "  (%s)", l->place);
    sb_printf(sb, "\n    %s\n", l->absorbed);
    if (l->family == LAUNCH_GEMM && plan->tensor[l->w].packed) {
        bool decoded = plan->tensor[l->w].storage == STORAGE_ARENA;
        sb_put(sb, decoded ? "    weight, decoded: " : "    weight: ");
        plan_put_layout(sb, &plan->tensor[l->w].pack_spec);
        sb_putc(sb, '\n');
    }
    for (int b = 0; b < plan->num_buckets; b++) {
        if (!choice[b].text)
            continue;
        sb_put(sb, "    ");
        plan_bucket_print(sb, plan, b);
        while (b + 1 < plan->num_buckets && same(&choice[b], &choice[b + 1])) {
            sb_put(sb, "; ");
            plan_bucket_print(sb, plan, ++b);
        }
        sb_printf(sb, "%s%s  %.1f us [%s%s]", plan->num_syms ? ": " : "", choice[b].text,
                  choice[b].us, timing_source_name[choice[b].source],
                  choice[b].old ? ", older kernels" : "");
        if (cuda_roofline_holds(t->gpu, choice[b].source))
            sb_printf(sb, ", %.0f %% of the roofline by %s",
                      100 * choice[b].floor_us / choice[b].us, choice[b].bound);
        sb_putc(sb, '\n');
        if (choice[b].order)
            sb_printf(
                sb, "      invariant: sums as %s, %.0f %% slower than in any order (%.1f us)\n",
                choice[b].order, 100 * (choice[b].us / choice[b].free_us - 1), choice[b].free_us);
        for (const char *at = choice[b].rejected; *at;) {
            int len = (int)strcspn(at, "\n");
            sb_printf(sb, "      %.*s\n", len, at);
            at += len + (at[len] == '\n');
        }
    }
    put_apart(sb, t, diag, launch);
}

static void put_share(Sb *sb, const CudaTarget *t)
{
    const Plan *plan = t->target.plan;
    for (int b = 0; b < plan->num_buckets; b++) {
        FusionShare c = cuda_fusion_share(t, sb->arena, b);
        double us = 0, floor_us = 0;
        for (int i = 0; i < plan->num_launches; i++) {
            const CudaChoice *choice = &t->choice[i * plan->num_buckets + b];
            us += choice->text ? choice->us : 0;
            floor_us += choice->text ? choice->floor_us : 0;
        }
        sb_printf(sb, "fusion on %s%s", plan->target, plan->num_syms ? ", " : "");
        plan_bucket_print(sb, plan, b);
        sb_put(sb, ": ");
        fusion_share_print(sb, &c);
        sb_printf(sb, "; %.1f us", us);
        if (cuda_roofline_holds(t->gpu, TIMING_MODEL))
            sb_printf(sb, ", %.0f %% of the roofline of an %s", us > 0 ? 100 * floor_us / us : 0,
                      cuda_roofline_gpu(t->gpu));
        sb_putc(sb, '\n');
    }
}

void cuda_explain(Sb *sb, const Module *m, const PassContext *ctx, const CudaTarget *t)
{
    const Plan *plan = t->target.plan;
    sb_printf(sb, "%d launch%s for %s by %d kernel%s, ", plan->num_launches,
              plan->num_launches == 1 ? "" : "es", plan->target, t->num_sources,
              t->num_sources == 1 ? "" : "s");
    plan_put_weight_bytes(sb, plan);
    sb_putc(sb, '\n');
    for (int i = 0, at = 0; i < plan->num_launches; i++) {
        const Op *const *op = t->target.launch_kernels.elem;
        put_launch(sb, t, m->diag, i);
        if (i + 1 == plan->num_launches || op[i + 1] != op[i])
            explain_stops(sb, m, ctx, op[i], &at);
    }
    put_share(sb, t);
}
