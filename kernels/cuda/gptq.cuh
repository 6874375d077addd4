/* The heavy steps of the weight quantiser gptq (quant/weight_gptq.c, quant/products.c,
 * quant/linalg.c), with the same bits: each element's sum has the order that it has there; sums
 * of moments are fused in f32, all others round products and sums one by one. Matrices are f64,
 * row-major.
 *
 * None of these waits for a producer: launches follow one another in a stream. */
#ifndef SINTER_CUDA_GPTQ
#define SINTER_CUDA_GPTQ

#include "kernels/cuda/prelude.cuh"

/* Second moments ------------------------------------------------------------------------------- */

constexpr int kPanel = 16; /* columns of a panel, quant/products.c */
constexpr int kRun = 64;   /* rows that are summed in f32 */
constexpr int kSumTile = 64;

struct ProductsParams {
    const float *panels; /* [panels][held rows][kPanel] */
    double *sum;         /* [n, n]: the lower half is added to */
    double unit;
    int64_t n;
    int rows, held; /* rows: whole runs */
};

/* Block (x, y): columns 64 x .. and 64 y .., y <= x; 256 threads of 4 x 4 elements. */
__device__ __forceinline__ void products(const ProductsParams &p)
{
    __shared__ float a[kRun][kSumTile], b[kRun][kSumTile];
    const int64_t i0 = (int64_t)blockIdx.x * kSumTile, j0 = (int64_t)blockIdx.y * kSumTile;
    const int ti = threadIdx.x / 16 * 4, tj = threadIdx.x % 16 * 4;
    const int64_t panels = (p.n + kPanel - 1) / kPanel;
    double sum[4][4] = {};
    if (j0 > i0)
        return;
    for (int from = 0; from < p.rows; from += kRun) {
        __syncthreads();
        for (int k = threadIdx.x; k < kRun * kSumTile; k += blockDim.x) {
            const int r = k / kPanel % kRun, c = k % kPanel, q = k / (kPanel * kRun);
            const int64_t at = (int64_t)(from + r) * kPanel + c, pitch = (int64_t)p.held * kPanel;
            const int64_t pi = i0 / kPanel + q, pj = j0 / kPanel + q;
            a[r][q * kPanel + c] = pi < panels ? p.panels[pi * pitch + at] : 0.0f;
            b[r][q * kPanel + c] = pj < panels ? p.panels[pj * pitch + at] : 0.0f;
        }
        __syncthreads();
        float acc[4][4] = {};
#pragma unroll 4
        for (int r = 0; r < kRun; r++) {
            float x[4], y[4];
#pragma unroll
            for (int k = 0; k < 4; k++) {
                x[k] = a[r][ti + k];
                y[k] = b[r][tj + k];
            }
#pragma unroll
            for (int k = 0; k < 16; k++)
                acc[k / 4][k % 4] = num_fma(x[k / 4], y[k % 4], acc[k / 4][k % 4]);
        }
#pragma unroll
        for (int k = 0; k < 16; k++)
            sum[k / 4][k % 4] += (double)acc[k / 4][k % 4];
    }
#pragma unroll
    for (int k = 0; k < 16; k++) {
        const int64_t i = i0 + ti + k / 4, j = j0 + tj + k % 4;
        if (i < p.n && j <= i)
            p.sum[i * p.n + j] += p.unit * sum[k / 4][k % 4];
    }
}

/* Cholesky factor and its inverse -------------------------------------------------------------- */

constexpr int kBlock = 64; /* of quant/linalg.c */

struct FactorParams {
    double *a;       /* [n, n]: the lower half becomes the factor */
    double *inverse; /* [n, n] */
    int *bad;        /* set when a is not positive definite */
    int64_t n, k;    /* k: first index of the block on the diagonal */
};

