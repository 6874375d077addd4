/* Quantising plain tensors: round-to-nearest from each block's own range, or with given scales.
 *
 * Rows are read in chunks converted to f32 on the stack: no memory that could run out, and a chunk
 * stays in the first cache between conversion, range and encoding. While ranges are gathered, the
 * cells of q->scale and q->zero hold them as integers (numerics.h, "Scales"). */
#include "base/team.h"
#include "quant/loops.h"
#include "quant/quant.h"
#include <stdatomic.h>

#define CHUNK 2048 /* even: 4-bit codes of a chunk fill whole bytes */

/* Small tensors are not worth waking threads. */
typedef struct Reader {
    FormatId fmt;
    const char *data;
    int64_t cols, element_bytes;
} Reader;

static Reader reader_create(const QTensor *q, FormatId fmt, const void *src)
{
    return (Reader){fmt, src, q->cols, (int64_t)format_row_bytes(fmt, 1)};
}

/* num elements of a row as f32: in buf, or where they are. */
static const float *reader_chunk(const Reader *reader, int64_t row, int64_t col, int64_t num,
                                 float *buf)
{
    const char *at = reader->data + (row * reader->cols + col) * reader->element_bytes;
    if (reader->fmt == FMT_F32)
        return (const float *)(const void *)at;
    loop_to_f32((int)reader->fmt, at, buf, num);
    return buf;
}

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Columns from `col` to the end of its block, its row or the chunk. */
static int64_t segment_len(const QTensor *q, int64_t col, int64_t chunk_end)
{
    int64_t width = qtensor_block_cols(q);
    return min64(width - col % width, chunk_end - col);
}

/* Ranges -------------------------------------------------------------------------------------- */

static RangeKind range_kind(const Scheme *scheme)
{
    if (scheme->zero != ZERO_NONE)
        return RANGE_BOTH;
    return num_has_nan((int)scheme->fmt) ? RANGE_AMAX_NAN : RANGE_AMAX;
}

/* Every range holds 0, which is the integer 0 both as a magnitude and as an order key. */
static void cells_clear(QTensor *q, int64_t row_block)
{
    for (int64_t c = 0; c < q->col_blocks; c++) {
        int64_t at = row_block * q->col_blocks + c;
        q->scale[at] = num_float(0);
        if (q->zero)
            q->zero[at] = 0;
    }
}

static void cells_merge(QTensor *q, int64_t at, RangeKind kind, const float *x, int64_t num)
{
    int lo = q->zero ? q->zero[at] : 0, hi = (int)num_bits(q->scale[at]);
    loop_range(kind, x, num, &lo, &hi);
    q->scale[at] = num_float((unsigned)hi);
    if (q->zero)
        q->zero[at] = lo;
}

static void cells_finish(QTensor *q, int64_t row_block)
{
    const Scheme *scheme = &q->scheme;
    for (int64_t c = 0; c < q->col_blocks; c++) {
        int64_t at = row_block * q->col_blocks + c;
        int hi = (int)num_bits(q->scale[at]), lo = q->zero ? q->zero[at] : 0;
        if (q->zero)
            q->scale[at] = num_scale_asym((int)scheme->fmt, (int)scheme->scale_fmt, q->zero[at], hi,
                                          &q->zero[at]);
        else
            q->scale[at] = num_scale_sym((int)scheme->fmt, (int)scheme->scale_fmt, hi, q->outer);
        /* of nothing any multiple will do */
        if (scheme->scale_fmt == FMT_I8 && hi < 0x00800000 && lo >= -0x00800000)
            q->scale[at] = 0;
    }
    if (scheme->scale_fmt == FMT_I8)
        whole_scales_round(q, row_block);
}

