/* codegen/cuda/mixed: products for compute capability 9.0 whose weights are decoded in registers
 * (kernels/cuda/mixed.cuh): which the family takes, their tiles, and their own text. */
#include "codegen/cuda/mixed.h"

#include <inttypes.h>

#define MOST_STAGES  8
#define COPIERS      4   /* warps that fill the ring, each its own stages where some take turns */
#define LEAST_UNITS  4   /* of a share of a tile */
#define MOST_SHARES  8   /* of one */
#define MOST_ROUNDS  3   /* .. before a rest */
#define MOST_SUMS    160 /* registers of a thread: sums of the tile and of a block of K */
#define GROUP_SUMS   112 /* .. of units of integers, where blocks go from group to group of rows */
#define SHARE_SUMS   128 /* .. where sums are gathered */
#define FEW_SUMS     112 /* .. where three warpgroups multiply */
#define SHARE_FEW    96
#define THREE_SUMS   124  /* .. of them at once: ptxas has 128 registers for 512 threads */
#define CLUSTER_SUMS 80   /* .. and blocks are clusters */
#define ONE_SUMS     64   /* .. where one does */
#define MOST_OF_ONE  64   /* rows of a */
#define MOST_OF_FOUR 64   /* .. where four do */
#define MOST_OF_TWO  128  /* .. where two take turns */
#define FOUR_SUMS    64   /* .. of each, those of a block of K among them, .. */
#define FOUR_FEW     48   /* .. where sums are gathered, .. */
#define FOUR_PIECES  32   /* .. beside codes in several pieces, .. */
#define FOUR_APART   24   /* .. where units are added to others without a scale of theirs */
#define PLACE_SUMS   128  /* .. of two warpgroups, in place, .. */
#define PLACE_FEW    112  /* .. of codebooks with two scales a unit, or zero points with four, .. */
#define PLACE_THREE  96   /* .. of three, .. */
#define PLACE_FOUR   64   /* .. of four */
#define LEAST_PLACED 64   /* rows of a */
#define FEW_UNFOLDED 16   /* rows of a: each block of K has its sums scaled */
#define CODE_WORDS   16   /* of a unit, more for some weights than for others */
#define PASS_ROWS    32   /* of a, staged at once */
#define WHOLE_ROWS   32   /* of a: the loop over K takes several units at once, .. */
#define MOST_AT_ONCE 4    /* .. so many */
#define ALIGN_BYTES  1024 /* of the ring: a swizzled atom of 8 rows */

/* Products of 16-bit floats of which the weight alone has scales. Sums that are not promoted are
 * too short for results in f32. */
static bool can_add_in_place(const CudaKernel *k)
{
    return k->spec.mainloop && !has_bytes(k) && !k->plan->tensor[k->launch->a].quantised &&
           !k->invariant && !k->spec.bits && !cuda_gives_f32(k) && !cuda_amplifies(k);
}

/* Scales that codes have been multiplied by leave nothing to do for sums of blocks: tensor cores
 * then add up all of K, where sums may be in place. */
static bool adds_blocks(const CudaKernel *k)
{
    return promotes(k) && !(k->packed.folded && can_add_in_place(k));
}

/* Integers whose blocks of K are scaled: added in one order, so that no K is shared out. */
static bool adds_in_order(const CudaKernel *k)
{
    return k->packed.exact && k->spec.mainloop;
}

/* Which products the family takes -------------------------------------------------------------- */

/* A block of K that ends where steps do, and units if it is longer than one. */
static bool block_fits(int64_t block, int64_t k)
{
    return !block || block >= k || block == 32 || block == 64 || block % UNIT == 0;
}

/* The operands of an instruction can be had: the activation as it is, the weight decoded to its
 * type. (Pairs of 8 bits are better off as they are but where sums have one order.) */
static bool multiplies(const CudaPackSpec *spec, const CudaPacked *packed)
{
    bool nibbles = format_info[spec->fmt].bits == 4;
    switch (spec->act_fmt) {
    case FMT_BF16: return packed->home == CUDA_HOME_BF16;
    case FMT_F16: return packed->home == CUDA_HOME_F16;
    case FMT_I8:
    case FMT_U8: return packed->home == CUDA_HOME_I8 && (nibbles || spec->mainloop);
    case FMT_E4M3:
    case FMT_E5M2:
        return (spec->fmt == FMT_E2M1 || spec->fmt == FMT_I4 || spec->fmt == FMT_U4) &&
               !packed->zeros && !packed->folded;
    default: return false;
    }
}

/* Integers are added in one order: a block ends inside a unit. */
static bool takes(const CudaPackSpec *spec)
{
    CudaPackSpec records = *spec;
    CudaPacked packed;
    records.layout = CUDA_RECORDS;
    int bits = format_info[spec->fmt].bits;
    if (spec->table || family_of(spec->fmt) == FAMILY_FLOAT || spec->fmt == FMT_E8M0 ||
        !cuda_pack_plan(&records, &packed) || (bits != 4 && bits != 8))
        return false;
    if (!multiplies(spec, &packed))
        return false;
    if (spec->factored && spec->block_cols < spec->k && spec->block_cols % 32)
        return false;
    if (!spec->mainloop)
        return true;
    return !spec->act_zero && block_fits(packed.folded ? 0 : spec->block_cols, spec->k) &&
           block_fits(spec->act_block, spec->k) &&
           (!packed.exact || (packed.block_k && packed.block_k <= UNIT));
}

