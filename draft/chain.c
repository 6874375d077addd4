/* Plain networks: linear layers one behind the other, in the order of the numbers in their names,
 * with norms between them where there are. Names do not say which activation follows; relu is taken
 * unless a config.json says another, and the text says so. */
#include "draft/draft.h"

#include <stdlib.h>
#include <string.h>

typedef struct Step {
    const char *stem; /* of NAME.weight */
    const TensorView *weight, *bias;
} Step;
typedef ARRAY(Step) Steps;

/* Names by their numbers as numbers: layer 10 behind layer 9. */
static int compare_step(const void *a, const void *b)
{
    const char *x = ((const Step *)a)->stem, *y = ((const Step *)b)->stem;
    while (*x && *y) {
        bool digits = *x >= '0' && *x <= '9' && *y >= '0' && *y <= '9';
        if (digits) {
            char *end_x, *end_y;
            unsigned long long i = strtoull(x, &end_x, 10), k = strtoull(y, &end_y, 10);
            if (i != k)
                return i < k ? -1 : 1;
            x = end_x;
            y = end_y;
            continue;
        }
        if (*x != *y)
            return *x < *y ? -1 : 1;
        x++;
        y++;
    }
    return *x ? 1 : *y ? -1 : 0;
}

static const TensorView *beside(Draft *d, const char *stem, const char *end)
{
    return weights_find(d->weights, arena_printf(d->arena, "%s.%s", stem, end));
}

static void gather(Draft *d, Steps *steps)
{
    for (int i = 0; i < weights_num(d->weights); i++) {
        const TensorView *view = weights_at(d->weights, i);
        size_t len = strlen(view->name);
        if (len <= 7 || strcmp(view->name + len - 7, ".weight") != 0)
            continue;
        Step step = {.stem = arena_strndup(d->arena, view->name, len - 7), .weight = view};
        step.bias = beside(d, step.stem, "bias");
        ARRAY_PUSH(d->arena, steps, step);
    }
    if (steps->num)
        qsort(steps->elem, (size_t)steps->num, sizeof *steps->elem, compare_step);
}

/* Does the chain hold: what each step takes is what the one before it gives? */
static bool check(Draft *d, const Steps *steps)
{
    int64_t cols = 0;
    const char *before = NULL;
    for (int i = 0; i < steps->num; i++) {
        const Step *s = &steps->elem[i];
        int64_t takes = s->weight->rank == 2 ? s->weight->dim[1] : s->weight->dim[0];
        if (beside(d, s->stem, "running_mean") || s->weight->rank < 1 || s->weight->rank > 2 ||
            (s->weight->rank == 1 && !s->bias)) {
            diag_error(d->diag, (Span){0}, E_DRAFT,
                       "%s: '%s.weight' is of neither a linear layer nor a layernorm with a bias",
                       d->folder, s->stem);
            return false;
        }
        if (before && takes != cols) {
            diag_error(d->diag, (Span){0}, E_DRAFT,
                       "%s: '%s.weight' takes %lld columns, but '%s.weight' before it gives %lld",
                       d->folder, s->stem, (long long)takes, before, (long long)cols);
            diag_help(
                d->diag,
                "drafts without a config.json are made for linear layers one behind the other");
            return false;
        }
        cols = s->weight->dim[0];
        before = s->stem;
    }
    return true;
}

/* Of layer k: fc<k>, fc<k>_bias; of a norm: norm<k>, norm<k>_bias. Returns the statement's value.
 */
static const char *put_step(Draft *d, const Step *s, int num, const char *x)
{
    bool is_linear = s->weight->rank == 2;
    const char *word = arena_printf(d->arena, is_linear ? "fc%d" : "norm%d", num);
    int64_t rows = s->weight->dim[0], cols = is_linear ? s->weight->dim[1] : 0;
    const char *dims = is_linear
                           ? arena_printf(d->arena, "%lld, %lld", (long long)rows, (long long)cols)
                           : arena_printf(d->arena, "%lld", (long long)rows);
    draft_param(d, word, dims, rows, cols, s->weight->name);
    if (s->bias)
        draft_param(d, arena_printf(d->arena, "%s_bias", word),
                    arena_printf(d->arena, "%lld", (long long)rows), rows, 0, s->bias->name);
    if (!is_linear)
        return arena_printf(d->arena, "layernorm(%s, %s, %s_bias)", x, word, word);
    return s->bias ? arena_printf(d->arena, "linear(%s, %s, %s_bias)", x, word, word)
                   : arena_printf(d->arena, "linear(%s, %s)", x, word);
}

void draft_chain(Draft *d)
{
    Steps steps = {0};
    Sb body;
    gather(d, &steps);
    if (!steps.num) {
        diag_error(d->diag, (Span){0}, E_DRAFT, "%s: no tensor is called NAME.weight", d->folder);
        return;
    }
    if (!check(d, &steps))
        return;
    const TensorView *first = steps.elem[0].weight, *last = steps.elem[steps.num - 1].weight;
    const char *act = draft_act(d, "relu"), *x = "x";
    d->format = first->fmt == FMT_BF16 ? "bf16" : first->fmt == FMT_F16 ? "f16" : "f32";
    draft_line(d,
               "#\n# Layers in the order of their numbers. Tensors do not say which activation "
               "stands between them:\n"
               "# %s is taken%s; look at where the model comes from.",
               act, d->config.act ? " as config.json says" : "");
    draft_begin(d);
    draft_line(d, "dim B in [1, 16, 256]\n");
    draft_line(d, "model chain (x: %s[B, %lld]) -> (y: %s[B, %lld]) {", d->format,
               (long long)first->dim[first->rank - 1], d->format, (long long)last->dim[0]);
    sb_init(&body, d->arena);
    for (int i = 0; i < steps.num; i++) {
        bool is_last = i + 1 == steps.num;
        bool bends = !is_last && steps.elem[i + 1].weight->rank == 2;
        const char *value = put_step(d, &steps.elem[i], i + 1, x);
        x = is_last ? "y" : arena_printf(d->arena, "h%d", i + 1);
        sb_printf(&body, bends ? "    %s = %s(%s)\n" : "    %s = %s%s\n", x, bends ? act : "",
                  value);
    }
    draft_line(d, "%s}", body.text);
}
