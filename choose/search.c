/* The search on a device, where what formats cost beside each other is measured: a product whose
 * neighbour has another format than its own brings other kernels than the model with one format
 * everywhere, which times of layers alone do not show.
 *
 * Every choice that is timed as a whole tells what each of its layers took between its neighbours
 * (a context). Where a context is known, estimates take that time, else the layer's own. From every
 * good uniform choice, the best so far and the solver's, moves of one or several groups go down
 * in cost within what is required; the best choice that was not run yet is run, and the search
 * starts again from what it measured. What was not seen yet is estimated low rather than high, so
 * that it is seen. */
#include "choose/settle.h"
#include <string.h>

enum { MOST_TRIALS = 24, MOST_PAIRS = 128 /* groups times candidates */, EDGE = -1 };
#define MOST_US 30e6  /* for all trials */
#define GAIN    0.003 /* less is not worth a run */

typedef struct Context {
    int column, before, after; /* of the layer and its neighbours; EDGE: none */
    int num;                   /* of times, whose mean is */
    double *us;                /* [buckets] */
    struct Context *next;
} Context;

typedef struct Contexts {
    int *form;           /* [layers] the first that is alike */
    int *before, *after; /* [layers] the nearest of another group, or EDGE */
    Context **first;     /* [layers] of the layers of that form */
} Contexts;

typedef struct Search {
    Settle *s;
    const Choice *c;
    Arena *arena;
    Budget limit;
    Aim aim;
    double *us;      /* [buckets] of the choice at hand */
    double bar;      /* a cost that is worth a run; of the best that was not run, below */
    int *found;      /* it; NULL: none yet */
    double found_us; /* its latency, as estimated */
} Search;

typedef struct Guess {
    double over, cost; /* over: sum of what limits are exceeded by, relative */
    double latency;    /* weighted */
} Guess;

/* Contexts ------------------------------------------------------------------------------------- */

static int neighbour(const Choice *c, int layer, int step)
{
    int at = layer + step;
    while (at >= 0 && at < c->num_layers && c->layer[at].group >= 0 &&
           c->layer[at].group == c->layer[layer].group)
        at += step;
    return at >= 0 && at < c->num_layers ? at : EDGE;
}

static Contexts *contexts_new(Arena *arena, const Choice *c)
{
    size_t num = (size_t)c->num_layers + 1;
    Contexts *x = ARENA_NEW(arena, Contexts);
    *x = (Contexts){ARENA_NEW_ARRAY(arena, int, num), ARENA_NEW_ARRAY(arena, int, num),
                    ARENA_NEW_ARRAY(arena, int, num), ARENA_NEW_ARRAY(arena, Context *, num)};
    for (int i = 0; i < c->num_layers; i++) {
        x->form[i] = 0;
        while (!layers_alike(c, x->form[i], i))
            x->form[i]++;
        x->before[i] = neighbour(c, i, -1);
        x->after[i] = neighbour(c, i, 1);
    }
    return x;
}

static int column_at(const Choice *c, const int *pick, int layer)
{
    return layer == EDGE            ? EDGE
           : c->layer[layer].pinned ? c->pinned_column
                                    : pick[c->layer[layer].group];
}

/* The context of a layer in a choice; without it one with the same neighbour before, then after;
 * NULL: none is known. */
static Context *context_find(const Settle *s, const int *pick, int layer, bool exact)
{
    const Contexts *x = s->contexts;
    int column = column_at(s->c, pick, layer);
    int before = column_at(s->c, pick, x->before[layer]);
    int after = column_at(s->c, pick, x->after[layer]);
    Context *near = NULL;
    for (Context *at = x->first[x->form[layer]]; at; at = at->next) {
        if (at->column != column)
            continue;
        if (at->before == before && at->after == after)
            return at;
        if (at->before == before || (!near && at->after == after))
            near = at;
    }
    /* beside its own format a layer's own time is the better guess */
    return exact || (before == column && after == column) ? NULL : near;
}

