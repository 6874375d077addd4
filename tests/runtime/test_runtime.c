/* libsinter through its public header: buckets, chunks, empty batches, wrong arguments, threads. */
#include "models.h"
#include "runtime/sinter.h"

#include <cmocka.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_ROWS 45

static char dir[] = "/tmp/sinter-runtime-XXXXXX";
static char float_path[64], int8_path[64], mixed_path[64], grouped_path[64];
static TestModel float_model, int8_model, grouped_model;

static int setup(void **state)
{
    (void)state;
    if (!mkdtemp(dir))
        return -1;
    snprintf(float_path, sizeof float_path, "%s/f", dir);
    snprintf(int8_path, sizeof int8_path, "%s/q", dir);
    snprintf(mixed_path, sizeof mixed_path, "%s/mixed", dir);
    snprintf(grouped_path, sizeof grouped_path, "%s/grouped", dir);
    model_float(&float_model);
    model_int8(&int8_model);
    model_grouped(&grouped_model);
    TestModel mixed = float_model;
    mixed.plan.rows_independent = false;
    return model_write(&float_model, float_path, "stub", 4) &&
                   model_write(&int8_model, int8_path, "stub", 4) &&
                   model_write(&mixed, mixed_path, "stub", 4) &&
                   model_write(&grouped_model, grouped_path, "stub", 4)
               ? 0
               : -1;
}

static int teardown(void **state)
{
    (void)state;
    unlink(float_path);
    unlink(int8_path);
    unlink(mixed_path);
    unlink(grouped_path);
    model_free(&float_model);
    model_free(&int8_model);
    model_free(&grouped_model);
    return rmdir(dir);
}

typedef struct Opened {
    SinterModel *model;
    SinterSession *session;
} Opened;

static Opened open_model(const char *path)
{
    Opened o;
    SinterError err;
    if (sinter_open(path, &o.model, &err) ||
        sinter_session_create(o.model, &(SinterSessionOptions){.threads = 1}, &o.session, &err))
        fail_msg("%s", err.text);
    return o;
}

static void close_model(Opened o)
{
    sinter_session_destroy(o.session);
    sinter_close(o.model);
}

/* Integers up to 127; every row reaches 127, so that a per-token scale is 1. */
static void fill_rows(float *x, int64_t rows, int seed)
{
    for (int64_t r = 0; r < rows; r++)
        for (int k = 0; k < MODEL_K; k++)
            x[r * MODEL_K + k] = k == 3 ? 127.0f : (float)((r * 7 + k * 13 + seed * 5) % 101 - 50);
}

static SinterTensor tensor_x(float *x, int64_t rows)
{
    return (SinterTensor){"x", SINTER_F32, 2, {rows, MODEL_K}, x};
}

static SinterTensor tensor_y(float *y, int64_t rows)
{
    return (SinterTensor){"y", SINTER_F32, 2, {rows, MODEL_N}, y};
}

static SinterTensor tensor_z(float *z, int64_t rows)
{
    return (SinterTensor){"z", SINTER_F32, 3, {rows, 2, 8}, z};
}

static void check_float(SinterSession *s, int64_t rows, int seed)
{
    float x[MAX_ROWS * MODEL_K], y[MAX_ROWS * MODEL_N + 1], z[MAX_ROWS * MODEL_N + 1];
    float want[MAX_ROWS * MODEL_N];
    SinterError err;
    fill_rows(x, rows, seed);
    model_expect(&float_model, 2.0f, true, x, rows, want);
    y[rows * MODEL_N] = z[rows * MODEL_N] = -7.0f; /* guards */
    const SinterTensor in = tensor_x(x, rows);
    const SinterTensor out[] = {tensor_z(z, rows), tensor_y(y, rows)}; /* by name */
    if (sinter_run(s, &in, 1, out, 2, &err))
        fail_msg("%s", err.text);
    assert_memory_equal(y, want, (size_t)rows * MODEL_N * sizeof *y);
    for (int64_t r = 0; r < rows; r++)
        for (int i = 0; i < 8; i++)
            for (int p = 0; p < 2; p++)
                assert_true(z[r * 16 + p * 8 + i] == want[r * 16 + i * 2 + p]);
    assert_true(y[rows * MODEL_N] == -7.0f && z[rows * MODEL_N] == -7.0f);
}

