/* The peer of our matrix products: cuBLASLt, loaded at run time, in bf16, fp8 (one scale a tensor;
 * a row of each operand; 1x128 by 128x128 blocks) and int8 (raw i32 results, no scales).
 *
 *   cublaslt --library=PATH --shape=NxK --m=1,16,.. [--only=TEXT] [--json=FILE]
 *
 * Every algorithm that its heuristics return is tried and the fastest taken. Operands are random
 * (normal codes); weights and results rotate over at least 240 MB, activations do not, as in our
 * models; runs are replays of a graph of one product for each weight. The error is that of sampled
 * results against double precision on the same codes, so it is of arithmetic and rounding alone. */
#include "bench/gpu/gpu.h"
#include "quant/quant.h"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* NVIDIA's interface, in the words and numbers of cublasLt.h. */
enum {
    COMPUTE_F32 = 68,
    COMPUTE_I32 = 72,
    TYPE_F32 = 0,
    TYPE_I8 = 3,
    TYPE_I32 = 10,
    TYPE_BF16 = 14,
    TYPE_E4M3 = 28,
    DESC_TRANSA = 3,
    DESC_A_SCALE = 17,
    DESC_B_SCALE = 18,
    DESC_FAST_ACCUM = 25,
    DESC_A_SCALE_MODE = 31,
    DESC_B_SCALE_MODE = 32,
    PREF_WORKSPACE = 1,
    SCALE_TENSOR = 0,
    SCALE_ROWS = 3,
    SCALE_1X128 = 4,
    SCALE_128X128 = 5
};

typedef struct Found { /* cublasLtMatmulHeuristicResult_t */
    uint64_t algorithm[8];
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
} Found;
_Static_assert(sizeof(Found) == 96, "as in cublasLt.h");

#define LT_FUNCTIONS(FN)                                                                         \
    FN(create, "cublasLtCreate", (void **handle))                                                \
    FN(desc_create, "cublasLtMatmulDescCreate", (void **desc, int compute, int scale_type))      \
    FN(desc_set, "cublasLtMatmulDescSetAttribute",                                               \
       (void *desc, int attribute, const void *value, size_t size))                              \
    FN(desc_destroy, "cublasLtMatmulDescDestroy", (void *desc))                                  \
    FN(layout_create, "cublasLtMatrixLayoutCreate",                                              \
       (void **layout, int type, uint64_t rows, uint64_t cols, int64_t pitch))                   \
    FN(layout_destroy, "cublasLtMatrixLayoutDestroy", (void *layout))                            \
    FN(pref_create, "cublasLtMatmulPreferenceCreate", (void **pref))                             \
    FN(pref_set, "cublasLtMatmulPreferenceSetAttribute",                                         \
       (void *pref, int attribute, const void *value, size_t size))                              \
    FN(heuristics, "cublasLtMatmulAlgoGetHeuristic",                                             \
       (void *handle, void *desc, void *a, void *b, void *c, void *d, void *pref, int most,      \
        Found *found, int *num))                                                                 \
    FN(matmul, "cublasLtMatmul",                                                                 \
       (void *handle, void *desc, const void *alpha, DrvAddress a, void *a_layout, DrvAddress b, \
        void *b_layout, const void *beta, DrvAddress c, void *c_layout, DrvAddress d,            \
        void *d_layout, const void *algorithm, DrvAddress workspace, size_t workspace_size,      \
        DrvStream stream))

typedef struct Lt {
#define LT_FIELD(field, symbol, params) int(*field) params;
    LT_FUNCTIONS(LT_FIELD)
#undef LT_FIELD
    size_t (*version)(void);
    void *handle, *pref;
} Lt;

#define WORKSPACE   (UINT64_C(64) << 20)
#define ROTATE      UINT64_C(240000000)
#define MOST_FOUND  24
#define MOST_COPIES 32
#define SAMPLE_ROWS 4
#define SAMPLE_COLS 64

typedef struct Peer {
    const char *name;
    int type, a_mode, b_mode, fast;
} Peer;
static const Peer peers[] = {
    {"bf16", TYPE_BF16, SCALE_TENSOR, SCALE_TENSOR, 0},
    {"fp8-tensor", TYPE_E4M3, SCALE_TENSOR, SCALE_TENSOR, 1},
    {"fp8-tensor-promoted", TYPE_E4M3, SCALE_TENSOR, SCALE_TENSOR, 0},
    {"fp8-row", TYPE_E4M3, SCALE_ROWS, SCALE_ROWS, 1},
    {"fp8-block", TYPE_E4M3, SCALE_128X128, SCALE_1X128, 0},
    {"int8", TYPE_I8, SCALE_TENSOR, SCALE_TENSOR, 0},
};

