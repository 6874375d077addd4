/* What the generators of random models share: values, parameters and schemes of a text that grows,
 * and its files. generate.c: models of many layers; case.c: a layer for one kernel. */
#ifndef SINTER_TESTS_RANDOM_PARTS_H
#define SINTER_TESTS_RANDOM_PARTS_H

#include "io/io.h"
#include "quant/quant.h"
#include "tests/random/generate.h"

/* Pairs of schemes: weights are elements by grains, named formats, plain; activations likewise. */
enum { GRAIN_TENSOR, GRAIN_ROW, GRAIN_GROUP, GRAIN_BLOCK, NUM_GRAINS };
enum {
    NUM_ELEMENTS = 18, /* format and symmetry */
    NUM_NAMED = 3,
    NUM_PLAIN = 4,
    NUM_WEIGHTS = NUM_ELEMENTS * NUM_GRAINS + NUM_NAMED + 1, /* the last: plain */
    NUM_ACT_ELEMENTS = 9,                                    /* the others are for weights */
    NUM_ACTS = NUM_ACT_ELEMENTS * NUM_GRAINS + NUM_NAMED + NUM_PLAIN /* grain 3: static */
};

#define MAX_VALUES 96
#define MAX_PARAMS 128

typedef struct Shape { /* [groups, sym, mid, cols]; groups, sym and mid 0: none */
    char sym;          /* 'B', 'T'; 0: i32 */
    int mid, cols, groups;
} Shape;

typedef struct GenValue {
    char name[16];
    Shape shape;
    bool used, assigned;
    bool is_late; /* its seed had no such value before: nothing else's numbers come from it */
} GenValue;

typedef struct GenParam {
    char tensor[64];
    FormatId stored;
    int rank;
    int64_t dim[3];
    int codes;     /* bytes below this; 0: floats */
    bool is_table; /* of a codebook: values of any sign */
    bool has_wide; /* rows, whose values are beyond 2^10, which f16 may not hold */
    bool has_tiny; /* rows, whose scales are next to the least normal f32 */
} GenParam;

typedef struct Gen {
    Arena *arena;
    uint64_t state, late; /* of random numbers; late: for what seeds were given later */
    Sb schemes, rules, params, body, blocks, inputs;
    const char *fmt; /* of the model's values */
    GenValue value[MAX_VALUES];
    int num_values;
    GenParam param[MAX_PARAMS];
    int num_params, num_names, num_schemes;
    int num_inputs;
    Shape input[3];
    bool may_static, has_static, has_t;
    uint64_t pair;
    int pairs_used;
    int group; /* columns of every group; 0: drawn */
    int rows;  /* of every block; 0: drawn */
    bool is_small;
} Gen;

int draw(Gen *g, int below);
bool chance(Gen *g, int percent);
int draw_cols(Gen *g);
GenValue *value_add(Gen *g, Shape shape);
bool can_grow(const Gen *g);
/* A value with at least this many columns, one that nothing uses yet if there is one; -1: none. */
int value_pick(Gen *g, int min_cols);
/* The name of a value, for an expression that uses it. */
const char *use(Gen *g, int value);
/* Draws from another sequence: *state takes that of g's own numbers, and back. */
void swap_state(Gen *g, uint64_t *state);
const char *format_name(Gen *g);
void param_data(Gen *g, const char *tensor, int rank, int64_t rows, int64_t cols);
/* Parts of a stored weight: codes, a byte each; scales; tables, [each], [rows, each] or [rows,
 * cols, each]. */
void param_codes(Gen *g, const char *tensor, int64_t rows, int64_t cols, int codes);
void param_scales(Gen *g, const char *tensor, int64_t rows, int64_t cols);
void param_tables(Gen *g, const char *tensor, int rank, int64_t rows, int64_t cols, int64_t each);
/* A weight for each of so many groups of rows. */
void param_groups(Gen *g, const char *tensor, int64_t groups, int64_t rows, int64_t cols);
/* Declares a param of the model and gives it data; its name in a buffer of the arena. rows 0: a
 * vector. */
const char *param_add(Gen *g, int64_t rows, int64_t cols);
const char *param_add_groups(Gen *g, int64_t groups, int64_t rows, int64_t cols);

bool grain_has_groups(int index); /* of a weight */
/* The words of a weight's or an activation's scheme for K = cols; alone: the other side has no
 * groups, so that any size will do. WHOLE_SCALES: groups of i4 whose scales are whole multiples. */
enum { WHOLE_SCALES = NUM_WEIGHTS };
void put_weight(Gen *g, int index, int cols, bool alone);
void put_act(Gen *g, int index, int cols, bool alone);
/* The scheme of the next pair for a layer with at least this K; its name. */
const char *scheme_next(Gen *g, int cols);

void gen_init(Gen *g, Arena *arena, uint64_t seed);
void put_shape(Sb *sb, const char *fmt, Shape shape);
/* Random data of all params, and of the inputs x0, x1, ..; false after printing why. */
bool write_weights(Gen *g, const char *path);
bool write_calibration(Gen *g, const char *path);

#endif
