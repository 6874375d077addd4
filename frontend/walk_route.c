/* Layers of experts: topk, which makes a route, the moves of rows that take one, and counts of rows
 * that others brought into groups. */
#include "frontend/sema.h"

static const char *dim_text(Walk *w, Dim dim)
{
    Sb sb;
    sb_init(&sb, w->arena);
    dim_print(&sb, dim);
    return sb.text;
}

static void note_route(Walk *w, const Val *route)
{
    diag_note(w->diag, route->origin, "the route is made here");
}

void report_route(Walk *w, Span span, const char *name, const Val *route)
{
    if (name) {
        diag_error(w->diag, span, E_WRONG_KIND, "'%s' is a route, not a tensor", name);
        note_route(w, route);
    } else {
        diag_error(w->diag, span, E_WRONG_KIND, "a route where a tensor is needed");
    }
    diag_help(w->diag, "dispatch, grouped_linear and combine take it: route=%s",
              name ? name : "topk(..)");
}

bool walk_route_arg(Walk *w, Frame *frame, Expr *call, Expr *arg, Val *ret)
{
    if (!arg) {
        if (first_report(call)) {
            bool counts = call_info[call->slot].kind == CALL_GROUPED_LINEAR;
            diag_error(w->diag, call->span, E_ARGUMENTS, "%s needs an argument 'route'%s",
                       call->name.text, counts ? " or 'rows'" : "");
            diag_help(w->diag, "it is used as %s", call_info[call->slot].describe);
        }
        return false;
    }
    *ret = walk_expr(w, frame, arg);
    bool is_tensor = ret->kind == VAL_TENSOR;
    if ((is_tensor || ret->kind == VAL_NUMBER) && first_report(arg)) {
        const char *what = is_tensor ? "tensor" : "number";
        if (arg->kind == EXPR_NAME)
            diag_error(w->diag, arg->span, E_WRONG_KIND, "'%s' is a %s, not a route",
                       arg->name.text, what);
        else
            diag_error(w->diag, arg->span, E_WRONG_KIND, "a %s where a route is needed", what);
        if (is_tensor)
            note_type(w, ret, NULL);
        diag_help(w->diag, "topk makes routes: r = topk(x, k), with a number for each group in x");
    }
    return ret->kind == VAL_ROUTE;
}

/* Counts of rows ------------------------------------------------------------------------------- */

void report_counts(Walk *w, Span span, const Val *counts)
{
    diag_error(w->diag, span, E_WRONG_KIND,
               "counts of rows (i32) where a tensor of numbers is needed");
    note_type(w, counts, NULL);
    diag_help(w->diag, "only grouped_linear takes them: rows=..");
}

bool walk_counts_arg(Walk *w, Frame *frame, Expr *arg, Val *ret)
{
    *ret = walk_expr(w, frame, arg);
    const Type *type = ret->kind == VAL_TENSOR ? ret->type : NULL;
    if (type && type->fmt == FMT_I32 && type->rank == 1 && dim_is_const(type->dim[0]))
        return true;
    if (ret->kind != VAL_BAD && first_report(arg)) {
        diag_error(w->diag, arg->span, E_WRONG_KIND,
                   "rows= needs an input i32 [E] of a fixed number of groups E, not %s",
                   type                     ? type_text(w->arena, type)
                   : ret->kind == VAL_ROUTE ? "a route"
                                            : "a number");
        if (type)
            note_type(w, ret, NULL);
        if (ret->kind == VAL_ROUTE)
            diag_help(w->diag, "a route goes by its own name: route=..");
    }
    return false;
}

bool counted_rows_fit(Walk *w, Expr *call, const Val *x, const Val *counts)
{
    const Type *type = x->type;
    if (type->rank == 3 && dim_equal(type->dim[0], counts->type->dim[0]))
        return true;
    if (first_report(call)) {
        diag_error(w->diag, call->span, E_SHAPE,
                   "%s needs x [%s, M, K], with the groups that rows= counts, but x is %s",
                   call->name.text, dim_text(w, counts->type->dim[0]), type_text(w->arena, type));
        note_type(w, x, "x");
        note_type(w, counts, "rows");
    }
    return false;
}

/* topk ----------------------------------------------------------------------------------------- */

/* Of x [T, E], so many of E. */
static bool choices_fit(Walk *w, Expr *call, const Val *x, const Expr *count, int64_t k)
{
    const Type *type = x->type;
    bool is_matrix = type->rank == 2 && dim_is_const(type->dim[1]);
    bool fits = is_matrix && k >= 1 && k <= type->dim[1].add;
    if (fits && k <= LIMIT_CHOICES)
        return true;
    if (fits && first_report(call)) {
        diag_error(w->diag, count->span, E_LIMIT, "k is %lld, the limit is %d choices of a row",
                   (long long)k, LIMIT_CHOICES);
        return false;
    }
    if (first_report(call)) {
        if (is_matrix)
            diag_error(w->diag, count->span, E_ATTRIBUTE,
                       "k is %lld, but x has %lld columns, one for each group", (long long)k,
                       (long long)type->dim[1].add);
        else
            diag_error(w->diag, call->span, E_SHAPE,
                       "topk needs x [T, E] with a fixed number of groups E, but x is %s",
                       type_text(w->arena, type));
        note_type(w, x, "x");
    }
    return false;
}

static bool weights_fit(Walk *w, Expr *call, const Val *x, const Val *weights)
{
    if (weights->kind != VAL_TENSOR || type_same_shape(x->type, weights->type))
        return true;
    if (first_report(call)) {
        diag_error(w->diag, call->span, E_SHAPE,
                   "topk needs x and weights of one shape, but x is %s and weights is %s",
                   type_text(w->arena, x->type), type_text(w->arena, weights->type));
        note_type(w, x, "x");
        note_type(w, weights, "weights");
    }
    return false;
}

