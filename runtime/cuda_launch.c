/* A launch, bound to addresses and sizes, and started: cuda_bind and cuda_launch, for sessions and
 * for everything else that launches. Then the launch list of a bucket, one by one or captured as a
 * graph, and what sizes the compiled kernels allow. */
#include "runtime/cuda.h"
#include "runtime/nvtx.h"

#include <stdlib.h>
#include <string.h>

typedef struct CudaOperand { /* as kernels/cuda/prelude.cuh declares it */
    DrvAddress data, scale, zero, outer;
} CudaOperand;
typedef struct CudaAhead { /* as kernels/cuda/ahead.cuh declares it */
    DrvAddress data;
    int64_t stride;
    int32_t runs, bytes;
    int64_t alone;
} CudaAhead;
_Static_assert(sizeof(CudaOperand) == DEVICE_OPERAND_BYTES &&
                   sizeof(CudaAhead) == DEVICE_OPERAND_BYTES &&
                   sizeof(DrvTensorMap) == DEVICE_MAP_BYTES,
               "parameters");

/* Binding -------------------------------------------------------------------------------------- */

static CudaOperand bind_tensor(const CudaPlace *p, int32_t index)
{
    const PlanTensor *t = &p->plan->tensor[index];
    const PlanLayout *at = &p->layout[index];
    CudaOperand ret = {.data = p->root[at->root] + at->at};
    if (!t->quantised || t->packed)
        return ret;
    DrvAddress params = p->root[at->params_root];
    ret.scale = params + at->scale_at;
    if (t->scheme.zero != ZERO_NONE)
        ret.zero = params + at->zero_at;
    if (t->scheme.outer)
        ret.outer = params + at->outer_at;
    return ret;
}

/* The tensor behind a place of the parameters. */
static int32_t parameter_tensor(const PlanLaunch *l, int at)
{
    if (l->family == LAUNCH_MOVE || l->family == LAUNCH_DECODE)
        return at ? l->dst : l->src;
    if (at < l->num_operands)
        return l->operand[at].tensor;
    bool gemm = l->family == LAUNCH_GEMM;
    return gemm && at == l->num_operands       ? l->a
           : gemm && at == l->num_operands + 1 ? l->w
                                               : l->ends;
}

static int64_t launch_count(const CudaPlace *p, const PlanLaunch *l)
{
    int64_t count = 1;
    if (l->family == LAUNCH_DECODE)
        return count;
    if (l->family != LAUNCH_MOVE)
        return p->layout[plan_launch_tensor(l)].rows;
    for (int i = 0; i < l->move_rank; i++)
        count *= plan_dim_eval(l->move_dim[i], p->size);
    return count;
}

/* The grid of a tensor's scales; false: it has none, or one that no map is of. */
static bool scale_grid(const CudaPlace *p, int32_t tensor, PlanLayout *ret, DrvAddress *ret_data)
{
    const PlanTensor *t = &p->plan->tensor[tensor];
    const PlanLayout *at = &p->layout[tensor];
    if (!t->quantised || t->packed)
        return false;
    int64_t pitch = 4 * scheme_col_blocks(&t->scheme, at->cols);
    *ret = (PlanLayout){
        .rows = scheme_row_blocks(&t->scheme, at->rows), .cols = pitch / 4, .pitch = pitch};
    ret->bytes = (uint64_t)(ret->rows * pitch);
    *ret_data = bind_tensor(p, tensor).scale;
    return pitch % 16 == 0;
}

