/* d = a * b + c on one 16x8 tile, by the tensor cores.
 *
 * Fragments: lane = 4 * g + t holds of A rows g and g + 8, of B column g, of D rows g (d0, d1) and
 * g + 8 (d2, d3), columns 2t and 2t + 1. PTX ISA, "Matrix Fragments for mma.m16n8k32" and
 * "mma.m16n8k16".
 *
 * Compute capability 7.5 has smaller shapes with the same fragments, s8 m8n8k16 and f16 m16n8k8
 * (PTX ISA, "Matrix Fragments for mma.m8n8k16" and "mma.m16n8k8"): two or four of them make one. It
 * multiplies no bf16: lanes pass their elements round and multiply in f32, slow but the same
 * numbers. */
#ifndef SINTER_CUDA_MMA
#define SINTER_CUDA_MMA

#include "kernels/cuda/prelude.cuh"

template <class Sum>
__device__ __forceinline__ void copy_sums(Sum (&d)[4], const Sum (&c)[4]) /* may be the same */
{
#pragma unroll
    for (int i = 0; i < 4; i++)
        d[i] = c[i];
}

#if __CUDA_ARCH__ >= 800
#define SINTER_MMA_I8(types)                                                                       \
    asm("mma.sync.aligned.m16n8k32.row.col.s32." types ".s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, " \
        "{%8, %9}, {%10, %11, %12, %13};"                                                          \
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])                                           \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(c[0]), "r"(c[1]),      \
          "r"(c[2]), "r"(c[3]))
#else
#define SINTER_MMA_I8_PART(types, i, j, b)                                          \
    asm("mma.sync.aligned.m8n8k16.row.col.s32." types ".s32 {%0, %1}, {%2}, {%3}, " \
        "{%0, %1};"                                                                 \
        : "+r"(d[i]), "+r"(d[i + 1])                                                \
        : "r"(a[j]), "r"(b))
#define SINTER_MMA_I8(types)                 \
    do {                                     \
        copy_sums(d, c);                     \
        SINTER_MMA_I8_PART(types, 0, 0, b0); \
        SINTER_MMA_I8_PART(types, 2, 1, b0); \
        SINTER_MMA_I8_PART(types, 0, 2, b1); \
        SINTER_MMA_I8_PART(types, 2, 3, b1); \
    } while (0)
#endif

template <bool A_SIGNED, bool B_SIGNED>
__device__ __forceinline__ void mma_i8(int32_t (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                       uint32_t b1, const int32_t (&c)[4])
{
    if (A_SIGNED && B_SIGNED)
        SINTER_MMA_I8("s8.s8");
    else if (A_SIGNED)
        SINTER_MMA_I8("s8.u8");
    else if (B_SIGNED)
        SINTER_MMA_I8("u8.s8");
    else
        SINTER_MMA_I8("u8.u8");
}
#undef SINTER_MMA_I8
#undef SINTER_MMA_I8_PART

__device__ __forceinline__ void mma_f16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                        uint32_t b1, const float (&c)[4])
{
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%10, %11, %12, %13};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(c[0]), "f"(c[1]),
          "f"(c[2]), "f"(c[3]));
#else
    copy_sums(d, c);
#pragma unroll
    for (int half = 0; half < 2; half++)
        asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
            "{%0, %1, %2, %3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[2 * half]), "r"(a[2 * half + 1]), "r"(half ? b1 : b0));
#endif
}

__device__ __forceinline__ void mma_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                         uint32_t b1, const float (&c)[4])
{
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%10, %11, %12, %13};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(c[0]), "f"(c[1]),
          "f"(c[2]), "f"(c[3]));
#else
    copy_sums(d, c);
    const int lane = threadIdx.x % 32, row = lane & ~3, column = lane % 4 * 8;
#pragma unroll 1 /* a kernel holds hundreds of these */
    for (int pair = 0; pair < 8;
         pair++) { /* neighbours in K: lane pair % 4 of each four has them */
        uint32_t b = pair < 4 ? b0 : b1, lo = pair < 4 ? a[0] : a[2], hi = pair < 4 ? a[1] : a[3];
        uint32_t w[2] = {__shfl_sync(~0u, b, column + pair % 4),
                         __shfl_sync(~0u, b, column + 4 + pair % 4)};
        uint32_t x[2] = {__shfl_sync(~0u, lo, row + pair % 4),
                         __shfl_sync(~0u, hi, row + pair % 4)};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            d[i] = num_fma(bf16_to_float(x[i / 2]), bf16_to_float(w[i % 2]), d[i]);
            d[i] = num_fma(bf16_to_float(x[i / 2] >> 16), bf16_to_float(w[i % 2] >> 16), d[i]);
        }
    }
#endif
}

#endif
