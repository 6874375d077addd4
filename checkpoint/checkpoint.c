/* checkpoint: opening. Which configuration lies beside the weights, which reader it is for, and
 * whether the tensors agree with it. */
#include "checkpoint/checkpoint.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Of checkpoints that several readers could know, the first. */
const CheckpointReader *const checkpoint_readers[] = {
    &reader_gptq, &reader_awq, &reader_compressed, &reader_bitsandbytes, &reader_modelopt,
    &reader_fp8,  &reader_hqq, &reader_mxfp4,      &reader_gguf,         &reader_torchao,
    NULL,
};

/* Configuration -------------------------------------------------------------------------------- */

/* Files that say how weights are quantised, and where in them. */
static const struct {
    const char *file, *prefix, *method; /* method: what the file means where it names none */
} config_places[] = {
    {"config.json", "quantization_config/", NULL},
    {"config.json", "text_config/quantization_config/", NULL},
    {"config.json", "compression_config/", "compressed-tensors"},
    {"hf_quant_config.json", "quantization/", "modelopt"},
    {"quantize_config.json", "", "gptq"},
    {"quant_config.json", "", "awq"},
};

const char *checkpoint_beside(Arena *arena, const char *path, const char *name)
{
    struct stat st;
    const char *slash = strrchr(path, '/');

    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return arena_printf(arena, "%s/%s", path, name);
    return arena_printf(arena, "%.*s%s", slash ? (int)(slash - path) + 1 : 0, path, name);
}

