/* Second moments and gptq on a GPU through the driver: the launches of kernels/cuda/gptq.cuh. One
 * stream, in order; panels are copied on another one, while those before them are multiplied. */
#include "driver/quantise_gpu.h"
#include "runtime/cuda.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK 64  /* of a factor, and rows at once (kBlock, kRowsAtOnce) */
#define SPAN  128 /* columns (kSpan) */
#define PANEL 16
#define TILE  64

typedef enum Kernel {
    K_PRODUCTS,
    K_DIAGONAL,
    K_PANEL,
    K_UPDATE,
    K_INVERT,
    K_LOAD,
    K_SPAN,
    K_REST,
    NUM_KERNELS
} Kernel;

static const struct {
    const char *name;
    unsigned threads, shared;
} kernels[NUM_KERNELS] = {
    [K_PRODUCTS] = {"gptq_products", 256, 0},
    [K_DIAGONAL] = {"gptq_factor_diagonal", BLOCK, 0},
    [K_PANEL] = {"gptq_factor_panel", BLOCK, 2 * BLOCK *BLOCK * 8},
    [K_UPDATE] = {"gptq_factor_update", 256, 2 * BLOCK *(BLOCK + 1) * 8},
    [K_INVERT] = {"gptq_invert", 256, 2 * BLOCK *(BLOCK + 1) * 8},
    [K_LOAD] = {"gptq_load_weight", 256, 0},
    [K_SPAN] = {"gptq_quantise_span", BLOCK, (SPAN * BLOCK + SPAN) * 8},
    [K_REST] = {"gptq_update_rest", 256, 2 * BLOCK *BLOCK * 8},
};

typedef struct Gpu {
    const Driver *d;
    DrvContext context;
    DrvStream stream, copies;
    DrvEvent copied, used[2];
    DrvFunction function[NUM_KERNELS];
    DrvAddress panels[2];
    uint64_t panels_bytes;
    int turn; /* which of them is next */
    char problem[256];
    QuantEngine engine;
} Gpu;

typedef struct Moments {
    DrvAddress sum;
    int64_t cols;
} Moments;

/* Parameters, as gptq.cuh declares them. */
typedef struct ProductsParams {
    DrvAddress panels, sum;
    double unit;
    int64_t n;
    int rows, held;
} ProductsParams;

typedef struct FactorParams {
    DrvAddress a, inverse, bad;
    int64_t n, k;
} FactorParams;

typedef struct ColumnsParams {
    DrvAddress weight, column, inverse, w, err, scale, zero, code;
    int64_t rows, n, width, height, col_blocks, first;
    float outer;
    int fmt, scale_fmt, has_zero, moving;
} ColumnsParams;

static bool check(Gpu *g, DrvResult result, const char *what)
{
    const char *name = NULL;
    if (result == DRV_SUCCESS)
        return true;
    g->d->cuGetErrorName(result, &name);
    snprintf(g->problem, sizeof g->problem, "the GPU failed while %s: %s", what,
             name ? name : "an unknown error");
    return false;
}

static bool launch(Gpu *g, Kernel kernel, int64_t x, int64_t y, const void *params)
{
    const CudaLaunch l = {.function = g->function[kernel],
                          .grid = {(unsigned)x, (unsigned)y},
                          .block = kernels[kernel].threads,
                          .shared = kernels[kernel].shared,
                          .params = params};
    return check(g, cuda_launch(g->d, &l, g->stream, false), kernels[kernel].name);
}

static bool enter(Gpu *g)
{
    return check(g, g->d->cuCtxPushCurrent(g->context), "entering its context");
}

static void leave(Gpu *g)
{
    DrvContext context;
    g->d->cuCtxPopCurrent(&context);
}

static bool take(Gpu *g, uint64_t bytes, DrvAddress *ret)
{
    *ret = 0;
    return check(g, g->d->cuMemAlloc(ret, bytes ? bytes : 1), "allocating");
}

