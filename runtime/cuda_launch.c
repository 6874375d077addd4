/* The launch list of a bucket: parameters from layouts, launches one by one or captured as a graph,
 * and what sizes the compiled kernels allow. */
#include "runtime/cuda.h"
#include "runtime/nvtx.h"

#include <string.h>

#define MAX_PARAMS (PLAN_MAX_OPERANDS + 2)

typedef struct CudaOperand { /* as kernels/cuda/prelude.cuh declares it */
    DrvAddress data, scale, zero, outer;
} CudaOperand;

typedef struct CudaParams { /* operands, then sizes right behind the last of them */
    union {
        CudaOperand operand[MAX_PARAMS];
        int64_t size[4 * MAX_PARAMS + MAX_SIZES];
    } u;
} CudaParams;

/* Operands ------------------------------------------------------------------------------------- */

typedef struct Binding {
    const CudaSession *s;
    int bucket;
    const int64_t *size;
    const PlanLayout *layout;
} Binding;

static DrvAddress tensor_root(const Binding *b, int32_t root)
{
    const Plan *p = b->s->model->plan;
    const PlanTensor *t = &p->tensor[root];
    switch (t->storage) {
    case STORAGE_CONST: return b->s->model->constant[root];
    case STORAGE_ARENA: return b->s->memory + t->arena_offset[b->bucket];
    case STORAGE_INPUT: return b->s->port[t->index].at;
    case STORAGE_OUTPUT: return b->s->port[p->num_inputs + t->index].at;
    default: break; /* layouts name roots, never parts */
    }
    return 0;
}

static CudaOperand bind_tensor(const Binding *b, int32_t index)
{
    const PlanTensor *t = &b->s->model->plan->tensor[index];
    const PlanLayout *at = &b->layout[index];
    CudaOperand ret = {.data = tensor_root(b, at->root) + at->at};
    if (!t->quantised || t->packed)
        return ret;
    DrvAddress params = tensor_root(b, at->params_root);
    ret.scale = params + at->scale_at;
    if (t->scheme.zero != ZERO_NONE)
        ret.zero = params + at->zero_at;
    if (t->scheme.outer)
        ret.outer = params + at->outer_at;
    return ret;
}

static void bind_launch(const Binding *b, const PlanLaunch *l, CudaParams *ret)
{
    int num = 0;
    int64_t count = 1;
    if (l->family == LAUNCH_MOVE) {
        ret->u.operand[num++] = bind_tensor(b, l->src);
        ret->u.operand[num++] = bind_tensor(b, l->dst);
        for (int i = 0; i < l->move_rank; i++)
            count *= plan_dim_eval(l->move_dim[i], b->size);
    } else {
        for (; num < l->num_operands; num++)
            ret->u.operand[num] = bind_tensor(b, l->operand[num].tensor);
        count = b->layout[l->family == LAUNCH_GEMM ? l->a : l->operand[0].tensor].rows;
    }
    if (l->family == LAUNCH_GEMM) {
        ret->u.operand[num++] = bind_tensor(b, l->a);
        ret->u.operand[num++] = bind_tensor(b, l->w);
    }
    ret->u.size[4 * num] = count;
    plan_launch_sizes(b->s->model->plan, l, b->layout, b->size, &ret->u.size[4 * num]);
}

/* Launches ------------------------------------------------------------------------------------- */

static const DeviceLaunch *device_launch(const CudaSession *s, int launch, int bucket)
{
    const DeviceCode *code = s->model->code;
    return &code->launch[launch * code->num_buckets + bucket];
}

static SinterStatus launch_one(const Binding *b, int launch, DrvStream stream, bool early,
                               SinterError *err)
{
    CudaModel *model = b->s->model;
    const PlanLaunch *l = &model->plan->launch[launch];
    const DeviceLaunch *shape = device_launch(b->s, launch, b->bucket);
    CudaParams params;
    bind_launch(b, l, &params);
    if (!shape->grid)
        return SINTER_OK;
    DrvLaunchAttribute attr = {.id = DRV_LAUNCH_PROGRAMMATIC_STREAM_SERIALIZATION,
                               .value = {.programmatic_stream_serialization = 1}};
    const DrvLaunchConfig config = {.grid_x = (unsigned)shape->grid,
                                    .grid_y = 1,
                                    .grid_z = 1,
                                    .block_x = (unsigned)shape->block,
                                    .block_y = 1,
                                    .block_z = 1,
                                    .shared_bytes = (unsigned)shape->smem,
                                    .stream = stream,
                                    .attrs = &attr,
                                    .num_attrs = early ? 1 : 0};
    void *argument[] = {&params};
    return cuda_check(model,
                      model->driver->cuLaunchKernelEx(
                          &config, model->kernel[shape->kernel].function, argument, NULL),
                      err, "launching \"%s\" (%s)", l->layer, launch_family_name[l->family]);
}

