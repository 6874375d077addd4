/* checkpoint/compressed_act: how a module of compressed-tensors quantises its input, as the
 * configuration says of the activation; nothing that it says of the weight counts here.
 *
 * Integers and floats of 8 and 4 bits: dynamic per tensor, token and group of a token, static per
 * tensor with X.input_scale (and X.input_zero_point I8), nvfp4 with X.input_global_scale, which
 * divides. `scale_dtype` says to what a dynamic scale is rounded: to f32 where nothing is said, but
 * floats of 4 bits in groups of 32 were mxfp4 before the packages knew that word. */
#include "base/limits.h"
#include "checkpoint/groups.h"

#include <math.h>
#include <string.h>

static bool static_act(Checkpoint *c, StoredModule *m, const QuantArgs *args, IoError *err)
{
    const TensorView *scale = m->part[PART_INPUT_SCALE], *zero = m->part[PART_INPUT_ZERO];
    FormatId fmt = m->act.scheme.fmt;

    if (!scale || scale->elements != 1 || !view_is_float(scale))
        return module_fail(err, m,
                           "the activation is static, but there is no input_scale of one float");
    format_to_f32(scale->fmt, scale->data, &m->act.scale, 1);
    if (!(m->act.scale > 0) || !isfinite(m->act.scale))
        return stored_fail(err, scale, "is %g, not a scale", (double)m->act.scale);
    if (!args->symmetric && zero && zero->elements == 1 && !strcmp(zero->dtype, "I8"))
        m->act.zero = *(const int8_t *)zero->data;
    else if (!args->symmetric)
        return module_fail(err, m,
                           "the activation is asymmetric, but there is no input_zero_point");
    if (m->act.zero < format_code_min(fmt) || m->act.zero > format_code_max(fmt))
        return stored_fail(err, zero, "is %d, which is no code of %lld bits", (int)m->act.zero,
                           (long long)args->bits);
    m->act.is_static = true;
    stored_note(c, m, "the activation's static scale is %g", (double)m->act.scale);
    return true;
}

/* The scale beside the activation's groups divides, as the weight's does. */
static bool nvfp4_act(Checkpoint *c, StoredModule *m, IoError *err)
{
    const TensorView *global = m->part[PART_TABLE];
    float divisor;

    if (global->elements != 1 || global->fmt != FMT_F32)
        return stored_fail(err, global, "is %s of %s, not one F32", dims_text(c->arena, global),
                           global->dtype);
    memcpy(&divisor, global->data, sizeof divisor);
    if (!(divisor > 0) || !isfinite(divisor) || !isfinite(1 / divisor))
        return stored_fail(err, global, "is %g, not a scale", (double)divisor);
    m->act = (StoredAct){.is_quantised = true, .is_static = true, .scale = 1 / divisor};
    scheme_find("nvfp4", &m->act.scheme);
    stored_note(c, m, "the activation's global scale is %g, and divides", (double)divisor);
    return true;
}

/* FMT_NONE: its codes are none of ours. */
static FormatId element_of(const QuantArgs *args)
{
    if (!strcmp(args->type, "float"))
        return args->bits == 8 ? FMT_E4M3 : args->bits == 4 ? FMT_E2M1 : FMT_NONE;
    if (strcmp(args->type, "int") || (args->bits != 4 && args->bits != 8))
        return FMT_NONE;
    return format_of_bits((int)args->bits, true);
}

static FormatId scale_of(const QuantArgs *args)
{
    bool mx = !strcmp(args->type, "float") && args->group == 32;

    if (!args->scale_dtype)
        return mx && args->bits == 4 ? FMT_E8M0 : FMT_F32;
    FormatId fmt = scale_dtype_find(args->scale_dtype);
    return fmt == FMT_E8M0 && !mx ? FMT_NONE : fmt;
}

static bool is_strategy(const QuantArgs *args, const char *name)
{
    return !strcmp(args->strategy, name);
}

