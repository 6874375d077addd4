/* Packing of weights for the GPU; the layouts are described in pack.h. */
#include "kernels/cuda/pack.h"
#include <math.h>
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

static bool is_int(FormatId fmt)
{
    return facts[fmt].family == FAMILY_INT;
}

static bool is_wide(FormatId fmt) /* 16 and 32 bits */
{
    return facts[fmt].family == FAMILY_FLOAT;
}

/* Integers stay integers unless a zero point takes them out of eight bits. */
static bool fits_bytes(const CudaPackSpec *spec)
{
    bool by_zero =
        spec->mainloop && (spec->act_zero || (spec->has_zero && facts[spec->fmt].bits > 4));
    return is_int(spec->act_fmt) && is_int(spec->fmt) && !by_zero;
}

/* Where the tensor cores multiply this pair. Codes of up to eight bits are exact in both 16-bit
 * homes, and so is their distance from a zero point; what is wider goes where its partner is, in as
 * many pieces as it takes (format.cuh). */
static CudaHome home_of(const CudaPackSpec *spec)
{
    FormatId act = spec->act_fmt, w = spec->fmt;
    if (spec->table)
        return CUDA_HOME_BF16; /* which has the range of any table */
    if (fits_bytes(spec))
        return CUDA_HOME_I8;
    if (!is_wide(act))
        return !is_wide(w) || w == FMT_F16 ? CUDA_HOME_F16 : CUDA_HOME_BF16;
    return act == FMT_F16 && (!is_wide(w) || w == FMT_F16) ? CUDA_HOME_F16 : CUDA_HOME_BF16;
}

static int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

static int64_t part_rows(const CudaPackSpec *spec) /* padded rows of one part */
{
    return round_up(spec->n / spec->parts, 8);
}

static bool decodes_zero(const CudaPackSpec *spec)
{
    return spec->has_zero && (spec->mainloop || !is_int(spec->act_fmt));
}

/* Codes of four bits times a scale of four significant bits need no more than eight: 16-bit floats
 * hold them. Worth it only where a block of scales ends inside a step of 32, between the eight
 * codes of one lane and those of the next. */
static bool folds(FormatId fmt, FormatId scale_fmt, int64_t block, CudaHome home)
{
    return facts[fmt].bits == 4 && facts[fmt].family != FAMILY_CODEBOOK && scale_fmt == FMT_E4M3 &&
           (home == CUDA_HOME_F16 || home == CUDA_HOME_BF16) && block % 32 && block % 8 == 0;
}

/* The smaller of two blocks of K; 0 = all. */
static int64_t smaller_block(int64_t a, int64_t b, int64_t k)
{
    int64_t block = !a ? b : !b ? a : a < b ? a : b;
    return block >= k ? 0 : block;
}

static int64_t weight_block(const CudaPackSpec *spec) /* that has scales of its own; 0 = all of K */
{
    return spec->block_cols < spec->k ? spec->block_cols : 0;
}

static int64_t grid_cols(const CudaPackSpec *spec)
{
    int64_t block = weight_block(spec);
    return block ? (spec->k + block - 1) / block : 1;
}

static int64_t grid_entries(const CudaPackSpec *spec)
{
    int64_t rows = spec->block_rows ? round_up(spec->n, spec->block_rows) / spec->block_rows : 1;
    return rows * grid_cols(spec);
}

/* Blocks that meet a tile of K, at most. */
static int num_subs(int64_t block)
{
    if (!block || block % CUDA_TILE_K == 0)
        return 1;
    return (int)(CUDA_TILE_K % block == 0 ? CUDA_TILE_K / block
                                          : (CUDA_TILE_K - 2 + block) / block + 1);
}

