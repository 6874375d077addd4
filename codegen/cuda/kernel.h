/* codegen/cuda: launches of a plan as CUDA C++ for NVRTC. The loops are device files of
 * kernels/cuda; what is written here is a struct of named constants, the tile programs as straight
 * lines of statements, and one entry. No text of the user's reaches a source. */
#ifndef SINTER_CODEGEN_CUDA_KERNEL_H
#define SINTER_CODEGEN_CUDA_KERNEL_H

#include "artifact/artifact.h"
#include "kernels/cuda/pack.h"

typedef enum CudaFamily {
#define CUDA_FAMILY(ID, name) CUDA_##ID,
#include "codegen/cuda/families.def"
#undef CUDA_FAMILY
    NUM_CUDA_FAMILIES
} CudaFamily;
extern const char *const cuda_family_name[NUM_CUDA_FAMILIES]; /* of its files, and in timings */

/* What to do about a dynamic quantisation whose blocks span rows. */
typedef enum CudaSpan {
    SPAN_NONE,   /* there is none */
    SPAN_CLEAR,  /* clear the ranges of all */
    SPAN_GATHER, /* find the ranges, store nothing */
    SPAN_GIVEN   /* scales come from the gathered ranges */
} CudaSpan;

/* What a product stores is quantised later, with one range of all of it: it finds that, too. */
typedef struct CudaRanged {
    int stored, ranges; /* operands: what is stored, workspace as of SPAN_GATHER */
    int of;             /* tensor that is quantised */
} CudaRanged;

/* How a product gets its activation. */
typedef enum CudaInput {
    INPUT_GIVEN, /* it lies in memory */
    INPUT_LOCAL, /* each block runs the prologue, into shared memory */
    INPUT_SHARED /* the blocks run the prologue together, then go on with the product */
} CudaInput;

/* The numbers of each family, a candidate's beside the family. */
typedef struct CudaGemmMma {
    int bm, bn, bk, warps_m, warps_n, stages, split_k;
} CudaGemmMma;
typedef struct CudaStream {
    int rows, n_blocks, n_warps, split_k, stages;
    int buffers;    /* of staged sums */
    bool copied;    /* rows of a lie in shared memory, a copy in each block */
    int held;       /* .. so many rounds of them at once; 0: all */
    int gather;     /* blocks of a cluster that have a part of K each; 1: none */
    bool decoupled; /* warps go on to the next unit of columns without waiting for each other */
    bool as_wgmma;  /* in the order of products by wgmma, split_k equal parts of K */
} CudaStream;
typedef struct CudaHopper {
    bool swap; /* w is the left operand */
    int bm, bn, stages;
    bool leaves;    /* results go through shared memory, as copies in the background */
    int promote;    /* instructions between promotions to f32; 0: none */
    int shares;     /* blocks that share out the units of tiles; 0: none do */
    int parts_of_k; /* that a block adds up one after the other, then the parts; 1: none */
    int cluster;    /* blocks that copy for each other */
    int gather;     /* blocks of a cluster that have a part of a tile's K each; 1: none */
} CudaHopper;
typedef struct CudaMixed {
    int bm, teams, slabs, stages; /* rows of a; warpgroups, each with slabs of 64 rows of w */
    int turns;                    /* .. of which so many take units of the same rows in turn */
    int shares;                   /* blocks that share out the units of tiles; 0: none do */
    int parts_of_k;               /* each added up for itself, then the parts; 1: none, or as many
                                     as blocks share a tile */
    int cluster;                  /* blocks that copy for each other */
    int gather;    /* blocks of a cluster that have a part of a tile's K each; 1: none */
    bool in_place; /* sums stay in the unit of their last block of K, not scaled ones beside them */
    int rest;      /* blocks that share each group of rows of w that is left over; 0: none is */
    int fragments; /* rows of a that the epilogue gets at once, as fragments; 0: it gets rows */
} CudaMixed;
typedef struct CudaGemmPair {
    int bm, bn, warps_m, warps_n; /* of a group */
    int groups, stages;           /* that share K; of the ring of each */
} CudaGemmPair;
typedef struct CudaGemmAny {
    int bn;
} CudaGemmAny;
typedef struct CudaRows {
    int threads_row, run, values, groups; /* kT kV kE kGroups */
    int64_t tile_cols, last_cols, scratch_words;
    int sweeps;        /* over rows that are too long for the threads; 0: they hold it */
    int per_processor; /* blocks that take row after row; 0: each takes one */
} CudaRows;

