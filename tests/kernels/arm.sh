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
flags='-O1 -std=gnu11 -ffp-contract=off -fno-math-errno -fno-trapping-math -D_GNU_SOURCE'
flags="$flags -I$PWD"
# all but the kernels for other instruction sets, and those that each machine has its own of
sources=$(find kernels/cpu tests/kernels quant -maxdepth 1 -name '*.c' ! -name 'kernels_*' \
    ! -name 'check_cuda*' ! -name 'check_panels*')

# objects <file>...: those of the base machine, as many at a time as there are processors
objects()
{
    # shellcheck disable=SC2086 # words are meant to split
    printf "$PWD/%s\\n" "$@" |
        (cd "$tmp" && xargs -P "$(nproc)" -n 4 "$cc" $flags -march=armv8-a -c) >"$tmp/log" 2>&1
}

check() { # <what is built for> <checks>
    num=$((num + 1))
    # shellcheck disable=SC2086 # words are meant to split
    if "$cc" $flags "-march=$1" -static -o "$tmp/check" kernels/cpu/kernels_portable.c \
        "$tmp"/*.o -lm -lpthread >"$tmp/log" 2>&1 &&
        qemu-aarch64 -cpu max "$tmp/check" "--only=$2" >"$tmp/log" 2>&1; then
        echo "ok $num - $1"
    else
        echo "not ok $num - $1"
        grep -v '^ok' "$tmp/log" | head -40 | sed 's/^/# /'
    fi
}

# shellcheck disable=SC2086 # words are meant to split
objects $sources base/[acdpstu]*.c || {
    echo 'Bail out! the objects cannot be built'
    cat "$tmp/log"
    exit 1
}
check armv8-a ''
check armv8.2-a+dotprod 'gemm i8'
check armv8.2-a+dotprod+i8mm 'gemm i8'
echo "1..$num"
