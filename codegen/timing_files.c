/* codegen/timing_files: which tables of timings a compilation goes by. */
#include "codegen/timing.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SUFFIX ".timing"

/* Embedded tables (codegen/meson.build makes them). */
#define LIBRARY_FILE(symbol, gpu)        \
    extern const unsigned char symbol[]; \
    extern const size_t symbol##_size;
#define TIMING_FILE(symbol, gpu)         \
    extern const unsigned char symbol[]; \
    extern const size_t symbol##_size;
#include "codegen/timing_files.def"

typedef struct Shipped {
    const char *gpu;
    const unsigned char *text;
    const size_t *size;
} Shipped;
static const Shipped shipped[] = {
#define TIMING_FILE(symbol, gpu) {gpu, symbol, &symbol##_size},
#include "codegen/timing_files.def"
};

static const Shipped library[] = {
#define LIBRARY_FILE(symbol, gpu) {gpu, symbol, &symbol##_size},
#include "codegen/timing_files.def"
};

const char *timing_shipped(const char *gpu, size_t *ret_len)
{
    for (size_t i = 0; i < COUNT_OF(shipped); i++)
        if (!strcmp(shipped[i].gpu, gpu)) {
            *ret_len = *shipped[i].size;
            return (const char *)shipped[i].text;
        }
    return NULL;
}

/* In steps of 4 GiB, beyond 32 GiB of 16, upwards. */
const char *timing_gpu_name(Arena *arena, int capability, int processors, uint64_t memory_bytes)
{
    uint64_t step = memory_bytes > UINT64_C(32) << 30 ? 16 : 4;
    uint64_t steps = (memory_bytes + (step << 30) - 1) / (step << 30);
    return arena_printf(arena, "sm_%d-%dsm-%dg", capability, processors, (int)(steps * step));
}

/* Folders of the user's ------------------------------------------------------------------------ */

static const char *own_folder(Arena *arena)
{
    const char *data = secure_getenv("XDG_DATA_HOME"), *home = secure_getenv("HOME");
    if (data && data[0] == '/')
        return arena_printf(arena, "%s/sinter/timing", data);
    return home && home[0] == '/' ? arena_printf(arena, "%s/.local/share/sinter/timing", home)
                                  : NULL;
}

static void make_folders(Arena *arena, const char *path)
{
    char *part = arena_strdup(arena, path);
    for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        (void)mkdir(part, 0777); /* what is missing is said when the file is written */
        *slash = '/';
    }
}

const char *timing_own_path(Arena *arena, const char *gpu, bool make)
{
    const char *folder = own_folder(arena);
    if (!folder)
        return NULL;
    const char *path = arena_printf(arena, "%s/%s" SUFFIX, folder, gpu);
    if (make)
        make_folders(arena, path);
    return path;
}

/* Choosing ------------------------------------------------------------------------------------- */

/* "sm_90-" of "sm_90a": what the names of its GPUs begin with. */
static const char *gpu_prefix(Arena *arena, const char *arch)
{
    size_t len = strlen("sm_");
    len += strspn(arch + len, "0123456789");
    return arena_printf(arena, "%.*s-", (int)len, arch);
}

static const char *shipped_gpu(const char *prefix)
{
    for (size_t i = 0; i < COUNT_OF(shipped); i++)
        if (!strncmp(shipped[i].gpu, prefix, strlen(prefix)))
            return shipped[i].gpu;
    return NULL;
}

/* The GPU of a table that was measured here: `preferred` where there is one, else the first by
 * name. */
static const char *own_gpu(Arena *arena, const char *prefix, const char *preferred)
{
    const char *folder = own_folder(arena), *best = NULL;
    DIR *dir = folder ? opendir(folder) : NULL;
    for (const struct dirent *e; dir && (e = readdir(dir));) {
        size_t len = strlen(e->d_name), suffix = strlen(SUFFIX);
        if (len <= suffix || strcmp(e->d_name + len - suffix, SUFFIX) != 0 ||
            strncmp(e->d_name, prefix, strlen(prefix)) != 0)
            continue;
        const char *gpu = arena_strndup(arena, e->d_name, len - suffix);
        bool is_preferred = preferred && !strcmp(gpu, preferred);
        if (!best || is_preferred || strcmp(gpu, best) < 0)
            best = gpu;
        if (is_preferred)
            break;
    }
    if (dir)
        closedir(dir);
    return best;
}

static const char *default_gpu(Arena *arena, int num_archs, const char *const *arch)
{
    for (int i = num_archs - 1; i >= 0; i--) {
        if (strncmp(arch[i], "sm_", 3) != 0)
            continue;
        const char *prefix = gpu_prefix(arena, arch[i]), *with = shipped_gpu(prefix);
        const char *own = own_gpu(arena, prefix, with);
        if (own || with)
            return own ? own : with;
    }
    return NULL;
}

