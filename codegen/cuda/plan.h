/* codegen/cuda/plan: what the files share that turn the launch list into the plan of a class. */
#ifndef SINTER_CODEGEN_CUDA_PLAN_H
#define SINTER_CODEGEN_CUDA_PLAN_H

#include "codegen/cuda/choose.h"

typedef struct CudaFound { /* tensors: ranges that a product finds, of what is quantised */
    int ranges, of;
} CudaFound;

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
    int ranges; /* tensor of all ranges that a launch clears, + 1; 0: none */
    ARRAY(CudaFound) found;
    Map kernels; /* name -> index + 1 */
    ARRAY(CudaSource) sources;
    bool failed;
} CudaBuilder;

void cuda_launch_put(CudaBuilder *b, PlanLaunch launch, CudaRole role, const Op *op);

/* plan.c: bytes of memory behind the arena of each bucket: where they begin. */
const uint64_t *cuda_grow_arena(CudaBuilder *b, const uint64_t *bytes);

/* ranged.c: the launch of the list that quantises what this product stores with one range of all of
 * it; -1: there is none, or the product cannot find that. ret: what it finds, but where that lies.
 */
int cuda_ranged(const Plan *list, int launch, CudaRanged *ret);

/* copies.c: launches of weights that lie in several layouts once for each, with a tensor and a
 * constant for each; where a weight is decoded by a launch, with that and its tensor. under: as
 * cuda_choose_layouts returns it. False: there are none. */
bool cuda_put_copies(CudaBuilder *b, Plan *plan, const CudaDraft *d, const uint8_t *under);

/* held.c: what holds the activation `of` a product as bf16: the tensor that is read (the same, but
 * without its outer scale), the one that is written, and the outer scale that the epilogue
 * multiplies by; -1: it has none. */
typedef struct CudaHold {
    int of, from, to, outer;
} CudaHold;
#define CUDA_HOLD_TENSORS 4
/* Fills the further tensors, numbered from `first` on; at: their place in the arena. weight: as it
 * is stored. known: of another product that reads the same activation; NULL: there is none. Returns
 * how many there are. */
int cuda_hold_tensors(const CudaDraft *d, const PlanLaunch *product, int weight,
                      const CudaHold *known, const uint64_t *at, int first,
                      PlanTensor ret[CUDA_HOLD_TENSORS], CudaHold *hold);
uint64_t cuda_hold_bytes(const CudaDraft *d, const PlanLaunch *product, int bucket);
/* The launch that fills them, and the product that reads them and this tensor of the weight. */
PlanLaunch cuda_hold_launch(Arena *arena, const PlanLaunch *product, const CudaHold *hold);
PlanLaunch cuda_held_product(Arena *arena, const PlanLaunch *product, const CudaHold *hold,
                             int weight);
/* Instead of the first: the row kernel `row`, which quantises the activation, and fills them
 * besides; false: it does not end with that. */
bool cuda_hold_rows(Arena *arena, const PlanLaunch *row, const CudaHold *hold, PlanLaunch *ret);

#endif
