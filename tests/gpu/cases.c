/* Texts for the checker of GPU kernels; see cases.h. */
#include "tests/gpu/cases_parts.h"

#include <string.h>

/* The matrix ----------------------------------------------------------------------------------- */

const CaseFormat case_formats[NUM_CASE_FORMATS] = {
    {"i8", 0, 2, -1, -1},
    {"u8", 2, 1, -1, -1},
    {"i4", 3, 2, -1, -1},
    {"u4", 5, 1, -1, -1},
    {"e4m3", 6, 1, -1, -1},
    {"e5m2", 7, 1, -1, -1},
    {"e2m1", 8, 1, -1, -1},
    {"nf4", 9, 1, -1, -1},
    {"fp4", 10, 1, -1, -1},
    {"mxfp8", 0, 0, 0, -1},
    {"mxfp4", 0, 0, 1, -1},
    {"nvfp4", 0, 0, 2, -1},
    {"f32", 0, 0, -1, 0},
    {"f16", 0, 0, -1, 1},
    {"bf16", 0, 0, -1, 2},
    /* of weights only, in cases behind those of the others */
    {"i2", 11, 1, -1, -1},
    {"i3", 12, 1, -1, -1},
    {"u3", 13, 1, -1, -1},
    {"binary", 17, 1, -1, -1},
    {"u1 codebook", 0, 0, -1, -1},
    {"u3 codebook", 0, 0, -1, -1},
    {"u4 codebook", 0, 0, -1, -1},
    {"u6 codebook", 0, 0, -1, -1},
    /* behind all of them */
    {"4 bits of whole scales", 0, 0, -1, -1},
};

static bool is_book(int format)
{
    return format >= FIRST_BOOK && format < WHOLE;
}

static const char *const kind_name[] = {"few",  "many",  "wide",  "odd",
                                        "rows", "moves", "pairs", "groups"};

/* Times that a pair is visited: each time with another scheme, epilogue, N and K. With all numbers
 * of rows that few can be, and some 70 that many can be, each pair has 200 shapes and more in each
 * family that takes it. */
enum {
    TIMES_FEW = 16,
    TIMES_FEW_INTS = 30, /* with zero points or without, along K or not */
    TIMES_MANY = 3,
    TIMES_MANY_INTS = 8,
    TIMES_WIDE = 24,
    TIMES_ODD = 3,
    TIMES_ROWS = 30,
    TIMES_MOVE = 12,
    TIMES_PAIR = 32,
    MAX_CASES = 32768
};

static bool is_codebook(int format)
{
    return case_formats[format].element >= 9 || is_book(format);
}

static int times_of(Kind kind, int a)
{
    if (is_codebook(a))
        return 0; /* for weights only */
    if (kind == KIND_ODD)
        return TIMES_ODD;
    if (kind == KIND_WIDE)
        return TIMES_WIDE;
    if (kind == KIND_FEW)
        return a < 2 ? TIMES_FEW_INTS : TIMES_FEW;
    return a < 2 ? TIMES_MANY_INTS : TIMES_MANY;
}

/* wgmma multiplies the pair, the weight decoded in registers. */
bool is_mixed(int w, int a)
{
    enum { I4 = 2, U4, E4M3, E5M2, E2M1, MXFP4 = 10 };
    bool floats = a == E4M3 || a == E5M2, is_thin = w >= FIRST_THIN && w < FIRST_BOOK;
    bool nibbles = w == I4 || w == U4 || w == WHOLE || is_thin;
    return (w < FIRST_PLAIN || w == WHOLE || is_thin) &&
           (a > FIRST_PLAIN || (nibbles && a < E4M3) ||
            (floats && (nibbles || w == E2M1 || w == MXFP4)));
}

/* .. or as it is stored; integers of an activation lie in bytes. */
bool is_even(int w, int a)
{
    enum { BYTES, FLOATS, OTHERS };
    enum { I4 = 2, U4 };
    static const int class_of[NUM_CASE_FORMATS] = {BYTES,  BYTES,  OTHERS, OTHERS, FLOATS, FLOATS,
                                                   OTHERS, OTHERS, OTHERS, FLOATS, OTHERS, OTHERS,
                                                   OTHERS, OTHERS, OTHERS, OTHERS, OTHERS, OTHERS,
                                                   OTHERS, OTHERS, OTHERS, OTHERS, OTHERS, OTHERS};
    bool are_halves = w == a && w > FIRST_PLAIN;
    int class_of_a = a == I4 || a == U4 ? BYTES : class_of[a];
    return are_halves || (class_of[w] != OTHERS && class_of[w] == class_of_a);
}

/* bf16 holds the activation's codes times their scales, and perhaps the weight's. */
static bool is_held(int w, int a)
{
    return a >= FIRST_NAMED && a < FIRST_PLAIN && w < FIRST_PLAIN;
}

/* The visits of one slice of the matrix: those between two shares of each pair's times. Weights are
 * those of formats from `first` up to `end`. */
