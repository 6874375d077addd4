/* Timing: every bucket on made-up data, and the trace of one run as JSON for Perfetto. */
#include "runtime/device.h"
#include "runtime/made_up.h"
#include "runtime/program_parts.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_SYMS   8
#define MAX_RUNS   100000
#define WARM_US    1e5
#define BENCH_US   1e6
#define SLOW_US    5e6       /* then fewer runs are enough */
#define SLOWEST_US 2e7       /* then one is */
#define SHOWN_US   2e6       /* and long before, a terminal says what goes on */
#define CHUNK      (1 << 22) /* elements that are made up before progress is shown */

enum { LEAST_RUNS = 10, LEAST_SLOW_RUNS = 3, LEAST_SLOWEST_RUNS = 1 };

/* One line that rewrites itself, on a terminal only; NULL ends it. */
static void show_progress(double began, const char *what, double done)
{
    static bool is_shown;
    if (what && (clock_us() - began < SHOWN_US || !isatty(STDERR_FILENO)))
        return;
    if (what)
        fprintf(stderr, "\r\033[K%3.0f %%  %s", done * 100, what);
    else if (is_shown)
        fputs("\r\033[K", stderr);
    is_shown = what != NULL;
}

/* Made-up data -------------------------------------------------------------------------------- */

static void make_up(FormatId fmt, void *data, uint64_t num)
{
    double began = clock_us();
    for (uint64_t at = 0; at < num; at += CHUNK) {
        made_up_fill(fmt, data, at, num - at < CHUNK ? num - at : CHUNK);
        show_progress(began, "making up data", (double)at / (double)num);
    }
    show_progress(began, NULL, 1);
}

int side_make_up(const Program *p, bool output, const int64_t *size, BoundSet *set)
{
    SinterError err;
    for (int i = 0; i < set->num; i++) {
        SinterTensor *t = &set->tensor[i];
        SinterStatus status = sinter_port_shape(p->model, output, i, size, t, &err);
        if (status)
            return program_fail(p, program_status_code(status), "%s", err.text);
        FormatId fmt = format_of_dtype(t->dtype);
        uint64_t num = 1, bytes = 0;
        bool ok = checked_elements(t->dim, t->rank, &num) && num <= LIMIT_ELEMENTS;
        bytes = num * (uint64_t)format_info[fmt].bits / 8;
        set->bound[i].memory = t->data = ok ? malloc((size_t)bytes + 1) : NULL;
        if (!t->data)
            return program_fail(p, PROGRAM_INPUT, "memory is exhausted");
        if (!output)
            make_up(fmt, t->data, num);
    }
    return PROGRAM_OK;
}

/* Timing -------------------------------------------------------------------------------------- */

typedef struct Times {
    double *us;
    int num;
} Times;

static int time_runs(const Program *p, const BoundSet *in, const BoundSet *out, Times *times)
{
    SinterError err;
    double begin = clock_us(), began = begin, left_warm = p->warm ? 0 : WARM_US;
    double limit = p->seconds ? 1e6 * p->seconds : BENCH_US;
    int warm = 0, most = p->repeat ? p->repeat : MAX_RUNS, least = LEAST_RUNS;
    bool timing = false;
    while (!timing ||
           (times->num < most && (p->repeat || times->num < least || clock_us() - begin < limit))) {
        double before = clock_us();
        show_progress(began, "timing",
                      timing ? fmin(1, (double)times->num / (p->repeat ? most : least)) : 0);
        SinterStatus status =
            sinter_run(p->session, in->tensor, in->num, out->tensor, out->num, &err);
        double took = clock_us() - before;
        if (status)
            return program_fail(p, program_status_code(status), "%s", err.text);
        if (timing) {
            times->us[times->num++] = took;
        } else {
            left_warm -= took;
            warm++;
            timing = p->warm ? warm >= p->warm : left_warm <= 0 && (warm >= 2 || took > BENCH_US);
            begin = clock_us();
        }
        if (clock_us() - began > SLOW_US)
            least = clock_us() - began > SLOWEST_US ? LEAST_SLOWEST_RUNS : LEAST_SLOW_RUNS;
    }
    show_progress(began, NULL, 1);
    qsort(times->us, (size_t)times->num, sizeof *times->us, doubles_order);
    return PROGRAM_OK;
}

