/* Every rule of a plan is enforced when it is read: one is broken at a time, in a plan of a GEMM of
 * quantised activations and what comes before it. */
#include "verdict.h"

#include <cmocka.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct Broken {
    TestModel m;
    PlanTensor tensor[10];
    PlanLaunch launch[4];
    PlanOperand operand[8], more[4];
    TileStep step[16], first[4];
    PlanSegment segment[2];
    uint64_t arena_bytes[3], offset[3];
    int64_t bucket_size[6];
    PlanSym sym[2];
    PlanPort input[2];
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
    memcpy(b->bucket_size, p->bucket_size, 3 * sizeof *b->bucket_size);
    memcpy(b->sym, p->sym, sizeof *b->sym);
    memcpy(b->input, p->input, sizeof *b->input);
    memcpy(b->offset, p->tensor[1].arena_offset, sizeof b->offset);
    b->segment[0].epilogue.step = b->step;
    b->launch[1].segment = b->segment;
    b->launch[1].operand = b->operand;
    b->tensor[1].arena_offset = b->offset;
    p->tensor = b->tensor;
    p->launch = b->launch;
    p->arena_bytes = b->arena_bytes;
    p->bucket_size = b->bucket_size;
    p->sym = b->sym;
    p->input = b->input;
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

static void more_arena(Broken *b)
{
    for (int i = 0; i < 3; i++)
        b->arena_bytes[i] = 4096;
}

/* Tensor 7 is another name for the codes of x. */
static void view_codes(Broken *b)
{
    b->tensor[7] = b->tensor[1];
    b->tensor[7].storage = STORAGE_VIEW;
    b->tensor[7].name = "codes";
    b->tensor[7].index = 1;
    b->m.plan.num_tensors = 8;
}

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
    REFUSED("static parameters", b.tensor[1].is_static = true; b.tensor[1].params = -1);
    REFUSED("static parameters", b.tensor[1].is_static = true; b.tensor[1].params = 7);
    REFUSED("static parameters", b.tensor[1].is_static = true; b.tensor[1].params = 2);
    REFUSED("static parameters", b.tensor[1].is_static = true; b.tensor[1].params = 2;
            b.tensor[2].quantised = false);
    REFUSED("do not fit their constant", b.tensor[1].is_static = true; b.tensor[1].params = 3;
            b.tensor[3].bytes = 60);
    REFUSED("varies with the batch", b.tensor[3].dim[0] = (PlanDim){1, 0, {-1, 0}});
    REFUSED("needs 32 bytes, has 30", b.tensor[3].fmt = FMT_BF16; b.tensor[3].bytes = 30);
    REFUSED("has format", b.tensor[0].is_static = true);
    REFUSED("is packed for", b.tensor[2].pack_spec.n = 15; b.tensor[2].pack_spec.parts = 2);
    REFUSED("is packed for", b.tensor[2].pack_spec.block_rows = -1);
    REFUSED("is packed for", b.tensor[2].pack_spec.block_cols = -1);
    REFUSED("is packed for", b.tensor[2].pack_spec.act_block_cols = -1);
    REFUSED("packs into", b.m.plan.target = "portable");
    REFUSED("packs into 0 bytes", b.m.plan.target = "portable";
            b.tensor[2].fmt = b.tensor[2].scheme.fmt = FMT_I4; b.tensor[2].pack_spec.fmt = FMT_I4;
            b.tensor[2].pack_spec.layout = CUDA_PANELS);
    REFUSED("target \"gpu\" is unknown", b.m.plan.target = "gpu");
    REFUSED("is no port", b.tensor[7] = b.tensor[0]; b.tensor[7].index = -1;
            b.m.plan.num_tensors = 8);
    REFUSED("is no port", b.tensor[0].quantised = true; b.tensor[0].fmt = FMT_I8;
            b.tensor[0].scheme = b.tensor[1].scheme);
    REFUSED("has a bad type", b.tensor[3].fmt = FMT_NONE);
    REFUSED("has a bad type", b.tensor[1].packed = true);
    REFUSED("overflows", b.bucket_size[0] = 2; b.tensor[1].dim[0].mul = INT64_MAX);
    REFUSED("overflows", b.tensor[1].dim[0] = (PlanDim){INT64_MAX, 1, {0, -1}});
}

/* Shapes whose rows, elements or bytes overflow, and the largest that would not. */
static void sizes_must_not_overflow(void **state)
{
    const PlanDim most = {0, LIMIT_DIM, {-1, -1}};
    (void)state;
    REFUSED("overflows", b.tensor[3].rank = 4;
            for (int i = 0; i < 4; i++) b.tensor[3].dim[i] = most);
    REFUSED("overflows", b.tensor[3].rank = 3;
            for (int i = 0; i < 3; i++) b.tensor[3].dim[i] = most);
    REFUSED("overflows", b.tensor[3].rank = 2;
            for (int i = 0; i < 2; i++) b.tensor[3].dim[i] = most);
}

