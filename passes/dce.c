/* dce: drops what no output needs.
 *
 * Needs: nothing.
 * Leaves: every op but inputs, outputs and yields has a use; inputs stay, because they are the
 * model's interface.
 *
 * Before                              After
 *   %0 = input "x" : f32[B, 4]          %0 = input "x" : f32[B, 4]
 *   %1 = relu %0 : f32[B, 4]            %1 = relu %0 : f32[B, 4]
 *   %2 = tanh %0 : f32[B, 4]            output "y" %1
 *   output "y" %1
 */
#include "passes/internal.h"

static bool op_is_dead(const Op *op)
{
    if (!(op_info[op->kind].flags & OPF_PURE) || op->kind == OP_ARG)
        return false;
    for (int i = 0; i < op->num_out; i++)
        if (op->out[i].uses)
            return false;
    return true;
}

bool block_drop_dead(Block *block)
{
    bool changed = false;

    /* operands stand before their users, so one walk from the end reaches everything */
    for (Op *op = block->last, *prev; op; op = prev) {
        prev = op->prev;
        if (op_is_dead(op)) {
            op_remove(op);
            changed = true;
        } else if (op->body) {
            changed |= block_drop_dead(op->body);
        }
    }
    return changed;
}

bool pass_dce(Module *m, PassContext *ctx)
{
    (void)ctx;
    return block_drop_dead(&m->body);
}
