/* codegen/cuda/copies: weights that lie in several layouts, of which each bucket reads one: a
 * tensor and a constant for each, and their launches once more; a weight that some buckets decode
 * first has a tensor in the arena for that, and the launch that does it before its own. Those that
 * run under no bucket are dropped with those of other schedules. */
#include "codegen/cuda/plan.h"
#include "codegen/cuda/why.h"

#include <string.h>

void cuda_launch_put(CudaBuilder *b, PlanLaunch launch, CudaRole role, const Op *op)
{
    ARRAY_PUSH(b->arena, &b->launches, launch);
    ARRAY_PUSH(b->arena, &b->roles, role);
    ARRAY_PUSH(b->arena, &b->launch_ops, op);
}

#define NUM_FORMS (CUDA_DECODED + 1) /* of a weight: its layouts, and what it is decoded to */

/* Tensors of a weight's copies in other layouts that serve some bucket, and the constants that fill
 * them. own: the weight's tensor by layout, .. */
typedef struct Copies {
    int32_t (*own)[NUM_FORMS]; /* .. [tensors], -1: there is none */
    const uint8_t *under;      /* [tensors][buckets] the layout that serves it */
    int num;                   /* beyond one a weight */
} Copies;

/* The tensors that weights are decoded to share a place in the arena, of every bucket, since a
 * session has memory for the largest: the product that reads one follows its launch. */
static void find_decoded(CudaBuilder *b, const CudaDraft *d, Copies *c)
{
    int num = d->plan->num_tensors, buckets = d->plan->num_buckets;
    uint64_t *bytes = ARENA_NEW_ARRAY(b->arena, uint64_t, (size_t)buckets);
    int first = b->tensors.num;
    for (int i = 0; i < num; i++) {
        PlanTensor decoded;
        c->own[i][CUDA_DECODED] = -1;
        if (!memchr(c->under + i * buckets, CUDA_DECODED, (size_t)buckets) ||
            !cuda_decoded(d, i, &decoded))
            continue;
        for (int k = 0; k < buckets; k++)
            bytes[k] = decoded.bytes > bytes[k] ? decoded.bytes : bytes[k];
        c->own[i][CUDA_DECODED] = b->tensors.num;
        c->num++;
        ARRAY_PUSH(b->arena, &b->tensors, decoded);
    }
    if (b->tensors.num == first)
        return;
    const uint64_t *at = cuda_grow_arena(b, bytes);
    for (int i = first; i < b->tensors.num; i++)
        b->tensors.elem[i].arena_offset = at;
}

static void find_copies(CudaBuilder *b, const CudaDraft *d, Copies *c)
{
    int num = d->plan->num_tensors, buckets = d->plan->num_buckets;
    c->own = arena_alloc(b->arena, (size_t)num * sizeof *c->own);
    for (int i = 0; i < num; i++)
        for (int l = 0; l < NUM_CUDA_PACKED; l++) {
            PlanTensor copy = b->tensors.elem[i];
            bool first = copy.pack_spec.layout == l;
            c->own[i][l] = first ? i : -1;
            if (first || !memchr(c->under + i * buckets, l, (size_t)buckets))
                continue;
            c->own[i][l] = b->tensors.num;
            c->num++;
            copy.pack_spec.layout = (uint8_t)l;
            ARRAY_PUSH(b->arena, &b->tensors, copy);
        }
    find_decoded(b, d, c);
}

/* The constants of a weight's copies lie behind its own, in one group: it is evaluated once. */
static void put_consts(CudaBuilder *b, const Copies *c)
{
    CodegenTarget all = b->out->target;
    memset(&b->out->target.consts, 0, sizeof b->out->target.consts);
    for (int i = 0; i < all.consts.num; i++) {
        PlanConst what = all.consts.elem[i];
        const int32_t *own = c->own[what.tensor];
        ARRAY_PUSH(b->arena, &b->out->target.consts, what);
        for (int l = 0; l < NUM_CUDA_PACKED; l++) {
            if (own[l] < 0 || own[l] == what.tensor)
                continue;
            PlanConst copy = what;
            copy.tensor = own[l];
            ARRAY_PUSH(b->arena, &b->out->target.consts, copy);
        }
    }
}

