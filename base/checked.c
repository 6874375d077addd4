/* Checked sizes, and the end of the process when we made a mistake. */
#include "base/base.h"

#include <stdlib.h>

bool checked_elements(const int64_t *dim, int rank, uint64_t *out)
{
    /* A zero elsewhere does not excuse an overflow: the verdict must not depend on the order. */
    uint64_t product = 1;
    bool is_empty = false;
    for (int i = 0; i < rank; i++) {
        if (dim[i] < 0)
            return false;
        is_empty |= dim[i] == 0;
        if (dim[i] > 0 && !checked_mul(product, (uint64_t)dim[i], &product))
            return false;
    }
    *out = is_empty ? 0 : product;
    return true;
}

void memory_exhausted(void)
{
    fprintf(stderr, "sinter: error[%s]: memory is exhausted\n", error_info[E_MEMORY].code);
    exit(1);
}

void bug_at(const char *file, int line, const char *fmt, ...)
{
    va_list args;
    fflush(stdout);
    fprintf(stderr, "sinter: a bug of ours, please report it: %s:%d: ", file, line);
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
    exit(70);
}
