/* The file around a compiled model, as docs/file.md draws it:
 *
 *   stub | zero bytes to a multiple of 4096 | header | sections | table | trailer
 *
 * The artifact is everything from the header on. The trailer is read from the file's end, so the
 * artifact can follow any program. Every byte of the file is covered: the stub, the header, the
 * table and the trailer by hashes in the trailer, each section by its hash in the table, the gaps
 * by being zero. */
#include "artifact/artifact.h"

#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define MAGIC         "SINTERAF"
#define MAX_SECTIONS  4096
#define HEADER_BYTES  64 /* magic, version, 0, length of the artifact, zeros */
#define ROW_BYTES     72 /* of the table: kind, 0, name, offset, size, hash */
#define TRAILER_BYTES 120
/* From the trailer's start: start of the artifact in the file, its length, offset of the table,
 * number of sections; hashes of stub, header, table and of the trailer up to itself. Its last 16
 * bytes stay where they are in every version: size of the trailer, version, magic. */
enum {
    AT_START = 0,
    AT_LENGTH = 8,
    AT_TABLE = 16,
    AT_NUM = 24,
    AT_STUB_HASH = 32,
    AT_HEADER_HASH = 48,
    AT_TABLE_HASH = 64,
    AT_TRAILER_HASH = 80,
    AT_RESERVED = 96,
    AT_SIZE = 104,
    AT_VERSION = 108,
    AT_MAGIC = 112
};
#define SECTION_ALIGN 64

static void put(uint8_t *at, uint64_t value, int size)
{
    for (int i = 0; i < size; i++)
        at[i] = (uint8_t)(value >> (8 * i));
}

static uint64_t get(const uint8_t *at, int size)
{
    uint64_t value = 0;
    for (int i = 0; i < size; i++)
        value |= (uint64_t)at[i] << (8 * i);
    return value;
}

static void put_hash(uint8_t *at, XXH128_hash_t hash)
{
    put(at, hash.low64, 8);
    put(at + 8, hash.high64, 8);
}

static bool hash_is(const uint8_t *at, const void *data, uint64_t size)
{
    XXH128_hash_t hash = XXH3_128bits(data, (size_t)size);
    return get(at, 8) == hash.low64 && get(at + 8, 8) == hash.high64;
}

/* Writing -------------------------------------------------------------------------------------- */

struct ArtifactWriter {
    OutFile *file;
    uint64_t start; /* of the artifact in the file */
    Section *section;
    int num, cap;
    bool is_open, failed; /* in a section; memory ran out or a call was out of order */
    XXH3_state_t *state;
    XXH128_hash_t stub_hash;
};

ArtifactWriter *artifact_create(const char *path, const void *stub, size_t stub_size, IoError *err)
{
    ArtifactWriter *w = calloc(1, sizeof *w);
    XXH3_state_t *state = w ? XXH3_createState() : NULL;
    if (!state) {
        free(w);
        *err = (IoError){.id = E_MEMORY, .text = "memory is exhausted"};
        return NULL;
    }
    w->state = state;
    w->file = outfile_create(path, 0777, err);
    if (!w->file) {
        artifact_abandon(w);
        return NULL;
    }
    static const uint8_t zero[ARTIFACT_ALIGN];
    outfile_write(w->file, stub, stub_size);
    outfile_align(w->file, ARTIFACT_ALIGN);
    w->start = outfile_offset(w->file);
    XXH3_128bits_reset(w->state);
    XXH3_128bits_update(w->state, stub, stub_size);
    XXH3_128bits_update(w->state, zero, (size_t)w->start - stub_size);
    w->stub_hash = XXH3_128bits_digest(w->state);
    const uint8_t header[HEADER_BYTES] = {0}; /* patched at the end, when the length is known */
    outfile_write(w->file, header, sizeof header);
    return w;
}

static uint64_t writer_at(const ArtifactWriter *w)
{
    return outfile_offset(w->file) - w->start;
}

bool artifact_section_begin(ArtifactWriter *w, SectionKind kind, const char *name)
{
    if (w->num == w->cap) {
        int cap = w->cap ? 2 * w->cap : 16;
        Section *grown = realloc(w->section, (size_t)cap * sizeof *grown);
        if (!grown)
            w->failed = true;
        else
            w->section = grown, w->cap = cap;
    }
    if (w->failed || w->is_open || w->num == MAX_SECTIONS ||
        strlen(name) >= sizeof w->section->name) {
        w->failed = true;
        return false;
    }
    uint64_t align = kind == SECTION_WEIGHTS ? ARTIFACT_ALIGN : SECTION_ALIGN;
    outfile_align(w->file, align);
    Section *s = &w->section[w->num++];
    *s = (Section){.kind = kind, .offset = writer_at(w)};
    memcpy(s->name, name, strlen(name));
    XXH3_128bits_reset(w->state);
    w->is_open = true;
    return true;
}