/* Bytes of all launches and operations of the products, from one traced run. */
static int count_work(const Program *p, const BoundSet *in, const BoundSet *out, double *ret_bytes,
                      double *ret_flops)
{
    SinterError err;
    *ret_bytes = *ret_flops = 0;
    sinter_session_trace(p->session, 1);
    SinterStatus status = sinter_run(p->session, in->tensor, in->num, out->tensor, out->num, &err);
    if (status)
        return program_fail(p, program_status_code(status), "%s", err.text);
    for (int i = 0; i < sinter_num_launch_times(p->session); i++) {
        SinterLaunchTime t = sinter_launch_time(p->session, i);
        *ret_bytes += t.bytes;
        *ret_flops += !strcmp(t.family, "gemm") ? t.flops : 0;
    }
    return PROGRAM_OK;
}

/* What one size came to. */
typedef struct Result {
    const Times *times;
    const int64_t *size; /* [symbols]; NULL: that of --input */
    double bytes, flops;
    char took[128]; /* last_run_text */
} Result;

/* The least time that so large a share of the runs does not exceed. */
static double percentile(const Times *t, double share)
{
    return t->us[(int)ceil(share * t->num) - 1];
}

void last_run_text(const Program *p, char *buf, size_t size)
{
    SinterLastRun last = sinter_last_run(p->session);
    size_t at = 0;
    buf[0] = 0;
    if (!sinter_num_symbols(p->model) || !last.pieces)
        return;
    for (int s = 0; s < sinter_num_symbols(p->model) && at < size; s++)
        at += (size_t)snprintf(buf + at, size - at, "%s%s = %lld", s ? ", " : "",
                               program_shown(sinter_symbol(p->model, s)),
                               (long long)sinter_bucket_size(p->model, last.bucket, s));
    if (at >= size)
        return;
    if (last.pieces > 1)
        snprintf(buf + at, size - at, ", the largest, in %d pieces", last.pieces);
    else if (last.size != sinter_bucket_size(p->model, last.bucket, 0))
        snprintf(buf + at, size - at, ", the smallest that holds %lld", (long long)last.size);
}

/* Rows of the batch; of a model without sizes, runs. */
static double rows_of(const Program *p)
{
    int64_t size = sinter_last_run(p->session).size;
    return size ? (double)size : 1;
}

static void print_times(const Program *p, const Result *r)
{
    double median = percentile(r->times, 0.5);
    for (int s = 0; r->size && s < sinter_num_symbols(p->model); s++)
        printf("%s = %-6lld ", program_shown(sinter_symbol(p->model, s)), (long long)r->size[s]);
    printf("p50 %10.1f us  p90 %10.1f us  p99 %10.1f us  %10.0f %s/s  %8.2f GB/s  %9.2f GFLOP/s  "
           "%d runs%s%s\n",
           median, percentile(r->times, 0.9), percentile(r->times, 0.99), rows_of(p) / median * 1e6,
           sinter_num_symbols(p->model) ? "rows" : "runs", r->bytes / median * 1e-3,
           r->flops / median * 1e-3, r->times->num, r->took[0] ? "  bucket " : "", r->took);
}

static void json_ns(Sb *sb, const char *key, double us)
{
    json_count(sb, key, (uint64_t)(us * 1000 + 0.5));
}

static void json_times(Sb *sb, const Program *p, const Result *r)
{
    double median = percentile(r->times, 0.5);
    SinterLastRun last = sinter_last_run(p->session);
    json_next(sb);
    sb_put(sb, "\n  {");
    json_key(sb, "bucket");
    sb_putc(sb, '{');
    for (int s = 0; s < sinter_num_symbols(p->model); s++)
        json_count(sb, sinter_symbol(p->model, s),
                   (uint64_t)sinter_bucket_size(p->model, last.bucket, s));
    sb_putc(sb, '}');
    json_count(sb, "size", (uint64_t)last.size);
    json_count(sb, "pieces", (uint64_t)last.pieces);
    json_text(sb, "took", r->took);
    json_count(sb, "runs", (uint64_t)r->times->num);
    json_ns(sb, "p50_ns", median);
    json_ns(sb, "p90_ns", percentile(r->times, 0.9));
    json_ns(sb, "p99_ns", percentile(r->times, 0.99));
    json_ns(sb, "least_ns", r->times->us[0]);
    json_number(sb, "rows_per_second", rows_of(p) / median * 1e6);
    json_number(sb, "gigabytes_per_second", r->bytes / median * 1e-3);
    json_number(sb, "gigaflops", r->flops / median * 1e-3);
    sb_putc(sb, '}');
}

