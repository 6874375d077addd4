/* How weights lie in a compiled file for the GPU; written once by the compiler, read by kernels.
 *
 * RECORDS, for the tensor cores: n is cut into groups of 64 rows, K into tiles of 128, and a record
 * holds one tile of one group; those of a group follow each other along K, so that whoever streams
 * rows reads memory in order. In a record:
 *
 *   codes  8 blocks of 8 rows, each units of 32 lanes x 16 bytes, or two words of such lanes for
 *          formats of 32 bits: the codes of consecutive steps of 32 along K; in a step, lane
 *          4 * g + t holds the eight codes of row g at columns 8t .. 8t + 7. Nibbles of a lane's 32
 *          bits lie in the order that decoding wants (format.cuh). Codes of 1 to 3 bits: a block is
 *          as many words for each lane, one after the other for all lanes. Bits s of the nibbles of
 *          the word for 1 bit are those of step s; bits 2s and 2s + 1 of the two words for 2 bits,
 *          the second for the last two steps; 3 bits are these two, and the word of the third ones
 *   scale  [subs][64] in the scheme's own format, of the blocks of K that meet the tile
 *   zero   [subs][64] zero points, as wide as the codes (of nibbles, the even row is the low one)
 *
 * Where 16-bit floats are multiplied, no step down from one scale of a row to the next along K is
 * more than 2^64 (either may be below 0), so that sums may be kept in the unit of the block that
 * was added last: a block of zeros lies under the scale of the block before it, and so does one
 * whose own scale is less than 2^-64 of that, or 0, as zeros. Codebooks are left alone: they need
 * have no zero.
 *
 * and behind all records, aligned to 256 bytes, the table of a codebook of up to 16 values: three
 * times, for each piece in bf16, 16 low bytes and 16 high ones; or, of i4 with scales beside
 * integers, a word that is 1 where some scale other than 0 is below CUDA_TINY. Only scales that
 * belong to the main loop and zero points that are subtracted when decoding are there. K is padded
 * with codes of the value 0, n to whole groups. With parts = 2, [n, k] stacks gate over up; blocks
 * of 8 rows alternate between them.
 *
 * Whole scales (factored) are words of 16 bits: the scale s, and in the high byte 128 less s times
 * the zero point z. Codes of u4 become (u - z) s, which fits i8.
 *
 * FRAGMENTS, for wgmma whose left operand comes from registers: records of codes of up to 8 bits in
 * which the eight codes of a lane's step are those that its fragments have: beside activations of
 * 16 bits those of columns 8j + 2t and 8j + 2t + 1, j = 0 .. 3, of codebooks in ascending order, of
 * e2m1 in planes: the magnitudes of even ones from bits 6, 9 and 12 of the low half on, the last at
 * bits 4, 0 and 1, of odd ones in the high half, signs at bits 15, 2 and 5 of the other half, and
 * 3; beside 8 bits those of columns 4t .. 4t + 3, in the low
 * nibbles of its bytes, and 16 + 4t .. in the high ones, whatever the home, or of integers of 8
 * bits with scales in the main loop in a word each. No block of scales ends inside a step.
 *
 * PANELS, for wgmma (pack_panels.c), for weights of 8 and 16 bits: for each 128 bytes of K (padded
 * with zero codes) all rows; 8 rows by 128 bytes are 1024 bytes, in which 16-byte chunk c of row r
 * lies at c ^ r. In each 32 rows packed row 8i + 2t + j is row 8t + 2i + j, and with parts = 2 runs
 * of 32 rows alternate. Behind the codes, where they belong to the main loop: scales (f32), [blocks
 * of K][packed rows], those of each 32 rows in the rows' own order, or, where 128 rows share
 * theirs, [blocks of K][packed rows / 8].
 *
 * BITS, for any codes that are places in a codebook: rows of codes, each of as many bits as
 * its format has, the first in the lowest ones, a row padded to words of 32 bits; with parts = 2
 * runs of 8 rows alternate. Behind them, each aligned to 256 bytes, the grid of scales as the
 * scheme has it, in the scheme's own format, where they belong to the main loop; and the tables,
 * f32, as many as numerics/codebook.h says.
 *
 * ROWS: what another kernel computed, row after row; nothing is packed. */
#ifndef SINTER_CUDA_PACK_H
#define SINTER_CUDA_PACK_H

#include "numerics/codebook.h"
#include "numerics/numerics.h"
#include <stdbool.h>
#include <stdint.h>

#define CUDA_GROUP_ROWS   64
#define CUDA_TILE_K       128
#define CUDA_TINY         0x1p-122f /* the least scale of which a sixteenth is exact */
#define CUDA_TABLE_PIECES 3         /* of a value of a codebook in records */

