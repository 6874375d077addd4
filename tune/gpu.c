/* Inside a process of `sinter tune`: one kernel's time. Nothing is freed but between products; the
 * process ends soon. */
#include "runtime/cuda.h"
#include "tune/tune.h"

#include <stdlib.h>
#include <string.h>

#define MAX_SETS       48 /* copies of the weights */
#define MAX_LAUNCHES   64 /* of a graph */
#define GRAPH_US       300.0
#define LONG_US        2000.0  /* of a graph, with fewer weights than there are */
#define BURST_US       12000.0 /* the replays of a burst together */
#define SETTLE_US      1e5     /* of replays without a pause until clocks are those that stay, .. */
#define SUSTAINED_US   3e4     /* .. and of those that are measured then */
#define QUEUED         4       /* of them, behind the one that runs */
#define NUM_EVENTS     (QUEUED + 2)
#define LONG_LAUNCH_US 25.0 /* are measured so, .. */
#define NEAR_BEST      1.2  /* .. but what takes so many times as long as the fastest */
#define SLOW           1.5  /* likewise: has the fewest replays */
#define WARM_US        1e5  /* of replays before the first, for the clocks, .. */
#define ANEW_US        3e4  /* .. and before the first of another product */
#define MIN_REPLAYS    5
#define MAX_REPLAYS    100
#define PATTERN_BYTES  (UINT64_C(1) << 20)
#define DEVIATIONS     7.0 /* between the least and the greatest code of a format */

/* What memory is filled with: elements of a format, numbers that codes are multiplied by, zeros. */
typedef enum Pattern {
    PATTERN_ELEMENTS = 0, /* + FormatId */
    PATTERN_SCALES = NUM_FORMATS,
    PATTERN_ZERO_POINTS,
    PATTERN_ZEROS,
    NUM_PATTERNS
} Pattern;

struct TuneSession {
    const Driver *d;
    DrvContext context;
    DrvStream stream;
    DrvEvent event[NUM_EVENTS]; /* around replays */
    bool early;                 /* kernels wait for their producers themselves */
    double cold_us;             /* of replays that are still to warm it up */
    int processors;
    uint64_t l2;
    DrvAddress pattern[NUM_PATTERNS]; /* PATTERN_BYTES each; 0: not made yet */
    /* of the product at hand */
    const PlanLaunch *launch;
    int64_t rows;
    const Plan *plan;
    int num_roots;
    DrvAddress *root; /* [plan->num_tensors]; 0: unused */
    int num_sets;
    DrvAddress set[MAX_SETS];      /* the weight */
    uint64_t weight_bytes;         /* of each */
    CudaLaunch launched[MAX_SETS]; /* the kernel at hand, bound to each */
    void *params;                  /* of these */
    DrvAddress workspace;
    uint64_t workspace_bytes;
};

static bool check(const TuneSession *s, DrvResult result, const char *what, char *text)
{
    const char *name = NULL;
    if (result == DRV_SUCCESS)
        return true;
    s->d->cuGetErrorName(result, &name);
    snprintf(text, TUNE_TEXT, "%s: %s", what, name ? name : "an unknown error");
    return false;
}

/* Session -------------------------------------------------------------------------------------- */

static bool look_at_gpu(TuneSession *s, DrvDevice device, TuneGpu *ret, char *text)
{
    const Driver *d = s->d;
    int major = 0, minor = 0, l2 = 0;
    size_t free_bytes = 0, total = 0;
    bool ok =
        check(s, d->cuDeviceGetAttribute(&major, DRV_DEVICE_COMPUTE_CAPABILITY_MAJOR, device),
              "asking the GPU", text) &&
        check(s, d->cuDeviceGetAttribute(&minor, DRV_DEVICE_COMPUTE_CAPABILITY_MINOR, device),
              "asking the GPU", text) &&
        check(s, d->cuDeviceGetAttribute(&ret->processors, DRV_DEVICE_MULTIPROCESSOR_COUNT, device),
              "asking the GPU", text) &&
        check(s, d->cuDeviceGetAttribute(&l2, DRV_DEVICE_L2_CACHE_SIZE, device), "asking the GPU",
              text) &&
        check(s, d->cuMemGetInfo(&free_bytes, &total), "asking the GPU", text);
    ret->capability = 10 * major + minor;
    ret->memory = total;
    ret->l2 = s->l2 = (uint64_t)l2;
    s->processors = ret->processors;
    s->early = ret->capability >= 90 && d->version >= 12030;
    return ok;
}