static void every_row_count_runs(void **state)
{
    (void)state;
    Opened o = open_model(float_path);
    for (int64_t rows = 1; rows <= MAX_ROWS; rows++)
        check_float(o.session, rows, (int)rows);
    check_float(o.session, 2, 99);
    close_model(o);
}

/* Of one row: its two groups, the larger number first, of equal ones the lower group. */
static void expect_row(const float *x, const float *s, float *y)
{
    int first = 0, second = -1;
    for (int g = 1; g < MODEL_E; g++)
        first = s[g] > s[first] ? g : first;
    for (int g = 0; g < MODEL_E; g++)
        second = g != first && (second < 0 || s[g] > s[second]) ? g : second;
    for (int n = 0; n < MODEL_N; n++) {
        const int chosen[] = {first, second};
        float all = 0, dot = 0;
        for (int k = 0; k < MODEL_K; k++)
            dot += x[k] * grouped_model.w[n][k];
        for (int i = 0; i < 2; i++) {
            float times = (float)(chosen[i] + 1), h = dot * times + grouped_model.bias[n];
            float product = s[chosen[i]] * ((h > 0 ? h : 0) * (1 / times));
            all = i ? all + product : product;
        }
        y[n] = all;
    }
}

/* Few distinct numbers choose: rows of equal ones, groups without rows, all rows in two groups. */
static void rows_go_to_their_groups(void **state)
{
    (void)state;
    Opened o = open_model(grouped_path);
    for (int64_t rows = 0; rows <= 16; rows++)
        for (int distinct = 1; distinct <= 5; distinct++) {
            float x[16 * MODEL_K], s[16 * MODEL_E], y[16 * MODEL_N], want[16 * MODEL_N];
            SinterError err;
            fill_rows(x, rows, distinct);
            for (int i = 0; i < rows * MODEL_E; i++)
                s[i] = (float)(i * i * 7 % 11 % distinct) - 1;
            const SinterTensor in[] = {tensor_x(x, rows), {"s", SINTER_F32, 2, {rows, MODEL_E}, s}};
            const SinterTensor out = tensor_y(y, rows);
            for (int64_t r = 0; r < rows; r++)
                expect_row(x + r * MODEL_K, s + r * MODEL_E, want + r * MODEL_N);
            if (sinter_run(o.session, in, 2, &out, 1, &err))
                fail_msg("%s", err.text);
            assert_memory_equal(y, want, (size_t)rows * MODEL_N * sizeof *y);
        }
    close_model(o);
}

static void quantised_layers_are_exact(void **state)
{
    (void)state;
    Opened o = open_model(int8_path);
    for (int64_t rows = 1; rows <= MAX_ROWS; rows++) {
        float x[MAX_ROWS * MODEL_K], y[MAX_ROWS * MODEL_N], want[MAX_ROWS * MODEL_N];
        SinterError err;
        fill_rows(x, rows, 3);
        model_expect(&int8_model, 0.5f, false, x, rows, want);
        SinterTensor in = tensor_x(x, rows), out = tensor_y(y, rows);
        in.name = out.name = NULL; /* by position */
        if (sinter_run(o.session, &in, 1, &out, 1, &err))
            fail_msg("%s", err.text);
        assert_memory_equal(y, want, (size_t)rows * MODEL_N * sizeof *y);
    }
    close_model(o);
}

/* Files whose parts do not belong together ----------------------------------------------------- */

static void file_refused(const TestModel *cpu, const TestModel *cuda, const char *why)
{
    char path[64];
    SinterModel *model;
    SinterError err = {0};
    snprintf(path, sizeof path, "%s/forged", dir);
    assert_true(model_write_both(cpu, cuda, path, "stub", 4));
    assert_int_equal(sinter_open(path, &model, &err), SINTER_ERROR_FILE);
    assert_null(model);
    if (!strstr(err.text, why))
        fail_msg("got \"%s\", want \"%s\"", err.text, why);
    unlink(path);
}

/* Weights are as large as the target packs them: its name decides how far kernels read. */
static void a_plan_is_for_the_target_of_its_section(void **state)
{
    (void)state;
    TestModel forged = float_model;
    PlanTensor tensor[6];
    memcpy(tensor, forged.plan.tensor, sizeof tensor);
    forged.plan.tensor = tensor;
    forged.plan.target = "portable";
    tensor[2].bytes = plan_packed_bytes(&forged.plan, &tensor[2].pack_spec);
    tensor[3].offset = (tensor[2].bytes + 63) / 64 * 64;
    forged.weights_bytes = tensor[3].offset + tensor[3].bytes;
    file_refused(&forged, NULL,
                 "it is for the target \"portable\", but its section is called \"cpu\"");
    file_refused(&float_model, &float_model, "its section is called \"portable\"");
    forged.plan.target = "toaster";
    file_refused(&forged, NULL, "the target \"toaster\" is unknown");
}

