/* checkpoint/by_hand: a weight that the text says how to read: codes, scales and zero points are
 * tensors of any names.
 *
 *   codes   [N, K] of 8 bits, one a byte; or, of 4 bits, bytes of two, even columns low; or I32
 *           [N, ceil(K b / 32)], each row a stream of b bits, low bits first. Signed: two's
 *           complement
 *   scale   the grid of the scheme, [rows, columns], without dimensions of 1 where one likes
 *   zero    the same grid: integers among the codes, or floats: w = (q - z) s
 *   offset  the same grid, floats: w = q s + m
 *   outer   one F32, which multiplies (nvfp4)
 *   table   of a codebook, the value of each code: w = table[q] s; of the tensor [2^b], of each row
 *           [N, 2^b], or of each entry of the grid [rows, columns, 2^b] */
#include "checkpoint/checkpoint.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { HOW };                  /* number[] */
enum { BYTES, HALVES, WORDS }; /* how codes lie */

static const CheckpointReader reader_by_hand;

/* Sizes ---------------------------------------------------------------------------------------- */

static bool is_matrix(const TensorView *view, int64_t rows, int64_t cols)
{
    return view->rank == 2 && view->dim[0] == rows && view->dim[1] == cols;
}

/* Can the dtype hold codes of the format one a byte? */
static bool holds(const TensorView *view, FormatId fmt)
{
    const FormatInfo *info = &format_info[fmt];

    if (info->family == FAMILY_INT)
        return view->fmt == (info->is_signed ? FMT_I8 : FMT_U8);
    return view->fmt == fmt || view->fmt == FMT_U8;
}

static bool settle_codes(Checkpoint *c, StoredModule *m, IoError *err)
{
    const TensorView *view = m->part[PART_CODES];
    FormatId fmt = m->scheme.fmt;
    int bits = format_info[fmt].bits;
    bool words = !strcmp(view->dtype, "I32") || !strcmp(view->dtype, "U32");
    bool bytes = view->fmt == FMT_I8 || view->fmt == FMT_U8;

    m->number[HOW] = BYTES;
    if (holds(view, fmt) && view->fmt != FMT_E2M1 && is_matrix(view, m->rows, m->cols))
        return true;
    m->number[HOW] = HALVES;
    if (bits == 4 && bytes && is_matrix(view, m->rows, (m->cols + 1) / 2))
        return true;
    if (fmt == FMT_E2M1 && view->fmt == fmt && m->cols % 2 == 0 &&
        is_matrix(view, m->rows, m->cols))
        return true;
    m->number[HOW] = WORDS;
    if (words && is_matrix(view, m->rows, (m->cols * bits + 31) / 32))
        return true;
    return stored_fail(err, view, "is %s of %s, in which %s codes of [%lld, %lld] do not lie",
                       dims_text(c->arena, view), view->dtype, format_info[fmt].name,
                       (long long)m->rows, (long long)m->cols);
}

static bool on_grid(Checkpoint *c, const StoredModule *m, const TensorView *view,
                    const char *dtypes, IoError *err)
{
    int64_t grid[2] = {scheme_row_blocks(&m->scheme, m->rows),
                       scheme_col_blocks(&m->scheme, m->cols)};
    bool fits =
        is_matrix(view, grid[0], grid[1]) || (view->rank < 2 && (grid[0] == 1 || grid[1] == 1) &&
                                              view->elements == (uint64_t)(grid[0] * grid[1]));

    if (!fits)
        return stored_fail(err, view, "is %s, but the scheme has a grid of [%lld, %lld]",
                           dims_text(c->arena, view), (long long)grid[0], (long long)grid[1]);
    return view_is(err, view, dtypes, view->rank, view->dim);
}

