/* test_models plan FILE.ir: prints the launch plan of a model.
 * test_models run PATH..: compiles each model (folders: every .ir in them but goldens) with and
 * without fusion to a file, runs the files on random inputs of many batch sizes and compares: both
 * must give the same bits, and what the evaluator gives for the fused module. A first line with the
 * word `exact` asks for the evaluator's very bits, else the normalised mean square error counts.
 * test_models random FIRST NUM: the same for random models, by their seeds. */
#include "codegen/codegen.h"
#include "runtime/sinter.h"
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

static bool model_build(Model *model, const char *name, const char *text, int level)
{
    model->arena = arena_create();
    diag_init(&model->diag, model->arena);
    uint32_t source = diag_add_source(&model->diag, name, text, strlen(text));
    PassOptions options = {.opt_level = level, .base_dir = "."};
    PassContext context;
    pass_context_init(&context, model->arena, &options);
    model->m = module_parse(model->arena, &model->diag, source);
    bool ok = model->m && passes_run(model->m, &context, NULL) &&
              codegen_plan(model->m, model->arena, &model->target);
    if (!ok || model->diag.num_errors)
        diag_print(&model->diag, stdout, false);
    return ok && !model->diag.num_errors;
}

static bool model_write(Model *model, const char *path)
{
    WriteOptions options = {.stub = "", .stub_size = 0, .report = "none\n"};
    bool ok = codegen_write(model->m, &model->target, path, &options);
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
    if (!text || !model_build(&model, file_name(path), text, 1))
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

static bool run_eval(const Module *m, const int64_t *size, const Data *in, Eval **ret)
{
    const char *why = "";
    Eval *e = eval_create(m, EVAL_CONTRACT, size);
    for (int i = 0; i < in->num; i++) {
        const SinterTensor *from = &in->port[i];
        Tensor t = {.fmt = format_of(from->dtype),
                    .rank = from->rank,
                    .data = from->data,
                    .bytes = port_bytes(from)};
        memcpy(t.dim, from->dim, sizeof t.dim);
        if (!eval_bind(e, from->name, &t)) {
            printf("# the evaluator does not take %s\n", from->name);
            return false;
        }
    }
    *ret = e;
    if (eval_run(e, NULL, NULL, &why))
        return true;
    printf("# the evaluator: %s\n", why);
    return false;
}

static double as_number(FormatId fmt, const void *data, uint64_t at)
{
    double value;
    if (fmt == FMT_I32)
        return ((const int32_t *)data)[at];
    format_to_f64(fmt, (const char *)data + at * (uint64_t)format_info[fmt].bits / 8, &value, 1);
    return value;
}

/* NaN where there is no bound: rounding may move an f32 sum by a last place, and then a stored bf16
 * or a code by one of theirs. */
static double normalised_error(const SinterTensor *got, const Tensor *want)
{
    double error = 0, power = 0;
    for (uint64_t i = 0; i < port_elements(got); i++) {
        double a = as_number(format_of(got->dtype), got->data, i);
        double b = as_number(want->fmt, want->data, i);
        if (isnan(a) != isnan(b))
            return INFINITY;
        if (isnan(a) || a == b)
            continue;
        error += (a - b) * (a - b);
        power += b * b;
    }
    return error == 0 ? 0 : error / power;
}

static bool compare_eval(const Data *got, const Eval *e, double f32_bound)
{
    bool ok = true;
    for (int i = 0; i < got->num; i++) {
        const SinterTensor *port = &got->port[i];
        const Tensor *want = eval_output(e, port->name);
        double bound = port->dtype == SINTER_F32 || f32_bound == 0 ? f32_bound : 1e-5;
        if (port_elements(port) < 16) /* a few sums that may cancel */
            bound *= 25;
        if (!want || want->bytes != port_bytes(port)) {
            printf("# output %s has another shape\n", port->name);
            return false;
        }
        double error = normalised_error(port, want);
        if (!(error <= bound)) {
            printf("# output %s: error %g, at most %g\n", port->name, error, bound);
            ok = false;
        }
    }
    return ok;
}

static bool compare_bits(const Data *a, const Data *b)
{
    for (int i = 0; i < a->num; i++)
        if (port_bytes(&a->port[i]) != port_bytes(&b->port[i]) ||
            memcmp(a->port[i].data, b->port[i].data, port_bytes(&a->port[i])) != 0)
            return false;
    return true;
}

/* Models -------------------------------------------------------------------------------------- */

typedef struct Pair { /* one model, compiled at both levels */
    Model model[2];
    SinterModel *file[2];
    double bound; /* of the normalised error of f32 outputs; rounded ones may have more */
    bool refused;
} Pair;

static bool pair_open(Pair *pair, const char *name, const char *text)
{
    for (int level = 0; level < 2; level++) {
        char out[] = "/tmp/sinter-model-XXXXXX";
        SinterError err;
        int fd = mkstemp(out);
        if (fd >= 0)
            close(fd);
        bool ok = fd >= 0 && model_build(&pair->model[level], name, text, level);
        pair->refused = fd >= 0 && !ok;
        ok = ok && model_write(&pair->model[level], out);
        if (ok && sinter_open(out, &pair->file[level], &err)) {
            printf("# %s\n", err.text);
            ok = false;
        }
        unlink(out);
        if (!ok)
            return false;
    }
    return true;
}

static void pair_close(Pair *pair)
{
    for (int level = 0; level < 2; level++) {
        sinter_close(pair->file[level]);
        arena_destroy(pair->model[level].arena);
    }
}

static bool run_sizes(Pair *pair, const int64_t *size, bool *ret_same, bool *ret_close)
{
    Data in = {0}, out[2] = {{.num = 0}};
    Eval *e = NULL;
    const Plan *plan = pair->model[1].target.plan;
    bool ok = make_inputs(plan, size, pair->file[1], &in);
    for (int level = 0; ok && level < 2; level++)
        ok = run_file(pair->file[level], &in, &out[level]);
    ok = ok && run_eval(pair->model[1].m, size, &in, &e);
    if (ok) {
        bool same = compare_bits(&out[0], &out[1]), close = compare_eval(&out[1], e, pair->bound);
        if (!same || !close)
            printf("# with %s = %lld\n", plan->num_syms ? plan->sym[0].name : "no size",
                   plan->num_syms ? (long long)size[0] : 0);
        *ret_same &= same;
        *ret_close &= close;
    }
    if (e)
        eval_destroy(e);
    data_free(&in);
    data_free(&out[0]);
    data_free(&out[1]);
    return ok;
}

/* Every bucket, sizes between them, and, where batches may be cut, one beyond the largest. */
static bool run_all_sizes(Pair *pair, bool *ret_same, bool *ret_close)
{
    const Plan *plan = pair->model[1].target.plan;
    bool ok = true;
    for (int b = 0; ok && b < plan->num_buckets; b++) {
        int64_t size[LIMIT_BUCKETS];
        for (int i = 0; i < plan->num_syms; i++)
            size[i] = plan_bucket(plan, b)[i];
        ok = run_sizes(pair, size, ret_same, ret_close);
        bool is_last = b + 1 == plan->num_buckets;
        if (plan->num_syms && size[0] > 2)
            size[0] -= 2;
        bool cuts = plan->rows_independent && pair->model[0].target.plan->rows_independent;
        if (plan->num_syms && is_last && cuts)
            size[0] = 2 * plan_bucket(plan, b)[0] + 3;
        ok = ok && run_sizes(pair, size, ret_same, ret_close);
    }
    return ok;
}

static void test_model(const char *path)
{
    Pair pair = {0};
    char *text = read_text(path);
    const char *end = text ? strchr(text, '\n') : NULL, *word = text ? strstr(text, "exact") : NULL;
    bool exact = end && word && text[0] == ';' && word < end;
    pair.bound = exact ? 0 : 1e-9;
    random_state = 1;
    bool same = true, close = true, ran = text && pair_open(&pair, file_name(path), text);
    ran = ran && run_all_sizes(&pair, &same, &close);
    report(ran, path, "compiles and runs");
    if (ran) {
        report(same, path, "fused and unfused give the same bits");
        report(close, path, exact ? "equals the evaluator" : "is near the evaluator");
    }
    pair_close(&pair);
    free(text);
}

/* A code of a small format that flips where float sums differ in their last place changes a result
 * by far more than the sums do, hence the wide bound: the sharp test here is that both levels give
 * the same bits. */
static void test_random(uint64_t first, uint64_t num)
{
    uint64_t failed = 0, refused = 0;
    for (uint64_t seed = first; seed < first + num; seed++) {
        Pair pair = {.bound = 2e-3};
        Arena *arena = arena_create();
        const char *text = model_text(arena, seed);
        random_state = seed;
        bool same = true, close = true, ran = pair_open(&pair, "m.ir", text);
        ran = ran && run_all_sizes(&pair, &same, &close);
        refused += pair.refused;
        if (!pair.refused && (!ran || !same || !close)) {
            failed++;
            printf("# seed %llu:%s%s%s\n", (unsigned long long)seed, ran ? "" : " does not run",
                   same ? "" : " levels differ", close ? "" : " far from the evaluator");
        }
        pair_close(&pair);
        arena_destroy(arena);
    }
    printf("# %llu models, %llu refused\n", (unsigned long long)num, (unsigned long long)refused);
    report(failed == 0, "random models", "run, with the same bits at both levels");
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
