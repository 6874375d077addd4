/* Inside of io: what the readers of one format fill in, and the table of names they share. */
#ifndef SINTER_IO_TENSORS_H
#define SINTER_IO_TENSORS_H

#include "io/io.h"

/* Hash table from a tensor's name to its view. Library-safe. */
typedef struct NameTable {
    const TensorView **view; /* in order of insertion */
    uint32_t *slot;          /* index + 1 */
    uint32_t num, num_slots;
} NameTable;
const TensorView *names_find(const NameTable *table, const char *name);
bool names_add(NameTable *table, const TensorView *view); /* false: memory is exhausted */
void names_free(NameTable *table);

struct TensorFile {
    const char *name; /* for messages */
    const uint8_t *data;
    uint64_t size;
    TensorsKind kind;
    MappedFile map;
    TensorView *view;
    uint32_t num, cap;
    NameTable names;
    char *text;    /* names and dtypes of views */
    void **copies; /* of tensors that the file holds misaligned */
    uint32_t num_copies;
};

bool npy_parse(TensorFile *f, IoError *err);
bool safetensors_parse(TensorFile *f, IoError *err);
bool safetensors_metadata(const TensorFile *f, MetadataFn *fn, void *user, IoError *err);
bool gguf_parse(TensorFile *f, IoError *err);

#endif
