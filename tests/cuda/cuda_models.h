/* The hand-made models of tests/artifact with a GPU's plan and kernels of names alone beside the
 * CPU's, for the fake driver. */
#ifndef TEST_CUDA_MODELS_H
#define TEST_CUDA_MODELS_H

#include "fake_driver.h"
#include "models.h"

#define CUDA_MODEL_GRID   3 /* of every launch */
#define CUDA_MODEL_BLOCK  128
#define CUDA_MODEL_SHARED 65536 /* of the product */

typedef enum Holds { /* plans of a file */
                     HOLDS_CPU = 1,
                     HOLDS_SM_90A = 2,
                     HOLDS_PORTABLE = 4,
                     HOLDS_ALL = 7,
                     WITH_MAPS = 8, /* sm_90a: the product is "mapped_4", in clusters */
                     OF_SCALES = 16 /* .. and its map of the scales of a, which has none */
} Holds;

/* model_float as a file with a binary for sm_90a and PTX in two plans. Kernels: "gemm_4" (h, bias,
 * a, w), "tile_2" (y, h), "move_2" (y, z); in the largest bucket "wide_4" instead of "gemm_4". Of
 * the section of weights the GPUs read weights_bytes of a pattern, behind which the CPU's lie. */
bool write_cuda_model(const TestModel *m, const char *path, uint64_t weights_bytes, int holds);
uint8_t pattern_at(uint64_t at); /* the pattern, in front of the bias */
/* What those kernels do, for fake_kernel; m: the model. */
void use_model(const TestModel *m);
FakeKernel run_model_kernel;

#endif
