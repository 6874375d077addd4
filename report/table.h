/* Pieces of a report's page. Text is escaped by all of them. */
#ifndef SINTER_REPORT_TABLE_H
#define SINTER_REPORT_TABLE_H

#include "report/markup.h"
#include <string.h>

void heading(Sb *sb, const char *text);
void paragraph(Sb *sb, const char *text);

/* Headings separated by '|'; those that start with '#' are of numbers. */
void table_begin(Sb *sb, const char *headings);
void table_end(Sb *sb);
void row_begin(Sb *sb, const char *id); /* NULL: none */
void row_end(Sb *sb);
void cell_text(Sb *sb, const char *text);  /* NULL: "-" */
void cell_lines(Sb *sb, const char *text); /* keeps its lines */
void cell_number(Sb *sb, const char *text);
void cell_real(Sb *sb, int digits, double x); /* NaN: "-" */
void cell_short(Sb *sb, double x);            /* four significant digits; NaN: "-" */
void cell_count(Sb *sb, uint64_t x);          /* 0: "-" */

#endif