static uint64_t add_slice(Place *place, uint64_t num, int slice, int slices, int first, int end)
{
    for (int kind = 0; kind < KIND_PAIR; kind++)
        for (int w = first; w < end; w++)
            for (int a = 0; a < FIRST_THIN; a++) {
                bool product = kind <= KIND_ODD;
                if (product ? kind == KIND_WIDE && !is_even(w, a) && !is_mixed(w, a)
                            : w || a < FIRST_PLAIN)
                    continue;
                int times = product             ? times_of((Kind)kind, a)
                            : kind == KIND_ROWS ? TIMES_ROWS
                                                : TIMES_MOVE;
                times = w < FIRST_THIN || w == WHOLE ? times : (times + 1) / 2;
                for (int t = 0; t < times && num < MAX_CASES; t++)
                    if (t * slices / times == slice)
                        place[num++] = (Place){(Kind)kind, w, a, (uint64_t)t, 0};
            }
    return num;
}

static uint64_t add_pairs(Place *place, uint64_t num)
{
    for (uint64_t t = 0; t < TIMES_PAIR; t++)
        for (int w = FIRST_PLAIN; w < FIRST_THIN; w++)
            for (int a = FIRST_PLAIN; a < FIRST_THIN && num < MAX_CASES; a++)
                place[num++] = (Place){KIND_PAIR, w, a, t, 0};
    return num;
}

/* Products of groups of rows, of weights but those that are stored as codes. */
static uint64_t add_groups(Place *place, uint64_t num, int slice, int slices)
{
    for (int w = 0; w < NUM_CASE_FORMATS; w++)
        for (int a = 0; a < FIRST_THIN; a++) {
            int times = is_book(w) || is_codebook(a) ? 0 : groups_times(w, a);
            for (int t = 0; t < times && num < MAX_CASES; t++)
                if (t * slices / times == slice) /* times have no factor 11: all in each slice */
                    place[num++] = (Place){KIND_GROUPS, w, a, (uint64_t)(t * 11 % times), 0};
        }
    return num;
}

/* All of the matrix, slice by slice: what comes first samples all of it, but for what it has been
 * given last, so that the others keep their numbers. */
static const Place *places(uint64_t *ret_num)
{
    enum { SLICES = 15 };
    static Place place[MAX_CASES];
    static uint64_t num;
    bool is_made = num > 0;
    for (int slice = 0; slice < SLICES && !is_made; slice++)
        num = add_slice(place, num, slice, SLICES, 0, FIRST_THIN);
    for (int slice = 0; slice < SLICES && !is_made; slice++)
        num = add_slice(place, num, slice, SLICES, FIRST_THIN, WHOLE);
    num = is_made ? num : add_pairs(place, num);
    for (int slice = 0; slice < SLICES && !is_made; slice++)
        num = add_slice(place, num, slice, SLICES, WHOLE, NUM_CASE_FORMATS);
    for (int slice = 0; slice < SLICES && !is_made; slice++)
        num = add_groups(place, num, slice, SLICES);
    *ret_num = num;
    return place;
}

uint64_t cases_num(void)
{
    uint64_t num;
    places(&num);
    return num;
}

uint64_t cases_pick(uint64_t each, const char *only, uint64_t most, uint64_t *ret)
{
    uint64_t num, at = 0;
    const Place *place = places(&num);
    for (int kind = 0; kind < NUM_KINDS; kind++) {
        uint64_t all = 0;
        for (uint64_t i = 0; i < num && (!only || !strcmp(only, kind_name[kind])); i++)
            all += place[i].kind == (Kind)kind;
        for (uint64_t k = 0; k < each && k < all && at < most; k++) {
            uint64_t skip = (k * 40503 + 12345) % 65536 * all / 65536, i = 0; /* the golden ratio */
            while (place[i].kind != (Kind)kind || skip--)
                i++;
            ret[at++] = i;
        }
    }
    return at;
}

/* Products ------------------------------------------------------------------------------------- */

const char *const case_unary[NUM_UNARY] = {"relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh"};
const char *const plain_name[3] = {"f32", "f16", "bf16"};

enum { /* what follows the product */
       POST_NONE,
       POST_BIAS,
       POST_ACTIVATION,
       POST_GATED = POST_ACTIVATION + 6,
       POST_RESIDUAL = POST_GATED + 6,
       POST_CAST,
       POST_NUMBERS,
       POST_REQUANTISE,
       POST_NORM = POST_REQUANTISE + 3,
       POST_SOFTMAX,
       POST_SIBLING, /* another product of x, whose columns begin inside a tile */
       NUM_POSTS
};

/* The index of parts.h for a format; pick: which symmetry and grain. */
int weight_index(int format, uint64_t pick)
{
    const CaseFormat *f = &case_formats[format];
    if (format == WHOLE)
        return WHOLE_SCALES;
    if (f->plain >= 0 || is_book(format))
        return NUM_WEIGHTS - 1;
    if (f->named >= 0)
        return NUM_ELEMENTS * NUM_GRAINS + f->named;
    return (f->element + (int)(pick / NUM_GRAINS) % f->num) * NUM_GRAINS + (int)(pick % NUM_GRAINS);
}

int act_index(int format, uint64_t pick)
{
    const CaseFormat *f = &case_formats[format];
    if (f->plain >= 0)
        return NUM_ACT_ELEMENTS * NUM_GRAINS + NUM_NAMED + f->plain;
    if (f->named >= 0)
        return NUM_ACT_ELEMENTS * NUM_GRAINS + f->named;
    return (f->element + (int)(pick / NUM_GRAINS) % f->num) * NUM_GRAINS + (int)(pick % NUM_GRAINS);
}

