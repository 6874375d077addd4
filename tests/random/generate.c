/* Random valid models. Each has a handful of linear layers whose pairs of schemes run through the
 * table of all pairs as seeds count up, joined by random chains: gates, residuals, norms, softmax,
 * moves, products of activations, blocks in loops, several inputs and dims. */
#include "tests/random/generate.h"
#include "io/io.h"
#include "quant/quant.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

uint64_t random_next(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

double random_normal(uint64_t *state) /* near enough: a sum of uniform numbers */
{
    double sum = -3;
    for (int i = 0; i < 6; i++)
        sum += (double)(random_next(state) >> 11) * 0x1p-53;
    return sum * 1.4142135623730951;
}

/* Pairs of schemes ----------------------------------------------------------------------------- */

typedef struct Element {
    const char *words; /* format and symmetry */
    bool symmetric, codebook;
} Element;
static const Element elements[] = {
    {"i8 sym", true, false}, {"i8 asym", false, false}, {"u8 asym", false, false},
    {"i4 sym", true, false}, {"i4 asym", false, false}, {"u4 asym", false, false},
    {"e4m3", true, false},   {"e5m2", true, false},     {"e2m1", true, false},
    {"nf4", true, true},     {"fp4", true, true},
};
static const char *const named[] = {"mxfp8", "mxfp4", "nvfp4"};
static const char *const plain[] = {"f32", "f16", "bf16", ""};

enum { GRAIN_TENSOR, GRAIN_ROW, GRAIN_GROUP, GRAIN_BLOCK, NUM_GRAINS };
enum {
    NUM_ELEMENTS = COUNT_OF(elements),
    NUM_WEIGHTS = NUM_ELEMENTS * NUM_GRAINS + COUNT_OF(named) + 1, /* the last: plain */
    NUM_ACT_ELEMENTS = NUM_ELEMENTS - 2,                           /* codebooks are for weights */
    NUM_ACTS =
        NUM_ACT_ELEMENTS * NUM_GRAINS + COUNT_OF(named) + COUNT_OF(plain) /* grain 3: static */
};

int generate_num_pairs(void)
{
    return NUM_WEIGHTS * NUM_ACTS;
}

/* Text ----------------------------------------------------------------------------------------- */

#define MAX_VALUES 96
#define MAX_PARAMS 128

typedef struct Shape { /* [sym, mid, cols]; mid 0: none */
    char sym;          /* 'B', 'T' */
    int mid, cols;
} Shape;

typedef struct GenValue {
    char name[16];
    Shape shape;
    bool used, assigned;
} GenValue;

typedef struct GenParam {
    char tensor[64];
    FormatId stored;
    int rank;
    int64_t dim[2];
} GenParam;

typedef struct Gen {
    Arena *arena;
    uint64_t state;
    Sb schemes, rules, params, body, blocks, inputs;
    const char *fmt; /* of the model's values */
    GenValue value[MAX_VALUES];
    int num_values;
    GenParam param[MAX_PARAMS];
    int num_params, num_names, num_schemes;
    int num_inputs;
    Shape input[3];
    bool may_static, has_static, has_t;
    uint64_t pair;
    int pairs_used;
} Gen;

static int draw(Gen *g, int below)
{
    return (int)((random_next(&g->state) >> 16) % (uint64_t)below);
}

static bool chance(Gen *g, int percent)
{
    return draw(g, 100) < percent;
}

static int draw_cols(Gen *g)
{
    static const int cols[] = {1,  2,  3,  5,  7,  8,  12, 16, 17, 24,
                               31, 32, 33, 40, 48, 64, 65, 96, 128};
    return cols[draw(g, COUNT_OF(cols))];
}

static GenValue *value_add(Gen *g, Shape shape)
{
    GenValue *v = &g->value[g->num_values++];
    *v = (GenValue){.shape = shape};
    snprintf(v->name, sizeof v->name, "v%d", g->num_names++);
    return v;
}

static bool can_grow(const Gen *g)
{
    return g->num_values + 8 < MAX_VALUES && g->num_params + 16 < MAX_PARAMS;
}

/* A value with at least this many columns, one that nothing uses yet if there is one; -1: none. */
static int value_pick(Gen *g, int min_cols)
{
    int best = -1, start = draw(g, g->num_values);
    for (int i = 0; i < g->num_values; i++) {
        int at = (start + i) % g->num_values;
        if (g->value[at].shape.cols < min_cols)
            continue;
        if (best < 0 || (g->value[best].used && !g->value[at].used && chance(g, 80)))
            best = at;
    }
    return best;
}

/* The name of a value, for an expression that uses it. */
static const char *use(Gen *g, int value)
{
    g->value[value].used = true;
    return g->value[value].name;
}

static const char *format_name(Gen *g)
{
    static const char *const name[] = {"f32", "f16", "bf16"};
    return chance(g, 70) ? g->fmt : name[draw(g, 3)];
}

static void param_data(Gen *g, const char *tensor, int rank, int64_t rows, int64_t cols)
{
    static const FormatId stored[] = {FMT_F32, FMT_BF16, FMT_F16};
    GenParam *p = &g->param[g->num_params++];
    *p = (GenParam){.rank = rank, .dim = {rows, cols}, .stored = stored[draw(g, 3)]};
    snprintf(p->tensor, sizeof p->tensor, "%s", tensor);
}

/* Declares a param of the model and gives it data; its name in a buffer of the arena. */
static const char *param_add(Gen *g, int64_t rows, int64_t cols)
{
    const char *name = arena_printf(g->arena, "p%d", g->num_names++);
    const char *tensor = arena_printf(g->arena, "t.%s", name);
    if (rows)
        sb_printf(&g->params, "    param %s: %s[%d, %d] from \"%s\"\n", name, format_name(g),
                  (int)rows, (int)cols, tensor);
    else
        sb_printf(&g->params, "    param %s: %s[%d] from \"%s\"\n", name, format_name(g), (int)cols,
                  tensor);
    param_data(g, tensor, rows ? 2 : 1, rows ? rows : cols, rows ? cols : 0);
    return name;
}

/* Schemes -------------------------------------------------------------------------------------- */

static int draw_group(Gen *g, int cols, bool alone)
{
    static const int odd[] = {3, 5, 6, 12, 20};
    int size = odd[draw(g, COUNT_OF(odd))];
    if (alone && chance(g, 25) && size <= cols)
        return size;
    int most = 0;
    while (2 << most <= cols && most < 6)
        most++;
    return 1 << draw(g, most + 1);
}

static void put_scale(Gen *g, const Element *e)
{
    static const char *const scale[] = {"f16", "bf16", "e4m3", "e8m0"};
    int which = draw(g, 8);
    if (which < 3 || (which == 3 && e->symmetric && !e->codebook))
        sb_printf(&g->schemes, " scale %s", scale[which]);
}

static bool grain_has_groups(int index)
{
    int grain = index % NUM_GRAINS;
    if (index >= NUM_ELEMENTS * NUM_GRAINS)
        return index != NUM_WEIGHTS - 1;
    return grain == GRAIN_GROUP || grain == GRAIN_BLOCK;
}

static void put_weight(Gen *g, int index, int cols, bool alone)
{
    if (index == NUM_WEIGHTS - 1)
        return;
    sb_put(&g->schemes, "weight ");
    if (index >= NUM_ELEMENTS * NUM_GRAINS) {
        sb_put(&g->schemes, named[index - NUM_ELEMENTS * NUM_GRAINS]);
        return;
    }
    const Element *e = &elements[index / NUM_GRAINS];
    int rows; /* drawn apart: compilers differ in the order of arguments */
    sb_put(&g->schemes, e->words);
    switch (index % NUM_GRAINS) {
    case GRAIN_TENSOR: sb_put(&g->schemes, " per tensor"); break;
    case GRAIN_ROW: sb_put(&g->schemes, " per channel"); break;
    case GRAIN_GROUP: sb_printf(&g->schemes, " group %d", draw_group(g, cols, alone)); break;
    default:
        rows = 1 + draw(g, 9);
        sb_printf(&g->schemes, " block %dx%d", rows, draw_group(g, cols, alone));
    }
    put_scale(g, e);
}

static void put_act(Gen *g, int index, int cols, bool alone)
{
    static const char *const range[] = {"static", "static minmax", "static percentile 99.5"};
    int first_named = NUM_ACT_ELEMENTS * NUM_GRAINS;
    int first_plain = first_named + (int)COUNT_OF(named);
    if (index >= first_plain) {
        const char *fmt = plain[index - first_plain];
        if (*fmt)
            sb_printf(&g->schemes, "act %s", fmt);
        return;
    }
    sb_put(&g->schemes, "act ");
    if (index >= first_named) {
        sb_put(&g->schemes, named[index - first_named]);
        return;
    }
    const Element *e = &elements[index / NUM_GRAINS];
    sb_put(&g->schemes, e->words);
    switch (index % NUM_GRAINS) {
    case GRAIN_TENSOR: sb_put(&g->schemes, " per tensor"); break;
    case GRAIN_ROW: sb_put(&g->schemes, " per token"); break;
    case GRAIN_GROUP: sb_printf(&g->schemes, " group %d", draw_group(g, cols, alone)); break;
    default:
        if (g->may_static)
            sb_printf(&g->schemes, " per tensor %s", range[draw(g, 3)]);
        else
            sb_put(&g->schemes, " per tensor dynamic");
        g->has_static = g->has_static || g->may_static;
    }
    put_scale(g, e);
}

/* The scheme of the next pair for a layer with at least this K; its name. */
static const char *scheme_next(Gen *g, int cols)
{
    uint64_t pair = g->pair++ % (uint64_t)generate_num_pairs();
    int weight = (int)(pair / NUM_ACTS), act = (int)(pair % NUM_ACTS);
    bool act_groups = act < NUM_ACT_ELEMENTS * NUM_GRAINS
                          ? act % NUM_GRAINS == GRAIN_GROUP
                          : act < NUM_ACT_ELEMENTS * NUM_GRAINS + (int)COUNT_OF(named);
    const char *name = arena_printf(g->arena, "s%d", g->num_schemes++);
    if (weight == NUM_WEIGHTS - 1 && act == NUM_ACTS - 1)
        act--; /* a scheme says something */
    sb_printf(&g->schemes, "scheme %s { ", name);
    put_weight(g, weight, cols, !act_groups);
    sb_put(&g->schemes, weight == NUM_WEIGHTS - 1 ? " " : "; ");
    put_act(g, act, cols, !grain_has_groups(weight));
    sb_put(&g->schemes, " }\n");
    g->pairs_used++;
    return name;
}

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

/* Plain, with zero rows, with columns that stick out, huge, tiny, or all one number. */
static void fill(Gen *g, float *data, int64_t rows, int64_t cols)
{
    int flavour = draw(g, 12);
    double scale = 1 / sqrt((double)cols);
    for (int64_t r = 0; r < rows; r++) {
        bool zero = flavour == 0 && draw(g, 3) == 0;
        for (int64_t c = 0; c < cols; c++) {
            double v = random_normal(&g->state) * scale;
            if (flavour == 1 && c % 7 == 3)
                v *= 20;
            v = flavour == 2 ? v * 50 : flavour == 3 ? v * 1e-4 : flavour == 4 ? scale : v;
            data[r * cols + c] = zero ? 0 : (float)v;
        }
    }
}

static bool write_weights(Gen *g, const char *path)
{
    SafetensorsItem *item = ARENA_NEW_ARRAY(g->arena, SafetensorsItem, (size_t)g->num_params);
    for (int i = 0; i < g->num_params; i++) {
        const GenParam *p = &g->param[i];
        int64_t cols = p->rank == 2 ? p->dim[1] : 1, num = p->dim[0] * cols;
        float *data = ARENA_NEW_ARRAY(g->arena, float, (size_t)num);
        void *stored = ARENA_NEW_ARRAY(g->arena, float, (size_t)num);
        if (p->rank == 2)
            fill(g, data, p->dim[0], cols);
        else
            for (int64_t k = 0; k < num; k++)
                data[k] = (float)(1 + 0.2 * random_normal(&g->state));
        format_from_f32(p->stored, data, stored, (uint64_t)num);
        item[i] = (SafetensorsItem){p->tensor, p->stored, p->rank, p->dim, stored};
    }
    IoError err;
    bool ok = safetensors_write(path, g->num_params, item, &err);
    if (!ok)
        printf("# %s\n", err.text);
    return ok;
}

static bool write_calibration(Gen *g, const char *path)
{
    static const char *const name[] = {"x0", "x1", "x2"};
    SafetensorsItem item[3];
    int64_t dim[3][3];
    for (int i = 0; i < g->num_inputs; i++) {
        int rank = 0;
        int64_t num = 6;
        dim[i][rank++] = 6;
        if (g->input[i].mid)
            dim[i][rank++] = g->input[i].mid;
        dim[i][rank++] = g->input[i].cols;
        for (int k = 1; k < rank; k++)
            num *= dim[i][k];
        float *data = ARENA_NEW_ARRAY(g->arena, float, (size_t)num);
        for (int64_t k = 0; k < num; k++)
            data[k] = (float)(2 * random_normal(&g->state));
        item[i] = (SafetensorsItem){name[i], FMT_F32, rank, dim[i], data};
    }
    IoError err;
    bool ok = safetensors_write(path, g->num_inputs, item, &err);
    if (!ok)
        printf("# %s\n", err.text);
    return ok;
}

static void put_shape(Sb *sb, const char *fmt, Shape shape)
{
    sb_printf(sb, "%s[%c, ", fmt, shape.sym);
    if (shape.mid)
        sb_printf(sb, "%d, ", shape.mid);
    sb_printf(sb, "%d]", shape.cols);
}

static void add_inputs(Gen *g)
{
    g->num_inputs = 1 + draw(g, 3);
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
    Sb text, results;
    sb_init(&text, g->arena);
    sb_init(&results, g->arena);
    int num_results = 0;
    for (int i = 0; i < g->num_values; i++) {
        const GenValue *v = &g->value[i];
        if (v->used)
            continue;
        sb_printf(&results, "%sy%d: ", num_results ? ", " : "", num_results);
        put_shape(&results, format_name(g), v->shape);
        sb_printf(&g->body, "    y%d = %s\n", num_results++, v->name);
    }
    sb_put(&text, "version 1\nweights \"w.safetensors\"\n");
    if (g->has_static)
        sb_put(&text, "calibrate \"calib.safetensors\"\n");
    sb_printf(&text, "dim B in %s\n", buckets[draw(g, COUNT_OF(buckets))]);
    if (g->has_t)
        sb_printf(&text, "dim T in %s\n", buckets[draw(g, 2)]);
    sb_put(&text, g->schemes.text);
    sb_put(&text, g->blocks.text);
    sb_printf(&text, "model m (%s) -> (%s) {\n%s%s}\n", g->inputs.text, results.text,
              g->params.text, g->body.text);
    if (g->rules.len)
        sb_printf(&text, "quant {\n%s}\n", g->rules.text);
    return text.text;
}

bool generate(Arena *arena, uint64_t seed, const char *dir, Generated *ret)
{
    static const char *const fmt[] = {"f32", "f32", "bf16", "f16"};
    Gen *g = ARENA_NEW(arena, Gen);
    g->arena = arena;
    g->state = seed * UINT64_C(0x2545F4914F6CDD1D);
    g->pair = seed * 5;
    Sb *const sbs[] = {&g->schemes, &g->rules, &g->params, &g->body, &g->blocks, &g->inputs};
    for (size_t i = 0; i < COUNT_OF(sbs); i++)
        sb_init(sbs[i], arena);
    g->fmt = fmt[draw(g, COUNT_OF(fmt))];
    add_inputs(g);
    g->may_static = !g->has_t;
    for (int num = 5 + draw(g, 9); num > 0; num--)
        step(g);
    while (g->pairs_used < 5 && can_grow(g))
        step_linear(g);
    const char *text = assemble(g);
    ret->first_pair = (int)(seed * 5 % (uint64_t)generate_num_pairs());
    ret->num_pairs = g->pairs_used;
    ret->text_path = arena_printf(arena, "%s/model.sinter", dir);
    FILE *file = fopen(ret->text_path, "w");
    bool ok = file && fputs(text, file) >= 0;
    ok = file && fclose(file) == 0 && ok;
    return ok && write_weights(g, arena_printf(arena, "%s/w.safetensors", dir)) &&
           (!g->has_static ||
            write_calibration(g, arena_printf(arena, "%s/calib.safetensors", dir)));
}
