/* codegen/cuda/cost: how long a launch takes, predicted.
 *
 *   us = launch + max(bytes / bandwidth, work of the busiest processor / its rate) + epilogue
 *
 * Rates are what each family reached on an H200 (bench/results), in the unit of its inner loop;
 * other GPUs order candidates alike. The constants are data: change them when a family changes.
 * What is taken is 4 % slower than the fastest that was measured, in the geometric mean over 2,339
 * products and numbers of rows, at worst 1.8 times as slow (tests/cuda/cost_model.py). */
#include "codegen/cuda/family.h"

#include <math.h>

#define LAUNCH_US 2.2 /* of a node in a captured graph, its producer's end overlapped */
/* .. that goes over rows, from 9.0 on: meanwhile the product behind it begins to copy its weight.
 * An 8B layer with two takes an H100 2.9 us more than its products at 16 rows, 5.5 at 128. */
#define ROWS_US 0.4

double cuda_tensor_bytes(const CudaKernel *k, int tensor)
{
    const PlanLayout *l = &k->layout[tensor];
    double bits = format_info[k->plan->tensor[tensor].fmt].bits;
    if (k->plan->tensor[tensor].quantised && bits < 8)
        bits = 8; /* activations keep a byte a code */
    return (double)l->rows * (double)l->cols * bits / 8;
}

/* Of a tensor whose rows an index names: as many as the index has. */
double cuda_operand_bytes(const CudaKernel *k)
{
    double sum = 0;
    for (int i = 0; i < k->launch->num_operands; i++)
        if (launch_names(k->launch, i))
            sum += cuda_tensor_bytes(k, k->launch->operand[i].tensor) *
                   plan_operand_share(k->launch, i, k->layout);
    return sum;
}

double cuda_weight_bytes(const CudaKernel *k)
{
    return k->packed.bytes ? (double)k->packed.bytes : cuda_tensor_bytes(k, k->launch->w);
}

double cuda_waves_us(double bytes, double tiles, double blocks, double each, double all)
{
    double rest = fmod(tiles, blocks), tile = bytes / tiles; /* rest: of the last turn */
    return tile * (tiles - rest) / fmin(all, each * blocks) +
           (rest > 0 ? tile * rest / fmin(all, each * rest) : 0);
}

double cuda_pass_us(double bytes)
{
    return 1 + bytes / (bytes < 32e6 ? CUDA_L2_RATE / 2 : CUDA_BANDWIDTH * 0.85);
}

double cuda_stores_us(double bytes)
{
    return 1 + bytes / (bytes < 32e6 ? CUDA_L2_RATE / 2 : CUDA_BANDWIDTH);
}

double cuda_decode_us(const PlanTensor *from, const PlanTensor *to)
{
    CudaPacked packed = {0};
    CudaPackSpec spec = plan_cuda_spec(&from->pack_spec);
    cuda_pack_plan(&spec, &packed);
    return LAUNCH_US + cuda_stores_us((double)packed.bytes + (double)to->bytes);
}

/* Groups of rows run side by side, as columns of one product of a group's rows would. */
static CudaKernel as_one(const CudaKernel *k)
{
    CudaKernel ret = *k;
    if (!k->groups)
        return ret;
    ret.as_one = true;
    ret.packed.rows *= cuda_groups_busy(k);
    ret.packed.bytes *= (uint64_t)cuda_groups_busy(k);
    ret.spec.n = ret.packed.rows;
    return ret;
}

static double cost_of(const CudaKernel *k)
{
    const CudaFamilyRow *family = cuda_family[k->family];
    const CudaKernel one = as_one(k);
    CudaGeometry g = cuda_geometry(&one);
    double us = family->predict(&one, &g);
    if (family->candidates)
        us += (cuda_operand_bytes(k) + cuda_tensor_bytes(k, k->launch->a)) / CUDA_L2_RATE;
    bool overlaps = k->launch->family == LAUNCH_TILE && k->gpu->from >= 90;
    return (overlaps ? ROWS_US : LAUNCH_US) + us;
}

/* Where groups have more or fewer rows than their share, the mean over such: a tile that all fit
 * into may be larger than most need. */
double cuda_cost(const CudaKernel *k)
{
    double sum = 0;
    if (!cuda_shares_vary(k) || k->share)
        return cost_of(k);
    for (int share = 3; share <= 5; share++) {
        CudaKernel part = *k;
        part.share = share;
        sum += cost_of(&part);
    }
    return sum / 3;
}
