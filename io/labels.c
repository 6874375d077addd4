/* Whole numbers of any format as labels, and whether they can be the labels of some logits.
 * Library-safe. */
#include "io/io.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

static const struct {
    const char *npy, *safetensors;
    int bytes;
    bool is_signed;
} label_dtype[] = {
    {"i8", "I64", 8, true},  {"i4", "I32", 4, true},  {"i2", "I16", 2, true},
    {"i1", "I8", 1, true},   {"u8", "U64", 8, false}, {"u4", "U32", 4, false},
    {"u2", "U16", 2, false}, {"u1", "U8", 1, false},  {"b1", "BOOL", 1, false},
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

/* Labels that passed through a table of floats, as those of pandas do. */
static bool read_floats(const TensorView *view, const char *path, int64_t *ret, IoError *err)
{
    for (uint64_t i = 0; i < view->elements; i++) {
        double value =
            view->fmt == FMT_F64 ? ((const double *)view->data)[i] : ((const float *)view->data)[i];
        if (!(fabs(value) <= LIMIT_DIM) || value != rint(value))
            return io_fail(err, E_LABELS,
                           "%s: the label of row %" PRIu64 " is %.9g, which is no whole number",
                           path, i, value);
        ret[i] = (int64_t)value;
    }
    return true;
}

bool labels_read(const TensorView *view, const char *path, int64_t *ret, IoError *err)
{
    int dtype = view ? find_label_dtype(view->dtype) : -1;
    bool is_float = view && (view->fmt == FMT_F64 || view->fmt == FMT_F32);
    if (dtype < 0 && is_float)
        return read_floats(view, path, ret, err);
    if (dtype < 0)
        return io_fail(err, E_LABELS, "%s: labels are whole numbers, this is %s", path,
                       view ? view->dtype : "a set of tensors");
    for (uint64_t i = 0; i < view->elements; i++)
        ret[i] = label_at(view, dtype, i);
    return true;
}

bool labels_fit(const int64_t *label, uint64_t num, const char *path, const char *logits,
                int64_t rows, int64_t cols, IoError *err)
{
    if (num != (uint64_t)rows)
        return io_fail(err, E_LABELS, "%s: %" PRIu64 " labels for %" PRId64 " rows of '%s'", path,
                       num, rows, logits);
    for (uint64_t i = 0; i < num; i++)
        if (label[i] < 0 || label[i] >= cols)
            return io_fail(err, E_LABELS,
                           "%s: label %" PRId64 " of row %" PRIu64 " is no column of '%s', which "
                           "has %" PRId64 ", from 0 on",
                           path, label[i], i, logits, cols);
    return true;
}
