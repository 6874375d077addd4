/* Names: every name of a body becomes a slot, a constant, a dim, an index, a block or an operation,
 * once, before anything is expanded. Also finds what is defined twice, never or in vain. */
#include "frontend/sema.h"
#include <string.h>

typedef struct Rebound { /* a slot of an outer scope that a loop assigned */
    int slot, assigned_in;
    Span assigned;
} Rebound;

typedef struct Scope {
    int id;
    ARRAY(const char *) names; /* defined in it: forgotten at its end */
    ARRAY(Rebound) rebound;
} Scope;

typedef struct Body {
    Sema *s;
    Item *item;
    BodyInfo *info;
    Map names; /* visible now -> slot + 1 */
    Scope *scope;
    int num_scopes, last_id;
    bool lost; /* a part of an expression was lost: unused names may not be mistakes */
} Body;

static void resolve_expr(Body *b, Expr *expr);

static int *slot_handle(Body *b, int slot)
{
    int *handle = ARENA_NEW(b->s->arena, int);
    *handle = slot;
    return handle;
}

static int slot_find(const Body *b, const char *name)
{
    int *handle = map_get(&b->names, name);
    return handle ? *handle : -1;
}

static void duplicate(Sema *s, Word name, Span first)
{
    diag_error(s->diag, name.span, E_DUPLICATE, "'%s' is defined twice", name.text);
    diag_note(s->diag, first, "first here");
}

/* A new slot of the current scope; an existing one after reporting a clash. */
static int slot_add(Body *b, SlotKind kind, Word name, bool assigned)
{
    Sema *s = b->s;
    int old = slot_find(b, name.text);
    if (old >= 0) {
        duplicate(s, name, b->info->slots.elem[old].name.span);
        return old;
    }
    bool clash = false;
    Item *global = map_get(&s->globals, name.text);
    if (global && (global->kind == ITEM_CONST || global->kind == ITEM_DIM)) {
        diag_error(s->diag, name.span, E_NAME_TAKEN, "'%s' is already a %s", name.text,
                   global->kind == ITEM_CONST ? "constant" : "dim");
        diag_note(s->diag, global->name.span, "defined here");
        clash = true;
    }
    SlotInfo info = {
        .used = clash, .kind = kind, .name = name, .scope = b->scope->id, .assigned = name.span};
    info.assigned_in = assigned ? b->scope->id : -1;
    ARRAY_PUSH(s->arena, &b->info->slots, info);
    map_put(&b->names, name.text, slot_handle(b, b->info->slots.num - 1));
    ARRAY_PUSH(s->arena, &b->scope->names, name.text);
    return b->info->slots.num - 1;
}

/* Uses ---------------------------------------------------------------------------------------- */

static void unknown(Body *b, Expr *expr, bool is_call)
{
    Sema *s = b->s;
    expr->ref = REF_BAD;
    if (b->item->lost || s->lost)
        return;
    diag_error(s->diag, expr->name.span, E_UNKNOWN_NAME, "unknown %s '%s'",
               is_call ? "operation or block" : "name", expr->name.text);
    if (!want_suggestion(s->diag))
        return;
    for (int i = 0; b->info && i < b->info->slots.num; i++) {
        SlotInfo *info = &b->info->slots.elem[i];
        if (info->name.text == expr->name.text) {
            diag_note(s->diag, info->name.span, "this one exists only inside its loop");
            info->used = true;
            return;
        }
    }
    Nearest nearest;
    nearest_init(&nearest, expr->name.text);
    for (int i = 0; !is_call && i < b->names.num; i++) {
        if (b->names.entry[i].value)
            nearest_offer(&nearest, b->names.entry[i].key);
    }
    for (int i = 0; i < s->globals.num; i++) {
        Item *item = s->globals.entry[i].value;
        if (item->kind != ITEM_MODEL && (item->kind == ITEM_BLOCK) == is_call)
            nearest_offer(&nearest, s->globals.entry[i].key);
    }
    for (int i = 0; is_call && i < num_calls; i++)
        nearest_offer(&nearest, call_info[i].name);
    suggest(s->diag, &nearest);
    int meant = b->info && nearest_get(&nearest) ? slot_find(b, nearest_get(&nearest)) : -1;
    if (meant >= 0)
        b->info->slots.elem[meant].used = true; /* a misspelt name is one mistake, not two */
}

