/* checkpoint/modelopt: NVIDIA's Model Optimizer, as its Hugging Face export writes it.
 *
 *   FP8    X.weight F8_E4M3 [N, K], X.weight_scale F32 [], X.input_scale F32 []; per channel: [N]
 *   NVFP4  X.weight U8 [N, K/2], even k low, X.weight_scale F8_E4M3 [N, K/16],
 *          X.weight_scale_2 F32 [], which multiplies, X.input_scale F32 []
 *   MXFP8  X.weight F8_E4M3, X.weight_scale U8 [N, K/32]
 *   INT4   X.weight U8 [N/2, K]: rows 2r (low) and 2r + 1, two's complement, X.weight_scale
 *          [N, K/g]
 * of any, X.pre_quant_scale [K] multiplies the input first.
 *
 * Layout: github.com/NVIDIA/Model-Optimizer (torch/export, torch/quantization/qtensor). */
#include "checkpoint/checkpoint.h"

#include <math.h>
#include <string.h>

static const char *const methods[] = {"modelopt", "modelopt_fp4", NULL};

static bool detect(const Checkpoint *c)
{
    return tensors_end_with(c, ".weight_scale_2");
}

static bool one_float(const TensorView *view, float *ret, IoError *err)
{
    if (view->elements != 1 || !view_is_float(view))
        return stored_fail(err, view, "is not one float");
    format_to_f32(view->fmt, view->data, ret, 1);
    return (*ret > 0 && isfinite(*ret)) ||
           stored_fail(err, view, "is %g, not a scale", (double)*ret);
}

/* Schemes -------------------------------------------------------------------------------------- */

static bool settle_nvfp4(StoredModule *m, IoError *err)
{
    const TensorView *codes = m->part[PART_CODES];
    int64_t dim[2] = {codes->dim[0], (codes->dim[1] * 2 + 15) / 16};

    m->rows = codes->dim[0];
    m->cols = codes->dim[1] * 2;
    m->layout = "nvfp4";
    scheme_find("nvfp4", &m->scheme);
    if (m->cols % 16)
        return stored_fail(err, codes, "has rows of %lld, which blocks of 16 do not fill",
                           (long long)m->cols);
    return view_is(err, m->part[PART_SCALE], "F8_E4M3", 2, dim) &&
           one_float(m->part[PART_OUTER], &m->real[0], err);
}

static bool settle_int4(StoredModule *m, IoError *err)
{
    const TensorView *codes = m->part[PART_CODES], *scale = m->part[PART_SCALE];

    m->rows = codes->dim[0] * 2;
    m->cols = codes->dim[1];
    m->layout = "int4, packed along rows";
    if (scale->rank != 2 || scale->dim[0] != m->rows || scale->dim[1] < 1 ||
        m->cols % scale->dim[1] || !view_is_float(scale))
        return stored_fail(err, scale, "holds no scales of groups of [%lld, %lld]",
                           (long long)m->rows, (long long)m->cols);
    int64_t group = m->cols / scale->dim[1];
    m->scheme = (Scheme){
        .fmt = FMT_I4, .scale_fmt = scale->fmt, .block = {1, group == m->cols ? 0 : group}};
    return true;
}

static bool settle_fp8(StoredModule *m, IoError *err)
{
    const TensorView *codes = m->part[PART_CODES], *scale = m->part[PART_SCALE];

    m->rows = codes->dim[0];
    m->cols = codes->dim[1];
    m->scheme = (Scheme){.fmt = FMT_E4M3, .scale_fmt = scale->fmt};
    m->layout = "fp8";
    if (scale->fmt == FMT_U8) {
        int64_t dim[2] = {m->rows, (m->cols + 31) / 32};
        scheme_find("mxfp8", &m->scheme);
        m->layout = "mxfp8";
        return view_is(err, scale, "U8", 2, dim);
    }
    if (!view_is_float(scale))
        return stored_fail(err, scale, "is stored as %s, which holds no scales", scale->dtype);
    if (scale->elements == (uint64_t)m->rows && m->rows > 1)
        m->scheme.block[0] = 1;
    else if (scale->elements != 1)
        return stored_fail(err, scale, "is neither one scale nor one for each of %lld rows",
                           (long long)m->rows);
    return true;
}