TuneSession *tune_open(int ordinal, TuneGpu *ret, char text[TUNE_TEXT])
{
    SinterStatus status;
    SinterError err;
    DrvDevice device;
    TuneSession *s = calloc(1, sizeof *s);
    snprintf(text, TUNE_TEXT, "memory is exhausted");
    if (!s)
        return NULL;
    s->cold_us = WARM_US;
    s->d = driver_get(&status, &err);
    if (!s->d) {
        snprintf(text, TUNE_TEXT, "%.*s", TUNE_TEXT - 1, err.text);
        return NULL;
    }
    bool ok =
        check(s, s->d->cuDeviceGet(&device, ordinal), "opening the GPU", text) &&
        check(s, s->d->cuDevicePrimaryCtxRetain(&s->context, device), "starting the GPU", text) &&
        check(s, s->d->cuCtxPushCurrent(s->context), "entering the GPU", text) &&
        check(s, s->d->cuStreamCreate(&s->stream, DRV_STREAM_NON_BLOCKING), "creating a stream",
              text) &&
        look_at_gpu(s, device, ret, text);
    for (int i = 0; i < NUM_EVENTS && ok; i++)
        ok = check(s, s->d->cuEventCreate(&s->event[i], DRV_EVENT_DEFAULT), "creating an event",
                   text);
    return ok ? s : NULL;
}

/* Data ----------------------------------------------------------------------------------------- */

static uint32_t next_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 32);
}

/* Normal, nearly: the sum of a word's bytes, of deviation 1. */
static float next_normal(uint64_t *state)
{
    uint32_t r = next_random(state), sum = 0;
    for (int i = 0; i < 32; i += 8)
        sum += r >> i & 0xff;
    return ((float)sum - 510) / 148;
}

/* What a product takes where power limits it depends on how many bits change from one number to the
 * next: elements are normal, as trained weights and activations are, and scaled as quantisers do.
 */
static void fill_elements(FormatId fmt, uint32_t *word, uint64_t num)
{
    const FormatInfo *info = &format_info[fmt];
    uint64_t seed = 1;
    bool in_planes = info->bits < 4 || 32 % info->bits, is_code = info->bits <= 8;
    double low = is_code ? info->qmin : -DEVIATIONS / 2, high = is_code ? info->qmax : -low;
    float middle = (float)(low + high) / 2, deviation = (float)(high - low) / DEVIATIONS;
    for (uint64_t i = 0; i < num; i++) {
        word[i] = in_planes ? next_random(&seed) : 0;
        for (int at = 0; at < 32 && !in_planes; at += info->bits)
            word[i] |= format_encode(fmt, middle + deviation * next_normal(&seed)) << at;
    }
}

static void fill_pattern(Pattern pattern, uint32_t *word, uint64_t num)
{
    uint64_t seed = 1;
    if (pattern < PATTERN_SCALES)
        fill_elements((FormatId)pattern, word, num);
    for (uint64_t i = 0; i < num && pattern >= PATTERN_SCALES; i++) {
        uint32_t r = next_random(&seed);
        word[i] = pattern == PATTERN_SCALES        ? (r & 0x03ffffff) | 0x3c000000
                  : pattern == PATTERN_ZERO_POINTS ? r % 8
                                                   : 0;
    }
}

static Pattern elements_of(FormatId fmt)
{
    return fmt == FMT_I32 ? PATTERN_ZERO_POINTS : PATTERN_ELEMENTS + fmt;
}

