/* Changing plans; see plans.h. */
#include "plans.h"

#include <stdlib.h>
#include <string.h>

#define ROOM 4 /* elements that an array may grow by */

uint64_t choose(Choices *c, uint64_t below)
{
    if (c->byte) {
        uint64_t v = 0;
        int bytes = below > 65536 ? 8 : below > 256 ? 2 : 1;
        for (int i = 0; i < bytes && c->num; i++, c->num--)
            v = v << 8 | *c->byte++;
        return v % below;
    }
    uint64_t z = c->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (z ^ z >> 31) % below;
}

/* Thawing -------------------------------------------------------------------------------------- */

static void *copy_array(Arena *arena, const void *from, int num, size_t size)
{
    uint8_t *ret = arena_alloc_array(arena, (size_t)num + ROOM, size);
    if (num)
        memcpy(ret, from, (size_t)num * size);
    return ret;
}

static void thaw_program(PlanProgram *p, Arena *arena)
{
    p->step = copy_array(arena, p->step, p->num_steps, sizeof *p->step);
}

static void thaw_launch(PlanLaunch *l, Arena *arena)
{
    l->operand = copy_array(arena, l->operand, l->num_operands, sizeof *l->operand);
    PlanSegment *segment = copy_array(arena, l->segment, l->num_segments, sizeof *segment);
    for (int i = 0; i < l->num_segments; i++)
        thaw_program(&segment[i].epilogue, arena);
    l->segment = segment;
    thaw_program(&l->prologue, arena);
    thaw_program(&l->program, arena);
}

Plan *plan_thaw(const Plan *plan, Arena *arena)
{
    Plan *p = ARENA_NEW(arena, Plan);
    *p = *plan;
    PlanTensor *tensor = copy_array(arena, p->tensor, p->num_tensors, sizeof *tensor);
    for (int i = 0; i < p->num_tensors; i++) {
        tensor[i].arena_offset =
            tensor[i].storage == STORAGE_ARENA
                ? copy_array(arena, tensor[i].arena_offset, p->num_buckets, sizeof(uint64_t))
                : ARENA_NEW_ARRAY(arena, uint64_t, (size_t)p->num_buckets + ROOM);
    }
    p->tensor = tensor;
    PlanLaunch *launch = copy_array(arena, p->launch, p->num_launches, sizeof *launch);
    for (int i = 0; i < p->num_launches; i++)
        thaw_launch(&launch[i], arena);
    p->launch = launch;
    p->input = copy_array(arena, p->input, p->num_inputs, sizeof *p->input);
    p->output = copy_array(arena, p->output, p->num_outputs, sizeof *p->output);
    p->arena_bytes = copy_array(arena, p->arena_bytes, p->num_buckets, sizeof(uint64_t));
    p->bucket_size =
        copy_array(arena, p->bucket_size, p->num_buckets * p->num_syms, sizeof(int64_t));
    return p;
}

/* Numbers -------------------------------------------------------------------------------------- */

static int64_t near_value(Choices *c, int64_t v)
{
    static const int64_t odd[] = {0,  1,  -1, 2,         3,         7,         8,         16,
                                  31, 63, 64, 127,       128,       255,       256,       4096,
                                  32, 4,  15, INT32_MAX, INT64_MAX, INT64_MIN, 1LL << 40, -64};
    uint64_t u = (uint64_t)v;
    switch (choose(c, 8)) {
    case 0: return (int64_t)(u + 1);
    case 1: return (int64_t)(u - 1);
    case 2: return (int64_t)(u * 2);
    case 3: return v / 2;
    case 4: return (int64_t)(u + 64);
    case 5: return (int64_t)(u - 64);
    case 6: return (int64_t)choose(c, 32);
    default: return odd[choose(c, COUNT_OF(odd))];
    }
}

static int32_t near_index(Choices *c, int32_t v, int num)
{
    if (choose(c, 8) == 0)
        return (int32_t)near_value(c, v);
    return (int32_t)choose(c, (uint64_t)num + 1) - (choose(c, 16) == 0);
}

