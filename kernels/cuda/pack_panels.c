/* Packing of weights as panels, for kernels/cuda/hopper.cuh; the layout is described in pack.h. */
#include "kernels/cuda/pack.h"
#include <string.h>

#define UNIT_BYTES 128 /* of a row: a unit of K */
#define RUN_ROWS   32  /* that the fragments of a thread hold eight neighbours of */

static const int format_bits[NUM_FORMATS] = {
#define FORMAT(ID, name, bits, family, is_signed, exp, man, bias, qmin, qmax) [FMT_##ID] = bits,
#include "numerics/formats.def"
#undef FORMAT
};

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int64_t part_rows(const CudaPackSpec *spec) /* padded rows of one part */
{
    return ceil_div(spec->n / spec->parts, RUN_ROWS) * RUN_ROWS;
}

/* Packed rows to a column of the grid of scales: where 128 rows, from multiples of 128 of a part
 * on, share theirs, so many that the columns of any run of RUN_ROWS are a whole bulk copy. */
static int64_t scale_rows(const CudaPackSpec *spec)
{
    return spec->block_rows == 0 || spec->block_rows % 128 == 0 ? CUDA_PANEL_SCALE_ROWS : 1;
}

static int64_t scale_columns(const CudaPackSpec *spec) /* of a row of the grid of scales */
{
    return spec->parts * part_rows(spec) / scale_rows(spec);
}

static int64_t scale_blocks(const CudaPackSpec *spec) /* along K */
{
    return spec->block_cols && spec->block_cols < spec->k ? ceil_div(spec->k, spec->block_cols) : 1;
}

bool cuda_panels_plan(const CudaPackSpec *spec, CudaPacked *ret)
{
    if (format_bits[spec->fmt] != 8 && format_bits[spec->fmt] != 16)
        return false;
    int64_t wb = spec->block_cols < spec->k ? spec->block_cols : 0;
    int64_t ab = spec->act_block < spec->k ? spec->act_block : 0;
    ret->scale_fmt = FMT_F32;
    ret->home = CUDA_HOME_F32;
    if (spec->mainloop)
        ret->block_k = !wb ? ab : !ab ? wb : wb < ab ? wb : ab;
    ret->rows = part_rows(spec) * spec->parts;
    uint64_t units = (uint64_t)ceil_div(spec->k * format_bits[spec->fmt], UNIT_BYTES * 8);
    uint64_t at = units * (uint64_t)ret->rows * UNIT_BYTES;
    ret->scales = spec->mainloop;
    if (spec->mainloop) {
        ret->scale_at = (int64_t)at;
        at += (uint64_t)scale_blocks(spec) * (uint64_t)scale_columns(spec) * 4;
    }
    ret->bytes = (at + 255) & ~UINT64_C(255);
    return at < UINT64_C(1) << 44;
}

/* Logical row of packed row r if rows of a run were not permuted, or -1 for padding. */
static int64_t row_in_order(const CudaPackSpec *spec, int64_t r)
{
    int64_t run = r / RUN_ROWS, part = run % spec->parts, rows = spec->n / spec->parts;
    int64_t row = run / spec->parts * RUN_ROWS + r % RUN_ROWS;
    return row < rows ? part * rows + row : -1;
}

/* .. as they are. */
static int64_t source_row(const CudaPackSpec *spec, int64_t r)
{
    int64_t in = r % RUN_ROWS;
    return row_in_order(spec, r - in + in % 8 / 2 * 8 + in / 8 * 2 + in % 2);
}

static void pack_codes(const CudaPackSpec *spec, const CudaPacked *packed, const uint8_t *src,
                       int64_t src_pitch, uint8_t *dst)
{
    int64_t bytes = spec->k * format_bits[spec->fmt] / 8;
    for (int64_t r = 0; r < packed->rows; r++) {
        int64_t row = source_row(spec, r);
        if (row < 0)
            continue;
        const uint8_t *from = src + row * src_pitch;
        for (int64_t at = 0; at < bytes; at += 16) {
            int64_t chunk = at % UNIT_BYTES / 16 ^ r % 8;
            uint8_t *to = dst + (at / UNIT_BYTES * packed->rows + r) * UNIT_BYTES + chunk * 16;
            memcpy(to, from + at, (size_t)(bytes - at < 16 ? bytes - at : 16));
        }
    }
}

static void pack_scales(const CudaPackSpec *spec, const float *scale, uint8_t *dst)
{
    int64_t columns = scale_columns(spec), blocks = scale_blocks(spec);
    for (int64_t c = 0; c < columns; c++) {
        int64_t row = scale_rows(spec) > 1 ? source_row(spec, c * scale_rows(spec)) /* the first */
                                           : row_in_order(spec, c);
        for (int64_t b = 0; b < blocks; b++) {
            int64_t at = (spec->block_rows && row > 0 ? row / spec->block_rows : 0) * blocks + b;
            float s = row < 0 || !scale ? 1.0f : scale[at];
            memcpy(dst + (b * columns + c) * 4, &s, 4);
        }
    }
}

void cuda_panels_pack(const CudaPackSpec *spec, const CudaPacked *packed, const void *src,
                      int64_t src_pitch, const CudaParams *params, void *dst)
{
    pack_codes(spec, packed, src, src_pitch, dst);
    if (packed->scale_at)
        pack_scales(spec, params->scale, (uint8_t *)dst + packed->scale_at);
}
