/* npy: one array of numbers, versions 1.0, 2.0 and 3.0.
 *
 * The header is the text of a Python dict. This reads the one form that numpy writes with a grammar
 * of its own (three keys, each once) and evaluates nothing. The shape must account for exactly the
 * bytes that follow, so a declared size is never trusted. */
#include "io/tensors.h"

#include <stdlib.h>
#include <string.h>

typedef struct Descr {
    const char *name; /* without the byte order */
    int bits;
    FormatId fmt;
} Descr;

static const Descr descrs[] = {
    {"f4", 32, FMT_F32},  {"f2", 16, FMT_F16},    {"f8", 64, FMT_F64},  {"i4", 32, FMT_I32},
    {"i1", 8, FMT_I8},    {"u1", 8, FMT_U8},      {"b1", 8, FMT_NONE},  {"i2", 16, FMT_NONE},
    {"u2", 16, FMT_NONE}, {"u4", 32, FMT_NONE},   {"i8", 64, FMT_NONE}, {"u8", 64, FMT_NONE},
    {"c8", 64, FMT_NONE}, {"c16", 128, FMT_NONE},
};

typedef struct Header {
    TensorFile *file;
    IoError *err;
    const char *text;
    size_t len, pos;
    char descr[16];
    const Descr *type;
    int rank;
    int64_t dim[LIMIT_RANK];
    bool has_descr, has_order, has_shape;
} Header;

static bool fail(const Header *h, const char *rule)
{
    return io_fail(h->err, E_NPY, "%s: header byte %zu: %s", h->file->name, h->pos, rule);
}

static char peek(Header *h)
{
    while (h->pos < h->len && h->text[h->pos] == ' ')
        h->pos++;
    return h->pos < h->len ? h->text[h->pos] : '\0';
}

static bool accept(Header *h, char c)
{
    if (peek(h) != c)
        return false;
    h->pos++;
    return true;
}

static bool read_quoted(Header *h, char *buf, size_t size)
{
    char quote = peek(h);
    size_t len = 0;
    if (quote != '\'' && quote != '"')
        return fail(h, "a string in quotes is expected");
    for (h->pos++; h->pos < h->len && h->text[h->pos] != quote; h->pos++) {
        if (len + 1 >= size || h->text[h->pos] == '\\' || h->text[h->pos] == '\0')
            return fail(h, "a string is too long or holds an escape");
        buf[len++] = h->text[h->pos];
    }
    buf[len] = '\0';
    if (h->pos == h->len)
        return fail(h, "a string is not closed");
    h->pos++;
    return true;
}

static bool read_descr(Header *h)
{
    char c = peek(h);
    if (c == '[')
        return fail(h, "structured arrays are not supported");
    if (!read_quoted(h, h->descr, sizeof h->descr))
        return false;
    const char *d = h->descr;
    if (strchr(d, 'O'))
        return fail(h, "the array holds Python objects (a pickle), which can run any code when "
                       "read; save numbers instead");
    if (d[0] == '>')
        return fail(h, "big-endian arrays are not supported; save x.astype(x.dtype.newbyteorder("
                       "'<'))");
    if (d[0] == '<' || d[0] == '|')
        for (size_t i = 0; i < COUNT_OF(descrs); i++)
            if (strcmp(descrs[i].name, d + 1) == 0 && (d[0] == '<' || descrs[i].bits == 8))
                h->type = &descrs[i];
    if (!h->type && strchr(d, 'V'))
        return fail(h, "raw bytes ('V') say no number format; save bfloat16 and 8-bit floats as "
                       "safetensors");
    return h->type || fail(h, "the descr is not a number type that is read");
}

static bool read_order(Header *h)
{
    static const char no[] = "False", yes[] = "True";
    peek(h);
    if (h->len - h->pos >= 4 && memcmp(h->text + h->pos, yes, 4) == 0)
        return fail(h, "Fortran order is not supported; save numpy.ascontiguousarray(x)");
    if (h->len - h->pos < 5 || memcmp(h->text + h->pos, no, 5) != 0)
        return fail(h, "fortran_order is neither True nor False");
    h->pos += 5;
    return true;
}

