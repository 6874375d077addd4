/* What the models of a run multiply: how often each scheme of a weight met each scheme of an
 * activation, read from the compiled modules, not from what their generator meant. */
#ifndef SINTER_TESTS_RANDOM_COVERAGE_H
#define SINTER_TESTS_RANDOM_COVERAGE_H

#include "ir/ir.h"

enum {
    COVERAGE_ELEMENTS = 18,    /* format and symmetry */
    COVERAGE_ACT_ELEMENTS = 9, /* the first; the others are for weights */
    COVERAGE_GRAINS = 4, /* tensor, row, group; weights: 2-D block, activations: static tensor */
    COVERAGE_NAMED = 3,  /* mxfp8, mxfp4, nvfp4 */
    COVERAGE_WEIGHTS = COVERAGE_ELEMENTS * COVERAGE_GRAINS + COVERAGE_NAMED + 1, /* 1: plain */
    COVERAGE_ACTS = COVERAGE_ACT_ELEMENTS * COVERAGE_GRAINS + COVERAGE_NAMED + 3
};

typedef struct Coverage {
    int count[COVERAGE_WEIGHTS][COVERAGE_ACTS];
} Coverage;

/* Adds the linear layers of a module that the passes have finished without fusion. */
void coverage_add(Coverage *c, const Module *m);
/* Prints the table, a line a weight; returns how many pairs were never seen. */
int coverage_print(const Coverage *c);

#endif
