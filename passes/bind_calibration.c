/* bind-calibration: opens the calibration file of the text and takes what it knows of each layer.
 *
 * Needs: bound weights, because the file names the model by a hash of structure and weights.
 * Leaves: m->activations. A file of another model, or made from other data than those that the text
 * names beside it, is an error. Nothing happens without `calibrate from`, with no_weights, and when
 * a new file is being made.
 *
 * Before                                        After
 *   calibrate from "m.calib"                      the same text; in memory, the statistics of
 *   %y = matmul %x, %w {layer = "w"}              what layer w sees
 */
#include "passes/calibration.h"
#include "passes/internal.h"
#include <stdlib.h>
#include <string.h>

static const char *key_text(Arena *arena, CacheKey key)
{
    return arena_printf(arena, "%016llx%016llx", (unsigned long long)key.half[1],
                        (unsigned long long)key.half[0]);
}

static bool keys_equal(CacheKey a, CacheKey b)
{
    return a.half[0] == b.half[0] && a.half[1] == b.half[1];
}

static void help_anew(Module *m)
{
    diag_help(m->diag, "make it anew: sinter calibrate MODEL -o %s", m->calibration_file);
}

static bool file_parse(Module *m, PassContext *ctx, Calibration *c)
{
    IoError err = {0};
    uint64_t size = 0;
    const char *path = path_resolve(ctx->scratch, ctx->options.base_dir, m->calibration_file);
    char *text = file_read(path, LIMIT_CALIBRATION_BYTES, &size, &err);
    bool ok = text && calibration_parse(c, m->arena, m->calibration_file, text, size, &err);

    if (!ok) {
        diag_error(m->diag, m->calibration_span, err.id, "%s", err.text);
        help_anew(m);
    }
    free(text);
    return ok;
}

static bool model_fits(Module *m, PassContext *ctx, const Calibration *c)
{
    CacheKey key = calibration_model_key(m, ctx->scratch);

    if (keys_equal(key, c->key))
        return true;
    diag_error(m->diag, m->calibration_span, E_CALIBRATION_MODEL,
               "%s was made for model \"%s\" with hash %s, but this model, \"%s\", has %s",
               m->calibration_file, c->model, key_text(ctx->scratch, c->key), m->name,
               key_text(ctx->scratch, key));
    help_anew(m);
    return false;
}

/* Data that the text names too are those of the file. */
static bool data_fit(Module *m, PassContext *ctx, const Calibration *c)
{
    bool ok = !m->calibrate_files.num || m->calibrate_files.num == c->data.num;

    for (int i = 0; i < m->calibrate_files.num && ok; i++) {
        CacheKey key;
        if (!calibration_data_key(m, ctx, i, &key))
            return false;
        if (keys_equal(key, c->data.elem[i].key))
            continue;
        diag_error(m->diag, m->calibration_span, E_CALIBRATION_MODEL,
                   "%s was made from \"%s\" with hash %s, but \"%s\" has %s", m->calibration_file,
                   c->data.elem[i].path, key_text(ctx->scratch, c->data.elem[i].key),
                   m->calibrate_files.elem[i], key_text(ctx->scratch, key));
        help_anew(m);
        return false;
    }
    if (ok)
        return true;
    diag_error(m->diag, m->calibration_span, E_CALIBRATION_MODEL,
               "%s was made from %d data files, but the text names %d", m->calibration_file,
               c->data.num, m->calibrate_files.num);
    help_anew(m);
    return false;
}

bool pass_bind_calibration(Module *m, PassContext *ctx)
{
    Calibration c;

    if (!m->calibration_file || ctx->options.no_weights || ctx->options.new_calibration)
        return false;
    if (!file_parse(m, ctx, &c) || !model_fits(m, ctx, &c) || !data_fit(m, ctx, &c))
        return false;
    m->activations = ARENA_NEW(m->arena, Map);
    map_init(m->activations, m->arena);
    for (int i = 0; i < c.records.num; i++)
        for (int k = 0; k < c.records.elem[i]->layers.num; k++)
            map_put(m->activations, c.records.elem[i]->layers.elem[k], &c.records.elem[i]->stats);
    return true;
}

/* Writing -------------------------------------------------------------------------------------- */

static bool any_layer(const Op *matmul, void *user)
{
    (void)matmul;
    (void)user;
    return true;
}

static void records_fill(Module *m, Calibration *c)
{
    Map named; /* layers, which several matmuls may be */

    map_init(&named, m->arena);
    for_each_op(op, &m->body) {
        const ActStats *stats = op->kind == OP_MATMUL ? activation_of(m, op) : NULL;
        CalibRecord *record = NULL;
        if (!stats || map_has(&named, op->attr.layer))
            continue;
        map_put(&named, op->attr.layer, op);
        for (int i = c->records.num - 1; i >= 0 && !record; i--)
            if (c->records.elem[i]->stats.lo == stats->lo)
                record = c->records.elem[i];
        if (!record) {
            record = ARENA_NEW(m->arena, CalibRecord);
            record->stats = *stats;
            ARRAY_PUSH(m->arena, &c->records, record);
        }
        ARRAY_PUSH(m->arena, &record->layers, op->attr.layer);
    }
}

bool calibration_write(Module *m, PassContext *ctx, const char *path)
{
    Calibration c = {.model = m->name ? m->name : ""};
    IoError err = {0};
    Sb sb;

    if (!m->calibrate_files.num) {
        calibration_missing(m, (Span){0}, c.model, "a calibration file");
        return false;
    }
    if (!activations_collect(m, ctx, any_layer, NULL))
        return false;
    c.key = calibration_model_key(m, ctx->scratch);
    for (int i = 0; i < m->calibrate_files.num; i++) {
        CalibData data = {.path = m->calibrate_files.elem[i]};
        if (!calibration_data_key(m, ctx, i, &data.key))
            return false;
        ARRAY_PUSH(m->arena, &c.data, data);
    }
    records_fill(m, &c);
    sb_init(&sb, ctx->scratch);
    calibration_print(&sb, &c);
    OutFile *out = outfile_create(path, 0666, &err);
    if (out)
        outfile_write(out, sb.text, sb.len);
    if (out && outfile_finish(out, &err))
        return true;
    diag_error(m->diag, (Span){0}, err.id, "%s", err.text);
    return false;
}
