/* Layers that take longer on a GPU than unquantised, said once for all of a shape and format.
 *
 * The text is planned again without its rules, and the launches of both plans go to the layer whose
 * product they are, or come before. A library's time of the unquantised product counts where the
 * table of the GPU has one. Only where a layer is slower are other formats planned in its place. */
#include "driver/work.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SLOWER_BY      1.01 /* where both times have one kind of source .. */
#define SLOWER_GUESSED 1.10 /* .. or only one of them was measured */

typedef struct LayerTime { /* under one bucket */
    double us, predicted;
    bool measured;             /* the time of the product */
    int launches;              /* beside the product's, each shared out like its time */
    double beside_us;          /* of these */
    double bytes;              /* of the weight */
    const CudaChoice *product; /* what runs it; NULL: nothing does */
    double library_us;         /* of the product by a library; 0: not known */
    const char *library;
} LayerTime;

typedef struct TimedLayer {
    const char *path;
    int64_t n, k;
    Span span;
    const char *format; /* of both operands */
    int bits;           /* of a weight's code and of an activation's */
    LayerTime *time;    /* [buckets] */
} TimedLayer;

typedef struct Timed { /* one plan by its layers */
    Arena *arena;
    const Work *w; /* whose arena the plan lives in */
    const CudaTarget *cuda;
    const Plan *plan;
    Map index; /* path -> number + 1 */
    ARRAY(TimedLayer) layers;
} Timed;

/* Times of layers ------------------------------------------------------------------------------ */

/* Sizes of every layer of a module that no pass has changed. Layers whose rows go to groups are
 * none of these: what they take depends on where rows go, and nothing was measured beside them. */
typedef struct LayerSize {
    int64_t n, k;
} LayerSize;

static void sizes_find(Arena *arena, const Module *m, Map *ret)
{
    map_init(ret, arena);
    for_each_op(op, &m->body) {
        if (op->kind != OP_MATMUL || !op->attr.layer || map_has(ret, op->attr.layer))
            continue;
        const Type *weight = op->in[1].value->type;
        if (weight->rank == 3)
            continue;
        LayerSize *size = ARENA_NEW(arena, LayerSize);
        *size = (LayerSize){weight->dim[0].add, weight->dim[weight->rank - 1].add};
        map_put(ret, op->attr.layer, size);
    }
}

static const char *format_of(Arena *arena, const Plan *plan, const PlanLaunch *l)
{
    Sb sb;
    sb_init(&sb, arena);
    sb_put(&sb, "weight ");
    plan_format_print(&sb, &plan->tensor[plan_stored_weight(plan, l->w)], false);
    sb_put(&sb, ", activation ");
    plan_format_print(&sb, &plan->tensor[l->a], true);
    return sb.text;
}

static Span span_of(const Op *kernel)
{
    for (const Op *op = kernel->body ? kernel->body->first : NULL; op; op = op->next)
        if (op->kind == OP_MATMUL)
            return op->span;
    return kernel->span;
}

static TimedLayer *layer_at(Timed *t, const char *path, const Map *sizes, int launch)
{
    uintptr_t known = (uintptr_t)map_get(&t->index, path);
    if (known)
        return &t->layers.elem[known - 1];
    const LayerSize *size = map_get(sizes, path);
    if (!size)
        return NULL;
    const PlanLaunch *l = &t->plan->launch[launch];
    size_t buckets = (size_t)t->plan->num_buckets;
    int32_t stored = plan_stored_weight(t->plan, l->w);
    TimedLayer layer = {.path = path,
                        .n = size->n,
                        .k = size->k,
                        .span = span_of(t->cuda->target.launch_kernels.elem[launch]),
                        .format = format_of(t->arena, t->plan, l),
                        .bits = format_info[t->plan->tensor[stored].fmt].bits +
                                format_info[t->plan->tensor[l->a].fmt].bits,
                        .time = ARENA_NEW_ARRAY(t->arena, LayerTime, buckets)};
    memset(layer.time, 0, buckets * sizeof *layer.time);
    ARRAY_PUSH(t->arena, &t->layers, layer);
    map_put(&t->index, path, (void *)(uintptr_t)t->layers.num);
    return &t->layers.elem[t->layers.num - 1];
}