static bool make_pattern(TuneSession *s, Pattern pattern, char *text)
{
    uint32_t *word = malloc(PATTERN_BYTES);
    if (word)
        fill_pattern(pattern, word, PATTERN_BYTES / 4);
    bool ok = word &&
              check(s, s->d->cuMemAlloc(&s->pattern[pattern], PATTERN_BYTES), "allocating", text) &&
              check(s, s->d->cuMemcpyHtoDAsync(s->pattern[pattern], word, PATTERN_BYTES, s->stream),
                    "filling memory", text) &&
              check(s, s->d->cuStreamSynchronize(s->stream), "filling memory", text);
    free(word);
    return ok;
}

/* `size` bytes of device memory with a pattern. */
static bool fill(TuneSession *s, DrvAddress to, uint64_t size, Pattern pattern, char *text)
{
    bool ok = s->pattern[pattern] || make_pattern(s, pattern, text);
    for (uint64_t at = 0; ok && at < size; at += PATTERN_BYTES) {
        uint64_t num = size - at < PATTERN_BYTES ? size - at : PATTERN_BYTES;
        ok = check(s, s->d->cuMemcpyAsync(to + at, s->pattern[pattern], num, s->stream),
                   "filling memory", text);
    }
    return ok;
}

/* [from, to) of a tensor; `to` 0: there is no such part. */
static bool fill_part(TuneSession *s, DrvAddress base, uint64_t from, uint64_t to, Pattern pattern,
                      char *text)
{
    return to <= from || fill(s, base + from, to - from, pattern, text);
}

static uint64_t root_bytes(const CudaKernel *k, int root)
{
    const PlanTensor *t = &k->plan->tensor[root];
    return t->storage == STORAGE_CONST ? t->bytes : k->layout[root].at + k->layout[root].bytes;
}

/* A tensor that is no packed weight: codes or elements, then scales, zero points, outer scale. */
static bool make_root(TuneSession *s, const CudaKernel *k, int root, char *text)
{
    const PlanTensor *t = &k->plan->tensor[root];
    const PlanLayout *l = &k->layout[root];
    uint64_t bytes = root_bytes(k, root);
    if (s->root[root] || !bytes)
        return true;
    DrvAddress base;
    if (!check(s, s->d->cuMemAlloc(&base, bytes), "allocating", text))
        return false;
    s->root[root] = base;
    if (!t->quantised || t->storage == STORAGE_CONST)
        return fill(s, base, bytes, elements_of(t->fmt), text);
    bool zeros = t->scheme.zero != ZERO_NONE;
    uint64_t outer = t->scheme.outer ? l->outer_at : bytes;
    return fill(s, base, bytes, elements_of(t->fmt), text) &&
           (l->params_root != root ||
            (fill_part(s, base, l->scale_at, zeros ? l->zero_at : outer, PATTERN_SCALES, text) &&
             (!zeros || fill_part(s, base, l->zero_at, outer, PATTERN_ZERO_POINTS, text)) &&
             fill_part(s, base, outer, bytes, PATTERN_SCALES, text)));
}

/* As the candidate's layout has it, which the plan may not take in the end. */
static uint64_t weight_bytes(const CudaKernel *k)
{
    int32_t root = k->layout[k->launch->w].root;
    return k->plan->tensor[k->launch->w].packed ? k->packed.bytes : root_bytes(k, root);
}

static bool make_weight(TuneSession *s, const CudaKernel *k, DrvAddress *ret, char *text)
{
    const PlanTensor *w = &k->plan->tensor[k->launch->w];
    uint64_t bytes = weight_bytes(k);
    uint64_t scales = (uint64_t)k->packed.scale_at, zeros = (uint64_t)k->packed.zero_at;
    uint64_t tiny = (uint64_t)k->packed.tiny_at; /* no scale is */
    if (!check(s, s->d->cuMemAlloc(ret, bytes), "allocating", text) ||
        !fill(s, *ret, bytes, elements_of(w->packed ? k->spec.fmt : w->fmt), text))
        return false;
    if (!w->packed)
        return true;
    return (!scales ||
            fill_part(s, *ret, scales, zeros > scales ? zeros : bytes, PATTERN_SCALES, text)) &&
           (!zeros || fill_part(s, *ret, zeros, scales > zeros ? scales : bytes,
                                PATTERN_ZERO_POINTS, text)) &&
           (!tiny || fill_part(s, *ret, tiny, bytes, PATTERN_ZEROS, text));
}

