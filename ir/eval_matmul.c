/* matmul in all its forms by one loop: operands become f64 (plain values, or the values of codes),
 * dot products over a range of K are f64 in ascending order, and what follows depends on where the
 * scales apply. Codes of integers give exact sums: |sum| < 2^31. */
#include "base/team.h"
#include "ir/eval.h"
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* A panel holds TILE rows of an operand interleaved: element k of row i at [k * TILE + i]. Panels
 * of `a` for CHUNK_ROWS rows are kept while those of `b` pass by. */
enum { TILE = 4, CHUNK_ROWS = 256 };
typedef double Vec __attribute__((vector_size(TILE * sizeof(double)), aligned(8)));

typedef struct Side { /* one operand */
    const Tensor *t;
    int64_t begin, rows; /* of the tensor's that take part */
    bool centre;         /* subtract zero points */
    bool scaled;         /* by the main loop */
    double value[256];   /* of each code that is a number */
} Side;

typedef struct Product {
    const Op *op;
    Side a, b;
    int64_t k, block; /* columns that share a pair of scales; k when the scales wait */
    bool mainloop;
    Tensor *out;
} Product;

static bool is_integer(const Tensor *t)
{
    return t->q.codes && scheme_is_integer(&t->q.scheme);
}

static Side side_make(const Tensor *t, bool centre)
{
    Side side = {.t = t, .rows = tensor_rows(t), .centre = centre && t->q.zero};
    int bits = t->q.codes ? format_held_bits(t->q.scheme.fmt) : 0;
    for (uint32_t code = 0; bits && code < 1u << bits; code++)
        side.value[code] = (double)format_decode(t->q.scheme.fmt, code);
    return side;
}

static size_t scale_entry(const QTensor *q, int64_t row, int64_t col)
{
    int64_t r = q->scheme.block[0] ? row / q->scheme.block[0] : 0;
    int64_t c = q->scheme.block[1] ? col / q->scheme.block[1] : 0;
    return (size_t)(r * q->col_blocks + c);
}

static void load_codes(const Side *side, int64_t row, double *dst, int64_t k)
{
    const QTensor *q = &side->t->q;
    const uint8_t *codes = q->codes + (uint64_t)row * q->row_bytes;
    bool nibbles = format_held_bits(q->scheme.fmt) == 4;
    for (int64_t i = 0; i < k; i++) {
        unsigned code = nibbles ? codes[i / 2] >> (i % 2 * 4) & 15 : codes[i];
        dst[i * TILE] = q->table ? (double)qtensor_code_value(q, row, i) : side->value[code];
    }
    int64_t group = q->scheme.block[1] ? q->scheme.block[1] : k;
    for (int64_t at = 0; side->centre && at < k; at += group) {
        double zero = q->zero[scale_entry(q, row, at)];
        for (int64_t i = at; i < k && i < at + group; i++)
            dst[i * TILE] -= zero;
    }
}

static void load_row(const Side *side, int64_t row, double *dst, int64_t k)
{
    const Tensor *t = side->t;
    double buf[512];
    size_t size = (size_t)format_info[t->fmt].bits / 8;
    if (row >= side->rows) { /* rows that fill up the last panel */
        for (int64_t i = 0; i < k; i++)
            dst[i * TILE] = 0;
        return;
    }
    row += side->begin;
    if (t->q.codes) {
        load_codes(side, row, dst, k);
        return;
    }
    const char *src = (const char *)t->data + (size_t)(row * k) * size;
    for (int64_t at = 0; at < k; at += (int64_t)COUNT_OF(buf)) {
        int64_t num = k - at < (int64_t)COUNT_OF(buf) ? k - at : (int64_t)COUNT_OF(buf);
        format_to_f64(t->fmt, src + (size_t)at * size, buf, (uint64_t)num);
        for (int64_t i = 0; i < num; i++)
            dst[(at + i) * TILE] = buf[i];
    }
}

