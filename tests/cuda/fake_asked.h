/* What tests of other programs ask of the fake driver through the environment. */
#ifndef SINTER_FAKE_ASKED_H
#define SINTER_FAKE_ASKED_H

#include <stdbool.h>

int asked_capability(int otherwise); /* SINTER_FAKE_CAPABILITY: of the GPUs */
bool asked_times(void);              /* is SINTER_FAKE_US set? */
/* SINTER_FAKE_US: what each launch takes; with SINTER_FAKE_SPREAD from half to one and a half of
 * it, by the kernel's name. */
double asked_launch_ms(const char *kernel);
/* What a graph takes whose launches take so much: with SINTER_FAKE_GRAPH_US, as 2:300,3:280, one of
 * 2 launches takes 300 us, whatever they take apart. */
double asked_graph_ms(int nodes, double launches_ms);
/* From the SINTER_FAKE_CRASH-th launch of a graph on, the next one kills the process, if the graph
 * has SINTER_FAKE_CRASH_NODES launches or that is not set, and the process was given the variable
 * that SINTER_FAKE_CRASH_IN names, or that is not set. */
void asked_crash(int launches, int nodes);
/* .. and where SINTER_FAKE_GONE names a file, that is made then, and no later process gets the GPU.
 */
bool asked_gone(void);

#endif
