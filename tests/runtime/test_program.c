/* The program of a compiled file, run as a user runs it, and the example that embeds one.
 * Arguments: the stub, the example linked with the shared and with the static library, and the
 * compiler. */
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
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROWS 21

static const char *stub_path, *embed_path[2], *compiler_path; /* embed: shared, static */
static char dir[] = "/tmp/sinter-program-XXXXXX";
static TestModel float_model, int8_model;
static float x[ROWS * MODEL_K], y_float[ROWS * MODEL_N], y_int8[ROWS * MODEL_N];

static const char *in_dir(const char *name)
{
    static char buf[8][96];
    static int next;
    char *ret = buf[next++ % 8];
    snprintf(ret, sizeof buf[0], "%s/%s", dir, name);
    return ret;
}

static bool write_inputs(void)
{
    IoError err;
    double wide[ROWS * MODEL_K];
    int32_t whole[ROWS * MODEL_K], label[ROWS];
    const int64_t dim[] = {ROWS, MODEL_K}, bad[] = {ROWS * 2, MODEL_K / 2}, rows[] = {ROWS};
    for (int i = 0; i < ROWS * MODEL_K; i++) {
        x[i] = i % MODEL_K == 3 ? 127.0f : (float)(i * 13 % 101 - 50);
        wide[i] = (double)x[i];
        whole[i] = (int32_t)x[i];
    }
    model_expect(&float_model, 2.0f, true, x, ROWS, y_float);
    model_expect(&int8_model, 0.5f, false, x, ROWS, y_int8);
    for (int r = 0; r < ROWS; r++) {
        label[r] = 0;
        for (int n = 1; n < MODEL_N; n++)
            if (y_int8[r * MODEL_N + n] > y_int8[r * MODEL_N + label[r]])
                label[r] = n;
        if (r % 7 == 0)
            label[r] = (label[r] + 1) % MODEL_N; /* three of 21 are wrong */
    }
    const SafetensorsItem named[] = {{"x", FMT_F32, 2, dim, x, NULL},
                                     {"other", FMT_I32, 1, rows, label, NULL}};
    bool ok = npy_write(in_dir("x.npy"), FMT_F32, 2, dim, x, &err) &&
              npy_write(in_dir("wide.npy"), FMT_F64, 2, dim, wide, &err) &&
              npy_write(in_dir("whole.npy"), FMT_I32, 2, dim, whole, &err) &&
              npy_write(in_dir("bad.npy"), FMT_F32, 2, bad, x, &err) &&
              npy_write(in_dir("label.npy"), FMT_I32, 1, rows, label, &err) &&
              safetensors_write(in_dir("x.safetensors"), 2, named, &err);
    whole[5] = 16777217; /* no f32 is equal */
    wide[9] = 1e300;
    return ok && npy_write(in_dir("uneven.npy"), FMT_I32, 2, dim, whole, &err) &&
           npy_write(in_dir("huge.npy"), FMT_F64, 2, dim, wide, &err);
}

static int setup(void **state)
{
    (void)state;
    IoError err;
    uint64_t size;
    char *stub = file_read(stub_path, 64 << 20, &size, &err);
    if (!stub || !mkdtemp(dir))
        return -1;
    model_float(&float_model);
    model_int8(&int8_model);
    bool ok = model_write(&float_model, in_dir("f"), stub, size) &&
              model_write(&int8_model, in_dir("q"), stub, size) && write_inputs();
    free(stub);
    return ok ? 0 : -1;
}

static int teardown(void **state)
{
    static const char *const made[] = {"f",
                                       "q",
                                       "x.npy",
                                       "wide.npy",
                                       "whole.npy",
                                       "bad.npy",
                                       "label.npy",
                                       "x.safetensors",
                                       "uneven.npy",
                                       "huge.npy",
                                       "cut",
                                       "named",
                                       "out.npy",
                                       "z.npy",
                                       "t.json",
                                       "b.json",
                                       "out.safetensors",
                                       "text"};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(made); i++)
        unlink(in_dir(made[i]));
    model_free(&float_model);
    model_free(&int8_model);
    return rmdir(dir); /* fails if anything else was left behind */
}

