/* test_models plan FILE.ir: prints the launch plan of a model.
 * test_models run PATH..: compiles each model (folders: every .ir in them but goldens) with and
 * without fusion to a file, runs the files on random inputs of many batch sizes and compares: both
 * must give the same bits, and those that the evaluator gives from the same sums (forced.h).
 * test_models random FIRST NUM: the same for random models, by their seeds. */
#include "codegen/codegen.h"
#include "runtime/sinter.h"
#include "tests/codegen/forced.h"
#include "tests/passes/models.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_PORTS 128

static int num_tests, num_failed;

static void report(bool ok, const char *path, const char *what)
{
    num_tests++;
    num_failed += !ok;
    printf("%sok %d - %s: %s\n", ok ? "" : "not ", num_tests, path, what);
}

/* A module, fused at the given level, and its plan. */
typedef struct Model {
    Arena *arena, *scratch;
    Diag diag;
    Module *m;
    CodegenTarget target;
} Model;

static bool model_build(Model *model, const char *name, const char *text, int level, bool probes)
{
    model->arena = arena_create();
    diag_init(&model->diag, model->arena);
    uint32_t source = diag_add_source(&model->diag, name, text, strlen(text));
    PassOptions options = {.opt_level = level, .base_dir = "."};
    PassContext context;
    pass_context_init(&context, model->arena, &options);
    model->m = module_parse(model->arena, &model->diag, source);
    bool ok = model->m && passes_run(model->m, &context, NULL);
    if (ok && probes)
        probes_add(model->m);
    ok = ok && codegen_plan(model->m, model->arena, &model->target);
    if (!ok || model->diag.num_errors)
        diag_print(&model->diag, stdout, false);
    return ok && !model->diag.num_errors;
}

static bool model_write(Model *model, const char *path)
{
    WriteOptions options = {.stub = "", .stub_size = 0, .report = "none\n"};
    bool ok = codegen_write(model->m, 1, &(WriteTarget){.target = &model->target}, path, &options);
    if (!ok)
        diag_print(&model->diag, stdout, false);
    return ok;
}

static char *read_text(const char *path)
{
    IoError err;
    uint64_t size;
    char *text = file_read(path, LIMIT_SOURCE_BYTES, &size, &err);
    if (!text)
        printf("# %s\n", err.text);
    return text;
}

static const char *file_name(const char *path)
{
    return strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
}

static int print_plan(const char *path)
{
    Model model = {0};
    Sb sb;
    char *text = read_text(path);
    if (!text || !model_build(&model, file_name(path), text, 1, false))
        return 1;
    sb_init(&sb, model.arena);
    plan_print(&sb, model.target.plan);
    fputs(sb.text, stdout);
    free(text);
    arena_destroy(model.arena);
    return 0;
}

/* Data ---------------------------------------------------------------------------------------- */

static uint64_t random_state;

static double random_normal(void) /* near enough: the sum of 12 uniform numbers */
{
    double sum = -6;
    for (int i = 0; i < 12; i++) {
        random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        sum += (double)(random_state >> 40) / (double)(1 << 24);
    }
    return sum;
}

typedef struct Data {
    SinterTensor port[MAX_PORTS];
    int num;
} Data;

static FormatId format_of(SinterDtype dtype)
{
    return dtype == SINTER_F16    ? FMT_F16
           : dtype == SINTER_BF16 ? FMT_BF16
           : dtype == SINTER_I32  ? FMT_I32
                                  : FMT_F32;
}

static uint64_t port_elements(const SinterTensor *t)
{
    uint64_t num = 1;
    for (int i = 0; i < t->rank; i++)
        num *= (uint64_t)t->dim[i];
    return num;
}

static uint64_t port_bytes(const SinterTensor *t)
{
    return port_elements(t) * (uint64_t)format_info[format_of(t->dtype)].bits / 8;
}

static void data_free(Data *data)
{
    for (int i = 0; i < data->num; i++)
        free(data->port[i].data);
    data->num = 0;
}

