/* artifact: what a compiled file holds, between codegen, which writes it, and the runtime, which
 * reads it. plan.c: launch plans, encoded and decoded with every field checked. container.c: the
 * sections of the file, their hashes, and the stub before them. */
#ifndef SINTER_ARTIFACT_H
#define SINTER_ARTIFACT_H

#include "base/base.h"
#include "base/limits.h"
#include "io/io.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cuda/pack.h"
#include "numerics/tile.h"
#include "quant/quant.h"

/* code_class.c --------------------------------------------------------------------------------- */

/* GPUs that share a plan and its code: a file holds one plan for each class that it was compiled
 * for, in sections of that name. */
typedef struct CodeClass {
    const char *name, *describe;
    int from, to;     /* compute capabilities (90: 9.0) of the GPUs that run its code */
    const char *arch; /* what NVRTC compiles: "sm_90a", a binary, or "compute_80", PTX that drivers
                         compile when the file is opened */
    int smem;         /* shared memory that each of these GPUs gives a block, KiB */
    int processors;   /* that a plan is made for */
} CodeClass;
#define NUM_CODE_CLASSES 3
/* Of the classes that a file has plans for, a GPU takes the first here that serves it. */
extern const CodeClass code_classes[NUM_CODE_CLASSES];
const CodeClass *code_class_find(const char *name); /* NULL: there is none of this name */
bool code_class_serves(const CodeClass *c, int capability);
/* The best for a GPU, NULL: none serves it. */
const CodeClass *code_class_for(int capability);

/* plan.c --------------------------------------------------------------------------------------- */

/* mul * sym[0] * sym[1] + add; sym -1 = absent (counts as 1). */
typedef struct PlanDim {
    int64_t mul, add;
    int32_t sym[2];
} PlanDim;

typedef struct PlanSym {
    const char *name;
    int num_sizes;
    const int64_t *size; /* ascending */
} PlanSym;

typedef enum PlanStorage {
    STORAGE_CONST,  /* in the weights section at `offset` */
    STORAGE_ARENA,  /* at arena_offset[bucket] of the session's arena */
    STORAGE_INPUT,  /* the caller's (or the arena's copy of) input `index` */
    STORAGE_OUTPUT, /* likewise */
    STORAGE_VIEW,   /* columns or whole of tensor `index`: same bytes; of a quantised one perhaps
                       without its outer scale */
    STORAGE_SCALES, /* the scales (f32 [row blocks, column blocks]), */
    STORAGE_ZEROS,  /* the zero points (i32, likewise) */
    STORAGE_OUTER   /* or the outer scale (f32 [1, 1]) of the quantised tensor `index`; its scheme
                       says how many rows there are, not `dim` */
} PlanStorage;

/* A tensor that launches touch. Quantised tensors: codes (one byte each on the CPU), then scales
 * (f32), zero points (i32) and the outer scale, each aligned to 64 bytes: plan_tensor_layout. */
typedef struct PlanTensor {
    const char *name; /* layer path or value name; for traces and messages */
    FormatId fmt;
    bool quantised, is_static;
    Scheme scheme;
    int rank;
    PlanDim dim[LIMIT_RANK];
    PlanStorage storage;
    int32_t index;
    uint64_t offset, bytes;       /* STORAGE_CONST: in the weights section */
    const uint64_t *arena_offset; /* STORAGE_ARENA: [num_buckets] */
    int64_t view_col;             /* STORAGE_VIEW: first column of the viewed rows */
    bool packed; /* `bytes` bytes as pack_spec says: a constant, or what LAUNCH_DECODE made in the
                    arena */
    CpuPackSpec pack_spec;
    int64_t groups; /* packed: weights one behind the other, each as pack_spec says; 0: one */
    int32_t params; /* is_static: constant tensor that holds the scales (f32) then zero points
                       (i32) of the quantisation, else -1 */
} PlanTensor;