/* What has come together of a bucket's launches since the last product. */
typedef struct Gathered {
    double us;
    int launches;
} Gathered;

static int64_t rows_of(const Timed *t, const PlanLaunch *l, int bucket)
{
    PlanLayout layout;
    const PlanTensor *a = &t->plan->tensor[l->a];
    return plan_tensor_layout(a, plan_bucket(t->plan, bucket), &layout) ? layout.rows : 0;
}

static void product_share(Timed *t, int launch, int bucket, const Gathered *before,
                          const Map *sizes, const TimingTable *library)
{
    const PlanLaunch *l = &t->plan->launch[launch];
    const PlanTensor *w = &t->plan->tensor[l->w];
    const CudaChoice *choice = &t->cuda->choice[launch * t->plan->num_buckets + bucket];
    LayerNames layers = module_layers(t->w->module, &l->layer);
    const char *problem = timing_library_problem(t->arena, w->pack_spec.n, w->pack_spec.k);
    const TimingRow *row = NULL;
    int64_t rows = rows_of(t, l, bucket);
    for (int i = 0; library && i < library->row.num; i++) {
        const TimingRow *at = &library->row.elem[i];
        if (at->rows == rows && !strcmp(at->problem, problem) && (!row || at->us < row->us))
            row = at;
    }
    for (int i = 0; i < layers.num; i++) {
        TimedLayer *layer = layer_at(t, layers.name[i], sizes, launch);
        if (!layer || layer->time[bucket].product) /* used again, at the same cost */
            continue;
        double share = (double)layer->n / (double)w->pack_spec.n;
        LayerTime *time = &layer->time[bucket];
        time->us = share * (choice->us + before->us);
        time->predicted = share * (choice->predicted + before->us);
        time->measured = choice->source != TIMING_MODEL;
        time->launches = before->launches;
        time->beside_us = share * before->us;
        time->bytes = share * (double)w->bytes;
        time->product = choice;
        time->library_us = row ? share * row->us + time->beside_us : 0;
        time->library = row ? row->candidate : NULL;
    }
}

static void layers_time(Timed *t, const Map *sizes, const TimingTable *library)
{
    map_init(&t->index, t->arena);
    for (int b = 0; b < t->plan->num_buckets; b++) {
        Gathered before = {0};
        for (int i = 0; i < t->plan->num_launches; i++) {
            const PlanLaunch *l = &t->plan->launch[i];
            const CudaChoice *choice = &t->cuda->choice[i * t->plan->num_buckets + b];
            if (!choice->text)
                continue;
            if (l->family == LAUNCH_GEMM && t->plan->tensor[l->w].packed) {
                product_share(t, i, b, &before, sizes, library);
                before = (Gathered){0};
                continue;
            }
            before.us += choice->us;
            before.launches++;
        }
    }
}

/* "w" of "w#2", which is what unquantised uses of one weight are. */
static const TimedLayer *layer_find(const Timed *t, const char *path)
{
    size_t len = strcspn(path, "#");
    uintptr_t at = (uintptr_t)map_get(&t->index, path);
    if (!at && path[len])
        at = (uintptr_t)map_get(&t->index, arena_strndup(t->arena, path, len));
    return at ? &t->layers.elem[at - 1] : NULL;
}

/* Variants ------------------------------------------------------------------------------------- */

/* The text with other rules, planned for one class. Its plan lives until variant_close. */
static bool variant_plan(Work *v, const Work *w, int gpu, WorkVariant variant, Map *ret_sizes)
{
    if (!work_init(v, w->cli))
        return false;
    v->variant = variant;
    v->variant.only_planned = true;
    v->variant.choice = w->choice;
    v->num_gpus = 1;
    v->gpu[0] = (WorkGpu){.gpu = w->gpu[gpu].gpu, .num_archs = w->gpu[gpu].num_archs};
    memcpy(v->gpu[0].arch, w->gpu[gpu].arch, sizeof v->gpu[0].arch);
    if (!work_lower(v, w->path))
        return false;
    sizes_find(v->arena, v->module, ret_sizes);
    return work_passes(v, NULL) && work_plan(v);
}

