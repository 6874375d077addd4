/* The numbers contract: every scalar step of every kernel, once, compiled by the C compiler for the
 * CPU (and its vector loops) and by NVRTC for the GPU. See docs/numerics.md.
 *
 * Rules: f32 throughout; round to nearest even; fused multiply-add only where written (num_fma);
 * built with contraction off and without fast-math on both sides; denormals are kept. The steps
 * have no branches, so a loop over them vectorises and gives the same bits at every width. Which
 * bits a NaN has is not part of the contract, only that it is one. */
#ifndef SINTER_NUMERICS_H
#define SINTER_NUMERICS_H

#ifdef __CUDACC_RTC__
#define NUM_FN    static __device__ __forceinline__
#define NUM_TABLE static __device__ constexpr
#else
#include <math.h>
#include <stdint.h>
#define NUM_FN    static inline __attribute__((always_inline))
#define NUM_TABLE static const
#endif

typedef enum FormatId {
    FMT_NONE,
#define FORMAT(ID, name, bits, family, is_signed, exp, man, bias, qmin, qmax) FMT_##ID,
#include "numerics/formats.def"
#undef FORMAT
    NUM_FORMATS
} FormatId;

typedef enum FormatFamily {
    FAMILY_FLOAT,
    FAMILY_INT,
    FAMILY_MINIFLOAT,
    FAMILY_CODEBOOK
} FormatFamily;

/* Bits ----------------------------------------------------------------------------------------- */

NUM_FN unsigned num_bits(float x)
{
    union {
        float f;
        unsigned u;
    } pun;
    pun.f = x;
    return pun.u;
}

NUM_FN float num_float(unsigned bits)
{
    union {
        float f;
        unsigned u;
    } pun;
    pun.u = bits;
    return pun.f;
}

#define NUM_INF_BITS   0x7f800000
#define NUM_SIGN_BIT   0x80000000u
#define NUM_MIN_NORMAL 1.17549435e-38f
#define NUM_MAX_FINITE 3.40282347e+38f
#define NUM_NAN_BITS   0x7fc00000u
/* Adding 1.5 * 2^23 leaves the nearest integer (ties to even) in the low bits. */
#define NUM_RNE_MAGIC 12582912.0f

NUM_FN float num_fma(float a, float b, float c)
{
    return fmaf(a, b, c);
}

NUM_FN float num_sqrt(float x)
{
    return sqrtf(x);
}

NUM_FN int num_abs_bits(float x)
{
    return (int)(num_bits(x) & 0x7fffffffu);
}

NUM_FN float num_abs(float x)
{
    return num_float(num_bits(x) & 0x7fffffffu);
}

/* Nearest integer, ties to even; |x| <= 2^21. */
NUM_FN int num_rne(float x)
{
    return (int)(num_bits(x + NUM_RNE_MAGIC) - num_bits(NUM_RNE_MAGIC));
}

/* 1 / b for b from 1 to 2^40, rounded. On a GPU the steps of `rcp.rn` without its branch for those
 * b whose reciprocal is not normal: an approximation, and what it leaves over once (P. Markstein,
 * "Computation of elementary functions on the IBM RISC System/6000 processor", 1990). */
NUM_FN float num_reciprocal(float b)
{
#ifdef __CUDACC_RTC__
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(b));
    return num_fma(num_fma(-b, r, 1.0f), r, r);
#else
    return 1.0f / b;
#endif
}

/* Functions ----------------------------------------------------------------------------------- */

/* e^x = 2^i e^r, |r| < 0.35, for -170 <= x <= 89: returns r. */
NUM_FN float num_exp_reduce(float x, int *i)
{
    float t = num_fma(x, 0x1.715476p+0f, NUM_RNE_MAGIC);
    float n = t - NUM_RNE_MAGIC;
    *i = (int)(num_bits(t) - num_bits(NUM_RNE_MAGIC));
    float r = num_fma(n, -0x1.62e430p-1f, x);
    return num_fma(n, 0x1.05c610p-29f, r);
}

/* e^r - 1 for |r| < 0.35. */
NUM_FN float num_exp_rest(float r)
{
    float p = 0x1.6a23ccp-10f;
    p = num_fma(p, r, 0x1.123a20p-7f);
    p = num_fma(p, r, 0x1.5558f2p-5f);
    p = num_fma(p, r, 0x1.555492p-3f);
    p = num_fma(p, r, 0x1.fffffcp-2f);
    return num_fma(r * r, p, r);
}

