/* AMX: what its tiles take from the AVX-512 kernels. A tile of weights is 16 words of K by 16
 * columns, which is how integer codes are packed; float-class weights are decoded to pairs of bf16.
 * Values that bf16 does not hold exactly are split into a sum of two. 32 rows by 32 columns in four
 * tiles of sums; up to 16 rows, by 64 columns.
 *
 * The processor adds a float tile's products in an order of its own, 32 of K at a time and whatever
 * the other rows are, so every number of rows of such a product goes through tiles, and what tiles
 * do not compute right is found by the exponents of both operands (gemm_matrix.c). */
#include "kernels/cpu/amx.h"

#define FEW_ROWS 4 /* below, integer products stay with AVX-512 */

/* How tiles are shaped now: rows of the first and of the second row of tiles. Between begin and end
 * only, for the thread may use tiles elsewhere. */
static _Thread_local int shape_rows[2];

typedef struct TileConfig {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} TileConfig;

void amx_shape(int rows0, int rows1)
{
    if (shape_rows[0] == rows0 && shape_rows[1] == rows1)
        return;
    TileConfig c = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        c.row_bytes[i] = TILE_BYTES;
        c.rows[i] = TILE_ROWS;
    }
    c.rows[0] = c.rows[1] = c.rows[4] = (uint8_t)rows0;
    c.rows[2] = c.rows[3] = (uint8_t)(rows1 ? rows1 : rows0);
    if (rows1)
        c.rows[5] = (uint8_t)rows1;
    _tile_loadconfig(&c);
    shape_rows[0] = rows0;
    shape_rows[1] = rows1;
}

static void matrix_begin(void)
{
    shape_rows[0] = shape_rows[1] = 0;
}

static void matrix_end(void)
{
    if (shape_rows[0])
        _tile_release();
    shape_rows[0] = shape_rows[1] = 0;
}

/* The sums ------------------------------------------------------------------------------------- */

/* One run of K: in each step, the parts of the weights' tiles below each other. */
typedef struct Span {
    const uint8_t *a, *w;
    int64_t lda, w_step; /* bytes from row to row */
    int64_t steps;
    int w_parts;
    const uint8_t *ahead; /* to fetch meanwhile, so many cache lines a step */
    int64_t ahead_lines;
} Span;

#define MULTIPLY(is_float, sums, a, w)  \
    do {                                \
        if (is_float)                   \
            _tile_dpbf16ps(sums, a, w); \
        else                            \
            _tile_dpbusd(sums, a, w);   \
    } while (0)

/* Up to 32 rows by 32 (pairs 2) or 16 columns (1). */
INLINE void span_wide(bool is_float, int pairs, const Span *s)
{
    const uint8_t *a0 = s->a, *a1 = s->a + TILE_ROWS * s->lda, *w = s->w, *ahead = s->ahead;
    for (int64_t i = 0; i < s->steps; i++) {
        _tile_loadd(4, a0, s->lda);
        _tile_loadd(5, a1, s->lda);
        for (int part = 0; part < s->w_parts; part++) {
            _tile_loadd(6, w, s->w_step);
            MULTIPLY(is_float, 0, 4, 6);
            MULTIPLY(is_float, 2, 5, 6);
            if (pairs == 2) {
                _tile_loadd(7, w + TILE_BYTES, s->w_step);
                MULTIPLY(is_float, 1, 4, 7);
                MULTIPLY(is_float, 3, 5, 7);
            }
            w += STEP_UNITS * s->w_step;
        }
        for (int64_t j = 0; j < s->ahead_lines; j++, ahead += TILE_BYTES)
            _mm_prefetch((const char *)ahead, _MM_HINT_T1);
        a0 += TILE_BYTES;
        a1 += TILE_BYTES;
    }
}