static bool settle_act(Checkpoint *c, StoredModule *m, IoError *err)
{
    const char *algorithm = config_text(&c->config, "quant_algo");

    if (m->scheme.fmt == FMT_E2M1 && m->part[PART_INPUT_SCALE]) {
        m->act = (StoredAct){.is_quantised = true, .is_static = true};
        scheme_find("nvfp4", &m->act.scheme);
        return one_float(m->part[PART_INPUT_SCALE], &m->act.scale, err);
    }
    if (m->scheme.fmt == FMT_E2M1 || m->scheme.fmt == FMT_I4) {
        if (m->part[PART_INPUT_SCALE])
            stored_doubt(c, m, "the activation stays as it is: its own scale is for other kernels");
        return true;
    }
    m->act = (StoredAct){.is_quantised = true, .scheme = {.fmt = FMT_E4M3, .scale_fmt = FMT_F32}};
    if (m->part[PART_INPUT_SCALE]) {
        m->act.is_static = true;
        return one_float(m->part[PART_INPUT_SCALE], &m->act.scale, err);
    }
    if (m->scheme.block[1])
        scheme_find("mxfp8", &m->act.scheme);
    else if (algorithm && !strcmp(algorithm, "FP8_PER_CHANNEL_PER_TOKEN"))
        m->act.scheme.block[0] = 1;
    else
        m->act.is_quantised = false;
    return true;
}

/* Modules -------------------------------------------------------------------------------------- */

static bool add_module(Checkpoint *c, const TensorView *codes, const char *name, IoError *err)
{
    if (codes->fmt != FMT_E4M3 && codes->fmt != FMT_U8)
        return true;
    StoredModule *m = stored_add(c, name, "modelopt");

    stored_part(c, m, PART_CODES, ".weight");
    stored_part(c, m, PART_OUTER, ".weight_scale_2");
    stored_part(c, m, PART_INPUT_SCALE, ".input_scale");
    if (!stored_part(c, m, PART_SCALE, ".weight_scale"))
        return stored_fail(err, codes, "is stored as %s, but the module has no weight_scale",
                           codes->dtype);
    stored_part(c, m, PART_INPUT_FACTORS, ".pre_quant_scale");
    if (codes->rank != 2 || !codes->elements)
        return stored_fail(err, codes, "is %s, not a matrix", dims_text(c->arena, codes));
    bool ok = codes->fmt == FMT_E4M3 ? settle_fp8(m, err)
              : m->part[PART_OUTER]  ? settle_nvfp4(m, err)
                                     : settle_int4(m, err);
    return ok && settle_act(c, m, err) && input_factors_settle(c, m, err);
}

static bool modules(Checkpoint *c, IoError *err)
{
    return modules_named(c, ".weight", add_module, err);
}

/* Reading -------------------------------------------------------------------------------------- */

static bool read(const StoredModule *m, QTensor *q, IoError *err)
{
    const uint8_t *codes = m->part[PART_CODES]->data;

    if (m->scheme.fmt == FMT_I4) {
        for (int64_t n = 0; n < m->rows; n++)
            nibbles_of_bytes(codes + n / 2 * m->cols, (int)(n % 2 * 4), 15,
                             q->codes + (uint64_t)n * q->row_bytes, m->cols);
    } else {
        memcpy(q->codes, codes, q->codes_bytes);
    }
    if (m->scheme.outer)
        q->outer = m->real[0];
    return scales_read(m->part[PART_SCALE], false, q, err);
}

const CheckpointReader reader_modelopt = {
    .name = "modelopt",
    .describe = "NVIDIA's Model Optimizer: fp8, nvfp4, mxfp8, int4",
    .methods = methods,
    .detect = detect,
    .modules = modules,
    .read = read,
};
