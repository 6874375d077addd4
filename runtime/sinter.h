/* libsinter: open a compiled model and run it.
 *
 * Link with -lsinter, or run the compiled file itself. A model (SinterModel) is immutable and may
 * be shared by threads; a session (SinterSession) holds the memory of one run at a time and belongs
 * to one thread at a time; any number of sessions of one model may run at once. A model, a session
 * or a place for results that is NULL is an error (SINTER_ERROR_ARGUMENT), and questions about it
 * are answered with NULL, "" or 0; tensors' shapes and addresses are checked, but not that memory
 * of that size lies there. The library never
 * prints, never exits and keeps no global state that callers can see. Treat compiled files like
 * programs: open only those you trust. */
#ifndef SINTER_H
#define SINTER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define SINTER_API __attribute__((visibility("default")))
#else
#define SINTER_API
#endif

#define SINTER_MAX_RANK 6

typedef enum SinterStatus {
    SINTER_OK = 0,
    SINTER_ERROR_FILE,     /* cannot open, truncated, altered, newer version */
    SINTER_ERROR_ARGUMENT, /* name, shape or dtype does not match the model */
    SINTER_ERROR_MEMORY,
    SINTER_ERROR_NO_DEVICE,  /* no such device or driver */
    SINTER_ERROR_DEVICE,     /* the device failed */
    SINTER_ERROR_UNSUPPORTED /* the file holds no code for this device */
} SinterStatus;

typedef enum SinterDtype { /* of ports */
                           SINTER_F32 = 1,
                           SINTER_F16,
                           SINTER_BF16,
                           SINTER_I32
} SinterDtype;

typedef struct SinterModel SinterModel;
typedef struct SinterSession SinterSession;

/* The sentence behind the latest status other than SINTER_OK of this call chain. */
typedef struct SinterError {
    SinterStatus status;
    char text[512];
} SinterError;

typedef struct SinterPort {
    const char *name;
    SinterDtype dtype;
    int rank;
    int64_t dim[SINTER_MAX_RANK]; /* -1: varies with the batch */
} SinterPort;

typedef struct SinterTensor {
    const char *name; /* of the port */
    SinterDtype dtype;
    int rank;
    int64_t dim[SINTER_MAX_RANK];
    void *data; /* row-major, contiguous */
} SinterTensor;

SINTER_API const char *sinter_version(void);
SINTER_API const char *sinter_status_name(SinterStatus status);

/* path: a compiled file; NULL: the running program itself. err may be NULL. */
SINTER_API SinterStatus sinter_open(const char *path, SinterModel **ret, SinterError *err);
/* The same, with a private copy of the file in memory. sinter_open maps it: the weights are shared
 * by all processes and read when first used, and who may write to the file while it is open can
 * change them, or end the process (SIGBUS) by cutting it short. Replacing it by rename is safe. */
SINTER_API SinterStatus sinter_open_copy(const char *path, SinterModel **ret, SinterError *err);
/* Accepts NULL. Sessions that are still there keep the model until they are destroyed. */
SINTER_API void sinter_close(SinterModel *model);
SINTER_API const char *sinter_model_name(const SinterModel *model);
SINTER_API int sinter_num_inputs(const SinterModel *model);
SINTER_API int sinter_num_outputs(const SinterModel *model);
SINTER_API SinterPort sinter_input(const SinterModel *model, int index);
SINTER_API SinterPort sinter_output(const SinterModel *model, int index);
/* Symbols are the sizes that vary with the batch; buckets the combinations of them that were
 * compiled for. An index out of range gives NULL or 0. */
SINTER_API int sinter_num_symbols(const SinterModel *model);
SINTER_API const char *sinter_symbol(const SinterModel *model, int index);
SINTER_API int sinter_num_buckets(const SinterModel *model);
SINTER_API int64_t sinter_bucket_size(const SinterModel *model, int bucket, int symbol);
SINTER_API uint64_t sinter_bucket_bytes(const SinterModel *model, int bucket); /* its arena */
SINTER_API uint64_t sinter_weight_bytes(const SinterModel *model); /* mapped, as packed */
/* "f32[B, 784]": a port's type in the words of the model text, cut to fit; returns buf. */
SINTER_API const char *sinter_port_text(const SinterModel *model, int is_output, int index,
                                        char *buf, size_t size);
