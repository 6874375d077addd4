/* codegen/cuda/gemm_pair: products of two computed tensors on tensor cores
 * (kernels/cuda/gemm_pair.cuh). */
#include "codegen/cuda/family.h"

#include <inttypes.h>
#include <math.h>

#define ROW_BYTES    128 /* of a stage, of either operand */
#define LEAST_STAGES 2
#define PIPELINE     (64 << 10) /* bytes of a ring that hides what a block waits for */
#define MOST_STAGES  6
#define MOST_GROUPS  4    /* that share K .. */
#define LEAST_STEPS  4    /* .. stages that each has, at least */
#define GROUPED_SUMS 2048 /* .. of a tile, at most */
#define WIDE_SUMS    32   /* of a thread, at most, beside what f32 in pieces takes */

/* Sizes of kernels ----------------------------------------------------------------------------- */

static int element_bytes(FormatId fmt)
{
    return format_info[fmt].bits / 8;
}

static bool in_pieces(const CudaKernel *k)
{
    return k->spec.fmt == FMT_F32;
}

static int stage_k(const CudaKernel *k)
{
    return ROW_BYTES / element_bytes(k->spec.fmt);
}

static int64_t stage_bytes(const CudaKernel *k)
{
    return (int64_t)(k->pair.bm + k->pair.bn) * ROW_BYTES;
}

static CudaTile tile(const CudaKernel *k)
{
    return (CudaTile){k->pair.bm, k->pair.bn};
}

static CudaGeometry geometry(const CudaKernel *k)
{
    int64_t ring = stage_bytes(k) * k->pair.stages;
    int64_t staged = k->pair.bm * (k->pair.bn + INT64_C(8)) * 4;
    int groups = k->pair.groups;
    return (CudaGeometry){.blocks = cuda_ceil_div(k->layout[k->launch->a].rows, k->pair.bm) *
                                    cuda_ceil_div(k->packed.rows, k->pair.bn),
                          .block = 32 * k->pair.warps_m * k->pair.warps_n * groups,
                          .smem = groups * (staged > ring ? staged : ring)};
}

/* Candidates ----------------------------------------------------------------------------------- */

static bool takes(const CudaPackSpec *spec)
{
    return spec->fmt == spec->act_fmt &&
           (spec->fmt == FMT_F32 || spec->fmt == FMT_F16 || spec->fmt == FMT_BF16);
}

static int num_sums(const CudaKernel *k) /* of a thread */
{
    return k->pair.bm / k->pair.warps_m * (k->pair.bn / k->pair.warps_n) / 32;
}

static const char *tile_problem(const CudaCandidates *c, const CudaKernel *k)
{
    if (k->packed.home == CUDA_HOME_BF16 && k->gpu->from < 80)
        return "its tensor cores multiply no bf16";
    if (!cuda_epilogue_fits(k, k->pair.bn))
        return "a quantisation group or a row does not lie inside its columns";
    if ((in_pieces(k) || cuda_adds_apart(k)) && num_sums(k) > WIDE_SUMS)
        return "its sums and those of a step beside them exceed the registers";
    if (k->pair.bm > 32 && c->rows <= k->pair.bm / 2)
        return "less than half of its rows would be used";
    return geometry(k).smem > cuda_room(c, k) ? "it exceeds the shared memory of a block" : NULL;
}

static int64_t num_stages(const CudaKernel *k) /* along K, of a group */
{
    return cuda_ceil_div(k->spec.k, (int64_t)stage_k(k) * k->pair.groups);
}

/* Stages that hide what a block waits for, or as many as fit or as K has. */
static void fill_ring(const CudaCandidates *c, CudaKernel *k)
{
    int64_t bytes = stage_bytes(k) * k->pair.groups, room = cuda_room(c, k);
    for (k->pair.stages = LEAST_STAGES;
         k->pair.stages < MOST_STAGES && k->pair.stages < num_stages(k) &&
         (k->pair.stages + 1) * bytes <= room &&
         (k->pair.stages < 3 || (k->pair.stages + 1) * bytes <= PIPELINE);)
        k->pair.stages++;
}

static void put_tile(CudaCandidates *c, CudaGemmPair pair)
{
    CudaKernel k = c->like;
    k.family = CUDA_GEMM_PAIR;
    k.packed.home = k.spec.fmt == FMT_F16 ? CUDA_HOME_F16 : CUDA_HOME_BF16;
    k.pair = pair;
    fill_ring(c, &k);
    const char *problem = tile_problem(c, &k);
    if (problem)
        cuda_candidate_reject(c, &k, "%s", problem);
    else
        cuda_candidate_valid(c, &k);
}

/* Groups share K where tiles are small, so that few of them keep processors busy. */
static void candidates(CudaCandidates *c)
{
    static const CudaGemmPair tiles[] = {{128, 128, 2, 4, 1, 0}, {128, 64, 4, 2, 1, 0},
                                         {64, 64, 2, 2, 1, 0},   {64, 32, 4, 1, 1, 0},
                                         {32, 128, 1, 4, 1, 0},  {32, 32, 2, 2, 1, 0}};
    for (size_t i = 0; i < COUNT_OF(tiles); i++)
        for (int groups = 1; groups <= MOST_GROUPS; groups *= 2) {
            CudaGemmPair pair = tiles[i];
            int64_t steps = cuda_ceil_div(c->like.spec.k, (int64_t)stage_k(&c->like) * groups);
            pair.groups = groups;
            if (groups == 1 || (steps >= LEAST_STEPS && pair.bm * pair.bn <= GROUPED_SUMS))
                put_tile(c, pair);
        }
}