/* 2^i, normal. */
NUM_FN float num_power(int i)
{
    return num_float((unsigned)(i + 127) << 23);
}

NUM_FN float num_exp(float x)
{
    int i;
    float c = x < -170.0f ? -170.0f : x;
    float m = 1.0f + num_exp_rest(num_exp_reduce(c > 89.0f ? 89.0f : c, &i));
    return m * num_power(i >> 1) * num_power(i - (i >> 1)); /* a denormal one rounds once */
}

/* What follows takes e^x, -115 <= x <= 60, times 2^40: a normal number, into which further factors
 * are multiplied before a denormal result rounds, once. */
#define NUM_UP   40
#define NUM_DOWN 0x1p-40f

/* e^x * 2^40. */
NUM_FN float num_exp_up(float x)
{
    int i;
    float t = num_exp_rest(num_exp_reduce(x, &i));
    return (1.0f + t) * num_power(i + NUM_UP);
}

NUM_FN float num_relu(float x)
{
    return x <= 0.0f ? 0.0f : x;
}

/* A NaN on either side stays one. */
NUM_FN float num_min(float a, float b)
{
    float least = a < b ? a : b;
    return a != a ? a : least;
}

NUM_FN float num_max(float a, float b)
{
    float most = a > b ? a : b;
    return a != a ? a : most;
}

/* Nearest integer, ties to even, as a float of the same sign. From 2^23 on all are integers. */
NUM_FN float num_round(float x)
{
    float a = num_abs(x);
    float near = (a + 8388608.0f) - 8388608.0f;
    float r = a < 8388608.0f ? near : a;
    return num_float(num_bits(r) | (num_bits(x) & NUM_SIGN_BIT));
}

NUM_FN float num_tanh(float x)
{
    float a = num_abs(x);
    float z = a * a;
    float p = -0x1.75e1a8p-8f;
    p = num_fma(p, z, 0x1.522692p-6f);
    p = num_fma(p, z, -0x1.b83c58p-5f);
    p = num_fma(p, z, 0x1.110726p-3f);
    p = num_fma(p, z, -0x1.555532p-2f);
    float near = num_fma(a * z, p, a);
    float m = num_exp_up(a > 10.0f ? 20.0f : a + a);
    float far = 1.0f - 2.0f * num_reciprocal(num_fma(m, NUM_DOWN, 1.0f));
    float t = a < 0.625f ? near : far;
    return num_float(num_bits(t) | (num_bits(x) & NUM_SIGN_BIT));
}

/* x / (1 + e^v) for x >= 0 and x * e^v / (1 + e^v) else, where e^v = m / 2^40 <= 1 and a = |x|,
 * bounded. */
NUM_FN float num_gate(float x, float a, float m)
{
    float num = x < 0.0f ? -(a * m) : x;
    float scale = x < 0.0f ? NUM_DOWN : 1.0f;
    return num * num_reciprocal(num_fma(m, NUM_DOWN, 1.0f)) * scale;
}

NUM_FN float num_sigmoid(float x)
{
    float a = num_abs(x);
    float m = num_exp_up(a > 115.0f ? -115.0f : -a);
    float num = x < 0.0f ? m : 1.0f;
    float scale = x < 0.0f ? NUM_DOWN : 1.0f;
    return num * num_reciprocal(num_fma(m, NUM_DOWN, 1.0f)) * scale;
}

NUM_FN float num_silu(float x)
{
    float a = num_abs(x);
    a = a > 115.0f ? 115.0f : a;
    return num_gate(x, a, num_exp_up(-a));
}

/* x * P(X <= x) of the normal distribution. The tail Q(a) = P(X > a) = e^(-a^2/2) * g / (a + 2.5)
 * with g smooth: a polynomial in (a - 2.5) / (a + 2.5). Nothing cancels for negative x.
 * Near 0 an odd polynomial is more exact. */
