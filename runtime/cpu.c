/* The CPU as a device: one arena and one scratch block a session, both mapped when a run first
 * needs them, launches called one after the other. Sizes are bound once for as long as they stay
 * the same. */
#include "base/team.h"
#include "runtime/device.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PACK_ALIGN 64

typedef struct Block { /* anonymous memory that only grows */
    uint8_t *data;
    uint64_t size;
} Block;

typedef struct CpuState {
    const Plan *plan;
    const uint8_t *weights;
    int threads; /* 0: not yet a keeper of the team */
    Block arena, scratch;
    PlanLayout *layout; /* of the bound sizes */
    int64_t *size;
    int bucket; /* -1: none bound */
} CpuState;

/* Memory --------------------------------------------------------------------------------------- */

static void block_free(Block *b)
{
    if (b->data)
        munmap(b->data, (size_t)b->size);
    *b = (Block){0};
}

/* At least `size` bytes; what was inside is lost when it grows. */
static bool block_reserve(Block *b, uint64_t size)
{
    if (size <= b->size)
        return true;
    block_free(b);
    void *data = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED)
        return false;
    *b = (Block){data, size};
    return true;
}

static SinterStatus no_memory(SinterError *err, uint64_t size, const char *what)
{
    return model_fail(err, SINTER_ERROR_MEMORY, "no memory for %llu bytes of %s",
                      (unsigned long long)size, what);
}

/* Operands ------------------------------------------------------------------------------------- */

typedef struct Run {
    CpuState *state;
    const DeviceRun *args;
    SinterError *err;
    double bytes, flops; /* of the launch at hand */
} Run;

static uint8_t *tensor_root(const Run *r, int32_t root)
{
    const PlanTensor *t = &r->state->plan->tensor[root];
    switch (t->storage) {
    case STORAGE_CONST: return (uint8_t *)(uintptr_t)(r->state->weights + t->offset);
    case STORAGE_ARENA: return r->state->arena.data + t->arena_offset[r->args->bucket];
    case STORAGE_INPUT: return r->args->input[t->index];
    case STORAGE_OUTPUT: return r->args->output[t->index];
    default: break; /* layouts name roots, never parts */
    }
    return NULL;
}

static CpuTensor bind_tensor(const Run *r, int32_t index)
{
    const PlanTensor *t = &r->state->plan->tensor[index];
    const PlanLayout *at = &r->state->layout[index];
    CpuTensor ret = {.fmt = t->fmt,
                     .quantised = t->quantised,
                     .data = tensor_root(r, at->root) + at->at,
                     .rows = at->rows,
                     .cols = at->cols,
                     .pitch = at->pitch,
                     .row_div = 1,
                     .row_mod = INT64_MAX,
                     .col_step = 1};
    if (!t->quantised)
        return ret;
    uint8_t *params = tensor_root(r, at->params_root);
    ret.is_static = t->is_static;
    ret.has_zero = t->scheme.zero != ZERO_NONE;
    ret.scale_fmt = t->scheme.scale_fmt;
    ret.outer = t->scheme.outer;
    ret.block_rows = t->scheme.block[0];
    ret.block_cols = t->scheme.block[1];
    ret.scale = (float *)(void *)(params + at->scale_at);
    ret.zero = ret.has_zero ? (int32_t *)(void *)(params + at->zero_at) : NULL;
    ret.outer_scale = ret.outer ? (float *)(void *)(params + at->outer_at) : NULL;
    return ret;
}

static const int32_t *ends_of(const Run *r, const PlanLaunch *l)
{
    const PlanLayout *at = &r->state->layout[l->ends];
    return (const int32_t *)(const void *)(tensor_root(r, at->root) + at->at);
}

/* all_rows: of the launch. */
static void bind_group_table(const Run *r, const PlanLaunch *l, int64_t all_rows, CpuTensor *table)
{
    table->ends = ends_of(r, l);
    table->num_groups = (int)table->rows;
    table->group_rows = l->counted ? all_rows / table->rows : 0;
}