static void plan_record(const CudaPackSpec *spec, CudaPacked *ret)
{
    ret->subs = num_subs(weight_block(spec));
    ret->scale_at = CUDA_GROUP_ROWS * CUDA_TILE_K / 8 * ret->bits;
    ret->scale_bytes = ret->scales ? facts[spec->scale_fmt].bits / 8 : 0;
    ret->zero_at = ret->scale_at + CUDA_GROUP_ROWS * ret->subs * ret->scale_bytes;
    ret->zero_bits = ret->zeros ? facts[spec->fmt].bits : 0;
    ret->record = ret->zero_at + CUDA_GROUP_ROWS / 8 * ret->subs * ret->zero_bits;
}

static bool plan_records(const CudaPackSpec *spec, CudaPacked *ret)
{
    ret->home = home_of(spec);
    ret->exact = is_int(spec->act_fmt) && is_int(spec->fmt);
    ret->scales = (spec->mainloop || spec->factored) && spec->scale_fmt != FMT_NONE;
    ret->scale_fmt = spec->scale_fmt;
    ret->zeros = decodes_zero(spec);
    ret->folded =
        spec->factored || (ret->scales && !ret->exact && !ret->zeros &&
                           folds(spec->fmt, spec->scale_fmt, weight_block(spec), ret->home));
    if (spec->mainloop)
        ret->block_k = smaller_block(ret->folded ? 0 : spec->block_cols, spec->act_block, spec->k);
    ret->rows = part_rows(spec) * spec->parts;
    ret->neighbours = 8;
    plan_record(spec, ret);
    uint64_t tiles = (uint64_t)round_up(ret->rows, CUDA_GROUP_ROWS) / CUDA_GROUP_ROWS *
                     ((uint64_t)round_up(spec->k, CUDA_TILE_K) / CUDA_TILE_K);
    if (__builtin_mul_overflow(tiles, (uint64_t)ret->record, &ret->bytes) ||
        ret->bytes >= UINT64_C(1) << 44)
        return false;
    if (spec->table) {
        ret->table_at = round_up((int64_t)ret->bytes, 256);
        ret->bytes = (uint64_t)ret->table_at + 256;
    }
    if (ret->exact && ret->scales && !ret->zeros && !ret->folded && spec->fmt == FMT_I4) {
        ret->tiny_at = round_up((int64_t)ret->bytes, 256);
        ret->bytes = (uint64_t)ret->tiny_at + 256;
    }
    return true;
}

/* A lane multiplies codes under one scale: of a step, or where that is folded in, of an eighth. */
static bool plan_fragments(const CudaPackSpec *spec, CudaPacked *ret)
{
    int act = facts[spec->act_fmt].bits;
    if (!plan_records(spec, ret) || (act != 8 && act != 16) ||
        ret->bits > (ret->exact && spec->mainloop ? act : act / 2) || ret->block_k % 32 ||
        (spec->factored ? weight_block(spec) % 32 != 0
         : ret->folded  ? act == 8
                        : spec->mainloop && weight_block(spec) % 32))
        return false;
    ret->neighbours = act == 16 ? 2 : 4;
    return true;
}

/* Codes are places in tables, no integers whatever the activation is: their values are f32. */
static bool plan_bits(const CudaPackSpec *spec, CudaPacked *ret)
{
    int bits = ret->bits;
    if (bits > 8 || spec->factored)
        return false;
    ret->home = CUDA_HOME_F32;
    ret->scales = spec->mainloop && spec->scale_fmt != FMT_NONE;
    ret->scale_fmt = spec->scale_fmt;
    ret->scale_bytes = ret->scales ? facts[spec->scale_fmt].bits / 8 : 0;
    if (spec->mainloop)
        ret->block_k = smaller_block(spec->block_cols, spec->act_block, spec->k);
    ret->rows = part_rows(spec) * spec->parts;
    ret->pitch = round_up(spec->k * bits, 32) / 8;
    if (__builtin_mul_overflow(ret->rows, ret->pitch, &ret->table_at) || ret->table_at >= INT64_C(1)
                                                                                              << 43)
        return false;
    ret->table_at = round_up(ret->table_at, 256);
    if (ret->scales) {
        ret->scale_at = ret->table_at;
        ret->table_at += round_up(grid_entries(spec) * ret->scale_bytes, 256);
    }
    uint64_t tables = (uint64_t)codebook_tables(spec->table, spec->n, grid_entries(spec));
    ret->bytes = (uint64_t)ret->table_at + (tables << bits) * sizeof(float);
    return ret->bytes < UINT64_C(1) << 44;
}