static Context *context_add(Settle *s, const int *pick, int layer)
{
    const Choice *c = s->c;
    Contexts *x = s->contexts;
    Context *at = ARENA_NEW(s->arena, Context);
    *at = (Context){.column = column_at(c, pick, layer),
                    .before = column_at(c, pick, x->before[layer]),
                    .after = column_at(c, pick, x->after[layer]),
                    .us = ARENA_NEW_ARRAY(s->arena, double, (size_t)c->num_buckets + 1),
                    .next = x->first[x->form[layer]]};
    return x->first[x->form[layer]] = at;
}

void search_learn(Settle *s, const int *pick, const double *us)
{
    const Choice *c = s->c;
    if (!s->contexts)
        s->contexts = contexts_new(s->arena, c);
    for (int i = 0; i < c->num_layers; i++) {
        Context *at = context_find(s, pick, i, true);
        at = at ? at : context_add(s, pick, i);
        at->num++;
        for (int b = 0; b < c->num_buckets; b++)
            at->us[b] += (us[i * c->num_buckets + b] - at->us[b]) / at->num;
    }
}

/* Estimates ------------------------------------------------------------------------------------ */

static double excess(double use, double limit)
{
    return use > limit * (1 + 1e-9) ? use / fmax(limit, 1e-300) - 1 : 0;
}

static Guess guess(Search *q, const int *pick)
{
    const Choice *c = q->c;
    double noise = 0, turn = 0, bytes = c->fixed_bytes;
    memcpy(q->us, c->fixed_us, (size_t)c->num_buckets * sizeof *q->us);
    for (int i = 0; i < c->num_layers; i++) {
        int column = column_at(c, pick, i);
        const LayerCell *cell = &c->layer[i].cell[column];
        const Context *context = context_find(q->s, pick, i, false);
        noise += c->noise_scale[column] * cell->noise;
        turn += c->turn_scale[column] * cell->turn;
        bytes += (double)cell->bytes;
        for (int b = 0; b < c->num_buckets; b++)
            q->us[b] += context ? context->us[b] : cell->us[b];
    }
    Guess g = {.over = excess(noise, q->limit.noise) + excess(turn, q->limit.turn) +
                       excess(bytes, q->limit.bytes)};
    for (int b = 0; b < c->num_buckets; b++) {
        g.latency += c->weight[b] * q->us[b];
        g.over += excess(q->us[b], q->limit.us[b]);
    }
    g.cost = q->aim == AIM_LATENCY ? g.latency : q->aim == AIM_NOISE ? noise : bytes;
    return g;
}

static bool better(const Guess *a, const Guess *b)
{
    return a->over != b->over ? a->over < b->over : a->cost < b->cost;
}

/* Moves ---------------------------------------------------------------------------------------- */

/* Takes the choice at hand where it is better than the best around. What was run and did not hold
 * is not gone through. */
static void consider(Search *q, const int *pick, Guess *best, int *ret_best)
{
    size_t bytes = (size_t)q->c->num_groups * sizeof *pick;
    Guess g = guess(q, pick);
    bool is_better = better(&g, best), is_found = g.over <= 0 && g.cost < q->bar;
    if (!is_better && !is_found)
        return;
    int tried = tried_find(q->s, pick);
    if (is_found && tried < 0) {
        q->found = q->found ? q->found : ARENA_NEW_ARRAY(q->arena, int, (size_t)q->c->num_groups);
        memcpy(q->found, pick, bytes);
        q->bar = g.cost;
        q->found_us = g.latency;
    }
    if (is_better && (tried < 0 || q->s->tried.elem[tried].good)) {
        memcpy(ret_best, pick, bytes);
        *best = g;
    }
}

static int form_of(const Search *q, int group)
{
    int i = 0;
    while (q->c->layer[i].group != group)
        i++;
    return q->s->contexts->form[i];
}

/* One group, and all groups of its form. */
static void moves_single(Search *q, const int *pick, int *to, Guess *best, int *ret_best)
{
    const Choice *c = q->c;
    size_t bytes = (size_t)c->num_groups * sizeof *pick;
    for (int g = 0; g < c->num_groups; g++)
        for (int k = 0; k < c->num_candidates; k++) {
            if (!column_allowed(c, g, k))
                continue;
            memcpy(to, pick, bytes);
            to[g] = k;
            consider(q, to, best, ret_best);
            for (int h = 0; h < c->num_groups; h++)
                if (form_of(q, h) == form_of(q, g) && column_allowed(c, h, k))
                    to[h] = k;
            consider(q, to, best, ret_best);
        }
}