static void range_row(QTensor *q, const Reader *reader, int64_t row)
{
    float buf[CHUNK];
    RangeKind kind = range_kind(&q->scheme);
    int64_t cells = row / qtensor_block_rows(q) * q->col_blocks;
    for (int64_t start = 0; start < q->cols; start += CHUNK) {
        int64_t end = min64(start + CHUNK, q->cols);
        const float *x = reader_chunk(reader, row, start, end - start, buf);
        for (int64_t col = start, len; col < end; col += len) {
            len = segment_len(q, col, end);
            cells_merge(q, cells + col / qtensor_block_cols(q), kind, x + (col - start), len);
        }
    }
}

static void range_row_whole(const QTensor *q, const Reader *reader, RangeKind kind, int64_t row,
                            int *lo, int *hi)
{
    float buf[CHUNK];
    for (int64_t start = 0; start < q->cols; start += CHUNK) {
        int64_t len = min64(CHUNK, q->cols - start);
        loop_range(kind, reader_chunk(reader, row, start, len, buf), len, lo, hi);
    }
}

/* A tensor whose rows threads share; the range of all of them. */
typedef struct TensorRows {
    QTensor *q;
    const Reader *reader;
    RangeKind kind;
    atomic_int lo, hi;
} TensorRows;

static void range_rows_whole(void *user, int64_t begin, int64_t end, int thread)
{
    TensorRows *t = user;
    int lo = 0, hi = 0;
    (void)thread;
    for (int64_t r = begin; r < end; r++)
        range_row_whole(t->q, t->reader, t->kind, r, &lo, &hi);
    for (int old = atomic_load(&t->lo); lo < old;)
        if (atomic_compare_exchange_weak(&t->lo, &old, lo))
            break;
    for (int old = atomic_load(&t->hi); hi > old;)
        if (atomic_compare_exchange_weak(&t->hi, &old, hi))
            break;
}

static void range_tensor(QTensor *q, const Reader *reader)
{
    TensorRows t = {.q = q, .reader = reader, .kind = range_kind(&q->scheme)};
    team_run(0, q->rows, TEAM_STEP(q->cols), range_rows_whole, &t);
    q->scale[0] = num_float((unsigned)t.hi);
    if (q->zero)
        q->zero[0] = t.lo;
    cells_finish(q, 0);
}

static void range_outer(QTensor *q, const Reader *reader)
{
    TensorRows t = {.q = q, .reader = reader, .kind = RANGE_FINITE};
    team_run(0, q->rows, TEAM_STEP(q->cols), range_rows_whole, &t);
    q->outer = num_outer((int)q->scheme.fmt, t.hi);
}

/* Codes --------------------------------------------------------------------------------------- */

static float block_inverse(const QTensor *q, int64_t at)
{
    return num_inverse(num_scale_effective(q->scale[at], q->outer));
}

/* Codes of columns start..end, one a byte, blocks one by one. */
static void encode_blocks(const QTensor *q, EncodeArgs *args, int64_t cells, const float *x,
                          int64_t start, int64_t end, uint8_t *dst)
{
    for (int64_t col = start, len; col < end; col += len) {
        len = segment_len(q, col, end);
        int64_t at = cells + col / qtensor_block_cols(q);
        args->inv = block_inverse(q, at);
        args->zero = q->zero ? q->zero[at] : 0;
        loop_encode(args, x + (col - start), len, dst + (col - start));
    }
}

/* The same for blocks shorter than the vector loops like: scaled first, encoded together. */
static void encode_small_blocks(const QTensor *q, EncodeArgs *args, int64_t cells, const float *x,
                                int64_t start, int64_t end, uint8_t *dst)
{
    float scaled[CHUNK];
    for (int64_t col = start, len; col < end; col += len) {
        len = segment_len(q, col, end);
        float inv = block_inverse(q, cells + col / qtensor_block_cols(q));
        loop_scale(inv, x + (col - start), len, scaled + (col - start));
    }
    args->inv = 1.0f;
    loop_encode(args, scaled, end - start, dst);
}

