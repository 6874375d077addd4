/* Tile programs: the fused prologue or epilogue of a kernel as data.
 *
 * A program is a list of steps over virtual registers. Each register holds one tile: rows
 * [m0, m0+rows) by columns [n0, n0+cols) of a two-dimensional view (all leading dimensions of a
 * tensor flattened into rows), in f32 or i32. The CPU kernels interpret programs tile by tile while
 * the tile is in cache; the CUDA code generator writes the same steps as device code. Every scalar
 * step is a function of numerics.h, so results do not depend on how steps are grouped. */
#ifndef SINTER_TILE_H
#define SINTER_TILE_H

#include <stdint.h>

typedef enum TileOp {
    TILE_ACC,     /* dst <- part `part` of the GEMM accumulator (i32 or f32, see fmt) */
    TILE_LOAD,    /* dst <- tensor; plain formats convert to f32 (I32 stays i32), quantised
                     tensors are dequantised */
    TILE_CONST,   /* dst <- imm, every element */
    TILE_ADD_I32, /* dst <- src0 op src1, wrapping */
    TILE_SUB_I32,
    TILE_MUL_I32,
    TILE_I32_TO_F32, /* dst <- (float)src0, round to nearest even */
    TILE_ROUND,      /* dst <- src0 rounded to format fmt and back */
    TILE_RMSNORM,    /* rows: dst <- rmsnorm(src0) * src1; imm = eps. Needs whole rows */
    TILE_LAYERNORM,  /* dst <- layernorm(src0) * src1 + src2; imm = eps. Needs whole rows */
    TILE_SOFTMAX,    /* dst <- softmax(src0) along the columns. Needs whole rows */
    TILE_STORE,      /* tensor <- src0 converted to the tensor's plain format */
    TILE_QUANTIZE,   /* tensor <- quantise(src0): codes, and for dynamic schemes scales and zero
                        points. Static scales are read from the tensor's own scale buffer. Dynamic
                        blocks must lie inside the tile */
    TILE_CODE_SUM,   /* i32 tensor [rows, 1] <- sum over the columns of the codes in `tensor2`: an
                        operand, or what the preceding TILE_QUANTIZE stored. Needs whole rows */
#define ELEMENTWISE(ID, name, arity, f32_expr, f64_expr) TILE_##ID,
#include "numerics/elementwise.def"
#undef ELEMENTWISE
    NUM_TILE_OPS
} TileOp;

/* Products of at most so many columns lie in one tile of every target, so that what needs whole
 * rows may run in their epilogues. */
#define TILE_ROW_COLS 128

#define TILE_MAX_REGS  32
#define TILE_NO_TENSOR 0xFFFF

/* Plain data, stored as it is in the compiled file (little-endian, 24 bytes). */
typedef struct TileStep {
    uint16_t op;      /* TileOp */
    uint8_t fmt;      /* FormatId: of TILE_ACC, TILE_ROUND */
    uint8_t dst;      /* register */
    uint8_t src[3];   /* registers */
    uint8_t part;     /* TILE_ACC: which part of a multi-part accumulator (gate = 0, up = 1) */
    uint16_t tensor;  /* index into the launch's operands, or TILE_NO_TENSOR */
    uint16_t tensor2; /* TILE_CODE_SUM only */
    float imm;
    uint32_t reserved[2];
} TileStep;

#endif
