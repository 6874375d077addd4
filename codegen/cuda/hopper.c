/* codegen/cuda/hopper: products for compute capability 9.0 (kernels/cuda/hopper.cuh): which the
 * family takes, their tiles, and the text that is theirs alone. */
#include "codegen/cuda/family.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define UNIT_BYTES    128  /* of K, of a row of either operand: a unit */
#define MOST_STAGES   8    /* of the ring; more gain nothing */
#define FEW_STAGES    6    /* .. with few rows */
#define MOST_SMALL    64   /* of them in a tile of 64 columns, .. */
#define SMALL_ROWS    256  /* .. of so many in all */
#define MOST_WIDE     48   /* .. of tiles of 256, whose four warpgroups hold their sums twice */
#define LEAST_UNITS   4    /* of a share of a tile */
#define MOST_SHARES   8    /* of one */
#define SHARE_SUMS    128  /* registers of sums beside those that gathering takes */
#define PART_SUMS     192  /* .. with the totals over parts of K */
#define FEW_PASS_ROWS 32   /* of many, that an epilogue gets at a time if it wants whole ones */
#define ALIGN_BYTES   1024 /* of the ring: a swizzled atom of 8 rows */
#define SCALE_BOX     16   /* bytes of scales that a copy brings of each row */
#define HALF_RUN_TILE 224  /* columns, whose parts may have half a run of 32 */
#define LEAST_LEAVING 64   /* rows, more than which have tiles whose results may leave late */
#define BAND_BYTES    20e6 /* of an activation that L2 keeps while all columns pass */
#define LEAST_BAND    8    /* tiles of 128 rows; and .. */
#define MOST_BAND     32

static FormatFamily family_of(FormatId fmt)
{
    return format_info[fmt].family;
}

static bool is_int(const CudaKernel *k)
{
    return family_of(k->spec.act_fmt) == FAMILY_INT;
}

/* Blocks of integers along K have one order: no K is shared out. */
static bool adds_in_order(const CudaKernel *k)
{
    return is_int(k) && k->spec.mainloop;
}

static int elements(const CudaKernel *k) /* of a unit */
{
    return UNIT_BYTES * 8 / format_info[k->spec.act_fmt].bits;
}

static int64_t units(const CudaKernel *k) /* along K */
{
    return cuda_ceil_div(k->spec.k, elements(k));
}

/* Which products the family takes -------------------------------------------------------------- */

/* PTX ISA, "wgmma.mma_async": kinds of types that it multiplies with each other; 0: none. */
static int native_kind(FormatId fmt)
{
    switch (fmt) {
    case FMT_BF16: return 1;
    case FMT_F16: return 2;
    case FMT_E4M3:
    case FMT_E5M2: return 3;
    case FMT_I8:
    case FMT_U8: return 4;
    default: return 0;
    }
}

/* wgmma multiplies the pair as it is. */
static bool is_native(FormatId a, FormatId w)
{
    return native_kind(a) && native_kind(a) == native_kind(w);
}

/* Scales change between instructions; sums of integers under one scale end inside a unit. */
static bool blocks_fit(const CudaPackSpec *spec, int64_t block)
{
    if (!block)
        return family_of(spec->fmt) != FAMILY_INT || spec->k <= UNIT_BYTES;
    if (block % UNIT_BYTES == 0)
        return family_of(spec->fmt) != FAMILY_INT || block == UNIT_BYTES;
    return block == 32 || block == 64;
}

/* Integer zero points must not vary along K, and a scale's block of K end where instructions do. */
static bool takes(const CudaPackSpec *spec)
{
    int64_t wb = spec->block_cols < spec->k ? spec->block_cols : 0;
    int64_t ab = spec->act_block < spec->k ? spec->act_block : 0;
    int64_t block = !wb ? ab : !ab ? wb : wb < ab ? wb : ab;
    if (!is_native(spec->act_fmt, spec->fmt))
        return false;
    return !spec->mainloop || (!spec->has_zero && !spec->act_zero && blocks_fit(spec, block));
}

/* Sums of 8-bit floats have about 14 bits before they are promoted: too few for what a model gives
 * out in f32, and for a softmax (docs/numerics.md); unless the scheme leaves them so. */
static bool is_fast(const CudaKernel *k)
{
    return k->plan->tensor[k->launch->a].scheme.fast;
}

/* Instructions of 32 bytes of K between promotions to f32; 0: none. */
static int promotion(const CudaKernel *k)
{
    bool narrow = family_of(k->spec.act_fmt) == FAMILY_MINIFLOAT && !is_fast(k);
    if (k->spec.mainloop)
        return k->packed.block_k && k->packed.block_k < UNIT_BYTES ? (int)k->packed.block_k / 32
                                                                   : 4;
    return narrow || (cuda_adds_apart(k) && !is_fast(k)) ? 4 : 0;
}

/* Epilogues ------------------------------------------------------------------------------------ */

/* The activation is the right operand, of more rows than are staged at once. */
static bool has_many_right(const CudaKernel *k)
{
    return k->hopper.swap && k->hopper.bm > MOST_SMALL;
}

static int part_columns(const CudaKernel *k)
{
    return k->hopper.bn / k->spec.parts;
}

