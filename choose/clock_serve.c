/* The process that times a compiled file on a GPU; see clock.h. Nothing is freed but what a bucket
 * takes: the process ends soon. */
#include "choose/clock_talk.h"
#include "choose/lab.h"
#include "runtime/cuda.h"
#include "runtime/device.h"
#include "runtime/made_up.h"
#include "runtime/sinter.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WARM_US     1e5   /* of replays before the first, for the clocks */
#define REPLAY_US   20000 /* of all replays of a bucket */
#define MIN_REPLAYS 9
#define MAX_REPLAYS 60
#define TRACES      9 /* runs launch by launch */
#define MOST_PORTS  64
#define L2_SIZES    3 /* written between two replays */

typedef struct Bench {
    const Driver *d;
    DrvContext context;
    DrvStream stream;
    DrvEvent begin, end;
    DrvAddress flushed;
    uint64_t flush_bytes;
    bool warm;
    SinterModel *model;
    SinterSession *session;
    int num_in, num_out;
    SinterTensor in[MOST_PORTS], out[MOST_PORTS];
    char *text; /* of the report at hand, ClockReport.text */
} Bench;

static bool fail(Bench *b, const char *fmt, ...) PRINTF_LIKE(2, 3);
static bool fail(Bench *b, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(b->text, sizeof(((ClockReport *)0)->text), fmt, args);
    va_end(args);
    return false;
}

static bool check(Bench *b, DrvResult result, const char *what)
{
    const char *name = NULL;
    if (result == DRV_SUCCESS)
        return true;
    b->d->cuGetErrorName(result, &name);
    return fail(b, "%s: %s", what, name ? name : "an unknown error");
}

static bool run_check(Bench *b, SinterStatus status, const SinterError *err)
{
    return status == SINTER_OK || fail(b, "%s", err->text);
}

/* The GPU -------------------------------------------------------------------------------------- */

static bool attribute(Bench *b, int which, DrvDevice device, int *ret)
{
    return check(b, b->d->cuDeviceGetAttribute(ret, which, device), "asking the GPU");
}

static bool look(Bench *b, DrvDevice device, ClockGpu *ret)
{
    int major = 0, minor = 0, l2 = 0;
    size_t free_bytes = 0, total = 0;
    bool ok = attribute(b, DRV_DEVICE_COMPUTE_CAPABILITY_MAJOR, device, &major) &&
              attribute(b, DRV_DEVICE_COMPUTE_CAPABILITY_MINOR, device, &minor) &&
              attribute(b, DRV_DEVICE_MULTIPROCESSOR_COUNT, device, &ret->processors) &&
              attribute(b, DRV_DEVICE_L2_CACHE_SIZE, device, &l2) &&
              check(b, b->d->cuDeviceGetName(ret->name, (int)sizeof ret->name, device),
                    "asking the GPU") &&
              check(b, b->d->cuMemGetInfo(&free_bytes, &total), "asking the GPU");
    ret->capability = 10 * major + minor;
    ret->memory = total;
    ret->driver = b->d->version;
    b->flush_bytes = L2_SIZES * (uint64_t)l2;
    return ok;
}

static bool open_gpu(Bench *b, int ordinal, ClockGpu *ret)
{
    SinterStatus status;
    SinterError err;
    DrvDevice device;
    int num = 0;
    b->d = driver_get(&status, &err);
    if (!b->d)
        return fail(b, "%s", err.text);
    if (!check(b, b->d->cuDeviceGetCount(&num), "counting the machine's GPUs"))
        return false;
    if (ordinal >= num)
        return fail(b, "there is no cuda:%d; the driver knows %d GPUs here", ordinal, num);
    return check(b, b->d->cuDeviceGet(&device, ordinal), "opening the GPU") &&
           check(b, b->d->cuDevicePrimaryCtxRetain(&b->context, device), "starting the GPU") &&
           check(b, b->d->cuCtxPushCurrent(b->context), "entering the GPU") &&
           look(b, device, ret) &&
           check(b, b->d->cuStreamCreate(&b->stream, DRV_STREAM_NON_BLOCKING),
                 "creating a stream") &&
           check(b, b->d->cuEventCreate(&b->begin, DRV_EVENT_DEFAULT), "creating an event") &&
           check(b, b->d->cuEventCreate(&b->end, DRV_EVENT_DEFAULT), "creating an event");
}

static bool open_file(Bench *b, int ordinal, int job)
{
    char path[64], device[16];
    SinterError err;
    snprintf(path, sizeof path, "/proc/self/fd/%d", job);
    snprintf(device, sizeof device, "cuda:%d", ordinal);
    const SinterSessionOptions options = {.device = device};
    if (!run_check(b, sinter_open(path, &b->model, &err), &err) ||
        !run_check(b, sinter_session_create(b->model, &options, &b->session, &err), &err))
        return false;
    b->num_in = sinter_num_inputs(b->model);
    b->num_out = sinter_num_outputs(b->model);
    if (b->num_in > MOST_PORTS || b->num_out > MOST_PORTS)
        return fail(b, "more than %d inputs or outputs are not timed", MOST_PORTS);
    return b->flush_bytes == 0 ||
           check(b, b->d->cuMemAlloc(&b->flushed, b->flush_bytes), "allocating");
}

/* Runs ----------------------------------------------------------------------------------------- */

