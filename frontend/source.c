/* Texts from disk, and the way from a file to IR. */
#include "frontend/source.h"
#include <errno.h>
#include <string.h>

/* Reads all of it, at most one byte beyond the limit (ast_parse then says so). */
static char *read_all(Arena *arena, FILE *file, size_t *ret_len)
{
    char *text = NULL;
    size_t len = 0, cap = 0;
    while (len <= LIMIT_SOURCE_BYTES) {
        if (cap - len < 2) {
            size_t more = cap ? 2 * cap : 16384;
            text = arena_grow(arena, text, cap, more);
            cap = more;
        }
        size_t got = fread(text + len, 1, cap - len - 1, file);
        len += got;
        if (got == 0)
            break;
    }
    text[len] = 0;
    *ret_len = len;
    return text;
}

uint32_t source_load(Arena *arena, Diag *diag, const char *path)
{
    bool is_stdin = strcmp(path, "-") == 0;
    FILE *file = is_stdin ? stdin : fopen(path, "rb");
    size_t len = 0;
    char *text = NULL;
    int error = file ? 0 : errno;
    const char *option = file ? outputs_find(fileno(file)) : NULL;
    if (option && !is_stdin) {
        fclose(file);
        diag_error(diag, (Span){0}, E_OVERWRITE,
                   "%s: is read, and %s would overwrite it; give that another name", path, option);
        return 0;
    }
    if (file) {
        errno = 0;
        text = read_all(arena, file, &len);
        if (ferror(file))
            error = errno ? errno : EIO;
        if (!is_stdin)
            fclose(file);
    }
    if (!error)
        return diag_add_source(diag, is_stdin ? "<stdin>" : path, text, len);
    diag_error(diag, (Span){0}, E_READ, "cannot read '%s': %s", path, strerror(error));
    return 0;
}

Module *frontend_compile(Arena *arena, Diag *diag, const char *path, const FrontendOptions *options)
{
    uint32_t source = source_load(arena, diag, path);
    Ast *ast = source ? ast_parse(arena, diag, source) : NULL;
    if (!ast || !ast_check(ast, diag, options))
        return NULL;
    Module *m = ast_lower(ast, arena, diag);
    return diag->num_errors ? NULL : m;
}
