/* The search for narrower ranges of a weight's blocks: each block gets the best of 20 ranges, its
 * own times 1, 0.975, .. 0.525.
 *
 * With second moments H of the layer's input, rows are searched block after block: off H off^T,
 * off the errors of the row's codes, is the squared error of what the row gives, and a block is
 * chosen by what it adds to that beside the errors of the blocks before it. This is done for tiles
 * of rows, for blocks of one row and at most 256 columns. The error of others is off H off^T over
 * H's blocks on the diagonal; without H, the sum of off^2 by column, weighted. */
#include "base/team.h"
#include "quant/linalg.h"
#include "quant/weights.h"
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define STEPS 20
#define STRIP 256 /* columns of a row whose errors are summed before they are squared */

static float step_ratio(int step)
{
    return 1.0f - (float)step / (2 * STEPS);
}

static void row_range(const float *w, int64_t num, float *lo, float *hi)
{
    for (int64_t c = 0; c < num; c++) {
        *lo = w[c] < *lo ? w[c] : *lo;
        *hi = w[c] > *hi ? w[c] : *hi;
    }
}

static void block_choose(QTensor *q, int64_t at, float scale, int32_t zero)
{
    q->scale[at] = scale;
    if (q->zero)
        q->zero[at] = zero;
}

/* Block by block ------------------------------------------------------------------------------ */

/* The squared error of what columns col .. col + num - 1 of one row add to the output. */
static double strip_error(const ClipTarget *target, int64_t col, const double *off, int64_t num)
{
    double product[STRIP] = {0}, error = 0;
    int64_t n = target->cols;
    linalg_subtract(product, off, target->hessian + col * n + col, n, (int)num, num);
    for (int64_t c = 0; c < num; c++)
        error -= product[c] * off[c];
    return error;
}

static double row_error(const WeightBlock *block, int64_t row, const Cell *cell,
                        const ClipTarget *target)
{
    const double *importance = target->importance;
    double off[STRIP], error = 0;
    for (int64_t first = 0; first < block->cols; first += STRIP) {
        int64_t num = block->cols - first < STRIP ? block->cols - first : STRIP;
        const float *w = block->w + row * block->pitch + first;
        for (int64_t c = 0; c < num; c++)
            off[c] = (double)w[c] - cell_decode(cell, cell_encode(cell, w[c]));
        if (target->hessian)
            error += strip_error(target, block->col + first, off, num);
        for (int64_t c = 0; c < num && !target->hessian; c++)
            error += off[c] * off[c] * (importance ? importance[block->col + first + c] : 1);
    }
    return error;
}

static void clip_block(QTensor *q, const WeightBlock *block, const void *user)
{
    float lo = 0, hi = 0;
    for (int64_t r = 0; r < block->rows; r++)
        row_range(block->w + r * block->pitch, block->cols, &lo, &hi);
    if (!isfinite(q->scale[block->at]) || (lo == 0 && hi == 0))
        return;
    double best = INFINITY;
    for (int step = 0; step < STEPS; step++) {
        float ratio = step_ratio(step), scale;
        int32_t zero;
        Cell cell = cell_of_range(q, lo * ratio, hi * ratio, &scale, &zero);
        double error = 0;
        for (int64_t r = 0; r < block->rows; r++)
            error += row_error(block, r, &cell, user);
        if (error < best) {
            best = error;
            block_choose(q, block->at, scale, zero);
        }
    }
}

/* Rows, block after block --------------------------------------------------------------------- */

typedef struct Tile {
    QTensor *q;
    const float *w;        /* [rows, cols] */
    const double *hessian; /* [cols, cols] */
    int64_t row;
    int num_rows;
    double *push;    /* [cols][LINALG_TILE]: -H off^T of the blocks chosen */
    double *product; /* the same with a candidate, of its columns */
    double *off;     /* [STRIP][LINALG_TILE]: errors of a candidate, the last column first */
    double *best;    /* the same of the best so far */
} Tile;

static bool tile_init(Tile *t, QTensor *q, const float *w, const double *hessian)
{
    size_t each = (size_t)q->cols * LINALG_TILE;
    *t = (Tile){.q = q, .w = w, .hessian = hessian};
    t->push = calloc(2 * each + 2 * STRIP * LINALG_TILE, sizeof *t->push);
    t->product = t->push + each;
    t->off = t->product + each;
    t->best = t->off + STRIP * LINALG_TILE;
    return t->push != NULL;
}

/* One row's codes under a candidate: its errors into t->off. */
static void tile_encode(const Tile *t, int r, int64_t col, int64_t num, const Cell *cell)
{
    const float *w = t->w + (t->row + r) * t->q->cols + col;
    for (int64_t c = 0; c < num; c++)
        t->off[(num - 1 - c) * LINALG_TILE + r] =
            (double)w[c] - cell_decode(cell, cell_encode(cell, w[c]));
}

