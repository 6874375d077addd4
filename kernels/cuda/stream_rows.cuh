/* The rows of a that a stream multiplies (stream.cuh): from global memory one tile ahead, or from a
 * copy in shared memory. */
#ifndef SINTER_CUDA_STREAM_ROWS
#define SINTER_CUDA_STREAM_ROWS

#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/stream_ring.cuh"

template <class Cfg> struct StreamRows {
    typedef StreamShape<Cfg> S;
    static constexpr int kABytes = ActBits<Cfg::kA>::kBits / 8;
    static constexpr int kAWords = ActBits<Cfg::kA>::kWords;
    static constexpr int kNear = Cfg::kNeighbours;
    static constexpr bool kByMatrix = /* words of local rows that lie apart */
        Cfg::kLocalA && kNear < 8 && kAWords * S::kHalves % 4 == 0;
    static_assert(kNear == 8 || (!S::kFine && !Cfg::kAFold && kNear * kABytes == 4),
                  "words of columns that share their scales");

    /* The lane's eight elements of each step of a tile, of its one or two rows. */
    struct Rows {
        uint32_t raw[Cfg::kLocalA ? 1 : 4][S::kHalves][kAWords];
        const char *row[S::kHalves];
        uint32_t matrix[S::kHalves]; /* kByMatrix: what the lane says where it lies */
        int64_t at[S::kHalves];      /* row */
    };

    /* Rows past the last repeat it: an mma keeps rows apart. */
    static __device__ __forceinline__ void find_rows(Rows &r, const char *a, int64_t m, int lane)
    {
        if (Cfg::kLocalA)
            a -= S::first_tile() * 128 * kABytes;
#pragma unroll
        for (int h = 0; h < S::kHalves; h++) {
            int64_t row = lane / 4 + 8 * h;
            r.at[h] = row < m ? row : m - 1;
            const int column = S::kPasses ? lane % 2 * 8 + lane % 4 / 2 * 4 : lane % 4 * kNear;
            r.row[h] = a + r.at[h] * Cfg::kAPitch + column * kABytes;
            if constexpr (kByMatrix) {
                const int word = lane / 8 % kAWords, half = kAWords == 2 ? lane / 16 : h;
                row = lane % 8 + 8 * half;
                r.matrix[h] = smem_address(a + (row < m ? row : m - 1) * Cfg::kAPitch) + 16 * word;
            }
        }
    }

    /* kByMatrix: matrix i of a half is word i of all its lanes; with two words a half both halves
     * are four matrices. */
    static __device__ __forceinline__ void read_matrices(uint32_t (&raw)[S::kHalves][kAWords],
                                                         const Rows &r, int k)
    {
#pragma unroll
        for (int i = 0; i < S::kHalves * kAWords; i += 4) {
            const int h = i / kAWords;
            uint32_t words[4];
            load_matrices(words, r.matrix[h] + k * kABytes + i % kAWords * 16);
#pragma unroll
            for (int w = 0; w < 4; w++)
                raw[(i + w) / kAWords][(i + w) % kAWords] = words[w];
        }
#pragma unroll
        for (int h = 0; h < S::kHalves; h++)
            pair_bytes(raw[h]);
    }

    /* Beside bytes that become 16-bit floats nibbles have the even ones first (format.cuh). */
    static __device__ __forceinline__ void pair_bytes(uint32_t (&raw)[kAWords])
    {
        if constexpr (kABytes == 1 && !S::kInt && Bits<Cfg::kW>::kBits == 4) {
            const uint32_t near = raw[0], far = raw[1];
            raw[0] = __byte_perm(near, far, 0x6420);
            raw[1] = __byte_perm(near, far, 0x7531);
        }
    }

    /* What lies past the end of local rows is multiplied: zeros. */
    static __device__ __forceinline__ void clear_tails(char *local)
    {
        static_assert(Cfg::kK % 128 == 0 || Cfg::kGather == 1, "blocks have whole tiles");
        constexpr int kFrom = Cfg::kK * kABytes / 16, kLeft = Cfg::kAPitch / 16 - kFrom;
        for (int i = threadIdx.x; i < Cfg::kRows * kLeft && Cfg::kK % 128; i += S::kThreads)
            *(Bytes16 *)(local + i / kLeft * Cfg::kAPitch + (kFrom + i % kLeft) * 16) =
                Bytes16{0, 0, 0, 0};
    }

    /* `left`: how many of the eight there are. Rows begin and end at multiples of 16 bytes; what is
     * no element there becomes zero. */
    static __device__ __forceinline__ void read_eight(uint32_t (&raw)[kAWords], const char *p,
                                                      int left)
    {
        if constexpr (kAWords >= 4) {
#pragma unroll
            for (int i = 0; i < kAWords; i += 4) {
                Bytes16 v = {0, 0, 0, 0};
                if (i == 0 || left > 4)
                    v = *(const Bytes16 *)(p + 4 * i);
                raw[i] = v.x, raw[i + 1] = v.y, raw[i + 2] = v.z, raw[i + 3] = v.w;
            }
        } else {
            Bytes8 v = *(const Bytes8 *)p;
            raw[0] = v.x, raw[1] = v.y;
        }
        if (Cfg::kK % 8 && left < 8)
#pragma unroll
            for (int i = 0; i < kAWords; i++) {
                int bits = left * kABytes * 8 - 32 * i; /* of the word that count */
                raw[i] = bits <= 0 ? 0 : bits < 32 ? raw[i] & ((1u << bits) - 1) : raw[i];
            }
    }

    /* kPasses: four of each 16 columns of a step, of rows of 16-bit floats. */
    static __device__ __forceinline__ void read_halves(uint32_t (&raw)[kAWords], const char *p)
    {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const Bytes8 v = *(const Bytes8 *)(p + 32 * i);
            raw[2 * i] = v.x, raw[2 * i + 1] = v.y;
        }
    }

    /* .. of columns that lie apart, a word of neighbours each; `left`: as many from the first. */
    static __device__ __forceinline__ void read_apart(uint32_t (&raw)[kAWords], const char *p,
                                                      int left)
    {
#pragma unroll
        for (int i = 0; i < kAWords; i++) {
            const int own = left - i * 4 * kNear;
            raw[i] = own > 0 ? *(const uint32_t *)(p + i * 16) : 0;
            if (Cfg::kK % kNear && own > 0 && own < kNear)
                raw[i] &= (1u << own * kABytes * 8) - 1;
        }
        pair_bytes(raw);
    }

    static __device__ __forceinline__ void load_rows(Rows &r, int tile_k, int to, int step,
                                                     int lane)
    {
        const int k = tile_k * 128 + step * 32, left = Cfg::kK - k - lane % 4 * kNear;
        if constexpr (kByMatrix) {
            read_matrices(r.raw[to], r, k);
            return;
        }
        const bool whole = Cfg::kLocalA || (Cfg::kK % 128 == 0 && S::kTilesK % Cfg::kSplitK == 0);
#pragma unroll
        for (int h = 0; h < S::kHalves; h++) {
            if constexpr (S::kPasses)
                read_halves(r.raw[to][h], r.row[h] + k * kABytes);
            else if constexpr (kNear < 8)
                read_apart(r.raw[to][h], r.row[h] + k * kABytes, whole ? 32 : left);
            else if (whole || left > 0)
                read_eight(r.raw[to][h], r.row[h] + k * kABytes, whole ? 8 : left);
            else
#pragma unroll
                for (int i = 0; i < kAWords; i++)
                    r.raw[to][h][i] = 0;
        }
    }

    /* Rows of the first tile of a unit: a from global memory is one tile ahead. */
    static __device__ __forceinline__ void load_first(Rows &r, int slice, int lane)
    {
        if (!Cfg::kLocalA)
#pragma unroll
            for (int i = 0; i < 4; i++)
                load_rows(r, S::tile_of(0, slice), i, i, lane);
    }
};

