#!/bin/sh
# eval.sh <sinter> <generate> <example folder> <D> <F> <L>: puts an example's texts and generated data
# in a folder of their own, evaluates it as written ("plain") and under each of its .rules files, and
# prints how far each result is from the expected output. DEVICE, TARGET: as for digits/run.sh.
set -eu
sinter=$1 generate=$2 example=$3
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
device=${DEVICE:-cpu} target=cpu
[ "$device" = cpu ] || target=${TARGET:-sm_90a}

cp "$example"/*.sinter "$example"/*.rules "$out"
"$generate" "$out" "$4" "$5" "$6" 16
for rules in '' "$out"/*.rules; do
    name=plain
    option=
    [ -z "$rules" ] || { name=$(basename "$rules" .rules); option=--rules=$rules; }
    # shellcheck disable=SC2086 # none or one word
    printf '%-8s %s\n' "$name" "$("$sinter" eval "$out"/*.sinter $option --target="$target" \
        --device="$device")"
done
