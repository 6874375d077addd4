/* c = a * w^T with fused prologue and epilogue: threads share tiles of rows by CPU_TILE_COLS
 * columns; a tile is accumulated block of K by block of K while the weight's panel is in cache,
 * then the epilogue's program runs on it. */
#include "kernels/cpu/internal.h"
#include <string.h>

#define MAX_ROWS    512 /* activations prepared at a time, and rows of a tile at most */
#define MIN_ROWS    48  /* of a tile, unless there are fewer */
#define ROW_STEP    6   /* kernels like rows in multiples of this */
#define EPI_ROWS    8   /* rows of an epilogue's tile */
#define CHUNK_K     128 /* of K decoded at a time, for one panel; a multiple of every unit */
#define CHUNK_BYTES (CHUNK_K * PANEL_COLS * 4)
#define RANGE_K \
    512 /* of K that all panels of a tile pass before the next: activations stay cached */
#define ACC_COLS (CPU_TILE_COLS + PANEL_COLS) /* a tile may begin inside a panel */

typedef struct GemmPlan {
    const CpuGemm *g;
    const CpuKernels *kern;
    PackLayout l;
    Prepared a;
    float outer; /* of the weight */
    bool folds;  /* scales are multiplied into the weights when those are decoded */
    int64_t row0, rows, row_tiles, col_tiles; /* of the rows being done */
    int64_t tile_rows;
    char *threads; /* scratch of all threads */
    uint64_t thread_bytes, tile_bytes, block_bytes, panel_bytes;
} GemmPlan;

static int64_t segment_tiles(const CpuSegment *s)
{
    return ceil_blocks(s->n_end - s->n_begin, CPU_TILE_COLS);
}

static int64_t rows_at_once(const CpuGemm *g)
{
    return g->m < MAX_ROWS ? g->m : MAX_ROWS;
}

/* Tall tiles read weights once; there should be some for every thread, though. */
static int64_t rows_of_tile(const GemmPlan *p, int threads)
{
    int64_t rows = rows_at_once(p->g), tiles = 1, step = p->kern->matrix ? MATRIX_ROWS : ROW_STEP;
    while (tiles * p->col_tiles < 8 * (int64_t)threads && ceil_blocks(rows, tiles) > MIN_ROWS)
        tiles++;
    return ceil_blocks(ceil_blocks(rows, tiles), step) * step;
}

static void plan_scratch(GemmPlan *p, int threads)
{
    const CpuGemm *g = p->g;
    uint64_t program = 0;
    for (int i = 0; i < g->num_segments; i++) {
        uint64_t bytes = tile_scratch(&g->segment[i].epilogue, EPI_ROWS, CPU_TILE_COLS);
        program = bytes > program ? bytes : program;
        p->col_tiles += segment_tiles(&g->segment[i]);
    }
    p->tile_rows = rows_of_tile(p, threads);
    p->tile_bytes = (uint64_t)g->spec.parts * (uint64_t)p->tile_rows * ACC_COLS * 4;
    p->block_bytes = g->spec.mainloop ? (uint64_t)p->tile_rows * PANEL_COLS * 4 : 0;
    p->panel_bytes = CHUNK_BYTES;
    p->thread_bytes = p->tile_bytes + p->block_bytes + p->panel_bytes + align_64(program);
}

static CpuTile gemm_prologue(const CpuGemm *g)
{
    return (CpuTile){g->m, g->a.cols, true, g->prologue, g->operand, g->num_operands};
}

uint64_t cpu_gemm_scratch(const CpuGemm *g, int threads)
{
    GemmPlan p = {.g = g, .kern = cpu_kernels()};
    if (g->m <= 0 || layout_init(&p.l, &g->spec))
        return 0;
    threads = threads > 1 ? threads : 1;
    plan_scratch(&p, threads);
    int64_t rows = rows_at_once(g);
    p.a = prepare_shape(p.kern, g, &p.l, rows);
    uint64_t bytes = prepare_bytes(&p.a, g, &p.l, rows) + (uint64_t)threads * p.thread_bytes;
    uint64_t before = 0;
    if (g->prologue.num_steps) {
        CpuTile tile = gemm_prologue(g);
        before = cpu_tile_scratch(&tile, threads);
    }
    return bytes > before ? bytes : before;
}

/* Rows [slot, slot + rows) by one panel: the tile's accumulators, f32 or i32. */
typedef struct PanelJob {
    const uint8_t *panel;
    int cols;
    int64_t slot;
    int rows;
    float *out;   /* [rows][ACC_COLS] the tile's columns of this panel */
    float *block; /* mainloop: [rows][PANEL_COLS] sums of one block */
    void *decoded;
    BlockWords *words; /* of the block being done */
} PanelJob;

