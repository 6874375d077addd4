/* GGUF, versions 2 and 3, little-endian: reading.
 *
 * The file is a magic, counts, pairs of a key and a typed value, an entry for each tensor (name,
 * dimensions, the innermost first, type, offset) and the tensors' bytes, each at a multiple of the
 * file's alignment. As strict as safetensors: the tensors must lie one behind the other in the
 * order of their entries, keys and names occur once. Nothing is allocated before the bytes that
 * justify it have been seen. */
#include "base/utf8.h"
#include "io/tensors.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_PAIRS = 4096, MAX_ALIGN = 1 << 20, LEAST_ENTRY = 8 + 4 + 4 + 8, LEAST_PAIR = 8 + 4 + 1 };

/* Bytes of a value of each type; 0: it says its own length. */
static const struct {
    const char *name;
    uint32_t bytes;
} value_type[] = {
    [GGUF_U8] = {"u8", 1},   [GGUF_I8] = {"i8", 1},       [GGUF_U16] = {"u16", 2},
    [GGUF_I16] = {"i16", 2}, [GGUF_U32] = {"u32", 4},     [GGUF_I32] = {"i32", 4},
    [GGUF_F32] = {"f32", 4}, [GGUF_BOOL] = {"bool", 1},   [GGUF_STRING] = {"string", 0},
    [GGUF_U64] = {"u64", 8}, [GGUF_ARRAY] = {"array", 0}, [GGUF_I64] = {"i64", 8},
    [GGUF_F64] = {"f64", 8},
};

typedef struct Reader {
    TensorFile *file;
    IoError *err;
    uint64_t pos, num_tensors, num_pairs, align;
    char *text; /* where the next name goes */
} Reader;

/* An entry as the file has it. */
typedef struct Entry {
    const char *name;
    uint64_t name_len, offset, dim[4];
    uint32_t rank;
    const GgmlInfo *kind;
} Entry;

static bool fail(const Reader *r, const char *rule)
{
    return io_fail(r->err, E_GGUF, "%s: byte %llu: %s", r->file->name, (unsigned long long)r->pos,
                   rule);
}

static bool fail_tensor(const Reader *r, const Entry *e, const char *rule)
{
    return io_fail(r->err, E_GGUF, "%s: tensor '%.*s': %s", r->file->name,
                   (int)(e->name_len < 200 ? e->name_len : 200), e->name, rule);
}

static uint64_t little(const uint8_t *byte, uint32_t bytes)
{
    uint64_t ret = 0;
    for (uint32_t i = bytes; i-- > 0;)
        ret = ret << 8 | byte[i];
    return ret;
}

static bool take(Reader *r, uint64_t bytes, const uint8_t **ret)
{
    if (bytes > r->file->size - r->pos)
        return fail(r, "the file ends inside of its header");
    *ret = r->file->data + r->pos;
    r->pos += bytes;
    return true;
}

static bool take_number(Reader *r, uint32_t bytes, uint64_t *ret)
{
    const uint8_t *at = NULL;
    if (!take(r, bytes, &at))
        return false;
    *ret = little(at, bytes);
    return true;
}

static bool take_string(Reader *r, const char **ret, uint64_t *ret_len)
{
    const uint8_t *at = NULL;
    if (!take_number(r, 8, ret_len) || !take(r, *ret_len, &at))
        return false;
    *ret = (const char *)at;
    return true;
}

/* Keys and names: shown to people and compared, so they must be text. */
static bool take_name(Reader *r, const char **ret, uint64_t *ret_len)
{
    if (!take_string(r, ret, ret_len))
        return false;
    if (*ret_len == 0 || *ret_len >= LIMIT_TOKEN_BYTES)
        return fail(r, "a name is empty or longer than 4095 bytes");
    if (!utf8_valid(*ret, (size_t)*ret_len) || memchr(*ret, 0, (size_t)*ret_len))
        return fail(r, "a name is not UTF-8 or holds NUL");
    return true;
}

static bool take_type(Reader *r, GgufType *ret)
{
    uint64_t type;
    if (!take_number(r, 4, &type))
        return false;
    if (type >= COUNT_OF(value_type))
        return fail(r, "a value's type is unknown");
    *ret = (GgufType)type;
    return true;
}

static bool take_array(Reader *r, GgufPair *pair)
{
    const uint8_t *at;
    uint64_t bytes;
    if (!take_type(r, &pair->item) || !take_number(r, 8, &pair->num))
        return false;
    pair->data = r->file->data + r->pos;
    if (pair->item == GGUF_ARRAY)
        return fail(r, "an array holds arrays");
    if (pair->item != GGUF_STRING)
        return (checked_mul(pair->num, value_type[pair->item].bytes, &bytes) ||
                fail(r, "an array's size overflows")) &&
               take(r, bytes, &at);
    for (uint64_t i = 0; i < pair->num; i++) {
        const char *text;
        uint64_t len;
        if (!take_string(r, &text, &len))
            return false;
    }
    return true;
}

