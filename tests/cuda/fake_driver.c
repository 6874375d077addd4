/* See fake_driver.h. Every function of the driver is a row of runtime/cuda_api.h; each begins by
 * asking `enter` whether it fails this time. Functions that free do so even then, as the driver
 * may.
 */
#include "fake_driver.h"
#include "fake_asked.h"
#include "fake_text.h"
#include "runtime/cuda_api.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT FakeReset fake_reset;
EXPORT FakeSetKernel fake_kernel;
EXPORT FakeGetCounts fake_counts;
EXPORT FakeGetLog fake_log;
EXPORT FakeAdvance fake_advance;
EXPORT FakeGetBusy fake_busy;

typedef enum Kind {
    KIND_CONTEXT = 1,
    KIND_MODULE,
    KIND_FUNCTION,
    KIND_STREAM,
    KIND_EVENT,
    KIND_GRAPH,
    KIND_EXEC
} Kind;

typedef struct Node { /* a captured launch */
    char name[64];
    FakeParams params;
} Node;

typedef struct Object {
    Kind kind;
    struct Object *next;   /* of all that are alive */
    struct Object *parent; /* function: its module */
    char name[64];         /* function */
    int shared;            /* function: dynamic shared memory allowed */
    struct Object *graph;  /* stream: being captured */
    int nodes;             /* graph, exec */
    Node *node;            /* likewise */
    int recorded;          /* event */
    double when_ms;        /* likewise */
    int device, retained;  /* context */
} Object;

typedef struct Block { /* device or pinned memory */
    struct Block *next;
    bool pinned;
    size_t size;
    uint8_t *data;
} Block;

static const FakeOptions defaults = {
    .version = 12080, .devices = 1, .capability = 90, .max_shared = 232448, .memory = 1u << 30};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static FakeOptions options;
static FakeCounts counts;
static Object *objects;
static Block *blocks;
static uint64_t allocated;
static int calls_of_function;
static FakeKernel *kernel_function;
static double clock_ms, idle_ms; /* now, and when the GPU last had nothing to do */
static __thread int capturing;   /* streams that this thread captures */
static __thread int pushed;

/* Bookkeeping ---------------------------------------------------------------------------------- */

void fake_reset(const FakeOptions *o)
{
    pthread_mutex_lock(&lock);
    options = o ? *o : defaults;
    FakeCounts alive = counts;
    counts = (FakeCounts){.memory = alive.memory,
                          .pinned = alive.pinned,
                          .modules = alive.modules,
                          .streams = alive.streams,
                          .events = alive.events,
                          .graphs = alive.graphs,
                          .execs = alive.execs,
                          .contexts = alive.contexts,
                          .pushed = alive.pushed};
    calls_of_function = 0;
    log_clear();
    pthread_mutex_unlock(&lock);
}

void fake_kernel(FakeKernel *kernel)
{
    pthread_mutex_lock(&lock);
    kernel_function = kernel;
    pthread_mutex_unlock(&lock);
}

FakeCounts fake_counts(void)
{
    pthread_mutex_lock(&lock);
    FakeCounts ret = counts;
    pthread_mutex_unlock(&lock);
    return ret;
}

void fake_advance(double ms)
{
    clock_ms += ms; /* the driver's lock is held while a kernel runs */
}

double fake_busy(void)
{
    return clock_ms - idle_ms; /* likewise */
}

const char *fake_log(void)
{
    return log_lines();
}

/* Locks; the result that the call must return, or success. */
static DrvResult enter(const char *function)
{
    pthread_mutex_lock(&lock);
    if (!options.version)
        options = defaults;
    counts.calls++;
    if (options.fail_function && strcmp(options.fail_function, function) != 0)
        return DRV_SUCCESS;
    if (++calls_of_function != options.fail_call)
        return DRV_SUCCESS;
    counts.failed = true;
    counts.failed_function = function;
    return options.fail_result;
}

static DrvResult leave(DrvResult result)
{
    pthread_mutex_unlock(&lock);
    return result;
}

