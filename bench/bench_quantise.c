/* Speed of round-to-nearest quantisation of a bf16 weight and of packing its codes, in GB of bf16 a
 * second and core (of CPU time).
 * Then, with a number of samples, the seconds that each weight quantiser takes; with a GPU's number
 * only gptq, on that GPU, twice.
 * usage: bench_quantise [ROWS COLS [SAMPLES [GPU]]] (SINTER_THREADS=1 for one core) */
#include "base/team.h"
#include "driver/quantise_gpu.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cuda/pack.h"
#include "quant/quant.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double clock_now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double now(void)
{
    return clock_now(CLOCK_MONOTONIC);
}

static const Scheme schemes[] = {
    {.fmt = FMT_I8, .scale_fmt = FMT_F32, .block = {1, 0}},
    {.fmt = FMT_I8, .scale_fmt = FMT_F32},
    {.fmt = FMT_I4, .scale_fmt = FMT_F32, .block = {1, 128}},
    {.fmt = FMT_I4, .scale_fmt = FMT_F16, .zero = ZERO_INT, .block = {1, 128}},
    {.fmt = FMT_E4M3, .scale_fmt = FMT_F32, .block = {1, 0}},
    {.fmt = FMT_E4M3, .scale_fmt = FMT_F32, .block = {128, 128}},
    {.fmt = FMT_E4M3, .scale_fmt = FMT_E8M0, .block = {1, 32}},
    {.fmt = FMT_E2M1, .scale_fmt = FMT_E8M0, .block = {1, 32}},
    {.fmt = FMT_E2M1, .scale_fmt = FMT_E4M3, .outer = true, .block = {1, 16}},
    {.fmt = FMT_NF4, .scale_fmt = FMT_F32, .block = {1, 64}},
};

/* Packing the codes for products with bf16 activations, for the CPU and for GPUs. */
static void measure_packing(const Scheme *scheme, const QTensor *q, double gb)
{
    bool mainloop = scheme->block[1] > 0, has_zero = scheme->zero != ZERO_NONE;
    CpuPackSpec cpu = {.fmt = scheme->fmt,
                       .act_fmt = FMT_BF16,
                       .n = q->rows,
                       .k = q->cols,
                       .parts = 1,
                       .mainloop = mainloop,
                       .has_zero = has_zero,
                       .block_rows = scheme->block[0],
                       .block_cols = scheme->block[1],
                       .scale_fmt = scheme->scale_fmt};
    CudaPackSpec cuda = {.fmt = scheme->fmt,
                         .act_fmt = FMT_BF16,
                         .n = q->rows,
                         .k = q->cols,
                         .parts = 1,
                         .mainloop = mainloop,
                         .has_zero = has_zero,
                         .block_rows = scheme->block[0],
                         .block_cols = scheme->block[1]};
    CudaPacked packed;
    double best[2] = {1e9, 1e9};
    uint64_t bytes[2] = {cpu_pack_bytes(&cpu), cuda_pack_plan(&cuda, &packed) ? packed.bytes : 0};
    for (int target = 0; target < 2; target++) {
        uint8_t *dst = calloc(1, bytes[target] + 1);
        for (int run = 0; dst && run < 5; run++) {
            double start = clock_now(CLOCK_PROCESS_CPUTIME_ID);
            memset(dst, 0, bytes[target]);
            if (target == 0)
                cpu_pack(&cpu, q->codes, (int64_t)q->row_bytes, q->scale, q->zero, NULL, dst);
            else
                cuda_pack(&cuda, q->codes, (int64_t)q->row_bytes,
                          &(CudaParams){q->scale, q->zero, q->table}, dst);
            double took = clock_now(CLOCK_PROCESS_CPUTIME_ID) - start;
            best[target] = took < best[target] ? took : best[target];
        }
        free(dst);
    }
    printf("%-36s %6.2f GB/s per core for the CPU, %6.2f for GPUs\n", "    packed", gb / best[0],
           gb / best[1]);
}

static void measure(Arena *arena, const Scheme *scheme, int64_t rows, int64_t cols,
                    const uint16_t *src)
{
    QTensor q;
    if (!qtensor_init(&q, scheme, rows, cols)) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    double best = 1e9, best_cpu = 1e9; /* CPU time does not count who else is there */
    for (int run = 0; run < 7; run++) {
        double start = now(), start_cpu = clock_now(CLOCK_PROCESS_CPUTIME_ID);
        quantize_rtn(&q, FMT_BF16, src);
        double took = now() - start, cpu = clock_now(CLOCK_PROCESS_CPUTIME_ID) - start_cpu;
        best = took < best ? took : best;
        best_cpu = cpu < best_cpu ? cpu : best_cpu;
    }
    Sb name;
    sb_init(&name, arena);
    scheme_print(&name, scheme, false);
    double gb = 2e-9 * (double)rows * (double)cols;
    printf("%-36s %8.2f ms  %6.2f GB/s  %6.2f GB/s per core\n", name.text, best * 1e3, gb / best,
           gb / best_cpu);
    measure_packing(scheme, &q, gb);
    qtensor_free(&q);
}

