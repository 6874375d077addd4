/* random FIRST NUM: random models through the pipeline. For each seed
 *   - every pass keeps the results (check_eval: exact for structural passes),
 *   - level 0 and level 1 end with the same bits, and so does a random subset of the passes that
 * are not needed for meaning,
 *   - the final module prints and parses back to the same text.
 * Expected values are the evaluator's on the module before the passes; nothing is committed. TAP.
 */
#include "passes/internal.h"
#include <stdlib.h>
#include <string.h>

static uint64_t state;

static uint32_t draw(uint32_t below)
{
    state += UINT64_C(0x9E3779B97F4A7C15);
    uint64_t z = state;
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return (uint32_t)((z ^ (z >> 31)) >> 33) % below;
}

/* Generator -------------------------------------------------------------------------------------
 */

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

static const char *model_text(Arena *arena, uint64_t seed)
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
    sb_printf(&g.body, "output \"y\" %%v%d\n", g.num - 1);
    if (draw(2))
        sb_printf(&g.body, "output \"z\" %%v%d\n", (int)draw((uint32_t)g.num));
    return g.body.text;
}

/* Checks ----------------------------------------------------------------------------------------
 */

typedef struct Run {
    Arena *arena;
    Diag diag;
    Module *m;
    EvalRecord *record;
} Run;

static void run_free(Run *r)
{
    eval_record_free(r->record);
    arena_destroy(r->arena);
}

/* NULL, or what went wrong. *ret_refused: choose-scheme reported that the model cannot be. */
static const char *run_passes(Run *r, const char *text, int level, const char *list,
                              bool *ret_refused)
{
    PassContext ctx;
    PassOptions options = {.opt_level = level, .check_eval = true};
    const char *why = NULL;
    static char message[1000];

    *r = (Run){.arena = arena_create()};
    diag_init(&r->diag, r->arena);
    r->m = module_parse(r->arena, &r->diag, diag_add_source(&r->diag, "m.ir", text, strlen(text)));
    if (!r->m)
        return "the text does not parse";
    pass_context_init(&ctx, r->arena, &options);
    *ret_refused = !passes_run(r->m, &ctx, "choose-scheme");
    if (*ret_refused)
        return NULL;
    if (!passes_run(r->m, &ctx, list)) {
        snprintf(message, sizeof message, "%s", r->diag.first ? r->diag.first->text : "failed");
        return message;
    }
    r->record = eval_record(r->m, CHECK_EXACT, r->arena, &why);
    return r->record ? NULL : why;
}

static const char *round_trip(const Run *r)
{
    Arena *arena = arena_create();
    Diag diag;
    Sb first, second;
    const char *why = NULL;

    diag_init(&diag, arena);
    sb_init(&first, arena);
    module_print(&first, r->m, false);
    uint32_t source = diag_add_source(&diag, "m.ir", first.text, first.len);
    Module *m = module_parse(arena, &diag, source);
    sb_init(&second, arena);
    if (m)
        module_print(&second, m, false);
    if (!m || strcmp(first.text, second.text))
        why = "the final module does not print and parse back";
    arena_destroy(arena);
    return why;
}

/* A random subset of what is not needed for meaning, in the pipeline's order. */
static const char *random_list(Arena *arena)
{
    Sb sb;

    sb_init(&sb, arena);
    sb_put(&sb, draw(2) ? "fold,insert-quant" : "insert-quant");
    sb_put(&sb, draw(2) ? ",simplify,quantise-weights" : ",quantise-weights");
    sb_put(&sb, draw(2) ? ",merge-siblings" : "");
    sb_put(&sb, ",factor-scales");
    sb_put(&sb, draw(2) ? ",simplify" : "");
    sb_put(&sb, draw(2) ? ",dce" : "");
    sb_put(&sb, draw(4) ? ",fuse" : "");
    return sb.text;
}

static const char *check_seed(uint64_t seed, Arena *arena, bool *ret_refused)
{
    static const char *const all = "infer-types,fold,insert-quant,quantise-weights,merge-siblings,"
                                   "factor-scales,simplify,dce,fuse,check-fused";
    static const char *const plain = "insert-quant,quantise-weights,factor-scales,fuse";
    const char *text = model_text(arena, seed), *list[3] = {all, plain, random_list(arena)};
    const char *why = NULL;
    Run run[3];
    int num = 0;

    for (; num < 3 && !why; num++) {
        why = run_passes(&run[num], text, num != 1, list[num], ret_refused);
        if (!why && !*ret_refused && num)
            why = eval_record_compare(run[0].record, run[num].record, CHECK_EXACT, arena);
        if (!why && !*ret_refused)
            why = round_trip(&run[num]);
        if (why)
            printf("# passes %s:\n", list[num]);
        if (*ret_refused)
            break;
    }
    for (int i = 0; i < num + *ret_refused && i < 3; i++)
        run_free(&run[i]);
    if (why)
        for (const char *at = text, *end; *at; at = end + 1) {
            end = strchr(at, '\n');
            printf("# %.*s\n", (int)(end - at), at);
        }
    return why;
}

int main(int argc, char **argv)
{
    uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    uint64_t num = argc > 2 ? strtoull(argv[2], NULL, 10) : 100, refused = 0, failed = 0;

    for (uint64_t seed = first; seed < first + num; seed++) {
        Arena *arena = arena_create();
        bool is_refused = false;
        const char *why = check_seed(seed, arena, &is_refused);
        if (why)
            printf("# seed %llu: %s\n", (unsigned long long)seed, why);
        failed += why != NULL;
        refused += is_refused;
        arena_destroy(arena);
    }
    printf("%s 1 - %llu random models\n", failed ? "not ok" : "ok", (unsigned long long)num);
    printf("%s 2 - few are refused (%llu)\n1..2\n", refused * 3 < num ? "ok" : "not ok",
           (unsigned long long)refused);
    return failed || refused * 3 >= num;
}
