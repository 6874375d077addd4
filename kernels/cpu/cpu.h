/* The CPU kernels: one file a family, each with a portable C body and versions compiled for AVX2
 * (with VNNI), AVX-512 (VNNI) and AMX, chosen at run time. They know pointers and shapes only; no
 * graph, no file. Work is shared among a team of threads (base/team.h); results do not depend on
 * the number of threads, and a row's result does not depend on the other rows (but for scales that
 * span rows).
 *
 * Activations: plain formats row-major; quantised ones as one code per byte (4-bit formats too),
 * row-major, with their scales and zero points beside. Weights: packed at compile time by
 * cpu_pack, in a layout that every instruction set can read. */
#ifndef SINTER_CPU_H
#define SINTER_CPU_H

#include "numerics/codebook.h"
#include "numerics/numerics.h"
#include "numerics/tile.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An operand of a launch, seen as rows x cols. Row r of the launch reads row (r / row_div) %
 * row_mod of the tensor (row_div 1, row_mod INT64_MAX: itself); col_step 0 repeats column 0. */
typedef struct CpuTensor {
    FormatId fmt;
    bool quantised;
    bool is_static; /* quantised: scale (and zero) are given, TILE_QUANTIZE only writes codes */
    bool has_zero;
    FormatId scale_fmt; /* rounding of dynamic scales; stored as f32 */
    bool outer;         /* scheme with an outer scale: *outer_scale multiplies */
    void *data;         /* codes or plain elements */
    int64_t rows, cols;
    int64_t pitch; /* bytes from row to row */
    int64_t row_div, row_mod;
    const int32_t *ends; /* not NULL: row r is instead the group of num_groups, `rows` of them, that
                            the launch's row is in: the first whose end is behind it */
    int num_groups;
    int64_t group_rows; /* of each group, where ends counts the used ones; 0: ends are ends */
    const char *index;  /* not NULL: row r is instead what the i32 that many rows of index_pitch on
                           says, the first or the last one where it says none */
    int64_t index_pitch;
    int col_step;
    int64_t block_rows, block_cols; /* elements that share a scale; 0 = all */
    float *scale;                   /* [ceil(rows / block_rows), ceil(cols / block_cols)] */
    int32_t *zero;
    float *outer_scale;
} CpuTensor;

/* pack.c -------------------------------------------------------------------------------------- */

/* How one weight [n, k] is packed. Codegen stores this with the packed bytes. */
typedef struct CpuPackSpec {
    FormatId fmt;     /* of the weight: F32 F16 BF16 or a quantised one */
    FormatId act_fmt; /* of the activation it meets: decides the layout */
    int64_t n, k;
    int parts;     /* 1; 2: gate and up rows, stacked [gate; up] in [n, k], are interleaved so that
                      one tile holds both. n counts all parts */
    bool mainloop; /* scales vary along k or must be applied per block: packed inside */
    bool has_zero; /* the weight is asymmetric */
    bool act_zero; /* the activation is asymmetric */
    int64_t block_rows, block_cols; /* of the weight's scheme; 0 = all */
    int64_t act_block_cols; /* of the activation's scheme, whose scales the main loop applies
                               too; 0: it has none, or one a row, which waits */
    FormatId scale_fmt;
    /* of i8: codes of so many columns of a row are u4, less a zero point, times a whole number of
     * up to 16, as which cpu_pack_factored may hold them; 0: they are not */
    int64_t factor_cols;
    TableKind table; /* codes are places in a codebook */
    uint8_t layout;  /* for a GPU: a CudaLayout (kernels/cuda/pack.h) */
} CpuPackSpec;
uint64_t cpu_pack_bytes(const CpuPackSpec *spec); /* 0: no kernel for this combination */
/* Why there is no kernel (static text), or NULL. */
const char *cpu_pack_problem(const CpuPackSpec *spec);
/* Are codes of 4 bits held, and the whole numbers that they are multiplied by? */
bool cpu_pack_factored(const CpuPackSpec *spec);
/* codes: plain elements, or canonical codes of QTensor (4-bit low nibble first, rows padded to a
 * byte), row pitch src_pitch. scale, zero, table: QTensor's. Of a factored weight codes are u4, and
 * scales the whole numbers, of groups of factor_cols. dst: cpu_pack_bytes, 64-byte aligned. */
void cpu_pack(const CpuPackSpec *spec, const void *src, int64_t src_pitch, const float *scale,
              const int32_t *zero, const float *table, void *dst);

/* gemm.c --------------------------------------------------------------------------------------- */

typedef struct CpuProgram {
    const TileStep *step;
    int num_steps;
} CpuProgram;

