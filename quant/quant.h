/* quant: element formats and schemes (tables), encoding and decoding of quantised tensors,
 * calibrators (how a static range is chosen) and weight quantisers (how codes are chosen).
 *
 * A quantised tensor is viewed as two-dimensional: the last dimension is the columns (for a weight
 * [out, in]: K), all leading dimensions flattened are the rows. */
#ifndef SINTER_QUANT_H
#define SINTER_QUANT_H

#include "base/base.h"
#include "numerics/codebook.h"
#include "numerics/numerics.h"

/* format.c ---------------------------------------------------------------------------------- */

typedef struct FormatInfo {
    FormatId id;
    const char *name;
    int bits;
    FormatFamily family;
    bool is_signed;
    int exp_bits, man_bits, bias;
    double qmin, qmax;
} FormatInfo;
extern const FormatInfo format_info[NUM_FORMATS]; /* [FMT_NONE] is all zero, name "none" */
FormatId format_find(const char *name);           /* FMT_NONE when unknown */

static inline bool format_is_plain(FormatId fmt) /* stores tensors as they are */
{
    return format_info[fmt].family == FAMILY_FLOAT || fmt == FMT_I32;
}
/* Codes in memory take a nibble or a byte (numerics.h, num_holder), whole bytes where plain. */
static inline int format_held_bits(FormatId fmt)
{
    return format_info[num_holder((int)fmt)].bits;
}
/* Are its codes held by a wider format's? */
static inline bool format_is_narrow(FormatId fmt)
{
    return num_holder((int)fmt) != (int)fmt;
}
/* The smallest and the largest code of an integer format, unused ones included. */
int format_code_min(FormatId fmt);
int format_code_max(FormatId fmt);
/* The narrowest integer format of at least so many bits, all of whose codes are numbers of it. */
FormatId format_of_bits(int bits, bool is_signed);
/* Bytes of a row of `cols` elements in memory, nibbles padded to a whole byte. */
uint64_t format_row_bytes(FormatId fmt, uint64_t cols);

/* Value of one code (0 <= code < 2^bits; two's complement for signed integers) and the nearest
 * code of a value under the contract: nearest even, saturating, NaN kept where the format has one
 * (formats without NaN: callers mark the block's scale instead). */
float format_decode(FormatId fmt, uint32_t code);
uint32_t format_encode(FormatId fmt, float value);
/* Plain-format arrays to and from f32 / f64 (fmt: F64 F32 F16 BF16 I32 and the 8-bit formats). */
void format_to_f32(FormatId fmt, const void *src, float *dst, uint64_t num);
void format_from_f32(FormatId fmt, const float *src, void *dst, uint64_t num);
void format_to_f64(FormatId fmt, const void *src, double *dst, uint64_t num);

/* scheme.c ---------------------------------------------------------------------------------- */

typedef enum ZeroKind { ZERO_NONE, ZERO_INT } ZeroKind; /* symmetric, asymmetric */

/* How a quantised tensor stores its numbers. block[0] rows by block[1] columns share one scale; 0 =
 * all. Per tensor {0,0}, per channel or token {1,0}, group g {1,g}, 2-D {r,c}, MX {1,32} with
 * E8M0 scales, NVFP4 {1,16} with E4M3 scales and an outer scale. */
typedef struct Scheme {
    FormatId fmt;
    FormatId scale_fmt; /* F32 F16 BF16 E8M0 E4M3; I8: whole multiples of a number of the row's */
    ZeroKind zero;
    bool outer;      /* a second, per-tensor f32 scale that multiplies (NVFP4) */
    TableKind table; /* a codebook: w = table[q] s */
    int64_t block[2];
    bool fast; /* of an activation: sums of products may keep the bits that tensor cores keep */
} Scheme;