static void moves_pair(Search *q, const int *pick, int *to, Guess *best, int *ret_best)
{
    const Choice *c = q->c;
    memcpy(to, pick, (size_t)c->num_groups * sizeof *pick);
    for (int g = 0; g < c->num_groups; g++) {
        for (int k = 0; k < c->num_candidates; k++)
            for (int h = g + 1; h < c->num_groups; h++) {
                if (!column_allowed(c, g, k))
                    continue;
                to[g] = k;
                for (int j = 0; j < c->num_candidates; j++) {
                    if (!column_allowed(c, h, j))
                        continue;
                    to[h] = j;
                    consider(q, to, best, ret_best);
                }
                to[h] = pick[h];
            }
        to[g] = pick[g];
    }
}

static void descend(Search *q, const int *start)
{
    const Choice *c = q->c;
    size_t num = (size_t)c->num_groups, bytes = num * sizeof *start;
    int *at = ARENA_NEW_ARRAY(q->arena, int, num), *to = ARENA_NEW_ARRAY(q->arena, int, num);
    int *next = ARENA_NEW_ARRAY(q->arena, int, num);
    Guess best = {INFINITY, INFINITY, INFINITY};
    consider(q, start, &best, next);
    memcpy(next, start, bytes);
    best = guess(q, start);
    do {
        memcpy(at, next, bytes);
        moves_single(q, at, to, &best, next);
        if (!memcmp(at, next, bytes) && c->num_groups * c->num_candidates <= MOST_PAIRS)
            moves_pair(q, at, to, &best, next);
    } while (memcmp(at, next, bytes) != 0);
}

/* Trials --------------------------------------------------------------------------------------- */

/* The choice to run next, in the arena of the search; NULL: none promises enough. */
static const int *search_next(Search *q, double correction, int best)
{
    Settle *s = q->s;
    const Choice *c = q->c;
    Budget budget = budget_of(s->ch, correction);
    ChoicePoint solved;
    q->limit = budget_whole(s->ch, correction);
    q->bar = INFINITY;
    q->found = NULL;
    if (best >= 0)
        q->bar = (1 - GAIN) * point_cost(c, &s->tried.elem[best].point);
    if (choice_solve(s->ch, &budget, q->aim, &solved))
        descend(q, solved.pick);
    if (best >= 0)
        descend(q, s->tried.elem[best].point.pick);
    for (int k = 0; k < c->num_candidates; k++)
        if (c->uniform[k].pick && point_fits(s, &c->uniform[k]))
            descend(q, c->uniform[k].pick);
    return q->found;
}

bool search_run(Settle *s, int *best)
{
    const Choice *c = s->c;
    Search q = {.s = s, .c = c, .arena = arena_new(), .aim = aim_of(c->spec)};
    double correction = isfinite(s->held) ? s->held : fmax(1, 1.02 * s->missed);
    double start = clock_us();
    bool ok = true;
    q.us = ARENA_NEW_ARRAY(s->arena, double, (size_t)c->num_buckets + 1);
    if (!s->contexts)
        s->contexts = contexts_new(s->arena, c);
    for (int i = 0; i < MOST_TRIALS && ok && clock_us() - start < MOST_US; i++) {
        arena_reset(q.arena);
        const int *pick = search_next(&q, correction, *best);
        if (!pick)
            break;
        ChoicePoint point = {.pick = ARENA_NEW_ARRAY(c->arena, int, (size_t)c->num_groups)};
        memcpy(point.pick, pick, (size_t)c->num_groups * sizeof *pick);
        point_fill(c, &point);
        point.latency = q.found_us; /* by all that is known before it is run */
        int at = point_try(s, &point);
        ok = at >= 0;
        if (!ok)
            break;
        settle_note(s, at, best);
        if (!s->tried.elem[at].exact)
            correction = fmax(correction, ratio_of(&s->tried.elem[at]));
    }
    arena_destroy(q.arena);
    return ok;
}
