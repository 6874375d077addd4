/* CUDA sessions: one block of memory for the arena and the ports, one graph a bucket, and runs.
 *
 * Where rows do not depend on each other, a run pads its rows with zeros to those of the bucket and
 * launches the bucket's graph. Else rows that are not there would count, and the launch list runs
 * with the actual sizes, outside of the graph. */
#include "runtime/cuda.h"
#include "runtime/nvtx.h"

#include <stdlib.h>
#include <string.h>

#define MEMORY_ALIGN 256

/* Creating ------------------------------------------------------------------------------------- */

static void session_free(CudaSession *s)
{
    free(s->port);
    free(s->graph);
    free(s->layout);
    free(s->padded);
    free(s->size);
    free(s->event);
    cuda_list_free(s);
    free(s);
}

/* Errors do not matter here: what is left of a lost GPU goes with the process. */
static void cuda_destroy(void *state)
{
    CudaSession *s = state;
    if (!s)
        return;
    const Driver *d = s->model->driver;
    bool entered = !cuda_enter(s->model, NULL);
    if (s->pending)
        d->cuEventSynchronize(s->done);
    if (s->stream)
        d->cuStreamSynchronize(s->stream);
    for (int i = 0; i < s->model->plan->num_buckets; i++)
        if (s->graph[i])
            d->cuGraphExecDestroy(s->graph[i]);
    for (int i = 0; i < s->num_events; i++)
        d->cuEventDestroy(s->event[i]);
    if (s->done)
        d->cuEventDestroy(s->done);
    if (s->memory)
        d->cuMemFree(s->memory);
    if (s->stream)
        d->cuStreamDestroy(s->stream);
    if (entered)
        cuda_leave(s->model);
    session_free(s);
}

static CudaSession *session_alloc(const Plan *p)
{
    CudaSession *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    size_t ports = (size_t)p->num_inputs + (size_t)p->num_outputs;
    s->port = calloc(ports + 1, sizeof *s->port);
    s->graph = calloc((size_t)p->num_buckets + 1, sizeof *s->graph);
    s->layout = calloc((size_t)p->num_tensors + 1, sizeof *s->layout);
    s->padded = calloc((size_t)p->num_tensors + 1, sizeof *s->padded);
    s->size = calloc((size_t)p->num_syms + 1, sizeof *s->size);
    s->event = calloc((size_t)p->num_launches + 2, sizeof *s->event);
    if (s->port && s->graph && s->layout && s->padded && s->size && s->event)
        return s;
    session_free(s);
    return NULL;
}

static const PlanTensor *port_tensor(const Plan *p, int index)
{
    return &p->tensor[index < p->num_inputs ? p->input[index].tensor
                                            : p->output[index - p->num_inputs].tensor];
}

/* The arena of the largest bucket, each port at its largest, the workspace; offsets for now. */
static bool lay_out(CudaSession *s)
{
    const Plan *p = s->model->plan;
    uint64_t at = 0;
    for (int i = 0; i < p->num_buckets; i++)
        at = p->arena_bytes[i] > at ? p->arena_bytes[i] : at;
    for (int i = 0; i < p->num_inputs + p->num_outputs; i++) {
        PlanLayout l;
        if (!checked_align(at, MEMORY_ALIGN, &at))
            return false;
        s->port[i].at = at;
        for (int b = 0; b < p->num_buckets; b++) {
            if (!plan_tensor_layout(port_tensor(p, i), plan_bucket(p, b), &l))
                return false;
            s->port[i].size = l.bytes > s->port[i].size ? l.bytes : s->port[i].size;
        }
        if (!checked_add(at, s->port[i].size, &at))
            return false;
    }
    s->workspace = (at + MEMORY_ALIGN - 1) / MEMORY_ALIGN * MEMORY_ALIGN;
    return checked_add(s->workspace, device_workspace(s->model->code), &s->memory_bytes);
}

