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
} PlanConst;

typedef struct CodegenTarget {
    Plan *plan;
    uint64_t weights_bytes;
    ARRAY(PlanConst) consts;          /* by ascending offset in the weights */
    ARRAY(const Op *) launch_kernels; /* the op behind each launch */
} CodegenTarget;

/* Needs a module after fuse. plan_build.c: kernels to launches and operands; memory.c: liveness,
 * arena offsets per bucket. False after reporting to m->diag. */
bool codegen_plan(Module *m, Arena *arena, CodegenTarget *ret);

/* write.c: fills the weights section and writes the file. progress (may be NULL) gets 0..1. */
typedef struct WriteOptions {
    const void *stub;
    size_t stub_size;
    const char *source_name, *source_text;
    size_t source_len;
    const char *report;
    const CodegenTarget *cuda; /* the GPU's plan and code, or NULL */
    const DeviceCode *code;
    void (*progress)(void *user, double done, const char *what);
    void *user;
} WriteOptions;
bool codegen_write(Module *m, const CodegenTarget *target, const char *path,
                   const WriteOptions *options);

/* explain.c: each kernel, what it absorbed, and why each chain stopped. */
void codegen_explain(Sb *sb, const Module *m, const PassContext *ctx, const CodegenTarget *target);
/* Why a chain stopped; NULL: the note says what the kernel holds, as its launch does. */
const char *fusion_stop(const FusionNote *note);
/* "i8 sym per channel", "f32": what an operand of a product is stored as. */
void plan_format_print(Sb *sb, const PlanTensor *t, bool is_act);

#endif
