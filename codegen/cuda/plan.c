/* codegen/cuda/plan: the plan of a class of GPUs from the launch list. Tensors, programs and
 * operands are those of the list; what a GPU wants otherwise is written here:
 * - weights are packed for the tensor cores;
 * - an activation whose rows the tensor cores cannot read in place is copied: a slice of others,
 * rows of odd lengths;
 * - a prologue runs inside the product only where that is faster; else a row kernel runs it first;
 * - a quantisation whose blocks span rows takes two launches where there are several: gather the
 * ranges, store; a product that stores what has one range gathers that itself. One launch before
 * the first of these clears all ranges;
 * - a quantisation in groups that no tile of a product holds is a launch of its own;
 * - a weight that lies in several layouts has its launches once for each, and so has one that a
 * launch of its own decodes for products of many rows;
 * - every launch gets a kernel and a grid for each bucket. */
#include "codegen/cuda/plan.h"
#include "codegen/build.h"
#include "codegen/cuda/why.h"

#include <string.h>

static bool fail(CudaBuilder *b, const char *fmt, ...) PRINTF_LIKE(2, 3);

static bool fail(CudaBuilder *b, const char *fmt, ...)
{
    Sb sb;
    va_list args;
    sb_init(&sb, b->arena);
    va_start(args, fmt);
    sb_vprintf(&sb, fmt, args);
    va_end(args);
    diag_error(b->m->diag, (Span){0}, E_KERNEL, "%s", sb.text);
    b->failed = true;
    return false;
}

/* Launches ------------------------------------------------------------------------------------- */

static const CudaRole no_role = {.span_operand = -1};

static CudaRole role_of(int num_ops)
{
    CudaRole ret = no_role;
    ret.num_ops = num_ops;
    return ret;
}

static bool step_has_operand(const TileStep *s)
{
    return s->op == TILE_LOAD || s->op == TILE_STORE || s->op == TILE_QUANTIZE ||
           s->op == TILE_CODE_SUM;
}

/* The program with its operands counted from `by` on. */
static PlanProgram shifted(CudaBuilder *b, const PlanProgram *p, int by)
{
    TileStep *step = ARENA_NEW_ARRAY(b->arena, TileStep, (size_t)p->num_steps);
    for (int i = 0; i < p->num_steps; i++) {
        step[i] = p->step[i];
        if (step_has_operand(&step[i]))
            step[i].tensor = (uint16_t)(step[i].tensor + by);
        if (step[i].op == TILE_CODE_SUM)
            step[i].tensor2 = (uint16_t)(step[i].tensor2 + by);
    }
    return (PlanProgram){step, p->num_steps};
}

static PlanOperand whole_tensor(int tensor)
{
    return (PlanOperand){.tensor = tensor,
                         .row_div = {.add = 1, .sym = {-1, -1}},
                         .row_mod = {.add = 0, .sym = {-1, -1}},
                         .col_step = 1};
}

/* Operands with one more in front, or behind. */
static PlanOperand *operands_with(CudaBuilder *b, const PlanLaunch *l, int tensor, bool in_front)
{
    PlanOperand *operand = ARENA_NEW_ARRAY(b->arena, PlanOperand, (size_t)l->num_operands + 1);
    memcpy(operand + in_front, l->operand, (size_t)l->num_operands * sizeof *operand);
    for (int i = 0; i < l->num_operands; i++)
        operand[i + in_front].index += l->operand[i].index ? in_front : 0;
    operand[in_front ? 0 : l->num_operands] = whole_tensor(tensor);
    return operand;
}

/* Spans ---------------------------------------------------------------------------------------- */

static const PlanTensor *spanning(const CudaBuilder *b, const PlanLaunch *l, const PlanProgram *p)
{
    for (int i = 0; i < p->num_steps; i++) {
        if (p->step[i].op != TILE_QUANTIZE)
            continue;
        const PlanTensor *t = &b->tensors.elem[l->operand[p->step[i].tensor].tensor];
        if (!t->is_static && (t->scheme.block[0] != 1 || t->scheme.outer))
            return t;
    }
    return NULL;
}

