/* Random models for differential tests. */
#ifndef SINTER_TESTS_MODELS_H
#define SINTER_TESTS_MODELS_H

#include "base/base.h"

const char *model_text(Arena *arena, uint64_t seed); /* printed IR; starts the numbers of draw */
uint32_t draw(uint32_t below);

#endif
