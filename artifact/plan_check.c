/* The rules of a plan that hold for every size: indices, formats, storage, and the registers of
 * tile programs (set before use, of the right type). Then every bucket is bound and checked for
 * aliasing. The compiler runs the same checks on what it wrote. */
#include "artifact/artifact.h"

#include <stdlib.h>
#include <string.h>

#define TENSOR_ALIGN   64
#define RAW_ALIGN_MASK ((uint64_t)TENSOR_ALIGN - 1)

bool plan_fail(IoError *err, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    err->id = E_PLAN;
    int len = snprintf(err->text, sizeof err->text, "bad launch plan: ");
    vsnprintf(err->text + len, sizeof err->text - (size_t)len, fmt, args);
    va_end(args);
    return false;
}

bool plan_is_cuda(const Plan *plan)
{
    return code_class_find(plan->target) != NULL;
}

bool pack_spec_equal(const CpuPackSpec *a, const CpuPackSpec *b)
{
    return a->fmt == b->fmt && a->act_fmt == b->act_fmt && a->n == b->n && a->k == b->k &&
           a->parts == b->parts && a->mainloop == b->mainloop && a->has_zero == b->has_zero &&
           a->act_zero == b->act_zero && a->block_rows == b->block_rows &&
           a->block_cols == b->block_cols && a->act_block_cols == b->act_block_cols &&
           a->scale_fmt == b->scale_fmt && a->factor_cols == b->factor_cols &&
           a->table == b->table && a->layout == b->layout;
}

uint64_t plan_weight_bytes(const Plan *plan)
{
    uint64_t sum = 0;
    for (int i = 0; i < plan->num_tensors; i++)
        if (plan->tensor[i].storage == STORAGE_CONST)
            sum += plan->tensor[i].bytes;
    return sum;
}

int32_t plan_stored_weight(const Plan *plan, int32_t weight)
{
    for (int i = 0; i < plan->num_launches && plan->tensor[weight].storage == STORAGE_ARENA; i++)
        if (plan->launch[i].family == LAUNCH_DECODE && plan->launch[i].dst == weight)
            return plan->launch[i].src;
    return weight;
}

/* Codes that records hold as those of nf4, by another table; no value of it pads K. */
static bool is_looked_up(const CpuPackSpec *spec)
{
    return spec->table == TABLE_TENSOR && spec->layout == CUDA_RECORDS &&
           num_code_bits((int)spec->fmt) <= 4 && spec->k % CUDA_TILE_K == 0;
}

/* Bits of a code in records that hold fewer than a nibble; 0: a nibble or more. What pads K is no
 * binary code. */
static int thin_bits(const CpuPackSpec *spec)
{
    int bits = num_code_bits((int)spec->fmt);
    bool is_padded = spec->fmt == FMT_BINARY && spec->k % CUDA_TILE_K;
    return bits < 4 && (!spec->table || is_looked_up(spec)) && !is_padded ? bits : 0;
}

static FormatId held_format(const CpuPackSpec *spec)
{
    return is_looked_up(spec) ? FMT_NF4
           : spec->table      ? spec->fmt
                              : (FormatId)num_holder((int)spec->fmt);
}

/* Integers of an activation lie in bytes: kernels read those of 4 bits as such of 8. */
static FormatId act_format(FormatId fmt)
{
    return fmt == FMT_I4 ? FMT_I8 : fmt == FMT_U4 ? FMT_U8 : fmt;
}

/* Codes that are numbers have tables in rows of bits, too: of their values, less the zero point. */
CudaPackSpec plan_cuda_spec(const CpuPackSpec *spec)
{
    CudaPackSpec ret = {.fmt = held_format(spec),
                        .bits = thin_bits(spec),
                        .binary = spec->fmt == FMT_BINARY,
                        .act_fmt = act_format(spec->act_fmt),
                        .scale_fmt = spec->scale_fmt,
                        .n = spec->n,
                        .k = spec->k,
                        .parts = spec->parts,
                        .mainloop = spec->mainloop,
                        .has_zero = spec->has_zero,
                        .act_zero = spec->act_zero,
                        .block_rows = spec->block_rows,
                        .block_cols = spec->block_cols,
                        .act_block = spec->act_block_cols,
                        .table = spec->table,
                        .layout = (CudaLayout)spec->layout};
    if (spec->factor_cols) { /* the row's scale is the epilogue's, as before */
        ret.fmt = FMT_U4;
        ret.factored = true;
        ret.scale_fmt = FMT_F16; /* as wide as what codes are multiplied by and moved to (pack.h) */
        ret.block_rows = 1;
        ret.block_cols = spec->factor_cols;
    }
    if (spec->layout != CUDA_BITS || spec->table)
        return ret;
    ret.table = spec->has_zero ? TABLE_BLOCK : TABLE_TENSOR;
    ret.has_zero = ret.binary = false;
    ret.bits = 0;
    return ret;
}

bool plan_is_factored(const Plan *plan, const CpuPackSpec *spec)
{
    return plan_is_cuda(plan) ? plan_cuda_spec(spec).factored : cpu_pack_factored(spec);
}