/* How a launch's rows and columns meet a tensor (CpuTensor's row_div, row_mod, col_step). */
typedef struct PlanOperand {
    int32_t tensor;
    PlanDim row_div, row_mod; /* row_mod 0: none */
    int32_t col_step;
    bool by_group; /* its row is the group that the launch's row is in */
    int32_t index; /* 0: its row is the launch's own; else operand `index` - 1, i32 [rows, 1],
                      says which */
} PlanOperand;

#define PLAN_MAX_OPERANDS 64   /* of one launch */
#define PLAN_MAX_SEGMENTS 64   /* of one launch */
#define PLAN_MAX_STEPS    4096 /* of one program */

typedef struct PlanProgram {
    const TileStep *step;
    int num_steps;
} PlanProgram;
#define PLAN_LAST_COLUMN INT64_MAX /* as n_end: to the last column, where their number varies */
typedef struct PlanSegment {
    int64_t n_begin, n_end;
    PlanProgram epilogue;
} PlanSegment;

typedef enum LaunchFamily {
    LAUNCH_GEMM,
    LAUNCH_TILE,
    LAUNCH_MOVE,
    LAUNCH_DECODE,
    LAUNCH_ROUTE,
    NUM_LAUNCH_FAMILIES
} LaunchFamily;
extern const char *const launch_family_name[NUM_LAUNCH_FAMILIES]; /* "gemm", .. */

/* A step of sending T rows to C of E groups each (ir/ops.def says what each computes). Its operands
 * are what it reads, in the order of the operation's, and last what it writes; index and places are
 * i32, x, h and weights of any plain format of floats. */
typedef enum RouteStep {
    ROUTE_TOPK,    /* x [T, E]; i32 [T, C] */
    ROUTE_TAKE,    /* x [T, E], index [T, C]; f32 [T, C] */
    ROUTE_ENDS,    /* index [T, C]; i32 [groups] */
    ROUTE_PLACES,  /* index [T, C]; i32 [T, C] */
    ROUTE_SOURCES, /* index [T, C]; i32 [T * C, 1] */
    ROUTE_CHOOSE,  /* topk and take: x [T, E]; i32 [T, C], f32 [T, C] */
    ROUTE_SORT,    /* all three: index [T, C]; ends, places, sources */
    ROUTE_WEIGH,   /* choose, and the softmax of a row's up to LIMIT_WEIGHED numbers */
    ROUTE_CLEAR,   /* counts [1, E]; of x [E * M, N], i32 or floats, other rows become 0 */
    NUM_ROUTE_STEPS
} RouteStep;
extern const char *const route_step_name[NUM_ROUTE_STEPS]; /* "topk", .. */
#define ROUTE_MAX_OPERANDS 4

/* One kernel launch; sizes follow from tensors' dims at run time. */
typedef struct PlanLaunch {
    LaunchFamily family;
    const char *layer;    /* "ffn[3].(gate|up)" */
    const char *place;    /* "mlp.sinter:12:9" */
    const char *absorbed; /* "quantize matmul scales add relu": for inspect and traces */
    int num_operands;
    const PlanOperand *operand;
    bool grouped; /* GEMM, TILE: its rows are of groups; in a GEMM each has a weight of its own */
    bool counted; /* grouped: groups have equally many rows, of which a GEMM computes those that
                     `ends` counts, the first of each; what the others hold is unknown */
    bool skips;   /* counted TILE: the others are not computed (in a GEMM they never are) */
    int32_t ends; /* grouped: i32 [groups], the row behind the last one of each, ascending; or
                     counted, how many rows of each */
    /* LAUNCH_GEMM */
    int32_t a, w;         /* tensors: activation read by the main loop, packed weight (const) or
                             plain b [n, k] (arena; packed on the fly) */
    PlanProgram prologue; /* fills a; rows of a */
    int num_segments;
    const PlanSegment *segment;
    /* LAUNCH_TILE: operand 0 gives rows and cols */
    bool whole_rows;
    PlanProgram program;
    /* LAUNCH_MOVE: src tensor -> dst tensor, a box of dst. LAUNCH_DECODE (GPUs only): packed weight
     * src (const) -> the same weight packed in another format and layout (arena) */
    int32_t src, dst;
    int move_rank;
    PlanDim move_dim[LIMIT_RANK];
    PlanDim move_src_stride[LIMIT_RANK], move_dst_stride[LIMIT_RANK]; /* elements */
    PlanDim move_src_offset, move_dst_offset;                         /* elements */
    /* LAUNCH_ROUTE: whole tensors, of which each is rows by columns */
    RouteStep route;
    int64_t groups; /* ROUTE_ENDS, _PLACES, _SOURCES, _SORT: indices are below; else 0 */
} PlanLaunch;

