/* fmt_lines: the lines of the canonical form with their columns aligned. */
#include "frontend/fmt.h"
#include <string.h>

static int text_width(const char *text)
{
    int width = 0; /* in characters: bytes that do not continue one */
    for (; *text; text++)
        width += ((unsigned char)*text & 0xC0) != 0x80;
    return width;
}

static int max_int(int a, int b)
{
    return a > b ? a : b;
}

/* The lines from `first` on that align with it. */
static int group_end(const LineList *lines, int first)
{
    const Line *head = &lines->elem[first];
    int end = first + 1;
    while (head->kind != LINE_PLAIN && end < lines->num) {
        const Line *line = &lines->elem[end];
        if (line->kind != head->kind || line->indent != head->indent || line->blank_before)
            break;
        end++;
    }
    return end;
}

static void measure(const LineList *lines, int first, int end, int width[FMT_MAX_CELLS])
{
    memset(width, 0, FMT_MAX_CELLS * sizeof *width);
    for (int i = first; i < end; i++) {
        const Line *line = &lines->elem[i];
        for (int c = 0; c + 1 < FMT_MAX_CELLS && line->cell[c + 1]; c++)
            width[c] = max_int(width[c], text_width(line->cell[c]));
    }
}

static void put_spaces(Sb *sb, int num)
{
    for (int i = 0; i < num; i++)
        sb_putc(sb, ' ');
}

static const char *join_cells(Arena *arena, const Line *line, const int width[FMT_MAX_CELLS])
{
    Sb sb;
    sb_init(&sb, arena);
    put_spaces(&sb, line->indent);
    for (int c = 0; c < FMT_MAX_CELLS && line->cell[c]; c++) {
        bool last = c + 1 == FMT_MAX_CELLS || !line->cell[c + 1];
        sb_put(&sb, line->cell[c]);
        if (!last)
            put_spaces(&sb, width[c] - text_width(line->cell[c]) + 1);
    }
    return sb.text;
}

/* Comments behind consecutive lines stand in one column. */
static void put_comments(Sb *sb, const LineList *lines, const char *const *text)
{
    for (int i = 0; i < lines->num;) {
        int end = i, column = 0;
        while (end < lines->num && lines->elem[end].comment && lines->elem[end].cell[0] &&
               (end == i || (!lines->elem[end].blank_before &&
                             lines->elem[end].indent == lines->elem[i].indent))) {
            column = max_int(column, text_width(text[end]));
            end++;
        }
        end = end == i ? i + 1 : end;
        for (; i < end; i++) {
            const Line *line = &lines->elem[i];
            if (line->blank_before)
                sb_putc(sb, '\n');
            sb_put(sb, text[i]);
            if (line->comment && line->cell[0])
                put_spaces(sb, column - text_width(text[i]) + 2);
            if (line->comment)
                sb_put(sb, line->comment);
            sb_putc(sb, '\n');
        }
    }
}

void lines_print(Sb *sb, const LineList *lines)
{
    const char **text = ARENA_NEW_ARRAY(sb->arena, const char *, (size_t)lines->num + 1);
    for (int i = 0; i < lines->num;) {
        int width[FMT_MAX_CELLS], end = group_end(lines, i);
        measure(lines, i, end, width);
        for (; i < end; i++)
            text[i] = join_cells(sb->arena, &lines->elem[i], width);
    }
    put_comments(sb, lines, text);
}