uint64_t plan_packed_bytes(const Plan *plan, const CpuPackSpec *spec)
{
    CudaPackSpec cuda = plan_cuda_spec(spec);
    CudaPacked packed;
    if (!plan_is_cuda(plan))
        return cpu_pack_bytes(spec);
    return cuda_pack_plan(&cuda, &packed) ? packed.bytes : 0;
}

/* Weights of groups begin at multiples of it: what copies and kernels of all targets ask for. */
#define GROUP_ALIGN 128

uint64_t plan_weight_packed(const Plan *plan, const PlanTensor *weight)
{
    uint64_t bytes = plan_packed_bytes(plan, &weight->pack_spec);
    if (!weight->groups)
        return bytes;
    return checked_align(bytes, GROUP_ALIGN, &bytes) &&
                   checked_mul(bytes, (uint64_t)weight->groups, &bytes)
               ? bytes
               : 0;
}

bool plan_writes(TileOp op)
{
    return op == TILE_STORE || op == TILE_QUANTIZE || op == TILE_CODE_SUM;
}

/* Symbols and dims ----------------------------------------------------------------------------- */

static bool check_sym(const PlanSym *s, IoError *err)
{
    int64_t before = 0;
    if (s->num_sizes < 1)
        return plan_fail(err, "symbol %s has no sizes", s->name);
    for (int i = 0; i < s->num_sizes; before = s->size[i++])
        if (s->size[i] <= before || s->size[i] > LIMIT_DIM)
            return plan_fail(err, "the sizes of %s are not positive and ascending", s->name);
    return true;
}

static bool check_buckets(const Plan *p, IoError *err)
{
    if (p->num_buckets < 1 || p->num_buckets > LIMIT_BUCKETS || p->num_syms > LIMIT_SYMS ||
        (p->rows_independent && p->num_syms < 1))
        return plan_fail(err, "%d buckets of %d symbols", p->num_buckets, p->num_syms);
    for (int i = 0; i < p->num_syms; i++)
        if (!check_sym(&p->sym[i], err))
            return false;
    for (int b = 0; b < p->num_buckets; b++) {
        const int64_t *size = plan_bucket(p, b);
        for (int i = 0; i < p->num_syms; i++)
            if (size[i] < 1 || size[i] > LIMIT_DIM)
                return plan_fail(err, "bucket %d: %s = %lld", b, p->sym[i].name,
                                 (long long)size[i]);
        if (b && p->num_syms && size[0] < plan_bucket(p, b - 1)[0])
            return plan_fail(err, "the buckets do not ascend by %s", p->sym[0].name);
        if (p->arena_bytes[b] > LIMIT_BYTES)
            return plan_fail(err, "bucket %d: an arena of %llu bytes", b,
                             (unsigned long long)p->arena_bytes[b]);
    }
    return true;
}

static bool dim_ok(const Plan *p, PlanDim d)
{
    return d.mul >= 0 && d.sym[0] >= -1 && d.sym[0] < p->num_syms && d.sym[1] >= -1 &&
           d.sym[1] < p->num_syms;
}

static bool dim_is_fixed(PlanDim d)
{
    return d.mul == 0 || (d.sym[0] < 0 && d.sym[1] < 0);
}

static bool dims_ok(const Plan *p, const PlanDim *d, int num)
{
    for (int i = 0; i < num; i++)
        if (!dim_ok(p, d[i]))
            return false;
    return true;
}

/* Tensors -------------------------------------------------------------------------------------- */

static bool format_is_port(FormatId fmt)
{
    return fmt == FMT_F32 || fmt == FMT_F16 || fmt == FMT_BF16 || fmt == FMT_I32;
}

static bool check_format(const Plan *p, const PlanTensor *t, IoError *err)
{
    if (!t->quantised)
        return (format_is_port(t->fmt) && !t->is_static) ||
               plan_fail(err, "tensor \"%s\" has format %s", t->name, format_info[t->fmt].name);
    const char *problem = scheme_problem(&t->scheme);
    if (t->scheme.fmt != t->fmt || problem)
        return plan_fail(err, "tensor \"%s\": %s", t->name,
                         problem ? problem : "its format is not its scheme's");
    if (!t->is_static)
        return true;
    if (t->params < 0 || t->params >= p->num_tensors ||
        p->tensor[t->params].storage != STORAGE_CONST || p->tensor[t->params].quantised ||
        p->tensor[t->params].packed)
        return plan_fail(err, "\"%s\" lacks the constant of its static parameters", t->name);
    return true;
}

static bool check_packed(const Plan *p, const PlanTensor *t, IoError *err)
{
    const CpuPackSpec *s = &t->pack_spec;
    if (s->n < 1 || s->n > LIMIT_DIM || s->k < 1 || s->k > LIMIT_DIM || s->parts < 1 ||
        s->n % s->parts || s->block_rows < 0 || s->block_cols < 0 || s->act_block_cols < 0 ||
        s->factor_cols < 0 || s->factor_cols % 8 || (s->factor_cols && s->fmt != FMT_I8) ||
        s->fmt != t->fmt)
        return plan_fail(err, "weight \"%s\" is packed for [%lld, %lld] in %d parts", t->name,
                         (long long)s->n, (long long)s->k, s->parts);
    const char *problem = plan_is_cuda(p) ? NULL : cpu_pack_problem(s);
    if (problem)
        return plan_fail(err, "weight \"%s\": %s", t->name, problem);
    if (t->groups < 0 || t->groups > LIMIT_DIM)
        return plan_fail(err, "weight \"%s\" is of %lld groups", t->name, (long long)t->groups);
    uint64_t need = plan_weight_packed(p, t);
    return need == t->bytes ||
           plan_fail(err, "weight \"%s\" packs into %llu bytes, not %llu", t->name,
                     (unsigned long long)need, (unsigned long long)t->bytes);
}