typedef enum CudaLayout { /* files have these numbers */
                          CUDA_RECORDS,
                          CUDA_PANELS,
                          CUDA_BITS,
                          CUDA_FRAGMENTS,
                          NUM_CUDA_PACKED,
                          CUDA_ROWS = NUM_CUDA_PACKED
} CudaLayout;
#define CUDA_PANEL_SCALE_ROWS 8 /* packed rows of panels to a scale, where 128 rows share one */
typedef enum CudaHome { CUDA_HOME_I8, CUDA_HOME_F16, CUDA_HOME_BF16, CUDA_HOME_F32 } CudaHome;

typedef struct CudaPackSpec {
    FormatId fmt, act_fmt;
    int bits; /* of a code as it lies, fewer than fmt's, which it is decoded to; 0: as many */
    FormatId scale_fmt; /* FMT_NONE: the weight has no scales */
    int64_t n, k;       /* n counts all parts */
    int parts;
    bool binary;   /* codes of one bit are -1 and 1 */
    bool mainloop; /* scales are applied per block of K */
    bool factored; /* codes of u4 become i8 by whole numbers, of up to 16, and zero points */
    bool has_zero; /* the weight is asymmetric */
    bool act_zero; /* the activation is asymmetric */
    int64_t block_rows, block_cols; /* of the weight's scheme; 0 = all */
    int64_t act_block; /* along K, of the activation's scales in the main loop; 0: none */
    TableKind table;   /* codes are places in a codebook; fmt is NF4 in RECORDS, else their own */
    CudaLayout layout; /* that was chosen */
} CudaPackSpec;

typedef struct CudaPacked { /* what a spec comes to */
    CudaLayout layout;
    FormatId scale_fmt; /* of scales as they are stored */
    CudaHome home;
    int bits;        /* of a code */
    int neighbours;  /* columns that lie side by side in a lane's step: 8; of FRAGMENTS 4 or 2 */
    int64_t rows;    /* packed rows: parts padded to blocks of 8 */
    int64_t block_k; /* of the main loop; 0 = all of K */
    bool exact;      /* products of integers: their sums have one value */
    bool folded;     /* the weight's scale is multiplied into its codes, exactly */
    bool act_folded; /* likewise the activation's */
    bool scales;     /* of the weight, in the main loop */
    bool zeros;      /* of the weight, subtracted when decoding */
    int subs;        /* blocks of the weight's scales that one tile of K meets, at most */
    int scale_bytes, zero_bits;
    int64_t scale_at, zero_at; /* in a record */
    int64_t record;            /* bytes */
    int64_t pitch, table_at;   /* of BITS: bytes of a row; where the tables are */
    int64_t tiny_at; /* where a word says that some scale is below CUDA_TINY; 0: none does */
    uint64_t bytes;
} CudaPacked;

typedef struct CudaParams { /* the weight's grids and tables, NULL where it has none */
    const float *scale;
    const int32_t *zero;
    const float *table;
} CudaParams;

/* A layout: what a spec comes to, of a `ret` that is zero but for the layout, and how it is filled;
 * false: sizes overflow, or the layout does not hold such formats. */
typedef struct CudaLayoutRow {
    const char *name, *pieces; /* "records", " of 64 x 128" */
    bool (*plan)(const CudaPackSpec *spec, CudaPacked *ret);
    void (*pack)(const CudaPackSpec *spec, const CudaPacked *packed, const void *src,
                 int64_t src_pitch, const CudaParams *params, void *dst);
} CudaLayoutRow;
extern const CudaLayoutRow cuda_layout[NUM_CUDA_PACKED];
bool cuda_layout_find(const char *name, CudaLayout *ret);
/* pack_panels.c */
bool cuda_panels_plan(const CudaPackSpec *spec, CudaPacked *ret);
void cuda_panels_pack(const CudaPackSpec *spec, const CudaPacked *packed, const void *src,
                      int64_t src_pitch, const CudaParams *params, void *dst);

/* RECORDS hold every pair of formats, and of codebooks one for all of a weight whose K is
 * whole tiles; BITS hold codebooks. */
bool cuda_pack_plan(const CudaPackSpec *spec, CudaPacked *ret);
/* Specs of one weight beside two activations: what the first packs reads as what the second does.
 */
bool cuda_packs_alike(const CudaPackSpec *from, const CudaPackSpec *as);
/* Takes the activation's scales into its codes where the products stay exact: scales of
 * `scale_fmt` in blocks that the main loop would have to end inside a step. */
void cuda_pack_fold(const CudaPackSpec *spec, FormatId scale_fmt, CudaPacked *packed);
/* src: plain elements or canonical codes (4-bit low nibble first), src_pitch bytes a row. dst:
 * ret->bytes, zeroed. */
void cuda_pack(const CudaPackSpec *spec, const void *src, int64_t src_pitch,
               const CudaParams *params, void *dst);

#endif
