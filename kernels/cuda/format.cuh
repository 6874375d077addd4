/* Element formats on the device: how the eight consecutive codes that one lane holds of a row
 * become operands of the tensor cores. One trait a format and home:
 *
 *   Decode<FMT, HOME>::eight(raw, zero, out)
 *
 * raw: eight codes, 32 bits for 4-bit formats, 64 for 8-bit, 128 for 16-bit ones. out: four words;
 * for 16-bit homes word i holds codes 2i (low half) and 2i + 1; for bytes, words 0 and 1 hold codes
 * 0..3 and 4..7. Decoding is exact, but for codebooks (see Pieces). zero: an integer zero point
 * that is subtracted (16-bit homes of integers only).
 *
 * 4-bit codes are packed in the order that lets masks and shifts hand out neighbours (pack.c):
 * order_nibbles there says where each of eight lies. */
#ifndef SINTER_CUDA_FORMAT
#define SINTER_CUDA_FORMAT

#include "kernels/cuda/mma.cuh"

enum Home { HOME_I8, HOME_F16, HOME_BF16, HOME_F32 };

template <int FMT> struct Bits;
#define FORMAT(ID, name, bits, family, is_signed, exp, man, bias, qmin, qmax) \
    template <> struct Bits<FMT_##ID> {                                       \
        static constexpr int kBits = bits;                                    \
        static constexpr bool kSigned = is_signed;                            \
    };
#include "numerics/formats.def"
#undef FORMAT

template <int FMT> struct Codes8 { /* eight codes of a lane, in 32-bit words */
    static constexpr int kWords = Bits<FMT>::kBits / 4;
};
/* A lane's codes of four steps, of 1 to 3 bits (pack.h), as nibbles; signed ones are extended, and
 * binary ones are -1 where their bit is set, else 1. */
template <int BITS, bool SIGNED, bool BINARY>
__device__ __forceinline__ void open_nibbles(const uint32_t *word, uint32_t (&out)[4])
{
#pragma unroll
    for (int step = 0; step < 4; step++) {
        uint32_t v = 0;
        if constexpr (BITS & 2)
            v = word[step / 2] >> (step % 2 * 2) & 0x33333333u;
        if constexpr (BITS & 1)
            v |= (word[BITS - 1] >> step & 0x11111111u) << (BITS - 1);
        if constexpr (BINARY)
            v = v * 14 + 0x11111111u;
        else if constexpr (SIGNED) /* what fills the nibble above the highest bit; none carries */
            v += (v >> (BITS - 1) & 0x11111111u) * (16 - (1 << BITS));
        out[step] = v;
    }
}

/* Activations keep at least a byte a code. */
template <int FMT> struct ActBits {
    static constexpr int kBits = Bits<FMT>::kBits < 8 ? 8 : Bits<FMT>::kBits;
    static constexpr int kWords = kBits / 4;
};

template <int FMT, int HOME> struct Decode;

/* Bytes for the integer tensor cores. Signed 4-bit codes stay in the high nibble, so that a byte is
 * 16 times its code; the accumulator is shifted right by kShift once. */
template <> struct Decode<FMT_I8, HOME_I8> {
    static constexpr int kShift = 0;
    static __device__ __forceinline__ void eight(const uint32_t *raw, int, uint32_t (&out)[4])
    {
        out[0] = raw[0];
        out[1] = raw[1];
    }
};
template <> struct Decode<FMT_U8, HOME_I8> : Decode<FMT_I8, HOME_I8> {
};
template <> struct Decode<FMT_I4, HOME_I8> {
    static constexpr int kShift = 4;
    static __device__ __forceinline__ void eight(const uint32_t *raw, int, uint32_t (&out)[4])
    {
        out[0] = (raw[0] << 4) & 0xF0F0F0F0u;
        out[1] = raw[0] & 0xF0F0F0F0u;
    }
};
template <> struct Decode<FMT_U4, HOME_I8> {
    static constexpr int kShift = 0;
    static __device__ __forceinline__ void eight(const uint32_t *raw, int, uint32_t (&out)[4])
    {
        out[0] = raw[0] & 0x0F0F0F0Fu;
        out[1] = (raw[0] >> 4) & 0x0F0F0F0Fu;
    }
};

/* Nibbles less their zero point as signed bytes. */
template <int FMT> struct DecodeIntZero {
    static constexpr uint32_t kFlip = Bits<FMT>::kSigned ? 0x08080808u : 0;
    static __device__ __forceinline__ void eight(const uint32_t *raw, int zero, uint32_t (&out)[4])
    {
        const uint32_t minus = (uint32_t)(zero + (Bits<FMT>::kSigned ? 8 : 0)) * 0x01010101u;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            uint32_t code = bits_at(raw[0] >> (4 * i), 0x0F0F0F0Fu, kFlip);
            out[i] = ((code | 0x80808080u) - minus) ^ 0x80808080u; /* no byte borrows */
        }
    }
};

/* Integers as 16-bit floats: the code or'ed into the mantissa of 1024 (f16) or 128 (bf16) is that
 * number plus the code; subtracting is exact. Signed codes are flipped to offset binary first. */
