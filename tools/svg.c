/* A drawing as SVG, with a layout of its own for machines without Graphviz: each box stands one row
 * below the lowest box that it reads, and in its row near the middle of what it reads. */
#include "tools/graph.h"
#include <stdlib.h>
#include <string.h>

#define LINE_HEIGHT 15.0
#define CHAR_WIDTH  6.7
#define BOX_PAD     12.0
#define ROW_GAP     46.0
#define COLUMN_GAP  28.0
#define MARGIN      20.0

static void put_text(Sb *sb, const char *text)
{
    for (; *text; text++) {
        if (*text == '<')
            sb_put(sb, "&lt;");
        else if (*text == '>')
            sb_put(sb, "&gt;");
        else if (*text == '&')
            sb_put(sb, "&amp;");
        else if ((unsigned char)*text >= ' ')
            sb_putc(sb, *text);
    }
}

static void size_box(GraphNode *node)
{
    size_t widest = strlen(node->title);
    for (int i = 0; i < node->line.num; i++)
        if (strlen(node->line.elem[i]) > widest)
            widest = strlen(node->line.elem[i]);
    node->width = (double)widest * CHAR_WIDTH + 2 * BOX_PAD;
    node->height = (node->line.num + 1) * LINE_HEIGHT + BOX_PAD;
}

/* Rows: nodes come in topological order, so one sweep finds each longest path. */
static void assign_rows(Graph *g)
{
    for (int i = 0; i < g->nodes.num; i++) {
        GraphNode *node = &g->nodes.elem[i];
        node->row = 0;
        for (int k = 0; k < node->num_edges; k++) {
            int above = g->nodes.elem[g->edges.elem[node->first_edge + k].from].row;
            if (above + 1 > node->row)
                node->row = above + 1;
        }
        size_box(node);
    }
}

/* Where the middle of a node would like to be: the mean of the middles of what it reads. */
static double wanted_middle(const Graph *g, const GraphNode *node)
{
    double sum = 0;
    for (int k = 0; k < node->num_edges; k++) {
        const GraphNode *from = &g->nodes.elem[g->edges.elem[node->first_edge + k].from];
        sum += from->x + from->width / 2;
    }
    return node->num_edges ? sum / node->num_edges : 0;
}

static int by_row(const void *a, const void *b)
{
    const GraphNode *const *na = a, *const *nb = b;
    if ((*na)->row != (*nb)->row)
        return (*na)->row < (*nb)->row ? -1 : 1;
    return *na < *nb ? -1 : *na > *nb;
}

static int by_middle(const void *a, const void *b)
{
    const GraphNode *const *na = a, *const *nb = b;
    if ((*na)->x < (*nb)->x || (*na)->x > (*nb)->x)
        return (*na)->x < (*nb)->x ? -1 : 1;
    return *na < *nb ? -1 : *na > *nb;
}

/* One row, side by side without overlap; returns its height. */
static double place_row(const Graph *g, GraphNode **node, int num, double y)
{
    double right = -1e30, height = 0;
    for (int i = 0; i < num; i++)
        node[i]->x = wanted_middle(g, node[i]);
    qsort(node, (size_t)num, sizeof *node, by_middle);
    for (int i = 0; i < num; i++) {
        node[i]->x -= node[i]->width / 2;
        if (node[i]->x < right + COLUMN_GAP)
            node[i]->x = right + COLUMN_GAP;
        node[i]->y = y;
        right = node[i]->x + node[i]->width;
        if (node[i]->height > height)
            height = node[i]->height;
    }
    return height;
}

/* Returns the height of the drawing. */
static double place_rows(Graph *g)
{
    int num = g->nodes.num;
    double y = MARGIN;
    GraphNode **node = ARENA_NEW_ARRAY(g->arena, GraphNode *, (size_t)num + 1);
    assign_rows(g);
    for (int i = 0; i < num; i++)
        node[i] = &g->nodes.elem[i];
    qsort(node, (size_t)num, sizeof *node, by_row);
    for (int i = 0; i < num;) {
        int first = i;
        while (i < num && node[i]->row == node[first]->row)
            i++;
        y += place_row(g, node + first, i - first, y) + ROW_GAP;
    }
    return y - (num ? ROW_GAP : 0) + MARGIN;
}

