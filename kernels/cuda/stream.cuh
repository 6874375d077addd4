/* GEMM for few rows of a (M <= 16): streams the packed weights once through the tensor cores.
 *
 * A unit is all M rows of kBN = 8 * kNBlocks * kNWarps packed columns. A block of threads stays: it
 * takes every gridDim.x-th unit, and its copies run ahead over the end of a unit, so that memory
 * never idles. kSplitK warps share K (tile k of 128 goes to warp k % kSplitK), kNWarps the columns.
 * Each warp has a ring of kStages tiles of its own in shared memory, filled by cp.async; a lane
 * reads only what it copied, so that weights need no barrier. Scales and zero points of the main
 * loop lie in the ring beside them. The first tiles are on their way before the producer of a is
 * waited for, and before the prologue runs. a comes from global memory into registers, one tile
 * ahead, or, with kLocalA, from shared memory that the prologue filled or, kCopiesA, bulk copies of
 * all rows: a chunk for the tiles of each round. kHeld > 0: only so many chunks lie there at once.
 *
 * kGather > 1: so many blocks of a cluster have a run of the tiles of K each. Of a unit each adds
 * up its own sums; then it finishes some of the rows, to which it adds those of all blocks, in
 * order.
 *
 * Sums of a unit: floats are added in the order of the warps. kDecoupled: no warp waits for the
 * others at the end of a unit; each has rows of some units to finish, and does when it has staged
 * its sums of the next. Integer blocks along K (kMainloop and
 * integers) keep their order: every round of kSplitK tiles the warps leave the exact sums of their
 * blocks in shared memory, and one thread an element adds them, blocks ascending:
 * f = fma((float)block, sa * sw, f).
 *
 * kAsWgmma: in the order of kernels that multiply by wgmma (docs/numerics.md): each of the kSplitK
 * warps has a run of tiles, an equal part of K, and each product 16 neighbouring columns, for which
 * lanes exchange codes but those of `fragments`.
 *
 * Cfg: that of gemm_mma.cuh, but kNBlocks (per warp; 2, 4, 8) kSplitK kNWarps kStages kRows (1 2 4
 * 8 16) kBuffers kLocalA kCopiesA kGather kDecoupled kAsWgmma kSmemBytes instead of tiles. kAPitch:
 * with kLocalA that of shared memory, whole tiles of K long; kGivenPitch: that of a. kNeighbours:
 * 8, or what weights as `fragments` have (pack.h): of its rows a lane then reads the same columns,
 * as many of them side by side. kPanels: weights of 8 bits lie as `panels`, which ldmatrix reads in
 * that order. */
#ifndef SINTER_CUDA_STREAM
#define SINTER_CUDA_STREAM

#include "kernels/cuda/stream_rows.cuh"

