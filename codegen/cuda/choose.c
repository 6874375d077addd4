/* codegen/cuda/choose: which family and tile runs a launch under one bucket. */
#include "codegen/cuda/choose.h"

#include <string.h>

#define FEW_ROWS       4     /* up to here a product takes its prologue in */
#define LOCAL_A_COLS   8192  /* longest row that a prologue inside a product makes */
#define LOCAL_A_BYTES  17408 /* of all its rows; more leave too little for weights on their way */
#define SHARED_A_ROWS  2     /* that a processor makes of the input of a product, at most */
#define SHARED_A_US    1.5   /* longer than with its input at hand, for each of them */
#define SHARED_A_HELD  32    /* values of a row that one thread holds meanwhile */
#define ROW_COLS_LIMIT 32768 /* longest row that one block holds */
#define ROW_REGISTERS  40    /* of a thread beside the columns that it holds */
#define SCRATCH_WORDS  11776 /* of a block's static shared memory, 48 KB with a reserve */
#define SLOWER_SHOWN   3     /* candidates that `explain` shows beside the fastest */
#define ROWS_MANY      1056  /* eight for each processor of an H200 */
#define SWEEP_THREADS  512   /* that go over a longer one .. */
#define SWEEP_TILE     8192  /* .. in so many columns at once */
#define GATHER_BLOCKS  1056  /* eight for each: they find ranges in row after row */

/* Row kernels ---------------------------------------------------------------------------------- */

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
static bool row_fits(const CudaKernel *k, int64_t tile, int threads)
{
    const PlanProgram *program = &k->launch->program;
    int registers = 65536 / threads < 255 ? 65536 / threads : 255;
    int64_t values = (tile + threads - 1) / threads, held = (values + 7) / 8 * 8 * threads;
    return ROW_REGISTERS + values * cuda_program_pressure(k, program) / 2 <= registers &&
           cuda_program_scratch(k, program, threads, held) <= SCRATCH_WORDS;
}

/* Threads that hold the tile, 0: their registers do not suffice. */
static int row_find_threads(const CudaKernel *k, int64_t tile, int64_t rows, bool sums)
{
    for (int values = row_values(tile, rows, sums); values >= 8; values /= 2) {
        int threads = row_threads(tile, values);
        if (row_fits(k, tile, threads))
            return threads;
    }
    return 0;
}

static void row_shape(CudaKernel *k, int64_t tile, int64_t rows, bool sums)
{
    int64_t cols = k->layout[k->launch->operand[0].tensor].cols;
    int threads = k->sweeps ? 0 : row_find_threads(k, tile, rows, sums);
    if (!threads)
        threads = k->sweeps ? SWEEP_THREADS : row_threads(tile, 16);
    k->threads_row = threads;
    k->run = cols % 8 != 0 && cols % 4 == 0 ? 4 : 8;
    if (sums && threads * k->run > 1024) /* the order of sums */
        k->run = 1024 / threads;
    int64_t all = (int64_t)threads * k->run, units = rows * ((cols + tile - 1) / tile);
    k->values = (int)((tile + all - 1) / all) * k->run;
    k->groups = threads > 32 ? 1 : units >= 8 * ROWS_MANY ? 8 : units >= 2 * ROWS_MANY ? 4 : 1;
    k->scratch_words =
        cuda_program_scratch(k, &k->launch->program, threads, all / k->run * k->values);
    while (k->groups > 1 && k->groups * k->scratch_words > SCRATCH_WORDS)
        k->groups /= 2;
}

/* Columns of a row that a sweep holds at once: whole turns of the order of sums, but in the last
 * one, which quantises, whole groups. */
static void sweep_tiles(CudaKernel *k, int64_t group)
{
    k->sweeps = cuda_program_reductions(k, &k->launch->program) + 1;
    int64_t tile = SWEEP_TILE;
    while (tile > 1024 && !row_fits(k, tile, SWEEP_THREADS))
        tile -= 1024;
    k->tile_cols = k->last_cols = tile;
    if (group)
        k->last_cols = group > tile ? group : tile / group * group;
}

static void choose_tile(CudaKernel *k, const char **ret_problem)
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
    k->tile_cols = k->last_cols = tile < 1 ? 1 : tile;
    if (whole && (tile > ROW_COLS_LIMIT || !row_find_threads(k, tile, l->rows, sums)))
        sweep_tiles(k, group);
    if (k->last_cols > ROW_COLS_LIMIT)
        *ret_problem = "it quantises in groups of more than 32768 columns, more than one block "
                       "of threads holds";
    k->family = CUDA_TILE;
    row_shape(k, k->tile_cols > k->last_cols ? k->tile_cols : k->last_cols, l->rows, sums);
    k->per_processor = k->span == SPAN_GATHER ? GATHER_BLOCKS : 0;
}

