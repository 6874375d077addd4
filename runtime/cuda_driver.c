/* The driver's library, loaded when first asked for, and its errors as statuses with a sentence and
 * a remedy. */
#include "runtime/cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define OLDEST_DRIVER 12000

/* Loading -------------------------------------------------------------------------------------- */

static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;
static Driver loaded;

static const struct DriverSymbol {
    const char *name;
    size_t field;
} driver_symbol[] = {
#define SYMBOL_ROW(field, symbol, params) {symbol, offsetof(Driver, field)},
    DRIVER_FUNCTIONS(SYMBOL_ROW)
#undef SYMBOL_ROW
};

static SinterStatus load_symbols(Driver *d, SinterError *err)
{
    for (size_t i = 0; i < COUNT_OF(driver_symbol); i++) {
        void *symbol = dlsym(d->library, driver_symbol[i].name);
        if (!symbol)
            return model_fail(err, SINTER_ERROR_NO_DEVICE,
                              "the NVIDIA driver has no %s: it is older than CUDA %d.%d; update "
                              "the driver, or run on the device cpu what has a plan for it",
                              driver_symbol[i].name, OLDEST_DRIVER / 1000,
                              OLDEST_DRIVER % 1000 / 10);
        memcpy((char *)d + driver_symbol[i].field, &symbol, sizeof symbol);
    }
    return SINTER_OK;
}

static const char *error_name(const Driver *d, DrvResult result)
{
    const char *name = NULL;
    return d->cuGetErrorName(result, &name) == DRV_SUCCESS && name ? name : "an unknown error";
}

static SinterStatus start_driver(Driver *d, SinterError *err)
{
    if (d->cuDriverGetVersion(&d->version) != DRV_SUCCESS || d->version < OLDEST_DRIVER)
        return model_fail(err, SINTER_ERROR_NO_DEVICE,
                          "the NVIDIA driver is made for CUDA %d.%d, but %d.%d or newer is needed; "
                          "update the driver, or run on the device cpu what has a plan for it",
                          d->version / 1000, d->version % 1000 / 10, OLDEST_DRIVER / 1000,
                          OLDEST_DRIVER % 1000 / 10);
    DrvResult result = d->cuInit(0);
    if (result == DRV_SUCCESS)
        return SINTER_OK;
    const char *why =
        result == DRV_ERROR_NO_DEVICE ? "this machine has no GPU that it can use"
        : result == DRV_ERROR_SYSTEM_DRIVER_MISMATCH
            ? "its library and kernel module differ in version; reboot or reinstall it"
            : "it cannot start; nvidia-smi may say why";
    return model_fail(err, SINTER_ERROR_NO_DEVICE,
                      "the NVIDIA driver was found, but %s (%s); the device cpu remains", why,
                      error_name(d, result));
}

static SinterStatus load_driver(Driver *d, SinterError *err)
{
    const char *path = secure_getenv("SINTER_LIBCUDA");
    if (!path || !*path)
        path = "libcuda.so.1";
    d->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!d->library) {
        const char *why = dlerror();
        return model_fail(
            err, SINTER_ERROR_NO_DEVICE,
            "there is no NVIDIA driver (%s); install it, or run on the device cpu what "
            "has a plan for it",
            why ? why : path);
    }
    SinterStatus status = load_symbols(d, err);
    return status ? status : start_driver(d, err);
}

const Driver *driver_get(SinterStatus *ret_status, SinterError *err)
{
    pthread_mutex_lock(&load_lock);
    *ret_status = SINTER_OK;
    if (!loaded.library) {
        Driver d = {0};
        *ret_status = load_driver(&d, err);
        if (!*ret_status)
            loaded = d;
        else if (d.library)
            dlclose(d.library);
    }
    pthread_mutex_unlock(&load_lock);
    return *ret_status ? NULL : &loaded;
}

/* Errors --------------------------------------------------------------------------------------- */

/* What results mean, other than those that are a device failure without more to say. sticky: the
 * process can do nothing more on this GPU. */