typedef struct Twin { /* model_float for the other target, to be changed in one place */
    TestModel m;
    PlanTensor tensor[6];
    PlanSym sym[1];
    PlanPort input[1], output[2];
    int64_t bucket[3];
} Twin;

static void twin_begin(Twin *t)
{
    t->m = float_model;
    Plan *p = &t->m.plan;
    memcpy(t->tensor, p->tensor, sizeof t->tensor);
    memcpy(t->sym, p->sym, sizeof t->sym);
    memcpy(t->input, p->input, sizeof t->input);
    memcpy(t->output, p->output, sizeof t->output);
    memcpy(t->bucket, p->bucket_size, sizeof t->bucket);
    p->target = "portable";
    p->tensor = t->tensor;
    p->sym = t->sym;
    p->input = t->input;
    p->output = t->output;
    p->bucket_size = t->bucket;
    t->tensor[2].bytes = plan_packed_bytes(p, &t->tensor[2].pack_spec);
    t->tensor[3].offset = (t->tensor[2].bytes + 63) / 64 * 64;
    t->m.weights_bytes = t->tensor[3].offset + t->tensor[3].bytes;
    t->m.weights = calloc(1, (size_t)t->m.weights_bytes);
}

#define TWIN_REFUSED(why, ...)                 \
    do {                                       \
        Twin t;                                \
        twin_begin(&t);                        \
        __VA_ARGS__;                           \
        file_refused(&float_model, &t.m, why); \
        free(t.m.weights);                     \
    } while (0)

/* A session checks its caller's tensors against one plan and runs another. */
static void the_plans_of_a_file_agree(void **state)
{
    (void)state;
    Twin same;
    char path[64];
    SinterModel *model;
    SinterError err;
    twin_begin(&same);
    snprintf(path, sizeof path, "%s/twins", dir);
    assert_true(model_write_both(&float_model, &same.m, path, "stub", 4));
    if (sinter_open(path, &model, &err))
        fail_msg("%s", err.text);
    sinter_close(model);
    unlink(path);
    free(same.m.weights);
    TWIN_REFUSED("bucket 2: B = 16 for cpu, but 4 for portable", t.bucket[2] = 4);
    TWIN_REFUSED("3 buckets of 1 symbols for cpu, but 2 of 1 for portable",
                 t.m.plan.num_buckets = 2);
    TWIN_REFUSED("symbol 0 is B for cpu, but C for portable", t.sym[0].name = "C");
    TWIN_REFUSED("output 0 is \"y\" for cpu, but \"w\" for portable", t.output[0].name = "w");
    TWIN_REFUSED("the types of output \"z\"", t.tensor[5].dim[1].add = 8;
                 t.tensor[5].dim[2].add = 2);
    TWIN_REFUSED("the plan for cpu has 2 outputs, the one for portable 1", t.m.plan.num_outputs = 1;
                 t.m.plan.num_launches = 2; t.tensor[5].storage = STORAGE_VIEW;
                 t.tensor[5].index = 4);
}

static void an_empty_batch_does_nothing(void **state)
{
    (void)state;
    Opened o = open_model(float_path);
    SinterTensor in = tensor_x(NULL, 0), out[] = {tensor_y(NULL, 0), tensor_z(NULL, 0)};
    assert_int_equal(sinter_run(o.session, &in, 1, out, 2, NULL), SINTER_OK);
    close_model(o);
}

static void batches_that_mix_rows_are_not_cut(void **state)
{
    (void)state;
    Opened o = open_model(mixed_path);
    float x[17 * MODEL_K] = {0}, y[17 * MODEL_N], z[17 * MODEL_N];
    SinterTensor in = tensor_x(x, 17), out[] = {tensor_y(y, 17), tensor_z(z, 17)};
    SinterError err = {0};
    assert_int_equal(sinter_run(o.session, &in, 1, out, 2, &err), SINTER_ERROR_ARGUMENT);
    assert_int_equal(err.status, SINTER_ERROR_ARGUMENT);
    assert_non_null(strstr(err.text, "B = 17 exceeds the largest compiled size, 16"));
    assert_non_null(strstr(err.text, "its rows depend on each other"));
    check_float(o.session, 16, 1);
    close_model(o);
}

