/* A table beside the values of a block, bodies included: one pointer a value. */
#include "ir/internal.h"

struct ValueMap {
    struct ValueSlot {
        const Value *value;
        void *data;
    } * slot; /* open addressing, a power of two at most half full */
    size_t cap;
};

static size_t count_values(const Block *block)
{
    size_t num = 0;
    for_each_op(op, block)
        num += (size_t)op->num_out + (op->body ? count_values(op->body) : 0);
    return num;
}

static struct ValueSlot *find(const ValueMap *map, const Value *value)
{
    size_t at = ((uintptr_t)value >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 20 & (map->cap - 1);
    while (map->slot[at].value && map->slot[at].value != value)
        at = (at + 1) & (map->cap - 1);
    return &map->slot[at];
}

static void reserve(ValueMap *map, const Block *block)
{
    for_each_op(op, block) {
        for (int i = 0; i < op->num_out; i++)
            find(map, &op->out[i])->value = &op->out[i];
        if (op->body)
            reserve(map, op->body);
    }
}

ValueMap *valuemap_create(Arena *arena, const Block *block)
{
    ValueMap *map = ARENA_NEW(arena, ValueMap);
    size_t num = count_values(block);
    for (map->cap = 16; map->cap < num * 2;)
        map->cap *= 2;
    map->slot = ARENA_NEW_ARRAY(arena, struct ValueSlot, map->cap);
    reserve(map, block);
    return map;
}

void **valuemap_at(const ValueMap *map, const Value *value)
{
    struct ValueSlot *slot = find(map, value);
    return slot->value ? &slot->data : NULL;
}
