/* The layout of a packed weight, derived from its CpuPackSpec alone.
 *
 * A weight [n, k] is cut into panels of 64 columns of the product (rows of the weight); the last
 * panel of a part is narrower, a multiple of 16. With two parts, panels alternate: gate 0, up 0,
 * gate 1, up 1, ... A panel is a row of records, one a block of K, so that a product with one row
 * reads memory in order. A record holds
 *
 *   codes  [units][cols][unit_bytes]   `unit` consecutive k of one column side by side
 *   sum    [cols] i32, i16             integer class: sum of the stored codes; not of nibbles in
 *                                      blocks of up to 256
 *   scale  [cols] the scheme's format  mainloop and quantised
 *   zero   [cols] i8                   zero points of the stored codes
 *   factor [cols] u8                   factored: a whole number less 1, zero point << 4
 *
 * and after all panels four bytes that may be read, of nibbles, or, from a multiple of 64 on, the
 * tables of a codebook, f32. Decoding a record's words once serves all rows.
 *
 * The block of K is the smaller of the two operands' blocks when scales apply in the main loop,
 * else all of K. Each block is padded to whole units with codes 0, and the activation with zeros.
 *
 * Two classes. Integer (both operands integers, neither a codebook): activations are widened to u8,
 * weights stored as s8 or as nibbles 0..15; signed activations are offset by 128, u8 weights by
 * -128, i4 weights by 8, and the product is corrected exactly from the sums. Float (everything
 * else): weights decode to f32, unsigned codes with zero points as signed ones. Zero points of
 * 4-bit weights in short blocks that meet 16-bit activations are applied to the block's sum: a
 * subtraction a weight would be a quarter of the work of a product with one row. In long blocks
 * that sum could cancel too much, and f32 activations are promised a smaller error.
 *
 * Factored: codes of 8 bits lie as nibbles 0..15, which less their block's zero point and times its
 * whole number are those codes. All of K has one sum in i32, as with i8, and behind a panel's
 * records lie [cols] i32, the sums of its codes. Few rows meet the nibbles, others the codes, chunk
 * by chunk (layout_widened).
 *
 * Codes of 1, 2, 3, 5, 6 and 7 bits lie as a stream of so many bits each, in the order of the codes
 * above, sixteen of which fill whole bytes. A product opens a panel of them (narrow.c) and reads
 * that: it takes longer than with codes that fill a nibble or a byte, for less memory. */
#ifndef SINTER_CPU_LAYOUT_H
#define SINTER_CPU_LAYOUT_H

#include "kernels/cpu/cpu.h"

#define PANEL_COLS 64

typedef struct PackLayout {
    FormatId fmt;
    bool is_int, has_scale, has_zero, factored;
    FormatId scale_fmt;
    int sum_bytes, scale_bytes;           /* of a column; 0: absent */
    TableKind table;                      /* of a codebook, float class: the value of each code */
    int table_codes;                      /* values of a table */
    int64_t tables, grid_rows, grid_cols; /* tables; rows and columns that share a scale */
    int unit, unit_bytes;
    FormatId narrow; /* of codes in a stream; FMT_NONE: they fill a nibble or a byte */
    int parts;
    int64_t n_part, panels; /* columns and panels of one part */
    int64_t k, block, blocks;
    int64_t block_units, last_units;
    int64_t k_padded;
    int weight_offset; /* stored code = code - weight_offset; zero points likewise */
    bool mainloop;
    bool late_zero; /* float class: zero points are subtracted from a block's sum, not its codes */
} PackLayout;

typedef struct PackBlock {
    const uint8_t *codes;
    const void *sum, *scale;
    const int8_t *zero;
    const uint8_t *factor;
    int64_t units, k_begin, k_count;
} PackBlock;

/* NULL, or why there is no kernel. */
const char *layout_init(PackLayout *l, const CpuPackSpec *spec);
int layout_panel_cols(const PackLayout *l, int64_t panel);
uint64_t layout_panel_at(const PackLayout *l, int64_t panel, int part);
uint64_t layout_bytes(const PackLayout *l);
/* Where the tables of a codebook are, and which of them row n of the weight has from column k. */
uint64_t layout_tables_at(const PackLayout *l);
int64_t layout_table(const PackLayout *l, int64_t n, int64_t k);
PackBlock layout_block(const PackLayout *l, const uint8_t *panel, int cols, int64_t block);
/* The sums behind the records of a factored panel. */
const int32_t *layout_sums(const PackLayout *l, const uint8_t *panel, int cols);
/* The layout of i8 whose products a factored weight's are. Nothing lies so in memory. */
PackLayout layout_widened(const PackLayout *l);
uint64_t layout_panel_bytes(const PackLayout *l, int cols);
/* Bytes of so many columns' codes of one record. */
uint64_t layout_codes_bytes(const PackLayout *l, int cols, int64_t units);

/* narrow.c */

/* The layout of an open panel, which the products read. */
PackLayout narrow_opened(const PackLayout *l);
uint64_t narrow_bytes(const PackLayout *l); /* of an open panel; 0 where codes are not narrow */
/* The codes of column `col` of a record, from its row of the weight; returns the sum of what an
 * open record stores. */
int32_t narrow_pack(const PackLayout *l, const uint8_t *row, const PackBlock *b, int col, int cols);

/* A byte of PackBlock.factor. */
static inline int factor_of_byte(uint8_t byte)
{
    return (byte & 15) + 1;
}

static inline int factor_zero(uint8_t byte)
{
    return byte >> 4;
}

static inline bool format_is_integer(FormatId fmt)
{
    int holder = num_holder((int)fmt);
    return holder == FMT_I8 || holder == FMT_U8 || holder == FMT_I4 || holder == FMT_U4;
}

static inline bool format_is_nibble(FormatId fmt)
{
    int holder = num_holder((int)fmt);
    return holder == FMT_I4 || holder == FMT_U4 || holder == FMT_E2M1 || holder == FMT_NF4 ||
           holder == FMT_FP4;
}

#endif
