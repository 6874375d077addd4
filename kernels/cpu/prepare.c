/* Activations of a product: widened or decoded once, so that the main loop meets u8 or f32 only,
 * and padded as the weight is. */
#include "kernels/cpu/internal.h"
#include <string.h>

#define RANGE_K 512

#define NARROW_COLS 128  /* of a weight: not worth a copy of the activation */
#define SAME_SETS   4096 /* bytes: rows so far apart push each other out of the first cache */

/* f32 rows that a product of few rows, or of few columns, can read where they lie. */
static bool is_direct(const CpuGemm *g, const PackLayout *l)
{
    const CpuTensor *a = &g->a;
    bool is_plain = !l->is_int && !a->quantised && a->fmt == FMT_F32 && l->k_padded == l->k;
    bool is_narrow = g->spec.n <= NARROW_COLS && a->pitch % SAME_SETS;
    return is_plain && (g->m <= DIRECT_ROWS || is_narrow) && a->row_div <= 1 &&
           a->row_mod >= g->m && a->pitch % 4 == 0;
}

/* Parts of bf16 that the activations are cut into for matrix units; 0: those are not used. */
static int matrix_parts_of(const CpuKernels *kern, const CpuGemm *g, const PackLayout *l)
{
    int parts = matrix_parts(g->a.fmt), weight_parts = matrix_parts(l->fmt);
    if (!kern->matrix || l->is_int || l->table || !weight_parts)
        return 0;
    int most = kern->matrix->most_parts;
    return parts <= most && weight_parts <= most ? parts : 0;
}

/* Of how many rows a product is few_rows', if it does them: with early zero points it does not. */
static int64_t few_rows_of(const CpuKernels *kern, const PackLayout *l)
{
    const CpuMatrix *m = kern->matrix;
    int64_t nibbles = m->few_often && cpu_is_wide() ? m->few_often : m->few_nibbles;
    int64_t rows = l->unit == 8 ? nibbles : l->unit_bytes == 1 ? m->few_bytes : m->few_halves;
    bool early = (l->has_zero && !l->late_zero) || l->fmt == FMT_U8;
    return early && rows > MATRIX_FEW ? MATRIX_FEW : rows;
}

#define FIXED_K 256 /* longest block that may have few enough of a unit */

/* Does one row meet e2m1 codes as whole numbers? Those of f32 hardly ever are. */
static bool fixes(const CpuKernels *kern, const CpuGemm *g, const PackLayout *l)
{
    return kern->fix && g->m == 1 && g->a.fmt != FMT_F32 && l->fmt == FMT_E2M1 && l->mainloop &&
           l->block <= FIXED_K;
}

/* Ranges are whole blocks where scales apply inside. Few rows have one range. */
Prepared prepare_shape(const CpuKernels *kern, const CpuGemm *g, const PackLayout *l, int64_t rows)
{
    Prepared p = {.range_k = RANGE_K, .parts = matrix_parts_of(kern, g, l)};
    p.is_direct = !p.parts && is_direct(g, l);
    p.has_fixed = !p.parts && fixes(kern, g, l);
    p.crosses = p.parts && l->unit == 8 && kern->matrix->crosses;
    if (l->mainloop)
        p.range_k = ceil_blocks(RANGE_K, l->block) * l->block_units * l->unit;
    else if (kern->column_bytes)
        p.range_k = kern->column_bytes / (l->is_int ? 1 : 4);
    p.is_few = p.parts == 1 && g->m <= few_rows_of(kern, l);
    bool few = p.is_few || p.is_direct || g->m <= DIRECT_ROWS || nibbles_are_direct(kern, g, l);
    if (few || p.range_k > l->k_padded)
        p.range_k = l->k_padded;
    int64_t line = 64 / (l->is_int ? 1 : 4);
    /* an odd number of cache lines: rows that are a power of two apart share a few of their sets */
    p.lda = p.is_direct ? g->a.pitch / 4 : (ceil_blocks(p.range_k, line) | 1) * line;
    if (p.parts) /* .. and steps may go beyond the end of a row */
        p.lda = (p.range_k / MATRIX_K + 2) / 2 * 2 * MATRIX_K + MATRIX_K;
    p.range_step = p.lda * rows;
    p.part_step = p.range_step * ceil_blocks(l->k_padded, p.range_k);
    return p;
}

static bool scales_inside(const CpuGemm *g)
{
    return g->spec.act_block_cols > 0;
}

static uint64_t exponent_bytes(const Prepared *p, int64_t rows)
{
    return p->parts ? align_64((uint64_t)rows * sizeof *p->exponent) : 0;
}

/* Very few rows are multiplied outside of matrix units, by their values. */
static uint64_t wide_bytes(const Prepared *p, const CpuGemm *g, int64_t rows)
{
    bool very_few = p->is_few && g->m <= DIRECT_ROWS;
    return very_few ? align_64((uint64_t)rows * (uint64_t)p->lda * sizeof *p->wide) : 0;
}

