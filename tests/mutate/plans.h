/* Mutants of launch plans: one to four changes of a plan that the compiler or a hand made, in
 * places that the decoder reads: numbers, indices, formats, steps swapped, copied or dropped. Most
 * are refused; what is accepted must run inside of its memory. */
#ifndef TEST_MUTATE_PLANS_H
#define TEST_MUTATE_PLANS_H

#include "artifact/artifact.h"

typedef struct Choices { /* numbers from a seed, or from bytes until they end */
    uint64_t state;
    const uint8_t *byte;
    size_t num;
} Choices;
uint64_t choose(Choices *c, uint64_t below); /* below > 0 */

/* A plan whose arrays may be changed and have room for more; sizes of buckets are shared. */
Plan *plan_thaw(const Plan *plan, Arena *arena);
void plan_mutate(Plan *thawed, Choices *c);

typedef enum Verdict { MUTANT_REFUSED, MUTANT_TOO_LARGE, MUTANT_RAN, NUM_VERDICTS } Verdict;
/* Encodes, decodes, checks and runs a mutant on every instruction set, on whole buckets and fewer
 * rows, with memory that ends where a page does and canaries before it. Ends the process if a
 * canary changed. */
Verdict mutant_run(const Plan *mutant, const uint8_t *weights, uint64_t weights_bytes, Choices *c);
/* Plans that agree have ports of the same bytes in every bucket: false where they do not. */
bool agreement_holds(const Plan *a, const Plan *b);

#endif
