/* import: what a quantised checkpoint holds, module by module, with what was checked; against the
 * original weights, how far they are from them. */
#include "checkpoint/checkpoint.h"
#include "quant/metrics.h"
#include "tools/import.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct Import {
    Work w;
    Sb sb;
    WeightSet *weights, *original;
    Checkpoint *c;
    bool as_json, with_weights;
    int num_doubts, num_misread;
} Import;

typedef struct ModuleReport {
    StoredFacts facts;
    Distance error;
    bool has_facts, has_error, is_misread;
    const char *doubt;
} ModuleReport;

/* Looking -------------------------------------------------------------------------------------- */

/* The tensor of this name as f32; NULL: there is none of this size. */
static float *original_values(const Import *im, const StoredModule *m)
{
    const TensorView *view = im->original ? weights_find(im->original, m->weight) : NULL;

    if (!view || !view_is_float(view) || view->elements != (uint64_t)m->rows * (uint64_t)m->cols)
        return NULL;
    float *values = calloc((size_t)view->elements, sizeof *values);
    if (values)
        format_to_f32(view->fmt, view->data, values, view->elements);
    return values;
}

static void module_compare(Import *im, const StoredModule *m, ModuleReport *r)
{
    float *want = original_values(im, m);
    float *have = want ? calloc((size_t)m->rows * (size_t)m->cols, sizeof *have) : NULL;
    IoError err = {0};

    if (have && stored_values(m, have, &err)) {
        r->error = distance_of_floats(have, want, (uint64_t)m->rows * (uint64_t)m->cols);
        r->has_error = true;
        /* a quantiser of b bits gives some 6 b - 4 dB, a misread weight about none */
        r->is_misread = r->error.sqnr < 5;
    }
    free(have);
    free(want);
}

/* Are the floats that take integers' place as zero points all finite? */
static bool offsets_good(const StoredModule *m, const QTensor *q, IoError *err)
{
    float *offset =
        m->offset ? calloc((size_t)(q->row_blocks * q->col_blocks), sizeof *offset) : NULL;
    bool ok = !m->offset || (offset && stored_offsets(m, offset, err));

    if (m->offset && !offset)
        memory_exhausted();
    free(offset);
    return ok;
}

static bool module_look(Import *im, const StoredModule *m, ModuleReport *ret)
{
    QTensor q;
    IoError err = {0};

    *ret = (ModuleReport){0};
    if (!im->with_weights || m->refused)
        return true;
    if (!stored_read(m, &q, &err)) {
        work_io_error(&im->w, &err);
        return false;
    }
    bool ok = offsets_good(m, &q, &err);
    if (ok)
        stored_facts(m, &q, &ret->facts);
    qtensor_free(&q);
    if (!ok) {
        work_io_error(&im->w, &err);
        return false;
    }
    ret->has_facts = true;
    ret->doubt = stored_facts_doubt(m, &ret->facts);
    module_compare(im, m, ret);
    im->num_doubts += m->doubts.num + (ret->doubt != NULL);
    im->num_misread += ret->is_misread;
    return true;
}

/* Text ----------------------------------------------------------------------------------------- */

static void put_act(Sb *sb, const StoredAct *act)
{
    if (!act->is_quantised)
        return;
    sb_put(sb, "    activation ");
    scheme_print(sb, &act->scheme, true);
    if (act->is_static) {
        sb_put(sb, " static, scale ");
        sb_put_f32(sb, act->scale);
        if (act->scheme.zero)
            sb_printf(sb, ", zero point %d", (int)act->zero);
    } else {
        sb_put(sb, " dynamic");
    }
    sb_putc(sb, '\n');
}

static void put_facts(Sb *sb, const StoredModule *m, const StoredFacts *f)
{
    sb_printf(sb, "    %d of %d codes occur, mean %.2f steps off zero, scales %.4g .. %.4g",
              f->used, stored_codes(m), f->mean, (double)f->scale_min, (double)f->scale_max);
    if (m->scheme.zero && !m->offset)
        sb_printf(sb, ", zero points %d .. %d", (int)f->zero_min, (int)f->zero_max);
    if (scheme_is_integer(&m->scheme))
        sb_printf(sb, ", %.0f %% of groups use the range", 100 * f->full);
    sb_putc(sb, '\n');
}

static void put_module(Import *im, const StoredModule *m, const ModuleReport *r)
{
    Sb *sb = &im->sb;

    sb_printf(sb, "%s  [", m->name);
    if (m->experts)
        sb_printf(sb, "%lld, ", (long long)m->experts);
    sb_printf(sb, "%lld, %lld]  ", (long long)(m->experts ? m->rows / m->experts : m->rows),
              (long long)m->cols);
    scheme_print(sb, &m->scheme, false);
    sb_printf(sb, "\n    %s, said by %s\n", m->layout, m->said);
    if (m->offset)
        sb_put(sb, "    plus one float a group, which zero points that are no integers come to\n");
    put_act(sb, &m->act);
    for (int i = 0; i < m->notes.num; i++)
        sb_printf(sb, "    %s\n", m->notes.elem[i]);
    if (r->has_facts)
        put_facts(sb, m, &r->facts);
    if (r->has_error)
        sb_printf(sb, "    against the original: cosine %.6f, SQNR %.2f dB%s\n", r->error.cosine,
                  r->error.sqnr, r->is_misread ? ": MISREAD, or another model" : "");
    for (int i = 0; i < m->doubts.num; i++)
        sb_printf(sb, "    doubt: %s\n", m->doubts.elem[i]);
    if (r->doubt)
        sb_printf(sb, "    doubt: %s\n", r->doubt);
    if (m->refused)
        sb_printf(sb, "    refused: %s\n", m->refused);
}