NUM_FN float num_gelu(float x)
{
    float a = num_abs(x);
    a = a > 15.0f ? 15.0f : a;
    float d = a + 2.5f;
    float w = num_reciprocal(d);
    float w_err = num_fma(d - 2.5f - a, w, num_fma(-w, d, 1.0f)); /* true w = w (1 + w_err) */
    float u = (a - 2.5f) * w;
    float g = -0x1.6b7f0cp-16f;
    g = num_fma(g, u, -0x1.88f784p-13f);
    g = num_fma(g, u, -0x1.30d8dap-12f);
    g = num_fma(g, u, 0x1.79ac28p-11f);
    g = num_fma(g, u, 0x1.4a0676p-9f);
    g = num_fma(g, u, -0x1.a7803ap-10f);
    g = num_fma(g, u, -0x1.0c7670p-6f);
    g = num_fma(g, u, 0x1.2eb700p-7f);
    g = num_fma(g, u, 0x1.0e4f2ep-3f);
    g = num_fma(g, u, -0x1.bc19c8p-2f);
    g = num_fma(g, u, 0x1.69cee6p-1f);
    float sq = a * a;
    float sq_lo = num_fma(a, a, -sq);
    int i;
    float r = num_exp_reduce(-0.5f * sq, &i);
    float t = num_exp_rest(r + num_fma(-0.5f, sq_lo, w_err));
    float q = num_fma(g, t, g) * w * num_power(i + NUM_UP);
    float p = -0x1.012f16p-17f;
    p = num_fma(p, sq, 0x1.dc1b48p-14f);
    p = num_fma(p, sq, -0x1.36fecep-10f);
    p = num_fma(p, sq, 0x1.46ce5ep-7f);
    p = num_fma(p, sq, -0x1.105832p-4f);
    p = num_fma(p, sq, 0x1.988454p-2f);
    float near = x * num_fma(x, p, 0.5f);
    float below = -(a * q) * NUM_DOWN;
    float above = x * num_fma(-q, NUM_DOWN, 1.0f);
    float far = x < 0.0f ? below : above;
    return a < 1.0f ? near : far;
}

/* 0.5 x (1 + tanh v/2) = x * sigmoid(v), v = x * (c1 + c2 x^2) carried as v + v_lo. */
NUM_FN float num_gelu_tanh(float x)
{
    float a = num_abs(x);
    a = a > 11.0f ? 11.0f : a;
    float sq = a * a;
    float sq_lo = num_fma(a, a, -sq);
    float p = 0x1.2444f2p-4f * sq;
    float p_lo = num_fma(0x1.2444f2p-4f, sq, -p);
    p_lo = num_fma(0x1.49b16ap-29f, sq, num_fma(0x1.2444f2p-4f, sq_lo, p_lo));
    float w = 0x1.988454p+0f + p;
    float back = w - 0x1.988454p+0f;
    float w_lo = (0x1.988454p+0f - (w - back)) + (p - back);
    w_lo = w_lo + (p_lo - 0x1.857936p-25f);
    float v = a * w;
    float v_lo = num_fma(a, w_lo, num_fma(a, w, -v));
    int i;
    float t = num_exp_rest(num_exp_reduce(-v, &i) - v_lo);
    return num_gate(x, a, (1.0f + t) * num_power(i + NUM_UP));
}

/* Conversions --------------------------------------------------------------------------------- */

/* Nearest code, ties to even, of a format with `man` mantissa bits and that bias; magnitudes beyond
 * max_code become it. The sign goes to bit sign_at; a NaN becomes nan_code. */
NUM_FN unsigned num_to_minifloat(float x, int man, int bias, int max_code, unsigned nan_code,
                                 int sign_at)
{
    int a = num_abs_bits(x);
    int shift = 23 - man;
    int normal =
        (int)(((unsigned)a + ((1u << (shift - 1)) - 1) + ((unsigned)(a >> shift) & 1u)) >> shift) -
        ((127 - bias) << man);
    /* below the smallest normal: let an addition round at the format's smallest step */
    unsigned magic = (unsigned)(151 - bias - man) << 23;
    int sub = (int)(num_bits(num_float((unsigned)a) + num_float(magic)) - magic);
    int code = a < (128 - bias) << 23 ? sub : normal;
    code = code > max_code ? max_code : code;
    unsigned coded = (unsigned)code | (num_bits(x) >> 31) << sign_at;
    return a > NUM_INF_BITS ? nan_code : coded;
}