static bool check_const(const Plan *p, const PlanTensor *t, uint64_t weights_bytes, IoError *err)
{
    uint64_t end;
    if ((t->offset & RAW_ALIGN_MASK) || !checked_add(t->offset, t->bytes, &end) ||
        end > weights_bytes)
        return plan_fail(err, "constant \"%s\" lies outside the %llu bytes of weights", t->name,
                         (unsigned long long)weights_bytes);
    for (int i = 0; i < t->rank; i++)
        if (!dim_is_fixed(t->dim[i]))
            return plan_fail(err, "constant \"%s\" varies with the batch", t->name);
    return !t->packed || check_packed(p, t, err);
}

static bool check_port(const Plan *p, int i, IoError *err)
{
    const PlanTensor *t = &p->tensor[i];
    bool input = t->storage == STORAGE_INPUT;
    const PlanPort *port = input ? p->input : p->output;
    if (t->index < 0 || t->index >= (input ? p->num_inputs : p->num_outputs) ||
        port[t->index].tensor != i || t->quantised)
        return plan_fail(err, "tensor \"%s\" is no port of the model", t->name);
    return true;
}

/* A weight as another activation's kernels read it. */
static bool check_packed_view(const PlanTensor *t, const PlanTensor *of)
{
    CpuPackSpec own = of->pack_spec;
    own.act_fmt = t->pack_spec.act_fmt;
    own.act_zero = t->pack_spec.act_zero;
    own.act_block_cols = t->pack_spec.act_block_cols;
    CudaPackSpec from = plan_cuda_spec(&of->pack_spec), as = plan_cuda_spec(&own);
    return of->storage == STORAGE_CONST && t->view_col == 0 && t->groups == of->groups &&
           pack_spec_equal(&own, &t->pack_spec) && cuda_packs_alike(&from, &as);
}

static bool check_view(const Plan *p, const PlanTensor *t, IoError *err)
{
    if (t->index < 0 || t->index >= p->num_tensors || t->view_col < 0 || t->view_col > LIMIT_DIM)
        return plan_fail(err, "view \"%s\" is out of range", t->name);
    const PlanTensor *of = &p->tensor[t->index];
    Scheme scheme = of->scheme;
    scheme.outer = scheme.outer && t->scheme.outer; /* a view may leave it out */
    if (t->packed && !check_packed(p, t, err))
        return false;
    if (of->packed != t->packed || (t->packed && !check_packed_view(t, of)) ||
        of->storage > STORAGE_VIEW || of->fmt != t->fmt || of->is_static != t->is_static ||
        (t->quantised && !scheme_equal(&scheme, &t->scheme)))
        return plan_fail(err, "view \"%s\" has another format than \"%s\"", t->name, of->name);
    return true;
}

static bool check_params_of(const Plan *p, const PlanTensor *t, IoError *err)
{
    if (t->index < 0 || t->index >= p->num_tensors || t->quantised)
        return plan_fail(err, "\"%s\" is out of range", t->name);
    const PlanTensor *of = &p->tensor[t->index];
    bool exists = of->quantised && !of->packed && of->storage <= STORAGE_VIEW;
    if (t->storage == STORAGE_ZEROS)
        exists = exists && of->scheme.zero != ZERO_NONE && t->fmt == FMT_I32;
    else
        exists = exists && t->fmt == FMT_F32 && (t->storage == STORAGE_SCALES || of->scheme.outer);
    return exists || plan_fail(err, "\"%s\" has no such parameters as \"%s\"", of->name, t->name);
}

static bool check_tensor(const Plan *p, int i, uint64_t weights_bytes, IoError *err)
{
    const PlanTensor *t = &p->tensor[i];
    if (!dims_ok(p, t->dim, t->rank) || t->fmt == FMT_NONE ||
        (t->packed && t->storage != STORAGE_CONST &&
         ((t->storage != STORAGE_ARENA && t->storage != STORAGE_VIEW) || !plan_is_cuda(p))))
        return plan_fail(err, "tensor %d \"%s\" has a bad type", i, t->name);
    bool raw = t->packed && !t->quantised; /* packed weights keep any plain format */
    if (!raw && !check_format(p, t, err))
        return false;
    switch (t->storage) {
    case STORAGE_CONST: return check_const(p, t, weights_bytes, err);
    case STORAGE_ARENA:
        for (int b = 0; b < p->num_buckets; b++)
            if (t->arena_offset[b] & RAW_ALIGN_MASK)
                return plan_fail(err, "tensor \"%s\" is not aligned", t->name);
        return !t->packed || check_packed(p, t, err);
    case STORAGE_INPUT:
    case STORAGE_OUTPUT: return check_port(p, i, err);
    case STORAGE_VIEW: return check_view(p, t, err);
    default: return check_params_of(p, t, err);
    }
}

