/* See fake_text.h. */
#include "fake_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *text;
static size_t size, cap;

void log_line(const char *fmt, ...)
{
    char line[256];
    va_list args;
    va_start(args, fmt);
    int len = vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    if (size + (size_t)len + 2 > cap) {
        cap = 2 * cap + 4096;
        text = realloc(text, cap);
        if (!text)
            abort();
    }
    memcpy(text + size, line, (size_t)len);
    size += (size_t)len;
    text[size++] = '\n';
    text[size] = 0;
}

void log_clear(void)
{
    size = 0;
    if (text)
        text[0] = 0;
}

const char *log_lines(void)
{
    return text ? text : "";
}
