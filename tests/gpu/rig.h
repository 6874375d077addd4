/* The launches of a compiled model, one after the other on the CPU and on the GPU from the same
 * memory.
 *
 * Every tensor lies apart from the others, between guard bytes, on both sides. Before the launches
 * of one kernel of the IR the GPU gets all of the CPU's memory, but for what only it has; behind
 * them, the two are compared:
 * - what no launch writes, guard bytes too, must not have changed by a byte;
 * - what row kernels, moves and products of integers write must have the same bits;
 * - what the epilogues of float products write must lie within the bounds of docs/numerics.md;
 * codes may differ by a step where a value lies next to a tie. So errors do not add up, and a wrong
 * launch is named. */
#ifndef SINTER_TESTS_GPU_RIG_H
#define SINTER_TESTS_GPU_RIG_H

#include "tests/gpu/build.h"

typedef struct RigOptions {
    bool dry;   /* without a GPU: the CPU stands for it, so that the rig itself can be tested */
    bool apart; /* one allocation a tensor, of its very size, for compute-sanitizer */
    bool bench; /* print the time of each group of launches */
} RigOptions;

typedef struct Rig Rig;

/* There is a GPU and it starts; false after printing why not. */
bool rig_probe(void);
/* NULL after printing why. b outlives the rig. */
Rig *rig_open(const Built *b, const RigOptions *options);
void rig_close(Rig *r); /* accepts NULL */

/* False: the GPU's kernels do not take these sizes, which only a bucket's may then be. */
bool rig_takes(Rig *r, int bucket, const int64_t *size);
/* Launch by launch; in: by port; odd: they hold numbers so large that sums may overflow. False
 * after printing what differs, each line after "# ". */
bool rig_check(Rig *r, int bucket, const int64_t *size, void *const *in, bool odd);
/* All of the GPU's launches in turn: out gets the outputs, by port. False after printing why. */
bool rig_chain(Rig *r, int bucket, const int64_t *size, void *const *in, void *const *out);
/* The largest share of a bound that a float product of the latest rig_check came to. */
double rig_worst(const Rig *r);
/* A launch has failed in a way that leaves this process no GPU. */
bool rig_lost(void);
/* All products are of integers: the CPU and the GPU give the same bits. */
bool rig_is_exact(const Rig *r);
/* A test of the tests: the next rig_check changes one byte that the GPU wrote, or that it should
 * not have written. Only when dry. Seed 0: no more; true: since the last call it did so. */
bool rig_spoil(Rig *r, uint64_t seed);

#endif
