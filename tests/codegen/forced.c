/* The evaluator led by the kernels' own sums; see forced.h. */
#include "tests/codegen/forced.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PROBE     "probe "
#define F32_BOUND 1e-10    /* docs/numerics.md */
#define FEW       16       /* sums that may all cancel: each one's bound is all there is */
#define LEAST     0x1p-240 /* sums below are rounded to denormal numbers on the way */
#define CANCELLED 1e-3     /* share of the power of the magnitudes that is left */

static bool is_float_product(const Op *op)
{
    const Type *a, *b;
    if (op->kind != OP_MATMUL)
        return false;
    a = op_in(op, 0)->type;
    b = op_in(op, 1)->type;
    return !a->scheme || !b->scheme || format_info[a->fmt].family != FAMILY_INT ||
           format_info[b->fmt].family != FAMILY_INT;
}

/* The result of a kernel that is a product of floats, and the product; NULL: there is none.
 * Unfused, a product is alone in its kernel. */
static Value *kernel_sums(const Op *kernel, const Op **ret_product)
{
    for (int i = 0; kernel->body && i < kernel->num_out; i++) {
        const Op *op = op_in(kernel->body->last, i)->def;
        if (!is_float_product(op))
            continue;
        *ret_product = op;
        return &kernel->out[i];
    }
    return NULL;
}

void probes_add(Module *m)
{
    int num = 0;
    const Op *product;
    for_each_op(op, &m->body) {
        Value *sums = kernel_sums(op, &product);
        if (sums)
            build_output(m, arena_printf(m->arena, PROBE "%d", num++), sums, op->span);
    }
}

/* The name of the output that shows a product's result; NULL: it has none. */
static const char *probe_name(const Op *product)
{
    const Op *kernel = product->block->owner, *found = NULL;
    const Value *sums = kernel ? kernel_sums(kernel, &found) : NULL;
    if (found != product)
        return NULL;
    for_each_use(use, sums)
        if (use->user->kind == OP_OUTPUT && !strncmp(use->user->name, PROBE, strlen(PROBE)))
            return use->user->name;
    return NULL;
}

/* One run ------------------------------------------------------------------------------------- */

typedef struct Forced {
    int num_out;
    const SinterTensor *out;
    ForcedStats *stats;
    Tensor operand[3]; /* of the kernel at hand; not owned */
    bool ok, is_led;   /* is_led: every float product had a probe */
} Forced;

static FormatId format_of(SinterDtype dtype)
{
    return dtype == SINTER_F16    ? FMT_F16
           : dtype == SINTER_BF16 ? FMT_BF16
           : dtype == SINTER_I32  ? FMT_I32
                                  : FMT_F32;
}

static uint64_t port_bytes(const SinterTensor *t)
{
    uint64_t num = (uint64_t)format_info[format_of(t->dtype)].bits / 8;
    for (int i = 0; i < t->rank; i++)
        num *= (uint64_t)t->dim[i];
    return num;
}

static const SinterTensor *port_find(const Forced *f, const char *name)
{
    for (int i = 0; i < f->num_out; i++)
        if (!strcmp(f->out[i].name, name))
            return &f->out[i];
    return NULL;
}

static size_t grid_at(const QTensor *q, int64_t row, int64_t col)
{
    int64_t r = q->scheme.block[0] ? row / q->scheme.block[0] : 0;
    int64_t c = q->scheme.block[1] ? col / q->scheme.block[1] : 0;
    return (size_t)(r * q->col_blocks + c);
}

/* The largest magnitudes that a kernel may add up for one element: unsigned codes may be stored as
 * signed ones, zero points may be subtracted from codes or from their sum. */
static double code_magnitude(const QTensor *q, int64_t row, int64_t col, bool scaled)
{
    const FormatInfo *info = &format_info[q->scheme.fmt];
    double code = format_decode(q->scheme.fmt, qtensor_code(q, row, col));
    double offset = info->family == FAMILY_INT && !info->is_signed ? 1 << (info->bits - 1) : 0;
    size_t at = grid_at(q, row, col);
    double ret = q->zero ? fabs(code - offset) + fabs(q->zero[at] - offset) : fabs(code);
    return scaled ? ret * fabs((double)num_scale_effective(q->scale[at], q->outer)) : ret;
}

