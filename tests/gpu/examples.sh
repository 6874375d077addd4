#!/bin/sh
# examples.sh COMPARE SINTER GENERATE: every example on the GPU by its own script, held to the bounds of
# examples/bounds.txt. COMPARE: the program of compare.c, asked whether there is a GPU; exits with 77
# where there is none.
set -u
compare=${1:?usage: examples.sh COMPARE SINTER GENERATE}
sinter=${2:?}
generate=${3:?}
examples=$(cd "$(dirname "$0")/../../examples" && pwd)
"$compare" --probe || exit $?
export DEVICE=cuda:0
failed=0
for example in digits ffn rules mx minilm; do
    "$examples/test.sh" $example "$sinter" "$generate" || failed=1
done
exit $failed
