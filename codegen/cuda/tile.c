/* codegen/cuda/tile: row programs (kernels/cuda/tile.cuh): the threads that hold a row, or go over
 * one that is too long in sweeps. */
#include "codegen/cuda/family.h"

#include <inttypes.h>

#define MOST_COLS     32768 /* longest row that one block holds */
#define REGISTERS     40    /* of a thread beside the columns that it holds */
#define SCRATCH_WORDS 11776 /* of a block's static shared memory, 48 KB with a reserve */
#define ROWS_MANY     1056  /* eight for each processor of an H200 */
#define FEW_ROWS      8
#define SWEEP_THREADS 512  /* that go over a longer one .. */
#define SWEEP_TILE    8192 /* .. in so many columns at once */
#define GATHER_BLOCKS 1056 /* eight for each: they find ranges in row after row */

/* Values that a thread holds: many where rows fill the processors, so that many bytes are on their
 * way and few threads wait for each other; few where a row should be done soon. */
static int row_values(int64_t tile, int64_t rows, bool sums)
{
    if (rows < ROWS_MANY && tile <= 256 * 16)
        return 16;
    return tile > 8192 || (sums && rows >= ROWS_MANY) ? 64 : 32;
}

static int row_threads(int64_t tile, int values)
{
    int threads = 32;
    while (threads < 1024 && (int64_t)threads * values < tile)
        threads *= 2;
    return threads;
}

/* The registers of so many threads suffice for the tile, and shared memory for its groups. */
static bool fits(const CudaKernel *k, int64_t tile, int threads)
{
    const PlanProgram *program = &k->launch->program;
    int registers = 65536 / threads < 255 ? 65536 / threads : 255;
    int64_t values = (tile + threads - 1) / threads, held = (values + 7) / 8 * 8 * threads;
    return REGISTERS + values * cuda_program_pressure(k, program) / 2 <= registers &&
           cuda_program_scratch(k, program, threads, held) <= SCRATCH_WORDS;
}

/* Threads that hold the tile, 0: their registers do not suffice. */
static int find_threads(const CudaKernel *k, int64_t tile, int64_t rows, bool sums)
{
    for (int values = row_values(tile, rows, sums); values >= 8; values /= 2) {
        int threads = row_threads(tile, values);
        if (fits(k, tile, threads))
            return threads;
    }
    return 0;
}

static void share_out(CudaKernel *k, int64_t tile, int64_t rows, bool sums)
{
    int64_t cols = k->layout[k->launch->operand[0].tensor].cols;
    int threads = k->row.sweeps ? 0 : find_threads(k, tile, rows, sums);
    if (!threads)
        threads = k->row.sweeps ? SWEEP_THREADS : row_threads(tile, 16);
    k->row.threads_row = threads;
    k->row.run = cols % 8 != 0 && cols % 4 == 0 ? 4 : 8;
    if (sums && threads * k->row.run > 1024) /* the order of sums */
        k->row.run = 1024 / threads;
    int64_t all = (int64_t)threads * k->row.run, units = rows * ((cols + tile - 1) / tile);
    k->row.values = (int)((tile + all - 1) / all) * k->row.run;
    k->row.groups = threads > 32 ? 1 : units >= 8 * ROWS_MANY ? 8 : units >= 2 * ROWS_MANY ? 4 : 1;
    k->row.scratch_words =
        cuda_program_scratch(k, &k->launch->program, threads, all / k->row.run * k->row.values);
    while (k->row.groups > 1 && k->row.groups * k->row.scratch_words > SCRATCH_WORDS)
        k->row.groups /= 2;
}

/* Columns of a row that a sweep holds at once: whole turns of the order of sums, but in the last
 * one, which quantises, whole groups. */
static void sweep_tiles(CudaKernel *k, int64_t group)
{
    k->row.sweeps = cuda_program_reductions(k, &k->launch->program) + 1;
    int64_t tile = SWEEP_TILE;
    while (tile > 1024 && !fits(k, tile, SWEEP_THREADS))
        tile -= 1024;
    k->row.tile_cols = k->row.last_cols = tile;
    if (group)
        k->row.last_cols = group > tile ? group : tile / group * group;
}

static void shape(CudaKernel *k, const char **ret_problem)
{
    const PlanProgram *program = &k->launch->program;
    const PlanLayout *l = &k->layout[k->launch->operand[0].tensor];
    bool sums = cuda_program_sums(program), whole = cuda_program_needs_row(k, program);
    int64_t group = cuda_program_group(k, program), tile = l->cols;
    int64_t most = l->rows < ROWS_MANY ? 512 : 1024; /* of a warp */
    if (!whole && l->cols > most)
        tile = group > most ? group : group ? most / group * group : most;
    if (tile > l->cols)
        tile = l->cols;
    k->row.tile_cols = k->row.last_cols = tile < 1 ? 1 : tile;
    if (whole && (tile > MOST_COLS || !find_threads(k, tile, l->rows, sums)))
        sweep_tiles(k, group);
    if (k->row.last_cols > MOST_COLS)
        *ret_problem = "it quantises in groups of more than 32768 columns, more than one block "
                       "of threads holds";
    share_out(k, k->row.tile_cols > k->row.last_cols ? k->row.tile_cols : k->row.last_cols, l->rows,
              sums);
    k->row.per_processor = k->span == SPAN_GATHER ? GATHER_BLOCKS : 0;
}

