/* linear, grouped_linear and matmul: operands, what the rules ask of the layer and whether it can
 * be done. */
#include "frontend/sema.h"

/* What the rules ask, against the layer's K --------------------------------------------------- */

/* The largest magnitude of a code, unused ones included; centred: with its zero point taken off. */
static int64_t magnitude(const Scheme *scheme, bool centred)
{
    const FormatInfo *info = &format_info[scheme->fmt];
    int64_t most =
        info->is_signed ? INT64_C(1) << (info->bits - 1) : (INT64_C(1) << info->bits) - 1;
    return centred && info->is_signed && scheme->zero == ZERO_INT ? 2 * most : most;
}

static void note_layer(Walk *w, const Expr *call, int64_t k)
{
    diag_note(w->diag, call->span, "this layer, '%s', has K = %lld", walk_path_text(w),
              (long long)k);
}

static bool group_fits(Walk *w, Expr *call, const Scheme *scheme, bool is_act, Span span, int64_t k)
{
    if (!scheme || scheme->block[1] <= k)
        return true;
    if (first_report(call)) {
        diag_error(w->diag, span, E_SCHEME_FIT, "a group of %lld columns is larger than K = %lld",
                   (long long)scheme->block[1], (long long)k);
        note_layer(w, call, k);
        if (scheme->block[0] == 1 && scheme->scale_fmt == FMT_F32)
            diag_help(w->diag,
                      "write 'group %lld or %s' for one scale a row where groups do not fit",
                      (long long)scheme->block[1], is_act ? "token" : "channel");
        diag_help(w->diag,
                  "leave the layer alone with the rule '%s : keep', or give it a scheme "
                  "without groups or with one of at most %lld columns",
                  walk_path_text(w), (long long)k);
    }
    return false;
}

/* Two sizes of blocks along K; 0 = all. */
static bool blocks_fit(Walk *w, Expr *call, const QuantSpec *spec, int64_t k)
{
    int64_t a = spec->act->block[1], b = spec->weight->block[1];
    int64_t small = a < b ? a : b, large = a < b ? b : a;
    if (!small || large % small == 0)
        return true;
    if (first_report(call)) {
        diag_error(w->diag, spec->act_span, E_SCHEME_PAIR,
                   "groups of %lld and %lld columns: neither size divides the other", (long long)a,
                   (long long)b);
        diag_note(w->diag, spec->weight_span, "the weight's groups");
        note_layer(w, call, k);
    }
    return false;
}

/* Integer products are summed exactly in 32 bits, over all of K or over one block. */
static bool sum_fits(Walk *w, Expr *call, const QuantSpec *spec, int64_t k)
{
    const Scheme *act = spec->act, *weight = spec->weight;
    if (!scheme_is_integer(act) || !scheme_is_integer(weight))
        return true;
    bool blocks = scheme_varies_along_cols(act, k) || scheme_varies_along_cols(weight, k);
    int64_t a = act->block[1], b = weight->block[1], length = k;
    if (blocks)
        length = a && b ? (a < b ? a : b) : a ? a : b;
    length = length > k ? k : length;
    int64_t most = INT32_MAX / (magnitude(act, blocks) * magnitude(weight, blocks));
    if (length <= most)
        return true;
    if (first_report(call)) {
        diag_error(w->diag, call->span, E_ACCUMULATOR,
                   "%s = %lld, but an exact 32-bit sum of %s times %s holds at most %lld",
                   blocks ? "group" : "K", (long long)length, format_info[act->fmt].name,
                   format_info[weight->fmt].name, (long long)most);
        diag_note(w->diag, spec->act_span, "the activation is quantised here");
        diag_help(w->diag, "scales per group are summed group by group: group %d", 128);
    }
    return false;
}

static bool span_seen(Walk *w, Span span)
{
    Sema *s = w->s;
    for (int i = 0; i < s->no_data.num; i++) {
        const Span *seen = &s->no_data.elem[i];
        if (seen->file == span.file && seen->start == span.start)
            return true;
    }
    ARRAY_PUSH(s->arena, &s->no_data, span);
    return false;
}

