/* Packing of weights for the GPU: random matrices, and for every place of the packed bytes the
 * element that kernels/cuda/pack.h says lies there. Nibbles of a lane are read as format.cuh
 * decodes them. TAP.
 * usage: check_cuda_pack [NUM] */
#include "kernels/cuda/pack.h"
#include "quant/quant.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Matrix {
    CudaPackSpec spec;
    CudaPacked packed;
    int bits;
    int64_t pitch, grid_cols, grid_rows;
    uint8_t *codes, *dst;
    float *scale, *table;
    int32_t *zero;
} Matrix;

static int failures;
static uint64_t state = 1;

static int64_t draw(int64_t below)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int64_t)(state >> 33) % below;
}

static int64_t range(int64_t first, int64_t last) /* both included */
{
    return first + draw(last - first + 1);
}

#define PICK(array) ((array)[draw((int64_t)COUNT_OF(array))])

static bool is_int(FormatId fmt)
{
    return format_info[fmt].family == FAMILY_INT;
}

static void fail(const Matrix *m, const char *what, int64_t at)
{
    if (failures++ < 10)
        printf("# %s by %s, %lld x %lld, %d parts: %s at %lld\n", format_info[m->spec.fmt].name,
               format_info[m->spec.act_fmt].name, (long long)m->spec.n, (long long)m->spec.k,
               m->spec.parts, what, (long long)at);
}

/* Row of the weight that packed row r holds, -1 for padding: parts alternate, eight rows each. */
static int64_t logical_row(const Matrix *m, int64_t r)
{
    int64_t of_part = m->spec.n / m->spec.parts, part = r / 8 % m->spec.parts;
    int64_t row = r / 8 / m->spec.parts * 8 + r % 8;
    return row < of_part ? part * of_part + row : -1;
}

static int64_t grid_entry(const Matrix *m, int64_t row, int64_t k)
{
    int64_t r = m->spec.block_rows ? row / m->spec.block_rows : 0;
    int64_t c = m->spec.block_cols && m->spec.block_cols < m->spec.k ? k / m->spec.block_cols : 0;
    return r * m->grid_cols + c;
}

static uint32_t source_code(const Matrix *m, int64_t row, int64_t k)
{
    const uint8_t *at = m->codes + row * m->pitch + k * m->bits / 8;
    if (m->bits == 4)
        return k % 2 ? at[0] >> 4 : at[0] & 15;
    uint32_t code = 0;
    for (int i = m->bits / 8; i-- > 0;)
        code = 256 * code + at[i];
    return code;
}

/* What must stand for element (packed row r, k), padding included. */
static uint32_t expected_code(const Matrix *m, int64_t r, int64_t k)
{
    int64_t row = logical_row(m, r);
    if (row < 0)
        return 0;
    if (k < m->spec.k)
        return source_code(m, row, k);
    uint32_t mask = m->bits == 4 ? 15 : 255;
    if (m->spec.fmt == FMT_NF4)
        return 7; /* the value 0 */
    return m->packed.zeros ? (uint32_t)m->zero[grid_entry(m, row, m->spec.k - 1)] & mask : 0;
}

static bool is_fragments(const Matrix *m)
{
    return m->spec.layout == CUDA_FRAGMENTS;
}

static bool by_bytes(const Matrix *m) /* the activation has so many bits */
{
    return format_info[m->spec.act_fmt].bits == 8;
}

/* The column of a step that is code j of lane t of a row: of records the 8t + jth; of fragments as
 * PTX has the left operand, of two instructions of 16 columns (m16n8k16: a lane has 2t, 2t + 1,
 * then 2t + 8, 2t + 9) or of one of 32 (m16n8k32: 4t .. 4t + 3, then 4t + 16 .. 4t + 19). */
static int64_t column_of(const Matrix *m, int t, int j)
{
    static const int of_halves[8] = {0, 1, 8, 9, 16, 17, 24, 25};
    static const int of_bytes[8] = {0, 1, 2, 3, 16, 17, 18, 19};
    if (!is_fragments(m))
        return 8 * t + j;
    return by_bytes(m) ? 4 * t + of_bytes[j] : 2 * t + of_halves[j];
}

