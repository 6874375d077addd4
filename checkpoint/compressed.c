/* checkpoint/compressed: compressed-tensors, as llm-compressor writes it.
 *
 *   pack-quantized   X.weight_packed I32 [N, words], X.weight_shape I64 [2], X.weight_scale [N, G],
 *                    X.weight_zero_point I32 [words of N, G] packed along its rows, X.weight_g_idx
 *   int, float, naive-quantized  X.weight I8 or F8_E4M3 [N, K], X.weight_scale [1], [N, 1], [N, G]
 *                    or blocks, X.weight_zero_point I8 of the same shape
 *   nvfp4-pack-quantized   X.weight_packed U8 [N, K/2], X.weight_scale F8_E4M3 [N, K/16],
 *                    X.weight_global_scale F32 [1], which divides
 *   mxfp4-, mxfp8-   X.weight_packed U8 or X.weight F8_E4M3, X.weight_scale U8 [N, K/32]
 *
 * w = (q - z) s. Packed codes are q + 2^(b-1). Widths that do not divide 32 are packed in two ways:
 * floor(32 / b) codes a word until the middle of 2026, a dense stream of bits since; the number of
 * words tells which.
 *
 * Layout: github.com/vllm-project/compressed-tensors (compressors, quantization/lifecycle). */
#include "checkpoint/groups.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BITS, PER_WORD, DIVIDES }; /* number[]; PER_WORD 0: a dense stream */

static const char *const methods[] = {"compressed-tensors", NULL};

static bool detect(const Checkpoint *c)
{
    return tensors_end_with(c, ".weight_packed");
}

/* Words ---------------------------------------------------------------------------------------- */

