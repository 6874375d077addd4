/* Tensors of other frameworks: DLPack's descriptions read as ours, and memory of ours described so.
 *
 * A Memory is what tensors lie in, counted: each tensor that goes out (a View) holds one reference,
 * and the memory holds one of its model or session, so that nobody's order of closing matters. */
#include "runtime/device.h"
#include "runtime/sinter_dlpack.h"

#include <stdlib.h>
#include <string.h>

#define HOST_ALIGN 64

static const struct DtypeRow {
    SinterDtype dtype;
    uint8_t code, bits;
} dtype_row[] = {{SINTER_F32, kDLFloat, 32},
                 {SINTER_F16, kDLFloat, 16},
                 {SINTER_BF16, kDLBfloat, 16},
                 {SINTER_I32, kDLInt, 32}};

/* In ------------------------------------------------------------------------------------------- */

static const char *shown(const char *name)
{
    return name ? name : "a tensor";
}

static SinterStatus read_dtype(const char *name, DLDataType type, SinterDtype *ret,
                               SinterError *err)
{
    static const char *const kind[] = {"int",    "uint",    "float", "handle",
                                       "bfloat", "complex", "bool"};
    for (size_t i = 0; i < COUNT_OF(dtype_row); i++)
        if (type.lanes == 1 && type.code == dtype_row[i].code && type.bits == dtype_row[i].bits) {
            *ret = dtype_row[i].dtype;
            return SINTER_OK;
        }
    return model_fail(err, SINTER_ERROR_ARGUMENT,
                      "%s has elements of type %s%d%s; ports take float32, float16, bfloat16 and "
                      "int32, so convert it first",
                      shown(name), type.code < COUNT_OF(kind) ? kind[type.code] : "special",
                      type.bits, type.lanes == 1 ? "" : " in vectors");
}

static const char *device_text(DLDevice device, char buf[32])
{
    switch ((int)device.device_type) {
    case kDLCPU: return "cpu";
    case kDLCUDAHost: return "pinned memory";
    case kDLCUDA:
    case kDLCUDAManaged: snprintf(buf, 32, "cuda:%d", (int)device.device_id); return buf;
    default: snprintf(buf, 32, "DLPack's device %d", (int)device.device_type); return buf;
    }
}

static SinterStatus check_device(const SinterSession *session, const char *name, DLDevice device,
                                 SinterError *err)
{
    const SessionDevice on = session_device(session);
    char buf[32];
    bool is_gpu = on.device == &device_cuda;
    switch ((int)device.device_type) {
    case kDLCPU:
    case kDLCUDAHost: return SINTER_OK; /* a session on a GPU copies it in and out */
    case kDLCUDAManaged:
        if (is_gpu)
            return SINTER_OK;
        break;
    case kDLCUDA:
        if (is_gpu && device.device_id == on.ordinal)
            return SINTER_OK;
        break;
    default: break;
    }
    return model_fail(err, SINTER_ERROR_ARGUMENT,
                      "%s lies on %s, but the session runs on %s; move it there, or make a session "
                      "on its device",
                      shown(name), device_text(device, buf), sinter_session_device(session));
}

/* Strides of dimensions that have one element, or of tensors that have none, mean nothing. */
static bool is_row_major(const DLTensor *t)
{
    int64_t want = 1;
    for (int i = 0; i < t->ndim; i++)
        if (t->shape[i] == 0)
            return true;
    for (int i = t->ndim - 1; t->strides && i >= 0; i--) {
        if (t->shape[i] != 1 && t->strides[i] != want)
            return false;
        if (__builtin_mul_overflow(want, t->shape[i], &want))
            return false;
    }
    return true;
}

static SinterStatus import(const SinterSession *session, const char *name, const DLTensor *from,
                           SinterTensor *ret, SinterError *err)
{
    *ret = (SinterTensor){.name = name};
    if (from->ndim < 0 || from->ndim > SINTER_MAX_RANK || (from->ndim && !from->shape))
        return model_fail(err, SINTER_ERROR_ARGUMENT, "%s has %d dimensions; at most %d are known",
                          shown(name), (int)from->ndim, SINTER_MAX_RANK);
    SinterStatus status = read_dtype(name, from->dtype, &ret->dtype, err);
    if (!status)
        status = check_device(session, name, from->device, err);
    if (status)
        return status;
    if (!is_row_major(from))
        return model_fail(err, SINTER_ERROR_ARGUMENT,
                          "%s is not row-major and contiguous; copy it first (numpy: "
                          "ascontiguousarray, torch: contiguous)",
                          shown(name));
    ret->rank = from->ndim;
    for (int i = 0; i < from->ndim; i++)
        ret->dim[i] = from->shape[i];
    ret->data = from->data ? (char *)from->data + from->byte_offset : NULL;
    return SINTER_OK;
}