static void bind_operands(Run *r, const PlanLaunch *l, CpuTensor *operand)
{
    for (int i = 0; i < l->num_operands; i++) {
        const PlanOperand *o = &l->operand[i];
        operand[i] = bind_tensor(r, o->tensor);
        operand[i].row_div = plan_dim_eval(o->row_div, r->args->size);
        int64_t mod = plan_dim_eval(o->row_mod, r->args->size);
        operand[i].row_mod = mod ? mod : INT64_MAX;
        operand[i].col_step = o->col_step;
        if (o->by_group)
            bind_group_table(r, l, r->state->layout[plan_launch_tensor(l)].rows, &operand[i]);
        if (o->index) {
            CpuTensor index = bind_tensor(r, l->operand[o->index - 1].tensor);
            operand[i].index = index.data;
            operand[i].index_pitch = index.rows == 1 ? 0 : index.pitch;
        }
        r->bytes += plan_operand_bytes(l, i, r->state->layout);
    }
}

static CpuProgram cpu_program(PlanProgram p)
{
    return (CpuProgram){p.step, p.num_steps};
}

/* Threads for a launch that one thread would finish in about this time: waking a team costs some
 * microseconds, and far more on a busy machine, so each thread gets work worth it. */
#define US_PER_THREAD 20.0

static int worth_threads(const Run *r, double us)
{
    double num = us / US_PER_THREAD;
    int most = r->state->threads;
    return num < 2 ? 1 : num < most ? (int)num : most;
}

/* Launches ------------------------------------------------------------------------------------- */

/* The packed weight: the constant itself, or packed now into the start of the scratch block. */
static SinterStatus reserve_gemm(Run *r, const CpuGemm *g, bool is_packed, int threads,
                                 uint64_t *ret_pack)
{
    uint64_t pack = is_packed ? 0 : cpu_pack_bytes(&g->spec), size;
    uint64_t work = cpu_gemm_scratch(g, threads);
    if (!checked_align(pack, PACK_ALIGN, &pack) || !checked_add(pack, work, &size) ||
        !block_reserve(&r->state->scratch, size))
        return no_memory(r->err, work, "scratch");
    *ret_pack = pack;
    return SINTER_OK;
}

/* Rows [begin, begin + num) of a group as an operand of a launch of its own. */
static CpuTensor group_rows(const CpuTensor *t, int64_t group, int64_t begin, int64_t num)
{
    CpuTensor ret = *t;
    int64_t first = t->ends ? group : begin;
    ret.ends = NULL;
    ret.rows = t->ends ? 1 : num;
    if (t->index || (!t->ends && t->rows == 1)) /* before the product; all rows share it */
        return *t;
    ret.data = (char *)t->data + first * t->pitch;
    if (t->quantised && t->block_rows == 1) {
        int64_t at = first * (t->block_cols ? (t->cols + t->block_cols - 1) / t->block_cols : 1);
        ret.scale = t->scale + at;
        ret.zero = t->zero ? t->zero + at : NULL;
    }
    return ret;
}

typedef struct GroupRows {
    int64_t first, num;
} GroupRows;

/* Of m rows those of a group that are computed; `begin`: behind the group before it. Ends and
 * counts are clamped, whatever the memory holds. */
static GroupRows rows_of_group(const Run *r, const PlanLaunch *l, int64_t group, int64_t begin,
                               int64_t m)
{
    int64_t end = ends_of(r, l)[group], each = m / r->state->layout[l->ends].cols;
    if (l->counted)
        return (GroupRows){group * each, end < 0 ? 0 : end < each ? end : each};
    return (GroupRows){begin, end < begin ? 0 : (end < m ? end : m) - begin};
}

/* The product of one group's rows; `operand` has room for its operands. */
static CpuGemm group_gemm(const CpuGemm *all, int64_t group, GroupRows rows, uint64_t weight_bytes,
                          CpuTensor *operand)
{
    CpuGemm g = *all;
    g.m = rows.num;
    g.prologue = (CpuProgram){NULL, 0};
    g.a = group_rows(&all->a, group, rows.first, g.m);
    g.packed = (const uint8_t *)all->packed + (uint64_t)group * weight_bytes;
    g.operand = operand;
    for (int i = 0; i < g.num_operands; i++)
        operand[i] = group_rows(&all->operand[i], group, rows.first, g.m);
    return g;
}

/* A product for each group of rows. What fills the activation comes first, over all rows: these may
 * share a scale. */
