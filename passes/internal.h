/* passes/internal: what the passes share among themselves and no other room sees. */
#ifndef SINTER_PASSES_INTERNAL_H
#define SINTER_PASSES_INTERNAL_H

#include "io/io.h"
#include "passes/passes.h"

/* util.c --------------------------------------------------------------------------------------- */

/* One op with one result before `before`; a clash is our own mistake, because passes build from
 * values that are already typed. */
Value *rewrite_op(Module *m, Op *before, OpKind kind, const Attr *attr, const Type *declared,
                  int num_in, Value *const *in, Span span);
Value *rewrite_unary(Module *m, Op *before, OpKind kind, const Type *declared, Value *in,
                     Span span);
Value *rewrite_binary(Module *m, Op *before, OpKind kind, Value *a, Value *b, Span span);
/* A dense constant; data must live as long as the module. */
Value *rewrite_const(Module *m, Op *before, FormatId fmt, int rank, const int64_t *dim,
                     const void *data, Span span);
/* Moves the ops of a constant expression up so that they stand before `before`. The block must have
 * been numbered; the builders above number what they add as `before`. */
void constant_hoist(Value *value, Op *before);
/* Sets op->mark to its place in the block, from 1. */
void block_number(const Block *block);
/* Numbers the block and returns, by mark, which ops are constant expressions: value_is_constant for
 * all at once, because asking op by op walks each expression again. */
bool *block_constants(const Block *block, Arena *scratch);
int64_t type_cols(const Type *type);  /* last dimension, -1 when it is not constant */
const char *layer_name(const Op *op); /* never NULL */
bool scheme_is_per_tensor(const Scheme *scheme);

/* bind_weights.c: reports that there is no such tensor; is this one a weight of that type? */
void weight_missing(Module *m, const Op *op, const char *name);
bool weight_fits(Module *m, const PassContext *ctx, const Op *op, const Type *type,
                 const TensorView *view);

/* bind_stack.c: a weight whose matrices lie apart: a `*` in its name stands for 0, 1, .. Binds it
 * to plain tensors, or returns the module that holds its codes; NULL after reporting, too. */
struct StoredModule;
const struct StoredModule *stack_find(Module *m, const PassContext *ctx, const Op *op);

/* Such weights [E, N, K] as one [E, N + .., K]: group by group the rows of each. NULL: some are
 * not, or not alike. */
Value *stacks_join(Module *m, Op *at, int num, Value *const *in);

/* bind_stored.c: a weight that the checkpoint stores quantised. */
bool stored_joins(const Value *a, const Value *b);
const ConstReader *stored_join(Module *m, int num, Value *const *in);
const struct StoredModule *hand_module(Module *m, const char *codes, const ConstParts *parts,
                                       int64_t rows, int64_t cols, IoError *err);
void stored_bind(Module *m, const PassContext *ctx, Op *op, const struct StoredModule *stored);
/* Are the weight's codes the checkpoint's? Then nothing can be folded into it. */
bool weight_is_stored(const Op *matmul);

/* cse.c: one op for all equal pure ops of the block; true when something changed. */
bool block_share_equal(Module *m, Block *block, Arena *scratch);

/* dce.c */
bool block_drop_dead(Block *block);

/* util.c: a path of the text, relative to its folder; in the arena. */
const char *path_resolve(Arena *arena, const char *base_dir, const char *path);

/* calib_data.c: runs the module on all calibration files and gives these values to `observe`, with
 * or without others; false after reporting. */
bool calibration_run(Module *m, PassContext *ctx, int num, const Value *const *value,
                     EvalObserver observe, void *user);
void calibration_missing(Module *m, Span span, const char *layer, const char *what);

/* check_eval.c: the outputs of a module on reproducible random inputs. */
typedef enum EvalCheck {
    CHECK_EXACT, /* the same bits */
    CHECK_CLOSE, /* in f64, normalised mean square error at most 1e-9 (1e-4 behind a requantise) */
    CHECK_LOOSE, /* the same in f64, at most 1e-5, and for each cast on the longest path 2^-2m of
                  * its m bits of mantissa: intermediate roundings fall elsewhere */
    CHECK_NONE   /* the pass changes numbers by its purpose */
} EvalCheck;
typedef struct EvalRecord EvalRecord;
EvalRecord *eval_record(const Module *m, EvalCheck check, Arena *scratch, const char **ret_why);
void eval_record_free(EvalRecord *r);
/* NULL, or a sentence on the first output that differs. */
const char *eval_record_compare(const EvalRecord *before, const EvalRecord *after, EvalCheck check,
                                Arena *scratch);

#endif
