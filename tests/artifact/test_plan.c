/* Plans: what is written reads back the same, and every rule of a plan is enforced when it is read.
 */
#include "models.h"

#include <cmocka.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef void (*ModelMaker)(TestModel *m);

static Plan *decode(const TestModel *m, IoError *err)
{
    Bytes b;
    assert_true(plan_encode(&m->plan, &b));
    Plan *plan = plan_decode(b.data, b.size, m->weights_bytes, err);
    bytes_free(&b);
    return plan;
}

static char *print(const Plan *plan)
{
    Arena *arena = arena_create();
    Sb sb;
    sb_init(&sb, arena);
    plan_print(&sb, plan);
    char *text = strdup(sb.text);
    arena_destroy(arena);
    return text;
}

static void what_is_written_reads_back(void **state)
{
    static const ModelMaker maker[] = {model_float, model_int8};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(maker); i++) {
        TestModel m;
        IoError err = {0};
        maker[i](&m);
        Plan *plan = decode(&m, &err);
        if (!plan)
            fail_msg("%s", err.text);
        char *before = print(&m.plan), *after = print(plan);
        assert_string_equal(before, after);
        Bytes once, again;
        assert_true(plan_encode(&m.plan, &once) && plan_encode(plan, &again));
        assert_int_equal(once.size, again.size);
        assert_memory_equal(once.data, again.data, once.size);
        bytes_free(&once);
        bytes_free(&again);
        free(before);
        free(after);
        plan_free(plan);
        model_free(&m);
    }
}

static void a_plan_prints_as_text(void **state)
{
    (void)state;
    TestModel m;
    model_int8(&m);
    char *text = print(&m.plan);
    assert_non_null(strstr(text, "plan for cpu, rows are independent\n"));
    assert_non_null(strstr(text, "bucket 1: B = 4 arena 128 bytes\n"));
    assert_non_null(strstr(text, "r3 = mul r1, r2\n"));
    assert_non_null(strstr(text, "tensor t6 \"sx\" f32[B, 1] scales of t1\n"));
    free(text);
    model_free(&m);
}

static void every_truncation_is_refused(void **state)
{
    (void)state;
    TestModel m;
    Bytes b;
    IoError err;
    model_int8(&m);
    assert_true(plan_encode(&m.plan, &b));
    for (size_t size = 0; size < b.size; size++) {
        uint8_t *cut = malloc(size + 1); /* exact, so that a sanitizer sees one byte too many */
        memcpy(cut, b.data, size);
        assert_null(plan_decode(cut, size, m.weights_bytes, &err));
        assert_int_equal(err.id, E_PLAN);
        free(cut);
    }
    bytes_free(&b);
    model_free(&m);
}

/* Whatever decodes after a byte was changed must still bind every bucket in range. */
static void changed_bytes_are_refused_or_harmless(void **state)
{
    static const uint8_t change[] = {1, 0x80, 0xff};
    (void)state;
    TestModel m;
    Bytes b;
    IoError err;
    model_int8(&m);
    assert_true(plan_encode(&m.plan, &b));
    int refused = 0;
    for (size_t at = 0; at < b.size; at++)
        for (size_t i = 0; i < COUNT_OF(change); i++) {
            b.data[at] ^= change[i];
            Plan *plan = plan_decode(b.data, b.size, m.weights_bytes, &err);
            refused += !plan;
            plan_free(plan);
            b.data[at] ^= change[i];
        }
    assert_true(refused > 500);
    bytes_free(&b);
    model_free(&m);
}

/* One rule broken at a time -------------------------------------------------------------------- */

typedef struct Broken {
    TestModel m;
    PlanTensor tensor[8];
    PlanLaunch launch[4];
    PlanOperand operand[8];
    TileStep step[16];
    PlanSegment segment[1];
    uint64_t arena_bytes[3], offset[3];
    int64_t bucket_size[3];
} Broken;

/* A copy of model_int8 whose parts may be changed; launch 1 is the GEMM. */
static void break_begin(Broken *b)
{
    model_int8(&b->m);
    Plan *p = &b->m.plan;
    memcpy(b->tensor, p->tensor, (size_t)p->num_tensors * sizeof *b->tensor);
    memcpy(b->launch, p->launch, (size_t)p->num_launches * sizeof *b->launch);
    memcpy(b->operand, p->launch[1].operand,
           (size_t)p->launch[1].num_operands * sizeof *b->operand);
    memcpy(b->segment, p->launch[1].segment, sizeof *b->segment);
    memcpy(b->step, b->segment[0].epilogue.step,
           (size_t)b->segment[0].epilogue.num_steps * sizeof *b->step);
    memcpy(b->arena_bytes, p->arena_bytes, sizeof b->arena_bytes);
    memcpy(b->bucket_size, p->bucket_size, sizeof b->bucket_size);
    memcpy(b->offset, p->tensor[1].arena_offset, sizeof b->offset);
    b->segment[0].epilogue.step = b->step;
    b->launch[1].segment = b->segment;
    b->launch[1].operand = b->operand;
    b->tensor[1].arena_offset = b->offset;
    p->tensor = b->tensor;
    p->launch = b->launch;
    p->arena_bytes = b->arena_bytes;
    p->bucket_size = b->bucket_size;
}