/* One peer at one shape. w: n rows of k codes, x: m rows; a result is column-major for cuBLASLt,
 * n down, which is our m rows of n. */
typedef struct Case {
    const Gpu *gpu;
    const Lt *lt;
    const Peer *peer;
    int64_t m, n, k;
    uint8_t *host_w, *host_x;
    float *scale_w, *scale_x; /* [n], [m] or more; all the same but for rows */
    int copies;
    DrvAddress w[MOST_COPIES], y[MOST_COPIES], x, device_scale_w, device_scale_x, workspace;
    void *desc, *layout_w, *layout_x, *layout_y;
    Found found[MOST_FOUND];
    int num_found;
    const Found *algorithm;
    DrvGraphExec graph;
} Case;

static int code_bytes(const Peer *peer)
{
    return peer->type == TYPE_BF16 ? 2 : 1;
}

static int result_bytes(const Peer *peer)
{
    return peer->type == TYPE_I8 ? 4 : 2;
}

/* Data ---------------------------------------------------------------------------------------- */

typedef struct Codes {
    uint8_t *to;
    int64_t k;
    uint64_t seed;
    const Peer *peer;
} Codes;

static void make_row(void *arg, int64_t row)
{
    const Codes *c = arg;
    float *value = need(calloc((size_t)c->k, sizeof *value));
    uint8_t *to = c->to + row * c->k * code_bytes(c->peer);
    double deviation = c->peer->type == TYPE_E4M3 ? 64 : c->peer->type == TYPE_I8 ? 30 : 1;
    fill_normal(value, (uint64_t)c->k, deviation, c->seed + (uint64_t)row * 977);
    for (int64_t i = 0; i < c->k; i++) {
        if (c->peer->type == TYPE_I8) {
            float v = roundf(value[i]);
            to[i] = (uint8_t)(int8_t)(v < -127 ? -127 : v > 127 ? 127 : v);
        } else if (c->peer->type == TYPE_BF16) {
            uint16_t half = bf16_of(value[i]);
            memcpy(to + 2 * i, &half, sizeof half);
        }
    }
    if (c->peer->type == TYPE_E4M3)
        format_from_f32(FMT_E4M3, value, to, (uint64_t)c->k);
    free(value);
}

static uint8_t *make_codes(const Peer *peer, int64_t rows, int64_t k, uint64_t seed)
{
    size_t pitch = (size_t)(k * code_bytes(peer));
    Codes c = {need(calloc((size_t)rows, pitch)), k, seed, peer};
    in_parallel(rows, make_row, &c);
    return c.to;
}

static float *make_scales(uint64_t num, bool vary, double size)
{
    float *scale = need(calloc(num, sizeof *scale));
    for (uint64_t i = 0; i < num; i++)
        scale[i] = (float)(size * (vary ? 0.5 + (double)(i * 7919 % 1000) * 1e-3 : 1));
    return scale;
}

static double decode(const Case *c, const uint8_t *row, int64_t i)
{
    float value;
    uint16_t half;
    if (c->peer->type == TYPE_I8)
        return (double)(int8_t)row[i];
    if (c->peer->type == TYPE_BF16) {
        memcpy(&half, row + 2 * i, sizeof half);
        return (double)bf16_to_float(half);
    }
    format_to_f32(FMT_E4M3, row + i, &value, 1);
    return (double)value;
}

static double expected(const Case *c, int64_t row, int64_t col)
{
    const uint8_t *x = c->host_x + row * c->k * code_bytes(c->peer);
    const uint8_t *w = c->host_w + col * c->k * code_bytes(c->peer);
    double sum = 0;
    for (int64_t i = 0; i < c->k; i++)
        sum += decode(c, x, i) * decode(c, w, i);
    if (c->peer->type != TYPE_E4M3)
        return sum;
    bool rows = c->peer->a_mode == SCALE_ROWS;
    return sum * (double)c->scale_x[rows ? row : 0] * (double)c->scale_w[rows ? col : 0];
}

