/* Writing checkpoints that other engines load: modules whose codes are known, as one family of
 * layouts stores them, beside tensors that stay as they are. Nothing is rounded here either: what
 * a family cannot hold exactly is refused. docs/checkpoints.md says what each can. */
#ifndef SINTER_CHECKPOINT_WRITE_H
#define SINTER_CHECKPOINT_WRITE_H

#include "checkpoint/checkpoint.h"

enum { WRITE_PARTS = 6 };

typedef struct WritePart { /* the tensor `module``suffix` */
    const char *suffix, *dtype;
    int rank;
    int64_t dim[2];
} WritePart;

typedef struct WriteModule {
    const char *name; /* "model.layers.0.mlp.up_proj" */
    Scheme scheme;
    int64_t rows, cols;
    StoredAct act;
    const int32_t *order; /* as a StoredModule's */
    int num_parts;        /* the rest is settled by the writer */
    WritePart part[WRITE_PARTS];
    const char *format; /* the writer's own word for the layout */
} WriteModule;

/* One family. `checkpoint_writers` is a NULL-terminated table. */
typedef struct CheckpointWriter {
    const char *name;
    /* Settles format and parts. NULL, or why the family cannot hold the module, with a remedy in
     * *ret_help where there is one. */
    const char *(*settle)(Arena *arena, WriteModule *m, const char **ret_help);
    /* NULL, or why one checkpoint cannot hold both; the member is NULL where it can hold any. */
    const char *(*differs)(Arena *arena, const WriteModule *m, const WriteModule *other);
    /* Fills each part, which is zeroed. q->outer becomes the one that is written. */
    void (*fill)(const WriteModule *m, QTensor *q, void *const *data);
    /* The configuration, an object. plain: names of linear layers that are not quantised. */
    void (*config)(Sb *sb, int num, const WriteModule *const *module, int num_plain,
                   const char *const *plain);
} CheckpointWriter;
extern const CheckpointWriter *const checkpoint_writers[];
extern const CheckpointWriter writer_compressed, writer_gptq;

/* For writers: write.c ------------------------------------------------------------------------- */

void write_part(WriteModule *m, const char *suffix, const char *dtype, int rank, int64_t d0,
                int64_t d1);
static inline int64_t blocks_of(int64_t num, int64_t size)
{
    return num / size + (num % size != 0);
}
/* The code of column k of the weight, in which no order is: 0 .. 2^bits - 1, signed ones moved up
 * by half of that; zero points likewise. */
uint32_t written_code(const WriteModule *m, const QTensor *q, int64_t row, int64_t at);
uint32_t written_zero(const WriteModule *m, const QTensor *q, int64_t row, int64_t group);
float written_scale(const QTensor *q, int64_t row, int64_t group);
/* The column of the weight that q's column `at` is. */
static inline int64_t written_column(const WriteModule *m, int64_t at)
{
    return m->order ? m->order[at] : at;
}
/* Sets `bits` bits at bit `at` of a zeroed stream of words that are `stride` apart. */
void stream_put(uint32_t *word, int64_t stride, uint64_t at, int bits, uint32_t code);
void write_order(const WriteModule *m, int32_t *group); /* g_idx */

/* folder.c ------------------------------------------------------------------------------------- */

/* Tensors that are made together and lie in one file. */
typedef struct FolderUnit FolderUnit;
struct FolderUnit {
    int num;
    SafetensorsItem item[WRITE_PARTS];
    /* NULL: the items have their data. Fills a zeroed buffer for each. */
    bool (*make)(const FolderUnit *unit, void *const *data, IoError *err);
    void *user;
};
/* Makes the folder, which must not exist or be empty, and writes model.safetensors, or shards of at
 * most `shard` bytes with their index, then config.json. All of it is there, or nothing. */
bool folder_write(Arena *arena, const char *path, int num, const FolderUnit *unit, uint64_t shard,
                  const char *config, IoError *err);
/* The object `text` (NULL: {}) with `key` set to the JSON `value`, and without `other`. */
const char *config_with(Arena *arena, const char *file, const char *text, const char *key,
                        const char *value, const char *other, IoError *err);

#endif
