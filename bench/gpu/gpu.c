/* What the GPU benchmarks share; see gpu.h. */
#include "bench/gpu/gpu.h"
#include "base/team.h"

#include <dlfcn.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PI          3.141592653589793f
#define MAX_SAMPLES 200
#define SAMPLE_US   3000.0
#define BURST_US    20000.0
#define PAUSE_NS    200000000

FILE *json;

void die(const char *fmt, ...)
{
    va_list ap;
    fflush(stdout);
    fputs("bench: ", stderr);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    exit(1);
}

void *need(void *memory)
{
    if (!memory)
        die("memory is exhausted");
    return memory;
}

static double clock_of(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

double wall_us(void)
{
    return clock_of(CLOCK_MONOTONIC);
}

double thread_cpu_us(void)
{
    return clock_of(CLOCK_THREAD_CPUTIME_ID);
}

typedef struct Parts {
    PartFn *part;
    void *arg;
} Parts;

static void run_parts(void *user, int64_t begin, int64_t end, int thread)
{
    const Parts *p = user;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        p->part(p->arg, i);
}

void in_parallel(int64_t num, PartFn *part, void *arg)
{
    Parts parts = {part, arg};
    team_run(0, num, 1, run_parts, &parts);
}

/* Data ---------------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t z)
{
    z += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* Box and Muller: each 64 random bits give two numbers. */
void fill_normal(float *data, uint64_t num, double deviation, uint64_t seed)
{
    for (uint64_t i = 0; i < num; i += 2) {
        uint64_t r = mix(mix(seed) + i);
        float u = ((float)(r >> 40) + 0.5f) * 0x1p-24f, v = (float)(r & 0xffffff) * 0x1p-24f;
        float radius = (float)deviation * sqrtf(-2 * logf(u));
        data[i] = radius * cosf(2 * PI * v);
        if (i + 1 < num)
            data[i + 1] = radius * sinf(2 * PI * v);
    }
}

uint16_t bf16_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float bf16_to_float(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

double relative_error(const float *got, const float *want, const float *base, uint64_t num)
{
    double off = 0, size = 0;
    for (uint64_t i = 0; i < num; i++) {
        double d = (double)got[i] - (double)want[i];
        double w = (double)want[i] - (base ? (double)base[i] : 0);
        off += d * d;
        size += w * w;
    }
    return isfinite(off) && size > 0 ? sqrt(off / size) : (double)NAN;
}

/* The GPU ------------------------------------------------------------------------------------- */

void gpu_check(const Gpu *gpu, DrvResult result, const char *what)
{
    const char *name = NULL;
    if (result == DRV_SUCCESS)
        return;
    if (gpu->driver.cuGetErrorName)
        gpu->driver.cuGetErrorName(result, &name);
    die("%s: %s (%d)", what, name ? name : "an unknown error", result);
}

void gpu_open(Gpu *gpu)
{
    Driver *d = &gpu->driver;
    const char *path = secure_getenv("SINTER_LIBCUDA"); /* as the runtime does */
    *gpu = (Gpu){0};
    d->library = dlopen(path ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!d->library)
        die("there is no NVIDIA driver: %s", dlerror());
    static const struct {
        const char *name;
        size_t field;
    } symbol[] = {
#define SYMBOL_ROW(field, symbol, params) {symbol, offsetof(Driver, field)},
        DRIVER_FUNCTIONS(SYMBOL_ROW)
#undef SYMBOL_ROW
    };
    for (size_t i = 0; i < COUNT_OF(symbol); i++) {
        void *address = dlsym(d->library, symbol[i].name);
        if (!address)
            die("the driver has no %s", symbol[i].name);
        memcpy((char *)d + symbol[i].field, &address, sizeof address);
    }
    gpu_check(gpu, d->cuInit(0), "starting the driver");
    gpu_check(gpu, d->cuDeviceGet(&gpu->device, 0), "finding a GPU");
    gpu_check(gpu, d->cuDevicePrimaryCtxRetain(&gpu->context, gpu->device), "making a context");
    gpu_check(gpu, d->cuCtxPushCurrent(gpu->context), "entering the context");
    gpu_check(gpu, d->cuStreamCreate(&gpu->stream, DRV_STREAM_NON_BLOCKING), "making a stream");
    gpu_check(gpu, d->cuEventCreate(&gpu->begin, DRV_EVENT_DEFAULT), "making an event");
    gpu_check(gpu, d->cuEventCreate(&gpu->end, DRV_EVENT_DEFAULT), "making an event");
}

DrvAddress gpu_alloc(const Gpu *gpu, uint64_t size)
{
    DrvAddress address;
    gpu_check(gpu, gpu->driver.cuMemAlloc(&address, (size_t)size), "allocating");
    return address;
}

void gpu_upload(const Gpu *gpu, DrvAddress to, const void *from, uint64_t size)
{
    gpu_check(gpu, gpu->driver.cuMemcpyHtoDAsync(to, from, (size_t)size, gpu->stream), "uploading");
    gpu_check(gpu, gpu->driver.cuStreamSynchronize(gpu->stream), "uploading");
}

void gpu_download(const Gpu *gpu, void *to, DrvAddress from, uint64_t size)
{
    gpu_check(gpu, gpu->driver.cuMemcpyDtoHAsync(to, from, (size_t)size, gpu->stream),
              "downloading");
    gpu_check(gpu, gpu->driver.cuStreamSynchronize(gpu->stream), "downloading");
}

static double sample(const Gpu *gpu, RunFn *run, void *arg, int inner)
{
    const Driver *d = &gpu->driver;
    float ms;
    gpu_check(gpu, d->cuEventRecord(gpu->begin, gpu->stream), "recording an event");
    for (int i = 0; i < inner; i++)
        run(arg);
    gpu_check(gpu, d->cuEventRecord(gpu->end, gpu->stream), "recording an event");
    gpu_check(gpu, d->cuEventSynchronize(gpu->end), "running");
    gpu_check(gpu, d->cuEventElapsedTime(&ms, gpu->begin, gpu->end), "reading an event");
    return 1e3 * (double)ms / inner;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

GpuTimes gpu_time(const Gpu *gpu, RunFn *run, void *arg, double budget_ms)
{
    double us[MAX_SAMPLES], rough = sample(gpu, run, arg, 1);
    for (double left = 1e3 * budget_ms; left > 0; left -= rough)
        rough = sample(gpu, run, arg, 1);
    double length = 100 * budget_ms < SAMPLE_US ? 100 * budget_ms : SAMPLE_US;
    GpuTimes times = {.inner = (int)(length / (rough + 0.1)) + 1};
    double samples = 1e3 * budget_ms / (rough * times.inner + 1);
    times.samples = samples < 7 ? 7 : samples > MAX_SAMPLES ? MAX_SAMPLES : (int)samples;
    for (int i = 0; i < times.samples; i++)
        us[i] = sample(gpu, run, arg, times.inner);
    qsort(us, (size_t)times.samples, sizeof *us, by_value);
    times.median = us[times.samples / 2];
    times.p95 = us[(int)(0.95 * (times.samples - 1) + 0.5)];
    return times;
}

double gpu_burst(const Gpu *gpu, RunFn *run, void *arg)
{
    const struct timespec pause = {0, PAUSE_NS};
    double us[MAX_SAMPLES];
    int inner = (int)(BURST_US / 20 / (sample(gpu, run, arg, 1) + 0.1)) + 1, num = 0;
    nanosleep(&pause, NULL);
    sample(gpu, run, arg, inner);
    for (double left = BURST_US; num < 3 || (left > 0 && num < MAX_SAMPLES); num++) {
        us[num] = sample(gpu, run, arg, inner);
        left -= us[num] * inner;
    }
    qsort(us, (size_t)num, sizeof *us, by_value);
    return us[num / 2];
}

/* Results ------------------------------------------------------------------------------------- */

void json_open(const char *path)
{
    json = *path ? fopen(path, "a") : NULL;
    if (*path && !json)
        die("cannot write %s", path);
}

const char *option(int argc, char **argv, const char *name, const char *otherwise)
{
    size_t length = strlen(name);
    for (int i = 1; i < argc; i++)
        if (!strncmp(argv[i], name, length) && argv[i][length] == '=')
            return argv[i] + length + 1;
    return otherwise;
}
