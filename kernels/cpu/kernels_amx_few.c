/* The sums of AMX's float tiles, in their order but without them, for one or two rows, whose
 * weights would take longer to be stored and loaded as tiles: even and odd k of a step add up apart
 * from 0, then go to the sum. Tiles round each of these additions to nearest; where they met
 * denormals, which they take for 0, neither's sums are used (gemm_matrix.c). */
#include "kernels/cpu/amx.h"

#define FEW_DIRECT 2 /* rows of float products that are done without tiles, at most */

typedef struct FewSums {
    __m512 all[FEW_DIRECT][4], even[FEW_DIRECT][4], odd[FEW_DIRECT][4];
    HalfExponents seen; /* weights of bf16 */
} FewSums;

INLINE void few_clear(int rows, int vecs, FewSums *s, bool whole)
{
    for_each(r, rows)
        for_each(v, vecs) {
            s->even[r][v] = s->odd[r][v] = _mm512_setzero_ps();
            if (whole)
                s->all[r][v] = _mm512_setzero_ps();
        }
}

/* The end of a step. */
INLINE void few_step(int rows, int vecs, FewSums *s)
{
    for_each(r, rows)
        for_each(v, vecs)
            s->all[r][v] = _mm512_add_ps(s->all[r][v], _mm512_add_ps(s->even[r][v], s->odd[r][v]));
    few_clear(rows, vecs, s, false);
}

/* Two values of K of one row. */
INLINE void few_pair(int vecs, const float *a, const __m512 *even, const __m512 *odd,
                     __m512 *sum_even, __m512 *sum_odd)
{
    __m512 x = _mm512_set1_ps(a[0]), y = _mm512_set1_ps(a[1]);
    for_each(v, vecs) {
        sum_even[v] = _mm512_fmadd_ps(x, even[v], sum_even[v]);
        sum_odd[v] = _mm512_fmadd_ps(y, odd[v], sum_odd[v]);
    }
}

/* Eight of K in nibbles, times scales where there are any. */
INLINE void few_nibbles(int rows, int vecs, bool scaled, const MatrixFew *f, const float *a,
                        const uint8_t *w, __m512 table, const __m512 *scale, FewSums *s)
{
    for_each(i, 4) {
        __m512 even[4], odd[4];
        for_each(v, vecs) {
            /* only the low four bits of an index count: another byte of the word is a load away */
            __m512i word = _mm512_loadu_si512(w + 64 * v + i);
            even[v] = _mm512_permutexvar_ps(word, table);
            odd[v] = _mm512_permutexvar_ps(_mm512_srli_epi32(word, 4), table);
            if (scaled) {
                even[v] = _mm512_mul_ps(even[v], scale[v]);
                odd[v] = _mm512_mul_ps(odd[v], scale[v]);
            }
        }
        for_each(r, rows)
            few_pair(vecs, a + r * f->lda + 2 * i, even, odd, s->even[r], s->odd[r]);
    }
}

/* As few_nibbles with scales, for one row. An activation times each value of the table is exact, as
 * a value times its scale is, and serves all columns. */
INLINE void few_scaled(int vecs, const float *a, const uint8_t *w, __m512 table,
                       const __m512 *scale, FewSums *s)
{
    for_each(i, 4) {
        __m512 even = _mm512_mul_ps(_mm512_set1_ps(a[2 * i]), table);
        __m512 odd = _mm512_mul_ps(_mm512_set1_ps(a[2 * i + 1]), table);
        for_each(v, vecs) {
            __m512i word = _mm512_loadu_si512(w + 64 * v + i), next = _mm512_srli_epi32(word, 4);
            s->even[0][v] =
                _mm512_fmadd_ps(_mm512_permutexvar_ps(word, even), scale[v], s->even[0][v]);
            s->odd[0][v] =
                _mm512_fmadd_ps(_mm512_permutexvar_ps(next, odd), scale[v], s->odd[0][v]);
        }
    }
}

/* One or two vectors of two k of bf16. */
INLINE void few_see(int vecs, const uint8_t *even, const uint8_t *odd, HalfExponents *seen)
{
    __mmask32 cols = vecs > 1 ? 0xffffffff : 0xffff;
    halves_see(seen, _mm512_maskz_loadu_epi16(cols, even));
    if (odd)
        halves_see(seen, _mm512_maskz_loadu_epi16(cols, odd));
}

/* 64 columns of bf16, in the order that unpacking makes. */
INLINE void few_bf16(const uint8_t *w, __m512 *value, HalfExponents *seen)
{
    const __m512i zero = _mm512_setzero_si512();
    for_each(h, 2) {
        __m512i halves = _mm512_loadu_si512(w + 64 * h);
        value[2 * h] = _mm512_castsi512_ps(_mm512_unpacklo_epi16(zero, halves));
        value[2 * h + 1] = _mm512_castsi512_ps(_mm512_unpackhi_epi16(zero, halves));
        halves_see(seen, halves);
    }
}

