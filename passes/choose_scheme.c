/* choose-scheme: settles what each linear layer uses and refuses what cannot work.
 *
 * Needs: matmuls with the `quant` that the rules resolved to.
 * Leaves: each `quant` complete: a plain activation names its format, a static one its calibrator.
 * Every combination that stays has a meaning in factor-scales and a kernel on the target.
 *
 * Before                                        After
 *   %y = matmul %x, %w                            %y = matmul %x, %w
 *       {quant = {weight i4{..}}}                     {quant = {weight i4{..}, act bf16}}
 *   (%x : bf16[B, 64])
 *                                             or at the place of the rule:
 *                                               error: nf4 quantises weights only
 */
#include "kernels/cpu/cpu.h"
#include "passes/internal.h"

static const char *format_name(FormatId fmt)
{
    return format_info[fmt].name;
}

/* Where the text said it; printed IR does not know. */
static Span said(const Op *op, Span span)
{
    return span.file ? span : op->span;
}

/* Largest |code - zero point|. */
static int64_t code_span(const Scheme *scheme)
{
    const FormatInfo *info = &format_info[scheme->fmt];

    if (scheme->zero || !info->is_signed)
        return (INT64_C(1) << info->bits) - 1;
    return INT64_C(1) << (info->bits - 1);
}

static const char *scheme_text(Module *m, const Scheme *scheme)
{
    return arena_printf(m->arena, "%s%s", format_name(scheme->fmt), scheme->zero ? " asym" : "");
}

static bool changes_input(const QuantSpec *spec)
{
    const WeightQuantiser *by = spec->by ? weight_quantiser_find(spec->by) : NULL;

    return by && by->input_scales;
}

static bool act_fits(Module *m, const Op *op, const QuantSpec *spec)
{
    const Scheme *act = spec->act;

    if (format_info[act->fmt].family == FAMILY_CODEBOOK || format_is_narrow(act->fmt)) {
        diag_error(m->diag, said(op, spec->act_span), E_SCHEME_FIT,
                   "%s: %s quantises weights only, not activations", layer_name(op),
                   format_name(act->fmt));
        return false;
    }
    if (spec->act_static && !act->outer && !scheme_is_per_tensor(act)) {
        diag_error(m->diag, said(op, spec->act_span), E_SCHEME_FIT,
                   "%s: a static activation has one scale per tensor; tokens and groups differ "
                   "with every input",
                   layer_name(op));
        diag_help(m->diag, "write `per tensor static`, or `dynamic` for finer scales");
        return false;
    }
    if (spec->act_known && (spec->smooth || spec->rotate || changes_input(spec))) {
        diag_error(m->diag, said(op, spec->act_span), E_SCHEME_FIT,
                   "%s: its static scale is given, but %s changes the values that it is for",
                   layer_name(op),
                   spec->smooth   ? "smooth"
                   : spec->rotate ? "rotate"
                                  : spec->by);
        return false;
    }
    return true;
}

/* One K block must divide the other, because the main loop walks in steps of the smaller. */
static bool blocks_fit(Module *m, const Op *op, const QuantSpec *spec, int64_t k)
{
    int64_t a = spec->act->block[1], b = spec->weight->block[1];
    int64_t small = a < b ? a : b, large = a < b ? b : a;

    if (small == 0 || small >= k || large % small == 0)
        return true;
    diag_error(m->diag, said(op, spec->act_span), E_SCHEME_FIT,
               "%s: activation blocks of %lld and weight blocks of %lld columns; neither divides "
               "the other",
               layer_name(op), (long long)a, (long long)b);
    diag_note(m->diag, said(op, spec->weight_span), "the weight's blocks are said here");
    return false;
}

static bool accumulator_fits(Module *m, const Op *op, const QuantSpec *spec, int64_t k)
{
    if (!scheme_is_integer(spec->act) || !scheme_is_integer(spec->weight))
        return true;
    int64_t most = INT32_MAX / (code_span(spec->act) * code_span(spec->weight));
    int64_t a = spec->act->block[1], b = spec->weight->block[1], at_once = k;
    at_once = a && a < at_once ? a : at_once;
    at_once = b && b < at_once ? b : at_once;
    if (at_once <= most)
        return true;
    diag_error(m->diag, op->span, E_ACCUMULATOR,
               "%s: K = %lld, but an exact 32-bit sum of %s times %s holds at most %lld",
               layer_name(op), (long long)at_once, scheme_text(m, spec->act),
               scheme_text(m, spec->weight), (long long)most);
    diag_help(m->diag, "scales per group of columns are summed group by group");
    return false;
}

