/* What the tests of this folder share: cmocka, the hash of vectors_*.h, reproducible data. */
#ifndef SINTER_TESTS_QUANT_CHECK_H
#define SINTER_TESTS_QUANT_CHECK_H

#include "numerics/numerics.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static inline uint64_t fnv_add(uint64_t hash, const void *data, size_t size)
{
    const uint8_t *byte = data;
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ byte[i]) * UINT64_C(0x100000001B3);
    return hash;
}
#define FNV_START UINT64_C(0xCBF29CE484222325)

/* Bits of a value for comparison: every NaN the same. */
static inline uint32_t plain_bits(float x)
{
    return x != x ? NUM_NAN_BITS : num_bits(x);
}

static inline uint64_t splitmix(uint64_t seed, uint64_t at)
{
    uint64_t z = seed + (at + 1) * UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

/* Heavy around 0, in -1..1; the same as in gen_vectors.py. */
static inline float random_value(uint64_t seed, uint64_t at)
{
    float x = (float)(int32_t)(uint32_t)(splitmix(seed, at) >> 32) * 0x1p-31f;
    return x * x * x;
}

#endif