static DrvResult misuse(const char *what)
{
    counts.misuse++;
    log_line("misuse: %s", what);
    return DRV_ERROR_INVALID_VALUE;
}

static int *count_of(Kind kind)
{
    switch (kind) {
    case KIND_CONTEXT: return &counts.contexts;
    case KIND_MODULE: return &counts.modules;
    case KIND_STREAM: return &counts.streams;
    case KIND_EVENT: return &counts.events;
    case KIND_GRAPH: return &counts.graphs;
    case KIND_EXEC: return &counts.execs;
    default: return NULL;
    }
}

static Object *object_new(Kind kind)
{
    Object *o = calloc(1, sizeof *o);
    if (!o)
        abort();
    o->kind = kind;
    o->next = objects;
    objects = o;
    if (count_of(kind))
        ++*count_of(kind);
    return o;
}

static Object *object_find(const void *handle, Kind kind)
{
    for (Object *o = objects; o; o = o->next)
        if (o == handle && o->kind == kind)
            return o;
    misuse("a handle that is not alive");
    return NULL;
}

static DrvResult object_free(const void *handle, Kind kind)
{
    Object **at = &objects;
    while (*at && (*at != handle || (*at)->kind != kind))
        at = &(*at)->next;
    Object *o = *at;
    if (!o)
        return misuse("a handle is freed that is not alive");
    *at = o->next;
    if (count_of(kind))
        --*count_of(kind);
    free(o->node);
    free(o);
    return DRV_SUCCESS;
}

static Block *block_find(const void *data, size_t size)
{
    for (Block *b = blocks; b; b = b->next)
        if ((const uint8_t *)data >= b->data && (const uint8_t *)data + size <= b->data + b->size)
            return b;
    return NULL;
}

static DrvResult block_new(size_t size, bool pinned, uint8_t **ret)
{
    if (size == 0)
        return misuse("no bytes are allocated");
    if (capturing)
        return misuse("memory is allocated during a capture");
    if (!pinned && size > options.memory - allocated)
        return DRV_ERROR_OUT_OF_MEMORY;
    Block *b = calloc(1, sizeof *b);
    void *data = NULL;
    if (!b || posix_memalign(&data, 512, size))
        abort();
    memset(data, 0xcd, size);
    *b = (Block){blocks, pinned, size, data};
    blocks = b;
    ++*(pinned ? &counts.pinned : &counts.memory);
    allocated += pinned ? 0 : size;
    *ret = data;
    return DRV_SUCCESS;
}

static DrvResult block_free(const void *data, bool pinned)
{
    Block **at = &blocks;
    while (*at && ((*at)->data != data || (*at)->pinned != pinned))
        at = &(*at)->next;
    Block *b = *at;
    if (!b)
        return misuse("memory is freed that is not allocated");
    *at = b->next;
    --*(pinned ? &counts.pinned : &counts.memory);
    allocated -= pinned ? 0 : b->size;
    free(b->data);
    free(b);
    return DRV_SUCCESS;
}

static DrvResult need_context(void)
{
    return pushed > 0 ? DRV_SUCCESS : misuse("there is no current context");
}

/* The functions -------------------------------------------------------------------------------- */

#define DECLARE(field, symbol, params) EXPORT DrvResult fake_##field params __asm__(symbol);
DRIVER_FUNCTIONS(DECLARE)
#undef DECLARE

DrvResult fake_cuInit(unsigned flags)
{
    DrvResult result = enter("cuInit");
    return leave(result || !flags ? result : misuse("flags of cuInit"));
}

DrvResult fake_cuDriverGetVersion(int *version)
{
    DrvResult result = enter("cuDriverGetVersion");
    if (!result)
        *version = options.version;
    return leave(result);
}

DrvResult fake_cuGetErrorName(DrvResult error, const char **name)
{
    *name = error == DRV_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_OF_A_TEST";
    return DRV_SUCCESS;
}

