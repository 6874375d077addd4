/* What a memory planner must never get wrong: within one launch, tensors share bytes only in place;
 * across launches, whatever is read was written before and has not been overwritten since. The
 * arena is followed as a sorted list of byte ranges, each owned by the tensor that wrote it last;
 * outputs count as if they lay behind it, one after the other. */
#include "artifact/artifact.h"

#include <stdlib.h>
#include <string.h>

typedef struct Owned {
    uint64_t begin, end;
    int32_t root;
} Owned;

typedef struct OwnedList {
    Owned *range; /* sorted, disjoint */
    int num, cap;
    bool failed;
} OwnedList;

typedef struct Effect { /* what one launch does to one tensor */
    int32_t tensor;
    bool write, mapped; /* mapped: reads other rows or columns than the tile's own */
} Effect;

typedef struct Effects {
    /* each operand read and written, a GEMM's two, ends */
    Effect effect[2 * PLAN_MAX_OPERANDS + 3];
    int num;
} Effects;

typedef struct Follower {
    const Plan *plan;
    const PlanLayout *layout;
    const uint64_t *at; /* of root tensors that launches write */
    OwnedList owned;
    IoError *err;
} Follower;

/* Ranges --------------------------------------------------------------------------------------- */

static void list_insert(OwnedList *list, int at, Owned range)
{
    if (list->num == list->cap) {
        int cap = list->cap ? 2 * list->cap : 64;
        Owned *grown = realloc(list->range, (size_t)cap * sizeof *grown);
        if (!grown) {
            list->failed = true;
            return;
        }
        list->range = grown;
        list->cap = cap;
    }
    memmove(list->range + at + 1, list->range + at, (size_t)(list->num - at) * sizeof range);
    list->range[at] = range;
    list->num++;
}

/* The first range that ends after `begin`. */
static int list_find(const OwnedList *list, uint64_t begin)
{
    int low = 0, high = list->num;
    while (low < high) {
        int mid = low + (high - low) / 2;
        if (list->range[mid].end > begin)
            high = mid;
        else
            low = mid + 1;
    }
    return low;
}

static void list_claim(OwnedList *list, Owned range)
{
    if (range.begin == range.end)
        return;
    int at = list_find(list, range.begin);
    if (at < list->num && list->range[at].begin < range.begin) {
        Owned left = list->range[at];
        list->range[at].begin = range.begin;
        left.end = range.begin;
        list_insert(list, at++, left);
    }
    int last = at;
    while (last < list->num && list->range[last].end <= range.end)
        last++;
    if (last < list->num && list->range[last].begin < range.end)
        list->range[last].begin = range.end;
    if (last > at) {
        memmove(list->range + at, list->range + last, (size_t)(list->num - last) * sizeof range);
        list->num -= last - at;
    }
    list_insert(list, at, range);
}

/* The root that owns a byte of [begin, end) but is not `root`: -1 none, -2 nobody owns it. */
static int32_t list_stranger(const OwnedList *list, Owned range)
{
    uint64_t covered = range.begin;
    for (int i = list_find(list, range.begin); covered < range.end; i++) {
        if (i == list->num || list->range[i].begin > covered)
            return -2;
        if (list->range[i].root != range.root)
            return list->range[i].root;
        covered = list->range[i].end;
    }
    return -1;
}

/* Effects -------------------------------------------------------------------------------------- */

static void effect_add(Effects *e, int32_t tensor, bool write, bool mapped)
{
    for (int i = 0; i < e->num; i++)
        if (e->effect[i].tensor == tensor && e->effect[i].write == write) {
            e->effect[i].mapped |= mapped;
            return;
        }
    e->effect[e->num++] = (Effect){tensor, write, mapped};
}

bool plan_operand_is_mapped(const PlanOperand *o)
{
    return o->row_div.mul != 0 || o->row_div.add != 1 || o->row_mod.mul != 0 ||
           o->row_mod.add != 0 || o->col_step != 1 || o->by_group || o->index;
}

