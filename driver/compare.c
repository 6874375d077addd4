/* Variants beside the float model; see compare.h. */
#include "driver/compare.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Labels -------------------------------------------------------------------------------------- */

static bool is_tap(const Module *m, const char *name, const Op **ret)
{
    for_each_op(op, &m->body)
        if (op->kind == OP_OUTPUT && !strcmp(op->name, name)) {
            *ret = op;
            return op->attr.tap != TAP_NONE;
        }
    return false;
}

const SinterTensor *compare_logits(const Trial *t)
{
    const SinterTensor *only = NULL;
    const Op *op = NULL;
    int num = 0;
    for (int i = 0; i < t->num_out; i++) {
        if (t->w->module && is_tap(t->w->module, t->out[i].name, &op))
            continue;
        if (!strcmp(t->out[i].name, "logits"))
            return &t->out[i];
        only = &t->out[i];
        num++;
    }
    return num == 1 ? only : NULL;
}

static int64_t logits_cols(const SinterTensor *logits)
{
    return logits->rank ? logits->dim[logits->rank - 1] : 1;
}

bool compare_labels(Trial *t, const int64_t **ret, int64_t *ret_num)
{
    IoError err;
    const char *path = cli_get(t->w->cli, OPTION_LABELS, NULL);
    TensorFile *file = tensorfile_open(path, &err);
    if (!file) {
        work_io_error(t->w, &err);
        return false;
    }
    const TensorView *view = tensorfile_num(file) == 1 ? tensorfile_at(file, 0) : NULL;
    int64_t *label = NULL;
    if (view) {
        label = ARENA_NEW_ARRAY(t->w->arena, int64_t, view->elements + 1);
        *ret_num = (int64_t)view->elements;
    }
    bool ok = labels_read(view, path, label, &err);
    if (!ok)
        work_io_error(t->w, &err);
    *ret = label;
    tensorfile_close(file);
    return ok;
}

bool compare_accuracy(Trial *t, const SinterTensor *logits, const int64_t *label, int64_t num,
                      double *ret)
{
    if (!logits) {
        diag_error(&t->w->diag, t->span, E_EXPECT,
                   "--labels needs a model with one output or one named logits, not %d",
                   sinter_num_outputs(t->model));
        return false;
    }
    int64_t cols = logits_cols(logits), rows = cols ? (int64_t)trial_elements(logits) / cols : 0;
    IoError err;
    if (!labels_fit(label, (uint64_t)num, cli_get(t->w->cli, OPTION_LABELS, ""), logits->name, rows,
                    cols, &err)) {
        work_io_error(t->w, &err);
        return false;
    }
    double *value = trial_values(logits);
    if (!value)
        diag_error(&t->w->diag, t->span, E_MEMORY, "memory is exhausted");
    else
        *ret = logits_accuracy(value, label, rows, cols);
    free(value);
    return value != NULL;
}

/* Runs ---------------------------------------------------------------------------------------- */

/* The file that feeds all variants; NULL after an error. */
static TensorFile *open_input(Trial *t, const char **ret_name)
{
    IoError err;
    Work *w = t->w;
    const char *word = cli_get(w->cli, OPTION_INPUT, NULL);
    if (word) {
        const char *equals = strchr(word, '=');
        *ret_name = equals ? equals + 1 : word;
        TensorFile *file = tensorfile_open(*ret_name, &err);
        if (!file)
            work_io_error(w, &err);
        return file;
    }
    if (!w->module || !w->module->expects.num) {
        diag_error(&w->diag, (Span){0}, E_EXPECT, "'%s' %s, so there are no inputs", w->path,
                   w->module ? "has no expect line" : "is a compiled file without expect lines");
        diag_help(&w->diag, "give --input FILE");
        return NULL;
    }
    t->span = w->module->expects.elem[0].span;
    *ret_name = w->module->expects.elem[0].input;
    return trial_file(t, *ret_name);
}