DrvResult fake_cuGetErrorString(DrvResult error, const char **text)
{
    (void)error;
    *text = "made up";
    return DRV_SUCCESS;
}

DrvResult fake_cuDeviceGetCount(int *count)
{
    DrvResult result = enter("cuDeviceGetCount");
    if (!result)
        *count = options.devices;
    return leave(result);
}

DrvResult fake_cuDeviceGet(DrvDevice *device, int ordinal)
{
    DrvResult result = enter("cuDeviceGet");
    if (!result && ordinal >= options.devices)
        result = DRV_ERROR_INVALID_DEVICE;
    if (!result)
        *device = 100 + ordinal;
    return leave(result);
}

DrvResult fake_cuDeviceGetName(char *name, int size, DrvDevice device)
{
    DrvResult result = enter("cuDeviceGetName");
    if (!result)
        snprintf(name, (size_t)size, "fake GPU %d", device - 100);
    return leave(result);
}

DrvResult fake_cuDeviceGetAttribute(int *value, int attribute, DrvDevice device)
{
    DrvResult result = enter("cuDeviceGetAttribute");
    (void)device;
    if (result)
        return leave(result);
    switch (attribute) {
    case DRV_DEVICE_MULTIPROCESSOR_COUNT: *value = 132; break;
    case DRV_DEVICE_L2_CACHE_SIZE: *value = 1 << 20; break;
    case DRV_DEVICE_COMPUTE_CAPABILITY_MAJOR:
        *value = asked_capability(options.capability) / 10;
        break;
    case DRV_DEVICE_COMPUTE_CAPABILITY_MINOR:
        *value = asked_capability(options.capability) % 10;
        break;
    case DRV_DEVICE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = options.max_shared; break;
    default: result = misuse("an attribute that the fake does not know");
    }
    return leave(result);
}

/* A device has one primary context, however often it is retained. */
static Object *primary(DrvDevice device)
{
    Object *o = objects;
    while (o && (o->kind != KIND_CONTEXT || o->device != device))
        o = o->next;
    return o;
}

DrvResult fake_cuDevicePrimaryCtxRetain(DrvContext *context, DrvDevice device)
{
    DrvResult result = enter("cuDevicePrimaryCtxRetain");
    if (!result && asked_gone())
        result = DRV_ERROR_UNKNOWN;
    if (result)
        return leave(result);
    Object *o = primary(device);
    if (!o)
        o = object_new(KIND_CONTEXT);
    o->device = device;
    o->retained++;
    *context = (DrvContext)(void *)o;
    return leave(result);
}

DrvResult fake_cuDevicePrimaryCtxRelease(DrvDevice device)
{
    DrvResult result = enter("cuDevicePrimaryCtxRelease_v2");
    Object *o = primary(device);
    if (!o)
        return leave(misuse("a context is released that is not retained"));
    if (--o->retained == 0)
        object_free(o, KIND_CONTEXT);
    return leave(result);
}

DrvResult fake_cuCtxPushCurrent(DrvContext context)
{
    DrvResult result = enter("cuCtxPushCurrent_v2");
    if (!result && object_find(context, KIND_CONTEXT)) {
        pushed++;
        counts.pushed++;
    }
    return leave(result);
}

DrvResult fake_cuCtxPopCurrent(DrvContext *context)
{
    DrvResult result = enter("cuCtxPopCurrent_v2");
    *context = NULL;
    if (pushed == 0)
        return leave(misuse("no context to pop"));
    pushed--;
    counts.pushed--;
    return leave(result);
}

DrvResult fake_cuModuleLoadDataEx(DrvModule *module, const void *image, unsigned num_options,
                                  int *option, void **value)
{
    DrvResult result = enter("cuModuleLoadDataEx");
    for (unsigned i = 0; result && i < num_options; i++)
        if (option[i] == DRV_JIT_ERROR_LOG_BUFFER)
            snprintf(value[i], 32, "a made-up log\nof two lines");
    if (!result)
        result = need_context();
    if (!result && capturing)
        result = misuse("a module is loaded during a capture");
    if (result)
        return leave(result);
    bool is_binary = !memcmp(image,
                             "\x7f"
                             "ELF",
                             4);
    *module = (DrvModule)(void *)object_new(KIND_MODULE);
    counts.loads++;
    log_line("load %s", is_binary ? "cubin" : "ptx");
    return leave(result);
}

