/* Launches of two devices side by side; see rig.h. */
#include "tests/gpu/rig.h"
#include "tests/gpu/near.h"
#include "tests/gpu/ranges.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GUARD  192  /* bytes between tensors, at least */
#define CANARY 0xff /* NaN in every float format that has one */

typedef struct Slot { /* of a tensor that is no constant and no part: bytes of the slabs */
    uint64_t at, size;
    DrvAddress device;
    bool is_used;
} Slot;

typedef struct Group {  /* launches of one kernel of the IR, on both sides */
    int cpu[2], gpu[2]; /* from, to */
} Group;

struct Rig {
    const Built *b;
    RigOptions options;
    Plan cpu, gpu;        /* as b's, with every slot an input */
    DeviceCode code;      /* as b's, with the launches of one group at a time */
    DeviceLaunch *launch; /* of code */
    DeviceShared shared;
    CudaModel *model;
    CudaSession session; /* as much of one as launches need */
    void *cpu_state;
    Plan cpu_part; /* that cpu_state runs */
    PlanLayout *layout, *padded;
    Slot *slot;
    void **address; /* of slots in a slab */
    uint8_t *before, *want, *got, *mark;
    double *bound;  /* of tensors that are written nearly */
    double *logits; /* .. by softmax: the bound of its input, else 0 */
    bool *gated;    /* .. times what tanh or sigmoid gave */
    bool *rounded;  /* .. by products of rounded weights */
    uint64_t bytes, room;
    Near near;
    double worst;
    uint64_t spoil;
};

/* The GPU of this process: its context stays while models come and go. */
static struct Card {
    const Driver *driver;
    DrvContext context;
    DrvAddress slab;
    uint64_t bytes;
} card;

static bool complain(const char *text)
{
    printf("# %s\n", text);
    return false;
}

/* Opening -------------------------------------------------------------------------------------- */

static bool is_slot(const PlanTensor *t)
{
    return t->storage == STORAGE_ARENA || t->storage == STORAGE_INPUT ||
           t->storage == STORAGE_OUTPUT;
}

/* The plan with an address of its own for every tensor: inputs by the tensor's number. */
static Plan slotted(const Plan *plan)
{
    Plan ret = *plan;
    PlanTensor *tensor = calloc((size_t)plan->num_tensors + 1, sizeof *tensor);
    memcpy(tensor, plan->tensor, (size_t)plan->num_tensors * sizeof *tensor);
    for (int i = 0; i < plan->num_tensors; i++)
        if (is_slot(&tensor[i])) {
            tensor[i].storage = STORAGE_INPUT;
            tensor[i].index = i;
        }
    ret.tensor = tensor;
    return ret;
}

bool rig_probe(void)
{
    SinterError err;
    SinterStatus status;
    DrvDevice device;
    if (!card.driver && !(card.driver = driver_get(&status, &err)))
        return complain(err.text);
    if (!card.context && (card.driver->cuDeviceGet(&device, 0) ||
                          card.driver->cuDevicePrimaryCtxRetain(&card.context, device)))
        return complain("the GPU does not start");
    return true;
}

static bool open_gpu(Rig *r)
{
    SinterError err;
    if (!rig_probe())
        return false;
    pthread_mutex_init(&r->shared.lock, NULL);
    const DeviceOpen open = {
        .plan = &r->gpu, .weights = r->b->file->weights, .code = &r->code, .shared = &r->shared};
    if (cuda_model_get(&open, &r->model, &err))
        return complain(err.text);
    CudaSession *s = &r->session;
    s->model = r->model;
    s->shared = &r->shared;
    s->port = calloc((size_t)r->gpu.num_tensors + 1, sizeof *s->port);
    if (cuda_enter(r->model, &err))
        return complain(err.text);
    if (card.driver->cuStreamCreate(&s->stream, DRV_STREAM_NON_BLOCKING))
        return complain("no stream");
    uint64_t workspace = device_workspace(&r->code);
    if (workspace && (card.driver->cuMemAlloc(&s->workspace, (size_t)workspace) ||
                      card.driver->cuMemsetD8Async(s->workspace, 0, (size_t)workspace, s->stream)))
        return complain("the GPU's memory is exhausted");
    return true;
}

