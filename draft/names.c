/* Names of tensors: patterns with a layer's number, what is there, and what was taken. */
#include "draft/draft.h"

#include <stdlib.h>
#include <string.h>

static const char *replace(const Draft *d, const char *pattern, const char *what, int64_t number)
{
    const char *at = strstr(pattern, what);
    if (!at)
        return pattern;
    return arena_printf(d->arena, "%.*s%lld%s", (int)(at - pattern), pattern, (long long)number,
                        at + strlen(what));
}

static bool is_apart(const Draft *d, const char *pattern)
{
    return d->config.experts > 1 && strchr(pattern, '*');
}

static const char *expand(const Draft *d, const char *pattern, int64_t layer, int64_t expert)
{
    const char *name = replace(d, pattern, "{i}", layer);
    return is_apart(d, pattern) ? replace(d, name, "*", expert) : name;
}

/* A module that is stored quantised looks like the weight that it was made of: a text names that.
 */
static const TensorView *as_weight(const Draft *d, const char *name, const StoredModule *m)
{
    TensorView *view = ARENA_NEW(d->arena, TensorView);
    int64_t *dim = view->dim, experts = m->experts ? m->experts : 1;
    *view = (TensorView){.name = name, .fmt = FMT_F32, .dtype = m->layout, .rank = 2};
    if (m->experts) {
        view->rank = 3;
        *dim++ = experts;
    }
    dim[0] = m->rows / experts;
    dim[1] = m->cols;
    return view;
}

static const TensorView *find(const Draft *d, const char *name)
{
    const StoredModule *m = checkpoint_find(d->stored, name);
    bool is_weight = m && strcmp(m->weight, name) == 0;
    return is_weight && !m->refused ? as_weight(d, m->weight, m) : weights_find(d->weights, name);
}

const TensorView *draft_find(const Draft *d, const char *pattern, int64_t layer)
{
    return find(d, expand(d, pattern, layer, 0));
}

bool draft_has(const Draft *d, const char *pattern)
{
    return draft_find(d, pattern, 0) != NULL;
}

/* The tensor, or an error that says what is missing. */
static const TensorView *need(Draft *d, const char *name)
{
    const TensorView *view = find(d, name);
    if (view)
        return view;
    diag_error(d->diag, (Span){0}, E_DRAFT,
               "%s: there is no tensor '%s', which a model of type '%s' has", d->folder, name,
               d->config.type ? d->config.type : "?");
    if (d->config.quantised)
        diag_help(d->diag,
                  "the folder is quantised by %s; draft from the checkpoint it was made of",
                  d->config.quantised);
    return NULL;
}

int64_t draft_dim(Draft *d, const char *pattern, int axis)
{
    const TensorView *view = need(d, expand(d, pattern, 0, 0));
    if (!view)
        return 0;
    if (axis < view->rank && view->dim[axis] > 0)
        return view->dim[axis];
    diag_error(d->diag, (Span){0}, E_DRAFT,
               "%s: tensor '%s' is %s, which does not say how large its layer is", d->folder,
               view->name, dims_text(d->arena, view));
    return 0;
}

int64_t draft_half(Draft *d, const char *pattern, int axis)
{
    int64_t dim = draft_dim(d, pattern, axis);
    if (dim % 2 == 0)
        return dim / 2;
    const TensorView *view = draft_find(d, pattern, 0);
    diag_error(d->diag, (Span){0}, E_DRAFT,
               "%s: tensor '%s' holds gates and ups, as many of each, but is %s", d->folder,
               view->name, dims_text(d->arena, view));
    return 0;
}

typedef struct Shape {
    int rank;
    int64_t dim[3];
} Shape;

static Shape shape_of(int64_t experts, int64_t rows, int64_t cols)
{
    const int64_t dim[3] = {experts, rows, cols};
    Shape ret = {0};
    for (int i = 0; i < 3; i++)
        if (dim[i])
            ret.dim[ret.rank++] = dim[i];
    return ret;
}

