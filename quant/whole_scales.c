/* Scales that are whole multiples of one number a row (`scale i8`): codes of 4 bits times their
 * multiples are integers of 8 bits, so that sums of products with integers need no scale before
 * the row's own. (Lin et al., "QServe", arXiv:2405.04532, section 4.1, quantise to 8 bits first and
 * those to 4; here the multiples are chosen for the 4-bit codes.) */
#include "base/team.h"
#include "quant/weights.h"
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

const Scheme whole_scales_wide = {.fmt = FMT_I8, .scale_fmt = FMT_F32, .block = {1, 0}};

/* 19 significant bits, so that multiples up to 16 are exact. */
static float unit_of(float least)
{
    float unit = num_float(num_bits(least) & ~31u);
    return unit < NUM_MIN_NORMAL ? NUM_MIN_NORMAL : unit;
}

int whole_scale_most(const Scheme *scheme, int zero)
{
    int low = zero - num_code_min((int)scheme->fmt, 1),
        high = num_code_max((int)scheme->fmt) - zero;
    if (scheme->zero == ZERO_NONE)
        return WHOLE_SCALE_MOST;
    return 127 / (low > high ? low : high);
}

static int most_at(const QTensor *q, int64_t at)
{
    return whole_scale_most(&q->scheme, q->zero ? q->zero[at] : 0);
}

void whole_scales_round(QTensor *q, int64_t row)
{
    int64_t from = row * q->col_blocks, to = from + q->col_blocks;
    float least = 0; /* that a unit may be */
    for (int64_t i = from; i < to; i++) {
        float own = q->scale[i] / (float)most_at(q, i);
        if (!isfinite(q->scale[i])) /* what is wrong with a block is wrong with its row */
            least = NAN;
        least = own > least ? own : least;
    }
    float unit = least > 0 ? unit_of(least) : isnan(least) ? NAN : 1.0f;
    for (int64_t i = from; i < to; i++)
        q->scale[i] = unit * (float)num_to_int(q->scale[i] / unit, 0, 1, most_at(q, i));
}

void whole_scales_settle(QTensor *q)
{
    for (int64_t r = 0; r < q->rows && q->scheme.scale_fmt == FMT_I8; r++)
        whole_scales_round(q, r);
}

/* All scales are multiples of the largest one's `parts`-th; *ret: that. */
static bool has_unit(const float *scale, int64_t num, float most, int parts, float *ret)
{
    float unit = *ret = most / (float)parts;
    for (int64_t i = 0; i < num; i++)
        if ((float)num_to_int(scale[i] / unit, 0, 1, WHOLE_SCALE_MOST) * unit != scale[i])
            return false;
    return true;
}

float whole_scales_unit(const float *scale, int64_t num, uint8_t *ret_factor)
{
    float most = 0, unit = NAN;
    for (int64_t i = 0; i < num; i++)
        most = scale[i] > most ? scale[i] : most;
    bool found = false;
    for (int parts = 1; parts <= WHOLE_SCALE_MOST && !found; parts++)
        found = has_unit(scale, num, most, parts, &unit);
    for (int64_t i = 0; i < num; i++)
        ret_factor[i] = found ? (uint8_t)num_to_int(scale[i] / unit, 0, 1, WHOLE_SCALE_MOST) : 1;
    return found ? unit : NAN;
}

typedef struct Widening {
    const QTensor *from;
    QTensor *to;
    atomic_bool failed;
} Widening;

static void widen_row(const QTensor *q, int64_t row, const uint8_t *factor, uint8_t *dst)
{
    int64_t width = qtensor_block_cols(q);
    for (int64_t c = 0; c < q->cols; c++) {
        int zero = q->zero ? q->zero[row * q->col_blocks + c / width] : 0;
        dst[c] = (uint8_t)(((int)qtensor_code_value(q, row, c) - zero) * factor[c / width]);
    }
}

static void widen_rows(void *user, int64_t begin, int64_t end, int thread)
{
    Widening *w = user;
    const QTensor *q = w->from;
    uint8_t *factor = malloc((size_t)q->col_blocks + 1);
    (void)thread;
    if (!factor)
        w->failed = true;
    for (int64_t r = begin; factor && r < end; r++) {
        w->to->scale[r] = whole_scales_unit(q->scale + r * q->col_blocks, q->col_blocks, factor);
        widen_row(q, r, factor, w->to->codes + (uint64_t)r * w->to->row_bytes);
    }
    free(factor);
}

bool qtensor_widen(const QTensor *q, QTensor *ret)
{
    Widening w = {.from = q, .to = ret};
    team_run(0, q->rows, TEAM_STEP(q->cols), widen_rows, &w);
    return !w.failed;
}

/* Narrowing ----------------------------------------------------------------------------------- */

static int greatest_divisor(int a, int b)
{
    while (b) {
        int rest = a % b;
        a = b, b = rest;
    }
    return a;
}

/* The least whole number that the codes are -*ret_zero to 15 - *ret_zero times. */
static int factor_of(const int8_t *code, int64_t num, int32_t *ret_zero)
{
    int divisor = 0, low = 0, high = 0;
    for (int64_t i = 0; i < num; i++) {
        low = code[i] < low ? code[i] : low;
        high = code[i] > high ? code[i] : high;
        if (divisor != 1)
            divisor = greatest_divisor(divisor, code[i] < 0 ? -code[i] : code[i]);
    }
    for (int factor = 1; factor <= WHOLE_SCALE_MOST; factor++)
        if (divisor % factor == 0 && high - low <= 15 * factor) {
            *ret_zero = -low / factor;
            return factor;
        }
    BUG("codes from %d to %d are no multiples of codes of 4 bits", low, high);
}

typedef struct Narrowing {
    const QTensor *from;
    QTensor *to;
} Narrowing;

static void narrow_rows(void *user, int64_t begin, int64_t end, int thread)
{
    const Narrowing *n = user;
    const QTensor *from = n->from;
    QTensor *to = n->to;
    int64_t width = qtensor_block_cols(to);
    (void)thread;
    for (int64_t r = begin; r < end; r++)
        for (int64_t c = 0; c < from->cols; c += width) {
            const int8_t *code = (const int8_t *)from->codes + (uint64_t)r * from->row_bytes;
            int64_t stop = from->cols - c < width ? from->cols : c + width;
            int64_t at = r * to->col_blocks + c / width;
            int factor = factor_of(code + c, stop - c, &to->zero[at]);
            to->scale[at] = (float)factor;
            for (int64_t i = c; i < stop; i++)
                qtensor_set_code(to, r, i, (unsigned)(code[i] / factor + to->zero[at]));
        }
}

bool qtensor_narrow(const QTensor *q, int64_t width, QTensor *ret)
{
    Scheme scheme = {.fmt = FMT_U4, .scale_fmt = FMT_I8, .zero = ZERO_INT, .block = {1, width}};
    if (!qtensor_init(ret, &scheme, q->rows, q->cols))
        return false;
    Narrowing n = {q, ret};
    team_run(0, q->rows, TEAM_STEP(q->cols), narrow_rows, &n);
    return true;
}
