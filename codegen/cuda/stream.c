/* codegen/cuda/stream: products of few rows on tensor cores, bound by the weight's bytes
 * (kernels/cuda/stream.cuh). */
#include "codegen/cuda/family.h"

#include <inttypes.h>

#define MOST_ROWS    16
#define PANELS_ROWS  1 /* .. beside panels: two to eight take a layer 1 to 4 us more than hopper */
#define RING         73728 /* bytes that its warps have on their way, if no less will do */
#define SHARED       99328 /* .. and of shared memory in all, likewise */
#define BUFFER       12288 /* .. that sums may have to be staged twice */
#define DECOUPLED    49152 /* .. at least twice by warps that do not wait for each other, */
#define MOST_BUFFERS 4     /* .. at most so often */
#define ANOTHER_UNIT 4     /* registers of a thread for the unit that it finishes meanwhile */
#define LEAST_HELD   2     /* rounds of rows of a, of those that are copied in turn */
#define MOST_HELD    4
#define MOST_PARTS   8 /* of K, that other families cut it into, too */
#define MOST_APART   2 /* warps side by side, of f32, or ptxas spills a few bytes */

/* Sizes of kernels ----------------------------------------------------------------------------- */

static int64_t num_columns(const CudaKernel *k)
{
    return 8 * (int64_t)k->stream.n_blocks * k->stream.n_warps;
}

static int64_t param_bytes(const CudaKernel *k) /* of a warp's columns, in a slot of its ring */
{
    int64_t scales = k->stream.n_blocks * 8 * (int64_t)k->packed.scale_bytes;
    int64_t zeros = cuda_ceil_div(k->stream.n_blocks * (int64_t)k->packed.zero_bits, 16) * 16;
    return k->packed.subs * (scales + zeros);
}

static int64_t own_tiles(const CudaKernel *k) /* of K, of a block */
{
    return cuda_ceil_div(k->spec.k, CUDA_TILE_K) / k->stream.gather;
}

/* Of the chunks of a that are copied, and of buffers of sums. */
static int64_t barrier_bytes(const CudaKernel *k)
{
    const CudaStream *s = &k->stream;
    int64_t chunks = s->held ? s->held : s->copied ? cuda_ceil_div(own_tiles(k), s->split_k) : 0;
    return cuda_ceil_div((chunks + (s->decoupled ? 2 * s->buffers : 0)) * 8, 128) * 128;
}

/* Shared memory without rows of a; what stream.cuh comes to. */
static int64_t ring_bytes(const CudaKernel *k)
{
    const CudaStream *s = &k->stream;
    bool ordered = k->packed.exact && k->spec.mainloop && s->split_k > 1;
    bool scales = k->packed.scales && !k->packed.folded;
    int64_t block = k->spec.mainloop ? k->packed.block_k : 0;
    int64_t sub = block == 0 || block % 128 == 0 ? 1 : 128 % block == 0 ? 128 / block : 4;
    int64_t columns = num_columns(k), slices = ordered ? s->split_k * sub : s->split_k;
    int64_t stage = s->n_blocks * 128 * (int64_t)k->packed.bits + param_bytes(k);
    int64_t sums = s->rows * (columns + 4);
    int64_t staged = slices * (sums + (ordered && scales ? columns : 0));
    int64_t words = s->buffers * staged + (ordered ? sums : 0);
    int64_t bytes = s->split_k * s->n_warps * s->stages * stage + 4 * words;
    return cuda_ceil_div(bytes, 128) * 128 + cuda_pair_table_bytes(k) + barrier_bytes(k);
}

static bool is_local(const CudaKernel *k)
{
    return k->input == INPUT_LOCAL || k->stream.copied;
}

static int64_t local_grid(const CudaKernel *k) /* scales of one row of a */
{
    const PlanTensor *a = &k->plan->tensor[k->launch->a];
    return a->quantised ? scheme_col_blocks(&a->scheme, k->spec.k) : 0;
}

/* .. and of those rows. */
static int64_t local_bytes(const CudaKernel *k)
{
    return k->local_pitch * k->stream.rows + 8 * local_grid(k) * k->stream.rows + 16;
}

