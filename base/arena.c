/* Arenas: a chain of blocks, bump allocation, freed together. A reset keeps the blocks, so a
 * scratch arena stops calling malloc once it has seen its largest use. Under the address sanitiser
 * everything that was not given out is poisoned, and a red zone lies behind each object. */
#include "base/base.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#define POISON
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define POISON
#endif
#endif
#if defined(POISON)
#include <sanitizer/asan_interface.h>
#define RED_ZONE ((size_t)16)
#else
#define RED_ZONE                              ((size_t)0)
#define ASAN_POISON_MEMORY_REGION(at, size)   ((void)(at), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(at, size) ((void)(at), (void)(size))
#endif

#define FIRST_BLOCK  ((size_t)32 << 10)
#define LARGEST_STEP ((size_t)4 << 20)
#define ALIGNMENT    ((size_t)16)

typedef struct ArenaBlock {
    struct ArenaBlock *next;
    size_t size, used; /* of the bytes behind this header */
} ArenaBlock;

_Static_assert(sizeof(ArenaBlock) <= 32, "the header must leave the data aligned");
#define HEADER ((size_t)32)

struct Arena {
    ArenaBlock *first, *current;
    size_t bytes;
    jmp_buf *on_exhausted;
};

static char *block_data(ArenaBlock *block)
{
    return (char *)block + HEADER;
}

Arena *arena_create(void)
{
    return calloc(1, sizeof(Arena));
}

Arena *arena_new(void)
{
    Arena *arena = arena_create();
    if (!arena)
        memory_exhausted();
    return arena;
}

void arena_destroy(Arena *arena)
{
    if (!arena)
        return;
    ArenaBlock *next;
    for (ArenaBlock *block = arena->first; block; block = next) {
        next = block->next;
        ASAN_UNPOISON_MEMORY_REGION(block_data(block), block->size);
        free(block);
    }
    free(arena);
}

void arena_reset(Arena *arena)
{
    for (ArenaBlock *block = arena->first; block; block = block->next) {
        ASAN_POISON_MEMORY_REGION(block_data(block), block->size);
        block->used = 0;
    }
    arena->current = arena->first;
    arena->bytes = 0;
}

size_t arena_bytes(const Arena *arena)
{
    return arena->bytes;
}

void arena_on_exhausted(Arena *arena, jmp_buf *handler)
{
    arena->on_exhausted = handler;
}

_Noreturn static void exhausted(Arena *arena)
{
    if (arena->on_exhausted)
        longjmp(*arena->on_exhausted, 1);
    memory_exhausted();
}

/* A block with room for `size` bytes becomes the current one: a later block of the chain that a
 * reset left behind, or a new one. */
static ArenaBlock *block_for(Arena *arena, size_t size)
{
    ArenaBlock *last = arena->current;
    while (last && last->next) {
        last = last->next;
        if (last->size >= size) {
            arena->current = last;
            return last;
        }
    }
    size_t room = last ? last->size * 2 : FIRST_BLOCK;
    if (room > LARGEST_STEP)
        room = LARGEST_STEP;
    if (room < size)
        room = size;
    ArenaBlock *block = room > SIZE_MAX / 4 ? NULL : malloc(HEADER + room);
    if (!block)
        exhausted(arena);
    *block = (ArenaBlock){.size = room};
    ASAN_POISON_MEMORY_REGION(block_data(block), room);
    if (last)
        last->next = block;
    else
        arena->first = block;
    arena->current = block;
    return block;
}

/* What an object of this size takes of a block; distinct objects have distinct addresses. */
static size_t taken(Arena *arena, size_t size)
{
    if (size > SIZE_MAX - ALIGNMENT - RED_ZONE)
        exhausted(arena);
    size_t rounded = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return (rounded ? rounded : ALIGNMENT) + RED_ZONE;
}

void *arena_alloc(Arena *arena, size_t size)
{
    size_t room = taken(arena, size);
    ArenaBlock *block = arena->current;
    if (!block || block->size - block->used < room)
        block = block_for(arena, room);
    void *ret = block_data(block) + block->used;
    block->used += room;
    arena->bytes += room;
    ASAN_UNPOISON_MEMORY_REGION(ret, size);
    memset(ret, 0, size);
    return ret;
}

void *arena_alloc_array(Arena *arena, size_t num, size_t size)
{
    size_t total;
    if (__builtin_mul_overflow(num, size, &total))
        exhausted(arena);
    return arena_alloc(arena, total);
}

void *arena_grow(Arena *arena, void *old, size_t old_size, size_t new_size)
{
    ArenaBlock *block = arena->current;
    size_t had = taken(arena, old_size);
    bool is_latest =
        old && block && block->used >= had && (char *)old == block_data(block) + block->used - had;
    if (is_latest && new_size > old_size && new_size <= block->size) {
        size_t room = taken(arena, new_size);
        if (room - had <= block->size - block->used) {
            ASAN_UNPOISON_MEMORY_REGION(old, new_size);
            memset((char *)old + old_size, 0, new_size - old_size);
            block->used += room - had;
            arena->bytes += room - had;
            return old;
        }
    }
    void *ret = arena_alloc(arena, new_size);
    if (old)
        memcpy(ret, old, old_size < new_size ? old_size : new_size);
    return ret;
}

char *arena_strndup(Arena *arena, const char *text, size_t len)
{
    if (len == SIZE_MAX)
        exhausted(arena);
    char *ret = arena_alloc(arena, len + 1);
    memcpy(ret, text, len);
    return ret;
}

char *arena_strdup(Arena *arena, const char *text)
{
    return arena_strndup(arena, text, strlen(text));
}

char *arena_shown(Arena *arena, const char *text, size_t len)
{
    Sb sb;
    char one[UTF8_SHOWN];
    sb_init(&sb, arena);
    for (size_t i = 0; i < len;) {
        i += utf8_shown(text + i, len - i, one);
        sb_put(&sb, one);
    }
    return sb.text;
}

char *arena_printf(Arena *arena, const char *fmt, ...)
{
    Sb sb;
    va_list args;
    sb_init(&sb, arena);
    va_start(args, fmt);
    sb_vprintf(&sb, fmt, args);
    va_end(args);
    return sb.text;
}

void *array_grow(Arena *arena, void *elem, size_t size, int *cap)
{
    if (*cap > INT32_MAX / 2)
        exhausted(arena);
    int num = *cap ? *cap * 2 : 8;
    size_t new_size;
    if (__builtin_mul_overflow((size_t)num, size, &new_size))
        exhausted(arena);
    void *ret = arena_grow(arena, elem, (size_t)*cap * size, new_size);
    *cap = num;
    return ret;
}