static void forget_product(TuneSession *s)
{
    for (int i = 0; i < s->num_roots; i++)
        if (s->root[i])
            s->d->cuMemFree(s->root[i]);
    for (int i = 0; i < s->num_sets; i++)
        s->d->cuMemFree(s->set[i]);
    free(s->root);
    s->root = NULL;
    s->num_roots = s->num_sets = 0;
    s->launch = NULL;
    s->cold_us = s->cold_us > ANEW_US ? s->cold_us : ANEW_US;
}

/* Tensors of the launch, and so many weights that each has left the L2 when its turn comes. */
static bool make_product(TuneSession *s, const CudaKernel *k, int64_t rows, char *text)
{
    if (s->launch == k->launch && s->plan == k->plan && s->rows == rows &&
        s->weight_bytes == weight_bytes(k))
        return true;
    forget_product(s);
    s->plan = k->plan;
    s->rows = rows;
    s->num_roots = k->plan->num_tensors;
    s->root = calloc((size_t)s->num_roots, sizeof *s->root);
    if (!s->root)
        return false;
    for (int i = 0; i <= k->launch->num_operands; i++) {
        int t = i < k->launch->num_operands ? k->launch->operand[i].tensor : k->launch->a;
        if (!make_root(s, k, k->layout[t].root, text) ||
            (k->plan->tensor[t].quantised && !k->plan->tensor[t].packed &&
             !make_root(s, k, k->layout[t].params_root, text)))
            return false;
    }
    uint64_t bytes = weight_bytes(k);
    s->weight_bytes = bytes;
    uint64_t sets = bytes ? 3 * s->l2 / bytes + 2 : 1;
    for (; s->num_sets < MAX_SETS && (uint64_t)s->num_sets < sets; s->num_sets++)
        if (!make_weight(s, k, &s->set[s->num_sets], text))
            return false;
    s->launch = k->launch;
    return true;
}

/* A workspace for the kernel, cleared once: kernels leave its counters zero. */
static bool make_workspace(TuneSession *s, uint64_t bytes, char *text)
{
    if (bytes <= s->workspace_bytes)
        return true;
    s->d->cuMemFree(s->workspace);
    s->workspace_bytes = 0;
    s->workspace = 0;
    if (!check(s, s->d->cuMemAlloc(&s->workspace, bytes), "allocating", text))
        return false;
    s->workspace_bytes = bytes;
    return check(s, s->d->cuMemsetD8Async(s->workspace, 0, bytes, s->stream), "clearing", text) &&
           check(s, s->d->cuStreamSynchronize(s->stream), "clearing", text);
}

/* Launching ------------------------------------------------------------------------------------ */

/* The kernel over each of the weights. */
static bool bind_sets(TuneSession *s, const CudaKernel *k, const DeviceLaunch *d,
                      DrvFunction function, char *text)
{
    size_t room = cuda_params_bytes(k->launch);
    int32_t weight = k->layout[k->launch->w].root;
    CudaPlace place = {.driver = s->d,
                       .processors = s->processors,
                       .plan = k->plan,
                       .layout = k->layout,
                       .size = k->size,
                       .root = s->root,
                       .workspace = s->workspace};
    free(s->params);
    s->params = aligned_alloc(DEVICE_MAP_ALIGN, room * (size_t)s->num_sets);
    DrvAddress kept = s->root[weight];
    bool ok = s->params != NULL;
    for (int i = 0; i < s->num_sets && ok; i++) {
        s->root[weight] = s->set[i];
        ok = check(
            s,
            cuda_bind(&place, k->launch, d, (char *)s->params + (size_t)i * room, &s->launched[i]),
            "binding", text);
        s->launched[i].function = function;
    }
    s->root[weight] = kept;
    return ok;
}