static SinterStatus load_kernels(CudaSession *s, int bucket, SinterError *err)
{
    SinterStatus status = SINTER_OK;
    for (int i = 0; i < s->model->plan->num_launches && !status; i++) {
        int kernel = device_launch(s, i, bucket)->kernel;
        if (kernel >= 0)
            status = cuda_model_kernel(s->model, s->shared, kernel, s->model->plan->launch[i].layer,
                                       err);
    }
    return status;
}

static SinterStatus add_event(CudaSession *s, int index, DrvStream stream, SinterError *err)
{
    CudaModel *model = s->model;
    SinterStatus status = SINTER_OK;
    if (index == s->num_events) {
        status =
            cuda_check(model, model->driver->cuEventCreate(&s->event[index], DRV_EVENT_DEFAULT),
                       err, "creating an event");
        s->num_events += !status;
    }
    if (!status)
        status = cuda_check(model, model->driver->cuEventRecord(s->event[index], stream), err,
                            "recording an event");
    return status;
}

SinterStatus cuda_start(CudaSession *s, int bucket, const int64_t *size, const PlanLayout *layout,
                        DrvStream stream, CudaStart how, SinterError *err)
{
    const Plan *p = s->model->plan;
    const Binding b = {s, bucket, size, layout};
    bool early = false; /* the first follows copies, which it must wait for */
    int events = 0;
    SinterStatus status = load_kernels(s, bucket, err);
    if (!status && how == CUDA_START_TIME)
        status = add_event(s, events++, stream, err);
    for (int i = 0; i < p->num_launches && !status; i++) {
        if (device_launch(s, i, bucket)->kernel < 0)
            continue;
        nvtx_push(p->launch[i].layer);
        status = launch_one(&b, i, stream, early, err);
        nvtx_pop();
        early = how == CUDA_START && s->model->early_launch;
        if (!status && how == CUDA_START_TIME)
            status = add_event(s, events++, stream, err);
        if (!status && how == CUDA_START_STEP)
            status = cuda_check(s->model, s->model->driver->cuStreamSynchronize(stream), err,
                                "running \"%s\" (%s: %s)", p->launch[i].layer,
                                launch_family_name[p->launch[i].family], p->launch[i].absorbed);
    }
    return status;
}

SinterStatus cuda_capture(CudaSession *s, int bucket, SinterError *err)
{
    const Plan *p = s->model->plan;
    const Driver *d = s->model->driver;
    IoError why;
    if (!plan_bind(p, bucket, plan_bucket(p, bucket), s->padded, &why))
        return model_fail(err, SINTER_ERROR_ARGUMENT, "bucket %d cannot be run: %s", bucket,
                          why.text);
    DrvGraph graph = NULL;
    DrvGraphExec exec = NULL;
    SinterStatus status = load_kernels(s, bucket, err); /* may not happen during a capture */
    if (!status)
        status = cuda_check(s->model,
                            d->cuStreamBeginCapture(s->stream, DRV_STREAM_CAPTURE_THREAD_LOCAL),
                            err, "beginning the capture of bucket %d", bucket);
    if (status)
        return status;
    status = cuda_start(s, bucket, plan_bucket(p, bucket), s->padded, s->stream, CUDA_START, err);
    DrvResult ended = d->cuStreamEndCapture(s->stream, &graph);
    if (!status)
        status = cuda_check(s->model, ended, err, "ending the capture of bucket %d", bucket);
    if (!status)
        status = cuda_check(s->model, d->cuGraphInstantiate(&exec, graph, 0), err,
                            "making the graph of bucket %d", bucket);
    if (graph)
        d->cuGraphDestroy(graph);
    if (status)
        return status;
    status = cuda_check(s->model, d->cuGraphUpload(exec, s->stream), err,
                        "uploading the graph of bucket %d", bucket);
    if (status)
        d->cuGraphExecDestroy(exec);
    else
        s->graph[bucket] = exec;
    return status;
}