Rig *rig_open(const Built *b, const RigOptions *options)
{
    Rig *r = calloc(1, sizeof *r);
    r->b = b;
    r->options = *options;
    r->cpu = slotted(b->cpu.plan);
    r->gpu = slotted(b->cuda.target.plan);
    r->code = b->cuda.code;
    size_t launches = (size_t)(r->code.num_launches * r->code.num_buckets);
    r->launch = calloc(launches + 1, sizeof *r->launch);
    memcpy(r->launch, b->cuda.code.launch, launches * sizeof *r->launch);
    r->code.launch = r->launch;
    size_t tensors = (size_t)r->gpu.num_tensors + 1;
    r->layout = calloc(tensors, sizeof *r->layout);
    r->padded = calloc(tensors, sizeof *r->padded);
    r->slot = calloc(tensors, sizeof *r->slot);
    r->address = calloc(tensors, sizeof *r->address);
    r->mark = calloc(tensors, 1);
    r->bound = calloc(tensors, sizeof *r->bound);
    r->logits = calloc(tensors, sizeof *r->logits);
    r->gated = calloc(tensors, sizeof *r->gated);
    r->rounded = calloc(tensors, sizeof *r->rounded);
    SinterError err;
    r->cpu_part = r->cpu;
    const DeviceOpen open = {.plan = &r->cpu_part, .weights = b->file->weights, .threads = 1};
    if (device_cpu.create(&open, &r->cpu_state, &err) || (!options->dry && !open_gpu(r))) {
        rig_close(r);
        return NULL;
    }
    return r;
}

static void free_apart(Rig *r)
{
    for (int i = 0; i < r->gpu.num_tensors; i++)
        if (r->options.apart && r->slot[i].device)
            card.driver->cuMemFree(r->slot[i].device);
    memset(r->slot, 0, (size_t)r->gpu.num_tensors * sizeof *r->slot);
}

void rig_close(Rig *r)
{
    if (!r)
        return;
    free_apart(r);
    if (r->session.workspace)
        card.driver->cuMemFree(r->session.workspace);
    cuda_list_free(&r->session);
    if (r->session.stream)
        card.driver->cuStreamDestroy(r->session.stream);
    if (r->model)
        cuda_leave(r->model);
    if (r->shared.state)
        cuda_model_close(r->shared.state);
    device_cpu.destroy(r->cpu_state);
    void *const memory[] = {r->session.port, r->launch, r->layout, r->padded, r->slot,
                            r->address,      r->mark,   r->bound,  r->logits, r->gated,
                            r->rounded,      r->before, r->want,   r->got};
    for (size_t i = 0; i < COUNT_OF(memory); i++)
        free(memory[i]);
    free((void *)(uintptr_t)r->cpu.tensor);
    free((void *)(uintptr_t)r->gpu.tensor);
    free(r);
}

/* Memory --------------------------------------------------------------------------------------- */

static bool place_on_card(Rig *r)
{
    const Driver *d = card.driver;
    if (r->options.dry)
        return true;
    if (!r->options.apart && card.bytes < r->bytes) {
        if (card.slab)
            d->cuMemFree(card.slab);
        card.bytes = 2 * r->bytes;
        if (d->cuMemAlloc(&card.slab, (size_t)card.bytes))
            return complain("the GPU's memory is exhausted");
    }
    for (int i = 0; i < r->gpu.num_tensors; i++) {
        Slot *s = &r->slot[i];
        if (!s->is_used)
            continue;
        if (!r->options.apart)
            s->device = card.slab + s->at;
        else if (s->size && d->cuMemAlloc(&s->device, (size_t)s->size))
            return complain("the GPU's memory is exhausted");
        r->session.port[i] = (CudaPort){s->device, s->size};
    }
    return true;
}

/* Slots for these sizes: each tensor starts at an odd multiple of 64 bytes, as in an arena. */
static bool place(Rig *r, int bucket, const int64_t *size)
{
    IoError err;
    uint64_t at = GUARD;
    if (!plan_bind(&r->gpu, bucket, size, r->layout, &err))
        return complain(err.text);
    free_apart(r);
    for (int i = 0; i < r->gpu.num_tensors; i++) {
        if (r->gpu.tensor[i].storage != STORAGE_INPUT)
            continue;
        at = ((at + 127) & ~UINT64_C(127)) + 64;
        r->slot[i] = (Slot){.at = at, .size = r->layout[i].bytes, .is_used = true};
        at += r->layout[i].bytes + GUARD;
    }
    r->bytes = at;
    if (at > r->room) {
        free(r->before), free(r->want), free(r->got);
        r->room = at;
        r->before = malloc(at), r->want = malloc(at), r->got = malloc(at);
    }
    memset(r->want, CANARY, at);
    return place_on_card(r);
}