static bool varies(const Scheme *scheme, int64_t k)
{
    return scheme && scheme_varies_along_cols(scheme, k);
}

const TargetLimits limits_cpu = {CPU_TILE_COLS, cpu_pack_problem};
const TargetLimits limits_all = {CPU_TILE_COLS, cpu_pack_problem};
const TargetLimits limits_gpus = {CPU_TILE_COLS, cpu_pack_problem}; /* plans of all are bound so */

static bool target_fits(Module *m, const TargetLimits *limits, const Op *op, const QuantSpec *spec,
                        int64_t n, int64_t k)
{
    const Scheme *w = spec->weight;
    CpuPackSpec pack = {.fmt = w ? w->fmt : op_in(op, 1)->type->fmt,
                        .act_fmt = spec->act ? spec->act->fmt : spec->act_fmt,
                        .n = n,
                        .k = k,
                        .parts = 1,
                        .mainloop = varies(w, k) || varies(spec->act, k),
                        .has_zero = w && w->zero,
                        .block_rows = w ? w->block[0] : 0,
                        .block_cols = w ? w->block[1] : 0,
                        .scale_fmt = w ? w->scale_fmt : FMT_F32,
                        .table = w ? w->table : TABLE_NONE};
    if (varies(spec->act, k))
        pack.act_block_cols = spec->act->block[1];
    const char *problem = limits->weight_problem(&pack);

    if ((w || spec->act) && !value_is_constant(op_in(op, 1)))
        problem = "only products with constant weights can be quantised";
    if (!problem)
        return true;
    diag_error(m->diag, said(op, spec->weight_span), E_SCHEME_FIT,
               "%s: %s (activation %s, weight %s)", layer_name(op), problem,
               format_name(pack.act_fmt), format_name(pack.fmt));
    return false;
}

/* A range that spans rows makes each of them depend on the others. */
static void invariant_fits(Module *m, const Op *op, const QuantSpec *spec)
{
    const Scheme *act = spec->act;
    if (spec->keep || !act || spec->act_static || (act->block[0] == 1 && !act->outer))
        return;
    diag_error(
        m->diag, said(op, spec->act_span), E_INVARIANT,
        "%s: %s, so that a row depends on the others of its batch, but it is to be invariant",
        layer_name(op),
        act->outer           ? "the outer scale is found over all rows"
        : act->block[0] == 0 ? "one range is found over all rows"
                             : "a range is found over several rows");
    diag_help(m->diag, act->outer ? "give the outer scale before the run, with 'static'"
                                  : "use ranges of a row each ('per token'), or 'static' ones");
}

static void layer_settle(Module *m, const TargetLimits *limits, bool always, Op *op)
{
    QuantSpec *spec = ARENA_NEW(m->arena, QuantSpec);
    const Type *weight = op_in(op, 1)->type;
    Dim rows = weight->dim[weight->rank - 2];
    int64_t n = dim_is_const(rows) ? rows.add : 1, k = type_cols(weight);

    *spec = *op->attr.quant;
    op->attr.quant = spec;
    if (spec->invariant || always)
        invariant_fits(m, op, spec);
    if (spec->keep || k < 0)
        return;
    if (!spec->act && spec->act_fmt == FMT_NONE)
        spec->act_fmt = op_in(op, 0)->type->fmt;
    if (spec->act_static && !spec->calibrator && !spec->act_known)
        spec->calibrator = "minmax";
    if (spec->act && !act_fits(m, op, spec))
        return;
    if (spec->act && spec->weight &&
        !(blocks_fit(m, op, spec, k) && accumulator_fits(m, op, spec, k)))
        return;
    target_fits(m, limits, op, spec, n, k);
}

bool pass_choose_scheme(Module *m, PassContext *ctx)
{
    const TargetLimits *limits = ctx->options.limits ? ctx->options.limits : &limits_cpu;
    bool changed = false;

    for_each_op(op, &m->body) {
        if (op->kind != OP_MATMUL || !op->attr.quant || op->attr.place != PLACE_NONE)
            continue;
        layer_settle(m, limits, ctx->options.invariant, op);
        changed = true;
    }
    return changed;
}
