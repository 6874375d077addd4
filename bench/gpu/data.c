/* Weights and rows for the GPU benchmarks, made on all processors. Normal, no outliers but those
 * that are planted; same arguments, same bytes.
 *
 *   data ffn <folder> <D> <F> <L> <T>     a stack of L gated feed-forward layers
 *   data linear <folder> <N> <K> <R> <T>  R weights w0 .. of N by K, and norm, of K
 *   data planted <folder> <D> <F> <L> <T> as ffn, with outliers in the second layer
 *   data encoder <folder> <D> <F> <L> <T> weights of the shapes of examples/minilm, T tokens
 *   data experts <folder> <D> <F> <E> <T> two layers of E experts, of which each row takes six
 *
 * All write model.safetensors (bf16, deviation 1/sqrt(K)). All but encoder write T rows x.npy; ffn,
 * experts and linear y.npy by plain loops in double precision, what the stack, or w0, makes of x;
 * planted T more rows, held.npy; encoder the model's inputs, auto-calib.safetensors and
 * auto-heldout.safetensors.
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

/* A sentence encoder: the layers of examples/minilm, sentences of one length ------------------- */

#define TOPICS   16
#define SENTENCE 16   /* tokens */
#define FAR      -1e4 /* added to the scores of tokens of other sentences */

typedef struct Items {
    int num;
    char name[MAX_ITEMS][80];
    int64_t dim[MAX_ITEMS][2];
    SafetensorsItem item[MAX_ITEMS];
} Items;

static void item_add(Items *to, const char *name, int64_t rows, int64_t cols, uint16_t *data)
{
    int at = to->num++;
    snprintf(to->name[at], sizeof to->name[at], "%.*s", (int)sizeof to->name[at] - 1, name);
    to->dim[at][0] = rows;
    to->dim[at][1] = cols;
    to->item[at] = (SafetensorsItem){to->name[at], FMT_BF16, cols ? 2 : 1, to->dim[at], data, NULL};
}

/* A weight of `rows` by `cols`, without cols a norm's; and its bias. */
static void pair_add(Items *to, const char *name, int64_t rows, int64_t cols)
{
    char part[100];
    uint64_t num = (uint64_t)rows * (uint64_t)(cols ? cols : 1);
    snprintf(part, sizeof part, "%s.weight", name);
    item_add(to, part, rows, cols,
             cols ? random_bf16(num, 0, 1 / sqrt((double)cols)) : random_bf16(num, 1, 0.1));
    snprintf(part, sizeof part, "%s.bias", name);
    item_add(to, part, rows, 0, random_bf16((uint64_t)rows, 0, 0.1));
}

static void items_free(Items *items)
{
    for (int i = 0; i < items->num; i++)
        free((void *)(uintptr_t)items->item[i].data);
    items->num = 0;
}

static void encoder_inputs(Items *to, const char *folder, const char *file, int64_t d, int64_t rows)
{
    char path[4096];
    IoError err;
    int64_t sentences = (rows + SENTENCE - 1) / SENTENCE;
    uint16_t *mask = need(calloc((size_t)(rows * rows), sizeof *mask));
    uint16_t *pool = need(calloc((size_t)(sentences * rows), sizeof *pool));
    for (int64_t i = 0; i < rows; i++) {
        int64_t of = i / SENTENCE, left = rows - of * SENTENCE;
        for (int64_t k = 0; k < rows; k++)
            mask[i * rows + k] = bf16_of(k / SENTENCE == of ? 0.0f : (float)FAR);
        pool[of * rows + i] = bf16_of(1.0f / (float)(left < SENTENCE ? left : SENTENCE));
    }
    item_add(to, "x", rows, d, random_bf16((uint64_t)(rows * d), 0, 1));
    item_add(to, "mask", rows, rows, mask);
    item_add(to, "pool", sentences, rows, pool);
    snprintf(path, sizeof path, "%s/%s", folder, file);
    if (!safetensors_write(path, to->num, to->item, &err))
        die("%s", err.text);
    items_free(to);
}

static void make_encoder(const char *folder, int64_t d, int64_t f, int64_t layers, int64_t rows)
{
    static Items items;
    char name[80];
    const struct {
        const char *name;
        int64_t rows, cols;
    } part[] = {{"input", d, 0},
                {"attention.self.query", d, d},
                {"attention.self.key", d, d},
                {"attention.self.value", d, d},
                {"attention.output.dense", d, d},
                {"attention.output.LayerNorm", d, 0},
                {"intermediate.dense", f, d},
                {"output.dense", d, f}};
    for (int64_t i = 0; i < layers && items.num + 2 * (int)COUNT_OF(part) + 5 < MAX_ITEMS; i++)
        for (size_t k = 0; k < COUNT_OF(part); k++) {
            snprintf(name, sizeof name, "encoder.layer.%d.%s", (int)i, part[k].name);
            pair_add(&items, name, part[k].rows, part[k].cols);
        }
    pair_add(&items, "output", d, 0);
    pair_add(&items, "topics", TOPICS, d);
    item_add(&items, "unit", d, 0, random_bf16((uint64_t)d, 1, 0));
    write_weights(folder, items.num, items.item);
    items_free(&items);
    encoder_inputs(&items, folder, "auto-calib.safetensors", d, rows);
    encoder_inputs(&items, folder, "auto-heldout.safetensors", d, rows);
}

