/* test_tune <fakecuda.so> <model> <.. of computed products> <.. of a weight with two layouts>:
 * processes that measure kernels
 * which crash, hang and fail, against a driver of our own. */
#include "driver/stub.h"
#include "driver/work.h"
#include "fake_driver.h"
#include "tune/tune.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MOST 16

/* The program in front of a compiled file; nobody starts it. */
const unsigned char sinter_stub[] = "stub";
const size_t sinter_stub_size = 4;

static const char *model_path, *attend_path, *layouts_path;
static FakeReset *reset;
static FakeSetKernel *set_kernel;
static FakeAdvance *advance;
static FakeGetBusy *get_busy;
static FakeGetCounts *get_counts;

typedef struct Fixture {
    Arena *arena;
    Cli cli;
    Work w;
    const CudaCandidates *candidates; /* of the model's product */
    TuneItem item[MOST];
} Fixture;

static void keep(void *user, const CudaCandidates *c)
{
    Fixture *f = user;
    CudaCandidates *copy = ARENA_NEW(f->w.arena, CudaCandidates);
    *copy = *c;
    f->candidates = copy;
}

/* The first product of computed values under the bucket T = 4: q times k. */
static void keep_computed(void *user, const CudaCandidates *c)
{
    Fixture *f = user;
    if (!f->candidates && c->like.varies && c->rows == 4)
        keep(user, c);
}

/* The first candidates for records and panels of a weight, whichever the plan takes. */
static CudaCandidates by_layout[2];
static uint64_t packed_bytes[2];
static void keep_layouts(void *user, const CudaCandidates *c)
{
    int layout = c->like.packed.layout == CUDA_PANELS;
    by_layout[layout] = *c;
    packed_bytes[layout] = c->like.packed.bytes;
    keep(user, c);
}

static int setup_of(void **state, const char *path,
                    void (*visit)(void *user, const CudaCandidates *c))
{
    static Fixture f;
    char *argv[] = {"sinter", "tune", (char *)(uintptr_t)path, NULL};
    int exit_code;
    f = (Fixture){.arena = arena_create()};
    *state = &f;
    reset(NULL);
    bool ok = f.arena && cli_parse(&f.cli, f.arena, 3, argv, &exit_code) && work_init(&f.w, &f.cli);
    f.w.cuda_options = (CudaPlanOptions){.visit = visit, .user = &f};
    ok = ok && work_lower(&f.w, path) && work_passes(&f.w, NULL) && work_plan_for(&f.w, "sm_90a");
    return ok && f.candidates ? 0 : -1;
}

static int setup(void **state)
{
    return setup_of(state, model_path, keep);
}

static int setup_computed(void **state)
{
    return setup_of(state, attend_path, keep_computed);
}

static int setup_layouts(void **state)
{
    return setup_of(state, layouts_path, keep_layouts);
}

static int teardown(void **state)
{
    Fixture *f = *state;
    work_end(&f->w, EXIT_OK);
    arena_destroy(f->arena);
    return 0;
}

/* A GPU lowers its clocks when it has been busy for a while: ms of kernels before and then. */
#define THROTTLES_MS 50.0
static const struct {
    const char *word;
    double before, then;
} throttled[] = {{"hot", 0.2, 0.3},      {"steady", 0.25, 0.25}, {"far", 0.32, 0.45},
                 {"hasty", 0.018, 0.03}, {"near", 0.021, 0.04},  {"huge", 0.9, 1.2}};

static double throttled_ms(const char *name)
{
    for (size_t i = 0; i < COUNT_OF(throttled); i++)
        if (!strncmp(name, throttled[i].word, strlen(throttled[i].word)))
            return get_busy() > THROTTLES_MS ? throttled[i].then : throttled[i].before;
    return 0;
}

/* .. or they wander: the first launches of a kernel took longer than its others do. */
#define SLOW_LAUNCHES 900 /* a measurement has about 800 */
static double wandering_ms(const char *name)
{
    static int launches;
    if (strncmp(name, "wanders", 7) != 0)
        return 0;
    return launches++ < SLOW_LAUNCHES ? 0.26 : 0.24;
}

