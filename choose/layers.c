/* The layers of a model, which of them are chosen together, and which candidates each can use. */
#include "choose/internal.h"
#include <string.h>

/* Finding ------------------------------------------------------------------------------------- */

static bool is_layer(const Op *op)
{
    int rank = op->num_in == 3 ? 3 : 2; /* of rows that have matrices of their groups */
    return op->kind == OP_MATMUL && op->attr.layer && op_in(op, 1)->type->rank == rank;
}

static const Value *before_casts(const Value *value)
{
    while (value->def->kind == OP_CAST)
        value = op_in(value->def, 0);
    return value;
}

Op **probe_layers(const Probe *t, const Choice *c)
{
    Op **ret = ARENA_NEW_ARRAY(t->arena, Op *, (size_t)c->num_layers + 1);
    int num = 0;
    for_each_op(op, &t->module->body)
        if (is_layer(op) && num < c->num_layers)
            ret[num++] = op;
    if (num != c->num_layers)
        BUG("a model of %d layers has %d with other rules", c->num_layers, num);
    return ret;
}

/* Layers of one path have one rule, so they are one; siblings read one value. */
static bool belong_together(const Choice *c, Op *const *op, int i, int k)
{
    if (!strcmp(c->layer[i].path, c->layer[k].path))
        return true;
    return c->spec->couple && before_casts(op_in(op[i], 0)) == before_casts(op_in(op[k], 0));
}

static void groups_find(Choice *c, Op *const *op)
{
    for (int i = 0; i < c->num_layers; i++) {
        ChoiceLayer *l = &c->layer[i];
        int group = -1;
        for (int k = 0; k < i && group < 0 && !l->pinned; k++)
            if (!c->layer[k].pinned && belong_together(c, op, i, k))
                group = c->layer[k].group;
        l->group = l->pinned ? -1 : group >= 0 ? group : c->num_groups++;
    }
}

static void columns_make(Choice *c)
{
    c->num_candidates = c->spec->candidates.num;
    c->num_columns = c->num_candidates + 2;
    c->float_column = c->num_candidates;
    c->pinned_column = c->num_candidates + 1;
    c->column = ARENA_NEW_ARRAY(c->arena, const char *, (size_t)c->num_columns);
    for (int i = 0; i < c->num_candidates; i++)
        c->column[i] = c->spec->candidates.elem[i].text;
    c->column[c->float_column] = "keep";
    c->column[c->pinned_column] = "pinned";
    c->noise_scale = ARENA_NEW_ARRAY(c->arena, double, (size_t)c->num_columns);
    c->turn_scale = ARENA_NEW_ARRAY(c->arena, double, (size_t)c->num_columns);
    for (int k = 0; k < c->num_columns; k++)
        c->noise_scale[k] = c->turn_scale[k] = 1;
}

static void layers_make(Choice *c, const Module *m, Op ***ret_op)
{
    ARRAY(Op *) ops = {0};
    for_each_op(op, &m->body)
        if (is_layer(op))
            ARRAY_PUSH(c->arena, &ops, op);
    *ret_op = ops.elem;
    c->num_layers = ops.num;
    c->layer = ARENA_NEW_ARRAY(c->arena, ChoiceLayer, (size_t)ops.num + 1);
    for (int i = 0; i < ops.num; i++) {
        const Op *op = ops.elem[i];
        const Type *w = op_in(op, 1)->type;
        c->layer[i] = (ChoiceLayer){.path = op->attr.layer,
                                    .span = op->span,
                                    .experts = w->rank == 3 ? w->dim[0].add : 0,
                                    .n = w->dim[w->rank - 2].add,
                                    .k = w->dim[w->rank - 1].add,
                                    .pinned = op->attr.quant && op->attr.quant->pinned};
        c->layer[i].cell = ARENA_NEW_ARRAY(c->arena, LayerCell, (size_t)c->num_columns);
        for (int k = 0; k < c->num_columns; k++)
            c->layer[i].cell[k].us = ARENA_NEW_ARRAY(c->arena, double, (size_t)c->num_buckets + 1);
    }
}

/* Buckets ------------------------------------------------------------------------------------- */

static bool buckets_make(Chooser *ch)
{
    Choice *c = ch->c;
    const Module *m = ch->m;
    int num = 1;
    c->num_syms = m->syms.num;
    c->sym = m->syms.elem;
    for (int i = 0; i < c->num_syms; i++) {
        if (num > LIMIT_BUCKETS / c->sym[i]->num_sizes) {
            diag_error(ch->lab.diag, c->sym[i]->span, E_LIMIT,
                       "the sizes of all dims make more than %d combinations", LIMIT_BUCKETS);
            return false;
        }
        num *= c->sym[i]->num_sizes;
    }
    c->num_buckets = num;
    c->bucket = ARENA_NEW_ARRAY(c->arena, int64_t, (size_t)num * (size_t)c->num_syms + 1);
    for (int b = 0; b < num; b++)
        for (int i = c->num_syms - 1, rest = b; i >= 0; i--) {
            c->bucket[b * c->num_syms + i] = c->sym[i]->size[rest % c->sym[i]->num_sizes];
            rest /= c->sym[i]->num_sizes;
        }
    return true;
}