const uint64_t *cuda_grow_arena(CudaBuilder *b, const uint64_t *bytes)
{
    int buckets = b->list->num_buckets;
    uint64_t *offset = ARENA_NEW_ARRAY(b->arena, uint64_t, (size_t)buckets);
    for (int i = 0; i < buckets; i++) {
        offset[i] = (b->arena_bytes[i] + 63) & ~UINT64_C(63);
        b->arena_bytes[i] = offset[i] + ((bytes[i] + 63) & ~UINT64_C(63));
    }
    return offset;
}

/* Words of such memory, as many for every bucket. */
static const uint64_t *grow_by_words(CudaBuilder *b, int64_t words)
{
    uint64_t *bytes = ARENA_NEW_ARRAY(b->arena, uint64_t, (size_t)b->list->num_buckets);
    for (int i = 0; i < b->list->num_buckets; i++)
        bytes[i] = (uint64_t)words * 4;
    return cuda_grow_arena(b, bytes);
}

static int add_words(CudaBuilder *b, PlanTensor space, int64_t words)
{
    space.fmt = FMT_F32; /* cleared by storing 0 */
    space.rank = 1;
    space.dim[0] = (PlanDim){.add = words, .sym = {-1, -1}};
    space.params = -1;
    ARRAY_PUSH(b->arena, &b->tensors, space);
    return b->tensors.num - 1;
}

/* One launch clears the ranges of all: before the first of them is looked for. */
static void put_clear(CudaBuilder *b, const PlanLaunch *like, CudaApartWhy apart, const Op *op)
{
    TileStep *step = ARENA_NEW_ARRAY(b->arena, TileStep, 2);
    step[0] = (TileStep){.op = TILE_CONST, .tensor = TILE_NO_TENSOR};
    step[1] = (TileStep){.op = TILE_STORE, .tensor = 0};
    PlanOperand *operand = ARENA_NEW(b->arena, PlanOperand);
    PlanTensor all = {.name = "ranges", .storage = STORAGE_ARENA, .index = -1};
    *operand = whole_tensor(add_words(b, all, 0));
    b->ranges = operand->tensor + 1;
    PlanLaunch clear = cuda_row_launch(like, "clear ranges", 1, operand, (PlanProgram){step, 2});
    CudaRole role = no_role;
    role.apart = apart;
    role.span = SPAN_CLEAR;
    cuda_launch_put(b, clear, role, op);
}

/* Their memory, once all are known. */
static void place_ranges(CudaBuilder *b)
{
    PlanTensor *all = b->ranges ? &b->tensors.elem[b->ranges - 1] : NULL;
    if (all)
        all->arena_offset = grow_by_words(b, all->dim[0].add);
}

/* A part of them for a tensor: three i32-wide words a block that spans rows and one for the outer
 * scale; -1: too many. */
static int add_ranges(CudaBuilder *b, const PlanTensor *t)
{
    int64_t words = 0;
    for (int i = 0; i < b->list->num_buckets; i++) {
        PlanLayout l;
        if (!plan_tensor_layout(t, plan_bucket(b->list, i), &l))
            return fail(b, "the size of '%s' overflows", t->name) - 1;
        int64_t blocks = cuda_span_blocks(&t->scheme, &l);
        words = 3 * blocks + 1 > words ? 3 * blocks + 1 : words;
    }
    int64_t *end = &b->tensors.elem[b->ranges - 1].dim[0].add, begin = *end;
    *end += (words + 3) / 4 * 4;
    if (*end > LIMIT_DIM)
        return fail(b, "the ranges of '%s' and others are too many", t->name) - 1;
    PlanTensor part = {
        .name = t->name, .storage = STORAGE_VIEW, .index = b->ranges - 1, .view_col = begin};
    return add_words(b, part, words);
}

/* The ranges of a tensor (where b->tensors has it now) that a product has found; -1: none has. */
static int found_ranges(const CudaBuilder *b, const PlanTensor *t)
{
    for (int i = 0; i < b->found.num; i++)
        if (b->found.elem[i].of == t - b->tensors.elem)
            return b->found.elem[i].ranges;
    return -1;
}

