/* The interpreter of tile programs, and cpu_tile, which runs one over a tensor.
 *
 * A register holds a tile whose values may vary along both directions or be shared by rows, columns
 * or all: a bias is one row, a scale per token one column. Full tiles and thin ones have their own
 * place in the scratch, so that a step may overwrite its own operand. */
#include "kernels/cpu/internal.h"
#include <string.h>

typedef struct TileReg {
    float *data; /* or int32_t */
    int64_t ld;  /* from row to row; 0 when rows share values */
    bool by_col; /* values differ along the columns */
} TileReg;

typedef struct TileState {
    const TileRun *run;
    TileReg reg[TILE_MAX_REGS];
    int64_t ld, thin;           /* floats of a row of a full tile, and of a thin register */
    float *full, *narrow, *row; /* [regs][rows * ld], [regs][thin], three rows */
    TileReg place;              /* of the step's result, if it is a full tile; NULL: in full */
} TileState;

static int program_regs(const CpuProgram *program)
{
    int most = 0;
    for (int i = 0; i < program->num_steps; i++)
        if (program->step[i].dst >= most)
            most = program->step[i].dst + 1;
    return most;
}

static int64_t row_floats(int64_t cols)
{
    return (cols + 15) & ~(int64_t)15;
}

uint64_t tile_scratch(const CpuProgram *program, int64_t rows, int64_t cols)
{
    uint64_t ld = (uint64_t)row_floats(cols), r = (uint64_t)row_floats(rows);
    uint64_t regs = (uint64_t)program_regs(program);
    return 4 * (regs * (ld * (uint64_t)rows + (ld > r ? ld : r)) + 3 * ld);
}

/* The tile's part of a tensor where that can be a register: f32, row after row. */
static TileReg reg_in_memory(const TileRun *run, const CpuTensor *t)
{
    int64_t first = tensor_row(t, run->m0), last = tensor_row(t, run->m0 + run->rows - 1);
    bool in_turn = last - first == run->rows - 1 && ((!t->ends && !t->index) || run->rows == 1);
    bool is_tile = in_turn && t->col_step == 1 && run->cols > 1;
    if (!is_tile || t->fmt != FMT_F32 || t->quantised || t->pitch % 4)
        return (TileReg){0};
    return (TileReg){(float *)(void *)((char *)t->data + first * t->pitch) + run->n0, t->pitch / 4,
                     true};
}

/* Some step writes to memory of the tensor. */
static bool is_written(const TileRun *run, const CpuTensor *t)
{
    const CpuProgram *p = run->program;
    uintptr_t begin = (uintptr_t)t->data, end = begin + (uintptr_t)(t->rows * t->pitch);
    for (int i = 0; i < p->num_steps; i++) {
        TileOp op = (TileOp)p->step[i].op;
        const CpuTensor *to = &run->operand[p->step[i].tensor];
        if (op != TILE_STORE && op != TILE_QUANTIZE && op != TILE_CODE_SUM)
            continue;
        uintptr_t at = (uintptr_t)to->data;
        if (at < end && begin < at + (uintptr_t)(to->rows * to->pitch))
            return true;
    }
    return false;
}

/* Where the result of step i goes that the next one stores. */
static TileReg place_of(const TileRun *run, int i)
{
    const TileStep *step = &run->program->step[i];
    bool stores = i + 1 < run->program->num_steps && step[1].op == TILE_STORE && !run->gather;
    if (!stores || step[1].src[0] != step->dst)
        return (TileReg){0};
    return reg_in_memory(run, &run->operand[step[1].tensor]);
}

/* A place for the result of a step: full, one row, one column or one value. */
static TileReg reg_new(const TileState *s, int index, bool by_row, bool by_col)
{
    if (by_row && by_col && s->place.data)
        return s->place;
    if (by_row && by_col)
        return (TileReg){s->full + index * s->run->rows * s->ld, s->ld, true};
    return (TileReg){s->narrow + index * s->thin, by_row ? 1 : 0, by_col};
}

/* One row of a register, contiguous; one shared value is spread in one of three spare rows. */
static const float *reg_row(const TileState *s, const TileReg *reg, int row, int spare)
{
    const float *at = reg->data + row * reg->ld;
    if (reg->by_col)
        return at;
    float *spread = s->row + spare * s->ld;
    for (int64_t c = 0; c < s->run->cols; c++)
        spread[c] = *at;
    return spread;
}

