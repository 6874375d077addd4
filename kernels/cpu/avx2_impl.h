/* Decoding of codes with AVX2, for kernels_avx2*.c. */
#ifndef SINTER_CPU_AVX2_IMPL_H
#define SINTER_CPU_AVX2_IMPL_H

#include "kernels/cpu/records.h"
#include <string.h>

#define COLS 8 /* of a vector */

INLINE __m256i load_i32(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

INLINE __m128i load_16(const void *p)
{
    return _mm_loadu_si128((const __m128i *)p);
}

INLINE __m128i load_8(const void *p)
{
    return _mm_loadl_epi64((const __m128i *)p);
}

/* Codes of e4m3 by way of f16, whose exponents are 8 lower: denormals need no slow path there. */
INLINE __m256 decode_e4m3(__m128i codes)
{
    __m128i x = _mm_slli_epi16(_mm_cvtepu8_epi16(codes), 8);
    __m128i half = _mm_and_si128(_mm_srai_epi16(x, 1), _mm_set1_epi16((short)0xbf80));
    __m256 value = _mm256_mul_ps(_mm256_cvtph_ps(half), _mm256_set1_ps(256.0f));
    __m128i magnitude = _mm_and_si128(half, _mm_set1_epi16(0x3f80));
    __m128i nan = _mm_cmpeq_epi16(magnitude, _mm_set1_epi16(0x3f80));
    return _mm256_blendv_ps(value, _mm256_set1_ps(num_float(NUM_NAN_BITS)),
                            _mm256_castsi256_ps(_mm256_cvtepi16_epi32(nan)));
}

/* Powers of two; 0 is the denormal 2^-127 and 255 a NaN. */
INLINE __m256 decode_e8m0(__m128i codes)
{
    const __m256i inf = _mm256_set1_epi32(NUM_INF_BITS);
    __m256i x = _mm256_slli_epi32(_mm256_cvtepu8_epi32(codes), 23);
    __m256i none = _mm256_cmpeq_epi32(x, _mm256_setzero_si256()), nan = _mm256_cmpeq_epi32(x, inf);
    x = _mm256_or_si256(x, _mm256_and_si256(none, _mm256_set1_epi32(0x00400000)));
    return _mm256_castsi256_ps(_mm256_blendv_epi8(x, _mm256_set1_epi32(NUM_NAN_BITS), nan));
}

INLINE __m256 halves_to_f32(__m128i bf16)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bf16), 16));
}

/* 8 elements of a format of 8, 16 or 32 bits. */
INLINE __m256 decode_8(FormatId fmt, const uint8_t *p)
{
    switch (fmt) {
    case FMT_F16: return _mm256_cvtph_ps(load_16(p));
    case FMT_BF16: return halves_to_f32(load_16(p));
    case FMT_I8: return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(load_8(p)));
    case FMT_U8: return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(load_8(p)));
    case FMT_E5M2: return _mm256_cvtph_ps(_mm_slli_epi16(_mm_cvtepu8_epi16(load_8(p)), 8));
    case FMT_E4M3: return decode_e4m3(load_8(p));
    case FMT_E8M0: return decode_e8m0(load_8(p));
    default: return _mm256_loadu_ps((const float *)(const void *)p);
    }
}

/* 8 scales of a record. */
INLINE __m256 decode_scale(const PackLayout *l, const void *scale, int col)
{
    const uint8_t *p = (const uint8_t *)scale + col * l->scale_bytes;
    switch (l->scale_fmt) {
    case FMT_F16: return decode_8(FMT_F16, p);
    case FMT_BF16: return decode_8(FMT_BF16, p);
    case FMT_E4M3: return decode_8(FMT_E4M3, p);
    case FMT_E8M0: return decode_8(FMT_E8M0, p);
    default: return decode_8(FMT_F32, p);
    }
}

/* The values of 16 codes: byte i of each, in both halves of byte[i]. */
typedef struct NibbleTables {
    __m256i byte[4];
    __m256i up;   /* times it, words move up by 16 bits, in the units that shuffle nothing */
    bool is_half; /* the lower two bytes are 0, as where bf16 holds all values */
} NibbleTables;

