/* Every reciprocal that activations may ask for (num_reciprocal, of 1 to 2^40) on a GPU beside this
 * processor's division: its steps hold for hardware whose own reciprocal is as good as the steps of
 * `rcp.rn` ask for. Skips without a GPU. TAP. */
#include "base/base.h"
#include "codegen/cuda/target.h"
#include "numerics/numerics.h"
#include "runtime/cuda.h"

#include <stdio.h>
#include <stdlib.h>

#define MANTISSAS (1 << 23)
#define BLOCK     256

static const CudaSource source = {
    "reciprocals",
    "#include \"kernels/cuda/prelude.cuh\"\n"
    "struct Params { float *to; int exponent; };\n"
    "extern \"C\" __global__ void reciprocals(const __grid_constant__ Params p)\n"
    "{\n"
    "    const unsigned i = blockIdx.x * 256 + threadIdx.x;\n"
    "    p.to[i] = num_reciprocal(num_float((unsigned)(127 + p.exponent) << 23 | i));\n"
    "}\n",
    CUDA_TILE};

typedef struct Params {
    DrvAddress to;
    int exponent;
} Params;

static void need(const Driver *d, DrvResult result, const char *what)
{
    const char *name = NULL;
    if (result == DRV_SUCCESS)
        return;
    d->cuGetErrorName(result, &name);
    printf("Bail out! %s: %s\n", what, name ? name : "an unknown error");
    exit(2);
}

static DrvFunction load(const Driver *d, const DeviceImage *image)
{
    DrvModule module;
    DrvFunction function;
    need(d, d->cuModuleLoadDataEx(&module, image->data, 0, NULL, NULL), "loading");
    need(d, d->cuModuleGetFunction(&function, module, source.name), "finding the kernel");
    return function;
}

static int num_wrong(const float *got, int exponent)
{
    int wrong = 0;
    for (unsigned i = 0; i < MANTISSAS; i++) {
        float b = num_float((unsigned)(127 + exponent) << 23 | i), want = 1.0f / b;
        if (num_bits(got[i]) != num_bits(want) && wrong++ < 3)
            printf("# 1 / %a: %a instead of %a\n", (double)b, (double)got[i], (double)want);
    }
    return wrong;
}

static int check(const Driver *d, const DeviceImage *image)
{
    DrvDevice device;
    DrvContext context;
    DrvStream stream;
    DrvAddress to;
    const uint64_t bytes = MANTISSAS * sizeof(float);
    float *got = malloc(bytes);
    int failed = !got;
    need(d, d->cuDeviceGet(&device, 0), "opening it");
    need(d, d->cuDevicePrimaryCtxRetain(&context, device), "starting it");
    need(d, d->cuCtxPushCurrent(context), "entering its context");
    need(d, d->cuStreamCreate(&stream, DRV_STREAM_NON_BLOCKING), "starting it");
    need(d, d->cuMemAlloc(&to, bytes), "allocating");
    const DrvFunction function = load(d, image);
    for (int exponent = 0; got && exponent <= 40; exponent++) {
        const Params p = {to, exponent};
        const CudaLaunch l = {
            .function = function, .grid = {MANTISSAS / BLOCK, 1}, .block = BLOCK, .params = &p};
        need(d, cuda_launch(d, &l, stream, false), "launching");
        need(d, d->cuMemcpyDtoHAsync(got, to, bytes, stream), "copying");
        need(d, d->cuStreamSynchronize(stream), "finishing");
        int wrong = num_wrong(got, exponent);
        printf("%s %d - reciprocals from 2^%d, %d wrong\n", wrong ? "not ok" : "ok", exponent + 1,
               exponent, wrong);
        failed += wrong > 0;
    }
    printf("1..41\n");
    free(got);
    return failed > 0;
}

int main(void)
{
    static const char *const arch = "compute_80";
    const CudaCompileOptions options = {.num_archs = 1, .arch = &arch, .no_cache = true};
    CudaTarget target = {.num_sources = 1, .source = &source};
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
    int failed = ok ? check(d, &target.code.image[0]) : 1;
    arena_destroy(arena);
    return failed;
}
