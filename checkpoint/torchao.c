/* checkpoint/torchao: tensors of torchao's classes, flattened into safetensors. The file's
 * __metadata__ says for "m.weight" which class it is, as JSON in a string:
 *
 *   {"_type": "Int8Tensor", "_data": {"block_size": [1, 96], "act_quant_kwargs": ..}, ..}
 *
 * and the class's tensors are named m._weight_qdata, m._weight_scale, ..
 *
 *   Int8Tensor    qdata I8 [N, K], scale and perhaps zero_point I8 on the grid of block_size
 *   IntxUnpackedToInt8Tensor  the same, codes of fewer bits
 *   Int4Tensor    qdata [N, K/2] bytes, even columns low, two's complement; scale and zero_point
 *                 [K/g, N]: w = q s + z, z a float
 *   Float8Tensor  qdata F8 [N, K], scale on the grid
 *   NVFP4Tensor   qdata U8 [N, K/2], scale F8_E4M3 [N, K/16], per_tensor_scale multiplies
 *   MXTensor      qdata F8 or U8, scale F8_E8M0 [N, K/32]
 *
 * Scales of the last two may be swizzled: tiles of 128 rows by 4 columns, of which byte
 * 16 (r % 32) + 4 (r / 32) + c is the scale of row r and column c.
 *
 * Layout: github.com/pytorch/ao (prototype/safetensors, quantization/quantize_/workflows,
 * prototype/mx_formats). */
#include "checkpoint/checkpoint.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { KIND, SWIZZLED, PACKED }; /* number[] */

typedef struct Kind {
    const char *type;
    const char *refused; /* NULL: it is read */
} Kind;
enum { INT8, INTX, INT4, FLOAT8, NVFP4, MX };
static const Kind kinds[] = {
    [INT8] = {"Int8Tensor", NULL},
    [INTX] = {"IntxUnpackedToInt8Tensor", NULL},
    [INT4] = {"Int4Tensor", NULL},
    [FLOAT8] = {"Float8Tensor", NULL},
    [NVFP4] = {"NVFP4Tensor", NULL},
    [MX] = {"MXTensor", NULL},
    {"Int4PlainInt32Tensor", "its layout is private to one kernel; export it again as Int4Tensor"},
    {"Int4TilePackedTo4dTensor",
     "its layout is private to one kernel; export it again with int4_packing_format=\"plain\""},
    {"Int4PreshuffledTensor",
     "its layout is private to one kernel; export it again with int4_packing_format=\"plain\""},
};

static const char *const methods[] = {"torchao", NULL};

static bool detect(const Checkpoint *c)
{
    return tensors_end_with(c, "._weight_qdata");
}

/* Sizes ---------------------------------------------------------------------------------------- */

typedef struct Walk {
    Checkpoint *c;
    IoError *err;
    Arena *scratch; /* for one tensor */
    Config about;   /* what the metadata say of it */
} Walk;

static bool settle_block(Walk *w, StoredModule *m)
{
    int64_t size[2], full[2] = {m->rows, m->cols};

    if (!config_int(&w->about, "_data/block_size/0", &size[0]) ||
        !config_int(&w->about, "_data/block_size/1", &size[1]) ||
        config_find(&w->about, "_data/block_size/2") || size[0] < 1 || size[1] < 1)
        return module_fail(w->err, m, "its metadata have no block_size of two sizes");
    for (int i = 0; i < 2; i++)
        m->scheme.block[i] = size[i] >= full[i] ? 0 : size[i];
    if (size[0] == 1) /* of one row, which may be all there is */
        m->scheme.block[0] = 1;
    return true;
}

/* A tensor on the grid, or on its transpose. */
static bool on_grid(Walk *w, const StoredModule *m, const TensorView *view, const char *dtypes,
                    bool turned)
{
    int64_t grid[2] = {scheme_row_blocks(&m->scheme, m->rows),
                       scheme_col_blocks(&m->scheme, m->cols)};
    const int64_t dim[2] = {grid[turned], grid[!turned]};

    if (grid[0] * grid[1] == 1 && view->elements == 1)
        return view_is(w->err, view, dtypes, view->rank, view->dim);
    return view_is(w->err, view, dtypes, 2, dim);
}

