/* Nibbles of the integer class against few rows, with AVX-512's dot products. */
#include "kernels/cpu/avx512_impl.h"

/* Units of a block of nibbles for few rows. Weights are the unsigned operand and activations, less
 * 128, the signed one: without zero points of activations nobody needs the sums of weights. */
INLINE void nibbles_units(int rows, int vecs, const DirectNibbles *d, const uint8_t *a,
                          const uint8_t *w, int64_t units, CpuFetch fetch,
                          __m512i acc[DIRECT_ROWS][4])
{
    const __m512i low = _mm512_set1_epi8(15), flip = _mm512_set1_epi8(-128);
    for (int64_t u = 0; u < units; u++, w += 4 * d->cols, a += 8) {
        __m512i x0[DIRECT_ROWS], x1[DIRECT_ROWS];
        fetch_ahead(fetch, w, 4);
        for_each(r, rows) {
            x0[r] = _mm512_xor_si512(broadcast_4(a + r * d->lda), flip);
            x1[r] = _mm512_xor_si512(broadcast_4(a + r * d->lda + 4), flip);
        }
        for_each(v, vecs) {
            __m512i b = _mm512_loadu_si512(w + 64 * v);
            __m512i b0 = _mm512_and_si512(b, low);
            __m512i b1 = _mm512_and_si512(_mm512_srli_epi16(b, 4), low);
            for_each(r, rows) {
                acc[r][v] = _mm512_dpbusd_epi32(acc[r][v], b0, x0[r]);
                acc[r][v] = _mm512_dpbusd_epi32(acc[r][v], b1, x1[r]);
            }
        }
    }
}

/* Of the codes of 16 columns in a record. */
INLINE __m512i nibbles_sum(const DirectNibbles *d, const PackBlock *b, int col)
{
    const __m512i low = _mm512_set1_epi8(15), ones = _mm512_set1_epi8(1);
    const uint8_t *w = b->codes + 4 * col;
    __m512i sum = _mm512_setzero_si512();
    if (d->layout->sum_bytes)
        return _mm512_loadu_si512((const int32_t *)b->sum + col);
    for (int64_t u = 0; u < b->units; u++, w += 4 * d->cols) {
        __m512i both = _mm512_loadu_si512(w);
        sum = _mm512_dpbusd_epi32(sum, _mm512_and_si512(both, low), ones);
        sum = _mm512_dpbusd_epi32(sum, _mm512_and_si512(_mm512_srli_epi16(both, 4), low), ones);
    }
    return sum;
}

/* Does a row's correction in block number i need the sums? */
INLINE bool nibbles_need_sums(int rows, const DirectNibbles *d, int64_t i)
{
    bool needs = false;
    for_each(r, rows)
        needs = needs || d->ra[r * d->layout->blocks + i] != 128;
    return needs;
}

/* What is subtracted from a sum of row r and 16 columns of block b, number i. */
INLINE __m512i nibbles_less(const DirectNibbles *d, const PackBlock *b, int64_t i, int r, int col,
                            __m512i sum)
{
    const PackLayout *l = d->layout;
    int64_t at = r * l->blocks + i;
    uint32_t rb = (uint32_t)d->rb[at], ra = (uint32_t)d->ra[at] - 128;
    __m512i less = _mm512_set1_epi32((int32_t)(rb * (uint32_t)-l->weight_offset));
    if (b->zero) {
        const __m128i *zero = (const void *)(b->zero + col);
        less = _mm512_mullo_epi32(_mm512_set1_epi32((int32_t)rb),
                                  _mm512_cvtepi8_epi32(_mm_loadu_si128(zero)));
    }
    if (ra)
        less = _mm512_add_epi32(less, _mm512_mullo_epi32(_mm512_set1_epi32((int32_t)ra), sum));
    return less;
}

