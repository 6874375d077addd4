/* test_launches <source root> <fakecuda.so> [--update]: what the driver is asked to do for whole
 * models: copies, and the kernels of each bucket's graph by family, grid, block and shared memory.
 * The models are compiled without NVRTC (images are made up) and run on the fake driver; the logs
 * are goldens. Then that constants are computed once for all plans of a file. TAP. */
#include "driver/stub.h"
#include "driver/work.h"
#include "fake_driver.h"
#include "runtime/sinter.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The program in front of the file; nobody starts it. */
const unsigned char sinter_stub[] = "stub";
const size_t sinter_stub_size = 4;

typedef struct Case {
    const char *name, *text, *rules;
    int64_t rows[4]; /* of each run; 0: no more */
} Case;

static const Case cases[] = {
    {"digits-w8a8", "examples/digits/digits.sinter", "examples/digits/w8a8.rules", {16, 100}},
    {"digits-fp8", "examples/digits/digits.sinter", "examples/digits/fp8.rules", {1, 128}},
    {"digits-float", "examples/digits/digits.sinter", NULL, {1, 1024}},
};

static const char *root;
static FakeReset *reset;
static FakeGetCounts *get_counts;
static FakeGetLog *get_log;

/* Compiling ------------------------------------------------------------------------------------ */

/* Images that the fake driver takes. */
static void make_images(Work *w, DeviceCode *code)
{
    static const uint8_t cubin[] = "\177ELF made up";
    DeviceImage *image = ARENA_NEW_ARRAY(w->arena, DeviceImage, (size_t)code->num_kernels);
    for (int i = 0; i < code->num_kernels; i++)
        image[i] =
            (DeviceImage){.arch = "sm_90a", .kernel = i, .data = cubin, .size = sizeof cubin - 1};
    code->num_images = code->num_kernels;
    code->image = image;
}

/* The linker has eval_constants of the whole program come here. */
bool __real_eval_constants(const Module *m, int num, const Value *const *value, Tensor *ret,
                           const char **ret_why);
bool __wrap_eval_constants(const Module *m, int num, const Value *const *value, Tensor *ret,
                           const char **ret_why);
static const Value *evaluated[64]; /* since num_evaluated was 0 */
static int num_evaluated, num_again;

bool __wrap_eval_constants(const Module *m, int num, const Value *const *value, Tensor *ret,
                           const char **ret_why)
{
    for (int i = 0; i < num; i++) {
        if (value[i]->def->kind == OP_CONST)
            continue; /* as the file has it */
        for (int k = 0; k < num_evaluated; k++)
            num_again += evaluated[k] == value[i];
        if (num_evaluated < (int)COUNT_OF(evaluated))
            evaluated[num_evaluated++] = value[i];
    }
    return __real_eval_constants(m, num, value, ret, ret_why);
}

static bool compile(Work *w, const char *text, const char *out)
{
    if (!work_lower(w, text) || !work_passes(w, NULL) || !work_plan(w))
        return false;
    for (int i = 0; i < w->num_gpus; i++)
        make_images(w, &w->gpu[i].cuda.code);
    w->diag.sources.elem[0].name = "model.sinter";
    num_evaluated = num_again = 0;
    return work_write(w, out);
}

/* "stream.0" for the first kernel of the family stream in the order of the file. */
static const char *kernel_word(const Work *w, const char *name, size_t len)
{
    int of_family[NUM_CUDA_FAMILIES] = {0};
    for (int i = 0; i < w->gpu[0].cuda.num_sources; i++) {
        const CudaSource *s = &w->gpu[0].cuda.source[i];
        int at = of_family[s->family]++;
        if (strlen(s->name) == len && !memcmp(s->name, name, len))
            return arena_printf(w->arena, "%s.%d", cuda_family_name[s->family], at);
    }
    return "unknown";
}

/* Names of kernels are hashes of their text: words stand for them. */
static void put_log(Sb *sb, const Work *w)
{
    static const char launch[] = "launch ";
    for (const char *line = get_log(), *end; *line; line = end + 1) {
        end = strchr(line, '\n');
        if (!strncmp(line, launch, sizeof launch - 1)) {
            line += sizeof launch - 1;
            size_t len = strcspn(line, " ");
            sb_printf(sb, "%s%s", launch, kernel_word(w, line, len));
            line += len;
        }
        sb_putn(sb, line, (size_t)(end - line) + 1);
    }
}

/* Running -------------------------------------------------------------------------------------- */

static bool run_rows(SinterModel *model, SinterSession *session, int64_t rows, SinterError *err)
{
    SinterTensor x, y;
    bool ok = !sinter_port_shape(model, 0, 0, &rows, &x, err) &&
              !sinter_port_shape(model, 1, 0, &rows, &y, err);
    if (!ok)
        return false;
    x.data = calloc((size_t)(x.dim[0] * x.dim[1]), sizeof(float));
    y.data = calloc((size_t)(y.dim[0] * y.dim[1]), sizeof(float));
    ok = x.data && y.data && !sinter_run(session, &x, 1, &y, 1, err);
    free(x.data);
    free(y.data);
    return ok;
}

