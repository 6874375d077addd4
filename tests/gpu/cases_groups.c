/* Products of groups of rows: texts of a route, or of counts, a product whose rows have the weights
 * of their groups, and what is done with its results; see cases.h. The logits of the route are an
 * input, so that decisions are those of a few known numbers. */
#include "tests/gpu/cases_parts.h"

#include <string.h>

/* Visits of a pair: each family that takes it gets 200 shapes and more, as with the other kinds.
 * Streams take 16 routed rows at most, so each of these has few shapes, and their visits are many;
 * others have some 70 each. */
enum {
    TIMES_TILES = 4,
    TIMES_ODD_K = 4,
    TIMES_WGMMA = 4,
    TIMES_WGMMA_INTS = 8, /* which not all sums of codes are for */
    TIMES_STREAM = 16,
    TIMES_STREAM_PLAIN = 24, /* whose weights not all activations meet in a stream */
    FIRST_ODD_K = TIMES_TILES,
    FIRST_WGMMA = FIRST_ODD_K + TIMES_ODD_K,
};

static int first_stream(int w, int a)
{
    enum { E4M3 = 4 };
    int times = a < E4M3 ? TIMES_WGMMA_INTS : TIMES_WGMMA;
    return FIRST_WGMMA + (is_even(w, a) || is_mixed(w, a) ? times : 0);
}

int groups_times(int w, int a)
{
    bool plain = w >= FIRST_PLAIN && w < FIRST_THIN;
    return first_stream(w, a) + (plain ? TIMES_STREAM_PLAIN : TIMES_STREAM);
}

static bool is_stream(const Place *at)
{
    return at->time >= (uint64_t)first_stream(at->w, at->a);
}

static bool is_odd_k(const Place *at)
{
    return at->time >= FIRST_ODD_K && at->time < FIRST_WGMMA;
}

static bool is_wgmma(const Place *at)
{
    return at->time >= FIRST_WGMMA && !is_stream(at);
}

/* One row beside panels, which but one row can be multiplied with. */
static bool is_panelled(const Place *at)
{
    return is_stream(at) && at->time % TIMES_STREAM == 10 && is_even(at->w, at->a) &&
           at->w <= FIRST_PLAIN;
}

/* Routes --------------------------------------------------------------------------------------- */

static int num_groups(const Place *at)
{
    static const int num[] = {1, 2, 3, 5, 8, 17, 33, 64};
    return num[(3 * at->time + (uint64_t)(5 * at->w + at->a) + at->round) % COUNT_OF(num)];
}

/* Of a row; streams have more shapes of rows that are sent to one group. */
static int num_choices(const Place *at, int groups)
{
    int choices = (int)((at->time + (uint64_t)at->w + at->round) % 4) + 1;
    if (is_stream(at))
        choices = at->time % 4 != 3 ? 1 : at->time % 16 == 15 ? 4 : 2;
    return choices < groups ? choices : groups;
}

/* Rows spread over the groups; some groups have more than others; nearly all rows go to the same;
 * many logits are equal, which sends rows to the first groups; or but few are. */
static const char *put_logits(Gen *g, int groups)
{
    static const char *const lean[] = {"x1 * 0.25 + %s", "x1 * 0.0078125 + %s"};
    int which = draw(g, 6);
    if (which == 2 || which == 3) {
        const char *to = param_add(g, 0, groups);
        return arena_printf(g->arena, which == 2 ? lean[0] : lean[1], to);
    }
    return which == 4 ? "relu(x1 - 3)" : which == 5 ? "round(x1)" : "x1";
}

static void put_route(Gen *g, int groups, int choices)
{
    static const char *const weights[] = {"", "", ", weights=softmax(x1)", ", weights=sigmoid(x1)"};
    const char *logits = put_logits(g, groups);
    sb_printf(&g->body, "    r = topk(%s, %d%s)\n", logits, choices,
              weights[draw(g, COUNT_OF(weights))]);
}

/* Products ------------------------------------------------------------------------------------- */

enum { /* what follows the product */
       POST_NONE,
       POST_BIAS,
       POST_ACTIVATION,
       POST_GATED,
       POST_RESIDUAL,
       POST_REQUANTISE,
       POST_NUMBERS,
       POST_NORM,
       POST_SIBLING,
       POST_DOWN, /* gated, and the product behind it: the whole of a layer of experts */
       NUM_POSTS
};