bool compare_run(Trial *t, Work *w, const char *path, int *ret_exit)
{
    *ret_exit = EXIT_INPUT;
    w->path = path;
    const char *program = w->variant.program;
    if (!program)
        program = work_program(w, path);
    else if (!file_is_program(path) && !work_lower(w, path)) /* for its expect lines */
        return false;
    if (!program || w->diag.num_errors || !trial_open(t, w, program, ret_exit))
        return false;
    const char *name;
    TensorFile *input = open_input(t, &name);
    bool ok = input && trial_run(t, input, name);
    *ret_exit = EXIT_INPUT;
    tensorfile_close(input);
    return ok;
}

/* Comparing ----------------------------------------------------------------------------------- */

static bool no_memory(Trial *t)
{
    diag_error(&t->w->diag, t->span, E_MEMORY, "memory is exhausted");
    return false;
}

static CompareRow *row_find(Comparison *c, Arena *arena, const char *name, bool is_layer)
{
    for (int i = 0; i < c->rows.num; i++)
        if (!strcmp(c->rows.elem[i].name, name))
            return &c->rows.elem[i];
    CompareRow row = {.name = arena_strdup(arena, name), .is_layer = is_layer};
    for (int v = 0; v < COMPARE_MOST; v++)
        row.clipped[v] = NAN;
    ARRAY_PUSH(arena, &c->rows, row);
    return &c->rows.elem[c->rows.num - 1];
}

static bool clip_measure(Comparison *c, Arena *arena, Trial *t, const Op *tap, int v)
{
    const SinterTensor *x = trial_output(t, tap->name);
    double *value = x ? trial_values(x) : NULL;
    if (!value)
        return no_memory(t);
    if (tap->attr.range.known)
        row_find(c, arena, tap->attr.layer, true)->clipped[v] =
            clip_share(value, trial_elements(x), tap->attr.range.lo, tap->attr.range.hi);
    free(value);
    return true;
}

/* False after an error: the reference has no such output, or of another shape. */
static bool outputs_alike(const Comparison *c, Trial *t, const SinterTensor *got,
                          const SinterTensor *want)
{
    bool same = want && want->rank == got->rank;
    for (int i = 0; same && i < got->rank; i++)
        same = want->dim[i] == got->dim[i];
    const char *reference = c->reference ? c->reference : "the float model";
    if (!want)
        diag_error(&t->w->diag, t->span, E_EXPECT, "output '%s' of '%s' has no like in '%s'",
                   got->name, t->w->path, reference);
    else if (!same)
        diag_error(&t->w->diag, t->span, E_EXPECT, "output '%s' of '%s' is %s, and that of '%s' %s",
                   got->name, t->w->path, trial_shape(t, got), reference, trial_shape(t, want));
    return same;
}

static bool output_measure(Comparison *c, Arena *arena, Trial *t, const Trial *reference,
                           const char *name, bool is_layer, int v)
{
    const SinterTensor *got = trial_output(t, name), *want = trial_output(reference, name);
    if (!outputs_alike(c, t, got, want))
        return false;
    double *x = trial_values(got), *y = trial_values(want);
    bool ok = x && y;
    if (ok)
        row_find(c, arena, name, is_layer)->d[v] =
            distance_measure(x, y, trial_elements(want), 0, 0);
    if (ok && c->logits && !is_layer && !strcmp(name, c->logits)) {
        int64_t cols = logits_cols(want);
        c->num_rows = cols ? (int64_t)trial_elements(want) / cols : 0;
        c->divergence[v] = logits_divergence(x, y, c->num_rows, cols);
        c->agreement[v] = logits_agreement(x, y, c->num_rows, cols);
    }
    free(x);
    free(y);
    return ok || no_memory(t);
}

static bool variant_measure(Comparison *c, Arena *arena, Trial *t, const Trial *reference, int v)
{
    for (int i = 0; c->reference && i < t->num_out; i++)
        if (!output_measure(c, arena, t, reference, t->out[i].name, false, v))
            return false;
    if (c->reference)
        return true;
    for (int layers = 1; layers >= 0; layers--) /* layers first */
        for_each_op(op, &t->w->module->body) {
            bool ok = true;
            if (op->kind != OP_OUTPUT || (op->attr.tap != TAP_NONE) != layers)
                continue;
            if (op->attr.tap == TAP_OPERAND)
                ok = clip_measure(c, arena, t, op, v);
            else
                ok = output_measure(c, arena, t, reference, op->name, layers, v);
            if (!ok)
                return false;
        }
    return true;
}

