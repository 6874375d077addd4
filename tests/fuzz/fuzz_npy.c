/* Fuzz target: the npy reader. An input is what follows the magic bytes, so that no time is lost on
 * guessing them. Whatever is accepted must be readable to its last byte. */
#include "io/io.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    IoError err;
    uint8_t *file = malloc(size + 6);
    memcpy(file, "\x93NUMPY", 6);
    memcpy(file + 6, data, size);
    TensorFile *f = tensorfile_parse("fuzz", file, size + 6, &err);
    if (f) {
        volatile uint8_t sum = 0;
        const TensorView *view = tensorfile_at(f, 0);
        for (uint64_t k = 0; k < view->bytes; k++)
            sum = (uint8_t)(sum + ((const uint8_t *)view->data)[k]);
        tensorfile_close(f);
    }
    free(file);
    return 0;
}
