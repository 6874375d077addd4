/* Ranges of what products store, which a later quantisation has one of for all of it: found while
 * the values are in registers. */
#ifndef SINTER_CUDA_TOLD
#define SINTER_CUDA_TOLD

#include "kernels/cuda/quantise.cuh"

/* Of stored values, which magnitudes count: all, all but NaN, or neither NaN nor infinity. */
enum Counted { COUNT_ALL, COUNT_NUMBERS, COUNT_FINITE };

/* Two signed integers of 16 bits, each the larger one. */
__device__ __forceinline__ uint32_t most_of_pairs(uint32_t a, uint32_t b)
{
#if __CUDA_ARCH__ >= 900
    uint32_t d;
    asm("max.s16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
#else
    const int32_t high = Most()((int32_t)a >> 16, (int32_t)b >> 16);
    return (uint32_t)Most()((int16_t)a, (int16_t)b) & 0xFFFFu | (uint32_t)high << 16;
#endif
}

/* What a thread knows of the range of what it stores as FMT, from 0. Magnitudes are compared as
 * integers, two of 16 bits a word, of which those that do not count become negative by what is
 * added: three instructions a word. */
struct Told {
    uint32_t counted, finite; /* largest magnitudes, of all that count and of all finite ones */
    float lo, hi;
};
template <int FMT> struct Magnitudes {
    static constexpr bool kPairs = FMT != FMT_F32;
    static constexpr uint32_t kSign = kPairs ? 0x8000u : 0x80000000u;
    static constexpr uint32_t kInf = FMT == FMT_F32    ? 0x7f800000u
                                     : FMT == FMT_BF16 ? 0x7f80u
                                                       : 0x7c00u;
    static constexpr uint32_t kTwice = kPairs ? 0x10001u : 1u; /* both halves of a word */

    static __device__ __forceinline__ uint32_t added(Counted counted)
    {
        return counted == COUNT_ALL ? 0 : kSign - kInf - (counted == COUNT_NUMBERS ? 1 : 0);
    }
    static __device__ __forceinline__ uint32_t most(uint32_t a, uint32_t b)
    {
        return kPairs ? most_of_pairs(a, b) : (uint32_t)Most()((int32_t)a, (int32_t)b);
    }
    /* Bits as of f32; 0 or less where nothing counted. */
    static __device__ __forceinline__ int32_t bits(uint32_t largest, Counted counted)
    {
        if (!kPairs)
            return (int32_t)largest - (int32_t)added(counted);
        const int32_t of =
            Most()((int16_t)largest, (int32_t)largest >> 16) - (int32_t)added(counted);
        if (FMT == FMT_BF16)
            return of * 65536;
        return (int32_t)num_bits(Plain<FMT_F16>::load((uint16_t)Most()(of, 0)));
    }
};
/* Bits of word i of what a thread stores that are magnitudes of columns that there are. */
template <int FMT, class S>
__device__ __forceinline__ uint32_t magnitude_mask(const Row<S> &row, int i)
{
    constexpr int kEach = Magnitudes<FMT>::kPairs && S::kV > 1 ? 2 : 1; /* of a word */
    const int e = i * kEach;
    if (S::kEdge != EDGE_ANY)
        return row.has_run(e / S::kV) ? (kEach > 1                 ? 0x7fff7fffu
                                         : Magnitudes<FMT>::kPairs ? 0x7fffu
                                                                   : 0x7fffffffu)
                                      : 0;
    if (!Magnitudes<FMT>::kPairs)
        return row.has(e) ? 0x7fffffffu : 0;
    return (row.has(e) ? 0x7fffu : 0) | (kEach > 1 && row.has(e + kEach - 1) ? 0x7fff0000u : 0);
}
template <class Q> __device__ __forceinline__ Counted counted_by()
{
    return num_has_nan(Q::kFmt) ? COUNT_NUMBERS : COUNT_ALL;
}

/* Told <- what else the thread stores, of a tensor that Q quantises later with one range of all of
 * it, or one outer scale. Of an absent row nothing is stored: its sums are those of no row. */
template <class Q, int FMT, class S, class X>
__device__ __forceinline__ void row_see(const Row<S> &row, Told &told, const X &x)
{
    typedef Magnitudes<FMT> M;
    Loaded<FMT, S> stored;
    stored.set(x);
    if (Q::kWholeTensor && Q::kZero) {
        Extremes<Q> of = {0, told.lo, told.hi};
#pragma unroll
        for (int e = 0; e < S::kE; e++)
            if (row.has(e) && !row.absent)
                of.add(stored[e]);
        told.lo = of.lo, told.hi = of.hi;
    }
#pragma unroll
    for (int i = 0; i < (int)(sizeof stored.word / sizeof *stored.word); i++) {
        const uint32_t x = stored.word[i] & (row.absent ? 0 : magnitude_mask<FMT>(row, i));
        if (Q::kWholeTensor && !Q::kZero)
            told.counted = M::most(told.counted, x + M::added(counted_by<Q>()) * M::kTwice);
        if (Q::kOuter)
            told.finite = M::most(told.finite, x + M::added(COUNT_FINITE) * M::kTwice);
    }
}

/* `all`, of the GPU, learns of x where it is news for the block: what this has told is `known`, in
 * shared memory. Of many values few are. Without a branch, which loads of an epilogue's next row
 * would not cross. */
__device__ __forceinline__ void tell_most(int32_t *known, int32_t *all, int32_t x)
{
    asm volatile("{\n.reg .pred news;\n.reg .s32 old;\nmov.s32 old, %2;\n"
                 "setp.gt.s32 news, %2, %3;\n"
                 "@news atom.shared.max.s32 old, [%0], %2;\n"
                 "setp.gt.s32 news, %2, old;\n"
                 "@news red.global.max.s32 [%1], %2;\n}" ::"r"(smem_address(known)),
                 "l"(all), "r"(x), "r"(*(volatile int32_t *)known));
}
__device__ __forceinline__ void tell_least(int32_t *known, int32_t *all, int32_t x)
{
    asm volatile("{\n.reg .pred news;\n.reg .s32 old;\nmov.s32 old, %2;\n"
                 "setp.lt.s32 news, %2, %3;\n"
                 "@news atom.shared.min.s32 old, [%0], %2;\n"
                 "setp.lt.s32 news, %2, old;\n"
                 "@news red.global.min.s32 [%1], %2;\n}" ::"r"(smem_address(known)),
                 "l"(all), "r"(x), "r"(*(volatile int32_t *)known));
}
/* .. of what a thread has seen. known: a range, an outer scale's bits, from 0; span: as of
 * row_gather. */
template <class Q, int FMT>
__device__ __forceinline__ void tell(const Told &told, int32_t *known, int32_t *span,
                                     int64_t num_blocks)
{
    if (Q::kWholeTensor && Q::kZero) {
        tell_least(known + 1, span + 1, num_order_key(told.lo));
        tell_most(known + 2, span + 2, num_order_key(told.hi));
    } else if (Q::kWholeTensor) {
        tell_most(known, span, Magnitudes<FMT>::bits(told.counted, counted_by<Q>()));
    }
    if (Q::kOuter)
        tell_most(known + 3, span + 3 * num_blocks,
                  Magnitudes<FMT>::bits(told.finite, COUNT_FINITE));
}

#endif
