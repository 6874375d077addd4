/* rotate: a layer's input x and its weight are multiplied by an orthogonal Hadamard matrix H, since
 * x wT = (x H)(w H)T. Outliers of single channels are spread over all of them, which 4-bit formats
 * like better (QuaRot, arXiv 2404.00456). Both products are folded: w H into the weight, x H into
 * the linear layers that make x.
 *
 * Needs: layers whose rule says `rotate hadamard`, bound weights.
 * Leaves: hadamard of constants alone. Where x H cannot be folded, an error says why.
 *
 * Before                                        After
 *   %x = matmul %a, %v                            %1 = transpose (hadamard (transpose %v))
 *   %y = matmul %x, %w {quant = {..,              %x = matmul %a, %1
 *       rotate hadamard}}                         %2 = hadamard %w
 *                                                 %y = matmul %x, %2 {quant = {..}}
 */
#include "passes/internal.h"

typedef struct Turn { /* the layers that read one value */
    Value *value;     /* before casts */
    const Op *first;
    const char *why; /* it cannot be rotated */
} Turn;

static bool wants_rotation(const Op *op)
{
    return op->kind == OP_MATMUL && op->attr.quant && op->attr.quant->rotate &&
           !op->attr.quant->keep;
}

static Value *before_casts(Value *value)
{
    while (value->def->kind == OP_CAST)
        value = op_in(value->def, 0);
    return value;
}

/* May it be folded? ---------------------------------------------------------------------------- */

static const char *readers_refusal(const Value *value)
{
    for_each_use(use, value) {
        const char *why = NULL;
        if (use->user->kind == OP_CAST)
            why = readers_refusal(&use->user->out[0]);
        else if (!wants_rotation(use->user) || use != &use->user->in[0])
            why = "something that is not rotated reads it too";
        else if (!value_is_constant(op_in(use->user, 1)))
            why = "the other operand is computed, so it cannot take the rotation";
        if (why)
            return why;
    }
    return NULL;
}

static bool is_single(const Value *value)
{
    for (int i = 0; i < value->type->rank; i++)
        if (!dim_is_const(value->type->dim[i]) || value->type->dim[i].add != 1)
            return false;
    return true;
}

/* NULL when rotating constants rotates each row of the value, which has `cols` columns, else why
 * not. */
static const char *refusal(const Value *value, int64_t cols, int depth)
{
    const Op *op = value->def;
    const Value *a = op->num_in > 0 ? op_in(op, 0) : NULL;
    const Value *b = op->num_in > 1 ? op_in(op, 1) : NULL;

    if (depth > 8)
        return "too many operations stand between it and the layer that makes it";
    if (type_cols(value->type) != cols)
        return "a number is added to all its channels";
    if (depth && value->uses->next)
        return "one of the values it is made of is read elsewhere too";
    switch (op->kind) {
    case OP_MATMUL:
        if (weight_is_stored(op))
            return "the weight of the layer that makes it is stored quantised";
        return value_is_constant(b) ? NULL : "it is a product of two activations";
    case OP_CAST: return refusal(a, cols, depth + 1);
    case OP_MUL:
    case OP_DIV:
        if (value_is_constant(b) && is_single(b))
            return refusal(a, cols, depth + 1);
        return "a product that differs from channel to channel stands between it and the layer "
               "that makes it";
    case OP_ADD:
    case OP_SUB:
        if (value_is_constant(b))
            return type_cols(b->type) == cols ? refusal(a, cols, depth + 1)
                                              : "a number is added to all its channels";
        if (refusal(a, cols, depth + 1))
            return refusal(a, cols, depth + 1);
        return refusal(b, cols, depth + 1);
    case OP_INPUT: return "it is an input of the model";
    case OP_RMSNORM:
    case OP_LAYERNORM: return "the norm that makes it scales each channel by itself";
    default:
        return "an operation that bends or mixes its channels stands between it and a linear "
               "layer";
    }
}

/* Folding -------------------------------------------------------------------------------------- */

