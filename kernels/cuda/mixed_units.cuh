/* How the warpgroups of mixed (mixed.cuh, which says what Cfg is) go through the units of K of a
 * tile: from stage to stage of the ring, codes to operands to products, in the ways that fit the
 * registers beside the sums. */
#ifndef SINTER_CUDA_MIXED_UNITS
#define SINTER_CUDA_MIXED_UNITS

#include "kernels/cuda/mixed_tile.cuh"

/* Where a thread that multiplies stands: its first slab of the tile, its first
 * row of 64, and its turn. */
template <class Cfg> struct MixedThread {
    int warp, lane, slab0, row, turn;
    int alone; /* kRest: units from which on it frees stages for the last warpgroup, too */
    bool tiny; /* MixedSums, kInScale */
    typename MixedShape<Cfg>::Pairs::Type table;

    __device__ __forceinline__ MixedThread(const char *w, uint32_t ring)
    {
        warp = threadIdx.x / 32;
        lane = threadIdx.x % 32;
        /* the same in all lanes, which the compiler cannot see */
        alone = 0x7FFFFFFF;
        turn = Cfg::kTurns > 1 ? __shfl_sync(0xFFFFFFFFu, warp / 4 % Cfg::kTurns, 0) : 0;
        slab0 = threadIdx.x / 128 / Cfg::kTurns * Cfg::kSlabs;
        row = warp % 4 * 16 + lane / 4; /* and row + 8 */
        tiny = MixedSums<Cfg>::has_tiny(w);
        if constexpr (MixedShape<Cfg>::Pairs::kBytes > 0)
            table = table.of_lane(ring + MixedShape<Cfg>::kPairsAt, lane);
    }
    /* Its part of a tile before which it has gone through `read` units: so a stage of the ring is
     * always one warpgroup's. */
    __device__ __forceinline__ int part(int read) const
    {
        return (uint32_t)(turn - read) % Cfg::kTurns; /* a power of two */
    }
};

/* A stage of the ring, as warps that multiply go round it: that of their unit `read` first. */
template <class Cfg> struct MixedStage {
    typedef MixedShape<Cfg> S;
    int number, offset;    /* in the ring, and of its memory */
    uint32_t full, parity; /* the barrier; the one of its being empty is kStages further */
    uint32_t operands;     /* its memory as the low word of an operand */

    __device__ __forceinline__ MixedStage(int read, uint32_t ring, uint32_t barriers)
        : number(read % Cfg::kStages), offset(number * S::kStageBytes), full(barriers + number * 8),
          parity(read / Cfg::kStages & 1), operands((uint32_t)operand_at(ring + offset))
    {
    }
    /* BY divides kStages. */
    template <int BY = 1> __device__ __forceinline__ void advance()
    {
        number += BY, offset += BY * S::kStageBytes, full += BY * 8;
        operands += BY * S::kStageBytes / 16;
        if (number >= Cfg::kStages) {
            number -= Cfg::kStages, offset -= S::kRingBytes, full -= 8 * Cfg::kStages;
            operands -= S::kRingBytes / 16;
            parity ^= 1;
        }
    }
    /* BY stages on, of the same round. */
    __device__ __forceinline__ MixedStage after(int by) const
    {
        MixedStage ret = *this;
        ret.number += by, ret.offset += by * S::kStageBytes, ret.full += by * 8;
        ret.operands += by * (S::kStageBytes / 16);
        return ret;
    }
    __device__ __forceinline__ void wait() const
    {
        barrier_wait(full, parity);
    }
    /* All lanes have read what they read themselves of the stage whose barrier is `full`. */
    static __device__ __forceinline__ void release(uint32_t full, int lane)
    {
        __syncwarp();
        cluster_arrive<Cfg::kCluster>(full + 8 * Cfg::kStages, lane);
    }
    /* The rows of a of a step of 32. */
    static __device__ __forceinline__ int further(int step)
    {
        return S::kBoxes == 2 ? step / 2 * (S::kBoxBytes / 16) + step % 2 * 4 : step * 2;
    }
    __device__ __forceinline__ uint64_t right(int step) const
    {
        return operand_at(0) & ~0xFFFFFFFFull | (operands + further(step));
    }
};

