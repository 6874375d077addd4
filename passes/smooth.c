/* smooth: moves the outliers of activations into the weights (SmoothQuant). The activation's
 * channel j is divided by s[j] = amax_x[j]^alpha / amax_w[j]^(1 - alpha), the weights' columns are
 * multiplied by it. Weight quantisers that ask for factors of their own (input_scales: awq) get
 * them the same way, where the rule does not say `smooth`.
 *
 * Needs: layers whose rule says `smooth` or such a quantiser, bound weights, `calibrate` files.
 * Leaves: the division inside the norm or linear layer that makes the activation, the product on
 * the weight, both as constant expressions. A layer whose activation's maker cannot absorb the
 * division keeps its activation, and a warning says why.
 *
 * Before                                        After
 *   %n = rmsnorm %x, %g                           %2 = mul %g, %1        ; 1 / s
 *   %y = matmul %n, %w {quant = {smooth 0.5}}     %n = rmsnorm %x, %2
 *                                                 %4 = mul %w, %3        ; s
 *                                                 %y = matmul %n, %4
 */
#include "passes/calibration.h"
#include "passes/internal.h"
#include <stdlib.h>

enum { SAMPLE_ROWS = 128 }; /* on which alphas are compared */

typedef struct Group { /* the layers that read one activation */
    Value *value;      /* before casts */
    ARRAY(Op *) matmuls;
    double alpha;
    bool search;                      /* for alpha */
    const WeightQuantiser *quantiser; /* its factors; NULL: smoothing's */
    int64_t cols;
    float *factor;   /* [cols], once they are known */
    Watch *watch;    /* for the sample */
    const char *why; /* it stays as it is */
} Group;

typedef struct Groups {
    Group **of; /* by the mark of the defining op */
    ARRAY(Group *) all;
    Moments *moments; /* for quantisers' factors; NULL: columns alone are known */
    Watches samples;
} Groups;

static Value *before_casts(Value *value)
{
    while (value->def->kind == OP_CAST)
        value = op_in(value->def, 0);
    return value;
}

/* May the maker take the division? ------------------------------------------------------------- */

static bool only_use(const Value *value)
{
    int num = 0;

    for_each_use(use, value)
        num += !use->user->attr.tap;
    return num == 1;
}

/* NULL when each of `cols` columns of the value can be scaled by scaling constants, else why not.
 */
static const char *refusal(const Value *value, int64_t cols, int depth)
{
    const Op *op = value->def;
    Value *a = op->num_in > 0 ? op_in(op, 0) : NULL, *b = op->num_in > 1 ? op_in(op, 1) : NULL;

    if (depth > 8)
        return "too many operations stand between it and the layer that makes it";
    if (value_is_constant(value))
        return NULL;
    if (type_cols(value->type) != cols)
        return "one of the values it is made of has one number for all its channels";
    if (depth && !only_use(value))
        return "one of the values it is made of is read elsewhere too";
    switch (op->kind) {
    case OP_RMSNORM:
    case OP_LAYERNORM: return NULL;
    case OP_MATMUL:
        if (weight_is_stored(op))
            return "the weight of the layer that makes it is stored quantised";
        return value_is_constant(b) ? NULL : "it is a product of two activations";
    case OP_CAST:
    case OP_RELU:
    case OP_DIV: return refusal(a, cols, depth + 1);
    case OP_MUL: return refusal(b, cols, depth + 1) ? refusal(a, cols, depth + 1) : NULL;
    case OP_ADD:
    case OP_SUB:
        return refusal(a, cols, depth + 1) || refusal(b, cols, depth + 1)
                   ? "a sum is absorbed only where all its parts are"
                   : NULL;
    case OP_INPUT: return "it is an input of the model";
    default: return "the operation that makes it mixes or bends its channels";
    }
}

static Value *scaled(Module *m, Op *at, Value *constant, const float *by, int64_t num, bool rows)
{
    int64_t dim[2] = {num, 1};

    constant_hoist(constant, at);
    Value *factor = rewrite_const(m, at, FMT_F32, rows ? 2 : 1, dim, by, at->span);
    return rewrite_binary(m, at, OP_MUL, constant, factor, at->span);
}

static void operand_scale(Module *m, Op *op, int slot, const float *by, int64_t num, bool rows)
{
    op_set_in(op, slot, scaled(m, op, op_in(op, slot), by, num, rows));
}

