/* safetensors: reading and writing.
 *
 * The file is an 8-byte little-endian length, a JSON header of that length and the tensors' bytes.
 * Stricter than most readers: offsets must tile the data exactly (no holes, no overlap, nothing
 * behind), every size is a checked product, keys occur once. All of it is checked before a tensor
 * can be seen; memory grows with the header's real bytes only. */
#include "base/utf8.h"
#include "io/tensors.h"

#include <stdlib.h>
#include <string.h>

typedef struct Dtype {
    const char *name;
    int bits;
    FormatId fmt;
} Dtype;

static const Dtype dtypes[] = {
    {"F32", 32, FMT_F32},     {"BF16", 16, FMT_BF16},       {"F16", 16, FMT_F16},
    {"F64", 64, FMT_F64},     {"I32", 32, FMT_I32},         {"I8", 8, FMT_I8},
    {"U8", 8, FMT_U8},        {"F8_E4M3", 8, FMT_E4M3},     {"F8_E5M2", 8, FMT_E5M2},
    {"F8_E8M0", 8, FMT_E8M0}, {"F4", 4, FMT_E2M1},          {"F6_E2M3", 6, FMT_NONE},
    {"F6_E3M2", 6, FMT_NONE}, {"F8_E4M3FNUZ", 8, FMT_NONE}, {"F8_E5M2FNUZ", 8, FMT_NONE},
    {"BOOL", 8, FMT_NONE},    {"I16", 16, FMT_NONE},        {"U16", 16, FMT_NONE},
    {"U32", 32, FMT_NONE},    {"I64", 64, FMT_NONE},        {"U64", 64, FMT_NONE},
    {"C64", 64, FMT_NONE},
};

static const Dtype *dtype_find(const char *name)
{
    for (size_t i = 0; i < COUNT_OF(dtypes); i++)
        if (strcmp(dtypes[i].name, name) == 0)
            return &dtypes[i];
    return NULL;
}

/* One tensor's entry as the header says it. */
typedef struct Entry {
    const Dtype *dtype;
    int rank;
    int64_t dim[LIMIT_RANK];
    uint64_t begin, end;
    bool has_shape, has_offsets;
} Entry;

typedef struct Reader {
    TensorFile *file;
    IoError *err;
    Json json;
    char *text;      /* where the next name goes */
    uint64_t *begin; /* of each view's bytes, relative to the data */
    uint64_t data_at, data_size;
    char name[LIMIT_TOKEN_BYTES];
} Reader;

static bool fail(Reader *r, const char *rule)
{
    if (r->json.error)
        return io_fail(r->err, E_SAFETENSORS, "%s: header byte %zu: %s", r->file->name, r->json.pos,
                       r->json.error);
    return io_fail(r->err, E_SAFETENSORS, "%s: header byte %zu: %s", r->file->name, r->json.pos,
                   rule);
}

static bool fail_tensor(Reader *r, const char *rule)
{
    if (r->json.error)
        return fail(r, rule);
    return io_fail(r->err, E_SAFETENSORS, "%s: tensor '%.200s': %s", r->file->name, r->name, rule);
}

static bool read_shape(Reader *r, Entry *entry)
{
    bool first = true;
    if (entry->has_shape)
        return fail_tensor(r, "shape occurs twice");
    entry->has_shape = true;
    if (!json_array_begin(&r->json))
        return fail_tensor(r, "");
    while (json_next_element(&r->json, &first)) {
        uint64_t dim;
        if (!json_u64(&r->json, &dim))
            return fail_tensor(r, "");
        if (entry->rank == LIMIT_RANK)
            return fail_tensor(r, "has more dimensions than are supported");
        if (dim > LIMIT_DIM)
            return fail_tensor(r, "a dimension exceeds 2147483647");
        entry->dim[entry->rank++] = (int64_t)dim;
    }
    return !r->json.error || fail_tensor(r, "");
}