bool artifact_write(ArtifactWriter *w, const void *data, uint64_t size)
{
    if (!w->is_open)
        w->failed = true;
    if (w->failed)
        return false;
    XXH3_128bits_update(w->state, data, (size_t)size);
    return outfile_write(w->file, data, size);
}

bool artifact_align(ArtifactWriter *w, uint64_t align)
{
    static const uint8_t zero[ARTIFACT_ALIGN];
    uint64_t at = artifact_offset(w), to;
    bool ok = checked_align(at, align, &to);
    for (; ok && at < to; at = artifact_offset(w)) {
        uint64_t left = to - at;
        ok = artifact_write(w, zero, left < sizeof zero ? left : sizeof zero);
    }
    return ok;
}

uint64_t artifact_offset(const ArtifactWriter *w)
{
    return w->is_open ? writer_at(w) - w->section[w->num - 1].offset : 0;
}

bool artifact_section_end(ArtifactWriter *w)
{
    if (!w->is_open || w->failed) {
        w->failed = true;
        return false;
    }
    Section *s = &w->section[w->num - 1];
    s->size = artifact_offset(w);
    XXH128_hash_t hash = XXH3_128bits_digest(w->state);
    s->hash[0] = hash.low64;
    s->hash[1] = hash.high64;
    w->is_open = false;
    return true;
}

static uint8_t *table_make(const ArtifactWriter *w)
{
    uint8_t *table = calloc((size_t)w->num + 1, ROW_BYTES);
    for (int i = 0; table && i < w->num; i++) {
        const Section *s = &w->section[i];
        uint8_t *row = table + i * ROW_BYTES;
        put(row, (uint64_t)s->kind, 8);
        memcpy(row + 8, s->name, sizeof s->name);
        put(row + 40, s->offset, 8);
        put(row + 48, s->size, 8);
        put(row + 56, s->hash[0], 8);
        put(row + 64, s->hash[1], 8);
    }
    return table;
}

static void trailer_make(const ArtifactWriter *w, const uint8_t *header, const uint8_t *table,
                         uint64_t table_at, uint64_t length, uint8_t *t)
{
    memset(t, 0, TRAILER_BYTES);
    put(t + AT_START, w->start, 8);
    put(t + AT_LENGTH, length, 8);
    put(t + AT_TABLE, table_at, 8);
    put(t + AT_NUM, (uint64_t)w->num, 8);
    put_hash(t + AT_STUB_HASH, w->stub_hash);
    put_hash(t + AT_HEADER_HASH, XXH3_128bits(header, HEADER_BYTES));
    put_hash(t + AT_TABLE_HASH, XXH3_128bits(table, (size_t)w->num * ROW_BYTES));
    put(t + AT_SIZE, TRAILER_BYTES, 4);
    put(t + AT_VERSION, ARTIFACT_VERSION, 4);
    memcpy(t + AT_MAGIC, MAGIC, 8);
    put_hash(t + AT_TRAILER_HASH, XXH3_128bits(t, AT_TRAILER_HASH));
}

static void writer_free(ArtifactWriter *w)
{
    XXH3_freeState(w->state);
    free(w->section);
    free(w);
}

bool artifact_finish(ArtifactWriter *w, IoError *err)
{
    uint8_t *table = w->failed || w->is_open ? NULL : table_make(w);
    if (!table) {
        *err = (IoError){.id = E_MEMORY, .text = "memory is exhausted while writing the file"};
        artifact_abandon(w);
        return false;
    }
    outfile_align(w->file, SECTION_ALIGN);
    uint64_t table_at = writer_at(w);
    uint64_t length = table_at + (uint64_t)w->num * ROW_BYTES + TRAILER_BYTES;
    uint8_t header[HEADER_BYTES] = MAGIC, trailer[TRAILER_BYTES];
    put(header + 8, ARTIFACT_VERSION, 4);
    put(header + 16, length, 8);
    trailer_make(w, header, table, table_at, length, trailer);
    outfile_write(w->file, table, (uint64_t)w->num * ROW_BYTES);
    outfile_write(w->file, trailer, sizeof trailer);
    outfile_patch(w->file, w->start, header, sizeof header);
    free(table);
    bool ok = outfile_finish(w->file, err);
    writer_free(w);
    return ok;
}