static CudaApartWhy span_why(CudaBuilder *b, const PlanTensor *t, bool found, const CudaRole *role,
                             const Op *op)
{
    return cuda_span_why(b->arena, t, found,
                         role->apart.at.file ? role->apart.at : kernel_quantise_span(op, 0));
}

/* A row kernel; with blocks that span rows, two of them, of which the last does what the list says,
 * behind the one that clears their ranges. The first does not run where a product finds them. */
static void put_tile(CudaBuilder *b, PlanLaunch l, CudaRole role, const Op *op)
{
    const PlanTensor *t = spanning(b, &l, &l.program);
    if (!t) {
        cuda_launch_put(b, l, role, op);
        return;
    }
    CudaRole gather = role;
    int ranges = found_ranges(b, t);
    gather.apart = span_why(b, t, false, &role, op);
    gather.num_ops = 0; /* those of the last, done twice */
    if (!b->ranges)
        put_clear(b, &l, gather.apart, op);
    if (ranges < 0)
        ranges = add_ranges(b, t);
    if (ranges < 0)
        return;
    l.operand = operands_with(b, &l, ranges, false);
    gather.span_operand = role.span_operand = l.num_operands++;
    gather.span = SPAN_GATHER;
    cuda_launch_put(b, l, gather, op);
    role.span = SPAN_GIVEN;
    if (role.apart.at.file && !role.apart.text && !role.chain)
        role.apart = gather.apart;
    cuda_launch_put(b, l, role, op);
}

/* The product l, the list's `launch`, finds ranges, too, if what it stores is to be quantised with
 * one of all. */
static const CudaRanged *add_found(CudaBuilder *b, const CodegenTarget *list, int launch,
                                   PlanLaunch *l)
{
    CudaRanged *ret = ARENA_NEW(b->arena, CudaRanged);
    int by = cuda_ranged(b->list, launch, ret);
    if (by < 0)
        return NULL;
    const Op *op = list->launch_kernels.elem[by]; /* for which ranges are cleared */
    const PlanTensor *t = &b->tensors.elem[ret->of];
    CudaApartWhy why = cuda_span_why(b->arena, t, false, kernel_quantise_span(op, 0));
    if (!b->ranges)
        put_clear(b, &b->list->launch[by], why, op);
    CudaFound found = {add_ranges(b, &b->tensors.elem[ret->of]), ret->of};
    if (found.ranges < 0)
        return NULL;
    ARRAY_PUSH(b->arena, &b->found, found);
    l->operand = operands_with(b, l, found.ranges, false);
    ret->ranges = l->num_operands++;
    return ret;
}

/* Products ------------------------------------------------------------------------------------ */

static PlanLaunch prologue_launch(CudaBuilder *b, const PlanLaunch *l, const char *words)
{
    PlanLaunch tile = *l;
    tile.absorbed = words;
    tile.family = LAUNCH_TILE;
    tile.operand = operands_with(b, l, l->a, true);
    tile.num_operands = l->num_operands + 1;
    tile.program = shifted(b, &l->prologue, 1);
    tile.whole_rows = true;
    tile.prologue = (PlanProgram){0};
    tile.num_segments = 0;
    tile.segment = NULL;
    tile.a = tile.w = -1;
    return tile;
}

/* Bytes from row to row of a copy of the activation, which tensor cores read by 16. */
static uint64_t copied_pitch(const PlanTensor *a, int64_t cols)
{
    return ((uint64_t)cols * format_info[a->fmt].bits / 8 + 15) & ~UINT64_C(15);
}

/* The weight lies as the tensor cores want it, and rows of the activation start where these cannot
 * read: those of a slice, or of a length that is no multiple of 16 bytes. (Quantised ones have a
 * pitch that is one.) ret_bytes: of a copy, by bucket. */