static SinterStatus run_groups(Run *r, const PlanLaunch *l, const CpuGemm *all, int threads)
{
    const PlanTensor *w = &r->state->plan->tensor[l->w];
    const uint64_t weight_bytes = w->bytes / (uint64_t)w->groups;
    CpuTensor operand[PLAN_MAX_OPERANDS];
    const CpuTile before = {.rows = all->m,
                            .cols = all->spec.k,
                            .whole_rows = true,
                            .program = all->prologue,
                            .operand = all->operand,
                            .num_operands = all->num_operands};
    bool prologue = all->prologue.num_steps > 0;
    uint64_t size = prologue ? cpu_tile_scratch(&before, threads) : 0;
    for (int64_t group = 0, begin = 0; group < w->groups; group++) {
        GroupRows rows = rows_of_group(r, l, group, begin, all->m);
        CpuGemm g = group_gemm(all, group, rows, weight_bytes, operand);
        uint64_t need = cpu_gemm_scratch(&g, threads);
        size = need > size ? need : size;
        begin += g.m;
    }
    if (!block_reserve(&r->state->scratch, size))
        return no_memory(r->err, size, "scratch");
    if (prologue)
        cpu_tile(&before, r->state->scratch.data, threads);
    for (int64_t group = 0, begin = 0; group < w->groups; group++) {
        GroupRows rows = rows_of_group(r, l, group, begin, all->m);
        CpuGemm g = group_gemm(all, group, rows, weight_bytes, operand);
        if (g.m)
            cpu_gemm(&g, r->state->scratch.data, threads);
        begin += g.m;
    }
    return SINTER_OK;
}

static SinterStatus run_gemm(Run *r, const PlanLaunch *l)
{
    const Plan *p = r->state->plan;
    const PlanTensor *w = &p->tensor[l->w];
    const PlanLayout *w_at = &r->state->layout[l->w];
    CpuTensor operand[PLAN_MAX_OPERANDS];
    CpuSegment segment[PLAN_MAX_SEGMENTS];
    if (r->state->layout[l->a].rows == 0)
        return SINTER_OK;
    bind_operands(r, l, operand);
    CpuPackSpec spec = plan_gemm_spec(&p->tensor[l->a], w, w_at);
    for (int i = 0; i < l->num_segments; i++)
        segment[i] = (CpuSegment){l->segment[i].n_begin, plan_segment_end(&l->segment[i], &spec),
                                  cpu_program(l->segment[i].epilogue)};
    CpuGemm g = {.m = r->state->layout[l->a].rows,
                 .spec = spec,
                 .a = bind_tensor(r, l->a),
                 .prologue = cpu_program(l->prologue),
                 .segment = segment,
                 .num_segments = l->num_segments,
                 .operand = operand,
                 .num_operands = l->num_operands};
    const uint8_t *weight = tensor_root(r, w_at->root) + w_at->at;
    r->bytes += (double)(w->packed ? w->bytes : w_at->bytes) + (double)r->state->layout[l->a].bytes;
    r->flops = 2.0 * (double)g.m * (double)g.spec.n * (double)g.spec.k;
    int threads = worth_threads(r, r->flops * 1e-5 + r->bytes * 1e-4);
    uint64_t pack = 0;
    g.packed = weight;
    if (l->grouped)
        return run_groups(r, l, &g, threads);
    SinterStatus status = reserve_gemm(r, &g, w->packed, threads, &pack);
    if (status)
        return status;
    if (!w->packed) {
        g.packed = r->state->scratch.data;
        cpu_pack(&g.spec, weight, w_at->pitch, NULL, NULL, NULL, r->state->scratch.data);
    }
    cpu_gemm(&g, r->state->scratch.data + pack, threads);
    return SINTER_OK;
}

/* The rows of each group that count. */
static void tile_groups(Run *r, const PlanLaunch *l, const CpuTile *all, int threads)
{
    CpuTensor operand[PLAN_MAX_OPERANDS];
    for (int64_t group = 0; group < r->state->layout[l->ends].cols; group++) {
        GroupRows rows = rows_of_group(r, l, group, 0, all->rows);
        CpuTile t = *all;
        t.rows = rows.num;
        t.operand = operand;
        for (int i = 0; i < t.num_operands; i++)
            operand[i] = group_rows(&all->operand[i], group, rows.first, rows.num);
        if (t.rows)
            cpu_tile(&t, r->state->scratch.data, threads);
    }
}

