/* checkpoint/fp8: 8-bit floats with scales beside, as DeepSeek-V3 and others store them.
 *
 *   X.weight           F8_E4M3 or F8_E5M2 [N, K]
 *   X.weight_scale_inv F32 or BF16 [ceil(N/b0), ceil(K/b1)]  which multiplies, whatever its name
 * says X.scale            the same under a newer name, U8 when they are powers of two
 *   X.weight_scale     F32: one number, or [N] or [N, 1]
 *   X.input_scale      F32: one number, the activation's static scale
 *
 * Layouts: github.com/deepseek-ai/DeepSeek-V3 (inference/kernel.py), github.com/vllm-project/vllm
 * (quantization/fp8.py, fbgemm_fp8.py). */
#include "checkpoint/checkpoint.h"

#include <math.h>
#include <string.h>

static const char *const methods[] = {"fp8", "fbgemm_fp8", NULL};
static const char *const scale_names[] = {".weight_scale_inv", ".weight_scale", ".scale"};

static bool is_fp8(const TensorView *view)
{
    return view->fmt == FMT_E4M3 || view->fmt == FMT_E5M2;
}

static const TensorView *scale_of(const Checkpoint *c, const char *module, const char **ret_suffix)
{
    for (size_t i = 0; i < COUNT_OF(scale_names); i++) {
        const TensorView *found =
            weights_find(c->weights, arena_printf(c->arena, "%s%s", module, scale_names[i]));
        *ret_suffix = scale_names[i];
        if (found)
            return found;
    }
    return NULL;
}

static bool detect(const Checkpoint *c)
{
    const char *suffix;

    for (int i = 0; i < weights_num(c->weights); i++) {
        const TensorView *view = weights_at(c->weights, i);
        const char *name = is_fp8(view) ? module_name(c->arena, view->name, ".weight") : NULL;
        if (name && scale_of(c, name, &suffix))
            return true;
    }
    return false;
}

/* Scales --------------------------------------------------------------------------------------- */

static bool block_size(Checkpoint *c, const StoredModule *m, int64_t block[2], IoError *err)
{
    const TensorView *scale = m->part[PART_SCALE];
    bool said = config_int(&c->config, "weight_block_size/0", &block[0]) &&
                config_int(&c->config, "weight_block_size/1", &block[1]);

    if (!said)
        return stored_fail(err, scale,
                           "is %s, but nothing says the size of its blocks: weight_block_size of "
                           "config.json does",
                           dims_text(c->arena, scale));
    if (block[0] < 1 || block[1] < 1)
        return io_fail(err, E_CHECKPOINT, "%s: weight_block_size holds a number below 1",
                       c->config.file);
    int64_t want[2] = {(m->rows + block[0] - 1) / block[0], (m->cols + block[1] - 1) / block[1]};
    if (want[0] == scale->dim[0] && want[1] == scale->dim[1])
        return true;
    return stored_fail(err, scale,
                       "is [%lld, %lld], but blocks of %lldx%lld of [%lld, %lld] "
                       "(weight_block_size) need [%lld, %lld]",
                       (long long)scale->dim[0], (long long)scale->dim[1], (long long)block[0],
                       (long long)block[1], (long long)m->rows, (long long)m->cols,
                       (long long)want[0], (long long)want[1]);
}

/* "e4m3", "float8_e4m3fn" and the like. */
static bool format_agrees(const Checkpoint *c, const StoredModule *m, IoError *err)
{
    const char *said = config_text(&c->config, "fmt");
    const char *name = format_info[m->scheme.fmt].name;

    return !said || (strstr(said, name) && !strstr(said, "fnuz")) || /* fnuz: another bias */
           stored_fail(err, m->part[PART_CODES], "is stored as %s, but %s says fmt '%.30s'",
                       m->part[PART_CODES]->dtype, c->config.file, said);
}

