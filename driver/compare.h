/* Variants of a model beside the float model, layer by layer: what `eval --against` and `report`
 * show. Every variant is compiled with an output more for each linear layer and runs on the same
 * inputs, so that an error is all that has come together up to there. A compiled file can take the
 * float model's place; then only the outputs are compared. */
#ifndef SINTER_COMPARE_H
#define SINTER_COMPARE_H

#include "driver/trial.h"
#include "quant/metrics.h"

enum { COMPARE_MOST = 2 }; /* variants besides the float model */

typedef struct CompareRow {
    const char *name; /* a layer's path, or an output */
    bool is_layer;
    Distance d[COMPARE_MOST];
    double clipped[COMPARE_MOST]; /* share of the input outside its static range; NaN: no such */
} CompareRow;

typedef struct Comparison {
    int num_variants;
    const char *variant[COMPARE_MOST];
    const char *reference;  /* a compiled file; NULL: the float model */
    ARRAY(CompareRow) rows; /* layers in the text's order, then outputs */
    const char *logits;     /* the output that the following speak of; NULL: none */
    double divergence[COMPARE_MOST], agreement[COMPARE_MOST]; /* KL in nats; share of rows */
    bool has_labels;
    double accuracy[COMPARE_MOST], float_accuracy;
    int64_t num_rows;
    const char *device;
} Comparison;

/* The model as the command line says it, and `other` (a file of rules, or NULL) in place of its
 * --rules; or, when `other` is a compiled file, the model against that. Inputs from --input, else
 * those of the first expect line. False after errors. */
bool comparison_make(Comparison *c, Work *w, const char *path, const char *other, int *ret_exit);
void comparison_json(const Comparison *c, Sb *sb); /* members of an object */

int eval_compare(Work *w, const char *path); /* the exit code */
/* bisect.c: --bisect, likewise. */
int eval_bisect(Work *w, const char *path);
/* Compiles the variant of w, opens it and runs it on the inputs of the command line. False after an
 * error, *ret_exit then is the exit code. */
bool compare_run(Trial *t, Work *w, const char *path, int *ret_exit);

/* The output that labels score: the only one, or the one named logits. */
const SinterTensor *compare_logits(const Trial *t);
/* Reads --labels. False after an error. */
bool compare_labels(Trial *t, const int64_t **ret, int64_t *ret_num);
bool compare_accuracy(Trial *t, const SinterTensor *logits, const int64_t *label, int64_t num,
                      double *ret);

/* compare_print.c: members of an object: elements, max_abs, mean_abs, cosine, sqnr_db. */
void json_distance(Sb *sb, const Distance *d);

#endif
