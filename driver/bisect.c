/* eval --bisect: the fewest layers whose return to float brings the outputs over a bound.
 *
 * Each quantised layer is kept alone, in turn, and the model run; then layers are kept together,
 * those first that gained most alone, until the bound is met; then each of them that can be
 * quantised again without missing it is. That takes as many runs as there are layers and two for
 * each that is kept. (The fewest of all sets would take a run for each of them.) */
#include "driver/compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct Suspect { /* a quantised layer */
    const char *path;
    double alone; /* the metric where only it is kept */
    bool kept;
} Suspect;

typedef struct FrontPoint {
    int kept;
    double metric;
    const char *added; /* NULL: none is kept */
} FrontPoint;

typedef struct Bisect {
    Work *w;
    const char *path;
    bool by_accuracy;
    double bound;
    Trial reference; /* the float model's run */
    ARRAY(Suspect) suspects;
    ARRAY(FrontPoint) front;
    int exit_code; /* of a run that failed */
} Bisect;

/* "cosine=0.999", "accuracy=0.9". */
static bool read_bound(Bisect *b, const char *word)
{
    const char *equals = strchr(word, '=');
    size_t len = equals ? (size_t)(equals - word) : 0;
    char *end = NULL;
    b->by_accuracy = len == strlen("accuracy") && !strncmp(word, "accuracy", len);
    bool is_known = b->by_accuracy || (len == strlen("cosine") && !strncmp(word, "cosine", len));
    b->bound = equals ? strtod(equals + 1, &end) : 0;
    if (!is_known || end == equals + 1 || *end || !(b->bound > 0 && b->bound <= 1)) {
        diag_error(&b->w->diag, (Span){0}, E_USAGE,
                   "--bisect takes cosine=N or accuracy=N with 0 < N <= 1, not '%s'", word);
        return false;
    }
    if (b->by_accuracy && !cli_has(b->w->cli, OPTION_LABELS)) {
        diag_error(&b->w->diag, (Span){0}, E_USAGE,
                   "--bisect %s scores results, but there are no labels to score them by", word);
        diag_help(&b->w->diag, "give the labels of the inputs: --labels labels.npy");
        return false;
    }
    return true;
}

/* Rules that keep the layers that are marked. */
static const char *rules_of(Bisect *b)
{
    Sb sb;
    bool any = false;
    sb_init(&sb, b->w->arena);
    sb_put(&sb, "quant {\n");
    for (int i = 0; i < b->suspects.num; i++)
        if (b->suspects.elem[i].kept) {
            sb_printf(&sb, "%s : keep\n", b->suspects.elem[i].path);
            any = true;
        }
    sb_put(&sb, "}\n");
    return any ? sb.text : NULL;
}

/* The least cosine of an output. */
static bool cosine_of(Bisect *b, const Trial *t, double *ret)
{
    *ret = 1;
    for (int i = 0; i < t->num_out; i++) {
        const SinterTensor *want = trial_output(&b->reference, t->out[i].name);
        double *x = trial_values(&t->out[i]), *y = want ? trial_values(want) : NULL;
        bool ok = x && y;
        Distance d = {0};
        if (ok)
            d = distance_measure(x, y, trial_elements(want), 0, 0);
        free(x);
        free(y);
        if (!ok)
            return false;
        *ret = d.cosine < *ret || isnan(d.cosine) ? d.cosine : *ret;
    }
    return true;
}

static bool accuracy_of(Trial *t, double *ret)
{
    const int64_t *label;
    int64_t num;
    return compare_labels(t, &label, &num) &&
           compare_accuracy(t, compare_logits(t), label, num, ret);
}

/* The metric with the marked layers in float. False after an error, said. */
static bool measure(Bisect *b, double *ret)
{
    Work v;
    Trial t = {0};
    if (!work_init(&v, b->w->cli))
        return false;
    v.variant =
        (WorkVariant){.extra = rules_of(b), .cpu_only = !work_on_gpu(b->w), .choice = b->w->choice};
    bool ok = compare_run(&t, &v, b->path, &b->exit_code) &&
              (b->by_accuracy ? accuracy_of(&t, ret) : cosine_of(b, &t, ret));
    trial_close(&t);
    if (ok) /* what it warns of is the text's own */
        diag_init(&v.diag, v.arena);
    int code = work_end(&v, ok ? EXIT_OK : b->exit_code);
    b->exit_code = ok ? EXIT_OK : code;
    return ok;
}

static bool is_quantised(const Op *op)
{
    const QuantSpec *spec = op->attr.quant;
    return op->kind == OP_MATMUL && op->attr.layer && spec && !spec->keep &&
           (spec->weight || spec->act || spec->act_fmt != FMT_NONE);
}

/* Uses of one weight have one rule. */
static void suspects_find(Bisect *b)
{
    Map seen;
    map_init(&seen, b->w->arena);
    for_each_op(op, &b->w->module->body) {
        if (!is_quantised(op))
            continue;
        const char *path = arena_strndup(b->w->arena, op->attr.layer, strcspn(op->attr.layer, "#"));
        Suspect suspect = {.path = path};
        if (!map_has(&seen, path))
            ARRAY_PUSH(b->w->arena, &b->suspects, suspect);
        map_put(&seen, path, b);
    }
}

