/* The table of operations, from ops.def. */
#include "ir/ir.h"
#include <string.h>

const OpInfo op_info[NUM_OPS] = {
#define OP(ID, name, min_in, max_in, flags, type_rule, eval, attrs) \
    [OP_##ID] = {name, min_in, max_in, flags, attrs},
#include "ir/ops.def"
#undef OP
};

OpKind op_find(const char *name)
{
    for (int kind = 0; kind < NUM_OPS; kind++) {
        if (strcmp(op_info[kind].name, name) == 0)
            return (OpKind)kind;
    }
    return NUM_OPS;
}