/* One kernel to write: a launch under one bucket, and the choices made for it. */
typedef struct CudaKernel {
    const CodeClass *gpu; /* that it is for */
    const Plan *plan;
    const PlanLaunch *launch;
    const PlanLayout *layout; /* of all tensors, for the bucket's sizes */
    const int64_t *size;
    bool varies; /* sizes come at run time (plan_launch_sizes) */
    CudaSpan span;
    int span_operand;         /* i32 workspace of the ranges; -1 */
    const CudaRanged *ranged; /* NULL: none */
    CudaInput input;
    int64_t local_pitch; /* of a row of a in shared memory; 0: it does not lie there */
    int64_t groups;      /* of rows, with a weight each; 0: all rows are of one */
    int share;           /* .. of which each has so many quarters of its share; 0: the most */
    bool as_one;         /* .. whose columns are taken to be those of one weight: for predictions */
    CudaPackSpec spec;   /* of w */
    CudaPacked packed;
    CudaFamily family;
    union {
        CudaGemmMma mma;
        CudaStream stream;
        CudaHopper hopper;
        CudaMixed mixed;
        CudaGemmPair pair;
        CudaGemmAny any;
        CudaRows row;
    };
    bool invariant;    /* candidates of all sizes count */
    const char *order; /* of sums that it must have (put_order); NULL: any */
    Sb *rejected;      /* gets a line for each candidate that was not taken, and why */
} CudaKernel;

/* Rows of a that a product is made for: all, or what a group is expected to have. Any group may
 * have all of them. */
int64_t cuda_rows(const CudaKernel *k);
/* .. and that its blocks must hold, where none goes on to other tiles. */
int64_t cuda_most_rows(const CudaKernel *k);
/* Some groups have more rows than others. */
bool cuda_shares_vary(const CudaKernel *k);
/* Groups whose rows are counted; 0: they follow each other, or there are none. */
int cuda_counted(const CudaKernel *k);
/* Groups whose rows may be there at once; 1 without groups. */
int64_t cuda_groups_busy(const CudaKernel *k);
/* program.c: the statements of one program as the body of a function over (p, a, row, m, acc).
 * part_cols: columns of one part of a staged accumulator. */
void cuda_emit_program(Sb *sb, const CudaKernel *k, const PlanProgram *program, const char *name);
/* .. and of one over (p, row, m) that begins to bring near what the program loads. */
void cuda_emit_fetch(Sb *sb, const CudaKernel *k, const PlanProgram *program, const char *name);
bool cuda_program_loads(const PlanProgram *program);
/* Of a product that finds a range: what its programs' functions are given to note, and the
 * statement that tells the GPU of that. */
#define CUDA_TOLD(k) (cuda_finds_range(k) ? ", told" : "")
void cuda_emit_tell(Sb *sb, const CudaKernel *k);
/* The member of a launch's parameters that makes those of a group, whose rows `num` are, from
 * `first` on: as if these were all. */
void cuda_emit_group(Sb *sb, const CudaKernel *k);
/* The same over a row in `sweeps` sweeps, and the function `row` that does them. */
void cuda_emit_row_sweeps(Sb *sb, const CudaKernel *k, const PlanProgram *program, int sweeps);
/* The statements that end a gathering of ranges (SPAN_GATHER) over (p, found, scratch). */
void cuda_emit_gather_end(Sb *sb, const CudaKernel *k, const PlanProgram *program);
/* Blocks whose ranges are gathered; those of single rows are found where they are quantised. */
int64_t cuda_span_blocks(const Scheme *s, const PlanLayout *l);
/* What is known of the edges of tiles of `cols` columns between columns `begin` and `end`, of which
 * threads hold runs of `run`: the name of an enum Edge of kernels/cuda/columns.cuh. */