/* Sizes of kernels ----------------------------------------------------------------------------- */

static int64_t stage_bytes(const CudaKernel *k)
{
    int64_t bytes = k->mixed.bm * (int64_t)(has_bytes(k) ? 1 : 2) * BOX_BYTES +
                    columns(k) / CUDA_GROUP_ROWS * k->packed.record;
    if (scales_act(k))
        bytes += act_scales(k) * k->mixed.bm * 4;
    return cuda_ceil_div(bytes, ALIGN_BYTES) * ALIGN_BYTES;
}

static int pass_rows(const CudaKernel *k)
{
    int rows = 8;
    if (k->mixed.fragments)
        return k->mixed.fragments;
    while (k->mixed.gather > 1 && /* each block of a cluster has one pass at most */
           (rows * k->mixed.gather < k->mixed.bm || k->mixed.bm % rows))
        rows += 8;
    if (k->mixed.gather > 1)
        return rows;
    return k->mixed.bm % PASS_ROWS ? k->mixed.bm % 16 ? 8 : 16 : PASS_ROWS;
}

static int num_sums(const CudaKernel *k) /* of a thread */
{
    return k->mixed.slabs * k->mixed.bm / 2;
}

/* .. and of a block of K beside them. */
static int held_sums(const CudaKernel *k)
{
    return num_sums(k) + (promotes(k) ? k->mixed.bm / 2 : 0);
}

static bool has_pieces(const CudaKernel *k)
{
    return family_of(k->spec.fmt) == FAMILY_CODEBOOK && cuda_codebook_pieces(k) > 1;
}

/* Registers that three warpgroups need beside 16-bit floats where weights lie as fragments: for
 * codebooks in two pieces or with two scales a unit, and for e2m1 with one; where results are f32,
 * for scales that are folded into codes, and for zero points with several a unit. */
static int fragment_words(const CudaKernel *k)
{
    bool halves = family_of(k->spec.fmt) == FAMILY_CODEBOOK && k->packed.block_k == UNIT / 2;
    if (k->packed.layout != CUDA_FRAGMENTS || has_bytes(k))
        return 0;
    if (has_pieces(k))
        return 2 * CODE_WORDS;
    int64_t block = k->packed.block_k;
    bool others = (k->packed.folded && !block) || (k->packed.zeros && block < UNIT);
    return promotes(k) && (halves || (k->spec.fmt == FMT_E2M1 && block >= UNIT) ||
                           (others && cuda_gives_f32(k)))
               ? CODE_WORDS
               : 0;
}

/* What ptxas says of three warpgroups: bytes with a scale a unit need fewer registers beside the
 * sums than the others, and clusters more. Beside 16-bit floats codes of 8 bits and signed ones
 * need more, and zero points and codebooks do where K is cut into parts; beside bytes those of 8
 * bits do, four scales a unit, parts of K, and gate and up beside scales that a tile has. */
static bool needs_more(const CudaKernel *k, bool is_fine)
{
    bool is_cut = k->mixed.parts_of_k > 1;
    int bits = format_info[k->spec.fmt].bits;
    if (has_bytes(k))
        return (is_fine && k->packed.block_k < UNIT / 2) || is_cut || bits == 8;
    return bits == 8 || k->spec.fmt == FMT_I4 ||
           (is_cut && (family_of(k->spec.fmt) == FAMILY_CODEBOOK || k->packed.zeros));
}

/* Four have no room for several blocks a unit beside most sums, of integers or, all at once, of
 * 8-bit floats; nor in turn for gate and up beside these. */
static bool has_few_of_four(const CudaKernel *k, bool is_fine)
{
    if (is_int(k))
        return is_fine;
    return has_bytes(k) &&
           ((is_fine && k->mixed.turns == 1) || (k->mixed.turns == 4 && k->spec.parts > 1));
}

static int most_sums(const CudaKernel *k)
{
    bool is_fine = k->packed.block_k && k->packed.block_k < UNIT;
    if (k->mixed.in_place)
        return k->mixed.teams == 4   ? PLACE_FOUR
               : k->mixed.teams == 3 ? PLACE_THREE
               : is_fine && (family_of(k->spec.fmt) == FAMILY_CODEBOOK ||
                             (k->packed.zeros && k->packed.block_k < UNIT / 2))
                   ? PLACE_FEW
                   : PLACE_SUMS;
    if (k->mixed.teams == 4)
        return is_apart(k)                   ? FOUR_APART
               : has_pieces(k)               ? FOUR_PIECES
               : has_few_of_four(k, is_fine) ? FOUR_FEW
                                             : FOUR_SUMS;
    if (k->mixed.teams == 2 && k->mixed.slabs == 1 && k->groups && is_int(k) && promotes(k) &&
        !is_fine && !scales_act(k))
        return GROUP_SUMS;
    if (k->mixed.teams < 3)
        return is_small(k) ? ONE_SUMS : MOST_SUMS;
    if (k->mixed.cluster > 1)
        return CLUSTER_SUMS;
    int sums = is_fine || !has_bytes(k) ? FEW_SUMS : promotes(k) ? SHARE_SUMS : THREE_SUMS;
    if (is_fine && is_int(k))
        sums -= CODE_WORDS * k->packed.neighbours / 4;
    return sums - (promotes(k) && needs_more(k, is_fine) ? CODE_WORDS : 0) - fragment_words(k);
}