/* Magnitude of a code without its sign, infinities and NaN not treated. */
NUM_FN float num_from_minifloat(unsigned code, int man, int bias)
{
    unsigned bits = (code << (23 - man)) + ((unsigned)(127 - bias) << 23);
    float sub = num_float(bits + (1u << 23)) - num_float((unsigned)(128 - bias) << 23);
    return code >> man ? num_float(bits) : sub;
}

NUM_FN float num_with_sign(float magnitude, unsigned sign)
{
    return num_float(num_bits(magnitude) | sign << 31);
}

/* f16 and bf16 overflow to infinity, as IEEE 754 and the hardware do. */
NUM_FN unsigned num_to_f16(float x)
{
    return num_to_minifloat(x, 10, 15, 0x7c00, 0x7e00, 15);
}

NUM_FN float num_from_f16(unsigned h)
{
    unsigned a = h & 0x7fffu;
    float finite = num_from_minifloat(a, 10, 15);
    float special = num_float((a << 13) | 0x7f800000u);
    return num_with_sign(a >= 0x7c00u ? special : finite, (h >> 15) & 1u);
}

NUM_FN unsigned num_to_bf16(float x)
{
    unsigned u = num_bits(x);
    unsigned rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    return num_abs_bits(x) > NUM_INF_BITS ? 0x7fc0u : rounded;
}

NUM_FN float num_from_bf16(unsigned h)
{
    return num_float(h << 16);
}

/* The 8-bit minifloats saturate: infinities too become the largest finite code. */
NUM_FN unsigned num_to_e4m3(float x)
{
    return num_to_minifloat(x, 3, 7, 0x7e, 0x7f, 7);
}

NUM_FN float num_from_e4m3(unsigned c)
{
    unsigned a = c & 0x7fu;
    float finite = num_from_minifloat(a, 3, 7);
    return num_with_sign(a == 0x7fu ? num_float(NUM_NAN_BITS) : finite, (c >> 7) & 1u);
}

NUM_FN unsigned num_to_e5m2(float x)
{
    return num_to_minifloat(x, 2, 15, 0x7b, 0x7f, 7);
}

NUM_FN float num_from_e5m2(unsigned c)
{
    return num_from_f16((c & 0xffu) << 8);
}

/* No NaN in this format: it becomes code 0 and the caller marks the block's scale. */
NUM_FN unsigned num_to_e2m1(float x)
{
    return num_to_minifloat(x, 1, 1, 7, 0, 3);
}

NUM_FN float num_from_e2m1(unsigned c)
{
    return num_with_sign(num_from_minifloat(c & 7u, 1, 1), (c >> 3) & 1u);
}

/* Powers of two 2^-127 .. 2^127, 0xff = NaN. Rounds |x| down to one. */
NUM_FN unsigned num_to_e8m0(float x)
{
    int a = num_abs_bits(x);
    int code = a >> 23;
    code = code > 254 ? 254 : code;
    return a > NUM_INF_BITS ? 0xffu : (unsigned)code;
}

NUM_FN float num_from_e8m0(unsigned c)
{
    unsigned power = c == 0 ? 0x00400000u : c << 23;
    return num_float(c == 255u ? NUM_NAN_BITS : power);
}

NUM_TABLE float num_nf4_value[16] = {-1.0f,        -0.69619280f, -0.52507305f,  -0.39491749f,
                                     -0.28444138f, -0.18477343f, -0.091050036f, 0.0f,
                                     0.079580300f, 0.16093020f,  0.24611230f,   0.33791524f,
                                     0.44070983f,  0.56261700f,  0.72295684f,   1.0f};
/* The two-exponent-bit codebook of bitsandbytes, not e2m1: sign and one of eight magnitudes. */
NUM_TABLE float num_fp4_value[8] = {0.0f,        0.0052083335f, 0.66666669f, 1.0f,
                                    0.33333334f, 0.5f,          0.16666667f, 0.25f};

/* Nearest of the codebook; a value midway goes to the lower one, NaN to code 0. */
NUM_FN unsigned num_to_nf4(float x)
{
    unsigned c = x > -0.84809640f;
    c += x > -0.61063290f;
    c += x > -0.45999527f;
    c += x > -0.33967942f;
    c += x > -0.23460740f;
    c += x > -0.13791174f;
    c += x > -0.045525018f;
    c += x > 0.039790150f;
    c += x > 0.12025525f;
    c += x > 0.20352125f;
    c += x > 0.29201376f;
    c += x > 0.38931254f;
    c += x > 0.50166345f;
    c += x > 0.64278690f;
    c += x > 0.86147845f;
    return c;
}

