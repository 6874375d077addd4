/* k_e0cf7b17a087a003 */
#include "kernels/cuda/tile.cuh"
#include "kernels/cuda/row.cuh"
struct Cfg {
    static constexpr int kT = 32;
    static constexpr int kV = 8;
    static constexpr int kE = 8;
    static constexpr Edge kEdge = EDGE_RUNS;
    static constexpr int kGroups = 1;
    static constexpr bool kVaries = false;
    static constexpr int kCols = 16;
    static constexpr int kTileCols = 16;
    static constexpr int kLastCols = 16;
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
        Loaded<FMT_F16, S> v0;
        row_load(row, (char *)p.op[1].data + (m) * 50LL, v0);
        row_store<FMT_F16, ACCESS_ALIGNED>(row, (char *)p.op[0].data + (m) * 32LL, v0);
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
extern "C" __global__ void __launch_bounds__(32) k_e0cf7b17a087a003(const __grid_constant__ Params p)
{
    tile_rows<Cfg, Program>(p);
}

/* k_63f8184f5e65fa2b */
#include "kernels/cuda/stream.cuh"
#include "kernels/cuda/row.cuh"
struct Cfg {
    static constexpr int kA = FMT_F16, kW = FMT_F16, kHome = HOME_F16;
    static constexpr int kK = 16;
    static constexpr bool kApart = false;
    static constexpr int kN = 16;
    static constexpr int kParts = 1;
    static constexpr int kAPitch = 320;
    static constexpr int kOperandA = 1;
    static constexpr int kOperandW = 2;
    static constexpr int kOperandSplit = 0;
    static constexpr bool kMainloop = false;
    static constexpr int kCodebookPieces = 2;
    static constexpr int kBlockK = 0;
    static constexpr int kABlockRows = 1;
    static constexpr int kABlockK = 0;
    static constexpr bool kAScale = false;
    static constexpr bool kAZero = false;
    static constexpr int kWBits = 16;
    static constexpr bool kWBinary = false;
    static constexpr int kRecord = 16384;
    static constexpr int kScaleAt = 16384;
    static constexpr int kZeroAt = 16384;
    static constexpr int kSubs = 1;
    static constexpr int kWBlockK = 0;
    static constexpr int kScaleFmt = FMT_F32;
    static constexpr int64_t kTableAt = 0;
    static constexpr bool kWScales = false;
    static constexpr bool kWZero = false;
    static constexpr bool kWFold = false;
    static constexpr bool kAFold = false;
    static constexpr bool kExact = false;
    static constexpr int kNeighbours = 8;
    static constexpr bool kPanels = false;
    static constexpr int kNBlocks = 2;
    static constexpr int kSplitK = 8;
    static constexpr int kNWarps = 1;
    static constexpr int kStages = 2;
    static constexpr int kBuffers = 2;
    static constexpr int kRows = 4;
    static constexpr bool kLocalA = true;
    static constexpr bool kCopiesA = true;
    static constexpr int kHeld = 0;
    static constexpr int kGivenPitch = 32;
    static constexpr int kGather = 1;
    static constexpr bool kDecoupled = false;
    static constexpr bool kAsWgmma = false;
    static constexpr int kSmemBytes = 70784;
    static constexpr int kCols = 16;
};
struct Params {
    Operand op[3];
    Ahead ahead;
    int64_t dim[1];
};
struct Epilogue {
    template <class S, class Sums> static __device__ __forceinline__ void segment0(
        const Params &p, const Operand &a, const Row<S> &row, int64_t m, const Sums &acc)
    {
        float v0[S::kE];
        row_acc(row, acc.part(0), v0);
        row_store<FMT_F16, ACCESS_ALIGNED>(row, (char *)p.op[0].data + (m) * 32LL, v0);
    }
    static __device__ __forceinline__ void fetch(
        const Params &p, int64_t m, int n0, int lane)
    {
    }
    static __device__ __forceinline__ void row(const Params &p, const Operand &a,
        const char *acc, int64_t m, int n0, int lane)
    {
        __shared__ int32_t scratch[8][4];
        const int last = n0 + 16;
        if (n0 < 16 && last > 0) {
            const int from = n0 > 0 ? n0 : 0;
            const int to = last < 16 ? last : 16;
            const Row<RowShape<32, 1, 1, EDGE_RUNS>> row = {lane, from - 0, to - 0, scratch[threadIdx.x / 32]};
            segment0(p, a, row, m, StagedSums<Cfg::kCols>{acc + (from - n0) * 4});
        }
    }
};
extern "C" __global__ void __launch_bounds__(256, 1) k_63f8184f5e65fa2b(const __grid_constant__ Params p)
{
    stream<Cfg, GivenRows<Cfg>, Epilogue>(p);
}

/* k_1536391f6d43596c */
#include "kernels/cuda/tile.cuh"
#include "kernels/cuda/row.cuh"
struct Cfg {
    static constexpr int kT = 32;
    static constexpr int kV = 8;
    static constexpr int kE = 8;
    static constexpr Edge kEdge = EDGE_ANY;
    static constexpr int kGroups = 1;
    static constexpr bool kVaries = false;
    static constexpr int kCols = 9;
    static constexpr int kTileCols = 9;
    static constexpr int kLastCols = 9;
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
        Loaded<FMT_F16, S> v0;
        row_load(row, (char *)p.op[1].data + (m) * 50LL, v0);
        float v1[S::kE];
        SINTER_EACH(e) { float a = v0[e], b = v0[e]; (void)b; v1[e] = num_relu(a); }
        row_store<FMT_F16>(row, (char *)p.op[0].data + (m) * 18LL, v1);
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
extern "C" __global__ void __launch_bounds__(32) k_1536391f6d43596c(const __grid_constant__ Params p)
{
    tile_rows<Cfg, Program>(p);
}

