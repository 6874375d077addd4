/* What the GPU benchmarks share: the driver, times by events, random data, rows of JSON. A failure
 * ends the program with a sentence; nothing here is for libraries. */
#ifndef SINTER_BENCH_GPU_H
#define SINTER_BENCH_GPU_H

#include "base/base.h"
#include "runtime/cuda_api.h"
#include "runtime/sinter.h"

#include <stdbool.h>
#include <stdio.h>

_Noreturn void die(const char *fmt, ...) PRINTF_LIKE(1, 2);
void *need(void *memory); /* dies of NULL */
double wall_us(void);
double thread_cpu_us(void);

/* Host work on all processors: part(arg, i) for i in 0 .. num - 1. */
typedef void PartFn(void *arg, int64_t i);
void in_parallel(int64_t num, PartFn *part, void *arg);

/* Standard normal numbers times deviation; the same for the same seed, whatever the threads. */
void fill_normal(float *data, uint64_t num, double deviation, uint64_t seed);
uint16_t bf16_of(float value); /* nearest even */
float bf16_to_float(uint16_t half);

/* The GPU ------------------------------------------------------------------------------------- */

typedef struct Gpu {
    Driver driver;
    DrvDevice device;
    DrvContext context;
    DrvStream stream;
    DrvEvent begin, end;
} Gpu;

void gpu_open(Gpu *gpu); /* of ordinal 0, its primary context made current */
void gpu_check(const Gpu *gpu, DrvResult result, const char *what);
DrvAddress gpu_alloc(const Gpu *gpu, uint64_t size);
void gpu_upload(const Gpu *gpu, DrvAddress to, const void *from, uint64_t size);
void gpu_download(const Gpu *gpu, void *to, DrvAddress from, uint64_t size);

typedef struct GpuTimes {
    double median, p95; /* us a run */
    int samples, inner; /* each sample is the mean of `inner` runs between two events */
} GpuTimes;
/* Times run(arg), which puts one run on gpu->stream, after a warm-up; samples: about how many
 * milliseconds to spend on them. */
typedef void RunFn(void *arg);
GpuTimes gpu_time(const Gpu *gpu, RunFn *run, void *arg, double budget_ms);
/* us a run in the first 20 ms or so after a pause, before power limits the clocks of a GPU: the
 * median of samples that follow each other. What gpu_time() finds is what a GPU in use gives. */
double gpu_burst(const Gpu *gpu, RunFn *run, void *arg);

/* Results ------------------------------------------------------------------------------------- */

/* A file of JSON objects, one a line; NULL: none is written. */
extern FILE *json;
void json_open(const char *path); /* appends */

/* "--name=value" of the arguments, or otherwise. */
const char *option(int argc, char **argv, const char *name, const char *otherwise);

/* ‖got − want‖ / ‖want − base‖; base may be NULL. NaN if a value is not finite. */
double relative_error(const float *got, const float *want, const float *base, uint64_t num);

#endif
