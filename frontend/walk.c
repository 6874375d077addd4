/* walk: expands the model: runs its statements, loops and blocks in order, with an integer for
 * every index and a typed value for every name. */
#include "frontend/sema.h"
#include <string.h>

/* Recursion of the walk: bodies inside bodies and expressions inside expressions together. */
#define LIMIT_WALK_DEPTH 3000

static void walk_stmts(Walk *w, Frame *frame, const StmtList *list);

bool walk_step(Walk *w, Span span)
{
    if (w->stopped)
        return false;
    w->steps++;
    if (w->num_ops <= LIMIT_OPS && w->steps <= 8 * (int64_t)LIMIT_OPS)
        return true;
    w->stopped = true;
    diag_error(w->diag, span, E_LIMIT, "the model expands to more than %d operations", LIMIT_OPS);
    return false;
}

/* Blocks -------------------------------------------------------------------------------------- */

static bool pass_input(Walk *w, const Decl *decl, const Type *type, Expr *at, Val *val)
{
    if (val->kind != VAL_TENSOR || !type)
        return false;
    if (!type_same_shape(val->type, type) ||
        (val->type->fmt == FMT_I32) != (type->fmt == FMT_I32)) {
        if (first_report(at)) {
            diag_error(w->diag, at->span, E_SHAPE, "%s given for an input of type %s",
                       type_text(w->arena, val->type), type_text(w->arena, type));
            diag_note(w->diag, decl->span, "input '%s' is declared here", decl->name.text);
            note_type(w, val, NULL);
        }
        return false;
    }
    *val = walk_cast(w, *val, type->fmt, at->span);
    val->fmt = type->fmt;
    val->label = NULL;
    return true;
}

/* One result leaves its body in the declared type. */
static Val pass_result(Walk *w, const Decl *decl, const Type *type, Span span, Expr *at, Val val)
{
    if (val.kind == VAL_NUMBER) {
        if (!at || first_report(at))
            diag_error(w->diag, span, E_WRONG_KIND, "a number where a tensor is needed");
        return val_bad();
    }
    if (val.kind == VAL_ROUTE && (!at || first_report(at)))
        report_route(w, span, decl->name.text, &val);
    if (val.kind == VAL_TENSOR && val.type->fmt == FMT_I32) {
        if (!at || first_report(at))
            report_counts(w, span, &val);
        return val_bad();
    }
    if (val.kind != VAL_TENSOR || !type)
        return val_bad();
    if (!type_same_shape(val.type, type)) {
        if (!at || first_report(at)) {
            diag_error(w->diag, span, E_SHAPE, "the result is %s, but %s is declared",
                       type_text(w->arena, val.type), type_text(w->arena, type));
            diag_note(w->diag, decl->span, "declared here");
            note_type(w, &val, NULL);
        }
        return val_bad();
    }
    val = walk_cast(w, val, type->fmt, span);
    val.fmt = type->fmt;
    return val;
}

static Val *frame_slots(Walk *w, BodyInfo *info)
{
    size_t num = (size_t)info->slots.num;
    if (!info->frame)
        info->frame = ARENA_NEW_ARRAY(w->s->arena, Val, num + 1);
    memset(info->frame, 0, (num + 1) * sizeof *info->frame);
    return info->frame;
}

/* Runs the body with its inputs in their slots; results in ret. */
static void run_body(Walk *w, Frame *frame, Val *ret)
{
    const Item *item = frame->item;
    const BodyInfo *info = item->info;
    frame->ret = ret;
    for (int i = 0; i < item->results.num; i++)
        ret[i] = val_bad();
    walk_stmts(w, frame, &item->body);
    for (int i = 0; info->named_results && i < item->results.num; i++) {
        const Decl *decl = &item->results.elem[i];
        const Val *val = &frame->slot[info->first_result + i];
        const Type *type = walk_type_expr(w, frame, &item->results.elem[i].type, false);
        Expr *at = decl->type.dims.num ? decl->type.dims.elem[0] : NULL;
        ret[i] =
            pass_result(w, decl, type, info->slots.elem[info->first_result + i].assigned, at, *val);
    }
}

