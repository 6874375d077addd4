/* AVX-512's products of pairs of bf16: twice the products of f32's in an instruction. Pairs of K
 * are added in ascending order, for every number of rows. The processor counts denormals as 0, as
 * tiles do, and like there what it does not compute right is found by exponents (gemm_matrix.c). */
#include "kernels/cpu/pairs.h"

#define BLOCK_ROWS 6

INLINE __m512 dot_pairs(__m512 acc, __m512i a, __m512i w)
{
    return _mm512_dpbf16_ps(acc, (__m512bh)a, (__m512bh)w);
}

/* The end of a block for one vector of columns of one row. */
INLINE __m512 finish_pairs(const BlockFinish *f, int64_t at, int col, __m512 x, __m512 out)
{
    __m512 scale = f->sb ? _mm512_loadu_ps(f->sb + col) : _mm512_set1_ps(1.0f);
    __m512 zero = _mm512_setzero_ps();
    if (f->zero)
        zero = _mm512_cvtepi32_ps(_mm512_loadu_si512(f->zero + col));
    if (f->sa)
        scale = _mm512_mul_ps(_mm512_set1_ps(f->sa[at]), scale);
    return finish_f32(x, zero, f->zero != NULL, f->zero ? f->rb_f32[at] : 0, scale, out);
}

INLINE void product_block(int rows, int vecs, const MatrixProduct *p, int64_t row, int col,
                          const BlockFinish *finish)
{
    const uint8_t *a = p->a + row * p->lda, *w = p->w + 4 * col;
    const int64_t lda = p->lda, w_step = 4 * (int64_t)p->cols;
    float *c = (float *)p->c + row * p->ldc + col;
    __m512 acc[BLOCK_ROWS][4];
    for_each(r, rows)
        for_each(v, vecs)
            acc[r][v] =
                p->accumulate ? _mm512_loadu_ps(c + r * p->ldc + 16 * v) : _mm512_setzero_ps();
    for (int64_t u = 0; u < p->pairs; u++, w += w_step, a += 4) {
        __m512i b[4];
        for_each(v, vecs)
            b[v] = _mm512_loadu_si512(w + 64 * v);
        for_each(r, rows) {
            __m512i x = broadcast_4(a + r * lda);
            for_each(v, vecs)
                acc[r][v] = dot_pairs(acc[r][v], x, b[v]);
        }
    }
    for_each(r, rows)
        for_each(v, vecs) {
            float *at = finish ? finish->out + (row + r) * finish->ld + col + 16 * v
                               : c + r * p->ldc + 16 * v;
            if (finish)
                acc[r][v] = finish_pairs(finish, (row + r) * finish->step, col + 16 * v, acc[r][v],
                                         _mm512_loadu_ps(at));
            _mm512_storeu_ps(at, acc[r][v]);
        }
}

INLINE void product_rows(int vecs, const MatrixProduct *p, int64_t row, int64_t rows, int col,
                         const BlockFinish *finish)
{
    switch (rows - row < BLOCK_ROWS ? rows - row : BLOCK_ROWS) {
    case 1: product_block(1, vecs, p, row, col, finish); break;
    case 2: product_block(2, vecs, p, row, col, finish); break;
    case 3: product_block(3, vecs, p, row, col, finish); break;
    case 4: product_block(4, vecs, p, row, col, finish); break;
    case 5: product_block(5, vecs, p, row, col, finish); break;
    default: product_block(6, vecs, p, row, col, finish); break;
    }
}

static void dot_bf16(const MatrixProduct *p, int64_t rows, const BlockFinish *finish)
{
    for (int64_t row = 0; row < rows; row += BLOCK_ROWS) {
        if (p->cols == PANEL_COLS)
            product_rows(4, p, row, rows, 0, finish);
        for (int col = 0; p->cols < PANEL_COLS && col < p->cols; col += 16)
            product_rows(1, p, row, rows, col, finish);
    }
}

/* Nibbles -------------------------------------------------------------------------------------- */