static int small(Choices *c, int limit)
{
    return (int)choose(c, (uint64_t)limit);
}

static void mutate_dim(PlanDim *d, Choices *c, int num_syms)
{
    switch (choose(c, 5)) {
    case 0: d->mul = near_value(c, d->mul); break;
    case 1: d->add = near_value(c, d->add); break;
    case 2: d->sym[0] = near_index(c, d->sym[0], num_syms) - 1; break;
    case 3: d->sym[1] = near_index(c, d->sym[1], num_syms) - 1; break;
    default: *d = (PlanDim){0, (int64_t)choose(c, 20), {-1, -1}}; break;
    }
}

static FormatId any_format(Choices *c)
{
    static const FormatId common[] = {FMT_F32, FMT_F16, FMT_BF16, FMT_I32,  FMT_I8,
                                      FMT_U8,  FMT_I4,  FMT_U4,   FMT_E4M3, FMT_NF4};
    return choose(c, 4) ? common[choose(c, COUNT_OF(common))] : (FormatId)small(c, NUM_FORMATS);
}

static void mutate_scheme(Scheme *s, Choices *c)
{
    switch (choose(c, 6)) {
    case 0: s->fmt = any_format(c); break;
    case 1: s->scale_fmt = any_format(c); break;
    case 2: s->zero = (ZeroKind)small(c, ZERO_INT + 1); break;
    case 3: s->outer = !s->outer; break;
    case 4: s->block[0] = near_value(c, s->block[0]); break;
    default: s->block[1] = near_value(c, s->block[1]); break;
    }
}

static void mutate_pack(CpuPackSpec *s, Choices *c)
{
    switch (choose(c, 12)) {
    case 0: s->fmt = any_format(c); break;
    case 1: s->act_fmt = any_format(c); break;
    case 2: s->n = near_value(c, s->n); break;
    case 3: s->k = near_value(c, s->k); break;
    case 4: s->parts = small(c, 3); break;
    case 5: s->mainloop = !s->mainloop; break;
    case 6: s->has_zero = !s->has_zero; break;
    case 7: s->act_zero = !s->act_zero; break;
    case 8: s->block_rows = near_value(c, s->block_rows); break;
    case 9: s->block_cols = near_value(c, s->block_cols); break;
    case 10: s->layout = (uint8_t)small(c, NUM_CUDA_PACKED); break;
    default: s->act_block_cols = near_value(c, s->act_block_cols); break;
    }
}

/* Parts ---------------------------------------------------------------------------------------- */

static void mutate_tensor(const Plan *p, PlanTensor *t, Choices *c)
{
    uint64_t *offset = (uint64_t *)(uintptr_t)t->arena_offset;
    int bucket = small(c, p->num_buckets > 0 ? p->num_buckets : 1);
    switch (choose(c, 16)) {
    case 0: t->fmt = any_format(c); break;
    case 1: t->quantised = !t->quantised; break;
    case 2: t->is_static = !t->is_static; break;
    case 3: mutate_scheme(&t->scheme, c); break;
    case 4: t->rank = small(c, LIMIT_RANK + 1); break;
    case 5:
    case 6: mutate_dim(&t->dim[choose(c, LIMIT_RANK)], c, p->num_syms); break;
    case 7: t->storage = (PlanStorage)small(c, STORAGE_OUTER + 1); break;
    case 8: t->index = near_index(c, t->index, p->num_tensors); break;
    case 9: t->offset = (uint64_t)near_value(c, (int64_t)t->offset); break;
    case 10: t->bytes = (uint64_t)near_value(c, (int64_t)t->bytes); break;
    case 11: t->view_col = near_value(c, t->view_col); break;
    case 12: t->packed = !t->packed; break;
    case 13: mutate_pack(&t->pack_spec, c); break;
    case 14: t->groups = near_value(c, t->groups); break;
    default:
        t->params = near_index(c, t->params, p->num_tensors);
        offset[bucket] = (uint64_t)near_value(c, (int64_t)offset[bucket]) / 64 * 64;
        break;
    }
}

