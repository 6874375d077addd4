/* VNNI in registers of 256 bits, where there is no AVX-512: the integer dot product of the AVX2
 * kernels. */
#include "kernels/cpu/kernels.h"
#include <immintrin.h>
#include <string.h>

#define ROWS   6
#define INLINE static inline __attribute__((always_inline))
/* Loops of constant length, unrolled so that their arrays are registers. */
#define for_each(i, num) _Pragma("GCC unroll 8") for (int i = 0; i < (num); i++)

INLINE __m256i load_i32(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

INLINE void dot_block(int rows, const uint8_t *a, int64_t lda, const int8_t *w, int64_t w_step,
                      int64_t units, int32_t *c, int64_t ldc, bool accumulate)
{
    __m256i acc[ROWS][2];
    for_each(r, rows)
        for_each(v, 2)
            acc[r][v] = accumulate ? load_i32(c + r * ldc + 8 * v) : _mm256_setzero_si256();
    for (int64_t u = 0; u < units; u++, w += w_step, a += 4) {
        __m256i w0 = load_i32(w), w1 = load_i32(w + 32);
        for_each(r, rows) {
            int32_t word;
            memcpy(&word, a + r * lda, 4);
            __m256i x = _mm256_set1_epi32(word);
            acc[r][0] = _mm256_dpbusd_avx_epi32(acc[r][0], x, w0);
            acc[r][1] = _mm256_dpbusd_avx_epi32(acc[r][1], x, w1);
        }
    }
    for_each(r, rows)
        for_each(v, 2)
            _mm256_storeu_si256((__m256i *)(c + r * ldc + 8 * v), acc[r][v]);
}

void cpu_dot_i32_avxvnni(int64_t rows, const uint8_t *a, int64_t lda, const int8_t *w, int cols,
                         int64_t units, int32_t *c, int64_t ldc, bool accumulate)
{
    int64_t step = 4 * (int64_t)cols;
    for (int col = 0; col < cols; col += 16)
        for (int64_t r = 0; r < rows; r += ROWS) {
            const uint8_t *x = a + r * lda;
            const int8_t *b = w + 4 * col;
            int32_t *out = c + r * ldc + col;
            switch (rows - r) {
            case 1: dot_block(1, x, lda, b, step, units, out, ldc, accumulate); break;
            case 2: dot_block(2, x, lda, b, step, units, out, ldc, accumulate); break;
            case 3: dot_block(3, x, lda, b, step, units, out, ldc, accumulate); break;
            case 4: dot_block(4, x, lda, b, step, units, out, ldc, accumulate); break;
            case 5: dot_block(5, x, lda, b, step, units, out, ldc, accumulate); break;
            default: dot_block(6, x, lda, b, step, units, out, ldc, accumulate); break;
            }
        }
}