static void a_model_describes_itself(void **state)
{
    (void)state;
    Opened o = open_model(float_path);
    char text[64];
    assert_string_equal(sinter_model_name(o.model), "hand");
    assert_int_equal(sinter_num_inputs(o.model), 1);
    assert_int_equal(sinter_num_outputs(o.model), 2);
    assert_string_equal(sinter_input(o.model, 0).name, "x");
    assert_int_equal(sinter_output(o.model, 1).rank, 3);
    assert_int_equal(sinter_output(o.model, 1).dim[0], -1);
    assert_int_equal(sinter_output(o.model, 1).dim[2], 8);
    assert_null(sinter_output(o.model, 2).name);
    assert_int_equal(sinter_num_buckets(o.model), 3);
    assert_int_equal(sinter_bucket_size(o.model, 2, 0), 16);
    assert_int_equal(sinter_bucket_size(o.model, 3, 0), 0);
    assert_string_equal(sinter_symbol(o.model, 0), "B");
    assert_string_equal(sinter_port_text(o.model, 1, 1, text, sizeof text), "f32[B, 2, 8]");
    assert_string_equal(sinter_port_text(o.model, 0, 0, text, 6), "f32[B");
    /* one f32 [16, 8], packed in columns of 16, and one f32 [16] */
    assert_int_equal(sinter_weight_bytes(o.model), 4 * 16 * 8 + 4 * 16);
    assert_string_equal(sinter_version(), "0.1.0");
    assert_int_equal(sinter_session_bytes(o.session), 0);
    check_float(o.session, 4, 1);
    assert_true(sinter_session_bytes(o.session) >= 256);
    close_model(o);
}

/* What is asked for beyond the last, or before the first, is nothing. */
static void what_is_not_there_is_nothing(void **state)
{
    (void)state;
    Opened o = open_model(float_path);
    char text[8] = "x";
    int64_t size = 4;
    SinterTensor t;
    SinterError err;
    assert_null(sinter_input(o.model, -1).name);
    assert_null(sinter_input(o.model, 1).name);
    assert_null(sinter_symbol(o.model, -1));
    assert_null(sinter_symbol(o.model, 1));
    assert_int_equal(sinter_bucket_size(o.model, -1, 0), 0);
    assert_int_equal(sinter_bucket_size(o.model, 0, -1), 0);
    assert_int_equal(sinter_bucket_size(o.model, 0, 1), 0);
    assert_int_equal(sinter_bucket_bytes(o.model, -1), 0);
    assert_int_equal(sinter_bucket_bytes(o.model, 3), 0);
    assert_int_equal(sinter_bucket_bytes(o.model, 2), 1024);
    assert_string_equal(sinter_port_text(o.model, 0, 1, text, sizeof text), "");
    assert_null(sinter_port_text(o.model, 0, 0, NULL, 8));
    assert_ptr_equal(sinter_port_text(o.model, 0, 0, text, 0), text);
    assert_int_equal(sinter_port_shape(o.model, 0, 1, &size, &t, &err), SINTER_ERROR_ARGUMENT);
    assert_non_null(strstr(err.text, "there is no input 1"));
    assert_int_equal(sinter_port_shape(o.model, 1, 2, &size, &t, &err), SINTER_ERROR_ARGUMENT);
    assert_non_null(strstr(err.text, "there is no output 2"));
    assert_int_equal(sinter_port_shape(o.model, 0, 0, &size, NULL, &err), SINTER_ERROR_ARGUMENT);
    assert_int_equal(sinter_port_shape(o.model, 0, 0, NULL, &t, &err), SINTER_ERROR_ARGUMENT);
    assert_int_equal(sinter_port_shape(o.model, 0, 0, &size, &t, NULL), SINTER_OK);
    assert_int_equal(t.dim[0], 4);
    size = -1;
    assert_int_equal(sinter_port_shape(o.model, 0, 0, &size, &t, &err), SINTER_ERROR_ARGUMENT);
    size = (int64_t)1 << 31;
    assert_int_equal(sinter_port_shape(o.model, 0, 0, &size, &t, NULL), SINTER_ERROR_ARGUMENT);
    close_model(o);
    for (int i = 0; i <= SINTER_ERROR_UNSUPPORTED; i++)
        assert_string_not_equal(sinter_status_name((SinterStatus)i), "unknown status");
    assert_string_equal(sinter_status_name((SinterStatus)100), "unknown status");
}

