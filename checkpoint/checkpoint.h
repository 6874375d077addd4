/* checkpoint: weights as others quantised and stored them. A checkpoint is a set of weight files
 * with the configuration that lies beside them; a reader, one file each, knows one family of
 * layouts. It finds the modules, checks every size, and gives codes, scales and zero points exactly
 * as they were stored, in the canonical form of quant.h. Nothing here rounds or requantises: what
 * our schemes cannot hold is refused by name, with a remedy.
 *
 * Opening reads headers, the configuration and a few words of content; weights are read one module
 * at a time, when their codes are asked for. docs/checkpoints.md has the table of families. */
#ifndef SINTER_CHECKPOINT_H
#define SINTER_CHECKPOINT_H

#include "base/base.h"
#include "io/io.h"
#include "quant/quant.h"

/* config.c ------------------------------------------------------------------------------------ */

/* A JSON file as a list of its values in order. The path of a value is the keys and indices that
 * lead to it, joined by '/': "quantization_config/config_groups/group_0/targets/0". */
typedef enum ConfigKind {
    CONFIG_OBJECT,
    CONFIG_ARRAY,
    CONFIG_STRING,
    CONFIG_NUMBER,
    CONFIG_BOOL,
    CONFIG_NULL
} ConfigKind;
typedef struct ConfigValue {
    const char *path;
    ConfigKind kind;
    const char *text; /* unescaped string, or the words of a number, true, false */
    int num;          /* members of an object, elements of an array */
} ConfigValue;
typedef struct Config {
    const char *file; /* where it was read from; NULL: nothing was */
    const char
        *prefix; /* of the part that says how weights are quantised: "quantization_config/" */
    ARRAY(ConfigValue) values;
    Map by_path;
} Config;
bool config_read(Config *ret, Arena *arena, const char *file, const char *text, size_t len,
                 IoError *err);
const ConfigValue *config_find(const Config *config, const char *path); /* NULL when absent */
/* The same behind the prefix. NULL, false or `otherwise` when absent or of another kind. */
const char *config_text(const Config *config, const char *key);
bool config_int(const Config *config, const char *key, int64_t *ret);
bool config_bool(const Config *config, const char *key, bool otherwise);

/* checkpoint.c --------------------------------------------------------------------------------- */

typedef struct Checkpoint Checkpoint;
typedef struct StoredModule StoredModule;

/* One family of layouts. `checkpoint_readers` is a NULL-terminated table. */
typedef struct CheckpointReader {
    const char *name, *describe;
    const char *const *methods; /* the quant_method of configurations that mean it, to NULL */
    /* Do the tensors' names say so, where no configuration does? */
    bool (*detect)(const Checkpoint *c);
    /* Adds every module that is stored quantised (stored_add), its sizes and types checked.
     * False after filling err. */
    bool (*modules)(Checkpoint *c, IoError *err);
    /* Codes, scales and zero points into q, which is made for the module's scheme and size and
     * zeroed; q->outer is 1. Library-safe; false after filling err. */
    bool (*read)(const StoredModule *m, QTensor *q, IoError *err);
    bool sets_all; /* `read` sets all codes and scales, so that they need not be zeroed */
    /* One number for each entry of the scheme's grid, as the module's `offset` says; NULL where no
     * module has any. */
    bool (*offsets)(const StoredModule *m, float *ret, IoError *err);
} CheckpointReader;
extern const CheckpointReader *const checkpoint_readers[];

/* What a module's tensors are for. A reader may use them as its layout needs. */
typedef enum StoredPart {
    PART_CODES,
    PART_SCALE,
    PART_ZERO,
    PART_ORDER, /* the group of each column */
    PART_OUTER, /* a second scale */
    PART_EXTRA, /* and a third tensor of that kind */
    PART_TABLE,
    PART_TABLE2,
    PART_INPUT_SCALE,
    PART_INPUT_ZERO,
    PART_INPUT_FACTORS, /* of the input's columns, which multiply it first: input_factors_settle */
    NUM_PARTS
} StoredPart;