static int64_t ceil_div(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

/* How num codes lie in so many words. */
static bool settle_words(StoredModule *m, const TensorView *view, int64_t num, int64_t words,
                         IoError *err)
{
    int64_t bits = m->number[BITS], dense = ceil_div(num * bits, 32);
    int64_t spaced = ceil_div(num, 32 / bits);

    if (words != dense && words != spaced)
        return stored_fail(err, view, "has %lld words for %lld codes of %lld bits, which need %lld",
                           (long long)words, (long long)num, (long long)bits, (long long)dense);
    if (32 % bits && dense == spaced) {
        m->refused = "its codes could lie densely or spaced: both would take as many words";
        return true;
    }
    m->number[PER_WORD] = words == dense ? 0 : 32 / bits;
    return true;
}

/* Code i of words that are `stride` apart. */
static uint32_t code_at(const StoredModule *m, const uint32_t *word, int64_t stride, int64_t i)
{
    int bits = (int)m->number[BITS];
    int64_t per = m->number[PER_WORD];

    if (!per)
        return stream_code(word, stride, (uint64_t)i * (uint64_t)bits, bits);
    return word[i / per * stride] >> (i % per * bits) & ((1u << bits) - 1);
}

/* The stored zero point i, less 2^(b-1) where it is packed. */
static int32_t zero_at(const StoredModule *m, int64_t groups, int64_t i)
{
    const TensorView *zero = m->part[PART_ZERO];

    if (zero->fmt == FMT_I8)
        return ((const int8_t *)zero->data)[i];
    const uint32_t *word = (const uint32_t *)zero->data + i % groups;
    return (int32_t)code_at(m, word, groups, i / groups) - (1 << (m->number[BITS] - 1));
}

/* Sizes ---------------------------------------------------------------------------------------- */

static bool settle_blocks(Checkpoint *c, StoredModule *m, const QuantArgs *args, IoError *err)
{
    const TensorView *scale = m->part[PART_SCALE];
    int64_t *block = m->scheme.block, dim[2] = {m->rows, 1};
    const char *kind = args->strategy;

    if (scale->fmt == FMT_U8 && format_info[m->scheme.fmt].family == FAMILY_INT)
        return stored_fail(err, scale, "is stored as U8, which holds no scales of integers");
    if (!strcmp(kind, "tensor")) {
        block[0] = block[1] = 0;
        if (scale->elements == 1)
            return true;
        return stored_fail(err, scale, "is %s, but strategy 'tensor' has one scale",
                           dims_text(c->arena, scale));
    }
    block[0] = 1;
    block[1] = 0;
    if (!strcmp(kind, "token") || !strcmp(kind, "attn_head"))
        return stored_fail(err, scale, "%s says strategy '%s', which is none of weights",
                           c->config.file, kind);
    if (!strcmp(kind, "block")) {
        block[0] = args->block[0];
        block[1] = args->block[1];
    } else if (strcmp(kind, "channel")) { /* group, tensor_group */
        block[1] = args->group;
    }
    if (block[0] < 1 || block[1] < 0 || (strcmp(kind, "channel") && block[1] < 1))
        return stored_fail(err, scale, "%s says strategy '%.30s' without the size of its blocks",
                           c->config.file, kind);
    dim[0] = ceil_div(m->rows, block[0]);
    dim[1] = block[1] ? ceil_div(m->cols, block[1]) : 1;
    if (block[1] >= m->cols && block[0] == 1)
        block[1] = 0;
    if (scale->rank == 1 && dim[1] == 1)
        return view_is(err, scale, "BF16 F16 F32 F8_E4M3 F8_E8M0 U8", 1, dim);
    return view_is(err, scale, "BF16 F16 F32 F8_E4M3 F8_E8M0 U8", 2, dim);
}

/* Zero points of channels and groups are packed as codes are, down their columns; one for the whole
 * tensor is a byte. */
static bool settle_packed_zero(StoredModule *m, IoError *err)
{
    const TensorView *zero = m->part[PART_ZERO], *scale = m->part[PART_SCALE];
    int64_t dim[2] = {0, scale->rank > 1 ? scale->dim[1] : 1};
    StoredModule words = *m;

    if (!settle_words(&words, zero, m->rows, zero->rank == 2 ? zero->dim[0] : -1, err))
        return false;
    m->number[PER_WORD] |= words.number[PER_WORD];
    dim[0] = zero->dim[0];
    return view_is(err, zero, "I32", 2, dim);
}

/* One for the whole tensor, which may be wider than its codes. */
static bool settle_single_zero(StoredModule *m, const QuantArgs *args, IoError *err)
{
    const TensorView *zero = m->part[PART_ZERO];
    int limit = 1 << (args->bits - 1);

    if (zero->fmt != FMT_I8 || zero->elements != 1)
        return stored_fail(err, zero, "is %s of %llu elements, but strategy 'tensor' has one I8",
                           zero->dtype, (unsigned long long)zero->elements);
    int value = *(const int8_t *)zero->data;
    return (value >= -limit && value < limit) ||
           stored_fail(err, zero, "is %d, which is no code of %lld bits", value,
                       (long long)args->bits);
}

static bool all_zero(const StoredModule *m, bool packed)
{
    const TensorView *zero = m->part[PART_ZERO], *scale = m->part[PART_SCALE];
    int64_t groups = scale->rank > 1 ? scale->dim[1] : 1, num = (int64_t)scale->elements;

    for (int64_t i = 0; packed && i < num; i++)
        if (zero_at(m, groups, i))
            return false;
    for (uint64_t i = 0; !packed && i < zero->bytes; i++)
        if (((const uint8_t *)zero->data)[i])
            return false;
    return true;
}

/* Old versions stored the zero points of symmetric weights, too: all 0. */
static bool settle_no_zero(Checkpoint *c, StoredModule *m, IoError *err)
{
    const TensorView *zero = m->part[PART_ZERO], *scale = m->part[PART_SCALE];
    bool is_float = format_info[m->scheme.fmt].family != FAMILY_INT;
    bool packed = m->number[BITS] && m->scheme.block[0] && !strcmp(zero->dtype, "I32");

    if (packed && !settle_packed_zero(m, err))
        return false;
    if (!packed && zero->elements != scale->elements)
        return stored_fail(err, zero, "has %llu elements, but there are %llu scales",
                           (unsigned long long)zero->elements, (unsigned long long)scale->elements);
    if (!all_zero(m, packed))
        return stored_fail(err, zero, "is not 0 everywhere, but %s%s",
                           is_float ? "the weights are floats" : config_name(c),
                           is_float ? "" : " says that the weights are symmetric");
    stored_note(c, m, "zero points are stored, and all 0");
    return true;
}

static bool settle_zero(Checkpoint *c, StoredModule *m, const QuantArgs *args, bool packed,
                        IoError *err)
{
    const TensorView *zero = m->part[PART_ZERO], *scale = m->part[PART_SCALE];

    if (!zero && !args->symmetric)
        return module_fail(err, m, "the weights are asymmetric, but there is no weight_zero_point");
    if (!zero)
        return true;
    if (args->symmetric || format_info[m->scheme.fmt].family != FAMILY_INT)
        return settle_no_zero(c, m, err);
    m->scheme.zero = ZERO_INT;
    if (!m->scheme.block[0])
        return settle_single_zero(m, args, err);
    return packed ? settle_packed_zero(m, err) : view_is(err, zero, "I8", scale->rank, scale->dim);
}

static bool settle_packed(Checkpoint *c, StoredModule *m, const QuantArgs *args, IoError *err)
{
    const TensorView *codes = m->part[PART_CODES], *shape = m->part[PART_EXTRA];
    const int64_t two = 2;

    if (!shape)
        return module_fail(err, m, "there is no weight_shape");
    if (!view_is(err, shape, "I64", 1, &two))
        return false;
    m->rows = ((const int64_t *)shape->data)[0];
    m->cols = ((const int64_t *)shape->data)[1];
    if (m->rows < 1 || m->cols < 1 || m->rows > LIMIT_DIM || m->cols > LIMIT_DIM ||
        codes->dim[0] != m->rows)
        return stored_fail(err, codes, "is %s of %s, but weight_shape says [%lld, %lld]",
                           dims_text(c->arena, codes), codes->dtype, (long long)m->rows,
                           (long long)m->cols);
    if (args->bits < 1 || args->bits > 8 || strcmp(args->type, "int"))
        return stored_fail(err, codes, "holds integers, but %s says %lld bits of %.30s",
                           c->config.file, (long long)args->bits, args->type);
    m->number[BITS] = args->bits;
    m->bits = (int)args->bits;
    m->scheme.fmt = format_of_bits((int)args->bits, true);
    m->scheme.scale_fmt = m->part[PART_SCALE]->fmt;
    return settle_words(m, codes, m->cols, codes->dim[1], err) && settle_blocks(c, m, args, err) &&
           settle_zero(c, m, args, true, err);
}

static bool settle_plain(Checkpoint *c, StoredModule *m, const QuantArgs *args, IoError *err)
{
    const TensorView *codes = m->part[PART_CODES];
    bool is_int = codes->fmt == FMT_I8;

    if (args->bits != 8 || strcmp(args->type, is_int ? "int" : "float"))
        return stored_fail(err, codes, "is stored as %s, but %s says %lld bits of %.30s",
                           codes->dtype, c->config.file, (long long)args->bits, args->type);
    m->rows = codes->dim[0];
    m->cols = codes->dim[1];
    m->scheme.fmt = codes->fmt;
    m->scheme.scale_fmt = m->part[PART_SCALE]->fmt;
    if (m->scheme.scale_fmt == FMT_U8)
        m->scheme.scale_fmt = FMT_E8M0;
    return settle_blocks(c, m, args, err) && settle_zero(c, m, args, false, err);
}

/* The significands of e4m3 are those of 8 .. 15, so that few divisors in a row are none such. */
bool reciprocal_is_exact(float divisor)
{
    float outer = 1 / divisor;

    for (uint32_t code = 1; code < 127; code++) {
        float scale = format_decode(FMT_E4M3, code);
        if (scale * outer != scale / divisor)
            return false;
    }
    return true;
}

static bool settle_nvfp4(Checkpoint *c, StoredModule *m, IoError *err)
{
    const TensorView *outer = m->part[PART_OUTER];
    const int64_t one = 1;

    if (!view_is(err, outer, "F32", 1, &one))
        return false;
    m->real[0] = *(const float *)outer->data;
    if (!(m->real[0] > 0) || !isfinite(m->real[0]))
        return stored_fail(err, outer, "is %g, not a scale", (double)m->real[0]);
    m->number[DIVIDES] = 1;
    m->scheme.outer = reciprocal_is_exact(m->real[0]);
    m->scheme.scale_fmt = m->scheme.outer ? FMT_E4M3 : FMT_F32;
    stored_note(c, m, "the global scale divides: %s",
                m->scheme.outer ? "its reciprocal multiplies exactly"
                                : "block scales are kept as f32, where its reciprocal would round");
    return true;
}

static bool settle_fp4(Checkpoint *c, StoredModule *m, const QuantArgs *args, IoError *err)
{
    const TensorView *codes = m->part[PART_CODES];

    if (args->bits != 4 || strcmp(args->type, "float"))
        return stored_fail(err, codes,
                           "holds bytes of two 4-bit floats, but %s says %lld bits of %.30s",
                           c->config.file, (long long)args->bits, args->type);
    m->rows = codes->dim[0];
    m->cols = codes->dim[1] * 2;
    m->scheme.fmt = FMT_E2M1;
    m->scheme.scale_fmt = m->part[PART_SCALE]->fmt == FMT_U8 ? FMT_E8M0 : m->part[PART_SCALE]->fmt;
    if (!settle_blocks(c, m, args, err))
        return false;
    if (m->scheme.block[1] && m->cols % m->scheme.block[1])
        return stored_fail(err, codes, "has rows of %lld, which blocks of %lld do not fill",
                           (long long)m->cols, (long long)m->scheme.block[1]);
    if (m->scheme.scale_fmt == FMT_E4M3 && !m->part[PART_OUTER])
        return module_fail(err, m, "there is no weight_global_scale beside scales of F8_E4M3");
    m->layout = m->part[PART_OUTER] ? "nvfp4-pack-quantized" : "mxfp4-pack-quantized";
    return settle_zero(c, m, args, false, err) && (!m->part[PART_OUTER] || settle_nvfp4(c, m, err));
}

/* Modules -------------------------------------------------------------------------------------- */

static bool settle(Checkpoint *c, StoredModule *m, IoError *err)
{
    const TensorView *codes = m->part[PART_CODES];
    const char *group;
    QuantArgs args;

    if (!c->config.file)
        return module_fail(err, m, "a compressed-tensors module needs its config.json");
    if (!group_of(c, m->name, &group, err))
        return false;
    if (!args_read(c, group, "weights", &args))
        return io_fail(err, E_CHECKPOINT, "%s: %s says nothing of weights, but %.200s is quantised",
                       c->config.file, group, m->name);
    m->said = arena_printf(c->arena, "%s: %s", config_name(c), group);
    if (!codes->elements || !m->part[PART_SCALE]->elements || codes->rank != 2)
        return stored_fail(err, codes, "is %s, not a matrix", dims_text(c->arena, codes));
    if (strcmp(codes->dtype, "I32") && codes->fmt != FMT_U8 && codes->fmt != FMT_I8 &&
        codes->fmt != FMT_E4M3)
        return stored_fail(err, codes, "is stored as %s, which holds no codes", codes->dtype);
    if (!compressed_format(c, m, group, err))
        return false;
    bool ok = !strcmp(codes->dtype, "I32") ? settle_packed(c, m, &args, err)
              : codes->fmt == FMT_U8       ? settle_fp4(c, m, &args, err)
                                           : settle_plain(c, m, &args, err);
    int64_t groups = m->scheme.block[1] ? ceil_div(m->cols, m->scheme.block[1]) : 1;
    return ok && (!m->part[PART_ORDER] || order_settle(c, m, groups, err)) &&
           compressed_act(c, m, group, err);
}

static bool add_module(Checkpoint *c, const TensorView *codes, const char *name, const char *suffix,
                       IoError *err)
{
    StoredModule *m = stored_add(c, name, "compressed-tensors");

    stored_part(c, m, PART_CODES, suffix);
    stored_part(c, m, PART_ZERO, ".weight_zero_point");
    stored_part(c, m, PART_ORDER, ".weight_g_idx");
    stored_part(c, m, PART_OUTER, ".weight_global_scale");
    stored_part(c, m, PART_EXTRA, ".weight_shape");
    stored_part(c, m, PART_INPUT_SCALE, ".input_scale");
    stored_part(c, m, PART_INPUT_ZERO, ".input_zero_point");
    stored_part(c, m, PART_TABLE, ".input_global_scale");
    if (!stored_part(c, m, PART_SCALE, ".weight_scale"))
        return stored_fail(err, codes, "the module has no weight_scale");
    return settle(c, m, err);
}

static bool modules(Checkpoint *c, IoError *err)
{
    if (!compressed_config(c, err))
        return false;
    for (int i = 0; i < weights_num(c->weights); i++) {
        const TensorView *view = weights_at(c->weights, i);
        const char *name = module_name(c->arena, view->name, ".weight_packed");
        const char *suffix = ".weight_packed";
        if (!name && (view->fmt == FMT_I8 || view->fmt == FMT_E4M3)) {
            suffix = ".weight";
            name = module_name(c->arena, view->name, suffix);
        }
        if (name && !add_module(c, view, name, suffix, err))
            return false;
    }
    return true;
}

/* Reading -------------------------------------------------------------------------------------- */

static void flip_bytes(const uint8_t *restrict src, uint8_t flip, uint8_t *restrict dst,
                       uint64_t num)
{
    for (uint64_t i = 0; i < num; i++)
        dst[i] = src[i] ^ flip;
}

static void read_packed(const StoredModule *m, QTensor *q)
{
    const TensorView *codes = m->part[PART_CODES];
    const uint32_t *word = codes->data;
    uint32_t offset = 1u << (m->number[BITS] - 1);
    bool whole = (m->number[BITS] == 4 || m->number[BITS] == 8) && !m->order;
    bool dense = !m->number[PER_WORD] && !whole && !m->order;
    uint8_t flip = m->number[BITS] == 4 ? 0x88 : 0x80;

    if (!whole && !dense)
        memset(q->codes, 0, q->codes_bytes);
    for (int64_t n = 0; n < m->rows; n++, word += codes->dim[1]) {
        uint8_t *row = q->codes + (uint64_t)n * q->row_bytes;
        const uint8_t *from = (const uint8_t *)word;
        if (whole)
            flip_bytes(from, flip, row, q->row_bytes);
        if (dense)
            stream_row(word, (int)m->number[BITS], offset, row, m->cols);
        for (int64_t k = 0; !whole && !dense && k < m->cols; k++)
            qtensor_put(q, n, k, code_at(m, word, 1, m->order ? m->order[k] : k) - offset);
    }
}

static void read_zeros(const StoredModule *m, QTensor *q)
{
    int64_t cells = q->row_blocks * q->col_blocks, groups = q->col_blocks;

    for (int64_t i = 0; m->part[PART_ZERO] && q->zero && i < cells; i++)
        q->zero[i] = zero_at(m, groups, i);
}

static bool read(const StoredModule *m, QTensor *q, IoError *err)
{
    const TensorView *codes = m->part[PART_CODES];

    if (!strcmp(codes->dtype, "I32"))
        read_packed(m, q);
    else
        memcpy(q->codes, codes->data, q->codes_bytes);
    read_zeros(m, q);
    if (!scales_read(m->part[PART_SCALE], false, q, err))
        return false;
    if (m->scheme.outer)
        q->outer = 1 / m->real[0];
    else if (m->number[DIVIDES])
        for (int64_t i = 0; i < q->row_blocks * q->col_blocks; i++)
            q->scale[i] /= m->real[0];
    return true;
}

const CheckpointReader reader_compressed = {
    .name = "compressed-tensors",
    .describe = "compressed-tensors: packed and plain integers, 8-bit floats, nvfp4, mxfp4, mxfp8",
    .methods = methods,
    .detect = detect,
    .modules = modules,
    .read = read,
    .sets_all = true,
};
