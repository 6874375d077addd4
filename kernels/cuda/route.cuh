/* Which groups rows go to, and their order there (artifact/artifact.h: RouteStep). Cfg:
 * kStep, kVaries; cols(i), pitch(i): of each operand; where kVaries
 * these come in p.dim instead (SIZE_ROUTE). p.dim[0]: rows of operand 0, ROUTE_CLEAR of operand 1.
 * An index or a place that does not exist is neither read nor written to nor counted, as on the
 * CPU. */
#ifndef SINTER_CUDA_ROUTE
#define SINTER_CUDA_ROUTE

#include "kernels/cuda/async.cuh"
#include "kernels/cuda/columns.cuh"

enum RouteStep {
    ROUTE_TOPK,
    ROUTE_TAKE,
    ROUTE_ENDS,
    ROUTE_PLACES,
    ROUTE_SOURCES,
    ROUTE_CHOOSE,
    ROUTE_SORT,
    ROUTE_WEIGH,
    ROUTE_CLEAR
};

template <class Cfg, class Params> struct RouteShape {
    static __device__ __forceinline__ int64_t cols(const Params &p, int i)
    {
        if constexpr (Cfg::kVaries)
            return p.dim[1 + 2 * i];
        else
            return Cfg::cols(i);
    }
    static __device__ __forceinline__ int64_t pitch(const Params &p, int i)
    {
        if constexpr (Cfg::kVaries)
            return p.dim[2 + 2 * i];
        else
            return Cfg::pitch(i);
    }
    template <class T> static __device__ __forceinline__ T *row(const Params &p, int i, int64_t m)
    {
        return (T *)((char *)p.op[i].data + m * pitch(p, i));
    }
};

/* The largest columns -------------------------------------------------------------------------- */

/* Numbers in their order, NaN below all; both zeros are equal. */
__device__ __forceinline__ uint32_t route_order(float x)
{
    const uint32_t bits = x == 0.0f ? 0u : num_bits(x);
    return x != x ? 0u : bits >> 31 ? ~bits : bits | 0x80000000u;
}

/* .. and of equal ones the lower column is above the others. */
__device__ __forceinline__ uint64_t route_key(uint32_t order, uint32_t col)
{
    return (uint64_t)order << 32 | (0xFFFFFFFFu - col);
}

__device__ __forceinline__ uint64_t warp_most(uint64_t x)
{
#pragma unroll
    for (int step = 16; step; step /= 2) {
        const uint64_t other = __shfl_xor_sync(0xFFFFFFFFu, x, step);
        x = other > x ? other : x;
    }
    return x;
}

/* The softmax of numerics/rows.h over the first lanes, as many as `has` is true in: upper partial
 * sums are added to lower ones. */
__device__ __forceinline__ float lanes_softmax(float x, bool has)
{
    int32_t key = has ? num_order_key(x) : (int32_t)0x80000000;
#pragma unroll
    for (int step = 16; step; step /= 2) {
        const int32_t other = __shfl_xor_sync(0xFFFFFFFFu, key, step);
        key = other > key ? other : key;
    }
    const float e = has ? num_exp(x - num_order_value(key)) : 0.0f;
    float sum = e;
#pragma unroll
    for (int step = 16; step; step /= 2)
        sum = sum + __shfl_xor_sync(0xFFFFFFFFu, sum, step);
    return e / sum;
}

/* A warp takes a row: the largest of all below the one that was found last. kHeld: values of a lane
 * that lie in registers meanwhile; 0: the row is read once for each choice. */
