/* k_c8b6bd3ceb67e4c3 */
#include "kernels/cuda/gemm_mma.cuh"
#include "kernels/cuda/row.cuh"
struct Cfg {
    static constexpr int kA = FMT_BF16, kW = FMT_I4, kHome = HOME_BF16;
    static constexpr int kK = 64;
    static constexpr bool kApart = false;
    static constexpr int kN = 64;
    static constexpr int kParts = 1;
    static constexpr int kAPitch = 128;
    static constexpr int kOperandA = 1;
    static constexpr int kOperandW = 2;
    static constexpr int kOperandSplit = 0;
    static constexpr bool kMainloop = true;
    static constexpr int kCodebookPieces = 2;
    static constexpr int kBlockK = 32;
    static constexpr int kABlockRows = 1;
    static constexpr int kABlockK = 0;
    static constexpr bool kAScale = false;
    static constexpr bool kAZero = false;
    static constexpr int kWBits = 4;
    static constexpr bool kWBinary = false;
    static constexpr int kRecord = 5248;
    static constexpr int kScaleAt = 4096;
    static constexpr int kZeroAt = 5120;
    static constexpr int kSubs = 4;
    static constexpr int kWBlockK = 32;
    static constexpr int kScaleFmt = FMT_F32;
    static constexpr int64_t kTableAt = 0;
    static constexpr bool kWScales = true;
    static constexpr bool kWZero = true;
    static constexpr bool kWFold = false;
    static constexpr bool kAFold = false;
    static constexpr bool kExact = false;
    static constexpr int kBM = 32;
    static constexpr int kBN = 64;
    static constexpr int kBK = 128;
    static constexpr int kCols = 64;
    static constexpr int kWarpsM = 1;
    static constexpr int kWarpsN = 2;
    static constexpr int kStages = 4;
    static constexpr int kSplitK = 1;
    static constexpr int kSplitSums = 4096;
};
struct Params {
    Operand op[3];
    int64_t dim[1];
};
struct Epilogue {
    template <class S, class Sums> static __device__ __forceinline__ void segment0(
        const Params &p, const Operand &a, const Row<S> &row, int64_t m, const Sums &acc)
    {
        float v0[S::kE];
        row_acc(row, acc.part(0), v0);
        row_store<FMT_BF16, ACCESS_ALIGNED>(row, (char *)p.op[0].data + (m) * 128LL, v0);
    }
    static __device__ __forceinline__ void row(const Params &p, const Operand &a,
        const char *acc, int64_t m, int n0, int lane)
    {
        __shared__ int32_t scratch[2][4];
        const int last = n0 + 64;
        if (n0 < 64 && last > 0) {
            const int from = n0 > 0 ? n0 : 0;
            const int to = last < 64 ? last : 64;
            const Row<RowShape<32, 2, 2, EDGE_NONE>> row = {lane, from - 0, to - 0, scratch[threadIdx.x / 32]};
            segment0(p, a, row, m, StagedSums<Cfg::kCols>{acc + (from - n0) * 4});
        }
    }
};
extern "C" __global__ void __launch_bounds__(64, 1) k_c8b6bd3ceb67e4c3(const __grid_constant__ Params p)
{
    gemm_mma<Cfg, Epilogue, GivenA>(p);
}

