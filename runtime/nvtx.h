/* Ranges that a profiler shows by the names of layers: one around each launch while a graph is
 * captured (Nsight Systems shows them at the graph's nodes) or launched step by step, and "sinter"
 * around each run of a graph. */
#ifndef SINTER_RUNTIME_NVTX_H
#define SINTER_RUNTIME_NVTX_H

void nvtx_push(const char *name);
void nvtx_pop(void); /* after a push */

#endif