static bool is_plain(const TensorView *view)
{
    return view->fmt == FMT_F32 || view->fmt == FMT_F16 || view->fmt == FMT_BF16;
}

/* false: it is not there */
static bool check(Draft *d, const char *name, const Shape *shape)
{
    const TensorView *view = need(d, name);
    if (!view)
        return false;
    map_put(&d->used, view->name, d);
    bool fits = view->rank == shape->rank;
    for (int i = 0; fits && i < shape->rank; i++)
        fits = view->dim[i] == shape->dim[i];
    TensorView wanted = {.rank = shape->rank};
    memcpy(wanted.dim, shape->dim, sizeof shape->dim);
    if (!fits)
        diag_error(d->diag, (Span){0}, E_DRAFT,
                   "%s: tensor '%s' is not %s, as config.json and the other tensors say", d->folder,
                   view->name, dims_text(d->arena, &wanted));
    else if (!is_plain(view))
        diag_error(d->diag, (Span){0}, E_DRAFT,
                   "%s: tensor '%s' is stored as %s, not as plain numbers", d->folder, view->name,
                   view->dtype);
    return true;
}

/* The experts of one weight are bound as one tensor: all are plain, of one format, or codes of one
 * layout. false after an error */
static bool stored_alike(Draft *d, const char *name, const char *first)
{
    const TensorView *a = find(d, first), *b = find(d, name);
    if (!a || !b || (a->fmt == b->fmt && strcmp(a->dtype, b->dtype) == 0) || !is_plain(a) ||
        !is_plain(b)) /* which is said of each */
        return true;
    diag_error(d->diag, (Span){0}, E_DRAFT,
               "%s: tensor '%s' is stored as %s, but '%s' as %s: the experts of one layer are "
               "stored alike",
               d->folder, name, b->dtype, first, a->dtype);
    return false;
}

/* The pattern's tensors of one layer. false: an expert is missing */
static bool check_layer(Draft *d, const char *pattern, int64_t layer, int64_t experts,
                        const Shape *shape)
{
    const char *first = expand(d, pattern, layer, 0);
    bool alike = true;
    for (int64_t e = 0; e < experts; e++) {
        const char *name = expand(d, pattern, layer, e);
        if (!check(d, name, shape) && experts > 1)
            return false;
        alike = alike && stored_alike(d, name, first); /* the others are not said one by one */
    }
    return true;
}

void draft_line(Draft *d, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    sb_vprintf(&d->sb, fmt, args);
    va_end(args);
    sb_putc(&d->sb, '\n');
}

/* A name inside of quotes: braces of its own are doubled, but those of {i}. */
static void put_pattern(Sb *sb, const char *pattern)
{
    for (const char *c = pattern; *c; c++) {
        if (strncmp(c, "{i}", 3) == 0) {
            sb_put(sb, "{i}");
            c += 2;
            continue;
        }
        if (*c == '"' || *c == '\\')
            sb_putc(sb, '\\');
        else if (*c == '{' || *c == '}')
            sb_putc(sb, *c);
        sb_putc(sb, *c);
    }
}

static void put_param(Draft *d, const char *name, const char *dims, const Shape *shape,
                      const char *pattern)
{
    int64_t layers = strstr(pattern, "{i}") ? d->layers : 1;
    int64_t experts = is_apart(d, pattern) ? d->config.experts : 1;
    for (const char *c = pattern; *c; c++)
        if ((uint8_t)*c < 0x20 || *c == 0x7f) {
            diag_error(d->diag, (Span){0}, E_DRAFT, "%s: a text cannot hold the name '%s'",
                       d->folder, pattern);
            return;
        }
    for (int64_t i = 0; i < layers; i++)
        if (!check_layer(d, pattern, i, experts, shape))
            return; /* config.json may say any number of them */
    const char *more = expand(d, pattern, 0, experts);
    if (experts > 1 && find(d, more))
        diag_error(d->diag, (Span){0}, E_DRAFT,
                   "%s: config.json says %lld experts, but there is a tensor '%s'", d->folder,
                   (long long)experts, more);
    sb_printf(&d->sb, "    param %s: %s[%s] from \"", name, d->format, dims);
    put_pattern(&d->sb, pattern);
    sb_put(&d->sb, "\"\n");
}

