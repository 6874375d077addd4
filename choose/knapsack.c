/* The multiple-choice knapsack, solved exactly:
 *
 * 1. Prices. For prices l >= 0 of the limits, L(l) = sum over groups of min (cost + l use) - l
 * limit is a lower bound on every choice within the limits. The prices that make it largest are
 * found by bisection along each axis in turn. The choices met on the way that are within the
 * limits, improved by exchanging single items, give an upper bound.
 * 2. Items whose own bound (what the group pays more than its cheapest priced item, on top of L)
 *    is no less than the upper bound can be in no better choice, and are dropped.
 * 3. Dynamic programme over the groups, on lists of partial choices. One is dropped when another
 *    costs no more and uses no more of anything, when its bound is no less than the upper bound, or
 *    when the rest cannot stay within the limits. What is left at the end is the optimum.
 *
 * Equal groups, of which models are full, fall together in step 3. Lists that grow too long are cut
 * by bound; the best bound cut then says how far from the optimum the result can be. */
#include "choose/knapsack.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_STATES = 60000, MOST_STATES_MANY = 10000, PRICE_ROUNDS = 6, PRICE_STEPS = 60 };

typedef struct State {
    double cost, bound;
    double use[KNAP_LIMITS];
    int32_t parent; /* in the list before */
    int32_t item;
} State;

typedef struct Solver {
    const KnapProblem *p;
    Arena *arena;
    double scale[KNAP_LIMITS]; /* uses are divided by their limits */
    double price[KNAP_LIMITS];
    double *least;     /* [groups + 1] sum from group g on of the least priced items */
    double *least_use; /* [groups + 1][KNAP_LIMITS] */
    bool **alive;
    double bound, best; /* lower; upper, infinite while nothing was found */
    int *pick, *probe;
    double cut; /* the best bound that was cut off */
    int64_t states;
} Solver;

static const double slack = 1e-9; /* of a limit: sums round */

static double used(const Solver *s, const KnapItem *item, int limit)
{
    return item->use[limit] * s->scale[limit];
}

static double priced(const Solver *s, const KnapItem *item)
{
    double sum = item->cost;
    for (int k = 0; k < s->p->num_limits; k++)
        sum += s->price[k] * used(s, item, k);
    return sum;
}

/* Choices ------------------------------------------------------------------------------------- */

static double choice_sum(const Solver *s, const int *pick, double *use)
{
    double cost = 0;
    memset(use, 0, KNAP_LIMITS * sizeof *use);
    for (int g = 0; g < s->p->num_groups; g++) {
        const KnapItem *item = &s->p->group[g].item[pick[g]];
        cost += item->cost;
        for (int k = 0; k < s->p->num_limits; k++)
            use[k] += used(s, item, k);
    }
    return cost;
}

static bool within(const Solver *s, const double *use)
{
    for (int k = 0; k < s->p->num_limits; k++)
        if (!(use[k] <= 1 + slack))
            return false;
    return true;
}

/* How far uses lie beyond their limits, all together. */
static double excess(const Solver *s, const double *use)
{
    double sum = 0;
    for (int k = 0; k < s->p->num_limits; k++)
        sum += use[k] > 1 + slack ? use[k] - 1 : 0;
    return sum;
}

/* Exchanges single items: first until the choice is within the limits, then while that saves. */
static void choice_improve(const Solver *s, int *pick)
{
    double use[KNAP_LIMITS];
    double cost = choice_sum(s, pick, use), over = excess(s, use);
    for (int round = 0; round < 4 * s->p->num_groups + 4; round++) {
        double best_cost = cost, best_over = over;
        int group = -1, to = 0;
        for (int g = 0; g < s->p->num_groups; g++) {
            const KnapItem *item = s->p->group[g].item, *from = &item[pick[g]];
            for (int i = 0; i < s->p->group[g].num_items; i++) {
                double probe[KNAP_LIMITS];
                for (int k = 0; k < s->p->num_limits; k++)
                    probe[k] = use[k] - used(s, from, k) + used(s, &item[i], k);
                double c = cost - from->cost + item[i].cost, o = excess(s, probe);
                if (o < best_over - 1e-15 || (o <= best_over && c < best_cost * (1 - 1e-13))) {
                    best_over = o;
                    best_cost = c;
                    group = g;
                    to = i;
                }
            }
        }
        if (group < 0)
            return;
        pick[group] = to;
        cost = choice_sum(s, pick, use);
        over = excess(s, use);
    }
}

