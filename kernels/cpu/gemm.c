/* c = a * w^T with fused prologue and epilogue: threads share tiles of rows by CPU_TILE_COLS
 * columns; a tile is accumulated block of K by block of K while the weight's panel is in cache,
 * then the epilogue's program runs on it. */
#include "kernels/cpu/gemm.h"
#include <string.h>

#define MAX_ROWS 512 /* activations prepared at a time, and rows of a tile at most */
#define MIN_ROWS 48  /* of a tile, unless there are fewer */
#define ROW_STEP 6   /* kernels like rows in multiples of this */
#define EPI_ROWS 8   /* rows of an epilogue's tile */

static int64_t segment_tiles(const CpuSegment *s)
{
    return ceil_blocks(s->n_end - s->n_begin, CPU_TILE_COLS);
}

static int64_t rows_at_once(const CpuGemm *g)
{
    return g->m < MAX_ROWS ? g->m : MAX_ROWS;
}

/* Tall tiles read weights once; there should be some for each of several threads, though. */
static int64_t rows_of_tile(const GemmPlan *p, int threads)
{
    int64_t rows = rows_at_once(p->g), tiles = 1, least = threads > 1 ? 8 * (int64_t)threads : 1;
    int64_t step = matrix_has_integers(p->kern->matrix) ? MATRIX_ROWS : ROW_STEP;
    while (tiles * p->col_tiles < least && ceil_blocks(rows, tiles) > MIN_ROWS)
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
    if (p->a.parts)
        p->values_bytes = align_64(4 * DIRECT_ROWS * (uint64_t)p->l.k_padded);
    p->open_bytes = align_64(narrow_bytes(&p->stored));
    p->thread_bytes = p->tile_bytes + p->block_bytes + p->panel_bytes + p->values_bytes +
                      p->open_bytes + align_64(program);
}

static CpuTile gemm_prologue(const CpuGemm *g)
{
    return (CpuTile){g->m, g->a.cols, true, g->prologue, g->operand, g->num_operands};
}

/* False: there is no kernel. */
static bool plan_layout(GemmPlan *p)
{
    if (layout_init(&p->stored, &p->g->spec))
        return false;
    p->l = narrow_opened(&p->stored);
    p->widens = p->stored.factored && !nibbles_are_direct(p->kern, p->g, &p->l);
    if (p->widens)
        p->l = layout_widened(&p->stored);
    return true;
}

uint64_t cpu_gemm_scratch(const CpuGemm *g, int threads)
{
    GemmPlan p = {.g = g, .kern = cpu_kernels()};
    if (g->m <= 0 || !plan_layout(&p))
        return 0;
    threads = threads > 1 ? threads : 1;
    int64_t rows = rows_at_once(g);
    p.a = prepare_shape(p.kern, g, &p.l, rows);
    plan_scratch(&p, threads);
    uint64_t bytes = prepare_bytes(&p.a, g, &p.l, rows) + (uint64_t)threads * p.thread_bytes;
    uint64_t before = 0;
    if (g->prologue.num_steps) {
        CpuTile tile = gemm_prologue(g);
        before = cpu_tile_scratch(&tile, threads);
    }
    return bytes > before ? bytes : before;
}

static const float *prepared_values(const GemmPlan *p, int64_t slot, int64_t k)
{
    const float *base = p->a.values;
    if (p->a.is_direct)
        base = (const float *)((const char *)p->g->a.data + p->row0 * p->g->a.pitch);
    return base + prepared_at(&p->a, slot, k);
}

/* Adds up the nibbles of a block that stores no sums of them: `num` units from u on, decoded. What
 * fills up the last unit does not count. */
static void block_sums(const GemmPlan *p, const PanelJob *j, const PackBlock *b, int64_t u,
                       int64_t num)
{
    enum { MOST = CHUNK_BYTES / PANEL_COLS, UNIT = 8 };
    uint8_t ones[MOST + UNIT];
    int64_t left = b->k_count - u * UNIT, some = left < num * UNIT ? left : num * UNIT;
    memset(ones, 1, (size_t)some);
    memset(ones + some, 0, (size_t)(num * UNIT - some));
    p->kern->dot_i32(1, ones, 0, j->decoded, j->cols, 2 * num, j->words->sum, PANEL_COLS, u > 0,
                     NULL, NULL);
}