/* Sizes such that the weights of all groups are no more than a few hundred thousand numbers. */
static void draw_sizes(Product *p, bool scaled_along_k)
{
    enum { MOST = 300000 };
    Gen *g = p->g;
    const Place *at = &p->place;
    int step = is_odd_k(at) ? 1 : scaled_along_k ? is_wgmma(at) ? 128 : 32 : 16;
    int most = is_odd_k(at) ? 160 : is_wgmma(at) ? 640 : 384;
    p->k = step * (1 + draw(g, most / step));
    if (p->k < 32) /* the widest block of a named format */
        p->k += 32;
    while ((int64_t)p->groups * p->n * p->k > MOST && p->n > 64)
        p->n = is_wgmma(at) ? (p->n / 2 + 7) / 8 * 8 : (p->n + 1) / 2;
    while ((int64_t)p->groups * p->n * p->k > MOST && p->k >= 2 * step && p->k >= 64)
        p->k = (p->k / 2 + step - 1) / step * step;
}

/* Blocks of several rows are of one group: they divide N. */
static void divide_rows(Product *p)
{
    int rows = 1 + draw(p->g, 9);
    p->n = is_odd_k(&p->place) ? p->n : (p->n + 7) / 8 * 8;
    while (p->n % rows)
        rows--;
    p->g->rows = rows;
}

static const char *product(Product *p, const char *x, int rows, int cols, bool bias, const char *s)
{
    Gen *g = p->g;
    const char *w = weight(p, rows, cols);
    const char *b = bias ? param_add(g, p->groups, rows) : NULL;
    return arena_printf(g->arena, "grouped_linear(%s, %s%s%s, %s) @ %s", x, w, b ? ", " : "",
                        b ? b : "", p->counted ? "rows=x1" : "route=r", s);
}

/* The next product of what the expression gives, by a scheme of its own; p->n: its columns. */
static const char *next_product(Product *p, const char *of)
{
    Gen *g = p->g;
    int index = act_index((int)(p->place.time + p->place.round) % 7, (uint64_t)draw(g, 8));
    int rows = 1 + draw(g, 40), cols = p->n;
    const char *next = put_scheme(g, weight_index(0, 1), index, cols, false, NULL);
    p->n = rows;
    return product(p, of, rows, cols, chance(g, 30), next);
}

static const char *put_sibling(Product *p, const char *x, const char *s)
{
    Gen *g = p->g;
    p->sibling = g->rows ? p->n * (1 + draw(g, 2)) : 1 + draw(g, 200);
    sb_printf(&g->body, "    y1 = %s\n", product(p, x, p->sibling, p->k, chance(g, 50), s));
    return "sibling";
}

/* *ret: the results of the routed rows. */
static const char *make_post(Product *p, const char *x, const char *s, const char **ret)
{
    Gen *g = p->g;
    int post = (int)((p->place.time * 7 + p->place.round * 3 + (uint64_t)(3 * p->place.w) +
                      (uint64_t)p->place.a) %
                     NUM_POSTS);
    const char *sum = product(p, x, p->n, p->k, post == POST_BIAS || chance(g, 40), s);
    bool wide = false;
    for (int i = 0; i < g->num_params; i++)
        wide = wide || g->param[i].has_wide;
    const char *function = case_unary[draw(g, NUM_UNARY)];
    const char *active =
        arena_printf(g->arena, "%s(%s)", function, inside_limits(g, function, sum, wide));
    *ret = sum;
    switch (post) {
    case POST_NONE: return "plain";
    case POST_BIAS: return "bias";
    case POST_ACTIVATION: *ret = active; return function;
    case POST_GATED:
    case POST_DOWN:
        *ret = arena_printf(g->arena, "%s * (%s)", active,
                            product(p, x, p->n, p->k, chance(g, 40), s));
        if (post == POST_GATED)
            return "gated";
        *ret = next_product(p, *ret);
        return "gated and down";
    case POST_RESIDUAL:
        g->num_inputs = 3;
        g->input[2] = (Shape){.sym = 'B', .cols = p->n, .groups = p->counted ? p->groups : 0};
        *ret =
            arena_printf(g->arena, p->counted ? "x2 + (%s)" : "dispatch(x2, route=r) + (%s)", sum);
        return "residual";
    case POST_REQUANTISE: *ret = next_product(p, active); return "requantised";
    case POST_NUMBERS: *ret = arena_printf(g->arena, "2 - (%s) / 3", sum); return "numbers";
    case POST_NORM:
        *ret = arena_printf(g->arena, "rmsnorm(%s, %s, eps=1e-5)", sum, param_add(g, 0, p->n));
        return "norm";
    default: return put_sibling(p, x, s);
    }
}

static void put_results(Product *p, const char *results, int choices, bool combined)
{
    Gen *g = p->g;
    const char *routed = p->counted    ? arena_printf(g->arena, "%d, B", p->groups)
                         : choices > 1 ? arena_printf(g->arena, "%d * B", choices)
                                       : "B";
    sb_printf(&g->body, combined ? "    y0 = combine(%s, route=r)\n" : "    y0 = %s\n", results);
    sb_printf(&g->blocks, "y0: %s[%s, %d]", result_type(g, is_wgmma(&p->place)),
              combined ? "B" : routed, p->n);
    if (p->sibling)
        sb_printf(&g->blocks, ", y1: %s[%s, %d]", result_type(g, is_wgmma(&p->place)), routed,
                  p->sibling);
}

