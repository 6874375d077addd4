/* codegen/cuda_target: from a CPU plan to device code. */
#ifndef SINTER_CODEGEN_CUDA_TARGET_H
#define SINTER_CODEGEN_CUDA_TARGET_H

#include "codegen/codegen.h"
#include "codegen/cuda.h"
#include "codegen/timing.h"

/* What a launch of the GPU's plan is for. */
typedef struct CudaRole {
    int product;   /* the launch of a product with its prologue inside; -1: none */
    bool few_rows; /* this is that launch: only for buckets whose rows are few enough; else it is
                      one of those that take its place in the other buckets */
    CudaSpan span;
    int span_operand; /* -1: none */
} CudaRole;

typedef struct CudaSource {
    const char *name, *text;
    CudaFamily family;
} CudaSource;

/* What a launch runs under a bucket and why, for people; text NULL: nothing. */
typedef struct CudaChoice {
    const char *text;
    const char *rejected; /* lines */
    double us;            /* of one launch in a captured graph, as `source` says */
    TimingSource source;
    bool old; /* it was measured with other device code */
} CudaChoice;

/* How an image came about. */
typedef struct CudaImageAbout {
    bool cached;    /* it was kept from another time */
    double seconds; /* of a processor, to compile it; 0 where it was cached */
    long spilled;   /* bytes */
} CudaImageAbout;

typedef struct CudaTarget {
    CodegenTarget target; /* the plan, its constants and ops */
    DeviceCode code;      /* without images until cuda_compile */
    int num_sources;
    const CudaSource *source;
    const CudaChoice *choice;    /* [launches][buckets]: what each takes, and how that is known */
    int num_cached;              /* images that cuda_compile did not have to compile */
    const CudaImageAbout *about; /* [code.num_images], from cuda_compile */
    int split_tensor; /* workspace of blocks that share tiles, whose counters are zero before
                         every launch and after it (cuda.h); -1: there is none */
} CudaTarget;

struct CudaCandidates;

typedef struct CudaPlanOptions {
    const Timings *timings;   /* NULL: the cost model alone */
    int64_t smem;             /* dynamic shared memory that every target gives a block, bytes; 0: as
                                 cuda_smem(0, NULL) */
    const CudaFamily *family; /* NULL; else products take candidates of this one where any is valid:
                                 for tests */
    /* NULL, or called with the candidates of every product and bucket; they and the layouts that
     * they name live as long as the plan */
    void (*visit)(void *user, const struct CudaCandidates *c);
    void *user;
} CudaPlanOptions;

/* cuda_plan.c. False after reporting to m->diag. */
bool cuda_plan(Module *m, Arena *arena, const CodegenTarget *cpu, const CudaPlanOptions *options,
               CudaTarget *ret);

/* cuda_apart.c: the product *ret_product without the dynamic quantisations of its epilogue: for
 * each, a plain f32 tensor in the shape of `like`, numbered from `first` on, which the product
 * stores and `launch` quantises. Returns how many there are. */
typedef struct CudaApart {
    int like;
    PlanLaunch launch;
} CudaApart;
#define CUDA_APART_MOST PLAN_MAX_OPERANDS
int cuda_apart(Arena *arena, const PlanTensor *tensors, int first, PlanLaunch *ret_product,
               CudaApart ret[CUDA_APART_MOST]);

/* cuda_choose.c: the family and tile of a launch under a bucket, and how long it takes; false: the
 * launch is not part of this bucket. *ret_problem: why there is no kernel. */
bool cuda_choose(CudaKernel *k, const CudaRole *role, Arena *arena, const CudaPlanOptions *options,
                 CudaChoice *ret, const char **ret_problem);

/* cuda_explain.c: the kernel, tile and grid of every launch and bucket, and what was not taken. */
void cuda_describe(Sb *sb, const CudaKernel *k);
void cuda_explain(Sb *sb, const CudaTarget *target);

/* The architectures that --target takes, oldest first. */
typedef struct CudaArch {
    const char *name, *describe;
    int smem; /* shared memory that a block may have, KiB */
} CudaArch;
#define NUM_CUDA_ARCHS 9
extern const CudaArch cuda_archs[NUM_CUDA_ARCHS];
/* The PTX that goes into the file beside binaries for these architectures, which the drivers of
 * newer GPUs compile when the file is opened: for compute capability 8.0, or for 7.5 when nothing
 * newer is asked for. */
const char *cuda_portable(int num_archs, const char *const *arch);
/* Dynamic shared memory, bytes, that a block gets on every GPU that runs code for these
 * architectures and the portable code beside it. */
int64_t cuda_smem(int num_archs, const char *const *arch);

/* nvrtc.c: compiles every source for every architecture ("sm_90a", "compute_80"), in parallel.
 * Fills code.image; a failure is reported to diag with the compiler's log. Images are kept in the
 * cache (cache.h); when it holds all of them NVRTC is not even loaded. */
typedef struct CudaCompileOptions {
    int num_archs;
    const char *const *arch;
    int threads; /* 0: one a processor */
    bool fail_on_spill, no_cache;
    const char **problem; /* NULL, or [sources][archs]: filled with why there is no image (NULL:
                             there is one), or why it would be refused; then these are no errors */
    /* NULL, or called for each image as soon as it is there, in any order and from any thread, but
     * one at a time; data NULL: `problem` says why there is none. False: compile no more. */
    bool (*ready)(void *user, int image, const void *data, size_t size, const char *problem);
    void *user;
} CudaCompileOptions;
bool cuda_compile(Diag *diag, Arena *arena, CudaTarget *target, const CudaCompileOptions *options);
/* device_hash.c: the device code of a family ("stream") with all that it includes, as a word of hex
 * digits; comments and blanks do not count. NULL: there is no such family. */
const char *cuda_family_code(Arena *arena, const char *family);
/* Version of the compiler that would be used, "13.0", and its file; NULL and *ret_why when there is
 * none. */
const char *nvrtc_find(Arena *arena, const char **ret_path, const char **ret_why);

#endif