/* weights: no tensor where those of the choices are a softmax over them. */
static void emit_route(Walk *w, Expr *call, const Val *x, const Val *weights, int64_t k, Route *ret)
{
    Dim dim[2] = {x->type->dim[0], dim_const(k)};
    bool given = weights->kind == VAL_TENSOR;
    const Type *chosen = type_plain(w->m, FMT_I32, 2, dim);
    const Type *number = type_plain(w->m, FMT_F32, 2, dim);
    const Type *ends = type_plain(w->m, FMT_I32, 1, &ret->groups);
    const Type *sources = type_plain(w->m, FMT_I32, 2, (Dim[]){ret->routed, dim_const(1)});
    Attr choose = {.count = k}, group = {.count = ret->groups.add};
    ret->index = walk_emit(w, OP_TOPK, &choose, chosen, 1, x, call->span);
    Val take[2] = {given ? *weights : *x, ret->index};
    ret->weights = walk_emit(w, OP_TAKE, NULL, number, 2, take, call->span);
    if (!given)
        ret->weights = walk_emit(w, OP_SOFTMAX, NULL, number, 1, &ret->weights, call->span);
    ret->ends = walk_emit(w, OP_GROUP_ENDS, &group, ends, 1, &ret->index, call->span);
    ret->places = walk_emit(w, OP_GROUP_PLACES, &group, chosen, 1, &ret->index, call->span);
    ret->sources = walk_emit(w, OP_GROUP_SOURCES, &group, sources, 1, &ret->index, call->span);
}

Val walk_topk(Walk *w, Frame *frame, Expr *call, Expr *const *arg)
{
    Val x, weights = {0};
    int64_t k;
    bool ok = walk_tensor(w, frame, arg[0], &x);
    ok = eval_int(w->s, frame, arg[1], &k) && ok;
    ok = (!arg[2] || walk_tensor(w, frame, arg[2], &weights)) && ok;
    if (!ok || !choices_fit(w, call, &x, arg[1], k) || !weights_fit(w, call, &x, &weights))
        return val_bad();
    Route *route = ARENA_NEW(w->arena, Route);
    *route = (Route){.rows = x.type->dim[0], .groups = x.type->dim[1]};
    if (!dim_mul(route->rows, dim_const(k), &route->routed)) {
        if (first_report(call))
            diag_error(w->diag, call->span, E_LIMIT, "%lld choices for each of %s rows",
                       (long long)k, dim_text(w, route->rows));
        return val_bad();
    }
    emit_route(w, call, &x, &weights, k, route);
    return (Val){.kind = VAL_ROUTE, .route = route, .origin = call->span};
}

/* Moves ---------------------------------------------------------------------------------------- */

Val walk_dispatch(Walk *w, Frame *frame, Expr *call, Expr *const *arg)
{
    Val x, to;
    bool ok = walk_tensor(w, frame, arg[0], &x);
    ok = walk_route_arg(w, frame, call, arg[1], &to) && ok;
    if (!ok)
        return val_bad();
    const Route *route = to.route;
    if (x.type->rank != 2 || !dim_equal(x.type->dim[0], route->rows)) {
        if (first_report(call)) {
            diag_error(w->diag, call->span, E_SHAPE,
                       "dispatch needs x [%s, D], with the rows that the route is of, but x is %s",
                       dim_text(w, route->rows), type_text(w->arena, x.type));
            note_route(w, &to);
            note_type(w, &x, "x");
        }
        return val_bad();
    }
    const Type *type = walk_type(w, call, x.fmt, 2, (Dim[]){route->routed, x.type->dim[1]});
    if (!type)
        return val_bad();
    Val in[2] = {walk_cast(w, x, x.fmt, call->span), route->sources};
    return walk_emit(w, OP_DISPATCH, NULL, type, 2, in, call->span);
}

bool route_rows_fit(Walk *w, Expr *call, const Val *x, const Val *route)
{
    const Route *r = route->route;
    const Type *type = x->type;
    if (type->rank == 2 && dim_equal(type->dim[0], r->routed))
        return true;
    if (first_report(call)) {
        diag_error(w->diag, call->span, E_SHAPE,
                   "%s needs x [%s, %s], as dispatch makes it by this route, but x is %s",
                   call->name.text, dim_text(w, r->routed),
                   call_info[call->slot].kind == CALL_COMBINE ? "N" : "K",
                   type_text(w->arena, type));
        note_route(w, route);
        note_type(w, x, "x");
        if (type->rank == 2 && dim_equal(type->dim[0], r->rows))
            diag_help(w->diag, "dispatch(x, route=r) brings the rows into the order of the groups");
    }
    return false;
}

Val walk_combine(Walk *w, Frame *frame, Expr *call, Expr *const *arg)
{
    Val x, from;
    bool ok = walk_tensor(w, frame, arg[0], &x);
    ok = walk_route_arg(w, frame, call, arg[1], &from) && ok;
    if (!ok || !route_rows_fit(w, call, &x, &from))
        return val_bad();
    const Route *route = from.route;
    const Type *type = walk_type(w, call, FMT_F32, 2, (Dim[]){route->rows, x.type->dim[1]});
    if (!type)
        return val_bad();
    Val in[3] = {x, route->places, route->weights};
    return walk_emit(w, OP_COMBINE, NULL, type, 3, in, call->span);
}
