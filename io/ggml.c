/* Blocks of quantised GGUF tensors, taken apart into codes, scales and minima. The layouts are
 * those of ggml-common.h. A block lies within a row; all its numbers are little-endian.
 * Library-safe. */
#include "io/io.h"

#include <string.h>

static const GgmlInfo infos[] = {
#define PLAIN(ID, code, elements, bytes, fmt) {#ID, code, elements, bytes, FMT_##fmt, 0, false},
#define BLOCK(ID, code, elements, bytes, group, min) \
    {#ID, code, elements, bytes, FMT_NONE, group, min},
#include "io/ggml.def"
#undef PLAIN
#undef BLOCK
};

const GgmlInfo *ggml_by_code(uint32_t code)
{
    for (size_t i = 0; i < COUNT_OF(infos); i++)
        if (infos[i].code == code)
            return &infos[i];
    return NULL;
}

const GgmlInfo *ggml_by_name(const char *name)
{
    for (size_t i = 0; i < COUNT_OF(infos); i++)
        if (strcmp(infos[i].name, name) == 0)
            return &infos[i];
    return NULL;
}

static float half_at(const uint8_t *at)
{
    return num_from_f16((unsigned)at[0] | (unsigned)at[1] << 8);
}

/* 16 bytes of 32 codes: the low nibbles are the first half. */
static void put_nibbles(const uint8_t *byte, int offset, int8_t *code)
{
    for (int i = 0; i < 16; i++) {
        code[i] = (int8_t)((byte[i] & 15) - offset);
        code[i + 16] = (int8_t)((byte[i] >> 4) - offset);
    }
}

/* .. with a fifth bit each, element i's in bit i of four bytes. */
static void put_fives(const uint8_t *high, const uint8_t *byte, int offset, int8_t *code)
{
    put_nibbles(byte, 0, code);
    for (int i = 0; i < 32; i++)
        code[i] = (int8_t)(code[i] + ((high[i / 8] >> (i % 8) & 1) << 4) - offset);
}

static void unpack_Q4_0(const uint8_t *b, GgmlBlock *ret)
{
    ret->scale[0] = half_at(b);
    put_nibbles(b + 2, 8, ret->code);
}

static void unpack_Q4_1(const uint8_t *b, GgmlBlock *ret)
{
    ret->scale[0] = half_at(b);
    ret->min[0] = half_at(b + 2);
    put_nibbles(b + 4, 0, ret->code);
}

static void unpack_Q5_0(const uint8_t *b, GgmlBlock *ret)
{
    ret->scale[0] = half_at(b);
    put_fives(b + 2, b + 6, 16, ret->code);
}

static void unpack_Q5_1(const uint8_t *b, GgmlBlock *ret)
{
    ret->scale[0] = half_at(b);
    ret->min[0] = half_at(b + 2);
    put_fives(b + 4, b + 8, 0, ret->code);
}

static void unpack_Q8_0(const uint8_t *b, GgmlBlock *ret)
{
    ret->scale[0] = half_at(b);
    memcpy(ret->code, b + 2, 32);
}

/* Eight scales and eight minima of 6 bits in 12 bytes: four of each lie whole in the first eight,
 * whose upper two bits belong to the others. */
static void put_sixes(const uint8_t *b, GgmlBlock *ret)
{
    float d = half_at(b), min = half_at(b + 2);
    const uint8_t *s = b + 4;
    for (int g = 0; g < 8; g++) {
        int scale = g < 4 ? s[g] & 63 : (s[g + 4] & 15) | (s[g - 4] >> 6 << 4);
        int low = g < 4 ? s[g + 4] & 63 : s[g + 4] >> 4 | (s[g] >> 6 << 4);
        ret->scale[g] = d * (float)scale;
        ret->min[g] = -(min * (float)low);
    }
}

static void unpack_Q4_K(const uint8_t *b, GgmlBlock *ret)
{
    const uint8_t *byte = b + 16;
    put_sixes(b, ret);
    for (int i = 0; i < 256; i++)
        ret->code[i] = (int8_t)(byte[i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15);
}

static void unpack_Q5_K(const uint8_t *b, GgmlBlock *ret)
{
    const uint8_t *high = b + 16, *byte = b + 48;
    put_sixes(b, ret);
    for (int i = 0; i < 256; i++) {
        int low = byte[i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15;
        ret->code[i] = (int8_t)(low | (high[i % 32] >> (i / 32) & 1) << 4);
    }
}

static void unpack_Q6_K(const uint8_t *b, GgmlBlock *ret)
{
    const uint8_t *low = b, *high = b + 128, *scale = b + 192;
    float d = half_at(b + 208);
    for (int g = 0; g < 16; g++)
        ret->scale[g] = d * (float)(int8_t)scale[g];
    for (int i = 0; i < 256; i++) { /* each half: 64 bytes of two nibbles, 32 of four pairs */
        int half = i / 128, at = i % 128;
        int four = low[half * 64 + at % 64] >> (at / 64 * 4) & 15;
        int two = high[half * 32 + at % 32] >> (at / 32 * 2) & 3;
        ret->code[i] = (int8_t)((four | two << 4) - 32);
    }
}

static void unpack_Q8_K(const uint8_t *b, GgmlBlock *ret)
{
    memcpy(&ret->scale[0], b, 4);
    memcpy(ret->code, b + 4, 256);
}

static void unpack_MXFP4(const uint8_t *b, GgmlBlock *ret)
{
    ret->scale[0] = num_from_e8m0(b[0]);
    put_nibbles(b + 1, 0, ret->code);
    for (int i = 0; i < 32; i++)
        ret->code[i] = ret->code[i] == 8 ? 0 : ret->code[i]; /* zeros have no sign there */
}

void ggml_unpack(const GgmlInfo *info, const uint8_t *block, GgmlBlock *ret)
{
    switch (info->code) {
#define PLAIN(ID, code, elements, bytes, fmt)
#define BLOCK(ID, code, elements, bytes, group, min) \
    case code:                                       \
        unpack_##ID(block, ret);                     \
        break;
#include "io/ggml.def"
#undef PLAIN
#undef BLOCK
    default: BUG("%s has no blocks that are taken apart", info->name);
    }
}

void ggml_decode(const GgmlInfo *info, const uint8_t *block, float *ret)
{
    GgmlBlock b;
    bool is_float = strcmp(info->name, "MXFP4") == 0;
    ggml_unpack(info, block, &b);
    for (int i = 0; i < info->elements; i++) {
        int group = i / info->group;
        float code = is_float ? num_from_e2m1((unsigned)b.code[i]) : (float)b.code[i];
        ret[i] = code * b.scale[group];
        if (info->has_min)
            ret[i] += b.min[group];
    }
}
