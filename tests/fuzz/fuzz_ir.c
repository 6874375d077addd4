/* Fuzz target: the reader of printed IR. What it accepts must pass the verifier, print, and read
 * back to the same text; small modules are also cloned and evaluated. */
#include "ir/ir.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char *print(Arena *arena, const Module *m)
{
    Sb sb;
    sb_init(&sb, arena);
    module_print(&sb, m, false);
    return sb.text;
}

static Module *parse(Arena *arena, Diag *diag, const char *text, size_t size)
{
    diag_init(diag, arena);
    return module_parse(arena, diag, diag_add_source(diag, "fuzz", text, size));
}

/* Elements of all values, so that the evaluation stays small. */
static bool is_small(const Block *block)
{
    static const int64_t size[64] = {2, 2, 2, 2};
    double total = 0;
    for_each_op(op, block) {
        for (int i = 0; i < op->num_out; i++) {
            double num = 1;
            for (int j = 0; j < op->out[i].type->rank; j++) {
                int64_t dim;
                if (!dim_eval(op->out[i].type->dim[j], size, &dim))
                    return false;
                num *= (double)dim;
            }
            total += num;
        }
        if (op->kind == OP_MATMUL) { /* its work is not seen in its result */
            const Type *a = op_in(op, 0)->type;
            total += type_last(a).add > 4096 ? 1e9 : 0;
        }
        if (op->body && !is_small(op->body))
            return false;
    }
    return total < 4096;
}

static void evaluate(const Module *m)
{
    static const int64_t size[64] = {2, 2, 2, 2};
    const char *why = NULL;
    if (m->syms.num > 4 || !is_small(&m->body))
        return;
    for (int mode = 0; mode < 2; mode++) {
        Eval *e = eval_create(m, mode ? EVAL_F64 : EVAL_CONTRACT, size);
        for_each_op(op, &m->body) {
            if (op->kind != OP_INPUT)
                continue;
            Tensor t = {.fmt = op->out[0].type->fmt, .rank = op->out[0].type->rank};
            for (int i = 0; i < t.rank; i++)
                dim_eval(op->out[0].type->dim[i], size, &t.dim[i]);
            t.data = calloc(tensor_elements(&t) + 1, 8);
            eval_bind(e, op->name, &t);
            free(t.data);
        }
        eval_run(e, NULL, NULL, &why);
        eval_destroy(e);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Arena *arena = arena_create();
    Diag diag, again;
    char *text = arena_strndup(arena, (const char *)data, size);
    memcpy(text, data, size); /* zero bytes too */
    Module *m = parse(arena, &diag, text, size);
    if (!m) {
        if (!diag.num_errors)
            abort();
        arena_destroy(arena);
        return 0;
    }
    if (!module_verify(m, "parse"))
        abort();
    char *first = print(arena, m);
    Module *back = parse(arena, &again, first, strlen(first));
    if (!back || strcmp(first, print(arena, back)) != 0)
        abort();
    if (strcmp(first, print(arena, module_clone(arena, m))) != 0)
        abort();
    evaluate(m);
    arena_destroy(arena);
    return 0;
}