static bool load(const TuneSession *s, const TuneItem *item, int smem, DrvModule *module,
                 DrvFunction *ret, char *text)
{
    return check(s, s->d->cuModuleLoadDataEx(module, item->image, 0, NULL, NULL), "loading",
                 text) &&
           check(s, s->d->cuModuleGetFunction(ret, *module, item->entry), "loading", text) &&
           (smem == 0 ||
            check(s, s->d->cuFuncSetAttribute(*ret, DRV_FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES, smem),
                  "asking for shared memory", text));
}

static bool capture(const TuneSession *s, int launches, DrvGraphExec *ret, char *text)
{
    DrvGraph graph = NULL;
    bool ok = check(s, s->d->cuStreamBeginCapture(s->stream, DRV_STREAM_CAPTURE_THREAD_LOCAL),
                    "capturing", text);
    if (!ok)
        return false;
    for (int i = 0; i < launches && ok; i++)
        ok =
            check(s, cuda_launch(s->d, &s->launched[i % s->num_sets], s->stream, s->early && i > 0),
                  "launching", text);
    DrvResult ended = s->d->cuStreamEndCapture(s->stream, &graph);
    ok = ok && check(s, ended, "capturing", text) &&
         check(s, s->d->cuGraphInstantiate(ret, graph, 0), "making a graph", text) &&
         check(s, s->d->cuGraphUpload(*ret, s->stream), "making a graph", text);
    if (graph)
        s->d->cuGraphDestroy(graph);
    return ok;
}

/* The `at`-th of the events that replays lie between. */
static bool mark(const TuneSession *s, int at, char *text)
{
    return check(s, s->d->cuEventRecord(s->event[at % NUM_EVENTS], s->stream), "running", text);
}

/* Queues a replay behind mark `at`, and the next mark behind it. */
static bool queue(const TuneSession *s, DrvGraphExec graph, int at, char *text)
{
    return check(s, s->d->cuGraphLaunch(graph, s->stream), "running", text) &&
           mark(s, at + 1, text);
}

/* Waits for the replay behind mark `at`: what it took. */
static bool await(const TuneSession *s, int at, double *ret_us, char *text)
{
    float ms = 0;
    DrvEvent begin = s->event[at % NUM_EVENTS], end = s->event[(at + 1) % NUM_EVENTS];
    bool ok = check(s, s->d->cuEventSynchronize(end), "running", text) &&
              check(s, s->d->cuEventElapsedTime(&ms, begin, end), "running", text);
    *ret_us = 1e3 * (double)ms;
    return ok;
}

static bool replay(const TuneSession *s, DrvGraphExec graph, double *ret_us, char *text)
{
    return mark(s, 0, text) && queue(s, graph, 0, text) && await(s, 0, ret_us, text);
}

/* An idle GPU's clocks are low; and the first candidate of a product, behind the copies that made
 * its tensors, was up to 8 % slower than it is in the middle of others. */
static bool warm_up(TuneSession *s, DrvGraphExec graph, char *text)
{
    double us = 0;
    for (int i = 0; s->cold_us > 0 && i < 1000; i++, s->cold_us -= us)
        if (!replay(s, graph, &us, text))
            return false;
    s->cold_us = 0;
    return true;
}

/* As many replays as take `us` together. */
static int num_replays(double us, double graph_us)
{
    double num = us / (graph_us + 1);
    return num < MIN_REPLAYS ? MIN_REPLAYS : num > MAX_REPLAYS ? MAX_REPLAYS : (int)num;
}

static double median(double *us, int num)
{
    qsort(us, (size_t)num, sizeof *us, doubles_order);
    return us[num / 2];
}

/* us of a replay among others with a pause behind each; those over `slow` (0: none) are measured
 * less exactly. Negative: it failed. */
