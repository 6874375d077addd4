/* Nibbles of the integer class against few rows, with AVX2's products of bytes: codes are the
 * unsigned operand and activations, less 128, the signed one, so that pairs of products of four
 * units fit 16 bits. */
#include "kernels/cpu/avx2_impl.h"

#define MOST_VECS 4

/* Four activations, less 128, for all columns. */
INLINE __m256i signed_4(const uint8_t *a)
{
    int32_t word;
    memcpy(&word, a, 4);
    return _mm256_xor_si256(_mm256_set1_epi32(word), _mm256_set1_epi8(-128));
}

/* Sums over some units of a record, whose activations lie a_step bytes apart. */
INLINE void nibbles_units(int vecs, const uint8_t *w, int64_t w_step, const uint8_t *a,
                          int64_t a_step, int64_t units, CpuFetch fetch, __m256i *acc)
{
    const __m256i low = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
    for_each(v, vecs)
        acc[v] = _mm256_setzero_si256();
    for (int64_t u = 0, end; u < units; u = end) {
        __m256i half[MOST_VECS];
        for_each(v, vecs)
            half[v] = _mm256_setzero_si256();
        end = u + 4 < units ? u + 4 : units;
        for (int64_t i = u; i < end; i++, w += w_step, a += a_step) {
            __m256i x0 = signed_4(a), x1 = signed_4(a + 4);
            fetch_ahead(fetch, w, 4);
            for_each(v, vecs) {
                __m256i b = load_i32(w + 32 * v);
                __m256i b0 = _mm256_and_si256(b, low);
                __m256i b1 = _mm256_and_si256(_mm256_srli_epi16(b, 4), low);
                half[v] = _mm256_add_epi16(half[v], _mm256_maddubs_epi16(b0, x0));
                half[v] = _mm256_add_epi16(half[v], _mm256_maddubs_epi16(b1, x1));
            }
        }
        for_each(v, vecs)
            acc[v] = _mm256_add_epi32(acc[v], _mm256_madd_epi16(half[v], ones));
    }
}

/* Of the stored codes of some columns. */
INLINE void nibbles_sums(int vecs, const DirectNibbles *d, const PackBlock *b, int col,
                         __m256i *sum)
{
    static const uint8_t one[8] = {129, 129, 129, 129, 129, 129, 129, 129};
    if (!d->layout->sum_bytes)
        nibbles_units(vecs, b->codes + 4 * col, 4 * d->cols, one, 0, b->units, FETCH_NONE, sum);
    else
        for_each(v, vecs)
            sum[v] = load_i32((const int32_t *)b->sum + col + COLS * v);
}

/* The end of block number i for row r: what was too much is subtracted, scales apply. */
INLINE void nibbles_finish(int vecs, const DirectNibbles *d, const PackBlock *b, int64_t i, int r,
                           int col, const __m256i *acc, const __m256i *sum, const __m256 *scale)
{
    const PackLayout *l = d->layout;
    int64_t at = r * l->blocks + i;
    uint32_t rb = (uint32_t)d->rb[at], ra = (uint32_t)d->ra[at] - 128;
    const __m256i all = _mm256_set1_epi32((int32_t)(rb * (uint32_t)-l->weight_offset));
    const __m256 sa = _mm256_set1_ps(d->scale ? d->scale[at] : 1.0f);
    float *out = (float *)d->out + r * d->ld + col;
    for_each(v, vecs) {
        __m256i less = all;
        if (b->zero) {
            const __m128i *zero = (const void *)(b->zero + col + COLS * v);
            less = _mm256_mullo_epi32(_mm256_set1_epi32((int32_t)rb),
                                      _mm256_cvtepi8_epi32(_mm_loadl_epi64(zero)));
        }
        if (ra)
            less =
                _mm256_add_epi32(less, _mm256_mullo_epi32(_mm256_set1_epi32((int32_t)ra), sum[v]));
        __m256i x = _mm256_sub_epi32(acc[v], less);
        __m256 whole = _mm256_castsi256_ps(x);
        if (l->mainloop) {
            __m256 before = i ? _mm256_loadu_ps(out + COLS * v) : _mm256_setzero_ps();
            __m256 both = _mm256_mul_ps(sa, scale[v]);
            whole = _mm256_fmadd_ps(_mm256_cvtepi32_ps(x), both, before);
        }
        _mm256_storeu_ps(out + COLS * v, whole);
    }
}

/* Columns [col, col + COLS * vecs) of a record for all rows; later ones find it in the first cache.
 */
INLINE void nibbles_record(int vecs, const DirectNibbles *d, const PackBlock *b, int64_t i, int col,
                           const uint8_t *a, CpuFetch fetch)
{
    __m256i acc[MOST_VECS], sum[MOST_VECS];
    __m256 scale[MOST_VECS];
    bool has_sums = false;
    for_each(v, vecs)
        scale[v] =
            b->scale ? decode_scale(d->layout, b->scale, col + COLS * v) : _mm256_set1_ps(1.0f);
    for (int r = 0; r < d->rows; r++) {
        if (!has_sums && d->ra[r * d->layout->blocks + i] != 128) {
            nibbles_sums(vecs, d, b, col, sum);
            has_sums = true;
        }
        nibbles_units(vecs, b->codes + 4 * col, 4 * d->cols, a + r * d->lda, 8, b->units,
                      r ? FETCH_NONE : fetch, acc);
        nibbles_finish(vecs, d, b, i, r, col, acc, sum, scale);
    }
}

void cpu_direct_i4_avx2(const DirectNibbles *d)
{
    const PackLayout *l = d->layout;
    const uint8_t *a = d->a;
    const CpuFetch fetch = d->cols == PANEL_COLS ? cpu_fetch() : FETCH_NONE;
    const RecordSteps steps = record_steps(l, d->panel, d->cols);
    for (int64_t i = 0; i < l->blocks; i++) {
        PackBlock b = layout_block(l, d->panel, d->cols, i);
        for (int col = 0; d->cols == PANEL_COLS && col < PANEL_COLS; col += 4 * COLS)
            nibbles_record(4, d, &b, i, col, a, col ? FETCH_NONE : fetch);
        for (int col = 0; d->cols < PANEL_COLS && col < d->cols; col += 2 * COLS)
            nibbles_record(2, d, &b, i, col, a, FETCH_NONE);
        record_fetch(fetch, &steps, &b, 4);
        a += b.units * l->unit;
    }
}
