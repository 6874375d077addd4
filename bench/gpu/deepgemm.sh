#!/bin/sh
# deepgemm.sh <DeepGEMM> <CUTLASS> <program>: builds deepgemm.cu with the headers of checkouts of
# github.com/deepseek-ai/DeepGEMM (54e2261 is known to do) and github.com/NVIDIA/cutlass, by CUDA 13's nvcc
# ($NVCC); nothing is downloaded. The program runs on one GPU of compute capability 9.0 with 132 processors.
set -eu
deepgemm=${1:?usage: deepgemm.sh <DeepGEMM> <CUTLASS> <program>}
cutlass=${2:?usage: deepgemm.sh <DeepGEMM> <CUTLASS> <program>}
program=${3:?usage: deepgemm.sh <DeepGEMM> <CUTLASS> <program>}
"${NVCC:-nvcc}" -std=c++20 -O3 --expt-relaxed-constexpr --expt-extended-lambda \
    -diag-suppress=39,161,174,177,186,940 -gencode arch=compute_90a,code=sm_90a --cudart static \
    "-I$deepgemm/deep_gemm/include" "-I$cutlass/include" "$(dirname "$0")/deepgemm.cu" -o "$program"
