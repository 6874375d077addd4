/* Pairs of bf16, which kernels_amx*.c and kernels_bf16.c multiply. */
#ifndef SINTER_CPU_PAIRS_H
#define SINTER_CPU_PAIRS_H

#include "kernels/cpu/avx512_impl.h"

/* The smallest, less 1 and so without zeros, and the largest of values without their signs: of
 * bf16, or of floats. */
typedef struct HalfExponents {
    __m512i lo, hi;
} HalfExponents;
typedef struct FloatExponents {
    __m512i lo, hi;
} FloatExponents;
#define NO_HALVES ((HalfExponents){_mm512_set1_epi32(-1), _mm512_setzero_si512()})
#define NO_FLOATS ((FloatExponents){_mm512_set1_epi32(-1), _mm512_setzero_si512()})

INLINE void halves_see(HalfExponents *e, __m512i halves)
{
    __m512i x = _mm512_add_epi16(halves, halves);
    e->lo = _mm512_min_epu16(e->lo, _mm512_sub_epi16(x, _mm512_set1_epi16(1)));
    e->hi = _mm512_max_epu16(e->hi, x);
}

INLINE void floats_see(FloatExponents *e, __m512 floats)
{
    __m512i x = _mm512_slli_epi32(_mm512_castps_si512(floats), 1);
    e->lo = _mm512_min_epu32(e->lo, _mm512_sub_epi32(x, _mm512_set1_epi32(1)));
    e->hi = _mm512_max_epu32(e->hi, x);
}

INLINE void floats_range(const FloatExponents *e, ExponentRange *range)
{
    uint32_t least = _mm512_reduce_min_epu32(e->lo), most = _mm512_reduce_max_epu32(e->hi);
    if (!most)
        return;
    int lo = (int)((least + 1) >> 24), hi = (int)(most >> 24);
    range->lo = lo < range->lo ? lo : range->lo;
    range->hi = hi > range->hi ? hi : range->hi;
}

INLINE void halves_range(const HalfExponents *e, ExponentRange *range)
{
    const __m512i high = _mm512_set1_epi32((int)0xffff0000), low = _mm512_set1_epi32(0xffff);
    __m512i even = _mm512_slli_epi32(e->lo, 16), odd = _mm512_and_si512(e->lo, high);
    /* the lowest of a word's two, as if its lower half were ones: adding 1 must not pass them */
    FloatExponents f = {
        _mm512_or_si512(_mm512_min_epu32(even, odd), low),
        _mm512_max_epu32(_mm512_slli_epi32(e->hi, 16), _mm512_and_si512(e->hi, high))};
    floats_range(&f, range);
}

/* Both parts of the values of 4-bit codes, twice: the low five bits of an index count, of which the
 * fifth is another code's. Kept, as decoding is called often. */
typedef struct PairTable {
    FormatId fmt;
    uint16_t value[32], rest[32];
} PairTable;

static inline const PairTable *pair_table(FormatId fmt)
{
    static _Thread_local PairTable t;
    if (t.fmt == fmt)
        return &t;
    t.fmt = fmt;
    for (unsigned i = 0; i < 32; i++) {
        float x = num_decode((int)fmt, i % 16);
        t.value[i] = (uint16_t)num_to_bf16(x);
        t.rest[i] = (uint16_t)num_to_bf16(x - num_from_bf16(t.value[i]));
    }
    return &t;
}

/* Where the two codes of byte i of each word begin, for the low bytes of 16-bit indices. */
INLINE __m512i pair_places(int i)
{
    uint64_t at = 8 * (uint64_t)i;
    return _mm512_set1_epi64((int64_t)(at | (at + 4) << 16 | (at + 32) << 32 | (at + 36) << 48));
}

/* Two values of K of each of 16 columns, which bf16 holds exactly. */
INLINE __m512i pair_exact(__m512 even, __m512 odd)
{
    __m512i low = _mm512_srli_epi32(_mm512_castps_si512(even), 16);
    /* low | (odd & 0xffff0000) */
    return _mm512_ternarylogic_epi32(low, _mm512_castps_si512(odd),
                                     _mm512_set1_epi32((int)0xffff0000), 0xf8);
}

/* CpuMatrix.decode and .split; kernels_pairs.c */
void pairs_decode(const MatrixDecode *d);
void pairs_split(const float *x, int parts, uint16_t *dst, int64_t part_step, int64_t num,
                 ExponentRange *exponent);

#endif