/* The same codes under other scales, row by row. */
static bool is_same_codes(const Plan *plan, const PlanOperand *a, const PlanOperand *view)
{
    const PlanTensor *t = &plan->tensor[view->tensor];
    return t->quantised && t->storage == STORAGE_VIEW && t->index == a->tensor &&
           !plan_operand_is_mapped(a) && !plan_operand_is_mapped(view);
}

/* Does the program store the operand's codes before step `at`, which reads them? */
static bool has_quantised(const Plan *plan, const PlanLaunch *l, const PlanProgram *p, int at,
                          int operand)
{
    for (int i = 0; i < at; i++)
        if (p->step[i].op == TILE_QUANTIZE &&
            (p->step[i].tensor == operand ||
             is_same_codes(plan, &l->operand[p->step[i].tensor], &l->operand[operand])))
            return true;
    return false;
}

static void program_effects(const Plan *plan, Effects *e, const PlanLaunch *l, const PlanProgram *p)
{
    for (int i = 0; i < p->num_steps; i++) {
        const TileStep *s = &p->step[i];
        bool write = plan_writes((TileOp)s->op);
        if (write || (s->op == TILE_LOAD && !has_quantised(plan, l, p, i, s->tensor)))
            effect_add(e, l->operand[s->tensor].tensor, write,
                       s->op == TILE_LOAD && plan_operand_is_mapped(&l->operand[s->tensor]));
        if (s->op == TILE_LOAD && l->operand[s->tensor].index)
            effect_add(e, l->operand[l->operand[s->tensor].index - 1].tensor, false, true);
        if (s->op == TILE_CODE_SUM && !has_quantised(plan, l, p, i, s->tensor2))
            effect_add(e, l->operand[s->tensor2].tensor, false, false);
    }
}

/* Where groups of rows end is read, too. */
static void ends_effect(Effects *e, const PlanLaunch *l)
{
    if (l->grouped)
        effect_add(e, l->ends, false, true);
}

static Owned range_of(const Follower *f, int32_t tensor)
{
    const PlanLayout *layout = &f->layout[tensor];
    const PlanTensor *root = &f->plan->tensor[layout->root];
    if (root->storage != STORAGE_ARENA && root->storage != STORAGE_OUTPUT)
        return (Owned){.root = layout->root};
    uint64_t begin = f->at[layout->root] + layout->at;
    return (Owned){begin, begin + layout->bytes, layout->root};
}

/* Two column ranges of the rows of one tensor. */
static bool columns_apart(const PlanLayout *p, const PlanLayout *q)
{
    if (p->root != q->root || p->pitch != q->pitch || p->rows < 1 || q->rows < 1)
        return false;
    const PlanLayout *left = p->at < q->at ? p : q, *right = left == p ? q : p;
    uint64_t width = left->bytes - (uint64_t)((left->rows - 1) * left->pitch);
    return right->at - left->at >= width && right->at - left->at < (uint64_t)left->pitch;
}

/* Two tensors of one launch, at least one of them written: the same rows and columns at the same
 * place, or apart. */
static bool check_in_place(const Follower *f, const PlanLaunch *l, const Effect *a, const Effect *b)
{
    Owned x = range_of(f, a->tensor), y = range_of(f, b->tensor);
    const PlanLayout *p = &f->layout[a->tensor], *q = &f->layout[b->tensor];
    if (x.begin >= y.end || y.begin >= x.end || columns_apart(p, q))
        return true;
    if (x.begin == y.begin && p->pitch == q->pitch && !a->mapped && !b->mapped &&
        (l->family == LAUNCH_TILE || a->tensor == b->tensor) && a->write != b->write)
        return true;
    return plan_fail(f->err, "\"%s\": \"%s\" and \"%s\" share bytes", l->layer,
                     f->plan->tensor[a->tensor].name, f->plan->tensor[b->tensor].name);
}

static bool check_reads(const Follower *f, const PlanLaunch *l, const Effects *e)
{
    for (int i = 0; i < e->num; i++) {
        if (e->effect[i].write)
            continue;
        Owned range = range_of(f, e->effect[i].tensor);
        int32_t stranger = list_stranger(&f->owned, range);
        if (stranger != -1)
            return plan_fail(f->err, "\"%s\" reads \"%s\", which %s%s", l->layer,
                             f->plan->tensor[e->effect[i].tensor].name,
                             stranger == -2 ? "is not written yet" : "is overwritten by ",
                             stranger == -2 ? "" : f->plan->tensor[stranger].name);
    }
    return true;
}