/* The end of a factored block for 16 columns; out: sums of i32. */
INLINE __m512 finish_factored(const uint8_t *factor, uint32_t rb, __m512i acc, __m512 out)
{
    const __m512i low = _mm512_set1_epi32(15), one = _mm512_set1_epi32(1);
    __m512i bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)factor));
    __m512i by = _mm512_add_epi32(_mm512_and_si512(bytes, low), one);
    __m512i x = _mm512_mullo_epi32(_mm512_set1_epi32((int32_t)rb), _mm512_srli_epi32(bytes, 4));
    x = _mm512_mullo_epi32(_mm512_sub_epi32(acc, x), by);
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(out), x));
}

/* Columns [col, col + 16 * vecs) of a panel, all blocks. */
INLINE void nibbles_columns(int rows, int vecs, const DirectNibbles *d, int col)
{
    const PackLayout *l = d->layout;
    const CpuFetch fetch = vecs == 4 ? cpu_fetch() : FETCH_NONE;
    const uint8_t *a = d->a;
    __m512 out[DIRECT_ROWS][4];
    PackBlock b = layout_block(l, d->panel, d->cols, 0);
    const RecordSteps steps = record_steps(l, d->panel, d->cols);
    for_each(r, rows)
        for_each(v, vecs)
            out[r][v] = _mm512_setzero_ps();
    for (int64_t i = 0; i < l->blocks; record_next(&steps, l, d->panel, d->cols, i++, &b)) {
        __m512i acc[DIRECT_ROWS][4];
        for_each(r, rows)
            for_each(v, vecs)
                acc[r][v] = _mm512_setzero_si512();
        nibbles_units(rows, vecs, d, a, b.codes + 4 * col, b.units, fetch, acc);
        record_fetch(fetch, &steps, &b, 4);
        a += b.units * l->unit;
        bool sums = nibbles_need_sums(rows, d, i);
        for_each(v, vecs) {
            __m512i sum = sums ? nibbles_sum(d, &b, col + 16 * v) : _mm512_setzero_si512();
            __m512 sb = _mm512_set1_ps(1.0f);
            if (b.scale)
                sb = decode_scale(l, b.scale, col + 16 * v);
            for_each(r, rows) {
                if (b.factor) {
                    uint32_t rb = (uint32_t)d->rb[r * l->blocks + i];
                    out[r][v] = finish_factored(b.factor + col + 16 * v, rb, acc[r][v], out[r][v]);
                    continue;
                }
                __m512i x =
                    _mm512_sub_epi32(acc[r][v], nibbles_less(d, &b, i, r, col + 16 * v, sum));
                __m512 sa = _mm512_set1_ps(d->scale ? d->scale[r * l->blocks + i] : 1.0f);
                out[r][v] = l->mainloop ? _mm512_fmadd_ps(_mm512_cvtepi32_ps(x),
                                                          _mm512_mul_ps(sa, sb), out[r][v])
                                        : _mm512_castsi512_ps(x);
            }
        }
    }
    for_each(r, rows)
        for_each(v, vecs)
            _mm512_storeu_ps((float *)d->out + r * d->ld + col + 16 * v, out[r][v]);
}

void avx512_direct_i4(const DirectNibbles *d)
{
    int vecs = d->cols == PANEL_COLS ? 4 : 1;
    for (int col = 0; col < d->cols; col += 16 * vecs)
        switch (d->rows * 8 + vecs) {
        case 8 + 4: nibbles_columns(1, 4, d, col); break;
        case 16 + 4: nibbles_columns(2, 4, d, col); break;
        case 24 + 4: nibbles_columns(3, 4, d, col); break;
        case 32 + 4: nibbles_columns(4, 4, d, col); break;
        case 8 + 1: nibbles_columns(1, 1, d, col); break;
        case 16 + 1: nibbles_columns(2, 1, d, col); break;
        case 24 + 1: nibbles_columns(3, 1, d, col); break;
        default: nibbles_columns(4, 1, d, col); break;
        }
}
