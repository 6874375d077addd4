/* ast: builders of `auto { .. }`. */
#include "frontend/ast.h"

AutoLine ast_auto_none(void)
{
    return (AutoLine){0};
}

AutoLine ast_auto_word(Word word)
{
    return (AutoLine){.word = word};
}

AutoLine ast_auto_value(Expr *size, double number, bool at_least)
{
    return (AutoLine){.size = size, .number = number, .at_least = at_least};
}

AutoLine ast_auto_line(AutoLineKind kind, Span span, AutoLine parts)
{
    parts.kind = kind;
    parts.span = span;
    return parts;
}

AutoLine ast_auto_file(AutoLineKind kind, Span span, Word file, AutoLine parts)
{
    parts.file = file;
    return ast_auto_line(kind, span, parts);
}

AutoLine ast_auto_require(Span span, AutoLine measure, bool at_least, double number, Word file)
{
    measure.at_least = at_least;
    measure.number = number;
    return ast_auto_file(AUTO_REQUIRE, span, file, measure);
}

void ast_auto_name(Parse *p, AutoLine *line, Word name)
{
    ARRAY_PUSH(p->arena, &line->names, name);
}

void ast_auto_at(Parse *p, AutoLine *line, Word name, Expr *size, double weight)
{
    ARRAY_PUSH(p->arena, &line->at, ((AutoSize){name, size, weight}));
}

void ast_auto_at_add(Parse *p, AutoLine *line, const AutoLine *more)
{
    for (int i = 0; i < more->at.num; i++)
        ARRAY_PUSH(p->arena, &line->at, more->at.elem[i]);
}

AutoLineList ast_auto_lines_add(Parse *p, AutoLineList list, AutoLine line)
{
    ARRAY_PUSH(p->arena, &list, line);
    return list;
}

Item *ast_auto(Parse *p, Span span, Span head, AutoLineList lines)
{
    Item *item = ast_item(p, ITEM_AUTO, span, (Word){0});
    item->head = head;
    item->autos = lines;
    return item;
}
