/* source_format: the canonical form of a text. Works on tokens, so that nothing is lost: every
 * comment, blank line (one at most) and line break inside brackets stays. What changes:
 * indentation, spaces, `;` between lines, columns, and braces on one line, which stay so if they
 * fit. */
#include "frontend/fmt.h"
#include "frontend/ast.h"
#include "frontend/lexer.h"
#include "grammar.h"
#include <string.h>

typedef struct Format {
    Arena *arena;
    const char *source;
    TokenList tokens;
    int at;
    LineList lines;
    Line line;
    Sb cell;
    int num_cells;
    bool open;             /* the current line has tokens */
    int prev, before_prev; /* kinds of the tokens before, 0 at the start of a statement */
    int depth;             /* of ( and [ */
    char bracket[LIMIT_NESTING + 1];
    int indent;
    int head;                       /* first token of the statement */
    int context[LIMIT_NESTING + 1]; /* heads of the open braces */
    int num_context;
    bool blank;     /* a blank line came before the next one */
    bool continued; /* the line goes on with a statement */
} Format;

static bool is_contextual(int kind)
{
    return kind == TOK_NAME || (kind >= TOK_WEIGHT && kind <= TOK_MODULE);
}

static bool in_pattern(const Format *f)
{
    return f->num_context && f->context[f->num_context - 1] == TOK_QUANT;
}

/* In a pattern, an index and all of its alternatives. */
static bool in_square(const Format *f)
{
    return f->depth && f->bracket[in_pattern(f) ? 0 : f->depth - 1] == '[';
}

/* Inside the braces of quant, shard or auto. */
static bool in_rules(const Format *f)
{
    int head = f->num_context ? f->context[f->num_context - 1] : 0;
    return head == TOK_QUANT || head == TOK_SHARD || head == TOK_AUTO;
}

static bool is_operator(int kind)
{
    return kind == '+' || kind == '-' || kind == '*' || kind == '/';
}

/* A minus with nothing to its left to subtract from. */
static bool prev_is_unary(const Format *f)
{
    int left = f->before_prev;
    bool only_numbers = f->head == TOK_EXPECT || f->head == TOK_WEIGHT || f->head == TOK_ACT ||
                        (in_rules(f) && f->depth == 0);
    return f->prev == '-' && (only_numbers || left == 0 || is_operator(left) || left == '(' ||
                              left == '[' || left == ',' || left == '=' || left == TOK_DOTS ||
                              left == TOK_RETURN || left == TOK_IN || left == ':');
}

static bool space_before_bracket(const Format *f, int kind)
{
    if (kind == '[' && in_rules(f))
        return false;
    bool header = f->head == TOK_BLOCK || f->head == TOK_MODEL;
    if (kind == '(' && header && f->depth == 0)
        return true;
    if (f->prev == TOK_GROUP && kind == '(')
        return f->head == TOK_WEIGHT || f->head == TOK_ACT;
    if (f->prev == TOK_SAMPLES && kind == '(')
        return f->head == TOK_CALIBRATE;
    return !(is_contextual(f->prev) || f->prev == ']');
}

/* Whether a space stands between the line so far and a token of this kind. */
static bool wants_space(const Format *f, int kind)
{
    int prev = f->prev;
    if (prev == 0 || prev == '(' || prev == '[' || prev == '.' || prev == '|')
        return false;
    if (kind == ')' || kind == ']' || kind == ',' || kind == ';' || kind == '.' || kind == '|')
        return false;
    if (kind == ':' || prev == ':')
        return prev == ':' || in_rules(f);
    if (prev_is_unary(f))
        return false;
    if (kind == '=' || prev == '=')
        return f->depth == 0;
    if (prev == ',')
        return true;
    if (in_pattern(f) && (kind == '*' || prev == '*')) /* of a name */
        return false;
    if (in_square(f) &&
        (is_operator(kind) || is_operator(prev) || kind == TOK_DOTS || prev == TOK_DOTS))
        return false;
    if (kind == '(' || kind == '[')
        return space_before_bracket(f, kind);
    return true;
}

static void put_token(Format *f, const Token *token)
{
    if (wants_space(f, token->kind) && f->cell.len)
        sb_putc(&f->cell, ' ');
    sb_putn(&f->cell, f->source + token->span.start, token->span.end - token->span.start);
    if ((token->kind == '(' || token->kind == '[') && f->depth < LIMIT_NESTING)
        f->bracket[f->depth++] = (char)token->kind;
    else if ((token->kind == ')' || token->kind == ']') && f->depth)
        f->depth--;
    f->before_prev = f->prev;
    f->prev = token->kind;
}