static double *magnitudes(const Tensor *t, bool scaled)
{
    int64_t rows = tensor_rows(t), cols = t->dim[t->rank - 1];
    uint64_t num = (uint64_t)(rows * cols);
    double *ret = malloc((num + 1) * sizeof *ret);
    if (!t->q.codes)
        format_to_f64(t->fmt, t->data, ret, num);
    for (uint64_t i = 0; i < num; i++)
        ret[i] = t->q.codes ? code_magnitude(&t->q, (int64_t)i / cols, (int64_t)i % cols, scaled)
                            : fabs(ret[i]);
    return ret;
}

/* The largest scale of an operand, which multiplies what was rounded before; at least 1. */
static double largest_scale(const Tensor *t, bool scaled)
{
    double ret = 1;
    for (int64_t i = 0; scaled && t->q.codes && i < t->q.row_blocks * t->q.col_blocks; i++)
        ret = fmax(ret, fabs((double)num_scale_effective(t->q.scale[i], t->q.outer)));
    return ret;
}

/* Sums of magnitudes bound the error of f32 sums in any order: half a place for each addition and a
 * few for scales and roundings, and the least float for each product, before it is scaled. */
static double sum_bound(double sum, int64_t k, double scale)
{
    return ((double)k + 8) * 0x1p-24 * 1.001 * sum + (double)k * scale * 0x1p-149;
}

/* has_zero: an infinity may meet its product with the zero point, which leaves NaN. */
static bool element_near(float got, float want, double sum, double bound, bool has_zero)
{
    if (isnan(want) || isnan(sum))
        return isnan(got);
    if (isinf(sum))
        return got == want || (has_zero && isnan(got));
    if (sum > FLT_MAX / 2) /* some order may overflow on the way */
        return true;
    return fabs((double)got - want) <= bound;
}

/* The first row of the second operand that meets this row of the first: that of its group. */
static int64_t group_first(const Forced *f, const Op *op, int64_t row, int64_t n)
{
    const int32_t *end = f->operand[2].data;
    int64_t group = 0;
    while (op->num_in == 3 && end[group] <= row)
        group++;
    return group * n;
}

static bool product_near(Forced *f, const Op *op, const float *got, const float *want)
{
    bool scaled = op->attr.place == PLACE_MAINLOOP;
    bool of_a = scaled && type_scale_varies(op_in(op, 0)->type);
    double *a = magnitudes(&f->operand[0], of_a), *b = magnitudes(&f->operand[1], scaled);
    int64_t m = tensor_rows(&f->operand[0]), n = f->operand[1].dim[f->operand[1].rank - 2];
    int64_t k = f->operand[0].dim[f->operand[0].rank - 1];
    double error = 0, power = 0, most = 0;
    double scale = largest_scale(&f->operand[0], of_a) * largest_scale(&f->operand[1], scaled);
    bool ok = true, has_zero = f->operand[0].q.zero || f->operand[1].q.zero;
    for (int64_t at = 0; at < m * n && ok; at++) {
        double sum = 0, off = (double)got[at] - want[at];
        int64_t row = group_first(f, op, at / n, n) + at % n;
        for (int64_t i = 0; i < k; i++)
            sum += a[at / n * k + i] * b[row * k + i];
        double bound = sum_bound(sum, k, scale);
        ok = element_near(got[at], want[at], sum, bound, has_zero);
        if (!ok)
            printf("# %s, element %lld: %.9g, %.9g by the evaluator, magnitudes %.9g\n",
                   op->attr.layer ? op->attr.layer : "a product", (long long)at, got[at], want[at],
                   sum);
        if (!isfinite(off) || !(sum <= FLT_MAX / 2))
            continue;
        error += off * off;
        power += (double)want[at] * want[at];
        most += fmax(sum * sum, LEAST);
        f->stats->worst_share = fmax(f->stats->worst_share, fabs(off) / bound);
    }
    f->stats->products++;
    f->stats->elements += (uint64_t)(m * n);
    free(a);
    free(b);
    if (m * n < FEW || error == 0 || power < CANCELLED * most)
        return ok;
    f->stats->worst_error = fmax(f->stats->worst_error, error / power);
    if (!(error <= F32_BOUND * power))
        printf("# %s: normalised error %g\n", op->attr.layer ? op->attr.layer : "a product",
               error / power);
    return ok && error <= F32_BOUND * power;
}

