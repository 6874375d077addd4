/* ast_print: the tree as text, one node a line, for --emit=ast and for tests. Shows structure
 * (precedence is explicit through parentheses), not layout. */
#include "frontend/ast.h"
#include <string.h>

static void put_expr(Sb *sb, const Expr *e);

static void put_args(Sb *sb, const ArgList *args)
{
    sb_putc(sb, '(');
    for (int i = 0; i < args->num; i++) {
        if (i)
            sb_put(sb, ", ");
        if (args->elem[i].name.text)
            sb_printf(sb, "%s=", args->elem[i].name.text);
        put_expr(sb, args->elem[i].value);
    }
    sb_putc(sb, ')');
}

static void put_exprs(Sb *sb, const ExprList *list)
{
    for (int i = 0; i < list->num; i++) {
        if (i)
            sb_put(sb, ", ");
        put_expr(sb, list->elem[i]);
    }
}

static void put_expr(Sb *sb, const Expr *e)
{
    switch (e->kind) {
    case EXPR_BAD: sb_put(sb, "<bad>"); break;
    case EXPR_NAME: sb_put(sb, e->name.text); break;
    case EXPR_INT: sb_printf(sb, "%lld", (long long)e->integer); break;
    case EXPR_REAL: sb_put_f64(sb, e->real); break;
    case EXPR_NEG:
        sb_put(sb, "(-");
        put_expr(sb, e->lhs);
        sb_putc(sb, ')');
        break;
    case EXPR_BINARY:
        sb_putc(sb, '(');
        put_expr(sb, e->lhs);
        sb_printf(sb, " %c ", e->op);
        put_expr(sb, e->rhs);
        sb_putc(sb, ')');
        break;
    case EXPR_AT:
        sb_putc(sb, '(');
        put_expr(sb, e->lhs);
        sb_printf(sb, " @ %s)", e->name.text);
        break;
    case EXPR_CALL:
        sb_put(sb, e->name.text);
        if (e->index) {
            sb_putc(sb, '[');
            put_expr(sb, e->index);
            sb_putc(sb, ']');
        }
        put_args(sb, &e->args);
        break;
    case EXPR_LIST:
        sb_putc(sb, '[');
        put_exprs(sb, &e->list);
        sb_putc(sb, ']');
        break;
    }
}

static void put_decl(Sb *sb, const Decl *decl)
{
    if (decl->name.text)
        sb_printf(sb, "%s: ", decl->name.text);
    if (!decl->type.fmt.text) {
        sb_put(sb, "<bad>");
        return;
    }
    sb_printf(sb, "%s[", decl->type.fmt.text);
    put_exprs(sb, &decl->type.dims);
    sb_putc(sb, ']');
}

static void put_decls(Sb *sb, const DeclList *list)
{
    sb_putc(sb, '(');
    for (int i = 0; i < list->num; i++) {
        if (i)
            sb_put(sb, ", ");
        put_decl(sb, &list->elem[i]);
    }
    sb_putc(sb, ')');
}

static void put_words(Sb *sb, const WordList *list, const char *between)
{
    for (int i = 0; i < list->num; i++)
        sb_printf(sb, "%s%s", i ? between : "", list->elem[i].text);
}

static void put_files(Sb *sb, const WordList *list)
{
    for (int i = 0; i < list->num; i++) {
        sb_putc(sb, ' ');
        sb_put_json_string(sb, list->elem[i].text, strlen(list->elem[i].text));
    }
}

/* Starts a line at the current indentation; the caller ends it. */
static void start_line(Sb *sb, const char *text)
{
    for (int i = 0; i < sb->indent; i++)
        sb_putc(sb, ' ');
    sb_put(sb, text);
}

static void put_scheme_word(Sb *sb, const SchemeWord *word)
{
    static const char *const text[] = {[SW_SYM] = "sym",
                                       [SW_ASYM] = "asym",
                                       [SW_CODEBOOK] = "codebook",
                                       [SW_PER_TENSOR] = "per tensor",
                                       [SW_PER_CHANNEL] = "per channel",
                                       [SW_PER_TOKEN] = "per token",
                                       [SW_GROUP] = "group",
                                       [SW_BLOCK] = "block",
                                       [SW_SCALE] = "scale",
                                       [SW_STATIC] = "static",
                                       [SW_DYNAMIC] = "dynamic",
                                       [SW_BY] = "by",
                                       [SW_FAST] = "fast"};
    sb_printf(sb, " %s", text[word->kind]);
    if (word->kind == SW_BLOCK)
        sb_printf(sb, " %lldx%lld", (long long)word->rows, (long long)word->cols);
    if (word->kind == SW_GROUP) {
        sb_putc(sb, ' ');
        put_expr(sb, word->value);
        if (word->name.text)
            sb_printf(sb, " or %s", word->instead == SW_PER_TOKEN ? "token" : "channel");
        return;
    }
    if (word->name.text && !word->has_zero)
        sb_printf(sb, " %s", word->name.text);
    if (word->value) {
        sb_putc(sb, ' ');
        put_expr(sb, word->value);
    }
    if (word->has_zero)
        sb_printf(sb, " %s %lld", word->name.text, (long long)word->rows);
    if (word->args.num)
        put_args(sb, &word->args);
}