const char *cuda_edge(int64_t begin, int64_t end, int64_t cols, int64_t held, int run);
/* Words of scratch that the program needs for a row that `threads` threads hold, with room for
 * `cols` columns: those behind the row's end count too. */
int64_t cuda_program_scratch(const CudaKernel *k, const PlanProgram *program, int threads,
                             int64_t cols);
/* The step quantises with dynamic scales, or an outer one, of several rows. */
bool cuda_step_spans(const CudaKernel *k, const TileStep *s);
bool cuda_program_spans(const CudaKernel *k, const PlanProgram *program);
/* The product finds the range of several rows that it stores. */
bool cuda_finds_range(const CudaKernel *k);
/* .. with a dynamic outer scale of the only row that there is. */
bool cuda_step_finds_outer(const CudaKernel *k, const TileStep *s);
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
/* A softmax in an epilogue, which makes an error of its logits one of its results' digits. */
bool cuda_amplifies(const CudaKernel *k);
/* All results are of 16 bits (bf16, or f16 of sums in f16), and no step of the epilogue makes more
 * of an error than the product of two sums does: room for weights that are rounded to as many. */
bool cuda_results_are_coarse(const CudaKernel *k);
/* 16-bit floats that a code of a codebook is multiplied as (format.cuh: Pieces): one of a table in
 * another unit where that is exact (fp4) or all results are so coarse (docs/numerics.md). */
int cuda_codebook_pieces(const CudaKernel *k);
/* Shared memory that a block has for values of pairs of such codes (format.cuh: PairTable), where
 * one piece is all; else 0. */
int64_t cuda_pair_table_bytes(const CudaKernel *k);
int cuda_pair_pitch(const CudaKernel *k); /* bytes from pair to pair; 0: there is no table */
/* An epilogue whose results the model gives out in f32. */
bool cuda_gives_f32(const CudaKernel *k);
/* Tensor cores cut sums of floats off towards zero: where K is long and results have to be good,
 * each few of K are added up for themselves, and what they come to in f32 (docs/numerics.md). */
bool cuda_adds_apart(const CudaKernel *k);
/* Some step adds up codes of a row. */
bool cuda_program_sums_codes(const PlanProgram *program);
/* The widest dynamic group (columns) of the program, 0 if it has none. */
int64_t cuda_program_group(const CudaKernel *k, const PlanProgram *program);
/* The program loads rows, and computes what takes registers beside them: a function, a quotient. */
bool cuda_program_works_on_rows(const CudaKernel *k, const PlanProgram *program);
/* The program stores one result, of 16 bits, in rows that begin at multiples of 16 bytes, and loads
 * no rows. */
bool cuda_program_leaves(const CudaKernel *k, const PlanProgram *program);
/* .. and where that of row m begins, as an expression. */
const char *cuda_program_result(Sb *sb, const CudaKernel *k, const PlanProgram *program);
/* No epilogue lets columns of a row meet. */
bool cuda_columns_apart(const CudaKernel *k);

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
    /* Bytes of the workspace that blocks sharing tiles or rows need; 0: none do. Its counters, one
     * word a tile and three of rows (gemm_rows.cuh), stand at its beginning, are zero before the
     * first launch and after each; then come the sums. */
    int64_t workspace;
    bool walks_groups; /* blocks go from group to group of rows; else each is of one */
    int num_maps;      /* of TensorMap, behind the sizes */
    DeviceMap map[DEVICE_MAX_MAPS];
} CudaGeometry;
CudaGeometry cuda_geometry(const CudaKernel *k);
#define CUDA_SPLIT_SUMS  4096
#define CUDA_SPLIT_TILES (CUDA_SPLIT_SUMS / 4 - 3)
#define CUDA_SPLIT_ROWS  CUDA_SPLIT_TILES
/* The same for the file; `kernel`: its number there. */
/* ahead.c */
DeviceRuns cuda_first_read(const CudaKernel *k, const CudaGeometry *g);
DeviceLaunch cuda_device_launch(const CudaKernel *k, int kernel);

#endif
