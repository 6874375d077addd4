/* Comparing tensors of two devices; see near.h. */
#include "tests/gpu/near.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FEW          16   /* values that may all be what cancellation left */
#define FEW_BOUND    1e4  /* by how much more these may differ */
#define STRAY        10   /* of a mean of so many values, times its root: how far it may stray */
#define EDGE         0.99 /* of the largest number of a format: a sum next to it may overflow */
#define CODES_BOUND  1e-3 /* normalised mean square error of dequantised codes */
#define SCALES_BOUND 1e-5 /* of dynamic scales, and no less than that of the values */
#define SCALE_TIMES  100  /* by how much more a scale may be off beside itself alone */
#define SCALE_FLOOR  6e-8 /* .. unless by one rounding (2^-24) of what is usual in its tensor */
#define CODES_SHARE  0.02 /* of the codes, of the scales may differ: values next to a tie */
#define MANY         256  /* sums: one step of one of them is not much of their mean square */
#define FLIPS        2    /* .. and besides these so many */
#define GATES_SHARE  0.02 /* of a row of huge numbers, whose gates may be what cancellation left */

double near_bound(FormatId fmt)
{
    return fmt == FMT_BF16 ? 1e-5 : fmt == FMT_F16 ? 1e-6 : 1e-10;
}

double near_rounded(double bound)
{
    return bound * (bound >= near_bound(FMT_BF16) ? 1.6 : 1.2);
}

static double number(FormatId fmt, const uint8_t *data, uint64_t at)
{
    double v;
    int32_t i;
    if (fmt == FMT_I32) {
        memcpy(&i, data + 4 * at, 4);
        return i;
    }
    format_to_f64(fmt, data + at * (uint64_t)format_info[fmt].bits / 8, &v, 1);
    return v;
}

/* num elements of a plain format that must have the same bits. */
static bool same_plain(Near *n, const char *what, FormatId fmt, uint64_t num, const uint8_t *want,
                       const uint8_t *got)
{
    uint64_t size = (uint64_t)format_info[fmt].bits / 8, differ = 0, first = 0;
    if (memcmp(want, got, num * size) == 0)
        return true;
    for (uint64_t i = 0; i < num; i++) {
        if (memcmp(want + i * size, got + i * size, size) == 0 ||
            (fmt != FMT_I32 && isnan(number(fmt, want, i)) && isnan(number(fmt, got, i))))
            continue;
        first = differ++ ? first : i;
    }
    if (differ)
        snprintf(n->why, sizeof n->why,
                 "%s: %" PRIu64 " of %" PRIu64 " differ, element %" PRIu64
                 " is %.9g on the CPU, %.9g on the GPU",
                 what, differ, num, first, number(fmt, want, first), number(fmt, got, first));
    return differ == 0;
}

typedef struct Sums {
    double error, power;
    uint64_t num, lost; /* compared; finite on one side alone */
    uint64_t first_lost;
    double most, most_want, most_got; /* the largest difference */
    uint64_t most_at;
    /* squares: of the largest value and how far it is off, and sums over the others */
    double largest, largest_error, rest, rest_error;
} Sums;

static bool near_edge(double finite, double infinite, double largest)
{
    return isfinite(finite) && isinf(infinite) && (finite < 0) == (infinite < 0) &&
           fabs(finite) > EDGE * largest;
}

static void sums_add(Sums *s, double want, double got, uint64_t at)
{
    if (isfinite(want) && isfinite(got)) {
        double error = (want - got) * (want - got), power = want * want;
        bool is_largest = power > s->largest;
        s->error += error;
        s->power += power;
        s->rest += is_largest ? s->largest : power;
        s->rest_error += is_largest ? s->largest_error : error;
        s->largest = is_largest ? power : s->largest;
        s->largest_error = is_largest ? error : s->largest_error;
        s->num++;
        if (fabs(want - got) > s->most) {
            s->most = fabs(want - got);
            s->most_want = want, s->most_got = got, s->most_at = at;
        }
    } else if (!(isnan(want) && isnan(got)) && want != got) {
        s->first_lost = s->lost++ ? s->first_lost : at;
    }
}