/* .. where sums are gathered. */
static int most_shared_sums(const CudaKernel *k)
{
    bool is_finer = !has_bytes(k) && k->packed.block_k && k->packed.block_k < UNIT / 2;
    if (k->mixed.in_place)
        return most_sums(k);
    if (k->mixed.teams == 4)
        return is_apart(k) || has_pieces(k) ? most_sums(k)
               : k->mixed.turns > 1         ? FOUR_SUMS
                                            : FOUR_FEW;
    return k->mixed.teams == 2 || is_finer ? SHARE_SUMS : SHARE_FEW;
}

/* Of the tiles that as many rows have as one of them: fewer would leave blocks without a unit. */
static int64_t fewest_units(const CudaKernel *k)
{
    return cuda_ceil_div(k->packed.rows, columns(k)) * units(k);
}

static CudaTile tile(const CudaKernel *k) /* as it ends */
{
    return (CudaTile){k->mixed.bm, k->mixed.rest ? CUDA_GROUP_ROWS : columns(k)};
}

/* Of the sums of a tile. */
static int64_t piece_bytes(const CudaKernel *k)
{
    return 128 * k->mixed.teams * (int64_t)num_sums(k) * 4;
}

/* Rows of the tile, or its total over parts of K, or sums that are added to the first turn's. */
static int64_t staged_bytes(const CudaKernel *k)
{
    int64_t ends = tile(k).cols, others = 0;
    int64_t rows = pass_rows(k) * (ends + 4) * 4 * (columns(k) / ends);
    if (k->mixed.parts_of_k > 1 && !k->mixed.shares)
        others = piece_bytes(k);
    else if (k->mixed.turns > 1)
        others = piece_bytes(k) / k->mixed.turns * (k->mixed.turns - 1);
    return rows > others ? rows : others;
}

/* A ring, rows or totals, and values of pairs of codes. */
static int64_t smem_bytes(const CudaKernel *k)
{
    int64_t bytes = k->mixed.stages * stage_bytes(k) + staged_bytes(k);
    int64_t table = cuda_pair_table_bytes(k);
    return (table ? cuda_ceil_div(bytes, 128) * 128 + table : bytes) + ALIGN_BYTES;
}

static int64_t launched_bytes(const CudaKernel *k)
{
    return is_small(k) ? cuda_half_bytes(k, smem_bytes(k), num_tiles(k) * cuda_groups_busy(k))
                       : smem_bytes(k);
}

/* The groups of rows of w that rounds leave over, from this one on. */
static int64_t rest_from(const CudaKernel *k)
{
    return rest_rounds(k) * (k->mixed.teams - 1) * k->gpu->processors;
}
static int64_t rest_groups(const CudaKernel *k)
{
    return k->packed.rows / CUDA_GROUP_ROWS - rest_from(k);
}

/* Places for two shares of each block, or for all parts of each tile or of what is left over. */
static int64_t workspace_bytes(const CudaKernel *k)
{
    int64_t places =
        k->mixed.parts_of_k > 1 ? num_tiles(k) * k->mixed.parts_of_k : 2 * (int64_t)k->mixed.shares;
    if (k->mixed.rest)
        return CUDA_SPLIT_SUMS + rest_groups(k) * k->mixed.rest * (piece_bytes(k) / k->mixed.teams);
    return k->mixed.shares ? CUDA_SPLIT_SUMS + places * piece_bytes(k) : 0;
}

static CudaGeometry geometry(const CudaKernel *k)
{
    bool is_fixed = k->mixed.gather > 1 || k->mixed.rest; /* each has its own part, on any GPU */
    return (CudaGeometry){.blocks = k->mixed.rest ? k->gpu->processors
                                    : k->mixed.shares
                                        ? k->mixed.shares
                                        : num_tiles(k) * cuda_groups_busy(k) * k->mixed.gather,
                          .walks_groups = k->groups > 0,
                          .per_processor = is_fixed ? 0 : per_processor(k),
                          .cluster = k->mixed.cluster * k->mixed.gather,
                          .block = 128 * (k->mixed.teams + 1), /* a warpgroup copies */
                          .smem = launched_bytes(k),
                          .workspace = workspace_bytes(k),
                          .num_maps = 1,
                          .map = {{.operand = k->launch->num_operands,
                                   .element_bytes = 1,
                                   .box_rows = k->mixed.bm / k->mixed.cluster,
                                   .box_bytes = BOX_BYTES,
                                   .swizzle = BOX_BYTES,
                                   .bytes = k->spec.k * format_info[k->spec.act_fmt].bits / 8}}};
}

/* Candidates ----------------------------------------------------------------------------------- */

