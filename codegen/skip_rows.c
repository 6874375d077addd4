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

/* Does the launch touch the root at all; *ret_bad: and other rows than those that count. */
static bool reads(const PlanTensor *tensor, const PlanLaunch *l, int root, const int32_t *counts,
                  bool *ret_bad)
{
    bool is_group = l->grouped && l->counted && (l->family == LAUNCH_GEMM || l->skips);
    bool skips = is_group && (*counts < 0 || l->ends == *counts), touches = false;
    const int32_t own[] = {l->a, l->w, l->src, l->dst, l->grouped ? l->ends : -1};
    for (int i = 0; i < (int)COUNT_OF(own); i++) {
        if (own[i] < 0 || root_of(tensor, own[i]) != root)
            continue;
        touches = true;
        *ret_bad = *ret_bad || i > 0 || !skips || !has_rows_of(tensor, own[i], root);
    }
    for (int i = 0; i < l->num_operands; i++) {
        if (root_of(tensor, l->operand[i].tensor) != root)
            continue;
        touches = true;
        *ret_bad = *ret_bad || !skips || !row_by_row(&l->operand[i]) ||
                   !has_rows_of(tensor, l->operand[i].tensor, root);
    }
    return touches;
}

/* Whether all launches that meet what `at` stores there leave out rows; *counts: by what. */
static bool is_unread(const PlanTensor *tensor, const PlanLaunch *launch, int num, int at, int root,
                      int32_t *counts)
{
    bool bad = tensor[root].storage != STORAGE_ARENA, any = false;
    for (int i = 0; i < num && !bad; i++) {
        if (i == at || !reads(tensor, &launch[i], root, counts, &bad))
            continue;
        bad = bad || i < at;
        any = true;
        *counts = launch[i].ends;
    }
    return any && !bad;
}

/* A scale of several rows needs all of them. */
static bool is_alone(const PlanTensor *t)
{
    return !t->quantised || t->is_static || (t->scheme.block[0] == 1 && !t->scheme.outer);
}

void codegen_skip_rows(const PlanTensor *tensor, PlanLaunch *launch, int num)
{
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
                 is_unread(tensor, launch, num, at, root, &counts);
            any = true;
        }
        if (!ok || !any)
            continue;
        l->grouped = l->counted = l->skips = true;
        l->ends = counts;
    }
}
