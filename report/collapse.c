/* Drawings of deep models: blocks that repeat one another become the first, one box that says how
 * many more there are, and the last. Deterministic, and linear in the nodes for blocks of a given
 * length. */
#include "report/graph.h"
#include <ctype.h>
#include <string.h>

enum {
    MOST_NODES = 150, /* of a drawing that shows everything */
    LEAST_TIMES = 4,
    LONGEST_BLOCK = 512
};

typedef struct Collapse {
    Graph *g;
    int *kind;  /* nodes of one kind differ in numbers alone */
    int *place; /* of each node in the new drawing */
    Graph out;
} Collapse;

/* Up to the type: "ffn[3].gate: f32[4, 4]" is of one kind with "ffn[4].gate: f32[4, 4]". */
static void put_masked(Sb *sb, const char *text)
{
    const char *type = strstr(text, ": ");
    for (const char *at = text; *at; at++) {
        bool masked = isdigit((unsigned char)*at) && (!type || at < type);
        if (!masked || at == text || !isdigit((unsigned char)at[-1]))
            sb_putc(sb, masked ? '#' : *at);
    }
    sb_putc(sb, '\n');
}

/* Inputs are told apart; everything else is by how far above it stands. */
static const char *signature(const Graph *g, Sb *sb, int at)
{
    const GraphNode *node = &g->nodes.elem[at];
    sb->len = 0;
    sb_printf(sb, "%d\n", (int)node->kind);
    put_masked(sb, node->title);
    for (int i = 0; i < node->line.num; i++)
        put_masked(sb, node->line.elem[i]);
    for (int i = 0; i < node->num_edges; i++) {
        const GraphEdge *edge = &g->edges.elem[node->first_edge + i];
        bool is_input = g->nodes.elem[edge->from].kind == NODE_INPUT;
        sb_printf(sb, "%c%d %s\n", is_input ? 'i' : 'r', is_input ? edge->from : at - edge->from,
                  edge->label ? edge->label : "");
    }
    return sb->text;
}

static void find_kinds(Collapse *c)
{
    Map known;
    Sb sb;
    int num = 0;
    map_init(&known, c->g->arena);
    sb_init(&sb, c->g->arena);
    for (int i = 0; i < c->g->nodes.num; i++) {
        const char *text = signature(c->g, &sb, i);
        if (!map_has(&known, text))
            map_put(&known, text, (void *)(uintptr_t)++num);
        c->kind[i] = (int)(uintptr_t)map_get(&known, text);
    }
}

/* How often the nodes from `at` on repeat with this length. */
static int count_times(const Collapse *c, int at, int length)
{
    int end = at;
    while (end + length < c->g->nodes.num && c->kind[end] == c->kind[end + length])
        end++;
    return (end - at) / length + 1;
}

/* The length of the blocks that leave the fewest nodes; *ret_times is 0 when none repeat. */
static int find_block(const Collapse *c, int at, int *ret_times)
{
    int best = 0, saved = 0, rest = c->g->nodes.num - at;
    *ret_times = 0;
    for (int length = 1; length <= LONGEST_BLOCK && length * LEAST_TIMES <= rest; length++) {
        int times = count_times(c, at, length);
        if (times < LEAST_TIMES || (times - 2) * length <= saved)
            continue;
        saved = (times - 2) * length;
        best = length;
        *ret_times = times;
    }
    return best;
}

static int node_put(Collapse *c, const GraphNode *node)
{
    ARRAY_PUSH(c->g->arena, &c->out.nodes, *node);
    return c->out.nodes.num - 1;
}

/* One box for all blocks but the first and the last of a run. */
static int block_put(Collapse *c, int at, int length, int times)
{
    Arena *arena = c->g->arena;
    const char *first = c->g->nodes.elem[at + length].title;
    const char *last = c->g->nodes.elem[at + (times - 2) * length].title;
    GraphNode box = {.kind = NODE_OP, .title = arena_printf(arena, "%d blocks like it", times - 2)};
    ARRAY_PUSH(arena, &box.line, first);
    if (strcmp(first, last) != 0) {
        ARRAY_PUSH(arena, &box.line, "..");
        ARRAY_PUSH(arena, &box.line, last);
    }
    return node_put(c, &box);
}

static void place_nodes(Collapse *c)
{
    for (int i = 0; i < c->g->nodes.num;) {
        int times, length = find_block(c, i, &times);
        int end = times ? i + length * times : i + 1, last = end - (times ? length : 1);
        int middle = -1;
        for (int k = i; k < end; k++) {
            bool hidden = times && k >= i + length && k < last;
            if (hidden && middle < 0)
                middle = block_put(c, i, length, times);
            c->place[k] = hidden ? middle : node_put(c, &c->g->nodes.elem[k]);
        }
        i = end;
    }
}

static bool has_edge(const Collapse *c, int first, const GraphEdge *edge)
{
    for (int i = first; i < c->out.edges.num; i++) {
        const GraphEdge *other = &c->out.edges.elem[i];
        if (other->from == edge->from &&
            (other->label == edge->label ||
             (other->label && edge->label && !strcmp(other->label, edge->label))))
            return true;
    }
    return false;
}

/* A box reads what its nodes read of others, each once. */
static void place_edges(Collapse *c)
{
    for (int i = 0, k = 0; i < c->out.nodes.num; i++) {
        GraphNode *node = &c->out.nodes.elem[i];
        int first = c->out.edges.num;
        bool is_whole = k + 1 == c->g->nodes.num || c->place[k + 1] != i;
        for (; k < c->g->nodes.num && c->place[k] == i; k++)
            for (int e = 0; e < c->g->nodes.elem[k].num_edges; e++) {
                GraphEdge edge = c->g->edges.elem[c->g->nodes.elem[k].first_edge + e];
                edge.from = c->place[edge.from];
                edge.to = i;
                if (edge.from != i && (is_whole || !has_edge(c, first, &edge)))
                    ARRAY_PUSH(c->g->arena, &c->out.edges, edge);
            }
        node->first_edge = first;
        node->num_edges = c->out.edges.num - first;
    }
}

void graph_collapse(Graph *g)
{
    int num = g->nodes.num;
    if (num <= MOST_NODES)
        return;
    Collapse c = {.g = g,
                  .out = {.arena = g->arena, .name = g->name, .fold = g->fold, .id = g->id}};
    c.kind = ARENA_NEW_ARRAY(g->arena, int, (size_t)num + 1);
    c.place = ARENA_NEW_ARRAY(g->arena, int, (size_t)num + 1);
    find_kinds(&c);
    place_nodes(&c);
    place_edges(&c);
    *g = c.out;
}
