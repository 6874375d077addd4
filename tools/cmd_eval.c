/* eval: the expect lines of a text, or the labels of --labels. Exit 3 when a bound is missed. */
#include "runtime/sinter.h"
#include "tools/work.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static FormatId port_format(SinterDtype dtype)
{
    switch (dtype) {
    case SINTER_F32: return FMT_F32;
    case SINTER_F16: return FMT_F16;
    case SINTER_BF16: return FMT_BF16;
    case SINTER_I32: return FMT_I32;
    }
    return FMT_NONE;
}

/* One expect line at work. */
typedef struct Trial {
    Work *w;
    const Expect *expect;
    SinterModel *model;
    SinterSession *session;
    TensorFile *input, *output;
    SinterTensor *in, *out;
    int num_in, num_out;
} Trial;

static bool trial_error(Trial *t, ErrorId id, const char *text)
{
    diag_error(&t->w->diag, t->expect->span, id, "%s", text);
    return false;
}

static TensorFile *open_beside(Trial *t, const char *rel)
{
    IoError err;
    char *path = path_beside(t->w->path, rel);
    TensorFile *file = path ? tensorfile_open(path, &err) : NULL;
    free(path);
    if (!file)
        trial_error(t, err.id, err.text);
    return file;
}

/* The tensor for a port: by name, or the only one of the file. */
static const TensorView *find_view(Trial *t, const TensorFile *file, const char *port,
                                   int num_ports, const char *file_name)
{
    const TensorView *view = tensorfile_is_npy(file) ? NULL : tensorfile_find(file, port);
    if (!view && tensorfile_num(file) == 1 && num_ports == 1)
        view = tensorfile_at(file, 0);
    if (!view)
        diag_error(&t->w->diag, t->expect->span, E_EXPECT, "'%s' holds no tensor '%s'", file_name,
                   port);
    else if (view->fmt == FMT_NONE || !format_is_plain(view->fmt)) {
        diag_error(&t->w->diag, t->expect->span, E_EXPECT,
                   "'%s' holds %s, which is not a type of "
                   "inputs and outputs",
                   file_name, view->dtype);
        view = NULL;
    }
    return view;
}

/* Memory of one tensor of these sizes, from the arena; false on overflow. */
static bool allocate(Trial *t, SinterTensor *tensor)
{
    uint64_t num, bytes;
    FormatId fmt = port_format(tensor->dtype);
    if (!checked_elements(tensor->dim, tensor->rank, &num) ||
        !checked_mul(num, (uint64_t)format_info[fmt].bits / 8, &bytes) || bytes > LIMIT_BYTES)
        return trial_error(t, E_EXPECT, "the sizes of the data overflow");
    tensor->data = arena_alloc(t->w->arena, bytes);
    return true;
}

static bool bind_inputs(Trial *t)
{
    t->num_in = sinter_num_inputs(t->model);
    t->in = ARENA_NEW_ARRAY(t->w->arena, SinterTensor, (size_t)t->num_in);
    for (int i = 0; i < t->num_in; i++) {
        SinterPort port = sinter_input(t->model, i);
        const TensorView *view = find_view(t, t->input, port.name, t->num_in, t->expect->input);
        if (!view)
            return false;
        SinterTensor *in = &t->in[i];
        *in = (SinterTensor){.name = port.name, .dtype = port.dtype, .rank = view->rank};
        memcpy(in->dim, view->dim, sizeof in->dim);
        if (!allocate(t, in))
            return false;
        if (view->fmt == port_format(port.dtype)) {
            memcpy(in->data, view->data, view->bytes);
            continue;
        }
        if (view->elements > SIZE_MAX / sizeof(float))
            return trial_error(t, E_EXPECT, "the sizes of the data overflow");
        float *f32 = ARENA_NEW_ARRAY(t->w->arena, float, view->elements);
        format_to_f32(view->fmt, view->data, f32, view->elements);
        format_from_f32(port_format(port.dtype), f32, in->data, view->elements);
    }
    return true;
}

static bool run_outputs(Trial *t)
{
    SinterError err;
    t->num_out = sinter_num_outputs(t->model);
    t->out = ARENA_NEW_ARRAY(t->w->arena, SinterTensor, (size_t)t->num_out);
    for (int i = 0; i < t->num_out; i++) {
        SinterPort port = sinter_output(t->model, i);
        t->out[i] = (SinterTensor){.name = port.name, .dtype = port.dtype, .rank = port.rank};
    }
    if (sinter_output_shapes(t->session, t->in, t->num_in, t->out, t->num_out, &err))
        return trial_error(t, E_EXPECT, err.text);
    for (int i = 0; i < t->num_out; i++)
        if (!allocate(t, &t->out[i]))
            return false;
    if (sinter_run(t->session, t->in, t->num_in, t->out, t->num_out, &err))
        return trial_error(t, E_EXPECT, err.text);
    return true;
}

/* How far an output is from the expected values. */
typedef struct Distance {
    double max_abs, worst; /* worst: largest |error| - atol - rtol |expected| */
    double cosine, sqnr;   /* sqnr in dB; infinite when equal */
} Distance;

static Distance measure(const double *got, const double *want, uint64_t num, double atol,
                        double rtol)
{
    double dot = 0, got2 = 0, want2 = 0, error2 = 0;
    Distance d = {.worst = -INFINITY};
    for (uint64_t i = 0; i < num; i++) {
        bool both_nan = isnan(got[i]) && isnan(want[i]);
        double error = both_nan || got[i] == want[i] ? 0 : fabs(got[i] - want[i]);
        if (isnan(error))
            error = INFINITY;
        double over = error - atol - rtol * fabs(want[i]);
        d.max_abs = error > d.max_abs ? error : d.max_abs;
        d.worst = !(over <= d.worst) ? over : d.worst;
        error2 += error * error;
        if (both_nan)
            continue;
        dot += got[i] * want[i];
        got2 += got[i] * got[i];
        want2 += want[i] * want[i];
    }
    bool zeros = got2 == 0 && want2 == 0;
    d.cosine = zeros ? 1 : dot / (sqrt(got2) * sqrt(want2));
    d.sqnr = error2 == 0 ? INFINITY : 10 * log10(want2 / error2);
    return d;
}

