/* codegen/cuda/held: activations of small floats whose scales vary along K (mxfp8, mxfp4, nvfp4),
 * held as bf16 for a product: a row kernel multiplies the codes by their scales, exactly, the one
 * that quantises them for this product alone or one behind it. The product decodes the weight as it
 * does beside any bf16, or a launch decodes it likewise (decode.c), and wgmma multiplies both.
 * Outer scales, which have too many bits for bf16, are the epilogue's. Which products that is for,
 * what it takes beside them, and the launches. */
#include "codegen/cuda/plan.h"
#include "codegen/cuda/why.h"

#include <string.h>

/* Which products ------------------------------------------------------------------------------- */

static int significant_bits(FormatId fmt)
{
    return format_info[fmt].man_bits + 1;
}

/* bf16 holds each code times its scale (docs/numerics.md has the range). */
static bool fits(const PlanTensor *a)
{
    FormatId scale = a->scheme.scale_fmt;
    return a->quantised && format_info[a->fmt].family == FAMILY_MINIFLOAT &&
           a->scheme.zero == ZERO_NONE && (scale == FMT_E8M0 || scale == FMT_E4M3) &&
           significant_bits(a->fmt) + (scale == FMT_E8M0 ? 0 : significant_bits(scale)) <=
               significant_bits(FMT_BF16);
}

/* A register that the program does not use; -1: it uses all. */
static int free_register(const PlanProgram *p)
{
    bool used[TILE_MAX_REGS] = {false};
    for (int i = 0; i < p->num_steps; i++) {
        const TileStep *s = &p->step[i];
        used[s->dst] = used[s->src[0]] = used[s->src[1]] = used[s->src[2]] = true;
    }
    for (int i = 0; i < TILE_MAX_REGS; i++)
        if (!used[i])
            return i;
    return -1;
}

/* There is room for the activation's outer scale. */
static bool has_room(const PlanLaunch *l)
{
    bool ret = l->num_operands < PLAN_MAX_OPERANDS;
    for (int i = 0; i < l->num_segments; i++) {
        const PlanProgram *p = &l->segment[i].epilogue;
        ret = ret && free_register(p) >= 0 && p->num_steps * 3 <= PLAN_MAX_STEPS;
    }
    return ret;
}

/* The launch runs the prologue of its product, which held activations leave to a row kernel. */
static bool is_fused(const CudaDraft *d, int launch)
{
    return d->role[launch].chain && launch == d->role[launch].chain->fused;
}

static bool is_product(const CudaDraft *d, int launch, int weight)
{
    const PlanLaunch *l = &d->plan->launch[launch];
    return l->family == LAUNCH_GEMM && l->w == weight && !is_fused(d, launch);
}

/* The weight's own bytes beside bf16, where the main loop had the activation's scales. */
static bool as_it_lies(const PlanTensor *weight, int index, PlanTensor *ret)
{
    CudaPacked packed;
    CpuPackSpec *spec = &ret->pack_spec;
    *ret = *weight;
    ret->storage = STORAGE_VIEW;
    ret->index = index;
    ret->view_col = 0;
    spec->act_fmt = FMT_BF16;
    spec->act_zero = false;
    spec->act_block_cols = 0;
    CudaPackSpec from = plan_cuda_spec(&weight->pack_spec), as = plan_cuda_spec(spec);
    if (weight->storage != STORAGE_CONST || spec->layout != CUDA_RECORDS || !spec->mainloop ||
        !cuda_packs_alike(&from, &as) || !cuda_pack_plan(&as, &packed))
        return false;
    ret->bytes = packed.bytes;
    return true;
}

bool cuda_held(const CudaDraft *d, int weight, int form, PlanTensor *ret)
{
    int num = 0;
    const PlanTensor *own = &d->plan->tensor[weight];
    /* (a scale a row is behind the product already) */
    if (!cuda_family_serves(CUDA_DECODE, d->options->gpu) || !own->pack_spec.act_block_cols)
        return false;
    for (int i = 0; i < d->plan->num_launches; i++) {
        const PlanLaunch *l = &d->plan->launch[i];
        if (!is_product(d, i, weight))
            continue;
        if (d->role[i].invariant || d->role[i].fused || l->grouped ||
            !fits(&d->plan->tensor[l->a]) || !has_room(l))
            return false;
        num++;
    }
    return num > 0 && (form == CUDA_HELD ? cuda_decoded_exactly(own, ret)
                                         : own->packed && as_it_lies(own, weight, ret));
}

