/* Compiled with -DWIDTH=base, avx2 or avx512 and the flags of each. */
#include "tests/quant/widths.h"
#include "numerics/rows.h"

#define MAP_CASE(at, expr)              \
    case at:                            \
        for (int i = 0; i < num; i++) { \
            float a = x[i];             \
            dst[i] = expr;              \
        }                               \
        break;

static void map(int which, uint32_t *restrict dst, const float *restrict x, int num)
{
    switch (which) {
        MAP_CASE(0, num_bits(num_exp(a)))
        MAP_CASE(1, num_bits(num_tanh(a)))
        MAP_CASE(2, num_bits(num_sigmoid(a)))
        MAP_CASE(3, num_bits(num_silu(a)))
        MAP_CASE(4, num_bits(num_gelu(a)))
        MAP_CASE(5, num_bits(num_gelu_tanh(a)))
        MAP_CASE(6, num_bits(num_relu(a)))
        MAP_CASE(7, num_to_f16(a))
        MAP_CASE(8, num_to_bf16(a))
        MAP_CASE(9, num_to_e4m3(a))
        MAP_CASE(10, num_to_e5m2(a))
        MAP_CASE(11, num_to_e2m1(a))
        MAP_CASE(12, num_to_nf4(a))
        MAP_CASE(13, num_to_fp4(a))
        MAP_CASE(14, (uint32_t)num_to_int(a, 3, -128, 127))
        MAP_CASE(15, num_bits(num_sqrt(a)))
        MAP_CASE(16, num_bits(num_round(a)))
        MAP_CASE(17, num_bits(num_max(num_min(a, 2.5f), -1.5f)))
    default: break;
    }
}

static void row(int which, float *dst, const float *x, const float *w, const float *b, int num)
{
    if (which == 0)
        num_row_rmsnorm(dst, x, w, 1e-5f, num);
    else if (which == 1)
        num_row_layernorm(dst, x, w, b, 1e-5f, num);
    else
        num_row_softmax(dst, x, num);
}

#define JOIN2(a, b) a##b
#define JOIN(a, b)  JOIN2(a, b)
#define TEXT2(a)    #a
#define TEXT(a)     TEXT2(a)
const Width JOIN(width_, WIDTH) = {TEXT(WIDTH), map, row};
