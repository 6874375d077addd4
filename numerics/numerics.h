/* The numbers contract: every scalar step of every kernel, once, compiled by the C compiler for the
 * CPU (and its vector loops) and by NVRTC for the GPU. See docs/numerics.md.
 *
 * Rules: f32 throughout; round to nearest even; fused multiply-add only where written (num_fma);
 * built with contraction off and without fast-math on both sides; denormals are kept. */
#ifndef SINTER_NUMERICS_H
#define SINTER_NUMERICS_H

#ifdef __CUDACC_RTC__
#define NUM_FN static __device__ __forceinline__
#else
#include <stdint.h>
#define NUM_FN static inline
#endif

typedef enum FormatId {
    FMT_NONE,
#define FORMAT(ID, name, bits, family, is_signed, exp, man, bias, qmin, qmax) FMT_##ID,
#include "numerics/formats.def"
#undef FORMAT
    NUM_FORMATS
} FormatId;

typedef enum FormatFamily {
    FAMILY_FLOAT,
    FAMILY_INT,
    FAMILY_MINIFLOAT,
    FAMILY_CODEBOOK
} FormatFamily;

/* Bodies follow: num_fma num_sqrt num_exp num_erf num_tanh num_relu num_gelu num_gelu_tanh num_silu
 * num_sigmoid; conversions f32 <-> f16, bf16, e4m3, e5m2, e2m1, e8m0, integers, codebooks;
 * scale and code computation. */

#endif
