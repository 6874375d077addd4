/* Blocked Cholesky factor and triangular inverse; the tile update of GPTQ. Every element's sum has
 * a fixed order, so threads and vector widths do not matter. */
#include "quant/linalg.h"
#include "base/team.h"
#include "numerics/numerics.h"
#include "quant/versions.h"
#include <stdlib.h>
#include <string.h>
#ifdef HAVE_LAPACKE
#include <lapacke.h>
#endif

#define BLOCK 64
#define STRIP 256 /* columns that stay in the second cache beside a block of rows */

NUM_FN void linalg_subtract_body(double *restrict dst, const double *restrict a,
                                 const double *restrict b, int64_t pitch, int count, int64_t num)
{
    int k = 0;
    for (; k + 8 <= count; k += 8) {
        const double *b0 = b + k * pitch, *b1 = b0 + pitch, *b2 = b1 + pitch, *b3 = b2 + pitch;
        const double *b4 = b3 + pitch, *b5 = b4 + pitch, *b6 = b5 + pitch, *b7 = b6 + pitch;
        for (int64_t j = 0; j < num; j++)
            dst[j] = dst[j] - a[k] * b0[j] - a[k + 1] * b1[j] - a[k + 2] * b2[j] -
                     a[k + 3] * b3[j] - a[k + 4] * b4[j] - a[k + 5] * b5[j] - a[k + 6] * b6[j] -
                     a[k + 7] * b7[j];
    }
    for (; k < count; k++)
        for (int64_t j = 0; j < num; j++)
            dst[j] = dst[j] - a[k] * b[k * pitch + j];
}
LOOP_VERSIONS(linalg_subtract,
              (double *dst, const double *a, const double *b, int64_t pitch, int count,
               int64_t num),
              (dst, a, b, pitch, count, num))

/* Elements of some rows of a tile. Not wider than AVX2's registers: gcc splits what is through
 * memory. */
#define WIDTH 4
#define PARTS (LINALG_TILE / WIDTH)
typedef double TilePart __attribute__((vector_size(WIDTH * sizeof(double)), aligned(8)));

/* `unroll` columns from j on share the reading of err. */
NUM_FN void tile_columns(const double *m, int64_t n, int64_t count, int64_t j, int unroll,
                         const double *err, double *w)
{
    TilePart acc[2][PARTS];
    for (int c = 0; c < unroll; c++)
        memcpy(acc[c], w + (j + c) * LINALG_TILE, sizeof acc[c]);
    for (int64_t i = 0; i < count; i++) {
        const double *row = m + j - i * n;
        for (int part = 0; part < PARTS; part++) {
            TilePart e;
            memcpy(&e, err + i * LINALG_TILE + part * WIDTH, sizeof e);
            for (int c = 0; c < unroll; c++)
                acc[c][part] = acc[c][part] - e * row[c];
        }
    }
    for (int c = 0; c < unroll; c++)
        memcpy(w + (j + c) * LINALG_TILE, acc[c], sizeof acc[c]);
}

NUM_FN void linalg_tile_update_body(const double *m, int64_t n, int64_t first, int64_t last,
                                    int64_t begin, int64_t end, const double *err, double *w)
{
    int64_t j = begin;
    for (; j + 2 <= end; j += 2)
        tile_columns(m + first * n, n, first - last + 1, j, 2, err, w);
    for (; j < end; j++)
        tile_columns(m + first * n, n, first - last + 1, j, 1, err, w);
}
LOOP_VERSIONS(linalg_tile_update,
              (const double *m, int64_t n, int64_t first, int64_t last, int64_t begin, int64_t end,
               const double *err, double *w),
              (m, n, first, last, begin, end, err, w))

#ifdef HAVE_LAPACKE

bool linalg_cholesky(double *a, int64_t n)
{
    return LAPACKE_dpotrf(LAPACK_ROW_MAJOR, 'L', (lapack_int)n, a, (lapack_int)n) == 0;
}

void linalg_invert_lower(const double *l, double *inv, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        memcpy(inv + i * n, l + i * n, (size_t)(i + 1) * sizeof *inv);
        memset(inv + i * n + i + 1, 0, (size_t)(n - i - 1) * sizeof *inv);
    }
    LAPACKE_dtrtri(LAPACK_ROW_MAJOR, 'L', 'N', (lapack_int)n, inv, (lapack_int)n);
}

#else

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int linalg_threads(int64_t n)
{
    return n > 256 ? 0 : 1;
}

