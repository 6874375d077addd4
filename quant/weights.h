/* The weight quantisers of this room, one a file (tables.c lists them), and what they share. */
#ifndef SINTER_QUANT_WEIGHTS_H
#define SINTER_QUANT_WEIGHTS_H

#include "quant/quant.h"

extern const WeightQuantiser weight_rtn, weight_gptq, weight_awq, weight_mse, weight_hqq,
    weight_imatrix;

/* One block's numbers, ready to encode single values with. */
typedef struct Cell {
    int fmt, zero, qmin, qmax;
    float scale, inv; /* effective */
} Cell;

static inline Cell cell_create(const Scheme *scheme, float scale, int zero, float outer)
{
    int fmt = (int)scheme->fmt;
    float effective = num_scale_effective(scale, outer);
    return (Cell){.fmt = fmt,
                  .zero = zero,
                  .qmin = num_code_min(fmt, scheme->zero != ZERO_NONE),
                  .qmax = num_code_max(fmt),
                  .scale = effective,
                  .inv = num_inverse(effective)};
}

static inline unsigned cell_encode(const Cell *cell, float x)
{
    if (format_info[cell->fmt].family == FAMILY_INT)
        return (unsigned)num_int_code(cell->fmt, x * cell->inv, cell->zero, cell->qmin,
                                      cell->qmax) &
               ((1u << format_held_bits((FormatId)cell->fmt)) - 1);
    return num_encode(cell->fmt, x * cell->inv);
}

/* The code's value in steps of the scale. */
static inline float cell_steps(const Cell *cell, unsigned code)
{
    return num_decode(cell->fmt, code) - (float)cell->zero;
}

static inline float cell_decode(const Cell *cell, unsigned code)
{
    return cell_steps(cell, code) * cell->scale;
}

/* weight_common.c */
void qtensor_set_code(QTensor *q, int64_t row, int64_t col, unsigned code);
/* rows x cols of src as f32, from malloc; NULL: out of memory. */
float *weight_to_f32(const QTensor *q, FormatId src_fmt, const void *src);
/* Scale and zero point of elements that span lo..hi (symmetric: the larger magnitude). */
Cell cell_of_range(const QTensor *q, float lo, float hi, float *ret_scale, int32_t *ret_zero);

/* One block of a weight: rows x cols elements at w, `pitch` apart. */
typedef struct WeightBlock {
    const float *w;
    int64_t rows, cols, pitch;
    int64_t row, col; /* of its first element */
    int64_t at;       /* its entry in the grid */
} WeightBlock;
/* Calls fn for every block, in parallel; then encodes the whole weight with the scales it left. */
typedef void (*WeightBlockFn)(QTensor *q, const WeightBlock *block, const void *user);
void weight_each_block(QTensor *q, const float *w, WeightBlockFn fn, const void *user);

/* clip.c. What the error of a row's codes is, off its errors: sum of off^2 importance (NULL: 1),
 * or, with second moments H [cols, cols] of the layer's input, off H off^T. */
typedef struct ClipTarget {
    const double *importance, *hessian;
    int64_t cols;
} ClipTarget;
/* Shrinks each block's range to where that error is least. */
const char *weight_clip_search(QTensor *q, FormatId src_fmt, const void *src,
                               const ClipTarget *target);

/* NULL when the statistics suit a weight of `cols` columns, else a sentence. */
const char *weight_stats_problem(const WeightStats *stats, int64_t cols);

#define WEIGHT_NO_MEMORY "out of memory"

#endif
