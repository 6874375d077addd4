/* infer-types: applies every op's type rule again and compares with the type its result carries.
 *
 * Needs: a module as lowering or the parser made it.
 * Leaves: the same module; every later pass may trust the types.
 *
 * Before                              After
 *   %0 = input "x" : f32[B, 4]          the same, or at the place of the relu:
 *   %1 = relu %0 : f32[B, 5]            error: relu gives f32[B, 4], but f32[B, 5] is declared
 *   output "y" %1
 */
#include "passes/internal.h"

static void op_check(Module *m, const Op *op)
{
    const Type *declared = op->num_out ? op->out[0].type : NULL;
    int errors = m->diag->num_errors;
    const Type *type = op_infer_type(m, op, declared);

    if (m->diag->num_errors > errors || op->num_out != 1 || op->kind == OP_KERNEL)
        return;
    if (type && declared && type != declared)
        diag_error(m->diag, op->span, E_SHAPE, "%s gives %s, but %s is declared",
                   op_info[op->kind].name, type_text(m->arena, type),
                   type_text(m->arena, declared));
}

bool pass_infer_types(Module *m, PassContext *ctx)
{
    (void)ctx;
    for_each_op(op, &m->body)
        op_check(m, op);
    return false;
}