static void put_decode(CudaBuilder *b, const PlanLaunch *product, const Op *kernel, CudaRole role,
                       int from, int to)
{
    PlanLaunch launch = {.family = LAUNCH_DECODE,
                         .layer = product->layer,
                         .place = product->place,
                         .absorbed = "decode weight",
                         .a = -1,
                         .w = -1,
                         .src = from,
                         .dst = to};
    cuda_launch_put(b, launch, role, kernel);
}

/* Launches `first` up to `end` of the old ones, a chain or one alone, for the buckets that the copy
 * in this layout serves. */
static void put_again(CudaBuilder *b, const CudaBuilder *old, const Copies *c, int first, int end,
                      int weight, int layout)
{
    int buckets = b->list->num_buckets;
    const CudaChain *chain = old->roles.elem[first].chain;
    CudaChain *moved = chain ? ARENA_NEW(b->arena, CudaChain) : NULL;
    bool *under = weight >= 0 ? ARENA_NEW_ARRAY(b->arena, bool, (size_t)buckets) : NULL;
    for (int i = 0; i < buckets && under; i++)
        under[i] = c->under[weight * buckets + i] == layout;
    if (layout == CUDA_DECODED && under)
        put_decode(
            b, &old->launches.elem[end - 1], old->launch_ops.elem[first],
            (CudaRole){.span_operand = -1,
                       .under = under,
                       .apart = cuda_decode_why(
                           b->arena, &b->tensors.elem[c->own[weight][CUDA_DECODED]],
                           old->launch_ops.elem[first], b->options->decode == CUDA_DECODE_ALWAYS)},
            weight, c->own[weight][CUDA_DECODED]);
    int at = b->launches.num - first;
    if (chain)
        *moved = (CudaChain){chain->fused + at, chain->row + at, chain->product + at};
    for (int i = first; i < end; i++) {
        PlanLaunch launch = old->launches.elem[i];
        CudaRole role = old->roles.elem[i];
        role.under = under;
        role.chain = moved;
        if (launch.family == LAUNCH_GEMM && under)
            launch.w = c->own[weight][layout];
        cuda_launch_put(b, launch, role, old->launch_ops.elem[i]);
    }
}

bool cuda_put_copies(CudaBuilder *b, Plan *plan, const CudaDraft *d, const uint8_t *under)
{
    CudaBuilder old = *b;
    Copies c = {.under = under};
    find_copies(b, d, &c);
    if (!c.num)
        return false;
    put_consts(b, &c);
    memset(&b->launches, 0, sizeof b->launches);
    memset(&b->roles, 0, sizeof b->roles);
    memset(&b->launch_ops, 0, sizeof b->launch_ops);
    for (int i = 0, end; i < old.launches.num; i = end) {
        const CudaChain *chain = old.roles.elem[i].chain;
        const PlanLaunch *l = &old.launches.elem[chain ? chain->product : i];
        end = chain ? chain->product + 1 : i + 1;
        int num = 0, weight = l->family == LAUNCH_GEMM ? l->w : -1;
        for (int k = 0; k < NUM_FORMS && weight >= 0; k++)
            num += c.own[weight][k] >= 0;
        if (num <= 1)
            put_again(b, &old, &c, i, end, -1, 0);
        for (int k = 0; k < NUM_FORMS && num > 1; k++)
            if (c.own[weight][k] >= 0)
                put_again(b, &old, &c, i, end, weight, k);
    }
    plan->num_tensors = b->tensors.num;
    plan->tensor = b->tensors.elem;
    plan->num_launches = b->launches.num;
    plan->launch = b->launches.elem;
    return true;
}
