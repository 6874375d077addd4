#!/bin/sh
# ffn.sh <build> <out-dir> [work-dir]: whole gated feed-forward layers of an 8B model (RMSNorm, gate,
# up, SiLU times, down, residual; dynamic quantisation counted), compiled by us in each scheme.
. "$(dirname "$0")/common.sh"

schemes=${SINTER_BENCH_SCHEMES:-bf16 fp8 int8 w4a16 w4a8}
ffn_folder
jobs=
for scheme in $schemes; do
    compile "$ffn/ffn.sinter" "$scheme" 1 "$ffn/$scheme" &
    jobs="$jobs $!"
done
compile "$ffn/ffn.sinter" fp8 0 "$ffn/fp8-O0" &
for job in $jobs $!; do
    wait "$job" || true
done

# one <scheme> <level> <file>
one()
{
    [ -e "$3" ] || return 0
    timeout 60 "$model" time "$3" "--scheme=$1" "--level=$2" --bench=ffn "--layers=$ffn_layers" \
        "--x=$ffn/x.npy" "--y=$ffn/y.npy" --residual=1 "--json=$results" ||
        echo "ffn $1 -O$2 failed ($?)"
}
for scheme in $schemes; do
    one "$scheme" 1 "$ffn/$scheme"
done
one fp8 0 "$ffn/fp8-O0"
