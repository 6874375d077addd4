/* codegen/cuda/gemm_mma: products of many rows on tensor cores (kernels/cuda/gemm_mma.cuh). */
#include "codegen/cuda/family.h"

#include <inttypes.h>
#include <math.h>

#define SPLIT_MOST   8   /* blocks that share a tile .. */
#define SPLIT_LARGE  4   /* .. whose threads have no registers left for the others' sums */
#define SPLIT_BLOCKS 400 /* most of a grid that shares tiles: three for each processor */
#define SPLIT_LEAST  4   /* stages of K that each has, at least */
#define SHARED_HELD  32  /* values of a row that one thread holds meanwhile */
#define SHARED_ROWS  2   /* that a processor makes of the input of a product, at most .. */
#define SHARED_SUMS  32  /* .. else scaled sums of a thread, beside more of which ptxas spills */
#define MOST_SUMS    128 /* of a thread: a warp's are at most 64x64 */

/* Sizes of kernels ----------------------------------------------------------------------------- */

static int64_t stage_bytes(const CudaKernel *k)
{
    int64_t bits =
        (int64_t)k->mma.bm * cuda_act_bits(k->spec.act_fmt) + (int64_t)k->mma.bn * k->packed.bits;
    return bits * k->mma.bk / 8 +
           cuda_ceil_div(k->mma.bn, 64) * (k->packed.record - k->packed.scale_at);
}

static int64_t staged_bytes(const CudaKernel *k) /* GemmShape: kTilePitch, kPasses */
{
    int64_t part = k->mma.bn / k->spec.parts, last = (part + 31) / 32 * 32;
    int64_t pitch = ((k->spec.parts - 1) * part + last + 23) / 32 * 32 + 8;
    int64_t bytes = k->mma.bm * pitch * 4;
    return bytes > 98304 ? bytes / 2 : bytes;
}

static int64_t num_tiles(const CudaKernel *k)
{
    return cuda_ceil_div(cuda_most_rows(k), k->mma.bm) * cuda_ceil_div(k->packed.rows, k->mma.bn);
}

static CudaGeometry geometry(const CudaKernel *k)
{
    int64_t stages = stage_bytes(k) * k->mma.stages, staged = staged_bytes(k);
    CudaGeometry g = {.blocks = num_tiles(k) * k->mma.split_k,
                      .block = 32 * k->mma.warps_m * k->mma.warps_n,
                      .smem = staged > stages ? staged : stages};
    if (k->mma.split_k > 1)
        g.workspace = CUDA_SPLIT_SUMS + num_tiles(k) * k->mma.split_k * k->mma.bm * k->mma.bn * 4;
    else if (k->input == INPUT_SHARED)
        g.workspace = CUDA_SPLIT_SUMS;
    return g;
}

static CudaTile tile(const CudaKernel *k)
{
    return (CudaTile){k->mma.bm, k->mma.bn};
}

/* Candidates ----------------------------------------------------------------------------------- */

/* Tiles and their warps, a warp's sums at most 64x64. */
typedef struct Tile {
    int bm, bn, warps_m, warps_n;
} Tile;
_Static_assert(SPLIT_BLOCKS <= CUDA_SPLIT_TILES, "there is a counter for each tile");
static const Tile shapes[] = {
    {128, 256, 2, 4}, {128, 224, 2, 4}, {128, 128, 2, 2}, {128, 128, 2, 4}, {128, 64, 2, 2},
    {64, 256, 1, 4},  {64, 128, 1, 4},  {64, 64, 1, 2},   {32, 256, 1, 4},  {32, 128, 1, 4},
    {32, 64, 1, 2},   {64, 128, 2, 4},  {32, 256, 1, 8},
};
/* .. where none of these has room and threads: f32 by f32 in the 64 KB of turing, by codebooks. */
static const Tile least[] = {{32, 64, 1, 4}, {32, 128, 1, 8}, {64, 64, 2, 4}};

/* K of a stage: rows of 128 bytes where that is a whole number of units of w. */
static int stage_k(const CudaKernel *k)
{
    return cuda_act_bits(k->spec.act_fmt) >= 16 && format_info[k->spec.fmt].bits >= 8 ? 64 : 128;
}
/* .. at least: a unit of w, and rows of 64 bytes. */
static int least_stage_k(const CudaKernel *k)
{
    int w = format_info[k->spec.fmt].bits;
    int unit = w >= 16 ? 32 : 512 / w;
    return unit > 64 ? unit : 64;
}