static bool copy(Rig *r, uint8_t *host, bool to_card)
{
    const Driver *d = card.driver;
    DrvStream stream = r->session.stream;
    DrvResult result = DRV_SUCCESS;
    if (!r->options.apart)
        result = to_card ? d->cuMemcpyHtoDAsync(card.slab, host, (size_t)r->bytes, stream)
                         : d->cuMemcpyDtoHAsync(host, card.slab, (size_t)r->bytes, stream);
    for (int i = 0; i < r->gpu.num_tensors && r->options.apart && !result; i++) {
        const Slot *s = &r->slot[i];
        if (s->size)
            result = to_card
                         ? d->cuMemcpyHtoDAsync(s->device, host + s->at, (size_t)s->size, stream)
                         : d->cuMemcpyDtoHAsync(host + s->at, s->device, (size_t)s->size, stream);
    }
    result = result ? result : d->cuStreamSynchronize(stream);
    return !result || complain("a copy to or from the GPU failed");
}

/* A code of four bits as the CPU has it in a byte, and as a GPU has it, which extends its sign. */
static uint8_t other_form(uint8_t byte)
{
    return (byte & 0xF8) == 0x08 || (byte & 0xF8) == 0xF8 ? byte ^ 0xF0 : byte;
}

static void change_forms(Rig *r, uint8_t *host)
{
    for (int i = 0; i < r->gpu.num_tensors; i++) {
        const PlanTensor *t = &r->gpu.tensor[i];
        const PlanLayout *l = &r->layout[i];
        if (!t->quantised || t->packed || t->fmt != FMT_I4 || !r->slot[i].is_used)
            continue;
        for (int64_t at = 0; at < l->rows * l->cols; at++) {
            uint8_t *byte = host + r->slot[i].at + at / l->cols * l->pitch + at % l->cols;
            *byte = other_form(*byte);
        }
    }
}

static void put_inputs(Rig *r, void *const *in)
{
    for (int i = 0; i < r->gpu.num_inputs; i++) {
        const Slot *s = &r->slot[r->gpu.input[i].tensor];
        memcpy(r->want + s->at, in[i], (size_t)s->size);
    }
}

/* Running -------------------------------------------------------------------------------------- */

static bool run_cpu(Rig *r, const Group *g, int bucket, const int64_t *size, uint8_t *slab)
{
    SinterError err;
    Trace trace = {0};
    for (int i = 0; i < r->cpu.num_tensors; i++)
        r->address[i] = r->slot[i].is_used ? slab + r->slot[i].at : NULL;
    r->cpu_part = r->cpu;
    r->cpu_part.launch = r->cpu.launch + g->cpu[0];
    r->cpu_part.num_launches = g->cpu[1] - g->cpu[0];
    const DeviceRun run = {.bucket = bucket, .size = size, .input = r->address, .trace = &trace};
    return !device_cpu.run(r->cpu_state, &run, &err) || complain(err.text);
}

static void only(Rig *r, const Group *g)
{
    int buckets = r->code.num_buckets;
    const DeviceLaunch *all = r->b->cuda.code.launch;
    for (int i = 0; i < r->code.num_launches; i++)
        for (int k = 0; k < buckets; k++) {
            r->launch[i * buckets + k] = all[i * buckets + k];
            if (i < g->gpu[0] || i >= g->gpu[1])
                r->launch[i * buckets + k].kernel = -1;
        }
}

static bool start_gpu(Rig *r, const Group *g, int bucket, const int64_t *size, CudaStart how)
{
    SinterError err;
    only(r, g);
    return (!cuda_bind_list(&r->session, bucket, size, r->layout, &err) &&
            !cuda_start(&r->session, r->session.stream, how, &err)) ||
           complain(err.text);
}

/* Each launch leaves the counters at the workspace's beginning as it found them. */
static bool counters_are_zero(Rig *r)
{
    uint8_t counters[CUDA_SPLIT_SUMS];
    if (!r->session.workspace)
        return true;
    if (card.driver->cuMemcpyDtoHAsync(counters, r->session.workspace, sizeof counters,
                                       r->session.stream) ||
        card.driver->cuStreamSynchronize(r->session.stream))
        return complain("a copy from the GPU failed");
    for (size_t i = 0; i < sizeof counters; i++)
        if (counters[i])
            return complain("the counters of shared tiles are not zero");
    return true;
}

