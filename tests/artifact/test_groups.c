/* Rules of plans whose rows are of groups, in model_grouped: one is broken at a time. */
#include "verdict.h"

#include <cmocka.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { INDEX = 2, TAKEN, ENDS, PLACES, ROWS, WEIGHT, SUMS, BIASES, FACTORS, FACTORED, RESULT };
enum { CHOOSE, FIND_SOURCES, FIND_ENDS, FIND_PLACES, DISPATCH, PRODUCT, SCALE, COMBINE };

#define MOST_OPERANDS 7 /* of one of its launches */

/* A copy of model_grouped whose parts may be changed. */
typedef struct Broken {
    TestModel m;
    PlanTensor tensor[GROUPED_TENSORS + 2];
    PlanLaunch launch[GROUPED_LAUNCHES + 1];
    PlanOperand operand[GROUPED_LAUNCHES + 1][MOST_OPERANDS];
    uint64_t arena_bytes[3];
} Broken;

static void break_begin(Broken *b)
{
    model_grouped(&b->m);
    Plan *p = &b->m.plan;
    memcpy(b->tensor, p->tensor, GROUPED_TENSORS * sizeof *b->tensor);
    memcpy(b->launch, p->launch, GROUPED_LAUNCHES * sizeof *b->launch);
    memcpy(b->arena_bytes, p->arena_bytes, sizeof b->arena_bytes);
    for (int i = 0; i < GROUPED_LAUNCHES; i++) {
        const PlanLaunch *l = &p->launch[i];
        memcpy(b->operand[i], l->operand, (size_t)l->num_operands * sizeof *l->operand);
        b->launch[i].operand = b->operand[i];
    }
    p->tensor = b->tensor;
    p->launch = b->launch;
    p->arena_bytes = b->arena_bytes;
}

#define ACCEPTED(...)             \
    do {                          \
        Broken b;                 \
        break_begin(&b);          \
        __VA_ARGS__;              \
        plan_verdict(&b.m, NULL); \
    } while (0)
#define REFUSED(why, ...)        \
    do {                         \
        Broken b;                \
        break_begin(&b);         \
        __VA_ARGS__;             \
        plan_verdict(&b.m, why); \
    } while (0)

static const PlanDim four = {0, MODEL_E, {-1, -1}}, three = {0, 3, {-1, -1}};

static void weights_are_of_groups(void **state)
{
    (void)state;
    ACCEPTED((void)b);
    REFUSED("is of -1 groups", b.tensor[WEIGHT].groups = -1);
    REFUSED("groups", b.tensor[WEIGHT].groups = (int64_t)LIMIT_DIM + 1);
    REFUSED("packs into", b.tensor[WEIGHT].groups = 3);
    REFUSED("packs into", b.tensor[WEIGHT].groups = 0);
    REFUSED("has weights of 3 groups", b.tensor[WEIGHT].groups = 3;
            b.tensor[WEIGHT].bytes = plan_weight_packed(&b.m.plan, &b.tensor[WEIGHT]));
    REFUSED("has weights of 0 groups", b.tensor[WEIGHT].groups = 0;
            b.tensor[WEIGHT].bytes = plan_weight_packed(&b.m.plan, &b.tensor[WEIGHT]));
    REFUSED("has weights of 4 groups", b.launch[PRODUCT].grouped = false;
            b.launch[PRODUCT].ends = 0; b.operand[PRODUCT][1].by_group = false);
    REFUSED("share what is of one group", b.launch[PRODUCT].w = BIASES;
            b.tensor[BIASES].dim[1].add = MODEL_K);
}