static bool labels_measure(Comparison *c, Trial *reference, Trial *t, int v)
{
    const int64_t *label;
    int64_t num;
    if (!cli_has(t->w->cli, OPTION_LABELS))
        return true;
    c->has_labels =
        compare_labels(t, &label, &num) &&
        compare_accuracy(t, compare_logits(t), label, num, &c->accuracy[v]) &&
        compare_accuracy(reference, compare_logits(reference), label, num, &c->float_accuracy);
    return c->has_labels;
}

static const char *variant_name(Work *w)
{
    if (w->variant.rules)
        return w->variant.rules;
    return cli_get(w->cli, OPTION_RULES, "as written");
}

/* The rows of what feeds all variants; 0: no file of the command line's says. */
static int64_t rows_to_run(const Work *w)
{
    IoError err;
    const char *word = cli_get(w->cli, OPTION_INPUT, NULL),
               *equals = word ? strchr(word, '=') : NULL;
    TensorFile *file = word ? tensorfile_open(equals ? equals + 1 : word, &err) : NULL;
    int64_t rows = 0;
    for (int i = 0; file && i < tensorfile_num(file); i++) {
        const TensorView *view = tensorfile_at(file, i);
        rows = view->rank && view->dim[0] > rows ? view->dim[0] : rows;
    }
    tensorfile_close(file);
    return rows;
}

/* One variant against the reference, in a Work of its own unless it is the command's. */
static bool variant_add(Comparison *c, Work *main, Work *w, const char *path, Trial *reference,
                        int *ret_exit)
{
    Trial t = {0};
    int v = c->num_variants++;
    w->variant.tapped = !c->reference;
    w->variant.rows = rows_to_run(w);
    c->variant[v] = arena_strdup(main->arena, file_is_program(path) ? path : variant_name(w));
    bool ok = compare_run(&t, w, path, ret_exit) &&
              variant_measure(c, main->arena, &t, reference, v) &&
              labels_measure(c, reference, &t, v);
    if (ok)
        c->device = arena_strdup(main->arena, sinter_session_device(t.session));
    trial_close(&t);
    return ok;
}

bool comparison_make(Comparison *c, Work *w, const char *path, const char *other, int *ret_exit)
{
    Work plain, second;
    Trial reference = {0};
    *c = (Comparison){0};
    if (!work_init(&plain, w->cli))
        return false;
    w->variant.cpu_only = !work_on_gpu(w);
    plain.variant = (WorkVariant){.unquantised = true,
                                  .tapped = true,
                                  .rows = rows_to_run(w),
                                  .cpu_only = w->variant.cpu_only};
    if (other && file_is_program(other)) {
        c->reference = arena_strdup(w->arena, other);
        plain.variant = (WorkVariant){.program = other};
    }
    bool ok = compare_run(&reference, &plain, path, ret_exit);
    const SinterTensor *logits = ok ? compare_logits(&reference) : NULL;
    c->logits = logits ? arena_strdup(w->arena, logits->name) : NULL;
    ok = ok && variant_add(c, w, w, path, &reference, ret_exit);
    if (ok && other && !c->reference) {
        ok = work_init(&second, w->cli);
        if (ok) {
            second.variant.rules = other;
            second.variant.cpu_only = w->variant.cpu_only;
            ok = variant_add(c, w, &second, path, &reference, ret_exit);
            int code = work_end(&second, *ret_exit);
            *ret_exit = ok ? EXIT_OK : code;
        }
    }
    trial_close(&reference);
    if (ok) /* what it warns of, the quantised model's compilation has said */
        diag_init(&plain.diag, plain.arena);
    int code = work_end(&plain, ok ? EXIT_OK : *ret_exit);
    *ret_exit = ok ? EXIT_OK : code;
    return ok;
}
