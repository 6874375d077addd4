/* Fuzz target: the safetensors reader. An input is a header, a NUL and the data; the header length
 * is put before it, and the input is also read as it is. Whatever is accepted must be readable to
 * its last byte and found under its names. */
#include "io/io.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void parse(const uint8_t *file, size_t size)
{
    IoError err;
    TensorFile *f = tensorfile_parse("fuzz", file, size, &err);
    if (!f)
        return;
    volatile uint8_t sum = 0;
    for (int i = 0; i < tensorfile_num(f); i++) {
        const TensorView *view = tensorfile_at(f, i);
        for (uint64_t k = 0; k < view->bytes; k++)
            sum = (uint8_t)(sum + ((const uint8_t *)view->data)[k]);
        if (view->name && tensorfile_find(f, view->name) != view)
            BUG("a tensor is not found under its name");
    }
    tensorfile_close(f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    parse(data, size);
    const uint8_t *nul = memchr(data, 0, size);
    if (!nul)
        return 0;
    size_t len = (size_t)(nul - data), rest = size - len - 1;
    uint8_t *file = malloc(8 + len + rest);
    for (int i = 0; i < 8; i++)
        file[i] = (uint8_t)((uint64_t)len >> (8 * i));
    memcpy(file + 8, data, len);
    memcpy(file + 8 + len, nul + 1, rest);
    parse(file, 8 + len + rest);
    free(file);
    return 0;
}
