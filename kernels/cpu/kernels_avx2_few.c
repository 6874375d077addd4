/* Float-class weights against few rows with AVX2: codes become f32 in registers, in the order of K,
 * so that the bits are those of decode_f32 and dot_f32. One row takes all columns of a panel at a
 * time; more rows take a record 16 or 32 columns at a time, which later ones find in the first
 * cache. */
#include "kernels/cpu/avx2_impl.h"

#define MOST_VECS (PANEL_COLS / COLS)

/* What all records of a panel need. */
typedef struct Few {
    const DirectPanel *d;
    NibbleTables nibble;
    ByteTables byte;
    CpuFetch fetch;
    RecordSteps steps;
} Few;

/* A record, number i; activations from its first unit on. */
typedef struct FewRecord {
    PackBlock b;
    int64_t i;
    const float *a;
} FewRecord;

typedef __m256 FewSums[DIRECT_ROWS][MOST_VECS];

/* How codes are taken. */
typedef enum Way {
    WAY_PLAIN,
    WAY_ZERO,  /* less a zero point each */
    WAY_HALF,  /* by tables of 16 bits */
    WAY_FIXED, /* the same, but beside one row of whole numbers by those */
    WAY_HIGH,  /* of i4: I4_HIGH times as large. The bits of sums are no others, but for that, while
                * they are finite: products are multiples of the least f32, so that none is rounded
                * for being small */
    WAY_HIGH_ZERO /* .. less a zero point each */
} Way;

/* Zero points that apply to each code. */
INLINE __m256 early_zero(const FewRecord *r, int col)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(load_8(r->b.zero + col)));
}

/* 16 columns of nibbles by their table. */
INLINE void few_nibbles(int rows, bool is_half, const Few *f, const FewRecord *r, int row, int col,
                        CpuFetch fetch, FewSums acc)
{
    const int64_t step = 4 * (int64_t)f->d->cols, lda = f->d->lda;
    const uint8_t *w = r->b.codes + 4 * col;
    const float *a = r->a + row * lda;
    for (int64_t u = 0; u < r->b.units; u++, w += step, a += 8) {
        fetch_ahead(fetch, w, 4);
        for_each(part, 2) {
            __m256i bytes = nibble_bytes_16(w, part);
            __m256 b[2][4];
            for_each(i, 2)
                nibble_values(&f->nibble, is_half, bytes, i, b[i]);
            for_each(k, 4)
                for_each(m, rows) {
                    __m256 x = _mm256_broadcast_ss(a + m * lda + 4 * part + k);
                    for_each(v, 2)
                        acc[m][v] = _mm256_fmadd_ps(x, b[k % 2][2 * v + k / 2], acc[m][v]);
                }
        }
    }
}

/* 32 columns for one row. Values of 32 bits take so long that the next ones' codes are best read
 * before. */
INLINE void one_nibbles(bool is_half, const Few *f, const FewRecord *r, int col, CpuFetch fetch,
                        FewSums acc)
{
    const int64_t step = 4 * (int64_t)f->d->cols;
    const uint8_t *w = r->b.codes + 4 * col;
    const float *a = r->a;
    __m256i bytes[2], next[2];
    nibble_bytes_32(w, 0, next);
    for (int64_t u = 0; u < r->b.units; u++, w += step, a += 8) {
        fetch_ahead(fetch, w, 4);
        for_each(part, 2) {
            bytes[0] = next[0];
            bytes[1] = next[1];
            if (is_half)
                nibble_bytes_32(w, part, bytes);
            else
                nibble_bytes_32(part && u + 1 < r->b.units ? w + step : w, 1 - part, next);
            for_each(k, 4) {
                __m256 b[4], x = _mm256_broadcast_ss(a + 4 * part + k);
                nibble_values(&f->nibble, is_half, bytes[k / 2], k % 2, b);
                for_each(v, 4)
                    acc[0][v] = _mm256_fmadd_ps(x, b[v / 2 + v % 2 * 2], acc[0][v]);
            }
        }
    }
}

/* Codes of i4 at k of a unit's 8 need no table: a code among the bits of a power of two whose last
 * bit is worth 1, and less that, is itself. zero: NULL, or subtracted. */
