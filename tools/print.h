/* Texts of the command that more than one subcommand prints. */
#ifndef SINTER_PRINT_H
#define SINTER_PRINT_H

#include "artifact/artifact.h"

/* Ports, buckets, tensors (or only the constants) and launches. */
void plan_print(Sb *sb, const Plan *plan, bool with_tensors);

#endif