static bool settle_scheme(Checkpoint *c, StoredModule *m, IoError *err)
{
    const TensorView *scale = m->part[PART_SCALE], *codes = m->part[PART_CODES];
    Scheme *scheme = &m->scheme;

    m->rows = codes->dim[0];
    m->cols = codes->dim[1];
    scheme->fmt = codes->fmt;
    scheme->scale_fmt = scale->fmt == FMT_U8 ? FMT_E8M0 : scale->fmt;
    if (!format_agrees(c, m, err))
        return false;
    if (scale->fmt != FMT_F32 && scale->fmt != FMT_BF16 && scale->fmt != FMT_F16 &&
        scheme->scale_fmt != FMT_E8M0)
        return stored_fail(err, scale, "is stored as %s, which holds no scales", scale->dtype);
    if (scale->elements == 1 && scale->rank < 2) {
        m->layout = "per tensor";
        return true;
    }
    scheme->block[0] = 1;
    m->layout = "per channel";
    if (scale->elements == (uint64_t)m->rows &&
        (scale->rank == 1 || (scale->rank == 2 && scale->dim[1] == 1 &&
                              !config_find(&c->config, arena_printf(c->arena, "%sweight_block_size",
                                                                    c->config.prefix)))))
        return true;
    m->layout = "block";
    if (scale->rank != 2)
        return stored_fail(err, scale, "is %s, neither one scale, nor one a row, nor blocks",
                           dims_text(c->arena, scale));
    return block_size(c, m, scheme->block, err);
}

/* Activations ---------------------------------------------------------------------------------- */

static bool static_act(Checkpoint *c, StoredModule *m, IoError *err)
{
    const TensorView *view = m->part[PART_INPUT_SCALE];

    if (view->elements != 1 ||
        (view->fmt != FMT_F32 && view->fmt != FMT_BF16 && view->fmt != FMT_F16))
        return stored_fail(err, view, "is not one float");
    format_to_f32(view->fmt, view->data, &m->act.scale, 1);
    if (!(m->act.scale > 0) || !isfinite(m->act.scale))
        return stored_fail(err, view, "is %g, not a scale", (double)m->act.scale);
    m->act.is_static = true;
    m->act.scheme = (Scheme){.fmt = FMT_E4M3, .scale_fmt = FMT_F32};
    stored_note(c, m, "the activation's static scale is %g", (double)m->act.scale);
    return true;
}

static bool settle_act(Checkpoint *c, StoredModule *m, IoError *err)
{
    const char *scheme = config_text(&c->config, "activation_scheme");
    bool bound = c->method && !strcmp(c->method, "fbgemm_fp8");

    if (scheme && !strcmp(scheme, "static") && !m->part[PART_INPUT_SCALE])
        return module_fail(err, m, "activation_scheme is static, but there is no input_scale");
    if (!scheme && !bound && !m->part[PART_INPUT_SCALE])
        return true; /* nothing is said: the activation stays as it is */
    m->act.is_quantised = true;
    if (m->part[PART_INPUT_SCALE] && !(scheme && !strcmp(scheme, "dynamic")))
        return static_act(c, m, err);
    m->act.scheme = (Scheme){.fmt = FMT_E4M3, .scale_fmt = FMT_F32, .block = {1, 0}};
    if (m->scheme.block[1])
        m->act.scheme.block[1] = m->scheme.block[1];
    if (bound)
        stored_doubt(c, m,
                     "activation_scale_ub is not applied: larger activations keep their range");
    return true;
}

/* Modules -------------------------------------------------------------------------------------- */

static bool add_module(Checkpoint *c, const TensorView *codes, const char *name, IoError *err)
{
    const char *suffix;

    if (!is_fp8(codes))
        return true;
    if (!scale_of(c, name, &suffix)) {
        if (!c->method)
            return true; /* plain 8-bit floats */
        return stored_fail(err, codes,
                           "is stored as %s, but the module has no weight_scale_inv and "
                           "no weight_scale",
                           codes->dtype);
    }
    StoredModule *m = stored_add(c, name, "fp8");
    stored_part(c, m, PART_CODES, ".weight");
    stored_part(c, m, PART_SCALE, suffix);
    stored_part(c, m, PART_INPUT_SCALE, ".input_scale");
    if (codes->rank != 2 || !codes->elements)
        return stored_fail(err, codes, "is %s, not a matrix", dims_text(c->arena, codes));
    return settle_scheme(c, m, err) && settle_act(c, m, err);
}

static bool modules(Checkpoint *c, IoError *err)
{
    return modules_named(c, ".weight", add_module, err);
}

const CheckpointReader reader_fp8 = {
    .name = "fp8",
    .describe = "8-bit floats in blocks, per tensor, per channel; fbgemm",
    .methods = methods,
    .detect = detect,
    .modules = modules,
    .read = codes_read,
};