/* Up to 16 rows by 64 columns, or by 16. */
INLINE void span_narrow(bool is_float, int vecs, const Span *s, bool streams)
{
    const uint8_t *a = s->a, *w = s->w;
    for (int64_t i = 0; i < s->steps; i++) {
        _tile_loadd(4, a, s->lda);
        for (int part = 0; part < s->w_parts; part++) {
            _tile_loadd(6, w, s->w_step);
            MULTIPLY(is_float, 0, 4, 6);
            if (vecs == 4) {
                _tile_loadd(7, w + TILE_BYTES, s->w_step);
                MULTIPLY(is_float, 1, 4, 7);
                _tile_loadd(6, w + 2 * TILE_BYTES, s->w_step);
                MULTIPLY(is_float, 2, 4, 6);
                _tile_loadd(7, w + 3 * TILE_BYTES, s->w_step);
                MULTIPLY(is_float, 3, 4, 7);
            }
            for (int j = 0; streams && vecs == 4 && j < STEP_UNITS; j++)
                fetch_ahead(FETCH_PAGES, w + j * s->w_step, 4);
            w += STEP_UNITS * s->w_step;
        }
        a += TILE_BYTES;
    }
}

INLINE void sums_clear(void)
{
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
}

/* Tiles 0 and 1 lie side by side, 2 and 3 below them, or all side by side. Only those that have
 * columns. */
INLINE void sums_move(bool loads, int vecs, bool is_wide, int32_t *c, int64_t ldc)
{
    int32_t *below = is_wide ? c + TILE_ROWS * ldc : c + 32;
    int64_t step = ldc * 4;
    bool second = vecs > 1, third = is_wide || vecs > 2;
    if (loads) {
        _tile_loadd(0, c, step);
        if (second)
            _tile_loadd(1, c + 16, step);
        if (third)
            _tile_loadd(2, below, step);
        if (third && second)
            _tile_loadd(3, below + 16, step);
        return;
    }
    _tile_stored(0, c, step);
    if (second)
        _tile_stored(1, c + 16, step);
    if (third)
        _tile_stored(2, below, step);
    if (third && second)
        _tile_stored(3, below + 16, step);
}

/* Where the spans of a product that come `pass`th of `passes` find their part of what is ahead. */
INLINE void span_ahead(const MatrixProduct *p, int64_t pass, int64_t passes, Span *s)
{
    if (!p->ahead_lines)
        return;
    s->ahead_lines = (p->ahead_lines + passes * p->steps - 1) / (passes * p->steps);
    s->ahead = p->ahead + pass * p->steps * s->ahead_lines * TILE_BYTES;
}

INLINE void product_spans(bool is_float, bool is_wide, int vecs, const MatrixProduct *p,
                          int64_t row, int col, const Span *ahead)
{
    int32_t *c = (int32_t *)p->c + (p->one_pass ? 0 : row) * p->ldc + col;
    if (p->accumulate)
        sums_move(true, vecs, is_wide, c, p->ldc);
    else
        sums_clear();
    for (int i = 0; i < p->a_parts; i++) {
        const Span span = {.a = p->a + i * p->a_step + row * p->lda,
                           .w = p->w + TILE_WORD * col,
                           .lda = p->lda,
                           .w_step = TILE_WORD * (int64_t)p->cols,
                           .steps = p->steps,
                           .w_parts = p->w_parts,
                           .ahead = ahead->ahead,
                           .ahead_lines = i == 0 ? ahead->ahead_lines : 0};
        if (is_wide)
            span_wide(is_float, vecs, &span);
        else
            span_narrow(is_float, vecs, &span, p->streams);
    }
    sums_move(false, vecs, is_wide, c, p->ldc);
}

