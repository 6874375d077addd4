/* Sizes and places inside a packed weight; see layout.h. */
#include "kernels/cpu/layout.h"
#include "numerics/each.h"

#define MAX_DIM     ((int64_t)1 << 31)
#define MAX_BYTES   ((uint64_t)1 << 62)
#define LATE_ZERO_K 256 /* longest block whose zero points apply to its sum */
#define FACTOR_COLS 32  /* of shorter blocks few rows take longer than by i8 */

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int64_t block_or_all(int64_t block, int64_t all)
{
    return block > 0 && block < all ? block : all;
}

static bool is_weight_format(FormatId fmt)
{
    bool is_byte = false;
#define IS_BYTE(ID)                         is_byte = is_byte || fmt == FMT_##ID;
#define FORMAT(ID, name, bits, family, ...) EACH_BYTE(IS_BYTE, ID, bits, family)
#include "numerics/formats.def"
#undef FORMAT
    return fmt == FMT_F32 || fmt == FMT_F16 || fmt == FMT_BF16 || (is_byte && fmt != FMT_E8M0) ||
           format_is_integer(fmt) || format_is_nibble(fmt);
}

static int format_bytes(FormatId fmt)
{
    return fmt == FMT_F32 ? 4 : fmt == FMT_F16 || fmt == FMT_BF16 ? 2 : 1;
}

/* Largest magnitude that an operand of the integer class can have in a product. */
static int64_t code_magnitude(FormatId fmt, bool zero_subtracted)
{
    int holder = num_holder((int)fmt);
    if (holder == FMT_I4 || holder == FMT_U4)
        return zero_subtracted || holder == FMT_U4 ? 15 : 8;
    return zero_subtracted || holder == FMT_U8 ? 255 : 128;
}

static const char *spec_problem(const CpuPackSpec *s)
{
    if (!is_weight_format(s->fmt))
        return "the CPU kernels do not read weights of this format";
    if (!is_weight_format(s->act_fmt) || num_holder((int)s->act_fmt) != (int)s->act_fmt)
        return "the CPU kernels do not read activations of this format";
    if (s->n < 1 || s->k < 1 || s->n > MAX_DIM || s->k > MAX_DIM)
        return "the weight is empty or too large";
    if ((s->parts != 1 && s->parts != 2) || s->n % s->parts)
        return "the weight's rows do not divide into its parts";
    if (s->block_rows < 0 || s->block_cols < 0 || s->act_block_cols < 0)
        return "a block has a negative size";
    if (s->table && (!format_is_integer(s->fmt) || num_code_min((int)s->fmt, 0) || s->has_zero))
        return "codes of a codebook are unsigned integers without zero points";
    return NULL;
}

bool cpu_pack_factored(const CpuPackSpec *s)
{
    return s->factor_cols >= FACTOR_COLS && s->factor_cols % 8 == 0 && s->fmt == FMT_I8 &&
           format_is_integer(s->act_fmt) && !s->mainloop;
}

static void layout_codes(PackLayout *l)
{
    if (l->is_int) {
        l->unit = format_is_nibble(l->fmt) ? 8 : 4;
        l->unit_bytes = 4;
        l->weight_offset = l->fmt == FMT_U8 ? 128 : l->fmt == FMT_I4 ? -8 : 0;
    } else if (format_is_nibble(l->fmt)) {
        l->unit = 8;
        l->unit_bytes = 4;
    } else {
        l->unit = 1;
        l->unit_bytes = format_bytes(l->fmt);
    }
    if (!l->is_int && l->has_zero && (l->fmt == FMT_U4 || l->fmt == FMT_U8)) {
        l->weight_offset = l->fmt == FMT_U4 ? 8 : 128;
        l->fmt = l->fmt == FMT_U4 ? FMT_I4 : FMT_I8;
    }
}

/* Sums of blocks this long fit 16 bits; of nibbles they would be a tenth of a weight, and are
 * counted where they are needed. */
#define SHORT_SUM_K 256

