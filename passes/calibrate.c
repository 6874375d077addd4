/* calibrate: runs the float model on the calibration data.
 *
 * Needs: settled schemes (choose-scheme), smoothing done, bound weights, `calibrate` files.
 * Leaves: the range of each static activation on its matmul, and in m->weight_stats what the weight
 * quantisers of each layer need: the mean magnitude and the second moments of its input.
 *
 * Before                                        After
 *   %y = matmul %x, %w {quant = {.. act           %y = matmul %x, %w {range = minmax [-1, 3],
 *       i8{asym per tensor} static minmax}}           quant = {..}}
 */
#include "passes/internal.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { HESSIAN_MOST = 16384 }; /* columns; the matrix then takes 2 GiB */

typedef struct Watch { /* one value that some layer wants to know about */
    const Value *value;
    const Calibrator *calibrator; /* static range, or NULL: statistics of columns */
    double arg;
    CalibState *state;
    LayerStats stats;
    int64_t cols;
    struct Watch *next; /* same value */
} Watch;

typedef struct Watches {
    Watch **of; /* by the mark of the defining op */
    Arena *arena;
    ARRAY(Watch *) all;
    bool failed;
} Watches;

static Watch *watch_add(Watches *w, const Value *value, const Calibrator *calibrator, double arg)
{
    Watch **list = &w->of[value->def->mark];

    for (Watch *old = *list; old; old = old->next)
        if (old->calibrator == calibrator && (!calibrator || old->arg == arg))
            return old;
    Watch *watch = ARENA_NEW(w->arena, Watch);
    *watch = (Watch){.value = value, .calibrator = calibrator, .arg = arg, .next = *list};
    watch->cols = type_cols(value->type);
    *list = watch;
    ARRAY_PUSH(w->arena, &w->all, watch);
    return watch;
}

/* Observing ------------------------------------------------------------------------------------ */

static void watch_observe(void *user, const Value *value, const Tensor *tensor)
{
    Watches *w = user;
    Watch *watch = value->def->block->owner ? NULL : w->of[value->def->mark];
    uint64_t num, bytes;

    if (!watch || w->failed)
        return;
    num = tensor_elements(tensor);
    float *x = checked_mul(num, sizeof *x, &bytes) ? malloc(bytes + 1) : NULL;
    w->failed = !x;
    if (!x)
        return;
    format_to_f32(tensor->fmt, tensor->data, x, num);
    for (; watch; watch = watch->next) {
        if (!watch->calibrator)
            layer_stats_observe(&watch->stats, x, (int64_t)num / watch->cols);
        else if (!watch->calibrator->observe(watch->state, x, num))
            w->failed = true;
    }
    free(x);
}

static bool watches_prepare(Watches *w)
{
    for (int i = 0; i < w->all.num; i++) {
        Watch *watch = w->all.elem[i];
        bool ok;
        if (watch->calibrator)
            ok = (watch->state = watch->calibrator->create(watch->arg)) != NULL;
        else
            ok = layer_stats_init(&watch->stats, watch->cols, watch->cols <= HESSIAN_MOST);
        if (!ok)
            return false;
    }
    return true;
}

static void watches_free(Watches *w)
{
    for (int i = 0; i < w->all.num; i++) {
        Watch *watch = w->all.elem[i];
        if (watch->state)
            watch->calibrator->destroy(watch->state);
        layer_stats_free(&watch->stats);
    }
}

/* Results -------------------------------------------------------------------------------------- */

static void range_set(Module *m, Op *matmul, const Watch *watch)
{
    float lo, hi;

    watch->calibrator->range(watch->state, &lo, &hi);
    if (!isfinite(lo) || !isfinite(hi)) {
        diag_error(m->diag, matmul->span, E_CALIBRATION_DATA,
                   "%s sees values on the calibration data that are not finite",
                   layer_name(matmul));
        return;
    }
    matmul->attr.range.calibrator = watch->calibrator->name;
    matmul->attr.range.arg = watch->arg;
    matmul->attr.range.known = true;
    matmul->attr.range.lo = lo;
    matmul->attr.range.hi = hi;
}

/* The module's own copy. The watch's memory goes at once: the matrices are large. */
static WeightStats *stats_make(Module *m, Watch *watch)
{
    WeightStats *stats = ARENA_NEW(m->arena, WeightStats);
    size_t cols = (size_t)watch->cols;
    float *mean = ARENA_NEW_ARRAY(m->arena, float, cols);

    layer_stats_finish(&watch->stats);
    *stats = watch->stats.seen;
    memcpy(mean, stats->mean_abs, cols * sizeof *mean);
    stats->mean_abs = mean;
    if (stats->hessian) {
        uint64_t num;
        if (!checked_mul(cols, cols, &num))
            BUG("a matrix of %zu columns", cols);
        double *hessian = ARENA_NEW_ARRAY(m->arena, double, num);
        memcpy(hessian, stats->hessian, num * sizeof *hessian);
        stats->hessian = hessian;
    }
    layer_stats_free(&watch->stats);
    return stats;
}