static int find_input(const Item *item, const char *name)
{
    for (int i = 0; i < item->inputs.num; i++) {
        if (item->inputs.elem[i].name.text == name)
            return i;
    }
    return -1;
}

/* Arguments of a block, in the order of its inputs. */
static bool bind_inputs(Walk *w, Expr *call, Expr **ret)
{
    const Item *item = call->item;
    int num = 0;
    memset(ret, 0, (size_t)item->inputs.num * sizeof(Expr *));
    for (int i = 0; i < call->args.num; i++) {
        const Arg *arg = &call->args.elem[i];
        int slot = arg->name.text ? find_input(item, arg->name.text) : num++;
        if (slot < 0 || slot >= item->inputs.num || ret[slot]) {
            if (first_report(call)) {
                diag_error(w->diag, arg->value->span, E_ARGUMENTS,
                           slot < 0                   ? "block '%s' has no such input"
                           : slot >= item->inputs.num ? "too many arguments for block '%s'"
                                                      : "an input of block '%s' is given twice",
                           item->name.text);
                diag_note(w->diag, item->head, "defined here");
            }
            return false;
        }
        ret[slot] = arg->value;
    }
    for (int i = 0; i < item->inputs.num; i++) {
        if (ret[i])
            continue;
        if (first_report(call)) {
            diag_error(w->diag, call->span, E_ARGUMENTS, "input '%s' of block '%s' is missing",
                       item->inputs.elem[i].name.text, item->name.text);
            diag_note(w->diag, item->inputs.elem[i].span, "declared here");
        }
        return false;
    }
    return true;
}

static bool block_index(Walk *w, Frame *frame, Expr *call, int64_t *ret)
{
    const Item *item = call->item;
    *ret = 0;
    if ((call->index != NULL) != (item->index.text != NULL)) {
        if (first_report(call)) {
            diag_error(w->diag, call->name.span, E_ARGUMENTS,
                       call->index ? "block '%s' has no index" : "block '%s' needs an index",
                       item->name.text);
            diag_note(w->diag, item->head, "defined here");
        }
        return false;
    }
    return !call->index || eval_int(w->s, frame, call->index, ret);
}

static bool open_block(Walk *w, Frame *frame, Expr *call, Frame *inner, int64_t index)
{
    Item *item = call->item;
    Expr **arg = ARENA_NEW_ARRAY(w->arena, Expr *, (size_t)item->inputs.num + 1);
    Val *val = ARENA_NEW_ARRAY(w->arena, Val, (size_t)item->inputs.num + 1);
    if (!bind_inputs(w, call, arg))
        return false;
    bool ok = true;
    for (int i = 0; i < item->inputs.num; i++)
        ok = walk_input(w, frame, arg[i], &val[i]) && ok;
    if (!ok)
        return false;
    *inner = (Frame){.item = item, .slot = frame_slots(w, item->info)};
    int slot = 0;
    if (item->info->index_slot >= 0) {
        inner->slot[item->info->index_slot] = (Val){.kind = VAL_INT, .integer = index};
        slot = 1;
    }
    for (int i = 0; i < item->inputs.num; i++) {
        const Type *type = walk_type_expr(w, inner, &item->inputs.elem[i].type, false);
        ok = pass_input(w, &item->inputs.elem[i], type, arg[i], &val[i]) && ok;
        inner->slot[slot + i] = val[i];
    }
    return ok;
}

static void walk_block(Walk *w, Frame *frame, Expr *call, Val *ret)
{
    Item *item = call->item;
    Frame inner;
    int64_t index;
    for (int i = 0; i < item->results.num; i++)
        ret[i] = val_bad();
    if (item->info->calls == STATE_BAD || item->lost || !block_index(w, frame, call, &index) ||
        !open_block(w, frame, call, &inner, index))
        return;
    w->path[w->num_path++] = (Step){item->name.text, call->index != NULL, index};
    if (w->counting && call->index)
        rules_count_index(w);
    run_body(w, &inner, ret);
    w->num_path--;
    for (int i = 0; i < item->results.num; i++)
        ret[i].origin = call->span;
}

