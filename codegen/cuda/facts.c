/* codegen/cuda/facts: what the choice of kernels asks of tile programs. */
#include "codegen/cuda/kernel.h"

/* Beyond it sums in f32 by tensor cores come too near the error that results in f32 may have: it
 * grows with the square of K, and missed the bound at three times as much (docs/numerics.md). */
#define LONG_K 4096
/* .. and what two pieces leave of codes, which activations of one sign add up. */
#define LONG_CODES_K 16384
/* Blocks spare 64 KiB for a table of pairs where GPUs have so many, and tiles no more rows of a: of
 * others the ring would have few stages. */
#define ROOMY     200
#define ROOM_ROWS 32
/* A product finds an outer scale of up to so many rows: at 1,024 a layer in nvfp4 took 2 % longer.
 */
#define OUTER_ROWS 512
/* Up to so many rows are taken by one tile, whatever group they are of; else a group is taken to
 * have up to 5 / 4 of its share. */
#define FEW_ROUTED 16
#define MOST_SHARE 5 /* quarters */

int64_t cuda_rows(const CudaKernel *k)
{
    int64_t rows = k->layout[k->launch->a].rows;
    if (cuda_counted(k))
        return rows / k->groups;
    if (!k->groups || rows <= FEW_ROUTED)
        return rows;
    int64_t quarters = k->share ? k->share : MOST_SHARE;
    int64_t share = (quarters * rows + 4 * k->groups - 1) / (4 * k->groups);
    return share < rows ? share : rows;
}

bool cuda_shares_vary(const CudaKernel *k)
{
    return k->groups && !cuda_counted(k) && k->layout[k->launch->a].rows > FEW_ROUTED;
}

int cuda_counted(const CudaKernel *k)
{
    return k->groups && k->launch->counted ? (int)k->groups : 0;
}

int64_t cuda_most_rows(const CudaKernel *k)
{
    return k->as_one ? cuda_rows(k) : k->layout[k->launch->a].rows;
}

int64_t cuda_groups_busy(const CudaKernel *k)
{
    int64_t rows = k->layout[k->launch->a].rows;
    return !k->groups || k->as_one ? 1 : k->groups < rows ? k->groups : rows > 0 ? rows : 1;
}

static const PlanTensor *operand_tensor(const CudaKernel *k, int operand)
{
    return &k->plan->tensor[k->launch->operand[operand].tensor];
}

/* Its blocks do not reach over rows, though its scheme's may: it has one. */
static bool is_of_rows(const CudaKernel *k, const PlanTensor *t)
{
    return t->scheme.block[0] == 1 || k->layout[t - k->plan->tensor].rows == 1;
}

bool cuda_step_spans(const CudaKernel *k, const TileStep *s)
{
    if (s->op != TILE_QUANTIZE)
        return false;
    const PlanTensor *t = operand_tensor(k, s->tensor);
    bool one = k->layout[t - k->plan->tensor].rows == 1;
    return t->quantised && !t->is_static && !one && (t->scheme.block[0] != 1 || t->scheme.outer);
}

bool cuda_finds_range(const CudaKernel *k)
{
    if (!k->ranged)
        return false;
    int64_t rows = k->layout[k->ranged->of].rows;
    return rows > 1 && (!k->plan->tensor[k->ranged->of].scheme.outer || rows <= OUTER_ROWS);
}

bool cuda_step_finds_outer(const CudaKernel *k, const TileStep *s)
{
    if (s->op != TILE_QUANTIZE)
        return false;
    const PlanTensor *t = operand_tensor(k, s->tensor);
    return !t->is_static && t->scheme.outer && !cuda_step_spans(k, s);
}

bool cuda_program_spans(const CudaKernel *k, const PlanProgram *program)
{
    for (int i = 0; i < program->num_steps; i++)
        if (cuda_step_spans(k, &program->step[i]))
            return true;
    return false;
}

/* A scale for each row, whatever its columns. */
bool cuda_step_by_token(const CudaKernel *k, const TileStep *s)
{
    const PlanTensor *t = operand_tensor(k, s->tensor);
    int64_t block = t->scheme.block[1];
    return !t->is_static && is_of_rows(k, t) &&
           (block == 0 || block >= k->layout[t - k->plan->tensor].cols);
}

