/* Where the boxes of a drawing stand: layers from top to bottom, as Sugiyama, Tagawa and Toda lay
 * out graphs. Arrows over several rows take a slot in each row between, so that they never run
 * behind a box; those that start at one box share it and part above the boxes that they lead to. */
#include "report/graph.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LINE_HEIGHT 15.0
#define CHAR_WIDTH  6.7
#define BOX_PAD     12.0
#define ROW_GAP     26.0
#define LABEL_GAP   46.0 /* between rows where arrows have labels */
#define COLUMN_GAP  28.0
#define PASS_WIDTH  6.0 /* of a passing arrow */
#define MARGIN      20.0
#define FOLD_HEIGHT 900.0
#define FOLD_WIDTH  2400.0

enum { SWEEPS = 8, STRAIGHT = 8 /* how much more a passing arrow wants to run straight */ };

/* A box in its row, or an arrow that passes the row. */
typedef struct Slot {
    int row;
    bool passes;
    double width, x; /* x: of the middle */
    double place;    /* what its row is sorted by */
    int at;          /* in its row */
    ARRAY(int) up, down;
} Slot;

typedef struct Layout {
    Graph *g;
    int num_rows;
    ARRAY(Slot) slots; /* the nodes, then what passes */
    ARRAY(int) * row;  /* slots of each, from left to right */
    int *lowest;       /* row of the last that reads a node */
    double *want, *weight;
} Layout;

static void size_box(GraphNode *node)
{
    size_t widest = strlen(node->title);
    for (int i = 0; i < node->line.num; i++)
        if (strlen(node->line.elem[i]) > widest)
            widest = strlen(node->line.elem[i]);
    node->width = (double)widest * CHAR_WIDTH + 2 * BOX_PAD;
    node->height = (node->line.num + 1) * LINE_HEIGHT + BOX_PAD;
}

/* Rows: nodes come in topological order, so one sweep finds each longest path. What reads nothing
 * then moves down to just above its first reader. */
static int assign_rows(Graph *g)
{
    int num = g->nodes.num, num_rows = 0;
    int *nearest = ARENA_NEW_ARRAY(g->arena, int, (size_t)num + 1);
    for (int i = 0; i < num; i++) {
        GraphNode *node = &g->nodes.elem[i];
        node->row = 0;
        for (int k = 0; k < node->num_edges; k++) {
            int above = g->nodes.elem[g->edges.elem[node->first_edge + k].from].row;
            if (above + 1 > node->row)
                node->row = above + 1;
        }
        num_rows = node->row >= num_rows ? node->row + 1 : num_rows;
        size_box(node);
    }
    for (int i = 0; i < g->edges.num; i++) {
        const GraphEdge *edge = &g->edges.elem[i];
        int row = g->nodes.elem[edge->to].row;
        if (!nearest[edge->from] || row < nearest[edge->from])
            nearest[edge->from] = row;
    }
    for (int i = 0; i < num; i++)
        if (!g->nodes.elem[i].num_edges && nearest[i])
            g->nodes.elem[i].row = nearest[i] - 1;
    return num_rows;
}

static int slot_add(Layout *l, int row, double width, bool passes)
{
    Slot slot = {.row = row, .width = width, .passes = passes, .at = l->row[row].num};
    ARRAY_PUSH(l->g->arena, &l->row[row], l->slots.num);
    ARRAY_PUSH(l->g->arena, &l->slots, slot);
    return l->slots.num - 1;
}

static void link_add(Layout *l, int upper, int lower)
{
    ARRAY_PUSH(l->g->arena, &l->slots.elem[upper].down, lower);
    ARRAY_PUSH(l->g->arena, &l->slots.elem[lower].up, upper);
}

/* One line passes for all arrows of a node, down to above the last that reads it. */
static void pass_make(Layout *l, int node, int *ret_first)
{
    const Graph *g = l->g;
    int row = g->nodes.elem[node].row, last = node;
    *ret_first = l->slots.num;
    for (int r = row + 1; r < l->lowest[node]; r++) {
        int slot = slot_add(l, r, PASS_WIDTH, true);
        link_add(l, last, slot);
        last = slot;
    }
}

