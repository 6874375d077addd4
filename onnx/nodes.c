/* onnx/nodes: arithmetic, activations and norms. */
#include "onnx/import.h"

#include <math.h>
#include <string.h>

bool node_alias(Import *im, const OnnxNode *node, Value **in, Value **out)
{
    const char *name = out[0]->name;

    (void)im, (void)node;
    *out[0] = *in[0];
    out[0]->name = name;
    return true;
}

/* One operand ---------------------------------------------------------------------------------- */

/* Relu of integer sums keeps their factor, which is positive. */
static bool relu_of_sums(Import *im, const Value *x, Value *v)
{
    *v = (Value){.name = v->name, .num_list = -1};
    like(v, x);
    v->factor = x->factor;
    v->factors = x->factors;
    v->acc = say(im, "sums", "relu(%s)", x->acc);
    say_scaled(im, v);
    return true;
}

/* Relu, Round, Sigmoid, Tanh: the language has the same words. */
static const char *lower(Import *im, const char *op)
{
    char *ret = arena_strdup(im->arena, op);

    ret[0] = (char)(ret[0] | 0x20);
    return ret;
}

bool node_unary(Import *im, const OnnxNode *node, Value **in, Value **out)
{
    const char *x = float_operand(im, in[0]);

    if (!x)
        return false;
    if (!strcmp(node->op, "Relu") && in[0]->acc)
        return relu_of_sums(im, in[0], out[0]);
    like(out[0], in[0]);
    if (!strcmp(node->op, "Abs")) {
        say_value(im, out[0], "max(%s, -%s)", x, x);
    } else if (!strcmp(node->op, "Neg")) {
        say_value(im, out[0], "-%s", x);
    } else {
        const char *word = lower(im, node->op);
        say_value(im, out[0], "%s(%s)", word, x);
        matrices_unary(im, in[0], out[0], word);
    }
    return true;
}

/* Two operands --------------------------------------------------------------------------------- */

static bool broadcast(Import *im, const Value *a, const Value *b, Value *ret)
{
    int rank = a->rank > b->rank ? a->rank : b->rank;
    Size one = size_of(1);

    for (int i = 1; i <= rank; i++) {
        Size da = i <= a->rank ? a->dim[a->rank - i] : one;
        Size db = i <= b->rank ? b->dim[b->rank - i] : one;
        if (!size_equal(da, db) && !size_equal(da, one) && !size_equal(db, one))
            return refuse(im, "its operands are %s and %s", sizes_text(im, a->dim, a->rank),
                          sizes_text(im, b->dim, b->rank));
        ret->dim[rank - i] = size_equal(da, one) ? db : da;
    }
    ret->rank = rank;
    ret->type = a->type;
    return true;
}

/* The language's numbers have no shape: one among several dimensions needs a reshape. */
static bool same_rank(Import *im, const Value *a, const Value *b, const Value *ret)
{
    const Value *x = a->text ? a : b, *number = a->text ? b : a;

    if (number->text || !is_one(number) || x->rank == ret->rank)
        return true;
    return refuse(im, "'%.60s' has one element in %d dimensions, more than '%.60s'", number->name,
                  number->rank, x->name);
}

static bool known_pair(const Value *a, const Value *b)
{
    return !a->text && !b->text;
}

/* x times its own sigmoid. */
static const char *silu_of(Import *im, const OnnxNode *node, Value **in)
{
    for (int i = 0; i < 2; i++) {
        const OnnxNode *maker = maker_of(im, node->in.elem[i]);
        if (maker && !strcmp(maker->op, "Sigmoid") && maker->in.num == 1 &&
            !strcmp(maker->in.elem[0], node->in.elem[!i]))
            return operand(im, in[!i]);
    }
    return NULL;
}

