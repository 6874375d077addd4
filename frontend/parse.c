/* parse: the loop between scanner and parser. The parser is pushed one token at a time, so this
 * file owns the control flow: ends of statements, brackets, limits, and running out of memory,
 * which jumps back to ast_parse from wherever it happens (arena, flex, bison's stack). */
#include "frontend/ast.h"
#include "frontend/lexer.h"
#include "frontend/source.h"
#include "grammar.h"
#include "scanner.h"
#include <stdlib.h>
#include <string.h>

bool token_continues(int token)
{
    switch (token) {
    case '+':
    case '-':
    case '*':
    case '/':
    case ',':
    case '=':
    case '@':
    case '|':
    case TOK_ARROW:
    case TOK_DOTS:
    case TOK_GE:
    case TOK_LE: return true;
    default: return false;
    }
}

static bool inside_brackets(const Lexer *lexer)
{
    return lexer->open.num && lexer->open.elem[lexer->open.num - 1].open != '{';
}

/* Braces never stand inside ( or [: whatever is open there was forgotten. */
static void drop_brackets(Lexer *lexer)
{
    while (inside_brackets(lexer))
        lexer->dropped = lexer->open.elem[--lexer->open.num];
}

static void open_bracket(Lexer *lexer, char open, Span span)
{
    if (open == '{')
        drop_brackets(lexer);
    if (lexer->open.num >= LIMIT_NESTING) {
        diag_error(lexer->diag, span, E_LIMIT, "brackets nested deeper than %d", LIMIT_NESTING);
        longjmp(*lexer->oom, 2);
    }
    ARRAY_PUSH(lexer->arena, &lexer->open, ((Bracket){open, span}));
}

static void close_bracket(Lexer *lexer, int token)
{
    if (token == '}')
        drop_brackets(lexer);
    if (lexer->open.num == 0)
        return;
    char open = lexer->open.elem[lexer->open.num - 1].open;
    if ((open == '{') == (token == '}'))
        lexer->open.num--;
}

/* Leaves out everything up to the brace that closes the one just read. */
static void skip_braces(Lexer *lexer, void *scanner)
{
    int depth = 1, token;
    do {
        DSL_STYPE value;
        Span span;
        token = dsl_lex(&value, &span, scanner);
        depth += (token == '{') - (token == '}');
    } while (token && depth);
    lexer->skip_block = false;
}

/* The next token for the parser: newlines and `;` become one EOS where a statement can end, and
 * one EOS comes before every `}` and the end of the text. */
static int lexer_next(Lexer *lexer, void *scanner, DSL_STYPE *value, Span *span)
{
    for (;;) {
        int token;
        if (lexer->held >= 0) {
            token = lexer->held;
            *span = lexer->held_span;
            lexer->held = -1;
        } else {
            token = dsl_lex(value, span, scanner);
            if (token == 0)
                *span = (Span){lexer->file, lexer->pos + lexer->skew, lexer->pos + lexer->skew};
        }
        if (token == '{' && lexer->skip_block) {
            skip_braces(lexer, scanner);
            continue;
        }
        if (lexer->last == TOK_EOS) {
            lexer->dropped = (Bracket){0};
            lexer->skip_block = false;
        }
        if (token == '{' || token == '}')
            drop_brackets(lexer);
        bool ended = lexer->last == 0 || lexer->last == TOK_EOS || lexer->last == '{';
        if (token == TOK_NEWLINE || token == ';') {
            if (token == TOK_NEWLINE && (inside_brackets(lexer) || token_continues(lexer->last)))
                continue;
            if (ended)
                continue;
            token = TOK_EOS;
        } else if ((token == '}' || token == 0) && !ended) {
            lexer->held = token;
            lexer->held_span = *span;
            span->end = span->start;
            token = TOK_EOS;
        }
        if (token == '(' || token == '[' || token == '{')
            open_bracket(lexer, (char)token, *span);
        else if (token == ')' || token == ']' || token == '}')
            close_bracket(lexer, token);
        lexer->last = token;
        return token;
    }
}

const char *parse_text(const Parse *p)
{
    return p->diag->sources.elem[p->file - 1].text;
}

void parse_skip_block(Parse *p)
{
    p->lexer->skip_block = true;
}

void parse_abandon(Parse *p)
{
    longjmp(*p->lexer->oom, 2);
}

void parse_explain(Parse *p, bool at_end, Span at)
{
    Lexer *lexer = p->lexer;
    const char *text = parse_text(p);
    if (lexer->dropped.open) {
        diag_note(p->diag, lexer->dropped.span, "this '%c' is still open", lexer->dropped.open);
        return;
    }
    if (at_end && lexer->open.num) {
        diag_note(p->diag, lexer->open.elem[lexer->open.num - 1].span, "opened here");
        return;
    }
    if (inside_brackets(lexer)) {
        Bracket *open = &lexer->open.elem[lexer->open.num - 1];
        if (memchr(text + open->span.start, '\n', at.start - open->span.start))
            diag_note(p->diag, open->span, "this '%c' is still open", open->open);
        drop_brackets(lexer); /* the line that follows is a statement of its own */
        return;
    }
    if (strchr("*/+", text[at.start]) && text[at.start])
        diag_help(p->diag, "a line goes on after an operator, not before one");
}

void lexer_init(Lexer *lexer, Arena *arena, Diag *diag, Intern *names, uint32_t file)
{
    *lexer = (Lexer){.arena = arena, .diag = diag, .names = names, .file = file, .held = -1};
}

