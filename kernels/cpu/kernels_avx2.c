/* AVX2 and FMA: blocks of rows by 16 columns. Without VNNI, bytes are widened to 16 bits and
 * multiplied in pairs, which cannot saturate. */
#include "kernels/cpu/decode_impl.h"
#include "kernels/cpu/tile_impl.h"
#include <immintrin.h>

#define INT_ROWS   4
#define FLOAT_ROWS 6
#define INLINE     static inline __attribute__((always_inline))
/* Loops of constant length, unrolled so that their arrays are registers. */
#define for_each(i, num) _Pragma("GCC unroll 8") for (int i = 0; i < (num); i++)

INLINE __m256i load_i32(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

/* Each word of w holds bytes of four k: the even ones and the odd ones as pairs of 16 bits. */
INLINE void dot_i32_block(int rows, const uint8_t *a, int64_t lda, const int8_t *w, int64_t w_step,
                          int64_t units, int32_t *c, int64_t ldc, bool accumulate)
{
    const __m256i low = _mm256_set1_epi16(255);
    __m256i acc[INT_ROWS][2];
    for_each(r, rows)
        for_each(v, 2)
            acc[r][v] = accumulate ? load_i32(c + r * ldc + 8 * v) : _mm256_setzero_si256();
    for (int64_t u = 0; u < units; u++, w += w_step, a += 4) {
        __m256i even[2], odd[2];
        for_each(v, 2) {
            __m256i b = load_i32(w + 32 * v);
            even[v] = _mm256_srai_epi16(_mm256_slli_epi16(b, 8), 8);
            odd[v] = _mm256_srai_epi16(b, 8);
        }
        for_each(r, rows) {
            int32_t word;
            memcpy(&word, a + r * lda, 4);
            __m256i x = _mm256_set1_epi32(word);
            __m256i x_even = _mm256_and_si256(x, low), x_odd = _mm256_srli_epi16(x, 8);
            for_each(v, 2) {
                __m256i sum = _mm256_add_epi32(_mm256_madd_epi16(x_even, even[v]),
                                               _mm256_madd_epi16(x_odd, odd[v]));
                acc[r][v] = _mm256_add_epi32(acc[r][v], sum);
            }
        }
    }
    for_each(r, rows)
        for_each(v, 2)
            _mm256_storeu_si256((__m256i *)(c + r * ldc + 8 * v), acc[r][v]);
}

INLINE void dot_f32_block(int rows, const float *a, int64_t lda, const float *w, int64_t w_step,
                          int64_t k, float *c, int64_t ldc, bool accumulate)
{
    __m256 acc[FLOAT_ROWS][2];
    for_each(r, rows)
        for_each(v, 2)
            acc[r][v] = accumulate ? _mm256_loadu_ps(c + r * ldc + 8 * v) : _mm256_setzero_ps();
    for (int64_t i = 0; i < k; i++, w += w_step) {
        __m256 b0 = _mm256_loadu_ps(w), b1 = _mm256_loadu_ps(w + 8);
        for_each(r, rows) {
            __m256 x = _mm256_broadcast_ss(a + r * lda + i);
            acc[r][0] = _mm256_fmadd_ps(x, b0, acc[r][0]);
            acc[r][1] = _mm256_fmadd_ps(x, b1, acc[r][1]);
        }
    }
    for_each(r, rows)
        for_each(v, 2)
            _mm256_storeu_ps(c + r * ldc + 8 * v, acc[r][v]);
}

static void dot_i32(int64_t rows, const uint8_t *a, int64_t lda, const int8_t *w, int cols,
                    int64_t units, int32_t *c, int64_t ldc, bool accumulate,
                    const BlockFinish *finish, const uint8_t *ahead)
{
    (void)ahead;
    for (int col = 0; col < cols; col += 16)
        for (int64_t r = 0; r < rows; r += INT_ROWS) {
            const uint8_t *x = a + r * lda;
            const int8_t *b = w + 4 * col;
            int32_t *out = c + r * ldc + col;
            int64_t step = 4 * (int64_t)cols;
            switch (rows - r) {
            case 1: dot_i32_block(1, x, lda, b, step, units, out, ldc, accumulate); break;
            case 2: dot_i32_block(2, x, lda, b, step, units, out, ldc, accumulate); break;
            case 3: dot_i32_block(3, x, lda, b, step, units, out, ldc, accumulate); break;
            default: dot_i32_block(4, x, lda, b, step, units, out, ldc, accumulate); break;
            }
        }
    if (finish)
        block_finish_i32(finish, rows, cols, c, ldc);
}

static void dot_f32(int64_t rows, const float *a, int64_t lda, const float *w, int cols, int64_t k,
                    float *c, int64_t ldc, bool accumulate, const BlockFinish *finish)
{
    for (int col = 0; col < cols; col += 16)
        for (int64_t r = 0; r < rows; r += FLOAT_ROWS) {
            const float *x = a + r * lda, *b = w + col;
            float *out = c + r * ldc + col;
            switch (rows - r) {
            case 1: dot_f32_block(1, x, lda, b, cols, k, out, ldc, accumulate); break;
            case 2: dot_f32_block(2, x, lda, b, cols, k, out, ldc, accumulate); break;
            case 3: dot_f32_block(3, x, lda, b, cols, k, out, ldc, accumulate); break;
            case 4: dot_f32_block(4, x, lda, b, cols, k, out, ldc, accumulate); break;
            case 5: dot_f32_block(5, x, lda, b, cols, k, out, ldc, accumulate); break;
            default: dot_f32_block(6, x, lda, b, cols, k, out, ldc, accumulate); break;
            }
        }
    if (finish)
        block_finish_f32(finish, rows, cols, c, ldc);
}

/* Eight values of 4-bit codes: two tables of eight, chosen by the code's highest bit. */
INLINE __m256 lookup(__m256i code, __m256 low, __m256 high)
{
    __m256 choose = _mm256_castsi256_ps(_mm256_slli_epi32(code, 28));
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(low, code),
                            _mm256_permutevar8x32_ps(high, code), choose);
}

