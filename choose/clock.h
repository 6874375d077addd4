/* choose/clock: compiled files timed on a GPU, in processes of their own, so that none can harm the
 * others or the choice. Each bucket runs as its captured graph, its weights out of the L2, and once
 * more launch by launch for what each launch has of it. */
#ifndef SINTER_CHOOSE_CLOCK_H
#define SINTER_CHOOSE_CLOCK_H

#include "base/child.h"

typedef struct ClockGpu {
    int capability, processors, driver; /* 90: 9.0; 12080: CUDA 12.8 */
    uint64_t memory;                    /* bytes */
    char name[64];
} ClockGpu;

typedef enum ClockFault {
    CLOCK_FINE,
    CLOCK_FILE, /* this file fails, the GPU does not */
    CLOCK_GPU   /* it does not exist, is not to be had, or is lost */
} ClockFault;

typedef struct Clock {
    Arena *arena;
    char *const *argv; /* of a command whose main asks clock_order */
    int ordinal;       /* of the GPU */
    Child child;
} Clock;

/* Each with the reason in *ret_why, unless it is fine; the process then is gone. */
ClockFault clock_look(Clock *c, ClockGpu *ret, const char **ret_why);
ClockFault clock_open(Clock *c, int file, const char **ret_why); /* ended by clock_close */
/* Microseconds of the bucket's graph, and of each of its `num` launches, which sum to that. */
ClockFault clock_time(Clock *c, int bucket, int num, double *ret_launch, double *ret_graph,
                      const char **ret_why);
void clock_close(Clock *c);

/* The other side: main calls clock_serve before all else where clock_order is true. */
bool clock_order(ChildOrder *ret);
_Noreturn void clock_serve(const ChildOrder *order);

/* Launches measured apart sum to more than their graph takes: each loses the same, but never more
 * than nine parts of ten, so that they sum to it. */
void clock_share(int num, double *launch, double graph);

#endif