static bool run_gpu(Rig *r, const Group *g, int bucket, const int64_t *size)
{
    if (r->options.dry) {
        memcpy(r->got, r->want, (size_t)r->bytes);
        return run_cpu(r, g, bucket, size, r->got);
    }
    memcpy(r->got, r->want, (size_t)r->bytes);
    change_forms(r, r->got);
    if (!copy(r, r->got, true))
        return false;
    memset(r->got, CANARY, (size_t)r->bytes);
    bool ok = start_gpu(r, g, bucket, size, CUDA_START_STEP) && counters_are_zero(r) &&
              copy(r, r->got, false);
    change_forms(r, r->got);
    return ok;
}

/* Groups --------------------------------------------------------------------------------------- */

/* The run of launches from `at` on that one op stands behind. */
static int run_end(const Op *const *op, int num, int at)
{
    int end = at + 1;
    while (end < num && op[end] == op[at])
        end++;
    return end;
}

static bool next_group(const Rig *r, Group *g)
{
    const Op *const *cpu = r->b->cpu.launch_kernels.elem;
    const Op *const *gpu = r->b->cuda.target.launch_kernels.elem;
    if (g->cpu[1] >= r->cpu.num_launches)
        return false;
    g->cpu[0] = g->cpu[1];
    g->gpu[0] = g->gpu[1];
    g->cpu[1] = run_end(cpu, r->cpu.num_launches, g->cpu[0]);
    int own = g->gpu[0]; /* behind what clears ranges for a later kernel */
    while (own + 1 < r->gpu.num_launches && gpu[own] != cpu[g->cpu[0]])
        own++;
    g->gpu[1] = run_end(gpu, r->gpu.num_launches, own);
    return true;
}

/* Here and there: what lies in shared memory beside some of its scales, which do not. */
enum { NOT_WRITTEN, WRITTEN_EXACTLY, WRITTEN_NEARLY, WRITTEN_HERE_AND_THERE };

static void mark_program(Rig *r, const PlanLaunch *l, const PlanProgram *p, int how, int except)
{
    for (int i = 0; i < p->num_steps; i++) {
        if (!plan_writes((TileOp)p->step[i].op))
            continue;
        int root = r->layout[l->operand[p->step[i].tensor].tensor].root;
        if (root != except)
            r->mark[root] = (uint8_t)how;
    }
}

static bool has_two(TileOp op)
{
    static const uint8_t arity[NUM_TILE_OPS] = {
#define ELEMENTWISE(ID, name, arity, f32_expr, f64_expr) [TILE_##ID] = (arity),
#include "numerics/elementwise.def"
#undef ELEMENTWISE
    };
    return arity[op] == 2;
}

/* The numbers that the launch multiplies are the weight's, rounded to 16 bits (docs/numerics.md);
 * beside activations that are held in bf16, they are exact. */
static bool rounds(const Rig *r, int launch, int bucket)
{
    const Plan *plan = r->b->cuda.target.plan;
    const PlanTensor *w = &plan->tensor[plan->launch[launch].w];
    const PlanTensor *stored = &plan->tensor[plan_stored_weight(plan, plan->launch[launch].w)];
    int kernel = r->b->cuda.code.launch[launch * r->code.num_buckets + bucket].kernel;
    bool codebook = format_info[stored->fmt].family == FAMILY_CODEBOOK || stored->pack_spec.table;
    if (stored != w)
        return w->fmt == FMT_BF16 && stored->pack_spec.act_fmt == FMT_BF16 &&
               (codebook || stored->pack_spec.mainloop);
    return stored->fmt == FMT_NF4 && strstr(r->b->cuda.source[kernel].text, "kCodebookPieces = 1;");
}

/* wgmma adds products of 8-bit floats with some 14 bits: docs/numerics.md. */
static double sums_bound(const Rig *r, int launch, int bucket)
{
    const PlanLaunch *l = &r->gpu.launch[launch];
    int kernel = r->b->cuda.code.launch[launch * r->code.num_buckets + bucket].kernel;
    bool short_sums = (r->b->cuda.source[kernel].family == CUDA_HOPPER ||
                       r->b->cuda.source[kernel].family == CUDA_MIXED) &&
                      format_info[r->gpu.tensor[l->a].fmt].bits == 8 &&
                      format_info[r->gpu.tensor[l->a].fmt].family == FAMILY_MINIFLOAT;
    double units = (double)r->layout[l->a].cols / 128; /* sums that are never promoted grow */
    bool fast = r->gpu.tensor[l->a].scheme.fast && units > 1;
    return !short_sums ? 0 : near_bound(FMT_F16) * (fast ? units * units : 1);
}