static void resolve_name(Body *b, Expr *expr)
{
    Sema *s = b->s;
    int slot = b->info ? slot_find(b, expr->name.text) : -1;
    if (slot >= 0) {
        SlotInfo *info = &b->info->slots.elem[slot];
        info->used = true;
        expr->ref = info->kind == SLOT_INDEX ? REF_INDEX : REF_SLOT;
        expr->slot = slot;
        if (info->assigned_in < 0) {
            diag_error(s->diag, expr->span, E_UNKNOWN_NAME, "'%s' has no value yet",
                       expr->name.text);
            diag_note(s->diag, info->name.span, "declared here");
            expr->ref = REF_BAD;
        }
        return;
    }
    Item *item = map_get(&s->globals, expr->name.text);
    if (item && item->kind == ITEM_CONST) {
        expr->ref = REF_CONST;
        item->constant->used = true;
    } else if (item && item->kind == ITEM_DIM) {
        expr->ref = REF_DIM;
        item->dim->used = true;
    } else if (item) {
        diag_error(s->diag, expr->span, E_WRONG_KIND, "'%s' is a %s, not a value", expr->name.text,
                   item->kind == ITEM_BLOCK ? "block" : "model");
        if (item->kind == ITEM_BLOCK)
            diag_help(s->diag, "call it: %s(..)", expr->name.text);
        expr->ref = REF_BAD;
    } else {
        unknown(b, expr, false);
    }
    expr->item = item;
}

static void resolve_args(Body *b, Expr *expr, bool is_cast)
{
    int positional = 0;
    for (int i = 0; i < expr->args.num; i++) {
        const Arg *arg = &expr->args.elem[i];
        bool is_format =
            is_cast && (arg->name.text ? !strcmp(arg->name.text, "format") : positional++ == 1);
        if (!(is_format && arg->value->kind == EXPR_NAME))
            resolve_expr(b, arg->value);
    }
}

static void resolve_call(Body *b, Expr *expr)
{
    Sema *s = b->s;
    int call = call_find(expr->name.text);
    Item *item = map_get(&s->globals, expr->name.text);
    if (call >= 0) {
        expr->ref = REF_OP;
        expr->slot = call;
        if (expr->index) {
            diag_error(s->diag, expr->index->span, E_ARGUMENTS,
                       "'%s' is an operation, which has "
                       "no index",
                       expr->name.text);
            expr->ref = REF_BAD;
        }
    } else if (item && item->kind == ITEM_BLOCK) {
        expr->ref = REF_BLOCK;
        expr->item = item;
        item->info->called = true;
        if (b->info)
            ARRAY_PUSH(s->arena, &b->info->callees, expr);
    } else if (item && item->kind == ITEM_MODEL) {
        diag_error(s->diag, expr->name.span, E_WRONG_KIND,
                   "'%s' is a model; only blocks are called", expr->name.text);
        expr->ref = REF_BAD;
    } else {
        unknown(b, expr, true);
    }
    if (expr->index)
        resolve_expr(b, expr->index);
    resolve_args(b, expr, call >= 0 && call_info[call].kind == CALL_CAST);
}

static void resolve_expr(Body *b, Expr *expr)
{
    switch (expr->kind) {
    case EXPR_BAD: b->lost = true; break;
    case EXPR_INT:
    case EXPR_REAL: break;
    case EXPR_NAME: resolve_name(b, expr); break;
    case EXPR_NEG: resolve_expr(b, expr->lhs); break;
    case EXPR_BINARY:
        resolve_expr(b, expr->lhs);
        resolve_expr(b, expr->rhs);
        break;
    case EXPR_AT:
        expr->item = scheme_lookup(b->s, expr->name);
        resolve_expr(b, expr->lhs);
        break;
    case EXPR_CALL: resolve_call(b, expr); break;
    case EXPR_LIST:
        for (int i = 0; i < expr->list.num; i++)
            resolve_expr(b, expr->list.elem[i]);
        break;
    }
}

void resolve_global(Sema *s, Expr *expr)
{
    Item none = {0};
    Body b = {.s = s, .item = &none};
    resolve_expr(&b, expr);
}

/* Tensors of a text are plain; what is quantised is said by schemes. Inputs may be counts of rows.
 */