static void output_shapes_follow_inputs(void **state)
{
    (void)state;
    Opened o = open_model(float_path);
    SinterTensor in = tensor_x(NULL, 33), out[2] = {{.name = "z"}, {.name = "y"}};
    assert_int_equal(sinter_output_shapes(o.session, &in, 1, out, 2, NULL), SINTER_OK);
    assert_int_equal(out[0].rank, 3);
    assert_int_equal(out[0].dim[0], 33);
    assert_int_equal(out[1].dim[1], MODEL_N);
    assert_int_equal(out[1].dtype, SINTER_F32);
    close_model(o);
}

/* x: f32[B, T, 8] -> y = x + x, likewise; B in [1, 4], T in [8, 16]. */
static void make_two_symbols(TestModel *m)
{
    static const int64_t batch[] = {1, 4}, time[] = {8, 16};
    static const PlanSym syms[] = {{"B", 2, batch}, {"T", 2, time}};
    static const int64_t bucket[] = {1, 8, 1, 16, 4, 8, 4, 16};
    static const uint64_t arena_bytes[4] = {640, 256, 384, 64}; /* more is no larger bucket */
    static const PlanOperand operand[] = {{0, {0, 1, {-1, -1}}, {0, 0, {-1, -1}}, 1, false, 0},
                                          {1, {0, 1, {-1, -1}}, {0, 0, {-1, -1}}, 1, false, 0}};
    static const TileStep step[] = {
        {.op = TILE_LOAD, .dst = 0, .tensor = 0, .tensor2 = TILE_NO_TENSOR},
        {.op = TILE_ADD, .dst = 1, .src = {0, 0}, .tensor = TILE_NO_TENSOR},
        {.op = TILE_STORE, .src = {1}, .tensor = 1, .tensor2 = TILE_NO_TENSOR}};
    static const PlanPort input[] = {{"x", 0}}, output[] = {{"y", 1}};
    static const PlanLaunch launch[] = {{.family = LAUNCH_TILE,
                                         .layer = "twice",
                                         .num_operands = 2,
                                         .operand = operand,
                                         .program = {step, COUNT_OF(step)}}};
    static PlanTensor tensor[2];
    for (int i = 0; i < 2; i++)
        tensor[i] = (PlanTensor){
            .name = i ? "y" : "x",
            .fmt = FMT_F32,
            .rank = 3,
            .dim = {{1, 0, {0, -1}}, {1, 0, {1, -1}}, {0, 8, {-1, -1}}},
            .storage = i ? STORAGE_OUTPUT : STORAGE_INPUT,
        };
    *m = (TestModel){.plan = {.target = "cpu",
                              .num_syms = 2,
                              .num_buckets = 4,
                              .num_tensors = 2,
                              .num_launches = 1,
                              .num_inputs = 1,
                              .num_outputs = 1,
                              .sym = syms,
                              .bucket_size = bucket,
                              .arena_bytes = arena_bytes,
                              .rows_independent = true,
                              .tensor = tensor,
                              .launch = launch,
                              .input = input,
                              .output = output}};
}

static void several_symbols_are_told_apart(void **state)
{
    (void)state;
    TestModel m;
    char path[64];
    SinterError err;
    snprintf(path, sizeof path, "%s/two", dir);
    make_two_symbols(&m);
    assert_true(model_write(&m, path, "stub", 4));
    Opened o = open_model(path);
    unlink(path);
    for (int64_t b = 1; b < 12; b++)
        for (int64_t t = 1; t < 19; t += 4) {
            float x[12 * 19 * 8], y[12 * 19 * 8];
            for (int i = 0; i < 12 * 19 * 8; i++)
                x[i] = (float)i;
            const SinterTensor in = {NULL, SINTER_F32, 3, {b, t, 8}, x};
            const SinterTensor out = {NULL, SINTER_F32, 3, {b, t, 8}, y};
            SinterStatus status = sinter_run(o.session, &in, 1, &out, 1, &err);
            if (t > 16) { /* only the first symbol can be cut */
                assert_int_equal(status, SINTER_ERROR_ARGUMENT);
                assert_non_null(strstr(err.text, "T = 17 exceeds the largest compiled size, 16"));
                continue;
            }
            assert_int_equal(status, SINTER_OK);
            assert_int_equal(sinter_last_run(o.session).bucket, 2 * (b > 1) + (t > 8));
            for (int64_t i = 0; i < b * t * 8; i++)
                assert_true(y[i] == 2.0f * x[i]);
        }
    close_model(o);
}

