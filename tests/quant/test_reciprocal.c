/* The reciprocal without a branch that GPUs run (num_reciprocal), as they compile it, beside
 * division. Its steps keep what was right already, and mend nearly all of what was one or two units
 * off: which hardware's own reciprocals are off, and that none of those stays wrong, is for
 * tests/gpu/reciprocal.c. */
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

static bool is_right(uint32_t bits)
{
    float b = num_float(bits);
    return num_bits(num_reciprocal(b)) == num_bits(1.0f / b);
}

static bool report(int number, int units, long wrong, long most)
{
    printf("%s %d - reciprocals from 1 to 2, off by %d before: %ld wrong\n",
           wrong > most ? "not ok" : "ok", number, units, wrong);
    return wrong > most;
}

int main(void)
{
    int failed = 0, number = 0;
    for (off = -1; off <= 1; off++) {
        long wrong = 0;
        for (uint32_t bits = 0x3f800000u; bits <= 0x40000000u; bits++)
            wrong += !is_right(bits);
        failed += report(++number, off, wrong, off ? 64 : 0);
    }
    printf("1..%d\n", number);
    return failed != 0;
}