static void slots_make(Layout *l)
{
    Graph *g = l->g;
    int num = g->nodes.num;
    int *first = ARENA_NEW_ARRAY(g->arena, int, (size_t)num + 1);
    l->lowest = ARENA_NEW_ARRAY(g->arena, int, (size_t)num + 1);
    for (int i = 0; i < num; i++)
        slot_add(l, g->nodes.elem[i].row, g->nodes.elem[i].width, false);
    for (int i = 0; i < g->edges.num; i++) {
        const GraphEdge *edge = &g->edges.elem[i];
        int row = g->nodes.elem[edge->to].row;
        l->lowest[edge->from] = row > l->lowest[edge->from] ? row : l->lowest[edge->from];
    }
    for (int i = 0; i < num; i++)
        pass_make(l, i, &first[i]);
    for (int i = 0; i < g->edges.num; i++) {
        GraphEdge *edge = &g->edges.elem[i];
        edge->num_bends = g->nodes.elem[edge->to].row - g->nodes.elem[edge->from].row - 1;
        edge->first_bend = first[edge->from] - num;
        link_add(l, edge->num_bends ? first[edge->from] + edge->num_bends - 1 : edge->from,
                 edge->to);
    }
    int widest = 0;
    for (int r = 0; r < l->num_rows; r++)
        widest = l->row[r].num > widest ? l->row[r].num : widest;
    l->want = ARENA_NEW_ARRAY(g->arena, double, (size_t)widest + 1);
    l->weight = ARENA_NEW_ARRAY(g->arena, double, (size_t)widest + 1);
}

/* Order --------------------------------------------------------------------------------------- */

typedef struct Key {
    double place;
    int at, slot;
} Key;

static int by_place(const void *a, const void *b)
{
    const Key *x = a, *y = b;
    if (x->place < y->place || x->place > y->place)
        return x->place < y->place ? -1 : 1;
    return x->at - y->at;
}

/* Each slot goes to the mean place of what it is linked to on one side. */
static void order_row(Layout *l, int r, bool from_above)
{
    int num = l->row[r].num;
    Key *key = ARENA_NEW_ARRAY(l->g->arena, Key, (size_t)num + 1);
    for (int i = 0; i < num; i++) {
        const Slot *slot = &l->slots.elem[l->row[r].elem[i]];
        int num_near = from_above ? slot->up.num : slot->down.num;
        const int *near = from_above ? slot->up.elem : slot->down.elem;
        double sum = 0;
        for (int k = 0; k < num_near; k++)
            sum += l->slots.elem[near[k]].at;
        key[i] = (Key){num_near ? sum / num_near : i, i, l->row[r].elem[i]};
    }
    qsort(key, (size_t)num, sizeof *key, by_place);
    for (int i = 0; i < num; i++) {
        l->row[r].elem[i] = key[i].slot;
        l->slots.elem[key[i].slot].at = i;
    }
}

static void order_rows(Layout *l)
{
    for (int sweep = 0; sweep < SWEEPS; sweep++) {
        for (int r = 1; r < l->num_rows; r++)
            order_row(l, r, true);
        for (int r = l->num_rows - 2; r >= 0; r--)
            order_row(l, r, false);
    }
}

/* Places -------------------------------------------------------------------------------------- */

/* Adds where the slots on one side would have this one. */
static void pull(const Layout *l, const Slot *slot, int num, const int *near, double *sum,
                 double *weight)
{
    for (int i = 0; i < num; i++) {
        const Slot *other = &l->slots.elem[near[i]];
        double w = slot->passes && other->passes ? STRAIGHT : 1;
        *sum += w * other->x;
        *weight += w;
    }
}

/* The places nearest to the wanted ones, in the sense of least squares, that keep the order and do
 * not overlap: neighbours that would are moved together, by pooling. */
static void place_row(Layout *l, int r)
{
    typedef struct Pool {
        double sum, weight;
        int first;
    } Pool;
    int num = l->row[r].num, top = 0;
    Pool *pool = ARENA_NEW_ARRAY(l->g->arena, Pool, (size_t)num + 1);
    double *offset = ARENA_NEW_ARRAY(l->g->arena, double, (size_t)num + 1);
    for (int i = 0; i < num; i++) {
        const Slot *slot = &l->slots.elem[l->row[r].elem[i]];
        if (i)
            offset[i] = offset[i - 1] + COLUMN_GAP +
                        (l->slots.elem[l->row[r].elem[i - 1]].width + slot->width) / 2;
        pool[top++] = (Pool){l->weight[i] * (l->want[i] - offset[i]), l->weight[i], i};
        while (top > 1 && pool[top - 2].sum / pool[top - 2].weight >
                              pool[top - 1].sum / pool[top - 1].weight) {
            pool[top - 2].sum += pool[top - 1].sum;
            pool[top - 2].weight += pool[top - 1].weight;
            top--;
        }
    }
    for (int p = 0; p < top; p++)
        for (int i = pool[p].first; i < (p + 1 < top ? pool[p + 1].first : num); i++)
            l->slots.elem[l->row[r].elem[i]].x = pool[p].sum / pool[p].weight + offset[i];
}

