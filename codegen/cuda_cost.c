/* codegen/cuda_cost: how long a launch takes, predicted.
 *
 *   us = launch + max(bytes / bandwidth, work of the busiest processor / its rate) + epilogue
 *
 * Rates are what each family reached on an H200 (bench/results), in the unit of its inner loop;
 * other GPUs order candidates alike. The constants are data: change them when a family changes. */
#include "codegen/cuda_choose.h"

#define PROCESSORS  CUDA_PROCESSORS
#define BANDWIDTH   4.1e6 /* bytes a microsecond from memory, read once */
#define L2_RATE     7.0e6 /* .. that all processors together get from L2 */
#define LAUNCH_US   2.2   /* of a node in a captured graph, its producer's end overlapped */
#define SHARED_SM   232448
#define ALONE       0.6 /* of its rate that a processor reaches with one block */
#define FULL_WARPS  8   /* that it needs for it */
#define MMA_START   3.5 /* us from a block's start to its first product, and its epilogue */
#define BLOCK_START 0.5 /* us from a block's start to its first product */

/* Multiplications and additions, 1e6 a microsecond of the whole GPU, of full processors. */
static double mma_rate(const CudaKernel *k)
{
    switch (k->packed.home) {
    case CUDA_HOME_I8: return k->spec.mainloop ? 410 : 780;
    case CUDA_HOME_F16: return k->spec.mainloop ? 300 : 470;
    case CUDA_HOME_BF16: return k->spec.mainloop ? 315 : 445;
    default: return 30;
    }
}

/* The time of `tiles` equal ones, `us` each on a processor of its own, of which `resident` of
 * `warps` warps fit. */
static double waves_us(int64_t tiles, double us, int64_t resident, int warps)
{
    int64_t busiest = (tiles + PROCESSORS - 1) / PROCESSORS;
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

/* Of its rate, what a processor reaches with warps whose sums are so many: small ones load more for
 * each product, and few hide little. */
static double mma_efficiency(int rows, int columns, int64_t warps)
{
    double tile = 1 / (1 + 0.11 * (64.0 / rows + 64.0 / columns - 2));
    return tile * (warps >= 8   ? 1
                   : warps >= 4 ? 0.75 + 0.03 * (double)warps
                                : 0.22 * (double)warps);
}

/* Blocks that share tiles write their sums, and the last one reads them all. */
static double split_us(const CudaKernel *k)
{
    return k->split_k > 1 ? 2.5 + k->split_k * k->bm * k->bn * 4 / 80e3 : 0;
}

static double mma_us(const CudaKernel *k, const CudaGeometry *g)
{
    double flops = 2.0 * k->bm * k->bn * (double)k->spec.k / k->split_k;
    double deep = 1 + 0.02 * (4 - k->stages); /* fewer stages hide less of the memory's latency */
    int64_t busiest = (g->grid + PROCESSORS - 1) / PROCESSORS, resident = mma_blocks_resident(k, g);
    int64_t together = resident < busiest ? resident : busiest;
    double rate = mma_rate(k) * 1e6 / PROCESSORS *
                  mma_efficiency(k->bm / k->warps_m, k->bn / k->warps_n, together * g->block / 32);
    return (double)busiest * deep * flops / rate + split_us(k) + MMA_START;
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
    return rounds * ((loads > work ? loads : work) * PROCESSORS + join) + BLOCK_START;
}

static double any_us(const CudaKernel *k, const CudaGeometry *g)
{
    double flops = 2.0 * 4096 * (double)k->spec.k;
    return waves_us(g->grid, flops / (8e6 / PROCESSORS), 2, 8) * (1 + 0.001 * k->bn);
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
    double others = operand_bytes(k) + tensor_bytes(k, k->launch->a);
    double us = k->family == CUDA_GEMM_MMA ? mma_us(k, g)
                : k->family == CUDA_STREAM ? stream_us(k, g)
                                           : any_us(k, g);
    double memory = weights / BANDWIDTH;
    return (us > memory ? us : memory) + others / L2_RATE;
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
