/* codegen/cuda/ahead: what the blocks of a product read first of its weight, for the launch before
 * it to have L2 fetch (kernels/cuda/ahead.cuh). */
#include "codegen/cuda/family.h"

#define MOST_ROWS   64    /* of the activation: more gained nothing, w4a16 at 128 lost 2 % */
#define FETCH_BYTES 32768 /* for each processor: what memory gives while launches change */

static int64_t round_down(int64_t bytes, int64_t to)
{
    return bytes / to * to;
}

/* `panels`: for each 128 bytes of K all rows; blocks begin with those of as many rows as their
 * tiles have, in each of `parts` parts of K. */
static DeviceRuns of_panels(const CudaKernel *k, int64_t bytes, int64_t rows, int parts)
{
    int64_t unit = k->packed.rows * 128, units = cuda_ceil_div(k->spec.k * k->packed.bits, 1024);
    if (parts > 1)
        return (DeviceRuns){.stride = units / parts * unit,
                            .runs = parts,
                            .bytes = (int32_t)round_down(bytes / parts, 16)};
    int64_t runs = cuda_ceil_div(bytes, rows * 128);
    return (DeviceRuns){.stride = unit,
                        .runs = (int32_t)(runs < units ? runs : units),
                        .bytes = (int32_t)(rows * 128)};
}

/* `records` and `fragments`: each 64 rows with all of their K. */
static DeviceRuns of_records(const CudaKernel *k, int64_t bytes, int64_t rows, int parts)
{
    int64_t units = cuda_ceil_div(k->spec.k, CUDA_TILE_K), slab = units * k->packed.record;
    parts = units % parts ? 1 : parts;
    int64_t runs = cuda_ceil_div(rows, CUDA_GROUP_ROWS) * parts, most = slab / parts;
    int64_t each = round_down(bytes / runs, 16);
    return (DeviceRuns){
        .stride = most, .runs = (int32_t)runs, .bytes = (int32_t)(each < most ? each : most)};
}

DeviceRuns cuda_first_read(const CudaKernel *k, const CudaGeometry *g)
{
    const CudaFamilyRow *family = cuda_family[k->family];
    if (!family->candidates || k->groups || k->packed.layout == CUDA_BITS || k->varies ||
        k->plan->tensor[k->launch->w].storage != STORAGE_CONST ||
        k->layout[k->launch->a].rows > MOST_ROWS)
        return (DeviceRuns){0};
    int parts = family->begins ? family->begins(k) : 1;
    int64_t bytes = (int64_t)FETCH_BYTES * k->gpu->processors;
    int64_t rows = g->grid * family->tile(k).cols; /* of all blocks' first tiles, if each has one */
    rows = rows < k->packed.rows ? rows : k->packed.rows;
    bytes = bytes < (int64_t)k->packed.bytes / 2 ? bytes : (int64_t)k->packed.bytes / 2;
    return k->packed.layout == CUDA_PANELS ? of_panels(k, bytes, rows, parts)
                                           : of_records(k, bytes, rows, parts);
}
