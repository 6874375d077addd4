/* A report as JSON: the numbers of the page. Times are nanoseconds. */
#include "report/report.h"
#include <math.h>
#include <string.h>

/* Members of an array, one a line. */
static void item(Sb *sb, int index)
{
    sb_put(sb, index ? ",\n    {" : "\n    {");
}

static void list_begin(Sb *sb, const char *key)
{
    sb_put(sb, ",\n  ");
    sb_put_json_string(sb, key, strlen(key));
    sb_put(sb, ": [");
}

static void list_end(Sb *sb)
{
    sb_put(sb, "\n  ]");
}

static void put_ns(Sb *sb, double us)
{
    if (isnan(us))
        sb_put(sb, "null");
    else
        sb_printf(sb, "%.0f", us * 1000);
}

static void put_times(Sb *sb, const Report *r, int num, const int *kernel)
{
    json_key(sb, "ns");
    sb_putc(sb, '[');
    for (int b = 0; b < r->buckets.num; b++) {
        sb_put(sb, b ? ", " : "");
        put_ns(sb, num ? report_us(r, num, kernel, b) : NAN);
    }
    sb_putc(sb, ']');
}

static void put_buckets(Sb *sb, const Report *r)
{
    list_begin(sb, "buckets");
    for (int b = 0; b < r->buckets.num; b++) {
        const ReportBucket *bucket = &r->buckets.elem[b];
        item(sb, b);
        json_text(sb, "name", bucket->name);
        json_count(sb, "activation_bytes", bucket->bytes);
        json_key(sb, "run_ns");
        put_ns(sb, bucket->run_us);
        json_key(sb, "kernels_ns");
        put_ns(sb, report_us(r, 0, NULL, b));
        sb_putc(sb, '}');
    }
    list_end(sb);
}

static void put_kernels(Sb *sb, const Report *r)
{
    list_begin(sb, "kernels");
    for (int i = 0; i < r->kernels.num; i++) {
        const ReportKernel *kernel = &r->kernels.elem[i];
        item(sb, i);
        json_text(sb, "layer", kernel->layer);
        json_text(sb, "family", kernel->family);
        json_text(sb, "place", kernel->place);
        json_text(sb, "operations", kernel->absorbed);
        json_text(sb, "weight", kernel->weight);
        json_text(sb, "activation", kernel->act);
        json_count(sb, "weight_bytes", kernel->bytes);
        put_times(sb, r, 1, &i);
        sb_putc(sb, '}');
    }
    list_end(sb);
}

static void put_layers(Sb *sb, const Report *r)
{
    list_begin(sb, "layers");
    for (int i = 0; i < r->layers.num; i++) {
        const ReportLayer *layer = &r->layers.elem[i];
        item(sb, i);
        json_text(sb, "name", layer->name);
        json_text(sb, "scheme", layer->scheme);
        json_text(sb, "quantiser", layer->by);
        const char *chosen = report_choice_reason(r, layer->name);
        json_text(sb, "why", chosen ? chosen : layer->why);
        if (layer->experts)
            json_count(sb, "experts", (uint64_t)layer->experts);
        json_count(sb, "n", (uint64_t)layer->n);
        json_count(sb, "k", (uint64_t)layer->k);
        json_count(sb, "bytes", layer->bytes);
        json_key(sb, "kernels");
        sb_putc(sb, '[');
        for (int k = 0; k < layer->kernels.num; k++)
            sb_printf(sb, "%s%d", k ? ", " : "", layer->kernels.elem[k]);
        sb_putc(sb, ']');
        put_times(sb, r, layer->kernels.num, layer->kernels.elem);
        sb_putc(sb, '}');
    }
    list_end(sb);
}

static void put_stops(Sb *sb, const Report *r)
{
    list_begin(sb, "stops");
    for (int i = 0; i < r->stops.num; i++) {
        const ReportStop *stop = &r->stops.elem[i];
        item(sb, i);
        json_count(sb, "kernel", (uint64_t)stop->kernel);
        json_text(sb, "place", stop->place);
        json_text(sb, "why", stop->text);
        sb_putc(sb, '}');
    }
    list_end(sb);
}

