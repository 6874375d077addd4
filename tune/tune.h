/* tune: kernels measured one by one on a GPU, so that none can harm the others.
 *
 * The command (cmd_tune.c) collects the candidates of a model's products and keeps a table
 * (codegen/timing.h); tune_compile.c compiles them meanwhile; tune_child.c has processes measure
 * them and outlives what they do; tune_gpu.c is what runs in such a process. Only these processes
 * talk to the driver. */
#ifndef SINTER_TUNE_H
#define SINTER_TUNE_H

#include "base/child.h"
#include "codegen/cuda/choose.h"

typedef struct TuneGpu {
    int capability, processors; /* 90: 9.0 */
    uint64_t memory, l2;        /* bytes */
} TuneGpu;

typedef struct TuneTime {
    double us;      /* negative: it failed; 0: not measured */
    bool sustained; /* not in a burst, see tune_time */
} TuneTime;

/* One candidate of one product under one bucket. */
typedef struct TuneItem {
    const CudaKernel *kernel; /* with its plan, launch and layouts */
    const char *problem, *candidate;
    int64_t rows;
    double predicted;
    const char *entry; /* name in the image */
    uint64_t image_size;
    const void *image; /* cubin or PTX, terminated; NULL: there is none, see TuneRun.compiled */
    double us;         /* measured; negative: failed, see note; 0: not measured */
    bool sustained;    /* as in TuneTime */
    const char *note;
} TuneItem;

typedef struct TuneRun {
    Arena *arena;
    /* NULL: children go on in this program where they are (drivers may refuse to start there). Else
     * the words of a command that plans the same model and calls tune_serve. */
    char *const *argv;
    const char *arch;
    int ordinal;    /* of the GPU */
    double limit_s; /* of one candidate, the start of its process not counted */
    double start_s; /* of the start of a process */
    int num;
    TuneItem *item; /* those of one product and number of rows stand together */
    /* NULL, or called before each item: fills its image, or us (negative) and note; false: stop */
    bool (*compiled)(void *user, TuneItem *item);
    /* NULL, or called after each item; false: stop */
    bool (*done)(void *user, const TuneItem *item);
    void *user;
} TuneRun;

/* tune_child.c: false with the reason in *ret_why when no process can be started or use the GPU. Of
 * a product's items those that are nearly as fast as the fastest, and sustained, are measured
 * several times, in turn; done is called again for those it was called for. */
bool tune_probe(const TuneRun *run, TuneGpu *ret, const char **ret_why);
bool tune_measure(TuneRun *run, const char **ret_why);
/* The other side. What a process was started for; job -1: only to report the GPU. False: nothing,
 * this is the user's command. */
bool tune_order(ChildOrder *ret);
_Noreturn void tune_serve(const TuneRun *run, const ChildOrder *order);

/* tune_job.c: the items of a run in a file without a name, for processes that run the same program;
 * -1: errno says why. */
int tune_job_write(const TuneRun *run);
bool tune_job_put_image(const TuneRun *run, int job, int item);
/* Items without kernels and images; they point into memory that stays. */
bool tune_job_read(Arena *arena, int job, TuneRun *ret);
void *tune_job_image(int job, int item); /* malloc'ed, terminated; NULL: it cannot be read */

/* tune_compile.c: sources compiled on other threads, in order. NULL: no thread can be started.
 * `source` and what `options` names live as long. */
typedef struct TuneCompiler TuneCompiler;
TuneCompiler *tune_compile(int num, const CudaSource *source, const CudaCompileOptions *options);
/* Waits. An image, or NULL and why not, until tune_compile_end; false: there is no compiler. */
bool tune_compiled(TuneCompiler *c, int source, const void **ret_image, size_t *ret_size,
                   const char **ret_why);
/* Compiles no more; false: it could not, and said so. */
bool tune_compile_end(TuneCompiler *c, Diag *diag);

/* tune_gpu.c, in a process of its own: every error is text. */
#define TUNE_TEXT 240
typedef struct TuneSession TuneSession;
TuneSession *tune_open(int ordinal, TuneGpu *ret, char text[TUNE_TEXT]);
/* Microseconds of one launch among others in a captured graph, over weights that do not fit in L2
 * and normal numbers, quantised; the median of replays. They are a burst of some ms, with pauses,
 * in which power does not limit a GPU. If `best`, that of the fastest so far, is sustained, or 0
 * (there is none) and this launch is long, then so is this, unless it is far behind in the burst:
 * the median of replays without a pause, once others have brought the clocks down to where they
 * stay. Those far behind have the burst's time, which a sustained one is not below; slower ones
 * than 1.5 times `best` are measured less exactly. Negative: the candidate failed, 0: its product
 * does not fit the GPU; text says why. */
TuneTime tune_time(TuneSession *s, const TuneItem *item, TuneTime best, char text[TUNE_TEXT]);

#endif
