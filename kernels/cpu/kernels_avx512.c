/* AVX-512 with VNNI: blocks of 6 rows by 64 columns in 24 accumulators. */
#include "kernels/cpu/avx512_impl.h"
#include "kernels/cpu/tile_impl.h"

#define BLOCK_ROWS 6

/* Rows from `row` of a block's end, for one vector of columns. */
INLINE void finish_i32(const BlockFinish *f, int64_t row, int rows, int col, __m512i *acc,
                       int acc_step, int32_t *c, int64_t ldc)
{
    __m512i sum = _mm512_loadu_si512(f->sum + col);
    __m512i zero = f->zero ? _mm512_loadu_si512(f->zero + col) : _mm512_setzero_si512();
    __m512 sb = f->sb ? _mm512_loadu_ps(f->sb + col) : _mm512_set1_ps(1.0f);
    for_each(r, rows) {
        int64_t at = (row + r) * f->step;
        int32_t rb = f->rb[at];
        __m512i less = _mm512_mullo_epi32(_mm512_set1_epi32(f->ra[at]), sum);
        __m512i part = f->zero ? _mm512_mullo_epi32(_mm512_set1_epi32(rb), zero)
                               : _mm512_set1_epi32((int32_t)((uint32_t)rb * (uint32_t)f->offset));
        __m512i x = _mm512_sub_epi32(acc[r * acc_step], _mm512_add_epi32(less, part));
        if (!f->out) {
            _mm512_storeu_si512(c + r * ldc + col, x);
            continue;
        }
        float *out = f->out + (row + r) * f->ld + col;
        __m512 scale = _mm512_mul_ps(_mm512_set1_ps(f->sa ? f->sa[at] : 1.0f), sb);
        _mm512_storeu_ps(out, _mm512_fmadd_ps(_mm512_cvtepi32_ps(x), scale, _mm512_loadu_ps(out)));
    }
}

INLINE void finish_rows_f32(const BlockFinish *f, int64_t row, int rows, int col, __m512 *acc,
                            int acc_step)
{
    __m512 zero =
        f->zero ? _mm512_cvtepi32_ps(_mm512_loadu_si512(f->zero + col)) : _mm512_setzero_ps();
    __m512 sb = f->sb ? _mm512_loadu_ps(f->sb + col) : _mm512_set1_ps(1.0f);
    for_each(r, rows) {
        int64_t at = (row + r) * f->step;
        float *out = f->out + (row + r) * f->ld + col;
        __m512 scale = _mm512_mul_ps(_mm512_set1_ps(f->sa ? f->sa[at] : 1.0f), sb);
        __m512 x = finish_f32(acc[r * acc_step], zero, f->zero != NULL, f->zero ? f->rb_f32[at] : 0,
                              scale, _mm512_loadu_ps(out));
        _mm512_storeu_ps(out, x);
    }
}

INLINE void dot_i32_block(int rows, int vecs, const uint8_t *a, int64_t lda, const int8_t *w,
                          int64_t w_step, int64_t units, int32_t *c, int64_t ldc, bool accumulate,
                          const BlockFinish *finish, const uint8_t *ahead, int64_t row, int col)
{
    const CpuFetch fetch = rows <= DIRECT_ROWS && vecs == 4 ? cpu_fetch() : FETCH_NONE;
    __m512i acc[BLOCK_ROWS][4];
    for_each(r, rows)
        for_each(v, vecs)
            acc[r][v] =
                accumulate ? _mm512_loadu_si512(c + r * ldc + 16 * v) : _mm512_setzero_si512();
    ahead = ahead ? ahead : (const uint8_t *)w;
    for (int64_t u = 0; u < units; u++, w += w_step, a += 4, ahead += 64) {
        __m512i b[4];
        if (rows > DIRECT_ROWS)
            _mm_prefetch((const char *)ahead, _MM_HINT_T1);
        fetch_ahead(fetch, w, 4);
        for_each(v, vecs)
            b[v] = _mm512_loadu_si512(w + 64 * v);
        for_each(r, rows) {
            __m512i x = broadcast_4(a + r * lda);
            for_each(v, vecs)
                acc[r][v] = _mm512_dpbusd_epi32(acc[r][v], x, b[v]);
        }
    }
    for_each(i, 2) /* the block's words, which lie between its codes and the next one's */
        fetch_ahead(fetch, w + 256 * i, 4);
    if (finish) {
        for_each(v, vecs)
            finish_i32(finish, row, rows, col + 16 * v, &acc[0][v], 4, c - col, ldc);
        return;
    }
    for_each(r, rows)
        for_each(v, vecs)
            _mm512_storeu_si512(c + r * ldc + 16 * v, acc[r][v]);
}