/* A tile's parts have half a run of 32 columns beside whole ones (hopper_sums.cuh: kHalf). */
static bool has_half_run(const CudaKernel *k)
{
    return part_columns(k) % 32 != 0;
}

/* Columns that one call of the epilogue gets of each part; 0: it gets rows. */
static int held_columns(const CudaKernel *k)
{
    return k->hopper.swap && !has_many_right(k)
               ? 0
               : cuda_fragment_columns(k, part_columns(k) - part_columns(k) % 32);
}

/* Halves of runs are columns of no group; scales along K would have to be those of their rows. */
static bool halves_fit(const CudaKernel *k)
{
    return k->spec.parts == 2 && part_columns(k) % 32 == 16 && !k->spec.mainloop &&
           k->packed.rows % (2 * k->hopper.bn) == 0 && held_columns(k) == 32 &&
           !cuda_epilogue_group(k);
}

/* Results may leave through shared memory: those of 16 bits, a tile's as a whole. (Those of twice
 * as many bytes, and of epilogues that wait for rows, took up to 3 % longer so.) */
static bool may_leave(const CudaKernel *k)
{
    bool all = held_columns(k) && cuda_in_segments(k, part_columns(k)) && !has_half_run(k);
    for (int i = 0; i < k->launch->num_segments && all; i++)
        all = cuda_program_leaves(k, &k->launch->segment[i].epilogue);
    return all;
}

static bool leaves(const CudaKernel *k)
{
    return k->hopper.leaves;
}

static bool loads_freely(const CudaKernel *k)
{
    return held_columns(k) > 0;
}

static int teams(const CudaKernel *k) /* warpgroups that multiply */
{
    return (k->hopper.swap ? k->hopper.bn : k->hopper.bm) / 64;
}

static bool is_small(const CudaKernel *k) /* two blocks share a processor */
{
    return teams(k) == 1;
}
static int per_processor(const CudaKernel *k)
{
    return is_small(k) ? 2 : 1;
}

static int pass_rows(const CudaKernel *k) /* hopper.cuh: kPassRows */
{
    int most = held_columns(k) ? 16 * 4 * teams(k) : FEW_PASS_ROWS;
    return has_many_right(k) && most < k->hopper.bm ? most : k->hopper.bm;
}

static int64_t leave_bytes(const CudaKernel *k) /* hopper.cuh: kLeftBytes */
{
    int64_t row = part_columns(k) * 2;
    return 64 * teams(k) * (cuda_ceil_div(row, UNIT_BYTES) * UNIT_BYTES + UNIT_BYTES / 2);
}

static int64_t staged_bytes(
    const CudaKernel *k) /* hopper.cuh: kPitch; rows of a warp, or the tile */
{
    if (held_columns(k) && !k->hopper.swap)
        return k->hopper.leaves ? leave_bytes(k) : 0;
    return (k->hopper.swap ? pass_rows(k) : 32 * teams(k)) * (int64_t)(k->hopper.bn + 4) * 4;
}

/* Sizes of kernels ----------------------------------------------------------------------------- */

static bool uniform_scales(const CudaKernel *k) /* 128 rows of w share one */
{
    return k->spec.block_rows == 0 || k->spec.block_rows % 128 == 0;
}

/* Scales of w that meet a tile, under one of a (hopper.cuh: kWScales). */
static int weight_scales(const CudaKernel *k)
{
    return k->hopper.bn / (uniform_scales(k) ? CUDA_PANEL_SCALE_ROWS : 1);
}

/* Scales of an activation come as boxes of four of each row (hopper.cuh: kAScaleBox), where rows of
 * the grid are multiples of what a copy brings, and not few: then it takes longer. */
static bool boxes_scales(const CudaKernel *k)
{
    const PlanTensor *a = &k->plan->tensor[k->launch->a];
    int64_t block = k->spec.act_block;
    return k->spec.mainloop && block && !k->hopper.swap && a->scheme.block[0] == 1 &&
           cuda_ceil_div(k->spec.k, block) * 4 % SCALE_BOX == 0;
}

static int64_t stage_bytes(const CudaKernel *k)
{
    int subs = k->hopper.promote ? 4 / k->hopper.promote : 1;
    int64_t bytes = (int64_t)(k->hopper.bm + k->hopper.bn) * UNIT_BYTES;
    int64_t of_a = !k->spec.act_block || boxes_scales(k) ? 0 : k->hopper.bm;
    if (k->spec.mainloop)
        bytes += 4 * subs * (of_a + weight_scales(k));
    return cuda_ceil_div(bytes, ALIGN_BYTES) * ALIGN_BYTES;
}

/* Of the ring: a stage, and a box of scales beside it. */
static int64_t ring_bytes(const CudaKernel *k, int stages)
{
    return stages * (stage_bytes(k) + (boxes_scales(k) ? SCALE_BOX * k->hopper.bm : 0));
}

static int right_rows(const CudaKernel *k)
{
    return k->hopper.swap ? k->hopper.bm : k->hopper.bn;
}

/* Columns of one instruction: a thread holds the sums of the tile and, where they are promoted,
 * those of an instruction beside them. */