static void decode_nibbles(const MatrixDecode *d)
{
    const __m512i table = _mm512_loadu_si512(pair_table(d->fmt)->value);
    const __m512 values = code_table(d->fmt);
    for (int64_t u = 0; u < d->units; u++)
        for (int col = 0; col < d->cols; col += 16) {
            const uint8_t *w = d->src + (u * d->cols + col) * 4;
            uint16_t *dst = d->dst + (u * 8 * d->cols + 2 * col);
            __m512 zero = _mm512_setzero_ps();
            __m512i words = _mm512_loadu_si512(w);
            if (d->zero)
                zero = _mm512_cvtepi32_ps(_mm512_loadu_si512(d->zero + col));
            for_each(i, 4) {
                __m512i codes = _mm512_srli_epi32(words, 4 * (unsigned)i);
                __m512i pairs = _mm512_permutexvar_epi16(codes, table);
                if (d->zero) {
                    __m512 even = _mm512_permutexvar_ps(codes, values);
                    __m512 odd = _mm512_permutexvar_ps(_mm512_srli_epi32(codes, 16), values);
                    pairs = pair_exact(_mm512_sub_ps(even, zero), _mm512_sub_ps(odd, zero));
                }
                _mm512_storeu_si512(dst + 2 * i * d->cols, pairs);
            }
        }
}

static void decode(const MatrixDecode *d)
{
    if (format_is_nibble(d->fmt))
        decode_nibbles(d);
    else
        pairs_decode(d);
}

/* Few rows: weights become pairs in registers -------------------------------------------------- */

/* What all units of a panel need. */
typedef struct FewTables {
    __m512i nibble;
    E4m3Halves e4m3;
    HalfExponents seen;
} FewTables;

typedef __m512 FewSums[DIRECT_ROWS][4];

INLINE void few_add(int rows, int v, const MatrixFew *f, const uint16_t *a, __m512i pairs,
                    FewSums acc)
{
    for_each(r, rows)
        acc[r][v] = dot_pairs(acc[r][v], broadcast_4((const uint8_t *)(a + r * f->lda)), pairs);
}

/* Loaded once: the compiler would load it again for each shift. */
INLINE __m512i in_register(__m512i x)
{
    __asm__("" : "+v"(x));
    return x;
}

INLINE void few_nibbles(int rows, int vecs, const MatrixFew *f, const uint16_t *a, const uint8_t *w,
                        const FewTables *t, FewSums acc)
{
    __m512i words[4];
    for_each(v, vecs)
        words[v] = in_register(_mm512_loadu_si512(w + 64 * v));
    for_each(i, 4)
        for_each(v, vecs) {
            __m512i codes = i ? _mm512_srli_epi32(words[v], 4 * (unsigned)i) : words[v];
            few_add(rows, v, f, a + 2 * i, _mm512_permutexvar_epi16(codes, t->nibble), acc);
        }
}

/* 64 columns of two rows of K, in the order that unpacking makes; as sums_in_order finds them. */
INLINE void few_bf16(int rows, const MatrixFew *f, const uint16_t *a, const uint8_t *w,
                     bool has_odd, FewTables *t, FewSums acc)
{
    for_each(h, 2) {
        __m512i even = _mm512_loadu_si512(w + 64 * h), odd = _mm512_setzero_si512();
        if (has_odd)
            odd = _mm512_loadu_si512(w + 2 * PANEL_COLS + 64 * h);
        halves_see(&t->seen, even);
        halves_see(&t->seen, odd);
        few_add(rows, 2 * h, f, a, _mm512_unpacklo_epi16(even, odd), acc);
        few_add(rows, 2 * h + 1, f, a, _mm512_unpackhi_epi16(even, odd), acc);
    }
}

INLINE void few_e4m3(int rows, const MatrixFew *f, const uint16_t *a, const uint8_t *w,
                     bool has_odd, const FewTables *t, FewSums acc)
{
    __m512i even = _mm512_loadu_si512(w), odd = _mm512_setzero_si512();
    if (has_odd)
        odd = _mm512_loadu_si512(w + PANEL_COLS);
    for_each(h, 2) {
        __m512i codes = h ? _mm512_unpackhi_epi8(even, odd) : _mm512_unpacklo_epi8(even, odd);
        __m512i low = e4m3_low(codes, &t->e4m3), high = e4m3_high(codes, &t->e4m3);
        few_add(rows, 2 * h, f, a, _mm512_unpacklo_epi8(low, high), acc);
        few_add(rows, 2 * h + 1, f, a, _mm512_unpackhi_epi8(low, high), acc);
    }
}

