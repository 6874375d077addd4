/* codegen/memory: where each tensor lies in the arena. Tensors whose lives do not overlap share
 * bytes; of the free gaps the smallest that fits is taken. Every bucket has its own offsets, so a
 * small batch uses a small arena. */
#include "codegen/build.h"

#include <stdlib.h>
#include <string.h>

#define ARENA_ALIGN 64

typedef struct Life {
    int tensor;
    int first, last; /* launches */
    uint64_t bytes, at;
} Life;

typedef struct Memory {
    Builder *b;
    Life *life; /* of arena tensors, by first launch, then by size in the largest bucket */
    int num;
    int *life_of;  /* tensor -> life, or -1 */
    Life **placed; /* alive, by offset */
    int num_placed;
} Memory;

/* The tensor whose bytes a view or a part shows. */
static int root_of(const Builder *b, int tensor)
{
    while (b->tensors.elem[tensor].storage >= STORAGE_VIEW)
        tensor = b->tensors.elem[tensor].index;
    return tensor;
}

static void touch(Memory *m, int tensor, int launch)
{
    if (tensor < 0)
        return;
    int index = m->life_of[root_of(m->b, tensor)];
    if (index < 0)
        return;
    Life *life = &m->life[index];
    if (life->first < 0)
        life->first = launch;
    life->last = launch;
}

static void find_lives(Memory *m)
{
    const Builder *b = m->b;
    for (int i = 0; i < b->tensors.num; i++) {
        m->life_of[i] = -1;
        if (b->tensors.elem[i].storage == STORAGE_ARENA) {
            m->life_of[i] = m->num;
            m->life[m->num++] = (Life){.tensor = i, .first = -1};
        }
    }
    for (int i = 0; i < b->launches.num; i++) {
        const PlanLaunch *l = &b->launches.elem[i];
        for (int k = 0; k < l->num_operands; k++)
            touch(m, l->operand[k].tensor, i);
        touch(m, l->grouped ? l->ends : -1, i);
        touch(m, l->a, i);
        touch(m, l->w, i);
        touch(m, l->src, i);
        touch(m, l->dst, i);
    }
}

static int compare_life(const void *x, const void *y)
{
    const Life *a = x, *b = y;
    if (a->first != b->first)
        return a->first < b->first ? -1 : 1;
    if (a->bytes != b->bytes)
        return a->bytes > b->bytes ? -1 : 1;
    return a->tensor < b->tensor ? -1 : 1;
}

static bool find_bytes(Memory *m, const int64_t *size)
{
    for (int i = 0; i < m->num; i++) {
        PlanLayout layout;
        const PlanTensor *t = &m->b->tensors.elem[m->life[i].tensor];
        if (!plan_tensor_layout(t, size, &layout) ||
            !checked_align(layout.bytes, ARENA_ALIGN, &m->life[i].bytes))
            return build_fail(m->b, (Span){0}, "the size of '%s' overflows", t->name);
    }
    return true;
}

static void drop_dead(Memory *m, int launch)
{
    int kept = 0;
    for (int i = 0; i < m->num_placed; i++)
        if (m->placed[i]->last >= launch)
            m->placed[kept++] = m->placed[i];
    m->num_placed = kept;
}

/* Best fit among the gaps between the living, else behind them. */
static void place(Memory *m, Life *life)
{
    uint64_t end = 0, best_gap = UINT64_MAX;
    int best = m->num_placed;
    for (int i = 0; i < m->num_placed; i++) {
        uint64_t gap = m->placed[i]->at - end;
        if (gap >= life->bytes && gap < best_gap) {
            best_gap = gap;
            best = i;
        }
        end = m->placed[i]->at + m->placed[i]->bytes;
    }
    if (best < m->num_placed)
        end = best ? m->placed[best - 1]->at + m->placed[best - 1]->bytes : 0;
    life->at = end;
    memmove(m->placed + best + 1, m->placed + best,
            (size_t)(m->num_placed - best) * sizeof *m->placed);
    m->placed[best] = life;
    m->num_placed++;
}

static uint64_t place_all(Memory *m)
{
    uint64_t bytes = 0;
    m->num_placed = 0;
    qsort(m->life, (size_t)m->num, sizeof *m->life, compare_life);
    for (int i = 0; i < m->num; i++) {
        drop_dead(m, m->life[i].first);
        place(m, &m->life[i]);
        if (m->life[i].at + m->life[i].bytes > bytes)
            bytes = m->life[i].at + m->life[i].bytes;
    }
    return bytes;
}

void memory_plan(Builder *b, Plan *plan)
{
    size_t num = (size_t)b->tensors.num + 1;
    uint64_t *arena_bytes = ARENA_NEW_ARRAY(b->arena, uint64_t, (size_t)plan->num_buckets);
    Memory m = {.b = b,
                .life = ARENA_NEW_ARRAY(b->arena, Life, num),
                .life_of = ARENA_NEW_ARRAY(b->arena, int, num),
                .placed = ARENA_NEW_ARRAY(b->arena, Life *, num)};
    find_lives(&m);
    for (int i = 0; i < m.num; i++)
        b->tensors.elem[m.life[i].tensor].arena_offset =
            ARENA_NEW_ARRAY(b->arena, uint64_t, (size_t)plan->num_buckets);
    for (int bucket = 0; bucket < plan->num_buckets; bucket++) {
        if (!find_bytes(&m, plan_bucket(plan, bucket)))
            return;
        arena_bytes[bucket] = place_all(&m);
        for (int i = 0; i < m.num; i++) {
            const uint64_t *offset = b->tensors.elem[m.life[i].tensor].arena_offset;
            ((uint64_t *)(uintptr_t)offset)[bucket] = m.life[i].at;
        }
    }
    plan->arena_bytes = arena_bytes;
}
