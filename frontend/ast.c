/* ast: builders. They allocate, set spans and depths, and refuse trees that are too deep. */
#include "frontend/ast.h"
#include <string.h>

Span span_join(Span a, Span b)
{
    if (!a.file)
        return b;
    return (Span){a.file, a.start < b.start ? a.start : b.start, a.end > b.end ? a.end : b.end};
}

Word ast_word(Parse *p, const char *text, Span span)
{
    return (Word){intern(p->ast->names, text, strlen(text)), span};
}

/* Expressions ---------------------------------------------------------------------------------- */

static Expr *expr_new(Parse *p, ExprKind kind, Span span, int depth)
{
    Expr *expr = ARENA_NEW(p->arena, Expr);
    expr->kind = kind;
    expr->span = span;
    expr->depth = depth + 1;
    if (expr->depth > LIMIT_EXPR_DEPTH) {
        diag_error(p->diag, span, E_LIMIT, "an expression of more than %d steps", LIMIT_EXPR_DEPTH);
        parse_abandon(p);
    }
    return expr;
}

static int deeper(int depth, const Expr *expr)
{
    return expr && expr->depth > depth ? expr->depth : depth;
}

Expr *ast_name(Parse *p, Word name)
{
    Expr *expr = expr_new(p, EXPR_NAME, name.span, 0);
    expr->name = name;
    return expr;
}

Expr *ast_int(Parse *p, Span span, int64_t value)
{
    Expr *expr = expr_new(p, EXPR_INT, span, 0);
    expr->integer = value;
    return expr;
}

Expr *ast_real(Parse *p, Span span, double value)
{
    Expr *expr = expr_new(p, EXPR_REAL, span, 0);
    expr->real = value;
    return expr;
}

Expr *ast_bad(Parse *p, Span span)
{
    return expr_new(p, EXPR_BAD, span, 0);
}

Expr *ast_neg(Parse *p, Span span, Expr *operand)
{
    Expr *expr = expr_new(p, EXPR_NEG, span, operand->depth);
    expr->lhs = operand;
    return expr;
}

Expr *ast_binary(Parse *p, Span span, char op, Expr *lhs, Expr *rhs)
{
    Expr *expr = expr_new(p, EXPR_BINARY, span, deeper(lhs->depth, rhs));
    expr->op = op;
    expr->lhs = lhs;
    expr->rhs = rhs;
    return expr;
}

Expr *ast_at(Parse *p, Span span, Expr *operand, Word scheme)
{
    Expr *expr = expr_new(p, EXPR_AT, span, operand->depth);
    expr->lhs = operand;
    expr->name = scheme;
    return expr;
}

Expr *ast_call(Parse *p, Span span, Word name, Expr *index, ArgList args)
{
    int depth = deeper(0, index);
    for (int i = 0; i < args.num; i++)
        depth = deeper(depth, args.elem[i].value);
    Expr *expr = expr_new(p, EXPR_CALL, span, depth);
    expr->name = name;
    expr->index = index;
    expr->args = args;
    return expr;
}

Expr *ast_list(Parse *p, Span span, ExprList list)
{
    int depth = 0;
    for (int i = 0; i < list.num; i++)
        depth = deeper(depth, list.elem[i]);
    Expr *expr = expr_new(p, EXPR_LIST, span, depth);
    expr->list = list;
    return expr;
}

ExprList ast_exprs_add(Parse *p, ExprList list, Expr *expr)
{
    ARRAY_PUSH(p->arena, &list, expr);
    return list;
}

Arg ast_arg(Word name, Expr *value)
{
    return (Arg){name, value};
}

ArgList ast_args_add(Parse *p, ArgList list, Arg arg)
{
    ARRAY_PUSH(p->arena, &list, arg);
    return list;
}

WordList ast_words_add(Parse *p, WordList list, Word word)
{
    ARRAY_PUSH(p->arena, &list, word);
    return list;
}

/* Statements ---------------------------------------------------------------------------------- */

Decl ast_decl(Span span, Word name, TypeExpr type)
{
    return (Decl){name, type, span};
}

DeclList ast_decls_add(Parse *p, DeclList list, Decl decl)
{
    ARRAY_PUSH(p->arena, &list, decl);
    return list;
}

static Stmt *stmt_new(Parse *p, StmtKind kind, Span span)
{
    Stmt *stmt = ARENA_NEW(p->arena, Stmt);
    stmt->kind = kind;
    stmt->span = span;
    return stmt;
}

