/* test_cuda <fakecuda.so> <profiler.so>: the CUDA device over the fake driver: drivers that are
 * missing or too old, results, padding, device memory, asynchronous runs, traces, every error at
 * every call, and sessions on several threads. */
#include "profiler.h"
#include "runtime/cuda.h"

#include "cuda_rig.h"

#include <cmocka.h>
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Drivers -------------------------------------------------------------------------------------- */

/* Before any other: a driver that was loaded stays. */
static void test_bad_drivers(void **state)
{
    (void)state;
    setenv("SINTER_LIBCUDA", "/nonexistent/libcuda.so.1", 1);
    const char *text = refusal("cuda:0", SINTER_ERROR_NO_DEVICE);
    assert_says(text, "there is no NVIDIA driver");
    assert_says(text, "run on the device cpu");

    setenv("SINTER_LIBCUDA", "libm.so.6", 1);
    text = refusal("cuda:0", SINTER_ERROR_NO_DEVICE);
    assert_says(text, "the NVIDIA driver has no cuInit");

    setenv("SINTER_LIBCUDA", fake_path, 1);
    FakeOptions options = {.version = 11080, .devices = 1, .capability = 90, .memory = 1 << 20};
    reset(&options);
    text = refusal("cuda:0", SINTER_ERROR_NO_DEVICE);
    assert_says(text, "made for CUDA 11.8, but 12.0 or newer is needed");
    assert_says(text, "update");

    options.version = 12080;
    options.fail_function = "cuInit";
    options.fail_call = 1;
    static const struct {
        int result;
        const char *says;
    } init[] = {{DRV_ERROR_NO_DEVICE, "no GPU"},
                {DRV_ERROR_SYSTEM_DRIVER_MISMATCH, "differ in version"},
                {DRV_ERROR_UNKNOWN, "nvidia-smi may say why"}};
    for (size_t i = 0; i < COUNT_OF(init); i++) {
        options.fail_result = init[i].result;
        reset(&options);
        assert_says(refusal("cuda:0", SINTER_ERROR_NO_DEVICE), init[i].says);
    }

    /* without a device named, the processor takes over */
    options.fail_call = 1;
    reset(&options);
    const SinterSessionOptions any = {0};
    Opened o;
    SinterError err;
    assert_int_equal(try_open(path, &any, &o, &err), SINTER_OK);
    assert_string_equal(sinter_session_device(o.session), "cpu");
    assert_says(sinter_session_note(o.session), "nvidia-smi may say why");
    close_model(o);
    reset(&options);
    text = refusal_of(gpu_path, NULL, SINTER_ERROR_NO_DEVICE);
    assert_says(text, "to run on the processor, compile the model with --target=cpu,sm_90a");
    assert_nothing_left();
}

static void test_devices(void **state)
{
    (void)state;
    FakeOptions options = {
        .version = 12080, .devices = 2, .capability = 90, .max_shared = 232448, .memory = 1 << 20};
    reset(&options);
    const char *text = refusal("cuda:2", SINTER_ERROR_NO_DEVICE);
    assert_says(text, "there is no device cuda:2: the driver shows 2 GPUs");
    assert_says(refusal("cuda:x", SINTER_ERROR_ARGUMENT), "does not name a device");

    options.capability = 75; /* neither sm_90a nor portable */
    reset(&options);
    text = refusal("cuda:0", SINTER_ERROR_UNSUPPORTED);
    assert_says(text, "fake GPU 0 of compute capability 7.5");
    assert_says(text, "the compiled file holds a plan for cpu, sm_90a and portable; compile the "
                      "model with --target=turing,cpu,sm_90a,portable");
    options.capability = 89;
    reset(&options);
    text = refusal_of(gpu_path, "cuda", SINTER_ERROR_UNSUPPORTED);
    assert_says(text, "holds a plan for sm_90a; compile the model with --target=portable,sm_90a");
    text = refusal_of(gpu_path, NULL, SINTER_ERROR_UNSUPPORTED);
    assert_says(text, "to run on the processor, compile the model with --target=cpu,sm_90a");
    options.capability = 70;
    reset(&options);
    text = refusal_of(gpu_path, "cuda", SINTER_ERROR_UNSUPPORTED);
    assert_says(text, "nothing can be compiled for it");
    text = refusal_of(gpu_path, "cpu", SINTER_ERROR_UNSUPPORTED);
    assert_says(text, "holds a plan for sm_90a, none for the processor; compile the model with "
                      "--target=cpu,sm_90a");

    options.capability = 90;
    options.max_shared = 49152;
    reset(&options);
    Opened o = open_model(path); /* kernels load when they first run */
    static Data d;
    SinterError err;
    data_make(&d, 4, 1);
    assert_int_equal(sinter_run(o.session, &d.in, 1, d.out, 2, &err), SINTER_ERROR_UNSUPPORTED);
    assert_says(err.text, "needs 65536 bytes of shared memory, fake GPU 0 has 49152");
    close_model(o);

    options.max_shared = 232448;
    options.memory = 100;
    reset(&options);
    text = refusal("cuda:1", SINTER_ERROR_MEMORY);
    assert_says(text, "bytes of weights, of which 100 are free");
    assert_says(text, "cuda:1");

    fresh();
    Opened two = {0};
    assert_int_equal(sinter_open(path, &two.model, &err), SINTER_OK);
    assert_int_equal(
        sinter_session_create(two.model, &(SinterSessionOptions){0}, &two.session, &err),
        SINTER_OK);
    assert_string_equal(sinter_session_device(two.session), "cuda:0");
    assert_null(sinter_session_note(two.session));
    close_model(two);
    assert_nothing_left();
}

