/* GEMM on the tensor cores of any GPU from compute capability 8.0 (mma.sync, cp.async):
 *
 *   c[m, n] = sum over k of a[m, k] * w[n, k], then the fused epilogue on whole tiles.
 *
 * a: [M, K] row-major codes or 16-bit floats, rows kAPitch bytes apart, 16-byte aligned. w: packed
 * by cuda_pack (pack.h): in each 8 rows x 32 of K, lane 4 * g + t holds the eight codes of row g at
 * columns 8t .. 8t + 7. The lane reads the same columns of a, so the order of K inside a block of
 * 32 is the same for both operands and nothing is shuffled.
 *
 * A block of kWarpsM x kWarpsN warps computes a tile of kBM x kBN; kBK of K make a stage of a
 * cp.async pipeline. A warp's fragments are in registers one step of 32 before they are multiplied:
 * those of a twice, those of w are read again as soon as their last product is issued. Integer
 * operands accumulate exactly in int32; the others in f32 with 16-bit operands that hold the codes
 * exactly. Scales that vary along K (kMainloop) are applied per block of kBlockK to the block's
 * sum, blocks ascending: f = fma((float)block, sa * sw, f).
 *
 * kSplitK > 1: as many blocks share a tile, each with a run of K of its own. Their sums go to a
 * workspace (operand kOperandSplit: one counter a tile, zero between launches; at kSplitSums, the
 * sums); the block that comes last adds them in the order of the runs, so that the result does not
 * depend on who that is, and goes on with the epilogue. Integer blocks along K keep one order: no
 * split.
 *
 * Where a prologue makes a, the blocks share out its rows (kRowCounters: where in that workspace).
 *
 * Cfg: what Record wants (gemm_shape.cuh), and kA (FormatId) kHome kN (packed rows) kBM kBN kBK
 * kWarpsM kWarpsN kStages kSplitK kParts kMainloop kBlockK (0: one block) kExact (both are
 * integers) kWFold kAFold (their scales are multiplied into the codes) kAScale kAZero kABlockRows
 * kABlockK (rows, columns of a that share a scale; 0 = all) kAPitch kOperandA kOperandW
 * kOperandSplit kSplitSums kCodebookPieces kApart (both format.cuh: Pieces). */
#ifndef SINTER_CUDA_GEMM_MMA
#define SINTER_CUDA_GEMM_MMA

#include "kernels/cuda/gemm_load.cuh"
#include "kernels/cuda/gemm_rows.cuh"

template <int FMT, bool ZERO> struct Largest { /* magnitude of an integer code */
    static constexpr int kCode =
        ZERO ? 15 : (1 << (Bits<FMT>::kBits - Bits<FMT>::kSigned)) - !Bits<FMT>::kSigned;
};