static double sampled_error(const Case *c)
{
    float got[SAMPLE_ROWS * SAMPLE_COLS], want[SAMPLE_ROWS * SAMPLE_COLS];
    size_t bytes = (size_t)result_bytes(c->peer), pitch = (size_t)c->n * bytes;
    uint8_t *line = need(malloc(pitch));
    for (int r = 0; r < SAMPLE_ROWS; r++) {
        int64_t row = (c->m - 1) * r / (SAMPLE_ROWS - 1);
        gpu_download(c->gpu, line, c->y[0] + (uint64_t)row * pitch, pitch);
        for (int i = 0; i < SAMPLE_COLS; i++) {
            int64_t col = (c->n - 1) * i / (SAMPLE_COLS - 1);
            int32_t whole;
            uint16_t half;
            memcpy(&whole, line + (size_t)col * bytes, bytes == 4 ? 4 : 0);
            memcpy(&half, line + (size_t)col * bytes, 2);
            got[r * SAMPLE_COLS + i] = bytes == 4 ? (float)whole : bf16_to_float(half);
            want[r * SAMPLE_COLS + i] = (float)expected(c, row, col);
        }
    }
    free(line);
    return relative_error(got, want, NULL, SAMPLE_ROWS * SAMPLE_COLS);
}

/* The product --------------------------------------------------------------------------------- */

static void make_operands(Case *c)
{
    uint64_t w = (uint64_t)c->n * (uint64_t)c->k * (uint64_t)code_bytes(c->peer);
    uint64_t x = (uint64_t)c->m * (uint64_t)c->k * (uint64_t)code_bytes(c->peer);
    uint64_t y = (uint64_t)c->m * (uint64_t)c->n * (uint64_t)result_bytes(c->peer);
    uint64_t blocks = (uint64_t)(c->k + 127) / 128;
    uint64_t num_w = (uint64_t)c->n + blocks * (uint64_t)c->n / 128 + 1024;
    uint64_t num_x = (uint64_t)c->m * (blocks + 1) + 4096;
    bool rows = c->peer->a_mode == SCALE_ROWS;
    c->copies = (int)(ROTATE / w) + 1;
    c->copies = c->copies < 2 ? 2 : c->copies > MOST_COPIES ? MOST_COPIES : c->copies;
    c->host_x = make_codes(c->peer, c->m, c->k, 2);
    c->scale_w = make_scales(num_w, rows, 1 / (64 * sqrt((double)c->k)));
    c->scale_x = make_scales(num_x, rows, 1.0 / 64);
    for (int i = 0; i < c->copies; i++) {
        c->w[i] = gpu_alloc(c->gpu, w);
        c->y[i] = gpu_alloc(c->gpu, y);
        gpu_upload(c->gpu, c->w[i], c->host_w, w);
        gpu_check(c->gpu, c->gpu->driver.cuMemsetD8Async(c->y[i], 0xff, y, c->gpu->stream),
                  "poisoning");
    }
    c->x = gpu_alloc(c->gpu, x);
    gpu_upload(c->gpu, c->x, c->host_x, x);
    c->device_scale_w = gpu_alloc(c->gpu, num_w * sizeof(float));
    c->device_scale_x = gpu_alloc(c->gpu, num_x * sizeof(float));
    gpu_upload(c->gpu, c->device_scale_w, c->scale_w, num_w * sizeof(float));
    gpu_upload(c->gpu, c->device_scale_x, c->scale_x, num_x * sizeof(float));
}