static bool needs_copy(CudaBuilder *b, const PlanLaunch *l, uint64_t *ret_bytes)
{
    IoError err;
    const PlanTensor *a = &b->list->tensor[l->a], *w = &b->list->tensor[l->w];
    if (!w->packed || a->quantised)
        return false;
    arena_reset(b->scratch);
    PlanLayout *layout = ARENA_NEW_ARRAY(b->scratch, PlanLayout, (size_t)b->list->num_tensors);
    bool aligned = true;
    for (int i = 0; i < b->list->num_buckets; i++) {
        if (!plan_bind(b->list, i, plan_bucket(b->list, i), layout, &err))
            return fail(b, "%s", err.text);
        const PlanLayout *at = &layout[l->a];
        aligned = aligned && at->pitch % 16 == 0 && at->at % 16 == 0;
        ret_bytes[i] = (uint64_t)at->rows * copied_pitch(a, at->cols);
    }
    return !aligned;
}

/* A tensor like the activation whose rows are copied_pitch apart: columns of a wider one. */
static int32_t add_copy(CudaBuilder *b, const PlanLaunch *l, const uint64_t *bytes)
{
    PlanTensor copy = b->list->tensor[l->a];
    int64_t cols = b->list->tensor[l->w].pack_spec.k;
    PlanDim *dim = &copy.dim[copy.rank - 1], own = *dim;
    *dim = (PlanDim){.add = (int64_t)(copied_pitch(&copy, cols) * 8 / format_info[copy.fmt].bits),
                     .sym = {-1, -1}};
    copy.storage = STORAGE_ARENA;
    copy.index = -1;
    copy.view_col = 0;
    copy.arena_offset = cuda_grow_arena(b, bytes);
    ARRAY_PUSH(b->arena, &b->tensors, copy);
    if (dim->add == cols)
        return b->tensors.num - 1;
    *dim = own;
    copy.storage = STORAGE_VIEW;
    copy.index = b->tensors.num - 1;
    copy.arena_offset = NULL;
    ARRAY_PUSH(b->arena, &b->tensors, copy);
    return b->tensors.num - 1;
}

/* A row kernel that copies the activation before the product; the tensor that it fills. */
static int32_t put_copy(CudaBuilder *b, const PlanLaunch *l, const uint64_t *bytes,
                        CudaApartWhy apart, const Op *op)
{
    TileStep *step = ARENA_NEW_ARRAY(b->arena, TileStep, 2);
    step[0] = (TileStep){.op = TILE_LOAD, .tensor = 1};
    step[1] = (TileStep){.op = TILE_STORE, .tensor = 0};
    PlanOperand *operand = ARENA_NEW_ARRAY(b->arena, PlanOperand, 2);
    operand[0] = whole_tensor(add_copy(b, l, bytes));
    operand[1] = whole_tensor(l->a);
    PlanLaunch launch = cuda_row_launch(l, "align rows", 2, operand, (PlanProgram){step, 2});
    CudaRole role = no_role;
    role.apart = apart;
    cuda_launch_put(b, launch, role, op);
    return operand[0].tensor;
}

/* The product adds up floats, in an order that all sizes are to share. Integers have one result in
 * any order; what a codebook has for them is floats. */
static bool is_invariant(const CudaBuilder *b, const PlanLaunch *l, const Op *kernel)
{
    const PlanTensor *a = &b->list->tensor[l->a], *w = &b->list->tensor[l->w];
    bool asked = b->options->invariant;
    for (const Op *op = kernel->body->first; op; op = op->next)
        asked = asked || (op->kind == OP_MATMUL && op->attr.quant && op->attr.quant->invariant);
    return asked && !(a->quantised && format_info[a->fmt].family == FAMILY_INT &&
                      format_info[w->fmt].family == FAMILY_INT && !w->scheme.table);
}

/* The first of the launches of which schedules choose, where the prologue may run inside. */
static const CudaChain *put_fused(CudaBuilder *b, const PlanLaunch *l, CudaRole role,
                                  const CudaRole *row, const Op *op)
{
    CudaChain *chain = ARENA_NEW(b->arena, CudaChain);
    const PlanTensor *t = spanning(b, l, &l->prologue);
    int at = b->launches.num, row_at = at + (t ? 2 : 1);
    *chain = (CudaChain){at, row_at, row_at + 1, .ranges = t ? at + 1 : -1};
    if (t && found_ranges(b, t) >= 0)
        chain->found = span_why(b, t, true, row, op);
    role.chain = chain;
    cuda_launch_put(b, *l, role, op);
    return chain;
}

