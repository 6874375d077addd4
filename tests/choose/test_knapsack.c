/* knapsack: against all choices, one by one, on small random problems; and large ones in time. */
#include "choose/knapsack.h"

#include <cmocka.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

enum { MOST_GROUPS = 400, MOST_ITEMS = 10 };

typedef struct Case {
    KnapItem item[MOST_GROUPS][MOST_ITEMS];
    KnapGroup group[MOST_GROUPS];
    KnapProblem problem;
} Case;

static uint64_t seed;

static double uniform(void) /* 0 .. 1 */
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(seed >> 40) / (double)(UINT64_C(1) << 24);
}

/* kind 0: anything; 1: the cheaper the more is used, as formats do; 2: few different numbers, so
 * that sums tie; 3: groups repeat */
static void case_fill(Case *c, int groups, int items, int limits, int kind, double tight)
{
    c->problem = (KnapProblem){.num_groups = groups, .num_limits = limits, .group = c->group};
    double least[KNAP_LIMITS] = {0}, most[KNAP_LIMITS] = {0};
    for (int g = 0; g < groups; g++) {
        c->group[g] = (KnapGroup){items, c->item[g]};
        double low[KNAP_LIMITS], high[KNAP_LIMITS] = {0};
        for (int k = 0; k < limits; k++)
            low[k] = INFINITY;
        for (int i = 0; i < items; i++) {
            KnapItem *it = &c->item[g][i];
            double level = uniform();
            it->cost = kind == 2 ? floor(level * 4) : 1 + 9 * level;
            for (int k = 0; k < limits; k++) {
                double u = uniform();
                it->use[k] = kind == 2 ? floor(u * 4) : kind == 1 ? exp(-4 * level) * (0.5 + u) : u;
            }
            if (kind == 3 && g >= 3)
                *it = c->item[g % 3][i];
            for (int k = 0; k < limits; k++) {
                low[k] = fmin(low[k], it->use[k]);
                high[k] = fmax(high[k], it->use[k]);
            }
        }
        for (int k = 0; k < limits; k++) {
            least[k] += low[k];
            most[k] += high[k];
        }
    }
    for (int k = 0; k < limits; k++)
        c->problem.limit[k] = least[k] + tight * (most[k] - least[k]);
}

static double brute(const KnapProblem *p)
{
    int pick[MOST_GROUPS] = {0};
    double best = INFINITY;
    for (;;) {
        double cost = 0, use[KNAP_LIMITS] = {0};
        bool ok = true;
        for (int g = 0; g < p->num_groups; g++) {
            cost += p->group[g].item[pick[g]].cost;
            for (int k = 0; k < p->num_limits; k++)
                use[k] += p->group[g].item[pick[g]].use[k];
        }
        for (int k = 0; k < p->num_limits; k++)
            ok = ok && use[k] <= p->limit[k] * (1 + 1e-9);
        if (ok && cost < best)
            best = cost;
        int g = 0;
        while (g < p->num_groups && ++pick[g] == p->group[g].num_items)
            pick[g++] = 0;
        if (g == p->num_groups)
            return best;
    }
}

static void check_pick(const KnapProblem *p, const int *pick, const KnapResult *r)
{
    double cost = 0;
    for (int g = 0; g < p->num_groups; g++)
        cost += p->group[g].item[pick[g]].cost;
    assert_true(fabs(cost - r->cost) <= 1e-9 * (1 + cost));
    for (int k = 0; k < p->num_limits; k++) {
        double use = 0;
        for (int g = 0; g < p->num_groups; g++)
            use += p->group[g].item[pick[g]].use[k];
        assert_true(use <= p->limit[k] * (1 + 1e-8) + 1e-300);
        assert_true(fabs(use - r->use[k]) <= 1e-9 * (1 + use));
    }
}

static void test_brute(void **state)
{
    static Case c;
    int feasible = 0, not = 0;
    (void)state;
    for (int trial = 0; trial < 3000; trial++) {
        Arena *arena = arena_create();
        int pick[MOST_GROUPS];
        seed = (uint64_t)trial;
        int groups = 1 + (int)(uniform() * 5), items = 1 + (int)(uniform() * 5);
        case_fill(&c, groups, items, (int)(uniform() * 4), trial % 4, uniform() * 0.8);
        KnapResult r = knap_solve(&c.problem, arena, pick);
        double want = brute(&c.problem);
        if (isinf(want)) {
            assert_int_equal(r.status, KNAP_INFEASIBLE);
            not ++;
        } else {
            assert_int_equal(r.status, KNAP_OPTIMAL);
            if (fabs(r.cost - want) > 1e-9 * (1 + want))
                fail_msg("trial %d: %.17g, the best is %.17g", trial, r.cost, want);
            check_pick(&c.problem, pick, &r);
            feasible++;
        }
        arena_destroy(arena);
    }
    assert_true(feasible > 1000 && not > 20); /* the cases are of both kinds */
}

/* Hundreds of groups with ten candidates: proven, and in seconds. */
static void test_large(void **state)
{
    static Case c;
    int pick[MOST_GROUPS];
    (void)state;
    for (int kind = 0; kind < 4; kind++)
        for (int limits = 1; limits <= 2; limits++) {
            Arena *arena = arena_create();
            seed = 99;
            case_fill(&c, limits == 1 ? 300 : 60, 10, limits, kind, limits == 1 ? 0.2 : 0.3);
            KnapResult r = knap_solve(&c.problem, arena, pick);
            assert_true(r.status == KNAP_OPTIMAL || (limits > 1 && r.status == KNAP_UNPROVEN));
            assert_true(r.bound >= r.cost * (1 - 1e-3));
            check_pick(&c.problem, pick, &r);
            arena_destroy(arena);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_brute), cmocka_unit_test(test_large)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