bool act_has_groups(int index)
{
    if (index >= NUM_ACT_ELEMENTS * NUM_GRAINS)
        return index < NUM_ACT_ELEMENTS * NUM_GRAINS + NUM_NAMED;
    return index % NUM_GRAINS == GRAIN_GROUP;
}

/* side: where the words of the activation are drawn from; NULL: as the others. */
/* Some 8-bit floats whose sums may stay as they are. */
static void put_fast(Gen *g, const char *act)
{
    bool narrow = strstr(act, "act e4m3") || strstr(act, "act e5m2");
    if (narrow && !strstr(act, "group") && draw(g, 3) == 0)
        sb_put(&g->schemes, " fast");
}

/* book: the weight's codebook has groups, or may. */
const char *put_scheme(Gen *g, int w, int a, int cols, bool book, uint64_t *side)
{
    const char *name = arena_printf(g->arena, "s%d", g->num_schemes++);
    sb_printf(&g->schemes, "scheme %s { ", name);
    put_weight(g, w, cols, !act_has_groups(a));
    sb_put(&g->schemes, w == NUM_WEIGHTS - 1 ? " " : "; ");
    if (side)
        swap_state(g, side);
    size_t before = g->schemes.len;
    put_act(g, a, cols, !grain_has_groups(w) && !book);
    put_fast(g, g->schemes.text + before);
    if (side)
        swap_state(g, side);
    sb_put(&g->schemes, " }\n");
    return name;
}

/* A weight stored as codes, whose scales have either sign, as in some checkpoints. */
static bool is_stored(const Place *at)
{
    enum { U4 = 3 };
    return at->kind == KIND_WIDE && at->w == U4 && at->time % 4 == 3;
}

static const char *stored_weight(Product *p, int rows, int cols)
{
    Gen *g = p->g;
    const char *name = arena_printf(g->arena, "p%d", g->num_names++);
    int blocks = (cols + p->group - 1) / p->group;
    sb_printf(&g->params,
              "    param %s: u4[%d, %d] asym group %d from codes \"%s.q\" scale \"%s.s\" zero "
              "\"%s.z\"\n",
              name, rows, cols, p->group, name, name, name);
    param_codes(g, arena_printf(g->arena, "%s.q", name), rows, cols, 16);
    param_scales(g, arena_printf(g->arena, "%s.s", name), rows, blocks);
    param_codes(g, arena_printf(g->arena, "%s.z", name), rows, blocks, 16);
    return name;
}

/* A weight of a codebook: one table, one a row or one an entry of the grid. */
static const char *codebook(Product *p, int rows, int cols)
{
    static const char *const grain[] = {"per tensor", "per channel", "group 32", "block 8x32"};
    Gen *g = p->g;
    const char *name = arena_printf(g->arena, "p%d", g->num_names++);
    int bits = case_formats[p->place.w].name[1] - '0', which = draw(g, 4), tables = draw(g, 3);
    int64_t grid[2] = {which == 0   ? 1
                       : which == 3 ? (rows + 7) / 8
                                    : rows,
                       which < 2 ? 1 : (cols + 31) / 32};
    sb_printf(&g->params,
              "    param %s: u%d[%d, %d] codebook %s from codes \"%s.q\" scale \"%s.s\" table "
              "\"%s.t\"\n",
              name, bits, rows, cols, grain[which], name, name, name);
    param_codes(g, arena_printf(g->arena, "%s.q", name), rows, cols, 1 << bits);
    param_scales(g, arena_printf(g->arena, "%s.s", name), grid[0], grid[1]);
    param_tables(g, arena_printf(g->arena, "%s.t", name), tables + 1, tables < 2 ? rows : grid[0],
                 grid[1], 1 << bits);
    return name;
}

/* Of codes that are multiplied as their scales decode them some have scales too large for that,
 * where the weight's declared type and the results can hold them. */
static void put_wide(Product *p, const char *declared)
{
    GenParam *last = &p->g->param[p->g->num_params - 1];
    const char *format = case_formats[p->place.w].name;
    if ((p->place.time + p->place.round) % 3 == 1 && last->stored != FMT_F16 &&
        strcmp(declared, "f16") != 0 && strcmp(p->g->fmt, "f16") != 0 &&
        (strcmp(format, "mxfp4") == 0 || strcmp(format, "e2m1") == 0))
        last->has_wide = true;
}

/* i4 that integers are multiplied with have a loop of their own beside scales so small that a part
 * of one is not exact. */
static void put_tiny(Product *p, const char *declared)
{
    GenParam *last = &p->g->param[p->g->num_params - 1];
    const char *act = case_formats[p->place.a].name;
    if (p->n / 8 % 2 == 0 && last->stored != FMT_F16 && strcmp(declared, "f16") != 0 &&
        strcmp(case_formats[p->place.w].name, "i4") == 0 && (act[0] == 'i' || act[0] == 'u'))
        last->has_tiny = true;
}

/* The `first`-th plain type or a later one; beside such scales not f16, which holds of results so
 * large what cancellation left of them, and no bound says how exact that is. */
