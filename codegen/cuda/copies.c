/* codegen/cuda/copies: weights that lie in several layouts, of which each bucket reads one: a
 * tensor and a constant for each, and their launches once more; a weight that some buckets decode
 * first has a tensor in the arena for that, and the launch that does it before its own, and so has
 * an activation that is held in another format. Those that run under no bucket are dropped with
 * those of other schedules. */
#include "codegen/cuda/plan.h"
#include "codegen/cuda/why.h"

#include <string.h>

void cuda_launch_put(CudaBuilder *b, PlanLaunch launch, CudaRole role, const Op *op)
{
    ARRAY_PUSH(b->arena, &b->launches, launch);
    ARRAY_PUSH(b->arena, &b->roles, role);
    ARRAY_PUSH(b->arena, &b->launch_ops, op);
}

/* Tensors of a weight's copies in other layouts that serve some bucket, and the constants that fill
 * them. own: the weight's tensor by layout, .. */
typedef struct Copies {
    int32_t (*own)[NUM_CUDA_FORMS]; /* .. [tensors], -1: there is none */
    const uint8_t *under;           /* [tensors][buckets] the layout that serves it */
    CudaHold *hold;                 /* [launches] of products of held activations; .. */
    bool *is_known;                 /* .. [launches] that the product before has held */
    int num;                        /* beyond one a weight */
} Copies;

static bool serves(const CudaDraft *d, const Copies *c, int weight, int form)
{
    int buckets = d->plan->num_buckets;
    return memchr(c->under + weight * buckets, form, (size_t)buckets) != NULL;
}

/* The tensors that weights are decoded to share a place in the arena, of every bucket, since a
 * session has memory for the largest: the product that reads one follows its launch. */
static void place_decoded(CudaBuilder *b, const CudaDraft *d, int first)
{
    int buckets = d->plan->num_buckets;
    uint64_t most = 0, *bytes = ARENA_NEW_ARRAY(b->arena, uint64_t, (size_t)buckets);
    for (int i = first; i < b->tensors.num; i++) {
        const PlanTensor *t = &b->tensors.elem[i];
        most = t->storage == STORAGE_ARENA && t->bytes > most ? t->bytes : most;
    }
    if (!most)
        return;
    for (int k = 0; k < buckets; k++)
        bytes[k] = most;
    const uint64_t *at = cuda_grow_arena(b, bytes);
    for (int i = first; i < b->tensors.num; i++)
        if (b->tensors.elem[i].storage == STORAGE_ARENA)
            b->tensors.elem[i].arena_offset = at;
}

/* What weights are decoded to, and those that are read as they lie beside held activations. */
static void find_decoded(CudaBuilder *b, const CudaDraft *d, Copies *c)
{
    int first = b->tensors.num;
    for (int i = 0; i < d->plan->num_tensors; i++)
        for (int form = CUDA_DECODED; form < NUM_CUDA_FORMS; form++) {
            PlanTensor further;
            c->own[i][form] = -1;
            if (!serves(d, c, i, form) || !(cuda_holds(form) ? cuda_held(d, i, form, &further)
                                                             : cuda_decoded(d, i, &further)))
                continue;
            c->own[i][form] = b->tensors.num;
            c->num++;
            ARRAY_PUSH(b->arena, &b->tensors, further);
        }
    place_decoded(b, d, first);
}

/* The product `launch` holds its activation under some bucket. */
static bool is_held(const CudaBuilder *b, const Copies *c, int launch)
{
    const PlanLaunch *l = &b->launches.elem[launch];
    const CudaChain *chain = b->roles.elem[launch].chain;
    return l->family == LAUNCH_GEMM && (!chain || launch == chain->product) &&
           (c->own[l->w][CUDA_HELD] >= 0 || c->own[l->w][CUDA_HELD_ALONE] >= 0);
}

/* The activation of a product is what one before it holds, and nothing was held since. before: -1:
 * there is none. */
static bool is_known(const CudaBuilder *b, const Copies *c, int buckets, int before, int launch)
{
    const PlanLaunch *l = &b->launches.elem[launch],
                     *p = &b->launches.elem[before < 0 ? 0 : before];
    bool same = before >= 0 && l->a == p->a && !b->roles.elem[launch].chain;
    for (int k = 0; k < buckets && same; k++)
        same = cuda_holds(c->under[l->w * buckets + k]) == cuda_holds(c->under[p->w * buckets + k]);
    return same;
}

