/* Float-class weights and activations as pairs of bf16. Values that bf16 does not hold exactly are
 * split into a sum of two. */
#include "kernels/cpu/pairs.h"

/* What cutting off to bf16 loses; nothing of an infinity or a NaN. */
INLINE __m512 rest_of(__m512 x)
{
    __m512i cut = _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32((int)0xffff0000));
    __mmask16 finite = _mm512_cmplt_epi32_mask(
        _mm512_and_si512(cut, _mm512_set1_epi32(NUM_INF_BITS)), _mm512_set1_epi32(NUM_INF_BITS));
    return _mm512_maskz_sub_ps(finite, x, _mm512_castsi512_ps(cut));
}

/* Where the pair of K that begins at k goes: steps hold their parts one after the other. */
INLINE uint16_t *pair_at(const MatrixDecode *d, int64_t k, int part)
{
    int64_t row = (k / MATRIX_K * d->parts + part) * MATRIX_K + k % MATRIX_K;
    return d->dst + row * d->cols;
}

INLINE void decode_fetch(const MatrixDecode *d, const void *src, int lines)
{
    if (d->cols == PANEL_COLS)
        fetch_ahead(cpu_fetch(), src, lines);
}

/* bf16 itself: words of two rows change places. */
static void decode_bf16(const MatrixDecode *d)
{
    HalfExponents seen = NO_HALVES;
    const uint16_t *src = (const void *)d->src;
    const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
    for (int64_t k = 0; k < d->units; k += 2, src += 2 * d->cols) {
        decode_fetch(d, src, 4);
        for (int col = 0; col < d->cols; col += 32) {
            __mmask32 cols = d->cols - col < 32 ? 0xffff : 0xffffffff;
            __m512i even = _mm512_maskz_loadu_epi16(cols, src + col);
            __m512i odd = _mm512_maskz_loadu_epi16(k + 1 < d->units ? cols : 0,
                                                   src + d->cols * (k + 1 < d->units) + col);
            halves_see(&seen, even);
            halves_see(&seen, odd);
            even = _mm512_permutexvar_epi64(order, even);
            odd = _mm512_permutexvar_epi64(order, odd);
            uint16_t *dst = pair_at(d, k, 0) + 2 * col;
            _mm512_storeu_si512(dst, _mm512_unpacklo_epi16(even, odd));
            if (cols == 0xffffffff)
                _mm512_storeu_si512(dst + 32, _mm512_unpackhi_epi16(even, odd));
        }
    }
    halves_range(&seen, d->exponent);
}

INLINE void decode_wide_pairs(FormatId fmt, int bytes, const MatrixDecode *d)
{
    const uint8_t *src = d->src;
    int64_t step = (int64_t)d->cols * bytes;
    FloatExponents seen = NO_FLOATS;
    for (int64_t k = 0; k < d->units; k += 2, src += 2 * step) {
        decode_fetch(d, src, 2 * bytes);
        for (int col = 0; col < d->cols; col += 16) {
            __m512 even = decode_16(fmt, src + col * bytes), odd = _mm512_setzero_ps();
            if (k + 1 < d->units)
                odd = decode_16(fmt, src + step + col * bytes);
            if (bytes == 2) {
                floats_see(&seen, even);
                floats_see(&seen, odd);
            }
            if (d->zero) {
                __m512 zero = _mm512_cvtepi32_ps(_mm512_loadu_si512(d->zero + col));
                even = _mm512_sub_ps(even, zero);
                odd = _mm512_sub_ps(odd, zero);
            }
            if (d->scale) {
                __m512 scale = _mm512_loadu_ps(d->scale + col);
                even = _mm512_mul_ps(even, scale);
                odd = _mm512_mul_ps(odd, scale);
            }
            if (k + 1 == d->units)
                odd = _mm512_setzero_ps();
            _mm512_storeu_si512(pair_at(d, k, 0) + 2 * col, pair_exact(even, odd));
            if (d->parts > 1)
                _mm512_storeu_si512(pair_at(d, k, 1) + 2 * col,
                                    pair_exact(rest_of(even), rest_of(odd)));
        }
    }
    if (bytes == 2)
        floats_range(&seen, d->exponent);
}

