/* Blocks of quantised GGUF tensors, taken apart into codes, scales and minima. The layouts are
 * those of ggml-common.h. A block lies within a row; all its numbers are little-endian.
 * Library-safe. */
#include "io/io.h"

#include <string.h>

static float half_at(const uint8_t *at)
{
    return num_from_f16((unsigned)at[0] | (unsigned)at[1] << 8);
}

/* Loops below have fixed trips and no aliases, so that compilers turn them into vectors. */

/* 16 bytes of 32 codes: the low nibbles are the first half. */
static void put_nibbles(const uint8_t *restrict byte, int offset, int8_t *restrict code)
{
    for (int i = 0; i < 16; i++)
        code[i] = (int8_t)((byte[i] & 15) - offset);
    for (int i = 0; i < 16; i++)
        code[i + 16] = (int8_t)((byte[i] >> 4) - offset);
}

/* The eight bits of a byte, each as 16 in a byte of its own. */
static uint64_t spread_bits(uint8_t bits)
{
    uint64_t each = bits * UINT64_C(0x0101010101010101) & UINT64_C(0x8040201008040201);
    return ((each + UINT64_C(0x7f7f7f7f7f7f7f7f)) & UINT64_C(0x8080808080808080)) >> 3;
}

/* .. with a fifth bit each, element i's in bit i of four bytes. */
typedef uint64_t Eights __attribute__((vector_size(16)));

static void put_fives(const uint8_t *restrict high, const uint8_t *restrict byte, int offset,
                      int8_t *restrict code)
{
    const uint64_t ones = UINT64_C(0x0101010101010101), tops = ones << 7;
    Eights both, half;

    memcpy(&both, byte, sizeof both);
    for (int i = 0; i < 2; i++) { /* nothing is carried from a byte to the next */
        half = (both >> 4 * i & 15 * ones) |
               (Eights){spread_bits(high[2 * i]), spread_bits(high[2 * i + 1])};
        half = ((half | tops) - (uint64_t)offset * ones) ^ tops;
        memcpy(code + 16 * i, &half, sizeof half);
    }
}

static void unpack_Q4_0(const uint8_t *restrict b, GgmlBlock *restrict ret)
{
    ret->scale[0] = half_at(b);
    put_nibbles(b + 2, 8, ret->code);
}

static void unpack_Q4_1(const uint8_t *restrict b, GgmlBlock *restrict ret)
{
    ret->scale[0] = half_at(b);
    ret->min[0] = half_at(b + 2);
    put_nibbles(b + 4, 0, ret->code);
}

static void unpack_Q5_0(const uint8_t *restrict b, GgmlBlock *restrict ret)
{
    ret->scale[0] = half_at(b);
    put_fives(b + 2, b + 6, 16, ret->code);
}

static void unpack_Q5_1(const uint8_t *restrict b, GgmlBlock *restrict ret)
{
    ret->scale[0] = half_at(b);
    ret->min[0] = half_at(b + 2);
    put_fives(b + 4, b + 8, 0, ret->code);
}

static void unpack_Q8_0(const uint8_t *restrict b, GgmlBlock *restrict ret)
{
    ret->scale[0] = half_at(b);
    memcpy(ret->code, b + 2, 32);
}

/* Eight scales and eight minima of 6 bits in 12 bytes: four of each lie whole in the first eight,
 * whose upper two bits belong to the others. */
static void put_sixes(const uint8_t *restrict b, GgmlBlock *restrict ret)
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

/* Four times 32 bytes of 64 codes: low nibbles, then high ones. */
static void put_pairs(const uint8_t *restrict byte, int8_t *restrict code)
{
    for (int p = 0; p < 4; p++, byte += 32, code += 64) {
        for (int i = 0; i < 32; i++)
            code[i] = (int8_t)(byte[i] & 15);
        for (int i = 0; i < 32; i++)
            code[i + 32] = (int8_t)(byte[i] >> 4);
    }
}

static void unpack_Q4_K(const uint8_t *restrict b, GgmlBlock *restrict ret)
{
    put_sixes(b, ret);
    put_pairs(b + 16, ret->code);
}

/* bits of `shift` on of 32 bytes, as bits 4 and up of 32 codes */
static void add_high(const uint8_t *restrict high, int shift, int mask, int8_t *restrict code)
{
    for (int i = 0; i < 32; i++)
        code[i] = (int8_t)(code[i] | (high[i] >> shift & mask) << 4);
}

