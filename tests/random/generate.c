/* Random valid models. Each has a handful of linear layers whose pairs of schemes run through the
 * table of all pairs as seeds count up, joined by random chains: gates, residuals, norms, softmax,
 * moves, products of activations, blocks in loops, several inputs and dims. */
#include "tests/random/parts.h"

#include <string.h>

/* Statements ----------------------------------------------------------------------------------- */

static const char *const unary[] = {"relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh"};

/* linear of a value; scheme NULL: plain. */
static int add_linear(Gen *g, int x, int cols, const char *scheme)
{
    Shape shape = g->value[x].shape;
    const char *w = param_add(g, cols, shape.cols);
    const char *b = chance(g, 50) ? param_add(g, 0, cols) : NULL;
    shape.cols = cols;
    GenValue *y = value_add(g, shape);
    bool act = chance(g, 35);
    sb_printf(&g->body, "    %s = %s%slinear(%s, %s%s%s)", y->name, act ? unary[draw(g, 6)] : "",
              act ? "(" : "", use(g, x), w, b ? ", " : "", b ? b : "");
    if (scheme && chance(g, 50))
        sb_printf(&g->body, " @ %s", scheme);
    else if (scheme)
        sb_printf(&g->rules, "    %s : %s%s\n", w, scheme,
                  chance(g, 10) && g->may_static ? " smooth 0.5" : "");
    if (strstr(g->rules.text, "smooth"))
        g->has_static = true;
    sb_put(&g->body, act ? ")\n" : "\n");
    return g->num_values - 1;
}

/* An operand wide enough for groups of 32 (mx) or 16 columns. */
static int wide_operand(Gen *g)
{
    int x = value_pick(g, 32);
    if (x >= 0)
        return x;
    x = value_pick(g, 1);
    return add_linear(g, x, 32 + draw(g, 40), NULL);
}

static void step_linear(Gen *g)
{
    int x = wide_operand(g);
    int cols = draw_cols(g);
    add_linear(g, x, cols, scheme_next(g, g->value[x].shape.cols));
}

/* silu(linear(x, gate) @ a) * (linear(x, up) @ b): one scheme or two. */
static void step_gated(Gen *g)
{
    int x = wide_operand(g);
    Shape shape = g->value[x].shape;
    int cols = draw_cols(g);
    const char *gate = param_add(g, cols, shape.cols), *up = param_add(g, cols, shape.cols);
    const char *a = scheme_next(g, shape.cols);
    const char *b = chance(g, 60) ? a : scheme_next(g, shape.cols);
    shape.cols = cols;
    GenValue *y = value_add(g, shape);
    sb_printf(&g->body, "    %s = %s(linear(%s, %s) @ %s) * (linear(%s, %s) @ %s)\n", y->name,
              unary[draw(g, 6)], use(g, x), gate, a, use(g, x), up, b);
}

static void step_unary(Gen *g)
{
    int x = value_pick(g, 1);
    GenValue *y = value_add(g, g->value[x].shape);
    sb_printf(&g->body, "    %s = %s(%s)\n", y->name, unary[draw(g, 6)], use(g, x));
}

static void step_numbers(Gen *g)
{
    int x = value_pick(g, 1), which = draw(g, 5);
    const char *name = use(g, x);
    GenValue *y = value_add(g, g->value[x].shape);
    sb_printf(&g->body, "    %s = ", y->name);
    switch (which) {
    case 0: sb_printf(&g->body, "%s * 0.5 + 1\n", name); break;
    case 1: sb_printf(&g->body, "2 - %s\n", name); break;
    case 2: sb_printf(&g->body, "%s / 3\n", name); break;
    case 3: sb_printf(&g->body, "-%s\n", name); break;
    default: sb_printf(&g->body, "1 / (%s * %s + 1)\n", name, name);
    }
}

static bool same_shape(Shape a, Shape b)
{
    return a.sym == b.sym && a.mid == b.mid && a.cols == b.cols;
}