INLINE void dot_f32_block(int rows, int vecs, const float *a, int64_t lda, const float *w,
                          int64_t w_step, int64_t k, float *c, int64_t ldc, bool accumulate,
                          const BlockFinish *finish, int64_t row, int col)
{
    __m512 acc[BLOCK_ROWS][4];
    for_each(r, rows)
        for_each(v, vecs)
            acc[r][v] = accumulate ? _mm512_loadu_ps(c + r * ldc + 16 * v) : _mm512_setzero_ps();
    for (int64_t i = 0; i < k; i++, w += w_step) {
        __m512 b[4];
        for_each(v, vecs)
            b[v] = _mm512_loadu_ps(w + 16 * v);
        for_each(r, rows) {
            __m512 x = _mm512_set1_ps(a[r * lda + i]);
            for_each(v, vecs)
                acc[r][v] = _mm512_fmadd_ps(x, b[v], acc[r][v]);
        }
    }
    if (finish) {
        for_each(v, vecs)
            finish_rows_f32(finish, row, rows, col + 16 * v, &acc[0][v], 4);
        return;
    }
    for_each(r, rows)
        for_each(v, vecs)
            _mm512_storeu_ps(c + r * ldc + 16 * v, acc[r][v]);
}

static void dot_i32(int64_t rows, const uint8_t *a, int64_t lda, const int8_t *w, int cols,
                    int64_t units, int32_t *c, int64_t ldc, bool accumulate,
                    const BlockFinish *finish, const uint8_t *ahead)
{
    const int64_t quarter = 64 * units; /* of what is fetched, by each of the first blocks */
    for (int64_t r = 0; r < rows; r += BLOCK_ROWS) {
        const uint8_t *x = a + r * lda;
        const uint8_t *next = ahead && r < 4 * BLOCK_ROWS ? ahead + r / BLOCK_ROWS * quarter : NULL;
        int32_t *out = c + r * ldc;
        int64_t some = rows - r < BLOCK_ROWS ? rows - r : BLOCK_ROWS;
        if (cols == PANEL_COLS) {
            CASES_OF_6(some, dot_i32_block, 4, x, lda, w, 256, units, out, ldc, accumulate, finish,
                       next, r, 0)
            continue;
        }
        for (int col = 0; col < cols; col += 16)
            CASES_OF_6(some, dot_i32_block, 1, x, lda, w + 4 * col, 4 * cols, units, out + col, ldc,
                       accumulate, finish, NULL, r, col)
    }
}

static void dot_f32(int64_t rows, const float *a, int64_t lda, const float *w, int cols, int64_t k,
                    float *c, int64_t ldc, bool accumulate, const BlockFinish *finish)
{
    for (int64_t r = 0; r < rows; r += BLOCK_ROWS) {
        const float *x = a + r * lda;
        float *out = c + r * ldc;
        int64_t some = rows - r < BLOCK_ROWS ? rows - r : BLOCK_ROWS;
        if (cols == PANEL_COLS) {
            CASES_OF_6(some, dot_f32_block, 4, x, lda, w, 64, k, out, ldc, accumulate, finish, r, 0)
            continue;
        }
        for (int col = 0; col < cols; col += 16)
            CASES_OF_6(some, dot_f32_block, 1, x, lda, w + col, cols, k, out + col, ldc, accumulate,
                       finish, r, col)
    }
}

/* Decoding ------------------------------------------------------------------------------------- */

INLINE void decode_wide(FormatId fmt, int bytes, const uint8_t *src, int cols, int64_t units,
                        const int32_t *zero, float *dst)
{
    for (int col = 0; col < cols; col += 16) {
        __m512 z = _mm512_setzero_ps();
        if (zero)
            z = _mm512_cvtepi32_ps(_mm512_loadu_si512(zero + col));
        for (int64_t u = 0; u < units; u++) {
            __m512 x = decode_16(fmt, src + (u * cols + col) * bytes);
            _mm512_storeu_ps(dst + u * cols + col, zero ? _mm512_sub_ps(x, z) : x);
        }
    }
}

