/* The portable kernels: plain C that any compiler vectorises as far as its target allows. */
#include "kernels/cpu/decode_impl.h"
#include "kernels/cpu/tile_impl.h"
#if defined(__ARM_FEATURE_DOTPROD)
#include <arm_neon.h>
#endif

#define STRIP 16

/* Where the target has no fused multiply-add, a call a product would cost more than the whole sum.
 */
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA) || defined(__aarch64__)
#define MULTIPLY_ADD(a, b, c) num_fma(a, b, c)
#else
#define MULTIPLY_ADD(a, b, c) ((a) * (b) + (c))
#endif

#if defined(__ARM_FEATURE_DOTPROD)
/* acc[16] += four bytes of x by four of each of 16 columns. */
static inline void dot_unit(const uint8_t *x, const int8_t *w, int32_t *acc)
{
    uint32_t word;
    memcpy(&word, x, sizeof word);
    for (int i = 0; i < STRIP; i += 4) {
        int32x4_t sum = vld1q_s32(acc + i);
        int8x16_t b = vld1q_s8(w + 4 * i);
#if defined(__ARM_FEATURE_MATMUL_INT8)
        sum = vusdotq_s32(sum, vreinterpretq_u8_u32(vdupq_n_u32(word)), b);
#else /* signed by signed only: x = (x - 128) + 64 + 64 */
        sum = vdotq_s32(sum, vreinterpretq_s8_u32(vdupq_n_u32(word ^ 0x80808080)), b);
        sum = vdotq_s32(vdotq_s32(sum, vdupq_n_s8(64), b), vdupq_n_s8(64), b);
#endif
        vst1q_s32(acc + i, sum);
    }
}
#else
static inline void dot_unit(const uint8_t *x, const int8_t *w, int32_t *acc)
{
    for (int j = 0; j < STRIP; j++)
        acc[j] += x[0] * w[4 * j] + x[1] * w[4 * j + 1] + x[2] * w[4 * j + 2] + x[3] * w[4 * j + 3];
}
#endif

static void block_finish_i32(const BlockFinish *f, int64_t rows, int cols, int32_t *c, int64_t ldc)
{
    const int32_t *restrict sum = f->sum, *restrict zero = f->zero;
    for (int64_t r = 0; r < rows; r++, c += ldc) {
        uint32_t *acc = (uint32_t *)c;
        uint32_t ra = (uint32_t)f->ra[r * f->step], rb = (uint32_t)f->rb[r * f->step];
        uint32_t all = (uint32_t)f->offset * rb;
        for (int i = 0; i < cols; i++)
            acc[i] -= ra * (uint32_t)sum[i] + (zero ? (uint32_t)zero[i] * rb : all);
        float sa = f->sa ? f->sa[r * f->step] : 1.0f, *out = f->out ? f->out + r * f->ld : NULL;
        for (int i = 0; out && i < cols; i++)
            out[i] = num_fma((float)c[i], sa * f->sb[i], out[i]);
    }
}

static void block_finish_f32(const BlockFinish *f, int64_t rows, int cols, const float *c,
                             int64_t ldc)
{
    for (int64_t r = 0; f->out && r < rows; r++, c += ldc) {
        float sa = f->sa ? f->sa[r * f->step] : 1.0f, *out = f->out + r * f->ld;
        float sum = f->zero ? f->rb_f32[r * f->step] : 0;
        for (int i = 0; i < cols; i++) {
            float whole = f->zero ? num_fma(-(float)f->zero[i], sum, c[i]) : c[i];
            out[i] = num_fma(whole, f->sb ? sa * f->sb[i] : sa, out[i]);
        }
    }
}

static void dot_i32(int64_t rows, const uint8_t *a, int64_t lda, const int8_t *w, int cols,
                    int64_t units, int32_t *c, int64_t ldc, bool accumulate,
                    const BlockFinish *finish, const uint8_t *ahead)
{
    (void)ahead;
    for (int64_t r = 0; r < rows; r++)
        for (int col = 0; col < cols; col += STRIP) {
            int32_t acc[STRIP] = {0}, *out = c + r * ldc + col;
            const int8_t *strip = w + col * 4;
            const uint8_t *x = a + r * lda;
            for (int64_t u = 0; u < units; u++, strip += cols * 4, x += 4)
                dot_unit(x, strip, acc);
            for (int j = 0; j < STRIP; j++)
                out[j] = (int32_t)((uint32_t)acc[j] + (accumulate ? (uint32_t)out[j] : 0));
        }
    if (finish)
        block_finish_i32(finish, rows, cols, c, ldc);
}

static void dot_f32(int64_t rows, const float *a, int64_t lda, const float *w, int cols, int64_t k,
                    float *c, int64_t ldc, bool accumulate, const BlockFinish *finish)
{
    for (int64_t r = 0; r < rows; r++)
        for (int col = 0; col < cols; col += STRIP) {
            float acc[STRIP] = {0}, *out = c + r * ldc + col;
            for (int j = 0; j < STRIP && accumulate; j++)
                acc[j] = out[j];
            const float *strip = w + col;
            for (int64_t i = 0; i < k; i++, strip += cols)
                for (int j = 0; j < STRIP; j++)
                    acc[j] = MULTIPLY_ADD(a[r * lda + i], strip[j], acc[j]);
            memcpy(out, acc, sizeof acc);
        }
    if (finish)
        block_finish_f32(finish, rows, cols, c, ldc);
}

const CpuKernels cpu_kernels_portable = {
    .dot_i32 = dot_i32, .dot_f32 = dot_f32, .decode_f32 = block_decode_f32, CPU_KERNELS_SHARED};