INLINE void few_values(int rows, int vecs, FormatId fmt, int bytes, const MatrixFew *f,
                       const uint16_t *a, const uint8_t *w, bool has_odd, FewTables *t, FewSums acc)
{
    for_each(v, vecs) {
        __m512 even = decode_16(fmt, w + 16 * v * bytes), odd = _mm512_setzero_ps();
        if (has_odd)
            odd = decode_16(fmt, w + bytes * f->cols + 16 * v * bytes);
        __m512i pairs = pair_exact(even, odd);
        if (fmt == FMT_BF16)
            halves_see(&t->seen, pairs);
        few_add(rows, v, f, a, pairs, acc);
    }
}

/* Columns of few_bf16 and few_e4m3 in order. */
INLINE void sums_in_order(FormatId fmt, __m512 *sum)
{
    if (fmt == FMT_BF16) {
        unpacked_in_order(sum);
    } else if (fmt == FMT_E4M3) {
        __m512 a = _mm512_shuffle_f32x4(sum[0], sum[1], 0x44);
        __m512 b = _mm512_shuffle_f32x4(sum[0], sum[1], 0xee);
        __m512 c = _mm512_shuffle_f32x4(sum[2], sum[3], 0x44);
        __m512 d = _mm512_shuffle_f32x4(sum[2], sum[3], 0xee);
        sum[0] = _mm512_shuffle_f32x4(a, c, 0x88);
        sum[1] = _mm512_shuffle_f32x4(a, c, 0xdd);
        sum[2] = _mm512_shuffle_f32x4(b, d, 0x88);
        sum[3] = _mm512_shuffle_f32x4(b, d, 0xdd);
    }
}

/* One block's sums of 16 * vecs columns; bytes 0: nibbles. */
INLINE void few_block(int rows, int vecs, FormatId fmt, int bytes, const MatrixFew *f,
                      const PackBlock *b, int col, const uint16_t *a, CpuFetch fetch, FewTables *t,
                      FewSums acc)
{
    const uint8_t *w = b->codes + col * (bytes ? bytes : 4);
    for_each(r, rows)
        for_each(v, vecs)
            acc[r][v] = _mm512_setzero_ps();
    for (int64_t u = 0; !bytes && u < b->units; u++, w += 4 * f->cols, a += 8) {
        fetch_ahead(fetch, w, 4);
        few_nibbles(rows, vecs, f, a, w, t, acc);
    }
    for (int64_t u = 0; bytes && u < b->units; u += 2, w += 2 * bytes * f->cols, a += 2) {
        fetch_ahead(fetch, w, 2 * bytes);
        bool has_odd = u + 1 < b->units;
        if (fmt == FMT_BF16 && vecs == 4)
            few_bf16(rows, f, a, w, has_odd, t, acc);
        else if (fmt == FMT_E4M3 && vecs == 4)
            few_e4m3(rows, f, a, w, has_odd, t, acc);
        else
            few_values(rows, vecs, fmt, bytes, f, a, w, has_odd, t, acc);
    }
    for (int r = 0; vecs == 4 && r < rows; r++)
        sums_in_order(fmt, acc[r]);
}

/* The end of block number i for 16 * vecs columns. */
INLINE void few_finish(int rows, int vecs, const MatrixFew *f, const PackBlock *b, int64_t i,
                       int col, const FewTables *t, FewSums acc, FewSums out)
{
    const PackLayout *l = f->layout;
    __m512 sb[4];
    block_scales(vecs, l, b->scale, col, &t->e4m3, sb);
    for_each(v, vecs) {
        __m512 zero = _mm512_setzero_ps();
        if (b->zero)
            zero = decode_16(FMT_I8, (const uint8_t *)b->zero + col + 16 * v);
        for_each(r, rows) {
            int64_t at = r * l->blocks + i;
            __m512 both = f->scale ? _mm512_mul_ps(_mm512_set1_ps(f->scale[at]), sb[v]) : sb[v];
            out[r][v] = l->mainloop ? finish_f32(acc[r][v], zero, b->zero != NULL,
                                                 b->zero ? f->sum[at] : 0, both, out[r][v])
                                    : acc[r][v];
        }
    }
}