INLINE void decode_nibbles(const float *value, const uint8_t *src, int cols, int64_t units,
                           const int32_t *zero, float *dst)
{
    const __m512 table = _mm512_loadu_ps(value);
    for (int64_t u = 0; u < units; u++)
        for (int col = 0; col < cols; col += 16) {
            __m512i word = _mm512_loadu_si512(src + (u * cols + col) * 4);
            __m512 z = _mm512_setzero_ps();
            if (zero)
                z = _mm512_cvtepi32_ps(_mm512_loadu_si512(zero + col));
            for_each(i, 8) {
                __m512 x = _mm512_permutexvar_ps(word, table);
                word = _mm512_srli_epi32(word, 4);
                _mm512_storeu_ps(dst + (u * 8 + i) * cols + col, zero ? _mm512_sub_ps(x, z) : x);
            }
        }
}

/* Codes of a codebook: what one register does not hold, or each column has for itself. */
INLINE void decode_gathered(bool nibbles, const CodeTables *tables, const uint8_t *src, int cols,
                            int64_t units, float *dst)
{
    const float *first = tables->all ? tables->all : tables->first;
    const __m512i low = _mm512_set1_epi32(15);
    for (int col = 0; col < cols; col += 16) {
        __m512i at =
            tables->all ? _mm512_setzero_si512() : _mm512_loadu_si512(tables->offset + col);
        for (int64_t u = 0; u < units; u++) {
            __m512i code;
            if (!nibbles) {
                code = _mm512_cvtepu8_epi32(
                    _mm_loadu_si128((const __m128i *)(const void *)(src + u * cols + col)));
                _mm512_storeu_ps(dst + u * cols + col,
                                 _mm512_i32gather_ps(_mm512_add_epi32(code, at), first, 4));
                continue;
            }
            code = _mm512_loadu_si512(src + (u * cols + col) * 4);
            for_each(i, 8) {
                __m512i index = _mm512_add_epi32(_mm512_and_si512(code, low), at);
                code = _mm512_srli_epi32(code, 4);
                _mm512_storeu_ps(dst + (u * 8 + i) * cols + col,
                                 _mm512_i32gather_ps(index, first, 4));
            }
        }
    }
}

static void decode_f32(FormatId fmt, const uint8_t *src, int cols, int64_t units,
                       const int32_t *zero, const CodeTables *tables, float *dst)
{
    if (tables && format_is_nibble(fmt) && tables->all) {
        decode_nibbles(tables->all, src, cols, units, zero, dst);
        return;
    }
    if (tables) { /* of a codebook, which has no zero points */
        if (format_is_nibble(fmt))
            decode_gathered(true, tables, src, cols, units, dst);
        else
            decode_gathered(false, tables, src, cols, units, dst);
        return;
    }
    switch (fmt) {
    case FMT_F16: decode_wide(FMT_F16, 2, src, cols, units, zero, dst); break;
    case FMT_BF16: decode_wide(FMT_BF16, 2, src, cols, units, zero, dst); break;
    case FMT_I8: decode_wide(FMT_I8, 1, src, cols, units, zero, dst); break;
    case FMT_U8: decode_wide(FMT_U8, 1, src, cols, units, zero, dst); break;
    case FMT_E4M3: decode_wide(FMT_E4M3, 1, src, cols, units, zero, dst); break;
    case FMT_E5M2: decode_wide(FMT_E5M2, 1, src, cols, units, zero, dst); break;
    default: decode_wide(FMT_F32, 4, src, cols, units, zero, dst); break;
    }
}

/* Products with few rows ----------------------------------------------------------------------- */

/* A unit of `rows` rows by `vecs` vectors of columns. Only the low four bits of an index count:
 * another byte of the word is a shift away, or, where shifts are what takes time, a load. */
