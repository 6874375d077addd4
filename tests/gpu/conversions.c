/* Steps that stand for others on a GPU, for every float they may meet. Reciprocals that activations
 * may ask for (num_reciprocal, of 1 to 2^40) beside this processor's division: they hold for
 * hardware whose own reciprocal is as good as the steps of `rcp.rn` ask for. Codes of e2m1, four at
 * a time, beside num_to_e2m1 on the GPU. Skips without a GPU. TAP. */
#include "base/base.h"
#include "codegen/cuda/target.h"
#include "numerics/numerics.h"
#include "runtime/cuda.h"

#include <stdio.h>
#include <stdlib.h>

#define MANTISSAS (1 << 23)
#define BLOCK     256

enum { RECIPROCALS, CODES, NUM_SOURCES };
static const CudaSource source[NUM_SOURCES] = {
    {"reciprocals",
     "#include \"kernels/cuda/prelude.cuh\"\n"
     "struct Params { float *to; int exponent; };\n"
     "extern \"C\" __global__ void reciprocals(const __grid_constant__ Params p)\n"
     "{\n"
     "    const unsigned i = blockIdx.x * 256 + threadIdx.x;\n"
     "    p.to[i] = num_reciprocal(num_float((unsigned)(127 + p.exponent) << 23 | i));\n"
     "}\n",
     CUDA_TILE},
    {"codes",
     "#include \"kernels/cuda/quantise.cuh\"\n"
     "struct Params { unsigned *to; int exponent; float minus, half; };\n"
     "extern \"C\" __global__ void codes(const __grid_constant__ Params p)\n"
     "{\n"
     "    const unsigned i = blockIdx.x * 256 + threadIdx.x;\n"
     "    const float x = num_float((unsigned)p.exponent << 23 | i), half = p.half * x;\n"
     "    const float minus = p.minus * x, minus_half = p.minus * half;\n"
     "    const unsigned want = num_to_e2m1(x) | num_to_e2m1(minus) << 8 |\n"
     "                          num_to_e2m1(half) << 16 | num_to_e2m1(minus_half) << 24;\n"
     "    p.to[i] = e2m1_codes(x, minus, half, minus_half) ^ want;\n"
     "}\n",
     CUDA_TILE}};

typedef struct Params {
    DrvAddress to;
    int exponent;
    float minus, half; /* factors that no compiler knows */
} Params;

typedef struct Gpu {
    const Driver *d;
    DrvStream stream;
    DrvAddress to;
    unsigned *got; /* [MANTISSAS] */
} Gpu;
#define GOT_BYTES (MANTISSAS * sizeof(unsigned))

static void need(const Driver *d, DrvResult result, const char *what)
{
    const char *name = NULL;
    if (result == DRV_SUCCESS)
        return;
    d->cuGetErrorName(result, &name);
    printf("Bail out! %s: %s\n", what, name ? name : "an unknown error");
    exit(2);
}

static DrvFunction load(const Driver *d, const DeviceImage *image, const char *name)
{
    DrvModule module;
    DrvFunction function;
    need(d, d->cuModuleLoadDataEx(&module, image->data, 0, NULL, NULL), "loading");
    need(d, d->cuModuleGetFunction(&function, module, name), "finding the kernel");
    return function;
}

/* What the kernel has for each mantissa under the exponent. */
static void run(const Gpu *g, DrvFunction function, int exponent)
{
    const Params p = {g->to, exponent, -1.0f, 0.5f};
    const CudaLaunch l = {
        .function = function, .grid = {MANTISSAS / BLOCK, 1}, .block = BLOCK, .params = &p};
    need(g->d, cuda_launch(g->d, &l, g->stream, false), "launching");
    need(g->d, g->d->cuMemcpyDtoHAsync(g->got, g->to, GOT_BYTES, g->stream), "copying");
    need(g->d, g->d->cuStreamSynchronize(g->stream), "finishing");
}

static int wrong_reciprocals(const unsigned *got, int exponent)
{
    int wrong = 0;
    for (unsigned i = 0; i < MANTISSAS; i++) {
        float b = num_float((unsigned)(127 + exponent) << 23 | i), want = 1.0f / b;
        if (got[i] != num_bits(want) && wrong++ < 3)
            printf("# 1 / %a: %a instead of %a\n", (double)b, (double)num_float(got[i]),
                   (double)want);
    }
    return wrong;
}

static int wrong_codes(const unsigned *got, int exponent)
{
    int wrong = 0;
    for (unsigned i = 0; i < MANTISSAS; i++)
        if (got[i] && wrong++ < 3)
            printf("# %a: codes differ by %#x\n", (double)num_float((unsigned)exponent << 23 | i),
                   got[i]);
    return wrong;
}

static int report(int number, int wrong, const char *what, int exponent)
{
    printf("%s %d - %s 2^%d, %d wrong\n", wrong ? "not ok" : "ok", number, what, exponent, wrong);
    return wrong > 0;
}

static int check(const Driver *d, const DeviceImage *image)
{
    DrvDevice device;
    DrvContext context;
    Gpu g = {.d = d, .got = malloc(GOT_BYTES)};
    int failed = !g.got, number = 0;
    need(d, d->cuDeviceGet(&device, 0), "opening it");
    need(d, d->cuDevicePrimaryCtxRetain(&context, device), "starting it");
    need(d, d->cuCtxPushCurrent(context), "entering its context");
    need(d, d->cuStreamCreate(&g.stream, DRV_STREAM_NON_BLOCKING), "starting it");
    need(d, d->cuMemAlloc(&g.to, GOT_BYTES), "allocating");
    DrvFunction reciprocals = load(d, &image[RECIPROCALS], source[RECIPROCALS].name);
    DrvFunction codes = load(d, &image[CODES], source[CODES].name);
    for (int exponent = 0; g.got && exponent <= 40; exponent++) {
        run(&g, reciprocals, exponent);
        failed +=
            report(++number, wrong_reciprocals(g.got, exponent), "reciprocals from", exponent);
    }
    for (int exponent = 0; g.got && exponent <= 255; exponent++) {
        run(&g, codes, exponent);
        failed +=
            report(++number, wrong_codes(g.got, exponent), "codes of e2m1 from", exponent - 127);
    }
    printf("1..%d\n", number);
    free(g.got);
    return failed > 0;
}

int main(void)
{
    static const char *const arch = "compute_80";
    const CudaCompileOptions options = {.num_archs = 1, .arch = &arch, .no_cache = true};
    CudaTarget target = {.num_sources = NUM_SOURCES, .source = source};
    SinterStatus status;
    SinterError why;
    const Driver *d = driver_get(&status, &why);
    if (!d) {
        printf("1..0 # SKIP %s\n", why.text);
        return 0;
    }
    Arena *arena = arena_create();
    Diag diag;
    diag_init(&diag, arena);
    bool ok = cuda_compile(&diag, arena, &target, &options);
    diag_print(&diag, stdout, false);
    int failed = ok ? check(d, target.code.image) : 1;
    arena_destroy(arena);
    return failed;
}
