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
    const uint8_t *codes;
    int64_t pitch, block_rows, block_cols, grid_cols;
    const float *scale;
    const int32_t *zero;
} PackSource;

static uint32_t nibble_at(const uint8_t *row, int64_t k)
{
    return (uint32_t)(row[k >> 1] >> (4 * (k & 1))) & 15;
}

/* One column of one record from unit `from` on, code by code --------------------------------- */

/* Integer class: units of four or eight k; returns the stored sum. */
static int32_t pack_int(const PackLayout *l, const uint8_t *row, const PackBlock *b, int64_t from,
                        uint8_t *dst, int64_t stride)
{
    int32_t sum = 0;
    bool nibbles = l->unit == 8;
    dst += from * stride;
    for (int64_t u = from; u < b->units; u++, dst += stride) {
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

/* Float class, nibbles: eight to a word, lowest k in the lowest bits. */
static void pack_nibbles(const PackLayout *l, const uint8_t *row, const PackBlock *b, int64_t from,
                         uint8_t *dst, int64_t stride)
{
    uint32_t flip = (uint32_t)l->weight_offset; /* 8: u4 as i4 */
    dst += from * stride;
    for (int64_t u = from; u < b->units; u++, dst += stride) {
        uint32_t word = 0;
        for (int i = 0; i < 8 && u * 8 + i < b->k_count; i++)
            word |= (nibble_at(row, b->k_begin + u * 8 + i) ^ flip) << (4 * i);
        for (int i = 0; i < 4; i++)
            dst[i] = (uint8_t)(word >> (8 * i));
    }
}

/* Whole units of all columns of one record ---------------------------------------------------- */

typedef struct Record {
    const uint8_t *row; /* of the first column, at the block's first code */
    int64_t pitch;      /* from column to column */
    int cols, stored;   /* columns with weights; columns of the panel */
    int64_t units;      /* whole ones */
    uint8_t *dst;
} Record;

/* Units that are moved for one column after another: what they write stays in the first cache. */
#define STRIP 16

static uint32_t load_word(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static void store_word(uint8_t *at, uint32_t word)
{
    for (int i = 0; i < 4; i++)
        at[i] = (uint8_t)(word >> (8 * i));
}

/* Nibbles 0..3 go to the even places, 4..7 to the odd ones. */
static uint32_t interleave(uint32_t word)
{
    uint32_t even = word & 0xFFFF, odd = word >> 16;
    even = (even | even << 8) & 0x00FF00FF;
    even = (even | even << 4) & 0x0F0F0F0F;
    odd = (odd | odd << 8) & 0x00FF00FF;
    odd = (odd | odd << 4) & 0x0F0F0F0F;
    return even | odd << 4;
}

static inline void move_words(const Record *r, uint32_t flip, bool interleaved)
{
    int64_t stride = (int64_t)r->stored * 4;
    for (int64_t begin = 0; begin < r->units; begin += STRIP) {
        int64_t end = begin + STRIP < r->units ? begin + STRIP : r->units;
        for (int c = 0; c < r->cols; c++) {
            const uint8_t *src = r->row + c * r->pitch;
            uint8_t *dst = r->dst + c * 4;
            for (int64_t u = begin; u < end; u++) {
                uint32_t word = load_word(src + 4 * u) ^ flip;
                store_word(dst + u * stride, interleaved ? interleave(word) : word);
            }
        }
    }
}

static void move_halves(const Record *r)
{
    for (int64_t begin = 0; begin < r->units; begin += STRIP) {
        int64_t end = begin + STRIP < r->units ? begin + STRIP : r->units;
        for (int c = 0; c < r->cols; c++)
            for (int64_t u = begin; u < end; u++)
                memcpy(r->dst + (u * r->stored + c) * 2, r->row + c * r->pitch + 2 * u, 2);
    }
}

static uint64_t swap_parts(uint64_t *low, uint64_t high, uint64_t mask, int shift)
{
    uint64_t t = (*low >> shift ^ high) & mask;
    *low ^= t << shift;
    return high ^ t;
}

/* Eight columns of eight bytes each become eight units of eight columns. */
static void move_8x8(const uint8_t *src, int64_t pitch, uint64_t flip, uint8_t *dst, int64_t stride)
{
    static const uint64_t mask[3] = {UINT64_C(0x00000000FFFFFFFF), UINT64_C(0x0000FFFF0000FFFF),
                                     UINT64_C(0x00FF00FF00FF00FF)};
    uint64_t x[8];
    for (int i = 0; i < 8; i++)
        memcpy(&x[i], src + i * pitch, 8);
    for (int i = 0; i < 4; i++)
        x[i + 4] = swap_parts(&x[i], x[i + 4], mask[0], 32);
    for (int i = 0; i < 8; i += i % 2 ? 3 : 1)
        x[i + 2] = swap_parts(&x[i], x[i + 2], mask[1], 16);
    for (int i = 0; i < 8; i += 2)
        x[i + 1] = swap_parts(&x[i], x[i + 1], mask[2], 8);
    for (int i = 0; i < 8; i++) {
        x[i] ^= flip;
        memcpy(dst + i * stride, &x[i], 8);
    }
}

static void move_bytes(const Record *r, uint8_t flip)
{
    uint64_t flips = flip * UINT64_C(0x0101010101010101);
    int64_t units = r->units / 8 * 8;
    int cols = r->cols / 8 * 8;
    for (int64_t begin = 0; begin < units; begin += 64) {
        int64_t end = begin + 64 < units ? begin + 64 : units;
        for (int c = 0; c < cols; c += 8)
            for (int64_t u = begin; u < end; u += 8)
                move_8x8(r->row + c * r->pitch + u, r->pitch, flips, r->dst + u * r->stored + c,
                         r->stored);
    }
    for (int c = 0; c < r->cols; c++)
        for (int64_t u = c < cols ? units : 0; u < r->units; u++)
            r->dst[u * r->stored + c] = r->row[c * r->pitch + u] ^ flip;
}

/* What pack_int stores of num bytes of whole units, summed. */
static int32_t sum_codes(const PackLayout *l, const uint8_t *codes, int64_t num)
{
    int32_t sum = 0;
    if (l->unit == 8) {
        uint8_t flip = l->fmt == FMT_I4 ? 0x88 : 0;
        for (int64_t i = 0; i < num; i++)
            sum += ((codes[i] ^ flip) & 15) + ((codes[i] ^ flip) >> 4);
        return sum;
    }
    uint8_t flip = l->fmt == FMT_U8 ? 0x80 : 0;
    for (int64_t i = 0; i < num; i++)
        sum += (int8_t)(codes[i] ^ flip);
    return sum;
}

/* The scale and the zero point of one column in one block, or its factor. */
static void pack_params(const PackLayout *l, const PackSource *src, int64_t n, const PackBlock *b,
                        int col)
{
    int64_t grid_row = src->block_rows > 0 ? n / src->block_rows : 0;
    int64_t grid_col = src->block_cols > 0 ? b->k_begin / src->block_cols : 0;
    int64_t at = grid_row * src->grid_cols + grid_col;
    if (b->factor)
        *((uint8_t *)(uintptr_t)b->factor + col) =
            (uint8_t)((int)src->scale[at] - 1 + 16 * src->zero[at]);
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

static void pack_whole_units(const PackLayout *l, const Record *r)
{
    uint32_t offset = (uint32_t)l->weight_offset;
    if (l->is_int && l->unit == 8)
        move_words(r, l->fmt == FMT_I4 ? 0x88888888 : 0, true);
    else if (l->is_int)
        move_words(r, l->fmt == FMT_U8 ? 0x80808080 : 0, false);
    else if (l->unit == 8)
        move_words(r, offset * 0x11111111, false);
    else if (l->unit_bytes == 4)
        move_words(r, 0, false);
    else if (l->unit_bytes == 2)
        move_halves(r);
    else
        move_bytes(r, (uint8_t)offset);
}

/* The record of block b: `num` columns, the first of which is row n of the weight. sums: those
 * behind a factored panel, which grow. */
static void pack_record(const PackLayout *l, const PackSource *src, int64_t n, int num,
                        const PackBlock *b, int cols, int32_t *sums)
{
    bool nibbles = l->unit == 8;
    bool whole = !nibbles || b->k_begin % 2 == 0; /* else no code starts a byte */
    int64_t start = nibbles ? b->k_begin / 2 : b->k_begin * (l->is_int ? 1 : l->unit_bytes);
    Record r = {.row = src->codes + n * src->pitch + start,
                .pitch = src->pitch,
                .cols = num,
                .stored = cols,
                .units = whole ? b->k_count / l->unit : 0,
                .dst = (uint8_t *)(uintptr_t)b->codes};
    int64_t stride = (int64_t)cols * l->unit_bytes;
    if (!l->narrow)
        pack_whole_units(l, &r);
    for (int c = 0; c < num; c++) {
        const uint8_t *row = src->codes + (n + c) * src->pitch;
        uint8_t *dst = r.dst + c * l->unit_bytes;
        int32_t sum = 0;
        if (l->narrow)
            sum = narrow_pack(l, row, b, c, cols);
        else if (l->is_int)
            sum =
                (l->sum_bytes || l->factored ? sum_codes(l, r.row + c * r.pitch, 4 * r.units) : 0) +
                pack_int(l, row, b, r.units, dst, stride);
        else if (nibbles && r.units < b->units)
            pack_nibbles(l, row, b, r.units, dst, stride);
        if (l->is_int) {
            uint8_t *at = (uint8_t *)(uintptr_t)b->sum + c * l->sum_bytes;
            for (int j = 0; j < l->sum_bytes; j++)
                at[j] = (uint8_t)((uint32_t)sum >> (8 * j));
        }
        pack_params(l, src, n + c, b, c);
        if (b->factor)
            sums[c] += factor_of_byte(b->factor[c]) *
                       (sum - factor_zero(b->factor[c]) * (int32_t)b->k_count);
    }
}

void cpu_pack(const CpuPackSpec *spec, const void *codes, int64_t src_pitch, const float *scale,
              const int32_t *zero, const float *table, void *dst)
{
    PackLayout l;
    if (layout_init(&l, spec))
        return;
    PackSource src = {codes, src_pitch, spec->block_rows, spec->block_cols, 1, scale, zero};
    if (l.factored) {
        src.block_rows = 1;
        src.block_cols = spec->factor_cols;
    }
    if (src.block_cols > 0)
        src.grid_cols = (spec->k + src.block_cols - 1) / src.block_cols;
    memset(dst, 0, layout_bytes(&l));
    if (l.table)
        memcpy((uint8_t *)dst + layout_tables_at(&l), table,
               (size_t)(l.tables * l.table_codes) * sizeof *table);
    for (int64_t p = 0; p < l.panels; p++) {
        int cols = layout_panel_cols(&l, p);
        for (int part = 0; part < l.parts; part++) {
            uint8_t *panel = (uint8_t *)dst + layout_panel_at(&l, p, part);
            int32_t *sums = l.factored ? (int32_t *)(uintptr_t)layout_sums(&l, panel, cols) : NULL;
            int64_t left = l.n_part - p * PANEL_COLS;
            for (int64_t i = 0; i < l.blocks; i++) {
                PackBlock b = layout_block(&l, panel, cols, i);
                pack_record(&l, &src, part * l.n_part + p * PANEL_COLS,
                            left < cols ? (int)left : cols, &b, cols, sums);
            }
        }
    }
}