void draft_param(Draft *d, const char *name, const char *dims, int64_t rows, int64_t cols,
                 const char *pattern)
{
    Shape shape = shape_of(0, rows, cols);
    put_param(d, name, dims, &shape, pattern);
}

void draft_param_experts(Draft *d, const char *name, const char *dims, int64_t rows, int64_t cols,
                         const char *pattern)
{
    Shape shape = shape_of(is_apart(d, pattern) ? 0 : d->config.experts, rows, cols);
    put_param(d, name, dims, &shape, pattern);
}

bool draft_param_maybe(Draft *d, const char *name, const char *dims, int64_t rows, int64_t cols,
                       const char *pattern)
{
    bool has = draft_has(d, pattern);
    if (has)
        draft_param(d, name, dims, rows, cols, pattern);
    return has;
}

/* A name with its numbers replaced, so that those of all layers are one. */
static const char *without_numbers(Draft *d, const char *name)
{
    Sb sb;
    sb_init(&sb, d->arena);
    for (const char *c = name; *c; c++) {
        bool is_digit = *c >= '0' && *c <= '9';
        if (!is_digit)
            sb_putc(&sb, *c);
        else if (c == name || c[-1] < '0' || c[-1] > '9')
            sb_putc(&sb, '*');
    }
    return sb.text;
}

void draft_unused(Draft *d)
{
    Map group;
    map_init(&group, d->arena);
    for (int i = 0; i < weights_num(d->weights); i++) {
        const TensorView *view = weights_at(d->weights, i);
        const StoredModule *m = map_get(&d->stored->owner, view->name);
        if (map_has(&d->used, view->name) || (m && map_has(&d->used, m->weight)))
            continue;
        const char *name = without_numbers(d, view->name);
        intptr_t num = (intptr_t)map_get(&group, name) + 1;
        map_put(&group, name, (void *)num);
    }
    if (group.num)
        draft_line(d, "\n# Tensors that this text does not take:");
    for (int i = 0; i < group.num; i++) {
        sb_put(&d->sb, "#   ");
        sb_put_safe(&d->sb, group.entry[i].key, strlen(group.entry[i].key));
        if ((intptr_t)group.entry[i].value > 1)
            sb_printf(&d->sb, " (%lld)", (long long)(intptr_t)group.entry[i].value);
        sb_putc(&d->sb, '\n');
    }
}

const char *draft_act(Draft *d, const char *otherwise)
{
    static const char *const act[][2] = {
        {"silu", "silu"},           {"swish", "silu"},          {"gelu", "gelu"},
        {"gelu_new", "gelu_tanh"},  {"gelu_fast", "gelu_tanh"}, {"gelu_pytorch_tanh", "gelu_tanh"},
        {"gelu_tanh", "gelu_tanh"}, {"relu", "relu"},           {"tanh", "tanh"},
        {"sigmoid", "sigmoid"},
    };
    const char *name = d->config.act ? d->config.act : otherwise;
    for (size_t i = 0; i < COUNT_OF(act); i++)
        if (strcmp(name, act[i][0]) == 0)
            return act[i][1];
    diag_error(d->diag, (Span){0}, E_DRAFT, "%s/config.json: the language has no activation '%s'",
               d->folder, name);
    return otherwise;
}

const char *draft_rounded(Draft *d, const char *value)
{
    if (strcmp(d->format, "bf16") != 0)
        return value;
    return arena_printf(d->arena, "cast(%s, bf16)", value);
}
