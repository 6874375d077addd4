/* From errors and times to a choice: the knapsack, its verification on data, and the front. */
#include "choose/internal.h"
#include "choose/knapsack.h"
#include <stdlib.h>
#include <string.h>

/* Budgets ------------------------------------------------------------------------------------- */

Aim aim_of(const AutoSpec *spec)
{
    return spec->minimize == MEASURE_ERROR   ? AIM_NOISE
           : spec->minimize == MEASURE_BYTES ? AIM_BYTES
                                             : AIM_LATENCY;
}

bool bucket_is(const Choice *c, int bucket, const AutoAt *at)
{
    for (int i = 0; i < c->num_syms; i++)
        if (!strcmp(c->sym[i]->name, at->sym))
            return c->bucket[bucket * c->num_syms + i] == at->size;
    return false;
}

/* What layers take that have nothing to choose is taken off. */
static void budget_reduce(const Choice *c, Budget *b)
{
    b->bytes -= c->fixed_bytes;
    for (int k = 0; k < c->num_buckets; k++)
        b->us[k] -= c->fixed_us[k];
    for (int i = 0; i < c->num_layers; i++) {
        const LayerCell *cell = &c->layer[i].cell[c->pinned_column];
        if (!c->layer[i].pinned)
            continue;
        b->turn -= cell->turn;
        b->noise -= cell->noise;
        b->bytes -= (double)cell->bytes;
        for (int k = 0; k < c->num_buckets; k++)
            b->us[k] -= cell->us[k];
    }
}

Budget budget_whole(const Chooser *ch, double correction)
{
    const Choice *c = ch->c;
    Budget b = {INFINITY, INFINITY, INFINITY,
                ARENA_NEW_ARRAY(ch->arena, double, (size_t)c->num_buckets + 1)};
    for (int k = 0; k < c->num_buckets; k++)
        b.us[k] = INFINITY;
    for (int i = 0; i < c->spec->requires.num; i++) {
        const AutoRequire *r = &c->spec->requires.elem[i];
        if (r->measure == MEASURE_BYTES)
            b.bytes = fmin(b.bytes, r->value);
        else if (r->measure == MEASURE_COSINE && r->on)
            b.turn = fmin(b.turn, turn_of_cosine(r->value) / correction);
        else if (r->measure == MEASURE_SQNR && r->on)
            b.noise = fmin(b.noise, pow(10, -r->value / 10) / correction);
        for (int k = 0; k < c->num_buckets && r->measure == MEASURE_LATENCY; k++)
            if (bucket_is(c, k, &r->at))
                b.us[k] = fmin(b.us[k], r->value);
    }
    return b;
}

Budget budget_of(const Chooser *ch, double correction)
{
    Budget b = budget_whole(ch, correction);
    budget_reduce(ch->c, &b);
    return b;
}

/* Solving ------------------------------------------------------------------------------------- */

static bool cell_good(const Choice *c, const LayerCell *cell)
{
    for (int i = 0; i < c->spec->requires.num; i++) {
        const AutoRequire *r = &c->spec->requires.elem[i];
        if (!r->on && ((r->measure == MEASURE_SQNR && !(cell->sqnr >= r->value)) ||
                       (r->measure == MEASURE_COSINE && !(cell->cosine >= r->value))))
            return false;
    }
    return true;
}

bool column_allowed(const Choice *c, int group, int column)
{
    if (!cell_usable(c, group, column))
        return false;
    for (int i = 0; i < c->num_layers; i++)
        if (c->layer[i].group == group && !cell_good(c, &c->layer[i].cell[column]))
            return false;
    return true;
}

static double cell_latency(const Choice *c, const LayerCell *cell)
{
    double us = 0;
    for (int b = 0; b < c->num_buckets; b++)
        us += c->weight[b] * cell->us[b];
    return us;
}

static void item_add(const Choice *c, const Budget *budget, Aim aim, const ChoiceLayer *layer,
                     int column, KnapItem *item)
{
    int at = 0;
    const LayerCell *cell = &layer->cell[column];
    double noise = c->noise_scale[column] * cell->noise;
    item->cost += aim == AIM_LATENCY ? cell_latency(c, cell)
                  : aim == AIM_NOISE ? noise
                                     : (double)cell->bytes;
    if (isfinite(budget->turn))
        item->use[at++] += c->turn_scale[column] * cell->turn;
    if (isfinite(budget->noise))
        item->use[at++] += noise;
    if (isfinite(budget->bytes))
        item->use[at++] += (double)cell->bytes;
    for (int b = 0; b < c->num_buckets && at < KNAP_LIMITS; b++)
        if (isfinite(budget->us[b]))
            item->use[at++] += cell->us[b];
}

/* False: a budget is overdrawn before anything was chosen. */
static bool limits_fill(const Choice *c, const Budget *budget, KnapProblem *p)
{
    const double error[] = {budget->turn, budget->noise, budget->bytes};
    for (size_t i = 0; i < COUNT_OF(error); i++)
        if (isfinite(error[i]))
            p->limit[p->num_limits++] = error[i];
    for (int b = 0; b < c->num_buckets && p->num_limits < KNAP_LIMITS; b++)
        if (isfinite(budget->us[b]))
            p->limit[p->num_limits++] = budget->us[b];
    for (int k = 0; k < p->num_limits; k++)
        if (p->limit[k] < 0)
            return false;
    return true;
}

