/* codegen/cuda/candidates: the candidates of each family of products. To add one, fill a copy of
 * c->like and hand it to cuda_candidate_valid, or give
 * cuda_candidate_reject the reason. */
#include "codegen/cuda/choose.h"

#define STREAM_ROWS   16    /* most that a stream multiplies */
#define STREAM_RING   73728 /* bytes that its warps have on their way, if no less will do */
#define STREAM_SHARED 99328 /* .. and of shared memory in all, likewise */
#define STREAM_BUFFER 12288 /* .. that sums may have to be staged twice */
#define SPLIT_MOST    8     /* blocks that share a tile of a gemm_mma .. */
#define SPLIT_LARGE   4     /* .. whose threads have no registers left for the others' sums */
#define SPLIT_BLOCKS  400   /* most of a grid that shares tiles: three for each processor */
#define SPLIT_LEAST   4     /* stages of K that each has, at least */

void cuda_candidate_valid(CudaCandidates *c, const CudaKernel *k)
{
    CudaCandidate candidate = {.kernel = *k};
    ARRAY_PUSH(c->arena, &c->list, candidate);
    c->num_valid++;
}

void cuda_candidate_reject(CudaCandidates *c, const CudaKernel *k, const char *fmt, ...)
{
    Sb sb;
    va_list args;
    sb_init(&sb, c->arena);
    va_start(args, fmt);
    sb_vprintf(&sb, fmt, args);
    va_end(args);
    CudaCandidate candidate = {.kernel = *k, .reason = sb.text};
    ARRAY_PUSH(c->arena, &c->list, candidate);
}

void cuda_candidate_put_numbers(Sb *sb, const CudaKernel *k)
{
    switch (k->family) {
    case CUDA_GEMM_MMA:
        sb_printf(sb, "%dx%d", k->bm, k->bn);
        if (k->warps_m)
            sb_printf(sb, " w%dx%d s%d k%d", k->warps_m, k->warps_n, k->stages, k->split_k);
        break;
    case CUDA_STREAM:
        sb_printf(sb, "%dx%d", k->rows, 8 * k->n_blocks * k->n_warps);
        if (k->stages)
            sb_printf(sb, " w%d k%d s%d", k->n_warps, k->split_k, k->stages);
        break;
    case CUDA_HOPPER:
        sb_printf(sb, k->swap ? "%dx%dt" : "%dx%d", k->bm, k->bn);
        if (k->stages)
            sb_printf(sb, " s%d g%d", k->stages, k->shares);
        break;
    case CUDA_GEMM_ANY: sb_printf(sb, "%dx%d", 4096 / k->bn, k->bn); break;
    default: break;
    }
}

void cuda_candidate_put(Sb *sb, const CudaKernel *k)
{
    sb_printf(sb, "%s ", cuda_family_name[k->family]);
    cuda_candidate_put_numbers(sb, k);
}

/* Epilogues ------------------------------------------------------------------------------------ */

static int64_t epilogue_group(const CudaKernel *k)
{
    int64_t most = 0;
    for (int i = 0; i < k->launch->num_segments; i++) {
        int64_t group = cuda_program_group(k, &k->launch->segment[i].epilogue);
        most = group > most ? group : most;
    }
    return most;
}

bool cuda_epilogue_fits(const CudaKernel *k, int64_t part_cols)
{
    if (part_cols * k->spec.parts >= k->packed.rows)
        return true;
    for (int i = 0; i < k->launch->num_segments; i++) {
        const PlanSegment *s = &k->launch->segment[i];
        int64_t group = cuda_program_group(k, &s->epilogue);
        if (cuda_program_needs_row(k, &s->epilogue) ||
            (group && (part_cols % group || s->n_begin % group)))
            return false;
    }
    return true;
}

/* gemm_mma ------------------------------------------------------------------------------------- */

/* Tiles and their warps, a warp's sums at most 64x64. */
typedef struct MmaTile {
    int bm, bn, warps_m, warps_n;
} MmaTile;
_Static_assert(SPLIT_BLOCKS <= CUDA_SPLIT_TILES, "there is a counter for each tile");
static const MmaTile mma_tiles[] = {
    {128, 256, 2, 4}, {128, 224, 2, 4}, {128, 128, 2, 2}, {128, 128, 2, 4}, {128, 64, 2, 2},
    {64, 256, 1, 4},  {64, 128, 1, 4},  {64, 64, 1, 2},   {32, 256, 1, 4},  {32, 128, 1, 4},
    {32, 64, 1, 2},   {64, 128, 2, 4},  {32, 256, 1, 8},
};

/* K of a stage: rows of 128 bytes where that is a whole number of units of w. */
static int stage_k(const CudaKernel *k)
{
    return cuda_act_bits(k->spec.act_fmt) >= 16 && format_info[k->spec.fmt].bits >= 8 ? 64 : 128;
}

static int mma_sums(const CudaKernel *k) /* of a thread */
{
    return k->bm / k->warps_m * (k->bn / k->warps_n) / 32;
}

