/* Texts from disk, and the way from a file to IR. */
#include "frontend/source.h"
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

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

bool source_is_stream(const char *path)
{
    struct stat st;
    if (!strcmp(path, "-"))
        return true;
    return stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
}

bool source_is_nowhere(const char *path)
{
    return source_is_stream(path) || !strcmp(path, "/dev/stdin") || !strncmp(path, "/dev/fd/", 8) ||
           !strncmp(path, "/proc/self/fd/", 14);
}

static const TextStream *find_stream(const TextStreams *streams, const char *path)
{
    for (int i = 0; streams && i < streams->kept.num; i++)
        if (!strcmp(streams->kept.elem[i].path, path))
            return &streams->kept.elem[i];
    return NULL;
}

/* The text of an open file, NULL after reporting why not. */
static char *load(Arena *arena, Diag *diag, const char *path, FILE *file, size_t *ret_len)
{
    const char *option = file == stdin ? NULL : outputs_find(fileno(file));
    if (option) {
        diag_error(diag, (Span){0}, E_OVERWRITE,
                   "%s: is read, and %s would overwrite it; give that another name", path, option);
        return NULL;
    }
    errno = 0;
    char *text = read_all(arena, file, ret_len);
    if (!ferror(file))
        return text;
    diag_error(diag, (Span){0}, E_READ, "cannot read '%s': %s", path,
               strerror(errno ? errno : EIO));
    return NULL;
}

uint32_t source_load(Arena *arena, Diag *diag, const char *path, TextStreams *streams)
{
    bool is_stdin = strcmp(path, "-") == 0;
    const char *name = is_stdin ? "<stdin>" : path;
    const TextStream *kept = find_stream(streams, path);
    if (kept)
        return diag_add_source(diag, name, kept->text, kept->len);
    FILE *file = is_stdin ? stdin : fopen(path, "rb");
    if (!file && errno == ENOMEM)
        memory_exhausted();
    if (!file) {
        diag_error(diag, (Span){0}, E_READ, "cannot read '%s': %s", path, strerror(errno));
        return 0;
    }
    bool keep = streams && source_is_stream(path);
    size_t len = 0;
    char *text = load(keep ? streams->arena : arena, diag, path, file, &len);
    if (!is_stdin)
        fclose(file);
    if (!text)
        return 0;
    if (keep)
        ARRAY_PUSH(streams->arena, &streams->kept,
                   ((TextStream){arena_strdup(streams->arena, path), text, len}));
    return diag_add_source(diag, name, text, len);
}

Module *frontend_compile(Arena *arena, Diag *diag, const char *path, const FrontendOptions *options)
{
    uint32_t source = source_load(arena, diag, path, options ? options->streams : NULL);
    Ast *ast = source ? ast_parse(arena, diag, source) : NULL;
    if (!ast || !ast_check(ast, diag, options))
        return NULL;
    Module *m = ast_lower(ast, arena, diag);
    return diag->num_errors ? NULL : m;
}