/* Products ------------------------------------------------------------------------------------ */

/* A weight that another kernel computes lies in plain rows. */
static void rows_of_weight(CudaKernel *k)
{
    const PlanTensor *a = &k->plan->tensor[k->launch->a], *w = &k->plan->tensor[k->launch->w];
    const PlanLayout *l = &k->layout[k->launch->w];
    k->spec =
        (CudaPackSpec){.fmt = w->fmt, .act_fmt = a->fmt, .n = l->rows, .k = l->cols, .parts = 1};
    k->packed = (CudaPacked){.layout = CUDA_ROWS, .home = CUDA_HOME_F32, .rows = l->rows};
}

static bool reads_aligned(const CudaKernel *k) /* rows of a start at multiples of 16 bytes */
{
    return k->layout[k->launch->a].pitch % 16 == 0 && k->layout[k->launch->a].at % 16 == 0;
}

/* The formats and layout of w. False: too large. */
static bool look_at_weight(CudaKernel *k)
{
    const PlanTensor *w = &k->plan->tensor[k->launch->w];
    if (!w->packed) {
        rows_of_weight(k);
        return true;
    }
    const PlanTensor *a = &k->plan->tensor[k->launch->a];
    k->spec = plan_cuda_spec(&w->pack_spec);
    if (!cuda_pack_plan(&k->spec, &k->packed))
        return false;
    if (a->quantised)
        cuda_pack_fold(&k->spec, a->scheme.scale_fmt, &k->packed);
    return true;
}

bool cuda_epilogue_runs(CudaKernel *k)
{
    if (!look_at_weight(k))
        return true; /* what is wrong is said later */
    for (int columns = 64; columns <= 256; columns *= 2)
        if (cuda_epilogue_fits(k, columns / k->spec.parts))
            return true;
    return false;
}

/* Buckets of few rows take the prologue in; the others have it run before. */
static bool prologue_fits(const CudaKernel *k, const PlanLaunch *product, Arena *arena,
                          const CudaPlanOptions *options)
{
    const PlanTensor *w = &k->plan->tensor[product->w];
    const PlanLayout *a = &k->layout[product->a];
    if (a->rows > FEW_ROWS || !w->packed || a->cols > LOCAL_A_COLS ||
        a->rows * a->pitch > LOCAL_A_BYTES)
        return false;
    CudaCandidates c;
    CudaKernel inside = *k;
    inside.launch = product;
    inside.local_a = true;
    inside.varies = plan_launch_varies(k->plan, product);
    if (!look_at_weight(&inside) || inside.packed.layout != CUDA_RECORDS || a->pitch % 16)
        return false;
    cuda_candidates(&c, arena, &inside, options);
    return c.num_valid > 0;
}

static void enumerate(CudaCandidates *c)
{
    const CudaKernel *k = &c->like;
    if (k->packed.layout == CUDA_PANELS) {
        if (!k->local_a && reads_aligned(k))
            cuda_candidates_hopper(c);
        return;
    }
    if (k->packed.layout != CUDA_RECORDS) {
        cuda_candidates_any(c);
        return;
    }
    if (k->local_a || reads_aligned(k))
        cuda_candidates_stream(c);
    if (!k->local_a && reads_aligned(k))
        cuda_candidates_mma(c);
}

static const TimingRow *measured(const CudaCandidates *c, const CudaCandidate *at,
                                 const Timings *timings, TimingSource *ret)
{
    Sb word;
    sb_init(&word, c->arena);
    cuda_candidate_put(&word, &at->kernel);
    return timings_find(timings, c->problem, c->rows, word.text, ret);
}

/* Measured times where a table has them, also those of older device code: they are closer than a
 * prediction. What failed when it was measured cannot run, unless everything failed or the code is
 * another one now. */
static void look_up(CudaCandidates *c, const Timings *timings)
{
    int num_failed = 0;
    for (int i = 0; i < c->list.num; i++) {
        CudaCandidate *at = &c->list.elem[i];
        if (at->reason)
            continue;
        at->us = at->predicted = cuda_cost(&at->kernel);
        const TimingRow *row =
            timings && timings->gpu ? measured(c, at, timings, &at->source) : NULL;
        at->old = row && row->old && row->us > 0;
        if (!row || (row->old && row->us < 0))
            at->source = TIMING_MODEL;
        else if (row->us > 0)
            at->us = row->us;
        else
            at->failed = row->note[0] ? row->note : "for no known reason";
        num_failed += at->failed != NULL;
    }
    for (int i = 0; i < c->list.num && num_failed < c->num_valid; i++)
        if (c->list.elem[i].failed)
            c->list.elem[i].reason = arena_printf(c->arena, "it failed when it was measured: %s",
                                                  c->list.elem[i].failed);
}

