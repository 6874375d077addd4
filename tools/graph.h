/* A module as a drawing: one box an operation or fused kernel, one arrow a value. Constants have no
 * boxes of their own; a box names those that it reads. graph.c builds it, dot.c and svg.c draw it.
 */
#ifndef SINTER_GRAPH_H
#define SINTER_GRAPH_H

#include "ir/ir.h"

typedef enum NodeKind { NODE_INPUT, NODE_OUTPUT, NODE_OP, NODE_KERNEL } NodeKind;

typedef struct GraphNode {
    NodeKind kind;
    const char *title;         /* "matmul", "gemm ffn[3].gate" */
    ARRAY(const char *) line;  /* what the box says below its title */
    int first_edge, num_edges; /* what it reads: a run of edges */
    int row;
    double x, y, width, height; /* svg.c: top left and size */
} GraphNode;

typedef struct GraphEdge {
    int from, to;
    const char *label; /* type of the value */
} GraphEdge;

typedef struct Graph {
    Arena *arena;
    const char *name;
    ARRAY(GraphNode) nodes;
    ARRAY(GraphEdge) edges;
} Graph;

/* Numbers the ops in their scratch field `mark`. */
void graph_build(Graph *g, Arena *arena, Module *m);
void graph_write_dot(Sb *sb, const Graph *g);
void graph_write_svg(Sb *sb, Graph *g); /* own layout: rows by longest path */

#endif
