/* What a launch wrote on two devices: the same bits, or near enough. */
#ifndef SINTER_TESTS_GPU_NEAR_H
#define SINTER_TESTS_GPU_NEAR_H

#include "artifact/artifact.h"

typedef struct Near {
    bool is_exact; /* only NaNs may differ, in their bits */
    bool is_odd;   /* inputs hold numbers so large that f32 sums may overflow in some order */
    bool is_gated; /* .. times tanh or sigmoid of a sum */
    bool rounds;  /* the GPU's weights are rounded ones: errors are random numbers near the bound */
    double bound; /* of plain tensors: near_bound of the coarsest format that they passed */
    double logits; /* .. of what a softmax made the values of; 0: none did */
    double worst;  /* largest normalised mean square error, as a share of its bound */
    char why[640]; /* what differs */
} Near;

/* Normalised mean square errors of float sums whose order is free: docs/numerics.md. */
double near_bound(FormatId fmt);
/* Such a bound where errors come near it: what is compared with was rounded, too, in bf16 by 8e-4
 * of a value, in f16 by an eighth of that. */
double near_rounded(double bound);
/* want, got: all parts of a tensor that is no view, of this layout. False after filling why. */
bool near_tensor(Near *n, const PlanTensor *t, const PlanLayout *l, const uint8_t *want,
                 const uint8_t *got);

#endif
