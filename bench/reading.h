/* The peer of products of one row: their weights, read and no more. */
#ifndef SINTER_BENCH_READING_H
#define SINTER_BENCH_READING_H

#include <stdint.h>

/* Which way is fastest depends on the processor and on what else it does. */
int num_readers(void);
extern const char *const reader_name[];
/* By one of them, on so many threads. */
void read_memory(const void *data, int64_t bytes, int reader, int threads);

#endif