INLINE __m256 i4_values(const uint8_t *w, int k, const __m256 *zero)
{
    const int bit = 4 * (k % 2);
    const __m256i more = _mm256_set1_epi32((127 + 23 - bit) << 23 | 8 << bit); /* 8 is the least */
    const __m256 less = _mm256_set1_ps((float)((1 << (23 - bit)) + 8));
    __m256i code = _mm256_and_si256(load_i32(w + k / 2), _mm256_set1_epi32(15 << bit));
    __m256 x = _mm256_sub_ps(_mm256_castsi256_ps(_mm256_xor_si256(code, more)), less);
    return zero ? _mm256_sub_ps(x, *zero) : x;
}

/* .. times 2^28: a code that an i32 has in its highest four bits, above zeros, is that integer. A
 * load that has the code's byte last needs no shift for it; before: the three bytes before w may be
 * read. */
#define I4_HIGH 0x1p28f
INLINE __m256 i4_high(const uint8_t *w, int k, bool before)
{
    const __m256i high = _mm256_set1_epi32((int32_t)0xf0000000);
    if (k % 2 == 0)
        return _mm256_cvtepi32_ps(_mm256_slli_epi32(load_i32(w + k / 2), 28));
    if (before || k / 2 == 3)
        return _mm256_cvtepi32_ps(_mm256_and_si256(load_i32(w + k / 2 - 3), high));
    return _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_slli_epi32(load_i32(w + k / 2), 24), high));
}

INLINE __m256 i4_value(Way way, const uint8_t *w, int k, bool before, const __m256 *zero)
{
    if (way == WAY_PLAIN || way == WAY_ZERO)
        return i4_values(w, k, way == WAY_ZERO ? zero : NULL);
    __m256 x = i4_high(w, k, before);
    return way == WAY_HIGH_ZERO ? _mm256_sub_ps(x, *zero) : x;
}

INLINE bool is_high(Way way)
{
    return way == WAY_HIGH || way == WAY_HIGH_ZERO;
}

INLINE void few_i4_unit(int rows, int vecs, Way way, bool before, const uint8_t *w, const float *a,
                        int64_t lda, const __m256 *zero, FewSums acc)
{
    const int at_once = rows > 3 ? 2 : 1; /* or else all rows' activations would fill registers */
    for_each(k, 8)
        for_each(g, vecs / at_once) {
            const int at = g * at_once;
            __m256 b[2];
            for_each(v, at_once)
                b[v] = i4_value(way, w + 32 * (at + v), k, before, zero + at + v);
            for_each(m, rows) {
                __m256 x = _mm256_broadcast_ss(a + m * lda + k);
                for_each(v, at_once)
                    acc[m][at + v] = _mm256_fmadd_ps(x, b[v], acc[m][at + v]);
            }
        }
}

INLINE void few_i4(int rows, int vecs, Way way, const Few *f, const FewRecord *r, int row, int col,
                   CpuFetch fetch, FewSums acc)
{
    const int64_t step = 4 * (int64_t)f->d->cols, lda = f->d->lda;
    const float times = is_high(way) ? I4_HIGH : 1.0f;
    const uint8_t *w = r->b.codes + 4 * col;
    const float *a = r->a + row * lda;
    __m256 zero[MOST_VECS];
    for_each(v, vecs)
        zero[v] = way == WAY_PLAIN || way == WAY_HIGH
                      ? _mm256_setzero_ps()
                      : _mm256_mul_ps(early_zero(r, col + COLS * v), _mm256_set1_ps(times));
    fetch_ahead(fetch, w, 4);
    few_i4_unit(rows, vecs, way, false, w, a, lda, zero, acc);
    for (int64_t u = 1; u < r->b.units; u++) {
        w += step, a += 8;
        fetch_ahead(fetch, w, 4);
        few_i4_unit(rows, vecs, way, true, w, a, lda, zero, acc);
    }
    for_each(m, rows)
        for_each(v, vecs)
            if (is_high(way))
                acc[m][v] = _mm256_mul_ps(acc[m][v], _mm256_set1_ps(1 / I4_HIGH));
}