NUM_FN float num_from_nf4(unsigned c)
{
    return num_nf4_value[c & 15u];
}

/* Nearest magnitude, midway to the smaller. */
NUM_FN unsigned num_to_fp4(float x)
{
    float a = num_abs(x);
    unsigned rank = a > 0.0026041667f;
    rank += a > 0.0859375f;
    rank += a > 0.20833334f;
    rank += a > 0.2916667f;
    rank += a > 0.4166667f;
    rank += a > 0.5833334f;
    rank += a > 0.8333334f;
    unsigned code = (0x32547610u >> (4u * rank)) & 7u;
    return code | (x < 0.0f ? 8u : 0u);
}

NUM_FN float num_from_fp4(unsigned c)
{
    return num_with_sign(num_fp4_value[c & 7u], (c >> 3) & 1u);
}

/* Code of t = x * inverse scale for an integer format: round, add the zero point, clamp to
 * qmin..qmax. A NaN becomes the zero point; where scales are dynamic, the block's scale is NaN.
 * Stored zero points may be any integers: sums with them wrap. */
NUM_FN int num_to_int(float t, int zero, int qmin, int qmax)
{
    float lo = (float)(int)((unsigned)qmin - (unsigned)zero);
    float hi = (float)(int)((unsigned)qmax - (unsigned)zero);
    float c = t != t ? 0.0f : t;
    c = c < lo ? lo : c;
    c = c > hi ? hi : c;
    return (int)((unsigned)num_rne(c) + (unsigned)zero);
}

/* The same for an integer format by name: the codes of `binary` are -1 and 1, and none between. */
NUM_FN int num_int_code(int fmt, float t, int zero, int qmin, int qmax)
{
    int code = num_to_int(t, zero, qmin, qmax);
    return fmt == FMT_BINARY ? (t < 0.0f ? -1 : 1) : code;
}

/* The format that holds codes of `fmt` in memory and in products: integers that fill neither a
 * nibble nor a byte are extended to one, which changes no value. Others hold themselves. */
NUM_FN int num_holder(int fmt)
{
    switch (fmt) {
#define FORMAT(ID, name, bits, family, is_signed, exp_bits, man_bits, bias, qmin, qmax)  \
    case FMT_##ID:                                                                       \
        return FAMILY_##family != FAMILY_INT || bits > 8 ? FMT_##ID                      \
               : bits > 4                                ? (is_signed ? FMT_I8 : FMT_U8) \
                                                         : (is_signed ? FMT_I4 : FMT_U4);
#include "numerics/formats.def"
#undef FORMAT
    default: return fmt;
    }
}

NUM_FN int num_code_bits(int fmt)
{
    switch (fmt) {
#define FORMAT(ID, name, bits, family, is_signed, exp_bits, man_bits, bias, qmin, qmax) \
    case FMT_##ID:                                                                      \
        return bits;
#include "numerics/formats.def"
#undef FORMAT
    default: return 0;
    }
}

/* Code of t in a minifloat or codebook format (constant fmt: folds to one of them). */
NUM_FN unsigned num_encode(int fmt, float t)
{
    switch (fmt) {
    case FMT_E4M3: return num_to_e4m3(t);
    case FMT_E5M2: return num_to_e5m2(t);
    case FMT_E2M1: return num_to_e2m1(t);
    case FMT_E8M0: return num_to_e8m0(t);
    case FMT_NF4: return num_to_nf4(t);
    case FMT_FP4: return num_to_fp4(t);
    case FMT_F16: return num_to_f16(t);
    case FMT_BF16: return num_to_bf16(t);
    default: return 0;
    }
}

/* Value of one code of any format of at most 16 bits, as its holder has it; integers without their
 * zero point. */
NUM_FN float num_decode(int fmt, unsigned c)
{
    switch (num_holder(fmt)) {
    case FMT_E4M3: return num_from_e4m3(c);
    case FMT_E5M2: return num_from_e5m2(c);
    case FMT_E2M1: return num_from_e2m1(c);
    case FMT_E8M0: return num_from_e8m0(c);
    case FMT_NF4: return num_from_nf4(c);
    case FMT_FP4: return num_from_fp4(c);
    case FMT_F16: return num_from_f16(c);
    case FMT_BF16: return num_from_bf16(c);
    case FMT_I8: return (float)((int)((c & 0xffu) ^ 0x80u) - 0x80);
    case FMT_U8: return (float)(c & 0xffu);
    case FMT_I4: return (float)((int)((c & 0xfu) ^ 0x8u) - 0x8);
    case FMT_U4: return (float)(c & 0xfu);
    default: return 0.0f;
    }
}

