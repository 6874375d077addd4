/* What the driver says of this machine's GPUs; see gpu_here.h. */
#include "driver/gpu_here.h"
#include "codegen/cuda/target.h"
#include "runtime/cuda.h"

int gpu_here(Arena *arena, int ordinal, const char **ret_why)
{
    SinterStatus status;
    SinterError err;
    DrvDevice device;
    int num = 0, major = 0, minor = 0;
    const Driver *d = driver_get(&status, &err);
    if (!d) {
        *ret_why = arena_strdup(arena, err.text);
        return 0;
    }
    if (!d->cuDeviceGetCount(&num) && ordinal < num && !d->cuDeviceGet(&device, ordinal) &&
        !d->cuDeviceGetAttribute(&major, DRV_DEVICE_COMPUTE_CAPABILITY_MAJOR, device) &&
        !d->cuDeviceGetAttribute(&minor, DRV_DEVICE_COMPUTE_CAPABILITY_MINOR, device) && major > 0)
        return 10 * major + minor;
    *ret_why =
        arena_printf(arena, "there is no cuda:%d; the driver knows %d GPUs here", ordinal, num);
    return 0;
}

const char *gpu_target(Arena *arena, int capability)
{
    const CodeClass *gpu = code_class_for(capability);
    const char *name = arena_printf(arena, "sm_%d", capability);
    if (!gpu || gpu->from == gpu->to) /* nothing runs there better than the class's own code */
        return gpu ? gpu->name : NULL;
    return cuda_class_of(name) ? name : gpu->name;
}
