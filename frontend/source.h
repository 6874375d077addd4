/* source: trees of several texts that share their names. Private to frontend/. */
#ifndef SINTER_FRONTEND_SOURCE_H
#define SINTER_FRONTEND_SOURCE_H

#include "frontend/ast.h"

/* Like ast_parse, with the names of an earlier tree. */
Ast *ast_parse_more(Arena *arena, Diag *diag, uint32_t source, Intern *names);

#endif