static int instruction_columns(const CudaKernel *k)
{
    int n = right_rows(k);
    return k->hopper.promote && n > 192 ? n / 2 : n;
}

static int64_t num_tiles(const CudaKernel *k) /* of all blocks of clusters, which lie along M */
{
    int cluster = k->hopper.cluster;
    return cuda_ceil_div(cuda_rows(k), (int64_t)k->hopper.bm * cluster) * cluster *
           cuda_ceil_div(k->packed.rows, k->hopper.bn);
}

static CudaTile tile(const CudaKernel *k)
{
    return (CudaTile){k->hopper.bm, k->hopper.bn};
}

static int64_t smem_bytes(const CudaKernel *k)
{
    return ring_bytes(k, k->hopper.stages) + staged_bytes(k) + ALIGN_BYTES;
}

/* Of a tile, that are copied: what a copy fills up behind the last row takes the longer. Those of
 * groups are followed by the next group's. */
static int box_rows(const CudaKernel *k)
{
    int64_t rows = cuda_ceil_div(cuda_rows(k), 8) * 8;
    return k->groups || rows > k->hopper.bm ? k->hopper.bm : (int)rows;
}

static CudaGeometry geometry(const CudaKernel *k)
{
    int64_t piece = 128 * teams(k) * (int64_t)right_rows(k) / 2 * 4;
    return (CudaGeometry){
        .blocks = k->hopper.shares ? k->hopper.shares
                                   : num_tiles(k) * cuda_groups_busy(k) * k->hopper.gather,
        .walks_groups = k->groups > 0,
        .per_processor = k->hopper.gather > 1 ? 0 : per_processor(k), /* a tile each, on any GPU */
        .cluster = k->hopper.cluster * k->hopper.gather,
        .block = 128 * (teams(k) + 1),
        .smem = is_small(k) ? cuda_half_bytes(k, smem_bytes(k),
                                              num_tiles(k) * cuda_groups_busy(k) * k->hopper.gather)
                            : smem_bytes(k),
        .workspace = k->hopper.shares ? CUDA_SPLIT_SUMS + 2 * k->hopper.shares * piece : 0,
        .num_maps = 1 + boxes_scales(k),
        .map = {{.operand = k->launch->num_operands,
                 .element_bytes = 1,
                 .box_rows = box_rows(k),
                 .box_bytes = UNIT_BYTES,
                 .swizzle = UNIT_BYTES,
                 .bytes = k->spec.k * format_info[k->spec.act_fmt].bits / 8},
                {.operand = k->launch->num_operands,
                 .element_bytes = 4,
                 .box_rows = k->hopper.bm,
                 .box_bytes = SCALE_BOX,
                 .scales = 1}}};
}

/* Candidates ----------------------------------------------------------------------------------- */

static const int wide_tiles[] = {256, 224, 192, 160, 128, 96, 64};
static const int few_rows[] = {8, 16, 24, 32, 48, 64};

/* Columns of a tile, at most, whose sums of integers under several scales a unit and their
 * registers ptxas has room for: wider ones spill up to 68 bytes. */
static int most_int_rows(const CudaKernel *k)
{
    return k->hopper.promote == 4 ? 256 : 160;
}

/* Steps of an epilogue beside those that multiply sums by numbers, round and store them. */
static int further_steps(const CudaKernel *k, const PlanProgram *p, int *ret_numbers)
{
    int num = 0;
    *ret_numbers = 0;
    for (int i = 0; i < p->num_steps; i++) {
        const TileStep *s = &p->step[i];
        const PlanOperand *o = s->op == TILE_LOAD ? &k->launch->operand[s->tensor] : NULL;
        bool is_number = o && !o->col_step && k->layout[o->tensor].rows == 1;
        *ret_numbers += is_number;
        num += !is_number && s->op != TILE_ACC && s->op != TILE_ROUND && s->op != TILE_STORE;
    }
    return num - *ret_numbers;
}

/* The outer scales of held activations, which an epilogue that does more than multiply by them
 * keeps in registers. */
static bool keeps_outers(const CudaKernel *k)
{
    const PlanLaunch *l = k->launch;
    bool may = k->spec.act_fmt == FMT_BF16 && k->plan->tensor[l->w].packed &&
               k->plan->tensor[l->w].storage == STORAGE_ARENA;
    for (int i = 0, numbers; i < l->num_segments && may; i++)
        if (further_steps(k, &l->segment[i].epilogue, &numbers) > 0 && numbers)
            return true;
    return false;
}

/* .. ptxas spills up to 20 bytes of tiles of 224 columns and more. */
static bool outers_fit(const CudaKernel *k)
{
    return right_rows(k) <= 192 || !keeps_outers(k);
}

/* Sums whose scales change every 32 of K: ptxas spills up to 56 bytes of tiles of 192 columns,
 * whose instructions have all of them, and of 256 where groups of the result are quantised. */
static bool scaled_sums_fit(const CudaKernel *k)
{
    if (k->hopper.promote != 1)
        return true;
    bool quantises = false;
    for (int i = 0; i < k->launch->num_segments; i++)
        quantises = quantises || cuda_program_group(k, &k->launch->segment[i].epilogue) > 0;
    return instruction_columns(k) <= 160 && (right_rows(k) <= 224 || !quantises);
}

