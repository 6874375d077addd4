/* compare FILE BOUND [NAME]: runs a compiled file on the CPU and on the first GPU, for all buckets
 * and some sizes between them, and compares. BOUND: "exact" (the same bits) or the largest
 * normalised mean square error. On the GPU each run is done twice and must give the same bits, and
 * once launch by launch (a trace). TAP lines without a plan; exits with 77 without a GPU.
 * compare --probe: only says whether there is a GPU. */
#include "io/io.h"
#include "quant/quant.h"
#include "runtime/cuda.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SYMS  8
#define MAX_PORTS 64
#define SKIP      77

static int num_failed;

typedef struct Side { /* tensors of all inputs or outputs */
    SinterTensor tensor[MAX_PORTS];
    uint64_t bytes[MAX_PORTS];
    int num;
} Side;

static void side_free(Side *side)
{
    for (int i = 0; i < side->num; i++)
        free(side->tensor[i].data);
    *side = (Side){0};
}

static bool side_make(const SinterModel *model, bool is_output, const int64_t *size, Side *ret)
{
    SinterError err;
    *ret = (Side){.num = is_output ? sinter_num_outputs(model) : sinter_num_inputs(model)};
    for (int i = 0; i < ret->num; i++) {
        SinterTensor *t = &ret->tensor[i];
        uint64_t elements;
        if (sinter_port_shape(model, is_output, i, size, t, &err) ||
            !checked_elements(t->dim, t->rank, &elements))
            return false;
        ret->bytes[i] = elements * (uint64_t)format_info[format_of_dtype(t->dtype)].bits / 8;
        t->data = calloc(1, (size_t)ret->bytes[i] + 1);
        if (!t->data)
            return false;
    }
    return true;
}

static double random_normal(uint64_t *state)
{
    double sum = 0;
    for (int i = 0; i < 12; i++) {
        uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
        z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
        sum += (double)((z ^ z >> 31) >> 11) / 9007199254740992.0;
    }
    return sum - 6;
}

static void fill(Side *side, uint64_t seed)
{
    for (int i = 0; i < side->num; i++) {
        FormatId fmt = format_of_dtype(side->tensor[i].dtype);
        uint64_t size = (uint64_t)format_info[fmt].bits / 8, num = side->bytes[i] / size;
        for (uint64_t k = 0; k < num; k++) {
            float v = (float)random_normal(&seed);
            format_from_f32(fmt, &v, (uint8_t *)side->tensor[i].data + k * size, 1);
        }
    }
}

/* Normalised mean square error of `got`; infinite when a value is not finite in one alone. */
static double nmse(const SinterTensor *want, const SinterTensor *got, uint64_t bytes)
{
    FormatId fmt = format_of_dtype(want->dtype);
    uint64_t size = (uint64_t)format_info[fmt].bits / 8, num = bytes / size;
    double error = 0, all = 0;
    for (uint64_t k = 0; k < num; k++) {
        float a, b;
        format_to_f32(fmt, (const uint8_t *)want->data + k * size, &a, 1);
        format_to_f32(fmt, (const uint8_t *)got->data + k * size, &b, 1);
        if (!isfinite(a) || !isfinite(b)) {
            if (isnan(a) != isnan(b) || (!isnan(a) && a != b))
                return INFINITY;
            continue;
        }
        error += ((double)a - (double)b) * ((double)a - (double)b);
        all += (double)a * (double)a;
    }
    return error == 0 ? 0 : all == 0 ? INFINITY : error / all;
}

static bool same_bits(const Side *a, const Side *b)
{
    for (int i = 0; i < a->num; i++)
        if (memcmp(a->tensor[i].data, b->tensor[i].data, (size_t)a->bytes[i]) != 0)
            return false;
    return true;
}

typedef struct Pair {
    SinterModel *model;
    SinterSession *cpu, *gpu;
    const char *name;
    double bound; /* 0: exact */
} Pair;

static void report(const Pair *p, const int64_t *size, const char *what, bool ok, const char *why)
{
    printf("%sok - %s", ok ? "" : "not ", p->name);
    for (int i = 0; i < sinter_num_symbols(p->model); i++)
        printf(" %s=%" PRId64, sinter_symbol(p->model, i), size[i]);
    printf(" %s%s%s\n", what, *why ? ": " : "", why);
    num_failed += !ok;
}

static bool run_gpu(const Pair *p, const int64_t *size, const char *what, const Side *in, Side *out)
{
    SinterError err;
    for (int i = 0; i < out->num; i++)
        memset(out->tensor[i].data, 0xa5, (size_t)out->bytes[i]);
    if (!sinter_run(p->gpu, in->tensor, in->num, out->tensor, out->num, &err))
        return true;
    report(p, size, what, false, err.text);
    return false;
}

