/* codegen/cuda_program: tile programs as device code. Each step becomes one statement over
 * kernels/cuda/row.cuh; each result is a fresh variable v<step>, an array over the thread's columns
 * or, where all columns share a value, a scalar. */
#include "codegen/cuda.h"

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
    return k->local_a && k->launch->operand[operand].tensor == k->launch->a;
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

/* Its first byte. Scales and zero points of a local `a` are local too. */
static const char *base_text(Emit *e, int operand)
{
    const PlanTensor *t = operand_tensor(e->k, operand);
    if (e->k->local_a && t->index == e->k->launch->a) {
        if (t->storage == STORAGE_SCALES)
            return "(char *)a.scale";
        if (t->storage == STORAGE_ZEROS)
            return "(char *)a.zero";
        if (t->storage == STORAGE_OUTER)
            return "(char *)a.outer";
    }
    return arena_printf(e->sb->arena, "(char *)%s.data", operand_text(e, operand));
}

/* Row of the tensor that row m of the launch meets. */
static const char *row_text(Emit *e, int operand)
{
    const CudaKernel *k = e->k;
    const PlanOperand *o = &k->launch->operand[operand];
    long long div = (long long)plan_dim_eval(o->row_div, k->size);
    long long mod = (long long)plan_dim_eval(o->row_mod, k->size);
    if (operand_layout(k, operand)->rows == 1 || mod == 1)
        return "0";
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

/* QuantOf<..> of a quantised operand. */
static const char *quant_text(Emit *e, int operand)
{
    const PlanTensor *t = operand_tensor(e->k, operand);
    int64_t cols = operand_layout(e->k, operand)->cols, block = t->scheme.block[1];
    if (block >= cols)
        block = 0;
    return arena_printf(e->sb->arena, "QuantOf<%s, %s, %s, %s, %lld, %lld, %lld>",
                        format_word[t->fmt], format_word[t->scheme.scale_fmt],
                        t->scheme.zero != ZERO_NONE ? "true" : "false",
                        t->scheme.outer ? "true" : "false", (long long)t->scheme.block[0],
                        (long long)block, (long long)scheme_col_blocks(&t->scheme, cols));
}

/* Blocks of a dynamic quantisation reach over several rows. */
static bool spans_rows(const CudaKernel *k, int operand)
{
    const PlanTensor *t = operand_tensor(k, operand);
    return t->quantised && !t->is_static && (t->scheme.block[0] != 1 || t->scheme.outer);
}

/* One range for all of it. */
static bool whole_tensor(const CudaKernel *k, int operand)
{
    const Scheme *s = &operand_tensor(k, operand)->scheme;
    return s->block[0] == 0 &&
           (s->block[1] == 0 || s->block[1] >= operand_layout(k, operand)->cols);
}

/* The workspace of gathered ranges. */
static const char *ranges_text(Emit *e)
{
    return arena_printf(e->sb->arena, "(int32_t *)p.op[%d].data", e->k->span_operand);
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
    sb_line(e->sb, "row_acc(row, acc + %d * Cfg::kCols * 4, v%d);", s->part, step);
}

static void emit_load(Emit *e, const TileStep *s, int step)
{
    const PlanTensor *t = operand_tensor(e->k, s->tensor);
    const PlanOperand *o = &e->k->launch->operand[s->tensor];
    const char *at = address_text(e, s->tensor);
    bool is_int = t->fmt == FMT_I32;
    if (o->col_step && !is_int && !t->quantised) {
        define_packed(e, s, step, t->fmt);
        sb_line(e->sb, "row_load(row, %s, v%d);", at, step);
        return;
    }
    define(e, s, step, is_int ? REG_I32 : REG_F32, o->col_step != 0);
    if (t->quantised)
        sb_line(e->sb, "row_dequantise<%s>(row, %s, %s, %lldLL, v%d);", quant_text(e, s->tensor),
                operand_text(e, s->tensor), row_text(e, s->tensor), operand_pitch(e->k, s->tensor),
                step);
    else if (is_int && o->col_step)
        sb_line(e->sb, "row_load_i32(row, %s, v%d);", at, step);
    else if (is_int)
        sb_line(e->sb, "v%d = *(const int32_t *)(%s);", step, at);
    else
        sb_line(e->sb, "v%d = Plain<%s>::load(*(const Plain<%s>::Element *)(%s));", step,
                format_word[t->fmt], format_word[t->fmt], at);
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

static void emit_rowwise(Emit *e, const TileStep *s, int step)
{
    const char *x = vector(e, s->src[0], step, 0), *weight = "", *bias = "";
    if (s->op != TILE_SOFTMAX)
        weight = vector(e, s->src[1], step, 1);
    if (s->op == TILE_LAYERNORM)
        bias = vector(e, s->src[2], step, 2);
    define(e, s, step, REG_F32, true);
    if (s->op == TILE_SOFTMAX) {
        sb_line(e->sb, "row_softmax(row, v%d, %s);", step, x);
        return;
    }
    Sb eps;
    sb_init(&eps, e->sb->arena);
    sb_printf(&eps, "num_float(0x%08xu)", num_bits(s->imm));
    if (s->op == TILE_RMSNORM)
        sb_line(e->sb, "row_rmsnorm(row, v%d, %s, %s, %s, row.end);", step, x, weight, eps.text);
    else
        sb_line(e->sb, "row_layernorm(row, v%d, %s, %s, %s, %s, row.end);", step, x, weight, bias,
                eps.text);
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
            sb_line(e->sb, "if (row.lane == 0) *(int32_t *)(%s) = v%d%s;", at, r->step, value);
        else
            sb_line(e->sb,
                    "if (row.lane == 0) *(Plain<%s>::Element *)(%s) = Plain<%s>::store(v%d%s);",
                    format_word[t->fmt], at, format_word[t->fmt], r->step, value);
        return;
    }
    const char *from = vector(e, s->src[0], step, 0);
    if (t->fmt == FMT_I32)
        sb_line(e->sb, "row_store_i32(row, %s, %s);", at, from);
    else
        sb_line(e->sb, "row_store<%s>(row, %s, %s);", format_word[t->fmt], at, from);
}

static void emit_quantise(Emit *e, const TileStep *s, int step)
{
    const CudaKernel *k = e->k;
    const PlanTensor *t = operand_tensor(k, s->tensor);
    const PlanLayout *l = operand_layout(k, s->tensor);
    const char *from = vector(e, s->src[0], step, 0);
    const char *q = quant_text(e, s->tensor);
    if (spans_rows(k, s->tensor)) {
        int64_t blocks =
            scheme_row_blocks(&t->scheme, l->rows) * scheme_col_blocks(&t->scheme, l->cols);
        if (k->span == SPAN_GATHER) {
            sb_line(e->sb, "row_gather<%s>(row, found, %s, %lldLL, %s, %s);", q, ranges_text(e),
                    (long long)blocks, row_text(e, s->tensor), from);
            return;
        }
        if (whole_tensor(k, s->tensor)) {
            sb_line(e->sb,
                    "int32_t sum%d = row_quantise_span<%s>(row, %s, %s, %lldLL, %s, %lldLL, %s);",
                    step, q, operand_text(e, s->tensor), ranges_text(e), (long long)blocks,
                    row_text(e, s->tensor), (long long)l->pitch, from);
            e->quantised_by[s->tensor] = step + 1;
            return;
        }
        sb_line(e->sb, "row_span_scales<%s>(row, %s, %s, %lldLL, %s);", q,
                operand_text(e, s->tensor), ranges_text(e), (long long)blocks,
                row_text(e, s->tensor));
    }
    const char *how = t->is_static                                               ? "given"
                      : spans_rows(k, s->tensor) && t->scheme.block[0] != 1      ? "given"
                      : t->scheme.block[1] == 0 || t->scheme.block[1] >= l->cols ? "token"
                                                                                 : "group";
    sb_line(e->sb, "int32_t sum%d = row_quantise_%s<%s>(row, %s, %s, %lldLL, %s);", step, how, q,
            operand_text(e, s->tensor), row_text(e, s->tensor), operand_pitch(k, s->tensor), from);
    e->quantised_by[s->tensor] = step + 1;
}

static void emit_code_sum(Emit *e, const TileStep *s, int step)
{
    const CudaKernel *k = e->k;
    if (e->quantised_by[s->tensor2])
        sb_line(e->sb, "int32_t all%d = row_reduce(row, sum%d, Plus());", step,
                e->quantised_by[s->tensor2] - 1);
    else
        sb_line(e->sb, "int32_t all%d = row_reduce(row, row_code_sum<%s>(row, %s), Plus());", step,
                quant_text(e, s->tensor2), address_text(e, s->tensor2));
    sb_line(e->sb, "if (row.lane == 0) *(int32_t *)(%s) = all%d;", address_text(e, s->tensor),
            step);
    (void)k;
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
        if (!only_ranges || spans_rows(e->k, s->tensor))
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
    sb_line(sb, "template <class S> static __device__ __forceinline__ void %s(", name);
    sb_line(
        sb,
        "    const Params &p, const Operand &a, const Row<S> &row, int64_t m, const char *acc%s)",
        k->span == SPAN_GATHER ? ", Found &found" : "");
    sb_line(sb, "{");
    sb->indent += 4;
    for (int i = 0; i < program->num_steps; i++)
        emit_step(&e, &program->step[i], i);
    sb->indent -= 4;
    sb_line(sb, "}");
}

void cuda_emit_gather_end(Sb *sb, const CudaKernel *k, const PlanProgram *program)
{
    Emit e = {.sb = sb, .k = k};
    for (int i = 0; i < program->num_steps; i++) {
        int operand = program->step[i].tensor;
        if (program->step[i].op != TILE_QUANTIZE || !spans_rows(k, operand))
            continue;
        const PlanTensor *t = operand_tensor(k, operand);
        const PlanLayout *l = operand_layout(k, operand);
        int64_t blocks =
            scheme_row_blocks(&t->scheme, l->rows) * scheme_col_blocks(&t->scheme, l->cols);
        sb_line(sb, "gather_end<%s>(found, %s, %lldLL, scratch);", quant_text(&e, operand),
                ranges_text(&e), (long long)blocks);
    }
}

/* Facts about programs ------------------------------------------------------------------------ */

static int64_t dynamic_group(const CudaKernel *k, const TileStep *s)
{
    if (s->op != TILE_QUANTIZE)
        return 0;
    const PlanTensor *t = operand_tensor(k, s->tensor);
    int64_t block = t->scheme.block[1];
    bool whole = block == 0 || block >= operand_layout(k, s->tensor)->cols;
    return t->is_static || t->scheme.block[0] != 1 || whole ? 0 : block;
}

int64_t cuda_program_group(const CudaKernel *k, const PlanProgram *program)
{
    int64_t most = 0;
    for (int i = 0; i < program->num_steps; i++) {
        int64_t group = dynamic_group(k, &program->step[i]);
        most = group > most ? group : most;
    }
    return most;
}

int64_t cuda_program_scratch(const CudaKernel *k, const PlanProgram *program, int threads,
                             int64_t cols)
{
    int64_t words = threads > 32 && cuda_program_sums(program) ? 1024 : threads > 32 ? 32 : 4;
    for (int i = 0; i < program->num_steps; i++) {
        int64_t group = dynamic_group(k, &program->step[i]);
        int64_t need = group ? 3 * ((cols + group - 1) / group + 1) : 0;
        words = need > words ? need : words;
    }
    return words;
}

bool cuda_program_sums(const PlanProgram *program)
{
    for (int i = 0; i < program->num_steps; i++) {
        int op = program->step[i].op;
        if (op == TILE_RMSNORM || op == TILE_LAYERNORM || op == TILE_SOFTMAX)
            return true;
    }
    return false;
}

const char *cuda_edge(int64_t begin, int64_t end, int64_t cols, int64_t held, int run)
{
    if (begin % run || end % run || cols % run)
        return "EDGE_ANY";
    return begin % cols || end % cols || cols != held ? "EDGE_RUNS" : "EDGE_NONE";
}

bool cuda_program_needs_row(const CudaKernel *k, const PlanProgram *program)
{
    if (cuda_program_sums(program))
        return true;
    for (int i = 0; i < program->num_steps; i++) {
        const TileStep *s = &program->step[i];
        if (s->op == TILE_CODE_SUM)
            return true;
        if (s->op != TILE_QUANTIZE)
            continue;
        const PlanTensor *t = operand_tensor(k, s->tensor);
        int64_t block = t->scheme.block[1];
        if (!t->is_static && t->scheme.block[0] == 1 &&
            (block == 0 || block >= operand_layout(k, s->tensor)->cols))
            return true;
    }
    return false;
}