static double burst(const TuneSession *s, DrvGraphExec graph, double slow, char *text)
{
    double us[MAX_REPLAYS], rough = 0;
    for (int i = 0; i < 2; i++) /* the first warms up */
        if (!replay(s, graph, &rough, text))
            return -1;
    int num = slow > 0 && rough > slow ? MIN_REPLAYS : num_replays(BURST_US, rough);
    for (int i = 0; i < num; i++)
        if (!replay(s, graph, &us[i], text))
            return -1;
    return median(us, num);
}

/* .. and without: replays, `burst_us` each or more, are queued ahead, so that the GPU never waits
 * for the host. */
static double sustained(const TuneSession *s, DrvGraphExec graph, double burst_us, char *text)
{
    double us[MAX_REPLAYS];
    int before = (int)(SETTLE_US / (burst_us + 1)) + 1, num = num_replays(SUSTAINED_US, burst_us);
    bool ok = mark(s, 0, text);
    for (int i = 0; i < before + num + QUEUED && ok; i++) {
        int ended = i - QUEUED;
        if (i < before + num)
            ok = queue(s, graph, i, text);
        if (ended >= 0 && ok)
            ok = await(s, ended, &us[ended < before ? 0 : ended - before], text);
    }
    return ok ? median(us, num) : -1;
}

/* A GPU whose power is limited is faster in a burst than it stays, some kernels more so than
 * others, which ranks them wrongly (bench/README.md). Sustained times of short launches are not
 * worth their cost. If a product's first launch is long, its others are sustained too, so that
 * times that are compared were measured alike, but not what is far behind already: it takes no less
 * than in a burst. */
static bool is_to_sustain(double burst_us, TuneTime best)
{
    if (best.us <= 0)
        return burst_us >= LONG_LAUNCH_US;
    return best.sustained && burst_us <= NEAR_BEST * best.us;
}

/* One launch of a graph of `launches`. */
static TuneTime measure(const TuneSession *s, DrvGraphExec graph, int launches, TuneTime best,
                        char *text)
{
    double graph_us = burst(s, graph, SLOW * best.us * launches, text);
    TuneTime ret = {.us = graph_us / launches};
    ret.sustained = graph_us > 0 && is_to_sustain(ret.us, best);
    /* (a burst's fewest replays may take as long; then the pauses between them are nothing) */
    if (ret.sustained && MIN_REPLAYS * graph_us < SETTLE_US + SUSTAINED_US)
        ret.us = sustained(s, graph, graph_us, text) / launches;
    return ret;
}

/* Every weight the same number of times; fewer weights where launches are long enough to drive the
 * last one's out of the L2. */
static int graph_launches(const TuneSession *s, double predicted)
{
    int rounds = 1;
    if (s->num_sets > 2 && s->num_sets * predicted > LONG_US)
        return 2 * predicted > LONG_US ? 2 : (int)(LONG_US / predicted);
    while ((rounds + 1) * s->num_sets <= MAX_LAUNCHES &&
           rounds * s->num_sets * predicted < GRAPH_US)
        rounds++;
    return rounds * s->num_sets;
}

TuneTime tune_time(TuneSession *s, const TuneItem *item, TuneTime best, char text[TUNE_TEXT])
{
    const CudaKernel *k = item->kernel;
    DrvModule module = NULL;
    DrvFunction function = NULL;
    DrvGraphExec graph = NULL;
    TuneTime ret = {.us = -1};
    snprintf(text, TUNE_TEXT, "memory is exhausted");
    if (!make_product(s, k, item->rows, text))
        return (TuneTime){0};
    const DeviceLaunch d = cuda_device_launch(k, 0);
    if (make_workspace(s, (uint64_t)d.workspace, text) &&
        load(s, item, d.smem, &module, &function, text) && bind_sets(s, k, &d, function, text)) {
        int launches = graph_launches(s, item->predicted);
        if (capture(s, launches, &graph, text) && warm_up(s, graph, text))
            ret = measure(s, graph, launches, best, text);
    }
    if (graph)
        s->d->cuGraphExecDestroy(graph);
    if (module)
        s->d->cuModuleUnload(module);
    return ret;
}
