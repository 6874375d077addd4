/* Which instruction set runs: the best one that the machine, the operating system and the build
 * have, unless limited. */
#include "kernels/cpu/kernels.h"
#include <stdatomic.h>
#if defined(SINTER_CPU_X86)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

/* clang 14 does not know the names of these in __builtin_cpu_supports */
#if defined(SINTER_CPU_AVX2)
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

#if defined(SINTER_CPU_AVXVNNI)
static bool has_avx_vnni(void)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
}
#endif

#if defined(SINTER_CPU_AMX)
#define AMX_BITS     (1u << 22 | 1u << 24 | 1u << 25) /* bf16, tile, int8 */
#define REQUEST_PERM 0x1023
#define TILE_DATA    18

/* Linux lets a process use tiles when it has asked to: their state makes its threads larger. */
static bool has_amx(void)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & AMX_BITS) == AMX_BITS &&
           !syscall(SYS_arch_prctl, REQUEST_PERM, TILE_DATA);
}
#endif
#endif

static unsigned isa_detect(void)
{
    unsigned has = 1u << CPU_PORTABLE;
#if defined(SINTER_CPU_X86)
    __builtin_cpu_init();
#if defined(SINTER_CPU_AVX2)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c())
        has |= 1u << CPU_AVX2;
#endif
#if defined(SINTER_CPU_AVXVNNI)
    if (has >> CPU_AVX2 & 1 && has_avx_vnni())
        has |= 1u << CPU_AVXVNNI;
#endif
#if defined(SINTER_CPU_AVX512)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vnni"))
        has |= 1u << CPU_AVX512;
#endif
#if defined(SINTER_CPU_AVX512BF16)
    if (has >> CPU_AVX512 & 1 && __builtin_cpu_supports("avx512vbmi") &&
        __builtin_cpu_supports("avx512bf16"))
        has |= 1u << CPU_AVX512BF16;
#endif
#if defined(SINTER_CPU_AMX)
    if (has >> CPU_AVX512BF16 & 1 && has_amx())
        has |= 1u << CPU_AMX;
#endif
#endif
    return has;
}

/* 0: not yet known; detection gives the same answer to every thread, so racing for it is harmless.
 */
static atomic_uint isas_found;
static atomic_int isa_limit = NUM_CPU_ISAS - 1;

bool cpu_isa_present(CpuIsa isa)
{
    unsigned found = atomic_load_explicit(&isas_found, memory_order_relaxed);
    if (!found) {
        found = isa_detect();
        atomic_store_explicit(&isas_found, found, memory_order_relaxed);
    }
    return found >> isa & 1;
}

CpuIsa cpu_isa(void)
{
    int isa = atomic_load_explicit(&isa_limit, memory_order_relaxed);
    while (!cpu_isa_present((CpuIsa)isa))
        isa--;
    return (CpuIsa)isa;
}

/* Of AMD's processors the family, of others 0. */
static unsigned amd_family(void)
{
#if defined(SINTER_CPU_X86)
    static atomic_uint found; /* 1 more; to ask a virtual machine's processor takes microseconds */
    unsigned family = atomic_load_explicit(&found, memory_order_relaxed), ebx, ecx, edx;
    if (!family) {
        __builtin_cpu_init();
        if (__builtin_cpu_is("amd") && __get_cpuid(1, &family, &ebx, &ecx, &edx))
            family = (family >> 8 & 15) + (family >> 20 & 255);
        atomic_store_explicit(&found, ++family, memory_order_relaxed);
    }
    return family - 1;
#else
    return 0;
#endif
}
#define FAMILY_ZEN3 0x19 /* and of Zen 4 */
#define FAMILY_ZEN5 0x1a

/* AMD's cores get half as much of memory when they are asked for lines of several pages in turn.
 * Zen 4 fetches by itself what is read in order as fast as memory gives it. Zen 3 and Zen 5 do so
 * for a loop of loads alone: where 4-bit codes are decoded between them Zen 5 gets 27 GB/s of 40,
 * and 37 to 40 when lines are asked for. */
CpuFetch cpu_fetch(void)
{
    unsigned family = amd_family();
    bool is_zen4 = family == FAMILY_ZEN3 && cpu_isa_present(CPU_AVX512);
    return !family ? FETCH_PAGES : is_zen4 ? FETCH_NONE : FETCH_LINES;
}

bool cpu_is_wide(void)
{
    return amd_family() >= FAMILY_ZEN5;
}

void cpu_isa_limit(CpuIsa at_most)
{
    atomic_store_explicit(&isa_limit, (int)at_most, memory_order_relaxed);
}

const char *cpu_isa_name(CpuIsa isa)
{
    static const char *const name[] = {"portable", "avx2",       "avxvnni",
                                       "avx512",   "avx512bf16", "amx"};
    return name[isa];
}

const CpuKernels *cpu_kernels(void)
{
    switch (cpu_isa()) {
#if defined(SINTER_CPU_AMX)
    case CPU_AMX: return &cpu_kernels_amx;
#endif
#if defined(SINTER_CPU_AVX512BF16)
    case CPU_AVX512BF16: return &cpu_kernels_avx512bf16;
#endif
#if defined(SINTER_CPU_AVX512)
    case CPU_AVX512: return &cpu_kernels_avx512;
#endif
#if defined(SINTER_CPU_AVXVNNI)
    case CPU_AVXVNNI: return &cpu_kernels_avxvnni;
#endif
#if defined(SINTER_CPU_AVX2)
    case CPU_AVX2: return &cpu_kernels_avx2;
#endif
    default: return &cpu_kernels_portable;
    }
}
