/* Pieces of a report's page; see table.h. */
#include "report/table.h"
#include <math.h>
#include <stdio.h>

void heading(Sb *sb, const char *text)
{
    sb_put(sb, "<h2>");
    markup_put(sb, text);
    sb_put(sb, "</h2>\n");
}

void paragraph(Sb *sb, const char *text)
{
    sb_put(sb, "<p>");
    markup_put(sb, text);
    sb_put(sb, "</p>\n");
}

void table_begin(Sb *sb, const char *headings)
{
    sb_put(sb, "<div class=\"wide\"><table>\n<thead><tr>");
    while (*headings) {
        size_t len = strcspn(headings, "|");
        bool number = *headings == '#';
        char text[80];
        snprintf(text, sizeof text, "%.*s", (int)len - number, headings + number);
        sb_put(sb, number ? "<th class=\"n\">" : "<th>");
        markup_put(sb, text);
        sb_put(sb, "</th>");
        headings += len + (headings[len] == '|');
    }
    sb_put(sb, "</tr></thead>\n<tbody>\n");
}

void table_end(Sb *sb)
{
    sb_put(sb, "</tbody></table></div>\n");
}

void row_begin(Sb *sb, const char *id)
{
    sb_put(sb, "<tr");
    if (id) {
        sb_put(sb, " id=\"");
        markup_put(sb, id);
        sb_putc(sb, '"');
    }
    sb_putc(sb, '>');
}

void row_end(Sb *sb)
{
    sb_put(sb, "</tr>\n");
}

void cell_text(Sb *sb, const char *text)
{
    sb_put(sb, "<td>");
    markup_put(sb, text ? text : "-");
    sb_put(sb, "</td>");
}

void cell_lines(Sb *sb, const char *text)
{
    sb_put(sb, "<td class=\"lines\">");
    markup_put(sb, text);
    sb_put(sb, "</td>");
}

void cell_number(Sb *sb, const char *text)
{
    sb_put(sb, "<td class=\"n\">");
    markup_put(sb, text);
    sb_put(sb, "</td>");
}

void cell_real(Sb *sb, int digits, double x)
{
    char text[64];
    snprintf(text, sizeof text, "%.*f", digits, x);
    cell_number(sb, isnan(x) ? "-" : text);
}

void cell_short(Sb *sb, double x)
{
    char text[64];
    snprintf(text, sizeof text, "%.4g", x);
    cell_number(sb, isnan(x) ? "-" : text);
}

void cell_count(Sb *sb, uint64_t x)
{
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)x);
    cell_number(sb, x ? text : "-");
}
