/* Fuzz target: the GGUF reader. Whatever is accepted must be readable to its last byte, found under
 * its names, and its pairs and blocks must come out without surprises. */
#include "io/io.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_pairs(const TensorFile *f)
{
    GgufPair pair = {0};
    while (gguf_next_pair(f, &pair)) {
        int64_t whole;
        double real;
        volatile uint8_t sum = 0;
        for (uint64_t i = 0; i < pair.key_len; i++)
            sum = (uint8_t)(sum + (uint8_t)pair.key[i]);
        for (uint64_t i = 0; pair.type == GGUF_STRING && i < pair.num; i++)
            sum = (uint8_t)(sum + pair.data[i]);
        if (pair.type != GGUF_ARRAY && pair.type != GGUF_STRING && !gguf_integer(&pair, &whole) &&
            !gguf_real(&pair, &real))
            BUG("a pair has no value");
    }
}

static void read_blocks(const TensorView *view)
{
    const GgmlInfo *info = ggml_by_name(view->dtype);
    volatile float sum = 0;
    float value[GGML_MOST];
    for (uint64_t at = 0; at < view->bytes; at += (uint64_t)info->bytes) {
        if (!info->group)
            continue;
        ggml_decode(info, (const uint8_t *)view->data + at, value);
        sum = sum + value[0] + value[info->elements - 1];
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    IoError err;
    if (size < 4 || memcmp(data, "GGUF", 4) != 0)
        return 0;
    TensorFile *f = tensorfile_parse("fuzz", data, size, &err);
    if (!f)
        return 0;
    read_pairs(f);
    for (int i = 0; i < tensorfile_num(f); i++) {
        const TensorView *view = tensorfile_at(f, i);
        read_blocks(view);
        if (tensorfile_find(f, view->name) != view)
            BUG("a tensor is not found under its name");
    }
    tensorfile_close(f);
    return 0;
}
