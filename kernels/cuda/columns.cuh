/* The columns of a row that a thread holds, and how they come and go.
 *
 * kT threads hold one row (or one tile of its columns): thread `lane` of them holds kE values, in
 * runs of kV neighbours: value e is column n0 + (e / kV) * (kT * kV) + lane * kV + e % kV. A run
 * moves as one access where memory is aligned to it, and values stay packed as they were loaded
 * until a statement reads them. */
#ifndef SINTER_CUDA_COLUMNS
#define SINTER_CUDA_COLUMNS

#include "kernels/cuda/prelude.cuh"

#define SINTER_EACH(e) _Pragma("unroll") for (int e = 0; e < S::kE; e++)

/* What is known of the tile's edges when the kernel is written. */
enum Edge {
    EDGE_ANY,  /* nothing */
    EDGE_RUNS, /* n0 and end are multiples of kV: a run is valid as a whole, or not at all */
    EDGE_NONE  /* besides, every column is valid */
};

template <int T, int V, int E, Edge EDGE = EDGE_ANY> struct RowShape {
    static constexpr int kT = T, kV = V, kE = E, kRuns = E / V;
    static constexpr Edge kEdge = EDGE;
    static constexpr int kCols = T * E;
    static_assert(E % V == 0, "a thread holds whole runs");
};

/* Where a thread stands. end: one past the last valid column. scratch: shared memory of the kT
 * threads, kScratchWords words. absent: it stands behind the last row, computes what another row
 * gives, so that no thread waits for a branch of others, and stores nothing. */
template <class S> struct Row {
    int lane, n0, end;
    int32_t *scratch;
    bool absent = false;

    __device__ __forceinline__ int col(int e) const
    {
        return n0 + e / S::kV * (S::kT * S::kV) + lane * S::kV + e % S::kV;
    }
    /* Of the row at `base`, where column col(0) is: in two steps, as what is added to n0 can be
     * part of an instruction's address only while it is not in a sum of 32 bits. */
    template <class T> __device__ __forceinline__ T *first_of(T *base) const
    {
        return base + n0 + lane * S::kV;
    }
    __device__ __forceinline__ bool has(int e) const
    {
        if (S::kEdge == EDGE_NONE)
            return true;
        return col(S::kEdge == EDGE_RUNS ? e - e % S::kV : e) < end;
    }
    /* Every run is valid as a whole, or not at all, and begins at a multiple of kV. */
    __device__ __forceinline__ bool in_runs() const
    {
        return S::kEdge != EDGE_ANY || (n0 % S::kV == 0 && end % S::kV == 0);
    }
    /* .. and run r is valid. */
    __device__ __forceinline__ bool has_run(int r) const
    {
        return S::kEdge == EDGE_NONE || col(r * S::kV) < end;
    }
    /* One thread stores what all columns share. */
    __device__ __forceinline__ bool stores_first() const
    {
        return lane == 0 && !absent;
    }
    __device__ __forceinline__ void sync() const
    {
        if (S::kT <= 32)
            __syncwarp();
        else
            __syncthreads();
    }
};

/* Plain formats ------------------------------------------------------------------------------- */

/* load, store: one element. pack, unpack: the two of a 32-bit word, the first one low. */
template <int FMT> struct Plain;
template <> struct Plain<FMT_F32> {
    typedef float Element;
    static __device__ __forceinline__ float load(float x)
    {
        return x;
    }
    static __device__ __forceinline__ float store(float x)
    {
        return x;
    }
};
template <> struct Plain<FMT_F16> {
    typedef uint16_t Element;
    static __device__ __forceinline__ float load(uint16_t x)
    {
        float f;
        asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(x));
        return f;
    }
    static __device__ __forceinline__ uint16_t store(float x)
    {
        uint16_t h;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
        return h;
    }
    static __device__ __forceinline__ uint32_t pack(float lo, float hi)
    {
        return pack_f16x2(lo, hi);
    }
    static __device__ __forceinline__ float unpack(uint32_t pair, int at)
    {
        return load((uint16_t)(pair >> (16 * at)));
    }
};
template <> struct Plain<FMT_BF16> {
    typedef uint16_t Element;
    static __device__ __forceinline__ float load(uint16_t x)
    {
        return num_float((uint32_t)x << 16);
    }
    static __device__ __forceinline__ uint16_t store(float x)
    {
        return (uint16_t)pack_bf16x2(x, 0.0f);
    }
    static __device__ __forceinline__ uint32_t pack(float lo, float hi)
    {
        return pack_bf16x2(lo, hi);
    }
    static __device__ __forceinline__ float unpack(uint32_t pair, int at)
    {
        return num_float(at ? pair & 0xffff0000u : pair << 16);
    }
};

/* Runs ----------------------------------------------------------------------------------------- */