template <class Cfg, class Shape, class Params>
__device__ __forceinline__ void route_topk(const Params &p)
{
    typedef Plain<Cfg::kFormat> Format;
    const int lane = threadIdx.x % 32, cols = (int)Shape::cols(p, 0);
    const int count = (int)Shape::cols(p, 1);
    const int64_t step = (int64_t)gridDim.x * (Cfg::kThreads / 32);
    for (int64_t m = (int64_t)blockIdx.x * (Cfg::kThreads / 32) + threadIdx.x / 32; m < p.dim[0];
         m += step) {
        const auto *row = Shape::template row<const typename Format::Element>(p, 0, m);
        int32_t *to = Shape::template row<int32_t>(p, 1, m);
        uint32_t held[Cfg::kHeld ? Cfg::kHeld : 1];
#pragma unroll
        for (int i = 0; i < Cfg::kHeld; i++)
            held[i] = 32 * i + lane < cols ? route_order(Format::load(row[32 * i + lane])) : 0u;
        uint64_t last = ~(uint64_t)0;
        float number = 0.0f; /* the lane's choice, which is to be weighed */
        for (int n = 0; n < count; n++) {
            uint64_t best = 0;
            if constexpr (Cfg::kHeld > 0) {
#pragma unroll
                for (int i = 0; i < Cfg::kHeld; i++) {
                    const uint64_t key = route_key(held[i], 32 * i + lane);
                    best = 32 * i + lane < cols && key < last && key > best ? key : best;
                }
            } else {
                for (int i = lane; i < cols; i += 32) {
                    const uint64_t key = route_key(route_order(Format::load(row[i])), i);
                    best = key < last && key > best ? key : best;
                }
            }
            last = warp_most(best);
            const int32_t col = (int32_t)(0xFFFFFFFFu - (uint32_t)last);
            if (lane == 0)
                to[n] = col;
            if (Cfg::kStep == ROUTE_CHOOSE && lane == 1)
                Shape::template row<float>(p, 2, m)[n] = Format::load(row[col]);
            if (Cfg::kStep == ROUTE_WEIGH && lane == n)
                number = Format::load(row[col]);
        }
        if constexpr (Cfg::kStep == ROUTE_WEIGH) {
            const float weight = lanes_softmax(number, lane < count);
            if (lane < count)
                Shape::template row<float>(p, 2, m)[lane] = weight;
        }
    }
}

template <class Cfg, class Shape, class Params>
__device__ __forceinline__ void route_take(const Params &p)
{
    typedef Plain<Cfg::kFormat> Format;
    const int64_t choices = Shape::cols(p, 1), num = p.dim[0] * choices;
    for (int64_t i = (int64_t)blockIdx.x * Cfg::kThreads + threadIdx.x; i < num;
         i += (int64_t)gridDim.x * Cfg::kThreads) {
        const int64_t m = i / choices, at = i % choices;
        const int32_t col = Shape::template row<const int32_t>(p, 1, m)[at];
        const auto *row = Shape::template row<const typename Format::Element>(p, 0, m);
        const bool exists = col >= 0 && col < Shape::cols(p, 0);
        Shape::template row<float>(p, 2, m)[at] = exists ? Format::load(row[col]) : 0.0f;
    }
}

/* Groups --------------------------------------------------------------------------------------- */

template <class T> __device__ __forceinline__ T warp_sum(T x)
{
#pragma unroll
    for (int step = 16; step; step /= 2)
        x += __shfl_xor_sync(0xFFFFFFFFu, x, step);
    return x;
}

/* The sum of x of all threads before this one of a block; *ret_all: of all threads. */
template <int WARPS, class T> __device__ __forceinline__ T sum_before(T x, T *ret_all)
{
    __shared__ T warps[WARPS];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    T upto = x;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const T other = __shfl_up_sync(0xFFFFFFFFu, upto, step);
        upto += lane >= step ? other : 0;
    }
    if (lane == 31)
        warps[warp] = upto;
    __syncthreads();
    const T sum = lane < WARPS ? warps[lane] : 0;
    *ret_all = warp_sum(sum);
    return warp_sum(lane < warp ? sum : 0) + upto - x;
}

/* Choice i of all rows' after each other. */
template <class Cfg, class Shape, class Params>
__device__ __forceinline__ int32_t *route_choice(const Params &p, int operand, int i)
{
    if constexpr (Cfg::kFlat)
        return (int32_t *)p.op[operand].data + i;
    const int choices = (int)Shape::cols(p, operand);
    return Shape::template row<int32_t>(p, operand, i / choices) + i % choices;
}