typedef struct PlanPort { /* an input or output of the model */
    const char *name;
    int32_t tensor;
} PlanPort;

typedef struct Plan {
    const char *target; /* "cpu" or a class's name; "": the launch list of no target */
    int num_syms, num_buckets, num_tensors, num_launches, num_inputs, num_outputs;
    const PlanSym *sym;
    const int64_t *bucket_size;  /* [num_buckets][num_syms]; ascending by the first symbol */
    const uint64_t *arena_bytes; /* [num_buckets] */
    bool rows_independent; /* batches may be cut into chunks: symbol 0 is the leading dimension of
                              all ports, occurs nowhere else, and no op mixes rows */
    const PlanTensor *tensor;
    const PlanLaunch *launch;
    const PlanPort *input, *output;
} Plan;

static inline bool plan_dim_equal(PlanDim a, PlanDim b)
{
    return a.mul == b.mul && a.add == b.add && a.sym[0] == b.sym[0] && a.sym[1] == b.sym[1];
}
int64_t plan_dim_eval(PlanDim d, const int64_t *size); /* -1: negative or too large */

/* Where the parts of a tensor of given sizes lie. Offsets of codes and plain elements count from
 * the start of `root`; those of scales, zero points and the outer scale from the start of
 * `params_root` (the tensor itself, or the constant that holds static parameters). */
typedef struct PlanLayout {
    int64_t rows, cols, pitch; /* pitch: bytes from row to row */
    int32_t root, params_root;
    uint64_t at;                          /* of the first element */
    uint64_t scale_at, zero_at, outer_at; /* quantised only */
    uint64_t bytes;                       /* from `at` to the end of the tensor's last part */
} PlanLayout;
/* One tensor alone; of a view only rows, cols and pitch as if it were contiguous. False: sizes
 * overflow. */
bool plan_tensor_layout(const PlanTensor *t, const int64_t *size, PlanLayout *ret);
/* All tensors for actual sizes (at most the bucket's): fills layout[num_tensors] and checks that
 * every launch stays inside its tensors, the arena and the weights. */
bool plan_bind(const Plan *plan, int bucket, const int64_t *size, PlanLayout *layout, IoError *err);
/* A tensor that is (part of) another one. */
static inline bool storage_is_part(PlanStorage storage)
{
    return storage >= STORAGE_VIEW;
}
/* The share of the tensor that the operand meets: rows that an index names are as many as the index
 * has. 1 where the tensor has none. */
double plan_operand_share(const PlanLaunch *l, int operand, const PlanLayout *layout);
/* .. and its bytes. */
double plan_operand_bytes(const PlanLaunch *l, int operand, const PlanLayout *layout);
/* The sizes of one bucket. */
static inline const int64_t *plan_bucket(const Plan *plan, int bucket)
{
    return plan->num_syms ? plan->bucket_size + (int64_t)bucket * plan->num_syms : NULL;
}

