/* codegen/cuda/unfused: layers whose rule says `fused`: the layout with which they are one launch,
 * and the launches that a plan takes for them against it; and how much of the model runs inside
 * fused launches. */
#include "codegen/cuda/family.h"

#include <string.h>

const Op *cuda_to_be_fused(const Op *kernel)
{
    for (const Op *op = kernel->body ? kernel->body->first : NULL; op; op = op->next)
        if (op->kind == OP_MATMUL && op->attr.quant && op->attr.quant->fused)
            return op;
    return NULL;
}

/* Layouts -------------------------------------------------------------------------------------- */

/* The products with the weight whose rule says `fused` take their prologues in, under each bucket
 * with the layout that it has there. own: [buckets]. */
static bool takes_prologues_in(const CudaDraft *d, PlanTensor *weight, int index,
                               const uint8_t *own)
{
    uint8_t before = weight->pack_spec.layout;
    bool ret = true, runs;
    for (int i = 0; i < d->plan->num_launches; i++) {
        const CudaChain *chain = d->role[i].chain;
        if (!chain || chain->fused != i || !d->role[i].fused || d->plan->launch[i].w != index)
            continue;
        for (int b = 0; b < d->plan->num_buckets && ret; b++) {
            weight->pack_spec.layout = own[b];
            ret = cuda_schedule(d, i, b, &runs) != SCHEDULE_APART;
        }
    }
    weight->pack_spec.layout = before;
    return ret;
}

const uint8_t *cuda_lay_fused(const CudaDraft *d, PlanTensor *tensor, const uint8_t *layouts)
{
    int buckets = d->plan->num_buckets;
    size_t num = (size_t)(d->plan->num_tensors * buckets);
    uint8_t *ret = ARENA_NEW_ARRAY(d->arena, uint8_t, num),
            *records = ARENA_NEW_ARRAY(d->arena, uint8_t, (size_t)buckets);
    memcpy(ret, layouts, num);
    memset(records, CUDA_RECORDS, (size_t)buckets);
    for (int i = 0; i < d->plan->num_tensors; i++) {
        uint8_t *own = ret + i * buckets;
        if (!tensor[i].packed || takes_prologues_in(d, &tensor[i], i, own) ||
            !takes_prologues_in(d, &tensor[i], i, records))
            continue;
        tensor[i].pack_spec.layout = CUDA_RECORDS;
        memset(own, CUDA_RECORDS, (size_t)buckets);
    }
    return ret;
}

/* Launches of a plan --------------------------------------------------------------------------- */

static int launches_under(const CudaTarget *t, int first, int end, int bucket)
{
    int num = 0;
    for (int i = first; i < end; i++)
        num += t->choice[i * t->target.plan->num_buckets + bucket].text != NULL;
    return num;
}

static const char *place_of(const CudaTarget *t, Arena *arena, int bucket)
{
    Sb sb;
    sb_init(&sb, arena);
    if (t->target.plan->num_syms)
        sb_put(&sb, " at ");
    plan_bucket_print(&sb, t->target.plan, bucket);
    return sb.text;
}

/* One note for each reason under the bucket that takes most. */
static void put_notes(Module *m, const CudaTarget *t, int first, int end, int bucket)
{
    int buckets = t->target.plan->num_buckets;
    const char *last = "";
    for (int i = first; i < end; i++) {
        const CudaChoice *choice = &t->choice[i * buckets + bucket];
        if (!choice->text || !choice->apart.text || !strcmp(choice->apart.text, last))
            continue;
        last = choice->apart.text;
        diag_note(m->diag, choice->apart.at, "%s apart: %s%s%s%s",
                  t->target.plan->launch[i].absorbed, last, choice->apart.remedy ? " (" : "",
                  choice->apart.remedy ? choice->apart.remedy : "",
                  choice->apart.remedy ? ")" : "");
    }
}

/* The launches from `first` up to `end` are those of one kernel. */
static void check_kernel(Module *m, const CudaTarget *t, int first, int end)
{
    const Op *matmul = cuda_to_be_fused(t->target.launch_kernels.elem[first]);
    int most = 1, at = 0;
    for (int b = 0; b < t->target.plan->num_buckets; b++) {
        int num = launches_under(t, first, end, b);
        at = num > most ? b : at;
        most = num > most ? num : most;
    }
    if (most == 1 || !matmul)
        return;
    diag_error(m->diag, matmul->span, E_NOT_FUSED,
               "%s takes %d launches on %s%s, but its rule says fused", matmul->attr.layer, most,
               t->gpu->name, place_of(t, m->arena, at));
    put_notes(m, t, first, end, at);
    diag_help(m->diag, "or drop 'fused': 'sinter explain --target=%s' then prints what is apart",
              t->gpu->name);
}

void cuda_check_fused(Module *m, const CudaTarget *t)
{
    const Op *const *kernel = t->target.launch_kernels.elem;
    int num = t->target.plan->num_launches;
    for (int first = 0, end; first < num; first = end) {
        for (end = first + 1; end < num && kernel[end] == kernel[first]; end++)
            continue;
        check_kernel(m, t, first, end);
    }
}

FusionShare cuda_fusion_share(const CudaTarget *t, Arena *arena, int bucket)
{
    const Plan *plan = t->target.plan;
    int *num_ops = ARENA_NEW_ARRAY(arena, int, (size_t)plan->num_launches + 1);
    for (int i = 0; i < plan->num_launches; i++)
        num_ops[i] = t->choice[i * plan->num_buckets + bucket].text ? t->num_ops[i] : -1;
    return fusion_share_of(plan, num_ops, arena, bucket);
}
