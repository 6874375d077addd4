/* Steps of routing in a plan, and rows that an index names: what each reads and writes agrees, and
 * one rule broken at a time is refused. */
#include "verdict.h"

#include <cmocka.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    X,
    LOGITS,
    Y,
    INDEX,
    WEIGHTS,
    PLACES,
    ENDS,
    SOURCES,
    SENT,
    PLACE0,
    PLACE1,
    WEIGHT0,
    WEIGHT1,
    NUM_TENSORS
};

/* Launches after those of each step, and their operands. */
enum { DISPATCH = ROUTE_CLEAR, COMBINE, NUM_LAUNCHES };
enum { SENT_TO, SENT_BY, SENT_OF };
enum { SUM_TO, SUM_BY, SUM_OF, SUM_WEIGHT, SUM_BY1 };

#define MOST_OPERANDS 8
#define MOST_STEPS    8

typedef struct Routed { /* model_routed, whose parts may be changed */
    TestModel m;
    PlanTensor tensor[NUM_TENSORS + 1];
    PlanLaunch launch[NUM_LAUNCHES + 1];
    PlanOperand operand[NUM_LAUNCHES + 1][MOST_OPERANDS];
    TileStep send[MOST_STEPS], sum[MOST_STEPS];
} Routed;

static void routed_begin(Routed *r)
{
    model_routed(&r->m);
    Plan *p = &r->m.plan;
    memcpy(r->tensor, p->tensor, (size_t)p->num_tensors * sizeof *r->tensor);
    memcpy(r->launch, p->launch, (size_t)p->num_launches * sizeof *r->launch);
    for (int i = 0; i < NUM_LAUNCHES; i++) {
        for (int k = 0; k < MOST_OPERANDS; k++)
            r->operand[i][k] = r->launch[i].operand[0];
        memcpy(r->operand[i], r->launch[i].operand,
               (size_t)r->launch[i].num_operands * sizeof *r->operand[i]);
        r->launch[i].operand = r->operand[i];
    }
    PlanProgram *send = &r->launch[DISPATCH].program, *sum = &r->launch[COMBINE].program;
    memcpy(r->send, send->step, (size_t)send->num_steps * sizeof *r->send);
    memcpy(r->sum, sum->step, (size_t)sum->num_steps * sizeof *r->sum);
    send->step = r->send;
    sum->step = r->sum;
    p->tensor = r->tensor;
    p->launch = r->launch;
}

#define CHECK(why, ...)          \
    do {                         \
        Routed r;                \
        routed_begin(&r);        \
        __VA_ARGS__;             \
        plan_verdict(&r.m, why); \
    } while (0)

static void steps_have_their_operands(void **state)
{
    (void)state;
    CHECK(NULL, (void)0);
    for (int i = 0; i < ROUTE_CLEAR; i++) {
        CHECK("operands, not", r.launch[i].num_operands--);
        CHECK("operands, not", r.launch[i].num_operands = ROUTE_MAX_OPERANDS + 1);
        CHECK("groups", r.launch[i].groups = -1);
        CHECK("groups", r.launch[i].groups = r.launch[i].groups ? 0 : 4);
        CHECK("out of range", r.operand[i][0].tensor = NUM_TENSORS);
        CHECK("is no operand", r.operand[i][0].row_div.add = 2);
        CHECK("is no operand", r.operand[i][1].row_mod.add = 1);
        CHECK("is no operand", r.operand[i][1].col_step = 0);
        CHECK("have no index", r.operand[i][0].index = 2);
    }
    CHECK("topk has 1 groups", r.launch[ROUTE_TOPK].groups = 1);
    CHECK("choose has 4 groups", r.launch[ROUTE_CHOOSE].groups = 4);
    CHECK("places has 0 groups", r.launch[ROUTE_PLACES].groups = 0);
    CHECK("groups", r.launch[ROUTE_SORT].groups = INT64_C(1) << 31);
}

/* The last operands, as many as there are results, are written. */
static void steps_write_what_is_ours(void **state)
{
    (void)state;
    for (int i = 0; i < ROUTE_CLEAR; i++)
        for (int k = plan_route_operands((RouteStep)i) - plan_route_results((RouteStep)i);
             k < plan_route_operands((RouteStep)i); k++)
            CHECK("writes to an input", r.operand[i][k].tensor = X);
}

