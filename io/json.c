/* JSON: a strict streaming reader (RFC 8259) over text in memory. It builds nothing, so that its
 * cost is bounded by the text; the first problem is kept in j->error with j->pos at its place. */
#include "base/utf8.h"
#include "io/io.h"

#include <stdlib.h>
#include <string.h>

void json_init(Json *j, const char *text, size_t len)
{
    *j = (Json){.text = text, .len = len};
}

static bool json_fail(Json *j, const char *why)
{
    if (!j->error)
        j->error = why;
    return false;
}

static void skip_space(Json *j)
{
    while (j->pos < j->len) {
        char c = j->text[j->pos];
        if (c != ' ' && c != '\n' && c != '\r' && c != '\t')
            return;
        j->pos++;
    }
}

/* The next character that is not white space, or '\0' at the end. */
static char peek(Json *j)
{
    skip_space(j);
    return j->pos < j->len ? j->text[j->pos] : '\0';
}

static bool expect(Json *j, char c, const char *why)
{
    if (j->error || peek(j) != c)
        return json_fail(j, why);
    j->pos++;
    return true;
}

static bool deeper(Json *j)
{
    if (j->depth >= LIMIT_NESTING)
        return json_fail(j, "values are nested too deeply");
    j->depth++;
    return true;
}

bool json_object_begin(Json *j)
{
    return expect(j, '{', "an object is expected") && deeper(j);
}

bool json_array_begin(Json *j)
{
    return expect(j, '[', "an array is expected") && deeper(j);
}

/* To the next member: false at the closing bracket or an error. */
static bool next_member(Json *j, char close, bool *first)
{
    if (j->error)
        return false;
    if (peek(j) == close) {
        j->pos++;
        j->depth--;
        return false;
    }
    if (!*first &&
        !expect(j, ',', close == '}' ? "a comma or '}' is expected" : "a comma or ']' is expected"))
        return false;
    *first = false;
    return true;
}

bool json_next_element(Json *j, bool *first)
{
    return next_member(j, ']', first);
}

bool json_next_key(Json *j, char *buf, size_t size, bool *first)
{
    if (!next_member(j, '}', first))
        return false;
    if (peek(j) != '"')
        return json_fail(j, "a key in quotes is expected");
    return json_string(j, buf, size) && expect(j, ':', "a colon is expected after a key");
}

char json_peek(Json *j)
{
    return j->error ? '\0' : peek(j);
}

bool json_at_string(Json *j)
{
    return !j->error && peek(j) == '"';
}

static bool hex4(Json *j, uint32_t *ret)
{
    uint32_t value = 0;
    if (j->len - j->pos < 4)
        return json_fail(j, "an escape is cut off");
    for (int i = 0; i < 4; i++) {
        char c = j->text[j->pos++];
        uint32_t digit = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                         : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a') + 10
                         : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A') + 10
                                                : 16;
        if (digit == 16)
            return json_fail(j, "\\u needs four hexadecimal digits");
        value = value << 4 | digit;
    }
    *ret = value;
    return true;
}

static size_t put_utf8(char *out, uint32_t c)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xc0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xe0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3f));
        out[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 0x3f));
    out[2] = (char)(0x80 | (c >> 6 & 0x3f));
    out[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}

/* Behind "\u": one code point, of two escapes when it is a surrogate pair. */
static bool unicode_escape(Json *j, uint32_t *ret)
{
    uint32_t high, low;
    if (!hex4(j, &high))
        return false;
    *ret = high;
    if (high == 0)
        return json_fail(j, "a string holds NUL");
    if (high < 0xd800 || high > 0xdfff)
        return true;
    if (high > 0xdbff || j->len - j->pos < 6 || j->text[j->pos] != '\\' ||
        j->text[j->pos + 1] != 'u')
        return json_fail(j, "half of a surrogate pair");
    j->pos += 2;
    if (!hex4(j, &low))
        return false;
    if (low < 0xdc00 || low > 0xdfff)
        return json_fail(j, "half of a surrogate pair");
    *ret = 0x10000 + ((high & 0x3ff) << 10) + (low & 0x3ff);
    return true;
}

/* Behind a backslash. out has room for 4 bytes. */
static bool escape(Json *j, char *out, size_t *ret_len)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (j->pos >= j->len)
        return json_fail(j, "a string is not closed");
    char c = j->text[j->pos++];
    const char *at = c ? strchr(from, c) : NULL;
    *ret_len = 1;
    if (at) {
        out[0] = to[at - from];
        return true;
    }
    uint32_t code;
    if (c != 'u')
        return json_fail(j, "an unknown escape");
    if (!unicode_escape(j, &code))
        return false;
    *ret_len = put_utf8(out, code);
    return true;
}