/* Another value that fits; -1: none. */
static int value_like(Gen *g, int x)
{
    int start = draw(g, g->num_values);
    for (int i = 0; i < g->num_values; i++) {
        int at = (start + i) % g->num_values;
        if (at != x && same_shape(g->value[at].shape, g->value[x].shape))
            return at;
    }
    return -1;
}

static void step_binary(Gen *g)
{
    static const char sign[] = {'+', '-', '*'};
    int x = value_pick(g, 1), z = value_like(g, x);
    const char *right = z >= 0 ? use(g, z) : param_add(g, 0, g->value[x].shape.cols);
    GenValue *y = value_add(g, g->value[x].shape);
    sb_printf(&g->body, "    %s = %s %c %s\n", y->name, use(g, x), sign[draw(g, 3)], right);
}

static void step_norm(Gen *g)
{
    int x = value_pick(g, 2);
    if (x < 0)
        return;
    int cols = g->value[x].shape.cols, which = draw(g, 3);
    const char *w = which < 2 ? param_add(g, 0, cols) : NULL;
    const char *b = which == 1 ? param_add(g, 0, cols) : NULL;
    GenValue *y = value_add(g, g->value[x].shape);
    if (which == 0)
        sb_printf(&g->body, "    %s = rmsnorm(%s, %s, eps=1e-5)\n", y->name, use(g, x), w);
    else if (which == 1)
        sb_printf(&g->body, "    %s = layernorm(%s, %s, %s)\n", y->name, use(g, x), w, b);
    else
        sb_printf(&g->body, "    %s = softmax(%s)\n", y->name, use(g, x));
}

static void step_concat(Gen *g)
{
    int x = value_pick(g, 1), z = -1;
    for (int i = 0; i < g->num_values; i++) {
        Shape a = g->value[x].shape, b = g->value[i].shape;
        if (a.sym == b.sym && a.mid == b.mid && a.cols + b.cols <= 160 && chance(g, 50))
            z = i;
    }
    if (z < 0)
        return;
    Shape shape = g->value[x].shape;
    shape.cols += g->value[z].shape.cols;
    GenValue *y = value_add(g, shape);
    sb_printf(&g->body, "    %s = concat(%s, %s, axis=-1)\n", y->name, use(g, x), use(g, z));
}

static void step_split(Gen *g)
{
    int x = value_pick(g, 2);
    if (x < 0)
        return;
    Shape shape = g->value[x].shape, left = shape, right = shape;
    left.cols = 1 + draw(g, shape.cols - 1);
    right.cols = shape.cols - left.cols;
    if (chance(g, 40)) {
        GenValue *y = value_add(g, right);
        sb_printf(&g->body, "    %s = slice(%s, start=%d)\n", y->name, use(g, x), left.cols);
        return;
    }
    GenValue *a = value_add(g, left);
    GenValue *b = value_add(g, right);
    sb_printf(&g->body, "    %s, %s = split(%s, sizes=[%d, %d])\n", a->name, b->name, use(g, x),
              left.cols, right.cols);
}

/* [S, c] <-> [S, m, c / m]; [S, m, c] -> [S, c, m]. */
static void step_shape(Gen *g)
{
    int x = value_pick(g, 1);
    Shape shape = g->value[x].shape, to = shape;
    const char *name = use(g, x);
    if (shape.mid && chance(g, 50)) {
        to.mid = shape.cols;
        to.cols = shape.mid;
        sb_printf(&g->body, "    %s = transpose(%s, perm=[0, 2, 1])\n", value_add(g, to)->name,
                  name);
    } else if (shape.mid) {
        to.cols = shape.mid * shape.cols;
        to.mid = 0;
        sb_printf(&g->body, "    %s = reshape(%s, [%c, %d])\n", value_add(g, to)->name, name,
                  to.sym, to.cols);
    } else {
        int parts = 1 + draw(g, 4);
        to.mid = shape.cols % parts ? 1 : parts;
        to.cols = shape.cols / to.mid;
        sb_printf(&g->body, "    %s = reshape(%s, [%c, %d, %d])\n", value_add(g, to)->name, name,
                  to.sym, to.mid, to.cols);
    }
}