/* Bytes of the packed weight of a tensor on the plan's target; 0: it cannot be packed. */
uint64_t plan_packed_bytes(const Plan *plan, const CpuPackSpec *spec);
/* The same of a packed tensor, those of all groups. */
uint64_t plan_weight_packed(const Plan *plan, const PlanTensor *weight);
CudaPackSpec plan_cuda_spec(const CpuPackSpec *spec);
/* Does the target hold codes of 4 bits and what multiplies them to the weight's? */
bool plan_is_factored(const Plan *plan, const CpuPackSpec *spec);
bool pack_spec_equal(const CpuPackSpec *a, const CpuPackSpec *b);
/* How a weight lies for a GPU and what it takes: "panels, e4m3: 8.00 bits an element". */
void plan_put_layout(Sb *sb, const CpuPackSpec *weight);
/* "8192 bytes of weights (4096 of copies in other layouts)" */
void plan_put_weight_bytes(Sb *sb, const Plan *plan);
bool plan_is_cuda(const Plan *plan);
/* Bytes of the constants that the plan reads. */
uint64_t plan_weight_bytes(const Plan *plan);

typedef struct Bytes { /* growing buffer, malloc'ed; failed: memory ran out */
    uint8_t *data;
    size_t size, cap;
    bool failed;
} Bytes;
void bytes_put(Bytes *b, const void *data, size_t size); /* appends */
bool plan_encode(const Plan *plan, Bytes *ret);
void bytes_free(Bytes *bytes);
/* Everything is checked, as plan_check does, so that what plan_bind accepts can be run without
 * further checks; weights_bytes bounds constants. NULL after an error. */
Plan *plan_decode(const uint8_t *data, size_t size, uint64_t weights_bytes, IoError *err);
void plan_free(Plan *plan); /* of plan_decode; accepts NULL */
/* plan_check.c: every invariant of this page: indices, formats, registers set before use and of the
 * right type, constants inside the weights, every bucket bound, and no launch reads arena bytes
 * that another tensor has overwritten. */
bool plan_check(const Plan *plan, uint64_t weights_bytes, IoError *err);
bool plan_fail(IoError *err, const char *fmt, ...) PRINTF_LIKE(2, 3); /* E_PLAN; returns false */
int64_t plan_segment_end(const PlanSegment *s, const CpuPackSpec *spec);
bool plan_writes(TileOp op); /* the step writes its operand `tensor` */
/* The constant that a product's weight is, or that a launch decodes it from. */
int32_t plan_stored_weight(const Plan *plan, int32_t weight);
int plan_route_operands(RouteStep step); /* how many: what it reads, then what it writes */
int plan_route_results(RouteStep step);  /* how many of them it writes */
bool plan_route_sorts(RouteStep step);   /* its indices are of groups */
bool plan_route_chooses(RouteStep step); /* it finds the largest of x */
/* The tensor whose rows are the launch's. */
static inline int32_t plan_launch_tensor(const PlanLaunch *l)
{
    if (l->family == LAUNCH_GEMM)
        return l->a;
    return l->operand[l->family == LAUNCH_ROUTE && l->route == ROUTE_CLEAR].tensor;
}
/* How a GEMM launch's weight is packed: as the constant says, or on the fly. */
CpuPackSpec plan_gemm_spec(const PlanTensor *a, const PlanTensor *w, const PlanLayout *w_layout);
/* plan_alias.c: a launch meets other rows or columns of the tensor than its own. */
bool plan_operand_is_mapped(const PlanOperand *o);
/* plan_alias.c: no two tensors of one launch overlap but in place, and everything read was written
 * before and not overwritten since. */
bool plan_check_aliasing(const Plan *plan, int bucket, const PlanLayout *layout, IoError *err);
/* plan_print.c: the whole plan as text, for goldens and `inspect`. */
void plan_print(Sb *sb, const Plan *plan);

/* device_code.c: what a device runs of a plan ------------------------------------------------- */

/* A tensor map: the box by box view of an operand in memory that the copy engine of newer GPUs
 * reads. The runtime encodes it when a bucket is bound. */