DrvResult fake_cuModuleUnload(DrvModule module)
{
    DrvResult result = enter("cuModuleUnload");
    for (Object *o = objects, *next; o; o = next) {
        next = o->next;
        if (o->kind == KIND_FUNCTION && o->parent == (Object *)(void *)module)
            object_free(o, KIND_FUNCTION);
    }
    DrvResult freed = object_free(module, KIND_MODULE);
    return leave(result ? result : freed);
}

DrvResult fake_cuModuleGetFunction(DrvFunction *function, DrvModule module, const char *name)
{
    DrvResult result = enter("cuModuleGetFunction");
    Object *parent = result ? NULL : object_find(module, KIND_MODULE);
    if (parent) {
        Object *o = object_new(KIND_FUNCTION);
        o->parent = parent;
        o->shared = 48 << 10;
        snprintf(o->name, sizeof o->name, "%s", name);
        *function = (DrvFunction)(void *)o;
    }
    return leave(result);
}

DrvResult fake_cuFuncSetAttribute(DrvFunction function, int attribute, int value)
{
    DrvResult result = enter("cuFuncSetAttribute");
    Object *o = result ? NULL : object_find(function, KIND_FUNCTION);
    if (o && attribute == DRV_FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES && value <= options.max_shared)
        o->shared = value;
    else if (!result)
        result = misuse("an attribute of a function");
    return leave(result);
}

DrvResult fake_cuMemGetInfo(size_t *free_bytes, size_t *total)
{
    DrvResult result = enter("cuMemGetInfo_v2");
    if (!result) {
        *free_bytes = (size_t)(options.memory - allocated);
        *total = (size_t)options.memory;
    }
    return leave(result);
}

DrvResult fake_cuMemAlloc(DrvAddress *address, size_t size)
{
    DrvResult result = enter("cuMemAlloc_v2");
    uint8_t *data = NULL;
    if (!result)
        result = need_context();
    if (!result)
        result = block_new(size, false, &data);
    if (!result) {
        *address = (DrvAddress)(uintptr_t)data;
        log_line("alloc %zu", size);
    }
    return leave(result);
}

DrvResult fake_cuMemFree(DrvAddress address)
{
    DrvResult result = enter("cuMemFree_v2");
    DrvResult freed = block_free((const void *)(uintptr_t)address, false);
    return leave(result ? result : freed);
}

DrvResult fake_cuMemHostAlloc(void **memory, size_t size, unsigned flags)
{
    DrvResult result = enter("cuMemHostAlloc");
    uint8_t *data = NULL;
    (void)flags;
    if (!result)
        result = block_new(size, true, &data);
    if (!result)
        *memory = data;
    return leave(result);
}

DrvResult fake_cuMemFreeHost(void *memory)
{
    DrvResult result = enter("cuMemFreeHost");
    DrvResult freed = block_free(memory, true);
    return leave(result ? result : freed);
}

/* A copy or fill between pieces of memory; those that must be a device's are checked. */
static DrvResult transfer(const char *function, void *to, bool to_device, const void *from,
                          bool from_device, size_t size, DrvStream stream)
{
    DrvResult result = enter(function);
    if (!result && stream)
        result = object_find(stream, KIND_STREAM) ? DRV_SUCCESS : DRV_ERROR_INVALID_HANDLE;
    if (!result)
        result = need_context();
    if (!result &&
        ((to_device && !block_find(to, size)) || (from_device && !block_find(from, size))))
        result = misuse("a copy outside of device memory");
    if (result)
        return leave(result);
    if (from)
        memmove(to, from, size);
    else
        memset(to, 0, size);
    log_line("%s %zu",
             from ? to_device ? from_device ? "copy" : "to device" : "from device" : "zero", size);
    return leave(result);
}