template <int FMT> struct DecodeNibbleInt {
    static constexpr uint32_t kFlip = Bits<FMT>::kSigned ? 8 : 0;
    static __device__ __forceinline__ void f16(const uint32_t *raw, int zero, uint32_t (&out)[4])
    {
        uint32_t minus =
            pack_f16x2(-(float)(1024 + (int)kFlip + zero), -(float)(1024 + (int)kFlip + zero));
#pragma unroll
        for (int i = 0; i < 4; i++)
            out[i] = fma_f16x2(
                bits_at(raw[0] >> (4 * i), 0x000F000Fu, 0x64006400u | kFlip | kFlip << 16),
                0x3C003C00u, minus);
    }
    static __device__ __forceinline__ void bf16(const uint32_t *raw, int zero, uint32_t (&out)[4])
    {
        uint32_t minus =
            pack_bf16x2(-(float)(128 + (int)kFlip + zero), -(float)(128 + (int)kFlip + zero));
#pragma unroll
        for (int i = 0; i < 4; i++)
            out[i] = fma_bf16x2(
                bits_at(raw[0] >> (4 * i), 0x000F000Fu, 0x43004300u | kFlip | kFlip << 16),
                0x3F803F80u, minus);
    }
};
template <int FMT> struct DecodeByteInt {
    static constexpr uint32_t kFlip = Bits<FMT>::kSigned ? 0x80808080u : 0;
    static constexpr int kOffset = Bits<FMT>::kSigned ? 128 : 0;
    static __device__ __forceinline__ void f16(const uint32_t *raw, int zero, uint32_t (&out)[4])
    {
        uint32_t minus =
            pack_f16x2(-(float)(1024 + kOffset + zero), -(float)(1024 + kOffset + zero));
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t pair = __byte_perm(raw[i / 2] ^ kFlip, 0x64646464u, i % 2 ? 0x4342 : 0x4140);
            out[i] = fma_f16x2(pair, 0x3C003C00u, minus);
        }
    }
    static __device__ __forceinline__ void bf16(const uint32_t *raw, int zero, uint32_t (&out)[4])
    {
        float minus = 8388608.0f + (float)(kOffset + zero); /* 2^23 */
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t word = raw[i / 2] ^ kFlip;
            uint32_t lo = __byte_perm(word, 0x4B000000u, i % 2 ? 0x7442 : 0x7440);
            uint32_t hi = __byte_perm(word, 0x4B000000u, i % 2 ? 0x7443 : 0x7441);
            out[i] = pack_bf16x2(num_float(lo) - minus, num_float(hi) - minus);
        }
    }
};
#define SINTER_DECODE_INT(FMT, Trait)                                               \
    template <> struct Decode<FMT, HOME_F16> {                                      \
        static __device__ __forceinline__ void eight(const uint32_t *raw, int zero, \
                                                     uint32_t (&out)[4])            \
        {                                                                           \
            Trait<FMT>::f16(raw, zero, out);                                        \
        }                                                                           \
    };                                                                              \
    template <> struct Decode<FMT, HOME_BF16> {                                     \
        static __device__ __forceinline__ void eight(const uint32_t *raw, int zero, \
                                                     uint32_t (&out)[4])            \
        {                                                                           \
            Trait<FMT>::bf16(raw, zero, out);                                       \
        }                                                                           \
    };
SINTER_DECODE_INT(FMT_I4, DecodeNibbleInt)
SINTER_DECODE_INT(FMT_U4, DecodeNibbleInt)
SINTER_DECODE_INT(FMT_I8, DecodeByteInt)
SINTER_DECODE_INT(FMT_U8, DecodeByteInt)
#undef SINTER_DECODE_INT

/* Integers times kUnit, where a scale can make up for that. Of each 16 bits the codes at [3:0] and
 * [7:4] are taken where they lie, which spares two of three shifts of a word: the upper one counts
 * sixteen times as much, and the multiplication that is exact evens that out. In f16 both lie in
 * the mantissa of 1024. In bf16 the upper one's first bit is the last of the exponent, which below
 * 2^-125 is worth what it would be in the mantissa: numbers there are multiples of 2^-133. */