/* One phase of a launch: reads, then writes. */
static bool follow(Follower *f, const PlanLaunch *l, const Effects *e)
{
    if (!check_reads(f, l, e))
        return false;
    for (int i = 0; i < e->num; i++)
        for (int j = 0; j < i; j++)
            if ((e->effect[i].write || e->effect[j].write) &&
                !check_in_place(f, l, &e->effect[i], &e->effect[j]))
                return false;
    for (int i = 0; i < e->num; i++)
        if (e->effect[i].write)
            list_claim(&f->owned, range_of(f, e->effect[i].tensor));
    if (f->owned.failed)
        *f->err = (IoError){.id = E_MEMORY, .text = "memory is exhausted while checking the plan"};
    return !f->owned.failed;
}

static bool follow_launch(Follower *f, const PlanLaunch *l)
{
    Effects e = {.num = 0};
    if (l->family == LAUNCH_ROUTE) {
        for (int i = 0; i < l->num_operands; i++)
            effect_add(&e, l->operand[i].tensor,
                       i >= l->num_operands - plan_route_results(l->route), true);
        return follow(f, l, &e);
    }
    if (l->family == LAUNCH_TILE) {
        program_effects(f->plan, &e, l, &l->program);
        ends_effect(&e, l);
        return follow(f, l, &e);
    }
    if (l->family == LAUNCH_MOVE || l->family == LAUNCH_DECODE) {
        effect_add(&e, l->src, false, true);
        effect_add(&e, l->dst, true, true);
        return follow(f, l, &e);
    }
    program_effects(f->plan, &e, l, &l->prologue);
    if (e.num && !follow(f, l, &e))
        return false;
    e.num = 0;
    effect_add(&e, l->a, false, true);
    effect_add(&e, l->w, false, true);
    ends_effect(&e, l);
    for (int i = 0; i < l->num_segments; i++)
        program_effects(f->plan, &e, l, &l->segment[i].epilogue);
    return follow(f, l, &e);
}

/* Offsets in the arena; those of outputs follow each other behind it. */
static bool place_roots(const Plan *plan, int bucket, const PlanLayout *layout, uint64_t *at)
{
    uint64_t end = plan->arena_bytes[bucket];
    for (int i = 0; i < plan->num_tensors; i++) {
        const PlanTensor *t = &plan->tensor[i];
        if (t->storage == STORAGE_ARENA)
            at[i] = t->arena_offset[bucket];
        if (t->storage != STORAGE_OUTPUT)
            continue;
        at[i] = end;
        if (!checked_add(end, layout[i].bytes, &end))
            return false;
    }
    return true;
}

/* What is never written would be what the caller's memory held before. */
static bool check_outputs(const Follower *f)
{
    for (int i = 0; i < f->plan->num_outputs; i++)
        if (list_stranger(&f->owned, range_of(f, f->plan->output[i].tensor)) != -1)
            return plan_fail(f->err, "output \"%s\" is never written", f->plan->output[i].name);
    return true;
}

bool plan_check_aliasing(const Plan *plan, int bucket, const PlanLayout *layout, IoError *err)
{
    uint64_t *at = calloc((size_t)plan->num_tensors + 1, sizeof *at);
    if (!at) {
        *err = (IoError){.id = E_MEMORY, .text = "memory is exhausted while checking the plan"};
        return false;
    }
    Follower f = {.plan = plan, .layout = layout, .at = at, .err = err};
    bool ok = place_roots(plan, bucket, layout, at) ||
              plan_fail(err, "the sizes of the outputs overflow");
    for (int i = 0; ok && i < plan->num_launches; i++)
        ok = follow_launch(&f, &plan->launch[i]);
    ok = ok && check_outputs(&f);
    free(at);
    free(f.owned.range);
    return ok;
}