static int count_lines(const char *prefix)
{
    int num = 0;
    for (const char *line = get_log(); *line;) {
        num += !strncmp(line, prefix, strlen(prefix));
        const char *end = strchr(line, '\n');
        line = end ? end + 1 : line + strlen(line);
    }
    return num;
}

static int count_text(const char *part)
{
    int num = 0;
    for (const char *at = get_log(); (at = strstr(at, part)); at += strlen(part))
        num++;
    return num;
}

/* Which image each GPU gets, and whether kernels may start before their producers end. */
static void test_images(void **state)
{
    (void)state;
    static const struct {
        int capability, version;
        const char *forced;
        bool ptx, early;
    } row[] = {{90, 12080, NULL, false, true}, {90, 12020, NULL, false, false},
               {90, 12080, "1", true, false},  {90, 12080, "0", false, true},
               {89, 12080, NULL, true, false}, {100, 12080, NULL, true, false}};
    for (size_t i = 0; i < COUNT_OF(row); i++) {
        FakeOptions options = {.version = row[i].version,
                               .devices = 1,
                               .capability = row[i].capability,
                               .max_shared = 232448,
                               .memory = 1 << 20};
        reset(&options);
        SinterStatus ignored;
        SinterError err;
        Driver *d = (Driver *)(uintptr_t)driver_get(&ignored, &err);
        d->version = row[i].version; /* as if this driver had been loaded */
        if (row[i].forced)
            setenv("CUDA_FORCE_PTX_JIT", row[i].forced, 1);
        else
            unsetenv("CUDA_FORCE_PTX_JIT");
        Opened o = open_model(path);
        run_rows(o, 4, 3);
        assert_int_equal(count_lines(row[i].ptx ? "load ptx" : "load cubin"), 3);
        assert_int_equal(count_text(" early"), row[i].early ? 2 : 0);
        close_model(o);
        assert_nothing_left();
        d->version = 12080;
    }
    unsetenv("CUDA_FORCE_PTX_JIT");
}

/* Runs ----------------------------------------------------------------------------------------- */

static void test_results(void **state)
{
    (void)state;
    fresh();
    Opened o = open_model(path);
    for (int64_t rows = 1; rows <= MAX_ROWS; rows++)
        run_rows(o, rows, (int)rows);
    assert_int_equal(count_lines("capture"), 6); /* three begun, three ended */
    assert_true(sinter_session_bytes(o.session) > 0);
    close_model(o);
    assert_nothing_left();
}

static const char *log_of_run(Opened o, int64_t rows)
{
    fresh();
    run_rows(o, rows, 7);
    return get_log();
}

