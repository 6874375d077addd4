/* Tokens of printed IR. White space and `; ...` comments separate tokens and mean nothing else. */
#include "base/utf8.h"
#include "ir/parse.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

_Noreturn void parse_fail(Parser *p, Span span, ErrorId id, const char *fmt, ...)
{
    Sb sb;
    sb_init(&sb, p->arena);
    va_list args;
    va_start(args, fmt);
    sb_vprintf(&sb, fmt, args);
    va_end(args);
    diag_error(p->diag, span, id, "%s", sb.text);
    longjmp(p->failed, 1);
}

_Noreturn void parse_unexpected(Parser *p, const char *wanted)
{
    const Token *t = &p->token;
    if (t->kind == TOKEN_END)
        parse_fail(p, t->span, E_IR_SYNTAX, "expected %s, but the text ends", wanted);
    int len = t->len < 40 ? (int)t->len : 40;
    parse_fail(p, t->span, E_IR_SYNTAX, "expected %s before '%.*s'", wanted, len, t->text);
}

static bool is_word_char(char c)
{
    return c == '_' || c == '.' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9');
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static size_t skip_blank(const Parser *p, size_t at)
{
    for (; at < p->len; at++) {
        char c = p->text[at];
        if (c == ';') {
            while (at < p->len && p->text[at] != '\n')
                at++;
            at--;
        } else if (c != ' ' && c != '\t' && c != '\n' && c != '\r') {
            break;
        }
    }
    return at;
}

/* Length of a number: digits, letters (exponents, the x of 128x64), and a sign after an e. */
static size_t number_length(const char *text, size_t len)
{
    size_t at = text[0] == '-' ? 1 : 0;
    while (at < len && (is_word_char(text[at]) || ((text[at] == '-' || text[at] == '+') && at > 0 &&
                                                   (text[at - 1] == 'e' || text[at - 1] == 'E') &&
                                                   at + 1 < len && is_digit(text[at + 1]))))
        at++;
    return at;
}

static size_t string_length(Parser *p, size_t start)
{
    size_t at = start + 1;
    while (at < p->len && p->text[at] != '"' && p->text[at] != '\n')
        at += p->text[at] == '\\' && at + 1 < p->len ? 2 : 1;
    if (at >= p->len || p->text[at] != '"')
        parse_fail(p, (Span){p->source, (uint32_t)start, (uint32_t)start + 1}, E_IR_SYNTAX,
                   "this string does not end on its line");
    return at + 1 - start;
}

void parse_advance(Parser *p)
{
    Token *t = &p->token;
    size_t at = skip_blank(p, p->at);
    const char *text = p->text + at;
    size_t left = p->len - at, len = 0;
    if (left == 0) {
        t->kind = TOKEN_END;
    } else if (is_digit(*text) ||
               (*text == '-' && left > 1 && (is_digit(text[1]) || text[1] == 'i'))) {
        t->kind = TOKEN_NUMBER;
        len = number_length(text, left);
    } else if (*text == '%' || is_word_char(*text)) {
        t->kind = *text == '%' ? TOKEN_VALUE : TOKEN_WORD;
        for (len = 1; len < left && is_word_char(text[len]);)
            len++;
    } else if (*text == '"') {
        t->kind = TOKEN_STRING;
        len = string_length(p, at);
    } else {
        t->kind = TOKEN_PUNCT;
        len = left > 1 && text[0] == '-' && text[1] == '>' ? 2 : 1;
    }
    t->text = text;
    t->len = len;
    t->span = (Span){p->source, (uint32_t)at, (uint32_t)(at + len)};
    if (t->kind != TOKEN_STRING && len > LIMIT_TOKEN_BYTES)
        parse_fail(p, t->span, E_LIMIT, "a word of %zu bytes; at most %u are read", len,
                   LIMIT_TOKEN_BYTES);
    p->at = at + len;
}

bool token_is(const Parser *p, const char *text)
{
    const Token *t = &p->token;
    return t->kind != TOKEN_STRING && t->len == strlen(text) && memcmp(t->text, text, t->len) == 0;
}

bool parse_accept(Parser *p, const char *text)
{
    if (!token_is(p, text))
        return false;
    parse_advance(p);
    return true;
}

void parse_expect(Parser *p, const char *text)
{
    if (parse_accept(p, text))
        return;
    char wanted[48];
    snprintf(wanted, sizeof wanted, "'%s'", text);
    parse_unexpected(p, wanted);
}

const char *parse_word(Parser *p, const char *wanted)
{
    if (p->token.kind != TOKEN_WORD)
        parse_unexpected(p, wanted);
    const char *word = intern(p->m->names, p->token.text, p->token.len);
    parse_advance(p);
    return word;
}

int64_t parse_i64(Parser *p, const char *wanted)
{
    char buf[32];
    char *end;
    if (p->token.kind != TOKEN_NUMBER || p->token.len >= sizeof buf)
        parse_unexpected(p, wanted);
    memcpy(buf, p->token.text, p->token.len);
    buf[p->token.len] = 0;
    errno = 0;
    long long value = strtoll(buf, &end, 10);
    if (*end || errno)
        parse_unexpected(p, wanted);
    parse_advance(p);
    return value;
}

uint64_t parse_u64(Parser *p, const char *wanted)
{
    char buf[32];
    char *end;
    if (p->token.kind != TOKEN_NUMBER || p->token.len >= sizeof buf || p->token.text[0] == '-')
        parse_unexpected(p, wanted);
    memcpy(buf, p->token.text, p->token.len);
    buf[p->token.len] = 0;
    errno = 0;
    unsigned long long value = strtoull(buf, &end, 10);
    if (*end || errno)
        parse_unexpected(p, wanted);
    parse_advance(p);
    return value;
}

/* The text of a number, terminated; it must be decimal to its end. */
static void number_text(Parser *p, const Token *token, char *buf, size_t size, const char *wanted)
{
    char *end;
    bool number = token->kind == TOKEN_NUMBER || token->kind == TOKEN_WORD;
    if (!number || token->len >= size)
        parse_fail(p, token->span, E_IR_SYNTAX, "expected %s here", wanted);
    memcpy(buf, token->text, token->len);
    buf[token->len] = 0;
    strtod(buf, &end);
    if (*end || end == buf || strpbrk(buf, "xX("))
        parse_fail(p, token->span, E_IR_SYNTAX, "expected %s here", wanted);
}

float token_f32(Parser *p, const Token *token, const char *wanted)
{
    char buf[64];
    number_text(p, token, buf, sizeof buf, wanted);
    return strtof(buf, NULL);
}

float parse_f32(Parser *p, const char *wanted)
{
    float value = token_f32(p, &p->token, wanted);
    parse_advance(p);
    return value;
}

double parse_f64(Parser *p, const char *wanted)
{
    char buf[64];
    number_text(p, &p->token, buf, sizeof buf, wanted);
    parse_advance(p);
    return strtod(buf, NULL);
}

/* Strings are JSON's --------------------------------------------------------------------------- */

static uint32_t hex4(Parser *p, const char *text, const char *end)
{
    uint32_t value = 0;
    for (int i = 0; i < 4; i++) {
        char c = text + i < end ? text[i] : 0;
        uint32_t digit = is_digit(c)              ? (uint32_t)(c - '0')
                         : (c >= 'a' && c <= 'f') ? (uint32_t)(c - 'a' + 10)
                         : (c >= 'A' && c <= 'F') ? (uint32_t)(c - 'A' + 10)
                                                  : 16;
        if (digit == 16)
            parse_fail(p, p->token.span, E_IR_SYNTAX, "\\u needs four hexadecimal digits");
        value = value << 4 | digit;
    }
    return value;
}

static void put_utf8(Sb *sb, uint32_t c)
{
    if (c < 0x80) {
        sb_putc(sb, (char)c);
    } else if (c < 0x800) {
        sb_putc(sb, (char)(0xC0 | c >> 6));
        sb_putc(sb, (char)(0x80 | (c & 63)));
    } else if (c < 0x10000) {
        sb_putc(sb, (char)(0xE0 | c >> 12));
        sb_putc(sb, (char)(0x80 | (c >> 6 & 63)));
        sb_putc(sb, (char)(0x80 | (c & 63)));
    } else {
        sb_putc(sb, (char)(0xF0 | c >> 18));
        sb_putc(sb, (char)(0x80 | (c >> 12 & 63)));
        sb_putc(sb, (char)(0x80 | (c >> 6 & 63)));
        sb_putc(sb, (char)(0x80 | (c & 63)));
    }
}

/* One escape after its backslash; returns where the text goes on. */
static const char *unescape(Parser *p, Sb *sb, const char *at, const char *end)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *found = *at ? strchr(from, *at) : NULL;
    if (found) {
        sb_putc(sb, to[found - from]);
        return at + 1;
    }
    if (*at != 'u')
        parse_fail(p, p->token.span, E_IR_SYNTAX, "unknown escape '\\%c' in a string",
                   *at >= ' ' && *at < 127 ? *at : '?');
    uint32_t c = hex4(p, at + 1, end);
    at += 5;
    if (c >= 0xD800 && c < 0xDC00 && end - at >= 6 && at[0] == '\\' && at[1] == 'u') {
        uint32_t low = hex4(p, at + 2, end);
        if (low >= 0xDC00 && low < 0xE000) {
            c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
            at += 6;
        }
    }
    if (c == 0 || (c >= 0xD800 && c < 0xE000))
        parse_fail(p, p->token.span, E_IR_SYNTAX, "character U+%04X cannot stand in a string", c);
    put_utf8(sb, c);
    return at;
}

const char *parse_string(Parser *p, const char *wanted)
{
    const Token *t = &p->token;
    if (t->kind != TOKEN_STRING)
        parse_unexpected(p, wanted);
    Sb sb;
    sb_init(&sb, p->arena);
    const char *end = t->text + t->len - 1;
    for (const char *at = t->text + 1; at < end;) {
        /* what it says counts, not its escapes: the printer writes six bytes for some characters */
        if (sb.len >= LIMIT_TOKEN_BYTES)
            parse_fail(p, t->span, E_LIMIT, "a string of more than %u bytes", LIMIT_TOKEN_BYTES);
        if (*at == '\\') {
            at = unescape(p, &sb, at + 1, end);
            continue;
        }
        uint32_t c;
        int size = utf8_next(at, (size_t)(end - at), &c);
        if (size == 0 || c == 0)
            parse_fail(p, t->span, E_IR_SYNTAX, "a string is UTF-8 without zero bytes");
        sb_putn(&sb, at, (size_t)size);
        at += size;
    }
    const char *text = intern(p->m->names, sb.text, sb.len);
    parse_advance(p);
    return text;
}