static bool all_zero(const TensorView *view)
{
    const uint8_t *byte = view->data;

    for (uint64_t i = 0; i < view->bytes; i++)
        if (byte[i])
            return false;
    return true;
}

static bool settle_zero(Walk *w, StoredModule *m)
{
    const TensorView *zero = m->part[PART_ZERO];

    if (!zero)
        return true;
    if (!on_grid(w, m, zero, "I8", false))
        return false;
    if (all_zero(zero))
        stored_note(w->c, m, "its zero points are all 0");
    else
        m->scheme.zero = ZERO_INT;
    return true;
}

static bool settle_int(Walk *w, StoredModule *m)
{
    const TensorView *codes = m->part[PART_CODES];
    const char *target = config_text(&w->about, "_data/target_dtype/_data");
    int bits = 8;

    if (m->number[KIND] == INTX) {
        bits = target && !strncmp(target, "int", 3) ? atoi(target + 3) : 0;
        if (bits < 1 || bits > 8)
            return module_fail(w->err, m, "its target_dtype '%.30s' is no integer of 1 to 8 bits",
                               target ? target : "");
    }
    if (!view_is(w->err, codes, "I8", 2, codes->dim))
        return false;
    m->bits = bits;
    m->scheme.fmt = format_of_bits(bits, true);
    m->scheme.scale_fmt = m->part[PART_SCALE]->fmt;
    return settle_block(w, m) && on_grid(w, m, m->part[PART_SCALE], "F32 BF16 F16", false) &&
           settle_zero(w, m);
}

static bool settle_int4(Walk *w, StoredModule *m)
{
    const TensorView *codes = m->part[PART_CODES], *zero = m->part[PART_ZERO];

    m->cols = codes->dim[1] * 2;
    m->scheme.fmt = FMT_I4;
    m->scheme.scale_fmt = m->part[PART_SCALE]->fmt;
    if (!view_is(w->err, codes, "I8 U8", 2, codes->dim) || !settle_block(w, m) ||
        !on_grid(w, m, m->part[PART_SCALE], "F32 BF16 F16", true))
        return false;
    if (!zero)
        return module_fail(w->err, m, "there is no zero_point");
    if (!on_grid(w, m, zero, "F32 BF16 F16", true))
        return false;
    if (!all_zero(zero))
        m->offset = OFFSET_ADDED;
    stored_note(w->c, m, "its zero points are %s", m->offset ? "floats that are added" : "all 0");
    return true;
}

static bool settle_float8(Walk *w, StoredModule *m)
{
    const TensorView *codes = m->part[PART_CODES];

    m->scheme.fmt = codes->fmt;
    m->scheme.scale_fmt = m->part[PART_SCALE]->fmt;
    return view_is(w->err, codes, "F8_E4M3 F8_E5M2", 2, codes->dim) && settle_block(w, m) &&
           on_grid(w, m, m->part[PART_SCALE], "F32 BF16 F16", false);
}

static int64_t padded(int64_t num, int64_t to)
{
    return (num + to - 1) / to * to;
}

/* Scales of one byte, plain or swizzled. */
static bool settle_bytes(Walk *w, StoredModule *m, const char *dtypes)
{
    const TensorView *scale = m->part[PART_SCALE];
    int64_t cols = scheme_col_blocks(&m->scheme, m->cols);

    m->number[SWIZZLED] = config_bool(&w->about, "_data/is_swizzled_scales", false);
    if (!m->number[SWIZZLED])
        return on_grid(w, m, scale, dtypes, false);
    stored_note(w->c, m, "its scales are swizzled");
    if (!view_is(w->err, scale, dtypes, scale->rank, scale->dim))
        return false;
    if (scale->elements != (uint64_t)(padded(m->rows, 128) * padded(cols, 4)))
        return stored_fail(w->err, scale,
                           "is %s, but tiles of 128 by 4 scales for [%lld, %lld] are "
                           "[%lld, %lld]",
                           dims_text(w->c->arena, scale), (long long)m->rows, (long long)cols,
                           (long long)padded(m->rows, 128), (long long)padded(cols, 4));
    return true;
}

