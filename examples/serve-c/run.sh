#!/bin/sh
# run.sh [sinter [serve]]: compiles the classifier of examples/digits as written and to integers, and
# serves each from four threads with a session of their own.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
sinter=${1:-sinter}
serve=${2:-./serve}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

for variant in float w8a8; do
    rules=
    [ $variant = float ] || rules="--rules=$here/../digits/$variant.rules"
    # shellcheck disable=SC2086 # none or one word
    "$sinter" compile "$here/../digits/digits.sinter" $rules -o "$out/$variant"
    printf '%s: ' $variant
    "$serve" "$out/$variant" 4 256
done