static bool settle_zero(Checkpoint *c, StoredModule *m, IoError *err)
{
    const TensorView *zero = m->part[PART_ZERO], *offset = m->part[PART_EXTRA];
    bool is_float = zero && view_is_float(zero);

    if (zero && offset)
        return stored_fail(err, offset,
                           "is an offset beside zero points: a weight has one of them");
    if (m->scheme.zero == ZERO_NONE && zero)
        return stored_fail(err, zero, "holds zero points, but the scheme is symmetric");
    if (m->scheme.zero != ZERO_NONE && !zero && !offset)
        return module_fail(err, m, "the scheme is asymmetric, but names neither zero nor offset");
    if (format_info[m->scheme.fmt].family != FAMILY_INT && offset)
        return stored_fail(err, offset, "is an offset of codes that are no integers");
    if (zero && !on_grid(c, m, zero, is_float ? "F32 F16 BF16" : "I8 U8 I32", err))
        return false;
    if (offset && !on_grid(c, m, offset, "F32 F16 BF16", err))
        return false;
    m->offset = offset ? OFFSET_ADDED : is_float ? OFFSET_ZERO : OFFSET_NONE;
    if (m->offset && format_info[m->scheme.fmt].is_signed)
        m->scheme.zero = ZERO_NONE; /* the floats say it all */
    return true;
}

static bool settle_outer(Checkpoint *c, StoredModule *m, IoError *err)
{
    const TensorView *outer = m->part[PART_OUTER];

    if (!outer != !m->scheme.outer)
        return module_fail(err, m, "%s",
                           outer ? "the scheme has no outer scale"
                                 : "the scheme has an outer scale, but names none");
    if (!outer)
        return true;
    if (outer->elements != 1 || outer->fmt != FMT_F32)
        return stored_fail(err, outer, "is %s of %s, not one F32", dims_text(c->arena, outer),
                           outer->dtype);
    m->real[0] = *(const float *)outer->data;
    return (m->real[0] > 0 && isfinite(m->real[0])) ||
           stored_fail(err, outer, "is %g, not a scale", (double)m->real[0]);
}

static bool settle_table(Checkpoint *c, StoredModule *m, IoError *err)
{
    const TensorView *table = m->part[PART_TABLE];

    if (!table != !m->scheme.table)
        return module_fail(err, m, "%s",
                           table ? "names a table, but the scheme is not that of a codebook"
                                 : "the scheme is that of a codebook, but names no table");
    if (!table)
        return true;
    if (m->part[PART_ZERO] || m->part[PART_EXTRA])
        return stored_fail(err, table, "is a table beside zero points: a weight has one of them");
    return table_settle(c, m, err);
}