static const float *prepared_values(const GemmPlan *p, int64_t slot, int64_t k)
{
    const float *base = p->a.values;
    if (p->a.is_direct)
        base = (const float *)((const char *)p->g->a.data + p->row0 * p->g->a.pitch);
    return base + prepared_at(&p->a, slot, k);
}

/* Units of K of one block; `a` below is where the first of them meets its activations. */
typedef struct UnitRange {
    int64_t begin, end;
} UnitRange;

static void block_int(const GemmPlan *p, const PanelJob *j, const PackBlock *b, UnitRange range,
                      const uint8_t *a, int32_t *acc, int64_t ldc, const BlockFinish *finish)
{
    bool nibbles = p->l.unit == 8;
    bool whole = !range.begin && range.end == b->units;
    if (nibbles && whole && j->rows <= DIRECT_ROWS && p->kern->dot_i4) {
        p->kern->dot_i4(j->rows, a, p->a.lda, b->codes, j->cols, b->units, acc, ldc, finish);
        return;
    }
    int64_t chunk = p->kern->matrix ? CHUNK_BYTES / PANEL_COLS : CHUNK_K;
    int64_t step = nibbles ? chunk / 8 : range.end - range.begin;
    a -= range.begin * p->l.unit;
    for (int64_t u = range.begin; u < range.end; u += step) {
        int64_t num = range.end - u < step ? range.end - u : step;
        const uint8_t *codes = b->codes + u * j->cols * 4;
        const int8_t *w = nibbles ? j->decoded : (const int8_t *)codes;
        if (nibbles)
            p->kern->decode_i4(codes, j->cols, num, j->decoded);
        (p->kern->matrix ? p->kern->matrix->dot_i32 : p->kern->dot_i32)(
            j->rows, a + u * p->l.unit, p->a.lda, w, j->cols, nibbles ? 2 * num : num, acc, ldc,
            u > 0, u + num == b->units ? finish : NULL);
    }
}

static void block_float(const GemmPlan *p, const PanelJob *j, const PackBlock *b, UnitRange range,
                        const float *a, float *acc, int64_t ldc, const BlockFinish *finish)
{
    const int32_t *zero = b->zero && !p->l.late_zero ? j->words->zero : NULL;
    int64_t step = CHUNK_K / p->l.unit;
    a -= range.begin * p->l.unit;
    for (int64_t u = range.begin; u < range.end; u += step) {
        int64_t num = range.end - u < step ? range.end - u : step;
        const uint8_t *codes = b->codes + u * j->cols * p->l.unit_bytes;
        const float *w = j->decoded;
        if (p->l.fmt == FMT_F32)
            w = (const float *)(const void *)codes;
        else
            p->kern->decode_f32(p->l.fmt, codes, j->cols, num, zero, j->decoded);
        p->kern->dot_f32(j->rows, a + u * p->l.unit, p->a.lda, w, j->cols, num * p->l.unit, acc,
                         ldc, u > 0, u + num == b->units ? finish : NULL);
    }
}

/* `num` of K, decoded into the job's memory, against activations from k_at on; in steps, the last
 * of which is filled up with weights of 0. */
static void matrix_product(const GemmPlan *p, const PanelJob *j, int64_t num, int64_t k_at,
                           float *acc, int64_t ldc, bool accumulate, const BlockFinish *finish)
{
    const uint16_t *a = p->a.halves + prepared_at(&p->a, j->slot, k_at);
    int parts = matrix_parts(p->l.fmt);
    int64_t steps = ceil_blocks(num, MATRIX_K), last = (num + 1) / 2 * 2 - (steps - 1) * MATRIX_K;
    for (int part = 0; part < parts; part++) {
        int64_t row = ((steps - 1) * parts + part) * MATRIX_K + last;
        memset((uint16_t *)j->decoded + row * j->cols, 0,
               (size_t)((MATRIX_K - last) * j->cols) * sizeof(uint16_t));
    }
    MatrixProduct m = {.a = (const void *)a,
                       .w = j->decoded,
                       .lda = 2 * p->a.lda,
                       .a_step = 2 * p->a.part_step,
                       .a_parts = p->a.parts,
                       .w_parts = parts,
                       .cols = j->cols,
                       .steps = steps,
                       .c = acc,
                       .ldc = ldc,
                       .accumulate = accumulate};
    p->kern->matrix->dot_bf16(&m, j->rows, finish);
}