static void test_launch_list(void **state)
{
    (void)state;
    fresh();
    Opened o = open_model(path);
    assert_string_equal(log_of_run(o, 3), "to device 96\n"
                                          "zero 32\n"
                                          "load cubin\n"
                                          "load cubin\n"
                                          "load cubin\n"
                                          "capture\n"
                                          "launch gemm_4 grid 3 block 128 shared 65536 count 4\n"
                                          "launch tile_2 grid 3 block 128 shared 0 count 4 early\n"
                                          "launch move_2 grid 3 block 128 shared 0 count 64 early\n"
                                          "captured 3\n"
                                          "graph of 3\n"
                                          "from device 192\n"
                                          "from device 192\n");
    assert_string_equal(log_of_run(o, 4), "to device 128\n"
                                          "graph of 3\n"
                                          "from device 256\n"
                                          "from device 256\n");
    /* chunks of the largest bucket, and the smallest for the rest */
    assert_string_equal(log_of_run(o, 17),
                        "to device 512\n"
                        "load cubin\n"
                        "capture\n"
                        "launch wide_4 grid 3 block 128 shared 65536 count 16\n"
                        "launch tile_2 grid 3 block 128 shared 0 count 16 early\n"
                        "launch move_2 grid 3 block 128 shared 0 count 256 early\n"
                        "captured 3\n"
                        "graph of 3\n"
                        "from device 1024\n"
                        "from device 1024\n"
                        "to device 32\n"
                        "capture\n"
                        "launch gemm_4 grid 3 block 128 shared 65536 count 1\n"
                        "launch tile_2 grid 3 block 128 shared 0 count 1 early\n"
                        "launch move_2 grid 3 block 128 shared 0 count 16 early\n"
                        "captured 3\n"
                        "graph of 3\n"
                        "from device 64\n"
                        "from device 64\n");
    close_model(o);
    assert_nothing_left();
}

/* Rows that depend on each other are not padded: launches get the actual sizes. */
static void test_actual_sizes(void **state)
{
    (void)state;
    fresh();
    Opened o = open_model(mixed_path);
    run_rows(o, 4, 1);
    assert_string_equal(log_of_run(o, 3), "to device 96\n"
                                          "launch gemm_4 grid 3 block 128 shared 65536 count 3\n"
                                          "launch tile_2 grid 3 block 128 shared 0 count 3 early\n"
                                          "launch move_2 grid 3 block 128 shared 0 count 48 early\n"
                                          "from device 192\n"
                                          "from device 192\n");
    run_rows(o, 3, 2);
    run_rows(o, 4, 2);
    close_model(o);
    assert_nothing_left();
}

/* Tensor maps are encoded when sizes are bound, not when launches are repeated; 132 processors hold
 * 66 clusters. The last product fetches ahead for the next run, which begins with itself; behind it
 * comes a launch of one block a processor, but not in the smallest bucket. */
static void test_maps(void **state)
{
    (void)state;
    static const char launches[] =
        "ahead 2 runs of 32, 64 apart, of operand 3, blocks alone\n"
        "launch mapped_4 grid 132 block 128 shared 65536 cluster 2 count 3\n"
        "launch tile_2 grid 3 block 128 shared 0 count 3 early\n"
        "launch move_2 grid 3 block 128 shared 0 count 48 early\n";
    char text[512];
    fresh();
    Opened o = open_model(map_path);
    run_rows(o, 4, 1);
    assert_int_equal(count_lines("map 4 x 8 of 4 bytes, pitch 32, box 2 x 8, swizzle 1"), 1);
    assert_int_equal(count_lines("launch mapped_4 grid 132 block 128 shared 65536 cluster 2"), 1);
    assert_string_equal(log_of_run(o, 4), "to device 128\n"
                                          "graph of 3\n"
                                          "from device 256\n"
                                          "from device 256\n");
    snprintf(text, sizeof text, "to device 96\n%s%sfrom device 192\nfrom device 192\n",
             "map 3 x 8 of 4 bytes, pitch 32, box 2 x 8, swizzle 1\n", launches);
    assert_string_equal(log_of_run(o, 3), text);
    snprintf(text, sizeof text, "to device 96\n%sfrom device 192\nfrom device 192\n", launches);
    assert_string_equal(log_of_run(o, 3), text);
    const char *smallest = log_of_run(o, 1);
    assert_non_null(strstr(smallest, "of operand 3\n"));
    assert_null(strstr(smallest, "blocks alone"));
    close_model(o);
    assert_nothing_left();
}

static void test_prepare(void **state)
{
    (void)state;
    fresh();
    Opened o;
    SinterError err;
    const SinterSessionOptions options = {.device = "cuda:0", .prepare = 1};
    assert_int_equal(try_open(path, &options, &o, &err), SINTER_OK);
    assert_int_equal(get_counts().uploads, 3);
    assert_int_equal(get_counts().loads, 4);
    assert_string_equal(log_of_run(o, 16), "to device 512\n"
                                           "graph of 3\n"
                                           "from device 1024\n"
                                           "from device 1024\n");
    close_model(o);
    assert_nothing_left();
}