static bool take(Checkpoint *c, StoredModule *m, StoredPart part, const char *name, IoError *err)
{
    Nearest nearest;

    if (!name)
        return true;
    m->part[part] = weights_find(c->weights, name);
    if (m->part[part])
        return true;
    nearest_init(&nearest, name);
    for (int i = 0; i < weights_num(c->weights); i++)
        nearest_offer(&nearest, weights_at(c->weights, i)->name);
    const char *near = nearest_get(&nearest);
    return io_fail(err, E_WEIGHT_MISSING, "the weight files hold no tensor \"%.200s\"%s%.200s%s",
                   name, near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

const StoredModule *checkpoint_by_hand(Checkpoint *c, const StoredHand *hand, int64_t rows,
                                       int64_t cols, IoError *err)
{
    StoredModule *m = ARENA_NEW(c->arena, StoredModule);

    *m = (StoredModule){.name = hand->codes,
                        .weight = hand->codes,
                        .reader = &reader_by_hand,
                        .layout = "by hand",
                        .said = "the text",
                        .scheme = *hand->scheme,
                        .rows = rows,
                        .cols = cols};
    bool ok = take(c, m, PART_CODES, hand->codes, err) &&
              take(c, m, PART_SCALE, hand->scale, err) && take(c, m, PART_ZERO, hand->zero, err) &&
              take(c, m, PART_EXTRA, hand->offset, err) &&
              take(c, m, PART_OUTER, hand->outer, err) &&
              take(c, m, PART_TABLE, hand->table, err) && settle_codes(c, m, err) &&
              on_grid(c, m, m->part[PART_SCALE], "F32 F16 BF16 F8_E4M3 F8_E8M0 U8", err) &&
              settle_table(c, m, err) && settle_zero(c, m, err) && settle_outer(c, m, err);
    return ok ? m : NULL;
}

/* Reading -------------------------------------------------------------------------------------- */

/* False, and why, where a byte is no code. */
static bool bytes_fit(const StoredModule *m, int64_t row, const uint8_t *byte, int least, int most,
                      IoError *err)
{
    const TensorView *view = m->part[PART_CODES];
    const FormatInfo *info = &format_info[m->scheme.fmt];
    int64_t k = 0;
    int code = 0;

    for (; k < m->cols; k++) {
        code = view->fmt == FMT_I8 ? (int8_t)byte[k] : byte[k];
        if (code < least || code > most || (!code && info->id == FMT_BINARY))
            break;
    }
    return k == m->cols || stored_fail(err, view, "row %lld, column %lld is %d, no code of %s",
                                       (long long)row, (long long)k, code, info->name);
}

static bool read_bytes(const StoredModule *m, QTensor *q, IoError *err)
{
    const TensorView *view = m->part[PART_CODES];
    const FormatInfo *info = &format_info[m->scheme.fmt];
    const uint8_t *byte = view->data;
    bool is_int = info->family == FAMILY_INT;
    int most = is_int ? format_code_max(info->id) : (1 << info->bits) - 1;
    int least = is_int ? format_code_min(info->id) : 0;

    for (int64_t n = 0; n < m->rows; n++, byte += m->cols) {
        uint8_t *row = q->codes + (uint64_t)n * q->row_bytes;
        if (info->bits < 8 && !bytes_fit(m, n, byte, least, most, err))
            return false;
        if (format_held_bits(info->id) == 4)
            nibbles_of_bytes(byte, 0, 15, row, m->cols);
        else
            memcpy(row, byte, (size_t)m->cols);
    }
    return true;
}

/* A field of the stream as memory holds it: signed ones extended; of binary, 0 is -1. */
static uint32_t extended(FormatId fmt, uint32_t code)
{
    const FormatInfo *info = &format_info[fmt];
    uint32_t sign = 1u << (info->bits - 1);

    if (fmt == FMT_BINARY)
        return code ? 1u : ~0u;
    return info->family == FAMILY_INT && info->is_signed ? (code ^ sign) - sign : code;
}

static bool read_codes(const StoredModule *m, QTensor *q, IoError *err)
{
    const TensorView *view = m->part[PART_CODES];
    int bits = format_info[m->scheme.fmt].bits;
    int64_t words = view->dim[1];

    if (m->number[HOW] == BYTES)
        return read_bytes(m, q, err);
    if (m->number[HOW] == HALVES) {
        memcpy(q->codes, view->data, (size_t)q->codes_bytes);
        return true;
    }
    if (format_code_min(m->scheme.fmt) == 0 && bits != 4 && bits != 8) {
        for (int64_t n = 0; n < m->rows; n++)
            stream_row((const uint32_t *)view->data + n * words, bits, 0,
                       q->codes + (uint64_t)n * q->row_bytes, m->cols);
        return true;
    }
    for (int64_t n = 0; n < m->rows; n++)
        for (int64_t k = 0; k < m->cols; k++) {
            uint32_t code = stream_code((const uint32_t *)view->data + n * words, 1,
                                        (uint64_t)(k * bits), bits);
            if (m->scheme.fmt == FMT_TERNARY && code == 2)
                return stored_fail(err, view, "row %lld, column %lld is -2, no code of ternary",
                                   (long long)n, (long long)k);
            qtensor_put(q, n, k, extended(m->scheme.fmt, code));
        }
    return true;
}

static bool check_whole_scales(const StoredModule *m, const QTensor *q, IoError *err)
{
    uint8_t *factor = malloc((size_t)q->col_blocks + 1);
    bool ok = factor != NULL || io_fail(err, E_MEMORY, "%s: memory is exhausted", m->name);

    for (int64_t r = 0; ok && r < q->rows; r++) {
        int64_t from = r * q->col_blocks;
        if (isnan(whole_scales_unit(q->scale + from, q->col_blocks, factor)))
            ok = stored_fail(err, m->part[PART_SCALE],
                             "the scales of row %lld are not 1 to %d times one number, as those of "
                             "`scale i8` are; `scale f32` holds any",
                             (long long)r, WHOLE_SCALE_MOST);
        for (int64_t c = 0; ok && q->zero && c < q->col_blocks; c++)
            if (factor[c] > whole_scale_most(&m->scheme, q->zero[from + c]))
                ok = stored_fail(err, m->part[PART_ZERO],
                                 "codes of row %lld less zero point %d, times %d of the row's "
                                 "units, are beyond i8; `scale f32` holds any",
                                 (long long)r, (int)q->zero[from + c], factor[c]);
    }
    free(factor);
    return ok;
}

/* Scales are what the scheme says they are. */
static bool check_scales(const StoredModule *m, const QTensor *q, IoError *err)
{
    FormatId fmt = m->scheme.scale_fmt;

    if (fmt == FMT_I8)
        return check_whole_scales(m, q, err);
    for (int64_t i = 0; i < q->row_blocks * q->col_blocks && fmt != FMT_F32; i++) {
        uint32_t code[1] = {0};
        float back;
        format_from_f32(fmt, &q->scale[i], code, 1);
        format_to_f32(fmt, code, &back, 1);
        if (back != q->scale[i])
            return stored_fail(err, m->part[PART_SCALE],
                               "scale %lld is %.9g, which %s does not hold", (long long)i,
                               (double)q->scale[i], format_info[fmt].name);
    }
    return true;
}

static bool read_zeros(const StoredModule *m, QTensor *q, IoError *err)
{
    const TensorView *zero = m->part[PART_ZERO];
    const FormatInfo *info = &format_info[m->scheme.fmt];
    int least = format_code_min(info->id), most = format_code_max(info->id);

    for (int64_t i = 0; i < q->row_blocks * q->col_blocks && q->zero && zero && !m->offset; i++) {
        int32_t z = zero->fmt == FMT_I32  ? ((const int32_t *)zero->data)[i]
                    : zero->fmt == FMT_I8 ? ((const int8_t *)zero->data)[i]
                                          : ((const uint8_t *)zero->data)[i];
        if (z < least || z > most)
            return stored_fail(err, zero, "zero point %lld is %d, no code of %s", (long long)i,
                               (int)z, info->name);
        q->zero[i] = z;
    }
    return true;
}

static bool read(const StoredModule *m, QTensor *q, IoError *err)
{
    if (m->scheme.outer)
        q->outer = m->real[0];
    return read_codes(m, q, err) && read_zeros(m, q, err) &&
           scales_read(m->part[PART_SCALE], false, q, err) && check_scales(m, q, err);
}

static bool offsets(const StoredModule *m, float *ret, IoError *err)
{
    QTensor grid = {.scheme = m->scheme,
                    .row_blocks = scheme_row_blocks(&m->scheme, m->rows),
                    .col_blocks = scheme_col_blocks(&m->scheme, m->cols),
                    .scale = ret};

    return scales_read(m->part[m->offset == OFFSET_ADDED ? PART_EXTRA : PART_ZERO], false, &grid,
                       err);
}

static const CheckpointReader reader_by_hand = {
    .name = "by hand",
    .describe = "codes, scales and zero points as the text names them",
    .read = read,
    .offsets = offsets,
};
