#!/bin/sh
# run.sh MUTATE RANDOM_MODELS SEEDS MUTANTS: random models are compiled, with and without fusion, and
# mutants of their plans are run. TAP of mutate.
set -u
mutate=$1 random_models=$2 seeds=$3 mutants=$4
tmp=$(mktemp -d) || exit 2
trap 'rm -rf "$tmp"' EXIT
"$random_models" 0 "$seeds" "$tmp" >"$tmp/log" || {
    sed 's/^/# /' "$tmp/log"
    echo 'Bail out! the random models fail'
    exit 1
}
"$mutate" 0 "$mutants" "$tmp"/*/model[01]
