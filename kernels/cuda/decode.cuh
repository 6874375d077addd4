/* Decodes a weight, once for a product of many rows: from records or fragments to panels (pack.h
 * has all) of a format that wgmma multiplies as it is.
 *
 * A warp takes 32 neighbouring rows of a part by a tile of 128 columns. Lane 4 * g + t of it reads
 * the eight codes of row g of 8 at columns 8t of every 32, as the records lie (what fragments have
 * instead is passed back among the lanes), and stores what they
 * decode to as 16 bytes (a chunk) or 8 (half of one) at their place in the panels. Rows that only
 * the panels have are zero.
 *
 * kTo: the format. bf16: codes less their zero points times their scale in f32, rounded once, or
 * with kScaled false as they are, exact; f16: exact; e4m3, i8: exact, and with kGrid their scales
 * follow as f32, where panels have them.
 *
 * Cfg: what Record wants (gemm_shape.cuh), and kNeighbours kW kHome kCodebookPieces (2) kRows (of a
 * part) kParts kPanelRows (packed rows of the panels) kTo kScaled kGrid kGridAt kUniform (128 rows
 * share a scale: as hopper.cuh kWUniform). */
#ifndef SINTER_CUDA_DECODE
#define SINTER_CUDA_DECODE

#include "kernels/cuda/fragments.cuh"
#include "kernels/cuda/gemm_shape.cuh"

template <class Cfg> struct DecodeShape {
    static constexpr int kBytes = Bits<Cfg::kTo>::kBits / 8; /* of a decoded code */
    static constexpr int kWords = Bits<Cfg::kW>::kBits / 4;  /* of eight codes as they lie */
    static constexpr int kRuns = (Cfg::kRows + 31) / 32;     /* of 32 rows, of a part */
    static constexpr int kBlocks = (Cfg::kRows + 7) / 8;     /* of 8 rows that records have */
    static constexpr int kUnits = (Cfg::kK * kBytes + 127) / 128;
    static constexpr int64_t kTasks =
        (int64_t)kRuns * Cfg::kParts * Record<Cfg>::kTilesK; /* of warps */
};

/* Two 16-bit floats as codes of e4m3, which hold them exactly. */
__device__ __forceinline__ uint32_t narrow_pair(uint32_t halves)
{
    uint16_t v = 0;
#if __CUDA_ARCH__ >= 890
    asm("cvt.rn.satfinite.e4m3x2.f16x2 %0, %1;" : "=h"(v) : "r"(halves));
#endif
    return v;
}

/* Bits that look random, the same for a place in every run. */
__device__ __forceinline__ uint32_t random_bits(uint32_t place)
{
    uint32_t x = place * 0x9E3779B1u;
    x = (x ^ x >> 15) * 0x2C1B3C6Du;
    x = (x ^ x >> 12) * 0x297A2D39u;
    return x ^ x >> 15;
}
/* Two numbers as bf16, to the nearest after a random number of up to 5/16 of a step either way:
 * values of a codebook are few and no multiples of one, so that to the nearest alone those under
 * one scale would have errors with a mean, which a product adds up over K. */
__device__ __forceinline__ uint32_t round_by_chance(float lo, float hi, uint32_t random)
{
    constexpr uint32_t kMost = 5 * 0x2000; /* of 0x10000, a step */
    const uint32_t of_lo = ((random & 0xFFFFu) * kMost >> 16) + 0x8000u - kMost / 2;
    const uint32_t of_hi = ((random >> 16) * kMost >> 16) + 0x8000u - kMost / 2;
    return __byte_perm(num_bits(lo) + of_lo, num_bits(hi) + of_hi, 0x7632);
}

/* A lane's codes of 8 rows and a tile, as records hold them. */
template <class Cfg>
__device__ __forceinline__ void read_block(uint32_t (&to)[4 * DecodeShape<Cfg>::kWords],
                                           const char *block, int lane)
{
    if constexpr (Record<Cfg>::kThin) {
        Record<Cfg>::open(to, [&](int i) { return ((const uint32_t *)block)[32 * i + lane]; });
    } else {
#pragma unroll
        for (int i = 0; i < 4 * DecodeShape<Cfg>::kWords; i += 4) {
            const Bytes16 v = load_again16(block + i * 128 + lane * 16);
            to[i] = v.x, to[i + 1] = v.y, to[i + 2] = v.z, to[i + 3] = v.w;
        }
    }
}

/* The eight codes of a lane's step of 32 columns, from column k on, as words of kTo. place: of the
 * step in the weight. */
template <class Cfg>
__device__ __forceinline__ void decode_step(const uint32_t *raw, const char *params, int row, int k,
                                            uint32_t place,
                                            const typename Record<Cfg>::Table &table,
                                            uint32_t (&out)[4])
{
    typedef Record<Cfg> R;
    const int sub = R::sub_of(k);
    const int zero = Cfg::kWZero ? R::zero(params, sub, row) : 0;
    if constexpr (Cfg::kTo == FMT_I8 && Cfg::kWFold) {
        decode_weight<Cfg::kW, HOME_I8, false, 0>(raw, zero, table, out);
        fold_scale<HOME_I8>(out, R::scale_bits(params, sub, row));
        return;
    } else if constexpr (Cfg::kTo == FMT_I8) {
        DecodeIntZero<Cfg::kW>::eight(raw, zero, out);
        return;
    }
    decode_weight<Cfg::kW, Cfg::kHome, Cfg::kWZero, 0>(raw, zero, table, out);
    if constexpr (Cfg::kTo == FMT_E4M3) {
        out[0] = narrow_pair(out[0]) | narrow_pair(out[1]) << 16;
        out[1] = narrow_pair(out[2]) | narrow_pair(out[3]) << 16;
    } else if constexpr (Cfg::kScaled) {
        const float scale =
            Cfg::kWScales ? R::effective(R::scale(params, sub, row)) : R::kTableUnit;
        constexpr bool kByChance = IsCodebook<Cfg::kW>::kYes;
        const uint32_t random = kByChance ? random_bits(place) : 0;
        uint32_t rest[4] = {0, 0, 0, 0};
        if constexpr (IsCodebook<Cfg::kW>::kYes)
            decode_weight<Cfg::kW, Cfg::kHome, Cfg::kWZero, 1>(raw, zero, table, rest);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float lo = bf16_to_float(out[i]) + bf16_to_float(rest[i]);
            const float hi = num_float(out[i] & 0xFFFF0000u) + num_float(rest[i] & 0xFFFF0000u);
            out[i] = kByChance
                         ? round_by_chance(lo * scale, hi * scale, random * (2 * i + 1) * 0x10DCDu)
                         : pack_bf16x2(lo * scale, hi * scale);
        }
    }
}