/* most: as wide_values. */
INLINE void few_wide(int rows, int vecs, FormatId fmt, int bytes, bool has_zero, const Few *f,
                     const FewRecord *r, int row, int col, CpuFetch fetch, __m256i *most,
                     FewSums acc)
{
    const int64_t step = bytes * (int64_t)f->d->cols, lda = f->d->lda;
    const int at_once = values_at_once(fmt, vecs);
    const uint8_t *w = r->b.codes + bytes * col;
    const float *a = r->a + row * lda;
    for (int64_t u = 0; u < r->b.units; u++, w += step, a++) {
        __m256 x[DIRECT_ROWS];
        fetch_ahead(fetch, w, bytes);
        for_each(m, rows)
            x[m] = _mm256_broadcast_ss(a + m * lda);
        for_each(g, vecs * COLS / at_once) {
            __m256 b[4];
            wide_values(fmt, vecs, &f->byte, w + g * at_once * bytes, b, most);
            for_each(v, at_once / COLS) {
                int at = g * at_once / COLS + v;
                if (has_zero)
                    b[v] = _mm256_sub_ps(b[v], early_zero(r, col + COLS * at));
                for_each(m, rows)
                    acc[m][at] = _mm256_fmadd_ps(x[m], b[v], acc[m][at]);
            }
        }
    }
    for_each(m, rows)
        wide_in_order(fmt, vecs, acc[m]);
}

/* 32 scales of e8m0; false: one is the denormal or the NaN, which are not made by a shift. */
INLINE bool scales_e8m0(const uint8_t *codes, __m256 *sb)
{
    __m256i less = _mm256_add_epi8(load_i32(codes), _mm256_set1_epi8(-1));
    __m256i most = _mm256_max_epu8(less, _mm256_set1_epi8((char)0xfe));
    if (!_mm256_testz_si256(_mm256_cmpeq_epi8(most, less), _mm256_set1_epi8(-1)))
        return false;
    for_each(v, 4)
        sb[v] = _mm256_castsi256_ps(
            _mm256_slli_epi32(_mm256_cvtepu8_epi32(load_8(codes + COLS * v)), 23));
    return true;
}

/* Scales of a record's columns, those of bytes 32 at a time where there are as many. */
INLINE void few_scales(int vecs, const Few *f, const FewRecord *r, int col, __m256 *sb)
{
    const PackLayout *l = f->d->layout;
    for_each(v, vecs)
        sb[v] = _mm256_set1_ps(1.0f);
    if (!r->b.scale)
        return;
    for_each(g, vecs / 4) {
        const uint8_t *codes = (const uint8_t *)r->b.scale + col + 32 * g;
        bool is_done = l->scale_fmt == FMT_E4M3;
        if (is_done) {
            const __m256i order = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
            e4m3_values(&f->byte, _mm256_permutevar8x32_epi32(load_i32(codes), order), sb + 4 * g,
                        NULL);
        } else if (l->scale_fmt == FMT_E8M0) {
            is_done = scales_e8m0(codes, sb + 4 * g);
        }
        for_each(v, 4)
            if (!is_done)
                sb[4 * g + v] = decode_scale(l, r->b.scale, col + 32 * g + COLS * v);
    }
    for_each(v, vecs % 4)
        sb[vecs / 4 * 4 + v] = decode_scale(l, r->b.scale, col + vecs / 4 * 32 + COLS * v);
}

/* Sums, to which scales of activations and zero points may apply first, times scales. */
INLINE void few_scaled(int rows, int vecs, bool is_plain, const Few *f, const FewRecord *r, int row,
                       int col, const __m256 *sb, FewSums acc)
{
    const DirectPanel *d = f->d;
    for_each(m, rows) {
        int64_t at = (row + m) * d->layout->blocks + r->i;
        float *out = d->out + (row + m) * d->ld + col;
        for_each(v, vecs) {
            __m256 x = acc[m][v], both = sb[v];
            if (!is_plain && r->b.zero && d->layout->late_zero)
                x = _mm256_fnmadd_ps(early_zero(r, col + COLS * v), _mm256_set1_ps(d->sum[at]), x);
            if (!is_plain && d->scale)
                both = _mm256_mul_ps(_mm256_set1_ps(d->scale[at]), both);
            x = _mm256_fmadd_ps(x, both, _mm256_loadu_ps(out + COLS * v));
            _mm256_storeu_ps(out + COLS * v, x);
        }
    }
}