static void put_box(Sb *sb, const GraphNode *node)
{
    static const char *const fill[] = {[NODE_INPUT] = "#e6f0e6",
                                       [NODE_OUTPUT] = "#e6f0e6",
                                       [NODE_OP] = "#ffffff",
                                       [NODE_KERNEL] = "#dfe8f6"};
    double radius = node->kind == NODE_OP ? 0 : node->kind == NODE_KERNEL ? 6 : node->height / 2;
    sb_printf(sb,
              "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"%.1f\" "
              "fill=\"%s\" stroke=\"#444\"/>\n",
              node->x, node->y, node->width, node->height, radius, fill[node->kind]);
    double middle = node->x + node->width / 2;
    double y = node->y + LINE_HEIGHT + 1;
    sb_printf(sb, "<text x=\"%.1f\" y=\"%.1f\" font-weight=\"bold\">", middle, y);
    put_text(sb, node->title);
    sb_put(sb, "</text>\n");
    for (int i = 0; i < node->line.num; i++) {
        y += LINE_HEIGHT;
        sb_printf(sb, "<text x=\"%.1f\" y=\"%.1f\">", middle, y);
        put_text(sb, node->line.elem[i]);
        sb_put(sb, "</text>\n");
    }
}

static void put_arrow(Sb *sb, const Graph *g, const GraphEdge *edge)
{
    const GraphNode *from = &g->nodes.elem[edge->from];
    const GraphNode *to = &g->nodes.elem[edge->to];
    double x0 = from->x + from->width / 2, y0 = from->y + from->height;
    double x1 = to->x + to->width / 2, y1 = to->y;
    double bend = (y1 - y0) / 2;
    sb_printf(sb,
              "<path d=\"M%.1f %.1f C%.1f %.1f %.1f %.1f %.1f %.1f\" fill=\"none\" "
              "stroke=\"#777\" marker-end=\"url(#a)\"/>\n",
              x0, y0, x0, y0 + bend, x1, y1 - bend, x1, y1);
    sb_printf(sb, "<text x=\"%.1f\" y=\"%.1f\" font-size=\"9\" fill=\"#777\">", (x0 + x1) / 2,
              (y0 + y1) / 2 + 3);
    put_text(sb, edge->label);
    sb_put(sb, "</text>\n");
}

void graph_write_svg(Sb *sb, Graph *g)
{
    double bottom = place_rows(g), left = 1e30, right = -1e30;
    for (int i = 0; i < g->nodes.num; i++) {
        const GraphNode *node = &g->nodes.elem[i];
        left = node->x < left ? node->x : left;
        right = node->x + node->width > right ? node->x + node->width : right;
    }
    if (!g->nodes.num)
        left = right = 0;
    sb_printf(sb,
              "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"%.1f 0 %.1f %.1f\" "
              "font-family=\"Helvetica,Arial,sans-serif\" font-size=\"11\" "
              "text-anchor=\"middle\">\n"
              "<defs><marker id=\"a\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" "
              "markerWidth=\"7\" markerHeight=\"7\" orient=\"auto\">"
              "<path d=\"M0 0L8 4L0 8z\" fill=\"#777\"/></marker></defs>\n<title>",
              left - MARGIN, right - left + 2 * MARGIN, bottom);
    put_text(sb, g->name);
    sb_put(sb, "</title>\n");
    for (int i = 0; i < g->edges.num; i++)
        put_arrow(sb, g, &g->edges.elem[i]);
    for (int i = 0; i < g->nodes.num; i++)
        put_box(sb, &g->nodes.elem[i]);
    sb_put(sb, "</svg>\n");
}
