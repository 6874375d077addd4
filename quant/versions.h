/* One loop body, compiled for the base machine, AVX2 and AVX-512. */
#ifndef SINTER_QUANT_VERSIONS_H
#define SINTER_QUANT_VERSIONS_H

int loop_level(void); /* 1 base, 2 AVX2, 3 AVX-512: the best of this machine */

#if defined(__x86_64__) && defined(__GNUC__)
#define LOOP_LEVELS
#define TARGET_AVX2   __attribute__((target("avx2,fma")))
#define TARGET_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")))

/* name(params) from name_body, at the best level of this machine. */
#define LOOP_VERSIONS(name, params, args)          \
    TARGET_AVX512 static void name##_avx512 params \
    {                                              \
        name##_body args;                          \
    }                                              \
    TARGET_AVX2 static void name##_avx2 params     \
    {                                              \
        name##_body args;                          \
    }                                              \
    void name params                               \
    {                                              \
        int level = loop_level();                  \
        if (level == 3)                            \
            name##_avx512 args;                    \
        else if (level == 2)                       \
            name##_avx2 args;                      \
        else                                       \
            name##_body args;                      \
    }
#else
#define LOOP_VERSIONS(name, params, args) \
    void name params                      \
    {                                     \
        name##_body args;                 \
    }
#endif

#endif
