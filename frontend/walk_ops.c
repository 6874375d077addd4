/* The operations of the language but linear and matmul: what each takes, the type it gives. */
#include "frontend/sema.h"
#include <float.h>
#include <math.h>
#include <string.h>

/* The format of values made of both: the wider; f32 for f16 with bf16. FMT_NONE: a number. */
static FormatId join_formats(FormatId a, FormatId b)
{
    if (a == FMT_NONE || a == b)
        return b;
    return b == FMT_NONE ? a : FMT_F32;
}

/* Arithmetic ----------------------------------------------------------------------------------- */

static bool broadcast(Walk *w, Expr *expr, const Val *a, const Val *b, int *ret_rank, Dim *ret)
{
    const Type *ta = a->type, *tb = b->type;
    int rank = ta->rank > tb->rank ? ta->rank : tb->rank;
    Dim one = dim_const(1);
    for (int i = 1; i <= rank; i++) {
        Dim da = i <= ta->rank ? ta->dim[ta->rank - i] : one;
        Dim db = i <= tb->rank ? tb->dim[tb->rank - i] : one;
        if (!dim_equal(da, db) && !dim_equal(da, one) && !dim_equal(db, one)) {
            if (first_report(expr)) {
                const char *what = expr->kind == EXPR_CALL ? expr->name.text
                                                           : arena_printf(w->arena, "%c", expr->op);
                diag_error(w->diag, expr->span, E_SHAPE, "'%s': %s and %s disagree", what,
                           type_text(w->arena, ta), type_text(w->arena, tb));
                note_type(w, a, "the left operand");
                note_type(w, b, "the right operand");
            }
            return false;
        }
        ret[rank - i] = dim_equal(da, one) ? db : da;
    }
    *ret_rank = rank;
    return true;
}

static bool number_operand(Walk *w, Expr *expr, Val *val)
{
    if (val->kind != VAL_NUMBER)
        return val->kind == VAL_TENSOR;
    if (!(fabs(val->number) <
          0x1.ffffffp127)) { /* half a step above the largest rounds to infinity */
        if (first_report(expr))
            diag_error(w->diag, expr->span, E_NUMBER, "%g does not fit into f32", val->number);
        return false;
    }
    *val = walk_number(w, val->number, expr->span);
    return true;
}

Val walk_binary(Walk *w, Expr *expr, OpKind kind, const Val *a, const Val *b)
{
    Val in[2] = {*a, *b};
    Dim dim[LIMIT_RANK];
    int rank;
    if (a->kind == VAL_BAD || b->kind == VAL_BAD || !number_operand(w, expr, &in[0]) ||
        !number_operand(w, expr, &in[1]) || !broadcast(w, expr, &in[0], &in[1], &rank, dim))
        return val_bad();
    const Type *type = walk_type(w, expr, FMT_F32, rank, dim);
    if (!type || !broadcast_orders_agree(w, expr, type, (RowsArg){&in[0], "the left operand"},
                                         (RowsArg){&in[1], "the right operand"}))
        return val_bad();
    Val out = walk_emit(w, kind, NULL, type, 2, in, expr->span);
    out.fmt = join_formats(in[0].fmt, in[1].fmt);
    if (!out.label)
        out.label = in[1].label;
    return out;
}

/* min and max: at least one operand is a tensor, the other may be a number. */
static Val walk_pair(Walk *w, Frame *frame, Expr *call, OpKind kind, Expr *const *arg)
{
    Val a = walk_operand(w, frame, arg[0]), b = walk_operand(w, frame, arg[1]);
    if (a.kind != VAL_NUMBER || b.kind != VAL_NUMBER)
        return walk_binary(w, call, kind, &a, &b);
    bool first = kind == OP_MIN ? a.number < b.number : a.number > b.number;
    return first ? a : b;
}

static Val walk_unary(Walk *w, Frame *frame, Expr *call, OpKind kind, Expr *const *arg)
{
    Val x;
    if (!walk_tensor(w, frame, arg[0], &x))
        return val_bad();
    const Type *type = type_plain(w->m, FMT_F32, x.type->rank, x.type->dim);
    return walk_emit(w, kind, NULL, type, 1, &x, call->span);
}