static void check_format(Sema *s, const TypeExpr *type, bool is_input)
{
    FormatId fmt = format_find(type->fmt.text);
    Scheme scheme;
    if (fmt == FMT_F32 || fmt == FMT_F16 || fmt == FMT_BF16 || (fmt == FMT_I32 && is_input))
        return;
    if (fmt == FMT_I32) {
        diag_error(s->diag, type->fmt.span, E_NOT_SUPPORTED,
                   "only inputs may be i32: counts of rows that grouped_linear takes by rows=");
        return;
    }
    if (fmt != FMT_NONE || scheme_find(type->fmt.text, &scheme)) {
        diag_error(s->diag, type->fmt.span, E_NOT_SUPPORTED,
                   "tensors stored as %s are not supported yet, only f32, f16 and bf16",
                   type->fmt.text);
        return;
    }
    Nearest nearest;
    nearest_init(&nearest, type->fmt.text);
    nearest_offer(&nearest, "f32");
    nearest_offer(&nearest, "f16");
    nearest_offer(&nearest, "bf16");
    diag_error(s->diag, type->fmt.span, E_UNKNOWN_FORMAT, "unknown format '%s'", type->fmt.text);
    suggest(s->diag, &nearest);
}

typedef enum TypeOf { TYPE_OF_INPUT, TYPE_OF_RESULT, TYPE_OF_PARAM, TYPE_OF_STORED } TypeOf;

/* TYPE_OF_STORED: its format is that of codes, which a scheme's words go with. */
static void resolve_type(Body *b, TypeExpr *type, TypeOf of)
{
    if (!type->fmt.text)
        return; /* cut off by a syntax error */
    if (of != TYPE_OF_STORED)
        check_format(b->s, type, of == TYPE_OF_INPUT);
    if (type->dims.num > LIMIT_RANK)
        diag_error(b->s->diag, type->span, E_LIMIT, "a tensor of %d dimensions, the limit is %d",
                   type->dims.num, LIMIT_RANK);
    for (int i = 0; i < type->dims.num; i++)
        resolve_expr(b, type->dims.elem[i]);
}

/* Statements ---------------------------------------------------------------------------------- */

static void resolve_stmts(Body *b, StmtList *list);

static void reassigned(Body *b, Word target, const SlotInfo *info, const char *why)
{
    diag_error(b->s->diag, target.span, E_REASSIGNED, "'%s' %s", target.text, why);
    diag_note(b->s->diag, info->assigned, "%s here",
              info->kind == SLOT_VALUE || info->kind == SLOT_RESULT ? "first assigned"
                                                                    : "declared");
}

static int resolve_target(Body *b, Word target)
{
    int slot = slot_find(b, target.text);
    if (slot < 0)
        return slot_add(b, SLOT_VALUE, target, true);
    SlotInfo *info = &b->info->slots.elem[slot];
    if (info->kind == SLOT_INPUT || info->kind == SLOT_PARAM || info->kind == SLOT_INDEX) {
        static const char *const why[] = {[SLOT_INPUT] = "is an input and cannot be assigned",
                                          [SLOT_PARAM] = "is a param and cannot be assigned",
                                          [SLOT_INDEX] = "is an index and cannot be assigned"};
        reassigned(b, target, info, why[info->kind]);
    } else if (info->assigned_in == b->scope->id) {
        reassigned(b, target, info, "is assigned twice");
        diag_help(b->s->diag, "values are assigned once; give this one a name of its own");
    } else if (info->assigned_in < 0 && b->num_scopes > 1) {
        diag_error(b->s->diag, target.span, E_REASSIGNED,
                   "'%s' is assigned in a loop but has no value before it", target.text);
        diag_help(b->s->diag, "assign it before the loop: %s = ..", target.text);
        info->assigned_in = b->scope->id;
    } else {
        if (b->num_scopes > 1) {
            Rebound old = {slot, info->assigned_in, info->assigned};
            ARRAY_PUSH(b->s->arena, &b->scope->rebound, old);
        }
        info->assigned_in = b->scope->id;
        info->assigned = target.span;
    }
    return slot;
}

static void scope_open(Body *b)
{
    b->scope++;
    *b->scope = (Scope){.id = ++b->last_id};
    b->num_scopes++;
}

static void scope_close(Body *b)
{
    Scope *scope = b->scope;
    for (int i = 0; i < scope->names.num; i++)
        map_put(&b->names, scope->names.elem[i], NULL);
    for (int i = scope->rebound.num; i-- > 0;) {
        SlotInfo *info = &b->info->slots.elem[scope->rebound.elem[i].slot];
        info->assigned_in = scope->rebound.elem[i].assigned_in;
        info->assigned = scope->rebound.elem[i].assigned;
    }
    b->scope--;
    b->num_scopes--;
}

