/* Integer expressions: constants, sizes of dims, indices, dimensions of tensors. */
#include "frontend/sema.h"
#include <stdlib.h>

/* Evaluation goes down expressions and along chains of constants; beyond this the text is refused
 * before the stack is at risk. */
#define LIMIT_EVAL_DEPTH 4000

bool first_report(Expr *expr)
{
    bool first = !expr->reported;
    expr->reported = true;
    return first;
}

static bool fail(Sema *s, Expr *expr, ErrorId id, const char *text)
{
    if (first_report(expr))
        diag_error(s->diag, expr->span, id, "%s", text);
    return false;
}

static void const_eval(Sema *s, Item *item, const Expr *user)
{
    ConstInfo *info = item->constant;
    if (info->state == STATE_BUSY) {
        diag_error(s->diag, item->name.span, E_CYCLE, "the value of '%s' needs itself",
                   item->name.text);
        if (user)
            diag_note(s->diag, user->span, "needed again here");
        info->state = STATE_BAD;
    }
    if (info->state != STATE_NEW)
        return;
    info->state = STATE_BUSY;
    resolve_global(s, item->value);
    bool ok = eval_int(s, NULL, item->value, &info->value);
    info->state = ok && info->state == STATE_BUSY ? STATE_DONE : STATE_BAD;
}

static bool eval_name(Sema *s, const Frame *frame, Expr *expr, int64_t *ret)
{
    switch (expr->ref) {
    case REF_CONST:
        const_eval(s, expr->item, expr);
        *ret = expr->item->constant->value;
        return expr->item->constant->state == STATE_DONE;
    case REF_INDEX: *ret = frame->slot[expr->slot].integer; return true;
    case REF_DIM:
        if (first_report(expr)) {
            diag_error(s->diag, expr->span, E_WRONG_KIND,
                       "'%s' is a dim, whose size is not known here", expr->name.text);
            diag_note(s->diag, expr->item->name.span, "declared here");
        }
        return false;
    case REF_SLOT: return fail(s, expr, E_WRONG_KIND, "a tensor where an integer is needed");
    default: return false; /* reported */
    }
}

static bool eval_binary(Sema *s, Expr *expr, int64_t a, int64_t b, int64_t *ret)
{
    bool overflow = false;
    switch (expr->op) {
    case '+': overflow = __builtin_add_overflow(a, b, ret); break;
    case '-': overflow = __builtin_sub_overflow(a, b, ret); break;
    case '*': overflow = __builtin_mul_overflow(a, b, ret); break;
    default:
        if (b == 0)
            return fail(s, expr, E_NUMBER, "division by zero");
        if (b == -1) {
            overflow = __builtin_sub_overflow(0, a, ret);
            break;
        }
        if (a % b) {
            if (first_report(expr))
                diag_error(s->diag, expr->span, E_NUMBER, "%lld / %lld leaves a rest of %lld",
                           (long long)a, (long long)b, (long long)(a % b));
            return false;
        }
        *ret = a / b;
    }
    return overflow ? fail(s, expr, E_NUMBER, "the value does not fit into 64 bits") : true;
}

static bool eval_step(Sema *s, const Frame *frame, Expr *expr, int64_t *ret)
{
    int64_t a, b;
    switch (expr->kind) {
    case EXPR_INT: *ret = expr->integer; return true;
    case EXPR_NAME: return eval_name(s, frame, expr, ret);
    case EXPR_NEG:
        if (!eval_int(s, frame, expr->lhs, &a))
            return false;
        if (__builtin_sub_overflow(0, a, ret))
            return fail(s, expr, E_NUMBER, "the value does not fit into 64 bits");
        return true;
    case EXPR_BINARY:
        if (!eval_int(s, frame, expr->lhs, &a) || !eval_int(s, frame, expr->rhs, &b))
            return false;
        return eval_binary(s, expr, a, b, ret);
    case EXPR_BAD: return false;
    case EXPR_REAL: return fail(s, expr, E_WRONG_KIND, "an integer is needed here");
    default: return fail(s, expr, E_WRONG_KIND, "an integer expression is needed here");
    }
}

bool eval_int(Sema *s, const Frame *frame, Expr *expr, int64_t *ret)
{
    if (s->depth >= LIMIT_EVAL_DEPTH)
        return fail(s, expr, E_LIMIT, "constants that refer to each other in too long a chain");
    s->depth++;
    bool ok = eval_step(s, frame, expr, ret);
    s->depth--;
    return ok;
}

/* Dims ---------------------------------------------------------------------------------------- */

/* Exact division of each coefficient. */
static bool dim_div(Dim a, Dim b, Dim *ret)
{
    if (!dim_is_const(b) || b.add <= 0 || a.mul % b.add || a.add % b.add)
        return false;
    a.mul /= b.add;
    a.add /= b.add;
    *ret = a;
    return true;
}

static bool has_dim(const Expr *expr)
{
    switch (expr->kind) {
    case EXPR_NAME: return expr->ref == REF_DIM;
    case EXPR_NEG: return has_dim(expr->lhs);
    case EXPR_BINARY: return has_dim(expr->lhs) || has_dim(expr->rhs);
    default: return false;
    }
}

