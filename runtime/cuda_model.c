/* A model on one GPU: the primary context, the weights, uploaded once through pinned memory, and
 * its kernels, each loaded when first needed. Shared by all sessions of the model on this GPU. */
#include "runtime/cuda.h"

#include <stdlib.h>
#include <string.h>

#define STAGE_BYTES (UINT64_C(8) << 20)
#define LOG_BYTES   2048

/* Images --------------------------------------------------------------------------------------- */

/* How well an image suits a GPU, 0: not at all. Binaries of the very architecture come first, then
 * those of an older one of its generation, then the newest portable code. */
static int image_rank(const char *arch, int capability, bool portable_only)
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

static SinterStatus choose_images(CudaModel *model, SinterError *err)
{
    const DeviceCode *code = model->code;
    const char *forced = secure_getenv("CUDA_FORCE_PTX_JIT");
    bool portable_only = forced && !strcmp(forced, "1");
    for (int i = 0; i < code->num_images; i++) {
        struct CudaKernelImage *k = &model->kernel[code->image[i].kernel];
        int rank = image_rank(code->image[i].arch, model->capability, portable_only);
        if (rank &&
            (!k->image || rank > image_rank(k->image->arch, model->capability, portable_only)))
            k->image = &code->image[i];
    }
    model->early_launch = model->capability >= 90 && model->driver->version >= 12030;
    for (int i = 0; i < code->num_kernels; i++) {
        const DeviceImage *image = model->kernel[i].image;
        if (!image)
            return model_fail(
                err, SINTER_ERROR_UNSUPPORTED,
                "%s: the compiled file holds no code for this GPU, %s of compute "
                "capability %d.%d%s; compile the model with --target=sm_%d, or run "
                "it on the device cpu",
                model->name, model->gpu, model->capability / 10, model->capability % 10,
                portable_only ? ", that CUDA_FORCE_PTX_JIT=1 allows" : "", model->capability);
        /* code for GPUs before 9.0 does not wait for its producer */
        if (strtol(strchr(image->arch, '_') + 1, NULL, 10) < 90)
            model->early_launch = false;
    }
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
                            "%s: \"%s\" needs %d bytes of shared memory, %s has %d; compile the "
                            "model with --target=sm_%d",
                            model->name, layer, k->shared, model->gpu, model->max_shared,
                            model->capability);
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

/* Pages of the file are read into one buffer while the other is on its way. */
static SinterStatus upload_with(CudaModel *model, const uint8_t *from, uint64_t size,
                                Stage stage[2], DrvStream stream, SinterError *err)
{
    const Driver *d = model->driver;
    SinterStatus status = SINTER_OK;
    uint64_t part = size < STAGE_BYTES ? size : STAGE_BYTES;
    for (int i = 0; i < 2 && !status && (i == 0 || size > part); i++)
        status = stage_alloc(model, &stage[i], part, err);
    for (uint64_t at = 0, i = 0; !status && at < size; at += part, i++) {
        Stage *s = &stage[i % 2];
        uint64_t num = size - at < part ? size - at : part;
        if (s->busy)
            status = cuda_check(model, d->cuEventSynchronize(s->copied), err,
                                "waiting for the copy of weights");
        if (status)
            break;
        memcpy(s->memory, from + at, (size_t)num);
        status =
            cuda_check(model, d->cuMemcpyHtoDAsync(model->weights + at, s->memory, num, stream),
                       err, "copying weights");
        if (!status)
            status =
                cuda_check(model, d->cuEventRecord(s->copied, stream), err, "recording an event");
        s->busy = true;
    }
    SinterStatus last = cuda_check(model, d->cuStreamSynchronize(stream), status ? NULL : err,
                                   "waiting for the copy of weights");
    return status ? status : last;
}

static SinterStatus upload_weights(CudaModel *model, const DeviceOpen *open, SinterError *err)
{
    const Driver *d = model->driver;
    if (!open->weights_bytes)
        return SINTER_OK;
    DrvStream stream = NULL;
    Stage stage[2] = {0};
    SinterStatus status = cuda_alloc(model, open->weights_bytes, "weights", &model->weights, err);
    if (!status)
        status = cuda_check(model, d->cuStreamCreate(&stream, DRV_STREAM_NON_BLOCKING), err,
                            "creating a stream");
    if (!status)
        status = upload_with(model, open->weights, open->weights_bytes, stage, stream, err);
    stage_free(d, &stage[0]);
    stage_free(d, &stage[1]);
    if (stream)
        d->cuStreamDestroy(stream);
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
    model->capability = 10 * major + minor;
    return status;
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
    if (model)
        model->kernel = calloc((size_t)open->code->num_kernels + 1, sizeof *model->kernel);
    if (!model || !model->kernel) {
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
