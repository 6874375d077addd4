/* codegen/program: the tile program that computes what a launch stores.
 *
 * Steps are made on demand from the stores backwards: a value is asked for from one of its columns
 * on, so slices, the two parts of a gated product and segments all come out as offsets. Steps first
 * use virtual registers, one for each result; then each gets the lowest register that is free. */
#include "codegen/build.h"

typedef struct VirtualStep {
    TileStep step; /* dst and src are filled in last */
    int dst, src[3], num_src;
} VirtualStep;

typedef struct Known {
    const Value *value;
    int64_t off;
    int reg;
} Known;

typedef struct Program {
    Builder *b;
    Operands *operands;
    const ProgramSpec *spec;
    ARRAY(VirtualStep) steps;
    ARRAY(Known) known;
    int num_regs;
    bool forget_loads; /* load again for each use: fewer registers */
} Program;

static int value_reg(Program *p, const Value *value, int64_t off);

static bool is_one(Dim d)
{
    return dim_is_const(d) && d.add == 1;
}

static bool is_narrow(const Type *type)
{
    return type->rank == 0 || is_one(type_last(type));
}

/* Operands ------------------------------------------------------------------------------------ */

/* Rows of the tensor are found as (row / div) % mod: its dims of 1 repeat rows of the domain, and
 * lie outside or inside of all the others. */
static bool map_rows(const Type *type, const Type *domain, PlanOperand *ret)
{
    int shift = domain->rank - type->rank;
    Dim div = dim_const(1), mod = dim_const(1);
    bool seen_full = false, repeats_outside = false, one_row = true, div_fits = true,
         mod_fits = true; /* products of dims that are no dim matter only where they are needed */
    for (int i = domain->rank - 2; i >= 0; i--) {
        if (is_one(domain->dim[i]))
            continue;
        one_row = false;
        bool full = i >= shift && dim_equal(type->dim[i - shift], domain->dim[i]);
        if (full) {
            if (repeats_outside)
                return false;
            mod_fits = mod_fits && dim_mul(mod, domain->dim[i], &mod);
        } else if (seen_full) {
            repeats_outside = true;
        } else {
            div_fits = div_fits && dim_mul(div, domain->dim[i], &div);
        }
        seen_full |= full;
    }
    bool needs_mod = !one_row && (repeats_outside || !seen_full);
    if ((seen_full && !div_fits) || (needs_mod && !mod_fits))
        return false;
    ret->row_div = plan_dim(seen_full ? div : dim_const(1));
    ret->row_mod = plan_dim(needs_mod ? mod : dim_const(0));
    return true;
}

static bool same_operand(const PlanOperand *a, const PlanOperand *b)
{
    return a->tensor == b->tensor && a->col_step == b->col_step && a->by_group == b->by_group &&
           a->index == b->index && plan_dim_equal(a->row_div, b->row_div) &&
           plan_dim_equal(a->row_mod, b->row_mod);
}

static int operand_put(Builder *b, Operands *operands, const PlanOperand *o)
{
    for (int i = 0; i < operands->list.num; i++)
        if (same_operand(&operands->list.elem[i], o))
            return i;
    ARRAY_PUSH(b->arena, &operands->list, *o);
    return operands->list.num - 1;
}

int operand_add(Builder *b, Operands *operands, int tensor, const Type *domain)
{
    const Type *type = b->infos.elem[tensor].type;
    const PlanTensor *t = &b->tensors.elem[tensor];
    PlanOperand o = {.tensor = tensor, .col_step = 1};
    /* scales that rows share in blocks */
    bool is_part = t->storage == STORAGE_SCALES || t->storage == STORAGE_ZEROS;
    int64_t block = is_part ? b->tensors.elem[t->index].scheme.block[0] : 0;
    if (block > 1) {
        o.row_div = plan_dim(dim_const(block));
        o.row_mod = plan_dim(dim_const(0));
    } else if (!map_rows(type, domain, &o)) {
        BUG("%s does not repeat over %s", type_text(b->arena, type), type_text(b->arena, domain));
    }
    if (is_narrow(type) && !is_one(type_last(domain)))
        o.col_step = 0;
    return operand_put(b, operands, &o);
}