static void parameters_must_be_those_of_a_tensor(void **state)
{
    (void)state;
    REFUSED("out of range", b.tensor[6].index = -1);
    REFUSED("out of range", b.tensor[6].quantised = true; b.tensor[6].fmt = FMT_I8;
            b.tensor[6].scheme = b.tensor[1].scheme);
    REFUSED("has no such parameters", b.tensor[6].index = 0);
    REFUSED("has no such parameters", b.tensor[6].index = 0; b.tensor[6].storage = STORAGE_ZEROS);
    REFUSED("has no such parameters", b.tensor[6].index = 2);
    REFUSED("has no such parameters", b.tensor[6].index = 7; b.tensor[7] = b.tensor[1];
            b.tensor[7].storage = STORAGE_SCALES; b.m.plan.num_tensors = 8);
    REFUSED("has no such parameters", b.tensor[1].scheme.zero = ZERO_INT;
            b.tensor[6].storage = STORAGE_ZEROS);
    REFUSED("of another type", b.tensor[1].scheme.zero = ZERO_INT;
            b.tensor[6].storage = STORAGE_ZEROS; b.tensor[6].fmt = FMT_I32; more_arena(&b));
    REFUSED("has no such parameters", b.tensor[6].storage = STORAGE_OUTER);
    REFUSED("is read",
            b.tensor[1].scheme =
                (Scheme){.fmt = FMT_I8, .scale_fmt = FMT_E4M3, .outer = true, .block = {1, 4}};
            b.tensor[6].storage = STORAGE_OUTER; more_arena(&b));
    /* of a view, which is bound before them */
    ACCEPTED(view_codes(&b); b.tensor[6].index = 7);
    REFUSED("nest too deep", view_codes(&b); b.tensor[6].index = 7; b.tensor[7].index = 7);
}

/* .. which leaves the outer scale of its tensor out, or has one that this has not. */
static void view_inner(Broken *b, bool reversed)
{
    b->tensor[1].scheme.outer = true;
    b->tensor[1].scheme.scale_fmt = FMT_E4M3;
    more_arena(b);
    view_codes(b);
    b->tensor[reversed ? 1 : 7].scheme.outer = false;
}

static void views_may_leave_outer_scales_out(void **state)
{
    (void)state;
    ACCEPTED(view_inner(&b, false));
    REFUSED("has another format", view_inner(&b, true));
    REFUSED("has another format", view_inner(&b, false); b.tensor[7].scheme.block[1] = 4);
}

static void many_buckets(Broken *b)
{
    static int64_t size[LIMIT_BUCKETS + 1];
    static uint64_t bytes[LIMIT_BUCKETS + 1];
    for (int i = 0; i <= LIMIT_BUCKETS; i++)
        size[i] = i + 1;
    b->m.plan.num_buckets = LIMIT_BUCKETS + 1;
    b->m.plan.bucket_size = size;
    b->m.plan.arena_bytes = bytes;
    b->tensor[1].arena_offset = bytes;
}

static void many_symbols(Broken *b)
{
    static PlanSym sym[LIMIT_SYMS + 1];
    static int64_t size[3 * (LIMIT_SYMS + 1)];
    for (int i = 0; i <= LIMIT_SYMS; i++)
        sym[i] = b->sym[0];
    b->m.plan.num_syms = LIMIT_SYMS + 1;
    b->m.plan.sym = sym;
    b->m.plan.bucket_size = size;
}

/* The second is the number of columns of a second input. */
static void two_symbols(Broken *b)
{
    for (int i = 5; i >= 0; i--)
        b->bucket_size[i] = i % 2 ? 1 : b->bucket_size[i / 2];
    b->sym[1] = (PlanSym){"C", 3, b->sym[0].size};
    b->m.plan.num_syms = 2;
    b->tensor[7] = b->tensor[0];
    b->tensor[7].index = 1;
    b->tensor[7].dim[1] = (PlanDim){1, 0, {1, -1}};
    b->input[1] = (PlanPort){"c", 7};
    b->m.plan.num_tensors = 8;
    b->m.plan.num_inputs = 2;
}

static void second_input(Broken *b, const char *name)
{
    b->tensor[7] = b->tensor[0];
    b->tensor[7].index = 1;
    b->input[1] = (PlanPort){name, 7};
    b->m.plan.num_tensors = 8;
    b->m.plan.num_inputs = 2;
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
    REFUSED("has no sizes", b.sym[0].num_sizes = 0);
    REFUSED("3 buckets of 0 symbols", b.m.plan.num_syms = 0);
    REFUSED("bad type", b.m.plan.num_syms = 0; b.m.plan.rows_independent = false);
    REFUSED("65 buckets", many_buckets(&b));
    REFUSED("buckets of 9 symbols", many_symbols(&b));
    REFUSED("two ports are called \"x\"", second_input(&b, "x"));
    ACCEPTED(second_input(&b, "x2"));
}

