/* A drawing as SVG, for machines without Graphviz and for reports. */
#include "report/graph.h"
#include "report/markup.h"
#include <math.h>

#define LINE_HEIGHT 15.0

static void put_lines(Sb *sb, const GraphNode *node)
{
    double middle = node->x + node->width / 2, y = node->y + LINE_HEIGHT + 1;
    sb_printf(sb, "<text x=\"%.1f\" y=\"%.1f\" font-weight=\"bold\"", middle, y);
    if (node->ink)
        sb_printf(sb, " fill=\"%s\"", node->ink);
    sb_putc(sb, '>');
    markup_put(sb, node->title);
    sb_put(sb, "</text>\n");
    for (int i = 0; i < node->line.num; i++) {
        y += LINE_HEIGHT;
        sb_printf(sb, "<text x=\"%.1f\" y=\"%.1f\"", middle, y);
        if (node->ink)
            sb_printf(sb, " fill=\"%s\"", node->ink);
        sb_putc(sb, '>');
        markup_put(sb, node->line.elem[i]);
        sb_put(sb, "</text>\n");
    }
}

static void put_box(Sb *sb, const GraphNode *node)
{
    static const char *const fill[] = {[NODE_INPUT] = "#e6f0e6",
                                       [NODE_OUTPUT] = "#e6f0e6",
                                       [NODE_OP] = "#ffffff",
                                       [NODE_KERNEL] = "#dfe8f6"};
    double radius = node->kind == NODE_OP ? 0 : node->kind == NODE_KERNEL ? 6 : node->height / 2;
    if (node->link) {
        sb_put(sb, "<a href=\"");
        markup_put(sb, node->link);
        sb_put(sb, "\">");
    }
    if (node->tip) {
        sb_put(sb, "<g><title>");
        markup_put(sb, node->tip);
        sb_put(sb, "</title>\n");
    }
    sb_printf(sb,
              "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"%.1f\" "
              "fill=\"%s\" stroke=\"#444\"/>\n",
              node->x, node->y, node->width, node->height, radius,
              node->fill ? node->fill : fill[node->kind]);
    put_lines(sb, node);
    if (node->tip)
        sb_put(sb, "</g>");
    if (node->link)
        sb_put(sb, "</a>\n");
}

/* From the foot of one column to the head of the next, between the two. */
static void put_climb(Sb *sb, const Graph *g, double y, double x1, double y1)
{
    enum { STEP = 9 };
    double gutter = g->left + floor((x1 - g->left) / g->column) * g->column - STEP;
    sb_printf(sb, "V%.1fH%.1fV%.1fH%.1fV%.1f", y + STEP, gutter, y1 - STEP, x1, y1);
}

/* Curves between the rows, straight lines past the boxes of a row. *drawn: bends from the same node
 * that other arrows have drawn; what they share is drawn once. */
static void put_arrow(Sb *sb, const Graph *g, const GraphEdge *edge, int *drawn)
{
    const GraphNode *from = &g->nodes.elem[edge->from];
    const GraphNode *to = &g->nodes.elem[edge->to];
    int first = *drawn < edge->num_bends ? *drawn : edge->num_bends;
    const GraphBend *bend = edge->num_bends ? &g->bends.elem[edge->first_bend] : NULL;
    double x = first ? bend[first - 1].x : from->x + from->width / 2;
    double y = first ? bend[first - 1].bottom : from->y + from->height;
    double label_x = x, label_y = y;
    sb_printf(sb, "<path d=\"M%.1f %.1f", x, y);
    for (int i = first; i <= edge->num_bends; i++) {
        bool is_last = i == edge->num_bends;
        double x1 = is_last ? to->x + to->width / 2 : bend[i].x, y1 = is_last ? to->y : bend[i].top;
        double half = (y1 - y) / 2;
        if (y1 < y)
            put_climb(sb, g, y, x1, y1);
        else
            sb_printf(sb, "C%.1f %.1f %.1f %.1f %.1f %.1f", x, y + half, x1, y1 - half, x1, y1);
        if (i == first) {
            label_x = (x + x1) / 2;
            label_y = (y + y1) / 2 + 3;
        }
        if (!is_last)
            sb_printf(sb, "V%.1f", bend[i].bottom);
        x = x1;
        y = is_last ? y1 : bend[i].bottom;
    }
    *drawn = edge->num_bends > *drawn ? edge->num_bends : *drawn;
    sb_printf(sb, "\" fill=\"none\" stroke=\"#777\" marker-end=\"url(#%sa)\"/>\n",
              g->id ? g->id : "");
    if (!edge->label)
        return;
    sb_printf(sb, "<text x=\"%.1f\" y=\"%.1f\" font-size=\"9\" fill=\"#777\">", label_x, label_y);
    markup_put(sb, edge->label);
    sb_put(sb, "</text>\n");
}

void graph_write_svg(Sb *sb, Graph *g)
{
    graph_layout(g);
    sb_printf(sb,
              "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
              "viewBox=\"%.1f 0 %.1f %.1f\" "
              "font-family=\"Helvetica,Arial,sans-serif\" font-size=\"11\" "
              "text-anchor=\"middle\">\n"
              "<defs><marker id=\"%sa\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" "
              "markerWidth=\"7\" markerHeight=\"7\" orient=\"auto\">"
              "<path d=\"M0 0L8 4L0 8z\" fill=\"#777\"/></marker></defs>\n<title>",
              g->width, g->height, g->left, g->width, g->height, g->id ? g->id : "");
    markup_put(sb, g->name);
    sb_put(sb, "</title>\n");
    int *drawn = ARENA_NEW_ARRAY(g->arena, int, (size_t)g->nodes.num + 1);
    for (int i = 0; i < g->edges.num; i++)
        put_arrow(sb, g, &g->edges.elem[i], &drawn[g->edges.elem[i].from]);
    for (int i = 0; i < g->nodes.num; i++)
        put_box(sb, &g->nodes.elem[i]);
    sb_put(sb, "</svg>\n");
}
