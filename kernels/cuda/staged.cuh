/* Sums of a tile in shared memory, row after row of the activation, as epilogues find them that
 * work on fragments: four lanes have eight neighbours each of every 32 columns of a row, and of the
 * row eight further. */
#ifndef SINTER_CUDA_STAGED
#define SINTER_CUDA_STAGED

#include "kernels/cuda/columns.cuh"

/* Where column `col` of row m lies in the row if pairs of every eight change places: where a warp
 * stores two of eight rows of w by eight of a at once, and later reads rows of a, no two lanes then
 * meet in a bank. */
__device__ __forceinline__ int staged_column(int m, int col)
{
    return col ^ m / 2 % 4 * 2;
}

/* COLS columns of each part side by side, PITCH words from row to row. PAIRS: in the places of
 * staged_column. */
template <class Sum, int COLS, int PITCH, bool PAIRS> struct StagedFragments {
    const char *row; /* the thread's, lane / 4 of eight */
    int from;

    __device__ __forceinline__ StagedFragments part(int part) const
    {
        return {row, from + part * COLS};
    }
    /* .. `columns` further on, and of the lower row. */
    __device__ __forceinline__ StagedFragments further(int columns, bool lower) const
    {
        return {row + lower * (8 * PITCH * 4), from + columns};
    }
};
template <class Sum, int COLS, int PITCH, bool PAIRS, class S>
__device__ __forceinline__ void row_acc(const Row<S> &row,
                                        const StagedFragments<Sum, COLS, PITCH, PAIRS> &staged,
                                        Sum (&dst)[S::kE])
{
    static_assert(S::kT == 4 && S::kV == 8, "as the fragments lie");
    const int m = threadIdx.x % 32 / 4;
#pragma unroll
    for (int e = 0; e < S::kE; e += PAIRS ? 2 : 4) {
        const int in = e % 8, at = staged.from + e / 8 * 32 + row.lane * 8;
        if constexpr (PAIRS) {
            const Bytes8 v = *(const Bytes8 *)(staged.row + (at + staged_column(m, in)) * 4);
            dst[e] = *(const Sum *)&v.x, dst[e + 1] = *(const Sum *)&v.y;
        } else {
            const Bytes16 v = *(const Bytes16 *)(staged.row + (at + in) * 4);
            dst[e] = *(const Sum *)&v.x, dst[e + 1] = *(const Sum *)&v.y;
            dst[e + 2] = *(const Sum *)&v.z, dst[e + 3] = *(const Sum *)&v.w;
        }
    }
}

#endif
