/* Compiled models on the GPU. A subcommand, a compiled file, options:
 *   time    every bucket: us a run between events, launches, error against y.npy
 *           --x=FILE --y=FILE --residual=1 --layers=N --bench=WORD --scheme=WORD --level=N
 *           --shape=WORD
 *   trace   the largest bucket: us of each launch that is not a product, and the bytes it must move
 *           --scheme=WORD --bits=N (of a code) --rounds=N
 *   open    from sinter_open to the first result, and the bandwidth to the GPU
 *   replay  what a run of the smallest bucket costs the calling thread
 * All: --json=FILE. Runs are graph launches on one stream that read and write the session's own
 * memory, back to back. */
#include "bench/gpu/gpu.h"
#include "io/io.h"
#include "quant/quant.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PORTS  64
#define MAX_SYMS   8
#define MAX_ROUNDS 100

typedef struct Model {
    Gpu gpu;
    SinterModel *model;
    SinterSession *session;
    int num_in, num_out;
    SinterTensor in[MAX_PORTS], out[MAX_PORTS];
    DrvStream stream;
} Model;

static void ok(SinterStatus status, const SinterError *err)
{
    if (status)
        die("%s", err->text);
}

static void session_open(Model *m, const char *path)
{
    SinterError err;
    SinterSessionOptions options = {.device = "cuda:0", .prepare = 1};
    ok(sinter_open(path, &m->model, &err), &err);
    ok(sinter_session_create(m->model, &options, &m->session, &err), &err);
    m->num_in = sinter_num_inputs(m->model);
    m->num_out = sinter_num_outputs(m->model);
    if (m->num_in > MAX_PORTS || m->num_out > MAX_PORTS || sinter_num_symbols(m->model) > MAX_SYMS)
        die("%s has too many ports or sizes", path);
}

static size_t dtype_bytes(SinterDtype dtype)
{
    return dtype == SINTER_F32 || dtype == SINTER_I32 ? 4 : 2;
}

static uint64_t elements(const SinterTensor *t)
{
    uint64_t num = 1;
    for (int i = 0; i < t->rank; i++)
        num *= (uint64_t)t->dim[i];
    return num;
}

/* Ports at a bucket's sizes, in the session's own memory on the GPU. */
static void bind_bucket(Model *m, int bucket)
{
    SinterError err;
    int64_t size[MAX_SYMS];
    for (int s = 0; s < sinter_num_symbols(m->model); s++)
        size[s] = sinter_bucket_size(m->model, bucket, s);
    for (int i = 0; i < m->num_in + m->num_out; i++) {
        bool is_output = i >= m->num_in;
        int port = is_output ? i - m->num_in : i;
        SinterTensor *t = is_output ? &m->out[port] : &m->in[port];
        uint64_t bytes;
        ok(sinter_port_shape(m->model, is_output, port, size, t, &err), &err);
        ok(sinter_port_memory(m->session, is_output, port, &t->data, &bytes, &err), &err);
    }
}

static void run_once(void *arg)
{
    Model *m = arg;
    SinterError err;
    ok(sinter_run_async(m->session, m->in, m->num_in, m->out, m->num_out, m->gpu.stream, &err),
       &err);
}

static void encode(SinterDtype dtype, const float *from, void *to, uint64_t num)
{
    static const FormatId format[] = {
        [SINTER_F32] = FMT_F32, [SINTER_F16] = FMT_F16, [SINTER_BF16] = FMT_BF16};
    if (dtype < SINTER_F32 || dtype > SINTER_BF16)
        die("a port is not of floats");
    format_from_f32(format[dtype], from, to, num);
}

static void decode(SinterDtype dtype, const void *from, float *to, uint64_t num)
{
    format_to_f32(dtype == SINTER_F32   ? FMT_F32
                  : dtype == SINTER_F16 ? FMT_F16
                                        : FMT_BF16,
                  from, to, num);
}

/* Rows of the file over and over; without a file, normal numbers. */
static float *make_rows(const TensorView *view, uint64_t num)
{
    float *x = need(calloc(num, sizeof *x));
    if (!view) {
        fill_normal(x, num, 1, 1);
        return x;
    }
    const float *from = view->data;
    for (uint64_t i = 0; i < num; i++)
        x[i] = from[i % view->elements];
    return x;
}

static void set_inputs(const Model *m, const TensorView *x)
{
    for (int i = 0; i < m->num_in; i++) {
        const SinterTensor *t = &m->in[i];
        uint64_t num = elements(t);
        float *rows = make_rows(x, num);
        void *coded = need(calloc(num, 4));
        encode(t->dtype, rows, coded, num);
        gpu_upload(&m->gpu, (DrvAddress)(uintptr_t)t->data, coded, num * dtype_bytes(t->dtype));
        free(coded);
        free(rows);
    }
}

