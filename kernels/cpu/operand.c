/* Reading operands: how launch rows meet tensor rows, scales and zero points of blocks. */
#include "kernels/cpu/internal.h"
#include <string.h>

int plain_bytes(FormatId fmt)
{
    return fmt == FMT_F32 || fmt == FMT_I32 ? 4 : fmt == FMT_F64 ? 8 : 2;
}

int64_t tensor_block_end(const CpuTensor *t, int64_t col, int64_t end)
{
    if (t->block_cols <= 0)
        return end;
    int64_t next = (col / t->block_cols + 1) * t->block_cols;
    return next < end ? next : end;
}

int64_t tensor_grid_at(const CpuTensor *t, int64_t mapped_row, int64_t col)
{
    int64_t grid_row = t->block_rows > 0 ? mapped_row / t->block_rows : 0;
    int64_t grid_col = t->block_cols > 0 ? col / t->block_cols : 0;
    return grid_row * ceil_blocks(t->cols, t->block_cols) + grid_col;
}

float tensor_scale(const CpuTensor *t, int64_t grid_at)
{
    float scale = t->scale[grid_at];
    return t->outer ? num_scale_effective(scale, *t->outer_scale) : scale;
}

int32_t tensor_zero(const CpuTensor *t, int64_t grid_at)
{
    return t->has_zero ? t->zero[grid_at] : 0;
}

void tensor_read(const CpuKernels *kern, const CpuTensor *t, int64_t mapped_row, int64_t col,
                 float *dst, int64_t num)
{
    const char *row = (const char *)t->data + mapped_row * t->pitch;
    if (!t->quantised) {
        if (t->fmt == FMT_I32)
            memcpy(dst, row + 4 * col, 4 * (size_t)num);
        else
            kern->load(t->fmt, row + plain_bytes(t->fmt) * col, dst, num);
        return;
    }
    for (int64_t c = col, end = col + num; c < end;) {
        int64_t next = tensor_block_end(t, c, end), at = tensor_grid_at(t, mapped_row, c);
        kern->dequantise(t->fmt, (const uint8_t *)row + c, tensor_scale(t, at), tensor_zero(t, at),
                         dst + (c - col), next - c);
        c = next;
    }
}
