/* eval: the expect lines of a text, the labels of --labels, and with --against the errors of each
 * layer. Exit 3 when a bound is missed. */
#include "checkpoint/checkpoint.h"
#include "driver/compare.h"
#include "driver/trial.h"
#include "quant/metrics.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One expect line at work. */
typedef struct Check {
    Trial *t;
    const Expect *expect;
    const int64_t *label; /* NULL: none were given */
    int64_t num_labels;
    double accuracy;
    Sb json; /* a row for each output */
    bool as_json;
} Check;

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
static bool judge(const Expect *e, const Distance *d)
{
    bool elementwise = !isnan(e->atol) || !isnan(e->rtol);
    return (!elementwise || d->worst <= 0) && (isnan(e->cosine) || d->cosine >= e->cosine) &&
           (isnan(e->sqnr) || d->sqnr >= e->sqnr);
}

static void put_distance(Check *c, const char *name, const Distance *d, bool ok)
{
    const Expect *e = c->expect;
    if (!c->as_json) {
        printf("%-4s %s -> %s  %s: largest error %.6g, mean %.4g, cosine %.7f, sqnr %.2f dB\n",
               ok ? "ok" : "miss", e->input, e->output, name, d->max_abs, d->mean_abs, d->cosine,
               d->sqnr);
        return;
    }
    sb_put(&c->json, c->json.len ? ",\n  {" : "  {");
    json_text(&c->json, "input", e->input);
    json_text(&c->json, "expected", e->output);
    json_text(&c->json, "output", name);
    json_bool(&c->json, "ok", ok);
    json_distance(&c->json, d);
    sb_putc(&c->json, '}');
}

static bool compare_output(Check *c, const SinterTensor *out, const TensorFile *file)
{
    Trial *t = c->t;
    const Expect *e = c->expect;
    const TensorView *want = trial_view(t, file, out->name, t->num_out, e->output);
    if (!want)
        return false;
    if (!same_shape(out, want)) {
        diag_error(&t->w->diag, e->span, E_EXPECT, "output '%s' is %s, and '%s' holds %s",
                   out->name, trial_shape(t, out), e->output, dims_text(t->w->arena, want));
        return false;
    }
    double *got = trial_values(out);
    double *ref = malloc(want->elements * sizeof *ref + 1);
    if (!got || !ref) {
        free(got);
        free(ref);
        diag_error(&t->w->diag, e->span, E_MEMORY, "memory is exhausted");
        return false;
    }
    format_to_f64(want->fmt, want->data, ref, want->elements);
    Distance d = distance_measure(got, ref, want->elements, isnan(e->atol) ? 0 : e->atol,
                                  isnan(e->rtol) ? 0 : e->rtol);
    free(got);
    free(ref);
    bool ok = judge(e, &d);
    put_distance(c, out->name, &d, ok);
    if (!ok)
        diag_error(&t->w->diag, e->span, E_EXPECT,
                   "output '%s' misses its bounds: largest error %.6g, cosine %.7f, sqnr %.2f dB",
                   out->name, d.max_abs, d.cosine, d.sqnr);
    return ok;
}

/* 1: all bounds met, 0: some missed, -1: could not run. */
static int run_expect(Check *c)
{
    Trial *t = c->t;
    t->span = c->expect->span;
    TensorFile *input = trial_file(t, c->expect->input);
    TensorFile *output = input ? trial_file(t, c->expect->output) : NULL;
    int result = -1;
    if (output && trial_run(t, input, c->expect->input)) {
        int before = t->w->diag.num_errors;
        bool ok = true;
        for (int i = 0; i < t->num_out; i++)
            ok &= compare_output(c, &t->out[i], output);
        result = ok ? 1 : t->w->diag.num_errors > before ? 0 : -1;
    }
    tensorfile_close(input);
    tensorfile_close(output);
    return result;
}

/* Of the latest run. False after an error. */
static bool score(Check *c)
{
    if (!compare_accuracy(c->t, compare_logits(c->t), c->label, c->num_labels, &c->accuracy))
        return false;
    if (!c->as_json)
        printf("accuracy %.4f of %lld\n", c->accuracy, (long long)c->num_labels);
    return true;
}

