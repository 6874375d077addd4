/* Plans: what is written reads back the same, and what cannot be read is refused. */
#include "verdict.h"

#include <cmocka.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef void (*ModelMaker)(TestModel *m);

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
    static const ModelMaker maker[] = {model_float, model_int8, model_routed};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(maker); i++) {
        TestModel m;
        IoError err = {0};
        maker[i](&m);
        Plan *plan = plan_again(&m, &err);
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

/* The buffer grows by doubling, and what no plan may hold is not written. */
static void long_names_are_written(void **state)
{
    (void)state;
    TestModel m;
    IoError err = {0};
    char *name = malloc(20001);
    memset(name, 'n', 20000);
    name[20000] = '\0';
    model_int8(&m);
    m.plan.launch = memcpy(malloc(2 * sizeof(PlanLaunch)), m.plan.launch, 2 * sizeof(PlanLaunch));
    ((PlanLaunch *)(uintptr_t)m.plan.launch)[0].layer = name;
    Plan *plan = plan_again(&m, &err);
    if (!plan)
        fail_msg("%s", err.text);
    assert_string_equal(plan->launch[0].layer, name);
    plan_free(plan);
    ((PlanLaunch *)(uintptr_t)m.plan.launch)[0].family = NUM_LAUNCH_FAMILIES;
    Bytes b;
    assert_false(plan_encode(&m.plan, &b));
    assert_null(b.data);
    free((void *)(uintptr_t)m.plan.launch);
    free(name);
    model_free(&m);
}

/* 65,536 symbols without names or sizes, and as many buckets. */
static void buckets_times_symbols_have_a_limit(void **state)
{
    const uint32_t num = 65536, begin[] = {0x4e4c5053, 1, 0, num};
    size_t size = sizeof begin + num * 8 + 4 + num * 8;
    uint8_t *data = calloc(1, size);
    IoError err = {0};
    (void)state;
    memcpy(data, begin, sizeof begin);
    memcpy(data + sizeof begin + num * 8, &num, 4);
    assert_null(plan_decode(data, size, 0, &err));
    assert_non_null(strstr(err.text, "too many buckets"));
    free(data);
}

/* The plans of one file agree in what their callers see. */
static void disagree(const char *why, const Plan *a, const PlanTensor *tensor, int num_syms)
{
    IoError err = {0};
    Plan b = *a;
    b.tensor = tensor;
    b.num_syms = num_syms;
    assert_false(plans_agree(a, &b, &err));
    assert_non_null(strstr(err.text, why));
}

static void other_types_of_ports_disagree(void **state)
{
    static const char why[] = "the types of input \"x\"";
    (void)state;
    TestModel m;
    IoError err = {0};
    model_int8(&m);
    const PlanTensor *have = m.plan.tensor;
    PlanTensor t[8];
    const size_t size = (size_t)m.plan.num_tensors * sizeof *t;
    memcpy(t, have, size);
    Plan same = m.plan;
    same.tensor = t;
    assert_true(plans_agree(&m.plan, &same, &err));
    disagree("3 buckets of 1 symbols for cpu, but 3 of 0", &m.plan, t, 0);
    t[0].fmt = FMT_F16;
    disagree(why, &m.plan, t, 1);
    memcpy(t, have, size);
    t[0].rank = 1;
    disagree(why, &m.plan, t, 1);
    for (int i = 0; i < 4; i++) {
        memcpy(t, have, size);
        PlanDim *d = &t[0].dim[0];
        if (i < 2)
            *(i ? &d->mul : &d->add) += 1;
        else
            d->sym[i - 2]--;
        disagree(why, &m.plan, t, 1);
    }
    model_free(&m);
}

static void gpus_take_the_first_class_that_serves_them(void **state)
{
    static const struct {
        int capability;
        const char *name;
    } cases[] = {{90, "sm_90a"},    {80, "portable"}, {89, "portable"},
                 {120, "portable"}, {75, "turing"},   {70, NULL}};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const CodeClass *c = code_class_for(cases[i].capability);
        assert_int_equal(c != NULL, cases[i].name != NULL);
        if (c)
            assert_string_equal(c->name, cases[i].name);
    }
}