DrvResult fake_cuMemcpyHtoDAsync(DrvAddress to, const void *from, size_t size, DrvStream stream)
{
    return transfer("cuMemcpyHtoDAsync_v2", (void *)(uintptr_t)to, true, from, false, size, stream);
}

DrvResult fake_cuMemcpyDtoHAsync(void *to, DrvAddress from, size_t size, DrvStream stream)
{
    return transfer("cuMemcpyDtoHAsync_v2", to, false, (const void *)(uintptr_t)from, true, size,
                    stream);
}

DrvResult fake_cuMemcpyAsync(DrvAddress to, DrvAddress from, size_t size, DrvStream stream)
{
    return transfer("cuMemcpyAsync", (void *)(uintptr_t)to, true, (const void *)(uintptr_t)from,
                    true, size, stream);
}

DrvResult fake_cuMemsetD8Async(DrvAddress to, unsigned char value, size_t size, DrvStream stream)
{
    if (value)
        abort(); /* the runtime only clears */
    return transfer("cuMemsetD8Async", (void *)(uintptr_t)to, true, NULL, false, size, stream);
}

DrvResult fake_cuPointerGetAttributes(unsigned num, int *attribute, void **value,
                                      DrvAddress address)
{
    DrvResult result = enter("cuPointerGetAttributes");
    if (result)
        return leave(result);
    const Block *b = block_find((const void *)(uintptr_t)address, 1);
    if (num != 1 || attribute[0] != DRV_POINTER_MEMORY_TYPE)
        return leave(misuse("an attribute of a pointer"));
    *(int *)value[0] = !b ? 0 : b->pinned ? DRV_MEMORY_HOST : DRV_MEMORY_DEVICE;
    return leave(result);
}

/* The parameters of a kernel whose name tells how many operands it has; false: they are wrong. */
#define MAP_MAGIC UINT64_C(0x70616d726f736e74)

/* Where kernels expect it: behind the operands; logged where there is something to fetch, with
 * whether the blocks of the very next launch have a processor each. */
static bool read_ahead(const void *params, const FakeParams *p)
{
    struct {
        const void *data;
        int64_t stride;
        int32_t runs, bytes;
        int64_t alone;
    } ahead;
    memcpy(&ahead, (const char *)params + (size_t)p->num_operands * sizeof p->operand[0],
           sizeof ahead);
    if (!ahead.runs)
        return true;
    for (int i = 0; i < p->num_operands; i++)
        if (ahead.data == p->operand[i].data)
            log_line("ahead %d runs of %d, %lld apart, of operand %d%s", ahead.runs, ahead.bytes,
                     (long long)ahead.stride, i, ahead.alone ? ", blocks alone" : "");
    return block_find(ahead.data, (uint64_t)((ahead.runs - 1) * ahead.stride + ahead.bytes)) !=
           NULL;
}

/* Where kernels expect it: at the next multiple of 128 bytes. */
static bool read_map(const void *params, const FakeParams *p)
{
    size_t at = (size_t)(p->num_operands + 1) * sizeof p->operand[0] + sizeof(int64_t);
    const uint64_t *map =
        (const uint64_t *)(const void *)((const char *)params + (at + 127) / 128 * 128);
    bool found = false;
    for (int i = 0; i < p->num_operands; i++)
        found = found || map[1] == (uint64_t)(uintptr_t)p->operand[i].data;
    return map[0] == MAP_MAGIC && found;
}