static bool spec_fits(Walk *w, Expr *call, const QuantSpec *spec, int64_t k)
{
    if (!spec)
        return true;
    if (spec->act_static && !spec->act_known && !w->s->has_calibrate &&
        !span_seen(w, spec->act_span)) {
        diag_error(w->diag, spec->act_span, E_NEEDS_CALIBRATION,
                   "a static range needs data, but the text has no 'calibrate'");
        diag_note(w->diag, call->span, "used by this layer, '%s'", walk_path_text(w));
        diag_help(w->diag, "add: calibrate \"x.npy\"");
    }
    if (!group_fits(w, call, spec->weight, false, spec->weight_span, k) ||
        !group_fits(w, call, spec->act, true, spec->act_span, k))
        return false;
    if (!spec->act || !spec->weight)
        return true;
    return blocks_fit(w, call, spec, k) && sum_fits(w, call, spec, k);
}

/* What the rules ask of a layer of groups ------------------------------------------------------ */

/* No block of scales holds rows of two matrices. */
static bool block_rows_fit(Walk *w, Expr *call, const QuantSpec *spec, const Type *weight)
{
    int64_t rows = spec->weight ? spec->weight->block[0] : 0, n = weight->dim[1].add;
    if (rows <= 1 || n % rows == 0)
        return true;
    if (first_report(call)) {
        diag_error(w->diag, spec->weight_span, E_SCHEME_FIT,
                   "blocks of %lld rows do not divide the N = %lld rows of each group's matrix",
                   (long long)rows, (long long)n);
        diag_note(w->diag, call->span, "this layer, '%s', has a weight %s", walk_path_text(w),
                  type_text(w->arena, weight));
    }
    return false;
}

/* Names of those that look at the weight alone. */
static const char *quantisers_without_data(Walk *w)
{
    Sb sb;
    sb_init(&sb, w->arena);
    for (int i = 0; weight_quantisers[i]; i++)
        if (!weight_quantisers[i]->needs_stats)
            sb_printf(&sb, "%s%s", sb.len ? ", " : "", weight_quantisers[i]->name);
    return sb.text;
}

/* Calibration sees a layer's input as one, not what goes to each group. */
static bool quantiser_fits(Walk *w, Expr *call, const QuantSpec *spec)
{
    const WeightQuantiser *by = spec->weight && spec->by ? weight_quantiser_find(spec->by) : NULL;
    if (!by || !by->needs_stats)
        return true;
    if (first_report(call)) {
        diag_error(w->diag, spec->weight_span, E_NOT_SUPPORTED,
                   "'by %s' looks at the input of each matrix, which is not supported yet for "
                   "grouped_linear",
                   by->name);
        diag_note(w->diag, call->span, "this layer, '%s', has a matrix for each group",
                  walk_path_text(w));
        diag_help(w->diag, "these look at the weight alone: %s", quantisers_without_data(w));
    }
    return false;
}

static bool groups_fit(Walk *w, Expr *call, const QuantSpec *spec, const Type *weight)
{
    if (!spec || spec->keep)
        return true;
    if (spec->smooth || spec->rotate) {
        if (first_report(call)) {
            diag_error(w->diag, call->span, E_NOT_SUPPORTED,
                       "'%s' is not supported yet for grouped_linear",
                       spec->smooth ? "smooth" : "rotate");
            diag_help(w->diag, "say it in a rule whose pattern does not match '%s'",
                      walk_path_text(w));
        }
        return false;
    }
    return quantiser_fits(w, call, spec) && block_rows_fit(w, call, spec, weight);
}

/* linear --------------------------------------------------------------------------------------- */

static bool need_constant(Walk *w, const Expr *call, Expr *arg, const Val *val, const char *what)
{
    if (val->is_const && val->label)
        return true;
    if (first_report(arg)) {
        diag_error(w->diag, arg->span, E_WEIGHT_OPERAND, "the %s of %s is not a param", what,
                   call->name.text);
        note_type(w, val, NULL);
        if (call_info[call->slot].kind == CALL_LINEAR)
            diag_help(w->diag, "for two computed operands use matmul(a, b), with b [K, N]");
    }
    return false;
}

