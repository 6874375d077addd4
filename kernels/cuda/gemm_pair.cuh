/* GEMM of two activations on the tensor cores of any GPU from compute capability 8.0 (mma.sync,
 * cp.async; 7.5 has f16, its bf16 is slow):
 *
 *   c[m, n] = sum over k of a[m, k] * w[n, k], then the fused epilogue on whole tiles.
 *
 * a, w: [M, K] and [N, K] of f16, bf16 or f32, which is multiplied in pieces (format.cuh), rows
 * kAPitch and kWPitch bytes apart. Rows may start anywhere: where they do not at multiples of 16
 * bytes, which is known when the kernel runs, they are copied element by element.
 *
 * A block computes a tile of kBM x kBN by kGroups groups of kWarpsM x kWarpsN warps; kBK of K make
 * a stage. Group g takes stages g, g + kGroups, .. through a ring of kStages of its own; the
 * groups' sums are added in their order. Of each 32 of K lane 4 * g + t of a warp holds columns 8t
 * .. 8t + 7 of row g of either operand, so that the order of K inside 32 is the same for both and
 * nothing is shuffled. Sums of a group are f32, K ascending by 16, kApart by 32, whatever the
 * tile.
 *
 * Cfg: kA (kW is the same) kHome (of f16 HOME_F16, else HOME_BF16) kK kN kBM kBN kBK (128 bytes)
 * kWarpsM kWarpsN kGroups kStages kCols (kBN) kAPitch kWPitch kOperandA kOperandW kApart kVaries
 * kSmemBytes. p.dim[0]: rows of a; where kVaries, p.dim[1] to [4]: K, N and the bytes from row to
 * row of a and of w, K and N at most kK and kN. */
#ifndef SINTER_CUDA_GEMM_PAIR
#define SINTER_CUDA_GEMM_PAIR

#include "kernels/cuda/format.cuh"
#include "kernels/cuda/mma.cuh"

template <class Cfg> struct PairShape {
    static constexpr int kWarps = Cfg::kWarpsM * Cfg::kWarpsN, kThreads = 32 * kWarps; /* a group */
    static constexpr int kMFrags = Cfg::kBM / Cfg::kWarpsM / 16;
    static constexpr int kNFrags = Cfg::kBN / Cfg::kWarpsN / 8;
    static constexpr int kPieces = Pieces<Cfg::kA, Cfg::kHome>::kNum;
    static constexpr int kBytes = Bits<Cfg::kA>::kBits / 8; /* of an element */
    static constexpr int kWords = 2 * kBytes;               /* of eight */
    static constexpr int kTilesN = (Cfg::kN + Cfg::kBN - 1) / Cfg::kBN;
    static constexpr int kABytes = Cfg::kBM * 128, kStageBytes = kABytes + Cfg::kBN * 128;
    /* Words: four rows' pairs fall into all banks. */
    static constexpr int kTilePitch = Cfg::kBN + 8, kTileWords = Cfg::kBM * kTilePitch;
    static_assert(Cfg::kBM % (16 * Cfg::kWarpsM) == 0 && Cfg::kBN % (8 * Cfg::kWarpsN) == 0,
                  "warps compute whole fragments");
    static_assert(Cfg::kBK * kBytes == 128 && Cfg::kA == Cfg::kW, "rows of a stage");
    static_assert(kStageBytes * Cfg::kStages * Cfg::kGroups <= Cfg::kSmemBytes &&
                      kTileWords * 4 * Cfg::kGroups <= Cfg::kSmemBytes,
                  "the shared memory that the launch asks for");
};