template <class Cfg> struct GemmTile {
    typedef GemmShape<Cfg> S;
    typedef GemmMma<Cfg> G;
    typedef GemmLoader<Cfg> L;
    typedef typename G::Acc Acc;
    typedef typename AccumulatorOf<S::kInt && !Cfg::kMainloop>::Type Sum;
    typedef Record<Cfg> R;
    /* Loads of 16 bytes in flight while sums are gathered: 16, in the registers that fragments had.
     */
    static constexpr int kSplitBatch = Cfg::kSplitK < 8 ? 16 / Cfg::kSplitK : 1;
    static constexpr int kAWords = ActBits<Cfg::kA>::kWords;
    static constexpr int kWWords = Codes8<Cfg::kW>::kWords;
    static constexpr int kShift = G::shift();
    static constexpr int kHalves = S::kInt ? 1 : 2; /* products of a step */
    static constexpr int kPiecesA = Pieces<Cfg::kA, Cfg::kHome>::kNum;
    static constexpr int kPiecesW = Pieces<Cfg::kW, Cfg::kHome, Cfg::kCodebookPieces>::kNum;
    static constexpr int kPieces = kPiecesA > kPiecesW ? kPiecesA : kPiecesW;
    static constexpr bool kApart = /* blocks of scales are added so anyway */
        (kPieces == 3 || Cfg::kApart) && !(Cfg::kMainloop && Cfg::kBlockK && Cfg::kBlockK <= 256);
    static constexpr bool kMoves = !S::kMatrices && (Cfg::kA == FMT_F16 || Cfg::kA == FMT_BF16 ||
                                                     Cfg::kA == FMT_I8 || Cfg::kA == FMT_U8);
    /* The first step of a scale's block is known where it is written: its products start anew. */
    static constexpr bool kKnownBlocks = Cfg::kMainloop && Cfg::kBlockK && !S::kFine &&
                                         Cfg::kBK % (Cfg::kBlockK ? Cfg::kBlockK : 1) == 0;
    /* Sums of a block of integers below 2^22 become floats without a conversion: they are counted
     * from the bits of 1.5 * 2^23 on. */
    static constexpr int64_t kLargest =
        (int64_t)Largest<Cfg::kA, false>::kCode * Largest<Cfg::kW, Cfg::kWZero>::kCode;
    static constexpr bool kMagic =
        S::kInt && Cfg::kMainloop && Cfg::kBlockK && Cfg::kBlockK * kLargest <= (1 << 22 >> kShift);
    static constexpr int kZeroBits = kMagic ? 0x4B400000 : 0;

    /* Where the sums of a block start. */
    static __device__ __forceinline__ Acc start()
    {
        return (Acc)kZeroBits;
    }

    /* From shared memory ----------------------------------------------------------------------- */

    struct State {
        Acc acc[S::kMFrags][S::kNFrags][4];
        float sum[Cfg::kMainloop ? S::kMFrags : 1][Cfg::kMainloop ? S::kNFrags : 1][4];
        /* this step's and the next one's */
        uint32_t a[S::kMatrices ? 1 : 2][S::kMFrags][2][kAWords < 4 ? 4 : kAWords];
        uint32_t w[S::kNFrags][S::kUnitWords];
        int zero[Cfg::kWZero ? S::kNFrags : 1];
        int a_zero[Cfg::kAZero ? S::kMFrags : 1][2];
        const float *a_scale[Cfg::kAFold ? S::kMFrags : 1][2]; /* of its rows */
        int32_t part[S::kChunks ? S::kMFrags : 1][S::kChunks ? S::kNFrags : 1][4];
        typename R::Fold fold[Cfg::kWFold ? S::kNFrags : 1]; /* of the step's codes */
        typename Record<Cfg>::Table table;
        float sa[Cfg::kAScale ? S::kMFrags : 1][2], sw[Cfg::kMainloop ? S::kNFrags : 1][2];
    };

    /* Of rows row0 .. of a stage, the eight codes of a step that this lane multiplies. */
    template <int WORDS>
    static __device__ __forceinline__ void read_a(uint32_t (&to)[S::kMFrags][2][WORDS],
                                                  const char *stage, int row0, int step, int lane)
    {
        const int row = row0 + lane / 4, at = (step * 4 + lane % 4) * kAWords * 4;
        const char *p = stage + at / S::kPanelBytes * (Cfg::kBM * S::kPanelBytes) +
                        row * S::kPanelBytes + L::swizzle(row, at % S::kPanelBytes / 16) * 16 +
                        at % 16;
        const int beside = row % 2 ? -16 : 16; /* the second chunk of eight that take two */
#pragma unroll
        for (int mf = 0; mf < S::kMFrags; mf++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const char *from = p + (mf * 16 + h * 8) * S::kPanelBytes;
                if constexpr (kAWords >= 4) {
#pragma unroll
                    for (int i = 0; i < kAWords; i += 4) {
                        Bytes16 v = *(const Bytes16 *)(i ? from + beside : from);
                        to[mf][h][i] = v.x, to[mf][h][i + 1] = v.y;
                        to[mf][h][i + 2] = v.z, to[mf][h][i + 3] = v.w;
                    }
                } else {
                    Bytes8 v = *(const Bytes8 *)from;
                    to[mf][h][0] = v.x, to[mf][h][1] = v.y;
                }
            }
    }
    /* kMatrices: the a operands of half a step. */
    static __device__ __forceinline__ void read_half(State &s, const char *stage, int row0,
                                                     int step, int half, int lane)
    {
        const int row = row0 + lane % 16, at = step * 64 + half * 32 + lane / 16 * 16;
        const uint32_t from = smem_address(stage) +
                              at / S::kPanelBytes * (Cfg::kBM * S::kPanelBytes) +
                              row * S::kPanelBytes + L::swizzle(row, at % S::kPanelBytes / 16) * 16;
#pragma unroll
        for (int mf = 0; mf < S::kMFrags; mf++)
            load_matrices(s.a[0][mf][half], from + mf * 16 * S::kPanelBytes);
    }
    /* The lane's 16 bytes of 8 columns of a stage: kUnitSteps steps. */
    static __device__ __forceinline__ void read_w(uint32_t (&to)[S::kUnitWords], const char *stage,
                                                  int unit, int block, int lane)
    {
        if constexpr (S::kThin) {
            const uint32_t *from = (const uint32_t *)(stage + S::kABytes + block * S::kRun) + lane;
            Record<Cfg>::open(to, [&](int i) { return from[32 * i]; });
            return;
        }
        int at = S::kMatrices ? L::swizzle_w(lane % 8 * 4 + lane / 8) : lane;
        const char *p =
            stage + S::kABytes + block * S::kRun + unit * (S::kUnitWords * 128) + at * 16;
        if constexpr (S::kMatrices) {
            load_matrices(to, smem_address(p));
        } else {
#pragma unroll
            for (int i = 0; i < S::kUnitWords; i += 4) {
                Bytes16 v = *(const Bytes16 *)(p + i * 128);
                to[i] = v.x, to[i + 1] = v.y, to[i + 2] = v.z, to[i + 3] = v.w;
            }
        }
    }

    /* The a operand of half a step. Registers of two rows alternate in it: codes that no decoding
     * moves are moved once, by an instruction that ptxas cannot see through; plain moves it would
     * repeat for every product. */
    static __device__ __forceinline__ void operand_a(uint32_t (&to)[4], const uint32_t (&f)[2][4],
                                                     int half)
    {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t word = f[i % 2][2 * half + i / 2];
            to[i] = kMoves ? __byte_perm(word, 0, 0x3210 * blockDim.z) : word;
        }
    }

    /* Step STEP where ldmatrix makes the operands: one half's of a are read while the other half is
     * multiplied. next_stage() is asked when this stage is in registers. */
    template <int STEP, class Next>
    static __device__ __forceinline__ void step_matrices(State &s, const char *&stage, int row0,
                                                         int block0, int lane, Next next_stage)
    {
        constexpr bool kFresh = kKnownBlocks && STEP * 32 % (Cfg::kBlockK ? Cfg::kBlockK : 1) == 0;
        constexpr int kNext = (STEP + 1) % S::kSteps;
        const Acc from[4] = {start(), start(), start(), start()};
#pragma unroll
        for (int half = 0; half < 2; half++) {
            if (half == 1 && kNext == 0)
                stage = next_stage();
            read_half(s, stage, row0, half ? kNext : STEP, 1 - half, lane);
#pragma unroll
            for (int nf = 0; nf < S::kNFrags; nf++) {
#pragma unroll
                for (int mf = 0; mf < S::kMFrags; mf++) {
                    Acc(&acc)[4] = s.acc[mf][nf];
                    const uint32_t *b = s.w[nf] + 2 * half;
                    if (kFresh && half == 0)
                        G::mma(acc, s.a[0][mf][half], b[0], b[1], from);
                    else
                        G::mma(acc, s.a[0][mf][half], b[0], b[1], acc);
                }
                if (half == 1)
                    read_w(s.w[nf], stage, kNext, block0 + nf, lane);
            }
        }
    }

    /* One piece of a's operands of a step, whose first column of K is k. */
    template <int PIECE>
    static __device__ __forceinline__ void decode_a(uint32_t (&to)[S::kMFrags][kHalves][4],
                                                    const State &s, int from, int k, int lane)
    {
        constexpr int kBlock = Cfg::kABlockK ? Cfg::kABlockK : 1;
#pragma unroll
        for (int mf = 0; mf < S::kMFrags; mf++) {
            uint32_t f[2][4];
#pragma unroll
            for (int h = 0; h < 2; h++) {
                decode_act<Cfg::kA, Cfg::kHome, PIECE>(
                    s.a[from][mf][h], Cfg::kAZero ? s.a_zero[Cfg::kAZero ? mf : 0][h] : 0, f[h]);
                if constexpr (Cfg::kAFold) {
                    int at = k + lane % 4 * 8;
                    fold_scale<Cfg::kHome>(
                        f[h], s.a_scale[mf][h][(at < Cfg::kK ? at : Cfg::kK - 1) / kBlock]);
                }
            }
#pragma unroll
            for (int half = 0; half < kHalves; half++)
                operand_a(to[mf][half], f, half);
        }
    }
    /* One piece of w's operands of eight columns. */
    template <int PIECE>
    static __device__ __forceinline__ void decode_w(uint32_t (&to)[4], const State &s, int nf,
                                                    int step)
    {
        decode_weight<Cfg::kW, Cfg::kHome, Cfg::kWZero, PIECE>(
            s.w[nf] + step % S::kUnitSteps * kWWords,
            Cfg::kWZero ? s.zero[Cfg::kWZero ? nf : 0] : 0, s.table, to);
        if constexpr (Cfg::kWFold)
            fold_scale<Cfg::kHome>(to, s.fold[Cfg::kWFold ? nf : 0]);
    }
    /* The scale that the codes of a step share in this lane, from k of K on. */
    static __device__ __forceinline__ void read_fold(State &s, int nf, const char *stage, int k,
                                                     int block0, int lane)
    {
        if constexpr (Cfg::kWFold)
            s.fold[Cfg::kWFold ? nf : 0] = R::fold_value(
                R::scale_bits(stage + S::kParamsAt + block0 / 8 * R::kParams,
                              R::sub_of(k + lane % 4 * 8), block0 * 8 % 64 + lane / 4 + nf * 8));
    }

    /* Two of three pieces, added to the sums (format.cuh: Pieces). */
    template <bool FRESH>
    static __device__ __forceinline__ void multiply_apart(
        State &s, int nf, const uint32_t (&a)[S::kMFrags][kHalves][4], const uint32_t (&b)[4])
    {
#pragma unroll
        for (int mf = 0; mf < S::kMFrags; mf++) {
            Acc(&acc)[4] = s.acc[mf][nf], sums[4] = {};
            G::mma(sums, a[mf][0], b[0], b[1], sums);
            G::mma(sums, a[mf][1], b[2], b[3], sums);
#pragma unroll
            for (int i = 0; i < 4; i++)
                acc[i] = FRESH ? sums[i] : acc[i] + sums[i];
        }
    }
    template <bool FRESH>
    static __device__ __forceinline__ void multiply_all(State &s, int nf,
                                                        const uint32_t (&a)[S::kMFrags][kHalves][4],
                                                        const uint32_t (&b)[4])
    {
        const Acc from[4] = {start(), start(), start(), start()};
        if constexpr (kApart) {
            multiply_apart<FRESH>(s, nf, a, b);
            return;
        }
#pragma unroll
        for (int half = 0; half < kHalves; half++)
#pragma unroll
            for (int mf = 0; mf < S::kMFrags; mf++) {
                Acc(&acc)[4] = s.acc[mf][nf];
                if (FRESH && half == 0)
                    G::mma(acc, a[mf][half], b[2 * half], b[2 * half + 1], from);
                else
                    G::mma(acc, a[mf][half], b[2 * half], b[2 * half + 1], acc);
            }
    }

    /* The products of one piece of a with those pieces of w that count. */
    template <int PIECE_A, int PIECE_W, bool FRESH>
    static __device__ __forceinline__ void pieces_w(State &s, int nf, int step,
                                                    const uint32_t (&a)[S::kMFrags][kHalves][4])
    {
        if constexpr (PIECE_W < kPiecesW && PIECE_A + PIECE_W < kPieces) {
            uint32_t b[4];
            decode_w<PIECE_W>(b, s, nf, step);
            multiply_all<FRESH && PIECE_W == 0>(s, nf, a, b);
            pieces_w<PIECE_A, PIECE_W + 1, FRESH>(s, nf, step, a);
        }
    }

    /* 32 of K from k on, step STEP of a stage. next: the stage that holds what comes after it. */
    template <int STEP, int PIECE>
    static __device__ __forceinline__ void step(State &s, const char *next, int k, int row0,
                                                int block0, int lane)
    {
        constexpr bool kFresh = kKnownBlocks && STEP * 32 % (Cfg::kBlockK ? Cfg::kBlockK : 1) == 0;
        constexpr bool kLast = STEP % S::kUnitSteps == S::kUnitSteps - 1;
        constexpr int kNextUnit = (STEP / S::kUnitSteps + 1) % (S::kSteps / S::kUnitSteps);
        uint32_t a[S::kMFrags][kHalves][4];
        decode_a<PIECE>(a, s, STEP % 2, k, lane);
        if (PIECE == kPiecesA - 1)
            read_a(s.a[(STEP + 1) % 2], next, row0, (STEP + 1) % S::kSteps, lane);
#pragma unroll
        for (int nf = 0; nf < S::kNFrags; nf++) {
            pieces_w<PIECE, 0, kFresh && PIECE == 0>(s, nf, STEP, a);
            if (kLast && PIECE == kPiecesA - 1)
                read_w(s.w[nf], next, kNextUnit, block0 + nf, lane);
            if (PIECE == kPiecesA - 1)
                read_fold(s, nf, next, k + 32, block0, lane);
        }
        if constexpr (PIECE + 1 < kPiecesA)
            step<STEP, PIECE + 1>(s, next, k, row0, block0, lane);
    }

    /* The products of the block that begins at `begin` and ends before `end`, both inside the step
     * of 32 from k on. */
    template <int STEP, int PIECE_A, int PIECE_W>
    static __device__ __forceinline__ void fine_pieces(State &s, int k, int begin, int end,
                                                       int lane)
    {
        if constexpr (PIECE_A < kPiecesA) {
            uint32_t a[S::kMFrags][kHalves][4];
            decode_a<PIECE_A>(a, s, STEP % 2, k, lane);
#pragma unroll
            for (int nf = 0; nf < S::kNFrags; nf++) {
                uint32_t b[4];
                decode_w<PIECE_W>(b, s, nf, STEP);
                keep_codes<Cfg::kHome>(b, k + lane % 4 * 8, begin, end);
                multiply_all<false>(s, nf, a, b);
            }
            constexpr bool kMore = PIECE_W + 1 < kPiecesW && PIECE_A + PIECE_W + 1 < kPieces;
            fine_pieces<STEP, kMore ? PIECE_A : PIECE_A + 1, kMore ? PIECE_W + 1 : 0>(s, k, begin,
                                                                                      end, lane);
        }
    }

    /* A step in which blocks end. ends(k, stage) follows each block. */
    template <int STEP, class Next, class Ends>
    static __device__ __forceinline__ void step_fine(State &s, const char *&stage, int k, int row0,
                                                     int block0, int lane, Next next_stage,
                                                     Ends ends)
    {
        constexpr bool kLast = STEP % S::kUnitSteps == S::kUnitSteps - 1;
        constexpr int kNextUnit = (STEP / S::kUnitSteps + 1) % (S::kSteps / S::kUnitSteps);
        constexpr int kBlock = Cfg::kBlockK ? Cfg::kBlockK : 1;
        bool at_end = false;
#pragma unroll 1
        for (int from = k; from < k + 32 && from < Cfg::kK;) {
            int end = (from / kBlock + 1) * kBlock, to = end < k + 32 ? end : k + 32;
            fine_pieces<STEP, 0, 0>(s, k, from, to, lane);
            at_end = end == k + 32;
            if (end < k + 32 || (to >= Cfg::kK && !at_end))
                ends(end, stage);
            from = to;
        }
        if (STEP == S::kSteps - 1)
            stage = next_stage();
        if (at_end)
            ends(k + 32, stage);
        read_a(s.a[(STEP + 1) % 2], stage, row0, (STEP + 1) % S::kSteps, lane);
#pragma unroll
        for (int nf = 0; nf < S::kNFrags; nf++) {
            if (kLast)
                read_w(s.w[nf], stage, kNextUnit, block0 + nf, lane);
            read_fold(s, nf, stage, k + 32, block0, lane);
        }
    }

    /* Blocks of K ------------------------------------------------------------------------------ */

    /* What stays the same for all of K. */
    static __device__ __forceinline__ void begin_rows(State &s, const Operand &a, const char *w,
                                                      int64_t m0, int64_t m, int lane)
    {
        s.table = R::table(w);
        if constexpr (Cfg::kAFold)
#pragma unroll
            for (int mf = 0; mf < S::kMFrags; mf++)
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    int64_t row = m0 + mf * 16 + h * 8 + lane / 4;
                    s.a_scale[mf][h] = a.scale + G::act_at(row < m ? row : 0, 0);
                }
    }

    /* Scales and zero points of the block that column k of K lies in; params: of its tile. */
    static __device__ __forceinline__ void read_block(State &s, const Operand &a,
                                                      const char *params, int k, int64_t m0,
                                                      int64_t m, int block0, int lane)
    {
        const int block = Cfg::kBlockK ? k / (Cfg::kBlockK ? Cfg::kBlockK : 1) : 0;
        const int sub = R::sub_of(k);
#pragma unroll
        for (int mf = 0; mf < S::kMFrags && (Cfg::kAScale || Cfg::kAZero); mf++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                int64_t row = m0 + mf * 16 + h * 8 + lane / 4;
                row = row < m ? row : 0;
                if (Cfg::kAScale)
                    s.sa[Cfg::kAScale ? mf : 0][h] = G::act_scale(a, row, block);
                if (Cfg::kAZero)
                    s.a_zero[Cfg::kAZero ? mf : 0][h] = a.zero[G::act_at(row, k)];
            }
        const int first = block0 * 8 % 64; /* a warp's columns lie in one record */
        const char *p = params + block0 / 8 * R::kParams;
#pragma unroll
        for (int nf = 0; nf < S::kNFrags; nf++) {
            if (Cfg::kMainloop)
#pragma unroll
                for (int i = 0; i < 2; i++)
                    s.sw[Cfg::kMainloop ? nf : 0][i] =
                        Cfg::kWScales && !Cfg::kWFold
                            ? R::effective(R::scale(p, sub, first + lane % 4 * 2 + nf * 8 + i))
                            : R::kTableUnit;
            if (Cfg::kWZero)
                s.zero[Cfg::kWZero ? nf : 0] = R::zero(p, sub, first + lane / 4 + nf * 8);
        }
    }

    /* The exact sums of a stage as integers, where f32 would not hold those of a block. */
    static __device__ __forceinline__ void take_chunk(State &s)
    {
        if constexpr (S::kChunks)
#pragma unroll
            for (int mf = 0; mf < S::kMFrags; mf++)
#pragma unroll
                for (int nf = 0; nf < S::kNFrags; nf++)
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        s.part[mf][nf][i] += (int32_t)s.acc[mf][nf][i];
                        s.acc[mf][nf][i] = 0;
                    }
    }

    static __device__ __forceinline__ float as_float(Acc v)
    {
        if constexpr (kMagic) /* exact: what is subtracted is a whole number too */
            return num_fma(num_float((uint32_t)v), 1.0f / (1 << kShift),
                           -12582912.0f / (1 << kShift));
        else if constexpr (S::kInt)
            return (float)(v >> kShift);
        else
            return v;
    }

    /* Adds the block's sums, scaled, and clears them. */
    static __device__ __forceinline__ void promote(State &s)
    {
#pragma unroll
        for (int mf = 0; mf < S::kMFrags; mf++)
#pragma unroll
            for (int nf = 0; nf < S::kNFrags; nf++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    float scale = s.sw[nf][i % 2];
                    if constexpr (Cfg::kAScale)
                        scale = s.sa[mf][i / 2] * scale;
                    float v = as_float(s.acc[mf][nf][i]);
                    if constexpr (S::kChunks) {
                        v = (float)(s.part[mf][nf][i] + (int32_t)s.acc[mf][nf][i]);
                        s.part[mf][nf][i] = 0;
                    }
                    s.sum[mf][nf][i] = num_fma(v, scale, s.sum[mf][nf][i]);
                    if (!kKnownBlocks)
                        s.acc[mf][nf][i] = start();
                }
    }

    /* Split along K --------------------------------------------------------------------------- */

    /* The f-th four sums of this thread. */
    static __device__ __forceinline__ Sum *four(State &s, int mf, int nf)
    {
        if constexpr (Cfg::kMainloop)
            return (Sum *)s.sum[mf][nf];
        else
            return (Sum *)s.acc[mf][nf];
    }

    /* Leaves this block's sums in the workspace; the last of a tile's blocks then holds the total
     * and says true. Counters end as they began. */
    static __device__ __forceinline__ bool gather(State &s, void *workspace, int tile, int slice)
    {
        constexpr int64_t kSlice = (int64_t)Cfg::kBM * Cfg::kBN * 4;
        constexpr int kFours = S::kMFrags * S::kNFrags;
        constexpr int kAtOnce = kSplitBatch < kFours ? kSplitBatch : kFours;
        char *all =
            (char *)workspace + Cfg::kSplitSums + tile * Cfg::kSplitK * kSlice + threadIdx.x * 16;
#pragma unroll
        for (int f = 0; f < kFours; f++) {
            const uint32_t *v = (const uint32_t *)four(s, f / S::kNFrags, f % S::kNFrags);
            store_l2(all + slice * kSlice + f * (S::kThreads * 16),
                     Bytes16{v[0], v[1], v[2], v[3]});
        }
        if (!is_last_block((uint32_t *)workspace + tile, Cfg::kSplitK - 1, threadIdx.x == 0,
                           [] { __syncthreads(); }))
            return false;
#pragma unroll
        for (int f0 = 0; f0 < kFours; f0 += kAtOnce) {
            Bytes16 part[kAtOnce][Cfg::kSplitK];
#pragma unroll
            for (int f = 0; f < kAtOnce; f++)
#pragma unroll
                for (int i = 0; i < Cfg::kSplitK; i++)
                    if (f0 + f < kFours)
                        part[f][i] = load_l2(all + i * kSlice + (f0 + f) * (S::kThreads * 16));
#pragma unroll
            for (int f = 0; f < kAtOnce; f++)
                if (f0 + f < kFours)
                    add_parts(four(s, (f0 + f) / S::kNFrags, (f0 + f) % S::kNFrags), part[f]);
        }
        return true;
    }
    /* In the order of the runs of K. */
    static __device__ __forceinline__ void add_parts(Sum *to, const Bytes16 (&part)[Cfg::kSplitK])
    {
#pragma unroll
        for (int i = 0; i < Cfg::kSplitK; i++) {
            const uint32_t word[4] = {part[i].x, part[i].y, part[i].z, part[i].w};
#pragma unroll
            for (int j = 0; j < 4; j++)
                to[j] = i ? to[j] + sum_of(word[j]) : sum_of(word[j]);
        }
    }
    static __device__ __forceinline__ Sum sum_of(uint32_t word)
    {
        if constexpr (S::kInt && !Cfg::kMainloop)
            return (int32_t)word;
        else
            return num_float(word);
    }

    /* Epilogue -------------------------------------------------------------------------------- */

    /* Sums to a tile of words in shared memory, the parts side by side. */
    static __device__ __forceinline__ void stage_tile(State &s, char *smem, int row0, int block0,
                                                      int lane)
    {
#pragma unroll
        for (int mf = 0; mf < S::kMFrags; mf++)
#pragma unroll
            for (int nf = 0; nf < S::kNFrags; nf++) {
                int block = block0 + nf;
                int col = (block % Cfg::kParts) * S::kCols + block / Cfg::kParts * 8 + lane % 4 * 2;
                int row = row0 + mf * 16 + lane / 4;
                const Sum *v = four(s, mf, nf);
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    Sum pair[2] = {v[2 * h], v[2 * h + 1]};
                    if constexpr (S::kInt && !Cfg::kMainloop)
                        pair[0] >>= kShift, pair[1] >>= kShift;
                    *(Bytes8 *)(smem + ((row + h * 8) * S::kTilePitch + col) * 4) =
                        Bytes8{((uint32_t *)pair)[0], ((uint32_t *)pair)[1]};
                }
            }
    }

    static __device__ __forceinline__ int64_t num_tiles(int64_t m)
    {
        return (m + Cfg::kBM - 1) / Cfg::kBM * S::kTilesN;
    }

    static __device__ __forceinline__ void begin_sums(State &s)
    {
#pragma unroll
        for (int mf = 0; mf < S::kMFrags; mf++)
#pragma unroll
            for (int nf = 0; nf < S::kNFrags; nf++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    s.acc[mf][nf][i] = start();
                    if (Cfg::kMainloop)
                        s.sum[Cfg::kMainloop ? mf : 0][Cfg::kMainloop ? nf : 0][i] = 0.0f;
                }
    }

    /* Hands the tile's rows to the epilogue, as many at a time as are staged at once. */
    template <class Epilogue, class Params>
    static __device__ __forceinline__ void finish(const Params &p, const Operand &a, State &s,
                                                  char *smem, int64_t m, int64_t m0, int n0,
                                                  int row0, int block0, int warp, int lane)
    {
#pragma unroll 1 /* rows written twice were half of the time to compile */
        for (int pass = 0; pass < S::kPasses; pass++) {
            __syncthreads();
            if (row0 / S::kPassRows == pass)
                stage_tile(s, smem, row0 % S::kPassRows, block0, lane);
            __syncthreads();
#pragma unroll 1
            for (int row = warp; row < S::kPassRows; row += S::kThreads / 32) {
                int64_t at = m0 + pass * S::kPassRows + row;
                if (at < m)
                    Epilogue::row(p, a, smem + row * S::kTilePitch * 4, at, n0 / Cfg::kParts, lane);
            }
        }
    }

    /* Tiles in bands of 8 along M, so that a wave of blocks shares rows and columns in L2. */
    static __device__ __forceinline__ void tile_of(int tile, int64_t m, int *ret_m, int *ret_n)
    {
        int tiles_m = (int)((m + Cfg::kBM - 1) / Cfg::kBM);
        int band = tile / (8 * S::kTilesN), in_band = tile % (8 * S::kTilesN);
        int height = tiles_m - band * 8 < 8 ? tiles_m - band * 8 : 8;
        *ret_m = band * 8 + in_band % height;
        *ret_n = in_band / height;
    }
};

