/* Integers of any width as labels. Library-safe. */
#include "io/io.h"
#include <string.h>

static const struct {
    const char *npy, *safetensors;
    int bytes;
    bool is_signed;
} label_dtype[] = {
    {"i8", "I64", 8, true},  {"i4", "I32", 4, true},  {"i2", "I16", 2, true},
    {"i1", "I8", 1, true},   {"u8", "U64", 8, false}, {"u4", "U32", 4, false},
    {"u2", "U16", 2, false}, {"u1", "U8", 1, false},
};

static int find_label_dtype(const char *dtype)
{
    const char *bare = strchr("<|=", dtype[0]) ? dtype + 1 : dtype;
    for (int i = 0; i < (int)COUNT_OF(label_dtype); i++)
        if (!strcmp(bare, label_dtype[i].npy) || !strcmp(dtype, label_dtype[i].safetensors))
            return i;
    return -1;
}

static int64_t label_at(const TensorView *view, int dtype, uint64_t index)
{
    int bytes = label_dtype[dtype].bytes;
    const uint8_t *at = (const uint8_t *)view->data + index * (uint64_t)bytes;
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)at[i] << (8 * i);
    int unused = 64 - 8 * bytes;
    return label_dtype[dtype].is_signed ? (int64_t)(value << unused) >> unused : (int64_t)value;
}

bool labels_read(const TensorView *view, int64_t *ret)
{
    int dtype = find_label_dtype(view->dtype);
    for (uint64_t i = 0; dtype >= 0 && i < view->elements; i++)
        ret[i] = label_at(view, dtype, i);
    return dtype >= 0;
}