/* Tensors -------------------------------------------------------------------------------------- */

/* Rows of bf16 start at multiples of 16 bytes. */
static int64_t held_cols(int64_t cols)
{
    return (cols + 7) / 8 * 8;
}

static PlanTensor outer_of(const CudaDraft *d, int tensor)
{
    return (PlanTensor){.name = d->plan->tensor[tensor].name,
                        .fmt = FMT_F32,
                        .rank = 1,
                        .dim = {{.add = 1, .sym = {-1, -1}}},
                        .storage = STORAGE_OUTER,
                        .index = tensor,
                        .params = -1};
}

/* The bf16 rows; columns of wider ones where these have no such pitch. */
static int put_rows(const CudaDraft *d, int a, int64_t k, const uint64_t *at, int first, int num,
                    PlanTensor *ret)
{
    PlanTensor rows = d->plan->tensor[a];
    PlanDim *last = &rows.dim[rows.rank - 1], own = *last;
    rows.fmt = FMT_BF16;
    rows.quantised = rows.is_static = false;
    rows.scheme = (Scheme){0};
    rows.params = -1;
    rows.storage = STORAGE_ARENA;
    rows.index = -1;
    rows.view_col = 0;
    rows.arena_offset = at;
    if (held_cols(k) != k)
        *last = (PlanDim){.add = held_cols(k), .sym = {-1, -1}};
    ret[num++] = rows;
    if (held_cols(k) == k)
        return num;
    *last = own;
    rows.storage = STORAGE_VIEW;
    rows.index = first + num - 1;
    rows.arena_offset = NULL;
    ret[num++] = rows;
    return num;
}

static int put_activation(const CudaDraft *d, int a, int64_t k, const uint64_t *at, int first,
                          PlanTensor *ret, CudaHold *hold)
{
    int num = put_rows(d, a, k, at, first, 0, ret);
    *hold = (CudaHold){.of = a, .from = a, .to = first + num - 1, .outer = -1};
    if (!d->plan->tensor[a].scheme.outer)
        return num;
    PlanTensor inner = d->plan->tensor[a]; /* codes times the scales of blocks alone */
    inner.scheme.outer = false;
    inner.storage = STORAGE_VIEW;
    inner.index = a;
    inner.view_col = 0;
    inner.arena_offset = NULL;
    hold->from = first + num;
    ret[num++] = inner;
    hold->outer = first + num;
    ret[num++] = outer_of(d, a);
    return num;
}

int cuda_hold_tensors(const CudaDraft *d, const PlanLaunch *product, int weight,
                      const CudaHold *known, const uint64_t *at, int first,
                      PlanTensor ret[CUDA_HOLD_TENSORS], CudaHold *hold)
{
    const CpuPackSpec *w = &d->plan->tensor[weight].pack_spec;
    int num = known ? 0 : put_activation(d, product->a, w->k, at, first, ret, hold);
    if (known)
        *hold = *known;
    return num;
}

uint64_t cuda_hold_bytes(const CudaDraft *d, const PlanLaunch *product, int bucket)
{
    const PlanLayout *a = &d->layout[bucket * d->plan->num_tensors + product->a];
    return (uint64_t)a->rows * (uint64_t)held_cols(a->cols) * 2;
}

/* Launches ------------------------------------------------------------------------------------- */

static PlanOperand operand_of(int tensor, bool is_number)
{
    return (PlanOperand){.tensor = tensor,
                         .row_div = {.add = 1, .sym = {-1, -1}},
                         .row_mod = {.add = is_number, .sym = {-1, -1}},
                         .col_step = !is_number};
}

PlanLaunch cuda_hold_launch(Arena *arena, const PlanLaunch *product, const CudaHold *hold)
{
    TileStep *step = ARENA_NEW_ARRAY(arena, TileStep, 2);
    PlanOperand *operand = ARENA_NEW_ARRAY(arena, PlanOperand, 2);
    step[0] = (TileStep){.op = TILE_LOAD, .tensor = 1};
    step[1] = (TileStep){.op = TILE_STORE, .tensor = 0};
    operand[0] = operand_of(hold->to, false);
    operand[1] = operand_of(hold->from, false);
    return cuda_row_launch(product, "hold activation", 2, operand, (PlanProgram){step, 2});
}