static void put_numbers(Sb *sb, const CudaKernel *k)
{
    sb_printf(sb, "%dx%d", k->pair.bm, k->pair.bn);
    if (k->pair.stages)
        sb_printf(sb, " s%d k%d", k->pair.stages, k->pair.groups);
}

static bool put_order(Sb *sb, const CudaKernel *k)
{
    if (cuda_adds_apart(k))
        sb_put(sb, " promoted");
    if (k->pair.groups > 1)
        sb_printf(sb, " in %d interleaved parts of K", k->pair.groups);
    return true;
}

/* Text ----------------------------------------------------------------------------------------- */

static void put_config(Sb *sb, const CudaKernel *k)
{
    cuda_put_product(sb, k);
    cuda_put_bool(sb, "kVaries", k->varies);
    cuda_put_int(sb, "kBM", k->pair.bm);
    cuda_put_int(sb, "kBN", k->pair.bn);
    cuda_put_int(sb, "kBK", stage_k(k));
    cuda_put_int(sb, "kCols", k->pair.bn);
    cuda_put_int(sb, "kWarpsM", k->pair.warps_m);
    cuda_put_int(sb, "kWarpsN", k->pair.warps_n);
    cuda_put_int(sb, "kGroups", k->pair.groups);
    cuda_put_int(sb, "kStages", k->pair.stages);
    sb_line(sb, "static constexpr int64_t kWPitch = %" PRId64 ";", k->layout[k->launch->w].pitch);
    cuda_put_int(sb, "kSmemBytes", geometry(k).smem);
}

static void describe(Sb *sb, const CudaKernel *k)
{
    sb_printf(sb, " %dx%d, %dx%d warps, %d stages of %d", k->pair.bm, k->pair.bn, k->pair.warps_m,
              k->pair.warps_n, k->pair.stages, stage_k(k));
    if (k->pair.groups > 1)
        sb_printf(sb, ", K over %d groups of warps", k->pair.groups);
    sb_printf(sb, "%s%s", cuda_multiplied_by(k), in_pieces(k) ? " in pieces" : "");
}

/* Time ----------------------------------------------------------------------------------------- */

#define SHARED_SM    232448
#define MOST_THREADS 1024 /* of a processor, by the registers that they take */
#define START        1.0  /* us of a block beside its stages */
#define STAGE        0.42 /* us from one stage to the next, of f32 twice that */
#define RATE         5e8  /* multiplications and additions a microsecond of the whole GPU */
#define WARPS        5.5  /* that reach half of what endless many would */
#define EPILOGUE     1e-4 /* us for each sum of a tile */
#define PIECES       8.0  /* products for one of f32, and what making pieces takes */

/* Narrow tiles read more for each product. */
static double predict(const CudaKernel *k, const CudaGeometry *g)
{
    int64_t processors = k->gpu->processors, busiest = cuda_ceil_div(g->grid, processors);
    int64_t by_memory = SHARED_SM / (g->smem + 1024), by_threads = MOST_THREADS / g->block;
    int64_t most = by_memory < by_threads ? by_memory : by_threads;
    int64_t together = busiest < most ? busiest : most < 1 ? 1 : most;
    double warps = (double)together * g->block / 32, pieces = in_pieces(k) ? PIECES : 1;
    double busy = warps / (warps + WARPS) * (8 + WARPS) / 8;
    double rate =
        RATE / (double)processors * busy / (1 + 24.0 / k->pair.bm + 24.0 / k->pair.bn) / pieces;
    double work = (double)busiest * 2.0 * k->pair.bm * k->pair.bn * (double)k->spec.k / rate;
    double wait = (double)cuda_ceil_div(busiest, together) *
                  (START + STAGE * (in_pieces(k) ? 2 : 1) * (double)num_stages(k));
    double read = cuda_weight_bytes(k) / CUDA_L2_RATE;
    double ends = (double)busiest * EPILOGUE * k->pair.bm * k->pair.bn / busy;
    double slowest = work > wait ? work : wait;
    return (slowest > read ? slowest : read) + ends;
}

const CudaFamilyRow cuda_gemm_pair = {
    .instruction = "mma.sync",
    .launch = LAUNCH_GEMM,
    .seed = 7,
    .slowness = 4,
    .min_blocks = 1,
    .layouts = 1 << CUDA_ROWS,
    .takes = takes,
    .candidates = candidates,
    .tile = tile,
    .put_numbers = put_numbers,
    .put_order = put_order,
    .many_rows = cuda_always,
    .geometry = geometry,
    .predict = predict,
    .put_config = put_config,
    .call = {"gemm_pair<Cfg, Epilogue>"},
    .describe = describe,
};