static bool file_exists(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

static bool read_place(Checkpoint *c, const char *path, const char *prefix, bool *ret_found,
                       IoError *err)
{
    uint64_t size;
    size_t len = strlen(prefix);
    char *text = file_read(path, LIMIT_SOURCE_BYTES, &size, err);

    *ret_found = false;
    if (!text)
        return false;
    bool ok = config_read(&c->config, c->arena, path, text, (size_t)size, err);
    free(text);
    if (!ok)
        return false;
    const char *object = arena_strndup(c->arena, prefix, len ? len - 1 : 0);
    const ConfigValue *value = config_find(&c->config, object);
    if (value && value->kind == CONFIG_OBJECT && value->num > 0) {
        c->config.prefix = prefix;
        *ret_found = true;
    }
    return true;
}

static bool find_config(Checkpoint *c, const char *path, IoError *err)
{
    for (size_t i = 0; i < COUNT_OF(config_places); i++) {
        const char *file = checkpoint_beside(c->arena, path, config_places[i].file);
        bool found;
        if (!file_exists(file))
            continue;
        if (!read_place(c, file, config_places[i].prefix, &found, err))
            return false;
        if (!found)
            continue;
        c->method = config_text(&c->config, "quant_method");
        if (!c->method)
            c->method = config_places[i].method;
        return true;
    }
    c->config = (Config){0};
    return true;
}

/* Readers -------------------------------------------------------------------------------------- */

static const CheckpointReader *reader_of_method(const char *method)
{
    for (int i = 0; checkpoint_readers[i]; i++)
        for (int k = 0; checkpoint_readers[i]->methods[k]; k++)
            if (!strcmp(checkpoint_readers[i]->methods[k], method))
                return checkpoint_readers[i];
    return NULL;
}

static const CheckpointReader *reader_of_tensors(const Checkpoint *c)
{
    for (int i = 0; checkpoint_readers[i]; i++)
        if (checkpoint_readers[i]->detect(c))
            return checkpoint_readers[i];
    return NULL;
}

static bool unknown_method(const Checkpoint *c, IoError *err)
{
    Sb sb;

    sb_init(&sb, c->arena);
    for (int i = 0; checkpoint_readers[i]; i++)
        sb_printf(&sb, "%s%s", i ? ", " : "", checkpoint_readers[i]->name);
    return io_fail(
        err, E_CHECKPOINT_KIND,
        "%s: the weights are quantised by '%.60s', which is not read; read are %s; export "
        "them in one of these, or as bf16",
        c->config.file, c->method, sb.text);
}

static bool choose_reader(Checkpoint *c, IoError *err)
{
    const CheckpointReader *by_names = reader_of_tensors(c);

    c->reader = c->method ? reader_of_method(c->method) : by_names;
    if (c->method && !c->reader)
        return unknown_method(c, err);
    return true;
}

/* A configuration without a module that it could speak of: two facts that disagree. */
static bool nothing_found(const Checkpoint *c, IoError *err)
{
    const CheckpointReader *by_names = reader_of_tensors(c);

    if (!c->method || c->modules.num)
        return true;
    if (by_names && by_names != c->reader)
        return io_fail(err, E_CHECKPOINT,
                       "%s: says '%.60s', but the tensors' names are those of %s", c->config.file,
                       c->method, by_names->name);
    return io_fail(err, E_CHECKPOINT,
                   "%s: says that the weights are quantised by '%.60s', but no tensor is stored so",
                   c->config.file, c->method);
}

/* Scales that no module owns: their codes are missing, or stored as what is no code. */
static bool check_owned(const Checkpoint *c, IoError *err)
{
    static const char *const suffixes[] = {".weight_scale_inv", ".weight_scale", "._weight_scale",
                                           ".scales",           ".qzeros",       NULL};

    for (int i = 0; i < weights_num(c->weights); i++) {
        const TensorView *view = weights_at(c->weights, i);
        for (int s = 0; suffixes[s] && !map_has(&c->owner, view->name); s++) {
            const char *name = module_name(c->arena, view->name, suffixes[s]);
            const char *weight = name ? arena_printf(c->arena, "%s.weight", name) : NULL;
            const TensorView *other = weight ? weights_find(c->weights, weight) : NULL;
            if (other)
                return stored_fail(err, view, "belongs to %s, which is stored as %s, not quantised",
                                   weight, other->dtype);
            if (name)
                return stored_fail(err, view, "has no codes beside it");
        }
    }
    return true;
}

/* Siblings that others fuse share their second scale; here each keeps its own. */
static void check_siblings(Checkpoint *c, StoredModule *m, const char *first, const char *other)
{
    const char *parent = module_name(c->arena, m->name, first);
    StoredModule *sibling =
        parent ? map_get(&c->by_weight, arena_printf(c->arena, "%s%s", parent, other)) : NULL;
    const TensorView *a = m->part[PART_OUTER], *b = sibling ? sibling->part[PART_OUTER] : NULL;

    if (!a || !b || a->elements != 1 || b->elements != 1 || a->bytes != b->bytes)
        return;
    if (memcmp(a->data, b->data, (size_t)a->bytes))
        stored_doubt(c, m, "its second scale is not that of %s, as engines that fuse them need",
                     other);
    else
        stored_note(c, m, "its second scale is that of %s", sibling->name);
}

static void check_all_siblings(Checkpoint *c)
{
    static const char *const fused[][2] = {
        {"q_proj", "k_proj"}, {"q_proj", "v_proj"}, {"gate_proj", "up_proj"}};

    for (int i = 0; i < c->modules.num; i++)
        for (size_t k = 0; k < COUNT_OF(fused); k++)
            check_siblings(c, c->modules.elem[i], fused[k][0], fused[k][1]);
}

Checkpoint *checkpoint_open(Arena *arena, const WeightSet *weights, int num,
                            const char *const *path, IoError *err)
{
    Checkpoint *c = ARENA_NEW(arena, Checkpoint);

    *c = (Checkpoint){.arena = arena, .weights = weights};
    map_init(&c->by_weight, arena);
    map_init(&c->owner, arena);
    /* a GGUF file says itself how each tensor is stored; what lies beside it is of something else
     */
    if (num > 0 && !reader_gguf.detect(c) && !find_config(c, path[0], err))
        return NULL;
    if (!choose_reader(c, err))
        return NULL;
    if (c->reader && !c->reader->modules(c, err))
        return NULL;
    check_all_siblings(c);
    if (!nothing_found(c, err) || (c->modules.num && !check_owned(c, err)))
        return NULL;
    return c;
}

const StoredModule *checkpoint_find(const Checkpoint *c, const char *weight)
{
    return c->modules.num ? map_get(&c->by_weight, weight) : NULL;
}

/* Reading -------------------------------------------------------------------------------------- */

bool stored_fill(const StoredModule *m, QTensor *q, IoError *err)
{
    if (m->refused)
        return module_fail(err, m, "%s", m->refused);
    if (!scheme_equal(&q->scheme, &m->scheme))
        return module_fail(err, m, "is stored under another scheme than it is asked for");
    q->outer = 1;
    if (m->each)
        return stack_fill(m, q, err);
    return m->reader->read(m, q, err) && table_read(m, q, err);
}

bool stored_read(const StoredModule *m, QTensor *q, IoError *err)
{
    bool (*make)(QTensor *, const Scheme *, int64_t, int64_t) =
        m->reader->sets_all ? qtensor_init_unset : qtensor_init;

    if (!make(q, &m->scheme, m->rows, m->cols))
        return io_fail(err, E_MEMORY, "%s: memory is exhausted", m->name);
    if (stored_fill(m, q, err))
        return true;
    qtensor_free(q);
    return false;
}

static int64_t grid_size(const StoredModule *m)
{
    return scheme_row_blocks(&m->scheme, m->rows) * scheme_col_blocks(&m->scheme, m->cols);
}

static bool read_offsets(const StoredModule *m, float *ret, IoError *err)
{
    if (!m->reader->offsets(m, ret, err))
        return false;
    for (int64_t i = 0; i < grid_size(m); i++)
        if (!isfinite(ret[i]))
            return module_fail(err, m, "the float of group %lld is not a finite number",
                               (long long)i);
    return true;
}

bool stored_offsets(const StoredModule *m, float *ret, IoError *err)
{
    QTensor q;

    if (m->each)
        return stack_offsets(m, ret, err);
    if (!read_offsets(m, ret, err))
        return false;
    if (m->offset == OFFSET_ADDED)
        return true;
    if (!stored_read(m, &q, err))
        return false;
    for (int64_t i = 0; i < grid_size(m); i++)
        ret[i] = -(ret[i] * q.scale[i]);
    qtensor_free(&q);
    return true;
}

/* The values of q, of which `offset` has what scales and integers do not say. */
static void values_offset(const StoredModule *m, const QTensor *q, const float *offset, float *ret)
{
    int64_t height = m->scheme.block[0] ? m->scheme.block[0] : m->rows;
    int64_t width = m->scheme.block[1] ? m->scheme.block[1] : m->cols;

    for (int64_t r = 0; r < m->rows; r++) {
        for (int64_t c = 0; c < m->cols; c++) {
            int64_t at = r / height * q->col_blocks + c / width;
            float code = format_decode(m->scheme.fmt, qtensor_code(q, r, c));
            float *value = &ret[r * m->cols + c];
            *value = m->offset == OFFSET_ADDED ? code * q->scale[at] + offset[at]
                                               : (code - offset[at]) * q->scale[at];
        }
    }
}

static bool offset_values(const StoredModule *m, const QTensor *q, float *ret, IoError *err)
{
    float *offset = calloc((size_t)grid_size(m), sizeof *offset);
    bool ok = offset != NULL || io_fail(err, E_MEMORY, "%s: memory is exhausted", m->name);

    ok = ok && read_offsets(m, offset, err);
    if (ok)
        values_offset(m, q, offset, ret);
    free(offset);
    return ok;
}

bool stored_input_factors(const StoredModule *m, float *ret, IoError *err)
{
    const TensorView *view = m->part[PART_INPUT_FACTORS];

    format_to_f32(view->fmt, view->data, ret, (uint64_t)m->cols);
    return floats_finite(ret, (uint64_t)m->cols) ||
           stored_fail(err, view, "holds a value that is not a finite number");
}

/* x (f w)T = (x f) wT, f a factor for each column. */
static bool values_scale(const StoredModule *m, float *factor, float *ret, IoError *err)
{
    if (!stored_input_factors(m, factor, err))
        return false;
    for (int64_t r = 0; r < m->rows; r++)
        for (int64_t k = 0; k < m->cols; k++)
            ret[r * m->cols + k] *= factor[k];
    return true;
}

/* Rows of m->row_step to where they belong. */
static bool values_spread(const StoredModule *m, float *ret, IoError *err)
{
    size_t bytes = (size_t)m->cols * sizeof *ret;
    float *read = calloc((size_t)m->rows, bytes);

    if (!read)
        return io_fail(err, E_MEMORY, "%s: memory is exhausted", m->name);
    memcpy(read, ret, (size_t)m->rows * bytes);
    for (int64_t p = 0, height = m->rows / m->row_step; p < m->rows; p++)
        memcpy(ret + (p % height * m->row_step + p / height) * m->cols, read + p * m->cols, bytes);
    free(read);
    return true;
}

bool stored_values(const StoredModule *m, float *ret, IoError *err)
{
    QTensor q;

    if (m->each)
        return stack_values(m, ret, err);
    float *row = calloc((size_t)m->cols + 1, sizeof *row);
    if (!row)
        return io_fail(err, E_MEMORY, "%s: memory is exhausted", m->name);
    if (!stored_read(m, &q, err)) {
        free(row);
        return false;
    }
    bool ok = true;
    if (m->offset)
        ok = offset_values(m, &q, ret, err);
    else
        qtensor_dequantize(&q, ret);
    for (int64_t r = 0; ok && m->order && r < m->rows; r++) {
        float *at = ret + r * m->cols;
        memcpy(row, at, (size_t)m->cols * sizeof *row);
        for (int64_t k = 0; k < m->cols; k++)
            at[m->order[k]] = row[k];
    }
    if (ok && m->row_step)
        ok = values_spread(m, ret, err);
    if (ok && m->part[PART_INPUT_FACTORS])
        ok = values_scale(m, row, ret, err);
    qtensor_free(&q);
    free(row);
    return ok;
}
