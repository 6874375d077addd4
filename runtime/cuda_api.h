/* The part of NVIDIA's driver interface that the runtime calls, in our own words, so that neither
 * building nor running needs a toolkit: the library is loaded when a session first asks for a GPU.
 * Names are NVIDIA's without "CU"; tests/cuda compares values and layouts with cuda.h where that
 * exists. */
#ifndef SINTER_CUDA_API_H
#define SINTER_CUDA_API_H

#include <stddef.h>
#include <stdint.h>

typedef int DrvResult;       /* CUresult */
typedef int DrvDevice;       /* CUdevice */
typedef uint64_t DrvAddress; /* CUdeviceptr */
typedef struct DrvContextObject *DrvContext;
typedef struct DrvModuleObject *DrvModule;
typedef struct DrvFunctionObject *DrvFunction;
typedef struct DrvStreamObject *DrvStream;
typedef struct DrvEventObject *DrvEvent;
typedef struct DrvGraphObject *DrvGraph;
typedef struct DrvGraphExecObject *DrvGraphExec;

enum { /* CUresult: those that are treated apart */
       DRV_SUCCESS = 0,
       DRV_ERROR_INVALID_VALUE = 1,
       DRV_ERROR_OUT_OF_MEMORY = 2,
       DRV_ERROR_NOT_INITIALIZED = 3,
       DRV_ERROR_DEINITIALIZED = 4,
       DRV_ERROR_STUB_LIBRARY = 34,
       DRV_ERROR_DEVICE_UNAVAILABLE = 46,
       DRV_ERROR_NO_DEVICE = 100,
       DRV_ERROR_INVALID_DEVICE = 101,
       DRV_ERROR_INVALID_IMAGE = 200,
       DRV_ERROR_INVALID_CONTEXT = 201,
       DRV_ERROR_NO_BINARY_FOR_GPU = 209,
       DRV_ERROR_ECC_UNCORRECTABLE = 214,
       DRV_ERROR_INVALID_PTX = 218,
       DRV_ERROR_NVLINK_UNCORRECTABLE = 220,
       DRV_ERROR_JIT_COMPILER_NOT_FOUND = 221,
       DRV_ERROR_UNSUPPORTED_PTX_VERSION = 222,
       DRV_ERROR_INVALID_HANDLE = 400,
       DRV_ERROR_NOT_FOUND = 500,
       DRV_ERROR_NOT_READY = 600,
       DRV_ERROR_ILLEGAL_ADDRESS = 700,
       DRV_ERROR_LAUNCH_OUT_OF_RESOURCES = 701,
       DRV_ERROR_LAUNCH_TIMEOUT = 702,
       DRV_ERROR_CONTEXT_IS_DESTROYED = 709,
       DRV_ERROR_ASSERT = 710,
       DRV_ERROR_HARDWARE_STACK_ERROR = 714,
       DRV_ERROR_ILLEGAL_INSTRUCTION = 715,
       DRV_ERROR_MISALIGNED_ADDRESS = 716,
       DRV_ERROR_INVALID_ADDRESS_SPACE = 717,
       DRV_ERROR_INVALID_PC = 718,
       DRV_ERROR_LAUNCH_FAILED = 719,
       DRV_ERROR_NOT_PERMITTED = 800,
       DRV_ERROR_NOT_SUPPORTED = 801,
       DRV_ERROR_SYSTEM_NOT_READY = 802,
       DRV_ERROR_SYSTEM_DRIVER_MISMATCH = 803,
       DRV_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE = 804,
       DRV_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
       DRV_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
       DRV_ERROR_UNKNOWN = 999
};

enum { /* CUdevice_attribute */
       DRV_DEVICE_MULTIPROCESSOR_COUNT = 16,
       DRV_DEVICE_L2_CACHE_SIZE = 38,
       DRV_DEVICE_COMPUTE_CAPABILITY_MAJOR = 75,
       DRV_DEVICE_COMPUTE_CAPABILITY_MINOR = 76,
       DRV_DEVICE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97
};

