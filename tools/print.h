/* Texts of the command that are too long for the file of their subcommand. */
#ifndef SINTER_PRINT_H
#define SINTER_PRINT_H

#include "artifact/artifact.h"

/* Ports, buckets, weights and kernels. */
void plan_summary(Sb *sb, const Plan *plan);
/* Images of each architecture, and the kernel and grid of each launch and bucket. */
void device_summary(Sb *sb, const Plan *plan, const DeviceCode *code);

#endif
