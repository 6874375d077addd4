/* k_11c3aec0cc304480 */
#include "kernels/cuda/gemm_mma.cuh"
#include "kernels/cuda/row.cuh"
struct Cfg {
    static constexpr int kA = FMT_I8, kW = FMT_I8, kHome = HOME_I8;
    static constexpr int kK = 1024;
    static constexpr bool kApart = false;
    static constexpr int kN = 4096;
    static constexpr int kParts = 1;
    static constexpr int kAPitch = 1024;
    static constexpr int kOperandA = 6;
    static constexpr int kOperandW = 7;
    static constexpr int kOperandSplit = 8;
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
    static constexpr int kBN = 128;
    static constexpr int kBK = 128;
    static constexpr int kCols = 128;
    static constexpr int kWarpsM = 1;
    static constexpr int kWarpsN = 4;
    static constexpr int kStages = 4;
    static constexpr int kSplitK = 1;
    static constexpr int kSplitSums = 4096;
    static constexpr int kRowCounters = 1021;
};
struct Params {
    Operand op[9];
    int64_t dim[1];
};
struct Prologue {
    static constexpr bool kMakes = true;
    template <class S, class Sums> static __device__ __forceinline__ void steps(
        const Params &p, const Operand &a, const Row<S> &row, int64_t m, const Sums &acc)
    {
        Loaded<FMT_BF16, S> v0;
        row_load<ACCESS_ALIGNED>(row, (char *)p.op[0].data + (m) * 2048LL, v0);
        Loaded<FMT_BF16, S> v1;
        row_load<ACCESS_ALIGNED>(row, (char *)p.op[1].data + (0) * 2048LL, v1);
        float v2[S::kE];
        row_rmsnorm(row, v2, v0, v1, num_float(0x3727c5acu), row.end);
        int32_t sum3 = row_quantise_token<QuantOf<FMT_I8, FMT_F32, false, false, 1, 0, 1>>(row, p.op[2], m, 1024LL, v2);
    }
    static __device__ __forceinline__ void make(const Params &p, int64_t m)
    {
        typedef RowShape<128, 8, 8, EDGE_NONE> S;
        __shared__ __align__(16) int32_t scratch[1024];
        const Row<S> row = {(int)threadIdx.x, 0, Cfg::kK, scratch};
        steps(p, p.op[Cfg::kOperandA], row, m, (const char *)0);
    }
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
        v2 = Plain<FMT_F32>::load(*((const Plain<FMT_F32>::Element *)((char *)p.op[3].data + (m) * 4LL)));
        float v3[S::kE];
        SINTER_EACH(e) { float a = v1[e], b = v2; (void)b; v3[e] = a * b; }
        Loaded<FMT_F32, S> v4;
        row_load<ACCESS_ALIGNED>(row, (char *)p.op[4].data + (0) * 16384LL, v4);
        float v5[S::kE];
        SINTER_EACH(e) { float a = v3[e], b = v4[e]; (void)b; v5[e] = a * b; }
        row_store<FMT_BF16, ACCESS_ALIGNED>(row, (char *)p.op[5].data + (m) * 8192LL, v5);
    }
    static __device__ __forceinline__ void row(const Params &p, const Operand &a,
        const char *acc, int64_t m, int n0, int lane)
    {
        __shared__ int32_t scratch[4][4];
        const int last = n0 + 128;
        if (n0 < 4096 && last > 0) {
            const int from = n0 > 0 ? n0 : 0;
            const int to = last < 4096 ? last : 4096;
            const Row<RowShape<32, 4, 4, EDGE_NONE>> row = {lane, from - 0, to - 0, scratch[threadIdx.x / 32]};
            segment0(p, a, row, m, StagedSums<Cfg::kCols>{acc + (from - n0) * 4});
        }
    }
};
extern "C" __global__ void __launch_bounds__(128) k_11c3aec0cc304480(const __grid_constant__ Params p)
{
    gemm_mma<Cfg, Epilogue, Prologue>(p);
}