static void matrix_decode(const GemmPlan *p, const PanelJob *j, const uint8_t *codes, int64_t units,
                          const int32_t *zero, const float *scale, int64_t k)
{
    int parts = matrix_parts(p->l.fmt);
    MatrixDecode d = {.fmt = p->l.fmt,
                      .src = codes,
                      .cols = j->cols,
                      .units = units,
                      .zero = zero,
                      .scale = scale,
                      .parts = parts,
                      .dst = (uint16_t *)j->decoded + k * j->cols};
    p->kern->matrix->decode(&d);
}

/* block_float in matrix units; activations from k_at on. */
static void block_matrix(const GemmPlan *p, const PanelJob *j, const PackBlock *b, UnitRange range,
                         int64_t k_at, float *acc, int64_t ldc, const BlockFinish *finish)
{
    const int32_t *zero = b->zero && !p->l.late_zero ? j->words->zero : NULL;
    int64_t step = CHUNK_BYTES / PANEL_COLS / 2 / matrix_parts(p->l.fmt) / p->l.unit;
    k_at -= range.begin * p->l.unit;
    for (int64_t u = range.begin; u < range.end; u += step) {
        int64_t num = range.end - u < step ? range.end - u : step;
        matrix_decode(p, j, b->codes + u * j->cols * p->l.unit_bytes, num, zero, NULL, 0);
        matrix_product(p, j, num * p->l.unit, k_at + u * p->l.unit, acc, ldc, u > 0,
                       u + num == b->units ? finish : NULL);
    }
}

#define FOLD_K 256 /* of K decoded at a time with its scales */

/* Is the product of a code and a scale a bf16, so that one sum serves all blocks? */
static bool plan_folds(const GemmPlan *p)
{
    const PackLayout *l = &p->l;
    bool short_codes = l->fmt == FMT_E2M1 || l->fmt == FMT_I4 || l->fmt == FMT_U4 ||
                       l->fmt == FMT_E4M3 || l->fmt == FMT_E5M2;
    return p->a.parts && l->mainloop && l->has_scale && l->scale_fmt == FMT_E4M3 && !l->has_zero &&
           !p->a.scale && short_codes && FOLD_K % l->block == 0 && l->block % l->unit == 0 &&
           l->block % 2 == 0;
}

/* The outer scale of a product whose other scales are folded. */
static void scale_rows(const GemmPlan *p, const PanelJob *j)
{
    for (int r = 0; p->outer != 1.0f && r < j->rows; r++)
        for (int c = 0; c < j->cols; c++)
            j->out[r * ACC_COLS + c] *= p->outer;
}

/* A range of K whose scales are folded into the weights. */
static void panel_folded(const GemmPlan *p, const PanelJob *j, int64_t range)
{
    const PackLayout *l = &p->l;
    int64_t end = (range + 1) * p->a.range_k;
    end = end < l->k_padded ? end : l->k_padded;
    for (int64_t k = range * p->a.range_k, num; k < end; k += num) {
        num = end - k < FOLD_K ? end - k : FOLD_K;
        for (int64_t at = 0; at < num; at += l->block) {
            PackBlock b = layout_block(l, j->panel, j->cols, (k + at) / l->block);
            p->kern->decode_words(l, &b, j->cols, 1.0f, j->words);
            matrix_decode(p, j, b.codes, b.units, NULL, j->words->scale, at);
        }
        matrix_product(p, j, num, k, j->out, ACC_COLS, k > 0, NULL);
    }
    if (end == l->k_padded)
        scale_rows(p, j);
}

static BlockFinish block_finish(const GemmPlan *p, const PanelJob *j, const PackBlock *b,
                                int64_t index)
{
    int64_t at = j->slot * p->l.blocks + index;
    BlockFinish f = {.step = p->l.blocks, .sum = j->words->sum};
    f.sb = b->scale ? j->words->scale : NULL;
    f.sa = p->a.scale ? p->a.scale + at : NULL;
    f.offset = -p->l.weight_offset;
    if (p->l.is_int) {
        f.ra = p->a.ra + at;
        f.rb = p->a.rb + at;
        f.zero = b->zero ? j->words->zero : NULL;
    } else if (p->l.late_zero) {
        f.rb_f32 = p->a.sum + at;
        f.zero = j->words->zero;
    }
    if (p->g->spec.mainloop) {
        f.out = j->out;
        f.ld = ACC_COLS;
    }
    return f;
}