/* buf NULL: the string is checked and forgotten. */
static bool read_string(Json *j, char *buf, size_t size)
{
    size_t len = 0;
    if (!expect(j, '"', "a string is expected"))
        return false;
    for (;;) {
        char piece[4];
        size_t num = 1;
        if (j->pos >= j->len)
            return json_fail(j, "a string is not closed");
        char c = j->text[j->pos];
        if (c == '"') {
            j->pos++;
            break;
        }
        if (c == '\\') {
            j->pos++;
            if (!escape(j, piece, &num))
                return false;
        } else if ((uint8_t)c < 0x20) {
            return json_fail(j, "a string holds a control character");
        } else if ((uint8_t)c < 0x80) {
            piece[0] = c;
            j->pos++;
        } else {
            uint32_t code;
            num = (size_t)utf8_next(j->text + j->pos, j->len - j->pos, &code);
            if (num == 0)
                return json_fail(j, "a string is not UTF-8");
            memcpy(piece, j->text + j->pos, num);
            j->pos += num;
        }
        if (!buf)
            continue;
        if (num >= size - len)
            return json_fail(j, "a string is too long");
        memcpy(buf + len, piece, num);
        len += num;
    }
    if (buf)
        buf[len] = '\0';
    return true;
}

bool json_string(Json *j, char *buf, size_t size)
{
    if (size == 0)
        BUG("no room for a JSON string");
    return read_string(j, buf, size);
}

static bool is_digit(const Json *j)
{
    return j->pos < j->len && j->text[j->pos] >= '0' && j->text[j->pos] <= '9';
}

bool json_u64(Json *j, uint64_t *ret)
{
    uint64_t value = 0;
    if (j->error)
        return false;
    char c = peek(j);
    if (c < '0' || c > '9')
        return json_fail(j, "a whole number that is not negative is expected");
    if (c == '0') {
        j->pos++;
        if (is_digit(j))
            return json_fail(j, "a number has leading zeros");
    }
    while (is_digit(j)) {
        uint64_t digit = (uint64_t)(j->text[j->pos] - '0');
        if (!checked_mul(value, 10, &value) || !checked_add(value, digit, &value))
            return json_fail(j, "a number exceeds 64 bits");
        j->pos++;
    }
    if (j->pos < j->len && strchr(".eE", j->text[j->pos]) && j->text[j->pos])
        return json_fail(j, "a whole number is expected");
    *ret = value;
    return true;
}

static bool skip_digits(Json *j)
{
    if (!is_digit(j))
        return json_fail(j, "a number lacks its digits");
    while (is_digit(j))
        j->pos++;
    return true;
}

static bool skip_number(Json *j)
{
    if (j->text[j->pos] == '-')
        j->pos++;
    if (j->pos < j->len && j->text[j->pos] == '0') {
        j->pos++;
        if (is_digit(j))
            return json_fail(j, "a number has leading zeros");
    } else if (!skip_digits(j)) {
        return false;
    }
    if (j->pos < j->len && j->text[j->pos] == '.') {
        j->pos++;
        if (!skip_digits(j))
            return false;
    }
    if (j->pos < j->len && (j->text[j->pos] == 'e' || j->text[j->pos] == 'E')) {
        j->pos++;
        if (j->pos < j->len && (j->text[j->pos] == '+' || j->text[j->pos] == '-'))
            j->pos++;
        return skip_digits(j);
    }
    return true;
}

bool json_f64(Json *j, double *ret)
{
    char digits[64];
    if (j->error)
        return false;
    char c = peek(j);
    size_t start = j->pos;
    if (c != '-' && (c < '0' || c > '9'))
        return json_fail(j, "a number is expected");
    if (!skip_number(j))
        return false;
    size_t len = j->pos - start;
    if (len >= sizeof digits)
        return json_fail(j, "a number has too many digits");
    memcpy(digits, j->text + start, len); /* the text need not end with NUL */
    digits[len] = 0;
    *ret = strtod(digits, NULL);
    return true;
}

static bool skip_word(Json *j)
{
    static const char *const word[] = {"true", "false", "null"};
    for (size_t i = 0; i < COUNT_OF(word); i++) {
        size_t len = strlen(word[i]);
        if (j->len - j->pos >= len && memcmp(j->text + j->pos, word[i], len) == 0) {
            j->pos += len;
            return true;
        }
    }
    return json_fail(j, "a value is expected");
}

bool json_skip(Json *j)
{
    bool first = true;
    if (j->error)
        return false;
    switch (peek(j)) {
    case '{':
        json_object_begin(j);
        while (next_member(j, '}', &first))
            if (!read_string(j, NULL, 0) || !expect(j, ':', "a colon is expected after a key") ||
                !json_skip(j))
                return false;
        return !j->error;
    case '[':
        json_array_begin(j);
        while (next_member(j, ']', &first))
            if (!json_skip(j))
                return false;
        return !j->error;
    case '"': return read_string(j, NULL, 0);
    case '\0': return json_fail(j, "a value is expected");
    case '-':
    case '0':
    case '1':
    case '2':
    case '3':
    case '4':
    case '5':
    case '6':
    case '7':
    case '8':
    case '9': return skip_number(j);
    default: return skip_word(j);
    }
}

bool json_end(Json *j)
{
    if (j->error)
        return false;
    skip_space(j);
    return j->pos == j->len || json_fail(j, "text follows the end");
}