/* Lines --------------------------------------------------------------------------------------- */

static void cell_end(Format *f)
{
    if (f->num_cells < FMT_MAX_CELLS)
        f->line.cell[f->num_cells++] = f->cell.text;
    sb_init(&f->cell, f->arena);
}

static void line_end(Format *f, const char *comment)
{
    if (f->cell.len)
        cell_end(f);
    f->line.comment = comment;
    f->line.blank_before = f->blank && f->lines.num > 0;
    if (f->num_cells || comment)
        ARRAY_PUSH(f->arena, &f->lines, f->line);
    f->blank = false;
    f->line = (Line){0};
    f->num_cells = 0;
    f->open = false;
    sb_init(&f->cell, f->arena);
}

static void line_begin(Format *f, int kind)
{
    bool closes = kind == ')' || kind == ']' || kind == '}';
    f->line.indent = f->indent + (f->continued && !closes ? FMT_INDENT : 0);
    f->open = true;
    if (f->continued)
        f->blank = false;
    else
        f->prev = f->before_prev = 0;
}

static LineKind head_kind(const Format *f, int kind)
{
    if (f->continued)
        return LINE_PLAIN;
    if (kind == TOK_PARAM)
        return LINE_PARAM;
    int context = f->num_context ? f->context[f->num_context - 1] : 0;
    if (context == TOK_QUANT || context == TOK_SHARD)
        return LINE_RULE;
    return context == TOK_SCHEME ? LINE_SCHEME_WORDS : LINE_PLAIN;
}

/* The next token begins a cell of an aligned line. */
static bool cell_begins(const Format *f, int kind)
{
    if (f->depth || (f->prev == 0 && f->num_cells == 0 && !f->cell.len))
        return false;
    switch (f->line.kind) {
    case LINE_PARAM: return f->prev == ':' || kind == TOK_FROM;
    case LINE_RULE: return kind == ':';
    case LINE_SCHEME_WORDS: return f->num_cells == 0;
    case LINE_SCHEME: return kind == '{';
    case LINE_PLAIN: break;
    }
    return false;
}

/* Braces -------------------------------------------------------------------------------------- */

static int matching_brace(const Format *f, int open)
{
    int depth = 0;
    for (int i = open; i < f->tokens.num; i++) {
        depth += f->tokens.elem[i].kind == '{';
        depth -= f->tokens.elem[i].kind == '}';
        if (depth == 0)
            return i;
    }
    return f->tokens.num;
}

/* "{ a; b }" from the tokens between, spaced as they would be on lines of their own. */
static const char *inline_text(Format *f, int open, int close)
{
    Format g = *f;
    sb_init(&g.cell, f->arena);
    sb_put(&g.cell, "{");
    bool ended = true, any = false;
    if (g.num_context < LIMIT_NESTING)
        g.context[g.num_context++] = f->head;
    for (int i = open + 1; i < close; i++) {
        const Token *token = &f->tokens.elem[i];
        if (token->kind == ';' || token->kind == TOK_NEWLINE) {
            ended = true;
            continue;
        }
        if (ended) {
            sb_put(&g.cell, any ? "; " : " ");
            g.prev = g.before_prev = 0;
            g.head = token->kind;
        }
        if (token->kind == '{') {
            int inner = matching_brace(f, i);
            sb_printf(&g.cell, " %s", inline_text(&g, i, inner));
            g.prev = '}';
            i = inner;
        } else {
            put_token(&g, token);
        }
        ended = false;
        any = true;
    }
    sb_put(&g.cell, any ? " }" : "}");
    return g.cell.text;
}

static bool on_one_line(const Format *f, int open, int close)
{
    for (int i = open; i < close; i++) {
        int kind = f->tokens.elem[i].kind;
        if (kind == TOK_COMMENT || kind == TOK_NEWLINE)
            return false;
    }
    return true;
}

static bool is_empty(const Format *f, int open, int close)
{
    for (int i = open + 1; i < close; i++) {
        if (f->tokens.elem[i].kind != TOK_NEWLINE && f->tokens.elem[i].kind != ';')
            return false;
    }
    return true;
}

