/* While a launch of few rows ends, the memory idles: its own weight is on its way, and the next
 * launch's blocks, which take a processor's whole registers, begin to copy theirs once they have
 * one. Each block therefore has L2 fetch a share of what the next launch reads first of its weight,
 * which depends on no launch. */
#ifndef SINTER_CUDA_AHEAD
#define SINTER_CUDA_AHEAD

#include "kernels/cuda/prelude.cuh"

/* Runs of a packed weight, as the runtime passes them: so many, of so many bytes (multiples of 16)
 * each, `stride` bytes apart. None: there is nothing to fetch. alone: each block of the next launch
 * has a processor of its own. */
struct Ahead {
    const char *data;
    int64_t stride;
    int32_t runs, bytes;
    int64_t alone;
};

/* The share of block `block`, by one thread (PTX ISA, "cp.async.bulk.prefetch"). */
__device__ __forceinline__ void fetch_share(const Ahead &ahead, int block)
{
#if __CUDA_ARCH__ >= 900
    constexpr int kPiece = 16384;
    const int pieces = (ahead.bytes + kPiece - 1) / kPiece; /* of a run */
#pragma unroll 1
    for (int i = block; i < ahead.runs * pieces; i += gridDim.x) {
        const int from = i % pieces * kPiece, left = ahead.bytes - from;
        asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(
                         ahead.data + i / pieces * ahead.stride + from),
                     "r"(left < kPiece ? left : kPiece)
                     : "memory");
    }
#endif
}
/* .. once its own copies have arrived, by a thread that has few registers: nothing is read before
 * the loops that stand before this, whose registers it would take. */
__device__ __forceinline__ void fetch_ahead(const Ahead &ahead)
{
    const Ahead *of = &ahead;
    int block;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(block), "+l"(of));
    fetch_share(*of, block);
}

#endif