/* What codes times scales leave out: zero points that are no integers. Codes are then unsigned, and
 * their scheme's zero points 0. */
typedef enum StoredOffset {
    OFFSET_NONE,
    OFFSET_ADDED, /* w = q s + m */
    OFFSET_ZERO   /* w = (q - z) s, z a float */
} StoredOffset;

/* How the module's input is quantised, where the checkpoint says so. */
typedef struct StoredAct {
    bool is_quantised, is_static;
    Scheme scheme;
    float scale; /* static */
    int32_t zero;
} StoredAct;

struct StoredModule {
    const char *name;   /* "model.layers.0.mlp.up_proj" */
    const char *weight; /* what a param names: "model.layers.0.mlp.up_proj.weight" */
    const CheckpointReader *reader;
    const char *layout;  /* which of the reader's: "gptq v1", "pack-quantized" */
    const char *said;    /* where the scheme was said: "config.json: quantization_config" */
    const char *refused; /* why its codes cannot be used, NULL: they can */
    Scheme scheme;
    StoredOffset offset;
    int bits;           /* of a stored code, where its format has more; 0: as many */
    int64_t rows, cols; /* N (experts times N), K */
    int64_t experts;    /* 0: a matrix */
    const TensorView *part[NUM_PARTS];
    StoredAct act;
    /* NULL, or [cols]: the columns of what `read` gives, in the order of their groups, are these
     * columns of the weight. */
    const int32_t *order;
    /* 0, or every how many rows those lie that share scales: row r h + i of what `read` gives, of
     * blocks of h rows, is row i row_step + r of the weight. */
    int64_t row_step;
    const StoredModule *const *each; /* NULL, or the modules of `experts` matrices: stack.c */
    bool outers;                     /* of each, a second scale that `read` leaves out */
    bool wide; /* columns of each are ordered or multiplied by themselves: only values hold all */
    const char *act_refused;    /* why `act`, that of the first, is not that of all */
    int64_t number[4];          /* the reader's own */
    float real[2];              /* likewise */
    ARRAY(const char *) notes;  /* what was checked, what was found, in sentences */
    ARRAY(const char *) doubts; /* what the user should look at */
};

struct Checkpoint {
    Arena *arena;
    const WeightSet *weights;
    Config config;
    const char *method;             /* the configuration's quant_method; NULL: it names none */
    const CheckpointReader *reader; /* NULL: nothing is stored quantised */
    ARRAY(StoredModule *) modules;
    Map by_weight; /* "x.weight" and "x" to StoredModule */
    Map owner;     /* every tensor of a module to its StoredModule */
};

/* Reads the configuration beside the first of the paths that made `weights` (which outlives the
 * result), decides which reader it is for, and finds the modules. NULL after filling err. */
Checkpoint *checkpoint_open(Arena *arena, const WeightSet *weights, int num,
                            const char *const *path, IoError *err);
/* The file `name` in the folder of the checkpoint `path`, or in `path` itself where it is one. */
const char *checkpoint_beside(Arena *arena, const char *path, const char *name);
/* By the name of the weight, "x.weight", or of the module; NULL: not stored quantised. */
const StoredModule *checkpoint_find(const Checkpoint *c, const char *weight);
/* A weight whose tensors the text names; NULL: there is none of that kind. */
typedef struct StoredHand {
    const Scheme *scheme;
    const char *codes, *scale, *zero, *offset, *outer, *table;
} StoredHand;
/* NULL after filling err. */
const StoredModule *checkpoint_by_hand(Checkpoint *c, const StoredHand *hand, int64_t rows,
                                       int64_t cols, IoError *err);
