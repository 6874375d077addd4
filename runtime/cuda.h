/* The CUDA device. cuda_driver.c: the driver's library and what its errors mean. cuda_model.c: the
 * weights and kernels of a model on one GPU, shared by sessions. cuda_launch.c: launch lists, run
 * one by one or captured as graphs. cuda_session.c: arenas and runs. */
#ifndef SINTER_RUNTIME_CUDA_H
#define SINTER_RUNTIME_CUDA_H

#include "runtime/cuda_api.h"
#include "runtime/device.h"

/* cuda_driver.c -------------------------------------------------------------------------------- */

/* The driver, loaded and initialised once a process; after a failure the next call tries again.
 * NULL after filling *err and *ret_status. */
const Driver *driver_get(SinterStatus *ret_status, SinterError *err);

/* A model on one GPU. Immutable but for kernels, which load under the lock of all models, and for
 * `dead`. */
typedef struct CudaModel {
    const Driver *driver;
    const Plan *plan;
    const DeviceCode *code;
    const char *arch; /* of the images that run here */
    int ordinal;
    char name[16], gpu[64]; /* "cuda:0", "NVIDIA H200" */
    DrvDevice device;
    DrvContext context;         /* the primary one, retained */
    int capability, max_shared; /* 90: 9.0; bytes of dynamic shared memory that a block can have */
    int processors;
    bool early_launch; /* kernels wait for their producers themselves */
    DrvAddress weights;
    DrvAddress *constant; /* [plan->num_tensors]: where constants lie */
    struct CudaKernelImage {
        const DeviceImage *image;
        DrvModule module; /* NULL until loaded */
        DrvFunction function;
        int shared; /* the most that a launch asks for */
    } * kernel;     /* [code->num_kernels] */
    int dead;       /* atomic: set once, after first_error */
    SinterError first_error;
    struct CudaModel *next;
} CudaModel;

/* SINTER_OK, or fills *err with "cuda:0: <doing>: <meaning> (<name>); <remedy>". An error after
 * which the GPU cannot be used by this process marks the model dead. */
SinterStatus cuda_check(CudaModel *model, DrvResult result, SinterError *err, const char *fmt, ...)
    PRINTF_LIKE(4, 5);
/* What killed the model, again. */
SinterStatus cuda_dead(const CudaModel *model, SinterError *err);
bool cuda_is_dead(const CudaModel *model);
SinterStatus cuda_enter(CudaModel *model, SinterError *err); /* makes its context current */
void cuda_leave(const CudaModel *model);
/* No memory: says how much was wanted and is free. */
SinterStatus cuda_alloc(CudaModel *model, uint64_t size, const char *what, DrvAddress *ret,
                        SinterError *err);

/* cuda_model.c --------------------------------------------------------------------------------- */

/* Device.choose: of the classes that the file holds plans for, the best for this GPU. */
ModelTarget *cuda_choose_target(SinterModel *model, int ordinal, SinterStatus *ret_status,
                                SinterError *err);
/* The model on GPU `ordinal`, with its weights; made by the first session that asks, and kept until
 * the model is closed. */
SinterStatus cuda_model_get(const DeviceOpen *open, CudaModel **ret, SinterError *err);
/* Loads a kernel that a session is about to launch, once. */
SinterStatus cuda_model_kernel(CudaModel *model, DeviceShared *shared, int kernel,
                               const char *layer, SinterError *err);
void cuda_model_close(void *models); /* the list of a DeviceShared; accepts NULL */

/* cuda_launch.c -------------------------------------------------------------------------------- */

/* One launch, ready to be started again and again. */
typedef struct CudaLaunch {
    DrvFunction function;
    unsigned grid[2], block, shared, cluster; /* grid 0: nothing is started */
    const void *params;                       /* the kernel's one argument */
    void *ahead;                              /* in params, where it looks ahead; else NULL */
} CudaLaunch;

/* What launches of a plan are bound to. */
typedef struct CudaPlace {
    const Driver *driver;
    int processors; /* of the GPU */
    const Plan *plan;
    const PlanLayout *layout; /* for `size` */
    const int64_t *size;
    const DrvAddress *root; /* [plan->num_tensors]: of tensors that are no parts of others */
    DrvAddress workspace;
} CudaPlace;

/* Room that the parameters of a launch take at most, a multiple of DEVICE_MAP_ALIGN. */
size_t cuda_params_bytes(const PlanLaunch *l);
/* Fills params (aligned so) and ret but for its function; encodes tensor maps, which may fail. */
DrvResult cuda_bind(const CudaPlace *place, const PlanLaunch *l, const DeviceLaunch *d,
                    void *params, CudaLaunch *ret);
/* The launch, bound, is to fetch ahead what `next`, with a weight, reads first. */
void cuda_bind_ahead(const CudaPlace *place, const PlanLaunch *next, const DeviceLaunch *d,
                     const CudaLaunch *l);
/* early: may start before its producer ends, for which its kernel waits. */
DrvResult cuda_launch(const Driver *d, const CudaLaunch *l, DrvStream stream, bool early);

typedef struct CudaPort { /* memory of the session's own for an input or output */
    DrvAddress at;
    uint64_t size;
} CudaPort;

typedef struct CudaListed {
    CudaLaunch launch;
    const PlanLaunch *of;
} CudaListed;

typedef struct CudaSession {
    CudaModel *model;
    DeviceShared *shared;
    DrvStream stream;
    DrvAddress memory; /* arena, ports, workspace */
    uint64_t memory_bytes;
    DrvAddress workspace;
    CudaPort *port;      /* inputs, then outputs */
    DrvGraphExec *graph; /* [num_buckets]; NULL until used */
    PlanLayout *layout;  /* of the sizes at hand */
    PlanLayout *padded;  /* of the bucket's */
    int64_t *size;       /* that `layout` and the list are for; bucket -1: none */
    int bucket;
    CudaListed *list; /* the launches of a bucket, bound; NULL until there are any */
    int num_list;
    DrvAddress *root; /* [num_tensors], of the list */
    void *params;     /* of the list */
    DrvEvent done;    /* of the latest asynchronous run */
    bool pending;     /* it may not have ended */
    DrvEvent *event;  /* for traces */
    int num_events;
    bool step; /* SINTER_SYNC: wait after every launch */
} CudaSession;

typedef enum CudaStart {
    CUDA_START,      /* one after the other, without waiting */
    CUDA_START_STEP, /* wait after each */
    CUDA_START_TIME  /* an event before and after each: session->event[i], [i + 1] */
} CudaStart;

/* Binds the launches of a bucket; layout: for `size`. Loads their kernels. */
SinterStatus cuda_bind_list(CudaSession *s, int bucket, const int64_t *size,
                            const PlanLayout *layout, SinterError *err);
void cuda_list_free(CudaSession *s);
/* Starts the bound launches on a stream. */
SinterStatus cuda_start(CudaSession *s, DrvStream stream, CudaStart how, SinterError *err);
/* Captures them for the bucket's sizes as session->graph[bucket]. */
SinterStatus cuda_capture(CudaSession *s, int bucket, SinterError *err);
/* Times of the launches of CUDA_START_TIME, after the stream was waited for. */
SinterStatus cuda_times(CudaSession *s, const int64_t *size, const PlanLayout *layout, Trace *trace,
                        SinterError *err);
/* Kernels are compiled for a bucket's sizes; where others than rows vary, they read those at run
 * time. NULL, or what these sizes change that a kernel takes for granted nevertheless. */
const char *cuda_sizes_problem(const CudaSession *s, int bucket, const PlanLayout *layout,
                               const PlanLayout *padded);

#endif
