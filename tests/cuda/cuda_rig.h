/* Sessions of the hand-made models on the fake driver. */
#ifndef TEST_CUDA_RIG_H
#define TEST_CUDA_RIG_H

#include "cuda_models.h"
#include "fake_driver.h"
#include "runtime/sinter.h"

#define MAX_ROWS   45
#define MANY_BYTES (UINT64_C(20) << 20) /* weights of several stages */

extern const char *fake_path, *profiler_path; /* set by main */
extern FakeReset *reset;
extern FakeSetKernel *set_kernel;
extern FakeGetCounts *get_counts;
extern FakeGetLog *get_log;
extern TestModel model;
/* Files of the model. mixed: whose rows depend on one another; large: with weights of MANY_BYTES;
 * gpu: for sm_90a alone; map: likewise and mixed, with a tensor map and clusters; scales: likewise,
 * with a map of scales that a tensor does not have. */
extern char path[64], mixed_path[64], large_path[64], gpu_path[64], map_path[64], scales_path[64];
extern const SinterSessionOptions on_cuda;

int setup(void **state);
int teardown(void **state);
void *symbol(void *library, const char *name);
void fresh(void); /* counts and log begin anew */

typedef struct Opened {
    SinterModel *model;
    SinterSession *session;
} Opened;

SinterStatus try_open(const char *file, const SinterSessionOptions *options, Opened *ret,
                      SinterError *err);
Opened open_model(const char *file);
void close_model(Opened o);
/* Why a session cannot be created; the statuses must agree. */
const char *refusal(const char *device, SinterStatus want); /* of `path` */
const char *refusal_of(const char *file, const char *device, SinterStatus want);
void assert_says(const char *text, const char *part);
void assert_nothing_left(void);

typedef struct Data {
    float x[MAX_ROWS * MODEL_K], y[MAX_ROWS * MODEL_N], z[MAX_ROWS * MODEL_N];
    float want[MAX_ROWS * MODEL_N];
    SinterTensor in, out[2];
} Data;

void data_make(Data *d, int64_t rows, int seed);
void data_check(const Data *d);
void run_rows(Opened o, int64_t rows, int seed);

#endif