/* Nibbles lie as bytes are decoded: 0 to 3 are the low ones, 4 to 7 the high ones. */
static bool in_byte_order(const Matrix *m)
{
    return m->packed.home == CUDA_HOME_I8 || (is_fragments(m) && by_bytes(m));
}

/* .. or in planes: where each bit of a code lies, the lowest first. */
static uint32_t code_in_planes(uint32_t word, int j)
{
    static const int place[4][4] = {
        {6, 7, 8, 15}, {9, 10, 11, 16 + 2}, {12, 13, 14, 16 + 5}, {4, 0, 1, 3}};
    uint32_t code = 0;
    for (int bit = 0; bit < 4; bit++)
        code |= (word >> ((place[j / 2][bit] + j % 2 * 16) % 32) & 1) << bit;
    return code;
}

/* Code j of a lane's eight: 32 bits of nibbles, 64 of bytes, 128 of halves, twice 128 of words. */
static uint32_t lane_code(const Matrix *m, const uint8_t *lane, int j)
{
    if (m->bits == 8)
        return lane[j];
    if (m->bits == 16)
        return lane[2 * j] + 256u * lane[2 * j + 1];
    if (m->bits == 32) {
        const uint8_t *at = lane + j / 4 * 512 + j % 4 * 4;
        return at[0] + 256u * at[1] + 65536u * at[2] + 16777216u * at[3];
    }
    uint32_t word = lane[0] + 256u * lane[1] + 65536u * lane[2] + 16777216u * lane[3];
    if (in_byte_order(m)) /* (word & 0x0F0F0F0F), then (word >> 4 & 0x0F0F0F0F) */
        return (j < 4 ? word : word >> 4) >> (8 * (j % 4)) & 15;
    if (is_fragments(m) && m->spec.fmt == FMT_E2M1)
        return code_in_planes(word, j);
    if (is_fragments(m) && !by_bytes(m) && format_info[m->spec.fmt].family == FAMILY_CODEBOOK)
        return word >> (4 * j) & 15;
    return word >> (4 * (j / 2)) >> (j % 2 * 16) & 15; /* (word >> 4 * i) & 0x000F000F */
}

/* Every lane of every unit of every block of the records, in the order of their bytes. */
static void check_codes(const Matrix *m)
{
    int64_t tiles = (m->spec.k + 127) / 128, steps = m->bits == 32 ? 1 : 16 / m->bits;
    int64_t groups = (m->packed.rows + 63) / 64, unit_bytes = m->bits == 32 ? 1024 : 512;
    for (int64_t record = 0; record < groups * tiles; record++)
        for (int64_t block = 0; block < 8; block++)
            for (int64_t unit = 0; unit < 4 / steps; unit++)
                for (int64_t l = 0; l < 32; l++) {
                    int64_t row = record / tiles * 64 + block * 8 + l / 4;
                    const uint8_t *lane = m->dst + record * m->packed.record +
                                          (block * 4 / steps + unit) * unit_bytes + l * 16;
                    for (int64_t i = 0; i < steps * 8; i++) {
                        int64_t k = record % tiles * 128 + (unit * steps + i / 8) * 32 +
                                    column_of(m, (int)(l % 4), (int)(i % 8));
                        uint32_t want = row < m->packed.rows ? expected_code(m, row, k) : 0;
                        if (lane_code(m, lane + i / 8 * m->bits, (int)(i % 8)) != want)
                            fail(m, "another code", lane - m->dst);
                    }
                }
}

/* Bit b of code j of a step, from the words that a lane has of a block: of the nibble that decoding
 * wants the code in, bit b, in the word and place that pack.h says. */
static uint32_t thin_bit(const Matrix *m, const uint8_t *block, int lane, int step, int j, int b)
{
    bool odd_one = m->spec.bits % 2 && b == m->spec.bits - 1;
    int word = odd_one ? m->spec.bits - 1 : step / 2;
    int place = odd_one ? step : step % 2 * 2 + b;
    int nibble = in_byte_order(m) ? j % 4 * 2 + j / 4 : j / 2 + j % 2 * 4;
    int bit = nibble * 4 + place;
    return block[word * 128 + lane * 4 + bit / 8] >> bit % 8 & 1;
}