/* Blocks of K end inside a step of 32. */
static bool fine_blocks(const CudaKernel *k)
{
    return k->spec.mainloop && k->packed.block_k % 32;
}

/* An operand that one 16-bit float does not hold (format.cuh, Pieces). */
static bool in_pieces(const CudaKernel *k)
{
    FormatId w = k->spec.fmt, a = k->spec.act_fmt;
    bool wide = k->packed.home == CUDA_HOME_BF16 && (a == FMT_F16 || w == FMT_F16);
    return a == FMT_F32 || w == FMT_F32 || wide;
}

/* Integers in 16-bit floats whose blocks' sums exceed what f32 holds exactly. */
static bool chunked(const CudaKernel *k)
{
    return k->packed.exact && k->packed.home != CUDA_HOME_I8 &&
           (!k->packed.block_k || k->packed.block_k > 256);
}

/* Decoding takes more registers than it leaves to many sums. */
static bool looked_up(const CudaKernel *k)
{
    return format_info[k->spec.fmt].family == FAMILY_CODEBOOK ||
           (k->packed.exact && (k->packed.zeros || k->packed.home != CUDA_HOME_I8));
}

/* Why a tile cannot run; NULL: it can. */
static const char *mma_problem(const CudaCandidates *c, const CudaKernel *k)
{
    if (!cuda_epilogue_fits(k, k->bn / k->spec.parts))
        return "a quantisation group or a row does not lie inside its columns";
    if (k->bm > 32 && c->rows <= k->bm / 2)
        return "less than half of its rows would be used";
    if (k->spec.mainloop && mma_sums(k) > 64)
        return "its sums and scaled sums exceed the registers";
    bool many = fine_blocks(k) || in_pieces(k) || k->packed.act_folded || chunked(k) ||
                (k->spec.mainloop && looked_up(k));
    if (many && mma_sums(k) > 32)
        return "its sums and what it multiplies in parts exceed the registers";
    if (k->bn % CUDA_GROUP_ROWS && k->packed.record > k->packed.scale_at)
        return "its columns are not those of whole records";
    int threads = 32 * k->warps_m * k->warps_n,
        row_bytes = k->bk * cuda_act_bits(k->spec.act_fmt) / 8;
    if (threads < k->bk * format_info[k->spec.fmt].bits / 16 || threads < row_bytes / 4)
        return "its threads are fewer than the pieces that they copy";
    CudaGeometry g = cuda_geometry(k);
    return g.smem > c->budget ? "it exceeds the shared memory of a block" : NULL;
}

/* Blocks that share K, where tiles are too few; integer blocks along K must keep their order. */
static void mma_splits(CudaCandidates *c, CudaKernel *k)
{
    int64_t tiles_k = (k->spec.k + k->bk - 1) / k->bk;
    k->split_k = 1;
    cuda_candidate_valid(c, k);
    if (k->packed.exact && k->spec.mainloop)
        return;
    int64_t tiles = cuda_geometry(k).grid, block = k->spec.mainloop ? k->packed.block_k / k->bk : 1;
    int most = mma_sums(k) > 64 ? SPLIT_LARGE : SPLIT_MOST;
    for (k->split_k = 2; k->split_k <= most && tiles * k->split_k <= SPLIT_BLOCKS; k->split_k++) {
        int64_t share = (tiles_k + k->split_k - 1) / k->split_k;
        if (block > 1)
            share = (share + block - 1) / block * block;
        if (share >= SPLIT_LEAST && share * (k->split_k - 1) < tiles_k)
            cuda_candidate_valid(c, k);
    }
}

void cuda_candidates_mma(CudaCandidates *c)
{
    for (size_t i = 0; i < COUNT_OF(mma_tiles); i++) {
        const MmaTile *t = &mma_tiles[i];
        CudaKernel k = c->like;
        k.family = CUDA_GEMM_MMA;
        k.bm = t->bm, k.bn = t->bn;
        k.warps_m = t->warps_m, k.warps_n = t->warps_n;
        k.bk = stage_k(&k);
        k.split_k = 1;
        k.stages = 2;
        const char *problem = mma_problem(c, &k);
        if (problem) {
            cuda_candidate_reject(c, &k, "%s", problem);
            continue;
        }
        for (k.stages = 4; k.stages >= 2; k.stages--)
            if (cuda_geometry(&k).smem <= c->budget)
                mma_splits(c, &k);
    }
}

/* stream --------------------------------------------------------------------------------------- */

/* About as many as ptxas gives a thread. */
static int stream_registers(const CudaKernel *k)
{
    int halves = k->rows > 8 ? 2 : 1, units = format_info[k->spec.fmt].bits / 4;
    int rows = (k->local_a ? 1 : 4) * halves * cuda_act_bits(k->spec.act_fmt) / 4;
    int sums = 4 + (k->spec.mainloop ? 2 * halves + 2 : 0);
    int codes = 4 * units + k->packed.zeros;
    if (format_info[k->spec.fmt].family == FAMILY_CODEBOOK)
        codes += 12; /* looked up in registers, twice */
    const PlanTensor *a = &k->plan->tensor[k->launch->a];
    bool scales = a->quantised && scheme_col_blocks(&a->scheme, k->spec.k) > 1;
    return 36 + rows + (scales ? 24 * halves : 0) + k->n_blocks * (codes + sums);
}