static void lead(void *user, const Value *value, const Tensor *tensor)
{
    Forced *f = user;
    const Op *op = value->def, *product = NULL;
    if (op->kind == OP_ARG && kernel_sums(op->block->owner, &product))
        for (int i = 0; i < product->num_in; i++)
            if (op_in(product, i) == value)
                f->operand[i] = *tensor;
    if (!is_float_product(op) || !op->block->owner) /* constants are computed but once */
        return;
    const char *name = probe_name(op);
    const SinterTensor *port = name ? port_find(f, name) : NULL;
    if (!name) {
        f->is_led = false;
        return;
    }
    if (!port || port_bytes(port) != tensor->bytes) {
        printf("# %s is missing or has another shape\n", name);
        f->ok = false;
        return;
    }
    f->ok = product_near(f, op, port->data, tensor->data) && f->ok;
    memcpy(tensor->data, port->data, tensor->bytes);
}

static bool same_element(FormatId fmt, const void *a, const void *b)
{
    size_t size = (size_t)format_info[fmt].bits / 8;
    double x, y;
    if (!memcmp(a, b, size))
        return true;
    if (fmt == FMT_I32)
        return false;
    format_to_f64(fmt, a, &x, 1);
    format_to_f64(fmt, b, &y, 1);
    return isnan(x) && isnan(y);
}

/* A text may hold a kernel with a product inside: its outputs have the bound of f32. */
static bool output_near(const SinterTensor *port, const Tensor *want)
{
    FormatId fmt = format_of(port->dtype);
    size_t size = (size_t)format_info[fmt].bits / 8;
    double error = 0, power = 0;
    if (!want || want->bytes != port_bytes(port) || fmt == FMT_I32)
        return false;
    for (uint64_t at = 0; at < want->bytes; at += size) {
        double x, y;
        format_to_f64(fmt, (const char *)port->data + at, &x, 1);
        format_to_f64(fmt, (const char *)want->data + at, &y, 1);
        error += (x - y) * (x - y);
        power += y * y;
    }
    if (!(error <= F32_BOUND * power))
        printf("# output %s: error %g\n", port->name, error / power);
    return error <= F32_BOUND * power;
}

static bool output_equal(const SinterTensor *port, const Tensor *want)
{
    FormatId fmt = format_of(port->dtype);
    size_t size = (size_t)format_info[fmt].bits / 8;
    if (!want || want->bytes != port_bytes(port) || want->fmt != fmt) {
        printf("# output %s has another shape than the evaluator's\n", port->name);
        return false;
    }
    for (uint64_t at = 0; at < want->bytes; at += size) {
        const char *got = (const char *)port->data + at, *by = (const char *)want->data + at;
        double x, y;
        if (same_element(fmt, got, by))
            continue;
        format_to_f64(fmt == FMT_I32 ? FMT_F32 : fmt, got, &x, 1);
        format_to_f64(fmt == FMT_I32 ? FMT_F32 : fmt, by, &y, 1);
        printf("# output %s, element %llu: %.9g, %.9g by the evaluator from the same sums\n",
               port->name, (unsigned long long)(at / size), x, y);
        return false;
    }
    return true;
}

static bool bind_inputs(Eval *e, int num, const SinterTensor *in)
{
    for (int i = 0; i < num; i++) {
        Tensor t = {.fmt = format_of(in[i].dtype),
                    .rank = in[i].rank,
                    .data = in[i].data,
                    .bytes = port_bytes(&in[i])};
        memcpy(t.dim, in[i].dim, sizeof in[i].dim);
        if (!eval_bind(e, in[i].name, &t)) {
            printf("# the evaluator does not take %s\n", in[i].name);
            return false;
        }
    }
    return true;
}

bool forced_compare(const Module *m, const int64_t *size, int num_in, const SinterTensor *in,
                    int num_out, const SinterTensor *out, ForcedStats *stats)
{
    Forced f = {.num_out = num_out, .out = out, .stats = stats, .ok = true, .is_led = true};
    const char *why = "";
    Eval *e = eval_create(m, EVAL_CONTRACT, size);
    bool ok = e && bind_inputs(e, num_in, in) && eval_run(e, lead, &f, &why);
    if (!ok)
        printf("# the evaluator: %s\n", why);
    for (int i = 0; ok && i < num_out; i++) {
        const Tensor *want = eval_output(e, out[i].name);
        f.ok = (f.is_led ? output_equal(&out[i], want) : output_near(&out[i], want)) && f.ok;
    }
    eval_destroy(e);
    return ok && f.ok;
}

void forced_print(const ForcedStats *stats)
{
    printf("# %llu float products of %llu sums: errors to %.3f of the bound, normalised to %.2g\n",
           (unsigned long long)stats->products, (unsigned long long)stats->elements,
           stats->worst_share, stats->worst_error);
}