template <int FMT, int HOME> struct DecodeInUnit {
    static constexpr bool kIs = false;
    static constexpr float kUnit = 1.0f;
};
template <int FMT, int HOME> struct DecodeNibbleInUnit {
    static constexpr bool kIs = true;
    static constexpr bool kF16 = HOME == HOME_F16;
    static constexpr float kUnit = kF16 ? 1.0f : 0x1p-2f;
    static constexpr uint32_t kFlip = (Bits<FMT>::kSigned ? 8 : 0) * 0x00010001u;
    static constexpr uint32_t kLower = kFlip | (kF16 ? 0x64006400u : 0x43004300u);
    static constexpr uint32_t kUpper = kFlip << 4 | (kF16 ? 0x64006400u : 0);
    /* 2^0 and 2^-4, or 2^-2 and 2^127 */
    static constexpr uint32_t kLowerTimes = kF16 ? 0x3C003C00u : 0x3E803E80u;
    static constexpr uint32_t kUpperTimes = kF16 ? 0x2C002C00u : 0x7F007F00u;

    static __device__ __forceinline__ uint32_t pair(float value)
    {
        const uint32_t bits = num_bits(value); /* bf16 holds it */
        return kF16 ? pack_f16x2(value, value) : __byte_perm(bits, bits, 0x3232);
    }
    static __device__ __forceinline__ uint32_t fma(uint32_t x, uint32_t times, uint32_t plus)
    {
        return kF16 ? fma_f16x2(x, times, plus) : fma_bf16x2(x, times, plus);
    }
    static __device__ __forceinline__ void eight(const uint32_t *raw, int zero, uint32_t (&out)[4])
    {
        const int minus = (int)(kFlip & 15) + zero;
        const uint32_t lower = pair(-kUnit * (float)((kF16 ? 1024 : 128) + minus));
        const uint32_t upper = pair(-kUnit * (float)((kF16 ? 64 : 0) + minus));
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const uint32_t codes = raw[0] >> (8 * i);
            out[2 * i] = fma(bits_at(codes, 0x000F000Fu, kLower), kLowerTimes, lower);
            out[2 * i + 1] = fma(bits_at(codes, 0x00F000F0u, kUpper), kUpperTimes, upper);
        }
    }
};
/* Bytes in bf16, likewise at [7:0]. */
template <int FMT, int HOME> struct DecodeByteInUnit {
    static constexpr bool kIs = HOME == HOME_BF16;
    static constexpr float kUnit = kIs ? 0x1p-6f : 1.0f;
    static constexpr uint32_t kFlip = Bits<FMT>::kSigned ? 0x80808080u : 0;
    static __device__ __forceinline__ void eight(const uint32_t *raw, int zero, uint32_t (&out)[4])
    {
        const float minus = -kUnit * (float)((Bits<FMT>::kSigned ? 128 : 0) + zero);
#pragma unroll
        for (int i = 0; i < 4; i++)
            out[i] = fma_bf16x2(__byte_perm(raw[i / 2] ^ kFlip, 0, i % 2 ? 0x4342 : 0x4140),
                                0x7F007F00u, pack_bf16x2(minus, minus));
    }
};
template <int HOME> struct DecodeInUnit<FMT_I4, HOME> : DecodeNibbleInUnit<FMT_I4, HOME> {
};
template <int HOME> struct DecodeInUnit<FMT_U4, HOME> : DecodeNibbleInUnit<FMT_U4, HOME> {
};
template <int HOME> struct DecodeInUnit<FMT_I8, HOME> : DecodeByteInUnit<FMT_I8, HOME> {
};
template <int HOME> struct DecodeInUnit<FMT_U8, HOME> : DecodeByteInUnit<FMT_U8, HOME> {
};

/* Eight-bit floats. e5m2 is the high byte of an f16. e4m3: the hardware converts from compute
 * capability 8.9; before, the bits move to f16's place, 2^8 too small, and NaN is put back. */
template <> struct Decode<FMT_E5M2, HOME_F16> {
    static __device__ __forceinline__ void eight(const uint32_t *raw, int, uint32_t (&out)[4])
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            out[i] = __byte_perm(raw[i / 2], 0, i % 2 ? 0x3424 : 0x1404);
    }
};
template <> struct Decode<FMT_E4M3, HOME_F16> {
    static __device__ __forceinline__ void four(uint32_t codes, uint32_t &lo, uint32_t &hi)
    {
#if __CUDA_ARCH__ >= 890
        asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2;"
            " cvt.rn.f16x2.e4m3x2 %0, l; cvt.rn.f16x2.e4m3x2 %1, h; }"
            : "=r"(lo), "=r"(hi)
            : "r"(codes));
#else
        lo = pair(__byte_perm(codes, 0, 0x1404)); /* code in the high byte of each half */
        hi = pair(__byte_perm(codes, 0, 0x3424));
#endif
    }
    static __device__ __forceinline__ uint32_t pair(uint32_t spread)
    {
        uint32_t h = (spread & 0x80008000u) | ((spread & 0x7F007F00u) >> 1);
        uint32_t is_nan = ((spread & 0x7F007F00u) + 0x01000100u) & 0x80008000u;
        h = fma_f16x2(h, 0x5C005C00u, h & 0x80008000u); /* times 2^8, exact */
        return h | (is_nan >> 1) | (is_nan >> 2) | (is_nan >> 3) | (is_nan >> 4) | (is_nan >> 5) |
               (is_nan >> 6);
    }
    static __device__ __forceinline__ void eight(const uint32_t *raw, int, uint32_t (&out)[4])
    {
        four(raw[0], out[0], out[1]);
        four(raw[1], out[2], out[3]);
    }
};
/* e4m3 and e5m2 in bf16: both are exact there; by way of f16 and f32. */
template <int FMT> struct DecodeFloatThroughF16 {
    static __device__ __forceinline__ void eight(const uint32_t *raw, int, uint32_t (&out)[4])
    {
        uint32_t half[4];
        Decode<FMT, HOME_F16>::eight(raw, 0, half);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float lo, hi;
            asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }"
                : "=f"(lo), "=f"(hi)
                : "r"(half[i]));
            out[i] = pack_bf16x2(lo, hi);
        }
    }
};
template <> struct Decode<FMT_E4M3, HOME_BF16> : DecodeFloatThroughF16<FMT_E4M3> {
};
template <> struct Decode<FMT_E5M2, HOME_BF16> : DecodeFloatThroughF16<FMT_E5M2> {
};

/* e2m1: sign and three magnitude bits move to the float's place; the bias is made up by an exact
 * multiplication, or by that with a scale which is folded in. Not all by that, as a scale of e4m3
 * would overflow: sums are then multiplied, too. */
