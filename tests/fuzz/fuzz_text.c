/* Fuzz target: model texts. Whatever the bytes: no crash; a text without syntax errors keeps its
 * tree and comments' number through fmt, which is idempotent; one without errors lowers to a module
 * that verifies and whose printed form reads back. */
#include "frontend/frontend.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static Ast *parse(Arena *arena, Diag *diag, const char *text, size_t size)
{
    diag_init(diag, arena);
    uint32_t source = diag_add_source(diag, "fuzz.sinter", text, size);
    return ast_parse(arena, diag, source);
}

static const char *tree(Arena *arena, const Ast *ast)
{
    Sb sb;
    sb_init(&sb, arena);
    ast_print(&sb, ast);
    return sb.text;
}

static char *format(Arena *arena, const char *text, size_t size)
{
    Diag diag;
    diag_init(&diag, arena);
    return source_format(arena, &diag, diag_add_source(&diag, "fuzz.sinter", text, size));
}

static void check_format(Arena *arena, const Ast *ast, const char *text, size_t size)
{
    Diag diag;
    char *once = format(arena, text, size);
    if (!once)
        abort();
    char *twice = format(arena, once, strlen(once));
    if (!twice || strcmp(once, twice) != 0)
        abort();
    Ast *again = parse(arena, &diag, once, strlen(once));
    if (diag.num_errors || strcmp(tree(arena, ast), tree(arena, again)) != 0)
        abort();
}

static void check_module(Arena *arena, Module *m)
{
    Diag diag;
    Sb sb;
    diag_init(&diag, arena);
    if (!module_verify(m, "lowering"))
        abort();
    if (m->num_ops > 5000)
        return;
    sb_init(&sb, arena);
    module_print(&sb, m, false);
    if (!module_parse(arena, &diag, diag_add_source(&diag, "printed", sb.text, sb.len)))
        abort();
}

/* Printing takes as long as all else together, so it is done for one in sixteen inputs. */
static void print_some(const Diag *diag, const char *text, size_t size)
{
    uint32_t sum = 0;
    for (size_t i = 0; i < size; i++)
        sum = sum * 31 + (uint8_t)text[i];
    if (sum % 16)
        return;
    static FILE *null;
    if (!null)
        null = fopen("/dev/null", "w");
    diag_print(diag, null, true);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Arena *arena = arena_create();
    char *text = arena_alloc(arena, size + 1);
    memcpy(text, data, size);
    Diag diag;
    Ast *ast = parse(arena, &diag, text, size);
    if (ast && !diag.num_errors)
        check_format(arena, ast, text, size);
    if (ast && ast_check(ast, &diag, NULL)) {
        Module *m = ast_lower(ast, arena, &diag);
        if (!m)
            abort();
        check_module(arena, m);
    }
    print_some(&diag, text, size);
    arena_destroy(arena);
    return 0;
}
