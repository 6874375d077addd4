/* checkpoint/folder: a checkpoint's folder, written whole or not at all: every file under a name of
 * its own until all are there. Tensors are made one unit at a time, so memory holds one. */
#include "checkpoint/write.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct Shard {
    int first, num; /* units */
    int num_items;
    uint64_t bytes;
    const char *name;
    OutFile *file;
    uint64_t *at; /* of each item */
} Shard;

typedef struct Folder {
    Arena *arena;
    const char *path;
    const FolderUnit *unit;
    ARRAY(Shard) shards;
    OutFile *index, *config;
    uint64_t bytes;
    IoError *err;
} Folder;

static const char *inside(const Folder *f, const char *name)
{
    return arena_printf(f->arena, "%s/%s", f->path, name);
}

static bool unit_bytes(const Folder *f, const FolderUnit *unit, uint64_t *ret)
{
    uint64_t bytes;

    *ret = 0;
    for (int i = 0; i < unit->num; i++) {
        if (!safetensors_bytes(f->path, &unit->item[i], &bytes, f->err))
            return false;
        *ret += bytes;
    }
    return true;
}

/* Which units lie in which file. */
static bool shards_plan(Folder *f, int num, uint64_t most)
{
    Shard *last = NULL;
    uint64_t bytes;

    for (int i = 0; i < num; i++) {
        if (!unit_bytes(f, &f->unit[i], &bytes))
            return false;
        if (!last || last->bytes + bytes > most) {
            ARRAY_PUSH(f->arena, &f->shards, ((Shard){.first = i}));
            last = &f->shards.elem[f->shards.num - 1];
        }
        last->num++;
        last->num_items += f->unit[i].num;
        last->bytes += bytes;
        f->bytes += bytes;
    }
    for (int i = 0; i < f->shards.num; i++)
        f->shards.elem[i].name =
            f->shards.num == 1
                ? "model.safetensors"
                : arena_printf(f->arena, "model-%05d-of-%05d.safetensors", i + 1, f->shards.num);
    return true;
}

static bool unit_make(const Folder *f, const FolderUnit *unit, void **data, const uint64_t *bytes)
{
    for (int i = 0; i < unit->num; i++) {
        data[i] = calloc(1, (size_t)bytes[i] + 1);
        if (!data[i])
            return io_fail(f->err, E_MEMORY, "%s: memory is exhausted", unit->item[i].name);
    }
    return unit->make(unit, data, f->err);
}

static bool unit_write(const Folder *f, OutFile *file, const FolderUnit *unit, const uint64_t *at)
{
    void *data[WRITE_PARTS] = {NULL};
    uint64_t bytes[WRITE_PARTS];
    bool ok = true;

    for (int i = 0; i < unit->num && ok; i++)
        ok = safetensors_bytes(f->path, &unit->item[i], &bytes[i], f->err);
    if (ok && unit->make)
        ok = unit_make(f, unit, data, bytes);
    for (int i = 0; i < unit->num && ok; i++)
        outfile_patch(file, at[i], unit->make ? data[i] : unit->item[i].data, bytes[i]);
    for (int i = 0; i < unit->num; i++)
        free(data[i]);
    return ok;
}

static bool shard_write(Folder *f, Shard *shard)
{
    const char *path = inside(f, shard->name);
    SafetensorsItem *item =
        ARENA_NEW_ARRAY(f->arena, SafetensorsItem, (size_t)shard->num_items + 1);
    int num = 0;

    shard->at = ARENA_NEW_ARRAY(f->arena, uint64_t, (size_t)shard->num_items + 1);
    for (int i = shard->first; i < shard->first + shard->num; i++)
        for (int k = 0; k < f->unit[i].num; k++)
            item[num++] = f->unit[i].item[k];
    shard->file = outfile_create(path, 0666, f->err);
    if (!shard->file || !safetensors_begin(shard->file, path, num, item, shard->at, f->err))
        return false;
    num = 0;
    for (int i = shard->first; i < shard->first + shard->num; i++) {
        if (!unit_write(f, shard->file, &f->unit[i], shard->at + num))
            return false;
        num += f->unit[i].num;
    }
    return true;
}