/* A scanner over a copy of the text: flex writes into its buffer and wants two NULs at the end. */
static bool scanner_open(Lexer *lexer, void **ret_scanner)
{
    const Source *source = &lexer->diag->sources.elem[lexer->file - 1];
    lexer->skew = source->len >= 3 && !memcmp(source->text, "\xef\xbb\xbf", 3) ? 3 : 0;
    size_t len = source->len - lexer->skew;
    char *copy = arena_alloc(lexer->arena, len + 2);
    memcpy(copy, source->text + lexer->skew, len);
    if (dsl_lex_init_extra(lexer, ret_scanner)) {
        *ret_scanner = NULL;
        return false;
    }
    dsl__scan_buffer(copy, len + 2, *ret_scanner);
    return true;
}

bool scan_all(Lexer *lexer, TokenList *ret)
{
    void *volatile scanner = NULL;
    jmp_buf fatal;
    lexer->oom = &fatal;
    if (setjmp(fatal)) {
        if (scanner)
            dsl_lex_destroy(scanner);
        return false;
    }
    void *opened;
    if (!scanner_open(lexer, &opened))
        return false;
    scanner = opened;
    for (;;) {
        DSL_STYPE value;
        Token token = {0};
        token.kind = dsl_lex(&value, &token.span, scanner);
        if (token.kind == 0)
            break;
        ARRAY_PUSH(lexer->arena, ret, token);
    }
    dsl_lex_destroy(scanner);
    return true;
}

static void parse_tokens(Parse *p, void *scanner, dsl_pstate *state)
{
    int status;
    do {
        DSL_STYPE value = {0};
        Span span;
        int token = lexer_next(p->lexer, scanner, &value, &span);
        status = dsl_push_parse(state, token, &value, &span, p);
    } while (status == YYPUSH_MORE);
    p->ast->lost = p->ast->lost || status != 0;
    if (status == 2)
        longjmp(*p->lexer->oom, 1);
}

Ast *ast_parse(Arena *arena, Diag *diag, uint32_t file)
{
    return ast_parse_more(arena, diag, file, intern_create(arena));
}

/* What a file without lines of text is, or NULL: weights and programs are easily given in place of
 * a text, and every byte of theirs would be an error. */
static const char *binary_kind(const Source *source)
{
    static const struct {
        size_t at, len;
        const char *magic, *what;
    } kinds[] = {
        {0, 6, "\x93NUMPY", "a .npy file"},
        {8, 2, "{\"", "a .safetensors file"},
        {0, 4, "\177ELF", "a compiled file or another program"},
        {0, 4, "PK\3\4", "a zip archive (a PyTorch checkpoint or .npz)"},
        {0, 2, "\xff\xfe", "UTF-16; save it as UTF-8"},
        {0, 2, "\xfe\xff", "UTF-16; save it as UTF-8"},
    };
    size_t num = source->len < 512 ? source->len : 512, nuls = 0;
    for (size_t i = 0; i < num; i++)
        nuls += !source->text[i];
    for (size_t i = 0; i < COUNT_OF(kinds) && num > kinds[i].at + kinds[i].len; i++)
        if (!memcmp(source->text + kinds[i].at, kinds[i].magic, kinds[i].len) &&
            (kinds[i].at == 0 || nuls > 3))
            return kinds[i].what;
    return nuls > num / 16 + 3 ? "binary" : NULL;
}

static bool is_text(Diag *diag, uint32_t file)
{
    const char *kind = binary_kind(&diag->sources.elem[file - 1]);
    if (!kind)
        return true;
    diag_error(diag, (Span){0}, E_BAD_CHARACTER, "'%s' is no text but %s",
               diag->sources.elem[file - 1].name, kind);
    diag_help(diag,
              "a text begins with 'version 1'; it names its weights, which are files of their "
              "own");
    return false;
}

Ast *ast_parse_more(Arena *arena, Diag *diag, uint32_t file, Intern *names)
{
    const Source *source = &diag->sources.elem[file - 1];
    Span start = {file, 0, 0};
    if (source->len > LIMIT_SOURCE_BYTES) {
        diag_error(diag, start, E_LIMIT, "the text has %zu bytes, the limit is %u", source->len,
                   LIMIT_SOURCE_BYTES);
        return NULL;
    }
    if (!is_text(diag, file))
        return NULL;
    Ast *ast = ARENA_NEW(arena, Ast);
    ast->arena = arena;
    ast->source = file;
    ast->names = names;
    Lexer *lexer = ARENA_NEW(arena, Lexer);
    Parse *p = ARENA_NEW(arena, Parse);
    *p = (Parse){.arena = arena, .diag = diag, .ast = ast, .file = file, .lexer = lexer};
    lexer_init(lexer, arena, diag, ast->names, file);

    void *volatile scanner = NULL;
    dsl_pstate *volatile state = NULL;
    jmp_buf fatal;
    lexer->oom = &fatal;
    int why = setjmp(fatal);
    if (why == 0) {
        void *opened;
        state = dsl_pstate_new();
        if (!state || !scanner_open(lexer, &opened))
            longjmp(fatal, 1);
        scanner = opened;
        parse_tokens(p, scanner, state);
    } else {
        ast->lost = true;
        if (why == 1 && !p->failed)
            diag_error(diag, start, E_MEMORY, "memory is exhausted while reading the text");
    }
    if (scanner)
        dsl_lex_destroy(scanner);
    dsl_pstate_delete(state);
    return ast;
}
