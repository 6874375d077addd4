/* The draft of a folder: which family it is of, its head and its tail. See draft.h. */
#include "draft/draft.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

static bool ends_with(const char *text, const char *end)
{
    size_t len = strlen(text), num = strlen(end);
    return len >= num && strcmp(text + len - num, end) == 0;
}

static int compare_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

int draft_files(Arena *arena, const char *folder, const char *const **ret)
{
    ARRAY(const char *) files = {0};
    DIR *dir = opendir(folder);
    const char *index = NULL;
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        if (strcmp(entry->d_name, "model.safetensors.index.json") == 0)
            index = "model.safetensors.index.json";
        else if (ends_with(entry->d_name, ".safetensors"))
            ARRAY_PUSH(arena, &files, (const char *)arena_strdup(arena, entry->d_name));
    }
    if (dir)
        closedir(dir);
    if (index) {
        files.num = 0;
        ARRAY_PUSH(arena, &files, index);
    }
    if (files.num)
        qsort((void *)files.elem, (size_t)files.num, sizeof *files.elem, compare_text);
    *ret = files.elem;
    return files.num;
}

static const char *format_of(const TensorView *view)
{
    return view && view->fmt == FMT_BF16 ? "bf16" : view && view->fmt == FMT_F16 ? "f16" : "f32";
}

/* What stands before `end` in the first name that ends so; NULL: no name does. */
static const char *prefix_of(Draft *d, const char *end, const TensorView **ret)
{
    for (int i = 0; i < weights_num(d->weights); i++) {
        const TensorView *view = weights_at(d->weights, i);
        if (!ends_with(view->name, end))
            continue;
        *ret = view;
        return arena_strndup(d->arena, view->name, strlen(view->name) - strlen(end));
    }
    return NULL;
}

static int64_t count_layers(Draft *d, const char *pattern)
{
    int64_t num = 0;
    while (draft_find(d, pattern, num))
        num++;
    return num;
}

void draft_begin(Draft *d)
{
    draft_line(d, "version 1");
    for (int i = 0; i < d->num_paths; i++)
        draft_line(d, "weights \"%s\"", d->path[i]);
}

static void refuse(Draft *d, const char *what)
{
    diag_error(d->diag, (Span){0}, E_DRAFT, "%s: %s", d->folder, what);
}

/* Of a family with layers: its prefix, the number of its layers, the format of its values. */
static void put_layered(Draft *d, const char *end, const char *inside, void (*put)(Draft *))
{
    const TensorView *first;
    d->prefix = prefix_of(d, end, &first);
    d->format = format_of(first);
    d->layers = count_layers(d, arena_printf(d->arena, "%s%s", d->prefix, inside));
    if (d->config.layers && d->config.layers != d->layers)
        diag_error(d->diag, (Span){0}, E_DRAFT,
                   "%s: config.json says %lld layers, but there are tensors of %lld", d->folder,
                   (long long)d->config.layers, (long long)d->layers);
    else
        put(d);
}

static void put_model(Draft *d)
{
    const TensorView *first;
    if (d->config.experts > 1 && !draft_knows_experts(d->config.type))
        refuse(d, "the model has experts, which drafts say of mixtral, qwen2_moe, qwen3_moe, olmoe "
                  "and gpt_oss");
    else if (d->config.type && prefix_of(d, "layers.0.input_layernorm.weight", &first))
        put_layered(d, "layers.0.input_layernorm.weight", "layers.{i}.input_layernorm.weight",
                    draft_decoder);
    else if (d->config.type && prefix_of(d, "encoder.layer.0.attention.self.query.weight", &first))
        put_layered(d, "encoder.layer.0.attention.self.query.weight",
                    "encoder.layer.{i}.attention.self.query.weight", draft_encoder);
    else
        draft_chain(d);
}

const char *draft_text(Arena *arena, Diag *diag, const char *folder, const Checkpoint *stored,
                       int num_paths, const char *const *path)
{
    Draft d = {.arena = arena,
               .diag = diag,
               .weights = stored->weights,
               .stored = stored,
               .folder = folder,
               .prefix = "",
               .num_paths = num_paths,
               .path = path};
    if (!draft_config(arena, diag, folder, &d.config))
        return NULL;
    map_init(&d.used, arena);
    sb_init(&d.sb, arena);
    sb_put(&d.sb, "# Drafted from ");
    sb_put(&d.sb, d.config.type ? "config.json and " : "");
    sb_put(&d.sb, "the names and shapes of the tensors");
    if (d.config.type) {
        sb_put(&d.sb, "; model_type ");
        sb_put_safe(&d.sb, d.config.type, strlen(d.config.type));
    }
    sb_put(&d.sb, ".\n");
    put_model(&d);
    if (stored->reader && stored->modules.num)
        draft_line(&d,
                   "\n# %d weights are stored quantised (%s) and keep their codes; 'sinter import' "
                   "lists them.",
                   stored->modules.num, stored->reader->name);
    draft_unused(&d);
    return diag->num_errors ? NULL : d.sb.text;
}