/* False: there are too many rows. */
static bool panel_few(const GemmPlan *p, const PanelJob *j)
{
    int64_t at = j->slot * p->l.blocks;
    MatrixFew f = {.layout = &p->l, .panel = j->panel, .cols = j->cols, .rows = j->rows};
    if (p->a.parts != 1 || p->g->m > DIRECT_ROWS)
        return false;
    f.folds = p->folds;
    f.a = p->a.halves + prepared_at(&p->a, j->slot, 0);
    f.lda = p->a.lda;
    f.sum = p->a.sum ? p->a.sum + at : NULL;
    f.scale = p->a.scale ? p->a.scale + at : NULL;
    f.outer = p->outer;
    f.out = j->out;
    f.ld = ACC_COLS;
    if (!p->kern->matrix->few_rows(&f))
        return false;
    if (p->folds)
        scale_rows(p, j);
    return true;
}

static void panel_direct(const GemmPlan *p, const PanelJob *j)
{
    int64_t at = j->slot * p->l.blocks;
    DirectPanel d = {.layout = &p->l, .panel = j->panel, .cols = j->cols, .rows = j->rows};
    d.a = prepared_values(p, j->slot, 0);
    d.lda = p->a.lda;
    d.sum = p->a.sum ? p->a.sum + at : NULL;
    d.scale = p->a.scale ? p->a.scale + at : NULL;
    d.outer = p->outer;
    d.out = j->out;
    d.ld = ACC_COLS;
    p->kern->direct(&d);
}

/* One block, or a range of its units, against a panel. */
static void panel_block(const GemmPlan *p, const PanelJob *j, int64_t index, UnitRange range)
{
    const PackLayout *l = &p->l;
    float *acc = l->mainloop ? j->block : j->out;
    int64_t ldc = l->mainloop ? PANEL_COLS : ACC_COLS,
            k_at = (index * l->block_units + range.begin) * l->unit;
    PackBlock b = layout_block(l, j->panel, j->cols, index);
    p->kern->decode_words(l, &b, j->cols, p->outer, j->words);
    BlockFinish finish = block_finish(p, j, &b, index);
    if (range.end > b.units)
        range.end = b.units;
    if (l->is_int)
        block_int(p, j, &b, range, p->a.codes + prepared_at(&p->a, j->slot, k_at),
                  (int32_t *)(void *)acc, ldc, &finish);
    else if (p->a.parts)
        block_matrix(p, j, &b, range, k_at, acc, ldc, l->mainloop ? &finish : NULL);
    else
        block_float(p, j, &b, range, prepared_values(p, j->slot, k_at), acc, ldc,
                    l->mainloop ? &finish : NULL);
}

/* Range number `range` of K against a panel: whole blocks where scales apply inside, else units of
 * the one block. */
static void panel_range(const GemmPlan *p, const PanelJob *j, int64_t range)
{
    const PackLayout *l = &p->l;
    int64_t units = p->a.range_k / l->unit;
    if (!l->mainloop) {
        panel_block(p, j, 0, (UnitRange){range * units, (range + 1) * units});
        return;
    }
    for (int r = 0; range == 0 && r < j->rows; r++)
        memset(j->out + r * ACC_COLS, 0, (size_t)j->cols * 4);
    int64_t step = ceil_blocks(units, l->block_units), begin = range * step;
    for (int64_t i = begin; i < begin + step && i < l->blocks; i++)
        panel_block(p, j, i, (UnitRange){0, INT64_MAX});
}

/* The product of a tile: panels [panel0, last / PANEL_COLS) by rows from slot. */
static void tile_product(const GemmPlan *p, PanelJob *j, int64_t panel0, int64_t last, float *tile)
{
    bool direct = !p->l.is_int && !p->a.parts && p->g->m <= DIRECT_ROWS && p->kern->direct;
    int64_t ranges = ceil_blocks(p->l.k_padded, p->a.range_k);
    for (int64_t range = 0; range < ranges; range++)
        for (int64_t panel = panel0; panel * PANEL_COLS < last; panel++)
            for (int part = 0; part < p->l.parts; part++) {
                j->panel = (const uint8_t *)p->g->packed + layout_panel_at(&p->l, panel, part);
                j->cols = layout_panel_cols(&p->l, panel);
                j->out = tile + part * p->tile_rows * ACC_COLS + (panel - panel0) * PANEL_COLS;
                if (direct)
                    panel_direct(p, j);
                else if (p->a.parts && panel_few(p, j))
                    continue;
                else if (p->folds)
                    panel_folded(p, j, range);
                else
                    panel_range(p, j, range);
            }
}

