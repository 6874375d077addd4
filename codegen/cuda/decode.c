/* codegen/cuda/decode: weights that a launch of their own decodes (kernels/cuda/decode.cuh), so
 * that a product of many rows reads them as panels of a format that its instruction multiplies:
 * which weights, to what, and the launch. */
#include "codegen/cuda/family.h"

#include <inttypes.h>
#include <string.h>

#define THREADS 256

/* What weights become -------------------------------------------------------------------------- */

static bool is_codebook(const CudaPackSpec *spec)
{
    return format_info[spec->fmt].family == FAMILY_CODEBOOK || spec->table;
}

/* Codes that bf16 holds times powers of two, or 4 bits times 4. */
static bool has_exact_scales(const CudaPackSpec *spec)
{
    return spec->scale_fmt == FMT_E8M0 ||
           (format_info[spec->fmt].bits == 4 && spec->scale_fmt == FMT_E4M3);
}

/* Scales are multiplied into the codes of a bf16. */
static bool is_scaled(const CudaPackSpec *spec, FormatId to)
{
    return to == FMT_BF16 && spec->mainloop && spec->scale_fmt != FMT_NONE;
}

/* Rounding them leaves room for bf16 results alone, and for these where errors under one scale do
 * not add up (docs/numerics.md). */
static bool may_round(const CudaKernel *k, int64_t block)
{
    int64_t most = is_codebook(&k->spec) ? 64 : 256;
    return block && block <= most && k->spec.scale_fmt != FMT_E8M0 && cuda_results_are_coarse(k);
}

/* The format that the weight's codes become, FMT_NONE where there is none: eight neighbours, which
 * a lane decodes, have one scale. */
static FormatId decoded_format(const CudaKernel *k)
{
    const CudaPackSpec *spec = &k->spec;
    const FormatInfo *w = &format_info[spec->fmt], *act = &format_info[spec->act_fmt];
    int64_t block = spec->block_cols < spec->k ? spec->block_cols : 0;
    bool codebook = is_codebook(spec);
    if (!cuda_in_records(k->packed.layout) || w->bits > 8 || (spec->mainloop && block % 8))
        return FMT_NONE;
    if (spec->act_fmt == FMT_BF16) {
        bool exact = !codebook && (!is_scaled(spec, FMT_BF16) || has_exact_scales(spec));
        return exact || may_round(k, block) ? FMT_BF16 : FMT_NONE;
    }
    if (codebook || (spec->mainloop && act->bits > 8))
        return FMT_NONE;
    if (spec->act_fmt == FMT_F16)
        return FMT_F16;
    if (w->bits != 4 || act->bits != 8)
        return FMT_NONE;
    if (act->family == FAMILY_MINIFLOAT)
        return FMT_E4M3;
    return k->packed.home == CUDA_HOME_I8 ? FMT_I8 : FMT_NONE;
}

/* The tensor of a weight that is decoded to a format; false: it is too large. */
static bool decoded_to(const PlanTensor *weight, FormatId to, const CudaPacked *from,
                       PlanTensor *ret)
{
    CudaPacked packed;
    CpuPackSpec *spec = &ret->pack_spec;
    *ret = *weight;
    ret->fmt = spec->fmt = to;
    ret->quantised = ret->is_static = false;
    ret->scheme = (Scheme){0};
    ret->params = -1;
    ret->storage = STORAGE_ARENA;
    ret->index = -1;
    spec->layout = CUDA_PANELS;
    spec->table = TABLE_NONE;
    spec->factor_cols = 0;
    spec->has_zero = spec->has_zero && !from->zeros;
    if (format_info[to].bits == 16) { /* nothing is left for the main loop */
        spec->mainloop = false;
        spec->scale_fmt = FMT_NONE;
        spec->block_rows = spec->block_cols = spec->act_block_cols = 0;
    } else if (spec->mainloop) {
        spec->scale_fmt = FMT_F32;
    }
    CudaPackSpec cuda = plan_cuda_spec(spec);
    bool fits = cuda_pack_plan(&cuda, &packed);
    ret->bytes = packed.bytes;
    return fits;
}

/* What a product's weight is decoded to; false: it is not. */
static bool decoded(const CudaKernel *k, PlanTensor *ret)
{
    FormatId to = decoded_format(k);
    return to != FMT_NONE && decoded_to(&k->plan->tensor[k->launch->w], to, &k->packed, ret);
}