static bool eval_form(Sema *s, const Frame *frame, Expr *expr, Dim *ret)
{
    int64_t value;
    Dim a, b;
    if (!has_dim(expr)) {
        if (!eval_int(s, frame, expr, &value))
            return false;
        *ret = dim_const(value);
        return true;
    }
    if (expr->kind == EXPR_NAME) {
        if (expr->item->dim->bad)
            return false;
        *ret = dim_sym(expr->item->dim->sym);
        return true;
    }
    if (expr->kind == EXPR_NEG)
        return fail(s, expr, E_DIM, "a size cannot be negative");
    if (!eval_form(s, frame, expr->lhs, &a) || !eval_form(s, frame, expr->rhs, &b))
        return false;
    bool ok;
    switch (expr->op) {
    case '+': ok = dim_add(a, b, ret); break;
    case '-': ok = dim_mul(b, dim_const(-1), &b) && dim_add(a, b, ret); break;
    case '*': ok = dim_mul(a, b, ret); break;
    default: ok = dim_div(a, b, ret);
    }
    return ok ? true
              : fail(s, expr, E_DIM, "a size must have the form n * A * B + m, with dims A and B");
}

bool eval_dim(Sema *s, const Frame *frame, Expr *expr, Dim *ret)
{
    if (!eval_form(s, frame, expr, ret))
        return false;
    /* the smallest size of every dim gives the smallest value where mul is positive */
    int64_t lo = ret->mul, hi = ret->mul;
    for (int i = 0; i < 2; i++) {
        const Sym *sym = ret->sym[i];
        if (sym && (__builtin_mul_overflow(lo, sym->size[0], &lo) ||
                    __builtin_mul_overflow(hi, sym->size[sym->num_sizes - 1], &hi)))
            return fail(s, expr, E_DIM, "the size does not fit into 64 bits");
    }
    if (__builtin_add_overflow(lo, ret->add, &lo) || __builtin_add_overflow(hi, ret->add, &hi))
        return fail(s, expr, E_DIM, "the size does not fit into 64 bits");
    int64_t bad = lo < 1 || lo > LIMIT_DIM ? lo : hi;
    if (bad >= 1 && bad <= LIMIT_DIM)
        return true;
    if (first_report(expr))
        diag_error(s->diag, expr->span, E_DIM, "a size of %lld, but sizes lie in 1 .. %d",
                   (long long)bad, LIMIT_DIM);
    return false;
}

/* All of them --------------------------------------------------------------------------------- */

static void define(Sema *s, const char *name, int64_t value)
{
    Item *item = map_get(&s->globals, name);
    if (item && item->kind == ITEM_CONST) {
        item->constant->state = STATE_DONE;
        item->constant->value = value;
        return;
    }
    Nearest nearest;
    nearest_init(&nearest, name);
    for (int i = 0; i < s->items.num; i++) {
        if (s->items.elem[i]->kind == ITEM_CONST)
            nearest_offer(&nearest, s->items.elem[i]->name.text);
    }
    diag_error(s->diag, (Span){0}, E_DEFINE, "-D %s=%lld, but the text has no 'const %s'", name,
               (long long)value, name);
    suggest(s->diag, &nearest);
}

void consts_eval(Sema *s)
{
    for (int i = 0; s->options && i < s->options->num_defines; i++)
        define(s, s->options->define_name[i], s->options->define_value[i]);
    for (int i = 0; i < s->items.num; i++) {
        if (s->items.elem[i]->kind == ITEM_CONST)
            const_eval(s, s->items.elem[i], NULL);
    }
}

static int by_size(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Buckets ascend and differ; a text that says them otherwise is told how it is read. */
static void dim_sort_sizes(Sema *s, Item *item)
{
    DimInfo *info = item->dim;
    int num = 0;
    bool ascends = true;
    for (int i = 1; i < info->num_sizes; i++)
        ascends = ascends && info->size[i - 1] < info->size[i];
    if (ascends)
        return;
    qsort(info->size, (size_t)info->num_sizes, sizeof *info->size, by_size);
    for (int i = 0; i < info->num_sizes; i++)
        if (!i || info->size[i] != info->size[num - 1])
            info->size[num++] = info->size[i];
    info->num_sizes = num;
    Sb sb;
    sb_init(&sb, s->arena);
    for (int i = 0; i < num; i++)
        sb_printf(&sb, "%s%lld", i ? ", " : "", (long long)info->size[i]);
    diag_warning(s->diag, item->name.span, E_DIM, "the sizes of '%s' do not ascend: read as [%s]",
                 item->name.text, sb.text);
}

static void dim_eval_sizes(Sema *s, Item *item)
{
    DimInfo *info = item->dim;
    info->num_sizes = item->list.num;
    info->size = ARENA_NEW_ARRAY(s->arena, int64_t, (size_t)item->list.num + 1);
    info->bad = item->list.num == 0; /* cut off by a syntax error */
    if (item->list.num > LIMIT_BUCKETS) {
        diag_error(s->diag, item->span, E_LIMIT, "%d sizes, the limit is %d", item->list.num,
                   LIMIT_BUCKETS);
        info->bad = true;
    }
    for (int i = 0; i < item->list.num; i++) {
        Expr *expr = item->list.elem[i];
        int64_t *size = &info->size[i];
        resolve_global(s, expr);
        if (!eval_int(s, NULL, expr, size)) {
            info->bad = true;
        } else if (*size < 1 || *size > LIMIT_DIM) {
            diag_error(s->diag, expr->span, E_DIM, "a size of %lld, but sizes lie in 1 .. %d",
                       (long long)*size, LIMIT_DIM);
            info->bad = true;
        }
    }
    if (!info->bad)
        dim_sort_sizes(s, item);
}

void dims_eval(Sema *s)
{
    for (int i = 0; i < s->items.num; i++) {
        if (s->items.elem[i]->kind == ITEM_DIM)
            dim_eval_sizes(s, s->items.elem[i]);
    }
}
