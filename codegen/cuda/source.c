/* codegen/cuda/source: the text of one kernel: constants, programs, entry. */
#include "codegen/cuda/family.h"

#include <inttypes.h>

static const char *const format_word[NUM_FORMATS] = {
#define FORMAT(ID, name, bits, family, is_signed, exp, man, bias, qmin, qmax) \
    [FMT_##ID] = "FMT_" #ID,
#include "numerics/formats.def"
#undef FORMAT
};
static const char *const home_word[] = {"HOME_I8", "HOME_F16", "HOME_BF16", "HOME_F32"};

void cuda_put_int(Sb *sb, const char *name, int64_t value)
{
    sb_line(sb, "static constexpr int %s = %" PRId64 ";", name, value);
}

void cuda_put_format(Sb *sb, const char *name, FormatId fmt)
{
    sb_line(sb, "static constexpr int %s = %s;", name, format_word[fmt]);
}

void cuda_put_home(Sb *sb, const CudaKernel *k)
{
    sb_line(sb, "static constexpr int kHome = %s;", home_word[k->packed.home]);
}

void cuda_put_bool(Sb *sb, const char *name, bool value)
{
    sb_line(sb, "static constexpr bool %s = %s;", name, value ? "true" : "false");
}

/* Constants ------------------------------------------------------------------------------------ */

void cuda_put_scale_format(Sb *sb, const CudaKernel *k)
{
    sb_line(sb, "static constexpr int kScaleFmt = %s;",
            format_word[k->packed.scales ? k->spec.scale_fmt : FMT_F32]);
}

void cuda_put_records(Sb *sb, const CudaKernel *k)
{
    const CudaPackSpec *spec = &k->spec;
    const CudaPacked *packed = &k->packed;
    bool blocks = spec->block_cols && spec->block_cols < spec->k;
    cuda_put_int(sb, "kWBits", packed->bits);
    cuda_put_bool(sb, "kWBinary", spec->binary && spec->bits);
    cuda_put_int(sb, "kRecord", packed->record);
    cuda_put_int(sb, "kScaleAt", packed->scale_at);
    cuda_put_int(sb, "kZeroAt", packed->zero_at);
    cuda_put_int(sb, "kSubs", packed->subs);
    cuda_put_int(sb, "kWBlockK", blocks ? spec->block_cols : 0);
    cuda_put_scale_format(sb, k);
    sb_line(sb, "static constexpr int64_t kTableAt = %" PRId64 ";", packed->table_at);
    cuda_put_bool(sb, "kWScales", packed->scales);
    cuda_put_bool(sb, "kWZero", packed->zeros);
    cuda_put_bool(sb, "kWFold", packed->folded);
    cuda_put_bool(sb, "kAFold", packed->act_folded);
    cuda_put_bool(sb, "kExact", packed->exact);
}

void cuda_put_product(Sb *sb, const CudaKernel *k)
{
    const CudaPackSpec *spec = &k->spec;
    const CudaPacked *packed = &k->packed;
    sb_line(sb, "static constexpr int kA = %s, kW = %s, kHome = %s;", format_word[spec->act_fmt],
            format_word[spec->fmt], home_word[packed->home]);
    cuda_put_int(sb, "kK", spec->k);
    cuda_put_bool(sb, "kApart", cuda_adds_apart(k));
    cuda_put_int(sb, "kN", packed->rows);
    cuda_put_int(sb, "kParts", spec->parts);
    cuda_put_int(sb, "kAPitch", k->local_pitch ? k->local_pitch : k->layout[k->launch->a].pitch);
    /* a, w come after the operands of the programs */
    cuda_put_int(sb, "kOperandA", k->launch->num_operands);
    cuda_put_int(sb, "kOperandW", k->launch->num_operands + 1);
    cuda_put_int(sb, "kOperandSplit", cuda_geometry(k).workspace ? k->launch->num_operands + 2 : 0);
}

void cuda_put_schemes(Sb *sb, const CudaKernel *k)
{
    const PlanTensor *a = &k->plan->tensor[k->launch->a];
    bool zero = a->quantised && a->scheme.zero != ZERO_NONE && k->packed.home != CUDA_HOME_I8;
    cuda_put_bool(sb, "kMainloop", k->spec.mainloop);
    cuda_put_int(sb, "kCodebookPieces", cuda_codebook_pieces(k));
    if (cuda_pair_pitch(k))
        cuda_put_int(sb, "kPairPitch", cuda_pair_pitch(k));
    cuda_put_int(sb, "kBlockK", k->packed.block_k);
    cuda_put_int(sb, "kABlockRows", a->quantised ? a->scheme.block[0] : 1);
    cuda_put_int(sb, "kABlockK", k->spec.act_block);
    cuda_put_bool(sb, "kAScale", k->spec.act_block > 0);
    cuda_put_bool(sb, "kAZero", zero);
}

void cuda_put_groups(Sb *sb, const CudaKernel *k)
{
    const PlanTensor *w = &k->plan->tensor[k->launch->w];
    if (!k->groups)
        return;
    cuda_put_int(sb, "kGroups", k->groups);
    sb_line(sb, "static constexpr int64_t kGroupBytes = %" PRId64 ";",
            (int64_t)plan_weight_packed(k->plan, w) / k->groups);
    cuda_put_int(sb, "kOperandEnds", k->launch->num_operands + 2);
    cuda_put_int(sb, "kCounted", cuda_counted(k));
}

/* Programs ------------------------------------------------------------------------------------ */

static int vector_run(int64_t columns, int lanes) /* neighbours of a lane in an epilogue */
{
    int64_t each = (columns + lanes - 1) / lanes;
    return each % 4 == 0 ? 4 : each % 2 == 0 ? 2 : 1;
}

static int block_threads(const CudaKernel *k)
{
    return cuda_geometry(k).block;
}

static int64_t part_columns(const CudaKernel *k)
{
    return cuda_family[k->family]->tile(k).cols / k->spec.parts;
}

void cuda_put_list(Sb *sb, const char *fmt, int num)
{
    for (int i = 0; i < num; i++) {
        sb_put(sb, i ? ", " : "");
        sb_printf(sb, fmt, i);
    }
}

void cuda_put_parts(Sb *sb, bool promotes, int parts)
{
    sb_put(sb, promotes ? " promoted" : "");
    if (parts > 1)
        sb_printf(sb, " in %d parts of K", parts);
}

bool cuda_put_shares(Sb *sb, const CudaKernel *k, int64_t shares, int64_t tiles, int64_t units)
{
    CudaTile tile = cuda_family[k->family]->tile(k);
    bool is_even = shares && shares % tiles == 0 && units % (shares / tiles) == 0;
    if (is_even)
        sb_printf(sb, " in %" PRId64 " parts of K", shares / tiles);
    else if (shares)
        sb_printf(sb, " in %" PRId64 " shares of %" PRId64 " tiles of %d columns", shares, tiles,
                  tile.cols);
    return !shares || k->layout[k->launch->a].rows <= tile.rows;
}

bool cuda_columns_apart(const CudaKernel *k)
{
    for (int i = 0; i < k->launch->num_segments; i++) {
        const PlanProgram *program = &k->launch->segment[i].epilogue;
        if (cuda_program_group(k, program) || cuda_program_needs_row(k, program) ||
            cuda_program_sums_codes(program))
            return false;
    }
    return true;
}

static bool takes_many_rows(const CudaKernel *k)
{
    bool (*many_rows)(const CudaKernel *) = cuda_family[k->family]->many_rows;
    return many_rows && many_rows(k);
}

/* Lanes that an epilogue gives a row: with some columns each, so that what one waits for is hidden
 * behind the next. */
static int row_lanes(const CudaKernel *k)
{
    int64_t columns = part_columns(k);
    int lanes = 32;
    if (!takes_many_rows(k) || !cuda_columns_apart(k))
        return lanes;
    while (lanes > 8 && columns / lanes < 8)
        lanes /= 2;
    return columns % (4 * lanes) ? 32 : lanes;
}

/* Words that a warp's epilogues take beside the staged row: ranges of groups. */
static int64_t scratch_words(const CudaKernel *k)
{
    int64_t words = 1, held = (part_columns(k) + 31) / 32 * 32;
    for (int i = 0; i < k->launch->num_segments; i++) {
        int64_t need = cuda_program_scratch(k, &k->launch->segment[i].epilogue, 32, held);
        words = need > words ? need : words;
    }
    return words;
}

int64_t cuda_epilogue_scratch(const CudaKernel *k)
{
    return block_threads(k) / 32 * scratch_words(k) * 4 + (cuda_finds_range(k) ? 16 : 0);
}

/* If columns [n0, last) of a tile meet those of a segment: which of them are its. */
static void put_range(Sb *sb, const CudaKernel *k, int segment)
{
    const PlanLaunch *l = k->launch;
    int64_t begin = l->segment[segment].n_begin, end = l->segment[segment].n_end;
    bool open = end == PLAN_LAST_COLUMN;
    const char *to = arena_printf(sb->arena, "%" PRId64, open ? k->packed.rows : end);
    if (open && k->varies && !k->plan->tensor[l->w].packed)
        to = arena_printf(sb->arena, "(int)p.dim[%d]", SIZE_N);
    sb_line(sb, "if (n0 < %s && last > %" PRId64 ") {", to, begin);
    sb_line(sb, "    const int from = n0 > %" PRId64 " ? n0 : %" PRId64 ";", begin, begin);
    sb_line(sb, "    const int to = last < %s ? last : %s;", to, to);
}

/* Begins to bring near what a segment loads for the columns from n0 on of a row, by a warp. */
static void put_fetch(Sb *sb, const CudaKernel *k, int segment)
{
    int64_t begin = k->launch->segment[segment].n_begin;
    sb_line(sb, "{");
    sb->indent += 4;
    sb_line(sb, "const int last = n0 + %" PRId64 ";", part_columns(k));
    put_range(sb, k, segment);
    sb_line(sb,
            "    const Row<RowShape<32, 1, 1>> row = {lane, from - %" PRId64 ", to - %" PRId64 "};",
            begin, begin);
    sb_line(sb, "    fetch%d(p, row, m);", segment);
    sb_line(sb, "}");
    sb->indent -= 4;
    sb_line(sb, "}");
}
static void put_fetches(Sb *sb, const CudaKernel *k)
{
    const PlanLaunch *l = k->launch;
    for (int i = 0; i < l->num_segments; i++)
        if (cuda_program_loads(&l->segment[i].epilogue))
            cuda_emit_fetch(sb, k, &l->segment[i].epilogue, arena_printf(sb->arena, "fetch%d", i));
    sb_line(sb, "static __device__ __forceinline__ void fetch(");
    sb_line(sb, "    const Params &p, int64_t m, int n0, int lane)");
    sb_line(sb, "{");
    sb->indent += 4;
    for (int i = 0; i < l->num_segments; i++)
        if (cuda_program_loads(&l->segment[i].epilogue))
            put_fetch(sb, k, i);
    sb->indent -= 4;
    sb_line(sb, "}");
}

/* Hands each segment its columns of the staged row. */
static void put_staged(Sb *sb, const CudaKernel *k)
{
    const PlanLaunch *l = k->launch;
    int64_t columns = part_columns(k), held = (columns + 31) / 32 * 32;
    int lanes = row_lanes(k), run = vector_run(columns, lanes);
    if (takes_many_rows(k))
        cuda_put_int(sb, "kRowLanes", lanes);
    sb_line(sb, "static __device__ __forceinline__ void row(const Params &p, const Operand &a,");
    sb_line(sb, "    const char *acc, int64_t m, int n0, int lane)");
    sb_line(sb, "{");
    sb->indent = 8;
    sb_line(sb, "__shared__ int32_t scratch[%d][%" PRId64 "];", block_threads(k) / 32,
            scratch_words(k));
    sb_line(sb, "const int last = n0 + %" PRId64 ";", columns);
    if (cuda_finds_range(k))
        sb_line(sb, "Told told = {};");
    for (int i = 0; i < l->num_segments; i++) {
        int64_t begin = l->segment[i].n_begin, end = l->segment[i].n_end;
        bool open = end == PLAN_LAST_COLUMN;
        put_range(sb, k, i);
        sb_line(sb,
                "    const Row<RowShape<%d, %d, %" PRId64 ", %s>> row = {lane, from - %" PRId64
                ", to - %" PRId64 ", scratch[threadIdx.x / 32]};",
                lanes, run, held / lanes,
                open && k->varies
                    ? "EDGE_ANY"
                    : cuda_edge(begin, open ? k->packed.rows : end, columns, held, run),
                begin, begin);
        sb_line(sb, "    segment%d(p, a, row, m, StagedSums<Cfg::kCols>{acc + (from - n0) * 4}%s);",
                i, CUDA_TOLD(k));
        sb_line(sb, "}");
    }
    cuda_emit_tell(sb, k);
    sb->indent = 4;
    sb_line(sb, "}");
}

static void put_epilogue(Sb *sb, const CudaKernel *k)
{
    const PlanLaunch *l = k->launch;
    const CudaFamilyRow *family = cuda_family[k->family];
    sb_line(sb, "struct Epilogue {");
    sb->indent = 4;
    if (cuda_finds_range(k))
        sb_line(sb, "static __device__ __forceinline__ int32_t *known()\n    {\n"
                    "        __shared__ int32_t words[4];\n        return words;\n    }");
    for (int i = 0; i < l->num_segments; i++)
        cuda_emit_program(sb, k, &l->segment[i].epilogue, arena_printf(sb->arena, "segment%d", i));
    if (family->fetches)
        put_fetches(sb, k);
    if (!family->put_held || !family->put_held(sb, k))
        put_staged(sb, k);
    sb->indent = 0;
    sb_line(sb, "};");
}

/* The threads hold between them the 1024 lanes of the order of sums, so their number is a power of
 * two. */
static int prologue_run(const CudaKernel *k) /* kV */
{
    return 1024 / block_threads(k);
}

static int64_t prologue_values(const CudaKernel *k) /* kE */
{
    return (k->spec.k + 1023) / 1024 * prologue_run(k);
}

static int64_t prologue_held(const CudaKernel *k) /* columns that the threads have room for */
{
    return block_threads(k) * prologue_values(k);
}

int64_t cuda_prologue_scratch(const CudaKernel *k)
{
    return cuda_program_scratch(k, &k->launch->prologue, block_threads(k), prologue_held(k));
}

void cuda_put_row_type(Sb *sb, const CudaKernel *k)
{
    sb_line(sb, "typedef RowShape<%d, %d, %" PRId64 ", %s> S;", block_threads(k), prologue_run(k),
            prologue_values(k),
            cuda_edge(0, k->spec.k, k->spec.k, prologue_held(k), prologue_run(k)));
}

/* Entry --------------------------------------------------------------------------------------- */

static int num_sizes(const CudaKernel *k)
{
    int64_t size[MAX_SIZES];
    return k->varies ? plan_launch_sizes(k->plan, k->launch, k->layout, k->size, size) : 1;
}

/* The blocks of one group of rows have parameters as if its rows were all. An earlier launch found
 * where they end. */
static void put_group(Sb *sb, const CudaKernel *k)
{
    sb_line(sb, "    wait_for_producer();");
    sb_line(sb,
            "    const GroupRows rows = group_rows<%d>((const int32_t *)all.op[%d].data, "
            "blockIdx.y, all.dim[0]);",
            cuda_counted(k), plan_launch_parameters(k->launch) - 1);
    sb_line(sb, "    if (rows.num == 0)\n        return;");
    sb_line(sb, "    const Params p = all.of_group(blockIdx.y, rows.first, rows.num);");
}

/* What the runtime passes, or a group's part of it. (Who has maps goes through groups himself.) */
static void put_params(Sb *sb, const CudaKernel *k, const char *name, bool group)
{
    const CudaGeometry g = cuda_geometry(k);
    int operands = plan_launch_parameters(k->launch) + (g.workspace > 0) - group;
    sb_line(sb, "struct %s {", name);
    sb_line(sb, "    Operand op[%d];", operands);
    if (cuda_family[k->family]->looks_ahead)
        sb_line(sb, "    %s;", group ? "const Ahead &ahead" : "Ahead ahead");
    sb_line(sb, "    int64_t dim[%d];", group ? 1 : num_sizes(k));
    if (g.num_maps && !group)
        sb_line(sb, "    TensorMap map[%d];", g.num_maps);
    if (k->groups && !group)
        cuda_emit_group(sb, k);
    sb_line(sb, "};");
}

static void put_entry(Sb *sb, const CudaKernel *k, const char *name)
{
    const CudaFamilyRow *family = cuda_family[k->family];
    sb_printf(sb, "extern \"C\" __global__ void __launch_bounds__(%d", block_threads(k));
    int blocks = family->min_blocks_of ? family->min_blocks_of(k) : family->min_blocks;
    if (blocks)
        sb_printf(sb, ", %d", blocks);
    sb_printf(sb, ") %s(const __grid_constant__ %s)\n{\n", name,
              k->groups ? "Launch all" : "Params p");
    bool walks = cuda_geometry(k).walks_groups;
    if (k->groups && !walks)
        put_group(sb, k);
    if (cuda_finds_range(k))
        sb_put(sb, "    if (threadIdx.x < 4)\n        Epilogue::known()[threadIdx.x] = 0;\n"
                   "    __syncthreads();\n");
    sb_printf(sb, "    %s(%s);\n}\n", family->call[k->input != INPUT_GIVEN], walks ? "all" : "p");
}

static bool has_index(const PlanLaunch *l)
{
    for (int i = 0; i < l->num_operands; i++)
        if (l->operand[i].index)
            return true;
    return false;
}

const char *cuda_emit_source(Arena *arena, const CudaKernel *k, const char **ret_name)
{
    Sb body, text;
    const CudaFamilyRow *family = cuda_family[k->family];
    sb_init(&body, arena);
    sb_init(&text, arena);
    sb_line(&body, "struct Cfg {");
    body.indent = 4;
    family->put_config(&body, k);
    body.indent = 0;
    sb_line(&body, "};");
    put_params(&body, k, "Params", k->groups > 0);
    if (k->groups)
        put_params(&body, k, "Launch", false);
    if (k->input != INPUT_GIVEN)
        family->put_prologue(&body, k);
    if (family->put_parts)
        family->put_parts(&body, k);
    if (family->candidates)
        put_epilogue(&body, k);
    *ret_name = arena_printf(arena, "k_%016" PRIx64, hash_bytes(body.text, body.len, family->seed));
    sb_printf(&text, "#include \"kernels/cuda/%s.cuh\"\n", cuda_family_name[k->family]);
    if (family->candidates || family->put_parts)
        sb_put(&text, "#include \"kernels/cuda/row.cuh\"\n");
    if (k->launch->grouped || has_index(k->launch))
        sb_put(&text, "#include \"kernels/cuda/group.cuh\"\n");
    sb_putn(&text, body.text, body.len);
    put_entry(&text, k, *ret_name);
    return text.text;
}

/* Geometry ------------------------------------------------------------------------------------ */

int cuda_act_bits(FormatId fmt)
{
    return format_info[fmt].bits < 8 ? 8 : format_info[fmt].bits;
}

CudaGeometry cuda_geometry(const CudaKernel *k)
{
    CudaGeometry g = cuda_family[k->family]->geometry(k);
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
                        .groups = g.walks_groups ? 0 : (int32_t)k->groups,
                        .num_maps = g.num_maps,
                        .workspace = g.workspace,
                        .looks_ahead = cuda_family[k->family]->looks_ahead,
                        .first = cuda_first_read(k, &g)};
    for (int i = 0; i < g.num_maps; i++)
        ret.map[i] = g.map[i];
    return ret;
}
