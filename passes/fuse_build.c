/* passes/fuse_build: makes a kernel op of a grown set of ops. Body: ARG ops in operand order, the
 * ops in program order, one YIELD of the values that others need. */
#include "passes/fuse.h"
#include <stdlib.h>

static int compare_order(const void *a, const void *b)
{
    uint32_t x = ((const uint32_t *)a)[0], y = ((const uint32_t *)b)[0];

    return x < y ? -1 : x > y;
}

static void body_sort(Fuse *f)
{
    struct Key {
        uint32_t order, at;
    } *key = ARENA_NEW_ARRAY(f->ctx->scratch, struct Key, (size_t)f->body.num);
    Op **sorted = ARENA_NEW_ARRAY(f->ctx->scratch, Op *, (size_t)f->body.num);

    for (int i = 0; i < f->body.num; i++)
        key[i] = (struct Key){fuse_of(f, f->body.elem[i])->order, (uint32_t)i};
    qsort(key, (size_t)f->body.num, sizeof *key, compare_order);
    for (int i = 0; i < f->body.num; i++)
        sorted[i] = f->body.elem[key[i].at];
    for (int i = 0; i < f->body.num; i++)
        f->body.elem[i] = sorted[i];
}

typedef struct Values {
    ARRAY(Value *) in, out;
} Values;

static void values_collect(Fuse *f, Values *v)
{
    for (int i = 0; i < f->body.num; i++) {
        Op *op = f->body.elem[i];
        for (int j = 0; j < op->num_in; j++) {
            Value *in = op_in(op, j);
            bool known = fuse_has(f, in->def);
            for (int k = 0; k < v->in.num && !known; k++)
                known = v->in.elem[k] == in;
            if (!known)
                ARRAY_PUSH(f->ctx->scratch, &v->in, in);
        }
        bool leaves = false;
        for_each_use(use, op_out(op))
            leaves |= !fuse_has(f, use->user);
        if (leaves)
            ARRAY_PUSH(f->ctx->scratch, &v->out, op_out(op));
    }
}

/* Ops between the body's first and last that do not need its values move before it, and with them
 * every operand that the kernel reads; what needs them is then behind the first. */
static void independents_move(Fuse *f)
{
    Op *first = f->body.elem[0], *last = f->body.elem[f->body.num - 1];
    uint32_t search = ++f->search;

    for (Op *op = first, *next; op != last; op = next) {
        bool needs = false;
        next = op->next;
        if (fuse_has(f, op))
            continue;
        for (int i = 0; i < op->num_in && !needs; i++) {
            const Op *def = op_in(op, i)->def;
            needs = fuse_has(f, def) || fuse_of(f, def)->seen == search;
        }
        if (needs)
            fuse_of(f, op)->seen = search;
        else
            op_move_before(op, first);
    }
}

/* The places that the range held are dealt out again in the new order. */
static void orders_deal(Fuse *f, Op *before, const uint32_t *order, int num)
{
    Op *op = before ? before->next : f->m->body.first;

    for (int i = 0; i < num && op; i++, op = op->next)
        fuse_of(f, op)->order = order[i];
}

static void body_fill(Fuse *f, Op *kernel, const Values *v)
{
    Module *m = f->m;
    Value **arg = ARENA_NEW_ARRAY(f->ctx->scratch, Value *, (size_t)v->in.num + 1);

    for (int i = 0; i < v->in.num; i++) {
        arg[i] = build_op(m, kernel->body, NULL, OP_ARG, NULL, v->in.elem[i]->type, 0, NULL,
                          kernel->span);
        arg[i]->name = v->in.elem[i]->name;
    }
    Op *yield =
        op_create(m, kernel->body, NULL, OP_YIELD, kernel->span, v->out.num, v->out.elem, 0);
    for (int i = 0; i < f->body.num; i++) {
        Op *op = f->body.elem[i];
        op_move_before(op, yield);
        for (int j = 0; j < op->num_in; j++)
            for (int k = 0; k < v->in.num; k++)
                if (op_in(op, j) == v->in.elem[k]) {
                    op_set_in(op, j, arg[k]);
                    break;
                }
    }
    for (int i = 0; i < v->out.num; i++)
        for_each_use(use, v->out.elem[i])
            if (use->user != yield && !fuse_has(f, use->user))
                op_set_in(use->user, (int)(use - use->user->in), &kernel->out[i]);
}

static void notes_add(Fuse *f, const Op *kernel)
{
    PassContext *ctx = f->ctx;
    Sb sb;

    sb_init(&sb, ctx->arena);
    sb_put(&sb, kernel->attr.family);
    sb_putc(&sb, ':');
    for (int i = 0; i < f->body.num; i++)
        sb_printf(&sb, " %s", op_info[f->body.elem[i]->kind].name);
    FusionNote note = {kernel, kernel->span, sb.text, false};
    ARRAY_PUSH(ctx->arena, &ctx->fusion_notes, note);
    for (int i = 0; i < f->stops.num; i++) {
        const Stop *stop = &f->stops.elem[i];
        FusionNote why = {kernel, stop->op->span, stop->text, stop->cut};
        ARRAY_PUSH(ctx->arena, &ctx->fusion_notes, why);
    }
}

static const char *body_layer(const Fuse *f)
{
    if (f->matmul)
        return f->matmul->attr.layer;
    for (int i = 0; i < f->body.num; i++)
        if (f->body.elem[i]->attr.layer)
            return f->body.elem[i]->attr.layer;
    return NULL;
}

Op *fuse_build(Fuse *f, const char *family)
{
    Values v = {0};
    int num = 0;

    body_sort(f);
    values_collect(f, &v);
    Op *first = f->body.elem[0], *last = f->body.elem[f->body.num - 1], *before = first->prev;
    for (Op *op = first; op != last->next; op = op->next)
        num++;
    uint32_t *order = ARENA_NEW_ARRAY(f->ctx->scratch, uint32_t, (size_t)num);
    num = 0;
    for (Op *op = first; op != last->next; op = op->next)
        order[num++] = fuse_of(f, op)->order;
    independents_move(f);
    const Op *at = f->matmul ? f->matmul : first;
    Op *kernel = kernel_create(f->m, &f->m->body, first, at->span, v.in.num, v.in.elem, v.out.num);
    fuse_register(f, kernel, 0);
    kernel->attr.family = family;
    kernel->attr.layer = body_layer(f);
    body_fill(f, kernel, &v);
    for (int i = 0; i < v.out.num; i++)
        kernel->out[i].name = v.out.elem[i]->name;
    if (!kernel_finish(f->m, kernel))
        BUG("fuse built an ill-typed kernel");
    orders_deal(f, before, order, num - f->body.num + 1);
    notes_add(f, kernel);
    return kernel;
}