static bool read_params(const char *name, void *const *params, FakeParams *ret)
{
    const char *suffix = strrchr(name, '_');
    char *end = NULL;
    long num = suffix ? strtol(suffix + 1, &end, 10) : 0;
    *ret = (FakeParams){.count = -1};
    if (!suffix || num < 1 || num > 8 || *end)
        return true;
    bool mapped = strncmp(name, "mapped", 6) == 0;
    const char *sizes = (const char *)params[0] + (size_t)(num + mapped) * sizeof ret->operand[0];
    ret->num_operands = (int)num;
    memcpy(ret->operand, params[0], (size_t)num * sizeof ret->operand[0]);
    memcpy(&ret->count, sizes, sizeof ret->count);
    memcpy(ret->size, sizes, sizeof ret->size);
    for (int i = 0; i < (int)num; i++) {
        const Block *b = block_find(ret->operand[i].data, 1);
        if (!b)
            return false;
        ret->bytes[i] = (uint64_t)(b->data + b->size - (uint8_t *)ret->operand[i].data);
    }
    return !mapped || (read_ahead(params[0], ret) && read_map(params[0], ret));
}

static void run_kernel(const Node *node)
{
    if (kernel_function && node->params.num_operands)
        kernel_function(node->name, &node->params);
}

static void graph_add(Object *graph, const Node *node)
{
    graph->node = realloc(graph->node, ((size_t)graph->nodes + 1) * sizeof *graph->node);
    if (!graph->node)
        abort();
    graph->node[graph->nodes++] = *node;
}

DrvResult fake_cuStreamCreate(DrvStream *stream, unsigned flags)
{
    DrvResult result = enter("cuStreamCreate");
    if (!result)
        result = need_context();
    if (!result && flags == DRV_STREAM_NON_BLOCKING)
        *stream = (DrvStream)(void *)object_new(KIND_STREAM);
    return leave(result);
}

DrvResult fake_cuStreamDestroy(DrvStream stream)
{
    DrvResult result = enter("cuStreamDestroy_v2");
    DrvResult freed = object_free(stream, KIND_STREAM);
    return leave(result ? result : freed);
}

DrvResult fake_cuStreamSynchronize(DrvStream stream)
{
    DrvResult result = enter("cuStreamSynchronize");
    Object *o = result || !stream ? NULL : object_find(stream, KIND_STREAM);
    if (o && o->graph)
        result = misuse("a stream is waited for during its capture");
    if (!result)
        idle_ms = clock_ms;
    return leave(result);
}

DrvResult fake_cuStreamWaitEvent(DrvStream stream, DrvEvent event, unsigned flags)
{
    DrvResult result = enter("cuStreamWaitEvent");
    (void)stream;
    (void)flags;
    Object *o = result ? NULL : object_find(event, KIND_EVENT);
    if (o && !o->recorded)
        result = misuse("an event is waited for that was never recorded");
    if (!result)
        log_line("wait");
    return leave(result);
}

DrvResult fake_cuStreamBeginCapture(DrvStream stream, int mode)
{
    DrvResult result = enter("cuStreamBeginCapture_v2");
    Object *o = result ? NULL : object_find(stream, KIND_STREAM);
    if (o && (o->graph || mode != DRV_STREAM_CAPTURE_THREAD_LOCAL))
        result = misuse("a capture begins in a capture, or for all threads");
    if (result)
        return leave(result);
    o->graph = object_new(KIND_GRAPH);
    capturing++;
    log_line("capture");
    return leave(result);
}

DrvResult fake_cuStreamEndCapture(DrvStream stream, DrvGraph *graph)
{
    DrvResult result = enter("cuStreamEndCapture");
    Object *o = object_find(stream, KIND_STREAM);
    *graph = NULL;
    if (!o || !o->graph)
        return leave(misuse("a capture ends that never began"));
    Object *captured = o->graph;
    o->graph = NULL;
    capturing--;
    log_line("captured %d", captured->nodes);
    if (result)
        object_free(captured, KIND_GRAPH);
    else
        *graph = (DrvGraph)(void *)captured;
    return leave(result);
}

