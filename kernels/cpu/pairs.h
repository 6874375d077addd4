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

/* Codes of e4m3 without their signs to the two bytes of their bf16. */
typedef struct E4m3Halves {
    __m512i low[2], high[2];
} E4m3Halves;

static inline E4m3Halves e4m3_halves(void)
{
    static _Thread_local bool known;
    static _Thread_local uint8_t low[128], high[128];
    E4m3Halves t;
    for (unsigned code = 0; !known && code < 128; code++) {
        unsigned half = num_to_bf16(num_decode(FMT_E4M3, code));
        low[code] = (uint8_t)half;
        high[code] = (uint8_t)(half >> 8);
    }
    known = true;
    for_each(h, 2) {
        t.low[h] = _mm512_loadu_si512(low + 64 * h);
        t.high[h] = _mm512_loadu_si512(high + 64 * h);
    }
    return t;
}

INLINE __m512i e4m3_low(__m512i codes, const E4m3Halves *t)
{
    return _mm512_permutex2var_epi8(t->low[0], codes, t->low[1]);
}

INLINE __m512i e4m3_high(__m512i codes, const E4m3Halves *t)
{
    __m512i high = _mm512_permutex2var_epi8(t->high[0], codes, t->high[1]);
    /* high | (codes & sign) */
    return _mm512_ternarylogic_epi32(high, codes, _mm512_set1_epi8(-128), 0xf8);
}

/* 64 scales of e4m3 in the order of columns. */
INLINE void scales_e4m3(const uint8_t *codes, const E4m3Halves *t, __m512 *sb)
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i none = _mm512_setzero_si512();
    __m512i x = _mm512_permutexvar_epi32(order, _mm512_loadu_si512(codes));
    __m512i low = e4m3_low(x, t), high = e4m3_high(x, t);
    __m512i first = _mm512_unpacklo_epi8(low, high), second = _mm512_unpackhi_epi8(low, high);
    sb[0] = _mm512_castsi512_ps(_mm512_unpacklo_epi16(none, first));
    sb[1] = _mm512_castsi512_ps(_mm512_unpackhi_epi16(none, first));
    sb[2] = _mm512_castsi512_ps(_mm512_unpacklo_epi16(none, second));
    sb[3] = _mm512_castsi512_ps(_mm512_unpackhi_epi16(none, second));
}

/* 64 scales of e8m0; false: one is the denormal or the NaN, which are not made by a shift. */
INLINE bool scales_e8m0(const uint8_t *codes, __m512 *sb)
{
    __m512i less = _mm512_add_epi8(_mm512_loadu_si512(codes), _mm512_set1_epi8(-1));
    if (_mm512_cmpge_epu8_mask(less, _mm512_set1_epi8((char)0xfe)))
        return false;
    for_each(v, 4) {
        __m128i some = _mm_loadu_si128((const __m128i *)(const void *)(codes + 16 * v));
        sb[v] = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu8_epi32(some), 23));
    }
    return true;
}

/* Scales of 16 * vecs columns of a record, 1 where it has none. t is read for 64 of e4m3. */
INLINE void block_scales(int vecs, const PackLayout *l, const void *scale, int col,
                         const E4m3Halves *t, __m512 *sb)
{
    bool is_e4m3 = scale && vecs == 4 && l->scale_fmt == FMT_E4M3;
    bool is_e8m0 = scale && vecs == 4 && l->scale_fmt == FMT_E8M0;
    if (is_e4m3)
        scales_e4m3(scale, t, sb);
    if (is_e4m3 || (is_e8m0 && scales_e8m0(scale, sb)))
        return;
    for_each(v, vecs)
        sb[v] = scale ? decode_scale(l, scale, col + 16 * v) : _mm512_set1_ps(1.0f);
}

/* 64 columns whose halves were unpacked, in their order again. */
INLINE void unpacked_in_order(__m512 *sum)
{
    const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
    const __m512i second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    for_each(h, 2) {
        __m512d low = _mm512_castps_pd(sum[2 * h]), high = _mm512_castps_pd(sum[2 * h + 1]);
        sum[2 * h] = _mm512_castpd_ps(_mm512_permutex2var_pd(low, first, high));
        sum[2 * h + 1] = _mm512_castpd_ps(_mm512_permutex2var_pd(low, second, high));
    }
}

/* CpuMatrix.decode and .split; kernels_pairs.c */
void pairs_decode(const MatrixDecode *d);
void pairs_split(const float *x, int parts, uint16_t *dst, int64_t part_step, int64_t num,
                 ExponentRange *exponent);

#endif