template <class Cfg> struct Stream : StreamRing<Cfg>, StreamRows<Cfg> {
    typedef StreamShape<Cfg> S;
    typedef StreamRing<Cfg> Ring;
    typedef typename Ring::Weights Weights;
    typedef StreamRows<Cfg> Given;
    typedef typename Given::Rows Rows;
    typedef GemmMma<Cfg> G;
    typedef typename AccumulatorOf<S::kInt>::Type Acc;
    typedef typename AccumulatorOf<S::kInt && !Cfg::kMainloop>::Type Sum; /* staged */
    typedef Record<Cfg> R;
    static constexpr int kPiecesA = Pieces<Cfg::kA, Cfg::kHome>::kNum;
    static constexpr int kPiecesW = Pieces<Cfg::kW, Cfg::kHome, Cfg::kCodebookPieces>::kNum;
    static constexpr int kPieces = kPiecesA > kPiecesW ? kPiecesA : kPiecesW;
    static constexpr bool kApart = (kPieces == 3 || Cfg::kApart) && !Cfg::kMainloop;
    static constexpr bool kRowScales = Cfg::kAFold; /* on the sums, the outer one of folded codes */
    static constexpr int kWWords = Codes8<Cfg::kW>::kWords;
    static constexpr int kPairs = Cfg::kNBlocks / 2; /* of blocks of 8 columns: one mma */
    static constexpr int kNear = Cfg::kNeighbours;
    static_assert(Cfg::kNBlocks % 2 == 0, "a warp's columns are multiples of 16");
    /* a slot is free once it has been read */
    static constexpr bool kEarly =
        Cfg::kSubs == 1 || S::kPassScales || S::kBothScales || S::kPassFolds;

    /* Sum i of half h of a pair: column lane / 4 of block i / 2, row 8 * h + lane % 4 * 2 + i % 2
     */
    struct State {
        Acc acc[kPairs][S::kHalves][4];
        float sum[kApart || (Cfg::kMainloop && !S::kOrdered) ? kPairs : 1][S::kHalves][4];
        float scale[S::kScales ? Cfg::kNBlocks : 1],
            own[S::kPassScales || S::kBothScales ? Cfg::kNBlocks : 1];
        uint32_t fold[S::kPassFolds ? kPairs : 1][2];
        int zero[Cfg::kWZero ? Cfg::kNBlocks : 1];
        int a_zero[S::kHalves];
        typename S::Pairs::Type table;
    };
    /* Integer blocks are promoted once, and none past the last; floats as often as it suits. */
    static __device__ __forceinline__ bool ends_block(int tile_k, int sub)
    {
        constexpr int kBlock = S::kBlockK ? S::kBlockK : 1;
        if (!Cfg::kExact)
            return true;
        if (S::kTilesBlock > 1)
            return (tile_k + 1) % S::kTilesBlock == 0 || tile_k == S::kTilesK - 1;
        return Cfg::kK % 128 == 0 ||
               (tile_k * 128 + sub * (128 / S::kSub)) / kBlock <= S::kLastBlock;
    }

    /* Rows of a -------------------------------------------------------------------------------- */

    /* One piece of the lane's operand of each half, from k of K on. */
    template <int PIECE>
    static __device__ __forceinline__ void decode_rows(uint32_t (&to)[S::kHalves][4], const Rows &r,
                                                       int from, const State &s, const Operand &a,
                                                       int k, int lane)
    {
        k += lane % 4 * 8;
#pragma unroll
        for (int h = 0; h < S::kHalves; h++) {
            decode_act<Cfg::kA, Cfg::kHome, PIECE>(r.raw[from][h], Cfg::kAZero ? s.a_zero[h] : 0,
                                                   to[h]);
            if constexpr (Cfg::kAFold)
                fold_scale<Cfg::kHome>(to[h],
                                       a.scale[G::act_at(r.at[h], k < Cfg::kK ? k : Cfg::kK - 1)]);
        }
    }

    /* Products --------------------------------------------------------------------------------- */

    /* 32 of K of 16 columns and 8 rows. FRESH: of no sums before. */
    template <bool FRESH>
    static __device__ __forceinline__ void multiply(Acc (&d)[4], const uint32_t (&w0)[4],
                                                    const uint32_t (&w1)[4],
                                                    const uint32_t (&rows)[4])
    {
        if constexpr (S::kInt) {
            uint32_t w[4] = {w0[0], w1[0], w0[1], w1[1]};
            mma_i8<Bits<Cfg::kW>::kSigned || Cfg::kWZero || Cfg::kWFold, Bits<Cfg::kA>::kSigned>(
                d, w, rows[0], rows[1], d);
        } else {
            if constexpr (FRESH)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    d[i] = 0;
#pragma unroll
            for (int i = 0; i < 4; i += 2) {
                uint32_t w[4] = {w0[i], w1[i], w0[i + 1], w1[i + 1]};
                if (Cfg::kHome == HOME_F16)
                    mma_f16(d, w, rows[i], rows[i + 1], d);
                else
                    mma_bf16(d, w, rows[i], rows[i + 1], d);
            }
        }
    }

    /* The rows of the lane's sums, inside the tensor, and their scales where one serves all of K.
     */
    struct Scales {
        int row[S::kHalves][2];
        float scale[S::kHalves][2];
    };
    static __device__ __forceinline__ void find_scales(Scales &r, const Operand &a, int64_t m,
                                                       int lane)
    {
#pragma unroll
        for (int h = 0; h < S::kHalves; h++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                int row = 8 * h + lane % 4 * 2 + i;
                r.row[h][i] = row < m ? row : 0;
                r.scale[h][i] = 1.0f;
                if (kRowScales)
                    r.scale[h][i] = G::act_scale(a, r.row[h][i], 0);
            }
    }

    /* Adds the sums of float block `block`, scaled, and clears them. */
    static __device__ __forceinline__ void promote(State &s, const Operand &a, const Scales &r,
                                                   int block)
    {
#pragma unroll
        for (int h = 0; h < S::kHalves; h++) {
            float sa[2] = {r.scale[h][0], r.scale[h][1]};
            if constexpr (Cfg::kAScale && !kRowScales)
                sa[0] = G::act_scale(a, r.row[h][0], block),
                sa[1] = G::act_scale(a, r.row[h][1], block);
#pragma unroll
            for (int pair = 0; pair < kPairs; pair++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    float sb = S::kScales ? s.scale[S::kScales ? 2 * pair + i / 2 : 0]
                                          : S::kSumsTimes * R::kTableUnit;
                    float scale = Cfg::kAScale ? sa[i % 2] * sb : sb;
                    float &sum = s.sum[pair][h][i];
                    Acc v = s.acc[pair][h][i];
                    if constexpr (S::kInt)
                        v >>= G::shift();
                    sum = num_fma((float)v, scale, sum);
                    s.acc[pair][h][i] = 0;
                }
        }
    }

    /* Staged sums: row by row, the parts side by side. */
    static __device__ __forceinline__ int column_of(int group, int nb, int lane)
    {
        int block = group * Cfg::kNBlocks + nb;
        if (Cfg::kPanels) { /* runs of 32 alternate between the parts; pack.h has their order */
            const int run = block / 4;
            return run % Cfg::kParts * S::kCols + run / Cfg::kParts * 32 + lane / 8 * 8 +
                   block % 4 * 2 + lane / 4 % 2;
        }
        return block % Cfg::kParts * S::kCols + block / Cfg::kParts * 8 + lane / 4;
    }

    template <class Value>
    static __device__ __forceinline__ void stage(Value *to, int group, int lane, int pair, int h,
                                                 const Value (&v)[4])
    {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int row = 8 * h + lane % 4 * 2 + i % 2;
            if (Cfg::kRows >= 8 || row < Cfg::kRows)
                to[row * S::kPitch + column_of(group, 2 * pair + i / 2, lane)] = v[i];
        }
    }

    /* The exact sums of integer block `sub` of a tile, and its scales, for `chain`. */
    static __device__ __forceinline__ void stage_block(State &s, int32_t *staged, int slice,
                                                       int sub, int group, int lane)
    {
        const int q = slice * S::kSub + sub;
        float *scales = (float *)(staged + S::kSlices * Cfg::kRows * S::kPitch) + q * S::kBN;
#pragma unroll
        for (int pair = 0; pair < kPairs; pair++)
#pragma unroll
            for (int h = 0; h < S::kHalves; h++) {
                int32_t v[4];
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    v[i] = (int32_t)s.acc[pair][h][i] >> G::shift(); /* whole numbers */
                    s.acc[pair][h][i] = 0;
                }
                stage(staged + q * Cfg::kRows * S::kPitch, group, lane, pair, h, v);
            }
        if (S::kScales && lane % 4 == 0)