/* A batch is one symbol, alone, as the first dimension of every port. */
static void batches_must_lead_ports(void **state)
{
    (void)state;
    ACCEPTED(b.tensor[0].dim[0] = (PlanDim){1, 0, {-1, 0}});
    REFUSED("says how large B is", b.tensor[0].dim[0] = (PlanDim){1, 0, {0, 0}});
    REFUSED("cannot be cut", b.tensor[5].dim[0] = (PlanDim){1, 0, {0, 0}});
    REFUSED("cannot be cut", b.tensor[5].dim[0] = (PlanDim){1, 0, {-1, -1}});
    REFUSED("cannot be cut", two_symbols(&b); b.tensor[5].dim[0] = (PlanDim){1, 0, {1, 0}});
    REFUSED("cannot be cut", b.tensor[5].rank = 0);
    REFUSED("cannot be cut", b.tensor[5].dim[1] = (PlanDim){1, 0, {0, -1}});
    REFUSED("cannot be cut", b.tensor[5].dim[1] = (PlanDim){1, 0, {-1, 0}});
}

static void many_operands(Broken *b)
{
    static PlanOperand operand[PLAN_MAX_OPERANDS + 1];
    for (int i = 0; i <= PLAN_MAX_OPERANDS; i++)
        operand[i] = b->operand[0];
    b->launch[1].operand = operand;
    b->launch[1].num_operands = PLAN_MAX_OPERANDS + 1;
}

static void many_steps(Broken *b)
{
    static TileStep step[PLAN_MAX_STEPS + 1];
    b->segment[0].epilogue = (PlanProgram){step, PLAN_MAX_STEPS + 1};
}

static void many_segments(Broken *b)
{
    static PlanSegment segment[PLAN_MAX_SEGMENTS + 1];
    b->launch[1].segment = segment;
    b->launch[1].num_segments = PLAN_MAX_SEGMENTS + 1;
}

/* The weight is packed in blocks of so many columns, whose scales its main loop applies. */
static void block_weights(Broken *b, int64_t cols, int64_t act_cols)
{
    CpuPackSpec *spec = &b->tensor[2].pack_spec;
    spec->mainloop = true;
    spec->block_cols = cols;
    spec->act_block_cols = act_cols;
    b->tensor[1].scheme.block[1] = act_cols;
    b->tensor[2].bytes = cpu_pack_bytes(spec);
    b->tensor[2].scheme.block[1] = cols;
    b->tensor[2].offset = (b->m.weights_bytes + 63) / 64 * 64;
    b->m.weights_bytes = b->tensor[2].offset + b->tensor[2].bytes;
    b->step[0].fmt = FMT_F32;
    b->step[1].op = TILE_RELU;
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
    REFUSED("of another type", b.tensor[3].fmt = FMT_I32);
    REFUSED("rounds to no format", b.step[3].op = TILE_ROUND; b.step[3].fmt = NUM_FORMATS);
    REFUSED("writes to an input or a constant", view_codes(&b); b.tensor[7].index = 7;
            b.operand[0].tensor = 7);
    REFUSED("has no operands", b.launch[0].num_operands = 0);
    REFUSED("has 65 operands", many_operands(&b));
    REFUSED("4097 steps", many_steps(&b));
    REFUSED("has 0 segments", b.launch[1].num_segments = 0);
    REFUSED("has 65 segments", many_segments(&b));
    REFUSED("out of order or range", b.segment[1] = b.segment[0]; b.launch[1].num_segments = 2);
    REFUSED("out of order or range", b.segment[1] = b.segment[0]; b.launch[1].num_segments = 2;
            b.segment[1].n_begin = 16; b.segment[1].n_end = PLAN_LAST_COLUMN);
}

/* Launch 1 quantises its activation by itself. */
static void fuse_prologue(Broken *b)
{
    b->operand[4] = (PlanOperand){0, {0, 1, {-1, -1}}, {0, 0, {-1, -1}}, 1, false, 0};
    b->operand[5] = (PlanOperand){1, {0, 1, {-1, -1}}, {0, 0, {-1, -1}}, 1, false, 0};
    b->first[0] = (TileStep){.op = TILE_LOAD, .tensor = 4, .tensor2 = TILE_NO_TENSOR};
    b->first[1] = (TileStep){.op = TILE_QUANTIZE, .tensor = 5, .tensor2 = TILE_NO_TENSOR};
    b->launch[0] = b->launch[1];
    b->launch[0].num_operands = 6;
    b->launch[0].prologue = (PlanProgram){b->first, 2};
    b->m.plan.num_launches = 1;
}

