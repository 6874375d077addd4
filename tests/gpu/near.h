/* What a launch wrote on two devices: the same bits, or near enough. */
#ifndef SINTER_TESTS_GPU_NEAR_H
#define SINTER_TESTS_GPU_NEAR_H

#include "artifact/artifact.h"

typedef struct Near {
    bool is_exact; /* only NaNs may differ, in their bits */
    bool is_odd;   /* inputs hold numbers so large that f32 sums may overflow in some order */
    double bound;  /* of plain tensors: near_bound of the coarsest format that they passed */
    double worst;  /* largest normalised mean square error, as a share of its bound */
    char why[640]; /* what differs */
} Near;

/* Normalised mean square errors of float sums whose order is free: docs/numerics.md. */
double near_bound(FormatId fmt);
/* want, got: all parts of a tensor that is no view, of this layout. False after filling why. */
bool near_tensor(Near *n, const PlanTensor *t, const PlanLayout *l, const uint8_t *want,
                 const uint8_t *got);

#endif