/* Arguments ------------------------------------------------------------------------------------ */

static SinterSession *wrong_session;

static void refused(SinterTensor in, SinterTensor out0, SinterTensor out1, int num_out,
                    const char *why)
{
    SinterError err = {0};
    const SinterTensor out[] = {out0, out1};
    assert_int_equal(sinter_run(wrong_session, &in, 1, out, num_out, &err), SINTER_ERROR_ARGUMENT);
    if (!strstr(err.text, why))
        fail_msg("got \"%s\", want \"%s\"", err.text, why);
}

static void wrong_arguments_are_refused(void **state)
{
    (void)state;
    Opened o = open_model(float_path);
    float x[4 * MODEL_K] = {0}, y[4 * MODEL_N + 1], z[4 * MODEL_N];
    const SinterTensor in = tensor_x(x, 4), oy = tensor_y(y, 4), oz = tensor_z(z, 4);
    SinterTensor bad;
    wrong_session = o.session;
    refused(in, oy, oz, 1, "the model has 2 outputs, got 1");
    bad = in, bad.name = "xx", refused(bad, oy, oz, 2, "no input \"xx\"; it has \"x\"");
    refused(in, oy, oy, 2, "\"y\" is given twice");
    bad = in, bad.dim[1] = 7, refused(bad, oy, oz, 2, "input \"x\" is f32[B, 8], got f32[4, 7]");
    bad = in, bad.rank = 3, refused(bad, oy, oz, 2, "input \"x\" is f32[B, 8], got f32[4, 8, 0]");
    bad = in, bad.dim[0] = -1, refused(bad, oy, oz, 2, "input \"x\" is f32[B, 8], got");
    bad = in, bad.dtype = SINTER_F16,
    refused(bad, oy, oz, 2, "input \"x\" is f32[B, 8], got f16[4, 8]");
    bad = in, bad.dtype = (SinterDtype)77, refused(bad, oy, oz, 2, "got none[4, 8]");
    bad = in, bad.data = NULL, refused(bad, oy, oz, 2, "the address of \"x\" is NULL");
    bad = oy, bad.data = (char *)y + 1, refused(in, bad, oz, 2, "not aligned");
    bad = oy, bad.dim[0] = 3, refused(in, bad, oz, 2, "output \"y\" is f32[4, 16]");
    bad = oy, bad.data = x, refused(in, bad, oz, 2, "output \"y\" overlaps the memory of \"x\"");
    bad = oz, bad.data = y + 1, refused(in, oy, bad, 2, "overlaps");
    close_model(o);
}

/* What is written to the file later is not seen by a copy, nor is it missed when cut off. */
static void a_copy_stays_as_it_was(void **state)
{
    (void)state;
    char path[64];
    SinterError err;
    Opened o;
    snprintf(path, sizeof path, "%s/copied", dir);
    assert_true(model_write(&float_model, path, "stub", 4));
    if (sinter_open_copy(path, &o.model, &err) ||
        sinter_session_create(o.model, &(SinterSessionOptions){.threads = 1}, &o.session, &err))
        fail_msg("%s", err.text);
    assert_int_equal(truncate(path, 0), 0);
    unlink(path);
    check_float(o.session, 16, 5);
    close_model(o);
    assert_int_equal(sinter_open_copy(path, &o.model, &err), SINTER_ERROR_FILE);
    assert_int_equal(sinter_open_copy(dir, &o.model, &err), SINTER_ERROR_FILE);
}

