/* passes/check_eval: the outputs of a module on reproducible random inputs, recorded before a pass
 * and compared after it. Symbols take small sizes, so that the check stays cheap; rows beyond three
 * show nothing that three do not. */
#include "passes/internal.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHECK_SIZE = 3 };

typedef struct Output {
    const char *name;
    FormatId fmt;
    uint64_t elements, bytes;
    void *data;
} Output;

struct EvalRecord {
    bool requantises; /* some codes depend on the result of a matmul */
    double rounded;   /* normalised error that roundings may make where a pass scales before them */
    int num_outputs;
    Output *output;
};

static uint64_t random_next(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9E3779B97F4A7C15));

    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

/* Roughly normal: the sum of four uniforms. Exact shape does not matter, spread does. */
static float random_value(uint64_t *state)
{
    float sum = 0;

    for (int i = 0; i < 4; i++)
        sum += (float)(random_next(state) >> 40) * 0x1p-24f - 0.5f;
    return sum * 1.75f;
}

static bool bind_random(Eval *e, const Op *input, const int64_t *size, Arena *scratch)
{
    const Type *type = input->out[0].type;
    Tensor t = {.fmt = FMT_F32, .rank = type->rank};
    uint64_t elements;
    uint64_t state = hash_bytes(input->name, strlen(input->name), 1);

    for (int i = 0; i < type->rank; i++)
        if (!dim_eval(type->dim[i], size, &t.dim[i]))
            return false;
    if (!checked_elements(t.dim, t.rank, &elements) || !checked_mul(elements, 4, &t.bytes))
        return false;
    float *data = arena_alloc(scratch, t.bytes);
    for (uint64_t i = 0; i < elements; i++)
        data[i] = random_value(&state);
    t.data = data;
    return eval_bind(e, input->name, &t);
}

static bool record_output(EvalRecord *r, const Eval *e, const Op *op)
{
    const Tensor *t = eval_output(e, op->name);
    Output *out = &r->output[r->num_outputs];

    if (!t || t->q.codes)
        return false;
    *out = (Output){op->name, t->fmt, tensor_elements(t), t->bytes, malloc(t->bytes + 1)};
    if (!out->data)
        return false;
    memcpy(out->data, t->data, t->bytes);
    r->num_outputs++;
    return true;
}

static const char *run_and_record(EvalRecord *r, const Module *m, Eval *e, const int64_t *size,
                                  Arena *scratch)
{
    const char *why = NULL;

    for_each_op(op, &m->body)
        if (op->kind == OP_INPUT && !bind_random(e, op, size, scratch))
            return "an input cannot be bound";
    if (!eval_run(e, NULL, NULL, &why))
        return why ? arena_strdup(scratch, why) : "the evaluation failed"; /* it goes with e */
    for_each_op(op, &m->body)
        if (op->kind == OP_OUTPUT && !record_output(r, e, op))
            return "an output cannot be read";
    return NULL;
}

/* Codes that are chosen from the result of a matmul turn over where that result differs in its last
 * bit at a tie, which is legitimate where a pass moves roundings. */
static bool module_requantises(const Module *m, Arena *scratch)
{
    size_t num = 1;

    for_each_op(op, &m->body)
        num++;
    bool *computed = ARENA_NEW_ARRAY(scratch, bool, num);
    block_number(&m->body);
    for_each_op(op, &m->body) {
        for (int i = 0; i < op->num_in; i++)
            computed[op->mark] |= computed[op_in(op, i)->def->mark];
        if (computed[op->mark] && op->kind == OP_QUANTIZE)
            return true;
        computed[op->mark] |= op->kind == OP_MATMUL;
    }
    return false;
}

/* What results may move where a pass scales values before they are rounded, and takes the scale
 * back behind: before and after, each value is within u of what is rounded, relative to it, where u
 * is half the last place of a mantissa of 1. So it moves by 2 u at most, and no operand has a
 * normalised error above 4 u^2; its mean is 0.36 u^2, and what lies between is for sums that
 * cancel. Roundings on one path add up; those of paths side by side move each its share. */
static double module_rounds(const Module *m, Arena *scratch)
{
    size_t num = 1;
    double most = 0;

    for_each_op(op, &m->body)
        num++;
    double *moved = ARENA_NEW_ARRAY(scratch, double, num);
    block_number(&m->body);
    for_each_op(op, &m->body) {
        double sum = 0;
        for (int i = 0; i < op->num_in; i++)
            sum = moved[op_in(op, i)->def->mark] > sum ? moved[op_in(op, i)->def->mark] : sum;
        int bits = op->kind == OP_CAST ? format_info[op_out(op)->type->fmt].man_bits : 0;
        if (bits > 0 && !value_is_constant(op_out(op)))
            sum += ldexp(1, -2 * bits);
        moved[op->mark] = sum;
        most = op->kind == OP_OUTPUT && sum > most ? sum : most;
    }
    return most;
}