/* Leaves only one family, where it has a valid candidate. */
static void keep_family(CudaCandidates *c, CudaFamily family)
{
    int num = 0;
    for (int i = 0; i < c->list.num; i++)
        num += !c->list.elem[i].reason && c->list.elem[i].kernel.family == family;
    for (int i = 0; i < c->list.num && num; i++)
        if (!c->list.elem[i].reason && c->list.elem[i].kernel.family != family)
            c->list.elem[i].reason = "another family is asked for";
    c->num_valid = num ? num : c->num_valid;
}

void cuda_candidates(CudaCandidates *c, Arena *arena, const CudaKernel *k,
                     const CudaPlanOptions *options)
{
    *c = (CudaCandidates){.arena = arena,
                          .like = *k,
                          .problem = cuda_problem(arena, k),
                          .rows = k->layout[k->launch->a].rows,
                          .budget = cuda_smem(k->gpu)};
    enumerate(c);
    if (options->family)
        keep_family(c, *options->family);
    look_up(c, options->timings);
}

/* Before every one that was only predicted stand those that were measured. */
static bool is_faster(const CudaCandidate *a, const CudaCandidate *b)
{
    bool a_known = a->source != TIMING_MODEL, b_known = b->source != TIMING_MODEL;
    if (a_known != b_known)
        return a_known;
    return a->us < b->us || (a->us == b->us && a < b); /* elements of one list */
}

/* The fastest valid candidate after `than`; -1: none. */
static int next_best(const CudaCandidates *c, const CudaCandidate *than)
{
    int best = -1;
    for (int i = 0; i < c->list.num; i++) {
        const CudaCandidate *at = &c->list.elem[i];
        if (!at->reason && (!than || is_faster(than, at)) &&
            (best < 0 || is_faster(at, &c->list.elem[best])))
            best = i;
    }
    return best;
}

int cuda_candidates_best(const CudaCandidates *c)
{
    return next_best(c, NULL);
}

/* Families that no candidate of the list is of, in one line. */
static void say_absent(const CudaKernel *k)
{
    if (k->packed.layout == CUDA_PANELS)
        sb_put(k->rejected, "not stream, gemm_mma: the weight lies as panels\n");
    else if (k->packed.layout != CUDA_RECORDS)
        sb_put(k->rejected, "not stream, gemm_mma: the weight is computed\n");
    else if (!k->local_a && !reads_aligned(k))
        sb_put(k->rejected, "not stream, gemm_mma: rows of the activation do not start at "
                            "multiples of 16 bytes\n");
    else if (k->local_a)
        sb_put(k->rejected, "not gemm_mma: its input is made inside\n");
}

static bool same_reason(const CudaCandidate *a, const CudaCandidate *b)
{
    return b->reason && a->kernel.family == b->kernel.family && !strcmp(a->reason, b->reason);
}

/* One line for all of a family that the same keeps from running, where its first one stands. */
static void say_rejected(const CudaCandidates *c, int first)
{
    const CudaCandidate *list = c->list.elem;
    Sb *sb = c->like.rejected;
    for (int i = 0; i < first; i++)
        if (same_reason(&list[first], &list[i]))
            return;
    sb_put(sb, "not ");
    cuda_candidate_put(sb, &list[first].kernel);
    for (int i = first + 1; i < c->list.num; i++)
        if (same_reason(&list[first], &list[i])) {
            sb_put(sb, ", ");
            cuda_candidate_put_numbers(sb, &list[i].kernel);
        }
    sb_printf(sb, ": %s\n", list[first].reason);
}

/* What was not taken: the next fastest, then what cannot run. */
static void say_others(const CudaCandidates *c, int chosen)
{
    Sb *sb = c->like.rejected;
    say_absent(&c->like);
    int at = chosen;
    for (int i = 0; i < SLOWER_SHOWN && at >= 0; i++) {
        at = next_best(c, &c->list.elem[at]);
        if (at < 0)
            break;
        sb_put(sb, "not ");
        cuda_candidate_put(sb, &c->list.elem[at].kernel);
        sb_printf(sb, ": %.1f us%s\n", c->list.elem[at].us,
                  c->list.elem[at].source == c->list.elem[chosen].source ? "" : " [cost model]");
    }
    for (int i = 0; i < c->list.num; i++)
        if (c->list.elem[i].reason)
            say_rejected(c, i);
}

