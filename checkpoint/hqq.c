/* checkpoint/hqq: half-quadratic quantisation, as its own package saves it with encoded settings.
 *
 *   X.W_q            U8 or I32: codes [R, C] packed by parts of dimension 0, high bits first: of 4
 *                    bits, byte r holds row r and row r + R/2; 2 bits: quarters, 1 bit: eighths;
 *                    3 bits: ten rows an I32, from bit 27 down
 *   X.scale, X.zero  floats; w = (q - zero) scale, zero is no integer
 *   X.nbits X.group_size X.axis I32 [], X.shape I64 [2], X.packing U8: the letters of "4bit_u8"
 *
 * axis 1: the weight is reshaped to [N K / group, group], a row a group. axis 0: to
 * [group, N K / group], a column a group; where the group divides N, it is every N/group-th weight
 * of a column, so that with those rows side by side groups are blocks of one column.
 *
 * Layout: github.com/mobiusml/hqq (core/quantize.py, core/bitpack.py). */
#include "checkpoint/checkpoint.h"

#include <stdlib.h>
#include <string.h>

#define RUN 4096 /* packed elements that are taken apart at a time */

enum { STEP }; /* number[]: rows of the packed codes */

static const char *const methods[] = {"hqq", NULL};

static bool detect(const Checkpoint *c)
{
    return tensors_end_with(c, ".W_q");
}

/* Settings ------------------------------------------------------------------------------------- */

static bool number_of(Checkpoint *c, StoredModule *m, const char *suffix, int64_t *ret,
                      IoError *err)
{
    const TensorView *view = stored_part(c, m, PART_TABLE, suffix);

    if (!view || view->elements != 1 || strcmp(view->dtype, "I32"))
        return module_fail(err, m, "there is no %s of one I32", suffix + 1);
    *ret = *(const int32_t *)view->data;
    return true;
}

static bool settle_shape(Checkpoint *c, StoredModule *m, IoError *err)
{
    const TensorView *shape = stored_part(c, m, PART_EXTRA, ".shape");
    const int64_t two = 2;
    uint64_t elements;

    if (!shape)
        return module_fail(err, m, "there is no shape");
    if (!view_is(err, shape, "I64", 1, &two))
        return false;
    const int64_t *dim = shape->data;
    if (dim[0] < 1 || dim[1] < 1 || dim[0] > LIMIT_DIM || dim[1] > LIMIT_DIM ||
        !checked_elements(dim, 2, &elements) || elements > LIMIT_ELEMENTS)
        return stored_fail(err, shape, "says [%lld, %lld]", (long long)dim[0], (long long)dim[1]);
    m->rows = dim[0];
    m->cols = dim[1];
    return true;
}

/* How many codes a packed element holds. */
static int64_t per_element(int64_t bits)
{
    return bits == 3 ? 10 : 8 / bits;
}

static bool settle_codes(StoredModule *m, int64_t bits, int64_t group, IoError *err)
{
    const TensorView *codes = m->part[PART_CODES];
    int64_t groups = m->rows * m->cols / group, per = per_element(bits);
    int64_t rows = m->row_step ? group : groups, cols = m->row_step ? groups : group;
    int64_t packed[2] = {(rows + per - 1) / per, cols};

    if (bits != 3 && rows % per)
        return stored_fail(err, codes, "%lld rows of codes do not fill %lld parts", (long long)rows,
                           (long long)per);
    m->number[STEP] = packed[0];
    m->bits = (int)bits;
    return view_is(err, codes, bits == 3 ? "I32" : "U8", 2, packed);
}

static bool settle_group(Checkpoint *c, StoredModule *m, int64_t axis, int64_t *ret, IoError *err)
{
    if (axis != 0 && axis != 1)
        return module_fail(err, m, "axis is %lld", (long long)axis);
    const TensorView *group =
        weights_find(c->weights, arena_printf(c->arena, "%s.group_size", m->name));

    int64_t along = axis ? m->cols : m->rows;
    *ret = along; /* a channel each, where it is not said */
    if (group && !number_of(c, m, ".group_size", ret, err))
        return false;
    if (*ret < 1)
        return module_fail(err, m, "group_size is %lld", (long long)*ret);
    if (along % *ret)
        m->refused = axis ? "its groups run across the ends of rows"
                          : "its groups run across the ends of columns";
    else if (!axis)
        m->row_step = m->rows / *ret;
    return true;
}

static bool settle(Checkpoint *c, StoredModule *m, IoError *err)
{
    const TensorView *scale = m->part[PART_SCALE], *zero = m->part[PART_ZERO];
    int64_t bits = 0, axis = 0, group = 0;

    if (!settle_shape(c, m, err) || !number_of(c, m, ".nbits", &bits, err) ||
        !number_of(c, m, ".axis", &axis, err) || !settle_group(c, m, axis, &group, err))
        return false;
    if (m->refused)
        return true;
    if (bits != 1 && bits != 2 && bits != 3 && bits != 4 && bits != 8)
        return module_fail(err, m, "nbits is %lld", (long long)bits);
    uint64_t cells = (uint64_t)(m->rows * m->cols / group);
    if (!view_is_float(scale) || !view_is_float(zero) || scale->elements != cells ||
        zero->elements != cells)
        return stored_fail(err, scale->elements == cells ? zero : scale,
                           "is %s of %s, but there are %llu groups",
                           dims_text(c->arena, scale->elements == cells ? zero : scale),
                           scale->dtype, (unsigned long long)cells);
    m->scheme = (Scheme){.fmt = format_of_bits((int)bits, false),
                         .scale_fmt = scale->fmt,
                         .zero = ZERO_INT,
                         .block = {1, group == m->cols ? 0 : group}};
    if (m->row_step) {
        m->scheme.block[0] = group;
        m->scheme.block[1] = 1;
        stored_note(c, m, "its groups are %lld weights of a column, %lld rows apart",
                    (long long)group, (long long)m->row_step);
    }
    m->offset = OFFSET_ZERO;
    stored_note(c, m, "zero points are %s, not integers", zero->dtype);
    return settle_codes(m, bits, group, err);
}