/* Programs ------------------------------------------------------------------------------------- */

typedef enum Where { IN_PROLOGUE, IN_EPILOGUE, IN_TILE } Where;
typedef enum RegType { REG_UNSET, REG_F32, REG_I32 } RegType;

typedef struct Checker {
    const Plan *plan;
    const PlanLaunch *launch;
    Where where;
    bool whole_rows; /* a tile holds them */
    int parts;       /* of the accumulator */
    RegType acc;     /* its type */
    RegType reg[TILE_MAX_REGS];
    IoError *err;
} Checker;

static int elementwise_arity(TileOp op)
{
    switch ((int)op) {
#define ELEMENTWISE(ID, name, arity, f32_expr, f64_expr) \
    case TILE_##ID:                                      \
        return arity;
#include "numerics/elementwise.def"
#undef ELEMENTWISE
    default: return 0;
    }
}

/* How many registers a step reads and their type; whether it sets one, and which type. */
static void step_types(const TileStep *s, int *ret_num, RegType *ret_src, RegType *ret_dst)
{
    static const struct {
        uint8_t num, src, dst;
    } row[NUM_TILE_OPS] = {
        [TILE_ADD_I32] = {2, REG_I32, REG_I32},    [TILE_SUB_I32] = {2, REG_I32, REG_I32},
        [TILE_MUL_I32] = {2, REG_I32, REG_I32},    [TILE_I32_TO_F32] = {1, REG_I32, REG_F32},
        [TILE_ROUND] = {1, REG_F32, REG_F32},      [TILE_RMSNORM] = {2, REG_F32, REG_F32},
        [TILE_LAYERNORM] = {3, REG_F32, REG_F32},  [TILE_SOFTMAX] = {1, REG_F32, REG_F32},
        [TILE_CONST] = {0, REG_UNSET, REG_F32},    [TILE_STORE] = {1, REG_F32, REG_UNSET},
        [TILE_QUANTIZE] = {1, REG_F32, REG_UNSET}, [TILE_CODE_SUM] = {0, REG_UNSET, REG_UNSET},
    };
    *ret_num = elementwise_arity((TileOp)s->op);
    *ret_src = *ret_dst = REG_F32;
    if (*ret_num == 0) {
        *ret_num = row[s->op].num;
        *ret_src = (RegType)row[s->op].src;
        *ret_dst = (RegType)row[s->op].dst;
    }
}

static bool step_fail(const Checker *c, int at, const char *what)
{
    return plan_fail(c->err, "\"%s\": step %d: %s", c->launch->layer, at, what);
}

static bool fits_tile(int64_t block_cols)
{
    return block_cols > 0 && CPU_TILE_COLS % block_cols == 0;
}

static bool check_operand_step(Checker *c, const TileStep *s, int at, RegType *ret_src,
                               RegType *ret_dst)
{
    if (s->tensor >= c->launch->num_operands)
        return step_fail(c, at, "no such operand");
    const PlanTensor *t = &c->plan->tensor[c->launch->operand[s->tensor].tensor];
    PlanStorage root = t->storage;
    for (int depth = 0; root == STORAGE_VIEW && depth < LIMIT_NESTING; depth++) {
        t = &c->plan->tensor[t->index];
        root = t->storage;
    }
    if (plan_writes((TileOp)s->op) && root != STORAGE_ARENA && root != STORAGE_OUTPUT)
        return step_fail(c, at, "it writes to an input or a constant");
    bool i32 = t->fmt == FMT_I32;
    if (c->launch->operand[s->tensor].index && (s->op != TILE_LOAD || c->where == IN_EPILOGUE))
        return step_fail(c, at, "it meets rows that an index names");
    if (s->op == TILE_LOAD)
        *ret_dst = i32 ? REG_I32 : REG_F32;
    if (s->op == TILE_STORE)
        *ret_src = i32 ? REG_I32 : REG_F32;
    if ((s->op == TILE_STORE && t->quantised) || (s->op == TILE_QUANTIZE && !t->quantised))
        return step_fail(c, at, "it stores plain values as quantised ones or the reverse");
    if (s->op == TILE_QUANTIZE && c->where == IN_EPILOGUE && !t->is_static &&
        (t->scheme.block[0] != 1 || (!c->whole_rows && !fits_tile(t->scheme.block[1]))))
        return step_fail(c, at, "the blocks of its scheme do not lie inside a tile");
    return true;
}

static bool check_code_sum(const Checker *c, const PlanProgram *p, int at)
{
    const TileStep *s = &p->step[at];
    if (c->plan->tensor[c->launch->operand[s->tensor].tensor].fmt != FMT_I32)
        return step_fail(c, at, "code sums are not i32");
    if (s->tensor2 >= c->launch->num_operands ||
        !c->plan->tensor[c->launch->operand[s->tensor2].tensor].quantised)
        return step_fail(c, at, "it sums no codes");
    for (int i = 0; i < at; i++)
        if (p->step[i].op == TILE_QUANTIZE && p->step[i].tensor == s->tensor2)
            return true;
    return c->where == IN_TILE || step_fail(c, at, "it sums codes that were not stored before");
}

