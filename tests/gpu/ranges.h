/* The ranges that a product's kernel finds of what it stores, from the stored values. */
#ifndef SINTER_TESTS_GPU_RANGES_H
#define SINTER_TESTS_GPU_RANGES_H

#include "artifact/artifact.h"

/* A product (a launch of the plan) that finds ranges: tensors. False: it does not. */
typedef struct RangesOf {
    int words;  /* where they lie: a view */
    int stored; /* plain, by the product */
    int later;  /* quantised from that by another launch */
} RangesOf;
bool ranges_of(const Plan *plan, int product, RangesOf *ret);

/* What the words are to be: four of one range (largest magnitude, least and largest key, largest
 * finite magnitude), or the last alone. x: `stored`. Returns how many there are. */
int ranges_expect(const Plan *plan, const PlanLayout *layout, const RangesOf *of, const uint8_t *x,
                  int32_t ret[4]);
/* Both are the same range; NaNs are alike. */
bool ranges_equal(const int32_t *a, const int32_t *b, int num);

#endif