/* T = 1 : 0.7 spreads over all buckets with that size. */
static void weights_make(Choice *c)
{
    double all = 0;
    c->weight = ARENA_NEW_ARRAY(c->arena, double, (size_t)c->num_buckets + 1);
    c->fixed_us = ARENA_NEW_ARRAY(c->arena, double, (size_t)c->num_buckets + 1);
    for (int i = 0; i < c->spec->at.num; i++) {
        const AutoAt *at = &c->spec->at.elem[i];
        int num = 0;
        for (int b = 0; b < c->num_buckets; b++)
            num += bucket_is(c, b, at);
        for (int b = 0; b < c->num_buckets; b++)
            if (bucket_is(c, b, at))
                c->weight[b] += at->weight / num;
        all += at->weight;
    }
    for (int b = 0; b < c->num_buckets; b++)
        c->weight[b] = all > 0 ? c->weight[b] / all : 1.0 / c->num_buckets;
}

bool layers_find(Chooser *ch)
{
    Op **op;
    columns_make(ch->c);
    if (!buckets_make(ch))
        return false;
    weights_make(ch->c);
    layers_make(ch->c, ch->m, &op);
    groups_find(ch->c, op);
    return true;
}

/* Candidates that cannot be used --------------------------------------------------------------- */

bool cell_usable(const Choice *c, int group, int column)
{
    for (int i = 0; i < c->num_layers; i++)
        if (c->layer[i].group == group && c->layer[i].cell[column].why)
            return false;
    return true;
}

int *pick_uniform(const Choice *c, Arena *arena, int column)
{
    int *pick = ARENA_NEW_ARRAY(arena, int, (size_t)c->num_groups + 1);
    for (int g = 0; g < c->num_groups; g++)
        pick[g] = cell_usable(c, g, column) ? column : c->float_column;
    return pick;
}

bool probe_prepare_fast(Probe *t, bool with_weights)
{
    if (!probe_passes(t, with_weights ? "infer-types,bind-weights,fold,choose-scheme"
                                      : "infer-types,choose-scheme"))
        return false;
    for_each_op(op, &t->module->body) {
        if (op->kind != OP_MATMUL || !op->attr.quant)
            continue;
        QuantSpec *spec = ARENA_NEW(t->arena, QuantSpec);
        *spec = *op->attr.quant;
        spec->by = NULL;
        spec->smooth = false;
        op->attr.quant = spec;
        if (spec->act_static) {
            op->attr.range.known = true;
            op->attr.range.lo = -1;
            op->attr.range.hi = 1;
        }
    }
    return probe_passes_from(t, "insert-quant");
}

static bool same_shape(const ChoiceLayer *a, const ChoiceLayer *b)
{
    return a->experts == b->experts && a->n == b->n && a->k == b->k;
}

/* Plans the model with one candidate at the layers of one shape. NULL, or why that is refused. */
static const char *shape_problem(Chooser *ch, const ChoiceLayer *like, int column)
{
    Choice *c = ch->c;
    Sb sb;
    Probe t;
    const char *why = NULL;
    sb_init(&sb, ch->arena);
    sb_put(&sb, "quant {\n");
    for (int i = 0; i < c->num_layers; i++)
        if (!c->layer[i].pinned)
            sb_printf(&sb, "%s : %s\n", c->layer[i].path,
                      same_shape(&c->layer[i], like) ? c->column[column] : "keep");
    sb_put(&sb, "}\n");
    bool ok = probe_lower(&t, &ch->lab, sb.text) && probe_prepare_fast(&t, false) &&
              probe_plan(&t) && (!ch->lab.options->gpu || probe_plan_gpu(&t));
    if (!ok)
        why = arena_strdup(c->arena, probe_problem(&t));
    probe_close(&t);
    return why;
}

static void report_unusable(Chooser *ch, int column)
{
    Choice *c = ch->c;
    const ChoiceLayer *first = NULL;
    int num = 0;
    for (int i = 0; i < c->num_layers; i++)
        if (c->layer[i].cell[column].why) {
            first = first ? first : &c->layer[i];
            num++;
        }
    if (!num)
        return;
    diag_warning(ch->lab.diag, c->spec->candidates.elem[column].span, E_AUTO_CANDIDATE,
                 "'%s' cannot be used for %d of %d layers", c->column[column], num, c->num_layers);
    diag_note(ch->lab.diag, first->span, "%s: %s", first->path, first->cell[column].why);
}

static bool group_has_any(Chooser *ch, int group)
{
    Choice *c = ch->c;
    const ChoiceLayer *first = NULL;
    for (int k = 0; k < c->num_candidates; k++)
        if (cell_usable(c, group, k))
            return true;
    for (int i = 0; i < c->num_layers && !first; i++)
        first = c->layer[i].group == group ? &c->layer[i] : NULL;
    diag_error(ch->lab.diag, first->span, E_AUTO_CANDIDATE, "no candidate can be used for '%s'",
               first->path);
    for (int k = 0; k < c->num_candidates; k++)
        if (first->cell[k].why)
            diag_note(ch->lab.diag, c->spec->candidates.elem[k].span, "%s", first->cell[k].why);
    diag_help(ch->lab.diag, "add keep to the candidates");
    return false;
}

bool groups_check(Chooser *ch)
{
    for (int g = 0; g < ch->c->num_groups; g++)
        if (!group_has_any(ch, g))
            return false;
    return true;
}

bool cells_check(Chooser *ch)
{
    Choice *c = ch->c;
    for (int k = 0; k < c->num_candidates; k++) {
        for (int i = 0; i < c->num_layers && strcmp(c->column[k], "keep"); i++) {
            ChoiceLayer *l = &c->layer[i];
            int same = -1;
            for (int j = 0; j < i && same < 0 && !l->pinned; j++)
                if (!c->layer[j].pinned && same_shape(&c->layer[j], l))
                    same = j;
            if (!l->pinned)
                l->cell[k].why = same >= 0 ? c->layer[same].cell[k].why : shape_problem(ch, l, k);
        }
        report_unusable(ch, k);
    }
    return groups_check(ch);
}
