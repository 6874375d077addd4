/* One model compiled for the CPU and for a GPU by this process, and opened again from its file. */
#ifndef SINTER_TESTS_GPU_BUILD_H
#define SINTER_TESTS_GPU_BUILD_H

#include "codegen/cuda/target.h"
#include "runtime/cuda.h"

typedef struct Built {
    Arena *arena;
    Diag diag;
    Module *m;
    CodegenTarget cpu;
    CudaTarget cuda;
    SinterModel *file;
    const ModelTarget *on_cpu, *on_gpu; /* of the file; on_gpu NULL: without machine code */
} Built;

/* What to make. path: a model text, or a module as text (.ir). code: machine code for $GPU_ARCH,
 * by default sm_90a ("compute_80": the portable code); else the GPU's plan alone, for which no
 * NVRTC is needed. */
typedef struct BuildOptions {
    const char *path, *dir;   /* of data, and of the file while it is made */
    int level;                /* of optimisation */
    const CudaFamily *family; /* that products take where they can; NULL: the fastest */
    const char *wish;         /* .. and words of its candidate; NULL: any (CudaPlanOptions) */
    CudaDecode decode;        /* weights, by launches of their own */
    const CudaLayout *layout; /* of weights, where they can lie so; NULL: the fastest */
    bool invariant;           /* one order of sums for all sizes */
    bool racecheck;           /* kernels for that tool (kWarpArrivals, hopper_tiles.cuh) */
    bool code;
} BuildOptions;

/* False after printing why, as lines of comments; built_free in any case. */
bool built_make(Built *b, const BuildOptions *options);
void built_free(Built *b);

#endif
