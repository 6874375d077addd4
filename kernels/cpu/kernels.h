/* Inner loops, one table an instruction set: kernels_portable.c, kernels_avx2*.c (with
 * kernels_avxvnni.c), kernels_avx512*.c (with kernels_bf16.c and kernels_amx*.c).
 * Everything but the dot products is tile_impl.h compiled with other flags; dot products keep one
 * order of K for every shape, so a row's result does not depend on the rows around it. */
#ifndef SINTER_CPU_KERNELS_H
#define SINTER_CPU_KERNELS_H

#include "kernels/cpu/layout.h"
#include "numerics/fields.h"

/* An operand of a row step: a row of elements, or one element for the whole row. */
typedef struct RowArg {
    const float *p;
    bool is_scalar;
} RowArg;
typedef struct RowArgI32 {
    const int32_t *p;
    bool is_scalar;
} RowArgI32;

/* Range of one quantisation block: num_abs_bits for symmetric schemes, num_order_key for asymmetric
 * ones. */
typedef struct RowRange {
    int32_t amax, lo, hi;
} RowRange;

/* What follows the sums of one block of K for some rows by a panel's columns. Integer:
 * c -= ra * sum + zero * rb, with `offset` where zero is NULL. Float: c = fma(-zero, rb_f32, c)
 * unless zero is NULL. Then, unless out is NULL, out = fma(c, sa * sb, out), where NULL scales are
 * 1; else c is stored. */
typedef struct BlockFinish {
    int64_t step; /* of ra, rb, rb_f32, sa from row to row */
    const int32_t *ra, *rb, *sum, *zero;
    const float *rb_f32, *sa, *sb;
    int32_t offset;
    float *out;
    int64_t ld;
} BlockFinish;

/* The words of a record of up to PANEL_COLS columns. */
typedef struct BlockWords {
    int32_t sum[PANEL_COLS], zero[PANEL_COLS];
    float scale[PANEL_COLS];
} BlockWords;

/* Values of the codes of a float-class weight that are looked up: of nibbles, and of a codebook.
 * One table serves all columns of a panel, or else each has its own. */
typedef struct CodeTables {
    const float *all;           /* NULL: */
    const float *first;         /* of column 0; .. */
    int32_t offset[PANEL_COLS]; /* .. and how many floats behind it the others' lie */
} CodeTables;

/* Activations of a block that are whole numbers of a unit, so few that f32 would add up their
 * products with codes without rounding. Each 8 of K have so many bytes of digits. */
#define FIXED_BYTES 16
typedef struct FixedBlock {
    float unit;   /* 0: they are not such */
    int32_t less; /* what the sum of the digits' products is too large by */
} FixedBlock;

/* A panel of a float-class weight against few rows, decoded in registers. */
#define DIRECT_ROWS 4
typedef struct DirectPanel {
    const PackLayout *layout;
    const uint8_t *panel;
    int cols, rows;
    const float *a;
    int64_t lda;
    const float *sum, *scale; /* [rows][blocks] of the activation; may be NULL */
    const float *table;       /* of nibbles: their 16 values */
    const int8_t *digits;     /* of one row; may be NULL, else .. */
    const FixedBlock *fixed;  /* .. [blocks] */
    float *out;
    int64_t ld;
} DirectPanel;

/* A panel of nibbles of the integer class against few rows. */
typedef struct DirectNibbles {
    const PackLayout *layout;
    const uint8_t *panel;
    int cols, rows;
    const uint8_t *a;
    int64_t lda;
    const int32_t *ra, *rb; /* [rows][blocks], as BlockFinish */
    const float *scale;     /* [rows][blocks] of the activation; may be NULL */
    void *out;              /* f32 where scales apply inside, else i32 */
    int64_t ld;
} DirectNibbles;

/* Biased exponents of the values that are not 0, of denormals 0 and of infinities and NaNs
 * EXPONENT_SPECIAL. */
typedef struct ExponentRange {
    int lo, hi;
} ExponentRange;
#define EXPONENT_SPECIAL 255
#define EXPONENT_ONE     127 /* of 1.0 */
#define NO_EXPONENTS     ((ExponentRange){EXPONENT_SPECIAL, 0})

/* Units of a float-class weight to pairs of bf16: [steps][parts][k / 2][cols][2], an odd k padded
 * with 0. Values less `zero` times `scale`, where those are not NULL, are such that bf16 holds
 * them; values of formats of two parts are a sum. */
typedef struct MatrixDecode {
    FormatId fmt;
    const uint8_t *src;
    int cols;
    int64_t units;
    const int32_t *zero;
    const float *scale;
    int parts;
    uint16_t *dst;
    ExponentRange *exponent; /* widened by the values of formats of 16 bits */
} MatrixDecode;