/* Columns [n0, n0 + cols) of the segment by rows [slot, slot + rows): product, then epilogue. */
static void tile_item(const GemmPlan *p, const CpuSegment *s, int64_t n0, int64_t slot,
                      char *memory)
{
    int rows = (int)(p->rows - slot < p->tile_rows ? p->rows - slot : p->tile_rows);
    int64_t first = s->n_begin + n0;
    int64_t last = first + CPU_TILE_COLS < s->n_end ? first + CPU_TILE_COLS : s->n_end;
    float *tile = (float *)(void *)memory;
    BlockWords words;
    PanelJob job = {.slot = slot, .rows = rows, .words = &words};
    job.block = (float *)(void *)(memory + p->tile_bytes);
    job.decoded = memory + p->tile_bytes + p->block_bytes;
    int64_t panel0 = first / PANEL_COLS;
    tile_product(p, &job, panel0, last, tile);
    TileRun run = {.kern = p->kern, .program = &s->epilogue, .operand = p->g->operand};
    run.n0 = n0;
    run.cols = last - first;
    run.acc_ld = ACC_COLS;
    run.scratch = memory + p->tile_bytes + p->block_bytes + p->panel_bytes;
    for (int r = 0; r < rows; r += EPI_ROWS) {
        run.m0 = p->row0 + slot + r;
        run.rows = rows - r < EPI_ROWS ? rows - r : EPI_ROWS;
        for (int part = 0; part < p->l.parts; part++)
            run.acc[part] =
                tile + (part * p->tile_rows + r) * ACC_COLS + (first - panel0 * PANEL_COLS);
        tile_run(&run);
    }
}

/* Items count through the rows of one column of tiles first: its weights stay in cache. */
static void plan_item(const GemmPlan *p, int64_t item, char *memory)
{
    int64_t column = item / p->row_tiles, slot = item % p->row_tiles * p->tile_rows;
    const CpuSegment *s = p->g->segment;
    while (column >= segment_tiles(s))
        column -= segment_tiles(s++);
    tile_item(p, s, column * CPU_TILE_COLS, slot, memory);
}

static void plan_items(void *user, int64_t begin, int64_t end, int thread)
{
    const GemmPlan *p = user;
    if (p->kern->matrix)
        p->kern->matrix->begin();
    for (int64_t item = begin; item < end; item++)
        plan_item(p, item, p->threads + (uint64_t)thread * p->thread_bytes);
    if (p->kern->matrix)
        p->kern->matrix->end();
}

static void plan_rows(void *user, int64_t begin, int64_t end, int thread)
{
    const GemmPlan *p = user;
    (void)thread;
    for (int64_t r = begin; r < end; r++)
        prepare_row(p->kern, p->g, &p->l, &p->a, p->row0 + r, r);
}

/* Elements of activations that are worth a thread's time. */
#define PREPARE_AT_ONCE 32768

static void plan_run(GemmPlan *p, int threads)
{
    bool prepares = !p->a.is_direct || p->a.scale || p->l.is_int || p->l.late_zero;
    if (prepares)
        team_run(threads, p->rows, PREPARE_AT_ONCE / p->l.k_padded, plan_rows, p);
    team_run(threads, p->row_tiles * p->col_tiles, 1, plan_items, p);
}

/* Below this many products, waking threads takes longer than the work. */
#define SMALL_WORK 200000.0

void cpu_gemm(const CpuGemm *g, void *scratch, int threads)
{
    GemmPlan p = {.g = g, .kern = cpu_kernels()};
    if (threads < 1)
        threads = 1;
    if (g->m <= 0 || layout_init(&p.l, &g->spec))
        return;
    if (g->prologue.num_steps) {
        CpuTile tile = gemm_prologue(g);
        cpu_tile(&tile, scratch, threads);
    }
    plan_scratch(&p, threads);
    p.outer = 1.0f;
    if (p.l.outer)
        memcpy(&p.outer, (const char *)g->packed + layout_outer_at(&p.l), sizeof p.outer);
    bool small = (double)g->m * (double)g->spec.n * (double)g->spec.k < SMALL_WORK;
    int64_t most = rows_at_once(g);
    p.a = prepare_shape(p.kern, g, &p.l, most);
    prepare_place(&p.a, g, &p.l, most, scratch);
    p.folds = plan_folds(&p);
    p.threads = (char *)scratch + prepare_bytes(&p.a, g, &p.l, most);
    for (p.row0 = 0; p.row0 < g->m; p.row0 += most) {
        p.rows = g->m - p.row0 < most ? g->m - p.row0 : most;
        p.row_tiles = ceil_blocks(p.rows, p.tile_rows);
        plan_run(&p, small ? 1 : threads);
    }
}
