/* AVX2 and FMA: blocks of rows by 16 columns. Without VNNI, bytes are widened to 16 bits and
 * multiplied in pairs, which cannot saturate. */
#include "kernels/cpu/avx2_impl.h"
#include "kernels/cpu/decode_impl.h"
#include "kernels/cpu/tile_impl.h"

#define INT_ROWS   4
#define FLOAT_ROWS 6
#define LINE       16 /* floats of a cache line */

/* Each word of w holds bytes of four k: the even ones and the odd ones become pairs of 16 bits. */
INLINE __m256i even_pairs(__m256i words)
{
    return _mm256_srai_epi16(_mm256_slli_epi16(words, 8), 8);
}

INLINE __m256i odd_pairs(__m256i words)
{
    return _mm256_srai_epi16(words, 8);
}

/* The scales of 8 columns of a block, and the factor of row `row`. */
INLINE __m256 column_scales(const BlockFinish *f, int col)
{
    return f->sb ? _mm256_loadu_ps(f->sb + col) : _mm256_set1_ps(1.0f);
}

INLINE __m256 row_scale(const BlockFinish *f, int64_t row)
{
    return _mm256_set1_ps(f->sa ? f->sa[row * f->step] : 1.0f);
}

/* The end of a block of sums: rows from `row` on by columns from `col` on. What belongs to columns
 * is loaded once for all rows, before the stores. */
INLINE void finish_i32(const BlockFinish *f, int rows, int vecs, int64_t row, int col,
                       __m256i (*acc)[8], int32_t *c, int64_t ldc)
{
    const BlockFinish end = *f;
    __m256i sum[8], zero[8];
    __m256 scale[8];
    for_each(v, vecs) {
        int at = col + COLS * v;
        sum[v] = load_i32(end.sum + at);
        zero[v] = end.zero ? load_i32(end.zero + at) : _mm256_set1_epi32(end.offset);
        scale[v] = column_scales(&end, at);
    }
    for_each(r, rows) {
        int64_t at = (row + r) * end.step;
        __m256i ra = _mm256_set1_epi32(end.ra[at]), rb = _mm256_set1_epi32(end.rb[at]);
        __m256 sa = row_scale(&end, row + r);
        for_each(v, vecs) {
            __m256i less =
                _mm256_add_epi32(_mm256_mullo_epi32(ra, sum[v]), _mm256_mullo_epi32(rb, zero[v]));
            __m256i whole = _mm256_sub_epi32(acc[r][v], less);
            float *out = end.out + (row + r) * end.ld + col + COLS * v;
            if (end.out)
                _mm256_storeu_ps(out, _mm256_fmadd_ps(_mm256_cvtepi32_ps(whole),
                                                      _mm256_mul_ps(sa, scale[v]),
                                                      _mm256_loadu_ps(out)));
            else
                _mm256_storeu_si256((__m256i *)(c + r * ldc + COLS * v), whole);
        }
    }
}

INLINE void finish_f32(const BlockFinish *f, bool has_zero, int rows, int64_t row, int col,
                       __m256 (*acc)[2])
{
    const BlockFinish end = *f;
    __m256 zero[2], scale[2];
    for_each(v, 2) {
        int at = col + COLS * v;
        zero[v] = has_zero ? _mm256_cvtepi32_ps(load_i32(end.zero + at)) : _mm256_setzero_ps();
        scale[v] = column_scales(&end, at);
    }
    for_each(r, rows) {
        __m256 sa = row_scale(&end, row + r);
        __m256 rb = _mm256_set1_ps(has_zero ? end.rb_f32[(row + r) * end.step] : 0.0f);
        for_each(v, 2) {
            float *out = end.out + (row + r) * end.ld + col + COLS * v;
            __m256 whole = has_zero ? _mm256_fnmadd_ps(zero[v], rb, acc[r][v]) : acc[r][v];
            _mm256_storeu_ps(
                out, _mm256_fmadd_ps(whole, _mm256_mul_ps(sa, scale[v]), _mm256_loadu_ps(out)));
        }
    }
}

/* .. unless f is NULL, or says nowhere: sums go to c. */
INLINE void leave_i32(const BlockFinish *f, int rows, int vecs, int64_t row, int col,
                      __m256i (*acc)[8], int32_t *c, int64_t ldc)
{
    if (f) {
        finish_i32(f, rows, vecs, row, col, acc, c, ldc);
        return;
    }
    for_each(r, rows)
        for_each(v, vecs)
            _mm256_storeu_si256((__m256i *)(c + r * ldc + COLS * v), acc[r][v]);
}