static void load_panel(const Side *side, int64_t row, double *panel, int64_t k)
{
    for (int i = 0; i < TILE; i++)
        load_row(side, row + i, panel + i, k);
}

/* sum[i][j] = a_i . b_j over columns [begin, end) */
static void dot_tile(const double *a, const double *b, int64_t begin, int64_t end,
                     double sum[TILE][TILE])
{
    Vec s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
    for (int64_t k = begin; k < end; k++) {
        const double *x = a + k * TILE;
        Vec y = *(const Vec *)(b + k * TILE);
        s0 += x[0] * y;
        s1 += x[1] * y;
        s2 += x[2] * y;
        s3 += x[3] * y;
    }
    *(Vec *)sum[0] = s0;
    *(Vec *)sum[1] = s1;
    *(Vec *)sum[2] = s2;
    *(Vec *)sum[3] = s3;
}

/* Scale of an operand's block; 1 of one whose scales wait, and of a plain one. */
static float scale_f32(const Side *side, int64_t row, int64_t col)
{
    const QTensor *q = &side->t->q;
    if (!side->scaled || row >= side->rows)
        return 1;
    return num_scale_effective(q->scale[scale_entry(q, side->begin + row, col)], q->outer);
}

static double scale_f64(const Side *side, int64_t row, int64_t col)
{
    const QTensor *q = &side->t->q;
    if (!side->scaled || row >= side->rows)
        return 1;
    return (double)q->scale[scale_entry(q, side->begin + row, col)] * (double)q->outer;
}

/* Blocks of K in ascending order: f = fmaf((float)block, sa * sb, f). */
static void mainloop_tile(const Product *p, const double *a, const double *b, int64_t row,
                          int64_t col, double sum[TILE][TILE])
{
    bool wide = p->out->fmt == FMT_F64;
    double part[TILE][TILE];
    memset(sum, 0, sizeof part);
    for (int64_t k = 0; k < p->k; k += p->block) {
        dot_tile(a, b, k, k + p->block < p->k ? k + p->block : p->k, part);
        for (int i = 0; i < TILE; i++) {
            for (int j = 0; j < TILE; j++) {
                if (wide)
                    sum[i][j] +=
                        part[i][j] * (scale_f64(&p->a, row + i, k) * scale_f64(&p->b, col + j, k));
                else
                    sum[i][j] = num_fma((float)part[i][j],
                                        scale_f32(&p->a, row + i, k) * scale_f32(&p->b, col + j, k),
                                        (float)sum[i][j]);
            }
        }
    }
}

static void store_tile(const Product *p, int64_t row, int64_t col, double sum[TILE][TILE])
{
    int64_t n = p->b.rows;
    for (int i = 0; i < TILE && row + i < p->a.rows; i++) {
        for (int j = 0; j < TILE && col + j < n; j++) {
            size_t at = (size_t)((p->a.begin + row + i) * n + col + j);
            if (p->out->fmt == FMT_F64)
                ((double *)p->out->data)[at] = sum[i][j];
            else if (p->out->fmt == FMT_I32)
                ((int32_t *)p->out->data)[at] = (int32_t)sum[i][j];
            else
                ((float *)p->out->data)[at] = (float)sum[i][j];
        }
    }
}

/* All rows of a chunk against the columns [col, col + TILE). */
static void run_column(const Product *p, const double *a, double *b, int64_t chunk, int64_t rows,
                       int64_t col)
{
    load_panel(&p->b, col, b, p->k);
    for (int64_t row = 0; row < rows; row += TILE) {
        double sum[TILE][TILE];
        if (p->mainloop)
            mainloop_tile(p, a + row * p->k, b, chunk + row, col, sum);
        else
            dot_tile(a + row * p->k, b, 0, p->k, sum);
        store_tile(p, chunk + row, col, sum);
    }
}

typedef struct Chunk {
    const Product *p;
    double *a;
    int64_t begin, rows;
    atomic_bool failed; /* memory was exhausted */
} Chunk;

