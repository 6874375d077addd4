/* Members of JSON objects, and elements of arrays: a comma stands before each but the first. */
#include "io/io.h"

#include <math.h>
#include <string.h>

void json_next(Sb *sb)
{
    if (sb->len && !strchr("{[\n", sb->text[sb->len - 1]))
        sb_put(sb, ", ");
}

void json_key(Sb *sb, const char *key)
{
    json_next(sb);
    sb_put_json_string(sb, key, strlen(key));
    sb_put(sb, ": ");
}

void json_text(Sb *sb, const char *key, const char *value)
{
    json_key(sb, key);
    if (value)
        sb_put_json_string(sb, value, strlen(value));
    else
        sb_put(sb, "null");
}

void json_number(Sb *sb, const char *key, double value)
{
    json_key(sb, key);
    if (isfinite(value))
        sb_put_f64(sb, value);
    else
        sb_put(sb, "null");
}

void json_count(Sb *sb, const char *key, uint64_t value)
{
    json_key(sb, key);
    sb_printf(sb, "%llu", (unsigned long long)value);
}

void json_bool(Sb *sb, const char *key, bool value)
{
    json_key(sb, key);
    sb_put(sb, value ? "true" : "false");
}

void json_item(Sb *sb, const char *text)
{
    json_next(sb);
    sb_put_json_string(sb, text, strlen(text));
}

void json_texts(Sb *sb, const char *key, const char *const *text, int num)
{
    json_key(sb, key);
    sb_putc(sb, '[');
    for (int i = 0; i < num; i++)
        json_item(sb, text[i]);
    sb_putc(sb, ']');
}
