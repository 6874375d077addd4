/* Comparing compiled models with the evaluator to the last bit.
 *
 * Only sums of floats may differ: a product's f32 result depends on the order of its sum.
 * Everything else, exact or rounding, has one result. So the result of every float product of an
 * unfused module becomes an output too, a probe. The evaluator then runs with each such product
 * replaced by what the kernels gave, once that is found within the error bound of any order of
 * summation; from there on it sees what the kernels saw, and all outputs must have its very bits.
 * No allowance is needed for codes that flip where a value lies next to a tie. */
#ifndef SINTER_TESTS_FORCED_H
#define SINTER_TESTS_FORCED_H

#include "ir/ir.h"
#include "runtime/sinter.h"

/* Adds the outputs to a module that the passes have finished without fusion. */
void probes_add(Module *m);

typedef struct ForcedStats {
    uint64_t products, elements; /* of probes compared */
    double worst_share;          /* largest error, as a share of its bound */
    double worst_error;          /* largest normalised mean square error of a product */
} ForcedStats;
void forced_print(const ForcedStats *stats);

/* Runs the evaluator on a module with probes and compares with what its file gave, probes among the
 * outputs. False after printing what differs. */
bool forced_compare(const Module *m, const int64_t *size, int num_in, const SinterTensor *in,
                    int num_out, const SinterTensor *out, ForcedStats *stats);

#endif