EvalRecord *eval_record(const Module *m, EvalCheck check, Arena *scratch, const char **ret_why)
{
    int64_t *size = ARENA_NEW_ARRAY(scratch, int64_t, (size_t)m->syms.num + 1);
    int outputs = 0;

    for (int i = 0; i < m->syms.num; i++) {
        const Sym *sym = m->syms.elem[i];
        int64_t largest = sym->num_sizes ? sym->size[sym->num_sizes - 1] : CHECK_SIZE;
        size[i] = largest < CHECK_SIZE ? largest : CHECK_SIZE;
    }
    for_each_op(op, &m->body)
        outputs += op->kind == OP_OUTPUT;
    EvalRecord *r = calloc(1, sizeof *r);
    Eval *e = eval_create(m, check == CHECK_EXACT ? EVAL_CONTRACT : EVAL_F64, size);
    *ret_why = "out of memory";
    if (r && e && (r->output = calloc((size_t)outputs + 1, sizeof *r->output)))
        *ret_why = run_and_record(r, m, e, size, scratch);
    if (e)
        eval_destroy(e);
    if (r)
        r->requantises = check == CHECK_CLOSE && module_requantises(m, scratch);
    if (r)
        r->rounded = check == CHECK_LOOSE ? module_rounds(m, scratch) : 0;
    if (*ret_why) {
        eval_record_free(r);
        return NULL;
    }
    return r;
}

void eval_record_free(EvalRecord *r)
{
    if (!r)
        return;
    for (int i = 0; i < r->num_outputs; i++)
        free(r->output[i].data);
    free(r->output);
    free(r);
}

static const char *compare_exact(const Output *a, const Output *b, Arena *scratch)
{
    uint64_t width = a->elements ? a->bytes / a->elements : 1;
    const uint8_t *x = a->data, *y = b->data;

    for (uint64_t i = 0; i < a->elements; i++) {
        double v[2];
        if (!memcmp(x + i * width, y + i * width, width))
            continue;
        format_to_f64(a->fmt, x + i * width, &v[0], 1);
        format_to_f64(b->fmt, y + i * width, &v[1], 1);
        if (isnan(v[0]) && isnan(v[1]))
            continue;
        return arena_printf(scratch, "element %llu of output \"%s\" was %.9g and is %.9g",
                            (unsigned long long)i, a->name, v[0], v[1]);
    }
    return NULL;
}

static const char *compare_close(const Output *a, const Output *b, double bound, Arena *scratch)
{
    uint64_t width = a->elements ? a->bytes / a->elements : 1;
    double error = 0, signal = 0;

    for (uint64_t i = 0; i < a->elements; i++) {
        double v[2];
        format_to_f64(a->fmt, (const uint8_t *)a->data + i * width, &v[0], 1);
        format_to_f64(b->fmt, (const uint8_t *)b->data + i * width, &v[1], 1);
        if (isnan(v[0]) != isnan(v[1]) || (isinf(v[0]) && v[0] != v[1]))
            return arena_printf(scratch, "element %llu of output \"%s\" was %g and is %g",
                                (unsigned long long)i, a->name, v[0], v[1]);
        if (!isfinite(v[0]))
            continue;
        error += (v[0] - v[1]) * (v[0] - v[1]);
        signal += v[0] * v[0];
    }
    if (error <= bound * signal || error == 0)
        return NULL;
    return arena_printf(scratch, "output \"%s\" moved by a normalised error of %g", a->name,
                        signal > 0 ? error / signal : INFINITY);
}

const char *eval_record_compare(const EvalRecord *before, const EvalRecord *after, EvalCheck check,
                                Arena *scratch)
{
    if (before->num_outputs != after->num_outputs)
        return "the number of outputs changed";
    for (int i = 0; i < before->num_outputs; i++) {
        const Output *a = &before->output[i], *b = &after->output[i];
        const char *why;
        bool exact_enough = check == CHECK_CLOSE && format_info[a->fmt].man_bits > 20;
        /* 1e-5: outputs in few bits, where one flipped rounding shows */
        double bound = before->requantises ? 1e-4 : exact_enough ? 1e-9 : 1e-5 + before->rounded;
        if (strcmp(a->name, b->name) || a->fmt != b->fmt || a->elements != b->elements)
            return arena_printf(scratch, "output \"%s\" changed its type", a->name);
        why = check == CHECK_EXACT ? compare_exact(a, b, scratch)
                                   : compare_close(a, b, bound, scratch);
        if (why)
            return why;
    }
    return NULL;
}