static void open_own(Timings *t, Arena *arena, Diag *diag)
{
    IoError err;
    struct stat st;
    TimingTable *own = ARENA_NEW(arena, TimingTable);
    const char *path = timing_own_path(arena, t->gpu, false);
    if (!path || (stat(path, &st) != 0 && errno == ENOENT))
        return;
    if (timing_table_read(own, arena, path, &err)) {
        t->own = own;
    } else {
        diag_warning(diag, (Span){0}, err.id, "%s", err.text);
        diag_help(diag, "without it kernels are chosen by less; remove it, or measure again with "
                        "'sinter tune --again'");
    }
}

/* A table that is part of the compiler; NULL: there is none. */
static TimingTable *open_embedded(Arena *arena, const char *gpu)
{
    IoError err;
    size_t len;
    const char *text = gpu ? timing_shipped(gpu, &len) : NULL;
    TimingTable *ret = text ? ARENA_NEW(arena, TimingTable) : NULL;
    if (ret && !timing_table_open(ret, arena, gpu, text, len, &err))
        BUG("%s", err.text);
    return ret;
}

/* Another GPU of a shipped table that has as many processors of this architecture. */
static const char *like_gpu(const char *gpu)
{
    const char *memory = strrchr(gpu, '-');
    for (size_t i = 0; i < COUNT_OF(shipped) && memory; i++)
        if (!strncmp(shipped[i].gpu, gpu, (size_t)(memory - gpu) + 1) &&
            strcmp(shipped[i].gpu, gpu) != 0)
            return shipped[i].gpu;
    return NULL;
}

static void open_shipped(Timings *t, Arena *arena)
{
    t->shipped = open_embedded(arena, t->gpu);
    t->like = open_embedded(arena, like_gpu(t->gpu));
}

const char *timing_library_problem(Arena *arena, int64_t n, int64_t k)
{
    return arena_printf(arena, "w=bf16 a=bf16 n=%" PRId64 " k=%" PRId64, n, k);
}

bool timing_library(Arena *arena, const char *gpu, TimingTable *ret)
{
    IoError err;
    for (size_t i = 0; gpu && i < COUNT_OF(library); i++)
        if (!strcmp(library[i].gpu, gpu)) {
            if (!timing_table_parse(ret, arena, gpu, (const char *)library[i].text,
                                    *library[i].size, &err))
                BUG("%s", err.text);
            return true;
        }
    return false;
}

bool timings_open(Timings *ret, Arena *arena, Diag *diag, const char *which, int num_archs,
                  const char *const *arch)
{
    IoError err;
    *ret = (Timings){0};
    if (which && !strcmp(which, "none"))
        return true;
    if (which && strpbrk(which, "/.")) {
        ret->own = ARENA_NEW(arena, TimingTable);
        if (!timing_table_read(ret->own, arena, which, &err)) {
            diag_error(diag, (Span){0}, err.id, "%s", err.text);
            return false;
        }
        ret->gpu = ret->own->gpu;
        open_shipped(ret, arena);
        return true;
    }
    ret->gpu = which ? which : default_gpu(arena, num_archs, arch);
    if (!ret->gpu)
        return true;
    open_own(ret, arena, diag);
    open_shipped(ret, arena);
    if (which && !ret->own && !ret->shipped) {
        diag_error(diag, (Span){0}, E_TIMING, "there is no table of timings of the GPU '%s'",
                   which);
        diag_help(diag, "'sinter tune' measures one where that GPU is; --timing=none does without");
        return false;
    }
    return true;
}

const TimingRow *timings_find(const Timings *t, const char *problem, int64_t rows,
                              const char *candidate, TimingSource *ret_source)
{
    const TimingRow *row = t->own ? timing_table_find(t->own, problem, rows, candidate) : NULL;
    *ret_source = row ? TIMING_MEASURED : TIMING_SHIPPED;
    if (!row && t->shipped)
        row = timing_table_find(t->shipped, problem, rows, candidate);
    return row;
}

const char *timings_akin(const Timings *t, const char *problem, int64_t rows)
{
    const char *own = t->own ? timing_table_akin(t->own, problem, rows) : NULL;
    return own || !t->shipped ? own : timing_table_akin(t->shipped, problem, rows);
}

bool timings_around(const Timings *t, const char *problem, int64_t rows, int64_t ret[2])
{
    ret[0] = ret[1] = 0;
    if (t->own)
        timing_table_around(t->own, problem, rows, ret);
    if (t->shipped)
        timing_table_around(t->shipped, problem, rows, ret);
    return ret[0] || ret[1];
}

const TimingRow *timings_find_like(const Timings *t, const char *problem, int64_t rows,
                                   const char *candidate)
{
    return t->like ? timing_table_find(t->like, problem, rows, candidate) : NULL;
}