void cuda_pack_fold(const CudaPackSpec *spec, FormatId scale_fmt, CudaPacked *packed)
{
    if (packed->layout == CUDA_BITS || !spec->mainloop || packed->exact || spec->act_zero ||
        !spec->act_block || !folds(spec->act_fmt, scale_fmt, spec->act_block, packed->home))
        return;
    packed->act_folded = true;
    packed->block_k = smaller_block(packed->folded ? 0 : spec->block_cols, 0, spec->k);
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
    case 16: return (uint32_t)row[2 * k] | (uint32_t)row[2 * k + 1] << 8;
    default:
        return (uint32_t)row[4 * k] | (uint32_t)row[4 * k + 1] << 8 |
               (uint32_t)row[4 * k + 2] << 16 | (uint32_t)row[4 * k + 3] << 24;
    }
}

/* Of nibbles in the order of halves (pack.h, FRAGMENTS). */
static uint32_t order_planes(uint32_t word)
{
    uint32_t magnitudes = (word & 0x00070007) << 6 | (word & 0x00700070) << 5 |
                          (word & 0x07000700) << 4 | (word >> 8 & 0x00100010) |
                          (word >> 13 & 0x00030003);
    uint32_t signs = (word & 0x00080008) << 12 | (word >> 12 & 0x00080008);
    uint32_t apart = (word >> 5 & 0x00040004) | (word >> 6 & 0x00200020);
    return magnitudes | signs | apart << 16 | apart >> 16;
}

/* How the eight codes of a lane's 32 bits lie. */
typedef enum NibbleOrder { IN_HALVES, IN_BYTES, IN_PLANES, ASCENDING } NibbleOrder;

/* From k order (lowest k in the lowest bits) to the order that decoding wants: for bytes, codes
 * 0..3 in the low nibbles and 4..7 in the high ones; for halves, even codes in the low 16 bits and
 * odd ones in the high. */