static SinterStatus is_null(SinterError *err)
{
    return model_fail(err, SINTER_ERROR_ARGUMENT,
                      "the session, the tensor or the place for the result is NULL");
}

SinterStatus sinter_dlpack_import(const SinterSession *session, int is_output, const char *name,
                                  const DLManagedTensorVersioned *from, SinterTensor *ret,
                                  SinterError *err)
{
    if (!session || !from || !ret)
        return is_null(err);
    *ret = (SinterTensor){.name = name};
    if (from->version.major != DLPACK_MAJOR_VERSION)
        return model_fail(err, SINTER_ERROR_UNSUPPORTED,
                          "%s is described in DLPack %u.%u, but this library knows %d.x",
                          shown(name), (unsigned)from->version.major, (unsigned)from->version.minor,
                          DLPACK_MAJOR_VERSION);
    if (is_output && from->flags & DLPACK_FLAG_BITMASK_READ_ONLY)
        return model_fail(err, SINTER_ERROR_ARGUMENT,
                          "%s is an output, but its memory is read only", shown(name));
    return import(session, name, &from->dl_tensor, ret, err);
}

SinterStatus sinter_dlpack_import_legacy(const SinterSession *session, int is_output,
                                         const char *name, const DLManagedTensor *from,
                                         SinterTensor *ret, SinterError *err)
{
    (void)is_output; /* these do not say whether they are read only */
    if (!session || !from || !ret)
        return is_null(err);
    return import(session, name, &from->dl_tensor, ret, err);
}

/* Out ------------------------------------------------------------------------------------------ */

typedef struct Memory {
    int refs; /* atomic */
    void *address;
    SinterModel *model;     /* held; NULL: the session is */
    SinterSession *session; /* held, and the memory is its own; or NULL */
    const Device *device;
    void *owner; /* what device->free wants; NULL: host memory */
} Memory;

typedef struct View { /* one tensor that went out, in either form */
    Memory *memory;
    int64_t dim[SINTER_MAX_RANK], stride[SINTER_MAX_RANK];
    DLManagedTensorVersioned versioned;
    DLManagedTensor legacy;
} View;

static void memory_drop(Memory *m)
{
    if (__atomic_sub_fetch(&m->refs, 1, __ATOMIC_ACQ_REL))
        return;
    if (m->owner)
        m->device->free(m->owner, m->address);
    else if (!m->session)
        free(m->address);
    sinter_session_destroy(m->session);
    sinter_close(m->model);
    free(m);
}

static void view_free(View *v)
{
    memory_drop(v->memory);
    free(v);
}

static void delete_versioned(DLManagedTensorVersioned *self)
{
    view_free(self->manager_ctx);
}

static void delete_legacy(DLManagedTensor *self)
{
    view_free(self->manager_ctx);
}

/* Takes over the caller's reference of the memory; NULL: no memory, and the reference is dropped.
 * The strides are written out, because consumers need not know what NULL means there. */
static View *view_new(Memory *memory, const DLTensor *like)
{
    View *v = calloc(1, sizeof *v);
    if (!v) {
        memory_drop(memory);
        return NULL;
    }
    v->memory = memory;
    int64_t stride = 1;
    for (int i = like->ndim - 1; i >= 0; i--) {
        v->dim[i] = like->shape[i];
        v->stride[i] = stride;
        stride *= like->shape[i] ? like->shape[i] : 1;
    }
    v->versioned = (DLManagedTensorVersioned){
        .version = {DLPACK_MAJOR_VERSION, 1}, .manager_ctx = v, .deleter = delete_versioned};
    v->versioned.dl_tensor = *like;
    v->versioned.dl_tensor.shape = v->dim;
    v->versioned.dl_tensor.strides = v->stride;
    v->legacy = (DLManagedTensor){
        .dl_tensor = v->versioned.dl_tensor, .manager_ctx = v, .deleter = delete_legacy};
    return v;
}

static SinterStatus dlpack_bytes(const SinterTensor *t, uint64_t *ret, SinterError *err)
{
    FormatId fmt = format_of_dtype(t->dtype);
    if (fmt == FMT_NONE || t->rank < 0 || t->rank > SINTER_MAX_RANK)
        return model_fail(err, SINTER_ERROR_ARGUMENT, "dtype %d and rank %d describe no tensor",
                          (int)t->dtype, t->rank);
    *ret = (uint64_t)format_info[fmt].bits / 8;
    for (int i = 0; i < t->rank; i++)
        if (t->dim[i] < 0 || !checked_mul(*ret, (uint64_t)t->dim[i], ret))
            return model_fail(err, SINTER_ERROR_ARGUMENT, "the size of %s overflows",
                              shown(t->name));
    return SINTER_OK;
}