/* Codes of two a byte, or 8-bit floats, in blocks of `size` columns. */
static bool settle_micro(Walk *w, StoredModule *m, int64_t size)
{
    const TensorView *codes = m->part[PART_CODES], *outer = m->part[PART_OUTER];
    bool is_nv = m->number[KIND] == NVFP4;
    int64_t said = size;

    m->number[PACKED] = codes->fmt != FMT_E4M3 && codes->fmt != FMT_E5M2;
    if (!view_is(w->err, codes, is_nv ? "U8" : "U8 F8_E4M3 F8_E5M2", 2, codes->dim))
        return false;
    config_int(&w->about, "_data/block_size", &said);
    m->cols = codes->dim[1] * (m->number[PACKED] ? 2 : 1);
    if (said != size || m->cols % size)
        return stored_fail(w->err, codes,
                           "has rows of %lld in blocks of %lld, but whole blocks of "
                           "%lld are read",
                           (long long)m->cols, (long long)said, (long long)size);
    m->scheme = (Scheme){.fmt = m->number[PACKED] ? FMT_E2M1 : codes->fmt,
                         .scale_fmt = is_nv ? FMT_E4M3 : FMT_E8M0,
                         .outer = is_nv,
                         .block = {1, size}};
    m->real[0] = 1;
    if (outer && (outer->elements != 1 || strcmp(outer->dtype, "F32")))
        return stored_fail(w->err, outer, "is %s, not one F32", dims_text(w->c->arena, outer));
    if (outer)
        m->real[0] = *(const float *)outer->data;
    if (!(m->real[0] > 0) || !isfinite(m->real[0]))
        return stored_fail(w->err, outer, "is %g, not a scale", (double)m->real[0]);
    return settle_bytes(w, m, is_nv ? "F8_E4M3" : "F8_E8M0 U8");
}

/* Activations ---------------------------------------------------------------------------------- */

static bool is_text(const Walk *w, const char *key, const char *text)
{
    const char *found = config_text(&w->about, key);

    return found && !strcmp(found, text);
}

static bool settle_static(Walk *w, StoredModule *m)
{
    const TensorView *scale = m->part[PART_INPUT_SCALE];

    if (!scale)
        return true;
    if (scale->elements != 1 || !view_is_float(scale))
        return stored_fail(w->err, scale, "is %s of %s, not one scale",
                           dims_text(w->c->arena, scale), scale->dtype);
    format_to_f32(scale->fmt, scale->data, &m->act.scale, 1);
    if (!(m->act.scale > 0) || !isfinite(m->act.scale))
        return stored_fail(w->err, scale, "is %g, not a scale", (double)m->act.scale);
    if (m->act.scheme.zero != ZERO_NONE)
        m->refused = "a static range with a zero point is not read; export it symmetric";
    m->act.is_static = true;
    m->act.scheme.block[0] = m->act.scheme.block[1] = 0;
    return true;
}

static bool settle_act(Walk *w, StoredModule *m)
{
    static const char kwargs[] = "_data/act_quant_kwargs/_data/";
    const char *kind = config_text(&w->about, "_data/act_quant_kwargs/_type");
    const char *intx = config_text(&w->about, "_data/activation_quantization");
    Scheme *s = &m->act.scheme;

    if (!intx)
        intx = config_text(&w->about, "_data/activation_quantization/_data");
    if (!kind && !intx)
        return true;
    bool is_int = intx || !strcmp(kind, "QuantizeTensorToInt8Kwargs");
    if (!is_int && strcmp(kind, "QuantizeTensorToFloat8Kwargs")) {
        stored_doubt(w->c, m, "the activation stays as it is: %.60s is for weights only", kind);
        return true;
    }
    *s = (Scheme){.fmt = is_int ? FMT_I8 : FMT_E4M3, .scale_fmt = FMT_F32, .block = {1, 0}};
    m->act.is_quantised = true;
    if (intx || is_text(w, arena_printf(w->c->arena, "%smapping_type/_data", kwargs), "ASYMMETRIC"))
        s->zero = ZERO_INT;
    if (is_text(w, arena_printf(w->c->arena, "%sgranularity/_type", kwargs), "PerTensor"))
        s->block[0] = 0;
    return settle_static(w, m);
}

