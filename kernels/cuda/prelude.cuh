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

/* What the copy engine needs to know of a tensor; the runtime encodes it when it binds a launch. */
struct __align__(128) TensorMap
{
    uint64_t opaque[16];
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
 * PTX ISA, "cp.async". Before compute capability 8.0 the copy is done when this returns. */
__device__ __forceinline__ void copy_async16(uint32_t dst, const void *src, int src_bytes)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(dst), "l"(src),
                 "r"(src_bytes)
                 : "memory");
#else
    uint32_t word[4] = {};
    if (src_bytes == 16) {
        Bytes16 v = *(const Bytes16 *)src;
        word[0] = v.x, word[1] = v.y, word[2] = v.z, word[3] = v.w;
    } else {
        for (int i = 0; i < src_bytes; i++)
            word[i / 4] |= (uint32_t)((const uint8_t *)src)[i] << (i % 4 * 8);
    }
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(dst), "r"(word[0]), "r"(word[1]),
                 "r"(word[2]), "r"(word[3])
                 : "memory");
#endif
}
/* Of 16 bytes that are read once. */
__device__ __forceinline__ void copy_stream16(uint32_t dst, const void *src)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(dst), "l"(src) : "memory");
#else
    copy_async16(dst, src, 16);
#endif
}
/* What copies brought: volatile keeps these behind the wait and before the next copy. */
__device__ __forceinline__ Bytes16 load_shared16(uint32_t src)
{
    Bytes16 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(src));
    return v;
}
__device__ __forceinline__ Bytes8 load_shared8(uint32_t src)
{
    Bytes8 v;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(src));
    return v;
}
__device__ __forceinline__ uint32_t load_shared4(uint32_t src)
{
    uint32_t v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(src));
    return v;
}
__device__ __forceinline__ uint32_t load_shared2(uint32_t src)
{
    uint16_t v;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(src));
    return v;
}
__device__ __forceinline__ uint32_t load_shared1(uint32_t src)
{
    uint16_t v;
    asm volatile("ld.shared.u8 %0, [%1];" : "=h"(v) : "r"(src));
    return v;
}
/* The same with offsets that the instruction holds. */
template <int TO, int64_t FROM>
__device__ __forceinline__ void copy_async16_at(uint32_t dst, const void *src, int src_bytes)
{
#if __CUDA_ARCH__ >= 800
    if constexpr (FROM <= 0x7FFFFFFF) {
        asm volatile("cp.async.cg.shared.global [%0 + %3], [%1 + %4], 16, %2;" ::"r"(dst), "l"(src),
                     "r"(src_bytes), "n"(TO), "n"(FROM)
                     : "memory");
        return;
    }
#endif
    copy_async16(dst + TO, (const char *)src + FROM, src_bytes);
}
__device__ __forceinline__ void copy_commit()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int PENDING> __device__ __forceinline__ void copy_wait()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
#endif
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

/* What no kernel writes, each time anew: kept in registers, a table would leave too few of them. */
__device__ __forceinline__ Bytes16 load_again16(const void *p)
{
    Bytes16 v;
    asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}

/* Sums that blocks pass to each other: through L2, which all see. */
__device__ __forceinline__ Bytes16 load_l2(const void *p)
{
    Bytes16 v;
    asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}
__device__ __forceinline__ void store_l2(void *p, const Bytes16 &v)
{
    asm volatile("st.global.cg.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.x), "r"(v.y),
                 "r"(v.z), "r"(v.w)
                 : "memory");
}

/* Whether this block is the last of those, `others` more, that leave sums in L2 for the last one to
 * add; `counter` is zero before and after. All threads that `meet` does join call this, one of them
 * with `counts`. What the threads of all blocks stored before is there for those of the last one:
 * release and acquire are cumulative over what meet() orders (PTX ISA, "Memory Consistency Model"),
 * so that no thread needs a fence of its own. */
template <class Meet>
__device__ __forceinline__ bool is_last_block(uint32_t *counter, uint32_t others, bool counts,
                                              const Meet &meet)
{
    __shared__ uint32_t arrived;
    meet();
    if (counts) {
        uint32_t before;
        asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
                     : "=r"(before)
                     : "l"(counter), "r"(others)
                     : "memory");
        arrived = before;
    }
    meet();
    const bool ret = arrived == others;
    meet(); /* `arrived` is free again */
    return ret;
}

__device__ __forceinline__ uint32_t load_acquire(const uint32_t *p)
{
    uint32_t v;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}

/* Four 8x8 matrices of 16-bit elements, or 8 rows of 16 bytes: lane 8 * i + r says where row r of
 * matrix i lies; lane 4 * g + t gets word t of row g of each. PTX ISA, "ldmatrix". */
__device__ __forceinline__ void load_matrices(uint32_t (&to)[4], uint32_t from)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from)
                 : "memory");
}

/* Pairs of 16-bit floats: a * b + c, exact where the comment of the caller says so. */
__device__ __forceinline__ uint32_t fma_f16x2(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t d;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}
__device__ __forceinline__ float bf16_to_float(uint32_t bits)
{
    return __uint_as_float(bits << 16);
}
__device__ __forceinline__ uint32_t pack_bf16x2(float lo, float hi)
{
#if __CUDA_ARCH__ >= 800
    uint32_t d;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(hi), "f"(lo));
    return d;
#else
    return num_to_bf16(lo) | (uint32_t)num_to_bf16(hi) << 16;
#endif
}
__device__ __forceinline__ uint32_t fma_bf16x2(uint32_t a, uint32_t b, uint32_t c)
{
#if __CUDA_ARCH__ >= 800
    uint32_t d;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
#else
    return pack_bf16x2(
        num_fma(bf16_to_float(a), bf16_to_float(b), bf16_to_float(c)),
        num_fma(bf16_to_float(a >> 16), bf16_to_float(b >> 16), bf16_to_float(c >> 16)));
#endif
}
__device__ __forceinline__ uint32_t pack_f16x2(float lo, float hi)
{
    uint32_t d;
#if __CUDA_ARCH__ >= 800
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(hi), "f"(lo));
#else
    asm("{ .reg .b16 l, h; cvt.rn.f16.f32 l, %1; cvt.rn.f16.f32 h, %2; mov.b32 %0, {l, h}; }"
        : "=r"(d)
        : "f"(lo), "f"(hi));
#endif
    return d;
}
__device__ __forceinline__ uint32_t bits_at(uint32_t x, uint32_t mask, uint32_t flip)
{
    uint32_t d; /* (x & mask) ^ flip in one instruction: lut (0xF0 & 0xCC) ^ 0xAA */
    asm("lop3.b32 %0, %1, %2, %3, 0x6A;" : "=r"(d) : "r"(x), "r"(mask), "r"(flip));
    return d;
}

#endif