static uint64_t value_bytes(const Prepared *p, const PackLayout *l)
{
    if (p->is_direct)
        return 0;
    uint64_t num = (uint64_t)p->range_step * (uint64_t)ceil_blocks(l->k_padded, p->range_k);
    return align_64(num * (l->is_int ? 1 : p->parts ? 2 * (uint64_t)p->parts : 4));
}

static uint64_t digits_bytes(const Prepared *p, const PackLayout *l)
{
    return p->has_fixed ? align_64((uint64_t)(l->k_padded / 8) * FIXED_BYTES) : 0;
}

static uint64_t fixed_bytes(const Prepared *p, const PackLayout *l)
{
    return p->has_fixed ? align_64((uint64_t)l->blocks * sizeof *p->fixed) : 0;
}

uint64_t prepare_bytes(const Prepared *p, const CpuGemm *g, const PackLayout *l, int64_t rows)
{
    uint64_t grid = align_64(4 * (uint64_t)rows * (uint64_t)l->blocks);
    return value_bytes(p, l) + exponent_bytes(p, rows) + wide_bytes(p, g, rows) +
           digits_bytes(p, l) + fixed_bytes(p, l) + (scales_inside(g) ? grid : 0) +
           (l->is_int ? 2 * grid : 0) + (l->late_zero ? grid : 0);
}

void prepare_place(Prepared *p, const CpuGemm *g, const PackLayout *l, int64_t rows, void *memory)
{
    char *at = (char *)memory + value_bytes(p, l);
    uint64_t grid = align_64(4 * (uint64_t)rows * (uint64_t)l->blocks);
    p->codes = memory;
    p->values = memory;
    p->halves = memory;
    if (p->parts) {
        p->exponent = (ExponentRange *)(void *)at;
        at += exponent_bytes(p, rows);
        p->wide = wide_bytes(p, g, rows) ? (float *)(void *)at : NULL;
        at += wide_bytes(p, g, rows);
    }
    if (p->has_fixed) {
        p->digits = (int8_t *)at;
        at += digits_bytes(p, l);
        p->fixed = (FixedBlock *)(void *)at;
        at += fixed_bytes(p, l);
    }
    if (scales_inside(g)) {
        p->scale = (float *)(void *)at;
        at += grid;
    }
    if (l->is_int) {
        p->ra = (int32_t *)(void *)at;
        p->rb = (int32_t *)(void *)(at + grid);
    }
    if (l->late_zero)
        p->sum = (float *)(void *)at;
}

/* A run of K that lies together both in the tensor and among the prepared. */
typedef struct Piece {
    int64_t from, num;   /* in the tensor */
    int64_t to, padding; /* prepared */
} Piece;

/* The piece of block b that begins at `done` of its elements; num 0 ends. */
static Piece block_piece(const Prepared *p, const PackLayout *l, int64_t b, int64_t done)
{
    int64_t num = b + 1 < l->blocks ? l->block : l->k - b * l->block;
    int64_t padded = (b + 1 < l->blocks ? l->block_units : l->last_units) * l->unit;
    Piece piece = {.from = b * l->block + done, .to = b * l->block_units * l->unit + done};
    int64_t room = p->range_k - piece.to % p->range_k;
    piece.num = num - done < room ? num - done : room;
    if (done + piece.num == num)
        piece.padding = padded - num < room - piece.num ? padded - num : room - piece.num;
    return piece;
}

static void prepare_codes(const CpuKernels *kern, const CpuGemm *g, const PackLayout *l,
                          const Prepared *p, int64_t mapped, int64_t slot)
{
    const CpuTensor *a = &g->a;
    const uint8_t *src = (const uint8_t *)a->data + mapped * a->pitch;
    for (int64_t b = 0; b < l->blocks; b++) {
        uint32_t sum = 0;
        int64_t done = 0;
        for (Piece c = block_piece(p, l, b, 0); c.num; c = block_piece(p, l, b, done)) {
            uint8_t *dst = p->codes + prepared_at(p, slot, c.to);
            sum += (uint32_t)kern->widen_codes(a->fmt, src + c.from, dst, c.num);
            memset(dst + c.num, 0, (size_t)c.padding);
            done += c.num;
        }
        int32_t zero = l->factored ? SIGNED_OFFSET : code_offset(a->fmt);
        if (g->spec.mainloop)
            zero += tensor_zero(a, tensor_grid_at(a, mapped, b * l->block));
        p->ra[slot * l->blocks + b] = zero;
        p->rb[slot * l->blocks + b] = (int32_t)(sum - (uint32_t)done * (uint32_t)zero);
    }
}

/* Codes as values without their scales, zero points subtracted; the scales are applied elsewhere.
 */
static void prepare_decoded(const CpuKernels *kern, const CpuTensor *a, int64_t mapped,
                            int64_t begin, int64_t num, float *dst)
{
    const uint8_t *src = (const uint8_t *)a->data + mapped * a->pitch;
    for (int64_t c = begin; c < begin + num;) {
        int64_t next = tensor_block_end(a, c, begin + num);
        kern->dequantise(a->fmt, src + c, 1.0f, tensor_zero(a, tensor_grid_at(a, mapped, c)),
                         dst + (c - begin), next - c);
        c = next;
    }
}