static const char *tile_problem(const CudaKernel *k)
{
    if (family_of(k->spec.act_fmt) == FAMILY_MINIFLOAT && !is_fast(k) &&
        (cuda_gives_f32(k) || cuda_amplifies(k)))
        return "sums of 14 bits are too short for results in f32 and for softmax";
    if (!cuda_epilogue_fits(k, part_columns(k)))
        return "a quantisation group or a row does not lie inside its columns";
    if (has_half_run(k) && !halves_fit(k))
        return "its columns of gate and up are no whole runs of 32";
    if (k->hopper.promote && k->spec.parts > 1 && uniform_scales(k) && k->spec.mainloop &&
        k->hopper.bn % 128)
        return "its columns have scales of several blocks";
    if ((adds_in_order(k) && right_rows(k) > most_int_rows(k)) || !scaled_sums_fit(k))
        return "its sums and scaled sums exceed the registers";
    if (!outers_fit(k))
        return "its sums and what they are multiplied by exceed the registers";
    if (k->hopper.stages < 3)
        return "it exceeds the shared memory of a block";
    return NULL;
}

/* The most stages that fit. */
static void fill_ring(const CudaCandidates *c, CudaKernel *k)
{
    k->hopper.stages = 0;
    int64_t room = held_columns(k) ? c->budget : cuda_room(c, k);
    int most = k->hopper.swap && !is_small(k) ? FEW_STAGES : MOST_STAGES;
    int64_t left = (is_small(k) ? cuda_half_room(room) : room) - smem_bytes(k);
    int64_t fit = left < 0 ? 0 : left / ring_bytes(k, 1);
    k->hopper.stages = (int)(fit < most ? fit : most);
}

static int held_sums(const CudaKernel *k) /* of a thread */
{
    return right_rows(k) / 2 + (k->hopper.promote ? instruction_columns(k) / 2 : 32);
}

/* Parts of K that a block adds up by itself in the order of blocks that share a tile: for products
 * whose other buckets are shared. */
static void put_parts_of_k(CudaCandidates *c, CudaKernel *k)
{
    for (int parts = 2; c->like.invariant && teams(k) == 2 && parts <= MOST_SHARES; parts++) {
        k->hopper.parts_of_k = parts;
        if (units(k) % parts == 0 && units(k) / parts >= LEAST_UNITS &&
            held_sums(k) + right_rows(k) / 2 <= PART_SUMS)
            cuda_candidate_valid(c, k);
    }
    k->hopper.parts_of_k = 1;
}

/* Of the tiles that as many rows have as one of them: fewer would leave blocks without a unit. */
static int64_t fewest_units(const CudaKernel *k)
{
    return cuda_ceil_div(k->packed.rows, k->hopper.bn) * units(k);
}

/* Tiles of which several blocks have a share: all processors, or as many as share evenly. */
static void put_shares(CudaCandidates *c, CudaKernel *k)
{
    int64_t tiles = num_tiles(k), processors = k->gpu->processors;
    int64_t even = tiles * (processors / tiles);
    k->hopper.shares = 0;
    k->hopper.parts_of_k = 1;
    cuda_candidate_valid(c, k);
    put_parts_of_k(c, k);
    int held = held_sums(k);
    if (held > SHARE_SUMS || teams(k) > 2 || tiles > CUDA_SPLIT_TILES ||
        units(k) < 2 * LEAST_UNITS || adds_in_order(k))
        return;
    bool uneven = tiles * units(k) / processors >= LEAST_UNITS;
    for (int i = 0; i < 2; i++) {
        k->hopper.shares = (int)(i ? even : processors);
        bool useful = i ? even > tiles && even != processors : uneven && tiles % processors;
        if (useful && k->hopper.shares <= tiles * MOST_SHARES &&
            k->hopper.shares <= fewest_units(k) &&
            tiles * units(k) / k->hopper.shares >= LEAST_UNITS &&
            (k->hopper.swap || tiles < 2 * processors))
            cuda_candidate_valid(c, k);
    }
}

/* .. whose results leave while their blocks multiply the next ones. */
static void put_leaving(CudaCandidates *c, CudaKernel *k)
{
    k->hopper.leaves = !k->hopper.swap && c->rows > LEAST_LEAVING && may_leave(k);
    if (!k->hopper.leaves)
        return;
    k->hopper.shares = 0;
    k->hopper.cluster = 1;
    fill_ring(c, k);
    int most = c->rows > k->hopper.bm ? 2 : 1;
    for (; k->hopper.cluster <= most && !tile_problem(k); k->hopper.cluster++)
        cuda_candidate_valid(c, k);
}

/* A tile of blocks that have all of K each and copy for themselves; without a ring. */
static CudaKernel plain_tile(const CudaCandidates *c, bool swap, int bm, int bn)
{
    CudaKernel k = c->like;
    k.family = CUDA_HOPPER;
    k.hopper =
        (CudaHopper){.swap = swap, .bm = bm, .bn = bn, .parts_of_k = 1, .cluster = 1, .gather = 1};
    k.hopper.promote = promotion(&k);
    return k;
}