static SinterStatus fill_session(CudaSession *s, const DeviceOpen *open, SinterError *err)
{
    const Plan *p = s->model->plan;
    const Driver *d = s->model->driver;
    if (!lay_out(s))
        return model_fail(err, SINTER_ERROR_MEMORY, "the sizes of this model overflow");
    SinterStatus status = cuda_alloc(s->model, s->memory_bytes, "activations", &s->memory, err);
    for (int i = 0; i < p->num_inputs + p->num_outputs; i++)
        s->port[i].at += s->memory;
    s->workspace += s->memory;
    if (!status)
        status = cuda_check(s->model, d->cuStreamCreate(&s->stream, DRV_STREAM_NON_BLOCKING), err,
                            "creating a stream");
    if (!status)
        status = cuda_check(s->model, d->cuEventCreate(&s->done, DRV_EVENT_DISABLE_TIMING), err,
                            "creating an event");
    if (!status) /* counters in the workspace start at zero */
        status = cuda_check(s->model, d->cuMemsetD8Async(s->memory, 0, s->memory_bytes, s->stream),
                            err, "clearing activations");
    if (!status)
        status =
            cuda_check(s->model, d->cuStreamSynchronize(s->stream), err, "clearing activations");
    for (int i = 0; i < p->num_buckets && !status && open->prepare; i++)
        status = cuda_capture(s, i, err);
    return status;
}

static SinterStatus cuda_create(const DeviceOpen *open, void **ret_state, SinterError *err)
{
    if (!open->code)
        return model_fail(err, SINTER_ERROR_UNSUPPORTED,
                          "the compiled file holds a plan for GPUs but no code; compile it again");
    CudaModel *model;
    SinterStatus status = cuda_model_get(open, &model, err);
    if (status)
        return status;
    CudaSession *s = session_alloc(open->plan);
    if (!s)
        return model_fail(err, SINTER_ERROR_MEMORY, "memory is exhausted");
    const char *step = getenv("SINTER_SYNC");
    s->step = step && !strcmp(step, "1");
    s->model = model;
    s->shared = open->shared;
    s->bucket = -1;
    status = cuda_enter(model, err);
    if (!status) {
        status = fill_session(s, open, err);
        cuda_leave(model);
    }
    if (status)
        cuda_destroy(s);
    else
        *ret_state = s;
    return status;
}

/* Runs ----------------------------------------------------------------------------------------- */

typedef struct Run {
    CudaSession *s;
    const DeviceRun *args;
    DrvStream stream;
    SinterError *err;
    bool is_full, is_padded; /* the bucket's sizes; fewer rows, which may be padded */
} Run;

static bool on_device(const CudaSession *s, const void *address)
{
    int type = 0, attribute = DRV_POINTER_MEMORY_TYPE;
    void *value = &type;
    /* the plural one knows no wrong address: memory that the driver has not seen has type 0 */
    DrvResult result = s->model->driver->cuPointerGetAttributes(1, &attribute, &value,
                                                                (DrvAddress)(uintptr_t)address);
    return result == DRV_SUCCESS && type != DRV_MEMORY_HOST && type != 0;
}

static SinterStatus copy_in(const Run *r, int port, uint64_t bytes)
{
    CudaModel *model = r->s->model;
    const CudaPort *to = &r->s->port[port];
    const void *from = r->args->input[port];
    const char *name = model->plan->input[port].name;
    DrvAddress address = (DrvAddress)(uintptr_t)from;
    if (!bytes || address == to->at)
        return SINTER_OK;
    DrvResult result = on_device(r->s, from)
                           ? model->driver->cuMemcpyAsync(to->at, address, bytes, r->stream)
                           : model->driver->cuMemcpyHtoDAsync(to->at, from, bytes, r->stream);
    return cuda_check(model, result, r->err, "copying input \"%s\"", name);
}

static SinterStatus copy_out(const Run *r, int port, uint64_t bytes)
{
    CudaModel *model = r->s->model;
    const CudaPort *from = &r->s->port[model->plan->num_inputs + port];
    void *to = r->args->output[port];
    const char *name = model->plan->output[port].name;
    DrvAddress address = (DrvAddress)(uintptr_t)to;
    if (!bytes || address == from->at)
        return SINTER_OK;
    DrvResult result = on_device(r->s, to)
                           ? model->driver->cuMemcpyAsync(address, from->at, bytes, r->stream)
                           : model->driver->cuMemcpyDtoHAsync(to, from->at, bytes, r->stream);
    return cuda_check(model, result, r->err, "copying output \"%s\"", name);
}

/* Bytes of a port for these sizes; the session has accepted them. */
static uint64_t port_bytes(const Plan *p, int index, const int64_t *size)
{
    PlanLayout l;
    return plan_tensor_layout(port_tensor(p, index), size, &l) ? l.bytes : 0;
}

