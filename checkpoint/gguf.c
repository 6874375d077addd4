/* checkpoint/gguf: tensors of GGUF files whose type is a block of codes.
 *
 * A file says the type of each tensor, and io/ggml.c takes the blocks apart. Codes and scales go
 * into our schemes as they are: what is d q becomes a symmetric integer with groups, what is d q +
 * m an unsigned one with a float a group. Super-blocks have scales that are products of a half and
 * an integer of at most 8 bits; f32 holds them exactly. The sixteen values of IQ4_NL and IQ4_XS are
 * integers of 8 bits and stored as these. Types of 5 and 6 bits are kept in 8, which products
 * read ten times as fast as streams of bits. NVFP4's second scale is a tensor of its own, X.scale.
 *
 * Layout: github.com/ggml-org/ggml (src/ggml-common.h, src/ggml-quants.c). */
#include "checkpoint/checkpoint.h"

#include <string.h>

static const char *const methods[] = {"gguf", NULL};

static const struct Kind {
    const char *name;
    FormatId fmt, scale_fmt;
    int bits; /* 0: all of fmt's */
} kinds[] = {
    {"Q4_0", FMT_I4, FMT_F16, 0},       {"Q4_1", FMT_U4, FMT_F16, 0},
    {"Q5_0", FMT_I8, FMT_F16, 5},       {"Q5_1", FMT_U8, FMT_F16, 5},
    {"Q8_0", FMT_I8, FMT_F16, 0},       {"Q4_K", FMT_U4, FMT_F32, 0},
    {"Q5_K", FMT_U8, FMT_F32, 5},       {"Q6_K", FMT_I8, FMT_F32, 6},
    {"Q8_K", FMT_I8, FMT_F32, 0},       {"MXFP4", FMT_E2M1, FMT_E8M0, 0},
    {"Q2_K", FMT_U2, FMT_F32, 0},       {"Q3_K", FMT_I3, FMT_F32, 0},
    {"TQ1_0", FMT_TERNARY, FMT_F16, 0}, {"TQ2_0", FMT_TERNARY, FMT_F16, 0},
    {"IQ4_NL", FMT_I8, FMT_F16, 0},     {"IQ4_XS", FMT_I8, FMT_F32, 0},
    {"NVFP4", FMT_E2M1, FMT_E4M3, 0},
};

static const GgmlInfo *blocks_of(const TensorView *view)
{
    const GgmlInfo *info = view->fmt == FMT_NONE ? ggml_by_name(view->dtype) : NULL;

    return info && info->elements > 1 ? info : NULL;
}

static bool detect(const Checkpoint *c)
{
    for (int i = 0; i < weights_num(c->weights); i++)
        if (blocks_of(weights_at(c->weights, i)))
            return true;
    return false;
}

static void settle(Checkpoint *c, StoredModule *m, const GgmlInfo *info)
{
    const struct Kind *kind = NULL;

    for (size_t i = 0; i < COUNT_OF(kinds); i++)
        if (!strcmp(kinds[i].name, info->name))
            kind = &kinds[i];
    m->said = "the file";
    if (!kind) {
        m->refused = arena_printf(c->arena,
                                  "its type %s is not read; convert the file to one of Q4_0, Q4_1, "
                                  "Q5_0, Q5_1, Q8_0, Q2_K to Q6_K, IQ4_NL, IQ4_XS, MXFP4, NVFP4",
                                  info->name);
        return;
    }
    m->scheme = (Scheme){.fmt = kind->fmt,
                         .scale_fmt = kind->scale_fmt,
                         .zero = info->has_min ? ZERO_INT : ZERO_NONE,
                         .block = {1, info->group}};
    m->offset = info->has_min ? OFFSET_ADDED : OFFSET_NONE;
    m->bits = kind->bits;
    if (module_name(c->arena, m->name, ".attn_q") || module_name(c->arena, m->name, ".attn_k"))
        stored_note(c, m,
                    "of Llama's relatives, its rows lie in the order in which ggml rotates heads");
}

/* One float that multiplies the products with the weight. */
static bool settle_outer(Checkpoint *c, StoredModule *m, IoError *err)
{
    const TensorView *outer = stored_part(c, m, PART_OUTER, ".scale");

    if (stored_part(c, m, PART_INPUT_SCALE, ".input_scale"))
        stored_doubt(c, m, "the activation stays as it is: its own scale is for other kernels");
    if (!outer)
        return true;
    if (outer->fmt != FMT_F32 || outer->elements != 1) {
        m->refused = "its second scale is not one F32: experts and rows of their own are not read";
        return true;
    }
    m->real[0] = *(const float *)outer->data;
    m->scheme.outer = true;
    return (m->real[0] > 0 && isfinite(m->real[0])) ||
           stored_fail(err, outer, "is %g, not a scale", (double)m->real[0]);
}