/* size NULL: what --input holds. */
static int bench_bound(const Program *p, const int64_t *size, BoundSet *in, BoundSet *out,
                       Times *times, Sb *json)
{
    Result r = {.times = times, .size = size};
    int code = size ? side_make_up(p, false, size, in) : inputs_read(p, in);
    if (!code)
        code = size ? side_make_up(p, true, size, out) : outputs_alloc(p, in, out);
    if (!code && !size)
        code = inputs_check(p, in);
    sinter_session_trace(p->session, 0);
    if (!code)
        code = time_runs(p, in, out, times);
    if (!code)
        code = count_work(p, in, out, &r.bytes, &r.flops);
    if (code)
        return code;
    last_run_text(p, r.took, sizeof r.took);
    if (json)
        json_times(json, p, &r);
    else
        print_times(p, &r);
    return PROGRAM_OK;
}

static int bench_size(const Program *p, const int64_t *size, Sb *json)
{
    BoundSet in, out;
    Times times = {.us = malloc((size_t)(p->repeat ? p->repeat : MAX_RUNS) * sizeof(double))};
    bool ok = bound_init(&in, sinter_num_inputs(p->model));
    ok = bound_init(&out, sinter_num_outputs(p->model)) && ok && times.us;
    int code = ok ? bench_bound(p, size, &in, &out, &times, json)
                  : program_fail(p, PROGRAM_INPUT, "memory is exhausted");
    bound_free(&in);
    bound_free(&out);
    free(times.us);
    return code;
}

/* "B=64": sets one size. */
static int read_size(const Program *p, const char *word, int64_t *size)
{
    size_t len = strcspn(word, "=");
    Nearest nearest;
    char name[64], *end;
    snprintf(name, sizeof name, "%.*s", (int)len, word);
    nearest_init(&nearest, name);
    for (int s = 0; s < sinter_num_symbols(p->model); s++) {
        nearest_offer(&nearest, sinter_symbol(p->model, s));
        if (strcmp(name, sinter_symbol(p->model, s)))
            continue;
        errno = 0;
        long long value = word[len] ? strtoll(word + len + 1, &end, 10) : 0;
        if (errno || value < 1 || value > LIMIT_DIM || *end)
            return program_fail(p, PROGRAM_USAGE, "--bucket takes NAME=N, got \"%s\"", word);
        size[s] = value;
        return PROGRAM_OK;
    }
    const char *best = nearest_get(&nearest);
    const char *have = best ? best : sinter_symbol(p->model, 0);
    return program_fail(p, PROGRAM_USAGE, "the model has no size \"%s\"; %s%s%s", name,
                        have ? "it has \"" : "its shapes are fixed", have ? have : "",
                        have ? "\"" : "");
}

/* Every bucket, or the one that --bucket says. */
static int bench_buckets(const Program *p, Sb *json)
{
    int64_t size[MAX_SYMS];
    int code = PROGRAM_OK, num = p->bucket.num ? 1 : sinter_num_buckets(p->model);
    for (int b = 0; !code && b < num; b++) {
        for (int s = 0; s < sinter_num_symbols(p->model); s++)
            size[s] = sinter_bucket_size(p->model, b, s);
        for (int i = 0; !code && i < p->bucket.num; i++)
            code = read_size(p, p->bucket.text[i], size);
        if (!code)
            code = bench_size(p, size, json);
    }
    return code;
}

static int write_text(const Program *p, const char *path, const Sb *sb)
{
    IoError err;
    if (!strcmp(path, "-")) {
        fputs(sb->text, stdout);
        return PROGRAM_OK;
    }
    OutFile *file = outfile_create(path, 0666, &err);
    if (file)
        outfile_write(file, sb->text, sb->len);
    return file && outfile_finish(file, &err) ? PROGRAM_OK
                                              : program_fail(p, PROGRAM_INPUT, "%s", err.text);
}