static CudaGeometry geometry(const CudaKernel *k)
{
    int64_t units = cuda_ceil_div(k->packed.rows, num_columns(k)), gather = k->stream.gather;
    int64_t most = gather > 1 ? cuda_most_clusters(k, (int)gather) : units;
    return (CudaGeometry){
        .blocks = (units < most ? units : most) * gather,
        /* blocks stay; a grid of clusters is that of any GPU */
        .per_processor = gather > 1 ? 0 : 1,
        .cluster = (int)gather,
        .block = 32 * k->stream.split_k * k->stream.n_warps,
        .smem = cuda_half_bytes(k, ring_bytes(k) + (is_local(k) ? local_bytes(k) : 0), 1)};
}

static CudaTile tile(const CudaKernel *k)
{
    return (CudaTile){k->stream.rows, (int)num_columns(k)};
}

/* Candidates ----------------------------------------------------------------------------------- */

/* Sums of a step stand beside the others (format.cuh, Pieces). */
static bool is_apart(const CudaKernel *k)
{
    return k->spec.act_fmt == FMT_F32 || k->spec.fmt == FMT_F32 ||
           (cuda_adds_apart(k) && !k->spec.mainloop);
}

/* A lane's codes of a step are those of a fragment, and so are those of its rows. */
static bool has_fragments(const CudaKernel *k)
{
    return k->packed.layout == CUDA_FRAGMENTS || k->packed.layout == CUDA_PANELS;
}

/* `panels` of bytes beside bytes, whose scales are the epilogue's. */
static bool takes(const CudaPackSpec *spec)
{
    return spec->layout != CUDA_PANELS || (format_info[spec->fmt].bits == 8 &&
                                           cuda_act_bits(spec->act_fmt) == 8 && !spec->mainloop);
}

/* .. are multiplied like the records that they would have been. */
static void open_panels(CudaKernel *k)
{
    CudaPackSpec spec = k->spec;
    CudaPacked panels = k->packed;
    spec.layout = CUDA_RECORDS;
    if (panels.layout != CUDA_PANELS || !cuda_pack_plan(&spec, &k->packed))
        return;
    k->packed.layout = CUDA_PANELS;
    k->packed.rows = panels.rows;
    k->packed.bytes = panels.bytes;
    k->packed.neighbours = 4;
}

/* Units are whole runs of 32 columns of each part, and a warp's columns lie inside the weight. */
static bool fits_panels(const CudaKernel *k, int64_t part, int64_t each)
{
    return k->packed.layout != CUDA_PANELS || (part % 32 == 0 && k->packed.rows % (8 * each) == 0);
}

/* About as many as ptxas gives a thread. */
static int num_registers(const CudaKernel *k)
{
    int halves = k->stream.rows > 8 ? 2 : 1, units = format_info[k->spec.fmt].bits / 4;
    int rows = (is_local(k) ? 1 : 4) * halves * cuda_act_bits(k->spec.act_fmt) / 4;
    int sums = 4 + (k->spec.mainloop ? 2 * halves + 2 : 0) + (is_apart(k) ? 4 * halves + 2 : 0);
    int codes = 4 * units + k->packed.zeros;
    if (format_info[k->spec.fmt].family == FAMILY_CODEBOOK)
        codes += cuda_codebook_pieces(k) == 1 ? 6
                 : k->spec.act_fmt == FMT_F32 ? 20
                 : k->stream.n_blocks > 4     ? 17
                                              : 14; /* looked up in registers, twice */
    if (codes > 16 && is_local(k) && has_fragments(k))
        codes += 2; /* beside rows that ldmatrix reads */
    const PlanTensor *a = &k->plan->tensor[k->launch->a];
    bool scales = a->quantised && scheme_col_blocks(&a->scheme, k->spec.k) > 1;
    return 36 + rows + (scales ? 24 * halves : 0) + k->stream.n_blocks * (codes + sums);
}

static int most_registers(const CudaKernel *k) /* .. that it may have */
{
    return k->stream.n_warps * k->stream.split_k > 8 ? 128 : 230;
}

