/* Weights whose codes fill neither a nibble nor a byte: packed as a stream of bits, opened panel by
 * panel into the layout of the format that holds them (num_holder).
 *
 * A field of the stream is the code less the smallest one, so unsigned. An open lane, a nibble or a
 * byte, is (field * step + add) ^ flip: what layout.h stores of that code. Lanes are in the order
 * of memory, low nibbles first. */
#include "kernels/cpu/internal.h"
#include <string.h>

typedef struct Fields {
    int bits;
    int least, step; /* code = least + step * field */
    FieldsMap map;
} Fields;

/* Both layouts of a format have the same fields. */
static Fields fields_of(const PackLayout *l)
{
    Fields f = {.bits = num_code_bits((int)l->narrow), .step = 1};
    uint32_t sign = 1u << (num_code_bits((int)l->fmt) - 1);
    bool is_unsigned = num_code_min((int)l->narrow, 0) == 0;
    f.least = is_unsigned ? 0 : -(1 << (f.bits - 1));
    if (l->narrow == FMT_BINARY)
        f.step = 2;
    int add = f.least - l->weight_offset;
    if (add < 0) { /* the sign bit of a lane turned, and as much added */
        f.map.flip = sign;
        add += (int)sign;
    }
    f.map.shift = f.step - 1;
    f.map.add = (uint32_t)add;
    return f;
}

PackLayout narrow_opened(const PackLayout *l)
{
    PackLayout open = *l;
    open.narrow = FMT_NONE;
    return open;
}

uint64_t narrow_bytes(const PackLayout *l)
{
    PackLayout open = narrow_opened(l);
    /* nibbles are also read from one to three bytes on */
    return l->narrow ? layout_panel_bytes(&open, PANEL_COLS) + sizeof(uint32_t) : 0;
}

/* Packing -------------------------------------------------------------------------------------- */

static int code_at(const PackLayout *l, const uint8_t *row, int64_t k)
{
    bool nibbles = num_code_bits((int)l->fmt) == 4;
    unsigned code = nibbles ? (unsigned)(row[k / 2] >> (k % 2 * 4)) & 15u : row[k];
    return (int)num_decode((int)l->narrow, code);
}

static void put_field(uint8_t *dst, uint64_t at, int bits, uint32_t field)
{
    for (int i = 0; i < bits; i++, at++)
        dst[at / 8] |= (uint8_t)((field >> i & 1) << at % 8);
}

int32_t narrow_pack(const PackLayout *l, const uint8_t *row, const PackBlock *b, int col, int cols)
{
    Fields f = fields_of(l);
    bool interleaved = l->is_int && l->unit == 8; /* codes 0..3 in low nibbles, 4..7 in high ones */
    int32_t sum = 0;
    for (int64_t k = 0; k < b->k_count; k++) {
        int code = code_at(l, row, b->k_begin + k);
        int64_t lane = k % l->unit;
        if (interleaved)
            lane = lane < 4 ? 2 * lane : 2 * lane - 7;
        uint64_t at = (uint64_t)((k / l->unit * cols + col) * l->unit + lane) * (uint64_t)f.bits;
        put_field((uint8_t *)(uintptr_t)b->codes, at, f.bits,
                  (uint32_t)(code - f.least) / (uint32_t)f.step);
        sum += code - l->weight_offset;
    }
    return sum;
}

/* Opening -------------------------------------------------------------------------------------- */

void narrow_open(const CpuKernels *kern, const PackLayout *l, const uint8_t *panel, int cols,
                 uint8_t *dst)
{
    Fields f = fields_of(l);
    PackLayout open = narrow_opened(l);
    uint64_t words = (uint64_t)cols * (uint64_t)(l->sum_bytes + l->scale_bytes + l->has_zero);
    for (int64_t i = 0; i < l->blocks; i++) {
        PackBlock from = layout_block(l, panel, cols, i), to = layout_block(&open, dst, cols, i);
        uint64_t codes = layout_codes_bytes(l, cols, from.units);
        kern->open_fields(f.bits, &f.map, from.codes,
                          (uint64_t)cols * (uint64_t)(from.units * l->unit),
                          (uint8_t *)(uintptr_t)to.codes);
        memcpy((uint8_t *)(uintptr_t)to.codes + layout_codes_bytes(&open, cols, to.units),
               from.codes + codes, words);
    }
}
