/* Hashing: interned strings, a map from text that keeps the order of insertion, and the search for
 * the nearest name that "did you mean" needs. */
#include "base/base.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static uint64_t hash_mix(uint64_t h)
{
    h ^= h >> 32;
    h *= UINT64_C(0xd6e8feb86659fd93);
    h ^= h >> 32;
    h *= UINT64_C(0xd6e8feb86659fd93);
    h ^= h >> 32;
    return h;
}

uint64_t hash_bytes(const void *data, size_t size, uint64_t seed)
{
    const uint8_t *byte = data;
    uint64_t h = seed ^ (size * UINT64_C(0x9e3779b97f4a7c15));
    while (size >= 8) {
        uint64_t word;
        memcpy(&word, byte, 8);
        h = (hash_mix(word ^ h) + h) * UINT64_C(0x9e3779b97f4a7c15);
        byte += 8;
        size -= 8;
    }
    uint64_t word = 0;
    memcpy(&word, byte, size);
    return hash_mix(word ^ hash_mix(h));
}

/* One seed a process: whoever writes a file cannot know which of its names will share a slot. */
static uint64_t process_seed(void)
{
    static _Atomic uint64_t chosen;
    uint64_t seed = atomic_load_explicit(&chosen, memory_order_relaxed), none = 0;
    if (seed)
        return seed;
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != (ssize_t)sizeof seed)
        seed = (uint64_t)time(NULL) ^ (uint64_t)(uintptr_t)&seed; /* better than none */
    seed |= 1;
    return atomic_compare_exchange_strong(&chosen, &none, seed) ? seed : none;
}

uint64_t hash_keyed(const void *data, size_t size)
{
    return XXH3_64bits_withSeed(data, size, process_seed());
}

void map_init(Map *map, Arena *arena)
{
    *map = (Map){.arena = arena};
}

/* The slot that holds `key`, or the empty one where it would go. */
static int find_slot(const Map *map, const char *key, size_t len, uint64_t hash)
{
    uint64_t mask = (uint64_t)map->num_slots - 1, at = hash & mask;
    while (map->slot[at]) {
        const struct MapEntry *other = &map->entry[map->slot[at] - 1];
        if (other->hash == hash && strncmp(other->key, key, len) == 0 && other->key[len] == '\0')
            break;
        at = (at + 1) & mask;
    }
    return (int)at;
}

static struct MapEntry *map_find(const Map *map, const char *key, size_t len)
{
    if (!map->num_slots)
        return NULL;
    int at = find_slot(map, key, len, hash_keyed(key, len));
    return map->slot[at] ? &map->entry[map->slot[at] - 1] : NULL;
}

void *map_get(const Map *map, const char *key)
{
    const struct MapEntry *entry = map_find(map, key, strlen(key));
    return entry ? entry->value : NULL;
}

bool map_has(const Map *map, const char *key)
{
    return map_find(map, key, strlen(key)) != NULL;
}

/* All keys are different: only an empty slot is looked for. */
static void grow_slots(Map *map)
{
    map->num_slots = map->num_slots ? map->num_slots * 2 : 16;
    map->slot = ARENA_NEW_ARRAY(map->arena, int, (size_t)map->num_slots);
    uint64_t mask = (uint64_t)map->num_slots - 1;
    for (int i = 0; i < map->num; i++) {
        uint64_t at = map->entry[i].hash & mask;
        while (map->slot[at])
            at = (at + 1) & mask;
        map->slot[at] = i + 1;
    }
}

/* Adds a key that the map does not hold. */
static struct MapEntry *map_add(Map *map, const char *key, size_t len, void *value)
{
    if (map->num >= map->num_slots / 2)
        grow_slots(map);
    if (map->num == map->cap)
        map->entry = array_grow(map->arena, map->entry, sizeof *map->entry, &map->cap);
    struct MapEntry *entry = &map->entry[map->num++];
    entry->key = arena_strndup(map->arena, key, len);
    entry->value = value;
    entry->hash = hash_keyed(key, len);
    map->slot[find_slot(map, key, len, entry->hash)] = map->num;
    return entry;
}

void map_put(Map *map, const char *key, void *value)
{
    size_t len = strlen(key);
    struct MapEntry *entry = map_find(map, key, len);
    if (entry)
        entry->value = value;
    else
        map_add(map, key, len, value);
}

struct Intern {
    Map map;
};

Intern *intern_create(Arena *arena)
{
    Intern *table = ARENA_NEW(arena, Intern);
    map_init(&table->map, arena);
    return table;
}

const char *intern(Intern *table, const char *text, size_t len)
{
    const struct MapEntry *entry = map_find(&table->map, text, len);
    if (!entry)
        entry = map_add(&table->map, text, len, NULL);
    return entry->key;
}

/* Nearest name ------------------------------------------------------------------------------- */

#define NEAREST_MAX 255

void nearest_init(Nearest *nearest, const char *word)
{
    *nearest = (Nearest){.word = word};
}

static int min3(int a, int b, int c)
{
    int ab = a < b ? a : b;
    return ab < c ? ab : c;
}

/* Edits (insert, delete, replace, swap of neighbours) from a to b, or limit + 1 when there are more
 * than limit. */
static int edit_distance(const char *a, int len_a, const char *b, int len_b, int limit)
{
    int row[3][NEAREST_MAX + 1];
    int *before = row[0], *above = row[1], *here = row[2];
    for (int j = 0; j <= len_b; j++)
        above[j] = j;
    for (int i = 1; i <= len_a; i++) {
        int best = here[0] = i;
        for (int j = 1; j <= len_b; j++) {
            int replace = above[j - 1] + (a[i - 1] != b[j - 1]);
            here[j] = min3(above[j] + 1, here[j - 1] + 1, replace);
            bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped && before[j - 2] + 1 < here[j])
                here[j] = before[j - 2] + 1;
            best = here[j] < best ? here[j] : best;
        }
        if (best > limit)
            return limit + 1;
        int *free_row = before;
        before = above;
        above = here;
        here = free_row;
    }
    return above[len_b];
}

void nearest_offer(Nearest *nearest, const char *candidate)
{
    size_t len_a = strlen(nearest->word), len_b = strlen(candidate);
    if (len_a == 0 || len_a > NEAREST_MAX || len_b == 0 || len_b > NEAREST_MAX)
        return;
    int len = (int)(len_a > len_b ? len_a : len_b);
    /* A suggestion must share most of the word: a third of it may differ, at least one letter of
     * longer words and none of the whole word. */
    int limit = len < 3 ? len - 1 : len / 3;
    if (nearest->best && nearest->best_distance - 1 < limit)
        limit = nearest->best_distance - 1;
    int difference = (int)len_a - (int)len_b;
    if (limit < 0 || difference > limit || -difference > limit)
        return;
    int distance = edit_distance(nearest->word, (int)len_a, candidate, (int)len_b, limit);
    if (distance > limit)
        return;
    nearest->best = candidate;
    nearest->best_distance = distance;
}

const char *nearest_get(const Nearest *nearest)
{
    return nearest->best;
}