static void move_row(Layout *l, int r, bool above, bool below)
{
    for (int i = 0; i < l->row[r].num; i++) {
        const Slot *slot = &l->slots.elem[l->row[r].elem[i]];
        double sum = 0, weight = 0;
        if (above)
            pull(l, slot, slot->up.num, slot->up.elem, &sum, &weight);
        if (below)
            pull(l, slot, slot->down.num, slot->down.elem, &sum, &weight);
        l->want[i] = weight > 0 ? sum / weight : slot->x;
        l->weight[i] = weight > 0 ? weight : 0.01;
    }
    place_row(l, r);
}

static void place_slots(Layout *l)
{
    for (int sweep = 0; sweep < SWEEPS; sweep++) {
        for (int r = 0; r < l->num_rows; r++)
            move_row(l, r, true, sweep == SWEEPS - 1);
        for (int r = l->num_rows - 1; r >= 0; r--)
            move_row(l, r, sweep == SWEEPS - 1, true);
    }
}

/* How far a row stands right of and above its place in one tall column. */
typedef struct Shift {
    double x, y;
} Shift;

/* Tall graphs become columns of about FOLD_HEIGHT, as many as fit into FOLD_WIDTH. */
static void fold_rows(Graph *g, int num_rows, const double *top, const double *height, Shift *shift)
{
    double whole = num_rows ? top[num_rows - 1] + height[num_rows - 1] : 0;
    double column = g->width + COLUMN_GAP;
    int num = (int)ceil(whole / FOLD_HEIGHT), most = (int)(FOLD_WIDTH / column), at = 0;
    num = num < most ? num : most;
    if (!g->fold || num < 2)
        return;
    for (int r = 1; r < num_rows; r++) {
        shift[r] = shift[r - 1];
        if (top[r] + height[r] - shift[r].y > whole / num + MARGIN && at + 1 < num) {
            at++;
            shift[r] = (Shift){at * column, top[r] - MARGIN};
        }
    }
    g->column = column;
    g->width += at * column;
}

static void find_sides(Layout *l)
{
    double left = 1e30, right = -1e30;
    for (int i = 0; i < l->slots.num; i++) {
        const Slot *s = &l->slots.elem[i];
        left = s->x - s->width / 2 < left ? s->x - s->width / 2 : left;
        right = s->x + s->width / 2 > right ? s->x + s->width / 2 : right;
    }
    l->g->left = l->slots.num ? left - MARGIN : 0;
    l->g->width = (l->slots.num ? right - left : 0) + 2 * MARGIN;
}

static void take_places(Layout *l, const double *top, const double *height, const Shift *shift)
{
    Graph *g = l->g;
    for (int i = 0; i < g->nodes.num; i++) {
        GraphNode *node = &g->nodes.elem[i];
        node->x = l->slots.elem[i].x - node->width / 2 + shift[node->row].x;
        node->y = top[node->row] - shift[node->row].y;
    }
    for (int i = g->nodes.num; i < l->slots.num; i++) {
        const Slot *slot = &l->slots.elem[i];
        int r = slot->row;
        double y = top[r] - shift[r].y;
        GraphBend bend = {slot->x + shift[r].x, y, y + height[r]};
        ARRAY_PUSH(g->arena, &g->bends, bend);
    }
    for (int r = 0; r < l->num_rows; r++)
        g->height = fmax(g->height, top[r] + height[r] - shift[r].y + MARGIN);
}

static double row_gap(const Graph *g)
{
    for (int i = 0; i < g->edges.num; i++)
        if (g->edges.elem[i].label)
            return LABEL_GAP;
    return ROW_GAP;
}

void graph_layout(Graph *g)
{
    Layout l = {.g = g};
    double y = MARGIN, gap = row_gap(g);
    g->bends.num = 0;
    l.num_rows = assign_rows(g);
    l.row = arena_alloc_array(g->arena, (size_t)l.num_rows + 1, sizeof *l.row);
    double *top = ARENA_NEW_ARRAY(g->arena, double, (size_t)l.num_rows + 1);
    double *height = ARENA_NEW_ARRAY(g->arena, double, (size_t)l.num_rows + 1);
    slots_make(&l);
    order_rows(&l);
    place_slots(&l);
    for (int i = 0; i < g->nodes.num; i++)
        if (g->nodes.elem[i].height > height[g->nodes.elem[i].row])
            height[g->nodes.elem[i].row] = g->nodes.elem[i].height;
    for (int r = 0; r < l.num_rows; r++) {
        top[r] = y;
        y += height[r] + gap;
    }
    Shift *shift = ARENA_NEW_ARRAY(g->arena, Shift, (size_t)l.num_rows + 1);
    g->height = 2 * MARGIN;
    g->column = 0;
    find_sides(&l);
    fold_rows(g, l.num_rows, top, height, shift);
    take_places(&l, top, height, shift);
}
