/* A device as the engine of calibration: the float model compiled for it, with what layers see as
 * outputs. */
#ifndef SINTER_CALIBRATE_ON_H
#define SINTER_CALIBRATE_ON_H

#include "passes/passes.h"

typedef struct CalibrateOn {
    const char *device;   /* "cpu", "cuda:1" */
    int ordinal, threads; /* of a GPU; of the processor, and of compiling */
    bool use_cache;
    CalibrationEngine engine; /* filled by calibrate_on */
} CalibrateOn;

/* In `arena`; a GPU is first looked for when something is to run. */
const CalibrationEngine *calibrate_on(Arena *arena, const CalibrateOn *options);

#endif