/* Rows ---------------------------------------------------------------------------------------- */

static bool need_row(Walk *w, Expr *call, const Val *x)
{
    if (x->type->rank > 0)
        return true;
    if (first_report(call))
        diag_error(w->diag, call->span, E_SHAPE, "%s needs rows, not a single number",
                   call->name.text);
    return false;
}

static bool eval_eps(Walk *w, Expr *expr, double *ret)
{
    *ret = 1e-5;
    if (!expr)
        return true;
    if (expr->kind == EXPR_REAL || expr->kind == EXPR_INT)
        *ret = expr->kind == EXPR_REAL ? expr->real : (double)expr->integer;
    else
        *ret = -1;
    if (*ret >= 0 && *ret <= FLT_MAX)
        return true;
    if (first_report(expr))
        diag_error(w->diag, expr->span, E_ATTRIBUTE,
                   "eps is one number of f32 from 0 up, such as 1e-5, without arithmetic");
    return false;
}

static Val walk_norm(Walk *w, Frame *frame, Expr *call, const CallInfo *info, Expr *const *arg)
{
    int num_in = info->kind == CALL_RMSNORM ? 2 : 3;
    Val in[3];
    Attr attr = {0};
    bool ok = true;
    for (int i = 0; i < num_in; i++)
        ok = walk_tensor(w, frame, arg[i], &in[i]) && ok;
    if (!ok || !eval_eps(w, arg[num_in], &attr.eps) || !need_row(w, call, &in[0]))
        return val_bad();
    for (int i = 1; i < num_in; i++) {
        const Type *type = in[i].type;
        if (type->rank == 1 && dim_equal(type->dim[0], type_last(in[0].type)))
            continue;
        if (first_report(call)) {
            diag_error(w->diag, arg[i]->span, E_SHAPE, "%s: rows of %s, but the %s is %s",
                       info->name, type_text(w->arena, in[0].type), info->arg[i],
                       type_text(w->arena, type));
            note_type(w, &in[0], "x");
            note_type(w, &in[i], info->arg[i]);
        }
        return val_bad();
    }
    const Type *type = type_plain(w->m, FMT_F32, in[0].type->rank, in[0].type->dim);
    return walk_emit(w, info->op, &attr, type, num_in, in, call->span);
}

static Val walk_softmax(Walk *w, Frame *frame, Expr *call, Expr *const *arg)
{
    Val x;
    int64_t axis;
    if (!walk_tensor(w, frame, arg[0], &x) || !need_row(w, call, &x) ||
        !walk_axis(w, frame, arg[1], &x, &axis))
        return val_bad();
    if (axis != x.type->rank - 1) {
        if (first_report(call)) {
            diag_error(w->diag, arg[1]->span, E_NOT_SUPPORTED,
                       "softmax along axis %lld is not supported yet, only along the last",
                       (long long)axis);
            diag_help(w->diag, "transpose before and after it");
        }
        return val_bad();
    }
    const Type *type = type_plain(w->m, FMT_F32, x.type->rank, x.type->dim);
    return walk_emit(w, OP_SOFTMAX, NULL, type, 1, &x, call->span);
}

/* Shapes --------------------------------------------------------------------------------------- */

static bool concat_fits(Walk *w, Expr *call, int64_t axis, const Val *first, const Val *next)
{
    bool fits = first->type->rank == next->type->rank;
    for (int i = 0; fits && i < first->type->rank; i++)
        fits = i == axis || dim_equal(first->type->dim[i], next->type->dim[i]);
    if (fits)
        return axis == 0 || orders_agree(w, call, (RowsArg){first, "the first operand"},
                                         (RowsArg){next, "a later one"});
    if (first_report(call)) {
        diag_error(w->diag, call->span, E_SHAPE, "concat: %s and %s differ outside axis %lld",
                   type_text(w->arena, first->type), type_text(w->arena, next->type),
                   (long long)axis);
        note_type(w, first, "one");
        note_type(w, next, "the other");
    }
    return false;
}