/* All steps of a stage, one after the other. */
template <class Cfg, int STEP, class Between, class Ends>
__device__ __forceinline__ void gemm_steps(typename GemmTile<Cfg>::State &s, const char *&stage,
                                           int tile_k, bool last, int row0, int block0, int lane,
                                           Between next_stage, Ends ends)
{
    typedef GemmTile<Cfg> G;
    typedef GemmShape<Cfg> S;
    if constexpr (STEP < S::kSteps) {
        constexpr int kBlockK = Cfg::kBlockK ? Cfg::kBlockK : 1;
        const int k = (tile_k * S::kSteps + STEP) * 32;
        if (STEP == S::kSteps - 1 && !S::kMatrices && !S::kFine)
            stage = next_stage();
        if constexpr (S::kMatrices)
            G::template step_matrices<STEP>(s, stage, row0, block0, lane, next_stage);
        else if constexpr (S::kFine)
            G::template step_fine<STEP>(s, stage, k, row0, block0, lane, next_stage, ends);
        else
            G::template step<STEP, 0>(s, stage, k, row0, block0, lane);
        if (STEP == S::kSteps - 1)
            G::take_chunk(s);
        if constexpr (!S::kFine && (Cfg::kMainloop || Cfg::kWZero)) {
            bool whole = G::kKnownBlocks ? (STEP + 1) * 32 % kBlockK == 0
                                         : Cfg::kBlockK && (k + 32) % kBlockK == 0;
            if (whole || (last && STEP == S::kSteps - 1))
                ends(k + 32, stage);
        }
        gemm_steps<Cfg, STEP + 1>(s, stage, tile_k, last, row0, block0, lane, next_stage, ends);
    }
}