static bool read_dim(Header *h, int64_t *ret)
{
    uint64_t value = 0;
    char c = peek(h);
    if (c < '0' || c > '9')
        return fail(h, "a dimension that is not negative is expected");
    if (c == '0' && h->pos + 1 < h->len && h->text[h->pos + 1] >= '0' && h->text[h->pos + 1] <= '9')
        return fail(h, "a dimension has leading zeros");
    for (; h->pos < h->len && h->text[h->pos] >= '0' && h->text[h->pos] <= '9'; h->pos++) {
        value = value * 10 + (uint64_t)(h->text[h->pos] - '0');
        if (value > LIMIT_DIM)
            return fail(h, "a dimension exceeds 2147483647");
    }
    *ret = (int64_t)value;
    return true;
}

static bool read_shape(Header *h)
{
    if (!accept(h, '('))
        return fail(h, "the shape is not in parentheses");
    bool has_comma = true;
    while (!accept(h, ')')) {
        if (!has_comma)
            return fail(h, "a comma or ')' is expected");
        if (h->rank == LIMIT_RANK)
            return fail(h, "the array has more dimensions than are supported");
        if (!read_dim(h, &h->dim[h->rank]))
            return false;
        h->rank++;
        has_comma = accept(h, ',');
    }
    /* (3) is the number 3 in Python, not a shape */
    return h->rank != 1 || has_comma || fail(h, "a shape of one dimension needs a comma");
}

static bool read_pair(Header *h)
{
    char key[16];
    if (!read_quoted(h, key, sizeof key))
        return false;
    bool *seen = strcmp(key, "descr") == 0           ? &h->has_descr
                 : strcmp(key, "fortran_order") == 0 ? &h->has_order
                 : strcmp(key, "shape") == 0         ? &h->has_shape
                                                     : NULL;
    if (!seen)
        return fail(h, "has a key other than descr, fortran_order and shape");
    if (*seen)
        return fail(h, "a key occurs twice");
    *seen = true;
    if (!accept(h, ':'))
        return fail(h, "a colon is expected after a key");
    return seen == &h->has_descr   ? read_descr(h)
           : seen == &h->has_order ? read_order(h)
                                   : read_shape(h);
}

static bool read_dict(Header *h)
{
    if (!accept(h, '{'))
        return fail(h, "'{' is expected");
    bool has_comma = true;
    while (!accept(h, '}')) {
        if (!has_comma)
            return fail(h, "a comma or '}' is expected");
        if (!read_pair(h))
            return false;
        has_comma = accept(h, ',');
    }
    if (!h->has_descr || !h->has_order || !h->has_shape)
        return fail(h, "descr, fortran_order or shape is missing");
    peek(h);
    if (h->pos < h->len && h->text[h->pos] == '\n')
        h->pos++;
    return h->pos == h->len || fail(h, "text follows the end of the header");
}

static bool add_view(TensorFile *f, const Header *h, uint64_t data_at, IoError *err)
{
    uint64_t elements, bytes;
    if (!checked_elements(h->dim, h->rank, &elements) || elements > LIMIT_ELEMENTS ||
        !checked_mul(elements, (uint64_t)h->type->bits / 8, &bytes))
        return io_fail(err, E_NPY, "%s: the product of the shape is too large", f->name);
    if (bytes != f->size - data_at)
        return io_fail(err, E_NPY, "%s: dtype and shape need %llu bytes, but %llu follow", f->name,
                       (unsigned long long)bytes, (unsigned long long)(f->size - data_at));
    f->view = calloc(1, sizeof *f->view);
    f->text = strdup(h->descr);
    if (!f->view || !f->text)
        return io_fail(err, E_MEMORY, "%s: memory is exhausted", f->name);
    f->num = 1;
    f->view[0] = (TensorView){.fmt = h->type->fmt,
                              .dtype = f->text,
                              .rank = h->rank,
                              .elements = elements,
                              .bytes = bytes,
                              .data = f->data + data_at};
    memcpy(f->view[0].dim, h->dim, sizeof h->dim);
    return true;
}