/* Lanes of the same group, of those that `here` is true in. A vote for each bit takes as long
 * whatever the groups are. */
template <int GROUPS> __device__ __forceinline__ uint32_t lanes_of_group(uint32_t group, bool here)
{
    uint32_t same = __ballot_sync(0xFFFFFFFFu, here);
#pragma unroll
    for (int bit = 0; (GROUPS - 1) >> bit; bit++) {
        const bool one = group >> bit & 1;
        const uint32_t ones = __ballot_sync(0xFFFFFFFFu, one);
        same &= one ? ones : ~ones;
    }
    return same;
}

/* Choices that a warp takes at once, NUM of each lane: from `base` on one for each lane, then the
 * next ones. */
template <class Cfg, int NUM> struct RouteChunk {
    int32_t group[NUM]; /* -1: behind the last choice */
    int32_t place[NUM];

    template <class Shape, class Params>
    __device__ __forceinline__ void load(const Params &p, int base, int end)
    {
#pragma unroll
        for (int i = 0; i < NUM; i++) {
            const int at = base + 32 * i + threadIdx.x % 32;
            group[i] = at < end ? *route_choice<Cfg, Shape>(p, 0, at) : -1;
        }
    }
    /* Number in the band that begins at group `first`; others have higher ones. */
    __device__ __forceinline__ uint32_t in_band(int i, int first) const
    {
        return (uint32_t)group[i] - (uint32_t)first;
    }
    /* A place for each choice of the band, in their order; next: of each group, the warp's own. */
    __device__ __forceinline__ void take(int32_t *next, int first, int band)
    {
        const int lane = threadIdx.x % 32;
        uint32_t same[NUM];
#pragma unroll
        for (int i = 0; i < NUM; i++)
            same[i] = lanes_of_group<Cfg::kBand>(in_band(i, first), in_band(i, first) < band);
#pragma unroll
        for (int i = 0; i < NUM; i++) {
            const bool lowest = same[i] << (31 - lane) == 1u << 31; /* of its group's lanes */
            place[i] = in_band(i, first) < band && lowest
                           ? atomicAdd(next + in_band(i, first), __popc(same[i]))
                           : 0;
            __syncwarp(); /* before another lane takes places for the group */
        }
#pragma unroll
        for (int i = 0; i < NUM; i++)
            place[i] = __shfl_sync(0xFFFFFFFFu, place[i], __ffs(same[i] | 1u << 31) - 1) +
                       __popc(same[i] & ((1u << lane) - 1));
    }
};

/* Of a thread's group: the routed rows of its choices, all of the band's, and this block's. */
struct RoutePlaces {
    int32_t end, begin; /* behind the last one of all blocks; this block's first one */
    int32_t own;        /* the block's choices of the band that come before */
    int32_t all, owns;  /* choices of the band: of all blocks, of this one */
};

/* total: the block's choices of the group, 0 beyond the band; carry: choices of earlier bands. */
template <class Cfg> __device__ __forceinline__ RoutePlaces route_places(int32_t total, int carry)
{
    constexpr int kWarps = Cfg::kThreads / 32;
    if constexpr (Cfg::kBlocks == 1) {
        int32_t all;
        const int32_t own = sum_before<kWarps>(total, &all);
        return {carry + own + total, carry + own, own, all, all};
    } else {
        __shared__ int32_t totals[Cfg::kBand];
        int32_t sum = 0, others = 0; /* of all blocks, of those before this one */
        if (threadIdx.x < Cfg::kBand)
            totals[threadIdx.x] = total;
        meet_cluster_stored();
        if (threadIdx.x < Cfg::kBand) {
#pragma unroll
            for (int i = 0; i < Cfg::kBlocks; i++) {
                const int32_t there = load_there(totals + threadIdx.x, i);
                sum += there;
                others += i < (int)blockIdx.x ? there : 0;
            }
        }
        uint64_t all; /* sums of both: of all blocks above, this one's below */
        const uint64_t before =
            sum_before<kWarps>((uint64_t)(uint32_t)sum << 32 | (uint32_t)total, &all);
        const int32_t begin = carry + (int32_t)(before >> 32);
        return {begin + sum, begin + others, (int32_t)before, (int32_t)(all >> 32), (int32_t)all};
    }
}

