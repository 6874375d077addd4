#!/bin/sh
# experts.sh <build> <out-dir> [work-dir]: whole layers of experts (RMSNorm, router, choice, gate, up,
# SiLU times, down, weighted sum, residual; dynamic quantisation counted), compiled by us in each
# scheme; the router stays bf16.
. "$(dirname "$0")/common.sh"

schemes=${SINTER_BENCH_SCHEMES:-bf16 fp8 int8 w4a16 mxfp4}
experts_folder
jobs=
for scheme in $schemes; do
    SINTER_BENCH_KEEP='layer[*].router : keep' \
        compile "$experts/experts.sinter" "$scheme" 1 "$experts/$scheme" &
    jobs="$jobs $!"
done
for job in $jobs; do
    wait "$job" || true
done
for scheme in $schemes; do
    [ -e "$experts/$scheme" ] || continue
    timeout 60 "$model" time "$experts/$scheme" "--scheme=$scheme" --level=1 --bench=experts \
        --layers=2 "--x=$experts/x.npy" "--y=$experts/y.npy" --residual=1 "--json=$results" ||
        echo "experts $scheme failed ($?)"
done