static int num_sums(const CudaKernel *k) /* of a thread */
{
    return k->mma.bm / k->mma.warps_m * (k->mma.bn / k->mma.warps_n) / 32;
}

/* Blocks of K end inside a step of 32. */
static bool fine_blocks(const CudaKernel *k)
{
    return k->spec.mainloop && k->packed.block_k % 32;
}

/* 128 of K of an activation have several scales. */
static bool has_finer(const CudaKernel *k)
{
    return k->spec.mainloop && k->spec.act_block && k->spec.act_block < 128;
}

/* An operand that one 16-bit float does not hold (format.cuh, Pieces). */
static bool in_pieces(const CudaKernel *k)
{
    FormatId w = k->spec.fmt, a = k->spec.act_fmt;
    bool wide = k->packed.home == CUDA_HOME_BF16 && (a == FMT_F16 || w == FMT_F16);
    return a == FMT_F32 || w == FMT_F32 || wide;
}

/* Decoding takes more registers than it leaves to many sums. */
static bool looked_up(const CudaKernel *k)
{
    return format_info[k->spec.fmt].family == FAMILY_CODEBOOK ||
           (k->packed.exact && (k->packed.zeros || k->packed.home != CUDA_HOME_I8));
}

/* Most sums of a thread: what ptxas has registers for beside them. */
static int most_sums(const CudaKernel *k)
{
    FormatId w = k->spec.fmt, a = k->spec.act_fmt;
    bool codebook = format_info[w].family == FAMILY_CODEBOOK, scaled = k->spec.mainloop;
    bool nibbles = format_info[w].family == FAMILY_INT && format_info[w].bits <= 4;
    if (scaled && a == FMT_F32 && (codebook || nibbles))
        return 16; /* decoded, codes stay in registers for all pieces of an f32 beside them */
    bool three = codebook && cuda_codebook_pieces(k) > 2 && cuda_adds_apart(k);
    if (fine_blocks(k) || in_pieces(k) || three || k->packed.act_folded || cuda_is_chunked(k) ||
        (scaled && (looked_up(k) || (has_finer(k) && k->packed.home != CUDA_HOME_I8))))
        return 32;
    bool widens = format_info[w].bits == 16 && format_info[a].bits < 16; /* of a to w's */
    return widens || (codebook && cuda_codebook_pieces(k) > 1) ? 64 : MOST_SUMS;
}

/* Why a tile cannot run; NULL: it can. */
static const char *tile_problem(const CudaCandidates *c, const CudaKernel *k)
{
    if (!cuda_epilogue_fits(k, k->mma.bn / k->spec.parts))
        return "a quantisation group or a row does not lie inside its columns";
    if (k->mma.bm > 32 && c->rows <= k->mma.bm / 2)
        return "less than half of its rows would be used";
    if (k->spec.mainloop && num_sums(k) > 64)
        return "its sums and scaled sums exceed the registers";
    if (num_sums(k) > most_sums(k))
        return "its sums and what it decodes exceed the registers";
    if (k->mma.bn % CUDA_GROUP_ROWS && k->packed.record > k->packed.scale_at)
        return "its columns are not those of whole records";
    int threads = 32 * k->mma.warps_m * k->mma.warps_n,
        row_bytes = k->mma.bk * cuda_act_bits(k->spec.act_fmt) / 8;
    if (threads < k->mma.bk * k->packed.bits / 16 || threads < row_bytes / 4)
        return "its threads are fewer than the pieces that they copy";
    return geometry(k).smem > cuda_room(c, k) ? "it exceeds the shared memory of a block" : NULL;
}