static void decode_nibble_pairs(const MatrixDecode *d)
{
    const PairTable *t = pair_table(d->fmt);
    const __m512i table = _mm512_loadu_si512(t->value), rest = _mm512_loadu_si512(t->rest);
    for (int64_t u = 0; u < d->units; u++) {
        decode_fetch(d, d->src + u * d->cols * 4, 4);
        for (int col = 0; col < d->cols; col += 16) {
            __m512i words = _mm512_loadu_si512(d->src + (u * d->cols + col) * 4);
            for_each(i, 4) {
                __m512i index = _mm512_multishift_epi64_epi8(pair_places(i), words);
                int64_t k = u * 8 + 2 * i;
                _mm512_storeu_si512(pair_at(d, k, 0) + 2 * col,
                                    _mm512_permutexvar_epi16(index, table));
                if (d->parts > 1)
                    _mm512_storeu_si512(pair_at(d, k, 1) + 2 * col,
                                        _mm512_permutexvar_epi16(index, rest));
            }
        }
    }
}

/* With zero points or scales, which still leave values that bf16 holds. */
static void decode_nibble_values(const MatrixDecode *d)
{
    const __m512 table = code_table(d->fmt), one = _mm512_set1_ps(1.0f);
    for (int col = 0; col < d->cols; col += 16) {
        __m512 zero = _mm512_setzero_ps(), scale = one;
        if (d->zero)
            zero = _mm512_cvtepi32_ps(_mm512_loadu_si512(d->zero + col));
        if (d->scale)
            scale = _mm512_loadu_ps(d->scale + col);
        __m512 less = _mm512_mul_ps(zero, scale);
        for (int64_t u = 0; u < d->units; u++) {
            __m512i words = _mm512_loadu_si512(d->src + (u * d->cols + col) * 4);
            for_each(i, 4) {
                __m512 even = _mm512_permutexvar_ps(words, table);
                __m512 odd = _mm512_permutexvar_ps(_mm512_srli_epi32(words, 4), table);
                words = _mm512_srli_epi32(words, 8);
                even = _mm512_fmsub_ps(even, scale, less);
                odd = _mm512_fmsub_ps(odd, scale, less);
                _mm512_storeu_si512(pair_at(d, u * 8 + 2 * i, 0) + 2 * col, pair_exact(even, odd));
            }
        }
    }
}

void pairs_decode(const MatrixDecode *d)
{
    switch (d->fmt) {
    case FMT_BF16: decode_bf16(d); break;
    case FMT_F16: decode_wide_pairs(FMT_F16, 2, d); break;
    case FMT_I8: decode_wide_pairs(FMT_I8, 1, d); break;
    case FMT_U8: decode_wide_pairs(FMT_U8, 1, d); break;
    case FMT_E4M3: decode_wide_pairs(FMT_E4M3, 1, d); break;
    case FMT_E5M2: decode_wide_pairs(FMT_E5M2, 1, d); break;
    default: (d->zero || d->scale ? decode_nibble_values : decode_nibble_pairs)(d); break;
    }
}

/* Cut off, so that what is left has fewer bits. */
void pairs_split(const float *x, int parts, uint16_t *dst, int64_t part_step, int64_t num,
                 ExponentRange *exponent)
{
    FloatExponents seen = NO_FLOATS;
    for (int64_t i = 0; i < num; i += 16) {
        __mmask16 some = num - i < 16 ? (__mmask16)((1u << (num - i)) - 1) : 0xffff;
        __m512 v = _mm512_maskz_loadu_ps(some, x + i);
        floats_see(&seen, v);
        for (int part = 0; part < parts; part++) {
            __m512i high = _mm512_srli_epi32(_mm512_castps_si512(v), 16);
            _mm512_mask_cvtepi32_storeu_epi16(dst + part * part_step + i, some, high);
            v = rest_of(v);
        }
    }
    floats_range(&seen, exponent);
}