/* What the list's `launch` becomes is l. `part`: the product's. */
static void put_product(CudaBuilder *b, const CodegenTarget *list, int launch, const PlanLaunch *l,
                        const KernelPart *part)
{
    const Op *op = list->launch_kernels.elem[launch];
    CudaRole role = no_role, row = no_role;
    uint64_t *bytes = ARENA_NEW_ARRAY(b->arena, uint64_t, (size_t)b->list->num_buckets);
    PlanLaunch product = *l;
    KernelPart before = kernel_part(b->arena, op, true, 0);
    bool copies = needs_copy(b, l, bytes);
    const PlanTensor *spans = spanning(b, l, &l->prologue);
    row.num_ops = before.num_ops;
    role.invariant = is_invariant(b, l, op);
    role.fused = cuda_to_be_fused(op) != NULL;
    row.apart = copies ? cuda_copy_why(b->arena, b->list, l, op)
                       : cuda_prologue_why(b->arena, b->list, l, op, &before);
    if (spans && !b->ranges)
        put_clear(b, l, span_why(b, spans, false, &row, op), op);
    role.ranged = add_found(b, list, launch, &product);
    role.num_ops = before.num_ops + part->num_ops;
    if (l->prologue.num_steps && !copies && !l->grouped)
        role.chain = row.chain = put_fused(b, &product, role, &row, op);
    role.num_ops = part->num_ops;
    if (l->prologue.num_steps)
        put_tile(b, prologue_launch(b, l, before.words), row, op);
    if (copies)
        product.a = put_copy(b, l, bytes, cuda_copy_why(b->arena, b->list, l, op), op);
    product.absorbed = part->words;
    product.prologue = (PlanProgram){0};
    cuda_launch_put(b, product, role, op);
}

/* The epilogue needs more columns at once than any tile has. */
static bool is_apart(CudaBuilder *b, const PlanLaunch *l)
{
    IoError err;
    arena_reset(b->scratch);
    PlanLayout *layout = ARENA_NEW_ARRAY(b->scratch, PlanLayout, (size_t)b->list->num_tensors);
    CudaKernel k = {
        .plan = b->list, .launch = l, .layout = layout, .size = plan_bucket(b->list, 0)};
    if (!plan_bind(b->list, 0, k.size, layout, &err))
        return fail(b, "%s", err.text);
    return !cuda_epilogue_runs(&k);
}

/* A plain tensor in the arena in the shape of another. */
static bool add_plain(CudaBuilder *b, int like)
{
    uint64_t *bytes = ARENA_NEW_ARRAY(b->arena, uint64_t, (size_t)b->list->num_buckets);
    PlanTensor plain = b->tensors.elem[like];
    plain.fmt = FMT_F32;
    plain.quantised = plain.is_static = false;
    plain.scheme = (Scheme){0};
    plain.params = -1;
    plain.storage = STORAGE_ARENA;
    plain.index = -1;
    for (int i = 0; i < b->list->num_buckets; i++) {
        PlanLayout l;
        if (!plan_tensor_layout(&plain, plan_bucket(b->list, i), &l))
            return fail(b, "the size of '%s' overflows", plain.name);
        bytes[i] = (uint64_t)l.rows * (uint64_t)l.pitch;
    }
    plain.arena_offset = cuda_grow_arena(b, bytes);
    ARRAY_PUSH(b->arena, &b->tensors, plain);
    return true;
}