const char *result_type(Gen *g, int first)
{
    const char *ret = plain_name[first + draw(g, 3 - first)];
    for (int i = 0; i < g->num_params; i++)
        if (g->param[i].has_wide && strcmp(ret, "f16") == 0)
            return "bf16";
    return ret;
}

/* A weight of `rows` rows of K; plain ones have their format's type, quantised ones any. */
const char *weight(Product *p, int rows, int cols)
{
    Gen *g = p->g;
    const char *fmt = g->fmt;
    int plain = case_formats[p->place.w].plain;
    if (is_book(p->place.w))
        return codebook(p, rows, cols);
    if (is_stored(&p->place))
        return stored_weight(p, rows, cols);
    g->fmt = plain >= 0 ? plain_name[plain] : plain_name[draw(g, 3)];
    const char *declared = g->fmt, *name = arena_printf(g->arena, "p%d", g->num_names++);
    const char *tensor = arena_printf(g->arena, "t.%s", name);
    if (p->groups) {
        sb_printf(&g->params, "    param %s: %s[%d, %d, %d] from \"%s\"\n", name, g->fmt, p->groups,
                  rows, cols, tensor);
        param_groups(g, tensor, p->groups, rows, cols);
    } else {
        sb_printf(&g->params, "    param %s: %s[%d, %d] from \"%s\"\n", name, g->fmt, rows, cols,
                  tensor);
        param_data(g, tensor, 2, rows, cols);
    }
    g->fmt = fmt;
    put_wide(p, declared);
    put_tiny(p, declared);
    return name;
}

const char *put_before(Product *p)
{
    Gen *g = p->g;
    const char *x = "x0";
    int which = draw(g, 8);
    if (which < 4)
        return x;
    sb_put(&g->body, "    h0 = ");
    switch (which) {
    case 4: sb_printf(&g->body, "rmsnorm(%s, %s, eps=1e-5)\n", x, param_add(g, 0, p->k)); break;
    case 5: {
        const char *w = param_add(g, 0, p->k), *b = param_add(g, 0, p->k);
        sb_printf(&g->body, "layernorm(%s, %s, %s, eps=1e-5)\n", x, w, b);
        break;
    }
    case 6: sb_printf(&g->body, "%s(%s)\n", case_unary[draw(g, 6)], x); break;
    default: sb_printf(&g->body, "%s * 0.75 + 0.125\n", x);
    }
    return "h0";
}

int draw_n(Gen *g, Kind kind)
{
    static const int wide[] = {64, 96, 128, 136, 192, 200, 256, 264, 320, 384, 392, 512, 520, 640};
    if (kind == KIND_WIDE)
        return wide[draw(g, COUNT_OF(wide))];
    static const int n[] = {1, 2, 7, 8, 9, 15, 16, 24, 31, 32, 33, 40, 63, 64, 65, 96, 100, 128};
    return chance(g, 50) ? n[draw(g, COUNT_OF(n))] : 1 + draw(g, 300);
}

/* The sum as input of a function that has limits: large ones, of a weight that was drawn `wide`,
 * as usual ones. Of sums between the limits the function would give what cancellation left, and a
 * bound holds for all sums of a tensor together (docs/numerics.md). */
const char *inside_limits(Gen *g, const char *function, const char *sum, bool wide)
{
    bool has_limits = strcmp(function, "tanh") == 0 || strcmp(function, "sigmoid") == 0;
    return wide && has_limits ? arena_printf(g->arena, "(%s) * 0.00001", sum) : sum;
}

/* Words of candidates of wgmma's families. */
enum { WAY_HALVES = 6, WAY_GATHERED = 11 };
static const char *const ways[] = {NULL,         "192x128", "c2",           "128x192",
                                   "192x128 c2", "128x256", "128x224",      "t2",
                                   "t4",         "inplace", "f32 f64 f128", "k8 k7 k6 k5 k4 k3 k2"};

static int way_of(const Place *at)
{
    return (int)((at->time + (uint64_t)(5 * (at->w + at->a))) % COUNT_OF(ways));
}

static bool has_way(const Place *at, int way)
{
    return at->kind == KIND_WIDE && is_even(at->w, at->a) && way_of(at) == way;
}

/* Scales that do not change along K, for weights and activations that would have groups of it. */
static void leave_groups(Product *p)
{
    for (uint64_t pick = 0; pick < NUM_GRAINS && grain_has_groups(p->w); pick++)
        p->w = weight_index(p->place.w, pick);
    for (uint64_t pick = 0; pick < NUM_GRAINS && act_has_groups(p->a); pick++)
        p->a = act_index(p->place.a, pick);
}

/* Tiles of gate and up that have halves of runs are pairs, of 224 columns of each part, without
 * scales along K. Blocks of a cluster have a part of K where there are tiles for most processors,
 * of many columns and K. */
static void put_way(Product *p, bool groups)
{
    static const int tiles_of[] = {24 * 64, 26 * 96, 25 * 128, 32 * 128};
    if (has_way(&p->place, WAY_HALVES))
        p->n = 224 * (1 + p->n % 3);
    if (!has_way(&p->place, WAY_GATHERED))
        return;
    p->n = tiles_of[draw(p->g, COUNT_OF(tiles_of))];
    p->k = 2048 + (groups ? 128 * (p->k % 5) : p->k % 600 / 16 * 16);
}