static void put_json(const Check *c)
{
    Sb head;
    sb_init(&head, c->t->w->arena);
    sb_putc(&head, '{');
    json_text(&head, "model", sinter_model_name(c->t->model));
    json_text(&head, "device", sinter_session_device(c->t->session));
    if (c->label)
        json_number(&head, "accuracy", c->accuracy);
    json_key(&head, "expects");
    printf("%s[\n%s\n]}\n", head.text, c->json.len ? c->json.text : "");
}

static int run_expects(Work *w, const char *program)
{
    Trial t;
    int exit_code = EXIT_OK;
    Check c = {.t = &t, .as_json = cli_has(w->cli, OPTION_JSON)};
    sb_init(&c.json, w->arena);
    bool is_open = trial_open(&t, w, program, &exit_code);
    if (is_open)
        exit_code = EXIT_OK;
    if (is_open && cli_has(w->cli, OPTION_LABELS) && !compare_labels(&t, &c.label, &c.num_labels))
        exit_code = EXIT_INPUT;
    for (int i = 0; i < w->module->expects.num && exit_code != EXIT_INPUT && is_open; i++) {
        c.expect = &w->module->expects.elem[i];
        int result = run_expect(&c);
        if (result < 0 || (i == 0 && c.label && !score(&c)))
            exit_code = EXIT_INPUT;
        else if (result == 0)
            exit_code = EXIT_MISMATCH;
    }
    if (c.as_json && is_open)
        put_json(&c);
    trial_close(&t);
    return exit_code;
}

static int eval_expects(Work *w, const char *path)
{
    const char *program = work_program(w, path);
    if (!program)
        return EXIT_OK;
    if (w->module->expects.num)
        return run_expects(w, program);
    if (cli_has(w->cli, OPTION_LABELS)) {
        diag_error(&w->diag, (Span){0}, E_EXPECT,
                   "--labels scores results, but there are no inputs: '%s' has no expect line",
                   path);
        diag_help(&w->diag, "give the inputs that the labels belong to: --input x=x.npy");
        return EXIT_OK;
    }
    diag_error(&w->diag, (Span){0}, E_EXPECT, "'%s' has no expect line", path);
    diag_help(&w->diag,
              "write: expect \"x.npy\" -> \"y.npy\" atol 0.01, or give --input and --labels");
    return EXIT_OK;
}

int cmd_eval(Cli *cli)
{
    Work w;
    const char *path = cli->operand.elem[0];
    bool against = cli_has(cli, OPTION_AGAINST), input = cli_has(cli, OPTION_INPUT);
    bool bisects = cli_has(cli, OPTION_BISECT);
    if (bisects && against)
        return cli_usage(cli, "--bisect and --against exclude each other");
    if (cli_has(cli, OPTION_LABELS) && !against && !bisects && (input || file_is_program(path)))
        return cmd_run(cli);
    if (input && !against && !bisects)
        return cli_usage(
            cli, "--input belongs with --labels, --bisect or --against; without them the expect "
                 "lines run");
    if (!work_init(&w, cli))
        return EXIT_INPUT;
    int exit_code = EXIT_OK;
    bool is_program = file_is_program(path);
    const char *other = cli_get(cli, OPTION_AGAINST, "");
    if (is_program && against && !file_is_program(other)) {
        diag_error(&w.diag, (Span){0}, E_USAGE,
                   "'%s' is a compiled file, so it cannot be compared with '%s'", path, other);
        diag_help(&w.diag, "give another compiled file, or the text");
    } else if (is_program && bisects)
        diag_error(&w.diag, (Span){0}, E_USAGE,
                   "'%s' is a compiled file; --bisect compiles a text anew", path);
    else if (is_program && !against)
        diag_error(&w.diag, (Span){0}, E_USAGE,
                   "'%s' is a compiled file: its expect lines are in the text", path);
    else
        exit_code = bisects   ? eval_bisect(&w, path)
                    : against ? eval_compare(&w, path)
                              : eval_expects(&w, path);
    return work_end(&w, exit_code);
}
