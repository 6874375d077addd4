/* fmt: lines of the canonical form. Private to frontend/. */
#ifndef SINTER_FRONTEND_FMT_H
#define SINTER_FRONTEND_FMT_H

#include "base/base.h"

#define FMT_WIDTH     100
#define FMT_INDENT    4
#define FMT_MAX_CELLS 3

/* Lines of one kind that follow each other align their cells. */
typedef enum LineKind {
    LINE_PLAIN,
    LINE_PARAM,
    LINE_RULE,
    LINE_SCHEME_WORDS,
    LINE_SCHEME
} LineKind;

typedef struct Line {
    LineKind kind;
    int indent;
    bool blank_before;
    const char *cell[FMT_MAX_CELLS]; /* NULL: none; no cell at all: a line with a comment alone */
    const char *comment;
} Line;
typedef ARRAY(Line) LineList;

/* Aligns cells and comments and writes the text. */
void lines_print(Sb *sb, const LineList *lines);

#endif