/* Layers of experts --------------------------------------------------------------------------- */

#define EXPERT_LAYERS  2
#define EXPERT_CHOICES 6

typedef struct Experts { /* a layer: norm, router, gate, up, down */
    uint16_t *const *w;
    int64_t d, f, num;
    double *x;
} Experts;

/* The largest logits' experts; weight: the softmax of their logits. */
static void choose_experts(const Experts *e, const double *n, int64_t *chosen, double *weight)
{
    double *logit = need(calloc((size_t)e->num, sizeof *logit)), sum = 0;
    for (int64_t i = 0; i < e->num; i++)
        logit[i] = dot(n, e->w[1] + i * e->d, e->d);
    for (int c = 0; c < EXPERT_CHOICES; c++) {
        int64_t best = 0;
        for (int64_t i = 1; i < e->num; i++)
            if (logit[i] > logit[best])
                best = i;
        chosen[c] = best;
        weight[c] = exp(logit[best]);
        sum += weight[c];
        logit[best] = -INFINITY;
    }
    for (int c = 0; c < EXPERT_CHOICES; c++)
        weight[c] /= sum;
    free(logit);
}

/* x + sum of weight * down(silu(gate(n)) * up(n)) of one row, in place. */
static void expert_row(void *arg, int64_t row)
{
    const Experts *e = arg;
    double *n = need(calloc((size_t)e->d, sizeof *n)), *h = need(calloc((size_t)e->f, sizeof *h));
    double *x = e->x + row * e->d, weight[EXPERT_CHOICES];
    int64_t chosen[EXPERT_CHOICES];
    normalise(x, e->w[0], n, e->d);
    choose_experts(e, n, chosen, weight);
    for (int c = 0; c < EXPERT_CHOICES; c++) {
        const int64_t at = chosen[c] * e->d * e->f;
        for (int64_t i = 0; i < e->f; i++) {
            double gate = dot(n, e->w[2] + at + i * e->d, e->d);
            h[i] = gate / (1 + exp(-gate)) * dot(n, e->w[3] + at + i * e->d, e->d);
        }
        for (int64_t i = 0; i < e->d; i++)
            x[i] += weight[c] * dot(h, e->w[4] + at + i * e->f, e->f);
    }
    free(n);
    free(h);
}

static void make_experts(const char *folder, int64_t d, int64_t f, int64_t num, int64_t rows)
{
    static const char *const part[] = {"norm", "router", "gate", "up", "down"};
    static char name[MAX_ITEMS][80];
    const int64_t dim[][3] = {{d}, {num, d}, {num, f, d}, {num, f, d}, {num, d, f}};
    static const int rank[] = {1, 2, 3, 3, 3};
    SafetensorsItem item[MAX_ITEMS];
    uint16_t *w[5 * EXPERT_LAYERS];
    for (int i = 0; i < 5 * EXPERT_LAYERS; i++) {
        int p = i % 5;
        uint64_t all = 1;
        for (int k = 0; k < rank[p]; k++)
            all *= (uint64_t)dim[p][k];
        w[i] = p ? random_bf16(all, 0, 1 / sqrt((double)dim[p][rank[p] - 1]))
                 : random_bf16(all, 1, 0.1);
        snprintf(name[i], sizeof name[i], "layers.%d.%s", i / 5, part[p]);
        item[i] = (SafetensorsItem){name[i], FMT_BF16, rank[p], dim[p], w[i], NULL};
    }
    write_weights(folder, 5 * EXPERT_LAYERS, item);
    float *x = random_rows(rows, d);
    write_rows(folder, "x.npy", x, rows, d);
    double *y = need(calloc((size_t)(rows * d), sizeof *y));
    for (int64_t i = 0; i < rows * d; i++)
        y[i] = (double)x[i];
    for (int l = 0; l < EXPERT_LAYERS; l++)
        in_parallel(rows, expert_row, &(Experts){w + 5 * l, d, f, num, y});
    for (int64_t i = 0; i < rows * d; i++)
        x[i] = (float)y[i];
    write_rows(folder, "y.npy", x, rows, d);
    for (int i = 0; i < 5 * EXPERT_LAYERS; i++)
        free(w[i]);
    free(x);
    free(y);
}

int main(int argc, char **argv)
{
    static const int64_t most[] = {65536, 65536, 256, 4096};
    static const struct {
        const char *word;
        void (*make)(const char *folder, int64_t a, int64_t b, int64_t c, int64_t rows);
    } kind[] = {{"ffn", make_ffn},
                {"planted", make_planted},
                {"linear", make_linear},
                {"encoder", make_encoder},
                {"experts", make_experts}};
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
        fputs("usage: data ffn|planted|encoder <folder> <D> <F> <L> <T> | data linear <folder> <N> "
              "<K> <R> <T> | data experts <folder> <D> <F> <E> <T>\n",
              stderr);
        return 2;
    }
    kind[of].make(argv[2], size[0], size[1], size[2], size[3]);
    return 0;
}