static void put_gemm(CudaBuilder *b, const CodegenTarget *list, int launch)
{
    const PlanLaunch *l = &b->list->launch[launch];
    const Op *op = list->launch_kernels.elem[launch];
    CudaApart *apart = ARENA_NEW_ARRAY(b->arena, CudaApart, CUDA_APART_MOST);
    PlanLaunch product = *l;
    int num = 0;
    if (is_apart(b, l))
        num = cuda_apart(b->arena, b->tensors.elem, b->tensors.num, &product, apart);
    for (int i = 0; i < num; i++)
        if (!add_plain(b, apart[i].like))
            return;
    KernelPart part = kernel_part(b->arena, op, false, num);
    if (!num && !l->prologue.num_steps)
        part.words = l->absorbed;
    put_product(b, list, launch, &product, &part);
    for (int i = 0; i < num; i++) {
        CudaRole role = role_of(1);
        role.apart =
            cuda_group_why(b->arena, b->list, l, &apart[i], kernel_quantise_span(op, num - 1 - i));
        put_tile(b, apart[i].launch, role, op);
    }
}

static void put_launches(CudaBuilder *b, const CodegenTarget *list)
{
    for (int i = 0; i < b->list->num_launches && !b->failed; i++) {
        const PlanLaunch *l = &b->list->launch[i];
        const Op *op = list->launch_kernels.elem[i];
        switch (l->family) {
        case LAUNCH_GEMM: put_gemm(b, list, i); break;
        case LAUNCH_TILE: put_tile(b, *l, role_of(kernel_num_ops(op)), op); break;
        default: cuda_launch_put(b, *l, role_of(kernel_num_ops(op)), op); break;
        }
    }
}

/* Kernels -------------------------------------------------------------------------------------- */

static int kernel_index(CudaBuilder *b, const CudaKernel *k)
{
    CudaSource source = {.family = k->family};
    arena_reset(b->scratch); /* launches share most kernels */
    source.text = cuda_emit_source(b->scratch, k, &source.name);
    uintptr_t known = (uintptr_t)map_get(&b->kernels, source.name);
    if (known)
        return (int)known - 1;
    source.text = arena_strdup(b->arena, source.text);
    source.name = arena_strdup(b->arena, source.name);
    ARRAY_PUSH(b->arena, &b->sources, source);
    map_put(&b->kernels, source.name, (void *)(uintptr_t)b->sources.num);
    return b->sources.num - 1;
}

/* What runs a launch under a bucket, and why. */
typedef struct Chosen {
    CudaKernel kernel;
    bool runs; /* the launch is part of the bucket's schedule */
    CudaChoice choice;
} Chosen;

static bool no_kernel(CudaBuilder *b, const CudaDraft *d, int launch, int bucket,
                      const char *problem, const char *rejected)
{
    cuda_say_no_kernel(b->m->diag, b->arena, d, launch, bucket, b->launch_ops.elem[launch], problem,
                       rejected);
    b->failed = true;
    return false;
}

static bool choose(CudaBuilder *b, const CudaDraft *d, int launch, int bucket, Chosen *ret)
{
    const char *problem = NULL;
    *ret = (Chosen){0};
    CudaSchedule schedule = cuda_schedule(d, launch, bucket, &ret->runs);
    if (!ret->runs)
        return true;
    cuda_choose(d, launch, bucket, schedule, &ret->kernel, &ret->choice, &problem);
    if (problem)
        return no_kernel(b, d, launch, bucket, problem, ret->choice.rejected);
    const CudaRole *role = &d->role[launch];
    ret->choice.apart = role->apart;
    if (role->chain && launch == role->chain->row)
        ret->choice.apart = cuda_prologue_apart(d, launch, bucket);
    int64_t grid = cuda_geometry(&ret->kernel).blocks;
    return grid <= INT32_MAX ||
           fail(b, "\"%s\" needs %lld blocks", d->plan->launch[launch].layer, (long long)grid);
}

static DeviceLaunch device_launch(CudaBuilder *b, const Chosen *chosen, CudaChoice *ret_choice)
{
    if (!chosen->runs)
        return (DeviceLaunch){.kernel = -1};
    Sb text;
    sb_init(&text, b->arena);
    cuda_describe(&text, &chosen->kernel);
    *ret_choice = chosen->choice;
    ret_choice->text = text.text;
    if (chosen->kernel.launch->family == LAUNCH_GEMM) {
        Sb candidate;
        sb_init(&candidate, b->arena);
        cuda_candidate_put(&candidate, &chosen->kernel);
        ret_choice->problem = cuda_problem(b->arena, &chosen->kernel);
        ret_choice->candidate = candidate.text;
    }
    return cuda_device_launch(&chosen->kernel, kernel_index(b, &chosen->kernel));
}

