/* Transpose, slice and concat: one strided copy. Dimensions that lie side by side on both sides are
 * merged first, so that most copies end as rows of bytes. */
#include "base/team.h"
#include "kernels/cpu/cpu.h"
#include <string.h>

static CpuMove move_merged(const CpuMove *move)
{
    CpuMove m = *move;
    m.rank = 0;
    for (int i = 0; i < move->rank; i++) {
        if (move->dim[i] == 1)
            continue;
        int last = m.rank - 1;
        if (m.rank && m.src_stride[last] == move->dim[i] * move->src_stride[i] &&
            m.dst_stride[last] == move->dim[i] * move->dst_stride[i]) {
            m.dim[last] *= move->dim[i];
        } else {
            last = m.rank++;
            m.dim[last] = move->dim[i];
        }
        m.src_stride[last] = move->src_stride[i];
        m.dst_stride[last] = move->dst_stride[i];
    }
    return m;
}

#define COPY_ELEMENTS(Type)                                 \
    for (int64_t i = 0; i < num; i++, src += ss, dst += ds) \
    memcpy(dst, src, sizeof(Type))

static void move_row(const CpuMove *m, const char *src, char *dst)
{
    if (m->rank == 0) {
        memcpy(dst, src, (size_t)m->element_bytes);
        return;
    }
    int last = m->rank - 1;
    int64_t num = m->dim[last], ss = m->src_stride[last], ds = m->dst_stride[last];
    if (ss == m->element_bytes && ds == m->element_bytes) {
        memcpy(dst, src, (size_t)(num * ss));
        return;
    }
    switch (m->element_bytes) {
    case 1: COPY_ELEMENTS(uint8_t); break;
    case 2: COPY_ELEMENTS(uint16_t); break;
    case 4: COPY_ELEMENTS(uint32_t); break;
    default:
        for (int64_t i = 0; i < num; i++)
            memcpy(dst + i * ds, src + i * ss, (size_t)m->element_bytes);
        break;
    }
}

static void move_rows(void *user, int64_t begin, int64_t end, int thread)
{
    const CpuMove *m = user;
    (void)thread;
    for (int64_t row = begin; row < end; row++) {
        int64_t left = row, from = 0, to = 0;
        for (int i = m->rank - 2; i >= 0; i--) {
            from += left % m->dim[i] * m->src_stride[i];
            to += left % m->dim[i] * m->dst_stride[i];
            left /= m->dim[i];
        }
        move_row(m, (const char *)m->src + from, (char *)m->dst + to);
    }
}

#define ROWS_AT_ONCE 64

void cpu_move(const CpuMove *move, int threads)
{
    for (int i = 0; i < move->rank; i++)
        if (move->dim[i] <= 0)
            return;
    CpuMove m = move_merged(move);
    int64_t rows = 1;
    for (int i = 0; i + 1 < m.rank; i++)
        rows *= m.dim[i];
    int64_t step = rows / (8 * (int64_t)threads + 1);
    team_run(threads, rows, step < ROWS_AT_ONCE ? ROWS_AT_ONCE : step, move_rows, &m);
}
