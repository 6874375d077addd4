/* The CPU kernels against oneDNN (int8), OpenBLAS (f32), ggml (weights of 4 bits) and the read
 * bandwidth of the machine, all in one run on the same threads. Ours and the peer take turns, so
 * that a busy machine slows both.
 *
 * usage: bench_cpu [--threads=N] [--reps=N] [--cpu-time] [--json=FILE] [--only=TEXT] [--busy]
 *
 * --busy: what numbers of threads take while a process on each processor does nothing but work */
#include "base/team.h"
#include "bench/peer_dnnl.h"
#include "bench/peer_ggml.h"
#include "bench/reading.h"
#include "kernels/cpu/cpu.h"
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef HAVE_CBLAS
#include <cblas.h>
#endif

static int threads = 1, reps = 15;
static bool busy;
static bool cpu_time; /* for a busy machine: processor time, which only compares with one thread */
static const char *only;
static FILE *json;

static double now(void)
{
    struct timespec t;
    clock_gettime(cpu_time ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *allocate(uint64_t size)
{
    void *memory = aligned_alloc(4096, (size + 4095) / 4096 * 4096);
    if (!memory) {
        fprintf(stderr, "bench_cpu: out of memory\n");
        exit(1);
    }
    memset(memory, 0, size);
    return memory;
}

static uint64_t random_state = 1;
static uint32_t random_bits(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Median and best seconds of two runs that take turns; the second may be NULL. */
typedef struct Times {
    double median, best;
} Times;
typedef void RunFn(void *arg);

/* Is the peer one that is not of this tree? Its threads spin for milliseconds after their work, in
 * the way of who comes next; who comes next then gets a pause, and wakes its own threads. */
static bool others;

static double turn(RunFn *run, void *arg)
{
    struct timespec pause = {.tv_nsec = 10000000};
    if (threads > 1 && others) {
        nanosleep(&pause, NULL);
        run(arg);
    }
    double begin = now();
    run(arg);
    return now() - begin;
}

static void take_turns(RunFn *ours, RunFn *peer, void *arg, Times *ret_ours, Times *ret_peer)
{
    double *mine = allocate(2 * (uint64_t)reps * sizeof *mine), *other = mine + reps;
    for (int i = -1; i < reps; i++) {
        double t0 = turn(ours, arg), t1 = peer ? turn(peer, arg) : 0;
        if (i < 0)
            continue;
        mine[i] = t0;
        other[i] = t1;
    }
    qsort(mine, (size_t)reps, sizeof *mine, by_value);
    qsort(other, (size_t)reps, sizeof *other, by_value);
    *ret_ours = (Times){mine[reps / 2], mine[0]};
    *ret_peer = (Times){other[reps / 2], other[0]};
    free(mine);
}

static void report(const char *name, Times ours, double work, const char *unit, Times peer,
                   const char *peer_name, double ratio, double bar)
{
    printf("%-34s %9.3f ms (best %9.3f) %8.1f %-6s", name, 1e3 * ours.median, 1e3 * ours.best,
           work / ours.median / 1e9, unit);
    if (peer.median > 0)
        printf("  %s %9.3f ms (best %9.3f)", peer_name, 1e3 * peer.median, 1e3 * peer.best);
    if (ratio > 0)
        printf("  ratio %.2f%s", ratio,
               bar <= 0       ? ""
               : ratio >= bar ? " (bar met)"
                              : " (BAR MISSED)");
    printf("\n");
    fflush(stdout);
    if (json)
        fprintf(
            json,
            "{\"name\": \"%s\", \"ms\": %.4f, \"best_ms\": %.4f, \"rate\": %.2f, \"unit\": \"%s\", "
            "\"peer\": \"%s\", \"peer_ms\": %.4f, \"ratio\": %.4f, \"bar\": %.2f}\n",
            name, 1e3 * ours.median, 1e3 * ours.best, work / ours.median / 1e9, unit, peer_name,
            1e3 * peer.median, ratio, bar);
}

static bool wanted(const char *name)
{
    return !only || strstr(name, only);
}

/* Read bandwidth ------------------------------------------------------------------------------- */

#define READ_BYTES ((int64_t)1 << 29)

typedef struct Reading {
    void *data;
    int reader;
} Reading;

static void read_run(void *arg)
{
    const Reading *r = arg;
    read_memory(r->data, READ_BYTES, r->reader, threads);
}

/* What ran: the kind of processor, which results are read by. */
static void print_processor(void)
{
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, "model name", 10)) {
            printf("processor%s", strchr(line, ':') ? strchr(line, ':') : ": unknown\n");
            break;
        }
    if (file)
        fclose(file);
    printf("instruction set: %s, %d threads of %ld processors\n", cpu_isa_name(cpu_isa()), threads,
           sysconf(_SC_NPROCESSORS_ONLN));
}

static void bench_bandwidth(void)
{
    Reading r = {.data = allocate((uint64_t)READ_BYTES)};
    for (; r.reader < num_readers(); r.reader++) {
        Times t, none;
        take_turns(read_run, NULL, &r, &t, &none);
        printf("read bandwidth, %-18s %9.1f GB/s (best), %d threads, %s\n", reader_name[r.reader],
               (double)READ_BYTES / t.best / 1e9, threads, cpu_isa_name(cpu_isa()));
    }
    free(r.data);
}

/* Launches ------------------------------------------------------------------------------------- */

#define LAUNCHES 1000

typedef struct Launches {
    int threads;
} Launches;

static void launch_nothing(void *user, int64_t begin, int64_t end, int thread)
{
    (void)user, (void)begin, (void)end, (void)thread;
}

static void launch_run(void *arg)
{
    const Launches *l = arg;
    for (int i = 0; i < LAUNCHES; i++)
        team_run(l->threads, l->threads, 1, launch_nothing, NULL);
}

/* A loop with an empty item for each thread. */
static void bench_launches(void)
{
    static const int num[] = {1, 2, 8, 16};
    for (int i = 0; i < 4; i++) {
        char name[64];
        Launches l = {.threads = num[i]};
        Times t, none;
        snprintf(name, sizeof name, "%d empty launches, %d threads", LAUNCHES, l.threads);
        if (!wanted(name))
            continue;
        take_turns(launch_run, NULL, &l, &t, &none);
        report(name, t, LAUNCHES * 1e3, "M/s", (Times){0, 0}, "", 0, 0);
    }
}

/* Products ------------------------------------------------------------------------------------- */

#define MAX_COPIES 128
typedef struct Product {
    int64_t m, n, k;
    CpuGemm g;
    void *packed[MAX_COPIES]; /* taken in turn, so that they do not stay in cache */
    int copies, next;
    void *scratch;
    CpuTensor operand[6];
    TileStep step[16];
    CpuSegment segment;
    float *dense_a, *dense_w, *dense_c; /* f32 peer */
    float *token;                       /* scales of activations */
    struct Product *peer;               /* ours, too */
    GgmlProduct *ggml;
    DnnlProduct *dnnl;
} Product;

static CpuTensor tensor(FormatId fmt, int bytes, int64_t rows, int64_t cols)
{
    CpuTensor t = {.fmt = fmt, .rows = rows, .cols = cols, .pitch = cols * bytes};
    t.row_div = 1;
    t.row_mod = rows == 1 ? 1 : INT64_MAX;
    t.col_step = 1;
    t.data = allocate((uint64_t)(rows * t.pitch));
    return t;
}

static void product_run(void *arg)
{
    Product *p = arg;
    p->g.packed = p->packed[p->next++ % p->copies];
    cpu_gemm(&p->g, p->scratch, threads);
}

static void product_finish(Product *p, const void *w, int64_t pitch, const float *scale,
                           const int32_t *zero)
{
    uint64_t bytes = cpu_pack_bytes(&p->g.spec);
    for (int i = 0; i < p->copies; i++) {
        p->packed[i] = allocate(bytes);
        if (i == 0)
            cpu_pack(&p->g.spec, w, pitch, scale, zero, NULL, p->packed[0]);
        else
            memcpy(p->packed[i], p->packed[0], bytes);
    }
    p->g.m = p->m;
    p->g.segment = &p->segment;
    p->g.num_segments = 1;
    p->g.operand = p->operand;
    p->segment.n_end = p->n / p->g.spec.parts;
    p->segment.epilogue.step = p->step;
    p->scratch = allocate(cpu_gemm_scratch(&p->g, threads));
}

static void product_free(Product *p)
{
    for (int i = 0; i < p->copies; i++)
        free(p->packed[i]);
    for (int i = 0; i < 6; i++)
        free(p->operand[i].data);
    free(p->g.a.data);
    free(p->scratch);
    free(p->token);
    free(p->dense_a);
    free(p->dense_w);
    free(p->dense_c);
    free(p);
}

static Product *product_new(int64_t m, int64_t n, int64_t k)
{
    Product *p = allocate(sizeof *p);
    p->m = m;
    p->n = n;
    p->k = k;
    p->copies = 1;
    return p;
}

static void step_add(Product *p, TileStep step)
{
    p->step[p->segment.epilogue.num_steps++] = step;
}

/* int8 ---------------------------------------------------------------------------------------- */

#ifdef HAVE_DNNL
static void dnnl_run(void *arg)
{
    dnnl_product_run(((Product *)arg)->dnnl);
}
#endif

static void bench_w8a8(int64_t m, int64_t n, int64_t k)
{
    char name[64];
    snprintf(name, sizeof name, "w8a8 bias gelu %" PRId64 "x%" PRId64 "x%" PRId64, m, n, k);
    if (!wanted(name))
        return;
    Product *p = product_new(m, n, k);
    p->g.spec = (CpuPackSpec){.fmt = FMT_I8, .act_fmt = FMT_I8, .n = n, .k = k, .parts = 1};
    p->g.a = tensor(FMT_I8, 1, m, k);
    p->g.a.quantised = true;
    p->g.a.block_rows = 1;
    int8_t *w = allocate((uint64_t)(n * k));
    for (int64_t i = 0; i < n * k; i++)
        w[i] = (int8_t)random_bits();
    for (int64_t i = 0; i < m * k; i++)
        ((int8_t *)p->g.a.data)[i] = (int8_t)random_bits();
    p->operand[0] = tensor(FMT_F32, 4, m, 1);
    p->operand[0].col_step = 0;
    p->operand[1] = tensor(FMT_F32, 4, 1, n);
    p->operand[2] = tensor(FMT_F32, 4, 1, n);
    p->operand[3] = tensor(FMT_I8, 1, m, n);
    float *token = p->operand[0].data, *channel = p->operand[1].data, *bias = p->operand[2].data;
    for (int64_t i = 0; i < m; i++)
        token[i] = 0.01f;
    for (int64_t i = 0; i < n; i++) {
        channel[i] = 0.001f;
        bias[i] = 0.1f;
    }
    float out_scale = 0.05f;
    p->operand[3].quantised = p->operand[3].is_static = true;
    p->operand[3].scale = &out_scale;
    p->g.num_operands = 4;
    step_add(p, (TileStep){.op = TILE_ACC, .fmt = FMT_I32, .dst = 0});
    step_add(p, (TileStep){.op = TILE_I32_TO_F32, .dst = 0, .src = {0}});
    step_add(p, (TileStep){.op = TILE_LOAD, .dst = 1, .tensor = 0});
    step_add(p, (TileStep){.op = TILE_MUL, .dst = 0, .src = {0, 1}});
    step_add(p, (TileStep){.op = TILE_LOAD, .dst = 1, .tensor = 1});
    step_add(p, (TileStep){.op = TILE_MUL, .dst = 0, .src = {0, 1}});
    step_add(p, (TileStep){.op = TILE_LOAD, .dst = 1, .tensor = 2});
    step_add(p, (TileStep){.op = TILE_ADD, .dst = 0, .src = {0, 1}});
    step_add(p, (TileStep){.op = TILE_GELU, .dst = 0, .src = {0}});
    step_add(p, (TileStep){.op = TILE_QUANTIZE, .src = {0}, .tensor = 3});
    product_finish(p, w, k, NULL, NULL);
    free(w);
    Times ours, peer = {0, 0};
    double ratio = 0;
#ifdef HAVE_DNNL
    p->dnnl = dnnl_product_new(m, n, k);
    others = true;
    take_turns(product_run, dnnl_run, p, &ours, &peer);
    others = false;
    ratio = peer.best / ours.best;
    dnnl_product_free(p->dnnl);
#else
    take_turns(product_run, NULL, p, &ours, &peer);
    peer = (Times){0, 0};
#endif
    report(name, ours, 2.0 * (double)m * (double)n * (double)k, "GOP/s", peer, "oneDNN", ratio,
           1.0);
    product_free(p);
}

/* Weights of few bits -------------------------------------------------------------------------- */

typedef struct Weights {
    const char *name;
    FormatId fmt, act_fmt;
    int64_t group;
    bool has_zero;
    FormatId scale_fmt; /* i8: whole scales */
} Weights;

static void fill_activation(CpuTensor *a)
{
    for (int64_t i = 0; i < a->rows * a->cols; i++) {
        float x = (float)((int)(random_bits() % 2001) - 1000) / 500.0f;
        if (a->fmt == FMT_BF16)
            ((uint16_t *)a->data)[i] = (uint16_t)num_to_bf16(x);
        else if (a->fmt == FMT_F32)
            ((float *)a->data)[i] = x;
        else
            ((uint8_t *)a->data)[i] = (uint8_t)random_bits();
    }
}

/* Of weights, so many that caches hold none of what was read before. */
static uint64_t cold_bytes(void)
{
    long cache = 0;
#ifdef _SC_LEVEL3_CACHE_SIZE
    cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
#endif
    return cache > 200 << 20 ? 3 * (uint64_t)cache : (uint64_t)600 << 20;
}

static Product *weights_product(const Weights *w, int64_t m, int64_t n, int64_t k)
{
    Product *p = product_new(m, n, k);
    bool nibbles = w->fmt == FMT_I4 || w->fmt == FMT_U4 || w->fmt == FMT_NF4 || w->fmt == FMT_E2M1;
    bool whole = w->scale_fmt == FMT_I8;
    int bytes = w->fmt == FMT_F32 ? 4 : w->fmt == FMT_BF16 ? 2 : 1;
    int act_bytes = w->act_fmt == FMT_F32 ? 4 : w->act_fmt == FMT_BF16 ? 2 : 1;
    p->g.spec = (CpuPackSpec){.fmt = w->fmt, .act_fmt = w->act_fmt, .n = n, .k = k, .parts = 1};
    p->g.spec.mainloop = w->group > 0 && !whole;
    p->g.spec.has_zero = w->has_zero;
    p->g.spec.block_rows = 1;
    p->g.spec.block_cols = whole ? 0 : w->group;
    p->g.spec.scale_fmt = w->scale_fmt;
    if (whole) {
        p->g.spec.fmt = FMT_I8;
        p->g.spec.factor_cols = w->group;
    }
    p->g.a = tensor(w->act_fmt, act_bytes, m, k);
    fill_activation(&p->g.a);
    float *token = p->token = allocate((uint64_t)m * 4);
    for (int64_t i = 0; i < m; i++)
        token[i] = 0.01f;
    if (act_bytes == 1) {
        p->g.a.quantised = true;
        p->g.a.block_rows = 1;
        p->g.a.scale = token;
    }
    int64_t pitch = nibbles ? (k + 1) / 2 : k * bytes;
    int64_t grid = n * (w->group ? (k + w->group - 1) / w->group : 1);
    uint8_t *codes = allocate((uint64_t)(n * pitch));
    for (int64_t i = 0; i < n * pitch; i++)
        codes[i] = bytes > 1 ? (uint8_t)(i % bytes == bytes - 1 ? 0x3c : 0)
                             : (uint8_t)(random_bits() & 0xb7);
    float *scale = allocate((uint64_t)grid * 4);
    int32_t *zero = allocate((uint64_t)grid * 4);
    for (int64_t i = 0; i < grid; i++) {
        scale[i] = whole ? 8 : 0.0078125f;
        zero[i] = whole ? 8 : 0;
    }
    p->copies = (int)(cold_bytes() / cpu_pack_bytes(&p->g.spec)) + 1;
    p->copies = m > 16 ? 1 : p->copies < MAX_COPIES ? p->copies : MAX_COPIES;
    p->operand[0] = tensor(FMT_BF16, 2, m, n);
    p->g.num_operands = 1;
    bool ints = !p->g.spec.mainloop && act_bytes == 1;
    step_add(p, (TileStep){.op = TILE_ACC, .fmt = ints ? FMT_I32 : FMT_F32, .dst = 0});
    if (ints)
        step_add(p, (TileStep){.op = TILE_I32_TO_F32, .dst = 0, .src = {0}});
    step_add(p, (TileStep){.op = TILE_STORE, .src = {0}, .tensor = 0});
    product_finish(p, codes, pitch, scale, zero);
    free(codes);
    free(scale);
    free(zero);
    return p;
}

/* The same weights, which no cache has, read and no more, in each way in turn: the best time is
 * that of the fastest. */
static void weights_read(void *arg)
{
    static int reader;
    Product *p = arg;
    reader = (reader + 1) % num_readers();
    read_memory(p->packed[p->next++ % p->copies], (int64_t)cpu_pack_bytes(&p->g.spec), reader,
                threads);
}

static void bench_weights(const Weights *w, int64_t m, int64_t n, int64_t k, double bar)
{
    char name[64];
    snprintf(name, sizeof name, "%s %" PRId64 "x%" PRId64 "x%" PRId64, w->name, m, n, k);
    if (!wanted(name))
        return;
    Product *p = weights_product(w, m, n, k);
    uint64_t packed = cpu_pack_bytes(&p->g.spec);
    Times ours, peer;
    take_turns(product_run, m > 16 ? NULL : weights_read, p, &ours, &peer);
    if (m > 16) {
        report(name, ours, 2.0 * (double)m * (double)n * (double)k, "GOP/s", (Times){0, 0}, "", 0,
               0);
    } else {
        report(name, ours, (double)packed, "GB/s", peer, "reading", peer.best / ours.best, bar);
    }
    product_free(p);
}

static void peer_run(void *arg)
{
    product_run(((Product *)arg)->peer);
}

/* Times of one of our kernels in those of another: at least `bar` of its speed. */
static void bench_against(const Weights *w, const Weights *other, int64_t m, int64_t n, int64_t k,
                          double bar)
{
    char name[96];
    snprintf(name, sizeof name, "%s %" PRId64 "x%" PRId64 "x%" PRId64 " by %s", w->name, m, n, k,
             other->name);
    if (!wanted(name))
        return;
    Product *p = weights_product(w, m, n, k);
    p->peer = weights_product(other, m, n, k);
    Times ours, peer;
    take_turns(product_run, peer_run, p, &ours, &peer);
    report(name, ours, 2.0 * (double)m * (double)n * (double)k, "GOP/s", peer, other->name,
           peer.median / ours.median, bar);
    product_free(p->peer);
    product_free(p);
}

#ifdef HAVE_GGML
static void ggml_run(void *arg)
{
    ggml_product_run(((Product *)arg)->ggml);
}

/* One row against ggml's product, which quantises it to 8 bits. (With more rows ggml's and our
 * tiles would have to share a thread.) */
static void bench_ggml(const Weights *w, const char *type, int64_t n, int64_t k)
{
    char name[96], peer_name[32];
    snprintf(name, sizeof name, "%s 1x%" PRId64 "x%" PRId64 " by ggml", w->name, n, k);
    snprintf(peer_name, sizeof peer_name, "ggml %s", type);
    if (!wanted(name) && !wanted(peer_name))
        return;
    Product *p = weights_product(w, 1, n, k);
    p->ggml = ggml_product_new(type, 1, n, k, p->copies, threads);
    if (p->ggml) {
        Times ours, peer;
        others = true;
        take_turns(product_run, ggml_run, p, &ours, &peer);
        others = false;
        report(name, ours, 2.0 * (double)n * (double)k, "GOP/s", peer, peer_name,
               peer.median / ours.median, 1);
    }
    ggml_product_free(p->ggml);
    product_free(p);
}
#endif

/* f32 ----------------------------------------------------------------------------------------- */

#ifdef HAVE_CBLAS
static void blas_run(void *arg)
{
    Product *p = arg;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)p->m, (int)p->n, (int)p->k, 1.0f,
                p->dense_a, (int)p->k, p->dense_w, (int)p->k, 0.0f, p->dense_c, (int)p->n);
}
#endif