static void put_from(Sb *sb, const From *from)
{
    if (from->tensor.text || from->parts.num)
        sb_put(sb, " from");
    if (from->tensor.text) {
        sb_putc(sb, ' ');
        sb_put_json_string(sb, from->tensor.text, strlen(from->tensor.text));
    }
    for (int i = 0; i < from->parts.num; i++) {
        const Part *part = &from->parts.elem[i];
        sb_printf(sb, " %s ", part->role.text);
        sb_put_json_string(sb, part->tensor.text, strlen(part->tensor.text));
    }
}

static void put_stmts(Sb *sb, const StmtList *list);

static void put_stmt(Sb *sb, const Stmt *stmt)
{
    switch (stmt->kind) {
    case STMT_BAD: start_line(sb, "<bad>"); break;
    case STMT_PARAM:
        start_line(sb, "param ");
        put_decl(sb, &stmt->decl);
        for (int i = 0; i < stmt->words.num; i++)
            put_scheme_word(sb, &stmt->words.elem[i]);
        put_from(sb, &stmt->from);
        if (stmt->module.text) {
            sb_put(sb, " from module ");
            sb_put_json_string(sb, stmt->module.text, strlen(stmt->module.text));
        }
        break;
    case STMT_ASSIGN:
        start_line(sb, "");
        put_words(sb, &stmt->targets, ", ");
        sb_put(sb, " = ");
        put_exprs(sb, &stmt->values);
        break;
    case STMT_RETURN:
        start_line(sb, "return ");
        put_exprs(sb, &stmt->values);
        break;
    case STMT_FOR:
        start_line(sb, "for ");
        put_words(sb, &stmt->targets, ", ");
        sb_put(sb, " in ");
        put_expr(sb, stmt->values.elem[0]);
        sb_put(sb, " .. ");
        put_expr(sb, stmt->values.elem[1]);
        sb_putc(sb, '\n');
        put_stmts(sb, &stmt->body);
        return;
    }
    sb_putc(sb, '\n');
}

static void put_stmts(Sb *sb, const StmtList *list)
{
    sb->indent += 2;
    for (int i = 0; i < list->num; i++)
        put_stmt(sb, list->elem[i]);
    sb->indent -= 2;
}

static void put_scheme(Sb *sb, const Item *item)
{
    for (int i = 0; i < item->lines.num; i++) {
        const SchemeLine *line = &item->lines.elem[i];
        sb_printf(sb, "  %s %s", line->is_act ? "act" : "weight", line->fmt.text);
        for (int k = 0; k < line->words.num; k++)
            put_scheme_word(sb, &line->words.elem[k]);
        sb_putc(sb, '\n');
    }
}

static void put_segment(Sb *sb, const Segment *segment)
{
    if (segment->names.num == 0)
        sb_putc(sb, '*');
    else if (segment->names.num == 1)
        sb_put(sb, segment->names.elem[0].text);
    else {
        sb_putc(sb, '(');
        put_words(sb, &segment->names, "|");
        sb_putc(sb, ')');
    }
    if (segment->index == INDEX_NONE)
        return;
    sb_putc(sb, '[');
    if (segment->index == INDEX_ANY)
        sb_putc(sb, '*');
    for (int i = 0; i < segment->listed.num; i++) {
        const IndexRange *range = &segment->listed.elem[i];
        if (segment->listed.num > 1)
            sb_putc(sb, i ? '|' : '(');
        put_expr(sb, range->lo);
        if (range->hi || range->is_open)
            sb_put(sb, "..");
        if (range->hi)
            put_expr(sb, range->hi);
    }
    sb_put(sb, segment->listed.num > 1 ? ")]" : "]");
}

static void put_rule(Sb *sb, const Rule *rule)
{
    sb_put(sb, "  ");
    if (rule->slower.text) {
        sb_printf(sb, "slower %s\n", rule->slower.text);
        return;
    }
    if (rule->path.num == 0)
        sb_put(sb, "default");
    for (int i = 0; i < rule->path.num; i++) {
        if (i)
            sb_putc(sb, '.');
        put_segment(sb, &rule->path.elem[i]);
    }
    sb_put(sb, " :");
    for (int i = 0; i < rule->actions.num; i++) {
        const Action *action = &rule->actions.elem[i];
        switch (action->kind) {
        case ACTION_SCHEME: sb_printf(sb, " %s", action->name.text); break;
        case ACTION_KEEP: sb_put(sb, " keep"); break;
        case ACTION_FUSED: sb_put(sb, " fused"); break;
        case ACTION_INVARIANT: sb_put(sb, " invariant"); break;
        case ACTION_SMOOTH:
            sb_put(sb, " smooth ");
            if (action->name.text)
                sb_put(sb, action->name.text);
            else
                sb_put_f64(sb, action->value);
            break;
        case ACTION_ROTATE: sb_printf(sb, " rotate %s", action->name.text); break;
        }
    }
    sb_putc(sb, '\n');
}