static bool add_module(Checkpoint *c, const TensorView *codes, const char *name, IoError *err)
{
    static const char *const settings[] = {
        ".packing",      ".unpack_view_dtype",  ".view_as_float",
        ".quant_scale",  ".quant_zero",         ".compute_dtype",
        ".offload_meta", ".encoded_state_dict", ".stores_quant_config",
        ".channel_wise", ".optimize",           ".round_zero",
    };
    StoredModule *m = stored_add(c, name, "hqq");
    stored_part(c, m, PART_CODES, ".W_q");
    stored_part(c, m, PART_SCALE, ".scale");
    stored_part(c, m, PART_ZERO, ".zero");
    for (size_t s = 0; s < COUNT_OF(settings); s++)
        stored_part(c, m, PART_TABLE2, settings[s]);
    if (!m->part[PART_SCALE] || !m->part[PART_ZERO])
        return stored_fail(err, codes, "the module has no %s",
                           m->part[PART_SCALE] ? "zero" : "scale");
    return settle(c, m, err);
}

static bool modules(Checkpoint *c, IoError *err)
{
    return modules_named(c, ".W_q", add_module, err);
}

/* Reading -------------------------------------------------------------------------------------- */

/* `num` codes of part `part` of the elements from `at` on. */
static void put_codes(const StoredModule *m, int64_t at, int64_t part, uint8_t *dst, int64_t num)
{
    const uint8_t *byte = m->part[PART_CODES]->data;

    if (m->bits == 8)
        memcpy(dst, byte + at, (size_t)num);
    else if (m->bits == 3)
        nibbles_of_words((const uint32_t *)(const void *)byte + at, (int)(27 - 3 * part), dst, num);
    else
        nibbles_of_bytes(byte + at, (int)(m->bits * (per_element(m->bits) - 1 - part)),
                         (1u << m->bits) - 1, dst, num);
}

/* A row of codes: a group of a row of the weight, or one weight of each group. */
static void put_row(const StoredModule *m, QTensor *q, int64_t row, int64_t at, int64_t part)
{
    int64_t width = m->part[PART_CODES]->dim[1], groups = m->cols / width;
    int64_t height = m->scheme.block[0];

    for (int64_t r = 0; r < m->row_step; r++)
        put_codes(m, at + r * m->cols, part, q->codes + (uint64_t)(r * height + row) * q->row_bytes,
                  m->cols);
    for (int64_t i = 0; !m->row_step && i < width; i++) { /* within bytes */
        uint8_t code;
        put_codes(m, at + i, part, &code, 1);
        qtensor_put(q, row / groups, row % groups * width + i, code);
    }
}

/* Groups that end on whole bytes, of rows that do: the codes of a part are one run. What is fetched
 * stays near until all parts have taken theirs. */
static void read_runs(const StoredModule *m, QTensor *q)
{
    int64_t num = m->number[STEP] * m->part[PART_CODES]->dim[1], all = m->rows * m->cols;

    for (int64_t at = 0; at < num; at += RUN)
        for (int64_t part = 0, first = at; first < all; part++, first += num) {
            int64_t left = num - at < all - first ? num - at : all - first;
            put_codes(m, at, part, q->codes + format_row_bytes(m->scheme.fmt, (uint64_t)first),
                      left < RUN ? left : RUN);
        }
}

/* Elements in their order, so that each is fetched once. */
static bool read(const StoredModule *m, QTensor *q, IoError *err)
{
    int64_t width = m->part[PART_CODES]->dim[1], step = m->number[STEP];
    int64_t rows = m->row_step ? m->scheme.block[0] : m->rows * m->cols / width;

    bool is_whole = !m->row_step && width % 2 == 0;

    if (is_whole)
        read_runs(m, q);
    for (int64_t i = 0; i < step && !is_whole; i++)
        for (int64_t part = 0, row = i; row < rows; part++, row += step)
            put_row(m, q, row, i * width, part);
    return scales_read(m->part[PART_SCALE], false, q, err);
}

static bool offsets(const StoredModule *m, float *ret, IoError *err)
{
    const TensorView *zero = m->part[PART_ZERO];

    (void)err;
    format_to_f32(zero->fmt, zero->data, ret, zero->elements);
    return true;
}

const CheckpointReader reader_hqq = {
    .name = "hqq",
    .describe = "HQQ of 1, 2, 3, 4 and 8 bits",
    .methods = methods,
    .detect = detect,
    .modules = modules,
    .read = read,
    .offsets = offsets,
};