/* Runs program `name` with up to 8 words; all it prints, in a buffer of its own, but for standard
 * output where that is a file by the name of `output`. */
static int run_into(const char *output, char *text, size_t size, const char *name,
                    const char *const *word)
{
    const char *argv[10] = {name};
    for (int i = 0; i < 8 && word[i]; i++)
        argv[i + 1] = word[i];
    int fd = open(in_dir("text"), O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(output ? open(output, O_WRONLY) : fd, 1);
        dup2(fd, 2);
        if (chdir(dir) == 0)
            execv(name[0] == '/' ? name : in_dir(name), (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    ssize_t got = pread(fd, text, size - 1, 0);
    text[got < 0 ? 0 : got] = 0;
    close(fd);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int run(char *text, size_t size, const char *name, const char *const *word)
{
    return run_into(NULL, text, size, name, word);
}

#define WORDS(...) ((const char *const[9]){__VA_ARGS__})

static void expect_run(int exit_code, const char *said, const char *name, const char *const *word)
{
    char text[8192];
    int got = run(text, sizeof text, name, word);
    if (got != exit_code)
        fail_msg("exit %d, want %d: %s", got, exit_code, text);
    if (said && !strstr(text, said))
        fail_msg("it says \"%s\", want \"%s\"", text, said);
    if (!said && text[0])
        fail_msg("it says \"%s\"", text);
}

static void expect_file(const char *file, const char *tensor, const float *want)
{
    IoError err;
    TensorFile *f = tensorfile_open(in_dir(file), &err);
    if (!f)
        fail_msg("%s", err.text);
    const TensorView *view = tensor ? tensorfile_find(f, tensor) : tensorfile_at(f, 0);
    assert_non_null(view);
    assert_int_equal(view->fmt, FMT_F32);
    assert_int_equal(view->elements, ROWS * MODEL_N);
    assert_memory_equal(view->data, want, ROWS * MODEL_N * sizeof *want);
    tensorfile_close(f);
    unlink(in_dir(file));
}

static void npy_in_npy_out(void **state)
{
    (void)state;
    expect_run(0, NULL, "q", WORDS("--input", "x=x.npy", "--output", "y=out.npy"));
    expect_file("out.npy", NULL, y_int8);
    expect_run(0, NULL, "q", WORDS("--input=x.npy", "--output=out.npy", "--threads=2"));
    expect_file("out.npy", NULL, y_int8);
}

static void several_outputs_share_a_safetensors_file(void **state)
{
    (void)state;
    expect_run(0, NULL, "f", WORDS("--input", "x.safetensors", "--output", "out.safetensors"));
    expect_file("out.safetensors", "y", y_float);
    expect_run(0, NULL, "f",
               WORDS("--input", "x.npy", "--output", "y=out.npy", "--output", "z=z.npy"));
    expect_file("out.npy", NULL, y_float);
    expect_run(2, "the model has 2 outputs", "f", WORDS("--input", "x.npy", "--output", "out.npy"));
    expect_run(2, "written twice", "f",
               WORDS("--input", "x.npy", "--output", "y=a.npy", "--output", "z=a.npy"));
}

static void other_dtypes_are_converted_if_they_fit(void **state)
{
    (void)state;
    expect_run(0, NULL, "q", WORDS("--input", "wide.npy", "--output", "out.npy"));
    expect_file("out.npy", NULL, y_int8);
    expect_run(0, NULL, "q", WORDS("--input", "whole.npy", "--output", "out.npy"));
    expect_file("out.npy", NULL, y_int8);
    expect_run(1, "element 5 is 16777217, which f32 cannot hold", "q",
               WORDS("--input", "uneven.npy", "--output", "out.npy"));
    expect_run(1, "element 9 is 1e+300, which f32 cannot hold", "q",
               WORDS("--input", "huge.npy", "--output", "out.npy"));
}

static void labels_are_scored(void **state)
{
    (void)state;
    expect_run(0, "accuracy 0.8571 (18 of 21)\n", "q",
               WORDS("--input", "x.npy", "--labels", "label.npy"));
    expect_run(1, "168 labels for 21 rows", "q", WORDS("--input", "x.npy", "--labels", "x.npy"));
    expect_run(2, "a model with one output", "f",
               WORDS("--input", "x.npy", "--labels", "label.npy"));
}

static void without_a_file_outputs_are_summed_up(void **state)
{
    (void)state;
    expect_run(0, "y f32[21, 16] from ", "q", WORDS("--input", "x.npy"));
}

static void it_explains_itself(void **state)
{
    (void)state;
    expect_run(0, "usage: f --input", "f", WORDS("--help"));
    expect_run(0, "sinter 0.1.0\n", "f", WORDS("--version"));
    expect_run(0, "output  z            f32[B, 2, 8]\n", "f", WORDS("--info"));
    expect_run(0, "bucket  B = 16     activations 1024 bytes\n", "f", WORDS("--info"));
}

/* What a full disk did not take is no success, whatever was to be said. */
static void a_full_standard_output_is_an_error(void **state)
{
    (void)state;
    if (access("/dev/full", W_OK))
        return;
    const char *const *const words[] = {WORDS("--help"), WORDS("--version"), WORDS("--info"),
                                        WORDS("--input", "x.npy"), WORDS("--bench", "--repeat=1")};
    for (size_t i = 0; i < COUNT_OF(words); i++) {
        char text[1024];
        int got = run_into("/dev/full", text, sizeof text, "q", words[i]);
        if (got != 1 || strcmp(text, "q: cannot write to standard output\n") != 0)
            fail_msg("%s: exit %d, it says \"%s\"", words[i][0], got, text);
    }
}

static void wrong_words_get_help(void **state)
{
    (void)state;
    expect_run(2, "unknown option \"--inptu\"; did you mean \"--input\"?", "q",
               WORDS("--inptu", "a"));
    expect_run(2, "help: q --help lists all options", "q", WORDS("--frobnicate"));
    expect_run(2, "--input needs a value", "q", WORDS("--input"));
    expect_run(2, "unexpected \"x.npy\"", "q", WORDS("x.npy"));
    expect_run(2, "takes a number from 0 to 1024, got \"many\"", "q", WORDS("--threads", "many"));
    expect_run(2, "--bench takes no value", "q", WORDS("--bench=1"));
    expect_run(2, "--bucket belongs with --bench", "q", WORDS("--bucket", "B=1"));
    expect_run(2, "--seconds belongs with --bench", "q", WORDS("--seconds", "1"));
    expect_run(2, "--json belongs with --bench", "q", WORDS("--json", "-"));
    expect_run(2, "exclude each other", "q", WORDS("--bench", "--seconds=1", "--repeat=1"));
    expect_run(2, "--bucket excludes it", "q",
               WORDS("--bench", "--input", "x.npy", "--bucket=B=1"));
    expect_run(2, "--bench writes no results", "q", WORDS("--bench", "--output", "y.npy"));
    expect_run(2, "input \"x\", f32[B, 8], is missing", "q", WORDS("--output", "out.npy"));
    expect_run(1, "the model has no input \"xx\"; did you mean \"x\"", "q",
               WORDS("--input", "xx=x.npy"));
    expect_run(2, "ends neither in .npy", "q", WORDS("--input", "x.npy", "--output", "out.txt"));
    expect_run(2, "\"x\" is given twice", "q", WORDS("--input", "x.npy", "--input", "x=x.npy"));
}

static void bad_files_and_devices_are_errors(void **state)
{
    (void)state;
    expect_run(1, "input \"x\" is f32[B, 8], got f32[42, 4]", "q",
               WORDS("--input", "bad.npy", "--output", "out.npy"));
    expect_run(1, "nothere.npy", "q", WORDS("--input", "nothere.npy"));
    expect_run(1, "nodir/out.npy", "q", WORDS("--input", "x.npy", "--output", "nodir/out.npy"));
    expect_run(4, "run it on cpu instead", "q", WORDS("--input", "x.npy", "--device", "cuda:0"));
}

static void a_cut_program_says_so(void **state)
{
    (void)state;
    IoError err;
    uint64_t size;
    char *data = file_read(in_dir("q"), 64 << 20, &size, &err);
    assert_non_null(data);
    int fd = open(in_dir("cut"), O_WRONLY | O_CREAT | O_TRUNC, 0700);
    assert_int_equal(write(fd, data, size - 100), size - 100);
    close(fd);
    free(data);
    expect_run(1, "truncated: it holds", "cut", WORDS("--info"));
}

/* The numbers of a benchmark as JSON: of every bucket, of one size inside a bucket, of a file. */
static void expect_json(const char *took, int num, const char *const *words)
{
    IoError err;
    uint64_t size;
    Json j;
    char key[32], text[160];
    bool first = true, first_size = true;
    int found = 0;
    expect_run(0, "", "q", words);
    char *json = file_read(in_dir("b.json"), 1 << 20, &size, &err);
    assert_non_null(json);
    json_init(&j, json, size);
    assert_true(json_object_begin(&j));
    while (json_next_key(&j, key, sizeof key, &first)) {
        if (strcmp(key, "sizes") != 0) {
            assert_true(json_skip(&j));
            continue;
        }
        assert_true(json_array_begin(&j));
        for (; json_next_element(&j, &first_size); found++)
            assert_true(json_skip(&j));
    }
    assert_true(json_end(&j));
    assert_int_equal(found, num);
    snprintf(text, sizeof text, "\"took\": \"%s\"", took);
    assert_non_null(strstr(json, text));
    double p50 = strtod(strstr(json, "\"p50_ns\": ") + 10, NULL);
    double p90 = strtod(strstr(json, "\"p90_ns\": ") + 10, NULL);
    double p99 = strtod(strstr(json, "\"p99_ns\": ") + 10, NULL);
    assert_true(p50 > 0 && p90 >= p50 && p99 >= p90);
    free(json);
}

static void benchmarks_say_what_ran(void **state)
{
    (void)state;
    expect_json("B = 1", 3, WORDS("--bench", "--json", "b.json", "--repeat", "5"));
    expect_json("B = 4, the smallest that holds 3", 1,
                WORDS("--bench", "--json=b.json", "--repeat=5", "--warm-up=1", "--bucket=B=3"));
    expect_json("B = 16, the largest, in 2 pieces", 1,
                WORDS("--bench", "--json=b.json", "--repeat=5", "--input", "x.npy"));
    expect_run(0, "the largest, in 2 pieces", "q",
               WORDS("--bench", "--repeat=5", "--input", "x.npy"));
    expect_run(0, "rows/s", "q", WORDS("--bench", "--seconds=1", "--bucket=B=1"));
    expect_run(1, "nodir", "q", WORDS("--bench", "--repeat=1", "--json", "nodir/b.json"));
    expect_run(2, "would both write", "q", WORDS("--bench", "--json=b.json", "--trace=b.json"));
}

static void benchmarks_and_traces(void **state)
{
    (void)state;
    expect_run(0, "GFLOP/s", "q",
               WORDS("--bench", "--bucket", "B=64", "--repeat", "5", "--trace", "t.json"));
    IoError err;
    uint64_t size;
    char *trace = file_read(in_dir("t.json"), 1 << 20, &size, &err);
    assert_non_null(trace);
    assert_non_null(
        strstr(trace, "\"thread_name\", \"pid\": 1, \"tid\": 1, \"args\": {\"name\": \"fc\"}"));
    assert_non_null(strstr(trace, "\"name\": \"matmul scales add\", \"cat\": \"gemm\""));
    assert_non_null(strstr(trace, "\"place\": \"m.sinter:3:9\""));
    assert_non_null(strstr(trace, "\"bucket\": \"B = 16, the largest, in 4 pieces\""));
    Json j;
    json_init(&j, trace, strlen(trace));
    assert_true(json_skip(&j) && json_end(&j));
    free(trace);
    expect_run(2, "the model has no size \"C\"; it has \"B\"", "q",
               WORDS("--bench", "--bucket", "C=1"));
    expect_run(2, "--bucket takes NAME=N", "q", WORDS("--bench", "--bucket", "B=x"));
}

/* No name of a file acts on the terminal: colours, bells, lines of its own, reversed text. */
static void names_are_shown_and_do_nothing(void **state)
{
    static const char evil[] = "\033[31mx\a\nok\u202e", shown[] = "\\x1b[31mx\\x07\\x0aok\\u{202e}";
    static const int64_t sizes[] = {1, 4, 16};
    static const PlanSym sym[] = {{evil, 3, sizes}};
    static const PlanPort input[] = {{evil, 0}}, output[] = {{"y\b", 4}, {"z", 5}};
    (void)state;
    char text[1 << 14], *stub;
    IoError err;
    uint64_t size;
    TestModel m = float_model;
    PlanTensor tensor[6];
    PlanLaunch launch[3];
    memcpy(tensor, m.plan.tensor, sizeof tensor);
    memcpy(launch, m.plan.launch, sizeof launch);
    for (int i = 0; i < 6; i++)
        tensor[i].name = evil;
    for (int i = 0; i < 3; i++)
        launch[i].layer = launch[i].place = launch[i].absorbed = evil;
    m.plan.tensor = tensor;
    m.plan.launch = launch;
    m.plan.sym = sym;
    m.plan.input = input;
    m.plan.output = output;
    assert_non_null(stub = file_read(stub_path, 64 << 20, &size, &err));
    assert_true(model_write(&m, in_dir("named"), stub, size));
    free(stub);
    const struct {
        int code;
        const char *name, *const *word;
    } call[] = {{0, "named", WORDS("--info")},
                {0, "named", WORDS("--input", "x.npy")},
                {0, "named", WORDS("--bench", "--repeat", "1")},
                {1, "named", WORDS("--input", "w\033=x.npy")},
                {2, "named", WORDS("--outp\033ut")},
                {1, "named", WORDS("--input", "bad.npy")},
                {0, compiler_path, WORDS("inspect", "named")},
                {0, compiler_path, WORDS("inspect", "x.npy")}};
    for (size_t i = 0; i < COUNT_OF(call); i++) {
        if (!call[i].name)
            continue;
        if (run(text, sizeof text, call[i].name, call[i].word) != call[i].code)
            fail_msg("call %zu: %s", i, text);
        for (const char *c = text; *c; c++)
            if ((*c < 0x20 && *c != '\n') || strncmp(c, "\u202e", 3) == 0 ||
                strncmp(c, "\nok", 3) == 0)
                fail_msg("call %zu prints \\x%02x: %s", i, *c, text);
        if (i == 0 && !strstr(text, shown))
            fail_msg("%s", text);
    }
}

static void a_c_program_embeds_a_model(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        char *absolute = realpath(embed_path[i], NULL), want[64];
        float ones[2 * MODEL_K], y[2 * MODEL_N];
        for (int k = 0; k < 2 * MODEL_K; k++)
            ones[k] = 1.0f;
        model_expect(&float_model, 2.0f, true, ones, 2, y);
        snprintf(want, sizeof want, "y [2, 16]: %g %g %g", (double)y[0], (double)y[1],
                 (double)y[2]);
        expect_run(0, want, absolute, WORDS("f", "2"));
        expect_run(1, "not a compiled model: its end holds no trailer (bad file)", absolute,
                   WORDS("x.npy"));
        free(absolute);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(npy_in_npy_out),
        cmocka_unit_test(several_outputs_share_a_safetensors_file),
        cmocka_unit_test(other_dtypes_are_converted_if_they_fit),
        cmocka_unit_test(labels_are_scored),
        cmocka_unit_test(without_a_file_outputs_are_summed_up),
        cmocka_unit_test(it_explains_itself),
        cmocka_unit_test(a_full_standard_output_is_an_error),
        cmocka_unit_test(wrong_words_get_help),
        cmocka_unit_test(bad_files_and_devices_are_errors),
        cmocka_unit_test(a_cut_program_says_so),
        cmocka_unit_test(benchmarks_and_traces),
        cmocka_unit_test(benchmarks_say_what_ran),
        cmocka_unit_test(names_are_shown_and_do_nothing),
        cmocka_unit_test(a_c_program_embeds_a_model),
    };
    if (argc != 4 && argc != 5)
        return 2;
    if (argc == 5)
        compiler_path = realpath(argv[4], NULL);
    stub_path = argv[1];
    embed_path[0] = argv[2];
    embed_path[1] = argv[3];
    return cmocka_run_group_tests(tests, setup, teardown);
}
