/* Weight sets: several .safetensors files, one index of a sharded checkpoint, or the folder of
 * either, seen as one name space. */
#include "io/tensors.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FORGET_AFTER (8u << 20) /* elements, so that many small tensors cost no calls */

struct WeightSet {
    TensorFile **file;
    int num, cap;
    uint64_t read; /* elements since the files were last forgotten */
    NameTable names;
};

static TensorFile *add_file(WeightSet *w, const char *path, IoError *err)
{
    for (int i = 0; i < w->num; i++)
        if (strcmp(w->file[i]->name, path) == 0)
            return w->file[i];
    if (w->num == w->cap) {
        int cap = w->cap ? w->cap * 2 : 8;
        TensorFile **file = realloc(w->file, (size_t)cap * sizeof *file);
        if (!file) {
            io_fail(err, E_MEMORY, "%s: memory is exhausted", path);
            return NULL;
        }
        w->file = file;
        w->cap = cap;
    }
    TensorFile *f = tensorfile_open(path, err);
    if (!f)
        return NULL;
    w->file[w->num++] = f;
    if (f->kind == TENSORS_NPY) {
        io_fail(err, E_FILE_KIND,
                "%s: is .npy, which names no tensor; weights need .safetensors: "
                "safetensors.numpy.save_file({'name': numpy.load(path)}, 'm.safetensors')",
                path);
        return NULL;
    }
    return f;
}

/* The file that holds a view. */
static const TensorFile *file_of(const WeightSet *w, const TensorView *view)
{
    for (int i = 0; i < w->num; i++)
        if (view >= w->file[i]->view && view < w->file[i]->view + w->file[i]->num)
            return w->file[i];
    return NULL;
}

static bool add_view(WeightSet *w, const TensorFile *f, const TensorView *view, IoError *err)
{
    const TensorView *other = names_find(&w->names, view->name);
    if (other)
        return io_fail(err, E_WEIGHT_TWICE, "%s: tensor '%.200s' is also in %s", f->name,
                       view->name, file_of(w, other)->name);
    return names_add(&w->names, view) || io_fail(err, E_MEMORY, "%s: memory is exhausted", f->name);
}

bool weights_each_metadata(const WeightSet *w, MetadataFn *fn, void *user, IoError *err)
{
    for (int i = 0; i < w->num; i++)
        if (w->file[i]->kind == TENSORS_SAFETENSORS &&
            !safetensors_metadata(w->file[i], fn, user, err))
            return false;
    return true;
}

static bool add_all(WeightSet *w, const char *path, IoError *err)
{
    const TensorFile *f = add_file(w, path, err);
    if (!f)
        return false;
    for (uint32_t i = 0; i < f->num; i++)
        if (!add_view(w, f, &f->view[i], err))
            return false;
    return true;
}

/* A shard is a plain file name: an index must not reach out of its folder. */
static bool is_plain_name(const char *name)
{
    return name[0] && !strchr(name, '/') && !strchr(name, '\\') && strcmp(name, "..") != 0 &&
           strcmp(name, ".") != 0;
}

static bool add_mapped(WeightSet *w, const char *index, const char *tensor, const char *shard,
                       IoError *err)
{
    if (!is_plain_name(shard))
        return io_fail(err, E_WEIGHT_INDEX, "%s: the file '%.200s' of '%.200s' is not a plain name",
                       index, shard, tensor);
    char *path = path_beside(index, shard);
    if (!path)
        return io_fail(err, E_MEMORY, "%s: memory is exhausted", index);
    const TensorFile *f = add_file(w, path, err);
    free(path);
    if (!f)
        return false;
    const TensorView *view = tensorfile_find(f, tensor);
    if (!view)
        return io_fail(err, E_WEIGHT_INDEX, "%s: tensor '%.200s' is not in %s", index, tensor,
                       f->name);
    return add_view(w, f, view, err);
}

static bool read_map(WeightSet *w, const char *path, Json *j, IoError *err)
{
    char tensor[LIMIT_TOKEN_BYTES], shard[LIMIT_TOKEN_BYTES];
    bool first = true;
    if (!json_object_begin(j))
        return true; /* the caller tells j->error */
    while (json_next_key(j, tensor, sizeof tensor, &first))
        if (json_string(j, shard, sizeof shard) && !add_mapped(w, path, tensor, shard, err))
            return false;
    return true;
}