/* A float sum in another order may fall on the other side of a tie wherever it is rounded, at a
 * cast inside the epilogue as at the store: the bound is that of the coarsest format on the way, or
 * that of the sums. A norm of one column makes a large number of what cancellation left. */
static void find_bounds(Rig *r, const PlanLaunch *l, const PlanProgram *p, double of_sums,
                        bool is_rounded)
{
    double reg[TILE_MAX_REGS] = {0}, logits = 0;
    bool norms = false, limited[TILE_MAX_REGS] = {false}, gated = false;
    for (int i = 0; i < p->num_steps; i++) {
        const TileStep *s = &p->step[i];
        bool reads = s->op != TILE_ACC && s->op != TILE_LOAD && s->op != TILE_CONST;
        double bound = reads ? reg[s->src[0]] : s->op == TILE_ACC ? of_sums : 0;
        if (has_two((TileOp)s->op) && reg[s->src[1]] > bound)
            bound = reg[s->src[1]];
        if (s->op == TILE_ROUND && near_bound((FormatId)s->fmt) > bound)
            bound = near_bound((FormatId)s->fmt);
        gated = gated || (s->op == TILE_MUL && (limited[s->src[0]] || limited[s->src[1]]));
        norms = norms || s->op == TILE_RMSNORM || s->op == TILE_LAYERNORM;
        if (s->op == TILE_SOFTMAX)
            logits = fmax(bound, near_bound(FMT_F32));
        if (plan_writes((TileOp)s->op)) {
            int32_t tensor = l->operand[s->tensor].tensor;
            double *to = &r->bound[r->layout[tensor].root];
            double own = near_bound(r->gpu.tensor[tensor].fmt);
            if (norms && r->layout[tensor].cols == 1 && own < near_bound(FMT_F16))
                own = near_bound(FMT_F16);
            bound = own > bound ? own : bound;
            bound = is_rounded ? near_rounded(bound) : bound;
            *to = bound > *to ? bound : *to;
            r->logits[r->layout[tensor].root] = logits;
            r->gated[r->layout[tensor].root] = gated;
            r->rounded[r->layout[tensor].root] |= is_rounded;
        } else {
            reg[s->dst] = bound;
            limited[s->dst] = s->op == TILE_TANH || s->op == TILE_SIGMOID;
        }
    }
}

static bool is_integer(FormatId fmt)
{
    return format_info[fmt].family == FAMILY_INT;
}

static bool product_is_exact(const Rig *r, const PlanLaunch *l)
{
    const PlanTensor *a = &r->gpu.tensor[l->a], *w = &r->gpu.tensor[l->w];
    return is_integer(a->fmt) && is_integer(w->fmt) && !w->scheme.table;
}

/* Of the families that run prologues, streams make a in shared memory. */
static bool stays_local(const Rig *r, int launch, int bucket)
{
    int kernel = r->b->cuda.code.launch[launch * r->code.num_buckets + bucket].kernel;
    return r->b->cuda.source[kernel].family == CUDA_STREAM;
}

/* Which tensors the GPU's launches of a group write, and how well they are determined. */
static void mark_written(Rig *r, const Group *g, int bucket)
{
    memset(r->mark, NOT_WRITTEN, (size_t)r->gpu.num_tensors);
    memset(r->bound, 0, (size_t)r->gpu.num_tensors * sizeof *r->bound);
    memset(r->logits, 0, (size_t)r->gpu.num_tensors * sizeof *r->logits);
    memset(r->gated, 0, (size_t)r->gpu.num_tensors * sizeof *r->gated);
    memset(r->rounded, 0, (size_t)r->gpu.num_tensors * sizeof *r->rounded);
    for (int i = g->gpu[0]; i < g->gpu[1]; i++) {
        const PlanLaunch *l = &r->gpu.launch[i];
        if (r->b->cuda.code.launch[i * r->code.num_buckets + bucket].kernel < 0)
            continue;
        int how =
            l->family == LAUNCH_GEMM && !product_is_exact(r, l) ? WRITTEN_NEARLY : WRITTEN_EXACTLY;
        if (l->family == LAUNCH_MOVE)
            r->mark[r->layout[l->dst].root] = WRITTEN_EXACTLY;
        for (int k = 0; l->family == LAUNCH_ROUTE && k < plan_route_results(l->route); k++)
            r->mark[r->layout[l->operand[l->num_operands - 1 - k].tensor].root] = WRITTEN_EXACTLY;
        if (l->family == LAUNCH_TILE)
            mark_program(r, l, &l->program, WRITTEN_EXACTLY, -1);
        bool local = l->family == LAUNCH_GEMM && l->prologue.num_steps && !r->options.dry &&
                     stays_local(r, i, bucket);
        if (l->family == LAUNCH_GEMM)
            mark_program(r, l, &l->prologue, WRITTEN_EXACTLY, local ? r->layout[l->a].root : -1);
        if (local && !r->mark[r->layout[l->a].root])
            r->mark[r->layout[l->a].root] = WRITTEN_HERE_AND_THERE;
        for (int k = 0; k < l->num_segments; k++) {
            mark_program(r, l, &l->segment[k].epilogue, how, -1);
            find_bounds(r, l, &l->segment[k].epilogue, sums_bound(r, i, bucket),
                        rounds(r, i, bucket));
        }
    }
}