static void test_weights(void **state)
{
    (void)state;
    fresh();
    Opened o = open_model(large_path);
    const ModelTarget *t = model_target(o.model, "sm_90a");
    const CudaModel *on_gpu = t->shared.state;
    assert_memory_equal((const void *)(uintptr_t)on_gpu->weights, o.model->weights, MANY_BYTES);
    SinterSession *second;
    SinterError err;
    assert_int_equal(sinter_session_create(o.model, &on_cuda, &second, &err), SINTER_OK);
    assert_int_equal(count_lines("alloc 20971520"), 1); /* once for both */
    sinter_session_destroy(second);
    run_rows(o, 5, 5);
    close_model(o);
    assert_nothing_left();
}

/* Tensors in device memory: another session's ports. */
static void test_device_memory(void **state)
{
    (void)state;
    static Data d;
    SinterError err;
    fresh();
    Opened o = open_model(path), lender = open_model(path);
    void *x, *y, *z, *own_x, *own_y;
    uint64_t bytes;
    assert_int_equal(sinter_port_memory(lender.session, 0, 0, &x, &bytes, &err), SINTER_OK);
    assert_int_equal(bytes, 16 * MODEL_K * 4);
    assert_int_equal(sinter_port_memory(lender.session, 1, 0, &y, &bytes, &err), SINTER_OK);
    assert_int_equal(sinter_port_memory(lender.session, 1, 1, &z, &bytes, &err), SINTER_OK);
    assert_int_equal(bytes, 16 * MODEL_N * 4);
    assert_int_equal(sinter_port_memory(o.session, 0, 0, &own_x, &bytes, &err), SINTER_OK);
    assert_int_equal(sinter_port_memory(o.session, 1, 0, &own_y, &bytes, &err), SINTER_OK);
    assert_int_equal(sinter_port_memory(o.session, 1, 2, &own_y, &bytes, &err),
                     SINTER_ERROR_ARGUMENT);
    assert_int_equal(sinter_port_memory(o.session, 1, 0, &own_y, &bytes, &err), SINTER_OK);
    run_rows(o, 2, 0);

    data_make(&d, 2, 4);
    memcpy(x, d.x, 2 * MODEL_K * 4);
    d.in.data = x;
    d.out[0].data = y;
    d.out[1].data = z;
    reset(NULL);
    assert_int_equal(sinter_run(o.session, &d.in, 1, d.out, 2, &err), SINTER_OK);
    assert_string_equal(get_log(), "copy 64\nzero 64\ngraph of 3\ncopy 128\ncopy 128\n");
    memcpy(d.y, y, 2 * MODEL_N * 4);
    memcpy(d.z, z, 2 * MODEL_N * 4);
    data_check(&d);

    data_make(&d, 4, 9); /* where the session has its ports: no copies */
    memcpy(own_x, d.x, 4 * MODEL_K * 4);
    d.in.data = own_x;
    d.out[0].data = own_y;
    reset(NULL);
    assert_int_equal(sinter_run(o.session, &d.in, 1, d.out, 2, &err), SINTER_OK);
    assert_string_equal(get_log(), "graph of 3\nfrom device 256\n");
    memcpy(d.y, own_y, 4 * MODEL_N * 4);
    data_check(&d);
    close_model(o);
    close_model(lender);

    Opened cpu;
    assert_int_equal(try_open(path, &(SinterSessionOptions){.device = "cpu"}, &cpu, &err),
                     SINTER_OK);
    assert_int_equal(sinter_port_memory(cpu.session, 0, 0, &x, &bytes, &err),
                     SINTER_ERROR_UNSUPPORTED);
    assert_null(x);
    close_model(cpu);
    assert_nothing_left();
}

static void test_async(void **state)
{
    (void)state;
    static Data d;
    SinterError err;
    fresh();
    Opened o = open_model(path);
    data_make(&d, 4, 2);
    assert_int_equal(sinter_run_async(o.session, &d.in, 1, d.out, 2, NULL, &err), SINTER_OK);
    data_check(&d); /* the fake does everything at once */
    reset(NULL);
    data_make(&d, 4, 3);
    assert_int_equal(sinter_run_async(o.session, &d.in, 1, d.out, 2, NULL, &err), SINTER_OK);
    assert_int_equal(count_lines("wait"), 1); /* for the run before */
    run_rows(o, 4, 8);
    assert_int_equal(count_lines("wait"), 2);
    run_rows(o, 4, 8);
    assert_int_equal(count_lines("wait"), 2);
    close_model(o);
    assert_nothing_left();
}