/* Units of a factored panel multiplied out, from the first of eight of K on. */
static void widen_units(const GemmPlan *p, const PanelJob *j, int64_t u, int64_t num)
{
    const PackLayout *l = &p->stored;
    int8_t *dst = j->decoded;
    int64_t k = u * p->l.unit, end = k + num * p->l.unit;
    for (int64_t some; k < end; k += some * l->unit, dst += some * l->unit * j->cols) {
        PackBlock b = layout_block(l, j->panel, j->cols, k / l->block);
        int64_t from = (k - b.k_begin) / l->unit;
        some = ceil_blocks(end - k, l->unit);
        some = some < b.units - from ? some : b.units - from;
        p->kern->decode_factored(b.codes + from * j->cols * l->unit_bytes, b.factor, j->cols, some,
                                 dst);
    }
}

/* Where `num` units from u on have a byte for each code: as they lie, or decoded. */
static const int8_t *unit_bytes(const GemmPlan *p, const PanelJob *j, const PackBlock *b, int64_t u,
                                int64_t num)
{
    int64_t at = u * j->cols * 4;
    if (p->widens)
        widen_units(p, j, u, num);
    else if (p->l.unit == 8)
        p->kern->decode_i4(b->codes + at, j->cols, num, j->decoded);
    else
        return (const int8_t *)b->codes + at;
    return j->decoded;
}

static void block_int(const GemmPlan *p, const PanelJob *j, const PackBlock *b, UnitRange range,
                      const uint8_t *a, int32_t *acc, int64_t ldc, const BlockFinish *finish)
{
    bool nibbles = p->l.unit == 8;
    bool in_matrix = matrix_has_integers(p->kern->matrix);
    int64_t chunk = in_matrix ? CHUNK_BYTES / PANEL_COLS : CHUNK_K;
    bool decodes = nibbles || p->widens;
    int64_t step = decodes ? chunk / p->l.unit : range.end - range.begin;
    a -= range.begin * p->l.unit;
    for (int64_t u = range.begin; u < range.end; u += step) {
        int64_t num = range.end - u < step ? range.end - u : step;
        const int8_t *w = unit_bytes(p, j, b, u, num);
        if (!p->l.sum_bytes)
            block_sums(p, j, b, u, num);
        const BlockFinish *end = u + num == b->units ? finish : NULL;
        const uint8_t *x = a + u * p->l.unit;
        const uint8_t *ahead = decodes ? NULL : (const uint8_t *)w + num * j->cols * 4;
        (in_matrix ? p->kern->matrix->dot_i32 : p->kern->dot_i32)(
            j->rows, x, p->a.lda, w, j->cols, nibbles ? 2 * num : num, acc, ldc, u > 0, end, ahead);
    }
}

/* What the codes of a block stand for; false: they are not looked up. */
static bool block_tables(const GemmPlan *p, const PanelJob *j, const PackBlock *b, CodeTables *ret)
{
    const PackLayout *l = &p->l;
    int64_t last = p->g->spec.n - 1; /* columns that fill up the panel have any */
    int64_t first = l->table ? layout_table(l, j->first, b->k_begin) : 0;
    ret->all = l->table == TABLE_NONE || l->table == TABLE_TENSOR ? p->value : NULL;
    ret->first = l->table ? p->tables + first * l->table_codes : NULL;
    for (int c = 0; !ret->all && c < j->cols; c++) {
        int64_t n = j->first + c < last ? j->first + c : last;
        ret->offset[c] = (int32_t)((layout_table(l, n, b->k_begin) - first) * l->table_codes);
    }
    return l->table || format_is_nibble(l->fmt);
}