/* A plain operand of a kernel keeps its format; one that is quantised is better taken from f32. */
static void operand_set(Module *m, Op *op, int slot, Value *value, bool keep_format)
{
    const Type *type = op_in(op, slot)->type;

    if (keep_format && type->fmt != value->type->fmt)
        value = rewrite_unary(m, op, OP_CAST, type, value, op->span);
    op_set_in(op, slot, value);
}

static bool stays_plain(const Op *matmul)
{
    const QuantSpec *spec = matmul->attr.quant;

    return !spec || spec->keep || !spec->weight;
}

static Value *rotated(Module *m, Op *at, Value *constant)
{
    constant_hoist(constant, at);
    return rewrite_unary(m, at, OP_HADAMARD, NULL, constant, at->span);
}

/* The rows of a linear layer's weight are its outputs: HT v. */
static void maker_rotate(Module *m, Op *matmul)
{
    Attr turn = {.num_perm = 2, .perm = {1, 0}};
    Value *weight = op_in(matmul, 1);

    constant_hoist(weight, matmul);
    weight = rewrite_op(m, matmul, OP_TRANSPOSE, &turn, NULL, 1, &weight, matmul->span);
    weight = rewrite_unary(m, matmul, OP_HADAMARD, NULL, weight, matmul->span);
    weight = rewrite_op(m, matmul, OP_TRANSPOSE, &turn, NULL, 1, &weight, matmul->span);
    operand_set(m, matmul, 1, weight, stays_plain(matmul));
}

/* Follows the path that refusal() found free. */
static void fold_into(Module *m, Value *value)
{
    Op *op = value->def;

    switch (op->kind) {
    case OP_MATMUL: maker_rotate(m, op); return;
    case OP_ADD:
    case OP_SUB:
        fold_into(m, op_in(op, 0));
        if (value_is_constant(op_in(op, 1)))
            operand_set(m, op, 1, rotated(m, op, op_in(op, 1)), false);
        else
            fold_into(m, op_in(op, 1));
        return;
    default: /* cast, and products with one number */ fold_into(m, op_in(op, 0));
    }
}

static void readers_rotate(Module *m, const Value *value)
{
    for_each_use(use, value) {
        Op *user = use->user;
        if (user->kind == OP_CAST) {
            readers_rotate(m, &user->out[0]);
            continue;
        }
        QuantSpec *spec = ARENA_NEW(m->arena, QuantSpec);
        *spec = *user->attr.quant;
        spec->rotate = false;
        user->attr.quant = spec;
        operand_set(m, user, 1, rotated(m, user, op_in(user, 1)), stays_plain(user));
    }
}

/* Pass ----------------------------------------------------------------------------------------- */

static const char *turn_refusal(Module *m, const Value *value)
{
    int64_t cols = type_cols(value->type);

    if (cols < 1)
        return "its columns are not constant";
    if (!hadamard_exists(cols))
        return arena_printf(m->arena, "no Hadamard matrix of order %lld is known here",
                            (long long)cols);
    const char *why = readers_refusal(value);
    return why ? why : refusal(value, cols, 0);
}

bool pass_rotate(Module *m, PassContext *ctx)
{
    ARRAY(Turn) turns = {0};
    int errors = m->diag->num_errors;

    block_number(&m->body);
    for_each_op(op, &m->body) {
        bool known = false;
        if (!wants_rotation(op))
            continue;
        Turn turn = {.value = before_casts(op_in(op, 0)), .first = op};
        for (int i = turns.num - 1; i >= 0 && i >= turns.num - 16 && !known; i--)
            known = turns.elem[i].value == turn.value; /* siblings stand close together */
        if (known)
            continue;
        turn.why = turn_refusal(m, turn.value);
        if (turn.why)
            diag_error(m->diag, op->span, E_ROTATE, "%s: its input cannot be rotated: %s",
                       layer_name(op), turn.why);
        ARRAY_PUSH(ctx->scratch, &turns, turn);
    }
    if (!turns.num || m->diag->num_errors > errors)
        return false;
    for (int i = 0; i < turns.num; i++) {
        if (!wants_rotation(turns.elem[i].first)) /* a sibling far away */
            continue;
        fold_into(m, turns.elem[i].value);
        readers_rotate(m, turns.elem[i].value);
    }
    return true;
}