bool node_binary(Import *im, const OnnxNode *node, Value **in, Value **out)
{
    char sign = !strcmp(node->op, "Add")   ? '+'
                : !strcmp(node->op, "Sub") ? '-'
                : !strcmp(node->op, "Mul") ? '*'
                                           : '/';

    if (sign == '*' && (in[0]->dynamic || in[1]->dynamic))
        return dynamic_scaled(im, in, out[0]);
    const char *a = operand(im, in[0]), *b = operand(im, in[1]);
    if (!a || !b || !broadcast(im, in[0], in[1], out[0]))
        return false;
    if (known_pair(in[0], in[1]))
        return refuse(im, "both operands are constants: fold them first");
    if (!is_float(in[0]->type) || !is_float(in[1]->type))
        return refuse(im, "its operands are of %s and %s", onnx_type(in[0]->type)->name,
                      onnx_type(in[1]->type)->name);
    if (!same_rank(im, in[0], in[1], out[0]))
        return false;
    const char *silu = sign == '*' ? silu_of(im, node, in) : NULL;
    if (silu)
        say_value(im, out[0], "silu(%s)", silu);
    else
        say_value(im, out[0], "%s %c %s", a, sign, b);
    if (!silu)
        matrices_binary(im, in[0], in[1], out[0], sign);
    return true;
}

bool node_variadic(Import *im, const OnnxNode *node, Value **in, Value **out)
{
    const char *word = !strcmp(node->op, "Min") ? "min" : "max";
    bool sum = !strcmp(node->op, "Sum");
    Value so_far = *in[0];
    const char *text = operand(im, in[0]);

    for (int i = 1; i < node->in.num && text; i++) {
        const char *next = operand(im, in[i]);
        if (!next || !broadcast(im, &so_far, in[i], out[0]))
            return false;
        if (known_pair(&so_far, in[i]) || !is_float(so_far.type) || !is_float(in[i]->type))
            return refuse(im, "its operands are constants, or not floats");
        if (!same_rank(im, &so_far, in[i], out[0]))
            return false;
        if (sum)
            say_value(im, out[0], "%s + %s", text, next);
        else
            say_value(im, out[0], "%s(%s, %s)", word, text, next);
        so_far = *out[0];
        text = out[0]->text;
    }
    if (node->in.num == 1)
        node_alias(im, node, in, out);
    return text != NULL;
}

bool node_clip(Import *im, const OnnxNode *node, Value **in, Value **out)
{
    const char *x = float_operand(im, in[0]);
    double bound[2];

    if (!x)
        return false;
    like(out[0], in[0]);
    for (int i = 1; i <= 2; i++) {
        Value *v = i < node->in.num ? in[i] : NULL;
        if (v && !known_number(v, &bound[i - 1]))
            return refuse(im, "its bound '%.60s' is no known number", v->name);
        if (v && bound[i - 1] != (i == 1 ? -INFINITY : INFINITY))
            x = say(im, node->out.elem[0], i == 1 ? "max(%s, %s)" : "min(%s, %s)", x,
                    number_text(im, bound[i - 1]));
    }
    out[0]->text = x;
    return true;
}

bool node_leaky(Import *im, const OnnxNode *node, Value **in, Value **out)
{
    const char *x = float_operand(im, in[0]);
    const char *alpha = number_text(im, (double)attr_real(node, "alpha", 0.01f));

    if (!x)
        return false;
    like(out[0], in[0]);
    say_value(im, out[0], "max(%s, 0) + %s * min(%s, 0)", x, alpha, x);
    return true;
}

bool node_prelu(Import *im, const OnnxNode *node, Value **in, Value **out)
{
    const char *x = float_operand(im, in[0]), *slope = operand(im, in[1]);

    (void)node;
    if (!x || !slope || !broadcast(im, in[0], in[1], out[0]))
        return false;
    if (!same_rank(im, in[0], in[1], out[0]))
        return false;
    say_value(im, out[0], "max(%s, 0) + %s * min(%s, 0)", x, slope, x);
    return true;
}