static const struct Meaning {
    DrvResult result;
    SinterStatus status;
    bool sticky;
    const char *meaning, *remedy;
} meanings[] = {
    {DRV_ERROR_OUT_OF_MEMORY, SINTER_ERROR_MEMORY, false, "the GPU's memory is full",
     "end other programs on it, or compile the model for smaller sizes"},
    {DRV_ERROR_DEINITIALIZED, SINTER_ERROR_DEVICE, true, "the driver is shutting down",
     "close sessions before the program ends"},
    {DRV_ERROR_STUB_LIBRARY, SINTER_ERROR_NO_DEVICE, false,
     "libcuda.so.1 is the toolkit's stub and no driver",
     "take the stub out of LD_LIBRARY_PATH, or run on the device cpu what has a plan for it"},
    {DRV_ERROR_DEVICE_UNAVAILABLE, SINTER_ERROR_NO_DEVICE, false,
     "another program holds the GPU alone", "end it, or choose another GPU"},
    {DRV_ERROR_NO_DEVICE, SINTER_ERROR_NO_DEVICE, false, "there is no such GPU",
     "nvidia-smi lists them; CUDA_VISIBLE_DEVICES may hide some"},
    {DRV_ERROR_INVALID_DEVICE, SINTER_ERROR_NO_DEVICE, false, "there is no such GPU",
     "nvidia-smi lists them; CUDA_VISIBLE_DEVICES may hide some"},
    {DRV_ERROR_INVALID_IMAGE, SINTER_ERROR_UNSUPPORTED, false, "the driver does not take the code",
     "compile the model again with --target of this GPU"},
    {DRV_ERROR_NO_BINARY_FOR_GPU, SINTER_ERROR_UNSUPPORTED, false,
     "the compiled file holds no code for this GPU",
     "compile the model again with --target of this GPU"},
    {DRV_ERROR_INVALID_PTX, SINTER_ERROR_UNSUPPORTED, false, "the driver refuses the portable code",
     "compile the model again with --target of this GPU"},
    {DRV_ERROR_UNSUPPORTED_PTX_VERSION, SINTER_ERROR_UNSUPPORTED, false,
     "the portable code is newer than the driver",
     "update the driver, or compile the model again with --target of this GPU"},
    {DRV_ERROR_JIT_COMPILER_NOT_FOUND, SINTER_ERROR_UNSUPPORTED, false,
     "the driver has no compiler for portable code (libnvidia-ptxjitcompiler)",
     "install it, or compile the model again with --target of this GPU"},
    {DRV_ERROR_ECC_UNCORRECTABLE, SINTER_ERROR_DEVICE, true,
     "the GPU's memory has an error that cannot be corrected",
     "start the program again; if it stays, the GPU needs a reset"},
    {DRV_ERROR_NVLINK_UNCORRECTABLE, SINTER_ERROR_DEVICE, true,
     "a link between GPUs has an error that cannot be corrected",
     "start the program again; if it stays, the GPU needs a reset"},
    {DRV_ERROR_ILLEGAL_ADDRESS, SINTER_ERROR_DEVICE, true,
     "a kernel read or wrote memory that is not its own", "SINTER_SYNC=1 names the layer"},
    {DRV_ERROR_LAUNCH_OUT_OF_RESOURCES, SINTER_ERROR_DEVICE, false,
     "a kernel needs more than the GPU has", "compile the model again with --target of this GPU"},
    {DRV_ERROR_LAUNCH_TIMEOUT, SINTER_ERROR_DEVICE, true, "a kernel ran for too long",
     "use a GPU that drives no display"},
    {DRV_ERROR_CONTEXT_IS_DESTROYED, SINTER_ERROR_DEVICE, true,
     "the program has reset the GPU under the session", "create sessions after the reset"},
    {DRV_ERROR_ASSERT, SINTER_ERROR_DEVICE, true, "a kernel gave up",
     "SINTER_SYNC=1 names the layer"},
    {DRV_ERROR_HARDWARE_STACK_ERROR, SINTER_ERROR_DEVICE, true, "a kernel's stack is broken",
     "SINTER_SYNC=1 names the layer"},
    {DRV_ERROR_ILLEGAL_INSTRUCTION, SINTER_ERROR_DEVICE, true,
     "a kernel has an instruction that this GPU lacks", "SINTER_SYNC=1 names the layer"},
    {DRV_ERROR_MISALIGNED_ADDRESS, SINTER_ERROR_DEVICE, true,
     "a kernel used an address that is not aligned", "SINTER_SYNC=1 names the layer"},
    {DRV_ERROR_INVALID_ADDRESS_SPACE, SINTER_ERROR_DEVICE, true,
     "a kernel used an address of another space", "SINTER_SYNC=1 names the layer"},
    {DRV_ERROR_INVALID_PC, SINTER_ERROR_DEVICE, true, "a kernel left its code",
     "SINTER_SYNC=1 names the layer"},
    {DRV_ERROR_LAUNCH_FAILED, SINTER_ERROR_DEVICE, true, "a kernel failed",
     "SINTER_SYNC=1 names the layer"},
    {DRV_ERROR_NOT_PERMITTED, SINTER_ERROR_DEVICE, false, "the driver does not permit it",
     "check the rights of this user and container"},
    {DRV_ERROR_SYSTEM_NOT_READY, SINTER_ERROR_NO_DEVICE, false, "the GPUs are not ready",
     "start the fabric manager, or wait for it"},
    {DRV_ERROR_SYSTEM_DRIVER_MISMATCH, SINTER_ERROR_NO_DEVICE, false,
     "the driver's library and kernel module differ in version", "reboot or reinstall the driver"},
    {DRV_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, SINTER_ERROR_NO_DEVICE, false,
     "the driver's compatibility package does not support this GPU", "update the driver"},
};