static void step_load(TileState *s, const TileStep *step)
{
    const TileRun *run = s->run;
    const CpuTensor *t = &run->operand[step->tensor];
    bool by_col = t->col_step != 0 && run->cols > 1;
    bool by_row = run->rows > 1 && t->row_mod != 1 && t->rows != 1;
    TileReg reg = reg_in_memory(run, t);
    bool reads = !reg.data || is_written(run, t);
    if (reads)
        reg = reg_new(s, step->dst, by_row, by_col);
    int64_t col = t->col_step ? run->n0 : 0;
    for (int r = 0; reads && r < (by_row ? run->rows : 1); r++)
        tensor_read(run->kern, t, tensor_row(t, run->m0 + r), col, reg.data + r * reg.ld,
                    by_col ? run->cols : 1);
    s->reg[step->dst] = reg;
}

static void step_binary(TileState *s, const TileStep *step, int arity)
{
    const TileReg a = s->reg[step->src[0]], b = s->reg[step->src[arity == 2]];
    bool by_row = a.ld || b.ld, by_col = a.by_col || b.by_col;
    TileReg d = reg_new(s, step->dst, by_row, by_col);
    int64_t rows = by_row ? s->run->rows : 1, cols = by_col ? s->run->cols : 1;
    bool a_scalar = !a.by_col, b_scalar = !b.by_col;
    if (by_row && !by_col) { /* a column lies like a row */
        a_scalar = !a.ld;
        b_scalar = !b.ld;
        cols = rows;
        rows = 1;
    }
    bool is_i32 = step->op >= TILE_ADD_I32 && step->op <= TILE_MUL_I32;
    for (int64_t r = 0; r < rows; r++) {
        const float *x = a.data + r * a.ld, *y = b.data + r * b.ld;
        float *out = d.data + r * d.ld;
        float one_x = *x, one_y = *y; /* thin registers share a place: read before writing */
        x = a_scalar ? &one_x : x;
        y = b_scalar ? &one_y : y;
        if (is_i32)
            s->run->kern->arith_i32(step->op,
                                    (RowArgI32){(const int32_t *)(const void *)x, a_scalar},
                                    (RowArgI32){(const int32_t *)(const void *)y, b_scalar},
                                    (int32_t *)(void *)out, cols);
        else
            s->run->kern->elementwise(step->op, (RowArg){x, a_scalar}, (RowArg){y, b_scalar}, out,
                                      cols);
    }
    s->reg[step->dst] = d;
}

static void step_convert(TileState *s, const TileStep *step)
{
    const TileReg a = s->reg[step->src[0]];
    TileReg d = reg_new(s, step->dst, a.ld != 0, a.by_col);
    int64_t rows = a.ld ? s->run->rows : 1, cols = a.by_col ? s->run->cols : 1;
    for (int64_t r = 0; r < rows; r++) {
        const float *x = a.data + r * a.ld;
        if (step->op == TILE_ROUND)
            s->run->kern->round((FormatId)step->fmt, x, d.data + r * d.ld, cols);
        else
            s->run->kern->i32_to_f32((const int32_t *)(const void *)x, d.data + r * d.ld, cols);
    }
    s->reg[step->dst] = d;
}

static void step_rowwise(TileState *s, const TileStep *step)
{
    const TileRun *run = s->run;
    const TileReg x = s->reg[step->src[0]];
    TileReg gain = x, bias = x;
    if (step->op != TILE_SOFTMAX)
        gain = s->reg[step->src[1]];
    if (step->op == TILE_LAYERNORM)
        bias = s->reg[step->src[2]];
    TileReg d = reg_new(s, step->dst, true, true);
    for (int r = 0; r < run->rows; r++) {
        const float *in = reg_row(s, &x, r, 0), *g = reg_row(s, &gain, r, 1);
        float *out = d.data + r * d.ld;
        if (step->op == TILE_RMSNORM)
            run->kern->rmsnorm(in, g, step->imm, out, run->cols);
        else if (step->op == TILE_LAYERNORM)
            run->kern->layernorm(in, g, reg_row(s, &bias, r, 2), step->imm, out, run->cols);
        else
            run->kern->softmax(in, out, run->cols);
    }
    s->reg[step->dst] = d;
}

static void step_store(TileState *s, const TileStep *step)
{
    const TileRun *run = s->run;
    const CpuTensor *t = &run->operand[step->tensor];
    if (run->gather)
        return;
    int64_t num = t->col_step ? run->cols : 1, bytes = plain_bytes(t->fmt);
    for (int r = 0; r < run->rows; r++) {
        const float *src = reg_row(s, &s->reg[step->src[0]], r, 0);
        char *dst = (char *)tensor_row_at(t, run->m0 + r) + (t->col_step ? run->n0 * bytes : 0);
        if (t->fmt == FMT_I32)
            memcpy(dst, src, 4 * (size_t)num);
        else if ((const void *)src != dst) /* else the step before wrote it there */
            run->kern->store(t->fmt, src, dst, num);
    }
}