INLINE NibbleTables nibble_tables(const float *value)
{
    const __m128i order = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    NibbleTables t;
    __m128i some[4], all = _mm_setzero_si128();
    for_each(i, 4) {
        some[i] = load_16(value + 4 * i);
        all = _mm_or_si128(all, some[i]);
        some[i] = _mm_shuffle_epi8(some[i], order);
    }
    __m128i low0 = _mm_unpacklo_epi32(some[0], some[1]),
            low1 = _mm_unpacklo_epi32(some[2], some[3]);
    __m128i high0 = _mm_unpackhi_epi32(some[0], some[1]);
    __m128i high1 = _mm_unpackhi_epi32(some[2], some[3]);
    t.byte[0] = _mm256_broadcastsi128_si256(_mm_unpacklo_epi64(low0, low1));
    t.byte[1] = _mm256_broadcastsi128_si256(_mm_unpackhi_epi64(low0, low1));
    t.byte[2] = _mm256_broadcastsi128_si256(_mm_unpacklo_epi64(high0, high1));
    t.byte[3] = _mm256_broadcastsi128_si256(_mm_unpackhi_epi64(high0, high1));
    t.is_half = _mm_testz_si128(all, _mm_set1_epi32(0xffff));
    t.up = _mm256_set1_epi32(1 << 16);
    __asm__("" : "+x"(t.up)); /* or a compiler would shift */
    return t;
}

/* Bytes of units at w, each of two codes, with those of later columns between them; they come
 * together by where they are loaded from. */
INLINE __m256i nibble_bytes(const uint8_t *w, int later, __m128i order)
{
    __m256i both = _mm256_blend_epi16(load_i32(w), load_i32(w + later - 2), 0xaa);
    return _mm256_shuffle_epi8(both, _mm256_broadcastsi128_si256(order));
}

/* The first or, with `part`, the last four of K of 16 columns: those of the first 8 are lower
 * halves of lanes. */