static int by_gain(const void *a, const void *b)
{
    double x = ((const Suspect *)a)->alone, y = ((const Suspect *)b)->alone;
    return (x < y) - (x > y);
}

static void front_add(Bisect *b, int kept, double metric, const char *added)
{
    FrontPoint point = {kept, metric, added};
    ARRAY_PUSH(b->w->arena, &b->front, point);
}

/* Keeps one after the other until the bound is met. */
static bool keep_most(Bisect *b, double *ret_metric)
{
    for (int i = 0; i < b->suspects.num && !(*ret_metric >= b->bound); i++) {
        b->suspects.elem[i].kept = true;
        if (!measure(b, ret_metric))
            return false;
        front_add(b, i + 1, *ret_metric, b->suspects.elem[i].path);
    }
    return true;
}

/* The latest was needed: without it the bound was missed. */
static bool drop_needless(Bisect *b, double *ret_metric)
{
    int last = -1;
    for (int i = 0; i < b->suspects.num; i++)
        last = b->suspects.elem[i].kept ? i : last;
    for (int i = last - 1; i >= 0; i--) {
        double metric;
        b->suspects.elem[i].kept = false;
        if (!measure(b, &metric))
            return false;
        if (metric >= b->bound)
            *ret_metric = metric;
        else
            b->suspects.elem[i].kept = true;
    }
    return true;
}

static bool search(Bisect *b, double *ret_metric)
{
    if (!measure(b, ret_metric))
        return false;
    front_add(b, 0, *ret_metric, NULL);
    if (*ret_metric >= b->bound)
        return true;
    for (int i = 0; i < b->suspects.num; i++) {
        Suspect *suspect = &b->suspects.elem[i];
        suspect->kept = true;
        bool ok = measure(b, &suspect->alone);
        suspect->kept = false;
        if (!ok)
            return false;
    }
    qsort(b->suspects.elem, (size_t)b->suspects.num, sizeof *b->suspects.elem, by_gain);
    return keep_most(b, ret_metric) && (*ret_metric < b->bound || drop_needless(b, ret_metric));
}

static void put_text(const Bisect *b, const char *metric, double reached)
{
    int kept = 0;
    for (int i = 0; i < b->suspects.num; i++)
        kept += b->suspects.elem[i].kept;
    printf("%-12s %12s  kept as well\n", "layers kept", metric);
    for (int i = 0; i < b->front.num; i++)
        printf("%-12d %12.7f  %s\n", b->front.elem[i].kept, b->front.elem[i].metric,
               b->front.elem[i].added ? b->front.elem[i].added : "-");
    printf("%s %.7f of %.7f with %d of %d layers in float:", metric, reached, b->bound, kept,
           b->suspects.num);
    for (int i = 0; i < b->suspects.num; i++)
        if (b->suspects.elem[i].kept)
            printf(" %s", b->suspects.elem[i].path);
    printf("%s\n", kept ? "" : " none is needed");
}

static void put_json(const Bisect *b, const char *metric, double reached)
{
    Sb sb;
    sb_init(&sb, b->w->arena);
    sb_putc(&sb, '{');
    json_text(&sb, "metric", metric);
    json_number(&sb, "bound", b->bound);
    json_number(&sb, "reached", reached);
    json_count(&sb, "layers", (uint64_t)b->suspects.num);
    json_key(&sb, "keep");
    sb_putc(&sb, '[');
    for (int i = 0; i < b->suspects.num; i++)
        if (b->suspects.elem[i].kept)
            json_item(&sb, b->suspects.elem[i].path);
    sb_putc(&sb, ']');
    json_key(&sb, "front");
    sb_putc(&sb, '[');
    for (int i = 0; i < b->front.num; i++) {
        json_next(&sb);
        sb_putc(&sb, '{');
        json_count(&sb, "kept", (uint64_t)b->front.elem[i].kept);
        json_number(&sb, "metric", b->front.elem[i].metric);
        json_text(&sb, "added", b->front.elem[i].added);
        sb_putc(&sb, '}');
    }
    printf("%s]}\n", sb.text);
}

static int bisect(Bisect *b)
{
    double reached = 0;
    if (!search(b, &reached))
        return b->exit_code ? b->exit_code : EXIT_INPUT;
    const char *metric = b->by_accuracy ? "accuracy" : "cosine";
    if (cli_has(b->w->cli, OPTION_JSON))
        put_json(b, metric, reached);
    else
        put_text(b, metric, reached);
    return reached >= b->bound ? EXIT_OK : EXIT_MISMATCH;
}

int eval_bisect(Work *w, const char *path)
{
    Bisect b = {.w = w, .path = path};
    Work plain;
    if (!read_bound(&b, cli_get(w->cli, OPTION_BISECT, "")) || !work_lower(w, path) ||
        !work_init(&plain, w->cli))
        return EXIT_OK;
    suspects_find(&b);
    plain.variant = (WorkVariant){.unquantised = true, .cpu_only = !work_on_gpu(w)};
    bool ok = compare_run(&b.reference, &plain, path, &b.exit_code);
    int code = ok ? bisect(&b) : b.exit_code;
    trial_close(&b.reference);
    if (ok)
        diag_init(&plain.diag, plain.arena);
    int plain_code = work_end(&plain, code);
    return ok ? code : plain_code;
}