static bool text_create(Folder *f, const char *name, const char *text, OutFile **ret)
{
    *ret = outfile_create(inside(f, name), 0666, f->err);
    if (*ret)
        outfile_write(*ret, text, strlen(text));
    return *ret != NULL;
}

static bool index_create(Folder *f)
{
    Sb sb;

    sb_init(&sb, f->arena);
    sb_printf(&sb, "{\"metadata\": {\"total_size\": %llu}, \"weight_map\": {",
              (unsigned long long)f->bytes);
    for (int s = 0; s < f->shards.num; s++) {
        const Shard *shard = &f->shards.elem[s];
        for (int i = shard->first; i < shard->first + shard->num; i++) {
            for (int k = 0; k < f->unit[i].num; k++) {
                const char *name = f->unit[i].item[k].name;
                sb_put(&sb, s || i > shard->first || k ? ",\n" : "\n");
                sb_put_json_string(&sb, name, strlen(name));
                sb_printf(&sb, ": \"%s\"", shard->name);
            }
        }
    }
    sb_put(&sb, "\n}}\n");
    return text_create(f, "model.safetensors.index.json", sb.text, &f->index);
}

static bool finish_one(Folder *f, OutFile **file)
{
    OutFile *out = *file;

    *file = NULL;
    return !out || outfile_finish(out, f->err);
}

/* The configuration comes last: a folder with one is complete. */
static bool finish_all(Folder *f)
{
    bool ok = true;

    for (int i = 0; i < f->shards.num && ok; i++)
        ok = finish_one(f, &f->shards.elem[i].file);
    return ok && finish_one(f, &f->index) && finish_one(f, &f->config);
}

/* What was renamed already goes, too. */
static void undo(Folder *f, bool made)
{
    for (int i = 0; i < f->shards.num; i++) {
        outfile_abandon(f->shards.elem[i].file);
        unlink(inside(f, f->shards.elem[i].name));
    }
    outfile_abandon(f->index);
    outfile_abandon(f->config);
    unlink(inside(f, "model.safetensors.index.json"));
    if (made)
        rmdir(f->path);
}

bool folder_write(Arena *arena, const char *path, int num, const FolderUnit *unit, uint64_t shard,
                  const char *config, IoError *err)
{
    Folder f = {.arena = arena, .path = path, .unit = unit, .err = err};
    bool made = mkdir(path, 0777) == 0;

    if (!made && errno != EEXIST)
        return io_fail(err, E_FILE_WRITE, "%s: cannot be made: %s", path, strerror(errno));
    if (!made && !folder_is_empty(path))
        return io_fail(err, E_FILE_WRITE, "%s: is not an empty folder; name one that is not there",
                       path);
    bool ok = shards_plan(&f, num, shard);
    for (int i = 0; i < f.shards.num && ok; i++)
        ok = shard_write(&f, &f.shards.elem[i]);
    ok = ok && (f.shards.num < 2 || index_create(&f)) &&
         text_create(&f, "config.json", config, &f.config) && finish_all(&f);
    if (!ok)
        undo(&f, made);
    return ok;
}

const char *config_with(Arena *arena, const char *file, const char *text, const char *key,
                        const char *value, const char *other, IoError *err)
{
    char name[LIMIT_TOKEN_BYTES];
    bool first = true;
    Json json;
    Sb sb;

    sb_init(&sb, arena);
    sb_putc(&sb, '{');
    json_init(&json, text ? text : "{}", text ? strlen(text) : 2);
    bool ok = json_object_begin(&json);
    while (ok && json_next_key(&json, name, sizeof name, &first)) {
        json_peek(&json);
        size_t from = json.pos;
        ok = json_skip(&json);
        if (!ok || !strcmp(name, key) || !strcmp(name, other))
            continue;
        sb_put(&sb, "\n  ");
        sb_put_json_string(&sb, name, strlen(name));
        sb_printf(&sb, ": %.*s,", (int)(json.pos - from), json.text + from);
    }
    if (!ok || json.error || !json_end(&json)) {
        io_fail(err, E_CHECKPOINT, "%s: byte %zu: %s", file, json.pos,
                json.error ? json.error : "is not an object");
        return NULL;
    }
    sb_printf(&sb, "\n  \"%s\": %s\n}\n", key, value);
    return sb.text;
}
