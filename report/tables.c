/* The tables of a report's page. */
#include "report/report.h"
#include "report/table.h"
#include <math.h>

/* Microseconds, and with them the share of all kernels. */
static void put_time(Sb *sb, const Report *r, double us, int bucket)
{
    cell_real(sb, 2, us);
    if (bucket == r->shown)
        cell_real(sb, 1, 100 * us / report_us(r, 0, NULL, bucket));
}

static void time_headings(Sb *sb, const Report *r)
{
    for (int b = 0; b < r->buckets.num && r->device; b++)
        sb_printf(sb, "|#us %s%s", r->buckets.elem[b].name, b == r->shown ? "|#%" : "");
}

static void put_kernel_links(Sb *sb, const ReportLayer *layer)
{
    sb_put(sb, "<td>");
    for (int i = 0; i < layer->kernels.num; i++)
        sb_printf(sb, "%s<a href=\"#k%d\">%d</a>", i ? ", " : "", layer->kernels.elem[i],
                  layer->kernels.elem[i]);
    sb_put(sb, layer->kernels.num ? "</td>" : "-</td>");
}

static void put_distance(Sb *sb, const CompareRow *row)
{
    const Distance *d = &row->d[0];
    if (isinf(d->sqnr) && d->sqnr > 0)
        cell_number(sb, "equal");
    else
        cell_real(sb, 2, d->sqnr);
    cell_real(sb, 7, d->cosine);
    cell_short(sb, d->max_abs);
    cell_short(sb, d->mean_abs);
}

/* Tables --------------------------------------------------------------------------------------- */

void report_buckets_table(Sb *sb, const Report *r)
{
    table_begin(sb, "size|#whole run, us|#sum of kernels, us|#activations, bytes");
    for (int b = 0; b < r->buckets.num; b++) {
        const ReportBucket *bucket = &r->buckets.elem[b];
        row_begin(sb, NULL);
        cell_text(sb, bucket->name);
        cell_real(sb, 1, bucket->run_us);
        cell_real(sb, 1, report_us(r, 0, NULL, b));
        cell_count(sb, bucket->bytes);
        row_end(sb);
    }
    table_end(sb);
}

static void put_layer(Sb *sb, const Report *r, const ReportLayer *layer)
{
    const CompareRow *row = report_errors(r, layer->name);
    const ReportKernel *kernel =
        layer->kernels.num ? &r->kernels.elem[layer->kernels.elem[0]] : NULL;
    row_begin(sb, NULL);
    cell_text(sb, layer->name);
    cell_text(sb, kernel ? kernel->weight : NULL);
    cell_text(sb, kernel ? kernel->act : NULL);
    cell_text(sb, layer->by);
    const char *experts = "";
    if (layer->experts)
        experts = arena_printf(r->arena, "%lld \xc3\x97 ", (long long)layer->experts);
    cell_number(sb, arena_printf(r->arena, "%s%lld \xc3\x97 %lld", experts, (long long)layer->n,
                                 (long long)layer->k));
    put_kernel_links(sb, layer);
    cell_count(sb, layer->bytes);
    for (int b = 0; b < r->buckets.num && r->device; b++)
        put_time(
            sb, r,
            layer->kernels.num ? report_us(r, layer->kernels.num, layer->kernels.elem, b) : NAN, b);
    if (row) {
        put_distance(sb, row);
        if (isnan(row->clipped[0]))
            cell_number(sb, "-");
        else
            cell_real(sb, 3, 100 * row->clipped[0]);
    }
    row_end(sb);
}

void report_layers_table(Sb *sb, const Report *r)
{
    Sb head;
    sb_init(&head, r->arena);
    sb_put(&head, "layer|weight|activation|quantiser|#N \xc3\x97 K|kernel|#bytes");
    time_headings(&head, r);
    if (r->errors)
        sb_put(&head, "|#SQNR, dB|#cosine|#largest error|#mean error|#clipped, %");
    table_begin(sb, head.text);
    for (int i = 0; i < r->layers.num; i++)
        put_layer(sb, r, &r->layers.elem[i]);
    table_end(sb);
}

void report_reasons_table(Sb *sb, const Report *r)
{
    table_begin(sb, "layer|weight|activation|why");
    for (int i = 0; i < r->layers.num; i++) {
        const ReportLayer *layer = &r->layers.elem[i];
        const ReportKernel *kernel =
            layer->kernels.num ? &r->kernels.elem[layer->kernels.elem[0]] : NULL;
        const char *chosen = report_choice_reason(r, layer->name);
        row_begin(sb, NULL);
        cell_text(sb, layer->name);
        cell_text(sb, kernel ? kernel->weight : NULL);
        cell_text(sb, kernel ? kernel->act : NULL);
        cell_lines(sb, chosen ? chosen : layer->why);
        row_end(sb);
    }
    table_end(sb);
}

void report_kernels_table(Sb *sb, const Report *r)
{
    Sb head;
    sb_init(&head, r->arena);
    sb_put(&head, "#kernel|family|layer|place|operations in it|#weight bytes");
    time_headings(&head, r);
    table_begin(sb, head.text);
    for (int i = 0; i < r->kernels.num; i++) {
        const ReportKernel *kernel = &r->kernels.elem[i];
        row_begin(sb, arena_printf(r->arena, "k%d", i));
        cell_number(sb, arena_printf(r->arena, "%d", i));
        cell_text(sb, kernel->family);
        cell_text(sb, kernel->layer);
        cell_text(sb, kernel->place);
        cell_lines(sb, kernel->absorbed);
        cell_count(sb, kernel->bytes);
        for (int b = 0; b < r->buckets.num && r->device; b++)
            put_time(sb, r, kernel->us[b], b);
        row_end(sb);
    }
    table_end(sb);
}