/* Rows of a table that groups of rows have. */
static int operand_add_groups(Builder *b, Operands *operands, int tensor)
{
    PlanOperand o = {.tensor = tensor,
                     .row_div = plan_dim(dim_const(1)),
                     .row_mod = plan_dim(dim_const(0)),
                     .col_step = 1,
                     .by_group = true};
    return operand_put(b, operands, &o);
}

void launch_group(Builder *b, const Op *kernel, PlanLaunch *l)
{
    for_each_op(op, kernel->body) {
        const Value *ends = op_ends(op);
        if (ends) {
            l->grouped = true;
            l->counted = op_is_counted(op);
            l->ends = tensor_get(b, build_outer(b, ends), op->span);
            return;
        }
    }
}

/* Steps --------------------------------------------------------------------------------------- */

static int step_add(Program *p, TileStep step, int num_src, const int *src, bool sets)
{
    VirtualStep v = {.step = step, .dst = sets ? p->num_regs++ : -1, .num_src = num_src};
    for (int i = 0; i < num_src; i++)
        v.src[i] = src[i];
    ARRAY_PUSH(p->b->arena, &p->steps, v);
    return v.dst;
}

static TileStep tile_step(TileOp op)
{
    return (TileStep){.op = (uint16_t)op, .tensor = TILE_NO_TENSOR, .tensor2 = TILE_NO_TENSOR};
}

static int load_tensor(Program *p, int tensor, int64_t off, Span span)
{
    Builder *b = p->b;
    const Type *type = b->infos.elem[tensor].type;
    if (off > 0 && !is_narrow(type)) {
        if (type->scheme || !dim_is_const(p->spec->cols)) {
            build_fail(b, span, "columns of %s cannot be read apart", type_text(b->arena, type));
            return 0;
        }
        tensor = tensor_columns(b, tensor, off, p->spec->cols.add);
    }
    PlanOperand unused;
    if (!map_rows(b->infos.elem[tensor].type, p->spec->domain, &unused))
        tensor = build_expanded(b, tensor, p->spec->domain, p->b->kernel);
    if (tensor < 0)
        return 0;
    TileStep step = tile_step(TILE_LOAD);
    step.tensor = (uint16_t)operand_add(b, p->operands, tensor, p->spec->domain);
    return step_add(p, step, 0, NULL, true);
}

static int load_value(Program *p, const Value *value, int64_t off, Span span)
{
    int tensor = tensor_get(p->b, build_outer(p->b, value), span);
    return tensor < 0 ? 0 : load_tensor(p, tensor, off, span);
}

/* Of each row its group's row of a table. */
static int load_spread(Program *p, const Op *op, int64_t off)
{
    Builder *b = p->b;
    int tensor = tensor_get(b, build_outer(b, op_in(op, 0)), op->span);
    if (tensor < 0)
        return 0;
    if (dim_is_const(p->spec->cols))
        tensor = tensor_columns(b, tensor, off, p->spec->cols.add);
    TileStep step = tile_step(TILE_LOAD);
    step.tensor = (uint16_t)operand_add_groups(b, p->operands, tensor);
    return step_add(p, step, 0, NULL, true);
}

/* Of each row the row of a value that column `col` of an index names. */
static int load_rows(Program *p, const Value *value, const Value *index, int64_t col, int64_t off,
                     Span span)
{
    Builder *b = p->b;
    int tensor = tensor_get(b, build_outer(b, value), span);
    int by = tensor_get(b, build_outer(b, index), span);
    if (tensor < 0 || by < 0)
        return 0;
    if (dim_is_const(p->spec->cols))
        tensor = tensor_columns(b, tensor, off, p->spec->cols.add);
    by = tensor_columns(b, by, col, 1);
    int at = operand_put(b, p->operands,
                         &(PlanOperand){.tensor = by,
                                        .row_div = plan_dim(dim_const(1)),
                                        .row_mod = plan_dim(dim_const(0)),
                                        .col_step = 1});
    PlanOperand o = {.tensor = tensor,
                     .row_div = plan_dim(dim_const(1)),
                     .row_mod = plan_dim(dim_const(0)),
                     .col_step = 1,
                     .index = at + 1};
    TileStep step = tile_step(TILE_LOAD);
    step.tensor = (uint16_t)operand_put(b, p->operands, &o);
    return step_add(p, step, 0, NULL, true);
}

