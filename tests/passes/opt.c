/* opt [-O N] [--check-eval] [--notes] [--base DIR] PASSES FILE.ir: runs passes on a printed module
 * and prints the result, or the diagnostics with exit code 1. The unit test of a pass is a text in
 * and a text out. */
#include "io/io.h"
#include "passes/passes.h"
#include <stdlib.h>
#include <string.h>

static void print_notes(const Diag *diag, const PassContext *ctx)
{
    for (int i = 0; i < ctx->fusion_notes.num; i++) {
        const FusionNote *note = &ctx->fusion_notes.elem[i];
        const char *place = span_text(diag, note->span), *base = strrchr(place, '/');
        printf("; %s: %s\n", base ? base + 1 : place, note->text);
    }
}

static int run(Arena *arena, const PassOptions *options, bool notes, const char *list,
               const char *path)
{
    IoError err = {0};
    uint64_t size = 0;
    Diag diag;
    PassContext ctx;
    char *text = file_read(path, LIMIT_SOURCE_BYTES, &size, &err);

    if (!text) {
        fprintf(stderr, "%s\n", err.text);
        return 2;
    }
    diag_init(&diag, arena);
    const char *base = strrchr(path, '/');
    uint32_t source = diag_add_source(&diag, base ? base + 1 : path, text, size);
    Module *m = module_parse(arena, &diag, source);
    pass_context_init(&ctx, arena, options);
    bool ok = m && module_verify(m, "parsing") && passes_run(m, &ctx, list);
    diag_print(&diag, stdout, false);
    if (ok) {
        Sb sb;
        sb_init(&sb, arena);
        module_print(&sb, m, false);
        fputs(sb.text, stdout);
        if (notes)
            print_notes(&diag, &ctx);
    }
    free(text);
    if (m && m->weights)
        weights_close(m->weights);
    return ok ? 0 : 1;
}

int main(int argc, char **argv)
{
    PassOptions options = {.opt_level = 1};
    bool notes = false;
    int at = 1;

    for (; at < argc && argv[at][0] == '-'; at++) {
        if (!strcmp(argv[at], "-O") && at + 1 < argc)
            options.opt_level = atoi(argv[++at]);
        else if (!strcmp(argv[at], "--base") && at + 1 < argc)
            options.base_dir = argv[++at];
        else if (!strcmp(argv[at], "--check-eval"))
            options.check_eval = true;
        else if (!strcmp(argv[at], "--no-weights"))
            options.no_weights = true;
        else if (!strcmp(argv[at], "--notes"))
            notes = true;
        else if (!strcmp(argv[at], "--trace"))
            options.trace = stderr, options.time_passes = true;
        else
            return 2;
    }
    if (at + 2 != argc)
        return 2;
    Arena *arena = arena_create();
    if (!arena)
        return 2;
    const char *list = strcmp(argv[at], "all") ? argv[at] : NULL;
    int rc = run(arena, &options, notes, list, argv[at + 1]);
    arena_destroy(arena);
    return rc;
}