static void put_picks(Sb *sb, const Report *r)
{
    list_begin(sb, "gpu_kernels");
    for (int i = 0; i < r->picks.num; i++) {
        const ReportPick *pick = &r->picks.elem[i];
        item(sb, i);
        json_count(sb, "launch", (uint64_t)pick->launch);
        json_text(sb, "layer", pick->layer);
        json_text(sb, "sizes", pick->buckets);
        json_text(sb, "kernel", pick->text);
        json_key(sb, "expected_ns");
        put_ns(sb, pick->us);
        json_text(sb, "by", pick->source);
        json_text(sb, "not_taken", pick->rejected);
        json_number(sb, "roofline", pick->roofline);
        json_text(sb, "apart", pick->apart);
        json_text(sb, "apart_place", pick->apart_place);
        json_text(sb, "remedy", pick->remedy);
        sb_putc(sb, '}');
    }
    list_end(sb);
}

static void put_fusion(Sb *sb, const Report *r)
{
    list_begin(sb, "fusion");
    for (int i = 0; i < r->fusion.num; i++) {
        const ReportFusion *f = &r->fusion.elem[i];
        item(sb, i);
        json_text(sb, "target", f->target);
        json_text(sb, "sizes", f->bucket);
        json_count(sb, "launches", (uint64_t)f->share.launches);
        json_count(sb, "operations", (uint64_t)f->share.ops);
        json_count(sb, "fused_operations", (uint64_t)f->share.fused_ops);
        json_count(sb, "bytes", (uint64_t)f->share.bytes);
        json_count(sb, "fused_bytes", (uint64_t)f->share.fused_bytes);
        sb_putc(sb, '}');
    }
    list_end(sb);
}

static void put_ranges(Sb *sb, const Report *r)
{
    list_begin(sb, "ranges");
    for (int i = 0; i < r->ranges.num; i++) {
        const StaticRange *range = &r->ranges.elem[i];
        item(sb, i);
        json_text(sb, "layer", range->layer);
        json_number(sb, "low", range->lo);
        json_number(sb, "high", range->hi);
        json_number(sb, "outside", range->outside);
        json_text(sb, "calibrator", range->calibrator);
        sb_putc(sb, '}');
    }
    list_end(sb);
}

static void put_warnings(Sb *sb, const Report *r)
{
    list_begin(sb, "warnings");
    for (int i = 0; i < r->warnings.num; i++) {
        const ReportWarning *warning = &r->warnings.elem[i];
        item(sb, i);
        json_text(sb, "code", warning->code);
        json_text(sb, "place", warning->place);
        json_text(sb, "text", warning->text);
        sb_putc(sb, '}');
    }
    list_end(sb);
}

static void put_sections(Sb *sb, const Report *r)
{
    list_begin(sb, "parts");
    for (int i = 0; i < r->sections.num; i++) {
        const ReportSection *section = &r->sections.elem[i];
        item(sb, i);
        json_text(sb, "part", section->kind);
        json_text(sb, "name", section->name);
        json_count(sb, "bytes", section->bytes);
        json_text(sb, "hash", section->hash);
        sb_putc(sb, '}');
    }
    list_end(sb);
}

static void put_errors(Sb *sb, const Report *r)
{
    sb_put(sb, ",\n  ");
    if (!r->errors) {
        sb_put(sb, "\"errors\": null, \"no_errors\": ");
        sb_put_json_string(sb, r->no_errors, strlen(r->no_errors));
        return;
    }
    sb_put(sb, "\"errors\": {");
    json_text(sb, "inputs", r->inputs);
    comparison_json(r->errors, sb);
    sb_putc(sb, '}');
}

void report_json(Sb *sb, const Report *r)
{
    sb_put(sb, "{\n  \"model\": ");
    sb_put_json_string(sb, r->model, strlen(r->model));
    json_text(sb, "text", r->source);
    json_text(sb, "target", r->target);
    json_text(sb, "device", r->device);
    json_count(sb, "weight_bytes", r->weight_bytes);
    put_sections(sb, r);
    put_buckets(sb, r);
    put_kernels(sb, r);
    put_layers(sb, r);
    put_errors(sb, r);
    put_stops(sb, r);
    put_picks(sb, r);
    put_fusion(sb, r);
    put_ranges(sb, r);
    put_warnings(sb, r);
    sb_put(sb, ",\n  \"auto\": ");
    if (r->choice)
        choice_json(sb, r->choice);
    else
        sb_put(sb, "null\n");
    sb_put(sb, "}\n");
}