/* The end of a block. */
INLINE void few_finish(int rows, int vecs, const Few *f, const FewRecord *r, int row, int col,
                       FewSums acc)
{
    const DirectPanel *d = f->d;
    __m256 sb[MOST_VECS];
    for_each(m, rows)
        for_each(v, vecs)
            if (!d->layout->mainloop)
                _mm256_storeu_ps(d->out + (row + m) * d->ld + col + COLS * v, acc[m][v]);
    if (!d->layout->mainloop)
        return;
    few_scales(vecs, f, r, col, sb);
    if (r->b.zero || d->scale)
        few_scaled(rows, vecs, false, f, r, row, col, sb, acc);
    else
        few_scaled(rows, vecs, true, f, r, row, col, sb, acc);
}

/* Rows [row, row + rows) by columns [col, col + COLS * vecs) of a record. bytes 0: nibbles. */
INLINE void few_record(int rows, int vecs, FormatId fmt, int bytes, Way way, const Few *f,
                       const FewRecord *r, int row, int col)
{
    FewSums acc;
    const CpuFetch fetch = row || col || f->d->cols < PANEL_COLS ? FETCH_NONE : f->fetch;
    __m256i most = _mm256_setzero_si256();
    for_each(m, rows)
        for_each(v, vecs)
            acc[m][v] = _mm256_setzero_ps();
    if (bytes)
        few_wide(rows, vecs, fmt, bytes, way == WAY_ZERO, f, r, row, col, fetch, &most, acc);
    else if (fmt == FMT_I4)
        few_i4(rows, vecs, way, f, r, row, col, fetch, acc);
    else if (vecs == 2)
        few_nibbles(rows, way != WAY_PLAIN, f, r, row, col, fetch, acc);
    else
        one_nibbles(way != WAY_PLAIN, f, r, col, fetch, acc);
    if (fmt == FMT_E4M3 && e4m3_met_nan(most)) {
        for_each(m, rows)
            for_each(v, vecs)
                acc[m][v] = _mm256_setzero_ps();
        few_wide(rows, vecs, fmt, bytes, way == WAY_ZERO, f, r, row, col, FETCH_NONE, NULL, acc);
    }
    few_finish(rows, vecs, f, r, row, col, acc);
}

/* All of a record. Codes of e4m3 are best decoded 32 columns at a time, which leaves room for two
 * rows' sums. */
INLINE void few_rows(FormatId fmt, int bytes, Way way, const Few *f, const FewRecord *r)
{
    const int rows = f->d->rows, cols = f->d->cols;
    bool is_e4m3 = fmt == FMT_E4M3 && cols == PANEL_COLS;
    for (int row = 0; is_e4m3 && row < rows; row += 2)
        for (int col = 0; col < cols; col += 4 * COLS)
            if (rows - row > 1)
                few_record(2, 4, fmt, bytes, way, f, r, row, col);
            else
                few_record(1, 4, fmt, bytes, way, f, r, row, col);
    for (int col = 0; !is_e4m3 && col < cols; col += 2 * COLS)
        CASES_OF_4(rows, few_record, 2, fmt, bytes, way, f, r, 0, col)
}

/* False: the block's activations are no whole numbers. */
INLINE bool fixed_row(const Few *f, const FewRecord *r)
{
    const DirectPanel *d = f->d;
    FewSums acc;
    if (d->fixed[r->i].unit == 0)
        return false;
    const int8_t *digits = d->digits + FIXED_BYTES * (r->i * d->layout->block_units);
    cpu_fixed_sums_avx2(r->b.codes, digits, r->b.units, d->fixed[r->i], f->fetch, acc[0]);
    few_finish(1, MOST_VECS, f, r, 0, 0, acc);
    return true;
}

/* All of a record of 64 columns for one row. */
INLINE void few_row(FormatId fmt, int bytes, Way way, const Few *f, const FewRecord *r)
{
    if (way == WAY_FIXED && fixed_row(f, r))
        return;
    if (bytes || fmt == FMT_I4) {
        few_record(1, MOST_VECS, fmt, bytes, way, f, r, 0, 0);
        return;
    }
    few_record(1, 4, fmt, bytes, way, f, r, 0, 0);
    few_record(1, 4, fmt, bytes, way, f, r, 0, 4 * COLS);
}

