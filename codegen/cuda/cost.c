/* codegen/cuda/cost: how long a launch takes, predicted.
 *
 *   us = launch + max(bytes / bandwidth, work of the busiest processor / its rate) + epilogue
 *
 * Rates are what each family reached on an H200 (bench/results), in the unit of its inner loop;
 * other GPUs order candidates alike. The constants are data: change them when a family changes.
 * Those of gemm_mma are fitted to the 1,300 rows that codegen/timing has of it: 12 % off (root of
 * the mean square). What is taken is 3 % slower than the fastest that was measured, in the
 * geometric mean. */
#include "codegen/cuda/choose.h"

#include <math.h>

#define BANDWIDTH   4.1e6 /* bytes a microsecond from memory, read once */
#define L2_RATE     7.0e6 /* .. that all processors together get from L2 */
#define LAUNCH_US   2.2   /* of a node in a captured graph, its producer's end overlapped */
#define SHARED_SM   232448
#define ALONE       0.6    /* of its rate that a processor reaches with one block */
#define FULL_WARPS  8      /* that it needs for it */
#define MMA_START   1.0    /* us of a block beside all that */
#define MMA_L2      1.46e7 /* L2_RATE for tiles, which neighbours read at the same time */
#define MMA_WARPS   5.5    /* that reach half of what endless many would */
#define MMA_STEP    0.034  /* us for each 128 of K, beside the products */
#define IN_FLIGHT   13.6e3 /* bytes on their way to a processor for 63 % of its bandwidth */
#define BLOCK_START 0.5    /* us from a block's start to its first product */

/* Multiplications and additions, 1e6 a microsecond of the whole GPU, of eight warps a processor. */
static double mma_rate(const CudaKernel *k)
{
    switch (k->packed.home) {
    case CUDA_HOME_I8: return k->spec.mainloop ? 465 : 825;
    case CUDA_HOME_F16: return k->spec.mainloop ? 325 : 520;
    case CUDA_HOME_BF16: return k->spec.mainloop ? 479 : 505;
    default: return 30;
    }
}

/* Picoseconds of a processor to read one code of a weight and decode it. */
static double decode_ps(const CudaKernel *k)
{
    FormatFamily family = format_info[k->spec.fmt].family;
    int bits = format_info[k->spec.fmt].bits;
    if (family == FAMILY_CODEBOOK)
        return 74;
    if (bits == 16 || k->packed.home == CUDA_HOME_I8)
        return 1.2;
    if (bits == 8)
        return family != FAMILY_INT && k->packed.home == CUDA_HOME_F16 ? 0 : 9;
    return family != FAMILY_INT ? 38 : k->spec.has_zero ? 19 : 9;
}

/* The time of `tiles` equal ones, `us` each on a processor of its own, of which `resident` of
 * `warps` warps fit. */
static double waves_us(const CudaKernel *k, int64_t tiles, double us, int64_t resident, int warps)
{
    int64_t busiest = (tiles + k->gpu->processors - 1) / k->gpu->processors;
    int64_t together = resident < busiest ? resident : busiest;
    double busy = together > 1 ? 1 : ALONE, filled = (double)(together * warps) / FULL_WARPS;
    return (double)busiest * us / (filled < busy ? filled : busy);
}

/* Registers of a thread: its sums, again where they are scaled, fragments and addresses. */
static int64_t mma_blocks_resident(const CudaKernel *k, const CudaGeometry *g)
{
    int sums = k->bm / k->warps_m * (k->bn / k->warps_n) / 32 * (k->spec.mainloop ? 2 : 1);
    int registers = sums >= 104 ? 255 : sums >= 48 ? 168 : 128;
    int64_t by_registers = 65536 / (registers * g->block), by_memory = SHARED_SM / (g->smem + 1024);
    return by_registers < by_memory ? by_registers : by_memory;
}

/* Blocks that share tiles write their sums, and the last one reads them all. */
static double split_us(const CudaKernel *k)
{
    return k->split_k > 1 ? 3.1 + k->split_k * k->bm * k->bn * 4 / 37e3 : 0;
}

/* Of a bandwidth, what so many bytes on their way at a time reach. */
static double share_of_bandwidth(double bytes)
{
    return 1 - exp(-bytes / IN_FLIGHT);
}

/* Products, decoding and what each stage costs, on the busiest processor. Narrow warps read more of
 * a for each product; few warps, and few stages, hide little. */
static double mma_work_us(const CudaKernel *k, const CudaGeometry *g, double share, int64_t busiest,
                          int64_t together)
{
    double warps = (double)together * g->block / 32;
    double rate =
        mma_rate(k) * 1e6 / k->gpu->processors / (1 + 0.2 * (64.0 * k->warps_n / k->bn - 1));
    double us = 2.0 * k->bm * k->bn * share / rate +
                1e-6 * decode_ps(k) * k->bn * k->warps_m * share + MMA_STEP * ceil(share / 128);
    double busy = warps / (warps + MMA_WARPS) * (8 + MMA_WARPS) / 8;
    return (double)busiest * us / busy * (1 + 0.032 * (4 - k->stages));
}