INLINE void direct_unit(int rows, int vecs, bool shifts, __m512 table, const DirectPanel *d,
                        const float *a, const uint8_t *w, const __m512 *zero, bool has_zero,
                        __m512 acc[DIRECT_ROWS][4])
{
    __m512i word[4];
    for_each(v, vecs)
        word[v] = _mm512_loadu_si512(w + 64 * v);
    for_each(i, 8)
        for_each(v, vecs) {
            if (!shifts && i && i % 2 == 0)
                word[v] = _mm512_loadu_si512(w + 64 * v + i / 2);
            unsigned by = 4 * (unsigned)(shifts ? i : i % 2);
            __m512i index = by ? _mm512_srli_epi32(word[v], by) : word[v];
            __m512 b = _mm512_permutexvar_ps(index, table);
            if (has_zero)
                b = _mm512_sub_ps(b, zero[v]);
            for_each(r, rows)
                acc[r][v] = _mm512_fmadd_ps(_mm512_set1_ps(a[r * d->lda + i]), b, acc[r][v]);
        }
}

/* `units` units. */
INLINE void direct_nibbles(int rows, int vecs, __m512 table, const DirectPanel *d, const float *a,
                           const uint8_t *w, int64_t units, const __m512 *zero, bool has_zero,
                           CpuFetch fetch, __m512 acc[DIRECT_ROWS][4])
{
    const bool shifts = cpu_is_wide();
    for (int64_t u = 0; u < units; u++, w += 4 * d->cols, a += 8) {
        fetch_ahead(fetch, w, 4);
        if (shifts)
            direct_unit(rows, vecs, true, table, d, a, w, zero, has_zero, acc);
        else
            direct_unit(rows, vecs, false, table, d, a, w, zero, has_zero, acc);
    }
}

INLINE void direct_wide(int rows, int vecs, FormatId fmt, int bytes, const DirectPanel *d,
                        const float *a, const uint8_t *w, int64_t units, const __m512 *zero,
                        bool has_zero, CpuFetch fetch, __m512 acc[DIRECT_ROWS][4])
{
    for (int64_t u = 0; u < units; u++, w += bytes * d->cols) {
        __m512 b[4];
        fetch_ahead(fetch, w, bytes);
        for_each(v, vecs) {
            b[v] = decode_16(fmt, w + 16 * v * bytes);
            if (has_zero)
                b[v] = _mm512_sub_ps(b[v], zero[v]);
        }
        for_each(r, rows) {
            __m512 x = _mm512_set1_ps(a[r * d->lda + u]);
            for_each(v, vecs)
                acc[r][v] = _mm512_fmadd_ps(x, b[v], acc[r][v]);
        }
    }
}

/* Columns [col, col + 16 * vecs) of a panel, all blocks. bytes 0: nibbles. */
INLINE void direct_columns(int rows, int vecs, FormatId fmt, int bytes, bool has_zero,
                           const DirectPanel *d, int col)
{
    const PackLayout *l = d->layout;
    const __m512 table = bytes ? _mm512_setzero_ps() : _mm512_loadu_ps(d->table);
    const CpuFetch fetch = vecs == 4 ? cpu_fetch() : FETCH_NONE;
    const float *a = d->a;
    __m512 out[DIRECT_ROWS][4];
    for_each(r, rows)
        for_each(v, vecs)
            out[r][v] = _mm512_setzero_ps();
    PackBlock b = layout_block(l, d->panel, d->cols, 0);
    const RecordSteps steps = record_steps(l, d->panel, d->cols);
    for (int64_t i = 0; i < l->blocks; record_next(&steps, l, d->panel, d->cols, i++, &b)) {
        const uint8_t *w = b.codes + col * (bytes ? bytes : 4);
        __m512 acc[DIRECT_ROWS][4], zero[4];
        for_each(v, vecs) {
            zero[v] = has_zero ? decode_16(FMT_I8, (const uint8_t *)b.zero + col + 16 * v)
                               : _mm512_setzero_ps();
            for_each(r, rows)
                acc[r][v] = _mm512_setzero_ps();
        }
        bool early = has_zero && !l->late_zero, late = has_zero && l->late_zero;
        if (bytes)
            direct_wide(rows, vecs, fmt, bytes, d, a, w, b.units, zero, has_zero, fetch, acc);
        else if (early)
            direct_nibbles(rows, vecs, table, d, a, w, b.units, zero, true, fetch, acc);
        else
            direct_nibbles(rows, vecs, table, d, a, w, b.units, zero, false, fetch, acc);
        record_fetch(fetch, &steps, &b, bytes ? bytes : 4);
        a += b.units * l->unit;
        for_each(v, vecs) {
            __m512 sb = b.scale ? decode_scale(l, b.scale, col + 16 * v) : _mm512_set1_ps(1.0f);
            for_each(r, rows) {
                int64_t at = r * l->blocks + i;
                __m512 scale = _mm512_mul_ps(_mm512_set1_ps(d->scale ? d->scale[at] : 1.0f), sb);
                if (l->mainloop)
                    out[r][v] = finish_f32(acc[r][v], zero[v], late, late ? d->sum[at] : 0, scale,
                                           out[r][v]);
                else
                    out[r][v] = acc[r][v];
            }
        }
    }
    for_each(r, rows)
        for_each(v, vecs)
            _mm512_storeu_ps(d->out + r * d->ld + col + 16 * v, out[r][v]);
}

