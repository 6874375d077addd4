/* The outcome as rules: one line for each run of blocks and each set of siblings with one scheme.
 */
#include "choose/internal.h"
#include <stdlib.h>
#include <string.h>

typedef struct Line {
    const char *head; /* "ffn" of ffn[3].gate; the whole path where there is no such index */
    int64_t index;    /* -1: none */
    const char *mid;  /* "" or "attn." */
    const char *tail; /* "gate" */
    int column;
} Line;

typedef ARRAY(Line) LineList;

/* Without the number of a use: rules speak of all uses that have no scheme of their own. */
static const char *rule_path(Arena *arena, const char *layer)
{
    return arena_strndup(arena, layer, strcspn(layer, "#"));
}

/* head[index].mid.tail; everything else stays whole. */
static Line path_split(Arena *arena, const char *path, int column)
{
    const char *open = strchr(path, '['), *dot = strchr(path, '.');
    if (!open || !dot || open > dot || dot[-1] != ']' || strchr(dot, '['))
        return (Line){.head = path, .index = -1, .mid = "", .tail = "", .column = column};
    const char *last = strrchr(path, '.') + 1;
    return (Line){.head = arena_strndup(arena, path, (size_t)(open - path)),
                  .index = strtoll(open + 1, NULL, 10),
                  .mid = arena_strndup(arena, dot + 1, (size_t)(last - dot - 1)),
                  .tail = last,
                  .column = column};
}

/* Siblings of one block with one scheme: (gate|up). */
static void lines_join(Arena *arena, LineList *list)
{
    int num = 0;
    for (int i = 0; i < list->num; i++) {
        Line *line = &list->elem[i], *old = NULL;
        for (int k = num - 1; k >= 0 && k >= num - 64 && !old && line->index >= 0; k--) {
            Line *x = &list->elem[k];
            if (x->index == line->index && x->column == line->column &&
                !strcmp(x->head, line->head) && !strcmp(x->mid, line->mid))
                old = x;
        }
        if (old)
            old->tail = arena_printf(arena, "%s|%s", old->tail, line->tail);
        else
            list->elem[num++] = *line;
    }
    list->num = num;
}

static void line_print(Sb *sb, const Choice *c, const Line *line, int64_t last)
{
    sb_put(sb, "    ");
    sb_put(sb, line->head);
    if (line->index >= 0 && last > line->index)
        sb_printf(sb, "[%lld..%lld]", (long long)line->index, (long long)last + 1);
    else if (line->index >= 0)
        sb_printf(sb, "[%lld]", (long long)line->index);
    if (line->index >= 0) {
        bool many = strchr(line->tail, '|') != NULL;
        sb_printf(sb, ".%s%s%s%s", line->mid, many ? "(" : "", line->tail, many ? ")" : "");
    }
    sb_printf(sb, " : %s\n", c->column[line->column]);
}

static bool same_but_index(const Line *a, const Line *b)
{
    return a->index >= 0 && b->index >= 0 && a->column == b->column && !strcmp(a->head, b->head) &&
           !strcmp(a->mid, b->mid) && !strcmp(a->tail, b->tail);
}

const char *choice_rules(const Choice *c, Arena *arena, const int *pick, const char *calibrate)
{
    LineList list = {0};
    Sb sb;
    sb_init(&sb, arena);
    if (calibrate) {
        sb_put(&sb, "calibrate ");
        sb_put_json_string(&sb, calibrate, strlen(calibrate));
        sb_putc(&sb, '\n');
    }
    for (int i = 0; i < c->num_layers; i++) {
        bool seen = c->layer[i].pinned;
        for (int k = 0; k < i && !seen; k++)
            seen = !c->layer[k].pinned && !strcmp(c->layer[k].path, c->layer[i].path);
        if (!seen)
            ARRAY_PUSH(
                arena, &list,
                path_split(arena, rule_path(arena, c->layer[i].path), pick[c->layer[i].group]));
    }
    lines_join(arena, &list);
    sb_put(&sb, "quant {\n");
    bool *done = ARENA_NEW_ARRAY(arena, bool, (size_t)list.num + 1);
    for (int i = 0; i < list.num; i++) {
        int64_t last = list.elem[i].index;
        for (int k = i + 1; k < list.num && !done[i]; k++)
            if (!done[k] && same_but_index(&list.elem[i], &list.elem[k]) &&
                list.elem[k].index == last + 1) {
                last++;
                done[k] = true;
            }
        if (!done[i])
            line_print(&sb, c, &list.elem[i], last);
    }
    sb_put(&sb, "}\n");
    return sb.text;
}