static const TensorView *open_rows(const char *path, TensorFile **ret)
{
    IoError err;
    *ret = NULL;
    if (!*path)
        return NULL;
    *ret = tensorfile_open(path, &err);
    if (!*ret || tensorfile_num(*ret) != 1 || tensorfile_at(*ret, 0)->fmt != FMT_F32)
        die("%s: %s", path, *ret ? "one f32 tensor is needed" : err.text);
    return tensorfile_at(*ret, 0);
}

/* Of the first output. x: the error is relative to what the model adds to x, so that a residual
 * stream hides nothing; or NULL. */
static double output_error(const Model *m, const TensorView *x, const TensorView *y)
{
    const SinterTensor *t = &m->out[0];
    uint64_t num = elements(t);
    float *got = need(calloc(num, sizeof *got));
    void *coded = need(calloc(num, 4));
    gpu_download(&m->gpu, coded, (DrvAddress)(uintptr_t)t->data, num * dtype_bytes(t->dtype));
    decode(t->dtype, coded, got, num);
    float *want = make_rows(y, num), *base = x ? make_rows(x, num) : NULL;
    double error = relative_error(got, want, base, num);
    free(got);
    free(coded);
    free(want);
    free(base);
    return error;
}

/* Launches of one run, one by one with events between; runs after it are traced too. */
static int trace_once(Model *m)
{
    SinterError err;
    sinter_session_trace(m->session, 1);
    ok(sinter_run(m->session, m->in, m->num_in, m->out, m->num_out, &err), &err);
    return sinter_num_launch_times(m->session);
}

/* time ----------------------------------------------------------------------------------------- */

typedef struct TimeOptions {
    const char *bench, *scheme;
    int layers, level;
    const char *shape;
    bool residual; /* the error is of what the model adds to x */
    const TensorView *x, *y;
} TimeOptions;

static int by_median(const void *a, const void *b)
{
    double x = ((const GpuTimes *)a)->median, y = ((const GpuTimes *)b)->median;
    return (x > y) - (x < y);
}

/* In three parts, of which the median one counts: a GPU may be slower for a tenth of a second. */
static GpuTimes time_steadily(Model *m)
{
    GpuTimes part[3];
    for (int i = 0; i < 3; i++)
        part[i] = gpu_time(&m->gpu, run_once, m, 100);
    qsort(part, 3, sizeof *part, by_median);
    part[1].samples *= 3;
    return part[1];
}

static void put_json(const Model *m, const TimeOptions *o, int64_t rows, const GpuTimes *t,
                     double burst, int launches, double other, double error)
{
    fprintf(json,
            "{\"bench\": \"%s\", \"who\": \"sinter\", \"scheme\": \"%s\", \"shape\": "
            "\"%s\", \"level\": %d, \"m\": %lld, \"us\": %.3f, \"p95\": %.3f, \"burst_us\": %.3f, "
            "\"nodes\": %.3f, \"samples\": %d, \"inner\": %d, \"other_us\": %.3f, \"launch_us\": [",
            o->bench, o->scheme, o->shape, o->level, (long long)rows, t->median / o->layers,
            t->p95 / o->layers, burst / o->layers, (double)launches / o->layers, t->samples,
            t->inner, other);
    for (int i = 0; i < launches && i < 32; i++)
        fprintf(json, "%s%.2f", i ? ", " : "", sinter_launch_time(m->session, i).duration_us);
    fprintf(json, isfinite(error) ? "], \"error\": %.4e}\n" : "], \"error\": null}\n", error);
}

static void time_bucket(Model *m, const TimeOptions *o, int bucket)
{
    int64_t rows = sinter_num_symbols(m->model) ? sinter_bucket_size(m->model, bucket, 0) : 1;
    sinter_session_trace(m->session, 0);
    bind_bucket(m, bucket);
    set_inputs(m, o->x);
    run_once(m);
    double error = o->y ? output_error(m, o->residual ? o->x : NULL, o->y) : (double)NAN;
    GpuTimes t = time_steadily(m);
    double burst = gpu_burst(&m->gpu, run_once, m);
    int launches = trace_once(m), shown = 0;
    double other = 0; /* launches that are no products */
    for (int i = 0; i < launches; i++) {
        SinterLaunchTime l = sinter_launch_time(m->session, i);
        other += strcmp(l.family, "gemm") ? l.duration_us / o->layers : 0;
    }
    printf("%-4s %-9s %s O%d m=%-5lld %9.2f us/layer  p95 %9.2f  burst %9.2f  %5.2f nodes/layer  "
           "error "
           "%.2e  [",
           o->bench, o->scheme, o->shape, o->level, (long long)rows, t.median / o->layers,
           t.p95 / o->layers, burst / o->layers, (double)launches / o->layers, error);
    for (int i = 0; i < launches && shown < 6; i++, shown++)
        printf("%s%.1f", shown ? " " : "", sinter_launch_time(m->session, i).duration_us);
    printf("%s]\n", shown < launches ? " .." : "");
    fflush(stdout);
    if (json)
        put_json(m, o, rows, &t, burst, launches, other, error);
}