/* Kernels of the fake driver: what their names say. */
static void run_kernel(const char *name, const FakeParams *params)
{
    /* rows of q; K and N of q k', bytes from row to row of each: SIZE_COUNT to SIZE_W_PITCH */
    static const int64_t sizes[FAKE_SIZES] = {4, 64, 4, 256, 256};
    if (!strncmp(name, "sizes", 5) && memcmp(params->size, sizes, sizeof sizes) != 0)
        raise(SIGKILL);
    for (int i = 0; i < 2; i++) /* the weight is the last operand */
        if (!strncmp(name, i ? "panels" : "records", i ? 6 : 7) &&
            params->bytes[params->num_operands - 1] < packed_bytes[i])
            raise(SIGKILL);
    if (!strncmp(name, "crash", 5))
        raise(SIGKILL);
    while (!strncmp(name, "hang", 4))
        pause();
    double ms = throttled_ms(name);
    ms = ms > 0 ? ms : wandering_ms(name);
    advance(ms > 0 ? ms : !strncmp(name, "slow", 4) ? 0.9 : 0.1);
}

/* One item for each word, of the product's candidates in turn. */
static TuneRun make_run(Fixture *f, int num, const char *const *word)
{
    static const char image[] = "\177ELF made up";
    const PlanLaunch *l = f->candidates->like.launch;
    int at = 0;
    for (int i = 0; i < num; i++, at++) {
        while (f->candidates->list.elem[at].reason)
            at++;
        f->item[i] =
            (TuneItem){.kernel = &f->candidates->list.elem[at].kernel,
                       .problem = f->candidates->problem,
                       .candidate = word[i],
                       .rows = f->candidates->rows,
                       .predicted = 5,
                       .entry = arena_printf(f->w.arena, "%s_%d", word[i], l->num_operands + 2),
                       .image = strcmp(word[i], "none") ? image : NULL,
                       .image_size = sizeof image,
                       .note = ""};
    }
    set_kernel(run_kernel);
    return (TuneRun){
        .arena = f->w.arena, .limit_s = 0.4, .start_s = 20, .num = num, .item = f->item};
}

static void test_gpu(void **state)
{
    const char *why = NULL;
    TuneGpu gpu;
    Fixture *f = *state;
    TuneRun run = {.arena = f->w.arena, .start_s = 20};
    assert_true(tune_probe(&run, &gpu, &why));
    assert_int_equal(gpu.capability, 90);
    assert_int_equal(gpu.processors, 132);
    assert_int_equal(gpu.memory, 1 << 30);
    assert_int_equal(gpu.l2, 1 << 20);
    run.ordinal = 1;
    assert_false(tune_probe(&run, &gpu, &why));
    assert_string_equal(why, "opening the GPU: CUDA_ERROR_OF_A_TEST");
    assert_int_equal(get_counts().calls, 0); /* only children call the driver */
}

static void test_measures(void **state)
{
    static const char *const word[] = {"fast", "slow", "fast"};
    const char *why = NULL;
    TuneRun run = make_run(*state, 3, word);
    assert_true(tune_measure(&run, &why));
    for (int i = 0; i < 3; i++)
        assert_true(run.item[i].us > 0);
    /* 0.1 and 0.9 ms a launch, and a quarter of a ms in all */
    assert_true(run.item[0].us >= 100 && run.item[0].us < 160);
    assert_true(run.item[1].us >= 900 && run.item[1].us < 960);
    assert_true(run.item[0].us == run.item[2].us);
}

/* us of launches of `ms`, and a quarter of a ms in a graph of them. */
static void assert_takes(const TuneItem *item, double ms)
{
    if (!(item->us >= 1e3 * ms && item->us < 1e3 * ms + 8))
        fail_msg("%s: %g us instead of %g", item->candidate, item->us, 1e3 * ms);
}

/* Long launches have the time that stays; but not those that are far behind without. */
static void test_sustained(void **state)
{
    static const char *const word[] = {"hot", "steady", "hot", "far"};
    const char *why = NULL;
    TuneRun run = make_run(*state, COUNT_OF(word), word);
    assert_true(tune_measure(&run, &why));
    assert_takes(&run.item[0], 0.3);
    assert_takes(&run.item[1], 0.25);
    assert_takes(&run.item[2], 0.3);
    assert_takes(&run.item[3], 0.32);
}

/* Replays of 40 ms are not measured twice (in a burst the driver of our own never throttles). */
static void test_longest(void **state)
{
    static const char *const word[] = {"huge"};
    const char *why = NULL;
    TuneRun run = make_run(*state, 1, word);
    assert_true(tune_measure(&run, &why));
    assert_takes(&run.item[0], 0.9);
    assert_true(run.item[0].sustained);
}