bool cuda_decoded_exactly(const PlanTensor *weight, PlanTensor *ret)
{
    CudaPacked packed;
    CudaPackSpec spec = plan_cuda_spec(&weight->pack_spec);
    int64_t block = spec.block_cols < spec.k ? spec.block_cols : 0;
    if (!weight->packed || !cuda_in_records(spec.layout) || !spec.mainloop || is_codebook(&spec) ||
        format_info[spec.fmt].bits > 8 || block % 8 ||
        (spec.scale_fmt != FMT_NONE && !has_exact_scales(&spec)) || !cuda_pack_plan(&spec, &packed))
        return false;
    bool fits = decoded_to(weight, FMT_BF16, &packed, ret);
    ret->pack_spec.act_fmt = FMT_BF16;
    return fits;
}

bool cuda_decoded(const CudaDraft *d, int weight, PlanTensor *ret)
{
    int num = 0;
    for (int i = 0; i < d->plan->num_launches; i++) {
        const PlanLaunch *l = &d->plan->launch[i];
        CudaKernel k = {.gpu = d->options->gpu, .plan = d->plan, .launch = l, .layout = d->layout};
        if (l->family != LAUNCH_GEMM || l->w != weight)
            continue;
        k.spec = plan_cuda_spec(&d->plan->tensor[weight].pack_spec);
        if (d->role[i].invariant || d->role[i].fused || l->grouped ||
            !cuda_pack_plan(&k.spec, &k.packed) || !decoded(&k, ret))
            return false;
        num++;
    }
    return num > 0 && cuda_family_serves(CUDA_DECODE, d->options->gpu);
}

/* The launch ----------------------------------------------------------------------------------- */

/* Beside an activation that is held as bf16 (held.c) the home is another than the weight was packed
 * for, in which its codes lie alike. */
static void shape(CudaKernel *k, const char **ret_problem)
{
    FormatId act = plan_cuda_spec(&k->plan->tensor[k->launch->dst].pack_spec).act_fmt;
    k->spec = plan_cuda_spec(&k->plan->tensor[k->launch->src].pack_spec);
    if (!cuda_pack_plan(&k->spec, &k->packed))
        *ret_problem = "the packed weight is too large";
    if (act == k->spec.act_fmt)
        return;
    k->packed.home = CUDA_HOME_BF16;
}

static CudaPackSpec panels_of(const CudaKernel *k, CudaPacked *ret)
{
    CudaPackSpec spec = plan_cuda_spec(&k->plan->tensor[k->launch->dst].pack_spec);
    cuda_pack_plan(&spec, ret); /* as it was when the tensor was made */
    return spec;
}

static CudaGeometry geometry(const CudaKernel *k)
{
    int64_t runs = cuda_ceil_div(k->spec.n / k->spec.parts, 32) * k->spec.parts;
    int64_t warps = runs * cuda_ceil_div(k->spec.k, CUDA_TILE_K);
    return (CudaGeometry){.blocks = cuda_ceil_div(warps, THREADS / 32), .block = THREADS};
}

static double predict(const CudaKernel *k, const CudaGeometry *g)
{
    CudaPacked to;
    (void)g;
    panels_of(k, &to);
    return cuda_stores_us((double)k->packed.bytes + (double)to.bytes);
}

static void put_config(Sb *sb, const CudaKernel *k)
{
    CudaPacked to;
    CudaPackSpec spec = panels_of(k, &to);
    cuda_put_format(sb, "kW", k->spec.fmt);
    cuda_put_home(sb, k);
    cuda_put_int(sb, "kK", k->spec.k);
    cuda_put_int(sb, "kRows", k->spec.n / k->spec.parts);
    cuda_put_int(sb, "kParts", k->spec.parts);
    cuda_put_int(sb, "kPanelRows", to.rows);
    cuda_put_format(sb, "kTo", spec.fmt);
    cuda_put_bool(sb, "kScaled", is_scaled(&k->spec, spec.fmt));
    cuda_put_bool(sb, "kGrid", to.scales);
    sb_line(sb, "static constexpr int64_t kGridAt = %" PRId64 ";", to.scale_at);
    cuda_put_bool(sb, "kUniform", spec.block_rows == 0 || spec.block_rows % 128 == 0);
    cuda_put_int(sb, "kCodebookPieces", 2);
    cuda_put_records(sb, k);
    cuda_put_int(sb, "kNeighbours", k->packed.neighbours);
}

static void describe(Sb *sb, const CudaKernel *k)
{
    const PlanTensor *to = &k->plan->tensor[k->launch->dst];
    sb_printf(sb, " to %s, %.0f MB of workspace", format_info[to->fmt].name,
              (double)to->bytes / 1e6);
}

const CudaFamilyRow cuda_decode = {
    .launch = LAUNCH_DECODE,
    .serves = "sm_90a",
    .seed = 8,
    .slowness = 1,
    .shape = shape,
    .geometry = geometry,
    .predict = predict,
    .put_config = put_config,
    .call = {"decode<Cfg>"},
    .describe = describe,
};
