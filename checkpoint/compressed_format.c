/* checkpoint/compressed_format: what a configuration of compressed-tensors says of its weights
 * beside codes and scales: the format, which must be that of the tensors, sparsity and transforms,
 * which are not read. */
#include "checkpoint/groups.h"

#include <string.h>

/* How tensors lie, which tells what `format` can say of them. */
enum {
    IN_WORDS = 1,
    IN_BYTES = 2,
    IN_FP8 = 4,
    IN_MXFP8 = 8,
    IN_NVFP4 = 16,
    IN_MXFP4 = 32,
    IN_ALL = 63
};
static const struct {
    const char *name;
    int kinds;
} formats[] = {
    {"pack-quantized", IN_WORDS},
    {"int-quantized", IN_BYTES},
    {"float-quantized", IN_FP8},
    {"naive-quantized", IN_BYTES | IN_FP8},
    {"nvfp4-pack-quantized", IN_NVFP4},
    {"mxfp4-pack-quantized", IN_MXFP4},
    {"mxfp8-quantized", IN_MXFP8},
    {"mixed-precision", IN_ALL}, /* groups say their own */
    {"dense", 0},                /* weights as they were before */
    {"fakequant", 0},
};

static int kinds_of(const StoredModule *m)
{
    FormatId scale = m->part[PART_SCALE]->fmt;

    switch (m->part[PART_CODES]->fmt) {
    case FMT_I8: return IN_BYTES;
    case FMT_U8: return m->part[PART_OUTER] || scale == FMT_E4M3 ? IN_NVFP4 : IN_MXFP4;
    case FMT_E4M3:
        return scale == FMT_U8 ? IN_MXFP8 : scale == FMT_E8M0 ? IN_FP8 | IN_MXFP8 : IN_FP8;
    default: return IN_WORDS;
    }
}

/* -1: there is no such format here. */
static int kinds_of_format(const char *format)
{
    for (size_t i = 0; i < COUNT_OF(formats); i++)
        if (!strcmp(formats[i].name, format))
            return formats[i].kinds;
    return -1;
}

static bool format_known(const Checkpoint *c, const char *format, IoError *err)
{
    static const char *const special[] = {"marlin-24", "sparse-24-bitmask", "sparse-bitmask"};

    for (size_t i = 0; i < COUNT_OF(special); i++)
        if (!strcmp(format, special[i]))
            return io_fail(err, E_CHECKPOINT_KIND,
                           "%s: format '%s' is not read: it is private to one kernel or sparse; "
                           "export it again as 'pack-quantized'",
                           c->config.file, format);
    return kinds_of_format(format) != -1 ||
           io_fail(err, E_CHECKPOINT_KIND,
                   "%s: format '%.60s' is not read; pack-quantized, int-, float-, naive-quantized, "
                   "nvfp4-, mxfp4-pack-quantized and mxfp8-quantized are",
                   c->config.file, format);
}

bool compressed_format(Checkpoint *c, StoredModule *m, const char *group, IoError *err)
{
    const char *format = config_text(&c->config, arena_printf(c->arena, "%s/format", group));
    size_t as = 0;

    if (!format)
        format = config_text(&c->config, "format");
    m->layout = format ? format : "compressed-tensors";
    if (format && !format_known(c, format, err))
        return false;
    if (!format || kinds_of_format(format) & kinds_of(m))
        return true;
    while (!(formats[as].kinds & kinds_of(m))) /* each kind has its format */
        as++;
    return stored_fail(err, m->part[PART_CODES],
                       "is %s beside scales of %s, as '%s' stores it, but %s says format '%.30s'",
                       m->part[PART_CODES]->dtype, m->part[PART_SCALE]->dtype, formats[as].name,
                       c->config.file, format);
}

static bool sparsity_read(const Checkpoint *c, IoError *err)
{
    const char *sparse = config_text(&c->config, "sparsity_config/format");

    return !sparse || !strcmp(sparse, "dense") ||
           io_fail(err, E_CHECKPOINT_KIND,
                   "%s: sparsity_config says format '%.60s', which is not read; export the weights "
                   "as 'dense'",
                   c->config.file, sparse);
}

/* Does all that the group `path` of transform_config applies lie in the weights already? */
static bool is_offline(Checkpoint *c, const char *path)
{
    const ConfigValue *apply = config_find(&c->config, arena_printf(c->arena, "%s/apply", path));

    if (!apply || apply->kind != CONFIG_ARRAY)
        return false;
    for (int i = 0; i < apply->num; i++) {
        const ConfigValue *where =
            config_find(&c->config, arena_printf(c->arena, "%s/apply/%d/location", path, i));
        if (!where || (strcmp(where->text, "weight_input") && strcmp(where->text, "weight_output")))
            return false;
    }
    return true;
}

static bool transforms_read(Checkpoint *c, IoError *err)
{
    const char *all = arena_printf(c->arena, "%stransform_config/config_groups/", c->config.prefix);
    size_t len = strlen(all);

    for (int i = 0; i < c->config.values.num; i++) {
        const char *path = c->config.values.elem[i].path;
        if (strncmp(path, all, len) || strchr(path + len, '/') || is_offline(c, path))
            continue;
        return io_fail(err, E_CHECKPOINT_KIND,
                       "%s: transform_config says that '%.60s' transforms activations at run time, "
                       "which is not read; export the checkpoint without it",
                       c->config.file, path + len);
    }
    return true;
}

bool compressed_config(Checkpoint *c, IoError *err)
{
    const char *format = config_text(&c->config, "format");

    return (!format || format_known(c, format, err)) && sparsity_read(c, err) &&
           transforms_read(c, err);
}