static const char *put_post(Product *p, const char *x, const char *s)
{
    Gen *g = p->g;
    int post =
        (int)((p->place.time * 7 + p->place.round * 5 + (uint64_t)(3 * p->w + p->a)) % NUM_POSTS);
    if (has_way(&p->place, WAY_HALVES))
        post = POST_GATED + (int)p->place.time % (POST_RESIDUAL - POST_GATED);
    const char *w = weight(p, p->n, p->k);
    bool wide = g->param[g->num_params - 1].has_wide;
    const char *bias = chance(g, 50) || post == POST_BIAS ? param_add(g, 0, p->n) : NULL;
    const char *sum = arena_printf(g->arena, "linear(%s, %s%s%s) @ %s", x, w, bias ? ", " : "",
                                   bias ? bias : "", s);
    sb_put(&g->body, "    y0 = ");
    if (post < POST_ACTIVATION) {
        sb_printf(&g->body, "%s\n", sum);
        return post == POST_NONE ? "plain" : "bias";
    }
    if (post < POST_GATED) {
        const char *function = case_unary[post - POST_ACTIVATION];
        sb_printf(&g->body, "%s(%s)\n", function, inside_limits(g, function, sum, wide));
        return function;
    }
    if (post < POST_RESIDUAL) {
        const char *up = weight(p, p->n, p->k), *function = case_unary[post - POST_GATED];
        sb_printf(&g->body, "%s(%s) * (linear(%s, %s) @ %s)\n", function,
                  inside_limits(g, function, sum, wide), x, up, s);
        return arena_printf(g->arena, "gated by %s", function);
    }
    if (post >= POST_REQUANTISE && post < POST_NORM) {
        int index = act_index((int)(p->place.time + p->place.round) % 7, (uint64_t)draw(g, 8));
        int rows = 1 + draw(g, 24);
        const char *next = put_scheme(g, weight_index(0, 1), index, p->n, false, NULL);
        const char *second = weight(p, rows, p->n);
        const char *function = case_unary[draw(g, 6)];
        sb_printf(&g->body, "linear(%s(%s), %s) @ %s\n", function,
                  inside_limits(g, function, sum, wide), second, next);
        p->n = rows;
        return "requantised";
    }
    switch (post) {
    case POST_RESIDUAL:
        g->num_inputs = 2;
        g->input[1] = (Shape){.sym = 'B', .cols = p->n};
        sb_printf(&g->body, "x1 + (%s)\n", sum);
        return "residual";
    case POST_CAST: sb_printf(&g->body, "cast(%s, %s)\n", sum, result_type(g, 0)); return "cast";
    case POST_SIBLING:
        p->sibling = draw_n(g, p->place.kind);
        sb_printf(&g->body, "relu(%s)\n    y1 = linear(%s, %s) @ %s\n", sum, x,
                  weight(p, p->sibling, p->k), s);
        return "sibling";
    case POST_NUMBERS: sb_printf(&g->body, "2 - (%s) / 3\n", sum); return "numbers";
    case POST_NORM:
        sb_printf(&g->body, "rmsnorm(%s, %s, eps=1e-5)\n", sum, param_add(g, 0, p->n));
        return "norm";
    default: sb_printf(&g->body, "softmax(%s)\n", sum);
    }
    return "softmax";
}

/* How streams have their rows: from memory, copied to shared memory (in turn, if they can be), or
 * over clusters. */
int rows_way(const Place *at)
{
    return (int)((at->time / 2 + (uint64_t)(at->w + at->a)) % 3);
}

int product_act(const Place *at)
{
    return act_index(at->a, at->time + at->time / NUM_GRAINS + (uint64_t)at->w + 2 * at->round);
}

/* K and what happens to x before the product come from few numbers, so that many cases share the
 * kernels that do it. */