INLINE void leave_f32(const BlockFinish *f, int rows, int64_t row, int col, __m256 (*acc)[2],
                      float *c, int64_t ldc)
{
    if (f && f->out && f->zero)
        finish_f32(f, true, rows, row, col, acc);
    else if (f && f->out)
        finish_f32(f, false, rows, row, col, acc);
    else
        for_each(r, rows)
            for_each(v, 2)
                _mm256_storeu_ps(c + r * ldc + COLS * v, acc[r][v]);
}

/* Few rows, by weights that come from memory. */
INLINE void dot_i32_few(int rows, int vecs, const uint8_t *a, int64_t lda, const int8_t *w,
                        int64_t w_step, int64_t units, int32_t *c, int64_t ldc, bool accumulate,
                        CpuFetch fetch, const BlockFinish *finish, int col)
{
    const __m256i low = _mm256_set1_epi16(255);
    __m256i acc[INT_ROWS][8];
    for_each(r, rows)
        for_each(v, vecs)
            acc[r][v] = accumulate ? load_i32(c + r * ldc + COLS * v) : _mm256_setzero_si256();
    for (int64_t u = 0; u < units; u++, w += w_step, a += 4) {
        __m256i x_even[INT_ROWS], x_odd[INT_ROWS];
        fetch_ahead(fetch, w, 4);
        for_each(r, rows) {
            int32_t word;
            memcpy(&word, a + r * lda, 4);
            x_even[r] = _mm256_and_si256(_mm256_set1_epi32(word), low);
            x_odd[r] = _mm256_srli_epi16(_mm256_set1_epi32(word), 8);
        }
        for_each(v, vecs) {
            __m256i b = load_i32(w + 32 * v), even = even_pairs(b), odd = odd_pairs(b);
            for_each(r, rows) {
                __m256i sum = _mm256_add_epi32(_mm256_madd_epi16(x_even[r], even),
                                               _mm256_madd_epi16(x_odd[r], odd));
                acc[r][v] = _mm256_add_epi32(acc[r][v], sum);
            }
        }
    }
    leave_i32(finish, rows, vecs, 0, col, acc, c, ldc);
}

static void dot_i32_rows(int64_t rows, const uint8_t *a, int64_t lda, const int8_t *w, int cols,
                         int64_t units, int32_t *c, int64_t ldc, bool accumulate,
                         const BlockFinish *finish)
{
    const int64_t step = 4 * (int64_t)cols;
    const CpuFetch fetch = cols == PANEL_COLS ? cpu_fetch() : FETCH_NONE;
    if (rows == 1 && cols == PANEL_COLS) {
        dot_i32_few(1, 8, a, lda, w, step, units, c, ldc, accumulate, fetch, finish, 0);
        return;
    }
    for (int col = 0; col < cols; col += 2 * COLS) {
        const int8_t *b = w + 4 * col;
        int32_t *out = c + col;
        const CpuFetch how = col ? FETCH_NONE : fetch;
        CASES_OF_4(rows, dot_i32_few, 2, a, lda, b, step, units, out, ldc, accumulate, how, finish,
                   col)
    }
}

/* Many rows: pairs of weights are made once for all of them, those of activations once for all
 * columns. */
#define PAIR_UNITS 32
#define PAIR_ROWS  3 /* whose sums, pairs of weights and of activations all have a register */
typedef struct WeightPairs {
    __m256i even[2], odd[2];
} WeightPairs; /* of 16 columns */

static void pairs_of_weights(const int8_t *w, int cols, int64_t units, WeightPairs *dst)
{
    for (int col = 0; col < cols; col += 2 * COLS, dst += PAIR_UNITS)
        for (int64_t u = 0; u < units; u++)
            for_each(v, 2) {
                __m256i b = load_i32(w + 4 * (u * cols + col + COLS * v));
                dst[u].even[v] = even_pairs(b);
                dst[u].odd[v] = odd_pairs(b);
            }
}

static void pairs_of_rows(int64_t rows, const uint8_t *a, int64_t lda, int64_t units,
                          uint32_t *even, uint32_t *odd)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t u = 0; u < units; u++) {
            uint32_t word;
            memcpy(&word, a + r * lda + 4 * u, 4);
            even[r * PAIR_UNITS + u] = word & 0x00ff00ff;
            odd[r * PAIR_UNITS + u] = word >> 8 & 0x00ff00ff;
        }
}

