/* Strided copies: transpose, slice, concat, and clearing of workspaces. Cfg: kRank, kElementBytes,
 * dim(d), src(d), dst(d) (element strides), kSrcAt, kDstAt (element offsets); where kVaries, these
 * come in p.dim instead, in the order of artifact/artifact.h (SIZE_MOVE_DIM). */
#ifndef SINTER_CUDA_MOVE
#define SINTER_CUDA_MOVE

#include "kernels/cuda/prelude.cuh"

template <int BYTES> struct MoveElement;
template <> struct MoveElement<1> {
    typedef uint8_t Type;
};
template <> struct MoveElement<2> {
    typedef uint16_t Type;
};
template <> struct MoveElement<4> {
    typedef uint32_t Type;
};

template <class Cfg, class Params> struct MoveBox {
    static constexpr int kMost = 6; /* LIMIT_RANK */
    static __device__ __forceinline__ int64_t dim(const Params &p, int d)
    {
        if constexpr (Cfg::kVaries)
            return p.dim[1 + d];
        else
            return Cfg::dim(d);
    }
    static __device__ __forceinline__ int64_t src(const Params &p, int d)
    {
        if constexpr (Cfg::kVaries)
            return p.dim[1 + kMost + d];
        else
            return Cfg::src(d);
    }
    static __device__ __forceinline__ int64_t dst(const Params &p, int d)
    {
        if constexpr (Cfg::kVaries)
            return p.dim[1 + 2 * kMost + d];
        else
            return Cfg::dst(d);
    }
};

template <class Cfg, class Params> __device__ __forceinline__ void move_box(const Params &p)
{
    typedef MoveBox<Cfg, Params> Box;
    typedef typename MoveElement<Cfg::kElementBytes>::Type Element;
    const Element *src = (const Element *)p.op[0].data;
    Element *dst = (Element *)p.op[1].data;
    wait_for_producer();
    const int64_t num = p.dim[0];
    int64_t src_at = Cfg::kSrcAt, dst_at = Cfg::kDstAt;
    if constexpr (Cfg::kVaries) {
        src_at = p.dim[1 + 3 * Box::kMost];
        dst_at = p.dim[2 + 3 * Box::kMost];
    }
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < num;
         i += (int64_t)gridDim.x * blockDim.x) {
        int64_t rest = i, from = src_at, to = dst_at;
#pragma unroll
        for (int d = Cfg::kRank - 1; d >= 0; d--) {
            int64_t at = rest % Box::dim(p, d);
            rest /= Box::dim(p, d);
            from += at * Box::src(p, d);
            to += at * Box::dst(p, d);
        }
        dst[to] = src[from];
    }
    let_consumer_start();
}

#endif
