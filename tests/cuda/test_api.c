/* runtime/cuda_api.h against NVIDIA's cuda.h: values and layouts when this is compiled, versions of
 * functions when it runs. TAP. */
#include "runtime/cuda_api.h"

#include <cuda.h>
#include <stdio.h>
#include <string.h>

#define SAME_VALUE(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #theirs)
#define SAME_ERROR(name)         SAME_VALUE(DRV_##name, CUDA_##name)
#define SAME_FIELD(ours, a, theirs, b)                                     \
    _Static_assert(offsetof(ours, a) == offsetof(theirs, b) &&             \
                       sizeof(((ours *)0)->a) == sizeof(((theirs *)0)->b), \
                   #theirs "." #b)

SAME_ERROR(SUCCESS);
SAME_ERROR(ERROR_INVALID_VALUE);
SAME_ERROR(ERROR_OUT_OF_MEMORY);
SAME_ERROR(ERROR_NOT_INITIALIZED);
SAME_ERROR(ERROR_DEINITIALIZED);
SAME_ERROR(ERROR_STUB_LIBRARY);
SAME_ERROR(ERROR_DEVICE_UNAVAILABLE);
SAME_ERROR(ERROR_NO_DEVICE);
SAME_ERROR(ERROR_INVALID_DEVICE);
SAME_ERROR(ERROR_INVALID_IMAGE);
SAME_ERROR(ERROR_INVALID_CONTEXT);
SAME_ERROR(ERROR_NO_BINARY_FOR_GPU);
SAME_ERROR(ERROR_ECC_UNCORRECTABLE);
SAME_ERROR(ERROR_INVALID_PTX);
SAME_ERROR(ERROR_NVLINK_UNCORRECTABLE);
SAME_ERROR(ERROR_JIT_COMPILER_NOT_FOUND);
SAME_ERROR(ERROR_UNSUPPORTED_PTX_VERSION);
SAME_ERROR(ERROR_INVALID_HANDLE);
SAME_ERROR(ERROR_NOT_FOUND);
SAME_ERROR(ERROR_NOT_READY);
SAME_ERROR(ERROR_ILLEGAL_ADDRESS);
SAME_ERROR(ERROR_LAUNCH_OUT_OF_RESOURCES);
SAME_ERROR(ERROR_LAUNCH_TIMEOUT);
SAME_ERROR(ERROR_CONTEXT_IS_DESTROYED);
SAME_ERROR(ERROR_ASSERT);
SAME_ERROR(ERROR_HARDWARE_STACK_ERROR);
SAME_ERROR(ERROR_ILLEGAL_INSTRUCTION);
SAME_ERROR(ERROR_MISALIGNED_ADDRESS);
SAME_ERROR(ERROR_INVALID_ADDRESS_SPACE);
SAME_ERROR(ERROR_INVALID_PC);
SAME_ERROR(ERROR_LAUNCH_FAILED);
SAME_ERROR(ERROR_NOT_PERMITTED);
SAME_ERROR(ERROR_NOT_SUPPORTED);
SAME_ERROR(ERROR_SYSTEM_NOT_READY);
SAME_ERROR(ERROR_SYSTEM_DRIVER_MISMATCH);
SAME_ERROR(ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE);
SAME_ERROR(ERROR_STREAM_CAPTURE_UNSUPPORTED);
SAME_ERROR(ERROR_STREAM_CAPTURE_INVALIDATED);
SAME_ERROR(ERROR_UNKNOWN);

SAME_VALUE(DRV_DEVICE_MULTIPROCESSOR_COUNT, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME_VALUE(DRV_DEVICE_L2_CACHE_SIZE, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
SAME_VALUE(DRV_DEVICE_COMPUTE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME_VALUE(DRV_DEVICE_COMPUTE_CAPABILITY_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME_VALUE(DRV_DEVICE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
           CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
SAME_VALUE(DRV_FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
SAME_VALUE(DRV_POINTER_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
SAME_VALUE(DRV_MEMORY_HOST, CU_MEMORYTYPE_HOST);
SAME_VALUE(DRV_MEMORY_DEVICE, CU_MEMORYTYPE_DEVICE);
SAME_VALUE(DRV_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER);
SAME_VALUE(DRV_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
SAME_VALUE(DRV_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
SAME_VALUE(DRV_EVENT_DEFAULT, CU_EVENT_DEFAULT);
SAME_VALUE(DRV_EVENT_DISABLE_TIMING, CU_EVENT_DISABLE_TIMING);
SAME_VALUE(DRV_STREAM_CAPTURE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
SAME_VALUE(DRV_LAUNCH_PROGRAMMATIC_STREAM_SERIALIZATION,
           CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
SAME_VALUE(DRV_LAUNCH_CLUSTER_DIMENSION, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
SAME_VALUE(DRV_TENSOR_UINT8, CU_TENSOR_MAP_DATA_TYPE_UINT8);
SAME_VALUE(DRV_TENSOR_UINT16, CU_TENSOR_MAP_DATA_TYPE_UINT16);
SAME_VALUE(DRV_TENSOR_UINT32, CU_TENSOR_MAP_DATA_TYPE_UINT32);
SAME_VALUE(DRV_TENSOR_PLAIN, CU_TENSOR_MAP_INTERLEAVE_NONE);
SAME_VALUE(DRV_TENSOR_SWIZZLE_0, CU_TENSOR_MAP_SWIZZLE_NONE);
SAME_VALUE(DRV_TENSOR_SWIZZLE_0 + 1, CU_TENSOR_MAP_SWIZZLE_32B);
SAME_VALUE(DRV_TENSOR_SWIZZLE_0 + 2, CU_TENSOR_MAP_SWIZZLE_64B);
SAME_VALUE(DRV_TENSOR_SWIZZLE_128, CU_TENSOR_MAP_SWIZZLE_128B);
SAME_VALUE(DRV_TENSOR_L2_256, CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
SAME_VALUE(DRV_TENSOR_ZEROS, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
_Static_assert(sizeof(DrvTensorMap) == sizeof(CUtensorMap) &&
                   _Alignof(DrvTensorMap) >= _Alignof(CUtensorMap), /* 64 before CUDA 13 */
               "CUtensorMap");

_Static_assert(sizeof(DrvLaunchConfig) == sizeof(CUlaunchConfig), "CUlaunchConfig");
SAME_FIELD(DrvLaunchConfig, grid_x, CUlaunchConfig, gridDimX);
SAME_FIELD(DrvLaunchConfig, grid_y, CUlaunchConfig, gridDimY);
SAME_FIELD(DrvLaunchConfig, grid_z, CUlaunchConfig, gridDimZ);
SAME_FIELD(DrvLaunchConfig, block_x, CUlaunchConfig, blockDimX);
SAME_FIELD(DrvLaunchConfig, block_y, CUlaunchConfig, blockDimY);
SAME_FIELD(DrvLaunchConfig, block_z, CUlaunchConfig, blockDimZ);
SAME_FIELD(DrvLaunchConfig, shared_bytes, CUlaunchConfig, sharedMemBytes);
SAME_FIELD(DrvLaunchConfig, stream, CUlaunchConfig, hStream);
SAME_FIELD(DrvLaunchConfig, attrs, CUlaunchConfig, attrs);
SAME_FIELD(DrvLaunchConfig, num_attrs, CUlaunchConfig, numAttrs);
_Static_assert(sizeof(DrvLaunchAttribute) == sizeof(CUlaunchAttribute), "CUlaunchAttribute");
SAME_FIELD(DrvLaunchAttribute, id, CUlaunchAttribute, id);
SAME_FIELD(DrvLaunchAttribute, value, CUlaunchAttribute, value);
SAME_FIELD(DrvLaunchValue, programmatic_stream_serialization, CUlaunchAttributeValue,
           programmaticStreamSerializationAllowed);
SAME_FIELD(DrvLaunchValue, cluster, CUlaunchAttributeValue, clusterDim);
_Static_assert(sizeof(DrvAddress) == sizeof(CUdeviceptr) && sizeof(DrvDevice) == sizeof(CUdevice) &&
                   sizeof(DrvResult) == sizeof(CUresult) && sizeof(void *) == sizeof(CUstream),
               "handles");

#define STRING(x)   #x
#define EXPANDED(x) STRING(x)

/* cuda.h renames functions to the version that its types belong to. */
static const struct {
    const char *ours, *theirs;
} symbols[] = {
#define ROW(field, symbol, params) {symbol, EXPANDED(field)},
    DRIVER_FUNCTIONS(ROW)
#undef ROW
};

/* Those that toolkits after 12.0 renamed once more; drivers keep the old ones. */
static int is_older(const char *ours, const char *theirs)
{
    return (!strcmp(ours, "cuEventElapsedTime") && !strcmp(theirs, "cuEventElapsedTime_v2")) ||
           (!strcmp(ours, "cuGraphInstantiateWithFlags") && !strcmp(theirs, "cuGraphInstantiate"));
}

int main(void)
{
    int num = (int)(sizeof symbols / sizeof symbols[0]), failed = 0;
    printf("1..%d\n", num);
    for (int i = 0; i < num; i++) {
        const char *ours = symbols[i].ours, *theirs = symbols[i].theirs;
        int ok = !strcmp(ours, theirs) || is_older(ours, theirs);
        failed += !ok;
        printf("%sok %d - %s is %s\n", ok ? "" : "not ", i + 1, ours, theirs);
    }
    return failed != 0;
}