/* 64 codes of e4m3 as f16 without what tells NaNs and 2^8 times smaller, which leaves out most of
 * decoding; columns in the order that unpacking makes. By way of memory, as a conversion of what is
 * in a register takes a permutation, too. */
INLINE void few_e4m3(const uint8_t *w, __m512 *value, HalfExponents *seen)
{
    const __m512i keep = _mm512_set1_epi16((short)0xbf80), zero = _mm512_setzero_si512();
    __m512i codes = _mm512_loadu_si512(w), half[2];
    half[0] = _mm512_srai_epi16(_mm512_unpacklo_epi8(zero, codes), 1);
    half[1] = _mm512_srai_epi16(_mm512_unpackhi_epi8(zero, codes), 1);
    for_each(h, 2)
        half[h] = _mm512_and_si512(half[h], keep);
    __asm__("" : "+m"(half)); /* or the compiler would take it from the registers */
    for_each(v, 4)
        value[v] = _mm512_cvtph_ps(_mm256_load_si256((const __m256i *)(const void *)half + v));
    seen->hi = _mm512_max_epu8(seen->hi, _mm512_and_si512(codes, _mm512_set1_epi8(0x7f)));
}

/* Sums of 64 columns in order, where unpacking has made another. */
INLINE void few_in_order(FormatId fmt, __m512 *sum)
{
    if (fmt == FMT_BF16)
        unpacked_in_order(sum);
    if (fmt != FMT_E4M3)
        return;
    const __m512 bias = _mm512_set1_ps(256.0f);
    __m512 in[4];
    for_each(v, 4)
        in[v] = _mm512_mul_ps(sum[v], bias);
    sum[0] = _mm512_shuffle_f32x4(in[0], in[2], 0x44);
    sum[1] = _mm512_shuffle_f32x4(in[0], in[2], 0xee);
    sum[2] = _mm512_shuffle_f32x4(in[1], in[3], 0x44);
    sum[3] = _mm512_shuffle_f32x4(in[1], in[3], 0xee);
}

/* Two of K in bytes or words; the second may not be there. */
INLINE void few_wide(int rows, int vecs, FormatId fmt, int bytes, const MatrixFew *f,
                     const float *a, const uint8_t *w, bool has_odd, FewSums *s)
{
    int64_t step = (int64_t)bytes * f->cols;
    __m512 even[4], odd[4] = {0};
    if (vecs == 4 && fmt == FMT_E4M3) {
        few_e4m3(w, even, &s->seen);
        if (has_odd)
            few_e4m3(w + step, odd, &s->seen);
    } else if (vecs == 4 && fmt == FMT_BF16) {
        few_bf16(w, even, &s->seen);
        if (has_odd)
            few_bf16(w + step, odd, &s->seen);
    } else {
        for (int v = 0; fmt == FMT_BF16 && v < vecs; v += 2)
            few_see(vecs - v, w + 32 * v, has_odd ? w + step + 32 * v : NULL, &s->seen);
        for_each(v, vecs) {
            even[v] = decode_16(fmt, w + 16 * v * bytes);
            odd[v] = has_odd ? decode_16(fmt, w + step + 16 * v * bytes) : _mm512_setzero_ps();
        }
    }
    for_each(r, rows)
        few_pair(vecs, a + r * f->lda, even, odd, s->even[r], s->odd[r]);
}

/* The codes of one block, whose first begins a step, or with scales goes on with the one before. */
INLINE void few_block(int rows, int vecs, FormatId fmt, int bytes, bool folds, const MatrixFew *f,
                      const PackBlock *b, int col, const float *a, __m512 table,
                      const __m512 *scale, bool fetches, FewSums *s)
{
    const uint8_t *w = b->codes + col * (bytes ? bytes : 4);
    int64_t step = (int64_t)(bytes ? bytes : 4) * f->cols, k = folds ? b->k_begin : 0;
    if (bytes) {
        for (int64_t u = 0; u < b->units; u += 2) {
            if (fetches)
                fetch_ahead(FETCH_PAGES, w + u * step, 2 * bytes);
            few_wide(rows, vecs, fmt, bytes, f, a + u, w + u * step, u + 1 < b->units, s);
            if ((u + 2) % MATRIX_K == 0 || u + 2 >= b->units)
                few_step(rows, vecs, s);
        }
        return;
    }
    for (int64_t u = 0; u < b->units; u++) {
        if (fetches)
            fetch_ahead(FETCH_PAGES, w + u * step, 4);
        if (folds && rows == 1)
            few_scaled(vecs, a + 8 * u, w + u * step, table, scale, s);
        else
            few_nibbles(rows, vecs, folds, f, a + 8 * u, w + u * step, table, scale, s);
        bool ends = u + 1 == b->units && (!folds || b->k_begin + b->k_count == f->layout->k);
        if ((k + 8 * (u + 1)) % MATRIX_K == 0 || ends)
            few_step(rows, vecs, s);
    }
}