/* The shape of a port for given sizes of all symbols: fills rank and dim, name and dtype. */
SINTER_API SinterStatus sinter_port_shape(const SinterModel *model, int is_output, int index,
                                          const int64_t *symbol_size, SinterTensor *ret,
                                          SinterError *err);

typedef struct SinterSessionOptions {
    const char *device; /* "cpu", "cuda" or "cuda:1"; NULL: the first GPU if the file holds code for
                           it and there is one, else the processor */
    int threads;        /* CPU threads; 0: all */
    int prepare;        /* GPUs: make every bucket's graph now, not when it first runs */
} SinterSessionOptions;
SINTER_API SinterStatus sinter_session_create(SinterModel *model,
                                              const SinterSessionOptions *options,
                                              SinterSession **ret, SinterError *err);
SINTER_API void sinter_session_destroy(SinterSession *session);             /* accepts NULL */
SINTER_API const char *sinter_session_device(const SinterSession *session); /* "cpu", "cuda:0" */
/* Why a session that was given no device runs on the processor, although the file holds a plan for
 * GPUs; else NULL. */
SINTER_API const char *sinter_session_note(const SinterSession *session);

/* Inputs and outputs are given by name, in any order; with the name NULL by position. A call reads
 * the inputs and writes the outputs it is given, which must not overlap, and no other memory. */

/* Shapes of all outputs for these inputs: fills name, dtype, rank and dim of the outputs in the
 * model's order, or of those that have a name. */
SINTER_API SinterStatus sinter_output_shapes(SinterSession *session, const SinterTensor *inputs,
                                             int num_inputs, SinterTensor *outputs, int num_outputs,
                                             SinterError *err);
/* Runs the smallest bucket that holds the inputs; larger batches in chunks of the largest bucket,
 * if no row of the model's batch depends on another, otherwise an error that says so. Empty batches
 * do nothing. */
SINTER_API SinterStatus sinter_run(SinterSession *session, const SinterTensor *inputs,
                                   int num_inputs, const SinterTensor *outputs, int num_outputs,
                                   SinterError *err);

/* GPUs. Tensors lie in host memory or in the GPU's. sinter_run returns when the outputs are
 * written. sinter_run_async only puts the run on the caller's stream (CUstream or cudaStream_t;
 * NULL: the default stream): inputs and outputs belong to it until the stream has passed it, and
 * host memory should be pinned. Runs of one session follow each other whatever their streams. On
 * the CPU it is sinter_run. */
SINTER_API SinterStatus sinter_run_async(SinterSession *session, const SinterTensor *inputs,
                                         int num_inputs, const SinterTensor *outputs,
                                         int num_outputs, void *stream, SinterError *err);
/* Returns when the runs that were put on streams have ended; gives their error, if they failed. */
SINTER_API SinterStatus sinter_wait(SinterSession *session, SinterError *err);
/* The session's own memory for a port, on its GPU and large enough for any bucket. A tensor there
 * is neither copied in nor out, if its batch is not cut; the next run may overwrite it. */
SINTER_API SinterStatus sinter_port_memory(const SinterSession *session, int is_output, int index,
                                           void **ret_address, uint64_t *ret_bytes,
                                           SinterError *err);

/* Per-launch times of the latest run, for traces. */
typedef struct SinterLaunchTime {
    const char *layer, *family, *place, *absorbed; /* valid as long as the model */
    double start_us, duration_us;                  /* from the start of the run */
    double bytes, flops;                           /* touched and done */
} SinterLaunchTime;
SINTER_API void sinter_session_trace(SinterSession *session, int enable);
SINTER_API int sinter_num_launch_times(const SinterSession *session);
SINTER_API SinterLaunchTime sinter_launch_time(const SinterSession *session, int index);
/* What the latest run took: the bucket, by its number, of the first piece, and into how many pieces
 * the batch was cut, each but the last as large as that bucket. pieces 0: nothing ran yet. */
typedef struct SinterLastRun {
    int bucket, pieces;
    int64_t size; /* of the first symbol, 0: the model has none */
} SinterLastRun;
SINTER_API SinterLastRun sinter_last_run(const SinterSession *session);
/* Arena and scratch that the runs so far have reserved. */
SINTER_API uint64_t sinter_session_bytes(const SinterSession *session);

#ifdef __cplusplus
}
#endif

#endif
