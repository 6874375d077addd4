#!/bin/sh
# run.sh [sinter]: compiles the classifier in each format to a program of its own, runs the programs
# on the test split and prints the accuracy of each, its size and how long it took to compile. DEVICE
# (cpu): where the programs run; for "cuda:0" they are compiled for TARGET (sm_90a) too.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
sinter=${1:-sinter}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
device=${DEVICE:-cpu} target=cpu
[ "$device" = cpu ] || target=${TARGET:-sm_90a}

now()
{
    date +%s%N
}

for variant in float w8a8 w4a16 fp8; do
    rules=
    [ $variant = float ] || rules="--rules=$here/$variant.rules"
    begin=$(now)
    # shellcheck disable=SC2086 # none or one word
    "$sinter" compile "$here/digits.sinter" $rules --target="$target" -o "$out/digits-$variant"
    end=$(now)
    printf '%-6s compiled in %3d ms to %7d bytes: ' $variant $(((end - begin) / 1000000)) \
        "$(stat -c %s "$out/digits-$variant")"
    "$out/digits-$variant" --device="$device" --input x="$here/test_x.npy" --labels "$here/test_y.npy"
done