template <int HOME> struct RawE2m1 {
    static constexpr float kScaleTimes = HOME == HOME_F16 ? 0x1p6f : 0x1p118f, kSumsTimes = 0x1p8f;

    template <bool PLANES>
    static __device__ __forceinline__ void eight(const uint32_t *raw, uint32_t (&out)[4])
    {
        if constexpr (PLANES && HOME == HOME_BF16)
            return planes_bf16(raw[0], out);
        else if constexpr (PLANES)
            return planes_f16(raw[0], out);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint32_t x = raw[0] >> (4 * i);
            out[i] = ((x & 0x00080008u) << 12) | ((x & 0x00070007u) << (HOME == HOME_F16 ? 9 : 6));
        }
    }
    /* Three codes in four have places that one turn of a word brings where they belong; the bits of
     * the last, which are what is left, one multiplication, whose terms meet nowhere. */
    static __device__ __forceinline__ void planes_bf16(uint32_t w, uint32_t (&out)[4])
    {
        out[0] = w & 0x81C081C0u;
        out[1] = __funnelshift_r(w, w, 3) & 0x81C081C0u;
        out[2] = __funnelshift_r(w, w, 6) & 0x81C081C0u;
        out[3] = ((w & 0x001B001Bu) * 0x1084u) & 0x81C081C0u; /* 2^12 + 2^7 + 2^2 */
    }
    static __device__ __forceinline__ void planes_f16(uint32_t w, uint32_t (&out)[4])
    {
        const uint32_t turned = __funnelshift_r(w, w, 3), again = __funnelshift_r(w, w, 6);
        const uint32_t last = (w & 0x001B001Bu) * 0x1084u;
        out[0] = (w << 3 & 0x0E000E00u) | (w & 0x80008000u);
        out[1] = (w & 0x0E000E00u) | (turned & 0x80008000u);
        out[2] = (turned & 0x0E000E00u) | (again & 0x80008000u);
        out[3] = (last << 3 & 0x0E000E00u) | (last & 0x80008000u);
    }
};
template <int HOME> struct Decode<FMT_E2M1, HOME> {
    template <bool PLANES = false>
    static __device__ __forceinline__ void eight(const uint32_t *raw, int, uint32_t (&out)[4])
    {
        RawE2m1<HOME>::template eight<PLANES>(raw, out);
#pragma unroll
        for (int i = 0; i < 4; i++) /* 2^14 or 2^126; plus -0: a zero keeps its sign */
            out[i] = HOME == HOME_F16 ? fma_f16x2(out[i], 0x74007400u, 0x80008000u)
                                      : fma_bf16x2(out[i], 0x7E807E80u, 0x80008000u);
    }
};

/* Codebooks: a table lookup a code, rounded to the home; the rest, which 16 bits leave out, is
 * multiplied as a second operand, so that sums are as good as f32's. Where results are coarser, or
 * all values times a factor fit the home, a table of scaled values is all. Tables are computed
 * while this is compiled and looked up by byte permutations: a dependent load a code, unrolled,
 * would be slow to run and took NVRTC ten seconds and more. */
template <int FMT> struct IsCodebook {
    static constexpr bool kYes = FMT == FMT_NF4 || FMT == FMT_FP4;
};
/* Do the eight codes of a word lie in the order that suits their own decoding (pack.h, FRAGMENTS)?
 */
template <class Cfg> struct InOwnOrder {
    static constexpr bool kYes =
        Cfg::kNeighbours == 2 && (Cfg::kW == FMT_E2M1 || IsCodebook<Cfg::kW>::kYes);
};

struct HomeNumber { /* of a magnitude: its bits, and what they stand for */
    uint32_t bits;
    double value;
};
constexpr HomeNumber round_to_home(double x, int home)
{
    const int man = home == HOME_F16 ? 10 : 7, bias = home == HOME_F16 ? 15 : 127;
    int e = 0;
    double unit = 1.0, y = x; /* x = y * unit, unit = 2^e */
    while (y >= 2.0)
        y /= 2.0, unit *= 2.0, e++;
    while (y < 1.0 && e > 1 - bias)
        y *= 2.0, unit /= 2.0, e--;
    double scaled = y * (1 << man);
    int n = (int)scaled;
    double left = scaled - n;
    n += left > 0.5 || (left == 0.5 && n % 2);
    return HomeNumber{((uint32_t)(e + bias - 1) << man) + (uint32_t)n, n * unit / (1 << man)};
}

/* The values of a codebook times a factor, below 1 so that no sum overflows. Those of fp4 are
 * multiples of a third or of 1/192: the home holds them exactly. Those of nf4 are rounded, by a
 * factor and in directions that leave small errors and next to no mean error, which activations
 * with a mean would add up over K: tests/cuda/one_piece.py measures both. */
enum { SCALED = -1 }; /* in place of a piece */
template <int FMT, int HOME> struct CodebookFactor {
    static constexpr double kFactor = FMT == FMT_FP4     ? 0.75
                                      : HOME == HOME_F16 ? 0.72930812
                                                         : 0.64328;
};
constexpr double nf4_scaled_bf16[16] = {-0.64453125,   -0.447265625, -0.337890625, -0.25390625,
                                        -0.1826171875, -0.119140625, -0.05859375,  0.0,
                                        0.05126953125, 0.103515625,  0.158203125,  0.2177734375,
                                        0.283203125,   0.361328125,  0.46484375,   0.64453125};

