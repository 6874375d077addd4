/* What every device file stands on: integer types (no toolkit header is read), operands, and thin
 * wrappers of the PTX that C++ has no words for. */
#ifndef SINTER_CUDA_PRELUDE
#define SINTER_CUDA_PRELUDE

typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;

#include "numerics/numerics.h"

/* One operand of a launch, as the runtime passes it: elements or codes, and for quantised tensors
 * their scales, zero points and outer scale (NULL where the scheme has none). */
struct Operand {
    void *data;
    float *scale;
    int32_t *zero;
    float *outer;
};

/* A vector register's worth of bytes. */
struct __align__(16) Bytes16
{
    uint32_t x, y, z, w;
};
struct __align__(8) Bytes8
{
    uint32_t x, y;
};

__device__ __forceinline__ uint32_t smem_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* Asynchronous 16-byte copy, global to shared; bytes past src_bytes (0..16) become zero.
 * PTX ISA, "cp.async". */
__device__ __forceinline__ void copy_async16(uint32_t dst, const void *src, int src_bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(dst), "l"(src),
                 "r"(src_bytes)
                 : "memory");
}
__device__ __forceinline__ void copy_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int PENDING> __device__ __forceinline__ void copy_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

/* Programmatic dependent launch (PTX ISA, "griddepcontrol"): before the first read of what an
 * earlier kernel wrote, and once the next kernel may start its prologue. */
__device__ __forceinline__ void wait_for_producer()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void let_consumer_start()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* Weights are read once: keep them out of L1 and first to leave L2. */
__device__ __forceinline__ Bytes16 load_stream16(const void *p)
{
    Bytes16 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}

/* d = a * b + d on one 16x8 tile. Fragments: lane = 4 * g + t holds of A rows g and g + 8, of B
 * column g, of D rows g (d0, d1) and g + 8 (d2, d3), columns 2t and 2t + 1.
 * PTX ISA, "Matrix Fragments for mma.m16n8k32" and "mma.m16n8k16". */
template <bool A_SIGNED, bool B_SIGNED>
__device__ __forceinline__ void mma_i8(int32_t (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                       uint32_t b1)
{
#define SINTER_MMA_I8(types)                                                                       \
    asm("mma.sync.aligned.m16n8k32.row.col.s32." types ".s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, " \
        "{%8, %9}, {%0, %1, %2, %3};"                                                              \
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])                                           \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
    if (A_SIGNED && B_SIGNED)
        SINTER_MMA_I8("s8.s8");
    else if (A_SIGNED)
        SINTER_MMA_I8("s8.u8");
    else if (B_SIGNED)
        SINTER_MMA_I8("u8.s8");
    else
        SINTER_MMA_I8("u8.u8");
#undef SINTER_MMA_I8
}
__device__ __forceinline__ void mma_f16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                        uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void mma_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                         uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Pairs of 16-bit floats: a * b + c, exact where the comment of the caller says so. */
__device__ __forceinline__ uint32_t fma_f16x2(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t d;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}
__device__ __forceinline__ uint32_t fma_bf16x2(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t d;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}
__device__ __forceinline__ uint32_t pack_bf16x2(float lo, float hi)
{
    uint32_t d;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(hi), "f"(lo));
    return d;
}
__device__ __forceinline__ uint32_t pack_f16x2(float lo, float hi)
{
    uint32_t d;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(hi), "f"(lo));
    return d;
}
__device__ __forceinline__ uint32_t bits_at(uint32_t x, uint32_t mask, uint32_t flip)
{
    uint32_t d; /* (x & mask) ^ flip in one instruction: lut (0xF0 & 0xCC) ^ 0xAA */
    asm("lop3.b32 %0, %1, %2, %3, 0x6A;" : "=r"(d) : "r"(x), "r"(mask), "r"(flip));
    return d;
}

#endif