static void put_tile(CudaCandidates *c, bool swap, int bm, int bn)
{
    CudaKernel k = plain_tile(c, swap, bm, bn);
    fill_ring(c, &k);
    const char *problem = tile_problem(&k);
    if (problem) {
        cuda_candidate_reject(c, &k, "%s", problem);
        return;
    }
    put_shares(c, &k);
    k.hopper.shares = 0;
    k.hopper.cluster = 2;
    if (!swap && c->rows > bm && !has_half_run(&k))
        cuda_candidate_valid(c, &k);
    put_leaving(c, &k);
}

/* Of the sums that blocks of a cluster send to one of them: those of the runs, or rows, that it
 * finishes (hopper_tiles.cuh: Dealt). */
static int64_t sent_bytes(const CudaKernel *k)
{
    int blocks = k->hopper.gather, all = right_rows(k) / 2;
    int64_t rows = cuda_ceil_div(k->hopper.bm / 8, blocks) * 8;
    int64_t part = k->hopper.swap ? rows / 2 : held_columns(k) / 2 * k->spec.parts;
    int64_t own = cuda_ceil_div(cuda_ceil_div(all, part), blocks);
    return blocks * own * part * 4 * 128 * teams(k);
}

/* Tiles of which the blocks of a cluster have a part of K each, where that occupies most
 * processors, and the ring has places for what they send. */
static void put_gathered(CudaCandidates *c, bool swap, int bm, int bn)
{
    CudaKernel k = plain_tile(c, swap, bm, bn);
    int64_t tiles = num_tiles(&k);
    for (int blocks = 2; blocks <= CUDA_MOST_GATHERED; blocks++)
        if (tiles <= cuda_most_clusters(&k, blocks))
            k.hopper.gather = blocks;
    fill_ring(c, &k);
    if (k.hopper.gather > 1 && 3 * tiles * k.hopper.gather > 2 * k.gpu->processors &&
        !adds_in_order(&k) && units(&k) / k.hopper.gather >= LEAST_UNITS && !tile_problem(&k) &&
        (swap || (held_columns(&k) && !has_half_run(&k))) &&
        sent_bytes(&k) <= k.hopper.stages * stage_bytes(&k))
        cuda_candidate_valid(c, &k);
}

/* A tile of half the columns: where K is not shared out, more processors have one. least: rows of
 * tiles that hold all; 0: too many for one. */
static void put_small_tile(CudaCandidates *c, int least)
{
    int64_t halves = cuda_ceil_div(c->rows, MOST_SMALL);
    for (size_t i = 0; i < COUNT_OF(few_rows) && c->rows <= SMALL_ROWS && !least; i++)
        if (few_rows[i] * halves >= c->rows)
            least = few_rows[i];
    if (least)
        put_tile(c, true, least, 64);
}

/* Rows of w are the left operand of tiles of many rows of a, too, where each has scales along K and
 * those of a do not. (Of 256 rows whose sums are scaled after each instruction ptxas leaves
 * products out: nvrtc.c.) */
static void put_many_right(CudaCandidates *c)
{
    const CudaPackSpec *spec = &c->like.spec;
    if (c->rows <= MOST_SMALL || !spec->mainloop || spec->act_block || uniform_scales(&c->like))
        return;
    put_tile(c, true, 128, 128);
    if (c->rows > 128 && promotion(&c->like) > 1)
        put_tile(c, true, 256, 128);
}

static void put_wide(CudaCandidates *c, int bm, int bn)
{
    put_tile(c, false, bm, bn);
    if (c->rows > bm / 4)
        put_gathered(c, false, bm, bn);
}

/* Three warpgroups hide each other's promotions. Nothing else holds products up, but where 192 rows
 * cut the batch with less left over than 128 do they are as good. */
static void put_three_teams(CudaCandidates *c)
{
    int64_t over = cuda_ceil_div(c->rows, 192) * 192, of_two = cuda_ceil_div(c->rows, 128) * 128;
    bool is_promoted = promotion(&c->like) == 4;
    if (c->rows <= 128 || (!is_promoted && over >= of_two))
        return;
    if (128 / c->like.spec.parts % 32 == 0)
        put_wide(c, 192, 128);
}

/* Few rows of a are the right operand of instructions, whose left one has 64 rows at least. */
static void candidates(CudaCandidates *c)
{
    int least = 0;
    for (size_t i = 0; i < COUNT_OF(few_rows) && c->rows <= 64; i++)
        if (few_rows[i] >= c->rows && !least)
            least = few_rows[i];
    int before = c->num_valid;
    if (least)
        put_tile(c, true, least, 128);
    if (least && least <= MOST_WIDE && c->num_valid == before) /* blocks of columns of two parts */
        put_tile(c, true, least, 256);
    for (int columns = 64; least && columns <= 128; columns *= 2)
        put_gathered(c, true, least, columns);
    if (adds_in_order(&c->like))
        put_small_tile(c, least);
    for (size_t i = 0;
         i < COUNT_OF(wide_tiles) && (c->rows > 32 || c->num_valid == before || c->like.invariant);
         i++)
        if (wide_tiles[i] / c->like.spec.parts % 32 == 0 || wide_tiles[i] == HALF_RUN_TILE)
            put_wide(c, 128, wide_tiles[i]);
    put_many_right(c);
    put_three_teams(c);
}

