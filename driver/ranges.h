/* The static ranges that calibration found: what `calibrate` prints and `report` shows. */
#ifndef SINTER_RANGES_H
#define SINTER_RANGES_H

#include "ir/ir.h"

typedef struct StaticRange {
    const char *layer;      /* NULL: none is known */
    double lo, hi;          /* of the layer's input */
    double outside;         /* share of the calibration data; NaN: not known */
    int64_t rows;           /* of the data; -1: not known */
    const char *calibrator; /* "percentile 99.9" */
} StaticRange;
typedef ARRAY(StaticRange) StaticRanges;

/* Of every layer of a module after the pass calibrate, in its order. */
void ranges_collect(Arena *arena, const Module *m, StaticRanges *ret);

#endif