enum {
    DRV_FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,      /* CUfunction_attribute */
    DRV_POINTER_MEMORY_TYPE = 2,                     /* CUpointer_attribute */
    DRV_MEMORY_HOST = 1,                             /* CUmemorytype */
    DRV_MEMORY_DEVICE = 2,                           /* likewise */
    DRV_JIT_ERROR_LOG_BUFFER = 5,                    /* CUjit_option */
    DRV_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6,         /* likewise */
    DRV_STREAM_NON_BLOCKING = 1,                     /* CUstream_flags */
    DRV_EVENT_DEFAULT = 0,                           /* CUevent_flags */
    DRV_EVENT_DISABLE_TIMING = 2,                    /* likewise */
    DRV_STREAM_CAPTURE_THREAD_LOCAL = 1,             /* CUstreamCaptureMode */
    DRV_LAUNCH_CLUSTER_DIMENSION = 4,                /* CUlaunchAttributeID */
    DRV_LAUNCH_PROGRAMMATIC_STREAM_SERIALIZATION = 6 /* likewise */
};

enum { /* of tensor maps; elements are unsigned numbers, which are not looked at */
       DRV_TENSOR_UINT8 = 0,     /* CUtensorMapDataType */
       DRV_TENSOR_UINT16 = 1,    /* likewise */
       DRV_TENSOR_UINT32 = 2,    /* likewise */
       DRV_TENSOR_PLAIN = 0,     /* CUtensorMapInterleave */
       DRV_TENSOR_SWIZZLE_0 = 0, /* CUtensorMapSwizzle; 32, 64 and 128 bytes follow */
       DRV_TENSOR_SWIZZLE_128 = 3,
       DRV_TENSOR_L2_256 = 3, /* CUtensorMapL2promotion */
       DRV_TENSOR_ZEROS = 0   /* CUtensorMapFloatOOBfill */
};

typedef struct DrvTensorMap { /* CUtensorMap */
    _Alignas(128) uint64_t opaque[16];
} DrvTensorMap;

typedef union DrvLaunchValue { /* CUlaunchAttributeValue */
    char pad[64];
    int programmatic_stream_serialization;
    struct {
        unsigned x, y, z;
    } cluster;
    void *align;
} DrvLaunchValue;

typedef struct DrvLaunchAttribute { /* CUlaunchAttribute */
    int id;
    char pad[4];
    DrvLaunchValue value;
} DrvLaunchAttribute;

typedef struct DrvLaunchConfig { /* CUlaunchConfig */
    unsigned grid_x, grid_y, grid_z;
    unsigned block_x, block_y, block_z;
    unsigned shared_bytes;
    DrvStream stream;
    DrvLaunchAttribute *attrs;
    unsigned num_attrs;
} DrvLaunchConfig;

