/* Random models: every scheme of weights with every scheme of activations, gates, siblings, norms,
 * moves and residuals, as printed IR. The same seed gives the same text. */
#include "tests/passes/models.h"
#include <string.h>

static uint64_t state;

uint32_t draw(uint32_t below)
{
    state += UINT64_C(0x9E3779B97F4A7C15);
    uint64_t z = state;
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return (uint32_t)((z ^ (z >> 31)) >> 33) % below;
}

typedef struct Model {
    Sb body;
    int num; /* values %v0 .. , all [T, cols[i]] */
    int cols[64];
    int consts;
} Model;

static const char *const weight_schemes[] = {
    "i8{sym per channel}",
    "i8{asym per channel}",
    "i8{sym per tensor}",
    "u8{asym per tensor}",
    "i4{sym group 8}",
    "i4{asym group 16}",
    "u4{asym per channel}",
    "e4m3{per channel}",
    "e5m2{per tensor}",
    "e4m3{block 8x8}",
    "e2m1{group 16 scale e4m3 outer}",
    "e4m3{group 32 scale e8m0}",
    "nf4{group 16}",
    "fp4{group 64 scale f16}",
};
static const char *const act_schemes[] = {
    "bf16",
    "f32",
    "f16",
    "i8{sym per token}",
    "i8{asym per token}",
    "i8{sym per tensor}",
    "i8{asym per tensor} static minmax",
    "u8{asym per tensor} static minmax",
    "i8{sym group 8}",
    "u8{asym group 16}",
    "e4m3{per token}",
    "e4m3{group 32 scale e8m0}",
    "e2m1{group 16 scale e4m3 outer}",
    "i8{sym block 2x16}",
};

static int value_new(Model *g, int cols)
{
    g->cols[g->num] = cols;
    return g->num++;
}

static const char *quant_text(Arena *arena)
{
    const char *weight = weight_schemes[draw(COUNT_OF(weight_schemes))];
    const char *act = act_schemes[draw(COUNT_OF(act_schemes))];

    if (draw(4) == 0)
        return NULL;
    return arena_printf(arena, "weight %s, act %s", weight, act);
}

static int emit_linear(Model *g, int x, int n, const char *quant)
{
    int w = g->consts++, k = g->cols[x], y = value_new(g, n);
    bool is_static = quant && strstr(quant, "static");

    sb_printf(&g->body, "%%w%d = const random seed %d scale 0.2 : f32[%d, %d]\n", w, w + 1, n, k);
    sb_printf(&g->body, "%%v%d = matmul %%v%d, %%w%d {%slayer = \"l.%d\"", y, x, w,
              is_static ? "range = [-3, 2.5], " : "", w);
    if (quant)
        sb_printf(&g->body, ", quant = {%s}", quant);
    sb_printf(&g->body, "} : f32[T, %d]\n", n);
    return y;
}

static int emit_vector(Model *g, int n)
{
    int w = g->consts++;

    sb_printf(&g->body, "%%w%d = const random seed %d scale 1 : f32[%d]\n", w, w + 1, n);
    return w;
}

static int emit_unary(Model *g, int x)
{
    static const char *const names[] = {"relu", "gelu", "silu", "tanh", "sigmoid", "softmax"};
    int n = g->cols[x], y = value_new(g, n);

    sb_printf(&g->body, "%%v%d = %s %%v%d : f32[T, %d]\n", y, names[draw(6)], x, n);
    return y;
}

static int emit_binary(Model *g, const char *op, int a, int b)
{
    int n = g->cols[a], y = value_new(g, n);

    sb_printf(&g->body, "%%v%d = %s %%v%d, %%v%d : f32[T, %d]\n", y, op, a, b, n);
    return y;
}

static int emit_bias(Model *g, int x)
{
    int n = g->cols[x], w = emit_vector(g, n), y = value_new(g, n);

    sb_printf(&g->body, "%%v%d = add %%v%d, %%w%d : f32[T, %d]\n", y, x, w, n);
    return y;
}

static int emit_norm(Model *g, int x)
{
    int n = g->cols[x], w = emit_vector(g, n), y = value_new(g, n);

    sb_printf(&g->body, "%%v%d = rmsnorm %%v%d, %%w%d {eps = 1e-05} : f32[T, %d]\n", y, x, w, n);
    return y;
}

/* Values stay f32 for the generator; the round trip is what matters. */
static int emit_round(Model *g, int x)
{
    int n = g->cols[x], y = value_new(g, n);

    sb_printf(&g->body, "%%c%d = cast %%v%d : %s[T, %d]\n", y, x, draw(2) ? "bf16" : "f16", n);
    sb_printf(&g->body, "%%v%d = cast %%c%d : f32[T, %d]\n", y, y, n);
    return y;
}