/* The rows of a linear layer's weight. One that stays plain keeps its format, which its kernel
 * reads; one that is quantised is better taken from f32. */
static void weight_scale(Module *m, Op *matmul, const float *by, int64_t num)
{
    const QuantSpec *spec = matmul->attr.quant;
    const Type *type = op_in(matmul, 1)->type;

    operand_scale(m, matmul, 1, by, num, true);
    if (!spec || spec->keep || !spec->weight)
        op_set_in(matmul, 1,
                  rewrite_unary(m, matmul, OP_CAST, type, op_in(matmul, 1), matmul->span));
}

/* Taps of a layer's result go on giving what the float model gives. */
static void taps_restore(Module *m, Value *value, const float *by, int64_t num)
{
    for_each_use(use, value) {
        Op *tap = use->user;
        if (tap->attr.tap != TAP_RESULT)
            continue;
        float *back = ARENA_NEW_ARRAY(m->arena, float, (size_t)num);
        for (int64_t i = 0; i < num; i++)
            back[i] = 1 / by[i];
        Value *factor = rewrite_const(m, tap, FMT_F32, 1, &num, back, tap->span);
        op_set_in(tap, 0, rewrite_binary(m, tap, OP_MUL, value, factor, tap->span));
    }
}

/* Follows the path that refusal() found free; `slot` of `user` reads the value. */
static void absorb(Module *m, Op *user, int slot, const float *by, int64_t num)
{
    Value *value = op_in(user, slot);
    Op *op = value->def;

    if (value_is_constant(value)) {
        operand_scale(m, user, slot, by, num, false);
        return;
    }
    taps_restore(m, value, by, num);
    switch (op->kind) {
    case OP_LAYERNORM:
        operand_scale(m, op, 2, by, num, false);
        operand_scale(m, op, 1, by, num, false);
        return;
    case OP_RMSNORM: operand_scale(m, op, 1, by, num, false); return;
    case OP_MATMUL: weight_scale(m, op, by, num); return;
    case OP_MUL: absorb(m, op, refusal(op_in(op, 1), num, 1) ? 0 : 1, by, num); return;
    case OP_ADD:
    case OP_SUB:
        absorb(m, op, 0, by, num);
        absorb(m, op, 1, by, num);
        return;
    default: /* cast, relu, div */ absorb(m, op, 0, by, num);
    }
}

/* Groups --------------------------------------------------------------------------------------- */

static bool wants_smooth(const Op *op)
{
    const QuantSpec *spec = op->attr.quant;

    return op->kind == OP_MATMUL && spec && spec->smooth && !spec->keep && spec->act &&
           spec->weight;
}

/* The layer's weight quantiser when it asks for factors. */
static const WeightQuantiser *wanted_factors(const Op *op)
{
    const QuantSpec *spec = op->attr.quant;

    if (op->kind != OP_MATMUL || !spec || spec->keep || !spec->weight || !spec->by ||
        wants_smooth(op))
        return NULL;
    const WeightQuantiser *found = weight_quantiser_find(spec->by);
    return found && found->input_scales ? found : NULL;
}

static bool wants_the_same(const Op *a, const Op *b)
{
    if (wants_smooth(a) || wants_smooth(b))
        return wants_smooth(a) && wants_smooth(b);
    return wanted_factors(a) && wanted_factors(a) == wanted_factors(b) &&
           a->attr.quant->weight == b->attr.quant->weight;
}

/* Every reader of the value, casts looked through, has it as its first operand and wants what
 * `matmul` wants. */
static const char *readers_refusal(const Value *value, const Op *matmul)
{
    for_each_use(use, value) {
        const char *why = NULL;
        if (use->user->attr.tap)
            continue;
        if (use->user->kind == OP_CAST)
            why = readers_refusal(&use->user->out[0], matmul);
        else if (!wants_the_same(use->user, matmul) || use != &use->user->in[0])
            why = wants_smooth(matmul) ? "something that is not smoothed reads it too"
                                       : "something that takes no such factors reads it too";
        else if (!value_is_constant(op_in(use->user, 1)))
            why = "the other operand is computed, so it cannot take the factors";
        if (why)
            return why;
    }
    return NULL;
}