static bool put(Gpu *g, const void *from, uint64_t bytes, DrvAddress *ret)
{
    return take(g, bytes, ret) &&
           check(g, g->d->cuMemcpyHtoDAsync(*ret, from, bytes, g->stream), "copying to it");
}

static bool get(Gpu *g, void *to, DrvAddress from, uint64_t bytes)
{
    return check(g, g->d->cuMemcpyDtoHAsync(to, from, bytes, g->stream), "copying from it") &&
           check(g, g->d->cuStreamSynchronize(g->stream), "finishing");
}

static int64_t parts(int64_t num, int64_t size)
{
    return (num + size - 1) / size;
}

/* Second moments ------------------------------------------------------------------------------- */

static void *moments_begin(void *user, int64_t cols)
{
    Gpu *g = user;
    uint64_t bytes = (uint64_t)cols * (uint64_t)cols * 8;
    Moments *m = calloc(1, sizeof *m);
    if (!m || !enter(g)) {
        free(m);
        return NULL;
    }
    m->cols = cols;
    bool ok = g->d->cuMemAlloc(&m->sum, bytes) == DRV_SUCCESS &&
              check(g, g->d->cuMemsetD8Async(m->sum, 0, bytes, g->stream), "clearing");
    if (!ok) {
        g->d->cuMemFree(m->sum);
        free(m);
        m = NULL;
    }
    leave(g);
    return m;
}

/* Both buffers, at least so large. */
static bool panels_ready(Gpu *g, uint64_t bytes)
{
    if (bytes <= g->panels_bytes)
        return true;
    bool ok = check(g, g->d->cuStreamSynchronize(g->stream), "finishing");
    for (int i = 0; i < 2 && ok; i++) {
        g->d->cuMemFree(g->panels[i]);
        ok = take(g, bytes, &g->panels[i]);
    }
    g->panels_bytes = ok ? bytes : 0;
    return ok;
}

static bool copy_panels(Gpu *g, const float *panels, uint64_t bytes)
{
    const Driver *d = g->d;
    return panels_ready(g, bytes) &&
           check(g, d->cuStreamWaitEvent(g->copies, g->used[g->turn], 0), "waiting") &&
           check(g, d->cuMemcpyHtoDAsync(g->panels[g->turn], panels, bytes, g->copies),
                 "copying to it") &&
           check(g, d->cuEventRecord(g->copied, g->copies), "recording") &&
           check(g, d->cuStreamWaitEvent(g->stream, g->copied, 0), "waiting") &&
           /* the caller's memory may be pinned, and then the copy has only begun */
           check(g, d->cuStreamSynchronize(g->copies), "copying to it");
}

static bool moments_add(void *user, void *moments, const float *panels, int rows, int held,
                        double unit)
{
    Gpu *g = user;
    Moments *m = moments;
    uint64_t bytes = (uint64_t)parts(m->cols, PANEL) * PANEL * (uint64_t)held * sizeof(float);
    int64_t tiles = parts(m->cols, TILE);
    if (!enter(g))
        return false;
    bool ok = copy_panels(g, panels, bytes);
    ProductsParams p = {g->panels[g->turn], m->sum, unit, m->cols, rows, held};
    ok = ok && launch(g, K_PRODUCTS, tiles, tiles, &p) &&
         check(g, g->d->cuEventRecord(g->used[g->turn], g->stream), "recording");
    g->turn ^= 1;
    leave(g);
    return ok;
}

static bool moments_end(void *user, void *moments, double *sum)
{
    Gpu *g = user;
    Moments *m = moments;
    int64_t n = m->cols;
    double *here = sum ? malloc((size_t)n * (size_t)n * sizeof *here) : NULL;
    bool ok = enter(g);
    if (ok) {
        ok = !sum || (here && get(g, here, m->sum, (uint64_t)n * (uint64_t)n * 8));
        g->d->cuMemFree(m->sum);
        leave(g);
    }
    if (!ok && !g->problem[0])
        snprintf(g->problem, sizeof g->problem, "memory is exhausted");
    for (int64_t i = 0; sum && ok && i < n; i++)
        for (int64_t j = 0; j <= i; j++)
            sum[i * n + j] += here[i * n + j];
    free(here);
    free(m);
    return ok;
}

