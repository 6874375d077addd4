/* The graph of a report, coloured. One hue from pale to dark each, so that the order shows without
 * seeing colours, too. */
#include "report/markup.h"
#include "report/report.h"
#include <math.h>
#include <string.h>

typedef struct Scale {
    int pale[3], dark[3];
} Scale;
static const Scale scale[] = {
    [COLOUR_TIME] = {{255, 246, 229}, {178, 48, 16}},
    [COLOUR_ERROR] = {{236, 240, 252}, {74, 20, 120}},
};

/* Errors are shown between these, in dB. */
#define BEST_SQNR  50.0
#define WORST_SQNR 10.0
#define DARK       0.55 /* from here on text is white */

/* part: 0 pale .. 1 dark */
static const char *colour(Arena *arena, ReportColour what, double part)
{
    const Scale *s = &scale[what];
    int c[3];
    part = part < 0 ? 0 : part > 1 ? 1 : part;
    for (int i = 0; i < 3; i++)
        c[i] = (int)lround(s->pale[i] + part * (s->dark[i] - s->pale[i]));
    return arena_printf(arena, "#%02x%02x%02x", (unsigned)c[0], (unsigned)c[1], (unsigned)c[2]);
}

static void paint(Arena *arena, GraphNode *node, ReportColour what, double part)
{
    node->fill = colour(arena, what, part);
    node->ink = part > DARK ? "#ffffff" : NULL;
}

static double sqnr_part(double sqnr)
{
    return (BEST_SQNR - sqnr) / (BEST_SQNR - WORST_SQNR);
}

static double node_us(const Report *r, int node, int bucket)
{
    const ReportNode *n = &r->node[node];
    return n->kernels.num ? report_us(r, n->kernels.num, n->kernels.elem, bucket) : NAN;
}

static double longest_us(const Report *r)
{
    double most = 0;
    for (int i = 0; i < r->graph.nodes.num; i++)
        most = fmax(most, node_us(r, i, r->shown)); /* fmax leaves NaN out */
    return most;
}

static void add_line(Report *r, GraphNode *node, const char *text)
{
    ARRAY_PUSH(r->arena, &node->line, text);
}

static void show_time(Report *r, int index, GraphNode *node, double most)
{
    double us = node_us(r, index, r->shown);
    Sb tip;
    sb_init(&tip, r->arena);
    sb_put(&tip, node->title);
    for (int i = 0; i < r->node[index].kernels.num; i++)
        sb_printf(&tip, "\n%s", r->kernels.elem[r->node[index].kernels.elem[i]].absorbed);
    for (int b = 0; b < r->buckets.num; b++)
        if (!isnan(node_us(r, index, b)))
            sb_printf(&tip, "\n%s: %.3f us, %.1f %%", r->buckets.elem[b].name, node_us(r, index, b),
                      100 * node_us(r, index, b) / report_us(r, 0, NULL, b));
    node->tip = tip.text;
    node->fill = node->kind == NODE_KERNEL || node->kind == NODE_OP ? "#f4f4f4" : NULL;
    if (isnan(us))
        return;
    add_line(r, node,
             arena_printf(r->arena, "%.*f us  %.1f %%",
                          us < 10    ? 2
                          : us < 100 ? 1
                                     : 0,
                          us, 100 * us / report_us(r, 0, NULL, r->shown)));
    paint(r->arena, node, COLOUR_TIME, most > 0 ? us / most : 0);
}

static void put_error(Sb *tip, const char *name, const CompareRow *row)
{
    const Distance *d = &row->d[0];
    sb_printf(tip, "\n%s: sqnr %.2f dB, cosine %.7f, largest %.4g, mean %.4g", name, d->sqnr,
              d->cosine, d->max_abs, d->mean_abs);
    if (!isnan(row->clipped[0]))
        sb_printf(tip, ", clipped %.3f %%", 100 * row->clipped[0]);
}

/* A kernel has the errors of the layers in it, an output its own. */
static void show_error(Report *r, int index, GraphNode *node, const char *output)
{
    double worst = INFINITY;
    int num = 0;
    Sb tip;
    sb_init(&tip, r->arena);
    sb_put(&tip, node->title);
    for (int i = 0; i < r->node[index].layers.num + (output != NULL); i++) {
        const char *name = output ? output : r->layers.elem[r->node[index].layers.elem[i]].name;
        const CompareRow *row = report_errors(r, name);
        if (!row)
            continue;
        put_error(&tip, name, row);
        worst = fmin(worst, row->d[0].sqnr);
        num++;
    }
    node->tip = tip.text;
    node->fill = "#f4f4f4";
    if (!num)
        return;
    add_line(r, node,
             isinf(worst) && worst > 0
                 ? "equal"
                 : arena_printf(r->arena, "%s%.2f dB", num > 1 ? "worst " : "", worst));
    paint(r->arena, node, COLOUR_ERROR, sqnr_part(worst));
}