static const struct { /* of 64 rows: warpgroups, slabs of each, and how many take turns */
    int teams, slabs, turns;
} weight_tiles[] = {{1, 1, 1}, {2, 1, 1}, {3, 1, 1}, {4, 1, 1},
                    {2, 2, 1}, {2, 1, 2}, {4, 1, 2}, {4, 1, 4}};
static const int token_tiles[] = {8, 16, 24, 32, 48, 64, 96, 112, 128, 192, 256};

static const char *tile_problem(const CudaKernel *k)
{
    if (!cuda_epilogue_fits(k, columns(k) / k->spec.parts))
        return "a quantisation group or a row does not lie inside its columns";
    if (has_bytes(k) && !is_int(k) && (cuda_gives_f32(k) || cuda_amplifies(k)))
        return "sums of 14 bits are too short for results in f32 and for softmax";
    if (has_pieces(k) && (is_apart(k) || (cuda_codebook_pieces(k) > 2 && !cuda_amplifies(k))))
        return "its sums and the pieces of its codes exceed the registers";
    if (held_sums(k) > most_sums(k))
        return "its sums and scaled sums exceed the registers";
    if (k->mixed.stages < 3 || k->mixed.stages <= k->mixed.turns)
        return "it exceeds the shared memory of a block";
    return NULL;
}

/* The loop over K takes several units at once (mixed_tile.cuh, kAtOnce). */
static bool takes_several(const CudaKernel *k)
{
    const CudaMixed *m = &k->mixed;
    bool is_fine = k->packed.block_k && k->packed.block_k < UNIT;
    return m->slabs == 1 && !m->shares && m->parts_of_k == 1 &&
           (m->in_place ? m->bm <= LEAST_PLACED && !is_fine
                        : m->bm <= WHOLE_ROWS && !is_int(k) && (m->teams == 4 || m->turns > 1));
}

/* A block's units are whole turns of so many. */
static bool fits_turn(const CudaKernel *k, int n)
{
    int rest = k->mixed.rest ? k->mixed.rest : 1;
    return units(k) % (k->mixed.gather * k->mixed.turns * n * rest) == 0;
}

/* The most stages that fit, or nearly as many of which several units are taken at once. */
static void fill_ring(const CudaCandidates *c, CudaKernel *k)
{
    k->mixed.stages = 0;
    int64_t room = is_small(k) ? cuda_half_room(cuda_room(c, k)) : cuda_room(c, k);
    int64_t left = room - smem_bytes(k), fit = left < 0 ? 0 : left / stage_bytes(k);
    int most = MOST_STAGES * (k->mixed.turns > 2 ? 2 : 1), step = k->mixed.turns > 1 ? COPIERS : 1;
    k->mixed.stages = (int)(fit < most ? fit : most) / step * step;
    for (int n = MOST_AT_ONCE; n > 1 && takes_several(k); n--) {
        int stages = k->mixed.stages / (k->mixed.turns * n) * (k->mixed.turns * n);
        if (fits_turn(k, n) && 4 * stages >= 3 * k->mixed.stages && stages % step == 0) {
            k->mixed.stages = stages;
            return;
        }
    }
}

/* .. or fewer, of which more units are taken at once: decoding them may take longer than memory.
 * false: there are none. */
static bool halve_ring(CudaKernel *k)
{
    for (int n = MOST_AT_ONCE; n > 1 && takes_several(k); n--) {
        int turn = k->mixed.turns * n, stages = k->mixed.stages / turn * turn;
        if (fits_turn(k, n) && 2 * stages > k->mixed.stages && k->mixed.stages % turn) {
            k->mixed.stages = stages;
            return stages % (k->mixed.turns > 1 ? COPIERS : 1) == 0;
        }
    }
    return false;
}

/* Parts of K that blocks add up one after the other, in one order for all sizes: those of a tile
 * of their own, or of one that `sharers` share evenly. */
static void put_parts_of_k(CudaCandidates *c, const CudaKernel *like, int64_t sharers)
{
    if (!like->invariant || is_int(like) || like->mixed.turns > 1) /* turns are parts themselves */
        return;
    for (int parts = 2; parts <= MOST_SHARES; parts *= 2) {
        CudaKernel k = *like;
        k.mixed.parts_of_k = parts;
        if (sharers == 1)
            fill_ring(c, &k);
        if (units(&k) % parts == 0 && units(&k) / parts >= LEAST_UNITS && parts % sharers == 0 &&
            parts > sharers && k.mixed.stages >= 3 && held_sums(&k) <= most_sums(&k))
            cuda_candidate_valid(c, &k);
    }
}

static void put_rings(CudaCandidates *c, const CudaKernel *like)
{
    CudaKernel k = *like;
    cuda_candidate_valid(c, &k);
    if (halve_ring(&k) && !tile_problem(&k))
        cuda_candidate_valid(c, &k);
}

/* Tiles of which several blocks have a share: all processors, or as many as share evenly. (Of two
 * warpgroups in turn ptxas spilled what copiers keep of both.) */
