/* Times on a GPU, kept from one command to the next: a command that was ended, or whose GPU was
 * lost in the middle, goes on where it stopped. What is kept is found by everything that it depends
 * on: the plan, its kernels' code, the bucket, the kind of GPU and its driver. */
#include "choose/internal.h"
#include "io/cache.h"
#include <stdlib.h>
#include <string.h>

typedef struct GpuTimes {
    Chooser *ch;
    Choice *c;
    Probe *t;
    double *us, *graph;
    const char *why;
    Cache *cache; /* NULL: nothing is kept */
    CacheKey plan;
    Clock clock;
    bool is_open;
    Arena *arena;
} GpuTimes;

/* What is kept ------------------------------------------------------------------------------- */

/* The plan, where everything lies in memory, and the code of every kernel. */
static bool plan_key(const CudaTarget *cuda, CacheKey *ret)
{
    Bytes plan = {0};
    const DeviceCode *code = &cuda->code;
    bool ok = plan_encode(cuda->target.plan, &plan);
    for (int i = 0; i < code->num_images; i++)
        bytes_put(&plan, code->image[i].data, (size_t)code->image[i].size);
    for (int i = 0; i < code->num_launches * code->num_buckets; i++)
        bytes_put(&plan, &code->launch[i].kernel, sizeof code->launch[i].kernel);
    const CachePart part = {plan.data, plan.size};
    ok = ok && !plan.failed;
    if (ok)
        *ret = cache_key(1, &part);
    bytes_free(&plan);
    return ok;
}

static CacheKey bucket_key(const GpuTimes *g, int bucket)
{
    static const char what[] = "choose times 1 " SINTER_VERSION;
    const ChooseDevice *device = g->ch->lab.options->device;
    const CachePart part[] = {{what, sizeof what},
                              {&g->plan, sizeof g->plan},
                              {device->kind, strlen(device->kind)},
                              {&device->gpu.driver, sizeof device->gpu.driver},
                              {&bucket, sizeof bucket}};
    return cache_key(COUNT_OF(part), part);
}

static void keep_open(GpuTimes *g)
{
    char why[256];
    if (g->ch->lab.options->passes.use_cache && plan_key(&g->t->cuda, &g->plan))
        g->cache = cache_open(NULL, true, NULL, why, sizeof why);
}

/* The launches that run under a bucket. */
static int running(const CudaTarget *cuda, int bucket, int *ret_launch)
{
    const DeviceCode *code = &cuda->code;
    int num = 0;
    for (int i = 0; i < code->num_launches; i++)
        if (code->launch[i * code->num_buckets + bucket].kernel >= 0)
            ret_launch[num++] = i;
    return num;
}

/* data: the graph's time, then the launches'. */
static void put_times(GpuTimes *g, int bucket, int num, const int *launch, const double *data)
{
    g->graph[bucket] = data[0];
    for (int i = 0; i < num; i++)
        g->us[launch[i] * g->c->num_buckets + bucket] = data[1 + i];
}

static bool kept(GpuTimes *g, int bucket, int num, const int *launch)
{
    size_t size = 0;
    double *data = g->cache ? cache_get(g->cache, bucket_key(g, bucket), &size) : NULL;
    bool ok = data && size == ((size_t)num + 1) * sizeof *data;
    if (ok)
        put_times(g, bucket, num, launch, data);
    g->c->num_kept += ok;
    free(data);
    return ok;
}

/* Timing ------------------------------------------------------------------------------------- */

static ClockFault open_clock(GpuTimes *g)
{
    int file = g->is_open ? -1 : probe_file(g->t);
    if (g->is_open)
        return CLOCK_FINE;
    if (file < 0) {
        g->why = probe_problem(g->t);
        return CLOCK_FILE;
    }
    ClockFault fault = clock_open(&g->clock, file, &g->why);
    g->is_open = fault == CLOCK_FINE;
    return fault;
}

static ClockFault bucket_time(GpuTimes *g, int bucket)
{
    const DeviceCode *code = &g->t->cuda.code;
    int *launch = ARENA_NEW_ARRAY(g->arena, int, (size_t)code->num_launches + 1);
    int num = running(&g->t->cuda, bucket, launch);
    double *data = ARENA_NEW_ARRAY(g->arena, double, (size_t)num + 1);
    if (kept(g, bucket, num, launch))
        return CLOCK_FINE;
    ClockFault fault = open_clock(g);
    if (fault == CLOCK_FINE)
        fault = clock_time(&g->clock, bucket, num, data + 1, data, &g->why);
    if (fault != CLOCK_FINE)
        return fault;
    put_times(g, bucket, num, launch, data);
    if (g->cache)
        cache_put(g->cache, bucket_key(g, bucket), "times of a model for auto", data,
                  ((size_t)num + 1) * sizeof *data);
    return CLOCK_FINE;
}

static void report_lost(const GpuTimes *g)
{
    const ChooseDevice *device = g->ch->lab.options->device;
    diag_error(g->ch->lab.diag, (Span){0}, E_NO_DEVICE, "%s cannot be used any more: %s",
               device->name, g->why);
    if (g->cache)
        diag_help(g->ch->lab.diag, "what was timed is kept: the same command goes on behind it");
}

ClockFault gpu_times(Chooser *ch, Probe *t, double *us, double *graph, const char **ret_why)
{
    const ChooseDevice *device = ch->lab.options->device;
    GpuTimes g = {.ch = ch, .c = ch->c, .t = t, .us = us, .graph = graph, .arena = t->arena};
    g.clock = (Clock){.arena = ch->arena, .argv = device->argv, .ordinal = device->ordinal};
    ClockFault fault = CLOCK_FINE;
    if (!t->cuda.code.num_images && !probe_compile_gpu(t)) {
        *ret_why = probe_problem(t);
        return CLOCK_FILE;
    }
    keep_open(&g);
    for (int b = 0; b < g.c->num_buckets && fault == CLOCK_FINE; b++)
        if (bucket_counts(g.c, b)) {
            g.c->num_timed++;
            fault = bucket_time(&g, b);
        }
    clock_close(&g.clock);
    if (fault == CLOCK_GPU)
        report_lost(&g);
    cache_close(g.cache);
    *ret_why = g.why;
    return fault;
}

/* A choice as a whole ------------------------------------------------------------------------ */

ClockFault gpu_times_whole(Chooser *ch, Probe *t, ChoicePoint *point, double *us,
                           const char **ret_why)
{
    Choice *c = ch->c;
    size_t num = (size_t)t->cuda.target.plan->num_launches * (size_t)c->num_buckets;
    double *launch = ARENA_NEW_ARRAY(t->arena, double, num + 1);
    double *graph = ARENA_NEW_ARRAY(c->arena, double, (size_t)c->num_buckets + 1);
    ClockFault fault = gpu_times(ch, t, launch, graph, ret_why);
    if (fault != CLOCK_FINE)
        return fault;
    layer_times(ch, t, launch, us);
    for (int b = 0; b < c->num_buckets; b++)
        point->measured_us += c->weight[b] * graph[b];
    point->graph_us = graph;
    return fault;
}
