/* checkpoint/config: JSON configurations as a flat list of values. */
#include "checkpoint/checkpoint.h"

#include <stdlib.h>
#include <string.h>

#define LONGEST_TEXT 65536 /* of one string */

typedef struct ConfigReader {
    Arena *arena;
    Config *config;
    Json json;
    char *buf;
} ConfigReader;

static void add_value(ConfigReader *r, ConfigValue value)
{
    ARRAY_PUSH(r->arena, &r->config->values, value);
}

static bool read_value(ConfigReader *r, const char *path);

static bool read_members(ConfigReader *r, const char *path, bool is_object)
{
    int at = r->config->values.num, num = 0;
    bool first = true;

    add_value(r, (ConfigValue){path, is_object ? CONFIG_OBJECT : CONFIG_ARRAY, "", 0});
    if (!(is_object ? json_object_begin(&r->json) : json_array_begin(&r->json)))
        return false;
    while (is_object ? json_next_key(&r->json, r->buf, LONGEST_TEXT, &first)
                     : json_next_element(&r->json, &first)) {
        const char *key = is_object ? r->buf : arena_printf(r->arena, "%d", num);
        if (!read_value(r, arena_printf(r->arena, "%s%s%s", path, *path ? "/" : "", key)))
            return false;
        num++;
    }
    r->config->values.elem[at].num = num;
    return !r->json.error;
}

static bool read_value(ConfigReader *r, const char *path)
{
    char c = json_peek(&r->json);
    size_t from = r->json.pos;

    if (c == '{' || c == '[')
        return read_members(r, path, c == '{');
    if (c == '"') {
        if (!json_string(&r->json, r->buf, LONGEST_TEXT))
            return false;
        add_value(r, (ConfigValue){path, CONFIG_STRING, arena_strdup(r->arena, r->buf), 0});
        return true;
    }
    if (!json_skip(&r->json))
        return false;
    ConfigKind kind = c == 't' || c == 'f' ? CONFIG_BOOL : c == 'n' ? CONFIG_NULL : CONFIG_NUMBER;
    const char *text = arena_strndup(r->arena, r->json.text + from, r->json.pos - from);
    add_value(r, (ConfigValue){path, kind, text, 0});
    return true;
}

bool config_read(Config *ret, Arena *arena, const char *file, const char *text, size_t len,
                 IoError *err)
{
    ConfigReader r = {arena, ret, {0}, arena_alloc(arena, LONGEST_TEXT)};

    *ret = (Config){.file = arena_strdup(arena, file), .prefix = ""};
    json_init(&r.json, text, len);
    if (!read_value(&r, "") || !json_end(&r.json))
        return io_fail(err, E_CHECKPOINT, "%s: byte %zu: %s", file, r.json.pos, r.json.error);
    map_init(&ret->by_path, arena);
    for (int i = 0; i < ret->values.num; i++) {
        if (map_has(&ret->by_path, ret->values.elem[i].path))
            return io_fail(err, E_CHECKPOINT, "%s: '%.200s' occurs twice", file,
                           ret->values.elem[i].path);
        map_put(&ret->by_path, ret->values.elem[i].path, &ret->values.elem[i]);
    }
    return true;
}

const ConfigValue *config_find(const Config *config, const char *path)
{
    return config->file ? map_get(&config->by_path, path) : NULL;
}

static const ConfigValue *find_behind(const Config *config, const char *key)
{
    char path[1024];
    int len = config->file ? snprintf(path, sizeof path, "%s%s", config->prefix, key) : -1;

    return len >= 0 && len < (int)sizeof path ? config_find(config, path) : NULL;
}

const char *config_text(const Config *config, const char *key)
{
    const ConfigValue *value = find_behind(config, key);

    return value && value->kind == CONFIG_STRING ? value->text : NULL;
}

bool config_int(const Config *config, const char *key, int64_t *ret)
{
    const ConfigValue *value = find_behind(config, key);
    char *end;

    if (!value || value->kind != CONFIG_NUMBER)
        return false;
    long long number = strtoll(value->text, &end, 10);
    *ret = number;
    return *end == '\0' && number > -LIMIT_DIM && number < LIMIT_DIM;
}

bool config_bool(const Config *config, const char *key, bool otherwise)
{
    const ConfigValue *value = find_behind(config, key);

    return value && value->kind == CONFIG_BOOL ? value->text[0] == 't' : otherwise;
}