static SinterStatus copy_inputs(const Run *r)
{
    CudaModel *model = r->s->model;
    const Plan *p = model->plan;
    const int64_t *full = plan_bucket(p, r->args->bucket);
    SinterStatus status = SINTER_OK;
    for (int i = 0; i < p->num_inputs && !status; i++) {
        uint64_t bytes = port_bytes(p, i, r->args->size);
        status = copy_in(r, i, bytes);
        if (status || !r->is_padded)
            continue;
        uint64_t all = port_bytes(p, i, full);
        if (all > bytes)
            status = cuda_check(
                model,
                model->driver->cuMemsetD8Async(r->s->port[i].at + bytes, 0, all - bytes, r->stream),
                r->err, "padding input \"%s\"", p->input[i].name);
    }
    return status;
}

static SinterStatus copy_outputs(const Run *r)
{
    const Plan *p = r->s->model->plan;
    SinterStatus status = SINTER_OK;
    for (int i = 0; i < p->num_outputs && !status; i++)
        status = copy_out(r, i, port_bytes(p, p->num_inputs + i, r->args->size));
    return status;
}

/* Layouts for launches outside of graphs: of the bucket's sizes where rows are padded. */
static SinterStatus bind_sizes(const Run *r, const int64_t *size)
{
    CudaSession *s = r->s;
    const Plan *p = s->model->plan;
    int bucket = r->args->bucket;
    size_t size_bytes = (size_t)p->num_syms * sizeof *s->size;
    if (s->bucket == bucket && (!size_bytes || !memcmp(s->size, size, size_bytes)))
        return SINTER_OK;
    IoError why;
    s->bucket = -1;
    if (!plan_bind(p, bucket, size, s->layout, &why) ||
        !plan_bind(p, bucket, plan_bucket(p, bucket), s->padded, &why))
        return model_sizes_fail(p, size, why.text, r->err);
    const char *layer = cuda_sizes_problem(s, bucket, s->layout, s->padded);
    if (layer)
        return model_fail(r->err, SINTER_ERROR_UNSUPPORTED,
                          "on %s, \"%s\" can only be run with the sizes of a bucket; add these "
                          "sizes to the model's dim lines, or run on the device cpu",
                          s->model->name, layer);
    SinterStatus status = cuda_bind_list(s, bucket, size, s->layout, r->err);
    if (status)
        return status;
    s->bucket = bucket;
    if (size_bytes)
        memcpy(s->size, size, size_bytes);
    return SINTER_OK;
}

/* "sinter T = 16": a range by the bucket's sizes. */
static void push_bucket(const Plan *p, int bucket)
{
    char name[128] = "sinter";
    size_t at = strlen(name);
    for (int i = 0; i < p->num_syms && at < sizeof name && nvtx_is_heard(); i++)
        at += (size_t)snprintf(name + at, sizeof name - at, "%s %s = %lld", i ? "," : "",
                               p->sym[i].name, (long long)plan_bucket(p, bucket)[i]);
    nvtx_push(name);
}

static SinterStatus start_launches(const Run *r)
{
    CudaSession *s = r->s;
    int bucket = r->args->bucket;
    const int64_t *size = r->is_padded ? plan_bucket(s->model->plan, bucket) : r->args->size;
    bool apart = s->step || r->args->trace->on || !(r->is_full || r->is_padded);
    SinterStatus status = SINTER_OK;
    if (apart) {
        status = bind_sizes(r, size);
        if (status)
            return status;
        CudaStart how = s->step              ? CUDA_START_STEP
                        : r->args->trace->on ? CUDA_START_TIME
                                             : CUDA_START;
        return cuda_start(s, r->stream, how, r->err);
    }
    if (!s->graph[bucket]) {
        s->bucket = -1; /* the capture binds layouts of its own */
        status = cuda_capture(s, bucket, r->err);
    }
    if (status)
        return status;
    push_bucket(s->model->plan, bucket);
    status = cuda_check(s->model, s->model->driver->cuGraphLaunch(s->graph[bucket], r->stream),
                        r->err, "launching bucket %d", bucket);
    nvtx_pop();
    return status;
}

static SinterStatus run_on(Run *r)
{
    SinterStatus status = copy_inputs(r);
    if (!status)
        status = start_launches(r);
    if (!status)
        status = copy_outputs(r);
    return status;
}

/* Waits for the run and collects its times. After an error too: nothing may write to the caller's
 * memory any more. */
