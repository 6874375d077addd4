/* init: a text for a folder that has none. */
#include "draft/draft.h"
#include "driver/work.h"
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* `to`, an absolute path, as a text in the folder `from`, an absolute one too, has to call it. */
static const char *relative(Arena *arena, const char *from, const char *to)
{
    size_t same = 0, i = 0;
    while (from[i] && from[i] == to[i]) {
        i++;
        if ((from[i] == '/' || !from[i]) && to[i] == '/')
            same = i;
    }
    if (same == 0)
        return to;
    Sb sb;
    sb_init(&sb, arena);
    for (const char *c = from + same; *c; c++)
        if (*c == '/' && c[1])
            sb_put(&sb, "../");
    sb_put(&sb, to + same + 1);
    return sb.text;
}

static const char *absolute(Arena *arena, const char *path)
{
    char *full = realpath(*path ? path : ".", NULL);
    if (!full && errno == ENOMEM)
        memory_exhausted();
    const char *ret = full ? arena_strdup(arena, full) : NULL;
    free(full);
    return ret;
}

/* What the operand names: a folder, or a file in one, which *ret_only is the name of. */
static const char *folder_of(Arena *arena, const char *path, const char **ret_only)
{
    struct stat st;
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/')
        len--;
    path = arena_strndup(arena, path, len);
    *ret_only = NULL;
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode))
        return path;
    const char *slash = strrchr(path, '/');
    *ret_only = slash ? slash + 1 : path;
    if (!slash)
        return ".";
    return slash == path ? "/" : arena_strndup(arena, path, (size_t)(slash - path));
}

/* The weight files, as they are and as the text will call them; NULL after an error. only: not all
 * of the folder but this one, if not NULL. */
static WeightSet *open_weights(Work *w, const char *folder, const char *only, const char *out,
                               int *ret_num, const char *const **ret_called,
                               Checkpoint **ret_stored)
{
    IoError err;
    const char *const *file = &only;
    int num = only ? 1 : draft_files(w->arena, folder, &file);
    const char *from = absolute(w->arena, out && strcmp(out, "-") != 0 ? work_folder(w, out) : ".");
    const char *to = absolute(w->arena, folder);
    if (num == 0 || !to) {
        diag_error(&w->diag, (Span){0}, E_DRAFT, "%s: there is no folder with safetensors files",
                   folder);
        return NULL;
    }
    const char **path = ARENA_NEW_ARRAY(w->arena, const char *, (size_t)num);
    const char **called = ARENA_NEW_ARRAY(w->arena, const char *, (size_t)num);
    for (int i = 0; i < num; i++) {
        path[i] = arena_printf(w->arena, "%s/%s", folder, file[i]);
        const char *full = arena_printf(w->arena, "%s/%s", to, file[i]);
        called[i] = from ? relative(w->arena, from, full) : full;
    }
    WeightSet *weights = weights_open(num, path, &err);
    *ret_stored = weights ? checkpoint_open(w->arena, weights, num, path, &err) : NULL;
    if (!*ret_stored)
        work_io_error(w, &err);
    *ret_num = num;
    *ret_called = called;
    return weights;
}

int cmd_init(Cli *cli)
{
    Work w;
    int num;
    const char *const *called;
    const char *folder = cli->operand.elem[0], *out = cli_get(cli, OPTION_OUTPUT_FILE, NULL);
    if (!work_init(&w, cli))
        return EXIT_INPUT;
    const char *only;
    folder = folder_of(w.arena, folder, &only);
    Checkpoint *stored = NULL;
    WeightSet *weights = open_weights(&w, folder, only, out, &num, &called, &stored);
    const char *text = stored ? draft_text(w.arena, &w.diag, folder, stored, num, called) : NULL;
    text = text ? work_canonical(&w, out ? out : "<draft>", text) : NULL;
    if (text)
        work_put(&w, out, text, strlen(text));
    weights_close(weights);
    return work_end(&w, EXIT_OK);
}
