/* Packing of weights for the GPU; the layouts are described in pack.h. */
#include "kernels/cuda/pack.h"
#include <string.h>

typedef struct FormatFacts {
    int bits;
    FormatFamily family;
} FormatFacts;
static const FormatFacts facts[NUM_FORMATS] = {
#define FORMAT(ID, name, bits, family, is_signed, exp, man, bias, qmin, qmax) \
    [FMT_##ID] = {bits, FAMILY_##family},
#include "numerics/formats.def"
#undef FORMAT
};

static bool is_byte_float(FormatId fmt)
{
    return facts[fmt].family == FAMILY_MINIFLOAT && facts[fmt].bits == 8;
}

static bool is_small_int(FormatId fmt)
{
    return facts[fmt].family == FAMILY_INT && facts[fmt].bits <= 8;
}

static bool has_floats_home(FormatId fmt) /* 8- and 4-bit codes that a 16-bit float holds */
{
    return facts[fmt].bits <= 8 && fmt != FMT_E8M0;
}

/* Where the tensor cores multiply this pair, or CUDA_HOME_F32 when they cannot. */
static CudaHome home_of(const CudaPackSpec *spec)
{
    FormatId act = spec->act_fmt, w = spec->fmt;
    if (is_small_int(act) && facts[act].bits == 8 && is_small_int(w))
        return spec->mainloop && (spec->has_zero || spec->act_zero) ? CUDA_HOME_F32 : CUDA_HOME_I8;
    if (is_byte_float(act) && has_floats_home(w))
        return CUDA_HOME_F16;
    if (act == FMT_F16 && (w == FMT_F16 || has_floats_home(w)))
        return CUDA_HOME_F16;
    if (act == FMT_BF16 && (w == FMT_BF16 || has_floats_home(w)))
        return CUDA_HOME_BF16;
    return CUDA_HOME_F32;
}

static int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

static int64_t part_rows(const CudaPackSpec *spec) /* padded rows of one part */
{
    return round_up(spec->n / spec->parts, 8);
}

static bool decodes_zero(
    const CudaPackSpec *spec) /* the kernel subtracts the weight's zero points */
{
    return spec->has_zero && (spec->mainloop || !is_small_int(spec->act_fmt));
}

bool cuda_pack_plan(const CudaPackSpec *spec, CudaPacked *ret)
{
    memset(ret, 0, sizeof *ret);
    if (spec->n < 1 || spec->k < 1 || spec->parts < 1 || spec->n > INT32_MAX || spec->k > INT32_MAX)
        return false;
    ret->home = home_of(spec);
    int64_t wb = spec->block_cols, ab = spec->act_block;
    if (spec->mainloop)
        ret->block_k = !wb ? ab : !ab ? wb : wb < ab ? wb : ab;
    if (ret->block_k >= spec->k)
        ret->block_k = 0;
    bool aligned = spec->k * facts[spec->act_fmt].bits / 8 % 16 == 0; /* rows of a, for cp.async */
    if (ret->block_k % 32 || !aligned)
        ret->home = CUDA_HOME_F32;
    ret->layout = ret->home == CUDA_HOME_F32 ? CUDA_ROWS : CUDA_LANES;
    ret->rows = part_rows(spec) * spec->parts;
    int bits = facts[spec->fmt].bits;
    uint64_t codes;
    if (ret->layout == CUDA_ROWS) {
        ret->pitch = round_up((spec->k * bits + 7) / 8, 16);
        codes = (uint64_t)ret->rows * (uint64_t)ret->pitch;
    } else {
        codes = (uint64_t)ret->rows / 8 * (uint64_t)(round_up(spec->k, 128) * bits);
    }
    ret->scale_blocks = spec->mainloop && wb && wb < spec->k ? (spec->k + wb - 1) / wb : 1;
    uint64_t at = (codes + 255) & ~UINT64_C(255);
    uint64_t grid = (uint64_t)ret->scale_blocks * (uint64_t)ret->rows * 4;
    if (spec->mainloop) {
        ret->scale_at = (int64_t)at;
        at += (grid + 255) & ~UINT64_C(255);
    }
    if (decodes_zero(spec)) {
        ret->zero_at = (int64_t)at;
        at += (grid + 255) & ~UINT64_C(255);
    }
    ret->bytes = at;
    return at < UINT64_C(1) << 44;
}

/* Logical row of packed row r, or -1 for padding. */
static int64_t source_row(const CudaPackSpec *spec, int64_t r)
{
    int64_t block = r / 8, part = block % spec->parts;
    int64_t row = block / spec->parts * 8 + r % 8, rows = spec->n / spec->parts;
    return row < rows ? part * rows + row : -1;
}

static uint32_t code_at(const uint8_t *row, int bits, int64_t k)
{
    switch (bits) {
    case 4: return (row[k / 2] >> (k % 2 * 4)) & 15u;
    case 8: return row[k];
    default: return (uint32_t)row[2 * k] | (uint32_t)row[2 * k + 1] << 8;
    }
}

/* The eight codes of a lane's 32 bits, from k order (lowest k in the lowest bits) to the order that
 * decoding wants: for bytes, codes 0..3 in the low nibbles and 4..7 in the high ones; for halves,
 * even codes in the low 16 bits and odd ones in the high. */
static uint32_t order_nibbles(CudaHome home, uint32_t word)
{
    uint32_t even, odd;
    if (home == CUDA_HOME_I8) {
        even = word & 0xFFFF;
        odd = word >> 16;
        even = (even | even << 8) & 0x00FF00FF;
        odd = (odd | odd << 8) & 0x00FF00FF;
        even = (even | even << 4) & 0x0F0F0F0F;
        odd = (odd | odd << 4) & 0x0F0F0F0F;
        return even | odd << 4;
    }
    even = word & 0x0F0F0F0F;
    odd = word >> 4 & 0x0F0F0F0F;
    even = (even | even >> 4) & 0x00FF00FF;
    odd = (odd | odd >> 4) & 0x00FF00FF;
    return ((even | even >> 8) & 0xFFFF) | (odd | odd >> 8) << 16;
}

/* Eight codes of one lane from canonical bytes. */
static inline void put_codes(uint8_t *at, CudaHome home, int bits, const uint8_t *codes)
{
    if (bits == 8) {
        memcpy(at, codes, 8);
    } else if (bits == 16) {
        memcpy(at, codes, 16);
    } else {
        uint32_t word = (uint32_t)codes[0] | (uint32_t)codes[1] << 8 | (uint32_t)codes[2] << 16 |
                        (uint32_t)codes[3] << 24;
        word = order_nibbles(home, word);
        for (int i = 0; i < 4; i++)
            at[i] = (uint8_t)(word >> (8 * i));
    }
}

/* Code that decodes to zero at (row, k) of the padding along K. */
static uint32_t padding_code(const CudaPackSpec *spec, const CudaPacked *packed,
                             const int32_t *zero, int64_t row)
{
    if (!packed->zero_at)
        return 0;
    int64_t blocks = spec->block_cols && spec->block_cols < spec->k
                         ? (spec->k + spec->block_cols - 1) / spec->block_cols
                         : 1;
    int64_t r = spec->block_rows ? row / spec->block_rows : 0;
    return (uint32_t)zero[r * blocks + blocks - 1] & (facts[spec->fmt].bits == 4 ? 15u : 255u);
}

/* Where the eight codes from k on lie in a block, k a multiple of 8. */
static inline int64_t lane_at(int bits, int64_t row, int64_t k)
{
    int unit_steps = 16 / bits, step = (int)(k % 128 / 32), t = (int)(k % 32 / 8);
    return k / 128 * 128 * bits + step / unit_steps * 512 + (row % 8 * 4 + t) * 16 +
           step % unit_steps * bits;
}

static inline void pack_lanes_row(const CudaPackSpec *spec, CudaHome home, int bits, int64_t row,
                                  const uint8_t *codes, uint32_t pad, uint8_t *block)
{
    int64_t whole = spec->k / 8 * 8, padded = (spec->k + 127) / 128 * 128;
    for (int64_t k = 0; k < whole; k += 8)
        put_codes(block + lane_at(bits, row, k), home, bits, codes + k * bits / 8);
    for (int64_t k = whole; k < padded; k += 8) {
        uint8_t tail[16] = {0};
        for (int64_t i = 0; i < 8; i++) {
            uint32_t code = k + i < spec->k ? code_at(codes, bits, k + i) : pad;
            for (int b = 0; b < bits; b += 4) /* nibble by nibble */
                tail[(i * bits + b) / 8] |= (uint8_t)((code >> b & 15) << (i * bits + b) % 8);
        }
        put_codes(block + lane_at(bits, row, k), home, bits, tail);
    }
}

static void pack_lanes(const CudaPackSpec *spec, const CudaPacked *packed, const uint8_t *src,
                       int64_t src_pitch, const int32_t *zero, uint8_t *dst)
{
    CudaHome home = packed->home;
    int bits = facts[spec->fmt].bits;
    int64_t block_bytes = (spec->k + 127) / 128 * 128 * bits;
    for (int64_t r = 0; r < packed->rows; r++) {
        int64_t row = source_row(spec, r);
        if (row < 0)
            continue;
        const uint8_t *codes = src + row * src_pitch;
        uint32_t pad = padding_code(spec, packed, zero, row);
        uint8_t *block = dst + r / 8 * block_bytes;
        switch (bits) { /* a loop each, compiled for these bits */
        case 4: pack_lanes_row(spec, home, 4, r, codes, pad, block); break;
        case 8: pack_lanes_row(spec, home, 8, r, codes, pad, block); break;
        default: pack_lanes_row(spec, home, 16, r, codes, pad, block); break;
        }
    }
}

static void pack_rows(const CudaPackSpec *spec, const CudaPacked *packed, const uint8_t *src,
                      int64_t src_pitch, uint8_t *dst)
{
    size_t bytes = (size_t)((spec->k * facts[spec->fmt].bits + 7) / 8);
    for (int64_t r = 0; r < packed->rows; r++) {
        int64_t row = source_row(spec, r);
        if (row >= 0)
            memcpy(dst + r * packed->pitch, src + row * src_pitch, bytes);
    }
}

/* Scales and zero points from the weight's grid to [blocks of K][packed rows]: eight rows at a
 * time, which lie side by side there. */
static void pack_grids(const CudaPackSpec *spec, const CudaPacked *packed, const float *scale,
                       const int32_t *zero, float outer, uint8_t *dst)
{
    int64_t blocks = packed->scale_blocks, grid[8];
    if (!packed->scale_at && !packed->zero_at)
        return;
    for (int64_t first = 0; first < packed->rows; first += 8) {
        int num = 0; /* padding comes last */
        for (int64_t row; num < 8 && (row = source_row(spec, first + num)) >= 0; num++)
            grid[num] = (spec->block_rows ? row / spec->block_rows : 0) * blocks;
        for (int64_t b = 0; b < blocks; b++) {
            uint8_t *at = dst + (b * packed->rows + first) * 4;
            for (int i = 0; packed->scale_at && i < num; i++) {
                float s = scale ? num_scale_effective(scale[grid[i] + b], outer) : 1.0f;
                memcpy(at + packed->scale_at + 4 * i, &s, 4);
            }
            for (int i = 0; packed->zero_at && i < num; i++)
                memcpy(at + packed->zero_at + 4 * i, &zero[grid[i] + b], 4);
        }
    }
}

void cuda_pack(const CudaPackSpec *spec, const void *src, int64_t src_pitch, const float *scale,
               const int32_t *zero, float outer, void *dst)
{
    CudaPacked packed;
    if (!cuda_pack_plan(spec, &packed))
        return;
    if (packed.layout == CUDA_LANES)
        pack_lanes(spec, &packed, src, src_pitch, zero, dst);
    else
        pack_rows(spec, &packed, src, src_pitch, dst);
    pack_grids(spec, &packed, scale, zero, outer, dst);
}