static void prologues_must_fill_their_activation(void **state)
{
    (void)state;
    ACCEPTED(fuse_prologue(&b));
    REFUSED("no such accumulator", fuse_prologue(&b); b.first[0].op = TILE_ACC);
    REFUSED("does not fill", fuse_prologue(&b); b.first[1].op = TILE_STORE; b.first[1].tensor = 0);
    REFUSED("does not fill", fuse_prologue(&b); b.launch[0].prologue.num_steps = 1);
    REFUSED("is read", fuse_prologue(&b); b.operand[4].tensor = 3);
    REFUSED("is not written yet", fuse_prologue(&b); b.operand[4].tensor = 5;
            b.operand[4].row_mod.add = 1; b.tensor[5].dim[1].add = 16);
}

/* .. of rows of x that another input names. */
static void name_rows(Broken *b)
{
    fuse_prologue(b);
    b->tensor[7] = b->tensor[0];
    b->tensor[7].name = "by";
    b->tensor[7].fmt = FMT_I32;
    b->tensor[7].dim[1].add = 1;
    b->tensor[7].index = 1;
    b->input[1] = (PlanPort){"by", 7};
    b->operand[6] = b->operand[4];
    b->operand[6].tensor = 7;
    b->operand[4].index = 7;
    b->launch[0].num_operands = 7;
    b->m.plan.num_tensors = 8;
    b->m.plan.num_inputs = 2;
}

static void prologues_may_read_rows_by_an_index(void **state)
{
    (void)state;
    ACCEPTED(name_rows(&b));
    REFUSED("does not say which rows of \"x\" are read", name_rows(&b); b.tensor[7].dim[1].add = 2);
    REFUSED("rows of operand 4 have no index", name_rows(&b); b.tensor[7].fmt = FMT_F32);
    REFUSED("rows of operand 5 have no index", name_rows(&b); b.operand[5].index = 7);
    REFUSED("it meets rows that an index names", name_rows(&b); b.operand[1].index = 7);
    REFUSED("it meets rows that an index names", name_rows(&b); b.operand[0].index = 7);
}

/* Blocks of weights and of activations divide each other, and the packing says the latter. */
static void blocks_must_meet(void **state)
{
    (void)state;
    REFUSED("do not divide each other", block_weights(&b, 4, 2); b.tensor[1].scheme.block[1] = 3);
    ACCEPTED(block_weights(&b, 4, 2); more_arena(&b); b.tensor[6].dim[1].add = 4);
    REFUSED("the weight is packed for blocks of 2, the activation has 4", block_weights(&b, 4, 2);
            b.tensor[1].scheme.block[1] = 4);
}