static bool add_index(WeightSet *w, const char *path, const char *text, uint64_t size, IoError *err)
{
    Json j;
    char key[LIMIT_TOKEN_BYTES];
    bool first = true, has_map = false;
    json_init(&j, text, (size_t)size);
    json_object_begin(&j);
    while (json_next_key(&j, key, sizeof key, &first)) {
        if (strcmp(key, "weight_map") != 0) {
            json_skip(&j);
            continue;
        }
        if (has_map)
            return io_fail(err, E_WEIGHT_INDEX, "%s: weight_map occurs twice", path);
        has_map = true;
        if (!read_map(w, path, &j, err))
            return false;
    }
    if (!json_end(&j))
        return io_fail(err, E_WEIGHT_INDEX, "%s: byte %zu: %s", path, j.pos, j.error);
    return has_map || io_fail(err, E_WEIGHT_INDEX, "%s: has no weight_map", path);
}

static bool add_file_at(WeightSet *w, const char *path, IoError *err)
{
    MappedFile map;
    if (!file_map(path, &map, err))
        return false;
    uint64_t at = 0;
    while (at < map.size && strchr(" \t\r\n", map.data[at]) && map.data[at])
        at++;
    bool is_index = at < map.size && map.data[at] == '{';
    bool ok;
    if (is_index && map.size > LIMIT_SAFETENSORS_HEADER)
        ok = io_fail(err, E_WEIGHT_INDEX, "%s: is larger than the limit of %u bytes", path,
                     LIMIT_SAFETENSORS_HEADER);
    else
        ok = is_index ? add_index(w, path, (const char *)map.data, map.size, err)
                      : add_all(w, path, err);
    file_unmap(&map);
    return ok;
}

/* Folders ------------------------------------------------------------------------------------- */

static bool ends_with(const char *text, const char *end)
{
    size_t len = strlen(text), end_len = strlen(end);
    return len > end_len && strcmp(text + len - end_len, end) == 0;
}

/* The one file of this ending; several are as good as none. */
static char *only_file(const char *folder, const char *ending)
{
    DIR *dir = opendir(folder);
    char *found = NULL;
    int num = 0;
    for (const struct dirent *entry; dir && (entry = readdir(dir));) {
        if (!ends_with(entry->d_name, ending))
            continue;
        free(found);
        found = path_join(folder, entry->d_name);
        num++;
    }
    if (dir)
        closedir(dir);
    if (num == 1)
        return found;
    free(found);
    return NULL;
}

/* What a checkpoint's folder calls its weights: the index of several files, or the one file. */
static char *folder_file(const char *folder)
{
    static const char *const names[] = {"model.safetensors.index.json", "model.safetensors"};
    static const char *const endings[] = {".safetensors.index.json", ".gguf", ".safetensors"};
    struct stat st;
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        char *path = path_join(folder, names[i]);
        if (path && stat(path, &st) == 0)
            return path;
        free(path);
    }
    for (size_t i = 0; i < COUNT_OF(endings); i++) {
        char *path = only_file(folder, endings[i]);
        if (path)
            return path;
    }
    return NULL;
}

static bool add_path(WeightSet *w, const char *path, IoError *err)
{
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode))
        return add_file_at(w, path, err);
    char *file = folder_file(path);
    if (!file)
        return io_fail(
            err, E_WEIGHT_INDEX,
            "%s: is a folder with neither model.safetensors, nor an index of it, nor one "
            ".gguf or .safetensors file",
            path);
    bool ok = add_file_at(w, file, err);
    free(file);
    return ok;
}

WeightSet *weights_open(int num, const char *const *path, IoError *err)
{
    WeightSet *w = calloc(1, sizeof *w);
    bool ok = w != NULL || io_fail(err, E_MEMORY, "memory is exhausted");
    for (int i = 0; ok && i < num; i++)
        ok = add_path(w, path[i], err);
    if (ok)
        return w;
    weights_close(w);
    return NULL;
}

void weights_forget(WeightSet *w, uint64_t elements)
{
    if (!w || (w->read += elements) < FORGET_AFTER)
        return;
    for (int i = 0; i < w->num; i++)
        file_forget(&w->file[i]->map);
    w->read = 0;
}

void weights_close(WeightSet *w)
{
    if (!w)
        return;
    for (int i = 0; i < w->num; i++)
        tensorfile_close(w->file[i]);
    names_free(&w->names);
    free(w->file);
    free(w);
}

const TensorView *weights_find(const WeightSet *w, const char *name)
{
    return names_find(&w->names, name);
}

int weights_num(const WeightSet *w)
{
    return (int)w->names.num;
}

const TensorView *weights_at(const WeightSet *w, int index)
{
    return w->names.view[index];
}
