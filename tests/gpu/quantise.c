/* quantise [compile]: second moments and gptq on a GPU give the bits of this processor, for layers
 * of many sizes and schemes. compile: only that the kernels compile without spills, which needs no
 * GPU. Exits with 77 without a GPU. */
#include "driver/quantise_gpu.h"
#include "runtime/cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Layer {
    int64_t rows, cols, samples;
    float *weight, *input;
} Layer;

static uint64_t state = 1;

static float next_value(void)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    float x = (float)(int32_t)(state >> 32) * 0x1p-31f;
    return x * x * x;
}

static void *get(uint64_t bytes)
{
    void *p = malloc(bytes + 1);
    if (!p) {
        printf("Bail out! memory is exhausted\n");
        exit(2);
    }
    return p;
}

/* Inputs whose columns depend on one another; one column is 0 throughout. */
static Layer layer_make(int64_t rows, int64_t cols, int64_t samples)
{
    Layer l = {rows, cols, samples, get((uint64_t)(rows * cols) * 4),
               get((uint64_t)(samples * cols) * 4)};
    for (int64_t i = 0; i < rows * cols; i++)
        l.weight[i] = next_value();
    for (int64_t i = 0; i < samples * cols; i++)
        l.input[i] = i % cols == cols / 2 ? 0
                     : i % cols           ? next_value() + 0.5f * l.input[i - 1]
                                          : next_value();
    return l;
}

static void layer_free(Layer *l)
{
    free(l->weight);
    free(l->input);
}

typedef struct Result {
    LayerStats stats;
    QTensor q;
    const char *why;
} Result;

static Result run(const Layer *l, const Scheme *scheme, const WeightArgs *args)
{
    Result r = {0};
    if (!layer_stats_init(&r.stats, l->cols, true) ||
        !qtensor_init(&r.q, scheme, l->rows, l->cols)) {
        printf("Bail out! memory is exhausted\n");
        exit(2);
    }
    layer_stats_use(&r.stats, args->engine);
    layer_stats_observe(&r.stats, l->input, l->samples);
    if (!layer_stats_finish(&r.stats))
        r.why = args->engine ? args->engine->problem(args->engine->user) : "out of memory";
    if (!r.why)
        r.why = weight_quantiser_find("gptq")->run(&r.q, FMT_F32, l->weight, &r.stats.seen, args);
    return r;
}

static void result_free(Result *r)
{
    layer_stats_free(&r->stats);
    qtensor_free(&r->q);
}

/* How many second moments, codes, scales and zero points differ. */
static int64_t differences(const Result *a, const Result *b, int64_t ret[4])
{
    int64_t n = a->q.cols, blocks = a->q.row_blocks * a->q.col_blocks;
    memset(ret, 0, 4 * sizeof *ret);
    for (int64_t i = 0; i < n * n; i++)
        ret[0] += a->stats.seen.hessian[i] != b->stats.seen.hessian[i];
    for (int64_t i = 0; i < a->q.rows * n; i++)
        ret[1] += qtensor_code(&a->q, i / n, i % n) != qtensor_code(&b->q, i / n, i % n);
    for (int64_t i = 0; i < blocks; i++) {
        ret[2] += a->q.scale[i] != b->q.scale[i];
        ret[3] += a->q.zero && a->q.zero[i] != b->q.zero[i];
    }
    return ret[0] + ret[1] + ret[2] + ret[3];
}

static const Scheme schemes[] = {
    {.fmt = FMT_I4, .scale_fmt = FMT_F32, .zero = ZERO_INT, .block = {1, 128}},
    {.fmt = FMT_I4, .scale_fmt = FMT_F16, .block = {1, 32}},
    {.fmt = FMT_U4, .scale_fmt = FMT_F32, .zero = ZERO_INT, .block = {1, 256}},
    {.fmt = FMT_I8, .scale_fmt = FMT_F32, .block = {1, 0}},
    {.fmt = FMT_E4M3, .scale_fmt = FMT_F32, .block = {64, 64}},
    {.fmt = FMT_E2M1, .scale_fmt = FMT_E8M0, .block = {1, 32}},
    {.fmt = FMT_E2M1, .scale_fmt = FMT_E4M3, .outer = true, .block = {1, 16}},
    {.fmt = FMT_NF4, .scale_fmt = FMT_F32, .block = {1, 48}},
};

static const int64_t shapes[][3] = {
    {1, 1, 70}, {5, 63, 300}, {64, 64, 64}, {70, 129, 700}, {130, 400, 900}, {33, 1000, 1500},
};

static int failed, number;

static void check(const QuantEngine *engine, const Layer *l, const Scheme *scheme, bool by_activity)
{
    Arena *arena = arena_create();
    Sb name;
    WeightArgs args = {.act_order = by_activity};
    int64_t differ[4] = {0};
    sb_init(&name, arena);
    scheme_print(&name, scheme, false);
    Result want = run(l, scheme, &args);
    args.engine = engine;
    Result got = run(l, scheme, &args);
    bool ok = (!want.why == !got.why) && (want.why || !differences(&want, &got, differ));
    printf("%s %d - %lld x %lld, %lld samples, %s%s\n", ok ? "ok" : "not ok", ++number,
           (long long)l->rows, (long long)l->cols, (long long)l->samples, name.text,
           by_activity ? ", order=act" : "");
    if (!ok)
        printf("# %lld moments, %lld codes, %lld scales, %lld zero points differ; %s\n",
               (long long)differ[0], (long long)differ[1], (long long)differ[2],
               (long long)differ[3], got.why ? got.why : "no error");
    failed += !ok;
    result_free(&want);
    result_free(&got);
    arena_destroy(arena);
}

static void check_all(const QuantEngine *engine)
{
    for (size_t i = 0; i < COUNT_OF(shapes); i++) {
        Layer l = layer_make(shapes[i][0], shapes[i][1], shapes[i][2]);
        for (size_t k = 0; k < COUNT_OF(schemes); k++)
            for (int by_activity = 0; by_activity < 2; by_activity++)
                check(engine, &l, &schemes[k], by_activity);
        layer_free(&l);
    }
    printf("1..%d\n", number);
}

static int compile_only(Arena *arena, Diag *diag)
{
    static const char *const arch[] = {"sm_80", "sm_90a", "compute_80"};
    const CudaCompileOptions options = {
        .num_archs = COUNT_OF(arch), .arch = arch, .fail_on_spill = true, .no_cache = true};
    CudaTarget target = {.num_sources = 1, .source = &quantise_gpu_source};
    const char *path, *why;
    if (!nvrtc_find(arena, &path, &why)) {
        printf("# %s\n", why);
        return 77;
    }
    bool ok = cuda_compile(diag, arena, &target, &options);
    diag_print(diag, stdout, false);
    printf("1..1\n%s 1 - gptq's kernels compile without spills\n", ok ? "ok" : "not ok");
    return !ok;
}

int main(int argc, char **argv)
{
    nvrtc_serve(argv);
    Arena *arena = arena_create();
    Diag diag;
    int status = 77;
    diag_init(&diag, arena);
    if (argc > 1 && !strcmp(argv[1], "compile")) {
        status = compile_only(arena, &diag);
        arena_destroy(arena);
        return status;
    }
    SinterStatus without;
    SinterError why;
    const QuantEngine *engine =
        driver_get(&without, &why) ? quantise_gpu_open(arena, &diag, 0, true) : NULL;
    if (engine) {
        check_all(engine);
        status = failed != 0;
    } else if (diag.num_errors) {
        status = 1;
    }
    diag_print(&diag, stdout, false);
    arena_destroy(arena);
    return status;
}