/* Code c in the home's bits; PIECE 1: what that leaves out, 2: what both do. */
template <int FMT, int HOME, int PIECE> constexpr uint32_t codebook_bits(int c)
{
    double x = FMT == FMT_NF4 ? num_nf4_value[c] : num_fp4_value[c % 8];
    bool negative = FMT == FMT_NF4 ? x < 0.0 : c >= 8;
    if (PIECE == SCALED && FMT == FMT_NF4 && HOME == HOME_BF16)
        x = nf4_scaled_bf16[c];
    else if (PIECE == SCALED)
        x *= CodebookFactor<FMT, HOME>::kFactor;
    double left = x < 0.0 ? -x : x;
    HomeNumber home = round_to_home(left, HOME);
    for (int i = 0; i < PIECE; i++) {
        left -= home.value;
        negative = negative != (left < 0.0);
        left = left < 0.0 ? -left : left;
        home = round_to_home(left, HOME);
    }
    return home.bits | (negative ? 0x8000u : 0u);
}

/* Codes 1 and 9 as numpy rounds them. */
static_assert(codebook_bits<FMT_NF4, HOME_F16, 0>(1) == 0xB992, "nf4 in f16");
static_assert(codebook_bits<FMT_NF4, HOME_F16, 1>(1) == 0x064F, "nf4, the rest in f16");
static_assert(codebook_bits<FMT_NF4, HOME_BF16, 0>(9) == 0x3E25, "nf4 in bf16");
static_assert(codebook_bits<FMT_NF4, HOME_BF16, 1>(9) == 0xB954, "nf4, the rest in bf16");
static_assert(codebook_bits<FMT_FP4, HOME_F16, 0>(9) == 0x9D55, "fp4 in f16");
static_assert(codebook_bits<FMT_FP4, HOME_F16, 1>(9) == 0x8015, "fp4, the rest in f16");
static_assert(codebook_bits<FMT_FP4, HOME_BF16, 1>(1) == 0xB72B, "fp4, the rest in bf16");
static_assert(codebook_bits<FMT_NF4, HOME_BF16, SCALED>(6) == 0xBD70, "nf4, scaled, in bf16");
static_assert(codebook_bits<FMT_NF4, HOME_F16, SCALED>(15) == 0x39D6, "nf4, scaled, in f16");
static_assert(codebook_bits<FMT_FP4, HOME_F16, SCALED>(9) == 0x9C00, "fp4, scaled: -1/256");
static_assert(codebook_bits<FMT_FP4, HOME_BF16, SCALED>(2) == 0x3F00, "fp4, scaled: 1/2");

/* Byte PLANE of codes 4 * word .. 4 * word + 3. */
template <int FMT, int HOME, int PIECE, int PLANE> constexpr uint32_t codebook_word(int word)
{
    uint32_t bytes = 0;
    for (int i = 0; i < 4; i++)
        bytes |= (codebook_bits<FMT, HOME, PIECE>(4 * word + i) >> (8 * PLANE) & 0xFFu) << (8 * i);
    return bytes;
}

/* The bytes of 16 values: of the format's own table, or of one that the weight brings along, whose
 * planes lie as pack.c wrote them. */
template <int FMT, int HOME> struct FixedTable {
    static constexpr bool kIsPairs = false;
    static constexpr float kUnit = 1.0f; /* of its values */
    template <int PIECE, int PLANE> __device__ __forceinline__ void words(uint32_t (&to)[4]) const
    {
        constexpr uint32_t kWord[4] = {
            codebook_word<FMT, HOME, PIECE, PLANE>(0), codebook_word<FMT, HOME, PIECE, PLANE>(1),
            codebook_word<FMT, HOME, PIECE, PLANE>(2), codebook_word<FMT, HOME, PIECE, PLANE>(3)};
#pragma unroll
        for (int i = 0; i < 4; i++)
            to[i] = kWord[i];
    }
};
template <int FMT, int HOME> struct ScaledTable {
    static constexpr bool kIsPairs = false;
    static constexpr float kUnit = (float)(1.0 / CodebookFactor<FMT, HOME>::kFactor);
    template <int PIECE, int PLANE> __device__ __forceinline__ void words(uint32_t (&to)[4]) const
    {
        FixedTable<FMT, HOME>{}.template words<SCALED, PLANE>(to);
    }
};
struct GivenTable {
    static constexpr bool kIsPairs = false;
    static constexpr float kUnit = 1.0f;
    const char *planes; /* 16 bytes each */
    template <int PIECE, int PLANE> __device__ __forceinline__ void words(uint32_t (&to)[4]) const
    {
        Bytes16 v = load_again16(planes + (2 * PIECE + PLANE) * 16);
        to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
    }
};
template <int FMT, int HOME, bool GIVEN, bool SINGLE> struct TableOf {
    typedef FixedTable<FMT, HOME> Type;
};
template <int FMT, int HOME> struct TableOf<FMT, HOME, false, true> {
    typedef ScaledTable<FMT, HOME> Type;
};
template <int FMT, int HOME, bool SINGLE> struct TableOf<FMT, HOME, true, SINGLE> {
    typedef GivenTable Type;
};

