/* The GPUs of this machine, as --target=native and the default of --device ask for them. No GPU is
 * entered: contexts and memory are left to who runs something. */
#ifndef SINTER_GPU_HERE_H
#define SINTER_GPU_HERE_H

#include "base/base.h"

/* The compute capability of a GPU (90: 9.0); 0, with the reason in *ret_why: it is not here. */
int gpu_here(Arena *arena, int ordinal, const char **ret_why);
/* The word of --target for GPUs of a capability; NULL: nothing compiles for them. */
const char *gpu_target(Arena *arena, int capability);

#endif
