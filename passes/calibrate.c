/* calibrate: runs the float model on the calibration data.
 *
 * Needs: settled schemes (choose-scheme), smoothing done, bound weights, `calibrate` files.
 * Leaves: the range of each static activation on its matmul; in m->weight_stats what the weight
 * quantisers of each layer need of its columns; in m->code_maker who makes the codes that need
 * second moments too. Statistics that m->activations holds already, from a file, are not made
 * again.
 *
 * Before                                        After
 *   %y = matmul %x, %w {quant = {.. act           %y = matmul %x, %w {range = minmax [-1, 3],
 *       i8{asym per tensor} static minmax}}           quant = {..}}
 */
#include "passes/calibration.h"
#include "passes/internal.h"
#include <string.h>

#define CLIPPED_MUCH 0.01 /* a share of the data */

/* Results -------------------------------------------------------------------------------------- */

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

static bool wants_range(const Op *op)
{
    const QuantSpec *spec = op->attr.quant;

    return op->kind == OP_MATMUL && spec && !spec->keep && spec->act_static && spec->act &&
           !spec->act_known && !op->attr.range.known;
}

/* The layer's weight quantiser when it looks at what the layer sees. */
static const WeightQuantiser *wants_stats(const Op *op)
{
    const QuantSpec *spec = op->attr.quant;
    const WeightQuantiser *found;

    if (op->kind != OP_MATMUL || !spec || spec->keep || !spec->by || !op->attr.layer ||
        type_cols(op_in(op, 0)->type) < 1)
        return NULL;
    found = weight_quantiser_find(spec->by);
    return found && found->needs_stats ? found : NULL;
}

static bool wants_any(const Op *op, void *user)
{
    const Module *m = user; /* columns alone do for the weight */

    return wants_range(op) || (wants_stats(op) && !(m && activation_of(m, op)));
}

static void range_warn(Module *m, const Op *matmul, const ActStats *stats, float lo, float hi)
{
    double outside = stats->whole.total ? histogram_outside(&stats->whole, lo, hi) : 0;

    if (outside > CLIPPED_MUCH)
        diag_warning(m->diag, matmul->span, E_CALIBRATION_DOUBT,
                     "%s: %.2g %% of what it saw lies outside its static range %g .. %g and is "
                     "clipped",
                     layer_name(matmul), outside * 100, (double)lo, (double)hi);
}

static void range_set(Module *m, Op *matmul, const ActStats *stats)
{
    const QuantSpec *spec = matmul->attr.quant;
    Span span = spec->act_span.file ? spec->act_span : matmul->span;
    const Calibrator *calibrator = calibrator_of(m, matmul, span);
    float lo, hi;

    if (!calibrator)
        return;
    if (!stats->rows) {
        diag_error(m->diag, matmul->span, E_CALIBRATION_DATA,
                   "%s sees values on the calibration data that are not finite",
                   layer_name(matmul));
        return;
    }
    calibrator->range(&stats->whole, spec->calibrator_arg, spec->act, &lo, &hi);
    range_warn(m, matmul, stats, lo, hi);
    matmul->attr.range.calibrator = calibrator->name;
    matmul->attr.range.arg = spec->calibrator_arg;
    matmul->attr.range.known = true;
    matmul->attr.range.lo = lo;
    matmul->attr.range.hi = hi;
}

static void range_missing(Module *m, const Op *matmul)
{
    const QuantSpec *spec = matmul->attr.quant;

    calibration_missing(m, spec->act_span.file ? spec->act_span : matmul->span, layer_name(matmul),
                        "a static scale");
}

/* Pass ---------------------------------------------------------------------------------------- */

typedef struct Settle {
    Module *m;
    PassContext *ctx;
    Moments *moments;
    Map made; /* of ActStats: their WeightStats, shared by siblings */
} Settle;

static void stats_set(Settle *s, const Op *matmul, const ActStats *stats,
                      const WeightQuantiser *quantiser)
{
    Module *m = s->m;
    const char *key = arena_printf(s->ctx->scratch, "%p", (const void *)stats);

    /* a calibration file does not hold second moments */
    bool has_data = m->calibrate_files.num > 0;
    if (quantiser->needs_hessian && !has_data)
        return;
    if (quantiser->takes_hessian && has_data) {
        if (!s->moments)
            s->moments = moments_create(m, s->ctx);
        moments_want(s->moments, matmul->attr.layer);
    }
    if (!m->weight_stats) {
        m->weight_stats = ARENA_NEW(m->arena, Map);
        map_init(m->weight_stats, m->arena);
    }
    if (!map_has(&s->made, key))
        map_put(&s->made, key, (void *)(uintptr_t)activation_weight_stats(m, stats));
    map_put(m->weight_stats, matmul->attr.layer, map_get(&s->made, key));
}

static bool any_wanted(const Module *m)
{
    for_each_op(op, &m->body)
        if (wants_any(op, NULL))
            return true;
    return false;
}

/* Rescaled columns still know their extremes. */
static bool range_known(const Module *m, const Op *op)
{
    const char *calibrator = op->attr.quant->calibrator;

    return activation_has_histogram(m, op) ||
           (activation_of(m, op) && (!calibrator || !strcmp(calibrator, "minmax")));
}

/* Before the data run, which may take long: what they cannot mend. */
static bool specs_fit(Module *m)
{
    int errors = m->diag->num_errors;

    for_each_op(op, &m->body) {
        if (!wants_range(op))
            continue;
        if (!calibrator_of(m, op,
                           op->attr.quant->act_span.file ? op->attr.quant->act_span : op->span))
            continue;
        if (!m->calibrate_files.num && !range_known(m, op))
            range_missing(m, op);
    }
    return m->diag->num_errors == errors;
}

bool pass_calibrate(Module *m, PassContext *ctx)
{
    Settle s = {.m = m, .ctx = ctx};

    if (ctx->options.no_weights || !any_wanted(m) || !specs_fit(m) ||
        !activations_collect(m, ctx, wants_any, m))
        return false;
    map_init(&s.made, ctx->scratch);
    for_each_op(op, &m->body) {
        const ActStats *stats = wants_any(op, NULL) ? activation_of(m, op) : NULL;
        const WeightQuantiser *quantiser = wants_stats(op);
        if (stats && wants_range(op))
            range_set(m, op, stats);
        if (stats && quantiser)
            stats_set(&s, op, stats, quantiser);
    }
    if (s.moments)
        m->code_maker = codes_create(m, ctx, s.moments);
    return true;
}