/* The whole of the matrix, which must lie in its tensor: the GPU reads what the map says. */
static DrvResult encode_map(const CudaPlace *p, const PlanLaunch *l, const DeviceMap *m,
                            DrvTensorMap *ret)
{
    static const int type[] = {
        [1] = DRV_TENSOR_UINT8, [2] = DRV_TENSOR_UINT16, [4] = DRV_TENSOR_UINT32};
    int32_t tensor = parameter_tensor(l, m->operand);
    const PlanTensor *t = &p->plan->tensor[tensor];
    const PlanLayout *at = &p->layout[tensor];
    PlanLayout grid;
    DrvAddress data = bind_tensor(p, tensor).data;
    if (m->scales) {
        if (!scale_grid(p, tensor, &grid, &data))
            return DRV_ERROR_INVALID_VALUE;
        at = &grid;
    }
    int64_t element = m->element_bytes;
    int64_t pitch = m->pitch ? m->pitch : at->pitch, rows = m->rows ? m->rows : at->rows;
    int64_t bits = m->scales ? 32 : t->quantised ? 8 : format_info[t->fmt].bits;
    int64_t bytes = m->bytes ? m->bytes : at->cols * bits / 8;
    const uint64_t dim[] = {(uint64_t)(bytes / element), (uint64_t)rows, (uint64_t)m->planes};
    const uint64_t stride[] = {(uint64_t)pitch, (uint64_t)m->plane_pitch};
    const unsigned box[] = {(unsigned)(m->box_bytes / element), (unsigned)m->box_rows, 1};
    const unsigned step[] = {1, 1, 1};
    int64_t planes = m->planes ? m->planes : 1, end = (int64_t)(t->packed ? t->bytes : at->bytes);
    if (rows < 1 || bytes < 1 || rows > LIMIT_DIM || (rows > 1 && pitch > end) ||
        m->plane_pitch > end || planes > LIMIT_DIM ||
        (planes - 1) * m->plane_pitch + (rows - 1) * pitch + bytes > end)
        return DRV_ERROR_INVALID_VALUE;
    return p->driver->cuTensorMapEncodeTiled(
        ret, type[element], m->planes ? 3 : 2, (void *)(uintptr_t)data, dim, stride, box, step,
        DRV_TENSOR_PLAIN,
        m->swizzle == 128 ? DRV_TENSOR_SWIZZLE_128 : DRV_TENSOR_SWIZZLE_0 + m->swizzle / 32,
        DRV_TENSOR_L2_256, DRV_TENSOR_ZEROS);
}

static size_t align_maps(size_t at)
{
    return (at + DEVICE_MAP_ALIGN - 1) / DEVICE_MAP_ALIGN * DEVICE_MAP_ALIGN;
}

size_t cuda_params_bytes(const PlanLaunch *l)
{
    return align_maps((size_t)(plan_launch_parameters(l) + 2) * sizeof(CudaOperand) +
                      MAX_SIZES * sizeof(int64_t)) +
           DEVICE_MAX_MAPS * sizeof(DrvTensorMap);
}

/* Blocks that stay, so many on each processor; whole clusters. */
static int64_t grid_of(const DeviceLaunch *d, int processors)
{
    int64_t most = (int64_t)d->per_processor * processors;
    if (!most || d->grid <= most)
        return d->grid;
    return d->cluster > 1 ? most / d->cluster * d->cluster : most;
}

DrvResult cuda_bind(const CudaPlace *p, const PlanLaunch *l, const DeviceLaunch *d, void *params,
                    CudaLaunch *ret)
{
    CudaOperand *operand = params;
    int num = plan_launch_parameters(l);
    for (int i = 0; i < num; i++)
        operand[i] = bind_tensor(p, parameter_tensor(l, i));
    if (d->workspace)
        operand[num++] = (CudaOperand){.data = p->workspace};
    CudaAhead *ahead = d->looks_ahead ? (CudaAhead *)(void *)(operand + num++) : NULL;
    if (ahead)
        *ahead = (CudaAhead){0};
    int64_t *size = (int64_t *)(void *)(operand + num);
    size[0] = launch_count(p, l);
    size += plan_launch_sizes(p->plan, l, p->layout, p->size, size);
    size_t at = align_maps((size_t)((char *)size - (char *)params));
    *ret = (CudaLaunch){
        .grid = {(unsigned)grid_of(d, p->processors), d->groups ? (unsigned)d->groups : 1},
        .block = (unsigned)d->block,
        .shared = (unsigned)d->smem,
        .cluster = d->cluster > 1 ? (unsigned)d->cluster : 1,
        .params = params,
        .ahead = ahead};
    DrvResult result = DRV_SUCCESS;
    for (int i = 0; i < d->num_maps && ret->grid[0] && !result; i++, at += sizeof(DrvTensorMap))
        result = encode_map(p, l, &d->map[i], (DrvTensorMap *)(void *)((char *)params + at));
    return result;
}

void cuda_bind_ahead(const CudaPlace *p, const PlanLaunch *next, const DeviceLaunch *d,
                     const CudaLaunch *l)
{
    CudaAhead *to = l->ahead;
    *to = (CudaAhead){.data = bind_tensor(p, next->w).data,
                      .stride = d->first.stride,
                      .runs = d->first.runs,
                      .bytes = d->first.bytes};
}