/* A lane's chunk, or half of one: of packed row `row` of the panels, from column k on. */
template <class Cfg>
__device__ __forceinline__ void store_step(char *panels, int row, int k, const uint32_t (&v)[4])
{
    typedef DecodeShape<Cfg> S;
    const int unit = k * S::kBytes / 128, chunk = k * S::kBytes % 128 / 16 ^ row % 8;
    if (unit >= S::kUnits)
        return;
    char *at = panels + ((int64_t)unit * Cfg::kPanelRows + row) * 128 + chunk * 16;
    if constexpr (S::kBytes == 2)
        *(Bytes16 *)at = Bytes16{v[0], v[1], v[2], v[3]};
    else
        *(Bytes8 *)(at + k % 16) = Bytes8{v[0], v[1]};
}

/* The scales of 32 rows, a lane each, of the blocks that begin in a tile of K. */
template <class Cfg>
__device__ __forceinline__ void store_scales(char *panels, const char *w, int run, int part,
                                             int tile, int lane)
{
    typedef Record<Cfg> R;
    typedef DecodeShape<Cfg> S;
    constexpr int kBlock = Cfg::kWBlockK ? Cfg::kWBlockK : S::kUnits * 128;
    const int row = run * 32 + lane, block = row / 8 * Cfg::kParts + part;
    const int packed = (run * Cfg::kParts + part) * 32 + lane % 8 / 2 * 8 + lane / 8 * 2 + lane % 2;
    const bool is_there = row / 8 < S::kBlocks;
    const char *params =
        w + (int64_t)(block / 8) * R::kGroup + (int64_t)tile * Cfg::kRecord + Cfg::kScaleAt;
    float *grid = (float *)(panels + Cfg::kGridAt);
    for (int k = tile * 128; k < tile * 128 + 128 && k < Cfg::kK; k += kBlock) {
        if (k % kBlock)
            return; /* it began in an earlier tile */
        float scale = 1.0f;
        if (Cfg::kWScales && is_there)
            scale = R::effective(R::scale(params, R::sub_of(k), block % 8 * 8 + row % 8));
        if (Cfg::kUniform && packed % 8 == 0) /* the first row of eight */
            grid[(int64_t)(k / kBlock) * (Cfg::kPanelRows / 8) + packed / 8] = scale;
        else if (!Cfg::kUniform)
            grid[(int64_t)(k / kBlock) * Cfg::kPanelRows + packed - packed % 32 + lane] = scale;
    }
}

template <class Cfg, class Params> __device__ __forceinline__ void decode(const Params &p)
{
    typedef Record<Cfg> R;
    typedef DecodeShape<Cfg> S;
    const char *w = (const char *)p.op[0].data;
    char *panels = (char *)p.op[1].data;
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int64_t task = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (task >= S::kTasks) {
        let_consumer_start();
        return;
    }
    const int tile = (int)(task % R::kTilesK), of = (int)(task / R::kTilesK);
    const int part = of % Cfg::kParts, run = of / Cfg::kParts;
    const typename R::Table table = R::table(w);
    uint32_t raw[4][4 * S::kWords];
    const char *record[4];
#pragma unroll
    for (int b = 0; b < 4; b++) {
        const int block = (run * 4 + b) * Cfg::kParts + part; /* of 8 packed rows */
        record[b] = w + (int64_t)(block / 8) * R::kGroup + (int64_t)tile * Cfg::kRecord;
        if (run * 4 + b < S::kBlocks)
            read_block<Cfg>(raw[b], record[b] + block % 8 * R::kRun, lane);
    }
    wait_for_producer(); /* an earlier product may still read what lies in the panels' place */
#pragma unroll
    for (int b = 0; b < 4; b++) {
        const int block = (run * 4 + b) * Cfg::kParts + part;
        const int row = of * 32 + g / 2 * 8 + b * 2 + g % 2; /* of the panels */
        const int k = tile * 128 + t * 8;
        uint32_t v[4][4] = {};
        if (run * 4 + b < S::kBlocks)
#pragma unroll
            for (int step = 0; step < 4; step++) {
                to_records<Cfg>(raw[b] + step * S::kWords, lane);
                decode_step<Cfg>(raw[b] + step * S::kWords, record[b] + Cfg::kScaleAt,
                                 block % 8 * 8 + g, k + step * 32,
                                 (uint32_t)row * (R::kTilesK * 16) + (k + step * 32) / 8, table,
                                 v[step]);
            }
#pragma unroll
        for (int step = 0; step < 4; step++)
            store_step<Cfg>(panels, row, k + step * 32, v[step]);
    }
    if constexpr (Cfg::kGrid)
        store_scales<Cfg>(panels, w, run, part, tile, lane);
    let_consumer_start();
}

#endif