/* Statements ----------------------------------------------------------------------------------- */

/* {i} stands for an index or a constant, {{ and }} for braces. NULL after reporting. */
static const char *tensor_name(Walk *w, const Frame *frame, Stmt *stmt, Word pattern)
{
    const char *from = pattern.text;
    Sb sb;
    sb_init(&sb, w->m->arena);
    for (const char *c = from; *c; c++) {
        if ((*c == '{' || *c == '}') && c[1] == *c) {
            sb_putc(&sb, *c++);
            continue;
        }
        const char *end = *c == '{' ? strchr(c, '}') : NULL;
        if (*c == '}' || (*c == '{' && !end)) {
            if (!stmt->reported)
                diag_error(w->diag, pattern.span, E_BAD_STRING,
                           "a '%c' without its pair; '%c%c' stands for one", *c, *c, *c);
            stmt->reported = true;
            return NULL;
        }
        if (!end) {
            sb_putc(&sb, *c);
            continue;
        }
        const char *name = intern(w->s->ast->names, c + 1, (size_t)(end - c - 1));
        const BodyInfo *info = frame->item->info;
        const Item *item = map_get(&w->s->globals, name);
        if (info->index_slot >= 0 && info->slots.elem[info->index_slot].name.text == name) {
            sb_printf(&sb, "%lld", (long long)frame->slot[info->index_slot].integer);
        } else if (item && item->kind == ITEM_CONST) {
            item->constant->used = true;
            sb_printf(&sb, "%lld", (long long)item->constant->value);
        } else {
            if (!stmt->reported)
                diag_error(w->diag, pattern.span, E_UNKNOWN_NAME,
                           "'{%s}' names neither the index of this block nor a constant", name);
            stmt->reported = true;
            return NULL;
        }
        c = end;
    }
    return sb.text;
}

static const char *dotted_name(Walk *w, const char *name)
{
    Sb sb;
    if (w->num_path == 0)
        return name;
    sb_init(&sb, w->m->arena);
    for (int i = 0; i < w->num_path; i++) {
        sb_printf(&sb, "%s.", w->path[i].name);
        if (w->path[i].has_index && w->path[i].index >= 0)
            sb_printf(&sb, "%lld.", (long long)w->path[i].index);
    }
    sb_put(&sb, name);
    return sb.text;
}

static const char *own_path(Walk *w, const char *name)
{
    w->path[w->num_path++] = (Step){.name = name};
    const char *text = walk_path_text(w);
    w->num_path--;
    return text;
}

/* The tensors that hold a weight which is stored quantised; *ret is the codes'. */
static const ConstParts *param_parts(Walk *w, const Frame *frame, Stmt *stmt, const char **ret)
{
    ConstParts *parts = ARENA_NEW(w->m->arena, ConstParts);
    const struct {
        const char *role, **name;
    } part[] = {{"codes", ret},           {"scale", &parts->scale},
                {"zero", &parts->zero},   {"offset", &parts->offset},
                {"outer", &parts->outer}, {"table", &parts->table}};
    *parts = (ConstParts){.scheme = scheme_intern(w->m, &stmt->stored->weight)};
    *ret = NULL;
    for (int i = 0; i < stmt->from.parts.num; i++) {
        const Part *from = &stmt->from.parts.elem[i];
        const char *name = tensor_name(w, frame, stmt, from->tensor);
        if (!name)
            return NULL;
        for (size_t k = 0; k < COUNT_OF(part); k++)
            if (!strcmp(part[k].role, from->role.text))
                *part[k].name = name;
    }
    return parts;
}