/* JSON ----------------------------------------------------------------------------------------- */

static const char *scheme_text(Arena *arena, const Scheme *scheme, bool is_act)
{
    Sb sb;

    sb_init(&sb, arena);
    scheme_print(&sb, scheme, is_act);
    return sb.text;
}

static void put_module_json(Import *im, const StoredModule *m, const ModuleReport *r)
{
    Sb *sb = &im->sb;

    sb_putc(sb, '{');
    json_text(sb, "module", m->name);
    json_text(sb, "layout", m->layout);
    json_text(sb, "said_by", m->said);
    json_text(sb, "scheme", scheme_text(im->w.arena, &m->scheme, false));
    if (m->act.is_quantised)
        json_text(sb, "activation", scheme_text(im->w.arena, &m->act.scheme, true));
    if (m->refused)
        json_text(sb, "refused", m->refused);
    json_texts(sb, "notes", m->notes.elem, m->notes.num);
    json_key(sb, "doubts");
    sb_putc(sb, '[');
    for (int i = 0; i < m->doubts.num; i++)
        json_item(sb, m->doubts.elem[i]);
    if (r->doubt)
        json_item(sb, r->doubt);
    sb_putc(sb, ']');
    json_number(sb, "rows", (double)m->rows);
    json_number(sb, "columns", (double)m->cols);
    if (m->act.is_static)
        json_number(sb, "activation_scale", (double)m->act.scale);
    if (r->has_facts) {
        json_number(sb, "codes_used", r->facts.used);
        json_number(sb, "mean_steps", r->facts.mean);
        json_number(sb, "scale_min", (double)r->facts.scale_min);
        json_number(sb, "scale_max", (double)r->facts.scale_max);
        json_number(sb, "full_groups", r->facts.full);
    }
    if (r->has_error) {
        json_number(sb, "cosine", r->error.cosine);
        json_number(sb, "sqnr", r->error.sqnr);
    }
    sb_putc(sb, '}');
}

/* The whole ------------------------------------------------------------------------------------ */

/* Tensors of codes' dtypes that no module reads: what was not understood must show. */
static void put_left(Import *im)
{
    int plain = 0, left = 0;

    for (int i = 0; i < weights_num(im->weights); i++) {
        const TensorView *view = weights_at(im->weights, i);
        if (map_has(&im->c->owner, view->name))
            continue;
        bool is_plain = view_is_float(view) || view->fmt == FMT_F64;
        plain += is_plain;
        if (!is_plain && left++ < 20)
            sb_printf(&im->sb, "not read: %s, %s %s\n", view->name, view->dtype,
                      dims_text(im->w.arena, view));
    }
    if (left > 20)
        sb_printf(&im->sb, "not read: %d more\n", left - 20);
    sb_printf(&im->sb, "%d modules are stored quantised, %d tensors are plain, %d are not read\n",
              im->c->modules.num, plain, left);
}

static void put_head(Import *im)
{
    const Checkpoint *c = im->c;

    if (im->as_json)
        sb_put(&im->sb, "{\"modules\": [");
    else if (c->reader)
        sb_printf(&im->sb, "%s: %s\n", c->reader->name, c->reader->describe);
}

static bool open_all(Import *im, const char *path, const char *original)
{
    IoError err = {0};

    im->weights = weights_open(1, &path, &err);
    im->c = im->weights ? checkpoint_open(im->w.arena, im->weights, 1, &path, &err) : NULL;
    if (im->c && original)
        im->original = weights_open(1, &original, &err);
    if (im->c && (im->original || !original))
        return true;
    work_io_error(&im->w, &err);
    return false;
}

static bool report_all(Import *im)
{
    put_head(im);
    for (int i = 0; i < im->c->modules.num; i++) {
        const StoredModule *m = im->c->modules.elem[i];
        ModuleReport report;
        if (!module_look(im, m, &report))
            return false;
        if (im->as_json)
            sb_put(&im->sb, i ? ",\n" : "\n");
        if (im->as_json)
            put_module_json(im, m, &report);
        else
            put_module(im, m, &report);
    }
    if (im->as_json)
        sb_put(&im->sb, "\n]}\n");
    else
        put_left(im);
    return work_put(&im->w, NULL, im->sb.text, im->sb.len);
}

int cmd_import(Cli *cli)
{
    Import im = {.as_json = cli_has(cli, OPTION_JSON),
                 .with_weights = !cli_has(cli, OPTION_NO_WEIGHTS)};

    if (is_onnx(cli->operand.elem[0]))
        return import_onnx(cli, cli->operand.elem[0]);
    if (!work_init(&im.w, cli))
        return EXIT_INPUT;
    sb_init(&im.sb, im.w.arena);
    if (open_all(&im, cli->operand.elem[0], cli_get(cli, OPTION_ORIGINAL, NULL)))
        report_all(&im);
    weights_close(im.original);
    weights_close(im.weights);
    return work_end(&im.w, im.num_misread ? EXIT_MISMATCH : EXIT_OK);
}