static Val walk_concat(Walk *w, Frame *frame, Expr *call, Expr *const *arg)
{
    int num = 0;
    bool ok = true;
    Attr attr = {0};
    FormatId fmt = FMT_NONE, stored = FMT_NONE;
    Val *in = ARENA_NEW_ARRAY(w->arena, Val, (size_t)call->args.num);
    for (int i = 0; i < call->args.num; i++) {
        if (call->args.elem[i].name.text)
            continue;
        ok = walk_tensor(w, frame, call->args.elem[i].value, &in[num]) && ok;
        if (ok) {
            fmt = join_formats(fmt, in[num].fmt);
            stored = join_formats(stored, in[num].type->fmt);
        }
        num++;
    }
    if (!ok || !need_row(w, call, &in[0]) || !walk_axis(w, frame, arg[0], &in[0], &attr.axis))
        return val_bad();
    Dim dim[LIMIT_RANK];
    memcpy(dim, in[0].type->dim, sizeof dim);
    for (int i = 1; i < num; i++) {
        if (!concat_fits(w, call, attr.axis, &in[0], &in[i]))
            return val_bad();
        if (!dim_add(dim[attr.axis], in[i].type->dim[attr.axis], &dim[attr.axis])) {
            if (first_report(call))
                diag_error(w->diag, call->span, E_DIM,
                           "concat: a sum of different dims along axis %lld", (long long)attr.axis);
            return val_bad();
        }
    }
    const Type *type = walk_type(w, call, stored, in[0].type->rank, dim);
    if (!type)
        return val_bad();
    for (int i = 0; i < num; i++)
        in[i] = walk_cast(w, in[i], stored, call->span);
    Val out = walk_emit(w, OP_CONCAT, &attr, type, num, in, call->span);
    out.fmt = fmt;
    return out;
}

static Val emit_slice(Walk *w, Expr *call, const Val *x, int64_t axis, int64_t start, int64_t stop)
{
    Attr attr = {.axis = axis, .start = start, .stop = stop};
    Dim dim[LIMIT_RANK];
    memcpy(dim, x->type->dim, sizeof dim);
    dim[axis] = dim_const(stop - start);
    const Type *type = type_plain(w->m, x->type->fmt, x->type->rank, dim);
    return walk_emit(w, OP_SLICE, &attr, type, 1, x, call->span);
}

/* The size of an axis that is cut, which must be fixed. */
static bool cut_size(Walk *w, Expr *call, const Val *x, int64_t axis, int64_t *ret)
{
    Dim dim = x->type->dim[axis];
    *ret = dim.add;
    if (dim_is_const(dim))
        return true;
    if (first_report(call)) {
        diag_error(w->diag, call->span, E_ATTRIBUTE, "axis %lld of %s has no fixed size to cut",
                   (long long)axis, type_text(w->arena, x->type));
        note_type(w, x, NULL);
    }
    return false;
}

static Val walk_slice(Walk *w, Frame *frame, Expr *call, Expr *const *arg)
{
    Val x;
    int64_t axis, size, start = 0, stop;
    if (!walk_tensor(w, frame, arg[0], &x) || !need_row(w, call, &x) ||
        !walk_axis(w, frame, arg[1], &x, &axis) || !cut_size(w, call, &x, axis, &size))
        return val_bad();
    stop = size;
    if ((arg[2] && !eval_int(w->s, frame, arg[2], &start)) ||
        (arg[3] && !eval_int(w->s, frame, arg[3], &stop)))
        return val_bad();
    if (start < 0 || stop <= start || stop > size) {
        if (first_report(call)) {
            diag_error(w->diag, call->span, E_ATTRIBUTE,
                       "%lld .. %lld does not lie in axis %lld, which has %lld elements",
                       (long long)start, (long long)stop, (long long)axis, (long long)size);
            note_type(w, &x, NULL);
        }
        return val_bad();
    }
    return emit_slice(w, call, &x, axis, start, stop);
}

