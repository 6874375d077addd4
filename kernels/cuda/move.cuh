/* Strided copies: transpose, slice, concat, and clearing of workspaces. Cfg: kRank, kElementBytes,
 * kDim[kRank], kSrc[kRank], kDst[kRank] (element strides), kSrcAt, kDstAt (element offsets). */
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

template <class Cfg, class Params> __device__ __forceinline__ void move_box(const Params &p)
{
    typedef typename MoveElement<Cfg::kElementBytes>::Type Element;
    const Element *src = (const Element *)p.op[0].data;
    Element *dst = (Element *)p.op[1].data;
    wait_for_producer();
    const int64_t num = p.dim[0];
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < num;
         i += (int64_t)gridDim.x * blockDim.x) {
        int64_t rest = i, from = Cfg::kSrcAt, to = Cfg::kDstAt;
#pragma unroll
        for (int d = Cfg::kRank - 1; d >= 0; d--) {
            int64_t at = rest % Cfg::dim(d);
            rest /= Cfg::dim(d);
            from += at * Cfg::src(d);
            to += at * Cfg::dst(d);
        }
        dst[to] = src[from];
    }
    let_consumer_start();
}

#endif
