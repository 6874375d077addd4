/* Nibbles of the integer class against few rows, with AVX2's products of bytes: codes are the
 * unsigned operand and activations, less 128, the signed one, so that pairs of products of four
 * units fit 16 bits. */
#include "kernels/cpu/avx2_impl.h"

#define MOST_VECS 4
#define MOST_ROWS 2 /* whose sums all have a register */
typedef __m256i RowSums[MOST_VECS];

/* Four activations, less 128, for all columns. */
INLINE __m256i signed_4(const uint8_t *a)
{
    int32_t word;
    memcpy(&word, a, 4);
    return _mm256_xor_si256(_mm256_set1_epi32(word), _mm256_set1_epi8(-128));
}

/* Sums of one or two rows over some units of a record, whose activations lie a_step bytes apart. */
INLINE void nibbles_units(int rows, int vecs, const uint8_t *w, int64_t w_step, const uint8_t *a,
                          int64_t lda, int64_t a_step, int64_t units, CpuFetch fetch, RowSums *acc)
{
    const __m256i low = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
    for_each(r, rows)
        for_each(v, vecs)
            acc[r][v] = _mm256_setzero_si256();
    for (int64_t u = 0, end; u < units; u = end) {
        RowSums half[MOST_ROWS];
        for_each(r, rows)
            for_each(v, vecs)
                half[r][v] = _mm256_setzero_si256();
        end = u + 4 < units ? u + 4 : units;
        for (int64_t i = u; i < end; i++, w += w_step, a += a_step) {
            __m256i x0[MOST_ROWS], x1[MOST_ROWS];
            fetch_ahead(fetch, w, 4);
            for_each(r, rows) {
                x0[r] = signed_4(a + r * lda);
                x1[r] = signed_4(a + r * lda + 4);
            }
            for_each(v, vecs) {
                __m256i b = load_i32(w + 32 * v);
                __m256i b0 = _mm256_and_si256(b, low);
                __m256i b1 = _mm256_and_si256(_mm256_srli_epi16(b, 4), low);
                for_each(r, rows) {
                    half[r][v] = _mm256_add_epi16(half[r][v], _mm256_maddubs_epi16(b0, x0[r]));
                    half[r][v] = _mm256_add_epi16(half[r][v], _mm256_maddubs_epi16(b1, x1[r]));
                }
            }
        }
        for_each(r, rows)
            for_each(v, vecs)
                acc[r][v] = _mm256_add_epi32(acc[r][v], _mm256_madd_epi16(half[r][v], ones));
    }
}

/* Of the stored codes of some columns. */
INLINE void nibbles_sums(int vecs, const DirectNibbles *d, const PackBlock *b, int col,
                         RowSums *sum)
{
    static const uint8_t one[8] = {129, 129, 129, 129, 129, 129, 129, 129};
    if (!d->layout->sum_bytes)
        nibbles_units(1, vecs, b->codes + 4 * col, 4 * d->cols, one, 0, 0, b->units, FETCH_NONE,
                      sum);
    else
        for_each(v, vecs)
            (*sum)[v] = load_i32((const int32_t *)b->sum + col + COLS * v);
}

/* Does a row's correction in block number i need the sums? */
INLINE bool nibbles_need_sums(const DirectNibbles *d, int64_t i)
{
    bool needs = false;
    for (int r = 0; r < d->rows; r++)
        needs = needs || d->ra[r * d->layout->blocks + i] != 128;
    return needs;
}

/* What belongs to some columns of a record. */
typedef struct ColumnWords {
    RowSums sum;
    __m256i zero[MOST_VECS], by[MOST_VECS];
    __m256 scale[MOST_VECS];
} ColumnWords;

