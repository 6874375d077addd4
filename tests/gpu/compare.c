/* compare FILE BOUND [NAME]: runs a compiled file on the CPU and on the first GPU, for all buckets
 * and some sizes between them, and compares. BOUND: "exact" (the same bits) or the largest
 * normalised mean square error: of one input, and of several together where one gives few values
 * (DRAWN_VALUES); "mean:BOUND": of these together alone. On the GPU each run is done twice and must
 * give the same bits, and once launch by launch (a trace). The largest bucket is also run many
 * times over, by two threads, from and to device memory on a stream of the caller's, and with all
 * rows but one changed. TAP lines without a plan; exits with 77 without a GPU. compare --probe:
 * only says whether there is a GPU. */
#include "io/io.h"
#include "quant/quant.h"
#include "runtime/cuda.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SYMS  8
#define MAX_PORTS 64
#define SKIP      77

/* An error so small that it only moves a code of 8 bits across a midpoint, which few codes are
 * near, is rare and large: of 40 values behind two such layers the mean square error is 1e-6 at one
 * input and 5e-4 at the next. There a bound holds for the mean of many. */
#define DRAWN_VALUES 4096

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

/* Sums of squares over the values of one output, of all inputs drawn. */
typedef struct Squares {
    double error, all;
    bool differ_in_kind; /* a value is not finite in one alone */
} Squares;

static void add_squares(Squares *sum, const SinterTensor *want, const SinterTensor *got,
                        uint64_t bytes)
{
    FormatId fmt = format_of_dtype(want->dtype);
    uint64_t size = (uint64_t)format_info[fmt].bits / 8, num = bytes / size;
    for (uint64_t k = 0; k < num; k++) {
        float a, b;
        format_to_f32(fmt, (const uint8_t *)want->data + k * size, &a, 1);
        format_to_f32(fmt, (const uint8_t *)got->data + k * size, &b, 1);
        if (!isfinite(a) || !isfinite(b)) {
            sum->differ_in_kind |= isnan(a) != isnan(b) || (!isnan(a) && a != b);
            continue;
        }
        sum->error += ((double)a - (double)b) * ((double)a - (double)b);
        sum->all += (double)a * (double)a;
    }
}

/* Normalised mean square error; infinite when a value is not finite in one alone. */
static double nmse(const Squares *sum)
{
    if (sum->differ_in_kind)
        return INFINITY;
    return sum->error == 0 ? 0 : sum->all == 0 ? INFINITY : sum->error / sum->all;
}

static bool same_bits(const Side *a, const Side *b)
{
    for (int i = 0; i < a->num; i++)
        if (memcmp(a->tensor[i].data, b->tensor[i].data, (size_t)a->bytes[i]) != 0)
            return false;
    return true;
}

/* "12 bytes differ, the first at byte 640 of 16000": where two runs part. */
static const char *first_difference(const Side *a, const Side *b)
{
    static char text[96];
    uint64_t num = 0, first = 0;
    text[0] = 0;
    for (int i = 0; i < a->num; i++) {
        const char *x = a->tensor[i].data, *y = b->tensor[i].data;
        for (uint64_t k = 0; k < a->bytes[i]; k++)
            if (x[k] != y[k] && num++ == 0)
                first = k;
        if (num) {
            snprintf(text, sizeof text,
                     "%" PRIu64 " bytes differ, the first at byte %" PRIu64 " of %" PRIu64, num,
                     first, (uint64_t)a->bytes[i]);
            break;
        }
    }
    return text;
}

typedef struct Pair {
    SinterModel *model;
    SinterSession *cpu, *gpu;
    const char *name;
    double bound; /* 0: exact */
    bool of_mean; /* .. of all inputs of a size, not of one */
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
    SinterStatus status = sinter_run(p->gpu, in->tensor, in->num, out->tensor, out->num, &err);
    if (status == SINTER_ERROR_UNSUPPORTED) /* sizes between buckets, where columns vary */
        printf("ok - %s # SKIP %s\n", p->name, err.text);
    else if (status)
        report(p, size, what, false, err.text);
    return !status;
}

