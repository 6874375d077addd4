/* codegen/cuda/mixed: what its kernels are predicted to take on an H200. */
#include "codegen/cuda/mixed.h"

#include <math.h>

/* Of a unit, for 64 rows of w, microseconds (fitted to tuned kernels of an H200): in all, and for
 * each row of a, where two to four warpgroups hide what the others wait for, or blocks of one do; a
 * code that is split into two operands by so much; each block of K beyond the first whose sums are
 * scaled. Beside integers, and other bytes, that have no scales in the main loop it takes less. */
typedef struct UnitCost {
    double slab, row;
} UnitCost;
static const UnitCost unit_cost[3][4] = {
    {{0.25, 0.0027}, {0.2, 0.0019}, {0.186, 0.0017}, {0.175, 0.0013}},
    {{0.16, 0.0028}, {0.12, 0.0013}, {0.09, 0.0016}, {0.071, 0.0019}},
    {{0.21, 0.003}, {0.185, 0.001}, {0.14, 0.0013}, {0.122, 0.0016}}};
#define EXCHANGE_US   0.069 /* of them, that fragments do without */
#define PIECES_TIMES  2.5
#define FLOAT_US      0.027  /* .. that codes of e2m1 and of codebooks take longer than integers, */
#define ZERO_US       0.0065 /* .. and those with zero points */
#define SMALL_TIMES   1.1    /* what blocks that share a processor take from each other */
#define BLOCK_US      0.014
#define ACT_US        0.07   /* of such a block that has scales of a of its own, .. */
#define ACT_SUM_US    1.8e-5 /* .. and of each of its sums; .. */
#define FLOAT_TIMES   0.6    /* .. floats, which need no conversion, take so much of that */
#define L2_BYTES      11.5e6 /* a microsecond, of all processors .. */
#define L2_EACH       1.5e5  /* .. and of one at most */
#define MEMORY        4.6e6
#define MEMORY_EACH   6.0e4
#define START_US      0.38   /* until the first unit is there */
#define ROW_US        0.018  /* of an epilogue, for each row of a tile of 128 columns */
#define LOADS_TIMES   0.5    /* .. that gets fragments, where it loads anything, .. */
#define NOTHING_TIMES 1.15   /* .. and where it does not */
#define WIDE_TIMES    0.94   /* of a unit of 256 columns */
#define SHARED_TIMES  1.16   /* of units where blocks share tiles and have several */
#define GATHER_US     4.4    /* of tiles that blocks share, .. */
#define GATHER_SUM_US 1.3e-4 /* .. and of each of a tile's sums; .. */
#define CLUSTER_US    1.5    /* .. in a cluster */
#define JOIN_US       0.58   /* of warpgroups in turn, for each tile, .. */
#define JOIN_ROW_US   0.0095 /* .. and row of a */
#define REST_US       0.5    /* what sums of the rest take from the others: a guess */
#define SUM_US        3e-5   /* a part of K, for each sum of a tile, to its total: a guess */

static double unit_us(const CudaKernel *k, double side_by_side)
{
    int64_t block = promotes(k) && k->packed.block_k ? k->packed.block_k : UNIT;
    double blocks = block < UNIT ? (double)UNIT / (double)block : 1;
    bool is_less = has_bytes(k) && (k->spec.mainloop || k->spec.factored) && !scales_act(k);
    UnitCost cost = unit_cost[!is_less ? 0 : is_int(k) ? 1 : 2][k->mixed.teams - 1];
    double slab = cost.slab + cost.row * k->mixed.bm;
    slab -= k->packed.layout == CUDA_FRAGMENTS ? EXCHANGE_US : 0;
    slab += family_of(k->spec.fmt) == FAMILY_INT ? k->packed.zeros ? ZERO_US : 0 : FLOAT_US;
    bool in_pieces = family_of(k->spec.fmt) == FAMILY_CODEBOOK && cuda_codebook_pieces(k) > 1;
    bool wide = columns(k) > 192 && k->mixed.bm > 64;
    slab *= (in_pieces ? PIECES_TIMES : 1) * (wide ? WIDE_TIMES : 1);
    double us = (slab + (blocks - 1) * BLOCK_US) * k->mixed.teams * k->mixed.slabs / k->mixed.turns;
    if (scales_act(k))
        us += (double)(act_scales(k) - 1) * (ACT_US + ACT_SUM_US * k->mixed.bm * columns(k)) *
              (family_of(k->spec.act_fmt) == FAMILY_INT ? 1 : FLOAT_TIMES);
    double bytes = k->mixed.bm * (double)(has_bytes(k) ? 1 : 2) * BOX_BYTES / k->mixed.cluster +
                   columns(k) / CUDA_GROUP_ROWS * (double)k->packed.record;
    double own = fmin(L2_BYTES, L2_EACH * fmin(side_by_side, k->gpu->processors)) / side_by_side;
    return fmax(us, bytes / own);
}

/* What rows of an epilogue wait for is waited for once by fragments. */
static double fragments_times(const CudaKernel *k)
{
    bool loads = false;
    for (int i = 0; i < k->launch->num_segments; i++)
        loads = loads || cuda_program_loads(&k->launch->segment[i].epilogue);
    return !k->mixed.fragments ? 1 : loads ? LOADS_TIMES : NOTHING_TIMES;
}

double cuda_mixed_us(const CudaKernel *k, const CudaGeometry *g)
{
    double blocks = (double)g->grid;
    double side_by_side = fmin(blocks, (double)k->gpu->processors * per_processor(k));
    double unit = unit_us(k, side_by_side);
    double tiles = (double)num_tiles(k), each = (double)units(k), waves = ceil(tiles / blocks);
    double sums = k->mixed.bm * (double)columns(k), weights = (double)k->packed.bytes;
    bool is_even = k->mixed.shares || k->mixed.gather > 1;
    double rounds = k->mixed.shares ? ceil(tiles * each / blocks) : waves * each;
    rounds = k->mixed.gather > 1 ? ceil(each / k->mixed.gather) : rounds;
    double us = rounds * unit * (k->mixed.shares && tiles > blocks ? SHARED_TIMES : 1);
    us = fmax(us, cuda_waves_us(weights, is_even ? blocks : tiles, blocks, MEMORY_EACH, MEMORY));
    double epilogue = ROW_US * sums / 128 * fragments_times(k);
    us += START_US + epilogue * (k->mixed.shares ? 1 : waves) +
          (k->mixed.shares ? GATHER_US + GATHER_SUM_US * sums : 0);
    if (k->mixed.turns > 1)
        us += waves * (JOIN_US + JOIN_ROW_US * k->mixed.bm);
    if (k->mixed.gather > 1)
        us += CLUSTER_US - epilogue * (1 - 1.0 / k->mixed.gather);
    double sharers = k->mixed.shares ? blocks / tiles : 1; /* gather their own sums anyway */
    us += k->mixed.parts_of_k > 1 ? SUM_US * (k->mixed.parts_of_k - sharers) * sums * waves : 0;
    if (k->mixed.rest) { /* the last warpgroup has less to do */
        double in_all = (double)rest_rounds(k), own = in_all - 1.0 / k->mixed.rest;
        us -= (waves - in_all) * each * unit; /* tiles are as wide as all of them */
        us -= own * each * unit / k->mixed.teams - REST_US;
    }
    return us * (is_small(k) ? SMALL_TIMES : 1);
}