static void bench_f32(int64_t m, int64_t n, int64_t k)
{
    char name[64];
    snprintf(name, sizeof name, "f32 %" PRId64 "x%" PRId64 "x%" PRId64, m, n, k);
    if (!wanted(name))
        return;
    Product *p = product_new(m, n, k);
    p->g.spec = (CpuPackSpec){.fmt = FMT_F32, .act_fmt = FMT_F32, .n = n, .k = k, .parts = 1};
    p->g.a = tensor(FMT_F32, 4, m, k);
    fill_activation(&p->g.a);
    p->dense_w = allocate((uint64_t)(n * k) * 4);
    for (int64_t i = 0; i < n * k; i++)
        p->dense_w[i] = (float)((int)(random_bits() % 2001) - 1000) / 500.0f;
    p->operand[0] = tensor(FMT_F32, 4, m, n);
    p->g.num_operands = 1;
    step_add(p, (TileStep){.op = TILE_ACC, .fmt = FMT_F32, .dst = 0});
    step_add(p, (TileStep){.op = TILE_STORE, .src = {0}, .tensor = 0});
    product_finish(p, p->dense_w, k * 4, NULL, NULL);
    Times ours, peer = {0, 0};
    double ratio = 0;
#ifdef HAVE_CBLAS
    p->dense_a = allocate((uint64_t)(m * k) * 4);
    memcpy(p->dense_a, p->g.a.data, (size_t)(m * k) * 4);
    p->dense_c = allocate((uint64_t)(m * n) * 4);
    others = true;
    take_turns(product_run, blas_run, p, &ours, &peer);
    others = false;
    ratio = peer.best / ours.best;
#else
    take_turns(product_run, NULL, p, &ours, &peer);
    peer = (Times){0, 0};
#endif
    report(name, ours, 2.0 * (double)m * (double)n * (double)k, "GOP/s", peer, "OpenBLAS", ratio,
           1.0);
    product_free(p);
}