/* max(0, min(1, alpha x + beta)), times x. */
bool node_hard(Import *im, const OnnxNode *node, Value **in, Value **out)
{
    const char *x = float_operand(im, in[0]);
    bool swish = !strcmp(node->op, "HardSwish");
    float alpha = swish ? 1.0f / 6.0f : attr_real(node, "alpha", 0.2f);
    float beta = swish ? 0.5f : attr_real(node, "beta", 0.5f);

    if (!x)
        return false;
    like(out[0], in[0]);
    say_value(im, out[0], "%s%smax(0, min(1, %s * %s + %s))", swish ? x : "", swish ? " * " : "",
              number_text(im, (double)alpha), x, number_text(im, (double)beta));
    return true;
}

/* Gelu ----------------------------------------------------------------------------------------- */

bool node_gelu(Import *im, const OnnxNode *node, Value **in, Value **out)
{
    const char *x = float_operand(im, in[0]);
    bool tanh = attr_is(node, "approximate", "tanh", false);

    if (!x)
        return false;
    if (!tanh && !attr_is(node, "approximate", "none", true))
        return refuse(im, "an approximation that is neither none nor tanh");
    like(out[0], in[0]);
    say_value(im, out[0], "%s(%s)", tanh ? "gelu_tanh" : "gelu", x);
    return true;
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-3 * b; /* exporters write sqrt(2) with few digits, or in f16 */
}

/* The operand of `node`, which has two, other than `name`, where that is a number close to `want`.
 */
static bool other_is(const Import *im, const OnnxNode *node, const char *name, double want)
{
    double number;

    for (int i = 0; i < 2; i++)
        if (strcmp(node->in.elem[i], name))
            return known_number(value_find(im, node->in.elem[i]), &number) && near(number, want);
    return false;
}

/* An operation of two operands, which no reader has checked yet. */
static bool is_binary(const OnnxNode *node, const char *op)
{
    return node && !strcmp(node->op, op) && !node->domain[0] && node->in.num == 2 &&
           node->out.num == 1;
}

static const char *other_of(const OnnxNode *node, const char *name)
{
    return node->in.elem[!strcmp(node->in.elem[0], name)];
}

/* What erf's operand is made of: x / sqrt(2), or x * sqrt(1/2). */
static const char *halved_by_root(const Import *im, const OnnxNode *erf)
{
    const OnnxNode *inner = maker_of(im, erf->in.elem[0]);
    double number;

    if (!inner || inner->in.num != 2)
        return NULL;
    for (int i = 0; i < 2; i++) {
        Value *v = value_find(im, inner->in.elem[i]);
        if (!known_number(v, &number))
            continue;
        if ((i == 1 && is_binary(inner, "Div") && near(number, 1.41421356)) ||
            (is_binary(inner, "Mul") && near(number, 0.70710678)))
            return inner->in.elem[!i];
    }
    return NULL;
}

/* x (1 + erf) / 2, in the orders in which exporters write it: the node that ends it. */
static const OnnxNode *gelu_end(const Import *im, const OnnxNode *add, const char *x)
{
    const char *name = add->out.elem[0];
    const OnnxNode *mul = reader_of(im, name), *last, *half;

    if (!is_binary(mul, "Mul"))
        return NULL;
    if (other_is(im, mul, name, 0.5)) { /* x ((1 + erf) / 2) */
        last = reader_of(im, mul->out.elem[0]);
        return is_binary(last, "Mul") && !strcmp(other_of(last, mul->out.elem[0]), x) ? last : NULL;
    }
    const char *other = other_of(mul, name);
    if (!strcmp(other, x)) { /* (x (1 + erf)) / 2 */
        last = reader_of(im, mul->out.elem[0]);
        return is_binary(last, "Mul") && other_is(im, last, mul->out.elem[0], 0.5) ? last : NULL;
    }
    half = maker_of(im, other); /* (x / 2) (1 + erf) */
    return is_binary(half, "Mul") && other_is(im, half, x, 0.5) ? mul : NULL;
}