static void choice_offer(Solver *s, const int *pick)
{
    double use[KNAP_LIMITS];
    double cost = choice_sum(s, pick, use);
    if (!within(s, use) || cost >= s->best)
        return;
    s->best = cost;
    memcpy(s->pick, pick, (size_t)s->p->num_groups * sizeof *pick);
}

/* Prices -------------------------------------------------------------------------------------- */

/* L of the prices at hand; its choice in s->probe, what that uses in use. */
static double priced_choice(Solver *s, double *use)
{
    double sum = 0;
    for (int g = 0; g < s->p->num_groups; g++) {
        const KnapGroup *group = &s->p->group[g];
        double least = INFINITY;
        for (int i = 0; i < group->num_items; i++) {
            double x = priced(s, &group->item[i]);
            if (x < least) {
                least = x;
                s->probe[g] = i;
            }
        }
        sum += least;
    }
    for (int k = 0; k < s->p->num_limits; k++)
        sum -= s->price[k];
    choice_sum(s, s->probe, use);
    return sum;
}

static void price_note(Solver *s, double *best_price, double *use)
{
    double bound = priced_choice(s, use);
    choice_offer(s, s->probe);
    if (bound > s->bound) {
        s->bound = bound;
        memcpy(best_price, s->price, sizeof s->price);
    }
}

/* Along one axis L rises while the choice uses more than the limit. */
static void price_axis(Solver *s, int k, double *best_price)
{
    double use[KNAP_LIMITS], lo = 0, hi = s->price[k] > 0 ? s->price[k] : 1e-6;
    s->price[k] = 0;
    price_note(s, best_price, use);
    if (use[k] <= 1 + slack)
        return;
    for (int i = 0; i < 80; i++, hi *= 4) {
        s->price[k] = hi;
        price_note(s, best_price, use);
        if (use[k] <= 1 + slack)
            break;
        lo = hi;
    }
    for (int i = 0; i < PRICE_STEPS; i++) {
        s->price[k] = (lo + hi) / 2;
        price_note(s, best_price, use);
        *(use[k] <= 1 + slack ? &hi : &lo) = s->price[k];
    }
    s->price[k] = hi;
}

static void prices_find(Solver *s)
{
    double best_price[KNAP_LIMITS] = {0}, use[KNAP_LIMITS];
    int rounds = s->p->num_limits > 1 ? PRICE_ROUNDS : 1;
    s->bound = -INFINITY;
    price_note(s, best_price, use);
    for (int round = 0; round < rounds; round++)
        for (int k = 0; k < s->p->num_limits; k++)
            price_axis(s, k, best_price);
    memcpy(s->price, best_price, sizeof s->price);
    priced_choice(s, use);
    choice_improve(s, s->probe);
    choice_offer(s, s->probe);
    if (isfinite(s->best)) {
        memcpy(s->probe, s->pick, (size_t)s->p->num_groups * sizeof *s->probe);
        choice_improve(s, s->probe);
        choice_offer(s, s->probe);
    }
}

/* Dropping items ------------------------------------------------------------------------------ */

static bool dominates(const Solver *s, const KnapItem *a, const KnapItem *b)
{
    bool ok = a->cost <= b->cost;
    for (int k = 0; k < s->p->num_limits && ok; k++)
        ok = a->use[k] <= b->use[k];
    return ok;
}

static void group_prune(Solver *s, int g)
{
    const KnapGroup *group = &s->p->group[g];
    bool *alive = s->alive[g];
    double least = INFINITY;
    for (int i = 0; i < group->num_items; i++)
        least = fmin(least, priced(s, &group->item[i]));
    for (int i = 0; i < group->num_items; i++) {
        alive[i] = s->bound + (priced(s, &group->item[i]) - least) < s->best;
        for (int j = 0; j < i && alive[i]; j++)
            if (alive[j] && dominates(s, &group->item[j], &group->item[i]))
                alive[i] = false;
        for (int j = 0; j < i && alive[i]; j++)
            if (alive[j] && dominates(s, &group->item[i], &group->item[j]))
                alive[j] = false;
    }
    s->least[g] = least;
    double *use = s->least_use + (int64_t)g * KNAP_LIMITS;
    for (int k = 0; k < s->p->num_limits; k++) {
        use[k] = INFINITY;
        for (int i = 0; i < group->num_items; i++)
            use[k] = fmin(use[k], used(s, &group->item[i], k));
    }
}