/* Blocks that share K, where tiles are too few; integer blocks along K must keep their order. */
static void put_splits(CudaCandidates *c, CudaKernel *k)
{
    int64_t tiles_k = (k->spec.k + k->mma.bk - 1) / k->mma.bk;
    k->mma.split_k = 1;
    cuda_candidate_valid(c, k);
    if (k->packed.exact && k->spec.mainloop)
        return;
    int64_t tiles = num_tiles(k), block = k->spec.mainloop ? k->packed.block_k / k->mma.bk : 1;
    int most = num_sums(k) > 64 ? SPLIT_LARGE : SPLIT_MOST;
    for (k->mma.split_k = 2; k->mma.split_k <= most && tiles * k->mma.split_k <= SPLIT_BLOCKS;
         k->mma.split_k++) {
        int64_t share = (tiles_k + k->mma.split_k - 1) / k->mma.split_k;
        if (block > 1)
            share = (share + block - 1) / block * block;
        if (share >= SPLIT_LEAST && share * (k->mma.split_k - 1) < tiles_k)
            cuda_candidate_valid(c, k);
    }
}

static void put_tiles(CudaCandidates *c, int bk, const Tile *t, size_t num)
{
    for (const Tile *end = t + num; t < end; t++) {
        CudaKernel k = c->like;
        k.family = CUDA_GEMM_MMA;
        k.mma.bm = t->bm, k.mma.bn = t->bn;
        k.mma.warps_m = t->warps_m, k.mma.warps_n = t->warps_n;
        k.mma.bk = bk;
        k.mma.split_k = 1;
        k.mma.stages = 2;
        const char *problem = tile_problem(c, &k);
        if (problem) {
            cuda_candidate_reject(c, &k, "%s", problem);
            continue;
        }
        for (k.mma.stages = 4; k.mma.stages >= 2; k.mma.stages--)
            if (geometry(&k).smem <= cuda_room(c, &k))
                put_splits(c, &k);
    }
}

/* Shorter stages, where no tile has room or threads for the usual ones. */
static void candidates(CudaCandidates *c)
{
    int before = c->num_valid;
    for (int bk = stage_k(&c->like); bk >= least_stage_k(&c->like); bk /= 2)
        if (c->num_valid == before)
            put_tiles(c, bk, shapes, COUNT_OF(shapes));
    for (int bk = stage_k(&c->like); bk >= least_stage_k(&c->like); bk /= 2)
        if (c->num_valid == before)
            put_tiles(c, bk, least, COUNT_OF(least));
}

static void put_numbers(Sb *sb, const CudaKernel *k)
{
    sb_printf(sb, "%dx%d", k->mma.bm, k->mma.bn);
    if (k->mma.warps_m)
        sb_printf(sb, " w%dx%d s%d k%d", k->mma.warps_m, k->mma.warps_n, k->mma.stages,
                  k->mma.split_k);
}

static bool put_order(Sb *sb, const CudaKernel *k)
{
    if (k->mma.split_k > 1)
        sb_printf(sb, " in %d parts of K, by %d", k->mma.split_k, k->mma.bk);
    return true;
}

/* A processor makes a few rows; as many as there are, where the layer has to be one launch. */
static bool makes(const CudaKernel *k, int64_t rows, bool one)
{
    int64_t grid = cuda_geometry(k).grid, processors = k->gpu->processors;
    if (one)
        return !k->spec.mainloop || num_sums(k) <= SHARED_SUMS;
    return rows <= SHARED_ROWS * (grid < processors ? grid : processors);
}

/* Integers as floats, summed exactly block by block, codes of 4 bits with zero points beside
 * floats, and blocks that make many rows, for which ptxas left alone spills a few bytes to fit in
 * three blocks. */
static int min_blocks(const CudaKernel *k)
{
    return (k->spec.mainloop && k->packed.exact && k->packed.home != CUDA_HOME_I8) ||
           (k->packed.zeros && k->packed.bits == 4 && cuda_act_bits(k->spec.act_fmt) == 16) ||
           (k->input == INPUT_SHARED && !makes(k, k->layout[k->launch->a].rows, false));
}

static bool share(CudaKernel *k, const PlanLaunch *inside, int64_t smem, bool one)
{
    int block = cuda_geometry(k).block;
    if (k->varies || block < 128 || k->spec.k > block * SHARED_HELD ||
        !makes(k, k->layout[inside->a].rows, one))
        return false;
    k->launch = inside;
    k->input = INPUT_SHARED;
    return geometry(k).smem + 4 * cuda_prologue_scratch(k) <= smem;
}

