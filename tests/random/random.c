/* random FIRST NUM [DIR]: random models, end to end. For each seed a model is generated and
 *   - its text has a canonical form with the same meaning, and its printed IR reads back;
 *   - it is compiled with and without fusion to files, which are run on sizes from 0 to beyond the
 *     largest bucket: both give the same bits;
 *   - these are the evaluator's bits from the same sums of floats, which differ from its own by no
 *     more than any order of summation may (tests/codegen/forced.h);
 *   - quantised results resemble those of the plain model.
 * With DIR the files of each seed stay in DIR/SEED. TAP, one line for ten seeds; a failing seed is
 * named. From 500 seeds on the pairs of schemes that met are printed; from 5000 on all must have.
 */
#include "codegen/codegen.h"
#include "frontend/frontend.h"
#include "runtime/sinter.h"
#include "tests/codegen/forced.h"
#include "tests/random/coverage.h"
#include "tests/random/generate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_PORTS 128 /* probes among them */

enum { UNFUSED, FUSED, PROBED, NUM_BUILDS }; /* PROBED: unfused with its sums shown */

typedef struct Compiled { /* one build of a model */
    Arena *arena;
    Diag diag;
    Module *m;
    CodegenTarget target;
    SinterModel *file;
} Compiled;

typedef struct Data {
    SinterTensor port[MAX_PORTS];
    int num;
} Data;

static bool complain(const char *what, Diag *diag)
{
    printf("# %s\n", what);
    if (diag)
        diag_print(diag, stdout, false);
    return false;
}

/* Compiling ------------------------------------------------------------------------------------ */

static Module *frontend(Compiled *c, const char *path)
{
    c->arena = arena_create();
    diag_init(&c->diag, c->arena);
    return c->m = frontend_compile(c->arena, &c->diag, path, NULL);
}

static bool compile(Compiled *c, const char *path, const char *dir, int build)
{
    PassOptions options = {.opt_level = build == FUSED, .base_dir = dir};
    PassContext context;
    WriteOptions write = {.stub = "", .report = "none\n"};
    const char *out = NULL;
    if (!frontend(c, path))
        return complain("the text is refused", &c->diag);
    out = arena_printf(c->arena, "%s/model%d", dir, build);
    pass_context_init(&context, c->arena, &options);
    if (!passes_run(c->m, &context, NULL) || c->diag.num_errors)
        return complain("a pass fails", &c->diag);
    if (build == PROBED)
        probes_add(c->m);
    if (!codegen_plan(c->m, c->arena, &c->target) ||
        !codegen_write(c->m, 1, &(WriteTarget){.target = &c->target}, out, &write) ||
        c->diag.num_errors)
        return complain("codegen fails", &c->diag);
    SinterError err;
    if (sinter_open(out, &c->file, &err))
        return complain(err.text, NULL);
    return true;
}

static void compiled_free(Compiled *c)
{
    sinter_close(c->file);
    if (c->m)
        weights_close(c->m->weights);
    arena_destroy(c->arena);
}

/* The text's canonical form means the same, and the printed IR reads back. */
static bool check_text(const char *path)
{
    Arena *arena = arena_create();
    Diag diag;
    Sb first, second;
    uint64_t size;
    IoError err;
    diag_init(&diag, arena);
    sb_init(&first, arena);
    sb_init(&second, arena);
    char *text = file_read(path, LIMIT_SOURCE_BYTES, &size, &err);
    bool ok = text != NULL;
    char *formatted =
        ok ? source_format(arena, &diag, diag_add_source(&diag, path, text, size)) : NULL;
    Compiled c = {0};
    if (formatted && frontend(&c, path)) {
        module_print(&first, c.m, false);
        uint32_t source = diag_add_source(&diag, "printed", first.text, first.len);
        Module *read = module_parse(arena, &diag, source);
        source = diag_add_source(&diag, "formatted", formatted, strlen(formatted));
        Ast *ast = ast_parse(arena, &diag, source);
        Module *again = ast && ast_check(ast, &diag, NULL) ? ast_lower(ast, arena, &diag) : NULL;
        char *twice = source_format(arena, &diag, source);
        if (again)
            module_print(&second, again, false);
        ok = read && again && strcmp(first.text, second.text) == 0 && twice &&
             strcmp(twice, formatted) == 0;
    }
    if (!ok)
        complain("the canonical form or the printed IR differs", &diag);
    compiled_free(&c);
    arena_destroy(arena);
    free(text);
    return ok;
}

