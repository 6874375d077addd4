/* fuse: maximal legal chains become kernels.
 *
 * Needs: scales placed (factor-scales).
 * Leaves: every op that computes is in the body of a kernel; constants, constant expressions and
 * views stay outside. family gemm: one matmul, what fills its first operand, its epilogue; tile: a
 * chain over whole rows; move: one transpose, slice or concat; route: one step of sending rows to
 * groups. Why each chain stopped is in ctx->fusion_notes. At opt level 0 each op is a kernel of its
 * own, with the same bits.
 *
 * Before                                  After
 *   %2 = matmul %0, %w                        %4 = kernel %0, %w, %b {family = gemm} {
 *   %3 = add %2, %b                             ..arguments..
 *   %4 = relu %3                                matmul, add, relu
 *                                               yield
 *                                             }
 */
#include "passes/fuse.h"

void fuse_register(Fuse *f, Op *op, uint32_t order)
{
    if (f->num_of == f->cap_of) {
        uint32_t cap = f->cap_of ? f->cap_of * 2 : 1024;
        f->of = arena_grow(f->ctx->scratch, f->of, f->cap_of * sizeof *f->of,
                           (size_t)cap * sizeof *f->of);
        f->cap_of = cap;
    }
    bool constant = op_info[op->kind].flags & OPF_PURE && !op->body;
    for (int i = 0; i < op->num_in && constant; i++)
        constant = fuse_of(f, op_in(op, i)->def)->constant;
    op->mark = f->num_of;
    f->of[f->num_of++] = (FuseOp){.order = order, .constant = constant};
}

/* The parts of a quantised value cost nothing to read, so each user gets its own and they never tie
 * kernels together. */
static void accessors_split(Module *m, Arena *scratch)
{
    const bool *constant = block_constants(&m->body, scratch);

    for_each_op(op, &m->body) {
        if ((op->kind != OP_SCALES && op->kind != OP_ZEROS) || constant[op->mark])
            continue;
        Value *in = op_in(op, 0);
        bool first = true;
        for_each_use(use, op_out(op)) {
            if (first) {
                first = false;
                continue;
            }
            Value *copy = rewrite_op(m, op, op->kind, &op->attr, NULL, 1, &in, op->span);
            op_set_in(use->user, (int)(use - use->user->in), copy);
        }
    }
}

/* Opt level 0: the op alone, with the accessors it reads. */
static void take_alone(Fuse *f, Op *op)
{
    fuse_start(f, op);
    for (int i = 0; i < op->num_in; i++) {
        Op *def = op_in(op, i)->def;
        if (op_is_accessor(f, def) && !fuse_has(f, def)) {
            ARRAY_PUSH(f->ctx->scratch, &f->body, def);
            fuse_of(f, def)->kernel = f->kernel;
        }
    }
}

static const char *family_of(const Op *op)
{
    unsigned flags = op_info[op->kind].flags;

    if (op->kind == OP_MATMUL)
        return "gemm";
    return flags & OPF_MOVE ? "move" : flags & OPF_ROUTE ? "route" : "tile";
}

static void kernel_make(Fuse *f, Op *seed)
{
    const char *family = family_of(seed);

    if (f->ctx->options.opt_level == 0) {
        take_alone(f, seed);
    } else {
        fuse_start(f, seed);
        if (f->matmul)
            fuse_grow_prologue(f);
        if (op_info[seed->kind].flags & OPF_ROUTE)
            fuse_grow_route(f);
        else if (!(op_info[seed->kind].flags & OPF_MOVE))
            fuse_grow_forward(f);
    }
    fuse_build(f, family);
}

/* Matmuls first: they take what they can, the rest makes tile kernels and moves. */
static void kernels_make(Fuse *f, bool matmuls)
{
    ARRAY(Op *) seeds = {0};

    for_each_op(op, &f->m->body)
        if (op_is_computed(f, op) && (op->kind == OP_MATMUL) == matmuls)
            ARRAY_PUSH(f->ctx->scratch, &seeds, op);
    for (int i = 0; i < seeds.num; i++)
        if (seeds.elem[i]->block == &f->m->body) /* no kernel has taken it */
            kernel_make(f, seeds.elem[i]);
}

bool pass_fuse(Module *m, PassContext *ctx)
{
    Fuse f = {.m = m, .ctx = ctx};
    uint32_t order = 0;

    block_drop_dead(&m->body); /* a kernel must have a result */
    accessors_split(m, ctx->scratch);
    for_each_op(op, &m->body)
        fuse_register(&f, op, ++order);
    kernels_make(&f, true);
    kernels_make(&f, false);
    return f.kernel > 0;
}