/* Rows of 1e12 of both operands meet in one value, beside which the others are nothing: it may be
 * what cancellation left, and they are compared without it. */
static double without_largest(const Sums *s, double bound)
{
    bool may = s->largest > s->rest && s->largest_error <= FEW_BOUND * bound * s->largest;
    return !may || !(s->rest > 0) ? INFINITY : s->rest_error / s->rest;
}

static bool sums_near(Near *n, const char *what, const Sums *s, double bound)
{
    double nmse = s->error == 0 ? 0 : s->power > 0 ? s->error / s->power : INFINITY;
    if (nmse > bound && n->is_odd)
        nmse = fmin(nmse, without_largest(s, bound));
    bound *= s->num < FEW ? FEW_BOUND : n->rounds ? 1 + STRAY / sqrt((double)s->num) : 1;
    n->worst = nmse / bound > n->worst ? nmse / bound : n->worst;
    if (s->lost && !n->is_odd)
        snprintf(n->why, sizeof n->why,
                 "%s: %" PRIu64 " elements, the first number %" PRIu64
                 ", are finite on one device alone",
                 what, s->lost, s->first_lost);
    else if (!(nmse <= bound) && s->power > 1e-60)
        snprintf(n->why, sizeof n->why,
                 "%s: normalised error %.3g of %" PRIu64 " elements, at most %.3g; element %" PRIu64
                 " is %.9g on the CPU, %.9g on the GPU",
                 what, nmse, s->num, bound, s->most_at, s->most_want, s->most_got);
    else
        return true;
    return false;
}

/* No limit of an activation. */
static bool is_between(double x)
{
    return x != 0 && fabs(x) != 1;
}

/* Numbers so large that an activation gives its limits, 0, 1 or -1, for half of them at least, and
 * not 0 alone, which relu gives for any: what lies between is what cancellation of such numbers
 * left. */
static bool saturates(FormatId fmt, const uint8_t *want, uint64_t from, uint64_t to)
{
    uint64_t zeros = 0, ones = 0;
    for (uint64_t i = from; i < to; i++) {
        double x = fabs(number(fmt, want, i));
        if (!(x <= 1))
            return false;
        zeros += x == 0;
        ones += x == 1;
    }
    return 2 * (zeros + ones) >= to - from && 4 * ones >= to - from;
}

/* The largest errors of FLIPS codes or values that lie one step from the right ones: among few of
 * few bits one weighs more than the mean square of all may be. */
typedef struct Flips {
    double error[FLIPS];
} Flips;

static void flips_add(Flips *f, double error)
{
    for (int i = 0; i < FLIPS; i++)
        if (error > f->error[i]) {
            double smaller = f->error[i];
            f->error[i] = error;
            error = smaller;
        }
}

static void without_flips(Sums *s, const Flips *f)
{
    for (int i = 0; i < FLIPS; i++)
        s->error = fmax(s->error - f->error[i], 0);
}

/* Is one of two of 16 bits the next number to the other? */
static bool is_next(const uint8_t *want, const uint8_t *got, uint64_t at)
{
    uint16_t a, b;
    memcpy(&a, want + 2 * at, 2);
    memcpy(&b, got + 2 * at, 2);
    return a + 1 == b || b + 1 == a;
}

/* A value that was compared; `flip`: its error, if it lies one step from the right one. */
typedef struct Value {
    double want, flip;
} Value;

static int by_value(const void *a, const void *b)
{
    double x = ((const Value *)a)->want, y = ((const Value *)b)->want;
    return (x > y) - (x < y);
}

/* .. of values of 16 bits. Those that are equal are one sum, which may be stored in all columns of
 * a row, and are rounded the other way together. Do fewer than MANY sums make up most of the mean
 * square, so that one of them is much of it? As many of one size have this ratio of powers. */
static void without_flipped_sums(Sums *s, Value *value, uint64_t num)
{
    Flips flips = {0};
    double power = 0, squares = 0;
    qsort(value, num, sizeof *value, by_value);
    for (uint64_t i = 0; i < num;) {
        double error = 0, own = 0, want = value[i].want;
        for (; i < num && value[i].want == want; i++) {
            own += want * want;
            error += value[i].flip;
        }
        power += own;
        squares += own * own;
        flips_add(&flips, error);
    }
    if (power * power < MANY * squares)
        without_flips(s, &flips);
}

