/* A model on one GPU: the primary context, the weights, uploaded once through pinned memory, and
 * its kernels, each loaded when first needed. Shared by all sessions of the model on this GPU. */
#include "runtime/cuda.h"

#include <stdlib.h>
#include <string.h>

#define STAGE_BYTES   (UINT64_C(8) << 20)
#define LOG_BYTES     2048
#define WEIGHTS_GAP   UINT64_C(65536) /* between constants that are copied together */
#define WEIGHTS_ALIGN 256

/* Images --------------------------------------------------------------------------------------- */

/* How well an architecture's images suit a GPU, 0: not at all. Binaries of the very architecture
 * come first, then those of an older one of its generation, then the newest portable code. */
static int arch_rank(const char *arch, int capability, bool portable_only)
{
    bool is_binary = !strncmp(arch, "sm_", 3);
    if (!is_binary && strncmp(arch, "compute_", 8))
        return 0;
    char *suffix;
    long of = strtol(arch + (is_binary ? 3 : 8), &suffix, 10);
    if (of <= 0 || of > capability)
        return 0;
    bool same = of == capability;
    if (*suffix == 'a' && !same)
        return 0;
    if (!is_binary)
        return 1 + (int)of;
    if (portable_only || of / 10 != capability / 10)
        return 0;
    return 100000 + 2 * (int)of + (*suffix == 'a');
}

static bool forced_portable(void)
{
    const char *forced = secure_getenv("CUDA_FORCE_PTX_JIT");
    return forced && !strcmp(forced, "1");
}

/* The architecture whose images run on a GPU; NULL: none do. All kernels have the same ones. */
static const char *code_arch(const DeviceCode *code, int capability)
{
    const char *best = NULL;
    bool portable_only = forced_portable();
    for (int i = 0; i < code->num_images; i++) {
        int rank = arch_rank(code->image[i].arch, capability, portable_only);
        if (rank && (!best || rank > arch_rank(best, capability, portable_only)))
            best = code->image[i].arch;
    }
    return best;
}

static SinterStatus choose_images(CudaModel *model, SinterError *err)
{
    const DeviceCode *code = model->code;
    model->arch = code_arch(code, model->capability);
    for (int i = 0; i < code->num_images; i++)
        if (model->arch && !strcmp(code->image[i].arch, model->arch))
            model->kernel[code->image[i].kernel].image = &code->image[i];
    for (int i = 0; i < code->num_kernels; i++)
        if (!model->kernel[i].image)
            return model_fail(err, SINTER_ERROR_UNSUPPORTED,
                              "%s: the compiled file lacks code of the kernel %s; compile it again",
                              model->name, code->kernel[i]);
    /* code for GPUs before 9.0 does not wait for its producer */
    model->early_launch = model->capability >= 90 && model->driver->version >= 12030 &&
                          model->arch && strtol(strchr(model->arch, '_') + 1, NULL, 10) >= 90;
    for (int i = 0; i < code->num_launches * code->num_buckets; i++) {
        const DeviceLaunch *l = &code->launch[i];
        if (l->kernel >= 0 && l->smem > model->kernel[l->kernel].shared)
            model->kernel[l->kernel].shared = l->smem;
    }
    return SINTER_OK;
}

/* The driver reads images that are aligned and end with a zero byte. */
static void *copy_image(const DeviceImage *image)
{
    char *copy = malloc((size_t)image->size + 1);
    if (copy) {
        memcpy(copy, image->data, (size_t)image->size);
        copy[image->size] = 0;
    }
    return copy;
}

