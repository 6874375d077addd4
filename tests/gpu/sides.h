/* Inputs and outputs of a model for given sizes, filled with random numbers. */
#ifndef SINTER_TESTS_GPU_SIDES_H
#define SINTER_TESTS_GPU_SIDES_H

#include "runtime/device.h"

#define SIDE_PORTS 256

typedef enum Odd { /* what the last row holds in place of small numbers */
                   ODD_NONE,
                   ODD_ZEROS,
                   ODD_DENORMAL,
                   ODD_LARGE,
                   ODD_INFINITY,
                   ODD_NAN,
                   NUM_ODD
} Odd;

typedef struct Side { /* tensors of all inputs or outputs */
    SinterTensor tensor[SIDE_PORTS];
    uint64_t bytes[SIDE_PORTS];
    void *data[SIDE_PORTS];
    int num;
} Side;

/* All zero. False: the sizes are refused. side_free in any case. */
bool side_make(const SinterModel *model, bool is_output, const int64_t *size, Side *ret);
void side_free(Side *side);
void side_fill(Side *side, uint64_t seed, Odd odd);
void side_poison(Side *side); /* no byte stays what a run may have left */

/* Where two sides part: "output y0, byte 640 of 16000"; NULL: nowhere but in the bits of NaNs. */
const char *side_difference(const Side *a, const Side *b, char *text, size_t size);
/* Largest normalised mean square error over the ports of `got`. */
double side_nmse(const Side *want, const Side *got);

#endif
