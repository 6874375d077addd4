/* codegen/cuda/source: the text of one kernel: constants, programs, entry. */
#include "codegen/cuda/kernel.h"

#include <inttypes.h>

const char *const cuda_family_name[NUM_CUDA_FAMILIES] = {
    [CUDA_GEMM_MMA] = "gemm_mma", [CUDA_STREAM] = "stream", [CUDA_HOPPER] = "hopper",
    [CUDA_GEMM_ANY] = "gemm_any", [CUDA_TILE] = "tile",     [CUDA_MOVE] = "move",
};

static const char *const format_word[NUM_FORMATS] = {
#define FORMAT(ID, name, bits, family, is_signed, exp, man, bias, qmin, qmax) \
    [FMT_##ID] = "FMT_" #ID,
#include "numerics/formats.def"
#undef FORMAT
};
static const char *const home_word[] = {"HOME_I8", "HOME_F16", "HOME_BF16", "HOME_F32"};

static void put_int(Sb *sb, const char *name, int64_t value)
{
    sb_line(sb, "static constexpr int %s = %" PRId64 ";", name, value);
}

static void put_bool(Sb *sb, const char *name, bool value)
{
    sb_line(sb, "static constexpr bool %s = %s;", name, value ? "true" : "false");
}

/* Constants ------------------------------------------------------------------------------------ */

/* The records of the weight, and what is done with scales and zero points. */
static void put_records(Sb *sb, const CudaKernel *k)
{
    const CudaPackSpec *spec = &k->spec;
    const CudaPacked *packed = &k->packed;
    bool blocks = spec->block_cols && spec->block_cols < spec->k;
    put_int(sb, "kRecord", packed->record);
    put_int(sb, "kScaleAt", packed->scale_at);
    put_int(sb, "kZeroAt", packed->zero_at);
    put_int(sb, "kSubs", packed->subs);
    put_int(sb, "kWBlockK", blocks ? spec->block_cols : 0);
    sb_line(sb, "static constexpr int kScaleFmt = %s;",
            format_word[packed->scales ? spec->scale_fmt : FMT_F32]);
    sb_line(sb, "static constexpr int64_t kOuterAt = %" PRId64 ";", packed->outer_at);
    put_bool(sb, "kWScales", packed->scales);
    put_bool(sb, "kWZero", packed->zeros);
    put_bool(sb, "kWFold", packed->folded);
    put_bool(sb, "kAFold", packed->act_folded);
    put_bool(sb, "kExact", packed->exact);
}

/* What all products share: operands, shapes, schemes. */
static void put_product(Sb *sb, const CudaKernel *k)
{
    const PlanTensor *a = &k->plan->tensor[k->launch->a];
    const CudaPackSpec *spec = &k->spec;
    const CudaPacked *packed = &k->packed;
    int64_t a_block = a->quantised && a->scheme.block[1] < spec->k ? a->scheme.block[1] : 0;
    bool zero = a->quantised && a->scheme.zero != ZERO_NONE && packed->home != CUDA_HOME_I8;
    sb_line(sb, "static constexpr int kA = %s, kW = %s, kHome = %s;", format_word[spec->act_fmt],
            format_word[spec->fmt], home_word[packed->home]);
    put_int(sb, "kK", spec->k);
    put_int(sb, "kN", packed->rows);
    put_int(sb, "kParts", spec->parts);
    put_int(sb, "kAPitch", k->local_a ? k->local_pitch : k->layout[k->launch->a].pitch);
    /* a, w come after the operands of the programs */
    put_int(sb, "kOperandA", k->launch->num_operands);
    put_int(sb, "kOperandW", k->launch->num_operands + 1);
    put_int(sb, "kOperandSplit", cuda_split_bytes(k) ? k->launch->num_operands + 2 : 0);
    if (k->family == CUDA_GEMM_ANY)
        return;
    put_bool(sb, "kMainloop", spec->mainloop);
    put_int(sb, "kBlockK", packed->block_k);
    put_int(sb, "kABlockRows", a->quantised ? a->scheme.block[0] : 1);
    put_int(sb, "kABlockK", a_block);
    put_bool(sb, "kAScale", a->quantised);
    put_bool(sb, "kAZero", zero);
    if (k->family != CUDA_HOPPER)
        put_records(sb, k);
}

static void put_tiles(Sb *sb, const CudaKernel *k)
{
    put_int(sb, "kBM", k->bm);
    put_int(sb, "kBN", k->bn);
    put_int(sb, "kBK", k->bk);
    put_int(sb, "kCols", k->bn / k->spec.parts);
    put_int(sb, "kWarpsM", k->warps_m);
    put_int(sb, "kWarpsN", k->warps_n);
    put_int(sb, "kStages", k->stages);
    put_int(sb, "kSplitK", k->split_k);
    put_int(sb, "kSplitSums", CUDA_SPLIT_SUMS);
    if (k->shared_a)
        put_int(sb, "kRowCounters", CUDA_SPLIT_ROWS);
}

static int64_t stream_columns(const CudaKernel *k)
{
    return 8 * (int64_t)k->n_blocks * k->n_warps;
}

static void put_stream(Sb *sb, const CudaKernel *k)
{
    put_int(sb, "kNBlocks", k->n_blocks);
    put_int(sb, "kSplitK", k->split_k);
    put_int(sb, "kNWarps", k->n_warps);
    put_int(sb, "kStages", k->stages);
    put_int(sb, "kBuffers", k->buffers);
    put_int(sb, "kRows", k->rows);
    put_bool(sb, "kLocalA", k->local_a);
    put_int(sb, "kSmemBytes", cuda_stream_bytes(k));
    put_int(sb, "kCols", stream_columns(k) / k->spec.parts);
}

static void put_any(Sb *sb, const CudaKernel *k)
{
    put_bool(sb, "kVaries", k->varies);
    put_int(sb, "kBN", k->bn);
    put_int(sb, "kCols", k->bn / k->spec.parts);
    sb_line(sb, "static constexpr int64_t kWPitch = %" PRId64 ";", k->layout[k->launch->w].pitch);
}

/* What is known of tiles of both kinds. */
static const char *row_edge(const CudaKernel *k, int64_t cols)
{
    if (k->varies || k->last_cols % k->run)
        return "EDGE_ANY";
    int64_t tile = k->last_cols != k->tile_cols ? k->run : k->tile_cols;
    return cuda_edge(0, cols, tile, (int64_t)k->threads_row * k->values, k->run);
}

static void put_rows(Sb *sb, const CudaKernel *k)
{
    int64_t cols = k->layout[k->launch->operand[0].tensor].cols;
    put_int(sb, "kT", k->threads_row);
    put_int(sb, "kV", k->run);
    put_int(sb, "kE", k->values);
    sb_line(sb, "static constexpr Edge kEdge = %s;", row_edge(k, cols));
    put_int(sb, "kGroups", k->groups);
    put_bool(sb, "kVaries", k->varies);
    put_int(sb, "kCols", cols);
    put_int(sb, "kTileCols", k->tile_cols);
    put_int(sb, "kLastCols", k->last_cols);
    put_int(sb, "kSweeps", k->sweeps);
    put_bool(sb, "kBackwards", k->span == SPAN_GIVEN);
    put_int(sb, "kScratchWords", k->scratch_words);
    put_bool(sb, "kPersistent", k->per_processor > 0);
}

static void put_dims(Sb *sb, const char *name, const PlanDim *dim, int rank, const int64_t *size)
{
    sb_printf(sb, "    static __device__ __forceinline__ int64_t %s(int d) { return ", name);
    for (int i = 0; i + 1 < rank; i++)
        sb_printf(sb, "d == %d ? %" PRId64 "LL : ", i, plan_dim_eval(dim[i], size));
    sb_printf(sb, "%" PRId64 "LL; }\n", rank ? plan_dim_eval(dim[rank - 1], size) : 1);
}

static void put_move(Sb *sb, const CudaKernel *k)
{
    const PlanLaunch *l = k->launch;
    put_int(sb, "kRank", l->move_rank);
    put_bool(sb, "kVaries", k->varies);
    put_int(sb, "kElementBytes", format_info[k->plan->tensor[l->dst].fmt].bits / 8);
    sb_line(sb, "static constexpr int64_t kSrcAt = %" PRId64 ", kDstAt = %" PRId64 ";",
            plan_dim_eval(l->move_src_offset, k->size), plan_dim_eval(l->move_dst_offset, k->size));
    put_dims(sb, "dim", l->move_dim, l->move_rank, k->size);
    put_dims(sb, "src", l->move_src_stride, l->move_rank, k->size);
    put_dims(sb, "dst", l->move_dst_stride, l->move_rank, k->size);
}

static void put_config(Sb *sb, const CudaKernel *k)
{
    sb_line(sb, "struct Cfg {");
    sb->indent = 4;
    if (k->family <= CUDA_GEMM_ANY)
        put_product(sb, k);
    switch (k->family) {
    case CUDA_GEMM_MMA: put_tiles(sb, k); break;
    case CUDA_STREAM: put_stream(sb, k); break;
    case CUDA_HOPPER: cuda_hopper_config(sb, k); break;
    case CUDA_GEMM_ANY: put_any(sb, k); break;
    case CUDA_TILE: put_rows(sb, k); break;
    case CUDA_MOVE: put_move(sb, k); break;
    case NUM_CUDA_FAMILIES: break;
    }
    sb->indent = 0;
    sb_line(sb, "};");
}

/* Programs ------------------------------------------------------------------------------------ */

static int vector_run(int64_t columns) /* neighbours of a lane in an epilogue */
{
    int64_t each = (columns + 31) / 32;
    return each % 4 == 0 ? 4 : each % 2 == 0 ? 2 : 1;
}

static int64_t part_columns(const CudaKernel *k)
{
    return (k->family == CUDA_STREAM ? stream_columns(k) : k->bn) / k->spec.parts;
}

static int block_threads(const CudaKernel *k)
{
    switch (k->family) {
    case CUDA_GEMM_MMA: return 32 * k->warps_m * k->warps_n;
    case CUDA_STREAM: return 32 * k->split_k * k->n_warps;
    case CUDA_HOPPER: return cuda_hopper_geometry(k).block;
    case CUDA_TILE: return k->threads_row * k->groups;
    default: return 256;
    }
}

/* The epilogue hands each segment its columns of the staged row. */
static void put_epilogue(Sb *sb, const CudaKernel *k)
{
    const PlanLaunch *l = k->launch;
    int64_t columns = part_columns(k), words = 1, held = (columns + 31) / 32 * 32;
    sb_line(sb, "struct Epilogue {");
    sb->indent = 4;
    for (int i = 0; i < l->num_segments; i++) {
        const PlanProgram *program = &l->segment[i].epilogue;
        int64_t need = cuda_program_scratch(k, program, 32, held);
        words = need > words ? need : words;
        cuda_emit_program(sb, k, program, arena_printf(sb->arena, "segment%d", i));
    }
    if (k->family == CUDA_HOPPER && cuda_hopper_held(sb, k)) {
        sb->indent = 0;
        sb_line(sb, "};");
        return;
    }
    sb_line(sb, "static __device__ __forceinline__ void row(const Params &p, const Operand &a,");
    sb_line(sb, "    const char *acc, int64_t m, int n0, int lane)");
    sb_line(sb, "{");
    sb->indent = 8;
    sb_line(sb, "__shared__ int32_t scratch[%d][%" PRId64 "];", block_threads(k) / 32, words);
    sb_line(sb, "const int last = n0 + %" PRId64 ";", columns);
    for (int i = 0; i < l->num_segments; i++) {
        int64_t begin = l->segment[i].n_begin, end = l->segment[i].n_end;
        bool open = end == PLAN_LAST_COLUMN;
        const char *to = arena_printf(sb->arena, "%" PRId64, open ? k->packed.rows : end);
        if (open && k->varies && !k->plan->tensor[l->w].packed)
            to = arena_printf(sb->arena, "(int)p.dim[%d]", SIZE_N);
        sb_line(sb, "if (n0 < %s && last > %" PRId64 ") {", to, begin);
        sb_line(sb, "    const int from = n0 > %" PRId64 " ? n0 : %" PRId64 ";", begin, begin);
        sb_line(sb, "    const int to = last < %s ? last : %s;", to, to);
        sb_line(sb,
                "    const Row<RowShape<32, %d, %" PRId64 ", %s>> row = {lane, from - %" PRId64
                ", to - %" PRId64 ", scratch[threadIdx.x / 32]};",
                vector_run(columns), held / 32,
                open && k->varies ? "EDGE_ANY"
                                  : cuda_edge(begin, open ? k->packed.rows : end, columns, held,
                                              vector_run(columns)),
                begin, begin);
        sb_line(sb, "    segment%d(p, a, row, m, StagedSums<Cfg::kCols>{acc + (from - n0) * 4});",
                i);
        sb_line(sb, "}");
    }
    sb->indent = 4;
    sb_line(sb, "}");
    sb->indent = 0;
    sb_line(sb, "};");
}

static void put_row_program(Sb *sb, const CudaKernel *k)
{
    const char *found = k->span == SPAN_GATHER ? "found" : "";
    sb_line(sb, "struct Program {");
    sb->indent = 4;
    if (k->sweeps) {
        cuda_emit_row_sweeps(sb, k, &k->launch->program);
    } else {
        cuda_emit_program(sb, k, &k->launch->program, "steps");
        sb_line(sb, "template <class S> static __device__ __forceinline__ void row(");
        sb_line(sb, "    const Params &p, const Row<S> &row, int64_t m, Found &%s)", found);
        sb_line(sb, "{");
        sb_line(sb, "    steps(p, p.op[0], row, m, (const char *)0%s%s);", *found ? ", " : "",
                found);
        sb_line(sb, "}");
    }
    sb_line(sb, "static __device__ __forceinline__ void end(");
    sb_line(sb, "    const Params &p, const Found &found, int32_t *scratch)");
    sb_line(sb, "{");
    sb->indent += 4;
    if (*found)
        cuda_emit_gather_end(sb, k, &k->launch->program);
    sb->indent -= 4;
    sb_line(sb, "}");
    sb->indent = 0;
    sb_line(sb, "};");
}

/* Local a: all threads of the block make row after row of it in shared memory. Between them they
 * hold the 1024 lanes of the order of sums, so their number is a power of two. */
static int local_run(const CudaKernel *k) /* kV */
{
    return 1024 / block_threads(k);
}

static int64_t local_values(const CudaKernel *k) /* kE */
{
    return (k->spec.k + 1023) / 1024 * local_run(k);
}

static int64_t local_grid(const CudaKernel *k) /* scales of one row of a */
{
    const PlanTensor *a = &k->plan->tensor[k->launch->a];
    return a->quantised ? scheme_col_blocks(&a->scheme, k->spec.k) : 0;
}

int64_t cuda_local_bytes(const CudaKernel *k)
{
    return k->local_pitch * k->rows + 8 * local_grid(k) * k->rows + 16;
}

static int64_t local_held(const CudaKernel *k) /* columns that the threads have room for */
{
    return block_threads(k) * local_values(k);
}

int64_t cuda_local_scratch(const CudaKernel *k)
{
    return cuda_program_scratch(k, &k->launch->prologue, block_threads(k), local_held(k));
}

static void put_prologue(Sb *sb, const CudaKernel *k)
{
    const PlanTensor *a = &k->plan->tensor[k->launch->a];
    int64_t codes = k->local_pitch * k->rows;
    int64_t grid = 4 * local_grid(k) * k->rows;
    sb_line(sb, "struct Prologue {");
    sb->indent = 4;
    cuda_emit_program(sb, k, &k->launch->prologue, "steps");
    sb_line(sb, "static __device__ __forceinline__ Operand run(const Params &p, char *local)");
    sb_line(sb, "{");
    sb->indent = 8;
    sb_line(sb, "typedef RowShape<%d, %d, %" PRId64 ", %s> S;", block_threads(k), local_run(k),
            local_values(k), cuda_edge(0, k->spec.k, k->spec.k, local_held(k), local_run(k)));
    sb_line(sb, "static_assert(S::kT == StreamShape<Cfg>::kThreads && S::kT * S::kV == 1024,");
    sb_line(sb, "              \"the block's threads are those of a row\");");
    sb_line(sb, "__shared__ __align__(16) int32_t scratch[%" PRId64 "];", cuda_local_scratch(k));
    sb_line(sb, "Operand a = p.op[Cfg::kOperandA];");
    sb_line(sb, "a.data = local;");
    if (a->quantised && !a->is_static) {
        sb_line(sb, "a.scale = (float *)(local + %" PRId64 ");", codes);
        sb_line(sb, "a.zero = (int32_t *)(local + %" PRId64 ");", codes + grid);
    }
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

/* The same where the blocks of a gemm_mma make the rows together, in a's own memory. */
static void put_shared_prologue(Sb *sb, const CudaKernel *k)
{
    sb_line(sb, "struct Prologue {");
    sb->indent = 4;
    sb_line(sb, "static constexpr bool kMakes = true;");
    cuda_emit_program(sb, k, &k->launch->prologue, "steps");
    sb_line(sb, "static __device__ __forceinline__ void make(const Params &p, int64_t m)");
    sb_line(sb, "{");
    sb->indent = 8;
    sb_line(sb, "typedef RowShape<%d, %d, %" PRId64 ", %s> S;", block_threads(k), local_run(k),
            local_values(k), cuda_edge(0, k->spec.k, k->spec.k, local_held(k), local_run(k)));
    sb_line(sb, "__shared__ __align__(16) int32_t scratch[%" PRId64 "];", cuda_local_scratch(k));
    sb_line(sb, "const Row<S> row = {(int)threadIdx.x, 0, Cfg::kK, scratch};");
    sb_line(sb, "steps(p, p.op[Cfg::kOperandA], row, m, (const char *)0);");
    sb->indent = 4;
    sb_line(sb, "}");
    sb->indent = 0;
    sb_line(sb, "};");
}

/* Entry --------------------------------------------------------------------------------------- */

static int num_sizes(const CudaKernel *k)
{
    int64_t size[MAX_SIZES];
    return k->varies ? plan_launch_sizes(k->plan, k->launch, k->layout, k->size, size) : 1;
}

static void put_entry(Sb *sb, const CudaKernel *k, const char *name)
{
    /* two blocks at once are enough for GEMM_ANY, and one of a STREAM: left alone, ptxas spills to
     * fit in more */
    sb_line(
        sb,
        "extern \"C\" __global__ void __launch_bounds__(%d%s) %s(const __grid_constant__ Params p)",
        block_threads(k),
        k->family == CUDA_GEMM_ANY                             ? ", 2"
        : k->family == CUDA_STREAM || k->family == CUDA_HOPPER ? ", 1"
                                                               : "",
        name);
    sb_line(sb, "{");
    switch (k->family) {
    case CUDA_GEMM_MMA:
        sb_line(sb, "    gemm_mma<Cfg, Epilogue, %s>(p);", k->shared_a ? "Prologue" : "GivenA");
        break;
    case CUDA_GEMM_ANY: sb_line(sb, "    gemm_any<Cfg, Epilogue>(p);"); break;
    case CUDA_HOPPER: sb_line(sb, "    hopper<Cfg, Product, Epilogue>(p);"); break;
    case CUDA_STREAM:
        sb_line(sb, "    stream<Cfg, %s, Epilogue>(p);",
                k->local_a ? "Prologue" : "GivenRows<Cfg>");
        break;
    case CUDA_TILE: sb_line(sb, "    tile_rows<Cfg, Program>(p);"); break;
    case CUDA_MOVE: sb_line(sb, "    move_box<Cfg>(p);"); break;
    case NUM_CUDA_FAMILIES: break;
    }
    sb_line(sb, "}");
}

const char *cuda_emit_source(Arena *arena, const CudaKernel *k, const char **ret_name)
{
    Sb body, text;
    const CudaGeometry g = cuda_geometry(k);
    sb_init(&body, arena);
    sb_init(&text, arena);
    put_config(&body, k);
    sb_line(&body, "struct Params {");
    sb_line(&body, "    Operand op[%d];",
            plan_launch_parameters(k->launch) + (cuda_split_bytes(k) > 0));
    sb_line(&body, "    int64_t dim[%d];", num_sizes(k));
    if (g.num_maps)
        sb_line(&body, "    TensorMap map[%d];", g.num_maps);
    sb_line(&body, "};");
    if (k->local_a)
        put_prologue(&body, k);
    if (k->shared_a)
        put_shared_prologue(&body, k);
    if (k->family == CUDA_HOPPER)
        cuda_hopper_product(&body, k);
    if (k->family <= CUDA_GEMM_ANY)
        put_epilogue(&body, k);
    if (k->family == CUDA_TILE)
        put_row_program(&body, k);
    *ret_name = arena_printf(arena, "k_%016" PRIx64, hash_bytes(body.text, body.len, k->family));
    sb_printf(&text, "#include \"kernels/cuda/%s.cuh\"\n", cuda_family_name[k->family]);
    if (k->family != CUDA_MOVE)
        sb_put(&text, "#include \"kernels/cuda/row.cuh\"\n");
    sb_putn(&text, body.text, body.len);
    put_entry(&text, k, *ret_name);
    return text.text;
}

/* Geometry ------------------------------------------------------------------------------------ */

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int64_t stream_params(const CudaKernel *k) /* of a warp's columns, in a slot of its ring */
{
    int64_t scales = k->n_blocks * 8 * (int64_t)k->packed.scale_bytes;
    int64_t zeros = ceil_div(k->n_blocks * (int64_t)k->packed.zero_bits, 16) * 16;
    return k->packed.subs * (scales + zeros);
}

int64_t cuda_stream_bytes(const CudaKernel *k)
{
    bool ordered = k->packed.exact && k->spec.mainloop && k->split_k > 1;
    bool scales = k->packed.scales && !k->packed.folded;
    int64_t block = k->spec.mainloop ? k->packed.block_k : 0;
    int64_t sub = block == 0 || block % 128 == 0 ? 1 : 128 % block == 0 ? 128 / block : 4;
    int64_t columns = stream_columns(k), slices = ordered ? k->split_k * sub : k->split_k;
    int64_t stage = k->n_blocks * 128 * (int64_t)format_info[k->spec.fmt].bits + stream_params(k);
    int64_t sums = k->rows * (columns + 4);
    int64_t staged = slices * (sums + (ordered && scales ? columns : 0));
    int64_t words = k->buffers * staged + (ordered ? sums : 0);
    return ceil_div(k->split_k * k->n_warps * k->stages * stage + 4 * words, 128) * 128;
}

int64_t cuda_stage_bytes(const CudaKernel *k)
{
    int64_t bits = (int64_t)k->bm * cuda_act_bits(k->spec.act_fmt) +
                   (int64_t)k->bn * format_info[k->spec.fmt].bits;
    return bits * k->bk / 8 + ceil_div(k->bn, 64) * (k->packed.record - k->packed.scale_at);
}

int cuda_act_bits(FormatId fmt)
{
    return format_info[fmt].bits < 8 ? 8 : format_info[fmt].bits;
}

static int64_t staged_bytes(const CudaKernel *k) /* GemmShape: kTilePitch, kPasses */
{
    int64_t part = k->bn / k->spec.parts, last = (part + 31) / 32 * 32;
    int64_t pitch = ((k->spec.parts - 1) * part + last + 23) / 32 * 32 + 8;
    int64_t bytes = k->bm * pitch * 4;
    return bytes > 98304 ? bytes / 2 : bytes;
}

static int64_t mma_tiles(const CudaKernel *k)
{
    int64_t rows = k->layout[k->launch->a].rows;
    return ceil_div(rows, k->bm) * ceil_div(k->packed.rows, k->bn);
}

int64_t cuda_split_bytes(const CudaKernel *k)
{
    if (k->family == CUDA_HOPPER)
        return cuda_hopper_split_bytes(k);
    if (k->family != CUDA_GEMM_MMA || (k->split_k == 1 && !k->shared_a))
        return 0;
    if (k->split_k == 1)
        return CUDA_SPLIT_SUMS;
    return CUDA_SPLIT_SUMS + mma_tiles(k) * k->split_k * k->bm * k->bn * 4;
}

CudaGeometry cuda_geometry(const CudaKernel *k)
{
    CudaGeometry g = {.block = block_threads(k)};
    int64_t rows = k->family == CUDA_MOVE   ? 0
                   : k->family == CUDA_TILE ? k->layout[k->launch->operand[0].tensor].rows
                                            : k->layout[k->launch->a].rows;
    switch (k->family) {
    case CUDA_HOPPER: g = cuda_hopper_geometry(k); break;
    case CUDA_GEMM_MMA:
        g.blocks = mma_tiles(k) * k->split_k;
        g.smem = cuda_stage_bytes(k) * k->stages;
        g.smem = staged_bytes(k) > g.smem ? staged_bytes(k) : g.smem;
        break;
    case CUDA_STREAM:
        g.blocks = ceil_div(k->packed.rows, stream_columns(k));
        g.per_processor = 1; /* blocks stay */
        g.smem = cuda_stream_bytes(k) + (k->local_a ? cuda_local_bytes(k) : 0);
        break;
    case CUDA_GEMM_ANY:
        g.blocks = ceil_div(rows, 4096 / k->bn) * ceil_div(k->packed.rows, k->bn);
        break;
    case CUDA_TILE: {
        int64_t tiles =
            k->sweeps ? 1 : ceil_div(k->layout[k->launch->operand[0].tensor].cols, k->tile_cols);
        g.blocks = ceil_div(rows * tiles, k->groups);
        g.per_processor = k->per_processor;
        break;
    }
    case CUDA_MOVE: {
        int64_t num = 1;
        for (int i = 0; i < k->launch->move_rank; i++)
            num *= plan_dim_eval(k->launch->move_dim[i], k->size);
        g.blocks = ceil_div(num, 1024) < 65536 ? ceil_div(num, 1024) : 65536;
        break;
    }
    default: break;
    }
    int64_t most = (int64_t)g.per_processor * k->gpu->processors;
    g.grid = most && g.blocks > most ? most : g.blocks;
    return g;
}

DeviceLaunch cuda_device_launch(const CudaKernel *k, int kernel)
{
    CudaGeometry g = cuda_geometry(k);
    DeviceLaunch ret = {.kernel = kernel,
                        .grid = (int32_t)g.blocks,
                        .per_processor = g.per_processor,
                        .cluster = g.cluster > 1 ? g.cluster : 1,
                        .block = g.block,
                        .smem = (int32_t)g.smem,
                        .num_maps = g.num_maps,
                        .workspace = cuda_split_bytes(k)};
    for (int i = 0; i < g.num_maps; i++)
        ret.map[i] = g.map[i];
    return ret;
}