bool rig_is_exact(const Rig *r)
{
    for (int i = 0; i < r->gpu.num_launches; i++)
        if (r->gpu.launch[i].family == LAUNCH_GEMM && !product_is_exact(r, &r->gpu.launch[i]))
            return false;
    return true;
}

/* Comparing ------------------------------------------------------------------------------------ */

static bool says(const Rig *r, const Group *g, const char *tensor, const char *why)
{
    const PlanLaunch *l = &r->gpu.launch[g->gpu[0]];
    printf("# \"%s\" (%s: %s), tensor \"%s\": %s\n", l->layer, launch_family_name[l->family],
           l->absorbed, tensor, why);
    return false;
}

/* Bytes that no launch of the group may change. */
static bool unchanged(const Rig *r, const Group *g, const char *what, uint64_t from, uint64_t to)
{
    char why[160];
    if (from >= to || memcmp(r->before + from, r->got + from, (size_t)(to - from)) == 0)
        return true;
    uint64_t at = from;
    while (r->before[at] == r->got[at])
        at++;
    snprintf(why, sizeof why, "byte %" PRIu64 " of %" PRIu64 " was changed, from %02x to %02x",
             at - from, to - from, r->before[at], r->got[at]);
    return says(r, g, what, why);
}

static bool compare_slot(Rig *r, const Group *g, int i)
{
    const Slot *s = &r->slot[i];
    const PlanTensor *t = &r->gpu.tensor[i];
    if (i >= r->cpu.num_tensors) /* a workspace of the GPU's alone */
        return true;
    if (!r->mark[i])
        return unchanged(r, g, t->name, s->at, s->at + s->size);
    for (uint64_t k = s->at; k < s->at + s->size && r->mark[i] == WRITTEN_HERE_AND_THERE; k++)
        if (r->got[k] != r->want[k] && !unchanged(r, g, t->name, k, k + 1))
            return false;
    if (r->mark[i] == WRITTEN_HERE_AND_THERE)
        return true;
    r->near.is_exact = r->mark[i] == WRITTEN_EXACTLY;
    r->near.worst = 0;
    r->near.bound = r->bound[i];
    r->near.logits = r->logits[i];
    r->near.is_gated = r->gated[i];
    r->near.rounds = r->rounded[i];
    bool ok = near_tensor(&r->near, t, &r->layout[i], r->want + s->at, r->got + s->at);
    r->worst = r->near.worst > r->worst ? r->near.worst : r->worst;
    return ok || says(r, g, t->name, r->near.why);
}

/* The GPU left these bytes alone; what the CPU may have computed there is nobody's concern. */
static bool leave_alone(Rig *r, const Group *g, const char *name, uint64_t at, uint64_t bytes)
{
    if (memcmp(r->got + at, r->before + at, bytes))
        return says(r, g, name, "a row that does not count was written");
    memcpy(r->want + at, r->before + at, bytes);
    return true;
}

static bool leave_row(Rig *r, const Group *g, int tensor, int64_t row)
{
    const PlanTensor *t = &r->gpu.tensor[tensor];
    const PlanLayout *l = &r->layout[tensor];
    const uint64_t at = r->slot[tensor].at;
    const int64_t blocks = t->quantised ? scheme_col_blocks(&t->scheme, l->cols) : 0;
    const uint64_t bytes = 4 * (uint64_t)blocks, params = (uint64_t)row * bytes;
    return leave_alone(r, g, t->name, at + (uint64_t)(row * l->pitch), (uint64_t)l->pitch) &&
           (!t->quantised || t->is_static ||
            (leave_alone(r, g, t->name, at + l->scale_at + params, bytes) &&
             (t->scheme.zero == ZERO_NONE ||
              leave_alone(r, g, t->name, at + l->zero_at + params, bytes))));
}

