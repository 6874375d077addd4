/* quantise: the weights of a model as other engines load them, quantised as its rules say. */
#include "tools/export.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const CheckpointWriter *writer_find(const char *name)
{
    int i = 0;
    while (strcmp(checkpoint_writers[i]->name, name) != 0) /* one of the option's words */
        i++;
    return checkpoint_writers[i];
}

/* The path of the first of the weights. */
static const char *weights_path(const Work *w)
{
    const PassOptions *options = &w->passes.options;
    if (options->num_weight_files)
        return options->weight_file[0];
    const char *name = w->module->weight_files.elem[0];
    return *name == '/' || !*options->base_dir
               ? name
               : arena_printf(w->arena, "%s/%s", options->base_dir, name);
}

/* The checkpoint's own configuration, where it has one, with how its weights are quantised. */
static const char *config_text_with(Work *w, const Exports *x)
{
    const char *file = checkpoint_beside(w->arena, weights_path(w), "config.json");
    const WriteModule **module =
        ARENA_NEW_ARRAY(w->arena, const WriteModule *, (size_t)x->modules.num);
    IoError err;
    uint64_t size;
    Sb sb;

    for (int i = 0; i < x->modules.num; i++)
        module[i] = &x->modules.elem[i]->module;
    sb_init(&sb, w->arena);
    x->writer->config(&sb, x->modules.num, module, x->plain.num, x->plain.elem);
    char *text = access(file, F_OK) ? NULL : file_read(file, LIMIT_SOURCE_BYTES, &size, &err);
    const char *ret = NULL;
    if (text || access(file, F_OK))
        ret = config_with(w->arena, file, text, "quantization_config", sb.text,
                          "compression_config", &err);
    if (!ret)
        work_io_error(w, &err);
    free(text);
    return ret;
}

static void report(Work *w, const Exports *x, const char *folder)
{
    Sb sb;
    sb_init(&sb, w->arena);
    for (int i = 0; i < x->modules.num; i++) {
        const Export *e = x->modules.elem[i];
        const WriteModule *m = &e->module;
        sb_printf(&sb, "%s  [%lld, %lld]  ", m->name, (long long)m->rows, (long long)m->cols);
        scheme_print(&sb, &m->scheme, false);
        sb_printf(&sb, "  %s", m->format);
        if (m->act.is_quantised) {
            sb_put(&sb, "  act ");
            scheme_print(&sb, &m->act.scheme, true);
            sb_put(&sb, m->act.is_static ? " static" : " dynamic");
        }
        if (e->outer != e->written)
            sb_printf(&sb, "\n    second scale %.9g for %.9g, by which dividing is exact",
                      (double)e->written, (double)e->outer);
        sb_putc(&sb, '\n');
    }
    sb_printf(&sb, "%s: %d modules as %s, %d tensors as they were", folder, x->modules.num,
              x->writer->name, x->num_copied);
    if (x->num_changed)
        sb_printf(&sb, ", %d changed by smoothing or rotation", x->num_changed);
    sb_putc(&sb, '\n');
    work_put(w, NULL, sb.text, sb.len);
}

/* Errors name the folder as it was given, not the one in which its files are made. */
static void folder_error(Work *w, const char *folder, const char *temp, IoError *err)
{
    size_t len = strlen(temp);
    if (!strncmp(err->text, temp, len))
        diag_error(&w->diag, (Span){0}, err->id, "%s%s", folder, err->text + len);
    else
        work_io_error(w, err);
}

static void write_folder(Work *w, const Exports *x, const char *folder, uint64_t shard,
                         const char *config)
{
    IoError err;
    OutFolder *out = outfolder_create(folder, &err);
    if (!out) {
        work_io_error(w, &err);
        return;
    }
    const char *temp = arena_strdup(w->arena, outfolder_path(out));
    bool ok = folder_write(w->arena, temp, x->units.num, x->units.elem, shard, config, &err);
    if (!ok)
        outfolder_abandon(out);
    else
        ok = outfolder_finish(out, "config.json", &err);
    if (ok)
        report(w, x, folder);
    else
        folder_error(w, folder, temp, &err);
}

static void quantise(Work *w, const char *folder)
{
    Exports x;
    uint64_t shard = UINT64_C(5000000000);
    if (!work_bytes(w, OPTION_SHARD_BYTES, 1, &shard) || !work_lower(w, w->cli->operand.elem[0]) ||
        !work_passes_part(w, "choose-scheme", "quantise-weights", false))
        return;
    exports_begin(&x, w, writer_find(cli_get(w->cli, OPTION_FORMAT, "compressed-tensors")));
    if (!work_passes_part(w, "choose-scheme", "quantise-weights", true) || !exports_collect(&x))
        return;
    const char *config = config_text_with(w, &x);
    if (config)
        write_folder(w, &x, folder, shard, config);
}

int cmd_quantise(Cli *cli)
{
    Work w;
    const char *folder = cli_get(cli, OPTION_OUTPUT_FOLDER, NULL);
    if (!folder)
        return cli_usage(cli, "give the folder to write: -o FOLDER");
    if (!work_init(&w, cli))
        return EXIT_INPUT;
    quantise(&w, folder);
    return work_end(&w, EXIT_OK);
}