static void variant_close(Work *v)
{
    if (v->module && v->module->weights)
        weights_close(v->module->weights);
    arena_destroy(v->arena);
}

/* Verdicts ------------------------------------------------------------------------------------- */

/* The best known time unquantised. */
static double plain_us(const LayerTime *plain, bool *ret_by_library)
{
    *ret_by_library = plain->library_us > 0 && (!plain->measured || plain->library_us < plain->us);
    return *ret_by_library ? plain->library_us : plain->us;
}

/* By how much a layer is slower; 1 and less: it is not. */
static double slowness(const LayerTime *own, const LayerTime *plain)
{
    bool by_library;
    if (!own->product || !plain->product)
        return 0;
    double us = plain_us(plain, &by_library), ratio = own->us / us;
    bool alike = own->measured == (plain->measured || by_library);
    if (alike)
        return ratio > SLOWER_BY ? ratio : 0;
    bool predicted = own->predicted > SLOWER_BY * plain->predicted;
    return predicted && ratio > SLOWER_GUESSED ? ratio : 0;
}

typedef struct SlowGroup { /* layers of one shape and format */
    const TimedLayer *own, *plain;
    int num, bucket; /* layers; where the first is slowest */
    double ratio;
} SlowGroup;
typedef ARRAY(SlowGroup) SlowGroups;

static bool same_group(const SlowGroup *g, const TimedLayer *layer)
{
    return g->own->n == layer->n && g->own->k == layer->k && !strcmp(g->own->format, layer->format);
}

static void group_add(Arena *arena, SlowGroups *groups, const SlowGroup *slow)
{
    for (int i = 0; i < groups->num; i++)
        if (same_group(&groups->elem[i], slow->own)) {
            groups->elem[i].num++;
            return;
        }
    ARRAY_PUSH(arena, groups, *slow);
}

static SlowGroups groups_find(Arena *arena, const Timed *own, const Timed *plain)
{
    SlowGroups ret = {0};
    for (int i = 0; i < own->layers.num; i++) {
        SlowGroup slow = {.own = &own->layers.elem[i], .num = 1};
        slow.plain = layer_find(plain, slow.own->path);
        if (!slow.plain || !strcmp(slow.own->format, slow.plain->format))
            continue;
        for (int b = 0; b < own->plan->num_buckets; b++) {
            double ratio = slowness(&slow.own->time[b], &slow.plain->time[b]);
            if (ratio > slow.ratio) {
                slow.ratio = ratio;
                slow.bucket = b;
            }
        }
        if (slow.ratio > 0)
            group_add(arena, &ret, &slow);
    }
    return ret;
}

/* Formats in their place ----------------------------------------------------------------------- */

typedef struct Instead {
    const char *name, *scheme;
    int bits; /* of a weight's code and of an activation's */
} Instead;
static const Instead instead[] = {
    {"int8 per token", "weight i8 sym per channel; act i8 sym per token dynamic", 16},
    {"fp8 per token", "weight e4m3 per channel; act e4m3 per token dynamic", 16},
    {"fp8 in blocks", "weight e4m3 block 128x128; act e4m3 per token group 128 dynamic", 16},
    {"w4a8", "weight i4 sym group 128; act i8 sym per token dynamic", 12},
    {"w4a16", "weight i4 sym group 128; act bf16", 20},
    {"w8a16", "weight i8 sym per channel; act bf16", 24},
};

/* Rules that give a scheme to the first layer of each group. */
static const char *rules_of(Arena *arena, const SlowGroups *groups, const Instead *with)
{
    Sb sb;
    sb_init(&sb, arena);
    sb_printf(&sb, "scheme slower_instead { %s }\nquant {\n", with->scheme);
    for (int i = 0; i < groups->num; i++)
        sb_printf(&sb, "%.*s : slower_instead\n", (int)strcspn(groups->elem[i].own->path, "#"),
                  groups->elem[i].own->path);
    sb_put(&sb, "}\n");
    return sb.text;
}