/* One constant for all params that are the same tensors. */
static const char *const_key(Walk *w, const char *tensor, const ConstParts *parts)
{
    if (!parts)
        return tensor;
    return arena_printf(w->arena, "%s\n%s\n%s\n%s\n%s\n%s\n%p", tensor, parts->scale,
                        parts->zero ? parts->zero : "", parts->offset ? parts->offset : "",
                        parts->outer ? parts->outer : "", parts->table ? parts->table : "",
                        (const void *)parts->scheme);
}

static void param_build(Walk *w, Val *val, const Stmt *stmt, const char *tensor,
                        const ConstParts *parts)
{
    const char *key = const_key(w, tensor, parts);
    Value *known = map_get(&w->consts, key);
    if (known && known->type == val->type) {
        val->value = known;
        return;
    }
    Const constant = {.kind = CONST_WEIGHT, .name = tensor, .parts = parts};
    val->value = build_const(w->m, &w->m->body, NULL, val->type, &constant, stmt->span);
    if (!val->value)
        BUG("a param of type %s was refused", type_text(w->arena, val->type));
    val->value->name = dotted_name(w, stmt->decl.name.text);
    map_put(&w->consts, key, val->value);
}

static void walk_param(Walk *w, Frame *frame, Stmt *stmt)
{
    Val *val = &frame->slot[*stmt->slot];
    const char *name = stmt->decl.name.text, *tensor;
    const ConstParts *parts = NULL;
    TypeExpr plain = stmt->decl.type;
    *val = val_bad();
    if (stmt->has_bad)
        return;
    if (stmt->stored)
        plain.fmt.text = "f32"; /* what its codes stand for */
    const Type *type = walk_type_expr(w, frame, &plain, true);
    if (stmt->stored)
        parts = param_parts(w, frame, stmt, &tensor);
    else
        tensor = stmt->from.tensor.text ? tensor_name(w, frame, stmt, stmt->from.tensor)
                                        : own_path(w, name);
    if (!type || !tensor || (stmt->stored && !parts))
        return;
    *val = (Val){.kind = VAL_TENSOR,
                 .fmt = type->fmt,
                 .is_const = true,
                 .type = type,
                 .origin = stmt->decl.span,
                 .label = name};
    if (w->build)
        param_build(w, val, stmt, tensor, parts);
}

static void name_value(Walk *w, const Val *val, const char *name)
{
    if (val->value && !val->value->name)
        val->value->name = dotted_name(w, name);
}

static void name_route(Walk *w, const Route *route, const char *name)
{
    const struct {
        const Val *val;
        const char *name;
    } part[] = {{&route->index, "index"},
                {&route->weights, "weights"},
                {&route->ends, "ends"},
                {&route->places, "places"},
                {&route->sources, "sources"}};
    for (size_t i = 0; i < COUNT_OF(part) && w->build; i++)
        name_value(w, part[i].val, arena_printf(w->m->arena, "%s.%s", name, part[i].name));
}

static void assign(Walk *w, Frame *frame, Stmt *stmt, int target, Val val)
{
    const char *name = stmt->targets.elem[target].text;
    if (val.kind == VAL_TENSOR && val.is_const)
        val.label = name;
    name_value(w, &val, name);
    if (val.kind == VAL_ROUTE)
        name_route(w, val.route, name);
    frame->slot[stmt->slot[target]] = val;
}

/* How many results a call gives; 1 for all but split and blocks. */
static int num_results(const Expr *expr, int num_targets)
{
    if (expr->kind != EXPR_CALL)
        return 1;
    if (expr->ref == REF_BLOCK)
        return expr->item->results.num;
    return expr->ref == REF_OP && call_info[expr->slot].kind == CALL_SPLIT ? num_targets : 1;
}

static void report_results(Walk *w, const Stmt *stmt, const Expr *expr, int num, int has)
{
    diag_error(w->diag, stmt->targets.elem[0].span, E_ARGUMENTS, "%d name%s for %d result%s", num,
               num == 1 ? "" : "s", has, has == 1 ? "" : "s");
    if (expr->ref == REF_OP && call_info[expr->slot].kind == CALL_TOPK)
        diag_help(w->diag, "topk gives one route, of each row's groups and their weights");
}