/* Inputs of the shapes that these sizes of the symbols give. */
static bool make_inputs(const Plan *plan, const int64_t *size, const SinterModel *model, Data *ret)
{
    for (int i = 0; i < plan->num_inputs; i++) {
        const PlanTensor *t = &plan->tensor[plan->input[i].tensor];
        SinterPort port = sinter_input(model, i);
        SinterTensor *in = &ret->port[i];
        *in = (SinterTensor){.name = port.name, .dtype = port.dtype, .rank = t->rank};
        for (int k = 0; k < t->rank; k++)
            in->dim[k] = plan_dim_eval(t->dim[k], size);
        uint64_t num = port_elements(in);
        float *value = malloc(4 * num + 4);
        in->data = malloc(port_bytes(in) + 4);
        for (uint64_t k = 0; k < num; k++)
            value[k] = (float)(2 * random_normal());
        if (in->dtype == SINTER_I32)
            for (uint64_t k = 0; k < num; k++)
                ((int32_t *)in->data)[k] = (int32_t)value[k];
        else
            format_from_f32(format_of(in->dtype), value, in->data, num);
        free(value);
        ret->num = i + 1;
    }
    return plan->num_inputs <= MAX_PORTS && plan->num_outputs <= MAX_PORTS;
}

/* Running ------------------------------------------------------------------------------------- */

static bool run_file(SinterModel *model, const Data *in, Data *out)
{
    SinterError err;
    SinterSession *session;
    const SinterSessionOptions options = {.threads = 2};
    if (sinter_session_create(model, &options, &session, &err)) {
        printf("# %s\n", err.text);
        return false;
    }
    int num = sinter_num_outputs(model);
    for (int i = 0; i < num; i++) {
        SinterPort port = sinter_output(model, i);
        out->port[i] = (SinterTensor){.name = port.name, .dtype = port.dtype};
    }
    SinterStatus status = sinter_output_shapes(session, in->port, in->num, out->port, num, &err);
    for (int i = 0; !status && i < num; i++) {
        out->port[i].data = malloc(port_bytes(&out->port[i]) + 4);
        memset(out->port[i].data, 0xa5, port_bytes(&out->port[i]));
    }
    out->num = num;
    if (!status)
        status = sinter_run(session, in->port, in->num, out->port, num, &err);
    if (status)
        printf("# %s\n", err.text);
    sinter_session_destroy(session);
    return status == SINTER_OK;
}

static bool compare_bits(const Data *a, const Data *b)
{
    for (int i = 0; i < a->num && i < b->num; i++)
        if (port_bytes(&a->port[i]) != port_bytes(&b->port[i]) ||
            memcmp(a->port[i].data, b->port[i].data, port_bytes(&a->port[i])) != 0)
            return false;
    return true;
}

/* Models -------------------------------------------------------------------------------------- */

enum { UNFUSED, FUSED, PROBED, NUM_BUILDS };

typedef struct Builds { /* of one model: without and with fusion, and unfused with its sums shown */
    Model model[NUM_BUILDS];
    SinterModel *file[NUM_BUILDS];
    bool refused;
} Builds;

static bool builds_open(Builds *b, const char *name, const char *text)
{
    for (int i = 0; i < NUM_BUILDS; i++) {
        char out[] = "/tmp/sinter-model-XXXXXX";
        SinterError err;
        int fd = mkstemp(out);
        if (fd >= 0)
            close(fd);
        bool ok = fd >= 0 && model_build(&b->model[i], name, text, i == FUSED, i == PROBED);
        b->refused = fd >= 0 && !ok;
        ok = ok && model_write(&b->model[i], out);
        if (ok && sinter_open(out, &b->file[i], &err)) {
            printf("# %s\n", err.text);
            ok = false;
        }
        unlink(out);
        if (!ok)
            return false;
    }
    return true;
}

static void builds_close(Builds *b)
{
    for (int i = 0; i < NUM_BUILDS; i++) {
        sinter_close(b->file[i]);
        arena_destroy(b->model[i].arena);
    }
}

typedef struct Outcome {
    bool same, equal; /* the levels to each other, all to the evaluator */
    ForcedStats stats;
} Outcome;

static bool run_sizes(Builds *b, const int64_t *size, Outcome *ret)
{
    Data in = {0}, out[NUM_BUILDS] = {{.num = 0}};
    const Plan *plan = b->model[FUSED].target.plan;
    bool ok = make_inputs(plan, size, b->file[FUSED], &in);
    for (int i = 0; ok && i < NUM_BUILDS; i++)
        ok = run_file(b->file[i], &in, &out[i]);
    if (ok) {
        const Data *probed = &out[PROBED];
        bool same = compare_bits(&out[UNFUSED], &out[FUSED]);
        bool equal = compare_bits(&out[UNFUSED], probed) &&
                     forced_compare(b->model[PROBED].m, size, in.num, in.port, probed->num,
                                    probed->port, &ret->stats);
        if (!same || !equal)
            printf("# with %s = %lld\n", plan->num_syms ? plan->sym[0].name : "no size",
                   plan->num_syms ? (long long)size[0] : 0);
        ret->same &= same;
        ret->equal &= equal;
    }
    data_free(&in);
    for (int i = 0; i < NUM_BUILDS; i++)
        data_free(&out[i]);
    return ok;
}