#pragma unroll
            for (int nb = 0; nb < Cfg::kNBlocks; nb++)
                scales[column_of(group, nb, lane)] = s.scale[S::kScales ? nb : 0];
    }

    /* What one thread of the block sums: elements threadIdx.x + j * kThreads of the unit. */
    struct Chain {
        static constexpr int kEach = (Cfg::kRows * S::kBN + S::kThreads - 1) / S::kThreads;
        float sum[kEach];
        int32_t part[kEach]; /* of a block of several tiles */
    };

    /* Adds the blocks of one round in their order; the last round leaves the sums in total. */
    static __device__ __forceinline__ void chain(Chain &c, const Operand &a, const int32_t *staged,
                                                 float *total, int round, int64_t m)
    {
        const float *scales = (const float *)(staged + S::kSlices * Cfg::kRows * S::kPitch);
#pragma unroll
        for (int j = 0; j < Chain::kEach; j++) {
            int e = threadIdx.x + j * S::kThreads;
            int row = e / S::kBN, col = e % S::kBN;
            if (row >= m || row >= Cfg::kRows)
                continue;
            if (round == 0)
                c.sum[j] = 0.0f, c.part[j] = 0;
            const int32_t *v = staged + row * S::kPitch + col;
#pragma unroll
            for (int q = 0; q < S::kSlices; q++) {
                int tile = round * Cfg::kSplitK + q / S::kSub;
                int block =
                    S::kTilesBlock > 1 ? tile / S::kTilesBlock : tile * S::kSub + q % S::kSub;
                bool last = tile == S::kTilesK - 1;
                bool ends = S::kTilesBlock == 1 || (tile + 1) % S::kTilesBlock == 0 || last;
                if (block > S::kLastBlock || tile >= S::kTilesK)
                    continue;
                c.part[j] += v[q * Cfg::kRows * S::kPitch];
                if (!ends)
                    continue;
                float scale = S::kScales ? scales[q * S::kBN + col] : 1.0f;
                if constexpr (Cfg::kAScale)
                    scale = G::act_scale(a, row, block) * scale;
                c.sum[j] = num_fma((float)c.part[j], scale, c.sum[j]);
                c.part[j] = 0;
            }
            if (round == S::kRounds - 1)
                total[row * S::kPitch + col] = c.sum[j];
        }
    }

    /* Multiplies scales in, of pairs of columns an eighth of the step apart. */
    static __device__ __forceinline__ void fold_apart(uint32_t (&codes)[4], uint32_t slot, int nb,
                                                      int k, int lane)
    {
        constexpr int kBlock = Cfg::kWBlockK ? Cfg::kWBlockK : 32;
        float scale = 0.0f;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (32 % kBlock || i * 8 % kBlock == 0)
                scale = Ring::fold_of(slot, nb, k + i * 8, lane);
            fold_pair<Cfg::kHome>(codes[i], scale);
        }
    }

    /* .. that lanes pass round, of a pair of blocks of columns: of one half of the step, or of
     * columns from both. */
    static __device__ __forceinline__ void fold_passed(uint32_t (&codes)[2][4], const State &s,
                                                       int pair, int step, int lane)
    {
        const uint32_t first = Ring::pass_fold(s, pair, step, kNear == 8 ? lane % 4 / 2 : 0, lane);
        const uint32_t second = kNear == 8 ? first : Ring::pass_fold(s, pair, step, 1, lane);
#pragma unroll
        for (int b = 0; b < 2; b++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                fold_half<Cfg::kHome>(codes[b][i], i < 2 ? first : second, b);
    }

    /* One piece of the operands of a pair of blocks of columns. */
    template <int PIECE>
    static __device__ __forceinline__ void decode_pair(uint32_t (&to)[2][4], const State &s,
                                                       const Weights &q, uint32_t slot, int pair,
                                                       int step, int k, int lane)
    {
#pragma unroll
        for (int b = 0; b < 2; b++) {
            const int nb = 2 * pair + b;
            if constexpr (S::kRaw)
                RawE2m1<Cfg::kHome>::template eight<InOwnOrder<Cfg>::kYes>(
                    q.raw[nb] + step * kWWords, to[b]);
            else
                decode_weight<Cfg::kW, Cfg::kHome, Cfg::kWZero, PIECE, S::kInUnit,
                              InOwnOrder<Cfg>::kYes>(q.raw[nb] + step * kWWords,
                                                     Cfg::kWZero ? s.zero[Cfg::kWZero ? nb : 0] : 0,
                                                     s.table, to[b]);
            if constexpr (S::kPassFolds)
                continue;
            else if constexpr (Cfg::kWFold && (kNear == 8 || S::kInt))
                fold_scale<Cfg::kHome>(to[b], Ring::fold_of(slot, nb, k + lane % 4 * 8, lane));
            else if constexpr (Cfg::kWFold)
                fold_apart(to[b], slot, nb, k, lane);
        }
        if constexpr (S::kPassFolds)
            fold_passed(to, s, pair, step, lane);
    }

    /* All pairs of pieces of one step of 32 from k on; of its codes those between begin and end. */
    template <int PIECE_A, int PIECE_W, bool ALL>
    static __device__ __forceinline__ void products(State &s, const Rows &r, const Weights &q,
                                                    const Operand &a, uint32_t slot, int from,
                                                    int step, int k, int begin, int end, int lane)
    {
        if constexpr (PIECE_A < kPiecesA) {
            uint32_t fa[S::kHalves][4];
            decode_rows<PIECE_A>(fa, r, from, s, a, k, lane);
#pragma unroll
            for (int pair = 0; pair < kPairs; pair++) {
                uint32_t fb[2][4];
                decode_pair<PIECE_W>(fb, s, q, slot, pair, step, k, lane);
                if (!ALL)
#pragma unroll
                    for (int b = 0; b < 2; b++)
                        keep_codes<Cfg::kHome>(fb[b], k + lane % 4 * 8, begin, end);
#pragma unroll
                for (int h = 0; h < S::kHalves; h++)
                    multiply<kApart && ALL && PIECE_A + PIECE_W == 0>(s.acc[pair][h], fb[0], fb[1],
                                                                      fa[h]);
            }
            constexpr bool kMore = PIECE_W + 1 < kPiecesW && PIECE_A + PIECE_W + 1 < kPieces;
            products<kMore ? PIECE_A : PIECE_A + 1, kMore ? PIECE_W + 1 : 0, ALL>(
                s, r, q, a, slot, from, step, k, begin, end, lane);
        }
    }

    static __device__ __forceinline__ void read_zeros(State &s, const Rows &r, const Operand &a,
                                                      int k)
    {
        if (Cfg::kAZero)
#pragma unroll
            for (int h = 0; h < S::kHalves; h++)
                s.a_zero[h] = a.zero[G::act_at(r.at[h], k < Cfg::kK ? k : Cfg::kK - 1)];
    }

    /* A step of 32 from k on in which blocks end. */
    static __device__ __forceinline__ void fine_step(State &s, const Rows &r, const Weights &q,
                                                     uint32_t slot, const Operand &a,
                                                     const Scales &scales, int from, int step,
                                                     int k, int row, int lane)
    {
        constexpr int kBlock = S::kBlockK ? S::kBlockK : 1;
#pragma unroll 1
        for (int begin = k; begin < k + 32 && begin < Cfg::kK;) {
            int end = (begin / kBlock + 1) * kBlock;
            if (!kEarly)
                Ring::read_params(s, slot, R::sub_of(begin), row, lane);
            read_zeros(s, r, a, begin);
            products<0, 0, false>(s, r, q, a, slot, from, step, k, begin, end, lane);
            promote(s, a, scales, begin / kBlock);
            begin = end;
        }
    }

    /* Adds the sums of a step. */
    static __device__ __forceinline__ void add_apart(State &s)
    {
#pragma unroll
        for (int pair = 0; pair < kPairs; pair++)
#pragma unroll
            for (int h = 0; h < S::kHalves; h++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    s.sum[pair][h][i] = s.sum[pair][h][i] + s.acc[pair][h][i];
                    if (S::kFine)
                        s.acc[pair][h][i] = 0;
                }
    }

    /* One tile of 128 of K. rows_k: where its rows lie among local ones, or the tile whose rows are
     * fetched meanwhile. */
    static __device__ __forceinline__ void tile(State &s, Rows &r, const Weights &q, uint32_t slot,
                                                const Operand &a, const Scales &scales,
                                                int32_t *staged, int tile_k, int rows_k, int slice,
                                                int group, int row, int lane)
    {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int from = Cfg::kLocalA ? 0 : i, k = tile_k * 128 + i * 32;
            if (Cfg::kLocalA)
                Given::load_rows(r, rows_k, 0, i, lane);
            if constexpr (S::kFine) {
                fine_step(s, r, q, slot, a, scales, from, i, k, row, lane);
            } else {
                if (i % S::kSubSteps == 0) {
                    if (!kEarly)
                        Ring::read_params(s, slot, R::sub_of(k), row, lane);
                    if constexpr (S::kPassScales)
                        Ring::pass_scales(s, i / S::kSubSteps, lane);
                    if (S::kBothScales && i > 0)
                        Ring::take_second(s);
                    read_zeros(s, r, a, k);
                }
                products<0, 0, true>(s, r, q, a, slot, from, i, k, 0, 0, lane);
            }
            if constexpr (kApart)
                add_apart(s);
            if (!Cfg::kLocalA)
                Given::load_rows(r, rows_k, i, i, lane);
            if ((i + 1) % S::kSubSteps == 0 && !S::kFine) {
                if constexpr (S::kOrdered)
                    stage_block(s, staged, slice, i / S::kSubSteps, group, lane);
                else if constexpr (Cfg::kMainloop)
                    if (ends_block(tile_k, i / S::kSubSteps))
                        promote(s, a, scales, Ring::block_of(tile_k, i / S::kSubSteps));
            }
        }
    }

    /* The sums of a warp's tiles. */
    template <class Value>
    static __device__ __forceinline__ void stage_sums(const State &s, Value *to, int group,
                                                      int lane)
    {
#pragma unroll
        for (int pair = 0; pair < kPairs; pair++)
#pragma unroll
            for (int h = 0; h < S::kHalves; h++) {
                Value v[4];
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    if constexpr (Cfg::kMainloop || kApart)
                        v[i] = s.sum[pair][h][i];
                    else if constexpr (S::kInt)
                        v[i] = s.acc[pair][h][i] >> G::shift();
                    else
                        v[i] = s.acc[pair][h][i];
                }
                stage(to, group, lane, pair, h, v);
            }
    }

    /* Sums of a row over the warps that share K, in their order, by one warp; to the first's. */
    template <class Value>
    static __device__ __forceinline__ const char *sum_slices(Value *staged, int row, int lane)
    {
        Value *to = staged + row * S::kPitch;
        for (int col = lane; col < S::kBN; col += 32) {
            Value v = to[col];
            if (Cfg::kAsWgmma && S::kSlices > 1)
                v = (Value)0 + v; /* parts are added from +0 on */
#pragma unroll
            for (int q = 1; q < S::kSlices; q++)
                v = v + to[q * Cfg::kRows * S::kPitch + col];
            to[col] = v;
        }
        __syncwarp();
        return (const char *)to;
    }

    /* Steps of a warp -------------------------------------------------------------------------- */

    /* Ends the rows of a unit that lie in `sums` or, kOrdered, in `total`: the warps take turns at
     * them, while the others go on. */
    template <class Epilogue, class Sum, class Params>
    static __device__ __forceinline__ void finish_rows(const Params &p, const Operand &a, Sum *sums,
                                                       const float *total, int unit, int first,
                                                       int64_t m, int lane)
    {
        for (int i = first % S::kWarps; i < Cfg::kRows && i < m; i += S::kWarps) {
            const char *sum = (const char *)(total + i * S::kPitch);
            if constexpr (!S::kOrdered)
                sum = sum_slices(sums, i, lane);
            Epilogue::row(p, a, sum, i, unit * S::kCols, lane);
        }
    }

    /* kDecoupled: leaves the warp's sums of the block's unit number `turn`. */
    static __device__ __forceinline__ void stage_decoupled(const State &s, Sum *to,
                                                           uint32_t barriers, int turn, int group,
                                                           int lane)
    {
        const uint32_t full = barriers + 8 * (S::kPlaces + turn % Cfg::kBuffers);
        const int uses = turn / Cfg::kBuffers; /* of the buffer before */
        if (uses > 0)
            barrier_wait(full + 8 * Cfg::kBuffers, (uses - 1) % 2);
        stage_sums(s, to, group, lane);
        __syncwarp();
        cluster_arrive<1>(full, lane);
    }
    /* .. and finishes the rows of a unit that are the warp's. */
    template <class Epilogue, class Params>
    static __device__ __forceinline__ void finish_decoupled(const Params &p, const Operand &a,
                                                            Sum *staged, uint32_t barriers,
                                                            int unit, int turn, int64_t m)
    {
        const int lane = threadIdx.x % 32, first = threadIdx.x / 32 + turn * Cfg::kRows;
        const uint32_t full = barriers + 8 * (S::kPlaces + turn % Cfg::kBuffers);
        if (first % S::kWarps < Cfg::kRows && first % S::kWarps < m) {
            barrier_wait(full, turn / Cfg::kBuffers % 2);
            finish_rows<Epilogue>(p, a, staged + turn % Cfg::kBuffers * S::kStagedWords,
                                  (const float *)0, unit, first, m, lane);
            __syncwarp();
        }
        cluster_arrive<1>(full + 8 * Cfg::kBuffers, lane);
    }

    /* kGather: the same, once each block of the cluster has added up its own sums. Two buffers:
     * when one is staged again, all blocks have met since they read it. */
    template <class Epilogue, class Sum, class Params>
    static __device__ __forceinline__ void finish_gathered(const Params &p, const Operand &a,
                                                           Sum *sums, int unit, int warp, int64_t m,
                                                           int lane)
    {
        constexpr int kEach = (S::kBN + 31) / 32;
        const int rank = blockIdx.x % Cfg::kGather;
        for (int i = warp; i < Cfg::kRows && i < m; i += S::kWarps)
            sum_slices(sums, i, lane);
        meet_cluster_stored();
        for (int i = rank + warp * Cfg::kGather; i < Cfg::kRows && i < m;
             i += S::kWarps * Cfg::kGather) {
            Sum *row = sums + i * S::kPitch;
            Sum part[kEach][Cfg::kGather];
#pragma unroll
            for (int j = 0; j < kEach; j++)
#pragma unroll
                for (int block = 0; block < Cfg::kGather; block++)
                    if (S::kBN % 32 == 0 || j * 32 + lane < S::kBN)
                        part[j][block] = load_there(row + j * 32 + lane, block);
#pragma unroll
            for (int j = 0; j < kEach; j++) {
#pragma unroll
                for (int block = 1; block < Cfg::kGather; block++)
                    part[j][0] = part[j][0] + part[j][block];
                if (S::kBN % 32 == 0 || j * 32 + lane < S::kBN)
                    row[j * 32 + lane] = part[j][0];
            }
            __syncwarp();
            Epilogue::row(p, a, (const char *)row, i, unit * S::kCols, lane);
        }
    }

    /* Stages a unit's sums, and finishes rows of it, or of the one before. */
    template <class Epilogue, class Params>
    static __device__ __forceinline__ void end_unit(const Params &p, const Operand &a,
                                                    const State &s, int32_t *staged, float *total,
                                                    int &buffer, uint32_t barriers, int unit,
                                                    int turn, int64_t m)
    {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        const int slice = warp % Cfg::kSplitK, group = warp / Cfg::kSplitK;
        Sum *of_unit = (Sum *)(staged + buffer * S::kStagedWords);
        Sum *of_warp = of_unit + slice * Cfg::kRows * S::kPitch;
        if constexpr (Cfg::kDecoupled) {
            stage_decoupled(s, of_warp, barriers, turn, group, lane);
            if (turn > 0)
                finish_decoupled<Epilogue>(p, a, (Sum *)staged, barriers, unit - S::unit_step(),
                                           turn - 1, m);
            buffer = (buffer + 1) % Cfg::kBuffers;
            return;
        }
        if constexpr (!S::kOrdered) {
            stage_sums(s, of_warp, group, lane);
            __syncthreads(); /* also, with two buffers, behind the reads of the unit before last */
            buffer = (buffer + 1) % Cfg::kBuffers;
        }
        if constexpr (Cfg::kGather > 1)
            finish_gathered<Epilogue>(p, a, of_unit, unit, warp, m, lane);
        else
            finish_rows<Epilogue>(p, a, of_unit, total, unit, warp + turn * Cfg::kRows, m, lane);
        if (Cfg::kBuffers == 1 && !S::kOrdered)
            __syncthreads();
    }

    /* Waits for the tile that is next in the warp's ring, and reads it, if there is one. */
    static __device__ __forceinline__ void take(Weights &q, State &s, uint32_t at, bool live,
                                                int row, int lane)
    {
        copy_wait<Cfg::kStages - 1>();
        __syncwarp();
        if (live) {
            Ring::read_weights(q, at, lane);
            if constexpr (S::kPassFolds)
                Ring::read_folds(s, at, lane);
            else if (kEarly)
                Ring::read_params(s, at, S::kPassScales ? lane % 4 : 0, row, lane);
        }
    }

    /* kOrdered: adds the blocks of a round, of which all warps have left theirs. */
    static __device__ __forceinline__ void add_round(Chain &sums, const Operand &a,
                                                     const int32_t *staged, float *total, int round,
                                                     int64_t m)
    {
        chain(sums, a, staged, total, round, m);
        if (Cfg::kBuffers == 1 || round + 1 == S::kRounds)
            __syncthreads();
    }

    /* What `tile` is told of the rows of a warp's next tile; waits for those that are copied. */
    static __device__ __forceinline__ int rows_of(uint32_t barriers, int turn, int round, int slice)
    {
        if constexpr (S::kRefills) {
            const int chunk = turn * S::kRounds + round, place = chunk % S::kPlaces;
            barrier_wait(barriers + 8 * place, chunk / S::kPlaces % 2);
            return place * Cfg::kSplitK + slice;
        }
        if (Cfg::kCopiesA && turn == 0)
            barrier_wait(barriers + 8 * (S::own_tile(round, slice) / Cfg::kSplitK), 0);
        const int k = S::tile_of(round, slice);
        if (Cfg::kLocalA)
            return k;
        return round + 1 < S::kRounds ? k + S::kStride : S::tile_of(0, slice);
    }

    /* The next copy, if this is its place: behind the reads of the slot that it goes to. */
    template <bool NOW>
    static __device__ __forceinline__ void fetch_next(typename Ring::Ahead &ahead, uint32_t to,
                                                      const char *w, int slice, int group, int lane)
    {
        if (NOW) {
            __syncwarp();
            Ring::fetch(ahead, to, w, slice, group, lane);
        }
    }

    /* Finds the warp's first tile. What all warps ask for at once comes at once, and until then
     * none has work: so the rest of the ring is filled when they have met. */
    static __device__ __forceinline__ void fetch_first(typename Ring::Ahead &ahead, uint32_t ring,
                                                       const char *w, int slice, int group,
                                                       int lane)
    {
        Ring::begin(ahead, w, slice, group, lane);
        Ring::fetch(ahead, ring, w, slice, group, lane);
    }
    static __device__ __forceinline__ void fetch_rest(typename Ring::Ahead &ahead, uint32_t ring,
                                                      const char *w, int slice, int group, int lane)
    {
#pragma unroll 1
        for (int i = 1; i < Cfg::kStages; i++)
            Ring::fetch(ahead, ring + i * S::kStageBytes, w, slice, group, lane);
    }
};

