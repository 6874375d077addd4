#!/bin/sh
# arm.sh <source root>: the kernels built for Arm pass their checks under qemu: the base machine all
# of them, those with dot products the integer ones. TAP; skipped where compiler or qemu is missing.
set -u
cd "${1:?usage: arm.sh <source root>}" || exit 1
cc=aarch64-linux-gnu-gcc
for tool in $cc qemu-aarch64; do
    command -v "$tool" >/dev/null || { echo "1..0 # SKIP there is no $tool"; exit 0; }
done
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
num=0
# all but the kernels for other instruction sets
sources=$(find kernels/cpu -maxdepth 1 -name '*.c' ! -name 'kernels_*')
check_sources=$(find tests/kernels -maxdepth 1 -name 'check*.c' ! -name '*cuda*' ! -name '*panels*')

check() { # <what is built for> <checks>
    num=$((num + 1))
    # shellcheck disable=SC2086 # words are meant to split
    if "$cc" -static -O1 -std=gnu11 "-march=$1" -ffp-contract=off -fno-math-errno \
        -fno-trapping-math -D_GNU_SOURCE -I. -o "$tmp/check" $sources \
        kernels/cpu/kernels_portable.c base/[acdpstu]*.c $check_sources quant/*.c \
        -lm -lpthread >"$tmp/log" 2>&1 &&
        qemu-aarch64 -cpu max "$tmp/check" "--only=$2" >"$tmp/log" 2>&1; then
        echo "ok $num - $1"
    else
        echo "not ok $num - $1"
        grep -v '^ok' "$tmp/log" | head -40 | sed 's/^/# /'
    fi
}

check armv8-a ''
check armv8.2-a+dotprod 'gemm i8'
check armv8.2-a+dotprod+i8mm 'gemm i8'
echo "1..$num"