/* The nearest format that is slower at no size, and what it takes where the layer is slowest. */
typedef struct Better {
    const Instead *with; /* NULL: there is none */
    double us;
} Better;

static bool is_slower_anywhere(const TimedLayer *own, const TimedLayer *plain, int buckets)
{
    for (int b = 0; b < buckets; b++)
        if (slowness(&own->time[b], &plain->time[b]) > 0)
            return true;
    return false;
}

static void better_take(const SlowGroup *slow, const Timed *with, const Instead *which,
                        Better *best)
{
    const TimedLayer *layer = layer_find(with, slow->own->path);
    if (!layer || !strcmp(layer->format, slow->own->format) ||
        is_slower_anywhere(layer, slow->plain, with->plan->num_buckets))
        return;
    if (best->with && abs(best->with->bits - slow->own->bits) <= abs(which->bits - slow->own->bits))
        return;
    *best = (Better){which, layer->time[slow->bucket].us};
}

static Better *better_find(Work *w, int gpu, const SlowGroups *groups)
{
    Better *ret = ARENA_NEW_ARRAY(w->arena, Better, (size_t)groups->num + 1);
    memset(ret, 0, (size_t)groups->num * sizeof *ret);
    for (size_t i = 0; i < COUNT_OF(instead); i++) {
        Work v;
        Map sizes;
        WorkVariant variant = {.extra = rules_of(w->arena, groups, &instead[i])};
        bool ok = variant_plan(&v, w, gpu, variant, &sizes);
        Timed with = {.arena = v.arena, .w = &v, .cuda = &v.gpu[0].cuda};
        if (ok) {
            with.plan = with.cuda->target.plan;
            layers_time(&with, &sizes, NULL);
        }
        for (int g = 0; ok && g < groups->num; g++)
            better_take(&groups->elem[g], &with, &instead[i], &ret[g]);
        variant_close(&v);
    }
    return ret;
}

/* Words ---------------------------------------------------------------------------------------- */

static const char *at_bucket(Arena *arena, const Plan *plan, int bucket)
{
    Sb sb;
    sb_init(&sb, arena);
    sb_put(&sb, plan->num_syms ? " at " : "");
    plan_bucket_print(&sb, plan, bucket);
    return sb.text;
}

static const char *source_of(const LayerTime *time)
{
    return timing_source_name[time->product->source];
}

/* What the time goes to: launches beside the product, its instruction and unit, the bytes. */
static void put_reason(Work *w, const CudaTarget *of, const SlowGroup *slow)
{
    const LayerTime *own = &slow->own->time[slow->bucket],
                    *plain = &slow->plain->time[slow->bucket];
    const char *beside = "", *roofline = "";
    if (own->launches)
        beside = arena_printf(w->arena, "; %d launch%s before it take%s %.1f us", own->launches,
                              own->launches == 1 ? "" : "es", own->launches == 1 ? "s" : "",
                              own->beside_us);
    if (cuda_roofline_holds(of->gpu, own->product->source))
        roofline =
            arena_printf(w->arena, " and reaches %.0f %% of the roofline by %s",
                         100 * own->product->floor_us / own->product->us, own->product->bound);
    diag_note(&w->diag, slow->own->span,
              "its product takes %.1f us, %s, reads %.1f MB of weight%s%s; unquantised: %s, "
              "%.1f MB",
              own->us - own->beside_us, own->product->by, own->bytes * 1e-6, roofline, beside,
              plain->product->by, plain->bytes * 1e-6);
}

static void put_also(Work *w, const Plan *plan, const SlowGroup *slow)
{
    Sb sb;
    bool by_library;
    sb_init(&sb, w->arena);
    for (int b = 0; b < plan->num_buckets; b++) {
        const LayerTime *own = &slow->own->time[b], *plain = &slow->plain->time[b];
        if (b != slow->bucket && slowness(own, plain) > 0)
            sb_printf(&sb, "%s%.1f us against %.1f%s", sb.len ? "; " : "also ", own->us,
                      plain_us(plain, &by_library), at_bucket(w->arena, plan, b));
    }
    if (sb.len)
        diag_note(&w->diag, slow->own->span, "%s", sb.text);
}