/* The blocks, of one cluster if there are several, count all choices and place them, each warp of
 * each block a run of them, so that choices of a group keep their order; kBand groups at a time.
 * kHeld: choices of a lane, which are read once; 0: they are read and ordered once to be counted
 * and again to be placed. Held ones go to sources by way of the block's shared memory, in the order
 * of their groups: stored one by one, each would take a write of its own to L2. */
template <class Cfg, class Shape, class Params> struct RouteGroups {
    /* operands that are written; 0: none */
    static constexpr int kEnds = Cfg::kStep == ROUTE_ENDS || Cfg::kStep == ROUTE_SORT;
    static constexpr int kPlaces = Cfg::kStep == ROUTE_SORT ? 2 : Cfg::kStep == ROUTE_PLACES;
    static constexpr int kSources = Cfg::kStep == ROUTE_SORT ? 3 : Cfg::kStep == ROUTE_SOURCES;
    static constexpr bool kStaged = Cfg::kHeld > 0 && kSources > 0;
    static constexpr int kAhead = Cfg::kHeld ? Cfg::kHeld : 8; /* that are loaded at once */
    static constexpr int kWarps = Cfg::kThreads / 32;
    static_assert(Cfg::kBand <= Cfg::kThreads, "a thread has a group");
    typedef RouteChunk<Cfg, kAhead> Chunk;

    /* Choices of this block that are to be sources: {routed row, row}. */
    static __device__ __forceinline__ int2 *staged()
    {
        extern __shared__ __align__(128) char smem[];
        return (int2 *)smem;
    }
    /* next: of each group, what is added to places that are held; shift: what lies between a place
     * in `staged` and the routed row. */
    static __device__ __forceinline__ void put(const Params &p, const Chunk &c, const int32_t *next,
                                               const int32_t *shift, int first, int band, int base,
                                               int end)
    {
        const int choices = (int)Shape::cols(p, 0);
#pragma unroll
        for (int i = 0; i < kAhead; i++) {
            const int at = base + 32 * i + threadIdx.x % 32;
            const uint32_t group = c.in_band(i, first);
            const bool here = group < band, exists = (uint32_t)c.group[i] < Cfg::kGroups;
            const int own = here && Cfg::kHeld ? next[group] + c.place[i] : c.place[i];
            const int place = here && kStaged ? own + shift[group] : own;
            if (kPlaces && (here || (first == 0 && at < end && !exists)))
                *route_choice<Cfg, Shape>(p, kPlaces, at) = here ? place : -1;
            if (kStaged && here)
                staged()[own] = {place, at / choices};
            else if (kSources && here)
                *Shape::template row<int32_t>(p, kSources, place) = at / choices;
        }
    }
    static __device__ __forceinline__ void put_sources(const Params &p, int num)
    {
        __syncthreads();
        for (int i = threadIdx.x; i < num; i += Cfg::kThreads) {
            const int2 source = staged()[i];
            *Shape::template row<int32_t>(p, kSources, source.x) = source.y;
        }
    }

    static __device__ __forceinline__ void sort(const Params &p)
    {
        __shared__ int32_t count[kWarps][Cfg::kBand], shift[Cfg::kBand];
        const int warp = threadIdx.x / 32, own = threadIdx.x;
        const int num = (int)(p.dim[0] * Shape::cols(p, 0));
        const int run =
            ((num + Cfg::kBlocks * kWarps - 1) / (Cfg::kBlocks * kWarps) + 31) / 32 * 32;
        const int skip = (blockIdx.x * kWarps + warp) * run;
        const int begin = skip < num ? skip : num, end = num - begin < run ? num : begin + run;
        int32_t carry = 0;
        for (int first = 0; first < Cfg::kGroups; first += Cfg::kBand) {
            const int band = Cfg::kGroups - first < Cfg::kBand ? Cfg::kGroups - first : Cfg::kBand;
            for (int i = threadIdx.x; i < kWarps * Cfg::kBand; i += Cfg::kThreads)
                count[i / Cfg::kBand][i % Cfg::kBand] = 0;
            __syncthreads();
            Chunk c;
            for (int base = begin; base < end; base = Cfg::kHeld ? end : base + 32 * kAhead) {
                c.template load<Shape>(p, base, end);
                c.take(count[warp], first, band);
            }
            __syncthreads();
            int32_t total = 0;
            if (own < band)
                for (int w = 0; w < kWarps; w++)
                    total += count[w][own];
            const RoutePlaces places = route_places<Cfg>(total, carry);
            carry += places.all;
            if (kEnds && own < band && blockIdx.x == 0)
                Shape::template row<int32_t>(p, kEnds, 0)[first + own] = places.end;
            if constexpr (kPlaces || kSources) {
                if (own < band) {
                    int32_t next = kStaged ? places.own : places.begin;
                    shift[own] = places.begin - places.own;
                    for (int w = 0; w < kWarps; w++) {
                        const int32_t here = count[w][own];
                        count[w][own] = next;
                        next += here;
                    }
                }
                __syncthreads();
                for (int base = begin; base < end; base = Cfg::kHeld ? end : base + 32 * kAhead) {
                    if (!Cfg::kHeld) {
                        c.template load<Shape>(p, base, end);
                        c.take(count[warp], first, band);
                    }
                    put(p, c, count[warp], shift, first, band, base, end);
                }
                if constexpr (kStaged)
                    put_sources(p, places.owns);
            }
            __syncthreads();             /* what is shared is free again, .. */
            cluster_end<Cfg::kBlocks>(); /* .. also what other blocks read */
        }
    }
};