static void run_columns(void *user, int64_t begin, int64_t end, int thread)
{
    Chunk *c = user;
    double *b = malloc((size_t)(c->p->k + 1) * TILE * sizeof *b);
    (void)thread;
    if (!b)
        c->failed = true;
    for (int64_t col = begin; b && col < end; col += TILE)
        run_column(c->p, c->a, b, c->begin, c->rows, col);
    free(b);
}

static bool run_chunk(const Product *p, double *a, int64_t begin, int64_t rows)
{
    Chunk chunk = {.p = p, .a = a, .begin = begin, .rows = rows};
    for (int64_t row = 0; row < rows; row += TILE)
        load_panel(&p->a, begin + row, a + row * p->k, p->k);
    int threads = rows * p->k * p->b.rows > 1000000 ? 0 : 1;
    team_run(threads, p->b.rows, 16 * TILE, run_columns, &chunk);
    return !chunk.failed;
}

/* The smaller of the operands' blocks along K; the type rule says that it divides the other. */
static int64_t common_block(const Tensor *a, const Tensor *b, int64_t k)
{
    int64_t block = k;
    for (int i = 0; i < 2; i++) {
        const QTensor *q = i ? &b->q : &a->q;
        if (q->codes && q->scheme.block[1] && q->scheme.block[1] < block)
            block = q->scheme.block[1];
    }
    return block;
}

static bool run_product(const Product *p, double *panels)
{
    bool ok = true;
    for (int64_t row = 0; ok && row < p->a.rows; row += CHUNK_ROWS)
        ok = run_chunk(p, panels, row, p->a.rows - row < CHUNK_ROWS ? p->a.rows - row : CHUNK_ROWS);
    return ok;
}

/* The rows of each group with the group's matrix; the others are 0. */
static bool run_groups(Product *p, double *panels, const Tensor *ends)
{
    bool ok = true;
    int64_t groups = (int64_t)tensor_elements(ends), n = p->b.rows / groups, rows = p->a.rows;
    p->b.rows = n;
    if (op_is_counted(p->op))
        memset(p->out->data, 0,
               tensor_elements(p->out) * (size_t)format_info[p->out->fmt].bits / 8);
    for (int64_t g = 0; ok && g < groups; g++) {
        GroupRows of = eval_group(p->op, ends, g, rows);
        p->a.begin = of.first;
        p->a.rows = of.num;
        p->b.begin = g * n;
        ok = run_product(p, panels);
    }
    return ok;
}

bool eval_op_matmul(Eval *e, const Op *op)
{
    const Tensor *a = eval_in(e, op, 0), *b = eval_in(e, op, 1);
    const Tensor *ends = op->num_in == 3 ? eval_in(e, op, 2) : NULL;
    Tensor *out = eval_result(e, op, 0);
    if (!out || (ends && !op_is_counted(op) && !eval_ends_fit(e, op, ends, tensor_rows(a))))
        return false;
    Product p = {.op = op, .k = tensor_cols(a), .out = out};
    p.mainloop = op->attr.place == PLACE_MAINLOOP;
    p.block = p.mainloop ? common_block(a, b, p.k) : p.k;
    bool raw = !p.mainloop && is_integer(a) && is_integer(b);
    p.a = side_make(a, !raw);
    p.b = side_make(b, !raw);
    p.a.scaled = p.mainloop && type_scale_varies(op_in(op, 0)->type);
    p.b.scaled = p.mainloop && b->q.codes;
    int64_t chunk = p.a.rows < CHUNK_ROWS ? p.a.rows : CHUNK_ROWS;
    double *panels = malloc((size_t)((chunk + TILE) * p.k + 1) * sizeof *panels);
    bool ok = panels && (ends ? run_groups(&p, panels, ends) : run_product(&p, panels));
    free(panels);
    return ok || eval_no_memory(e, op);
}