static bool run_case(const Case *c, const Work *w, const char *file, Sb *sb)
{
    SinterError err = {.text = "memory is exhausted"};
    SinterModel *model = NULL;
    SinterSession *session = NULL;
    reset(NULL);
    bool ok =
        !sinter_open(file, &model, &err) &&
        !sinter_session_create(model, &(SinterSessionOptions){.device = "cuda"}, &session, &err);
    for (int i = 0; ok && i < 4 && c->rows[i]; i++) {
        sb_printf(sb, "# %lld rows\n", (long long)c->rows[i]);
        reset(NULL);
        ok = run_rows(model, session, c->rows[i], &err);
        put_log(sb, w);
    }
    if (!ok)
        printf("# %s\n", err.text);
    sinter_session_destroy(session);
    sinter_close(model);
    FakeCounts counts = get_counts();
    return ok && !counts.misuse && !counts.memory && !counts.modules && !counts.execs;
}

static bool same_text(const char *path, const Sb *sb, bool update)
{
    IoError err;
    uint64_t size = 0;
    if (update) {
        FILE *f = fopen(path, "w");
        bool ok = f && fputs(sb->text, f) >= 0;
        return f && !fclose(f) && ok;
    }
    char *want = file_read(path, 1 << 20, &size, &err);
    bool same = want && size == sb->len && !memcmp(want, sb->text, size);
    if (!want)
        printf("# %s\n", err.text);
    else if (!same)
        for (char *line = sb->text, *next; *line; line = next) {
            next = strchr(line, '\n') + 1;
            printf("# %.*s", (int)(next - line), line);
        }
    free(want);
    return same;
}

static bool test_case(const Case *c, bool update)
{
    static const char out[] = "/tmp/sinter-launches-XXXXXX";
    char file[sizeof out], text[512], rules[512], golden[512];
    memcpy(file, out, sizeof out);
    int fd = mkstemp(file);
    if (fd < 0)
        return false;
    close(fd);
    snprintf(text, sizeof text, "%s/%s", root, c->text);
    snprintf(rules, sizeof rules, "--rules=%s/%s", root, c->rules ? c->rules : "");
    snprintf(golden, sizeof golden, "%s/tests/cuda/launches/%s.txt", root, c->name);
    char *argv[] = {"sinter", "compile", text, "--target=sm_90a", rules, NULL};
    Arena *arena = arena_create();
    Cli cli = {0};
    Work w;
    Sb sb;
    int exit_code;
    bool ok = cli_parse(&cli, arena, c->rules ? 5 : 4, argv, &exit_code) && work_init(&w, &cli);
    if (ok) {
        sb_init(&sb, arena);
        ok =
            compile(&w, text, file) && run_case(c, &w, file, &sb) && same_text(golden, &sb, update);
        work_end(&w, EXIT_OK);
    }
    unlink(file);
    arena_destroy(arena);
    return ok;
}

/* Three plans that store a weight in three ways between them. */
static bool test_evaluated(void)
{
    char text[512], rules[512];
    snprintf(text, sizeof text, "%s/examples/digits/digits.sinter", root);
    snprintf(rules, sizeof rules, "--rules=%s/examples/digits/w8a8.rules", root);
    char *argv[] = {"sinter", "compile", text, "--target=cpu,sm_90a,portable", rules, NULL};
    Arena *arena = arena_create();
    Cli cli = {0};
    Work w;
    int exit_code;
    bool ok = cli_parse(&cli, arena, 5, argv, &exit_code) && work_init(&w, &cli);
    if (ok) {
        ok = compile(&w, text, "/dev/null") && w.has_cpu && w.num_gpus == 2;
        work_end(&w, EXIT_OK);
    }
    printf("# %d values, %d of them again\n", num_evaluated, num_again);
    arena_destroy(arena);
    return ok && num_evaluated >= 6 && !num_again; /* codes and scales of three layers */
}

static bool load_fake(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *found[3] = {NULL};
    static const char *const name[] = {"fake_reset", "fake_counts", "fake_log"};
    for (int i = 0; library && i < 3; i++)
        found[i] = dlsym(library, name[i]);
    memcpy(&reset, &found[0], sizeof reset);
    memcpy(&get_counts, &found[1], sizeof get_counts);
    memcpy(&get_log, &found[2], sizeof get_log);
    return reset && get_counts && get_log && !setenv("SINTER_LIBCUDA", path, 1);
}

int main(int argc, char **argv)
{
    bool update = argc == 4 && !strcmp(argv[3], "--update"), all = true;
    if (argc < 3 || !load_fake(argv[2])) {
        fprintf(stderr, "usage: test_launches ROOT FAKE_DRIVER [--update]\n");
        return 2;
    }
    root = argv[1];
    printf("1..%d\n", (int)COUNT_OF(cases) + 1);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        bool ok = test_case(&cases[i], update);
        printf("%sok %d - %s\n", ok ? "" : "not ", (int)i + 1, cases[i].name);
        all = all && ok;
    }
    bool once = test_evaluated();
    printf("%sok %d - constants are computed once for all plans\n", once ? "" : "not ",
           (int)COUNT_OF(cases) + 1);
    return !(all && once);
}
