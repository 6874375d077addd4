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

/* Zero points that apply to each code. */
INLINE __m256 early_zero(const FewRecord *r, int col)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(load_8(r->b.zero + col)));
}

INLINE void few_nibbles(int rows, int vecs, bool is_half, bool has_zero, const Few *f,
                        const FewRecord *r, int row, int col, CpuFetch fetch, FewSums acc)
{
    const int64_t step = 4 * (int64_t)f->d->cols, lda = f->d->lda;
    const uint8_t *w = r->b.codes + 4 * col;
    const float *a = r->a + row * lda;
    __m256 zero[MOST_VECS];
    for_each(v, vecs)
        zero[v] = has_zero ? early_zero(r, col + COLS * v) : _mm256_setzero_ps();
    for (int64_t u = 0; u < r->b.units; u++, w += step, a += 8) {
        fetch_ahead(fetch, w, 4);
        NibbleUnit unit[MOST_VECS];
        for_each(v, vecs)
            nibble_unit(&f->nibble, is_half, w + 32 * v, &unit[v]);
        for_each(k, 8) {
            __m256 x[DIRECT_ROWS];
            for_each(m, rows)
                x[m] = _mm256_broadcast_ss(a + m * lda + k);
            for_each(v, vecs) {
                __m256 b = nibble_values(&unit[v], is_half, k);
                if (has_zero)
                    b = _mm256_sub_ps(b, zero[v]);
                for_each(m, rows)
                    acc[m][v] = _mm256_fmadd_ps(x[m], b, acc[m][v]);
            }
        }
    }
}

INLINE void few_wide(int rows, int vecs, FormatId fmt, int bytes, bool has_zero, const Few *f,
                     const FewRecord *r, int row, int col, CpuFetch fetch, FewSums acc)
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
            wide_values(fmt, vecs, &f->byte, w + g * at_once * bytes, b);
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

/* The end of a block. */
INLINE void few_finish(int rows, int vecs, const Few *f, const FewRecord *r, int row, int col,
                       FewSums acc)
{
    const DirectPanel *d = f->d;
    const PackLayout *l = d->layout;
    const __m256 outer = _mm256_set1_ps(d->outer);
    const bool late = r->b.zero && l->late_zero;
    for_each(v, vecs) {
        int at_col = col + COLS * v;
        __m256 sb = _mm256_set1_ps(1.0f), zero = _mm256_setzero_ps();
        if (r->b.scale)
            sb = decode_scale(l, r->b.scale, at_col, outer);
        if (late)
            zero = early_zero(r, at_col);
        for_each(m, rows) {
            int64_t at = (row + m) * l->blocks + r->i;
            float *out = d->out + (row + m) * d->ld + at_col;
            __m256 x = acc[m][v];
            if (late)
                x = _mm256_fnmadd_ps(zero, _mm256_set1_ps(d->sum[at]), x);
            if (l->mainloop) {
                __m256 both = d->scale ? _mm256_mul_ps(_mm256_set1_ps(d->scale[at]), sb) : sb;
                x = _mm256_fmadd_ps(x, both, r->i ? _mm256_loadu_ps(out) : _mm256_setzero_ps());
            }
            _mm256_storeu_ps(out, x);
        }
    }
}

/* Rows [row, row + rows) by columns [col, col + COLS * vecs) of a record. bytes 0: nibbles. */
INLINE void few_record(int rows, int vecs, FormatId fmt, int bytes, bool is_half, bool has_zero,
                       const Few *f, const FewRecord *r, int row, int col)
{
    FewSums acc;
    const CpuFetch fetch = row || col || f->d->cols < PANEL_COLS ? FETCH_NONE : f->fetch;
    for_each(m, rows)
        for_each(v, vecs)
            acc[m][v] = _mm256_setzero_ps();
    if (bytes)
        few_wide(rows, vecs, fmt, bytes, has_zero, f, r, row, col, fetch, acc);
    else
        few_nibbles(rows, vecs, is_half, has_zero, f, r, row, col, fetch, acc);
    few_finish(rows, vecs, f, r, row, col, acc);
}

/* All of a record. Codes of e4m3 are best decoded 32 columns at a time, which leaves room for two
 * rows' sums. */