/* The normalised error that a softmax of f32 makes of errors of its input, whose share of that
 * input's mean square is `logits`: with e of each of them, independent ones move p by p times (e
 * less what p weighs all e to). How far the inputs spread is known from their logarithms, but for
 * what is too small for f32. Where few values move, the mean over them may stray. Rows of NaN,
 * which numbers too large for f32 make, say nothing of the others. */
static double softmax_error(double logits, FormatId fmt, uint64_t num, uint64_t cols,
                            const uint8_t *want)
{
    double squares = 0, moved = 0, fourths = 0, power = 0, count = 0;
    for (uint64_t row = 0; row < num; row += cols) {
        double mean = 0, own = 0;
        if (isnan(number(fmt, want, row)))
            continue;
        count += (double)cols;
        for (uint64_t i = row; i < row + cols; i++) {
            double p = number(fmt, want, i);
            mean += log(fmax(p, FLT_MIN)) / (double)cols;
            own += p * p;
        }
        for (uint64_t i = row; i < row + cols; i++) {
            double p = number(fmt, want, i), spread = log(fmax(p, FLT_MIN)) - mean;
            double own_moved = p * p * (1 - 2 * p + own);
            squares += spread * spread;
            moved += own_moved;
            fourths += own_moved * own_moved;
        }
        power += own;
    }
    double stray = moved > 0 ? 1 + STRAY * sqrt(fourths) / moved : 1;
    return power > 0 ? logits * squares / count * moved / power * stray : 0;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* Without the largest errors of the last row of odd inputs, one and GATES_SHARE of it. A gate that
 * has limits is at one for such large sums, unless they cancel: then it is what one device has left
 * of them, times the other factor. */
static void without_gates(Sums *s, FormatId fmt, uint64_t from, uint64_t to, const uint8_t *want,
                          const uint8_t *got)
{
    double *error = malloc((to - from) * sizeof *error);
    uint64_t num = 0, most = 1 + (uint64_t)(GATES_SHARE * (double)(to - from));
    for (uint64_t i = from; error && i < to; i++) {
        double off = number(fmt, want, i) - number(fmt, got, i);
        if (isfinite(off))
            error[num++] = off * off;
    }
    if (num)
        qsort(error, num, sizeof *error, by_size);
    for (uint64_t i = 0; i < num && i < most; i++)
        s->error = fmax(s->error - error[i], 0);
    free(error);
}

static bool near_plain(Near *n, const char *what, FormatId fmt, uint64_t num, uint64_t cols,
                       const uint8_t *want, const uint8_t *got, double bound)
{
    Sums s = {0};
    uint64_t num_values = 0;
    Value *value = format_info[fmt].bits == 16 ? malloc((num + 1) * sizeof *value) : NULL;
    double largest = fmt == FMT_F16 ? format_info[fmt].qmax : INFINITY;
    for (uint64_t row = 0; row < num; row += cols) {
        bool overflows = false;
        for (uint64_t i = row; i < row + cols; i++)
            overflows |= isinf(number(fmt, want, i)) != 0;
        if (overflows && n->is_odd) /* what stays finite there is what cancellation left */
            continue;
        bool limits = n->is_odd && saturates(fmt, want, row, row + cols), has_own = false;
        for (uint64_t i = row; i < row + cols; i++) {
            double x = number(fmt, want, i), y = number(fmt, got, i), before = s.error;
            if (limits && is_between(x))
                continue;
            if (limits && is_between(y) &&
                !has_own) { /* one of a row that the GPU alone has left */
                has_own = true;
                continue;
            }
            if (!near_edge(x, y, largest) && !near_edge(y, x, largest))
                sums_add(&s, x, y, i);
            if (value && isfinite(x) && isfinite(y))
                value[num_values++] = (Value){x, is_next(want, got, i) ? s.error - before : 0};
        }
    }
    if (value && s.error > bound * s.power)
        without_flipped_sums(&s, value, num_values);
    free(value);
    if (n->is_odd && n->is_gated && s.error > bound * s.power)
        without_gates(&s, fmt, num - cols, num, want, got);
    if (n->logits > 0 && fmt == FMT_F32)
        bound = fmax(bound, softmax_error(n->logits, fmt, num, cols, want));
    return sums_near(n, what, &s, bound);
}

/* Scales, zero points, outer scale: where they lie, and what of. */
typedef struct Params {
    uint64_t blocks;
    const float *scale;
    const int32_t *zero;
    float outer, least; /* the least of its format */
} Params;

static Params params_of(const PlanTensor *t, const PlanLayout *l, const uint8_t *at)
{
    Params p = {.blocks = (uint64_t)scheme_row_blocks(&t->scheme, l->rows) *
                          (uint64_t)scheme_col_blocks(&t->scheme, l->cols),
                .outer = 1,
                .least = num_scale_round((int)t->scheme.scale_fmt, 0)};
    p.scale = (const float *)(const void *)(at + l->scale_at);
    if (t->scheme.zero != ZERO_NONE)
        p.zero = (const int32_t *)(const void *)(at + l->zero_at);
    if (t->scheme.outer)
        memcpy(&p.outer, at + l->outer_at, 4);
    return p;
}

static int64_t block_of(const PlanTensor *t, const PlanLayout *l, int64_t row, int64_t col)
{
    int64_t r = t->scheme.block[0] ? row / t->scheme.block[0] : 0;
    int64_t c = t->scheme.block[1] ? col / t->scheme.block[1] : 0;
    return r * scheme_col_blocks(&t->scheme, l->cols) + c;
}

/* Where the i-th code lies: rows begin at multiples of 16 bytes. */
static int64_t code_at(const PlanLayout *l, int64_t i)
{
    return i / l->cols * l->pitch + i % l->cols;
}

/* A code as a number, less its zero point; of static ones that is a constant, which is not here. */
static double number_of(const PlanTensor *t, const Params *p, int64_t block, uint8_t code)
{
    double zero = p->zero && !t->is_static ? p->zero[block] : 0;
    return format_decode(t->fmt, code) - zero;
}

/* A scale is another one by more than the share `most` of itself: codes of its block may differ. */
static bool is_moved(double x, double y, double most)
{
    return x != y && !(isnan(x) && isnan(y)) && !(fabs(x - y) <= most * fabs(x));
}

/* The error of the scale x as a share of what `most` is a bound of; usual: the root mean square of
 * its tensor's scales. Errors of float sums are bounded over a tensor (docs/numerics.md): what is
 * small beside the rest, as the tail of an activation is, may be off by more of itself, but
 * SCALE_TIMES at most, unless it is what one rounding left of sums that cancel. */
static double scale_share(double x, double y, double usual)
{
    double error = fabs(x - y), of_all = error / (fabs(x) + usual);
    if (!is_moved(x, y, 0))
        return 0;
    return error <= SCALE_FLOOR * usual ? of_all : fmax(of_all, error / fabs(x) / SCALE_TIMES);
}

/* Does a block hold a number other than 0, of each side? */
enum { OF_CPU = 1, OF_GPU = 2 };

/* The scale of a block of zeros is 1 and stands for 0; where a tail was too small for codes under
 * the least scale of its format, so does that one. */
static double scale_of(const Params *p, uint64_t block, bool holds)
{
    float scale = p->scale[block];
    return holds || (scale != 1 && scale != p->least) ? (double)scale : 0;
}

/* Scales that differ by more than `most`; ret_worst: by how much, and which. */
typedef struct WorstScale {
    double share;
    uint64_t block;
} WorstScale;

static uint64_t scales_apart(const Params *a, const Params *b, const uint8_t *holds, double most,
                             WorstScale *ret_worst)
{
    double power = 0;
    uint64_t apart = 0;
    for (uint64_t i = 0; i < a->blocks; i++) {
        double x = scale_of(a, i, holds[i] & OF_CPU);
        power += isfinite(x) ? x * x : 0;
    }
    double usual = sqrt(power / (double)(a->blocks ? a->blocks : 1));
    *ret_worst = (WorstScale){0, 0};
    for (uint64_t i = 0; i < a->blocks; i++) {
        double share = scale_share(scale_of(a, i, holds[i] & OF_CPU),
                                   scale_of(b, i, holds[i] & OF_GPU), usual);
        apart += !(share <= most);        /* one that is not finite, too */
        if (!(share <= ret_worst->share)) /* no number, too */
            *ret_worst = (WorstScale){share, i};
    }
    return apart;
}

/* Zeros of both signs are one number, and all that is none another. */
static bool same_number(double x, double y)
{
    return x == y || (isnan(x) && isnan(y));
}

/* Is no code's number between theirs? */
static bool are_neighbours(FormatId fmt, uint8_t a, uint8_t b)
{
    double x = format_decode(fmt, a), y = format_decode(fmt, b);
    for (int i = 0; i < 1 << format_info[fmt].bits; i++) {
        double between = format_decode(fmt, (uint8_t)i);
        if ((between > x && between < y) || (between > y && between < x))
            return false;
    }
    return x < y || y < x;
}

/* A code that differs: what it stands for. */
typedef struct Differing {
    int64_t block;
    double x, y;
} Differing;

/* Do all codes of the row stand for one sum? */
static bool is_one_sum(const PlanLayout *l, const uint8_t *want, int64_t row)
{
    const uint8_t *code = want + code_at(l, row * l->cols);
    return memcmp(code, code + 1, (size_t)l->cols - 1) == 0;
}

/* Few rows of one sum each, which may all be what cancellation left: weights of one value, say. */
static bool are_few_sums(const PlanLayout *l, const Params *p, const uint8_t *want)
{
    uint64_t blocks = p->blocks / (uint64_t)(l->rows ? l->rows : 1); /* 0: of several rows */
    bool few = l->rows < FEW;
    for (int64_t row = 0; row < l->rows && few; row++) {
        few = is_one_sum(l, want, row);
        for (uint64_t i = 1; i < blocks && few; i++)
            few = p->scale[(uint64_t)row * blocks + i] == p->scale[(uint64_t)row * blocks];
    }
    return few;
}

/* Codes of float sums that were quantised at once: a code flips where the sum is next to a tie, and
 * with a scale those of its block may. In the last row of odd inputs infinite sums may be no
 * numbers where codes are multiplied in pieces, which static codes do not tell. */
static bool near_codes(Near *n, const PlanTensor *t, const PlanLayout *l, const uint8_t *want,
                       const uint8_t *got)
{
    Params a = params_of(t, l, want), b = t->is_static ? a : params_of(t, l, got);
    int64_t rows = l->rows - (n->is_odd && t->is_static);
    uint64_t num = (uint64_t)(rows * l->cols), differ = 0, apart = 0;
    double of_scales = n->bound > SCALES_BOUND * SCALES_BOUND ? sqrt(n->bound) : SCALES_BOUND;
    of_scales *= !t->is_static && are_few_sums(l, &a, want) ? sqrt(FEW_BOUND) : 1;
    WorstScale worst = {0, 0};
    int64_t first = -1;
    Sums s = {0};
    Flips flips = {{0}};
    Differing last = {-1, 0, 0};
    uint8_t *holds = calloc(a.blocks + 1, 1);
    for (int64_t i = 0; i < (int64_t)num; i++) {
        int64_t row = i / l->cols, col = i % l->cols, block = block_of(t, l, row, col);
        uint8_t of_cpu = want[code_at(l, i)], of_gpu = got[code_at(l, i)];
        double x = number_of(t, &a, block, of_cpu), y = number_of(t, &b, block, of_gpu);
        uint64_t before = differ;
        double error = s.error;
        holds[block] |= (uint8_t)((x != 0 ? OF_CPU : 0) | (y != 0 ? OF_GPU : 0));
        if (t->is_static) /* their scales are constants, not here: codes are compared as numbers */
            sums_add(&s, x, y, (uint64_t)i);
        else
            sums_add(&s, x * (double)num_scale_effective(a.scale[block], a.outer),
                     y * (double)num_scale_effective(b.scale[block], b.outer), (uint64_t)i);
        bool moved =
            !t->is_static && is_moved((double)a.scale[block], (double)b.scale[block], of_scales);
        Differing d = {block, x, y};
        bool differs = !same_number(x, y) && !moved;
        /* one sum in all columns, which lies next to a tie, or whose zero point does */
        bool again = differs && !t->is_static && d.block == last.block && d.x == last.x &&
                     d.y == last.y &&
                     ((a.zero && a.zero[block] != b.zero[block]) || is_one_sum(l, want, row));
        differ += differs && !again;
        last = differ > before ? d : last;
        first = differ > before && first < 0 ? i : first;
        if (differ > before && are_neighbours(t->fmt, of_cpu, of_gpu))
            flips_add(&flips, s.error - error);
    }
    without_flips(&s, &flips);
    if (!t->is_static)
        apart = scales_apart(&a, &b, holds, of_scales, &worst);
    free(holds);
    if (!sums_near(n, "codes", &s, num < 256 ? 10 * CODES_BOUND : CODES_BOUND))
        return false;
    if ((double)differ <= CODES_SHARE * (double)num + FLIPS &&
        (double)apart <= CODES_SHARE * (double)a.blocks + FLIPS)
        return true;
    snprintf(n->why, sizeof n->why,
             "%" PRIu64 " of %" PRIu64 " codes under the same scales and %" PRIu64 " of %" PRIu64
             " scales differ, scale %" PRIu64 " by %.3g (%.9g and %.9g), at most %.3g",
             differ, num, apart, a.blocks, worst.block, worst.share, (double)a.scale[worst.block],
             (double)b.scale[worst.block], of_scales);
    if (first >= 0 && !t->is_static) {
        int64_t block = block_of(t, l, first / l->cols, first % l->cols);
        size_t len = strlen(n->why);
        snprintf(n->why + len, sizeof n->why - len,
                 "; row %lld, column %lld is %d under %.9g on the CPU, %d under %.9g on the GPU",
                 (long long)(first / l->cols), (long long)(first % l->cols),
                 want[code_at(l, first)], (double)a.scale[block], got[code_at(l, first)],
                 (double)b.scale[block]);
    }
    return false;
}

static bool same_codes(Near *n, const PlanTensor *t, const PlanLayout *l, const uint8_t *want,
                       const uint8_t *got)
{
    for (int64_t i = 0; i < l->rows * l->cols; i++) {
        uint8_t of_cpu = want[code_at(l, i)], of_gpu = got[code_at(l, i)];
        if (of_cpu != of_gpu) {
            snprintf(n->why, sizeof n->why,
                     "codes: row %" PRId64 ", column %" PRId64 " is %d on the CPU, %d on the GPU",
                     i / l->cols, i % l->cols, of_cpu, of_gpu);
            return false;
        }
    }
    if (t->is_static)
        return true;
    Params p = params_of(t, l, want);
    return same_plain(n, "scales", FMT_F32, p.blocks, want + l->scale_at, got + l->scale_at) &&
           (!p.zero ||
            same_plain(n, "zero points", FMT_I32, p.blocks, want + l->zero_at, got + l->zero_at)) &&
           (!t->scheme.outer ||
            same_plain(n, "outer scale", FMT_F32, 1, want + l->outer_at, got + l->outer_at));
}

bool near_tensor(Near *n, const PlanTensor *t, const PlanLayout *l, const uint8_t *want,
                 const uint8_t *got)
{
    uint64_t num = (uint64_t)(l->rows * l->cols);
    if (t->quantised)
        return n->is_exact ? same_codes(n, t, l, want, got) : near_codes(n, t, l, want, got);
    if (n->is_exact)
        return same_plain(n, "values", t->fmt, num, want, got);
    return near_plain(n, t->fmt == FMT_I32 ? "sums of codes" : "values", t->fmt, num,
                      (uint64_t)l->cols, want, got, t->fmt == FMT_I32 ? CODES_BOUND : n->bound);
}
