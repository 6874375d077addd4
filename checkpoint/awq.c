/* checkpoint/awq: AWQ as AutoAWQ stores it.
 *
 *   gemm  X.qweight I32 [K, N/8]  a word holds columns 0 2 4 6 1 3 5 7 of eight, low nibble first
 *         X.qzeros  I32 [G, N/8]  likewise;  X.scales F16 [G, N]
 *   gemv  X.qweight I32 [N, K/8]  in order
 *         X.qzeros  I32 [N, Z]    in order; X.scales F16 [N, 8 Z], Z large enough for all groups
 *
 *   gemv_fast  X.qweight I16 [N/4, K], X.scales F16 [Z, N], X.qzeros F16 [Z, N], which is -s z
 *
 * w = (q - z) s, nothing is added to z; gemv_fast: q s + qzeros, which rounds z, as it is stored.
 *
 * Layout: github.com/casper-hansen/AutoAWQ (modules/linear/gemm.py, gemv.py, gemv_fast.py). */
#include "checkpoint/checkpoint.h"
#include "quant/versions.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { GEMV }; /* number[] */

static const char *const methods[] = {"awq", NULL};
enum { LAYOUT_GEMM, LAYOUT_GEMV, LAYOUT_FAST }; /* number[GEMV] */
/* Where column j of eight lies in a word. */
static const int place[8] = {0, 4, 1, 5, 2, 6, 3, 7};

static bool detect(const Checkpoint *c)
{
    for (int i = 0; i < weights_num(c->weights); i++) {
        const TensorView *codes = weights_at(c->weights, i);
        const char *name = module_name(c->arena, codes->name, ".qweight");
        const TensorView *scale =
            name ? weights_find(c->weights, arena_printf(c->arena, "%s.scales", name)) : NULL;
        if (scale && codes->rank == 2 && scale->rank == 2)
            return codes->dim[1] * 8 == scale->dim[1] || codes->dim[0] == scale->dim[0];
    }
    return false;
}

static bool is_version(const Checkpoint *c, const char *version)
{
    const char *said = config_text(&c->config, "version");

    return said && !strcasecmp(said, version);
}

/* A number that has an old name, too. */
static bool names_agree(const Checkpoint *c, const char *name, const char *old, IoError *err)
{
    int64_t one, other;

    return !config_int(&c->config, name, &one) || !config_int(&c->config, old, &other) ||
           one == other ||
           io_fail(err, E_CHECKPOINT, "%s: says %s = %lld, but %s = %lld", c->config.file, name,
                   (long long)one, old, (long long)other);
}

static bool version_read(const Checkpoint *c, IoError *err)
{
    static const char *const read[] = {"gemm", "gemv", "gemv_fast"};
    const char *said = config_text(&c->config, "version");
    int64_t bits = 4;

    if (!names_agree(c, "bits", "w_bit", err) || !names_agree(c, "group_size", "q_group_size", err))
        return false;
    if (!config_int(&c->config, "bits", &bits))
        config_int(&c->config, "w_bit", &bits);
    if (bits != 4)
        return io_fail(err, E_CHECKPOINT_KIND, "%s: AWQ of %lld bits is not read; 4 bits are",
                       c->config.file, (long long)bits);
    for (size_t i = 0; said && i < COUNT_OF(read); i++)
        if (is_version(c, read[i]))
            return true;
    return !said || io_fail(err, E_CHECKPOINT_KIND,
                            "%s: AWQ's version '%.60s' is not read, because it is a layout of one "
                            "kernel; export it again as 'gemm'",
                            c->config.file, said);
}

/* Sizes ---------------------------------------------------------------------------------------- */

static bool settle_group(const Checkpoint *c, StoredModule *m, int64_t groups, IoError *err)
{
    int64_t size = 0;

    if (!config_int(&c->config, "group_size", &size) &&
        !config_int(&c->config, "q_group_size", &size))
        size = m->cols % groups == 0 && !m->number[GEMV] ? m->cols / groups : 0;
    if (size == -1)
        size = m->cols;
    int64_t want = size > 0 ? (m->cols + size - 1) / size : 0;
    if (!want || (m->number[GEMV] ? want > groups : want != groups))
        return stored_fail(err, m->part[PART_SCALE],
                           "has %lld groups, but groups of %lld columns of %lld would be %lld",
                           (long long)groups, (long long)size, (long long)m->cols, (long long)want);
    m->scheme.block[1] = size >= m->cols ? 0 : size;
    return true;
}

