/* What every operation of the walk needs: operands, types within the limits, casts, the op itself.
 */
#include "frontend/sema.h"

Val val_bad(void)
{
    return (Val){.kind = VAL_BAD};
}

void note_type(Walk *w, const Val *val, const char *what)
{
    const char *type = type_text(w->arena, val->type);
    if (what)
        diag_note(w->diag, val->origin, "%s is %s, from here", what, type);
    else
        diag_note(w->diag, val->origin, "%s comes from here", type);
}

/* Elements at the largest size of every dim. */
static bool count_elements(int rank, const Dim *dim, uint64_t *ret)
{
    *ret = 1;
    for (int i = 0; i < rank; i++) {
        int64_t size = dim[i].mul;
        for (int k = 0; k < 2; k++) {
            const Sym *sym = dim[i].sym[k];
            if (sym && __builtin_mul_overflow(size, sym->size[sym->num_sizes - 1], &size))
                return false;
        }
        if (__builtin_add_overflow(size, dim[i].add, &size) || size < 0 || size > LIMIT_DIM ||
            !checked_mul(*ret, (uint64_t)size, ret))
            return false;
    }
    return true;
}

const Type *walk_type(Walk *w, Expr *at, FormatId fmt, int rank, const Dim *dim)
{
    uint64_t num;
    if (count_elements(rank, dim, &num) && num <= LIMIT_ELEMENTS)
        return type_plain(w->m, fmt, rank, dim);
    if (at && first_report(at)) {
        Sb sb;
        sb_init(&sb, w->arena);
        for (int i = 0; i < rank; i++) {
            sb_put(&sb, i ? ", " : "");
            dim_print(&sb, dim[i]);
        }
        diag_error(w->diag, at->span, E_LIMIT,
                   "a tensor [%s] has more than 2^40 elements or a "
                   "dimension beyond 2^31 - 1",
                   sb.text);
    }
    return NULL;
}

const Type *walk_type_expr(Walk *w, const Frame *frame, TypeExpr *type, bool is_param)
{
    FormatId fmt = format_find(type->fmt.text);
    Dim dim[LIMIT_RANK];
    bool ok = (fmt == FMT_F32 || fmt == FMT_F16 || fmt == FMT_BF16 || fmt == FMT_I32) &&
              type->dims.num <= LIMIT_RANK;
    for (int i = 0; ok && i < type->dims.num; i++) {
        Expr *expr = type->dims.elem[i];
        ok = eval_dim(w->s, frame, expr, &dim[i]);
        if (ok && is_param && !dim_is_const(dim[i])) {
            if (first_report(expr)) {
                diag_error(w->diag, expr->span, E_DIM,
                           "the size of a param cannot depend on a dim");
                diag_note(w->diag, dim[i].sym[0]->span, "declared here");
            }
            ok = false;
        }
    }
    if (!ok)
        return NULL;
    Expr *at = type->dims.num ? type->dims.elem[0] : NULL;
    return walk_type(w, at, fmt, type->dims.num, dim);
}

/* Anything but a route. */
static Val walk_value(Walk *w, Frame *frame, Expr *expr)
{
    Val val = walk_expr(w, frame, expr);
    if (val.kind != VAL_ROUTE)
        return val;
    if (first_report(expr))
        report_route(w, expr->span, expr->kind == EXPR_NAME ? expr->name.text : NULL, &val);
    return val_bad();
}

Val walk_operand(Walk *w, Frame *frame, Expr *expr)
{
    Val val = walk_value(w, frame, expr);
    if (val.kind != VAL_TENSOR || val.type->fmt != FMT_I32)
        return val;
    if (first_report(expr))
        report_counts(w, expr->span, &val);
    return val_bad();
}

static bool need_tensor(Walk *w, Expr *expr, const Val *val)
{
    if (val->kind == VAL_NUMBER && first_report(expr))
        diag_error(w->diag, expr->span, E_WRONG_KIND, "a number where a tensor is needed");
    return val->kind == VAL_TENSOR;
}

bool walk_tensor(Walk *w, Frame *frame, Expr *expr, Val *ret)
{
    *ret = walk_operand(w, frame, expr);
    return need_tensor(w, expr, ret);
}

bool walk_input(Walk *w, Frame *frame, Expr *expr, Val *ret)
{
    *ret = walk_value(w, frame, expr);
    return need_tensor(w, expr, ret);
}

bool walk_axis(Walk *w, Frame *frame, Expr *expr, const Val *x, int64_t *ret)
{
    int rank = x->type->rank;
    *ret = -1;
    if (expr && !eval_int(w->s, frame, expr, ret))
        return false;
    if (*ret >= -rank && *ret < rank) {
        *ret += *ret < 0 ? rank : 0;
        return true;
    }
    if (expr && first_report(expr)) {
        diag_error(w->diag, expr->span, E_ATTRIBUTE, "axis %lld of a tensor of rank %d",
                   (long long)*ret, rank);
        note_type(w, x, NULL);
    }
    return false;
}

Val walk_emit(Walk *w, OpKind kind, const Attr *attr, const Type *type, int num_in, const Val *in,
              Span span)
{
    Val val = {.kind = VAL_TENSOR,
               .fmt = in[0].fmt,
               .is_const = true,
               .type = type,
               .origin = span,
               .order = order_of_result(kind, attr, type, num_in, in),
               .id = ++w->num_ops,
               .label = in[0].label};
    for (int i = 0; i < num_in; i++)
        val.is_const = val.is_const && in[i].is_const;
    if (!w->build || w->stopped)
        return val;
    Value *few[4];
    Value **value = num_in <= 4 ? few : ARENA_NEW_ARRAY(w->arena, Value *, (size_t)num_in);
    for (int i = 0; i < num_in; i++)
        value[i] = in[i].value;
    val.value = build_op(w->m, &w->m->body, NULL, kind, attr, type, num_in, value, span);
    if (!val.value || val.value->type != type)
        BUG("%s: checked as %s, built as %s", op_info[kind].name, type_text(w->arena, type),
            val.value ? type_text(w->arena, val.value->type) : "nothing");
    return val;
}

Val walk_cast(Walk *w, Val in, FormatId fmt, Span span)
{
    if (in.type->fmt == fmt)
        return in;
    const Type *type = type_plain(w->m, fmt, in.type->rank, in.type->dim);
    Val out = walk_emit(w, OP_CAST, NULL, type, 1, &in, span);
    out.origin = in.origin;
    return out;
}

Val walk_number(Walk *w, double number, Span span)
{
    Val val = {.kind = VAL_TENSOR,
               .is_const = true,
               .origin = span,
               .type = type_plain(w->m, FMT_F32, 0, NULL)};
    w->num_ops++;
    if (w->build && !w->stopped)
        val.value = build_const_f32(w->m, &w->m->body, NULL, (float)number, span);
    return val;
}
