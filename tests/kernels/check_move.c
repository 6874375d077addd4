/* Strided copies against element-by-element ones. */
#include "check.h"
#include <stdlib.h>
#include <string.h>

static void check_one(Rng *rng)
{
    static const int sizes[] = {1, 2, 4, 8};
    CpuMove m = {.rank = (int)rng_range(rng, 0, CPU_MOVE_RANK),
                 .element_bytes = RNG_PICK(rng, sizes)};
    int order[CPU_MOVE_RANK];
    int64_t num = 1;
    for (int i = 0; i < m.rank; i++) {
        m.dim[i] = rng_range(rng, rng_range(rng, 0, 20) == 0 ? 0 : 1, m.rank > 3 ? 4 : 9);
        order[i] = i;
        num *= m.dim[i];
    }
    for (int i = m.rank - 1; i > 0; i--) { /* the source lies in some other order of dimensions */
        int j = (int)rng_range(rng, 0, i), t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
    bool plain = rng_range(rng, 0, 3) == 0;
    int64_t src_size = m.element_bytes, dst_size = m.element_bytes;
    for (int i = m.rank - 1; i >= 0; i--) {
        int from = plain ? i : order[i];
        m.src_stride[from] = src_size;
        src_size *= m.dim[from] + (plain ? 0 : rng_range(rng, 0, 1));
        m.dst_stride[i] = dst_size;
        dst_size *= m.dim[i] + rng_range(rng, 0, 1);
    }
    if (num == 0)
        src_size = dst_size = 1;
    uint8_t *src = guard_alloc((uint64_t)src_size), *dst = guard_alloc((uint64_t)dst_size);
    uint8_t *want = malloc((size_t)dst_size);
    for (int64_t i = 0; i < src_size; i++)
        src[i] = (uint8_t)rng_next(rng);
    memcpy(want, dst, (size_t)dst_size);
    for (int64_t i = 0; i < num; i++) {
        int64_t left = i, from = 0, to = 0;
        for (int d = m.rank - 1; d >= 0; d--) {
            from += left % m.dim[d] * m.src_stride[d];
            to += left % m.dim[d] * m.dst_stride[d];
            left /= m.dim[d];
        }
        memcpy(want + to, src + from, (size_t)m.element_bytes);
    }
    m.src = src;
    m.dst = dst;
    cpu_move(&m, (int)rng_range(rng, 1, 2));
    if (memcmp(want, dst, (size_t)dst_size))
        check_fail("a copy of rank %d and %lld elements differs", m.rank, (long long)num);
    free(want);
    guard_free(src);
    guard_free(dst);
}

static void check_moves(Rng *rng, const CheckOptions *options)
{
    for (int i = 0; i < (options->full ? 5000 : 200) && !check_failed(); i++)
        check_one(rng);
}

void check_move(void)
{
    check_all_isas("move", check_moves);
}