INLINE __m256i nibble_bytes_16(const uint8_t *w, int part)
{
    return nibble_bytes(w + 2 * part, 32,
                        _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
}

/* The same of 32 columns, two of K in each vector. */
INLINE void nibble_bytes_32(const uint8_t *w, int part, __m256i *bytes)
{
    const __m128i order = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    __m256i even = nibble_bytes(w + 2 * part, 64, order);
    __m256i odd = nibble_bytes(w + 32 + 2 * part, 64, order);
    bytes[0] = _mm256_unpacklo_epi64(even, odd);
    bytes[1] = _mm256_unpackhi_epi64(even, odd);
}

/* Values of the lower or, with `second`, the upper codes in bytes: of even and of odd bytes in the
 * lower halves of lanes, then in their upper halves. */
INLINE void nibble_values(const NibbleTables *t, bool is_half, __m256i bytes, bool second,
                          __m256 *x)
{
    const __m256i mask = _mm256_set1_epi32((int)0xffff0000);
    __m256i code = second ? _mm256_mulhi_epu16(bytes, _mm256_set1_epi16(1 << 12)) : bytes;
    code = _mm256_and_si256(code, _mm256_set1_epi8(15));
    __m256i byte2 = _mm256_shuffle_epi8(t->byte[2], code);
    __m256i byte3 = _mm256_shuffle_epi8(t->byte[3], code);
    __m256i byte0 = _mm256_shuffle_epi8(t->byte[0], code);
    __m256i byte1 = _mm256_shuffle_epi8(t->byte[1], code);
    for_each(h, 2) {
        __m256i high = h ? _mm256_unpackhi_epi8(byte2, byte3) : _mm256_unpacklo_epi8(byte2, byte3);
        __m256i low = h ? _mm256_unpackhi_epi8(byte0, byte1) : _mm256_unpacklo_epi8(byte0, byte1);
        __m256i even = _mm256_mullo_epi32(high, t->up), odd = _mm256_and_si256(high, mask);
        if (!is_half) {
            even = _mm256_blend_epi16(low, even, 0xaa);
            low = _mm256_madd_epi16(low, t->up);
            odd = _mm256_blend_epi16(low, high, 0xaa);
        }
        x[2 * h] = _mm256_castsi256_ps(even);
        x[2 * h + 1] = _mm256_castsi256_ps(odd);
    }
}

/* What the bytes of e4m3's codes stand for as bf16. Of normal numbers the upper byte is known by
 * the upper four bits, the lower one is the lower four. Denormals have no upper bits but the sign:
 * what they are looked up in is added to that. */
typedef struct ByteTables {
    __m256i high, small_high, small_low;
} ByteTables;

INLINE ByteTables e4m3_tables(void)
{
    uint8_t high[16], small_high[16], small_low[16];
    for (unsigned i = 0; i < 16; i++) {
        unsigned small = num_to_bf16(num_decode(FMT_E4M3, i));
        high[i] = (uint8_t)(num_to_bf16(num_decode(FMT_E4M3, 16 * i)) >> 8);
        small_high[i] = (uint8_t)(small >> 8);
        small_low[i] = (uint8_t)(small ^ i << 4);
    }
    return (ByteTables){_mm256_broadcastsi128_si256(load_16(high)),
                        _mm256_broadcastsi128_si256(load_16(small_high)),
                        _mm256_broadcastsi128_si256(load_16(small_low))};
}

/* 32 columns: vector i has columns 4 * i to 4 * i + 3, and the same 16 further on. Unless `most` is
 * NULL, NaNs come out as numbers and it grows to E4M3_NAN in some byte. */
#define E4M3_NAN 0x7f
INLINE void e4m3_values(const ByteTables *t, __m256i codes, __m256 *x, __m256i *most)
{
    const __m256i low4 = _mm256_set1_epi8(15), magnitude = _mm256_set1_epi8(E4M3_NAN);
    __m256i none = _mm256_setzero_si256();
    __m256i upper = _mm256_and_si256(_mm256_srli_epi16(codes, 4), low4);
    __m256i low = _mm256_slli_epi16(_mm256_and_si256(codes, low4), 4);
    __m256i bits = _mm256_and_si256(codes, magnitude);
    /* the highest bit of an index: nothing is looked up */
    __m256i small = _mm256_add_epi8(bits, _mm256_set1_epi8(0x70));
    __m256i high = _mm256_or_si256(_mm256_shuffle_epi8(t->high, upper),
                                   _mm256_shuffle_epi8(t->small_high, small));
    low = _mm256_xor_si256(low, _mm256_shuffle_epi8(t->small_low, small));
    if (most) {
        *most = _mm256_max_epu8(*most, bits);
    } else {
        __m256i nan = _mm256_cmpeq_epi8(bits, magnitude);
        high = _mm256_blendv_epi8(high, _mm256_set1_epi8(NUM_NAN_BITS >> 24), nan);
        low = _mm256_blendv_epi8(low, _mm256_set1_epi8((char)(NUM_NAN_BITS >> 16)), nan);
    }
    for_each(h, 2) {
        __m256i half = h ? _mm256_unpackhi_epi8(low, high) : _mm256_unpacklo_epi8(low, high);
        x[2 * h] = _mm256_castsi256_ps(_mm256_unpacklo_epi16(none, half));
        x[2 * h + 1] = _mm256_castsi256_ps(_mm256_unpackhi_epi16(none, half));
    }
}

/* 16 columns of bf16: columns 0 to 3 and 8 to 11, 4 to 7 and 12 to 15. */
INLINE void bf16_values(const uint8_t *w, __m256 *x)
{
    __m256i halves = load_i32(w), none = _mm256_setzero_si256();
    x[0] = _mm256_castsi256_ps(_mm256_unpacklo_epi16(none, halves));
    x[1] = _mm256_castsi256_ps(_mm256_unpackhi_epi16(none, halves));
}

/* 16 columns of what bf16_values or, of vectors 2 * i and 2 * i + 1, e4m3_values left, in order. */
INLINE void halves_in_order(__m256 *first, __m256 *second)
{
    __m256 a = *first, b = *second;
    *first = _mm256_permute2f128_ps(a, b, 0x20);
    *second = _mm256_permute2f128_ps(a, b, 0x31);
}

/* Columns that are decoded together where there are `vecs` vectors of them. */
INLINE int values_at_once(FormatId fmt, int vecs)
{
    return fmt == FMT_E4M3 && vecs % 4 == 0 ? 32 : fmt == FMT_BF16 ? 16 : COLS;
}

/* Has e4m3_values met a NaN? */
INLINE bool e4m3_met_nan(__m256i most)
{
    __m256i nan = _mm256_cmpeq_epi8(most, _mm256_set1_epi8(E4M3_NAN));
    return !_mm256_testz_si256(nan, nan);
}

/* The values of so many columns; wide_in_order puts them, or their sums, in order. most: as
 * e4m3_values. */
INLINE void wide_values(FormatId fmt, int vecs, const ByteTables *t, const uint8_t *w, __m256 *x,
                        __m256i *most)
{
    if (values_at_once(fmt, vecs) == COLS)
        x[0] = decode_8(fmt, w);
    else if (fmt == FMT_BF16)
        bf16_values(w, x);
    else
        e4m3_values(t, load_i32(w), x, most);
}

INLINE void wide_in_order(FormatId fmt, int vecs, __m256 *x)
{
    int at_once = values_at_once(fmt, vecs);
    if (at_once == COLS)
        return;
    for_each(v, vecs / 2)
        halves_in_order(&x[2 * v], &x[2 * v + 1]);
    for (int v = 0; at_once == 32 && v < vecs / 4; v++) {
        __m256 middle = x[4 * v + 1];
        x[4 * v + 1] = x[4 * v + 2];
        x[4 * v + 2] = middle;
    }
}

/* Sums of a record of e2m1 codes for one row, of all columns; kernels_avx2_fixed.c */
void cpu_fixed_sums_avx2(const uint8_t *w, const int8_t *digits, int64_t units, FixedBlock block,
                         CpuFetch fetch, __m256 *acc);

#endif