/* Nothing that is NULL is followed. */
static void null_is_an_argument_like_any_other(void **state)
{
    (void)state;
    Opened o = open_model(float_path);
    SinterError err;
    SinterSession *s;
    SinterTensor t[2] = {{.name = "x"}};
    char text[8] = "full";
    void *at;
    uint64_t bytes;
    const SinterStatus bad = SINTER_ERROR_ARGUMENT;
    assert_int_equal(sinter_open(float_path, NULL, &err), bad);
    assert_int_equal(sinter_session_create(NULL, NULL, &s, &err), bad);
    assert_non_null(strstr(err.text, "the model is NULL"));
    assert_int_equal(sinter_session_create(o.model, NULL, NULL, &err), bad);
    assert_int_equal(sinter_session_create(NULL, NULL, NULL, NULL), bad);
    assert_int_equal(sinter_run(NULL, t, 1, t, 2, &err), bad);
    assert_non_null(strstr(err.text, "the session is NULL"));
    assert_int_equal(sinter_run(o.session, NULL, 1, t, 2, &err), bad);
    assert_int_equal(sinter_run(o.session, t, 1, NULL, 2, &err), bad);
    assert_int_equal(sinter_run_async(NULL, t, 1, t, 2, NULL, NULL), bad);
    assert_int_equal(sinter_output_shapes(NULL, t, 1, t, 2, &err), bad);
    assert_int_equal(sinter_output_shapes(o.session, t, 1, NULL, 2, &err), bad);
    assert_int_equal(sinter_port_memory(NULL, 0, 0, &at, &bytes, &err), bad);
    assert_int_equal(sinter_port_memory(o.session, 0, 0, NULL, &bytes, &err), bad);
    assert_int_equal(sinter_port_shape(NULL, 0, 0, NULL, t, &err), bad);
    assert_int_equal(sinter_port_shape(o.model, 0, 0, NULL, t, &err), bad);
    assert_int_equal(sinter_port_shape(o.model, 0, 0, &(int64_t){1}, NULL, &err), bad);
    assert_string_equal(sinter_model_name(NULL), "");
    assert_int_equal(sinter_num_inputs(NULL) + sinter_num_outputs(NULL), 0);
    assert_int_equal(sinter_num_symbols(NULL) + sinter_num_buckets(NULL), 0);
    assert_null(sinter_input(NULL, 0).name);
    assert_null(sinter_output(NULL, 0).name);
    assert_null(sinter_symbol(NULL, 0));
    assert_int_equal(sinter_bucket_size(NULL, 0, 0), 0);
    assert_int_equal(sinter_bucket_bytes(NULL, 0) + sinter_weight_bytes(NULL), 0);
    assert_string_equal(sinter_port_text(NULL, 0, 0, text, sizeof text), "");
    assert_null(sinter_port_text(o.model, 0, 0, NULL, 8));
    assert_string_equal(sinter_session_device(NULL), "");
    assert_int_equal(sinter_num_launch_times(NULL), 0);
    assert_null(sinter_launch_time(NULL, 0).layer);
    assert_int_equal(sinter_last_run(NULL).pieces, 0);
    assert_int_equal(sinter_session_bytes(NULL), 0);
    sinter_session_trace(NULL, 1);
    sinter_session_destroy(NULL);
    sinter_close(NULL);
    close_model(o);
}

static void device_status(SinterModel *m, const char *device, SinterStatus want, const char *why)
{
    SinterSession *s = NULL;
    SinterError err = {0};
    assert_int_equal(sinter_session_create(m, &(SinterSessionOptions){.device = device}, &s, &err),
                     want);
    assert_null(s);
    if (!strstr(err.text, why))
        fail_msg("got \"%s\", want \"%s\"", err.text, why);
}

static void other_devices_are_refused_with_a_remedy(void **state)
{
    (void)state;
    Opened o = open_model(float_path);
    device_status(o.model, "cuda:0", SINTER_ERROR_UNSUPPORTED, "run it on cpu instead");
    device_status(o.model, "cuda", SINTER_ERROR_UNSUPPORTED,
                  "a plan for cpu alone, none for cuda:0");
    device_status(o.model, "cpu:1", SINTER_ERROR_NO_DEVICE, "no device cpu:1");
    device_status(o.model, "tpu", SINTER_ERROR_NO_DEVICE, "no device \"tpu\"");
    device_status(o.model, "", SINTER_ERROR_ARGUMENT, "does not name a device");
    device_status(o.model, "cuda:x", SINTER_ERROR_ARGUMENT, "does not name a device");
    close_model(o);
    SinterModel *m;
    SinterError err;
    assert_int_equal(sinter_open("/nonexistent", &m, &err), SINTER_ERROR_FILE);
    assert_null(m);
    assert_int_equal(sinter_open(NULL, &m, &err), SINTER_ERROR_FILE); /* this test is no model */
    sinter_close(NULL);
    sinter_session_destroy(NULL);
}

