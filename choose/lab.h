/* choose/lab: models that are compiled and run in passing, with diagnostics of their own. */
#ifndef SINTER_CHOOSE_LAB_H
#define SINTER_CHOOSE_LAB_H

#include "choose/choose.h"
#include "quant/metrics.h"
#include "runtime/sinter.h"

typedef struct Lab {
    Arena *arena;
    Diag *diag; /* the user's */
    const ChooseOptions *options;
} Lab;

/* One model on its way from text to results. */
typedef struct Probe {
    const Lab *lab;
    Arena *arena;
    Diag diag;
    Module *module;
    PassContext passes;
    CodegenTarget target; /* the CPU's plan; on a device the launch list */
    CudaTarget cuda;      /* after probe_plan_gpu */
    SinterModel *model;
    SinterSession *session;
    int file; /* what probe_file made; -1: nothing yet */
} Probe;

/* Lowers the text with further rules (NULL: none). False: nothing to close. */
bool probe_lower(Probe *t, const Lab *lab, const char *rules);
/* Runs passes; NULL: the pipeline. */
bool probe_passes(Probe *t, const char *list);
/* Runs the pipeline up to `last`, or from `first` on. */
bool probe_passes_to(Probe *t, const char *last);
bool probe_passes_from(Probe *t, const char *first);
bool probe_plan(Probe *t);        /* after the passes */
bool probe_plan_gpu(Probe *t);    /* after probe_plan: for the GPUs of the options */
bool probe_compile_gpu(Probe *t); /* after probe_plan_gpu: for the device, once */
int probe_file(Probe *t);         /* after these: the probe's, without a name; -1 after an error */
bool probe_open(Probe *t);        /* after probe_plan: such a file, mapped and ready to run */
void probe_leave(Probe *t);       /* after probe_open: gives the device back; the file stays */
void probe_close(Probe *t);
/* The first error of the probe, or "" */
const char *probe_problem(const Probe *t);
/* Reports it to the user; returns false. */
bool probe_fail(const Probe *t, const char *doing);

/* data.c: tensors of a file as inputs of a model ----------------------------------------------- */

typedef struct Tensors { /* f32, counts of rows i32; in the arena of whoever asked */
    int num;
    SinterTensor *tensor;
} Tensors;

typedef struct DataSet {
    const char *path;
    int64_t rows; /* of the leading dimension, after sampling */
    Tensors in;
} DataSet;

/* Reads one tensor for each input of the model, at most `most` rows (0: all) spread evenly over the
 * file, or its first ones where rows of the model depend on each other. NaN and infinities are
 * errors at span. */
bool data_read(const Lab *lab, const Probe *model, const char *path, Span span, int64_t most,
               Arena *arena, DataSet *ret);

/* Runs the model: outputs in its order, converted to f32. False after reporting. */
bool probe_run(Probe *t, const Tensors *in, Arena *arena, Tensors *ret);
int64_t tensor_count(const SinterTensor *t);

#endif