static bool needs_rows(TileOp op)
{
    return op == TILE_RMSNORM || op == TILE_LAYERNORM || op == TILE_SOFTMAX || op == TILE_CODE_SUM;
}

static bool check_acc(const Checker *c, const TileStep *s, int at)
{
    RegType type = s->fmt == FMT_I32 ? REG_I32 : REG_F32;
    if (c->where != IN_EPILOGUE || s->part >= c->parts || type != c->acc)
        return step_fail(c, at, "there is no such accumulator");
    return s->fmt == FMT_I32 || s->fmt == FMT_F32 || step_fail(c, at, "bad accumulator format");
}

static bool check_step(Checker *c, const PlanProgram *p, int at)
{
    const TileStep *s = &p->step[at];
    int num;
    RegType src, dst;
    if (s->op >= NUM_TILE_OPS)
        return step_fail(c, at, "unknown operation");
    step_types(s, &num, &src, &dst);
    if (s->op == TILE_ACC) {
        dst = c->acc;
        if (!check_acc(c, s, at))
            return false;
    }
    if ((s->op == TILE_LOAD || plan_writes((TileOp)s->op)) &&
        !check_operand_step(c, s, at, &src, &dst))
        return false;
    if (s->op == TILE_CODE_SUM && !check_code_sum(c, p, at))
        return false;
    if (s->op == TILE_ROUND && (s->fmt == FMT_NONE || s->fmt >= NUM_FORMATS))
        return step_fail(c, at, "it rounds to no format");
    if (needs_rows((TileOp)s->op) && !c->whole_rows)
        return step_fail(c, at, "it needs whole rows");
    for (int i = 0; i < num; i++)
        if (s->src[i] >= TILE_MAX_REGS || c->reg[s->src[i]] != src)
            return step_fail(c, at, "a register is unset or of another type");
    if (dst != REG_UNSET && s->dst >= TILE_MAX_REGS)
        return step_fail(c, at, "no such register");
    if (dst != REG_UNSET)
        c->reg[s->dst] = dst;
    return true;
}

static bool check_program(Checker c, const PlanProgram *p)
{
    if (p->num_steps > PLAN_MAX_STEPS)
        return plan_fail(c.err, "\"%s\": %d steps", c.launch->layer, p->num_steps);
    memset(c.reg, 0, sizeof c.reg);
    for (int i = 0; i < p->num_steps; i++)
        if (!check_step(&c, p, i))
            return false;
    return true;
}

/* Launches ------------------------------------------------------------------------------------- */

static bool tensor_index_ok(const Plan *p, int32_t i)
{
    return i >= 0 && i < p->num_tensors;
}

/* An operand whose rows another one names. */
static bool check_index(const Plan *p, const PlanLaunch *l, int at)
{
    const PlanOperand *o = &l->operand[at];
    if ((l->family != LAUNCH_TILE && l->family != LAUNCH_GEMM) || o->index < 1 ||
        o->index > l->num_operands || o->by_group || p->tensor[o->tensor].quantised)
        return false;
    const PlanOperand *index = &l->operand[o->index - 1];
    if (!tensor_index_ok(p, index->tensor) || index->index || index->by_group)
        return false;
    const PlanTensor *t = &p->tensor[index->tensor];
    return t->fmt == FMT_I32 && !t->quantised && !t->packed;
}

static bool check_operands(const Plan *p, const PlanLaunch *l, IoError *err)
{
    if (l->num_operands > PLAN_MAX_OPERANDS)
        return plan_fail(err, "\"%s\" has %d operands", l->layer, l->num_operands);
    for (int i = 0; i < l->num_operands; i++) {
        const PlanOperand *o = &l->operand[i];
        if (!tensor_index_ok(p, o->tensor) || p->tensor[o->tensor].packed ||
            !dim_ok(p, o->row_div) || !dim_ok(p, o->row_mod))
            return plan_fail(err, "\"%s\": operand %d is out of range", l->layer, i);
        if (o->index && !check_index(p, l, i))
            return plan_fail(err, "\"%s\": the rows of operand %d have no index", l->layer, i);
    }
    return true;
}

/* Groups of rows, of which each operand has a row, or rows as the launch has, or one. */
static bool check_groups(const Plan *p, const PlanLaunch *l, IoError *err)
{
    int64_t groups = 0;
    if ((l->counted && !l->grouped) || (l->skips && !(l->counted && l->family == LAUNCH_TILE)))
        return plan_fail(err, "\"%s\": rows of no groups are counted", l->layer);
    if (l->grouped) {
        const PlanTensor *t = tensor_index_ok(p, l->ends) ? &p->tensor[l->ends] : NULL;
        if (!t || t->packed || t->quantised || t->fmt != FMT_I32 || t->rank != 1 ||
            !dim_is_fixed(t->dim[0]) || t->dim[0].add < 1)
            return plan_fail(err, "\"%s\": no tensor says where its groups end", l->layer);
        groups = t->dim[0].add;
    }
    for (int i = 0; i < l->num_operands; i++) {
        const PlanOperand *o = &l->operand[i];
        const PlanTensor *t = &p->tensor[o->tensor];
        bool table = !t->quantised && t->rank == 2 && dim_is_fixed(t->dim[0]) &&
                     t->dim[0].add == groups && o->col_step == 1;
        if (o->by_group && !table)
            return plan_fail(err, "\"%s\": operand %d has no row for each of %lld groups", l->layer,
                             i, (long long)groups);
    }
    return true;
}