/* Text ----------------------------------------------------------------------------------------- */

static void put_config(Sb *sb, const CudaKernel *k)
{
    cuda_put_product(sb, k);
    cuda_put_schemes(sb, k);
    cuda_put_records(sb, k);
    cuda_put_int(sb, "kBM", k->mma.bm);
    cuda_put_int(sb, "kBN", k->mma.bn);
    cuda_put_int(sb, "kBK", k->mma.bk);
    cuda_put_int(sb, "kCols", k->mma.bn / k->spec.parts);
    cuda_put_int(sb, "kWarpsM", k->mma.warps_m);
    cuda_put_int(sb, "kWarpsN", k->mma.warps_n);
    cuda_put_int(sb, "kStages", k->mma.stages);
    cuda_put_int(sb, "kSplitK", k->mma.split_k);
    cuda_put_int(sb, "kSplitSums", CUDA_SPLIT_SUMS);
    if (k->input == INPUT_SHARED)
        cuda_put_int(sb, "kRowCounters", CUDA_SPLIT_ROWS);
}

/* The blocks make rows in the memory of a. */
static void put_prologue(Sb *sb, const CudaKernel *k)
{
    sb_line(sb, "struct Prologue {");
    sb->indent = 4;
    sb_line(sb, "static constexpr bool kMakes = true;");
    cuda_emit_program(sb, k, &k->launch->prologue, "steps");
    sb_line(sb, "static __device__ __forceinline__ void make(const Params &p, int64_t m)");
    sb_line(sb, "{");
    sb->indent = 8;
    cuda_put_row_type(sb, k);
    sb_line(sb, "__shared__ __align__(16) int32_t scratch[%" PRId64 "];", cuda_prologue_scratch(k));
    sb_line(sb, "const Row<S> row = {(int)threadIdx.x, 0, Cfg::kK, scratch};");
    sb_line(sb, "steps(p, p.op[Cfg::kOperandA], row, m, (const char *)0);");
    sb->indent = 4;
    sb_line(sb, "}");
    sb->indent = 0;
    sb_line(sb, "};");
}

static void describe(Sb *sb, const CudaKernel *k)
{
    sb_printf(sb, " %dx%d, %dx%d warps, %d stages of %d", k->mma.bm, k->mma.bn, k->mma.warps_m,
              k->mma.warps_n, k->mma.stages, k->mma.bk);
    if (k->mma.split_k > 1)
        sb_printf(sb, ", K over %d blocks", k->mma.split_k);
    if (k->input == INPUT_SHARED)
        sb_put(sb, ", its input made by all blocks");
    sb_put(sb, cuda_multiplied_by(k));
}

/* Time ----------------------------------------------------------------------------------------- */

/* Fitted to the 1,300 rows that codegen/timing has, 12 % off (root of the mean square). */

#define SHARED_SM 232448
#define START     1.0    /* us of a block beside all that */
#define TILES_L2  1.46e7 /* CUDA_L2_RATE for tiles, which neighbours read at the same time */
#define WARPS     5.5    /* that reach half of what endless many would */
#define STEP      0.034  /* us for each 128 of K, beside the products */
#define FINER     0.44   /* of the products, to scale each further sum that blocks of a ask for */
#define IN_FLIGHT 13.6e3 /* bytes on their way to a processor for 63 % of its bandwidth */