/* A third launch quantises x once more, into another tensor at the same place. */
static void clobber_codes(Broken *b)
{
    static const PlanOperand again[] = {{0, {0, 1, {-1, -1}}, {0, 0, {-1, -1}}, 1, false, 0},
                                        {7, {0, 1, {-1, -1}}, {0, 0, {-1, -1}}, 1, false, 0}};
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

/* What is read or written in one launch is the same place, or apart: here y and parts of it. */
static void part_of_output(Broken *b, int tensor, int64_t col, int64_t cols)
{
    b->tensor[tensor] = b->tensor[5];
    b->tensor[tensor].storage = STORAGE_VIEW;
    b->tensor[tensor].name = tensor == 7 ? "left" : "right";
    b->tensor[tensor].index = 5;
    b->tensor[tensor].dim[1].add = cols;
    b->tensor[tensor].view_col = col;
    b->m.plan.num_tensors = 9;
}

static void move_parts(Broken *b, int64_t from, int64_t to)
{
    part_of_output(b, 7, from, 8);
    part_of_output(b, 8, to, 8);
    b->launch[2] = (PlanLaunch){.family = LAUNCH_MOVE,
                                .layer = "shift",
                                .src = 7,
                                .dst = 8,
                                .move_rank = 2,
                                .move_dim = {{1, 0, {0, -1}}, {0, 8, {-1, -1}}},
                                .move_src_stride = {{0, 16, {-1, -1}}, {0, 1, {-1, -1}}},
                                .move_dst_stride = {{0, 16, {-1, -1}}, {0, 1, {-1, -1}}}};
    b->m.plan.num_launches = 3;
}

/* Launch 2 reads tensor `from` and writes tensor `to`. */
static void tile_parts(Broken *b, int from, int to)
{
    const PlanOperand plain = {to, {0, 1, {-1, -1}}, {0, 0, {-1, -1}}, 1, false, 0};
    b->more[0] = b->more[1] = plain;
    b->more[1].tensor = from;
    b->first[0] = (TileStep){.op = TILE_LOAD, .tensor = 1, .tensor2 = TILE_NO_TENSOR};
    b->first[1] = (TileStep){.op = TILE_STORE, .tensor = 0, .tensor2 = TILE_NO_TENSOR};
    b->launch[2] = (PlanLaunch){.family = LAUNCH_TILE,
                                .layer = "tile",
                                .num_operands = 2,
                                .operand = b->more,
                                .program = {b->first, 2}};
    b->m.plan.num_launches = 3;
}

/* The product adds y, by one of its names, to what it stores there; launch 0 fills y before. */
static void update_output(Broken *b, int name)
{
    part_of_output(b, 7, 0, 16);
    part_of_output(b, 8, 0, 16);
    tile_parts(b, 0, 5);
    b->launch[3] = b->launch[1];
    b->first[0] = (TileStep){.op = TILE_CONST, .tensor = 1, .tensor2 = TILE_NO_TENSOR};
    b->launch[1] = b->launch[2];
    b->launch[2] = b->launch[3];
    b->operand[4] = b->more[0];
    b->operand[4].tensor = name;
    b->launch[2].num_operands = 5;
    b->step[6].tensor = 4; /* in the bias's place */
}

static void parts_are_the_same_or_apart(void **state)
{
    (void)state;
    ACCEPTED(move_parts(&b, 0, 8));
    ACCEPTED(move_parts(&b, 8, 0));
    REFUSED("share bytes", move_parts(&b, 0, 4));
    REFUSED("share bytes", move_parts(&b, 4, 0));
    ACCEPTED(tile_parts(&b, 5, 5));
    REFUSED("share bytes", tile_parts(&b, 5, 5); b.more[1].row_mod.add = 1);
    REFUSED("share bytes", part_of_output(&b, 7, 0, 8); part_of_output(&b, 8, 4, 8);
            tile_parts(&b, 7, 8));
    /* two names of the whole, both written */
    REFUSED("share bytes", part_of_output(&b, 7, 0, 16); part_of_output(&b, 8, 0, 16);
            tile_parts(&b, 7, 8); b.first[0] = b.first[1]; b.first[0].tensor = 1;
            b.first[0].op = TILE_CONST; b.first[2] = b.first[1]; b.first[2].tensor = 1;
            b.launch[2].program.num_steps = 3);
    /* a product may update what it adds to, but only under one name */
    ACCEPTED(update_output(&b, 5));
    REFUSED("share bytes", update_output(&b, 7));
    /* a tensor of no columns owns no bytes */
    ACCEPTED(part_of_output(&b, 7, 16, 0); part_of_output(&b, 8, 16, 0); tile_parts(&b, 7, 8));
    REFUSED("does not fit", part_of_output(&b, 7, 0, 8); part_of_output(&b, 8, 0, 16);
            b.tensor[8].index = 7);
    REFUSED("does not fit", part_of_output(&b, 7, 0, 8); part_of_output(&b, 8, 0, 4);
            b.tensor[8].index = 7; b.tensor[8].dim[0].mul = 2);
    REFUSED("does not fit", part_of_output(&b, 7, 0, 16); part_of_output(&b, 8, 0, 16);
            b.tensor[8].dim[0].mul = 2);
}

/* The last element of the move's source is (2^40 - 1) * (by0 + by1) + offset. */
static void last_element(Broken *b, int64_t by0, int64_t by1, int64_t offset)
{
    PlanLaunch *l = &b->launch[2];
    for (int i = 0; i < 2; i++)
        l->move_dim[i] = (PlanDim){0, (int64_t)LIMIT_ELEMENTS, {-1, -1}};
    l->move_src_stride[0].add = by0;
    l->move_src_stride[1].add = by1;
    l->move_src_offset.add = offset;
}

/* Moves: every index is checked before it is used, and no element lies outside. */
static void moves_must_stay_inside(void **state)
{
    const PlanDim huge = {0, (int64_t)LIMIT_ELEMENTS, {-1, -1}}, minus = {0, -1, {-1, -1}};
    (void)state;
    ACCEPTED(move_parts(&b, 0, 8); b.launch[2].move_dim[1].add = 0);
    REFUSED("no such tensor", move_parts(&b, 0, 8); b.launch[2].src = 9);
    REFUSED("no such tensor", move_parts(&b, 0, 8); b.launch[2].dst = -1);
    REFUSED("cannot be moved", move_parts(&b, 0, 8); b.tensor[8].index = 8);
    REFUSED("cannot be moved", move_parts(&b, 0, 8); view_codes(&b); b.m.plan.num_tensors = 9;
            b.launch[2].src = 7; b.launch[2].dst = 1);
    REFUSED("cannot be moved", move_parts(&b, 0, 8); b.tensor[2].quantised = false;
            b.launch[2].src = 2; b.launch[2].dst = 1);
    REFUSED("leaves tensor", move_parts(&b, 0, 8); b.launch[2].move_src_offset = minus);
    REFUSED("leaves tensor", move_parts(&b, 0, 8); b.launch[2].move_dim[0] = minus);
    REFUSED("leaves tensor", move_parts(&b, 0, 8); b.launch[2].move_src_stride[0] = minus);
    REFUSED("written twice", move_parts(&b, 0, 8); b.launch[2].move_dst_stride[1].add = 0);
    REFUSED("leaves tensor", move_parts(&b, 0, 8); b.launch[2].move_dim[0] = huge;
            b.launch[2].move_src_stride[0] = huge);
    /* the last element's number, one less than 2^64 and more, before and with the offset */
    REFUSED("leaves tensor", move_parts(&b, 0, 8); last_element(&b, 1 << 23, 1 << 23, 0);
            b.launch[2].move_dim[0].add++);
    REFUSED("leaves tensor", move_parts(&b, 0, 8); last_element(&b, 1 << 24, 0, 1 << 24));
    REFUSED("leaves tensor", move_parts(&b, 0, 8); last_element(&b, 1 << 24, 0, (1 << 24) - 1));
    REFUSED("leaves tensor", move_parts(&b, 0, 8); last_element(&b, 1 << 23, 0, 0));
}

/* A plan for GPUs whose weight a launch packs again, into the arena, for the GEMM behind it. */
static void decode_weight(Broken *b)
{
    static const uint64_t at[] = {4096, 4096, 4096};
    b->m.plan.target = "portable";
    b->m.weights_bytes = b->arena_bytes[0] = b->arena_bytes[1] = b->arena_bytes[2] = 1 << 20;
    b->tensor[2].bytes = plan_packed_bytes(&b->m.plan, &b->tensor[2].pack_spec);
    b->tensor[7] = b->tensor[2];
    b->tensor[7].name = "decoded";
    b->tensor[7].storage = STORAGE_ARENA;
    b->tensor[7].arena_offset = at;
    b->launch[2] = b->launch[1];
    b->launch[2].w = 7;
    b->launch[1] = (PlanLaunch){
        .family = LAUNCH_DECODE, .layer = "fc", .absorbed = "decode weight", .src = 2, .dst = 7};
    b->m.plan.num_tensors = 8;
    b->m.plan.num_launches = 3;
}

static void weights_must_be_decoded_to_what_they_are(void **state)
{
    (void)state;
    ACCEPTED(decode_weight(&b));
    ACCEPTED(decode_weight(&b); b.tensor[7].pack_spec.layout = CUDA_PANELS;
             b.tensor[7].bytes = plan_packed_bytes(&b.m.plan, &b.tensor[7].pack_spec));
    REFUSED("has a bad type", decode_weight(&b); b.m.plan.target = "cpu";
            b.tensor[2].bytes = plan_packed_bytes(&b.m.plan, &b.tensor[2].pack_spec));
    REFUSED("packs into", decode_weight(&b); b.tensor[7].bytes++);
    REFUSED("ends behind the arena", decode_weight(&b);
            b.arena_bytes[1] = 4096 + b.tensor[7].bytes - 1);
    REFUSED("no such tensor", decode_weight(&b); b.launch[1].dst = 8);
    REFUSED("no such tensor", decode_weight(&b); b.launch[1].src = -1);
    REFUSED("cannot be decoded", decode_weight(&b); b.launch[1].src = 7);
    REFUSED("cannot be decoded", decode_weight(&b); b.launch[1].dst = 2);
    REFUSED("cannot be decoded", decode_weight(&b); b.tensor[7].pack_spec.k--;
            b.tensor[7].bytes = plan_packed_bytes(&b.m.plan, &b.tensor[7].pack_spec));
    REFUSED("is not written yet", decode_weight(&b); b.launch[1] = b.launch[0]);
}

/* .. whose codes have scales along K. */
static void scale_weight(Broken *b)
{
    decode_weight(b);
    CpuPackSpec *spec = &b->tensor[2].pack_spec;
    spec->mainloop = true;
    spec->scale_fmt = FMT_E4M3;
    spec->block_cols = 16;
    b->tensor[2].bytes = plan_packed_bytes(&b->m.plan, spec);
    b->m.plan.num_tensors = 9;
}

/* A weight that has such scales, as kernels beside bf16 read it. */
static void view_weight(Broken *b)
{
    scale_weight(b);
    b->tensor[2].pack_spec.act_fmt = FMT_E4M3;
    b->tensor[8] = b->tensor[2];
    b->tensor[8].storage = STORAGE_VIEW;
    b->tensor[8].index = 2;
    CpuPackSpec *as = &b->tensor[8].pack_spec;
    as->act_fmt = FMT_BF16;
    as->act_zero = false;
    as->act_block_cols = 0;
    b->tensor[8].bytes = plan_packed_bytes(&b->m.plan, as);
}

static void weights_are_viewed_as_they_lie(void **state)
{
    (void)state;
    const char *other = "has another format";
    ACCEPTED(view_weight(&b));
    REFUSED("bytes, not", view_weight(&b); b.tensor[8].bytes++);
    REFUSED("is packed for", view_weight(&b); b.tensor[8].pack_spec.n = 0);
    REFUSED(other, view_weight(&b); b.tensor[8].index = 7);
    REFUSED(other, view_weight(&b); b.tensor[8].view_col = 8);
    REFUSED(other, view_weight(&b); b.tensor[8].packed = false);
    REFUSED(other, view_weight(&b); b.tensor[2].pack_spec.act_fmt = FMT_I8);
    REFUSED("has no such parameters", view_weight(&b); b.tensor[8].packed = false;
            b.tensor[8].quantised = false; b.tensor[8].fmt = FMT_F32;
            b.tensor[8].storage = STORAGE_OUTER);
    REFUSED(other, view_weight(&b); b.tensor[8].pack_spec.block_cols = 32;
            b.tensor[8].bytes = plan_packed_bytes(&b.m.plan, &b.tensor[8].pack_spec));
    REFUSED(other, view_weight(&b); b.tensor[8].pack_spec.k += 128;
            b.tensor[8].bytes = plan_packed_bytes(&b.m.plan, &b.tensor[8].pack_spec));
}

/* Code sums: of codes that the same program or an earlier launch stored. */
static void sum_codes(Broken *b)
{
    static const uint64_t at[] = {1024, 1024, 1024}, sum_at[] = {2048, 2048, 2048};
    more_arena(b);
    b->tensor[7] = b->tensor[1];
    b->tensor[7].name = "again";
    b->tensor[7].arena_offset = at;
    b->tensor[8] = (PlanTensor){.name = "sum",
                                .fmt = FMT_I32,
                                .rank = 2,
                                .dim = {{1, 0, {0, -1}}, {0, 1, {-1, -1}}},
                                .storage = STORAGE_ARENA,
                                .arena_offset = sum_at};
    b->m.plan.num_tensors = 9;
    tile_parts(b, 0, 7);
    for (int i = 2; i < 4; i++)
        b->more[i] = b->more[0];
    b->more[2].tensor = 8;
    b->more[3].tensor = 1;
    b->first[1].op = TILE_QUANTIZE;
    b->first[2] = (TileStep){.op = TILE_CODE_SUM, .tensor = 2, .tensor2 = 3};
    b->launch[2].num_operands = 4;
    b->launch[2].whole_rows = true;
    b->launch[2].program.num_steps = 3;
}

static void code_sums_must_be_of_codes(void **state)
{
    (void)state;
    ACCEPTED(sum_codes(&b));
    ACCEPTED(sum_codes(&b); b.first[2].tensor2 = 0);
    REFUSED("it sums no codes", sum_codes(&b); b.first[2].tensor2 = 4);
    REFUSED("it sums no codes", sum_codes(&b); b.first[2].tensor2 = 1);
    REFUSED("code sums are not i32", sum_codes(&b); b.first[2].tensor = 1; b.more[1].tensor = 5);
    REFUSED("needs whole rows", sum_codes(&b); b.launch[2].whole_rows = false);
    REFUSED("row divisor of 0", sum_codes(&b); b.more[3].row_div.add = 0);
}

/* The product's own epilogue quantises y into tensor 7, which launch 2 takes apart again. */
static void quantise_output(Broken *b)
{
    sum_codes(b);
    tile_parts(b, 7, 5);
    b->tensor[7].dim[1].add = 16;
    b->operand[0].tensor = 7;
    b->step[8].op = TILE_QUANTIZE;
    b->operand[4] = b->more[0];
    b->operand[4].tensor = 8;
    b->operand[5] = b->more[0];
    b->operand[5].tensor = 1;
    b->step[9] = (TileStep){.op = TILE_CODE_SUM, .tensor = 4, .tensor2 = 0};
    b->segment[0].epilogue.num_steps = 10;
    b->launch[1].num_operands = 6;
}

static void blocks_must_lie_inside_tiles(void **state)
{
    (void)state;
    ACCEPTED(quantise_output(&b));
    REFUSED("were not stored before", quantise_output(&b); b.step[9].tensor2 = 5);
    REFUSED("do not lie inside a tile", quantise_output(&b); b.tensor[7].scheme.block[0] = 2);
    REFUSED("do not lie inside a tile", quantise_output(&b); b.segment[0].epilogue.num_steps = 9;
            b.segment[0].n_end = PLAN_LAST_COLUMN);
    REFUSED("do not lie inside a tile", quantise_output(&b); b.segment[0].epilogue.num_steps = 9;
            b.segment[0].n_end = PLAN_LAST_COLUMN; b.tensor[7].scheme.block[1] = 3);
    ACCEPTED(quantise_output(&b); b.segment[0].epilogue.num_steps = 9;
             b.segment[0].n_end = PLAN_LAST_COLUMN; b.tensor[7].scheme.block[1] = 8);
    ACCEPTED(quantise_output(&b); b.tensor[7].is_static = true; b.tensor[7].params = 3;
             b.tensor[7].scheme.block[0] = 0);
}

/* More ranges of the arena than the list of their owners first has room for. */
static void many_tensors_are_followed(void **state)
{
    enum { NUM = 200 };
    static PlanTensor tensor[7 + NUM];
    static PlanLaunch launch[2 + NUM];
    static PlanOperand operand[NUM];
    static uint64_t at[NUM][3];
    static const TileStep step[] = {{.op = TILE_CONST}, {.op = TILE_STORE}};
    (void)state;
    Broken b;
    break_begin(&b);
    memcpy(tensor, b.tensor, 7 * sizeof *tensor);
    memcpy(launch, b.launch, 2 * sizeof *launch);
    for (int i = 0; i < NUM; i++) {
        for (int bucket = 0; bucket < 3; bucket++)
            at[i][bucket] = 1024 + 1024 * (uint64_t)i;
        tensor[7 + i] = tensor[5];
        tensor[7 + i].storage = STORAGE_ARENA;
        tensor[7 + i].arena_offset = at[i];
        operand[i] = (PlanOperand){7 + i, {0, 1, {-1, -1}}, {0, 0, {-1, -1}}, 1, false, 0};
        launch[2 + i] = (PlanLaunch){.family = LAUNCH_TILE,
                                     .layer = "fill",
                                     .num_operands = 1,
                                     .operand = &operand[i],
                                     .program = {step, 2}};
    }
    for (int bucket = 0; bucket < 3; bucket++)
        b.arena_bytes[bucket] = 1024 * (NUM + 1);
    b.m.plan.tensor = tensor;
    b.m.plan.num_tensors = 7 + NUM;
    b.m.plan.launch = launch;
    b.m.plan.num_launches = 2 + NUM;
    plan_verdict(&b.m, NULL);
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
    Plan *plan = plan_again(&ok.m, &err);
    if (!plan)
        fail_msg("%s", err.text);
    PlanLayout layout[8];
    assert_true(plan_bind(plan, 2, (int64_t[]){3}, layout, &err));
    assert_int_equal(layout[7].root, 5);
    assert_int_equal(layout[7].at, 32);
    assert_int_equal(layout[7].pitch, 64);
    assert_int_equal(layout[7].bytes, 2 * 64 + 32);
    assert_true(plan_bind(plan, 2, (int64_t[]){0}, layout, &err));
    assert_int_equal(layout[7].bytes, 0);
    assert_false(plan_bind(plan, 1, (int64_t[]){5}, layout, &err));
    assert_false(plan_bind(plan, 1, (int64_t[]){-1}, layout, &err));
    plan_free(plan);
    model_free(&ok.m);
    REFUSED("does not fit", b.tensor[7] = part; b.tensor[7].view_col = 9; b.m.plan.num_tensors = 8);
    REFUSED("nest too deep", b.tensor[7] = part; b.tensor[7].index = 7; b.m.plan.num_tensors = 8);
    REFUSED("another format", b.tensor[7] = part; b.tensor[7].index = 1; b.m.plan.num_tensors = 8);
    REFUSED("another format", b.tensor[7] = part; b.tensor[7].index = 6; b.m.plan.num_tensors = 8);
    REFUSED("another format", b.tensor[7] = part; b.tensor[7].index = 2; b.m.plan.num_tensors = 8);
    REFUSED("out of range", b.tensor[7] = part; b.tensor[7].index = -1; b.m.plan.num_tensors = 8);
    REFUSED("out of range", b.tensor[7] = part; b.tensor[7].index = 8; b.m.plan.num_tensors = 8);
    REFUSED("out of range", b.tensor[7] = part; b.tensor[7].view_col = -1;
            b.m.plan.num_tensors = 8);
    REFUSED("out of range", b.tensor[7] = part; b.tensor[7].view_col = (int64_t)LIMIT_DIM + 1;
            b.m.plan.num_tensors = 8);
    ACCEPTED(view_codes(&b));
    REFUSED("another format", view_codes(&b); b.tensor[7].scheme.block[1] = 4);
    REFUSED("another format", view_codes(&b); b.tensor[7].is_static = true; b.tensor[7].params = 3);
    REFUSED("changes its shape", view_codes(&b); b.tensor[7].dim[1].add = 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_must_be_sound),
        cmocka_unit_test(sizes_must_not_overflow),
        cmocka_unit_test(parameters_must_be_those_of_a_tensor),
        cmocka_unit_test(views_may_leave_outer_scales_out),
        cmocka_unit_test(buckets_must_be_sound),
        cmocka_unit_test(batches_must_lead_ports),
        cmocka_unit_test(programs_must_be_sound),
        cmocka_unit_test(prologues_must_fill_their_activation),
        cmocka_unit_test(prologues_may_read_rows_by_an_index),
        cmocka_unit_test(blocks_must_meet),
        cmocka_unit_test(launches_must_not_clobber),
        cmocka_unit_test(outputs_must_not_be_clobbered),
        cmocka_unit_test(parts_are_the_same_or_apart),
        cmocka_unit_test(moves_must_stay_inside),
        cmocka_unit_test(weights_must_be_decoded_to_what_they_are),
        cmocka_unit_test(weights_are_viewed_as_they_lie),
        cmocka_unit_test(code_sums_must_be_of_codes),
        cmocka_unit_test(blocks_must_lie_inside_tiles),
        cmocka_unit_test(many_tensors_are_followed),
        cmocka_unit_test(views_must_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