static bool fills_activation(const PlanLaunch *l)
{
    for (int i = 0; i < l->prologue.num_steps; i++) {
        const TileStep *s = &l->prologue.step[i];
        if ((s->op == TILE_STORE || s->op == TILE_QUANTIZE) && l->operand[s->tensor].tensor == l->a)
            return true;
    }
    return false;
}

/* Weight and activation meet as the packing says. */
static bool check_gemm_types(const Plan *p, const PlanLaunch *l, IoError *err)
{
    if (!tensor_index_ok(p, l->a) || !tensor_index_ok(p, l->w))
        return plan_fail(err, "\"%s\": no such tensor", l->layer);
    const PlanTensor *a = &p->tensor[l->a], *w = &p->tensor[l->w];
    if (a->packed || a->fmt == FMT_I32 || (!w->packed && (w->quantised || a->quantised)) ||
        (w->packed && w->pack_spec.act_fmt != a->fmt))
        return plan_fail(err, "\"%s\": activation %s does not meet weight %s", l->layer,
                         format_info[a->fmt].name, format_info[w->fmt].name);
    if (w->packed && w->groups != (l->grouped ? p->tensor[l->ends].dim[0].add : 0))
        return plan_fail(err, "\"%s\": \"%s\" has weights of %lld groups", l->layer, w->name,
                         (long long)w->groups);
    if (l->grouped && (!w->packed || (a->quantised && a->scheme.block[0] > 1)))
        return plan_fail(err, "\"%s\": groups of rows share what is of one group", l->layer);
    int64_t ab = a->quantised ? a->scheme.block[1] : 0;
    int64_t wb = w->packed ? w->pack_spec.block_cols : 0;
    if (ab > 0 && wb > 0 && ab % wb && wb % ab)
        return plan_fail(err, "\"%s\": blocks of %lld and %lld do not divide each other", l->layer,
                         (long long)ab, (long long)wb);
    if (!w->packed)
        return true;
    /* one scale for all of K is not the main loop's */
    int64_t inside = w->pack_spec.mainloop && ab < w->pack_spec.k ? ab : 0;
    return w->pack_spec.act_block_cols == inside ||
           plan_fail(err,
                     "\"%s\": the weight is packed for blocks of %lld, the activation has %lld",
                     l->layer, (long long)w->pack_spec.act_block_cols, (long long)inside);
}

static bool check_gemm(const Plan *p, const PlanLaunch *l, IoError *err)
{
    if (!check_gemm_types(p, l, err))
        return false;
    const PlanTensor *a = &p->tensor[l->a], *w = &p->tensor[l->w];
    bool integers = a->quantised && scheme_is_integer(&a->scheme) && w->packed &&
                    format_info[w->fmt].family == FAMILY_INT && !w->pack_spec.table &&
                    !w->pack_spec.mainloop;
    Checker c = {.plan = p, .launch = l, .where = IN_PROLOGUE, .whole_rows = true, .err = err};
    if (!check_program(c, &l->prologue))
        return false;
    if (l->prologue.num_steps && !fills_activation(l))
        return plan_fail(err, "\"%s\": the prologue does not fill the activation", l->layer);
    c.where = IN_EPILOGUE;
    c.parts = w->packed ? w->pack_spec.parts : 1;
    c.acc = integers ? REG_I32 : REG_F32;
    if (l->num_segments < 1 || l->num_segments > PLAN_MAX_SEGMENTS)
        return plan_fail(err, "\"%s\" has %d segments", l->layer, l->num_segments);
    for (int i = 0; i < l->num_segments; i++) {
        const PlanSegment *segment = &l->segment[i];
        bool to_last = segment->n_end == PLAN_LAST_COLUMN;
        if (segment->n_begin < 0 || segment->n_begin > LIMIT_DIM ||
            segment->n_end <= segment->n_begin || (segment->n_end > LIMIT_DIM && !to_last))
            return plan_fail(err, "\"%s\": segment %d is out of range", l->layer, i);
        c.whole_rows = !to_last && segment->n_end - segment->n_begin <= CPU_TILE_COLS;
        if (!check_program(c, &segment->epilogue))
            return false;
    }
    return true;
}

