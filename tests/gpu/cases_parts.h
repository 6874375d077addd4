/* What the texts of single kernels share: formats, places in the matrix, and the parts of a
 * product. cases.c: all kinds but products of groups of rows, which are cases_groups.c's. */
#ifndef SINTER_TESTS_GPU_CASES_PARTS_H
#define SINTER_TESTS_GPU_CASES_PARTS_H

#include "tests/gpu/cases.h"
#include "tests/random/parts.h"

/* Formats as indices of parts.h: elements without their grain, named formats, plain. */
typedef struct CaseFormat {
    const char *name;
    int element, num; /* elements of this format: symmetric, asymmetric */
    int named, plain; /* -1: not one */
} CaseFormat;
enum {
    FIRST_NAMED = 9,
    FIRST_PLAIN = 12,
    FIRST_THIN = 15,
    FIRST_BOOK = 19,
    WHOLE = 23,
    NUM_CASE_FORMATS,
    NUM_UNARY = 6
};
extern const CaseFormat case_formats[NUM_CASE_FORMATS];
extern const char *const case_unary[NUM_UNARY], *const plain_name[3];

/* Products of few rows and of many, of K and groups that fill steps of 32; those that wgmma takes;
 * others; the rest. */
typedef enum Kind {
    KIND_FEW,
    KIND_MANY,
    KIND_WIDE,
    KIND_ODD,
    KIND_ROWS,
    KIND_MOVE,
    KIND_PAIR,   /* of two activations */
    KIND_GROUPS, /* of rows, with a weight each */
    NUM_KINDS
} Kind;

typedef struct Place { /* of a case in the matrix */
    Kind kind;
    int w, a;
    uint64_t time, round;
} Place;

typedef struct Product {
    Gen *g;
    Place place;
    int k, n, w, a; /* w, a: indices of parts.h */
    int sibling;    /* columns of y1; 0: there is none */
    int group;      /* of a weight that is stored as codes */
    int groups;     /* of rows, each of which has a weight; 0: all rows have one */
    bool
        counted; /* .. and as many rows, of which x1 says how many count; else a route sends them */
} Product;

/* wgmma multiplies the pair as it is stored; .. the weight decoded in registers. */
bool is_even(int w, int a);
bool is_mixed(int w, int a);
/* The index of parts.h for a format; pick: which symmetry and grain. */
int weight_index(int format, uint64_t pick);
int act_index(int format, uint64_t pick);
int product_act(const Place *at);
bool act_has_groups(int index);
/* book: the weight's codebook has groups, or may. side: where the words of the activation are drawn
 * from; NULL: as the others. */
const char *put_scheme(Gen *g, int w, int a, int cols, bool book, uint64_t *side);
/* A weight of `rows` rows of K, or so many of each group's; plain ones have their format's type,
 * quantised ones any. */
const char *weight(Product *p, int rows, int cols);
/* What happens to x0 before the product: the name of what it gives. */
const char *put_before(Product *p);
int draw_n(Gen *g, Kind kind);
/* The sum as input of a function that has limits (cases.c). */
const char *inside_limits(Gen *g, const char *function, const char *sum, bool wide);
/* The `first`-th plain type or a later one. */
const char *result_type(Gen *g, int first);
/* How streams have their rows: from memory, copied to shared memory, or over clusters. */
int rows_way(const Place *at);

/* cases_groups.c: visits of a pair, texts, and the kernels that products of groups should take. */
int groups_times(int w, int a);
const char *groups_make(Gen *g, const Place *at, const char **ret_buckets);
void groups_choose(const Place *at, Case *ret);

#endif