/* Modules -------------------------------------------------------------------------------------- */

static bool settle(Walk *w, StoredModule *m)
{
    const TensorView *codes = m->part[PART_CODES];

    if (!codes || !m->part[PART_SCALE])
        return module_fail(w->err, m, "there is no %s", codes ? "scale" : "qdata");
    if (codes->rank != 2 || !codes->elements)
        return stored_fail(w->err, codes, "is %s, not a matrix", dims_text(w->c->arena, codes));
    m->rows = codes->dim[0];
    m->cols = codes->dim[1];
    bool ok = false;
    switch (m->number[KIND]) {
    case INT8:
    case INTX: ok = settle_int(w, m); break;
    case INT4: ok = settle_int4(w, m); break;
    case FLOAT8: ok = settle_float8(w, m); break;
    case NVFP4: ok = settle_micro(w, m, 16); break;
    case MX: ok = settle_micro(w, m, 32); break;
    }
    return ok && settle_act(w, m) && input_factors_settle(w->c, m, w->err);
}

/* "a.b.weight" of a class that we know. */
static bool add_module(Walk *w, const char *name, int kind)
{
    const char *module = module_name(w->c->arena, name, ".weight"); /* outlives the scratch */
    static const struct {
        StoredPart part;
        const char *suffix;
    } parts[] = {
        {PART_CODES, "._weight_qdata"},
        {PART_SCALE, "._weight_scale"},
        {PART_ZERO, "._weight_zero_point"},
        {PART_OUTER, "._weight_per_tensor_scale"},
        {PART_INPUT_FACTORS, "._weight_act_pre_scale"},
        {PART_INPUT_SCALE, "._weight_act_quant_scale"},
        {PART_INPUT_ZERO, "._weight_act_quant_zero_point"},
    };

    if (!module)
        return io_fail(w->err, E_CHECKPOINT_KIND,
                       "%.200s: is quantised, but only tensors named 'weight' are read so", name);
    StoredModule *m = stored_add(w->c, module, kinds[kind].type);
    m->said = "the file's metadata";
    m->number[KIND] = kind;
    for (size_t i = 0; i < COUNT_OF(parts); i++)
        stored_part(w->c, m, parts[i].part, parts[i].suffix);
    m->refused = kinds[kind].refused;
    m->rows = m->cols = 1; /* of what is not looked into */
    return m->refused || settle(w, m);
}

static bool add_entry(void *user, const char *key, const char *value, size_t len)
{
    Walk *w = user;

    if (!strcmp(key, "tensor_names") || !strcmp(key, "format") || *value != '{')
        return true;
    arena_reset(w->scratch);
    if (!config_read(&w->about, w->scratch, key, value, len, w->err))
        return false;
    const char *type = config_text(&w->about, "_type");
    if (!type || !strcmp(type, "Tensor"))
        return true;
    for (size_t i = 0; i < COUNT_OF(kinds); i++)
        if (!strcmp(kinds[i].type, type))
            return add_module(w, key, (int)i);
    return io_fail(
        w->err, E_CHECKPOINT_KIND,
        "%.200s: is stored as torchao's %.60s, which is not read; Int4Tensor, Int8Tensor, "
        "IntxUnpackedToInt8Tensor, Float8Tensor, NVFP4Tensor and MXTensor are",
        key, type);
}

