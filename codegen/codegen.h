/* codegen: fused IR -> launch plan per target -> the compiled file. */
#ifndef SINTER_CODEGEN_H
#define SINTER_CODEGEN_H

#include "artifact/artifact.h"
#include "ir/ir.h"
#include "passes/passes.h"

/* A constant of the plan and the IR values that fill it when the file is written. Constants of one
 * group are evaluated together, because they share expressions (the codes of a weight and its
 * scales), and one group at a time, so that memory stays bounded by one layer. */
typedef struct PlanConst {
    int32_t tensor;
    int group;          /* ascending */
    const Value *value; /* parameters of a static quantisation: the scale */
    const Value *zero;  /* parameters of a static quantisation: the zero point, or NULL */
    int params_of;      /* tensor whose static parameters these are, -1: not parameters */
    Span span;          /* of what reads it */
} PlanConst;

typedef struct CodegenTarget {
    Plan *plan;
    ARRAY(PlanConst) consts;          /* in the order in which they are first read */
    ARRAY(const Op *) launch_kernels; /* the op behind each launch */
} CodegenTarget;

/* Both need a module after fuse and are false after reporting to m->diag. plan_build.c: the launch
 * list of no target: kernels to launches and operands, and (memory.c) liveness, arena offsets per
 * bucket. Each target makes its plan from it: packed weights have no bytes yet, constants no place.
 */
bool codegen_list(Module *m, Arena *arena, CodegenTarget *ret);
/* cpu_plan.c: the list as it is, with weights packed for the CPU. */
bool codegen_cpu(Module *m, Arena *arena, const CodegenTarget *list, CodegenTarget *ret);
bool codegen_plan(Module *m, Arena *arena, CodegenTarget *ret); /* both */

/* place.c: where the constants of targets lie in the section of weights that they share: in groups,
 * what is the same for several targets once. */
typedef struct PlacedConst {
    const CodegenTarget *target; /* the first that reads it */
    const PlanConst *what;
    uint64_t offset;
} PlacedConst;
typedef struct Placement {
    uint64_t bytes, align; /* of the section, of each constant */
    ARRAY(PlacedConst) consts;
} Placement;
/* Sets the offsets of the plans' constants. False: they are too many bytes, reported. */
bool codegen_place(Module *m, Arena *arena, int num, CodegenTarget *const *target, Placement *ret);

/* write.c: fills the weights section and writes the file. progress (may be NULL) gets 0..1. */
typedef struct WriteTarget {
    CodegenTarget *target;
    const DeviceCode *code; /* NULL: the CPU */
} WriteTarget;
typedef struct WriteOptions {
    const void *stub;
    size_t stub_size;
    const char *source_name, *source_text;
    size_t source_len;
    const char *report;
    void (*progress)(void *user, double done, const char *what);
    void *user;
} WriteOptions;
bool codegen_write(Module *m, int num, const WriteTarget *target, const char *path,
                   const WriteOptions *options);

/* fusion_share.c: how much of a model runs inside kernels that do several of its operations. */
typedef struct FusionShare {
    int launches;
    int ops, fused_ops;        /* of the model */
    double bytes, fused_bytes; /* that launches read and write */
} FusionShare;
/* Of a bucket; num_ops: of each launch, those of the model that it does, -1 where it does not run.
 */
FusionShare fusion_share_of(const Plan *plan, const int *num_ops, Arena *arena, int bucket);
void fusion_share_print(Sb *sb, const FusionShare *c);
/* .. of a plan whose launches are the kernels of the IR. */
FusionShare codegen_fusion_share(const CodegenTarget *target, Arena *arena, int bucket);
int kernel_num_ops(const Op *kernel); /* operations in its body */
/* Does a program of the launch read or write the operand? A launch that was split off a kernel
 * names all of the kernel's. */
bool launch_names(const PlanLaunch *l, int operand);
/* Bytes that a launch reads and writes beside its weight. layout: of a bucket, by plan_bind. */
double launch_bytes(const Plan *plan, const PlanLaunch *l, const PlanLayout *layout);
/* "T = 16, S = 8", or nothing where no size varies. */
void plan_bucket_print(Sb *sb, const Plan *plan, int bucket);

/* explain.c: each kernel, what it absorbed, and why each chain stopped. */
/* cpu_cost.c: microseconds of a launch on a processor, by bytes and operations over round rates.
 * layout: of a bucket, by plan_bind. */
double cpu_launch_us(const Plan *plan, const PlanLaunch *l, const PlanLayout *layout);
void codegen_explain(Sb *sb, const Module *m, const PassContext *ctx, const CodegenTarget *target);
/* Lines that say why the chains of a kernel stopped; ret_at, at first 0, is kept for the next one.
 */
void explain_stops(Sb *sb, const Module *m, const PassContext *ctx, const Op *kernel, int *ret_at);
/* Why a chain stopped; NULL: the note says what the kernel holds, as its launch does. */
const char *fusion_stop(const FusionNote *note);
/* "i8 sym per channel", "f32": what an operand of a product is stored as. */
void plan_format_print(Sb *sb, const PlanTensor *t, bool is_act);

#endif