bool scheme_equal(const Scheme *a, const Scheme *b);
/* Are its codes numbers, and integers? Those of a codebook are not. */
static inline bool scheme_is_integer(const Scheme *scheme)
{
    return scheme->table == TABLE_NONE && format_info[scheme->fmt].family == FAMILY_INT;
}
/* " by row": what its tables belong to, after "codebook". */
const char *scheme_table_text(const Scheme *scheme);
/* "i8 asym per tensor", "e2m1 group 16 scale e4m3 outer": the canonical words of the language. */
void scheme_print(Sb *sb, const Scheme *scheme, bool is_act);
/* Named schemes of one operand: mxfp8 mxfp4 nvfp4; false when unknown. */
bool scheme_find(const char *name, Scheme *ret);
/* Blocks along rows and columns: ceil(rows / block). */
int64_t scheme_row_blocks(const Scheme *scheme, int64_t rows);
int64_t scheme_col_blocks(const Scheme *scheme, int64_t cols);
bool scheme_varies_along_cols(const Scheme *scheme,
                              int64_t cols); /* more than one scale in a row */
/* Why this scheme cannot quantise such a tensor (static text), or NULL. */
const char *scheme_problem(const Scheme *scheme);

/* qtensor.c --------------------------------------------------------------------------------- */

/* codes: canonical packing, row-major, 4-bit low nibble first, each row padded to a byte.
 * scale[r * col_blocks + c] as f32 (already rounded to scale_fmt; NaN marks a block that held a
 * NaN where the format has none). zero: same grid, NULL when symmetric. table: [tables][2^bits]
 * values of codes, NULL where codes are numbers. */
typedef struct QTensor {
    Scheme scheme;
    int64_t rows, cols, row_blocks, col_blocks;
    uint8_t *codes;
    uint64_t codes_bytes, row_bytes;
    float *scale;
    int32_t *zero;
    float *table;
    float outer;  /* 1 when the scheme has none */
    void *memory; /* the one allocation behind all of these */
} QTensor;

/* Library-safe. false: sizes overflow or memory is exhausted. */
bool qtensor_init(QTensor *q, const Scheme *scheme, int64_t rows, int64_t cols);
/* The same for whoever sets all codes and scales: only zero points are zeroed. */
bool qtensor_init_unset(QTensor *q, const Scheme *scheme, int64_t rows, int64_t cols);
void qtensor_free(QTensor *q); /* accepts a zeroed one */
/* Elements along rows and columns that share one scale, never 0. */
static inline int64_t qtensor_block_rows(const QTensor *q)
{
    return q->scheme.block[0] ? q->scheme.block[0] : q->rows ? q->rows : 1;
}
static inline int64_t qtensor_block_cols(const QTensor *q)
{
    return q->scheme.block[1] ? q->scheme.block[1] : q->cols ? q->cols : 1;
}
/* Rows [first, first + num), which begin a block of scales, as a tensor that borrows q's memory. */
QTensor qtensor_rows(const QTensor *q, int64_t first, int64_t num);
uint32_t qtensor_code(const QTensor *q, int64_t row, int64_t col);
/* Values in one of its tables; in all of them. */
static inline int64_t qtensor_table_codes(const QTensor *q)
{
    return INT64_C(1) << format_info[q->scheme.fmt].bits;
}
static inline int64_t qtensor_table_values(const QTensor *q)
{
    return codebook_tables(q->scheme.table, q->rows, q->row_blocks * q->col_blocks) *
           qtensor_table_codes(q);
}
/* The table of the elements of a row in an entry of the grid of scales; NULL: codes are numbers. */
static inline const float *qtensor_table(const QTensor *q, int64_t row, int64_t entry)
{
    return q->table ? q->table + codebook_at(q->scheme.table, row, entry) * qtensor_table_codes(q)
                    : NULL;
}
/* What a code stands for, without scale and zero point. */
float qtensor_code_value(const QTensor *q, int64_t row, int64_t col);
float qtensor_value(const QTensor *q, int64_t row, int64_t col);
void qtensor_dequantize(const QTensor *q, float *dst);
void qtensor_dequantize_f64(const QTensor *q, double *dst);

/* Round-to-nearest with scales from each block's own range (design: symmetric amax / qmax,
 * asymmetric range holds 0). src: plain rows x cols in src_fmt. Deterministic, and the same bits as
 * the CPU and GPU quantise kernels. */
