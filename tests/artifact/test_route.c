/* Steps of routing in a plan: what each reads and writes agrees, and one rule broken at a time is
 * refused. */
#include "models.h"

#include <cmocka.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { X, LOGITS, Y, INDEX, WEIGHTS, PLACES, ENDS, SENT, NUM_TENSORS };

typedef struct Routed { /* model_routed, whose parts may be changed */
    TestModel m;
    PlanTensor tensor[NUM_TENSORS + 1];
    PlanLaunch launch[NUM_ROUTE_STEPS];
    PlanOperand operand[NUM_ROUTE_STEPS][ROUTE_MAX_OPERANDS + 1];
} Routed;

static void routed_begin(Routed *r)
{
    model_routed(&r->m);
    Plan *p = &r->m.plan;
    memcpy(r->tensor, p->tensor, (size_t)p->num_tensors * sizeof *r->tensor);
    memcpy(r->launch, p->launch, sizeof r->launch);
    for (int i = 0; i < NUM_ROUTE_STEPS; i++) {
        for (int k = 0; k <= ROUTE_MAX_OPERANDS; k++)
            r->operand[i][k] = r->launch[i].operand[0];
        memcpy(r->operand[i], r->launch[i].operand,
               (size_t)r->launch[i].num_operands * sizeof *r->operand[i]);
        r->launch[i].operand = r->operand[i];
    }
    p->tensor = r->tensor;
    p->launch = r->launch;
}

static void check(Routed *r, const char *why)
{
    Bytes b;
    IoError err = {0};
    assert_true(plan_encode(&r->m.plan, &b));
    Plan *plan = plan_decode(b.data, b.size, r->m.weights_bytes, &err);
    bytes_free(&b);
    if (!why && !plan)
        fail_msg("%s", err.text);
    if (why && (plan || err.id != E_PLAN || !strstr(err.text, why)))
        fail_msg("got \"%s\", want \"%s\"", err.text, why);
    plan_free(plan);
    model_free(&r->m);
}

#define CHECK(why, ...)   \
    do {                  \
        Routed r;         \
        routed_begin(&r); \
        __VA_ARGS__;      \
        check(&r, why);   \
    } while (0)

static void steps_have_their_operands(void **state)
{
    (void)state;
    CHECK(NULL, (void)0);
    for (int i = 0; i < NUM_ROUTE_STEPS; i++) {
        CHECK("operands, not", r.launch[i].num_operands--);
        CHECK("operands, not", r.launch[i].num_operands = ROUTE_MAX_OPERANDS + 1);
        CHECK("groups", r.launch[i].groups = -1);
        CHECK("out of range", r.operand[i][0].tensor = NUM_TENSORS);
        CHECK("is no operand", r.operand[i][0].row_div.add = 2);
        CHECK("is no operand", r.operand[i][1].row_mod.add = 1);
        CHECK("is no operand", r.operand[i][1].col_step = 0);
    }
    CHECK("topk has 1 groups", r.launch[ROUTE_TOPK].groups = 1);
    CHECK("combine has 4 groups", r.launch[ROUTE_COMBINE].groups = 4);
    CHECK("places has 0 groups", r.launch[ROUTE_PLACES].groups = 0);
    CHECK("groups", r.launch[ROUTE_PLACES].groups = INT64_C(1) << 31);
}

static void steps_take_formats(void **state)
{
    (void)state;
    CHECK("\"index\" is no operand 1 of topk", r.tensor[INDEX].fmt = FMT_F32);
    CHECK("\"weights\" is no operand 2 of take", r.tensor[WEIGHTS].fmt = FMT_BF16);
    CHECK("\"ends\" is no operand 1 of ends", r.tensor[ENDS].fmt = FMT_F32);
    CHECK("\"places\" is no operand 1 of places", r.tensor[PLACES].fmt = FMT_F32);
    CHECK("\"sent\" is no operand 2 of dispatch", r.tensor[SENT].fmt = FMT_F16);
    CHECK("\"y\" is no operand 3 of combine", r.tensor[Y].fmt = FMT_I32);
    CHECK("is no operand 0 of topk", r.operand[ROUTE_TOPK][0].tensor = INDEX);
    CHECK("is no operand 0 of dispatch", r.operand[ROUTE_DISPATCH][0].tensor = INDEX);
    CHECK("is no operand 2 of combine", r.operand[ROUTE_COMBINE][2].tensor = PLACES);
    CHECK("writes to an input", r.operand[ROUTE_TAKE][2].tensor = X);
    CHECK(NULL, r.tensor[X].fmt = r.tensor[SENT].fmt = FMT_F16);
    CHECK(NULL, r.tensor[LOGITS].fmt = FMT_BF16);
}

static void sizes_agree(void **state)
{
    (void)state;
    CHECK("topk of [1, 1] cannot give [1, 2]", r.tensor[LOGITS].dim[1].add = 1);
    CHECK("take of", r.tensor[WEIGHTS].dim[1].add = 3);
    CHECK("ends of", r.tensor[ENDS].dim[0].add = 5);
    CHECK("ends of", r.launch[ROUTE_ENDS].groups = 3);
    CHECK(NULL, r.launch[ROUTE_PLACES].groups = 3);
    CHECK("places of", r.tensor[PLACES].dim[1].add = 1);
    CHECK("dispatch of", r.tensor[SENT].dim[0].mul = 1);
    CHECK("dispatch of", r.tensor[SENT].dim[1].add = 15);
    CHECK("combine of", r.tensor[Y].dim[1].add = 15);
    CHECK("combine of", r.operand[ROUTE_COMBINE][0].tensor = X);
    CHECK("combine of", r.operand[ROUTE_COMBINE][2].tensor = LOGITS);
    CHECK("combine of", r.operand[ROUTE_COMBINE][1].tensor = PLACES;
          r.operand[ROUTE_COMBINE][2].tensor = X);
}

static void steps_must_not_clobber(void **state)
{
    (void)state;
    CHECK("is not written yet", r.launch[0] = r.launch[1]);
    CHECK("is never written", r.m.plan.num_launches--);
    CHECK("share bytes", r.tensor[WEIGHTS].arena_offset = r.tensor[INDEX].arena_offset);
    CHECK("is overwritten by places",
          r.tensor[WEIGHTS].arena_offset = r.tensor[PLACES].arena_offset);
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
    assert_non_null(strstr(sb.text, "  combine t7, t5, t4 to t2\n"));
    arena_destroy(arena);
    model_free(&r.m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_have_their_operands),
        cmocka_unit_test(steps_take_formats),
        cmocka_unit_test(sizes_agree),
        cmocka_unit_test(steps_must_not_clobber),
        cmocka_unit_test(plans_print),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