static SinterStatus run_tile(Run *r, const PlanLaunch *l)
{
    CpuTensor operand[PLAN_MAX_OPERANDS];
    bind_operands(r, l, operand);
    const CpuTile t = {.rows = operand[0].rows,
                       .cols = operand[0].cols,
                       .whole_rows = l->whole_rows,
                       .program = cpu_program(l->program),
                       .operand = operand,
                       .num_operands = l->num_operands};
    r->flops = (double)t.rows * (double)t.cols * l->program.num_steps;
    int threads = worth_threads(r, r->flops * 5e-4);
    uint64_t size = cpu_tile_scratch(&t, threads);
    if (!block_reserve(&r->state->scratch, size))
        return no_memory(r->err, size, "scratch");
    if (l->skips)
        tile_groups(r, l, &t, threads);
    else
        cpu_tile(&t, r->state->scratch.data, threads);
    return SINTER_OK;
}

static SinterStatus run_move(Run *r, const PlanLaunch *l)
{
    const int64_t *size = r->args->size;
    CpuTensor src = bind_tensor(r, l->src), dst = bind_tensor(r, l->dst);
    int64_t elem = format_info[src.fmt].bits / 8;
    CpuMove move = {.rank = l->move_rank,
                    .element_bytes = (int)elem,
                    .src = (uint8_t *)src.data + plan_dim_eval(l->move_src_offset, size) * elem,
                    .dst = (uint8_t *)dst.data + plan_dim_eval(l->move_dst_offset, size) * elem};
    double elements = 1;
    for (int i = 0; i < l->move_rank; i++) {
        move.dim[i] = plan_dim_eval(l->move_dim[i], size);
        move.src_stride[i] = plan_dim_eval(l->move_src_stride[i], size) * elem;
        move.dst_stride[i] = plan_dim_eval(l->move_dst_stride[i], size) * elem;
        elements *= (double)move.dim[i];
    }
    r->bytes = 2.0 * elements * (double)elem;
    if (elements > 0)
        cpu_move(&move, worth_threads(r, r->bytes * 2e-4));
    return SINTER_OK;
}

/* Where rows go, and where they come from; places alone are found on the way to sources. */
static SinterStatus run_sort(Run *r, const PlanLaunch *l, CpuTensor *operand)
{
    const CpuTensor *index = operand, *to = &operand[1];
    uint64_t counts = cpu_group_places_scratch(l->groups), size;
    CpuTensor places = l->route == ROUTE_SORT ? to[1] : *to;
    bool needs_places = l->route == ROUTE_SOURCES;
    if (!checked_align(counts, PACK_ALIGN, &counts) ||
        !checked_add(counts, needs_places ? (uint64_t)(index->rows * index->cols) * 4 : 0, &size) ||
        !block_reserve(&r->state->scratch, size))
        return no_memory(r->err, counts, "scratch");
    if (l->route == ROUTE_ENDS || l->route == ROUTE_SORT)
        cpu_group_ends(index, l->groups, to);
    if (l->route == ROUTE_ENDS)
        return SINTER_OK;
    if (needs_places) {
        places = *index;
        places.data = r->state->scratch.data + counts;
        places.pitch = index->cols * 4;
    }
    cpu_group_places(index, l->groups, &places, r->state->scratch.data);
    if (l->route != ROUTE_PLACES)
        cpu_group_sources(&places, l->route == ROUTE_SORT ? &to[2] : to);
    return SINTER_OK;
}

static SinterStatus run_route(Run *r, const PlanLaunch *l)
{
    CpuTensor operand[PLAN_MAX_OPERANDS];
    bind_operands(r, l, operand);
    if (plan_route_sorts(l->route))
        return run_sort(r, l, operand);
    if (l->route == ROUTE_CLEAR) {
        cpu_clear(operand, &operand[1]);
        return SINTER_OK;
    }
    if (l->route == ROUTE_TAKE)
        cpu_take(operand, &operand[1], &operand[2]);
    else
        cpu_topk(operand, &operand[1], worth_threads(r, r->bytes * 1e-3));
    if (l->route == ROUTE_CHOOSE || l->route == ROUTE_WEIGH)
        cpu_take(operand, &operand[1], &operand[2]);
    if (l->route == ROUTE_WEIGH)
        cpu_weigh(&operand[2], worth_threads(r, r->bytes * 1e-3));
    return SINTER_OK;
}

