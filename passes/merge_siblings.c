/* merge-siblings: linears that share an input become one matmul over their weights, stacked.
 *
 * Needs: explicit quantisation (insert-quant, quantise-weights), scales not yet placed.
 * Leaves: one matmul and one slice for each sibling, with the same bits as before: rows of a weight
 * are quantised alike whether they are stacked or not, unless a scale or a quantiser spans rows of
 * both; then the siblings stay apart.
 *
 * Before                                        After
 *   %g = matmul %n, %wg {layer = "gate"}          %w = concat %wg, %wu {axis = 0}
 *   %u = matmul %n, %wu {layer = "up"}            %y = matmul %n, %w {layer = "(gate|up)"}
 *                                                 %g = slice %y {stop = 64}
 *                                                 %u = slice %y {start = 64, stop = 128}
 */
#include "passes/internal.h"
#include <stdlib.h>
#include <string.h>

enum { MERGE_MOST = 16 }; /* more segments than a kernel's epilogue can hold gain nothing */

typedef struct Sibling {
    Op *matmul;
    Value *weight; /* plain [N, K], or [E, N, K] of groups of rows, or codes: a checkpoint's, or
                      without their outer scale */
    const Op *quantize; /* NULL: the weight stays as it is */
    int axis;           /* of the weight's rows */
    int64_t rows;
} Sibling;

typedef ARRAY(Sibling) Siblings;

static bool sibling_of(Op *matmul, Sibling *ret)
{
    if (matmul->kind != OP_MATMUL || matmul->attr.place != PLACE_NONE)
        return false;
    Value *b = op_in(matmul, 1);
    if (!value_is_constant(b))
        return false;
    *ret = (Sibling){.matmul = matmul, .weight = b, .axis = b->type->rank - 2};
    if (b->def->kind == OP_DEQUANTIZE) {
        ret->quantize = op_in(b->def, 0)->def;
        if (ret->quantize->kind == OP_CONST || ret->quantize->kind == OP_INNER) {
            ret->weight = op_in(b->def, 0);
            ret->quantize = NULL;
            ret->rows = ret->weight->type->dim[ret->axis].add;
            return true;
        }
        if (ret->quantize->kind != OP_QUANTIZE || ret->quantize->num_in != 1)
            return false;
        ret->weight = op_in(ret->quantize, 0);
    }
    if (!dim_is_const(ret->weight->type->dim[ret->axis]))
        return false;
    ret->rows = ret->weight->type->dim[ret->axis].add;
    return true;
}

/* Codes stack where no scale spans rows of both. */
static bool codes_stack(const Sibling *a, const Sibling *b)
{
    const Scheme *scheme = a->weight->type->scheme;

    if (!scheme)
        return true;
    if (a->axis) /* rows of one group go between those of others */
        return stored_joins(a->weight, b->weight);
    return b->weight->type->scheme == scheme && !scheme->outer && scheme->table != TABLE_TENSOR &&
           scheme->block[0] && a->rows % scheme->block[0] == 0;
}

/* Does quantising the stack give each part the codes it has alone? */
static bool rows_independent(const Sibling *a, const Sibling *b)
{
    const Scheme *scheme = op_out((Op *)a->quantize)->type->scheme;
    const Attr *attr = &a->quantize->attr;

    if (scheme->outer)
        return false; /* one outer scale would have to serve both */
    if (attr->by.name) {
        const WeightQuantiser *quantiser = weight_quantiser_find(attr->by.name);
        if (!quantiser || !quantiser->row_by_row)
            return false;
    }
    if (scheme->block[0] == 0) /* all rows share: works as blocks of one sibling each */
        return a->rows == b->rows && a->axis == 0;
    return a->rows % scheme->block[0] == 0;
}

static bool by_equal(const Attr *a, const Attr *b)
{
    if (!a->by.name || !b->by.name)
        return a->by.name == b->by.name;
    return !strcmp(a->by.name, b->by.name) && a->by.args.act_order == b->by.args.act_order &&
           a->by.args.damp == b->by.args.damp;
}

/* Where the groups of rows end; NULL: there is one weight for all. */
static const Value *ends_of(const Sibling *s)
{
    return s->matmul->num_in == 3 ? op_in(s->matmul, 2) : NULL;
}

static bool siblings_match(const Sibling *a, const Sibling *b)
{
    if (op_in(a->matmul, 0) != op_in(b->matmul, 0) || a->matmul->block != b->matmul->block ||
        ends_of(a) != ends_of(b) || a->weight->type->fmt != b->weight->type->fmt ||
        !a->quantize != !b->quantize)
        return false;
    if (!a->quantize)
        return codes_stack(a, b);
    return op_out((Op *)a->quantize)->type->scheme == op_out((Op *)b->quantize)->type->scheme &&
           a->quantize->attr.mode == b->quantize->attr.mode &&
           by_equal(&a->quantize->attr, &b->quantize->attr) && rows_independent(a, b);
}

/* "ffn[3].gate", "ffn[3].up" -> "ffn[3].(gate|up)" */
static const char *layers_join(Module *m, const Siblings *s)
{
    const char **name = ARENA_NEW_ARRAY(m->arena, const char *, (size_t)s->num);
    for (int i = 0; i < s->num; i++)
        name[i] = layer_name(s->elem[i].matmul);
    const char *dot = strrchr(name[0], '.');
    size_t prefix = dot ? (size_t)(dot - name[0]) + 1 : 0;
    Sb sb;

    for (int i = 1; i < s->num; i++)
        if (strncmp(name[0], name[i], prefix))
            prefix = 0;
    sb_init(&sb, m->arena);
    sb_putn(&sb, name[0], prefix);
    for (int i = 0; i < s->num; i++)
        sb_printf(&sb, "%c%s", i ? '|' : '(', name[i] + prefix);
    sb_putc(&sb, ')');
    module_join_layers(m, sb.text, &(LayerNames){s->num, name});
    return sb.text;
}

