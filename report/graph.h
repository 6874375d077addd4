/* A module as a drawing: one box an operation or fused kernel, one arrow a value. Constants have no
 * boxes of their own; a box names those that it reads. graph.c and plan_graph.c build it,
 * layout.c places it, dot.c and svg.c draw it. */
#ifndef SINTER_GRAPH_H
#define SINTER_GRAPH_H

#include "artifact/artifact.h"
#include "ir/ir.h"

typedef enum NodeKind { NODE_INPUT, NODE_OUTPUT, NODE_OP, NODE_KERNEL } NodeKind;

typedef struct GraphNode {
    NodeKind kind;
    const char *name;           /* of an input or output; NULL: another op */
    const char *title;          /* "matmul", "gemm ffn[3].gate" */
    ARRAY(const char *) line;   /* what the box says below its title */
    const char *fill, *ink;     /* colours of box and text, NULL: as its kind has */
    const char *tip;            /* shown when a pointer rests on the box; NULL: nothing */
    const char *link;           /* where the box leads; NULL: nowhere */
    int first_edge, num_edges;  /* what it reads: a run of edges */
    int row;                    /* layout.c from here on */
    double x, y, width, height; /* top left and size */
} GraphNode;

typedef struct GraphEdge {
    int from, to;
    const char *label;         /* type of the value; NULL: none is shown */
    int first_bend, num_bends; /* a run of bends: the rows that it passes on its way down; edges
                                  that start at one node share the bends */
} GraphEdge;

typedef struct GraphBend { /* straight down at x */
    double x, top, bottom;
} GraphBend;

typedef struct Graph {
    Arena *arena;
    const char *name;
    bool fold;      /* tall graphs stand in several columns, side by side */
    const char *id; /* sets the names inside an SVG apart from those of another; NULL: "" */
    ARRAY(GraphNode) nodes;
    ARRAY(GraphEdge) edges;
    ARRAY(GraphBend) bends;     /* layout.c */
    double left, width, height; /* of the whole */
    double column;              /* from one column to the next; 0: there is one */
} Graph;

/* Numbers the ops in their scratch field `mark`. */
void graph_build(Graph *g, Arena *arena, Module *m);
/* plan_graph.c: of a plan, one box a launch. Boxes may point at the plan's strings. */
void graph_build_plan(Graph *g, Arena *arena, const Plan *plan);
/* collapse.c: of a large graph, of blocks that repeat the first and the last, and a box for those
 * between. */
void graph_collapse(Graph *g);
/* Rows by longest path; inside a row so that few arrows cross and most run straight. Arrows over
 * several rows get room in each. Deterministic. */
void graph_layout(Graph *g);
void graph_write_dot(Sb *sb, const Graph *g);
void graph_write_svg(Sb *sb, Graph *g); /* with graph_layout */

#endif