/* Sizes of the parts: as listed, else equal. */
static bool split_sizes(Walk *w, Frame *frame, Expr *call, Expr *sizes, int64_t size, int num,
                        int64_t *ret)
{
    int64_t sum = 0;
    if (sizes && (sizes->kind != EXPR_LIST || sizes->list.num != num)) {
        if (first_report(sizes))
            diag_error(w->diag, sizes->span, E_ARGUMENTS,
                       "sizes is a list with %d number%s, one for each name", num,
                       num == 1 ? "" : "s");
        return false;
    }
    if (!sizes && size % num) {
        if (first_report(call))
            diag_error(w->diag, call->span, E_ATTRIBUTE,
                       "%lld elements do not split into %d equal "
                       "parts",
                       (long long)size, num);
        return false;
    }
    for (int i = 0; i < num; i++) {
        ret[i] = size / num;
        if (sizes && !eval_int(w->s, frame, sizes->list.elem[i], &ret[i]))
            return false;
        bool fits = ret[i] >= 1 && ret[i] <= size;
        sum += fits ? ret[i] : size + 1;
    }
    if (sum == size)
        return true;
    if (first_report(call))
        diag_error(w->diag, sizes ? sizes->span : call->span, E_ATTRIBUTE,
                   "the sizes do not add up to %lld", (long long)size);
    return false;
}

bool walk_split(Walk *w, Frame *frame, Expr *call, int num, Val *ret)
{
    Expr *arg[MAX_CALL_ARGS];
    Val x;
    int64_t axis, size, start = 0;
    if (call->reported || !call_bind(w->s, call, &call_info[call->slot], arg)) {
        call->reported = true;
        return false;
    }
    if (!walk_tensor(w, frame, arg[0], &x) || !need_row(w, call, &x) ||
        !walk_axis(w, frame, arg[2], &x, &axis) || !cut_size(w, call, &x, axis, &size))
        return false;
    int64_t *sizes = ARENA_NEW_ARRAY(w->arena, int64_t, (size_t)num);
    if (!split_sizes(w, frame, call, arg[1], size, num, sizes))
        return false;
    for (int i = 0; i < num; i++) {
        ret[i] = emit_slice(w, call, &x, axis, start, start + sizes[i]);
        start += sizes[i];
    }
    return true;
}

/* Equal dims are struck out on both sides; what is left must have the same product. */
static bool same_elements(const Type *a, int rank, const Dim *dim)
{
    bool struck_a[LIMIT_RANK] = {0}, struck_b[LIMIT_RANK] = {0};
    Dim left_a = dim_const(1), left_b = dim_const(1);
    for (int i = 0; i < a->rank; i++) {
        for (int j = 0; j < rank && !struck_a[i]; j++) {
            if (struck_b[j] || !dim_equal(a->dim[i], dim[j]))
                continue;
            struck_a[i] = struck_b[j] = true;
        }
        if (!struck_a[i] && !dim_mul(left_a, a->dim[i], &left_a))
            return false;
    }
    for (int j = 0; j < rank; j++) {
        if (!struck_b[j] && !dim_mul(left_b, dim[j], &left_b))
            return false;
    }
    return dim_equal(left_a, left_b);
}

static Val walk_reshape(Walk *w, Frame *frame, Expr *call, Expr *const *arg)
{
    Val x;
    Expr *shape = arg[1];
    Dim dim[LIMIT_RANK];
    if (!walk_tensor(w, frame, arg[0], &x))
        return val_bad();
    if (shape->kind != EXPR_LIST || shape->list.num > LIMIT_RANK) {
        if (first_report(shape))
            diag_error(w->diag, shape->span, E_ARGUMENTS,
                       "the new shape is a list of at most %d sizes: [B, 28, 28]", LIMIT_RANK);
        return val_bad();
    }
    for (int i = 0; i < shape->list.num; i++) {
        if (!eval_dim(w->s, frame, shape->list.elem[i], &dim[i]))
            return val_bad();
    }
    const Type *type = walk_type(w, shape, x.type->fmt, shape->list.num, dim);
    if (!type)
        return val_bad();
    if (!same_elements(x.type, type->rank, type->dim)) {
        if (first_report(call)) {
            diag_error(w->diag, shape->span, E_SHAPE,
                       "%s and %s do not have the same number of elements",
                       type_text(w->arena, x.type), type_text(w->arena, type));
            note_type(w, &x, NULL);
        }
        return val_bad();
    }
    return walk_emit(w, OP_RESHAPE, NULL, type, 1, &x, call->span);
}