/* Rows from `row`; returns how many. */
INLINE int product_rows(bool is_float, const MatrixProduct *p, int64_t row, int64_t rows)
{
    int col = 0, num = rows - row < 2 * TILE_ROWS ? (int)(rows - row) : 2 * TILE_ROWS;
    Span ahead = {0};
    if (num > TILE_ROWS) {
        int64_t wide = (p->cols + 31) / 32, pass = row / (2 * TILE_ROWS) * wide;
        int64_t passes = (rows + 2 * TILE_ROWS - 1) / (2 * TILE_ROWS) * wide;
        amx_shape(TILE_ROWS, num - TILE_ROWS);
        for (; col < p->cols; col += 32) {
            span_ahead(p, pass++, passes, &ahead);
            if (col + 32 <= p->cols)
                product_spans(is_float, true, 2, p, row, col, &ahead);
            else
                product_spans(is_float, true, 1, p, row, col, &ahead);
        }
        return num;
    }
    amx_shape(num, 0);
    if (p->cols == PANEL_COLS)
        product_spans(is_float, false, 4, p, row, 0, &ahead);
    for (; p->cols < PANEL_COLS && col < p->cols; col += 16)
        product_spans(is_float, false, 1, p, row, col, &ahead);
    return num;
}

/* Integers ------------------------------------------------------------------------------------- */

/* The end of a block for rows whose sums are in c, in 16 * vecs columns from col; the arithmetic of
 * AVX-512's. A row's columns come one after the other, as they lie in memory. */
INLINE void finish_i32_columns(int vecs, const BlockFinish f, int64_t row, int rows, int col,
                               int32_t *c, int64_t ldc)
{
    __m512i sum[4], zero[4], less[4];
    __m512 sb[4];
    int32_t ra = 0; /* of `less`, which rows with the same zero point share */
    for_each(v, vecs) {
        sum[v] = _mm512_loadu_si512(f.sum + col + 16 * v);
        zero[v] = f.zero ? _mm512_loadu_si512(f.zero + col + 16 * v) : _mm512_setzero_si512();
        sb[v] = f.sb ? _mm512_loadu_ps(f.sb + col + 16 * v) : _mm512_set1_ps(1.0f);
        less[v] = _mm512_setzero_si512();
    }
    for (int r = 0; r < rows; r++, c += ldc) {
        int64_t at = (row + r) * f.step;
        uint32_t rb = (uint32_t)f.rb[at];
        const __m512i all = _mm512_set1_epi32((int32_t)(rb * (uint32_t)f.offset));
        const __m512 sa = _mm512_set1_ps(f.sa ? f.sa[at] : 1.0f);
        if (f.ra[at] != ra) {
            ra = f.ra[at];
            for_each(v, vecs)
                less[v] = _mm512_mullo_epi32(_mm512_set1_epi32(ra), sum[v]);
        }
        for_each(v, vecs) {
            __m512i part =
                f.zero ? _mm512_mullo_epi32(_mm512_set1_epi32((int32_t)rb), zero[v]) : all;
            __m512i x = _mm512_sub_epi32(_mm512_loadu_si512(c + col + 16 * v),
                                         _mm512_add_epi32(less[v], part));
            float *out = f.out + (row + r) * f.ld + col + 16 * v;
            if (!f.out)
                _mm512_storeu_si512(c + col + 16 * v, x);
            else
                _mm512_storeu_ps(out,
                                 _mm512_fmadd_ps(_mm512_cvtepi32_ps(x), _mm512_mul_ps(sa, sb[v]),
                                                 _mm512_loadu_ps(out)));
        }
    }
}

static void finish_i32(const BlockFinish *f, int64_t row, int rows, int cols, int32_t *c,
                       int64_t ldc)
{
    if (cols == PANEL_COLS)
        finish_i32_columns(4, *f, row, rows, 0, c, ldc);
    for (int col = 0; cols < PANEL_COLS && col < cols; col += 16)
        finish_i32_columns(1, *f, row, rows, col, c, ldc);
}