static void group_add(Groups *g, Arena *scratch, Op *matmul)
{
    Value *value = before_casts(op_in(matmul, 0));
    Group **list = &g->of[value->def->mark];

    if (!*list) {
        Group *group = ARENA_NEW(scratch, Group);
        group->value = value;
        group->cols = type_cols(value->type);
        group->alpha = matmul->attr.quant->smooth_alpha;
        group->search = matmul->attr.quant->smooth_auto && wants_smooth(matmul);
        group->quantiser = wanted_factors(matmul);
        group->why = readers_refusal(value, matmul);
        if (!group->why)
            group->why =
                group->cols < 0 ? "its columns are not constant" : refusal(value, group->cols, 0);
        *list = group;
        ARRAY_PUSH(scratch, &g->all, group);
    }
    ARRAY_PUSH(scratch, &(*list)->matmuls, matmul);
}

/* The weights of all readers, f32, one below the other. NULL: *ret_why says it. */
static float *stacked_weights(Module *m, const Group *group, int64_t *ret_rows,
                              const char **ret_why)
{
    uint64_t num = 0, bytes;
    float *all = NULL;

    for (int i = 0; i < group->matmuls.num; i++) {
        Tensor t = {0};
        if (!eval_constant(m, op_in(group->matmuls.elem[i], 1), &t, ret_why)) {
            free(all);
            return NULL;
        }
        uint64_t more = tensor_elements(&t);
        float *grown = checked_add(num, more, &more) && checked_mul(more, sizeof *all, &bytes)
                           ? realloc(all, bytes + 1)
                           : NULL;
        if (grown)
            format_to_f32(t.fmt, t.data, grown + num, more - num);
        tensor_free(&t);
        if (!grown)
            memory_exhausted();
        all = grown;
        num = more;
    }
    *ret_rows = (int64_t)num / group->cols;
    return all;
}

/* Factors -------------------------------------------------------------------------------------- */

/* NULL, or why there are no factors. */
static const char *quantiser_factors(const Groups *g, const Group *group, const WeightStats *light,
                                     const float *weights, int64_t rows)
{
    const char *why = NULL;
    const Op *matmul = group->matmuls.elem[0];
    const WeightStats *stats =
        g->moments ? moments_get(g->moments, matmul->attr.layer, &why) : light;

    return stats ? group->quantiser->input_scales(matmul->attr.quant->weight, FMT_F32, weights,
                                                  rows, group->cols, stats, group->factor)
                 : why;
}

static const char *smooth_factors(Group *group, const ActStats *stats, const float *weights,
                                  int64_t rows, Arena *scratch)
{
    size_t cols = (size_t)group->cols;
    float *x_amax = ARENA_NEW_ARRAY(scratch, float, cols);
    float *w_amax = ARENA_NEW_ARRAY(scratch, float, cols);
    const QuantSpec *spec = group->matmuls.elem[0]->attr.quant;

    for (size_t c = 0; c < cols; c++)
        x_amax[c] = -stats->lo[c] > stats->hi[c] ? -stats->lo[c] : stats->hi[c];
    columns_amax(FMT_F32, weights, rows, group->cols, w_amax);
    if (group->search) {
        SmoothSample sample = {.act = spec->act,
                               .is_static = spec->act_static && !spec->act->outer,
                               .cols = group->cols,
                               .num = group->watch->num_sample,
                               .x = group->watch->sample,
                               .lo = stats->lo,
                               .hi = stats->hi};
        const char *why = smooth_search_alpha(&sample, spec->weight, weights, rows, &group->alpha);
        if (why)
            return why;
    }
    smooth_scales(x_amax, w_amax, group->cols, group->alpha, group->factor);
    return NULL;
}

static void group_factors(Module *m, PassContext *ctx, const Groups *g, Group *group)
{
    const ActStats *stats = activation_of(m, group->matmuls.elem[0]);
    const char *why = "it has no weight";
    int64_t rows;

    if (group->why)
        return;
    float *weights = stacked_weights(m, group, &rows, &why);
    group->factor = ARENA_NEW_ARRAY(m->arena, float, (size_t)group->cols);
    if (!weights)
        group->why = why;
    else if (!stats || !stats->rows)
        group->why = "calibration saw no usable row of it";
    else if (group->quantiser)
        group->why = quantiser_factors(g, group, activation_weight_stats(m, stats), weights, rows);
    else
        group->why = smooth_factors(group, stats, weights, rows, ctx->scratch);
    free(weights);
}