static int bench_json(const Program *p)
{
    Arena *arena = arena_create();
    if (!arena)
        return program_fail(p, PROGRAM_INPUT, "memory is exhausted");
    Sb sb;
    const char *model = sinter_model_name(p->model);
    sb_init(&sb, arena);
    sb_put(&sb, "{\"model\": ");
    sb_put_json_string(&sb, model, strlen(model));
    json_text(&sb, "device", sinter_session_device(p->session));
    json_key(&sb, "sizes");
    sb_put(&sb, "[");
    int code = p->input.num ? bench_size(p, NULL, &sb) : bench_buckets(p, &sb);
    sb_put(&sb, "]}\n");
    if (!code)
        code = write_text(p, p->as_json, &sb);
    arena_destroy(arena);
    return code;
}

int bench_run(const Program *p)
{
    int code = p->as_json     ? bench_json(p)
               : p->input.num ? bench_size(p, NULL, NULL)
                              : bench_buckets(p, NULL);
    return code || !p->trace ? code : trace_write(p);
}

/* Traces -------------------------------------------------------------------------------------- */

/* A row a layer, in the order of first launch, named by the layer's path. */
static int layer_row(Map *rows, Sb *sb, const char *layer)
{
    uintptr_t row = (uintptr_t)map_get(rows, layer);
    if (row)
        return (int)row;
    row = (uintptr_t)rows->num + 1;
    map_put(rows, layer, (void *)row);
    sb_printf(sb,
              "{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": 1, \"tid\": %d, \"args\": "
              "{\"name\": ",
              (int)row);
    sb_put_json_string(sb, layer, strlen(layer));
    sb_printf(sb,
              "}},\n{\"ph\": \"M\", \"name\": \"thread_sort_index\", \"pid\": 1, \"tid\": %d, "
              "\"args\": {\"sort_index\": %d}},\n",
              (int)row, (int)row);
    return (int)row;
}

static void put_launch(Sb *sb, const SinterLaunchTime *t, int row)
{
    const char *name = t->absorbed[0] ? t->absorbed : t->family;
    sb_put(sb, "{\"ph\": \"X\", \"pid\": 1, \"name\": ");
    sb_put_json_string(sb, name, strlen(name));
    sb_printf(sb,
              ", \"cat\": \"%s\", \"tid\": %d, \"ts\": %.3f, \"dur\": %.3f, \"args\": "
              "{\"layer\": ",
              t->family, row, t->start_us, t->duration_us);
    sb_put_json_string(sb, t->layer, strlen(t->layer));
    sb_put(sb, ", \"place\": ");
    sb_put_json_string(sb, t->place, strlen(t->place));
    double us = t->duration_us > 0 ? t->duration_us : 1e-3;
    sb_printf(sb, ", \"bytes\": %.0f, \"operations\": %.0f, \"GB/s\": %.3f, \"GFLOP/s\": %.3f}},\n",
              t->bytes, t->flops, t->bytes / us * 1e-3, t->flops / us * 1e-3);
}

int trace_write(const Program *p)
{
    char took[128];
    Arena *arena = arena_create();
    if (!arena)
        return program_fail(p, PROGRAM_INPUT, "memory is exhausted");
    Sb sb;
    Map rows;
    sb_init(&sb, arena);
    map_init(&rows, arena);
    sb_put(&sb, "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [\n");
    for (int i = 0; i < sinter_num_launch_times(p->session); i++) {
        SinterLaunchTime t = sinter_launch_time(p->session, i);
        put_launch(&sb, &t, layer_row(&rows, &sb, t.layer));
    }
    sb_put(&sb, "{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": 1, \"args\": {\"name\": ");
    const char *model = sinter_model_name(p->model);
    sb_put_json_string(&sb, model, strlen(model));
    sb_put(&sb, "}}\n], \"otherData\": {\"bucket\": ");
    last_run_text(p, took, sizeof took);
    sb_put_json_string(&sb, took, strlen(took));
    sb_put(&sb, "}}\n");
    int code = write_text(p, p->trace, &sb);
    arena_destroy(arena);
    return code;
}
