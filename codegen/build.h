/* codegen/build: what the files that turn a module into a plan share. */
#ifndef SINTER_CODEGEN_BUILD_H
#define SINTER_CODEGEN_BUILD_H

#include "codegen/codegen.h"

/* Map from pointer to number; 0 = absent. */
typedef struct PtrMap {
    Arena *arena;
    struct PtrSlot {
        const void *key;
        int value;
    } * slot;
    int num, num_slots;
} PtrMap;
void ptrmap_init(PtrMap *map, Arena *arena);
int ptrmap_get(const PtrMap *map, const void *key);
void ptrmap_put(PtrMap *map, const void *key, int value);

/* What the builder knows of a plan tensor beside what the plan says. */
typedef struct TensorInfo {
    const Type *type;
    Dim pitch;       /* elements from row to row */
    bool is_strided; /* pitch is more than the columns */
} TensorInfo;

/* A tensor whose repeated rows were written out, for rows of this shape. */
typedef struct Expanded {
    int tensor, expanded;
    const Type *domain;
} Expanded;

typedef struct Builder {
    Module *m;
    Arena *arena;
    CodegenTarget *target;
    ARRAY(PlanTensor) tensors;
    ARRAY(TensorInfo) infos; /* same indices */
    ARRAY(PlanLaunch) launches;
    PtrMap tensor_of; /* value -> tensor + 1 */
    PtrMap packed_of; /* constant value -> packed tensor + 1 */
    PtrMap constness; /* top-level op -> 1 constant, 2 not */
    ARRAY(Expanded) expanded;
    int group;                  /* of constants: the launch being built */
    const Op *kernel;           /* being built; what ARGs of its body refer to */
    const Value **outputs_from; /* [outputs] the kernel result that is stored there directly */
    int num_inputs, num_outputs;
    bool failed;
} Builder;

/* Reports at a place of the text; returns false. */
bool build_fail(Builder *b, Span span, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* tensors.c ------------------------------------------------------------------------------------ */

PlanDim plan_dim(Dim d);
bool build_is_constant(Builder *b, const Value *value); /* of the module's block */
/* The value outside the kernel that an ARG of its body stands for; others stand for themselves. */
const Value *build_outer(const Builder *b, const Value *value);
int tensor_add(Builder *b, const char *name, const Type *type, PlanStorage storage);
/* The tensor of a value of the module's block, made if it can be (constants, views); -1 after an
 * error. */
int tensor_get(Builder *b, const Value *value, Span span);
/* Columns [col, col + cols) of the rows of a tensor; the tensor itself when these are all. */
int tensor_columns(Builder *b, int tensor, int64_t col, int64_t cols);
/* A tensor for a result of a kernel: an output of the model where it becomes one, else in the
 * arena. quantize: the op that fills it, for static parameters; NULL otherwise. */
int tensor_result(Builder *b, const Value *value, const Op *quantize);
/* A tensor that only one kernel uses. */
int tensor_inside(Builder *b, const char *name, const Value *value);
/* The scales, zero points or outer scale of a quantised tensor, shaped as `type`. */
int tensor_part(Builder *b, int tensor, PlanStorage part, const Type *type);
/* The constant weight, or those of `groups` groups of rows, packed for this spec as each target
 * packs it. */
int tensor_packed(Builder *b, const Value *value, const CpuPackSpec *spec, int64_t groups,
                  Span span);

/* program.c ------------------------------------------------------------------------------------ */

/* What one program leaves behind: the columns from `off` of a value of the body go to `tensor`,
 * which has just the program's columns (or one, for a code sum). */
typedef struct Store {
    const Value *value;
    int64_t off;
    int tensor;
    int codes; /* code_sum: the tensor that holds the codes */
} Store;

/* The operands that the programs of one launch share. */
typedef struct Operands {
    ARRAY(PlanOperand) list;
} Operands;

typedef struct ProgramSpec {
    const Type *domain; /* leading dims are the rows */
    Dim cols;           /* of the program */
    const Op *matmul;   /* NULL: no accumulator */
    int64_t part_cols;  /* columns of one part of the accumulator */
    int num_stores;
    const Store *store;
    const PtrMap *inside; /* values of the body that lie in tensors of their own -> tensor + 1 */
} ProgramSpec;
bool program_build(Builder *b, Operands *operands, const ProgramSpec *spec, PlanProgram *ret);
int operand_add(Builder *b, Operands *operands, int tensor, const Type *domain);
/* skip_rows.c: row programs leave out rows that nobody reads, as products do that count rows. */
void codegen_skip_rows(Arena *arena, const PlanTensor *tensor, int num_tensors, PlanLaunch *launch,
                       int num);
/* The launch is of groups of rows where ops of the kernel's body speak of their ends. */
void launch_group(Builder *b, const Op *kernel, PlanLaunch *l);
bool program_needs_rows(const PlanProgram *program, const Builder *b, const Operands *operands);

/* gemm.c, tile.c, move.c, route.c -------------------------------------------------------------- */

void build_gemm(Builder *b, Op *kernel, Op *matmul);
void build_tile(Builder *b, Op *kernel);
void build_move(Builder *b, Op *kernel, Op *op);
void build_route(Builder *b, Op *kernel, Op *op);
/* Copies one tensor into another of the same shape. */
void build_copy(Builder *b, int src, int dst, const Op *from);
/* A tensor with the rows of the domain, where those of `tensor` repeat in a way that operands
 * cannot express; -1 after an error. */
int build_expanded(Builder *b, int tensor, const Type *domain, const Op *from);
PlanLaunch *launch_add(Builder *b, const Op *op, LaunchFamily family);

/* memory.c: arena offsets of every bucket. */
void memory_plan(Builder *b, Plan *plan);

/* rows.c: may batches be cut into chunks of rows? */
bool rows_independent(Builder *b);

#endif