static void steps_take_formats(void **state)
{
    (void)state;
    CHECK("\"index\" is no operand 1 of topk", r.tensor[INDEX].fmt = FMT_F32);
    CHECK("\"weights\" is no operand 2 of take", r.operand[ROUTE_TAKE][2].tensor = WEIGHTS;
          r.tensor[WEIGHTS].fmt = FMT_BF16;
          r.tensor[WEIGHT0].fmt = r.tensor[WEIGHT1].fmt = FMT_BF16);
    CHECK("\"ends\" is no operand 1 of ends", r.tensor[ENDS].fmt = FMT_F32);
    CHECK("\"sent\" is no operand 1 of places", r.operand[ROUTE_PLACES][1].tensor = SENT);
    CHECK("\"sent\" is no operand 1 of sources", r.operand[ROUTE_SOURCES][1].tensor = SENT);
    CHECK("\"weights\" is no operand 1 of choose", r.operand[ROUTE_CHOOSE][1].tensor = WEIGHTS);
    CHECK("\"index\" is no operand 2 of choose", r.operand[ROUTE_CHOOSE][2].tensor = INDEX);
    CHECK("\"weights\" is no operand 1 of weigh", r.operand[ROUTE_WEIGH][1].tensor = WEIGHTS);
    CHECK("\"index\" is no operand 2 of weigh", r.operand[ROUTE_WEIGH][2].tensor = INDEX);
    CHECK("\"x\" is no operand 0 of sort", r.operand[ROUTE_SORT][0].tensor = X);
    CHECK("\"weights\" is no operand 1 of sort", r.operand[ROUTE_SORT][1].tensor = WEIGHTS);
    CHECK("\"weights\" is no operand 2 of sort", r.operand[ROUTE_SORT][2].tensor = WEIGHTS);
    CHECK("\"sent\" is no operand 3 of sort", r.operand[ROUTE_SORT][3].tensor = SENT);
    CHECK("is no operand 0 of topk", r.operand[ROUTE_TOPK][0].tensor = INDEX);
    CHECK("is no operand 0 of choose", r.operand[ROUTE_CHOOSE][0].tensor = INDEX);
    CHECK("is no operand 1 of take", r.operand[ROUTE_TAKE][1].tensor = LOGITS);
    CHECK(NULL, r.tensor[X].fmt = FMT_F16);
    CHECK(NULL, r.tensor[LOGITS].fmt = FMT_BF16);
}

static void sizes_agree(void **state)
{
    (void)state;
    CHECK("topk of [1, 1] cannot give [1, 2]", r.tensor[LOGITS].dim[1].add = 1);
    CHECK("take of", r.operand[ROUTE_TAKE][2].tensor = SENT);
    CHECK("take of", r.operand[ROUTE_TAKE][1].tensor = PLACE0);
    CHECK("ends of", r.tensor[ENDS].dim[0].add = 5);
    CHECK("ends of", r.launch[ROUTE_ENDS].groups = 3);
    CHECK(NULL, r.launch[ROUTE_PLACES].groups = r.launch[ROUTE_SOURCES].groups = 3);
    CHECK("places of", r.operand[ROUTE_PLACES][1].tensor = SOURCES);
    CHECK("places of [1, 2] cannot give [1, 1]", r.operand[ROUTE_PLACES][1].tensor = PLACE0);
    CHECK("sources of [1, 2] cannot give [1, 2]", r.operand[ROUTE_SOURCES][1].tensor = PLACES);
    CHECK("sources of [1, 2] cannot give [1, 1]", r.operand[ROUTE_SOURCES][1].tensor = PLACE0);
    CHECK("choose of", r.operand[ROUTE_CHOOSE][1].tensor = SOURCES);
    CHECK("choose of", r.operand[ROUTE_CHOOSE][2].tensor = WEIGHT0);
    CHECK("choose of", r.operand[ROUTE_CHOOSE][2].tensor = SENT);
    CHECK("weigh of", r.operand[ROUTE_WEIGH][1].tensor = SOURCES);
    CHECK("weigh of", r.operand[ROUTE_WEIGH][2].tensor = WEIGHT0);
    CHECK("sort of", r.launch[ROUTE_SORT].groups = 3);
    CHECK("sort of", r.operand[ROUTE_SORT][1].tensor = SOURCES);
    CHECK("sort of", r.operand[ROUTE_SORT][2].tensor = PLACE0);
    CHECK("sort of", r.operand[ROUTE_SORT][3].tensor = PLACE0);
    CHECK("sort of", r.operand[ROUTE_SORT][3].tensor = PLACES);
}

/* Who says which rows are read. */
static void rows_have_an_index(void **state)
{
    const char *why = "\"dispatch\": the rows of operand 2 have no index";
    PlanOperand *o;
    (void)state;
    CHECK(why, r.operand[DISPATCH][SENT_OF].index = -1);
    CHECK(why, r.operand[DISPATCH][SENT_OF].index = 4);
    CHECK(why, r.operand[DISPATCH][SENT_OF].index = INT32_MAX);
    CHECK(why, r.operand[DISPATCH][SENT_OF].by_group = true);
    CHECK(why, r.operand[DISPATCH][SENT_OF].index = 3); /* itself */
    CHECK(why, r.operand[DISPATCH][SENT_BY].by_group = true);
    CHECK("\"dispatch\": the rows of operand 1 have no index", o = r.operand[DISPATCH];
          o[SENT_BY].index = 3);
    CHECK(why, r.operand[DISPATCH][SENT_OF].index = 1); /* floats */
    CHECK(why, r.launch[DISPATCH].num_operands = 4; o = r.operand[DISPATCH]; o[SENT_OF].index = 4;
          o[3].tensor = -1);
    CHECK(why, r.launch[DISPATCH].num_operands = 4; o = r.operand[DISPATCH]; o[SENT_OF].index = 4;
          o[3].tensor = NUM_TENSORS);
}

