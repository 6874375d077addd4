/* calls: the table of operations of the language and how arguments reach them. */
#include "frontend/sema.h"
#include <string.h>

const CallInfo call_info[] = {
    {"linear", CALL_LINEAR, OP_MATMUL, 2, false, {"x", "w", "b"}, "linear(x, w, b?)"},
    {"matmul", CALL_MATMUL, OP_MATMUL, 2, false, {"a", "b"}, "matmul(a, b)"},
    {"relu", CALL_UNARY, OP_RELU, 1, false, {"x"}, "relu(x)"},
    {"gelu", CALL_UNARY, OP_GELU, 1, false, {"x"}, "gelu(x)"},
    {"gelu_tanh", CALL_UNARY, OP_GELU_TANH, 1, false, {"x"}, "gelu_tanh(x)"},
    {"silu", CALL_UNARY, OP_SILU, 1, false, {"x"}, "silu(x)"},
    {"sigmoid", CALL_UNARY, OP_SIGMOID, 1, false, {"x"}, "sigmoid(x)"},
    {"tanh", CALL_UNARY, OP_TANH, 1, false, {"x"}, "tanh(x)"},
    {"round", CALL_UNARY, OP_RINT, 1, false, {"x"}, "round(x)"},
    {"min", CALL_BINARY, OP_MIN, 2, false, {"a", "b"}, "min(a, b)"},
    {"max", CALL_BINARY, OP_MAX, 2, false, {"a", "b"}, "max(a, b)"},
    {"rmsnorm",
     CALL_RMSNORM,
     OP_RMSNORM,
     2,
     false,
     {"x", "weight", "eps"},
     "rmsnorm(x, weight, eps=1e-5)"},
    {"layernorm",
     CALL_LAYERNORM,
     OP_LAYERNORM,
     3,
     false,
     {"x", "weight", "bias", "eps"},
     "layernorm(x, weight, bias, eps=1e-5)"},
    {"softmax", CALL_SOFTMAX, OP_SOFTMAX, 1, false, {"x", "axis"}, "softmax(x, axis=-1)"},
    {"concat", CALL_CONCAT, OP_CONCAT, 1, true, {"axis"}, "concat(x, .., axis=-1)"},
    {"split",
     CALL_SPLIT,
     OP_SLICE,
     1,
     false,
     {"x", "sizes", "axis"},
     "split(x, sizes=[..], axis=-1)"},
    {"reshape", CALL_RESHAPE, OP_RESHAPE, 2, false, {"x", "shape"}, "reshape(x, [..])"},
    {"transpose", CALL_TRANSPOSE, OP_TRANSPOSE, 1, false, {"x", "perm"}, "transpose(x, perm=[..])"},
    {"slice",
     CALL_SLICE,
     OP_SLICE,
     1,
     false,
     {"x", "axis", "start", "stop"},
     "slice(x, axis=-1, start=0, stop=..)"},
    {"cast", CALL_CAST, OP_CAST, 2, false, {"x", "format"}, "cast(x, bf16)"},
    {"topk", CALL_TOPK, OP_TOPK, 2, false, {"x", "k", "weights"}, "topk(x, k, weights=..?)"},
    {"dispatch", CALL_DISPATCH, OP_DISPATCH, 2, false, {"x", "route"}, "dispatch(x, route=..)"},
    {"grouped_linear",
     CALL_GROUPED_LINEAR,
     OP_MATMUL,
     2,
     false,
     {"x", "w", "b", "route", "rows"},
     "grouped_linear(x, w, b?, route=..) or grouped_linear(x, w, b?, rows=..)"},
    {"combine", CALL_COMBINE, OP_COMBINE, 2, false, {"x", "route"}, "combine(x, route=..)"},
};
const int num_calls = COUNT_OF(call_info);

int call_find(const char *name)
{
    for (int i = 0; i < num_calls; i++) {
        if (strcmp(call_info[i].name, name) == 0)
            return i;
    }
    return -1;
}

static int arg_find(const CallInfo *info, const char *name)
{
    for (int i = 0; i < MAX_CALL_ARGS && info->arg[i]; i++) {
        if (strcmp(info->arg[i], name) == 0)
            return i;
    }
    return -1;
}

static void unknown_arg(Sema *s, const Arg *arg, const CallInfo *info)
{
    Nearest nearest;
    nearest_init(&nearest, arg->name.text);
    for (int i = 0; i < MAX_CALL_ARGS && info->arg[i]; i++)
        nearest_offer(&nearest, info->arg[i]);
    diag_error(s->diag, arg->name.span, E_ARGUMENTS, "%s has no argument '%s'", info->name,
               arg->name.text);
    if (nearest_get(&nearest))
        suggest(s->diag, &nearest);
    else
        diag_help(s->diag, "it is used as %s", info->describe);
}

bool call_bind(Sema *s, const Expr *call, const CallInfo *info, Expr *ret[MAX_CALL_ARGS])
{
    int num_positional = 0, num_slots = 0;
    memset(ret, 0, MAX_CALL_ARGS * sizeof *ret);
    while (num_slots < MAX_CALL_ARGS && info->arg[num_slots])
        num_slots++;
    for (int i = 0; i < call->args.num; i++) {
        const Arg *arg = &call->args.elem[i];
        int slot = arg->name.text ? arg_find(info, arg->name.text) : num_positional++;
        if (!arg->name.text && info->variadic)
            continue;
        if (arg->name.text && slot < 0) {
            unknown_arg(s, arg, info);
            return false;
        }
        if (slot >= num_slots) {
            diag_error(s->diag, arg->value->span, E_ARGUMENTS, "too many arguments for %s",
                       info->name);
            diag_help(s->diag, "it is used as %s", info->describe);
            return false;
        }
        if (ret[slot]) {
            diag_error(s->diag, arg->value->span, E_ARGUMENTS, "argument '%s' of %s is given twice",
                       info->arg[slot], info->name);
            diag_note(s->diag, ret[slot]->span, "first here");
            return false;
        }
        ret[slot] = arg->value;
    }
    int num_given = info->variadic ? num_positional : 0;
    while (!info->variadic && num_given < info->min_args && ret[num_given])
        num_given++;
    if (num_given >= info->min_args)
        return true;
    if (info->variadic)
        diag_error(s->diag, call->span, E_ARGUMENTS, "%s needs at least one tensor", info->name);
    else
        diag_error(s->diag, call->span, E_ARGUMENTS, "%s needs an argument '%s'", info->name,
                   info->arg[num_given]);
    diag_help(s->diag, "it is used as %s", info->describe);
    return false;
}