static void block_float(const GemmPlan *p, const PanelJob *j, const PackBlock *b, UnitRange range,
                        const float *a, float *acc, int64_t ldc, const BlockFinish *finish)
{
    const int32_t *zero = b->zero && !p->l.late_zero ? j->words->zero : NULL;
    bool decodes = p->l.fmt != FMT_F32;
    int64_t step = !decodes && p->kern->float_k ? p->kern->float_k : CHUNK_K / p->l.unit;
    CodeTables tables;
    bool looks_up = block_tables(p, j, b, &tables);
    a -= range.begin * p->l.unit;
    for (int64_t u = range.begin; u < range.end; u += step) {
        int64_t num = range.end - u < step ? range.end - u : step;
        const uint8_t *codes = b->codes + u * j->cols * p->l.unit_bytes;
        const float *w = j->decoded;
        if (!decodes)
            w = (const float *)(const void *)codes;
        else
            p->kern->decode_f32(p->l.fmt, codes, j->cols, num, zero, looks_up ? &tables : NULL,
                                j->decoded);
        p->kern->dot_f32(j->rows, a + u * p->l.unit, p->a.lda, w, j->cols, num * p->l.unit, acc,
                         ldc, u > 0, u + num == b->units ? finish : NULL);
    }
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

void panel_direct(const GemmPlan *p, const PanelJob *j)
{
    int64_t at = j->slot * p->l.blocks;
    DirectPanel d = {.layout = &p->l, .panel = j->panel, .cols = j->cols, .rows = j->rows};
    d.a = prepared_values(p, j->slot, 0);
    d.lda = p->a.lda;
    d.sum = p->a.sum ? p->a.sum + at : NULL;
    d.scale = p->a.scale ? p->a.scale + at : NULL;
    d.table = p->value;
    d.digits = p->a.digits;
    d.fixed = p->a.fixed;
    d.out = j->out;
    d.ld = ACC_COLS;
    p->kern->direct(&d);
}

/* Activations were shifted by SIGNED_OFFSET, whether or not their codes are signed. */
static void factored_finish(const GemmPlan *p, const PanelJob *j)
{
    uint32_t less = (uint32_t)code_offset(p->g->a.fmt) - SIGNED_OFFSET;
    const int32_t *sum = layout_sums(&p->l, j->panel, j->cols);
    for (int r = 0; less && r < j->rows; r++) {
        uint32_t *out = (uint32_t *)(void *)(j->out + r * ACC_COLS);
        for (int c = 0; c < j->cols; c++)
            out[c] -= less * (uint32_t)sum[c];
    }
}

/* All of a panel of nibbles for few rows of integers. False: there are more, or opened codes fill
 * up units with others than 0, which the kernel would count. */
static bool panel_nibbles(const GemmPlan *p, const PanelJob *j)
{
    int64_t at = j->slot * p->l.blocks;
    DirectNibbles d = {.layout = &p->l, .panel = j->panel, .cols = j->cols, .rows = j->rows};
    bool padded = p->open_bytes && p->l.k_padded != p->l.k;
    if (padded || !nibbles_are_direct(p->kern, p->g, &p->l))
        return false;
    d.a = p->a.codes + prepared_at(&p->a, j->slot, 0);
    d.lda = p->a.lda;
    d.ra = p->a.ra + at;
    d.rb = p->a.rb + at;
    d.scale = p->a.scale ? p->a.scale + at : NULL;
    d.out = j->out;
    d.ld = ACC_COLS;
    p->kern->direct_i4(&d);
    if (p->l.factored)
        factored_finish(p, j);
    return true;
}

/* A block as what is multiplied has it; what is widened lies elsewhere, but for its sums. */
static PackBlock panel_record(const GemmPlan *p, const PanelJob *j, int64_t index)
{
    if (!p->widens)
        return layout_block(&p->l, j->panel, j->cols, index);
    return (PackBlock){.sum = layout_sums(&p->stored, j->panel, j->cols),
                       .units = p->l.block_units,
                       .k_count = p->l.k};
}

/* One block, or a range of its units, against a panel. */
static void panel_block(const GemmPlan *p, const PanelJob *j, int64_t index, UnitRange range)
{
    const PackLayout *l = &p->l;
    float *acc = l->mainloop ? j->block : j->out;
    int64_t ldc = l->mainloop ? PANEL_COLS : ACC_COLS,
            k_at = (index * l->block_units + range.begin) * l->unit;
    PackBlock b = panel_record(p, j, index);
    p->kern->decode_words(l, &b, j->cols, j->words);
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

/* A range of K against a panel. */
static void panel_product(const GemmPlan *p, const PanelJob *j, int64_t range)
{
    if (plan_is_direct(p))
        panel_direct(p, j);
    else if (panel_nibbles(p, j) || (p->a.parts && panel_few(p, j)))
        return;
    else if (p->folds)
        panel_folded(p, j, range);
    else
        panel_range(p, j, range);
}

/* The product of a tile: panels [panel0, last / PANEL_COLS) by rows from slot. Narrow ones are
 * opened once for all of K; long ranges follow each other as memory has them. */
static void tile_product(const GemmPlan *p, PanelJob *j, int64_t panel0, int64_t last, float *tile)
{
    ExponentRange exponent[2 * ACC_COLS / PANEL_COLS];
    int64_t ranges = ceil_blocks(p->l.k_padded, p->a.range_k), at_once = 1;
    if (j->open || (p->kern->column_bytes && !p->l.mainloop))
        at_once = ranges;
    for (int64_t range = 0; range < ranges; range += at_once)
        for (int64_t panel = panel0; panel * PANEL_COLS < last; panel++)
            for (int part = 0; part < p->l.parts; part++) {
                j->panel = (const uint8_t *)p->g->packed + layout_panel_at(&p->stored, panel, part);
                j->cols = layout_panel_cols(&p->l, panel);
                j->first = part * p->l.n_part + panel * PANEL_COLS;
                j->out = tile + part * p->tile_rows * ACC_COLS + (panel - panel0) * PANEL_COLS;
                j->exponent = &exponent[2 * (panel - panel0) + part];
                if (range == 0)
                    *j->exponent = NO_EXPONENTS;
                if (j->open) {
                    narrow_open(p->kern, &p->stored, j->panel, j->cols, j->open);
                    j->panel = j->open;
                }
                for (int64_t r = range; r < range + at_once; r++)
                    panel_product(p, j, r);
                if (p->a.parts && range + at_once == ranges)
                    panel_again(p, j);
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
    job.values = (float *)(void *)((char *)job.decoded + p->panel_bytes);
    if (p->open_bytes)
        job.open = (uint8_t *)job.values + p->values_bytes;
    int64_t panel0 = first / PANEL_COLS;
    tile_product(p, &job, panel0, last, tile);
    TileRun run = {.kern = p->kern, .program = &s->epilogue, .operand = p->g->operand};
    run.n0 = n0;
    run.cols = last - first;
    run.acc_ld = ACC_COLS;
    run.scratch = (char *)job.values + p->values_bytes + p->open_bytes;
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

/* What is looked up for codes. */
static void plan_values(GemmPlan *p)
{
    const PackLayout *l = &p->stored;
    p->tables = l->table ? (const void *)((const char *)p->g->packed + layout_tables_at(l)) : NULL;
    for (unsigned code = 0; !l->table && code < 16; code++)
        p->value[code] = num_decode((int)p->l.fmt, code);
    if (l->table == TABLE_TENSOR)
        memcpy(p->value, p->tables, (size_t)l->table_codes * sizeof *p->value);
}

/* Below this many products, waking threads takes longer than the work. */
#define SMALL_WORK 200000.0

void cpu_gemm(const CpuGemm *g, void *scratch, int threads)
{
    GemmPlan p = {.g = g, .kern = cpu_kernels()};
    if (threads < 1)
        threads = 1;
    if (g->m <= 0 || !plan_layout(&p))
        return;
    if (g->prologue.num_steps) {
        CpuTile tile = gemm_prologue(g);
        cpu_tile(&tile, scratch, threads);
    }
    int64_t most = rows_at_once(g);
    p.a = prepare_shape(p.kern, g, &p.l, most);
    plan_scratch(&p, threads);
    plan_values(&p);
    bool small = (double)g->m * (double)g->spec.n * (double)g->spec.k < SMALL_WORK;
    prepare_place(&p.a, g, &p.l, most, scratch);
    p.folds = plan_folds(&p);
    p.threads = (char *)scratch + prepare_bytes(&p.a, g, &p.l, most);
    for (p.row0 = 0; p.row0 < g->m; p.row0 += most) {
        p.rows = g->m - p.row0 < most ? g->m - p.row0 : most;
        p.row_tiles = ceil_blocks(p.rows, p.tile_rows);
        plan_run(&p, small ? 1 : threads);
    }
}