typedef struct Clock {
    double real, cpu;
} Clock;

static Clock clock_start(void)
{
    return (Clock){now(), clock_now(CLOCK_PROCESS_CPUTIME_ID)};
}

/* CPU time over the number of threads is what a machine without other work would take, about. */
static void clock_print(const char *name, Clock start, const char *why)
{
    printf("%-36s %8.2f s  %8.2f s of CPU a thread%s%s\n", name, now() - start.real,
           (clock_now(CLOCK_PROCESS_CPUTIME_ID) - start.cpu) / team_threads(), why ? ": " : "",
           why ? why : "");
}

static const Scheme int4 = {
    .fmt = FMT_I4, .scale_fmt = FMT_F32, .zero = ZERO_INT, .block = {1, 128}};

/* Inputs of a layer: the weight's numbers in another order. */
static float *make_samples(int64_t num, int64_t cols, const uint16_t *src, int64_t weights)
{
    float *x = malloc((size_t)(num * cols) * sizeof *x);
    for (int64_t i = 0; x && i < num * cols; i++)
        x[i] = num_from_bf16(src[(i * 7 + 3) % weights]);
    return x;
}

static void measure_statistics(LayerStats *stats, const float *x, int64_t cols, int64_t samples,
                               const QuantEngine *engine)
{
    if (!x || !layer_stats_init(stats, cols, true))
        exit(1);
    Clock start = clock_start();
    layer_stats_use(stats, engine);
    layer_stats_observe(stats, x, samples);
    bool ok = layer_stats_finish(stats);
    clock_print("statistics", start, ok ? NULL : engine->problem(engine->user));
}

static void measure_quantiser(const WeightQuantiser *by, int64_t rows, int64_t cols,
                              const uint16_t *src, const LayerStats *stats,
                              const QuantEngine *engine)
{
    QTensor q;
    const WeightArgs args = {.engine = engine};
    if (!qtensor_init(&q, &int4, rows, cols))
        exit(1);
    Clock start = clock_start();
    const char *why = by->run(&q, FMT_BF16, src, &stats->seen, &args);
    clock_print(by->name, start, why);
    qtensor_free(&q);
}

static void measure_quantisers(int64_t rows, int64_t cols, const uint16_t *src, int64_t samples)
{
    float *x = make_samples(samples, cols, src, rows * cols);
    LayerStats stats;
    measure_statistics(&stats, x, cols, samples, NULL);
    for (int i = 0; weight_quantisers[i]; i++)
        measure_quantiser(weight_quantisers[i], rows, cols, src, &stats, NULL);
    Clock start = clock_start();
    const char *why = awq_search_scales(&int4, FMT_BF16, src, rows, cols, &stats.seen, x);
    clock_print("awq channel factors", start, why);
    layer_stats_free(&stats);
    free(x);
}

/* The first time allocates and may compile. */
static int measure_gpu(Arena *arena, int ordinal, int64_t rows, int64_t cols, const uint16_t *src,
                       int64_t samples)
{
    Diag diag;
    diag_init(&diag, arena);
    const QuantEngine *engine = quantise_gpu_open(arena, &diag, ordinal, true);
    diag_print(&diag, stderr, false);
    if (!engine)
        return 1;
    float *x = make_samples(samples, cols, src, rows * cols);
    for (int turn = 0; turn < 2; turn++) {
        LayerStats stats;
        measure_statistics(&stats, x, cols, samples, engine);
        measure_quantiser(weight_quantiser_find("gptq"), rows, cols, src, &stats, engine);
        layer_stats_free(&stats);
    }
    free(x);
    return 0;
}

int main(int argc, char **argv)
{
    int64_t rows = argc > 2 ? atoll(argv[1]) : 4096;
    int64_t cols = argc > 2 ? atoll(argv[2]) : 4096;
    Arena *arena = arena_create();
    uint16_t *src = malloc((size_t)(rows * cols) * sizeof *src);
    if (!src || !arena)
        return 1;
    uint64_t state = 1;
    for (int64_t i = 0; i < rows * cols; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        float x = (float)(int32_t)(state >> 32) * 0x1p-31f;
        src[i] = (uint16_t)num_to_bf16(x * x * x);
    }
    printf("%lld x %lld bf16, %d threads\n", (long long)rows, (long long)cols, team_threads());
    if (argc > 4)
        return measure_gpu(arena, atoi(argv[4]), rows, cols, src, atoll(argv[3]));
    for (size_t i = 0; i < COUNT_OF(schemes); i++)
        measure(arena, &schemes[i], rows, cols, src);
    if (argc > 3)
        measure_quantisers(rows, cols, src, atoll(argv[3]));
    free(src);
    arena_destroy(arena);
    return 0;
}
