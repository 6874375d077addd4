/* Module to drawing; see graph.h. */
#include "report/graph.h"
#include <string.h>

static const char *type_label(Arena *arena, const Type *type)
{
    Sb sb;
    sb_init(&sb, arena);
    type_print(&sb, type);
    return sb.text;
}

/* The stored constant that a constant expression starts from, for its name; NULL: none. */
static const Op *constant_root(const Value *value)
{
    const Op *op = value->def;
    for (int depth = 0; op->kind != OP_CONST && op->num_in > 0 && depth < 64; depth++)
        op = op_in(op, 0)->def;
    return op->kind == OP_CONST ? op : NULL;
}

static const char *constant_label(Arena *arena, const Value *value)
{
    const Op *root = constant_root(value);
    const char *name = value->name;
    if (root && root->constant && root->constant->name)
        name = root->constant->name;
    else if (root && !name)
        name = root->out[0].name;
    return arena_printf(arena, "%s: %s", name ? name : "constant", type_label(arena, value->type));
}

static bool op_is_constant(const Op *op)
{
    return op->num_out > 0 && value_is_constant(&op->out[0]);
}

#define CONSTANT UINT32_MAX /* as the mark of an op that has no box */

/* What stands before it is marked, so that each op is looked at once. */
static bool only_reads_constants(const Op *op)
{
    if (op->kind == OP_CONST)
        return true;
    for (int i = 0; i < op->num_in; i++)
        if (op_in(op, i)->def->mark != CONSTANT)
            return false;
    return op_is_constant(op);
}

static bool is_constant(const Value *value)
{
    return value->def->mark == CONSTANT;
}

/* Body of a kernel: one line an operation, in order; those on constants are left out. */
static void add_body(GraphNode *node, Arena *arena, const Op *kernel)
{
    for_each_op(op, kernel->body) {
        if (op->kind == OP_ARG || op->kind == OP_YIELD || op_is_constant(op))
            continue;
        ARRAY_PUSH(arena, &node->line, (const char *)op_info[op->kind].name);
    }
}

static GraphNode make_node(Arena *arena, const Op *op)
{
    GraphNode node = {.kind = NODE_OP, .name = op->name, .title = op_info[op->kind].name};
    const char *layer = op->attr.layer;
    switch (op->kind) {
    case OP_INPUT:
        node.kind = NODE_INPUT;
        node.title = arena_printf(arena, "input %s", op->name);
        ARRAY_PUSH(arena, &node.line, type_label(arena, op->out[0].type));
        break;
    case OP_OUTPUT:
        node.kind = NODE_OUTPUT;
        node.title = arena_printf(arena, "output %s", op->name);
        break;
    case OP_KERNEL:
        node.kind = NODE_KERNEL;
        node.title = arena_printf(arena, "%s%s%s", op->attr.family ? op->attr.family : "kernel",
                                  layer ? " " : "", layer ? layer : "");
        add_body(&node, arena, op);
        break;
    default:
        if (layer)
            node.title = arena_printf(arena, "%s %s", node.title, layer);
        break;
    }
    for (int i = 0; i < op->num_in; i++)
        if (is_constant(op_in(op, i)))
            ARRAY_PUSH(arena, &node.line, constant_label(arena, op_in(op, i)));
    return node;
}

void graph_build(Graph *g, Arena *arena, Module *m)
{
    *g = (Graph){.arena = arena, .name = m->name};
    for_each_op(op, &m->body) {
        int id = g->nodes.num;
        op->mark = only_reads_constants(op) ? CONSTANT : (uint32_t)id;
        if (op->mark == CONSTANT)
            continue;
        GraphNode node = make_node(arena, op);
        node.first_edge = g->edges.num;
        for (int i = 0; i < op->num_in; i++) {
            const Value *value = op_in(op, i);
            if (is_constant(value))
                continue;
            GraphEdge edge = {
                .from = (int)value->def->mark, .to = id, .label = type_label(arena, value->type)};
            ARRAY_PUSH(arena, &g->edges, edge);
            node.num_edges++;
        }
        ARRAY_PUSH(arena, &g->nodes, node);
    }
}
