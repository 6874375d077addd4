/* onnx/tensor: TensorProto. Values lie as raw bytes, as packed or single numbers of their kind, or
 * in another file beside the model; in each case there must be as many as the dimensions say. */
#include "onnx/onnx.h"

#include <stdlib.h>
#include <string.h>

enum { DIMS = 1, TYPE = 2, FLOATS = 4, INT32S = 5, STRINGS = 6, INT64S = 7, NAME = 8, RAW = 9 };
enum { DOUBLES = 10, UINT64S = 11, EXTERNAL = 13, LOCATION = 14 };

typedef struct Reading {
    OnnxModel *m;
    Wire *w;
    OnnxTensor *t;
    uint8_t *typed; /* values of the fields that have a type, as little-endian bytes */
    uint64_t num_typed, cap;
    int width; /* bytes of one of them */
    bool has_raw, is_external;
    const char *location;
    uint64_t offset, length;
    bool has_length;
} Reading;

const OnnxTypeInfo *onnx_type(OnnxType type)
{
    static const OnnxTypeInfo info[] = {
        [0] = {"unknown", 0, FMT_NONE, 0, 0},
#define ONNX_TYPE(ID, number, name, bits, fmt, least, most) \
    [number] = {name, bits, FMT_##fmt, least, most},
#include "onnx/types.def"
#undef ONNX_TYPE
    };
    return &info[(unsigned)type < COUNT_OF(info) ? type : 0];
}

/* Values --------------------------------------------------------------------------------------- */

static void put_typed(Reading *r, uint64_t value, int width)
{
    uint64_t at = r->num_typed * (uint64_t)width;

    if (at + 8 > r->cap) {
        uint64_t cap = r->cap ? r->cap * 2 : 64;
        r->typed = arena_grow(r->m->arena, r->typed, r->cap, cap);
        r->cap = cap;
    }
    for (int i = 0; i < width; i++)
        r->typed[at + (uint64_t)i] = (uint8_t)(value >> (8 * i));
    r->num_typed++;
    r->width = width;
}

/* Fields of numbers: packed, or one after the other. int32_data holds the bits of narrower types,
 * too, so each number keeps as many bytes as the tensor's type has. */
static bool read_typed(Reading *r, const WireField *f)
{
    Wire in;
    int bits = onnx_type(r->t->type)->bits, width = bits < 8 ? 1 : bits / 8;
    uint64_t value;

    if (width > 8)
        return wire_fail(r->w, "values of a tensor of %s", onnx_type(r->t->type)->name);
    if (f->kind != WIRE_BYTES) {
        put_typed(r, f->value, width);
        return true;
    }
    if (f->number == FLOATS || f->number == DOUBLES) {
        uint64_t size = f->number == FLOATS ? 4 : 8;
        if (f->bytes.size % size || (int)size != width)
            return wire_fail(r->w, "%llu bytes of packed numbers of %llu bytes for a tensor of %s",
                             (unsigned long long)f->bytes.size, (unsigned long long)size,
                             onnx_type(r->t->type)->name);
        for (uint64_t i = 0; i < f->bytes.size / size; i++) {
            memcpy(&value, f->bytes.data + i * size, size);
            put_typed(r, size == 4 ? value & 0xffffffffu : value, width);
        }
        return true;
    }
    in = wire_inside(r->w, f, "tensor's numbers");
    while (in.at < in.end && wire_varint(&in, &value))
        put_typed(r, value, width);
    r->w->failed = in.failed;
    return !in.failed;
}

static bool read_dims(Reading *r, const WireField *f)
{
    Wire in = *r->w;
    uint64_t value = f->value;
    bool packed = f->kind == WIRE_BYTES;

    if (packed)
        in = wire_inside(r->w, f, "tensor's dimensions");
    while (!packed || (in.at < in.end && wire_varint(&in, &value))) {
        if (r->t->rank == LIMIT_RANK)
            return wire_fail(r->w, "a tensor of more than %d dimensions", LIMIT_RANK);
        if (value > LIMIT_DIM)
            return wire_fail(r->w, "a dimension of %lld", (long long)value);
        r->t->dim[r->t->rank++] = (int64_t)value;
        if (!packed)
            break;
    }
    r->w->failed = in.failed;
    return !in.failed;
}

/* External data -------------------------------------------------------------------------------- */

static bool read_entry(Reading *r, const WireField *field)
{
    Wire in = wire_inside(r->w, field, "place of external data");
    WireField f;
    char word[2][512] = {"", ""};

    while (wire_next(&in, &f)) {
        if (f.kind != WIRE_BYTES || f.number > 2)
            continue;
        if (f.bytes.size >= sizeof word[0] || memchr(f.bytes.data, 0, (size_t)f.bytes.size)) {
            wire_fail(&in, "a word that is too long or holds NUL");
            break;
        }
        memcpy(word[f.number - 1], f.bytes.data, (size_t)f.bytes.size);
        word[f.number - 1][f.bytes.size] = 0;
    }
    if (!in.failed && strcmp(word[0], "location") == 0)
        r->location = arena_strdup(r->m->arena, word[1]);
    if (!in.failed && (!strcmp(word[0], "offset") || !strcmp(word[0], "length"))) {
        char *end;
        unsigned long long value = strtoull(word[1], &end, 10);
        if (word[1][0] < '0' || word[1][0] > '9' || *end || value > LIMIT_BYTES)
            wire_fail(&in, "%s '%.40s' is no number of bytes", word[0], word[1]);
        else if (word[0][0] == 'o')
            r->offset = value;
        else
            r->length = value;
        r->has_length = r->has_length || word[0][0] == 'l';
    }
    r->w->failed = in.failed;
    return !in.failed;
}

/* A file of the model's folder: data elsewhere are not followed. */
static bool is_beside(const char *location)
{
    if (!*location || *location == '/')
        return false;
    for (const char *c = location; *c; c++)
        if (c[0] == '.' && c[1] == '.' && (c == location || c[-1] == '/') && (!c[2] || c[2] == '/'))
            return false;
    return true;
}

static const MappedFile *external_file(Reading *r)
{
    OnnxModel *m = r->m;
    intptr_t known = (intptr_t)map_get(&m->external_by_path, r->location);
    MappedFile file;

    if (known)
        return &m->external.elem[known - 1];
    char *path = path_beside(m->path, r->location);
    bool ok = path && file_map(path, &file, r->w->err);
    free(path);
    if (!ok) {
        r->w->failed = true;
        return NULL;
    }
    ARRAY_PUSH(m->arena, &m->external, file);
    map_put(&m->external_by_path, r->location, (void *)(intptr_t)m->external.num);
    return &m->external.elem[m->external.num - 1];
}

static bool settle_external(Reading *r)
{
    OnnxTensor *t = r->t;

    if (!r->location || !is_beside(r->location))
        return wire_fail(r->w, "tensor '%.100s': external data at '%.100s', not beside the model",
                         t->name, r->location ? r->location : "");
    if (!r->m->file.data)
        return wire_fail(r->w, "tensor '%.100s': external data of a model without a folder",
                         t->name);
    const MappedFile *file = external_file(r);
    if (!file)
        return false;
    if (r->offset > file->size || (r->has_length ? r->length : t->bytes) > file->size - r->offset)
        return wire_fail(r->w, "tensor '%.100s': %llu bytes from %llu on, but '%.100s' has %llu",
                         t->name, (unsigned long long)(r->has_length ? r->length : t->bytes),
                         (unsigned long long)r->offset, r->location,
                         (unsigned long long)file->size);
    if (r->has_length && r->length != t->bytes)
        return wire_fail(r->w, "tensor '%.100s': %llu bytes of external data, but it has %llu",
                         t->name, (unsigned long long)r->length, (unsigned long long)t->bytes);
    t->data = file->data + r->offset;
    return true;
}

/* The whole ------------------------------------------------------------------------------------ */

static bool settle(Reading *r, OnnxBytes raw)
{
    OnnxTensor *t = r->t;
    const OnnxTypeInfo *type = onnx_type(t->type);
    uint64_t bits;

    if (!type->bits && t->type != ONNX_STRING)
        return wire_fail(r->w, "tensor '%.100s' has elements of unknown type %d", t->name,
                         (int)t->type);
    if (!checked_elements(t->dim, t->rank, &t->elements) || t->elements > LIMIT_ELEMENTS ||
        !checked_mul(t->elements, (uint64_t)type->bits, &bits))
        return wire_fail(r->w, "tensor '%.100s': its size overflows", t->name);
    t->bytes = bits / 8 + (bits % 8 != 0);
    if (t->type == ONNX_STRING)
        return true;
    if (r->is_external)
        return settle_external(r);
    uint64_t typed = r->num_typed * (uint64_t)r->width;
    t->data = r->has_raw ? raw.data : r->typed;
    uint64_t have = r->has_raw ? raw.size : typed;
    if (have != t->bytes || (r->has_raw && r->num_typed))
        return wire_fail(r->w, "tensor '%.100s' of %llu %s has %llu bytes of values, not %llu",
                         t->name, (unsigned long long)t->elements, type->name,
                         (unsigned long long)have, (unsigned long long)t->bytes);
    return true;
}

/* Types are often written behind dimensions, but before values; a tensor whose type comes later is
 * read twice. */
static void read_type(Reading *r)
{
    Wire in = *r->w;
    IoError ignored;
    WireField f;

    in.err = &ignored;
    while (wire_next(&in, &f))
        if (f.number == TYPE && f.kind == WIRE_VARINT && f.value < 64)
            r->t->type = (OnnxType)f.value;
}

OnnxTensor *onnx_tensor_read(OnnxModel *m, Wire *w)
{
    OnnxTensor *t = ARENA_NEW(m->arena, OnnxTensor);
    Reading r = {.m = m, .w = w, .t = t};
    WireField f;
    OnnxBytes raw = {0};

    t->name = "";
    read_type(&r);
    while (wire_next(w, &f)) {
        if (f.number == DIMS)
            read_dims(&r, &f);
        else if (f.number == NAME && f.kind == WIRE_BYTES)
            t->name = wire_text(w, m->arena, &f);
        else if (f.number == RAW && f.kind == WIRE_BYTES)
            raw = f.bytes, r.has_raw = true;
        else if (f.number == EXTERNAL)
            read_entry(&r, &f);
        else if (f.number == LOCATION)
            r.is_external = f.value == 1;
        else if (f.number == FLOATS || f.number == INT32S || f.number == INT64S ||
                 f.number == DOUBLES || f.number == UINT64S)
            read_typed(&r, &f);
    }
    return !w->failed && settle(&r, raw) ? t : NULL;
}

/* Elements ------------------------------------------------------------------------------------- */

static uint64_t bits_at(const OnnxTensor *t, uint64_t i)
{
    int bits = onnx_type(t->type)->bits;
    uint64_t value = 0;

    if (bits == 4)
        return t->data[i / 2] >> (4 * (i % 2)) & 15;
    memcpy(&value, t->data + i * (uint64_t)(bits / 8), (size_t)bits / 8);
    return value;
}

int64_t onnx_integer(const OnnxTensor *t, uint64_t i)
{
    uint64_t value = bits_at(t, i);
    int bits = onnx_type(t->type)->bits;

    switch (t->type) {
    case ONNX_I4:
    case ONNX_I8:
    case ONNX_I16:
    case ONNX_I32: {
        uint64_t sign = UINT64_C(1) << (bits - 1);
        return (int64_t)((value ^ sign) - sign);
    }
    default: return (int64_t)value;
    }
}

double onnx_real(const OnnxTensor *t, uint64_t i)
{
    uint64_t value = bits_at(t, i);
    double real;

    switch (t->type) {
    case ONNX_F64: memcpy(&real, &value, sizeof real); return real;
    case ONNX_F32: return (double)num_float((unsigned)value);
    case ONNX_F16: return (double)num_from_f16((unsigned)value);
    case ONNX_BF16: return (double)num_from_bf16((unsigned)value);
    default: return (double)onnx_integer(t, i);
    }
}