INLINE void few_panel(FormatId fmt, int bytes, Way way, const Few *f)
{
    const DirectPanel *d = f->d;
    const PackLayout *l = d->layout;
    FewRecord r = {.b = layout_block(l, d->panel, d->cols, 0), .a = d->a};
    const bool is_whole = d->cols == PANEL_COLS;
    for (int m = 0; l->mainloop && m < d->rows; m++)
        memset(d->out + m * d->ld, 0, (size_t)d->cols * sizeof *d->out);
    for (; r.i < l->blocks; record_next(&f->steps, l, d->panel, d->cols, r.i++, &r.b)) {
        if (d->rows == 1 && is_whole)
            few_row(fmt, bytes, way, f, &r);
        else
            few_rows(fmt, bytes, way, f, &r);
        if (is_whole)
            record_fetch(f->fetch, &f->steps, &r.b, bytes ? bytes : 4);
        r.a += r.b.units * (bytes ? 1 : 8);
    }
}

/* Functions of their own, for what is constant in them. */
#define FEW_FORMAT(name, fmt, bytes, way)  \
    static void panel_##name(const Few *f) \
    {                                      \
        few_panel(fmt, bytes, way, f);     \
    }
FEW_FORMAT(f32, FMT_F32, 4, WAY_PLAIN)
FEW_FORMAT(f16, FMT_F16, 2, WAY_PLAIN)
FEW_FORMAT(bf16, FMT_BF16, 2, WAY_PLAIN)
FEW_FORMAT(e4m3, FMT_E4M3, 1, WAY_PLAIN)
FEW_FORMAT(e5m2, FMT_E5M2, 1, WAY_PLAIN)
FEW_FORMAT(i8, FMT_I8, 1, WAY_PLAIN)
FEW_FORMAT(u8, FMT_U8, 1, WAY_PLAIN)
FEW_FORMAT(i8_asym, FMT_I8, 1, WAY_ZERO)
FEW_FORMAT(i4_high, FMT_I4, 0, WAY_HIGH)
FEW_FORMAT(i4_plain, FMT_I4, 0, WAY_PLAIN)
FEW_FORMAT(i4_asym_high, FMT_I4, 0, WAY_HIGH_ZERO)
FEW_FORMAT(i4_asym_plain, FMT_I4, 0, WAY_ZERO)
FEW_FORMAT(nibbles, FMT_NONE, 0, WAY_PLAIN)
FEW_FORMAT(nibbles_half, FMT_NONE, 0, WAY_HALF)
FEW_FORMAT(fixed, FMT_E2M1, 0, WAY_FIXED)

/* Sums of WAY_HIGH that were too large for f32 leave an infinity or a NaN in the panel's results.
 */
static bool is_finite(const DirectPanel *d)
{
    __m256 less = _mm256_setzero_ps();
    for (int m = 0; m < d->rows; m++)
        for (int col = 0; col < d->cols; col += COLS) {
            __m256 x = _mm256_loadu_ps(d->out + m * d->ld + col);
            less = _mm256_or_ps(less, _mm256_sub_ps(x, x));
        }
    return _mm256_movemask_ps(_mm256_cmp_ps(less, less, _CMP_UNORD_Q)) == 0;
}

static void panel_i4(const Few *f)
{
    panel_i4_high(f);
    if (!is_finite(f->d))
        panel_i4_plain(f);
}

static void panel_i4_asym(const Few *f)
{
    panel_i4_asym_high(f);
    if (!is_finite(f->d))
        panel_i4_asym_plain(f);
}

void cpu_direct_avx2(const DirectPanel *d)
{
    const PackLayout *l = d->layout;
    Few f = {.d = d, .fetch = cpu_fetch(), .steps = record_steps(l, d->panel, d->cols)};
    bool early = l->has_zero && !l->late_zero;
    if (l->unit == 8)
        f.nibble = nibble_tables(d->table);
    if (l->fmt == FMT_E4M3 || l->scale_fmt == FMT_E4M3)
        f.byte = e4m3_tables();
    switch (l->fmt) {
    case FMT_F32: panel_f32(&f); break;
    case FMT_F16: panel_f16(&f); break;
    case FMT_BF16: panel_bf16(&f); break;
    case FMT_E4M3: panel_e4m3(&f); break;
    case FMT_E5M2: panel_e5m2(&f); break;
    case FMT_I8: (early ? panel_i8_asym : panel_i8)(&f); break;
    case FMT_U8: panel_u8(&f); break;
    case FMT_I4: (early ? panel_i4_asym : panel_i4)(&f); break;
    case FMT_E2M1: (d->digits ? panel_fixed : panel_nibbles_half)(&f); break;
    default: (f.nibble.is_half ? panel_nibbles_half : panel_nibbles)(&f);
    }
}
