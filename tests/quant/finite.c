/* finite NUM: NUM million finite numbers of every magnitude are quantised and decoded under schemes
 * of every format, granularity and format of scales; all results are finite. Blocks hold numbers of
 * one magnitude, of all, zeros and the largest ones. TAP, one line a scheme. */
#include "quant/quant.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 16, COLS = 256, NUM = ROWS * COLS };

static uint64_t state = 1;

static uint64_t draw(void)
{
    uint64_t z = state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* Random bits are of all exponents alike; those of infinities and NaN lose one. */
static float any_finite(uint32_t bits)
{
    float ret;
    bits = (bits & 0x7f800000u) == 0x7f800000u ? bits & ~0x00800000u : bits;
    memcpy(&ret, &bits, sizeof ret);
    return ret;
}

static void fill(float *x)
{
    for (int row = 0; row < ROWS; row++) {
        uint32_t kind = (uint32_t)draw() % 8, exponent = ((uint32_t)draw() % 255) << 23;
        for (int i = 0; i < COLS; i++) {
            uint32_t bits = (uint32_t)draw();
            float *at = &x[row * COLS + i];
            *at = any_finite(kind < 4 ? (bits & 0x807fffffu) | exponent : bits);
            if (kind == 6 && bits % 4)
                *at = 0;
            if (kind == 7 && bits % 16 == 0)
                *at = bits & 16 ? 3.40282347e38f : -3.40282347e38f;
        }
    }
}

static bool next_scheme(int at, Scheme *ret)
{
    static const FormatId fmt[] = {FMT_I8,   FMT_U8,   FMT_I4,  FMT_U4, FMT_E4M3,
                                   FMT_E5M2, FMT_E2M1, FMT_NF4, FMT_FP4};
    static const FormatId scale[] = {FMT_F32, FMT_F16, FMT_BF16, FMT_E8M0, FMT_E4M3};
    static const int64_t block[][2] = {{0, 0}, {1, 0}, {1, 32}, {4, 16}};
    int of[4] = {COUNT_OF(fmt), COUNT_OF(scale), COUNT_OF(block), 4}, index[4];
    for (int i = 0; i < 4; i++, at /= of[i - 1])
        index[i] = at % of[i];
    *ret = (Scheme){.fmt = fmt[index[0]],
                    .scale_fmt = scale[index[1]],
                    .zero = index[3] & 1 ? ZERO_INT : ZERO_NONE,
                    .outer = index[3] >> 1,
                    .block = {block[index[2]][0], block[index[2]][1]}};
    return at == 0;
}

/* How many are not finite. */
static uint64_t count(const Scheme *scheme, uint64_t num)
{
    static float x[NUM], y[NUM];
    uint64_t bad = 0;
    QTensor q;
    if (!qtensor_init(&q, scheme, ROWS, COLS))
        abort();
    for (uint64_t done = 0; done < num; done += NUM) {
        fill(x);
        quantize_rtn(&q, FMT_F32, x);
        qtensor_dequantize(&q, y);
        for (int i = 0; i < NUM; i++)
            bad += !isfinite(y[i]);
    }
    qtensor_free(&q);
    return bad;
}

int main(int argc, char **argv)
{
    uint64_t each, all = 0;
    int schemes = 0, tests = 0, failed = 0;
    Scheme scheme;
    for (int i = 0; next_scheme(i, &scheme); i++)
        schemes += !scheme_problem(&scheme);
    each = (argc > 1 ? strtoull(argv[1], NULL, 10) : 1) * 1000000 / (uint64_t)schemes + 1;
    for (int i = 0; next_scheme(i, &scheme); i++) {
        if (scheme_problem(&scheme))
            continue;
        uint64_t bad = count(&scheme, each);
        Arena *arena = arena_new();
        Sb sb;
        sb_init(&sb, arena);
        scheme_print(&sb, &scheme, true);
        printf("%sok %d - %s: %llu are not finite\n", bad ? "not " : "", ++tests, sb.text,
               (unsigned long long)bad);
        arena_destroy(arena);
        failed += bad > 0;
        all += (each + NUM - 1) / NUM * NUM;
    }
    printf("# %llu numbers\n1..%d\n", (unsigned long long)all, tests);
    return failed > 0;
}