/* gptq ----------------------------------------------------------------------------------------- */

/* The inverse of the lower Cholesky factor of the Hessian in p->a. */
static bool factor(Gpu *g, FactorParams *p, bool *ret_bad)
{
    int bad = 0;
    bool ok = true;
    for (p->k = 0; p->k < p->n && ok; p->k += BLOCK) {
        int64_t below = parts(p->n - p->k - BLOCK, BLOCK);
        ok = launch(g, K_DIAGONAL, 1, 1, p);
        if (p->n - p->k > BLOCK)
            ok = ok && launch(g, K_PANEL, below, 1, p) && launch(g, K_UPDATE, below, below, p);
    }
    ok = ok && launch(g, K_INVERT, parts(p->n, BLOCK), 1, p) && get(g, &bad, p->bad, sizeof bad);
    *ret_bad = bad != 0;
    return ok;
}

static bool quantise_columns(Gpu *g, ColumnsParams *p)
{
    bool ok = launch(g, K_LOAD, parts(p->rows, 32), parts(p->n, 32), p);
    for (p->first = p->n - 1; p->first >= 0 && ok; p->first -= SPAN) {
        int64_t rest = p->first + 1 - SPAN;
        ok = launch(g, K_SPAN, parts(p->rows, BLOCK), 1, p);
        if (rest > 0)
            ok = ok && launch(g, K_REST, parts(rest, BLOCK), parts(p->rows, BLOCK), p);
    }
    return ok;
}

typedef struct Buffers {
    DrvAddress hessian, inverse, bad, weight, column, w, err, scale, zero, code;
} Buffers;

static void buffers_free(Gpu *g, const Buffers *b)
{
    const DrvAddress all[] = {b->hessian, b->inverse, b->bad,   b->weight, b->column,
                              b->w,       b->err,     b->scale, b->zero,   b->code};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        g->d->cuMemFree(all[i]);
}

static bool buffers_fill(Gpu *g, const GptqWork *work, Buffers *b)
{
    const QTensor *q = work->q;
    uint64_t rows = (uint64_t)q->rows, n = (uint64_t)q->cols;
    uint64_t blocks = (uint64_t)(q->row_blocks * q->col_blocks);
    const int bad = 0;
    *b = (Buffers){0};
    return put(g, work->hessian, n * n * 8, &b->hessian) && take(g, n * n * 8, &b->inverse) &&
           put(g, &bad, sizeof bad, &b->bad) && put(g, work->w, rows * n * 4, &b->weight) &&
           put(g, work->column, n * 8, &b->column) && take(g, rows * n * 8, &b->w) &&
           take(g, rows * SPAN * 8, &b->err) && put(g, q->scale, blocks * 4, &b->scale) &&
           (!q->zero || put(g, q->zero, blocks * 4, &b->zero)) && take(g, rows * n, &b->code);
}

static bool run(Gpu *g, const GptqWork *work, const Buffers *b, bool *ret_bad)
{
    QTensor *q = work->q;
    uint64_t blocks = (uint64_t)(q->row_blocks * q->col_blocks);
    FactorParams f = {.a = b->hessian, .inverse = b->inverse, .bad = b->bad, .n = q->cols};
    ColumnsParams c = {b->weight,
                       b->column,
                       b->inverse,
                       b->w,
                       b->err,
                       b->scale,
                       b->zero,
                       b->code,
                       .rows = q->rows,
                       .n = q->cols,
                       .width = work->width,
                       .height = work->height,
                       .col_blocks = q->col_blocks,
                       .outer = q->outer,
                       .fmt = (int)q->scheme.fmt,
                       .scale_fmt = (int)q->scheme.scale_fmt,
                       .has_zero = q->scheme.zero != ZERO_NONE,
                       .moving = work->moving_scales};
    if (!factor(g, &f, ret_bad) || *ret_bad)
        return !*ret_bad;
    return quantise_columns(g, &c) &&
           get(g, work->code, b->code, (uint64_t)q->rows * (uint64_t)q->cols) &&
           get(g, q->scale, b->scale, blocks * 4) &&
           (!q->zero || get(g, q->zero, b->zero, blocks * 4));
}