/* One input's run on both; false when reported as failed, refused or skipped. `exact`: cleared when
 * bits differ; `sum`: one for each output. */
static bool compare_one(const Pair *p, const int64_t *size, const Side *in, Side *want, Side *got,
                        bool *exact, Squares *sum)
{
    SinterError err;
    SinterStatus status = sinter_run(p->cpu, in->tensor, in->num, want->tensor, want->num, &err);
    if (status) {
        report(p, size, "refused by the CPU", status == SINTER_ERROR_ARGUMENT, err.text);
        return false;
    }
    if (!run_gpu(p, size, "run", in, got))
        return false;
    for (int i = 0; i < want->num; i++)
        add_squares(&sum[i], &want->tensor[i], &got->tensor[i], want->bytes[i]);
    *exact = *exact && same_bits(want, got);
    return true;
}

/* How many inputs give the smallest output DRAWN_VALUES values. */
static int num_draws(const Side *out)
{
    uint64_t least = DRAWN_VALUES;
    for (int i = 0; i < out->num; i++) {
        FormatId fmt = format_of_dtype(out->tensor[i].dtype);
        uint64_t num = out->bytes[i] * 8 / (uint64_t)format_info[fmt].bits;
        least = num > 0 && num < least ? num : least;
    }
    uint64_t draws = (DRAWN_VALUES + least - 1) / least;
    return draws < 128 ? (int)draws : 128;
}

static double worst_nmse(const Squares *sum, int num)
{
    double worst = 0;
    for (int i = 0; i < num; i++)
        worst = nmse(&sum[i]) > worst ? nmse(&sum[i]) : worst;
    return worst;
}

/* first, all: the error of the first input, and of all of them together. */
static void report_outputs(const Pair *p, const int64_t *size, int draws, bool exact, double first,
                           double all)
{
    char why[128] = "";
    if (!exact)
        snprintf(why, sizeof why, "nmse %.3g, at most %.3g, of %d input%s, the first %.3g", all,
                 p->bound, draws, draws == 1 ? "" : "s", first);
    bool holds = all <= p->bound && (p->of_mean || first <= p->bound);
    report(p, size, exact ? "bits as on the CPU" : "as on the CPU", exact || holds, why);
}

/* The first input is run again, and launch by launch. */
static void compare_runs(const Pair *p, const int64_t *size, uint64_t seed, Side *in, Side *want,
                         Side *got, Side *again)
{
    Squares sum[MAX_PORTS] = {0};
    bool exact = true;
    fill(in, seed);
    if (!compare_one(p, size, in, want, got, &exact, sum))
        return;
    const double first = worst_nmse(sum, want->num);
    if (run_gpu(p, size, "second run", in, again))
        report(p, size, "same bits again", same_bits(got, again), first_difference(got, again));
    sinter_session_trace(p->gpu, 1);
    if (run_gpu(p, size, "traced run", in, again))
        report(p, size, "same bits launch by launch", same_bits(got, again),
               first_difference(got, again));
    sinter_session_trace(p->gpu, 0);
    int draws = num_draws(want);
    for (int i = 1; i < draws; i++) {
        fill(in, seed + 1000003 * (uint64_t)i);
        if (!compare_one(p, size, in, want, got, &exact, sum))
            return;
    }
    report_outputs(p, size, draws, exact, first, worst_nmse(sum, want->num));
}