static bool read_offsets(Reader *r, Entry *entry)
{
    bool first = true;
    uint64_t offset[2] = {0};
    int num = 0;
    if (entry->has_offsets)
        return fail_tensor(r, "data_offsets occurs twice");
    entry->has_offsets = true;
    if (!json_array_begin(&r->json))
        return fail_tensor(r, "");
    while (json_next_element(&r->json, &first)) {
        if (num == 2)
            return fail_tensor(r, "data_offsets holds more than two numbers");
        if (!json_u64(&r->json, &offset[num++]))
            return fail_tensor(r, "");
    }
    if (r->json.error || num != 2)
        return fail_tensor(r, "data_offsets holds fewer than two numbers");
    if (offset[0] > offset[1])
        return fail_tensor(r, "data_offsets are reversed");
    if (offset[1] > r->data_size)
        return fail_tensor(r, "data_offsets reach beyond the end of the file");
    entry->begin = offset[0];
    entry->end = offset[1];
    return true;
}

static bool read_entry(Reader *r, Entry *entry)
{
    bool first = true;
    char key[32], dtype[32];
    *entry = (Entry){0};
    if (!json_object_begin(&r->json))
        return fail_tensor(r, "");
    while (json_next_key(&r->json, key, sizeof key, &first)) {
        if (strcmp(key, "shape") == 0) {
            if (!read_shape(r, entry))
                return false;
        } else if (strcmp(key, "data_offsets") == 0) {
            if (!read_offsets(r, entry))
                return false;
        } else if (strcmp(key, "dtype") == 0) {
            if (entry->dtype)
                return fail_tensor(r, "dtype occurs twice");
            if (!json_string(&r->json, dtype, sizeof dtype))
                return fail_tensor(r, "");
            entry->dtype = dtype_find(dtype);
            if (!entry->dtype)
                return fail_tensor(r, "the dtype is unknown");
        } else {
            return fail_tensor(r, "has a key other than dtype, shape and data_offsets");
        }
    }
    if (r->json.error)
        return fail_tensor(r, "");
    if (!entry->dtype)
        return fail_tensor(r, "has no dtype");
    if (!entry->has_shape)
        return fail_tensor(r, "has no shape");
    return entry->has_offsets || fail_tensor(r, "has no data_offsets");
}

/* Room for one more view; the pointers of the name table are set once all are read. */
static bool grow_views(Reader *r)
{
    TensorFile *f = r->file;
    if (f->num < f->cap)
        return true;
    uint32_t cap = f->cap ? f->cap * 2 : 16;
    TensorView *view = realloc(f->view, cap * sizeof *view);
    if (view)
        f->view = view;
    uint64_t *begin = realloc(r->begin, cap * sizeof *begin);
    if (begin)
        r->begin = begin;
    if (!view || !begin)
        return io_fail(r->err, E_MEMORY, "%s: memory is exhausted", f->name);
    f->cap = cap;
    return true;
}

static bool add_tensor(Reader *r, const Entry *entry)
{
    TensorFile *f = r->file;
    uint64_t elements, bits;
    if (!checked_elements(entry->dim, entry->rank, &elements) || elements > LIMIT_ELEMENTS)
        return fail_tensor(r, "the product of the shape is too large");
    if (!checked_mul(elements, (uint64_t)entry->dtype->bits, &bits))
        return fail_tensor(r, "the bytes of the shape are too many");
    if (bits % 8 != 0)
        return fail_tensor(r, "the bits of the shape do not fill whole bytes");
    if (bits / 8 != entry->end - entry->begin)
        return fail_tensor(r, "data_offsets do not hold as many bytes as dtype and shape need");
    if (f->num == LIMIT_TENSORS)
        return fail(r, "the file holds more than 1000000 tensors");
    if (!grow_views(r))
        return false;
    size_t len = strlen(r->name);
    memcpy(r->text, r->name, len + 1);
    TensorView *view = &f->view[f->num];
    *view = (TensorView){.name = r->text,
                         .fmt = entry->dtype->fmt,
                         .dtype = entry->dtype->name,
                         .rank = entry->rank,
                         .elements = elements,
                         .bytes = bits / 8,
                         .data = f->data + r->data_at + entry->begin};
    memcpy(view->dim, entry->dim, sizeof view->dim);
    r->begin[f->num++] = entry->begin;
    r->text += len + 1;
    return true;
}

static bool read_metadata(Reader *r)
{
    bool first = true;
    char key[LIMIT_TOKEN_BYTES];
    if (!json_object_begin(&r->json))
        return fail(r, "");
    while (json_next_key(&r->json, key, sizeof key, &first))
        if (!json_at_string(&r->json) || !json_skip(&r->json))
            return fail(r, "a value of __metadata__ is not a string");
    return !r->json.error || fail(r, "");
}

