/* The division without a branch that GPUs run (num_div_plain), as they compile it, beside division:
 * its reciprocal is off by up to two units, where hardware promises one. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define __CUDACC_RTC__
#define __device__
#define __forceinline__ inline __attribute__((unused))
#define constexpr const
static int off; /* units in the last place */
#define asm(...) r = num_float(num_bits(1.0f / b) + (unsigned)off)
#include "numerics/numerics.h"

#define PAIRS 3000000

static uint64_t state = UINT64_C(88172645463325252);

static uint32_t draw(uint32_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 16) % below;
}

static float with_sign(float x)
{
    return draw(2) ? -x : x;
}

/* From 1 to 2, often next to either; or, for small dividends, to 2^40. */
static float divisor(int i)
{
    switch (i % 8) {
    case 0: return num_float(0x3f800000u + draw(64));
    case 1: return num_float(0x3fffffffu - draw(64));
    case 2: return num_float(0x3f800000u + draw(40u << 23));
    case 3: return num_float((0x3f800000u + (draw(40) << 23)) | 0x7fffffu);
    default: return num_float(0x3f800000u + draw(0x800001));
    }
}

static float dividend(int i)
{
    uint32_t least = num_bits(0x1p-96f), bits = least + draw(NUM_INF_BITS - least);
    if (i % 8 == 2 || i % 8 == 3)
        return draw(2) ? 1.0f : 2.0f;
    return with_sign(num_float(i % 3 ? bits : bits & 0xff800003u));
}

static long wrong;

static void compare(float a, float b)
{
    float got = num_div_plain(a, b), want = a / b;
    bool same = num_bits(got) == num_bits(want) || (got != got && want != want);
    if (!same && wrong++ < 5)
        printf("# %a / %a: %a instead of %a (reciprocal off by %d)\n", a, b, got, want, off);
}

int main(void)
{
    static const float edge[] = {
        0.0f,     -0.0f,     0x1p-149f, 0x1.8p-130f, -0x1p-126f, 0x1.fffffep-97f, 0x1.fffffep+127f,
        INFINITY, -INFINITY, NAN};
    for (int i = 0; i < PAIRS; i++) {
        float a = dividend(i), b = divisor(i);
        for (off = -2; off <= 2; off++)
            compare(a, b);
    }
    for (off = -1; off <= 1; off++)
        for (size_t i = 0; i < sizeof edge / sizeof *edge; i++) {
            compare(edge[i], 1.0f);
            compare(edge[i], 2.0f);
        }
    printf("%s 1 - division without a branch, %d pairs\n1..1\n", wrong ? "not ok" : "ok", PAIRS);
    return wrong != 0;
}
