/* What tests of other programs ask of the fake driver through the environment. */
#ifndef SINTER_FAKE_ASKED_H
#define SINTER_FAKE_ASKED_H

#include <stdbool.h>

int asked_capability(int otherwise); /* SINTER_FAKE_CAPABILITY: of the GPUs */
double asked_launch_ms(
    double otherwise); /* SINTER_FAKE_US: what each launch takes, graphs nothing */
/* From the SINTER_FAKE_CRASH-th launch of a graph on, the next one kills the process, if the graph
 * has SINTER_FAKE_CRASH_NODES launches or that is not set, and the process was given the variable
 * that SINTER_FAKE_CRASH_IN names, or that is not set. */
void asked_crash(int launches, int nodes);
/* .. and where SINTER_FAKE_GONE names a file, that is made then, and no later process gets the GPU.
 */
bool asked_gone(void);

#endif