static Value *weights_stack(Module *m, PassContext *ctx, Op *at, const Siblings *s)
{
    Value **in = ARENA_NEW_ARRAY(ctx->scratch, Value *, (size_t)s->num);
    const Sibling *first = &s->elem[0];
    Attr axis = {.axis = first->axis};

    for (int i = 0; i < s->num; i++) {
        in[i] = s->elem[i].weight;
        constant_hoist(in[i], at);
    }
    Value *stack = stacks_join(m, at, s->num, in);
    if (!stack)
        stack = rewrite_op(m, at, OP_CONCAT, &axis, NULL, s->num, in, at->span);
    if (!first->quantize && stack->type->scheme)
        return rewrite_unary(m, at, OP_DEQUANTIZE, NULL, stack, at->span);
    if (!first->quantize)
        return stack;
    Scheme scheme = *op_out((Op *)first->quantize)->type->scheme;
    if (scheme.block[0] == 0)
        scheme.block[0] = first->rows;
    const Type *type = type_quantised(m, &scheme, stack->type->rank, stack->type->dim);
    Value *codes = rewrite_op(m, at, OP_QUANTIZE, &first->quantize->attr, type, 1, &stack,
                              first->quantize->span);
    return rewrite_unary(m, at, OP_DEQUANTIZE, NULL, codes, first->quantize->span);
}

/* What any of them asks of its kernel; NULL: none does. */
static const QuantSpec *asked_of_all(Arena *arena, const Siblings *s)
{
    QuantSpec *ret = NULL;
    for (int i = 0; i < s->num; i++) {
        const QuantSpec *own = s->elem[i].matmul->attr.quant;
        if (!own)
            continue;
        if (!ret) {
            ret = ARENA_NEW(arena, QuantSpec);
            *ret = *own;
        }
        ret->fused = ret->fused || own->fused;
        ret->invariant = ret->invariant || own->invariant;
    }
    return ret;
}

static void siblings_merge(Module *m, PassContext *ctx, const Siblings *s)
{
    Op *at = s->elem[0].matmul;
    Value *in[3] = {op_in(at, 0), weights_stack(m, ctx, at, s)};
    if (at->num_in == 3)
        in[2] = op_in(at, 2);
    Attr attr = at->attr;
    int64_t start = 0;

    attr.layer = layers_join(m, s);
    attr.quant = asked_of_all(m->arena, s);
    Value *all = rewrite_op(m, at, OP_MATMUL, &attr, NULL, at->num_in, in, at->span);
    all->def->mark = at->mark;
    for (int i = 0; i < s->num; i++) {
        Op *op = s->elem[i].matmul;
        Attr cut = {.axis = all->type->rank - 1, .start = start, .stop = start + s->elem[i].rows};
        Value *part = rewrite_op(m, at, OP_SLICE, &cut, NULL, 1, &all, op->span);
        part->name = op_out(op)->name;
        value_replace(op_out(op), part);
        start = cut.stop;
    }
    for (int i = 0; i < s->num; i++)
        op_remove(s->elem[i].matmul);
}

static int compare_place(const void *a, const void *b)
{
    uint32_t x = ((const Sibling *)a)->matmul->mark, y = ((const Sibling *)b)->matmul->mark;

    return x < y ? -1 : x > y;
}

/* The first and those behind it that match it, in program order. */
static void siblings_find(PassContext *ctx, const Sibling *first, Siblings *ret)
{
    Value *input = op_in(first->matmul, 0);

    ARRAY_PUSH(ctx->scratch, ret, *first);
    for_each_use(use, input) {
        Sibling other;
        if (use->user->mark > first->matmul->mark && use == &use->user->in[0] &&
            sibling_of(use->user, &other) && siblings_match(first, &other))
            ARRAY_PUSH(ctx->scratch, ret, other);
    }
    qsort(ret->elem, (size_t)ret->num, sizeof *ret->elem, compare_place);
}

/* Ends of parts must be ends of blocks of rows; only the last may be short. */
static void siblings_align(Siblings *s)
{
    for (int i = 0; i + 1 < s->num; i++)
        if (!s->elem[i].quantize && !codes_stack(&s->elem[i], &s->elem[i + 1]))
            s->num = i + 1;
    for (int i = 0; i + 1 < s->num; i++)
        if (s->elem[i].quantize && !rows_independent(&s->elem[i], &s->elem[i + 1]))
            s->num = i + 1;
    if (s->num > MERGE_MOST)
        s->num = MERGE_MOST;
}

bool pass_merge_siblings(Module *m, PassContext *ctx)
{
    bool changed = block_share_equal(m, &m->body, ctx->scratch);
    ARRAY(Op *) matmuls = {0};

    block_number(&m->body);
    for_each_op(op, &m->body)
        if (op->kind == OP_MATMUL)
            ARRAY_PUSH(ctx->scratch, &matmuls, op);
    for (int i = 0; i < matmuls.num; i++) {
        Sibling first;
        Siblings s = {0};
        if (!matmuls.elem[i]->block || !sibling_of(matmuls.elem[i], &first))
            continue;
        siblings_find(ctx, &first, &s);
        siblings_align(&s);
        if (s.num < 2)
            continue;
        siblings_merge(m, ctx, &s);
        changed = true;
    }
    return changed;
}