/* One block of kBlock threads: a row each. */
__device__ __forceinline__ void factor_diagonal(const FactorParams &p)
{
    __shared__ double t[kBlock][kBlock + 1];
    const int size = p.n - p.k < kBlock ? (int)(p.n - p.k) : kBlock, i = threadIdx.x;
    for (int j = 0; j <= i && i < size; j++)
        t[i][j] = p.a[(p.k + i) * p.n + p.k + j];
    for (int j = 0; j < size; j++) {
        double v = 0;
        __syncthreads();
        if (i >= j && i < size) {
            v = t[i][j];
            for (int q = 0; q < j; q++)
                v -= t[i][q] * t[j][q];
        }
        __syncthreads();
        if (i == j) {
            if (!(v > 0) || v > 1e300)
                *p.bad = 1;
            t[j][j] = __dsqrt_rn(v);
        }
        __syncthreads();
        if (i > j && i < size)
            t[i][j] = v / t[j][j];
    }
    __syncthreads();
    for (int j = 0; j <= i && i < size; j++)
        p.a[(p.k + i) * p.n + p.k + j] = t[i][j];
}

/* Rows below a full block on the diagonal, one a thread; kBlock threads, 64 KiB of shared memory.
 */
__device__ __forceinline__ void factor_panel(const FactorParams &p)
{
    extern __shared__ double shared[];
    double *t = shared, *own = shared + kBlock * kBlock; /* own: [kBlock][threads] */
    const int64_t row = p.k + kBlock + (int64_t)blockIdx.x * kBlock + threadIdx.x;
    for (int i = 0; i < kBlock; i++)
        t[i * kBlock + threadIdx.x] = p.a[(p.k + i) * p.n + p.k + threadIdx.x];
    for (int r = 0; r < kBlock; r++) { /* rows in order, so that reads are whole */
        const int64_t from = p.k + kBlock + (int64_t)blockIdx.x * kBlock + r;
        if (from < p.n)
            own[threadIdx.x * kBlock + r] = p.a[from * p.n + p.k + threadIdx.x];
    }
    __syncthreads();
    if (row < p.n)
        for (int j = 0; j < kBlock; j++) {
            double v = own[j * kBlock + threadIdx.x];
            for (int q = 0; q < j; q++)
                v -= own[q * kBlock + threadIdx.x] * t[j * kBlock + q];
            own[j * kBlock + threadIdx.x] = v / t[j * kBlock + j];
        }
    __syncthreads();
    for (int r = 0; r < kBlock; r++) {
        const int64_t to = p.k + kBlock + (int64_t)blockIdx.x * kBlock + r;
        if (to < p.n)
            p.a[to * p.n + p.k + threadIdx.x] = own[threadIdx.x * kBlock + r];
    }
}

/* acc[4][4] -= x[rows 4][kBlock] y[columns 4][kBlock]^T for a thread, one k after the other. */
__device__ __forceinline__ void subtract_tile(double (&acc)[4][4],
                                              const double (&x)[kBlock][kBlock + 1],
                                              const double (&y)[kBlock][kBlock + 1], int ti, int tj)
{
#pragma unroll 2
    for (int q = 0; q < kBlock; q++) {
        double u[4], v[4];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            u[k] = x[ti + k][q];
            v[k] = y[tj + k][q];
        }
#pragma unroll
        for (int k = 0; k < 16; k++)
            acc[k / 4][k % 4] -= u[k / 4] * v[k % 4];
    }
}

/* What is right of and below the panel, tiles of 64 x 64 with y <= x; 256 threads. */
__device__ __forceinline__ void factor_update(const FactorParams &p)
{
    extern __shared__ double shared[];
    auto &x = *(double(*)[kBlock][kBlock + 1]) shared;
    auto &y = *(double(*)[kBlock][kBlock + 1])(shared + kBlock * (kBlock + 1));
    const int64_t i0 = p.k + kBlock + (int64_t)blockIdx.x * kBlock;
    const int64_t j0 = p.k + kBlock + (int64_t)blockIdx.y * kBlock;
    const int ti = threadIdx.x / 16 * 4, tj = threadIdx.x % 16 * 4;
    if (j0 > i0)
        return;
    for (int e = threadIdx.x; e < kBlock * kBlock; e += blockDim.x) {
        const int r = e / kBlock, c = e % kBlock;
        x[r][c] = i0 + r < p.n ? p.a[(i0 + r) * p.n + p.k + c] : 0;
        y[r][c] = j0 + r < p.n ? p.a[(j0 + r) * p.n + p.k + c] : 0;
    }
    __syncthreads();
    double acc[4][4];
#pragma unroll
    for (int k = 0; k < 16; k++) {
        const int64_t i = i0 + ti + k / 4, j = j0 + tj + k % 4;
        acc[k / 4][k % 4] = i < p.n && j <= i ? p.a[i * p.n + j] : 0;
    }
    subtract_tile(acc, x, y, ti, tj);
#pragma unroll
    for (int k = 0; k < 16; k++) {
        const int64_t i = i0 + ti + k / 4, j = j0 + tj + k % 4;
        if (i < p.n && j <= i)
            p.a[i * p.n + j] = acc[k / 4][k % 4];
    }
}