static void walk_assign(Walk *w, Frame *frame, Stmt *stmt)
{
    Expr *expr = stmt->values.elem[0];
    int num = stmt->targets.num, has = num_results(expr, num);
    bool bad = expr->kind == EXPR_BAD || expr->ref == REF_BAD;
    if (!bad && has != num) {
        if (first_report(expr))
            report_results(w, stmt, expr, num, has);
        bad = true;
    }
    for (int i = 0; bad && i < num; i++)
        frame->slot[stmt->slot[i]] = val_bad();
    if (bad)
        return;
    if (has == 1 && !(expr->kind == EXPR_CALL && expr->ref == REF_OP &&
                      call_info[expr->slot].kind == CALL_SPLIT)) {
        assign(w, frame, stmt, 0, walk_expr(w, frame, expr));
        return;
    }
    Val *ret = ARENA_NEW_ARRAY(w->arena, Val, (size_t)num);
    if (expr->ref == REF_BLOCK)
        walk_block(w, frame, expr, ret);
    else if (!walk_split(w, frame, expr, num, ret)) {
        for (int i = 0; i < num; i++)
            ret[i] = val_bad();
    }
    for (int i = 0; i < num; i++)
        assign(w, frame, stmt, i, ret[i]);
}

static void walk_return(Walk *w, Frame *frame, Stmt *stmt)
{
    const Item *item = frame->item;
    for (int i = 0; i < stmt->values.num; i++) {
        Val val = walk_expr(w, frame, stmt->values.elem[i]);
        if (item->info->named_results || i >= item->results.num || !frame->ret)
            continue;
        const Type *type = walk_type_expr(w, frame, &item->results.elem[i].type, false);
        frame->ret[i] = pass_result(w, &item->results.elem[i], type, stmt->values.elem[i]->span,
                                    stmt->values.elem[i], val);
    }
}

static void walk_for(Walk *w, Frame *frame, Stmt *stmt)
{
    int64_t first = 0, end = 0;
    bool ok = eval_int(w->s, frame, stmt->values.elem[0], &first);
    ok = eval_int(w->s, frame, stmt->values.elem[1], &end) && ok;
    if (ok && end < first && first_report(stmt->values.elem[1]))
        diag_error(w->diag, stmt->values.elem[1]->span, E_NUMBER, "the loop goes from %lld to %lld",
                   (long long)first, (long long)end);
    if (!ok || end <= first) { /* the body is checked all the same */
        first -= first == INT64_MAX;
        end = first + (w->build ? 0 : 1);
    }
    for (int64_t i = first; i < end && walk_step(w, stmt->span); i++) {
        frame->slot[*stmt->slot] = (Val){.kind = VAL_INT, .integer = i};
        walk_stmts(w, frame, &stmt->body);
    }
}

static void walk_stmts(Walk *w, Frame *frame, const StmtList *list)
{
    for (int i = 0; i < list->num; i++) {
        Stmt *stmt = list->elem[i];
        if (!walk_step(w, stmt->span))
            return;
        switch (stmt->kind) {
        case STMT_BAD: break;
        case STMT_PARAM: walk_param(w, frame, stmt); break;
        case STMT_ASSIGN: walk_assign(w, frame, stmt); break;
        case STMT_RETURN: walk_return(w, frame, stmt); break;
        case STMT_FOR: walk_for(w, frame, stmt); break;
        }
    }
}

/* Expressions ---------------------------------------------------------------------------------- */

static Val number(double value)
{
    return (Val){.kind = VAL_NUMBER, .number = value};
}

static Val walk_name(Walk *w, Frame *frame, Expr *expr)
{
    switch (expr->ref) {
    case REF_SLOT: return frame->slot[expr->slot];
    case REF_INDEX: return number((double)frame->slot[expr->slot].integer);
    case REF_CONST:
        return expr->item->constant->state == STATE_DONE
                   ? number((double)expr->item->constant->value)
                   : val_bad();
    case REF_DIM:
        if (first_report(expr)) {
            diag_error(w->diag, expr->span, E_WRONG_KIND, "dim '%s' cannot be used as a number",
                       expr->name.text);
            diag_note(w->diag, expr->item->name.span, "declared here");
        }
        return val_bad();
    default: return val_bad();
    }
}