/* Chunk i of the block's part of the rows, to its place, by one warp. Rows past the last are not
 * there (find_rows). */
template <class Cfg>
__device__ __forceinline__ void copy_chunk(const char *a, int64_t m, uint32_t barriers,
                                           uint32_t local, int i, int place)
{
    typedef StreamShape<Cfg> S;
    constexpr int kBytes = ActBits<Cfg::kA>::kBits / 8, kChunk = Cfg::kSplitK * 128 * kBytes;
    constexpr int kPart = Cfg::kGather > 1 ? S::kOwn * 128 * kBytes : Cfg::kK * kBytes;
    static_assert(kPart % 16 == 0 && Cfg::kGivenPitch % 16 == 0, "bulk copies take 16 bytes");
    const int lane = threadIdx.x % 32, rows = (int)m;
    const int left = kPart - i * kChunk, bytes = left < kChunk ? left : kChunk;
    a += S::first_tile() * 128 * kBytes + lane * (int64_t)Cfg::kGivenPitch;
    local += lane * Cfg::kAPitch;
    if (lane == 0)
        barrier_expect(barriers + 8 * place, bytes * rows);
    __syncwarp();
    if (lane < rows)
        copy_bulk_kept(local + place * kChunk, a + i * kChunk, bytes, barriers + 8 * place);
}

/* kRefills: once all warps have ended round `round` of the block's unit number `turn`, the chunk
 * that is next goes to the place of that round's. */
template <class Cfg, class Params>
__device__ __forceinline__ void refill_chunk(const Params &p, int64_t m, uint32_t barriers,
                                             const char *local, int unit, int turn, int round)
{
    typedef StreamShape<Cfg> S;
    const int next = round + S::kPlaces;
    if (threadIdx.x < 32 && unit + next / S::kRounds * S::unit_step() < S::kUnitsN)
        copy_chunk<Cfg>((const char *)p.op[Cfg::kOperandA].data, m, barriers, smem_address(local),
                        next % S::kRounds, (turn * S::kRounds + round) % S::kPlaces);
}

/* a lies in global memory: a Prologue that makes nothing, or copies. */
template <class Cfg> struct GivenRows {
    template <class Params>
    static __device__ __forceinline__ Operand run(const Params &p, char *local)
    {
        typedef StreamShape<Cfg> S;
        wait_for_producer();
        Operand a = p.op[Cfg::kOperandA];
        if constexpr (Cfg::kCopiesA) {
            const uint32_t at = smem_address(local);
            if (threadIdx.x < 32)
#pragma unroll 1
                for (int i = 0; i < S::kPlaces; i++)
                    copy_chunk<Cfg>((const char *)a.data, p.dim[0],
                                    at + S::kBarriersAt - S::kLocalAt, at, i, i);
            a.data = local;
        }
        return a;
    }
};

/* Begins to bring what a row loads, of elements of so many bytes, to the first-level cache, by the
 * row's lanes (Epilogue::fetch). */
template <int BYTES, class S>
__device__ __forceinline__ void row_fetch(const Row<S> &row, const void *base)
{
    const char *from = (const char *)base + (int64_t)row.n0 * BYTES;
#pragma unroll 1
    for (int at = row.lane * 128; at < (row.end - row.n0) * BYTES; at += S::kT * 128)
        asm volatile("prefetch.global.L1 [%0];" ::"l"(from + at) : "memory");
}

#endif
