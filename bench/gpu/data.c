/* Weights and rows for the GPU benchmarks, made on all processors. Normal, no outliers but those
 * that are planted; same arguments, same bytes.
 *
 *   data ffn <folder> <D> <F> <L> <T>     a stack of L gated feed-forward layers
 *   data linear <folder> <N> <K> <R> <T>  R weights w0 .. of N by K, and norm, of K
 *   data planted <folder> <D> <F> <L> <T> as ffn, with outliers in the second layer
 *
 * All write model.safetensors (bf16, deviation 1/sqrt(K)) and T rows x.npy; ffn and linear y.npy by
 * plain loops in double precision, what the stack, or w0, makes of x; planted T more rows,
 * held.npy.
 */
#include "bench/gpu/gpu.h"
#include "io/io.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ITEMS 256
#define CHUNK     65536

typedef struct Fill {
    uint16_t *to;
    uint64_t num, seed;
    double mean, deviation;
} Fill;

static void fill_part(void *arg, int64_t part)
{
    const Fill *f = arg;
    float chunk[4096];
    uint64_t begin = (uint64_t)part * CHUNK, end = begin + CHUNK < f->num ? begin + CHUNK : f->num;
    for (uint64_t at = begin; at < end; at += COUNT_OF(chunk)) {
        uint64_t num = end - at < COUNT_OF(chunk) ? end - at : COUNT_OF(chunk);
        fill_normal(chunk, num, f->deviation, f->seed ^ at << 8);
        for (uint64_t i = 0; i < num; i++)
            f->to[at + i] = bf16_of((float)f->mean + chunk[i]);
    }
}

static uint16_t *random_bf16(uint64_t num, double mean, double deviation)
{
    static uint64_t seed;
    Fill f = {need(calloc(num, sizeof *f.to)), num, ++seed, mean, deviation};
    in_parallel((int64_t)((num + CHUNK - 1) / CHUNK), fill_part, &f);
    return f.to;
}

/* The stack in double precision --------------------------------------------------------------- */

typedef struct Step { /* rows of `in` times rows of w, by blocks of w's rows */
    const uint16_t *w;
    const double *in;
    double *out;
    int64_t rows, width, height;
} Step;

