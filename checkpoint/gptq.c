/* checkpoint/gptq: GPTQ as AutoGPTQ and GPTQModel store it.
 *
 *   X.qweight I32 [K b / 32, N]  column n is the stream of its K codes, b bits each
 *   X.qzeros  I32 [G, N b / 32]  row g is the stream of its N zero points
 *   X.scales  F16 [G, N]
 *   X.g_idx   I32 [K]            the group of each column; k / group without activation order
 *
 * w[n, k] = scales[g, n] (q[k, n] - z[g, n]). A zero point is what is stored plus one (v1, modulo
 * 2^b) or what is stored (v2). Symmetric checkpoints tell which by content: every field is then
 * 2^(b-1) - 1 or 2^(b-1). Labels of the other kind are wrong often enough that only asymmetric
 * ones, where nothing else says it, are trusted.
 *
 * Layout: github.com/AutoGPTQ/AutoGPTQ (qlinear), github.com/ModelCloud/GPTQModel (qlinear,
 * utils/model.py convert_gptq_v1_to_v2_format). */
#include "checkpoint/checkpoint.h"

#include <stdlib.h>
#include <string.h>

enum { BITS, PLUS, SYM }; /* number[]: bits, what is added to a stored zero point, symmetric */

static const char *const methods[] = {"gptq", NULL};

static bool detect(const Checkpoint *c)
{
    return tensors_end_with(c, ".qweight") && tensors_end_with(c, ".g_idx");
}

/* Sizes ---------------------------------------------------------------------------------------- */

/* The bits of a code: from the number of columns that g_idx tells, else as configured. */
static bool settle_bits(Checkpoint *c, StoredModule *m, IoError *err)
{
    const TensorView *codes = m->part[PART_CODES], *order = m->part[PART_ORDER];
    int64_t bits = 0, said = 0;
    bool is_said = config_int(&c->config, "bits", &said);

    if (order && order->rank == 1 && order->dim[0] > 0)
        bits = codes->dim[0] * 32 / order->dim[0];
    if (order && bits && codes->dim[0] * 32 != bits * order->dim[0])
        return stored_fail(err, codes, "%lld words of 32 bits do not hold %lld codes",
                           (long long)codes->dim[0], (long long)order->dim[0]);
    if (bits && is_said && bits != said &&
        !config_find(&c->config, arena_printf(c->arena, "%sdynamic", c->config.prefix)))
        return stored_fail(err, codes, "holds codes of %lld bits, but %s says bits = %lld",
                           (long long)bits, c->config.file, (long long)said);
    bits = bits ? bits : said;
    if (!bits)
        return stored_fail(err, codes, "nothing says how many bits a code has");
    if (bits != 2 && bits != 3 && bits != 4 && bits != 8)
        return io_fail(err, E_CHECKPOINT_KIND,
                       "%s: codes of %lld bits are not read; 2, 3, 4 and 8 are", m->name,
                       (long long)bits);
    m->number[BITS] = bits;
    m->bits = (int)bits;
    m->cols = codes->dim[0] * 32 / bits;
    return codes->dim[0] * 32 == m->cols * bits ||
           stored_fail(err, codes, "%lld words do not end with a whole code of %lld bits",
                       (long long)codes->dim[0], (long long)bits);
}

/* Columns of one group: as configured where that fits the count of groups, else by g_idx. */
static bool settle_group(Checkpoint *c, StoredModule *m, int64_t groups, IoError *err)
{
    int64_t size = 0;

    if (!config_int(&c->config, "group_size", &size))
        size = m->cols % groups == 0 ? m->cols / groups : 0;
    if (size == -1)
        size = m->cols;
    if (size < 1 || (m->cols + size - 1) / size != groups)
        return stored_fail(err, m->part[PART_SCALE],
                           "has %lld groups, but groups of %lld columns would be %lld",
                           (long long)groups, (long long)size,
                           (long long)(size > 0 ? (m->cols + size - 1) / size : 0));
    m->scheme.block[0] = 1;
    m->scheme.block[1] = size >= m->cols ? 0 : size;
    return true;
}

/* Zero points ---------------------------------------------------------------------------------- */

static uint32_t stored_zero(const StoredModule *m, int64_t group, int64_t row)
{
    const TensorView *zeros = m->part[PART_ZERO];
    const uint32_t *word = (const uint32_t *)zeros->data + group * zeros->dim[1];

    return stream_code(word, 1, (uint64_t)(row * m->number[BITS]), (int)m->number[BITS]);
}

