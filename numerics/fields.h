/* Codes in a dense stream of bits, low bits first, taken apart eight at a time. */
#ifndef SINTER_FIELDS_H
#define SINTER_FIELDS_H

#include <stdint.h>
#include <string.h>

#define FIELDS_FN static inline __attribute__((always_inline))

/* Eight fields of `bits` at the bottom of x to lanes of `lane` bits, 4 or 8: halves, quarters and
 * eighths move apart. Constant bits and lane fold to a few masks and shifts. */
FIELDS_FN uint64_t fields_spread(uint64_t x, int bits, int lane)
{
    for (int part = 4; part; part /= 2) {
        int gap = part * (lane - bits), width = part * bits;
        uint64_t low = 0;
        for (int i = 0; i < 4 / part; i++)
            low |= ((UINT64_C(1) << width) - 1) << (2 * part * lane * i);
        x = (x & low) | (x & low << width) << gap;
    }
    return x;
}

/* What becomes of a field: (field * 2^shift + add) ^ flip, within its lane. */
typedef struct FieldsMap {
    int shift;
    uint32_t add, flip;
} FieldsMap;

FIELDS_FN uint64_t fields_eight(uint64_t x, int bits, int lane, const FieldsMap *map)
{
    uint64_t ones = lane == 4 ? UINT64_C(0x11111111) : UINT64_C(0x0101010101010101);
    return ((fields_spread(x, bits, lane) << map->shift) + map->add * ones) ^ map->flip * ones;
}

/* Eight times eight fields at once, in vectors that every compiler of ours lowers to what the
 * processor has. */
typedef uint32_t Fields32 __attribute__((vector_size(32)));
typedef uint64_t Fields64 __attribute__((vector_size(64)));

#define FIELDS_WIDE(Vector, Word, bits, lane, map, src, dst)                             \
    do {                                                                                 \
        const Word ones = (Word)(lane == 4 ? UINT64_C(0x11111111) : ~UINT64_C(0) / 255); \
        Vector x;                                                                        \
        for (int i = 0; i < 8; i++) {                                                    \
            Word word; /* what is above is masked away */                                \
            memcpy(&word, (src) + i * (bits), sizeof word);                              \
            x[i] = word;                                                                 \
        }                                                                                \
        for (int part = 4; part; part /= 2) {                                            \
            int gap = part * ((lane) - (bits)), width = part * (bits);                   \
            Word low = 0;                                                                \
            for (int i = 0; i < 4 / part; i++)                                           \
                low |= (Word)(((UINT64_C(1) << width) - 1) << (2 * part * (lane)*i));    \
            x = (x & low) | (x & low << width) << gap;                                   \
        }                                                                                \
        x = ((x << (map)->shift) + (map)->add * ones) ^ (map)->flip * ones;              \
        memcpy(dst, &x, sizeof x);                                                       \
    } while (0)

FIELDS_FN void fields_open_as(int bits, int lane, const FieldsMap *map, const uint8_t *src,
                              uint64_t num, uint8_t *dst)
{
    const uint8_t *end = src + num / 8 * (uint64_t)bits;
    for (; end - src >= 8 * bits + 8; src += 8 * bits, dst += 8 * lane) {
        if (lane == 4)
            FIELDS_WIDE(Fields32, uint32_t, bits, 4, map, src, dst);
        else
            FIELDS_WIDE(Fields64, uint64_t, bits, 8, map, src, dst);
    }
    for (; src < end; src += bits, dst += lane) {
        uint64_t x = 0;
        if (end - src >= 8)
            memcpy(&x, src, sizeof x);
        else
            memcpy(&x, src, (size_t)bits);
        x = fields_eight(x, bits, lane, map);
        memcpy(dst, &x, (size_t)lane);
    }
}

/* `num` fields, a multiple of 8, of 1, 2 or 3 bits to nibbles, of 5, 6 or 7 to bytes: a loop
 * compiled for each. */
FIELDS_FN void fields_open(int bits, const FieldsMap *map, const uint8_t *src, uint64_t num,
                           uint8_t *dst)
{
    switch (bits) {
    case 1: fields_open_as(1, 4, map, src, num, dst); break;
    case 2: fields_open_as(2, 4, map, src, num, dst); break;
    case 3: fields_open_as(3, 4, map, src, num, dst); break;
    case 5: fields_open_as(5, 8, map, src, num, dst); break;
    case 6: fields_open_as(6, 8, map, src, num, dst); break;
    default: fields_open_as(7, 8, map, src, num, dst); break;
    }
}

#endif