/* Busy processors ----------------------------------------------------------------------------- */

#define MOST_BUSY 64

/* A process for each processor that does nothing but take its time; returns how many. */
static int busy_start(pid_t *ret)
{
    int num = processors_allowed();
    num = num < MOST_BUSY ? num : MOST_BUSY;
    for (int i = 0; i < num; i++) {
        ret[i] = fork();
        if (ret[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            cpu_set_t one;
            CPU_ZERO(&one);
            CPU_SET(i, &one);
            sched_setaffinity(0, sizeof one, &one);
            for (volatile unsigned turn = 0;; turn++)
                continue;
        }
    }
    return num;
}

static double processor_time(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Medians of both times, whole seconds of runs at a time: the scheduler's turns last milliseconds.
 */
typedef struct BusyTimes {
    double elapsed, processor;
} BusyTimes;

static BusyTimes busy_times(Product *p, int num, int runs)
{
    double *elapsed = allocate(2 * (uint64_t)reps * sizeof *elapsed), *processor = elapsed + reps;
    int before = threads;
    threads = num;
    for (int i = -1; i < reps; i++) {
        double c0 = processor_time(), t0 = now();
        for (int run = 0; run < runs; run++)
            product_run(p);
        if (i < 0)
            continue;
        elapsed[i] = (now() - t0) / runs;
        processor[i] = (processor_time() - c0) / runs;
    }
    threads = before;
    qsort(elapsed, (size_t)reps, sizeof *elapsed, by_value);
    qsort(processor, (size_t)reps, sizeof *processor, by_value);
    BusyTimes t = {elapsed[reps / 2], processor[reps / 2]};
    free(elapsed);
    return t;
}

/* As many threads as there are processors, which is the default, beside the best number of them:
 * wanted are at most 1.5 of its time and 1.3 of its processor time. */
static void bench_busy(const Weights *w, int64_t m, int64_t n, int64_t k)
{
    int most = processors_allowed(), best = 1;
    Product *p = weights_product(w, m, n, k);
    BusyTimes least = {0, 0}, all = {0, 0};
    for (int num = 1; num <= most; num += num < 4 ? 1 : num / 2) {
        all = busy_times(p, num, m > 16 ? 10 : 400);
        printf("busy: %s %" PRId64 "x%" PRId64 "x%" PRId64 ", %d threads: %.3f ms, %.3f ms of "
               "processors\n",
               w->name, m, n, k, num, 1e3 * all.elapsed, 1e3 * all.processor);
        if (num == 1 || all.elapsed < least.elapsed) {
            least = all;
            best = num;
        }
    }
    double time = all.elapsed / least.elapsed, work = all.processor / least.processor;
    printf("busy: default %.2f of the time and %.2f of the processor time of %d threads (%s)\n",
           time, work, best, time <= 1.5 && work <= 1.3 ? "bars met" : "BAR MISSED");
    fflush(stdout);
    product_free(p);
}

static void bench_all_busy(const Weights *few, const Weights *many)
{
    pid_t child[MOST_BUSY];
    int num = busy_start(child);
    threads = processors_allowed();
    team_set_threads(threads);
    bench_busy(few, 1, 4096, 11008);
    bench_busy(many, 512, 4096, 4096);
    for (int i = 0; i < num; i++) {
        kill(child[i], SIGKILL);
        waitpid(child[i], NULL, 0);
    }
}

/* Packing ------------------------------------------------------------------------------------- */

typedef struct PackRun {
    CpuPackSpec spec;
    void *codes, *packed;
    float *scale;
    int32_t *zero;
    int64_t pitch;
} PackRun;

static void pack_run(void *arg)
{
    PackRun *p = arg;
    cpu_pack(&p->spec, p->codes, p->pitch, p->scale, p->zero, NULL, p->packed);
}

static void bench_pack(const Weights *w, int64_t n, int64_t k)
{
    char name[64];
    snprintf(name, sizeof name, "pack %s", w->name);
    if (!wanted(name))
        return;
    bool nibbles = w->fmt == FMT_I4 || w->fmt == FMT_U4 || w->fmt == FMT_NF4 || w->fmt == FMT_E2M1;
    PackRun p = {.spec = {.fmt = w->fmt, .act_fmt = w->act_fmt, .n = n, .k = k, .parts = 1}};
    p.spec.mainloop = w->group > 0;
    p.spec.has_zero = w->has_zero;
    p.spec.block_rows = 1;
    p.spec.block_cols = w->group;
    p.spec.scale_fmt = w->scale_fmt;
    p.pitch = nibbles ? k / 2 : w->fmt == FMT_BF16 ? 2 * k : k;
    p.codes = allocate((uint64_t)(n * p.pitch));
    p.scale = allocate((uint64_t)(n * k));
    p.zero = allocate((uint64_t)(n * k));
    p.packed = allocate(cpu_pack_bytes(&p.spec));
    Times ours, none;
    take_turns(pack_run, NULL, &p, &ours, &none);
    report(name, ours, 2.0 * (double)(n * k), "GB/s", (Times){0, 0}, "", 0,
           0); /* of bf16, 1 thread */
    free(p.codes);
    free(p.scale);
    free(p.zero);
    free(p.packed);
}

/* OpenBLAS takes a processor that it does not know for an old one and reads this choice when it is
 * loaded, as oneDNN's OpenMP reads its number of threads, so the program starts itself again with
 * the best fitting ones. */
static void prepare_peers(char **argv)
{
    char num[16];
    snprintf(num, sizeof num, "%d", threads);
    if (getenv("OMP_NUM_THREADS") && !strcmp(getenv("OMP_NUM_THREADS"), num))
        return;
    setenv("OMP_NUM_THREADS", num, 1);
    if (cpu_isa() >= CPU_AVX512)
        setenv("OPENBLAS_CORETYPE", "SkylakeX", 0);
    execv("/proc/self/exe", argv);
}

/* Of a name, or of none: false. */
static bool limit_isa(const char *name)
{
    for (int isa = 0; isa < NUM_CPU_ISAS; isa++)
        if (!strcmp(name, cpu_isa_name((CpuIsa)isa))) {
            cpu_isa_limit((CpuIsa)isa);
            return true;
        }
    return false;
}

/* False: one is not known. */
static bool read_options(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (!strncmp(argv[i], "--threads=", 10))
            threads = atoi(argv[i] + 10);
        else if (!strncmp(argv[i], "--reps=", 7))
            reps = atoi(argv[i] + 7);
        else if (!strcmp(argv[i], "--cpu-time"))
            cpu_time = true;
        else if (!strcmp(argv[i], "--busy"))
            busy = true;
        else if (!strncmp(argv[i], "--only=", 7))
            only = argv[i] + 7;
        else if (!strncmp(argv[i], "--json=", 7))
            json = fopen(argv[i] + 7, "w");
        else if (strncmp(argv[i], "--isa=", 6) || !limit_isa(argv[i] + 6))
            return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    threads = team_threads();
    if (!read_options(argc, argv))
        return fprintf(stderr,
                       "usage: %s [--threads=N] [--reps=N] [--cpu-time] [--json=FILE] "
                       "[--only=TEXT] [--isa=NAME] [--busy]\n",
                       argv[0]),
               2;
    threads = threads < 1 ? 1 : threads;
    reps = reps < 1 ? 1 : reps;
    prepare_peers(argv);
    team_set_threads(threads);
#ifdef HAVE_CBLAS
    openblas_set_num_threads(threads);
#endif
    static const Weights w4a16 = {"w4a16 g128 asym", FMT_I4, FMT_BF16, 128, true, FMT_F16};
    static const Weights w4a16s = {"w4a16 g128 sym", FMT_I4, FMT_BF16, 128, false, FMT_F16};
    static const Weights w4a8 = {"w4a8 g128", FMT_I4, FMT_I8, 128, false, FMT_F32};
    static const Weights nf4 = {"nf4 g64", FMT_NF4, FMT_BF16, 64, false, FMT_F32};
    static const Weights nvfp4 = {"nvfp4 w e2m1 g16 e4m3", FMT_E2M1, FMT_BF16, 16, false, FMT_E4M3};
    static const Weights fp8 = {"w e4m3 g128", FMT_E4M3, FMT_BF16, 128, false, FMT_F32};
    static const Weights w8 = {"w8a8 group 128", FMT_I8, FMT_I8, 128, false, FMT_F32};
    static const Weights whole = {"w4a8 whole g128", FMT_U4, FMT_I8, 128, false, FMT_I8};
    static const Weights channel = {"w8a8", FMT_I8, FMT_I8, 0, false, FMT_F32};
#ifdef HAVE_GGML
    static const Weights w4a8s = {"w4a8 g32", FMT_I4, FMT_I8, 32, false, FMT_F16};
    static const Weights w4a16s32 = {"w4a16 g32 sym", FMT_I4, FMT_BF16, 32, false, FMT_F16};
#endif
    static const Weights mxfp4 = {"mxfp4 g32", FMT_E2M1, FMT_BF16, 32, false, FMT_E8M0};
    static const Weights f32 = {"f32", FMT_F32, FMT_F32, 0, false, FMT_F32};
    static const Weights bf16 = {"bf16", FMT_BF16, FMT_BF16, 0, false, FMT_F32};
#ifdef HAVE_CBLAS
    printf("OpenBLAS kernels: %s\n", openblas_get_corename());
#endif
#ifdef HAVE_DNNL
    printf("oneDNN: %s\n", dnnl_peer_version());
#endif
    print_processor();
    if (busy) {
        bench_all_busy(&w4a16, &bf16);
        return 0;
    }
    bench_bandwidth();
    bench_launches();
    bench_w8a8(512, 4096, 4096);
    bench_w8a8(64, 11008, 4096);
    bench_w8a8(64, 4096, 11008);
    bench_f32(512, 4096, 4096);
    bench_weights(&w4a16, 1, 4096, 11008, 0.85);
    bench_weights(&w4a16, 1, 11008, 4096, 0.85);
    bench_weights(&w4a16s, 1, 4096, 11008, 0.85);
    bench_weights(&w4a8, 1, 4096, 11008, 0);
    bench_weights(&nf4, 1, 4096, 11008, 0.75);
    bench_weights(&nvfp4, 1, 4096, 11008, 0.75);
    bench_weights(&mxfp4, 1, 4096, 11008, 0.75);
    bench_weights(&fp8, 1, 4096, 11008, 0.85);
    bench_weights(&w8, 1, 4096, 11008, 0);
    bench_weights(&bf16, 1, 4096, 11008, 0.92);
    bench_weights(&w4a16, 512, 4096, 4096, 0);
    bench_weights(&w4a8, 512, 4096, 4096, 0);
    bench_weights(&w8, 512, 4096, 4096, 0);
    bench_weights(&nvfp4, 512, 4096, 4096, 0);
    bench_weights(&fp8, 512, 4096, 4096, 0);
    bench_weights(&bf16, 512, 4096, 4096, 0);
    bench_against(&bf16, &f32, 512, 4096, 4096, cpu_isa() == CPU_AMX ? 3 : 0);
    bench_against(&w4a16, &bf16, 512, 4096, 4096, 0.8);
    for (int64_t m = 1; m <= 512; m *= m == 1 ? 16 : 32) {
        bench_against(&whole, &channel, m, 4096, 14336, 0);
        bench_against(&whole, &channel, m, 28672, 4096, 0);
    }
    bench_against(&whole, &w4a8, 1, 4096, 14336, 0);
    bench_against(&whole, &w4a8, 1, 28672, 4096, 0);
#ifdef HAVE_GGML
    bench_ggml(&w4a8s, "q4_0", 11008, 4096);
    bench_ggml(&w4a16s32, "q4_0", 11008, 4096);
    bench_ggml(&w4a8, "q4_K", 11008, 4096);
    bench_ggml(&w4a16, "q4_K", 11008, 4096);
#endif
    bench_pack(&w4a16, 4096, 4096);
    bench_pack(&w8, 4096, 4096);
    bench_pack(&bf16, 4096, 4096);
    if (json)
        fclose(json);
    return 0;
}
