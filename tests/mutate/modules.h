/* Mutants of modules: a few changes of a printed one - operands, kinds, shapes, formats, schemes,
 * attributes, ops copied or dropped - after which every type is inferred again, so that most of
 * them are valid. A mutant must mean the same with all passes and with as few as there can be. */
#ifndef TEST_MUTATE_MODULES_H
#define TEST_MUTATE_MODULES_H

#include "ir/ir.h"
#include "tests/mutate/plans.h"

/* Changes a parsed module, which has no kernels yet; ops that no longer fit are dropped. */
void module_mutate(Module *m, Choices *c);

typedef enum ModuleVerdict {
    MODULE_REFUSED,  /* by the reader, or by the passes at both levels */
    MODULE_LARGE,    /* too large to be evaluated */
    MODULE_PLANNED,  /* as no plan: evaluated, but codegen refuses it */
    MODULE_COMPILED, /* evaluated, compiled, and run where that was asked */
    NUM_MODULE_VERDICTS
} ModuleVerdict;
/* Evaluates, at -O0 and -O1, and compares to the bit; with folder (not NULL) the files written
 * there are run, and compared too. NULL, or what is wrong. */
const char *module_check(Arena *arena, const char *text, size_t size, const char *folder,
                         ModuleVerdict *ret);

#endif
