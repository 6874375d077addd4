/* k_f7bea9540f9c50e1 */
#include "kernels/cuda/tile.cuh"
#include "kernels/cuda/row.cuh"
struct Cfg {
    static constexpr int kT = 256;
    static constexpr int kV = 8;
    static constexpr int kE = 16;
    static constexpr Edge kEdge = EDGE_NONE;
    static constexpr int kGroups = 1;
    static constexpr bool kVaries = false;
    static constexpr int kCols = 4096;
    static constexpr int kTileCols = 4096;
    static constexpr int kLastCols = 4096;
    static constexpr int kSweeps = 0;
    static constexpr bool kBackwards = false;
    static constexpr int kScratchWords = 32;
    static constexpr bool kPersistent = false;
    static constexpr bool kEarly = true;
};
struct Params {
    Operand op[6];
    Ahead ahead;
    int64_t dim[1];
};
struct Program {
    template <class S, class Sums> static __device__ __forceinline__ void steps(
        const Params &p, const Operand &a, const Row<S> &row, int64_t m, const Sums &acc)
    {
        Loaded<FMT_BF16, S> v0;
        row_load<ACCESS_ALIGNED>(row, (char *)p.op[1].data + (m) * 8192LL, v0);
        int32_t sum1 = row_quantise_token<QuantOf<FMT_I8, FMT_F32, false, false, 1, 0, 1>>(row, p.op[2], m, 4096LL, v0);
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
extern "C" __global__ void __launch_bounds__(256) k_f7bea9540f9c50e1(const __grid_constant__ Params p)
{
    tile_rows<Cfg, Program>(p);
}

/* k_473c780143a6da83 */
#include "kernels/cuda/gemm_mma.cuh"
#include "kernels/cuda/row.cuh"
struct Cfg {
    static constexpr int kA = FMT_I8, kW = FMT_I8, kHome = HOME_I8;
    static constexpr int kK = 4096;
    static constexpr bool kApart = false;
    static constexpr int kN = 128;
    static constexpr int kParts = 1;
    static constexpr int kAPitch = 4096;
    static constexpr int kOperandA = 5;
    static constexpr int kOperandW = 6;
    static constexpr int kOperandSplit = 7;
    static constexpr bool kMainloop = false;
    static constexpr int kCodebookPieces = 2;
    static constexpr int kBlockK = 0;
    static constexpr int kABlockRows = 1;
    static constexpr int kABlockK = 0;
    static constexpr bool kAScale = false;
    static constexpr bool kAZero = false;
    static constexpr int kWBits = 8;
    static constexpr bool kWBinary = false;
    static constexpr int kRecord = 8192;
    static constexpr int kScaleAt = 8192;
    static constexpr int kZeroAt = 8192;
    static constexpr int kSubs = 1;
    static constexpr int kWBlockK = 0;
    static constexpr int kScaleFmt = FMT_F32;
    static constexpr int64_t kTableAt = 0;
    static constexpr bool kWScales = false;
    static constexpr bool kWZero = false;
    static constexpr bool kWFold = false;
    static constexpr bool kAFold = false;
    static constexpr bool kExact = true;
    static constexpr int kBM = 32;
    static constexpr int kBN = 64;
    static constexpr int kBK = 128;
    static constexpr int kCols = 64;
    static constexpr int kWarpsM = 1;
    static constexpr int kWarpsN = 2;
    static constexpr int kStages = 4;
    static constexpr int kSplitK = 5;
    static constexpr int kSplitSums = 4096;
};
struct Params {
    Operand op[8];
    int64_t dim[1];
};
struct Epilogue {
    template <class S, class Sums> static __device__ __forceinline__ void segment0(
        const Params &p, const Operand &a, const Row<S> &row, int64_t m, const Sums &acc)
    {
        int32_t v0[S::kE];
        row_acc(row, acc.part(0), v0);
        float v1[S::kE];
        SINTER_EACH(e) v1[e] = (float)(v0[e]);
        float v2;
        v2 = Plain<FMT_F32>::load(*((const Plain<FMT_F32>::Element *)((char *)p.op[2].data + (m) * 4LL)));
        float v3[S::kE];
        SINTER_EACH(e) { float a = v1[e], b = v2; (void)b; v3[e] = a * b; }
        Loaded<FMT_F32, S> v4;
        row_load<ACCESS_ALIGNED>(row, (char *)p.op[3].data + (0) * 512LL, v4);
        float v5[S::kE];
        SINTER_EACH(e) { float a = v3[e], b = v4[e]; (void)b; v5[e] = a * b; }
        row_store<FMT_BF16, ACCESS_ALIGNED>(row, (char *)p.op[4].data + (m) * 256LL, v5);
    }
    static __device__ __forceinline__ void row(const Params &p, const Operand &a,
        const char *acc, int64_t m, int n0, int lane)
    {
        __shared__ int32_t scratch[2][4];
        const int last = n0 + 64;
        if (n0 < 128 && last > 0) {
            const int from = n0 > 0 ? n0 : 0;
            const int to = last < 128 ? last : 128;
            const Row<RowShape<32, 2, 2, EDGE_NONE>> row = {lane, from - 0, to - 0, scratch[threadIdx.x / 32]};
            segment0(p, a, row, m, StagedSums<Cfg::kCols>{acc + (from - n0) * 4});
        }
    }
};
extern "C" __global__ void __launch_bounds__(64) k_473c780143a6da83(const __grid_constant__ Params p)
{
    gemm_mma<Cfg, Epilogue, GivenA>(p);
}

