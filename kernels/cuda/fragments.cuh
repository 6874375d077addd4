/* Codes of weights from the order of records to that of fragments, and back (pack.h has both): what
 * the four lanes of a row read of a step of 32 columns is exchanged among them. */
#ifndef SINTER_CUDA_FRAGMENTS
#define SINTER_CUDA_FRAGMENTS

#include "kernels/cuda/format.cuh"

/* Eight neighbours for pairs, two of every eighth of the step, or these for eight neighbours: a 4x4
 * transpose, which is its own inverse. Nibbles lie in the order of 16-bit floats. */
template <int BITS>
__device__ __forceinline__ void pass_pairs(const uint32_t *raw, int t, uint32_t *out)
{
    if constexpr (BITS == 4) { /* pairs of nibbles */
        const uint32_t other = __shfl_xor_sync(0xFFFFFFFFu, raw[0], 2);
        const uint32_t two = __byte_perm(raw[0], other, t < 2 ? 0x6240 : 0x3715);
        const uint32_t next = __shfl_xor_sync(0xFFFFFFFFu, two, 1);
        const uint32_t turned = t % 2 ? next << 28 | next >> 4 : next << 4 | next >> 28;
        const uint32_t mine = t % 2 ? 0xF0F0F0F0u : 0x0F0F0F0Fu;
        out[0] = (two & mine) | (turned & ~mine);
    } else { /* pairs of bytes */
        const uint32_t other = __shfl_xor_sync(0xFFFFFFFFu, t < 2 ? raw[1] : raw[0], 2);
        const uint32_t near = t < 2 ? raw[0] : other, far = t < 2 ? other : raw[1];
        const uint32_t next =
            __shfl_xor_sync(0xFFFFFFFFu, __byte_perm(near, far, t % 2 ? 0x5410 : 0x7632), 1);
        out[0] = __byte_perm(near, next, t % 2 ? 0x3254 : 0x5410);
        out[1] = __byte_perm(far, next, t % 2 ? 0x3276 : 0x7610);
    }
}

/* Of nibbles in the order of bytes: eight neighbours for fours, one of each half of the step. */
__device__ __forceinline__ uint32_t pass_fours(uint32_t raw, int lane)
{
    const int from = lane % 4 / 2, quad = lane & 28;
    uint32_t low = __shfl_sync(0xFFFFFFFFu, raw, quad + from);
    uint32_t high = __shfl_sync(0xFFFFFFFFu, raw, quad + 2 + from);
    if (lane % 2)
        low = low >> 4;
    else
        high = high << 4;
    return (low & 0x0F0F0F0Fu) | (high & 0xF0F0F0F0u);
}
/* .. and fours for eight neighbours. */
__device__ __forceinline__ uint32_t pass_back(uint32_t raw, int lane)
{
    const int from = lane % 2 * 2, quad = lane & 28;
    uint32_t low = __shfl_sync(0xFFFFFFFFu, raw, quad + from);
    uint32_t high = __shfl_sync(0xFFFFFFFFu, raw, quad + from + 1);
    if (lane % 4 / 2)
        low = low >> 4;
    else
        high = high << 4;
    return (low & 0x0F0F0F0Fu) | (high & 0xF0F0F0F0u);
}

/* Of bytes, two words of each lane: word `of` of the lanes `low` and `high` of the four. */
__device__ __forceinline__ void pass_words(const uint32_t *raw, uint32_t *out, int lane, int low,
                                           int high, int of)
{
    const int quad = lane & 28;
    const uint32_t low0 = __shfl_sync(0xFFFFFFFFu, raw[0], quad + low);
    const uint32_t low1 = __shfl_sync(0xFFFFFFFFu, raw[1], quad + low);
    const uint32_t high0 = __shfl_sync(0xFFFFFFFFu, raw[0], quad + high);
    const uint32_t high1 = __shfl_sync(0xFFFFFFFFu, raw[1], quad + high);
    out[0] = of ? low1 : low0;
    out[1] = of ? high1 : high0;
}
/* Eight neighbours for fours, .. */
__device__ __forceinline__ void pass_fours(const uint32_t *raw, uint32_t *out, int lane)
{
    pass_words(raw, out, lane, lane % 4 / 2, 2 + lane % 4 / 2, lane % 2);
}
/* .. and fours for eight neighbours. */
__device__ __forceinline__ void pass_back(const uint32_t *raw, uint32_t *out, int lane)
{
    pass_words(raw, out, lane, lane % 2 * 2, lane % 2 * 2 + 1, lane % 4 / 2);
}

/* Eight nibbles in the order of bytes, in that of 16-bit floats. */
__device__ __forceinline__ uint32_t order_of_halves(uint32_t bytes)
{
    const uint32_t v = __byte_perm(bytes, 0, 0x3120); /* even codes, then odd ones */
    return (v & 0xF00FF00Fu) | (v & 0x00F000F0u) << 4 | (v >> 4 & 0x00F000F0u);
}

/* Eight codes of e2m1 in planes, in the order of 16-bit floats. */
__device__ __forceinline__ uint32_t nibbles_of_planes(uint32_t w)
{
    const uint32_t other = w << 16 | w >> 16, last = (w & 0x001B001Bu) * 0x1084u;
    const uint32_t magnitudes = (w >> 6 & 0x00070007u) | (w >> 5 & 0x00700070u) |
                                (w >> 4 & 0x07000700u) | (last << 6 & 0x70007000u);
    const uint32_t signs = (w >> 12 & 0x00080008u) | (other << 5 & 0x00800080u) |
                           (other << 6 & 0x08000800u) | (last & 0x80008000u);
    return magnitudes | signs;
}
/* .. and eight in ascending order. */
__device__ __forceinline__ uint32_t nibbles_of_neighbours(uint32_t w)
{
    const uint32_t even = (w & 0x000F000Fu) | (w >> 4 & 0x00F000F0u);
    const uint32_t odd = (w >> 4 & 0x000F000Fu) | (w >> 8 & 0x00F000F0u);
    return __byte_perm(even, odd, 0x6420);
}

/* The eight codes of a lane's step of fragments (Cfg: kNeighbours, kW, kHome), as records have
 * them.
 */
template <class Cfg> __device__ __forceinline__ void to_records(uint32_t *raw, int lane)
{
    if constexpr (InOwnOrder<Cfg>::kYes)
        raw[0] = Cfg::kW == FMT_E2M1 ? nibbles_of_planes(raw[0]) : nibbles_of_neighbours(raw[0]);
    if constexpr (Cfg::kNeighbours == 2)
        pass_pairs<Bits<Cfg::kW>::kBits>(raw, lane % 4, raw);
    else if constexpr (Cfg::kNeighbours == 4 && Bits<Cfg::kW>::kBits == 8)
        pass_back(raw, raw, lane);
    else if constexpr (Cfg::kNeighbours == 4)
        raw[0] = Cfg::kHome == HOME_I8 ? pass_back(raw[0], lane)
                                       : order_of_halves(pass_back(raw[0], lane));
}

#endif