/* A panel against few rows, as DirectPanel; activations are values of bf16. */
typedef struct MatrixFew {
    const PackLayout *layout;
    const uint8_t *panel;
    int cols, rows;
    bool folds;             /* scales are factors of the weights: all of K has one sum */
    const float *a;         /* NULL: rows are more than DIRECT_ROWS */
    const uint16_t *halves; /* the same as bf16 */
    int64_t lda;            /* of both */
    const float *sum, *scale;
    float *out;
    int64_t ld;
    ExponentRange *exponent; /* as MatrixDecode */
} MatrixFew;

#define MATRIX_K    32 /* of bf16 in a step */
#define MATRIX_ROWS 32 /* that matrix units like in multiples of */
#define MATRIX_FEW  16 /* rows of nibbles' products that need not be decoded chunk by chunk */
/* How many values of bf16 sum up to any of a format; 0: more than are worth it. */
static inline int matrix_parts(FormatId fmt)
{
    if (fmt == FMT_F32 || fmt == FMT_NF4 || fmt == FMT_FP4)
        return 0;
    return fmt == FMT_F16 ? 2 : 1;
}

/* c[rows, cols] (+)= a * w over `steps` steps of K: the sum over all parts of both. */
typedef struct MatrixProduct {
    const uint8_t *a, *w;
    int64_t lda, a_step; /* bytes from row to row, and from part to part */
    int a_parts, w_parts, cols;
    int64_t steps;
    bool streams;         /* weights come from memory, not from a cache */
    const uint8_t *ahead; /* what is read next, to be fetched meanwhile from memory; .. */
    int64_t ahead_lines;  /* .. so many cache lines, 0: none */
    void *c;              /* f32 or i32 */
    int64_t ldc;
    bool accumulate;
    bool one_pass; /* c has the rows of one pass, whose sums are taken before the next */
    int64_t pairs; /* of K in all steps that are not filled up with 0; floats of one part */
} MatrixProduct;

/* What a processor with matrix units, or products of pairs, does in them. A thread calls nothing
 * else of it outside of begin and end. */
typedef struct CpuMatrix {
    int most_parts; /* of a format that is multiplied as a sum of bf16 */
    bool folds;     /* scales of e4m3 are multiplied into weights */
    int64_t few_nibbles, few_bytes, few_halves; /* rows of products that few_rows likes to do */
    int64_t few_often;                          /* .. of nibbles where cpu_is_wide(); 0: as many */
    bool crosses; /* elements i and i + 4 of eight of K in nibbles are a pair, not neighbours */
    void (*begin)(void);
    void (*end)(void);
    /* as CpuKernels.dot_i32; NULL: that does integers */
    void (*dot_i32)(int64_t rows, const uint8_t *a, int64_t lda, const int8_t *w, int cols,
                    int64_t units, int32_t *c, int64_t ldc, bool accumulate,
                    const BlockFinish *finish, const uint8_t *ahead);
    void (*dot_bf16)(const MatrixProduct *p, int64_t rows, const BlockFinish *finish);
    void (*decode)(const MatrixDecode *d);
    /* false: dot_bf16 must do it; the bits are the same */
    bool (*few_rows)(const MatrixFew *f);
    /* activations to parts; widens the range of their exponents */
    void (*split)(const float *x, int parts, uint16_t *dst, int64_t part_step, int64_t num,
                  ExponentRange *exponent);
} CpuMatrix;

static inline bool matrix_has_integers(const CpuMatrix *matrix)
{
    return matrix && matrix->dot_i32;
}