/* Whether ptxas spills some bytes: 64 columns a warp with scales for each 32 of K. */
static bool spills(const CudaKernel *k)
{
    return k->stream.rows > 8 && k->stream.n_blocks == 8 && k->spec.mainloop &&
           k->packed.block_k == 32;
}

/* The products of `mixed`, one 16-bit float for each code, in as many equal parts of K. */
static bool adds_as_wgmma(const CudaKernel *k)
{
    const CudaFamilyRow *mixed = cuda_family[CUDA_MIXED];
    bool is_codebook = format_info[k->spec.fmt].family == FAMILY_CODEBOOK;
    return cuda_family_serves(CUDA_MIXED, k->gpu) && mixed->takes(&k->spec) && !k->packed.exact &&
           !k->packed.folded && !cuda_adds_apart(k) && format_info[k->spec.act_fmt].bits == 16 &&
           (!is_codebook || cuda_codebook_pieces(k) == 1) && k->spec.k % CUDA_TILE_K == 0 &&
           k->spec.k / CUDA_TILE_K % k->stream.split_k == 0 && k->stream.split_k <= MOST_PARTS;
}

/* How often sums are staged: twice where that is little. Where blocks have several units and none
 * has to wait for its end, so often that warps may be far apart. */
static void fill_buffers(CudaKernel *k, int64_t sums)
{
    CudaStream *s = &k->stream;
    bool ordered = k->packed.exact && k->spec.mainloop && s->split_k > 1;
    int64_t units = cuda_ceil_div(k->packed.rows, num_columns(k));
    s->decoupled = cuda_family_serves(CUDA_MIXED, k->gpu) && !ordered && s->gather == 1 &&
                   units > k->gpu->processors && 2 * sums <= DECOUPLED &&
                   num_registers(k) + ANOTHER_UNIT <= most_registers(k);
    s->buffers = s->gather > 1 || sums <= (ordered ? 2 * BUFFER : BUFFER) ? 2 : 1;
    if (s->decoupled)
        s->buffers = sums * MOST_BUFFERS <= DECOUPLED ? MOST_BUFFERS : (int)(DECOUPLED / sums);
}

/* Sets the ring and what goes with it; false: it does not fit. */
static bool fill_ring(const CudaCandidates *c, CudaKernel *k)
{
    CudaStream *s = &k->stream;
    /* whole tiles; the rows that one access reads lie in different banks */
    int64_t bytes = cuda_act_bits(k->spec.act_fmt) / 8;
    int64_t apart = has_fragments(k) ? 16 : 32 * bytes;
    int64_t tiles = s->held ? s->held * s->split_k : own_tiles(k);
    k->local_pitch = is_local(k) ? tiles * CUDA_TILE_K * bytes + apart : 0;
    s->decoupled = false;
    s->stages = 0;
    s->buffers = 1;
    int64_t table = cuda_pair_table_bytes(k), sums = ring_bytes(k) - table - barrier_bytes(k);
    s->stages = 1;
    int64_t stage = ring_bytes(k) - sums - table - barrier_bytes(k);
    fill_buffers(k, sums);
    int64_t local = (is_local(k) ? local_bytes(k) : 0) + barrier_bytes(k) +
                    (k->input == INPUT_LOCAL ? 4 * cuda_prologue_scratch(k) : 0);
    int64_t budget = cuda_room(c, k) - table;
    if (s->held && 2 * sums + local + 2 * stage <= budget)
        s->buffers = 2;
    int64_t used = s->buffers * sums + local;
    bool large = s->copied || s->decoupled;
    int64_t left = (budget < SHARED || large ? budget : SHARED) - used;
    int64_t most = (left < RING ? left : RING) / stage;
    if (most < 2)
        most = large ? left / stage < 2 ? left / stage : 2 : (budget - used) / stage;
    s->stages = (int)(most < 2 ? most : most < 8 ? most : 8);
    return s->stages >= 2;
}

/* Of rows that do not fit as many rounds at once as do, where warps meet every round; and as many
 * as do beside two buffers of sums. */