PartList ast_parts_add(Parse *p, PartList list, Word role, Word tensor)
{
    ARRAY_PUSH(p->arena, &list, ((Part){role, tensor}));
    return list;
}

Stmt *ast_param(Parse *p, Span span, Decl decl, SchemeWordList words, From from, Word module)
{
    Stmt *stmt = stmt_new(p, STMT_PARAM, span);
    stmt->decl = decl;
    stmt->words = words;
    stmt->from = from;
    stmt->module = module;
    return stmt;
}

Stmt *ast_bad_param(Parse *p, Span span, Word name)
{
    Stmt *stmt = stmt_new(p, STMT_PARAM, span);
    stmt->decl.name = name;
    stmt->decl.span = span;
    stmt->has_bad = true;
    return stmt;
}

Stmt *ast_assign(Parse *p, Span span, WordList targets, Expr *value)
{
    Stmt *stmt = stmt_new(p, STMT_ASSIGN, span);
    stmt->targets = targets;
    ARRAY_PUSH(p->arena, &stmt->values, value);
    return stmt;
}

Stmt *ast_return(Parse *p, Span span, ExprList values)
{
    Stmt *stmt = stmt_new(p, STMT_RETURN, span);
    stmt->values = values;
    return stmt;
}

Stmt *ast_for(Parse *p, Span span, Word index, Expr *first, Expr *end, StmtList body)
{
    Stmt *stmt = stmt_new(p, STMT_FOR, span);
    ARRAY_PUSH(p->arena, &stmt->targets, index);
    ARRAY_PUSH(p->arena, &stmt->values, first);
    ARRAY_PUSH(p->arena, &stmt->values, end);
    stmt->body = body;
    return stmt;
}

Stmt *ast_bad_stmt(Parse *p, Span span)
{
    return stmt_new(p, STMT_BAD, span);
}

/* A loop whose head was not understood: its body cannot be checked without its index. */
Stmt *ast_bad_for(Parse *p, Span span, StmtList body)
{
    (void)body;
    return stmt_new(p, STMT_BAD, span);
}

StmtList ast_stmts_add(Parse *p, StmtList list, Stmt *stmt)
{
    ARRAY_PUSH(p->arena, &list, stmt);
    return list;
}

/* Schemes and rules --------------------------------------------------------------------------- */

SchemeWord ast_scheme_word(SchemeWordKind kind, Span span)
{
    return (SchemeWord){.kind = kind, .span = span};
}

SchemeWord ast_scheme_value(SchemeWordKind kind, Span span, Word name, Expr *value)
{
    return (SchemeWord){.kind = kind, .span = span, .name = name, .value = value};
}

SchemeWord ast_scheme_else(Span span, Expr *size, Word word, SchemeWordKind instead)
{
    return (SchemeWord){
        .kind = SW_GROUP, .span = span, .name = word, .value = size, .instead = instead};
}

SchemeWord ast_scheme_per(Parse *p, Span span, Word name)
{
    diag_error(p->diag, name.span, E_SYNTAX,
               "there is no scale per %s: there are 'tensor', 'channel' and 'token'", name.text);
    if (!strcmp(name.text, "row") || !strcmp(name.text, "column"))
        diag_help(p->diag, "a row of a weight is a channel, a row of an activation a token");
    return (SchemeWord){.kind = SW_PER_TENSOR, .span = span};
}

SchemeWord ast_scheme_zero(Span span, Word name, Expr *scale, int64_t zero)
{
    return (SchemeWord){.kind = SW_STATIC,
                        .span = span,
                        .name = name,
                        .value = scale,
                        .has_zero = true,
                        .rows = zero};
}

SchemeWord ast_scheme_block(Span span, int64_t rows, int64_t cols)
{
    return (SchemeWord){.kind = SW_BLOCK, .span = span, .rows = rows, .cols = cols};
}

SchemeWord ast_scheme_by(Span span, Word name, ArgList args)
{
    return (SchemeWord){.kind = SW_BY, .span = span, .name = name, .args = args};
}

SchemeWordList ast_scheme_words_add(Parse *p, SchemeWordList list, SchemeWord word)
{
    ARRAY_PUSH(p->arena, &list, word);
    return list;
}

SchemeLine ast_scheme_line(Span span, bool is_act, Word fmt, SchemeWordList words)
{
    return (SchemeLine){is_act, fmt, words, span};
}

SchemeLineList ast_scheme_lines_add(Parse *p, SchemeLineList list, SchemeLine line)
{
    ARRAY_PUSH(p->arena, &list, line);
    return list;
}

