/* passes: module to module, one pass a file, in the order of passes.def. The runner verifies after
 * each and prints where asked. */
#ifndef SINTER_PASSES_H
#define SINTER_PASSES_H

#include "ir/ir.h"
#include "kernels/cpu/cpu.h"

/* What the targets of a compilation ask of kernels. */
typedef struct TargetLimits {
    int64_t tile_cols; /* of an epilogue: groups that share a dynamic scale divide it */
    /* Why no kernel multiplies by a weight of this spec; NULL: some does. */
    const char *(*weight_problem)(const CpuPackSpec *spec);
} TargetLimits;
extern const TargetLimits limits_cpu;  /* the CPU alone */
extern const TargetLimits limits_all;  /* the CPU and GPUs */
extern const TargetLimits limits_gpus; /* GPUs alone */

/* Runs the float model on calibration data elsewhere than in the evaluator. */
typedef struct CalibrationEngine {
    void *user;
    /* Readies runs of the module as it is that give these values; NULL after reporting to m->diag.
     */
    void *(*begin)(void *user, Module *m, int num, const Value *const *value);
    /* Inputs by name, of any plain format; gives every value to `observe`. False: *ret_why. */
    bool (*run)(void *runs, int num, const char *const *name, const Tensor *in,
                EvalObserver observe, void *observer, const char **ret_why);
    void (*end)(void *runs);
} CalibrationEngine;

typedef struct PassOptions {
    int opt_level;        /* 0: every op its own kernel */
    const char *base_dir; /* weight and calibration paths of the text are relative to it */
    bool invariant;       /* every layer: a row has the same bits in every batch */
    bool no_weights;      /* do not open weight files (check --no-weights) */
    bool allow_nan;       /* weights may hold NaN and infinity */
    int num_weight_files; /* replaces the text's `weights` when > 0 */
    const char *const *weight_file;
    FILE *trace;             /* --print-after */
    const char *print_after; /* pass name, "all" or NULL */
    bool time_passes;
    bool check_eval;                      /* evaluate before and after each pass and compare */
    const TargetLimits *limits;           /* NULL: limits_cpu */
    const QuantEngine *engine;            /* for second moments and gptq; NULL: this processor */
    const CalibrationEngine *calibration; /* NULL: the evaluator */
    bool use_cache;                       /* keep codes that take long to choose */
    bool new_calibration;                 /* a calibration file is being made: none is read */
    /* NULL, or told how far calibration is: 0 .. 1 */
    void (*progress)(void *user, double done, const char *what);
    void *progress_user;
} PassOptions;

/* Why a chain stopped growing, or a kernel exists; kept for explain. */
typedef struct FusionNote {
    const Op *kernel;
    Span span;
    const char *text; /* "rmsnorm needs whole rows of 4096 columns; the tile holds 256" */
    bool cut;         /* an elementwise step of this kernel's own chain had to stay outside */
} FusionNote;

typedef struct PassContext {
    Arena *arena;   /* module lifetime */
    Arena *scratch; /* reset after each pass */
    PassOptions options;
    ARRAY(FusionNote) fusion_notes;
    int num_compared;     /* passes, with check_eval */
    const char *no_check; /* why one was not that should have been: the latest; NULL: all were */
} PassContext;

typedef bool PassFn(Module *m,
                    PassContext *ctx); /* true: changed something; errors go to m->diag */
typedef struct Pass {
    const char *name, *describe;
    int level;
    PassFn *run;
} Pass;
extern const Pass passes[];
extern const int num_passes;
const Pass *pass_find(const char *name);

void pass_context_init(PassContext *ctx, Arena *arena, const PassOptions *options);
/* Runs the comma-separated passes, or the whole pipeline of options.opt_level when list is NULL.
 * False when m->diag has errors. */
bool passes_run(Module *m, PassContext *ctx, const char *list);

/* bind_stack.c: `pattern` with a number for its `*`; NULL stays NULL. */
const char *weight_name_at(Arena *arena, const char *pattern, int64_t at);

/* taps.c: for tools that look into a model. Adds an output for the result of each linear layer,
 * bias included, under the layer's path (before any pass), and for the operand of those with a
 * static range, under the path and " input". */
void taps_add(Module *m);
/* Where rows go to groups, what they give there stands group by group, so a batch of which that is
 * an output is not cut: the largest size that leads an input becomes `rows` at least. */
void taps_widen(Module *m, int64_t rows);
/* After calibrate, before insert-quant: puts the layer's range on the tap of its operand. */
void taps_take_ranges(Module *m);

#define PASS(id, name, level, describe) PassFn pass_##id;
#include "passes/passes.def"
#undef PASS

#endif