static void resolve_param(Body *b, Stmt *stmt)
{
    if (b->num_scopes > 1) {
        diag_error(b->s->diag, stmt->span, E_WRONG_KIND, "a param inside a loop has no path");
        diag_help(b->s->diag, "put it into a block with an index and call the block in the loop");
        stmt->has_bad = true;
    }
    if (stmt->module.text) {
        diag_error(b->s->diag, stmt->module.span, E_NOT_SUPPORTED,
                   "params from modules are not supported yet");
        stmt->has_bad = true;
    }
    resolve_type(b, &stmt->decl.type, stmt->from.parts.num > 0 ? TYPE_OF_STORED : TYPE_OF_PARAM);
    if (stmt->from.parts.num && stmt->decl.type.fmt.text) {
        scheme_of_param(b->s, stmt);
    } else if (stmt->words.num) {
        diag_error(b->s->diag, stmt->words.elem[0].span, E_SCHEME_WORDS,
                   "words of a scheme are for params that name their codes");
        diag_help(b->s->diag, "write: from codes \"..\" scale \"..\"; rules quantise the others");
        stmt->has_bad = true;
    }
    stmt->slot = slot_handle(b, slot_add(b, SLOT_PARAM, stmt->decl.name, true));
    b->info->slots.elem[*stmt->slot].bad = stmt->has_bad;
}

static void resolve_return(Body *b, Stmt *stmt, bool last)
{
    Sema *s = b->s;
    if (b->item->kind == ITEM_MODEL || b->info->named_results) {
        diag_error(s->diag, stmt->span, E_WRONG_KIND,
                   "results with names are assigned, not returned");
        diag_note(s->diag, b->item->results.elem[0].span, "named here");
    } else if (b->num_scopes > 1 || !last) {
        diag_error(s->diag, stmt->span, E_WRONG_KIND,
                   "'return' must be the last statement of its block");
    } else if (stmt->values.num != b->item->results.num) {
        diag_error(s->diag, stmt->span, E_ARGUMENTS,
                   "%d value%s returned, but the block has %d result%s", stmt->values.num,
                   stmt->values.num == 1 ? "" : "s", b->item->results.num,
                   b->item->results.num == 1 ? "" : "s");
        diag_note(s->diag, b->item->results.elem[0].span, "declared here");
    }
    b->info->returns = true;
    for (int i = 0; i < stmt->values.num; i++)
        resolve_expr(b, stmt->values.elem[i]);
}

static void resolve_stmt(Body *b, Stmt *stmt, bool last)
{
    switch (stmt->kind) {
    case STMT_BAD: b->lost = true; break;
    case STMT_PARAM: resolve_param(b, stmt); break;
    case STMT_ASSIGN:
        resolve_expr(b, stmt->values.elem[0]);
        stmt->slot = ARENA_NEW_ARRAY(b->s->arena, int, (size_t)stmt->targets.num);
        for (int i = 0; i < stmt->targets.num; i++)
            stmt->slot[i] = resolve_target(b, stmt->targets.elem[i]);
        break;
    case STMT_RETURN: resolve_return(b, stmt, last); break;
    case STMT_FOR:
        resolve_expr(b, stmt->values.elem[0]);
        resolve_expr(b, stmt->values.elem[1]);
        scope_open(b);
        stmt->slot = slot_handle(b, slot_add(b, SLOT_INDEX, stmt->targets.elem[0], true));
        resolve_stmts(b, &stmt->body);
        scope_close(b);
        break;
    }
}

static void resolve_stmts(Body *b, StmtList *list)
{
    for (int i = 0; i < list->num; i++)
        resolve_stmt(b, list->elem[i], i + 1 == list->num);
}

/* Bodies --------------------------------------------------------------------------------------- */

static void add_results(Body *b)
{
    Item *item = b->item;
    int num_named = 0;
    for (int i = 0; i < item->results.num; i++) {
        resolve_type(b, &item->results.elem[i].type, TYPE_OF_RESULT);
        num_named += item->results.elem[i].name.text != NULL;
    }
    b->info->named_results = num_named > 0;
    b->info->first_result = b->info->slots.num;
    if (num_named != item->results.num && (num_named || item->kind == ITEM_MODEL)) {
        diag_error(b->s->diag, item->results.elem[0].span, E_INCOMPLETE,
                   "every result %s needs a name",
                   item->kind == ITEM_MODEL ? "of a model" : "or none");
        item->lost = true;
        b->info->named_results = false;
        return;
    }
    for (int i = 0; i < num_named; i++)
        slot_add(b, SLOT_RESULT, item->results.elem[i].name, false);
    if (b->info->slots.num != b->info->first_result + num_named)
        b->info->named_results = false; /* a duplicate, reported */
}