typedef struct CpuKernels {
    const CpuMatrix *matrix; /* may be NULL */
    int column_bytes; /* of a column of weights that stay in a cache while rows pass by; 0: few */
    int float_k;      /* of K of f32 weights that dot_f32 likes at a time; 0: CHUNK_K */
    /* c[rows, cols] (+)= a[rows, units * 4] * w, w as [units][cols][4], cols a multiple of 16; then
     * finish unless NULL. Unless `ahead` is NULL, as many bytes as w has are read there next */
    void (*dot_i32)(int64_t rows, const uint8_t *a, int64_t lda, const int8_t *w, int cols,
                    int64_t units, int32_t *c, int64_t ldc, bool accumulate,
                    const BlockFinish *finish, const uint8_t *ahead);
    /* dot_i32 for w as [k][cols] */
    void (*dot_f32)(int64_t rows, const float *a, int64_t lda, const float *w, int cols, int64_t k,
                    float *c, int64_t ldc, bool accumulate, const BlockFinish *finish);
    /* [units][cols][4] nibbles to [2 * units][cols][4] bytes */
    void (*decode_i4)(const uint8_t *src, int cols, int64_t units, int8_t *dst);
    /* the same, less their zero points and times their factors */
    void (*decode_factored)(const uint8_t *src, const uint8_t *factor, int cols, int64_t units,
                            int8_t *dst);
    /* fields_open of numerics/fields.h */
    void (*open_fields)(int bits, const FieldsMap *map, const uint8_t *src, uint64_t num,
                        uint8_t *dst);
    /* units of a float-class weight to [units * unit][cols] f32, zero points subtracted; tables
     * where codes are looked up, else NULL */
    void (*decode_f32)(FormatId fmt, const uint8_t *src, int cols, int64_t units,
                       const int32_t *zero, const CodeTables *tables, float *dst);
    /* the words of a record, widened. Those that the record lacks are left */
    void (*decode_words)(const PackLayout *l, const PackBlock *b, int cols, BlockWords *words);
    /* all blocks of a panel, the bits of decode_f32 and dot_f32; may be NULL */
    void (*direct)(const DirectPanel *d);
    /* units of a block that meets e2m1 to digits, which direct multiplies; may be NULL */
    FixedBlock (*fix)(const float *x, int64_t units, int8_t *dst);
    /* the same for the integer class, of up to so many rows; may be NULL */
    void (*direct_i4)(const DirectNibbles *d);
    int direct_i4_rows;

    /* Rows of tiles */
    void (*load)(FormatId fmt, const void *src, float *dst, int64_t num);
    void (*store)(FormatId fmt, const float *src, void *dst, int64_t num);
    void (*round)(FormatId fmt, const float *src, float *dst, int64_t num);
    void (*elementwise)(int op, RowArg a, RowArg b, float *dst, int64_t num); /* TileOp */
    void (*arith_i32)(int op, RowArgI32 a, RowArgI32 b, int32_t *dst, int64_t num);
    void (*i32_to_f32)(const int32_t *src, float *dst, int64_t num);
    void (*dequantise)(FormatId fmt, const uint8_t *codes, float scale, int32_t zero, float *dst,
                       int64_t num);
    void (*quantise)(FormatId fmt, bool has_zero, float inverse, int32_t zero, const float *src,
                     uint8_t *codes, int64_t num);
    void (*range)(const float *src, int64_t num, bool keeps_nan, RowRange *range); /* widens */
    int32_t (*outer_bits)(const float *src, int64_t num);
    int32_t (*code_sum)(FormatId fmt, const uint8_t *codes, int64_t num);
    /* activation codes to u8 with the offset of the integer class; returns their sum */
    int32_t (*widen_codes)(FormatId fmt, const uint8_t *codes, uint8_t *dst, int64_t num);
    void (*rmsnorm)(const float *x, const float *weight, float eps, float *dst, int64_t num);
    void (*layernorm)(const float *x, const float *weight, const float *bias, float eps, float *dst,
                      int64_t num);
    void (*softmax)(const float *x, float *dst, int64_t num);
} CpuKernels;

extern const CpuKernels cpu_kernels_portable, cpu_kernels_avx2, cpu_kernels_avxvnni,
    cpu_kernels_avx512, cpu_kernels_avx512bf16, cpu_kernels_amx;
extern const CpuMatrix cpu_matrix_bf16, cpu_matrix_amx;
const CpuKernels *cpu_kernels(void); /* of cpu_isa() */

/* How this processor likes to be asked for what will be read in order. */
typedef enum CpuFetch {
    FETCH_NONE,  /* not at all */
    FETCH_LINES, /* line after line, far ahead */
    FETCH_PAGES  /* lines of several pages in turn */
} CpuFetch;
CpuFetch cpu_fetch(void);
/* Does it begin two shifts, or two products of pairs of bf16, of whole vectors in a cycle? */
bool cpu_is_wide(void);

/* dot_i32 of cpu_kernels_avxvnni without the end of the block; kernels_avxvnni.c */
void cpu_dot_i32_avxvnni(int64_t rows, const uint8_t *a, int64_t lda, const int8_t *w, int cols,
                         int64_t units, int32_t *c, int64_t ldc, bool accumulate);

/* direct and direct_i4 of both; kernels_avx2_few.c, kernels_avx2_nibbles.c */
void cpu_direct_avx2(const DirectPanel *d);
void cpu_direct_i4_avx2(const DirectNibbles *d);
/* fix of both; kernels_avx2_fixed.c */
FixedBlock cpu_fix_avx2(const float *x, int64_t units, int8_t *dst);

#define NO_RANGE ((RowRange){0, INT32_MAX, INT32_MIN})

#endif
