/* Fuzz target: the readers of quantised checkpoints. An input is a configuration, a NUL, the header
 * of a safetensors file, a NUL and its data. Whatever is accepted must be readable. */
#include "checkpoint/checkpoint.h"
#include "draws.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MOST (1 << 20) /* elements of a module that is read */

static void remove_files(void)
{
    static const char *const name[] = {"config.json", "model.safetensors"};
    char path[256];

    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", fuzz_folder(), name[i]);
        unlink(path);
    }
}

/* Handlers run in the reverse of their order: first the files go, then their folder. */
static const char *folder(void)
{
    static const char *path;

    if (!path) {
        path = fuzz_folder();
        atexit(remove_files);
    }
    return path;
}

static void put_file(const char *path, const void *head, size_t head_size, const void *data,
                     size_t size)
{
    FILE *f = fopen(path, "wb");

    if (!f || fwrite(head, 1, head_size, f) != head_size || fwrite(data, 1, size, f) != size)
        abort();
    fclose(f);
}

static void read_all(const Checkpoint *c)
{
    for (int i = 0; i < c->modules.num; i++) {
        const StoredModule *m = c->modules.elem[i];
        IoError err;
        if (m->rows > MOST / m->cols)
            continue;
        float *values = calloc((size_t)m->rows, (size_t)m->cols * sizeof *values);
        if (values)
            stored_values(m, values, &err);
        free(values);
    }
}

static void open_all(const char *path)
{
    IoError err;
    Arena *arena = arena_create();
    WeightSet *weights = weights_open(1, &path, &err);
    Checkpoint *c = weights ? checkpoint_open(arena, weights, 1, &path, &err) : NULL;

    if (c)
        read_all(c);
    weights_close(weights);
    arena_destroy(arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *config = memchr(data, 0, size);
    char path[256], head[8];
    if (!config)
        return 0;
    const uint8_t *header = config + 1;
    size_t left = size - (size_t)(header - data);
    const uint8_t *end = memchr(header, 0, left);
    if (!end)
        return 0;
    uint64_t len = (uint64_t)(end - header);
    for (int i = 0; i < 8; i++)
        head[i] = (char)(len >> (8 * i));
    uint8_t *file = malloc(left + 8);
    if (!file)
        return 0;
    memcpy(file, head, 8);
    memcpy(file + 8, header, (size_t)len);
    memcpy(file + 8 + len, end + 1, left - (size_t)len - 1);
    snprintf(path, sizeof path, "%s/config.json", folder());
    put_file(path, data, (size_t)(config - data), "", 0);
    snprintf(path, sizeof path, "%s/model.safetensors", folder());
    put_file(path, file, (size_t)len + 8, file + 8 + len, left - (size_t)len - 1);
    free(file);
    open_all(folder());
    return 0;
}
