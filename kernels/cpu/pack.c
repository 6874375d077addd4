/* Packing of weights into the layout of layout.h. Runs when a model is compiled, and for products
 * of two activations when it runs. */
#include "kernels/cpu/layout.h"
#include <string.h>

const char *cpu_pack_problem(const CpuPackSpec *spec)
{
    PackLayout l;
    return layout_init(&l, spec);
}

uint64_t cpu_pack_bytes(const CpuPackSpec *spec)
{
    PackLayout l;
    return layout_init(&l, spec) ? 0 : layout_bytes(&l);
}

/* Where cpu_pack reads from. */
typedef struct PackSource {
    const CpuPackSpec *spec;
    const uint8_t *codes;
    int64_t pitch, grid_cols;
    const float *scale;
    const int32_t *zero;
} PackSource;

static uint32_t nibble_at(const uint8_t *row, int64_t k)
{
    return (uint32_t)(row[k >> 1] >> (4 * (k & 1))) & 15;
}

/* Integer class, one column of one record: units of four or eight k; returns the stored sum. */
static int32_t pack_int(const PackLayout *l, const uint8_t *row, const PackBlock *b, uint8_t *dst,
                        int64_t stride)
{
    int32_t sum = 0;
    bool nibbles = l->unit == 8;
    for (int64_t u = 0; u < b->units; u++, dst += stride) {
        int32_t stored[8] = {0};
        for (int i = 0; i < l->unit && u * l->unit + i < b->k_count; i++) {
            int64_t k = b->k_begin + u * l->unit + i;
            uint32_t code = nibbles ? nibble_at(row, k) : row[k];
            if (l->fmt == FMT_I8)
                stored[i] = (int8_t)code;
            else if (l->fmt == FMT_I4)
                stored[i] = (int32_t)(code ^ 8);
            else
                stored[i] = (int32_t)code - l->weight_offset;
            sum += stored[i];
        }
        for (int i = 0; i < 4; i++)
            dst[i] = (uint8_t)(nibbles ? stored[i] | stored[i + 4] << 4 : stored[i]);
    }
    return sum;
}

/* Float class: nibbles eight to a word, lowest k in the lowest bits; wider elements as they are. */
static void pack_float(const PackLayout *l, const uint8_t *row, const PackBlock *b, uint8_t *dst,
                       int64_t stride)
{
    if (l->unit == 1) {
        size_t size = (size_t)l->unit_bytes;
        const uint8_t *src = row + b->k_begin * l->unit_bytes;
        for (int64_t u = 0; u < b->units; u++, dst += stride, src += size)
            memcpy(dst, src, size);
        if (l->weight_offset) /* u8 as i8 */
            for (int64_t u = 1; u <= b->units; u++)
                dst[-u * stride] ^= 128;
        return;
    }
    uint32_t flip = (uint32_t)l->weight_offset; /* 8: u4 as i4 */
    for (int64_t u = 0; u < b->units; u++, dst += stride) {
        uint32_t word = 0;
        for (int i = 0; i < 8 && u * 8 + i < b->k_count; i++)
            word |= (nibble_at(row, b->k_begin + u * 8 + i) ^ flip) << (4 * i);
        for (int i = 0; i < 4; i++)
            dst[i] = (uint8_t)(word >> (8 * i));
    }
}

/* The scale and the zero point of one column in one block. */
static void pack_params(const PackLayout *l, const PackSource *src, int64_t n, const PackBlock *b,
                        int col)
{
    const CpuPackSpec *s = src->spec;
    int64_t grid_row = s->block_rows > 0 ? n / s->block_rows : 0;
    int64_t grid_col = s->block_cols > 0 ? b->k_begin / s->block_cols : 0;
    int64_t at = grid_row * src->grid_cols + grid_col;
    if (b->scale) {
        uint8_t *scale = (uint8_t *)(uintptr_t)b->scale + col * l->scale_bytes;
        uint32_t code = num_bits(src->scale[at]);
        if (l->scale_bytes < 4)
            code = num_encode((int)l->scale_fmt, src->scale[at]);
        for (int i = 0; i < l->scale_bytes; i++)
            scale[i] = (uint8_t)(code >> (8 * i));
    }
    if (b->zero)
        *((int8_t *)(uintptr_t)b->zero + col) = (int8_t)(src->zero[at] - l->weight_offset);
}

static void pack_column(const PackLayout *l, const PackSource *src, int64_t n, uint8_t *panel,
                        int cols, int col)
{
    const uint8_t *row = src->codes + n * src->pitch;
    int64_t stride = (int64_t)cols * l->unit_bytes;
    for (int64_t i = 0; i < l->blocks; i++) {
        PackBlock b = layout_block(l, panel, cols, i);
        uint8_t *dst = (uint8_t *)(uintptr_t)b.codes + col * l->unit_bytes;
        if (l->is_int) {
            int32_t sum = pack_int(l, row, &b, dst, stride);
            uint8_t *at = (uint8_t *)(uintptr_t)b.sum + col * l->sum_bytes;
            for (int j = 0; j < l->sum_bytes; j++)
                at[j] = (uint8_t)((uint32_t)sum >> (8 * j));
        } else {
            pack_float(l, row, &b, dst, stride);
        }
        pack_params(l, src, n, &b, col);
    }
}

void cpu_pack(const CpuPackSpec *spec, const void *codes, int64_t src_pitch, const float *scale,
              const int32_t *zero, float outer, void *dst)
{
    PackLayout l;
    if (layout_init(&l, spec))
        return;
    PackSource src = {spec, codes, src_pitch, 1, scale, zero};
    if (spec->block_cols > 0)
        src.grid_cols = (spec->k + spec->block_cols - 1) / spec->block_cols;
    memset(dst, 0, layout_bytes(&l));
    if (l.outer)
        memcpy((uint8_t *)dst + layout_outer_at(&l), &outer, sizeof outer);
    for (int64_t p = 0; p < l.panels; p++) {
        int cols = layout_panel_cols(&l, p);
        for (int part = 0; part < l.parts; part++) {
            uint8_t *panel = (uint8_t *)dst + layout_panel_at(&l, p, part);
            for (int c = 0; c < cols && p * PANEL_COLS + c < l.n_part; c++)
                pack_column(&l, &src, part * l.n_part + p * PANEL_COLS + c, panel, cols, c);
        }
    }
}
