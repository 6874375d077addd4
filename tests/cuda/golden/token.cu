/* k_97492c29aa92f77c */
#include "kernels/cuda/stream.cuh"
#include "kernels/cuda/row.cuh"
struct Cfg {
    static constexpr int kA = FMT_I8, kW = FMT_I8, kHome = HOME_I8;
    static constexpr int kK = 64;
    static constexpr bool kApart = false;
    static constexpr int kN = 64;
    static constexpr int kParts = 1;
    static constexpr int kAPitch = 160;
    static constexpr int kOperandA = 6;
    static constexpr int kOperandW = 7;
    static constexpr int kOperandSplit = 0;
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
    static constexpr int kNeighbours = 8;
    static constexpr bool kPanels = false;
    static constexpr int kNBlocks = 2;
    static constexpr int kSplitK = 8;
    static constexpr int kNWarps = 1;
    static constexpr int kStages = 4;
    static constexpr int kBuffers = 2;
    static constexpr int kRows = 4;
    static constexpr bool kLocalA = true;
    static constexpr bool kCopiesA = false;
    static constexpr int kHeld = 0;
    static constexpr int kGivenPitch = 64;
    static constexpr int kGather = 1;
    static constexpr bool kDecoupled = false;
    static constexpr bool kAsWgmma = false;
    static constexpr int kSmemBytes = 70656;
    static constexpr int kCols = 16;
};
struct Params {
    Operand op[8];
    Ahead ahead;
    int64_t dim[1];
};
struct Prologue {
    template <class S, class Sums> static __device__ __forceinline__ void steps(
        const Params &p, const Operand &a, const Row<S> &row, int64_t m, const Sums &acc)
    {
        Loaded<FMT_BF16, S> v0;
        row_load<ACCESS_ALIGNED>(row, (char *)p.op[0].data + (m) * 128LL, v0);
        Loaded<FMT_BF16, S> v1;
        row_load<ACCESS_ALIGNED>(row, (char *)p.op[1].data + (0) * 128LL, v1);
        float v2[S::kE];
        row_rmsnorm(row, v2, v0, v1, num_float(0x3727c5acu), row.end);
        int32_t sum3 = row_quantise_token<QuantOf<FMT_I8, FMT_F32, false, false, 1, 0, 1>>(row, a, m, 160LL, v2);
    }
    static __device__ __forceinline__ Operand run(const Params &p, char *local)
    {
        typedef RowShape<256, 4, 4, EDGE_RUNS> S;
        static_assert(S::kT == StreamShape<Cfg>::kThreads && S::kT * S::kV == 1024,
                      "the block's threads are those of a row");
        __shared__ __align__(16) int32_t scratch[1024];
        Operand a = p.op[Cfg::kOperandA];
        a.data = local;
        a.scale = (float *)(local + 640);
        a.zero = (int32_t *)(local + 656);
        const Row<S> row = {(int)threadIdx.x, 0, Cfg::kK, scratch};
        wait_for_producer();
        for (int64_t m = 0; m < p.dim[0]; m++)
            steps(p, a, row, m, (const char *)0);
        __syncthreads();
        return a;
    }
};
struct Epilogue {
    template <class S, class Sums> static __device__ __forceinline__ void segment0(
        const Params &p, const Operand &a, const Row<S> &row, int64_t m, const Sums &acc)
    {
        Loaded<FMT_BF16, S> v0;
        row_load<ACCESS_ALIGNED>(row, (char *)p.op[0].data + (m) * 128LL, v0);
        int32_t v1[S::kE];
        row_acc(row, acc.part(0), v1);
        float v2[S::kE];
        SINTER_EACH(e) v2[e] = (float)(v1[e]);
        float v3;
        v3 = Plain<FMT_F32>::load(*((const Plain<FMT_F32>::Element *)((char *)a.scale + (m) * 4LL)));
        float v4[S::kE];
        SINTER_EACH(e) { float a = v2[e], b = v3; (void)b; v4[e] = a * b; }
        Loaded<FMT_F32, S> v5;
        row_load<ACCESS_ALIGNED>(row, (char *)p.op[4].data + (0) * 256LL, v5);
        float v6[S::kE];
        SINTER_EACH(e) { float a = v4[e], b = v5[e]; (void)b; v6[e] = a * b; }
        float v7[S::kE];
        SINTER_EACH(e) { float a = v6[e], b = v6[e]; (void)b; v7[e] = num_silu(a); }
        float v8[S::kE];
        SINTER_EACH(e) { float a = v0[e], b = v7[e]; (void)b; v8[e] = a + b; }
        row_store<FMT_BF16, ACCESS_ALIGNED>(row, (char *)p.op[5].data + (m) * 128LL, v8);
    }
    template <class S> static __device__ __forceinline__ void fetch0(
        const Params &p, const Row<S> &row, int64_t m)
    {
        row_fetch<2>(row, (char *)p.op[0].data + (m) * 128LL);
        row_fetch<4>(row, (char *)p.op[4].data + (0) * 256LL);
    }
    static __device__ __forceinline__ void fetch(
        const Params &p, int64_t m, int n0, int lane)
    {
        {
            const int last = n0 + 16;
            if (n0 < 64 && last > 0) {
                const int from = n0 > 0 ? n0 : 0;
                const int to = last < 64 ? last : 64;
                const Row<RowShape<32, 1, 1>> row = {lane, from - 0, to - 0};
                fetch0(p, row, m);
            }
        }
    }
    static __device__ __forceinline__ void row(const Params &p, const Operand &a,
        const char *acc, int64_t m, int n0, int lane)
    {
        __shared__ int32_t scratch[8][4];
        const int last = n0 + 16;
        if (n0 < 64 && last > 0) {
            const int from = n0 > 0 ? n0 : 0;
            const int to = last < 64 ? last : 64;
            const Row<RowShape<32, 1, 1, EDGE_RUNS>> row = {lane, from - 0, to - 0, scratch[threadIdx.x / 32]};
            segment0(p, a, row, m, StagedSums<Cfg::kCols>{acc + (from - n0) * 4});
        }
    }
};
extern "C" __global__ void __launch_bounds__(256, 1) k_97492c29aa92f77c(const __grid_constant__ Params p)
{
    stream<Cfg, Prologue, Epilogue>(p);
}