static int emit_move(Model *g, int x)
{
    int n = g->cols[x], y;

    if (n % 2 == 0 && draw(2)) {
        y = value_new(g, n / 2);
        int start = draw(2) ? n / 2 : 0;
        sb_printf(&g->body, "%%v%d = slice %%v%d {axis = 1, start = %d, stop = %d} : f32[T, %d]\n",
                  y, x, start, start + n / 2, n / 2);
        return y;
    }
    y = value_new(g, n);
    sb_printf(&g->body, "%%r%d = transpose %%v%d {perm = [1, 0]} : f32[%d, T]\n", y, x, n);
    sb_printf(&g->body, "%%v%d = transpose %%r%d {perm = [1, 0]} : f32[T, %d]\n", y, y, n);
    return y;
}

/* Rows sent to groups by the numbers of value s. */
typedef struct Route {
    int groups, choices, id; /* id: of its values */
} Route;

static Route emit_route(Model *g, int x)
{
    static const int groups[] = {1, 2, 3, 4, 8};
    Route r = {.groups = groups[draw(COUNT_OF(groups))], .id = g->consts};
    r.choices = 1 + (int)draw((uint32_t)(r.groups < 3 ? r.groups : 3));
    Sb *b = &g->body;
    if (draw(2)) { /* a router, or some of the input */
        int s = emit_linear(g, x, r.groups, NULL);
        sb_printf(b, "%%s%d = add %%v%d, %%v%d : f32[T, %d]\n", r.id, s, s, r.groups);
    } else {
        sb_printf(b, "%%s%d = slice %%v0 {axis = 1, start = 0, stop = %d} : f32[T, %d]\n", r.id,
                  r.groups, r.groups);
    }
    sb_printf(b, "%%i%d = topk %%s%d {count = %d} : i32[T, %d]\n", r.id, r.id, r.choices,
              r.choices);
    sb_printf(b, "%%t%d = take %%s%d, %%i%d : f32[T, %d]\n", r.id, r.id, r.id, r.choices);
    sb_printf(b, "%%p%d = %s %%t%d : f32[T, %d]\n", r.id, draw(2) ? "softmax" : "sigmoid", r.id,
              r.choices);
    sb_printf(b, "%%e%d = group_ends %%i%d {count = %d} : i32[%d]\n", r.id, r.id, r.groups,
              r.groups);
    sb_printf(b, "%%q%d = group_places %%i%d {count = %d} : i32[T, %d]\n", r.id, r.id, r.groups,
              r.choices);
    sb_printf(b, "%%from%d = group_sources %%i%d {count = %d} : i32[%d*T, 1]\n", r.id, r.id,
              r.groups, r.choices);
    return r;
}

/* A scheme without blocks of several rows of different groups; of weights, n rows are one group's.
 */
static const char *grouped_quant(Arena *arena, int n)
{
    const char *quant = quant_text(arena);
    while (quant && (strstr(quant, "block 2x") || (n % 8 && strstr(quant, "block 8x"))))
        quant = quant_text(arena);
    return quant;
}

/* The sum, perhaps with a bias, of `in` and a weight of each group; y: how both are numbered. */
static void emit_grouped(Model *g, Route r, const char *in, int k, int n, const char *quant, int y)
{
    int w = g->consts++, c = r.choices;
    bool is_static = quant && strstr(quant, "static");
    sb_printf(&g->body, "%%w%d = const random seed %d scale 0.2 : f32[%d, %d, %d]\n", w, w + 1,
              r.groups, n, k);
    sb_printf(&g->body, "%%m%d = matmul %s, %%w%d, %%e%d {%slayer = \"l.%d\"", y, in, w, r.id,
              is_static ? "range = [-3, 2.5], " : "", w);
    sb_printf(&g->body, quant ? ", quant = {%s}} : f32[%d*T, %d]\n" : "%s} : f32[%d*T, %d]\n",
              quant ? quant : "", c, n);
    if (draw(2)) {
        sb_printf(&g->body, "%%h%d = add %%m%d, %%m%d : f32[%d*T, %d]\n", y, y, y, c, n);
        return;
    }
    w = g->consts++;
    sb_printf(&g->body, "%%w%d = const random seed %d scale 1 : f32[%d, %d]\n", w, w + 1, r.groups,
              n);
    sb_printf(&g->body, "%%b%d = spread %%w%d, %%e%d : f32[%d*T, %d]\n", y, w, r.id, c, n);
    sb_printf(&g->body, "%%h%d = add %%m%d, %%b%d : f32[%d*T, %d]\n", y, y, y, c, n);
}