template <int FMT, int HOME> struct DecodeCodebook {
    /* One byte of each of four codes; low: their low three bits, high: where each lies among the
     * codes below 8 (bytes 0..3) and above (4..7). */
    static __device__ __forceinline__ uint32_t plane(const uint32_t (&word)[4], uint32_t low,
                                                     uint32_t high)
    {
        return __byte_perm(__byte_perm(word[0], word[1], low), __byte_perm(word[2], word[3], low),
                           high);
    }
    /* Four codes, in the low 16 bits, as two words of neighbours. */
    static __device__ __forceinline__ void four(const uint32_t (&low_byte)[4],
                                                const uint32_t (&high_byte)[4], uint32_t codes,
                                                uint32_t (&out)[2])
    {
        uint32_t low = codes & 0x7777u, high = 0x3210u | (codes & 0x8888u) >> 1;
        uint32_t p0 = plane(low_byte, low, high), p1 = plane(high_byte, low, high);
        out[0] = __byte_perm(p0, p1, 0x5140);
        out[1] = __byte_perm(p0, p1, 0x7362);
    }
    /* NEIGHBOURS: codes of a word in ascending order, else in that of 16-bit floats. */
    template <int PIECE, bool NEIGHBOURS, class Table>
    static __device__ __forceinline__ void all(uint32_t raw, uint32_t (&out)[4], const Table &table)
    {
        uint32_t low_byte[4], high_byte[4], even[2], odd[2];
        table.template words<PIECE, 0>(low_byte);
        table.template words<PIECE, 1>(high_byte);
        if constexpr (NEIGHBOURS) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                four(low_byte, high_byte, raw >> (16 * i), even);
                out[2 * i] = even[0], out[2 * i + 1] = even[1];
            }
            return;
        }
        four(low_byte, high_byte, raw, even);
        four(low_byte, high_byte, raw >> 16, odd);
#pragma unroll
        for (int i = 0; i < 4; i++)
            out[i] = __byte_perm(even[i / 2], odd[i / 2], i % 2 ? 0x7632 : 0x5410);
    }
    static __device__ __forceinline__ void eight(const uint32_t *raw, int, uint32_t (&out)[4])
    {
        all<0, false>(raw[0], out, FixedTable<FMT, HOME>{});
    }
};
/* Another way to look up, where shared memory has room: the values of two codes that are a byte, in
 * a word of each lane's own, so that lanes do not meet in a bank. (8 to 16 instructions for eight
 * codes, permutations take 23 or 27.) PITCH: bytes from the words of one pair to the next one's,
 * 128, or 256, where a permutation alone makes an offset of the pair's byte and the lane's. */
template <int FMT, int HOME, int PITCH> struct PairTable {
    static constexpr bool kIsPairs = true;
    static constexpr int kBytes = 255 * PITCH + 128;
    static_assert(PITCH == 128 || PITCH == 256, "an offset holds the byte at its place");
    uint32_t table, lane; /* of the lane's words, for codes 0 and 0 */

    static __device__ __forceinline__ PairTable of_lane(uint32_t table, int lane)
    {
        return PairTable{table, (uint32_t)lane * 4};
    }
    /* By the first `threads` threads, who then meet. */
    template <class Table>
    static __device__ __forceinline__ void fill(uint32_t to, const Table &table, int threads)
    {
        uint32_t low_byte[4], high_byte[4], pair[2];
        table.template words<0, 0>(low_byte);
        table.template words<0, 1>(high_byte);
        for (int i = threadIdx.x; i < 256 * 8; i += threads) {
            DecodeCodebook<FMT, HOME>::four(low_byte, high_byte, i / 8, pair);
            asm volatile(
                "st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(to + i / 8 * PITCH + i % 8 * 16),
                "r"(pair[0])
                : "memory");
        }
    }
    __device__ __forceinline__ uint32_t offset(uint32_t raw, int byte) const
    {
        return PITCH == 256 ? __byte_perm(raw, lane, 0x5504 + byte * 16)
                            : __byte_perm(raw, 0, 0x4440 + byte) * PITCH + lane;
    }
    template <bool NEIGHBOURS>
    __device__ __forceinline__ void eight(uint32_t raw, uint32_t (&out)[4]) const
    {
        uint32_t two[4]; /* of byte i */
#pragma unroll
        for (int i = 0; i < 4; i++)
            asm("ld.shared.u32 %0, [%1];" : "=r"(two[i]) : "r"(offset(raw, i) + table));
#pragma unroll
        for (int i = 0; i < 4; i++)
            out[i] = NEIGHBOURS ? two[i]
                                : __byte_perm(two[i / 2], two[i / 2 + 2], i % 2 ? 0x7632 : 0x5410);
    }
};
/* That one, or the table itself. Cfg: kW kHome kPairPitch (the first's). */
template <bool PAIRS, class Cfg, class Table> struct PairsOf {
    static constexpr int kBytes = 0;
    typedef Table Type;
};
template <class Cfg, class Table> struct PairsOf<true, Cfg, Table> {
    typedef PairTable<Cfg::kW, Cfg::kHome, Cfg::kPairPitch> Type;
    static constexpr int kBytes = Type::kBytes;
};
template <> struct Decode<FMT_NF4, HOME_F16> : DecodeCodebook<FMT_NF4, HOME_F16> {
};
template <> struct Decode<FMT_NF4, HOME_BF16> : DecodeCodebook<FMT_NF4, HOME_BF16> {
};
template <> struct Decode<FMT_FP4, HOME_F16> : DecodeCodebook<FMT_FP4, HOME_F16> {
};
template <> struct Decode<FMT_FP4, HOME_BF16> : DecodeCodebook<FMT_FP4, HOME_BF16> {
};
/* 16-bit formats are at home already. */
template <> struct Decode<FMT_F16, HOME_F16> {
    static __device__ __forceinline__ void eight(const uint32_t *raw, int, uint32_t (&out)[4])
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            out[i] = raw[i];
    }
};
template <> struct Decode<FMT_BF16, HOME_BF16> : Decode<FMT_F16, HOME_F16> {
};