static void put_bounds(Sb *sb, const BoundList *bounds)
{
    static const char *const text[] = {[BOUND_ATOL] = "atol",
                                       [BOUND_RTOL] = "rtol",
                                       [BOUND_COSINE] = "cosine",
                                       [BOUND_SQNR] = "sqnr"};
    for (int i = 0; i < bounds->num; i++) {
        sb_printf(sb, " %s ", text[bounds->elem[i].kind]);
        sb_put_f64(sb, bounds->elem[i].value);
    }
}

static void put_auto_sizes(Sb *sb, const AutoLine *line)
{
    for (int i = 0; i < line->at.num; i++) {
        const AutoSize *at = &line->at.elem[i];
        sb_printf(sb, "%s %s = ", i ? "," : " at", at->name.text);
        put_expr(sb, at->size);
        if (line->kind == AUTO_MINIMIZE) {
            sb_put(sb, " : ");
            sb_put_f64(sb, at->weight);
        }
    }
}

static void put_auto_line(Sb *sb, const AutoLine *line)
{
    static const char *const head[] = {
        [AUTO_CANDIDATES] = "candidates", [AUTO_CALIBRATE] = "calibrate on",
        [AUTO_REQUIRE] = "require",       [AUTO_MINIMIZE] = "minimize",
        [AUTO_COUPLE] = "couple",         [AUTO_SLOWER] = "slower"};
    sb_printf(sb, "  %s", head[line->kind]);
    for (int i = 0; i < line->names.num; i++)
        sb_printf(sb, "%s %s", i ? "," : "", line->names.elem[i].text);
    if (line->word.text)
        sb_printf(sb, " %s", line->word.text);
    if (line->kind == AUTO_REQUIRE) {
        sb_put(sb, line->at_least ? " >= " : " <= ");
        sb_put_f64(sb, line->number);
    }
    if (line->file.text) {
        sb_put(sb, line->kind == AUTO_REQUIRE ? " on " : " ");
        sb_put_json_string(sb, line->file.text, strlen(line->file.text));
    }
    if (line->size) {
        sb_put(sb, " samples ");
        put_expr(sb, line->size);
    }
    put_auto_sizes(sb, line);
    sb_putc(sb, '\n');
}

static void put_auto(Sb *sb, const Item *item)
{
    sb_put(sb, "auto\n");
    for (int i = 0; i < item->autos.num; i++)
        put_auto_line(sb, &item->autos.elem[i]);
}

static void put_body(Sb *sb, const Item *item)
{
    sb_printf(sb, "%s %s", item->kind == ITEM_BLOCK ? "block" : "model", item->name.text);
    if (item->index.text)
        sb_printf(sb, "[%s]", item->index.text);
    sb_putc(sb, ' ');
    put_decls(sb, &item->inputs);
    sb_put(sb, " -> ");
    put_decls(sb, &item->results);
    sb_putc(sb, '\n');
    put_stmts(sb, &item->body);
}

void ast_print_item(Sb *sb, const Item *item)
{
    switch (item->kind) {
    case ITEM_BAD: sb_put(sb, "<bad>\n"); return;
    case ITEM_VERSION:
        sb_put(sb, "version ");
        put_expr(sb, item->value);
        break;
    case ITEM_WEIGHTS:
    case ITEM_CALIBRATE:
        sb_put(sb, item->kind == ITEM_WEIGHTS ? "weights" : "calibrate");
        put_files(sb, &item->files);
        break;
    case ITEM_CALIBRATED:
        sb_put(sb, "calibrate from");
        put_files(sb, &item->files);
        break;
    case ITEM_CONST:
        sb_printf(sb, "const %s = ", item->name.text);
        put_expr(sb, item->value);
        break;
    case ITEM_DIM:
        sb_printf(sb, "dim %s in [", item->name.text);
        put_exprs(sb, &item->list);
        sb_putc(sb, ']');
        break;
    case ITEM_SCHEME:
        sb_printf(sb, "scheme %s\n", item->name.text);
        put_scheme(sb, item);
        return;
    case ITEM_BLOCK:
    case ITEM_MODEL: put_body(sb, item); return;
    case ITEM_EXPECT:
        sb_put(sb, "expect");
        put_files(sb, &item->files);
        put_bounds(sb, &item->bounds);
        break;
    case ITEM_QUANT:
        sb_put(sb, "quant\n");
        for (int i = 0; i < item->rules.num; i++)
            put_rule(sb, &item->rules.elem[i]);
        return;
    case ITEM_AUTO: put_auto(sb, item); return;
    case ITEM_SHARD: sb_put(sb, "shard"); break;
    }
    sb_putc(sb, '\n');
}

void ast_print(Sb *sb, const Ast *ast)
{
    for (int i = 0; i < ast->items.num; i++)
        ast_print_item(sb, ast->items.elem[i]);
}