/* Columns [col, col + 16 * vecs) of a panel, all blocks. */
INLINE void few_columns(int rows, int vecs, FormatId fmt, int bytes, const MatrixFew *f, int col)
{
    const PackLayout *l = f->layout;
    const CpuFetch fetch = vecs == 4 ? cpu_fetch() : FETCH_NONE;
    const uint16_t *a = f->halves;
    FewTables t = {.seen = NO_HALVES};
    FewSums acc, out;
    if (!bytes)
        t.nibble = _mm512_loadu_si512(pair_table(l->fmt)->value);
    if (fmt == FMT_E4M3 || (vecs == 4 && l->scale_fmt == FMT_E4M3))
        t.e4m3 = e4m3_halves();
    for_each(r, rows)
        for_each(v, vecs)
            out[r][v] = _mm512_setzero_ps();
    PackBlock b = layout_block(l, f->panel, f->cols, 0);
    const RecordSteps steps = record_steps(l, f->panel, f->cols);
    for (int64_t i = 0; i < l->blocks; record_next(&steps, l, f->panel, f->cols, i++, &b)) {
        few_block(rows, vecs, fmt, bytes, f, &b, col, a, fetch, &t, acc);
        record_fetch(fetch, &steps, &b, bytes ? 2 * bytes : 4);
        a += b.units * l->unit;
        few_finish(rows, vecs, f, &b, i, col, &t, acc, out);
    }
    for_each(r, rows)
        for_each(v, vecs)
            _mm512_storeu_ps(f->out + r * f->ld + col + 16 * v, out[r][v]);
    if (fmt == FMT_BF16)
        halves_range(&t.seen, f->exponent);
}

#define FEW_ROWS_CASE(rows, fmt, bytes)                                     \
    case rows:                                                              \
        if (f->cols == PANEL_COLS)                                          \
            few_columns(rows, 4, fmt, bytes, f, 0);                         \
        for (int col = 0; f->cols < PANEL_COLS && col < f->cols; col += 16) \
            few_columns(rows, 1, fmt, bytes, f, col);                       \
        break;
#define FEW_FORMAT(name, fmt, bytes)                \
    static void few_rows_##name(const MatrixFew *f) \
    {                                               \
        switch (f->rows) {                          \
            FEW_ROWS_CASE(1, fmt, bytes)            \
            FEW_ROWS_CASE(2, fmt, bytes)            \
            FEW_ROWS_CASE(3, fmt, bytes)            \
            FEW_ROWS_CASE(4, fmt, bytes)            \
        default: break;                             \
        }                                           \
    }
FEW_FORMAT(nibbles, FMT_NONE, 0)
FEW_FORMAT(bf16, FMT_BF16, 2)
FEW_FORMAT(e4m3, FMT_E4M3, 1)
FEW_FORMAT(e5m2, FMT_E5M2, 1)
FEW_FORMAT(i8, FMT_I8, 1)

static void few_rows_at_once(const MatrixFew *f)
{
    switch (f->layout->fmt) {
    case FMT_BF16: few_rows_bf16(f); break;
    case FMT_E4M3: few_rows_e4m3(f); break;
    case FMT_E5M2: few_rows_e5m2(f); break;
    case FMT_I8: few_rows_i8(f); break;
    default: few_rows_nibbles(f); break;
    }
}

/* More rows are as many times so few: decoding four times as often costs less than memory for what
 * was decoded, as permutations and products take different units (up to few_often where a cycle has
 * two products: permutations are what takes time then). */
static bool few_rows(const MatrixFew *f)
{
    const PackLayout *l = f->layout;
    bool early_zero = l->has_zero && !l->late_zero;
    if (early_zero || l->fmt == FMT_U8)
        return false;
    for (int row = 0; row < f->rows; row += DIRECT_ROWS) {
        MatrixFew some = *f;
        some.rows = f->rows - row < DIRECT_ROWS ? f->rows - row : DIRECT_ROWS;
        some.halves += row * f->lda;
        some.sum = f->sum ? f->sum + row * l->blocks : NULL;
        some.scale = f->scale ? f->scale + row * l->blocks : NULL;
        some.out += row * f->ld;
        few_rows_at_once(&some);
    }
    return true;
}

static void nothing(void)
{
}

const CpuMatrix cpu_matrix_bf16 = {.begin = nothing,
                                   .end = nothing,
                                   .dot_bf16 = dot_bf16,
                                   .decode = decode,
                                   .few_rows = few_rows,
                                   .split = pairs_split,
                                   .few_nibbles = INT64_MAX,
                                   .few_often = 48,
                                   .few_bytes = 64,
                                   .few_halves = 8, /* panels of more bits may not fit a cache */
                                   .most_parts = 1,
                                   .crosses = true};