/* FN(field of Driver, exported symbol, parameters). All return DrvResult. */
/* clang-format off */
#define DRIVER_FUNCTIONS(FN)                                                                       \
    FN(cuInit, "cuInit", (unsigned flags))                                                         \
    FN(cuDriverGetVersion, "cuDriverGetVersion", (int *version))                                   \
    FN(cuGetErrorName, "cuGetErrorName", (DrvResult error, const char **name))                     \
    FN(cuGetErrorString, "cuGetErrorString", (DrvResult error, const char **text))                 \
    FN(cuDeviceGetCount, "cuDeviceGetCount", (int *count))                                         \
    FN(cuDeviceGet, "cuDeviceGet", (DrvDevice *device, int ordinal))                               \
    FN(cuDeviceGetName, "cuDeviceGetName", (char *name, int size, DrvDevice device))               \
    FN(cuDeviceGetAttribute, "cuDeviceGetAttribute",                                               \
       (int *value, int attribute, DrvDevice device))                                              \
    FN(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain",                                       \
       (DrvContext *context, DrvDevice device))                                                    \
    FN(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", (DrvDevice device))              \
    FN(cuCtxPushCurrent, "cuCtxPushCurrent_v2", (DrvContext context))                              \
    FN(cuCtxPopCurrent, "cuCtxPopCurrent_v2", (DrvContext *context))                               \
    FN(cuModuleLoadDataEx, "cuModuleLoadDataEx",                                                   \
       (DrvModule *module, const void *image, unsigned num_options, int *option, void **value))    \
    FN(cuModuleUnload, "cuModuleUnload", (DrvModule module))                                       \
    FN(cuModuleGetFunction, "cuModuleGetFunction",                                                 \
       (DrvFunction *function, DrvModule module, const char *name))                                \
    FN(cuFuncSetAttribute, "cuFuncSetAttribute", (DrvFunction function, int attribute, int value)) \
    FN(cuMemGetInfo, "cuMemGetInfo_v2", (size_t *free, size_t *total))                             \
    FN(cuMemAlloc, "cuMemAlloc_v2", (DrvAddress *address, size_t size))                            \
    FN(cuMemFree, "cuMemFree_v2", (DrvAddress address))                                            \
    FN(cuMemHostAlloc, "cuMemHostAlloc", (void **memory, size_t size, unsigned flags))             \
    FN(cuMemFreeHost, "cuMemFreeHost", (void *memory))                                             \
    FN(cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2",                                                  \
       (DrvAddress to, const void *from, size_t size, DrvStream stream))                           \
    FN(cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2",                                                  \
       (void *to, DrvAddress from, size_t size, DrvStream stream))                                 \
    FN(cuMemcpyAsync, "cuMemcpyAsync",                                                             \
       (DrvAddress to, DrvAddress from, size_t size, DrvStream stream))                            \
    FN(cuMemsetD8Async, "cuMemsetD8Async",                                                         \
       (DrvAddress to, unsigned char value, size_t size, DrvStream stream))                        \
    FN(cuPointerGetAttributes, "cuPointerGetAttributes",                                           \
       (unsigned num, int *attribute, void **value, DrvAddress address))                           \
    FN(cuStreamCreate, "cuStreamCreate", (DrvStream *stream, unsigned flags))                      \
    FN(cuStreamDestroy, "cuStreamDestroy_v2", (DrvStream stream))                                  \
    FN(cuStreamSynchronize, "cuStreamSynchronize", (DrvStream stream))                             \
    FN(cuStreamWaitEvent, "cuStreamWaitEvent",                                                     \
       (DrvStream stream, DrvEvent event, unsigned flags))                                         \
    FN(cuStreamBeginCapture, "cuStreamBeginCapture_v2", (DrvStream stream, int mode))              \
    FN(cuStreamEndCapture, "cuStreamEndCapture", (DrvStream stream, DrvGraph *graph))              \
    FN(cuGraphInstantiate, "cuGraphInstantiateWithFlags",                                          \
       (DrvGraphExec *exec, DrvGraph graph, unsigned long long flags))                             \
    FN(cuGraphUpload, "cuGraphUpload", (DrvGraphExec exec, DrvStream stream))                      \
    FN(cuGraphLaunch, "cuGraphLaunch", (DrvGraphExec exec, DrvStream stream))                      \
    FN(cuGraphDestroy, "cuGraphDestroy", (DrvGraph graph))                                         \
    FN(cuGraphExecDestroy, "cuGraphExecDestroy", (DrvGraphExec exec))                              \
    FN(cuTensorMapEncodeTiled, "cuTensorMapEncodeTiled",                                           \
       (DrvTensorMap *map, int type, unsigned rank, void *address, const uint64_t *dim,            \
        const uint64_t *stride, const unsigned *box, const unsigned *step, int interleave,         \
        int swizzle, int promotion, int fill))                                                     \
    FN(cuLaunchKernelEx, "cuLaunchKernelEx",                                                       \
       (const DrvLaunchConfig *config, DrvFunction function, void **params, void **extra))         \
    FN(cuEventCreate, "cuEventCreate", (DrvEvent *event, unsigned flags))                          \
    FN(cuEventRecord, "cuEventRecord", (DrvEvent event, DrvStream stream))                         \
    FN(cuEventSynchronize, "cuEventSynchronize", (DrvEvent event))                                 \
    FN(cuEventElapsedTime, "cuEventElapsedTime", (float *ms, DrvEvent begin, DrvEvent end))        \
    FN(cuEventDestroy, "cuEventDestroy_v2", (DrvEvent event))
/* clang-format on */

typedef struct Driver {
    void *library;
    int version; /* 12080: CUDA 12.8 */
#define DRIVER_FIELD(field, symbol, params) DrvResult(*field) params;
    DRIVER_FUNCTIONS(DRIVER_FIELD)
#undef DRIVER_FIELD
} Driver;

#endif
