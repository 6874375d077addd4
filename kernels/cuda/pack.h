/* How weights lie in a compiled file for the GPU; written once by the compiler, read by kernels.
 *
 * Two layouts. LANES, for the tensor cores: n is cut into blocks of 8 rows, K into tiles of 128; a
 * tile of a block is 128 * bits bytes: units of 32 lanes x 16 bytes, each the codes of
 * 16 / bits consecutive steps of 32 along K; in a step, lane 4 * g + t holds the eight codes of row
 * g at columns 8t .. 8t + 7. Nibbles of a lane's 32 bits lie in the order that decoding wants
 * (format.cuh). K is padded with zero codes (with the zero point, where one is subtracted), n to
 * whole blocks. ROWS: codes as quant stores them, row after row.
 * With parts = 2, [n, k] stacks gate over up; blocks of 8 rows alternate between them.
 * Behind the codes, aligned to 256 bytes: scales (f32) and zero points (i32), each
 * [blocks of K][padded n], for weights whose scales belong to the main loop or whose zero points
 * are subtracted when decoding. */
#ifndef SINTER_CUDA_PACK_H
#define SINTER_CUDA_PACK_H

#include "numerics/numerics.h"
#include <stdbool.h>
#include <stdint.h>

typedef enum CudaLayout { CUDA_LANES, CUDA_ROWS } CudaLayout;
typedef enum CudaHome { CUDA_HOME_I8, CUDA_HOME_F16, CUDA_HOME_BF16, CUDA_HOME_F32 } CudaHome;

typedef struct CudaPackSpec {
    FormatId fmt, act_fmt;
    int64_t n, k; /* n counts all parts */
    int parts;
    bool mainloop;                  /* scales are applied per block of K */
    bool has_zero;                  /* the weight is asymmetric */
    bool act_zero;                  /* the activation is asymmetric */
    int64_t block_rows, block_cols; /* of the weight's scheme; 0 = all */
    int64_t act_block;              /* along K, of the activation's; 0 = all */
} CudaPackSpec;

typedef struct CudaPacked { /* what a spec comes to */
    CudaLayout layout;
    CudaHome home;
    int64_t rows;              /* packed rows: parts padded to blocks of 8 */
    int64_t pitch;             /* ROWS: bytes of a row */
    int64_t block_k;           /* of the main loop; 0 = all of K */
    int64_t scale_at, zero_at; /* bytes; 0 = none */
    int64_t scale_blocks;      /* along K */
    uint64_t bytes;
} CudaPacked;

/* False: sizes overflow. Every pair of formats has a layout. */
bool cuda_pack_plan(const CudaPackSpec *spec, CudaPacked *ret);
/* src: plain elements or canonical codes (4-bit low nibble first), src_pitch bytes a row; scale,
 * zero: the weight's grids, NULL where it has none. dst: ret->bytes, zeroed. */
void cuda_pack(const CudaPackSpec *spec, const void *src, int64_t src_pitch, const float *scale,
               const int32_t *zero, float outer, void *dst);

#endif