static void put_refilled(CudaCandidates *c, CudaKernel *k)
{
    CudaStream *s = &k->stream;
    int64_t rounds = cuda_ceil_div(own_tiles(k), s->split_k);
    if (!k->packed.exact || !k->spec.mainloop || s->split_k == 1 || k->spec.k % CUDA_TILE_K)
        return;
    bool twice = false;
    for (s->held = MOST_HELD; s->held >= LEAST_HELD && !twice; s->held--) {
        if (s->held >= rounds || !fill_ring(c, k))
            continue;
        cuda_candidate_valid(c, k);
        twice = s->buffers == 2;
    }
}

/* The same with a's rows in shared memory, and K over the clusters that occupy the most processors.
 */
static void put_copied(CudaCandidates *c, const CudaKernel *like)
{
    CudaKernel k = *like;
    int64_t tiles = cuda_ceil_div(k.spec.k, CUDA_TILE_K);
    int64_t units = cuda_ceil_div(k.packed.rows, num_columns(&k));
    if (!cuda_family_serves(CUDA_MIXED, k.gpu) || k.input != INPUT_GIVEN ||
        k.spec.k * cuda_act_bits(k.spec.act_fmt) / 8 % 16)
        return;
    k.stream.copied = true;
    if (fill_ring(c, &k))
        cuda_candidate_valid(c, &k);
    else
        put_refilled(c, &k);
    bool ordered = k.packed.exact && k.spec.mainloop;
    if (ordered || k.stream.as_wgmma || k.spec.k % CUDA_TILE_K)
        return;
    int most = 1;
    for (int gather = 2; gather <= CUDA_MOST_GATHERED; gather *= 2) {
        k.stream.gather = gather;
        if (tiles % gather == 0 && 2 * own_tiles(&k) >= k.stream.split_k && fill_ring(c, &k) &&
            (most == 1 || units <= cuda_most_clusters(&k, gather)))
            most = gather;
    }
    k.stream.gather = most;
    if (most > 1 && fill_ring(c, &k))
        cuda_candidate_valid(c, &k);
}

/* `part` columns of each part a unit. The threads are a power of two: they share the rows that a
 * prologue makes. */
static void put_block(CudaCandidates *c, int64_t part, int n_warps, int split_k)
{
    CudaKernel k = c->like;
    int64_t blocks = part * k.spec.parts / 8; /* of 8 columns */
    int64_t each = blocks / n_warps; /* an mma takes 16 columns; a group of columns has 64 */
    if (blocks % n_warps || (each != 2 && each != 4 && each != 8) || !fits_panels(&k, part, each))
        return;
    open_panels(&k);
    bool ordered = k.packed.exact && k.spec.mainloop && split_k > 1;
    if (k.packed.exact && k.spec.mainloop && !ordered && cuda_is_chunked(&k))
        return;
    k.family = CUDA_STREAM;
    k.stream = (CudaStream){
        .rows = 1, .n_warps = n_warps, .n_blocks = (int)each, .split_k = split_k, .gather = 1};
    while (k.stream.rows < c->rows)
        k.stream.rows *= 2;
    if ((is_apart(&k) && n_warps > MOST_APART) || spills(&k))
        return;
    bool as_wgmma = k.invariant && adds_as_wgmma(&k);
    if (num_registers(&k) <= most_registers(&k) && fill_ring(c, &k)) {
        cuda_candidate_valid(c, &k);
        k.stream.as_wgmma = true;
        if (as_wgmma)
            cuda_candidate_valid(c, &k);
    }
    k.stream.as_wgmma = as_wgmma;
    k.stream.copied = true;
    /* of invariant products those in the order of few others would serve few buckets */
    if ((as_wgmma || !k.invariant) && num_registers(&k) <= most_registers(&k))
        put_copied(c, &k);
}

static void put_columns(CudaCandidates *c, int64_t part)
{
    static const int shapes[][2] = {{1, 8}, {1, 16}, {2, 4}, {2, 8}, {4, 2},
                                    {4, 4}, {8, 1},  {8, 2}, {1, 4}};
    for (size_t i = 0; i < COUNT_OF(shapes); i++)
        put_block(c, part, shapes[i][0], shapes[i][1]);
}