/* Symmetric: are the first and the last group all v1, or all v2? Reading checks every field. */
static bool symmetric_plus(Checkpoint *c, StoredModule *m, int64_t groups, IoError *err)
{
    uint32_t middle = 1u << (m->number[BITS] - 1);
    uint32_t first = stored_zero(m, 0, 0);

    if (first != middle && first != middle - 1)
        return stored_fail(err, m->part[PART_ZERO],
                           "%s says sym, but a zero point is stored as %u, neither %u nor %u",
                           c->config.file, first, middle - 1, middle);
    for (int64_t n = 0; n < m->rows; n++)
        if (stored_zero(m, 0, n) != first || stored_zero(m, groups - 1, n) != first)
            return stored_fail(err, m->part[PART_ZERO],
                               "the zero points of a symmetric weight differ: %u, but that of row "
                               "%lld is another",
                               first, (long long)n);
    m->number[PLUS] = first == middle - 1;
    return true;
}

static bool settle_zeros(Checkpoint *c, StoredModule *m, int64_t groups, IoError *err)
{
    const char *label = config_text(&c->config, "checkpoint_format");
    bool says_v2 = label && !strcmp(label, "gptq_v2");

    if (label && strcmp(label, "gptq") && strcmp(label, "gptq_v2"))
        return io_fail(err, E_CHECKPOINT_KIND,
                       "%s: checkpoint_format '%.60s' is not read; 'gptq' and 'gptq_v2' are",
                       c->config.file, label);
    m->number[SYM] = config_bool(&c->config, "sym", false);
    m->number[PLUS] = !says_v2;
    if (m->number[SYM] && !symmetric_plus(c, m, groups, err))
        return false;
    m->layout = m->number[PLUS] ? "gptq v1" : "gptq v2";
    if (m->number[SYM])
        stored_note(c, m, "zero points are stored as %u throughout: %s by content",
                    (1u << (m->number[BITS] - 1)) - (uint32_t)m->number[PLUS], m->layout);
    else
        stored_note(c, m, "zero points are %s: %s",
                    m->number[PLUS] ? "stored less one" : "stored as they are",
                    label ? "checkpoint_format says so" : "nothing says otherwise");
    if (m->number[SYM] && label && says_v2 == (m->number[PLUS] != 0))
        stored_doubt(c, m, "checkpoint_format says '%s', but the zero points are those of %s",
                     label, m->layout);
    return true;
}

/* Modules -------------------------------------------------------------------------------------- */

static bool check_sizes(StoredModule *m, int64_t groups, IoError *err)
{
    int64_t zeros[2] = {groups, m->rows * m->number[BITS] / 32}, scales[2] = {groups, m->rows};

    if (m->rows * m->number[BITS] % 32)
        return stored_fail(err, m->part[PART_ZERO],
                           "%lld zero points of %lld bits do not fill whole words",
                           (long long)m->rows, (long long)m->number[BITS]);
    return view_is(err, m->part[PART_ZERO], "I32 U32", 2, zeros) &&
           view_is(err, m->part[PART_SCALE], "F16 BF16 F32", 2, scales);
}

static bool add_module(Checkpoint *c, const TensorView *codes, const char *name, IoError *err)
{
    StoredModule *m = stored_add(c, name, "gptq");

    stored_part(c, m, PART_CODES, ".qweight");
    stored_part(c, m, PART_ORDER, ".g_idx");
    if (!stored_part(c, m, PART_ZERO, ".qzeros") || !stored_part(c, m, PART_SCALE, ".scales"))
        return stored_fail(err, codes, "the module has no %s",
                           m->part[PART_ZERO] ? "scales" : "qzeros");
    if (codes->rank != 2 || strcmp(codes->dtype, "I32"))
        return stored_fail(err, codes, "is not a matrix of I32");
    if (m->part[PART_SCALE]->rank != 2 || !codes->elements || !m->part[PART_SCALE]->elements)
        return stored_fail(err, m->part[PART_SCALE], "is not a matrix of scales");
    m->rows = codes->dim[1];
    int64_t groups = m->part[PART_SCALE]->dim[0];
    if (!settle_bits(c, m, err) || !settle_group(c, m, groups, err) ||
        !check_sizes(m, groups, err) || !settle_zeros(c, m, groups, err))
        return false;
    m->scheme.scale_fmt = m->part[PART_SCALE]->fmt;
    m->scheme.zero = m->number[SYM] ? ZERO_NONE : ZERO_INT;
    m->scheme.fmt = format_of_bits((int)m->number[BITS], m->number[SYM] != 0);
    return !m->part[PART_ORDER] || order_settle(c, m, groups, err);
}

static bool modules(Checkpoint *c, IoError *err)
{
    return modules_named(c, ".qweight", add_module, err);
}