bool npy_parse(TensorFile *f, IoError *err)
{
    f->kind = TENSORS_NPY;
    if (f->size < 10)
        return io_fail(err, E_NPY, "%s: %llu bytes are too few for a header", f->name,
                       (unsigned long long)f->size);
    int major = f->data[6], minor = f->data[7];
    if (major < 1 || major > 3 || minor != 0)
        return io_fail(err, E_NPY, "%s: version %d.%d is none of 1.0, 2.0 and 3.0", f->name, major,
                       minor);
    uint64_t len = f->data[8] | (uint64_t)f->data[9] << 8, data_at = 10;
    if (major > 1) {
        if (f->size < 12)
            return io_fail(err, E_NPY, "%s: %llu bytes are too few for a header", f->name,
                           (unsigned long long)f->size);
        len |= (uint64_t)f->data[10] << 16 | (uint64_t)f->data[11] << 24;
        data_at = 12;
    }
    if (len > LIMIT_NPY_HEADER)
        return io_fail(err, E_NPY, "%s: header length %llu exceeds the limit of %u", f->name,
                       (unsigned long long)len, LIMIT_NPY_HEADER);
    if (len > f->size - data_at)
        return io_fail(err, E_NPY, "%s: header length %llu exceeds the file's %llu bytes", f->name,
                       (unsigned long long)len, (unsigned long long)f->size);
    Header h = {.file = f, .err = err, .text = (const char *)f->data + data_at, .len = (size_t)len};
    return read_dict(&h) && add_view(f, &h, data_at + len, err);
}

/* Writing ------------------------------------------------------------------------------------- */

static const Descr *descr_of(FormatId fmt)
{
    for (size_t i = 0; i < COUNT_OF(descrs); i++)
        if (fmt != FMT_NONE && descrs[i].fmt == fmt)
            return &descrs[i];
    return NULL;
}

bool npy_write(const char *path, FormatId fmt, int rank, const int64_t *dim, const void *data,
               IoError *err)
{
    const Descr *type = descr_of(fmt);
    uint64_t elements, bytes;
    if (!type)
        return io_fail(err, E_FILE_WRITE,
                       "%s: npy has no dtype for this format; name the output .safetensors", path);
    if (rank > LIMIT_RANK || !checked_elements(dim, rank, &elements) ||
        !checked_mul(elements, (uint64_t)type->bits / 8, &bytes))
        return io_fail(err, E_FILE_WRITE, "%s: the size of the array overflows", path);
    char text[256] = "\x93NUMPY\x01"; /* minor version 0 is the terminating NUL */
    size_t len = 10;
    len += (size_t)snprintf(text + len, sizeof text - len,
                            "{'descr': '%c%s', 'fortran_order': False, 'shape': (",
                            type->bits == 8 ? '|' : '<', type->name);
    for (int i = 0; i < rank; i++)
        len += (size_t)snprintf(text + len, sizeof text - len, "%s%lld%s", i ? ", " : "",
                                (long long)dim[i], rank == 1 ? "," : "");
    len += (size_t)snprintf(text + len, sizeof text - len, "), }");
    while ((len + 1) % 64 != 0)
        text[len++] = ' ';
    text[len++] = '\n';
    text[8] = (char)((len - 10) & 0xff);
    text[9] = (char)((len - 10) >> 8);
    OutFile *f = outfile_create(path, 0666, err);
    if (!f)
        return false;
    outfile_write(f, text, len);
    outfile_write(f, data, bytes);
    return outfile_finish(f, err);
}
