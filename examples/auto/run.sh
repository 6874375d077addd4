#!/bin/sh
# run.sh [sinter]: chooses formats for the digits classifier, compiles it with and without choosing
# again, and prints the accuracy on the test split.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
digits=$here/../digits
sinter=${1:-sinter}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

"$sinter" choose "$digits/digits.sinter" --rules "$here/auto.rules" -o "$out/chosen.rules" \
    --data "$out/choice.json" --front "$out/front.svg"
cat "$out/chosen.rules"
"$sinter" compile "$digits/digits.sinter" --rules "$here/auto.rules" --times "$out/choice.json" \
    -o "$out/auto" 2>/dev/null
"$sinter" compile "$digits/digits.sinter" --rules "$out/chosen.rules" -o "$out/again"
cmp "$out/auto" "$out/again"
printf 'auto   '
"$out/again" --input x="$digits/test_x.npy" --labels "$digits/test_y.npy"