/* Codes of fewer bits than a nibble; binary ones have a bit where they are negative. */
static void check_thin(const Matrix *m)
{
    int64_t tiles = (m->spec.k + 127) / 128;
    for (int64_t r = 0; r < m->packed.rows; r++)
        for (int64_t at = 0; at < tiles * 128 && logical_row(m, r) >= 0; at++) {
            int t = (int)(at % 32 / 8), j = (int)(at % 8);
            const uint8_t *block = m->dst + (r / 64 * tiles + at / 128) * m->packed.record +
                                   r % 64 / 8 * 128 * m->spec.bits;
            uint32_t want = expected_code(m, r, at / 32 * 32 + column_of(m, t, j)), got = 0;
            for (int b = 0; b < m->spec.bits; b++)
                got |= thin_bit(m, block, (int)(r % 8 * 4 + t), (int)(at % 128 / 32), j, b) << b;
            want = m->spec.binary ? want >> 1 : want;
            if (got != (want & ((1u << m->spec.bits) - 1)))
                fail(m, "another thin code", block - m->dst);
        }
}

static uint32_t stored_bits(const uint8_t *at, int bytes)
{
    uint32_t bits = 0;
    for (int i = bytes; i-- > 0;)
        bits = 256 * bits + at[i];
    return bits;
}

/* For every record, every column of K and every row: the scale and zero point that the kernels find
 * in the record for it. */
static void check_params(const Matrix *m)
{
    const CudaPacked *p = &m->packed;
    int64_t tiles = (m->spec.k + 127) / 128;
    int64_t width = m->spec.block_cols ? m->spec.block_cols : m->spec.k;
    int bytes = p->scales ? format_info[m->spec.scale_fmt].bits / 8 : 0;
    for (int64_t r = 0; r < p->rows; r++)
        for (int64_t k = 0; k < m->spec.k; k++) {
            int64_t row = logical_row(m, r), tile = k / 128;
            int64_t at = (k / width - tile * 128 / width) * 64 + r % 64;
            const uint8_t *record = m->dst + (r / 64 * tiles + tile) * p->record;
            if (row < 0)
                continue;
            int64_t cell = grid_entry(m, row, k);
            if (p->scales && bytes < 4 &&
                num_decode((int)m->spec.scale_fmt,
                           stored_bits(record + p->scale_at + at * bytes, bytes)) != m->scale[cell])
                fail(m, "another scale", at);
            float scale;
            if (p->scales && bytes == 4 && memcpy(&scale, record + p->scale_at + at * 4, 4) &&
                scale != m->scale[cell] && !(isnan(scale) && isnan(m->scale[cell])))
                fail(m, "another scale", at);
            if (!p->zeros)
                continue;
            int code = p->zero_bits == 4 ? record[p->zero_at + at / 2] >> (at % 2 * 4) & 15
                                         : record[p->zero_at + at];
            if (code != (m->zero[cell] & (p->zero_bits == 4 ? 15 : 255)))
                fail(m, "another zero point", at);
        }
}

/* A bit of a row of codes, lowest bits first. */
static uint32_t bit_at(const Matrix *m, int64_t r, int64_t bit)
{
    return m->dst[r * m->packed.pitch + bit / 8] >> bit % 8 & 1;
}

/* Every bit of every row of codes, then the grid of scales and the tables, whole. */
static void check_bits(const Matrix *m)
{
    int bits = format_info[m->spec.fmt].bits;
    for (int64_t r = 0; r < m->packed.rows; r++)
        for (int64_t bit = 0; bit < m->packed.pitch * 8; bit++) {
            int64_t row = logical_row(m, r), k = bit / bits;
            bool none = row < 0 || k >= m->spec.k;
            if (bit_at(m, r, bit) != (none ? 0 : source_code(m, row, k) >> bit % bits & 1))
                fail(m, "another bit", bit);
        }
    int bytes = m->packed.scales ? format_info[m->spec.scale_fmt].bits / 8 : 0;
    for (int64_t i = 0; i < m->grid_rows * m->grid_cols * (bytes > 0); i++) {
        uint32_t code = stored_bits(m->dst + m->packed.scale_at + i * bytes, bytes);
        if ((bytes == 4 ? num_float(code) : num_decode((int)m->spec.scale_fmt, code)) !=
            m->scale[i])
            fail(m, "another scale", i);
    }
    uint64_t values = m->packed.bytes - (uint64_t)m->packed.table_at;
    if (memcmp(m->dst + m->packed.table_at, m->table, values) != 0)
        fail(m, "other tables", m->packed.table_at);
}