/* Begins the copies of the first stages. Weights do not depend on earlier kernels: they are fetched
 * before the wait for the producer. */
template <class Cfg, class Prologue, class Params>
__device__ __forceinline__ void gemm_fill(const Params &p, GemmLoader<Cfg> &loader, uint32_t base,
                                          int first, int end, int64_t m)
{
    typedef GemmTile<Cfg> G;
    typedef GemmShape<Cfg> S;
#pragma unroll
    for (int k = 0; k < Cfg::kStages; k++)
        if (first + k < end)
            loader.load_w(base + k * S::kStageBytes);
    wait_for_producer();
    if constexpr (Prologue::kMakes)
        make_rows<Prologue>(p, (uint32_t *)p.op[Cfg::kOperandSplit].data + Cfg::kRowCounters,
                            (uint32_t)m, (uint32_t)(G::num_tiles(m) * Cfg::kSplitK));
#pragma unroll
    for (int k = 0; k < Cfg::kStages; k++) {
        if (first + k < end)
            loader.load_a(base + k * S::kStageBytes);
        copy_commit();
    }
}

/* Prologue: makes a (gemm_rows.cuh), or GivenA.
 * Epilogue::row(p, a, acc, m, n0, lane): warp-wide; acc = the row of the staged tile, n0 = its
 * first column in each part. */
