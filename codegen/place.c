/* codegen/place: the constants of all targets of a file in one section, a group after the other, so
 * that each group is evaluated once and memory stays bounded by it. What several targets read in
 * the same layout lies there once. */
#include "codegen/codegen.h"

#define ALIGN_CPU 64
#define ALIGN_GPU 256

/* Both are filled with the same bytes. */
static bool same_bytes(const CodegenTarget *s, const PlanConst *a, const CodegenTarget *t,
                       const PlanConst *b)
{
    const PlanTensor *x = &s->plan->tensor[a->tensor], *y = &t->plan->tensor[b->tensor];
    if (a->value != b->value || a->zero != b->zero || a->params_of != b->params_of ||
        x->packed != y->packed || x->bytes != y->bytes)
        return false;
    return !x->packed || (plan_is_cuda(s->plan) == plan_is_cuda(t->plan) &&
                          pack_spec_equal(&x->pack_spec, &y->pack_spec));
}

/* plans are const but for their maker */
static uint64_t *offset_of(const CodegenTarget *t, const PlanConst *c)
{
    return (uint64_t *)(uintptr_t)&t->plan->tensor[c->tensor].offset;
}

static bool put(Arena *arena, Placement *p, int group, const CodegenTarget *t, const PlanConst *c)
{
    for (int i = group; i < p->consts.num; i++) {
        const PlacedConst *known = &p->consts.elem[i];
        if (same_bytes(known->target, known->what, t, c)) {
            *offset_of(t, c) = known->offset;
            return true;
        }
    }
    PlacedConst placed = {.target = t, .what = c};
    if (!checked_align(p->bytes, p->align, &placed.offset) ||
        !checked_add(placed.offset, t->plan->tensor[c->tensor].bytes, &p->bytes) ||
        p->bytes > LIMIT_BYTES)
        return false;
    *offset_of(t, c) = placed.offset;
    ARRAY_PUSH(arena, &p->consts, placed);
    return true;
}

bool codegen_place(Module *m, Arena *arena, int num, CodegenTarget *const *target, Placement *ret)
{
    int *next = ARENA_NEW_ARRAY(arena, int, (size_t)num + 1); /* constant of each target */
    *ret = (Placement){.align = ALIGN_CPU};
    for (int i = 0; i < num; i++)
        ret->align = plan_is_cuda(target[i]->plan) ? ALIGN_GPU : ret->align;
    for (int group = 0;;) {
        int first = ret->consts.num, least = INT32_MAX;
        for (int i = 0; i < num; i++) {
            const CodegenTarget *t = target[i];
            for (; next[i] < t->consts.num && t->consts.elem[next[i]].group == group; next[i]++) {
                const PlanConst *c = &t->consts.elem[next[i]];
                if (put(arena, ret, first, t, c))
                    continue;
                diag_error(m->diag, c->span, E_KERNEL,
                           "the weights of this model exceed %llu bytes",
                           (unsigned long long)LIMIT_BYTES);
                return false;
            }
            if (next[i] < t->consts.num && t->consts.elem[next[i]].group < least)
                least = t->consts.elem[next[i]].group;
        }
        if (least == INT32_MAX)
            return true;
        group = least;
    }
}
