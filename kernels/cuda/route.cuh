/* Which groups rows go to, and their order there (artifact/artifact.h: RouteStep). Cfg:
 * kStep, kVaries; cols(i), pitch(i): of each operand; where kVaries
 * these come in p.dim instead (SIZE_ROUTE). p.dim[0]: rows of operand 0, ROUTE_CLEAR of operand 1.
 * An index or a place that does not exist is neither read nor written to nor counted, as on the
 * CPU. */
#ifndef SINTER_CUDA_ROUTE
#define SINTER_CUDA_ROUTE

#include "kernels/cuda/columns.cuh"

enum RouteStep {
    ROUTE_TOPK,
    ROUTE_TAKE,
    ROUTE_ENDS,
    ROUTE_PLACES,
    ROUTE_SOURCES,
    ROUTE_CHOOSE,
    ROUTE_SORT,
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

__device__ __forceinline__ int32_t warp_sum(int32_t x)
{
#pragma unroll
    for (int step = 16; step; step /= 2)
        x += __shfl_xor_sync(0xFFFFFFFFu, x, step);
    return x;
}

/* The sum of x of all threads before this one of a block; *ret_all: of all threads. */
template <int WARPS> __device__ __forceinline__ int32_t sum_before(int32_t x, int32_t *ret_all)
{
    __shared__ int32_t warps[WARPS];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int32_t upto = x;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const int32_t other = __shfl_up_sync(0xFFFFFFFFu, upto, step);
        upto += lane >= step ? other : 0;
    }
    if (lane == 31)
        warps[warp] = upto;
    __syncthreads();
    const int32_t sum = lane < WARPS ? warps[lane] : 0;
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

/* One block counts all choices and places them, each warp a run of them, so that choices of a group
 * keep their order; kBand groups at a time. */
template <class Cfg, class Shape, class Params>
__device__ __forceinline__ void route_groups(const Params &p)
{
    /* operands that are written; 0: none */
    constexpr int kEnds = Cfg::kStep == ROUTE_ENDS || Cfg::kStep == ROUTE_SORT;
    constexpr int kPlaces = Cfg::kStep == ROUTE_SORT ? 2 : Cfg::kStep == ROUTE_PLACES;
    constexpr int kSources = Cfg::kStep == ROUTE_SORT ? 3 : Cfg::kStep == ROUTE_SOURCES;
    const int choices = (int)Shape::cols(p, 0);
    constexpr int kAhead = 8; /* choices of a lane that are loaded at once */
    constexpr int kWarps = Cfg::kThreads / 32;
    static_assert(Cfg::kBand <= Cfg::kThreads, "a thread has a group");
    __shared__ int32_t count[kWarps][Cfg::kBand];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int num = (int)(p.dim[0] * Shape::cols(p, 0));
    const int run = ((num + kWarps - 1) / kWarps + 31) / 32 * 32;
    const int begin = warp * run < num ? warp * run : num;
    const int end = num - begin < run ? num : begin + run;
    int32_t carry = 0;
    for (int first = 0; first < Cfg::kGroups; first += Cfg::kBand) {
        const int band = Cfg::kGroups - first < Cfg::kBand ? Cfg::kGroups - first : Cfg::kBand;
        for (int i = threadIdx.x; i < kWarps * Cfg::kBand; i += Cfg::kThreads)
            count[i / Cfg::kBand][i % Cfg::kBand] = 0;
        __syncthreads();
        for (int at = begin + lane; at < end; at += 32 * kAhead) {
            int32_t group[kAhead];
#pragma unroll
            for (int i = 0; i < kAhead; i++)
                group[i] = at + 32 * i < end ? *route_choice<Cfg, Shape>(p, 0, at + 32 * i) : -1;
#pragma unroll
            for (int i = 0; i < kAhead; i++)
                if (group[i] >= first && group[i] - first < band)
                    atomicAdd(&count[warp][group[i] - first], 1);
        }
        __syncthreads();
        int32_t all = 0, total = 0;
        const int own = threadIdx.x;
        if (own < band)
            for (int w = 0; w < kWarps; w++)
                total += count[w][own];
        int32_t before = carry + sum_before<kWarps>(total, &all);
        carry += all;
        if (kEnds && own < band)
            Shape::template row<int32_t>(p, kEnds, 0)[first + own] = before + total;
        if constexpr (kPlaces || kSources) {
            if (own < band)
                for (int w = 0; w < kWarps; w++) {
                    const int32_t here = count[w][own];
                    count[w][own] = before;
                    before += here;
                }
            __syncthreads();
            for (int base = begin; base < end; base += 32 * kAhead) {
                int32_t group[kAhead];
#pragma unroll
                for (int i = 0; i < kAhead; i++) {
                    const int at = base + 32 * i + lane;
                    group[i] = at < end ? *route_choice<Cfg, Shape>(p, 0, at) : -1;
                }
#pragma unroll
                for (int i = 0; i < kAhead; i++) {
                    const int at = base + 32 * i + lane;
                    const bool here = group[i] >= first && group[i] - first < band;
                    const uint32_t same = __match_any_sync(0xFFFFFFFFu, group[i]);
                    const int rank = __popc(same & ((1u << lane) - 1));
                    int32_t *next = &count[warp][here ? group[i] - first : 0];
                    const int32_t place = *next + rank;
                    __syncwarp();
                    if (here && rank == 0)
                        *next = place + __popc(same);
                    __syncwarp();
                    const bool exists = group[i] >= 0 && group[i] < Cfg::kGroups;
                    if (kPlaces && (here || (first == 0 && at < end && !exists)))
                        *route_choice<Cfg, Shape>(p, kPlaces, at) = here ? place : -1;
                    if (kSources && here)
                        *Shape::template row<int32_t>(p, kSources, place) = at / choices;
                }
            }
        }
        __syncthreads(); /* counts, and what sum_before stored, are free again */
    }
}

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
    if constexpr (Cfg::kStep == ROUTE_TOPK || Cfg::kStep == ROUTE_CHOOSE)
        route_topk<Cfg, Shape>(p);
    else if constexpr (Cfg::kStep == ROUTE_TAKE)
        route_take<Cfg, Shape>(p);
    else if constexpr (Cfg::kStep == ROUTE_CLEAR)
        route_clear<Cfg, Shape>(p);
    else
        route_groups<Cfg, Shape>(p);
}

#endif