static void traces_list_every_launch(void **state)
{
    (void)state;
    Opened o = open_model(float_path);
    assert_int_equal(sinter_last_run(o.session).pieces, 0);
    check_float(o.session, 4, 1);
    SinterLastRun last = sinter_last_run(o.session);
    assert_true(last.pieces == 1 && last.size == 4);
    assert_int_equal(sinter_bucket_size(o.model, last.bucket, 0), 4);
    assert_int_equal(sinter_num_launch_times(o.session), 0);
    sinter_session_trace(o.session, 1);
    check_float(o.session, 20, 1); /* two pieces: 16 and 4 */
    assert_int_equal(sinter_num_launch_times(o.session), 6);
    last = sinter_last_run(o.session);
    assert_true(last.pieces == 2 && last.size == 20);
    assert_int_equal(sinter_bucket_size(o.model, last.bucket, 0), 16);
    SinterLaunchTime t = sinter_launch_time(o.session, 0);
    assert_string_equal(t.layer, "fc");
    assert_string_equal(t.family, "gemm");
    assert_string_equal(t.place, "m.sinter:3:9");
    assert_true(t.flops == 2.0 * 16 * MODEL_N * MODEL_K);
    assert_true(t.bytes >= 4.0 * (16 * MODEL_K + MODEL_N * MODEL_K + 16 * MODEL_N));
    assert_true(t.start_us >= 0 && t.duration_us >= 0);
    assert_true(sinter_launch_time(o.session, 5).start_us >= t.start_us);
    assert_null(sinter_launch_time(o.session, 6).layer);
    sinter_session_trace(o.session, 0);
    check_float(o.session, 1, 1);
    assert_int_equal(sinter_num_launch_times(o.session), 0);
    close_model(o);
}

/* Threads -------------------------------------------------------------------------------------- */

static void *run_many(void *user)
{
    SinterModel *model = user;
    SinterSession *s;
    SinterError err;
    const SinterSessionOptions options = {.threads = 1};
    if (sinter_session_create(model, &options, &s, &err))
        return "session";
    const char *failed = NULL;
    for (int64_t i = 0; !failed && i < 200; i++) {
        float x[MAX_ROWS * MODEL_K], y[MAX_ROWS * MODEL_N], z[MAX_ROWS * MODEL_N];
        float want[MAX_ROWS * MODEL_N];
        int64_t rows = 1 + i % MAX_ROWS;
        fill_rows(x, rows, (int)i);
        model_expect(&float_model, 2.0f, true, x, rows, want);
        const SinterTensor in = tensor_x(x, rows), out[] = {tensor_y(y, rows), tensor_z(z, rows)};
        if (sinter_run(s, &in, 1, out, 2, &err))
            failed = "run";
        else if (memcmp(y, want, (size_t)rows * MODEL_N * sizeof *y))
            failed = "result";
    }
    sinter_session_destroy(s);
    return (void *)(uintptr_t)failed;
}

static void sessions_of_one_model_run_at_once(void **state)
{
    (void)state;
    Opened o = open_model(float_path);
    pthread_t thread[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, run_many, o.model), 0);
    for (int i = 0; i < 4; i++) {
        void *failed;
        assert_int_equal(pthread_join(thread[i], &failed), 0);
        if (failed)
            fail_msg("%s", (char *)failed);
    }
    close_model(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_count_runs),
        cmocka_unit_test(rows_go_to_their_groups),
        cmocka_unit_test(quantised_layers_are_exact),
        cmocka_unit_test(a_plan_is_for_the_target_of_its_section),
        cmocka_unit_test(the_plans_of_a_file_agree),
        cmocka_unit_test(an_empty_batch_does_nothing),
        cmocka_unit_test(batches_that_mix_rows_are_not_cut),
        cmocka_unit_test(a_model_describes_itself),
        cmocka_unit_test(what_is_not_there_is_nothing),
        cmocka_unit_test(output_shapes_follow_inputs),
        cmocka_unit_test(several_symbols_are_told_apart),
        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(a_copy_stays_as_it_was),
        cmocka_unit_test(null_is_an_argument_like_any_other),
        cmocka_unit_test(other_devices_are_refused_with_a_remedy),
        cmocka_unit_test(traces_list_every_launch),
        cmocka_unit_test(sessions_of_one_model_run_at_once),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
