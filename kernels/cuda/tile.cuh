/* Row kernels: tile programs over rows of tensors (norms, softmax, elementwise chains, quantise).
 *
 * kT threads hold a row or, where no step needs whole rows, a tile of kTileCols of its kCols
 * columns; a block holds kGroups such rows. With kSweeps a row is longer than the threads hold:
 * they go over it in such tiles, several times; in the last sweep, which stores, in tiles of
 * kLastCols. Cfg: kT kV kE kEdge kGroups kVaries kCols kTileCols kLastCols kSweeps kScratchWords
 * kPersistent kBackwards: the last rows first, which an earlier kernel left in the cache. kEarly:
 * the next launch may begin before this one has its input. p.dim[0]: rows; p.dim[1], where kVaries:
 * columns, at most kCols. Program::row(p, row, m, found) runs the steps of row m; with kPersistent
 * a block takes row after row, and Program::end(p, found, scratch) stores what it found in all of
 * them.
 */
#ifndef SINTER_CUDA_TILE
#define SINTER_CUDA_TILE

#include "kernels/cuda/ahead.cuh"
#include "kernels/cuda/row.cuh"

/* step(tile) for each tile of COLS columns of the row. */
template <int COLS, class S, class Step>
__device__ __forceinline__ void row_tiles(const Row<S> &row, Step step)
{
#pragma unroll 1
    for (int n0 = 0; n0 < row.end; n0 += COLS) {
        const int end = COLS < row.end - n0 ? n0 + COLS : row.end;
        const Row<S> tile = {row.lane, n0, end, row.scratch};
        step(tile);
    }
}

/* Of kCounted groups of equally many rows the first are computed, so many as kOperandEnds says. */
template <class Cfg, class Params>
__device__ __forceinline__ auto is_computed(const Params &p, int64_t m, int)
    -> decltype(Cfg::kCounted > 0)
{
    const int64_t each = p.dim[0] / Cfg::kCounted;
    return m % each < ((const int32_t *)p.op[Cfg::kOperandEnds].data)[m / each];
}
template <class Cfg, class Params>
__device__ __forceinline__ bool is_computed(const Params &, int64_t, long)
{
    return true;
}

template <class Cfg, class Program, class Params>
__device__ __forceinline__ void tile_rows(const Params &p)
{
    typedef RowShape<Cfg::kT, Cfg::kV, Cfg::kE, Cfg::kEdge> S;
    constexpr int kUnitCols = Cfg::kSweeps ? Cfg::kCols : Cfg::kTileCols;
    constexpr int kTiles = (Cfg::kCols + kUnitCols - 1) / kUnitCols;
    static_assert(Cfg::kTileCols <= S::kCols, "the threads hold the tile");
    static_assert(Cfg::kGroups == 1 || Cfg::kT == 32, "only warps share a block");
    __shared__ __align__(16) int32_t scratch[Cfg::kGroups][Cfg::kScratchWords];
    const int group = threadIdx.x / Cfg::kT;
    const int64_t units = p.dim[0] * kTiles;
    int64_t unit = (int64_t)blockIdx.x * Cfg::kGroups + group;
    int cols = Cfg::kCols;
    if constexpr (Cfg::kVaries)
        cols = (int)p.dim[1];
    Found found = {};
    /* The next launch's blocks, and weights, come while this one waits; but not where several of
     * them would come to the first processors that are free. */
    const bool early = Cfg::kEarly && p.ahead.alone;
    if (early)
        let_consumer_start();
    wait_for_producer();
    if (!early)
        let_consumer_start();
    for (; unit < units; unit += (int64_t)gridDim.x * Cfg::kGroups) {
        const int64_t m = Cfg::kBackwards ? p.dim[0] - 1 - unit / kTiles : unit / kTiles;
        const int n0 = (int)(unit % kTiles) * kUnitCols;
        const int end = kUnitCols < cols - n0 ? n0 + kUnitCols : cols;
        const Row<S> row = {(int)(threadIdx.x % Cfg::kT), n0, end, scratch[group]};
        if ((!Cfg::kVaries || n0 < end) && is_computed<Cfg>(p, m, 0))
            Program::row(p, row, m, found);
        if (!Cfg::kPersistent)
            break;
    }
    Program::end(p, found, scratch[0]);
}

#endif