static bool take_pair(Reader *r, GgufPair *pair)
{
    *pair = (GgufPair){.num = 1};
    if (!take_name(r, &pair->key, &pair->key_len) || !take_type(r, &pair->type))
        return false;
    pair->item = pair->type;
    if (pair->type == GGUF_ARRAY)
        return take_array(r, pair);
    if (pair->type != GGUF_STRING)
        return take(r, value_type[pair->type].bytes, &pair->data);
    const char *text;
    if (!take_string(r, &text, &pair->num))
        return false;
    pair->data = (const uint8_t *)text;
    return true;
}

static bool same_text(const char *a, uint64_t a_len, const char *b, uint64_t b_len)
{
    return a_len == b_len && memcmp(a, b, (size_t)a_len) == 0;
}

static bool check_alignment(Reader *r, const GgufPair *pair)
{
    if (!same_text(pair->key, pair->key_len, "general.alignment", 17))
        return true;
    if (pair->type != GGUF_U32)
        return fail(r, "general.alignment is not a u32");
    r->align = little(pair->data, 4);
    return (r->align && r->align <= MAX_ALIGN && (r->align & (r->align - 1)) == 0) ||
           fail(r, "general.alignment is not a power of two up to 1048576");
}

static bool read_pairs(Reader *r)
{
    GgufPair pair;
    uint64_t seen[MAX_PAIRS]; /* hashes: a collision of 64 bits does not happen by chance */
    for (uint64_t i = 0; i < r->num_pairs; i++) {
        if (!take_pair(r, &pair) || !check_alignment(r, &pair))
            return false;
        seen[i] = hash_bytes(pair.key, (size_t)pair.key_len, 0);
        for (uint64_t k = 0; k < i; k++)
            if (seen[i] == seen[k])
                return fail(r, "a key occurs twice");
    }
    return true;
}

static bool take_kind(Reader *r, Entry *e)
{
    uint64_t code;
    if (!take_number(r, 4, &code))
        return false;
    e->kind = ggml_by_code((uint32_t)code);
    if (e->kind)
        return true;
    return io_fail(r->err, E_GGUF, "%s: tensor '%.*s': type %llu is unknown or no longer in use",
                   r->file->name, (int)(e->name_len < 200 ? e->name_len : 200), e->name,
                   (unsigned long long)code);
}

static bool take_entry(Reader *r, Entry *e)
{
    uint64_t rank;
    *e = (Entry){0};
    if (!take_name(r, &e->name, &e->name_len) || !take_number(r, 4, &rank))
        return false;
    if (rank > COUNT_OF(e->dim))
        return fail_tensor(r, e, "has more than 4 dimensions");
    e->rank = (uint32_t)rank;
    for (uint32_t i = 0; i < e->rank; i++)
        if (!take_number(r, 8, &e->dim[i]))
            return false;
    return take_kind(r, e) && take_number(r, 8, &e->offset);
}

/* The sizes of an entry as a view, dimensions turned around. */
static bool measure(Reader *r, const Entry *e, TensorView *view)
{
    *view = (TensorView){.fmt = e->kind->fmt, .dtype = e->kind->name, .rank = (int)e->rank};
    for (uint32_t i = 0; i < e->rank; i++) {
        if (e->dim[i] > LIMIT_DIM)
            return fail_tensor(r, e, "a dimension exceeds 2147483647");
        view->dim[e->rank - 1 - i] = (int64_t)e->dim[i];
    }
    if (!checked_elements(view->dim, view->rank, &view->elements) ||
        view->elements > LIMIT_ELEMENTS)
        return fail_tensor(r, e, "the product of its dimensions is too large");
    if ((e->rank ? e->dim[0] : 1) % e->kind->elements != 0)
        return fail_tensor(r, e, "a row does not hold whole blocks of its type");
    return checked_mul(view->elements / e->kind->elements, e->kind->bytes, &view->bytes) ||
           fail_tensor(r, e, "its bytes are too many");
}

static bool add_tensor(Reader *r, const Entry *e, uint64_t *next)
{
    TensorFile *f = r->file;
    TensorView *view = &f->view[f->num];
    if (!measure(r, e, view))
        return false;
    if (e->offset != *next)
        return fail_tensor(r, e, "does not begin where the one before it ends");
    memcpy(r->text, e->name, (size_t)e->name_len);
    r->text[e->name_len] = 0;
    view->name = r->text;
    r->text += e->name_len + 1;
    if (names_find(&f->names, view->name))
        return fail_tensor(r, e, "its name occurs twice");
    if (!names_add(&f->names, view))
        return io_fail(r->err, E_MEMORY, "%s: memory is exhausted", f->name);
    f->num++;
    return (checked_add(e->offset, view->bytes, next) && checked_align(*next, r->align, next)) ||
           fail_tensor(r, e, "its offset overflows");
}