DrvResult cuda_launch(const Driver *d, const CudaLaunch *l, DrvStream stream, bool early)
{
    DrvLaunchAttribute attr[2];
    unsigned num = 0;
    if (!l->grid[0])
        return DRV_SUCCESS;
    if (l->cluster > 1)
        attr[num++] = (DrvLaunchAttribute){.id = DRV_LAUNCH_CLUSTER_DIMENSION,
                                           .value.cluster = {l->cluster, 1, 1}};
    if (early)
        attr[num++] = (DrvLaunchAttribute){.id = DRV_LAUNCH_PROGRAMMATIC_STREAM_SERIALIZATION,
                                           .value.programmatic_stream_serialization = 1};
    const DrvLaunchConfig config = {.grid_x = l->grid[0],
                                    .grid_y = l->grid[1],
                                    .grid_z = 1,
                                    .block_x = l->block,
                                    .block_y = 1,
                                    .block_z = 1,
                                    .shared_bytes = l->shared,
                                    .stream = stream,
                                    .attrs = attr,
                                    .num_attrs = num};
    void *argument[1];
    memcpy(argument, &l->params, sizeof l->params);
    return d->cuLaunchKernelEx(&config, l->function, argument, NULL);
}

/* Lists of launches ---------------------------------------------------------------------------- */