/* The block at k on the diagonal, unblocked. */
static bool factor_block(double *a, int64_t n, int64_t k, int64_t size)
{
    for (int64_t j = k; j < k + size; j++) {
        double d = a[j * n + j];
        for (int64_t p = k; p < j; p++)
            d -= a[j * n + p] * a[j * n + p];
        if (!(d > 0) || d > 1e300)
            return false;
        d = sqrt(d);
        a[j * n + j] = d;
        for (int64_t i = j + 1; i < k + size; i++) {
            double v = a[i * n + j];
            for (int64_t p = k; p < j; p++)
                v -= a[i * n + p] * a[j * n + p];
            a[i * n + j] = v / d;
        }
    }
    return true;
}

/* Row i of the panel below the diagonal block, its copy in columns, for the update to its right. */
static void factor_panel_row(double *a, int64_t n, int64_t k, int64_t size, int64_t i,
                             double *panel)
{
    for (int64_t j = k; j < k + size; j++) {
        double v = a[i * n + j];
        for (int64_t p = k; p < j; p++)
            v -= a[i * n + p] * a[j * n + p];
        v /= a[j * n + j];
        a[i * n + j] = v;
        panel[(j - k) * n + i] = v;
    }
}

/* Rows i..i + num right of the panel, up to the diagonal: a strip of the panel serves them all. */
static void update_rows(double *a, int64_t n, int64_t k, int64_t size, int64_t i, int64_t num,
                        const double *panel)
{
    for (int64_t j = k + size; j < i + num; j += STRIP)
        for (int64_t row = i > j ? i : j; row < i + num; row++)
            linalg_subtract(a + row * n + j, a + row * n + k, panel + j, n, (int)size,
                            min64(STRIP, row + 1 - j));
}

/* What the panel at k of n columns has still to do below its diagonal block. */
typedef struct Factor {
    double *a, *panel;
    int64_t n, k, size;
} Factor;

static void factor_panel(void *user, int64_t begin, int64_t end, int thread)
{
    const Factor *f = user;
    (void)thread;
    for (int64_t i = f->k + f->size + begin; i < f->k + f->size + end; i++)
        factor_panel_row(f->a, f->n, f->k, f->size, i, f->panel);
}

static void factor_rest(void *user, int64_t begin, int64_t end, int thread)
{
    const Factor *f = user;
    (void)thread;
    update_rows(f->a, f->n, f->k, f->size, f->k + f->size + begin, end - begin, f->panel);
}

bool linalg_cholesky(double *a, int64_t n)
{
    Factor f = {.a = a, .panel = malloc((size_t)n * BLOCK * sizeof *a), .n = n};
    if (!f.panel)
        return false;
    bool ok = true;
    for (; f.k < n && ok; f.k += BLOCK) {
        f.size = min64(BLOCK, n - f.k);
        ok = factor_block(a, n, f.k, f.size);
        if (!ok)
            break;
        team_run(linalg_threads(n), n - f.k - f.size, 1, factor_panel, &f);
        team_run(linalg_threads(n), n - f.k - f.size, BLOCK, factor_rest, &f);
    }
    free(f.panel);
    return ok;
}

/* Columns begin..begin + num of the inverse. */
static void invert_strip(const double *l, double *inv, int64_t n, int64_t begin, int64_t num)
{
    for (int64_t i = 0; i < n; i++) {
        double *row = inv + i * n + begin;
        for (int64_t j = 0; j < num; j++)
            row[j] = begin + j == i ? 1 : 0;
    }
    for (int64_t block = begin / BLOCK * BLOCK; block < n; block += BLOCK) {
        int64_t end = min64(block + BLOCK, n);
        for (int64_t k = begin; k < block; k += BLOCK) /* rows above stay cached over i */
            for (int64_t i = block; i < end; i++)
                linalg_subtract(inv + i * n + begin, l + i * n + k, inv + k * n + begin, n,
                                (int)min64(BLOCK, block - k), num);
        for (int64_t i = block; i < end; i++) {
            int64_t from = block > begin ? block : begin;
            double *row = inv + i * n + begin;
            if (i > from)
                linalg_subtract(row, l + i * n + from, inv + from * n + begin, n, (int)(i - from),
                                num);
            for (int64_t j = 0; j < num; j++)
                row[j] /= l[i * n + i];
        }
    }
}

typedef struct Invert {
    const double *l;
    double *inv;
    int64_t n;
} Invert;

static void invert_columns(void *user, int64_t begin, int64_t end, int thread)
{
    const Invert *v = user;
    (void)thread;
    invert_strip(v->l, v->inv, v->n, begin, end - begin);
}

void linalg_invert_lower(const double *l, double *inv, int64_t n)
{
    Invert v = {l, inv, n};
    team_run(linalg_threads(n), n, STRIP, invert_columns, &v);
}

#endif
