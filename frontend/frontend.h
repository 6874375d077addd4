/* frontend: text -> AST -> checked AST -> IR, and the canonical form of a text. All errors of a
 * text come in one run. */
#ifndef SINTER_FRONTEND_H
#define SINTER_FRONTEND_H

#include "base/base.h"
#include "ir/ir.h"

/* Texts of pipes and of standard input, kept because they can be read only once. */
typedef struct TextStream {
    const char *path, *text;
    size_t len;
} TextStream;
typedef struct TextStreams {
    Arena *arena;
    ARRAY(TextStream) kept;
} TextStreams;

typedef struct FrontendOptions {
    int num_defines; /* -D NAME=INT: replaces the value of `const NAME` */
    const char *const *define_name;
    const int64_t *define_value;
    int num_rule_files; /* further texts with schemes and quant rules, after the model's own */
    const char *const *rule_file;
    bool unquantised;             /* rules and schemes are checked, and then let alone */
    const char *const *rule_text; /* NULL, or for each its text (NULL: read the file) */
    TextStreams *streams;         /* NULL: none is kept */
} FrontendOptions;

typedef struct Ast Ast;

/* grammar.y, lexer.l, ast.c: NULL only when nothing could be built; errors are in diag. */
Ast *ast_parse(Arena *arena, Diag *diag, uint32_t source);
void ast_print(Sb *sb, const Ast *ast); /* --emit=ast */
/* sema.c: names, constants, dims, schemes, rules. False when there were errors. */
bool ast_check(Ast *ast, Diag *diag, const FrontendOptions *options);
/* lower.c: a checked AST to IR: blocks and loops expanded, each linear with its path and QuantSpec.
 */
Module *ast_lower(Ast *ast, Arena *arena, Diag *diag);
/* fmt.c: canonical text with all comments kept; NULL after errors. Idempotent. */
char *source_format(Arena *arena, Diag *diag, uint32_t source);

/* standing.c: the rules that `auto` came to, with all that the rule files say besides. The text is
 * the first of diag's sources, its rule files the next. */
const char *rules_standing(Arena *arena, Diag *diag, int num_rule_files, const char *outcome);
/* source.c: "-", a pipe or a device. */
bool source_is_stream(const char *path);
/* The same, or a file by the number under which it is open: what it names lies where we are. */
bool source_is_nowhere(const char *path);
/* Reads a text ("-": standard input) and registers it; 0 after reporting why not. */
uint32_t source_load(Arena *arena, Diag *diag, const char *path, TextStreams *streams);

/* All of the above for a file on disk ("-": standard input). */
Module *frontend_compile(Arena *arena, Diag *diag, const char *path,
                         const FrontendOptions *options);

#endif
