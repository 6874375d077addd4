/* Float products in matrix units. Those count what is below the smallest normal f32 as 0, and an
 * infinite value makes NaN of the parts and the filling that it meets. So every row of activations
 * and every panel of weights has the range of its exponents; where these leave room for such
 * values, the row meets the panel once more outside of the units. Which rows do depends on the row
 * alone. */
#include "kernels/cpu/gemm.h"
#include <string.h>

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
                       .pairs = (num + 1) / 2,
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
                      .exponent = j->exponent,
                      .dst = (uint16_t *)j->decoded + k * j->cols};
    p->kern->matrix->decode(&d);
}

void block_matrix(const GemmPlan *p, const PanelJob *j, const PackBlock *b, UnitRange range,
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

bool plan_folds(const GemmPlan *p)
{
    const PackLayout *l = &p->l;
    bool short_codes = l->fmt == FMT_E2M1 || l->fmt == FMT_I4 || l->fmt == FMT_U4 ||
                       l->fmt == FMT_E4M3 || l->fmt == FMT_E5M2;
    return p->a.parts && p->kern->matrix->folds && l->mainloop && l->has_scale &&
           l->scale_fmt == FMT_E4M3 && !l->has_zero && !p->a.scale && short_codes &&
           FOLD_K % l->block == 0 && l->block % l->unit == 0 && l->block % 2 == 0;
}

void panel_folded(const GemmPlan *p, const PanelJob *j, int64_t range)
{
    const PackLayout *l = &p->l;
    int64_t end = (range + 1) * p->a.range_k;
    end = end < l->k_padded ? end : l->k_padded;
    for (int64_t k = range * p->a.range_k, num; k < end; k += num) {
        num = end - k < FOLD_K ? end - k : FOLD_K;
        for (int64_t at = 0; at < num; at += l->block) {
            PackBlock b = layout_block(l, j->panel, j->cols, (k + at) / l->block);
            p->kern->decode_words(l, &b, j->cols, j->words);
            matrix_decode(p, j, b.codes, b.units, NULL, j->words->scale, at);
        }
        matrix_product(p, j, num, k, j->out, ACC_COLS, k > 0, NULL);
    }
}

bool panel_few(const GemmPlan *p, const PanelJob *j)
{
    int64_t at = j->slot * p->l.blocks;
    MatrixFew f = {.layout = &p->l, .panel = j->panel, .cols = j->cols, .rows = j->rows};
    if (!p->a.is_few)
        return false;
    f.folds = p->folds;
    f.a = p->a.wide ? p->a.wide + prepared_at(&p->a, j->slot, 0) : NULL;
    f.halves = p->a.halves + prepared_at(&p->a, j->slot, 0);
    f.lda = p->a.lda;
    f.sum = p->a.sum ? p->a.sum + at : NULL;
    f.scale = p->a.scale ? p->a.scale + at : NULL;
    f.out = j->out;
    f.ld = ACC_COLS;
    f.exponent = j->exponent;
    if (!p->kern->matrix->few_rows(&f))
        return false;
    return true;
}

/* Exponents of the codes of a quantised weight, which has neither infinite values nor denormals.
 * Few rows may take those of e4m3 2^8 times smaller. */
static ExponentRange code_exponents(const GemmPlan *p)
{
    FormatId fmt = p->l.fmt;
    int low = fmt == FMT_E5M2 ? 16 : fmt == FMT_E4M3 ? 17 : 1, scale = p->folds ? 9 : 0;
    return (ExponentRange){EXPONENT_ONE - low - scale, EXPONENT_ONE + 15 + scale};
}

/* Bits that a value has below its leading one, at most: those of f16. */
#define VALUE_BITS 10

/* Every product and every sum is a multiple of the product of the two smallest values' last bits
 * and less than K times the product of the two largest: 0 or a normal number. */
static bool stays_normal(ExponentRange a, ExponentRange w, int64_t k)
{
    int bits = 3; /* of the mantissas, and of what cutting into parts adds */
    for (; k > 0; k >>= 1)
        bits++;
    return a.lo > 0 && w.lo > 0 && a.hi < EXPONENT_SPECIAL && w.hi < EXPONENT_SPECIAL &&
           a.lo + w.lo - 2 * VALUE_BITS > EXPONENT_ONE &&
           a.hi + w.hi + bits < EXPONENT_ONE + EXPONENT_SPECIAL;
}

/* `num` rows from the tile's row `row`, whose activations parts add up to exactly. */
static void rows_again(const GemmPlan *p, const PanelJob *j, int row, int num)
{
    GemmPlan plain = *p;
    PanelJob job = *j;
    int64_t slot = j->slot + row, k_padded = p->l.k_padded;
    for (int r = 0; r < num; r++)
        for (int64_t k = 0; k < k_padded; k++) {
            int64_t stored = p->a.crosses ? crossed(k) : k;
            const uint16_t *at = p->a.halves + prepared_at(&p->a, slot + r, stored);
            float value = num_from_bf16(at[0]);
            for (int part = 1; part < p->a.parts; part++)
                value += num_from_bf16(at[part * p->a.part_step]);
            j->values[r * k_padded + k] = value;
        }
    plain.a.is_direct = false;
    plain.a.parts = 0;
    plain.a.values = j->values;
    plain.a.range_k = plain.a.lda = k_padded;
    plain.a.sum = p->a.sum ? p->a.sum + slot * p->l.blocks : NULL;
    plain.a.scale = p->a.scale ? p->a.scale + slot * p->l.blocks : NULL;
    job.slot = 0;
    job.rows = num;
    job.out = j->out + row * ACC_COLS;
    panel_direct(&plain, &job);
}

void panel_again(const GemmPlan *p, const PanelJob *j)
{
    bool plain = p->l.fmt == FMT_BF16 || p->l.fmt == FMT_F16;
    ExponentRange w = plain ? *j->exponent : code_exponents(p);
    const ExponentRange *a = p->a.exponent + j->slot;
    for (int r = 0, num; r < j->rows; r += num) {
        num = 1;
        if (stays_normal(a[r], w, p->l.k))
            continue;
        while (num < DIRECT_ROWS && r + num < j->rows && !stays_normal(a[r + num], w, p->l.k))
            num++;
        rows_again(p, j, r, num);
    }
}