/* The table in records: sums of pieces of bf16 that come within 2^-24 of the values. */
static void check_table(const Matrix *m)
{
    const uint8_t *at = m->dst + m->packed.table_at;
    for (int code = 0; code < 1 << m->packed.bits; code++) {
        double sum = 0;
        for (int piece = 0; piece < CUDA_TABLE_PIECES; piece++)
            sum += (double)num_float((uint32_t)at[piece * 32 + code] << 16 |
                                     (uint32_t)at[piece * 32 + 16 + code] << 24);
        if (fabs(sum - (double)m->table[code]) > fabs((double)m->table[code]) * 0x1p-24)
            fail(m, "another value", code);
    }
}

/* Whether a sixteenth of every scale is one of f32, too, of i4 that is multiplied as 16 times
 * itself. */
static bool check_tiny(const Matrix *m)
{
    bool told = m->packed.exact && m->packed.scales && !m->packed.zeros && m->spec.fmt == FMT_I4;
    bool tiny = false;
    for (int64_t i = 0; i < m->grid_rows * m->grid_cols && told; i++)
        tiny = tiny || (m->scale[i] / 16) * 16 != m->scale[i];
    if (told != (m->packed.tiny_at > 0))
        fail(m, "a word about tiny scales", m->packed.tiny_at);
    else if (told && stored_bits(m->dst + m->packed.tiny_at, 4) != tiny)
        fail(m, "another word about tiny scales", tiny);
    return tiny;
}

/* As many as numerics/codebook.h says: one, one a row, one an entry of the grid. */
static uint64_t table_values(const Matrix *m)
{
    int64_t tables = m->spec.table == TABLE_BLOCK    ? m->grid_rows * m->grid_cols
                     : m->spec.table == TABLE_ROW    ? m->spec.n
                     : m->spec.table == TABLE_TENSOR ? 1
                                                     : 0;
    return (uint64_t)tables << m->packed.bits;
}

static void matrix_fill(Matrix *m)
{
    const CudaPackSpec *s = &m->spec;
    m->bits = format_info[num_holder((int)s->fmt)].bits;
    m->pitch = (s->k * m->bits + 7) / 8;
    m->grid_rows = s->block_rows ? (s->n + s->block_rows - 1) / s->block_rows : 1;
    m->grid_cols = s->block_cols ? (s->k + s->block_cols - 1) / s->block_cols : 1;
    m->codes = malloc((uint64_t)(s->n * m->pitch));
    for (int64_t i = 0; i < s->n * m->pitch; i++)
        m->codes[i] = (uint8_t)draw(256);
    int64_t cells = m->grid_rows * m->grid_cols;
    m->scale = malloc((size_t)cells * sizeof *m->scale);
    m->zero = malloc((size_t)cells * sizeof *m->zero);
    for (int64_t i = 0; i < cells; i++) {
        m->scale[i] = (float)(1 << range(0, 7)) * 0x1p-3f * (s->scale_fmt == FMT_E8M0 ? 1 : 1.25f);
        if (s->scale_fmt != FMT_E8M0 && range(0, 1))
            m->scale[i] = -m->scale[i];
        if (s->table && s->scale_fmt != FMT_E8M0 && range(0, 7) == 0)
            m->scale[i] = 0; /* whose codes stay: none need decode to 0 */
        if (s->fmt == FMT_I4 && s->scale_fmt == FMT_F32 && is_int(s->act_fmt) && range(0, 99) == 0)
            m->scale[i] = range(0, 1) ? -0x1.fffffep-123f : 0x1.000002p-122f;
        m->zero[i] = (int32_t)range(0, m->bits == 4 ? 15 : 127);
    }
    m->table = malloc(table_values(m) * sizeof *m->table);
    for (uint64_t i = 0; i < table_values(m); i++)
        m->table[i] = (float)draw(1000000) * (i % 3 ? -0x1.23456p-10f : 0x1p100f);
    m->dst = malloc(m->packed.bytes);
    memset(m->dst, 0, m->packed.bytes);
}

