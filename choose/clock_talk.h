/* choose/clock_talk: what the two sides of a clock say to each other. */
#ifndef SINTER_CHOOSE_CLOCK_TALK_H
#define SINTER_CHOOSE_CLOCK_TALK_H

#include "choose/clock.h"

#define CLOCK_ORDER "SINTER_CLOCK_ORDER" /* variable of the environment */

typedef struct ClockTask {
    int ordinal, bucket; /* bucket -1: open the GPU, and the file if there is one */
} ClockTask;

typedef struct ClockReport { /* of each task; `num` doubles follow a bucket's */
    char text[512];          /* why it failed; "": it did not */
    ClockGpu gpu;
    double graph_us;
    int num;
} ClockReport;

#endif
