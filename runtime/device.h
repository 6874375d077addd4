/* What the library asks of a device, and what it shares with one. A device takes a bucket, actual
 * sizes and the addresses of all ports, and runs a plan; matching ports, choosing buckets and
 * cutting batches stay in session.c. Adding a device is a file with one of these tables and a row
 * in devices[]. */
#ifndef SINTER_DEVICE_H
#define SINTER_DEVICE_H

#include "artifact/artifact.h"
#include "runtime/sinter.h"

#include <pthread.h>

typedef struct Trace { /* launches of the latest run, while on */
    bool on;
    SinterLaunchTime *time;
    int num, cap;
    double start_us; /* when the run began, on the clock of clock_us */
} Trace;

typedef struct DeviceRun {
    int bucket;
    const int64_t *size; /* of every symbol, at most the bucket's */
    void *const *input;  /* by port */
    void *const *output;
    Trace *trace;
    bool is_async; /* on `stream`, without waiting; devices without streams wait */
    void *stream;
} DeviceRun;

/* What a device keeps of a model for all its sessions. */
typedef struct DeviceShared {
    pthread_mutex_t lock;
    void *state; /* NULL until the device's create sets it under the lock; Device.close frees it */
} DeviceShared;

typedef struct DeviceOpen {
    const Plan *plan;       /* as all pointers here, outlives the session */
    const uint8_t *weights; /* of all plans of the file */
    const DeviceCode *code; /* NULL: the file holds none */
    const CodeClass *gpu;   /* whose code it is; NULL: the CPU's plan */
    DeviceShared *shared;
    int ordinal;  /* "cuda:1": 1 */
    int threads;  /* 0: all */
    bool prepare; /* every bucket now, not when first run */
} DeviceOpen;

typedef struct ModelTarget ModelTarget;

typedef struct Device {
    const char *name; /* "cpu", "cuda" */
    /* Which of the model's plans runs on device `ordinal`. NULL after saying why there is none:
     * what the file holds, what the device is, and what to compile for. */
    ModelTarget *(*choose)(SinterModel *model, int ordinal, SinterStatus *ret_status,
                           SinterError *err);
    SinterStatus (*create)(const DeviceOpen *open, void **ret_state, SinterError *err);
    void (*destroy)(void *state); /* accepts NULL */
    SinterStatus (*run)(void *state, const DeviceRun *run, SinterError *err);
    SinterStatus (*wait)(void *state, SinterError *err); /* for asynchronous runs; NULL: none are */
    uint64_t (*bytes)(const void *state);                /* memory reserved so far */
    /* The session's own memory of a port; NULL where ports have none. */
    void (*port)(const void *state, bool is_output, int index, void **ret_address,
                 uint64_t *ret_bytes);
    void (*close)(void *shared_state); /* NULL: nothing is shared */
    /* Memory for tensors that outlive the session, but not the model; free: on any thread. Both
     * NULL: host memory serves. */
    SinterStatus (*alloc)(void *state, uint64_t bytes, void **ret_address, void **ret_owner,
                          SinterError *err);
    void (*free)(void *owner, void *address);
} Device;

extern const Device device_cpu;       /* cpu.c */
extern const Device device_cuda;      /* cuda_session.c */
extern const Device *const devices[]; /* NULL-terminated */

struct ModelTarget {
    const Device *device;
    const CodeClass *gpu; /* NULL: the CPU */
    Plan *plan;
    DeviceCode *code; /* NULL: none */
    DeviceShared shared;
};

#define MOST_TARGETS (1 + NUM_CODE_CLASSES)
struct SinterModel {
    int refs; /* atomic: one of who opened it, one of each session and of tensors that left it */
    Artifact artifact;
    char name[64];
    const uint8_t *weights; /* of all plans */
    int num_targets;
    ModelTarget target[MOST_TARGETS];
};

extern const Plan
    plan_of_nothing; /* no ports, symbols or buckets: answers for a model that is NULL */
/* The plan that describes the ports; those of all targets are alike. */
static inline const Plan *model_plan(const SinterModel *model)
{
    return model ? model->target[0].plan : &plan_of_nothing;
}

/* Another reference, which sinter_close and sinter_session_destroy drop. */
void model_hold(SinterModel *model);
void session_hold(SinterSession *session);

typedef struct SessionDevice { /* what a session runs on */
    SinterModel *model;
    const Device *device;
    void *state;
    int ordinal;
} SessionDevice;
SessionDevice session_device(const SinterSession *session);

/* The plan of this name, "cpu" or a class of GPUs; NULL: the file holds none. */
ModelTarget *model_target(SinterModel *model, const char *name);
/* "sm_90a and cpu": whose plans a file holds; and as --target takes them, with `more` in front. */
const char *model_holds(const SinterModel *model, char *buf, size_t size);
const char *model_words(const SinterModel *model, const char *more, char *buf, size_t size);

SinterStatus model_fail(SinterError *err, SinterStatus status, const char *fmt, ...)
    PRINTF_LIKE(3, 4);
/* Of sizes for which no plan can be bound, as `why` says. */
SinterStatus model_sizes_fail(const Plan *p, const int64_t *size, const char *why,
                              SinterError *err);
SinterDtype dtype_of_format(FormatId fmt);
FormatId format_of_dtype(SinterDtype dtype); /* FMT_NONE when there is none such */
/* False: no memory for it; the run goes on without. */
bool trace_add(Trace *trace, const PlanLaunch *l, double begin_us, double bytes, double flops);

#endif
