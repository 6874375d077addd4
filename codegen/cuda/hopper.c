/* codegen/cuda/hopper: products for compute capability 9.0 (kernels/cuda/hopper.cuh): which the
 * family takes, their tiles, and the text that is theirs alone. */
#include "codegen/cuda/choose.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define UNIT_BYTES  128  /* of K, of a row of either operand: a unit */
#define THREADS     384  /* a warpgroup that copies, two that multiply */
#define MOST_STAGES 8    /* of the ring; more gain nothing */
#define FEW_STAGES  6    /* .. with few rows */
#define LEAST_UNITS 4    /* of a share of a tile */
#define MOST_SHARES 8    /* of one */
#define SHARE_SUMS  128  /* registers of sums beside those that gathering takes */
#define ALIGN_BYTES 1024 /* of the ring: a swizzled atom of 8 rows */

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static FormatFamily family_of(FormatId fmt)
{
    return format_info[fmt].family;
}

static bool is_int(const CudaKernel *k)
{
    return family_of(k->spec.act_fmt) == FAMILY_INT;
}

static int elements(const CudaKernel *k) /* of a unit */
{
    return UNIT_BYTES * 8 / format_info[k->spec.act_fmt].bits;
}

static int64_t units(const CudaKernel *k) /* along K */
{
    return ceil_div(k->spec.k, elements(k));
}

/* Which products the family takes ---------------------------------------------------------------
 */

