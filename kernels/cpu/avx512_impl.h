/* Decoding of 16 codes with AVX-512, for kernels_avx512*.c and kernels_amx*.c. */
#ifndef SINTER_CPU_AVX512_IMPL_H
#define SINTER_CPU_AVX512_IMPL_H

#include "kernels/cpu/records.h"
#include <string.h>

INLINE __m512 code_table(FormatId fmt)
{
    float value[16];
    for (unsigned code = 0; code < 16; code++)
        value[code] = num_decode((int)fmt, code);
    return _mm512_loadu_ps(value);
}

/* By way of f16, whose exponents are 8 lower; denormals need no slow path there. */
INLINE __m512 decode_e4m3(__m128i codes)
{
    __m256i x = _mm256_slli_epi16(_mm256_cvtepu8_epi16(codes), 8);
    __m256i half = _mm256_and_si256(_mm256_srai_epi16(x, 1), _mm256_set1_epi16((short)0xbf80));
    __m512 value = _mm512_mul_ps(_mm512_cvtph_ps(half), _mm512_set1_ps(256.0f));
    __m256i magnitude = _mm256_and_si256(half, _mm256_set1_epi16(0x3f80));
    __mmask16 nan = _mm256_cmpeq_epi16_mask(magnitude, _mm256_set1_epi16(0x3f80));
    return _mm512_mask_blend_ps(nan, value, _mm512_set1_ps(num_float(NUM_NAN_BITS)));
}

/* Powers of two; 0 is the denormal 2^-127 and 255 a NaN. */
INLINE __m512 decode_e8m0(__m128i codes)
{
    __m512i x = _mm512_slli_epi32(_mm512_cvtepu8_epi32(codes), 23);
    __mmask16 none = _mm512_testn_epi32_mask(x, x);
    __mmask16 nan = _mm512_cmpeq_epi32_mask(x, _mm512_set1_epi32(NUM_INF_BITS));
    x = _mm512_mask_mov_epi32(x, none, _mm512_set1_epi32(0x00400000));
    x = _mm512_mask_mov_epi32(x, nan, _mm512_set1_epi32(NUM_NAN_BITS));
    return _mm512_castsi512_ps(x);
}

INLINE __m512i broadcast_4(const uint8_t *p)
{
    int32_t word;
    memcpy(&word, p, 4);
    return _mm512_set1_epi32(word);
}

/* 16 elements of a format of 8, 16 or 32 bits. */
INLINE __m512 decode_16(FormatId fmt, const uint8_t *p)
{
    const __m128i *bytes = (const void *)p;
    const __m256i *halves = (const void *)p;
    switch (fmt) {
    case FMT_F16: return _mm512_cvtph_ps(_mm256_loadu_si256(halves));
    case FMT_BF16:
        return _mm512_castsi512_ps(
            _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(halves)), 16));
    case FMT_I8: return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(bytes)));
    case FMT_U8: return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(bytes)));
    case FMT_E5M2:
        return _mm512_cvtph_ps(_mm256_slli_epi16(_mm256_cvtepu8_epi16(_mm_loadu_si128(bytes)), 8));
    case FMT_E4M3: return decode_e4m3(_mm_loadu_si128(bytes));
    case FMT_E8M0: return decode_e8m0(_mm_loadu_si128(bytes));
    default: return _mm512_loadu_ps(p);
    }
}

/* 16 scales of a record. */
INLINE __m512 decode_scale(const PackLayout *l, const void *scale, int col)
{
    const uint8_t *p = (const uint8_t *)scale + col * l->scale_bytes;
    switch (l->scale_fmt) {
    case FMT_F16: return decode_16(FMT_F16, p);
    case FMT_BF16: return decode_16(FMT_BF16, p);
    case FMT_E4M3: return decode_16(FMT_E4M3, p);
    case FMT_E8M0: return decode_16(FMT_E8M0, p);
    default: return _mm512_loadu_ps(p);
    }
}

/* One vector of a float block's end. */
INLINE __m512 finish_f32(__m512 acc, __m512 zero, bool has_zero, float sum, __m512 scale,
                         __m512 out)
{
    if (has_zero)
        acc = _mm512_fnmadd_ps(zero, _mm512_set1_ps(sum), acc);
    return _mm512_fmadd_ps(acc, scale, out);
}

/* CpuKernels.direct_i4 */
void avx512_direct_i4(const DirectNibbles *d);

#endif
