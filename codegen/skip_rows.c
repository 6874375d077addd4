/* codegen/skip_rows: rows that nobody reads are not computed. Products of counted groups leave out
 * rows that do not count; so can the row programs before them whose results only these read. */
#include "codegen/build.h"
#include <string.h>

static int root_of(const PlanTensor *tensor, int at)
{
    while (storage_is_part(tensor[at].storage))
        at = tensor[at].index;
    return at;
}

/* The whole tensor or what belongs to it, with the rows of the root. */
static bool has_rows_of(const PlanTensor *tensor, int at, int root)
{
    const PlanTensor *t = &tensor[at], *r = &tensor[root];
    if (at == root || (t->storage > STORAGE_VIEW && t->index == root))
        return true;
    return t->storage == STORAGE_VIEW && t->index == root && t->rank == 3 && r->rank == 3 &&
           !memcmp(t->dim, r->dim, 2 * sizeof *t->dim);
}

/* Each row of the launch meets the same row, maybe but its first column. */
static bool row_by_row(const PlanOperand *o)
{
    PlanOperand columns = *o;
    columns.col_step = 1;
    return !plan_operand_is_mapped(&columns);
}

enum { OWN = 5 }; /* tensors of a launch beside its operands */

/* The i-th tensor that the launch meets; -1: none. */
static int32_t met(const PlanLaunch *l, int i)
{
    const int32_t own[OWN] = {l->a, l->w, l->src, l->dst, l->grouped ? l->ends : -1};
    return i < OWN ? own[i] : l->operand[i - OWN].tensor;
}

/* What the product's prologue, which goes over all rows, stores for others. */
static bool stores_rows(const PlanLaunch *l)
{
    for (int i = 0; i < l->prologue.num_steps; i++)
        if (l->prologue.step[i].op == TILE_STORE)
            return true;
    return false;
}

/* The launch meets no other rows of the root than those that count. */
static bool leaves_others(const PlanTensor *tensor, const PlanLaunch *l, int root, int32_t counts)
{
    if (!l->counted || !(l->family == LAUNCH_GEMM || l->skips) || stores_rows(l) ||
        (counts >= 0 && l->ends != counts))
        return false;
    for (int i = 0; i < OWN + l->num_operands; i++) {
        int32_t at = met(l, i);
        if (at < 0 || root_of(tensor, at) != root)
            continue;
        bool by_row = i >= OWN ? row_by_row(&l->operand[i - OWN]) : i == 0;
        if (!by_row || !has_rows_of(tensor, at, root))
            return false;
    }
    return true;
}

typedef struct Meeting { /* of a launch and a root, in the order of launches from the last on */
    int launch;
    struct Meeting *next;
} Meeting;

/* Whether all launches that meet what `at` stores there leave out rows; *counts: by what. */
static bool is_unread(const PlanTensor *tensor, const PlanLaunch *launch, const Meeting *met_by,
                      int at, int root, int32_t *counts)
{
    bool any = false;
    for (const Meeting *m = met_by; m; m = m->next) {
        if (m->launch == at)
            continue;
        if (m->launch < at || !leaves_others(tensor, &launch[m->launch], root, *counts))
            return false;
        any = true;
        *counts = launch[m->launch].ends;
    }
    return any && tensor[root].storage == STORAGE_ARENA;
}

/* Of each root the launches that meet it. */
static Meeting **meetings(Arena *arena, const PlanTensor *tensor, int num_tensors,
                          const PlanLaunch *launch, int num)
{
    Meeting **ret = ARENA_NEW_ARRAY(arena, Meeting *, (size_t)num_tensors);
    memset(ret, 0, (size_t)num_tensors * sizeof *ret);
    for (int i = 0; i < num; i++)
        for (int k = 0; k < OWN + launch[i].num_operands; k++) {
            int32_t at = met(&launch[i], k);
            Meeting **list = at < 0 ? NULL : &ret[root_of(tensor, at)];
            if (!list || (*list && (*list)->launch == i))
                continue;
            Meeting *m = ARENA_NEW(arena, Meeting);
            *m = (Meeting){i, *list};
            *list = m;
        }
    return ret;
}

static bool counts_rows(const PlanLaunch *launch, int num)
{
    for (int i = 0; i < num; i++)
        if (launch[i].counted)
            return true;
    return false;
}

/* A scale of several rows needs all of them. */
static bool is_alone(const PlanTensor *t)
{
    return !t->quantised || t->is_static || (t->scheme.block[0] == 1 && !t->scheme.outer);
}

void codegen_skip_rows(Arena *arena, const PlanTensor *tensor, int num_tensors, PlanLaunch *launch,
                       int num)
{
    if (!counts_rows(launch, num))
        return;
    Meeting **met_by = meetings(arena, tensor, num_tensors, launch, num);
    for (int at = num - 1; at >= 0; at--) {
        PlanLaunch *l = &launch[at];
        int32_t counts = l->grouped ? l->ends : -1;
        bool ok = l->family == LAUNCH_TILE && (!l->grouped || l->counted), any = false;
        for (int i = 0; ok && i < l->program.num_steps; i++) {
            const TileStep *s = &l->program.step[i];
            if (!plan_writes((TileOp)s->op))
                continue;
            const PlanOperand *o = &l->operand[s->tensor];
            int root = root_of(tensor, o->tensor);
            ok = row_by_row(o) && is_alone(&tensor[root]) && has_rows_of(tensor, o->tensor, root) &&
                 is_unread(tensor, launch, met_by[root], at, root, &counts);
            any = true;
        }
        if (!ok || !any)
            continue;
        l->grouped = l->counted = l->skips = true;
        l->ends = counts;
    }
}
