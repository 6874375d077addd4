/* codegen/cuda/gemm_any: products of two computed tensors, of weights with a codebook of their own,
 * and of those that no tile has room for, on CUDA cores (kernels/cuda/gemm_any.cuh). */
#include "codegen/cuda/family.h"

#include <inttypes.h>

#define SUMS 4096  /* of a block */
#define RATE 8.0e6 /* operations a microsecond of the whole GPU */

static CudaTile tile(const CudaKernel *k)
{
    return (CudaTile){SUMS / k->any.bn, k->any.bn};
}

static CudaGeometry geometry(const CudaKernel *k)
{
    CudaTile t = tile(k);
    return (CudaGeometry){.blocks = cuda_ceil_div(cuda_most_rows(k), t.rows) *
                                    cuda_ceil_div(k->packed.rows, t.cols),
                          .block = 256};
}

static void candidates(CudaCandidates *c)
{
    CudaKernel k = c->like;
    k.family = CUDA_GEMM_ANY;
    for (k.any.bn = 64; k.any.bn <= 256; k.any.bn *= 2) {
        if (cuda_epilogue_fits(&k, k.any.bn / k.spec.parts))
            cuda_candidate_valid(c, &k);
        else
            cuda_candidate_reject(c, &k,
                                  "a quantisation group or a row does not lie inside its columns");
    }
}

static void put_numbers(Sb *sb, const CudaKernel *k)
{
    sb_printf(sb, "%dx%d", tile(k).rows, tile(k).cols);
}

static void put_codebook(Sb *sb, const CudaKernel *k)
{
    const CudaPackSpec *spec = &k->spec;
    int64_t block = spec->block_cols < spec->k ? spec->block_cols : 0;
    cuda_put_schemes(sb, k);
    cuda_put_scale_format(sb, k);
    cuda_put_bool(sb, "kWScales", k->packed.scales);
    cuda_put_int(sb, "kWBlockRows", spec->block_rows);
    cuda_put_int(sb, "kWBlockK", block);
    cuda_put_int(sb, "kGridCols", block ? cuda_ceil_div(spec->k, block) : 1);
    cuda_put_int(sb, "kPartRows", spec->n / spec->parts);
    sb_line(sb, "static constexpr int64_t kScaleAt = %" PRId64 ", kTableAt = %" PRId64 ";",
            k->packed.scale_at, k->packed.table_at);
    cuda_put_bool(sb, "kTableRows", spec->table == TABLE_ROW);
    cuda_put_bool(sb, "kTableGrid", spec->table == TABLE_BLOCK);
}

static void put_config(Sb *sb, const CudaKernel *k)
{
    bool codebook = k->packed.layout == CUDA_BITS;
    cuda_put_product(sb, k);
    cuda_put_bool(sb, "kVaries", k->varies);
    cuda_put_int(sb, "kBN", k->any.bn);
    cuda_put_int(sb, "kCols", k->any.bn / k->spec.parts);
    sb_line(sb, "static constexpr int64_t kWPitch = %" PRId64 ";",
            codebook ? k->packed.pitch : k->layout[k->launch->w].pitch);
    cuda_put_bool(sb, "kCodebook", codebook);
    if (codebook)
        put_codebook(sb, k);
}

static void describe(Sb *sb, const CudaKernel *k)
{
    sb_printf(sb, " %dx%d on CUDA cores%s", tile(k).rows, tile(k).cols,
              k->packed.layout == CUDA_BITS ? ", codes looked up one by one: slow" : "");
}

/* Two blocks fit on a processor. */
static double predict(const CudaKernel *k, const CudaGeometry *g)
{
    int64_t processors = k->gpu->processors;
    int64_t busiest = cuda_ceil_div(g->grid, processors);
    double tile_us = 2.0 * SUMS * (double)k->spec.k / (RATE / (double)processors);
    double us =
        (double)busiest * tile_us / (busiest > 1 ? 1 : CUDA_ALONE) * (1 + 0.001 * k->any.bn);
    double weights = cuda_weight_bytes(k) / CUDA_BANDWIDTH;
    return us > weights ? us : weights;
}

const CudaFamilyRow cuda_gemm_any = {
    .instruction = "fma of f32",
    .launch = LAUNCH_GEMM,
    .seed = 3,
    .slowness = 3,
    .min_blocks = 2,
    .layouts = 1 << CUDA_ROWS | 1 << CUDA_BITS,
    .candidates = candidates,
    .tile = tile,
    .put_numbers = put_numbers,
    .geometry = geometry,
    .predict = predict,
    .put_config = put_config,
    .call = {"gemm_any<Cfg, Epilogue>"},
    .describe = describe,
};
