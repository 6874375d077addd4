/* checkpoint/bitsandbytes: 4-bit codebooks and 8-bit integers.
 *
 *   X.weight                U8 [N K / 2, 1]   flattened rows, the first of two in the high nibble
 *   X.weight.absmax         F32 [N K / size]  or U8, nested: an index of
 *   X.weight.nested_quant_map F32 [256], times X.weight.nested_absmax F32, plus nested_offset
 *   X.weight.quant_map      F32 [16]
 *   X.weight.quant_state.bitsandbytes__nf4 (__fp4)  U8: the bytes of a JSON object
 *
 * A block is `size` elements of the flattened weight, so blocks run across the ends of rows where
 * size does not divide K. Every boundary is then a multiple of their greatest common divisor from
 * the row's start: groups of that many columns hold the same scales exactly.
 *
 *   X.weight I8 [N, K], X.SCB F32 [N]:  w = q SCB / 127
 *
 * Layout: github.com/bitsandbytes-foundation/bitsandbytes (functional.py, QuantState). */
#include "checkpoint/checkpoint.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE, NESTED_SIZE }; /* number[]; real[0]: the nested offset */

static const char *const methods[] = {"bitsandbytes", "bnb", NULL};
static const struct {
    const char *suffix, *layout;
    FormatId fmt;
} states[] = {
    {".weight.quant_state.bitsandbytes__nf4", "bitsandbytes nf4", FMT_NF4},
    {".weight.quant_state.bitsandbytes__fp4", "bitsandbytes fp4", FMT_FP4},
};

static bool detect(const Checkpoint *c)
{
    return tensors_end_with(c, states[0].suffix) || tensors_end_with(c, states[1].suffix) ||
           tensors_end_with(c, ".SCB");
}

/* State ---------------------------------------------------------------------------------------- */

static bool read_state(Checkpoint *c, StoredModule *m, const TensorView *view, IoError *err)
{
    Config state;
    int64_t size = 0, nested = 0, rank = 0;
    const ConfigValue *shape, *offset;

    if (strcmp(view->dtype, "U8") || view->bytes > 65536 ||
        !config_read(&state, c->arena, view->name, view->data, (size_t)view->bytes, err))
        return view->bytes <= 65536 && !strcmp(view->dtype, "U8")
                   ? false
                   : stored_fail(err, view, "is not the text of a state");
    shape = config_find(&state, "shape");
    rank = shape && shape->kind == CONFIG_ARRAY ? shape->num : 0;
    if (!config_int(&state, "blocksize", &size) || size < 1 || rank != 2 ||
        !config_int(&state, "shape/0", &m->rows) || !config_int(&state, "shape/1", &m->cols) ||
        m->rows < 1 || m->cols < 1)
        return stored_fail(err, view, "says no blocksize and no shape of two dimensions");
    offset = config_find(&state, "nested_offset");
    m->number[SIZE] = size;
    m->number[NESTED_SIZE] = config_int(&state, "nested_blocksize", &nested) ? nested : 0;
    m->real[0] = offset && offset->kind == CONFIG_NUMBER ? strtof(offset->text, NULL) : 0;
    return true;
}

/* Codes are decoded by the format's own table where it is the file's; else by the file's. */
static bool check_table(Checkpoint *c, StoredModule *m, IoError *err)
{
    const TensorView *table = m->part[PART_TABLE];
    int64_t num = 16;

    if (!view_is(err, table, "F32", 1, &num))
        return false;
    for (uint32_t i = 0; i < 16; i++) {
        float value = ((const float *)table->data)[i];
        if (value == format_decode(m->scheme.fmt, i))
            continue;
        stored_doubt(c, m, "its codebook is another than that of %s: value %u is %.9g, not %.9g",
                     format_info[m->scheme.fmt].name, i, (double)value,
                     (double)format_decode(m->scheme.fmt, i));
        m->scheme.fmt = FMT_U4;
        return table_settle(c, m, err);
    }
    return true;
}