static CudaPackSpec random_spec(void)
{
    static const FormatId formats[] = {FMT_F32, FMT_F16,  FMT_BF16, FMT_I8,   FMT_U8,  FMT_I4,
                                       FMT_U4,  FMT_E4M3, FMT_E5M2, FMT_E2M1, FMT_NF4, FMT_FP4};
    static const FormatId scales[] = {FMT_F32, FMT_F16, FMT_BF16, FMT_E8M0, FMT_E4M3};
    static const FormatId acts[] = {FMT_F16, FMT_BF16, FMT_F32, FMT_I8, FMT_U8, FMT_E4M3};
    static const int64_t blocks[] = {0, 0, 16, 32, 48, 64, 128, 160, 256};
    CudaPackSpec s = {.fmt = PICK(formats), .act_fmt = PICK(acts)};
    s.parts = (int)range(1, 2);
    s.n = range(1, 40) * s.parts;
    s.scale_fmt = format_info[s.fmt].family == FAMILY_FLOAT ? FMT_NONE : PICK(scales);
    s.k = range(0, 3) ? range(1, 40) * 16 : range(1, 300);
    s.mainloop = range(0, 1);
    s.has_zero = is_int(s.fmt) && range(0, 1);
    s.act_zero = is_int(s.act_fmt) && range(0, 1);
    s.block_rows = range(0, 3);
    s.block_cols = s.mainloop ? PICK(blocks) : 0;
    s.bits = s.fmt == FMT_I4 || s.fmt == FMT_U4 ? (int)range(0, 3) : 0;
    s.binary = s.fmt == FMT_I4 && s.bits == 1;
    s.k = s.binary ? (s.k + 127) / 128 * 128 : s.k; /* nothing pads it */
    return s;
}

/* Whether fragments hold such a weight: it has half the activation's bits at most, or as many where
 * both are integers whose blocks of K are added in order; the codes of an instruction are under one
 * scale, but where scales of four bits are multiplied into codes of 16-bit floats, those of eight
 * columns. */
static bool fits_fragments(const CudaPackSpec *s)
{
    int act = format_info[s->act_fmt].bits, bits = format_info[s->fmt].bits;
    int64_t block = s->mainloop && s->block_cols && s->block_cols < s->k ? s->block_cols : 0;
    bool folds = (s->fmt == FMT_E2M1 || s->fmt == FMT_I4 || s->fmt == FMT_U4) && !s->has_zero &&
                 s->scale_fmt == FMT_E4M3 && !(is_int(s->fmt) && is_int(s->act_fmt));
    bool one_scale = block % 32 == 0 || (folds && act == 16 && block % 8 == 0);
    bool blocks = is_int(s->fmt) && is_int(s->act_fmt) && s->mainloop; /* of bytes by bytes */
    return one_scale &&
           ((act == 16 && bits <= 8) || (act == 8 && (bits <= 4 || (bits == 8 && blocks))));
}

static CudaPackSpec random_fragments(void)
{
    CudaPackSpec s;
    do {
        s = random_spec();
        s.layout = CUDA_FRAGMENTS;
    } while (!fits_fragments(&s));
    return s;
}

static CudaPackSpec random_codebook(void)
{
    static const FormatId formats[] = {FMT_U1, FMT_U2, FMT_U3, FMT_U4,
                                       FMT_U5, FMT_U6, FMT_U7, FMT_U8};
    static const FormatId scales[] = {FMT_F32, FMT_F16, FMT_BF16};
    CudaPackSpec s = random_spec();
    s.fmt = PICK(formats);
    s.scale_fmt = PICK(scales);
    s.table = (TableKind)range(TABLE_TENSOR, TABLE_BLOCK);
    s.layout = CUDA_BITS;
    s.has_zero = s.binary = false;
    s.bits = 0;
    return s;
}