INLINE void dot_pairs(int rows, const uint32_t *even, const uint32_t *odd, const WeightPairs *w,
                      int64_t units, int32_t *c, int64_t ldc, bool accumulate,
                      const BlockFinish *finish, int64_t row, int col)
{
    __m256i acc[PAIR_ROWS][8];
    for_each(r, rows)
        for_each(v, 2)
            acc[r][v] = accumulate ? load_i32(c + r * ldc + COLS * v) : _mm256_setzero_si256();
    for (int64_t u = 0; u < units; u += 2)
        for_each(i, 2) {
            if (u + i == units)
                break;
            const WeightPairs *b = w + u + i;
            for_each(r, rows) {
                __m256i x_even = _mm256_set1_epi32((int32_t)even[r * PAIR_UNITS + u + i]);
                __m256i x_odd = _mm256_set1_epi32((int32_t)odd[r * PAIR_UNITS + u + i]);
                for_each(v, 2) {
                    __m256i sum = _mm256_add_epi32(_mm256_madd_epi16(x_even, b->even[v]),
                                                   _mm256_madd_epi16(x_odd, b->odd[v]));
                    acc[r][v] = _mm256_add_epi32(acc[r][v], sum);
                }
            }
        }
    leave_i32(finish, rows, 2, row, col, acc, c, ldc);
}

static void dot_i32_pairs(int64_t rows, const uint8_t *a, int64_t lda, const WeightPairs *w,
                          int cols, int64_t units, int32_t *c, int64_t ldc, bool accumulate,
                          const BlockFinish *finish)
{
    uint32_t even[PAIR_ROWS * PAIR_UNITS], odd[PAIR_ROWS * PAIR_UNITS];
    for (int64_t r = 0; r < rows; r += PAIR_ROWS, a += PAIR_ROWS * lda, c += PAIR_ROWS * ldc) {
        int64_t some = rows - r < PAIR_ROWS ? rows - r : PAIR_ROWS;
        pairs_of_rows(some, a, lda, units, even, odd);
        const WeightPairs *b = w;
        for (int col = 0; col < cols; col += 2 * COLS, b += PAIR_UNITS)
            CASES_OF_3(some, dot_pairs, even, odd, b, units, c + col, ldc, accumulate, finish, r,
                       col)
    }
}

INLINE void dot_f32_block(int rows, const float *a, int64_t lda, const float *w, int64_t w_step,
                          int64_t k, float *c, int64_t ldc, bool accumulate,
                          const BlockFinish *finish, int64_t row, int col)
{
    __m256 acc[FLOAT_ROWS][2];
    for_each(r, rows)
        for_each(v, 2)
            acc[r][v] = accumulate ? _mm256_loadu_ps(c + r * ldc + COLS * v) : _mm256_setzero_ps();
    for (int64_t line = 0; line < k; line += LINE) {
        const int64_t end = line + LINE < k ? line + LINE : k;
        for_each(r, rows) /* the rows after these */
            if (rows == FLOAT_ROWS)
                _mm_prefetch((const char *)(a + (r + FLOAT_ROWS) * lda + line), _MM_HINT_T0);
        for (int64_t i = line; i < end; i += 2, w += 2 * w_step)
            for_each(j, 2) {
                if (i + j == end)
                    break;
                const float *at = w + j * w_step;
                __m256 b0 = _mm256_loadu_ps(at), b1 = _mm256_loadu_ps(at + COLS);
                for_each(r, rows) {
                    __m256 x = _mm256_broadcast_ss(a + r * lda + i + j);
                    acc[r][0] = _mm256_fmadd_ps(x, b0, acc[r][0]);
                    acc[r][1] = _mm256_fmadd_ps(x, b1, acc[r][1]);
                }
            }
    }
    leave_f32(finish, rows, row, col, acc, c, ldc);
}

