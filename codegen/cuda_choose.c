/* codegen/cuda_choose: which family and tile runs a launch under one bucket. */
#include "codegen/cuda_target.h"

#include <stdarg.h>

#define SMEM_BUDGET    99328  /* dynamic shared memory that every target GPU gives a block */
#define SMEM_HOPPER    225280 /* .. and what an H200 gives one, where nothing smaller fits */
#define FEW_ROWS       8      /* up to here a product takes its prologue in */
#define STREAM_ROWS    16     /* up to here products stream their weights */
#define LOCAL_A_COLS   8192   /* longest row that a prologue inside a product makes */
#define ROW_COLS_LIMIT 32768  /* longest row that one block holds */

static void reject(const CudaKernel *k, const char *fmt, ...) PRINTF_LIKE(2, 3);

static void reject(const CudaKernel *k, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    sb_put(k->rejected, "not ");
    sb_vprintf(k->rejected, fmt, args);
    sb_putc(k->rejected, '\n');
    va_end(args);
}

static int64_t epilogue_group(const CudaKernel *k)
{
    int64_t most = 0;
    for (int i = 0; i < k->launch->num_segments; i++) {
        int64_t group = cuda_program_group(k, &k->launch->segment[i].epilogue);
        most = group > most ? group : most;
    }
    return most;
}

/* What the epilogue needs together lies inside the columns of one part of a tile. */
static bool epilogue_fits(const CudaKernel *k, int64_t part_cols)
{
    if (part_cols * k->spec.parts >= k->packed.rows)
        return true;
    for (int i = 0; i < k->launch->num_segments; i++) {
        const PlanSegment *s = &k->launch->segment[i];
        int64_t group = cuda_program_group(k, &s->epilogue);
        if (cuda_program_needs_row(k, &s->epilogue) ||
            (group && (part_cols % group || s->n_begin % group)))
            return false;
    }
    return true;
}

/* Row kernels ---------------------------------------------------------------------------------- */

static void row_shape(CudaKernel *k, int threads, int64_t cols)
{
    k->threads_row = threads;
    k->run = threads == 32 ? 8 : 1024 / threads;
    int64_t all = (int64_t)threads * k->run;
    k->values = (int)((cols + all - 1) / all) * k->run;
    k->groups = threads == 32 ? 4 : 1;
}

static void choose_tile(CudaKernel *k, const char **ret_problem)
{
    int64_t cols = k->layout[k->launch->operand[0].tensor].cols;
    int64_t group = cuda_program_group(k, &k->launch->program), tile = cols;
    if (!cuda_program_needs_row(k, &k->launch->program) && cols > 256)
        tile = group > 1024 ? group : group ? 1024 / group * group : 1024;
    if (tile > cols)
        tile = cols;
    if (tile < 1)
        tile = 1;
    if (tile > ROW_COLS_LIMIT)
        *ret_problem = "it needs whole rows of more than 32768 columns, more than one block of "
                       "threads holds";
    row_shape(k,
              tile <= 256     ? 32
              : tile <= 4096  ? 128
              : tile <= 8192  ? 256
              : tile <= 16384 ? 512
                              : 1024,
              tile);
    k->family = CUDA_TILE;
    k->tile_cols = tile;
    k->scratch_words = cuda_program_scratch(k, &k->launch->program, k->threads_row, tile);
}

/* Products ------------------------------------------------------------------------------------ */

static int64_t stage_bytes(const CudaKernel *k, int bm, int bn)
{
    return bm * 128 * (int64_t)(format_info[k->spec.act_fmt].bits / 8) +
           bn / 8 * 128 * (int64_t)format_info[k->spec.fmt].bits;
}

static int64_t tiles_of(const CudaKernel *k, int64_t rows, int bm, int bn)
{
    return (rows + bm - 1) / bm * ((k->packed.rows + bn - 1) / bn);
}

/* The tallest tile that the rows fill and registers and shared memory hold; narrower where the
 * grid would leave processors idle. */
