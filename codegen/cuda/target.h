/* codegen/cuda_target: from the launch list to plans and device code for classes of GPUs. */
#ifndef SINTER_CODEGEN_CUDA_TARGET_H
#define SINTER_CODEGEN_CUDA_TARGET_H

#include "codegen/codegen.h"
#include "codegen/cuda/kernel.h"
#include "codegen/timing.h"

/* How a product and the prologue that feeds it become launches under a bucket. */
typedef enum CudaSchedule {
    SCHEDULE_APART, /* row kernels, then the product */
    SCHEDULE_FUSED, /* one launch, each block of which runs the prologue itself */
    SCHEDULE_SHARED /* one launch, whose blocks run the prologue together */
} CudaSchedule;

/* Why a launch is not part of another one of its kernel's; text NULL: it is the kernel's own. */
typedef struct CudaApartWhy {
    const char *text;
    const char *remedy; /* "static ranges would not be"; NULL: none is known */
    Span at;            /* of the operations that are apart */
} CudaApartWhy;

/* A product whose prologue may run inside: its launches of a draft. */
typedef struct CudaChain {
    int fused, row, product;
    int ranges; /* finds those of the row kernel's that span rows, before it; -1: there are none */
    CudaApartWhy found; /* .. why the row kernel is apart where a product does; text NULL: none */
} CudaChain;

typedef struct CudaRole {   /* of a launch of a draft */
    const CudaChain *chain; /* that it is part of; NULL: it runs whatever is chosen */
    CudaApartWhy apart;     /* text NULL in a chain: the schedule says why */
    int num_ops;            /* of the model that it runs */
    bool fused;             /* a rule says that its layer is one launch */
    bool invariant;         /* a product whose sums have one order under all buckets, .. */
    const char *order;      /* .. which is this one */
    const bool *under;      /* [buckets] its copy of the weight serves; NULL: it serves all */
    CudaSpan span;
    int span_operand;         /* -1: none */
    const CudaRanged *ranged; /* of a product; NULL: none */
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
    double predicted;     /* by the cost model, of what it takes for the fastest */
    TimingSource source;
    bool old;           /* it was measured with other device code */
    CudaApartWhy apart; /* why it is a launch of its own */
    const char *order;  /* of an invariant product's sums; NULL: any */
    double free_us;     /* .. of the fastest in any order */
    double floor_us;    /* the least that the GPU's memory and units take for its work */
    const char *bound;  /* .. and which of them that is: "memory" */
    const char *by;     /* of a product, what multiplies: "hopper by wgmma"; else NULL */
    const char *problem, *candidate; /* of a product, as tables of timings name both; else NULL */
} CudaChoice;

/* A candidate of a product that ptxas has said something of: another is taken, if there is one. */
typedef struct CudaAvoided {
    const char *problem, *candidate; /* of CudaChoice */
    const char *why;                 /* "it spills 40 bytes" */
} CudaAvoided;

typedef struct CudaImageSaid { /* by ptxas */
    long spilled;              /* bytes */
    long serialised;           /* its wgmma instructions wait for each other */
    long dropped; /* .. of which its machine code lacks so many: what it gives is wrong */
} CudaImageSaid;

/* How an image came about. */
typedef struct CudaImageAbout {
    bool cached;    /* it was kept from another time */
    double seconds; /* of a processor, to compile it; 0 where it was cached */
    CudaImageSaid said;
} CudaImageAbout;

typedef struct CudaTarget {
    const CodeClass *gpu;
    CodegenTarget target; /* the plan, its constants and ops */
    DeviceCode code;      /* without images until cuda_compile */
    int num_sources;
    const CudaSource *source;
    const CudaChoice *choice;    /* [launches][buckets]: what each takes, and how that is known */
    const int *num_ops;          /* [launches] operations of the model that each runs */
    int num_cached;              /* images that cuda_compile did not have to compile */
    const CudaImageAbout *about; /* [code.num_images], from cuda_compile */
} CudaTarget;

struct CudaCandidates;

/* Whether launches of their own decode weights for products of many rows. */
typedef enum CudaDecode {
    CUDA_DECODE_BY_TIME,
    CUDA_DECODE_NEVER,
    CUDA_DECODE_ALWAYS, /* wherever there is such a launch */
    CUDA_DECODE_HELD,   /* likewise, and first of all where activations may be held (held.c) .. */
    CUDA_DECODE_ALONE   /* .. beside a weight that their products read as it lies */
} CudaDecode;

typedef struct CudaPlanOptions {
    const CodeClass *gpu;       /* whose plan it is */
    const Timings *timings;     /* NULL: the cost model alone */
    const CudaAvoided *avoided; /* [num_avoided] */
    int num_avoided;
    bool invariant;           /* every product: one order of sums for all buckets */
    int copies;               /* of one weight in different layouts, at most; 0: 1 */
    CudaDecode decode;        /* of weights, by launches of their own */
    const CudaLayout *layout; /* NULL; else weights lie so where they can */
    const CudaFamily *family; /* NULL; else products take candidates of this one where any is valid:
                                 for tests */
    const char *wish; /* .. and of those the ones whose text has these words, "c2 r1": each word
                         counts where any valid one has it. NULL: any */
    /* NULL, or called with the candidates of every product and bucket; they and the layouts that
     * they name live as long as the plan */
    void (*visit)(void *user, const struct CudaCandidates *c);
    void *user;
} CudaPlanOptions;