/* Those of one product are measured alike, though the first and another one lie on both sides of
 * what is long, and in whichever process. */
static void test_sustained_alike(void **state)
{
    static const char *const longer[] = {"hot", "crash", "hasty"};
    static const char *const shorter[] = {"hasty", "crash", "near"};
    const char *why = NULL;
    TuneRun run = make_run(*state, COUNT_OF(longer), longer);
    assert_true(tune_measure(&run, &why));
    assert_takes(&run.item[0], 0.3);
    assert_true(run.item[1].us < 0);
    assert_takes(&run.item[2], 0.03);
    run = make_run(*state, COUNT_OF(shorter), shorter);
    assert_true(tune_measure(&run, &why));
    assert_takes(&run.item[0], 0.018);
    assert_true(run.item[1].us < 0);
    assert_takes(&run.item[2], 0.021);
}

static bool count_done(void *user, const TuneItem *item)
{
    (void)item;
    ++*(int *)user;
    return true;
}

/* Those near the fastest are measured in turn, and have what they take most of the time; what is
 * far behind is not, and nothing is reported anew but what was. */
static void test_finals(void **state)
{
    static const char *const word[] = {"steady", "hot", "wanders", "fast", "none"};
    const char *why = NULL;
    int num_done = 0;
    TuneRun run = make_run(*state, COUNT_OF(word) - 2, word);
    run.done = count_done;
    run.user = &num_done;
    assert_true(tune_measure(&run, &why));
    assert_takes(&run.item[0], 0.25);
    assert_takes(&run.item[1], 0.3);
    assert_takes(&run.item[2], 0.24);
    assert_int_equal(num_done, 4);                /* "steady" twice */
    run = make_run(*state, COUNT_OF(word), word); /* .. is far ahead of them */
    assert_true(tune_measure(&run, &why));
    assert_takes(&run.item[2], 0.26);
    assert_true(run.item[4].us == 0);
}

static void test_survives(void **state)
{
    static const char *const word[] = {"fast",  "crash", "fast", "hang", "none",
                                       "crash", "crash", "hang", "slow", "hang"};
    const char *why = NULL;
    Fixture *f = *state;
    TuneRun run = make_run(f, COUNT_OF(word), word);
    assert_true(tune_measure(&run, &why));
    for (size_t i = 0; i < COUNT_OF(word); i++) {
        const TuneItem *item = &run.item[i];
        if (!strcmp(word[i], "crash")) {
            assert_true(item->us < 0);
            assert_string_equal(item->note, "its process died of signal 9");
        } else if (!strcmp(word[i], "hang")) {
            assert_true(item->us < 0);
            assert_string_equal(item->note, "it did not end within 0.4 s");
        } else if (!strcmp(word[i], "none")) {
            assert_true(item->us == 0);
        } else {
            assert_true(item->us > 0);
        }
    }
    assert_int_equal(get_counts().calls, 0);
}

/* Kernels of products whose sizes vary read them. */
static void test_sizes(void **state)
{
    static const char *const word[] = {"sizes"};
    const char *why = NULL;
    TuneRun run = make_run(*state, 1, word);
    assert_true(tune_measure(&run, &why));
    assert_true(run.item[0].us > 0);
}

/* Candidates that read the weight in another layout than the plan takes get it as large as that. */
static void test_layouts(void **state)
{
    static const char *const word[] = {"records", "panels"};
    Fixture *f = *state;
    const char *why = NULL;
    TuneItem item[2];
    assert_true(packed_bytes[0] > packed_bytes[1] && packed_bytes[1] > 0);
    for (int i = 1; i >= 0; i--) {
        f->candidates = &by_layout[i];
        make_run(f, 1, word + i);
        item[i] = f->item[0];
    }
    f->item[0] = item[1], f->item[1] = item[0];
    TuneRun run = {.arena = f->w.arena, .limit_s = 0.4, .start_s = 20, .num = 2, .item = f->item};
    assert_true(tune_measure(&run, &why));
    assert_true(run.item[0].us > 0 && run.item[1].us > 0);
}

