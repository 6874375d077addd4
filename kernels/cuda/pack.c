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

/* Position of code j (0..7) among the nibbles of a lane's 32 bits. */
static int nibble_place(CudaHome home, int j)
{
    static const int for_bytes[8] = {0, 2, 4, 6, 1, 3, 5, 7};
    static const int for_halves[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    return home == CUDA_HOME_I8 ? for_bytes[j] : for_halves[j];
}

static void put_code(uint8_t *lane, CudaHome home, int bits, int step, int j, uint32_t code)
{
    if (bits == 4) {
        int place = nibble_place(home, j);
        lane[step * 4 + place / 2] |= (uint8_t)(code << (place % 2 * 4));
    } else if (bits == 8) {
        lane[step * 8 + j] = (uint8_t)code;
    } else {
        lane[2 * j] = (uint8_t)code;
        lane[2 * j + 1] = (uint8_t)(code >> 8);
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

static void pack_lanes(const CudaPackSpec *spec, const CudaPacked *packed, const uint8_t *src,
                       int64_t src_pitch, const int32_t *zero, uint8_t *dst)
{
    int bits = facts[spec->fmt].bits, unit_steps = 16 / bits;
    int64_t tiles = (spec->k + 127) / 128;
    for (int64_t r = 0; r < packed->rows; r++) {
        int64_t row = source_row(spec, r);
        if (row < 0)
            continue;
        const uint8_t *codes = src + row * src_pitch;
        uint32_t pad = padding_code(spec, packed, zero, row);
        uint8_t *block = dst + r / 8 * tiles * 128 * bits;
        for (int64_t k = 0; k < tiles * 128; k++) {
            int step = (int)(k % 128 / 32), t = (int)(k % 32 / 8), j = (int)(k % 8);
            uint8_t *unit = block + k / 128 * 128 * bits + step / unit_steps * 512;
            uint8_t *lane = unit + (r % 8 * 4 + t) * 16;
            put_code(lane, packed->home, bits, step % unit_steps, j,
                     k < spec->k ? code_at(codes, bits, k) : pad);
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

/* Scales and zero points from the weight's grid to [blocks of K][packed rows]. */
static void pack_grids(const CudaPackSpec *spec, const CudaPacked *packed, const float *scale,
                       const int32_t *zero, float outer, uint8_t *dst)
{
    int64_t blocks = packed->scale_blocks;
    for (int64_t r = 0; r < packed->rows; r++) {
        int64_t row = source_row(spec, r);
        if (row < 0)
            continue;
        int64_t grid = (spec->block_rows ? row / spec->block_rows : 0) * blocks;
        for (int64_t b = 0; b < blocks; b++) {
            int64_t at = (b * packed->rows + r) * 4;
            if (packed->scale_at) {
                float s = scale ? num_scale_effective(scale[grid + b], outer) : 1.0f;
                memcpy(dst + packed->scale_at + at, &s, 4);
            }
            if (packed->zero_at)
                memcpy(dst + packed->zero_at + at, &zero[grid + b], 4);
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
