/* What the files of this folder share beyond layout.h and kernels.h: operands, the tile
 * interpreter, the preparation of activations. */
#ifndef SINTER_CPU_INTERNAL_H
#define SINTER_CPU_INTERNAL_H

#include "base/team.h"
#include "kernels/cpu/kernels.h"

static inline uint64_t align_64(uint64_t size)
{
    return (size + 63) & ~(uint64_t)63;
}

static inline int64_t ceil_blocks(int64_t num, int64_t block)
{
    return block > 0 ? (num + block - 1) / block : 1;
}

/* operand.c ------------------------------------------------------------------------------------ */

/* The last one has all rows behind its begin, so that ends may hold anything. */
static inline int64_t tensor_group(const CpuTensor *t, int64_t row)
{
    int low = 0, high = t->num_groups - 1;
    if (t->group_rows)
        return row / t->group_rows < high ? row / t->group_rows : high;
    while (low < high) {
        int mid = (low + high) / 2;
        if (t->ends[mid] > row)
            high = mid;
        else
            low = mid + 1;
    }
    return low;
}

static inline int64_t tensor_row(const CpuTensor *t, int64_t row)
{
    if (t->rows == 1) /* shared by all rows, with or without row_mod 1 */
        return 0;
    if (t->ends)
        return tensor_group(t, row);
    if (t->index) {
        int32_t at = *(const int32_t *)(const void *)(t->index + row * t->index_pitch);
        return at < 0 ? 0 : at < t->rows ? at : t->rows - 1;
    }
    if (t->row_div > 1)
        row /= t->row_div;
    return t->row_mod > 0 ? row % t->row_mod : row;
}

static inline void *tensor_row_at(const CpuTensor *t, int64_t row)
{
    return (char *)t->data + tensor_row(t, row) * t->pitch;
}

int plain_bytes(FormatId fmt);
/* The columns from `col` that share a scale with it, at most `end`. */
int64_t tensor_block_end(const CpuTensor *t, int64_t col, int64_t end);
/* Index into scale and zero of a mapped row and a column. */
int64_t tensor_grid_at(const CpuTensor *t, int64_t mapped_row, int64_t col);
float tensor_scale(const CpuTensor *t, int64_t grid_at); /* times the outer scale */
int32_t tensor_zero(const CpuTensor *t, int64_t grid_at);
/* num columns from `col` of one mapped row, as f32 (plain or dequantised); I32 keeps its bits. */
void tensor_read(const CpuKernels *kern, const CpuTensor *t, int64_t mapped_row, int64_t col,
                 float *dst, int64_t num);

/* narrow.c: a panel with its codes opened. */
void narrow_open(const CpuKernels *kern, const PackLayout *l, const uint8_t *panel, int cols,
                 uint8_t *dst);

/* tile.c --------------------------------------------------------------------------------------- */

/* Ranges gathered over a whole tensor before the pass that quantises it. */
typedef struct TileSpan {
    int32_t *amax, *lo, *hi; /* a block of the scale grid each */
    int32_t outer_bits;
} TileSpan;

/* One program on one tile. */
typedef struct TileRun {
    const CpuKernels *kern;
    const CpuProgram *program;
    const CpuTensor *operand;
    int64_t m0, n0;
    int rows;
    int64_t cols;
    const void *acc[2];
    int64_t acc_ld;
    void *scratch;
    TileSpan *gather; /* non-NULL: only gather ranges, a span an operand; store nothing */
} TileRun;
uint64_t tile_scratch(const CpuProgram *program, int64_t rows, int64_t cols);
void tile_run(const TileRun *run);

/* tile_quantise.c */
/* Does quantising this operand need more than its tile: scales shared by several rows, or an outer
 * scale found at run time? */
static inline bool tensor_spans(const CpuTensor *t)
{
    return t->quantised && !t->is_static && (t->block_rows != 1 || t->outer);
}
void quantise_row(const TileRun *run, const CpuTensor *t, int64_t row, const float *src);
void gather_row(const TileRun *run, int operand, int64_t row, const float *src);
void span_finish(const CpuTensor *t, const TileSpan *span);

/* Are nibbles of the integer class decoded in registers, as for few rows? */
static inline bool nibbles_are_direct(const CpuKernels *kern, const CpuGemm *g, const PackLayout *l)
{
    return l->is_int && l->unit == 8 && kern->direct_i4 && g->m <= kern->direct_i4_rows;
}

/* prepare.c ------------------------------------------------------------------------------------ */

/* Activations as the main loop reads them, padded like the weight: u8 codes or f32 values, cut
 * along K into ranges so that what a range of the product reads lies together; and per row and
 * block of K the scale and the terms of the integer correction. */
typedef struct Prepared {
    bool is_direct;       /* the tensor's own f32 rows serve */
    bool is_few;          /* few rows for matrix units, of one range and one part */
    int64_t range_k, lda; /* elements of a row in a range, and from row to row */
    int64_t range_step;   /* elements from range to range */
    uint8_t *codes;
    const float *values;
    uint16_t *halves;        /* matrix units: parts of bf16 instead of values, or NULL */
    float *wide;             /* [rows][lda] the same as floats where rows are very few, or NULL */
    int parts;               /* 0: no matrix units */
    bool crosses;            /* element i of eight is number crossed(i) of what is stored */
    int64_t part_step;       /* elements from part to part */
    ExponentRange *exponent; /* [rows], of matrix units' */
    float *scale;            /* [rows][blocks]; NULL: scales are not the main loop's */
    int32_t *ra, *rb;        /* [rows][blocks]; integer class */
    float *sum;              /* [rows][blocks] of the values; where zero points apply to sums */
    bool has_fixed;          /* of one row also: */
    int8_t *digits;
    FixedBlock *fixed; /* [blocks] */
} Prepared;
Prepared prepare_shape(const CpuKernels *kern, const CpuGemm *g, const PackLayout *l, int64_t rows);
uint64_t prepare_bytes(const Prepared *p, const CpuGemm *g, const PackLayout *l, int64_t rows);
void prepare_place(Prepared *p, const CpuGemm *g, const PackLayout *l, int64_t rows, void *memory);
/* How far the integer class shifts codes of activations to make them unsigned; products of factored
 * nibbles shift all by SIGNED_OFFSET. */
#define SIGNED_OFFSET 128
static inline int32_t code_offset(FormatId fmt)
{
    return fmt == FMT_I8 || fmt == FMT_I4 ? SIGNED_OFFSET : 0;
}
/* Element k (padded) of a row. */
static inline int64_t prepared_at(const Prepared *p, int64_t slot, int64_t k)
{
    return k / p->range_k * p->range_step + slot * p->lda + k % p->range_k;
}
/* Where pairs of i and i + 4 put element i of eight. */
static inline int64_t crossed(int64_t k)
{
    return (k & ~(int64_t)7) + k % 4 * 2 + k / 4 % 2;
}
/* Row `row` of the launch into slot `slot`. */
void prepare_row(const CpuKernels *kern, const CpuGemm *g, const PackLayout *l, const Prepared *p,
                 int64_t row, int64_t slot);

#endif
