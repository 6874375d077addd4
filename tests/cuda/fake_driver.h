/* A libcuda.so.1 for tests: objects are counted, device memory is host memory, copies happen at
 * once, every call can be made to fail, and what was captured and launched is logged. Kernels are a
 * function of the test; those named "<word>_<N>" are checked to have N operands in device memory,
 * and "mapped_<N>" what to fetch ahead behind them and a tensor map over one of them behind one
 * size. The runtime loads it through SINTER_LIBCUDA; tests load it too and call these. */
#ifndef SINTER_FAKE_DRIVER_H
#define SINTER_FAKE_DRIVER_H

#include <stdbool.h>
#include <stdint.h>

typedef struct FakeOptions {
    int version, devices, capability, max_shared; /* 12080, 1, 90, 232448 */
    uint64_t memory;                              /* bytes that can be allocated */
    const char *fail_function;                    /* exported name; NULL: any */
    int fail_call;                                /* this call of it fails, from 1 on; 0: none */
    int fail_result;
} FakeOptions;

typedef struct FakeCounts {
    int calls;  /* of all functions but the two that name errors */
    int misuse; /* dead handles, sizes outside of memory, calls that a capture forbids */
    int memory, pinned, modules, streams, events, graphs, execs, contexts, pushed; /* alive */
    int loads, graph_launches, kernel_launches, uploads;                           /* so far */
    bool failed; /* the call that should fail was made */
    const char *failed_function;
} FakeCounts;

#define FAKE_SIZES 5
typedef struct FakeParams { /* operands, then sizes behind the last, the count first */
    struct {
        void *data;
        float *scale;
        int32_t *zero;
        float *outer;
    } operand[8];
    uint64_t bytes[8]; /* allocated from an operand's data on */
    int num_operands;
    int64_t count, size[FAKE_SIZES];
} FakeParams;
/* Runs a kernel named "<word>_<N>"; NULL: none does anything. */
typedef void FakeKernel(const char *name, const FakeParams *params);

/* Exported as "fake_reset", "fake_kernel", "fake_counts", "fake_log", "fake_advance" and
 * "fake_busy". */
typedef void FakeReset(const FakeOptions *options); /* NULL: as above; forgets log and counts */
typedef void FakeSetKernel(FakeKernel *kernel);
typedef FakeCounts FakeGetCounts(void);
typedef void FakeAdvance(double ms); /* by a kernel: it took so long; 0.25 ms pass by themselves */
/* To a kernel: ms that it and others took since the GPU last had none, which it has when the host
 * waits for the last that it was given. */
typedef double FakeGetBusy(void);
typedef const char *FakeGetLog(void); /* valid until the next call of the driver */

#endif