static const struct Meaning *find_meaning(DrvResult result)
{
    static const struct Meaning other = {0, SINTER_ERROR_DEVICE, false,
                                         "the driver reports an error", "the device cpu remains"};
    for (size_t i = 0; i < COUNT_OF(meanings); i++)
        if (meanings[i].result == result)
            return &meanings[i];
    return &other;
}

bool cuda_is_dead(const CudaModel *model)
{
    return __atomic_load_n(&model->dead, __ATOMIC_ACQUIRE) == 2;
}

SinterStatus cuda_dead(const CudaModel *model, SinterError *err)
{
    return model_fail(err, model->first_error.status, "%.*s; start the program again",
                      (int)sizeof err->text - 32, model->first_error.text);
}

/* The first error that kills the model stays: 0 alive, 1 being written, 2 dead. */
static void kill_model(CudaModel *model, const SinterError *why)
{
    int alive = 0;
    if (!__atomic_compare_exchange_n(&model->dead, &alive, 1, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE))
        return;
    model->first_error = *why;
    __atomic_store_n(&model->dead, 2, __ATOMIC_RELEASE);
}

SinterStatus cuda_check(CudaModel *model, DrvResult result, SinterError *err, const char *fmt, ...)
{
    if (result == DRV_SUCCESS)
        return SINTER_OK;
    const struct Meaning *m = find_meaning(result);
    SinterError why;
    char doing[200];
    va_list args;
    va_start(args, fmt);
    vsnprintf(doing, sizeof doing, fmt, args);
    va_end(args);
    model_fail(&why, m->status, "%s: %s: %s (%s); %s", model->name, doing, m->meaning,
               error_name(model->driver, result), m->remedy);
    if (m->sticky)
        kill_model(model, &why);
    if (err)
        *err = why;
    return m->status;
}

/* Contexts and memory -------------------------------------------------------------------------- */

SinterStatus cuda_enter(CudaModel *model, SinterError *err)
{
    return cuda_check(model, model->driver->cuCtxPushCurrent(model->context), err,
                      "making its context current");
}

void cuda_leave(const CudaModel *model)
{
    DrvContext popped;
    model->driver->cuCtxPopCurrent(&popped);
}

SinterStatus cuda_alloc(CudaModel *model, uint64_t size, const char *what, DrvAddress *ret,
                        SinterError *err)
{
    *ret = 0;
    DrvResult result = model->driver->cuMemAlloc(ret, size ? (size_t)size : 1);
    if (result != DRV_ERROR_OUT_OF_MEMORY)
        return cuda_check(model, result, err, "reserving %llu bytes of %s",
                          (unsigned long long)size, what);
    size_t free = 0, total = 0;
    if (model->driver->cuMemGetInfo(&free, &total) != DRV_SUCCESS)
        free = 0;
    return cuda_check(model, result, err, "reserving %llu bytes of %s, of which %llu are free",
                      (unsigned long long)size, what, (unsigned long long)free);
}
