/* source: texts from disk. Private to frontend/. */
#ifndef SINTER_FRONTEND_SOURCE_H
#define SINTER_FRONTEND_SOURCE_H

#include "frontend/ast.h"

/* Reads a text ("-": standard input) and registers it; 0 after reporting why not. */
uint32_t source_load(Arena *arena, Diag *diag, const char *path);
/* Like ast_parse, with the names of an earlier tree. */
Ast *ast_parse_more(Arena *arena, Diag *diag, uint32_t source, Intern *names);

#endif