/* Few numbers of rows, so that many cases share the kernels of a route. */
static const char *buckets(Gen *g, const Place *at, int choices, bool counted)
{
    static const int many[] = {80, 100, 128, 160};
    if (counted)
        return arena_printf(g->arena, "[%d]",
                            is_panelled(at) ? 1
                            : is_stream(at) ? 16
                                            : 24 + 8 * draw(g, 4));
    int most = is_panelled(at) ? 1 : is_stream(at) ? 16 / choices : many[draw(g, COUNT_OF(many))];
    return arena_printf(g->arena, "[%d]", most);
}

const char *groups_make(Gen *g, const Place *at, const char **ret_buckets)
{
    Product p = {.g = g, .place = *at, .groups = num_groups(at)};
    p.counted = (at->time / 2 + at->round) % 3 == 2;
    int choices = p.counted ? 1 : num_choices(at, p.groups);
    p.w = weight_index(at->w, at->time + at->round);
    p.a = product_act(at);
    p.n = draw_n(g, is_wgmma(at) ? KIND_WIDE : KIND_MANY);
    bool along_k = grain_has_groups(p.w) || act_has_groups(p.a) || at->w == WHOLE;
    g->fmt = plain_name[draw(g, 3)];
    draw_sizes(&p, along_k);
    if (p.w < NUM_ELEMENTS * NUM_GRAINS && p.w % NUM_GRAINS == GRAIN_BLOCK)
        divide_rows(&p);
    if (!is_odd_k(at) && along_k)
        g->group = p.k >= 128 && p.k % 128 == 0 && chance(g, 50) ? 128 : chance(g, 50) ? 64 : 32;
    if (g->group > p.k)
        g->group = 32;
    g->num_inputs = 2;
    g->input[0] = (Shape){.sym = 'B', .cols = p.k, .groups = p.counted ? p.groups : 0};
    g->input[1] = (Shape){.sym = p.counted ? 0 : 'B', .cols = p.groups};
    const char *s = put_scheme(g, p.w, p.a, p.k, false, NULL), *results;
    g->group = 0;
    if (!p.counted)
        put_route(g, p.groups, choices);
    const char *before = put_before(&p);
    sb_printf(&g->body, p.counted ? "    d = %s\n" : "    d = dispatch(%s, route=r)\n", before);
    const char *post = make_post(&p, "d", s, &results);
    bool combined = !p.counted && chance(g, 50);
    put_results(&p, results, choices, combined);
    g->rows = 0;
    *ret_buckets = buckets(g, at, choices, p.counted);
    return arena_printf(g->arena, "product %s x %s, %s%d of %d groups, %s, %s%s",
                        case_formats[at->w].name, case_formats[at->a].name,
                        p.counted ? "counted, " : "", choices, p.groups,
                        is_stream(at)  ? "few"
                        : is_odd_k(at) ? "odd"
                        : is_wgmma(at) ? "wide"
                                       : "many",
                        post, combined ? ", combined" : "");
}

void groups_choose(const Place *at, Case *ret)
{
    static const CudaFamily stream = CUDA_STREAM, tiles = CUDA_GEMM_MMA, hopper = CUDA_HOPPER,
                            mixed = CUDA_MIXED;
    static const CudaLayout records = CUDA_RECORDS, fragments = CUDA_FRAGMENTS,
                            panels = CUDA_PANELS;
    static const char *const rows[] = {NULL, "copied r2 r3 r4", "x4 x2"};
    static const char *const ways[] = {NULL, "192x128", "c2", "bulk f64", "128x256 inplace", "t2"};
    bool mixes = is_mixed(at->w, at->a), even = is_even(at->w, at->a);
    bool apart = (at->time + (uint64_t)(at->w + at->a)) % 2;
    ret->decode = CUDA_DECODE_BY_TIME; /* no launch decodes weights of groups */
    ret->family = is_stream(at) ? &stream : !is_wgmma(at) ? &tiles : even ? &hopper : &mixed;
    ret->layout = is_panelled(at)                 ? &panels
                  : is_stream(at) || is_wgmma(at) ? mixes ? apart ? &fragments : &records : NULL
                                                  : NULL;
    ret->wish = is_stream(at)  ? rows[rows_way(at)]
                : is_wgmma(at) ? ways[(at->time + (uint64_t)(at->w + at->a)) % COUNT_OF(ways)]
                               : NULL;
}