static SinterStatus run_launch(Run *r, const PlanLaunch *l)
{
    Trace *trace = r->args->trace;
    double begin_us = trace->on ? clock_us() : 0;
    SinterStatus status;
    r->bytes = r->flops = 0;
    if (l->family == LAUNCH_GEMM)
        status = run_gemm(r, l);
    else if (l->family == LAUNCH_TILE)
        status = run_tile(r, l);
    else if (l->family == LAUNCH_ROUTE)
        status = run_route(r, l);
    else
        status = run_move(r, l);
    if (!status && trace->on && !trace_add(trace, l, begin_us, r->bytes, r->flops))
        status = no_memory(r->err, sizeof(SinterLaunchTime), "trace");
    return status;
}

/* Sessions ------------------------------------------------------------------------------------- */

static void cpu_destroy(void *state)
{
    CpuState *s = state;
    if (!s)
        return;
    if (s->threads)
        team_release();
    block_free(&s->arena);
    block_free(&s->scratch);
    free(s->layout);
    free(s->size);
    free(s);
}

static SinterStatus cpu_create(const DeviceOpen *open, void **ret_state, SinterError *err)
{
    if (open->ordinal != 0)
        return model_fail(err, SINTER_ERROR_NO_DEVICE,
                          "there is no device cpu:%d; the processor is the device \"cpu\"",
                          open->ordinal);
    CpuState *s = calloc(1, sizeof *s);
    if (s) {
        s->layout = calloc((size_t)open->plan->num_tensors + 1, sizeof *s->layout);
        s->size = calloc((size_t)open->plan->num_syms + 1, sizeof *s->size);
    }
    if (!s || !s->layout || !s->size) {
        cpu_destroy(s);
        return model_fail(err, SINTER_ERROR_MEMORY, "memory is exhausted");
    }
    s->plan = open->plan;
    s->weights = open->weights;
    team_keep();
    s->threads = open->threads > 0 ? open->threads : team_threads();
    s->bucket = -1;
    *ret_state = s;
    return SINTER_OK;
}

static SinterStatus bind_sizes(CpuState *s, const DeviceRun *run, SinterError *err)
{
    size_t size_bytes = (size_t)s->plan->num_syms * sizeof *s->size;
    if (s->bucket == run->bucket && (!size_bytes || !memcmp(s->size, run->size, size_bytes)))
        return SINTER_OK;
    IoError why;
    s->bucket = -1;
    if (!plan_bind(s->plan, run->bucket, run->size, s->layout, &why))
        return model_sizes_fail(s->plan, run->size, why.text, err);
    s->bucket = run->bucket;
    if (size_bytes)
        memcpy(s->size, run->size, size_bytes);
    return SINTER_OK;
}

static SinterStatus cpu_run(void *state, const DeviceRun *run, SinterError *err)
{
    CpuState *s = state;
    uint64_t arena_bytes = s->plan->arena_bytes[run->bucket];
    SinterStatus status = bind_sizes(s, run, err);
    if (!status && !block_reserve(&s->arena, arena_bytes))
        status = no_memory(err, arena_bytes, "activations");
    Run r = {.state = s, .args = run, .err = err};
    team_enter();
    for (int i = 0; !status && i < s->plan->num_launches; i++)
        status = run_launch(&r, &s->plan->launch[i]);
    team_leave();
    return status;
}

static uint64_t cpu_bytes(const void *state)
{
    const CpuState *s = state;
    return s->arena.size + s->scratch.size;
}

static ModelTarget *cpu_choose(SinterModel *model, int ordinal, SinterStatus *ret_status,
                               SinterError *err)
{
    char holds[64], words[96];
    ModelTarget *t = model_target(model, "cpu");
    if (ordinal) {
        *ret_status = model_fail(err, SINTER_ERROR_NO_DEVICE, "there is no device cpu:%d", ordinal);
        return NULL;
    }
    if (!t)
        *ret_status = model_fail(err, SINTER_ERROR_UNSUPPORTED,
                                 "the compiled file holds a plan for %s, none for the processor; "
                                 "compile the model with %s",
                                 model_holds(model, holds, sizeof holds),
                                 model_words(model, "cpu", words, sizeof words));
    return t;
}

const Device device_cpu = {.name = "cpu",
                           .choose = cpu_choose,
                           .create = cpu_create,
                           .destroy = cpu_destroy,
                           .run = cpu_run,
                           .bytes = cpu_bytes};