/* Sum in f64, whose rounding hardly matters, in eight parts that do not wait for each other. */
static double sum_values(const float *x, int64_t num)
{
    double part[8] = {0};
    int64_t i = 0;
    for (; i + 8 <= num; i += 8)
        for (int j = 0; j < 8; j++)
            part[j] += (double)x[i + j];
    for (; i < num; i++)
        part[0] += (double)x[i];
    return ((part[0] + part[1]) + (part[2] + part[3])) +
           ((part[4] + part[5]) + (part[6] + part[7]));
}

/* As prepare_piece, for matrix units. */
static double prepare_halves(const CpuKernels *kern, const CpuGemm *g, const PackLayout *l,
                             const Prepared *p, int64_t mapped, int64_t slot, const Piece *c)
{
    float x[256];
    double sum = 0;
    uint16_t *dst = p->halves + prepared_at(p, slot, c->to);
    for (int64_t i = 0, num; i < c->num; i += num) {
        num = c->num - i < 256 ? c->num - i : 256;
        if (g->a.quantised)
            prepare_decoded(kern, &g->a, mapped, c->from + i, num, x);
        else
            tensor_read(kern, &g->a, mapped, c->from + i, x, num);
        kern->matrix->split(x, p->parts, dst + i, p->part_step, num, &p->exponent[slot]);
        sum += l->late_zero ? sum_values(x, num) : 0;
    }
    return sum;
}

/* Returns the piece's sum where zero points need it. */
static double prepare_piece(const CpuKernels *kern, const CpuGemm *g, const PackLayout *l,
                            const Prepared *p, int64_t mapped, int64_t slot, const Piece *c)
{
    const float *x = (const float *)((const char *)g->a.data + mapped * g->a.pitch) + c->from;
    if (!p->is_direct) {
        float *dst = (float *)(uintptr_t)p->values + prepared_at(p, slot, c->to);
        if (g->a.quantised)
            prepare_decoded(kern, &g->a, mapped, c->from, c->num, dst);
        else
            tensor_read(kern, &g->a, mapped, c->from, dst, c->num);
        memset(dst + c->num, 0, (size_t)c->padding * 4);
        x = dst;
    }
    return l->late_zero ? sum_values(x, c->num) : 0;
}

/* What lies between and after the pieces meets weights of 0 only, but must be numbers. */
static void clear_halves(const Prepared *p, const PackLayout *l, int64_t slot)
{
    for (int part = 0; part < p->parts; part++)
        for (int64_t k = 0; k < l->k_padded; k += p->range_k)
            memset(p->halves + part * p->part_step + prepared_at(p, slot, k), 0,
                   (size_t)p->lda * sizeof *p->halves);
}

static void cross_halves(const Prepared *p, const PackLayout *l, int64_t slot)
{
    for (int64_t k = 0; k < l->k_padded; k += 8) {
        uint16_t eight[8], *at = p->halves + prepared_at(p, slot, k);
        memcpy(eight, at, sizeof eight);
        for (int i = 0; i < 8; i++)
            at[crossed(i)] = eight[i];
    }
}

static void prepare_values(const CpuKernels *kern, const CpuGemm *g, const PackLayout *l,
                           const Prepared *p, int64_t mapped, int64_t slot)
{
    clear_halves(p, l, slot);
    if (p->parts)
        p->exponent[slot] = NO_EXPONENTS;
    for (int64_t b = 0; b < l->blocks; b++) {
        double sum = 0;
        int64_t done = 0;
        for (Piece c = block_piece(p, l, b, 0); c.num; c = block_piece(p, l, b, done)) {
            sum += (p->parts ? prepare_halves : prepare_piece)(kern, g, l, p, mapped, slot, &c);
            done += c.num;
        }
        if (p->sum)
            p->sum[slot * l->blocks + b] = (float)sum;
    }
    if (p->crosses)
        cross_halves(p, l, slot);
    for (int64_t k = slot * p->lda; p->wide && k < (slot + 1) * p->lda; k++)
        p->wide[k] = num_from_bf16(p->halves[k]);
}

static void prepare_fixed(const CpuKernels *kern, const PackLayout *l, const Prepared *p)
{
    for (int64_t b = 0; b < l->blocks; b++) {
        int64_t units = b + 1 < l->blocks ? l->block_units : l->last_units, at = b * l->block_units;
        p->fixed[b] = kern->fix(p->values + prepared_at(p, 0, at * l->unit), units,
                                p->digits + at * FIXED_BYTES);
    }
}

void prepare_row(const CpuKernels *kern, const CpuGemm *g, const PackLayout *l, const Prepared *p,
                 int64_t row, int64_t slot)
{
    int64_t mapped = tensor_row(&g->a, row);
    if (l->is_int)
        prepare_codes(kern, g, l, p, mapped, slot);
    else if (!p->is_direct || p->sum)
        prepare_values(kern, g, l, p, mapped, slot);
    if (p->has_fixed)
        prepare_fixed(kern, l, p);
    for (int64_t b = 0; p->scale && b < l->blocks; b++)
        p->scale[slot * l->blocks + b] =
            tensor_scale(&g->a, tensor_grid_at(&g->a, mapped, b * l->block));
}
