/* Another processor for the steps of this room that take long: second moments and gptq. What it
 * gives has the bits of this room's own steps. */
#ifndef SINTER_QUANT_ENGINE_H
#define SINTER_QUANT_ENGINE_H

#include "quant/quant.h"

/* gptq of one weight after its columns were ordered and its Hessian damped. */
typedef struct GptqWork {
    QTensor *q;            /* scales of fixed groups are there; the engine sets those that move */
    const float *w;        /* [rows, cols] */
    const double *hessian; /* [cols, cols] in turned order, the lower half */
    const int64_t *column; /* [cols]: of each turned index; the last index comes first */
    int64_t width, height; /* of a block of q */
    bool moving_scales;
    uint8_t *code; /* [cols, rows], to be filled: one byte a code */
} GptqWork;

struct QuantEngine {
    void *user;
    /* A matrix of zeros [cols, cols] for second moments; NULL: no room for it. */
    void *(*moments_begin)(void *user, int64_t cols);
    /* Adds unit * x x^T over `rows` rows (whole runs) of the panels that products.h describes;
     * `held` is a panel's pitch in rows. The panels may change when this returns. */
    bool (*moments_add)(void *user, void *moments, const float *panels, int rows, int held,
                        double unit);
    /* Adds the lower half to sum [cols, cols]; sum NULL: nothing. Frees the matrix. */
    bool (*moments_end)(void *user, void *moments, double *sum);
    /* NULL, or a sentence that says what went wrong. */
    const char *(*gptq)(void *user, const GptqWork *work);
    const char *(*problem)(void *user); /* what went wrong first, or NULL */
};

/* What gptq says when a Hessian has no Cholesky factor. */
#define GPTQ_NOT_POSITIVE                                                                   \
    "gptq: the calibration data does not determine this layer's input (its Hessian is not " \
    "positive definite); use more samples or a larger damp"

#endif