static void choose_gemm(CudaKernel *k, Arena *arena, const CudaPlanOptions *options,
                        CudaChoice *ret, const char **ret_problem)
{
    CudaCandidates c;
    if (!look_at_weight(k)) {
        *ret_problem = "the packed weight is too large";
        return;
    }
    cuda_candidates(&c, arena, k, options);
    int best = cuda_candidates_best(&c);
    if (best < 0) {
        *ret_problem = "its quantisation groups do not lie inside a tile";
        return;
    }
    say_others(&c, best);
    ret->us = c.list.elem[best].us;
    ret->source = c.list.elem[best].source;
    ret->old = c.list.elem[best].old;
    ret->predicted = c.list.elem[best].predicted;
    *k = c.list.elem[best].kernel;
    if (options->visit)
        options->visit(options->user, &c);
}

/* The kernel `best` of a product with the prologue of `inside`, whose rows its blocks make
 * together. */
static bool with_prologue(CudaKernel *best, const PlanLaunch *inside, int64_t smem)
{
    int threads = 32 * best->warps_m * best->warps_n;
    int64_t rows = best->layout[inside->a].rows, grid = cuda_geometry(best).grid;
    if (best->family != CUDA_GEMM_MMA || best->varies || threads < 128 ||
        best->spec.k > threads * SHARED_A_HELD ||
        rows > SHARED_A_ROWS * (grid < best->gpu->processors ? grid : best->gpu->processors))
        return false;
    best->launch = inside;
    best->shared_a = true;
    return cuda_geometry(best).smem + 4 * cuda_local_scratch(best) <= smem;
}

/* Of the product's candidates the fastest that can take the prologue in; -1: none is faster than
 * the row kernel and then the product alone. */
static int best_with_prologue(const CudaCandidates *c, const CudaKernel *row,
                              const PlanLaunch *inside, int64_t smem, CudaKernel *ret,
                              double *ret_us)
{
    int first = next_best(c, NULL);
    double apart = first < 0 ? 0 : c->list.elem[first].us + cuda_cost(row);
    for (int at = first; at >= 0; at = next_best(c, &c->list.elem[at])) {
        *ret = c->list.elem[at].kernel;
        if (c->list.elem[at].source == TIMING_MODEL && c->list.elem[first].source != TIMING_MODEL)
            return -1; /* a prediction and a measured time do not compare */
        if (!with_prologue(ret, inside, smem))
            continue;
        int64_t grid = cuda_geometry(ret).grid;
        int64_t makers = grid < ret->gpu->processors ? grid : ret->gpu->processors;
        *ret_us = c->list.elem[at].us + SHARED_A_US * (double)((c->rows + makers - 1) / makers);
        return *ret_us < apart ? at : -1;
    }
    return -1;
}

/* Takes the prologue into a gemm_mma where that is faster than a launch of its own. The launch of
 * both stands before those of the prologue and of the product (put_gemm). */
static bool shares_prologue(CudaKernel *k, const CudaRole *role, Arena *arena,
                            const CudaPlanOptions *options, CudaChoice *ret)
{
    CudaCandidates c;
    CudaKernel product = *k, row = *k, fused;
    const char *problem = NULL;
    double us;
    row.launch = &k->plan->launch[role->product + 1];
    product.launch = &k->plan->launch[role->product + 2];
    choose_tile(&row, &problem);
    if (problem || !look_at_weight(&product))
        return false;
    cuda_candidates(&c, arena, &product, options);
    int best = best_with_prologue(&c, &row, &k->plan->launch[role->product], cuda_smem(k->gpu),
                                  &fused, &us);
    if (best < 0)
        return false;
    if (!role->few_rows)
        return true;
    say_others(&c, best);
    ret->us = us;
    ret->source = c.list.elem[best].source;
    ret->old = c.list.elem[best].old;
    ret->predicted = c.list.elem[best].predicted;
    if (options->visit)
        options->visit(options->user, &c);
    *k = fused;
    return true;
}

bool cuda_choose(CudaKernel *k, const CudaRole *role, Arena *arena, const CudaPlanOptions *options,
                 CudaChoice *ret, const char **ret_problem)
{
    if (role->product >= 0) {
        bool fits = prologue_fits(k, &k->plan->launch[role->product], arena, options);
        if (!fits && shares_prologue(k, role, arena, options, ret))
            return role->few_rows;
        if (fits != role->few_rows)
            return false;
        k->local_a = role->few_rows;
    }
    if (k->launch->family == LAUNCH_GEMM) {
        choose_gemm(k, arena, options, ret, ret_problem);
        return *ret_problem == NULL;
    }
    if (k->launch->family == LAUNCH_TILE)
        choose_tile(k, ret_problem);
    else
        k->family = CUDA_MOVE;
    ret->us = ret->predicted = *ret_problem ? 0 : cuda_cost(k);
    return *ret_problem == NULL;
}