static const char *gptq(void *user, const GptqWork *work)
{
    Gpu *g = user;
    Buffers b;
    bool bad = false;
    if (!work->q->rows || !work->q->cols)
        return NULL;
    if (!enter(g))
        return g->problem;
    bool ok = buffers_fill(g, work, &b) && run(g, work, &b, &bad);
    buffers_free(g, &b);
    leave(g);
    return bad ? GPTQ_NOT_POSITIVE : ok ? NULL : g->problem;
}

static const char *problem(void *user)
{
    Gpu *g = user;
    return g->problem[0] ? g->problem : NULL;
}

/* Opening -------------------------------------------------------------------------------------- */

static bool load(Gpu *g, const DeviceImage *image)
{
    DrvModule module;
    bool ok = check(g, g->d->cuModuleLoadDataEx(&module, image->data, 0, NULL, NULL), "loading");
    for (int i = 0; i < NUM_KERNELS && ok; i++) {
        ok = check(g, g->d->cuModuleGetFunction(&g->function[i], module, kernels[i].name),
                   kernels[i].name) &&
             (!kernels[i].shared ||
              check(g,
                    g->d->cuFuncSetAttribute(g->function[i], DRV_FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                             (int)kernels[i].shared),
                    kernels[i].name));
    }
    return ok;
}

const CudaSource quantise_gpu_source = {"gptq", "#include \"kernels/cuda/gptq.cuh\"\n", CUDA_TILE};

/* PTX for compute capability 8.0: every GPU with the shared memory that these kernels take has a
 * driver that compiles it. */
static bool compile(Gpu *g, Arena *arena, Diag *diag, bool use_cache)
{
    static const char *const arch = "compute_80";
    const CudaCompileOptions options = {.num_archs = 1, .arch = &arch, .no_cache = !use_cache};
    CudaTarget target = {.num_sources = 1, .source = &quantise_gpu_source};
    return cuda_compile(diag, arena, &target, &options) && load(g, &target.code.image[0]);
}

static bool start(Gpu *g, int ordinal)
{
    DrvDevice device;
    const Driver *d = g->d;
    bool ok = check(g, d->cuDeviceGet(&device, ordinal), "opening it") &&
              check(g, d->cuDevicePrimaryCtxRetain(&g->context, device), "starting it") &&
              enter(g) &&
              check(g, d->cuStreamCreate(&g->stream, DRV_STREAM_NON_BLOCKING), "starting it") &&
              check(g, d->cuStreamCreate(&g->copies, DRV_STREAM_NON_BLOCKING), "starting it") &&
              check(g, d->cuEventCreate(&g->copied, DRV_EVENT_DISABLE_TIMING), "starting it");
    for (int i = 0; i < 2 && ok; i++)
        ok = check(g, d->cuEventCreate(&g->used[i], DRV_EVENT_DISABLE_TIMING), "starting it");
    return ok;
}

const QuantEngine *quantise_gpu_open(Arena *arena, Diag *diag, int ordinal, bool use_cache)
{
    SinterStatus status;
    SinterError err;
    Gpu *g = ARENA_NEW(arena, Gpu);
    *g = (Gpu){.d = driver_get(&status, &err)};
    if (!g->d) {
        diag_error(diag, (Span){0}, E_NO_DEVICE, "%s", err.text);
        return NULL;
    }
    int errors = diag->num_errors;
    if (!start(g, ordinal) || !compile(g, arena, diag, use_cache)) {
        if (diag->num_errors == errors)
            diag_error(diag, (Span){0}, E_NO_DEVICE, "cuda:%d: %s", ordinal, g->problem);
        return NULL;
    }
    leave(g);
    g->engine = (QuantEngine){g, moments_begin, moments_add, moments_end, gptq, problem};
    return &g->engine;
}
