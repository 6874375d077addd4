/* weights TEXT FILE [CALIB ROWS COLS]: random weights for the model texts of this folder, as
 * safetensors, and rows for calibration, as npy.
 * Every line "param NAME: FMT[..]" of literal sizes is one; matrices, and those of groups, come out
 * with values of the size that keeps activations' size, vectors near 1. Same text, same bytes. */
#include "io/io.h"
#include "quant/quant.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PARAMS 64

static uint64_t state = 7;

static float uniform(void) /* [-1, 1) */
{
    uint64_t z = state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (float)((double)((z ^ z >> 31) >> 11) / 4503599627370496.0 - 1.0);
}

static FormatId find_format(const char *name)
{
    for (int i = 0; i < NUM_FORMATS; i++)
        if (!strcmp(format_info[i].name, name))
            return (FormatId)i;
    return FMT_NONE;
}

static void *make(const SafetensorsItem *item)
{
    uint64_t num = 1, size = (uint64_t)format_info[item->fmt].bits / 8;
    for (int i = 0; i < item->rank; i++)
        num *= (uint64_t)item->dim[i];
    bool is_vector = item->rank == 1;
    float scale = is_vector ? 0.3f : sqrtf(3.0f / (float)item->dim[item->rank - 1]);
    float base = is_vector ? 0.7f : 0.0f;
    uint8_t *data = malloc((size_t)(num * size));
    for (uint64_t i = 0; data && i < num; i++) {
        float v = base + scale * uniform();
        format_from_f32(item->fmt, &v, data + i * size, 1);
    }
    return data;
}

static bool write_calib(const char *path, int64_t rows, int64_t cols, IoError *err)
{
    const int64_t dim[] = {rows, cols};
    float *x = malloc((size_t)(rows * cols) * sizeof *x);
    for (int64_t i = 0; x && i < rows * cols; i++)
        x[i] = uniform() + uniform() + uniform() + uniform();
    bool ok = x && npy_write(path, FMT_F32, 2, dim, x, err);
    free(x);
    return ok;
}

int main(int argc, char **argv)
{
    static SafetensorsItem item[MAX_PARAMS];
    static char name[MAX_PARAMS][64];
    static int64_t dim[MAX_PARAMS][3];
    char line[512], fmt[16];
    int num = 0;
    IoError err;
    FILE *f = argc == 3 || argc == 6 ? fopen(argv[1], "r") : NULL;
    if (!f) {
        fprintf(stderr, "usage: weights TEXT FILE [CALIB ROWS COLS]\n");
        return 2;
    }
    while (fgets(line, sizeof line, f) && num < MAX_PARAMS) {
        long long size[3] = {0};
        int got = sscanf(line, " param %63[^:]: %15[^[][%lld, %lld, %lld]", name[num], fmt,
                         &size[0], &size[1], &size[2]);
        if (got < 3)
            continue;
        for (int i = 0; i < 3; i++)
            dim[num][i] = size[i];
        item[num] = (SafetensorsItem){
            .name = name[num], .fmt = find_format(fmt), .rank = got - 2, .dim = dim[num]};
        item[num].data = make(&item[num]);
        num++;
    }
    fclose(f);
    bool ok = safetensors_write(argv[2], num, item, &err);
    if (ok && argc == 6)
        ok = write_calib(argv[3], atoll(argv[4]), atoll(argv[5]), &err);
    if (!ok)
        fprintf(stderr, "weights: %s\n", err.text);
    for (int i = 0; i < num; i++)
        free((void *)(uintptr_t)item[i].data);
    return !ok;
}
