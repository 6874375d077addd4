/* Peak memory of a run: at most the packed weights, the planned arena and 16 MiB. A layer of 64 MiB
 * is compiled by hand in one process and run by the program in another. argv[1]: the stub. */
#include "models.h"

#include <cmocka.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define WIDE 4096
#define ROWS 64

static const char *stub_path;
static char dir[] = "/tmp/sinter-memory-XXXXXX";
static char model_path[64], input_path[64], output_path[64];

#define DIM_B     \
    {             \
        1, 0,     \
        {         \
            0, -1 \
        }         \
    }
#define FIXED(n)   \
    {              \
        0, n,      \
        {          \
            -1, -1 \
        }          \
    }
#define PLAIN .row_div = FIXED(1), .row_mod = FIXED(0), .col_step = 1

static float value_of(int i)
{
    return (float)(i * 7 % 1001 - 500);
}

/* y = (x * w^T) * w^T = 4 * x, h in the arena: f32 [64, 4096]. */
static bool write_model(void)
{
    static const int64_t sizes[] = {1, ROWS};
    static const PlanSym syms[] = {{"B", 2, sizes}};
    static const uint64_t at[] = {0, 0}, arena_bytes[] = {WIDE * 4, ROWS * WIDE * 4};
    /* clang-format off: version 14 spoils nested tables */
    static const TileStep store[] = {
        {.op = TILE_ACC, .fmt = FMT_F32, .tensor = TILE_NO_TENSOR, .tensor2 = TILE_NO_TENSOR},
        {.op = TILE_STORE, .tensor = 0, .tensor2 = TILE_NO_TENSOR},
    };
    static const PlanSegment segment[] = {{0, WIDE, {store, 2}}};
    static const PlanOperand to_h[] = {{1, PLAIN}}, to_y[] = {{3, PLAIN}};
    static const PlanPort input[] = {{"x", 0}}, output[] = {{"y", 3}};
    const CpuPackSpec spec = {.fmt = FMT_F32, .act_fmt = FMT_F32, .n = WIDE, .k = WIDE, .parts = 1};
    const uint64_t packed = cpu_pack_bytes(&spec);
    const PlanTensor tensor[] = {
        {"x", FMT_F32, .rank = 2, .dim = {DIM_B, FIXED(WIDE)}, .storage = STORAGE_INPUT},
        {"h", FMT_F32, .rank = 2, .dim = {DIM_B, FIXED(WIDE)}, .storage = STORAGE_ARENA,
         .arena_offset = at},
        {"w", FMT_F32, .rank = 2, .dim = {FIXED(WIDE), FIXED(WIDE)}, .bytes = packed,
         .packed = true, .pack_spec = spec},
        {"y", FMT_F32, .rank = 2, .dim = {DIM_B, FIXED(WIDE)}, .storage = STORAGE_OUTPUT},
    };
    const PlanLaunch launch[] = {
        {.family = LAUNCH_GEMM,
         .num_operands = 1,
         .operand = to_h,
         .a = 0,
         .w = 2,
         .num_segments = 1,
         .segment = segment},
        {.family = LAUNCH_GEMM,
         .num_operands = 1,
         .operand = to_y,
         .a = 1,
         .w = 2,
         .num_segments = 1,
         .segment = segment},
    };
    TestModel m = {.plan = {.target = "cpu",
                            .num_syms = 1,
                            .num_buckets = 2,
                            .num_tensors = 4,
                            .num_launches = 2,
                            .num_inputs = 1,
                            .num_outputs = 1,
                            .sym = syms,
                            .bucket_size = sizes,
                            .arena_bytes = arena_bytes,
                            .rows_independent = true,
                            .tensor = tensor,
                            .launch = launch,
                            .input = input,
                            .output = output}};
    /* clang-format on */
    IoError err;
    uint64_t stub_size;
    char *stub = file_read(stub_path, 64 << 20, &stub_size, &err);
    float *x = calloc(ROWS * WIDE, sizeof *x), *w = calloc((size_t)WIDE * WIDE, sizeof *w);
    m.weights = aligned_alloc(64, (packed + 63) / 64 * 64);
    if (!x || !w || !m.weights)
        return false;
    for (int i = 0; i < ROWS * WIDE; i++)
        x[i] = value_of(i);
    for (int i = 0; i < WIDE; i++)
        w[(size_t)i * WIDE + (size_t)i] = 2.0f;
    cpu_pack(&spec, w, WIDE * 4, NULL, NULL, NULL, m.weights);
    m.weights_bytes = packed;
    const int64_t dim[] = {ROWS, WIDE};
    return stub && model_write(&m, model_path, stub, stub_size) &&
           npy_write(input_path, FMT_F32, 2, dim, x, &err);
}

static int setup(void **state)
{
    (void)state;
    if (!mkdtemp(dir))
        return -1;
    snprintf(model_path, sizeof model_path, "%s/m", dir);
    snprintf(input_path, sizeof input_path, "%s/x.npy", dir);
    snprintf(output_path, sizeof output_path, "%s/y.npy", dir);
    /* in a process of its own: the peak of this one must not be inherited by the run */
    pid_t child = fork();
    if (child == 0)
        _exit(write_model() ? 0 : 1);
    int status;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int teardown(void **state)
{
    (void)state;
    unlink(model_path);
    unlink(input_path);
    unlink(output_path);
    return rmdir(dir);
}

static void peak_memory_is_weights_arena_and_16_mib(void **state)
{
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        execl(model_path, model_path, "--input", input_path, "--output", output_path, "--threads",
              "2", (char *)NULL);
        _exit(127);
    }
    int status;
    struct rusage usage;
    assert_int_equal(wait4(child, &status, 0, &usage), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    long limit_kib = (4L * WIDE * WIDE + 4L * ROWS * WIDE) / 1024 + 16 * 1024;
    if (usage.ru_maxrss > limit_kib)
        fail_msg("peak of %ld KiB, limit %ld KiB", usage.ru_maxrss, limit_kib);
    print_message("peak %ld KiB of %ld\n", usage.ru_maxrss, limit_kib);
    IoError err;
    TensorFile *y = tensorfile_open(output_path, &err);
    assert_non_null(y);
    const float *got = tensorfile_at(y, 0)->data;
    for (int i = 0; i < ROWS * WIDE; i++)
        assert_true(got[i] == 4.0f * value_of(i));
    tensorfile_close(y);
    assert_true(usage.ru_maxrss > 4L * WIDE * WIDE / 1024); /* the weights were mapped and read */
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(peak_memory_is_weights_arena_and_16_mib)};
    if (argc != 2)
        return 2;
    stub_path = argv[1];
    return cmocka_run_group_tests(tests, setup, teardown);
}