/* `part` columns of each part a unit. The threads are a power of two: they share the rows that a
 * prologue makes. */
static void stream_block(CudaCandidates *c, int64_t part, int n_warps, int split_k)
{
    CudaKernel k = c->like;
    int64_t blocks = part * k.spec.parts / 8; /* of 8 columns */
    int64_t bytes = cuda_act_bits(k.spec.act_fmt) / 8;
    int threads = 32 * n_warps * split_k;
    int64_t each = blocks / n_warps; /* an mma takes 16 columns; a group of columns has 64 */
    if (blocks % n_warps || (each != 2 && each != 4 && each != 8))
        return;
    bool ordered = k.packed.exact && k.spec.mainloop && split_k > 1;
    if (k.packed.exact && k.spec.mainloop && !ordered && chunked(&k))
        return;
    k.family = CUDA_STREAM;
    for (k.rows = 1; k.rows < c->rows;)
        k.rows *= 2;
    k.n_warps = n_warps;
    k.n_blocks = (int)(blocks / n_warps);
    k.split_k = split_k;
    /* whole tiles; the rows that one access reads lie in different banks */
    k.local_pitch = k.local_a ? (k.spec.k + 127) / 128 * 128 * bytes + 32 * bytes : 0;
    if (stream_registers(&k) > (threads > 256 ? 128 : 230))
        return;
    k.stages = 0;
    k.buffers = 1;
    int64_t sums = cuda_stream_bytes(&k);
    k.stages = 1;
    int64_t stage = cuda_stream_bytes(&k) - sums;
    k.buffers = sums <= (ordered ? 2 * STREAM_BUFFER : STREAM_BUFFER) ? 2 : 1;
    int64_t local = k.local_a ? cuda_local_bytes(&k) + 4 * cuda_local_scratch(&k) : 0;
    int64_t used = k.buffers * sums + local, budget = c->budget;
    int64_t left = (budget < STREAM_SHARED ? budget : STREAM_SHARED) - used;
    int64_t most = (left < STREAM_RING ? left : STREAM_RING) / stage;
    if (most < 2)
        most = (budget - used) / stage;
    k.stages = (int)(most < 2 ? most : most < 8 ? most : 8);
    if (k.stages >= 2)
        cuda_candidate_valid(c, &k);
}

static void stream_columns(CudaCandidates *c, int64_t part)
{
    static const int shapes[][2] = {{1, 8}, {1, 16}, {2, 4}, {2, 8}, {4, 2},
                                    {4, 4}, {8, 1},  {8, 2}, {1, 4}};
    for (size_t i = 0; i < COUNT_OF(shapes); i++)
        stream_block(c, part, shapes[i][0], shapes[i][1]);
}

void cuda_candidates_stream(CudaCandidates *c)
{
    const CudaKernel *like = &c->like;
    CudaKernel k = *like;
    k.family = CUDA_STREAM;
    k.rows = STREAM_ROWS;
    k.n_warps = 1;
    k.n_blocks = 4 * k.spec.parts;
    if (c->rows > STREAM_ROWS) {
        cuda_candidate_reject(c, &k, "more than %d rows", STREAM_ROWS);
        return;
    }
    int64_t group = epilogue_group(like), whole = (like->packed.rows / like->spec.parts + 31) / 32;
    int64_t block_k = like->spec.mainloop ? like->packed.block_k : 0;
    if (like->packed.exact && block_k && (block_k % 32 || (block_k % 128 && 128 % block_k))) {
        cuda_candidate_reject(c, &k,
                              "integer blocks of %lld of K lie across steps of 32 or tiles of 128",
                              (long long)block_k);
        return;
    }
    int64_t least = group ? group : 16;
    int before = c->num_valid;
    for (int64_t part = least; part <= 4 * least && part * like->spec.parts <= 512; part *= 2)
        if (part % 16 == 0 && cuda_epilogue_fits(like, part))
            stream_columns(c, part);
    int64_t all = 32; /* columns, as many as warps share out */
    while (all < whole * 32)
        all *= 2;
    if (c->num_valid == before && all * like->spec.parts <= 512)
        stream_columns(c, all);
    if (c->num_valid == before)
        cuda_candidate_reject(
            c, &k, "a quantisation group or a row does not lie inside the columns of a block");
}

/* gemm_any ------------------------------------------------------------------------------------- */

void cuda_candidates_any(CudaCandidates *c)
{
    CudaKernel k = c->like;
    k.family = CUDA_GEMM_ANY;
    for (k.bn = 64; k.bn <= 256; k.bn *= 2) {
        if (cuda_epilogue_fits(&k, k.bn / k.spec.parts))
            cuda_candidate_valid(c, &k);
        else
            cuda_candidate_reject(c, &k,
                                  "a quantisation group or a row does not lie inside its columns");
    }
}
