/* Activations of a product: widened or decoded once, so that the main loop meets u8 or f32 only,
 * and padded as the weight is. */
#include "kernels/cpu/internal.h"
#include <string.h>

/* f32 rows that the main loop can read where they lie. */
static bool is_direct(const CpuGemm *g, const PackLayout *l)
{
    const CpuTensor *a = &g->a;
    return !l->is_int && !a->quantised && a->fmt == FMT_F32 && l->k_padded == l->k &&
           a->row_div <= 1 && a->row_mod >= g->m && a->pitch % 4 == 0;
}

/* A stride that is no multiple of the page keeps the rows of a tile in different cache sets. */
static int64_t padded_stride(const PackLayout *l)
{
    int64_t size = l->is_int ? 1 : 4;
    int64_t bytes = (l->k_padded * size + 63) & ~(int64_t)63;
    return (bytes % 1024 ? bytes : bytes + 64) / size;
}

static bool scales_inside(const CpuGemm *g)
{
    return g->spec.mainloop && g->a.quantised;
}

uint64_t prepare_bytes(const CpuGemm *g, const PackLayout *l, int64_t rows)
{
    uint64_t num = (uint64_t)rows, grid = align_64(4 * num * (uint64_t)l->blocks), bytes = 0;
    if (!is_direct(g, l))
        bytes += align_64(num * (uint64_t)padded_stride(l) * (l->is_int ? 1 : 4));
    return bytes + (scales_inside(g) ? grid : 0) + (l->is_int ? 2 * grid : 0) +
           (l->late_zero ? grid : 0);
}

Prepared prepare_place(const CpuGemm *g, const PackLayout *l, int64_t rows, void *memory)
{
    Prepared p = {.is_direct = is_direct(g, l), .lda = padded_stride(l)};
    char *at = memory;
    uint64_t num = (uint64_t)rows, grid = align_64(4 * num * (uint64_t)l->blocks);
    if (p.is_direct) {
        p.lda = g->a.pitch / 4;
    } else {
        p.codes = memory;
        p.values = memory;
        at += align_64(num * (uint64_t)p.lda * (l->is_int ? 1 : 4));
    }
    if (scales_inside(g)) {
        p.scale = (float *)(void *)at;
        at += grid;
    }
    if (l->is_int) {
        p.ra = (int32_t *)(void *)at;
        p.rb = (int32_t *)(void *)(at + grid);
    }
    if (l->late_zero)
        p.sum = (float *)(void *)at;
    return p;
}

/* How far the integer class shifts signed codes to make them unsigned. */
static int32_t code_offset(FormatId fmt)
{
    return fmt == FMT_I8 || fmt == FMT_I4 ? 128 : 0;
}

static void prepare_codes(const CpuKernels *kern, const CpuGemm *g, const PackLayout *l,
                          const Prepared *p, int64_t mapped, int64_t slot)
{
    const CpuTensor *a = &g->a;
    const uint8_t *src = (const uint8_t *)a->data + mapped * a->pitch;
    uint8_t *dst = p->codes + slot * p->lda;
    for (int64_t b = 0; b < l->blocks; b++) {
        int64_t begin = b * l->block, num = b + 1 < l->blocks ? l->block : l->k - begin;
        int64_t padded = (b + 1 < l->blocks ? l->block_units : l->last_units) * l->unit;
        int32_t sum = kern->widen_codes(a->fmt, src + begin, dst, num);
        memset(dst + num, 0, (size_t)(padded - num));
        int32_t zero = code_offset(a->fmt);
        if (g->spec.mainloop)
            zero += tensor_zero(a, tensor_grid_at(a, mapped, begin));
        p->ra[slot * l->blocks + b] = zero;
        p->rb[slot * l->blocks + b] = (int32_t)((uint32_t)sum - (uint32_t)num * (uint32_t)zero);
        dst += padded;
    }
}

/* Codes as values without their scales, zero points subtracted; the scales are applied elsewhere.
 */
static void prepare_decoded(const CpuKernels *kern, const CpuTensor *a, int64_t mapped,
                            int64_t begin, int64_t num, float *dst)
{
    const uint8_t *src = (const uint8_t *)a->data + mapped * a->pitch;
    for (int64_t c = begin; c < begin + num;) {
        int64_t next = tensor_block_end(a, c, begin + num);
        kern->dequantise(a->fmt, src + c, 1.0f, tensor_zero(a, tensor_grid_at(a, mapped, c)),
                         dst + (c - begin), next - c);
        c = next;
    }
}

static void prepare_values(const CpuKernels *kern, const CpuGemm *g, const PackLayout *l,
                           const Prepared *p, int64_t mapped, int64_t slot)
{
    float *dst = (float *)(uintptr_t)p->values + slot * p->lda;
    for (int64_t b = 0; b < l->blocks; b++) {
        int64_t begin = b * l->block, num = b + 1 < l->blocks ? l->block : l->k - begin;
        int64_t padded = (b + 1 < l->blocks ? l->block_units : l->last_units) * l->unit;
        if (g->a.quantised)
            prepare_decoded(kern, &g->a, mapped, begin, num, dst);
        else
            tensor_read(kern, &g->a, mapped, begin, dst, num);
        memset(dst + num, 0, (size_t)(padded - num) * 4);
        dst += padded;
    }
}

static void prepare_sums(const CpuGemm *g, const PackLayout *l, const Prepared *p, int64_t row,
                         int64_t slot)
{
    const float *x = p->values + slot * p->lda;
    if (p->is_direct)
        x = (const float *)g->a.data + row * p->lda;
    for (int64_t b = 0; b < l->blocks; b++) {
        int64_t num = (b + 1 < l->blocks ? l->block_units : l->last_units) * l->unit;
        double sum = 0;
        for (int64_t i = 0; i < num; i++)
            sum += (double)x[i];
        p->sum[slot * l->blocks + b] = (float)sum;
        x += num;
    }
}

void prepare_row(const CpuKernels *kern, const CpuGemm *g, const PackLayout *l, const Prepared *p,
                 int64_t row, int64_t slot)
{
    int64_t mapped = tensor_row(&g->a, row);
    if (l->is_int)
        prepare_codes(kern, g, l, p, mapped, slot);
    else if (!p->is_direct)
        prepare_values(kern, g, l, p, mapped, slot);
    if (p->sum)
        prepare_sums(g, l, p, row, slot);
    for (int64_t b = 0; p->scale && b < l->blocks; b++)
        p->scale[slot * l->blocks + b] =
            tensor_scale(&g->a, tensor_grid_at(&g->a, mapped, b * l->block));
}