/* An erf that is part of a gelu; its last node gives the whole. */
bool node_erf(Import *im, const OnnxNode *node, Value **in, Value **out)
{
    const char *x = halved_by_root(im, node);
    const OnnxNode *add = reader_of(im, node->out.elem[0]), *last;

    (void)in, (void)out;
    if (!x || !is_binary(add, "Add") || !other_is(im, add, node->out.elem[0], 1) ||
        !(last = gelu_end(im, add, x)) || !value_find(im, x))
        return refuse(im, "it is not part of x (1 + erf(x / sqrt(2))) / 2, which is gelu");
    map_put(&im->gelus, last->out.elem[0], value_find(im, x));
    map_put(&im->done, add->out.elem[0], im);
    const OnnxNode *middle = reader_of(im, add->out.elem[0]);
    if (middle != last)
        map_put(&im->done, middle->out.elem[0], im);
    return true;
}

/* Rows ----------------------------------------------------------------------------------------- */

static const char *rows_operand(Import *im, Value *v)
{
    const char *text = float_operand(im, v);

    if (text && v->rank < 1) {
        refuse(im, "its operand is a single number");
        return NULL;
    }
    return text;
}

bool node_softmax(Import *im, const OnnxNode *node, Value **in, Value **out)
{
    const char *x = rows_operand(im, in[0]);
    int64_t axis = attr_int(node, "axis", im->opset < 13 ? 1 : -1);

    if (!x)
        return false;
    if (axis_of(im, axis, in[0]->rank) != in[0]->rank - 1)
        return refuse(im, "along axis %lld of %d, but only the last is read", (long long)axis,
                      in[0]->rank);
    like(out[0], in[0]);
    say_value(im, out[0], "softmax(%s)", x);
    matrices_unary(im, in[0], out[0], "softmax");
    return true;
}

/* The rows' norm takes whole params, so one element is a param, too. */
static bool norm_operand(Import *im, Value *v, const Value *x)
{
    if (v->known && v->rank == 1 && size_equal(v->dim[0], x->dim[x->rank - 1]) &&
        v->known->elements > 1)
        return true;
    return refuse(im, "'%.60s' is not a constant of %s", v->name,
                  size_text(im, x->dim[x->rank - 1]));
}

static const char *epsilon_text(Import *im, const OnnxNode *node)
{
    float eps = attr_real(node, "epsilon", 1e-5f);

    if (eps < 0)
        refuse(im, "an epsilon of %g", (double)eps);
    return number_text(im, (double)eps);
}

bool node_layernorm(Import *im, const OnnxNode *node, Value **in, Value **out)
{
    const char *x = rows_operand(im, in[0]), *bias = NULL;
    Value *b = in[2];

    if (!x)
        return false;
    if (axis_of(im, attr_int(node, "axis", -1), in[0]->rank) != in[0]->rank - 1)
        return refuse(im, "over more than the last axis");
    if (!norm_operand(im, in[1], in[0]) || (b && !norm_operand(im, b, in[0])))
        return false;
    if (!b) {
        int64_t num = in[1]->dim[0].n;
        bias = floats_param(im, "no_bias", ARENA_NEW_ARRAY(im->arena, float, (size_t)num), num);
    }
    const char *weight = operand(im, in[1]);
    bias = b ? operand(im, b) : bias;
    if (!weight || !bias)
        return false;
    like(out[0], in[0]);
    say_value(im, out[0], "layernorm(%s, %s, %s, eps=%s)", x, weight, bias, epsilon_text(im, node));
    return true;
}

bool node_rmsnorm(Import *im, const OnnxNode *node, Value **in, Value **out)
{
    const char *x = rows_operand(im, in[0]), *weight;

    if (!x || !norm_operand(im, in[1], in[0]) || !(weight = operand(im, in[1])))
        return false;
    if (axis_of(im, attr_int(node, "axis", -1), in[0]->rank) != in[0]->rank - 1)
        return refuse(im, "over more than the last axis");
    like(out[0], in[0]);
    say_value(im, out[0], "rmsnorm(%s, %s, eps=%s)", x, weight, epsilon_text(im, node));
    return true;
}