static SinterStatus load_kernel(CudaModel *model, int kernel, const char *layer, SinterError *err)
{
    const Driver *d = model->driver;
    struct CudaKernelImage *k = &model->kernel[kernel];
    const char *name = model->code->kernel[kernel];
    char log[LOG_BYTES] = "";
    int option[] = {DRV_JIT_ERROR_LOG_BUFFER, DRV_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *value[] = {log, (void *)(uintptr_t)sizeof log};
    void *image = copy_image(k->image);
    if (!image)
        return model_fail(err, SINTER_ERROR_MEMORY, "no memory for %llu bytes of code",
                          (unsigned long long)k->image->size);
    DrvModule module = NULL;
    DrvResult result = d->cuModuleLoadDataEx(&module, image, COUNT_OF(option), option, value);
    free(image);
    log[sizeof log - 1] = 0;
    log[strcspn(log, "\n")] = 0;
    SinterStatus status = cuda_check(model, result, err, "loading %s of \"%s\" for %s%s%s", name,
                                     layer, k->image->arch, *log ? ": " : "", log);
    if (status)
        return status;
    status = cuda_check(model, d->cuModuleGetFunction(&k->function, module, name), err,
                        "finding %s of \"%s\"", name, layer);
    if (!status && k->shared > model->max_shared)
        status = model_fail(err, SINTER_ERROR_UNSUPPORTED,
                            "%s: \"%s\" needs %d bytes of shared memory, %s has %d", model->name,
                            layer, k->shared, model->gpu, model->max_shared);
    if (!status && k->shared > 0)
        status = cuda_check(
            model,
            d->cuFuncSetAttribute(k->function, DRV_FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES, k->shared),
            err, "giving %d bytes of shared memory to \"%s\"", k->shared, layer);
    if (status)
        d->cuModuleUnload(module);
    else
        k->module = module;
    return status;
}

SinterStatus cuda_model_kernel(CudaModel *model, DeviceShared *shared, int kernel,
                               const char *layer, SinterError *err)
{
    pthread_mutex_lock(&shared->lock);
    SinterStatus status =
        model->kernel[kernel].module ? SINTER_OK : load_kernel(model, kernel, layer, err);
    pthread_mutex_unlock(&shared->lock);
    return status;
}

/* Weights -------------------------------------------------------------------------------------- */

typedef struct Stage { /* pinned memory, and when the copy out of it has ended */
    void *memory;
    DrvEvent copied;
    bool busy;
} Stage;

static void stage_free(const Driver *d, Stage *stage)
{
    if (stage->copied)
        d->cuEventDestroy(stage->copied);
    if (stage->memory)
        d->cuMemFreeHost(stage->memory);
}

static SinterStatus stage_alloc(CudaModel *model, Stage *stage, uint64_t size, SinterError *err)
{
    const Driver *d = model->driver;
    SinterStatus status = cuda_check(model, d->cuMemHostAlloc(&stage->memory, (size_t)size, 0), err,
                                     "pinning %llu bytes", (unsigned long long)size);
    if (status)
        return status;
    return cuda_check(model, d->cuEventCreate(&stage->copied, DRV_EVENT_DISABLE_TIMING), err,
                      "creating an event");
}

typedef struct Upload { /* through two buffers: one is filled while the other is on its way */
    CudaModel *model;
    DrvStream stream;
    Stage stage[2];
    uint64_t part; /* bytes of a buffer */
    int next;      /* buffer */
} Upload;

static SinterStatus upload_range(Upload *u, const uint8_t *from, DrvAddress to, uint64_t size,
                                 SinterError *err)
{
    const Driver *d = u->model->driver;
    SinterStatus status = SINTER_OK;
    for (uint64_t at = 0; !status && at < size; at += u->part) {
        Stage *s = &u->stage[u->next];
        uint64_t num = size - at < u->part ? size - at : u->part;
        if (s->busy)
            status = cuda_check(u->model, d->cuEventSynchronize(s->copied), err,
                                "waiting for the copy of weights");
        if (status)
            break;
        memcpy(s->memory, from + at, (size_t)num);
        status = cuda_check(u->model, d->cuMemcpyHtoDAsync(to + at, s->memory, num, u->stream), err,
                            "copying weights");
        if (!status)
            status = cuda_check(u->model, d->cuEventRecord(s->copied, u->stream), err,
                                "recording an event");
        s->busy = true;
        u->next = !u->next;
    }
    return status;
}

/* Bytes of the file's weights that this plan reads, constants that lie next to each other as one
 * range: other plans' weights lie between them. */
typedef struct Range {
    uint64_t from, to, size; /* in the section, in the GPU's memory */
} Range;

static int compare_range(const void *x, const void *y)
{
    const Range *a = x, *b = y;
    return a->from < b->from ? -1 : a->from > b->from;
}

static uint64_t range_end(const Range *r)
{
    return r->from + r->size;
}

/* Fills range[plan->num_tensors]; returns how many there are, and their bytes. */
static int find_ranges(const Plan *p, Range *range, uint64_t *ret_bytes)
{
    int num = 0, kept = 0;
    uint64_t at = 0;
    for (int i = 0; i < p->num_tensors; i++)
        if (p->tensor[i].storage == STORAGE_CONST)
            range[num++] = (Range){.from = p->tensor[i].offset, .size = p->tensor[i].bytes};
    qsort(range, (size_t)num, sizeof *range, compare_range);
    for (int i = 0; i < num; i++) {
        Range *last = kept ? &range[kept - 1] : NULL;
        if (!last || range[i].from > range_end(last) + WEIGHTS_GAP)
            range[kept++] = range[i];
        else if (range_end(&range[i]) > range_end(last))
            last->size = range_end(&range[i]) - last->from;
    }
    for (int i = 0; i < kept; i++) {
        range[i].to = at;
        at += (range[i].size + WEIGHTS_ALIGN - 1) / WEIGHTS_ALIGN * WEIGHTS_ALIGN;
    }
    *ret_bytes = at;
    return kept;
}

static void find_constants(CudaModel *model, const Range *range, int num)
{
    const Plan *p = model->plan;
    for (int i = 0; i < p->num_tensors; i++)
        for (int k = 0; p->tensor[i].storage == STORAGE_CONST && k < num; k++)
            if (p->tensor[i].offset >= range[k].from && p->tensor[i].offset <= range_end(&range[k]))
                model->constant[i] =
                    model->weights + range[k].to + p->tensor[i].offset - range[k].from;
}

static SinterStatus upload_ranges(CudaModel *model, const uint8_t *weights, const Range *range,
                                  int num, uint64_t bytes, SinterError *err)
{
    const Driver *d = model->driver;
    Upload u = {.model = model, .part = bytes < STAGE_BYTES ? bytes : STAGE_BYTES};
    SinterStatus status = cuda_check(model, d->cuStreamCreate(&u.stream, DRV_STREAM_NON_BLOCKING),
                                     err, "creating a stream");
    for (int i = 0; i < 2 && !status && (i == 0 || bytes > u.part || num > 1); i++)
        status = stage_alloc(model, &u.stage[i], u.part, err);
    for (int i = 0; i < num && !status; i++)
        status = upload_range(&u, weights + range[i].from, model->weights + range[i].to,
                              range[i].size, err);
    if (u.stream) {
        SinterStatus last = cuda_check(model, d->cuStreamSynchronize(u.stream), status ? NULL : err,
                                       "waiting for the copy of weights");
        status = status ? status : last;
        d->cuStreamDestroy(u.stream);
    }
    stage_free(d, &u.stage[0]);
    stage_free(d, &u.stage[1]);
    return status;
}

static SinterStatus upload_weights(CudaModel *model, const DeviceOpen *open, SinterError *err)
{
    uint64_t bytes;
    Range *range = calloc((size_t)model->plan->num_tensors + 1, sizeof *range);
    if (!range)
        return model_fail(err, SINTER_ERROR_MEMORY, "memory is exhausted");
    int num = find_ranges(model->plan, range, &bytes);
    SinterStatus status =
        bytes ? cuda_alloc(model, bytes, "weights", &model->weights, err) : SINTER_OK;
    if (!status && bytes)
        status = upload_ranges(model, open->weights, range, num, bytes, err);
    if (!status)
        find_constants(model, range, num);
    free(range);
    return status;
}

/* Models --------------------------------------------------------------------------------------- */

static void model_free(CudaModel *model)
{
    const Driver *d = model->driver;
    if (model->context) {
        bool entered = !cuda_enter(model, NULL);
        for (int i = 0; i < model->code->num_kernels; i++)
            if (model->kernel[i].module)
                d->cuModuleUnload(model->kernel[i].module);
        if (model->weights)
            d->cuMemFree(model->weights);
        if (entered)
            cuda_leave(model);
        d->cuDevicePrimaryCtxRelease(model->device);
    }
    free(model->kernel);
    free(model->constant);
    free(model);
}

static SinterStatus device_attribute(CudaModel *model, int attribute, int *ret, SinterError *err)
{
    *ret = 0;
    return cuda_check(model, model->driver->cuDeviceGetAttribute(ret, attribute, model->device),
                      err, "asking for attribute %d", attribute);
}

static SinterStatus find_gpu(CudaModel *model, SinterError *err)
{
    const Driver *d = model->driver;
    int count = 0, major = 0, minor = 0;
    SinterStatus status =
        cuda_check(model, d->cuDeviceGetCount(&count), err, "counting the machine's GPUs");
    if (!status && model->ordinal >= count)
        return model_fail(err, SINTER_ERROR_NO_DEVICE,
                          "there is no device cuda:%d: the driver shows %d GPU%s; "
                          "CUDA_VISIBLE_DEVICES may hide some",
                          model->ordinal, count, count == 1 ? "" : "s");
    if (!status)
        status = cuda_check(model, d->cuDeviceGet(&model->device, model->ordinal), err,
                            "opening the GPU");
    if (!status)
        status =
            cuda_check(model, d->cuDeviceGetName(model->gpu, (int)sizeof model->gpu, model->device),
                       err, "asking for the GPU's name");
    if (!status)
        status = device_attribute(model, DRV_DEVICE_COMPUTE_CAPABILITY_MAJOR, &major, err);
    if (!status)
        status = device_attribute(model, DRV_DEVICE_COMPUTE_CAPABILITY_MINOR, &minor, err);
    if (!status)
        status = device_attribute(model, DRV_DEVICE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
                                  &model->max_shared, err);
    if (!status)
        status = device_attribute(model, DRV_DEVICE_MULTIPROCESSOR_COUNT, &model->processors, err);
    model->capability = 10 * major + minor;
    return status;
}

/* No plan of the file runs on the GPU. */
static SinterStatus no_plan(const SinterModel *model, const CudaModel *gpu, SinterError *err)
{
    char holds[64], words[96];
    const CodeClass *wanted = code_class_for(gpu->capability);
    bool portable_only = forced_portable();
    for (int i = 0; i < NUM_CODE_CLASSES && portable_only; i++)
        if (!strncmp(code_classes[i].arch, "compute_", 8) &&
            code_class_serves(&code_classes[i], gpu->capability)) {
            wanted = &code_classes[i];
            break;
        }
    return model_fail(err, SINTER_ERROR_UNSUPPORTED,
                      "%s: this GPU is an %s of compute capability %d.%d, and the compiled file "
                      "holds a plan for %s%s; %s%s, or run it on another device",
                      gpu->name, gpu->gpu, gpu->capability / 10, gpu->capability % 10,
                      model_holds(model, holds, sizeof holds),
                      portable_only ? ", of which CUDA_FORCE_PTX_JIT=1 allows PTX alone" : "",
                      wanted ? "compile the model with " : "nothing can be compiled for it",
                      wanted ? model_words(model, wanted->name, words, sizeof words) : "");
}

ModelTarget *cuda_choose_target(SinterModel *model, int ordinal, SinterStatus *ret_status,
                                SinterError *err)
{
    char holds[64];
    bool any = false;
    for (int i = 0; i < model->num_targets; i++)
        any = any || model->target[i].gpu;
    CudaModel gpu = {.driver = driver_get(ret_status, err), .ordinal = ordinal};
    snprintf(gpu.name, sizeof gpu.name, "cuda:%d", ordinal);
    if (gpu.driver)
        *ret_status = find_gpu(&gpu, err);
    if (!gpu.driver && !any)
        *ret_status =
            model_fail(err, SINTER_ERROR_UNSUPPORTED,
                       "the compiled file holds a plan for %s alone, none for %s; compile "
                       "the model with --target=sm_90a ('sinter targets' lists others), "
                       "or run it on cpu instead",
                       model_holds(model, holds, sizeof holds), gpu.name);
    if (!gpu.driver || *ret_status)
        return NULL;
    for (int i = 0; i < NUM_CODE_CLASSES; i++) {
        ModelTarget *t = model_target(model, code_classes[i].name);
        if (t && code_class_serves(&code_classes[i], gpu.capability) &&
            (!t->code || code_arch(t->code, gpu.capability)))
            return t;
    }
    *ret_status = no_plan(model, &gpu, err);
    return NULL;
}

static SinterStatus fill_model(CudaModel *model, const DeviceOpen *open, SinterError *err)
{
    SinterStatus status = find_gpu(model, err);
    if (!status)
        status = choose_images(model, err);
    if (!status)
        status = cuda_check(model,
                            model->driver->cuDevicePrimaryCtxRetain(&model->context, model->device),
                            err, "starting the GPU");
    if (!status)
        status = cuda_enter(model, err);
    if (status)
        return status;
    status = upload_weights(model, open, err);
    cuda_leave(model);
    return status;
}

static SinterStatus new_model(const DeviceOpen *open, CudaModel **ret, SinterError *err)
{
    SinterStatus status;
    const Driver *driver = driver_get(&status, err);
    if (!driver)
        return status;
    CudaModel *model = calloc(1, sizeof *model);
    if (model) {
        model->kernel = calloc((size_t)open->code->num_kernels + 1, sizeof *model->kernel);
        model->constant = calloc((size_t)open->plan->num_tensors + 1, sizeof *model->constant);
    }
    if (!model || !model->kernel || !model->constant) {
        if (model)
            free(model->kernel);
        free(model);
        return model_fail(err, SINTER_ERROR_MEMORY, "memory is exhausted");
    }
    model->driver = driver;
    model->plan = open->plan;
    model->code = open->code;
    model->ordinal = open->ordinal;
    snprintf(model->name, sizeof model->name, "cuda:%d", open->ordinal);
    status = fill_model(model, open, err);
    if (status)
        model_free(model);
    else
        *ret = model;
    return status;
}

SinterStatus cuda_model_get(const DeviceOpen *open, CudaModel **ret, SinterError *err)
{
    DeviceShared *shared = open->shared;
    SinterStatus status = SINTER_OK;
    pthread_mutex_lock(&shared->lock);
    CudaModel *model = shared->state;
    while (model && model->ordinal != open->ordinal)
        model = model->next;
    if (!model) {
        status = new_model(open, &model, err);
        if (!status) {
            model->next = shared->state;
            shared->state = model;
        }
    }
    pthread_mutex_unlock(&shared->lock);
    if (!status && cuda_is_dead(model))
        status = cuda_dead(model, err);
    *ret = status ? NULL : model;
    return status;
}

void cuda_model_close(void *models)
{
    CudaModel *model = models, *next;
    for (; model; model = next) {
        next = model->next;
        model_free(model);
    }
}