static bool eval_perm(Walk *w, Frame *frame, Expr *perm, const Val *x, Attr *attr)
{
    int rank = x->type->rank;
    bool seen[LIMIT_RANK] = {0};
    attr->num_perm = rank;
    for (int i = 0; i < rank; i++)
        attr->perm[i] = i < rank - 2 ? i : 2 * rank - 3 - i;
    if (rank < 2)
        attr->perm[0] = 0;
    if (!perm)
        return true;
    bool ok = perm->kind == EXPR_LIST && perm->list.num == rank;
    for (int i = 0; ok && i < rank; i++) {
        int64_t axis;
        if (!eval_int(w->s, frame, perm->list.elem[i], &axis))
            return false;
        axis += axis < 0 ? rank : 0;
        ok = axis >= 0 && axis < rank && !seen[axis];
        if (!ok)
            break;
        seen[axis] = true;
        attr->perm[i] = (int)axis;
    }
    if (!ok && first_report(perm)) {
        diag_error(w->diag, perm->span, E_ATTRIBUTE,
                   "perm is a list that names each of %d axes once", rank);
        note_type(w, x, NULL);
    }
    return ok;
}

static Val walk_transpose(Walk *w, Frame *frame, Expr *call, Expr *const *arg)
{
    Val x;
    Attr attr = {0};
    Dim dim[LIMIT_RANK];
    if (!walk_tensor(w, frame, arg[0], &x) || !eval_perm(w, frame, arg[1], &x, &attr))
        return val_bad();
    for (int i = 0; i < x.type->rank; i++)
        dim[i] = x.type->dim[attr.perm[i]];
    const Type *type = type_plain(w->m, x.type->fmt, x.type->rank, dim);
    return walk_emit(w, OP_TRANSPOSE, &attr, type, 1, &x, call->span);
}

static Val walk_cast_call(Walk *w, Frame *frame, Expr *call, Expr *const *arg)
{
    Val x;
    Expr *name = arg[1];
    if (!walk_tensor(w, frame, arg[0], &x))
        return val_bad();
    FormatId fmt = name->kind == EXPR_NAME ? format_find(name->name.text) : FMT_NONE;
    if (fmt != FMT_F32 && fmt != FMT_F16 && fmt != FMT_BF16) {
        if (first_report(name))
            diag_error(w->diag, name->span, E_UNKNOWN_FORMAT, "cast makes f32, f16 or bf16");
        return val_bad();
    }
    Val out = walk_cast(w, x, fmt, call->span);
    out.fmt = fmt;
    return out;
}

Val walk_call(Walk *w, Frame *frame, Expr *call, const Item *scheme)
{
    const CallInfo *info = &call_info[call->slot];
    Expr *arg[MAX_CALL_ARGS];
    if (call->reported || !call_bind(w->s, call, info, arg)) {
        call->reported = true;
        return val_bad();
    }
    switch (info->kind) {
    case CALL_LINEAR: return walk_linear(w, frame, call, arg, scheme);
    case CALL_GROUPED_LINEAR: return walk_grouped_linear(w, frame, call, arg, scheme);
    case CALL_MATMUL: return walk_matmul(w, frame, call, arg);
    case CALL_UNARY: return walk_unary(w, frame, call, info->op, arg);
    case CALL_BINARY: return walk_pair(w, frame, call, info->op, arg);
    case CALL_RMSNORM:
    case CALL_LAYERNORM: return walk_norm(w, frame, call, info, arg);
    case CALL_SOFTMAX: return walk_softmax(w, frame, call, arg);
    case CALL_CONCAT: return walk_concat(w, frame, call, arg);
    case CALL_SPLIT: {
        Val one;
        return walk_split(w, frame, call, 1, &one) ? one : val_bad();
    }
    case CALL_RESHAPE: return walk_reshape(w, frame, call, arg);
    case CALL_TRANSPOSE: return walk_transpose(w, frame, call, arg);
    case CALL_SLICE: return walk_slice(w, frame, call, arg);
    case CALL_CAST: return walk_cast_call(w, frame, call, arg);
    case CALL_TOPK: return walk_topk(w, frame, call, arg);
    case CALL_DISPATCH: return walk_dispatch(w, frame, call, arg);
    case CALL_COMBINE: return walk_combine(w, frame, call, arg);
    }
    return val_bad();
}