template <int BYTES> struct RouteElement {
    typedef uint16_t Type;
};
template <> struct RouteElement<4> {
    typedef uint32_t Type;
};

/* Counts [1, E] of rows that stay; a warp takes one of the others at a time. */
template <class Cfg, class Shape, class Params>
__device__ __forceinline__ void route_clear(const Params &p)
{
    typedef typename RouteElement<Cfg::kBytes>::Type Element;
    const int32_t *counts = Shape::template row<const int32_t>(p, 0, 0);
    const int64_t each = p.dim[0] / Shape::cols(p, 0), cols = Shape::cols(p, 1);
    const int64_t bytes = cols * sizeof(Element), step = (int64_t)gridDim.x * (Cfg::kThreads / 32);
    const int lane = threadIdx.x % 32;
    for (int64_t m = (int64_t)blockIdx.x * (Cfg::kThreads / 32) + threadIdx.x / 32; m < p.dim[0];
         m += step) {
        if (m % each < counts[m / each])
            continue;
        Element *row = Shape::template row<Element>(p, 1, m);
        const bool wide = ((uint64_t)row | (uint64_t)bytes) % 16 == 0;
        for (int64_t i = lane; wide && i < bytes / 16; i += 32)
            ((uint4 *)row)[i] = make_uint4(0, 0, 0, 0);
        for (int64_t i = lane; !wide && i < cols; i += 32)
            row[i] = 0;
    }
}

template <class Cfg, class Params> __device__ __forceinline__ void route(const Params &p)
{
    typedef RouteShape<Cfg, Params> Shape;
    wait_for_producer();
    let_consumer_start();
    if constexpr (Cfg::kStep == ROUTE_TOPK || Cfg::kStep == ROUTE_CHOOSE ||
                  Cfg::kStep == ROUTE_WEIGH)
        route_topk<Cfg, Shape>(p);
    else if constexpr (Cfg::kStep == ROUTE_TAKE)
        route_take<Cfg, Shape>(p);
    else if constexpr (Cfg::kStep == ROUTE_CLEAR)
        route_clear<Cfg, Shape>(p);
    else
        RouteGroups<Cfg, Shape, Params>::sort(p);
}

#endif