static void candidates(CudaCandidates *c)
{
    const CudaKernel *like = &c->like;
    CudaKernel k = *like;
    k.family = CUDA_STREAM;
    k.stream = (CudaStream){
        .rows = MOST_ROWS, .n_warps = 1, .n_blocks = 4 * k.spec.parts, .split_k = 1, .gather = 1};
    int most = k.packed.layout == CUDA_PANELS ? PANELS_ROWS : MOST_ROWS;
    if (like->layout[like->launch->a].rows > most) {
        cuda_candidate_reject(c, &k, "more than %d row%s", most,
                              most == 1 ? " beside panels" : "s");
        return;
    }
    int64_t group = cuda_epilogue_group(like),
            whole = (like->packed.rows / like->spec.parts + 31) / 32;
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
            put_columns(c, part);
    int64_t all = 32; /* columns, as many as warps share out */
    while (all < whole * 32)
        all *= 2;
    if (c->num_valid == before && all * like->spec.parts <= 512)
        put_columns(c, all);
    if (c->num_valid == before)
        cuda_candidate_reject(
            c, &k, "a quantisation group or a row does not lie inside the columns of a block");
}

static void put_numbers(Sb *sb, const CudaKernel *k)
{
    sb_printf(sb, "%dx%d", k->stream.rows, tile(k).cols);
    if (k->stream.stages)
        sb_printf(sb, " w%d k%d s%d", k->stream.n_warps, k->stream.split_k, k->stream.stages);
    if (k->stream.as_wgmma)
        sb_printf(sb, " p%d", k->stream.split_k);
    sb_put(sb, k->stream.copied ? " copied" : "");
    if (k->stream.held)
        sb_printf(sb, " r%d", k->stream.held);
    if (k->stream.gather > 1)
        sb_printf(sb, " x%d", k->stream.gather);
}

/* Text ----------------------------------------------------------------------------------------- */

static void put_config(Sb *sb, const CudaKernel *k)
{
    cuda_put_product(sb, k);
    cuda_put_schemes(sb, k);
    cuda_put_records(sb, k);
    cuda_put_int(sb, "kNeighbours", k->packed.neighbours);
    cuda_put_bool(sb, "kPanels", k->packed.layout == CUDA_PANELS);
    cuda_put_int(sb, "kNBlocks", k->stream.n_blocks);
    cuda_put_int(sb, "kSplitK", k->stream.split_k);
    cuda_put_int(sb, "kNWarps", k->stream.n_warps);
    cuda_put_int(sb, "kStages", k->stream.stages);
    cuda_put_int(sb, "kBuffers", k->stream.buffers);
    cuda_put_int(sb, "kRows", k->stream.rows);
    cuda_put_bool(sb, "kLocalA", is_local(k));
    cuda_put_bool(sb, "kCopiesA", k->stream.copied);
    cuda_put_int(sb, "kHeld", k->stream.held);
    cuda_put_int(sb, "kGivenPitch", k->layout[k->launch->a].pitch);
    cuda_put_int(sb, "kGather", k->stream.gather);
    cuda_put_bool(sb, "kDecoupled", k->stream.decoupled);
    cuda_put_bool(sb, "kAsWgmma", k->stream.as_wgmma);
    cuda_put_int(sb, "kSmemBytes", ring_bytes(k));
    cuda_put_int(sb, "kCols", num_columns(k) / k->spec.parts);
}