/* Rows of a full or last block in order: each is divided by its diagonal element and taken from
 * those below it. t: the block on the diagonal; acc: [rows][64 columns], all threads. */
__device__ __forceinline__ void solve_block(double (&acc)[kBlock][kBlock + 1],
                                            const double (&t)[kBlock][kBlock + 1], int size)
{
    for (int i = 0; i < size; i++) {
        if (threadIdx.x < kBlock)
            acc[i][threadIdx.x] /= t[i][i];
        __syncthreads();
        for (int e = threadIdx.x; e < (size - i - 1) * kBlock; e += blockDim.x) {
            const int r = i + 1 + e / kBlock, c = e % kBlock;
            acc[r][c] -= t[r][i] * acc[i][c];
        }
        __syncthreads();
    }
}

/* Block x: columns 64 x .. of the inverse of the lower triangle a; 256 threads. */
__device__ __forceinline__ void invert(const FactorParams &p)
{
    extern __shared__ double shared[];
    auto &l = *(double(*)[kBlock][kBlock + 1]) shared;
    auto &m = *(double(*)[kBlock][kBlock + 1])(shared + kBlock * (kBlock + 1));
    const int64_t j0 = (int64_t)blockIdx.x * kBlock;
    const int ti = threadIdx.x / 16 * 4, tj = threadIdx.x % 16 * 4;
    for (int64_t e = threadIdx.x; e < j0 * kBlock; e += blockDim.x)
        if (j0 + e % kBlock < p.n)
            p.inverse[e / kBlock * p.n + j0 + e % kBlock] = 0;
    for (int64_t i0 = j0; i0 < p.n; i0 += kBlock) {
        const int size = p.n - i0 < kBlock ? (int)(p.n - i0) : kBlock;
        double acc[4][4];
#pragma unroll
        for (int k = 0; k < 16; k++)
            acc[k / 4][k % 4] = i0 + ti + k / 4 == j0 + tj + k % 4 ? 1 : 0;
        for (int64_t k0 = j0; k0 <= i0; k0 += kBlock) {
            __syncthreads();
            for (int e = threadIdx.x; e < kBlock * kBlock; e += blockDim.x) {
                const int r = e / kBlock, c = e % kBlock;
                l[r][c] = i0 + r < p.n && k0 + c < p.n ? p.a[(i0 + r) * p.n + k0 + c] : 0;
                if (k0 < i0) /* transposed: row c of m is column c */
                    m[c][r] = j0 + c < p.n ? p.inverse[(k0 + r) * p.n + j0 + c] : 0;
            }
            __syncthreads();
            if (k0 < i0)
                subtract_tile(acc, l, m, ti, tj);
        }
#pragma unroll
        for (int k = 0; k < 16; k++)
            m[ti + k / 4][tj + k % 4] = acc[k / 4][k % 4];
        __syncthreads();
        solve_block(m, l, size);
        for (int e = threadIdx.x; e < size * kBlock; e += blockDim.x)
            if (j0 + e % kBlock < p.n)
                p.inverse[(i0 + e / kBlock) * p.n + j0 + e % kBlock] = m[e / kBlock][e % kBlock];
    }
}

/* Columns -------------------------------------------------------------------------------------- */

constexpr int kSpan = 128;      /* columns between updates of all the rest, quant/weight_gptq.c */
constexpr int kRowsAtOnce = 64; /* of the weight, one a thread */

struct ColumnsParams {
    const float *weight;   /* [rows, n] */
    const int64_t *column; /* [n]: of each turned index */
    const double *inverse; /* [n, n], in turned order */
    double *w;             /* [n, rows]: the weight as it is now, in turned order */
    double *err;           /* [kSpan, rows] */
    float *scale;          /* [row blocks, col_blocks] */
    int32_t *zero;         /* the same, or NULL */
    uint8_t *code;         /* [n, rows], by column */
    int64_t rows, n, width, height, col_blocks;
    int64_t first; /* turned index that the span begins with */
    float outer;
    int fmt, scale_fmt, has_zero, moving; /* moving: a group's scale is chosen when it begins */
};