static void step_cast(Gen *g)
{
    static const char *const fmt[] = {"f32", "f16", "bf16"};
    int x = value_pick(g, 1);
    GenValue *y = value_add(g, g->value[x].shape);
    sb_printf(&g->body, "    %s = cast(%s, %s)\n", y->name, use(g, x), fmt[draw(g, 3)]);
}

/* softmax(x zT) z: rows depend on each other. */
static void step_attention(Gen *g)
{
    int x = value_pick(g, 1), z = value_like(g, x);
    if (z < 0 || g->value[x].shape.mid)
        return;
    const char *a = use(g, x), *b = use(g, z);
    GenValue *y = value_add(g, g->value[x].shape);
    sb_printf(&g->body, "    %s = matmul(softmax(matmul(%s, transpose(%s)) * 0.25), %s)\n", y->name,
              a, b, b);
}

/* A product with a constant [K, N]. */
static void step_matmul(Gen *g)
{
    int x = value_pick(g, 1), cols = draw_cols(g);
    Shape shape = g->value[x].shape;
    const char *w = param_add(g, shape.cols, cols);
    shape.cols = cols;
    GenValue *y = value_add(g, shape);
    sb_printf(&g->body, "    %s = matmul(%s, tanh(%s))\n", y->name, use(g, x), w);
}

/* A block with an index, called in a loop: y = y + f(y). */
static void step_block(Gen *g)
{
    int x = wide_operand(g), id = g->num_names++, times = 1 + draw(g, 2), hidden = draw_cols(g);
    Shape shape = g->value[x].shape;
    if (shape.mid)
        return;
    const char *a = scheme_next(g, shape.cols);
    sb_printf(&g->blocks, "block b%d[i] (x: %s[%c, %d]) -> %s[%c, %d] {\n", id, g->fmt, shape.sym,
              shape.cols, g->fmt, shape.sym, shape.cols);
    sb_printf(&g->blocks, "    param n: %s[%d] from \"b%d.{i}.n\"\n", format_name(g), shape.cols,
              id);
    sb_printf(&g->blocks, "    param up: %s[%d, %d] from \"b%d.{i}.up\"\n", format_name(g), hidden,
              shape.cols, id);
    sb_printf(&g->blocks, "    param down: %s[%d, %d]\n", format_name(g), shape.cols, hidden);
    sb_printf(&g->blocks, "    h = %s(linear(rmsnorm(x, n), up))\n", unary[draw(g, 6)]);
    sb_put(&g->blocks, "    return x + linear(h, down)\n}\n");
    sb_printf(&g->rules, "    b%d[*].up : %s\n", id, a);
    for (int i = 0; i < times; i++) {
        param_data(g, arena_printf(g->arena, "b%d.%d.n", id, i), 1, shape.cols, 0);
        param_data(g, arena_printf(g->arena, "b%d.%d.up", id, i), 2, hidden, shape.cols);
        param_data(g, arena_printf(g->arena, "b%d[%d].down", id, i), 2, shape.cols, hidden);
    }
    const char *from = use(g, x);
    GenValue *y = value_add(g, shape);
    sb_printf(&g->body, "    %s = %s\n    for i in 0 .. %d { %s = b%d[i](%s) }\n", y->name, from,
              times, y->name, id, y->name);
}

/* Experts -------------------------------------------------------------------------------------- */

/* A value of rows by columns, which are enough for every scheme; -1: none. */
static int routed_value(Gen *g)
{
    int start = draw(g, g->num_values);
    for (int i = 0; i < g->num_values; i++) {
        int at = (start + i) % g->num_values;
        if (!g->value[at].shape.mid && g->value[at].shape.cols >= 32)
            return at;
    }
    return -1;
}

/* Numbers for each group: columns of an input, which every build and evaluation has alike, or of a
 * router, whose choices are those of the results before it. */