/* Sizes and places of all tensors under each bucket: [buckets][tensors]. */
static PlanLayout *bind_buckets(CudaBuilder *b, const Plan *plan)
{
    IoError err;
    PlanLayout *layout =
        ARENA_NEW_ARRAY(b->arena, PlanLayout, (size_t)(plan->num_buckets * plan->num_tensors));
    for (int bucket = 0; bucket < plan->num_buckets; bucket++)
        if (!plan_bind(plan, bucket, plan_bucket(plan, bucket), layout + bucket * plan->num_tensors,
                       &err)) {
            fail(b, "%s", err.text);
            return NULL;
        }
    return layout;
}

/* Leaves out launches that are part of no bucket's schedule. */
static void keep_running(CudaBuilder *b, Plan *plan, Chosen *chosen)
{
    PlanLaunch *kept = ARENA_NEW_ARRAY(b->arena, PlanLaunch, (size_t)plan->num_launches);
    const Op **op = ARENA_NEW_ARRAY(b->arena, const Op *, (size_t)plan->num_launches);
    int *num_ops = ARENA_NEW_ARRAY(b->arena, int, (size_t)plan->num_launches + 1);
    int num = 0, buckets = plan->num_buckets;
    for (int i = 0; i < plan->num_launches; i++) {
        bool runs = false;
        for (int bucket = 0; bucket < buckets; bucket++)
            runs = runs || chosen[i * buckets + bucket].runs;
        if (!runs)
            continue;
        memmove(&chosen[num * buckets], &chosen[i * buckets], (size_t)buckets * sizeof *chosen);
        kept[num] = plan->launch[i];
        num_ops[num] = b->roles.elem[i].num_ops;
        op[num++] = b->launch_ops.elem[i];
    }
    plan->launch = kept;
    plan->num_launches = num;
    b->out->num_ops = num_ops;
    b->out->target.launch_kernels.elem = op;
    b->out->target.launch_kernels.num = b->out->target.launch_kernels.cap = num;
}

/* Sets the order of sums of invariant products, for all launches that may run them. */
static bool choose_orders(CudaBuilder *b, const CudaDraft *d)
{
    for (int i = 0; i < d->plan->num_launches; i++) {
        CudaRole *role = &b->roles.elem[i];
        if (!role->invariant || (role->chain && i != role->chain->product))
            continue;
        role->order = cuda_choose_order(d, i);
        if (!role->order) {
            diag_error(b->m->diag, b->launch_ops.elem[i]->span, E_INVARIANT,
                       "\"%s\" has no order of sums on %s that kernels of all its sizes have",
                       d->plan->launch[i].layer, d->plan->target);
            diag_help(b->m->diag, "fewer sizes, or nearer ones, may have one");
            b->failed = true;
            return false;
        }
        if (role->chain)
            b->roles.elem[role->chain->fused].order = role->order;
    }
    return true;
}

/* Launches, for each of the layouts that their weights have, with orders of sums. */
static bool choose_all(CudaBuilder *b, Plan *plan, CudaDraft *ret)
{
    *ret =
        (CudaDraft){b->arena, b->options, plan, b->roles.elem, bind_buckets(b, plan), b->scratch};
    if (!ret->layout)
        return false;
    const uint8_t *layouts = cuda_choose_layouts(ret, b->tensors.elem);
    if (cuda_put_copies(b, plan, ret, cuda_lay_fused(ret, b->tensors.elem, layouts))) {
        ret->role = b->roles.elem;
        ret->layout = bind_buckets(b, plan);
    }
    return ret->layout && choose_orders(b, ret);
}