static CudaGeometry geometry(const CudaKernel *k)
{
    const PlanLayout *l = &k->layout[k->launch->operand[0].tensor];
    int64_t tiles = k->row.sweeps ? 1 : cuda_ceil_div(l->cols, k->row.tile_cols);
    return (CudaGeometry){.blocks = cuda_ceil_div(l->rows * tiles, k->row.groups),
                          .per_processor = k->row.per_processor,
                          .block = k->row.threads_row * k->row.groups};
}

static double predict(const CudaKernel *k, const CudaGeometry *g)
{
    (void)g;
    int times = k->row.sweeps > 1 ? k->row.sweeps : 1; /* over all of a row */
    return times * cuda_pass_us(cuda_operand_bytes(k));
}

/* Text ----------------------------------------------------------------------------------------- */

/* What is known of tiles of both kinds. */
static const char *row_edge(const CudaKernel *k, int64_t cols)
{
    if (k->varies || k->row.last_cols % k->row.run)
        return "EDGE_ANY";
    int64_t tile = k->row.last_cols != k->row.tile_cols ? k->row.run : k->row.tile_cols;
    return cuda_edge(0, cols, tile, (int64_t)k->row.threads_row * k->row.values, k->row.run);
}

/* Whether the next launch may begin before this one has its input (ahead.cuh). Few rows that are
 * quantised have too few threads to bear what that launch's copies take of the memory. */
static bool may_be_early(const CudaKernel *k)
{
    const PlanProgram *program = &k->launch->program;
    bool quantises = false;
    for (int i = 0; i < program->num_steps; i++)
        quantises = quantises || program->step[i].op == TILE_QUANTIZE;
    return !quantises || k->layout[k->launch->operand[0].tensor].rows > FEW_ROWS;
}

static void put_config(Sb *sb, const CudaKernel *k)
{
    int64_t cols = k->layout[k->launch->operand[0].tensor].cols;
    cuda_put_int(sb, "kT", k->row.threads_row);
    cuda_put_int(sb, "kV", k->row.run);
    cuda_put_int(sb, "kE", k->row.values);
    sb_line(sb, "static constexpr Edge kEdge = %s;", row_edge(k, cols));
    cuda_put_int(sb, "kGroups", k->row.groups);
    cuda_put_bool(sb, "kVaries", k->varies);
    cuda_put_int(sb, "kCols", cols);
    cuda_put_int(sb, "kTileCols", k->row.tile_cols);
    cuda_put_int(sb, "kLastCols", k->row.last_cols);
    cuda_put_int(sb, "kSweeps", k->row.sweeps);
    cuda_put_bool(sb, "kBackwards", k->span == SPAN_GIVEN);
    cuda_put_int(sb, "kScratchWords", k->row.scratch_words);
    cuda_put_bool(sb, "kPersistent", k->row.per_processor > 0);
    cuda_put_bool(sb, "kEarly", may_be_early(k));
    if (k->launch->skips) {
        cuda_put_int(sb, "kCounted", k->plan->tensor[k->launch->ends].dim[0].add);
        cuda_put_int(sb, "kOperandEnds", plan_launch_parameters(k->launch) - 1);
    }
}

static void put_parts(Sb *sb, const CudaKernel *k)
{
    const char *found = k->span == SPAN_GATHER ? "found" : "";
    sb_line(sb, "struct Program {");
    sb->indent = 4;
    if (k->row.sweeps) {
        cuda_emit_row_sweeps(sb, k, &k->launch->program, k->row.sweeps);
    } else {
        cuda_emit_program(sb, k, &k->launch->program, "steps");
        sb_line(sb, "template <class S> static __device__ __forceinline__ void row(");
        sb_line(sb, "    const Params &p, const Row<S> &row, int64_t m, Found &%s)", found);
        sb_line(sb, "{");
        sb_line(sb, "    steps(p, p.op[0], row, m, (const char *)0%s%s);", *found ? ", " : "",
                found);
        sb_line(sb, "}");
    }
    sb_line(sb, "static __device__ __forceinline__ void end(");
    sb_line(sb, "    const Params &p, const Found &found, int32_t *scratch)");
    sb_line(sb, "{");
    sb->indent += 4;
    if (*found)
        cuda_emit_gather_end(sb, k, &k->launch->program);
    sb->indent -= 4;
    sb_line(sb, "}");
    sb->indent = 0;
    sb_line(sb, "};");
}

static void describe(Sb *sb, const CudaKernel *k)
{
    sb_printf(sb, " %d threads a row of %lld columns", k->row.threads_row,
              (long long)k->row.tile_cols);
    if (k->span == SPAN_GATHER || k->span == SPAN_GIVEN)
        sb_put(sb, k->span == SPAN_GATHER ? ", finds ranges" : ", ranges known");
}

const CudaFamilyRow cuda_tile = {
    .launch = LAUNCH_TILE,
    .seed = 4,
    .slowness = 2,
    .shape = shape,
    .geometry = geometry,
    .predict = predict,
    .put_config = put_config,
    .put_parts = put_parts,
    .call = {"tile_rows<Cfg, Program>"},
    .describe = describe,
    .looks_ahead = true,
};