static bool choose_mma(CudaKernel *k, int64_t rows, int64_t budget)
{
    static const int heights[] = {128, 64, 32};
    k->family = CUDA_GEMM_MMA;
    for (int bn = 128; bn >= 64; bn /= 2) {
        int wide = epilogue_group(k) * k->spec.parts > bn ? 256 : bn;
        if (!epilogue_fits(k, wide / k->spec.parts) || (wide == 256 && bn == 64)) {
            reject(k, "gemm_mma %d wide: a quantisation group or a row does not lie inside", bn);
            continue;
        }
        for (size_t i = 0; i < COUNT_OF(heights); i++) {
            int bm = heights[i];
            bool too_tall = bm > 32 && rows <= bm / 2;
            bool too_big = (k->spec.mainloop || wide > 128) && bm > (wide > 128 ? 32 : 64);
            int64_t staged = (int64_t)bm * (wide + 4) * 4;
            if (too_tall || too_big || staged > budget || 2 * stage_bytes(k, bm, wide) > budget) {
                reject(k, "gemm_mma %dx%d: %s", bm, wide,
                       too_tall  ? "less than half of its rows would be used"
                       : too_big ? "its sums and scaled sums exceed the registers"
                                 : "it exceeds the shared memory of a block");
                continue;
            }
            k->bm = bm;
            k->bn = wide;
            k->warps_m = bm == 32 ? 1 : 2;
            k->warps_n = wide == 64 ? 2 : 4;
            int64_t stages = budget / stage_bytes(k, bm, wide);
            k->stages = (int)(stages > 4 ? 4 : stages);
            if (bn == 64 || tiles_of(k, rows, bm, wide) >= 100 || wide > 128 ||
                !epilogue_fits(k, 64 / k->spec.parts) || rows > 1024)
                return true;
            reject(k, "gemm_mma %dx%d: only %lld blocks, most processors would idle", bm, wide,
                   (long long)tiles_of(k, rows, bm, wide));
            break;
        }
    }
    return k->bm > 0;
}

static bool choose_stream(CudaKernel *k, int64_t rows)
{
    bool ordered = k->packed.home == CUDA_HOME_I8 && k->spec.mainloop;
    int64_t group = epilogue_group(k), part = group > 32 ? group : 32;
    if (!epilogue_fits(k, part)) /* whole rows of few columns */
        part = (k->packed.rows / k->spec.parts + 31) / 32 * 32;
    int64_t blocks = part * k->spec.parts / 8;
    if (part % 32 || blocks > 64 || !epilogue_fits(k, part)) {
        reject(k,
               "stream: a quantisation group or a row does not lie inside the columns of a block");
        return false;
    }
    int units = format_info[k->spec.fmt].bits / 4;
    k->family = CUDA_STREAM;
    k->rows = rows <= 8 ? 8 : 16;
    /* powers of two: the threads of a block share the rows that a prologue makes */
    k->n_warps = 1;
    while (k->n_warps < 8 && blocks % (2 * k->n_warps) == 0 && (ordered || blocks / k->n_warps > 8))
        k->n_warps *= 2;
    k->n_blocks = (int)(blocks / k->n_warps);
    k->split_k = ordered ? 1 : 8 / k->n_warps > 0 ? 8 / k->n_warps : 1;
    k->batch = 16 / (k->n_blocks * units) > 0 ? 16 / (k->n_blocks * units) : 1;
    return true;
}

static bool choose_any(CudaKernel *k)
{
    k->family = CUDA_GEMM_ANY;
    for (k->bn = 64; k->bn <= 256; k->bn *= 2)
        if (epilogue_fits(k, k->bn / k->spec.parts))
            return true;
    return false;
}