/* Threads over the rows, blocks y over the columns. */
__device__ __forceinline__ void load_weight(const ColumnsParams &p)
{
    __shared__ float t[32][33];
    const int64_t r0 = (int64_t)blockIdx.x * 32, j0 = (int64_t)blockIdx.y * 32;
    const int x = threadIdx.x % 32, y0 = threadIdx.x / 32;
    for (int y = y0; y < 32; y += blockDim.x / 32)
        if (r0 + y < p.rows && j0 + x < p.n)
            t[y][x] = p.weight[(r0 + y) * p.n + p.column[j0 + x]];
    __syncthreads();
    for (int y = y0; y < 32; y += blockDim.x / 32)
        if (r0 + x < p.rows && j0 + y < p.n)
            p.w[(j0 + y) * p.rows + r0 + x] = t[x][y];
}

__device__ __forceinline__ void begin_group(const ColumnsParams &p, const double *held,
                                            int64_t last, int64_t row, int64_t col)
{
    const int64_t end = col + p.width < p.n ? col + p.width : p.n;
    const int64_t at = row * p.col_blocks + col / p.width;
    float lo = 0, hi = 0;
    for (int64_t c = col; c < end; c++) {
        const int64_t turned = p.n - 1 - c;
        const float x = (float)(turned >= last ? held[(turned - last) * kRowsAtOnce + threadIdx.x]
                                               : p.w[turned * p.rows + row]);
        lo = x < lo ? x : lo;
        hi = x > hi ? x : hi;
    }
    if (num_abs_bits(p.scale[at]) >= NUM_INF_BITS)
        return;
    if (p.has_zero) {
        int z;
        p.scale[at] = num_scale_asym(p.fmt, p.scale_fmt, num_order_key(lo), num_order_key(hi), &z);
        p.zero[at] = z;
    } else {
        const int below = num_abs_bits(lo), above = num_abs_bits(hi);
        p.scale[at] = num_scale_sym(p.fmt, p.scale_fmt, below > above ? below : above, p.outer);
    }
}

__device__ __forceinline__ bool is_integer(int fmt)
{
    switch (fmt) {
#define FORMAT(ID, name, bits, family, is_signed, exp, man, bias, qmin, qmax) \
    case FMT_##ID:                                                            \
        return FAMILY_##family == FAMILY_INT;
#include "numerics/formats.def"
#undef FORMAT
    default: return false;
    }
}

__device__ __forceinline__ int code_bits(int fmt)
{
    switch (fmt) {
#define FORMAT(ID, name, bits, family, is_signed, exp, man, bias, qmin, qmax) \
    case FMT_##ID:                                                            \
        return bits;
#include "numerics/formats.def"
#undef FORMAT
    default: return 8;
    }
}

/* The code of one element; *ret_off: what rounding takes from it. */
__device__ __forceinline__ unsigned encode(const ColumnsParams &p, int64_t row, int64_t col,
                                           double w, double *ret_off)
{
    const int64_t at = row / p.height * p.col_blocks + col / p.width;
    const int zero = p.has_zero ? p.zero[at] : 0;
    const float scale = num_scale_effective(p.scale[at], p.outer);
    const float x = (float)w * num_inverse(scale);
    const unsigned code =
        is_integer(p.fmt)
            ? (unsigned)num_int_code(p.fmt, x, zero, num_code_min(p.fmt, p.has_zero),
                                     num_code_max(p.fmt)) &
                  ((1u << code_bits(num_holder(p.fmt))) - 1)
            : num_encode(p.fmt, x);
    *ret_off = w - (double)((num_decode(p.fmt, code) - (float)zero) * scale);
    return code;
}

/* The columns of a span, from `first` down; a row a thread, kRowsAtOnce threads. Leaves codes and
 * errors. Shared: [kSpan][kRowsAtOnce] and a row of the inverse. */
