/* Groups of a compressed-tensors configuration: see groups.c. */
#ifndef SINTER_CHECKPOINT_GROUPS_H
#define SINTER_CHECKPOINT_GROUPS_H

#include "checkpoint/checkpoint.h"

/* How one operand is quantised, as the configuration says it; absent numbers are 0. */
typedef struct QuantArgs {
    int64_t bits, group, block[2];
    bool symmetric, dynamic;
    const char *type, *strategy;
    const char *scale_dtype; /* "float16", "uint8"; NULL: nothing is said */
    const char *partly; /* what `dynamic` says in words, such as "local"; NULL: true or false */
} QuantArgs;

/* The format of scales that PyTorch's word means, FMT_NONE: none of ours. "uint8" holds e8m0. */
FormatId scale_dtype_find(const char *word);
/* PyTorch's word for it; NULL: it has none. */
const char *scale_dtype_word(FormatId fmt);

/* compressed.c: multiplying by the reciprocal gives what dividing gives, for every scale that e4m3
 * has. */
bool reciprocal_is_exact(float divisor);

/* "config_groups/group_0" of the module; false after filling err when there is none. */
bool group_of(Checkpoint *c, const char *name, const char **ret, IoError *err);
/* part: "weights", "input_activations"; false when the group does not quantise it. */
bool args_read(Checkpoint *c, const char *group, const char *part, QuantArgs *ret);
/* compressed_format.c: is all that the configuration says of the whole checkpoint read? */
bool compressed_config(Checkpoint *c, IoError *err);
/* .. m->layout becomes the format that the group or the checkpoint says; the tensors must lie so.
 */
bool compressed_format(Checkpoint *c, StoredModule *m, const char *group, IoError *err);
/* compressed_act.c: m->act as the group says; what is not read becomes m->refused. */
bool compressed_act(Checkpoint *c, StoredModule *m, const char *group, IoError *err);
/* Does the Python expression match from the name's start? */
bool name_matches(Checkpoint *c, const char *python, const char *name, bool *ret, IoError *err);

#endif