static void share_scales(Broken *b, int64_t rows)
{
    const Scheme scheme = {.fmt = FMT_I8, .scale_fmt = FMT_F32, .block = {rows, 0}};
    static const TileStep step[] = {
        {.op = TILE_LOAD, .tensor = 0, .tensor2 = TILE_NO_TENSOR},
        {.op = TILE_QUANTIZE, .tensor = 1, .tensor2 = TILE_NO_TENSOR},
    };
    static const uint64_t at[] = {8192, 8192, 8192};
    PlanTensor *codes = &b->tensor[GROUPED_TENSORS], *w = &b->tensor[WEIGHT];
    for (int i = 0; i < 3; i++)
        b->arena_bytes[i] = 1 << 14;
    *codes = b->tensor[ROWS];
    codes->fmt = FMT_I8;
    codes->quantised = true;
    codes->scheme = scheme;
    codes->arena_offset = at;
    w->fmt = w->pack_spec.fmt = w->pack_spec.act_fmt = FMT_I8;
    w->quantised = true;
    w->scheme = (Scheme){.fmt = FMT_I8, .scale_fmt = FMT_F32, .block = {1, 0}};
    w->pack_spec.block_rows = 1;
    w->pack_spec.scale_fmt = FMT_F32;
    w->bytes = plan_weight_packed(&b->m.plan, w);
    w->offset = (b->m.weights_bytes + 127) / 128 * 128;
    b->m.weights_bytes = w->offset + w->bytes;
    for (int i = GROUPED_LAUNCHES; i > PRODUCT; i--)
        b->launch[i] = b->launch[i - 1];
    b->launch[PRODUCT + 1].a = GROUPED_TENSORS;
    PlanOperand *operand = b->operand[GROUPED_LAUNCHES];
    operand[0] = operand[1] = b->operand[DISPATCH][0];
    operand[1].tensor = GROUPED_TENSORS;
    b->launch[PRODUCT] = (PlanLaunch){.family = LAUNCH_TILE,
                                      .layer = "codes",
                                      .num_operands = 2,
                                      .operand = operand,
                                      .whole_rows = true,
                                      .program = {step, COUNT_OF(step)}};
    b->m.plan.num_launches = GROUPED_LAUNCHES + 1;
    b->m.plan.num_tensors = GROUPED_TENSORS + 1;
}

/* The product's sums are i32, which its epilogue converts. */
static void sums_of_codes(Broken *b, int64_t rows)
{
    static TileStep step[6];
    static PlanSegment segment;
    share_scales(b, rows);
    const PlanProgram *old = &b->launch[PRODUCT + 1].segment[0].epilogue;
    step[0] = old->step[0];
    step[0].fmt = FMT_I32;
    step[1] = (TileStep){.op = TILE_I32_TO_F32, .dst = 4, .tensor = TILE_NO_TENSOR};
    for (int i = 1; i < old->num_steps; i++)
        step[1 + i] = old->step[i];
    step[3].src[0] = 4;
    segment = (PlanSegment){0, MODEL_N, {step, COUNT_OF(step)}};
    b->launch[PRODUCT + 1].segment = &segment;
}

static void scales_are_of_one_group(void **state)
{
    (void)state;
    ACCEPTED(sums_of_codes(&b, 1));
    ACCEPTED(sums_of_codes(&b, 0));
    REFUSED("share what is of one group", sums_of_codes(&b, 2));
}

static void groups_must_end(void **state)
{
    const char *why = "no tensor says where its groups end";
    (void)state;
    REFUSED(why, b.launch[PRODUCT].ends = -1);
    REFUSED(why, b.launch[SCALE].ends = GROUPED_TENSORS);
    REFUSED(why, b.launch[SCALE].ends = INDEX);
    REFUSED(why, b.launch[PRODUCT].ends = WEIGHT);
    REFUSED(why, b.launch[PRODUCT].ends = FACTORS);
    REFUSED(why, b.tensor[ENDS].dim[0] = (PlanDim){1, 0, {0, -1}});
    REFUSED(why, b.tensor[ENDS].dim[0].add = 0);
    REFUSED("is not written yet", b.launch[FIND_ENDS] = b.launch[FIND_SOURCES]);
    REFUSED("is overwritten by r", b.tensor[ENDS].arena_offset = b.tensor[ROWS].arena_offset);
    REFUSED("share bytes", b.tensor[FACTORED].arena_offset = b.tensor[ENDS].arena_offset);
}