/* After an error of the driver the process is given up: what follows starts anew. */
static void test_errors_of_the_driver(void **state)
{
    static const char *const function[] = {"cuModuleLoadDataEx", "cuModuleGetFunction",
                                           "cuLaunchKernelEx",   "cuGraphLaunch",
                                           "cuEventSynchronize", "cuStreamEndCapture"};
    static const char *const word[] = {"fast", "slow"};
    const char *why = NULL;
    for (size_t i = 0; i < COUNT_OF(function); i++) {
        reset(&(FakeOptions){.version = 12080,
                             .devices = 1,
                             .capability = 90,
                             .max_shared = 232448,
                             .memory = 1u << 30,
                             .fail_function = function[i],
                             .fail_call = 1,
                             .fail_result = 719});
        TuneRun run = make_run(*state, 2, word);
        assert_true(tune_measure(&run, &why));
        for (int k = 0; k < 2; k++) {
            assert_true(run.item[k].us < 0);
            bool says = strstr(run.item[k].note, ": CUDA_ERROR_OF_A_TEST") != NULL;
            if (!says)
                print_message("# %s: %s\n", function[i], run.item[k].note);
            assert_true(says);
        }
    }
}

/* What does not fit the GPU is no fault of the candidate. */
static void test_memory(void **state)
{
    static const char *const word[] = {"fast", "fast"};
    const char *why = NULL;
    reset(&(FakeOptions){
        .version = 12080, .devices = 1, .capability = 90, .max_shared = 232448, .memory = 5000});
    TuneRun run = make_run(*state, 2, word);
    assert_true(tune_measure(&run, &why));
    assert_true(run.item[0].us == 0 && run.item[1].us == 0);
    assert_string_equal(run.item[0].note, "allocating: CUDA_ERROR_OUT_OF_MEMORY");
}

static bool stop_after_two(void *user, const TuneItem *item)
{
    (void)item;
    return ++*(int *)user < 2;
}

static void test_stops(void **state)
{
    static const char *const word[] = {"fast", "crash", "fast"};
    const char *why = NULL;
    int num = 0;
    TuneRun run = make_run(*state, 3, word);
    run.done = stop_after_two;
    run.user = &num;
    assert_true(tune_measure(&run, &why));
    assert_int_equal(num, 2);
    assert_true(run.item[0].us > 0 && run.item[1].us < 0 && run.item[2].us == 0);
}

static void test_no_driver(void **state)
{
    static const char *const word[] = {"fast"};
    const char *why = NULL;
    reset(&(FakeOptions){.version = 12080,
                         .devices = 1,
                         .capability = 90,
                         .memory = 1u << 30,
                         .fail_function = "cuInit",
                         .fail_call = 1,
                         .fail_result = 100});
    TuneRun run = make_run(*state, 1, word);
    assert_false(tune_measure(&run, &why));
    assert_non_null(strstr(why, "no GPU that it can use"));
}

static bool load_fake(const char *path)
{
    static const char *const name[] = {"fake_reset", "fake_kernel", "fake_advance", "fake_busy",
                                       "fake_counts"};
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL), *found[COUNT_OF(name)] = {NULL};
    for (size_t i = 0; library && i < COUNT_OF(name); i++)
        found[i] = dlsym(library, name[i]);
    memcpy(&reset, &found[0], sizeof reset);
    memcpy(&set_kernel, &found[1], sizeof set_kernel);
    memcpy(&advance, &found[2], sizeof advance);
    memcpy(&get_busy, &found[3], sizeof get_busy);
    memcpy(&get_counts, &found[4], sizeof get_counts);
    return reset && set_kernel && advance && get_busy && get_counts &&
           !setenv("SINTER_LIBCUDA", path, 1);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_gpu, setup, teardown),
        cmocka_unit_test_setup_teardown(test_measures, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sustained, setup, teardown),
        cmocka_unit_test_setup_teardown(test_longest, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sustained_alike, setup, teardown),
        cmocka_unit_test_setup_teardown(test_finals, setup, teardown),
        cmocka_unit_test_setup_teardown(test_survives, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sizes, setup_computed, teardown),
        cmocka_unit_test_setup_teardown(test_layouts, setup_layouts, teardown),
        cmocka_unit_test_setup_teardown(test_errors_of_the_driver, setup, teardown),
        cmocka_unit_test_setup_teardown(test_memory, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stops, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_driver, setup, teardown),
    };
    if (argc != 5 || !load_fake(argv[1])) {
        fprintf(stderr, "usage: test_tune FAKE_DRIVER MODEL COMPUTED LAYOUTS\n");
        return 2;
    }
    model_path = argv[2];
    attend_path = argv[3];
    layouts_path = argv[4];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
