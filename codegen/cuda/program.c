/* codegen/cuda/program: tile programs as device code. Each step becomes one statement over
 * kernels/cuda/row.cuh; each result is a fresh variable v<step>, an array over the thread's columns
 * or, where all columns share a value, a scalar.
 *
 * A row that is too long for the threads is gone over in tiles, in several sweeps: one for each
 * reduction, which computes what the reduction needs and keeps only its state, then one that
 * stores. The statements are the same, under conditions on SWEEP. */
#include "codegen/cuda/family.h"

typedef enum RegKind { REG_NONE, REG_F32, REG_I32 } RegKind;
typedef struct Reg {
    RegKind kind;
    bool is_vector;
    int step; /* that made it */
} Reg;

typedef struct Emit {
    Sb *sb;
    const CudaKernel *k;
    Reg reg[TILE_MAX_REGS];
    int quantised_by[PLAN_MAX_OPERANDS]; /* operand -> step + 1 whose codes it holds */
    int sweeps;                          /* over the row; 0: it is held */
    int sweep, last;                     /* the one that the next reduction ends; that stores */
    Sb state, *after;                    /* members of State; statements behind each sweep */
} Emit;

static const char *const elementwise_text[NUM_TILE_OPS] = {
#define ELEMENTWISE(ID, name, arity, f32_expr, f64_expr) [TILE_##ID] = #f32_expr,
#include "numerics/elementwise.def"
#undef ELEMENTWISE
};
static const int elementwise_arity[NUM_TILE_OPS] = {
#define ELEMENTWISE(ID, name, arity, f32_expr, f64_expr) [TILE_##ID] = arity,
#include "numerics/elementwise.def"
#undef ELEMENTWISE
};
static const char *const format_word[NUM_FORMATS] = {
#define FORMAT(ID, name, bits, family, is_signed, exp, man, bias, qmin, qmax) \
    [FMT_##ID] = "FMT_" #ID,
#include "numerics/formats.def"
#undef FORMAT
};

static const PlanTensor *operand_tensor(const CudaKernel *k, int operand)
{
    return &k->plan->tensor[k->launch->operand[operand].tensor];
}

static const PlanLayout *operand_layout(const CudaKernel *k, int operand)
{
    return &k->layout[k->launch->operand[operand].tensor];
}

/* Operands ------------------------------------------------------------------------------------ */

/* The rows that a prologue makes in shared memory. */
static bool is_local(const CudaKernel *k, int operand)
{
    return k->input == INPUT_LOCAL && k->launch->operand[operand].tensor == k->launch->a;
}

/* The operand's struct: the launch's own, or the copy of `a` in shared memory. */
static const char *operand_text(Emit *e, int operand)
{
    if (is_local(e->k, operand))
        return "a";
    return arena_printf(e->sb->arena, "p.op[%d]", operand);
}

/* Bytes from row to row. */
static long long operand_pitch(const CudaKernel *k, int operand)
{
    return is_local(k, operand) ? k->local_pitch : operand_layout(k, operand)->pitch;
}

/* Scales and zero points of a local `a` are local too: which of its members. NULL: it is none. */
static const char *local_member(const CudaKernel *k, int operand)
{
    const PlanTensor *t = operand_tensor(k, operand);
    if (k->input != INPUT_LOCAL || t->index != k->launch->a)
        return NULL;
    return t->storage == STORAGE_SCALES  ? "scale"
           : t->storage == STORAGE_ZEROS ? "zero"
           : t->storage == STORAGE_OUTER ? "outer"
                                         : NULL;
}

/* Its first byte. */
static const char *base_text(Emit *e, int operand)
{
    const char *member = local_member(e->k, operand);
    if (member)
        return arena_printf(e->sb->arena, "(char *)a.%s", member);
    return arena_printf(e->sb->arena, "(char *)%s.data", operand_text(e, operand));
}

static const char *address_text(Emit *e, int operand);

/* .. that another operand names. */
static const char *index_text(Emit *e, int operand)
{
    int index = e->k->launch->operand[operand].index - 1;
    return arena_printf(e->sb->arena, "row_by(%s)", address_text(e, index));
}

/* Row of the tensor that row m of the launch meets. */
static const char *row_text(Emit *e, int operand)
{
    const CudaKernel *k = e->k;
    const PlanOperand *o = &k->launch->operand[operand];
    long long div = (long long)plan_dim_eval(o->row_div, k->size);
    long long mod = (long long)plan_dim_eval(o->row_mod, k->size);
    if (operand_layout(k, operand)->rows == 1 || mod == 1 || (o->by_group && k->groups))
        return "0"; /* a group's parameters begin there */
    if (o->index)
        return index_text(e, operand);
    if (o->by_group && k->launch->counted)
        return arena_printf(e->sb->arena, "m / (p.dim[0] / %lld)",
                            (long long)operand_layout(k, operand)->rows);
    if (o->by_group)
        return arena_printf(e->sb->arena, "group_of((const int32_t *)p.op[%d].data, %lld, m)",
                            plan_launch_parameters(k->launch) - 1,
                            (long long)operand_layout(k, operand)->rows);
    const char *text = "m";
    int sizes = SIZE_OPERANDS + 3 * operand;
    if (k->varies && (div > 1 || mod > 1))
        return arena_printf(e->sb->arena, "m / p.dim[%d] %% p.dim[%d]", sizes + 1, sizes + 2);
    if (div > 1)
        text = arena_printf(e->sb->arena, "m / %lldLL", div);
    if (mod > 1)
        text = arena_printf(e->sb->arena, "%s %% %lldLL", text, mod);
    return text;
}

static const char *pitch_text(Emit *e, int operand)
{
    const CudaKernel *k = e->k;
    if (k->varies && !is_local(k, operand))
        return arena_printf(e->sb->arena, "p.dim[%d]", SIZE_OPERANDS + 3 * operand);
    return arena_printf(e->sb->arena, "%lldLL", operand_pitch(k, operand));
}

static const char *address_text(Emit *e, int operand)
{
    return arena_printf(e->sb->arena, "%s + (%s) * %s", base_text(e, operand), row_text(e, operand),
                        pitch_text(e, operand));
}

/* Rows of tensors begin at multiples of 16 bytes where they are as long: all memory is the plan's
 * (cuda_session.c), also what callers' tensors are copied to and from. */
static bool is_aligned(const CudaKernel *k, int operand)
{
    const PlanLayout *layout = operand_layout(k, operand);
    bool even = layout->rows == 1 || (!k->varies && layout->pitch % 16 == 0);
    return !is_local(k, operand) && even && layout->at % 16 == 0;
}

/* What kernels are told of an operand's memory, as the last argument of a template after `before`;
 * "" for nothing. */
static const char *access_text(Emit *e, int operand, bool is_free, const char *before)
{
    bool aligned = is_aligned(e->k, operand);
    if (!is_free && !aligned)
        return *before ? arena_printf(e->sb->arena, "<%s>", before) : "";
    return arena_printf(e->sb->arena, "<%s%s%s%s%s>", before, *before ? ", " : "",
                        is_free ? "ACCESS_FREE" : "", is_free && aligned ? " | " : "",
                        aligned ? "ACCESS_ALIGNED" : "");
}

/* QuantOf<..> of a quantised tensor. */
static const char *quant_of(Emit *e, const PlanTensor *t)
{
    int64_t cols = e->k->layout[t - e->k->plan->tensor].cols, block = t->scheme.block[1];
    if (block >= cols)
        block = 0;
    return arena_printf(e->sb->arena, "QuantOf<%s, %s, %s, %s, %lld, %lld, %lld>",
                        format_word[t->fmt], format_word[t->scheme.scale_fmt],
                        t->scheme.zero != ZERO_NONE ? "true" : "false",
                        t->scheme.outer ? "true" : "false", (long long)t->scheme.block[0],
                        (long long)block, (long long)scheme_col_blocks(&t->scheme, cols));
}

static const char *quant_text(Emit *e, int operand)
{
    return quant_of(e, operand_tensor(e->k, operand));
}

/* One range for all of it. */
static bool whole_tensor(const CudaKernel *k, int operand)
{
    const Scheme *s = &operand_tensor(k, operand)->scheme;
    return s->block[0] == 0 &&
           (s->block[1] == 0 || s->block[1] >= operand_layout(k, operand)->cols);
}

int64_t cuda_span_blocks(const Scheme *s, const PlanLayout *l)
{
    return s->block[0] == 1 ? 0 : scheme_row_blocks(s, l->rows) * scheme_col_blocks(s, l->cols);
}

/* The workspace of gathered ranges. */
static const char *ranges_text(Emit *e)
{
    return arena_printf(e->sb->arena, "(int32_t *)p.op[%d].data", e->k->span_operand);
}

/* The quantisation of the tensor of which a product finds the range, and the format of that. */
static const char *ranged_text(Emit *e)
{
    const CudaRanged *r = e->k->ranged;
    return arena_printf(e->sb->arena, "%s, %s", quant_of(e, &e->k->plan->tensor[r->of]),
                        format_word[operand_tensor(e->k, r->stored)->fmt]);
}

static void emit_see(Emit *e, const TileStep *s, const char *from)
{
    if (cuda_finds_range(e->k) && s->tensor == e->k->ranged->stored)
        sb_line(e->sb, "row_see<%s>(row, told, %s);", ranged_text(e), from);
}

void cuda_emit_tell(Sb *sb, const CudaKernel *k)
{
    if (!cuda_finds_range(k))
        return;
    Emit e = {.sb = sb, .k = k};
    const CudaRanged *r = k->ranged;
    int64_t blocks = cuda_span_blocks(&k->plan->tensor[r->of].scheme, &k->layout[r->of]);
    sb_line(sb, "    tell<%s>(told, known(), (int32_t *)p.op[%d].data, %lldLL);", ranged_text(&e),
            r->ranges, (long long)blocks);
}

/* Registers ----------------------------------------------------------------------------------- */

static const char *element(Emit *e, const Reg *r)
{
    return arena_printf(e->sb->arena, r->is_vector ? "v%d[e]" : "v%d", r->step);
}

/* A vector variable's name; scalars are spread first. */
static const char *vector(Emit *e, int index, int step, int slot)
{
    const Reg *r = &e->reg[index];
    if (r->is_vector)
        return arena_printf(e->sb->arena, "v%d", r->step);
    const char *name = arena_printf(e->sb->arena, "s%d_%d", step, slot);
    sb_line(e->sb, "%s %s[S::kE];", r->kind == REG_I32 ? "int32_t" : "float", name);
    sb_line(e->sb, "SINTER_EACH(e) %s[e] = v%d;", name, r->step);
    return name;
}

static void define(Emit *e, const TileStep *s, int step, RegKind kind, bool is_vector)
{
    e->reg[s->dst] = (Reg){kind, is_vector, step};
    sb_line(e->sb, "%s v%d%s;", kind == REG_I32 ? "int32_t" : "float", step,
            is_vector ? "[S::kE]" : "");
}

/* A vector that stays as it is stored until it is read. */
static void define_packed(Emit *e, const TileStep *s, int step, FormatId fmt)
{
    e->reg[s->dst] = (Reg){REG_F32, true, step};
    sb_line(e->sb, "Loaded<%s, S> v%d;", format_word[fmt], step);
}

/* Steps --------------------------------------------------------------------------------------- */

static void emit_acc(Emit *e, const TileStep *s, int step)
{
    bool is_int = s->fmt == FMT_I32;
    define(e, s, step, is_int ? REG_I32 : REG_F32, true);
    sb_line(e->sb, "row_acc(row, acc.part(%d), v%d);", s->part, step);
}

/* What stores does so in the last sweep. */
static const char *if_last(const Emit *e)
{
    return e->sweeps ? arena_printf(e->sb->arena, "if (SWEEP == %d) ", e->last) : "";
}

static void emit_load(Emit *e, const TileStep *s, int step)
{
    const PlanTensor *t = operand_tensor(e->k, s->tensor);
    const PlanOperand *o = &e->k->launch->operand[s->tensor];
    const char *at = address_text(e, s->tensor), *word = format_word[t->fmt];
    const CudaFamilyRow *family = cuda_family[e->k->family];
    bool is_int = t->fmt == FMT_I32, is_free = family->loads_freely && family->loads_freely(e->k);
    if (o->col_step && !is_int && !t->quantised) {
        define_packed(e, s, step, t->fmt);
        sb_line(e->sb, "row_load%s(row, %s, v%d);", access_text(e, s->tensor, is_free, ""), at,
                step);
        return;
    }
    define(e, s, step, is_int ? REG_I32 : REG_F32, o->col_step != 0);
    if (t->quantised && e->quantised_by[s->tensor])
        sb_line(e->sb, "%srow_quantised(row);", if_last(e));
    if (t->quantised)
        sb_line(e->sb, "row_dequantise%s(row, %s, %s, %lldLL, v%d);",
                access_text(e, s->tensor, false, quant_text(e, s->tensor)),
                operand_text(e, s->tensor), row_text(e, s->tensor), operand_pitch(e->k, s->tensor),
                step);
    else if (is_int && o->col_step)
        sb_line(e->sb, "row_load_i32%s(row, %s, v%d);", access_text(e, s->tensor, is_free, ""), at,
                step);
    else if (is_int)
        sb_line(e->sb, "v%d = %s((const int32_t *)(%s));", step, is_free ? "load_free" : "*", at);
    else
        sb_line(e->sb, "v%d = Plain<%s>::load(%s((const Plain<%s>::Element *)(%s)));", step, word,
                is_free ? "load_free" : "*", word, at);
}

static void emit_elementwise(Emit *e, const TileStep *s, int step)
{
    const Reg a = e->reg[s->src[0]];
    const Reg b = e->reg[s->src[elementwise_arity[s->op] == 2]];
    bool is_vector = a.is_vector || b.is_vector;
    const char *left = element(e, &a), *right = element(e, &b);
    define(e, s, step, REG_F32, is_vector);
    sb_line(e->sb, "%s{ float a = %s, b = %s; (void)b; v%d%s = %s; }",
            is_vector ? "SINTER_EACH(e) " : "", left, right, step, is_vector ? "[e]" : "",
            elementwise_text[s->op]);
}

static void emit_i32(Emit *e, const TileStep *s, int step)
{
    const Reg a = e->reg[s->src[0]], b = e->reg[s->src[1]];
    bool is_vector = a.is_vector || b.is_vector;
    const char *left = element(e, &a), *right = element(e, &b);
    const char *sign = s->op == TILE_ADD_I32 ? "+" : s->op == TILE_SUB_I32 ? "-" : "*";
    define(e, s, step, REG_I32, is_vector);
    sb_line(e->sb, "%sv%d%s = (int32_t)((uint32_t)%s %s (uint32_t)%s);",
            is_vector ? "SINTER_EACH(e) " : "", step, is_vector ? "[e]" : "", left, sign, right);
}

static void emit_convert(Emit *e, const TileStep *s, int step)
{
    const Reg a = e->reg[s->src[0]];
    const char *from = element(e, &a);
    if (s->op == TILE_ROUND && a.is_vector && (s->fmt == FMT_F16 || s->fmt == FMT_BF16)) {
        define_packed(e, s, step, (FormatId)s->fmt);
        sb_line(e->sb, "row_round(v%d, v%d);", step, a.step);
        return;
    }
    const char *how = s->op == TILE_I32_TO_F32 ? "(float)"
                      : s->fmt == FMT_F16      ? "num_round_f16"
                      : s->fmt == FMT_BF16     ? "num_round_bf16"
                                               : "";
    define(e, s, step, REG_F32, a.is_vector);
    sb_line(e->sb, "%sv%d%s = %s(%s);", a.is_vector ? "SINTER_EACH(e) " : "", step,
            a.is_vector ? "[e]" : "", how, from);
}

/* Ends the sweep that reduces: `add` to a member of State, and `after` all tiles. */
static void emit_reduction(Emit *e, const char *member, const char *add, const char *after)
{
    sb_line(&e->state, "%s", member);
    sb_line(e->sb, "if (SWEEP == %d) {", e->sweep);
    sb_line(e->sb, "    %s", add);
    sb_line(e->sb, "    return;");
    sb_line(e->sb, "}");
    sb_line(&e->after[e->sweep++], "%s", after);
}

/* .. to partial sums, of which comes s.f<step>_<which>. */
static void emit_sum(Emit *e, int step, int which, const char *add, const char *finish)
{
    Arena *arena = e->sb->arena;
    emit_reduction(
        e, arena_printf(arena, "Partials<S> sums%d_%d; float f%d_%d;", step, which, step, which),
        arena_printf(arena, add, arena_printf(arena, "s.sums%d_%d", step, which)),
        arena_printf(arena, "s.f%d_%d = row_total(row, s.sums%d_%d, %s);", step, which, step, which,
                     finish));
}

static void emit_rowwise_sweeps(Emit *e, const TileStep *s, int step, const char *x,
                                const char *weight, const char *bias, const char *eps)
{
    Arena *arena = e->sb->arena;
    const char *root = arena_printf(arena, "RootFactor{%s, row.end}", eps);
    if (s->op == TILE_RMSNORM) {
        emit_sum(e, step, 0, arena_printf(arena, "row_add_squares(row, %%s, %s, 0.0f);", x), root);
        define(e, s, step, REG_F32, true);
        sb_line(e->sb, "rmsnorm_values<S>(v%d, %s, %s, s.f%d_0);", step, x, weight, step);
    } else if (s->op == TILE_LAYERNORM) {
        emit_sum(e, step, 0, arena_printf(arena, "row_add(row, %%s, %s);", x), "Mean{row.end}");
        emit_sum(e, step, 1,
                 arena_printf(arena, "row_add_squares(row, %%s, %s, s.f%d_0);", x, step), root);
        define(e, s, step, REG_F32, true);
        sb_line(e->sb, "layernorm_values<S>(v%d, %s, %s, %s, s.f%d_0, s.f%d_1);", step, x, weight,
                bias, step, step);
    } else {
        emit_reduction(
            e, arena_printf(arena, "int32_t key%d = SINTER_LEAST_KEY;", step),
            arena_printf(arena, "s.key%d = row_most(row, s.key%d, %s);", step, step, x),
            arena_printf(arena, "s.key%d = row_reduce(row, s.key%d, Most());", step, step));
        define(e, s, step, REG_F32, true);
        sb_line(e->sb, "exp_values<S>(v%d, %s, num_order_value(s.key%d));", step, x, step);
        emit_sum(e, step, 1, arena_printf(arena, "row_add(row, %%s, v%d);", step), "Total()");
        sb_line(e->sb, "SINTER_EACH(e) v%d[e] = v%d[e] / s.f%d_1;", step, step, step);
    }
}

static void emit_rowwise(Emit *e, const TileStep *s, int step)
{
    const char *x = vector(e, s->src[0], step, 0), *weight = "", *bias = "";
    if (s->op != TILE_SOFTMAX)
        weight = vector(e, s->src[1], step, 1);
    if (s->op == TILE_LAYERNORM)
        bias = vector(e, s->src[2], step, 2);
    const char *eps = arena_printf(e->sb->arena, "num_float(0x%08xu)", num_bits(s->imm));
    if (e->sweeps) {
        emit_rowwise_sweeps(e, s, step, x, weight, bias, eps);
        return;
    }
    define(e, s, step, REG_F32, true);
    if (s->op == TILE_SOFTMAX)
        sb_line(e->sb, "row_softmax(row, v%d, %s);", step, x);
    else if (s->op == TILE_RMSNORM)
        sb_line(e->sb, "row_rmsnorm(row, v%d, %s, %s, %s, row.end);", step, x, weight, eps);
    else
        sb_line(e->sb, "row_layernorm(row, v%d, %s, %s, %s, %s, row.end);", step, x, weight, bias,
                eps);
}

static void emit_store(Emit *e, const TileStep *s, int step)
{
    const PlanTensor *t = operand_tensor(e->k, s->tensor);
    const PlanOperand *o = &e->k->launch->operand[s->tensor];
    const Reg *r = &e->reg[s->src[0]];
    const char *at = address_text(e, s->tensor);
    if (!o->col_step) {
        const char *value = r->is_vector ? "[0]" : "";
        if (r->kind == REG_I32)
            sb_line(e->sb, "%sif (row.stores_first()) *(int32_t *)(%s) = v%d%s;", if_last(e), at,
                    r->step, value);
        else
            sb_line(e->sb,
                    "%sif (row.stores_first()) *(Plain<%s>::Element *)(%s) = "
                    "Plain<%s>::store(v%d%s);",
                    if_last(e), format_word[t->fmt], at, format_word[t->fmt], r->step, value);
        return;
    }
    const char *from = vector(e, s->src[0], step, 0);
    const CudaFamilyRow *family = cuda_family[e->k->family];
    if (family->leaves && family->leaves(e->k))
        sb_line(e->sb, "row_leave<%s>(row, %s);", format_word[t->fmt], from);
    else if (t->fmt == FMT_I32)
        sb_line(e->sb, "%srow_store_i32%s(row, %s, %s);", if_last(e),
                access_text(e, s->tensor, false, ""), at, from);
    else
        sb_line(e->sb, "%srow_store%s(row, %s, %s);", if_last(e),
                access_text(e, s->tensor, false, format_word[t->fmt]), at, from);
    emit_see(e, s, from);
}

static void emit_token_sweep(Emit *e, const TileStep *s, int step, const char *q, const char *from)
{
    Arena *arena = e->sb->arena;
    const char *operand = operand_text(e, s->tensor), *m = row_text(e, s->tensor);
    emit_reduction(e, arena_printf(arena, "Extremes<%s> all%d; TokenScale found%d;", q, step, step),
                   arena_printf(arena, "row_extremes<%s>(row, s.all%d, %s);", q, step, from),
                   arena_printf(arena, "s.found%d = row_token_scale<%s>(row, %s, %s, s.all%d);",
                                step, q, operand, m, step));
    sb_line(e->sb, "%ssum%d = row_quantise_found<%s>(row, %s, %s, %lldLL, %s, s.found%d);",
            if_last(e), step, q, operand, m, (long long)operand_layout(e->k, s->tensor)->pitch,
            from, step);
}

/* The operand, and those that are the same codes under other scales, hold what this step stores. */
static void mark_quantised(Emit *e, int operand, int step)
{
    int tensor = e->k->launch->operand[operand].tensor;
    for (int i = 0; i < e->k->launch->num_operands; i++) {
        const PlanTensor *t = operand_tensor(e->k, i);
        bool is_view = t->quantised && t->storage == STORAGE_VIEW && t->index == tensor;
        if (i == operand || is_view)
            e->quantised_by[i] = step + 1;
    }
}

/* The outer scale of a tensor of one row. */
static void emit_outer(Emit *e, const TileStep *s, int step, const char *q, const char *from)
{
    Arena *arena = e->sb->arena;
    const char *store =
        arena_printf(arena, "row_store_outer<%s>(row, %s, %%s);", q, operand_text(e, s->tensor));
    if (!e->sweeps) {
        sb_line(e->sb, store, arena_printf(arena, "row_outer_bits(row, 0, %s)", from));
        return;
    }
    const char *member = arena_printf(arena, "s.outer%d", step);
    emit_reduction(e, arena_printf(arena, "int32_t outer%d;", step),
                   arena_printf(arena, "%s = row_outer_bits(row, %s, %s);", member, member, from),
                   arena_printf(arena, store, member));
}

static void emit_quantise(Emit *e, const TileStep *s, int step)
{
    Arena *arena = e->sb->arena;
    const CudaKernel *k = e->k;
    const PlanTensor *t = operand_tensor(k, s->tensor);
    const PlanLayout *l = operand_layout(k, s->tensor);
    const char *from = vector(e, s->src[0], step, 0);
    const char *q = quant_text(e, s->tensor);
    const char *sum = arena_printf(arena, "int32_t sum%d =", step);
    if (e->sweeps) {
        sb_line(e->sb, "%s 0;", sum);
        sum = arena_printf(arena, "%ssum%d =", if_last(e), step);
    }
    mark_quantised(e, s->tensor, step);
    if (cuda_step_spans(k, s)) {
        int64_t blocks = cuda_span_blocks(&t->scheme, l);
        if (k->span == SPAN_GATHER) {
            sb_line(e->sb, "%srow_gather<%s>(row, found, %s, %lldLL, %s, %s);", if_last(e), q,
                    ranges_text(e), (long long)blocks, row_text(e, s->tensor), from);
            return;
        }
        if (whole_tensor(k, s->tensor)) {
            sb_line(e->sb, "%s row_quantise_span<%s>(row, %s, %s, %lldLL, %s, %lldLL, %s);", sum, q,
                    operand_text(e, s->tensor), ranges_text(e), (long long)blocks,
                    row_text(e, s->tensor), (long long)l->pitch, from);
            return;
        }
        sb_line(e->sb, "row_span_scales<%s>(row, %s, %s, %lldLL, %s);", q,
                operand_text(e, s->tensor), ranges_text(e), (long long)blocks,
                row_text(e, s->tensor));
    }
    if (cuda_step_finds_outer(k, s))
        emit_outer(e, s, step, q, from);
    if (e->sweeps && cuda_step_by_token(k, s)) {
        emit_token_sweep(e, s, step, q, from);
        return;
    }
    const char *how = t->is_static                                               ? "given"
                      : cuda_step_spans(k, s) && t->scheme.block[0] != 1         ? "given"
                      : t->scheme.block[1] == 0 || t->scheme.block[1] >= l->cols ? "token"
                                                                                 : "group";
    sb_line(e->sb, "%s row_quantise_%s<%s>(row, %s, %s, %lldLL, %s);", sum, how, q,
            operand_text(e, s->tensor), row_text(e, s->tensor), operand_pitch(k, s->tensor), from);
}

static void emit_code_sum(Emit *e, const TileStep *s, int step)
{
    Arena *arena = e->sb->arena;
    const char *sum = e->quantised_by[s->tensor2]
                          ? arena_printf(arena, "sum%d", e->quantised_by[s->tensor2] - 1)
                          : arena_printf(arena, "row_code_sum<%s>(row, %s)",
                                         quant_text(e, s->tensor2), address_text(e, s->tensor2));
    Sb *to = e->sweeps ? &e->after[e->last] : e->sb;
    if (e->sweeps) {
        sb_line(&e->state, "int32_t codes%d;", step);
        sb_line(e->sb, "%ss.codes%d += %s;", if_last(e), step, sum);
        sum = arena_printf(arena, "s.codes%d", step);
    }
    sb_line(to, "int32_t all%d = row_reduce(row, %s, Plus());", step, sum);
    sb_line(to, "if (row.lane == 0) *(int32_t *)(%s) = all%d;", address_text(e, s->tensor), step);
}

static void emit_step(Emit *e, const TileStep *s, int step)
{
    bool only_ranges = e->k->span == SPAN_GATHER;
    switch ((TileOp)s->op) {
    case TILE_ACC: emit_acc(e, s, step); break;
    case TILE_LOAD: emit_load(e, s, step); break;
    case TILE_CONST:
        define(e, s, step, REG_F32, false);
        sb_line(e->sb, "v%d = num_float(0x%08xu);", step, num_bits(s->imm));
        break;
    case TILE_ADD_I32:
    case TILE_SUB_I32:
    case TILE_MUL_I32: emit_i32(e, s, step); break;
    case TILE_I32_TO_F32:
    case TILE_ROUND: emit_convert(e, s, step); break;
    case TILE_RMSNORM:
    case TILE_LAYERNORM:
    case TILE_SOFTMAX: emit_rowwise(e, s, step); break;
    case TILE_STORE:
        if (!only_ranges)
            emit_store(e, s, step);
        break;
    case TILE_QUANTIZE:
        if (!only_ranges || cuda_step_spans(e->k, s))
            emit_quantise(e, s, step);
        break;
    case TILE_CODE_SUM:
        if (!only_ranges)
            emit_code_sum(e, s, step);
        break;
    default: emit_elementwise(e, s, step); break;
    }
}

void cuda_emit_program(Sb *sb, const CudaKernel *k, const PlanProgram *program, const char *name)
{
    Emit e = {.sb = sb, .k = k};
    sb_line(sb, "template <class S, class Sums> static __device__ __forceinline__ void %s(", name);
    sb_line(
        sb,
        "    const Params &p, const Operand &a, const Row<S> &row, int64_t m, const Sums &acc%s)",
        k->span == SPAN_GATHER ? ", Found &found"
        : cuda_finds_range(k)  ? ", Told &told"
                               : "");
    sb_line(sb, "{");
    sb->indent += 4;
    for (int i = 0; i < program->num_steps; i++)
        emit_step(&e, &program->step[i], i);
    sb->indent -= 4;
    sb_line(sb, "}");
}

void cuda_emit_fetch(Sb *sb, const CudaKernel *k, const PlanProgram *program, const char *name)
{
    Emit e = {.sb = sb, .k = k};
    sb_line(sb, "template <class S> static __device__ __forceinline__ void %s(", name);
    sb_line(sb, "    const Params &p, const Row<S> &row, int64_t m)");
    sb_line(sb, "{");
    sb->indent += 4;
    for (int i = 0; i < program->num_steps; i++) {
        const TileStep *s = &program->step[i];
        if (s->op != TILE_LOAD || !k->launch->operand[s->tensor].col_step)
            continue;
        const PlanTensor *t = operand_tensor(k, s->tensor);
        if (!t->quantised && !is_local(k, s->tensor) && !local_member(k, s->tensor))
            sb_line(sb, "row_fetch<%d>(row, %s);", format_info[t->fmt].bits / 8,
                    address_text(&e, s->tensor));
    }
    sb->indent -= 4;
    sb_line(sb, "}");
}

static const TileStep *only_store(const PlanProgram *program)
{
    const TileStep *store = NULL;
    for (int i = 0; i < program->num_steps; i++) {
        const TileStep *s = &program->step[i];
        if (s->op == TILE_QUANTIZE || s->op == TILE_CODE_SUM || (s->op == TILE_STORE && store))
            return NULL;
        store = s->op == TILE_STORE ? s : store;
    }
    return store;
}

static bool loads_rows(const CudaKernel *k, const PlanProgram *program)
{
    for (int i = 0; i < program->num_steps; i++) {
        const TileStep *s = &program->step[i];
        if (s->op == TILE_LOAD && k->launch->operand[s->tensor].col_step &&
            operand_layout(k, s->tensor)->rows > 1)
            return true;
    }
    return false;
}

bool cuda_program_works_on_rows(const CudaKernel *k, const PlanProgram *program)
{
    for (int i = 0; i < program->num_steps && loads_rows(k, program); i++) {
        TileOp op = (TileOp)program->step[i].op;
        if (op == TILE_GELU || op == TILE_GELU_TANH || op == TILE_SILU || op == TILE_SIGMOID ||
            op == TILE_TANH || op == TILE_DIV)
            return true;
    }
    return false;
}

bool cuda_program_leaves(const CudaKernel *k, const PlanProgram *program)
{
    const TileStep *s = loads_rows(k, program) ? NULL : only_store(program);
    if (!s || !k->launch->operand[s->tensor].col_step || !is_aligned(k, s->tensor))
        return false;
    const PlanTensor *t = operand_tensor(k, s->tensor);
    return !t->quantised && (t->fmt == FMT_BF16 || t->fmt == FMT_F16);
}

const char *cuda_program_result(Sb *sb, const CudaKernel *k, const PlanProgram *program)
{
    Emit e = {.sb = sb, .k = k};
    return address_text(&e, only_store(program)->tensor);
}

bool cuda_program_loads(const PlanProgram *program)
{
    for (int i = 0; i < program->num_steps; i++)
        if (program->step[i].op == TILE_LOAD)
            return true;
    return false;
}

static void emit_sweeps(Emit *e)
{
    Sb *sb = e->sb;
    sb_line(sb, "template <class S> struct State {");
    sb_putn(sb, e->state.text, e->state.len);
    sb_line(sb, "};");
    sb_line(sb, "template <class S> static __device__ __forceinline__ void row(");
    sb_line(sb, "    const Params &p, const Row<S> &row, int64_t m, Found &found)");
    sb_line(sb, "{");
    sb->indent += 4;
    sb_line(sb, "State<S> s = {};");
    for (int i = 0; i <= e->last; i++) {
        sb_line(sb, "row_tiles<Cfg::%s>(row, [&](const Row<S> &tile) {",
                i == e->last ? "kLastCols" : "kTileCols");
        sb_line(sb, "    steps<%d>(p, tile, m, found, s);", i);
        sb_line(sb, "});");
        sb_putn(sb, e->after[i].text, e->after[i].len);
    }
    sb->indent -= 4;
    sb_line(sb, "}");
}

void cuda_emit_row_sweeps(Sb *sb, const CudaKernel *k, const PlanProgram *program, int sweeps)
{
    Emit e = {.sb = sb, .k = k, .sweeps = sweeps, .last = sweeps - 1};
    sb_init(&e.state, sb->arena);
    e.state.indent = sb->indent + 4;
    e.after = ARENA_NEW_ARRAY(sb->arena, Sb, (size_t)sweeps);
    for (int i = 0; i < sweeps; i++) {
        sb_init(&e.after[i], sb->arena);
        e.after[i].indent = sb->indent + 4;
    }
    sb_line(sb, "template <int SWEEP, class S, class State>");
    sb_line(sb, "static __device__ __forceinline__ void steps(");
    sb_line(sb, "    const Params &p, const Row<S> &row, int64_t m, Found &found, State &s)");
    sb_line(sb, "{");
    sb->indent += 4;
    for (int i = 0; i < program->num_steps; i++)
        emit_step(&e, &program->step[i], i);
    sb->indent -= 4;
    sb_line(sb, "}");
    emit_sweeps(&e);
}

void cuda_emit_gather_end(Sb *sb, const CudaKernel *k, const PlanProgram *program)
{
    Emit e = {.sb = sb, .k = k};
    for (int i = 0; i < program->num_steps; i++) {
        int operand = program->step[i].tensor;
        if (!cuda_step_spans(k, &program->step[i]))
            continue;
        const PlanTensor *t = operand_tensor(k, operand);
        const PlanLayout *l = operand_layout(k, operand);
        int64_t blocks = cuda_span_blocks(&t->scheme, l);
        sb_line(sb, "gather_end<%s>(found, %s, %lldLL, scratch);", quant_text(&e, operand),
                ranges_text(&e), (long long)blocks);
    }
}

/* Groups -------------------------------------------------------------------------------------- */

/* Where a group's part of a tensor begins, of which it has a row, or the launch's rows. */
static void emit_group_operand(Emit *e, int at, int32_t tensor, bool by_group)
{
    const CudaKernel *k = e->k;
    const PlanTensor *t = &k->plan->tensor[tensor];
    const PlanLayout *l = &k->layout[tensor];
    int64_t scales = t->quantised && t->scheme.block[0] == 1 && !t->is_static
                         ? scheme_col_blocks(&t->scheme, l->cols)
                         : 0;
    bool shared = !by_group && l->rows == 1;
    const char *row = by_group ? "group" : "first";
    if (shared)
        sb_line(e->sb, "    op[%d],", at);
    else
        sb_line(e->sb, "    group_operand(op[%d], %s * %lldLL, %s * %lldLL),", at, row,
                (long long)l->pitch, row, (long long)scales);
}

void cuda_emit_group(Sb *sb, const CudaKernel *k)
{
    const PlanLaunch *l = k->launch;
    const PlanTensor *w = &k->plan->tensor[l->w];
    const int num = l->num_operands;
    Emit e = {.sb = sb, .k = k};
    sb_line(sb,
            "__device__ __forceinline__ Params of_group(int group, int first, int64_t num) const");
    sb_line(sb, "{");
    sb_line(sb, "    return {{");
    for (int i = 0; i < num; i++)
        emit_group_operand(&e, i, l->operand[i].tensor, l->operand[i].by_group);
    emit_group_operand(&e, num, l->a, false);
    sb_line(sb, "    group_operand(op[%d], group * %lldLL, 0)},", num + 1,
            (long long)(plan_weight_packed(k->plan, w) / (uint64_t)k->groups));
    if (cuda_family[k->family]->looks_ahead)
        sb_line(sb, "    ahead,");
    sb_line(sb, "    {num}};");
    sb_line(sb, "}");
}