/* What a warp that multiplies does. */
template <class Cfg, class Product> struct MixedTile {
    typedef MixedShape<Cfg> S;
    typedef MixedSums<Cfg> M;
    typedef MixedLeft<Cfg> Left;
    typedef MixedThread<Cfg> Thread;
    typedef MixedStage<Cfg> Stage;
    typedef typename S::Acc Acc;
    typedef typename S::Sum Sum;
    typedef uint32_t Codes[S::kPieces][S::kProducts][4]; /* of a step */

    /* The left operands of a step, all pieces of them. */
    template <int PIECE = 0>
    static __device__ __forceinline__ void decode(Codes &codes, const Left &left, int step,
                                                  const int (&zero)[2], const char *record, int row,
                                                  int k, const Thread &at)
    {
        left.template operands<PIECE>(codes[PIECE], step, zero, record, row, k, at.lane, at.table);
        if constexpr (PIECE + 1 < S::kPieces)
            decode<PIECE + 1>(codes, left, step, zero, record, row, k, at);
    }
    /* Products of a step for one slab, into d. */
    static __device__ __forceinline__ void multiply(Acc *d, const Codes &codes, uint64_t right,
                                                    bool keep)
    {
        products_begin();
#pragma unroll
        for (int i = 0; i < S::kProducts; i++)
#pragma unroll
            for (int piece = 0; piece < S::kPieces; piece++)
                Product::add(d, codes[piece][i], right + 2 * i, keep || i > 0 || piece > 0);
        products_commit();
    }

    /* Where the scales of a lie, of the block of K that ends with the step. */
    static __device__ __forceinline__ uint32_t act_scales(uint32_t ring, const Stage &stage,
                                                          int step = 0)
    {
        return ring + stage.offset + S::kScalesAt + step * S::kActSubs / 4 * (Cfg::kBM * 4);
    }

    /* The sums of a tile, of units [work.from, work.to) of K; `read` counts units. */
    static __device__ __forceinline__ void multiply_tile(Sum (&sums)[S::kSums], const Thread &at,
                                                         const HopperWork<Cfg, S> &work, int &read,
                                                         char *bytes, uint32_t ring, uint32_t full)
    {
        if constexpr (M::kInScale)
            if (at.tiny)
                return by_steps<false>(sums, at, work, read, bytes, ring, full);
        if constexpr (S::kPairs)
            by_pairs(sums, at, work, read, bytes, ring, full);
        else if constexpr (S::kWhole)
            by_whole(sums, at, work, read, bytes, ring, full);
        else if constexpr (S::kInPlace)
            in_place(sums, at, work, read, bytes, ring, full);
        else if constexpr (S::kAhead)
            by_units(sums, at, work, read, bytes, ring, full);
        else
            by_steps<M::kInScale>(sums, at, work, read, bytes, ring, full);
    }

    /* The stage of unit k, counted as the block takes them. */
    static __device__ __forceinline__ void release(const Thread &at, const Stage &of, int k)
    {
        Stage::release(of.full, at.lane);
        if constexpr (Cfg::kRest > 0)
            if (k >= at.alone)
                Stage::release(of.full, at.lane);
    }

    /* Operands are decoded a unit ahead: while a unit's products run, the next one's codes. ---- */

    typedef uint32_t Unit[4][S::kProducts][4];

    /* d = or, keep, += the products of a unit. */
    static __device__ __forceinline__ void multiply_unit(Acc *d, const Unit &codes,
                                                         const Stage &stage, bool keep)
    {
        const uint64_t right = stage.right(0);
        products_begin();
#pragma unroll
        for (int step = 0; step < 4; step++)
#pragma unroll
            for (int i = 0; i < S::kProducts; i++)
                Product::add(d, codes[step][i], right + (Stage::further(step) + 2 * i),
                             keep || step > 0 || i > 0);
        products_commit();
    }
    static __device__ __forceinline__ void decode_unit(Unit &to, const Thread &at, int k,
                                                       const Stage &stage, const char *bytes)
    {
        const int last = k * 128 < Cfg::kK ? k * 128 : Cfg::kK - 1;
        const char *record = bytes + stage.offset + S::kABytes + at.slab0 * Cfg::kRecord;
        Left left;
        int zero[2];
        stage.wait();
        left.read(record + Left::codes_at(at.row, at.lane));
        left.read_folds(record, at.row, at.lane);
        Left::read_zeros(zero, record, at.row, last);
#pragma unroll
        for (int step = 0; step < 4; step++)
            left.template operands<0>(to[step], step, zero, record, at.row, k * 128 + step * 32,
                                      at.lane, at.table);
    }
    /* The scales of the rows of w of unit k. */
    static __device__ __forceinline__ void unit_scales(float (&sw)[2], const Thread &at, int k,
                                                       const Stage &stage, const char *bytes)
    {
        M::weight_scales(sw, bytes + stage.offset + S::kABytes + at.slab0 * Cfg::kRecord, at.row,
                         Record<Cfg>::sub_of(k * 128 < Cfg::kK ? k * 128 : Cfg::kK - 1),
                         M::template unit<M::kInScale>());
    }
    /* Unit k, whose operands are `codes`; then `next` are those of the unit behind it (of the last
     * one itself: no branch stands between products and their wait), and `stage` is its stage. */
    static __device__ __forceinline__ void one_unit(Sum (&sums)[S::kSums], const Unit &codes,
                                                    Unit &next, const Thread &at, int k, int from,
                                                    int to, Stage &stage, uint32_t &before,
                                                    const char *bytes, uint32_t ring)
    {
        const int more = k + 1 < to ? 1 : 0;
        Stage ahead = stage;
        if (more)
            ahead.advance();
        if constexpr (S::kPromotes) {
            Acc block[S::kSlabSums];
            float sw[2];
            multiply_unit(block, codes, stage, false);
            unit_scales(sw, at, k, stage, bytes);
            decode_unit(next, at, k + more, ahead, bytes);
            products_wait<0>();
            M::template promote<M::kInScale>(sums, block, sw, act_scales(ring, stage), at.lane);
            Stage::release(stage.full, at.lane);
        } else {
            multiply_unit((Acc *)sums, codes, stage, k > from);
            products_wait<1>();
            if (k > from)
                Stage::release(before, at.lane);
            decode_unit(next, at, k + more, ahead, bytes);
            before = stage.full;
        }
        stage = ahead;
    }
    static __device__ __forceinline__ void by_units(Sum (&sums)[S::kSums], const Thread &at,
                                                    const HopperWork<Cfg, S> &work, int &read,
                                                    const char *bytes, uint32_t ring, uint32_t full)
    {
        Stage stage(read, ring, full);
        uint32_t before = full;
        Unit codes[2];
        decode_unit(codes[0], at, work.from, stage, bytes);
        read += work.to - work.from;
        int k = work.from;
#pragma unroll 1
        while (true) {
            one_unit(sums, codes[0], codes[1], at, k, work.from, work.to, stage, before, bytes,
                     ring);
            if (++k >= work.to)
                break;
            one_unit(sums, codes[1], codes[0], at, k, work.from, work.to, stage, before, bytes,
                     ring);
            if (++k >= work.to)
                break;
        }
        if constexpr (!S::kPromotes) {
            products_wait<0>();
            Stage::release(before, at.lane);
        }
    }

    /* Units are decoded whole, and their products begun all at once: fewest instructions, which are
     * what bounds few rows, and other warpgroups work meanwhile. The loop goes through kAtOnce
     * units, whose stages are as far apart as constants say. ------------------------------------
     */

    static constexpr bool kVaries = Cfg::kWScales && !Cfg::kWFold; /* the unit of sums in place */

    static __device__ __forceinline__ void by_whole(Sum (&sums)[S::kSums], const Thread &at,
                                                    const HopperWork<Cfg, S> &work, int &read,
                                                    char *bytes, uint32_t ring, uint32_t full)
    {
        const int part = at.part(read), begin = part_begin<Cfg>(work.from, work.to, part);
        const int end = part_begin<Cfg>(work.from, work.to, part + 1);
        Stage stage(read + part, ring, full);
        read += work.to - work.from;
        if (begin >= end)
            return;
        int first = S::kABytes + at.slab0 * Cfg::kRecord, row = at.row;
        int codes_at = first + Left::codes_at(at.row, at.lane);
        asm volatile("" : "+r"(first), "+r"(row), "+r"(codes_at)); /* or each unit has its own */
        Unit codes;
        Left next;
        float unit[2], times[2];
        unit[0] = unit[1] = kVaries ? 1.0f : Record<Cfg>::kTableUnit;
        auto open = [&](const Stage &of) {
            of.wait();
            next.read(bytes + of.offset + codes_at);
            next.read_folds(bytes + of.offset + first, row, at.lane);
        };
        if constexpr (S::kReadsAhead)
            open(stage);
#pragma unroll 1
        for (int k0 = begin; k0 < end; k0 += S::kAtOnce) {
            const int more = k0 + S::kAtOnce < end ? 1 : 0; /* as in by_units */
            Stage behind = stage;
            if (more)
                behind.template advance<Cfg::kTurns * S::kAtOnce>();
#pragma unroll
            for (int j = 0; j < S::kAtOnce; j++) {
                const int k = k0 + j;
                const Stage here = stage.after(j * Cfg::kTurns);
                const char *record = bytes + here.offset + first;
                Acc block[S::kPromotes ? S::kSlabSums : 1];
                float sw[2];
                int zero[2];
                if constexpr (!S::kReadsAhead)
                    open(here);
                Left::read_zeros(zero, record, row, in_k(k, 0));
                auto decode_all = [&](bool is_wide) {
#pragma unroll
                    for (int step = 0; step < 4; step++)
                        next.template operands_of<0>(is_wide, codes[step], step, zero, record, row,
                                                     k * 128 + step * 32, at.lane, at.table);
                };
                if (S::kWide && next.wide)
                    decode_all(true);
                else
                    decode_all(false);
                if constexpr (S::kPromotes || (S::kInPlace && kVaries))
                    M::weight_scales(sw, record, row, Record<Cfg>::sub_of(in_k(k, 0)),
                                     S::kPromotes ? M::template unit<M::kInScale>() : 1.0f);
                if constexpr (S::kInPlace && kVaries) {
                    M::change_unit(times, unit, sw);
                    M::multiply(sums, times);
                }
                multiply_unit(S::kPromotes ? block : (Acc *)sums, codes, here,
                              !S::kPromotes && (S::kInPlace || S::kTurning || k > work.from));
                if constexpr (S::kReadsAhead)
                    open(j + 1 < S::kAtOnce ? stage.after((j + 1) * Cfg::kTurns)
                         : more             ? behind
                                            : here);
                products_wait<0>();
                if constexpr (S::kPromotes)
                    M::template promote<M::kInScale>(sums, block, sw, act_scales(ring, here, 3),
                                                     at.lane);
                release(at, here, k);
            }
            stage = behind;
        }
        if constexpr (S::kInPlace)
            M::leave_place(sums, unit);
    }

    /* Two units' sums have room: while one unit's products run, the sums of the unit before are
     * added to the tile's. Operands are decoded between products. (Beside products other
     * instructions run at half their rate. ptxas serialises products that follow each other round
     * a loop, C7513.) --------------------------------------------------------------------------
     */

    typedef Acc Block[S::kSlabSums];

    static __device__ __forceinline__ void by_pairs(Sum (&sums)[S::kSums], const Thread &at,
                                                    const HopperWork<Cfg, S> &work, int &read,
                                                    char *bytes, uint32_t ring, uint32_t full)
    {
        Stage stage(read, ring, full);
        int k = work.from, left = work.to - work.from; /* units whose products are to begin */
        read += left;
        int first = S::kABytes + at.slab0 * Cfg::kRecord, row = at.row;
        int codes_at = first + Left::codes_at(at.row, at.lane);
        asm volatile("" : "+r"(first), "+r"(row), "+r"(codes_at)); /* or each unit has its own */
        Unit codes;
        Left next;
        Block block[2];
        float sw[2][2];
        auto open = [&] {
            stage.wait();
            next.read(bytes + stage.offset + codes_at);
            next.read_folds(bytes + stage.offset + first, row, at.lane);
        };
        auto begin = [&](int to) {
            const char *record = bytes + stage.offset + first;
            int zero[2];
            Left::read_zeros(zero, record, row, in_k(k, 0));
#pragma unroll
            for (int step = 0; step < 4; step++)
                next.template operands<0>(codes[step], step, zero, record, row, k * 128 + step * 32,
                                          at.lane, at.table);
            multiply_unit(block[to], codes, stage, false);
            M::weight_scales(sw[to], record, row, Record<Cfg>::sub_of(in_k(k, 0)),
                             M::template unit<M::kInScale>());
            k++, left--;
        };
        auto add = [&](int from, const Stage &of) {
            M::template promote<M::kInScale>(sums, block[from], sw[from], act_scales(ring, of, 3),
                                             at.lane);
            if constexpr (S::kScales)
                Stage::release(of.full, at.lane);
        };
        auto end = [&](const Stage &of) {
            products_wait<0>();
            if constexpr (!S::kScales)
                Stage::release(of.full, at.lane);
        };
        auto go_on = [&](int from) {
            const Stage of = stage;
            stage.advance();
            open();
            end(of);
            begin(1 - from);
            add(from, of);
        };
        if (left <= 0)
            return;
        open();
        begin(0);
#pragma unroll 1
        while (left >= 2) {
            go_on(0);
            go_on(1);
        }
        constexpr int kWhole = Cfg::kPartsOfK > 1 ? S::kPartUnits : S::kUnits; /* not shared */
        if (Cfg::kShare || S::kGather > 1 ? left > 0 : kWhole % 2 == 0) {
            go_on(0);
            end(stage);
            add(1, stage);
        } else {
            end(stage);
            add(0, stage);
        }
    }

    /* Operands are decoded a step ahead: they alternate, and stay until the products of the next
     * step run. kAcross: so are the next unit's. (One function: own ones of slabs spilled.) ---- */

    /* What a slab of a unit is decoded from. */
    struct Slab {
        Left left;
        int zero[2];
        float own[2]; /* kPassScales */
        const char *record;

        __device__ __forceinline__ void open(const char *unit, int codes_at, int row,
                                             const Thread &at)
        {
            record = unit;
            left.read(record + codes_at);
            left.read_folds(record, row, at.lane);
            if constexpr (S::kPassScales)
                M::weight_scales(own, record, row, at.lane % 4, 1.0f);
        }
        __device__ __forceinline__ void step(Codes &codes, int step, int row, int k,
                                             const Thread &at)
        {
            if (step % S::kBlockSteps == 0)
                Left::read_zeros(zero, record, row, in_k(k, step));
            decode(codes, left, step, zero, record, row, k * 128 + step * 32, at);
        }
    };
    /* A column of a step of unit k. */
    static __device__ __forceinline__ int in_k(int k, int step)
    {
        const int column = k * 128 + step * 32;
        return column < Cfg::kK ? column : Cfg::kK - 1;
    }
    template <bool IN_SCALE>
    static __device__ __forceinline__ void by_steps(Sum (&sums)[S::kSums], const Thread &at,
                                                    const HopperWork<Cfg, S> &work, int &read,
                                                    char *bytes, uint32_t ring, uint32_t full)
    {
        const int part = at.part(read), begin = part_begin<Cfg>(work.from, work.to, part);
        const int end = part_begin<Cfg>(work.from, work.to, part + 1);
        Stage stage(read + part, ring, full);
        read += work.to - work.from;
        if (begin >= end)
            return;
        int first = S::kABytes + at.slab0 * Cfg::kRecord, row = at.row;
        int codes_at = Left::codes_at(at.row, at.lane);
        asm volatile("" : "+r"(first), "+r"(row), "+r"(codes_at)); /* or each unit has its own */
        Codes codes[2];
        Slab slab;
        auto begin_unit = [&](const Stage &of, int k) {
            of.wait();
            slab.open(bytes + of.offset + first, codes_at, row, at);
            slab.step(codes[0], 0, row, k, at);
        };
        if constexpr (S::kAcross)
            begin_unit(stage, begin);
        auto one_unit = [&](const Stage &here, const Stage &ahead, int k, int more) {
            const uint64_t right = here.right(0);
            if constexpr (!S::kAcross)
                begin_unit(here, k);
#pragma unroll
            for (int s = 0; s < Cfg::kSlabs; s++) {
                Acc block[S::kPromotes ? S::kSlabSums : 1];
                Acc *d = block;
                if constexpr (!S::kPromotes)
                    d = (Acc *)sums + s * S::kSlabSums;
                const char *record = slab.record;
                const float own[2] = {slab.own[0], slab.own[1]};
#pragma unroll
                for (int step = 0; step < 4; step++) {
                    const bool begins = S::kPromotes ? step % S::kBlockSteps == 0 : step == 0;
                    const bool keep = !begins || (!S::kPromotes && (S::kTurning || k > work.from));
                    multiply(d, codes[step % 2],
                             S::kAtOnce > 1 ? right + Stage::further(step) : here.right(step),
                             keep);
                    products_wait<1>();
                    if (step < 3) {
                        slab.step(codes[(step + 1) % 2], step + 1, row, k, at);
                    } else if (s + 1 < Cfg::kSlabs) {
                        slab.open(record + Cfg::kRecord, codes_at, row, at);
                        slab.step(codes[0], 0, row, k, at);
                    } else if constexpr (S::kAcross) {
                        begin_unit(ahead, k + more);
                    }
                    if constexpr (S::kPromotes)
                        if (step % S::kBlockSteps == S::kBlockSteps - 1) {
                            float sw[2];
                            M::block_scales(sw, own, record, row, in_k(k, step), at.lane,
                                            M::template unit<IN_SCALE>());
                            products_wait<0>();
                            M::template promote<IN_SCALE>(sums + s * S::kSlabSums, block, sw,
                                                          act_scales(ring, here, step), at.lane);
                        }
                }
            }
            products_wait<0>(); /* or ptxas waits after every product (C7513) */
            release(at, here, k);
        };
#pragma unroll 1
        for (int k = begin; k < end; k += S::kAtOnce) {
            Stage behind = stage;
            if constexpr (S::kAcross) {
                const int more = k + 1 < end ? 1 : 0; /* the last one's own again, as in by_units */
                if (more)
                    behind.template advance<Cfg::kTurns>();
                one_unit(stage, behind, k, more);
            } else {
#pragma unroll
                for (int j = 0; j < S::kAtOnce; j++)
                    one_unit(stage.after(j * Cfg::kTurns), stage, k + j, 0);
                behind.template advance<Cfg::kTurns * S::kAtOnce>();
            }
            stage = behind;
        }
    }

    /* Sums stay in one place, in the unit of the block of K that was added last: its scale. Before
     * the next block is added they are multiplied by its scale's share in that (kVaries: or all
     * have one). So a tile takes the registers of its sums alone. ------------------------------ */

    static __device__ __forceinline__ void in_place(Sum (&sums)[S::kSums], const Thread &at,
                                                    const HopperWork<Cfg, S> &work, int &read,
                                                    char *bytes, uint32_t ring, uint32_t full)
    {
        const int part = at.part(read), begin = part_begin<Cfg>(work.from, work.to, part);
        const int end = part_begin<Cfg>(work.from, work.to, part + 1);
        Stage stage(read + part, ring, full);
        read += work.to - work.from;
        if (begin >= end)
            return;
        int first = S::kABytes + at.slab0 * Cfg::kRecord, row = at.row;
        int codes_at = Left::codes_at(at.row, at.lane);
        asm volatile("" : "+r"(first), "+r"(row), "+r"(codes_at)); /* or each unit has its own */
        Codes codes[2];
        Slab slab;
        float unit[Cfg::kSlabs][2], times[2];
#pragma unroll
        for (int s = 0; s < Cfg::kSlabs; s++)
            unit[s][0] = unit[s][1] = kVaries ? 1.0f : Record<Cfg>::kTableUnit;
        auto change_unit = [&](int s, int k, int step) {
            if constexpr (kVaries) {
                float next[2];
                M::block_scales(next, slab.own, slab.record, row, in_k(k, step), at.lane, 1.0f);
                M::change_unit(times, unit[s], next);
            }
        };
        auto begin_slab = [&](const char *record, int s, int k) {
            slab.open(record, codes_at, row, at);
            slab.step(codes[0], 0, row, k, at);
            change_unit(s, k, 0);
        };
        stage.wait();
        begin_slab(bytes + stage.offset + first, 0, begin);
#pragma unroll 1
        for (int k = begin; k < end; k++) {
            const int more = k + 1 < end ? 1 : 0; /* the last one's own again, as in by_units */
            const uint64_t right = stage.right(0);
            Stage ahead = stage;
            if (more)
                ahead.template advance<Cfg::kTurns>();
#pragma unroll
            for (int s = 0; s < Cfg::kSlabs; s++) {
                Acc *d = (Acc *)sums + s * S::kSlabSums;
                if constexpr (kVaries)
                    M::multiply(d, times);
#pragma unroll
                for (int step = 0; step < 4; step++) {
                    if constexpr (kVaries)
                        if (step > 0 && step % S::kBlockSteps == 0) {
                            change_unit(s, k, step);
                            products_wait<0>();
                            M::multiply(d, times);
                        }
                    multiply(d, codes[step % 2], right + Stage::further(step), true);
                    products_wait<1>();
                    if (step < 3) {
                        slab.step(codes[(step + 1) % 2], step + 1, row, k, at);
                    } else if (s + 1 < Cfg::kSlabs) {
                        begin_slab(slab.record + Cfg::kRecord, s + 1, k);
                    } else {
                        ahead.wait();
                        begin_slab(bytes + ahead.offset + first, 0, k + more);
                    }
                }
            }
            products_wait<0>(); /* or ptxas waits after every product (C7513) */
            release(at, stage, k);
            stage = ahead;
        }
        if constexpr (kVaries &&
                      S::kBlockSteps < 4) /* it is in the last unit's first block's again */
            M::multiply(sums, times);
#pragma unroll
        for (int s = 0; s < Cfg::kSlabs; s++)
            M::leave_place(sums + s * S::kSlabSums, unit[s]);
    }
};

#endif
