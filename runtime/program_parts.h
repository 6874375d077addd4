/* The parts of the program that every compiled file carries: words of its command line
 * (program.c), tensors of files (program_files.c), timing (program_bench.c). */
#ifndef SINTER_PROGRAM_PARTS_H
#define SINTER_PROGRAM_PARTS_H

#include "io/io.h"
#include "runtime/sinter.h"

enum { PROGRAM_OK = 0, PROGRAM_INPUT = 1, PROGRAM_USAGE = 2, PROGRAM_DEVICE = 4 };

#define PROGRAM_MAX_WORDS 64 /* of one repeatable option */

typedef struct Words {
    const char *text[PROGRAM_MAX_WORDS];
    int num;
} Words;

typedef struct Program {
    const char *name; /* for messages */
    Words input, output, bucket;
    const char *labels, *device, *trace;
    const char *as_json; /* file for results as JSON; NULL: text */
    int threads, repeat; /* 0: all; 0: as many as a second holds */
    int seconds, warm;   /* of timing, 0: about one; runs before it, 0: as many as 0.1 s holds */
    bool bench, info, json, refuses_nan;
    SinterModel *model;
    SinterSession *session;
} Program;

/* "NAME: text" to stderr; returns the exit code. */
int program_fail(const Program *p, int exit_code, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* A name of the file so that a terminal only shows it (utf8_show), cut where it is long; valid for
 * the next three calls. */
const char *program_shown(const char *name);
void program_warn(const Program *p, const char *fmt, ...) PRINTF_LIKE(2, 3);
int program_status_code(SinterStatus status);

/* A tensor bound to a port, and what its memory belongs to. */
typedef struct Bound {
    SinterTensor tensor; /* name NULL: not bound */
    const char *path;    /* outputs: the file to write, or NULL */
    TensorFile *file;    /* inputs: mapped; NULL when not */
    void *memory;        /* malloc'ed, or NULL */
} Bound;

/* All ports of one side. */
typedef struct BoundSet {
    Bound *bound;         /* [num] */
    SinterTensor *tensor; /* [num], for sinter_run */
    int num;
} BoundSet;

bool bound_init(BoundSet *set, int num);
void bound_free(BoundSet *set);
/* program_files.c. Each returns PROGRAM_OK, or an exit code after saying why. */
int inputs_read(const Program *p, BoundSet *set); /* every input from --input, as declared */
/* A NaN of the inputs that static ranges would turn into an ordinary number: said once, or an
 * error. */
int inputs_check(const Program *p, const BoundSet *set);
/* Where there is one: the input and its element. Models that show a NaN in their results have
 * none. */
bool inputs_hide_nan(const SinterModel *model, const SinterTensor *input, int num, int *ret_input,
                     uint64_t *ret_element);
int outputs_name(const Program *p, BoundSet *set); /* files of --output to ports */
int outputs_alloc(const Program *p, const BoundSet *in, BoundSet *out); /* shapes and memory */
int outputs_write(const Program *p, const BoundSet *set);
void outputs_print(const BoundSet *set); /* a summary of each to stdout */
int labels_score(const Program *p, const BoundSet *set);

/* program_bench.c */
/* Memory for every port of one side at these sizes, inputs filled with made-up data, the same in
 * every run. PROGRAM_OK, or an exit code after saying why; bound_free frees what there is. */
int side_make_up(const Program *p, bool output, const int64_t *size, BoundSet *set);
int bench_run(const Program *p);
/* "T = 16": which bucket the latest run took, and why: what of the batch it holds. */
void last_run_text(const Program *p, char *buf, size_t size);
int trace_write(const Program *p); /* of the session's latest run, to --trace */

#endif
