/* codegen/cuda/nvrtc: the compiler NVRTC, which is loaded at run time and needs no GPU. */
#ifndef SINTER_CODEGEN_CUDA_NVRTC_H
#define SINTER_CODEGEN_CUDA_NVRTC_H

#include "base/base.h"

/* The functions of NVRTC that we call. Program is opaque; results other than 0 are errors. */
typedef struct Nvrtc {
    void *library;
    int (*version)(int *major, int *minor);
    int (*create)(void **program, const char *text, const char *name, int num_headers,
                  const char *const *headers, const char *const *names);
    int (*destroy)(void **program);
    int (*compile)(void *program, int num_options, const char *const *options);
    int (*log_size)(void *program, size_t *size);
    int (*log)(void *program, char *log);
    int (*cubin_size)(void *program, size_t *size);
    int (*cubin)(void *program, char *cubin);
    int (*ptx_size)(void *program, size_t *size);
    int (*ptx)(void *program, char *ptx);
} Nvrtc;

/* A text for one architecture, and what became of it. */
typedef struct NvrtcJob {
    const char *text, *arch;
    char *image, *log; /* malloc'ed; NULL: there is none */
    size_t size;       /* of the image */
    int result;        /* 0: NVRTC compiled it */
    double seconds;    /* of a processor */
} NvrtcJob;

/* nvrtc_run.c: one job, here. */
bool nvrtc_load(Nvrtc *ret, const char **ret_why);
const char *nvrtc_path(const Nvrtc *n);
#define NUM_NVRTC_OPTIONS 4 /* beside the architecture */
extern const char *const nvrtc_options[NUM_NVRTC_OPTIONS];
void nvrtc_run(const Nvrtc *n, NvrtcJob *job);

/* nvrtc_apart.c: one job, in a process of its own where this program serves such (target.h). */
void nvrtc_run_apart(const Nvrtc *n, NvrtcJob *job);

#endif