/* wgmma multiplies the pair as it is. */
static bool is_native(FormatId a, FormatId w)
{
    if (format_info[a].bits == 16)
        return a == w && (a == FMT_F16 || a == FMT_BF16);
    return format_info[a].bits == 8 && format_info[w].bits == 8 && family_of(a) == family_of(w) &&
           (family_of(a) == FAMILY_INT || family_of(a) == FAMILY_MINIFLOAT) && a != FMT_E8M0 &&
           w != FMT_E8M0;
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

const char *cuda_hopper_problem(const CodeClass *gpu, const CudaPackSpec *spec)
{
    int64_t wb = spec->block_cols < spec->k ? spec->block_cols : 0;
    int64_t ab = spec->act_block < spec->k ? spec->act_block : 0;
    int64_t block = !wb ? ab : !ab ? wb : wb < ab ? wb : ab;
    if (strcmp(gpu->name, "sm_90a"))
        return "this class of GPUs has no wgmma";
    if (!is_native(spec->act_fmt, spec->fmt))
        return "no wgmma multiplies these formats as they are stored";
    if (spec->mainloop && (spec->has_zero || spec->act_zero))
        return "integer zero points vary along K";
    if (spec->mainloop && !blocks_fit(spec, block))
        return "a scale's block of K does not end where instructions do";
    return NULL;
}

/* Sums of 8-bit floats have about 14 bits before they are promoted: too few for what a model gives
 * out in f32 (docs/numerics.md). */
static bool gives_f32(const CudaKernel *k)
{
    const PlanLaunch *l = k->launch;
    for (int i = 0; i < l->num_segments; i++)
        for (int j = 0; j < l->segment[i].epilogue.num_steps; j++) {
            const TileStep *s = &l->segment[i].epilogue.step[j];
            if (s->op != TILE_STORE)
                continue;
            const PlanTensor *t = &k->plan->tensor[l->operand[s->tensor].tensor];
            if (t->fmt == FMT_F32 && t->storage == STORAGE_OUTPUT)
                return true;
        }
    return false;
}

/* Instructions of 32 bytes of K between promotions to f32; 0: none. */
static int promotion(const CudaKernel *k)
{
    bool narrow = family_of(k->spec.act_fmt) == FAMILY_MINIFLOAT;
    if (k->spec.mainloop)
        return k->packed.block_k && k->packed.block_k < UNIT_BYTES ? (int)k->packed.block_k / 32
                                                                   : 4;
    return narrow ? 4 : 0;
}

/* Epilogues ------------------------------------------------------------------------------------ */

/* Columns of each part that one call of the epilogue gets where sums stay in the registers in which
 * they were added up; 0: the epilogue needs whole rows, or parts of the tile that four lanes do not
 * hold. */
static int held_columns(const CudaKernel *k)
{
    const PlanLaunch *l = k->launch;
    int64_t columns = 32, part = k->bn / k->spec.parts;
    for (int i = 0; i < l->num_segments; i++) {
        int64_t group = cuda_program_group(k, &l->segment[i].epilogue);
        columns = group > columns ? group : columns;
    }
    if (k->swap || columns % 32 || part % columns || columns > 128)
        return 0;
    for (int i = 0; i < l->num_segments; i++) {
        const PlanSegment *s = &l->segment[i];
        int64_t group = cuda_program_group(k, &s->epilogue);
        bool open = s->n_end == PLAN_LAST_COLUMN;
        int64_t end = open ? k->spec.n / k->spec.parts : s->n_end;
        if (s->n_begin % columns || end % 8 || (!open && end % columns) ||
            (group && columns % group) || cuda_program_needs_row(k, &s->epilogue) ||
            cuda_program_sums_codes(&s->epilogue))
            return 0;
    }
    return (int)columns;
}

bool cuda_loads_freely(const CudaKernel *k)
{
    return k->family == CUDA_HOPPER && held_columns(k);
}

static int64_t staged_bytes(
    const CudaKernel *k) /* hopper.cuh: kPitch; rows of a warp, or the tile */
{
    if (held_columns(k))
        return 0;
    return (k->swap ? k->bm : 8 * 8) * (int64_t)(k->bn + 4) * 4;
}

/* Sizes of kernels ----------------------------------------------------------------------------- */

static bool uniform_scales(const CudaKernel *k) /* 128 rows of w share one */
{
    return k->spec.block_rows == 0 || k->spec.block_rows % 128 == 0;
}

/* Scales of w that meet a tile, under one of a (hopper.cuh: kWScales). */
static int weight_scales(const CudaKernel *k)
{
    if (!uniform_scales(k))
        return k->bn;
    return k->swap || k->spec.parts > 1 ? k->spec.parts : (k->bn + 63) / 64;
}

static int64_t stage_bytes(const CudaKernel *k)
{
    int subs = k->promote ? 4 / k->promote : 1;
    int64_t bytes = (int64_t)(k->bm + k->bn) * UNIT_BYTES;
    if (k->spec.mainloop)
        bytes += (int64_t)subs * (k->bm + weight_scales(k)) * 4;
    return ceil_div(bytes, ALIGN_BYTES) * ALIGN_BYTES;
}

static int right_rows(const CudaKernel *k)
{
    return k->swap ? k->bm : k->bn;
}

/* Columns of one instruction: a thread holds the sums of the tile and, where they are promoted,
 * those of an instruction beside them. */
static int instruction_columns(const CudaKernel *k)
{
    int n = right_rows(k);
    return k->promote && n > 192 ? n / 2 : n;
}

static int64_t num_tiles(const CudaKernel *k)
{
    return ceil_div(k->layout[k->launch->a].rows, k->bm) * ceil_div(k->packed.rows, k->bn);
}

int64_t cuda_hopper_split_bytes(const CudaKernel *k)
{
    int64_t piece = 256 * (int64_t)right_rows(k) / 2 * 4;
    return k->shares ? CUDA_SPLIT_SUMS + 2 * k->shares * piece : 0;
}

CudaGeometry cuda_hopper_geometry(const CudaKernel *k)
{
    return (CudaGeometry){.blocks = k->shares ? k->shares : num_tiles(k),
                          .per_processor = 1,
                          .block = THREADS,
                          .smem = k->stages * stage_bytes(k) + staged_bytes(k) + ALIGN_BYTES,
                          .num_maps = 1,
                          .map = {{.operand = k->launch->num_operands,
                                   .element_bytes = 1,
                                   .box_rows = k->bm,
                                   .box_bytes = UNIT_BYTES,
                                   .swizzle = UNIT_BYTES,
                                   .bytes = k->spec.k * format_info[k->spec.act_fmt].bits / 8}}};
}

/* Candidates ----------------------------------------------------------------------------------- */

static const int wide_tiles[] = {256, 224, 192, 160, 128, 96, 64};
static const int few_rows[] = {8, 16, 24, 32, 48, 64};

static const char *tile_problem(const CudaKernel *k)
{
    if (family_of(k->spec.act_fmt) == FAMILY_MINIFLOAT && gives_f32(k))
        return "sums of 14 bits are too short for results in f32";
    if (!cuda_epilogue_fits(k, k->bn / k->spec.parts) || k->bn % (32 * k->spec.parts))
        return "a quantisation group or a row does not lie inside its columns";
    if (k->promote && k->spec.parts > 1 && uniform_scales(k) && k->spec.mainloop && k->bn % 128)
        return "its columns have scales of several blocks";
    if (k->stages < 3)
        return "it exceeds the shared memory of a block";
    return NULL;
}

/* The most stages that fit. */
static void fill_ring(const CudaCandidates *c, CudaKernel *k)
{
    k->stages = 0;
    int64_t left = c->budget - cuda_hopper_geometry(k).smem,
            most = k->swap ? FEW_STAGES : MOST_STAGES;
    int64_t fit = left < 0 ? 0 : left / stage_bytes(k);
    k->stages = (int)(fit < most ? fit : most);
}

/* Tiles of which several blocks have a share: all processors, or as many as share evenly. */
static void put_shares(CudaCandidates *c, CudaKernel *k)
{
    int64_t tiles = num_tiles(k), processors = k->gpu->processors;
    int64_t even = tiles * (processors / tiles);
    k->shares = 0;
    cuda_candidate_valid(c, k);
    int held = right_rows(k) / 2 + (k->promote ? instruction_columns(k) / 2 : 32);
    if (held > SHARE_SUMS || tiles > CUDA_SPLIT_TILES || units(k) < 2 * LEAST_UNITS ||
        (is_int(k) && k->spec.mainloop))
        return; /* (blocks of integers have one order) */
    bool uneven = tiles * units(k) / processors >= LEAST_UNITS;
    for (int i = 0; i < 2; i++) {
        k->shares = (int)(i ? even : processors);
        bool useful = i ? even > tiles && even != processors : uneven && tiles % processors;
        if (useful && k->shares <= tiles * MOST_SHARES &&
            tiles * units(k) / k->shares >= LEAST_UNITS && (k->swap || tiles < 2 * processors))
            cuda_candidate_valid(c, k);
    }
}

static void put_tile(CudaCandidates *c, bool swap, int bm, int bn)
{
    CudaKernel k = c->like;
    k.family = CUDA_HOPPER;
    k.swap = swap;
    k.bm = bm, k.bn = bn;
    k.promote = promotion(&k);
    k.split_k = 1;
    fill_ring(c, &k);
    const char *problem = tile_problem(&k);
    if (problem)
        cuda_candidate_reject(c, &k, "%s", problem);
    else
        put_shares(c, &k);
}

/* Few rows of a are the right operand of instructions, whose left one has 64 rows at least. */
void cuda_candidates_hopper(CudaCandidates *c)
{
    int least = 0;
    for (size_t i = 0; i < COUNT_OF(few_rows) && c->rows <= 64; i++)
        if (few_rows[i] >= c->rows && !least)
            least = few_rows[i];
    int before = c->num_valid;
    if (least)
        put_tile(c, true, least, 128);
    for (size_t i = 0; i < COUNT_OF(wide_tiles) && (c->rows > 32 || c->num_valid == before); i++)
        if (wide_tiles[i] / c->like.spec.parts % 32 == 0)
            put_tile(c, false, 128, wide_tiles[i]);
}

/* Text ----------------------------------------------------------------------------------------- */

static void put_int(Sb *sb, const char *name, int64_t value)
{
    sb_line(sb, "static constexpr int %s = %" PRId64 ";", name, value);
}

static void put_bool(Sb *sb, const char *name, bool value)
{
    sb_line(sb, "static constexpr bool %s = %s;", name, value ? "true" : "false");
}

void cuda_hopper_config(Sb *sb, const CudaKernel *k)
{
    bool blocks = k->spec.mainloop && k->spec.block_cols && k->spec.block_cols < k->spec.k;
    put_int(sb, "kWBlockK", blocks ? k->spec.block_cols : 0);
    sb_line(sb, "static constexpr int64_t kWScaleAt = %" PRId64 ";", k->packed.scale_at);
    put_int(sb, "kBM", k->bm);
    put_int(sb, "kBN", k->bn);
    put_int(sb, "kStages", k->stages);
    put_int(sb, "kBand", 8);
    put_bool(sb, "kSwap", k->swap);
    put_bool(sb, "kShare", k->shares > 0);
    put_int(sb, "kPromote", k->promote);
    put_bool(sb, "kWUniform", uniform_scales(k));
    put_int(sb, "kCols", k->bn / k->spec.parts);
    put_int(sb, "kSplitSums", CUDA_SPLIT_SUMS);
    put_int(sb, "kSmemBytes", cuda_hopper_geometry(k).smem);
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

static void put_list(Sb *sb, const char *fmt, int num)
{
    for (int i = 0; i < num; i++) {
        sb_put(sb, i ? ", " : "");
        sb_printf(sb, fmt, i);
    }
}

/* PTX ISA, "wgmma.mma_async": sums in n / 2 registers, both operands in shared memory. */
void cuda_hopper_product(Sb *sb, const CudaKernel *k)
{
    int n = instruction_columns(k), num = n / 2;
    bool ints = is_int(k), wide = format_info[k->spec.act_fmt].bits == 16;
    FormatId left = k->swap ? k->spec.fmt : k->spec.act_fmt;
    FormatId right = k->swap ? k->spec.act_fmt : k->spec.fmt;
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
    put_list(sb, "%%%d", num);
    sb_printf(sb, "}, %%%d, %%%d, keep%s;\\n}\"\n            : ", num, num + 1,
              ints   ? ""
              : wide ? ", 1, 1, 0, 0"
                     : ", 1, 1");
    put_list(sb, ints ? "\"+r\"(d[%d])" : "\"+f\"(d[%d])", num);
    sb_put(sb, "\n            : \"l\"(left), \"l\"(right), \"r\"(keep));\n");
    sb_line(sb, "    }");
    sb_line(sb, "};");
}

/* The epilogue over the fragments' registers: each call gets some columns of a row. */
static void put_held(Sb *sb, const CudaKernel *k, int columns)
{
    const PlanLaunch *l = k->launch;
    sb_line(sb, "static constexpr bool kHeld = true;");
    put_int(sb, "kCols", columns);
    sb_line(sb, "template <class Sums> static __device__ __forceinline__ void held(");
    sb_line(sb,
            "    const Params &p, const Operand &a, const Sums &acc, int64_t m, int n0, int lane)");
    sb_line(sb, "{");
    for (int i = 0; i < l->num_segments; i++) {
        int64_t begin = l->segment[i].n_begin, end = l->segment[i].n_end;
        if (end == PLAN_LAST_COLUMN)
            end = k->spec.n / k->spec.parts;
        sb_line(sb, "    if (n0 >= %" PRId64 " && n0 < %" PRId64 ") {", begin, end);
        sb_line(sb,
                "        const Row<RowShape<4, 8, %d, %s>> row = {lane, n0 - %" PRId64
                ", (n0 + %d < %" PRId64 " ? n0 + %d : %" PRId64 ") - %" PRId64 ", (int32_t *)0};",
                columns / 4, (end - begin) % columns ? "EDGE_RUNS" : "EDGE_NONE", begin, columns,
                end, columns, end, begin);
        sb_line(sb, "        segment%d(p, a, row, m, acc);", i);
        sb_line(sb, "    }");
    }
    sb_line(sb, "}");
}

bool cuda_hopper_held(Sb *sb, const CudaKernel *k)
{
    int columns = held_columns(k);
    if (columns)
        put_held(sb, k, columns);
    else
        sb_line(sb, "static constexpr bool kHeld = false;");
    return columns > 0;
}

void cuda_hopper_describe(Sb *sb, const CudaKernel *k)
{
    sb_printf(sb, " %dx%d%s, %d stages", k->bm, k->bn, k->swap ? ", transposed" : "", k->stages);
    if (k->promote)
        sb_printf(sb, ", promoted every %d", k->promote * elements(k) / 4);
    if (k->shares)
        sb_put(sb, ", K shared out");
    if (!held_columns(k))
        sb_put(sb, ", epilogue in shared memory");
}

/* Time ----------------------------------------------------------------------------------------- */

#define CLOCK       1755.0 /* cycles a microsecond under load */
#define MMA_BUSY    0.82   /* of their rate that instructions reach, .. */
#define MMA_PROMOTE 0.87   /* .. and of that where sums are promoted */
#define L2_BYTES    7.0e6  /* a microsecond, of all processors */
#define MEMORY      4.3e6
#define UNIT_US     0.06 /* least time of a unit */
#define START_US    1.6  /* until the first unit is there */
#define TILE_US     0.9  /* of an epilogue that nothing hides */
#define GATHER_US   1.5

double cuda_hopper_us(const CudaKernel *k)
{
    double processors = k->gpu->processors, weights = (double)k->packed.bytes;
    double tiles = (double)num_tiles(k), each = (double)units(k);
    double blocks = (double)cuda_geometry(k).grid;
    double busiest = k->shares ? ceil(tiles * each / blocks) : ceil(tiles / blocks) * each;
    double compute = 4.0 * right_rows(k) / CLOCK / MMA_BUSY / (k->promote ? MMA_PROMOTE : 1);
    double read = (double)(k->bm + k->bn) * UNIT_BYTES / (L2_BYTES / processors);
    double unit = compute > read ? compute : read;
    double us = busiest * (unit > UNIT_US ? unit : UNIT_US);
    double memory = weights / MEMORY * (blocks < processors ? processors / blocks : 1);
    us = us > memory ? us : memory;
    return us + START_US + TILE_US * (k->shares ? 1 : ceil(tiles / blocks)) +
           (k->shares ? GATHER_US : 0);
}