static void decode_f32(FormatId fmt, const uint8_t *src, int cols, int64_t units,
                       const int32_t *zero, const CodeTables *tables, float *dst)
{
    if (!format_is_nibble(fmt) || !tables->all) {
        block_decode_f32(fmt, src, cols, units, zero, tables, dst);
        return;
    }
    const __m256 low = _mm256_loadu_ps(tables->all), high = _mm256_loadu_ps(tables->all + 8);
    for (int64_t u = 0; u < units; u++)
        for (int col = 0; col < cols; col += 8) {
            __m256i word = load_i32(src + (u * cols + col) * 4);
            __m256 z = _mm256_setzero_ps();
            if (zero)
                z = _mm256_cvtepi32_ps(load_i32(zero + col));
            for_each(i, 8) {
                __m256 x = lookup(word, low, high);
                word = _mm256_srli_epi32(word, 4);
                _mm256_storeu_ps(dst + (u * 8 + i) * cols + col, _mm256_sub_ps(x, z));
            }
        }
}

#define AVX2_KERNELS                                                               \
    .dot_f32 = dot_f32, .decode_f32 = decode_f32, .direct_i4 = cpu_direct_i4_avx2, \
    CPU_KERNELS_SHARED
const CpuKernels cpu_kernels_avx2 = {.dot_i32 = dot_i32, AVX2_KERNELS};

#if defined(SINTER_CPU_AVXVNNI)
static void dot_i32_vnni(int64_t rows, const uint8_t *a, int64_t lda, const int8_t *w, int cols,
                         int64_t units, int32_t *c, int64_t ldc, bool accumulate,
                         const BlockFinish *finish, const uint8_t *ahead)
{
    (void)ahead;
    cpu_dot_i32_avxvnni(rows, a, lda, w, cols, units, c, ldc, accumulate);
    if (finish)
        block_finish_i32(finish, rows, cols, c, ldc);
}

const CpuKernels cpu_kernels_avxvnni = {.dot_i32 = dot_i32_vnni, AVX2_KERNELS};
#endif
