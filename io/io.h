/* io: files. Reading is bounded and never trusts a declared size; writing is atomic. All
 * library-safe: errors are an IoError with the rule that was broken, the file, and the place. */
#ifndef SINTER_IO_H
#define SINTER_IO_H

#include "base/base.h"
#include "base/limits.h"
#include "numerics/numerics.h"

typedef struct IoError {
    ErrorId id;
    char text[512]; /* "model.safetensors: header length 123 exceeds the file's 100 bytes" */
} IoError;
/* Fills err (may be NULL) and returns false. Control characters of names come out as '?'. */
bool io_fail(IoError *err, ErrorId id, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* file.c -------------------------------------------------------------------------------------- */

/* A read-only mapping of a regular file (no FIFOs, no devices). */
typedef struct MappedFile {
    const uint8_t *data;
    uint64_t size;
    int fd;
} MappedFile;
bool file_map(const char *path, MappedFile *ret, IoError *err);
void file_unmap(MappedFile *file);
/* What was read of a mapped file is no longer part of this process's memory until it is read again.
 */
void file_forget(const MappedFile *file);
/* The same bytes in memory of our own, which no writer of the file changes; fd is -1. */
bool file_copy(const char *path, MappedFile *ret, IoError *err);
/* guard.c: from now on, reading what a mapped file has lost ends the process with an error that
 * names the file, exit code 1; writing beyond the limit on files is an error of the write. For
 * programs, which call it first; never for libraries. `name` begins the message. */
void files_guard(const char *name);
void guard_add(const char *path, const void *data, uint64_t size);
void guard_remove(const void *data);
/* pending.c: unfinished files, and folders of files, that have names. Signals and exit remove them,
 * from pending_add (a slot; -1: the table is full) to pending_remove. */
int pending_add(const char *path, bool is_folder);
void pending_remove(int slot);
/* Both may be called by signals; a folder goes with the files in it. */
void outfiles_remove(void);
void folder_remove(const char *path);
/* Whole file, at most max bytes, NUL-terminated, malloc'ed; "-" is standard input. */
char *file_read(const char *path, uint64_t max, uint64_t *ret_size, IoError *err);

/* Atomic output: a file without a name, put at `path` by finish; gone after abandon and whatever
 * ends the process. Errors (no space, not writable) surface at finish at the latest; after one,
 * offsets go on as if all had been written. */
typedef struct OutFile OutFile;
OutFile *outfile_create(const char *path, unsigned mode, IoError *err);
bool outfile_write(OutFile *f, const void *data, uint64_t size); /* appends */
bool outfile_align(OutFile *f, uint64_t align);                  /* zero bytes up to a multiple */
uint64_t outfile_offset(const OutFile *f);
/* Room for what outfile_patch writes later; zeros until then. */
bool outfile_reserve(OutFile *f, uint64_t size);
bool outfile_patch(OutFile *f, uint64_t offset, const void *data, uint64_t size);
bool outfile_finish(OutFile *f, IoError *err); /* frees f */
void outfile_abandon(OutFile *f);              /* frees f; accepts NULL */
/* It can be read, and nothing but itself and its parent is there. */
bool folder_is_empty(const char *path);
/* A new folder that is there when all of it is complete: files are made in outfolder_path. `path`
 * must not exist, or be an empty folder, which stays; its file `last` comes last. Gone after
 * abandon and whatever ends the process, but for what cannot be caught. */
typedef struct OutFolder OutFolder;
OutFolder *outfolder_create(const char *path, IoError *err);
const char *outfolder_path(const OutFolder *f);
bool outfolder_finish(OutFolder *f, const char *last, IoError *err); /* frees f */
void outfolder_abandon(OutFolder *f);                                /* frees f; accepts NULL */
/* A new file without a name: its descriptor, or -1, and the path by which this process opens it for
 * reading and outfile_create for writing. It is gone when all descriptors are closed. */
#define FILE_UNNAMED 32
int file_unnamed(char ret_path[FILE_UNNAMED]);
const char *temporary_folder(void); /* where it lies: TMPDIR or /tmp */
/* dir of `base` joined with `rel` unless rel is absolute; malloc'ed */
char *path_beside(const char *base, const char *rel);
char *path_join(const char *folder, const char *name); /* likewise */

/* tensorfile.c, npy.c, safetensors.c, gguf.c -------------------------------------------------- */

/* What files store; wider than FormatId (i64, bool..). */
typedef struct TensorView {
    const char *name;  /* NULL in npy */
    FormatId fmt;      /* FMT_NONE when the file's dtype has no format of ours */
    const char *dtype; /* as the file says, "F8_E4M3", "<f4" */
    int rank;
    int64_t dim[LIMIT_RANK];
    uint64_t elements, bytes;
    const void *data; /* in the mapping; aligned to its elements */
} TensorView;

typedef enum TensorsKind { TENSORS_SAFETENSORS, TENSORS_NPY, TENSORS_GGUF } TensorsKind;
/* a .npy (one tensor), .safetensors or .gguf, mapped */
typedef struct TensorFile TensorFile;
TensorFile *tensorfile_open(const char *path, IoError *err); /* by content, not by extension */
/* The same over bytes that outlive the result; `name` is for messages. */
TensorFile *tensorfile_parse(const char *name, const void *data, uint64_t size, IoError *err);
void tensorfile_close(TensorFile *f); /* accepts NULL */
int tensorfile_num(const TensorFile *f);
const TensorView *tensorfile_at(const TensorFile *f, int index);
const TensorView *tensorfile_find(const TensorFile *f, const char *name); /* hashed */
bool tensorfile_is_npy(const TensorFile *f);
TensorsKind tensorfile_kind(const TensorFile *f);
/* In words where our names would mean something else: "64-bit integers (int64)". */
const char *tensor_dtype_text(const TensorView *view);
/* labels.c: the view's whole numbers, ret[view->elements]; a NULL view is an error, too. */
bool labels_read(const TensorView *view, const char *path, int64_t *ret, IoError *err);
/* Whether each of them is a column of these logits, one for a row. */
bool labels_fit(const int64_t *label, uint64_t num, const char *path, const char *logits,
                int64_t rows, int64_t cols, IoError *err);

/* gguf.c: what a GGUF file says beside its tensors, in its order. */
typedef enum GgufType {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_TYPES
} GgufType;
typedef struct GgufPair {
    const char *key; /* not terminated */
    uint64_t key_len;
    GgufType type, item; /* item: of an array's elements, else the type */
    uint64_t num;        /* of an array's elements or a string's bytes */
    const uint8_t *data; /* little-endian, in the mapping */
    uint64_t index, end; /* where the walk is */
} GgufPair;
/* {0} at first; false behind the last pair, and for files of another kind. */
bool gguf_next_pair(const TensorFile *f, GgufPair *pair);
const char *gguf_type_name(GgufType type);
bool gguf_integer(const GgufPair *pair, int64_t *ret); /* bools too; false: not one integer */
bool gguf_real(const GgufPair *pair, double *ret);     /* f32 and f64; false: not one of them */

/* ggml.c: the types of tensors in GGUF files; ggml.def has their table. */
enum { GGML_MOST = 256 /* elements of a block */, GGML_GROUPS = 16 };
typedef struct GgmlBlock {
    int8_t code[GGML_MOST]; /* offsets taken off; of MXFP4 and NVFP4, codes of e2m1 */
    float scale[GGML_GROUPS], min[GGML_GROUPS];
} GgmlBlock;
typedef struct GgmlInfo {
    const char *name;
    uint32_t code;
    int elements, bytes; /* of a block */
    FormatId fmt;        /* FMT_NONE: not a format of ours */
    int group;           /* 0: blocks that are only known by name */
    bool has_min;
    void (*unpack)(const uint8_t *block, GgmlBlock *ret); /* NULL: they are not taken apart */
    /* As unpack, but for the codes, two of which become a byte, the even one its low nibble; NULL:
     * take them from unpack. */
    void (*nibbles)(const uint8_t *block, GgmlBlock *ret, uint8_t *codes);
} GgmlInfo;
const GgmlInfo *ggml_by_code(uint32_t code);
const GgmlInfo *ggml_by_name(const char *name); /* a view's dtype */
/* The block's values as the reference computes them, in f32: code * scale, then + min. */
void ggml_decode(const GgmlInfo *info, const uint8_t *block, float *ret);

bool npy_write(const char *path, FormatId fmt, int rank, const int64_t *dim, const void *data,
               IoError *err); /* F64 F32 F16 I32 I8 U8; others: an error that names safetensors */
typedef struct SafetensorsItem {
    const char *name;
    FormatId fmt;
    int rank;
    const int64_t *dim;
    const void *data;
    const char *dtype; /* "I64", whatever fmt says; NULL: as fmt says */
} SafetensorsItem;
/* Items are stored by element size, largest first, else in the order given, so that each is
 * aligned. Formats of 4 bits other than e2m1 have no dtype there: an error. */
bool safetensors_write(const char *path, int num, const SafetensorsItem *item, IoError *err);
/* The same for data that comes later: writes the header, reserves the rest, and says where each
 * item's bytes belong, in the order of items; no data is looked at. */
bool safetensors_begin(OutFile *f, const char *path, int num, const SafetensorsItem *item,
                       uint64_t *ret_at, IoError *err);
/* Bytes of an item; false: its dtype is not known, or its size overflows. */
bool safetensors_bytes(const char *path, const SafetensorsItem *item, uint64_t *ret, IoError *err);

/* weights.c: a set of weight files seen as one name space; .safetensors or a sharded
 * *.index.json. Duplicate names across files are an error. */
typedef struct WeightSet WeightSet;
WeightSet *weights_open(int num, const char *const *path, IoError *err);
void weights_close(WeightSet *w); /* accepts NULL */
/* So many elements were read: now and then file_forget for all files. Accepts NULL. */
void weights_forget(WeightSet *w, uint64_t elements);
const TensorView *weights_find(const WeightSet *w, const char *name);
int weights_num(const WeightSet *w);
/* Every pair of the safetensors files' __metadata__, in order, until one is refused; fn fills err.
 */
typedef bool MetadataFn(void *user, const char *key, const char *value, size_t len);
bool weights_each_metadata(const WeightSet *w, MetadataFn *fn, void *user, IoError *err);
const TensorView *weights_at(const WeightSet *w, int index);

/* json.c: a strict streaming reader (no trees): duplicate keys are the caller's concern. Strings
 * are checked to be UTF-8 without NUL. Objects and arrays: begin, then next until it returns false;
 * that was an error when j->error is set. */
typedef struct Json {
    const char *text;
    size_t len, pos;
    int depth;
    const char *error; /* first problem, static text */
} Json;
void json_init(Json *j, const char *text, size_t len);
bool json_object_begin(Json *j);
/* Next key (unescaped into buf, at most size - 1 bytes) or false at the closing brace or an error.
 */
bool json_next_key(Json *j, char *buf, size_t size, bool *first);
bool json_array_begin(Json *j);
bool json_next_element(Json *j, bool *first);
bool json_string(Json *j, char *buf, size_t size);
bool json_at_string(Json *j); /* is a string next? */
char json_peek(Json *j);      /* the character that comes next, white space skipped; NUL: none */
bool json_u64(Json *j, uint64_t *ret);
bool json_f64(Json *j, double *ret);
bool json_skip(Json *j); /* any value */
bool json_end(Json *j);  /* only white space is left */

/* json_out.c: members of objects, a comma before each but the first of its object or line. Numbers
 * that JSON has none for, and texts that are NULL, are null. */
void json_next(Sb *sb); /* before an element of an array */
void json_item(Sb *sb, const char *text);
void json_key(Sb *sb, const char *key);
void json_text(Sb *sb, const char *key, const char *value);
void json_number(Sb *sb, const char *key, double value); /* reads back as exactly this */
void json_count(Sb *sb, const char *key, uint64_t value);
void json_bool(Sb *sb, const char *key, bool value);
void json_texts(Sb *sb, const char *key, const char *const *text, int num);

#endif