static void mutate_step(const PlanLaunch *l, TileStep *s, Choices *c)
{
    switch (choose(c, 8)) {
    case 0: s->op = (uint16_t)small(c, NUM_TILE_OPS + 1); break;
    case 1: s->fmt = (uint8_t)any_format(c); break;
    case 2: s->dst = (uint8_t)small(c, TILE_MAX_REGS + 1); break;
    case 3: s->src[choose(c, 3)] = (uint8_t)small(c, TILE_MAX_REGS + 1); break;
    case 4: s->part = (uint8_t)small(c, 3); break;
    case 5: s->tensor = (uint16_t)small(c, l->num_operands + 1); break;
    case 6: s->tensor2 = (uint16_t)small(c, l->num_operands + 1); break;
    default: s->imm = (float)near_value(c, (int64_t)1); break;
    }
}

static void mutate_program(const PlanLaunch *l, PlanProgram *p, Choices *c)
{
    TileStep *step = (TileStep *)(uintptr_t)p->step;
    if (!p->num_steps)
        return;
    TileStep *at = &step[choose(c, (uint64_t)p->num_steps)];
    TileStep *other = &step[choose(c, (uint64_t)p->num_steps)], keep = *at;
    switch (choose(c, 10)) {
    case 0:
        *at = *other;
        *other = keep;
        break;
    case 1: *at = *other; break;
    case 2: p->num_steps--; break;
    case 3: step[p->num_steps++] = keep; break;
    default: mutate_step(l, at, c); break;
    }
}

static void mutate_operand(const Plan *p, const PlanLaunch *l, PlanOperand *o, Choices *c)
{
    switch (choose(c, 6)) {
    case 0: o->tensor = near_index(c, o->tensor, p->num_tensors); break;
    case 1: mutate_dim(&o->row_div, c, p->num_syms); break;
    case 2: mutate_dim(&o->row_mod, c, p->num_syms); break;
    case 3: o->by_group = !o->by_group; break;
    case 4: o->index = small(c, l->num_operands + 2); break;
    default: o->col_step = small(c, 2); break;
    }
}

static void mutate_gemm(const Plan *p, PlanLaunch *l, Choices *c)
{
    PlanSegment *segment = (PlanSegment *)(uintptr_t)l->segment;
    PlanSegment *s = l->num_segments ? &segment[choose(c, (uint64_t)l->num_segments)] : NULL;
    switch (choose(c, 7)) {
    case 0: l->a = near_index(c, l->a, p->num_tensors); break;
    case 1: l->w = near_index(c, l->w, p->num_tensors); break;
    case 2: mutate_program(l, &l->prologue, c); break;
    case 3:
        if (s)
            s->n_begin = near_value(c, s->n_begin);
        break;
    case 4:
        if (s)
            s->n_end = near_value(c, s->n_end);
        break;
    default:
        if (s)
            mutate_program(l, &s->epilogue, c);
        break;
    }
}

static void mutate_move(const Plan *p, PlanLaunch *l, Choices *c)
{
    int axis = small(c, LIMIT_RANK);
    switch (choose(c, 8)) {
    case 0: l->src = near_index(c, l->src, p->num_tensors); break;
    case 1: l->dst = near_index(c, l->dst, p->num_tensors); break;
    case 2: l->move_rank = small(c, LIMIT_RANK + 1); break;
    case 3: mutate_dim(&l->move_dim[axis], c, p->num_syms); break;
    case 4: mutate_dim(&l->move_src_stride[axis], c, p->num_syms); break;
    case 5: mutate_dim(&l->move_dst_stride[axis], c, p->num_syms); break;
    case 6: mutate_dim(&l->move_src_offset, c, p->num_syms); break;
    default: mutate_dim(&l->move_dst_offset, c, p->num_syms); break;
    }
}

