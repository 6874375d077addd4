/* What each value prints as: its name hint where it has one, made unique with a suffix, else the
 * next number. Reading the printed form back gives every value the hint that it printed as, and
 * thus the same names again. */
#include "ir/internal.h"
#include <string.h>

struct ValueNames {
    Arena *arena;
    ValueMap *text;
    Map used, suffix; /* suffix: next one to try for a hint, as a pointer-sized number */
    int num_unnamed;
};

bool name_is_word(const char *text)
{
    if (!text ||
        !(*text == '_' || (*text >= 'a' && *text <= 'z') || (*text >= 'A' && *text <= 'Z')))
        return false;
    for (const char *c = text; *c; c++) {
        if (!(*c == '_' || *c == '.' || (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
              (*c >= '0' && *c <= '9')))
            return false;
    }
    return strlen(text) < 256;
}

static const char *pick(ValueNames *names, const Value *value)
{
    const char *hint = value->name;
    if (!name_is_word(hint))
        return arena_printf(names->arena, "%d", names->num_unnamed++);
    const char *text = hint;
    uintptr_t suffix = (uintptr_t)map_get(&names->suffix, hint);
    while (map_has(&names->used, text))
        text = arena_printf(names->arena, "%s.%d", hint, (int)++suffix);
    map_put(&names->used, text, (void *)text);
    if (suffix)
        map_put(&names->suffix, hint, (void *)suffix);
    return text;
}

static void name_block(ValueNames *names, const Block *block)
{
    for_each_op(op, block) {
        for (int i = 0; i < op->num_out; i++)
            valuemap_put(names->text, &op->out[i], (void *)pick(names, &op->out[i]));
        if (op->body)
            name_block(names, op->body);
    }
}

ValueNames *names_create(Arena *arena, const Block *block)
{
    ValueNames *names = ARENA_NEW(arena, ValueNames);
    names->arena = arena;
    names->text = valuemap_create(arena);
    map_init(&names->used, arena);
    map_init(&names->suffix, arena);
    name_block(names, block);
    return names;
}

const char *names_get(const ValueNames *names, const Value *value)
{
    const char *text = valuemap_get(names->text, value);
    return text ? text : "?"; /* not defined in this module: the verifier's business */
}
