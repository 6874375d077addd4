/* codegen/cuda: launches of a plan as CUDA C++ for NVRTC. The loops are device files of
 * kernels/cuda; what is written here is a struct of named constants, the tile programs as straight
 * lines of statements, and one entry. No text of the user's reaches a source. */
#ifndef SINTER_CODEGEN_CUDA_KERNEL_H
#define SINTER_CODEGEN_CUDA_KERNEL_H

#include "artifact/artifact.h"
#include "kernels/cuda/pack.h"

typedef enum CudaFamily {
    CUDA_GEMM_MMA, /* tensor cores, tiles */
    CUDA_STREAM,   /* tensor cores, few rows */
    CUDA_HOPPER,   /* wgmma */
    CUDA_GEMM_ANY, /* every combination */
    CUDA_TILE,     /* row programs */
    CUDA_MOVE,
    NUM_CUDA_FAMILIES
} CudaFamily;
extern const char *const cuda_family_name[NUM_CUDA_FAMILIES];

/* What to do about a dynamic quantisation whose blocks span rows. */
typedef enum CudaSpan {
    SPAN_NONE,   /* there is none */
    SPAN_GATHER, /* find the ranges, store nothing */
    SPAN_GIVEN   /* scales come from the gathered ranges */
} CudaSpan;

/* One kernel to write: a launch under one bucket, and the choices made for it. */
typedef struct CudaKernel {
    const CodeClass *gpu; /* that it is for */
    const Plan *plan;
    const PlanLaunch *launch;
    const PlanLayout *layout; /* of all tensors, for the bucket's sizes */
    const int64_t *size;
    CudaFamily family;
    bool varies; /* sizes come at run time (plan_launch_sizes) */
    CudaSpan span;
    int span_operand;  /* i32 workspace of the ranges; -1 */
    bool local_a;      /* CUDA_STREAM: the prologue fills a in shared memory */
    bool shared_a;     /* CUDA_GEMM_MMA: the blocks fill a together, then go on with the product */
    CudaPackSpec spec; /* of w */
    CudaPacked packed;
    int bm, bn, bk, warps_m, warps_n, stages; /* CUDA_GEMM_MMA, CUDA_GEMM_ANY (bn) */
    int n_blocks, split_k, n_warps, rows; /* CUDA_STREAM (stages too), CUDA_GEMM_MMA (split_k) */
    int buffers;                          /* of staged sums */
    bool swap;                            /* CUDA_HOPPER: w is the left operand */
    int promote;                          /* .. instructions between promotions to f32; 0: none */
    int shares;          /* .. blocks that share out the units of tiles; 0: none do */
    int64_t local_pitch; /* of a row of a in shared memory */
    int threads_row, run, values, groups; /* CUDA_TILE: kT kV kE kGroups */
    int64_t tile_cols, last_cols, scratch_words;
    int sweeps;        /* CUDA_TILE: over rows that are too long for the threads; 0: they hold it */
    int per_processor; /* CUDA_TILE: blocks that take row after row; 0: each takes one */
    Sb *rejected;      /* gets a line for each candidate that was not taken, and why */
} CudaKernel;

/* program.c: the statements of one program as the body of a function over (p, a, row, m, acc).
 * part_cols: columns of one part of a staged accumulator. */
void cuda_emit_program(Sb *sb, const CudaKernel *k, const PlanProgram *program, const char *name);
/* The same over a row in k->sweeps sweeps, and the function `row` that does them. */
void cuda_emit_row_sweeps(Sb *sb, const CudaKernel *k, const PlanProgram *program);
/* The statements that end a gathering of ranges (SPAN_GATHER) over (p, found, scratch). */
void cuda_emit_gather_end(Sb *sb, const CudaKernel *k, const PlanProgram *program);
/* What is known of the edges of tiles of `cols` columns between columns `begin` and `end`, of which
 * threads hold runs of `run`: the name of an enum Edge of kernels/cuda/columns.cuh. */
