/* How stages of a tiled product on tensor cores come to shared memory (gemm_mma.cuh). */
#ifndef SINTER_CUDA_GEMM_LOAD
#define SINTER_CUDA_GEMM_LOAD

#include "kernels/cuda/gemm_shape.cuh"

/* What a thread copies of every stage: the same chunk of a row every kStride rows, of a block
 * of 8 columns every kStride blocks. */
template <class Cfg> struct GemmLoader {
    typedef GemmShape<Cfg> S;
    typedef Record<Cfg> R;
    static constexpr int kChunksA = S::kRowBytes / 16, kStrideA = S::kThreads / kChunksA;
    static constexpr int kChunksW = S::kRun / 16;
    /* of 3 bits, as of 4: whole blocks a power of two apart; some threads copy none */
    static constexpr int kStrideW = S::kThreads / (Cfg::kWBits == 3 ? S::kRun / 12 : kChunksW);
    static constexpr int kTimesA = (Cfg::kBM + kStrideA - 1) / kStrideA;
    static constexpr int kTimesW = (Cfg::kBN / 8 + kStrideW - 1) / kStrideW;
    static_assert(kStrideA % 4 == 0 && kStrideW > 0, "threads copy whole rows");
    const char *a, *w;
    uint32_t to_a, to_w; /* in a stage */
    int rows, blocks;    /* that are there, from this thread's first on */
    int column;          /* in bytes, of a's chunk */
    int block0;          /* of 8 columns: this thread's first */
    const char *params;  /* of the tile's records */
    int groups;          /* of which there are parameters */
    int tile_k;

    /* Chunk of 16 bytes where logical chunk c of a row lies: spreads the rows that one access
     * phase reads over all banks. */
    static __device__ __forceinline__ int swizzle(int row, int c)
    {
        if (S::kMatrices)
            return c ^ (row & 7);
        if (S::kABits == 32)
            return c ^ (row & 1);
        if (S::kPanelBytes == 128)
            return S::kABits == 16 ? c ^ ((row & 1) << 2) : c ^ ((row & 3) << 1);
        return S::kABits == 16 ? c : c ^ (row & 2);
    }

    /* Where the codes of a block of 8 columns begin in the weight, or in its first tile of K. */
    static __device__ __forceinline__ constexpr int64_t block_at(int block)
    {
        return block / 8 * R::kGroup + block % 8 * R::kRun;
    }

    static __device__ __forceinline__ int swizzle_w(int c) /* of a run of w */
    {
        return S::kMatrices ? c ^ (c >> 3 & 3) : c;
    }

    __device__ __forceinline__ GemmLoader(const char *all_a, const char *all_w, int64_t m0,
                                          int64_t m, int n0, int first)
    {
        tile_k = first;
        int row = threadIdx.x / kChunksA, c = threadIdx.x % kChunksA;
        int block = threadIdx.x / kChunksW, cw = threadIdx.x % kChunksW;
        column = tile_k * S::kRowBytes + c * 16;
        a = all_a + (m0 + row) * (int64_t)Cfg::kAPitch + column;
        block0 = n0 / 8 + block;
        const char *tile = all_w + (int64_t)(tile_k * Cfg::kBK / 128) * Cfg::kRecord;
        params = tile + n0 / 64 * R::kGroup + Cfg::kScaleAt;
        groups = (Cfg::kN + 63) / 64 - n0 / 64;
        w = tile + block_at(Cfg::kBN % 64 == 0 ? block0 : 0) +
            tile_k * Cfg::kBK % 128 / Cfg::kBK * S::kRun + cw * 16;
        int panel = c * 16 / S::kPanelBytes;
        to_a = panel * (Cfg::kBM * S::kPanelBytes) + row * S::kPanelBytes +
               swizzle(row, c % (S::kPanelBytes / 16)) * 16;
        to_w = S::kABytes + block * S::kRun + swizzle_w(cw) * 16;
        int left = Cfg::kBM - row;
        rows = m - m0 - row < left ? (int)(m - m0 - row) : left;
        left = Cfg::kBN / 8 - block;
        blocks = Cfg::kN / 8 - n0 / 8 - block;
        blocks = blocks < left ? blocks : left;
    }
    template <int I> __device__ __forceinline__ void copy_a(uint32_t to, int num, int bytes) const
    {
        if constexpr (I < kTimesA) {
            if (Cfg::kBM % kStrideA == 0 || I * kStrideA + (int)threadIdx.x / kChunksA < Cfg::kBM)
                copy_async16_at<I * kStrideA * S::kPanelBytes, I * kStrideA *(int64_t)Cfg::kAPitch>(
                    to, a, I * kStrideA < num ? bytes : 0);
            copy_a<I + 1>(to, num, bytes);
        }
    }
    template <int I> __device__ __forceinline__ void copy_w(uint32_t to) const
    {
        if constexpr (I < kTimesW) {
            const int block = (int)threadIdx.x / kChunksW;
            if ((kChunksW * kStrideW == S::kThreads || block < kStrideW) &&
                (Cfg::kBN / 8 % kStrideW == 0 || I * kStrideW + block < Cfg::kBN / 8)) {
                int bytes = Cfg::kN % Cfg::kBN == 0 || I * kStrideW < blocks ? 16 : 0;
                if constexpr (Cfg::kBN % 64 == 0)
                    copy_async16_at<I * kStrideW * S::kRun, block_at(I * kStrideW)>(to, w, bytes);
                else
                    copy_async16(to + I * kStrideW * S::kRun,
                                 w + (bytes ? block_at(block0 + I * kStrideW) : 0), bytes);
            }
            copy_w<I + 1>(to);
        }
    }
    __device__ __forceinline__ void load_a(uint32_t stage)
    {
        constexpr int kLine = Cfg::kK * (S::kABits / 8); /* bytes of a row */
        int bytes = kLine % S::kRowBytes == 0 || column + 16 <= kLine ? 16
                    : column < kLine                                  ? kLine - column
                                                                      : 0;
        copy_a<0>(stage + to_a, bytes ? rows : 0, bytes);
        a += S::kRowBytes;
        column += S::kRowBytes;
    }
    __device__ __forceinline__ void load_w(uint32_t stage)
    {
        copy_w<0>(stage + to_w);
        if constexpr (S::kParams > 0)
            copy_params(stage + S::kParamsAt);
        constexpr int kStages = 128 / Cfg::kBK; /* of a record */
        const bool whole = tile_k % kStages == kStages - 1;
        w += whole ? Cfg::kRecord - (kStages - 1) * S::kRun : S::kRun;
        params += whole ? Cfg::kRecord : 0;
        tile_k++;
    }
    __device__ __forceinline__ void copy_params(uint32_t to) const
    {
        constexpr int kEach = R::kParams / 16;
#pragma unroll
        for (int i = 0; i < (S::kGroups * kEach + S::kThreads - 1) / S::kThreads; i++) {
            int c = threadIdx.x + i * S::kThreads, group = c / kEach;
            if (c < S::kGroups * kEach)
                copy_async16(to + c * 16,
                             params + (group < groups ? group : 0) * R::kGroup + c % kEach * 16,
                             16);
        }
    }
};

#endif