static SinterStatus finish(const SinterSession *session, const SinterTensor *tensor, Memory *memory,
                           DLManagedTensorVersioned **ret, SinterError *err)
{
    const SessionDevice on = session_device(session);
    bool is_gpu = on.device == &device_cuda;
    int64_t shape[SINTER_MAX_RANK] = {0};
    memcpy(shape, tensor->dim, sizeof shape);
    DLTensor t = {.data = memory->address, .ndim = tensor->rank, .shape = shape};
    t.device = (DLDevice){is_gpu ? kDLCUDA : kDLCPU, is_gpu ? on.ordinal : 0};
    for (size_t i = 0; i < COUNT_OF(dtype_row); i++)
        if (dtype_row[i].dtype == tensor->dtype)
            t.dtype = (DLDataType){dtype_row[i].code, dtype_row[i].bits, 1};
    View *v = view_new(memory, &t);
    if (!v)
        return model_fail(err, SINTER_ERROR_MEMORY, "memory is exhausted");
    *ret = &v->versioned;
    return SINTER_OK;
}

SinterStatus sinter_dlpack_create(SinterSession *session, const SinterTensor *like,
                                  DLManagedTensorVersioned **ret, SinterError *err)
{
    if (!session || !ret)
        return is_null(err);
    const SessionDevice on = session_device(session);
    uint64_t bytes;
    *ret = NULL;
    SinterStatus status = dlpack_bytes(like, &bytes, err);
    if (status)
        return status;
    Memory *m = calloc(1, sizeof *m);
    if (!m)
        return model_fail(err, SINTER_ERROR_MEMORY, "memory is exhausted");
    *m = (Memory){.refs = 1, .device = on.device};
    if (on.device->alloc)
        status = on.device->alloc(on.state, bytes, &m->address, &m->owner, err);
    else if (!checked_align(bytes ? bytes : 1, HOST_ALIGN, &bytes) || bytes > SIZE_MAX ||
             !(m->address = aligned_alloc(HOST_ALIGN, (size_t)bytes)))
        status = model_fail(err, SINTER_ERROR_MEMORY, "no memory for %llu bytes of %s",
                            (unsigned long long)bytes, shown(like->name));
    if (status) {
        free(m);
        return status;
    }
    m->model = on.model;
    model_hold(m->model);
    return finish(session, like, m, ret, err);
}

SinterStatus sinter_dlpack_port(SinterSession *session, int is_output, int index,
                                const int64_t *symbol_size, DLManagedTensorVersioned **ret,
                                SinterError *err)
{
    if (!session || !ret)
        return is_null(err);
    SinterTensor tensor = {0};
    uint64_t bytes = 0, room;
    void *address;
    *ret = NULL;
    SinterStatus status = sinter_port_memory(session, is_output, index, &address, &room, err);
    if (!status)
        status = sinter_port_shape(session_device(session).model, is_output, index, symbol_size,
                                   &tensor, err);
    if (!status)
        status = dlpack_bytes(&tensor, &bytes, err);
    if (!status && bytes > room)
        status = model_fail(err, SINTER_ERROR_ARGUMENT,
                            "\"%s\" has %llu bytes for these sizes, but the session's memory, made "
                            "for the largest bucket, has %llu",
                            tensor.name, (unsigned long long)bytes, (unsigned long long)room);
    if (status)
        return status;
    Memory *m = calloc(1, sizeof *m);
    if (!m)
        return model_fail(err, SINTER_ERROR_MEMORY, "memory is exhausted");
    *m = (Memory){.refs = 1, .address = address, .session = session};
    session_hold(session);
    return finish(session, &tensor, m, ret, err);
}

static SinterStatus share(const DLManagedTensorVersioned *of, View **ret, SinterError *err)
{
    *ret = NULL;
    if (of->version.major != DLPACK_MAJOR_VERSION || of->deleter != delete_versioned)
        return model_fail(err, SINTER_ERROR_ARGUMENT, "the tensor was not made by this library");
    const View *from = of->manager_ctx;
    __atomic_add_fetch(&from->memory->refs, 1, __ATOMIC_RELAXED);
    *ret = view_new(from->memory, &of->dl_tensor);
    return *ret ? SINTER_OK : model_fail(err, SINTER_ERROR_MEMORY, "memory is exhausted");
}

SinterStatus sinter_dlpack_share(const DLManagedTensorVersioned *of, DLManagedTensorVersioned **ret,
                                 SinterError *err)
{
    if (!of || !ret)
        return is_null(err);
    View *v;
    SinterStatus status = share(of, &v, err);
    *ret = v ? &v->versioned : NULL;
    return status;
}

SinterStatus sinter_dlpack_share_legacy(const DLManagedTensorVersioned *of, DLManagedTensor **ret,
                                        SinterError *err)
{
    if (!of || !ret)
        return is_null(err);
    View *v;
    SinterStatus status = share(of, &v, err);
    *ret = v ? &v->legacy : NULL;
    return status;
}
