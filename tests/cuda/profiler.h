/* What profiler.c exports. */
#ifndef SINTER_TEST_PROFILER_H
#define SINTER_TEST_PROFILER_H

#include <stdint.h>

const char *profiler_log(void); /* "<name" of each push, ">" of each pop since the last call */
int InitializeInjectionNvtx2(const void *(*get_table)(uint32_t id));

#endif
