#!/bin/sh
# pack.sh <build> <folder>: the programs that the scripts here need, stripped, to be carried to the
# machine with the GPU, where <folder> serves as <build>.
set -eu
build=${1:?usage: pack.sh <build> <folder>}
to=${2:?usage: pack.sh <build> <folder>}
mkdir -p "$to/tools" "$to/bench"
for program in tools/sinter bench/gpu-data bench/gpu-model bench/gpu-cublaslt; do
    strip -o "$to/$program" "$build/$program"
done
du -sh "$to"