/* ROWS rows of one operand: how they come to a stage, and the eight elements that a lane reads. */
template <int ROWS, class Cfg> struct PairSide {
    typedef PairShape<Cfg> S;
    static constexpr int kBytes = S::kBytes;
    const char *data; /* of the tile's first row */
    int64_t pitch;
    int rows, columns; /* that are there */
    bool aligned;

    __device__ __forceinline__ PairSide(const void *all, int64_t row_pitch, int64_t first,
                                        int64_t num_rows, int k)
    {
        pitch = row_pitch;
        data = (const char *)all + first * pitch;
        rows = num_rows - first < ROWS ? (int)(num_rows - first) : ROWS;
        columns = k;
        aligned = (((uint64_t)all | (uint64_t)pitch) & 15) == 0;
    }
    /* Chunk of 16 bytes where chunk c of a row lies: what 8 lanes read falls into all banks. */
    static __device__ __forceinline__ int place(int row, int c)
    {
        return kBytes == 4 ? c ^ (row & 1) : c ^ ((row & 1) << 2);
    }
    /* The elements of `bytes` bytes, one by one, then zeros. */
    static __device__ __forceinline__ Bytes16 gather(const char *from, int bytes)
    {
        uint32_t word[4] = {0, 0, 0, 0};
#pragma unroll
        for (int i = 0; i < 16 / kBytes; i++) {
            if (i * kBytes >= bytes)
                break;
            if constexpr (kBytes == 4)
                word[i] = ((const uint32_t *)from)[i];
            else
                word[i / 2] |= (uint32_t)((const uint16_t *)from)[i] << (i % 2 * 16);
        }
        return Bytes16{word[0], word[1], word[2], word[3]};
    }
    /* Columns k .. of the stage at `to`, by the threads of a group; what is not there is zero. */
    __device__ __forceinline__ void load(char *to, int k, int thread) const
    {
#pragma unroll
        for (int i = 0; i < (ROWS * 8 + S::kThreads - 1) / S::kThreads; i++) {
            const int at = thread + i * S::kThreads, row = at / 8, c = at % 8;
            if (ROWS * 8 % S::kThreads && at >= ROWS * 8)
                break;
            int left = row < rows ? (columns - k) * kBytes - c * 16 : 0;
            left = left < 0 ? 0 : left < 16 ? left : 16;
            const char *from = left ? data + row * pitch + (int64_t)k * kBytes + c * 16 : data;
            char *place_of = to + row * 128 + place(row, c) * 16;
            if (aligned)
                copy_async16(smem_address(place_of), from, left);
            else
                *(Bytes16 *)place_of = gather(from, left);
        }
    }
    /* Of a row of the stage the lane's eight elements of a step of 32. */
    static __device__ __forceinline__ void read(uint32_t (&to)[S::kWords], const char *stage,
                                                int row, int step, int lane)
    {
        const char *at = stage + row * 128;
#pragma unroll
        for (int i = 0; i < S::kWords / 4; i++) {
            const int c = step * 2 * kBytes + lane % 4 * (kBytes / 2) + i;
            const Bytes16 v = *(const Bytes16 *)(at + place(row, c) * 16);
            to[4 * i] = v.x, to[4 * i + 1] = v.y, to[4 * i + 2] = v.z, to[4 * i + 3] = v.w;
        }
    }
};

template <class Cfg> struct GemmPair {
    typedef PairShape<Cfg> S;
    typedef PairSide<Cfg::kBM, Cfg> A;
    typedef PairSide<Cfg::kBN, Cfg> W;
    typedef float Sums[S::kMFrags][S::kNFrags][4];
    typedef uint32_t Raw[S::kMFrags][2][S::kWords]; /* of a: rows g and g + 8 */

    static __device__ __forceinline__ void multiply(float (&d)[4], const uint32_t (&low)[4],
                                                    const uint32_t (&high)[4],
                                                    const uint32_t (&w)[4])
    {
#pragma unroll
        for (int half = 0; half < 4; half += 2) {
            const uint32_t a[4] = {low[half], high[half], low[half + 1], high[half + 1]};
            if (Cfg::kHome == HOME_F16)
                mma_f16(d, a, w[half], w[half + 1], d);
            else
                mma_bf16(d, a, w[half], w[half + 1], d);
        }
    }
    /* The products of one piece of a with those pieces of w that count, of eight columns. */
    template <int PIECE_A, int PIECE_W>
    static __device__ __forceinline__ void pieces_w(Sums &sums, int nf,
                                                    const uint32_t (&a)[S::kMFrags][2][4],
                                                    const uint32_t *raw)
    {
        if constexpr (PIECE_A + PIECE_W < S::kPieces) {
            uint32_t w[4];
            decode_act<Cfg::kW, Cfg::kHome, PIECE_W>(raw, 0, w);
#pragma unroll
            for (int mf = 0; mf < S::kMFrags; mf++)
                multiply(sums[mf][nf], a[mf][0], a[mf][1], w);
            pieces_w<PIECE_A, PIECE_W + 1>(sums, nf, a, raw);
        }
    }
    template <int PIECE>
    static __device__ __forceinline__ void pieces(Sums &sums, const Raw &raw, const char *stage,
                                                  int column0, int step, int lane)
    {
        uint32_t a[S::kMFrags][2][4];
#pragma unroll
        for (int mf = 0; mf < S::kMFrags; mf++)
#pragma unroll
            for (int h = 0; h < 2; h++)
                decode_act<Cfg::kA, Cfg::kHome, PIECE>(raw[mf][h], 0, a[mf][h]);
#pragma unroll
        for (int nf = 0; nf < S::kNFrags; nf++) {
            uint32_t of_w[S::kWords];
            W::read(of_w, stage + S::kABytes, column0 + nf * 8 + lane / 4, step, lane);
            pieces_w<PIECE, 0>(sums, nf, a, of_w);
        }
        if constexpr (PIECE + 1 < S::kPieces)
            pieces<PIECE + 1>(sums, raw, stage, column0, step, lane);
    }
    /* 32 of K of a stage. row0, column0: the warp's first of the tile. */
    static __device__ __forceinline__ void step(Sums &sums, const char *stage, int row0,
                                                int column0, int at, int lane)
    {
        Raw raw;
#pragma unroll
        for (int mf = 0; mf < S::kMFrags; mf++)
#pragma unroll
            for (int h = 0; h < 2; h++)
                A::read(raw[mf][h], stage, row0 + mf * 16 + h * 8 + lane / 4, at, lane);
        if constexpr (S::kPieces == 3 || Cfg::kApart) { /* format.cuh: Pieces */
            Sums apart = {};
            pieces<0>(apart, raw, stage, column0, at, lane);
#pragma unroll
            for (int mf = 0; mf < S::kMFrags; mf++)
#pragma unroll
                for (int nf = 0; nf < S::kNFrags; nf++)
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        sums[mf][nf][i] = sums[mf][nf][i] + apart[mf][nf][i];
        } else {
            pieces<0>(sums, raw, stage, column0, at, lane);
        }
    }
    static __device__ __forceinline__ void stage_sums(float *tile, const Sums &sums, int row0,
                                                      int column0, int lane)
    {
#pragma unroll
        for (int mf = 0; mf < S::kMFrags; mf++)
#pragma unroll
            for (int nf = 0; nf < S::kNFrags; nf++)
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const int row = row0 + mf * 16 + h * 8 + lane / 4;
                    float *to = tile + row * S::kTilePitch + column0 + nf * 8 + lane % 4 * 2;
                    to[0] = sums[mf][nf][2 * h];
                    to[1] = sums[mf][nf][2 * h + 1];
                }
    }
};

