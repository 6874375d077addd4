/* What gemm.c and gemm_matrix.c share: the plan of a product, and one panel's part of it. */
#ifndef SINTER_CPU_GEMM_H
#define SINTER_CPU_GEMM_H

#include "kernels/cpu/internal.h"

#define CHUNK_K     128 /* of K decoded at a time, for one panel; a multiple of every unit */
#define CHUNK_BYTES (CHUNK_K * PANEL_COLS * 4)
#define ACC_COLS    (CPU_TILE_COLS + PANEL_COLS) /* a tile may begin inside a panel */

typedef struct GemmPlan {
    const CpuGemm *g;
    const CpuKernels *kern;
    PackLayout l;      /* of what is multiplied */
    PackLayout stored; /* of what is in memory: the same, or narrow, or .. */
    bool widens;       /* .. factored, and multiplied out chunk by chunk */
    Prepared a;
    const float *tables; /* of a codebook, in `packed` */
    float value[256];    /* of the codes of nibbles, and of a codebook of one table */
    bool folds;          /* scales are multiplied into the weights when those are decoded */
    int64_t row0, rows, row_tiles, col_tiles; /* of the rows being done */
    int64_t tile_rows;
    char *threads; /* scratch of all threads */
    uint64_t thread_bytes, tile_bytes, block_bytes, panel_bytes, values_bytes, open_bytes;
} GemmPlan;

/* Rows [slot, slot + rows) by one panel: the tile's accumulators, f32 or i32. */
typedef struct PanelJob {
    const uint8_t *panel;
    int64_t first; /* row of the weight that is its column 0 */
    int cols;
    int64_t slot;
    int rows;
    float *out;   /* [rows][ACC_COLS] the tile's columns of this panel */
    float *block; /* mainloop: [rows][PANEL_COLS] sums of one block */
    void *decoded;
    uint8_t *open;           /* where narrow panels are opened, NULL: none is */
    float *values;           /* matrix units: DIRECT_ROWS rows of activations for panel_again */
    ExponentRange *exponent; /* matrix units: of the panel's weights, so far */
    BlockWords *words;       /* of the block being done */
} PanelJob;

/* Units of K of one block; `a` below is where the first of them meets its activations. */
typedef struct UnitRange {
    int64_t begin, end;
} UnitRange;

static inline bool plan_is_direct(const GemmPlan *p)
{
    bool own = p->l.table && (p->l.table != TABLE_TENSOR || p->l.unit == 1);
    return !p->l.is_int && !own && !p->a.parts && p->g->m <= DIRECT_ROWS && p->kern->direct;
}

/* gemm.c: all of a panel for at most DIRECT_ROWS rows, decoded in registers. */
void panel_direct(const GemmPlan *p, const PanelJob *j);

/* gemm_matrix.c: what goes through matrix units ------------------------------------------------ */

/* Is the product of a code and a scale a bf16, so that one sum serves all blocks? */
bool plan_folds(const GemmPlan *p);
/* Units of a block; activations from k_at on. */
void block_matrix(const GemmPlan *p, const PanelJob *j, const PackBlock *b, UnitRange range,
                  int64_t k_at, float *acc, int64_t ldc, const BlockFinish *finish);
/* A range of K whose scales are folded into the weights. */
void panel_folded(const GemmPlan *p, const PanelJob *j, int64_t range);
/* All of a panel for very few rows. False: there are too many. */
bool panel_few(const GemmPlan *p, const PanelJob *j);
/* The rows of a finished panel that matrix units may not have summed right are summed without
 * them. */
void panel_again(const GemmPlan *p, const PanelJob *j);

#endif