static void layout_words(PackLayout *l, const CpuPackSpec *s)
{
    if (l->is_int && !l->factored)
        l->sum_bytes = l->block > SHORT_SUM_K ? 4 : l->unit == 8 ? 0 : 2;
    if (!l->has_scale)
        return;
    switch (s->scale_fmt) {
    case FMT_F16:
    case FMT_BF16: l->scale_bytes = 2; break;
    case FMT_E4M3:
    case FMT_E8M0: l->scale_bytes = 1; break;
    default: l->scale_bytes = 4; break;
    }
    l->scale_fmt = l->scale_bytes == 4 ? FMT_F32 : s->scale_fmt;
}

static void layout_table_sizes(PackLayout *l, const CpuPackSpec *s)
{
    l->table = s->table;
    l->table_codes = s->table ? 1 << num_code_bits((int)s->fmt) : 0;
    l->grid_rows = block_or_all(s->block_rows, s->n);
    l->grid_cols = block_or_all(s->block_cols, s->k);
    l->tables = codebook_tables(s->table, s->n,
                                ceil_div(s->n, l->grid_rows) * ceil_div(s->k, l->grid_cols));
}

const char *layout_init(PackLayout *l, const CpuPackSpec *s)
{
    const char *problem = spec_problem(s);
    if (problem)
        return problem;
    bool quantised = format_bytes(s->fmt) == 1;
    *l = (PackLayout){.fmt = (FormatId)num_holder((int)s->fmt),
                      .parts = s->parts,
                      .k = s->k,
                      .n_part = s->n / s->parts};
    l->narrow = l->fmt == s->fmt ? FMT_NONE : s->fmt;
    l->factored = cpu_pack_factored(s);
    if (l->factored)
        l->fmt = FMT_U4;
    l->is_int = format_is_integer(s->fmt) && format_is_integer(s->act_fmt) && !s->table;
    l->mainloop = s->mainloop;
    l->has_scale = s->mainloop && quantised;
    l->has_zero = s->has_zero && format_is_integer(s->fmt) && (s->mainloop || !l->is_int);
    layout_codes(l);
    l->panels = ceil_div(l->n_part, PANEL_COLS);
    l->block = l->factored ? block_or_all(s->factor_cols, s->k) : s->k;
    if (s->mainloop) {
        int64_t w = block_or_all(s->block_cols, s->k), a = block_or_all(s->act_block_cols, s->k);
        l->block = w < a ? w : a;
        if ((w > a ? w : a) % l->block && w < s->k && a < s->k)
            return "neither operand's block along k divides the other's";
    }
    layout_words(l, s);
    layout_table_sizes(l, s);
    if (l->table == TABLE_BLOCK && /* of the columns of a panel */
        ceil_div(s->k, l->grid_cols) > INT32_MAX / PANEL_COLS / l->table_codes)
        return "the tables of a codebook lie too far apart";
    l->blocks = ceil_div(s->k, l->block);
    l->block_units = ceil_div(l->block, l->unit);
    l->last_units = ceil_div(s->k - (l->blocks - 1) * l->block, l->unit);
    bool is_16_bit = s->act_fmt == FMT_BF16 || s->act_fmt == FMT_F16;
    l->late_zero = !l->is_int && l->unit == 8 && l->has_zero && s->mainloop && is_16_bit &&
                   l->block <= LATE_ZERO_K;
    l->k_padded = ((l->blocks - 1) * l->block_units + l->last_units) * l->unit;
    if (l->is_int && code_magnitude(s->fmt, s->mainloop) * code_magnitude(s->act_fmt, s->mainloop) >
                         INT32_MAX / (s->mainloop ? l->block : s->k))
        return "k exceeds the range in which an int32 accumulator is exact";
    double bytes = (double)(s->n + 2.0 * PANEL_COLS) *
                       ((double)l->k_padded * l->unit_bytes / l->unit + 12.0 * (double)l->blocks) +
                   4.0 * (double)l->tables * l->table_codes;
    return bytes < (double)MAX_BYTES ? NULL : "the packed weight is too large";
}

