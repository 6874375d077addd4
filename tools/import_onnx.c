/* import, of an ONNX model: a text, and with -o the folder that it needs: the text, its weights,
 * and the config.json that says how they are stored quantised. */
#include "onnx/onnx.h"
#include "tools/import.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

bool is_onnx(const char *path)
{
    size_t len = strlen(path);

    return len > 5 && !strcmp(path + len - 5, ".onnx");
}

/* One item after the other, each made when its turn comes. */
static bool write_items(OutFile *f, const char *path, const OnnxText *t,
                        const SafetensorsItem *item, const uint64_t *at, IoError *err)
{
    for (int i = 0; i < t->items.num; i++) {
        uint64_t bytes;
        if (!safetensors_bytes(path, &item[i], &bytes, err))
            return false;
        void *made = malloc((size_t)bytes + 1);
        if (!made)
            return io_fail(err, E_MEMORY, "%s: memory is exhausted", path);
        onnx_item_fill(t->items.elem[i], made);
        outfile_patch(f, at[i], made, bytes);
        free(made);
    }
    return true;
}

static bool write_weights(Work *w, const char *path, const OnnxText *t)
{
    size_t num = (size_t)t->items.num + 1;
    SafetensorsItem *item = ARENA_NEW_ARRAY(w->arena, SafetensorsItem, num);
    uint64_t *at = ARENA_NEW_ARRAY(w->arena, uint64_t, num);
    IoError err;

    for (int i = 0; i < t->items.num; i++) {
        const OnnxItem *from = t->items.elem[i];
        item[i] = (SafetensorsItem){
            .name = from->name, .fmt = from->fmt, .rank = from->rank, .dim = from->dim};
    }
    OutFile *f = outfile_create(path, 0666, &err);
    bool ok = f && safetensors_begin(f, path, t->items.num, item, at, &err) &&
              write_items(f, path, t, item, at, &err);
    if (f && !ok)
        outfile_abandon(f);
    if (ok && outfile_finish(f, &err))
        return true;
    work_io_error(w, &err);
    return false;
}

/* The text goes last: where it stands, what it reads is there. */
static bool write_folder(Work *w, const char *folder, const OnnxText *t, const char *text)
{
    const char *config = t->config ? t->config : "{}\n";

    if (mkdir(folder, 0777) != 0 && errno != EEXIST) {
        diag_error(&w->diag, (Span){0}, E_FILE_WRITE, "%s: %s", folder, strerror(errno));
        return false;
    }
    return write_weights(w, arena_printf(w->arena, "%s/model.safetensors", folder), t) &&
           work_put(w, arena_printf(w->arena, "%s/config.json", folder), config, strlen(config)) &&
           work_put(w, arena_printf(w->arena, "%s/model.sinter", folder), text, strlen(text));
}

static bool import(Work *w, const OnnxModel *m, const char *folder)
{
    OnnxText t;

    if (!onnx_import(w->arena, &w->diag, m, &t))
        return false;
    const char *text = work_canonical(w, "<imported>", t.text);
    if (!text)
        return false;
    if (!folder)
        return work_put(w, NULL, text, strlen(text));
    if (!write_folder(w, folder, &t, text))
        return false;
    const char *said =
        arena_printf(w->arena, "%s/model.sinter: %d linear layers, %d of them of integers\n",
                     folder, t.num_layers, t.num_integer);
    return work_put(w, NULL, said, strlen(said));
}

int import_onnx(Cli *cli, const char *path)
{
    Work w;
    IoError err;

    if (!work_init(&w, cli))
        return EXIT_INPUT;
    OnnxModel *m = onnx_open(w.arena, path, &err);
    if (m)
        import(&w, m, cli_get(cli, OPTION_OUTPUT_FOLDER, NULL));
    else
        work_io_error(&w, &err);
    onnx_close(m);
    return work_end(&w, EXIT_OK);
}