static bool read_header(Reader *r)
{
    bool first = true, has_metadata = false;
    Entry entry;
    json_object_begin(&r->json); /* its bracket was seen */
    while (json_next_key(&r->json, r->name, sizeof r->name, &first)) {
        if (strcmp(r->name, "__metadata__") == 0) {
            if (has_metadata)
                return fail(r, "the key '__metadata__' occurs twice");
            has_metadata = true;
            if (!read_metadata(r))
                return false;
        } else if (!read_entry(r, &entry) || !add_tensor(r, &entry)) {
            return false;
        }
    }
    return json_end(&r->json) || fail(r, "");
}

static bool index_names(Reader *r)
{
    TensorFile *f = r->file;
    for (uint32_t i = 0; i < f->num; i++) {
        if (names_find(&f->names, f->view[i].name))
            return io_fail(r->err, E_SAFETENSORS, "%s: the key '%.200s' occurs twice", f->name,
                           f->view[i].name);
        if (!names_add(&f->names, &f->view[i]))
            return io_fail(r->err, E_MEMORY, "%s: memory is exhausted", f->name);
    }
    return true;
}

typedef struct Extent {
    uint64_t begin, end;
    const char *name;
} Extent;

static int compare_extent(const void *a, const void *b)
{
    const Extent *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

/* The tensors must tile the data from its first to its last byte. */
static bool check_tiling(Reader *r)
{
    const TensorFile *f = r->file;
    Extent *extent = malloc((f->num + 1) * sizeof *extent);
    if (!extent)
        return io_fail(r->err, E_MEMORY, "%s: memory is exhausted", f->name);
    bool is_sorted = true;
    for (uint32_t i = 0; i < f->num; i++) {
        extent[i] = (Extent){r->begin[i], r->begin[i] + f->view[i].bytes, f->view[i].name};
        is_sorted &= i == 0 || compare_extent(&extent[i - 1], &extent[i]) <= 0;
    }
    if (!is_sorted)
        qsort(extent, f->num, sizeof *extent, compare_extent);
    uint64_t at = 0;
    bool ok = true;
    for (uint32_t i = 0; ok && i < f->num; i++) {
        if (extent[i].begin != at)
            ok = io_fail(r->err, E_SAFETENSORS,
                         "%s: tensor '%.200s' begins at data byte %llu, %s %llu where the one "
                         "before it ends",
                         f->name, extent[i].name, (unsigned long long)extent[i].begin,
                         extent[i].begin < at ? "an overlap before" : "a hole after",
                         (unsigned long long)at);
        at = extent[i].end;
    }
    if (ok && at != r->data_size)
        ok = io_fail(r->err, E_SAFETENSORS,
                     "%s: the tensors end at data byte %llu, but the file goes on to %llu", f->name,
                     (unsigned long long)at, (unsigned long long)r->data_size);
    free(extent);
    return ok;
}

static uint64_t read_u64_le(const uint8_t *byte)
{
    uint64_t ret = 0;
    for (int i = 7; i >= 0; i--)
        ret = ret << 8 | byte[i];
    return ret;
}

bool safetensors_parse(TensorFile *f, IoError *err)
{
    if (f->size < 8)
        return io_fail(err, E_SAFETENSORS, "%s: %llu bytes are too few for a header length",
                       f->name, (unsigned long long)f->size);
    uint64_t len = read_u64_le(f->data);
    if (len > LIMIT_SAFETENSORS_HEADER)
        return io_fail(err, E_SAFETENSORS, "%s: header length %llu exceeds the limit of %u",
                       f->name, (unsigned long long)len, LIMIT_SAFETENSORS_HEADER);
    if (len > f->size - 8)
        return io_fail(err, E_SAFETENSORS, "%s: header length %llu exceeds the file's %llu bytes",
                       f->name, (unsigned long long)len, (unsigned long long)f->size);
    const char *header = (const char *)f->data + 8;
    if (len == 0 || header[0] != '{')
        return io_fail(err, E_SAFETENSORS, "%s: the header does not begin with '{'", f->name);
    Reader *r = malloc(sizeof *r);
    f->text = malloc((size_t)len); /* a name takes more bytes in the header than here */
    bool ok = r && f->text;
    if (!ok) {
        io_fail(err, E_MEMORY, "%s: memory is exhausted", f->name);
    } else {
        r->file = f;
        r->err = err;
        r->text = f->text;
        r->begin = NULL;
        r->data_at = 8 + len;
        r->data_size = f->size - 8 - len;
        json_init(&r->json, header, (size_t)len);
        ok = read_header(r) && index_names(r) && check_tiling(r);
        free(r->begin);
    }
    free(r);
    return ok;
}

/* Metadata ------------------------------------------------------------------------------------- */

/* The string that comes next, of any length. */
static bool each_value(Json *json, const char *key, MetadataFn *fn, void *user, IoError *err)
{
    json_peek(json);
    size_t from = json->pos;
    json_skip(json);
    size_t size = json->pos - from;
    char *value = malloc(size + 1);
    Json text;
    if (!value)
        return io_fail(err, E_MEMORY, "%s: memory is exhausted", key);
    json_init(&text, json->text + from, size);
    bool ok = json_string(&text, value, size + 1) ? fn(user, key, value, strlen(value)) : true;
    free(value);
    return ok;
}

/* The header was checked when the file was opened. */
bool safetensors_metadata(const TensorFile *f, MetadataFn *fn, void *user, IoError *err)
{
    char key[LIMIT_TOKEN_BYTES];
    bool first = true, first_pair = true, ok = true;
    Json json;
    json_init(&json, (const char *)f->data + 8, (size_t)read_u64_le(f->data));
    json_object_begin(&json);
    while (ok && json_next_key(&json, key, sizeof key, &first)) {
        if (strcmp(key, "__metadata__") != 0) {
            json_skip(&json);
            continue;
        }
        json_object_begin(&json);
        while (ok && json_next_key(&json, key, sizeof key, &first_pair))
            ok = each_value(&json, key, fn, user, err);
    }
    return ok;
}

/* Writing ------------------------------------------------------------------------------------- */

static const Dtype *dtype_of(const SafetensorsItem *item)
{
    for (size_t i = 0; i < COUNT_OF(dtypes) && !item->dtype; i++)
        if (item->fmt != FMT_NONE && dtypes[i].fmt == item->fmt)
            return &dtypes[i];
    return item->dtype ? dtype_find(item->dtype) : NULL;
}

bool safetensors_bytes(const char *path, const SafetensorsItem *item, uint64_t *ret, IoError *err)
{
    uint64_t elements, bits;
    const Dtype *dtype = dtype_of(item);
    if (!dtype)
        return io_fail(err, E_FILE_WRITE, "%s: tensor '%.200s': safetensors has no dtype for it",
                       path, item->name);
    if (!checked_elements(item->dim, item->rank, &elements) ||
        !checked_mul(elements, (uint64_t)dtype->bits, &bits))
        return io_fail(err, E_FILE_WRITE, "%s: tensor '%.200s': its size overflows", path,
                       item->name);
    if (bits % 8 != 0)
        return io_fail(err, E_FILE_WRITE, "%s: tensor '%.200s': its bits do not fill whole bytes",
                       path, item->name);
    *ret = bits / 8;
    return true;
}

typedef struct Writing {
    int index;
    int bits;
    uint64_t bytes;
} Writing;

static int compare_writing(const void *a, const void *b)
{
    const Writing *x = a, *y = b;
    if (x->bits != y->bits)
        return x->bits > y->bits ? -1 : 1;
    return x->index - y->index;
}

static void put_header(Sb *sb, const SafetensorsItem *item, const Writing *order, int num,
                       const char *metadata)
{
    uint64_t at = 0;
    sb_printf(sb, "{%s", metadata);
    for (int i = 0; i < num; i++) {
        const SafetensorsItem *it = &item[order[i].index];
        sb_put(sb, i || *metadata ? "," : "");
        sb_put_json_string(sb, it->name, strlen(it->name));
        sb_printf(sb, ":{\"dtype\":\"%s\",\"shape\":[", dtype_of(it)->name);
        for (int d = 0; d < it->rank; d++)
            sb_printf(sb, "%s%lld", d ? "," : "", (long long)it->dim[d]);
        sb_printf(sb, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)at,
                  (unsigned long long)(at + order[i].bytes));
        at += order[i].bytes;
    }
    sb_putc(sb, '}');
    while (sb->len % 8 != 0)
        sb_putc(sb, ' ');
}

