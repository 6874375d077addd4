/* generate <folder> <D> <F> <L> <T>: weights, inputs and expected outputs of a stack of L gated
 * feed-forward layers of a language model, width D, inner width F, for the examples ffn, rules and
 * mx. It writes
 *
 *   model.safetensors   bf16, named as Llama checkpoints name them
 *   x.npy, y.npy        T rows in, and out by plain loops in double precision
 *   calib.npy           T more rows, for static ranges
 *
 * As in real models a few channels of the activations are far larger than the rest, which is what
 * makes them hard to quantise. Same arguments, same bytes. */
#include "io/io.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LAYERS    8
#define OUTLIER_EVERY 61 /* one channel in so many is an outlier */
#define OUTLIER       20.0

typedef struct Layer {
    uint16_t *norm, *gate, *up, *down; /* bf16 */
} Layer;

static uint64_t state = 0x5eed;

static double uniform(void) /* splitmix64, in (0, 1) */
{
    uint64_t z = state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    z ^= z >> 31;
    return ((double)(z >> 11) + 0.5) / 9007199254740992.0;
}

static double normal(void)
{
    return sqrt(-2 * log(uniform())) * cos(6.283185307179586 * uniform());
}

static uint16_t to_bf16(double value) /* nearest even; values here are finite and not tiny */
{
    float f = (float)value;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static double from_bf16(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return (double)f;
}

static void *allocate(size_t num, size_t size)
{
    void *p = calloc(num, size);
    if (!p) {
        fputs("generate: out of memory\n", stderr);
        exit(1);
    }
    return p;
}

static uint16_t *random_bf16(size_t num, double mean, double deviation)
{
    uint16_t *w = allocate(num, sizeof *w);
    for (size_t i = 0; i < num; i++)
        w[i] = to_bf16(mean + deviation * normal());
    return w;
}

/* Rows of a residual stream, exact in bf16. */
static float *random_rows(size_t rows, size_t width)
{
    float *x = allocate(rows * width, sizeof *x);
    for (size_t i = 0; i < rows * width; i++) {
        bool outlier = i % width % OUTLIER_EVERY == OUTLIER_EVERY / 2;
        x[i] = (float)from_bf16(to_bf16(normal() * (outlier ? OUTLIER : 1)));
    }
    return x;
}

static double dot(const double *x, const uint16_t *w, size_t num)
{
    double sum = 0;
    for (size_t i = 0; i < num; i++)
        sum += x[i] * from_bf16(w[i]);
    return sum;
}

/* One row through one layer, in place: x + down(silu(gate(n)) * up(n)), n = rmsnorm(x). */
static void apply(const Layer *layer, double *x, size_t d, size_t f)
{
    double *n = allocate(d, sizeof *n), *h = allocate(f, sizeof *h);
    double square = 0;
    for (size_t i = 0; i < d; i++)
        square += x[i] * x[i];
    for (size_t i = 0; i < d; i++)
        n[i] = x[i] / sqrt(square / (double)d + 1e-5) * from_bf16(layer->norm[i]);
    for (size_t i = 0; i < f; i++) {
        double gate = dot(n, layer->gate + i * d, d);
        h[i] = gate / (1 + exp(-gate)) * dot(n, layer->up + i * d, d);
    }
    for (size_t i = 0; i < d; i++)
        x[i] += dot(h, layer->down + i * f, f);
    free(n);
    free(h);
}

static float *expected(const Layer *layer, int layers, const float *x, size_t rows, size_t d,
                       size_t f)
{
    float *y = allocate(rows * d, sizeof *y);
    double *row = allocate(d, sizeof *row);
    for (size_t r = 0; r < rows; r++) {
        for (size_t i = 0; i < d; i++)
            row[i] = (double)x[r * d + i];
        for (int l = 0; l < layers; l++)
            apply(&layer[l], row, d, f);
        for (size_t i = 0; i < d; i++)
            y[r * d + i] = (float)row[i];
    }
    free(row);
    return y;
}

static bool write_weights(const char *path, const Layer *layer, int layers, int64_t d, int64_t f,
                          IoError *err)
{
    static const char *const part[] = {"post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj",
                                       "mlp.down_proj"};
    static char name[MAX_LAYERS * 4][80];
    const int64_t narrow[] = {d}, in[] = {f, d}, out[] = {d, f};
    SafetensorsItem item[MAX_LAYERS * 4];
    for (int i = 0; i < layers * 4; i++) {
        const Layer *l = &layer[i / 4];
        const void *data[] = {l->norm, l->gate, l->up, l->down};
        const int64_t *dim[] = {narrow, in, in, out};
        snprintf(name[i], sizeof name[i], "model.layers.%d.%s.weight", i / 4, part[i % 4]);
        item[i] =
            (SafetensorsItem){name[i], FMT_BF16, i % 4 ? 2 : 1, dim[i % 4], data[i % 4], NULL};
    }
    return safetensors_write(path, layers * 4, item, err);
}

static bool write_rows(const char *folder, const char *file, const float *x, int64_t rows,
                       int64_t width, IoError *err)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    return npy_write(path, FMT_F32, 2, (const int64_t[]){rows, width}, x, err);
}

int main(int argc, char **argv)
{
    long size[4] = {0};
    for (int i = 0; i < 4 && argc == 6; i++)
        size[i] = strtol(argv[i + 2], NULL, 10);
    long d = size[0], f = size[1], layers = size[2], rows = size[3];
    if (d < 1 || d > 8192 || f < 1 || f > 32768 || layers < 1 || layers > MAX_LAYERS || rows < 1 ||
        rows > 4096) {
        fputs("usage: generate <folder> <D> <F> <L> <T>\n", stderr);
        return 2;
    }
    Layer layer[MAX_LAYERS];
    size_t wide = (size_t)d * (size_t)f;
    for (long l = 0; l < layers; l++) {
        layer[l].norm = random_bf16((size_t)d, 1, 0.1);
        layer[l].gate = random_bf16(wide, 0, 1 / sqrt((double)d));
        layer[l].up = random_bf16(wide, 0, 1 / sqrt((double)d));
        layer[l].down = random_bf16(wide, 0, 1 / sqrt((double)f));
    }
    float *x = random_rows((size_t)rows, (size_t)d), *calib = random_rows((size_t)rows, (size_t)d);
    float *y = expected(layer, (int)layers, x, (size_t)rows, (size_t)d, (size_t)f);
    char path[4096];
    IoError err;
    snprintf(path, sizeof path, "%s/model.safetensors", argv[1]);
    bool ok = write_weights(path, layer, (int)layers, d, f, &err) &&
              write_rows(argv[1], "x.npy", x, rows, d, &err) &&
              write_rows(argv[1], "y.npy", y, rows, d, &err) &&
              write_rows(argv[1], "calib.npy", calib, rows, d, &err);
    if (!ok)
        fprintf(stderr, "generate: %s\n", err.text);
    for (long l = 0; l < layers; l++) {
        free(layer[l].norm);
        free(layer[l].gate);
        free(layer[l].up);
        free(layer[l].down);
    }
    free(x);
    free(calib);
    free(y);
    return ok ? 0 : 1;
}