static void put_shares(CudaCandidates *c, CudaKernel *k)
{
    int64_t tiles = num_tiles(k), processors = k->gpu->processors;
    int64_t even = tiles * (processors / tiles);
    bool turning = k->mixed.turns > 1;
    k->mixed.shares = 0;
    put_rings(c, k);
    put_parts_of_k(c, k, 1);
    if (num_sums(k) + 32 > SHARE_SUMS || held_sums(k) > most_shared_sums(k) ||
        tiles > CUDA_SPLIT_TILES || units(k) < 2 * LEAST_UNITS || adds_in_order(k) ||
        k->mixed.turns == 2)
        return;
    for (int i = 0; i < 2; i++) {
        k->mixed.shares = (int)(i ? even : processors);
        fill_ring(c, k);
        bool useful = i ? even > tiles && (turning || even != processors)
                        : !turning && tiles % processors != 0; /* even ones were always faster */
        useful = useful && k->mixed.shares <= fewest_units(k);
        if (useful && k->mixed.shares <= tiles * MOST_SHARES &&
            tiles * units(k) / k->mixed.shares >= LEAST_UNITS && tiles < 4 * processors)
            cuda_candidate_valid(c, k);
        if (useful && i && k->mixed.shares <= tiles * MOST_SHARES)
            put_parts_of_k(c, k, processors / tiles);
    }
}

/* Runs of columns of each part that warps have of the rows of a pass, 16 each. */
static int64_t run_columns(const CudaKernel *k)
{
    return tile(k).cols / k->spec.parts * (k->mixed.fragments / 16) / (4 * k->mixed.teams);
}

static int fragment_columns(const CudaKernel *k)
{
    return k->mixed.fragments ? cuda_fragment_columns(k, run_columns(k)) : 0;
}

/* The epilogue may get so many rows of a at once as fragments. (Registers of four warpgroups do not
 * suffice, nor of three where sums are gathered, nor of any for several results beside zero points:
 * ptxas spilled up to 28 bytes.) */
static bool takes_fragments(const CudaKernel *like, int rows)
{
    CudaKernel k = *like;
    int warps = 4 * k.mixed.teams, groups = rows / 16;
    k.mixed.fragments = rows;
    if (k.packed.zeros && k.launch->num_segments > 1)
        return false;
    return k.mixed.teams <= (k.mixed.gather > 1 ? 2 : 3) && k.mixed.turns == 1 && rows % 16 == 0 &&
           k.mixed.bm % rows == 0 && warps % groups == 0 &&
           tile(&k).cols / k.spec.parts % (warps / groups) == 0 && fragment_columns(&k) > 0;
}

/* Tiles of which the blocks of a cluster have a part of K each: as many blocks as occupy the most
 * processors. */
static void put_gathered(CudaCandidates *c, const CudaKernel *like)
{
    CudaKernel k = *like;
    int64_t tiles = num_tiles(&k);
    if (adds_in_order(&k))
        return;
    for (int blocks = 2; blocks <= CUDA_MOST_GATHERED; blocks++)
        if (tiles <= cuda_most_clusters(&k, blocks))
            k.mixed.gather = blocks;
    fill_ring(c, &k);
    if (k.mixed.gather > 1 && units(&k) / k.mixed.gather >= LEAST_UNITS && !tile_problem(&k) &&
        k.mixed.stages * stage_bytes(&k) >= k.mixed.gather * pass_rows(&k) * 4 * columns(&k)) {
        put_rings(c, &k);
        if (takes_fragments(&k, pass_rows(&k))) {
            k.mixed.fragments = pass_rows(&k);
            cuda_candidate_valid(c, &k);
        }
    }
}

/* Where whole tiles would leave some processors without one: rounds of all of them, three groups of
 * rows of w each, and the groups that are left over by several blocks each or, beside two rounds,
 * one (mixed_rest.cuh). */
static void put_rest(CudaCandidates *c, const CudaKernel *like)
{
    CudaKernel k = *like;
    int64_t processors = k.gpu->processors;
    if (k.mixed.teams != 4 || k.mixed.turns > 1 || k.mixed.slabs > 1 || is_int(&k) || k.invariant ||
        scales_act(&k) || c->rows > k.mixed.bm || k.spec.k % UNIT ||
        k.packed.rows % CUDA_GROUP_ROWS || !cuda_epilogue_fits(&k, CUDA_GROUP_ROWS / k.spec.parts))
        return;
    int64_t rest = rest_groups(&k), rounds = rest_rounds(&k);
    if (rounds < 1 || rounds > MOST_ROUNDS || rest < 1 || rest > processors)
        return;
    int shares = (int)(processors / rest < MOST_SHARES ? processors / rest : MOST_SHARES);
    while (units(&k) % shares)
        shares--;
    if ((shares == 1 && rounds == 1) || units(&k) / shares < LEAST_UNITS)
        return;
    k.mixed.rest = shares;
    fill_ring(c, &k);
    if (!tile_problem(&k))
        put_rings(c, &k);
}

/* Where several blocks of a unit have scales that are powers of two, these are multiplied into the
 * codes, which bf16 holds exactly: beside many rows, or where a scale decodes the codes, that is
 * less than scaling the sums of each block. It changes where sums are promoted, which no order of
 * sums says. */
