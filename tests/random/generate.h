/* Random valid models: a text, its weights and its calibration data, all from one number. */
#ifndef SINTER_TESTS_RANDOM_GENERATE_H
#define SINTER_TESTS_RANDOM_GENERATE_H

#include "base/base.h"

/* The pairs of a weight's and an activation's scheme that texts draw from: pair i and its words.
 * Consecutive numbers (modulo the count) visit all of them. */
int generate_num_pairs(void);

typedef struct Generated {
    const char *text_path;     /* dir/model.sinter */
    int first_pair, num_pairs; /* the pairs that this text uses: first, first + 1, .. */
} Generated;

/* Writes dir/model.sinter, dir/w.safetensors and, where ranges are static, dir/calib.safetensors.
 * False after printing why files cannot be written. */
bool generate(Arena *arena, uint64_t seed, const char *dir, Generated *ret);
/* Likewise, with one pair of schemes, a step or two beside and one bucket: a few kernels. */
bool generate_small(Arena *arena, uint64_t seed, const char *dir, Generated *ret);

/* splitmix64: the numbers of both the generator and the test. */
uint64_t random_next(uint64_t *state);
double random_normal(uint64_t *state);

#endif