/* Held activations share a place likewise. */
static const uint64_t *place_held(CudaBuilder *b, const CudaDraft *d, const Copies *c)
{
    int buckets = d->plan->num_buckets;
    uint64_t *bytes = ARENA_NEW_ARRAY(b->arena, uint64_t, (size_t)buckets);
    bool any = false;
    for (int i = 0; i < b->launches.num; i++)
        for (int k = 0; k < buckets && is_held(b, c, i); k++) {
            uint64_t own = cuda_hold_bytes(d, &b->launches.elem[i], k);
            bytes[k] = own > bytes[k] ? own : bytes[k];
            any = true;
        }
    return any ? cuda_grow_arena(b, bytes) : NULL;
}

static void find_held(CudaBuilder *b, const CudaDraft *d, Copies *c)
{
    int num = b->launches.num, before = -1;
    const uint64_t *at = place_held(b, d, c);
    c->hold = ARENA_NEW_ARRAY(b->arena, CudaHold, (size_t)num + 1);
    c->is_known = ARENA_NEW_ARRAY(b->arena, bool, (size_t)num + 1);
    for (int i = 0; i < num; i++) {
        PlanTensor further[CUDA_HOLD_TENSORS];
        const PlanLaunch *l = &b->launches.elem[i];
        if (!is_held(b, c, i))
            continue;
        c->is_known[i] = is_known(b, c, d->plan->num_buckets, before, i);
        int more = cuda_hold_tensors(d, l, l->w, c->is_known[i] ? &c->hold[before] : NULL, at,
                                     b->tensors.num, further, &c->hold[i]);
        for (int k = 0; k < more; k++)
            ARRAY_PUSH(b->arena, &b->tensors, further[k]);
        before = i;
    }
}

