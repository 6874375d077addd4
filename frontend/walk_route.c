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

/* Orders of rows ------------------------------------------------------------------------------- */

const RowOrder unknown_order;

/* The choices decide alone, whatever weighs them. */
static bool routes_equal(const Route *a, const Route *b)
{
    return a == b || (a->of.id && a->of.id == b->of.id && a->choices == b->choices);
}

static bool orders_equal(const RowOrder *a, const RowOrder *b)
{
    if (a == b || (a && !a->route) || (b && !b->route))
        return true;
    return a && b && routes_equal(a->route, b->route);
}

static void note_dispatched(Walk *w, RowsArg arg)
{
    diag_note(w->diag, arg.val->order->dispatched, "the rows of %s were dispatched here", arg.what);
}

bool orders_agree(Walk *w, Expr *at, RowsArg a, RowsArg b)
{
    if (orders_equal(a.val->order, b.val->order))
        return true;
    if (!first_report(at))
        return false;
    const char *name =
        at->kind == EXPR_CALL ? at->name.text : arena_printf(w->arena, "'%c'", at->op);
    if (a.val->order && b.val->order) {
        diag_error(w->diag, at->span, E_ROW_ORDER,
                   "%s: the rows of %s were dispatched by one route, those of %s by another", name,
                   a.what, b.what);
        note_dispatched(w, a);
        note_dispatched(w, b);
        return false;
    }
    RowsArg routed = a.val->order ? a : b, plain = a.val->order ? b : a;
    diag_error(w->diag, at->span, E_ROW_ORDER,
               "%s: the rows of %s were dispatched, those of %s were not", name, routed.what,
               plain.what);
    note_dispatched(w, routed);
    note_type(w, plain.val, plain.what);
    diag_help(w->diag, "dispatch(x, route=r) brings rows into the order of the groups, combine(x, "
                       "route=r) brings them back");
    return false;
}

/* Axis 0 of a result is that of this operand. */
static bool leads(const Type *type, const Val *in)
{
    return in->type->rank == type->rank && type->rank > 0 &&
           dim_equal(in->type->dim[0], type->dim[0]);
}

bool broadcast_orders_agree(Walk *w, Expr *at, const Type *type, RowsArg a, RowsArg b)
{
    /* A param has no rows of the model's: it stands for what its author says. */
    if (!leads(type, a.val) || !leads(type, b.val) || a.val->is_const || b.val->is_const)
        return true;
    return orders_agree(w, at, a, b);
}

static const RowOrder *order_if(bool kept, const RowOrder *order)
{
    return kept || !order ? order : &unknown_order;
}

/* Of elementwise operations and of concat along other axes. */
static const RowOrder *join_orders(const Type *type, int num_in, const Val *in)
{
    const RowOrder *ret = NULL;
    for (int i = 0; i < num_in; i++) {
        const RowOrder *order = order_if(leads(type, &in[i]), in[i].order);
        if (!ret || (order && !ret->route))
            ret = order ? order : ret;
    }
    return ret;
}

const RowOrder *order_of_result(OpKind kind, const Attr *attr, const Type *type, int num_in,
                                const Val *in)
{
    const RowOrder *order = in[0].order;
    bool has_rows = type->rank > 1; /* beside columns */
    switch (kind) {
    case OP_TOPK:
    case OP_TAKE:
    case OP_GROUP_ENDS:
    case OP_GROUP_PLACES:
    case OP_GROUP_SOURCES:
    case OP_DISPATCH:
    case OP_COMBINE:
    case OP_SPREAD: return NULL; /* walk_topk and the moves know theirs */
    case OP_RESHAPE:
        return order_if(has_rows && dim_equal(in[0].type->dim[0], type->dim[0]), order);
    case OP_TRANSPOSE: return order_if(attr->perm[0] == 0, order);
    case OP_SLICE: return order_if(attr->axis != 0, order);
    case OP_CONCAT: return attr->axis ? join_orders(type, num_in, in) : order_if(false, order);
    case OP_MATMUL:
    case OP_MASK:
    case OP_RMSNORM:
    case OP_LAYERNORM:
    case OP_SOFTMAX: return order_if(has_rows, order);
    default: return join_orders(type, num_in, in);
    }
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
    if (weights->kind != VAL_TENSOR)
        return true;
    if (type_same_shape(x->type, weights->type))
        return orders_agree(w, call, (RowsArg){x, "x"}, (RowsArg){weights, "weights"});
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
    *route = (Route){.of = x, .choices = k, .rows = x.type->dim[0], .groups = x.type->dim[1]};
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
    if (!type || !orders_agree(w, call, (RowsArg){&x, "x"}, (RowsArg){&route->of, "topk's x"}))
        return val_bad();
    Val in[2] = {walk_cast(w, x, x.fmt, call->span), route->sources};
    Val out = walk_emit(w, OP_DISPATCH, NULL, type, 2, in, call->span);
    RowOrder *order = ARENA_NEW(w->arena, RowOrder);
    *order = (RowOrder){.route = route, .dispatched = call->span};
    out.order = order;
    return out;
}

/* .. and by this one? */
static bool route_order_fits(Walk *w, Expr *call, const Val *x, const Val *route)
{
    const RowOrder wanted = {.route = route->route};
    if (x->order && orders_equal(x->order, &wanted))
        return true;
    if (first_report(call)) {
        diag_error(w->diag, call->span, E_ROW_ORDER,
                   "%s needs rows that dispatch made by this route, but those of x were %s",
                   call->name.text, x->order ? "dispatched by another" : "not dispatched");
        note_route(w, route);
        if (x->order)
            note_dispatched(w, (RowsArg){x, "x"});
        else
            note_type(w, x, "x");
        diag_help(w->diag, x->order
                               ? "one route goes to dispatch, combine and all between them: r = "
                                 "topk(..) gives it a name"
                               : "dispatch(x, route=r) brings the rows into the order of the "
                                 "groups");
    }
    return false;
}

bool route_rows_fit(Walk *w, Expr *call, const Val *x, const Val *route)
{
    const Route *r = route->route;
    const Type *type = x->type;
    if (type->rank == 2 && dim_equal(type->dim[0], r->routed))
        return route_order_fits(w, call, x, route);
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
    Val out = walk_emit(w, OP_COMBINE, NULL, type, 3, in, call->span);
    out.order = route->of.order;
    return out;
}