/* All threads of the block make row after row in shared memory. */
static void put_prologue(Sb *sb, const CudaKernel *k)
{
    const PlanTensor *a = &k->plan->tensor[k->launch->a];
    int64_t codes = k->local_pitch * k->stream.rows;
    int64_t grid = 4 * local_grid(k) * k->stream.rows;
    sb_line(sb, "struct Prologue {");
    sb->indent = 4;
    cuda_emit_program(sb, k, &k->launch->prologue, "steps");
    sb_line(sb, "static __device__ __forceinline__ Operand run(const Params &p, char *local)");
    sb_line(sb, "{");
    sb->indent = 8;
    cuda_put_row_type(sb, k);
    sb_line(sb, "static_assert(S::kT == StreamShape<Cfg>::kThreads && S::kT * S::kV == 1024,");
    sb_line(sb, "              \"the block's threads are those of a row\");");
    sb_line(sb, "__shared__ __align__(16) int32_t scratch[%" PRId64 "];", cuda_prologue_scratch(k));
    sb_line(sb, "Operand a = p.op[Cfg::kOperandA];");
    sb_line(sb, "a.data = local;");
    if (a->quantised && !a->is_static) {
        sb_line(sb, "a.scale = (float *)(local + %" PRId64 ");", codes);
        sb_line(sb, "a.zero = (int32_t *)(local + %" PRId64 ");", codes + grid);
    }
    /* (an outer scale that they find stays the tensor's own: all blocks store the same one) */
    sb_line(sb, "const Row<S> row = {(int)threadIdx.x, 0, Cfg::kK, scratch};");
    sb_line(sb, "wait_for_producer();");
    sb_line(sb, "for (int64_t m = 0; m < p.dim[0]; m++)");
    sb_line(sb, "    steps(p, a, row, m, (const char *)0);");
    sb_line(sb, "__syncthreads();");
    sb_line(sb, "return a;");
    sb->indent = 4;
    sb_line(sb, "}");
    sb->indent = 0;
    sb_line(sb, "};");
}

/* In the order of wgmma it is that of blocks of `mixed` (docs/numerics.md). */
static CudaFamily adds_as(const CudaKernel *k)
{
    return k->stream.as_wgmma ? CUDA_MIXED : CUDA_STREAM;
}
static bool put_order(Sb *sb, const CudaKernel *k)
{
    if (k->stream.as_wgmma)
        cuda_put_parts(sb, k->spec.mainloop, k->stream.split_k);
    else
        sb_printf(sb, " in %d parts of K", k->stream.split_k);
    if (k->stream.gather > 1)
        sb_printf(sb, ", each of a run of %d", k->stream.gather);
    return true;
}

static void describe(Sb *sb, const CudaKernel *k)
{
    sb_printf(sb, " %d rows x %d columns, K %sover %d of %d warps, %d stages%s%s", k->stream.rows,
              tile(k).cols, k->stream.as_wgmma ? "in runs " : "", k->stream.split_k,
              k->stream.split_k * k->stream.n_warps, k->stream.stages,
              k->input == INPUT_LOCAL ? ", its input made in shared memory"
              : k->stream.held        ? ", its input copied in turn to shared memory"
              : k->stream.copied      ? ", its input copied to shared memory"
                                      : "",
              cuda_multiplied_by(k));
    if (k->stream.gather > 1)
        sb_printf(sb, ", K over clusters of %d", k->stream.gather);
}

/* Time ----------------------------------------------------------------------------------------- */

/* Fitted to the shipped times of an H200 (docs/timings.md), 17 % off. */
#define BLOCK_START     0.27  /* us from a block's start to its first product */
#define DECOUPLED_TIMES 0.57  /* of what joins sums that others do not wait for */
#define CLUSTER_US      0.84  /* .. in which a cluster's blocks meet and read each other's sums */
#define COPY_TIMES      0.78  /* of reading a for each block, where they copy it */
#define MEMORY          4.9e6 /* bytes a microsecond, as a launch begins behind another's end */

/* Codes that busy processors decode and multiply, 1e6 a microsecond, for up to 8 rows. */
static double rate_of(const CudaKernel *k)
{
    int bits = format_info[k->spec.fmt].bits;
    double rate = bits == 16 ? 3.3 : bits == 8 || k->spec.fmt == FMT_E2M1 ? 6.7 : 9.6;
    if (format_info[k->spec.fmt].family == FAMILY_CODEBOOK)
        rate = cuda_codebook_pieces(k) > 1 ? 1.5 : 7.6;
    if (k->spec.bits)
        rate *= 0.8; /* a guess: they are opened to nibbles first */
    if (k->stream.rows > 8)
        rate *= k->packed.home == CUDA_HOME_I8 && k->spec.mainloop ? 0.45 : 0.61;
    return rate;
}