static bool in_groups(const QuantArgs *args)
{
    return is_strategy(args, "group") || is_strategy(args, "tensor_group");
}

static bool is_nvfp4(const StoredModule *m, const QuantArgs *args)
{
    return element_of(args) == FMT_E2M1 && args->group == 16 && m->part[PART_TABLE];
}

/* What of it is not read; NULL: all is. */
static const char *refusal(Checkpoint *c, const StoredModule *m, const QuantArgs *args)
{
    bool one_range = is_strategy(args, "tensor") || is_strategy(args, "tensor_group");

    if (element_of(args) == FMT_NONE)
        return arena_printf(c->arena, "activations of %lld bits of %.30s are not read",
                            (long long)args->bits, args->type);
    if (!args->symmetric && strcmp(args->type, "int"))
        return "asymmetric activations of floats are not read";
    if (!in_groups(args) && !is_strategy(args, "tensor") && !is_strategy(args, "token"))
        return arena_printf(c->arena, "activations of strategy '%.30s' are not read",
                            args->strategy);
    if (args->partly && strcmp(args->partly, "local"))
        return arena_printf(c->arena, "activations that are dynamic as '%.30s' are not read",
                            args->partly);
    if (is_strategy(args, "tensor_group") &&
        (element_of(args) != FMT_E2M1 || args->group != 16 || args->dynamic))
        return "activations of strategy 'tensor_group' are read of 4-bit floats in groups of 16 "
               "with a static second scale";
    if (!args->dynamic && !args->partly && !one_range && !is_nvfp4(m, args))
        return arena_printf(c->arena, "static activations of strategy '%.30s' are not read",
                            args->strategy);
    if (scale_of(args) == FMT_NONE)
        return arena_printf(c->arena,
                            "activations of %lld bits of %.30s under scales of '%.30s' are not "
                            "read",
                            (long long)args->bits, args->type, args->scale_dtype);
    return NULL;
}

static bool sizes_agree(const Checkpoint *c, const StoredModule *m, const QuantArgs *args,
                        IoError *err)
{
    if (in_groups(args) && (args->group < 1 || args->group > m->cols))
        return module_fail(err, m,
                           "has %lld columns, but %s says groups of %lld for its activation",
                           (long long)m->cols, config_name(c), (long long)args->group);
    if (!in_groups(args) && args->group > 0)
        return module_fail(err, m,
                           "%s says groups of %lld for its activation, but strategy '%.30s'",
                           config_name(c), (long long)args->group, args->strategy);
    if (args->partly && !is_strategy(args, "tensor_group"))
        return module_fail(err, m,
                           "%s says that its activation is dynamic as '%.30s', which goes with "
                           "strategy 'tensor_group', but strategy '%.30s'",
                           config_name(c), args->partly, args->strategy);
    return true;
}

bool compressed_act(Checkpoint *c, StoredModule *m, const char *group, IoError *err)
{
    QuantArgs args;

    if (!args_read(c, group, "input_activations", &args) || m->refused)
        return true;
    m->refused = refusal(c, m, &args);
    if (m->refused)
        return true;
    if (!sizes_agree(c, m, &args, err))
        return false;
    if (is_nvfp4(m, &args))
        return nvfp4_act(c, m, err);
    if (is_strategy(&args, "tensor_group"))
        return module_fail(err, m,
                           "the activation's second scale is static, but there is no "
                           "input_global_scale");
    m->act = (StoredAct){.is_quantised = true};
    m->act.scheme = (Scheme){.fmt = element_of(&args), .scale_fmt = scale_of(&args)};
    m->act.scheme.zero = args.symmetric ? ZERO_NONE : ZERO_INT;
    if (!args.dynamic) {
        m->act.scheme.scale_fmt = FMT_F32; /* the scale is there, and needs no rounding */
        return static_act(c, m, &args, err);
    }
    m->act.scheme.block[0] = !is_strategy(&args, "tensor");
    m->act.scheme.block[1] = in_groups(&args) ? args.group : 0;
    return true;
}
