/* Members of JSON objects, for what the commands print with --json. Each begins with ", " unless it
 * is the first of its object. Numbers that JSON has none for are null. */
#ifndef SINTER_JSON_H
#define SINTER_JSON_H

#include "base/base.h"
#include "tools/metrics.h"

void json_key(Sb *sb, const char *key);
void json_text(Sb *sb, const char *key, const char *value);
void json_number(Sb *sb, const char *key, double value);
void json_count(Sb *sb, const char *key, uint64_t value);
void json_bool(Sb *sb, const char *key, bool value);
void json_distance(Sb *sb, const Distance *d); /* elements, max_abs, mean_abs, cosine, sqnr_db */

#endif