static void fold_scales(CudaKernel *k)
{
    CudaPacked *packed = &k->packed;
    bool is_raw = k->spec.fmt == FMT_E2M1 && packed->block_k == 32; /* mixed_tile.cuh, kRaw */
    if ((k->mixed.bm <= FEW_UNFOLDED && !is_raw) || k->invariant ||
        packed->home != CUDA_HOME_BF16 || !packed->scales || packed->scale_fmt != FMT_E8M0 ||
        packed->zeros || family_of(k->spec.fmt) == FAMILY_CODEBOOK || !packed->block_k ||
        packed->block_k >= UNIT)
        return;
    packed->folded = true;
    packed->block_k = 0;
}

static CudaKernel tile_of(CudaCandidates *c, int bm, int teams, int slabs, int turns, bool in_place)
{
    CudaKernel k = c->like;
    k.family = CUDA_MIXED;
    k.mixed = (CudaMixed){.bm = bm, .teams = teams, .slabs = slabs, .turns = turns};
    k.mixed.parts_of_k = k.mixed.cluster = k.mixed.gather = 1;
    k.mixed.in_place = in_place;
    fold_scales(&k);
    return k;
}

/* More rows than four hold unless in place. (ptxas serialises products of 112 rows beside zero
 * points, and of 128 of f16, in several rounds, or beside scales for each 16 of K.) */
static void put_rest_of(CudaCandidates *c, int bm)
{
    CudaKernel k = tile_of(c, bm, 4, 1, 1, true);
    bool has_room = k.packed.home == CUDA_HOME_BF16 && k.spec.block_cols >= 32;
    if (bm == 96 || (bm == 128 && has_room && rest_rounds(&k) == 1))
        put_rest(c, &k);
}

static void put_fragments(CudaCandidates *c, const CudaKernel *like)
{
    for (int rows = like->mixed.bm < 64 ? like->mixed.bm : 64; rows <= 128; rows *= 2) {
        CudaKernel k = *like;
        if (!takes_fragments(&k, rows))
            continue;
        k.mixed.fragments = rows;
        fill_ring(c, &k);
        int most = k.packed.rows > columns(&k) && held_sums(&k) <= most_sums(&k) ? 2 : 1;
        for (; k.mixed.cluster <= most && !tile_problem(&k); k.mixed.cluster++) {
            cuda_candidate_valid(c, &k);
            put_parts_of_k(c, &k, 1);
        }
    }
}

static void put_tile(CudaCandidates *c, int bm, int teams, int slabs, int turns, bool in_place)
{
    CudaKernel k = tile_of(c, bm, teams, slabs, turns, in_place);
    fill_ring(c, &k);
    const char *problem = tile_problem(&k);
    if (problem) {
        cuda_candidate_reject(c, &k, "%s", problem);
        return;
    }
    put_shares(c, &k);
    k.mixed.shares = 0;
    fill_ring(c, &k);
    put_gathered(c, &k);
    put_rest(c, &k);
    put_fragments(c, &k);
    k.mixed.cluster = 2;
    if (bm >= 64 && !is_small(&k) && turns == 1 && k.packed.rows > columns(&k) &&
        held_sums(&k) <= most_sums(&k)) {
        cuda_candidate_valid(c, &k);
        put_parts_of_k(c, &k, 1);
    }
}

/* Sums of floats, or of integers that no block of K scales; no copier has only the scales of
 * stages. */
static bool takes_turns(const CudaKernel *k)
{
    return !(is_int(k) && k->spec.mainloop) && !scales_act(k);
}

/* Four warpgroups in turn have few rows, whose registers they share; two have more. (Where shared
 * memory has room for a ring of four's, up to 64 rows are faster by these, but for bytes.) */
static bool turn_fits(const CudaKernel *k, int teams, int rows)
{
    if (teams == 2)
        return rows > (has_bytes(k) ? MOST_OF_FOUR : WHOLE_ROWS) && rows <= MOST_OF_TWO;
    return rows <= MOST_OF_FOUR;
}

/* One tile that holds all rows, and those of which most rows are used; those of one warpgroup where
 * several blocks cannot share out K. Of 256 rows of w four warpgroups have one slab each while
 * their registers hold the sums, then two have two. Four that take turns have narrow tiles, which
 * few rows fill. */
static void candidates(CudaCandidates *c)
{
    for (size_t j = 0; j < COUNT_OF(weight_tiles); j++) {
        int turns = weight_tiles[j].turns;
        bool holds_all = false, one = weight_tiles[j].teams == 1;
        int least = one ? 16 : turns == 4 ? 32 : 64;
        if (one && !adds_in_order(&c->like) && !c->like.spec.factored)
            continue;
        if (turns > 1 && !takes_turns(&c->like))
            continue;
        for (size_t i = 0; i < COUNT_OF(token_tiles) && !holds_all; i++) {
            holds_all = token_tiles[i] >= c->rows;
            if (turns > 1 && !turn_fits(&c->like, weight_tiles[j].teams, token_tiles[i]))
                continue;
            if (turns == 1 && weight_tiles[j].teams * weight_tiles[j].slabs == 4 &&
                (weight_tiles[j].teams == 4) != (token_tiles[i] <= MOST_OF_FOUR)) {
                if (holds_all && weight_tiles[j].teams == 4 && can_add_in_place(&c->like))
                    put_rest_of(c, token_tiles[i]);
                continue;
            }
            if (can_add_in_place(&c->like) && token_tiles[i] >= LEAST_PLACED && turns == 1)
                put_tile(c, token_tiles[i], weight_tiles[j].teams, weight_tiles[j].slabs, 1, true);
            if ((holds_all || token_tiles[i] >= least) && (!one || token_tiles[i] <= MOST_OF_ONE))
                put_tile(c, token_tiles[i], weight_tiles[j].teams, weight_tiles[j].slabs, turns,
                         false);
        }
    }
}