/* Which rows stand together: those of a linear all, of a grouped_linear with a route those of a
 * group behind those of the one before, with counts M rows of each group. */
typedef enum RowsOf { ROWS_ALL, ROWS_ROUTED, ROWS_COUNTED } RowsOf;

static bool weight_fits(const Type *x, const Type *weight, RowsOf of)
{
    bool ranks = of == ROWS_ALL ? x->rank >= 1 && weight->rank == 2
                                : x->rank == (of == ROWS_ROUTED ? 2 : 3) && weight->rank == 3;
    return ranks && dim_equal(type_last(x), type_last(weight));
}

/* One number for each row of the weight. */
static bool bias_fits(const Type *weight, const Type *bias)
{
    bool fits = bias->rank == weight->rank - 1;
    for (int i = 0; fits && i < bias->rank; i++)
        fits = dim_equal(bias->dim[i], weight->dim[i]);
    return fits;
}

static bool operands_fit(Walk *w, Expr *call, const Val *in, RowsOf of)
{
    const Type *x = in[0].type, *weight = in[1].type, *bias = in[2].type;
    static const char *const x_is[] = {"[.., K]", "[R, K]", "[E, M, K]"};
    bool grouped = of != ROWS_ALL;
    int wrong = 0; /* the operand that does not fit */
    if (!weight_fits(x, weight, of))
        wrong = 1;
    else if (bias && !bias_fits(weight, bias))
        wrong = 2;
    if (!wrong)
        return true;
    if (!first_report(call))
        return false;
    const char *name = call->name.text;
    if (wrong == 1)
        diag_error(w->diag, call->span, E_SHAPE, "%s needs x %s and w %s, but x is %s and w is %s",
                   name, x_is[of], grouped ? "[E, N, K]" : "[N, K]", type_text(w->arena, x),
                   type_text(w->arena, weight));
    else
        diag_error(w->diag, call->span, E_SHAPE, "%s needs w %s and b %s, but w is %s and b is %s",
                   name, grouped ? "[E, N, K]" : "[N, K]", grouped ? "[E, N]" : "[N]",
                   type_text(w->arena, weight), type_text(w->arena, bias));
    note_type(w, &in[wrong - 1], wrong == 1 ? "x" : "w");
    note_type(w, &in[wrong], wrong == 1 ? "w" : "b");
    if (wrong == 1 && x->rank >= 1 && weight->rank == (grouped ? 3 : 2) &&
        dim_equal(type_last(x), weight->dim[weight->rank - 2]))
        diag_help(w->diag, "weights are [out, in]; this one would fit transposed");
    return false;
}

static void record_path(Walk *w)
{
    if (!w->build && !w->counting && w->in_model && w->s->rules.num)
        ARRAY_PUSH(w->s->arena, &w->s->paths, walk_path_text(w));
}

/* The schemes that stand at the layers of one path, in order; NULL: none does. */
typedef struct LayerUses {
    ARRAY(const Item *) scheme;
} LayerUses;

/* A weight that is used with several schemes is several layers: "w", "w#2", .. */
static const char *layer_name(Walk *w, const Item *scheme)
{
    const char *path = walk_path_text(w);
    LayerUses *uses = map_get(&w->uses, path);
    if (!uses) {
        uses = ARENA_NEW(w->arena, LayerUses);
        *uses = (LayerUses){0};
        map_put(&w->uses, path, uses);
    }
    int at = 0;
    while (at < uses->scheme.num && uses->scheme.elem[at] != scheme)
        at++;
    if (at == uses->scheme.num)
        ARRAY_PUSH(w->arena, &uses->scheme, scheme);
    return at ? arena_printf(w->m->arena, "%s#%d", path, at + 1) : path;
}

static Val emit_mask(Walk *w, Expr *call, Val x, const Val *counts)
{
    Val in[2] = {x, *counts};
    return walk_emit(w, OP_MASK, NULL, x.type, 2, in, call->span);
}

/* ends: NULL, or rows have matrices of their groups, and this says which (RowsOf: ends or counts).
 * Rows that do not count are 0. */