static void unpack_Q5_K(const uint8_t *restrict b, GgmlBlock *restrict ret)
{
    put_sixes(b, ret);
    put_pairs(b + 48, ret->code);
    for (int g = 0; g < 8; g++)
        add_high(b + 16, g, 1, ret->code + 32 * g);
}

/* Each half: 64 bytes of two nibbles, 32 of four pairs of bits. */
static void put_half(const uint8_t *restrict low, const uint8_t *restrict high,
                     int8_t *restrict code)
{
    for (int i = 0; i < 64; i++)
        code[i] = (int8_t)(low[i] & 15);
    for (int i = 0; i < 64; i++)
        code[i + 64] = (int8_t)(low[i] >> 4);
    for (int g = 0; g < 4; g++)
        add_high(high, 2 * g, 3, code + 32 * g);
    for (int i = 0; i < 128; i++)
        code[i] = (int8_t)(code[i] - 32);
}

static void unpack_Q6_K(const uint8_t *restrict b, GgmlBlock *restrict ret)
{
    float d = half_at(b + 208);
    for (int g = 0; g < 16; g++)
        ret->scale[g] = d * (float)(int8_t)b[192 + g];
    put_half(b, b + 128, ret->code);
    put_half(b + 64, b + 160, ret->code + 128);
}

/* 32 bytes of four pairs of bits: each pair is 32 codes. */
static void put_quarters(const uint8_t *restrict byte, int offset, int8_t *restrict code)
{
    for (int j = 0; j < 4; j++)
        for (int i = 0; i < 32; i++)
            code[32 * j + i] = (int8_t)((byte[i] >> 2 * j & 3) - offset);
}

/* The same as nibbles: pairs of bytes hold pairs of codes. */
typedef uint16_t Pairs __attribute__((vector_size(32)));
typedef uint8_t Singles __attribute__((vector_size(16)));

static void put_quarter_nibbles(const uint8_t *restrict byte, uint8_t *restrict to)
{
    Pairs all, two;
    Singles one;

    memcpy(&all, byte, sizeof all);
    for (int j = 0; j < 4; j++) {
        two = all >> 2 * j & 0x0303;
        one = __builtin_convertvector((two | two >> 4) & 0xff, Singles);
        memcpy(to + 16 * j, &one, sizeof one);
    }
}

static void put_nibble_scales(const uint8_t *restrict b, GgmlBlock *restrict ret)
{
    float d = half_at(b + 80), min = half_at(b + 82);
    for (int g = 0; g < 16; g++) {
        ret->scale[g] = d * (float)(b[g] & 15);
        ret->min[g] = -(min * (float)(b[g] >> 4));
    }
}

static void unpack_Q2_K(const uint8_t *restrict b, GgmlBlock *restrict ret)
{
    put_nibble_scales(b, ret);
    put_quarters(b + 16, 0, ret->code);
    put_quarters(b + 48, 0, ret->code + 128);
}

static void nibbles_Q2_K(const uint8_t *restrict b, GgmlBlock *restrict ret, uint8_t *restrict to)
{
    put_nibble_scales(b, ret);
    put_quarter_nibbles(b + 16, to);
    put_quarter_nibbles(b + 48, to + 64);
}

/* Sixteen scales of 6 bits around 32: nibbles in eight bytes, the upper bits in four. A bit of the
 * first 32 bytes that is not set takes 4 off its code. */
static void unpack_Q3_K(const uint8_t *restrict b, GgmlBlock *restrict ret)
{
    const uint8_t *s = b + 96;
    float d = half_at(b + 108);
    for (int g = 0; g < 16; g++) {
        int low = s[g % 8] >> (g < 8 ? 0 : 4) & 15, high = s[8 + g % 4] >> 2 * (g / 4) & 3;
        ret->scale[g] = d * (float)((low | high << 4) - 32);
    }
    put_quarters(b + 32, 4, ret->code);
    put_quarters(b + 64, 4, ret->code + 128);
    for (int j = 0; j < 8; j++)
        for (int i = 0; i < 32; i++)
            ret->code[32 * j + i] = (int8_t)(ret->code[32 * j + i] + (b[i] >> j & 1) * 4);
}

/* The ternary digit that stands in front after n multiplications by 3, less one. */
static int8_t ternary(uint8_t byte, int n)
{
    static const uint8_t power[] = {1, 3, 9, 27, 81};
    uint8_t shifted = (uint8_t)(byte * power[n]);
    return (int8_t)((shifted * 3 >> 8) - 1);
}

