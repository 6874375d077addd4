/* passes/moments: second moments of layers' inputs, made for as many layers at a time as fit into a
 * fixed budget, or for one. Each such run passes the data through a copy of the float model. */
#include "passes/calibration.h"
#include "passes/internal.h"
#include <stdlib.h>
#include <string.h>

#define BUDGET (UINT64_C(1) << 27) /* numbers: 1 GiB */

typedef struct Wanted {
    const char *layer;
    const LayerInputs *in; /* of the copy */
    uint64_t num;          /* of the matrix */
    const Watch *watch;    /* while its part runs */
    LayerStats stats;      /* while its run is the latest */
} Wanted;

struct Moments {
    Module *m; /* the copy */
    PassOptions options;
    Map inputs; /* layer to LayerInputs */
    Map of;     /* layer to Wanted */
    ARRAY(Wanted *) wanted;
    int begin, end; /* of those at hand */
    double *memory;
    uint64_t memory_num;
    CacheKey key;
    bool has_key;
};

Moments *moments_create(Module *m, const PassContext *ctx)
{
    Moments *s = ARENA_NEW(m->arena, Moments);

    s->m = module_clone(m->arena, m);
    s->options = ctx->options;
    layer_inputs_init(&s->inputs, s->m, m->arena);
    map_init(&s->of, m->arena);
    return s;
}

void moments_want(Moments *s, const char *layer)
{
    const LayerInputs *in = map_get(&s->inputs, layer);

    if (!in || map_has(&s->of, layer))
        return;
    Wanted *wanted = ARENA_NEW(s->m->arena, Wanted);
    int64_t cols = type_cols(in->values.elem[0]->type);
    *wanted = (Wanted){.layer = layer, .in = in};
    if (cols < 1 || !checked_mul((uint64_t)cols, (uint64_t)cols, &wanted->num))
        wanted->num = UINT64_MAX;
    map_put(&s->of, layer, wanted);
    ARRAY_PUSH(s->m->arena, &s->wanted, wanted);
}

static bool same_inputs(const LayerInputs *a, const LayerInputs *b)
{
    bool same = a->values.num == b->values.num;

    for (int i = 0; same && i < a->values.num; i++)
        same = a->values.elem[i] == b->values.elem[i];
    return same;
}

/* Layers begin..end - 1: what one run serves. Siblings that read one value count once. */
static void part_choose(Moments *s, int begin)
{
    uint64_t sum = 0;

    s->begin = s->end = begin;
    while (s->end < s->wanted.num) {
        const Wanted *w = s->wanted.elem[s->end];
        bool shared = s->end > begin && same_inputs(s->wanted.elem[s->end - 1]->in, w->in);
        uint64_t more = shared ? 0 : w->num;
        if (s->end > begin && sum + more > BUDGET)
            return;
        sum += more;
        s->end++;
    }
}

/* Memory for the part's matrices, zeroed: kept from part to part. */
static bool part_memory(Moments *s, Watches *w)
{
    uint64_t sum = 0, at = 0;

    for (int i = 0; i < w->all.num; i++)
        if (!checked_add(sum, (uint64_t)(w->all.elem[i]->cols * w->all.elem[i]->cols), &sum))
            return false;
    if (sum > s->memory_num) {
        s->memory = ARENA_NEW_ARRAY(s->m->arena, double, sum);
        s->memory_num = sum;
    } else {
        memset(s->memory, 0, sum * sizeof *s->memory);
    }
    for (int i = 0; i < w->all.num; i++) {
        Watch *watch = w->all.elem[i];
        watch->want_moments = true;
        if (!layer_stats_init_at(&watch->moments, watch->cols, s->memory + at))
            return false;
        at += (uint64_t)(watch->cols * watch->cols);
    }
    return true;
}

static float *floats_kept(Arena *arena, const float *from, int64_t num)
{
    float *to = ARENA_NEW_ARRAY(arena, float, (size_t)num);

    memcpy(to, from, (size_t)num * sizeof *to);
    return to;
}

static void part_keep(Moments *s)
{
    for (int i = s->begin; i < s->end; i++) {
        Wanted *wanted = s->wanted.elem[i];
        const Watch *watch = wanted->watch;
        const WeightStats *seen = &watch->moments.seen;
        double *mean_square = ARENA_NEW_ARRAY(s->m->arena, double, (size_t)watch->cols);
        memcpy(mean_square, seen->mean_square, (size_t)watch->cols * sizeof *mean_square);
        wanted->stats.seen = *seen;
        wanted->stats.seen.mean_abs = floats_kept(s->m->arena, seen->mean_abs, watch->cols);
        wanted->stats.seen.mean_square = mean_square;
    }
}

static bool part_run(Moments *s, int begin)
{
    PassContext ctx;
    Watches w;

    pass_context_init(&ctx, s->m->arena, &s->options);
    ctx.scratch = arena_new();
    part_choose(s, begin);
    watches_init(&w, s->m, ctx.scratch);
    for (int i = s->begin; i < s->end; i++) {
        const LayerInputs *in = s->wanted.elem[i]->in;
        s->wanted.elem[i]->watch = watches_add(&w, in->values.num, in->values.elem);
    }
    bool ok = part_memory(s, &w) && watches_run(&w, s->m, &ctx);
    if (ok)
        part_keep(s);
    else
        s->end = s->begin;
    watches_free(&w);
    arena_destroy(ctx.scratch);
    return ok;
}

const WeightStats *moments_get(Moments *s, const char *layer, const char **ret_why)
{
    const Wanted *wanted = map_get(&s->of, layer);
    int at = 0;

    *ret_why = "nothing is known of this layer's input";
    if (!wanted)
        return NULL;
    while (s->wanted.elem[at] != wanted)
        at++;
    if (at >= s->begin && at < s->end)
        return &wanted->stats.seen;
    *ret_why = "the calibration data could not be run";
    return part_run(s, at) ? &wanted->stats.seen : NULL;
}

CacheKey moments_key(Moments *s)
{
    Arena *scratch = s->has_key ? NULL : arena_new();

    if (!scratch)
        return s->key;
    PassContext ctx;
    pass_context_init(&ctx, s->m->arena, &s->options);
    ctx.scratch = scratch;
    s->key = calibration_model_key(s->m, scratch);
    for (int i = 0; i < s->m->calibrate_files.num; i++) {
        CacheKey data = {{0, 0}};
        calibration_data_key(s->m, &ctx, i, &data);
        const CachePart part[] = {{&s->key, sizeof s->key}, {&data, sizeof data}};
        s->key = cache_key(2, part);
    }
    s->has_key = true;
    arena_destroy(scratch);
    return s->key;
}