/* Shapes of the bucket, and the session's own memory, so that runs copy nothing. */
static bool ports(Bench *b, const int64_t *size)
{
    SinterError err;
    uint64_t bytes;
    for (int i = 0; i < b->num_in + b->num_out; i++) {
        int out = i >= b->num_in, index = out ? i - b->num_in : i;
        SinterTensor *t = out ? &b->out[index] : &b->in[index];
        if (!run_check(b, sinter_port_shape(b->model, out, index, size, t, &err), &err) ||
            !run_check(b, sinter_port_memory(b->session, out, index, &t->data, &bytes, &err), &err))
            return false;
    }
    return true;
}

/* A first run, over inputs that are copied there. */
static bool fill_inputs(Bench *b)
{
    SinterError err;
    SinterTensor in[MOST_PORTS];
    bool ok = true;
    memcpy(in, b->in, sizeof in);
    for (int i = 0; i < b->num_in; i++) {
        in[i].data = made_up(format_of_dtype(in[i].dtype), (uint64_t)tensor_count(&in[i]));
        ok = ok && in[i].data;
    }
    if (!ok)
        fail(b, "memory is exhausted");
    ok = ok && run_check(b, sinter_run(b->session, in, b->num_in, b->out, b->num_out, &err), &err);
    for (int i = 0; i < b->num_in; i++)
        free(in[i].data);
    return ok;
}

static bool flush(Bench *b)
{
    return b->flush_bytes == 0 ||
           check(b, b->d->cuMemsetD8Async(b->flushed, 0, b->flush_bytes, b->stream), "clearing");
}

static bool replay(Bench *b, double *ret_us)
{
    SinterError err;
    float ms = 0;
    bool ok =
        flush(b) && check(b, b->d->cuEventRecord(b->begin, b->stream), "running") &&
        run_check(
            b, sinter_run_async(b->session, b->in, b->num_in, b->out, b->num_out, b->stream, &err),
            &err) &&
        check(b, b->d->cuEventRecord(b->end, b->stream), "running") &&
        check(b, b->d->cuEventSynchronize(b->end), "running") &&
        check(b, b->d->cuEventElapsedTime(&ms, b->begin, b->end), "running");
    *ret_us = 1e3 * (double)ms;
    return ok;
}

/* The median of replays. Once before them: an idle GPU's clocks are low. */
static bool time_graph(Bench *b, double *ret)
{
    double us[MAX_REPLAYS], all = 0, once = 0;
    if (!replay(b, &once)) /* makes the graph */
        return false;
    for (int i = 0; !b->warm && all < WARM_US && i < 1000; i++, all += once)
        if (!replay(b, &once))
            return false;
    b->warm = true;
    if (!replay(b, &once))
        return false;
    int num = (int)(REPLAY_US / (once + 1));
    num = num < MIN_REPLAYS ? MIN_REPLAYS : num > MAX_REPLAYS ? MAX_REPLAYS : num;
    for (int i = 0; i < num; i++)
        if (!replay(b, &us[i]))
            return false;
    qsort(us, (size_t)num, sizeof *us, doubles_order);
    *ret = us[num / 2];
    return true;
}

/* The median of each launch, one after the other; malloc'ed. */
static double *time_launches(Bench *b, int *ret_num)
{
    SinterError err;
    double *us = NULL, *ret = NULL;
    bool ok = true;
    sinter_session_trace(b->session, 1);
    for (int run = 0; run < TRACES && ok; run++) {
        ok = flush(b) && check(b, b->d->cuStreamSynchronize(b->stream), "clearing") &&
             run_check(b, sinter_run(b->session, b->in, b->num_in, b->out, b->num_out, &err), &err);
        int num = *ret_num = sinter_num_launch_times(b->session);
        if (ok && !us) {
            us = calloc((size_t)num * TRACES + 1, sizeof *us);
            ret = calloc((size_t)num + 1, sizeof *ret);
            ok = (us && ret) || fail(b, "memory is exhausted");
        }
        for (int i = 0; i < num && ok; i++)
            us[i * TRACES + run] = sinter_launch_time(b->session, i).duration_us;
    }
    sinter_session_trace(b->session, 0);
    for (int i = 0; i < *ret_num && ok; i++) {
        qsort(us + (size_t)i * TRACES, TRACES, sizeof *us, doubles_order);
        ret[i] = us[i * TRACES + TRACES / 2];
    }
    free(us);
    if (ok)
        return ret;
    free(ret);
    return NULL;
}

/* Times one bucket; the launches' times, NULL: why stands in the text. */
static double *time_bucket(Bench *b, int bucket, ClockReport *ret)
{
    int64_t size[MOST_PORTS] = {0};
    int num = b->model ? sinter_num_symbols(b->model) : -1;
    if (num < 0 || num > MOST_PORTS) {
        fail(b, "there is nothing that could be timed");
        return NULL;
    }
    for (int i = 0; i < num; i++)
        size[i] = sinter_bucket_size(b->model, bucket, i);
    return ports(b, size) && fill_inputs(b) && time_graph(b, &ret->graph_us)
               ? time_launches(b, &ret->num)
               : NULL;
}

_Noreturn void clock_serve(const ChildOrder *order)
{
    Bench b = {0};
    ClockTask task;
    bool ok = true;
    while (ok && child_wait(order->socket, &task, sizeof task)) {
        ClockReport report = {.num = 0};
        double *launch = NULL;
        b.text = report.text;
        if (task.bucket >= 0)
            launch = time_bucket(&b, task.bucket, &report);
        else if (open_gpu(&b, task.ordinal, &report.gpu) && order->job >= 0)
            open_file(&b, task.ordinal, order->job);
        ok = child_send(order->socket, &report, sizeof report) && !report.text[0] &&
             (!launch || child_send(order->socket, launch, (size_t)report.num * sizeof *launch));
        free(launch);
    }
    _exit(0); /* no handlers of the parent's */
}