/* plan.c: the plan of a class from the launch list. False after reporting to m->diag. */
bool cuda_plan(Module *m, Arena *arena, const CodegenTarget *list, const CudaPlanOptions *options,
               CudaTarget *ret);

/* apart.c: the product *ret_product without the dynamic quantisations of its epilogue: for
 * each, a plain f32 tensor in the shape of `like`, numbered from `first` on, which the product
 * stores and `launch` quantises. Returns how many there are. */
typedef struct CudaApart {
    int like;
    PlanLaunch launch;
} CudaApart;
/* A row program that stands beside another launch of the same layer. */
PlanLaunch cuda_row_launch(const PlanLaunch *like, const char *words, int num, PlanOperand *operand,
                           PlanProgram program);
#define CUDA_APART_MOST PLAN_MAX_OPERANDS
int cuda_apart(Arena *arena, const PlanTensor *tensors, int first, PlanLaunch *ret_product,
               CudaApart ret[CUDA_APART_MOST]);

/* roofline.c: the least microseconds that the work of a launch takes on a GPU of its class, and
 * what of the GPU that is for. */
double cuda_floor_us(const CudaKernel *k, const char **ret_bound);
/* A time of that source may be held against it. */
bool cuda_roofline_holds(const CodeClass *gpu, TimingSource source);
const char *cuda_roofline_gpu(const CodeClass *gpu); /* "H200": whose rates these are */

/* unfused.c: an error for each layer whose rule says `fused` and that takes several launches under
 * some bucket. */
void cuda_check_fused(Module *m, const CudaTarget *target);
/* The product of a kernel whose rule says `fused`; NULL: there is none. */
const Op *cuda_to_be_fused(const Op *kernel);
/* The launches of the bucket, what they do and move. */
FusionShare cuda_fusion_share(const CudaTarget *target, Arena *arena, int bucket);

/* explain.c: the kernel, tile and grid of every launch and bucket, and what was not taken. */
void cuda_describe(Sb *sb, const CudaKernel *k);
void cuda_explain(Sb *sb, const Module *m, const PassContext *ctx, const CudaTarget *target);

/* The words for GPUs that --target takes beside the classes' names, oldest first: such a word is
 * its class, with binaries of the architecture beside the class's own code. */
typedef struct CudaArch {
    const char *name, *gpu, *describe; /* gpu: the class */
} CudaArch;
#define NUM_CUDA_ARCHS 9
extern const CudaArch cuda_archs[NUM_CUDA_ARCHS];
/* The class of a word of --target or of an architecture of images; NULL: there is none. */
const CodeClass *cuda_class_of(const char *word);
int64_t cuda_smem(const CodeClass *gpu); /* dynamic shared memory that a block may have, bytes */

/* nvrtc.c: compiles every source for every architecture ("sm_90a", "compute_80"), in parallel.
 * Fills code.image; a failure is reported to diag with the compiler's log. Images are kept in the
 * cache (cache.h); when it holds all of them NVRTC is not even loaded. */
typedef struct CudaCompileOptions {
    int num_archs;
    const char *const *arch;
    int threads; /* 0: one a processor */
    bool fail_on_spill, no_cache;
    bool keep_broken;     /* what lacks instructions (CudaImageSaid) is no error yet */
    const char **problem; /* NULL, or [sources][archs]: filled with why there is no image (NULL:
                             there is one), or why it would be refused; then these are no errors */
    /* NULL, or called for each image as soon as it is there, in any order and from any thread, but
     * one at a time; data NULL: `problem` says why there is none. False: compile no more. */
    bool (*ready)(void *user, int image, const void *data, size_t size, const char *problem);
    void *user;
} CudaCompileOptions;
bool cuda_compile(Diag *diag, Arena *arena, CudaTarget *target, const CudaCompileOptions *options);
/* nvrtc_apart.c: the first thing in main of a program whose kernels compile in processes of their
 * own, each of which comes by here and ends. Others compile them in their own process. */
void nvrtc_serve(char *const *argv);
/* device_hash.c: the device files, which are part of this program. */
typedef struct CudaDeviceFile {
    const char *path;
    const unsigned char *text;
    const size_t *size;
} CudaDeviceFile;
enum {
#define DEVICE_FILE(symbol, path) FILE_##symbol,
#include "codegen/cuda/device_files.def"
#undef DEVICE_FILE
    NUM_CUDA_DEVICE_FILES
};
extern const CudaDeviceFile cuda_device_files[NUM_CUDA_DEVICE_FILES];
/* Marks those that a text includes, directly or through others. */
void cuda_included(const char *text, size_t len, bool used[NUM_CUDA_DEVICE_FILES]);
/* The device code of a family ("stream") with all that it includes, as a word of hex
 * digits; comments and blanks do not count. NULL: there is no such family. */
const char *cuda_family_code(Arena *arena, const char *family);
/* Version of the compiler that would be used, "13.0", and its file; NULL and *ret_why when there is
 * none. */
const char *nvrtc_find(Arena *arena, const char **ret_path, const char **ret_why);

#endif