uint64_t layout_codes_bytes(const PackLayout *l, int cols, int64_t units)
{
    if (l->narrow == FMT_NONE)
        return (uint64_t)cols * (uint64_t)units * (uint64_t)l->unit_bytes;
    return (uint64_t)cols * (uint64_t)(units * l->unit) * (uint64_t)num_code_bits(l->narrow) / 8;
}

static uint64_t record_bytes(const PackLayout *l, int cols, int64_t units)
{
    uint64_t words = (uint64_t)(l->sum_bytes + l->scale_bytes + l->has_zero + l->factored);
    return layout_codes_bytes(l, cols, units) + (uint64_t)cols * words;
}

uint64_t layout_panel_bytes(const PackLayout *l, int cols)
{
    return (uint64_t)(l->blocks - 1) * record_bytes(l, cols, l->block_units) +
           record_bytes(l, cols, l->last_units) +
           (l->factored ? (uint64_t)cols * sizeof(int32_t) : 0);
}

const int32_t *layout_sums(const PackLayout *l, const uint8_t *panel, int cols)
{
    return (const int32_t *)(const void *)(panel + layout_panel_bytes(l, cols)) - cols;
}

PackLayout layout_widened(const PackLayout *l)
{
    PackLayout wide = *l;
    wide.factored = false;
    wide.fmt = FMT_I8;
    wide.sum_bytes = sizeof(int32_t);
    wide.block = l->k;
    wide.blocks = 1;
    layout_codes(&wide);
    wide.block_units = wide.last_units = ceil_div(l->k, wide.unit);
    wide.k_padded = wide.last_units * wide.unit;
    return wide;
}

int layout_panel_cols(const PackLayout *l, int64_t panel)
{
    if (panel + 1 < l->panels)
        return PANEL_COLS;
    return (int)(ceil_div(l->n_part - panel * PANEL_COLS, 16) * 16);
}

uint64_t layout_panel_at(const PackLayout *l, int64_t panel, int part)
{
    return (uint64_t)panel * (uint64_t)l->parts * layout_panel_bytes(l, PANEL_COLS) +
           (uint64_t)part * layout_panel_bytes(l, layout_panel_cols(l, panel));
}

static uint64_t panels_end(const PackLayout *l)
{
    int last = layout_panel_cols(l, l->panels - 1);
    return layout_panel_at(l, l->panels - 1, 0) + (uint64_t)l->parts * layout_panel_bytes(l, last);
}

uint64_t layout_tables_at(const PackLayout *l)
{
    return (panels_end(l) + sizeof(float) + 63) / 64 * 64;
}

int64_t layout_table(const PackLayout *l, int64_t n, int64_t k)
{
    int64_t entry = n / l->grid_rows * ceil_div(l->k, l->grid_cols) + k / l->grid_cols;
    return codebook_at(l->table, n, entry);
}

uint64_t layout_bytes(const PackLayout *l)
{
    if (l->table)
        return layout_tables_at(l) + (uint64_t)l->tables * (uint64_t)l->table_codes * sizeof(float);
    /* nibbles are also read from one to three bytes on */
    return panels_end(l) + (l->unit == 8 ? sizeof(float) : 0);
}

PackBlock layout_block(const PackLayout *l, const uint8_t *panel, int cols, int64_t block)
{
    bool last = block + 1 == l->blocks;
    PackBlock b = {.units = last ? l->last_units : l->block_units, .k_begin = block * l->block};
    b.k_count = last ? l->k - b.k_begin : l->block;
    b.codes = panel + (uint64_t)block * record_bytes(l, cols, l->block_units);
    const uint8_t *words = b.codes + layout_codes_bytes(l, cols, b.units);
    b.sum = words;
    b.scale = l->has_scale ? words + cols * l->sum_bytes : NULL;
    b.factor = l->factored ? words : NULL;
    b.zero = l->has_zero ? (const int8_t *)words + cols * (l->sum_bytes + l->scale_bytes) : NULL;
    return b;
}