/* What is left of K after whole tiles, and few rows, are AVX-512's: sums are exact in any order. */
static void dot_i32(int64_t rows, const uint8_t *a, int64_t lda, const int8_t *w, int cols,
                    int64_t units, int32_t *c, int64_t ldc, bool accumulate,
                    const BlockFinish *finish, const uint8_t *ahead)
{
    int64_t steps = units / STEP_UNITS, done = steps * STEP_UNITS;
    if (rows < FEW_ROWS || !steps) {
        cpu_kernels_avx512.dot_i32(rows, a, lda, w, cols, units, c, ldc, accumulate, finish, NULL);
        return;
    }
    MatrixProduct p = {.a = a,
                       .w = (const uint8_t *)w,
                       .lda = lda,
                       .a_parts = 1,
                       .w_parts = 1,
                       .cols = cols,
                       .steps = steps,
                       .streams = rows <= TILE_ROWS,
                       .ahead = ahead,
                       .ahead_lines = ahead ? units * cols * TILE_WORD / TILE_BYTES : 0,
                       .c = c,
                       .ldc = ldc,
                       .accumulate = accumulate};
    bool ends = finish && done == units;
    p.one_pass = ends && finish->out && !accumulate;
    for (int64_t row = 0, num; row < rows; row += num) {
        num = product_rows(false, &p, row, rows);
        if (ends)
            finish_i32(finish, row, (int)num, cols, c + (p.one_pass ? 0 : row * ldc), ldc);
    }
    if (done < units)
        cpu_kernels_avx512.dot_i32(rows, a + 4 * done, lda, w + 4 * done * cols, cols, units - done,
                                   c, ldc, true, finish, NULL);
}

/* Floats --------------------------------------------------------------------------------------- */

INLINE void finish_f32_columns(int vecs, const BlockFinish f, int64_t row, int rows, int col,
                               const float *c, int64_t ldc)
{
    __m512 zero[4], sb[4];
    for_each(v, vecs) {
        zero[v] = f.zero ? _mm512_cvtepi32_ps(_mm512_loadu_si512(f.zero + col + 16 * v))
                         : _mm512_setzero_ps();
        sb[v] = f.sb ? _mm512_loadu_ps(f.sb + col + 16 * v) : _mm512_set1_ps(1.0f);
    }
    for (int r = 0; r < rows; r++, c += ldc) {
        int64_t at = (row + r) * f.step;
        float *out = f.out + (row + r) * f.ld + col;
        const __m512 sum = _mm512_set1_ps(f.zero ? f.rb_f32[at] : 0);
        const __m512 sa = _mm512_set1_ps(f.sa ? f.sa[at] : 1.0f);
        for_each(v, vecs) {
            __m512 x = _mm512_loadu_ps(c + col + 16 * v);
            if (f.zero)
                x = _mm512_fnmadd_ps(zero[v], sum, x);
            __m512 scale = f.sa ? _mm512_mul_ps(sa, sb[v]) : sb[v];
            _mm512_storeu_ps(out + 16 * v,
                             _mm512_fmadd_ps(x, scale, _mm512_loadu_ps(out + 16 * v)));
        }
    }
}

static void finish_rows_f32(const BlockFinish *f, int64_t row, int rows, int cols, const float *c,
                            int64_t ldc)
{
    if (cols == PANEL_COLS)
        finish_f32_columns(4, *f, row, rows, 0, c, ldc);
    for (int col = 0; cols < PANEL_COLS && col < cols; col += 16)
        finish_f32_columns(1, *f, row, rows, col, c, ldc);
}

/* Sums that are scaled and added to others take little memory, that of a pass: it stays in the
 * nearest cache. */
static void dot_bf16(const MatrixProduct *given, int64_t rows, const BlockFinish *finish)
{
    MatrixProduct p = *given;
    p.one_pass = finish && !p.accumulate;
    for (int64_t row = 0, num; row < rows; row += num) {
        const float *c = (float *)p.c + (p.one_pass ? 0 : row * p.ldc);
        num = product_rows(true, &p, row, rows);
        if (finish)
            finish_rows_f32(finish, row, (int)num, p.cols, c, p.ldc);
    }
}

const CpuMatrix cpu_matrix_amx = {.begin = matrix_begin,
                                  .end = matrix_end,
                                  .dot_i32 = dot_i32,
                                  .dot_bf16 = dot_bf16,
                                  .decode = pairs_decode,
                                  .few_rows = amx_few_rows,
                                  .split = pairs_split,
                                  .few_nibbles = MATRIX_FEW,
                                  .few_bytes = DIRECT_ROWS,
                                  .few_halves = DIRECT_ROWS,
                                  .most_parts = 2,
                                  .folds = true};