/* Of what a launch that counts rows writes. */
static bool leave_rows(Rig *r, const Group *g, const PlanLaunch *l, const PlanProgram *p)
{
    const int32_t *count = (const int32_t *)(const void *)(r->want + r->slot[l->ends].at);
    const int64_t rows = r->layout[plan_launch_tensor(l)].rows, groups = r->layout[l->ends].cols;
    for (int i = 0; i < p->num_steps; i++) {
        if (!plan_writes((TileOp)p->step[i].op))
            continue;
        int at = l->operand[p->step[i].tensor].tensor;
        while (storage_is_part(r->gpu.tensor[at].storage))
            at = r->gpu.tensor[at].index;
        for (int64_t row = 0; row < rows && r->layout[at].rows == rows; row++)
            if (row % (rows / groups) >= count[row / (rows / groups)] && !leave_row(r, g, at, row))
                return false;
    }
    return true;
}

static bool leave_uncounted(Rig *r, const Group *g)
{
    const bool dry = r->options.dry;
    bool ok = true;
    for (int i = dry ? g->cpu[0] : g->gpu[0]; i < (dry ? g->cpu[1] : g->gpu[1]) && ok; i++) {
        const PlanLaunch *l = dry ? &r->cpu.launch[i] : &r->gpu.launch[i];
        if (l->skips)
            ok = leave_rows(r, g, l, &l->program);
        for (int k = 0; k < l->num_segments && ok && l->counted; k++)
            ok = leave_rows(r, g, l, &l->segment[k].epilogue);
    }
    return ok;
}

static bool compare(Rig *r, const Group *g, int bucket)
{
    uint64_t end = 0;
    bool ok = leave_uncounted(r, g);
    mark_written(r, g, bucket);
    for (int i = 0; i < r->gpu.num_tensors && ok; i++) {
        const Slot *s = &r->slot[i];
        if (!s->is_used)
            continue;
        ok = (r->options.apart || unchanged(r, g, "guard bytes", end, s->at)) &&
             compare_slot(r, g, i);
        end = s->at + s->size;
    }
    return ok && (r->options.apart || unchanged(r, g, "guard bytes", end, r->bytes));
}

static uint64_t spoilt_code(const PlanLayout *l, uint64_t which)
{
    int64_t i = (int64_t)(which % (uint64_t)(l->rows * l->cols));
    return (uint64_t)(i / l->cols * l->pitch + i % l->cols);
}

/* One byte of those that the group wrote, or of the guards. */
static void spoil(Rig *r, const Group *g, int bucket)
{
    mark_written(r, g, bucket);
    for (int i = 0; i < r->cpu.num_tensors && r->spoil; i++) {
        const Slot *s = &r->slot[i];
        if (!s->is_used || !s->size || r->mark[i] != WRITTEN_EXACTLY)
            continue;
        uint64_t at = r->spoil % 2 ? s->at + s->size + r->spoil % 8 : s->at + r->spoil % s->size;
        if (r->gpu.tensor[i].quantised && r->spoil % 2 == 0) /* codes, not what lies between */
            at = s->at + spoilt_code(&r->layout[i], r->spoil);
        r->got[at] ^= 0x41;
        r->spoil = 0;
    }
}

bool rig_spoil(Rig *r, uint64_t seed)
{
    bool done = !r->spoil;
    r->spoil = seed ? seed | UINT64_C(1) << 63 : 0;
    return done;
}

/* Times ---------------------------------------------------------------------------------------- */

static void bench(Rig *r, const Group *g, int bucket, const int64_t *size)
{
    enum { TIMES = 20 };
    const Driver *d = card.driver;
    DrvEvent event[2] = {NULL, NULL};
    float ms = 0;
    bool ok = !d->cuEventCreate(&event[0], DRV_EVENT_DEFAULT) &&
              !d->cuEventCreate(&event[1], DRV_EVENT_DEFAULT);
    for (int i = -3; i < TIMES && ok; i++) {
        if (i == 0)
            ok = !d->cuEventRecord(event[0], r->session.stream);
        ok = ok && start_gpu(r, g, bucket, size, CUDA_START);
    }
    ok = ok && !d->cuEventRecord(event[1], r->session.stream) &&
         !d->cuStreamSynchronize(r->session.stream) &&
         !d->cuEventElapsedTime(&ms, event[0], event[1]);
    const PlanLaunch *l = &r->gpu.launch[g->gpu[0]];
    if (ok)
        printf("# bench \"%s\" (%s) rows %" PRId64 ": %.2f us\n", l->layer, l->absorbed,
               r->gpu.num_syms ? size[0] : 1, 1e3 * (double)ms / TIMES);
    for (int i = 0; i < 2; i++)
        if (event[i])
            d->cuEventDestroy(event[i]);
}