typedef struct DeviceMap {
    int32_t operand;             /* of the parameters, a and w too */
    int32_t element_bytes;       /* 1, 2, 4 */
    int32_t box_rows, box_bytes; /* what one copy brings */
    int32_t swizzle;             /* how its rows lie in shared memory: 0, 32, 64, 128 bytes */
    int32_t planes;              /* of `rows` rows each; 0: no third dimension */
    int32_t scales;              /* 1: of the grid of its scales, all of it */
    int64_t rows, bytes, pitch;  /* of the matrix; 0: those of the operand's tensor */
    int64_t plane_pitch;
} DeviceMap;
#define DEVICE_MAX_MAPS 4 /* of one launch */

/* What the blocks of a launch read first of its weight, w: so many runs of so many bytes, multiples
 * of 16, `stride` bytes apart. runs 0: nothing worth fetching early. */
typedef struct DeviceRuns {
    int64_t stride;
    int32_t runs, bytes;
} DeviceRuns;

/* How one launch is started under one bucket. kernel -1: it is not part of that bucket's list. */
typedef struct DeviceLaunch {
    int32_t kernel;
    int32_t grid;          /* blocks, in one dimension .. */
    int32_t per_processor; /* .. but at most so many for each processor of the GPU; 0: no limit */
    int32_t cluster;       /* blocks that run together and share memory; 0: 1 */
    int32_t block, smem;   /* threads; dynamic shared memory in bytes */
    int32_t groups;        /* of rows, the grid's second dimension; 0: it has none */
    int32_t num_maps;
    int64_t workspace;   /* bytes; those at its beginning are zero before each launch and after */
    int32_t looks_ahead; /* 1: parameters say how the next launch begins */
    DeviceRuns first;
    DeviceMap map[DEVICE_MAX_MAPS];
} DeviceLaunch;

/* One kernel for one architecture. arch: "sm_90a" (a cubin) or "compute_80" (PTX text). */
typedef struct DeviceImage {
    char arch[16];
    int32_t kernel;
    const uint8_t *data; /* in the decoded bytes */
    uint64_t size;
} DeviceImage;

/* Parameters of every kernel: one struct by value, of 32 bytes an operand (data, scale, zero,
 * outer: device addresses, 0 where there is none) in the order of the launch's operands, for GEMM
 * followed by a and w, for MOVE src and dst instead, by the ends of groups of rows where there are
 * such, and by the workspace where there is one; where
 * it looks ahead, as much room for an address, stride, runs and bytes (DeviceRuns), and whether
 * each block of the next launch has a processor; then i64s: rows of a (GEMM), rows of operand 0
 * (TILE, ROUTE), elements (MOVE); and behind it the sizes that kernels of launches that vary read
 * (plan_launch_sizes); other kernels have them as constants. Then, from a multiple of 128 on, 128
 * bytes for each tensor map. */
#define DEVICE_OPERAND_BYTES 32
#define DEVICE_MAP_BYTES     128
#define DEVICE_MAP_ALIGN     128
int plan_launch_parameters(const PlanLaunch *l); /* operands, without a workspace */
typedef struct DeviceCode {
    int num_kernels, num_images, num_launches, num_buckets;
    const char *const *kernel;  /* entry names */
    const DeviceLaunch *launch; /* [num_launches][num_buckets] */
    const DeviceImage *image;
} DeviceCode;
/* Other sizes than rows vary inside a bucket: numbers of columns, or which row meets which. */
bool plan_launch_varies(const Plan *plan, const PlanLaunch *l);
/* Their places among the i64s of the parameters. */
enum {
    SIZE_COUNT,    /* as above */
    SIZE_COLS = 1, /* TILE: columns of operand 0 */
    SIZE_K = 1,    /* GEMM: columns of a and w, rows of w, bytes from row to row of each */
    SIZE_N,
    SIZE_A_PITCH,
    SIZE_W_PITCH,
    SIZE_OPERANDS,     /* GEMM, TILE, for each operand: bytes from row to row, row_div, row_mod */
    SIZE_MOVE_DIM = 1, /* MOVE: move_dim, strides of src and dst, offsets of both */
    SIZE_MOVE_SRC = SIZE_MOVE_DIM + LIMIT_RANK,
    SIZE_MOVE_DST = SIZE_MOVE_SRC + LIMIT_RANK,
    SIZE_MOVE_AT = SIZE_MOVE_DST + LIMIT_RANK,
    SIZE_ROUTE = 1, /* ROUTE, for each operand: columns, bytes from row to row */
    MAX_SIZES = SIZE_OPERANDS + 3 * PLAN_MAX_OPERANDS
};
/* Fills them from SIZE_COUNT + 1 on for actual sizes; returns how many there are, the count too. */
int plan_launch_sizes(const Plan *plan, const PlanLaunch *l, const PlanLayout *layout,
                      const int64_t *size, int64_t ret[MAX_SIZES]);