/* x rounded to a plain format and back. */
NUM_FN float num_round_f16(float x)
{
    return num_from_f16(num_to_f16(x));
}

NUM_FN float num_round_bf16(float x)
{
    return num_from_bf16(num_to_bf16(x));
}

/* Where there are instructions, they have the same values; of a NaN other bits. */
#ifdef __CUDA_ARCH__
#if __CUDA_ARCH__ >= 890
#define NUM_HAS_E4M3 1
#endif
#endif
NUM_FN float num_round_e4m3(float x)
{
#ifdef NUM_HAS_E4M3
    float ret;
    asm("{\n"
        ".reg .b16 code, low, high;\n"
        ".reg .b32 pair;\n"
        "cvt.rn.satfinite.e4m3x2.f32 code, 0f00000000, %1;\n"
        "cvt.rn.f16x2.e4m3x2 pair, code;\n"
        "mov.b32 {low, high}, pair;\n"
        "cvt.f32.f16 %0, low;\n"
        "}"
        : "=f"(ret)
        : "f"(x));
    return ret;
#else
    return num_from_e4m3(num_to_e4m3(x));
#endif
}

/* Scales ------------------------------------------------------------------------------------------
 *
 * One formula everywhere: code = to_format(x * num_inverse(scale)), value = code * scale, where
 * scale is the block's scale times the outer one (num_scale_effective). The range of a block is
 * gathered as integers, so the order does not matter and a NaN shows: the largest num_abs_bits for
 * symmetric schemes, smallest and largest num_order_key for asymmetric ones. */

NUM_FN float num_qmax(int fmt)
{
    switch (fmt) {
#define FORMAT(ID, name, bits, family, is_signed, exp, man, bias, qmin, qmax) \
    case FMT_##ID:                                                            \
        return (float)qmax;
#include "numerics/formats.def"
#undef FORMAT
    default: return 0.0f;
    }
}

/* Clamp of integer codes: symmetric ones leave the lowest code unused. */
NUM_FN int num_code_max(int fmt)
{
    return (int)num_qmax(fmt);
}

NUM_FN int num_code_min(int fmt, int has_zero)
{
    int holder = num_holder(fmt);
    return holder == FMT_U8 || holder == FMT_U4 ? 0 : -num_code_max(fmt) - (has_zero ? 1 : 0);
}

/* Formats that can store a NaN keep it in its element; elsewhere it poisons its block. */
NUM_FN int num_has_nan(int fmt)
{
    return fmt == FMT_E4M3 || fmt == FMT_E5M2;
}

/* What an element adds to the largest magnitude of its block (integer maximum). */
NUM_FN int num_amax_bits(float x, int has_nan)
{
    int a = num_abs_bits(x);
    return has_nan && a > NUM_INF_BITS ? 0 : a;
}

/* The same for the outer scale of a whole tensor: only finite elements count. */
NUM_FN int num_outer_bits(float x)
{
    int a = num_abs_bits(x);
    return a >= NUM_INF_BITS ? 0 : a;
}

/* Integers in the order of the floats, NaNs outside the infinities, and back. */
NUM_FN int num_order_key(float x)
{
    int i = (int)num_bits(x);
    return i ^ ((i >> 31) & 0x7fffffff);
}

NUM_FN float num_order_value(int key)
{
    return num_float((unsigned)(key ^ ((key >> 31) & 0x7fffffff)));
}

NUM_FN float num_inverse(float scale)
{
    return 1.0f / (scale < 0x1p-127f ? 0x1p-127f : scale);
}

NUM_FN float num_scale_effective(float scale, float outer)
{
    return scale * outer;
}

