/* Tensors of other frameworks, without copies: DLPack 1.x in and out, beside sinter.h.
 *
 * The structures below are those of the DLPack specification
 * (https://dmlc.github.io/dlpack/latest/c_api.html), declared here so that nothing else is needed.
 * A program that has dlpack.h of its own includes it first, and its declarations are used. */
#ifndef SINTER_DLPACK_H
#define SINTER_DLPACK_H

#include "sinter.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifndef DLPACK_DLPACK_H_
#define DLPACK_DLPACK_H_

#define DLPACK_MAJOR_VERSION 1
#define DLPACK_MINOR_VERSION 1

#define DLPACK_FLAG_BITMASK_READ_ONLY              (1UL << 0UL)
#define DLPACK_FLAG_BITMASK_IS_COPIED              (1UL << 1UL)
#define DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED (1UL << 2UL)

typedef struct {
    uint32_t major, minor;
} DLPackVersion;

#ifdef __cplusplus
typedef enum : int32_t {
#else
typedef enum {
#endif
    kDLCPU = 1,
    kDLCUDA = 2,
    kDLCUDAHost = 3, /* host memory that the GPU reads, pinned */
    kDLOpenCL = 4,
    kDLVulkan = 7,
    kDLMetal = 8,
    kDLVPI = 9,
    kDLROCM = 10,
    kDLROCMHost = 11,
    kDLExtDev = 12,
    kDLCUDAManaged = 13,
    kDLOneAPI = 14,
    kDLWebGPU = 15,
    kDLHexagon = 16,
    kDLMAIA = 17,
    kDLTrn = 18
} DLDeviceType;

typedef struct {
    DLDeviceType device_type;
    int32_t device_id;
} DLDevice;

typedef enum {
    kDLInt = 0U,
    kDLUInt = 1U,
    kDLFloat = 2U,
    kDLOpaqueHandle = 3U,
    kDLBfloat = 4U,
    kDLComplex = 5U,
    kDLBool = 6U,
    kDLFloat8_e3m4 = 7U,
    kDLFloat8_e4m3 = 8U,
    kDLFloat8_e4m3b11fnuz = 9U,
    kDLFloat8_e4m3fn = 10U,
    kDLFloat8_e4m3fnuz = 11U,
    kDLFloat8_e5m2 = 12U,
    kDLFloat8_e5m2fnuz = 13U,
    kDLFloat8_e8m0fnu = 14U,
    kDLFloat6_e2m3fn = 15U,
    kDLFloat6_e3m2fn = 16U,
    kDLFloat4_e2m1fn = 17U
} DLDataTypeCode;

typedef struct {
    uint8_t code, bits; /* a DLDataTypeCode */
    uint16_t lanes;
} DLDataType;

typedef struct {
    void *data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape;
    int64_t *strides; /* in elements; NULL: row-major, contiguous */
    uint64_t byte_offset;
} DLTensor;

typedef struct DLManagedTensor { /* of DLPack before 1.0 */
    DLTensor dl_tensor;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensor *self);
} DLManagedTensor;

typedef struct DLManagedTensorVersioned {
    DLPackVersion version;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensorVersioned *self);
    uint64_t flags;
    DLTensor dl_tensor;
} DLManagedTensorVersioned;

#endif /* DLPACK_DLPACK_H_ */

/* In: describes `from` as a tensor for sinter_run and sinter_run_async of this session; `name` is
 * the port's, or NULL. Nothing is copied and nothing is taken over: `from` stays the caller's, and
 * must live until the run has ended. Refused are elements that no port has, memory that the
 * session's device does not reach, strides other than row-major, an output that is read only, and
 * versions other than 1.x. */
SINTER_API SinterStatus sinter_dlpack_import(const SinterSession *session, int is_output,
                                             const char *name,
                                             const struct DLManagedTensorVersioned *from,
                                             SinterTensor *ret, SinterError *err);
SINTER_API SinterStatus sinter_dlpack_import_legacy(const SinterSession *session, int is_output,
                                                    const char *name,
                                                    const struct DLManagedTensor *from,
                                                    SinterTensor *ret, SinterError *err);

/* Out: a tensor of the elements and shape of `like` (of which sinter_output_shapes and
 * sinter_port_shape fill one) on the session's device, not cleared. It is the caller's or whoever
 * takes it over, and ends by its deleter, on any thread, also after the session and the model were
 * closed. */
SINTER_API SinterStatus sinter_dlpack_create(SinterSession *session, const SinterTensor *like,
                                             struct DLManagedTensorVersioned **ret,
                                             SinterError *err);
/* A tensor over the session's own memory for port `index`, for given sizes of all symbols
 * (sinter_symbol), which a run neither copies in nor out (see sinter_port_memory). The session
 * lives on until the deleter is called. GPUs only. */
SINTER_API SinterStatus sinter_dlpack_port(SinterSession *session, int is_output, int index,
                                           const int64_t *symbol_size,
                                           struct DLManagedTensorVersioned **ret, SinterError *err);
/* Another tensor over the memory of one that sinter_dlpack_create, sinter_dlpack_port or this call
 * made: each has its deleter, and the last one frees the memory. */
SINTER_API SinterStatus sinter_dlpack_share(const struct DLManagedTensorVersioned *of,
                                            struct DLManagedTensorVersioned **ret,
                                            SinterError *err);
SINTER_API SinterStatus sinter_dlpack_share_legacy(const struct DLManagedTensorVersioned *of,
                                                   struct DLManagedTensor **ret, SinterError *err);

#ifdef __cplusplus
}
#endif

#endif
