/* Element formats on the device: how the eight consecutive codes that one lane holds of a row
 * become operands of the tensor cores. One trait a format and home:
 *
 *   Decode<FMT, HOME>::eight(raw, zero, out)
 *
 * raw: eight codes, 32 bits for 4-bit formats, 64 for 8-bit, 128 for 16-bit ones. out: four words;
 * for 16-bit homes word i holds codes 2i (low half) and 2i + 1; for bytes, words 0 and 1 hold codes
 * 0..3 and 4..7. Decoding is exact, but for codebooks (see DecodeRest). zero: an integer zero point
 * that is subtracted (16-bit homes of integers only).
 *
 * 4-bit codes are packed in the order that lets masks and shifts hand out neighbours (pack.c):
 * nibble_place there says where code j of eight lies. */
#ifndef SINTER_CUDA_FORMAT
#define SINTER_CUDA_FORMAT

#include "kernels/cuda/prelude.cuh"

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
    static __device__ __forceinline__ uint32_t pair(uint32_t codes)
    {
#if __CUDA_ARCH__ >= 890
        uint32_t d;
        asm("{ .reg .b16 c; cvt.u16.u32 c, %1; cvt.rn.f16x2.e4m3x2 %0, c; }"
            : "=r"(d)
            : "r"(codes));
        return d;
#else
        uint32_t spread = __byte_perm(codes, 0, 0x1404); /* code in the high byte of each half */
        uint32_t h = (spread & 0x80008000u) | ((spread & 0x7F007F00u) >> 1);
        uint32_t is_nan = ((spread & 0x7F007F00u) + 0x01000100u) & 0x80008000u;
        h = fma_f16x2(h, 0x5C005C00u, h & 0x80008000u); /* times 2^8, exact */
        return h | (is_nan >> 1) | (is_nan >> 2) | (is_nan >> 3) | (is_nan >> 4) | (is_nan >> 5) |
               (is_nan >> 6);
#endif
    }
    static __device__ __forceinline__ void eight(const uint32_t *raw, int, uint32_t (&out)[4])
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            out[i] = pair(i % 2 ? raw[i / 2] >> 16 : raw[i / 2] & 0xFFFFu);
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
 * multiplication. */
template <> struct Decode<FMT_E2M1, HOME_F16> {
    static __device__ __forceinline__ void eight(const uint32_t *raw, int, uint32_t (&out)[4])
    {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t x = raw[0] >> (4 * i);
            uint32_t h = ((x & 0x00080008u) << 12) | ((x & 0x00070007u) << 9);
            out[i] = fma_f16x2(h, 0x74007400u, h & 0x80008000u); /* 2^14 */
        }
    }
};
template <> struct Decode<FMT_E2M1, HOME_BF16> {
    static __device__ __forceinline__ void eight(const uint32_t *raw, int, uint32_t (&out)[4])
    {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t x = raw[0] >> (4 * i);
            uint32_t h = ((x & 0x00080008u) << 12) | ((x & 0x00070007u) << 6);
            out[i] = fma_bf16x2(h, 0x7E807E80u, h & 0x80008000u); /* 2^126 */
        }
    }
};

/* Codebooks: a table lookup a code, rounded to the home; the rest, which 16 bits leave out, is
 * multiplied as a second operand, so that sums are as good as f32's. */
template <int FMT> struct IsCodebook {
    static constexpr bool kYes = FMT == FMT_NF4 || FMT == FMT_FP4;
};
template <int FMT, int HOME> struct DecodeCodebook {
    static __device__ __forceinline__ uint32_t pack(float lo, float hi)
    {
        return HOME == HOME_F16 ? pack_f16x2(lo, hi) : pack_bf16x2(lo, hi);
    }
    static __device__ __forceinline__ float home(float x)
    {
        return HOME == HOME_F16 ? num_round_f16(x) : num_round_bf16(x);
    }
    static __device__ __forceinline__ void eight(const uint32_t *raw, int, uint32_t (&out)[4])
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            out[i] = pack(num_decode(FMT, (raw[0] >> (4 * i)) & 15),
                          num_decode(FMT, (raw[0] >> (4 * i + 16)) & 15));
    }
    static __device__ __forceinline__ void rest(const uint32_t *raw, uint32_t (&out)[4])
    {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float lo = num_decode(FMT, (raw[0] >> (4 * i)) & 15);
            float hi = num_decode(FMT, (raw[0] >> (4 * i + 16)) & 15);
            out[i] = pack(lo - home(lo), hi - home(hi));
        }
    }
};
template <> struct Decode<FMT_NF4, HOME_F16> : DecodeCodebook<FMT_NF4, HOME_F16> {
};
template <> struct Decode<FMT_NF4, HOME_BF16> : DecodeCodebook<FMT_NF4, HOME_BF16> {
};
template <> struct Decode<FMT_FP4, HOME_F16> : DecodeCodebook<FMT_FP4, HOME_F16> {
};
template <> struct Decode<FMT_FP4, HOME_BF16> : DecodeCodebook<FMT_FP4, HOME_BF16> {
};
template <int FMT, int HOME> struct DecodeRest {
    static __device__ __forceinline__ void eight(const uint32_t *raw, uint32_t (&out)[4])
    {
        DecodeCodebook<FMT, HOME>::rest(raw, out);
    }
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

#endif