/* e2m1 of an activation, a byte each. (Integers of four bits lie as those of eight.) */
struct DecodeByteE2m1 {
    template <int SHIFT> static __device__ __forceinline__ uint32_t pair(const uint32_t *raw, int i)
    {
        uint32_t x = __byte_perm(raw[i / 2], 0, i % 2 ? 0x4342 : 0x4140);
        return ((x & 0x00080008u) << 12) | ((x & 0x00070007u) << SHIFT);
    }
    static __device__ __forceinline__ void f16(const uint32_t *raw, int, uint32_t (&out)[4])
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            out[i] = fma_f16x2(pair<9>(raw, i), 0x74007400u, pair<9>(raw, i) & 0x80008000u);
    }
    static __device__ __forceinline__ void bf16(const uint32_t *raw, int, uint32_t (&out)[4])
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            out[i] = fma_bf16x2(pair<6>(raw, i), 0x7E807E80u, pair<6>(raw, i) & 0x80008000u);
    }
};

/* Pieces ---------------------------------------------------------------------------------------
 *
 * What one 16-bit float does not hold is multiplied in pieces whose sum it is: two for codebooks,
 * where a config asks for it three, or one of a scaled table; two for f16 in bf16, three for f32. A
 * piece but the last has the leading bits of what is left, rounded towards zero so that it never
 * overflows; of two numbers in pieces, those pairs are multiplied that f32 would not lose beside
 * the first. Where nothing is left, a further piece is 2^-30 of the one before: it vanishes beside
 * it, and infinity times zero, which is no number, comes up only where it does in f32. All pieces
 * of an infinity are one.
 *
 * Tensor cores cut the sum after each instruction off towards zero, which over a long K is more of
 * an error than f32 may have: where there are three pieces, and where a config says kApart,
 * products start from zero every 32 of K, and what they come to is added to the sums before,
 * rounded to nearest. */
template <int FMT, int HOME, int CODEBOOK = 2> struct Pieces {
    static constexpr int kNum = FMT == FMT_F32                        ? 3
                                : FMT == FMT_F16 && HOME == HOME_BF16 ? 2
                                : IsCodebook<FMT>::kYes               ? CODEBOOK
                                                                      : 1;
};

template <int PIECE> __device__ __forceinline__ float piece_of(float x)
{
#pragma unroll
    for (int i = 0; i < PIECE; i++) {
        float head = num_float(num_bits(x) & 0xFFFF0000u);
        x = head == x ? x * 0x1p-30f : x - head;
    }
    return x;
}
template <int PIECE> __device__ __forceinline__ uint32_t piece_pair(float lo, float hi)
{
    return __byte_perm(num_bits(piece_of<PIECE>(lo)), num_bits(piece_of<PIECE>(hi)), 0x7632);
}
template <int FMT, int HOME, int PIECE>
__device__ __forceinline__ void decode_wide(const uint32_t *raw, uint32_t (&out)[4])
{
#pragma unroll
    for (int i = 0; i < 4; i++)
        if constexpr (FMT == FMT_F32) {
            out[i] = piece_pair<PIECE>(num_float(raw[2 * i]), num_float(raw[2 * i + 1]));
        } else {
            float lo, hi;
            asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }"
                : "=f"(lo), "=f"(hi)
                : "r"(raw[i]));
            out[i] = piece_pair<PIECE>(lo, hi);
        }
}

/* Eight codes of a weight, or a piece of each. table: where codes are places in one. IN_UNIT: times
 * DecodeInUnit's kUnit. */
template <int FMT, int HOME, bool ZERO, int PIECE, bool IN_UNIT = false, bool OWN_ORDER = false,
          class Table>
__device__ __forceinline__ void decode_weight(const uint32_t *raw, int zero, const Table &table,
                                              uint32_t (&out)[4])
{
    if constexpr (FMT == FMT_F32 || Pieces<FMT, HOME>::kNum == 2 && FMT == FMT_F16)
        decode_wide<FMT, HOME, PIECE>(raw, out);
    else if constexpr (IsCodebook<FMT>::kYes && Table::kIsPairs)
        table.template eight<OWN_ORDER>(raw[0], out);
    else if constexpr (IsCodebook<FMT>::kYes)
        DecodeCodebook<FMT, HOME>::template all<PIECE, OWN_ORDER>(raw[0], out, table);
    else if constexpr (ZERO && HOME == HOME_I8)
        DecodeIntZero<FMT>::eight(raw, zero, out);
    else if constexpr (IN_UNIT && DecodeInUnit<FMT, HOME>::kIs)
        DecodeInUnit<FMT, HOME>::eight(raw, zero, out);
    else if constexpr (FMT == FMT_E2M1 && OWN_ORDER)
        Decode<FMT, HOME>::template eight<true>(raw, zero, out);
    else
        Decode<FMT, HOME>::eight(raw, zero, out);
}
/* .. of an activation. */
template <int FMT, int HOME, int PIECE>
__device__ __forceinline__ void decode_act(const uint32_t *raw, int zero, uint32_t (&out)[4])
{
    if constexpr (FMT == FMT_F32 || Pieces<FMT, HOME>::kNum == 2)
        decode_wide<FMT, HOME, PIECE>(raw, out);
    else if constexpr (Bits<FMT>::kBits > 4)
        Decode<FMT, HOME>::eight(raw, zero, out);
    else if constexpr (HOME == HOME_F16)
        DecodeByteE2m1::f16(raw, zero, out);
    else
        DecodeByteE2m1::bf16(raw, zero, out);
}

