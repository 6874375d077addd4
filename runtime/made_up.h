/* runtime/made_up: what runs that are only timed read, where nobody brought data. */
#ifndef SINTER_RUNTIME_MADE_UP_H
#define SINTER_RUNTIME_MADE_UP_H

#include "numerics/numerics.h"

/* Elements [from, from + num) of an input, which begins at `data`: values in (-1, 1), sums of four
 * uniform ones, near to normal and the same in every run; i32 counts rows, and counts all. */
void made_up_fill(FormatId fmt, void *data, uint64_t from, uint64_t num);
/* A whole input, for the caller to free; NULL: memory is exhausted. */
void *made_up(FormatId fmt, uint64_t num);

#endif
