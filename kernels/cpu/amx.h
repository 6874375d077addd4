/* What kernels_amx*.c share. */
#ifndef SINTER_CPU_AMX_H
#define SINTER_CPU_AMX_H

#include "kernels/cpu/pairs.h"

#define TILE_ROWS  16
#define TILE_BYTES 64 /* of a row */
#define TILE_WORD  4  /* bytes of K of one column side by side */
#define STEP_UNITS 16 /* rows of a weight's tile */

/* How many rows the first and the second row of tiles have. Tiles 0..3 are sums. Two rows of tiles:
 * 4, 5 activations, 6, 7 weights; one: 4 and 5..7, where 5 must hold a whole tile. */
void amx_shape(int rows0, int rows1);

/* CpuMatrix.few_rows; of nibbles with scales of their own */
bool amx_few_rows(const MatrixFew *f);
void amx_few_nibbles(const MatrixFew *f);

#endif