bool cuda_hold_rows(Arena *arena, const PlanLaunch *row, const CudaHold *hold, PlanLaunch *ret)
{
    const PlanProgram *p = &row->program;
    const TileStep *last = &p->step[p->num_steps - 1];
    int own = row->num_operands, more = hold->from == hold->of ? 1 : 2;
    if (last->op != TILE_QUANTIZE || plan_operand_is_mapped(&row->operand[last->tensor]) ||
        row->operand[last->tensor].tensor != hold->of || own + more > PLAN_MAX_OPERANDS ||
        p->num_steps + 2 > PLAN_MAX_STEPS)
        return false;
    uint16_t from = more == 1 ? last->tensor : (uint16_t)(own + 1);
    TileStep *step = ARENA_NEW_ARRAY(arena, TileStep, (size_t)p->num_steps + 2);
    PlanOperand *operand = ARENA_NEW_ARRAY(arena, PlanOperand, (size_t)(own + more));
    memcpy(step, p->step, (size_t)p->num_steps * sizeof *step);
    memcpy(operand, row->operand, (size_t)own * sizeof *operand);
    step[p->num_steps] = (TileStep){.op = TILE_LOAD, .dst = last->src[0], .tensor = from};
    step[p->num_steps + 1] =
        (TileStep){.op = TILE_STORE, .src = {last->src[0]}, .tensor = (uint16_t)own};
    operand[own] = operand_of(hold->to, false);
    if (more > 1)
        operand[own + 1] = operand_of(hold->from, false);
    *ret = *row;
    ret->absorbed = arena_printf(arena, "%s hold activation", row->absorbed);
    ret->num_operands += more;
    ret->operand = operand;
    ret->program = (PlanProgram){step, p->num_steps + 2};
    return true;
}

/* The epilogue whose sums are multiplied by `outers` operands from `first` on, one after the other.
 */
static PlanProgram scaled(Arena *arena, const PlanProgram *p, int first, int outers)
{
    int num = 0, by = free_register(p);
    TileStep *step = ARENA_NEW_ARRAY(arena, TileStep, (size_t)p->num_steps * 3);
    for (int i = 0; i < p->num_steps; i++) {
        const TileStep *s = &p->step[i];
        step[num++] = *s;
        for (int k = 0; k < outers && s->op == TILE_ACC; k++) {
            step[num++] =
                (TileStep){.op = TILE_LOAD, .dst = (uint8_t)by, .tensor = (uint16_t)(first + k)};
            step[num++] = (TileStep){.op = TILE_MUL,
                                     .dst = s->dst,
                                     .src = {s->dst, (uint8_t)by},
                                     .tensor = TILE_NO_TENSOR};
        }
    }
    return (PlanProgram){step, num};
}

PlanLaunch cuda_held_product(Arena *arena, const PlanLaunch *product, const CudaHold *hold,
                             int weight)
{
    PlanLaunch ret = *product;
    size_t num = (size_t)product->num_operands;
    PlanOperand *operand = ARENA_NEW_ARRAY(arena, PlanOperand, num + 1);
    PlanSegment *segment = ARENA_NEW_ARRAY(arena, PlanSegment, (size_t)product->num_segments);
    memcpy(operand, product->operand, num * sizeof *operand);
    if (hold->outer >= 0)
        operand[ret.num_operands++] = operand_of(hold->outer, true);
    for (int i = 0; i < product->num_segments; i++) {
        segment[i] = product->segment[i];
        segment[i].epilogue = scaled(arena, &product->segment[i].epilogue, product->num_operands,
                                     ret.num_operands - product->num_operands);
    }
    ret.operand = operand;
    ret.segment = segment;
    ret.a = hold->to;
    ret.w = weight;
    return ret;
}

/* A draft to take times of -------------------------------------------------------------------- */

typedef struct Trial {
    Arena *arena;
    const CudaDraft *from;
    Plan *plan;
    PlanTensor *tensor;
    PlanLaunch *launch;
    CudaRole *role;
    PlanLayout *layout;
} Trial;

static void put_launch(Trial *t, const PlanLaunch *l, const CudaRole *like)
{
    CudaRole role = *like;
    role.chain = NULL;
    t->launch[t->plan->num_launches] = *l;
    t->role[t->plan->num_launches++] = role;
}

