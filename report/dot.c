/* A drawing as Graphviz text. */
#include "report/graph.h"

static void put_text(Sb *sb, const char *text)
{
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            sb_putc(sb, '\\');
        if ((unsigned char)*text >= ' ')
            sb_putc(sb, *text);
    }
}

static void put_node(Sb *sb, const GraphNode *node, int id)
{
    static const char *const style[] = {
        [NODE_INPUT] = "shape=oval, fillcolor=\"#e6f0e6\"",
        [NODE_OUTPUT] = "shape=oval, fillcolor=\"#e6f0e6\"",
        [NODE_OP] = "shape=box, fillcolor=\"#ffffff\"",
        [NODE_KERNEL] = "shape=box, style=\"filled,rounded\", fillcolor=\"#dfe8f6\"",
    };
    sb_printf(sb, "    n%d [%s, label=\"", id, style[node->kind]);
    put_text(sb, node->title);
    for (int i = 0; i < node->line.num; i++) {
        sb_put(sb, "\\n");
        put_text(sb, node->line.elem[i]);
    }
    sb_put(sb, "\"];\n");
}

void graph_write_dot(Sb *sb, const Graph *g)
{
    sb_put(sb, "digraph \"");
    put_text(sb, g->name);
    sb_put(sb, "\" {\n"
               "    node [style=filled, fontname=\"Helvetica\", fontsize=11];\n"
               "    edge [fontname=\"Helvetica\", fontsize=9];\n");
    for (int i = 0; i < g->nodes.num; i++)
        put_node(sb, &g->nodes.elem[i], i);
    for (int i = 0; i < g->edges.num; i++) {
        const GraphEdge *edge = &g->edges.elem[i];
        sb_printf(sb, "    n%d -> n%d [label=\"", edge->from, edge->to);
        put_text(sb, edge->label);
        sb_put(sb, "\"];\n");
    }
    sb_put(sb, "}\n");
}