static bool describe(Case *c)
{
    const Lt *lt = c->lt;
    const Peer *p = c->peer;
    bool whole = p->type == TYPE_I8;
    int transpose = 1;
    int8_t fast = (int8_t)p->fast;
    int result = whole ? TYPE_I32 : TYPE_BF16;
    bool ok = !lt->desc_create(&c->desc, whole ? COMPUTE_I32 : COMPUTE_F32,
                               whole ? TYPE_I32 : TYPE_F32) &&
              !lt->desc_set(c->desc, DESC_TRANSA, &transpose, sizeof transpose) &&
              !lt->layout_create(&c->layout_w, p->type, (uint64_t)c->k, (uint64_t)c->n, c->k) &&
              !lt->layout_create(&c->layout_x, p->type, (uint64_t)c->k, (uint64_t)c->m, c->k) &&
              !lt->layout_create(&c->layout_y, result, (uint64_t)c->n, (uint64_t)c->m, c->n);
    if (ok && p->type == TYPE_E4M3)
        ok = !lt->desc_set(c->desc, DESC_FAST_ACCUM, &fast, sizeof fast) &&
             !lt->desc_set(c->desc, DESC_A_SCALE_MODE, &p->a_mode, sizeof p->a_mode) &&
             !lt->desc_set(c->desc, DESC_B_SCALE_MODE, &p->b_mode, sizeof p->b_mode) &&
             !lt->desc_set(c->desc, DESC_A_SCALE, &c->device_scale_w, sizeof(DrvAddress)) &&
             !lt->desc_set(c->desc, DESC_B_SCALE, &c->device_scale_x, sizeof(DrvAddress));
    return ok && !lt->heuristics(lt->handle, c->desc, c->layout_w, c->layout_x, c->layout_y,
                                 c->layout_y, lt->pref, MOST_FOUND, c->found, &c->num_found);
}

static bool capture(Case *c)
{
    static const float one = 1, zero = 0;
    static const int32_t one_whole = 1, zero_whole = 0;
    bool whole = c->peer->type == TYPE_I8, ok = true;
    const Driver *d = &c->gpu->driver;
    DrvGraph graph = NULL;
    gpu_check(c->gpu, d->cuStreamBeginCapture(c->gpu->stream, DRV_STREAM_CAPTURE_THREAD_LOCAL),
              "capturing");
    for (int i = 0; i < c->copies && ok; i++)
        ok = !c->lt->matmul(
            c->lt->handle, c->desc, whole ? (const void *)&one_whole : (const void *)&one, c->w[i],
            c->layout_w, c->x, c->layout_x, whole ? (const void *)&zero_whole : (const void *)&zero,
            c->y[i], c->layout_y, c->y[i], c->layout_y, c->algorithm->algorithm, c->workspace,
            (size_t)WORKSPACE, c->gpu->stream);
    DrvResult ended = d->cuStreamEndCapture(c->gpu->stream, &graph);
    ok = ok && !ended && !d->cuGraphInstantiate(&c->graph, graph, 0);
    if (graph)
        d->cuGraphDestroy(graph);
    return ok;
}

static void replay(void *arg)
{
    const Case *c = arg;
    gpu_check(c->gpu, c->gpu->driver.cuGraphLaunch(c->graph, c->gpu->stream), "running a product");
}

/* us a product of one algorithm; infinite if it does not run. *burst, unless NULL: of the first
 * ones after a pause. */
static GpuTimes time_algorithm(Case *c, const Found *found, double budget_ms, double *burst)
{
    GpuTimes t = {.median = (double)INFINITY};
    c->algorithm = found;
    if (found->state || !capture(c))
        return t;
    t = gpu_time(c->gpu, replay, c, budget_ms);
    if (burst)
        *burst = gpu_burst(c->gpu, replay, c) / c->copies;
    c->gpu->driver.cuGraphExecDestroy(c->graph);
    t.median /= c->copies;
    t.p95 /= c->copies;
    return t;
}

static void report(const Case *c, GpuTimes t, double burst, int best, double error)
{
    double flops = 2.0 * (double)c->m * (double)c->n * (double)c->k;
    double bytes = (double)(c->n * c->k + c->m * c->k) * code_bytes(c->peer) +
                   (double)(c->m * c->n) * result_bytes(c->peer);
    printf("gemm cuBLASLt %-19s %5lldx%lldx%lld %9.2f us %8.1f TFLOP/s %6.3f TB/s  burst %9.2f us  "
           "error %.1e  (algorithm %d of %d, %d weights)\n",
           c->peer->name, (long long)c->m, (long long)c->n, (long long)c->k, t.median,
           flops / t.median * 1e-6, bytes / t.median * 1e-6, burst, error, best + 1, c->num_found,
           c->copies);
    fflush(stdout);
    if (json)
        fprintf(
            json,
            "{\"bench\": \"gemm\", \"who\": \"cublaslt\", \"scheme\": \"%s\", \"shape\": "
            "\"%lldx%lld\", \"m\": %lld, \"us\": %.3f, \"p95\": %.3f, \"burst_us\": %.3f, "
            "\"samples\": %d, \"error\": %.4e, \"heuristics\": %d, \"best\": %d, \"weights\": %d, "
            "\"workspace\": %llu, \"fast\": %d, \"version\": %zu}\n",
            c->peer->name, (long long)c->n, (long long)c->k, (long long)c->m, t.median, t.p95,
            burst, t.samples, error, c->num_found, best, c->copies, (unsigned long long)WORKSPACE,
            c->peer->fast, c->lt->version());
}