static uint32_t order_nibbles(NibbleOrder order, uint32_t word)
{
    uint32_t even, odd;
    if (order == ASCENDING)
        return word;
    if (order == IN_BYTES) {
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
    word = ((even | even >> 8) & 0xFFFF) | (odd | odd >> 8) << 16;
    return order == IN_PLANES ? order_planes(word) : word;
}

static NibbleOrder nibble_order(const CudaPackSpec *spec, const CudaPacked *packed)
{
    if (packed->home == CUDA_HOME_I8 || packed->neighbours == 4)
        return IN_BYTES;
    if (packed->neighbours == 2 && spec->fmt == FMT_E2M1)
        return IN_PLANES;
    return packed->neighbours == 2 && facts[spec->fmt].family == FAMILY_CODEBOOK ? ASCENDING
                                                                                 : IN_HALVES;
}

/* Eight codes of one lane from canonical bytes. */
static inline void put_codes(uint8_t *at, NibbleOrder order, int bits, const uint8_t *codes)
{
    if (bits == 32) { /* the lane's second sixteen bytes lie in the next unit */
        memcpy(at, codes, 16);
        memcpy(at + 512, codes + 16, 16);
    } else if (bits > 4) {
        memcpy(at, codes, (size_t)bits);
    } else {
        uint32_t word = (uint32_t)codes[0] | (uint32_t)codes[1] << 8 | (uint32_t)codes[2] << 16 |
                        (uint32_t)codes[3] << 24;
        word = order_nibbles(order, word);
        for (int i = 0; i < 4; i++)
            at[i] = (uint8_t)(word >> (8 * i));
    }
}

/* Entry of the weight's grids for a row and the block that column k lies in. */
static int64_t grid_at(const CudaPackSpec *spec, int64_t row, int64_t k)
{
    int64_t block = weight_block(spec);
    return (spec->block_rows ? row / spec->block_rows : 0) * grid_cols(spec) +
           (block ? k / block : 0);
}

/* Code that decodes to zero in the padding of a row along K. */
static uint32_t padding_code(const CudaPackSpec *spec, const CudaPacked *packed,
                             const int32_t *zero, int64_t row)
{
    uint32_t mask = facts[spec->fmt].bits == 4 ? 15u : 255u;
    if (spec->fmt == FMT_NF4)
        return 7;
    return packed->zeros || spec->factored ? (uint32_t)zero[grid_at(spec, row, spec->k - 1)] & mask
                                           : 0;
}

/* Where the eight codes from k on lie in the records of a group, k a multiple of 8. */
static inline int64_t lane_at(int bits, int64_t record, int64_t row, int64_t k)
{
    int64_t run = CUDA_TILE_K * bits; /* of 8 rows */
    int step = (int)(k % 128 / 32), t = (int)(k % 32 / 8), lane = (int)(row % 8 * 4 + t);
    int64_t at = k / CUDA_TILE_K * record + row % CUDA_GROUP_ROWS / 8 * run + lane * 16;
    if (bits == 32)
        return at + 1024 * step;
    int unit_steps = 16 / bits;
    return at + step / unit_steps * 512 + step % unit_steps * bits;
}

static int log_of(int neighbours)
{
    return neighbours == 8 ? 3 : neighbours == 4 ? 2 : 1;
}

/* Column of the i-th of the eight codes that lie where those from k on do in records, k a multiple
 * of 8. log: of their neighbours. */
static inline int64_t column_of(int log, int64_t k, int64_t i)
{
    int64_t t = k >> 3 & 3;
    return k - 8 * t + (((i >> log) * 4 + t) << log) + (i & ((1 << log) - 1));
}

/* These codes, all of them inside the row, side by side. */
static inline const uint8_t *gather(int log, int bits, const uint8_t *codes, int64_t k,
                                    uint8_t room[8])
{
    if (log == 3)
        return codes + k * bits / 8;
    for (int i = 0; i < bits && i < 8; i++) /* bytes, of codes of up to 8 bits */
        room[i] = codes[column_of(log, k, i * 8 / bits) * bits / 8];
    return room;
}

static inline void pack_codes_row(const CudaPackSpec *spec, const CudaPacked *packed, int bits,
                                  int64_t row, const uint8_t *codes, uint32_t pad, uint8_t *group)
{
    int log = log_of(packed->neighbours);
    int64_t whole = log == 3 ? spec->k / 8 * 8 : spec->k / 32 * 32;
    int64_t padded = round_up(spec->k, CUDA_TILE_K);
    NibbleOrder order = nibble_order(spec, packed);
    for (int64_t k = 0; k < whole; k += 8) {
        uint8_t room[8];
        put_codes(group + lane_at(bits, packed->record, row, k), order, bits,
                  gather(log, bits, codes, k, room));
    }
    for (int64_t k = whole; k < padded; k += 8) {
        uint8_t tail[32] = {0};
        for (int64_t i = 0; i < 8; i++) {
            int64_t column = column_of(log, k, i);
            uint32_t code = column < spec->k ? code_at(codes, bits, column) : pad;
            for (int b = 0; b < bits; b += 4) /* nibble by nibble */
                tail[(i * bits + b) / 8] |= (uint8_t)((code >> b & 15) << (i * bits + b) % 8);
        }
        put_codes(group + lane_at(bits, packed->record, row, k), order, bits, tail);
    }
}

/* Adds the nibbles of a step to the words of a lane, of which each takes some bits. */
static inline void put_thin(uint32_t *word, int bits, int step, uint32_t nibbles)
{
    if (bits & 2)
        word[step / 2] |= (nibbles & 0x33333333u) << (step % 2 * 2);
    if (bits & 1)
        word[bits - 1] |= (nibbles >> (bits - 1) & 0x11111111u) << step;
}

/* The eight codes of a step from k on, in the order of nibbles. */
static inline uint32_t thin_nibbles(const CudaPackSpec *spec, const CudaPacked *packed,
                                    const uint8_t *codes, int64_t k, uint32_t pad)
{
    uint32_t word = 0;
    for (int64_t i = 0; i < 8; i++) {
        int64_t column = column_of(log_of(packed->neighbours), k, i);
        word |= (column < spec->k ? code_at(codes, 4, column) : pad) << (4 * i);
    }
    return order_nibbles(nibble_order(spec, packed), word);
}

/* .. of codes of fewer bits than a nibble: of binary ones bit 1, which -1 has and 1 has not. */
static inline void pack_thin_row(const CudaPackSpec *spec, const CudaPacked *packed, int bits,
                                 int64_t row, const uint8_t *codes, uint32_t pad, uint8_t *group)
{
    uint8_t *block = group + row % CUDA_GROUP_ROWS / 8 * CUDA_TILE_K * bits;
    for (int64_t k = 0; k < spec->k; k += CUDA_TILE_K, block += packed->record)
        for (int64_t t = 0; t < 4; t++) {
            uint32_t word[3] = {0};
            for (int step = 0; step < 4; step++) {
                uint32_t nibbles = thin_nibbles(spec, packed, codes, k + 32 * step + 8 * t, pad);
                put_thin(word, bits, step, spec->binary ? nibbles >> 1 : nibbles);
            }
            for (int i = 0; i < 4 * bits; i++)
                block[i / 4 * 128 + (row % 8 * 4 + t) * 4 + i % 4] =
                    (uint8_t)(word[i / 4] >> (i % 4 * 8));
        }
}

static void put_scale(const CudaPackSpec *spec, const CudaPacked *packed, float scale, uint8_t *at)
{
    uint32_t code =
        packed->scale_bytes == 4 ? num_bits(scale) : num_encode((int)spec->scale_fmt, scale);
    for (int i = 0; i < packed->scale_bytes; i++)
        at[i] = (uint8_t)(code >> (8 * i));
}

/* Rows that only packing has decode to zero, too. */
static void clear_factors(const CudaPackSpec *spec, const CudaPacked *packed, uint8_t *dst)
{
    int64_t records = round_up(packed->rows, CUDA_GROUP_ROWS) / CUDA_GROUP_ROWS *
                      (round_up(spec->k, CUDA_TILE_K) / CUDA_TILE_K);
    for (int64_t r = 0; r < records && spec->factored; r++, dst += packed->record)
        for (int64_t i = packed->scale_at; i < packed->zero_at; i += 2)
            dst[i + 1] = 128;
}

static void put_factor(float scale, int32_t zero, uint8_t *at)
{
    at[0] = (uint8_t)scale;
    at[1] = (uint8_t)(128 - (int)scale * zero);
}

/* The scales and zero points of a row in all records of its group. */
static void pack_params_row(const CudaPackSpec *spec, const CudaPacked *packed, int64_t in_group,
                            int64_t row, const CudaParams *params, uint8_t *group)
{
    const float *scale = params->scale;
    const int32_t *zero = params->zero;
    int64_t block = weight_block(spec), last = grid_cols(spec) - 1;
    for (int64_t k = 0; k < spec->k; k += CUDA_TILE_K, group += packed->record)
        for (int sub = 0; sub < packed->subs; sub++) {
            int64_t of = block ? k / block + sub : 0, at = sub * CUDA_GROUP_ROWS + in_group;
            int64_t from = grid_at(spec, row, 0) + (of < last ? of : last);
            if (spec->factored)
                put_factor(scale[from], zero[from],
                           group + packed->scale_at + at * packed->scale_bytes);
            else if (packed->scales)
                put_scale(spec, packed, scale[from],
                          group + packed->scale_at + at * packed->scale_bytes);
            if (packed->zero_bits == 8)
                group[packed->zero_at + at] = (uint8_t)zero[from];
            else if (packed->zero_bits == 4)
                group[packed->zero_at + at / 2] |= (uint8_t)((zero[from] & 15) << (at % 2 * 4));
        }
}

/* Steps between scales ------------------------------------------------------------------------- */

#define MOST_STEP 0x1p-64f /* down from one scale to the next one along K */

/* Sums may lie in the unit of the block of K that was added last (mixed.cuh). */
static bool changes_unit(const CudaPackSpec *spec, const CudaPacked *packed)
{
    int64_t block = weight_block(spec);
    return packed->scales && !packed->folded && block && packed->bits >= 4 && !spec->table &&
           (block == 32 || block == 64 || block % CUDA_TILE_K == 0) &&
           (packed->home == CUDA_HOME_F16 || packed->home == CUDA_HOME_BF16);
}

/* Some step between the scales of the row may be too large. */
static bool has_steep_scales(const CudaPackSpec *spec, const float *scale, int64_t row)
{
    const float *first = scale + grid_at(spec, row, 0);
    float least = INFINITY, most = 0;
    for (int64_t i = 0; i < grid_cols(spec); i++) {
        least = fabsf(first[i]) < least ? fabsf(first[i]) : least;
        most = fabsf(first[i]) > most ? fabsf(first[i]) : most;
    }
    return least < most * MOST_STEP;
}

/* Columns [k, end) of a packed row hold the code that decodes to zero. */
static void put_zeros(const CudaPackSpec *spec, const CudaPacked *packed, int64_t row, int64_t k,
                      int64_t end, uint32_t zero, uint8_t *group)
{
    uint8_t codes[32]; /* as wide as codes may be */
    memset(codes, packed->bits == 4 ? (int)(zero * 17) : (int)zero, sizeof codes);
    for (; k < end; k += 8)
        put_codes(group + lane_at(packed->bits, packed->record, row, k), nibble_order(spec, packed),
                  packed->bits, codes);
}

static bool are_zeros(const CudaPackSpec *spec, const uint8_t *codes, int64_t k, int64_t end,
                      uint32_t zero)
{
    for (; k < end; k++)
        if (code_at(codes, facts[spec->fmt].bits, k) != zero)
            return false;
    return true;
}

/* Blocks of a packed row that hold nothing, or next to nothing beside the block before them (under
 * a scale of less than 2^-64 of its, or of 0), are zeros under the same scale as that block. */
static void bridge_row(const CudaPackSpec *spec, const CudaPacked *packed, int64_t r, int64_t row,
                       const uint8_t *codes, const CudaParams *params, uint8_t *group)
{
    int64_t block = weight_block(spec), width = block < CUDA_TILE_K ? block : CUDA_TILE_K;
    uint8_t *record = group;
    float last = 0; /* under which something lies */
    for (int64_t k = 0; k < spec->k; k += width) {
        int64_t end = k + width < spec->k ? k + width : spec->k, at = grid_at(spec, row, k);
        record = group + k / CUDA_TILE_K * packed->record;
        float scale = params->scale[at];
        uint32_t mask = facts[spec->fmt].bits == 4 ? 15u : 255u;
        uint32_t zero = spec->fmt == FMT_NF4 ? 7u
                        : packed->zeros      ? (uint32_t)params->zero[at] & mask
                                             : 0;
        bool is_zero = are_zeros(spec, codes, k, end, zero);
        bool counts = scale != 0 && fabsf(scale) >= fabsf(last) * MOST_STEP;
        if (scale != scale || (!is_zero && counts)) {
            last = scale == scale ? scale : last;
            continue;
        }
        if (!is_zero)
            put_zeros(spec, packed, r, k, round_up(end, 32), zero, group);
        if (last != 0)
            put_scale(spec, packed, last,
                      record + packed->scale_at +
                          (k % CUDA_TILE_K / width * CUDA_GROUP_ROWS + r % CUDA_GROUP_ROWS) *
                              packed->scale_bytes);
    }
}

/* A table in pieces of bf16 whose sum a value is, each to the nearest; of each piece the low bytes
 * of all 16 values, then the high ones. */
static void put_table(const float *table, int codes, uint8_t *at)
{
    for (int code = 0; code < codes; code++) {
        float left = table[code];
        for (int piece = 0; piece < CUDA_TABLE_PIECES; piece++) {
            uint32_t bits = num_to_bf16(left);
            if ((bits & 0x7F80) == 0x7F80)
                bits = num_bits(left) >> 16; /* finite, towards zero */
            left -= num_float(bits << 16);
            at[piece * 32 + code] = (uint8_t)bits;
            at[piece * 32 + 16 + code] = (uint8_t)(bits >> 8);
        }
    }
}

static bool has_tiny(const CudaPackSpec *spec, const float *scale)
{
    for (int64_t i = 0; i < grid_entries(spec); i++)
        if (scale[i] != 0 && fabsf(scale[i]) < CUDA_TINY)
            return true;
    return false;
}

static void pack_records(const CudaPackSpec *spec, const CudaPacked *packed, const void *src,
                         int64_t src_pitch, const CudaParams *params, void *dst)
{
    int64_t group_bytes = round_up(spec->k, CUDA_TILE_K) / CUDA_TILE_K * packed->record;
    clear_factors(spec, packed, dst);
    for (int64_t r = 0; r < packed->rows; r++) {
        int64_t row = source_row(spec, r);
        if (row < 0)
            continue;
        const uint8_t *codes = (const uint8_t *)src + row * src_pitch;
        uint32_t pad = padding_code(spec, packed, params->zero, row);
        uint8_t *group = (uint8_t *)dst + r / CUDA_GROUP_ROWS * group_bytes;
        switch (packed->bits) { /* a loop each, compiled for these bits */
        case 1: pack_thin_row(spec, packed, 1, r, codes, pad, group); break;
        case 2: pack_thin_row(spec, packed, 2, r, codes, pad, group); break;
        case 3: pack_thin_row(spec, packed, 3, r, codes, pad, group); break;
        case 4: pack_codes_row(spec, packed, 4, r, codes, pad, group); break;
        case 8: pack_codes_row(spec, packed, 8, r, codes, pad, group); break;
        case 16: pack_codes_row(spec, packed, 16, r, codes, pad, group); break;
        default: pack_codes_row(spec, packed, 32, r, codes, pad, group); break;
        }
        pack_params_row(spec, packed, r % CUDA_GROUP_ROWS, row, params, group);
        if (changes_unit(spec, packed) && has_steep_scales(spec, params->scale, row))
            bridge_row(spec, packed, r, row, codes, params, group);
    }
    if (packed->table_at)
        put_table(params->table, 1 << packed->bits, (uint8_t *)dst + packed->table_at);
    if (packed->tiny_at)
        ((uint8_t *)dst)[packed->tiny_at] = has_tiny(spec, params->scale);
}

/* Stores a code of `bits` bits, the at'th of a row of zeros. */
static void put_bits(uint8_t *row, int bits, int64_t at, uint32_t code)
{
    int64_t bit = at * bits;
    uint32_t word = (code & ((1u << bits) - 1)) << bit % 8;
    row[bit / 8] |= (uint8_t)word;
    if (bit % 8 + bits > 8)
        row[bit / 8 + 1] |= (uint8_t)(word >> 8);
}

static void pack_bits(const CudaPackSpec *spec, const CudaPacked *packed, const void *src,
                      int64_t src_pitch, const CudaParams *params, void *dst)
{
    int bits = packed->bits, held = facts[num_holder((int)spec->fmt)].bits;
    int64_t entries = grid_entries(spec);
    for (int64_t r = 0; r < packed->rows; r++) {
        int64_t row = source_row(spec, r);
        if (row < 0)
            continue;
        const uint8_t *codes = (const uint8_t *)src + row * src_pitch;
        for (int64_t k = 0; k < spec->k; k++)
            put_bits((uint8_t *)dst + r * packed->pitch, bits, k, code_at(codes, held, k));
    }
    for (int64_t i = 0; packed->scales && i < entries; i++) {
        put_scale(spec, packed, params->scale[i],
                  (uint8_t *)dst + packed->scale_at + i * packed->scale_bytes);
    }
    memcpy((uint8_t *)dst + packed->table_at, params->table,
           packed->bytes - (uint64_t)packed->table_at);
}

const CudaLayoutRow cuda_layout[NUM_CUDA_PACKED] = {
    [CUDA_RECORDS] = {"records", " of 64 x 128", plan_records, pack_records},
    [CUDA_PANELS] = {"panels", "", cuda_panels_plan, cuda_panels_pack},
    [CUDA_BITS] = {"rows of bits", "", plan_bits, pack_bits},
    [CUDA_FRAGMENTS] = {"fragments", " of 64 x 128", plan_fragments, pack_records},
};

bool cuda_layout_find(const char *name, CudaLayout *ret)
{
    for (int i = 0; i < NUM_CUDA_PACKED; i++)
        if (!strcmp(name, cuda_layout[i].name)) {
            *ret = (CudaLayout)i;
            return true;
        }
    return false;
}

/* Only BITS hold any tables, and only them; records one, for codes as those of nf4. */
static bool holds_table(const CudaPackSpec *spec)
{
    if (!spec->table || spec->layout == CUDA_BITS)
        return !spec->table == (spec->layout != CUDA_BITS);
    return spec->layout == CUDA_RECORDS && spec->table == TABLE_TENSOR && spec->fmt == FMT_NF4 &&
           spec->k % CUDA_TILE_K == 0;
}

bool cuda_pack_plan(const CudaPackSpec *spec, CudaPacked *ret)
{
    const int64_t most = INT32_MAX - 1024; /* padded ones fit too */
    memset(ret, 0, sizeof *ret);
    ret->layout = spec->layout;
    ret->bits = spec->bits ? spec->bits : facts[spec->fmt].bits;
    return spec->n >= 1 && spec->k >= 1 && spec->parts >= 1 && spec->n <= most && spec->k <= most &&
           spec->layout < NUM_CUDA_PACKED && holds_table(spec) &&
           cuda_layout[spec->layout].plan(spec, ret);
}

bool cuda_packs_alike(const CudaPackSpec *from, const CudaPackSpec *as)
{
    CudaPacked x, y;
    return from->layout == as->layout && cuda_pack_plan(from, &x) && cuda_pack_plan(as, &y) &&
           nibble_order(from, &x) == nibble_order(as, &y) && x.neighbours == y.neighbours &&
           x.bits == y.bits && x.scales == y.scales && x.zeros == y.zeros && x.subs == y.subs &&
           x.record == y.record && x.pitch == y.pitch && x.table_at == y.table_at &&
           (!y.tiny_at || x.tiny_at == y.tiny_at);
}

void cuda_pack(const CudaPackSpec *spec, const void *src, int64_t src_pitch,
               const CudaParams *params, void *dst)
{
    CudaPacked packed;
    if (cuda_pack_plan(spec, &packed))
        cuda_layout[spec->layout].pack(spec, &packed, src, src_pitch, params, dst);
}