static const char *make_product(Gen *g, const Place *at)
{
    static const int step[] = {16, 32, 64};
    Product p = {.g = g, .place = *at, .n = draw_n(g, at->kind)};
    bool aligned = at->kind <= KIND_WIDE;
    p.w = is_stored(at) ? NUM_WEIGHTS - 1 : weight_index(at->w, at->time + at->round);
    p.a = product_act(at);
    if (has_way(at, WAY_HALVES))
        leave_groups(&p);
    bool groups = grain_has_groups(p.w) || act_has_groups(p.a) || is_stored(at);
    bool is_long = at->kind == KIND_MANY && at->time % 4 == 1; /* few columns: blocks split K */
    uint64_t side = (uint64_t)(8 * p.a + 4 * is_long + 2 * groups + aligned) +
                    1000 * (at->time % 2 + at->round);
    swap_state(g, &side);
    int by = aligned ? groups ? 32 : step[draw(g, 3)] : 1;
    g->fmt = plain_name[draw(g, 3)];
    p.k = by * (1 + draw(g, aligned ? 512 / by : 200) + (is_long ? 32 * (1 + draw(g, 3)) : 0));
    p.n = is_long ? 1 + p.n % 64 : p.n;
    if (at->kind == KIND_WIDE)
        p.k = groups ? 128 * (1 + p.k % 12) : 16 * (1 + p.k % 90);
    if (at->kind == KIND_FEW && rows_way(at) == 2)
        p.k = 256 * (1 + p.k % 6);
    if (at->kind == KIND_FEW && rows_way(at) == 1 && at->time % 5 == 3 && (groups || by > 1))
        p.k = 128 * (97 + p.k % 16);                  /* rows do not fit */
    if (at->kind == KIND_FEW && at->time % 14 == 5) { /* blocks take several units of columns */
        p.n = 2200 + 8 * p.n;
        p.k = p.k > 256 ? 256 : p.k;
    }
    put_way(&p, groups);
    if (p.k < 32) /* the widest block of a named format */
        p.k += 32;
    if (aligned && groups)
        g->group = p.k >= 128 && chance(g, 50) ? 128 : p.k >= 64 && chance(g, 50) ? 64 : 32;
    p.group = g->group;
    swap_state(g, &side);
    g->input[0] = (Shape){.sym = 'B', .cols = p.k};
    const char *s = put_scheme(g, p.w, p.a, p.k, is_codebook(at->w) || is_stored(at), &side);
    g->group = 0;
    swap_state(g, &side);
    const char *x = put_before(&p);
    swap_state(g, &side);
    const char *post = put_post(&p, x, s);
    /* sums of 8-bit floats that leave in f32 are not wgmma's */
    int first = at->kind == KIND_WIDE;
    sb_printf(&g->blocks, "y0: %s[B, %d]", result_type(g, first), p.n);
    if (p.sibling)
        sb_printf(&g->blocks, ", y1: %s[B, %d]", result_type(g, first), p.sibling);
    return arena_printf(g->arena, "product %s x %s, %s, %s", case_formats[at->w].name,
                        case_formats[at->a].name,
                        at->kind == KIND_WIDE ? "wide"
                        : aligned             ? "aligned"
                                              : "odd",
                        post);
}

/* Row programs and moves ----------------------------------------------------------------------- */

/* Rows that a warp holds, that a block holds, and that it goes over in sweeps. */
static const char *make_rows(Gen *g, const Place *at)
{
    static const int wide[] = {255,  256,  257,  1000,  1024,  2049,  4096,
                               4100, 8192, 8200, 16400, 20001, 40004, 131072};
    int cols = at->time % 3 == 0
                   ? wide[(at->time / 3 + 10 * at->round + (uint64_t)(5 * at->a)) % COUNT_OF(wide)]
                   : 1 + draw(g, 300);
    const char *x = "x0", *what[4] = {"", "", "", ""};
    int num = 1 + draw(g, 3);
    g->input[0] = (Shape){.sym = 'B', .cols = cols};
    for (int i = 0; i < num; i++) {
        const char *y = i + 1 == num ? "y0" : arena_printf(g->arena, "h%d", i);
        int which = draw(g, 6);
        const char *w = which == 0 || which == 1 || which == 3 ? param_add(g, 0, cols) : NULL;
        const char *b = which == 1 || which == 4 ? param_add(g, 0, cols) : NULL;
        switch (which) {
        case 0: sb_printf(&g->body, "    %s = rmsnorm(%s, %s, eps=1e-5)\n", y, x, w); break;
        case 1:
            sb_printf(&g->body, "    %s = layernorm(%s, %s, %s, eps=1e-5)\n", y, x, w, b);
            break;
        case 2: sb_printf(&g->body, "    %s = softmax(%s)\n", y, x); break;
        case 3:
            sb_printf(&g->body, "    %s = %s(%s) * %s\n", y, case_unary[draw(g, 6)], x, w);
            break;
        case 4: sb_printf(&g->body, "    %s = 1 / (%s * %s + 1) - %s\n", y, x, x, b); break;
        default: sb_printf(&g->body, "    %s = cast(%s, %s)\n", y, x, plain_name[draw(g, 3)]);
        }
        static const char *const name[] = {"rmsnorm", "layernorm", "softmax",
                                           "unary",   "numbers",   "cast"};
        what[i] = name[which];
        x = y;
    }
    sb_printf(&g->blocks, "y0: %s[B, %d]", plain_name[draw(g, 3)], cols);
    return arena_printf(g->arena, "rows of %s: %s %s %s", case_formats[at->a].name, what[0],
                        what[1], what[2]);
}

static const char *make_move(Gen *g, const Place *at)
{
    static const char *const perm[] = {"0, 2, 1", "1, 0, 2", "2, 1, 0", "1, 2, 0", "2, 0, 1"};
    static const char order[][3] = {{0, 2, 1}, {1, 0, 2}, {2, 1, 0}, {1, 2, 0}, {2, 0, 1}};
    int mid = 1 + draw(g, 9), cols = 2 + draw(g, 60), which = draw(g, 7);
    const char *fmt = g->fmt;
    const char *dim[] = {"B", arena_printf(g->arena, "%d", mid),
                         arena_printf(g->arena, "%d", cols)};
    g->input[0] = (Shape){.sym = 'B', .mid = mid, .cols = cols};
    if (which < 5) {
        sb_printf(&g->body, "    y0 = transpose(x0, perm=[%s])\n", perm[which]);
        sb_printf(&g->blocks, "y0: %s[%s, %s, %s]", fmt, dim[(int)order[which][0]],
                  dim[(int)order[which][1]], dim[(int)order[which][2]]);
        return arena_printf(g->arena, "transpose of %s to %s", case_formats[at->a].name,
                            perm[which]);
    }
    if (which == 5) {
        int start = draw(g, cols - 1);
        sb_printf(&g->body, "    y0 = slice(x0, start=%d)\n", start);
        sb_printf(&g->blocks, "y0: %s[B, %d, %d]", fmt, mid, cols - start);
        return "slice";
    }
    sb_put(&g->body, "    h0 = x0 * 2\n    y0 = concat(h0, x0, axis=-1)\n");
    sb_printf(&g->blocks, "y0: %s[B, %d, %d]", fmt, mid, 2 * cols);
    return "concat";
}

