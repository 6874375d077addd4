/* checkpoint/mxfp4: the experts of gpt-oss.
 *
 *   X_blocks U8 [E, N, K/32, 16]  byte j of a block holds elements 2j (low) and 2j + 1
 *   X_scales U8 [E, N, K/32]      powers of two, 127 is 1
 *
 * A module is all experts, one below the other: a weight [E, N, K].
 *
 * Layout: github.com/openai/gpt-oss (gpt_oss/torch/weights.py). */
#include "checkpoint/checkpoint.h"

#include <string.h>

static const char *const methods[] = {"mxfp4", NULL};
static const struct {
    const char *codes, *scales;
} names[] = {{"_blocks", "_scales"}, {".blocks", ".scales"}};

static bool detect(const Checkpoint *c)
{
    return tensors_end_with(c, "_blocks") || tensors_end_with(c, "_weight.blocks");
}

static bool add_module(Checkpoint *c, const TensorView *codes, const char *name, const char *scales,
                       IoError *err)
{
    StoredModule *m = stored_add(c, name, "experts, mxfp4");
    int64_t dim[3];

    m->weight = name;
    m->part[PART_CODES] = codes;
    map_put(&c->owner, codes->name, m);
    if (!stored_part(c, m, PART_SCALE, scales))
        return stored_fail(err, codes, "the module has no scales");
    if (codes->rank != 4 || strcmp(codes->dtype, "U8") || codes->dim[3] != 16 || !codes->elements)
        return stored_fail(err, codes, "is %s of %s, not [experts, rows, blocks, 16] of U8",
                           dims_text(c->arena, codes), codes->dtype);
    memcpy(dim, codes->dim, sizeof dim);
    m->experts = dim[0];
    m->rows = dim[0] * dim[1];
    m->cols = dim[2] * 32;
    scheme_find("mxfp4", &m->scheme);
    return view_is(err, m->part[PART_SCALE], "U8", 3, dim);
}

static bool modules(Checkpoint *c, IoError *err)
{
    for (int i = 0; i < weights_num(c->weights); i++) {
        const TensorView *view = weights_at(c->weights, i);
        for (size_t n = 0; n < COUNT_OF(names); n++) {
            const char *name = module_name(c->arena, view->name, names[n].codes);
            if (name && !add_module(c, view, name, names[n].scales, err))
                return false;
        }
    }
    return true;
}

const CheckpointReader reader_mxfp4 = {
    .name = "mxfp4",
    .describe = "the experts of gpt-oss",
    .methods = methods,
    .detect = detect,
    .modules = modules,
    .read = codes_read,
};