/* One function a format, with all numbers of rows and both widths. */
#define DIRECT_ROWS_CASE(rows, fmt, bytes, has_zero)                        \
    case rows:                                                              \
        if (d->cols == PANEL_COLS)                                          \
            direct_columns(rows, 4, fmt, bytes, has_zero, d, 0);            \
        for (int col = 0; d->cols < PANEL_COLS && col < d->cols; col += 16) \
            direct_columns(rows, 1, fmt, bytes, has_zero, d, col);          \
        break;
#define DIRECT_FORMAT(name, fmt, bytes, has_zero)     \
    static void direct_##name(const DirectPanel *d)   \
    {                                                 \
        switch (d->rows) {                            \
            DIRECT_ROWS_CASE(1, fmt, bytes, has_zero) \
            DIRECT_ROWS_CASE(2, fmt, bytes, has_zero) \
            DIRECT_ROWS_CASE(3, fmt, bytes, has_zero) \
            DIRECT_ROWS_CASE(4, fmt, bytes, has_zero) \
        default: break;                               \
        }                                             \
    }
DIRECT_FORMAT(f32, FMT_F32, 4, false)
DIRECT_FORMAT(f16, FMT_F16, 2, false)
DIRECT_FORMAT(bf16, FMT_BF16, 2, false)
DIRECT_FORMAT(e4m3, FMT_E4M3, 1, false)
DIRECT_FORMAT(e5m2, FMT_E5M2, 1, false)
DIRECT_FORMAT(i8, FMT_I8, 1, false)
DIRECT_FORMAT(u8, FMT_U8, 1, false)
DIRECT_FORMAT(i8_asym, FMT_I8, 1, true)
DIRECT_FORMAT(nibbles_sym, FMT_NONE, 0, false)
DIRECT_FORMAT(nibbles_asym, FMT_NONE, 0, true)

static void direct(const DirectPanel *d)
{
    bool has_zero = d->layout->has_zero;
    switch (d->layout->fmt) {
    case FMT_F32: direct_f32(d); break;
    case FMT_F16: direct_f16(d); break;
    case FMT_BF16: direct_bf16(d); break;
    case FMT_E4M3: direct_e4m3(d); break;
    case FMT_E5M2: direct_e5m2(d); break;
    case FMT_I8: (has_zero ? direct_i8_asym : direct_i8)(d); break;
    case FMT_U8: direct_u8(d); break;
    default: (has_zero ? direct_nibbles_asym : direct_nibbles_sym)(d); break;
    }
}

#define AVX512_KERNELS                                                                             \
    .dot_f32 = dot_f32, .decode_f32 = decode_f32, .direct = direct, .direct_i4 = avx512_direct_i4, \
    .direct_i4_rows = DIRECT_ROWS, CPU_KERNELS_SHARED

#define COLUMN_BYTES 4096 /* 256 KB of a panel: a fourth of the second cache */
const CpuKernels cpu_kernels_avx512 = {
    .dot_i32 = dot_i32, .column_bytes = COLUMN_BYTES, AVX512_KERNELS};
#if defined(SINTER_CPU_AVX512BF16)
const CpuKernels cpu_kernels_avx512bf16 = {
    .dot_i32 = dot_i32, .column_bytes = COLUMN_BYTES, .matrix = &cpu_matrix_bf16, AVX512_KERNELS};
#endif
#if defined(SINTER_CPU_AMX)
const CpuKernels cpu_kernels_amx = {.dot_i32 = dot_i32, .matrix = &cpu_matrix_amx, AVX512_KERNELS};
#endif
