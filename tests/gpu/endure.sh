#!/bin/sh
# endure.sh SINTER GENERATE ENDURE [SECONDS [RUNS]]: compiled files on the first GPU for long. Four formats of a layer are
# compiled; each file runs RUNS (100) times, in a process each, and must give the same bits; then ENDURE (endure.c) runs
# the GPU's own errors, and SECONDS (20) of runs. TAP lines; exits with 77 where there is no GPU.
set -u
sinter=${1:?usage: endure.sh SINTER GENERATE ENDURE [SECONDS [RUNS]]}
generate=${2:?}
endure=${3:?}
limit=${4:-20}
runs=${5:-100}
example=$(cd "$(dirname "$0")/../../examples/ffn" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
cp "$example"/*.sinter "$example"/*.rules "$work"
"$generate" "$work" 512 1792 2 16 >/dev/null || exit 2

for format in w8a8 w4a16 fp8 smooth; do
    "$sinter" compile "$work/ffn.sinter" --rules="$work/$format.rules" --target=sm_90a --slower=off \
        -o "$work/$format" >"$work/log" 2>&1 || {
        cat "$work/log"
        echo "not ok - $format does not compile"
        failed=1
        continue
    }
    "$endure" "$work/$format" runs 0 >"$work/log" 2>&1
    [ $? != 77 ] || { echo "# skip: no GPU"; exit 77; }
    # shellcheck disable=SC2016 # the inner shell's own words
    seq "$runs" | xargs -P 8 -I '{}' sh -c \
        '"$1" --device=cuda:0 --input x="$2/x.npy" --output y="$1.{}.npy" >/dev/null 2>"$1.{}.log" || cat "$1.{}.log"
        sha256sum <"$1.{}.npy"; rm -f "$1.{}.npy"' sh "$work/$format" "$work" >"$work/sums" 2>&1
    if [ "$(wc -l <"$work/sums")" = "$runs" ] && [ "$(sort -u "$work/sums" | wc -l)" = 1 ]; then
        echo "ok - $format: $runs processes give the same bits"
    else
        echo "not ok - $format: $runs processes do not give the same bits"
        sort "$work/sums" | uniq -c | head -5
        failed=1
    fi
done
"$endure" "$work/w8a8" faults || failed=1
"$endure" "$work/fp8" runs "$limit" ${ALONE:+--alone} || failed=1
exit $failed