static void test_trace(void **state)
{
    (void)state;
    fresh();
    Opened o = open_model(path);
    sinter_session_trace(o.session, 1);
    run_rows(o, 3, 1);
    assert_int_equal(sinter_num_launch_times(o.session), 3);
    double end = 0;
    for (int i = 0; i < 3; i++) {
        SinterLaunchTime t = sinter_launch_time(o.session, i);
        assert_string_equal(t.layer, i == 0 ? "fc" : i == 1 ? "twice" : "swap");
        assert_true(t.duration_us == 250.0 && t.bytes > 0);
        assert_true(i == 0 || t.start_us >= end - 1e-6);
        end = t.start_us + t.duration_us;
    }
    assert_int_equal(get_counts().graph_launches, 0);
    assert_int_equal(count_text(" early"), 0);
    run_rows(o, 20, 1); /* two pieces */
    assert_int_equal(sinter_num_launch_times(o.session), 6);
    sinter_session_trace(o.session, 0);
    run_rows(o, 3, 1);
    assert_int_equal(sinter_num_launch_times(o.session), 0);
    assert_int_equal(get_counts().graph_launches, 1);
    close_model(o);
    assert_nothing_left();
}

/* Errors --------------------------------------------------------------------------------------- */

/* Everything a program does, until something fails. *ret_failed: a call failed before the end, when
 * all is closed. */
static SinterStatus use_everything(bool *ret_failed, SinterError *err)
{
    static Data d;
    const SinterSessionOptions prepared = {.device = "cuda", .prepare = 1};
    SinterSession *other = NULL;
    void *memory = NULL;
    uint64_t bytes;
    Opened o;
    SinterStatus status = try_open(path, &on_cuda, &o, err);
    if (!status)
        status = sinter_session_create(o.model, &prepared, &other, err);
    static const int64_t rows[] = {3, 16, 18};
    for (size_t i = 0; i < COUNT_OF(rows) && !status; i++) {
        data_make(&d, rows[i], 1);
        status = sinter_run(o.session, &d.in, 1, d.out, 2, err);
        if (!status)
            data_check(&d);
    }
    if (!status)
        status = sinter_port_memory(other, 0, 0, &memory, &bytes, err);
    data_make(&d, 4, 1);
    if (!status) {
        memcpy(memory, d.x, 4 * MODEL_K * 4);
        d.in.data = memory;
        status = sinter_run_async(o.session, &d.in, 1, d.out, 2, NULL, err);
    }
    if (!status)
        status = sinter_run(o.session, &d.in, 1, d.out, 2, err);
    if (!status) {
        sinter_session_trace(o.session, 1);
        status = sinter_run(o.session, &d.in, 1, d.out, 2, err);
    }
    *ret_failed = get_counts().failed;
    sinter_session_destroy(other);
    close_model(o);
    return status;
}

/* Failures of these change nothing for the caller: they free what has served, or ask about memory
 * that may be unknown. */
static bool may_fail(const char *function)
{
    static const char *const names[] = {"cuCtxPopCurrent_v2", "cuMemFreeHost",
                                        "cuStreamDestroy_v2", "cuEventDestroy_v2",
                                        "cuGraphDestroy",     "cuPointerGetAttributes"};
    for (size_t i = 0; i < COUNT_OF(names); i++)
        if (!strcmp(names[i], function))
            return true;
    return false;
}

static void fail_each_call(int result)
{
    int num = 0;
    for (;; num++) {
        FakeOptions options = {.version = 12080,
                               .devices = 1,
                               .capability = 90,
                               .max_shared = 232448,
                               .memory = 1 << 20,
                               .fail_call = num + 1,
                               .fail_result = result};
        SinterError err = {0};
        bool failed;
        reset(&options);
        set_kernel(run_model_kernel);
        SinterStatus status = use_everything(&failed, &err);
        FakeCounts c = get_counts();
        assert_nothing_left();
        if (!failed || may_fail(c.failed_function)) {
            if (status)
                fail_msg("%s", err.text);
        } else {
            if (!status)
                fail_msg("call %d, %s, fails unnoticed", num + 1, c.failed_function);
            assert_int_equal(err.status, status);
            assert_says(err.text, "cuda:0: ");
            assert_says(err.text, "; ");
        }
        if (!c.failed)
            break;
    }
    assert_true(num > 150);
}