static void put_numbers(Sb *sb, const CudaKernel *k)
{
    sb_printf(sb, k->hopper.swap ? "%dx%dt" : "%dx%d", k->hopper.bm, k->hopper.bn);
    if (k->hopper.stages)
        sb_printf(sb, " s%d g%d", k->hopper.stages, k->hopper.shares);
    if (k->hopper.parts_of_k > 1)
        sb_printf(sb, " p%d", k->hopper.parts_of_k);
    sb_put(sb, k->hopper.cluster > 1 ? " c2" : "");
    sb_put(sb, k->hopper.leaves ? " bulk" : "");
    if (k->hopper.gather > 1)
        sb_printf(sb, " k%d", k->hopper.gather);
}

/* Text ----------------------------------------------------------------------------------------- */

/* Tiles along M of a band: as many as have rows of the activation that L2 keeps while the weight,
 * which is then read once, passes; of few, else, so that a wave shares columns, too. */
static int band(const CudaKernel *k)
{
    double rows = BAND_BYTES * 8 / ((double)k->spec.k * format_info[k->spec.act_fmt].bits);
    int tiles = LEAST_BAND;
    while (tiles < MOST_BAND && 2 * tiles * 128 <= rows)
        tiles *= 2;
    return tiles / k->hopper.cluster / (has_many_right(k) ? cuda_ceil_div(k->hopper.bm, 128) : 1);
}

static void put_config(Sb *sb, const CudaKernel *k)
{
    bool blocks = k->spec.mainloop && k->spec.block_cols && k->spec.block_cols < k->spec.k;
    cuda_put_product(sb, k);
    cuda_put_schemes(sb, k);
    cuda_put_int(sb, "kWBlockK", blocks ? k->spec.block_cols : 0);
    sb_line(sb, "static constexpr int64_t kWScaleAt = %" PRId64 ";", k->packed.scale_at);
    cuda_put_bool(sb, "kWDecoded", k->plan->tensor[k->launch->w].storage == STORAGE_ARENA);
    cuda_put_int(sb, "kBM", k->hopper.bm);
    cuda_put_int(sb, "kBoxRows", box_rows(k));
    cuda_put_int(sb, "kBN", k->hopper.bn);
    cuda_put_int(sb, "kPassRows", pass_rows(k));
    cuda_put_int(sb, "kStages", k->hopper.stages);
    cuda_put_int(sb, "kBand", band(k));
    cuda_put_int(sb, "kCluster", k->hopper.cluster);
    cuda_put_bool(sb, "kSwap", k->hopper.swap);
    cuda_put_bool(sb, "kShare", k->hopper.shares > 0);
    cuda_put_int(sb, "kGather", k->hopper.gather);
    cuda_put_int(sb, "kPartsOfK", k->hopper.parts_of_k);
    cuda_put_int(sb, "kPromote", k->hopper.promote);
    cuda_put_bool(sb, "kWUniform", uniform_scales(k));
    cuda_put_bool(sb, "kAScaleBox", boxes_scales(k));
    cuda_put_int(sb, "kCols", part_columns(k));
    cuda_put_int(sb, "kSplitSums", CUDA_SPLIT_SUMS);
    cuda_put_int(sb, "kSmemBytes", smem_bytes(k));
    cuda_put_bool(sb, "kLeaves", k->hopper.leaves);
    cuda_put_groups(sb, k);
}

static const char *type_word(FormatId fmt)
{
    switch (fmt) {
    case FMT_E4M3: return "e4m3";
    case FMT_E5M2: return "e5m2";
    case FMT_I8: return "s8";
    case FMT_U8: return "u8";
    case FMT_F16: return "f16";
    default: return "bf16";
    }
}

/* PTX ISA, "wgmma.mma_async": sums in n / 2 registers, both operands in shared memory. */
static void put_parts(Sb *sb, const CudaKernel *k)
{
    int n = instruction_columns(k), num = n / 2;
    bool ints = is_int(k), wide = format_info[k->spec.act_fmt].bits == 16;
    FormatId left = k->hopper.swap ? k->spec.fmt : k->spec.act_fmt;
    FormatId right = k->hopper.swap ? k->spec.act_fmt : k->spec.fmt;
    sb_line(sb, "struct Product {");
    sb_line(sb, "    static constexpr int kN = %d;", n);
    sb_line(sb, "    static __device__ __forceinline__ void add(");
    sb_line(sb, "        %s *d, uint64_t left, uint64_t right, int keep)",
            ints ? "int32_t" : "float");
    sb_line(sb, "    {");
    sb_printf(sb,
              "        asm volatile(\"{\\n.reg .pred keep;\\nsetp.ne.b32 keep, %%%d, 0;\\n\"\n"
              "            \"wgmma.mma_async.sync.aligned.m64n%dk%d.%s.%s.%s {",
              num + 2, n, wide ? 16 : 32, ints ? "s32" : "f32", type_word(left), type_word(right));
    cuda_put_list(sb, "%%%d", num);
    sb_printf(sb, "}, %%%d, %%%d, keep%s;\\n}\"\n            : ", num, num + 1,
              ints   ? ""
              : wide ? ", 1, 1, 0, 0"
                     : ", 1, 1");
    cuda_put_list(sb, ints ? "\"+r\"(d[%d])" : "\"+f\"(d[%d])", num);
    sb_put(sb, "\n            : \"l\"(left), \"l\"(right), \"r\"(keep));\n");
    sb_line(sb, "    }");
    sb_line(sb, "};");
}