/* The product `launch` with the row kernels before it. */
static void put_held(Trial *t, int launch, int weight, int as)
{
    const CudaDraft *d = t->from;
    const CudaChain *chain = d->role[launch].chain;
    const PlanLaunch *product = &d->plan->launch[launch];
    int first = t->plan->num_tensors;
    CudaHold hold;
    t->plan->num_tensors +=
        cuda_hold_tensors(d, product, weight, NULL, NULL, first, t->tensor + first, &hold);
    for (int i = first; i < t->plan->num_tensors; i++)
        if (t->tensor[i].storage == STORAGE_OUTER) /* numbers that need not be there to be read */
            t->tensor[i].storage = STORAGE_ARENA;
    PlanLaunch rows = cuda_hold_launch(t->arena, product, &hold), row;
    PlanLaunch held = cuda_held_product(t->arena, product, &hold, as);
    bool both = chain && cuda_hold_rows(t->arena, &d->plan->launch[chain->row], &hold, &row);
    if (chain && chain->ranges >= 0)
        put_launch(t, &d->plan->launch[chain->ranges], &d->role[chain->ranges]);
    if (chain)
        put_launch(t, both ? &row : &d->plan->launch[chain->row], &d->role[chain->row]);
    if (!both)
        put_launch(t, &rows, &d->role[launch]);
    put_launch(t, &held, &d->role[launch]);
}

/* Where a further tensor lies: views of the new ones behind them, of others where these are. */
static bool lay_out(const Trial *t, int bucket, int tensor, PlanLayout *layout)
{
    const PlanTensor *of = &t->tensor[tensor];
    PlanLayout *ret = &layout[tensor];
    if (!plan_tensor_layout(of, plan_bucket(t->plan, bucket), ret))
        return false;
    ret->root = ret->params_root = tensor;
    if (of->packed)
        ret->bytes = of->bytes;
    if (of->storage != STORAGE_VIEW)
        return true;
    if (of->quantised) {
        *ret = layout[of->index];
    } else {
        ret->root = of->index;
        ret->pitch = layout[of->index].pitch;
    }
    return true;
}

static bool lay_all_out(Trial *t)
{
    int num = t->from->plan->num_tensors, all = t->plan->num_tensors;
    size_t size = (size_t)(t->plan->num_buckets * all);
    t->layout = ARENA_NEW_ARRAY(t->arena, PlanLayout, size);
    for (int b = 0; b < t->plan->num_buckets; b++) {
        memcpy(t->layout + b * all, t->from->layout + b * num, (size_t)num * sizeof *t->layout);
        for (int i = num; i < all; i++)
            if (!lay_out(t, b, i, t->layout + b * all))
                return false;
    }
    return true;
}

bool cuda_held_draft(const CudaDraft *d, int weight, const PlanTensor *as, Arena *arena,
                     CudaDraft *ret)
{
    int num = 0;
    for (int i = 0; i < d->plan->num_launches; i++)
        num += is_product(d, i, weight);
    Trial t = {.arena = arena, .from = d, .plan = ARENA_NEW(arena, Plan)};
    size_t tensors = (size_t)(d->plan->num_tensors + 1 + num * CUDA_HOLD_TENSORS);
    t.tensor = ARENA_NEW_ARRAY(arena, PlanTensor, tensors);
    t.launch = ARENA_NEW_ARRAY(arena, PlanLaunch, (size_t)num * 4);
    t.role = ARENA_NEW_ARRAY(arena, CudaRole, (size_t)num * 4);
    *t.plan = *d->plan;
    memcpy(t.tensor, d->plan->tensor, (size_t)d->plan->num_tensors * sizeof *t.tensor);
    t.tensor[t.plan->num_tensors++] = *as;
    t.plan->tensor = t.tensor;
    t.plan->launch = t.launch;
    t.plan->num_launches = 0;
    for (int i = 0; i < d->plan->num_launches; i++)
        if (is_product(d, i, weight))
            put_held(&t, i, weight, d->plan->num_tensors);
    *ret = *d;
    ret->plan = t.plan;
    ret->role = t.role;
    if (!lay_all_out(&t))
        return false;
    ret->layout = t.layout;
    return true;
}