static void put_group(Work *w, const Timed *own, const SlowGroup *slow, const Better *better,
                      AutoSlower how)
{
    const LayerTime *time = &slow->own->time[slow->bucket];
    const LayerTime *plain = &slow->plain->time[slow->bucket];
    bool by_library;
    double us = plain_us(plain, &by_library);
    const char *more =
        slow->num == 1 ? "" : arena_printf(w->arena, " and %d more like it", slow->num - 1);
    const char *text = arena_printf(
        w->arena, "%s%s (%lld x %lld, %s) takes %.1f us on %s%s [%s], unquantised %.1f [%s]",
        slow->own->path, more, (long long)slow->own->n, (long long)slow->own->k, slow->own->format,
        time->us, own->plan->target, at_bucket(w->arena, own->plan, slow->bucket), source_of(time),
        us, by_library ? plain->library : source_of(plain));
    if (how == SLOWER_ERROR)
        diag_error(&w->diag, slow->own->span, E_SLOWER, "%s", text);
    else
        diag_warning(&w->diag, slow->own->span, E_SLOWER, "%s", text);
    put_reason(w, own->cuda, slow);
    put_also(w, own->plan, slow);
    if (better->with)
        diag_help(&w->diag, "%s (%s) would not be slower, with %.1f us there", better->with->name,
                  better->with->scheme, better->us);
    else
        diag_help(&w->diag,
                  "'keep' it: no 8- or 4-bit format that was tried is faster at all sizes");
}

/* All of it ------------------------------------------------------------------------------------ */

static AutoSlower wanted(const Work *w)
{
    const char *how = cli_get(w->cli, OPTION_SLOWER, NULL);
    if (!how)
        return w->module->slower_said ? w->module->slower : SLOWER_WARN;
    return !strcmp(how, "error")  ? SLOWER_ERROR
           : !strcmp(how, "warn") ? SLOWER_WARN
                                  : SLOWER_SILENT;
}

static const char *table_gpu(Work *w, const WorkGpu *gpu)
{
    Timings timings;
    Diag quiet;
    diag_init(&quiet, w->arena);
    return timings_open(&timings, w->arena, &quiet, cli_get(w->cli, OPTION_TIMING, NULL),
                        gpu->num_archs, gpu->arch)
               ? timings.gpu
               : NULL;
}

static void check_gpu(Work *w, int gpu, AutoSlower how)
{
    Work v;
    Map sizes;
    TimingTable library;
    if (!variant_plan(&v, w, gpu, (WorkVariant){.unquantised = true}, &sizes)) {
        variant_close(&v);
        return; /* what is wrong was said of the text itself */
    }
    bool known = timing_library(w->arena, table_gpu(w, &w->gpu[gpu]), &library);
    Timed own = {.arena = w->arena, .w = w, .cuda = &w->gpu[gpu].cuda};
    Timed plain = {.arena = v.arena, .w = &v, .cuda = &v.gpu[0].cuda};
    own.plan = own.cuda->target.plan;
    plain.plan = plain.cuda->target.plan;
    layers_time(&own, &sizes, NULL);
    layers_time(&plain, &sizes, known ? &library : NULL);
    SlowGroups groups = groups_find(w->arena, &own, &plain);
    const Better *better = groups.num ? better_find(w, gpu, &groups) : NULL;
    for (int i = 0; i < groups.num; i++)
        put_group(w, &own, &groups.elem[i], &better[i], how);
    w->is_slower = w->is_slower || (groups.num && how == SLOWER_ERROR);
    variant_close(&v);
}

bool work_slower(Work *w)
{
    AutoSlower how = wanted(w);
    bool looks = how != SLOWER_SILENT && !w->variant.unquantised && !w->variant.tapped &&
                 (w->cli->command == COMMAND_COMPILE || w->cli->command == COMMAND_EXPLAIN ||
                  w->cli->command == COMMAND_REPORT);
    for (int i = 0; looks && i < w->num_gpus; i++)
        check_gpu(w, i, how);
    return !w->diag.num_errors;
}