static void operands_have_a_row_a_group(void **state)
{
    const char *why = "has no row for each of 4 groups";
    (void)state;
    ACCEPTED(b.operand[SCALE][1].by_group = false);
    REFUSED("has no row for each of 0 groups", b.launch[SCALE].grouped = false;
            b.launch[SCALE].ends = 0);
    REFUSED("has no row for each of 0 groups", b.operand[DISPATCH][0].by_group = true);
    REFUSED(why, b.tensor[FACTORS].dim[0] = three);
    REFUSED(why, b.operand[SCALE][1].by_group = true);
    REFUSED(why, b.operand[PRODUCT][1].col_step = 0);
    REFUSED(why, b.tensor[BIASES].rank = 1; b.tensor[BIASES].dim[0].add = MODEL_E * MODEL_N);
    REFUSED("has 8 columns, not 16", b.tensor[FACTORS].dim[1].add = 8);
    REFUSED("is written to it", b.tensor[FACTORED].dim[0] = four;
            b.operand[SCALE][1] = b.operand[SCALE][2]; b.operand[SCALE][0].by_group = true);
    REFUSED("are not those of groups", b.operand[PRODUCT][1].by_group = false;
            b.operand[PRODUCT][1].row_mod = four);
    REFUSED("are not those of groups", b.operand[PRODUCT][1].by_group = false;
            b.operand[PRODUCT][1].row_div.add = 8);
}

/* Equally many rows of each group, of which some count. */
static void groups_may_be_counted(void **state)
{
    (void)state;
    REFUSED("rows are not those of 4 groups", b.launch[PRODUCT].counted = true);
    REFUSED("rows are not those of 4 groups", b.launch[SCALE].counted = true);
    REFUSED("of no groups are counted", b.launch[SCALE].skips = true);
    REFUSED("of no groups are counted", b.launch[PRODUCT].counted = b.launch[PRODUCT].skips = true);
}

/* A plan for GPUs whose weights a launch packs again. */
static void decode_groups(Broken *b, int64_t groups)
{
    static const uint64_t at[] = {8192, 8192, 8192};
    b->m.plan.target = "portable";
    b->m.weights_bytes = b->arena_bytes[0] = b->arena_bytes[1] = b->arena_bytes[2] = 1 << 20;
    PlanTensor *w = &b->tensor[WEIGHT], *decoded = &b->tensor[GROUPED_TENSORS];
    w->offset = 1 << 18;
    w->bytes = plan_weight_packed(&b->m.plan, w);
    *decoded = *w;
    decoded->storage = STORAGE_ARENA;
    decoded->arena_offset = at;
    decoded->groups = groups;
    decoded->bytes = plan_weight_packed(&b->m.plan, decoded);
    for (int i = GROUPED_LAUNCHES; i > PRODUCT; i--)
        b->launch[i] = b->launch[i - 1];
    b->launch[PRODUCT] = (PlanLaunch){
        .family = LAUNCH_DECODE, .layer = "decode", .src = WEIGHT, .dst = GROUPED_TENSORS};
    b->launch[PRODUCT + 1].w = GROUPED_TENSORS;
    b->m.plan.num_launches = GROUPED_LAUNCHES + 1;
    b->m.plan.num_tensors = GROUPED_TENSORS + 1;
}

static void view_groups(Broken *b, int64_t groups)
{
    decode_groups(b, MODEL_E);
    PlanTensor *view = &b->tensor[GROUPED_TENSORS + 1];
    *view = b->tensor[WEIGHT];
    view->storage = STORAGE_VIEW;
    view->index = WEIGHT;
    view->groups = groups;
    view->bytes = plan_weight_packed(&b->m.plan, view);
    b->m.plan.num_tensors = GROUPED_TENSORS + 2;
}

static void weights_keep_their_groups(void **state)
{
    (void)state;
    ACCEPTED(decode_groups(&b, MODEL_E));
    REFUSED("cannot be decoded", decode_groups(&b, MODEL_E + 1));
    REFUSED("cannot be decoded", decode_groups(&b, 0));
    ACCEPTED(view_groups(&b, MODEL_E));
    REFUSED("has another format", view_groups(&b, 0));
    REFUSED("has another format", view_groups(&b, MODEL_E - 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_of_groups),
        cmocka_unit_test(scales_are_of_one_group),
        cmocka_unit_test(groups_must_end),
        cmocka_unit_test(groups_may_be_counted),
        cmocka_unit_test(operands_have_a_row_a_group),
        cmocka_unit_test(weights_keep_their_groups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
