#!/bin/sh
# run.sh <sinter>: one layer of a checkpoint of each family, as it is stored, as a program on this
# processor: how far its results are from those of the weights that the family's own package
# dequantises.
set -eu
sinter=${1:?usage: run.sh <sinter>}
here=$(cd "$(dirname "$0")" && pwd)
for text in "$here"/*.sinter; do
    printf '%-12s %s\n' "$(basename "$text" .sinter)" "$("$sinter" eval "$text")"
done

# A model of ONNX becomes a text and its weights first: how far it is from ONNX Runtime.
models=$(cd "$here/../../tests/onnx" && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
"$sinter" import "$models/dynamic-channel.onnx" -o "$tmp/model" >"$tmp/said"
echo "expect \"$models/dynamic-channel-x.safetensors\" -> \"$models/dynamic-channel-want.safetensors\" atol 1e-4" \
    >>"$tmp/model/model.sinter"
printf '%-12s %s\n' onnx "$("$sinter" eval "$tmp/model/model.sinter")"
