/* Nibbles against few rows in matrix units: a step of K is decoded to tiles in the first cache and
 * multiplied there, while memory brings what follows. The sums are those of kernels_amx.c. */
#include "kernels/cpu/amx.h"

#define STEP_K (MATRIX_K / 8) /* units of a step */

/* Tiles as the compiler does not see them: memory must be as written. */
INLINE void memory_is_read(void)
{
    __asm__ volatile("" ::: "memory");
}

/* Up to a step's units of 16 * vecs columns to the rows of tiles side by side. */
INLINE void step_decode(int vecs, __m512i table, const uint8_t *w, int64_t w_step, int64_t units,
                        uint8_t *tiles)
{
    for (int64_t u = 0; u < units; u++, w += w_step) {
        if (vecs == 4)
            fetch_ahead(FETCH_PAGES, w, 4);
        for_each(v, vecs) {
            __m512i words = _mm512_loadu_si512(w + 64 * v);
            for_each(i, 4) {
                __m512i pairs = _mm512_permutexvar_epi16(
                    _mm512_multishift_epi64_epi8(pair_places(i), words), table);
                _mm512_store_si512(tiles + (4 * u + i) * vecs * TILE_BYTES + 64 * v, pairs);
            }
        }
    }
    for (int64_t at = 4 * units * vecs; at < STEP_UNITS * vecs; at++)
        _mm512_store_si512(tiles + at * TILE_BYTES, _mm512_setzero_si512());
}

INLINE void step_multiply(int vecs, const uint16_t *a, int64_t lda, const uint8_t *tiles)
{
    const int64_t step = (int64_t)vecs * TILE_BYTES;
    memory_is_read();
    _tile_loadd(4, a, 2 * lda);
    _tile_loadd(6, tiles, step);
    _tile_dpbf16ps(0, 4, 6);
    if (vecs == 1)
        return;
    _tile_loadd(7, tiles + TILE_BYTES, step);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(6, tiles + 2 * TILE_BYTES, step);
    _tile_dpbf16ps(2, 4, 6);
    _tile_loadd(7, tiles + 3 * TILE_BYTES, step);
    _tile_dpbf16ps(3, 4, 7);
}

INLINE void sums_clear(int vecs)
{
    _tile_zero(0);
    if (vecs == 1)
        return;
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
}

INLINE void sums_store(int vecs, float *sums)
{
    _tile_stored(0, sums, 4 * PANEL_COLS);
    if (vecs > 1) {
        _tile_stored(1, sums + 16, 4 * PANEL_COLS);
        _tile_stored(2, sums + 32, 4 * PANEL_COLS);
        _tile_stored(3, sums + 48, 4 * PANEL_COLS);
    }
    memory_is_read();
}

/* The end of block b, number i, for 16 columns. */
INLINE void block_finish(const MatrixFew *f, const PackBlock *b, int64_t i, int col,
                         const float *sums, float *out)
{
    const PackLayout *l = f->layout;
    __m512 sb = _mm512_set1_ps(1.0f), zero = _mm512_setzero_ps();
    if (b->scale)
        sb = decode_scale(l, b->scale, col);
    if (b->zero)
        zero = decode_16(FMT_I8, (const uint8_t *)b->zero + col);
    for (int r = 0; r < f->rows; r++, sums += PANEL_COLS, out += f->ld) {
        int64_t at = r * l->blocks + i;
        __m512 x = _mm512_loadu_ps(sums), before = _mm512_setzero_ps(), both = sb;
        if (!l->mainloop) {
            _mm512_storeu_ps(out, x);
            continue;
        }
        if (i)
            before = _mm512_loadu_ps(out);
        if (f->scale)
            both = _mm512_mul_ps(_mm512_set1_ps(f->scale[at]), sb);
        x = finish_f32(x, zero, b->zero != NULL, b->zero ? f->sum[at] : 0, both, before);
        _mm512_storeu_ps(out, x);
    }
}

/* A step of a panel: where it is in its block. */
typedef struct Step {
    PackBlock b;
    int64_t i, u; /* number of the block, and of the first unit in it */
} Step;

/* Decodes a step and goes on to the next one. */
INLINE void step_next(int vecs, const MatrixFew *f, int col, __m512i table,
                      const RecordSteps *steps, Step *s, uint8_t *tiles)
{
    const PackLayout *l = f->layout;
    int64_t w_step = 4 * f->cols, left = s->b.units - s->u;
    if (s->i >= l->blocks)
        return;
    step_decode(vecs, table, s->b.codes + 4 * col + s->u * w_step, w_step,
                left < STEP_K ? left : STEP_K, tiles);
    s->u += STEP_K;
    if (s->u < s->b.units)
        return;
    if (vecs == 4)
        record_fetch(FETCH_PAGES, steps, &s->b, 4);
    record_next(steps, l, f->panel, f->cols, s->i++, &s->b);
    s->u = 0;
}

/* Columns [col, col + 16 * vecs) of a panel, all blocks. A step is decoded before the one in front
 * of it is multiplied: its rows have to reach the cache before tiles load them. */
INLINE void nibbles_columns(int vecs, const MatrixFew *f, int col)
{
    const PackLayout *l = f->layout;
    const __m512i table = _mm512_loadu_si512(pair_table(l->fmt)->value);
    const uint16_t *a = f->halves;
    const RecordSteps steps = record_steps(l, f->panel, f->cols);
    _Alignas(64) uint8_t tiles[2][STEP_UNITS * 4 * TILE_BYTES];
    _Alignas(64) float sums[TILE_ROWS * PANEL_COLS];
    Step next = {.b = layout_block(l, f->panel, f->cols, 0)}, now = next;
    step_next(vecs, f, col, table, &steps, &next, tiles[0]);
    for (int turn = 0; now.i < l->blocks; turn = !turn) {
        const Step after = next;
        int64_t left = now.b.units - now.u;
        step_next(vecs, f, col, table, &steps, &next, tiles[!turn]);
        if (!now.u)
            sums_clear(vecs);
        step_multiply(vecs, a, f->lda, tiles[turn]);
        a += 8 * (left < STEP_K ? left : STEP_K);
        if (left <= STEP_K) {
            sums_store(vecs, sums);
            for_each(v, vecs)
                block_finish(f, &now.b, now.i, col + 16 * v, sums + 16 * v, f->out + col + 16 * v);
        }
        now = after;
    }
}

void amx_few_nibbles(const MatrixFew *f)
{
    amx_shape(f->rows, 0);
    if (f->cols == PANEL_COLS)
        nibbles_columns(4, f, 0);
    for (int col = 0; f->cols < PANEL_COLS && col < f->cols; col += 16)
        nibbles_columns(1, f, col);
}
