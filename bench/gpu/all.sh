#!/bin/sh
# all.sh <build> <out-dir> [step..]: the steps (all: ffn ffn_torch open quantise gemm) one after the
# other, each within its limit, then a summary. <out-dir> gets results.jsonl, results.json and
# log.txt; weights and compiled models go to a folder of their own that is removed.
set -u
here=$(cd "$(dirname "$0")" && pwd)
build=${1:?usage: all.sh <build> <out-dir> [step..]}
out=${2:?usage: all.sh <build> <out-dir> [step..]}
shift 2
[ $# -gt 0 ] || set -- ffn ffn_torch open quantise gemm
work=${SINTER_BENCH_WORK:-$(mktemp -d)}
mkdir -p "$out" "$work"
[ -n "${SINTER_BENCH_WORK:-}" ] || trap 'rm -rf "$work"' EXIT
rm -f "$out/results.jsonl"
python3 "$here/machine.py" "$out/results.jsonl"
for step; do
    begin=$(date +%s)
    case $step in
    ffn) limit=230 ;;
    gemm) limit=320 ;;
    ffn_torch) limit=230 ;;
    *) limit=120 ;;
    esac
    if [ "$step" = ffn_torch ]; then
        set -- timeout $limit python3 "$here/ffn_torch.py" "$work/ffn" "$out/results.jsonl"
    else
        set -- timeout $limit sh "$here/$step.sh" "$build" "$out" "$work"
    fi
    "$@" >"$work/log" 2>&1
    code=$?
    { echo "== $step"; cat "$work/log"; } >>"$out/log.txt"
    [ $code -eq 0 ] || { echo "$step ended with $code:"; tail -n 5 "$work/log"; }
    grep -E 'failed|MISSED' "$work/log" | cut -c1-200 | head -n 12
    echo "$step took $(($(date +%s) - begin)) s"
done
python3 "$here/../render.py" summary "$out/results.jsonl"
python3 "$here/../render.py" merge "$out/results.jsonl" "$out/results.json"