__device__ __forceinline__ void quantise_span(const ColumnsParams &p)
{
    extern __shared__ double shared[];
    double *held = shared, *factor = shared + kSpan * kRowsAtOnce;
    const int64_t row = (int64_t)blockIdx.x * kRowsAtOnce + threadIdx.x;
    const int64_t last = p.first >= kSpan ? p.first - kSpan + 1 : 0;
    const bool mine = row < p.rows;
    for (int64_t j = last; j <= p.first; j++)
        held[(j - last) * kRowsAtOnce + threadIdx.x] = mine ? p.w[j * p.rows + row] : 0;
    for (int64_t i = p.first; i >= last; i--) {
        __syncthreads();
        for (int64_t j = last + threadIdx.x; j <= i; j += kRowsAtOnce)
            factor[j - last] = p.inverse[i * p.n + j];
        __syncthreads();
        if (!mine)
            continue;
        const int64_t col = p.column[i];
        double e;
        if (p.moving && col % p.width == 0)
            begin_group(p, held, last, row, col);
        p.code[col * p.rows + row] =
            (uint8_t)encode(p, row, col, held[(i - last) * kRowsAtOnce + threadIdx.x], &e);
        e = e / factor[i - last];
        p.err[(p.first - i) * p.rows + row] = e;
        for (int64_t j = 0; j < i - last; j++)
            held[j * kRowsAtOnce + threadIdx.x] -= e * factor[j];
    }
}

/* The errors of a span, taken from all columns after it: 64 columns x by 64 rows y of the weight,
 * 256 threads. */
__device__ __forceinline__ void update_rest(const ColumnsParams &p)
{
    extern __shared__ double shared[];
    double *m = shared, *e = shared + kBlock * kBlock; /* [kBlock of the span][64] */
    const int64_t last = p.first >= kSpan ? p.first - kSpan + 1 : 0;
    const int64_t j0 = (int64_t)blockIdx.x * kBlock, r0 = (int64_t)blockIdx.y * kBlock;
    const int tj = threadIdx.x / 16 * 4, tr = threadIdx.x % 16 * 4;
    double acc[4][4];
#pragma unroll
    for (int k = 0; k < 16; k++) {
        const int64_t j = j0 + tj + k / 4, r = r0 + tr + k % 4;
        acc[k / 4][k % 4] = j < last && r < p.rows ? p.w[j * p.rows + r] : 0;
    }
    for (int64_t from = p.first; from >= last; from -= kBlock) {
        const int num = from - last + 1 < kBlock ? (int)(from - last + 1) : kBlock;
        __syncthreads();
        for (int k = threadIdx.x; k < num * kBlock; k += blockDim.x) {
            const int64_t i = from - k / kBlock, c = k % kBlock;
            m[k] = j0 + c < last ? p.inverse[i * p.n + j0 + c] : 0;
            e[k] = r0 + c < p.rows ? p.err[(p.first - i) * p.rows + r0 + c] : 0;
        }
        __syncthreads();
#pragma unroll 2
        for (int i = 0; i < num; i++) {
            double u[4], v[4];
#pragma unroll
            for (int k = 0; k < 4; k++) {
                u[k] = m[i * kBlock + tj + k];
                v[k] = e[i * kBlock + tr + k];
            }
#pragma unroll
            for (int k = 0; k < 16; k++)
                acc[k / 4][k % 4] -= v[k % 4] * u[k / 4];
        }
    }
#pragma unroll
    for (int k = 0; k < 16; k++) {
        const int64_t j = j0 + tj + k / 4, r = r0 + tr + k % 4;
        if (j < last && r < p.rows)
            p.w[j * p.rows + r] = acc[k / 4][k % 4];
    }
}

#define GPTQ_KERNEL(name, Params, threads)                \
    extern "C" __global__ void __launch_bounds__(threads) \
        gptq_##name(const __grid_constant__ Params p)     \
    {                                                     \
        name(p);                                          \
    }
GPTQ_KERNEL(products, ProductsParams, 256)
GPTQ_KERNEL(factor_diagonal, FactorParams, 64)
GPTQ_KERNEL(factor_panel, FactorParams, 64)
GPTQ_KERNEL(factor_update, FactorParams, 256)
GPTQ_KERNEL(invert, FactorParams, 256)
GPTQ_KERNEL(load_weight, ColumnsParams, 256)
GPTQ_KERNEL(quantise_span, ColumnsParams, 64)
GPTQ_KERNEL(update_rest, ColumnsParams, 256)

#endif