/* Reads into q, which is made for the module's scheme and size; library-safe. */
bool stored_fill(const StoredModule *m, QTensor *q, IoError *err);
/* The same, q made here. */
bool stored_read(const StoredModule *m, QTensor *q, IoError *err);
/* The factors [cols] of the module's input, where it has PART_INPUT_FACTORS. The values of its
 * weight hold them. */
bool stored_input_factors(const StoredModule *m, float *ret, IoError *err);
/* The numbers m of w = q s + m, one for each entry of the scheme's grid. */
bool stored_offsets(const StoredModule *m, float *ret, IoError *err);
/* The weight's values [rows, cols] in f32 and in its own order of columns. */
bool stored_values(const StoredModule *m, float *ret, IoError *err);

/* stack.c: matrices that lie apart, as one weight [num times rows, cols], which is called `name`;
 * `each` and all of it outlive the result. NULL after filling err: they are not stored alike. */
const StoredModule *checkpoint_stack(Checkpoint *c, const char *name, int64_t num,
                                     const StoredModule *const *each, IoError *err);
/* Where m->outers: [rows], the second scale of the row's matrix. */
bool stored_outers(const StoredModule *m, float *ret, IoError *err);
/* What checkpoint.c does with a stack. */
bool stack_fill(const StoredModule *m, QTensor *q, IoError *err);
bool stack_values(const StoredModule *m, float *ret, IoError *err);
bool stack_offsets(const StoredModule *m, float *ret, IoError *err);

/* facts.c -------------------------------------------------------------------------------------- */

/* What the content of a module looks like. */
typedef struct StoredFacts {
    uint64_t count[256]; /* of each code */
    int used;            /* codes that occur */
    double mean;         /* of code less zero point, in steps */
    double full;         /* the part of blocks whose codes span most of the range; 1 for floats */
    float scale_min, scale_max;
    int32_t zero_min, zero_max;
} StoredFacts;
int stored_bits(const StoredModule *m);
int stored_codes(const StoredModule *m); /* that it can have */
void stored_facts(const StoredModule *m, const QTensor *q, StoredFacts *ret);
const char *stored_facts_doubt(const StoredModule *m, const StoredFacts *facts); /* or NULL */

/* For readers: parts.c ------------------------------------------------------------------------- */

const char *config_name(const Checkpoint *c); /* without its folder; there must be one */
StoredModule *stored_add(Checkpoint *c, const char *name, const char *layout);
void stored_note(Checkpoint *c, StoredModule *m, const char *fmt, ...) PRINTF_LIKE(3, 4);
void stored_doubt(Checkpoint *c, StoredModule *m, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* The tensor `module``suffix` becomes the module's part; NULL when there is none. */
const TensorView *stored_part(Checkpoint *c, StoredModule *m, StoredPart part, const char *suffix);
/* The module's name when `tensor` ends with `suffix`, else NULL. */
const char *module_name(Arena *arena, const char *tensor, const char *suffix);
/* Calls add for each tensor that ends with `suffix`, with its module's name, until it is false. */
typedef bool ModuleAdd(Checkpoint *c, const TensorView *codes, const char *name, IoError *err);
bool modules_named(Checkpoint *c, const char *suffix, ModuleAdd *add, IoError *err);
/* The scheme becomes that of a codebook whose tables are PART_TABLE: [codes], [rows, codes], or a
 * table for each entry of the grid of scales, [row blocks, column blocks, codes]. stored_fill reads
 * them. */
bool table_settle(Checkpoint *c, StoredModule *m, IoError *err);
bool table_read(const StoredModule *m, QTensor *q, IoError *err);
/* Any tensor that ends so? */
bool tensors_end_with(const Checkpoint *c, const char *suffix);
/* E_CHECKPOINT: "x.scales: <rule>". Returns false. */
bool stored_fail(IoError *err, const TensorView *view, const char *fmt, ...) PRINTF_LIKE(3, 4);
bool module_fail(IoError *err, const StoredModule *m, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* Has the tensor this dtype ("I32", or several: "F16 BF16 F32") and these dimensions? */
bool view_is(IoError *err, const TensorView *view, const char *dtypes, int rank,
             const int64_t *dim);
static inline bool view_is_float(const TensorView *view)
{
    return view->fmt == FMT_F32 || view->fmt == FMT_BF16 || view->fmt == FMT_F16;
}
const char *dims_text(Arena *arena, const TensorView *view);
/* The grid of scales [row_blocks, col_blocks] from a tensor, by_columns: stored [G, N]. Checks that
 * all are finite. */
bool scales_read(const TensorView *view, bool by_columns, QTensor *q, IoError *err);
/* Codes that are stored as they are, and scales by rows: a reader's `read`. */
bool codes_read(const StoredModule *m, QTensor *q, IoError *err);
/* An exponent of ones, and only that, carries into the bit of the sign. */
static inline bool floats_finite(const float *x, uint64_t num)
{
    uint32_t all = 0;

    for (uint64_t i = 0; i < num; i++)
        all |= (num_bits(x[i]) & NUM_INF_BITS) + (1u << 23);
    return !(all >> 31);
}
bool scales_finite(const TensorView *view, const QTensor *q, IoError *err);
/* Has the lines of the cache that hold these bytes fetched, to be read or to be written. */
static inline void lines_ask(const void *at, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i += 64)
        __builtin_prefetch((const char *)at + i);
}
static inline void lines_ask_written(const void *at, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i += 64)
        __builtin_prefetch((const char *)at + i, 1);
}
/* Codes of 32-bit words [words, rows], stored down the columns and `stride` apart, to rows of
 * words, each xor flip. */
