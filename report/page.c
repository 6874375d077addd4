/* A report as one HTML page: everything inside, no scripts, nothing fetched. It is well-formed XML
 * as well, so that any parser reads it. */
#include "report/report.h"
#include "report/table.h"
#include <math.h>

static const char head[] =
    "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
    "style-src 'unsafe-inline'\"/>\n"
    "<meta name=\"viewport\" content=\"width=device-width\"/>\n";

static const char style[] =
    "<style>\n"
    "body { font: 14px/1.45 Helvetica, Arial, sans-serif; margin: 2em auto; max-width: 110em;\n"
    "    padding: 0 2em; color: #111; background: #fff }\n"
    "h1 { font-size: 1.6em } h2 { font-size: 1.2em; margin-top: 2em }\n"
    "table { border-collapse: collapse }\n"
    "th, td { padding: .2em .7em; border-bottom: 1px solid #ccc; text-align: left;\n"
    "    vertical-align: top; unicode-bidi: isolate; white-space: nowrap }\n"
    "thead th { border-bottom: 2px solid #888; position: sticky; top: 0; background: #fff }\n"
    ".n { text-align: right; font-variant-numeric: tabular-nums }\n"
    ".lines { white-space: pre-line; min-width: 18em }\n"
    ".wide { overflow-x: auto; max-height: 40em; overflow-y: auto }\n"
    ".graph { overflow: auto; max-height: 76em; border: 1px solid #ccc; background: #fff }\n"
    ".strip { display: block; margin: .5em 0; border: 1px solid #888 }\n"
    ".graph svg { display: block; margin: auto }\n"
    ".key span { padding: .15em .6em; border: 1px solid #888 }\n"
    "tr:target { background: #ffef9f }\n"
    "@media print { .wide, .graph { max-height: none } }\n"
    "</style>\n</head>\n<body>\n";

static void fact(Sb *sb, const char *name, const char *value)
{
    sb_put(sb, "<tr><th>");
    markup_put(sb, name);
    sb_put(sb, "</th><td>");
    markup_put(sb, value);
    sb_put(sb, "</td></tr>\n");
}

/* The worst of the outputs. */
static const char *error_text(Report *r)
{
    const CompareRow *worst = NULL;
    for (int i = 0; r->errors && i < r->errors->rows.num; i++) {
        const CompareRow *row = &r->errors->rows.elem[i];
        if (!row->is_layer && !(worst && worst->d[0].sqnr <= row->d[0].sqnr))
            worst = row;
    }
    if (!worst)
        return r->no_errors ? r->no_errors : "no output was compared";
    return arena_printf(r->arena, "%s: SQNR %.2f dB, cosine %.7f on %s", worst->name,
                        worst->d[0].sqnr, worst->d[0].cosine, r->inputs);
}

static void put_summary(Sb *sb, Report *r)
{
    sb_put(sb, "<table><tbody>\n");
    fact(sb, "text", r->source);
    fact(sb, "target", r->target);
    fact(sb, "measured on", r->device ? r->device : r->no_times);
    for (int i = 0; i < r->ports.num; i++)
        fact(sb, i ? "" : "ports", r->ports.elem[i]);
    fact(sb, "weights", arena_printf(r->arena, "%llu bytes", (unsigned long long)r->weight_bytes));
    fact(sb, "kernels", arena_printf(r->arena, "%d for %d layers", r->kernels.num, r->layers.num));
    fact(sb, "error against float", error_text(r));
    for (int i = 0; i < r->sections.num; i++)
        if (r->sections.elem[i].kind[0] == 'w')
            fact(sb, "hash of weights", r->sections.elem[i].hash);
    sb_put(sb, "</tbody></table>\n");
}

static void put_graphs(Sb *sb, Report *r)
{
    heading(sb, "Graph by time");
    if (!r->device)
        paragraph(sb, r->no_times);
    report_drawing(sb, r, COLOUR_TIME);
    heading(sb, "Graph by error");
    if (r->errors) {
        report_drawing(sb, r, COLOUR_ERROR);
        heading(sb, "Outputs against the float model");
        report_outputs_table(sb, r);
    } else {
        paragraph(sb, r->no_errors);
    }
}

static void put_decisions(Sb *sb, Report *r)
{
    heading(sb, "Why each layer has its format");
    report_reasons_table(sb, r);
    if (r->choice)
        report_choice(sb, r);
    heading(sb, "Where fusion stopped");
    if (r->stops.num)
        report_stops_table(sb, r);
    else
        paragraph(sb, "No chain of operations had to end before its kernel was complete.");
    heading(sb, "What runs inside fused kernels");
    report_fusion_table(sb, r);
    if (r->picks.num) {
        heading(sb, "Kernels of the GPU");
        report_picks_table(sb, r);
    }
    if (r->ranges.num) {
        heading(sb, "Static ranges");
        report_ranges_table(sb, r);
    }
    heading(sb, "Warnings");
    if (r->warnings.num)
        report_warnings_table(sb, r);
    else
        paragraph(sb, "None.");
}

void report_page(Sb *sb, Report *r)
{
    sb_put(sb, head);
    sb_put(sb, "<title>");
    markup_put(sb, r->model);
    sb_put(sb, "</title>\n");
    sb_put(sb, style);
    sb_put(sb, "<h1>");
    markup_put(sb, r->model);
    sb_put(sb, "</h1>\n");
    put_summary(sb, r);
    heading(sb, "Sizes");
    report_buckets_table(sb, r);
    put_graphs(sb, r);
    heading(sb, "Layers");
    if (!r->errors)
        paragraph(sb, arena_printf(r->arena, "Errors are missing: %s.", r->no_errors));
    report_layers_table(sb, r);
    heading(sb, "Kernels");
    report_kernels_table(sb, r);
    put_decisions(sb, r);
    heading(sb, "Parts of the compiled file");
    report_sections_table(sb, r);
    sb_put(sb, "</body>\n</html>\n");
}
