/* String builder: text that grows in an arena, and the number and JSON forms everyone prints. */
#include "base/base.h"
#include "base/utf8.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void sb_init(Sb *sb, Arena *arena)
{
    *sb = (Sb){.arena = arena, .cap = 64};
    sb->text = arena_alloc(arena, sb->cap);
}

static void sb_reserve(Sb *sb, size_t more)
{
    size_t need = sb->len + more + 1;
    if (need <= sb->cap)
        return;
    size_t cap = sb->cap * 2 > need ? sb->cap * 2 : need;
    sb->text = arena_grow(sb->arena, sb->text, sb->cap, cap);
    sb->cap = cap;
}

void sb_putn(Sb *sb, const char *text, size_t len)
{
    sb_reserve(sb, len);
    memcpy(sb->text + sb->len, text, len);
    sb->len += len;
    sb->text[sb->len] = '\0';
}

void sb_put(Sb *sb, const char *text)
{
    sb_putn(sb, text, strlen(text));
}

void sb_putc(Sb *sb, char c)
{
    sb_putn(sb, &c, 1);
}

void sb_vprintf(Sb *sb, const char *fmt, va_list args)
{
    va_list again;
    va_copy(again, args);
    size_t room = sb->cap - sb->len;
    int len = vsnprintf(sb->text + sb->len, room, fmt, args);
    if (len < 0)
        BUG("a message cannot be formatted: %s", fmt);
    if ((size_t)len >= room) {
        sb_reserve(sb, (size_t)len);
        vsnprintf(sb->text + sb->len, (size_t)len + 1, fmt, again);
    }
    sb->len += (size_t)len;
    va_end(again);
}

void sb_printf(Sb *sb, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    sb_vprintf(sb, fmt, args);
    va_end(args);
}

void sb_line(Sb *sb, const char *fmt, ...)
{
    va_list args;
    for (int i = 0; i < sb->indent; i++)
        sb_putc(sb, ' ');
    va_start(args, fmt);
    sb_vprintf(sb, fmt, args);
    va_end(args);
    sb_putc(sb, '\n');
}

static bool put_special(Sb *sb, double value)
{
    if (!isnan(value) && !isinf(value))
        return false;
    sb_put(sb, isnan(value) ? "nan" : value < 0 ? "-inf" : "inf");
    return true;
}

/* Writes with the fewest digits found, without an exponent for magnitudes below 10^fixed. */
static void put_digits(Sb *sb, double value, int digits, int fixed)
{
    char text[64];
    snprintf(text, sizeof text, "%.*e", digits - 1, value);
    int exponent = atoi(strchr(text, 'e') + 1);
    if (exponent >= digits && exponent < fixed)
        digits = exponent + 1;
    sb_printf(sb, "%.*g", digits, value);
}

void sb_put_f32(Sb *sb, float value)
{
    if (put_special(sb, value))
        return;
    for (int digits = 1; digits <= 9; digits++) {
        char text[64];
        snprintf(text, sizeof text, "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value || digits == 9) {
            put_digits(sb, value, digits, 8);
            return;
        }
    }
}

void sb_put_f64(Sb *sb, double value)
{
    if (put_special(sb, value))
        return;
    for (int digits = 1; digits <= 17; digits++) {
        char text[64];
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value || digits == 17) {
            put_digits(sb, value, digits, 16);
            return;
        }
    }
}

static void put_unicode_escape(Sb *sb, uint32_t c)
{
    if (c < 0x10000)
        sb_printf(sb, "\\u%04x", (unsigned)c);
    else /* as UTF-16 has it */
        sb_printf(sb, "\\u%04x\\u%04x", (unsigned)(0xd7c0 + (c >> 10)),
                  (unsigned)(0xdc00 | (c & 0x3ff)));
}

void sb_put_json_string(Sb *sb, const char *text, size_t len)
{
    sb_putc(sb, '"');
    for (size_t i = 0; i < len;) {
        uint32_t c;
        int size = utf8_next(text + i, len - i, &c);
        if (size == 0) {
            sb_put(sb, "\\ufffd"); /* not UTF-8 */
            i++;
            continue;
        }
        if (c == '"' || c == '\\')
            sb_printf(sb, "\\%c", (char)c);
        else if (c == '\n')
            sb_put(sb, "\\n");
        else if (c < 0x20 || c == 0x7f || utf8_is_deceptive(c))
            put_unicode_escape(sb, c);
        else
            sb_putn(sb, text + i, (size_t)size);
        i += (size_t)size;
    }
    sb_putc(sb, '"');
}
