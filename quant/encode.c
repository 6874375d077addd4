/* Quantising plain tensors: round-to-nearest from each block's own range, or with given scales.
 *
 * Rows are read in chunks converted to f32 on the stack: no memory that could run out, and a chunk
 * stays in the first cache between conversion, range and encoding. While ranges are gathered, the
 * cells of q->scale and q->zero hold them as integers (numerics.h, "Scales"). */
#include "quant/loops.h"
#include "quant/quant.h"

#define CHUNK 2048 /* even: 4-bit codes of a chunk fill whole bytes */

/* Small tensors are not worth waking threads. */
#define IS_LARGE(q)  ((q)->rows * (q)->cols > 65536)
#define PRAGMA(text) _Pragma(#text)
#ifdef _OPENMP
#define PARALLEL_FOR PRAGMA(omp parallel for schedule(static) if (IS_LARGE(q)))
#define PARALLEL_MAX PRAGMA(omp parallel for schedule(static) if (IS_LARGE(q)) reduction(max : hi))
#define PARALLEL_RANGE                                                            \
    PRAGMA(omp parallel for schedule(static) if (IS_LARGE(q)) reduction(max : hi) \
           reduction(min : lo))
#else
#define PARALLEL_FOR
#define PARALLEL_MAX
#define PARALLEL_RANGE
#endif

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

static int64_t block_rows(const QTensor *q)
{
    return q->scheme.block[0] ? q->scheme.block[0] : q->rows ? q->rows : 1;
}

static int64_t block_cols(const QTensor *q)
{
    return q->scheme.block[1] ? q->scheme.block[1] : q->cols ? q->cols : 1;
}

/* Columns from `col` to the end of its block, its row or the chunk. */
static int64_t segment_len(const QTensor *q, int64_t col, int64_t chunk_end)
{
    int64_t width = block_cols(q);
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
        int hi = (int)num_bits(q->scale[at]);
        if (q->zero)
            q->scale[at] = num_scale_asym((int)scheme->fmt, (int)scheme->scale_fmt, q->zero[at], hi,
                                          &q->zero[at]);
        else
            q->scale[at] = num_scale_sym((int)scheme->fmt, (int)scheme->scale_fmt, hi, q->outer);
    }
}

static void range_row(QTensor *q, const Reader *reader, int64_t row)
{
    float buf[CHUNK];
    RangeKind kind = range_kind(&q->scheme);
    int64_t cells = row / block_rows(q) * q->col_blocks;
    for (int64_t start = 0; start < q->cols; start += CHUNK) {
        int64_t end = min64(start + CHUNK, q->cols);
        const float *x = reader_chunk(reader, row, start, end - start, buf);
        for (int64_t col = start, len; col < end; col += len) {
            len = segment_len(q, col, end);
            cells_merge(q, cells + col / block_cols(q), kind, x + (col - start), len);
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

static void range_tensor(QTensor *q, const Reader *reader)
{
    RangeKind kind = range_kind(&q->scheme);
    int lo = 0, hi = 0;
    PARALLEL_RANGE
    for (int64_t r = 0; r < q->rows; r++)
        range_row_whole(q, reader, kind, r, &lo, &hi);
    q->scale[0] = num_float((unsigned)hi);
    if (q->zero)
        q->zero[0] = lo;
    cells_finish(q, 0);
}

static void range_outer(QTensor *q, const Reader *reader)
{
    int hi = 0;
    PARALLEL_MAX
    for (int64_t r = 0; r < q->rows; r++) {
        int lo = 0;
        range_row_whole(q, reader, RANGE_FINITE, r, &lo, &hi);
    }
    q->outer = num_outer((int)q->scheme.fmt, hi);
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
        int64_t at = cells + col / block_cols(q);
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
        float inv = block_inverse(q, cells + col / block_cols(q));
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
    bool is_4bit = format_info[fmt].bits == 4;
    uint8_t *codes = q->codes + (uint64_t)row * q->row_bytes;
    int64_t cells = row / block_rows(q) * q->col_blocks;
    for (int64_t start = 0; start < q->cols; start += CHUNK) {
        int64_t end = min64(start + CHUNK, q->cols);
        const float *x = reader_chunk(reader, row, start, end - start, buf);
        uint8_t *dst = is_4bit ? bytes : codes + start;
        if (block_cols(q) <= 64 && !q->zero)
            encode_small_blocks(q, &args, cells, x, start, end, dst);
        else
            encode_blocks(q, &args, cells, x, start, end, dst);
        if (is_4bit)
            loop_pack4(bytes, end - start, codes + start / 2);
    }
}

void quantize_static(QTensor *q, FormatId src_fmt, const void *src)
{
    Reader reader = reader_create(q, src_fmt, src);
    PARALLEL_FOR
    for (int64_t r = 0; r < q->rows; r++)
        encode_row(q, &reader, r);
}

static void range_row_block(QTensor *q, const Reader *reader, int64_t row_block)
{
    int64_t first = row_block * block_rows(q);
    int64_t end = min64(q->rows, first + block_rows(q));
    cells_clear(q, row_block);
    for (int64_t r = first; r < end; r++)
        range_row(q, reader, r);
    cells_finish(q, row_block);
}

void quantize_rtn(QTensor *q, FormatId src_fmt, const void *src)
{
    Reader reader = reader_create(q, src_fmt, src);
    q->outer = 1.0f;
    if (q->scheme.outer)
        range_outer(q, &reader);
    if (q->scheme.block[0] == 1) {
        PARALLEL_FOR
        for (int64_t r = 0; r < q->rows; r++) {
            range_row_block(q, &reader, r);
            encode_row(q, &reader, r);
        }
        return;
    }
    if (q->row_blocks == 1 && q->col_blocks == 1) {
        range_tensor(q, &reader);
    } else {
        PARALLEL_FOR
        for (int64_t b = 0; b < q->row_blocks; b++)
            range_row_block(q, &reader, b);
    }
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