static SinterStatus finish(const Run *r, SinterStatus so_far)
{
    CudaSession *s = r->s;
    SinterStatus status = cuda_check(s->model, s->model->driver->cuStreamSynchronize(r->stream),
                                     so_far ? NULL : r->err, "running");
    if (so_far)
        return so_far;
    if (!status && r->args->trace->on && !s->step)
        status = cuda_times(s, s->size, s->layout, r->args->trace, r->err);
    return status;
}

/* Runs of one session follow each other, whatever streams they are given. (Streams cannot be told
 * apart: a new one may get the address of one that is gone.) */
static SinterStatus wait_for_latest(CudaSession *s, DrvStream stream, SinterError *err)
{
    if (!s->pending)
        return SINTER_OK;
    return cuda_check(s->model, s->model->driver->cuStreamWaitEvent(stream, s->done, 0), err,
                      "waiting for the run before");
}

static SinterStatus run_current(Run *r)
{
    CudaSession *s = r->s;
    const Driver *d = s->model->driver;
    SinterStatus status = wait_for_latest(s, r->stream, r->err);
    if (status)
        return status;
    status = run_on(r);
    if (status || !r->args->is_async || r->args->trace->on) {
        s->pending = false;
        return finish(r, status);
    }
    s->pending = true;
    return cuda_check(s->model, d->cuEventRecord(s->done, r->stream), r->err, "recording an event");
}

static SinterStatus cuda_run(void *state, const DeviceRun *run, SinterError *err)
{
    CudaSession *s = state;
    const Plan *p = s->model->plan;
    const int64_t *full = plan_bucket(p, run->bucket);
    if (cuda_is_dead(s->model))
        return cuda_dead(s->model, err);
    Run r = {.s = s,
             .args = run,
             .stream = run->is_async ? (DrvStream)run->stream : s->stream,
             .err = err,
             .is_full = true,
             .is_padded = p->rows_independent};
    for (int i = 0; i < p->num_syms; i++) {
        bool same = run->size[i] == full[i];
        r.is_full = r.is_full && same;
        r.is_padded = r.is_padded && (i == 0 || same);
    }
    r.is_padded = r.is_padded && !r.is_full;
    SinterStatus status = cuda_enter(s->model, err);
    if (status)
        return status;
    status = run_current(&r);
    cuda_leave(s->model);
    return status;
}

static uint64_t cuda_bytes(const void *state)
{
    const CudaSession *s = state;
    return s->memory_bytes;
}

static void cuda_port(const void *state, bool is_output, int index, void **ret_address,
                      uint64_t *ret_bytes)
{
    const CudaSession *s = state;
    const CudaPort *port = &s->port[is_output ? s->model->plan->num_inputs + index : index];
    *ret_address = (void *)(uintptr_t)port->at;
    *ret_bytes = port->size;
}

static SinterStatus cuda_wait(void *state, SinterError *err)
{
    CudaSession *s = state;
    if (cuda_is_dead(s->model))
        return cuda_dead(s->model, err);
    SinterStatus status = s->pending ? cuda_enter(s->model, err) : SINTER_OK;
    if (status || !s->pending)
        return status;
    status = cuda_check(s->model, s->model->driver->cuEventSynchronize(s->done), err, "running");
    s->pending = status != SINTER_OK;
    cuda_leave(s->model);
    return status;
}

static SinterStatus cuda_memory(void *state, uint64_t bytes, void **ret_address, void **ret_owner,
                                SinterError *err)
{
    CudaModel *model = ((CudaSession *)state)->model;
    DrvAddress address = 0;
    SinterStatus status = cuda_is_dead(model) ? cuda_dead(model, err) : cuda_enter(model, err);
    if (status)
        return status;
    status = cuda_alloc(model, bytes, "a tensor", &address, err);
    cuda_leave(model);
    *ret_address = (void *)(uintptr_t)address;
    *ret_owner = model;
    return status;
}

static void cuda_memory_free(void *owner, void *address)
{
    CudaModel *model = owner;
    if (cuda_enter(model, NULL))
        return; /* the GPU is lost, and its memory with it */
    model->driver->cuMemFree((DrvAddress)(uintptr_t)address);
    cuda_leave(model);
}

const Device device_cuda = {.name = "cuda",
                            .choose = cuda_choose_target,
                            .create = cuda_create,
                            .destroy = cuda_destroy,
                            .run = cuda_run,
                            .wait = cuda_wait,
                            .bytes = cuda_bytes,
                            .port = cuda_port,
                            .close = cuda_model_close,
                            .alloc = cuda_memory,
                            .free = cuda_memory_free};
