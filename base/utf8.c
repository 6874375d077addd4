/* UTF-8 decoding by the well-formedness table of the Unicode standard (table 3-7). */
#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

int utf8_next(const char *text, size_t len, uint32_t *ret)
{
    const uint8_t *s = (const uint8_t *)text;
    *ret = 0;
    if (len == 0)
        return 0;
    if (s[0] < 0x80) {
        *ret = s[0];
        return 1;
    }
    int size = s[0] >= 0xc2 && s[0] <= 0xdf   ? 2
               : s[0] >= 0xe0 && s[0] <= 0xef ? 3
               : s[0] >= 0xf0 && s[0] <= 0xf4 ? 4
                                              : 0;
    if (size == 0 || (size_t)size > len)
        return 0;
    uint32_t c = s[0] & (0xffu >> (size + 1));
    for (int i = 1; i < size; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
        c = c << 6 | (s[i] & 0x3fu);
    }
    bool is_overlong = (size == 3 && c < 0x800) || (size == 4 && c < 0x10000);
    if (is_overlong || (c >= 0xd800 && c <= 0xdfff) || c > 0x10ffff)
        return 0;
    *ret = c;
    return size;
}

bool utf8_valid(const char *text, size_t len)
{
    for (size_t i = 0; i < len;) {
        uint32_t c;
        int size = utf8_next(text + i, len - i, &c);
        if (size == 0)
            return false;
        i += (size_t)size;
    }
    return true;
}

typedef struct Range {
    uint32_t first, last;
} Range;

static bool in_ranges(uint32_t c, const Range *range, size_t num)
{
    for (size_t i = 0; i < num; i++)
        if (c >= range[i].first && c <= range[i].last)
            return true;
    return false;
}

bool utf8_is_deceptive(uint32_t c)
{
    static const Range range[] = {
        {0x80, 0x9f},     {0xad, 0xad},     {0x61c, 0x61c},   {0x200b, 0x200f},   {0x2028, 0x202e},
        {0x2060, 0x206f}, {0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0xe0000, 0xe007f},
    };
    return in_ranges(c, range, sizeof range / sizeof range[0]);
}

size_t utf8_shown(const char *text, size_t len, char ret[UTF8_SHOWN])
{
    uint32_t c;
    int size = utf8_next(text, len, &c);
    if (size == 0)
        snprintf(ret, UTF8_SHOWN, "\\x%02x", (unsigned)(uint8_t)text[0]);
    else if (c < 0x20 || c == 0x7f)
        snprintf(ret, UTF8_SHOWN, "\\x%02x", (unsigned)c);
    else if (utf8_is_deceptive(c))
        snprintf(ret, UTF8_SHOWN, "\\u{%x}", (unsigned)c);
    else
        *(char *)mempcpy(ret, text, (size_t)size) = 0;
    return size ? (size_t)size : 1;
}

char *utf8_show(const char *text, char *buf, size_t size)
{
    size_t len = strlen(text), at = 0;
    char one[UTF8_SHOWN];
    for (size_t i = 0; i < len;) {
        i += utf8_shown(text + i, len - i, one);
        size_t more = strlen(one);
        if (more >= size - at)
            break;
        memcpy(buf + at, one, more);
        at += more;
    }
    buf[at] = 0;
    return buf;
}

int utf8_width(uint32_t c)
{
    static const Range zero[] = {
        {0x300, 0x36f},
        {0x1ab0, 0x1aff},
        {0x20d0, 0x20ff},
        {0xfe00, 0xfe0f},
    };
    static const Range wide[] = {
        {0x1100, 0x115f}, {0x2e80, 0xa4cf},   {0xac00, 0xd7a3},
        {0xf900, 0xfaff}, {0xfe30, 0xfe6f},   {0xff00, 0xff60},
        {0xffe0, 0xffe6}, {0x1f300, 0x1faff}, {0x20000, 0x3fffd},
    };
    if (in_ranges(c, zero, sizeof zero / sizeof zero[0]))
        return 0;
    return in_ranges(c, wide, sizeof wide / sizeof wide[0]) ? 2 : 1;
}