static const char *put_logits(Gen *g, int x, int groups)
{
    Shape shape = g->value[x].shape;
    for (int i = 0; i < g->num_inputs; i++)
        if (!g->input[i].mid && g->input[i].sym == shape.sym && g->input[i].cols >= groups &&
            chance(g, 90)) {
            int start = draw(g, g->input[i].cols - groups + 1);
            return arena_printf(g->arena, "slice(x%d, start=%d, stop=%d)", i, start,
                                start + groups);
        }
    return arena_printf(g->arena, "linear(%s, %s)", g->value[x].name,
                        param_add(g, groups, shape.cols));
}

static const char *grouped(Gen *g, const char *x, int groups, int rows, int cols,
                           const char *scheme)
{
    const char *w = param_add_groups(g, groups, rows, cols);
    const char *b = chance(g, 40) ? param_add(g, groups, rows) : NULL;
    return arena_printf(g->arena, "grouped_linear(%s, %s%s%s, route=r)%s%s", x, w, b ? ", " : "",
                        b ? b : "", scheme ? " @ " : "", scheme ? scheme : "");
}

/* One layer at the end: a route, what is done with its rows, gated or not, and perhaps another
 * product behind it. It takes no value from the results. */
static void put_experts(Gen *g)
{
    static const int of[] = {1, 2, 3, 4, 7, 16}, hidden[] = {8, 24, 32, 40, 64};
    int x = routed_value(g), groups = of[draw(g, COUNT_OF(of))];
    if (x < 0)
        return;
    Shape shape = g->value[x].shape;
    int choices = 1 + draw(g, groups < 3 ? groups : 3), cols = hidden[draw(g, COUNT_OF(hidden))];
    const char *logits = put_logits(g, x, groups);
    sb_printf(&g->body, "    r = topk(%s, %d%s)\n", logits, choices,
              chance(g, 70) ? "" : arena_printf(g->arena, ", weights=sigmoid(%s)", logits));
    sb_printf(&g->body, "    d = dispatch(%s, route=r)\n", g->value[x].name);
    g->rows = 1 << draw(g, 4); /* of blocks: they divide the columns */
    const char *scheme = scheme_next(g, shape.cols);
    const char *rows = grouped(g, "d", groups, cols, shape.cols, scheme);
    if (chance(g, 50)) {
        const char *up = grouped(g, "d", groups, cols, shape.cols, scheme);
        rows = arena_printf(g->arena, "%s(%s) * (%s)", unary[draw(g, 6)], rows, up);
    }
    if (chance(g, 50)) {
        int next = 8 * (1 + draw(g, 9));
        scheme = cols >= 32 && chance(g, 60) ? scheme_next(g, cols) : NULL;
        rows = grouped(g, rows, groups, next, cols, scheme);
        cols = next;
    }
    g->rows = 0;
    shape.cols = cols;
    GenValue *y = value_add(g, shape);
    y->is_late = true;
    sb_printf(&g->body, "    %s = combine(%s, route=r)\n", y->name, rows);
}

static void step(Gen *g)
{
    typedef void Step(Gen *);
    static Step *const other[] = {step_unary, step_numbers,  step_binary, step_binary,
                                  step_norm,  step_concat,   step_split,  step_shape,
                                  step_cast,  step_matmul,   step_block,  step_gated,
                                  step_unary, step_attention};
    if (can_grow(g))
        (chance(g, 35) ? step_linear : other[draw(g, COUNT_OF(other))])(g);
}

/* Files ---------------------------------------------------------------------------------------- */

static void add_inputs(Gen *g)
{
    g->num_inputs = 1 + draw(g, g->is_small ? 2 : 3);
    for (int i = 0; i < g->num_inputs; i++) {
        char sym = i && chance(g, 25) ? 'T' : 'B';
        Shape shape = {.sym = sym, .cols = draw_cols(g)};
        if (chance(g, 20))
            shape.mid = 1 + draw(g, 4);
        g->has_t = g->has_t || shape.sym == 'T';
        g->input[i] = shape;
        GenValue *v = value_add(g, shape);
        snprintf(v->name, sizeof v->name, "x%d", i);
        sb_printf(&g->inputs, "%sx%d: ", i ? ", " : "", i);
        put_shape(&g->inputs, g->fmt, shape);
    }
}

