/* Quantised tensors: memory, single elements, decoding. */
#include "base/team.h"
#include "quant/quant.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LINE 64 /* of a cache: rows that are written a part at a time begin with whole ones */

/* Pages of 4 KiB that are written once take as long to be had as to be filled. */
static void ask_large_pages(void *memory, uint64_t bytes)
{
#if defined(MADV_HUGEPAGE)
    uint64_t page = UINT64_C(2) << 20;
    uint64_t begin = ((uint64_t)(uintptr_t)memory + page - 1) / page * page;
    uint64_t end = ((uint64_t)(uintptr_t)memory + bytes) / page * page;
    if (begin < end) /* a wish: nothing depends on whether it is granted */
        (void)madvise((void *)(uintptr_t)begin, (size_t)(end - begin), MADV_HUGEPAGE);
#else
    (void)memory;
    (void)bytes;
#endif
}

static bool make(QTensor *q, const Scheme *scheme, int64_t rows, int64_t cols, bool zeroed)
{
    *q = (QTensor){.scheme = *scheme, .rows = rows, .cols = cols, .outer = 1.0f};
    if (rows < 0 || cols < 0)
        return false;
    q->row_blocks = scheme_row_blocks(scheme, rows);
    q->col_blocks = scheme_col_blocks(scheme, cols);
    bool has_zero = scheme->zero != ZERO_NONE;
    uint64_t codes_end, num_scales, scales_bytes, zeros_at, tables_at, tables_bytes, total;
    if ((uint64_t)cols > UINT64_MAX / 8)
        return false;
    q->row_bytes = format_row_bytes(scheme->fmt, (uint64_t)cols);
    if (!checked_mul((uint64_t)rows, q->row_bytes, &q->codes_bytes) ||
        !checked_align(q->codes_bytes, LINE, &codes_end) ||
        !checked_mul((uint64_t)q->row_blocks, (uint64_t)q->col_blocks, &num_scales) ||
        !checked_mul(num_scales, sizeof(float), &scales_bytes) ||
        !checked_add(codes_end, scales_bytes, &zeros_at) ||
        !checked_add(zeros_at, has_zero ? scales_bytes : 0, &tables_at))
        return false;
    int64_t tables = codebook_tables(scheme->table, rows, (int64_t)num_scales);
    if (!checked_mul((uint64_t)tables, (uint64_t)qtensor_table_codes(q) * sizeof(float),
                     &tables_bytes) ||
        !checked_add(tables_at, tables_bytes, &total) || total > SIZE_MAX - LINE)
        return false;
    q->memory = zeroed ? calloc(1, total + LINE) : malloc(total + LINE);
    if (!q->memory)
        return false;
    ask_large_pages(q->memory, total + LINE);
    char *base = (char *)q->memory + (LINE - (uintptr_t)q->memory % LINE) % LINE;
    q->codes = (uint8_t *)base;
    q->scale = (float *)(void *)(base + codes_end);
    q->zero = has_zero ? (int32_t *)(void *)(base + zeros_at) : NULL;
    q->table = tables ? (float *)(void *)(base + tables_at) : NULL;
    if (has_zero && !zeroed)
        memset(q->zero, 0, scales_bytes);
    return true;
}

bool qtensor_init(QTensor *q, const Scheme *scheme, int64_t rows, int64_t cols)
{
    return make(q, scheme, rows, cols, true);
}

bool qtensor_init_unset(QTensor *q, const Scheme *scheme, int64_t rows, int64_t cols)
{
    return make(q, scheme, rows, cols, false);
}

void qtensor_free(QTensor *q)
{
    free(q->memory);
    *q = (QTensor){0};
}

QTensor qtensor_rows(const QTensor *q, int64_t first, int64_t num)
{
    QTensor ret = *q;
    int64_t block = q->scheme.block[0], at = block ? first / block * q->col_blocks : 0;
    ret.rows = num;
    ret.row_blocks = block ? (num + block - 1) / block : q->row_blocks;
    ret.codes = q->codes + (uint64_t)first * q->row_bytes;
    ret.codes_bytes = (uint64_t)num * q->row_bytes;
    ret.scale = q->scale + at;
    ret.zero = q->zero ? q->zero + at : NULL;
    if (q->table)
        ret.table = q->table + codebook_at(q->scheme.table, first, at) * qtensor_table_codes(q);
    ret.memory = NULL;
    return ret;
}