static void put_legend(Sb *sb, Report *r, ReportColour what, double most)
{
    sb_put(sb, "<p class=\"key\">");
    if (what == COLOUR_TIME) {
        sb_put(sb, "Time at ");
        markup_put(sb, r->buckets.elem[r->shown].name);
        sb_put(sb, ": ");
    } else {
        sb_put(sb, "Signal to noise of a layer's result: ");
    }
    for (int i = 0; i <= 4; i++) {
        double part = i / 4.0;
        sb_printf(sb, "<span style=\"background:%s;color:%s\">", colour(r->arena, what, part),
                  part > DARK ? "#fff" : "#000");
        if (what == COLOUR_TIME)
            sb_printf(sb, "%.*f us", most < 10 ? 2 : most < 100 ? 1 : 0, most * part);
        else
            sb_printf(sb, "%.0f dB%s", BEST_SQNR + part * (WORST_SQNR - BEST_SQNR),
                      i == 0   ? " or more"
                      : i == 4 ? " or less"
                               : "");
        sb_put(sb, "</span>");
    }
    sb_put(sb, "<span style=\"background:#f4f4f4;color:#000\">nothing measured</span></p>\n");
}

/* What a box is called that no layer names: its operations, as far as they are few; constants have
 * a type behind a colon. */
static const char *body_text(Report *r, const GraphNode *node)
{
    enum { FEW = 3 };
    int num = 0;
    Sb sb;
    sb_init(&sb, r->arena);
    for (int i = 0; i < node->line.num; i++) {
        if (strchr(node->line.elem[i], ':') || num++ >= FEW)
            continue;
        sb_printf(&sb, "%s%s", sb.len ? " " : "", node->line.elem[i]);
    }
    if (num > FEW)
        sb_put(&sb, " ..");
    return sb.text;
}

/* A copy of the graph, whose boxes say little: what they hold is in their tips and in the tables
 * that they lead to. */
static Graph bare_graph(Report *r, ReportColour what)
{
    Graph g = r->graph;
    int num = g.nodes.num, num_edges = g.edges.num;
    g.fold = true;
    g.id = what == COLOUR_TIME ? "t" : "e";
    g.nodes.elem = ARENA_NEW_ARRAY(r->arena, GraphNode, (size_t)num + 1);
    g.edges.elem = ARENA_NEW_ARRAY(r->arena, GraphEdge, (size_t)num_edges + 1);
    g.nodes.cap = num + 1;
    g.edges.cap = num_edges + 1;
    for (int i = 0; i < num; i++) {
        GraphNode *node = &g.nodes.elem[i];
        const GraphNode *from = &r->graph.nodes.elem[i];
        *node = *from;
        node->line.elem = NULL;
        node->line.num = node->line.cap = 0;
        if (from->kind == NODE_KERNEL && from->line.num && !r->node[i].layers.num)
            add_line(r, node, body_text(r, from));
        if (r->node[i].kernels.num)
            node->link = arena_printf(r->arena, "#k%d", r->node[i].kernels.elem[0]);
    }
    for (int i = 0; i < num_edges; i++) {
        g.edges.elem[i] = r->graph.edges.elem[i];
        g.edges.elem[i].label = NULL;
    }
    return g;
}

/* All kernels side by side in their order: what a tall graph does not show at once. */
static void put_strip(Sb *sb, Report *r, const Graph *g)
{
    enum { WIDTH = 1200, WIDEST = 24, HEIGHT = 26 };
    int num = 0;
    for (int i = 0; i < g->nodes.num; i++)
        num += r->node[i].kernels.num > 0;
    double width = num > WIDTH / WIDEST ? (double)WIDTH / num : WIDEST, x = 0;
    sb_printf(sb,
              "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%d\" "
              "class=\"strip\">\n",
              fmax(num * width, 1), HEIGHT);
    for (int i = 0; i < g->nodes.num; i++) {
        const GraphNode *node = &g->nodes.elem[i];
        if (!r->node[i].kernels.num)
            continue;
        sb_printf(sb, "<a href=\"%s\"><rect x=\"%.2f\" width=\"%.2f\" height=\"%d\" fill=\"%s\">",
                  node->link, x, width, HEIGHT, node->fill);
        sb_put(sb, "<title>");
        markup_put(sb, node->tip);
        sb_put(sb, "</title></rect></a>\n");
        x += width;
    }
    sb_put(sb, "</svg>\n");
}

void report_drawing(Sb *sb, Report *r, ReportColour what)
{
    Graph g = bare_graph(r, what);
    double most = longest_us(r);
    for (int i = 0; i < g.nodes.num; i++) {
        GraphNode *node = &g.nodes.elem[i];
        if (what == COLOUR_TIME)
            show_time(r, i, node, most);
        else
            show_error(r, i, node, node->kind == NODE_OUTPUT ? node->name : NULL);
    }
    if (what == COLOUR_ERROR || most > 0)
        put_legend(sb, r, what, most);
    put_strip(sb, r, &g);
    sb_put(sb, "<div class=\"graph\">\n");
    graph_write_svg(sb, &g);
    sb_put(sb, "</div>\n");
}