/* Where the results of a row and its tile belong, from column n0 of each part on. */
static void put_leave(Sb *sb, const CudaKernel *k)
{
    sb_line(sb, "static __device__ __forceinline__ char *leave(");
    sb_line(sb, "    const Params &p, const Operand &a, int64_t m, int n0)");
    sb_line(sb, "{");
    for (int i = 0; i < k->launch->num_segments; i++) {
        const PlanSegment *s = &k->launch->segment[i];
        sb_line(sb, "    if (n0 >= %" PRId64 " && n0 < %" PRId64 ")", s->n_begin,
                cuda_segment_end(k, s));
        sb_line(sb, "        return %s + (n0 - %" PRId64 ") * 2;",
                cuda_program_result(sb, k, &s->epilogue), s->n_begin);
    }
    sb_line(sb, "    return NULL;");
    sb_line(sb, "}");
}

/* Whole tiles of 128 columns would spill up to 196 bytes: all their loads come first. (Those that
 * fit took as long column by column.) */
static bool loads_too_much(const CudaKernel *k)
{
    for (int i = 0; i < k->launch->num_segments; i++)
        if (cuda_program_works_on_rows(k, &k->launch->segment[i].epilogue))
            return true;
    return keeps_outers(k);
}

/* The epilogue over the fragments' registers: each call gets some columns of two rows. */
static bool put_held(Sb *sb, const CudaKernel *k)
{
    int columns = held_columns(k);
    int64_t part = part_columns(k);
    bool deals = k->hopper.gather > 1; /* each block of the cluster has some of the columns */
    bool whole = cuda_in_segments(k, part) && !loads_too_much(k) && !deals && !has_half_run(k);
    cuda_put_fragments(sb, k, columns, whole ? part : columns,
                       k->hopper.leaves
                           ? "(place + lower * 8 * HopperShape<Cfg, Product>::kLeavePitch + "
                             "(acc.from + i / 2 * kCols) * 2)"
                           : "0");
    if (columns && has_half_run(k))
        cuda_put_half_run(sb, k);
    if (columns && k->hopper.leaves)
        put_leave(sb, k);
    return columns > 0;
}

/* A block may cut a tile of its own as blocks that share it evenly. What an instruction adds up
 * does not depend on which operand is the left one, or on how many rows and columns it has
 * (docs/numerics.md). */
static bool put_order(Sb *sb, const CudaKernel *k)
{
    if (k->hopper.promote)
        sb_printf(sb, " promoted every %d", k->hopper.promote * elements(k) / 4);
    int parts = k->hopper.parts_of_k * k->hopper.gather;
    if (parts > 1)
        sb_printf(sb, " in %d parts of K", parts);
    if (units(k) % k->hopper.gather)
        return false;
    return cuda_put_shares(sb, k, k->hopper.shares, num_tiles(k), units(k));
}

static void describe(Sb *sb, const CudaKernel *k)
{
    sb_printf(sb, " %dx%d%s, %d stages, wgmma %s", k->hopper.bm, k->hopper.bn,
              k->hopper.swap ? ", transposed" : "", k->hopper.stages, type_word(k->spec.act_fmt));
    if (k->hopper.promote)
        sb_printf(sb, ", promoted every %d", k->hopper.promote * elements(k) / 4);
    if (k->hopper.shares)
        sb_put(sb, ", K shared out");
    if (k->hopper.parts_of_k > 1)
        sb_printf(sb, ", K in %d parts", k->hopper.parts_of_k);
    if (k->hopper.cluster > 1)
        sb_put(sb, ", clusters of 2");
    if (k->hopper.gather > 1)
        sb_printf(sb, ", K over clusters of %d", k->hopper.gather);
    if (k->hopper.leaves)
        sb_put(sb, ", results by bulk copies");
    if (!held_columns(k))
        sb_put(sb, ", epilogue in shared memory");
}

/* Time ----------------------------------------------------------------------------------------- */