static int64_t dynamic_group(const CudaKernel *k, const TileStep *s)
{
    if (s->op != TILE_QUANTIZE)
        return 0;
    const PlanTensor *t = operand_tensor(k, s->tensor);
    int64_t block = t->scheme.block[1];
    bool whole = block == 0 || block >= k->layout[t - k->plan->tensor].cols;
    return t->is_static || !is_of_rows(k, t) || whole ? 0 : block;
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

bool cuda_amplifies(const CudaKernel *k)
{
    for (int i = 0; i < k->launch->num_segments; i++)
        for (int j = 0; j < k->launch->segment[i].epilogue.num_steps; j++)
            if (k->launch->segment[i].epilogue.step[j].op == TILE_SOFTMAX)
                return true;
    return false;
}

bool cuda_gives_f32(const CudaKernel *k)
{
    for (int i = 0; i < k->launch->num_segments; i++)
        for (int j = 0; j < k->launch->segment[i].epilogue.num_steps; j++) {
            const TileStep *s = &k->launch->segment[i].epilogue.step[j];
            if (s->op != TILE_STORE)
                continue;
            const PlanTensor *t = operand_tensor(k, s->tensor);
            if (t->fmt == FMT_F32 && t->storage == STORAGE_OUTPUT)
                return true;
        }
    return false;
}

bool cuda_adds_apart(const CudaKernel *k)
{
    bool has_units = k->gpu->from >= 80 || k->packed.home != CUDA_HOME_BF16; /* else by f32 */
    return has_units && k->packed.home != CUDA_HOME_I8 && k->spec.k > LONG_K &&
           (cuda_gives_f32(k) || cuda_amplifies(k));
}

/* Of how many sums the errors add up in what the program stores; more than any bound allows where
 * it stores another format than bf16 (or the home's), or a step makes more of an error, as tanh and
 * sigmoid do, which leave little of large sums and all of the error of small ones. */
static int factors_of(const CudaKernel *k, const PlanProgram *program)
{
    enum { MANY = 99 };
    int reg[TILE_MAX_REGS] = {0}, most = 0;
    for (int i = 0; i < program->num_steps; i++) {
        const TileStep *s = &program->step[i];
        int a = reg[s->src[0]], b = reg[s->src[1]];
        FormatId to = s->op == TILE_STORE ? operand_tensor(k, s->tensor)->fmt : FMT_NONE;
        switch ((TileOp)s->op) {
        case TILE_ACC: reg[s->dst] = 1; break;
        case TILE_LOAD:
        case TILE_CONST: reg[s->dst] = 0; break;
        case TILE_ADD:
        case TILE_SUB:
        case TILE_MIN:
        case TILE_MAX: reg[s->dst] = a > b ? a : b; break;
        case TILE_MUL: reg[s->dst] = a + b; break;
        case TILE_RELU:
        case TILE_GELU:
        case TILE_GELU_TANH:
        case TILE_SILU:
        case TILE_ROUND: reg[s->dst] = a; break;
        case TILE_STORE:
            if (a && to != FMT_BF16 && (to != FMT_F16 || k->packed.home != CUDA_HOME_F16))
                return MANY;
            most = a > most ? a : most;
            break;
        default: return MANY;
        }
    }
    return most;
}

bool cuda_results_are_coarse(const CudaKernel *k)
{
    for (int i = 0; i < k->launch->num_segments; i++)
        if (factors_of(k, &k->launch->segment[i].epilogue) > 2)
            return false;
    return true;
}

int cuda_codebook_pieces(const CudaKernel *k)
{
    const CudaPackSpec *spec = &k->spec;
    bool scaled = spec->mainloop && !spec->table; /* there is a scale that takes the unit in */
    if (scaled && (spec->fmt == FMT_FP4 || (spec->fmt == FMT_NF4 && cuda_results_are_coarse(k))))
        return 1;
    return cuda_amplifies(k) || (cuda_gives_f32(k) && spec->k > LONG_CODES_K) ? 3 : 2;
}

int cuda_pair_pitch(const CudaKernel *k)
{
    bool is_codebook = format_info[k->spec.fmt].family == FAMILY_CODEBOOK;
    if (!is_codebook || cuda_codebook_pieces(k) != 1)
        return 0;
    bool is_tall = k->family == CUDA_MIXED && k->mixed.bm > ROOM_ROWS;
    return k->gpu->smem >= ROOMY && !is_tall ? 256 : 128;
}

int64_t cuda_pair_table_bytes(const CudaKernel *k)
{
    int pitch = cuda_pair_pitch(k);
    return pitch ? 255 * pitch + 128 : 0;
}

bool cuda_program_sums_codes(const PlanProgram *program)
{
    for (int i = 0; i < program->num_steps; i++)
        if (program->step[i].op == TILE_CODE_SUM)
            return true;
    return false;
}

bool cuda_program_needs_row(const CudaKernel *k, const PlanProgram *program)
{
    if (cuda_program_sums(program))
        return true;
    for (int i = 0; i < program->num_steps; i++) {
        const TileStep *s = &program->step[i];
        if (s->op == TILE_CODE_SUM)
            return true;
        if (s->op == TILE_QUANTIZE && (cuda_step_by_token(k, s) || cuda_step_finds_outer(k, s)))
            return true;
    }
    return false;
}

int cuda_program_reductions(const CudaKernel *k, const PlanProgram *program)
{
    int num = 0;
    for (int i = 0; i < program->num_steps; i++) {
        const TileStep *s = &program->step[i];
        num += s->op == TILE_LAYERNORM || s->op == TILE_SOFTMAX ? 2
               : s->op == TILE_RMSNORM                          ? 1
               : s->op == TILE_QUANTIZE && k->span != SPAN_GATHER
                   ? cuda_step_by_token(k, s) + cuda_step_finds_outer(k, s)
                   : 0;
    }
    return num;
}

/* Registers ----------------------------------------------------------------------------------- */

#define WORK_WIDTH 2 /* of what a step computes with */

static int num_sources(int op)
{
    static const int elementwise_arity[NUM_TILE_OPS] = {
#define ELEMENTWISE(ID, name, arity, f32_expr, f64_expr) [TILE_##ID] = arity,
#include "numerics/elementwise.def"
#undef ELEMENTWISE
    };
    switch ((TileOp)op) {
    case TILE_ACC:
    case TILE_LOAD:
    case TILE_CONST:
    case TILE_CODE_SUM: return 0;
    case TILE_I32_TO_F32:
    case TILE_ROUND:
    case TILE_SOFTMAX:
    case TILE_STORE:
    case TILE_QUANTIZE: return 1;
    case TILE_ADD_I32:
    case TILE_SUB_I32:
    case TILE_MUL_I32:
    case TILE_RMSNORM: return 2;
    case TILE_LAYERNORM: return 3;
    default: return elementwise_arity[op];
    }
}

static bool reads(const TileStep *s, int reg)
{
    for (int i = 0; i < num_sources(s->op); i++)
        if (s->src[i] == reg)
            return true;
    return false;
}

static bool defines(const TileStep *s)
{
    return s->op != TILE_STORE && s->op != TILE_QUANTIZE && s->op != TILE_CODE_SUM;
}

/* Halves of a register that the step's result takes for each column; `of` has its sources'. */
static int step_width(const CudaKernel *k, const TileStep *s, const int *of)
{
    if (s->op == TILE_CONST || (s->op == TILE_LOAD && !k->launch->operand[s->tensor].col_step))
        return 0;
    if (s->op == TILE_LOAD) {
        const PlanTensor *t = operand_tensor(k, s->tensor);
        return !t->quantised && format_info[t->fmt].bits == 16 ? 1 : 2;
    }
    int most = s->op == TILE_ACC ? 2 : 0;
    for (int i = 0; i < num_sources(s->op); i++)
        most = of[s->src[i]] ? 2 : most;
    bool packs = s->op == TILE_ROUND && (s->fmt == FMT_F16 || s->fmt == FMT_BF16);
    return most && packs ? 1 : most;
}

/* The last step that reads what step `at` makes. */
static int last_read(const PlanProgram *program, int at)
{
    int last = at, reg = program->step[at].dst;
    for (int i = at + 1; i < program->num_steps; i++) {
        const TileStep *s = &program->step[i];
        if (reads(s, reg))
            last = i;
        if (defines(s) && s->dst == reg)
            break;
    }
    return last;
}

/* What step `i` makes is held while step `at` runs; loads are issued first of all. */
static bool is_held(const PlanProgram *program, int i, int at)
{
    return (i <= at || program->step[i].op == TILE_LOAD) && last_read(program, i) > at;
}

int cuda_program_pressure(const CudaKernel *k, const PlanProgram *program)
{
    int most = 0;
    for (int at = 0; at < program->num_steps; at++) {
        int all = WORK_WIDTH, of[TILE_MAX_REGS] = {0};
        for (int i = 0; i < program->num_steps; i++) {
            const TileStep *s = &program->step[i];
            if (!defines(s))
                continue;
            of[s->dst] = step_width(k, s, of);
            all += is_held(program, i, at) ? of[s->dst] : 0;
        }
        most = all > most ? all : most;
    }
    return most;
}
