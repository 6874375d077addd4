/* UTF-8, as far as messages and readers need it. Library-safe. */
#ifndef SINTER_UTF8_H
#define SINTER_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decodes the character at text: its length in bytes, or 0 when the bytes are not well-formed UTF-8
 * (overlong, a surrogate, beyond U+10FFFF, truncated) or len is 0. */
int utf8_next(const char *text, size_t len, uint32_t *ret);
bool utf8_valid(const char *text, size_t len);
/* Characters that change what a reader sees of the text around them: control characters beyond
 * ASCII, bidirectional overrides, zero-width characters, line separators. */
bool utf8_is_deceptive(uint32_t c);
/* The character at text as a terminal may have it: itself, or an escape ("\\x1b", "\\u{202e}") for
 * control characters, deceptive ones and bytes that are not UTF-8. Returns the bytes read, at most
 * len and at least 1; *ret holds the text, ended by a zero. len > 0. */
#define UTF8_SHOWN 16
size_t utf8_shown(const char *text, size_t len, char ret[UTF8_SHOWN]);
/* All of text in this form, cut to fit buf, which is returned. */
char *utf8_show(const char *text, char *buf, size_t size);
/* Columns on a terminal: 0 for combining marks, 2 for wide East Asian characters, else 1. */
int utf8_width(uint32_t c);

#endif