static bool check_names(const char *path, int num, const SafetensorsItem *item, IoError *err)
{
    TensorView *view = calloc((size_t)num + 1, sizeof *view);
    NameTable names = {0};
    bool ok = view != NULL || io_fail(err, E_MEMORY, "%s: memory is exhausted", path);
    for (int i = 0; ok && i < num; i++) {
        view[i].name = item[i].name;
        if (names_find(&names, item[i].name) || strcmp(item[i].name, "__metadata__") == 0)
            ok = io_fail(err, E_FILE_WRITE, "%s: the name '%.200s' occurs twice or is reserved",
                         path, item[i].name);
        else if (!utf8_valid(item[i].name, strlen(item[i].name)))
            ok = io_fail(err, E_FILE_WRITE, "%s: a name is not UTF-8", path);
        else if (!names_add(&names, &view[i]))
            ok = io_fail(err, E_MEMORY, "%s: memory is exhausted", path);
    }
    names_free(&names);
    free(view);
    return ok;
}

static void write_head(OutFile *f, const Sb *header)
{
    uint8_t len[8];
    for (int i = 0; i < 8; i++)
        len[i] = (uint8_t)((uint64_t)header->len >> (8 * i));
    outfile_write(f, len, sizeof len);
    outfile_write(f, header->text, header->len);
}