static size_t line_width(const Format *f)
{
    size_t width = (size_t)f->line.indent + f->cell.len + 1;
    for (int c = 0; c < f->num_cells; c++)
        width += strlen(f->line.cell[c]) + 1;
    return width;
}

static void open_brace(Format *f)
{
    int close = matching_brace(f, f->at);
    if (on_one_line(f, f->at, close) || is_empty(f, f->at, close)) {
        const char *text = inline_text(f, f->at, close);
        if (line_width(f) + strlen(text) <= FMT_WIDTH) {
            if (f->head == TOK_SCHEME) {
                f->line.kind = LINE_SCHEME;
                cell_end(f);
            } else {
                sb_putc(&f->cell, ' ');
            }
            sb_put(&f->cell, text);
            f->before_prev = f->prev = '}';
            f->at = close;
            return;
        }
    }
    put_token(f, &f->tokens.elem[f->at]);
    if (f->num_context < LIMIT_NESTING)
        f->context[f->num_context++] = f->head;
    f->indent += FMT_INDENT;
    f->continued = false;
}

static void close_brace(Format *f)
{
    if (f->open)
        line_end(f, NULL);
    f->blank = false;
    f->indent -= f->indent ? FMT_INDENT : 0;
    f->num_context -= f->num_context > 0;
    f->continued = false;
    line_begin(f, '}');
    put_token(f, &f->tokens.elem[f->at]);
}

/* Tokens --------------------------------------------------------------------------------------- */

static const char *comment_text(Format *f, const Token *token)
{
    const char *text = f->source + token->span.start;
    size_t len = token->span.end - token->span.start;
    while (len && (text[len - 1] == ' ' || text[len - 1] == '\t'))
        len--;
    return arena_strndup(f->arena, text, len);
}

static void end_line(Format *f, const char *comment)
{
    f->continued = f->depth > 0 || token_continues(f->prev);
    line_end(f, comment);
}

static void format_comment(Format *f, const Token *token)
{
    if (!f->open)
        line_begin(f, TOK_COMMENT);
    if (f->cell.len || f->num_cells)
        end_line(f, comment_text(f, token));
    else
        line_end(f, comment_text(f, token));
}

static void format_token(Format *f, const Token *token)
{
    if (f->open && (f->prev == '{' || f->prev == '}'))
        end_line(f, NULL); /* a brace of several lines ends its own */
    if (!f->open) {
        line_begin(f, token->kind);
        f->line.kind = head_kind(f, token->kind);
        if (!f->continued)
            f->head = token->kind;
    }
    if (token->kind == '{') {
        open_brace(f);
        return;
    }
    if (cell_begins(f, token->kind))
        cell_end(f);
    put_token(f, token);
}

static void format_tokens(Format *f)
{
    int newlines = 0;
    bool at_top = true; /* of a block: no blank lines there */
    for (f->at = 0; f->at < f->tokens.num; f->at++) {
        const Token *token = &f->tokens.elem[f->at];
        if (token->kind == TOK_NEWLINE) {
            newlines++;
            if (f->open)
                end_line(f, NULL);
            else
                f->blank = newlines > 1 && !at_top;
            continue;
        }
        newlines = 0;
        if (token->kind == ';') {
            if (f->open)
                end_line(f, NULL);
            continue;
        }
        if (token->kind == TOK_COMMENT) {
            at_top = at_top && f->open;
            format_comment(f, token);
            continue;
        }
        if (token->kind == '}')
            close_brace(f);
        else
            format_token(f, token);
        at_top = f->tokens.elem[f->at].kind == '{';
    }
    if (f->open)
        line_end(f, NULL);
}

char *source_format(Arena *arena, Diag *diag, uint32_t file)
{
    int errors = diag->num_errors;
    Ast *ast = ast_parse(arena, diag, file);
    if (!ast || diag->num_errors > errors)
        return NULL;
    Format *f = ARENA_NEW(arena, Format);
    Lexer lexer;
    f->arena = arena;
    f->source = diag->sources.elem[file - 1].text;
    lexer_init(&lexer, arena, diag, ast->names, file);
    lexer.keep_comments = true;
    if (!scan_all(&lexer, &f->tokens)) {
        diag_error(diag, (Span){file, 0, 0}, E_MEMORY, "memory is exhausted");
        return NULL;
    }
    sb_init(&f->cell, arena);
    format_tokens(f);
    Sb out;
    sb_init(&out, arena);
    lines_print(&out, &f->lines);
    return out.text;
}
