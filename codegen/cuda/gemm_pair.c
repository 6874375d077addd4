/* codegen/cuda/gemm_pair: products of two computed tensors on tensor cores
 * (kernels/cuda/gemm_pair.cuh). */
#include "codegen/cuda/family.h"

#include <inttypes.h>
#include <math.h>

#define ROW_BYTES    128 /* of a stage, of either operand */
#define LEAST_STAGES 2
#define PIPELINE     (64 << 10) /* bytes of a ring that hides what a block waits for */
#define MOST_STAGES  6
#define WIDE_SUMS    32 /* of a thread, at most, beside what f32 in pieces takes */

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
    int64_t ring = stage_bytes(k) * k->pair.stages, staged = k->pair.bm * (k->pair.bn + 8) * 4;
    return (CudaGeometry){.blocks = cuda_ceil_div(k->layout[k->launch->a].rows, k->pair.bm) *
                                    cuda_ceil_div(k->packed.rows, k->pair.bn),
                          .block = 32 * k->pair.warps_m * k->pair.warps_n,
                          .smem = staged > ring ? staged : ring};
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
    if (in_pieces(k) && num_sums(k) > WIDE_SUMS)
        return "its sums and the pieces of its operands exceed the registers";
    if (k->pair.bm > 32 && c->rows <= k->pair.bm / 2)
        return "less than half of its rows would be used";
    return geometry(k).smem > cuda_room(c, k) ? "it exceeds the shared memory of a block" : NULL;
}

/* Stages that hide what a block waits for, or as many as fit. */
static void fill_ring(const CudaCandidates *c, CudaKernel *k)
{
    int64_t bytes = stage_bytes(k), room = cuda_room(c, k);
    for (k->pair.stages = LEAST_STAGES;
         k->pair.stages < MOST_STAGES && (k->pair.stages + 1) * bytes <= room &&
         (k->pair.stages < 3 || (k->pair.stages + 1) * bytes <= PIPELINE);)
        k->pair.stages++;
}

static void candidates(CudaCandidates *c)
{
    static const struct {
        int bm, bn, warps_m, warps_n;
    } tiles[] = {{128, 128, 2, 4}, {128, 64, 4, 2}, {64, 64, 2, 2},
                 {64, 32, 4, 1},   {32, 128, 1, 4}, {32, 32, 2, 2}};
    CudaKernel k = c->like;
    k.family = CUDA_GEMM_PAIR;
    k.packed.home = k.spec.fmt == FMT_F16 ? CUDA_HOME_F16 : CUDA_HOME_BF16;
    for (size_t i = 0; i < COUNT_OF(tiles); i++) {
        k.pair = (CudaGemmPair){.bm = tiles[i].bm,
                                .bn = tiles[i].bn,
                                .warps_m = tiles[i].warps_m,
                                .warps_n = tiles[i].warps_n};
        fill_ring(c, &k);
        const char *problem = tile_problem(c, &k);
        if (problem)
            cuda_candidate_reject(c, &k, "%s", problem);
        else
            cuda_candidate_valid(c, &k);
    }
}

static void put_numbers(Sb *sb, const CudaKernel *k)
{
    sb_printf(sb, "%dx%d s%d", k->pair.bm, k->pair.bn, k->pair.stages);
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
    cuda_put_int(sb, "kStages", k->pair.stages);
    sb_line(sb, "static constexpr int64_t kWPitch = %" PRId64 ";", k->layout[k->launch->w].pitch);
    cuda_put_int(sb, "kSmemBytes", geometry(k).smem);
}

static void describe(Sb *sb, const CudaKernel *k)
{
    sb_printf(sb, " %dx%d, %dx%d warps, %d stages of %d%s%s", k->pair.bm, k->pair.bn,
              k->pair.warps_m, k->pair.warps_n, k->pair.stages, stage_k(k), cuda_multiplied_by(k),
              in_pieces(k) ? " in pieces" : "");
}

/* Time ----------------------------------------------------------------------------------------- */

#define START    1.0  /* us of a block beside its stages */
#define STAGE    0.06 /* us from one stage to the next, at least */
#define RATE     5e8  /* multiplications and additions a microsecond of the whole GPU */
#define WARPS    5.5  /* that reach half of what endless many would */
#define AT_ONCE  2    /* blocks of a processor */
#define EPILOGUE 1e-4 /* us for each sum of a tile */
#define PIECES   8.0  /* products for one of f32, and what making pieces takes */

/* Narrow tiles read more for each product. */
static double predict(const CudaKernel *k, const CudaGeometry *g)
{
    int64_t processors = k->gpu->processors, busiest = cuda_ceil_div(g->grid, processors);
    int64_t together = busiest < AT_ONCE ? busiest : AT_ONCE;
    double warps = (double)together * g->block / 32;
    double busy = warps / (warps + WARPS) * (8 + WARPS) / 8;
    double rate = RATE / (double)processors * busy / (1 + 24.0 / k->pair.bm + 24.0 / k->pair.bn) /
                  (in_pieces(k) ? PIECES : 1);
    double work = (double)busiest * 2.0 * k->pair.bm * k->pair.bn * (double)k->spec.k / rate;
    double wait = (double)cuda_ceil_div(busiest, together) *
                  (START + STAGE * ceil((double)k->spec.k / stage_k(k)));
    double ends = (double)busiest * EPILOGUE * k->pair.bm * k->pair.bn;
    double read = cuda_weight_bytes(k) / CUDA_L2_RATE;
    double most = work > wait ? work : wait;
    return (most > read ? most : read) + ends;
}

const CudaFamilyRow cuda_gemm_pair = {
    .instruction = "mma.sync",
    .launch = LAUNCH_GEMM,
    .seed = 7,
    .slowness = 4,
    .layouts = 1 << CUDA_ROWS,
    .takes = takes,
    .candidates = candidates,
    .tile = tile,
    .put_numbers = put_numbers,
    .geometry = geometry,
    .predict = predict,
    .put_config = put_config,
    .call = {"gemm_pair<Cfg, Epilogue>"},
    .describe = describe,
};