static void step_quantise(TileState *s, const TileStep *step)
{
    const TileRun *run = s->run;
    const CpuTensor *t = &run->operand[step->tensor];
    for (int r = 0; r < run->rows; r++) {
        const float *src = reg_row(s, &s->reg[step->src[0]], r, 0);
        if (!run->gather)
            quantise_row(run, t, run->m0 + r, src);
        else if (tensor_spans(t))
            gather_row(run, step->tensor, run->m0 + r, src);
    }
}

static void step_code_sum(TileState *s, const TileStep *step)
{
    const TileRun *run = s->run;
    const CpuTensor *sums = &run->operand[step->tensor], *t = &run->operand[step->tensor2];
    for (int r = 0; r < run->rows && !run->gather; r++) {
        const uint8_t *codes = (const uint8_t *)tensor_row_at(t, run->m0 + r) + run->n0;
        int32_t sum = run->kern->code_sum(t->fmt, codes, run->cols);
        memcpy(tensor_row_at(sums, run->m0 + r), &sum, sizeof sum);
    }
}

static void tile_step(TileState *s, const TileStep *step)
{
    switch ((TileOp)step->op) {
    case TILE_ACC:
        s->reg[step->dst] =
            (TileReg){(float *)(uintptr_t)s->run->acc[step->part], s->run->acc_ld, true};
        break;
    case TILE_LOAD: step_load(s, step); break;
    case TILE_CONST:
        s->reg[step->dst] = reg_new(s, step->dst, false, false);
        *s->reg[step->dst].data = step->imm;
        break;
    case TILE_ADD_I32:
    case TILE_SUB_I32:
    case TILE_MUL_I32: step_binary(s, step, 2); break;
    case TILE_I32_TO_F32:
    case TILE_ROUND: step_convert(s, step); break;
    case TILE_RMSNORM:
    case TILE_LAYERNORM:
    case TILE_SOFTMAX: step_rowwise(s, step); break;
    case TILE_STORE: step_store(s, step); break;
    case TILE_QUANTIZE: step_quantise(s, step); break;
    case TILE_CODE_SUM: step_code_sum(s, step); break;
#define ELEMENTWISE(ID, name, arity, f32_expr, f64_expr) \
    case TILE_##ID:                                      \
        step_binary(s, step, arity);                     \
        break;
#include "numerics/elementwise.def"
#undef ELEMENTWISE
    case NUM_TILE_OPS: break;
    }
}

void tile_run(const TileRun *run)
{
    TileState s = {.run = run, .ld = row_floats(run->cols)};
    int regs = program_regs(run->program);
    int64_t rows = row_floats(run->rows);
    s.thin = s.ld > rows ? s.ld : rows;
    s.full = run->scratch;
    s.narrow = s.full + regs * run->rows * s.ld;
    s.row = s.narrow + regs * s.thin;
    for (int i = 0; i < run->program->num_steps; i++) {
        s.place = place_of(run, i);
        tile_step(&s, &run->program->step[i]);
    }
}

/* cpu_tile ------------------------------------------------------------------------------------- */

#define SMALL_WORK 8192  /* elements: below, waking threads takes longer than the work */
#define TILE_BYTES 32768 /* of one register, at most, where rows are short */

typedef struct TileShape {
    int64_t rows, cols, row_tiles, col_tiles;
    uint64_t bytes; /* of one thread */
} TileShape;

/* The step's operand if it is quantised here with scales found at run time, or NULL. */
static const CpuTensor *dynamic_target(const CpuTile *t, const TileStep *step)
{
    if (step->op != TILE_QUANTIZE || t->operand[step->tensor].is_static)
        return NULL;
    return &t->operand[step->tensor];
}