/* What a candidate adds to each row's squared error. */
static void tile_errors(const Tile *t, int64_t col, int64_t num, double *ret)
{
    double *product = t->product + col * LINALG_TILE;
    for (int64_t i = 0; i < num * LINALG_TILE; i++)
        product[i] = 2 * t->push[col * LINALG_TILE + i];
    linalg_tile_update(t->hessian, t->q->cols, col + num - 1, col, col, col + num, t->off,
                       t->product);
    for (int r = 0; r < LINALG_TILE; r++)
        ret[r] = 0;
    for (int64_t c = 0; c < num; c++)
        for (int r = 0; r < LINALG_TILE; r++)
            ret[r] -= product[c * LINALG_TILE + r] * t->off[(num - 1 - c) * LINALG_TILE + r];
}

static void tile_take(const Tile *t, int r, int64_t num)
{
    for (int64_t c = 0; c < num; c++)
        t->best[c * LINALG_TILE + r] = t->off[c * LINALG_TILE + r];
}

static void tile_block(const Tile *t, int64_t col, int64_t num)
{
    QTensor *q = t->q;
    int64_t at = t->row * q->col_blocks + col / qtensor_block_cols(q);
    float lo[LINALG_TILE] = {0}, hi[LINALG_TILE] = {0}, scale[LINALG_TILE];
    int32_t zero[LINALG_TILE];
    double best[LINALG_TILE], error[LINALG_TILE];
    for (int r = 0; r < t->num_rows; r++) {
        row_range(t->w + (t->row + r) * q->cols + col, num, &lo[r], &hi[r]);
        best[r] = isfinite(q->scale[at + r * q->col_blocks]) ? INFINITY : -INFINITY;
    }
    memset(t->off, 0, (size_t)num * LINALG_TILE * sizeof *t->off);
    memset(t->best, 0, (size_t)num * LINALG_TILE * sizeof *t->best);
    for (int step = 0; step < STEPS; step++) {
        float ratio = step_ratio(step);
        for (int r = 0; r < t->num_rows; r++) {
            Cell cell = cell_of_range(q, lo[r] * ratio, hi[r] * ratio, &scale[r], &zero[r]);
            if (best[r] != -INFINITY)
                tile_encode(t, r, col, num, &cell);
        }
        tile_errors(t, col, num, error);
        for (int r = 0; r < t->num_rows; r++) {
            if (!(error[r] < best[r]))
                continue;
            best[r] = error[r];
            block_choose(q, at + r * q->col_blocks, scale[r], zero[r]);
            tile_take(t, r, num);
        }
    }
    linalg_tile_update(t->hessian, q->cols, col + num - 1, col, col + num, q->cols, t->best,
                       t->push);
}

static bool clip_rows(QTensor *q, const float *w, const double *hessian, int64_t row)
{
    Tile t;
    int64_t width = qtensor_block_cols(q), left = q->rows - row;
    if (!tile_init(&t, q, w, hessian))
        return false;
    t.row = row;
    t.num_rows = left < LINALG_TILE ? (int)left : LINALG_TILE;
    for (int64_t col = 0; col < q->cols; col += width)
        tile_block(&t, col, q->cols - col < width ? q->cols - col : width);
    free(t.push);
    return true;
}

typedef struct ClipWork {
    QTensor *q;
    const float *w;
    const double *hessian;
    atomic_bool failed; /* memory was exhausted */
} ClipWork;

static void clip_tiles(void *user, int64_t begin, int64_t end, int thread)
{
    ClipWork *c = user;
    (void)thread;
    for (int64_t row = begin; row < end; row += LINALG_TILE)
        if (!clip_rows(c->q, c->w, c->hessian, row))
            c->failed = true;
}

static bool clip_tensor(QTensor *q, const float *w, const double *hessian)
{
    ClipWork work = {.q = q, .w = w, .hessian = hessian};
    team_run(0, q->rows, LINALG_TILE, clip_tiles, &work);
    whole_scales_settle(q);
    quantize_static(q, FMT_F32, w);
    return !work.failed;
}

const char *weight_clip_search(QTensor *q, FormatId src_fmt, const void *src,
                               const ClipTarget *target)
{
    bool ok = true;
    quantize_rtn(q, src_fmt, src);
    float *w = weight_to_f32(q, src_fmt, src);
    if (!w)
        return WEIGHT_NO_MEMORY;
    if (target->hessian && q->scheme.block[0] == 1 && qtensor_block_cols(q) <= STRIP)
        ok = clip_tensor(q, w, target->hessian);
    else
        weight_each_block(q, w, clip_block, target);
    free(w);
    return ok ? NULL : WEIGHT_NO_MEMORY;
}