/* Times ---------------------------------------------------------------------------------------- */

/* Bytes touched and operations done. */
static void launch_work(const Plan *p, const PlanLaunch *l, const PlanLayout *layout,
                        const int64_t *size, double *ret_bytes, double *ret_flops)
{
    *ret_bytes = *ret_flops = 0;
    for (int i = 0; i < l->num_operands; i++)
        *ret_bytes += (double)layout[l->operand[i].tensor].bytes;
    if (l->family == LAUNCH_GEMM) {
        const PlanTensor *w = &p->tensor[l->w];
        CpuPackSpec spec = plan_gemm_spec(&p->tensor[l->a], w, &layout[l->w]);
        *ret_bytes += (double)(w->packed ? w->bytes : layout[l->w].bytes);
        *ret_bytes += (double)layout[l->a].bytes;
        *ret_flops = 2.0 * (double)layout[l->a].rows * (double)spec.n * (double)spec.k;
    } else if (l->family == LAUNCH_TILE) {
        const PlanLayout *shape = &layout[l->operand[0].tensor];
        *ret_flops = (double)shape->rows * (double)shape->cols * l->program.num_steps;
    } else {
        *ret_bytes = 2.0 * format_info[p->tensor[l->src].fmt].bits / 8;
        for (int i = 0; i < l->move_rank; i++)
            *ret_bytes *= (double)plan_dim_eval(l->move_dim[i], size);
    }
}

SinterStatus cuda_times(CudaSession *s, int bucket, const int64_t *size, const PlanLayout *layout,
                        Trace *trace, SinterError *err)
{
    const Plan *p = s->model->plan;
    const Driver *d = s->model->driver;
    SinterStatus status = SINTER_OK;
    double begin_us = clock_us(), total_us = 0;
    int events = 0;
    for (int i = 0; i < p->num_launches && !status; i++) {
        if (device_launch(s, i, bucket)->kernel < 0)
            continue;
        float ms = 0;
        double bytes, flops;
        const PlanLaunch *l = &p->launch[i];
        status =
            cuda_check(s->model, d->cuEventElapsedTime(&ms, s->event[events], s->event[events + 1]),
                       err, "timing \"%s\"", l->layer);
        launch_work(p, l, layout, size, &bytes, &flops);
        if (!status && !trace_add(trace, l, begin_us, bytes, flops))
            status = model_fail(err, SINTER_ERROR_MEMORY, "memory is exhausted");
        if (status)
            break;
        trace->time[trace->num - 1].start_us = total_us;
        trace->time[trace->num - 1].duration_us = 1e3 * (double)ms;
        total_us += 1e3 * (double)ms;
        events++;
    }
    /* the launches ended when this began: their times are counted back from here */
    double ended_us = begin_us - trace->start_us;
    for (int i = trace->num - events; i < trace->num; i++)
        trace->time[i].start_us += ended_us - total_us;
    return status;
}

/* Sizes ---------------------------------------------------------------------------------------- */

/* Quantised tensors and the activations of packed weights keep their columns: what their kernels
 * are compiled for. */
static bool fixed_columns(const Plan *p, int tensor, const PlanLayout *layout,
                          const PlanLayout *padded)
{
    const PlanLayout *a = &layout[tensor], *b = &padded[tensor];
    return !p->tensor[tensor].quantised || (a->cols == b->cols && a->pitch == b->pitch);
}

const char *cuda_sizes_problem(const CudaSession *s, int bucket, const PlanLayout *layout,
                               const PlanLayout *padded)
{
    const Plan *p = s->model->plan;
    for (int i = 0; i < p->num_launches; i++) {
        const PlanLaunch *l = &p->launch[i];
        bool same = true;
        if (device_launch(s, i, bucket)->kernel < 0)
            continue;
        for (int k = 0; k < l->num_operands && same; k++)
            same = fixed_columns(p, l->operand[k].tensor, layout, padded);
        if (same && l->family == LAUNCH_GEMM && p->tensor[l->w].packed)
            same = layout[l->a].pitch == padded[l->a].pitch;
        if (!same)
            return l->layer;
    }
    return NULL;
}