static void free_case(Case *c)
{
    const Driver *d = &c->gpu->driver;
    for (int i = 0; i < c->copies; i++) {
        d->cuMemFree(c->w[i]);
        d->cuMemFree(c->y[i]);
    }
    d->cuMemFree(c->x);
    d->cuMemFree(c->device_scale_w);
    d->cuMemFree(c->device_scale_x);
    c->lt->layout_destroy(c->layout_w);
    c->lt->layout_destroy(c->layout_x);
    c->lt->layout_destroy(c->layout_y);
    c->lt->desc_destroy(c->desc);
    free(c->host_x);
    free(c->scale_w);
    free(c->scale_x);
}

static void measure(Case *c)
{
    make_operands(c);
    int best = -1;
    double least = (double)INFINITY;
    bool described = describe(c);
    if (described && c->num_found) /* until clocks have risen */
        time_algorithm(c, &c->found[0], 60, NULL);
    for (int i = 0; described && i < c->num_found; i++) {
        double us = time_algorithm(c, &c->found[i], 3, NULL).median;
        if (us < least) {
            least = us;
            best = i;
        }
    }
    if (best < 0) {
        printf("gemm cuBLASLt %-19s %5lldx%lldx%lld has no algorithm\n", c->peer->name,
               (long long)c->m, (long long)c->n, (long long)c->k);
    } else {
        double burst = (double)INFINITY;
        GpuTimes t = time_algorithm(c, &c->found[best], 100, &burst);
        report(c, t, burst, best, sampled_error(c));
    }
    free_case(c);
}

static void load(Lt *lt, const char *path)
{
    uint64_t workspace = WORKSPACE;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        die("%s", dlerror());
    static const struct {
        const char *name;
        size_t field;
    } symbol[] = {
#define LT_ROW(field, symbol, params) {symbol, offsetof(Lt, field)},
        LT_FUNCTIONS(LT_ROW)
#undef LT_ROW
            {"cublasLtGetVersion", offsetof(Lt, version)}};
    for (size_t i = 0; i < COUNT_OF(symbol); i++) {
        void *address = dlsym(library, symbol[i].name);
        if (!address)
            die("%s has no %s", path, symbol[i].name);
        memcpy((char *)lt + symbol[i].field, &address, sizeof address);
    }
    if (lt->create(&lt->handle) || lt->pref_create(&lt->pref) ||
        lt->pref_set(lt->pref, PREF_WORKSPACE, &workspace, sizeof workspace))
        die("cuBLASLt does not start");
}

int main(int argc, char **argv)
{
    Gpu gpu;
    Lt lt = {0};
    char *end, *shape = NULL;
    const char *sizes = option(argc, argv, "--m", "1,16,128");
    const char *only = option(argc, argv, "--only", "");
    int64_t n = strtol(option(argc, argv, "--shape", "28672x4096"), &shape, 10);
    int64_t k = *shape == 'x' ? strtol(shape + 1, NULL, 10) : 0;
    if (n < 16 || k < 16 || n > 1000000 || k > 1000000)
        die("--shape takes NxK");
    json_open(option(argc, argv, "--json", ""));
    gpu_open(&gpu);
    load(&lt, option(argc, argv, "--library", "libcublasLt.so.13"));
    DrvAddress workspace = gpu_alloc(&gpu, WORKSPACE);
    for (size_t p = 0; p < COUNT_OF(peers); p++) {
        if (*only && !strstr(only, peers[p].name))
            continue;
        uint8_t *w = make_codes(&peers[p], n, k, 1000003);
        for (const char *at = sizes; *at; at = *end ? end + 1 : end) {
            Case c = {.gpu = &gpu, .lt = &lt, .peer = &peers[p], .n = n, .k = k, .host_w = w};
            c.m = strtol(at, &end, 10);
            c.workspace = workspace;
            if (c.m < 1 || c.m > 65536 || end == at)
                die("--m takes sizes");
            measure(&c);
        }
        free(w);
    }
    return json && fclose(json) ? 1 : 0;
}