void words_turn(const uint32_t *src, int64_t stride, int64_t words, int64_t rows, uint32_t flip,
                uint8_t *dst, uint64_t pitch);
/* The same for a few rows that stay in the first cache, `pitch` words apart, which need no copy;
 * `left`: words down the columns that will be read next. */
void words_turn_near(const uint32_t *src, int64_t stride, int words, int rows, int64_t left,
                     uint32_t *dst, int pitch);
/* b bits at bit `at` of a little-endian stream of 32-bit words, `stride` words apart. */
static inline uint32_t stream_code(const uint32_t *word, int64_t stride, uint64_t at, int bits)
{
    uint64_t i = at / 32, shift = at % 32;
    uint64_t two = word[(int64_t)i * stride];
    if (shift + (uint64_t)bits > 32)
        two |= (uint64_t)word[(int64_t)(i + 1) * stride] << 32;
    return (uint32_t)(two >> shift) & ((1u << bits) - 1);
}
/* A row of `num` codes from a stream, of 1, 2, 3, 5, 6 or 7 bits; each loses `less`, which is 0 or
 * what makes it signed. */
void stream_row(const uint32_t *word, int bits, uint32_t less, uint8_t *dst, int64_t num);
/* `num` codes to nibbles, the even ones low: each of the bits of `mask` in a byte, or of three bits
 * in a word, from bit `shift` on. */
void nibbles_of_bytes(const uint8_t *byte, int shift, uint32_t mask, uint8_t *dst, int64_t num);
void nibbles_of_words(const uint32_t *word, int shift, uint8_t *dst, int64_t num);
void qtensor_put(QTensor *q, int64_t row, int64_t col, uint32_t code);
/* PART_INPUT_FACTORS, where the module has it, is a float for each column. */
bool input_factors_settle(Checkpoint *c, StoredModule *m, IoError *err);
/* Settles m->order and the size of a group from PART_ORDER; g: the size that is expected. */
bool order_settle(Checkpoint *c, StoredModule *m, int64_t groups, IoError *err);

extern const CheckpointReader reader_gguf, reader_hqq, reader_modelopt, reader_mxfp4;
extern const CheckpointReader reader_gptq, reader_awq, reader_compressed, reader_fp8,
    reader_bitsandbytes, reader_torchao;

#endif