static Val emit_product(Walk *w, Expr *call, const Val *in, const Val *ends, const Attr *attr,
                        const Type *type)
{
    Val operand[3] = {in[0], in[1]};
    bool counted = ends && type->rank == 3;
    if (ends)
        operand[2] = *ends;
    if (counted)
        operand[0] = emit_mask(w, call, in[0], ends);
    Val out = walk_emit(w, OP_MATMUL, attr, type, ends ? 3 : 2, operand, call->span);
    if (in[2].kind == VAL_TENSOR) {
        Val sum[2] = {out, in[2]};
        if (ends) {
            Val spread[2] = {in[2], *ends};
            sum[1] = walk_emit(w, OP_SPREAD, NULL, type, 2, spread, call->span);
        }
        out = walk_emit(w, OP_ADD, NULL, type, 2, sum, call->span);
    }
    return counted ? emit_mask(w, call, out, ends) : out;
}

static Val emit_linear(Walk *w, Expr *call, Val *in, const Val *ends, const QuantSpec *spec,
                       const Item *scheme)
{
    FormatId fmt = in[0].fmt, plain = spec && spec->act_fmt ? spec->act_fmt : fmt;
    const Type *x = in[0].type, *weight = in[1].type;
    Dim dim[LIMIT_RANK];
    for (int i = 0; i < x->rank; i++)
        dim[i] = i + 1 < x->rank ? x->dim[i] : weight->dim[weight->rank - 2];
    const Type *type = walk_type(w, call, FMT_F32, x->rank, dim);
    if (!type)
        return val_bad();
    if (!spec || !spec->act)
        in[0] = walk_cast(w, in[0], plain, call->span);
    if (!spec || !spec->weight)
        in[1] = walk_cast(w, in[1], plain, call->span);
    Attr attr = {.quant = spec};
    if (w->build)
        attr.layer = layer_name(w, scheme);
    Val out = emit_product(w, call, in, ends, &attr, type);
    out.fmt = fmt;
    out.label = NULL;
    return out;
}

static bool walk_operands(Walk *w, Frame *frame, Expr *call, Expr *const *arg, Val *ret)
{
    bool ok = true;
    for (int i = 0; i < 3; i++)
        ok = (!arg[i] || walk_tensor(w, frame, arg[i], &ret[i])) && ok;
    return ok && need_constant(w, call, arg[1], &ret[1], "weight") &&
           (!arg[2] || need_constant(w, call, arg[2], &ret[2], "bias"));
}

/* Its operands fit; what rules say of it must, too. */
static Val walk_layer(Walk *w, Expr *call, Val *in, const Val *ends, const Item *scheme)
{
    w->path[w->num_path++] = (Step){.name = in[1].label};
    record_path(w);
    int64_t k = type_last(in[1].type).add;
    const QuantSpec *spec = rules_apply(w, scheme, k);
    bool fits = spec_fits(w, call, spec, k) && (!ends || groups_fit(w, call, spec, in[1].type));
    Val out = fits ? emit_linear(w, call, in, ends, spec, scheme) : val_bad();
    w->num_path--;
    return out;
}

Val walk_linear(Walk *w, Frame *frame, Expr *call, Expr *const *arg, const Item *scheme)
{
    Val in[3] = {{0}};
    if (!walk_operands(w, frame, call, arg, in) || !operands_fit(w, call, in, ROWS_ALL))
        return val_bad();
    return walk_layer(w, call, in, NULL, scheme);
}

static bool groups_equal(Walk *w, Expr *call, const Val *weight, const Val *route)
{
    Dim groups = route->route->groups;
    if (dim_equal(weight->type->dim[0], groups))
        return true;
    if (first_report(call)) {
        diag_error(w->diag, call->span, E_SHAPE,
                   "the route goes to %lld groups, but w has matrices for %lld: %s",
                   (long long)groups.add, (long long)weight->type->dim[0].add,
                   type_text(w->arena, weight->type));
        diag_note(w->diag, route->origin, "the route is made here");
        note_type(w, weight, "w");
    }
    return false;
}

