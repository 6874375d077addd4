/* A launch plan as a drawing: what a compiled file runs, without the text that it was made from. */
#include "report/graph.h"
#include "report/print.h"
#include <string.h>

typedef struct Shown { /* a tensor, with all that is part of it */
    ARRAY(int) writer; /* nodes; several where each writes a part */
    int seen;          /* the latest node with arrows from it; -1: none */
} Shown;

typedef struct Drawing {
    Graph *g;
    const Plan *plan;
    Shown *value; /* by tensor */
} Drawing;

static Shown *value_of(const Drawing *d, int t)
{
    while (storage_is_part(d->plan->tensor[t].storage))
        t = d->plan->tensor[t].index;
    return &d->value[t];
}

static const char *tensor_label(const Drawing *d, int t)
{
    Sb sb;
    sb_init(&sb, d->g->arena);
    plan_tensor_text(&sb, d->plan, t);
    return sb.text;
}

static int begin_node(const Drawing *d, GraphNode node)
{
    node.first_edge = d->g->edges.num;
    ARRAY_PUSH(d->g->arena, &d->g->nodes, node);
    return d->g->nodes.num - 1;
}

/* Arrows to the latest node, unless the value is stored, made inside of it, or drawn already. */
static void add_read(const Drawing *d, int t)
{
    int id = d->g->nodes.num - 1;
    Shown *value = value_of(d, t);
    for (int i = 0; value->seen != id && i < value->writer.num; i++) {
        GraphEdge edge = {.from = value->writer.elem[i], .to = id, .label = tensor_label(d, t)};
        ARRAY_PUSH(d->g->arena, &d->g->edges, edge);
        d->g->nodes.elem[id].num_edges++;
    }
    value->seen = id;
}

static void add_write(const Drawing *d, int t)
{
    int id = d->g->nodes.num - 1;
    Shown *value = value_of(d, t);
    if (!value->writer.num || value->writer.elem[value->writer.num - 1] != id)
        ARRAY_PUSH(d->g->arena, &value->writer, id);
}

/* The tensors that a program reads, or those that it writes. */
static void walk_program(const Drawing *d, const PlanLaunch *l, PlanProgram program, bool writes)
{
    for (int i = 0; i < program.num_steps; i++) {
        const TileStep *s = &program.step[i];
        bool is_write = plan_writes((TileOp)s->op);
        if (s->tensor != TILE_NO_TENSOR && is_write == writes) {
            const PlanOperand *o = &l->operand[s->tensor];
            (writes ? add_write : add_read)(d, o->tensor);
            if (o->index)
                add_read(d, l->operand[o->index - 1].tensor);
        }
        if (s->op == TILE_CODE_SUM && !writes)
            add_read(d, l->operand[s->tensor2].tensor);
    }
}

static void walk_launch(const Drawing *d, const PlanLaunch *l, bool writes)
{
    bool moves = l->family == LAUNCH_MOVE || l->family == LAUNCH_DECODE;
    if (moves && writes)
        add_write(d, l->dst);
    else if (moves)
        add_read(d, l->src);
    for (int i = 0; i < l->num_operands && l->family == LAUNCH_ROUTE; i++)
        if ((i >= l->num_operands - plan_route_results(l->route)) == writes)
            (writes ? add_write : add_read)(d, l->operand[i].tensor);
    if (l->grouped && !writes)
        add_read(d, l->ends);
    if (l->family == LAUNCH_TILE)
        walk_program(d, l, l->program, writes);
    if (l->family != LAUNCH_GEMM)
        return;
    walk_program(d, l, l->prologue, writes);
    for (int i = 0; i < l->num_segments; i++)
        walk_program(d, l, l->segment[i].epilogue, writes);
    if (!writes) {
        add_read(d, l->a);
        add_read(d, l->w);
    }
}

static void add_launch(const Drawing *d, const PlanLaunch *l)
{
    Arena *arena = d->g->arena;
    bool has_layer = l->layer && l->layer[0];
    GraphNode node = {.kind = NODE_KERNEL, .tip = l->place && l->place[0] ? l->place : NULL};
    node.title = arena_printf(arena, "%s%s%s", launch_family_name[l->family], has_layer ? " " : "",
                              has_layer ? l->layer : "");
    char *rest = arena_strdup(arena, l->absorbed ? l->absorbed : "");
    for (char *word; (word = strsep(&rest, " "));)
        if (*word)
            ARRAY_PUSH(arena, &node.line, (const char *)word);
    if (l->family == LAUNCH_GEMM && d->plan->tensor[l->w].storage == STORAGE_CONST)
        ARRAY_PUSH(arena, &node.line, tensor_label(d, l->w));
    begin_node(d, node);
    walk_launch(d, l, false);
    walk_launch(d, l, true);
}

void graph_build_plan(Graph *g, Arena *arena, const Plan *plan)
{
    *g = (Graph){.arena = arena, .name = plan->target};
    Drawing d = {g, plan, ARENA_NEW_ARRAY(arena, Shown, (size_t)plan->num_tensors + 1)};
    for (int i = 0; i < plan->num_tensors; i++)
        d.value[i] = (Shown){.seen = -1};
    for (int i = 0; i < plan->num_inputs; i++) {
        const PlanPort *port = &plan->input[i];
        GraphNode node = {.kind = NODE_INPUT,
                          .name = arena_strdup(arena, port->name),
                          .title = arena_printf(arena, "input %s", port->name)};
        ARRAY_PUSH(arena, &node.line, tensor_label(&d, port->tensor));
        begin_node(&d, node);
        add_write(&d, port->tensor);
    }
    for (int i = 0; i < plan->num_launches; i++)
        add_launch(&d, &plan->launch[i]);
    for (int i = 0; i < plan->num_outputs; i++) {
        const PlanPort *port = &plan->output[i];
        begin_node(&d, (GraphNode){.kind = NODE_OUTPUT,
                                   .name = arena_strdup(arena, port->name),
                                   .title = arena_printf(arena, "output %s", port->name)});
        add_read(&d, port->tensor);
    }
}