/* Data ----------------------------------------------------------------------------------------- */

static FormatId format_of(SinterDtype dtype)
{
    return dtype == SINTER_F16 ? FMT_F16 : dtype == SINTER_BF16 ? FMT_BF16 : FMT_F32;
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

/* What one row of an input may hold in place of small numbers. */
typedef enum Odd {
    ODD_NONE,
    ODD_ZEROS,
    ODD_DENORMAL,
    ODD_LARGE,
    ODD_INFINITY,
    ODD_NAN,
    NUM_ODD
} Odd;

static void put_odd(Odd odd, float *row, uint64_t num, uint64_t at)
{
    static const float factor[] = {
        [ODD_NONE] = 1, [ODD_ZEROS] = 0, [ODD_DENORMAL] = 0x1p-140f, [ODD_LARGE] = 0x1p40f};
    for (uint64_t i = 0; i < num && odd <= ODD_LARGE; i++)
        row[i] *= factor[odd];
    if (odd > ODD_LARGE)
        row[at] = odd == ODD_NAN ? NAN : at % 2 ? INFINITY : -INFINITY;
}

static void make_inputs(const Plan *plan, const int64_t *size, const SinterModel *model, Odd odd,
                        uint64_t *state, Data *ret)
{
    for (int i = 0; i < plan->num_inputs && i < MAX_PORTS; i++) {
        const PlanTensor *t = &plan->tensor[plan->input[i].tensor];
        SinterPort port = sinter_input(model, i);
        SinterTensor *in = &ret->port[i];
        *in = (SinterTensor){.name = port.name, .dtype = port.dtype, .rank = t->rank};
        for (int k = 0; k < t->rank; k++)
            in->dim[k] = plan_dim_eval(t->dim[k], size);
        uint64_t num = port_elements(in);
        float *value = malloc(4 * num + 4);
        in->data = malloc(port_bytes(in) + 4);
        uint64_t cols = (uint64_t)in->dim[in->rank - 1];
        for (uint64_t k = 0; k < num; k++)
            value[k] = (float)(2 * random_normal(state));
        if (num) /* the last row, so that cut batches meet it too */
            put_odd(odd, value + num - cols, cols, random_next(state) % cols);
        format_from_f32(format_of(in->dtype), value, in->data, num);
        free(value);
        ret->num = i + 1;
    }
}

static bool run_file(SinterModel *model, const Data *in, int threads, Data *out)
{
    SinterError err;
    SinterSession *session;
    const SinterSessionOptions options = {.threads = threads};
    if (sinter_session_create(model, &options, &session, &err))
        return complain(err.text, NULL);
    int num = sinter_num_outputs(model);
    num = num > MAX_PORTS ? MAX_PORTS : num;
    for (int i = 0; i < num; i++) {
        SinterPort port = sinter_output(model, i);
        out->port[i] = (SinterTensor){.name = port.name, .dtype = port.dtype};
    }
    SinterStatus status = sinter_output_shapes(session, in->port, in->num, out->port, num, &err);
    for (int i = 0; !status && i < num; i++) {
        out->port[i].data = malloc(port_bytes(&out->port[i]) + 4);
        memset(out->port[i].data, 0xa5, port_bytes(&out->port[i]));
        out->num = i + 1;
    }
    if (!status)
        status = sinter_run(session, in->port, in->num, out->port, num, &err);
    sinter_session_destroy(session);
    return status ? complain(err.text, NULL) : true;
}

static Eval *run_eval(const Module *m, EvalMode mode, const int64_t *size, const Data *in)
{
    const char *why = "an input does not bind";
    Eval *e = eval_create(m, mode, size);
    bool ok = e != NULL;
    for (int i = 0; ok && i < in->num; i++) {
        const SinterTensor *from = &in->port[i];
        Tensor t = {.fmt = format_of(from->dtype),
                    .rank = from->rank,
                    .data = from->data,
                    .bytes = port_bytes(from)};
        memcpy(t.dim, from->dim, sizeof from->dim);
        ok = eval_bind(e, from->name, &t);
    }
    if (ok && eval_run(e, NULL, NULL, &why))
        return e;
    printf("# the evaluator: %s\n", why);
    eval_destroy(e);
    return NULL;
}

/* Comparing ------------------------------------------------------------------------------------ */

static double as_number(FormatId fmt, const void *data, uint64_t at)
{
    double value;
    format_to_f64(fmt, (const char *)data + at * (uint64_t)format_info[fmt].bits / 8, &value, 1);
    return value;
}

typedef struct Error {
    double error, power, other, dot;
} Error;

static Error measure(const SinterTensor *got, const Tensor *want)
{
    Error e = {0};
    for (uint64_t i = 0; i < port_elements(got); i++) {
        double a = as_number(format_of(got->dtype), got->data, i);
        double b = as_number(want->fmt, want->data, i);
        if (!isfinite(a) || !isfinite(b))
            continue;
        e.error += (a - b) * (a - b);
        e.power += b * b;
        e.other += a * a;
        e.dot += a * b;
    }
    return e;
}

typedef struct Totals {
    int runs;
    int outputs, unlike; /* of at least 32 elements; whose cosine with the plain model's is low */
    ForcedStats forced;
    Coverage coverage;
} Totals;

/* Not every result of 4-bit codes is like the plain model's, but few are not: a scale at the wrong
 * place or a zero point forgotten would show. */
static void count_unlike(const Data *got, const Eval *plain, Totals *totals)
{
    for (int i = 0; i < got->num; i++) {
        Error e = measure(&got->port[i], eval_output(plain, got->port[i].name));
        if (port_elements(&got->port[i]) < 32 || e.power == 0)
            continue;
        totals->outputs++;
        totals->unlike += !(e.dot > 0.8 * sqrt(e.power * e.other));
    }
}

/* Which bits a NaN has is unspecified. */
static bool same_number(FormatId fmt, const void *a, const void *b, uint64_t at)
{
    uint64_t each = (uint64_t)format_info[fmt].bits / 8;
    return memcmp((const char *)a + at * each, (const char *)b + at * each, each) == 0 ||
           (isnan(as_number(fmt, a, at)) && isnan(as_number(fmt, b, at)));
}

static bool same_bits(const Data *a, const Data *b)
{
    for (int i = 0; i < a->num; i++) {
        const SinterTensor *x = &a->port[i], *y = &b->port[i];
        uint64_t at = 0;
        if (port_bytes(x) != port_bytes(y))
            return complain("fused and unfused outputs have different shapes", NULL);
        while (at < port_elements(x) && same_number(format_of(x->dtype), x->data, y->data, at))
            at++;
        if (at == port_elements(x))
            continue;
        printf("# output %s, element %llu: %.9g unfused, %.9g fused\n", x->name,
               (unsigned long long)at, as_number(format_of(x->dtype), x->data, at),
               as_number(format_of(x->dtype), y->data, at));
        return false;
    }
    return true;
}

/* Models --------------------------------------------------------------------------------------- */

static bool run_size(Compiled *c, const Module *plain, const int64_t *size, uint64_t *state,
                     Totals *totals)
{
    Data in = {0}, out[NUM_BUILDS] = {{.num = 0}};
    Odd odd = (Odd)(random_next(state) % (2 * NUM_ODD));
    odd = odd < NUM_ODD ? odd : ODD_NONE;
    make_inputs(c[1].target.plan, size, c[1].file, odd, state, &in);
    bool ok = true;
    for (int i = 0; ok && i < NUM_BUILDS; i++)
        ok = run_file(c[i].file, &in, 1 + i % 2, &out[i]);
    const Data *probed = &out[PROBED];
    ok = ok && same_bits(&out[UNFUSED], &out[FUSED]) && same_bits(&out[UNFUSED], probed) &&
         forced_compare(c[PROBED].m, size, in.num, in.port, probed->num, probed->port,
                        &totals->forced);
    Eval *reference = ok && odd <= ODD_ZEROS ? run_eval(plain, EVAL_F64, size, &in) : NULL;
    if (reference)
        count_unlike(&out[1], reference, totals);
    totals->runs++;
    eval_destroy(reference);
    data_free(&in);
    for (int i = 0; i < NUM_BUILDS; i++)
        data_free(&out[i]);
    if (!ok)
        printf("# at size %lld, odd row %d\n", (long long)size[0], odd);
    return ok;
}

/* Every bucket, one below it, no rows at all, and beyond the largest where batches may be cut. */
static bool run_sizes(Compiled *c, const Module *plain, uint64_t *state, Totals *totals)
{
    const Plan *plan = c[1].target.plan;
    bool ok = true;
    for (int b = 0; ok && b < plan->num_buckets; b++) {
        int64_t size[LIMIT_BUCKETS];
        for (int i = 0; i < plan->num_syms; i++)
            size[i] = plan_bucket(plan, b)[i];
        ok = run_size(c, plain, size, state, totals);
        bool cut = b + 1 == plan->num_buckets;
        for (int i = 0; i < NUM_BUILDS; i++)
            cut = cut && c[i].target.plan->rows_independent;
        if (b == 0) {
            int64_t first = size[0];
            size[0] = 0;
            ok = ok && run_size(c, plain, size, state, totals);
            size[0] = first;
        }
        size[0] = cut ? 2 * size[0] + 3 : size[0] > 1 ? size[0] - 1 : 1;
        ok = ok && run_size(c, plain, size, state, totals);
    }
    return ok;
}

/* The same model with nothing quantised and weights bound, for the evaluator. */
static bool plain_module(Compiled *c, const char *path, const char *dir)
{
    PassOptions options = {.opt_level = 0, .base_dir = dir};
    PassContext context;
    if (!frontend(c, path))
        return false;
    for_each_op(op, &c->m->body)
        op->attr.quant = NULL;
    pass_context_init(&context, c->arena, &options);
    return passes_run(c->m, &context, "bind-weights");
}

static bool test_seed(uint64_t seed, const char *dir, Totals *totals)
{
    Arena *arena = arena_create();
    Generated g;
    Compiled c[NUM_BUILDS] = {{0}}, plain = {0};
    uint64_t state = seed;
    bool ok = generate(arena, seed, dir, &g) && check_text(g.text_path);
    for (int i = 0; ok && i < NUM_BUILDS; i++)
        ok = compile(&c[i], g.text_path, dir, i);
    ok = ok && plain_module(&plain, g.text_path, dir) && run_sizes(c, plain.m, &state, totals);
    if (ok)
        coverage_add(&totals->coverage, c[UNFUSED].m);
    for (int i = 0; i < NUM_BUILDS; i++)
        compiled_free(&c[i]);
    compiled_free(&plain);
    arena_destroy(arena);
    if (!ok)
        printf("# seed %llu fails\n", (unsigned long long)seed);
    return ok;
}

static void remove_files(const char *dir)
{
    static const char *const name[] = {"model.sinter", "w.safetensors", "calib.safetensors",
                                       "model0",       "model1",        "model2"};
    char path[600];
    for (size_t i = 0; i < COUNT_OF(name); i++) {
        snprintf(path, sizeof path, "%s/%s", dir, name[i]);
        unlink(path);
    }
    rmdir(dir);
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: random FIRST NUM [DIR]\n");
        return 2;
    }
    uint64_t first = strtoull(argv[1], NULL, 10);
    int num = atoi(argv[2]), failed = 0, failed_here = 0, lines = 0;
    static Totals totals;
    char temporary[] = "/tmp/sinter-random-XXXXXX";
    if (argc < 4 && !mkdtemp(temporary))
        return 2;
    for (int i = 0; i < num; i++) {
        char dir[512];
        snprintf(dir, sizeof dir, "%s/%llu", argc < 4 ? temporary : argv[3],
                 (unsigned long long)first + (unsigned)i);
        mkdir(dir, 0777);
        bool ok = test_seed(first + (unsigned)i, dir, &totals);
        failed_here += !ok;
        if (argc < 4)
            remove_files(dir);
        if (i % 10 == 9 || i + 1 == num) {
            printf("%sok %d - seeds to %llu\n", failed_here ? "not " : "", ++lines,
                   (unsigned long long)first + (unsigned)i);
            fflush(stdout);
            failed += failed_here;
            failed_here = 0;
        }
    }
    if (argc < 4)
        rmdir(temporary);
    printf("# %d models, %d runs\n", num, totals.runs);
    forced_print(&totals.forced);
    if (num >= 500) {
        int missing = coverage_print(&totals.coverage);
        bool all = missing == 0 || num < 5000;
        printf("%sok %d - all but %d of %d pairs of schemes are multiplied\n", all ? "" : "not ",
               ++lines, missing, COVERAGE_WEIGHTS * COVERAGE_ACTS);
        failed += !all;
    }
    bool like = totals.unlike * (num < 100 ? 12 : 25) <= totals.outputs || totals.outputs < 50;
    printf("%sok %d - quantised results resemble the plain ones: all but %d of %d\n",
           like ? "" : "not ", ++lines, totals.unlike, totals.outputs);
    printf("1..%d\n", lines);
    failed += !like;
    return failed > 0;
}