static bool settle_gemm(Checkpoint *c, StoredModule *m, IoError *err)
{
    const TensorView *codes = m->part[PART_CODES], *scale = m->part[PART_SCALE];

    m->cols = codes->dim[0];
    m->rows = codes->dim[1] * 8;
    int64_t scales[2] = {scale->dim[0], m->rows}, zeros[2] = {scale->dim[0], codes->dim[1]};
    return view_is(err, scale, "F16 BF16 F32", 2, scales) &&
           view_is(err, m->part[PART_ZERO], "I32", 2, zeros) &&
           settle_group(c, m, scale->dim[0], err);
}

static bool settle_gemv(Checkpoint *c, StoredModule *m, IoError *err)
{
    const TensorView *codes = m->part[PART_CODES], *scale = m->part[PART_SCALE];

    m->rows = codes->dim[0];
    m->cols = codes->dim[1] * 8;
    int64_t scales[2] = {m->rows, scale->dim[1]}, zeros[2] = {m->rows, scale->dim[1] / 8};
    return view_is(err, scale, "F16 BF16 F32", 2, scales) &&
           view_is(err, m->part[PART_ZERO], "I32", 2, zeros) &&
           settle_group(c, m, scale->dim[1], err);
}

/* Zero points lie as -s z beside the scales, rounded. */
static bool settle_fast(Checkpoint *c, StoredModule *m, IoError *err)
{
    const TensorView *codes = m->part[PART_CODES], *scale = m->part[PART_SCALE];

    m->rows = codes->dim[0] * 4;
    m->cols = codes->dim[1];
    int64_t grid[2] = {scale->dim[0], m->rows};
    m->number[GEMV] = LAYOUT_FAST;
    m->layout = "awq gemv_fast";
    m->offset = OFFSET_ADDED;
    if (m->cols % 64)
        return stored_fail(err, codes, "has %lld columns, which are no multiple of 64",
                           (long long)m->cols);
    return view_is(err, scale, "F16", 2, grid) &&
           view_is(err, m->part[PART_ZERO], "F16", 2, grid) &&
           settle_group(c, m, scale->dim[0], err);
}

/* Symmetric weights have zero points, too: each is 8. */
static bool is_symmetric(const StoredModule *m)
{
    const TensorView *zero = m->part[PART_ZERO], *scale = m->part[PART_SCALE];
    int64_t groups = m->scheme.block[1] ? (m->cols - 1) / m->scheme.block[1] + 1 : 1;

    for (int64_t i = 0; m->number[GEMV] == LAYOUT_GEMM && i < (int64_t)zero->elements; i++)
        if (((const uint32_t *)zero->data)[i] != 0x88888888)
            return false;
    for (int64_t i = 0; m->number[GEMV] == LAYOUT_GEMV && i < m->rows * groups; i++) {
        const uint32_t *row = (const uint32_t *)zero->data + i / groups * zero->dim[1];
        int64_t g = i % groups;
        if ((row[g / 8] >> (4 * (g % 8)) & 15) != 8)
            return false;
    }
    for (int64_t i = 0; m->number[GEMV] == LAYOUT_FAST && i < groups * m->rows; i++) {
        float pair[2];
        format_to_f32(FMT_F16, (const uint16_t *)zero->data + i, &pair[0], 1);
        format_to_f32(FMT_F16, (const uint16_t *)scale->data + i, &pair[1], 1);
        if (pair[0] != -8 * pair[1])
            return false;
    }
    return true;
}

static bool zeros_agree(const Checkpoint *c, const StoredModule *m, IoError *err)
{
    return config_bool(&c->config, "zero_point", true) || is_symmetric(m) ||
           stored_fail(err, m->part[PART_ZERO],
                       "has zero points other than 8, but %s says zero_point = false",
                       c->config.file);
}