void artifact_abandon(ArtifactWriter *w)
{
    if (!w)
        return;
    outfile_abandon(w->file);
    writer_free(w);
}

/* Reading -------------------------------------------------------------------------------------- */

typedef struct Reader {
    const char *path;
    Artifact *artifact;
    IoError *err;
} Reader;

static bool PRINTF_LIKE(3, 4) refuse(const Reader *r, ErrorId id, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    r->err->id = id;
    int len = snprintf(r->err->text, sizeof r->err->text, "%.300s: ", r->path);
    vsnprintf(r->err->text + len, sizeof r->err->text - (size_t)len, fmt, args);
    va_end(args);
    return false;
}

static bool altered(const Reader *r, const char *what)
{
    return refuse(r, E_FILE_ALTERED,
                  "%s was altered since the file was written; copy or compile it "
                  "again",
                  what);
}

/* No trailer at the end: say whether this once was the beginning of a compiled file. */
static bool refuse_without_trailer(const Reader *r)
{
    const MappedFile *f = &r->artifact->file;
    for (uint64_t at = 0; at + HEADER_BYTES <= f->size; at += ARTIFACT_ALIGN) {
        if (memcmp(f->data + at, MAGIC, 8))
            continue;
        uint64_t whole = at + get(f->data + at + 16, 8);
        if (whole > f->size)
            return refuse(r, E_FILE_TRUNCATED, "truncated: it holds %llu of %llu bytes",
                          (unsigned long long)f->size, (unsigned long long)whole);
        if (whole < f->size)
            return refuse(r, E_FILE_TRUNCATED, "%llu bytes follow the end of the compiled model",
                          (unsigned long long)(f->size - whole));
        return altered(r, "the trailer");
    }
    return refuse(r, E_FILE_NOT_COMPILED, "not a compiled model: its end holds no trailer");
}

static bool is_zero(const uint8_t *data, uint64_t size)
{
    for (uint64_t i = 0; i < size; i++)
        if (data[i])
            return false;
    return true;
}

/* Finds and checks the trailer, the header and the stub. */
static bool read_frame(const Reader *r, const uint8_t **ret_trailer)
{
    Artifact *a = r->artifact;
    const MappedFile *f = &a->file;
    if (f->size < HEADER_BYTES + TRAILER_BYTES || memcmp(f->data + f->size - 8, MAGIC, 8))
        return refuse_without_trailer(r);
    const uint8_t *t = f->data + f->size - TRAILER_BYTES;
    uint64_t version = get(t + AT_VERSION, 4), size = get(t + AT_SIZE, 4);
    if (version != ARTIFACT_VERSION)
        return refuse(r, E_FILE_VERSION,
                      "its format is version %llu, this program reads version %d",
                      (unsigned long long)version, ARTIFACT_VERSION);
    if (size != TRAILER_BYTES || !hash_is(t + AT_TRAILER_HASH, t, AT_TRAILER_HASH) ||
        !is_zero(t + AT_RESERVED, 8))
        return altered(r, "the trailer");
    a->start = get(t + AT_START, 8);
    a->size = get(t + AT_LENGTH, 8);
    if (a->start > f->size || a->size != f->size - a->start)
        return refuse(r, E_FILE_TRUNCATED, "the trailer says %llu bytes, the file holds %llu",
                      (unsigned long long)(a->start + a->size), (unsigned long long)f->size);
    if (a->size < HEADER_BYTES + TRAILER_BYTES || a->start % ARTIFACT_ALIGN)
        return altered(r, "the trailer");
    const uint8_t *header = f->data + a->start;
    if (!hash_is(t + AT_HEADER_HASH, header, HEADER_BYTES))
        return altered(r, "the header");
    *ret_trailer = t;
    return true;
}

/* Sections ascend, lie inside the artifact, and only alignment lies between them. */
static bool section_ok(const Reader *r, const Section *s, uint64_t begin, uint64_t limit)
{
    const Artifact *a = r->artifact;
    const uint8_t *data = a->file.data + a->start;
    uint64_t end;
    return memchr(s->name, 0, sizeof s->name) && s->kind >= SECTION_META && s->offset >= begin &&
           checked_add(s->offset, s->size, &end) && end <= limit &&
           s->offset % (s->kind == SECTION_WEIGHTS ? ARTIFACT_ALIGN : SECTION_ALIGN) == 0 &&
           s->offset - begin < ARTIFACT_ALIGN && is_zero(data + begin, s->offset - begin);
}