static bool add_module(Checkpoint *c, const TensorView *view, const GgmlInfo *info, IoError *err)
{
    const char *name = module_name(c->arena, view->name, ".weight");
    StoredModule *m = stored_add(c, name ? name : view->name, info->name);

    m->weight = view->name;
    m->part[PART_CODES] = view;
    map_put(&c->owner, view->name, m);
    if (view->rank < 2 || view->rank > 3 || !view->elements)
        return stored_fail(err, view, "is %s of %s, neither a matrix nor a stack of them",
                           dims_text(c->arena, view), view->dtype);
    m->experts = view->rank == 3 ? view->dim[0] : 0;
    m->cols = view->dim[view->rank - 1];
    m->rows = (int64_t)view->elements / m->cols;
    settle(c, m, info);
    if (m->scheme.scale_fmt == FMT_E4M3 && !settle_outer(c, m, err))
        return false;
    return m->rows <= LIMIT_DIM || stored_fail(err, view, "has more than %d rows", LIMIT_DIM);
}

static bool modules(Checkpoint *c, IoError *err)
{
    for (int i = 0; i < weights_num(c->weights); i++) {
        const TensorView *view = weights_at(c->weights, i);
        const GgmlInfo *info = blocks_of(view);
        if (info && !add_module(c, view, info, err))
            return false;
    }
    return true;
}

/* Reading -------------------------------------------------------------------------------------- */

/* Pairs of codes to bytes: a loop that compilers turn into vectors. */
static void put_nibbles(const int8_t *restrict code, int num, uint8_t *restrict to)
{
    for (int i = 0; i < num / 2; i++) {
        uint16_t two;
        memcpy(&two, code + 2 * i, sizeof two);
        to[i] = (uint8_t)((two & 15) | (two >> 4 & 0xf0));
    }
}

/* A row of blocks to codes and scales; `elements` and `groups` of a block are constants here. */
NUM_FN bool read_blocks(const GgmlInfo *info, int elements, int groups, bool bytes,
                        const uint8_t *at, int64_t cols, uint8_t *to, float *scale)
{
    bool ok = true;

    for (int64_t k = 0; k < cols; k += elements, at += info->bytes, scale += groups) {
        GgmlBlock block;
        if (info->nibbles && !bytes)
            info->nibbles(at, &block, to + k / 2);
        else
            info->unpack(at, &block);
        ok &= !info->has_min || floats_finite(block.min, (uint64_t)groups);
        if (bytes)
            memcpy(to + k, block.code, (size_t)elements);
        else if (!info->nibbles)
            put_nibbles(block.code, elements, to + k / 2);
        memcpy(scale, block.scale, (size_t)groups * sizeof *scale);
    }
    return ok;
}

static bool read_row(const GgmlInfo *info, bool bytes, const uint8_t *at, int64_t cols, uint8_t *to,
                     float *scale)
{
    int elements = info->elements, groups = elements / info->group;

    if (elements == 32) /* of one group */
        return read_blocks(info, 32, 1, bytes, at, cols, to, scale);
    if (elements == 256 && groups == 8)
        return read_blocks(info, 256, 8, bytes, at, cols, to, scale);
    if (elements == 256 && groups == 16)
        return read_blocks(info, 256, 16, bytes, at, cols, to, scale);
    return read_blocks(info, elements, groups, bytes, at, cols, to, scale);
}

static bool read(const StoredModule *m, QTensor *q, IoError *err)
{
    const GgmlInfo *info = ggml_by_name(m->part[PART_CODES]->dtype);
    const uint8_t *at = m->part[PART_CODES]->data;
    int64_t row_bytes = m->cols / info->elements * info->bytes;
    bool bytes = format_held_bits(m->scheme.fmt) == 8;

    if (m->scheme.outer)
        q->outer = m->real[0];
    for (int64_t n = 0; n < m->rows; n++)
        if (!read_row(info, bytes, at + n * row_bytes, m->cols,
                      q->codes + (uint64_t)n * q->row_bytes, q->scale + n * q->col_blocks))
            return stored_fail(err, m->part[PART_CODES],
                               "a group's least value is not a finite number");
    return scales_finite(m->part[PART_CODES], q, err);
}

static bool offsets(const StoredModule *m, float *ret, IoError *err)
{
    const TensorView *view = m->part[PART_CODES];
    const GgmlInfo *info = ggml_by_name(view->dtype);
    const uint8_t *at = view->data;
    size_t groups = (size_t)(info->elements / info->group);

    (void)err;
    for (uint64_t i = 0; i < view->elements; i += (uint64_t)info->elements) {
        GgmlBlock block;
        info->unpack(at, &block);
        memcpy(ret, block.min, groups * sizeof *ret);
        at += info->bytes;
        ret += groups;
    }
    return true;
}

const CheckpointReader reader_gguf = {
    .name = "gguf",
    .describe = "blocks of GGUF files",
    .methods = methods,
    .detect = detect,
    .modules = modules,
    .read = read,
    .sets_all = true,
    .offsets = offsets,
};