uint32_t qtensor_code(const QTensor *q, int64_t row, int64_t col)
{
    const uint8_t *codes = q->codes + (uint64_t)row * q->row_bytes;
    if (format_held_bits(q->scheme.fmt) == 4)
        return (uint32_t)(codes[col / 2] >> (col % 2 * 4)) & 15u;
    return codes[col];
}

static int64_t grid_entry(const QTensor *q, int64_t row, int64_t col)
{
    return row / qtensor_block_rows(q) * q->col_blocks + col / qtensor_block_cols(q);
}

float qtensor_code_value(const QTensor *q, int64_t row, int64_t col)
{
    const float *table = qtensor_table(q, row, q->table ? grid_entry(q, row, col) : 0);
    uint32_t code = qtensor_code(q, row, col);
    return table ? table[code & (uint32_t)(qtensor_table_codes(q) - 1)]
                 : format_decode(q->scheme.fmt, code);
}

float qtensor_value(const QTensor *q, int64_t row, int64_t col)
{
    int64_t at = grid_entry(q, row, col);
    float code = qtensor_code_value(q, row, col);
    float zero = q->zero ? (float)q->zero[at] : 0.0f;
    return (code - zero) * num_scale_effective(q->scale[at], q->outer);
}

/* Value of each code without scale and zero point. */
static int code_values(FormatId fmt, float value[256])
{
    int num = 1 << format_held_bits(fmt);
    for (int i = 0; i < num; i++)
        value[i] = format_decode(fmt, (uint32_t)i);
    return num;
}

/* One row into f32 (dst) or f64 (wide): `(code - zero) * scale`. number: value of each code that is
 * one. */
static void dequantize_row(const QTensor *q, const float *number, int64_t row, float *dst,
                           double *wide)
{
    const uint8_t *codes = q->codes + (uint64_t)row * q->row_bytes;
    bool is_4bit = format_held_bits(q->scheme.fmt) == 4;
    int64_t width = qtensor_block_cols(q);
    for (int64_t c = 0; c < q->col_blocks; c++) {
        int64_t at = row / qtensor_block_rows(q) * q->col_blocks + c;
        float scale = num_scale_effective(q->scale[at], q->outer);
        float zero = q->zero ? (float)q->zero[at] : 0.0f;
        const float *table = qtensor_table(q, row, at), *value = table ? table : number;
        unsigned most = table ? (unsigned)qtensor_table_codes(q) - 1 : 255;
        int64_t end = q->cols - c * width < width ? q->cols : (c + 1) * width;
        for (int64_t i = c * width; i < end; i++) {
            unsigned code = is_4bit ? (unsigned)(codes[i / 2] >> (i % 2 * 4)) & 15u : codes[i];
            code &= most;
            if (wide)
                wide[i] = ((double)value[code] - zero) * scale;
            else
                dst[i] = (value[code] - zero) * scale;
        }
    }
}

typedef struct Dequantize {
    const QTensor *q;
    float value[256];
    float *dst;
    double *wide;
} Dequantize;

static void dequantize_rows(void *user, int64_t begin, int64_t end, int thread)
{
    const Dequantize *d = user;
    (void)thread;
    for (int64_t r = begin; r < end; r++)
        dequantize_row(d->q, d->value, r, d->dst ? d->dst + r * d->q->cols : NULL,
                       d->wide ? d->wide + r * d->q->cols : NULL);
}

static void dequantize(const QTensor *q, float *dst, double *wide)
{
    Dequantize d = {.q = q, .dst = dst, .wide = wide};
    code_values(q->scheme.fmt, d.value);
    team_run(0, q->rows, TEAM_STEP(q->cols), dequantize_rows, &d);
}

void qtensor_dequantize(const QTensor *q, float *dst)
{
    dequantize(q, dst, NULL);
}

void qtensor_dequantize_f64(const QTensor *q, double *dst)
{
    dequantize(q, NULL, dst);
}