/* Reading -------------------------------------------------------------------------------------- */

/* What a symmetric code loses to become signed. */
static uint32_t signed_offset(const StoredModule *m)
{
    return m->number[SYM] ? 1u << (m->number[BITS] - 1) : 0;
}

#define TURN_ROWS  32
#define TURN_WORDS 192 /* of a row: they end with a whole code, and with a whole byte of ours */

/* A row is written while the lines of the next but one are fetched. */
static void open_rows(uint32_t (*turned)[TURN_WORDS], int64_t rows, int bits, uint32_t less,
                      uint8_t *dst, uint64_t pitch, int64_t num)
{
    uint64_t bytes = (uint64_t)(num + 1) / 2; /* codes of 8 bits are whole bytes of words */

    for (int64_t r = 0; r < rows; r++) {
        if (r + 2 < rows)
            lines_ask_written(dst + (uint64_t)(r + 2) * pitch, bytes);
        stream_row(turned[r], bits, less, dst + (uint64_t)r * pitch, num);
    }
}

/* Streams down the columns become rows, which are opened a piece at a time. */
static void read_streams(const StoredModule *m, QTensor *q)
{
    const uint32_t *word = m->part[PART_CODES]->data;
    int bits = (int)m->number[BITS];
    int64_t words = m->part[PART_CODES]->dim[0], piece = TURN_WORDS * 32 / bits;
    uint32_t turned[TURN_ROWS][TURN_WORDS];

    for (int64_t first = 0; first < m->rows; first += TURN_ROWS) {
        int64_t rows = m->rows - first < TURN_ROWS ? m->rows - first : TURN_ROWS;
        for (int64_t w = 0, k = 0; w < words; w += TURN_WORDS, k += piece) {
            int64_t num = words - w < TURN_WORDS ? words - w : TURN_WORDS;
            words_turn_near(word + w * m->rows + first, m->rows, (int)num, (int)rows, words - w,
                            turned[0], TURN_WORDS);
            open_rows(turned, rows, bits, signed_offset(m),
                      q->codes + (uint64_t)first * q->row_bytes + k / 2, q->row_bytes,
                      m->cols - k < piece ? m->cols - k : piece);
        }
    }
}

static void read_codes(const StoredModule *m, QTensor *q)
{
    const uint32_t *word = m->part[PART_CODES]->data;
    int bits = (int)m->number[BITS];
    uint32_t offset = signed_offset(m);

    if ((bits == 4 || bits == 8) && !m->order) {
        uint32_t flip = !offset ? 0 : bits == 4 ? 0x88888888u : 0x80808080u;
        words_turn(word, m->rows, m->part[PART_CODES]->dim[0], m->rows, flip, q->codes,
                   q->row_bytes);
        return;
    }
    if (!m->order) {
        read_streams(m, q);
        return;
    }
    memset(q->codes, 0, q->codes_bytes);
    for (int64_t first = 0; first < m->rows; first += 32) { /* so many rows stay in the cache */
        int64_t end = first + 32 < m->rows ? first + 32 : m->rows;
        for (int64_t k = 0; k < m->cols; k++) {
            uint64_t at = (uint64_t)m->order[k] * (uint64_t)bits;
            for (int64_t n = first; n < end; n++)
                qtensor_put(q, n, k, stream_code(word + n, m->rows, at, bits) - offset);
        }
    }
}

static bool read_zeros(const StoredModule *m, QTensor *q, IoError *err)
{
    uint32_t mask = (1u << m->number[BITS]) - 1, middle = 1u << (m->number[BITS] - 1);

    for (int64_t g = 0; g < q->col_blocks; g++) {
        for (int64_t n = 0; n < m->rows; n++) {
            uint32_t zero = (stored_zero(m, g, n) + (uint32_t)m->number[PLUS]) & mask;
            if (q->zero)
                q->zero[n * q->col_blocks + g] = (int32_t)zero;
            else if (zero != middle)
                return stored_fail(
                    err, m->part[PART_ZERO],
                    "group %lld of row %lld has the zero point %u, but the weight is "
                    "symmetric, with %u",
                    (long long)g, (long long)n, zero, middle);
        }
    }
    return true;
}

static bool read(const StoredModule *m, QTensor *q, IoError *err)
{
    read_codes(m, q);
    return read_zeros(m, q, err) && scales_read(m->part[PART_SCALE], true, q, err);
}

const CheckpointReader reader_gptq = {
    .name = "gptq",
    .describe = "GPTQ of AutoGPTQ and GPTQModel, v1 and v2",
    .methods = methods,
    .detect = detect,
    .modules = modules,
    .read = read,
    .sets_all = true,
};