DrvResult fake_cuGraphInstantiate(DrvGraphExec *exec, DrvGraph graph, unsigned long long flags)
{
    DrvResult result = enter("cuGraphInstantiateWithFlags");
    Object *from = result ? NULL : object_find(graph, KIND_GRAPH);
    (void)flags;
    if (from) {
        Object *o = object_new(KIND_EXEC);
        o->nodes = from->nodes;
        o->node = calloc((size_t)from->nodes + 1, sizeof *o->node);
        if (!o->node)
            abort();
        if (from->nodes)
            memcpy(o->node, from->node, (size_t)from->nodes * sizeof *o->node);
        *exec = (DrvGraphExec)(void *)o;
    }
    return leave(result);
}

DrvResult fake_cuGraphUpload(DrvGraphExec exec, DrvStream stream)
{
    DrvResult result = enter("cuGraphUpload");
    if (!result && object_find(exec, KIND_EXEC) && object_find(stream, KIND_STREAM))
        counts.uploads++;
    return leave(result);
}

DrvResult fake_cuGraphLaunch(DrvGraphExec exec, DrvStream stream)
{
    DrvResult result = enter("cuGraphLaunch");
    Object *o = result ? NULL : object_find(exec, KIND_EXEC);
    if (!result && stream)
        object_find(stream, KIND_STREAM);
    if (o) {
        counts.graph_launches++;
        asked_crash(counts.graph_launches, o->nodes);
        double launches_ms = 0;
        for (int i = 0; i < o->nodes; i++)
            launches_ms += asked_launch_ms(o->node[i].name);
        clock_ms += asked_graph_ms(o->nodes, launches_ms);
        log_line("graph of %d", o->nodes);
        for (int i = 0; i < o->nodes; i++)
            run_kernel(&o->node[i]);
    }
    return leave(result);
}

DrvResult fake_cuGraphDestroy(DrvGraph graph)
{
    DrvResult result = enter("cuGraphDestroy");
    DrvResult freed = object_free(graph, KIND_GRAPH);
    return leave(result ? result : freed);
}

DrvResult fake_cuGraphExecDestroy(DrvGraphExec exec)
{
    DrvResult result = enter("cuGraphExecDestroy");
    DrvResult freed = object_free(exec, KIND_EXEC);
    return leave(result ? result : freed);
}

/* What NVIDIA's documentation asks of the arguments; elements are 1, 2 or 4 bytes. */
DrvResult fake_cuTensorMapEncodeTiled(DrvTensorMap *map, int type, unsigned rank, void *address,
                                      const uint64_t *dim, const uint64_t *stride,
                                      const unsigned *box, const unsigned *step, int interleave,
                                      int swizzle, int promotion, int fill)
{
    DrvResult result = enter("cuTensorMapEncodeTiled");
    if (result)
        return leave(result);
    uint64_t element = UINT64_C(1) << type, size = dim[0] * element;
    for (unsigned i = 1; i < rank; i++)
        size += (dim[i] - 1) * stride[i - 1];
    bool ok = type >= 0 && type <= 2 && rank >= 2 && rank <= 3 && (uintptr_t)address % 16 == 0 &&
              (uintptr_t)map % 128 == 0 && interleave == 0 && promotion >= 0 && promotion <= 3 &&
              fill == 0 && box[0] * element % 16 == 0 &&
              (swizzle == 0 || box[0] * element <= UINT64_C(16) << swizzle);
    for (unsigned i = 0; i < rank; i++)
        ok = ok && dim[i] >= 1 && dim[i] <= UINT32_MAX && box[i] >= 1 && box[i] <= 256 &&
             step[i] == 1 && (i == 0 || stride[i - 1] % 16 == 0);
    if (!ok || !block_find(address, size))
        return leave(misuse("the arguments of a tensor map"));
    log_line("map %llu x %llu of %llu bytes, pitch %llu, box %u x %u, swizzle %d",
             (unsigned long long)dim[1], (unsigned long long)dim[0], (unsigned long long)element,
             (unsigned long long)stride[0], box[1], box[0], swizzle);
    memset(map, 0, sizeof *map);
    map->opaque[0] = MAP_MAGIC;
    map->opaque[1] = (uint64_t)(uintptr_t)address;
    return leave(DRV_SUCCESS);
}