static void broken_is_refused(Broken *b, const char *why)
{
    IoError err = {0};
    Plan *plan = decode(&b->m, &err);
    assert_null(plan);
    assert_int_equal(err.id, E_PLAN);
    if (!strstr(err.text, why))
        fail_msg("got \"%s\", want \"%s\"", err.text, why);
    model_free(&b->m);
}

#define REFUSED(why, ...)           \
    do {                            \
        Broken b;                   \
        break_begin(&b);            \
        __VA_ARGS__;                \
        broken_is_refused(&b, why); \
    } while (0)

static void tensors_must_be_sound(void **state)
{
    (void)state;
    REFUSED("ends behind the arena", b.arena_bytes[2] = 319);
    REFUSED("is not aligned", b.offset[1] = 4);
    REFUSED("lies outside the", b.tensor[3].offset += 6400);
    REFUSED("lies outside the", b.tensor[3].bytes = UINT64_MAX);
    REFUSED("needs 64 bytes, has 60", b.tensor[3].bytes = 60);
    REFUSED("varies with the batch", b.tensor[3].dim[0] = (PlanDim){1, 0, {0, -1}});
    REFUSED("bad type", b.tensor[0].dim[0].sym[0] = 1);
    REFUSED("bad type", b.tensor[0].dim[0].mul = -1);
    REFUSED("overflows", b.tensor[1].dim[0].mul = INT64_MAX);
    REFUSED("overflows", b.tensor[1].dim[1].add = (int64_t)LIMIT_DIM + 1);
    REFUSED("overflows", b.tensor[1].dim[1].add = -8);
    REFUSED("has no such parameters", b.tensor[6].fmt = FMT_F16);
    REFUSED("has no such parameters", b.tensor[6].storage = STORAGE_ZEROS);
    REFUSED("out of range", b.tensor[6].index = 7);
    REFUSED("the parameters of", b.tensor[6].dim[1].add = 2);
    REFUSED("is no port", b.tensor[0].index = 1; b.m.plan.num_inputs = 0);
    REFUSED("has no tensor", b.tensor[5].storage = STORAGE_ARENA;
            b.tensor[5].arena_offset = b.offset);
    REFUSED("packs into", b.tensor[2].bytes -= 1);
    REFUSED("is packed for", b.tensor[2].pack_spec.parts = 0);
    REFUSED("is packed for", b.tensor[2].pack_spec.n = -16);
    REFUSED("has format", b.tensor[3].fmt = FMT_E4M3);
    REFUSED("static parameters", b.tensor[1].is_static = true; b.tensor[1].params = 5);
}

static void buckets_must_be_sound(void **state)
{
    (void)state;
    REFUSED("do not ascend", b.bucket_size[1] = 32);
    REFUSED("bucket 0: B = 0", b.bucket_size[0] = 0);
    REFUSED("0 buckets", b.m.plan.num_buckets = 0; b.tensor[1].storage = STORAGE_VIEW);
    REFUSED("says how large B is", b.tensor[0].dim[0] = (PlanDim){0, 4, {-1, -1}};
            b.m.plan.rows_independent = false);
    REFUSED("cannot be cut", b.tensor[0].dim[0].add = 1);
}

static void programs_must_be_sound(void **state)
{
    (void)state;
    REFUSED("unset or of another type", b.step[1].src[0] = 9);
    REFUSED("unset or of another type", b.step[3].src[0] = 0);
    REFUSED("unset or of another type", b.step[1].src[0] = 200);
    REFUSED("no such register", b.step[1].dst = TILE_MAX_REGS);
    REFUSED("no such operand", b.step[2].tensor = 4);
    REFUSED("unknown operation", b.step[2].op = NUM_TILE_OPS);
    REFUSED("no such accumulator", b.step[0].part = 1);
    REFUSED("no such accumulator", b.step[0].fmt = FMT_F32);
    REFUSED("writes to an input or a constant", b.step[8].tensor = 3);
    REFUSED("plain values as quantised", b.step[8].op = TILE_QUANTIZE);
    REFUSED("is read", b.operand[2].row_mod.add = 0);
    REFUSED("row divisor of 0", b.operand[1].row_div.add = 0);
    REFUSED("is written", b.operand[0].col_step = 0);
    REFUSED("out of range", b.operand[1].tensor = 7);
    REFUSED("out of range", b.operand[1].tensor = 2);
    REFUSED("out of order or range", b.segment[0].n_end = 17);
    REFUSED("out of range", b.segment[0].n_begin = INT64_MIN);
    REFUSED("out of range", b.segment[0].n_begin = 1; b.segment[0].n_end = INT64_MIN);
    REFUSED("out of range", b.segment[0].n_end = 0);
    REFUSED("is written", b.segment[0].n_end = 15);
    REFUSED("does not meet weight", b.launch[1].a = 0);
    REFUSED("no such tensor", b.launch[1].w = -1);
}