/* Column tiles hold whole quantisation blocks; steps that need whole rows get them. */
static TileShape tile_shape(const CpuTile *t)
{
    TileShape s = {.cols = 2 * CPU_TILE_COLS};
    bool whole = t->whole_rows;
    for (int i = 0; i < t->program.num_steps; i++) {
        const CpuTensor *o = dynamic_target(t, &t->program.step[i]);
        if (o && o->block_cols > 0)
            s.cols = ceil_blocks(s.cols, o->block_cols) * o->block_cols;
        whole |= o && o->block_cols <= 0;
    }
    for (int i = 0; i < t->program.num_steps; i++) {
        const CpuTensor *o = dynamic_target(t, &t->program.step[i]);
        whole |= o && o->block_cols > 0 && s.cols % o->block_cols;
    }
    if (whole || s.cols > t->cols)
        s.cols = t->cols;
    s.rows = s.cols > 0 ? TILE_BYTES / 4 / s.cols : 1;
    s.rows = s.rows < 1 ? 1 : s.rows > 64 ? 64 : s.rows;
    s.rows = s.rows > t->rows ? t->rows : s.rows;
    s.row_tiles = s.rows ? ceil_blocks(t->rows, s.rows) : 0;
    s.col_tiles = s.cols ? ceil_blocks(t->cols, s.cols) : 0;
    s.bytes = align_64(tile_scratch(&t->program, s.rows, s.cols));
    return s;
}

static int64_t span_blocks(const CpuTensor *t)
{
    if (!tensor_spans(t) || t->block_rows == 1)
        return 0;
    return ceil_blocks(t->rows, t->block_rows) * ceil_blocks(t->cols, t->block_cols);
}

uint64_t cpu_tile_scratch(const CpuTile *t, int threads)
{
    uint64_t bytes = align_64(sizeof(TileSpan) * (uint64_t)t->num_operands);
    for (int i = 0; i < t->program.num_steps; i++) {
        const CpuTensor *o = dynamic_target(t, &t->program.step[i]);
        bytes += o ? align_64(12 * (uint64_t)span_blocks(o)) : 0;
    }
    return bytes + (uint64_t)(threads > 1 ? threads : 1) * tile_shape(t).bytes;
}

typedef struct TilePass {
    const CpuTile *tile;
    const TileShape *shape;
    const CpuKernels *kern;
    TileSpan *gather;
    char *scratch; /* of all threads */
} TilePass;

static void pass_items(void *user, int64_t begin, int64_t end, int thread)
{
    const TilePass *p = user;
    const CpuTile *t = p->tile;
    const TileShape *shape = p->shape;
    for (int64_t i = begin; i < end; i++) {
        TileRun run = {.kern = p->kern, .program = &t->program, .operand = t->operand};
        run.gather = p->gather;
        run.m0 = i / shape->col_tiles * shape->rows;
        run.n0 = i % shape->col_tiles * shape->cols;
        run.rows = (int)(t->rows - run.m0 < shape->rows ? t->rows - run.m0 : shape->rows);
        run.cols = t->cols - run.n0 < shape->cols ? t->cols - run.n0 : shape->cols;
        run.scratch = p->scratch + (uint64_t)thread * shape->bytes;
        tile_run(&run);
    }
}

static void tile_pass(const CpuTile *t, const TileShape *shape, TileSpan *gather, char *scratch,
                      int threads)
{
    TilePass p = {t, shape, cpu_kernels(), gather, scratch};
    team_run(t->rows * t->cols < SMALL_WORK ? 1 : threads, shape->row_tiles * shape->col_tiles, 1,
             pass_items, &p);
}

/* Empty ranges for the blocks of one operand; returns the memory after them. */
static char *span_place(const CpuTensor *t, TileSpan *span, char *memory)
{
    int64_t num = span_blocks(t);
    if (!num)
        return memory;
    span->amax = (int32_t *)(void *)memory;
    span->lo = span->amax + num;
    span->hi = span->lo + num;
    for (int64_t i = 0; i < num; i++) {
        span->amax[i] = 0;
        span->lo[i] = INT32_MAX;
        span->hi[i] = INT32_MIN;
    }
    return memory + align_64(12 * (uint64_t)num);
}

void cpu_tile(const CpuTile *t, void *scratch, int threads)
{
    TileShape shape = tile_shape(t);
    TileSpan *span = scratch;
    char *at = (char *)scratch + align_64(sizeof *span * (uint64_t)t->num_operands);
    bool spans = false;
    memset(span, 0, sizeof *span * (size_t)t->num_operands);
    for (int i = 0; i < t->program.num_steps; i++) {
        const CpuTensor *o = dynamic_target(t, &t->program.step[i]);
        if (!o || !tensor_spans(o))
            continue;
        at = span_place(o, &span[t->program.step[i].tensor], at);
        spans = true;
    }
    if (threads < 1)
        threads = 1;
    if (spans) {
        tile_pass(t, &shape, span, at, threads);
        for (int i = 0; i < t->program.num_steps; i++) {
            const CpuTensor *o = dynamic_target(t, &t->program.step[i]);
            if (o && tensor_spans(o))
                span_finish(o, &span[t->program.step[i].tensor]);
        }
    }
    tile_pass(t, &shape, NULL, at, threads);
}
