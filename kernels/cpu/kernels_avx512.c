/* AVX-512 with VNNI: blocks of 6 rows by 64 columns in 24 accumulators. */
#include "kernels/cpu/tile_impl.h"
#include <immintrin.h>

#define BLOCK_ROWS 6
#define INLINE     static inline __attribute__((always_inline))
#define UNROLL     _Pragma("GCC unroll 8")

INLINE __m512i broadcast_4(const uint8_t *p)
{
    int32_t word;
    memcpy(&word, p, 4);
    return _mm512_set1_epi32(word);
}

INLINE void dot_i32_block(int rows, int vecs, const uint8_t *a, int64_t lda, const int8_t *w,
                          int64_t w_step, int64_t units, int32_t *c, int64_t ldc, bool accumulate)
{
    __m512i acc[BLOCK_ROWS][4];
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < vecs; v++) acc[r][v] =
        accumulate ? _mm512_loadu_si512(c + r * ldc + 16 * v) : _mm512_setzero_si512();
    for (int64_t u = 0; u < units; u++, w += w_step, a += 4) {
        __m512i b[4];
        UNROLL for (int v = 0; v < vecs; v++) b[v] = _mm512_loadu_si512(w + 64 * v);
        UNROLL for (int r = 0; r < rows; r++)
        {
            __m512i x = broadcast_4(a + r * lda);
            UNROLL for (int v = 0; v < vecs; v++) acc[r][v] =
                _mm512_dpbusd_epi32(acc[r][v], x, b[v]);
        }
    }
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < vecs; v++)
        _mm512_storeu_si512(c + r * ldc + 16 * v, acc[r][v]);
}

INLINE void dot_f32_block(int rows, int vecs, const float *a, int64_t lda, const float *w,
                          int64_t w_step, int64_t k, float *c, int64_t ldc, bool accumulate)
{
    __m512 acc[BLOCK_ROWS][4];
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < vecs; v++) acc[r][v] =
        accumulate ? _mm512_loadu_ps(c + r * ldc + 16 * v) : _mm512_setzero_ps();
    for (int64_t i = 0; i < k; i++, w += w_step) {
        __m512 b[4];
        UNROLL for (int v = 0; v < vecs; v++) b[v] = _mm512_loadu_ps(w + 16 * v);
        UNROLL for (int r = 0; r < rows; r++)
        {
            __m512 x = _mm512_set1_ps(a[r * lda + i]);
            UNROLL for (int v = 0; v < vecs; v++) acc[r][v] = _mm512_fmadd_ps(x, b[v], acc[r][v]);
        }
    }
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < vecs; v++)
        _mm512_storeu_ps(c + r * ldc + 16 * v, acc[r][v]);
}

/* A call of `block` with its numbers of rows and vectors as constants. */
#define BLOCK_CASES(block, vecs, ...)                        \
    switch (rows - r < BLOCK_ROWS ? rows - r : BLOCK_ROWS) { \
    case 1: block(1, vecs, __VA_ARGS__); break;              \
    case 2: block(2, vecs, __VA_ARGS__); break;              \
    case 3: block(3, vecs, __VA_ARGS__); break;              \
    case 4: block(4, vecs, __VA_ARGS__); break;              \
    case 5: block(5, vecs, __VA_ARGS__); break;              \
    default: block(6, vecs, __VA_ARGS__); break;             \
    }

static void dot_i32(int64_t rows, const uint8_t *a, int64_t lda, const int8_t *w, int cols,
                    int64_t units, int32_t *c, int64_t ldc, bool accumulate)
{
    for (int64_t r = 0; r < rows; r += BLOCK_ROWS) {
        const uint8_t *x = a + r * lda;
        int32_t *out = c + r * ldc;
        if (cols == PANEL_COLS) {
            BLOCK_CASES(dot_i32_block, 4, x, lda, w, 256, units, out, ldc, accumulate)
            continue;
        }
        for (int col = 0; col < cols; col += 16)
            BLOCK_CASES(dot_i32_block, 1, x, lda, w + 4 * col, 4 * cols, units, out + col, ldc,
                        accumulate)
    }
}

static void dot_f32(int64_t rows, const float *a, int64_t lda, const float *w, int cols, int64_t k,
                    float *c, int64_t ldc, bool accumulate)
{
    for (int64_t r = 0; r < rows; r += BLOCK_ROWS) {
        const float *x = a + r * lda;
        float *out = c + r * ldc;
        if (cols == PANEL_COLS) {
            BLOCK_CASES(dot_f32_block, 4, x, lda, w, 64, k, out, ldc, accumulate)
            continue;
        }
        for (int col = 0; col < cols; col += 16)
            BLOCK_CASES(dot_f32_block, 1, x, lda, w + col, cols, k, out + col, ldc, accumulate)
    }
}

const CpuKernels cpu_kernels_avx512 = {
    .dot_i32 = dot_i32, .dot_f32 = dot_f32, .decode_f32 = block_decode_f32, CPU_KERNELS_SHARED};