/* The busiest processor's units: their weights and what every unit reads of a, at its share of the
 * bandwidths, or decoding them, where the warps hold enough to be busy; and what joins the sums of
 * the warps. */
static double time_us(const CudaKernel *k, const CudaGeometry *g)
{
    int64_t columns = 8 * (int64_t)k->stream.n_blocks * k->stream.n_warps, warps = g->block / 32;
    int64_t units = (k->packed.rows + columns - 1) / columns;
    double rounds = (double)cuda_ceil_div(units, g->grid / k->stream.gather);
    int gather = k->stream.gather;
    double own_k = (double)k->spec.k / gather;
    double bits = k->packed.bits, codes = (double)columns * own_k;
    double rows_us = k->stream.rows * own_k * format_info[k->spec.act_fmt].bits / 8 / CUDA_L2_RATE;
    double loads =
        codes * bits / 8 / MEMORY + (is_local(k) ? 0 : rows_us * (1 + 0.1 * k->stream.n_warps));
    double held =
        (double)(warps * k->stream.n_blocks) * bits / 4; /* of a tile of K, 512 bytes each */
    double enough = k->stream.rows > 8 ? 32 : 46;
    double busy = (held < enough ? pow(held / enough, 0.74) : 1) * (warps < 8 ? 0.82 : 1);
    double work = codes / (rate_of(k) * 1e6 * busy);
    double join = (0.11 + 0.036 * k->stream.rows) * (k->stream.decoupled ? DECOUPLED_TIMES : 1) +
                  (gather > 1 ? CLUSTER_US : 0);
    double copies = k->stream.copied ? COPY_TIMES * rows_us * k->gpu->processors : 0;
    copies *= k->stream.held ? rounds : 1;
    /* who has more units reads faster meanwhile, but none alone as fast as all */
    double processors = k->gpu->processors, all = rounds > 1 ? (double)units : processors;
    double us = loads * all > work * rounds * processors ? loads * all : work * rounds * processors;
    return us + rounds * join + copies + BLOCK_START;
}

/* By how much fragments take longer than records: a is loaded in words of what it was loaded in
 * whole, and scales folded into codes are no longer those of eight neighbours. */
static double fragment_times(const CudaKernel *k)
{
    bool wide = cuda_act_bits(k->spec.act_fmt) > 8;
    if (!has_fragments(k) || k->stream.copied)
        return 1;
    return wide ? 1.1 + 0.026 * k->stream.rows : 1.09 + 0.011 * k->stream.rows;
}

static double predict(const CudaKernel *k, const CudaGeometry *g)
{
    double us = time_us(k, g) * fragment_times(k), weights = cuda_weight_bytes(k) / MEMORY;
    return us > weights ? us : weights;
}

static int begins(const CudaKernel *k)
{
    return k->stream.as_wgmma ? k->stream.split_k /* else warps take one unit each in turn */
                              : k->stream.gather;
}

const CudaFamilyRow cuda_stream = {
    .instruction = "mma.sync",
    .launch = LAUNCH_GEMM,
    .seed = 1,
    .slowness = 5,
    .fetches = true,
    .min_blocks = 1,
    .layouts = 1 << CUDA_RECORDS | 1 << CUDA_FRAGMENTS | 1 << CUDA_PANELS,
    .aligned = true,
    .makes_rows = true,
    .takes = takes,
    .candidates = candidates,
    .tile = tile,
    .put_numbers = put_numbers,
    .geometry = geometry,
    .predict = predict,
    .put_config = put_config,
    .put_prologue = put_prologue,
    .call = {"stream<Cfg, GivenRows<Cfg>, Epilogue>", "stream<Cfg, Prologue, Epilogue>"},
    .describe = describe,
    .put_order = put_order,
    .looks_ahead = true,
    .begins = begins,
    .adds_as = adds_as,
};