static bool same_shape(const SinterTensor *out, const TensorView *want)
{
    if (out->rank != want->rank)
        return false;
    for (int i = 0; i < out->rank; i++)
        if (out->dim[i] != want->dim[i])
            return false;
    return true;
}

/* Bounds are met only by numbers: a NaN cosine misses. */
static bool judge(const Trial *t, const Distance *d)
{
    const Expect *e = t->expect;
    bool elementwise = !isnan(e->atol) || !isnan(e->rtol);
    return (!elementwise || d->worst <= 0) && (isnan(e->cosine) || d->cosine >= e->cosine) &&
           (isnan(e->sqnr) || d->sqnr >= e->sqnr);
}

static bool compare_output(Trial *t, int index)
{
    const SinterTensor *out = &t->out[index];
    const TensorView *want = find_view(t, t->output, out->name, t->num_out, t->expect->output);
    if (!want)
        return false;
    if (!same_shape(out, want)) {
        diag_error(&t->w->diag, t->expect->span, E_EXPECT,
                   "output '%s' has another shape than '%s' holds", out->name, t->expect->output);
        return false;
    }
    double *got = ARENA_NEW_ARRAY(t->w->arena, double, want->elements);
    double *ref = ARENA_NEW_ARRAY(t->w->arena, double, want->elements);
    format_to_f64(port_format(out->dtype), out->data, got, want->elements);
    format_to_f64(want->fmt, want->data, ref, want->elements);
    const Expect *e = t->expect;
    Distance d = measure(got, ref, want->elements, isnan(e->atol) ? 0 : e->atol,
                         isnan(e->rtol) ? 0 : e->rtol);
    bool ok = judge(t, &d);
    printf("%-4s %s -> %s  %s: largest error %.6g, cosine %.7f, sqnr %.2f dB\n", ok ? "ok" : "miss",
           e->input, e->output, out->name, d.max_abs, d.cosine, d.sqnr);
    if (!ok) {
        diag_error(&t->w->diag, e->span, E_EXPECT,
                   "output '%s' misses its bounds: largest error %.6g, cosine %.7f, sqnr %.2f dB",
                   out->name, d.max_abs, d.cosine, d.sqnr);
    }
    return ok;
}

/* 1: all bounds met, 0: some missed, -1: could not run. */
static int run_trial(Trial *t)
{
    t->input = open_beside(t, t->expect->input);
    t->output = t->input ? open_beside(t, t->expect->output) : NULL;
    int result = -1;
    if (t->output && bind_inputs(t) && run_outputs(t)) {
        int before = t->w->diag.num_errors;
        bool ok = true;
        for (int i = 0; i < t->num_out; i++)
            ok &= compare_output(t, i);
        result = ok ? 1 : t->w->diag.num_errors > before ? 0 : -1;
    }
    tensorfile_close(t->input);
    tensorfile_close(t->output);
    return result;
}

static int run_expects(Work *w, const char *program)
{
    SinterError err;
    Trial t = {.w = w};
    int threads, exit_code = EXIT_OK;
    if (!work_threads(w, &threads))
        return EXIT_USAGE;
    SinterSessionOptions options = {.device = cli_get(w->cli, OPTION_DEVICE, "cpu"),
                                    .threads = threads};
    if (sinter_open(program, &t.model, &err) ||
        sinter_session_create(t.model, &options, &t.session, &err)) {
        diag_error(&w->diag, (Span){0}, E_EXPECT, "%s", err.text);
        exit_code = err.status == SINTER_ERROR_NO_DEVICE ? EXIT_DEVICE : EXIT_INPUT;
    }
    for (int i = 0; i < w->module->expects.num && exit_code != EXIT_DEVICE && t.session; i++) {
        t.expect = &w->module->expects.elem[i];
        int result = run_trial(&t);
        if (result < 0)
            exit_code = EXIT_INPUT;
        else if (result == 0 && exit_code == EXIT_OK)
            exit_code = EXIT_MISMATCH;
    }
    sinter_session_destroy(t.session);
    sinter_close(t.model);
    return exit_code;
}

int cmd_eval(Cli *cli)
{
    Work w;
    const char *path = cli->operand.elem[0];
    if (cli_has(cli, OPTION_LABELS))
        return cmd_run(cli);
    if (cli_has(cli, OPTION_INPUT))
        return cli_usage(cli, "--input belongs with --labels; without them the expect lines run");
    if (!work_init(&w, cli))
        return EXIT_INPUT;
    int exit_code = EXIT_OK;
    if (file_is_program(path))
        diag_error(&w.diag, (Span){0}, E_USAGE,
                   "'%s' is a compiled file: its expect lines are in the text", path);
    const char *program = w.diag.num_errors ? NULL : work_program(&w, path);
    if (program && !w.module->expects.num) {
        diag_error(&w.diag, (Span){0}, E_EXPECT, "'%s' has no expect line", path);
        diag_help(&w.diag, "write: expect \"x.npy\" -> \"y.npy\" atol 0.01, or give --labels");
    } else if (program) {
        exit_code = run_expects(&w, program);
    }
    return work_end(&w, exit_code);
}