/* E of w and of the counts. */
static bool counts_equal(Walk *w, Expr *call, const Val *weight, const Val *counts)
{
    if (dim_equal(weight->type->dim[0], counts->type->dim[0]))
        return true;
    if (first_report(call)) {
        diag_error(w->diag, call->span, E_SHAPE,
                   "rows= counts those of %lld groups, but w has matrices for %lld: %s",
                   (long long)counts->type->dim[0].add, (long long)weight->type->dim[0].add,
                   type_text(w->arena, weight->type));
        note_type(w, counts, "rows");
        note_type(w, weight, "w");
    }
    return false;
}

static Val walk_counted(Walk *w, Frame *frame, Expr *call, Expr *const *arg, const Item *scheme)
{
    Val in[3] = {{0}}, counts;
    bool ok = walk_operands(w, frame, call, arg, in);
    ok = walk_counts_arg(w, frame, arg[4], &counts) && ok;
    if (!ok || !operands_fit(w, call, in, ROWS_COUNTED) ||
        !counts_equal(w, call, &in[1], &counts) || !counted_rows_fit(w, call, &in[0], &counts))
        return val_bad();
    return walk_layer(w, call, in, &counts, scheme);
}

Val walk_grouped_linear(Walk *w, Frame *frame, Expr *call, Expr *const *arg, const Item *scheme)
{
    Val in[3] = {{0}}, route;
    if (arg[4] && !arg[3])
        return walk_counted(w, frame, call, arg, scheme);
    if (arg[4]) {
        if (first_report(call)) {
            diag_error(w->diag, call->span, E_ARGUMENTS,
                       "%s takes an argument 'route' or 'rows', not both", call->name.text);
            diag_help(w->diag, "route= is for rows that dispatch made, rows= for x [E, M, K], of "
                               "which so many rows of each group count");
        }
        return val_bad();
    }
    bool ok = walk_operands(w, frame, call, arg, in);
    ok = walk_route_arg(w, frame, call, arg[3], &route) && ok;
    if (!ok || !operands_fit(w, call, in, ROWS_ROUTED) || !groups_equal(w, call, &in[1], &route) ||
        !route_rows_fit(w, call, &in[0], &route))
        return val_bad();
    return walk_layer(w, call, in, &route.route->ends, scheme);
}

/* matmul(a, b): b [K, N], turned to the [N, K] of the IR. */
Val walk_matmul(Walk *w, Frame *frame, Expr *call, Expr *const *arg)
{
    Val in[2];
    bool ok = walk_tensor(w, frame, arg[0], &in[0]);
    ok = walk_tensor(w, frame, arg[1], &in[1]) && ok;
    if (!ok)
        return val_bad();
    const Type *a = in[0].type, *b = in[1].type;
    if (a->rank < 1 || b->rank != 2 || !dim_equal(type_last(a), b->dim[0])) {
        if (first_report(call)) {
            diag_error(w->diag, call->span, E_SHAPE,
                       "matmul needs a [.., M, K] and b [K, N], but a is %s and b is %s",
                       type_text(w->arena, a), type_text(w->arena, b));
            note_type(w, &in[0], "a");
            note_type(w, &in[1], "b");
        }
        return val_bad();
    }
    FormatId fmt = in[0].fmt == in[1].fmt ? in[0].fmt : FMT_F32;
    Dim dim[LIMIT_RANK];
    for (int i = 0; i < a->rank; i++)
        dim[i] = i + 1 < a->rank ? a->dim[i] : b->dim[1];
    const Type *type = walk_type(w, call, FMT_F32, a->rank, dim);
    if (!type)
        return val_bad();
    in[0] = walk_cast(w, in[0], fmt, call->span);
    in[1] = walk_cast(w, in[1], fmt, call->span);
    Attr turn = {.num_perm = 2, .perm = {1, 0}};
    Dim turned[2] = {b->dim[1], b->dim[0]};
    in[1] =
        walk_emit(w, OP_TRANSPOSE, &turn, type_plain(w->m, fmt, 2, turned), 1, &in[1], call->span);
    Attr attr = {0};
    Val out = walk_emit(w, OP_MATMUL, &attr, type, 2, in, call->span);
    out.fmt = fmt;
    out.label = NULL;
    return out;
}