static const DeviceLaunch *device_launch(const CudaSession *s, int launch, int bucket)
{
    const DeviceCode *code = s->model->code;
    return &code->launch[launch * code->num_buckets + bucket];
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

static DrvAddress tensor_root(const CudaSession *s, int tensor, int bucket)
{
    const Plan *p = s->model->plan;
    const PlanTensor *t = &p->tensor[tensor];
    switch (t->storage) {
    case STORAGE_CONST: return s->model->constant[tensor];
    case STORAGE_ARENA: return s->memory + t->arena_offset[bucket];
    case STORAGE_INPUT: return s->port[t->index].at;
    case STORAGE_OUTPUT: return s->port[p->num_inputs + t->index].at;
    default: return 0; /* layouts name roots, never parts */
    }
}

/* Memory for the list's parameters, once: as much as any launch of any bucket needs. */
static bool list_alloc(CudaSession *s)
{
    const Plan *p = s->model->plan;
    size_t bytes = 0;
    if (s->list)
        return true;
    for (int i = 0; i < p->num_launches; i++)
        bytes += cuda_params_bytes(&p->launch[i]);
    s->list = calloc((size_t)p->num_launches + 1, sizeof *s->list);
    s->root = calloc((size_t)p->num_tensors + 1, sizeof *s->root);
    s->params = aligned_alloc(DEVICE_MAP_ALIGN, align_maps(bytes + 1));
    return s->list && s->root && s->params;
}

/* Each block has a processor to itself: more than one may not come to one, or do not fit. */
static bool is_alone(const CudaModel *model, const DeviceLaunch *d)
{
    return d->per_processor == 1 || d->smem > model->max_shared / 2;
}

/* Launches that are told so learn how the next one begins: what the next with a weight reads first;
 * the last ones, what the first one does, for the next run. */
static void bind_ahead(const CudaSession *s, int bucket, const CudaPlace *place)
{
    const PlanLaunch *first = s->model->plan->launch;
    const DeviceLaunch *after = NULL; /* the very next one */
    const CudaListed *next = NULL;    /* .. with a weight */
    for (int i = 2 * s->num_list - 1; i >= 0; i--) {
        const CudaListed *at = &s->list[i % s->num_list];
        if (next && at->launch.ahead && !at->of->grouped) /* its blocks are many times as many */
            cuda_bind_ahead(place, next->of, device_launch(s, (int)(next->of - first), bucket),
                            &at->launch);
        if (after && at->launch.ahead)
            ((CudaAhead *)at->launch.ahead)->alone = is_alone(s->model, after);
        after = device_launch(s, (int)(at->of - first), bucket);
        if (after->first.runs)
            next = at;
    }
}

SinterStatus cuda_bind_list(CudaSession *s, int bucket, const int64_t *size,
                            const PlanLayout *layout, SinterError *err)
{
    CudaModel *model = s->model;
    const Plan *p = model->plan;
    s->num_list = 0;
    SinterStatus status = load_kernels(s, bucket, err);
    if (!status && !list_alloc(s))
        status = model_fail(err, SINTER_ERROR_MEMORY, "memory is exhausted");
    if (status)
        return status;
    for (int i = 0; i < p->num_tensors; i++)
        s->root[i] = tensor_root(s, i, bucket);
    const CudaPlace place = {.driver = model->driver,
                             .processors = model->processors,
                             .plan = p,
                             .layout = layout,
                             .size = size,
                             .root = s->root,
                             .workspace = s->workspace};
    uint8_t *params = s->params;
    for (int i = 0; i < p->num_launches && !status; i++) {
        const DeviceLaunch *d = device_launch(s, i, bucket);
        CudaListed *to = &s->list[s->num_list];
        if (d->kernel < 0)
            continue;
        status = cuda_check(model, cuda_bind(&place, &p->launch[i], d, params, &to->launch), err,
                            "binding \"%s\" (%s)", p->launch[i].layer,
                            launch_family_name[p->launch[i].family]);
        to->launch.function = model->kernel[d->kernel].function;
        to->of = &p->launch[i];
        params += cuda_params_bytes(&p->launch[i]);
        s->num_list++;
    }
    if (!status)
        bind_ahead(s, bucket, &place);
    return status;
}

void cuda_list_free(CudaSession *s)
{
    free(s->list);
    free(s->root);
    free(s->params);
}

SinterStatus cuda_start(CudaSession *s, DrvStream stream, CudaStart how, SinterError *err)
{
    CudaModel *model = s->model;
    bool early = false; /* the first follows copies, which it must wait for */
    int events = 0;
    SinterStatus status = SINTER_OK;
    if (how == CUDA_START_TIME)
        status = add_event(s, events++, stream, err);
    for (int i = 0; i < s->num_list && !status; i++) {
        const PlanLaunch *l = s->list[i].of;
        nvtx_push(l->layer);
        status = cuda_check(model, cuda_launch(model->driver, &s->list[i].launch, stream, early),
                            err, "launching \"%s\" (%s)", l->layer, launch_family_name[l->family]);
        nvtx_pop();
        early = how == CUDA_START && model->early_launch;
        if (!status && how == CUDA_START_TIME)
            status = add_event(s, events++, stream, err);
        if (!status && how == CUDA_START_STEP)
            status = cuda_check(model, model->driver->cuStreamSynchronize(stream), err,
                                "running \"%s\" (%s: %s)", l->layer, launch_family_name[l->family],
                                l->absorbed);
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
    SinterStatus status = cuda_bind_list(s, bucket, plan_bucket(p, bucket), s->padded, err);
    if (!status)
        status = cuda_check(s->model,
                            d->cuStreamBeginCapture(s->stream, DRV_STREAM_CAPTURE_THREAD_LOCAL),
                            err, "beginning the capture of bucket %d", bucket);
    if (status)
        return status;
    status = cuda_start(s, s->stream, CUDA_START, err);
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
        *ret_bytes += plan_operand_bytes(l, i, layout);
    if (l->family == LAUNCH_GEMM) {
        const PlanTensor *w = &p->tensor[l->w];
        CpuPackSpec spec = plan_gemm_spec(&p->tensor[l->a], w, &layout[l->w]);
        *ret_bytes += (double)(w->packed ? w->bytes : layout[l->w].bytes);
        *ret_bytes += (double)layout[l->a].bytes;
        *ret_flops = 2.0 * (double)layout[l->a].rows * (double)spec.n * (double)spec.k;
    } else if (l->family == LAUNCH_TILE) {
        const PlanLayout *shape = &layout[l->operand[0].tensor];
        *ret_flops = (double)shape->rows * (double)shape->cols * l->program.num_steps;
    } else if (l->family == LAUNCH_ROUTE) {
        return; /* it reads and writes its operands */
    } else if (l->family == LAUNCH_DECODE) {
        *ret_bytes = (double)p->tensor[l->src].bytes + (double)p->tensor[l->dst].bytes;
    } else {
        *ret_bytes = 2.0 * format_info[p->tensor[l->src].fmt].bits / 8;
        for (int i = 0; i < l->move_rank; i++)
            *ret_bytes *= (double)plan_dim_eval(l->move_dim[i], size);
    }
}

SinterStatus cuda_times(CudaSession *s, const int64_t *size, const PlanLayout *layout, Trace *trace,
                        SinterError *err)
{
    const Driver *d = s->model->driver;
    SinterStatus status = SINTER_OK;
    double begin_us = clock_us(), total_us = 0;
    int events = 0;
    for (; events < s->num_list && !status; events++) {
        float ms = 0;
        double bytes, flops;
        const PlanLaunch *l = s->list[events].of;
        status =
            cuda_check(s->model, d->cuEventElapsedTime(&ms, s->event[events], s->event[events + 1]),
                       err, "timing \"%s\"", l->layer);
        launch_work(s->model->plan, l, layout, size, &bytes, &flops);
        if (!status && !trace_add(trace, l, begin_us, bytes, flops))
            status = model_fail(err, SINTER_ERROR_MEMORY, "memory is exhausted");
        if (status)
            break;
        trace->time[trace->num - 1].start_us = total_us;
        trace->time[trace->num - 1].duration_us = 1e3 * (double)ms;
        total_us += 1e3 * (double)ms;
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