static void find_copies(CudaBuilder *b, const CudaDraft *d, Copies *c)
{
    int num = d->plan->num_tensors;
    c->own = arena_alloc(b->arena, (size_t)num * sizeof *c->own);
    for (int i = 0; i < num; i++)
        for (int l = 0; l < NUM_CUDA_PACKED; l++) {
            PlanTensor copy = b->tensors.elem[i];
            bool first = copy.pack_spec.layout == l;
            c->own[i][l] = first ? i : -1;
            if (first || !serves(d, c, i, l))
                continue;
            c->own[i][l] = b->tensors.num;
            c->num++;
            copy.pack_spec.layout = (uint8_t)l;
            ARRAY_PUSH(b->arena, &b->tensors, copy);
        }
    find_decoded(b, d, c);
    find_held(b, d, c);
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

/* The launch that decodes the weight to this form of it, for the buckets `under`. */
static void put_decode(CudaBuilder *b, const CudaBuilder *old, const Copies *c, int product,
                       int form, const bool *under)
{
    const PlanLaunch *l = &old->launches.elem[product];
    const Op *kernel = old->launch_ops.elem[product];
    int to = c->own[l->w][form];
    bool asked = b->options->decode != CUDA_DECODE_BY_TIME;
    PlanLaunch launch = {.family = LAUNCH_DECODE,
                         .layer = l->layer,
                         .place = l->place,
                         .absorbed = "decode weight",
                         .a = -1,
                         .w = -1,
                         .src = l->w,
                         .dst = to};
    CudaRole role = {.span_operand = -1,
                     .under = under,
                     .apart = cuda_decode_why(b->arena, &b->tensors.elem[to], kernel, asked)};
    cuda_launch_put(b, launch, role, kernel);
}

/* A row kernel before a product whose schedule is not asked; true: it holds the activation, too,
 * for which `why` is, unless there is none. */
static bool put_rows(CudaBuilder *b, const CudaBuilder *old, const CudaChain *chain,
                     const CudaHold *hold, const CudaApartWhy *why, const bool *under)
{
    int row = chain->row;
    PlanLaunch launch = old->launches.elem[row];
    bool both = why && cuda_hold_rows(b->arena, &old->launches.elem[row], hold, &launch);
    CudaRole role = old->roles.elem[row];
    const char *text = role.apart.text;
    role.apart.text = arena_printf(b->arena, "%s%sits product reads what is held in bf16",
                                   text ? text : "", text ? "; " : "");
    if (chain->ranges >= 0)
        role.apart = chain->found.text ? chain->found : old->roles.elem[chain->ranges].apart;
    if (both && chain->found.text)
        role.apart.text = arena_printf(b->arena, "%s; %s", chain->found.text, why->text);
    else if (both)
        role.apart = *why;
    role.chain = NULL;
    role.under = under;
    cuda_launch_put(b, launch, role, old->launch_ops.elem[row]);
    return both;
}

/* What finds the ranges of such a row kernel. */
static void put_ranges(CudaBuilder *b, const CudaBuilder *old, int ranges, const bool *under)
{
    CudaRole role = old->roles.elem[ranges];
    role.chain = NULL;
    role.under = under;
    cuda_launch_put(b, old->launches.elem[ranges], role, old->launch_ops.elem[ranges]);
}

/* The buckets of a weight for which its activation is held. */
static bool *holding(CudaBuilder *b, const Copies *c, int weight)
{
    int buckets = b->list->num_buckets;
    bool *ret = ARENA_NEW_ARRAY(b->arena, bool, (size_t)buckets);
    for (int i = 0; i < buckets; i++)
        ret[i] = cuda_holds(c->under[weight * buckets + i]);
    return ret;
}

/* What holds the activation of a product, in any form, with what comes before it in a chain. */
static void put_hold(CudaBuilder *b, const CudaBuilder *old, const Copies *c, int product)
{
    const PlanLaunch *l = &old->launches.elem[product];
    const CudaChain *chain = old->roles.elem[product].chain;
    const Op *kernel = old->launch_ops.elem[product];
    bool asked = b->options->decode != CUDA_DECODE_BY_TIME;
    const bool *under = holding(b, c, l->w);
    bool is_known = c->is_known[product];
    CudaRole role = {.span_operand = -1,
                     .under = under,
                     .apart = cuda_hold_why(b->arena, &b->tensors.elem[l->a], kernel, asked)};
    if (chain && chain->ranges >= 0)
        put_ranges(b, old, chain->ranges, under);
    bool holds =
        chain && put_rows(b, old, chain, &c->hold[product], is_known ? NULL : &role.apart, under);
    if (!is_known && !holds)
        cuda_launch_put(b, cuda_hold_launch(b->arena, l, &c->hold[product]), role, kernel);
}

/* A product, or a chain that ends with one, for buckets that hold its activation in this form. */
static void put_held(CudaBuilder *b, const CudaBuilder *old, const Copies *c, int product, int form,
                     const bool *under)
{
    const PlanLaunch *l = &old->launches.elem[product];
    CudaRole role = old->roles.elem[product];
    if (form == CUDA_HELD || c->own[l->w][CUDA_HELD] < 0)
        put_hold(b, old, c, product);
    role.chain = NULL;
    role.under = under;
    cuda_launch_put(b, cuda_held_product(b->arena, l, &c->hold[product], c->own[l->w][form]), role,
                    old->launch_ops.elem[product]);
}

/* Launches `first` up to `end` of the old ones, a chain or one alone, for the buckets that this
 * form of the weight serves. */
static void put_again(CudaBuilder *b, const CudaBuilder *old, const Copies *c, int first, int end,
                      int weight, int form)
{
    int buckets = b->list->num_buckets;
    const CudaChain *chain = old->roles.elem[first].chain;
    CudaChain *moved = chain ? ARENA_NEW(b->arena, CudaChain) : NULL;
    bool *under = weight >= 0 ? ARENA_NEW_ARRAY(b->arena, bool, (size_t)buckets) : NULL;
    for (int i = 0; i < buckets && under; i++)
        under[i] = c->under[weight * buckets + i] == form;
    if ((form == CUDA_DECODED || form == CUDA_HELD) && under)
        put_decode(b, old, c, end - 1, form, under);
    if (cuda_holds(form) && under) {
        put_held(b, old, c, end - 1, form, under);
        return;
    }
    int at = b->launches.num - first;
    if (chain)
        *moved = (CudaChain){chain->fused + at, chain->row + at, chain->product + at,
                             .ranges = chain->ranges < 0 ? -1 : chain->ranges + at,
                             .found = chain->found};
    for (int i = first; i < end; i++) {
        PlanLaunch launch = old->launches.elem[i];
        CudaRole role = old->roles.elem[i];
        role.under = under;
        role.chain = moved;
        if (launch.family == LAUNCH_GEMM && under)
            launch.w = c->own[weight][form];
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
        for (int k = 0; k < NUM_CUDA_FORMS && weight >= 0; k++)
            num += c.own[weight][k] >= 0;
        if (num <= 1)
            put_again(b, &old, &c, i, end, -1, 0);
        for (int k = 0; k < NUM_CUDA_FORMS && num > 1; k++)
            if (c.own[weight][k] >= 0)
                put_again(b, &old, &c, i, end, weight, k);
    }
    plan->num_tensors = b->tensors.num;
    plan->tensor = b->tensors.elem;
    plan->num_launches = b->launches.num;
    plan->launch = b->launches.elem;
    return true;
}