static double dot(const double *x, const uint16_t *w, int64_t num)
{
    double sum[4] = {0};
    for (int64_t i = 0; i < num; i++)
        sum[i & 3] += x[i] * (double)bf16_to_float(w[i]);
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

static void step_part(void *arg, int64_t row)
{
    const Step *s = arg;
    for (int64_t r = 0; r < s->rows; r++)
        s->out[r * s->height + row] = dot(s->in + r * s->width, s->w + row * s->width, s->width);
}

static void multiply(const uint16_t *w, const double *in, double *out, int64_t rows, int64_t width,
                     int64_t height)
{
    Step s = {w, in, out, rows, width, height};
    in_parallel(height, step_part, &s);
}

static void normalise(const double *x, const uint16_t *weight, double *to, int64_t d)
{
    double square = 0;
    for (int64_t i = 0; i < d; i++)
        square += x[i] * x[i];
    for (int64_t i = 0; i < d; i++)
        to[i] = x[i] / sqrt(square / (double)d + 1e-5) * (double)bf16_to_float(weight[i]);
}

/* x + down(silu(gate(n)) * up(n)), n = rmsnorm(x), in place; w: norm, gate, up, down. */
static void apply(uint16_t *const *w, double *x, int64_t rows, int64_t d, int64_t f)
{
    size_t wide = (size_t)(rows * f), narrow = (size_t)(rows * d);
    double *n = need(calloc(narrow, sizeof *n)), *g = need(calloc(wide, sizeof *g));
    double *u = need(calloc(wide, sizeof *u));
    for (int64_t r = 0; r < rows; r++)
        normalise(x + r * d, w[0], n + r * d, d);
    multiply(w[1], n, g, rows, d, f);
    multiply(w[2], n, u, rows, d, f);
    for (size_t i = 0; i < wide; i++)
        g[i] = g[i] / (1 + exp(-g[i])) * u[i];
    multiply(w[3], g, n, rows, f, d);
    for (size_t i = 0; i < narrow; i++)
        x[i] += n[i];
    free(n);
    free(g);
    free(u);
}

/* Files --------------------------------------------------------------------------------------- */

static void write_rows(const char *folder, const char *file, const float *x, int64_t rows,
                       int64_t width)
{
    char path[4096];
    IoError err;
    snprintf(path, sizeof path, "%s/%s", folder, file);
    if (!npy_write(path, FMT_F32, 2, (const int64_t[]){rows, width}, x, &err))
        die("%s", err.text);
}

static float *random_rows(int64_t rows, int64_t width)
{
    uint64_t num = (uint64_t)rows * (uint64_t)width;
    uint16_t *half = random_bf16(num, 0, 1);
    float *x = need(calloc(num, sizeof *x));
    for (uint64_t i = 0; i < num; i++)
        x[i] = bf16_to_float(half[i]);
    free(half);
    return x;
}

static void write_weights(const char *folder, int num, const SafetensorsItem *item)
{
    char path[4096];
    IoError err;
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    if (!safetensors_write(path, num, item, &err))
        die("%s", err.text);
}

#define PLANTED_LAYER 1
#define PLANTED_EVERY 61 /* one channel in so many */
#define PLANTED       64 /* times as large */

/* Input channels of `down` that are far larger than the others, and the rows of `up` that make them
 * as much smaller: the float model is the same, but a scale that a row shares is spoilt. */
static void plant(uint16_t *up, uint16_t *down, int64_t d, int64_t f)
{
    for (int64_t channel = PLANTED_EVERY / 2; channel < f; channel += PLANTED_EVERY)
        for (int64_t i = 0; i < d; i++) {
            uint16_t *in = &up[channel * d + i], *out = &down[i * f + channel];
            *in = bf16_of(bf16_to_float(*in) / PLANTED);
            *out = bf16_of(bf16_to_float(*out) * PLANTED);
        }
}

static void write_results(const char *folder, uint16_t *const *w, float *x, int64_t rows, int64_t d,
                          int64_t f, int64_t layers)
{
    double *y = need(calloc((size_t)(rows * d), sizeof *y));
    for (int64_t i = 0; i < rows * d; i++)
        y[i] = (double)x[i];
    for (int64_t l = 0; l < layers; l++)
        apply(w + 4 * l, y, rows, d, f);
    for (int64_t i = 0; i < rows * d; i++)
        x[i] = (float)y[i];
    write_rows(folder, "y.npy", x, rows, d);
    free(y);
}

static void make_stack(const char *folder, int64_t d, int64_t f, int64_t layers, int64_t rows,
                       bool planted)
{
    static const char *const part[] = {"post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj",
                                       "mlp.down_proj"};
    static char name[MAX_ITEMS][80];
    const int64_t dim[][2] = {{d, 0}, {f, d}, {f, d}, {d, f}};
    SafetensorsItem item[MAX_ITEMS];
    uint16_t *w[MAX_ITEMS];
    uint64_t wide = (uint64_t)d * (uint64_t)f;
    for (int i = 0; i < 4 * layers; i++) {
        int p = i % 4;
        w[i] = p ? random_bf16(wide, 0, 1 / sqrt((double)dim[p][1]))
                 : random_bf16((uint64_t)d, 1, 0.1);
        snprintf(name[i], sizeof name[i], "model.layers.%d.%s.weight", i / 4, part[p]);
        item[i] = (SafetensorsItem){name[i], FMT_BF16, p ? 2 : 1, dim[p], w[i], NULL};
    }
    if (planted && layers > PLANTED_LAYER)
        plant(w[4 * PLANTED_LAYER + 2], w[4 * PLANTED_LAYER + 3], d, f);
    write_weights(folder, (int)(4 * layers), item);
    float *x = random_rows(rows, d), *held = planted ? random_rows(rows, d) : NULL;
    write_rows(folder, "x.npy", x, rows, d);
    if (planted)
        write_rows(folder, "held.npy", held, rows, d);
    else
        write_results(folder, w, x, rows, d, f, layers);
    for (int64_t i = 0; i < 4 * layers; i++)
        free(w[i]);
    free(x);
    free(held);
}

static void make_ffn(const char *folder, int64_t d, int64_t f, int64_t layers, int64_t rows)
{
    make_stack(folder, d, f, layers, rows, false);
}

static void make_planted(const char *folder, int64_t d, int64_t f, int64_t layers, int64_t rows)
{
    make_stack(folder, d, f, layers, rows, true);
}

static void make_linear(const char *folder, int64_t n, int64_t k, int64_t weights, int64_t rows)
{
    static char name[MAX_ITEMS][16];
    const int64_t dim[] = {n, k};
    SafetensorsItem item[MAX_ITEMS];
    for (int i = 0; i < weights; i++) {
        snprintf(name[i], sizeof name[i], "w%d", i);
        item[i] = (SafetensorsItem){name[i],
                                    FMT_BF16,
                                    2,
                                    dim,
                                    random_bf16((uint64_t)n * (uint64_t)k, 0, 1 / sqrt((double)k)),
                                    NULL};
    }
    uint16_t *norm = random_bf16((uint64_t)k, 1, 0.1);
    item[weights] = (SafetensorsItem){"norm", FMT_BF16, 1, dim + 1, norm, NULL};
    write_weights(folder, (int)weights + 1, item);
    float *x = random_rows(rows, k);
    write_rows(folder, "x.npy", x, rows, k);
    double *in = need(calloc((size_t)(rows * k), sizeof *in));
    double *y = need(calloc((size_t)(rows * n), sizeof *y));
    float *want = need(calloc((size_t)(rows * n), sizeof *want));
    for (int64_t i = 0; i < rows * k; i++)
        in[i] = (double)x[i];
    multiply(item[0].data, in, y, rows, k, n);
    for (int64_t i = 0; i < rows * n; i++)
        want[i] = (float)y[i];
    write_rows(folder, "y.npy", want, rows, n);
    free(in);
    free(y);
    free(want);
    for (int i = 0; i <= weights; i++)
        free((void *)(uintptr_t)item[i].data);
    free(x);
}

int main(int argc, char **argv)
{
    static const int64_t most[] = {65536, 65536, MAX_ITEMS / 4, 4096};
    static const struct {
        const char *word;
        void (*make)(const char *folder, int64_t a, int64_t b, int64_t c, int64_t rows);
    } kind[] = {{"ffn", make_ffn}, {"planted", make_planted}, {"linear", make_linear}};
    int64_t size[4];
    int of = 0;
    while (argc == 7 && of < (int)COUNT_OF(kind) && strcmp(argv[1], kind[of].word) != 0)
        of++;
    bool ok = argc == 7 && of < (int)COUNT_OF(kind);
    for (int i = 0; ok && i < 4; i++) {
        size[i] = strtol(argv[i + 3], NULL, 10);
        ok = size[i] >= 1 && size[i] <= most[i];
    }
    if (!ok) {
        fputs("usage: data ffn|planted <folder> <D> <F> <L> <T> | data linear <folder> <N> <K> <R> "
              "<T>\n",
              stderr);
        return 2;
    }
    kind[of].make(argv[2], size[0], size[1], size[2], size[3]);
    return 0;
}