static void put_numbers(Sb *sb, const CudaKernel *k)
{
    sb_printf(sb, "%dx%d", k->mixed.bm, columns(k));
    if (k->mixed.stages)
        sb_printf(sb, " s%d g%d", k->mixed.stages, k->mixed.shares);
    if (k->mixed.turns > 1)
        sb_printf(sb, " t%d", k->mixed.turns);
    if (k->mixed.parts_of_k > 1)
        sb_printf(sb, " p%d", k->mixed.parts_of_k);
    sb_put(sb, k->mixed.cluster > 1 ? " c2" : "");
    if (k->mixed.gather > 1)
        sb_printf(sb, " k%d", k->mixed.gather);
    if (k->mixed.rest)
        sb_printf(sb, " r%d", k->mixed.rest);
    sb_put(sb, k->mixed.in_place ? " inplace" : "");
    if (k->mixed.fragments)
        sb_printf(sb, " f%d", k->mixed.fragments);
}

/* Text ----------------------------------------------------------------------------------------- */

static void put_config(Sb *sb, const CudaKernel *k)
{
    cuda_put_product(sb, k);
    cuda_put_schemes(sb, k);
    cuda_put_records(sb, k);
    cuda_put_int(sb, "kNeighbours", k->packed.neighbours);
    sb_line(sb, "static constexpr int64_t kTinyAt = %" PRId64 ";", k->packed.tiny_at);
    cuda_put_int(sb, "kBM", k->mixed.bm);
    cuda_put_int(sb, "kBN", columns(k));
    cuda_put_int(sb, "kTeams", k->mixed.teams);
    cuda_put_int(sb, "kTurns", k->mixed.turns);
    cuda_put_int(sb, "kSlabs", k->mixed.slabs);
    cuda_put_int(sb, "kStages", k->mixed.stages);
    cuda_put_int(sb, "kBand", 8);
    cuda_put_int(sb, "kCluster", k->mixed.cluster);
    cuda_put_bool(sb, "kShare", k->mixed.shares > 0);
    cuda_put_int(sb, "kPartsOfK", k->mixed.parts_of_k);
    cuda_put_int(sb, "kGather", k->mixed.gather);
    cuda_put_bool(sb, "kInPlace", k->mixed.in_place);
    cuda_put_bool(sb, "kPromotes", adds_blocks(k));
    cuda_put_int(sb, "kRest", k->mixed.rest);
    cuda_put_int(sb, "kRestRounds", k->mixed.rest ? rest_rounds(k) : 0);
    cuda_put_int(sb, "kRestFrom", k->mixed.rest ? rest_from(k) : 0);
    cuda_put_int(sb, "kRestGroups", k->mixed.rest ? rest_groups(k) : 0);
    cuda_put_int(sb, "kCols", tile(k).cols / k->spec.parts);
    cuda_put_int(sb, "kPassRows", pass_rows(k));
    cuda_put_int(sb, "kSplitSums", CUDA_SPLIT_SUMS);
    cuda_put_int(sb, "kSmemBytes", smem_bytes(k));
    cuda_put_groups(sb, k);
}

/* The epilogue over fragments: each call gets a warp's columns of two rows. */
static bool put_held(Sb *sb, const CudaKernel *k)
{
    int columns = fragment_columns(k);
    int64_t run = columns ? run_columns(k) : 0;
    bool whole = columns && cuda_in_segments(k, run);
    cuda_put_fragments(sb, k, columns, whole ? run : columns, "0");
    return columns > 0;
}

/* Of sums, the left operand, the right one. */
static const char *type_words(Arena *arena, const CudaKernel *k)
{
    if (is_int(k))
        return arena_printf(arena, "s32.%s.%s", k->spec.fmt == FMT_U8 ? "u8" : "s8",
                            k->spec.act_fmt == FMT_U8 ? "u8" : "s8");
    if (has_bytes(k))
        return k->spec.act_fmt == FMT_E5M2 ? "f32.e4m3.e5m2" : "f32.e4m3.e4m3";
    return k->packed.home == CUDA_HOME_F16 ? "f32.f16.f16" : "f32.bf16.bf16";
}

/* PTX ISA, "wgmma.mma_async": the left operand in four registers, the right one in shared memory.
 */