bool choice_solve(Chooser *ch, const Budget *budget, Aim aim, ChoicePoint *ret)
{
    Choice *c = ch->c;
    Arena *scratch = arena_new();
    size_t num = (size_t)c->num_groups + 1;
    KnapGroup *group = ARENA_NEW_ARRAY(scratch, KnapGroup, num);
    int(*column)[KNAP_ITEMS] = arena_alloc(scratch, num * sizeof *column);
    KnapProblem p = {.num_groups = c->num_groups, .group = group};
    bool ok = limits_fill(c, budget, &p);
    for (int g = 0; g < c->num_groups && ok; g++) {
        KnapItem *item = ARENA_NEW_ARRAY(scratch, KnapItem, KNAP_ITEMS);
        int items = 0;
        for (int k = 0; k < c->num_candidates && items < KNAP_ITEMS; k++) {
            if (!column_allowed(c, g, k))
                continue;
            for (int i = 0; i < c->num_layers; i++)
                if (c->layer[i].group == g)
                    item_add(c, budget, aim, &c->layer[i], k, &item[items]);
            column[g][items++] = k;
        }
        group[g] = (KnapGroup){items, item};
        ok = items > 0;
    }
    *ret = (ChoicePoint){.pick = ARENA_NEW_ARRAY(c->arena, int, num)};
    KnapResult r = {0};
    if (ok) {
        r = knap_solve(&p, scratch, ret->pick);
        ok = r.status == KNAP_OPTIMAL || r.status == KNAP_UNPROVEN;
    }
    for (int g = 0; g < c->num_groups && ok; g++)
        ret->pick[g] = column[g][ret->pick[g]];
    c->proven = ok && r.status == KNAP_OPTIMAL;
    c->gap = ok && r.cost > 0 ? 1 - r.bound / r.cost : 0;
    if (ok)
        point_fill(c, ret);
    arena_destroy(scratch);
    return ok;
}

void point_fill(const Choice *c, ChoicePoint *point)
{
    point->latency = point->noise = point->turn = 0;
    point->bytes = c->fixed_bytes;
    for (int b = 0; b < c->num_buckets; b++)
        point->latency += c->weight[b] * c->fixed_us[b];
    for (int i = 0; i < c->num_layers; i++) {
        const ChoiceLayer *l = &c->layer[i];
        int column = l->pinned ? c->pinned_column : point->pick[l->group];
        const LayerCell *cell = &l->cell[column];
        point->latency += cell_latency(c, cell);
        point->bytes += (double)cell->bytes;
        point->noise += c->noise_scale[column] * cell->noise;
        point->turn += c->turn_scale[column] * cell->turn;
    }
    point->cosine = 1 / sqrt(1 + point->turn);
    Aim aim = aim_of(c->spec);
    point->objective = aim == AIM_LATENCY ? point->latency
                       : aim == AIM_NOISE ? point->noise
                                          : point->bytes;
}

double point_latency_at(const Choice *c, const ChoicePoint *point, const AutoAt *at)
{
    double most = 0;
    for (int b = 0; b < c->num_buckets; b++) {
        double us = point->graph_us ? point->graph_us[b] : c->fixed_us[b];
        for (int i = 0; i < c->num_layers && bucket_is(c, b, at) && !point->graph_us; i++) {
            const ChoiceLayer *l = &c->layer[i];
            us += l->cell[l->pinned ? c->pinned_column : point->pick[l->group]].us[b];
        }
        if (bucket_is(c, b, at))
            most = fmax(most, us);
    }
    return most;
}

/* The front ----------------------------------------------------------------------------------- */

enum { FRONT_STEPS = 40 };

static bool point_same(const Choice *c, const ChoicePoint *a, const ChoicePoint *b)
{
    return !memcmp(a->pick, b->pick, (size_t)c->num_groups * sizeof *a->pick);
}

static int point_faster(const void *a, const void *b)
{
    const ChoicePoint *x = a, *y = b;
    if (x->latency != y->latency)
        return x->latency < y->latency ? -1 : 1;
    return x->noise < y->noise ? -1 : x->noise > y->noise;
}

/* The fastest choice for error budgets in steps of one ratio, other budgets and the requirements of
 * single layers left out. */
void front_find(Chooser *ch)
{
    Choice *c = ch->c;
    ChoicePoint fast, good;
    bool proven = c->proven;
    double gap = c->gap;
    Budget b = {INFINITY, INFINITY, INFINITY,
                ARENA_NEW_ARRAY(ch->arena, double, (size_t)c->num_buckets + 1)};
    for (int k = 0; k < c->num_buckets; k++)
        b.us[k] = INFINITY;
    c->front = ARENA_NEW_ARRAY(c->arena, ChoicePoint, FRONT_STEPS + 3);
    if (choice_solve(ch, &b, AIM_LATENCY, &fast) && choice_solve(ch, &b, AIM_NOISE, &good)) {
        double lo = fmax(good.noise, fast.noise * 1e-5), hi = fast.noise;
        ChoicePoint points[FRONT_STEPS + 2] = {fast, good};
        int num = 2;
        for (int i = 1; i < FRONT_STEPS && hi > 0; i++) {
            b.noise = lo * pow(hi / lo, (double)i / FRONT_STEPS);
            num += choice_solve(ch, &b, AIM_LATENCY, &points[num]);
        }
        qsort(points, (size_t)num, sizeof *points, point_faster);
        for (int i = 0; i < num; i++) {
            const ChoicePoint *last = c->num_front ? &c->front[c->num_front - 1] : NULL;
            if (!last || (points[i].noise < last->noise && !point_same(c, last, &points[i])))
                c->front[c->num_front++] = points[i];
        }
    }
    c->proven = proven;
    c->gap = gap;
}
