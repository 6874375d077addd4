/* VNNI in registers of 256 bits, where there is no AVX-512: the integer dot product of the AVX2
 * kernels. */
#include "kernels/cpu/records.h"
#include <string.h>

#define ROWS 6

INLINE __m256i load_i32(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

INLINE void dot_block(int rows, int vecs, const uint8_t *a, int64_t lda, const int8_t *w,
                      int64_t w_step, int64_t units, int32_t *c, int64_t ldc, bool accumulate,
                      CpuFetch fetch)
{
    __m256i acc[ROWS][8];
    for_each(r, rows)
        for_each(v, vecs)
            acc[r][v] = accumulate ? load_i32(c + r * ldc + 8 * v) : _mm256_setzero_si256();
    for (int64_t u = 0; u < units; u++, w += w_step, a += 4) {
        __m256i b[8];
        fetch_ahead(fetch, w, 4);
        for_each(v, vecs)
            b[v] = load_i32(w + 32 * v);
        for_each(r, rows) {
            int32_t word;
            memcpy(&word, a + r * lda, 4);
            __m256i x = _mm256_set1_epi32(word);
            for_each(v, vecs)
                acc[r][v] = _mm256_dpbusd_avx_epi32(acc[r][v], x, b[v]);
        }
    }
    for_each(r, rows)
        for_each(v, vecs)
            _mm256_storeu_si256((__m256i *)(c + r * ldc + 8 * v), acc[r][v]);
}

void cpu_dot_i32_avxvnni(int64_t rows, const uint8_t *a, int64_t lda, const int8_t *w, int cols,
                         int64_t units, int32_t *c, int64_t ldc, bool accumulate)
{
    const int64_t step = 4 * (int64_t)cols;
    const CpuFetch fetch = rows <= DIRECT_ROWS && cols == PANEL_COLS ? cpu_fetch() : FETCH_NONE;
    if (rows == 1 && cols == PANEL_COLS) {
        dot_block(1, 8, a, lda, w, step, units, c, ldc, accumulate, fetch);
        return;
    }
    for (int col = 0; col < cols; col += 16)
        for (int64_t r = 0; r < rows; r += ROWS) {
            const uint8_t *x = a + r * lda;
            const int8_t *b = w + 4 * col;
            int32_t *out = c + r * ldc + col;
            const CpuFetch how = col ? FETCH_NONE : fetch;
            CASES_OF_6(rows - r, dot_block, 2, x, lda, b, step, units, out, ldc, accumulate, how)
        }
}