/* Products of activations --------------------------------------------------------------------- */

/* Columns of an input, from anywhere on, in one of the plain formats. */
static void put_columns(Gen *g, const char *name, int input, int cols, int format)
{
    int from = chance(g, 60) ? 0 : 8 * (1 + draw(g, 3)), more = chance(g, 60) ? 0 : draw(g, 9);
    from = chance(g, 80) ? from : 1 + draw(g, 9);
    g->input[input] = (Shape){.sym = 'B', .cols = from + cols + more};
    sb_printf(&g->body, "    %s = cast(slice(x%d, axis=-1, start=%d, stop=%d), %s)\n", name, input,
              from, from + cols, plain_name[format]);
}

/* Scores of one for the other, [B, B], and what they weigh: products whose K and N vary. */
static const char *make_pair(Gen *g, const Place *at)
{
    static const int head[] = {8, 16, 32, 33, 64, 72, 80, 128};
    int a = case_formats[at->a].plain, w = case_formats[at->w].plain;
    int cols = chance(g, 60) ? head[draw(g, COUNT_OF(head))] : 1 + draw(g, 200);
    const char *result = plain_name[draw(g, 3)], *square = "B, B";
    g->num_inputs = 2;
    put_columns(g, "q", 0, cols, a);
    put_columns(g, "k", 1, cols, w);
    static const char *const what[] = {"scores", "scores of relu", "softmax", "weighed", "mask"};
    int which = (int)(at->time + at->round) % 5;
    switch (which) {
    case 0: sb_put(&g->body, "    y0 = matmul(q, transpose(k))\n"); break;
    case 1: sb_put(&g->body, "    y0 = relu(matmul(q, transpose(k)) - 0.5) * 0.125\n"); break;
    case 2: sb_put(&g->body, "    y0 = softmax(matmul(q, transpose(k)) * 0.25)\n"); break;
    case 3:
        g->num_inputs = 3;
        g->input[2] = (Shape){.sym = 'B', .cols = draw_n(g, KIND_PAIR)};
        square = arena_printf(g->arena, "B, %d", g->input[2].cols);
        sb_printf(&g->body,
                  "    s = cast(softmax(matmul(q, transpose(k)) * 0.25), %s)\n"
                  "    y0 = matmul(s, cast(x2, %s))\n",
                  plain_name[a], plain_name[w]);
        break;
    default:
        sb_printf(&g->body, "    m = matmul(k, transpose(k))\n"
                            "    y0 = matmul(q, transpose(k)) * 0.5 + m\n");
    }
    sb_printf(&g->blocks, "y0: %s[%s]", result, square);
    return arena_printf(g->arena, "product %s by %s of %d, %s", plain_name[a], plain_name[w], cols,
                        what[which]);
}

/* Files ---------------------------------------------------------------------------------------- */

/* Few rows stream weights, more fill tiles; the other families have but one kernel for all. */
static const char *buckets(Gen *g, const Place *at, bool one)
{
    static const int few[] = {16, 16, 13, 16};
    Kind kind = at->kind;
    bool fills = has_way(at, WAY_HALVES) || has_way(at, WAY_GATHERED);
    int most = one                 ? 1
               : fills             ? 96 + draw(g, 3) * 80
               : kind == KIND_FEW  ? few[draw(g, COUNT_OF(few))]
               : kind == KIND_MANY ? 69 + draw(g, 125)
               : kind == KIND_WIDE ? 8 << draw(g, 6)
               : kind == KIND_ODD  ? 69 + draw(g, 43)
                                   : 20 + draw(g, 90);
    return arena_printf(g->arena, "[%d]", most);
}

static const char *assemble(Gen *g, const char *rows)
{
    Sb text;
    sb_init(&text, g->arena);
    sb_put(&text, "version 1\nweights \"w.safetensors\"\n");
    if (g->has_static)
        sb_put(&text, "calibrate \"calib.safetensors\"\n");
    sb_printf(&text, "dim B in %s\n%smodel m (", rows, g->schemes.text);
    for (int i = 0; i < g->num_inputs; i++) {
        sb_printf(&text, "%sx%d: ", i ? ", " : "", i);
        put_shape(&text, g->fmt, g->input[i]);
    }
    sb_printf(&text, ") -> (%s) {\n%s%s}\n", g->blocks.text, g->params.text, g->body.text);
    return text.text;
}

/* Most few rows go through streams, where they can, though a tile may be faster; wide ones and
 * a third of the others through wgmma, in each way: those of equal width as they are stored,
 * others decoded in registers, every second of these, and those that are not, by a launch;
 * every second of activations that may be held in bf16 so, in both ways. */