static Val walk_arithmetic(Walk *w, Frame *frame, Expr *expr)
{
    Val a = walk_operand(w, frame, expr->lhs);
    Val b = walk_operand(w, frame, expr->rhs);
    OpKind kind = expr->op == '+'   ? OP_ADD
                  : expr->op == '-' ? OP_SUB
                  : expr->op == '*' ? OP_MUL
                                    : OP_DIV;
    if (a.kind != VAL_NUMBER || b.kind != VAL_NUMBER)
        return walk_binary(w, expr, kind, &a, &b);
    switch (kind) {
    case OP_ADD: return number(a.number + b.number);
    case OP_SUB: return number(a.number - b.number);
    case OP_MUL: return number(a.number * b.number);
    default:
        if (b.number == 0 && first_report(expr))
            diag_error(w->diag, expr->span, E_NUMBER, "division by zero");
        return b.number == 0 ? val_bad() : number(a.number / b.number);
    }
}

static Val walk_negation(Walk *w, Frame *frame, Expr *expr)
{
    Val a = walk_operand(w, frame, expr->lhs);
    if (a.kind == VAL_NUMBER)
        return number(-a.number);
    Val minus = number(-1);
    return walk_binary(w, expr, OP_MUL, &a, &minus);
}

static bool is_linear(const Expr *call)
{
    if (call->kind != EXPR_CALL || call->ref != REF_OP)
        return false;
    CallKind kind = call_info[call->slot].kind;
    return kind == CALL_LINEAR || kind == CALL_GROUPED_LINEAR;
}

static Val walk_at(Walk *w, Frame *frame, Expr *expr)
{
    Expr *call = expr->lhs;
    bool linear = is_linear(call);
    if (!linear && call->kind != EXPR_BAD && call->ref != REF_BAD && first_report(expr)) {
        diag_error(w->diag, expr->name.span, E_WRONG_KIND,
                   "only linear(..) and grouped_linear(..) take a scheme");
        diag_note(w->diag, call->span, "this is not a linear layer");
    }
    if (!linear || !expr->item || expr->item->scheme->bad) {
        walk_expr(w, frame, call);
        return val_bad();
    }
    return walk_call(w, frame, call, expr->item);
}

static Val walk_one_result(Walk *w, Frame *frame, Expr *expr)
{
    if (expr->ref == REF_OP)
        return walk_call(w, frame, expr, NULL);
    if (expr->ref != REF_BLOCK)
        return val_bad();
    int num = expr->item->results.num;
    Val one, *ret = num == 1 ? &one : ARENA_NEW_ARRAY(w->arena, Val, (size_t)num + 1);
    walk_block(w, frame, expr, ret);
    if (num == 1)
        return one;
    if (first_report(expr))
        diag_error(w->diag, expr->span, E_ARGUMENTS,
                   "block '%s' has %d results, one is needed here", expr->name.text, num);
    return val_bad();
}

static Val walk_kind(Walk *w, Frame *frame, Expr *expr)
{
    switch (expr->kind) {
    case EXPR_BAD: return val_bad();
    case EXPR_INT: return number((double)expr->integer);
    case EXPR_REAL: return number(expr->real);
    case EXPR_NAME: return walk_name(w, frame, expr);
    case EXPR_NEG: return walk_negation(w, frame, expr);
    case EXPR_BINARY: return walk_arithmetic(w, frame, expr);
    case EXPR_AT: return walk_at(w, frame, expr);
    case EXPR_CALL: return walk_one_result(w, frame, expr);
    case EXPR_LIST:
        if (first_report(expr))
            diag_error(w->diag, expr->span, E_WRONG_KIND, "a list where a tensor is needed");
        return val_bad();
    }
    return val_bad();
}