static void test_failing_calls(void **state)
{
    (void)state;
    fail_each_call(DRV_ERROR_OUT_OF_MEMORY);
    fail_each_call(DRV_ERROR_LAUNCH_FAILED);
    fail_each_call(DRV_ERROR_UNKNOWN);
}

static FakeOptions failing(const char *function, int call, int result)
{
    return (FakeOptions){.version = 12080,
                         .devices = 1,
                         .capability = 90,
                         .max_shared = 232448,
                         .memory = 1 << 20,
                         .fail_function = function,
                         .fail_call = call,
                         .fail_result = result};
}

/* Every code that the runtime knows, and one that it does not. */
static void test_every_code(void **state)
{
    (void)state;
    static const struct {
        int result;
        SinterStatus status;
        bool sticky;
        const char *says;
    } row[] = {
        {DRV_ERROR_INVALID_VALUE, SINTER_ERROR_DEVICE, false, "reports an error"},
        {DRV_ERROR_OUT_OF_MEMORY, SINTER_ERROR_MEMORY, false, "memory is full"},
        {DRV_ERROR_NOT_INITIALIZED, SINTER_ERROR_DEVICE, false, "reports an error"},
        {DRV_ERROR_DEINITIALIZED, SINTER_ERROR_DEVICE, true, "shutting down"},
        {DRV_ERROR_STUB_LIBRARY, SINTER_ERROR_NO_DEVICE, false, "stub"},
        {DRV_ERROR_DEVICE_UNAVAILABLE, SINTER_ERROR_NO_DEVICE, false, "holds the GPU alone"},
        {DRV_ERROR_NO_DEVICE, SINTER_ERROR_NO_DEVICE, false, "no such GPU"},
        {DRV_ERROR_INVALID_DEVICE, SINTER_ERROR_NO_DEVICE, false, "no such GPU"},
        {DRV_ERROR_INVALID_IMAGE, SINTER_ERROR_UNSUPPORTED, false, "--target"},
        {DRV_ERROR_INVALID_CONTEXT, SINTER_ERROR_DEVICE, false, "reports an error"},
        {DRV_ERROR_NO_BINARY_FOR_GPU, SINTER_ERROR_UNSUPPORTED, false, "no code for this GPU"},
        {DRV_ERROR_ECC_UNCORRECTABLE, SINTER_ERROR_DEVICE, true, "cannot be corrected"},
        {DRV_ERROR_INVALID_PTX, SINTER_ERROR_UNSUPPORTED, false, "refuses the portable code"},
        {DRV_ERROR_NVLINK_UNCORRECTABLE, SINTER_ERROR_DEVICE, true, "link between GPUs"},
        {DRV_ERROR_JIT_COMPILER_NOT_FOUND, SINTER_ERROR_UNSUPPORTED, false, "has no compiler"},
        {DRV_ERROR_UNSUPPORTED_PTX_VERSION, SINTER_ERROR_UNSUPPORTED, false,
         "newer than the driver"},
        {DRV_ERROR_INVALID_HANDLE, SINTER_ERROR_DEVICE, false, "reports an error"},
        {DRV_ERROR_NOT_FOUND, SINTER_ERROR_DEVICE, false, "reports an error"},
        {DRV_ERROR_NOT_READY, SINTER_ERROR_DEVICE, false, "reports an error"},
        {DRV_ERROR_ILLEGAL_ADDRESS, SINTER_ERROR_DEVICE, true, "not its own"},
        {DRV_ERROR_LAUNCH_OUT_OF_RESOURCES, SINTER_ERROR_DEVICE, false, "more than the GPU has"},
        {DRV_ERROR_LAUNCH_TIMEOUT, SINTER_ERROR_DEVICE, true, "too long"},
        {DRV_ERROR_CONTEXT_IS_DESTROYED, SINTER_ERROR_DEVICE, true, "reset the GPU"},
        {DRV_ERROR_ASSERT, SINTER_ERROR_DEVICE, true, "gave up"},
        {DRV_ERROR_HARDWARE_STACK_ERROR, SINTER_ERROR_DEVICE, true, "stack"},
        {DRV_ERROR_ILLEGAL_INSTRUCTION, SINTER_ERROR_DEVICE, true, "instruction"},
        {DRV_ERROR_MISALIGNED_ADDRESS, SINTER_ERROR_DEVICE, true, "not aligned"},
        {DRV_ERROR_INVALID_ADDRESS_SPACE, SINTER_ERROR_DEVICE, true, "another space"},
        {DRV_ERROR_INVALID_PC, SINTER_ERROR_DEVICE, true, "left its code"},
        {DRV_ERROR_LAUNCH_FAILED, SINTER_ERROR_DEVICE, true, "a kernel failed"},
        {DRV_ERROR_NOT_PERMITTED, SINTER_ERROR_DEVICE, false, "does not permit"},
        {DRV_ERROR_NOT_SUPPORTED, SINTER_ERROR_DEVICE, false, "reports an error"},
        {DRV_ERROR_SYSTEM_NOT_READY, SINTER_ERROR_NO_DEVICE, false, "not ready"},
        {DRV_ERROR_SYSTEM_DRIVER_MISMATCH, SINTER_ERROR_NO_DEVICE, false, "differ in version"},
        {DRV_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, SINTER_ERROR_NO_DEVICE, false, "compatibility"},
        {DRV_ERROR_STREAM_CAPTURE_UNSUPPORTED, SINTER_ERROR_DEVICE, false, "reports an error"},
        {DRV_ERROR_STREAM_CAPTURE_INVALIDATED, SINTER_ERROR_DEVICE, false, "reports an error"},
        {DRV_ERROR_UNKNOWN, SINTER_ERROR_DEVICE, false, "reports an error"},
        {123456, SINTER_ERROR_DEVICE, false, "reports an error"},
    };
    static Data d;
    for (size_t i = 0; i < COUNT_OF(row); i++) {
        FakeOptions options = failing("cuGraphLaunch", 1, row[i].result);
        SinterError err, again;
        reset(&options);
        set_kernel(run_model_kernel);
        Opened o = open_model(path);
        data_make(&d, 4, 1);
        assert_int_equal(sinter_run(o.session, &d.in, 1, d.out, 2, &err), row[i].status);
        assert_says(err.text, row[i].says);
        assert_says(err.text, "CUDA_ERROR");
        SinterStatus status = sinter_run(o.session, &d.in, 1, d.out, 2, &again);
        assert_int_equal(status, row[i].sticky ? row[i].status : SINTER_OK);
        if (row[i].sticky) { /* the first sentence again, for new sessions too */
            assert_says(again.text, err.text);
            SinterSession *s;
            assert_int_equal(sinter_session_create(o.model, &on_cuda, &s, &again),
                             SINTER_ERROR_DEVICE);
            assert_says(again.text, err.text);
        }
        close_model(o);
        assert_nothing_left();
    }
}

