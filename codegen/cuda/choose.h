/* codegen/cuda/choose: the candidates for a launch under one bucket, and which of them runs it.
 *
 * A candidate is a family and its numbers (tile, warps, stages, ..). Families list theirs, each
 * either valid or with the reason why not, and predict how long a valid one takes; choose.c takes
 * the fastest. */
#ifndef SINTER_CODEGEN_CUDA_CHOOSE_H
#define SINTER_CODEGEN_CUDA_CHOOSE_H

#include "codegen/cuda/target.h"

typedef struct CudaCandidate {
    CudaKernel kernel;
    const char *reason;  /* why it cannot run; NULL: it can */
    const char *failed;  /* why it could not be measured; NULL: it could, or nobody tried */
    const char *avoided; /* why others are taken first: ptxas said it; else NULL */
    const char *text;    /* of a valid one, as tables of timings name it */
    double us;           /* likewise */
    double predicted;    /* likewise, by the cost model */
    TimingSource source; /* of us */
    bool scaled;         /* predicted, less what the model errs by in a measured one of its tile */
    bool old;            /* measured, but of other device code than this compiler's */
} CudaCandidate;

typedef struct CudaCandidates {
    Arena *arena;
    CudaKernel like;     /* the launch, without a family */
    const char *problem; /* as tables of timings name it (problem.c) */
    int64_t rows;        /* of the activation */
    double free_us;      /* of the fastest, where only those of one order may run */
    int64_t budget;      /* dynamic shared memory that a block may have, bytes */
    int num_valid;
    ARRAY(CudaCandidate) list;
} CudaCandidates;

/* choose.c: .. and what is left of it for a kernel whose tile is chosen: groups of few columns take
 * more scratch than is set aside. */
int64_t cuda_room(const CudaCandidates *c, const CudaKernel *k);

/* choose.c: the candidates of a product whose spec and packed are known, in all families that
 * its layout allows, and their times. */
void cuda_candidates(CudaCandidates *c, Arena *arena, const CudaKernel *k,
                     const CudaPlanOptions *options);
/* The fastest valid candidate, the first of equals; those that were measured come before those that
 * are only predicted. -1: none. */
int cuda_candidates_best(const CudaCandidates *c);

/* lookup.c: the times of all valid candidates, and how they are known. */
void cuda_look_up(CudaCandidates *c, const CudaPlanOptions *options);

/* between.c: scales what is predicted under a size of which nothing was measured. */
void cuda_scale_between(CudaCandidates *c, const Timings *timings);

/* problem.c: what a product's time depends on beside its rows, as text: formats and their
 * granularity, sizes, what the prologue and epilogue read and write. */
const char *cuda_problem(Arena *arena, const CudaKernel *k);

/* choose.c: some tile of the product holds what its epilogue needs together. Reads the plan,
 * launch and layout of k, fills spec and packed. */
bool cuda_epilogue_runs(CudaKernel *k);
#define CUDA_TILE_COLS 256 /* of the widest tile, those of all parts */
/* candidates.c: .. a tile with `part_cols` columns of each part does. */
bool cuda_epilogue_fits(const CudaKernel *k, int64_t part_cols);
/* choose.c: both compute the same tile. */
bool cuda_same_tile(const CudaKernel *a, const CudaKernel *b);
/* .. the class has kernels of this family. */
bool cuda_family_serves(CudaFamily family, const CodeClass *gpu);

/* All launches that schedules may have, bound to the sizes of every bucket. */
typedef struct CudaDraft {
    Arena *arena;
    const CudaPlanOptions *options;
    const Plan *plan;
    const CudaRole *role;     /* [launches] */
    const PlanLayout *layout; /* [buckets][tensors] */
    Arena *scratch;           /* holds candidates until the next choice */
} CudaDraft;

/* choose.c: the schedule of a launch's chain under a bucket, and whether the launch is part of it;
 * the kernel that runs it then, with its time. *ret_problem: why there is none. */
CudaSchedule cuda_schedule(const CudaDraft *d, int launch, int bucket, bool *ret_runs);
/* Why the prologue of a chain whose schedule is SCHEDULE_APART is a launch of its own. */
CudaApartWhy cuda_prologue_apart(const CudaDraft *d, int launch, int bucket);
void cuda_choose(const CudaDraft *d, int launch, int bucket, CudaSchedule schedule,
                 CudaKernel *ret_kernel, CudaChoice *ret, const char **ret_problem);

/* choose.c: the order of sums that a product can have under all buckets and that costs least, where
 * a rule says `fused` of those with which its layer is one launch; NULL: there is none. */
const char *cuda_choose_order(const CudaDraft *d, int launch);

/* layout.c: sets the layout of each weight that has a choice of one, for all its launches. Returns
 * the layout of each under each bucket, [tensors][buckets]: others are those of further copies. One
 * may be CUDA_DECODED: a launch of its own decodes the weight, and the product reads its panels;
 * CUDA_HELD: likewise, and another holds the activation in the panels' format; or CUDA_HELD_ALONE:
 * that one alone, and the product decodes the weight for what is held. */
const uint8_t *cuda_choose_layouts(const CudaDraft *d, PlanTensor *tensor);
#define CUDA_DECODED    NUM_CUDA_PACKED
#define CUDA_HELD       (CUDA_DECODED + 1)
#define CUDA_HELD_ALONE (CUDA_HELD + 1)
#define NUM_CUDA_FORMS  (CUDA_HELD_ALONE + 1)
static inline bool cuda_holds(int form)
{
    return form == CUDA_HELD || form == CUDA_HELD_ALONE;
}
/* unfused.c: .. but that weights of layers whose rule says `fused` lie in the layout that lets them
 * be one launch, where the one that is faster does not. layouts: as above. */
const uint8_t *cuda_lay_fused(const CudaDraft *d, PlanTensor *tensor, const uint8_t *layouts);
/* Such a launch reads weights that lie so. */
static inline bool cuda_in_records(CudaLayout layout)
{
    return layout == CUDA_RECORDS || layout == CUDA_FRAGMENTS;
}
/* decode.c: the tensor that such a launch makes of a weight, without a place in the arena; false:
 * the weight has none, or its layers are to be one launch, or to have one order of sums. */
bool cuda_decoded(const CudaDraft *d, int weight, PlanTensor *ret);
/* .. of bf16, exactly: codes times their scales but the outer one. */
bool cuda_decoded_exactly(const PlanTensor *weight, PlanTensor *ret);
/* held.c: the weight for activations that are held as bf16: as panels (CUDA_HELD), or as it lies
 * (CUDA_HELD_ALONE); false: some are not held, or it cannot be read so, or its layers are to be one
 * launch, or to have one order of sums. */
bool cuda_held(const CudaDraft *d, int weight, int form, PlanTensor *ret);
/* .. a draft of what then runs of the products of the weight, which is `as` beside them; what
 * decodes it is no launch of the draft. False: sizes overflow. */
bool cuda_held_draft(const CudaDraft *d, int weight, const PlanTensor *as, Arena *arena,
                     CudaDraft *ret);
/* cost.c: microseconds of the launch. */
double cuda_decode_us(const PlanTensor *from, const PlanTensor *to);
/* Family and numbers in one word group, unique within a launch and bucket: "gemm_mma 128x64 w2x4
 * s3". Names the candidate in tables of timings. */
void cuda_candidate_put(Sb *sb, const CudaKernel *k);

/* cost.c: microseconds of a launch in a captured graph, predicted. */
double cuda_cost(const CudaKernel *k);

#endif
