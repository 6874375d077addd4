/* codegen/cuda/mixed: what mixed.c and mixed_time.c know of one of its kernels. */
#ifndef SINTER_CODEGEN_CUDA_MIXED_H
#define SINTER_CODEGEN_CUDA_MIXED_H

#include "codegen/cuda/family.h"

#define BOX_BYTES 128 /* of K, of a row of a */
#define UNIT      128 /* of K */

static inline FormatFamily family_of(FormatId fmt)
{
    return format_info[fmt].family;
}

static inline bool is_int(const CudaKernel *k)
{
    return k->packed.home == CUDA_HOME_I8;
}

static inline bool has_bytes(const CudaKernel *k) /* the activation: else 16-bit floats */
{
    return format_info[k->spec.act_fmt].bits == 8;
}

/* Sums of blocks of K, or of units of 8-bit floats and of a long K, are added to others. */
static inline bool promotes(const CudaKernel *k)
{
    return !k->mixed.in_place &&
           (k->spec.mainloop || (has_bytes(k) && !is_int(k)) || cuda_adds_apart(k));
}

/* .. of a long K alone. */
static inline bool is_apart(const CudaKernel *k)
{
    return cuda_adds_apart(k) && !k->spec.mainloop && !has_bytes(k);
}

/* Where tiles are few, those of one warpgroup that are added in order: two to a processor. */
static inline bool is_small(const CudaKernel *k)
{
    return k->mixed.teams == 1;
}
static inline int per_processor(const CudaKernel *k)
{
    return is_small(k) ? 2 : 1;
}

static inline int columns(const CudaKernel *k) /* rows of w */
{
    return 64 * k->mixed.slabs * k->mixed.teams / k->mixed.turns;
}

static inline int64_t act_scales(const CudaKernel *k) /* of a row, in a unit */
{
    int64_t block = k->spec.act_block;
    return block && block < UNIT ? UNIT / block : 1;
}

/* The activation's scales belong to the main loop: a stage holds those of its blocks of K. */
static inline bool scales_act(const CudaKernel *k)
{
    return k->spec.act_block > 0;
}

static inline int64_t units(const CudaKernel *k)
{
    return cuda_ceil_div(k->spec.k, UNIT);
}

static inline int64_t num_tiles(
    const CudaKernel *k) /* of all blocks of clusters, which lie along N */
{
    int cluster = k->mixed.cluster;
    return cuda_ceil_div(cuda_rows(k), k->mixed.bm) * cluster *
           cuda_ceil_div(k->packed.rows, (int64_t)columns(k) * cluster);
}

/* Rounds in which each block has a group of rows of w for each warpgroup but its last; .. */
static inline int64_t rest_rounds(const CudaKernel *k)
{
    return k->packed.rows / CUDA_GROUP_ROWS / ((k->mixed.teams - 1) * k->gpu->processors);
}

/* mixed_time.c: microseconds that a launch is predicted to take. */
double cuda_mixed_us(const CudaKernel *k, const CudaGeometry *g);

#endif