static bool add_module(Checkpoint *c, const TensorView *codes, const char *name, IoError *err)
{
    StoredModule *m = stored_add(c, name, "awq gemm");

    stored_part(c, m, PART_CODES, ".qweight");
    if (!stored_part(c, m, PART_ZERO, ".qzeros") || !stored_part(c, m, PART_SCALE, ".scales"))
        return stored_fail(err, codes, "the module has no %s",
                           m->part[PART_ZERO] ? "scales" : "qzeros");
    const TensorView *scale = m->part[PART_SCALE];
    bool fast = is_version(c, "gemv_fast");
    if (codes->rank != 2 || strcmp(codes->dtype, fast ? "I16" : "I32") || !codes->elements)
        return stored_fail(err, codes, "is not a matrix of %s", fast ? "I16" : "I32");
    if (scale->rank != 2 || !scale->elements)
        return stored_fail(err, scale, "is not a matrix of scales");
    m->scheme = (Scheme){.fmt = FMT_U4, .scale_fmt = scale->fmt, .zero = ZERO_INT, .block = {1, 0}};
    if (fast)
        return settle_fast(c, m, err) && zeros_agree(c, m, err);
    bool like_gemv = codes->dim[0] == scale->dim[0] && codes->dim[1] * 8 != scale->dim[1];
    bool says_gemv = is_version(c, "gemv");
    bool says_gemm = is_version(c, "gemm");
    if (says_gemm ? like_gemv : says_gemv && codes->dim[0] != scale->dim[0])
        return stored_fail(err, codes, "is stored as %s does, but %s says version '%s'",
                           like_gemv ? "gemv" : "gemm", c->config.file,
                           says_gemm ? "gemm" : "gemv");
    m->number[GEMV] = says_gemv || (!says_gemm && like_gemv);
    m->layout = m->number[GEMV] ? "awq gemv" : "awq gemm";
    stored_note(c, m, "zero points are stored as they are");
    return (m->number[GEMV] ? settle_gemv(c, m, err) : settle_gemm(c, m, err)) &&
           zeros_agree(c, m, err);
}

static bool modules(Checkpoint *c, IoError *err)
{
    return version_read(c, err) && modules_named(c, ".qweight", add_module, err);
}

/* Reading -------------------------------------------------------------------------------------- */

#define TILE_WORDS 32  /* of a row: two lines of the cache */
#define TILE_K     256 /* codes of a row of the result: two lines, too */
#define AHEAD      32  /* rows between what is fetched and what is turned */

/* Four words side by side, in what every processor of ours has as one register. */
typedef uint32_t Four __attribute__((vector_size(16)));
typedef uint8_t Bytes __attribute__((vector_size(16)));

NUM_FN void swap_parts(Four *a, Four *b, int shift, uint32_t mask)
{
    Four t = (*a >> shift ^ *b) & mask;

    *b ^= t;
    *a ^= t << shift;
}

/* Nibble i of word j becomes nibble j of word i, in each of four columns. */
NUM_FN void turn_8x8(Four x[8])
{
    for (int i = 0; i < 4; i++)
        swap_parts(&x[i], &x[i + 4], 16, 0x0000FFFF);
    for (int i = 0; i < 8; i += i % 2 ? 3 : 1)
        swap_parts(&x[i], &x[i + 2], 8, 0x00FF00FF);
    for (int i = 0; i < 8; i += 2)
        swap_parts(&x[i], &x[i + 1], 4, 0x0F0F0F0F);
}

/* Lane i of x[j] becomes lane j of x[i]. */
NUM_FN void turn_4x4(Four x[4])
{
    Four a = __builtin_shufflevector(x[0], x[1], 0, 4, 1, 5);
    Four b = __builtin_shufflevector(x[2], x[3], 0, 4, 1, 5);
    Four c = __builtin_shufflevector(x[0], x[1], 2, 6, 3, 7);
    Four d = __builtin_shufflevector(x[2], x[3], 2, 6, 3, 7);

    x[0] = __builtin_shufflevector(a, b, 0, 1, 4, 5);
    x[1] = __builtin_shufflevector(a, b, 2, 3, 6, 7);
    x[2] = __builtin_shufflevector(c, d, 0, 1, 4, 5);
    x[3] = __builtin_shufflevector(c, d, 2, 3, 6, 7);
}

/* Rows of 32 codes, four words, from 32 rows of four words of eight codes: nibble i of word j of
 * eight rows becomes nibble j of word i, then words that follow each other come together. */