static void check_used(Body *b)
{
    static const char *const word[] = {"input", "param", "value", "result", "index"};
    if (b->lost || b->item->lost)
        return;
    for (int i = 0; i < b->info->slots.num; i++) {
        const SlotInfo *info = &b->info->slots.elem[i];
        if (info->kind == SLOT_RESULT && info->assigned_in < 0)
            diag_error(b->s->diag, info->name.span, E_INCOMPLETE, "result '%s' is never assigned",
                       info->name.text);
        if (info->used || info->kind == SLOT_RESULT || info->kind == SLOT_INDEX)
            continue;
        diag_error(b->s->diag, info->name.span, E_UNUSED, "%s '%s' is never used", word[info->kind],
                   info->name.text);
    }
    if (b->item->kind == ITEM_BLOCK && !b->info->named_results && !b->info->returns) {
        diag_error(b->s->diag, b->item->name.span, E_INCOMPLETE, "block '%s' returns nothing",
                   b->item->name.text);
        diag_help(b->s->diag, "end it with 'return ..'");
    }
}

static void resolve_body(Sema *s, Item *item)
{
    BodyInfo *info = item->info;
    Scope *scopes = ARENA_NEW_ARRAY(s->arena, Scope, LIMIT_NESTING + 2);
    Body b = {.s = s, .item = item, .info = info, .scope = scopes, .num_scopes = 1};
    map_init(&b.names, s->arena);
    info->index_slot = -1;
    if (item->index.text)
        info->index_slot = slot_add(&b, SLOT_INDEX, item->index, true);
    int first_input = info->slots.num;
    for (int i = 0; i < item->inputs.num; i++) {
        resolve_type(&b, &item->inputs.elem[i].type, TYPE_OF_INPUT);
        slot_add(&b, SLOT_INPUT, item->inputs.elem[i].name, true);
    }
    bool inputs_differ = info->slots.num == first_input + item->inputs.num;
    add_results(&b);
    resolve_stmts(&b, &item->body);
    check_used(&b);
    if (!inputs_differ ||
        (item->results.num && item->results.elem[0].name.text && !info->named_results))
        item->lost = true; /* slots do not line up: walking it would mislead */
}

/* Circles of blocks, and how deep they call each other: depth first, at most LIMIT_NESTING deep. */
static void find_circles(Sema *s, Item *item, int depth)
{
    BodyInfo *info = item->info;
    info->calls = STATE_BUSY;
    for (int i = 0; i < info->callees.num; i++) {
        const Expr *call = info->callees.elem[i];
        BodyInfo *callee = call->item->info;
        if (callee->calls == STATE_NEW && depth < LIMIT_NESTING)
            find_circles(s, call->item, depth + 1);
        if (callee->calls == STATE_BUSY) {
            diag_error(s->diag, call->name.span, E_CYCLE, "block '%s' calls itself",
                       call->name.text);
            diag_note(s->diag, call->item->name.span, "defined here");
            callee->calls = STATE_BAD;
        }
        int height = callee->calls == STATE_NEW ? LIMIT_NESTING : callee->height;
        info->height = height >= info->height ? height + 1 : info->height;
        if (callee->calls == STATE_BAD)
            info->calls = STATE_BAD;
    }
    if (info->height > LIMIT_NESTING && info->calls != STATE_BAD) {
        diag_error(s->diag, item->name.span, E_LIMIT, "blocks call each other more than %d deep",
                   LIMIT_NESTING);
        info->calls = STATE_BAD;
    }
    if (info->calls == STATE_BUSY)
        info->calls = STATE_DONE;
}

void names_resolve(Sema *s)
{
    for (int i = 0; i < s->items.num; i++) {
        Item *item = s->items.elem[i];
        if (item->kind == ITEM_BLOCK || item->kind == ITEM_MODEL)
            resolve_body(s, item);
    }
    for (int i = 0; i < s->items.num; i++) {
        Item *item = s->items.elem[i];
        if ((item->kind == ITEM_BLOCK || item->kind == ITEM_MODEL) &&
            item->info->calls == STATE_NEW)
            find_circles(s, item, 0);
    }
}
