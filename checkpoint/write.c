/* checkpoint/write: what the writers share: codes as fields of streams, groups of columns. */
#include "checkpoint/write.h"

#include <string.h>

const CheckpointWriter *const checkpoint_writers[] = {&writer_compressed, &writer_gptq, NULL};

void write_part(WriteModule *m, const char *suffix, const char *dtype, int rank, int64_t d0,
                int64_t d1)
{
    if (m->num_parts == WRITE_PARTS)
        BUG("%s has more than %d parts", m->name, WRITE_PARTS);
    m->part[m->num_parts++] = (WritePart){suffix, dtype, rank, {d0, d1}};
}

static uint32_t lift(const WriteModule *m)
{
    const FormatInfo *info = &format_info[m->scheme.fmt];

    return info->is_signed ? 1u << (info->bits - 1) : 0;
}

uint32_t written_code(const WriteModule *m, const QTensor *q, int64_t row, int64_t at)
{
    uint32_t mask = (1u << format_info[m->scheme.fmt].bits) - 1; /* memory has them extended */

    return (qtensor_code(q, row, at) ^ lift(m)) & mask;
}

/* Where the row's entry of the grid lies. */
static int64_t entry(const QTensor *q, int64_t row, int64_t group)
{
    int64_t block = q->scheme.block[0];

    return (block ? row / block : 0) * q->col_blocks + (group < q->col_blocks ? group : 0);
}

uint32_t written_zero(const WriteModule *m, const QTensor *q, int64_t row, int64_t group)
{
    int32_t zero = q->zero ? q->zero[entry(q, row, group)] : 0;

    return (uint32_t)(zero + (int32_t)lift(m));
}

float written_scale(const QTensor *q, int64_t row, int64_t group)
{
    return q->scale[entry(q, row, group)];
}

void stream_put(uint32_t *word, int64_t stride, uint64_t at, int bits, uint32_t code)
{
    int64_t i = (int64_t)(at / 32);
    uint64_t shift = at % 32, two = (uint64_t)code << shift;

    word[i * stride] |= (uint32_t)two;
    if (shift + (uint64_t)bits > 32)
        word[(i + 1) * stride] |= (uint32_t)(two >> 32);
}

void write_order(const WriteModule *m, int32_t *group)
{
    int64_t size = m->scheme.block[1] ? m->scheme.block[1] : m->cols;

    for (int64_t at = 0; at < m->cols; at++)
        group[written_column(m, at)] = (int32_t)(at / size);
}