static bool modules(Checkpoint *c, IoError *err)
{
    Walk w = {.c = c, .err = err, .scratch = arena_new()};
    bool found = tensors_end_with(c, "._weight_qdata");
    bool ok = weights_each_metadata(c->weights, add_entry, &w, err);

    arena_destroy(w.scratch);
    if (!ok)
        return false;
    if (found && !c->modules.num)
        return io_fail(err, E_CHECKPOINT,
                       "tensors are named as torchao names them, but the file's "
                       "__metadata__ do not say what they are");
    return true;
}

/* Reading -------------------------------------------------------------------------------------- */

static bool read_narrow(const StoredModule *m, QTensor *q, IoError *err)
{
    const int8_t *code = m->part[PART_CODES]->data;
    int least = -(1 << (m->bits - 1)), most = -least - 1;

    for (int64_t n = 0; n < m->rows; n++, code += m->cols) {
        int low = 0, high = 0;
        for (int64_t k = 0; k < m->cols; k++) {
            low = code[k] < low ? code[k] : low;
            high = code[k] > high ? code[k] : high;
        }
        for (int64_t k = 0; (low < least || high > most) && k < m->cols; k++)
            if (code[k] < least || code[k] > most)
                return stored_fail(err, m->part[PART_CODES],
                                   "row %lld, column %lld is %d, no code of %d bits", (long long)n,
                                   (long long)k, code[k], m->bits);
        uint8_t *row = q->codes + (uint64_t)n * q->row_bytes;
        if (format_held_bits(m->scheme.fmt) == 4)
            nibbles_of_bytes((const uint8_t *)code, 0, 15, row, m->cols);
        else
            memcpy(row, code, (size_t)m->cols);
    }
    return true;
}

static bool read_swizzled(const StoredModule *m, QTensor *q, IoError *err)
{
    const TensorView *view = m->part[PART_SCALE];
    const uint8_t *byte = view->data;
    int64_t tiles = padded(q->col_blocks, 4) / 4;

    for (int64_t r = 0; r < q->row_blocks; r++) {
        for (int64_t c = 0; c < q->col_blocks; c++) {
            int64_t tile = r / 128 * tiles + c / 4;
            int64_t at = tile * 512 + r % 32 * 16 + r % 128 / 32 * 4 + c % 4;
            q->scale[r * q->col_blocks + c] = format_decode(m->scheme.scale_fmt, byte[at]);
        }
    }
    return scales_finite(view, q, err);
}

static bool read(const StoredModule *m, QTensor *q, IoError *err)
{
    const TensorView *codes = m->part[PART_CODES], *zero = m->part[PART_ZERO];

    if (m->number[KIND] == INTX) {
        if (!read_narrow(m, q, err))
            return false;
    } else {
        memcpy(q->codes, codes->data, (size_t)q->codes_bytes);
    }
    for (int64_t i = 0; q->zero && i < q->row_blocks * q->col_blocks; i++)
        q->zero[i] = ((const int8_t *)zero->data)[i];
    if (m->scheme.outer)
        q->outer = m->real[0];
    if (m->number[SWIZZLED])
        return read_swizzled(m, q, err);
    return scales_read(m->part[PART_SCALE], m->number[KIND] == INT4, q, err);
}

static bool offsets(const StoredModule *m, float *ret, IoError *err)
{
    QTensor grid = {.scheme = m->scheme,
                    .rows = m->rows,
                    .cols = m->cols,
                    .row_blocks = scheme_row_blocks(&m->scheme, m->rows),
                    .col_blocks = scheme_col_blocks(&m->scheme, m->cols),
                    .scale = ret};

    return scales_read(m->part[PART_ZERO], true, &grid, err);
}

const CheckpointReader reader_torchao = {
    .name = "torchao",
    .describe = "torchao: Int4, Int8, Intx, Float8, NVFP4 and MX tensors in safetensors",
    .methods = methods,
    .detect = detect,
    .modules = modules,
    .read = read,
    .offsets = offsets,
};