void quantize_rtn(QTensor *q, FormatId src_fmt, const void *src);
/* The same with scales and zero points already present in q (static). */
void quantize_static(QTensor *q, FormatId src_fmt, const void *src);
/* Scale and zero point of one range under a scheme: what a calibrated range becomes. */
void scheme_params(const Scheme *scheme, float lo, float hi, float *ret_scale, int32_t *ret_zero);

/* whole_scales.c ------------------------------------------------------------------------------ */

/* Scales of `scale i8`: those of a row are 1 to 16 times one f32 number, the row's unit, which has
 * 19 significant bits so that its multiples are exact; codes of 4 bits, less their zero point,
 * times such a multiple fit i8. */
#define WHOLE_SCALE_MOST 16
/* The largest multiple that a block of this zero point may have. */
int whole_scale_most(const Scheme *scheme, int zero);
/* Rounds a row's scales, f32 and positive or 0 (nothing in the block), to that: the unit is the
 * least of which each is at most its largest multiple. One that is not finite makes all NaN. */
void whole_scales_round(QTensor *q, int64_t row);
/* The same for all rows of a tensor under `scale i8`; others stay as they are. */
void whole_scales_settle(QTensor *q);
/* The largest unit of such a row's scales, and what each is times that; NaN and ones, where one is.
 */
float whole_scales_unit(const float *scale, int64_t num, uint8_t *ret_factor);
/* Codes times their scales' multiples, under the row's unit, the same values. ret: made for
 * whole_scales_wide, as large. Library-safe; false: memory is exhausted. */
extern const Scheme whole_scales_wide; /* i8 sym per channel */
bool qtensor_widen(const QTensor *q, QTensor *ret);
/* Back: of such codes of 8 bits, u4 asym in groups of `width` columns, and as scales the least
 * whole numbers that codes less zero points are multiplied by. ret: made here. Library-safe, as
 * qtensor_init. */
bool qtensor_narrow(const QTensor *q, int64_t width, QTensor *ret);

/* calib_*.c ----------------------------------------------------------------------------------- */

/* How a static range is chosen from data. A NULL-terminated table: calibrators[]. */
struct Histogram; /* quant/calib.h */
typedef struct Calibrator {
    const char *name;     /* "minmax", "percentile", "mse", "kl" */
    const char *describe; /* one sentence */
    bool has_arg;         /* percentile 99.9 */
    double arg_min, arg_max;
    /* The range that a tensor with this histogram gets under `scheme`; 0, 0 for an empty one. */
    void (*range)(const struct Histogram *h, double arg, const Scheme *scheme, float *ret_lo,
                  float *ret_hi);
} Calibrator;
extern const Calibrator *const calibrators[];
const Calibrator *calibrator_find(const char *name);

/* weight_*.c ---------------------------------------------------------------------------------- */

/* How the codes of a weight are chosen. A NULL-terminated table: weight_quantisers[]. */
typedef struct WeightStats { /* what calibration saw at the input of the layer; may be NULL */
    int64_t cols, samples;
    const double *hessian;     /* [cols, cols] sum of x x^T, or NULL */
    const float *mean_abs;     /* [cols] */
    const double *mean_square; /* [cols] of x^2 */
} WeightStats;
typedef struct QuantEngine QuantEngine; /* quant/engine.h */
typedef struct WeightArgs { /* the arguments of `by name(...)`; unset = the quantiser's default */
    bool act_order;
    double damp;
    const QuantEngine *engine; /* where steps that take long run; NULL: here */
} WeightArgs;
typedef struct WeightQuantiser {
    const char *name, *describe;
    bool needs_stats;
    bool takes_hessian;           /* and the second moments among them, where they can be had */
    bool needs_hessian;           /* does not work without */
    bool row_by_row;              /* the codes of a row do not depend on the other rows */
    const char *const *arg_names; /* NULL-terminated, the named arguments it takes */
    /* Factors [cols] for the layer's input channels, to be folded into the weight and divided out
     * of what produces the input before run; NULL: it wants none. Result as for run. */
    const char *(*input_scales)(const Scheme *scheme, FormatId src_fmt, const void *src,
                                int64_t rows, int64_t cols, const WeightStats *stats, float *ret);
    /* NULL, or a sentence that says what went wrong */
    const char *(*run)(QTensor *q, FormatId src_fmt, const void *src, const WeightStats *stats,
                       const WeightArgs *args);
} WeightQuantiser;
extern const WeightQuantiser *const weight_quantisers[]; /* rtn gptq awq mse hqq imatrix */
const WeightQuantiser *weight_quantiser_find(const char *name);

