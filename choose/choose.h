/* choose: settles `auto { .. }`. For every layer and candidate it finds the error on the user's
 * data and the time of the real fused kernel, solves for the best choice within what the text
 * requires, runs that choice on held-out data, and states the outcome as ordinary `quant` rules.
 *
 * The choice stands before the passes, not among them: its outcome is a text of rules, and the
 * model is compiled with that text as if the user had written it. So compiling with the printed
 * rules gives the same file. docs/auto.md has the formulas. */
#ifndef SINTER_CHOOSE_H
#define SINTER_CHOOSE_H

#include "choose/clock.h"
#include "codegen/codegen.h"
#include "codegen/cuda/target.h"
#include "frontend/frontend.h"
#include "passes/passes.h"

/* A GPU on which candidates are timed, and everything runs. */
typedef struct ChooseDevice {
    const char *name; /* "cuda:0" */
    int ordinal;
    ClockGpu gpu;
    const char *kind; /* as tables of timings name it */
    int num_archs;
    const char *const *arch; /* of the images that it runs */
    char *const *argv;       /* of this command, for processes of its own (clock.h) */
} ChooseDevice;

typedef struct ChooseOptions {
    const char *name, *text; /* of the model, as read */
    size_t len;
    FrontendOptions frontend;
    PassOptions passes;
    int threads;          /* of timed and evaluated models, 0: all */
    bool no_measure;      /* take times from the cost model alone */
    const char *times;    /* JSON of an earlier choice whose times are taken; NULL: none */
    const char *errors;   /* .. whose errors of layers are taken */
    const CodeClass *gpu; /* time the plan of these GPUs, which is not run here; NULL: the CPU's */
    const ChooseDevice *device; /* a GPU of this class, where it is; NULL: none is asked */
    const Timings *timings;     /* gpu: measured times; NULL: the cost model alone */
    int copies;                 /* gpu: CudaPlanOptions.copies */
    CudaDecode decode;          /* gpu: CudaPlanOptions.decode */
    const CudaLayout *layout;   /* .. CudaPlanOptions.layout */
    void (*progress)(void *user, double done, const char *what); /* may be NULL */
    void *user;
} ChooseOptions;

typedef enum TimeSource {
    TIME_NONE,     /* the candidate has no time */
    TIME_GIVEN,    /* from options.times */
    TIME_MEASURED, /* here: in the whole model; without a device, of a GPU's products by `sinter
                      tune` */
    TIME_TABLE,    /* in the table of such a GPU that is part of the compiler */
    TIME_MODEL     /* bytes and operations over the machine's rates */
} TimeSource;
extern const char *const time_source_name[];

/* One layer under one candidate. */
typedef struct LayerCell {
    const char *why;     /* it cannot be used here; NULL: it can */
    double sqnr, cosine; /* of the layer's output against the float layer, same inputs */
    double noise;        /* what this alone does to the model's outputs: NMSE */
    double turn;         /* the part of it that turns them: 2 (1 - cosine) */
    uint64_t bytes;      /* of the packed weight */
    double *us;          /* [buckets], with what is fused into the layer */
    TimeSource source;
} LayerCell;

typedef struct ChoiceLayer {
    const char *path;
    Span span;
    int64_t experts, n, k; /* experts: 0, a matrix for all rows */
    int group;             /* layers that share one candidate; -1: pinned */
    bool pinned;           /* a rule or the text at the layer says its format */
    LayerCell *cell;       /* [choice.num_columns] */
} ChoiceLayer;

typedef struct ChoicePoint { /* one choice of candidates for all groups */
    int *pick;               /* [num_groups] columns */
    double objective;        /* what is minimised */
    double latency;          /* weighted microseconds of all layers */
    double bytes;
    double noise, turn; /* estimated, of the outputs */
    double cosine;      /* from turn */
    bool verified;
    double measured_cosine, measured_sqnr; /* of the worst output on the data that require says */
    double measured_us;                    /* on the device, graphs of the whole model, weighted */
    const double *graph_us;                /* .. [buckets]; NULL: not measured */
} ChoicePoint;

typedef struct Choice {
    Arena *arena;
    const AutoSpec *spec;
    int num_candidates, num_columns; /* columns: the candidates, then unquantised, then pinned */
    const char **column;             /* names */
    int float_column, pinned_column;
    int num_buckets, num_syms;
    const Sym *const *sym;
    int64_t *bucket; /* [buckets][syms] */
    double *weight;  /* [buckets], sum 1: what latency means */
    int num_layers, num_groups;
    ChoiceLayer *layer; /* in the order of the model; a layer that is used twice stands twice */
    double *fixed_us;   /* [buckets] of kernels that belong to no layer */
    double fixed_bytes; /* constants that belong to no layer */
    /* CPU: models and sizes that were timed, and of these how many other processes held up */
    int num_timed, num_held_up;
    const char *device; /* that all this was measured on: "cuda:0 (NVIDIA H200)"; NULL: none */
    double *graph_us;   /* [columns][buckets] there, of the model with the column at every layer */
    int num_kept;       /* models and sizes that an earlier command had timed there */
    bool proven;        /* the solver's result is the optimum of the estimates */
    double gap;         /* else at most this far from it, relative */
    int rounds;         /* of verification */
    double correction;  /* measured over estimated error */
    double *noise_scale, *turn_scale; /* [columns] by which estimates of errors are multiplied */
    ChoicePoint chosen;
    int num_tried;
    ChoicePoint *tried; /* all that were run, in order */
    int num_front;
    ChoicePoint *front;   /* Pareto-optimal latency and error, fastest first; estimates */
    ChoicePoint *uniform; /* [num_candidates] every layer alike; pick NULL where it cannot */
    int num_slower;       /* quantised layers that take longer than unquantised */
    double seconds[4];    /* calibration, errors, times, solving and verifying */
    const char *rules;    /* `quant` rules that reproduce the choice */
    const char *standing; /* .. with all that they need of files of rules */
} Choice;

/* NULL after errors in diag. m: the lowered model, before any pass. */
Choice *choose_run(Arena *arena, Diag *diag, const Module *m, const ChooseOptions *options);

/* print.c: the table for people; data_out.c: the same numbers as data, and a picture. */
void choice_print(Sb *sb, const Choice *c);
void choice_json(Sb *sb, const Choice *c);
void choice_svg(Sb *sb, const Choice *c);

#endif
