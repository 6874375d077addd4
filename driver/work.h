/* What commands share: a text read, lowered, run through the passes, planned and written, with all
 * diagnostics kept until the end. */
#ifndef SINTER_WORK_H
#define SINTER_WORK_H

#include "choose/choose.h"
#include "codegen/codegen.h"
#include "codegen/cuda/target.h"
#include "frontend/frontend.h"
#include "passes/passes.h"
#include "tools/words/cli.h"

/* How a model differs from what the command line says: `eval` compiles several. */
typedef struct WorkVariant {
    bool unquantised;    /* no layer is quantised */
    const char *rules;   /* a file that takes the place of all --rules */
    bool tapped;         /* every linear layer's result is an output too: passes/taps.c */
    int64_t rows;        /* .. of runs of as many rows */
    bool cpu_only;       /* whatever --target names, for runs on the CPU whose file is not kept */
    bool cpu_too;        /* beside what --target names */
    const char *program; /* a compiled file in place of what the text gives */
    const char *extra;   /* text of rules after all others; NULL: none */
    bool only_planned;   /* for its times: no weights are read, nothing is printed */
    Choice *choice;      /* what `auto` came to before; NULL: it is settled anew */
} WorkVariant;

/* The plan of a class of GPUs that --target names. */
typedef struct WorkGpu {
    const CodeClass *gpu;
    int num_archs;
    const char *arch[NUM_CUDA_ARCHS + 1]; /* of its images, the class's own first */
    CudaTarget cuda;
    ARRAY(CudaAvoided) avoided;
} WorkGpu;

typedef struct Work {
    Cli *cli;
    Arena *arena;
    Diag diag;
    const char *path; /* of the text */
    Module *module;
    WorkVariant variant; /* set after work_init */
    Choice *choice;      /* what `auto` came to; NULL: the text has none, or was only checked */
    bool is_slower;      /* a layer is slower than `slower error` allows */
    /* NULL, or called between the passes up to calibrate, which leave each layer by itself with all
     * that is asked of it, and those that rewrite it */
    void (*calibrated)(struct Work *w, void *user);
    void *user;
    PassContext passes;
    CodegenTarget list, cpu;      /* of no target; has_cpu: the CPU's plan */
    CudaPlanOptions cuda_options; /* but for the class, and the timings, which --timing gives */
    bool has_cpu;
    int num_gpus;
    WorkGpu gpu[NUM_CODE_CLASSES]; /* in the order of code_classes */
} Work;

bool work_init(Work *w, Cli *cli); /* false: out of memory, said */
/* Prints the diagnostics and frees everything; returns `exit_code`, or if there were errors and it
 * is EXIT_OK, the code that docs/command.md has for the first. */
int work_end(Work *w, int exit_code);

/* Each is false after errors in w->diag. */
bool work_options(Work *w, FrontendOptions *ret); /* -D and --rules */
bool work_lower(Work *w, const char *path);       /* text to module, passes ready to run */
bool work_load_ir(Work *w, const char *path);     /* printed IR to module */
bool work_passes(Work *w, const char *list);      /* NULL: the pipeline */
/* The pipeline without fusion up to the pass `until`: up to `middle` too, or what comes after it.
 */
bool work_passes_part(Work *w, const char *middle, const char *until, bool after);
bool work_bytes(Work *w, OptionId option, uint64_t least,
                uint64_t *ret); /* as it says; no suffix */
bool work_targets(Work *w);     /* --target */
bool work_plan(Work *w);        /* for every target */
/* The pipeline and then the plans, of which those of layers that a rule wants fused are made even
 * where others are not, so that all failures are said at once. */
bool work_passes_and_plan(Work *w);
/* .. for one GPU architecture whatever --target says, by the cost model alone */
bool work_plan_for(Work *w, const char *arch);
bool work_plan_gpu(Work *w, WorkGpu *gpu); /* without the candidates that are to be avoided */
/* kernels.c: compiles those of all GPUs that --target names. Where ptxas spills registers or lets
 * products wait for each other, their plans are made anew without these candidates. */
bool work_compile_kernels(Work *w);
/* slower.c: says which layers of the plans for GPUs take longer than unquantised, as --slower and
 * the text want it. After work_plan; false after errors. */
bool work_slower(Work *w);
void work_explain(Work *w, Sb *sb);       /* of every target, after work_plan */
void work_summary(const Work *w, Sb *sb); /* compiled.c: a line for each, likewise */
bool work_write(Work *w, const char *out_path);
/* lower, pipeline, plan, write */
bool work_compile(Work *w, const char *path, const char *out_path);
/* Compiles to a file without a name, or opens a compiled one: "/proc/self/fd/N", NULL on errors. */
const char *work_program(Work *w, const char *path);

/* work_auto.c: settles `auto` of a lowered text, where it has one, and lowers it again with the
 * rules of the outcome. A text that is only checked keeps the default's formats. */
bool work_auto(Work *w, const FrontendOptions *options);
/* Who is told of the progress of long steps (--progress), with the Work as user; NULL: nobody. */
typedef void ProgressFn(void *user, double done, const char *what);
ProgressFn *work_progress(const Work *w);

void work_io_error(Work *w, const IoError *err);
/* Reads a text and registers it as a source; 0 on errors. */
uint32_t work_source(Work *w, const char *path);
/* A text that we made, in canonical form; NULL after the errors of one that does not check. */
const char *work_canonical(Work *w, const char *name, const char *text);
bool work_threads(Work *w, int *ret);  /* --threads, 0: all */
int work_copies(const Work *w);        /* --copies */
CudaDecode work_decode(const Work *w); /* --decode-weights */
/* --weight-layout; NULL: any. */
const CudaLayout *work_layout(const Work *w);
/* The number of "cuda" or "cuda:1"; false: another name. */
bool work_gpu(const char *name, int *ret);
/* Where sessions run: what --device names. NULL: as programs do without it, on a GPU where the file
 * holds a plan for it and there is one, else on the processor. */
const char *work_device(const Work *w);
bool work_on_gpu(const Work *w); /* whether a text of this command line is going to run there */
/* Writes text to a file, or to standard output for NULL and "-". */
bool work_put(Work *w, const char *path, const char *text, size_t len);
const char *work_folder(Work *w, const char *path); /* of a file: "" or "a/b" */
bool file_is_program(const char *path); /* starts like a compiled file rather than a text */

#endif