static bool may_cut(const Builds *b)
{
    for (int i = 0; i < NUM_BUILDS; i++)
        if (!b->model[i].target.plan->rows_independent)
            return false;
    return true;
}

/* Every bucket, sizes between them, and, where batches may be cut, one beyond the largest. */
static bool run_all_sizes(Builds *builds, Outcome *ret)
{
    const Plan *plan = builds->model[FUSED].target.plan;
    bool ok = true;
    for (int b = 0; ok && b < plan->num_buckets; b++) {
        int64_t size[LIMIT_BUCKETS];
        for (int i = 0; i < plan->num_syms; i++)
            size[i] = plan_bucket(plan, b)[i];
        ok = run_sizes(builds, size, ret);
        bool is_last = b + 1 == plan->num_buckets;
        if (plan->num_syms && size[0] > 2)
            size[0] -= 2;
        if (plan->num_syms && is_last && may_cut(builds))
            size[0] = 2 * plan_bucket(plan, b)[0] + 3;
        ok = ok && run_sizes(builds, size, ret);
    }
    return ok;
}

static void test_model(const char *path)
{
    Builds builds = {0};
    char *text = read_text(path);
    random_state = 1;
    Outcome outcome = {true, true, {0}};
    bool ran = text && builds_open(&builds, file_name(path), text);
    ran = ran && run_all_sizes(&builds, &outcome);
    report(ran, path, "compiles and runs");
    if (ran) {
        report(outcome.same, path, "fused and unfused give the same bits");
        report(outcome.equal, path, "gives the evaluator's bits");
    }
    builds_close(&builds);
    free(text);
}

static void test_random(uint64_t first, uint64_t num)
{
    uint64_t failed = 0, refused = 0;
    Outcome total = {.stats = {0}};
    for (uint64_t seed = first; seed < first + num; seed++) {
        Builds builds = {0};
        Arena *arena = arena_create();
        const char *text = model_text(arena, seed);
        random_state = seed;
        Outcome outcome = {true, true, total.stats};
        bool ran = builds_open(&builds, "m.ir", text);
        ran = ran && run_all_sizes(&builds, &outcome);
        total = outcome;
        refused += builds.refused;
        if (!builds.refused && (!ran || !outcome.same || !outcome.equal)) {
            failed++;
            printf("# seed %llu:%s%s%s\n", (unsigned long long)seed, ran ? "" : " does not run",
                   outcome.same ? "" : " levels differ",
                   outcome.equal ? "" : " differs from the evaluator");
        }
        builds_close(&builds);
        arena_destroy(arena);
    }
    printf("# %llu models, %llu refused\n", (unsigned long long)num, (unsigned long long)refused);
    forced_print(&total.stats);
    report(failed == 0, "random models", "run, with the evaluator's bits at both levels");
    report(refused * 3 < num, "random models", "few are refused");
}

static int compare_names(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_model(const struct dirent *entry)
{
    size_t len = strlen(entry->d_name);
    return len > 3 && strcmp(entry->d_name + len - 3, ".ir") == 0 &&
           !strstr(entry->d_name, ".out.ir");
}

static void test_path(const char *path)
{
    struct dirent **entry;
    int num = scandir(path, &entry, is_model, compare_names);
    if (num < 0) {
        test_model(path);
        return;
    }
    for (int i = 0; i < num; i++) {
        char *file = malloc(strlen(path) + strlen(entry[i]->d_name) + 2);
        snprintf(file, strlen(path) + strlen(entry[i]->d_name) + 2, "%s/%s", path,
                 entry[i]->d_name);
        test_model(file);
        free(file);
        free(entry[i]);
    }
    free(entry);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "plan") == 0)
        return print_plan(argv[2]);
    if (argc == 4 && strcmp(argv[1], "random") == 0)
        test_random(strtoull(argv[2], NULL, 10), strtoull(argv[3], NULL, 10));
    for (int i = 2; i < argc && strcmp(argv[1], "run") == 0; i++)
        test_path(argv[i]);
    printf("1..%d\n", num_tests);
    return num_failed > 0;
}
