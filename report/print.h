/* What subcommands print that is too long for their files. */
#ifndef SINTER_PRINT_H
#define SINTER_PRINT_H

#include "artifact/artifact.h"

/* Ports, buckets, weights and kernels. */
void plan_summary(Sb *sb, const Plan *plan);
/* The type of a tensor: "i8 sym per channel[256, 64]". */
void plan_tensor_text(Sb *sb, const Plan *plan, int index);
/* Images of each architecture, and the kernel and grid of each launch and bucket. */
void device_summary(Sb *sb, const Plan *plan, const DeviceCode *code);
/* Names, types and shapes of a file's tensors, with statistics when they are asked for. */
void tensors_summary(Sb *sb, const TensorFile *file, bool has_stats, bool as_json);

/* What the program argv[0] (found on the path) makes of size bytes at its standard input, appended
 * to ret. False when it cannot be started, fails or says nothing. */
bool filter_through(char *const argv[], const void *data, size_t size, Sb *ret);

#endif