/* Sums over the choices, each weighted. */
static int combine_reg(Program *p, const Op *op, int64_t off)
{
    Builder *b = p->b;
    int sum = 0, weights = tensor_get(b, build_outer(b, op_in(op, 2)), op->span);
    int64_t choices = type_last(op_in(op, 1)->type).add;
    if (weights < 0)
        return 0;
    _Static_assert(3 * LIMIT_CHOICES <= PLAN_MAX_OPERANDS - 16, "three operands each");
    if (choices > LIMIT_CHOICES)
        build_fail(b, op->span, "%lld choices are more than a kernel can sum up",
                   (long long)choices);
    for (int64_t i = 0; i < choices && !b->failed; i++) {
        int reg[2] = {load_rows(p, op_in(op, 0), op_in(op, 1), i, off, op->span)};
        TileStep load = tile_step(TILE_LOAD);
        int column = tensor_columns(b, weights, i, 1);
        load.tensor = (uint16_t)operand_add(b, p->operands, column, p->spec->domain);
        reg[1] = step_add(p, load, 0, NULL, true);
        int product[2] = {sum, step_add(p, tile_step(TILE_MUL), 2, (int[]){reg[1], reg[0]}, true)};
        sum = i ? step_add(p, tile_step(TILE_ADD), 2, product, true) : product[1];
    }
    return sum;
}

static int load_part(Program *p, const Op *op)
{
    Builder *b = p->b;
    const Value *of = op_in(op, 0);
    int tensor = ptrmap_get(p->spec->inside, of) - 1;
    if (tensor < 0)
        tensor = tensor_get(b, build_outer(b, of), op->span);
    if (tensor < 0)
        return 0;
    if (op->attr.axis != 0) {
        build_fail(b, op->span,
                   "a linear layer whose weight is computed cannot be quantised on "
                   "the CPU");
        return 0;
    }
    bool is_scale = op->kind == OP_SCALES;
    int part = tensor_part(b, tensor, is_scale ? STORAGE_SCALES : STORAGE_ZEROS, op->out[0].type);
    int reg = load_tensor(p, part, 0, op->span);
    if (!is_scale || !b->tensors.elem[tensor].scheme.outer)
        return reg;
    int outer = tensor_part(b, tensor, STORAGE_OUTER, op->out[0].type);
    int both[2] = {reg, load_tensor(p, outer, 0, op->span)};
    return step_add(p, tile_step(TILE_MUL), 2, both, true);
}

/* Columns of an operand for columns of the result: one column goes with all. */
static int64_t operand_off(const Value *operand, const Value *result, int64_t off)
{
    return is_narrow(operand->type) && !is_narrow(result->type) ? 0 : off;
}

static int cast_reg(Program *p, const Op *op, int64_t off)
{
    const Type *from = op_in(op, 0)->type, *to = op->out[0].type;
    int reg = value_reg(p, op_in(op, 0), off);
    if (from->fmt == FMT_I32)
        reg = step_add(p, tile_step(TILE_I32_TO_F32), 1, &reg, true);
    if (to->fmt == FMT_F32 || to->fmt == from->fmt)
        return reg;
    TileStep step = tile_step(TILE_ROUND);
    step.fmt = (uint8_t)to->fmt;
    return step_add(p, step, 1, &reg, true);
}