static void cmd_time(Model *m, int argc, char **argv)
{
    TensorFile *x, *y;
    TimeOptions o = {option(argc, argv, "--bench", "ffn"),
                     option(argc, argv, "--scheme", "?"),
                     atoi(option(argc, argv, "--layers", "1")),
                     atoi(option(argc, argv, "--level", "1")),
                     option(argc, argv, "--shape", ""),
                     *option(argc, argv, "--residual", "") == '1',
                     NULL,
                     NULL};
    o.x = open_rows(option(argc, argv, "--x", ""), &x);
    o.y = open_rows(option(argc, argv, "--y", ""), &y);
    if (o.layers < 1)
        die("--layers must be at least 1");
    gpu_open(&m->gpu);
    session_open(m, argv[2]);
    for (int b = 0; b < sinter_num_buckets(m->model); b++)
        time_bucket(m, &o, b);
    tensorfile_close(x);
    tensorfile_close(y);
}

/* trace ---------------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void cmd_trace(Model *m, int argc, char **argv)
{
    int rounds = atoi(option(argc, argv, "--rounds", "15"));
    double code = atof(option(argc, argv, "--bits", "8")) / 8, us[MAX_ROUNDS];
    const char *scheme = option(argc, argv, "--scheme", "?");
    rounds = rounds < 1 ? 1 : rounds > MAX_ROUNDS ? MAX_ROUNDS : rounds;
    gpu_open(&m->gpu);
    session_open(m, argv[2]);
    bind_bucket(m, sinter_num_buckets(m->model) - 1);
    set_inputs(m, NULL);
    int launches = 0;
    for (int r = -3; r < rounds; r++) {
        int num = trace_once(m);
        double sum = launches = 0;
        for (int i = 0; i < num; i++) {
            SinterLaunchTime t = sinter_launch_time(m->session, i);
            bool product = !strcmp(t.family, "gemm");
            sum += product ? 0 : t.duration_us;
            launches += !product;
        }
        us[r < 0 ? 0 : r] = sum;
    }
    if (!launches)
        die("%s launches nothing before its product", argv[2]);
    qsort(us, (size_t)rounds, sizeof *us, by_value);
    double num = (double)elements(&m->in[0]);
    double bytes = num * ((double)dtype_bytes(m->in[0].dtype) + code), median = us[rounds / 2];
    printf("quantise %-14s %lld x %lld  %9.2f us  %6.3f TB/s  %d launches, %.0f MB moved\n", scheme,
           (long long)m->in[0].dim[0], (long long)m->in[0].dim[1], median, bytes / median * 1e-6,
           launches, bytes * 1e-6);
    if (json)
        fprintf(json,
                "{\"bench\": \"quantise\", \"who\": \"sinter\", \"scheme\": \"%s\", \"m\": %lld, "
                "\"k\": %lld, \"us\": %.3f, \"bytes\": %.0f, \"tb_s\": %.4f, \"launches\": %d}\n",
                scheme, (long long)m->in[0].dim[0], (long long)m->in[0].dim[1], median, bytes,
                bytes / median * 1e-6, launches);
}

/* open ----------------------------------------------------------------------------------------- */

#define COPY_BYTES (UINT64_C(1) << 30)

/* GB/s of a large pinned copy to the GPU, median of 5. */
static double copy_bandwidth(const Gpu *gpu)
{
    void *host;
    double us[5];
    gpu_check(gpu, gpu->driver.cuMemHostAlloc(&host, COPY_BYTES, 0), "allocating pinned memory");
    memset(host, 1, COPY_BYTES);
    DrvAddress to = gpu_alloc(gpu, COPY_BYTES);
    for (int i = 0; i < 5; i++) {
        double begin = wall_us();
        gpu_upload(gpu, to, host, COPY_BYTES);
        us[i] = wall_us() - begin;
    }
    qsort(us, 5, sizeof *us, by_value);
    gpu->driver.cuMemFree(to);
    gpu->driver.cuMemFreeHost(host);
    return (double)COPY_BYTES / us[2] * 1e-3;
}

