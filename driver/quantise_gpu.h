/* A GPU as the engine of weight quantisers (quant/engine.h). */
#ifndef SINTER_TOOLS_QUANTISE_GPU_H
#define SINTER_TOOLS_QUANTISE_GPU_H

#include "codegen/cuda/target.h"
#include "quant/engine.h"

/* Of GPU `ordinal`: its kernels are compiled, or come from the cache. In `arena`; ends with the
 * process. NULL after reporting to diag. */
const QuantEngine *quantise_gpu_open(Arena *arena, Diag *diag, int ordinal, bool use_cache);

/* Its kernels, for tests that compile them without a GPU. */
extern const CudaSource quantise_gpu_source;

#endif