/* Work and reading overlap, the more the less one of them takes. */
static double mma_us(const CudaKernel *k, const CudaGeometry *g, double weights)
{
    double share = (double)k->spec.k / k->split_k;
    int64_t busiest = (g->grid + k->gpu->processors - 1) / k->gpu->processors,
            resident = mma_blocks_resident(k, g);
    int64_t together = resident < 1 ? 1 : resident < busiest ? resident : busiest;
    double column = (k->bn * (double)format_info[k->spec.fmt].bits +
                     k->bm * (double)cuda_act_bits(k->spec.act_fmt)) /
                    8; /* bytes of a tile's operands for each of K */
    double in_flight = (double)together * k->stages * 128 * column;
    double used = g->grid < k->gpu->processors ? (double)g->grid / k->gpu->processors : 1;
    double l2 = (double)busiest * share * column * k->gpu->processors / MMA_L2 /
                share_of_bandwidth(in_flight);
    double memory = weights / BANDWIDTH / share_of_bandwidth(used * in_flight);
    double read = l2 > memory ? l2 : memory, work = mma_work_us(k, g, share, busiest, together);
    return pow(pow(work, 2.5) + pow(read, 2.5), 1 / 2.5) + split_us(k) + MMA_START;
}

/* Codes that busy processors decode and multiply, 1e6 a microsecond, for up to 8 rows. */
static double stream_rate(const CudaKernel *k)
{
    int bits = format_info[k->spec.fmt].bits;
    double rate = bits == 16 ? 3.2 : bits == 8 ? 8.0 : 7.8;
    if (format_info[k->spec.fmt].family == FAMILY_CODEBOOK)
        rate = 1.5;
    if (k->rows > 8)
        rate *= k->packed.home == CUDA_HOME_I8 && k->spec.mainloop ? 0.45 : 0.7;
    return rate;
}

/* The busiest processor's units: their weights and what every unit reads of a, at its share of the
 * bandwidths, or decoding them, where the warps hold enough to be busy; and what joins the sums of
 * the warps. */
static double stream_us(const CudaKernel *k, const CudaGeometry *g)
{
    int64_t columns = 8 * (int64_t)k->n_blocks * k->n_warps, warps = g->block / 32;
    int64_t units = (k->packed.rows + columns - 1) / columns;
    double rounds = (double)((units + g->grid - 1) / g->grid);
    double bits = format_info[k->spec.fmt].bits, codes = (double)columns * (double)k->spec.k;
    double row_bytes = (double)k->spec.k * format_info[k->spec.act_fmt].bits / 8;
    double loads = codes * bits / 8 / BANDWIDTH +
                   (k->local_a ? 0 : k->rows * (1 + 0.1 * k->n_warps) * row_bytes / L2_RATE);
    double held = (double)(warps * k->n_blocks) * bits / 4; /* of a tile of K, 512 bytes each */
    double enough = k->rows > 8 ? 32 : 64, busy = held < enough ? held / enough : 1;
    if (warps < 8)
        busy *= 0.6;
    double work = codes / (stream_rate(k) * 1e6 * busy);
    double join = 0.2 + 0.05 * k->rows;
    return rounds * ((loads > work ? loads : work) * k->gpu->processors + join) + BLOCK_START;
}

static double any_us(const CudaKernel *k, const CudaGeometry *g)
{
    double flops = 2.0 * 4096 * (double)k->spec.k;
    return waves_us(k, g->grid, flops / (8e6 / k->gpu->processors), 2, 8) * (1 + 0.001 * k->bn);
}

/* Bytes of a tensor as it is stored, for its actual rows. */
static double tensor_bytes(const CudaKernel *k, int tensor)
{
    const PlanLayout *l = &k->layout[tensor];
    double bits = format_info[k->plan->tensor[tensor].fmt].bits;
    if (k->plan->tensor[tensor].quantised && bits < 8)
        bits = 8; /* activations keep a byte a code */
    return (double)l->rows * (double)l->cols * bits / 8;
}

static double operand_bytes(const CudaKernel *k)
{
    double sum = 0;
    for (int i = 0; i < k->launch->num_operands; i++)
        sum += tensor_bytes(k, k->launch->operand[i].tensor);
    return sum;
}

static double product_us(const CudaKernel *k, const CudaGeometry *g)
{
    double weights = k->packed.bytes ? (double)k->packed.bytes : tensor_bytes(k, k->launch->w);
    double others = (operand_bytes(k) + tensor_bytes(k, k->launch->a)) / L2_RATE;
    if (k->family == CUDA_HOPPER)
        return cuda_hopper_us(k) + others;
    if (k->family == CUDA_GEMM_MMA)
        return mma_us(k, g, weights) + others;
    double us = k->family == CUDA_STREAM ? stream_us(k, g) : any_us(k, g);
    return (us > weights / BANDWIDTH ? us : weights / BANDWIDTH) + others;
}

double cuda_cost(const CudaKernel *k)
{
    CudaGeometry g = cuda_geometry(k);
    if (k->family <= CUDA_GEMM_ANY)
        return LAUNCH_US + product_us(k, &g);
    double bytes = k->family == CUDA_TILE
                       ? operand_bytes(k)
                       : tensor_bytes(k, k->launch->src) + tensor_bytes(k, k->launch->dst);
    return LAUNCH_US + 1 + bytes / (bytes < 32e6 ? L2_RATE / 2 : BANDWIDTH * 0.85);
}