const char *cuda_edge(int64_t begin, int64_t end, int64_t cols, int64_t held, int run);
/* Words of scratch that the program needs for a row that `threads` threads hold, with room for
 * `cols` columns: those behind the row's end count too. */
int64_t cuda_program_scratch(const CudaKernel *k, const PlanProgram *program, int threads,
                             int64_t cols);
/* The step quantises with a dynamic scale for each row. */
bool cuda_step_by_token(const CudaKernel *k, const TileStep *s);
/* Reductions along whole rows, one after the other. */
int cuda_program_reductions(const CudaKernel *k, const PlanProgram *program);
/* Halves of a register that the program needs at once for each column that a thread holds. */
int cuda_program_pressure(const CudaKernel *k, const PlanProgram *program);
/* Some step adds up a row in the fixed order of numerics/rows.h. */
bool cuda_program_sums(const PlanProgram *program);
/* Some step needs all columns of a row at once. */
bool cuda_program_needs_row(const CudaKernel *k, const PlanProgram *program);
/* Some step adds up codes of a row. */
bool cuda_program_sums_codes(const PlanProgram *program);
/* The widest dynamic group (columns) of the program, 0 if it has none. */
int64_t cuda_program_group(const CudaKernel *k, const PlanProgram *program);

/* source.c: the whole text. The entry's name is "k_" and 16 hex digits of the text's hash. */
const char *cuda_emit_source(Arena *arena, const CudaKernel *k, const char **ret_name);
/* How it is launched. */
typedef struct CudaGeometry {
    int64_t grid;      /* blocks on the GPU that the plan is made for */
    int64_t blocks;    /* .. at most, whatever the GPU */
    int per_processor; /* the limit of `grid`; 0: none */
    int block;
    int64_t smem; /* dynamic, bytes */
    int cluster;  /* blocks that run together; 0: 1 */
    int num_maps; /* of TensorMap, behind the sizes */
    DeviceMap map[DEVICE_MAX_MAPS];
} CudaGeometry;
CudaGeometry cuda_geometry(const CudaKernel *k);
/* The same for the file; `kernel`: its number there. */
DeviceLaunch cuda_device_launch(const CudaKernel *k, int kernel);
/* Shared memory of CUDA_STREAM without the rows of a prologue; what stream.cuh comes to. */
int64_t cuda_stream_bytes(const CudaKernel *k);
/* .. and of those rows; what making them needs beside that is static, in words. */
int64_t cuda_local_bytes(const CudaKernel *k);
int64_t cuda_local_scratch(const CudaKernel *k);
/* Bytes of the workspace that blocks sharing tiles or rows need; 0: none do. Its counters, one word
 * a tile, stand at its beginning, are zero before the first launch and after each; then come the
 * sums. */
#define CUDA_SPLIT_SUMS  4096
#define CUDA_SPLIT_TILES (CUDA_SPLIT_SUMS / 4 - 3)
#define CUDA_SPLIT_ROWS                                                      \
    CUDA_SPLIT_TILES /* three counters of rows (gemm_rows.cuh), from here on \
                      */
int64_t cuda_split_bytes(const CudaKernel *k);
/* Bits of a code of an activation as it is stored: a byte at least. */
int cuda_act_bits(FormatId fmt);
/* hopper.c: the family's own constants, its instruction, its epilogue where that works on sums
 * in registers (false: it does not), its geometry and workspace. */
void cuda_hopper_config(Sb *sb, const CudaKernel *k);
void cuda_hopper_product(Sb *sb, const CudaKernel *k);
bool cuda_hopper_held(Sb *sb, const CudaKernel *k);
/* The epilogue's loads may move up to where its sums are whole, past stores of other columns: a
 * thread reads what it writes before it writes it. */
bool cuda_loads_freely(const CudaKernel *k);
CudaGeometry cuda_hopper_geometry(const CudaKernel *k);
int64_t cuda_hopper_split_bytes(const CudaKernel *k);
/* Bytes of one stage of a gemm_mma. */
int64_t cuda_stage_bytes(const CudaKernel *k);

#endif
