/* codegen/cuda/plan: what the files share that turn the launch list into the plan of a class. */
#ifndef SINTER_CODEGEN_CUDA_PLAN_H
#define SINTER_CODEGEN_CUDA_PLAN_H

#include "codegen/cuda/choose.h"

typedef struct CudaBuilder {
    Module *m;
    Arena *arena, *scratch;
    const Plan *list;
    const CudaPlanOptions *options;
    CudaTarget *out;
    ARRAY(PlanTensor) tensors;
    ARRAY(PlanLaunch) launches;
    ARRAY(CudaRole) roles; /* of the launches */
    ARRAY(const Op *) launch_ops;
    uint64_t *arena_bytes;
    Map kernels; /* name -> index + 1 */
    ARRAY(CudaSource) sources;
    bool failed;
} CudaBuilder;

void cuda_launch_put(CudaBuilder *b, PlanLaunch launch, CudaRole role, const Op *op);

/* plan.c: bytes of memory behind the arena of each bucket: where they begin. */
const uint64_t *cuda_grow_arena(CudaBuilder *b, const uint64_t *bytes);

/* copies.c: launches of weights that lie in several layouts once for each, with a tensor and a
 * constant for each; where a weight is decoded by a launch, with that and its tensor. under: as
 * cuda_choose_layouts returns it. False: there are none. */
bool cuda_put_copies(CudaBuilder *b, Plan *plan, const CudaDraft *d, const uint8_t *under);

#endif