/* A run of BYTES bytes (1, 2, 4, 8 or a multiple of 16) and its words; p is aligned to it. */
/* free: of what nobody writes meanwhile, so that it may be read before what stands above it. */
__device__ __forceinline__ Bytes16 load16(const void *p, bool free)
{
    if (!free)
        return *(const Bytes16 *)p;
    const uint4 v = __ldg((const uint4 *)p);
    return {v.x, v.y, v.z, v.w};
}
__device__ __forceinline__ Bytes8 load8(const void *p, bool free)
{
    if (!free)
        return *(const Bytes8 *)p;
    const uint2 v = __ldg((const uint2 *)p);
    return {v.x, v.y};
}
template <class T> __device__ __forceinline__ T load_free(const T *p)
{
    return __ldg(p);
}
template <int BYTES, bool FREE = false>
__device__ __forceinline__ void load_words(uint32_t *dst, const void *p)
{
    if (BYTES >= 16) {
#pragma unroll
        for (int i = 0; i < BYTES / 16; i++) {
            const Bytes16 v = load16((const Bytes16 *)p + i, FREE);
            dst[4 * i] = v.x, dst[4 * i + 1] = v.y, dst[4 * i + 2] = v.z, dst[4 * i + 3] = v.w;
        }
    } else if (BYTES == 8) {
        const Bytes8 v = load8(p, FREE);
        dst[0] = v.x, dst[1] = v.y;
    } else if (BYTES == 4) {
        dst[0] = *(const uint32_t *)p;
    } else {
        dst[0] = BYTES == 2 ? *(const uint16_t *)p : *(const uint8_t *)p;
    }
}
template <int BYTES> __device__ __forceinline__ void store_words(void *p, const uint32_t *src)
{
    if (BYTES >= 16) {
#pragma unroll
        for (int i = 0; i < BYTES / 16; i++)
            ((Bytes16 *)p)[i] = {src[4 * i], src[4 * i + 1], src[4 * i + 2], src[4 * i + 3]};
    } else if (BYTES == 8) {
        *(Bytes8 *)p = {src[0], src[1]};
    } else if (BYTES == 4) {
        *(uint32_t *)p = src[0];
    } else if (BYTES == 2) {
        *(uint16_t *)p = (uint16_t)src[0];
    } else {
        *(uint8_t *)p = (uint8_t)src[0];
    }
}
template <int BYTES> __device__ __forceinline__ bool run_aligned(const void *p)
{
    return (uint64_t)p % (BYTES > 16 ? 16 : BYTES) == 0;
}

/* The thread's values as the format stores them, two 16-bit ones a word. */
template <int FMT, class S> struct Loaded {
    typedef typename Plain<FMT>::Element Element;
    static constexpr bool kPairs = sizeof(Element) == 2;
    static constexpr int kBytes = S::kV * (int)sizeof(Element);
    static constexpr int kRunWords = kBytes < 4 ? 1 : kBytes / 4;
    uint32_t word[S::kRuns * kRunWords];

    __device__ __forceinline__ float operator[](int e) const
    {
        const uint32_t *run = word + e / S::kV * kRunWords;
        const int i = e % S::kV;
        if constexpr (kPairs)
            return Plain<FMT>::unpack(run[i / 2], i % 2);
        else
            return num_float(run[i]);
    }
    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int i = 0; i < S::kRuns * kRunWords; i++)
            word[i] = 0;
    }
    template <class X> __device__ __forceinline__ void set(const X &x)
    {
#pragma unroll
        for (int e = 0; e < S::kE; e += kPairs && S::kV > 1 ? 2 : 1) {
            uint32_t *at = word + e / S::kV * kRunWords + e % S::kV / (kPairs ? 2 : 1);
            if constexpr (!kPairs)
                *at = num_bits(x[e]);
            else
                *at = Plain<FMT>::pack(x[e], S::kV > 1 ? x[e + (S::kV > 1)] : 0.0f);
        }
    }
};

/* What is known of memory, in sum: nobody writes it meanwhile; rows begin at multiples of 16 bytes,
 * so that runs begin at multiples of their bytes or of 16. */
enum Access { ACCESS_ANY = 0, ACCESS_FREE = 1, ACCESS_ALIGNED = 2 };

/* dst <- columns of the row at `base`; 0 beyond the end. */
template <int ACCESS = ACCESS_ANY, int FMT, class S>
__device__ __forceinline__ void row_load(const Row<S> &row, const void *base, Loaded<FMT, S> &dst)
{
    typedef Loaded<FMT, S> L;
    const typename L::Element *p = row.first_of((const typename L::Element *)base);
    if (S::kEdge != EDGE_NONE)
        dst.clear();
    if (row.in_runs() && (ACCESS & ACCESS_ALIGNED || run_aligned<L::kBytes>(p))) {
#pragma unroll
        for (int r = 0; r < S::kRuns; r++)
            if (row.has_run(r))
                load_words<L::kBytes, ACCESS & ACCESS_FREE>(dst.word + r * L::kRunWords,
                                                            p + r * (S::kT * S::kV));
        return;
    }
    dst.clear();
#pragma unroll
    for (int e = 0; e < S::kE; e++)
        if (row.has(e)) {
            const int i = e % S::kV, at = e / S::kV * (S::kT * S::kV) + i;
            uint32_t *run = dst.word + e / S::kV * L::kRunWords;
            if constexpr (L::kPairs)
                run[i / 2] |= (uint32_t)p[at] << (16 * (i % 2));
            else
                run[i] = num_bits(p[at]);
        }
}