/* Scales --------------------------------------------------------------------------------------- */

/* The value of a scale from the bits that a scheme stores. */
template <int FMT> __device__ __forceinline__ float scale_value(uint32_t bits)
{
    if constexpr (FMT == FMT_F32)
        return num_float(bits);
    else if constexpr (FMT == FMT_BF16)
        return num_float(bits << 16);
    else if constexpr (FMT == FMT_E8M0) { /* num_from_e8m0: 255 makes an infinity, and that a NaN */
        float f;
        asm("{\n"
            ".reg .b32 power;\n"
            "shl.b32 power, %1, 23;\n"
            "max.u32 power, power, 0x00400000;\n"
            "fma.rn.f32 %0, power, 0f00000000, power;\n"
            "}"
            : "=f"(f)
            : "r"(bits));
        return f;
    } else if constexpr (FMT == FMT_F16) {
        float f;
        asm("{ .reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, l; }" : "=f"(f) : "r"(bits));
        return f;
    }
#if __CUDA_ARCH__ >= 890
    else if constexpr (FMT == FMT_E4M3) {
        float f;
        asm("{ .reg .b16 c, l, h; .reg .b32 p; cvt.u16.u32 c, %1; cvt.rn.f16x2.e4m3x2 p, c;"
            " mov.b32 {l, h}, p; cvt.f32.f16 %0, l; }"
            : "=f"(f)
            : "r"(bits));
        return f;
    }
#endif
    else {
        return num_decode(FMT, bits);
    }
}

/* Multiplies words of codes by one scale; exact where the compiler folds. */
template <int HOME> __device__ __forceinline__ uint32_t scale_pair(float scale)
{
    return HOME == HOME_F16 ? pack_f16x2(scale, scale) : pack_bf16x2(scale, scale);
}
template <int HOME> __device__ __forceinline__ void fold_word(uint32_t &v, uint32_t scales)
{
    if (HOME == HOME_F16)
        v = fma_f16x2(v, scales, 0x80008000u); /* -0: a zero keeps its sign */
    else
        v = fma_bf16x2(v, scales, 0x80008000u);
}
/* Scales of two words; .. and one of them, which instructions take from either half of a register
 * if the compiler sees its 16 bits. */
template <int HOME> __device__ __forceinline__ uint32_t scale_halves(float lo, float hi)
{
    return HOME == HOME_F16 ? pack_f16x2(lo, hi) : pack_bf16x2(lo, hi);
}
template <int HOME>
__device__ __forceinline__ void fold_half(uint32_t &v, uint32_t scales, int half)
{
    uint32_t lo, hi;
    asm("{\n"
        ".reg .b16 lo, hi;\n"
        "mov.b32 {lo, hi}, %2;\n"
        "mov.b32 %0, {lo, lo};\n"
        "mov.b32 %1, {hi, hi};\n"
        "}"
        : "=r"(lo), "=r"(hi)
        : "r"(scales));
    fold_word<HOME>(v, half ? hi : lo);
}
template <int HOME> __device__ __forceinline__ void fold_pair(uint32_t &v, float scale)
{
    fold_word<HOME>(v, scale_pair<HOME>(scale));
}
/* What codes are multiplied by: a scale's value, or of integers what fold_bytes takes. */
template <int HOME> struct FoldOf {
    typedef float Type;
};
template <> struct FoldOf<HOME_I8> {
    typedef uint32_t Type;
};
/* Bytes that are codes u of u4 become (u - z) s: s is the low byte of `by`, 128 - z s the high one,
 * and no byte of u s + 128 - z s overflows. */
__device__ __forceinline__ void fold_bytes(uint32_t &v, uint32_t by)
{
    v = (v * (by & 0xFFu) + __byte_perm(by, 0, 0x1111)) ^ 0x80808080u;
}
template <int HOME>
__device__ __forceinline__ void fold_scale(uint32_t (&v)[4], typename FoldOf<HOME>::Type scale)
{
    if constexpr (HOME == HOME_I8) {
        fold_bytes(v[0], scale);
        fold_bytes(v[1], scale);
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        fold_pair<HOME>(v[i], scale);
}

/* Keeps those of eight codes, the first of them at `at`, that lie between begin and end. */
template <int HOME>
__device__ __forceinline__ void keep_codes(uint32_t (&v)[4], int at, int begin, int end)
{
#pragma unroll
    for (int i = 0; i < (HOME == HOME_I8 ? 2 : 4); i++) {
        constexpr int kEach = HOME == HOME_I8 ? 4 : 2;
        uint32_t keep = 0;
#pragma unroll
        for (int j = 0; j < kEach; j++) {
            int k = at + i * kEach + j;
            if (k >= begin && k < end)
                keep |= (HOME == HOME_I8 ? 0xFFu : 0xFFFFu) << (32 / kEach * j);
        }
        v[i] &= keep;
    }
}

#endif
