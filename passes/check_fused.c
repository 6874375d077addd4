/* check-fused: layers whose rule says `fused` are one kernel, or an error says what keeps them
 * apart.
 *
 * Needs: kernels (fuse) and its notes.
 * Leaves: the module as it is. A layer is one kernel when its matmul's kernel also holds the
 * quantisation of its activation (or finds it done by the matmul that made the activation), and no
 * elementwise step that follows it had to stay outside.
 *
 * Before                                        After
 *   quant { fc : w8a8 fused }                     the same, or at the rule's place:
 *   h = rmsnorm(linear(x, w) @ w8a8, g)           error: fc is not one kernel
 *                                                 note: rmsnorm needs whole rows of 4096 columns
 */
#include "passes/internal.h"

/* The kernel does nothing but prepare the operand: the cost that `fused` is to avoid. */
static const Op *separate_quantize(const Op *kernel, const Op *matmul)
{
    const Op *arg = op_in(matmul, 0)->def;
    int index = 0;

    if (arg->kind != OP_ARG)
        return NULL;
    for (const Op *op = kernel->body->first; op != arg; op = op->next)
        index++;
    const Op *producer = op_in(kernel, index)->def;
    if (producer->kind != OP_KERNEL)
        return NULL;
    const Op *made = producer->body->last->in[op_in(kernel, index)->index].value->def;
    bool gemm = false;
    for (const Op *op = producer->body->first; op; op = op->next)
        gemm |= op->kind == OP_MATMUL;
    return made->kind == OP_QUANTIZE && !gemm ? producer : NULL;
}

/* Did an elementwise step of the layer stay outside? What needs whole rows begins the next layer.
 */
static bool is_cut(const PassContext *ctx, const Op *kernel)
{
    for (int i = 0; i < ctx->fusion_notes.num; i++)
        if (ctx->fusion_notes.elem[i].kernel == kernel && ctx->fusion_notes.elem[i].cut)
            return true;
    return false;
}

static void notes_attach(Module *m, const PassContext *ctx, const Op *kernel)
{
    for (int i = 0; i < ctx->fusion_notes.num; i++) {
        const FusionNote *note = &ctx->fusion_notes.elem[i];
        bool stop = note->kernel == kernel && i > 0 && note[-1].kernel == kernel;
        if (stop)
            diag_note(m->diag, note->span, "%s", note->text);
    }
}

static void layer_check(Module *m, const PassContext *ctx, const Op *kernel, const Op *matmul)
{
    const Op *before = separate_quantize(kernel, matmul);

    if (!before && !is_cut(ctx, kernel))
        return;
    diag_error(m->diag, matmul->span, E_NOT_FUSED, "%s is not one kernel, but its rule says fused",
               layer_name(matmul));
    if (before)
        diag_note(m->diag, before->span, "its activation is quantised by a kernel of its own");
    notes_attach(m, ctx, kernel);
}

bool pass_check_fused(Module *m, PassContext *ctx)
{
    for_each_op(kernel, &m->body) {
        if (kernel->kind != OP_KERNEL)
            continue;
        for_each_op(op, kernel->body)
            if (op->kind == OP_MATMUL && op->attr.quant && op->attr.quant->fused)
                layer_check(m, ctx, kernel, op);
    }
    return false;
}
