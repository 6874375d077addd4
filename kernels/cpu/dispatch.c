/* Which instruction set runs: the best one that the machine, the operating system and the build
 * have, unless limited. */
#include "kernels/cpu/kernels.h"
#include <stdatomic.h>
#if defined(SINTER_CPU_X86)
#include <cpuid.h>

/* clang 14 does not know the name in __builtin_cpu_supports */
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

static CpuIsa isa_detect(void)
{
#if defined(SINTER_CPU_X86)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vnni"))
        return CPU_AVX512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c())
        return CPU_AVX2;
#endif
    return CPU_PORTABLE;
}

/* Detected + 1; detection gives the same answer to every thread, so racing for it is harmless. */
static atomic_int isa_found;
static atomic_int isa_limit = CPU_AVX512;

CpuIsa cpu_isa(void)
{
    int found = atomic_load_explicit(&isa_found, memory_order_relaxed);
    if (!found) {
        found = (int)isa_detect() + 1;
        atomic_store_explicit(&isa_found, found, memory_order_relaxed);
    }
    int limit = atomic_load_explicit(&isa_limit, memory_order_relaxed);
    return (CpuIsa)(found - 1 < limit ? found - 1 : limit);
}

void cpu_isa_limit(CpuIsa at_most)
{
    atomic_store_explicit(&isa_limit, (int)at_most, memory_order_relaxed);
}

const char *cpu_isa_name(CpuIsa isa)
{
    static const char *const name[] = {"portable", "avx2", "avx512"};
    return name[isa];
}

const CpuKernels *cpu_kernels(void)
{
#if defined(SINTER_CPU_X86)
    switch (cpu_isa()) {
    case CPU_AVX512: return &cpu_kernels_avx512;
    case CPU_AVX2: return &cpu_kernels_avx2;
    default: break;
    }
#endif
    return &cpu_kernels_portable;
}
