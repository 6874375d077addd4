/* quantise-weights: says how the codes of each constant weight are chosen.
 *
 * Needs: explicit quantisation (insert-quant); for quantisers that need statistics, calibrate.
 * Leaves: `by` on the quantize of each weight that is not rounded to nearest; codegen chooses the
 * codes when it writes the file, one layer at a time. `quant` leaves the matmuls, except where
 * check-fused and plans still ask for it.
 *
 * Before                                        After
 *   %3 = quantize %w {mode = weight}              %3 = quantize %w {mode = weight, by = gptq}
 *   %4 = dequantize %3                            %4 = dequantize %3
 *   %y = matmul %2, %4 {quant = ..}               %y = matmul %2, %4
 */
#include "passes/internal.h"
#include <string.h>

static const WeightQuantiser *quantiser_of(Module *m, const QuantSpec *spec, Span span)
{
    const WeightQuantiser *found = weight_quantiser_find(spec->by);
    Nearest nearest;

    if (found)
        return found;
    diag_error(m->diag, span, E_UNKNOWN_QUANTISER, "there is no weight quantiser '%s'", spec->by);
    nearest_init(&nearest, spec->by);
    for (int i = 0; weight_quantisers[i]; i++)
        nearest_offer(&nearest, weight_quantisers[i]->name);
    if (nearest_get(&nearest))
        diag_help(m->diag, "did you mean '%s'?", nearest_get(&nearest));
    return NULL;
}

static bool stats_present(Module *m, const PassContext *ctx, const Op *matmul,
                          const WeightQuantiser *quantiser, Span span)
{
    const char *layer = matmul->attr.layer;

    if (!quantiser->needs_stats || ctx->options.no_weights ||
        (layer && m->weight_stats && map_has(m->weight_stats, layer)))
        return true;
    calibration_missing(m, span, layer_name(matmul), quantiser->name);
    return false;
}

static void weight_annotate(Module *m, const PassContext *ctx, Op *matmul)
{
    const QuantSpec *spec = matmul->attr.quant;
    Op *dequantize = op_in(matmul, 1)->def;
    Span span = spec->weight_span.file ? spec->weight_span : matmul->span;

    if (!spec->by || !spec->weight || spec->keep || dequantize->kind != OP_DEQUANTIZE)
        return;
    const WeightQuantiser *quantiser = quantiser_of(m, spec, span);
    Op *quantize = op_in(dequantize, 0)->def;
    if (!quantiser || quantize->kind != OP_QUANTIZE ||
        !stats_present(m, ctx, matmul, quantiser, span))
        return;
    if (quantize->attr.mode != MODE_WEIGHT) {
        diag_error(m->diag, span, E_SCHEME_FIT,
                   "%s: %s chooses the codes of constants, but this operand is computed",
                   layer_name(matmul), quantiser->name);
        return;
    }
    if (!strcmp(quantiser->name, "rtn")) /* the plain meaning of quantize */
        return;
    quantize->attr.by.name = quantiser->name;
    quantize->attr.by.args = spec->by_args;
}

bool pass_quantise_weights(Module *m, PassContext *ctx)
{
    bool changed = false;

    for_each_op(op, &m->body) {
        if (op->kind != OP_MATMUL || !op->attr.quant)
            continue;
        weight_annotate(m, ctx, op);
        if (!op->attr.quant->fused && !op->attr.quant->invariant)
            op->attr.quant = NULL;
        changed = true;
    }
    return changed;
}