static void constants_count_as_weights(void **state)
{
    (void)state;
    TestModel m;
    model_int8(&m);
    const PlanTensor *t = m.plan.tensor;
    assert_int_equal(plan_weight_bytes(&m.plan), t[2].bytes + t[3].bytes + t[4].bytes);
    model_free(&m);
}

/* Specs that differ in one field are not equal. */
static void specs_must_be_equal_in_all(void **state)
{
    const CpuPackSpec spec = {.fmt = FMT_I4,
                              .act_fmt = FMT_I8,
                              .n = 8,
                              .k = 128,
                              .parts = 1,
                              .block_rows = 1,
                              .block_cols = 32,
                              .act_block_cols = 32,
                              .scale_fmt = FMT_F32};
    CpuPackSpec other[14];
    (void)state;
    for (size_t i = 0; i < COUNT_OF(other); i++)
        other[i] = spec;
    other[0].fmt = FMT_U4;
    other[1].act_fmt = FMT_BF16;
    other[2].n = 16;
    other[3].k = 256;
    other[4].parts = 2;
    other[5].mainloop = true;
    other[6].has_zero = true;
    other[7].act_zero = true;
    other[8].block_rows = 2;
    other[9].block_cols = 64;
    other[10].act_block_cols = 64;
    other[11].scale_fmt = FMT_F16;
    other[12].table = TABLE_ROW;
    other[13].layout = 1;
    assert_true(pack_spec_equal(&spec, &spec));
    for (size_t i = 0; i < COUNT_OF(other); i++)
        assert_false(pack_spec_equal(&spec, &other[i]));
}

/* How GPUs hold codes of each kind, as docs/file.md has it. */
static void codes_lie_as_gpus_hold_them(void **state)
{
    static const struct {
        CpuPackSpec spec;
        FormatId fmt;
        int bits;
        TableKind table;
        bool has_zero;
    } row[] = {
        {{.fmt = FMT_I8, .k = 128, .layout = CUDA_RECORDS}, FMT_I8, 0, TABLE_NONE, false},
        {{.fmt = FMT_I3, .k = 128, .layout = CUDA_RECORDS}, FMT_I4, 3, TABLE_NONE, false},
        {{.fmt = FMT_BINARY, .k = 128, .layout = CUDA_RECORDS}, FMT_I4, 1, TABLE_NONE, false},
        {{.fmt = FMT_BINARY, .k = 96, .layout = CUDA_RECORDS}, FMT_I4, 0, TABLE_NONE, false},
        {{.fmt = FMT_U3, .k = 128, .table = TABLE_TENSOR, .layout = CUDA_RECORDS},
         FMT_NF4,
         3,
         TABLE_TENSOR,
         false},
        {{.fmt = FMT_U4, .k = 128, .table = TABLE_TENSOR, .layout = CUDA_RECORDS},
         FMT_NF4,
         0,
         TABLE_TENSOR,
         false},
        {{.fmt = FMT_U3, .k = 96, .table = TABLE_TENSOR, .layout = CUDA_RECORDS},
         FMT_U3,
         0,
         TABLE_TENSOR,
         false},
        {{.fmt = FMT_U8, .k = 128, .table = TABLE_TENSOR, .layout = CUDA_RECORDS},
         FMT_U8,
         0,
         TABLE_TENSOR,
         false},
        {{.fmt = FMT_U3, .k = 128, .table = TABLE_ROW, .layout = CUDA_BITS},
         FMT_U3,
         0,
         TABLE_ROW,
         false},
        {{.fmt = FMT_I4, .k = 128, .layout = CUDA_BITS}, FMT_I4, 0, TABLE_TENSOR, false},
        {{.fmt = FMT_U4, .k = 128, .has_zero = true, .layout = CUDA_BITS},
         FMT_U4,
         0,
         TABLE_BLOCK,
         false},
        {{.fmt = FMT_U4, .k = 128, .has_zero = true, .layout = CUDA_RECORDS},
         FMT_U4,
         0,
         TABLE_NONE,
         true},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(row); i++) {
        CudaPackSpec got = plan_cuda_spec(&row[i].spec);
        if (got.fmt != row[i].fmt || got.bits != row[i].bits || got.table != row[i].table ||
            got.has_zero != row[i].has_zero)
            fail_msg("row %zu: format %d, %d bits, table %d, zero %d", i, (int)got.fmt, got.bits,
                     (int)got.table, got.has_zero);
    }
}