static bool check_nested(StoredModule *m, int64_t blocks, IoError *err)
{
    const TensorView *absmax = m->part[PART_SCALE];
    int64_t map = 256, size = m->number[NESTED_SIZE];

    if (!m->part[PART_OUTER] || !m->part[PART_TABLE2] || size < 1)
        return stored_fail(err, absmax,
                           "is nested, but the module lacks nested_absmax, "
                           "nested_quant_map or nested_blocksize");
    int64_t outer = (blocks + size - 1) / size;
    return view_is(err, absmax, "U8", 1, &blocks) &&
           view_is(err, m->part[PART_TABLE2], "F32", 1, &map) &&
           view_is(err, m->part[PART_OUTER], "F32", 1, &outer);
}

static int64_t divisor(int64_t a, int64_t b)
{
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static bool settle_4bit(Checkpoint *c, StoredModule *m, IoError *err)
{
    const TensorView *codes = m->part[PART_CODES], *absmax = m->part[PART_SCALE];
    uint64_t elements;
    const int64_t dim[2] = {m->rows, m->cols};

    if (!checked_elements(dim, 2, &elements) || elements > LIMIT_ELEMENTS ||
        codes->bytes != (elements + 1) / 2 || strcmp(codes->dtype, "U8"))
        return stored_fail(err, codes,
                           "holds %llu bytes of %s, but [%lld, %lld] codes need %llu of U8",
                           (unsigned long long)codes->bytes, codes->dtype, (long long)m->rows,
                           (long long)m->cols, (unsigned long long)(elements + 1) / 2);
    int64_t size = m->number[SIZE];
    int64_t blocks = ((int64_t)elements + size - 1) / size;
    m->scheme.scale_fmt = FMT_F32;
    m->scheme.block[0] = 1;
    m->scheme.block[1] = divisor(m->cols, size);
    if (m->scheme.block[1] != size)
        stored_note(c, m, "blocks of %lld run across rows of %lld: kept as groups of %lld",
                    (long long)size, (long long)m->cols, (long long)m->scheme.block[1]);
    if (!strcmp(absmax->dtype, "U8")) {
        m->layout = arena_printf(c->arena, "%s nested", m->layout);
        return check_nested(m, blocks, err) && check_table(c, m, err);
    }
    return view_is(err, absmax, "F32", 1, &blocks) && check_table(c, m, err);
}

/* Modules -------------------------------------------------------------------------------------- */

static bool add_4bit(Checkpoint *c, const TensorView *view, const char *name, size_t state,
                     IoError *err)
{
    StoredModule *m = stored_add(c, name, states[state].layout);

    m->scheme.fmt = states[state].fmt;
    map_put(&c->owner, view->name, m);
    if (!stored_part(c, m, PART_CODES, ".weight"))
        return stored_fail(err, view, "the module has no weight");
    stored_part(c, m, PART_SCALE, ".weight.absmax");
    stored_part(c, m, PART_TABLE, ".weight.quant_map");
    stored_part(c, m, PART_OUTER, ".weight.nested_absmax");
    stored_part(c, m, PART_TABLE2, ".weight.nested_quant_map");
    if (!m->part[PART_SCALE] || !m->part[PART_TABLE])
        return stored_fail(err, view, "the module has no %s",
                           m->part[PART_SCALE] ? "quant_map" : "absmax");
    return read_state(c, m, view, err) && settle_4bit(c, m, err);
}

static bool add_8bit(Checkpoint *c, const TensorView *scb, const char *name, IoError *err)
{
    StoredModule *m = stored_add(c, name, "bitsandbytes int8");
    const TensorView *codes = stored_part(c, m, PART_CODES, ".weight");
    const TensorView *format = stored_part(c, m, PART_EXTRA, ".weight_format");

    stored_part(c, m, PART_SCALE, ".SCB");
    if (!codes || codes->rank != 2 || strcmp(codes->dtype, "I8") || !codes->elements)
        return stored_fail(err, scb, "the module has no matrix of I8");
    m->rows = codes->dim[0];
    m->cols = codes->dim[1];
    m->scheme = (Scheme){.fmt = FMT_I8, .scale_fmt = FMT_F32, .block = {1, 0}};
    if (format && format->elements == 1 && *(const uint8_t *)format->data != 0)
        m->refused =
            "its weight_format is a tiled layout of one kernel; save it again with a newer "
            "bitsandbytes";
    stored_doubt(c, m, "outlier columns are not computed apart: all are 8-bit");
    return view_is(err, scb, "F32", 1, &m->rows);
}

static bool modules(Checkpoint *c, IoError *err)
{
    for (int i = 0; i < weights_num(c->weights); i++) {
        const TensorView *view = weights_at(c->weights, i);
        const char *name = module_name(c->arena, view->name, ".SCB");
        if (name && !add_8bit(c, view, name, err))
            return false;
        for (size_t s = 0; s < COUNT_OF(states); s++) {
            name = module_name(c->arena, view->name, states[s].suffix);
            if (name && !add_4bit(c, view, name, s, err))
                return false;
        }
        name = module_name(c->arena, view->name, ".weight.absmax");
        for (size_t s = 0; name && s < COUNT_OF(states); s++)
            if (weights_find(c->weights, arena_printf(c->arena, "%s%s", name, states[s].suffix)))
                name = NULL;
        if (name)
            return stored_fail(err, view, "there is no quant_state beside it");
    }
    return true;
}

/* Reading -------------------------------------------------------------------------------------- */

static float scale_at(const StoredModule *m, int64_t i)
{
    if (!m->part[PART_OUTER])
        return ((const float *)m->part[PART_SCALE]->data)[i];
    uint8_t code = ((const uint8_t *)m->part[PART_SCALE]->data)[i];
    float inner = ((const float *)m->part[PART_TABLE2]->data)[code] *
                  ((const float *)m->part[PART_OUTER]->data)[i / m->number[NESTED_SIZE]];
    return inner + m->real[0];
}

static bool read_4bit(const StoredModule *m, QTensor *q, IoError *err)
{
    const uint8_t *codes = m->part[PART_CODES]->data;

    if (m->cols % 2 == 0) {
        for (uint64_t i = 0; i < q->codes_bytes; i++)
            q->codes[i] = (uint8_t)(codes[i] << 4 | codes[i] >> 4);
    } else {
        for (int64_t i = 0; i < m->rows * m->cols; i++)
            qtensor_put(q, i / m->cols, i % m->cols, codes[i / 2] >> (i % 2 ? 0 : 4) & 15u);
    }
    bool same = m->scheme.block[1] == m->number[SIZE] && !m->part[PART_OUTER];
    if (same)
        memcpy(q->scale, m->part[PART_SCALE]->data,
               (size_t)(q->row_blocks * q->col_blocks) * sizeof *q->scale);
    for (int64_t i = 0; !same && i < q->row_blocks * q->col_blocks; i++)
        q->scale[i] = scale_at(m, i * m->scheme.block[1] / m->number[SIZE]);
    return scales_finite(m->part[PART_SCALE], q, err);
}

static bool read(const StoredModule *m, QTensor *q, IoError *err)
{
    if (m->scheme.fmt != FMT_I8)
        return read_4bit(m, q, err);
    memcpy(q->codes, m->part[PART_CODES]->data, q->codes_bytes);
    if (!scales_read(m->part[PART_SCALE], false, q, err))
        return false;
    for (int64_t n = 0; n < q->row_blocks; n++)
        q->scale[n] /= 127;
    return true;
}

const CheckpointReader reader_bitsandbytes = {
    .name = "bitsandbytes",
    .describe = "bitsandbytes nf4 and fp4, nested too, and int8",
    .methods = methods,
    .detect = detect,
    .modules = modules,
    .read = read,
};