static bool read_table(const Reader *r, const uint8_t *trailer)
{
    Artifact *a = r->artifact;
    const uint8_t *data = a->file.data + a->start;
    uint64_t at = get(trailer + AT_TABLE, 8), num = get(trailer + AT_NUM, 8);
    if (num > MAX_SECTIONS || at < HEADER_BYTES || at > a->size - TRAILER_BYTES ||
        a->size - TRAILER_BYTES - at != num * ROW_BYTES)
        return altered(r, "the trailer");
    if (!hash_is(trailer + AT_TABLE_HASH, data + at, num * ROW_BYTES))
        return altered(r, "the table of sections");
    a->section = calloc((size_t)num + 1, sizeof *a->section);
    if (!a->section)
        return refuse(r, E_MEMORY, "memory is exhausted");
    a->num_sections = (int)num;
    uint64_t begin = HEADER_BYTES;
    for (int i = 0; i < a->num_sections; i++) {
        const uint8_t *row = data + at + (uint64_t)i * ROW_BYTES;
        Section *s = &a->section[i];
        uint64_t kind = get(row, 8);
        *s = (Section){.kind = kind > SECTION_REPORT ? (SectionKind)0 : (SectionKind)kind,
                       .offset = get(row + 40, 8),
                       .size = get(row + 48, 8),
                       .hash = {get(row + 56, 8), get(row + 64, 8)}};
        memcpy(s->name, row + 8, sizeof s->name);
        if (!section_ok(r, s, begin, at))
            return altered(r, "the table of sections");
        begin = s->offset + s->size;
    }
    return (at - begin < SECTION_ALIGN && is_zero(data + begin, at - begin)) ||
           altered(r, "the gap before the table");
}

static const char *kind_name(SectionKind kind)
{
    switch (kind) {
    case SECTION_META: return "description";
    case SECTION_SOURCE: return "source text";
    case SECTION_PLAN: return "launch plan";
    case SECTION_WEIGHTS: return "weights";
    case SECTION_CODE: return "device code";
    default: return "report";
    }
}

static bool check_sections(const Reader *r, bool skip_weights)
{
    const Artifact *a = r->artifact;
    for (int i = 0; i < a->num_sections; i++) {
        const Section *s = &a->section[i];
        if (skip_weights && s->kind == SECTION_WEIGHTS)
            continue;
        XXH128_hash_t hash = XXH3_128bits(artifact_data(a, s), (size_t)s->size);
        if (hash.low64 != s->hash[0] || hash.high64 != s->hash[1])
            return refuse(r, E_FILE_ALTERED,
                          "the %s (section \"%s\") was altered since the file was written; copy or "
                          "compile it again",
                          kind_name(s->kind), s->name);
    }
    return true;
}

static bool check_file(const char *path, bool skip_weights, Artifact *ret, IoError *err)
{
    const Reader r = {path, ret, err};
    const uint8_t *trailer = NULL;
    bool ok = read_frame(&r, &trailer) && read_table(&r, trailer);
    if (ok && !hash_is(trailer + AT_STUB_HASH, ret->file.data, ret->start))
        ok = altered(&r, "the program before the model");
    ok = ok && check_sections(&r, skip_weights);
    if (!ok)
        artifact_close(ret);
    return ok;
}

bool artifact_open(const char *path, bool skip_weights, Artifact *ret, IoError *err)
{
    *ret = (Artifact){.file = {.fd = -1}};
    return file_map(path, &ret->file, err) && check_file(path, skip_weights, ret, err);
}

bool artifact_open_copy(const char *path, Artifact *ret, IoError *err)
{
    *ret = (Artifact){.file = {.fd = -1}};
    return file_copy(path, &ret->file, err) && check_file(path, false, ret, err);
}

void artifact_close(Artifact *a)
{
    free(a->section);
    file_unmap(&a->file);
    *a = (Artifact){.file = {.fd = -1}};
}

const Section *artifact_find(const Artifact *a, SectionKind kind, const char *name)
{
    for (int i = 0; i < a->num_sections; i++)
        if (a->section[i].kind == kind && (!name || !strcmp(a->section[i].name, name)))
            return &a->section[i];
    return NULL;
}

const uint8_t *artifact_data(const Artifact *a, const Section *s)
{
    return a->file.data + a->start + s->offset;
}