static void compare_sizes(const Pair *p, const int64_t *size, uint64_t seed)
{
    Side in, want, got, again;
    bool ok = side_make(p->model, false, size, &in);
    ok = side_make(p->model, true, size, &want) && ok;
    ok = side_make(p->model, true, size, &got) && ok;
    ok = side_make(p->model, true, size, &again) && ok;
    if (ok)
        compare_runs(p, size, seed, &in, &want, &got, &again);
    else
        report(p, size, "memory", false, "");
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

/* The largest bucket, many times -------------------------------------------------------------- */

#define REPLAYS 100
#define ROUNDS  30

typedef struct Sides {
    Side in, want, got; /* want: of the first run on the GPU */
} Sides;

static void check_replays(const Pair *p, const int64_t *size, Sides *s)
{
    bool same = true;
    for (int i = 0; i < REPLAYS && same; i++)
        same = run_gpu(p, size, "replay", &s->in, &s->got) && same_bits(&s->want, &s->got);
    report(p, size, "same bits in 100 replays", same, "");
}

typedef struct Worker {
    pthread_t thread;
    const Pair *pair;
    const Sides *sides;
    const int64_t *size;
    const char *why;
    SinterError err;
} Worker;

static void *work(void *arg)
{
    Worker *w = arg;
    SinterSession *session = NULL;
    Side out;
    if (!side_make(w->pair->model, true, w->size, &out)) {
        w->why = "memory";
        return NULL;
    }
    if (sinter_session_create(w->pair->model, &(SinterSessionOptions){.device = "cuda:0"}, &session,
                              &w->err))
        w->why = w->err.text;
    for (int i = 0; i < ROUNDS && !w->why; i++) {
        const Side *in = &w->sides->in;
        if (sinter_run(session, in->tensor, in->num, out.tensor, out.num, &w->err))
            w->why = w->err.text;
        else if (!same_bits(&w->sides->want, &out))
            w->why = "the bits differ";
    }
    sinter_session_destroy(session);
    side_free(&out);
    return NULL;
}

static void check_threads(const Pair *p, const int64_t *size, const Sides *s)
{
    Worker worker[2];
    bool started[2];
    for (int i = 0; i < 2; i++) {
        worker[i] = (Worker){.pair = p, .sides = s, .size = size};
        started[i] = !pthread_create(&worker[i].thread, NULL, work, &worker[i]);
    }
    const char *why = started[0] && started[1] ? NULL : "no threads";
    for (int i = 0; i < 2; i++) {
        if (started[i])
            pthread_join(worker[i].thread, NULL);
        why = worker[i].why ? worker[i].why : why;
    }
    report(p, size, "same bits by two threads", !why, why ? why : "");
}

/* All inputs but one row become others; the row's results stay. */
static void check_rows(const Pair *p, const int64_t *size, Sides *s)
{
    int64_t rows = size[0], kept = rows / 2;
    if (!model_plan(p->model)->rows_independent || rows < 2)
        return;
    Side other;
    bool same = side_make(p->model, false, size, &other);
    if (same)
        fill(&other, 4711);
    for (int i = 0; i < other.num && same; i++) {
        size_t row = (size_t)(other.bytes[i] / (uint64_t)rows);
        memcpy((uint8_t *)other.tensor[i].data + (size_t)kept * row,
               (uint8_t *)s->in.tensor[i].data + (size_t)kept * row, row);
    }
    same = same && run_gpu(p, size, "run with other rows", &other, &s->got);
    for (int i = 0; i < s->got.num && same; i++) {
        size_t row = (size_t)(s->got.bytes[i] / (uint64_t)rows);
        same = !memcmp((uint8_t *)s->got.tensor[i].data + (size_t)kept * row,
                       (uint8_t *)s->want.tensor[i].data + (size_t)kept * row, row);
    }
    report(p, size, "a row does not depend on the others", same, "");
    side_free(&other);
}

static CudaModel *gpu_model(const Pair *p)
{
    for (int i = 0; i < p->model->num_targets; i++)
        if (p->model->target[i].shared.state)
            return p->model->target[i].shared.state;
    return NULL;
}

/* Tensors of a side in device memory: the ports of another session. */
static bool lend(const SinterSession *lender, bool is_output, const Side *side, Side *ret)
{
    SinterError err;
    *ret = *side;
    for (int i = 0; i < side->num; i++) {
        uint64_t bytes;
        if (sinter_port_memory(lender, is_output, i, &ret->tensor[i].data, &bytes, &err) ||
            bytes < side->bytes[i])
            return false;
    }
    return true;
}

/* Host to device, run, device to host, all on one stream, and one wait. */
static bool run_on_stream(const Pair *p, const Driver *d, DrvStream stream,
                          const SinterSession *lender, Sides *s, SinterError *err)
{
    Side in, out;
    bool ok = lend(lender, false, &s->in, &in) && lend(lender, true, &s->got, &out);
    for (int i = 0; i < in.num && ok; i++)
        ok = !d->cuMemcpyHtoDAsync((DrvAddress)(uintptr_t)in.tensor[i].data, s->in.tensor[i].data,
                                   s->in.bytes[i], stream);
    ok = ok && !sinter_run_async(p->gpu, in.tensor, in.num, out.tensor, out.num, stream, err);
    for (int i = 0; i < out.num && ok; i++)
        ok = !d->cuMemcpyDtoHAsync(s->got.tensor[i].data, (DrvAddress)(uintptr_t)out.tensor[i].data,
                                   s->got.bytes[i], stream);
    return !d->cuStreamSynchronize(stream) && ok;
}

static void check_device_memory(const Pair *p, const int64_t *size, Sides *s)
{
    CudaModel *model = gpu_model(p);
    SinterSession *lender = NULL;
    SinterError err = {.text = "the driver"};
    DrvStream stream = NULL;
    bool ok = !sinter_session_create(p->model, &(SinterSessionOptions){.device = "cuda:0"}, &lender,
                                     &err) &&
              !cuda_enter(model, &err);
    if (ok) {
        const Driver *d = model->driver;
        ok = !d->cuStreamCreate(&stream, DRV_STREAM_NON_BLOCKING);
        for (int i = 0; i < s->got.num; i++)
            memset(s->got.tensor[i].data, 0xa5, (size_t)s->got.bytes[i]);
        ok = ok && run_on_stream(p, d, stream, lender, s, &err) && same_bits(&s->want, &s->got);
        if (stream)
            d->cuStreamDestroy(stream);
        cuda_leave(model);
    }
    report(p, size, "same bits from device memory on a stream", ok, ok ? "" : err.text);
    sinter_session_destroy(lender);
}

static void stress(const Pair *p)
{
    int64_t size[MAX_SYMS] = {1};
    int largest = sinter_num_buckets(p->model) - 1;
    for (int i = 0; i < sinter_num_symbols(p->model); i++)
        size[i] = sinter_bucket_size(p->model, largest, i);
    Sides s;
    bool ok = side_make(p->model, false, size, &s.in);
    ok = side_make(p->model, true, size, &s.want) && ok;
    ok = side_make(p->model, true, size, &s.got) && ok;
    if (ok)
        fill(&s.in, 99);
    if (ok && run_gpu(p, size, "run", &s.in, &s.want)) {
        check_replays(p, size, &s);
        check_threads(p, size, &s);
        check_rows(p, size, &s);
        check_device_memory(p, size, &s);
    }
    side_free(&s.in);
    side_free(&s.want);
    side_free(&s.got);
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
        fprintf(stderr, "usage: compare FILE exact|BOUND|mean:BOUND [NAME]\n");
        return 2;
    }
    bool of_mean = !strncmp(argv[2], "mean:", 5);
    const char *bound = of_mean ? argv[2] + 5 : argv[2];
    Pair p = {.name = argc > 3 ? argv[3] : argv[1],
              .bound = strcmp(bound, "exact") ? strtod(bound, NULL) : 0,
              .of_mean = of_mean};
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
        stress(&p);
    }
    sinter_session_destroy(p.gpu);
    sinter_session_destroy(p.cpu);
    sinter_close(p.model);
    return num_failed ? 1 : status ? SKIP : 0;
}