static TileOp tile_op(const Op *op)
{
    if (op->out[0].type->fmt == FMT_I32)
        return op->kind == OP_ADD   ? TILE_ADD_I32
               : op->kind == OP_SUB ? TILE_SUB_I32
               : op->kind == OP_MUL ? TILE_MUL_I32
                                    : NUM_TILE_OPS;
    switch ((int)op->kind) {
#define ELEMENTWISE(ID, name, arity, f32_expr, f64_expr) \
    case OP_##ID:                                        \
        return TILE_##ID;
#include "numerics/elementwise.def"
#undef ELEMENTWISE
    case OP_RMSNORM: return TILE_RMSNORM;
    case OP_LAYERNORM: return TILE_LAYERNORM;
    case OP_SOFTMAX: return TILE_SOFTMAX;
    default: return NUM_TILE_OPS;
    }
}

static int compute_reg(Program *p, const Op *op, int64_t off)
{
    int src[3] = {0};
    TileOp kind = tile_op(op);
    if (kind == NUM_TILE_OPS || op->num_in > 3) {
        build_fail(p->b, op->span, "%s of %s has no step in a tile program", op_info[op->kind].name,
                   type_text(p->b->arena, op->out[0].type));
        return 0;
    }
    for (int i = 0; i < op->num_in; i++)
        src[i] = value_reg(p, op_in(op, i), operand_off(op_in(op, i), &op->out[0], off));
    TileStep step = tile_step(kind);
    if (kind == TILE_RMSNORM || kind == TILE_LAYERNORM)
        step.imm = (float)op->attr.eps;
    return step_add(p, step, op->num_in, src, true);
}

static int accumulator_reg(Program *p, int64_t off)
{
    TileStep step = tile_step(TILE_ACC);
    step.fmt = (uint8_t)p->spec->matmul->out[0].type->fmt;
    step.part = (uint8_t)(p->spec->part_cols ? off / p->spec->part_cols : 0);
    return step_add(p, step, 0, NULL, true);
}

static int make_reg(Program *p, const Value *value, int64_t off)
{
    const Op *op = value->def;
    int inside = ptrmap_get(p->spec->inside, value) - 1;
    if (inside >= 0)
        return load_tensor(p, inside, off, op->span);
    switch (op->kind) {
    case OP_ARG: return load_value(p, value, off, p->b->kernel->span);
    case OP_MATMUL:
        if (op == p->spec->matmul)
            return accumulator_reg(p, off);
        break;
    case OP_SLICE: return value_reg(p, op_in(op, 0), off + op->attr.start);
    case OP_CAST: return cast_reg(p, op, off);
    case OP_SPREAD: return load_spread(p, op, off);
    case OP_DISPATCH: return load_rows(p, op_in(op, 0), op_in(op, 1), 0, off, op->span);
    case OP_COMBINE: return combine_reg(p, op, off);
    case OP_SCALES:
    case OP_ZEROS: return load_part(p, op);
    case OP_DEQUANTIZE:
        if (op_in(op, 0)->def->kind == OP_ARG)
            return load_value(p, op_in(op, 0), off, op->span);
        break;
    default: return compute_reg(p, op, off);
    }
    build_fail(p->b, op->span, "%s cannot be part of this kernel", op_info[op->kind].name);
    return 0;
}

static int value_reg(Program *p, const Value *value, int64_t off)
{
    bool is_load = value->def->kind == OP_ARG;
    if (p->b->failed)
        return 0;
    for (int i = 0; i < p->known.num; i++)
        if (p->known.elem[i].value == value && p->known.elem[i].off == off)
            return p->known.elem[i].reg;
    Known known = {value, off, make_reg(p, value, off)};
    if (!is_load || !p->forget_loads)
        ARRAY_PUSH(p->b->arena, &p->known, known);
    return known.reg;
}

/* Storing rounds, so a cast to the tensor's format needs no step of its own. */
static int stored_reg(Program *p, const Store *store)
{
    const Op *op = store->value->def;
    FormatId fmt = p->b->tensors.elem[store->tensor].fmt;
    bool rounds = op->kind == OP_CAST && op->out[0].type->fmt == fmt && fmt != FMT_F32 &&
                  op_in(op, 0)->type->fmt == FMT_F32;
    return value_reg(p, rounds ? op_in(op, 0) : store->value, store->off);
}

