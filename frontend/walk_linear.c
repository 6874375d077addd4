/* linear and matmul: operands, what the rules ask of the layer and whether it can be done. */
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

/* linear --------------------------------------------------------------------------------------- */

static bool need_constant(Walk *w, Expr *arg, const Val *val, const char *what)
{
    if (val->is_const && val->label)
        return true;
    if (first_report(arg)) {
        diag_error(w->diag, arg->span, E_WEIGHT_OPERAND, "the %s of linear is not a param", what);
        note_type(w, val, NULL);
        diag_help(w->diag, "for two computed operands use matmul(a, b), with b [K, N]");
    }
    return false;
}

static bool operands_fit(Walk *w, Expr *call, const Val *in)
{
    const Type *x = in[0].type, *weight = in[1].type, *bias = in[2].type;
    int wrong = 0; /* the operand that does not fit */
    if (x->rank < 1 || weight->rank != 2 || !dim_equal(type_last(x), weight->dim[1]))
        wrong = 1;
    else if (bias && (bias->rank != 1 || !dim_equal(bias->dim[0], weight->dim[0])))
        wrong = 2;
    if (!wrong)
        return true;
    if (!first_report(call))
        return false;
    if (wrong == 1)
        diag_error(w->diag, call->span, E_SHAPE,
                   "linear needs x [.., K] and w [N, K], but x is %s and w is %s",
                   type_text(w->arena, x), type_text(w->arena, weight));
    else
        diag_error(w->diag, call->span, E_SHAPE,
                   "linear needs w [N, K] and b [N], but w is %s and "
                   "b is %s",
                   type_text(w->arena, weight), type_text(w->arena, bias));
    note_type(w, &in[wrong - 1], wrong == 1 ? "x" : "w");
    note_type(w, &in[wrong], wrong == 1 ? "w" : "b");
    if (wrong == 1 && x->rank >= 1 && weight->rank == 2 && dim_equal(type_last(x), weight->dim[0]))
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

static Val emit_linear(Walk *w, Expr *call, Val *in, const QuantSpec *spec, const Item *scheme)
{
    FormatId fmt = in[0].fmt, plain = spec && spec->act_fmt ? spec->act_fmt : fmt;
    Dim dim[LIMIT_RANK];
    int rank = in[0].type->rank;
    for (int i = 0; i < rank; i++)
        dim[i] = i + 1 < rank ? in[0].type->dim[i] : in[1].type->dim[0];
    const Type *type = walk_type(w, call, FMT_F32, rank, dim);
    if (!type)
        return val_bad();
    if (!spec || !spec->act)
        in[0] = walk_cast(w, in[0], plain, call->span);
    if (!spec || !spec->weight)
        in[1] = walk_cast(w, in[1], plain, call->span);
    Attr attr = {.quant = spec};
    if (w->build)
        attr.layer = layer_name(w, scheme);
    Val out = walk_emit(w, OP_MATMUL, &attr, type, 2, in, call->span);
    if (in[2].kind == VAL_TENSOR) {
        Val sum[2] = {out, in[2]};
        out = walk_emit(w, OP_ADD, NULL, type, 2, sum, call->span);
    }
    out.fmt = fmt;
    out.label = NULL;
    return out;
}

Val walk_linear(Walk *w, Frame *frame, Expr *call, Expr *const *arg, const Item *scheme)
{
    Val in[3] = {{0}};
    bool ok = true;
    for (int i = 0; i < 3 && arg[i]; i++)
        ok = walk_tensor(w, frame, arg[i], &in[i]) && ok;
    if (!ok || !need_constant(w, arg[1], &in[1], "weight") ||
        (arg[2] && !need_constant(w, arg[2], &in[2], "bias")) || !operands_fit(w, call, in))
        return val_bad();
    w->path[w->num_path++] = (Step){.name = in[1].label};
    record_path(w);
    Dim k = in[1].type->dim[1];
    const QuantSpec *spec = rules_apply(w, scheme, k.add);
    Val out = spec_fits(w, call, spec, k.add) ? emit_linear(w, call, in, spec, scheme) : val_bad();
    w->num_path--;
    return out;
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