NUM_FN void turn_32x32(const uint32_t *restrict src, int64_t stride,
                       uint32_t (*restrict out)[TILE_K / 8])
{
    Four x[4][8];

    for (int e = 0; e < 4; e++) {
        for (int i = 0; i < 8; i++)
            memcpy(&x[e][i], src + (8 * e + i) * stride, sizeof x[e][i]);
        turn_8x8(x[e]);
    }
    for (int j = 0; j < 8; j++) {
        Four row[4] = {x[0][place[j]], x[1][place[j]], x[2][place[j]], x[3][place[j]]};
        turn_4x4(row);
        for (int lane = 0; lane < 4; lane++)
            memcpy(out[8 * lane + j], &row[lane], sizeof row[lane]);
    }
}

/* Of what is not there, zeros. */
NUM_FN void turn_words_body(const uint32_t *src, int64_t stride, int num_words, int num_k,
                            uint32_t (*out)[TILE_K / 8])
{
    uint32_t edge[32][4] = {{0}};

    if (num_k >= 32 && num_words >= 4) {
        turn_32x32(src, stride, out);
        return;
    }
    for (int i = 0; i < 32 && i < num_k; i++)
        for (int j = 0; j < 4 && j < num_words; j++)
            edge[i][j] = src[i * stride + j];
    turn_32x32(edge[0], 4, out);
}
static void turn_words(const uint32_t *src, int64_t stride, int num_words, int num_k,
                       uint32_t (*out)[TILE_K / 8]);
LOOP_VERSIONS(turn_words,
              (const uint32_t *src, int64_t stride, int num_words, int num_k,
               uint32_t (*out)[TILE_K / 8]),
              (src, stride, num_words, num_k, out))

/* num_k rows of num_words words, `left` of which follow in the tensor, through a copy that stays in
 * the first cache. Rows of both sides lie too far apart for a processor to guess the next one, so
 * they are asked for in time. */
static void turn_tile(const uint32_t *src, int64_t stride, int num_words, int num_k, int64_t left,
                      uint8_t *dst, uint64_t pitch)
{
    uint32_t out[TILE_WORDS * 8][TILE_K / 8];
    int asked = 0;

    for (int k = 0; k < num_k; k += 32)
        for (int w = 0; w < num_words; w += 4) {
            int next = k + AHEAD + w; /* four rows at a time: more would wait for each other */
            for (int i = 0; i < 4 && w < 32 && next + i < left; i++)
                lines_ask(src + (next + i) * stride, (uint64_t)num_words * 4);
            int end = 8 * num_words * (k * num_words + 32 * (w + 4)) / (num_k * num_words);
            for (; asked < end && asked < 8 * num_words; asked++)
                lines_ask_written(dst + (uint64_t)asked * pitch, (uint64_t)(num_k + 1) / 2);
            turn_words(src + k * stride + w, stride, num_words - w, num_k - k,
                       (uint32_t(*)[TILE_K / 8]) & out[8 * w][k / 8]);
        }
    for (int r = 0; r < 8 * num_words; r++)
        memcpy(dst + (uint64_t)r * pitch, out[r], (size_t)(num_k + 1) / 2);
}

static void read_gemm(const StoredModule *m, QTensor *q)
{
    const uint32_t *word = m->part[PART_CODES]->data;
    int64_t words = m->rows / 8;

    for (int64_t w = 0; w < words; w += TILE_WORDS) {
        int num_words = words - w < TILE_WORDS ? (int)(words - w) : TILE_WORDS;
        for (int64_t k = 0; k < m->cols; k += TILE_K) {
            int num_k = m->cols - k < TILE_K ? (int)(m->cols - k) : TILE_K;
            turn_tile(word + k * words + w, words, num_words, num_k, m->cols - k,
                      q->codes + (uint64_t)(8 * w) * q->row_bytes + (uint64_t)k / 2, q->row_bytes);
        }
    }
    const uint32_t *zero = m->part[PART_ZERO]->data;
    for (int64_t n = 0; n < m->rows; n++)
        for (int64_t g = 0; g < q->col_blocks; g++)
            q->zero[n * q->col_blocks + g] =
                (int32_t)(zero[g * words + n / 8] >> (4 * place[n % 8]) & 15);
}

