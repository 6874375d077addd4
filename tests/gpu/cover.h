/* What a run of the checker covered: kernels, and shapes that these were run with. */
#ifndef SINTER_TESTS_GPU_COVER_H
#define SINTER_TESTS_GPU_COVER_H

#include "tests/gpu/build.h"

/* How an operand of a product is quantised; those but plain, MX and NVFP4 come with zero points and
 * without. */
enum {
    COVER_PLAIN,
    COVER_TENSOR,
    COVER_ROW, /* a token's, a channel's */
    COVER_GROUP,
    COVER_BLOCK, /* of two dimensions */
    COVER_STATIC,
    COVER_MX,
    COVER_NVFP4,
    COVER_ASYM, /* behind TENSOR .. STATIC, moved by this */
    NUM_COVER_SCHEMES = COVER_ASYM + COVER_STATIC + 1
};

enum { NUM_COVER_WAYS = 5 };

/* Kernels: launches of a compiled model under a bucket. Shapes: the sizes that each of them was run
 * with, all different. */
typedef struct Count {
    uint32_t kernels, shapes;
} Count;

typedef struct Cover {
    /* products: by the formats of a and w; others: by that of what they write */
    Count formats[NUM_CUDA_FAMILIES][NUM_FORMATS][NUM_FORMATS];
    Count schemes[NUM_CUDA_FAMILIES][NUM_COVER_SCHEMES][NUM_COVER_SCHEMES]; /* of a and w */
    /* .. of launches whose rows are of groups: of products by these formats, of others at 0 */
    Count grouped[NUM_CUDA_FAMILIES][NUM_FORMATS][NUM_FORMATS];
    Count layouts[NUM_CUDA_FAMILIES][NUM_CUDA_PACKED]; /* of packed weights */
    Count steps[NUM_CUDA_FAMILIES][NUM_TILE_OPS];      /* of epilogues and row programs */
    Count ways[NUM_CUDA_FAMILIES][NUM_COVER_WAYS];     /* of products, as their sources tell */
} Cover;

/* One more size under a bucket. is_first: of this model and bucket. */
void cover_add(Cover *c, const Built *b, int bucket, bool is_first);
void cover_merge(Cover *c, const Cover *other);
/* Lines "# cover ..". least: shapes that every pair of formats of products should have; those with
 * fewer are named. */
void cover_print(const Cover *c, uint32_t least);

#endif
