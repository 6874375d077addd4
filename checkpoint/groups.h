/* Groups of a compressed-tensors configuration: see groups.c. */
#ifndef SINTER_CHECKPOINT_GROUPS_H
#define SINTER_CHECKPOINT_GROUPS_H

#include "checkpoint/checkpoint.h"

/* How one operand is quantised, as the configuration says it; absent numbers are 0. */
typedef struct QuantArgs {
    int64_t bits, group, block[2];
    bool symmetric, dynamic, local;
    const char *type, *strategy;
} QuantArgs;

/* compressed.c: multiplying by the reciprocal gives what dividing gives, for every scale that e4m3
 * has. */
bool reciprocal_is_exact(float divisor);

/* "config_groups/group_0" of the module; false after filling err when there is none. */
bool group_of(Checkpoint *c, const char *name, const char **ret, IoError *err);
/* part: "weights", "input_activations"; false when the group does not quantise it. */
bool args_read(Checkpoint *c, const char *group, const char *part, QuantArgs *ret);
/* Does the Python expression match from the name's start? */
bool name_matches(Checkpoint *c, const char *python, const char *name, bool *ret, IoError *err);

#endif
