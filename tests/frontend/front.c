/* Runs the frontend alone on one text: what the golden tests of this folder drive.
 * usage: front --emit=ast|ir|fmt [-D NAME=INT]... text [rule file]... */
#include "frontend/frontend.h"
#include <stdlib.h>
#include <string.h>

static char *read_all(Arena *arena, const char *path, size_t *ret_len)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return NULL;
    char *text = NULL;
    size_t len = 0, cap = 0, got;
    do {
        size_t need = cap ? cap * 2 : 65536;
        text = arena_grow(arena, text, cap, need + 1);
        cap = need;
        got = fread(text + len, 1, cap - len, file);
        len += got;
    } while (got);
    fclose(file);
    text[len] = 0;
    *ret_len = len;
    return text;
}

static bool emit(Arena *arena, Diag *diag, const char *what, const char *path,
                 const FrontendOptions *options, Sb *out)
{
    if (strcmp(what, "ir") == 0) {
        Module *m = frontend_compile(arena, diag, path, options);
        if (m && !diag->num_errors)
            module_print(out, m, false);
        return m && module_verify(m, "lowering");
    }
    size_t len;
    char *text = read_all(arena, path, &len);
    if (!text)
        return false;
    uint32_t source = diag_add_source(diag, path, text, len);
    if (strcmp(what, "fmt") == 0) {
        char *formatted = source_format(arena, diag, source);
        if (formatted)
            sb_put(out, formatted);
        return formatted != NULL;
    }
    Ast *ast = ast_parse(arena, diag, source);
    if (ast && !diag->num_errors)
        ast_print(out, ast);
    return ast != NULL;
}

int main(int argc, char **argv)
{
    const char *what = "ir", *path = NULL, *name[64], *rule_file[64];
    int64_t value[64];
    FrontendOptions options = {.define_name = name, .define_value = value, .rule_file = rule_file};
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--emit=", 7) == 0) {
            what = argv[i] + 7;
        } else if (strcmp(argv[i], "-D") == 0 && i + 1 < argc && options.num_defines < 64) {
            char *equals = strchr(argv[++i], '=');
            if (!equals)
                return 2;
            *equals = 0;
            name[options.num_defines] = argv[i];
            value[options.num_defines++] = strtoll(equals + 1, NULL, 10);
        } else if (!path) {
            path = argv[i];
        } else if (options.num_rule_files < 64) {
            rule_file[options.num_rule_files++] = argv[i];
        }
    }
    if (!path)
        return 2;
    Arena *arena = arena_create();
    if (!arena)
        return 70;
    Diag diag;
    Sb out;
    diag_init(&diag, arena);
    sb_init(&out, arena);
    bool ok = emit(arena, &diag, what, path, &options, &out);
    diag_print(&diag, stderr, false);
    if (ok && !diag.num_errors)
        fputs(out.text, stdout);
    ok = ok && !diag.num_errors;
    arena_destroy(arena);
    return ok ? 0 : 1;
}
