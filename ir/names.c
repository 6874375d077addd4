/* What each value prints as: its name hint where it has one, made unique with a suffix, else the
 * next number. Reading the printed form back gives every value the hint that it printed as, and
 * thus the same names again. */
#include "ir/internal.h"
#include <string.h>

struct ValueNames {
    Arena *arena;
    struct NameSlot {
        const Value *value;
        const char *text;
    } *slot; /* open addressing, a power of two */
    size_t cap;
    Map used, suffix; /* suffix: next one to try for a hint, as a pointer-sized number */
    int num_unnamed;
};

bool name_is_word(const char *text)
{
    if (!text || !(*text == '_' || (*text >= 'a' && *text <= 'z') || (*text >= 'A' && *text <= 'Z')))
        return false;
    for (const char *c = text; *c; c++) {
        if (!(*c == '_' || *c == '.' || (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
              (*c >= '0' && *c <= '9')))
            return false;
    }
    return strlen(text) < 256;
}

static struct NameSlot *find(const ValueNames *names, const Value *value)
{
    size_t at = ((uintptr_t)value >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 20 & (names->cap - 1);
    while (names->slot[at].value && names->slot[at].value != value)
        at = (at + 1) & (names->cap - 1);
    return &names->slot[at];
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

static size_t count_values(const Block *block)
{
    size_t num = 0;
    for_each_op(op, block)
        num += (size_t)op->num_out + (op->body ? count_values(op->body) : 0);
    return num;
}

static void name_block(ValueNames *names, const Block *block)
{
    for_each_op(op, block) {
        for (int i = 0; i < op->num_out; i++)
            *find(names, &op->out[i]) =
                (struct NameSlot){&op->out[i], pick(names, &op->out[i])};
        if (op->body)
            name_block(names, op->body);
    }
}

ValueNames *names_create(Arena *arena, const Block *block)
{
    ValueNames *names = ARENA_NEW(arena, ValueNames);
    size_t num = count_values(block);
    names->arena = arena;
    for (names->cap = 16; names->cap < num * 2;)
        names->cap *= 2;
    names->slot = ARENA_NEW_ARRAY(arena, struct NameSlot, names->cap);
    map_init(&names->used, arena);
    map_init(&names->suffix, arena);
    name_block(names, block);
    return names;
}

const char *names_get(const ValueNames *names, const Value *value)
{
    const char *text = find(names, value)->text;
    return text ? text : "?"; /* not defined in this module: the verifier's business */
}