/* Bytes of the workspace that all launches share, one after the other. */
uint64_t device_workspace(const DeviceCode *code);
bool device_code_encode(const DeviceCode *code, Bytes *ret);
/* Checked against the plan it belongs to. Images point into data; the rest is one allocation. */
DeviceCode *device_code_decode(const uint8_t *data, size_t size, const Plan *plan, IoError *err);
void device_code_free(DeviceCode *code);

/* container.c ---------------------------------------------------------------------------------- */

#define ARTIFACT_VERSION 13
#define ARTIFACT_ALIGN   4096

typedef enum SectionKind {
    SECTION_META = 1, /* text: key = value lines (model name, compiler version, options) */
    SECTION_SOURCE,   /* the model's text(s) */
    SECTION_PLAN,     /* one a target */
    SECTION_WEIGHTS, /* of all plans, aligned to ARTIFACT_ALIGN; bytes that plans have in common lie
                        there once */
    SECTION_CODE,    /* device binaries of one class: cubin, PTX */
    SECTION_REPORT   /* fusion and scheme report, text */
} SectionKind;
typedef struct Section {
    SectionKind kind;
    char name[32];         /* target or file name */
    uint64_t offset, size; /* from the start of the artifact */
    uint64_t hash[2];      /* XXH3-128 of the bytes */
} Section;

/* Writing: stub bytes, then sections in order, then table and trailer. Same inputs, same bytes. */
typedef struct ArtifactWriter ArtifactWriter;
ArtifactWriter *artifact_create(const char *path, const void *stub, size_t stub_size, IoError *err);
bool artifact_section_begin(ArtifactWriter *w, SectionKind kind, const char *name);
bool artifact_write(ArtifactWriter *w, const void *data, uint64_t size);
bool artifact_align(ArtifactWriter *w, uint64_t align); /* inside a section, from its start */
uint64_t artifact_offset(const ArtifactWriter *w);      /* in the section */
bool artifact_section_end(ArtifactWriter *w);
bool artifact_finish(ArtifactWriter *w, IoError *err); /* frees w; executable mode */
void artifact_abandon(ArtifactWriter *w);

typedef struct Artifact {
    MappedFile file;
    uint64_t start, size; /* of the artifact in the file */
    int num_sections;
    Section *section;
} Artifact;
/* Checks magic, version, trailer, table and the hash of every section (weights too unless
 * skip_weights) before returning. */
bool artifact_open(const char *path, bool skip_weights, Artifact *ret, IoError *err);
/* The same of a copy in memory, which is checked and then never changes. */
bool artifact_open_copy(const char *path, Artifact *ret, IoError *err);
void artifact_close(Artifact *a);
/* The first section of this kind, and of this name unless NULL. */
const Section *artifact_find(const Artifact *a, SectionKind kind, const char *name);
const uint8_t *artifact_data(const Artifact *a, const Section *s);

/* plan_load.c ---------------------------------------------------------------------------------- */

/* plan_decode of a section, with the weights of all plans; the plan is for the section's target. */
Plan *plan_load(const Artifact *a, const Section *s, IoError *err);
/* Two plans of one file have the same ports (names, types), symbols and buckets. */
bool plans_agree(const Plan *a, const Plan *b, IoError *err);

#endif