/* All but the sums, which are 0. */
INLINE void columns_words(int vecs, const PackLayout *l, const PackBlock *b, int col,
                          ColumnWords *ret)
{
    const __m256i low = _mm256_set1_epi32(15), one = _mm256_set1_epi32(1);
    for_each(v, vecs) {
        int at = col + COLS * v;
        ret->zero[v] = _mm256_set1_epi32(-l->weight_offset);
        ret->sum[v] = _mm256_setzero_si256();
        ret->by[v] = one;
        ret->scale[v] = _mm256_set1_ps(1.0f);
        if (b->zero)
            ret->zero[v] = _mm256_cvtepi8_epi32(load_8(b->zero + at));
        if (b->scale)
            ret->scale[v] = decode_scale(l, b->scale, at);
        if (b->factor) {
            __m256i bytes = _mm256_cvtepu8_epi32(load_8(b->factor + at));
            ret->zero[v] = _mm256_srli_epi32(bytes, 4);
            ret->by[v] = _mm256_add_epi32(_mm256_and_si256(bytes, low), one);
        }
    }
}

/* The end of block number i for row r: what was too much is subtracted, factors or scales apply. */
INLINE void nibbles_finish(int vecs, const DirectNibbles *d, int64_t i, int r, int col,
                           const __m256i *acc, const ColumnWords *words)
{
    const PackLayout *l = d->layout;
    int64_t at = r * l->blocks + i;
    const __m256i rb = _mm256_set1_epi32(d->rb[at]), ra = _mm256_set1_epi32(d->ra[at] - 128);
    const __m256 sa = _mm256_set1_ps(d->scale ? d->scale[at] : 1.0f);
    bool needs_sums = d->ra[at] != 128;
    float *out = (float *)d->out + r * d->ld + col;
    for_each(v, vecs) {
        __m256i less = _mm256_mullo_epi32(rb, words->zero[v]);
        if (needs_sums)
            less = _mm256_add_epi32(less, _mm256_mullo_epi32(ra, words->sum[v]));
        __m256i x = _mm256_sub_epi32(acc[v], less);
        __m256 before = i ? _mm256_loadu_ps(out + COLS * v) : _mm256_setzero_ps();
        __m256 whole = _mm256_castsi256_ps(x);
        if (l->factored) {
            x = _mm256_mullo_epi32(x, words->by[v]);
            whole = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(before), x));
        } else if (l->mainloop) {
            __m256 both = _mm256_mul_ps(sa, words->scale[v]);
            whole = _mm256_fmadd_ps(_mm256_cvtepi32_ps(x), both, before);
        }
        _mm256_storeu_ps(out + COLS * v, whole);
    }
}

/* Rows from r on, whose activations are at a. */
INLINE void nibbles_rows(int rows, int vecs, const DirectNibbles *d, const PackBlock *b, int64_t i,
                         int r, int col, const uint8_t *a, CpuFetch fetch, const ColumnWords *words)
{
    RowSums acc[MOST_ROWS];
    nibbles_units(rows, vecs, b->codes + 4 * col, 4 * d->cols, a, d->lda, 8, b->units, fetch, acc);
    for_each(k, rows)
        nibbles_finish(vecs, d, i, r + k, col, acc[k], words);
}

/* Columns [col, col + COLS * vecs) of a record for all rows; later ones find it in the first cache.
 */
INLINE void nibbles_record(int vecs, const DirectNibbles *d, const PackBlock *b, int64_t i, int col,
                           const uint8_t *a, CpuFetch fetch)
{
    ColumnWords words;
    columns_words(vecs, d->layout, b, col, &words);
    if (nibbles_need_sums(d, i))
        nibbles_sums(vecs, d, b, col, &words.sum);
    for (int r = 0; r < d->rows; r += MOST_ROWS, a += MOST_ROWS * d->lda) {
        const CpuFetch how = r ? FETCH_NONE : fetch;
        if (r + 1 < d->rows)
            nibbles_rows(MOST_ROWS, vecs, d, b, i, r, col, a, how, &words);
        else
            nibbles_rows(1, vecs, d, b, i, r, col, a, how, &words);
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