static bool check_move(const Plan *p, const PlanLaunch *l, IoError *err)
{
    if (!tensor_index_ok(p, l->src) || !tensor_index_ok(p, l->dst))
        return plan_fail(err, "\"%s\": no such tensor", l->layer);
    const PlanTensor *s = &p->tensor[l->src], *d = &p->tensor[l->dst];
    for (int depth = 0; d->storage == STORAGE_VIEW && depth < LIMIT_NESTING; depth++)
        d = &p->tensor[d->index];
    if (s->fmt != d->fmt || s->quantised || d->quantised || s->packed ||
        (d->storage != STORAGE_ARENA && d->storage != STORAGE_OUTPUT) ||
        !dims_ok(p, l->move_dim, l->move_rank) || !dims_ok(p, l->move_src_stride, l->move_rank) ||
        !dims_ok(p, l->move_dst_stride, l->move_rank) || !dim_ok(p, l->move_src_offset) ||
        !dim_ok(p, l->move_dst_offset))
        return plan_fail(err, "\"%s\": \"%s\" cannot be moved to \"%s\"", l->layer, s->name,
                         d->name);
    return true;
}

/* Both are the same weight, as far as sizes say. */
static bool check_decode(const Plan *p, const PlanLaunch *l, IoError *err)
{
    if (!tensor_index_ok(p, l->src) || !tensor_index_ok(p, l->dst))
        return plan_fail(err, "\"%s\": no such tensor", l->layer);
    const PlanTensor *s = &p->tensor[l->src], *d = &p->tensor[l->dst];
    const CpuPackSpec *from = &s->pack_spec, *to = &d->pack_spec;
    return (plan_is_cuda(p) && l->num_operands == 0 && s->packed && d->packed &&
            s->storage == STORAGE_CONST && d->storage == STORAGE_ARENA && from->n == to->n &&
            s->groups == d->groups && from->k == to->k && from->parts == to->parts) ||
           plan_fail(err, "\"%s\": \"%s\" cannot be decoded to \"%s\"", l->layer, s->name, d->name);
}

typedef struct RouteShape {
    int num, results;  /* operands; so many of them, the last ones, are written */
    const char *holds; /* each: 'f' floats, 'i' i32, 'n' either, 's' f32 */
} RouteShape;

static const RouteShape route_shape[NUM_ROUTE_STEPS] = {
    [ROUTE_TOPK] = {2, 1, "fi"},   [ROUTE_TAKE] = {3, 1, "fis"},   [ROUTE_ENDS] = {2, 1, "ii"},
    [ROUTE_PLACES] = {2, 1, "ii"}, [ROUTE_SOURCES] = {2, 1, "ii"}, [ROUTE_CHOOSE] = {3, 2, "fis"},
    [ROUTE_SORT] = {4, 3, "iiii"}, [ROUTE_WEIGH] = {3, 2, "fis"},  [ROUTE_CLEAR] = {2, 1, "in"}};

int plan_route_operands(RouteStep step)
{
    return route_shape[step].num;
}

int plan_route_results(RouteStep step)
{
    return route_shape[step].results;
}

bool plan_route_sorts(RouteStep step)
{
    return step == ROUTE_ENDS || step == ROUTE_PLACES || step == ROUTE_SOURCES ||
           step == ROUTE_SORT;
}

bool plan_route_chooses(RouteStep step)
{
    return step == ROUTE_TOPK || step == ROUTE_CHOOSE || step == ROUTE_WEIGH;
}

static bool route_takes(const Plan *p, const PlanLaunch *l, int operand)
{
    const PlanTensor *t = &p->tensor[l->operand[operand].tensor];
    bool is_float = t->fmt == FMT_F32 || t->fmt == FMT_F16 || t->fmt == FMT_BF16;
    if (t->quantised || plan_operand_is_mapped(&l->operand[operand]))
        return false;
    switch (route_shape[l->route].holds[operand]) {
    case 'f': return is_float;
    case 'i': return t->fmt == FMT_I32;
    case 'n': return is_float || t->fmt == FMT_I32;
    default: return t->fmt == FMT_F32;
    }
}

/* How large they are is known when they are bound. */
static bool check_route(const Plan *p, const PlanLaunch *l, IoError *err)
{
    int num = plan_route_operands(l->route);
    bool grouped = plan_route_sorts(l->route);
    if (l->num_operands != num)
        return plan_fail(err, "\"%s\": %s has %d operands, not %d", l->layer,
                         route_step_name[l->route], num, l->num_operands);
    if (grouped ? l->groups < 1 || l->groups > LIMIT_DIM : l->groups != 0)
        return plan_fail(err, "\"%s\": %s has %lld groups", l->layer, route_step_name[l->route],
                         (long long)l->groups);
    for (int i = num - plan_route_results(l->route); i < num; i++) {
        const PlanTensor *d = &p->tensor[l->operand[i].tensor];
        for (int depth = 0; d->storage == STORAGE_VIEW && depth < LIMIT_NESTING; depth++)
            d = &p->tensor[d->index];
        if (d->storage != STORAGE_ARENA && d->storage != STORAGE_OUTPUT)
            return plan_fail(err, "\"%s\": %s writes to an input or a constant", l->layer,
                             route_step_name[l->route]);
    }
    for (int i = 0; i < num; i++)
        if (!route_takes(p, l, i))
            return plan_fail(err, "\"%s\": \"%s\" is no operand %d of %s", l->layer,
                             p->tensor[l->operand[i].tensor].name, i, route_step_name[l->route]);
    return true;
}

