/* k_ad93b5844a1296dd */
#include "kernels/cuda/tile.cuh"
#include "kernels/cuda/row.cuh"
struct Cfg {
    static constexpr int kT = 32;
    static constexpr int kV = 8;
    static constexpr int kE = 8;
    static constexpr Edge kEdge = EDGE_RUNS;
    static constexpr int kGroups = 1;
    static constexpr bool kVaries = false;
    static constexpr int kCols = 8;
    static constexpr int kTileCols = 8;
    static constexpr int kLastCols = 8;
    static constexpr int kSweeps = 0;
    static constexpr bool kBackwards = false;
    static constexpr int kScratchWords = 4;
    static constexpr bool kPersistent = false;
    static constexpr bool kEarly = true;
};
struct Params {
    Operand op[2];
    Ahead ahead;
    int64_t dim[1];
};
struct Program {
    template <class S, class Sums> static __device__ __forceinline__ void steps(
        const Params &p, const Operand &a, const Row<S> &row, int64_t m, const Sums &acc)
    {
        Loaded<FMT_F32, S> v0;
        row_load<ACCESS_ALIGNED>(row, (char *)p.op[1].data + (m) * 32LL, v0);
        float v1[S::kE];
        row_softmax(row, v1, v0);
        row_store<FMT_F32, ACCESS_ALIGNED>(row, (char *)p.op[0].data + (m) * 32LL, v1);
    }
    template <class S> static __device__ __forceinline__ void row(
        const Params &p, const Row<S> &row, int64_t m, Found &)
    {
        steps(p, p.op[0], row, m, (const char *)0);
    }
    static __device__ __forceinline__ void end(
        const Params &p, const Found &found, int32_t *scratch)
    {
    }
};
extern "C" __global__ void __launch_bounds__(32) k_ad93b5844a1296dd(const __grid_constant__ Params p)
{
    tile_rows<Cfg, Program>(p);
}

/* k_061ab919e10bc92b */
#include "kernels/cuda/move.cuh"
struct Cfg {
    static constexpr int kRank = 3;
    static constexpr bool kVaries = true;
    static constexpr int kElementBytes = 4;
    static constexpr int64_t kSrcAt = 0, kDstAt = 0;
    static __device__ __forceinline__ int64_t dim(int d) { return d == 0 ? 4LL : d == 1 ? 8LL : 8LL; }
    static __device__ __forceinline__ int64_t src(int d) { return d == 0 ? 8LL : d == 1 ? 32LL : 1LL; }
    static __device__ __forceinline__ int64_t dst(int d) { return d == 0 ? 64LL : d == 1 ? 8LL : 1LL; }
};
struct Params {
    Operand op[2];
    int64_t dim[21];
};
extern "C" __global__ void __launch_bounds__(256) k_061ab919e10bc92b(const __grid_constant__ Params p)
{
    move_box<Cfg>(p);
}