/* K, N and the pitches of a product, constants unless they vary. */
struct PairSizes {
    int k, n;
    int64_t a_pitch, w_pitch;
};
template <class Cfg, class Params> __device__ __forceinline__ PairSizes pair_sizes(const Params &p)
{
    if constexpr (Cfg::kVaries)
        return {(int)p.dim[1], (int)p.dim[2], p.dim[3], p.dim[4]};
    else
        return {Cfg::kK, Cfg::kN, Cfg::kAPitch, Cfg::kWPitch};
}

template <class Cfg, class Epilogue, class Params>
__device__ __forceinline__ void gemm_pair(const Params &p)
{
    typedef GemmPair<Cfg> G;
    typedef PairShape<Cfg> S;
    extern __shared__ __align__(128) char smem[];
    const PairSizes size = pair_sizes<Cfg>(p);
    const int64_t m = p.dim[0], m0 = (int64_t)(blockIdx.x / S::kTilesN) * Cfg::kBM;
    const int n0 = blockIdx.x % S::kTilesN * Cfg::kBN;
    const int group = threadIdx.x / S::kThreads, thread = threadIdx.x % S::kThreads;
    const int warp = thread / 32, lane = threadIdx.x % 32;
    const int row0 = warp / Cfg::kWarpsN * (Cfg::kBM / Cfg::kWarpsM);
    const int column0 = warp % Cfg::kWarpsN * (Cfg::kBN / Cfg::kWarpsN);
    const Operand a = p.op[Cfg::kOperandA];
    wait_for_producer();
    if (n0 >= size.n) {
        let_consumer_start();
        return;
    }
    const typename G::A of_a(a.data, size.a_pitch, m0, m, size.k);
    const typename G::W of_w(p.op[Cfg::kOperandW].data, size.w_pitch, n0, size.n, size.k);
    constexpr int kStep = Cfg::kBK * Cfg::kGroups; /* of K, of all groups */
    const int stages = (size.k + kStep - 1) / kStep;
    char *ring = smem + group * (Cfg::kStages * S::kStageBytes);
    auto load = [&](int at) {
        char *stage = ring + at % Cfg::kStages * S::kStageBytes;
        if (at < stages) {
            of_a.load(stage, at * kStep + group * Cfg::kBK, thread);
            of_w.load(stage + S::kABytes, at * kStep + group * Cfg::kBK, thread);
        }
        copy_commit();
    };
    typename G::Sums sums = {};
#pragma unroll 1
    for (int i = 0; i < Cfg::kStages - 1; i++)
        load(i);
#pragma unroll 1
    for (int at = 0; at < stages; at++) {
        copy_wait<Cfg::kStages - 2>();
        __syncthreads(); /* this stage is there for all, and all have read the one before it */
        load(at + Cfg::kStages - 1);
#pragma unroll
        for (int step = 0; step < Cfg::kBK / 32; step++)
            G::step(sums, ring + at % Cfg::kStages * S::kStageBytes, row0, column0, step, lane);
    }
    let_consumer_start();
    copy_wait<0>();
    __syncthreads();
    float *tile = (float *)smem;
    G::stage_sums(tile + group * S::kTileWords, sums, row0, column0, lane);
    __syncthreads();
    if constexpr (Cfg::kGroups > 1) {
        for (int i = threadIdx.x; i < S::kTileWords; i += S::kThreads * Cfg::kGroups)
#pragma unroll
            for (int g = 1; g < Cfg::kGroups; g++)
                tile[i] = tile[i] + tile[g * S::kTileWords + i];
        __syncthreads();
    }
    for (int r = threadIdx.x / Epilogue::kRowLanes; r < Cfg::kBM && m0 + r < m;
         r += S::kThreads * Cfg::kGroups / Epilogue::kRowLanes)
        Epilogue::row(p, a, (const char *)(tile + r * S::kTilePitch), m0 + r, n0,
                      lane % Epilogue::kRowLanes);
}

#endif