/* Columns [col, col + 16 * vecs) of a panel, all blocks. bytes 0: nibbles. */
INLINE void few_columns(int rows, int vecs, FormatId fmt, int bytes, bool folds, const MatrixFew *f,
                        int col)
{
    const PackLayout *l = f->layout;
    const __m512 table = bytes ? _mm512_setzero_ps() : code_table(l->fmt);
    const float *a = f->a;
    __m512 out[FEW_DIRECT][4], scale[4];
    FewSums s;
    E4m3Halves e4m3 = {0};
    if (vecs == 4 && l->scale_fmt == FMT_E4M3)
        e4m3 = e4m3_halves();
    for_each(r, rows)
        for_each(v, vecs)
            out[r][v] = _mm512_setzero_ps();
    few_clear(rows, vecs, &s, true);
    s.seen = NO_HALVES;
    PackBlock b = layout_block(l, f->panel, f->cols, 0);
    const RecordSteps steps = record_steps(l, f->panel, f->cols);
    const bool fetches = f->cols == PANEL_COLS && col == 0; /* for all columns */
    for (int64_t i = 0; i < l->blocks; record_next(&steps, l, f->panel, f->cols, i++, &b)) {
        block_scales(vecs, l, b.scale, col, &e4m3, scale);
        few_block(rows, vecs, fmt, bytes, folds, f, &b, col, a, table, scale, fetches, &s);
        if (fetches)
            record_fetch(FETCH_PAGES, &steps, &b, bytes ? 2 * bytes : 4);
        a += b.units * l->unit;
        for (int r = 0; vecs == 4 && r < rows; r++)
            few_in_order(fmt, s.all[r]);
        if (!l->mainloop || folds)
            continue;
        for_each(v, vecs) {
            __m512 zero = _mm512_setzero_ps();
            if (b.zero)
                zero = decode_16(FMT_I8, (const uint8_t *)b.zero + col + 16 * v);
            for_each(r, rows) {
                int64_t at = r * l->blocks + i;
                __m512 both = scale[v];
                if (f->scale)
                    both = _mm512_mul_ps(_mm512_set1_ps(f->scale[at]), both);
                out[r][v] =
                    finish_f32(s.all[r][v], zero, b.zero, b.zero ? f->sum[at] : 0, both, out[r][v]);
            }
        }
        few_clear(rows, vecs, &s, true);
    }
    for_each(r, rows)
        for_each(v, vecs)
            _mm512_storeu_ps(f->out + r * f->ld + col + 16 * v,
                             l->mainloop && !folds ? out[r][v] : s.all[r][v]);
    if (fmt == FMT_BF16)
        halves_range(&s.seen, f->exponent);
    const __m512i nan = _mm512_set1_epi8(0x7f);
    if (fmt == FMT_E4M3 && vecs == 4 && _mm512_cmpeq_epi8_mask(s.seen.hi, nan))
        f->exponent->hi = EXPONENT_SPECIAL;
}

INLINE void few_panel(FormatId fmt, int bytes, bool folds, const MatrixFew *f)
{
    if (f->cols == PANEL_COLS && f->rows == 1)
        few_columns(1, 4, fmt, bytes, folds, f, 0);
    else if (f->rows == 1)
        for (int col = 0; col < f->cols; col += 16)
            few_columns(1, 1, fmt, bytes, folds, f, col);
    else if (f->cols == PANEL_COLS)
        for (int col = 0; col < f->cols; col += 32)
            few_columns(2, 2, fmt, bytes, folds, f, col);
    else
        for (int col = 0; col < f->cols; col += 16)
            few_columns(2, 1, fmt, bytes, folds, f, col);
}

bool amx_few_rows(const MatrixFew *f)
{
    const PackLayout *l = f->layout;
    bool early_zero = l->has_zero && !l->late_zero, nibbles = format_is_nibble(l->fmt);
    if (f->rows > FEW_DIRECT && nibbles && !f->folds && !early_zero) {
        amx_few_nibbles(f);
        return true;
    }
    if (f->rows > FEW_DIRECT || early_zero || (f->folds && !nibbles) || l->fmt == FMT_F16 ||
        l->fmt == FMT_U8)
        return false;
    switch (l->fmt) {
    case FMT_BF16: few_panel(FMT_BF16, 2, false, f); break;
    case FMT_E4M3: few_panel(FMT_E4M3, 1, false, f); break;
    case FMT_E5M2: few_panel(FMT_E5M2, 1, false, f); break;
    case FMT_I8: few_panel(FMT_I8, 1, false, f); break;
    default:
        if (f->folds)
            few_panel(FMT_NONE, 0, true, f);
        else
            few_panel(FMT_NONE, 0, false, f);
    }
    if (l->fmt == FMT_E4M3 && f->exponent->hi == EXPONENT_SPECIAL) {
        *f->exponent = NO_EXPONENTS;
        return false;
    }
    return true;
}