/* A map of the scales of a tensor that has none: the layer is named, and nothing runs. */
static void test_scale_map(void **state)
{
    (void)state;
    static Data d;
    SinterError err;
    fresh();
    Opened o = open_model(scales_path);
    data_make(&d, 4, 1);
    assert_int_equal(sinter_run(o.session, &d.in, 1, d.out, 2, &err), SINTER_ERROR_DEVICE);
    assert_says(err.text, "binding \"fc\" (gemm)");
    close_model(o);
    assert_nothing_left();
}

/* SINTER_SYNC=1: the layer whose kernel fails is named, and said again. */
static void test_faulty_layer(void **state)
{
    (void)state;
    static Data d;
    static const char *const layer[] = {"fc", "twice", "swap"};
    setenv("SINTER_SYNC", "1", 1);
    for (int i = 0; i < 3; i++) {
        FakeOptions options = failing("cuStreamSynchronize", i + 3, DRV_ERROR_ILLEGAL_ADDRESS);
        SinterError err;
        char want[64];
        reset(&options);
        Opened o = open_model(path); /* waits for the weights and for cleared memory */
        data_make(&d, 4, 1);
        assert_int_equal(sinter_run(o.session, &d.in, 1, d.out, 2, &err), SINTER_ERROR_DEVICE);
        snprintf(want, sizeof want, "running \"%s\"", layer[i]);
        assert_says(err.text, want);
        assert_int_equal(sinter_run(o.session, &d.in, 1, d.out, 2, &err), SINTER_ERROR_DEVICE);
        assert_says(err.text, want);
        close_model(o);
        assert_nothing_left();
    }
    unsetenv("SINTER_SYNC");
}