template <class Cfg, class Epilogue, class Prologue, class Params>
__device__ __forceinline__ void gemm_mma(const Params &p)
{
    typedef GemmTile<Cfg> G;
    typedef GemmShape<Cfg> S;
    extern __shared__ __align__(128) char smem[];
    const int64_t m = p.dim[0];
    const Operand a = p.op[Cfg::kOperandA];
    const char *w = (const char *)p.op[Cfg::kOperandW].data;
    const int tile = blockIdx.x / Cfg::kSplitK, slice = blockIdx.x % Cfg::kSplitK;
    if (tile >= G::num_tiles(m)) { /* the grid is the bucket's, the rows may be fewer */
        wait_for_producer();       /* for those that wait for this kernel */
        return;
    }
    int tile_m, tile_n;
    G::tile_of(tile, m, &tile_m, &tile_n);
    const int64_t m0 = (int64_t)tile_m * Cfg::kBM;
    const int n0 = tile_n * Cfg::kBN;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int row0 = warp / Cfg::kWarpsN * (S::kMFrags * 16);
    const int block0 = warp % Cfg::kWarpsN * S::kNFrags;
    const uint32_t base = smem_address(smem);
    const int first = slice * S::kShare;
    const int end = first + S::kShare < S::kTilesK ? first + S::kShare : S::kTilesK;
    GemmLoader<Cfg> loader((const char *)a.data, w, m0, m, n0, first);

    gemm_fill<Cfg, Prologue>(p, loader, base, first, end, m);

    typename G::State s;
    G::begin_sums(s);
    copy_wait<Cfg::kStages - 1>();
    __syncthreads();
    int slot = 0;
    const char *stage = smem;
    if constexpr (S::kChunks)
#pragma unroll
        for (int i = 0; i < S::kMFrags * S::kNFrags * 4; i++)
            s.part[i / 4 / S::kNFrags][i / 4 % S::kNFrags][i % 4] = 0;
    G::begin_rows(s, a, w, m0 + row0, m, lane);
    G::read_block(s, a, stage + S::kParamsAt, first * Cfg::kBK, m0 + row0, m, block0, lane);
    if constexpr (S::kMatrices)
        G::read_half(s, stage, row0, 0, 0, lane);
    else
        G::read_a(s.a[0], stage, row0, 0, lane);
#pragma unroll
    for (int nf = 0; nf < S::kNFrags; nf++) {
        G::read_w(s.w[nf], stage, 0, block0 + nf, lane);
        G::read_fold(s, nf, stage, first * Cfg::kBK, block0, lane);
    }
#pragma unroll 1
    for (int k = first; k < end; k++) {
        /* All fragments of this stage are in registers, and those of the next are wanted: the
         * stage's place is free once all threads are here. */
        auto next_stage = [&]() {
            copy_wait<Cfg::kStages - 2>();
            __syncthreads();
            if (k + Cfg::kStages < end) {
                loader.load_w(base + slot * S::kStageBytes);
                loader.load_a(base + slot * S::kStageBytes);
            }
            copy_commit();
            slot = slot + 1 == Cfg::kStages ? 0 : slot + 1;
            return (const char *)smem + slot * S::kStageBytes;
        };
        /* behind a block that ends at `at` of K; from: the stage that holds what follows */
        auto ends = [&](int at, const char *from) {
            constexpr int kBlock = Cfg::kBlockK ? Cfg::kBlockK : 1;
            if (Cfg::kMainloop && (Cfg::kBlockK ? (at - 1) / kBlock * kBlock : 0) < Cfg::kK)
                G::promote(s);
            if (at < Cfg::kK)
                G::read_block(s, a, from + S::kParamsAt, at, m0 + row0, m, block0, lane);
        };
        gemm_steps<Cfg, 0>(s, stage, k, k + 1 == end, row0, block0, lane, next_stage, ends);
    }
    copy_wait<0>();
    let_consumer_start();
    if constexpr (Cfg::kSplitK > 1)
        if (!G::gather(s, p.op[Cfg::kOperandSplit].data, tile, slice))
            return;
    G::template finish<Epilogue>(p, a, s, smem, m, m0, n0, row0, block0, warp, lane);
}

#endif