/* Pass ---------------------------------------------------------------------------------------- */

static const Calibrator *calibrator_of(Module *m, const Op *matmul, Span span)
{
    const QuantSpec *spec = matmul->attr.quant;
    const Calibrator *found = calibrator_find(spec->calibrator ? spec->calibrator : "minmax");
    double arg = spec->calibrator_arg;

    if (!found) {
        diag_error(m->diag, span, E_UNKNOWN_CALIBRATOR, "there is no calibrator '%s'",
                   spec->calibrator);
    } else if (found->has_arg && !(arg >= found->arg_min && arg <= found->arg_max)) {
        diag_error(m->diag, span, E_UNKNOWN_CALIBRATOR, "%s %g: the number is %g to %g",
                   found->name, arg, found->arg_min, found->arg_max);
        found = NULL;
    }
    return found;
}

typedef struct Layer {
    Op *matmul;
    Watch *range, *stats;
} Layer;

/* What one layer wants. False: nothing, or an error was reported. */
static bool layer_watch(Module *m, PassContext *ctx, Watches *w, Op *matmul, Layer *ret)
{
    const QuantSpec *spec = matmul->attr.quant;
    const WeightQuantiser *quantiser;

    *ret = (Layer){.matmul = matmul};
    if (matmul->kind != OP_MATMUL || !spec || spec->keep || ctx->options.no_weights)
        return false;
    quantiser = spec->by ? weight_quantiser_find(spec->by) : NULL;
    if (spec->act_static && spec->act && !matmul->attr.range.known) {
        Span span = spec->act_span.file ? spec->act_span : matmul->span;
        const Calibrator *calibrator = calibrator_of(m, matmul, span);
        if (calibrator && !m->calibrate_files.num)
            calibration_missing(m, span, layer_name(matmul), "a static scale");
        else if (calibrator)
            ret->range = watch_add(w, op_in(matmul, 0), calibrator, spec->calibrator_arg);
    }
    if (quantiser && quantiser->needs_stats && m->calibrate_files.num && matmul->attr.layer &&
        type_cols(op_in(matmul, 0)->type) > 0)
        ret->stats = watch_add(w, op_in(matmul, 0), NULL, 0);
    return ret->range || ret->stats;
}

static void layers_finish(Module *m, const Layer *layer, int num)
{
    Map *done = ARENA_NEW(m->arena, Map); /* one WeightStats a watch, shared by siblings */

    map_init(done, m->arena);
    for (int i = 0; i < num; i++) {
        if (layer[i].range)
            range_set(m, layer[i].matmul, layer[i].range);
        if (!layer[i].stats)
            continue;
        if (!m->weight_stats) {
            m->weight_stats = ARENA_NEW(m->arena, Map);
            map_init(m->weight_stats, m->arena);
        }
        const char *key = arena_printf(m->arena, "%p", (void *)layer[i].stats);
        if (!map_has(done, key))
            map_put(done, key, stats_make(m, layer[i].stats));
        map_put(m->weight_stats, layer[i].matmul->attr.layer, map_get(done, key));
    }
}

bool pass_calibrate(Module *m, PassContext *ctx)
{
    Watches w = {.arena = ctx->scratch};
    ARRAY(Layer) layers = {0};
    size_t num = 1;
    int errors = m->diag->num_errors;

    for_each_op(op, &m->body)
        num++;
    w.of = ARENA_NEW_ARRAY(ctx->scratch, Watch *, num);
    block_number(&m->body);
    for_each_op(op, &m->body) {
        Layer layer;
        if (layer_watch(m, ctx, &w, op, &layer))
            ARRAY_PUSH(ctx->scratch, &layers, layer);
    }
    if (!layers.num || m->diag->num_errors > errors)
        return false;
    bool ok = watches_prepare(&w) && calibration_run(m, ctx, watch_observe, &w) && !w.failed;
    if (ok)
        layers_finish(m, layers.elem, layers.num);
    else if (m->diag->num_errors == errors)
        diag_error(m->diag, (Span){0}, E_CALIBRATION_DATA, "memory is exhausted by calibration");
    watches_free(&w);
    return ok;
}