Val walk_expr(Walk *w, Frame *frame, Expr *expr)
{
    if (w->depth >= LIMIT_WALK_DEPTH) {
        if (!w->stopped)
            diag_error(w->diag, expr->span, E_LIMIT, "blocks and expressions nested too deeply");
        w->stopped = true;
    }
    if (!walk_step(w, expr->span))
        return val_bad();
    w->depth++;
    Val val = walk_kind(w, frame, expr);
    w->depth--;
    return val;
}

/* Whole bodies --------------------------------------------------------------------------------- */

void walk_dims(Walk *w)
{
    for (int i = 0; i < w->s->items.num; i++) {
        Item *item = w->s->items.elem[i];
        if (item->kind != ITEM_DIM || item->dim->bad || !item->dim->used)
            continue;
        item->dim->sym = module_add_sym(w->m, item->name.text, item->dim->num_sizes,
                                        item->dim->size, item->span);
    }
}

/* Inputs straight from their declarations. */
static bool declare_inputs(Walk *w, Frame *frame)
{
    const Item *item = frame->item;
    bool ok = true;
    int slot = item->info->index_slot >= 0 ? 1 : 0;
    for (int i = 0; i < item->inputs.num; i++) {
        const Decl *decl = &item->inputs.elem[i];
        const Type *type = walk_type_expr(w, frame, &item->inputs.elem[i].type, false);
        Val *val = &frame->slot[slot + i];
        *val = val_bad();
        ok = ok && type;
        if (!type)
            continue;
        *val = (Val){.kind = VAL_TENSOR,
                     .fmt = type->fmt,
                     .type = type,
                     .order = w->in_model ? NULL : &unknown_order, /* of a block: its caller's */
                     .id = -1 - i,
                     .origin = decl->span};
        if (w->build)
            val->value = build_input(w->m, decl->name.text, type, decl->span);
    }
    return ok;
}

/* A dim gets its size from an input. */
static void check_dims_bound(Walk *w, const Frame *frame)
{
    for (int k = 0; k < w->m->syms.num; k++) {
        const Sym *sym = w->m->syms.elem[k];
        bool bound = false;
        for (int i = 0; i < frame->item->inputs.num; i++) {
            const Type *type = frame->slot[i].type;
            for (int d = 0; type && d < type->rank; d++)
                bound = bound || dim_equal(type->dim[d], dim_sym(sym));
        }
        if (!bound) {
            diag_error(w->diag, sym->span, E_DIM,
                       "no input of the model has '%s' as a dimension, so nothing sets its size",
                       sym->name);
            diag_note(w->diag, frame->item->head, "the model");
        }
    }
}

void walk_model(Walk *w)
{
    Item *item = w->s->model;
    Frame frame = {.item = item, .slot = frame_slots(w, item->info)};
    Val *ret = ARENA_NEW_ARRAY(w->arena, Val, (size_t)item->results.num + 1);
    w->in_model = true;
    walk_dims(w);
    if (item->lost)
        return;
    if (declare_inputs(w, &frame) && !w->build)
        check_dims_bound(w, &frame);
    run_body(w, &frame, ret);
    for (int i = 0; w->build && i < item->results.num; i++)
        build_output(w->m, item->results.elem[i].name.text, ret[i].value,
                     item->results.elem[i].span);
}

void walk_block_alone(Walk *w, Item *item)
{
    if (item->lost || item->info->calls == STATE_BAD)
        return;
    Frame frame = {.item = item, .slot = frame_slots(w, item->info)};
    Val *ret = ARENA_NEW_ARRAY(w->arena, Val, (size_t)item->results.num + 1);
    w->in_model = false;
    if (item->info->index_slot >= 0)
        frame.slot[item->info->index_slot] = (Val){.kind = VAL_INT};
    declare_inputs(w, &frame);
    w->path[0] = (Step){item->name.text, item->index.text != NULL, 0};
    w->num_path = 1;
    run_body(w, &frame, ret);
    w->num_path = 0;
}