Segment ast_segment(Span span, WordList names)
{
    return (Segment){.names = names, .span = span};
}

Segment ast_segment_index(Span span, Segment segment, IndexKind kind, IndexList listed)
{
    segment.span = span;
    segment.index = kind;
    segment.listed = listed;
    return segment;
}

IndexList ast_indices_add(Parse *p, IndexList list, IndexRange range)
{
    ARRAY_PUSH(p->arena, &list, range);
    return list;
}

Word ast_glued(Parse *p, Word left, Word right)
{
    Span span = span_join(left.span, right.span);
    if (left.span.end != right.span.start) {
        diag_error(p->diag, span, E_SYNTAX, "the parts of a name with '*' stand apart");
        return left;
    }
    return ast_word(p, arena_strndup(p->arena, parse_text(p) + span.start, span.end - span.start),
                    span);
}

SegmentList ast_path_add(Parse *p, SegmentList list, Segment segment)
{
    ARRAY_PUSH(p->arena, &list, segment);
    return list;
}

Action ast_action(ActionKind kind, Span span, Word name, double value)
{
    return (Action){kind, name, value, span};
}

ActionList ast_actions_add(Parse *p, ActionList list, Action action)
{
    ARRAY_PUSH(p->arena, &list, action);
    return list;
}

Rule ast_rule(Span span, Span path_span, SegmentList path, ActionList actions)
{
    return (Rule){.path = path, .path_span = path_span, .actions = actions, .span = span};
}

RuleList ast_rules_add(Parse *p, RuleList list, Rule rule)
{
    ARRAY_PUSH(p->arena, &list, rule);
    return list;
}

BoundList ast_bounds_add(Parse *p, BoundList list, BoundKind kind, Span span, double value)
{
    ARRAY_PUSH(p->arena, &list, ((Bound){kind, value, span}));
    return list;
}

/* Top level ------------------------------------------------------------------------------------ */

Item *ast_item(Parse *p, ItemKind kind, Span span, Word name)
{
    Item *item = ARENA_NEW(p->arena, Item);
    item->kind = kind;
    item->span = item->head = span;
    item->name = name;
    return item;
}

Item *ast_files(Parse *p, ItemKind kind, Span span, WordList files)
{
    Item *item = ast_item(p, kind, span, (Word){0});
    item->files = files;
    return item;
}

Item *ast_const(Parse *p, Span span, Word name, Expr *value)
{
    Item *item = ast_item(p, ITEM_CONST, span, name);
    item->value = value;
    return item;
}

Item *ast_version(Parse *p, Span span, Expr *value)
{
    Item *item = ast_item(p, ITEM_VERSION, span, (Word){0});
    item->value = value;
    return item;
}

Item *ast_dim(Parse *p, Span span, Word name, ExprList sizes)
{
    Item *item = ast_item(p, ITEM_DIM, span, name);
    item->list = sizes;
    return item;
}

Item *ast_scheme(Parse *p, Span span, Word name, SchemeLineList lines)
{
    Item *item = ast_item(p, ITEM_SCHEME, span, name);
    item->lines = lines;
    return item;
}

static bool any_bad(const StmtList *body)
{
    for (int i = 0; i < body->num; i++)
        if (body->elem[i]->kind == STMT_BAD || any_bad(&body->elem[i]->body))
            return true;
    return false;
}

Item *ast_body(Parse *p, ItemKind kind, Span span, Span head, Word name, Word index,
               DeclList inputs, DeclList results, StmtList body)
{
    Item *item = ast_item(p, kind, span, name);
    item->head = head;
    item->index = index;
    item->inputs = inputs;
    item->results = results;
    item->body = body;
    item->lost = any_bad(&body);
    return item;
}

Item *ast_expect(Parse *p, Span span, Word input, Word output, BoundList bounds)
{
    Item *item = ast_item(p, ITEM_EXPECT, span, (Word){0});
    ARRAY_PUSH(p->arena, &item->files, input);
    ARRAY_PUSH(p->arena, &item->files, output);
    item->bounds = bounds;
    return item;
}

Rule ast_slower(Span span, Word word)
{
    return (Rule){.slower = word, .span = span};
}

Item *ast_quant(Parse *p, Span span, RuleList rules)
{
    Item *item = ast_item(p, ITEM_QUANT, span, (Word){0});
    item->rules = rules;
    return item;
}

void ast_add(Parse *p, Item *item)
{
    ARRAY_PUSH(p->arena, &p->ast->items, item);
}

void ast_lost(Parse *p)
{
    p->ast->lost = true;
}