static void dot_i32(int64_t rows, const uint8_t *a, int64_t lda, const int8_t *w, int cols,
                    int64_t units, int32_t *c, int64_t ldc, bool accumulate,
                    const BlockFinish *finish, const uint8_t *ahead)
{
    WeightPairs pairs[PANEL_COLS / (2 * COLS) * PAIR_UNITS];
    (void)ahead;
    if (rows <= INT_ROWS)
        dot_i32_rows(rows, a, lda, w, cols, units, c, ldc, accumulate, finish);
    for (int64_t u = 0; rows > INT_ROWS && u < units; u += PAIR_UNITS) {
        bool is_last = units - u <= PAIR_UNITS;
        int64_t some = is_last ? units - u : PAIR_UNITS;
        pairs_of_weights(w + 4 * u * cols, cols, some, pairs);
        dot_i32_pairs(rows, a + 4 * u, lda, pairs, cols, some, c, ldc, accumulate || u > 0,
                      is_last ? finish : NULL);
    }
}

/* 16 columns of a panel side by side: as they lie there, a fourth of the first cache's sets would
 * have to hold them. */
#define SLICE_K      256
#define SLICE_ROWS   (2 * FLOAT_ROWS) /* that make up for the copy */
#define MOST_FETCHES 6 /* while a block of rows is multiplied: more would take its time */

static const float *slice_of(const float *w, int cols, int64_t k, float (*dst)[2 * COLS])
{
    for (int64_t i = 0; i < k; i++, w += cols) {
        _mm256_store_ps(dst[i], _mm256_loadu_ps(w));
        _mm256_store_ps(dst[i] + COLS, _mm256_loadu_ps(w + COLS));
    }
    return dst[0];
}

/* All rows by the 16 columns of each `step` of w. Meanwhile `next` comes near: what lies there in
 * each `pitch`, which no stream of loads foretells; NULL: nothing does. */
INLINE void dot_f32_rows(int64_t rows, const float *a, int64_t lda, const float *w, int64_t step,
                         const float *next, int pitch, int64_t k, float *c, int64_t ldc,
                         bool accumulate, const BlockFinish *finish, int col)
{
    int64_t near = 0, each = next ? (k * FLOAT_ROWS + rows - 1) / rows : 0;
    each = each < MOST_FETCHES ? each : MOST_FETCHES;
    for (int64_t r = 0; r < rows; r += FLOAT_ROWS) {
        const float *x = a + r * lda;
        float *to = c + r * ldc;
        for (int64_t end = near + each; near < end && near < k; near++)
            _mm_prefetch((const char *)(next + near * pitch), _MM_HINT_T1);
        CASES_OF_6(rows - r, dot_f32_block, x, lda, w, step, k, to, ldc, accumulate, finish, r, col)
    }
}

static void dot_f32(int64_t rows, const float *a, int64_t lda, const float *w, int cols, int64_t k,
                    float *c, int64_t ldc, bool accumulate, const BlockFinish *finish)
{
    _Alignas(32) float slice[SLICE_K][2 * COLS];
    bool copies = rows > SLICE_ROWS && k <= SLICE_K && cols == PANEL_COLS;
    for (int col = 0; col < cols; col += 2 * COLS) {
        const float *b = w + col, *next = col + 2 * COLS < cols ? b + 2 * COLS : NULL;
        if (copies)
            dot_f32_rows(rows, a, lda, slice_of(b, cols, k, slice), 2 * COLS, next, cols, k,
                         c + col, ldc, accumulate, finish, col);
        else
            dot_f32_rows(rows, a, lda, b, cols, NULL, 0, k, c + col, ldc, accumulate, finish, col);
    }
}

/* Decoding ------------------------------------------------------------------------------------- */

INLINE void decode_nibbles(const NibbleTables *t, bool is_half, const uint8_t *src, int cols,
                           int64_t units, const int32_t *zero, float *dst)
{
    for (int64_t u = 0; u < units; u++, src += 4 * cols)
        for (int col = 0; col < cols; col += 2 * COLS)
            for_each(part, 2) {
                __m256i bytes = nibble_bytes_16(src + 4 * col, part);
                __m256 x[2][4];
                for_each(i, 2)
                    nibble_values(t, is_half, bytes, i, x[i]);
                for_each(k, 4)
                    for_each(v, 2) {
                        int at = col + COLS * v;
                        __m256 b = x[k % 2][2 * v + k / 2];
                        if (zero)
                            b = _mm256_sub_ps(b, _mm256_cvtepi32_ps(load_i32(zero + at)));
                        _mm256_storeu_ps(dst + (u * 8 + 4 * part + k) * cols + at, b);
                    }
            }
}