static void put_parts(Sb *sb, const CudaKernel *k)
{
    int n = k->mixed.bm, num = n / 2;
    bool ints = is_int(k);
    sb_line(sb, "struct Product {");
    sb_line(sb, "    static __device__ __forceinline__ void add(");
    sb_line(sb, "        %s *d, const uint32_t (&left)[4], uint64_t right, int keep)",
            ints ? "int32_t" : "float");
    sb_line(sb, "    {");
    sb_printf(sb,
              "        asm volatile(\"{\\n.reg .pred keep;\\nsetp.ne.b32 keep, %%%d, 0;\\n\"\n"
              "            \"wgmma.mma_async.sync.aligned.m64n%dk%d.%s {",
              num + 5, n, has_bytes(k) ? 32 : 16, type_words(sb->arena, k));
    cuda_put_list(sb, "%%%d", num);
    sb_printf(sb, "}, {%%%d, %%%d, %%%d, %%%d}, %%%d, keep%s;\\n}\"\n            : ", num, num + 1,
              num + 2, num + 3, num + 4,
              ints           ? ""
              : has_bytes(k) ? ", 1, 1"
                             : ", 1, 1, 0");
    cuda_put_list(sb, ints ? "\"+r\"(d[%d])" : "\"+f\"(d[%d])", num);
    sb_put(sb, "\n            : \"r\"(left[0]), \"r\"(left[1]), \"r\"(left[2]), \"r\"(left[3]),"
               " \"l\"(right), \"r\"(keep));\n");
    sb_line(sb, "    }");
    sb_line(sb, "};");
}

/* Whole parts of K are a block's share, also of the fewer tiles that fewer rows have. */
static bool shares_parts(const CudaKernel *k)
{
    int64_t rows = cuda_ceil_div(cuda_rows(k), k->mixed.bm);
    int64_t tiles = num_tiles(k) / rows; /* of a row of them */
    for (int64_t i = 1; i <= rows && k->mixed.shares; i++)
        if (k->mixed.shares % (i * tiles) || k->mixed.parts_of_k % (k->mixed.shares / (i * tiles)))
            return false;
    return true;
}

static bool put_order(Sb *sb, const CudaKernel *k)
{
    if (k->mixed.turns > 1 && (k->mixed.shares || k->mixed.gather > 1 || units(k) % k->mixed.turns))
        return false;
    if (k->mixed.turns > 1) {
        cuda_put_parts(sb, adds_blocks(k), k->mixed.turns);
        return true;
    }
    if (k->mixed.in_place || k->mixed.rest || units(k) % k->mixed.gather)
        return false;
    cuda_put_parts(sb, adds_blocks(k), k->mixed.parts_of_k * k->mixed.gather);
    if (k->mixed.parts_of_k > 1)
        return shares_parts(k);
    return cuda_put_shares(sb, k, k->mixed.shares, num_tiles(k), units(k));
}

static void describe(Sb *sb, const CudaKernel *k)
{
    const char *type = is_int(k)                         ? "s8"
                       : has_bytes(k)                    ? "e4m3"
                       : k->packed.home == CUDA_HOME_F16 ? "f16"
                                                         : "bf16";
    sb_printf(sb, " %dx%d, %d stages, wgmma %s", k->mixed.bm, columns(k), k->mixed.stages, type);
    if (k->mixed.shares)
        sb_put(sb, ", K shared out");
    if (k->mixed.turns > 1)
        sb_printf(sb, ", by %d in turn", k->mixed.turns);
    if (k->mixed.parts_of_k > 1)
        sb_printf(sb, ", K in %d parts", k->mixed.parts_of_k);
    if (k->mixed.cluster > 1)
        sb_put(sb, ", clusters of 2");
    if (k->mixed.gather > 1)
        sb_printf(sb, ", K over clusters of %d", k->mixed.gather);
    if (k->mixed.rest)
        sb_printf(sb, ", %d groups of 64 a block, the rest by %d each",
                  (k->mixed.teams - 1) * (int)rest_rounds(k), k->mixed.rest);
    if (k->mixed.in_place)
        sb_put(sb, ", sums in place");
    if (k->mixed.fragments)
        sb_printf(sb, ", %d rows' fragments at once", k->mixed.fragments);
    sb_put(sb, ", weights decoded in registers");
}

static int begins(const CudaKernel *k)
{
    return cuda_parts_begun(k->mixed.shares, num_tiles(k), k->mixed.gather);
}

const CudaFamilyRow cuda_mixed = {
    .instruction = "wgmma",
    .serves = "sm_90a",
    .launch = LAUNCH_GEMM,
    .seed = 6,
    .slowness = 4,
    .min_blocks_of = per_processor,
    .layouts = 1 << CUDA_RECORDS | 1 << CUDA_FRAGMENTS,
    .aligned = true,
    .many_rows = cuda_always,
    .loads_freely = cuda_columns_apart,
    .takes = takes,
    .candidates = candidates,
    .tile = tile,
    .put_numbers = put_numbers,
    .geometry = geometry,
    .predict = cuda_mixed_us,
    .put_config = put_config,
    .put_parts = put_parts,
    .put_held = put_held,
    .call = {"mixed<Cfg, Product, Epilogue>"},
    .describe = describe,
    .put_order = put_order,
    .looks_ahead = true,
    .begins = begins,
};
