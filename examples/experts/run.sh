#!/bin/sh
# run.sh [sinter]: compiles the classifier in each format to a program of its own, runs the programs
# on the test split and prints the accuracy of each and its size. DEVICE, TARGET: as for
# digits/run.sh.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
sinter=${1:-sinter}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
device=${DEVICE:-cpu} target=cpu
[ "$device" = cpu ] || target=${TARGET:-sm_90a}

for variant in float w8a8 w4a16 fp8; do
    rules=
    [ $variant = float ] || rules="--rules=$here/$variant.rules"
    # shellcheck disable=SC2086 # none or one word
    "$sinter" compile "$here/experts.sinter" $rules --target="$target" -o "$out/experts-$variant"
    printf '%-6s %7d bytes: ' $variant "$(stat -c %s "$out/experts-$variant")"
    "$out/experts-$variant" --device="$device" --input x="$here/../digits/test_x.npy" \
        --labels "$here/../digits/test_y.npy"
done