/* Rewriting ------------------------------------------------------------------------------------ */

static void group_scale(Module *m, Group *group)
{
    size_t cols = (size_t)group->cols;
    float *r = ARENA_NEW_ARRAY(m->arena, float, cols);

    for (size_t i = 0; i < cols; i++)
        r[i] = 1 / group->factor[i];
    Op *user = group->value->uses->user;
    absorb(m, user, (int)(group->value->uses - user->in), r, group->cols);
    for (int i = 0; i < group->matmuls.num; i++) {
        operand_scale(m, group->matmuls.elem[i], 1, group->factor, group->cols, false);
        activation_rescale(m, group->matmuls.elem[i], group->factor);
    }
}

static void group_settle(Module *m, Group *group)
{
    for (int i = 0; i < group->matmuls.num; i++) {
        Op *op = group->matmuls.elem[i];
        QuantSpec *spec = ARENA_NEW(m->arena, QuantSpec);
        *spec = *op->attr.quant;
        spec->smooth = spec->smooth_auto = false;
        op->attr.quant = spec;
        if (group->why && group->quantiser)
            diag_warning(m->diag, op->span, E_SMOOTH, "%s: %s leaves its channels as they are: %s",
                         layer_name(op), group->quantiser->name, group->why);
        else if (group->why)
            diag_warning(m->diag, op->span, E_SMOOTH, "%s is not smoothed: %s", layer_name(op),
                         group->why);
    }
    if (!group->why)
        group_scale(m, group);
}

/* Pass ----------------------------------------------------------------------------------------- */

static bool wants_factors(const Op *op, void *user)
{
    (void)user;
    return wants_smooth(op) || wanted_factors(op);
}

/* What the factors follow from, by as few runs over the data as can be. */
static bool groups_observe(Groups *g, Module *m, PassContext *ctx)
{
    bool has_data = m->calibrate_files.num > 0;

    if (!activations_collect(m, ctx, wants_factors, NULL))
        return false;
    watches_init(&g->samples, m, ctx->scratch);
    for (int i = 0; i < g->all.num; i++) {
        Group *group = g->all.elem[i];
        const Op *matmul = group->matmuls.elem[0];
        if (group->why)
            continue;
        if (!activation_of(m, matmul) || (group->search && !has_data)) {
            calibration_missing(m, matmul->span, layer_name(matmul),
                                group->search ? "smooth auto" : "smooth");
            return false;
        }
        if (group->search) {
            const Value **value = ARENA_NEW(ctx->scratch, const Value *);
            *value = op_in(matmul, 0);
            group->watch = watches_add(&g->samples, 1, value);
            group->watch->want_rows = SAMPLE_ROWS;
        }
        if (group->quantiser && has_data) {
            if (!g->moments)
                g->moments = moments_create(m, ctx);
            moments_want(g->moments, matmul->attr.layer);
        }
    }
    return !g->samples.all.num || watches_run(&g->samples, m, ctx);
}

bool pass_smooth(Module *m, PassContext *ctx)
{
    Groups g = {0};
    size_t num = 1;

    for_each_op(op, &m->body)
        num++;
    g.of = ARENA_NEW_ARRAY(ctx->scratch, Group *, num);
    block_number(&m->body);
    for_each_op(op, &m->body)
        if (wants_smooth(op) ||
            (wanted_factors(op) && (m->calibrate_files.num || activation_of(m, op))))
            group_add(&g, ctx->scratch, op);
    if (!g.all.num || ctx->options.no_weights)
        return false;
    if (!m->calibrate_files.num && !m->activations) {
        const Op *op = g.all.elem[0]->matmuls.elem[0];
        calibration_missing(m, op->span, layer_name(op), "smooth");
        return false;
    }
    bool ok = groups_observe(&g, m, ctx);
    for (int i = 0; i < g.all.num && ok; i++)
        group_factors(m, ctx, &g, g.all.elem[i]);
    watches_free(&g.samples);
    for (int i = 0; i < g.all.num && ok; i++)
        group_settle(m, g.all.elem[i]);
    return ok;
}
