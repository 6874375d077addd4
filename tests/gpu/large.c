/* large [--dry] [ROWS COLS]: a tensor of more than 2^31 elements, by default 65,600 rows of 32,768:
 * an elementwise row program reads and writes it, a quantisation per token writes its codes, an
 * integer product reads them. The GPU's results must have the CPU's bits. Needs 20 GB of the host's
 * memory and 12 GB of the GPU's. --dry: the CPU stands for the GPU. Exits with 77 without a GPU or
 * memory. */
#include "io/io.h"
#include "tests/gpu/check.h"
#include "tests/gpu/sides.h"
#include "tests/random/generate.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OUTPUTS 8
#define SKIP    77
#define DRAWN \
    ((uint64_t)1000003) /* values; the tensor repeats them, at another place in each row */

static const char text[] =
    "version 1\n"
    "weights \"w.safetensors\"\n"
    "dim B in [%" PRId64 "]\n"
    "scheme s { weight i8 per channel; act i8 per token }\n"
    "model m (x: f16[B, %" PRId64 "]) -> (y: f16[B, %" PRId64 "], z: f32[B, %d]) {\n"
    "    param w: f16[%d, %" PRId64 "]\n"
    "    y = silu(x)\n"
    "    z = linear(x, w) @ s\n"
    "}\n";

static uint16_t *draw_values(uint64_t num, double scale)
{
    uint64_t state = 31;
    uint16_t *value = malloc((size_t)num * sizeof *value);
    for (uint64_t i = 0; value && i < num; i++) {
        float v = (float)(scale * random_normal(&state));
        format_from_f32(FMT_F16, &v, &value[i], 1);
    }
    return value;
}

static bool write_files(const char *dir, int64_t rows, int64_t cols)
{
    char path[300];
    IoError err;
    snprintf(path, sizeof path, "%s/model.sinter", dir);
    FILE *file = fopen(path, "w");
    bool ok = file && fprintf(file, text, rows, cols, cols, OUTPUTS, OUTPUTS, cols) > 0;
    ok = file && fclose(file) == 0 && ok;
    const int64_t dim[] = {OUTPUTS, cols};
    const SafetensorsItem item = {.name = "w",
                                  .fmt = FMT_F16,
                                  .rank = 2,
                                  .dim = dim,
                                  .data = draw_values(OUTPUTS * (uint64_t)cols, 0.01)};
    snprintf(path, sizeof path, "%s/w.safetensors", dir);
    ok = ok && item.data && safetensors_write(path, 1, &item, &err);
    free((void *)(uintptr_t)item.data);
    return ok;
}

static void remove_files(const char *dir)
{
    static const char *const name[] = {"model.sinter", "w.safetensors"};
    char path[300];
    for (size_t i = 0; i < COUNT_OF(name); i++) {
        snprintf(path, sizeof path, "%s/%s", dir, name[i]);
        unlink(path);
    }
    rmdir(dir);
}

static void fill_repeating(Side *side)
{
    uint16_t *value = draw_values(DRAWN, 2);
    uint64_t num = side->bytes[0] / sizeof *value, at = 0;
    for (uint64_t i = 0; i < num; i += DRAWN, at = (at + 7919) % DRAWN) {
        uint64_t left = num - i < DRAWN ? num - i : DRAWN, first = DRAWN - at;
        first = first < left ? first : left;
        uint16_t *to = (uint16_t *)side->data[0] + i;
        memcpy(to, value + at, (size_t)first * sizeof *value);
        memcpy(to + first, value, (size_t)(left - first) * sizeof *value);
    }
    free(value);
}

static bool run(const Built *b, const char *device, const Side *in, Side *out)
{
    SinterError err;
    SinterSession *session = NULL;
    double begin = check_seconds();
    bool ok = !sinter_session_create(b->file, &(SinterSessionOptions){.device = device}, &session,
                                     &err) &&
              !sinter_run(session, in->tensor, in->num, out->tensor, out->num, &err);
    sinter_session_destroy(session);
    printf("# %s: %s, %.1f s\n", device, ok ? "ran" : err.text, check_seconds() - begin);
    fflush(stdout);
    return ok;
}

static bool check(const Built *b, const int64_t *size, bool dry)
{
    char differ[200];
    Side in, want, got;
    bool ok = side_make(b->file, false, size, &in);
    ok = side_make(b->file, true, size, &want) && ok;
    ok = side_make(b->file, true, size, &got) && ok;
    for (int i = 0; i < in.num; i++)
        ok = ok && in.data[i];
    for (int i = 0; i < want.num; i++)
        ok = ok && want.data[i] && got.data[i];
    if (!ok)
        puts("# no memory");
    if (ok) {
        fill_repeating(&in);
        ok = run(b, "cpu", &in, &want) && run(b, dry ? "cpu" : "cuda:0", &in, &got);
    }
    const char *what = ok ? side_difference(&want, &got, differ, sizeof differ) : NULL;
    if (what)
        printf("# %s\n", what);
    side_free(&in);
    side_free(&want);
    side_free(&got);
    return ok && !what;
}

int main(int argc, char **argv)
{
    Built b;
    char dir[] = "/tmp/sinter-large-XXXXXX", path[300];
    bool dry = argc > 1 && !strcmp(argv[1], "--dry");
    int64_t size[8] = {argc > 2 + dry ? atoll(argv[1 + dry]) : 65600};
    int64_t cols = argc > 2 + dry ? atoll(argv[2 + dry]) : 32768;
    double need = 10.0 * (double)size[0] * (double)cols;
    double room = (double)sysconf(_SC_AVPHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    if (need > room) {
        printf("# skip: it needs %.1f GB of memory, %.1f are free\n", need / 1e9, room / 1e9);
        return SKIP;
    }
    if (!dry && !rig_probe())
        return SKIP;
    if (!mkdtemp(dir) || !write_files(dir, size[0], cols))
        return 2;
    snprintf(path, sizeof path, "%s/model.sinter", dir);
    const BuildOptions build = {.path = path, .dir = dir, .level = 1, .code = !dry};
    bool ok = built_make(&b, &build) && check(&b, size, dry);
    printf("%sok - %" PRId64 " elements\n", ok ? "" : "not ", size[0] * cols);
    built_free(&b);
    remove_files(dir);
    return !ok;
}