static bool read_gemv(const StoredModule *m, QTensor *q, IoError *err)
{
    const TensorView *scale = m->part[PART_SCALE], *zeros = m->part[PART_ZERO];
    int64_t width = scale->dim[1];
    float *row = calloc((size_t)width, sizeof *row);

    if (!row)
        return io_fail(err, E_MEMORY, "%s: memory is exhausted", m->name);
    memcpy(q->codes, m->part[PART_CODES]->data, q->codes_bytes);
    uint64_t bytes = scale->bytes / (uint64_t)m->rows;
    for (int64_t n = 0; n < m->rows; n++) {
        const uint32_t *zero = (const uint32_t *)zeros->data + n * zeros->dim[1];
        format_to_f32(scale->fmt, (const uint8_t *)scale->data + (uint64_t)n * bytes, row,
                      (uint64_t)width);
        for (int64_t g = 0; g < q->col_blocks; g++) {
            q->scale[n * q->col_blocks + g] = row[g];
            q->zero[n * q->col_blocks + g] = (int32_t)(zero[g / 8] >> (4 * (g % 8)) & 15);
        }
    }
    free(row);
    return scales_finite(scale, q, err);
}

/* Eight words of four codes each: nibble i of word t becomes nibble 8 i + t. */
NUM_FN void fast_row_body(const uint16_t *word, uint8_t *dst, int64_t cols)
{
    for (int64_t k = 0; k < cols; k += 32, dst += 16) {
        Four pair, out = {0};
        memcpy(&pair, word + k / 64 * 64 + k / 32 % 2 * 8, sizeof pair);
        for (int i = 0; i < 4; i++) {
            Four two = pair >> 4 * i & 0x000F000F;
            out |= ((two | two >> 12) & 0xFF) << 8 * i;
        }
        Bytes byte = (Bytes)out;
        byte = __builtin_shufflevector(byte, byte, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11,
                                       15);
        memcpy(dst, &byte, cols - k < 32 ? (size_t)(cols - k + 1) / 2 : sizeof byte);
    }
}
static void fast_row(const uint16_t *word, uint8_t *dst, int64_t cols);
LOOP_VERSIONS(fast_row, (const uint16_t *word, uint8_t *dst, int64_t cols), (word, dst, cols))

/* Of [groups, rows], a few rows at a time, to [rows, groups]. */
static void fast_floats(const TensorView *view, int64_t rows, int64_t groups, float *ret)
{
    float part[64];

    for (int64_t n = 0; n < rows; n += 64) {
        int64_t num = rows - n < 64 ? rows - n : 64;
        for (int64_t g = 0; g < groups; g++) {
            format_to_f32(FMT_F16, (const uint16_t *)view->data + g * rows + n, part,
                          (uint64_t)num);
            for (int64_t i = 0; i < num; i++)
                ret[(n + i) * groups + g] = part[i];
        }
    }
}

/* k = 64 a + 32 b + 8 i + 2 j + l of row 4 p + r: nibble i of word 64 a + 16 r + 8 b + 2 j + l of
 * packed row p. Scales and offsets are [G, N], with rows to spare. */
static bool read_fast(const StoredModule *m, QTensor *q, IoError *err)
{
    const TensorView *codes = m->part[PART_CODES], *scale = m->part[PART_SCALE];

    for (int64_t n = 0; n < m->rows; n++)
        fast_row((const uint16_t *)codes->data + n / 4 * codes->dim[1] + 16 * (n % 4),
                 q->codes + (uint64_t)n * q->row_bytes, m->cols);
    fast_floats(scale, m->rows, q->col_blocks, q->scale);
    return scales_finite(scale, q, err);
}

static bool offsets(const StoredModule *m, float *ret, IoError *err)
{
    (void)err;
    fast_floats(m->part[PART_ZERO], m->rows, scheme_col_blocks(&m->scheme, m->cols), ret);
    return true;
}

static bool read(const StoredModule *m, QTensor *q, IoError *err)
{
    if (m->number[GEMV] == LAYOUT_FAST)
        return read_fast(m, q, err);
    if (m->number[GEMV])
        return read_gemv(m, q, err);
    read_gemm(m, q);
    return scales_read(m->part[PART_SCALE], true, q, err);
}

const CheckpointReader reader_awq = {
    .name = "awq",
    .describe = "AWQ of AutoAWQ: gemm, gemv, gemv_fast",
    .methods = methods,
    .detect = detect,
    .modules = modules,
    .read = read,
    .sets_all = true,
    .offsets = offsets,
};
