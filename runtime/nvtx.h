/* Ranges that a profiler shows by the names of layers: one around each launch while a graph is
 * captured (Nsight Systems shows them at the graph's nodes) or launched step by step, and "sinter
 * T = 16" around each run of a graph, by its bucket. */
#ifndef SINTER_RUNTIME_NVTX_H
#define SINTER_RUNTIME_NVTX_H

#include <stdbool.h>

bool nvtx_is_heard(void); /* a profiler is there */
void nvtx_push(const char *name);
void nvtx_pop(void); /* after a push */

#endif