/* .. one for all, in records. */
static CudaPackSpec random_looked_up(void)
{
    CudaPackSpec s = random_codebook();
    s.bits = (int)range(0, 3);
    s.fmt = FMT_NF4;
    s.table = TABLE_TENSOR;
    s.layout = CUDA_RECORDS;
    s.k = (s.k + 127) / 128 * 128;
    return s;
}

/* Blocks of a row, by their scales: '0' is a block of zeros, whatever its scale; what becomes of
 * them is what pack.h says. */
static const struct {
    float scale[4];
    char codes[5]; /* x: not all zeros */
    float packed[4];
    char becomes[5];
} steep_rows[] = {
    {{1.0f, 0.5f, 0x1p-60f, 0.25f}, "xxxx", {1.0f, 0.5f, 0x1p-60f, 0.25f}, "xxxx"},
    {{1.0f, 0x1p-90f, 0x1p-89f, 0x1p-90f}, "0xxx", {1.0f, 0x1p-90f, 0x1p-89f, 0x1p-90f}, "0xxx"},
    {{0x1p-90f, 1.0f, 0x1p-91f, 1.0f}, "x0x0", {0x1p-90f, 0x1p-90f, 0x1p-91f, 0x1p-91f}, "x0x0"},
    {{1.0f, 0x1p-65f, 0x1p-64f, 2.0f}, "xxxx", {1.0f, 1.0f, 0x1p-64f, 2.0f}, "x0xx"},
    {{0.0f, 0.5f, 0.0f, 0.25f}, "xxxx", {0.0f, 0.5f, 0.5f, 0.25f}, "0x0x"},
    {{1.0f, NAN, 0.0f, 1.0f}, "xxxx", {1.0f, NAN, 1.0f, 1.0f}, "xx0x"},
    {{0x1p-80f, 0x1p80f, 0x1p-80f, 0x1p80f}, "xxxx", {0x1p-80f, 0x1p80f, 0x1p80f, 0x1p80f}, "xx0x"},
    {{1.0f, -0.5f, 0.25f, -1.0f}, "xxxx", {1.0f, -0.5f, 0.25f, -1.0f}, "xxxx"},
    {{-1.0f, 0x1p-65f, -0x1p-64f, -2.0f}, "xxxx", {-1.0f, -1.0f, -0x1p-64f, -2.0f}, "x0xx"},
    {{-0.0f, -0.5f, 0.0f, 0.25f}, "xxxx", {-0.0f, -0.5f, -0.5f, 0.25f}, "0x0x"},
};

/* Makes block `block` of a row all zeros where `kind` says so, else not. */
static void fill_block(Matrix *m, int64_t row, int64_t block, char kind)
{
    int64_t width = m->spec.block_cols;
    for (int64_t k = block * width; k < (block + 1) * width; k++) {
        uint32_t zero = m->spec.fmt == FMT_NF4 ? 7
                        : m->packed.zeros      ? (uint32_t)m->zero[grid_entry(m, row, k)]
                                               : 0;
        uint8_t *at = m->codes + row * m->pitch + k * m->bits / 8;
        uint32_t code = kind == '0' ? zero : zero + (k % width == 5);
        if (m->bits == 8)
            *at = (uint8_t)code;
        else
            *at = (uint8_t)(k % 2 ? (*at & 15) | code << 4 : (*at & 240) | (code & 15));
    }
}

