/* codegen/cuda/why: the parts that a kernel of the IR comes apart into on a GPU, and why. */
#ifndef SINTER_CODEGEN_CUDA_WHY_H
#define SINTER_CODEGEN_CUDA_WHY_H

#include "codegen/cuda/target.h"

/* One part of a kernel: what its matmul's first operand needs; or the others but the last
 * `left_out` quantisations, which are launches of their own. */
typedef struct KernelPart {
    const char *words; /* names of its operations */
    int num_ops;
    Span at; /* of the first */
} KernelPart;
KernelPart kernel_part(Arena *arena, const Op *kernel, bool before, int left_out);
/* The place of the last quantisation but `behind` of a kernel. */
Span kernel_quantise_span(const Op *kernel, int behind);

/* Why a dynamic quantisation whose blocks span rows takes launches of its own; found: a product
 * finds its range. */
CudaApartWhy cuda_span_why(Arena *arena, const PlanTensor *t, bool found, Span at);
/* What the reason of a prologue begins with, where the schedule says the rest. list: of no target.
 */
CudaApartWhy cuda_prologue_why(Arena *arena, const Plan *list, const PlanLaunch *l, const Op *op,
                               const KernelPart *before);
struct CudaDraft;
/* Reports that nothing runs a launch under a bucket. rejected: lines of what was tried. */
void cuda_say_no_kernel(Diag *diag, Arena *arena, const struct CudaDraft *d, int launch, int bucket,
                        const Op *kernel, const char *problem, const char *rejected);
/* Why a copy of the activation comes before a product. */
CudaApartWhy cuda_copy_why(Arena *arena, const Plan *list, const PlanLaunch *l, const Op *op);
/* Why a launch decodes a product's weight before it, to this tensor. asked: not because of time. */
CudaApartWhy cuda_decode_why(Arena *arena, const PlanTensor *to, const Op *kernel, bool asked);
/* Why a launch holds its activation in bf16, which `from` is quantised to. */
CudaApartWhy cuda_hold_why(Arena *arena, const PlanTensor *from, const Op *kernel, bool asked);
/* Why a dynamic quantisation of a product's results is a launch of its own. */
CudaApartWhy cuda_group_why(Arena *arena, const Plan *list, const PlanLaunch *l,
                            const CudaApart *apart, Span at);

#endif