DrvResult fake_cuLaunchKernelEx(const DrvLaunchConfig *config, DrvFunction function, void **params,
                                void **extra)
{
    DrvResult result = enter("cuLaunchKernelEx");
    Object *o = result ? NULL : object_find(function, KIND_FUNCTION);
    Object *stream = o && config->stream ? object_find(config->stream, KIND_STREAM) : NULL;
    if (!o)
        return leave(result ? result : DRV_ERROR_INVALID_HANDLE);
    uint64_t first;
    memcpy(&first, params[0], sizeof first);
    Node node;
    snprintf(node.name, sizeof node.name, "%s", o->name);
    if (extra || !block_find((const void *)(uintptr_t)first, 1) ||
        !read_params(o->name, params, &node.params))
        return leave(misuse("an operand lies outside of device memory"));
    if ((int)config->shared_bytes > o->shared || !config->grid_x || !config->block_x)
        return leave(misuse("the shape of a launch"));
    bool early = false;
    unsigned cluster = 1;
    for (unsigned i = 0; i < config->num_attrs; i++) {
        const DrvLaunchAttribute *a = &config->attrs[i];
        if (a->id == DRV_LAUNCH_PROGRAMMATIC_STREAM_SERIALIZATION)
            early = a->value.programmatic_stream_serialization == 1;
        if (a->id == DRV_LAUNCH_CLUSTER_DIMENSION)
            cluster = a->value.cluster.x * a->value.cluster.y * a->value.cluster.z;
    }
    if (!cluster || config->grid_x % cluster)
        return leave(misuse("a grid that is no number of clusters"));
    char count[32] = "";
    if (node.params.num_operands)
        snprintf(count, sizeof count, " count %lld", (long long)node.params.count);
    char clusters[32] = "";
    if (cluster > 1)
        snprintf(clusters, sizeof clusters, " cluster %u", cluster);
    log_line("launch %s grid %u block %u shared %u%s%s%s", o->name, config->grid_x, config->block_x,
             config->shared_bytes, clusters, count, early ? " early" : "");
    counts.kernel_launches++;
    if (stream && stream->graph) {
        graph_add(stream->graph, &node);
    } else {
        clock_ms += asked_launch_ms(o->name);
        run_kernel(&node);
    }
    return leave(result);
}

DrvResult fake_cuEventCreate(DrvEvent *event, unsigned flags)
{
    DrvResult result = enter("cuEventCreate");
    (void)flags;
    if (!result)
        *event = (DrvEvent)(void *)object_new(KIND_EVENT);
    return leave(result);
}

DrvResult fake_cuEventRecord(DrvEvent event, DrvStream stream)
{
    DrvResult result = enter("cuEventRecord");
    Object *o = result ? NULL : object_find(event, KIND_EVENT);
    (void)stream;
    if (o) {
        o->recorded = 1;
        o->when_ms = clock_ms;
    }
    return leave(result);
}

DrvResult fake_cuEventSynchronize(DrvEvent event)
{
    DrvResult result = enter("cuEventSynchronize");
    const Object *o = result ? NULL : object_find(event, KIND_EVENT);
    if (o && o->when_ms >= clock_ms) /* nothing was launched behind it */
        idle_ms = clock_ms;
    return leave(result);
}

DrvResult fake_cuEventElapsedTime(float *ms, DrvEvent begin, DrvEvent end)
{
    DrvResult result = enter("cuEventElapsedTime");
    const Object *from = result ? NULL : object_find(begin, KIND_EVENT);
    const Object *to = result ? NULL : object_find(end, KIND_EVENT);
    if (from && to)
        *ms = (float)((asked_times() ? 0 : 0.25) + to->when_ms - from->when_ms);
    return leave(result);
}

DrvResult fake_cuEventDestroy(DrvEvent event)
{
    DrvResult result = enter("cuEventDestroy_v2");
    DrvResult freed = object_free(event, KIND_EVENT);
    return leave(result ? result : freed);
}