static bool check_launch(const Plan *p, const PlanLaunch *l, IoError *err)
{
    if (!check_operands(p, l, err) || !check_groups(p, l, err))
        return false;
    if (l->family == LAUNCH_GEMM)
        return check_gemm(p, l, err);
    if (l->family == LAUNCH_MOVE)
        return check_move(p, l, err);
    if (l->family == LAUNCH_DECODE)
        return check_decode(p, l, err);
    if (l->family == LAUNCH_ROUTE)
        return check_route(p, l, err);
    if (l->num_operands < 1)
        return plan_fail(err, "\"%s\" has no operands", l->layer);
    const Checker c = {
        .plan = p, .launch = l, .where = IN_TILE, .whole_rows = l->whole_rows, .err = err};
    return check_program(c, &l->program);
}

/* Ports ---------------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool check_names(const PlanPort *port, int num, IoError *err)
{
    const char **name = calloc((size_t)num + 1, sizeof *name);
    if (!name) {
        *err = (IoError){.id = E_MEMORY, .text = "memory is exhausted while checking the plan"};
        return false;
    }
    for (int i = 0; i < num; i++)
        name[i] = port[i].name;
    qsort(name, (size_t)num, sizeof *name, by_name);
    const char *twice = NULL;
    for (int i = 1; i < num && !twice; i++)
        twice = strcmp(name[i - 1], name[i]) ? NULL : name[i];
    free(name);
    return !twice || plan_fail(err, "two ports are called \"%s\"", twice);
}

static bool check_ports(const Plan *p, const PlanPort *port, int num, PlanStorage storage,
                        IoError *err)
{
    for (int i = 0; i < num; i++) {
        if (!tensor_index_ok(p, port[i].tensor) || p->tensor[port[i].tensor].storage != storage ||
            p->tensor[port[i].tensor].index != i)
            return plan_fail(err, "port \"%s\" has no tensor", port[i].name);
    }
    return check_names(port, num, err);
}

/* Every symbol can be read off the shape of an input, in which it stands alone. */
static bool check_syms_known(const Plan *p, IoError *err)
{
    for (int s = 0; s < p->num_syms; s++) {
        bool known = false, used = false;
        for (int i = 0; i < p->num_tensors; i++) {
            const PlanTensor *t = &p->tensor[i];
            for (int k = 0; k < t->rank; k++) {
                const PlanDim *d = &t->dim[k];
                bool here = d->mul > 0 && (d->sym[0] == s || d->sym[1] == s);
                used |= here;
                known |= here && t->storage == STORAGE_INPUT && (d->sym[0] < 0 || d->sym[1] < 0);
            }
        }
        if (used && !known)
            return plan_fail(err, "no input says how large %s is", p->sym[s].name);
    }
    return true;
}

static bool dim_is_batch(PlanDim d)
{
    return d.mul == 1 && d.add == 0 &&
           ((d.sym[0] == 0 && d.sym[1] < 0) || (d.sym[1] == 0 && d.sym[0] < 0));
}

/* Batches may be cut only where symbol 0 leads every port and occurs nowhere else in one. */
static bool check_rows_independent(const Plan *p, IoError *err)
{
    for (int i = 0; p->rows_independent && i < p->num_tensors; i++) {
        const PlanTensor *t = &p->tensor[i];
        if (t->storage != STORAGE_INPUT && t->storage != STORAGE_OUTPUT)
            continue;
        bool ok = t->rank > 0 && dim_is_batch(t->dim[0]);
        for (int k = 1; k < t->rank; k++)
            ok = ok && (t->dim[k].mul == 0 || (t->dim[k].sym[0] != 0 && t->dim[k].sym[1] != 0));
        if (!ok)
            return plan_fail(err, "port \"%s\" cannot be cut along %s", t->name, p->sym[0].name);
    }
    return true;
}

static bool check_bound(const Plan *p, IoError *err)
{
    PlanLayout *layout = calloc((size_t)p->num_tensors + 1, sizeof *layout);
    if (!layout) {
        *err = (IoError){.id = E_MEMORY, .text = "memory is exhausted while checking the plan"};
        return false;
    }
    bool ok = true;
    for (int b = 0; ok && b < p->num_buckets; b++)
        ok = plan_bind(p, b, plan_bucket(p, b), layout, err) &&
             plan_check_aliasing(p, b, layout, err);
    free(layout);
    return ok;
}

bool plan_check(const Plan *p, uint64_t weights_bytes, IoError *err)
{
    if (!plan_is_cuda(p) && strcmp(p->target, "cpu"))
        return plan_fail(err, "the target \"%s\" is unknown", p->target);
    if (!check_buckets(p, err) || !check_ports(p, p->input, p->num_inputs, STORAGE_INPUT, err) ||
        !check_ports(p, p->output, p->num_outputs, STORAGE_OUTPUT, err))
        return false;
    for (int i = 0; i < p->num_tensors; i++)
        if (!check_tensor(p, i, weights_bytes, err))
            return false;
    for (int i = 0; i < p->num_launches; i++)
        if (!check_launch(p, &p->launch[i], err))
            return false;
    return check_syms_known(p, err) && check_rows_independent(p, err) && check_bound(p, err);
}