static void compare_outputs(const Pair *p, const int64_t *size, const Side *want, const Side *got)
{
    double worst = 0;
    char why[64] = "";
    for (int i = 0; i < want->num; i++) {
        double e = nmse(&want->tensor[i], &got->tensor[i], want->bytes[i]);
        worst = e > worst ? e : worst;
    }
    bool exact = same_bits(want, got);
    if (!exact)
        snprintf(why, sizeof why, "nmse %.3g, at most %.3g", worst, p->bound);
    report(p, size, exact ? "bits as on the CPU" : "as on the CPU", exact || worst <= p->bound,
           why);
}

static void compare_runs(const Pair *p, const int64_t *size, const Side *in, Side *want, Side *got,
                         Side *again)
{
    SinterError err;
    SinterStatus status = sinter_run(p->cpu, in->tensor, in->num, want->tensor, want->num, &err);
    if (status) {
        report(p, size, "refused by the CPU", status == SINTER_ERROR_ARGUMENT, err.text);
        return;
    }
    if (!run_gpu(p, size, "run", in, got))
        return;
    compare_outputs(p, size, want, got);
    if (run_gpu(p, size, "second run", in, again))
        report(p, size, "same bits again", same_bits(got, again), "");
    sinter_session_trace(p->gpu, 1);
    if (run_gpu(p, size, "traced run", in, again))
        report(p, size, "same bits launch by launch", same_bits(got, again), "");
    sinter_session_trace(p->gpu, 0);
}

static void compare_sizes(const Pair *p, const int64_t *size, uint64_t seed)
{
    Side in, want, got, again;
    bool ok = side_make(p->model, false, size, &in);
    ok = side_make(p->model, true, size, &want) && ok;
    ok = side_make(p->model, true, size, &got) && ok;
    ok = side_make(p->model, true, size, &again) && ok;
    if (ok) {
        fill(&in, seed);
        compare_runs(p, size, &in, &want, &got, &again);
    } else {
        report(p, size, "memory", false, "");
    }
    side_free(&in);
    side_free(&want);
    side_free(&got);
    side_free(&again);
}

/* Each bucket, the first symbol one more than the bucket before allows, one less than the bucket,
 * and, behind the largest, a batch that must be cut. */
static void compare_all(const Pair *p)
{
    int num = sinter_num_buckets(p->model), syms = sinter_num_symbols(p->model);
    for (int b = 0; b < num; b++) {
        int64_t size[MAX_SYMS] = {1};
        for (int i = 0; i < syms; i++)
            size[i] = sinter_bucket_size(p->model, b, i);
        compare_sizes(p, size, (uint64_t)b + 1);
        if (!syms)
            continue;
        int64_t full = size[0], before = b ? sinter_bucket_size(p->model, b - 1, 0) : 0;
        if (full > 2 && before < full) {
            size[0] = full - 1;
            compare_sizes(p, size, (uint64_t)b + 100);
        }
        if (before > 0 && before + 1 < full - 1) {
            size[0] = before + 1;
            compare_sizes(p, size, (uint64_t)b + 200);
        }
        if (b == num - 1 && full < 100000) {
            size[0] = 2 * full + 3;
            compare_sizes(p, size, (uint64_t)b + 300);
        }
    }
}

static int probe(void)
{
    SinterStatus status;
    SinterError err;
    int count = 0;
    char name[64] = "";
    const Driver *d = driver_get(&status, &err);
    if (!d) {
        printf("# skip: %s\n", err.text);
        return SKIP;
    }
    if (d->cuDeviceGetCount(&count) || !count || d->cuDeviceGetName(name, (int)sizeof name, 0)) {
        printf("# skip: the driver shows no GPU\n");
        return SKIP;
    }
    printf("# %s, driver for CUDA %d.%d\n", name, d->version / 1000, d->version % 1000 / 10);
    return 0;
}

int main(int argc, char **argv)
{
    SinterError err;
    if (argc == 2 && !strcmp(argv[1], "--probe"))
        return probe();
    if (argc < 3) {
        fprintf(stderr, "usage: compare FILE exact|BOUND [NAME]\n");
        return 2;
    }
    Pair p = {.name = argc > 3 ? argv[3] : argv[1],
              .bound = strcmp(argv[2], "exact") ? strtod(argv[2], NULL) : 0};
    if (sinter_open(argv[1], &p.model, &err)) {
        printf("not ok - %s: %s\n", p.name, err.text);
        return 1;
    }
    SinterStatus status =
        sinter_session_create(p.model, &(SinterSessionOptions){.device = "cuda:0"}, &p.gpu, &err);
    if (!status)
        status =
            sinter_session_create(p.model, &(SinterSessionOptions){.device = "cpu"}, &p.cpu, &err);
    if (status) {
        printf("%s - %s: %s\n", status == SINTER_ERROR_NO_DEVICE ? "# skip" : "not ok", p.name,
               err.text);
        num_failed = status == SINTER_ERROR_NO_DEVICE ? 0 : 1;
    } else {
        compare_all(&p);
    }
    sinter_session_destroy(p.gpu);
    sinter_session_destroy(p.cpu);
    sinter_close(p.model);
    return num_failed ? 1 : status ? SKIP : 0;
}
