/* A table beside values: one pointer a value. */
#include "ir/internal.h"

struct ValueMap {
    Arena *arena;
    struct ValueSlot {
        const Value *value;
        void *data;
    } * slot; /* open addressing, a power of two at most half full */
    size_t cap, num;
};

static struct ValueSlot *find(const ValueMap *map, const Value *value)
{
    size_t at = ((uintptr_t)value >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 20 & (map->cap - 1);
    while (map->slot[at].value && map->slot[at].value != value)
        at = (at + 1) & (map->cap - 1);
    return &map->slot[at];
}

ValueMap *valuemap_create(Arena *arena)
{
    ValueMap *map = ARENA_NEW(arena, ValueMap);
    map->arena = arena;
    map->cap = 16;
    map->slot = ARENA_NEW_ARRAY(arena, struct ValueSlot, map->cap);
    return map;
}

static void resize(ValueMap *map, size_t cap)
{
    struct ValueSlot *old = map->slot;
    size_t old_cap = map->cap;
    map->cap = cap;
    map->slot = ARENA_NEW_ARRAY(map->arena, struct ValueSlot, map->cap);
    for (size_t i = 0; i < old_cap; i++) {
        if (old[i].value)
            *find(map, old[i].value) = old[i];
    }
}

void valuemap_reserve(ValueMap *map, size_t num)
{
    size_t cap = map->cap;
    while (cap < 2 * num)
        cap *= 2;
    if (cap > map->cap)
        resize(map, cap);
}

void *valuemap_get(const ValueMap *map, const Value *value)
{
    return find(map, value)->data;
}

void valuemap_put(ValueMap *map, const Value *value, void *data)
{
    struct ValueSlot *slot = find(map, value);
    if (!slot->value) {
        if (++map->num * 2 > map->cap) {
            resize(map, 2 * map->cap);
            slot = find(map, value);
        }
        slot->value = value;
    }
    slot->data = data;
}