static void groups_prune(Solver *s)
{
    int num = s->p->num_groups;
    for (int g = 0; g < num; g++)
        group_prune(s, g);
    for (int g = num - 1; g >= 0; g--) { /* sums from here to the end */
        s->least[g] += s->least[g + 1];
        for (int k = 0; k < s->p->num_limits; k++)
            s->least_use[(int64_t)g * KNAP_LIMITS + k] +=
                s->least_use[(int64_t)(g + 1) * KNAP_LIMITS + k];
    }
}

/* The dynamic programme ----------------------------------------------------------------------- */

typedef struct StateList {
    State *elem;
    int num;
} StateList;

static int compare_doubles(double a, double b)
{
    return a < b ? -1 : a > b;
}

static int by_cost(const void *a, const void *b)
{
    const State *x = a, *y = b;
    int order = compare_doubles(x->cost, y->cost);
    for (int k = 0; k < KNAP_LIMITS && !order; k++)
        order = compare_doubles(x->use[k], y->use[k]);
    if (!order)
        order = x->parent < y->parent ? -1 : x->parent > y->parent;
    return order ? order : x->item < y->item ? -1 : x->item > y->item;
}

static int by_bound(const void *a, const void *b)
{
    const State *x = a, *y = b;
    int order = compare_doubles(x->bound, y->bound);
    return order ? order : by_cost(a, b);
}

static bool state_dominates(const State *a, const State *b, int limits)
{
    for (int k = 0; k < limits; k++)
        if (a->use[k] > b->use[k] + 1e-13)
            return false;
    return true;
}

/* Sorted by cost: a state is dominated only by one before it. With one limit the last that was
 * kept uses least; with more, the nearest ones are asked, which finds nearly all. */
static void list_prune(StateList *list, int limits)
{
    int kept = 0, look = limits <= 1 ? 1 : 32;
    qsort(list->elem, (size_t)list->num, sizeof *list->elem, by_cost);
    for (int i = 0; i < list->num; i++) {
        bool drop = false;
        for (int j = kept - 1; j >= 0 && j >= kept - look && !drop; j--)
            drop = state_dominates(&list->elem[j], &list->elem[i], limits);
        if (!drop)
            list->elem[kept++] = list->elem[i];
    }
    list->num = kept;
}

/* Dominated states fall out completely with one limit only, so lists of more are cut sooner. */
static void list_cut(Solver *s, StateList *list)
{
    int most = s->p->num_limits > 1 ? MOST_STATES_MANY : MOST_STATES;
    if (list->num <= most)
        return;
    qsort(list->elem, (size_t)list->num, sizeof *list->elem, by_bound);
    s->cut = fmin(s->cut, list->elem[most].bound);
    list->num = most;
}

/* One more group. False: the state can lead to nothing better. */
static bool state_extend(const Solver *s, const State *from, int g, int i, State *ret)
{
    const KnapItem *item = &s->p->group[g].item[i];
    const double *rest = s->least_use + (int64_t)(g + 1) * KNAP_LIMITS;
    *ret = *from;
    ret->cost += item->cost;
    ret->item = i;
    ret->bound = ret->cost + s->least[g + 1];
    for (int k = 0; k < s->p->num_limits; k++) {
        ret->use[k] += used(s, item, k);
        if (ret->use[k] + rest[k] > 1 + slack)
            return false;
        ret->bound += s->price[k] * (ret->use[k] - 1);
    }
    return ret->bound < s->best * (1 - 1e-13);
}

