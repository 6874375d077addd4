/* A prologue that the blocks of a product run together: rows of a, each made once by whichever
 * block is next, by all of its threads, in a's own memory.
 *
 * Blocks wait only for rows that running blocks make without waiting for anybody: however few of
 * the grid run at once, all get done. Three counters, zero before and after: rows given out, rows
 * done, blocks that know that all are done. The first and the last wrap, the last block to know
 * clears the second. */
#ifndef SINTER_CUDA_GEMM_ROWS
#define SINTER_CUDA_GEMM_ROWS

#include "kernels/cuda/prelude.cuh"

struct GivenA { /* no prologue */
    static constexpr bool kMakes = false;
};

/* Prologue::make(p, row): block-wide. m: rows; blocks: of the grid, that all call this. */
template <class Prologue, class Params>
__device__ __forceinline__ void make_rows(const Params &p, uint32_t *counter, uint32_t m,
                                          uint32_t blocks)
{
    __shared__ uint32_t given;
    while (true) {
        if (threadIdx.x == 0)
            given = atomicInc(counter, m + blocks - 1);
        __syncthreads();
        uint32_t row = given;
        if (row >= m)
            break;
        Prologue::make(p, row);
        __threadfence();
        __syncthreads(); /* the row is there, and `given` and the scratch are free */
        if (threadIdx.x == 0)
            atomicAdd(counter + 1, 1u);
    }
    if (threadIdx.x == 0) {
        while (load_acquire(counter + 1) < m)
            __nanosleep(40);
        if (atomicInc(counter + 2, blocks - 1) == blocks - 1)
            atomicExch(counter + 1, 0u);
    }
    __syncthreads();
    __threadfence();
}

#endif