/* One row of the tensor for each of the launch, and columns that it has. */
static void rows_are_where_they_say(void **state)
{
    PlanOperand *o;
    (void)state;
    CHECK("\"places\" does not say which rows of \"x\" are read",
          r.operand[DISPATCH][SENT_BY].tensor = PLACES);
    CHECK("\"place0\" does not say which rows of \"x\" are read",
          r.operand[DISPATCH][SENT_BY].tensor = PLACE0);
    CHECK("\"sources\" does not say which rows of \"x\" are read",
          r.operand[DISPATCH][SENT_BY].row_div.add = 2);
    CHECK("\"sources\" does not say which rows of \"x\" are read",
          r.operand[DISPATCH][SENT_BY].row_mod.add = 1);
    CHECK("\"sources\" does not say which rows of \"logits\" are read",
          r.operand[DISPATCH][SENT_OF].tensor = LOGITS);
    CHECK(NULL, o = r.operand[DISPATCH]; o[SENT_OF].tensor = LOGITS; o[SENT_OF].col_step = 0);
    CHECK("does not say which rows of \"x\" are read",
          r.tensor[X].dim[0] = (PlanDim){0, 0, {-1, -1}});
    CHECK("\"sources\" does not say which rows of \"sent\" are read",
          r.operand[COMBINE][SUM_BY].tensor = SOURCES);
    CHECK(NULL, o = r.operand[COMBINE]; o[SUM_BY].tensor = PLACE1; o[SUM_BY1].tensor = PLACE0);
}

/* Only loads meet such rows. */
static void rows_are_only_loaded(void **state)
{
    (void)state;
    CHECK("it meets rows that an index names", r.operand[DISPATCH][SENT_TO].index = 2);
    CHECK("it meets rows that an index names", r.operand[COMBINE][SUM_TO].index = 2);
}

/* A last launch sums up once more. */
static void sum_again(Routed *r)
{
    PlanLaunch *l = &r->launch[NUM_LAUNCHES];
    *l = r->launch[COMBINE];
    l->layer = "again";
    l->operand = r->operand[NUM_LAUNCHES];
    memcpy(r->operand[NUM_LAUNCHES], r->operand[COMBINE], sizeof r->operand[COMBINE]);
    r->m.plan.num_launches++;
}

static void steps_must_not_clobber(void **state)
{
    (void)state;
    CHECK("is not written yet", r.launch[ROUTE_TOPK] = r.launch[ROUTE_ENDS]);
    CHECK("output \"y\" is never written", r.m.plan.num_launches--);
    CHECK("\"weights\" and \"index\" share bytes",
          r.tensor[WEIGHTS].arena_offset = r.tensor[INDEX].arena_offset);
    CHECK("is overwritten by weights",
          r.tensor[WEIGHTS].arena_offset = r.tensor[PLACES].arena_offset);
    CHECK("\"sort\": \"sources\" and \"ends\" share bytes",
          r.tensor[ENDS].arena_offset = r.tensor[SOURCES].arena_offset);
    /* an index is read, and rows by it are any */
    CHECK("\"dispatch\" reads \"sources\", which is not written yet",
          r.launch[ROUTE_SORT] = r.launch[ROUTE_SOURCES] = r.launch[ROUTE_PLACES]);
    CHECK("\"dispatch\": \"sent\" and \"sources\" share bytes",
          r.tensor[SENT].arena_offset = r.tensor[SOURCES].arena_offset);
    CHECK("\"again\": \"y\" and \"y\" share bytes", sum_again(&r);
          r.operand[NUM_LAUNCHES][SUM_OF].tensor = Y);
    CHECK(NULL, sum_again(&r));
}

static void plans_print(void **state)
{
    (void)state;
    Routed r;
    Sb sb;
    Arena *arena = arena_create();
    routed_begin(&r);
    sb_init(&sb, arena);
    plan_print(&sb, &r.m.plan);
    assert_non_null(strstr(sb.text, "  topk t1 to t3\n"));
    assert_non_null(strstr(sb.text, "  places of 4 groups t3 to t5\n"));
    assert_non_null(strstr(sb.text, "  choose t1 to t3, t4\n"));
    assert_non_null(strstr(sb.text, "  sort of 4 groups t3 to t6, t5, t7\n"));
    assert_non_null(strstr(sb.text, "  weigh t1 to t3, t4\n"));
    assert_non_null(strstr(sb.text, "  o2 = t0 row by o1\n"));
    arena_destroy(arena);
    model_free(&r.m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_have_their_operands),
        cmocka_unit_test(steps_write_what_is_ours),
        cmocka_unit_test(steps_take_formats),
        cmocka_unit_test(sizes_agree),
        cmocka_unit_test(rows_have_an_index),
        cmocka_unit_test(rows_are_where_they_say),
        cmocka_unit_test(rows_are_only_loaded),
        cmocka_unit_test(steps_must_not_clobber),
        cmocka_unit_test(plans_print),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