static void encode_row(QTensor *q, const Reader *reader, int64_t row)
{
    float buf[CHUNK];
    uint8_t bytes[CHUNK];
    int fmt = (int)q->scheme.fmt;
    EncodeArgs args = {
        .fmt = fmt, .qmin = num_code_min(fmt, q->zero != NULL), .qmax = num_code_max(fmt)};
    bool is_4bit = format_held_bits(q->scheme.fmt) == 4;
    uint8_t *codes = q->codes + (uint64_t)row * q->row_bytes;
    int64_t cells = row / qtensor_block_rows(q) * q->col_blocks;
    for (int64_t start = 0; start < q->cols; start += CHUNK) {
        int64_t end = min64(start + CHUNK, q->cols);
        const float *x = reader_chunk(reader, row, start, end - start, buf);
        uint8_t *dst = is_4bit ? bytes : codes + start;
        if (qtensor_block_cols(q) <= 64 && !q->zero)
            encode_small_blocks(q, &args, cells, x, start, end, dst);
        else
            encode_blocks(q, &args, cells, x, start, end, dst);
        if (is_4bit)
            loop_pack4(bytes, end - start, codes + start / 2);
    }
}

static void encode_rows(void *user, int64_t begin, int64_t end, int thread)
{
    const TensorRows *t = user;
    (void)thread;
    for (int64_t r = begin; r < end; r++)
        encode_row(t->q, t->reader, r);
}

void quantize_static(QTensor *q, FormatId src_fmt, const void *src)
{
    Reader reader = reader_create(q, src_fmt, src);
    TensorRows t = {.q = q, .reader = &reader};
    team_run(0, q->rows, TEAM_STEP(q->cols), encode_rows, &t);
}

static void range_row_block(QTensor *q, const Reader *reader, int64_t row_block)
{
    int64_t first = row_block * qtensor_block_rows(q);
    int64_t end = min64(q->rows, first + qtensor_block_rows(q));
    cells_clear(q, row_block);
    for (int64_t r = first; r < end; r++)
        range_row(q, reader, r);
    cells_finish(q, row_block);
}

static void range_row_blocks(void *user, int64_t begin, int64_t end, int thread)
{
    const TensorRows *t = user;
    (void)thread;
    for (int64_t b = begin; b < end; b++)
        range_row_block(t->q, t->reader, b);
}

/* Rows with scales of their own: a row is read once for its range and, from a cache, for its codes.
 */
static void quantize_rows(void *user, int64_t begin, int64_t end, int thread)
{
    for (int64_t r = begin; r < end; r++) {
        range_row_blocks(user, r, r + 1, thread);
        encode_rows(user, r, r + 1, thread);
    }
}

void quantize_rtn(QTensor *q, FormatId src_fmt, const void *src)
{
    Reader reader = reader_create(q, src_fmt, src);
    TensorRows t = {.q = q, .reader = &reader};
    q->outer = 1.0f;
    if (q->scheme.outer)
        range_outer(q, &reader);
    if (q->scheme.block[0] == 1) {
        team_run(0, q->rows, TEAM_STEP(q->cols), quantize_rows, &t);
        return;
    }
    if (q->row_blocks == 1 && q->col_blocks == 1)
        range_tensor(q, &reader);
    else
        team_run(0, q->row_blocks, TEAM_STEP(q->cols * qtensor_block_rows(q)), range_row_blocks,
                 &t);
    quantize_static(q, src_fmt, src);
}

void scheme_params(const Scheme *scheme, float lo, float hi, float *ret_scale, int32_t *ret_zero)
{
    int fmt = (int)scheme->fmt, scale_fmt = (int)scheme->scale_fmt;
    int zero = 0;
    if (scheme->zero != ZERO_NONE) {
        *ret_scale = num_scale_asym(fmt, scale_fmt, num_order_key(lo), num_order_key(hi), &zero);
    } else {
        int amax = num_abs_bits(lo) > num_abs_bits(hi) ? num_abs_bits(lo) : num_abs_bits(hi);
        *ret_scale = num_scale_sym(fmt, scale_fmt, amax, 1.0f);
    }
    *ret_zero = zero;
}