/* A third launch quantises x once more, into another tensor at the same place. */
static void clobber_codes(Broken *b)
{
    static const PlanOperand again[] = {{0, {0, 1, {-1, -1}}, {0, 0, {-1, -1}}, 1},
                                        {7, {0, 1, {-1, -1}}, {0, 0, {-1, -1}}, 1}};
    b->tensor[7] = b->tensor[1];
    b->tensor[7].name = "late";
    b->launch[2] = b->launch[1];
    b->launch[1] = b->launch[0];
    b->launch[1].operand = again;
    b->m.plan.num_tensors = 8;
    b->m.plan.num_launches = 3;
}

static void launches_must_not_clobber(void **state)
{
    (void)state;
    REFUSED("is not written yet", b.launch[0] = b.launch[1]);
    REFUSED("is never written", b.m.plan.num_launches = 1);
    /* a launch between the quantise and the product writes x's codes */
    REFUSED("is overwritten by late", clobber_codes(&b));
    /* x's codes are overwritten by an arena tensor of the same place before they are read */
    REFUSED("share bytes", b.tensor[7] = b.tensor[5]; b.tensor[7].storage = STORAGE_ARENA;
            b.tensor[7].arena_offset = b.offset; b.tensor[7].name = "late"; b.arena_bytes[0] = 2048;
            b.arena_bytes[1] = 2048; b.arena_bytes[2] = 2048; b.m.plan.num_tensors = 8;
            b.operand[0].tensor = 7);
}

/* y of model_int8, moved by one row and column inside of itself, through the view `from`. */
static void move_output(Broken *b, int from)
{
    b->tensor[7] = b->tensor[5];
    b->tensor[7].storage = STORAGE_VIEW;
    b->tensor[7].name = "whole";
    b->tensor[7].index = 5;
    b->launch[2] = (PlanLaunch){.family = LAUNCH_MOVE,
                                .layer = "shift",
                                .src = from,
                                .dst = 5,
                                .move_rank = 1,
                                .move_dim = {{0, 8, {-1, -1}}},
                                .move_src_stride = {{0, 1, {-1, -1}}},
                                .move_dst_stride = {{0, 1, {-1, -1}}},
                                .move_src_offset = {0, 1, {-1, -1}},
                                .move_dst_offset = {0, 0, {-1, -1}}};
    b->m.plan.num_tensors = 8;
    b->m.plan.num_launches = 3;
}

/* Outputs are written as the arena is: copies whose sides overlap have no meaning. */
static void outputs_must_not_be_clobbered(void **state)
{
    (void)state;
    REFUSED("\"shift\": \"y\" and \"y\" share bytes", move_output(&b, 5));
    REFUSED("\"shift\": \"y\" and \"whole\" share bytes", move_output(&b, 7));
    REFUSED("which is not written yet", b.operand[3] = b.operand[0]);
}

static void views_must_fit(void **state)
{
    (void)state;
    const PlanTensor part = {.name = "part",
                             .fmt = FMT_F32,
                             .rank = 2,
                             .dim = {{1, 0, {0, -1}}, {0, 8, {-1, -1}}},
                             .storage = STORAGE_VIEW,
                             .index = 5,
                             .view_col = 8};
    Broken ok;
    break_begin(&ok);
    ok.tensor[7] = part;
    ok.m.plan.num_tensors = 8;
    IoError err;
    Plan *plan = decode(&ok.m, &err);
    if (!plan)
        fail_msg("%s", err.text);
    PlanLayout layout[8];
    assert_true(plan_bind(plan, 2, (int64_t[]){3}, layout, &err));
    assert_int_equal(layout[7].root, 5);
    assert_int_equal(layout[7].at, 32);
    assert_int_equal(layout[7].pitch, 64);
    assert_int_equal(layout[7].bytes, 2 * 64 + 32);
    assert_false(plan_bind(plan, 1, (int64_t[]){5}, layout, &err));
    plan_free(plan);
    model_free(&ok.m);
    REFUSED("does not fit", b.tensor[7] = part; b.tensor[7].view_col = 9; b.m.plan.num_tensors = 8);
    REFUSED("nest too deep", b.tensor[7] = part; b.tensor[7].index = 7; b.m.plan.num_tensors = 8);
    REFUSED("another format", b.tensor[7] = part; b.tensor[7].index = 1; b.m.plan.num_tensors = 8);
    REFUSED("another format", b.tensor[7] = part; b.tensor[7].index = 6; b.m.plan.num_tensors = 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_reads_back),
        cmocka_unit_test(a_plan_prints_as_text),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(changed_bytes_are_refused_or_harmless),
        cmocka_unit_test(tensors_must_be_sound),
        cmocka_unit_test(buckets_must_be_sound),
        cmocka_unit_test(programs_must_be_sound),
        cmocka_unit_test(launches_must_not_clobber),
        cmocka_unit_test(outputs_must_not_be_clobbered),
        cmocka_unit_test(views_must_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
