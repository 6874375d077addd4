/* Codebooks: unsigned codes that are no numbers but places in a table of values, which the tensor
 * brings along. A table has as many values as the format has codes. */
#ifndef SINTER_CODEBOOK_H
#define SINTER_CODEBOOK_H

#include <stdint.h>

typedef enum TableKind {
    TABLE_NONE,   /* codes are numbers */
    TABLE_TENSOR, /* one table */
    TABLE_ROW,    /* one for each row */
    TABLE_BLOCK,  /* one for each entry of the grid of scales */
    NUM_TABLE_KINDS
} TableKind;

/* How many tables there are. */
static inline int64_t codebook_tables(TableKind kind, int64_t rows, int64_t grid)
{
    return kind == TABLE_NONE ? 0 : kind == TABLE_TENSOR ? 1 : kind == TABLE_ROW ? rows : grid;
}

/* Which of them an element goes by: of this row, in this entry of the grid. */
static inline int64_t codebook_at(TableKind kind, int64_t row, int64_t entry)
{
    return kind == TABLE_ROW ? row : kind == TABLE_BLOCK ? entry : 0;
}

#endif