/* The driver's own start is timed apart: every CUDA program pays it. */
static void cmd_open(Model *m, int argc, char **argv)
{
    SinterError err;
    int64_t size[MAX_SYMS];
    double t0 = wall_us();
    gpu_open(&m->gpu);
    double t1 = wall_us();
    session_open(m, argv[2]);
    double t2 = wall_us();
    for (int s = 0; s < sinter_num_symbols(m->model); s++)
        size[s] = sinter_bucket_size(m->model, 0, s);
    for (int i = 0; i < m->num_in + m->num_out; i++) {
        bool is_output = i >= m->num_in;
        SinterTensor *t = is_output ? &m->out[i - m->num_in] : &m->in[i];
        ok(sinter_port_shape(m->model, is_output, is_output ? i - m->num_in : i, size, t, &err),
           &err);
        t->data = need(calloc(elements(t), 4));
    }
    double t3 = wall_us();
    ok(sinter_run(m->session, m->in, m->num_in, m->out, m->num_out, &err), &err);
    double t4 = wall_us();
    double took = (t2 - t1 + t4 - t3) * 1e-6, gb_s = copy_bandwidth(&m->gpu);
    double weights = (double)sinter_weight_bytes(m->model) * 1e-9;
    double copying = weights / (0.8 * gb_s), allowed = copying + 0.5;
    printf("open: %.3f s to the first result (driver %.3f s before), %.3f GB of weights, host to "
           "device %.1f GB/s, at 80 %% of it %.3f s: bar %.3f s %s\n",
           took, (t1 - t0) * 1e-6, weights, gb_s, copying, allowed,
           took <= allowed ? "met" : "MISSED");
    if (json)
        fprintf(json,
                "{\"bench\": \"open\", \"who\": \"sinter\", \"scheme\": \"%s\", \"seconds\": %.4f, "
                "\"driver_seconds\": %.4f, \"weight_gb\": %.4f, \"copy_gb_s\": %.3f, "
                "\"allowed_seconds\": %.4f}\n",
                option(argc, argv, "--scheme", "?"), took, (t1 - t0) * 1e-6, weights, gb_s,
                allowed);
}

/* replay --------------------------------------------------------------------------------------- */

#define REPLAYS 400

static void cmd_replay(Model *m, int argc, char **argv)
{
    double cpu[REPLAYS], wall[REPLAYS];
    gpu_open(&m->gpu);
    session_open(m, argv[2]);
    bind_bucket(m, 0);
    set_inputs(m, NULL);
    for (int i = -20; i < REPLAYS; i++) {
        double c = thread_cpu_us(), w = wall_us();
        run_once(m);
        int at = i < 0 ? 0 : i;
        wall[at] = wall_us() - w;
        cpu[at] = thread_cpu_us() - c;
        gpu_check(&m->gpu, m->gpu.driver.cuStreamSynchronize(m->gpu.stream), "running");
    }
    GpuTimes t = gpu_time(&m->gpu, run_once, m, 100);
    int launches = trace_once(m);
    qsort(cpu, REPLAYS, sizeof *cpu, by_value);
    qsort(wall, REPLAYS, sizeof *wall, by_value);
    printf("replay: %d launches, %.2f us of the caller's processor (p95 %.2f; wall %.2f), %.1f us "
           "on the GPU\n",
           launches, cpu[REPLAYS / 2], cpu[REPLAYS * 95 / 100], wall[REPLAYS / 2], t.median);
    if (json)
        fprintf(json,
                "{\"bench\": \"replay\", \"who\": \"sinter\", \"scheme\": \"%s\", \"launches\": "
                "%d, \"cpu_us\": %.3f, \"cpu_p95_us\": %.3f, \"wall_us\": %.3f, \"gpu_us\": "
                "%.3f}\n",
                option(argc, argv, "--scheme", "?"), launches, cpu[REPLAYS / 2],
                cpu[REPLAYS * 95 / 100], wall[REPLAYS / 2], t.median);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(Model *m, int argc, char **argv);
    } command[] = {
        {"time", cmd_time}, {"trace", cmd_trace}, {"open", cmd_open}, {"replay", cmd_replay}};
    static Model m;
    json_open(option(argc, argv, "--json", ""));
    for (size_t i = 0; i < COUNT_OF(command) && argc >= 3; i++)
        if (!strcmp(argv[1], command[i].name)) {
            command[i].run(&m, argc, argv);
            sinter_session_destroy(m.session);
            sinter_close(m.model);
            return json && fclose(json) ? 1 : 0;
        }
    fputs("usage: model time|trace|open|replay <compiled file> [--NAME=VALUE..]\n", stderr);
    return 2;
}