/* The columns of the epilogue's tile: a step that needs more columns of a row at once cannot be in
 * an epilogue, unless the segment is not wider than this. Tiles start at the segment's first
 * column. */
#define CPU_TILE_COLS 256

/* Columns [n_begin, n_end) of each part run this program on the accumulator's tile. Column 0 of the
 * program's tensors is n_begin. */
typedef struct CpuSegment {
    int64_t n_begin, n_end;
    CpuProgram epilogue;
} CpuSegment;

/* c[m, n] = a[m, k] * w[n, k]^T with a fused prologue and epilogue. */
typedef struct CpuGemm {
    int64_t m;
    CpuPackSpec spec;
    const void *packed;
    CpuTensor a;         /* what the main loop reads: plain or quantised */
    CpuProgram prologue; /* if any: whole-row program over m rows that fills `a`, run first */
    const CpuSegment *segment;
    int num_segments;
    const CpuTensor *operand; /* that programs refer to */
    int num_operands;
} CpuGemm;
/* Scratch bytes this call needs (packing, accumulators of all threads). */
uint64_t cpu_gemm_scratch(const CpuGemm *g, int threads);
void cpu_gemm(const CpuGemm *g, void *scratch, int threads);

/* tile.c: norms, softmax, elementwise chains, quantise ----------------------------------------- */

/* Runs one program over rows x cols. whole_rows: some step needs complete rows. Dynamic blocks that
 * span rows (per tensor, 2-D) are done in two passes over the program. */
typedef struct CpuTile {
    int64_t rows, cols;
    bool whole_rows;
    CpuProgram program;
    const CpuTensor *operand;
    int num_operands;
} CpuTile;
uint64_t cpu_tile_scratch(const CpuTile *t, int threads);
void cpu_tile(const CpuTile *t, void *scratch, int threads);

/* move.c: transpose, slice, concat as one strided copy ----------------------------------------- */

#define CPU_MOVE_RANK 6
typedef struct CpuMove {
    int rank;
    int64_t dim[CPU_MOVE_RANK];
    int64_t src_stride[CPU_MOVE_RANK], dst_stride[CPU_MOVE_RANK]; /* bytes */
    int element_bytes;
    const void *src;
    void *dst;
} CpuMove;
void cpu_move(const CpuMove *move, int threads);

/* route.c: rows go to groups, each of a matrix of its own, and their results come back ----------
 *
 * T rows choose C of the groups each. Tensors are plain ones with rows as the launch's (row_div,
 * row_mod and col_step do not count): index and places i32 [T, C]. An index or a place that does
 * not exist is neither read nor written to nor counted: its number is 0, its place -1. */

/* x [T, E] to i32 [T, count], count <= E: the columns of each row's largest numbers, the largest
 * first; of equal ones the lower first, NaN below all. */
void cpu_topk(const CpuTensor *x, const CpuTensor *to, int threads);
/* x [T, E], index to f32 [T, C]: the numbers of those columns. */
void cpu_take(const CpuTensor *x, const CpuTensor *index, const CpuTensor *to);
/* f32: each row becomes its softmax. */
void cpu_weigh(const CpuTensor *weights, int threads);
/* index to i32 [groups], one row: the routed row behind the last one of each group. */
void cpu_group_ends(const CpuTensor *index, int64_t groups, const CpuTensor *to);
/* Rows of `to` beyond the counts (i32, one a group of equally many rows) become 0. */
void cpu_clear(const CpuTensor *counts, const CpuTensor *to);
/* index to i32 [T, C]: the routed row of each choice. scratch: so many bytes. */
uint64_t cpu_group_places_scratch(int64_t groups);
void cpu_group_places(const CpuTensor *index, int64_t groups, const CpuTensor *to, void *scratch);
/* index [T, C] of groups: to [T * C, 1] the row that each routed row was. places: of the same
 * index. */
void cpu_group_sources(const CpuTensor *places, const CpuTensor *to);

/* dispatch.c ----------------------------------------------------------------------------------- */

typedef enum CpuIsa {
    CPU_PORTABLE,
    CPU_AVX2,
    CPU_AVXVNNI,
    CPU_AVX512,
    CPU_AVX512BF16,
    CPU_AMX,
    NUM_CPU_ISAS
} CpuIsa;
CpuIsa cpu_isa(void);               /* best of this machine that cpu_isa_limit allows */
bool cpu_isa_present(CpuIsa isa);   /* on this machine and in this build */
void cpu_isa_limit(CpuIsa at_most); /* for tests and benchmarks */
const char *cpu_isa_name(CpuIsa isa);

#endif