/* A layer of experts: gated or not, with one product behind it or none. */
static void emit_experts(Model *g, Arena *arena)
{
    static const int widths[] = {8, 16, 24, 48, 64};
    int x = (int)draw((uint32_t)g->num), k = g->cols[x], n = widths[draw(COUNT_OF(widths))];
    const char *quant = grouped_quant(arena, n), *rows;
    Route r = emit_route(g, x);
    Sb *b = &g->body;
    int y = 10 * g->consts, c = r.choices;
    sb_printf(b, "%%d%d = dispatch %%v%d, %%from%d : f32[%d*T, %d]\n", r.id, x, r.id, c, k);
    rows = arena_printf(arena, "%%d%d", r.id);
    emit_grouped(g, r, rows, k, n, quant, y);
    sb_printf(b, "%%a%d = silu %%h%d : f32[%d*T, %d]\n", y, y, c, n);
    if (draw(2)) {
        emit_grouped(g, r, rows, k, n, quant, y + 1);
        sb_printf(b, "%%a%d = mul %%a%d, %%h%d : f32[%d*T, %d]\n", y + 1, y, y + 1, c, n);
        y++;
    }
    rows = arena_printf(arena, "%%a%d", y);
    if (draw(2)) {
        int from = n;
        n = draw(2) ? k : 32;
        emit_grouped(g, r, rows, from, n, grouped_quant(arena, n), ++y);
        rows = arena_printf(arena, "%%h%d", y);
    }
    int to = value_new(g, n);
    sb_printf(b, "%%v%d = combine %s, %%q%d, %%p%d : f32[T, %d]\n", to, rows, r.id, r.id, n);
    if (n == k && draw(2))
        emit_binary(g, "add", x, to);
}

static void emit_some(Model *g, Arena *arena)
{
    static const int widths[] = {1, 8, 16, 32, 48, 64, 272};
    int x = draw(3) ? g->num - 1 : (int)draw((uint32_t)g->num);
    int n = widths[draw(COUNT_OF(widths))];
    const char *quant = quant_text(arena);

    switch (draw(9)) {
    case 0:
    case 1: emit_linear(g, x, n, quant); break;
    case 2: emit_bias(g, emit_linear(g, x, n, quant)); break;
    case 3: { /* gate and up */
        int gate = emit_linear(g, x, n, quant);
        int up = emit_linear(g, x, n, draw(4) ? quant : quant_text(arena));
        emit_binary(g, "mul", emit_unary(g, gate), up);
        break;
    }
    case 4: /* q, k, v */
        for (int i = 0; i < 3; i++)
            emit_round(g, emit_linear(g, x, i ? 16 : 32, quant));
        break;
    case 5: emit_unary(g, x); break;
    case 6: emit_norm(g, x); break;
    case 7: draw(2) ? emit_round(g, x) : emit_move(g, x); break;
    default: { /* residual */
        int y = (int)draw((uint32_t)g->num);
        if (g->cols[x] == g->cols[y])
            emit_binary(g, draw(2) ? "add" : "mul", x, y);
        else
            emit_binary(g, "sub", x, emit_linear(g, y, g->cols[x], quant));
    }
    }
}

const char *model_text(Arena *arena, uint64_t seed)
{
    Model g = {0};
    int steps;

    state = seed;
    steps = 2 + (int)draw(8);
    sb_init(&g.body, arena);
    sb_put(&g.body, "module \"m\"\ndim T in [1, 4]\n");
    sb_printf(&g.body, "%%v0 = input \"x\" : f32[T, %d]\n", draw(2) ? 32 : 48);
    g.cols[0] = strstr(g.body.text, ", 32]") ? 32 : 48;
    g.num = 1;
    for (int i = 0; i < steps && g.num < 50; i++)
        emit_some(&g, arena);
    int last = g.num - 1;
    uint64_t own = state; /* experts came later: what else a seed gives stays */
    state = seed ^ UINT64_C(0x657870657274);
    if (draw(4) == 0) {
        emit_experts(&g, arena);
        sb_printf(&g.body, "output \"e\" %%v%d\n", g.num - 1);
    }
    state = own;
    g.num = last + 1;
    sb_printf(&g.body, "output \"y\" %%v%d\n", last);
    if (draw(2))
        sb_printf(&g.body, "output \"z\" %%v%d\n", (int)draw((uint32_t)g.num));
    return g.body.text;
}