/* stats.c ------------------------------------------------------------------------------------- */

/* What calibration sees at the input of one layer. Rows that hold a NaN or an infinity are skipped.
 */
typedef struct LayerStats {
    WeightStats seen;     /* current after layer_stats_finish; hessian NULL when not asked for */
    const float *max_abs; /* [cols], for smoothing */
    struct LayerStatsMemory *memory;
} LayerStats;
bool layer_stats_init(LayerStats *stats, int64_t cols, bool with_hessian); /* false: no memory */
/* The same with the second moments in `hessian` [cols, cols], zeroed, which outlives the stats. */
bool layer_stats_init_at(LayerStats *stats, int64_t cols, double *hessian);
void layer_stats_observe(LayerStats *stats, const float *x, int64_t rows); /* [rows, cols] */
/* Has the engine add second moments; before the first row. */
void layer_stats_use(LayerStats *stats, const QuantEngine *engine);
bool layer_stats_finish(LayerStats *stats); /* false: the engine failed */
void layer_stats_free(LayerStats *stats);   /* accepts a zeroed one */

/* hadamard.c ----------------------------------------------------------------------------------- */

/* Is there an orthogonal matrix H of this order with all entries +-1/sqrt(n) that this room knows?
 * n = m * 2^k, m = 1 or a multiple of 4 up to 256 with m - 1 prime (12, 20, 24, 44, ..). */
bool hadamard_exists(int64_t n);
/* Each row of dst [rows, cols] is the row of src times H, in f64, rounded once. In place is fine.
 * False: out of memory or no such H. */
bool hadamard_rows(const float *src, float *dst, int64_t rows, int64_t cols);
bool hadamard_rows_f64(const double *src, double *dst, int64_t rows, int64_t cols);

/* smooth.c, weight_awq.c: scales per input channel. Columns of the weight are multiplied by them,
 * what produces the layer's input divides by them; they are 1 where data or weight are all zero. */

/* [cols] largest magnitudes of each column, NaN left out, merged into ret by maximum. */
void columns_amax(FormatId src_fmt, const void *src, int64_t rows, int64_t cols, float *ret);
/* SmoothQuant: x_amax^alpha / w_amax^(1 - alpha), within 1e-5 .. 1e5. */
void smooth_scales(const float *x_amax, const float *w_amax, int64_t cols, double alpha,
                   float *ret);
/* How the activation that is smoothed will be quantised, and what it looks like. */
typedef struct SmoothSample {
    const Scheme *act; /* NULL: it stays plain */
    bool is_static;
    int64_t cols, num;    /* columns; rows of x */
    const float *x;       /* [num, cols], a sample */
    const float *lo, *hi; /* [cols] extremes over all the data */
} SmoothSample;
/* The alpha among 0, 1/20, .. 1 with the least squared error of the layer's output on the sample,
 * both operands quantised; of equal ones the nearest to 1/2. w: [rows, cols]. NULL, or a sentence.
 */
const char *smooth_search_alpha(const SmoothSample *sample, const Scheme *weight, const float *w,
                                int64_t rows, double *ret_alpha);
/* AWQ: the best of 20 powers of mean_abs (and of all ones) under `scheme`. NULL, or a sentence. */
const char *awq_search_scales(const Scheme *scheme, FormatId src_fmt, const void *src, int64_t rows,
                              int64_t cols, const WeightStats *stats, float *ret);

#endif
