/* What the weight quantisers share: single codes, blocks. */
#include "base/team.h"
#include "quant/loops.h"
#include "quant/weights.h"
#include <stdlib.h>

void qtensor_set_code(QTensor *q, int64_t row, int64_t col, unsigned code)
{
    uint8_t *codes = q->codes + (uint64_t)row * q->row_bytes;
    if (format_held_bits(q->scheme.fmt) == 4) {
        unsigned shift = (unsigned)(col % 2) * 4;
        codes[col / 2] = (uint8_t)((codes[col / 2] & ~(15u << shift)) | code << shift);
    } else {
        codes[col] = (uint8_t)code;
    }
}

float *weight_to_f32(const QTensor *q, FormatId src_fmt, const void *src)
{
    uint64_t num, bytes;
    if (!checked_mul((uint64_t)q->rows, (uint64_t)q->cols, &num) ||
        !checked_mul(num, sizeof(float), &bytes) || bytes > SIZE_MAX - 1)
        return NULL;
    float *w = malloc(bytes + 1);
    if (w)
        format_to_f32(src_fmt, src, w, num);
    return w;
}

Cell cell_of_range(const QTensor *q, float lo, float hi, float *ret_scale, int32_t *ret_zero)
{
    const Scheme *scheme = &q->scheme;
    int fmt = (int)scheme->fmt, scale_fmt = (int)scheme->scale_fmt, zero = 0;
    if (scheme->zero != ZERO_NONE) {
        *ret_scale = num_scale_asym(fmt, scale_fmt, num_order_key(lo), num_order_key(hi), &zero);
    } else {
        int below = num_abs_bits(lo), above = num_abs_bits(hi);
        *ret_scale = num_scale_sym(fmt, scale_fmt, below > above ? below : above, q->outer);
    }
    *ret_zero = zero;
    return cell_create(scheme, *ret_scale, zero, q->outer);
}

typedef struct EachBlock {
    QTensor *q;
    const float *w;
    WeightBlockFn fn;
    const void *user;
} EachBlock;

static void each_block(void *user, int64_t begin, int64_t end, int thread)
{
    const EachBlock *e = user;
    QTensor *q = e->q;
    int64_t height = qtensor_block_rows(q), width = qtensor_block_cols(q);
    (void)thread;
    for (int64_t at = begin; at < end; at++) {
        int64_t row = at / q->col_blocks * height, col = at % q->col_blocks * width;
        if (row >= q->rows || col >= q->cols)
            continue;
        WeightBlock block = {.w = e->w + row * q->cols + col,
                             .rows = q->rows - row < height ? q->rows - row : height,
                             .cols = q->cols - col < width ? q->cols - col : width,
                             .pitch = q->cols,
                             .row = row,
                             .col = col,
                             .at = at};
        e->fn(q, &block, e->user);
    }
}

void weight_each_block(QTensor *q, const float *w, WeightBlockFn fn, const void *user)
{
    EachBlock each = {q, w, fn, user};
    int64_t elements = qtensor_block_rows(q) * qtensor_block_cols(q);
    team_run(0, q->row_blocks * q->col_blocks, TEAM_STEP(elements), each_block, &each);
    whole_scales_settle(q);
    quantize_static(q, FMT_F32, w);
}

const char *weight_stats_problem(const WeightStats *stats, int64_t cols)
{
    if (!stats || !stats->mean_abs || !stats->mean_square)
        return "it needs calibration data: a `calibrate` line in the text";
    if (stats->samples < 1)
        return "calibration saw no usable row at this layer's input";
    if (stats->cols != cols)
        return "the calibration data has another width than the weight";
    return NULL;
}