/* Fitted to the shipped times of an H200 (docs/timings.md), as it clocks under load. */
#define CLOCK       1755.0  /* cycles a microsecond */
#define MMA_BUSY    0.735   /* of their rate that instructions of 256 columns reach, .. */
#define NARROW      0.04    /* .. of which 128 take so much more, 64 three times that, .. */
#define MMA_PROMOTE 0.965   /* .. and of that where sums are promoted once a unit */
#define EACH_US     0.096   /* of a promotion once a unit, of integers or by a scale a column, .. */
#define EACH_COL_US 0.00077 /* .. and of each column of it; */
#define RIGHT_COL   0.00064 /* .. of one where rows of w with scales are on the left, .. */
#define RIGHT_INT   0.00098 /* .. and of integers; */
#define SCALED_US   0.049   /* of a promotion where a unit has several, which wait, .. */
#define COLUMN_US   0.0017  /* .. and of each column of it; */
#define HALF        0.83    /* of that where an instruction has half the tile's columns */
#define L2_BYTES    9.0e6   /* a microsecond, of all processors .. */
#define L2_EACH     1.03e5  /* .. and of one at most */
#define MEMORY      4.7e6
#define MEMORY_EACH 1.1e5
#define UNIT_US     0.06  /* least time of a unit */
#define START_US    0.6   /* until the first unit is there */
#define TILE_US     0.3   /* of an epilogue that nothing hides, .. */
#define LEAVES_US   0.15  /* .. and of one whose results leave in the background */
#define GATHER_US   2.7   /* of sums that blocks share, .. */
#define GATHER_FEW  1.6   /* .. where a is the right operand, .. */
#define GATHER_COL  0.046 /* .. and of each column of them */
#define CLUSTER_US  0.2   /* .. of a cluster that send them, .. */
#define CLUSTER_COL 0.031 /* .. and of each column, of many rows */
#define FOLD_US     0.1   /* of a part of K */

/* What promotions add to a unit that has several. Measured with four; two are taken for half. */
static double scaled_us(const CudaKernel *k)
{
    double halves = right_rows(k) / instruction_columns(k);
    double each = (SCALED_US + COLUMN_US * instruction_columns(k)) * (halves > 1 ? HALF : 1);
    return 4.0 / k->hopper.promote * halves * each;
}

/* A unit's products and promotions. */
static double compute_us(const CudaKernel *k)
{
    double columns = right_rows(k), us = 2.0 * teams(k) * columns / CLOCK / MMA_BUSY;
    if (columns >= 64)
        us *= 1 + NARROW * (256 / columns - 1);
    if (k->hopper.promote == 4 && teams(k) < 3)
        us /= MMA_PROMOTE;
    else if (k->hopper.promote && k->hopper.promote < 4)
        us += scaled_us(k);
    bool is_each = adds_in_order(k) || (k->spec.mainloop && !uniform_scales(k));
    if (k->hopper.promote == 4 && has_many_right(k))
        us += (is_int(k) ? RIGHT_INT : RIGHT_COL) * columns;
    else if (k->hopper.promote == 4 && is_each)
        us += EACH_US + EACH_COL_US * columns;
    return us;
}

static double predict(const CudaKernel *k, const CudaGeometry *g)
{
    double processors = k->gpu->processors, weights = (double)k->packed.bytes;
    double tiles = (double)num_tiles(k), each = (double)units(k);
    double blocks = (double)g->grid, side_by_side = fmin(blocks, processors * per_processor(k));
    double sharing = fmax(1, side_by_side / processors); /* blocks of a processor */
    double busiest = k->hopper.shares ? ceil(tiles * each / blocks) : ceil(tiles / blocks) * each;
    if (k->hopper.gather > 1)
        busiest = ceil(each / k->hopper.gather);
    double rows = k->hopper.bm + (double)k->hopper.bn / k->hopper.cluster; /* that a block copies */
    double read = rows * UNIT_BYTES / fmin(L2_BYTES / side_by_side, L2_EACH / sharing);
    double us = busiest * fmax(UNIT_US, fmax(compute_us(k) * sharing, read));
    bool is_even = k->hopper.shares || k->hopper.gather > 1;
    us = fmax(us, cuda_waves_us(weights, is_even ? blocks : tiles, blocks, MEMORY_EACH, MEMORY));
    double folds = k->hopper.parts_of_k > 1 ? FOLD_US * k->hopper.parts_of_k : 0;
    double end = k->hopper.leaves && tiles > blocks ? LEAVES_US : TILE_US;
    double gather = (k->hopper.swap ? GATHER_FEW : GATHER_US) + GATHER_COL * right_rows(k);
    if (k->hopper.shares)
        return us + START_US + gather + end + folds;
    if (k->hopper.gather > 1 && !k->hopper.swap)
        end += CLUSTER_US + CLUSTER_COL * right_rows(k);
    return us + START_US + (end + folds) * ceil(tiles / blocks);
}

static int begins(const CudaKernel *k)
{
    return cuda_parts_begun(k->hopper.shares, num_tiles(k), k->hopper.gather);
}

const CudaFamilyRow cuda_hopper = {
    .instruction = "wgmma",
    .serves = "sm_90a",
    .launch = LAUNCH_GEMM,
    .seed = 2,
    .slowness = 4,
    .min_blocks_of = per_processor,
    .layouts = 1 << CUDA_PANELS,
    .aligned = true,
    .takes = takes,
    .candidates = candidates,
    .tile = tile,
    .put_numbers = put_numbers,
    .loads_freely = loads_freely,
    .leaves = leaves,
    .many_rows = has_many_right,
    .geometry = geometry,
    .predict = predict,
    .put_config = put_config,
    .put_parts = put_parts,
    .put_held = put_held,
    .call = {"hopper<Cfg, Product, Epilogue>"},
    .describe = describe,
    .put_order = put_order,
    .looks_ahead = true,
    .begins = begins,
};