static void test_portable_code_refused(void **state)
{
    (void)state;
    static Data d;
    SinterError err;
    FakeOptions options = failing("cuModuleLoadDataEx", 1, DRV_ERROR_INVALID_PTX);
    options.capability = 89;
    reset(&options);
    Opened o = open_model(path);
    data_make(&d, 4, 1);
    assert_int_equal(sinter_run(o.session, &d.in, 1, d.out, 2, &err), SINTER_ERROR_UNSUPPORTED);
    assert_says(err.text, "loading gemm_4 of \"fc\" for compute_80: a made-up log: ");
    close_model(o);
    assert_nothing_left();
}

/* Threads -------------------------------------------------------------------------------------- */

typedef struct Worker {
    pthread_t thread;
    SinterModel *model;
    int seed, failed;
} Worker;

static void *work(void *arg)
{
    Worker *w = arg;
    SinterError err;
    Data *d = malloc(sizeof *d);
    for (int round = 0; d && round < 6; round++) {
        SinterSession *s = NULL;
        if (sinter_session_create(w->model, &on_cuda, &s, &err)) {
            w->failed++;
            break;
        }
        for (int64_t rows = 1; rows <= 40; rows += 3) {
            data_make(d, rows, w->seed + (int)rows);
            w->failed += sinter_run(s, &d->in, 1, d->out, 2, &err) != SINTER_OK;
            w->failed += memcmp(d->y, d->want, (size_t)rows * MODEL_N * 4) != 0;
        }
        sinter_session_destroy(s);
    }
    w->failed += !d;
    free(d);
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    Worker worker[4] = {0};
    SinterError err;
    SinterModel *shared;
    fresh();
    assert_int_equal(sinter_open(path, &shared, &err), SINTER_OK);
    for (size_t i = 0; i < COUNT_OF(worker); i++) {
        worker[i].model = shared;
        worker[i].seed = (int)i;
        assert_int_equal(pthread_create(&worker[i].thread, NULL, work, &worker[i]), 0);
    }
    for (size_t i = 0; i < COUNT_OF(worker); i++) {
        pthread_join(worker[i].thread, NULL);
        assert_int_equal(worker[i].failed, 0);
    }
    assert_int_equal(get_counts().loads, 4);    /* each kernel once */
    assert_int_equal(get_counts().contexts, 1); /* one copy of the weights */
    sinter_close(shared);
    assert_nothing_left();
}

/* Layers as a profiler sees them: around each launch of a capture, and one range a run. */
static void test_profiler(void **state)
{
    (void)state;
    void *library = dlopen(profiler_path, RTLD_NOW | RTLD_NOLOAD), *found;
    const char *(*log)(void);
    if (!library)
        fail_msg("the runtime did not load the profiler: %s", dlerror());
    found = symbol(library, "profiler_log");
    memcpy(&log, &found, sizeof log);
    fresh();
    Opened o = open_model(path);
    static Data d;
    SinterError err;
    data_make(&d, 4, 1);
    log();
    assert_int_equal(sinter_run(o.session, &d.in, 1, d.out, 2, &err), SINTER_OK);
    const char *text = log();
    char names[256] = "";
    for (int i = 0; i < model.plan.num_launches; i++)
        snprintf(names + strlen(names), sizeof names - strlen(names), "<%s>",
                 model.plan.launch[i].layer);
    assert_says(text, names);
    assert_int_equal(sinter_run(o.session, &d.in, 1, d.out, 2, &err), SINTER_OK);
    assert_string_equal(log(), "<sinter B = 4>");
    close_model(o);
    dlclose(library);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_drivers),   cmocka_unit_test(test_devices),
        cmocka_unit_test(test_images),        cmocka_unit_test(test_results),
        cmocka_unit_test(test_launch_list),   cmocka_unit_test(test_actual_sizes),
        cmocka_unit_test(test_maps),          cmocka_unit_test(test_prepare),
        cmocka_unit_test(test_weights),       cmocka_unit_test(test_device_memory),
        cmocka_unit_test(test_async),         cmocka_unit_test(test_trace),
        cmocka_unit_test(test_failing_calls), cmocka_unit_test(test_every_code),
        cmocka_unit_test(test_faulty_layer),  cmocka_unit_test(test_portable_code_refused),
        cmocka_unit_test(test_threads),       cmocka_unit_test(test_profiler),
        cmocka_unit_test(test_scale_map),
    };
    if (argc != 3) {
        fprintf(stderr, "usage: test_cuda FAKE_DRIVER PROFILER\n");
        return 2;
    }
    fake_path = argv[1];
    profiler_path = argv[2];
    setenv("NVTX_INJECTION64_PATH", profiler_path, 1);
    return cmocka_run_group_tests_name("cuda", tests, setup, teardown);
}