static bool write_items(const char *path, const Sb *header, int num, const SafetensorsItem *item,
                        const Writing *order, IoError *err)
{
    OutFile *f = outfile_create(path, 0666, err);
    if (!f)
        return false;
    write_head(f, header);
    for (int i = 0; i < num; i++)
        outfile_write(f, item[order[i].index].data, order[i].bytes);
    return outfile_finish(f, err);
}

static bool reserve_items(OutFile *f, const Sb *header, int num, const Writing *order,
                          uint64_t *ret_at)
{
    uint64_t at = 8 + header->len, begin = at;
    write_head(f, header);
    for (int i = 0; i < num; i++) {
        ret_at[order[i].index] = at;
        at += order[i].bytes;
    }
    outfile_reserve(f, at - begin); /* what fails is told by finish */
    return true;
}

/* f NULL: a file of its own at `path`, with all its data. */
static bool write_all(OutFile *f, const char *path, int num, const SafetensorsItem *item,
                      uint64_t *ret_at, IoError *err)
{
    Arena *arena = arena_create();
    Writing *order = calloc((size_t)num + 1, sizeof *order);
    bool ok = (arena && order) || io_fail(err, E_MEMORY, "%s: memory is exhausted", path);
    ok = ok && check_names(path, num, item, err);
    for (int i = 0; ok && i < num; i++) {
        ok = safetensors_bytes(path, &item[i], &order[i].bytes, err);
        order[i].index = i;
        order[i].bits = ok ? dtype_of(&item[i])->bits : 0;
    }
    if (ok) {
        Sb header;
        jmp_buf exhausted;
        if (setjmp(exhausted)) {
            ok = io_fail(err, E_MEMORY, "%s: memory is exhausted", path);
        } else {
            arena_on_exhausted(arena, &exhausted);
            qsort(order, (size_t)num, sizeof *order, compare_writing);
            sb_init(&header, arena);
            /* loaders of checkpoints want to be told whose conventions they follow */
            put_header(&header, item, order, num, f ? "\"__metadata__\":{\"format\":\"pt\"}" : "");
            ok = f ? reserve_items(f, &header, num, order, ret_at)
                   : write_items(path, &header, num, item, order, err);
        }
    }
    free(order);
    arena_destroy(arena);
    return ok;
}

bool safetensors_write(const char *path, int num, const SafetensorsItem *item, IoError *err)
{
    return write_all(NULL, path, num, item, NULL, err);
}

bool safetensors_begin(OutFile *f, const char *path, int num, const SafetensorsItem *item,
                       uint64_t *ret_at, IoError *err)
{
    return write_all(f, path, num, item, ret_at, err);
}