/* A weight that another kernel computes lies in plain rows. */
static void rows_of_weight(CudaKernel *k)
{
    const PlanTensor *a = &k->plan->tensor[k->launch->a], *w = &k->plan->tensor[k->launch->w];
    const PlanLayout *l = &k->layout[k->launch->w];
    k->spec =
        (CudaPackSpec){.fmt = w->fmt, .act_fmt = a->fmt, .n = l->rows, .k = l->cols, .parts = 1};
    k->packed = (CudaPacked){
        .layout = CUDA_ROWS, .home = CUDA_HOME_F32, .rows = l->rows, .scale_blocks = 1};
}

static bool reads_aligned(const CudaKernel *k) /* rows of a start at multiples of 16 bytes */
{
    return k->layout[k->launch->a].pitch % 16 == 0 && k->layout[k->launch->a].at % 16 == 0;
}

/* Buckets of few rows take the prologue in; the others have it run before. */
static bool prologue_fits(const CudaKernel *k, const PlanLaunch *product)
{
    const PlanTensor *w = &k->plan->tensor[product->w];
    const PlanLayout *a = &k->layout[product->a];
    if (a->rows > FEW_ROWS || !w->packed || a->cols > LOCAL_A_COLS)
        return false;
    CudaPackSpec spec = plan_cuda_spec(&w->pack_spec);
    CudaPacked packed;
    return cuda_pack_plan(&spec, &packed) && packed.layout == CUDA_LANES &&
           a->pitch * FEW_ROWS < SMEM_BUDGET / 2 && a->pitch % 16 == 0;
}

/* Why a packed weight is not laid out for the tensor cores (cuda_pack_plan). */
static const char *no_lanes(const CudaKernel *k)
{
    if (k->packed.block_k % 32)
        return "a scale's block of K is no multiple of 32";
    if (k->spec.k * format_info[k->spec.act_fmt].bits / 8 % 16)
        return "rows of the activation are no multiple of 16 bytes";
    if (format_info[k->spec.fmt].family == FAMILY_INT &&
        format_info[k->spec.act_fmt].family == FAMILY_INT && k->spec.mainloop &&
        (k->spec.has_zero || k->spec.act_zero))
        return "integer zero points vary along K";
    return "no tensor core multiplies these formats exactly";
}

static void choose_gemm(CudaKernel *k, const char **ret_problem)
{
    const PlanTensor *w = &k->plan->tensor[k->launch->w];
    int64_t rows = k->layout[k->launch->a].rows;
    if (w->packed) {
        k->spec = plan_cuda_spec(&w->pack_spec);
        if (!cuda_pack_plan(&k->spec, &k->packed)) {
            *ret_problem = "the packed weight is too large";
            return;
        }
    } else {
        rows_of_weight(k);
    }
    if (k->packed.layout != CUDA_LANES) {
        reject(k, "stream, gemm_mma: %s", w->packed ? no_lanes(k) : "the weight is computed");
        if (!choose_any(k))
            *ret_problem = "its quantisation groups do not lie inside a tile";
        return;
    }
    if (!k->local_a && !reads_aligned(k))
        reject(k, "stream, gemm_mma: rows of the activation do not start at multiples of 16 bytes");
    else if (rows > STREAM_ROWS)
        reject(k, "stream: more than %d rows", STREAM_ROWS);
    else if (choose_stream(k, rows))
        return;
    if (reads_aligned(k) && !k->local_a &&
        (choose_mma(k, rows, SMEM_BUDGET) || choose_mma(k, rows, SMEM_HOPPER)))
        return;
    *ret_problem = "its quantisation groups do not lie inside a tile";
}

bool cuda_choose(CudaKernel *k, const CudaRole *role, const char **ret_problem)
{
    if (k->launch->family == LAUNCH_MOVE) {
        k->family = CUDA_MOVE;
        return true;
    }
    if (role->product >= 0) {
        if (prologue_fits(k, &k->plan->launch[role->product]) != role->few_rows)
            return false;
        k->local_a = role->few_rows;
    }
    if (k->launch->family == LAUNCH_TILE)
        choose_tile(k, ret_problem);
    else
        choose_gemm(k, ret_problem);
    return *ret_problem == NULL;
}