static void mutate_route(PlanLaunch *l, Choices *c)
{
    if (choose(c, 2) == 0)
        l->route = (RouteStep)small(c, NUM_ROUTE_STEPS);
    else
        l->groups = near_value(c, l->groups);
}

static void mutate_launch(const Plan *p, PlanLaunch *l, Choices *c)
{
    PlanOperand *operand = (PlanOperand *)(uintptr_t)l->operand;
    if (l->num_operands && choose(c, 3) == 0) {
        mutate_operand(p, l, &operand[choose(c, (uint64_t)l->num_operands)], c);
        return;
    }
    if (choose(c, 24) == 0)
        l->num_operands -= l->num_operands > 0;
    if (choose(c, 24) == 0)
        l->whole_rows = !l->whole_rows;
    if (choose(c, 24) == 0) { /* none but products and tiles are of groups */
        l->grouped = (l->family == LAUNCH_GEMM || l->family == LAUNCH_TILE) && !l->grouped;
        l->ends = l->grouped ? near_index(c, l->ends, p->num_tensors) : 0;
    }
    if (l->grouped && choose(c, 12) == 0)
        l->ends = near_index(c, l->ends, p->num_tensors);
    if (l->family == LAUNCH_GEMM)
        mutate_gemm(p, l, c);
    else if (l->family == LAUNCH_MOVE || l->family == LAUNCH_DECODE)
        mutate_move(p, l, c);
    else if (l->family == LAUNCH_ROUTE)
        mutate_route(l, c);
    else
        mutate_program(l, &l->program, c);
}

/* The plan's own numbers, and whole parts of it swapped, copied or dropped. */
static void mutate_whole(Plan *p, Choices *c)
{
    PlanTensor *tensor = (PlanTensor *)(uintptr_t)p->tensor, *t, tkeep;
    PlanLaunch *launch = (PlanLaunch *)(uintptr_t)p->launch, *l, lkeep;
    uint64_t *bytes = (uint64_t *)(uintptr_t)p->arena_bytes;
    int64_t *size = (int64_t *)(uintptr_t)p->bucket_size;
    if (!p->num_tensors || !p->num_launches)
        return;
    t = &tensor[choose(c, (uint64_t)p->num_tensors)];
    l = &launch[choose(c, (uint64_t)p->num_launches)];
    switch (choose(c, 12)) {
    case 0:
        tkeep = tensor[0];
        tensor[0] = *t;
        *t = tkeep;
        break;
    case 1: *t = tensor[choose(c, (uint64_t)p->num_tensors)]; break;
    case 2:
        lkeep = launch[0];
        launch[0] = *l;
        *l = lkeep;
        break;
    case 3: *l = launch[choose(c, (uint64_t)p->num_launches)]; break;
    case 4: p->num_launches--; break;
    case 5: p->rows_independent = !p->rows_independent; break;
    case 6:
        if (p->num_buckets > 0)
            bytes[choose(c, (uint64_t)p->num_buckets)] = (uint64_t)near_value(c, (int64_t)bytes[0]);
        break;
    case 7:
        if (p->num_buckets * p->num_syms > 0)
            size[choose(c, (uint64_t)(p->num_buckets * p->num_syms))] = near_value(c, size[0]);
        break;
    case 8: p->num_buckets -= p->num_buckets > 1; break;
    case 9: p->num_inputs -= p->num_inputs > 0; break;
    default: p->num_outputs -= p->num_outputs > 0; break;
    }
}

void plan_mutate(Plan *p, Choices *c)
{
    int num = 1 + small(c, 4);
    for (int i = 0; i < num; i++) {
        uint64_t what = choose(c, 16);
        if (what < 6 && p->num_tensors)
            mutate_tensor(p, (PlanTensor *)(uintptr_t)&p->tensor[small(c, p->num_tensors)], c);
        else if (what < 14 && p->num_launches)
            mutate_launch(p, (PlanLaunch *)(uintptr_t)&p->launch[small(c, p->num_launches)], c);
        else
            mutate_whole(p, c);
    }
}