/* A plan's code with `first` for its launch number `at`; what decoding says of it, NULL: nothing.
 */
static const char *refusal(const Plan *plan, int at, DeviceRuns first, int fetches)
{
    static const char *const kernel[] = {"k_1"};
    static char said[512];
    DeviceLaunch launch[16];
    assert_true(plan->num_launches * plan->num_buckets <= (int)COUNT_OF(launch));
    for (int i = 0; i < plan->num_launches * plan->num_buckets; i++)
        launch[i] = (DeviceLaunch){.grid = 1, .block = 32};
    launch[at * plan->num_buckets].first = first;
    launch[at * plan->num_buckets].looks_ahead = fetches;
    const DeviceCode code = {.num_kernels = 1,
                             .num_launches = plan->num_launches,
                             .num_buckets = plan->num_buckets,
                             .kernel = kernel,
                             .launch = launch};
    Bytes b;
    IoError err = {0};
    assert_true(device_code_encode(&code, &b));
    DeviceCode *got = device_code_decode(b.data, b.size, plan, &err);
    if (got)
        assert_memory_equal(&got->launch[at * plan->num_buckets].first, &first, sizeof first);
    snprintf(said, sizeof said, "%s", err.text);
    bool is_read = got != NULL;
    device_code_free(got);
    bytes_free(&b);
    return is_read ? NULL : said;
}

static void what_is_fetched_early_lies_in_the_weight(void **state)
{
    TestModel m;
    (void)state;
    model_float(&m);
    const Plan *plan = &m.plan;
    int gemm = 0, other = 1;
    assert_int_equal(plan->launch[gemm].family, LAUNCH_GEMM);
    assert_int_not_equal(plan->launch[other].family, LAUNCH_GEMM);
    int32_t all = (int32_t)plan->tensor[plan->launch[gemm].w].bytes;
    const struct {
        int at;
        DeviceRuns first;
        int fetches;
        bool is_read;
    } row[] = {
        {gemm, {0}, 1, true},
        {gemm, {.stride = 64, .runs = 2, .bytes = 32}, 0, true},
        {gemm, {.stride = 0, .runs = 1, .bytes = all}, 0, true},
        {gemm, {.stride = 16, .runs = all / 16, .bytes = 16}, 0, true},
        {gemm, {.stride = 16, .runs = all / 16 + 1, .bytes = 16}, 0, false},
        {gemm, {.stride = 0, .runs = 1, .bytes = all + 16}, 0, false},
        {gemm, {.stride = INT64_MAX / 16 * 16, .runs = 2, .bytes = 16}, 0, false},
        {gemm, {.stride = 64, .runs = -1, .bytes = 16}, 0, false},
        {gemm, {.stride = 64, .runs = 1, .bytes = -16}, 0, false},
        {gemm, {.stride = -64, .runs = 2, .bytes = 16}, 0, false},
        {gemm, {.stride = 64, .runs = 2, .bytes = 24}, 0, false},
        {gemm, {.stride = 40, .runs = 2, .bytes = 16}, 0, false},
        {gemm, {0}, 2, false},
        {other, {.stride = 64, .runs = 1, .bytes = 16}, 0, false},
    };
    for (size_t i = 0; i < COUNT_OF(row); i++) {
        const char *said = refusal(plan, row[i].at, row[i].first, row[i].fetches);
        if (row[i].is_read ? said != NULL : !said || !strstr(said, "out of range"))
            fail_msg("row %zu: %s", i, said ? said : "read");
    }
    model_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_reads_back),
        cmocka_unit_test(a_plan_prints_as_text),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(changed_bytes_are_refused_or_harmless),
        cmocka_unit_test(long_names_are_written),
        cmocka_unit_test(buckets_times_symbols_have_a_limit),
        cmocka_unit_test(constants_count_as_weights),
        cmocka_unit_test(other_types_of_ports_disagree),
        cmocka_unit_test(gpus_take_the_first_class_that_serves_them),
        cmocka_unit_test(specs_must_be_equal_in_all),
        cmocka_unit_test(codes_lie_as_gpus_hold_them),
        cmocka_unit_test(what_is_fetched_early_lies_in_the_weight),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
