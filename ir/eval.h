/* What the files of the evaluator share: eval.c (runs), eval_tensor.c (tensors), and one file a
 * family of operations, each with the eval_op_<name> of ops.def. An eval_op fills the slots of the
 * op's results, or says why not and returns false. */
#ifndef SINTER_IR_EVAL_H
#define SINTER_IR_EVAL_H

#include "ir/internal.h"

typedef struct Slot { /* beside each value */
    Tensor tensor;
    int uses_left;
} Slot;

struct Eval {
    const Module *m;
    EvalMode mode;
    Arena *arena;
    const int64_t *size; /* of the module's symbols */
    ValueMap *slots;
    Map inputs, outputs; /* name to Tensor */
    EvalObserver observe;
    void *user;
    char why[512];
};

bool eval_fail(Eval *e, const Op *op, const char *fmt, ...) PRINTF_LIKE(3, 4); /* ends */
bool eval_no_memory(Eval *e, const Op *op);                                    /* false */
Slot *eval_slot(Eval *e, const Value *value);
static inline const Tensor *eval_in(Eval *e, const Op *op, int slot)
{
    return &eval_slot(e, op->in[slot].value)->tensor;
}
/* Gives result `index` its shape and memory; NULL after eval_fail. */
Tensor *eval_result(Eval *e, const Op *op, int index);
bool eval_block(Eval *e, const Block *block);

/* eval_route.c */
typedef struct GroupRows {
    int64_t first, num;
} GroupRows;
/* Groups follow each other and hold all rows; false after eval_fail. */
bool eval_ends_fit(Eval *e, const Op *op, const Tensor *ends, int64_t rows);
/* Of so many rows those of a group, by its end or, where the op counts, by its count. */
GroupRows eval_group(const Op *op, const Tensor *ends, int64_t group, int64_t rows);

/* eval_tensor.c */
bool tensor_shape(Eval *e, const Op *op, const Type *type, int64_t *ret);
bool tensor_make(Eval *e, const Op *op, const Type *type, Tensor *ret);
bool tensor_copy(Eval *e, const Op *op, const Tensor *from, Tensor *ret);
/* The operand's data for a result of other shape or place: taken over when this is its last use. */
bool tensor_take(Eval *e, const Op *op, int slot, Tensor *ret);
int64_t tensor_cols(const Tensor *t);
/* The elements as f32 or f64: the tensor's own, or converted into *tmp, which the caller frees.
 * NULL when memory is exhausted. */
const float *tensor_f32(const Tensor *t, float **tmp);
const double *tensor_f64(const Tensor *t, double **tmp);
/* num elements between plain formats; false when a finite one became infinite. */
bool convert_plain(FormatId from, const void *src, FormatId to, void *dst, uint64_t num);
/* x rounded once to a plain format of at most 32 bits. */
double round_f64(FormatId fmt, double x);

#define OP(ID, name, min_in, max_in, flags, type_rule, eval, attrs) \
    bool eval_op_##eval(Eval *e, const Op *op);
#include "ir/ops.def"
#undef OP

#endif