static void put_kernels(CudaBuilder *b, Plan *plan)
{
    CudaDraft d;
    if (!choose_all(b, plan, &d))
        return;
    int num = plan->num_launches * plan->num_buckets;
    Chosen *chosen = ARENA_NEW_ARRAY(b->arena, Chosen, (size_t)num);
    for (int i = 0; i < num && !b->failed; i++)
        choose(b, &d, i / plan->num_buckets, i % plan->num_buckets, &chosen[i]);
    if (b->failed)
        return;
    keep_running(b, plan, chosen);
    num = plan->num_launches * plan->num_buckets;
    DeviceLaunch *device = ARENA_NEW_ARRAY(b->arena, DeviceLaunch, (size_t)num);
    CudaChoice *choice = ARENA_NEW_ARRAY(b->arena, CudaChoice, (size_t)num);
    memset(choice, 0, (size_t)num * sizeof *choice);
    for (int bucket = 0; bucket < plan->num_buckets; bucket++)
        for (int at = bucket; at < num; at += plan->num_buckets)
            device[at] = device_launch(b, &chosen[at], &choice[at]);
    const char **name = ARENA_NEW_ARRAY(b->arena, const char *, (size_t)b->sources.num);
    for (int i = 0; i < b->sources.num; i++)
        name[i] = b->sources.elem[i].name;
    b->out->code = (DeviceCode){.num_kernels = b->sources.num,
                                .num_launches = plan->num_launches,
                                .num_buckets = plan->num_buckets,
                                .kernel = name,
                                .launch = device};
    b->out->num_sources = b->sources.num;
    b->out->source = b->sources.elem;
    b->out->choice = choice;
}

/* Weights -------------------------------------------------------------------------------------- */

static bool pack_weights(CudaBuilder *b, Plan *plan)
{
    CodegenTarget *target = &b->out->target;
    Placement placement;
    IoError err;
    for (int i = 0; i < target->consts.num; i++) {
        PlanTensor *t = &b->tensors.elem[target->consts.elem[i].tensor];
        if (t->packed)
            t->bytes = plan_weight_packed(plan, t);
    }
    if (!codegen_place(b->m, b->arena, 1, &target, &placement))
        return false;
    if (plan_check(plan, placement.bytes, &err))
        return true;
    if (err.id != E_MEMORY)
        BUG("%s", err.text);
    diag_error(b->m->diag, (Span){0}, err.id, "%s", err.text);
    return false;
}

bool cuda_plan(Module *m, Arena *arena, const CodegenTarget *list, const CudaPlanOptions *options,
               CudaTarget *ret)
{
    CudaBuilder b = {.m = m,
                     .arena = arena,
                     .scratch = arena_new(),
                     .list = list->plan,
                     .options = options,
                     .out = ret};
    Plan *plan = ARENA_NEW(arena, Plan);
    *ret = (CudaTarget){.gpu = options->gpu, .target = *list};
    ret->target.plan = plan;
    *plan = *list->plan;
    plan->target = options->gpu->name;
    map_init(&b.kernels, arena);
    b.arena_bytes = ARENA_NEW_ARRAY(arena, uint64_t, (size_t)plan->num_buckets);
    memcpy(b.arena_bytes, plan->arena_bytes, (size_t)plan->num_buckets * sizeof(uint64_t));
    for (int i = 0; i < plan->num_tensors; i++) {
        ARRAY_PUSH(arena, &b.tensors, plan->tensor[i]);
        if (plan->tensor[i].packed && !plan_packed_bytes(plan, &plan->tensor[i].pack_spec))
            b.tensors.elem[i].pack_spec.layout = CUDA_BITS;
    }
    put_launches(&b, list);
    place_ranges(&b);
    plan->num_tensors = b.tensors.num;
    plan->tensor = b.tensors.elem;
    plan->num_launches = b.launches.num;
    plan->launch = b.launches.elem;
    codegen_skip_rows(arena, b.tensors.elem, b.tensors.num, b.launches.elem, b.launches.num);
    plan->arena_bytes = b.arena_bytes;
    if (!b.failed)
        put_kernels(&b, plan);
    arena_destroy(b.scratch);
    return !b.failed && pack_weights(&b, plan);
}
