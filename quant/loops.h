/* The element loops of this room, each compiled for several instruction sets and chosen at run
 * time. Results do not depend on the choice: the steps are those of numerics.h. */
#ifndef SINTER_QUANT_LOOPS_H
#define SINTER_QUANT_LOOPS_H

#include "numerics/numerics.h"
#include <stdint.h>

/* Range of elements as integers (numerics.h, "Scales"): merged into *lo, *hi. */
typedef enum RangeKind {
    RANGE_AMAX,     /* *hi: largest magnitude's bits; a NaN shows */
    RANGE_AMAX_NAN, /* the same, NaNs skipped: the format stores them */
    RANGE_FINITE,   /* the same, NaNs and infinities skipped: outer scales */
    RANGE_BOTH      /* *lo, *hi: smallest and largest order key */
} RangeKind;
void loop_range(RangeKind kind, const float *x, int64_t num, int *lo, int *hi);

/* One byte a code: x * inv in this format; integers add zero and clamp to qmin..qmax. */
typedef struct EncodeArgs {
    int fmt;
    float inv;
    int zero, qmin, qmax;
} EncodeArgs;
void loop_encode(const EncodeArgs *args, const float *x, int64_t num, uint8_t *dst);

/* dst = x * inv, for blocks too small to encode alone. */
void loop_scale(float inv, const float *x, int64_t num, float *dst);

/* Two codes a byte, low nibble first; an odd last one has a zero neighbour. */
void loop_pack4(const uint8_t *src, int64_t num, uint8_t *dst);

void loop_to_f32(int fmt, const void *src, float *dst, int64_t num);
void loop_from_f32(int fmt, const float *src, void *dst, int64_t num);

#endif