static void unpack_TQ1_0(const uint8_t *restrict b, GgmlBlock *restrict ret)
{
    int8_t *code = ret->code;
    ret->scale[0] = half_at(b + 52);
    for (int n = 0; n < 5; n++)
        for (int i = 0; i < 32; i++)
            *code++ = ternary(b[i], n);
    for (int n = 0; n < 5; n++)
        for (int i = 32; i < 48; i++)
            *code++ = ternary(b[i], n);
    for (int n = 0; n < 4; n++)
        for (int i = 48; i < 52; i++)
            *code++ = ternary(b[i], n);
}

static void unpack_TQ2_0(const uint8_t *restrict b, GgmlBlock *restrict ret)
{
    ret->scale[0] = half_at(b + 64);
    put_quarters(b, 1, ret->code);
    put_quarters(b + 32, 1, ret->code + 128);
}

static void unpack_Q8_K(const uint8_t *restrict b, GgmlBlock *restrict ret)
{
    memcpy(&ret->scale[0], b, 4);
    memcpy(ret->code, b + 4, 256);
}

static void unpack_MXFP4(const uint8_t *restrict b, GgmlBlock *restrict ret)
{
    ret->scale[0] = num_from_e8m0(b[0]);
    put_nibbles(b + 1, 0, ret->code);
    for (int i = 0; i < 32; i++)
        ret->code[i] = ret->code[i] == 8 ? 0 : ret->code[i]; /* zeros have no sign there */
}

/* Four groups of 16: eight bytes, the low nibbles of which are the first half. */
static void unpack_NVFP4(const uint8_t *restrict b, GgmlBlock *restrict ret)
{
    for (int g = 0; g < 4; g++) {
        const uint8_t *byte = b + 4 + 8 * g;
        ret->scale[g] = b[g] == 0x7f  ? 0.0f
                        : b[g] & 0x80 ? num_float(NUM_NAN_BITS) /* scales have no sign */
                                      : num_from_e4m3(b[g]);
        for (int i = 0; i < 16; i++) {
            int code = i < 8 ? byte[i] & 15 : byte[i - 8] >> 4;
            ret->code[16 * g + i] = (int8_t)(code == 8 ? 0 : code); /* zeros have no sign there */
        }
    }
}

/* What a nibble of the non-linear types stands for, in steps of the scale. */
static const int8_t nonlinear[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                     1,    13,   25,  38,  53,  69,  89,  113};

static void put_nonlinear(const uint8_t *byte, int8_t *code)
{
    put_nibbles(byte, 0, code);
    for (int i = 0; i < 32; i++)
        code[i] = nonlinear[code[i]];
}

static void unpack_IQ4_NL(const uint8_t *restrict b, GgmlBlock *restrict ret)
{
    ret->scale[0] = half_at(b);
    put_nonlinear(b + 2, ret->code);
}

/* Eight scales of 6 bits around 32: nibbles in four bytes, the upper bits in two before them. */
static void unpack_IQ4_XS(const uint8_t *restrict b, GgmlBlock *restrict ret)
{
    float d = half_at(b);
    unsigned high = (unsigned)b[2] | (unsigned)b[3] << 8;
    for (int g = 0; g < 8; g++) {
        int low = b[4 + g / 2] >> 4 * (g % 2) & 15, up = (int)(high >> 2 * g & 3);
        ret->scale[g] = d * (float)((low | up << 4) - 32);
        put_nonlinear(b + 8 + 16 * g, ret->code + 32 * g);
    }
}

static const GgmlInfo infos[] = {
#define PLAIN(ID, code, elements, bytes, fmt) \
    {#ID, code, elements, bytes, FMT_##fmt, 0, false, NULL, NULL},
#define BLOCK(ID, code, elements, bytes, group, min) \
    {#ID, code, elements, bytes, FMT_NONE, group, min, unpack_##ID, NULL},
#define NIBBLES(ID, code, elements, bytes, group, min) \
    {#ID, code, elements, bytes, FMT_NONE, group, min, unpack_##ID, nibbles_##ID},
#include "io/ggml.def"
#undef PLAIN
#undef BLOCK
#undef NIBBLES
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

void ggml_decode(const GgmlInfo *info, const uint8_t *block, float *ret)
{
    GgmlBlock b;
    bool is_float = strcmp(info->name, "MXFP4") == 0 || strcmp(info->name, "NVFP4") == 0;
    info->unpack(block, &b);
    for (int i = 0; i < info->elements; i++) {
        int group = i / info->group;
        float code = is_float ? num_from_e2m1((unsigned)b.code[i]) : (float)b.code[i];
        ret[i] = code * b.scale[group];
        if (info->has_min)
            ret[i] += b.min[group];
    }
}