/* Multiplications and additions, 1e6 a microsecond of the whole GPU, of eight warps a processor. */
static double rate_of(const CudaKernel *k)
{
    int64_t block = k->spec.act_block > 32 ? k->spec.act_block : 32; /* as much as a step has */
    double sums = has_finer(k) ? 128.0 / (double)block : 1;
    double slower = 1 + FINER * (sums - 1);
    switch (k->packed.home) {
    case CUDA_HOME_I8: return k->spec.mainloop ? 465 / slower : 825;
    case CUDA_HOME_F16: return k->spec.mainloop ? 325 / slower : 520;
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
        return cuda_codebook_pieces(k) > 1 ? 74 : 38;
    if (bits == 16 || k->packed.home == CUDA_HOME_I8)
        return 1.2;
    if (bits == 8)
        return family != FAMILY_INT && k->packed.home == CUDA_HOME_F16 ? 0 : 9;
    return family != FAMILY_INT ? 38 : k->spec.has_zero ? 19 : 9;
}

/* Registers of a thread: its sums, again where they are scaled, fragments and addresses. */
static int64_t blocks_resident(const CudaKernel *k, const CudaGeometry *g)
{
    int sums =
        k->mma.bm / k->mma.warps_m * (k->mma.bn / k->mma.warps_n) / 32 * (k->spec.mainloop ? 2 : 1);
    int registers = sums >= 104 ? 255 : sums >= 48 ? 168 : 128;
    int64_t by_registers = 65536 / (registers * g->block), by_memory = SHARED_SM / (g->smem + 1024);
    return by_registers < by_memory ? by_registers : by_memory;
}

/* Blocks that share tiles write their sums, and the last one reads them all. */
static double split_us(const CudaKernel *k, int64_t busiest)
{
    double each = (double)k->mma.bm * k->mma.bn * 4;
    double sums = fmax(k->mma.split_k, (double)busiest) * each;
    return k->mma.split_k > 1 ? 3.1 + sums / 22e3 : 0;
}

/* Of a bandwidth, what so many bytes on their way at a time reach. */
static double share_of_bandwidth(double bytes)
{
    return 1 - exp(-bytes / IN_FLIGHT);
}

/* Products, decoding and what each stage costs, on the busiest processor. Narrow warps read more of
 * a for each product; few warps, and few stages, hide little. */
static double work_us(const CudaKernel *k, const CudaGeometry *g, double share, int64_t busiest,
                      int64_t together)
{
    double warps = (double)together * g->block / 32;
    double rate =
        rate_of(k) * 1e6 / k->gpu->processors / (1 + 0.2 * (64.0 * k->mma.warps_n / k->mma.bn - 1));
    double us = 2.0 * k->mma.bm * k->mma.bn * share / rate +
                1e-6 * decode_ps(k) * k->mma.bn * k->mma.warps_m * share + STEP * ceil(share / 128);
    double busy = warps / (warps + WARPS) * (8 + WARPS) / 8;
    return (double)busiest * us / busy * (1 + 0.032 * (4 - k->mma.stages));
}

/* Work and reading overlap, the more the less one of them takes. */
static double predict(const CudaKernel *k, const CudaGeometry *g)
{
    double share = (double)k->spec.k / k->mma.split_k;
    int64_t busiest = (g->grid + k->gpu->processors - 1) / k->gpu->processors,
            resident = blocks_resident(k, g);
    int64_t together = resident < 1 ? 1 : resident < busiest ? resident : busiest;
    double column =
        (k->mma.bn * (double)k->packed.bits + k->mma.bm * (double)cuda_act_bits(k->spec.act_fmt)) /
        8; /* bytes of a tile's operands for each of K */
    double in_flight = (double)together * k->mma.stages * 128 * column;
    double used = g->grid < k->gpu->processors ? (double)g->grid / k->gpu->processors : 1;
    double l2 = (double)busiest * share * column * k->gpu->processors / TILES_L2 /
                share_of_bandwidth(in_flight);
    double memory = cuda_weight_bytes(k) / CUDA_BANDWIDTH / share_of_bandwidth(used * in_flight);
    double read = l2 > memory ? l2 : memory, work = work_us(k, g, share, busiest, together);
    return pow(pow(work, 2.5) + pow(read, 2.5), 1 / 2.5) + split_us(k, busiest) + START;
}

const CudaFamilyRow cuda_gemm_mma = {
    .instruction = "mma.sync",
    .launch = LAUNCH_GEMM,
    .seed = 0,
    .slowness = 6,
    .min_blocks_of = min_blocks,
    .layouts = 1 << CUDA_RECORDS,
    .aligned = true,
    .candidates = candidates,
    .tile = tile,
    .put_numbers = put_numbers,
    .share = share,
    .put_order = put_order,
    .geometry = geometry,
    .predict = predict,
    .put_config = put_config,
    .put_prologue = put_prologue,
    .call = {"gemm_mma<Cfg, Epilogue, GivenA>", "gemm_mma<Cfg, Epilogue, Prologue>"},
    .describe = describe,
};