/* Before anybody waits at one. */
template <class Cfg> __device__ __forceinline__ void begin_barriers(uint32_t barriers)
{
    typedef StreamShape<Cfg> S;
    if (threadIdx.x < S::kBarriers)
        barrier_init(barriers + 8 * threadIdx.x,
                     threadIdx.x < S::kPlaces ? 1 : S::kWarps * kWarpArrivals);
    barrier_init_done();
}

/* What the block's threads share beside their rings: values of pairs of codes, zeros behind local
 * rows, barriers. */
template <class Cfg> __device__ __forceinline__ void begin_shared(char *smem, const char *w)
{
    typedef StreamShape<Cfg> S;
    if constexpr (S::Pairs::kBytes > 0)
        S::Pairs::Type::fill(smem_address(smem) + S::kPairsAt, Record<Cfg>::table(w), S::kThreads);
    if constexpr (Cfg::kLocalA)
        StreamRows<Cfg>::clear_tails(smem + S::kLocalAt);
    if constexpr (S::kBarriers > 0)
        begin_barriers<Cfg>(smem_address(smem) + S::kBarriersAt);
    if (S::Pairs::kBytes > 0 || S::kBarriers > 0)
        __syncthreads();
}

template <class Cfg, class Prologue, class Epilogue, class Params>
__device__ __forceinline__ void stream(const Params &p)
{
    typedef Stream<Cfg> G;
    typedef StreamShape<Cfg> S;
    extern __shared__ __align__(128) char smem[];
    const int64_t m = p.dim[0];
    const char *w = (const char *)p.op[Cfg::kOperandW].data;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int slice = warp % Cfg::kSplitK, group = warp / Cfg::kSplitK;
    /* an address that is not computed anew for every use */
    uint32_t ring = smem_address(smem) + warp * (Cfg::kStages * S::kStageBytes);
    asm volatile("" : "+r"(ring));
    int32_t *staged = (int32_t *)(smem + S::kRingBytes);
    float *total = (float *)(staged + Cfg::kBuffers * S::kStagedWords);
    char *local = smem + S::kLocalAt;
    const uint32_t barriers = smem_address(smem) + S::kBarriersAt;

    typename G::Ahead ahead;
    G::fetch_first(ahead, ring, w, slice, group, lane);
    begin_shared<Cfg>(smem, w);
    G::fetch_rest(ahead, ring, w, slice, group, lane);
    const Operand a = Prologue::run(p, local);

    typename G::Rows rows;
    typename G::Chain sums;
    typename G::Scales scales;
    G::find_rows(rows, Cfg::kLocalA ? local : (const char *)a.data, m, lane);
    G::find_scales(scales, a, m, lane);
    G::load_first(rows, slice, lane);
    /* which a block of one unit would wait for at its end */
    for (int i = warp; i < Cfg::kRows && i < m; i += S::kWarps)
        Epilogue::fetch(p, i, S::first_unit() * S::kCols, lane);

    int buffer = 0, turn = 0;
    for (int unit = S::first_unit(); unit < S::kUnitsN; unit += S::unit_step(), turn++) {
        typename G::State s = {};
        if constexpr (S::Pairs::kBytes > 0)
            s.table = s.table.of_lane(smem_address(smem) + S::kPairsAt, lane);
        else
            s.table = Record<Cfg>::table(w);
        const int row = G::block_of_unit(unit, group) % 8 * 8;
#pragma unroll 1
        for (int r0 = 0; r0 < S::kRounds; r0 += S::kAtOnce)
#pragma unroll
            for (int r = r0; r < r0 + S::kAtOnce; r++) {
                const int k = S::tile_of(r, slice);
                const bool live = S::has_tile(r, slice);
                const uint32_t at =
                    ring + (S::kAtOnce > 1 ? (r - r0) * S::kStageBytes : ahead.slot);
                typename G::Weights q;
                G::take(q, s, at, live, row, lane);
                G::template fetch_next<G::kEarly>(ahead, at, w, slice, group, lane);
                if (live)
                    G::tile(s, rows, q, at, a, scales, staged + buffer * S::kStagedWords, k,
                            G::rows_of(barriers, turn, r, slice), slice, group, row, lane);
                else
                    G::load_first(rows, slice, lane);
                G::template fetch_next<!G::kEarly>(ahead, at, w, slice, group, lane);
                if constexpr (S::kOrdered) {
                    __syncthreads();
                    if constexpr (S::kRefills)
                        refill_chunk<Cfg>(p, m, barriers, local, unit, turn, r);
                    G::add_round(sums, a, staged + buffer * S::kStagedWords, total, r, m);
                    buffer = (buffer + 1) % Cfg::kBuffers;
                }
            }
        if (unit + S::unit_step() >= S::kUnitsN && threadIdx.x == 0)
            fetch_share(p.ahead, blockIdx.x);
        G::template end_unit<Epilogue>(p, a, s, staged, total, buffer, barriers, unit, turn, m);
    }
    if constexpr (Cfg::kDecoupled)
        G::template finish_decoupled<Epilogue>(p, a, (typename G::Sum *)staged, barriers,
                                               S::first_unit() + (turn - 1) * S::unit_step(),
                                               turn - 1, m);
    copy_wait<0>();
    let_consumer_start();
    cluster_end<Cfg::kGather>();
}

#endif