/* Rows whose scales differ by more than sums survive. */
static void check_steep(FormatId fmt, FormatId act, CudaLayout layout, int64_t block, bool zeros)
{
    const int64_t rows = COUNT_OF(steep_rows);
    Matrix m = {.spec = {.fmt = fmt,
                         .act_fmt = act,
                         .scale_fmt = FMT_F32,
                         .n = rows,
                         .k = 4 * block,
                         .parts = 1,
                         .mainloop = true,
                         .has_zero = zeros,
                         .block_rows = 1,
                         .block_cols = block,
                         .layout = layout}};
    if (!cuda_pack_plan(&m.spec, &m.packed)) {
        fail(&m, "no plan", 0);
        return;
    }
    matrix_fill(&m);
    for (int pass = 0; pass < 2; pass++) { /* what is packed; then what must lie there */
        for (int64_t i = 0; i < 4 * rows; i++) {
            m.scale[i] = pass ? steep_rows[i / 4].packed[i % 4] : steep_rows[i / 4].scale[i % 4];
            fill_block(&m, i / 4, i % 4,
                       pass ? steep_rows[i / 4].becomes[i % 4] : steep_rows[i / 4].codes[i % 4]);
        }
        CudaParams params = {.scale = m.scale, .zero = m.zero};
        if (!pass)
            cuda_pack(&m.spec, m.codes, m.pitch, &params, m.dst);
    }
    check_codes(&m);
    check_params(&m);
    free(m.codes);
    free(m.dst);
    free(m.scale);
    free(m.table);
    free(m.zero);
}

static void check_all_steep(void)
{
    static const int64_t blocks[] = {32, 64, 128, 256};
    for (size_t i = 0; i < COUNT_OF(blocks); i++)
        for (int layout = 0; layout < 2; layout++) {
            CudaLayout in = layout ? CUDA_FRAGMENTS : CUDA_RECORDS;
            check_steep(FMT_I4, FMT_BF16, in, blocks[i], false);
            check_steep(FMT_U4, FMT_BF16, in, blocks[i], true);
            check_steep(FMT_U8, FMT_F16, in, blocks[i], true);
            check_steep(FMT_NF4, FMT_F16, in, blocks[i], false);
            check_steep(FMT_E4M3, FMT_BF16, in, blocks[i], false);
        }
}

/* Fragments hold what they may, and nothing else. */
static int check_held(int num)
{
    int refused = 0;
    for (int i = 0; i < num; i++) {
        CudaPackSpec s = random_spec();
        CudaPacked packed;
        s.layout = CUDA_FRAGMENTS;
        bool fits = fits_fragments(&s);
        refused += !fits;
        if (cuda_pack_plan(&s, &packed) != fits)
            fail(&(Matrix){.spec = s}, fits ? "refused" : "not refused", s.block_cols);
    }
    return refused;
}

int main(int argc, char **argv)
{
    int num = argc > 1 ? atoi(argv[1]) : 1000, params = 0, tiny = 0;
    for (int i = 0; i < num; i++) {
        Matrix m = {.spec = i % 12 == 0   ? random_codebook()
                            : i % 12 == 6 ? random_looked_up()
                            : i % 3 == 1  ? random_fragments()
                                          : random_spec()};
        if (!cuda_pack_plan(&m.spec, &m.packed)) {
            fail(&m, "no plan", 0);
            continue;
        }
        matrix_fill(&m);
        CudaParams params_of = {.scale = m.scale, .zero = m.zero, .table = m.table};
        cuda_pack(&m.spec, m.codes, m.pitch, &params_of, m.dst);
        params += m.packed.scales && m.packed.zeros;
        if (m.spec.layout == CUDA_BITS) {
            check_bits(&m);
        } else {
            m.spec.bits ? check_thin(&m) : check_codes(&m);
            check_params(&m);
            tiny += check_tiny(&m);
            if (m.spec.table)
                check_table(&m);
        }
        free(m.codes);
        free(m.dst);
        free(m.scale);
        free(m.table);
        free(m.zero);
    }
    check_all_steep();
    int refused = check_held(num);
    printf("# %d matrices, %d of them with scales and zero points\n", num, params);
    printf("%sok 1 - every packed element is in its place\n", failures ? "not " : "");
    bool both = params > num / 20 && tiny > 0;
    printf("%sok 2 - both are drawn, and tiny scales\n", both ? "" : "not ");
    bool drawn = refused > num / 20 && refused < num - num / 20;
    printf("%sok 3 - weights that fragments hold, and others\n1..3\n", drawn ? "" : "not ");
    return failures || !both || !drawn;
}