static void store_add(Program *p, const Store *store)
{
    const Op *op = store->value->def;
    const Type *domain = p->spec->domain;
    TileStep step = tile_step(TILE_STORE);
    int reg = 0, num_src = 1;
    if (op->kind == OP_CODE_SUM) {
        step.op = TILE_CODE_SUM;
        step.tensor2 = (uint16_t)operand_add(p->b, p->operands, store->codes, domain);
        num_src = 0;
    } else if (op->kind == OP_QUANTIZE) {
        step.op = TILE_QUANTIZE;
        reg = value_reg(p, op_in(op, 0), store->off);
    } else {
        reg = stored_reg(p, store);
    }
    step.tensor = (uint16_t)operand_add(p->b, p->operands, store->tensor, domain);
    step_add(p, step, num_src, &reg, false);
}

/* Registers ----------------------------------------------------------------------------------- */

/* False when more are alive at once than there are. */
static bool assign_registers(Program *p)
{
    int *last = ARENA_NEW_ARRAY(p->b->arena, int, (size_t)p->num_regs + 1);
    int *real = ARENA_NEW_ARRAY(p->b->arena, int, (size_t)p->num_regs + 1);
    uint32_t taken = 0;
    for (int i = 0; i < p->steps.num; i++)
        for (int j = 0; j < p->steps.elem[i].num_src; j++)
            last[p->steps.elem[i].src[j]] = i;
    for (int i = 0; i < p->steps.num; i++) {
        VirtualStep *v = &p->steps.elem[i];
        for (int j = 0; j < v->num_src; j++)
            v->step.src[j] = (uint8_t)real[v->src[j]];
        for (int j = 0; j < v->num_src; j++)
            if (last[v->src[j]] == i)
                taken &= ~(1u << real[v->src[j]]);
        if (v->dst < 0)
            continue;
        int reg = 0;
        while (reg < TILE_MAX_REGS && taken >> reg & 1)
            reg++;
        if (reg == TILE_MAX_REGS)
            return false;
        real[v->dst] = reg;
        v->step.dst = (uint8_t)reg;
        taken |= 1u << reg;
    }
    return true;
}

_Static_assert(TILE_MAX_REGS == 32, "registers in use are bits of a word");

bool program_build(Builder *b, Operands *operands, const ProgramSpec *spec, PlanProgram *ret)
{
    bool fits = false;
    Program p = {.b = b, .operands = operands, .spec = spec};
    for (int attempt = 0; attempt < 2 && !fits && !b->failed; attempt++) {
        p.steps.num = p.known.num = p.num_regs = 0;
        p.forget_loads = attempt > 0;
        for (int i = 0; i < spec->num_stores; i++)
            store_add(&p, &spec->store[i]);
        fits = assign_registers(&p);
    }
    if (b->failed)
        return false;
    if (!fits)
        return build_fail(b, b->kernel->span, "a kernel of %d steps needs more than %d registers",
                          p.steps.num, TILE_MAX_REGS);
    TileStep *step = ARENA_NEW_ARRAY(b->arena, TileStep, (size_t)p.steps.num);
    for (int i = 0; i < p.steps.num; i++)
        step[i] = p.steps.elem[i].step;
    *ret = (PlanProgram){step, p.steps.num};
    return true;
}

bool program_needs_rows(const PlanProgram *program, const Builder *b, const Operands *operands)
{
    for (int i = 0; i < program->num_steps; i++) {
        const TileStep *s = &program->step[i];
        if (s->op == TILE_RMSNORM || s->op == TILE_LAYERNORM || s->op == TILE_SOFTMAX ||
            s->op == TILE_CODE_SUM)
            return true;
        if (s->op == TILE_QUANTIZE &&
            !b->tensors.elem[operands->list.elem[s->tensor].tensor].is_static)
            return true;
    }
    return false;
}