/* Where the data begin is known behind the last entry, so entries are walked twice. */
static bool read_entries(Reader *r)
{
    TensorFile *f = r->file;
    Entry e;
    uint64_t start = r->pos, data_at, next = 0;
    for (uint64_t i = 0; i < r->num_tensors; i++)
        if (!take_entry(r, &e))
            return false;
    f->view = calloc((size_t)r->num_tensors + 1, sizeof *f->view);
    f->text = malloc((size_t)(r->pos - start) + 1); /* a name takes more bytes in its entry */
    if (!f->view || !f->text)
        return io_fail(r->err, E_MEMORY, "%s: memory is exhausted", f->name);
    if (!checked_align(r->pos, r->align, &data_at))
        return fail(r, "the header's size overflows");
    r->text = f->text;
    r->pos = start;
    for (uint64_t i = 0; i < r->num_tensors; i++) {
        if (!take_entry(r, &e) || !add_tensor(r, &e, &next))
            return false;
        TensorView *view = &f->view[i];
        uint64_t end;
        if (!checked_add(data_at, e.offset, &end) || !checked_add(end, view->bytes, &end) ||
            end > f->size)
            return fail_tensor(r, &e, "reaches beyond the end of the file");
        view->data = f->data + data_at + e.offset;
    }
    /* some writers fill the last tensor up to the alignment, some do not */
    return f->size <= data_at || f->size - data_at <= next ||
           fail(r, "bytes follow the last tensor");
}

/* Magic, version and counts. */
static bool read_start(Reader *r)
{
    uint64_t version;
    r->pos = 4;
    if (!take_number(r, 4, &version))
        return false;
    if (version == 0x02000000 || version == 0x03000000)
        return fail(r, "the file is big-endian; convert it to little-endian");
    if (version != 2 && version != 3)
        return io_fail(r->err, E_GGUF, "%s: version %llu is neither 2 nor 3", r->file->name,
                       (unsigned long long)version);
    if (!take_number(r, 8, &r->num_tensors) || !take_number(r, 8, &r->num_pairs))
        return false;
    uint64_t rest = r->file->size - r->pos;
    if (r->num_tensors > LIMIT_TENSORS || r->num_tensors > rest / LEAST_ENTRY)
        return fail(r, "more tensors than the file or a limit of 1000000 holds");
    return (r->num_pairs <= MAX_PAIRS && r->num_pairs <= rest / LEAST_PAIR) ||
           fail(r, "more keys than the file or a limit of 4096 holds");
}

bool gguf_parse(TensorFile *f, IoError *err)
{
    Reader r = {.file = f, .err = err, .align = 32};
    f->kind = TENSORS_GGUF;
    return read_start(&r) && read_pairs(&r) && read_entries(&r);
}

bool gguf_next_pair(const TensorFile *f, GgufPair *pair)
{
    /* the file was checked when it was opened, so nothing here fails before the last pair */
    Reader r = {.file = (TensorFile *)(uintptr_t)f};
    uint64_t index = pair->index;
    if (f->kind != TENSORS_GGUF || !read_start(&r) || index == r.num_pairs)
        return false;
    r.pos = index ? pair->end : r.pos;
    take_pair(&r, pair);
    pair->index = index + 1;
    pair->end = r.pos;
    return true;
}

const char *gguf_type_name(GgufType type)
{
    return value_type[type].name;
}

bool gguf_integer(const GgufPair *pair, int64_t *ret)
{
    static const bool is_signed[GGUF_TYPES] = {
        [GGUF_I8] = true, [GGUF_I16] = true, [GGUF_I32] = true, [GGUF_I64] = true};
    if (pair->type == GGUF_STRING || pair->type == GGUF_ARRAY || pair->type == GGUF_F32 ||
        pair->type == GGUF_F64)
        return false;
    uint32_t bytes = value_type[pair->type].bytes;
    uint64_t value = little(pair->data, bytes);
    uint32_t unused = 64 - 8 * bytes;
    *ret = is_signed[pair->type] ? (int64_t)(value << unused) >> unused : (int64_t)value;
    return true;
}

bool gguf_real(const GgufPair *pair, double *ret)
{
    if (pair->type == GGUF_F32) {
        float value;
        memcpy(&value, pair->data, sizeof value);
        *ret = (double)value;
        return true;
    }
    if (pair->type != GGUF_F64)
        return false;
    memcpy(ret, pair->data, sizeof *ret);
    return true;
}