static void choose_family(const Place *at, Case *ret)
{
    static const CudaFamily stream = CUDA_STREAM, hopper = CUDA_HOPPER, mixed = CUDA_MIXED;
    static const char *const rows[] = {NULL, "copied r2 r3 r4", "x4 x2"};
    static const CudaLayout records = CUDA_RECORDS, fragments = CUDA_FRAGMENTS,
                            panels = CUDA_PANELS;
    bool streams = at->kind == KIND_FEW && at->time % 7 != 6 && at->time % 7 != 2;
    bool wgmma = at->kind == KIND_WIDE || at->time % 3 == 2 || at->kind == KIND_FEW;
    bool mixes = is_mixed(at->w, at->a);
    bool decodes = wgmma && !streams && !is_even(at->w, at->a) && (!mixes || at->time / 3 % 2);
    bool holds =
        wgmma && !streams && is_held(at->w, at->a) && (at->time + (uint64_t)at->w) % 2 == 0;
    bool alone = holds && at->time / 2 % 2;
    ret->decode = alone     ? CUDA_DECODE_ALONE
                  : holds   ? CUDA_DECODE_HELD
                  : decodes ? CUDA_DECODE_ALWAYS
                            : CUDA_DECODE_BY_TIME;
    bool by_mixed = alone || (mixes && !decodes && !holds);
    ret->family = streams ? &stream : !wgmma ? NULL : by_mixed ? &mixed : &hopper;
    /* every second weight that may lie in the order of fragments does, or, of bytes that streams
     * multiply, in panels beside one row */
    bool apart = (at->time + at->time / 6 + (uint64_t)(at->w + at->a)) % 2;
    bool panelled = streams && apart && is_even(at->w, at->a) && at->w <= FIRST_PLAIN;
    ret->layout = alone            ? &records
                  : mixes && apart ? &fragments
                  : mixes          ? &records
                  : panelled       ? &panels
                                   : NULL;
    ret->wish = streams ? rows[rows_way(at)] : ways[way_of(at)];
}

static void choose_kernels(Arena *arena, const Place *at, Case *ret)
{
    static const CudaFamily pair = CUDA_GEMM_PAIR;
    static const char *const tiles[] = {"128x128", "64x64", "32x32", "128x64", "32x128", "64x32"};
    choose_family(at, ret);
    /* a weight whose rows have scales along K is the left operand of two in three wide ones whose
     * activation has none there, where they have the rows */
    int w = weight_index(at->w, at->time + at->round);
    if (at->kind == KIND_WIDE && grain_has_groups(w) && !act_has_groups(product_act(at)) &&
        at->time / NUM_GRAINS % 3 && !has_way(at, WAY_HALVES) && !has_way(at, WAY_GATHERED))
        ret->wish = "256x128t 128x128t";
    /* results of every second wide one leave as bulk copies, where a tile of that way lets them */
    if (at->kind == KIND_WIDE && (at->time + (uint64_t)(at->w + at->a)) % 2 &&
        !has_way(at, WAY_HALVES) && !has_way(at, WAY_GATHERED))
        ret->wish = arena_printf(arena, "%s bulk", ret->wish ? ret->wish : "");
    if (at->kind == KIND_PAIR) {
        ret->family = &pair;
        ret->wish = tiles[(at->time + (uint64_t)(at->w + at->a)) % COUNT_OF(tiles)];
    }
}

static bool write_case(Gen *g, const char *rows, const char *dir, Case *ret)
{
    const char *text = assemble(g, rows);
    ret->text_path = arena_printf(g->arena, "%s/model.sinter", dir);
    FILE *file = fopen(ret->text_path, "w");
    bool ok = file && fputs(text, file) >= 0;
    ok = file && fclose(file) == 0 && ok;
    return ok &&
           (!g->num_params || write_weights(g, arena_printf(g->arena, "%s/w.safetensors", dir))) &&
           (!g->has_static ||
            write_calibration(g, arena_printf(g->arena, "%s/calib.safetensors", dir)));
}

bool case_make(Arena *arena, uint64_t number, const char *dir, Case *ret)
{
    Gen *g = ARENA_NEW(arena, Gen);
    uint64_t num;
    const Place *all = places(&num);
    Place at = all[number % num];
    at.round = number / num;
    gen_init(g, arena, (number + 1) * UINT64_C(0x2545F4914F6CDD1D));
    g->fmt = at.kind == KIND_ROWS || at.kind == KIND_MOVE ? case_formats[at.a].name
                                                          : plain_name[draw(g, 3)];
    g->num_inputs = 1;
    g->may_static = true;
    if (at.kind == KIND_GROUPS) {
        const char *rows;
        ret->what = groups_make(g, &at, &rows);
        groups_choose(&at, ret);
        return write_case(g, rows, dir, ret);
    }
    ret->what = at.kind == KIND_ROWS   ? make_rows(g, &at)
                : at.kind == KIND_MOVE ? make_move(g, &at)
                : at.kind == KIND_PAIR ? make_pair(g, &at)
                                       : make_product(g, &at);
    choose_kernels(arena, &at, ret);
    return write_case(g, buckets(g, &at, ret->layout && *ret->layout == CUDA_PANELS), dir, ret);
}