static StateList list_extend(Solver *s, const StateList *from, int g)
{
    const KnapGroup *group = &s->p->group[g];
    size_t most = (size_t)from->num * (size_t)group->num_items + 1;
    StateList ret = {.elem = ARENA_NEW_ARRAY(s->arena, State, most)};
    for (int at = 0; at < from->num; at++)
        for (int i = 0; i < group->num_items; i++) {
            State next;
            if (!s->alive[g][i] || !state_extend(s, &from->elem[at], g, i, &next))
                continue;
            next.parent = at;
            ret.elem[ret.num++] = next;
        }
    s->states += ret.num;
    list_prune(&ret, s->p->num_limits);
    list_cut(s, &ret);
    return ret;
}

/* Which item and which state before: all that is kept of a list. */
typedef struct Trail {
    int32_t *parent;
    uint8_t *item;
} Trail;

static Trail list_trail(Arena *arena, const StateList *list)
{
    Trail t = {ARENA_NEW_ARRAY(arena, int32_t, (size_t)list->num + 1),
               ARENA_NEW_ARRAY(arena, uint8_t, (size_t)list->num + 1)};
    for (int i = 0; i < list->num; i++) {
        t.parent[i] = list->elem[i].parent;
        t.item[i] = (uint8_t)list->elem[i].item;
    }
    return t;
}

static void programme_run(Solver *s)
{
    int num = s->p->num_groups;
    Trail *trail = ARENA_NEW_ARRAY(s->arena, Trail, (size_t)num + 1);
    Arena *two[2] = {arena_new(), arena_new()}, *keep = s->arena;
    State start = {0};
    StateList list = {&start, 1};
    for (int g = 0; g < num; g++) {
        s->arena = two[g % 2];
        arena_reset(s->arena);
        list = list_extend(s, &list, g);
        trail[g] = list_trail(keep, &list);
    }
    s->arena = keep;
    if (list.num) { /* the cheapest comes first, unless the list was cut */
        int best = 0;
        for (int i = 1; i < list.num; i++)
            best = list.elem[i].cost < list.elem[best].cost ? i : best;
        for (int g = num - 1, at = best; g >= 0; at = trail[g].parent[at], g--)
            s->probe[g] = trail[g].item[at];
        choice_offer(s, s->probe);
    }
    arena_destroy(two[0]);
    arena_destroy(two[1]);
}

/* All of it ------------------------------------------------------------------------------------ */

static void solver_init(Solver *s, const KnapProblem *p, Arena *arena, int *pick)
{
    size_t num = (size_t)p->num_groups + 1;
    *s = (Solver){.p = p, .arena = arena, .best = INFINITY, .cut = INFINITY, .pick = pick};
    s->probe = ARENA_NEW_ARRAY(arena, int, num);
    s->least = ARENA_NEW_ARRAY(arena, double, num);
    s->least_use = ARENA_NEW_ARRAY(arena, double, num *KNAP_LIMITS);
    s->alive = ARENA_NEW_ARRAY(arena, bool *, num);
    for (int g = 0; g < p->num_groups; g++)
        s->alive[g] = ARENA_NEW_ARRAY(arena, bool, KNAP_ITEMS);
    for (int k = 0; k < p->num_limits; k++)
        s->scale[k] = p->limit[k] > 0 ? 1 / p->limit[k] : 1e30; /* 1/infinity is 0 */
}

KnapResult knap_solve(const KnapProblem *p, Arena *scratch, int *pick)
{
    Solver s;
    KnapResult r = {.status = KNAP_INFEASIBLE, .cost = INFINITY, .bound = INFINITY};
    solver_init(&s, p, scratch, pick);
    prices_find(&s);
    groups_prune(&s);
    for (int k = 0; k < p->num_limits; k++)
        if (s.least_use[k] > 1 + slack)
            return r;
    programme_run(&s);
    r.states = s.states;
    bool whole = !(s.cut < s.best);
    if (!isfinite(s.best)) {
        r.status = whole ? KNAP_INFEASIBLE : KNAP_UNKNOWN;
        return r;
    }
    r.status = whole ? KNAP_OPTIMAL : KNAP_UNPROVEN;
    r.cost = choice_sum(&s, pick, r.use);
    r.bound = whole ? r.cost : fmin(s.cut, r.cost);
    for (int k = 0; k < p->num_limits; k++)
        r.use[k] = s.scale[k] > 0 ? r.use[k] / s.scale[k] : 0;
    return r;
}