INLINE void decode_columns(FormatId fmt, int bytes, int vecs, const ByteTables *t,
                           const uint8_t *src, int cols, int64_t units, const int32_t *zero,
                           float *dst)
{
    for (int64_t u = 0; u < units; u++) {
        __m256 x[4];
        for_each(g, vecs * COLS / values_at_once(fmt, vecs)) {
            int at_once = values_at_once(fmt, vecs);
            wide_values(fmt, vecs, t, src + (u * cols + g * at_once) * bytes,
                        x + g * at_once / COLS, NULL);
        }
        wide_in_order(fmt, vecs, x);
        for_each(v, vecs) {
            if (zero)
                x[v] = _mm256_sub_ps(x[v], _mm256_cvtepi32_ps(load_i32(zero + COLS * v)));
            _mm256_storeu_ps(dst + u * cols + COLS * v, x[v]);
        }
    }
}

INLINE void decode_wide(FormatId fmt, int bytes, const uint8_t *src, int cols, int64_t units,
                        const int32_t *zero, float *dst)
{
    const ByteTables t = fmt == FMT_E4M3 ? e4m3_tables() : (ByteTables){0};
    int col = 0;
    for (; col + 4 * COLS <= cols; col += 4 * COLS)
        decode_columns(fmt, bytes, 4, &t, src + col * bytes, cols, units, zero ? zero + col : NULL,
                       dst + col);
    for (; col < cols; col += 2 * COLS)
        decode_columns(fmt, bytes, 2, &t, src + col * bytes, cols, units, zero ? zero + col : NULL,
                       dst + col);
}

static void decode_f32(FormatId fmt, const uint8_t *src, int cols, int64_t units,
                       const int32_t *zero, const CodeTables *tables, float *dst)
{
    if (format_is_nibble(fmt) && tables->all) {
        NibbleTables t = nibble_tables(tables->all);
        if (t.is_half)
            decode_nibbles(&t, true, src, cols, units, zero, dst);
        else
            decode_nibbles(&t, false, src, cols, units, zero, dst);
        return;
    }
    switch (tables ? FMT_NONE : fmt) {
    case FMT_F16: decode_wide(FMT_F16, 2, src, cols, units, zero, dst); break;
    case FMT_BF16: decode_wide(FMT_BF16, 2, src, cols, units, zero, dst); break;
    case FMT_I8: decode_wide(FMT_I8, 1, src, cols, units, zero, dst); break;
    case FMT_U8: decode_wide(FMT_U8, 1, src, cols, units, zero, dst); break;
    case FMT_E4M3: decode_wide(FMT_E4M3, 1, src, cols, units, zero, dst); break;
    case FMT_E5M2: decode_wide(FMT_E5M2, 1, src, cols, units, zero, dst); break;
    default: block_decode_f32(fmt, src, cols, units, zero, tables, dst); break;
    }
}

#define AVX2_KERNELS                                                         \
    .dot_f32 = dot_f32, .decode_f32 = decode_f32, .direct = cpu_direct_avx2, \
    .direct_i4 = cpu_direct_i4_avx2, .fix = cpu_fix_avx2, .float_k = SLICE_K, CPU_KERNELS_SHARED
/* Products of bytes by nibbles are faster than those of pairs while a block's rows fit the first
 * cache. */
const CpuKernels cpu_kernels_avx2 = {.dot_i32 = dot_i32, .direct_i4_rows = 16, AVX2_KERNELS};

#if defined(SINTER_CPU_AVXVNNI)
static void dot_i32_vnni(int64_t rows, const uint8_t *a, int64_t lda, const int8_t *w, int cols,
                         int64_t units, int32_t *c, int64_t ldc, bool accumulate,
                         const BlockFinish *finish, const uint8_t *ahead)
{
    (void)ahead;
    cpu_dot_i32_avxvnni(rows, a, lda, w, cols, units, c, ldc, accumulate);
    for (int64_t r = 0; finish && r < rows; r++, c += ldc)
        for (int col = 0; col < cols; col += COLS) {
            __m256i acc[1][8] = {{load_i32(c + col)}};
            finish_i32(finish, 1, 1, r, col, acc, c + col, ldc);
        }
}

const CpuKernels cpu_kernels_avxvnni = {
    .dot_i32 = dot_i32_vnni, .direct_i4_rows = DIRECT_ROWS, AVX2_KERNELS};
#endif
