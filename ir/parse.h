/* The reader of printed IR, between its files: parse_lex.c (tokens), parse_type.c (dims, types,
 * schemes, attributes), parse.c (ops and modules). Errors leave through longjmp, at the first one:
 * everything lives in arenas. */
#ifndef SINTER_IR_PARSE_H
#define SINTER_IR_PARSE_H

#include "ir/internal.h"

typedef enum TokenKind {
    TOKEN_END,
    TOKEN_WORD,   /* letters, digits, _ and . */
    TOKEN_VALUE,  /* %word or %number */
    TOKEN_NUMBER, /* also 128x64 */
    TOKEN_STRING, /* with its quotes, escapes as they are */
    TOKEN_PUNCT
} TokenKind;

typedef struct Token {
    TokenKind kind;
    const char *text;
    size_t len;
    Span span;
} Token;

typedef struct Parser {
    Arena *arena;
    Diag *diag;
    uint32_t source;
    const char *text;
    size_t len, at;
    Token token; /* the next one */
    Module *m;
    Map values;      /* names of the module's body */
    Map body_values; /* of the kernel being read */
    Map ports;       /* "input x", "output y" seen so far */
    jmp_buf failed;
} Parser;

/* parse_lex.c; wanted: what could stand here, for the message */
_Noreturn void parse_fail(Parser *p, Span span, ErrorId id, const char *fmt, ...) PRINTF_LIKE(4, 5);
_Noreturn void parse_unexpected(Parser *p, const char *wanted);
void parse_advance(Parser *p);
bool token_is(const Parser *p, const char *text);
bool parse_accept(Parser *p, const char *text);
void parse_expect(Parser *p, const char *text);
const char *parse_word(Parser *p, const char *wanted);
int64_t parse_i64(Parser *p, const char *wanted);
uint64_t parse_u64(Parser *p, const char *wanted);
float token_f32(Parser *p, const Token *token, const char *wanted);
float parse_f32(Parser *p, const char *wanted);
double parse_f64(Parser *p, const char *wanted);
const char *parse_string(Parser *p, const char *wanted);
const Scheme *parse_format_scheme(Parser *p); /* "i4{sym group 128}" */

/* parse_type.c */
FormatId parse_format(Parser *p);
const Type *parse_type(Parser *p);
void parse_attrs(Parser *p, OpKind kind, Attr *attr); /* "{...}" */

#endif
