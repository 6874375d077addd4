/* checkpoint/facts: what the content of a module says about whether it was read right. A wrong
 * order of nibbles, a zero point that is off by one, an axis taken for the other all leave codes
 * that do not look like a quantised weight, or values that are not those of the original. */
#include "checkpoint/checkpoint.h"

#include <math.h>
#include <string.h>

static int64_t block_or_all(int64_t block, int64_t num)
{
    return block ? block : num;
}

/* Is the block's range of codes at least 60 % of what the format has? Quantisers that take a range
 * from the values fill it; those that clip fill it the more. */
static bool block_is_full(const QTensor *q, int bits, int64_t row, int64_t col, int64_t rows,
                          int64_t cols)
{
    float lo = INFINITY, hi = -INFINITY;
    int num = 1 << bits;

    for (int64_t r = row; r < row + rows && r < q->rows; r++) {
        for (int64_t c = col; c < col + cols && c < q->cols; c++) {
            float value = format_decode(q->scheme.fmt, qtensor_code(q, r, c));
            lo = value < lo ? value : lo;
            hi = value > hi ? value : hi;
        }
    }
    return hi - lo >= 0.6f * (float)(num - 1);
}

static double full_blocks(const QTensor *q, int bits)
{
    int64_t rows = block_or_all(q->scheme.block[0], q->rows);
    int64_t cols = block_or_all(q->scheme.block[1], q->cols);
    int64_t full = 0, all = 0;

    for (int64_t r = 0; r < q->rows; r += rows)
        for (int64_t c = 0; c < q->cols; c += cols, all++)
            full += block_is_full(q, bits, r, c, rows, cols);
    return (double)full / (double)all;
}

static void scale_range(const QTensor *q, StoredFacts *f)
{
    f->scale_min = INFINITY;
    f->zero_min = INT32_MAX;
    f->zero_max = INT32_MIN;
    for (int64_t i = 0; i < q->row_blocks * q->col_blocks; i++) {
        float scale = num_scale_effective(q->scale[i], q->outer);
        f->scale_min = scale < f->scale_min ? scale : f->scale_min;
        f->scale_max = scale > f->scale_max ? scale : f->scale_max;
        if (q->zero && q->zero[i] < f->zero_min)
            f->zero_min = q->zero[i];
        if (q->zero && q->zero[i] > f->zero_max)
            f->zero_max = q->zero[i];
    }
}

int stored_bits(const StoredModule *m)
{
    return m->bits ? m->bits : format_info[m->scheme.fmt].bits;
}

int stored_codes(const StoredModule *m)
{
    FormatId fmt = m->scheme.fmt;
    bool all = m->bits || format_info[fmt].family != FAMILY_INT;

    return all ? 1 << stored_bits(m) : format_code_max(fmt) - format_code_min(fmt) + 1;
}

void stored_facts(const StoredModule *m, const QTensor *q, StoredFacts *ret)
{
    int64_t rows = block_or_all(q->scheme.block[0], q->rows);
    int64_t cols = block_or_all(q->scheme.block[1], q->cols);
    double sum = 0;

    *ret = (StoredFacts){.full = 1};
    for (int64_t r = 0; r < q->rows; r++) {
        for (int64_t c = 0; c < q->cols; c++) {
            uint32_t code = qtensor_code(q, r, c);
            int64_t at = r / rows * q->col_blocks + c / cols;
            ret->count[code]++;
            float value = qtensor_code_value(q, r, c);
            sum += (double)value - (q->zero ? q->zero[at] : 0);
        }
    }
    ret->mean = sum / ((double)q->rows * (double)q->cols);
    for (size_t i = 0; i < COUNT_OF(ret->count); i++)
        ret->used += ret->count[i] > 0;
    scale_range(q, ret);
    if (scheme_is_integer(&q->scheme))
        ret->full = full_blocks(q, stored_bits(m));
}

const char *stored_facts_doubt(const StoredModule *m, const StoredFacts *facts)
{
    if (!scheme_is_integer(&m->scheme))
        return NULL;
    if (!m->offset && fabs(facts->mean) >= 0.9 + 0.004 * (1 << stored_bits(m)))
        return "codes are off zero by a whole step on average: is the zero point read right?";
    if (facts->full < 0.5)
        return "most groups use little of the range of codes: is the order of codes read right?";
    return NULL;
}