/* Entries -------------------------------------------------------------------------------------- */

bool rig_takes(Rig *r, int bucket, const int64_t *size)
{
    IoError err;
    const CudaModel model = {.plan = &r->gpu, .code = &r->code};
    CudaSession s = {.model = (CudaModel *)(uintptr_t)&model};
    only(r, &(Group){.gpu = {0, r->gpu.num_launches}});
    return plan_bind(&r->gpu, bucket, size, r->layout, &err) &&
           plan_bind(&r->gpu, bucket, plan_bucket(&r->gpu, bucket), r->padded, &err) &&
           !cuda_sizes_problem(&s, bucket, r->layout, r->padded);
}

/* What the GPU alone has it keeps: launches of a later kernel may read it. */
static void keep_own(Rig *r)
{
    for (int i = r->cpu.num_tensors; i < r->gpu.num_tensors; i++)
        memcpy(r->want + r->slot[i].at, r->got + r->slot[i].at, (size_t)r->slot[i].size);
}

/* Ranges that products found are those of what they stored, and become those of what the CPU
 * stored: sums may differ in rounding, and a later launch reads the CPU's. */
static bool settle_ranges(Rig *r, const Group *g, int bucket)
{
    for (int i = g->gpu[0]; i < g->gpu[1] && !r->options.dry; i++) {
        RangesOf of;
        int32_t want[4];
        int kernel = r->b->cuda.code.launch[i * r->code.num_buckets + bucket].kernel;
        if (kernel < 0 || !strstr(r->b->cuda.source[kernel].text, "row_see<") ||
            !ranges_of(&r->gpu, i, &of))
            continue;
        const PlanLayout *at = &r->layout[of.stored], *words = &r->layout[of.words];
        uint64_t x = r->slot[at->root].at + at->at, to = r->slot[words->root].at + words->at;
        int num = ranges_expect(&r->gpu, r->layout, &of, r->got + x, want);
        if (!ranges_equal(want, (const int32_t *)(const void *)(r->got + to), num))
            return says(r, g, r->gpu.tensor[of.stored].name, "its range is not what was found");
        ranges_expect(&r->gpu, r->layout, &of, r->want + x, want);
        memcpy(r->want + to, want, (size_t)num * sizeof *want);
    }
    return true;
}

bool rig_check(Rig *r, int bucket, const int64_t *size, void *const *in, bool odd)
{
    Group g = {{0, 0}, {0, 0}};
    if (!place(r, bucket, size))
        return false;
    put_inputs(r, in);
    r->worst = 0;
    r->near.is_odd = odd;
    bool ok = true;
    while (ok && next_group(r, &g)) {
        memcpy(r->before, r->want, (size_t)r->bytes);
        ok = run_gpu(r, &g, bucket, size) && run_cpu(r, &g, bucket, size, r->want);
        if (ok && r->spoil)
            spoil(r, &g, bucket);
        ok = ok && compare(r, &g, bucket);
        keep_own(r);
        ok = ok && settle_ranges(r, &g, bucket);
        if (ok && r->options.bench && !r->options.dry)
            bench(r, &g, bucket, size);
    }
    return ok;
}

bool rig_chain(Rig *r, int bucket, const int64_t *size, void *const *in, void *const *out)
{
    const Group all = {{0, r->cpu.num_launches}, {0, r->gpu.num_launches}};
    if (!place(r, bucket, size))
        return false;
    put_inputs(r, in);
    if (!run_gpu(r, &all, bucket, size))
        return false;
    for (int i = 0; i < r->gpu.num_outputs; i++) {
        const Slot *s = &r->slot[r->gpu.output[i].tensor];
        memcpy(out[i], r->got + s->at, (size_t)s->size);
    }
    return true;
}

bool rig_lost(void)
{
    size_t available, all;
    return card.context && (card.driver->cuCtxPushCurrent(card.context) ||
                            card.driver->cuMemGetInfo(&available, &all));
}

double rig_worst(const Rig *r)
{
    return r->worst;
}
