/* A compiled program run on the tensors of files, as `eval` and `report` do. */
#ifndef SINTER_TRIAL_H
#define SINTER_TRIAL_H

#include "driver/work.h"
#include "runtime/sinter.h"

typedef struct Trial {
    Work *w;
    Span span; /* of the line that asked for the run, for messages */
    SinterModel *model;
    SinterSession *session;
    SinterTensor *in, *out; /* in the model's order; memory of w->arena */
    int num_in, num_out;
} Trial;

/* The format of a port's elements. */
FormatId port_format(SinterDtype dtype);
/* Opens a compiled file on --device with --threads; false after an error, *ret_exit then is the
 * exit code. */
bool trial_open(Trial *t, Work *w, const char *program, int *ret_exit);
void trial_close(Trial *t);
/* A file whose path is relative to the text; NULL after an error at t->span. */
TensorFile *trial_file(Trial *t, const char *rel);
/* The tensor for a port: by name, or the only one of the file. NULL after an error. */
const TensorView *trial_view(Trial *t, const TensorFile *file, const char *port, int num_ports,
                             const char *file_name);
/* Inputs from a file, converted to what the model declares, and a run. */
bool trial_run(Trial *t, const TensorFile *input, const char *file_name);
/* An output by name; NULL: there is none. */
const SinterTensor *trial_output(const Trial *t, const char *name);
uint64_t trial_elements(const SinterTensor *tensor);
/* The values of a tensor, malloc'ed; NULL: memory is exhausted. */
double *trial_values(const SinterTensor *tensor);
const char *trial_shape(const Trial *t, const SinterTensor *tensor); /* "[4, 10]" */

#endif