static const char *assemble(Gen *g)
{
    static const char *const buckets[] = {"[1, 4]", "[2, 8, 13]", "[16]", "[1, 33]"};
    static const char *const one[COUNT_OF(buckets)] = {"[5]", "[13]", "[40]", "[70]"};
    Sb text, results;
    sb_init(&text, g->arena);
    sb_init(&results, g->arena);
    int num_results = 0;
    for (int i = 0; i < g->num_values; i++) {
        const GenValue *v = &g->value[i];
        if (v->used)
            continue;
        sb_printf(&results, "%sy%d: ", num_results ? ", " : "", num_results);
        if (v->is_late)
            swap_state(g, &g->late);
        put_shape(&results, format_name(g), v->shape);
        if (v->is_late)
            swap_state(g, &g->late);
        sb_printf(&g->body, "    y%d = %s\n", num_results++, v->name);
    }
    sb_put(&text, "version 1\nweights \"w.safetensors\"\n");
    if (g->has_static)
        sb_put(&text, "calibrate \"calib.safetensors\"\n");
    const char *const *set = g->is_small ? one : buckets;
    sb_printf(&text, "dim B in %s\n", set[draw(g, COUNT_OF(buckets))]);
    if (g->has_t)
        sb_printf(&text, "dim T in %s\n", set[draw(g, 2)]);
    sb_put(&text, g->schemes.text);
    sb_put(&text, g->blocks.text);
    sb_printf(&text, "model m (%s) -> (%s) {\n%s%s}\n", g->inputs.text, results.text,
              g->params.text, g->body.text);
    if (g->rules.len)
        sb_printf(&text, "quant {\n%s}\n", g->rules.text);
    return text.text;
}

static bool write_model(Gen *g, const char *dir, Generated *ret)
{
    const char *text = assemble(g);
    ret->num_pairs = g->pairs_used;
    ret->text_path = arena_printf(g->arena, "%s/model.sinter", dir);
    FILE *file = fopen(ret->text_path, "w");
    bool ok = file && fputs(text, file) >= 0;
    ok = file && fclose(file) == 0 && ok;
    return ok && write_weights(g, arena_printf(g->arena, "%s/w.safetensors", dir)) &&
           (!g->has_static ||
            write_calibration(g, arena_printf(g->arena, "%s/calib.safetensors", dir)));
}

static bool generate_any(Arena *arena, uint64_t seed, bool small, const char *dir, Generated *ret)
{
    static const char *const fmt[] = {"f32", "f32", "bf16", "f16"};
    Gen *g = ARENA_NEW(arena, Gen);
    int pairs = small ? 1 : 5;
    gen_init(g, arena, seed * UINT64_C(0x2545F4914F6CDD1D));
    g->is_small = small;
    g->pair = seed * (uint64_t)pairs;
    g->fmt = fmt[draw(g, COUNT_OF(fmt))];
    add_inputs(g);
    g->may_static = !g->has_t;
    for (int num = small ? 1 + draw(g, 2) : 5 + draw(g, 9); num > 0; num--)
        step(g);
    while (g->pairs_used < pairs && can_grow(g))
        step_linear(g);
    g->late = seed ^ UINT64_C(0x657870657274);
    swap_state(g, &g->late);
    if (chance(g, 20) && can_grow(g))
        put_experts(g);
    swap_state(g, &g->late);
    ret->first_pair = (int)(seed * (uint64_t)pairs % (uint64_t)generate_num_pairs());
    return write_model(g, dir, ret);
}

bool generate(Arena *arena, uint64_t seed, const char *dir, Generated *ret)
{
    return generate_any(arena, seed, false, dir, ret);
}

bool generate_small(Arena *arena, uint64_t seed, const char *dir, Generated *ret)
{
    return generate_any(arena, seed, true, dir, ret);
}
