/* JSON members; see json.h. */
#include "tools/json.h"
#include <math.h>
#include <string.h>

void json_key(Sb *sb, const char *key)
{
    if (sb->len && !strchr("{[", sb->text[sb->len - 1]))
        sb_put(sb, ", ");
    sb_put_json_string(sb, key, strlen(key));
    sb_put(sb, ": ");
}

void json_text(Sb *sb, const char *key, const char *value)
{
    json_key(sb, key);
    sb_put_json_string(sb, value, strlen(value));
}

void json_number(Sb *sb, const char *key, double value)
{
    json_key(sb, key);
    if (isfinite(value))
        sb_printf(sb, "%.9g", value);
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

void json_distance(Sb *sb, const Distance *d)
{
    json_count(sb, "elements", d->num);
    json_number(sb, "max_abs", d->max_abs);
    json_number(sb, "mean_abs", d->mean_abs);
    json_number(sb, "cosine", d->cosine);
    json_number(sb, "sqnr_db", d->sqnr);
}