/* A scale rounded to its format; never zero, never infinite, NaN kept. */
NUM_FN float num_scale_round(int scale_fmt, float s)
{
    switch (scale_fmt) {
    case FMT_F16:
        s = num_round_f16(s > 65504.0f ? 65504.0f : s);
        return s < 0x1p-24f ? 0x1p-24f : s;
    case FMT_BF16:
        s = num_round_bf16(s > 0x1.fep+127f ? 0x1.fep+127f : s);
        return s < NUM_MIN_NORMAL ? NUM_MIN_NORMAL : s;
    case FMT_E4M3: s = num_round_e4m3(s); return s < 0x1p-9f ? 0x1p-9f : s;
    case FMT_E8M0: return num_from_e8m0(num_to_e8m0(s));
    default: return s < NUM_MIN_NORMAL ? NUM_MIN_NORMAL : s;
    }
}

/* A scale lowered, if it must be, so that `codes` times it stays finite: to just below
 * FLT_MAX / codes. */
NUM_FN float num_scale_finite(int scale_fmt, float s, float codes)
{
    unsigned low = num_bits(NUM_MAX_FINITE / codes) - 1;
    low = scale_fmt == FMT_BF16 ? low & 0xffff0000u : low;
    return num_abs_bits(s * codes) == NUM_INF_BITS ? num_float(low) : s;
}

/* Largest exponent of a format's values: floor(log2(qmax)). */
NUM_FN int num_emax(int fmt)
{
    return (int)(num_bits(num_qmax(fmt)) >> 23) - 127;
}

/* Outer scale of a tensor whose largest finite magnitude has these bits: it brings the block scales
 * (e4m3) to at most 448. */
NUM_FN float num_outer(int fmt, int outer_bits)
{
    float s = num_float((unsigned)outer_bits) / (448.0f * num_qmax(fmt));
    s = s < NUM_MIN_NORMAL ? NUM_MIN_NORMAL : s;
    if (num_abs_bits(448.0f * s * num_qmax(fmt)) == NUM_INF_BITS)
        s = num_float(num_bits(s) - 4);
    return outer_bits < 0x00800000 ? 1.0f : s;
}

/* Scale of a symmetric block. Zero (or denormal) blocks: 1, or of `binary`, which has no code 0,
 * the smallest; an infinity, or a NaN that has no code: NaN. e8m0 scales follow the OCP rule
 * 2^(floor(log2 amax) - emax). */
NUM_FN float num_scale_sym(int fmt, int scale_fmt, int amax_bits, float outer)
{
    float s = num_scale_round(scale_fmt, num_float((unsigned)amax_bits) / num_qmax(fmt) / outer);
    if (scale_fmt == FMT_E8M0) {
        int power = (amax_bits >> 23) - num_emax(fmt);
        s = num_from_e8m0(power < 0 ? 0u : (unsigned)power);
    }
    s = num_scale_finite(scale_fmt, s, num_qmax(fmt));
    float nothing = fmt == FMT_BINARY ? num_scale_round(scale_fmt, 0.0f) : 1.0f;
    s = amax_bits < 0x00800000 ? nothing : s;
    return amax_bits >= NUM_INF_BITS ? num_float(NUM_NAN_BITS) : s;
}

/* Scale and zero point of an asymmetric block whose elements' keys span lo_key..hi_key; the range
 * is widened to hold 0. */
NUM_FN float num_scale_asym(int fmt, int scale_fmt, int lo_key, int hi_key, int *zero)
{
    float lo = num_order_value(lo_key > 0 ? 0 : lo_key);
    float hi = num_order_value(hi_key < 0 ? 0 : hi_key);
    int qmin = num_code_min(fmt, 1), qmax = num_code_max(fmt);
    float half_steps = 0.5f * (float)(qmax - qmin);
    float s = num_scale_round(scale_fmt, (0.5f * hi - 0.5f * lo) / half_steps);
    int z = qmin + num_to_int(-lo * num_inverse(s), 0, 0, qmax - qmin);
    float amax = hi > -lo ? hi : -lo;
    int is_tiny = num_abs_bits(amax) < 0x00800000;
    int bad = num_abs_bits(lo) >= NUM_INF_BITS || num_abs_bits(hi) >= NUM_INF_BITS;
    *zero = is_tiny || bad ? 0 : z;
    s = num_scale_finite(scale_fmt, s, (float)(qmax - z > z - qmin ? qmax - z : z - qmin));
    s = is_tiny ? 1.0f : s;
    return bad ? num_float(NUM_NAN_BITS) : s;
}

#endif