void report_outputs_table(Sb *sb, const Report *r)
{
    const Comparison *c = r->errors;
    table_begin(sb, "output|#SQNR, dB|#cosine|#largest error|#mean error");
    for (int i = 0; i < c->rows.num; i++) {
        if (c->rows.elem[i].is_layer)
            continue;
        row_begin(sb, NULL);
        cell_text(sb, c->rows.elem[i].name);
        put_distance(sb, &c->rows.elem[i]);
        row_end(sb);
    }
    table_end(sb);
    if (!c->logits)
        return;
    sb_put(sb, "<p>");
    markup_put(sb, c->logits);
    sb_printf(sb, ", %lld rows: divergence %.4g nats, the same choice in %.2f %%",
              (long long)c->num_rows, c->divergence[0], 100 * c->agreement[0]);
    if (c->has_labels)
        sb_printf(sb, ", accuracy %.4f against %.4f of the float model", c->accuracy[0],
                  c->float_accuracy);
    sb_put(sb, ".</p>\n");
}

void report_stops_table(Sb *sb, const Report *r)
{
    table_begin(sb, "kernel|layer|place|why the chain ends there");
    for (int i = 0; i < r->stops.num; i++) {
        const ReportStop *stop = &r->stops.elem[i];
        row_begin(sb, NULL);
        sb_printf(sb, "<td><a href=\"#k%d\">%d</a></td>", stop->kernel, stop->kernel);
        cell_text(sb, r->kernels.elem[stop->kernel].layer);
        cell_text(sb, stop->place);
        cell_lines(sb, stop->text);
        row_end(sb);
    }
    table_end(sb);
}

void report_picks_table(Sb *sb, const Report *r)
{
    table_begin(sb, "#launch|layer|operations|size|kernel|#expected, us|by|#roofline, %|not "
                    "taken|why apart");
    for (int i = 0; i < r->picks.num; i++) {
        const ReportPick *pick = &r->picks.elem[i];
        row_begin(sb, NULL);
        cell_number(sb, arena_printf(r->arena, "%d", pick->launch));
        cell_text(sb, pick->layer);
        cell_lines(sb, pick->absorbed);
        cell_lines(sb, pick->buckets);
        cell_text(sb, pick->text);
        cell_real(sb, 1, pick->us);
        cell_text(sb, pick->source);
        cell_real(sb, 0, 100 * pick->roofline);
        cell_lines(sb, pick->rejected);
        cell_lines(sb, !pick->apart ? ""
                       : !pick->remedy
                           ? arena_printf(r->arena, "%s %s", pick->apart_place, pick->apart)
                           : arena_printf(r->arena, "%s %s (%s)", pick->apart_place, pick->apart,
                                          pick->remedy));
        row_end(sb);
    }
    table_end(sb);
}

void report_fusion_table(Sb *sb, const Report *r)
{
    table_begin(sb, "target|size|#launches|#operations|#fused, %|#bytes moved|#fused, %");
    for (int i = 0; i < r->fusion.num; i++) {
        const ReportFusion *f = &r->fusion.elem[i];
        row_begin(sb, NULL);
        cell_text(sb, f->target);
        cell_text(sb, f->bucket);
        cell_count(sb, (uint64_t)f->share.launches);
        cell_count(sb, (uint64_t)f->share.ops);
        cell_real(sb, 1, f->share.ops ? 100.0 * f->share.fused_ops / f->share.ops : 0);
        cell_count(sb, (uint64_t)f->share.bytes);
        cell_real(sb, 1, f->share.bytes > 0 ? 100 * f->share.fused_bytes / f->share.bytes : 0);
        row_end(sb);
    }
    table_end(sb);
}

void report_ranges_table(Sb *sb, const Report *r)
{
    table_begin(sb, "layer|#low|#high|#outside, %|#rows|calibrator");
    for (int i = 0; i < r->ranges.num; i++) {
        const StaticRange *range = &r->ranges.elem[i];
        row_begin(sb, NULL);
        cell_text(sb, range->layer);
        cell_short(sb, range->lo);
        cell_short(sb, range->hi);
        cell_real(sb, 3, 100 * range->outside);
        cell_count(sb, range->rows > 0 ? (uint64_t)range->rows : 0);
        cell_text(sb, range->calibrator);
        row_end(sb);
    }
    table_end(sb);
}

void report_warnings_table(Sb *sb, const Report *r)
{
    table_begin(sb, "code|place|warning");
    for (int i = 0; i < r->warnings.num; i++) {
        const ReportWarning *warning = &r->warnings.elem[i];
        row_begin(sb, NULL);
        cell_text(sb, warning->code);
        cell_text(sb, warning->place);
        cell_lines(sb, warning->text);
        row_end(sb);
    }
    table_end(sb);
}

void report_sections_table(Sb *sb, const Report *r)
{
    table_begin(sb, "part|name|#bytes|hash (XXH3-128)");
    for (int i = 0; i < r->sections.num; i++) {
        const ReportSection *section = &r->sections.elem[i];
        row_begin(sb, NULL);
        cell_text(sb, section->kind);
        cell_text(sb, section->name);
        cell_count(sb, section->bytes);
        sb_put(sb, "<td><code>");
        markup_put(sb, section->hash);
        sb_put(sb, "</code></td>");
        row_end(sb);
    }
    table_end(sb);
}
