/* Rows of tiles on the device: what the statements of a tile program (numerics/tile.h) call.
 *
 * In epilogues a warp (kT = 32) holds a row of the block's tile; in row kernels kT is chosen so
 * that a thread holds few values, and with it the fixed order of sums (numerics/rows.h), so that
 * sums have the bits that the CPU gets. */
#ifndef SINTER_CUDA_ROW
#define SINTER_CUDA_ROW

#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/quantise.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/told.cuh"

/* dst <- src rounded to a format of 16 bits, as the hardware rounds: num_round_f16 and _bf16, up to
 * the bits of a NaN. */
template <int FMT, class S, class X>
__device__ __forceinline__ void row_round(Loaded<FMT, S> &dst, const X &src)
{
    dst.set(src);
}

#endif