/* The row at `base` <- src, rounded to the format. */
template <int FMT, int ACCESS = ACCESS_ANY, class S>
__device__ __forceinline__ void row_store(const Row<S> &row, void *base, const Loaded<FMT, S> &src)
{
    typedef Loaded<FMT, S> L;
    typename L::Element *p = row.first_of((typename L::Element *)base);
    if (row.in_runs() && (ACCESS & ACCESS_ALIGNED || run_aligned<L::kBytes>(p))) {
#pragma unroll
        for (int r = 0; r < S::kRuns; r++)
            if (!row.absent && row.has_run(r))
                store_words<L::kBytes>(p + r * (S::kT * S::kV), src.word + r * L::kRunWords);
        return;
    }
#pragma unroll
    for (int e = 0; e < S::kE; e++)
        if (!row.absent && row.has(e)) {
            const int i = e % S::kV, at = e / S::kV * (S::kT * S::kV) + i;
            const uint32_t *run = src.word + e / S::kV * L::kRunWords;
            if constexpr (L::kPairs)
                p[at] = (uint16_t)(run[i / 2] >> (16 * (i % 2)));
            else
                p[at] = num_float(run[i]);
        }
}
template <int FMT, int ACCESS = ACCESS_ANY, class S, class X>
__device__ __forceinline__ void row_store(const Row<S> &row, void *base, const X &src)
{
    Loaded<FMT, S> packed;
    packed.set(src);
    row_store<FMT, ACCESS>(row, base, packed);
}

/* The row's place in shared memory, row.scratch, <- src, rounded to the format: runs in the order
 * of its columns, from n0 on. */
template <int FMT, class S, class X>
__device__ __forceinline__ void row_leave(const Row<S> &row, const X &src)
{
    typedef Loaded<FMT, S> L;
    L packed;
    packed.set(src);
    char *to = (char *)row.scratch + row.lane * L::kBytes;
#pragma unroll
    for (int r = 0; r < S::kRuns; r++)
        store_words<L::kBytes>(to + r * (S::kT * L::kBytes), packed.word + r * L::kRunWords);
}

template <int ACCESS = ACCESS_ANY, class S>
__device__ __forceinline__ void row_load_i32(const Row<S> &row, const void *base,
                                             int32_t (&dst)[S::kE])
{
    Loaded<FMT_F32, S> bits;
    row_load<ACCESS>(row, base, bits);
#pragma unroll
    for (int e = 0; e < S::kE; e++)
        dst[e] = (int32_t)bits.word[e];
}
template <int ACCESS = ACCESS_ANY, class S>
__device__ __forceinline__ void row_store_i32(const Row<S> &row, void *base,
                                              const int32_t (&src)[S::kE])
{
    Loaded<FMT_F32, S> bits;
#pragma unroll
    for (int e = 0; e < S::kE; e++)
        bits.word[e] = (uint32_t)src[e];
    row_store<FMT_F32, ACCESS>(row, base, bits);
}

/* Accumulators of an epilogue, staged in shared memory from the tile's first column on, COLS of
 * each part side by side; aligned to 16 bytes there where edges are in runs. Behind the end may lie
 * what others write: it reads as 0. */
template <int COLS> struct StagedSums {
    const char *at;

    __device__ __forceinline__ const char *part(int part) const
    {
        return at + part * COLS * 4;
    }
};
template <class Acc, class S>
__device__ __forceinline__ void row_acc(const Row<S> &row, const char *acc, Acc (&dst)[S::kE])
{
    const Acc *p = (const Acc *)acc + (row.col(0) - row.n0);
#pragma unroll
    for (int r = 0; r < S::kRuns; r++) {
        if constexpr (S::kEdge != EDGE_ANY && S::kV % 4 == 0) {
#pragma unroll
            for (int i = 0; i < S::kV; i += 4) {
                struct __align__(16) Four
                {
                    Acc x, y, z, w;
                };
                Four v = {};
                if (row.has_run(r))
                    v = *(const Four *)(p + r * (S::kT * S::kV) + i);
                Acc *at = dst + r * S::kV + i;
                at[0] = v.x, at[1] = v.y, at[2] = v.z, at[3] = v.w;
            }
        } else {
#pragma unroll
            for (int i = 0; i < S::kV; i++)
                dst[r * S::kV + i] = row.has(r * S::kV + i) ? p[r * (S::kT * S::kV) + i] : Acc();
        }
    }
}

#endif
