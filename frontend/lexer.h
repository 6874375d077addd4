/* lexer: tokens of a text. The flex scanner (lexer.l) yields raw tokens, one for each newline and,
 * on request, one for each comment; lexer_next (parse.c) turns newlines and `;` into ends of
 * statements and keeps track of brackets. Private to frontend/. */
#ifndef SINTER_FRONTEND_LEXER_H
#define SINTER_FRONTEND_LEXER_H

#include "frontend/ast.h"
#include <setjmp.h>

typedef struct Bracket {
    char open; /* ( [ { */
    Span span;
} Bracket;

typedef struct Lexer {
    Arena *arena;
    Diag *diag;
    Intern *names;
    uint32_t file, pos; /* pos: byte offset of the next token */
    uint32_t skew;      /* bytes of the text before the scanned buffer (a byte order mark) */
    bool keep_comments;
    int last; /* kind of the last token handed out, 0 at the start */
    int held; /* token kept back while an end of statement is handed out before it */
    Span held_span;
    ARRAY(Bracket) open;
    Bracket dropped; /* one that a brace cut off, until the end of its statement */
    bool skip_block; /* the item was not understood: leave out its braces */
    jmp_buf *oom;    /* where flex's fatal errors go */
} Lexer;

typedef struct Token {
    int kind; /* TOK_x of grammar.h, or a character */
    Span span;
} Token;
typedef ARRAY(Token) TokenList;

void lexer_init(Lexer *lexer, Arena *arena, Diag *diag, Intern *names, uint32_t file);
/* All raw tokens of a text without lexical errors; false when memory is exhausted. */
bool scan_all(Lexer *lexer, TokenList *ret);
bool token_continues(int token); /* a line that ends in it goes on */

#endif