INLINE void few_rows(FormatId fmt, int bytes, bool is_half, bool has_zero, const Few *f,
                     const FewRecord *r)
{
    const int rows = f->d->rows, cols = f->d->cols;
    bool is_e4m3 = fmt == FMT_E4M3 && cols == PANEL_COLS;
    if (rows == 1 && cols == PANEL_COLS) {
        few_record(1, MOST_VECS, fmt, bytes, is_half, has_zero, f, r, 0, 0);
        return;
    }
    for (int row = 0; is_e4m3 && row < rows; row += 2)
        for (int col = 0; col < cols; col += 4 * COLS)
            if (rows - row > 1)
                few_record(2, 4, fmt, bytes, is_half, has_zero, f, r, row, col);
            else
                few_record(1, 4, fmt, bytes, is_half, has_zero, f, r, row, col);
    for (int col = 0; !is_e4m3 && col < cols; col += 2 * COLS)
        switch (rows) {
        case 1: few_record(1, 2, fmt, bytes, is_half, has_zero, f, r, 0, col); break;
        case 2: few_record(2, 2, fmt, bytes, is_half, has_zero, f, r, 0, col); break;
        case 3: few_record(3, 2, fmt, bytes, is_half, has_zero, f, r, 0, col); break;
        default: few_record(4, 2, fmt, bytes, is_half, has_zero, f, r, 0, col); break;
        }
}

/* Functions of their own, for what is constant in them. */
#define FEW_FORMAT(name, fmt, bytes, is_half, has_zero)         \
    static void record_##name(const Few *f, const FewRecord *r) \
    {                                                           \
        few_rows(fmt, bytes, is_half, has_zero, f, r);          \
    }
FEW_FORMAT(f32, FMT_F32, 4, false, false)
FEW_FORMAT(f16, FMT_F16, 2, false, false)
FEW_FORMAT(bf16, FMT_BF16, 2, false, false)
FEW_FORMAT(e4m3, FMT_E4M3, 1, false, false)
FEW_FORMAT(e5m2, FMT_E5M2, 1, false, false)
FEW_FORMAT(i8, FMT_I8, 1, false, false)
FEW_FORMAT(u8, FMT_U8, 1, false, false)
FEW_FORMAT(i8_asym, FMT_I8, 1, false, true)
FEW_FORMAT(nibbles, FMT_NONE, 0, false, false)
FEW_FORMAT(nibbles_half, FMT_NONE, 0, true, false)
FEW_FORMAT(nibbles_asym, FMT_NONE, 0, true, true)

static void few_record_of(const Few *f, const FewRecord *r)
{
    const PackLayout *l = f->d->layout;
    bool early = r->b.zero && !l->late_zero;
    switch (l->fmt) {
    case FMT_F32: record_f32(f, r); break;
    case FMT_F16: record_f16(f, r); break;
    case FMT_BF16: record_bf16(f, r); break;
    case FMT_E4M3: record_e4m3(f, r); break;
    case FMT_E5M2: record_e5m2(f, r); break;
    case FMT_I8: (early ? record_i8_asym : record_i8)(f, r); break;
    case FMT_U8: record_u8(f, r); break;
    default:
        (early               ? record_nibbles_asym
         : f->nibble.is_half ? record_nibbles_half
                             : record_nibbles)(f, r);
    }
}

void cpu_direct_avx2(const DirectPanel *d)
{
    const PackLayout *l = d->layout;
    Few f = {.d = d, .fetch = cpu_fetch(), .steps = record_steps(l, d->panel, d->cols)};
    FewRecord r = {.b = layout_block(l, d->panel, d->cols, 0), .a = d->a};
    if (l->unit == 8)
        f.nibble = nibble_tables(d->table);
    if (l->fmt == FMT_E4M3)
        f.byte = e4m3_tables();
    for (; r.i < l->blocks; record_next(&f.steps, l, d->panel, d->cols, r.i++, &r.b)) {
        few_record_of(&f, &r);
        if (d->cols == PANEL_COLS)
            record_fetch(f.fetch, &f.steps, &r.b, l->unit == 8 ? 4 : l->unit_bytes);
        r.a += r.b.units * l->unit;
    }
}
