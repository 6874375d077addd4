/* TILE_QUANTIZE: codes, and for dynamic schemes scales and zero points, by the one formula of
 * numerics.h. Blocks inside a row are done at once; ranges of blocks that span rows, and of outer
 * scales, are gathered in a first pass over the program. */
#include "kernels/cpu/internal.h"

static float scale_of_range(const CpuTensor *t, const RowRange *range, float outer, int32_t *zero)
{
    if (t->has_zero)
        return num_scale_asym((int)t->fmt, (int)t->scale_fmt, range->lo, range->hi, zero);
    *zero = 0;
    return num_scale_sym((int)t->fmt, (int)t->scale_fmt, range->amax, outer);
}

void quantise_row(const TileRun *run, const CpuTensor *t, int64_t row, const float *src)
{
    int64_t mapped = tensor_row(t, row), end = run->n0 + run->cols;
    uint8_t *codes = (uint8_t *)tensor_row_at(t, row);
    bool given = t->is_static || t->block_rows != 1;
    float outer = t->outer ? *t->outer_scale : 1.0f;
    for (int64_t col = run->n0; col < end;) {
        int64_t next = tensor_block_end(t, col, end), at = tensor_grid_at(t, mapped, col);
        const float *x = src + (col - run->n0);
        if (!given) {
            RowRange range = NO_RANGE;
            int32_t zero;
            run->kern->range(x, next - col, num_has_nan((int)t->fmt), &range);
            t->scale[at] = scale_of_range(t, &range, outer, &zero);
            if (t->has_zero)
                t->zero[at] = zero;
        }
        run->kern->quantise(t->fmt, t->has_zero, num_inverse(tensor_scale(t, at)),
                            tensor_zero(t, at), x, codes + col, next - col);
        col = next;
    }
}

static void raise_to(int32_t *most, int32_t value)
{
    int32_t seen = __atomic_load_n(most, __ATOMIC_RELAXED);
    while (seen < value && !__atomic_compare_exchange_n(most, &seen, value, true, __ATOMIC_RELAXED,
                                                        __ATOMIC_RELAXED))
        continue;
}

static void lower_to(int32_t *least, int32_t value)
{
    int32_t seen = __atomic_load_n(least, __ATOMIC_RELAXED);
    while (seen > value && !__atomic_compare_exchange_n(least, &seen, value, true, __ATOMIC_RELAXED,
                                                        __ATOMIC_RELAXED))
        continue;
}

void gather_row(const TileRun *run, int operand, int64_t row, const float *src)
{
    const CpuTensor *t = &run->operand[operand];
    TileSpan *span = &run->gather[operand];
    int64_t mapped = tensor_row(t, row), end = run->n0 + run->cols;
    if (t->outer)
        raise_to(&span->outer_bits, run->kern->outer_bits(src, run->cols));
    for (int64_t col = run->n0; span->amax && col < end;) {
        int64_t next = tensor_block_end(t, col, end), at = tensor_grid_at(t, mapped, col);
        RowRange range = NO_RANGE;
        run->kern->range(src + (col - run->n0), next - col, num_has_nan((int)t->fmt), &range);
        raise_to(&span->amax[at], range.amax);
        lower_to(&span->lo[at], range.lo);
        raise_to(&span->hi[at], range.hi);
        col = next;
    }
}

void span_finish(const CpuTensor *t, const TileSpan *span)
{
    float outer = 1.0f;
    if (t->outer)
        outer = *t->outer_scale = num_outer((int)t->fmt, span->outer_bits);
    if (!span->amax)
        return;
    int64_t num = ceil_blocks(t->rows, t->block_rows) * ceil_blocks(t->cols, t->block_cols);
    for (int64_t i = 0; i < num; i++) {
        RowRange range = {span->amax[i], span->lo[i], span->hi[i]};
        int32_t zero;
        t->scale[i] = scale_of_range(t, &range, outer, &zero);
        if (t->has_zero)
            t->zero[i] = zero;
    }
}
